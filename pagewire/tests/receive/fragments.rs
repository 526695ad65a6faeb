// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cameras recorded as fragmented MP4: every picture and every sample of sound is in one file and
//! in no other, a file that was cut off is whole up to its last fragment, sources that MP4 has no
//! place for are refused, and a camera is not asked for the medium that is left out.
//!
//! The camera is a session description and packets made here: H.264 with one packet a picture, a
//! key frame a second, and G.711 in packets of 20 ms. Its times advance as fast as it is received.
//! A camera that is asked by RTSP is the server of [`fake`](crate::fake).
//!
//! Sources: RFC 6184 §5.6; RFC 3551 §4.5.14; ISO/IEC 14496-12 §4.2.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use media::mp4::Mp4Demuxer;
use media::{Codec, Presentation, RtpIdentity, TrackMedia};

use crate::fake::{Fake, Script};
use crate::harness::clip::{Clip, PAYLOAD_BYTES};
use crate::harness::ports::free_port;
use crate::harness::recorder::{Recorder, Sender, await_read, files, url};
use crate::harness::{PROGRAM, Place, Server, await_true, watchdog};

/// Pictures a second, each with this many packets of sound.
pub(crate) const PICTURES: u32 = 25;
const SOUNDS: u32 = 2;
/// Samples of a packet of sound.
const SAMPLES: u32 = 160;

/// Number of the first picture: its bytes, and those of the next, are no start code.
const FIRST: u32 = 0x1010_1010;

pub(crate) struct Camera {
    video: Sender,
    sound: Sender,
    /// Path of its description.
    pub(crate) description: String,
}

impl Camera {
    /// A camera whose description lies in a place.
    fn new(place: &Place) -> Camera {
        Camera::named(place, "camera")
    }

    /// A camera with a description of this name.
    pub(crate) fn named(place: &Place, name: &str) -> Camera {
        let ports = [free_port(), free_port()];
        let text = format!(
            "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=camera\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
             m=video {} RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n\
             a=fmtp:96 packetization-mode=1; sprop-parameter-sets=Z0IACpZTBYmI,aMljiA==\r\n\
             m=audio {} RTP/AVP 8\r\n",
            ports[0], ports[1]
        );
        let path = place.top().join(format!("{name}.sdp"));
        fs::write(&path, text).expect("room for a description");
        let description = path.to_str().expect("UTF-8").to_owned();
        let [video, sound] = ports.map(Sender::bare);
        Camera { video, sound, description }
    }

    /// Starts the recorder with files of this name, and waits until it listens.
    fn recorder(&self, place: &Place, command: Command, name: &str, more: &[&str]) -> Recorder {
        let pattern = place.folder().join(name);
        let output = ["-o", pattern.to_str().expect("UTF-8"), "--sdp", &self.description];
        Recorder::by(command, place, &[], &[&output, more].concat())
    }

    /// Sends pictures with these numbers, each with its sound.
    pub(crate) fn send(&self, numbers: std::ops::Range<u32>, bytes: usize) {
        for number in numbers {
            let is_key = number.is_multiple_of(PICTURES);
            let head = [if is_key { 0x65 } else { 0x41 }, 0x80];
            let number_bytes = (FIRST + number).to_be_bytes();
            let picture = [&head[..], &number_bytes, &vec![0xaa; bytes]].concat();
            self.video.await_room();
            self.video.send_raw(&packet(96, number as u16, number * 3600, &picture));
            self.sound.await_room();
            for sound in number * SOUNDS..(number + 1) * SOUNDS {
                // The least values of A-law: 8 and -8.
                let level = if sound.is_multiple_of(2) { 0xd5 } else { 0x55 };
                let payload = [level; SAMPLES as usize];
                self.sound.send_raw(&packet(8, sound as u16, sound * SAMPLES, &payload));
            }
        }
    }

    pub(crate) fn await_read(&self) {
        await_read(self.video.to.port());
        await_read(self.sound.to.port());
    }
}

fn packet(payload_type: u8, sequence: u16, timestamp: u32, payload: &[u8]) -> Vec<u8> {
    let head = [0x80, 0x80 | payload_type];
    let ssrc = u32::from(payload_type).to_be_bytes();
    let numbers = [&sequence.to_be_bytes()[..], &timestamp.to_be_bytes(), &ssrc].concat();
    [&head[..], &numbers, payload].concat()
}

fn demux(file: &[u8]) -> Presentation {
    let mut demuxer = Mp4Demuxer::new(file.len() as u64);
    while !demuxer.advance(file, 1000).expect("a good file") {}
    let identity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };
    demuxer.finish(|| identity).expect("its tracks can be streamed")
}

/// Returns the samples of a track.
fn samples(file: &[u8], track: usize) -> Vec<Vec<u8>> {
    let found = demux(file);
    let track = &found.tracks()[track];
    let all = track.samples.samples(0..track.samples.len());
    all.map(|sample| file[sample.file_offset as usize..][..sample.bytes as usize].to_vec())
        .collect()
}

/// Returns the numbers of the pictures in a file.
pub(crate) fn pictures(file: &[u8]) -> Vec<u32> {
    // Behind the length of the NAL unit and two bytes.
    let number =
        |sample: Vec<u8>| u32::from_be_bytes(sample[6..10].try_into().expect("four")) - FIRST;
    samples(file, 0).into_iter().map(number).collect()
}

/// Length of a file up to its last whole fragment.
fn whole_bytes(file: &[u8]) -> usize {
    let (mut at, mut whole) = (0, 0);
    while let Some(head) = file.get(at..at + 8) {
        at += u32::from_be_bytes(head[..4].try_into().expect("four")) as usize;
        if at > file.len() {
            break;
        }
        if matches!(&head[4..], b"moov" | b"mdat") {
            whole = at;
        }
    }
    whole
}

#[test]
fn pictures_and_g711_are_in_files_that_follow_each_other() {
    let place = Place::new();
    let camera = Camera::new(&place);
    let options = ["--rotate-seconds", "5"];
    let recorder = camera.recorder(&place, Command::new(PROGRAM), "{number}.mp4", &options);
    let all = 20 * PICTURES;
    camera.send(0..all, 500);
    camera.await_read();
    let recorded = recorder.stop().well();
    assert_eq!(recorded.figure("lost"), 0, "{:#}", recorded.summary);
    let read: Vec<_> =
        files(&place).iter().map(|path| fs::read(path).expect("it is there")).collect();
    assert_eq!(recorded.figure("files"), read.len() as u64);
    let numbers: Vec<_> = read.iter().map(|file| pictures(file)).collect();
    let lengths: Vec<_> = numbers.iter().map(|file| file.len() as u32 / PICTURES).collect();
    assert_eq!(lengths, [5, 5, 5, 5]);
    assert_eq!(numbers.concat(), (0..all).collect::<Vec<_>>());
    let Codec::Pcm(config) = demux(&read[0]).tracks()[1].codec else { panic!("PCM") };
    assert_eq!((config.rate_hz, config.channels, config.form.bytes()), (8000, 1, 2));
    let sound: Vec<u8> = read.iter().flat_map(|file| samples(file, 1).concat()).collect();
    let levels: Vec<_> = sound.chunks(2).map(|two| i16::from_le_bytes([two[0], two[1]])).collect();
    let expected = (0..all * SOUNDS).flat_map(|sound| {
        let level: i16 = if sound.is_multiple_of(2) { 8 } else { -8 };
        [level; SAMPLES as usize]
    });
    assert!(levels.iter().copied().eq(expected), "{} samples", levels.len());
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    server.await_stream("000002.mp4");
    server.stop();
}

#[test]
fn packets_that_are_lost_are_counted() {
    let place = Place::new();
    let camera = Camera::new(&place);
    let recorder = camera.recorder(&place, Command::new(PROGRAM), "a.mp4", &[]);
    camera.send(0..60, 500);
    // Packets are known to be lost when later ones arrive.
    camera.send(63..200, 500);
    camera.await_read();
    let recorded = recorder.stop().well();
    // Of each picture one packet, and two of sound.
    assert_eq!(recorded.figure("lost"), 3 + 6, "{:#} {}", recorded.summary, recorded.log);
    let file = fs::read(place.folder().join("a.mp4")).expect("it was written");
    let expected: Vec<_> = (0..60).chain(63..200).collect();
    assert_eq!(pictures(&file), expected);
}

#[test]
fn a_file_at_its_limit_is_cut_to_whole_fragments_and_served() {
    let place = Place::new();
    let camera = Camera::new(&place);
    let mut limited = Command::new("sh");
    // `ulimit -f` counts blocks of 512 bytes.
    limited.args(["-c", "ulimit -f 600 && exec \"$0\" \"$@\"", PROGRAM]);
    let recorder = camera.recorder(&place, limited, "a.mp4", &[]);
    camera.send(0..20 * PICTURES, 1000);
    let recorded = recorder.ended();
    assert_eq!(recorded.status.code(), Some(1), "{:#}", recorded.summary);
    let ended = recorded.stream(0)["ended"].as_str().expect("why").to_owned();
    assert!(ended.contains("File too large"), "{ended}");
    let file = fs::read(place.folder().join("a.mp4")).expect("it was written");
    let dropped = recorded.figure("bytes_dropped_by_disk");
    assert!(dropped > 0, "{:#}", recorded.summary);
    assert_eq!(recorded.figure("written_bytes"), file.len() as u64);
    assert_eq!(recorded.figure("payload_bytes"), file.len() as u64 + dropped);
    assert!((200_000..=600 * 512).contains(&file.len()), "{} bytes", file.len());
    assert_eq!(whole_bytes(&file), file.len());
    let numbers = pictures(&file);
    assert_eq!(numbers, (0..numbers.len() as u32).collect::<Vec<_>>());
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    server.await_stream("a.mp4");
    server.stop();
}

#[test]
fn killed_at_any_moment_it_leaves_whole_fragments() {
    for round in 0..6 {
        let place = Place::new();
        let camera = Camera::new(&place);
        let recorder = camera.recorder(&place, Command::new(PROGRAM), "a.mp4", &[]);
        let path = place.folder().join("a.mp4");
        let written = || fs::metadata(&path).map_or(0, |found| found.len());
        let (mut next, wanted) = (0, 20_000 + round * 31_337);
        // Sends until so much is written; the recorder is then at work on what was sent last.
        await_true("the file grows", || {
            camera.send(next..next + PICTURES, 1000);
            next += PICTURES;
            written() > wanted
        });
        recorder.kill();
        let file = fs::read(&path).expect("it was written");
        let numbers = pictures(&file[..whole_bytes(&file)]);
        assert!(numbers.len() >= 10, "round {round}: {}", numbers.len());
        assert_eq!(numbers, (0..numbers.len() as u32).collect::<Vec<_>>(), "round {round}");
        // Our reader finds the same in the file as it is.
        assert_eq!(pictures(&file), numbers, "round {round}");
    }
}

#[test]
fn sources_that_mp4_has_no_place_for_are_refused() {
    let place = Place::new();
    let refused = |arguments: &[&str]| {
        let output = Command::new(PROGRAM)
            .args(["receive", "--output"])
            .arg(place.folder().join("{stream}.mp4"))
            .args(arguments)
            .output()
            .expect("the program was built");
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let of_port = refused(&[&url(free_port())]);
    assert!(of_port.contains("is a transport stream: name its recording .ts"), "{of_port}");
    let relayed = refused(&["rtsp://127.0.0.1/camera", "--relay", "127.0.0.1:5004"]);
    assert!(relayed.contains("transport streams are relayed"), "{relayed}");
    let film = place.top().join("film.ts");
    fs::write(&film, Clip::of_seconds(1, 2).bytes()).expect("room for a film");
    let server = Server::start(&[("film.ts", Path::new(&film))]);
    server.await_stream("film.ts");
    let by_server = refused(&[&server.rtsp_url("film.ts")]);
    assert!(by_server.contains("it sends a transport stream"), "{by_server}");
    assert!(files(&place).is_empty(), "no file was made");
    server.stop();
}

/// Returns the media of a file's tracks.
fn media_of(file: &[u8]) -> Vec<TrackMedia> {
    demux(file).tracks().iter().map(|track| track.codec.media()).collect()
}

#[test]
fn a_camera_is_not_asked_for_the_sound_that_is_left_out() {
    let place = Place::new();
    // A key frame in each packet.
    let picture = [&[0x65, 0x80][..], &[0xaa; PAYLOAD_BYTES - 2]].concat();
    let media = "m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:pictures\r\n\
                 a=fmtp:96 packetization-mode=1; sprop-parameter-sets=Z0IACpZTBYmI,aMljiA==\r\n\
                 m=audio 0 RTP/AVP 8\r\na=control:sound\r\n";
    let script = Script::title(picture.repeat(50), Duration::from_secs(2));
    let fake = Fake::start(Script { media, payload_type: 96, ..script });
    let path = place.folder().join("a.mp4");
    let options = ["-o", path.to_str().expect("UTF-8"), "--tracks", "video"];
    let urls = std::slice::from_ref(&fake.url);
    let recorder = Recorder::by(Command::new(PROGRAM), &place, urls, &options);
    let recorded = recorder.ended().well();
    let tracks = serde_json::json!(["video H264/90000"]);
    assert_eq!(recorded.stream(0)["tracks"], tracks, "{:#}", recorded.summary);
    let words = "left out: audio PCMA/8000: only video is recorded";
    assert!(recorded.log.contains(words), "{}", recorded.log);
    let set_up = fake.asked_urls("SETUP");
    assert!(set_up.len() == 1 && set_up[0].ends_with("/pictures"), "{set_up:?}");
    let file = fs::read(&path).expect("it was written");
    assert_eq!(media_of(&file), [TrackMedia::Video]);
    assert_eq!(samples(&file, 0).len(), 50);
}

#[test]
fn the_sound_of_a_description_is_recorded_alone() {
    let place = Place::new();
    let camera = Camera::new(&place);
    let options = ["--tracks", "audio"];
    let recorder = camera.recorder(&place, Command::new(PROGRAM), "a.mp4", &options);
    let all = 10 * PICTURES;
    camera.send(0..all, 500);
    await_read(camera.sound.to.port());
    let recorded = recorder.stop().well();
    assert_eq!(recorded.figure("lost"), 0, "{:#}", recorded.summary);
    let file = fs::read(place.folder().join("a.mp4")).expect("it was written");
    assert_eq!(media_of(&file), [TrackMedia::Audio]);
    let bytes = samples(&file, 0).concat().len() as u32;
    assert_eq!(bytes, all * SOUNDS * SAMPLES * 2);
}

#[test]
fn a_source_without_tracks_of_the_wanted_medium_is_refused() {
    let place = Place::new();
    let refused = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(["receive", "--tracks", "video", "--output"]);
        command.arg(place.folder().join("{stream}.ts")).args(arguments);
        let outcome = watchdog::run(&mut command, Duration::from_secs(60)).expect("it is built");
        assert!(!outcome.status.success(), "{arguments:?}");
        outcome.stderr
    };
    let of_port = refused(&[&url(free_port())]);
    assert!(of_port.contains("--tracks: video; udp://127.0.0.1:"), "{of_port}");
    assert!(of_port.contains("leave --tracks out"), "{of_port}");
    let script = Script::title(Vec::new(), Duration::ZERO);
    let film = Fake::start(script.clone());
    let by_server = refused(&[&film.url]);
    assert!(by_server.contains("it sends a transport stream"), "{by_server}");
    assert!(by_server.contains("leave --tracks out"), "{by_server}");
    let sound = Fake::start(Script { media: "m=audio 0 RTP/AVP 8\r\n", ..script });
    let deaf = refused(&[&sound.url]);
    assert!(deaf.contains("no video track is offered, only G.711 audio"), "{deaf}");
    assert!(!deaf.contains("ffmpeg"), "{deaf}");
    assert_eq!(film.asked("SETUP") + sound.asked("SETUP"), 0);
    assert!(files(&place).is_empty(), "no file was made");
}
