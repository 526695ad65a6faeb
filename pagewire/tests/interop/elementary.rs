// SPDX-License-Identifier: MIT OR Apache-2.0
//! Elementary streams of transport streams (`?es`): the tracks that ffmpeg receives equal the
//! streams it finds in the file, picture by picture and sample by sample after decoding. A client
//! that receives tracks writes NAL units and frames in another form than the file has, so they are
//! not compared as copied.
//!
//! Sources: RFC 2326 §10, RFC 6184, RFC 7798, RFC 3640, RFC 2250 §3.5, RFC 4184.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::TS_PACKET_BYTES;
use crate::ffmpeg;
use crate::harness::film;
use crate::harness::rtsp::{Control, LOCALHOST, PortPair, session_of};
use crate::harness::{PROGRAM, Place, Server};
use crate::side_by_side::{self, Case};
use crate::tracks::{Picture, pictures};

/// Name, and options of ffmpeg that make the file from a picture and a sound.
const TITLES: &[(&str, &[&str])] = &[
    ("aac.ts", &["-c:v", "libx264", "-bf", "3", "-x264-params", "slices=3", "-c:a", "aac"]),
    ("hevc.ts", &["-c:v", "libx265", "-x265-params", "log-level=error", "-c:a", "ac3"]),
    ("mp3.ts", &["-c:v", "libx264", "-bf", "2", "-c:a", "libmp3lame"]),
];

/// A title, and its decoded content.
struct Title {
    name: &'static str,
    pictures: Vec<Picture>,
    sounds: Vec<String>,
}

struct Play<'a> {
    transport: &'static str,
    title: &'a Title,
    server: &'a Server,
    folder: &'a Path,
}

impl Case for Play<'_> {
    /// Returns a name such as `elementary::udp/aac.ts`.
    fn name(&self) -> String {
        format!("elementary::{}/{}", self.transport, self.title.name)
    }

    fn plays(&self, name: &str) -> bool {
        let url = self.server.rtsp_url(&format!("{}?es", self.title.name));
        let sound = self.folder.join(format!("{}.md5", name.replace(['/', ':'], "-")));
        let options = ["-rtsp_transport", self.transport];
        let Some(received) = decoded(name, &options, OsStr::new(&url), &sound) else {
            return false;
        };
        let hashes = |pictures: &[Picture]| -> Vec<_> {
            pictures.iter().map(|picture| picture.hash.clone()).collect()
        };
        let (found, expected) = (hashes(&received.0), hashes(&self.title.pictures));
        let same = found.iter().zip(&expected).take_while(|(a, b)| a == b).count();
        let counts = (found.len(), expected.len());
        assert!(found == expected, "{counts:?} pictures, the same up to number {same}");
        // The file's times do not begin with zero.
        let moved = |at: usize| self.title.pictures[at].time_ms - received.0[at].time_ms;
        let last = moved(expected.len() - 1);
        for number in GUESSED..expected.len() {
            assert!((moved(number) - last).abs() <= 1, "picture {number}: {}", moved(number));
        }
        let same = received.1.iter().zip(&self.title.sounds).take_while(|(a, b)| a == b).count();
        let counts = (received.1.len(), self.title.sounds.len());
        assert!(received.1 == self.title.sounds, "{counts:?} frames, the same up to {same}");
        true
    }
}

/// Returns pictures, and hashes of decoded sound frames, that ffmpeg reads.
fn decoded(
    test: &str,
    options: &[&str],
    input: &OsStr,
    sound: &Path,
) -> Option<(Vec<Picture>, Vec<String>)> {
    // One play gets both, because it lasts as long as the title.
    let others = ["-map", "0:a", "-c:a", "pcm_s16le", "-f", "framemd5"].map(OsStr::new);
    let others: Vec<_> = others.into_iter().chain([sound.as_os_str()]).collect();
    let found = pictures(test, options, input, &others)?;
    let frames = ffmpeg::parse(&std::fs::read_to_string(sound).expect("ffmpeg has made it"));
    Some((found, frames.into_iter().map(|frame| frame.hash).collect()))
}

fn make(test: &str, folder: &Path, (name, options): (&'static str, &[&str])) -> Option<Title> {
    let path = folder.join(name);
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-f", "lavfi", "-i"]);
    command.arg("testsrc2=size=480x270:rate=25:duration=6");
    command.args(["-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000:duration=6"]);
    command.args(["-preset", "ultrafast", "-g", "50", "-sc_threshold", "0"]);
    film::put(test, command.args(options), &path)?;
    let sound = folder.join(format!("{name}.md5"));
    let (pictures, sounds) = decoded(test, &[], path.as_os_str(), &sound)?;
    Some(Title { name, pictures, sounds })
}

#[test]
fn every_picture_and_sound_comes_as_a_track() {
    let test = "elementary::every_picture_and_sound_comes_as_a_track";
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let titles: Option<Vec<_>> =
        TITLES.iter().map(|&title| make(test, folder.path(), title)).collect();
    let Some(titles) = titles else { return };
    let place = Place::new();
    for title in &titles {
        assert!(title.pictures.len() == 150, "{}: {} pictures", title.name, title.pictures.len());
        assert!(title.sounds.len() > 150, "{}: {} frames", title.name, title.sounds.len());
        place.put(title.name, &std::fs::read(folder.path().join(title.name)).expect("just made"));
    }
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    for title in &titles {
        let row = server.await_stream(title.name);
        let address = format!("{}?es", row["rtsp"].as_str().expect("it plays"));
        assert_eq!(row["stream"]["elementary"], address.as_str(), "{row:#}");
    }
    let mut cases = Vec::new();
    for title in &titles {
        for transport in ["udp", "tcp"] {
            cases.push(Play { transport, title, server: &server, folder: folder.path() });
        }
    }
    side_by_side::run(cases);
    let log = server.stop();
    assert!(!log.contains("panicked"), "{log}");
}

/// The same address without the query is the transport stream; tracks are set up, played, paused
/// and sought like those of any file; the analysis is in the cache for the next server.
#[test]
fn both_forms_of_a_file_are_played_side_by_side() {
    let test = "elementary::both_forms_of_a_file_are_played_side_by_side";
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    if make(test, folder.path(), TITLES[0]).is_none() {
        return;
    }
    let place = Place::new();
    place.put("film.ts", &std::fs::read(folder.path().join("aac.ts")).expect("just made"));
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    server.await_stream("film.ts");
    let mut control = Control::to(server.rtsp);
    let mut ask = |method: &str, name: &str, headers: &[&str]| control.ask(method, name, headers);
    let whole = ask("DESCRIBE", "film.ts", &[]).text();
    assert!(whole.contains("MP2T/90000") && !whole.contains("H264"), "{whole}");
    for name in ["film.ts?es", "film.ts/track0", "film.ts?es/track1"] {
        let tracks = ask("DESCRIBE", name, &[]);
        let base = tracks.header("Content-Base").unwrap_or_default();
        assert!(base.ends_with("/film.ts/"), "{name}: {tracks:?}");
        let text = tracks.text();
        let is_described =
            ["H264/90000", "sprop-parameter-sets=", "mpeg4-generic/48000", "config=1188"]
                .iter()
                .all(|part| text.contains(part));
        assert!(is_described && !text.contains("MP2T"), "{name}: {text}");
    }
    let ports = [PortPair::on(LOCALHOST), PortPair::on(LOCALHOST), PortPair::on(LOCALHOST)];
    let [first, second, third] = ports.each_ref().map(PortPair::transport);
    let stream = ask("SETUP", "film.ts/stream", &[&third]);
    assert_eq!(stream.status, 200, "{stream:?}");
    assert_eq!(ask("SETUP", "film.ts?es", &[&first]).status, 459, "it has two tracks");
    assert_eq!(ask("SETUP", "film.ts/track2", &[&first]).status, 404);
    let answer = ask("SETUP", "film.ts/track0", &[&first]);
    assert_eq!(answer.status, 200, "{answer:?}");
    let session = format!("Session: {}", session_of(&answer));
    // In the form of clients that append the track to the whole URL.
    let answer = ask("SETUP", "film.ts?es/track1", &[&session, &second]);
    assert_eq!(answer.status, 200, "{answer:?}");
    for (range, begins) in
        [("npt=0-", "npt=0.000-"), ("npt=3-", "npt=2.000-"), ("npt=4.5-", "npt=4.000-")]
    {
        let played = ask("PLAY", "film.ts", &[&session, &format!("Range: {range}")]);
        assert_eq!(played.status, 200, "{played:?}");
        let found = played.header("Range").unwrap_or_default();
        assert!(found.starts_with(begins), "{range}: {found}");
        let info = played.header("RTP-Info").unwrap_or_default();
        assert!(info.contains("/film.ts/track0;") && info.contains("/film.ts/track1;"), "{info}");
        for port in &ports[..2] {
            let mut packet = [0; 2048];
            port.rtp.set_read_timeout(Some(Duration::from_secs(5))).expect("a socket");
            let bytes = port.rtp.recv(&mut packet).expect("a packet in time");
            assert!(bytes > 12);
        }
        assert_eq!(ask("PAUSE", "film.ts", &[&session]).status, 200);
    }
    let scaled = ask("PLAY", "film.ts", &[&session, "Scale: 4", "Range: npt=0-"]);
    assert_eq!((scaled.status, scaled.header("Scale")), (200, Some("4.0")), "{scaled:?}");
    assert_eq!(ask("TEARDOWN", "film.ts", &[&session]).status, 200);
    server.stop();
    let kept = std::fs::read_dir(place.cache().join("plans")).expect("the cache is there");
    let kept = kept.flatten().filter(|entry| entry.path().extension() == Some(OsStr::new("es")));
    assert_eq!(kept.count(), 1, "it is kept once");
}

/// Streams that cannot be sent as tracks are refused with the reason, and still play as a transport
/// stream.
#[test]
fn streams_without_tracks_are_refused_with_the_reason() {
    let test = "elementary::streams_without_tracks_are_refused_with_the_reason";
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    if make(test, folder.path(), TITLES[0]).is_none() {
        return;
    }
    let mut film = std::fs::read(folder.path().join("aac.ts")).expect("just made");
    for packet in film.chunks_exact_mut(TS_PACKET_BYTES) {
        // Packets of pictures and sound, by the PIDs that ffmpeg assigns.
        if packet[1] & 0x1f == 1 && packet[3] & 0x10 != 0 {
            packet[3] |= 0x80;
        }
    }
    let place = Place::new();
    place.put("scrambled.ts", &film);
    place.put("film.mp4", b"not looked into");
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    server.await_stream("scrambled.ts");
    let mut control = Control::to(server.rtsp);
    for _ in 0..2 {
        let refused = control.ask("DESCRIBE", "scrambled.ts?es", &[]);
        assert_eq!(refused.status, 415, "{refused:?}");
        let text = refused.text();
        assert!(text.contains("PID 256, H.264: scrambled at byte "), "{text}");
        assert!(text.contains("PID 257, AAC: scrambled at byte "), "{text}");
        assert!(refused.head.lines().next().is_some_and(|line| line.contains("PID 256, H.264")));
    }
    assert_eq!(control.ask("DESCRIBE", "scrambled.ts", &[]).status, 200);
    assert_eq!(control.ask("DESCRIBE", "missing.ts?es", &[]).status, 404);
    server.stop();
}

/// Pictures at the beginning whose times ffmpeg may guess.
const GUESSED: usize = 4;
