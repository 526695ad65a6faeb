// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files whose tracks are RTP streams of their own (MP4, Matroska): clients receive the file's
//! content, frame by frame.
//!
//! Pictures are compared after decoding, because a client writes its NAL units in another form than
//! a file has; sound is compared as copied. One server serves all; the cases run side by side.
//!
//! A client is left out where its distribution's build has no depacketiser, and a line reports it:
//! Debian's VLC plays RTSP by its SAT>IP plugin, which accepts only transport streams, and no
//! client here has E-AC-3 (RFC 4598), which `pagewire play` verifies.
//!
//! Sources: RFC 2326 §10, RFC 6184, RFC 7798, RFC 3640, RFC 7587, RFC 2250, RFC 4184; RTP Payload
//! Format For AV1 (AOM).

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::client;
use crate::ffmpeg::{self, Frame, assert_frames, of_stream};
use crate::harness::answer::Answer;
use crate::harness::film;
use crate::harness::rtsp::{Control, PortPair, session_of};
use crate::harness::{PROGRAM, Place, Server, gstreamer};
use crate::side_by_side::{self, Case};

/// Inputs with which ffmpeg makes a title from a picture and two sounds.
pub(crate) struct Recipe {
    pub(crate) name: &'static str,
    /// Its encoders, track by track.
    coders: [&'static str; 3],
    options: &'static [&'static str],
}

pub(crate) const TITLES: &[Recipe] = &[
    Recipe {
        // B-frames, an edit list for them, priming of sound, two languages.
        name: "avc.mp4",
        coders: ["libx264", "aac", "aac"],
        options: &["-bf", "3", "-movflags", "faststart"],
    },
    Recipe {
        name: "fragments.mp4",
        coders: ["libx264", "aac", "aac"],
        options: &[
            "-bf",
            "2",
            "-x264-params",
            "slices=4",
            "-movflags",
            "frag_keyframe+empty_moov+default_base_moof",
        ],
    },
    Recipe { name: "hevc.mkv", coders: ["libx265", "aac", "aac"], options: &[] },
    Recipe { name: "opus-mp3.mp4", coders: ["libx264", "libopus", "libmp3lame"], options: &[] },
    Recipe { name: "ac3-opus.mkv", coders: ["libx264", "ac3", "libopus"], options: &[] },
    Recipe { name: "mp3-ac3.mkv", coders: ["libx265", "libmp3lame", "ac3"], options: &[] },
    // Pictures that are coded ahead and shown later.
    Recipe { name: "av1.mp4", coders: ["libsvtav1", "aac", "libopus"], options: &[] },
    Recipe { name: "av1.webm", coders: ["libaom-av1", "libopus", "libopus"], options: &[] },
];

/// Returns options of an encoder of pictures, for speed and quiet.
fn coder_options(coder: &str) -> &'static [&'static str] {
    match coder {
        "libx265" => &["-preset", "ultrafast", "-x265-params", "log-level=error"],
        "libsvtav1" => &["-preset", "12"],
        "libaom-av1" => &["-cpu-used", "8", "-lag-in-frames", "10"],
        _ => &["-preset", "ultrafast"],
    }
}

/// Returns the GStreamer elements that reassemble the frames of an encoder's track; none where
/// Debian has no depayloader.
fn elements(coder: &str) -> Option<&'static [&'static str]> {
    Some(match coder {
        "libx264" => &["rtph264depay", "h264parse"],
        "libx265" => &["rtph265depay", "h265parse"],
        "aac" => &["rtpmp4gdepay"],
        "libopus" => &["rtpopusdepay"],
        "libmp3lame" => &["rtpmpadepay"],
        "ac3" => &["rtpac3depay"],
        _ => return None,
    })
}

/// A title, and its content.
pub(crate) struct Title {
    name: &'static str,
    coders: [&'static str; 3],
    /// Time in milliseconds of each picture, and its hash after decoding.
    pub(crate) pictures: Vec<Picture>,
    /// As copied, stream by stream.
    sounds: Vec<Vec<Frame>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Picture {
    pub(crate) time_ms: i64,
    pub(crate) hash: String,
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Udp,
    Tcp,
    Tunnel,
}

struct Play<'a> {
    player: &'static Player,
    way: Way,
    title: &'a Title,
    server: &'a Server,
    folder: &'a Path,
}

struct Player {
    name: &'static str,
    plays: fn(&Play<'_>, &str) -> bool,
}

const PLAYERS: &[Player] = &[
    Player { name: "ffmpeg", plays: ffmpeg_plays },
    Player { name: "gstreamer", plays: gstreamer_plays },
    Player { name: "mpv", plays: mpv_plays },
    Player { name: "pyav", plays: pyav_plays },
];

impl Play<'_> {
    fn ffmpeg_transport(&self) -> &'static str {
        match self.way {
            Way::Udp => "udp",
            Way::Tcp => "tcp",
            Way::Tunnel => "http",
        }
    }

    /// Returns a file for the received data of this case.
    fn file(&self, end: &str) -> PathBuf {
        self.folder.join(format!("{}{end}", self.name().replace(['/', ':'], "-")))
    }
}

impl Case for Play<'_> {
    /// Returns a name such as `tracks::ffmpeg/udp/avc.mp4`.
    fn name(&self) -> String {
        let way = format!("{:?}", self.way).to_lowercase();
        format!("tracks::{}/{way}/{}", self.player.name, self.title.name)
    }

    fn plays(&self, name: &str) -> bool {
        (self.player.plays)(self, name)
    }
}

/// Returns the decoded pictures that ffmpeg reads, with options for further outputs; `None` where
/// there is no ffmpeg.
pub(crate) fn pictures(
    test: &str,
    before: &[&str],
    input: &OsStr,
    others: &[&OsStr],
) -> Option<Vec<Picture>> {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-copyts"]).args(before);
    command.arg("-i").arg(input).args(["-map", "0:v", "-fps_mode", "passthrough"]);
    // Times as the container has them, not in numbers of pictures.
    command.args(["-enc_time_base", "-1"]);
    command.args(["-f", "framemd5", "-"]).args(others);
    let text = client(test, &mut command)?.succeeded();
    let text = String::from_utf8(text).expect("framemd5 writes text");
    let base = text.lines().find_map(|line| line.strip_prefix("#tb 0: ")?.split_once('/'));
    let (numerator, denominator) = base.unwrap_or_else(|| panic!("{test}: no time base"));
    let (numerator, denominator): (i64, i64) =
        (numerator.parse().expect("a number"), denominator.parse().expect("a number"));
    let picture = |line: &str| {
        let fields: Vec<_> = line.split(',').map(str::trim).collect();
        let pts: i64 = fields[2].parse().expect("a time");
        let time_ms = (pts * numerator * 2000 / denominator + 1).div_euclid(2);
        Picture { time_ms, hash: fields[5].to_owned() }
    };
    Some(text.lines().filter(|line| !line.starts_with('#')).map(picture).collect())
}

/// Asserts that all pictures were received, each at its time. ffmpeg may guess the times of the
/// first ones, because it derives decoding times from later ones.
#[track_caller]
fn assert_pictures(received: &[Picture], sent: &[Picture]) {
    let hashes = |pictures: &[Picture]| -> Vec<String> {
        pictures.iter().map(|picture| picture.hash.clone()).collect()
    };
    let (found, expected) = (hashes(received), hashes(sent));
    let same = found.iter().zip(&expected).take_while(|(a, b)| a == b).count();
    let counts = (found.len(), expected.len());
    assert!(found == expected, "{counts:?} pictures, the same up to number {same}");
    for (number, (one, other)) in received.iter().zip(sent).enumerate().skip(GUESSED) {
        let apart = (one.time_ms - other.time_ms).abs();
        assert!(apart <= 1, "picture {number} at {} ms, not {}", one.time_ms, other.time_ms);
    }
}

/// True, with a skip printed, for AV1: FFmpeg has its depacketiser since 7.1, and Debian's is
/// older.
fn is_beyond_ffmpeg(case: &Play<'_>, name: &str) -> bool {
    let is_av1 = case.title.name.starts_with("av1");
    if is_av1 {
        eprintln!("skip: {name}: Debian's FFmpeg is older than AV1 over RTP; PyAV's plays it");
    }
    is_av1
}

fn ffmpeg_plays(case: &Play<'_>, name: &str) -> bool {
    if is_beyond_ffmpeg(case, name) {
        return false;
    }
    let url = case.server.rtsp_url(case.title.name);
    let (url, sound) = (OsStr::new(&url), case.file(".md5"));
    let options = ["-rtsp_transport", case.ffmpeg_transport()];
    // One play gets both, because it lasts as long as the title.
    let sounds = ["-map", "0:a", "-c", "copy", "-f", "framemd5"];
    let sounds: Vec<_> = sounds.iter().map(OsStr::new).chain([sound.as_os_str()]).collect();
    let Some(received) = pictures(name, &options, url, &sounds) else { return false };
    assert_pictures(&received, &case.title.pictures);
    let frames = ffmpeg::parse(&std::fs::read_to_string(&sound).expect("ffmpeg has made it"));
    for (stream, sent) in case.title.sounds.iter().enumerate() {
        let received = of_stream(&frames, stream).into_iter().map(Frame::without_times);
        let received: Vec<_> = received.map(|frame| frame.in_stream(0)).collect();
        assert_frames(&received, sent);
    }
    true
}

/// Pictures as a parser joins them, then the second sound as it is depacketised: `gst-launch-1.0`
/// links one of several pads at a time reliably.
fn gstreamer_plays(case: &Play<'_>, name: &str) -> bool {
    if matches!(case.way, Way::Tunnel) {
        eprintln!("skip: {name}: the tunnel is the same connection as TCP to GStreamer's elements");
        return false;
    }
    let [picture_coder, _, sound_coder] = case.title.coders;
    let Some(&[depay, parse]) = elements(picture_coder) else {
        eprintln!("skip: {name}: GStreamer's depayloader of AV1 is in no package of Debian's");
        return false;
    };
    let sound_elements = elements(sound_coder).expect("a sound that Debian has");
    if !gstreamer::has_elements(name, &["rtspsrc", depay, parse, sound_elements[0], "filesink"]) {
        return false;
    }
    let codec = if picture_coder == "libx265" { "265" } else { "264" };
    let caps = format!("video/x-h{codec},stream-format=byte-stream,alignment=au");
    let picture = case.file(&format!(".h{codec}"));
    let chain = [depay, "!", parse, "!", &caps];
    let Some(()) = gstreamer_writes(case, name, (0, &chain), &picture) else { return false };
    let Some(received) = pictures(name, &[], picture.as_os_str(), &[]) else { return false };
    let hashes = |pictures: &[Picture]| -> Vec<_> {
        pictures.iter().map(|picture| picture.hash.clone()).collect()
    };
    let (found, expected) = (hashes(&received), hashes(&case.title.pictures));
    assert!(found == expected, "{} pictures, not {}", found.len(), expected.len());
    let sound = case.file(".sound");
    let Some(()) = gstreamer_writes(case, name, (2, sound_elements), &sound) else {
        return false;
    };
    let received = std::fs::read(sound).expect("GStreamer has made it").len() as u64;
    let sent: u64 = case.title.sounds[1].iter().map(|frame| frame.bytes).sum();
    assert_eq!(received, sent, "bytes of the second sound");
    true
}

/// Writes the output of elements for a track to a file; returns `None` where there is no GStreamer.
/// The exit status is not judged, as in [`crate::matrix`].
fn gstreamer_writes(
    case: &Play<'_>,
    name: &str,
    (track, elements): (usize, &[&str]),
    file: &Path,
) -> Option<()> {
    let protocols = if matches!(case.way, Way::Udp) { "udp" } else { "tcp" };
    // Where packets of other tracks arrive before this one's pad is linked, rtspsrc fails at once
    // (not-linked) and nothing is written. That is a limitation of gst-launch, so the attempt is
    // repeated.
    for _ in 0..GSTREAMER_TRIES {
        let mut command = Command::new("gst-launch-1.0");
        command.args(["-q", "rtspsrc", "name=s"]).arg(format!("protocols={protocols}"));
        command.arg(format!("location={}", case.server.rtsp_url(case.title.name)));
        let payload_type = match case.title.coders[track] {
            "libmp3lame" => MPEG_AUDIO,
            _ => FIRST_PAYLOAD_TYPE + track,
        };
        let payload = format!("application/x-rtp,payload={payload_type}");
        command.args(["s.", "!", &payload, "!"]).args(elements);
        command.args(["!", "filesink"]).arg(format!("location={}", file.display()));
        client(name, &mut command)?;
        if std::fs::metadata(file).is_ok_and(|written| written.len() > 0) {
            break;
        }
    }
    Some(())
}

/// mpv selects one picture and one sound, and records the received stream.
fn mpv_plays(case: &Play<'_>, name: &str) -> bool {
    if is_beyond_ffmpeg(case, name) {
        return false;
    }
    let record = case.file(".mkv");
    let mut command = Command::new("mpv");
    command.args(["--no-config", "--no-terminal", "--vo=null", "--ao=null", "--aid=2"]);
    command.arg(format!("--rtsp-transport={}", case.ffmpeg_transport()));
    command.arg(format!("--stream-record={}", record.display()));
    command.arg(case.server.rtsp_url(case.title.name));
    let Some(outcome) = client(name, &mut command) else { return false };
    outcome.succeeded();
    let Some(received) = pictures(name, &[], record.as_os_str(), &[]) else { return false };
    let sent: Vec<_> = case.title.pictures.iter().map(|picture| &picture.hash).collect();
    let found: Vec<_> = received.iter().map(|picture| &picture.hash).collect();
    // ffmpeg's parser gives the first picture of a stream without file positions no time
    // (libavcodec/parser.c, ff_fetch_timestamp), and mpv does not record pictures without one.
    let from_second_key_frame = &sent[GROUP_PICTURES..];
    let is_whole = found.ends_with(from_second_key_frame);
    assert!(is_whole, "{} pictures of {}", found.len(), sent.len());
    let Some(frames) = ffmpeg::frames(name, &[], record.as_os_str(), &["-map", "-0:v"]) else {
        return false;
    };
    let received = of_stream(&frames, 0).into_iter().map(Frame::without_times);
    assert_frames(&received.collect::<Vec<_>>(), &case.title.sounds[1]);
    true
}

/// FFmpeg as bundled with PyAV, on both sides: the decoded file must equal the decoded stream.
fn pyav_plays(case: &Play<'_>, name: &str) -> bool {
    let file = case.folder.join(case.title.name);
    let url = case.server.rtsp_url(case.title.name);
    let Some(sent) = pyav_reads(name, file.as_os_str(), &[]) else { return false };
    let transport = [case.ffmpeg_transport()];
    let Some(received) = pyav_reads(name, OsStr::new(&url), &transport) else { return false };
    assert_pictures(&received.0, &sent.0);
    for stream in 0..2 {
        let of_stream = |sounds: &[Sound]| -> Vec<_> {
            sounds.iter().filter(|sound| sound.stream == stream).cloned().collect()
        };
        let (found, expected) = (of_stream(&received.1), of_stream(&sent.1));
        assert!(expected.len() > 150, "{} frames of sound {stream}", expected.len());
        let same = found.iter().zip(&expected).take_while(|(a, b)| a == b).count();
        let counts = (found.len(), expected.len());
        assert!(found == expected, "sound {stream}: {counts:?}, the same up to frame {same}");
    }
    true
}

/// A frame of sound as `frames.py` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sound {
    stream: usize,
    /// Size and hash.
    content: String,
}

/// Returns the pictures and sounds that `frames.py` prints of a file or an address.
fn pyav_reads(name: &str, input: &OsStr, options: &[&str]) -> Option<(Vec<Picture>, Vec<Sound>)> {
    let installed = concat!(env!("CARGO_MANIFEST_DIR"), "/../out/test-tools/python/bin/python3");
    let python = if Path::new(installed).exists() { installed } else { "python3" };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/frames.py");
    let outcome = client(name, Command::new(python).arg(script).arg(input).args(options))?;
    if outcome.status.code() == Some(3) {
        eprintln!("skip: {name}: PyAV: not installed: {}", outcome.stderr.trim());
        return None;
    }
    let text = String::from_utf8(outcome.succeeded()).expect("it prints text");
    let (mut pictures, mut sounds) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let (kind, rest) = line.split_once(' ').expect("a kind");
        let (number, content) = rest.split_once(' ').expect("a time or a stream");
        let (number, content): (i64, _) = (number.parse().expect("a number"), content.to_owned());
        match kind {
            "picture" => pictures.push(Picture { time_ms: number, hash: content }),
            _ => sounds.push(Sound { stream: number as usize, content }),
        }
    }
    Some((pictures, sounds))
}

/// Makes a title of six seconds; returns `None`, with a skip printed, where there is no ffmpeg.
pub(crate) fn make(test: &str, folder: &Path, recipe: &Recipe) -> Option<Title> {
    let &Recipe { name, coders, options } = recipe;
    let path = folder.join(name);
    let sound = |tone| format!("sine=frequency={tone}:sample_rate=48000:duration=6");
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-f", "lavfi", "-i"]);
    command.arg("testsrc2=size=480x270:rate=25:duration=6");
    for tone in [440, 880] {
        command.args(["-f", "lavfi", "-i", &sound(tone)]);
    }
    for (track, kind) in ["v", "a:0", "a:1"].into_iter().enumerate() {
        command.args(["-map", &track.to_string(), &format!("-c:{kind}"), coders[track]]);
    }
    command.args(coder_options(coders[0])).args(["-g", "50", "-sc_threshold", "0"]);
    command.args(["-metadata:s:a:0", "language=deu", "-metadata:s:a:1", "language=eng"]);
    film::put(test, command.args(options), &path)?;
    let frames = ffmpeg::frames(test, &[], path.as_os_str(), &["-map", "-0:v"])?;
    let sound = |stream| {
        let frames = of_stream(&frames, stream).into_iter().map(Frame::without_times);
        frames.map(|frame| frame.in_stream(0)).collect()
    };
    let pictures = pictures(test, &[], path.as_os_str(), &[])?;
    Some(Title { name, coders, pictures, sounds: (0..2).map(sound).collect() })
}

#[test]
fn every_client_receives_every_track_over_every_transport() {
    let test = "tracks::every_client_receives_every_track_over_every_transport";
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let titles: Option<Vec<_>> =
        TITLES.iter().map(|recipe| make(test, folder.path(), recipe)).collect();
    let Some(titles) = titles else { return };
    let place = Place::new();
    for title in &titles {
        assert!(title.pictures.len() == 150, "{}: {} pictures", title.name, title.pictures.len());
        place.put(title.name, &std::fs::read(folder.path().join(title.name)).expect("just made"));
    }
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    for title in &titles {
        let row = server.await_stream(title.name);
        assert_eq!(row["tracks"].as_array().map(Vec::len), Some(3), "{row:#}");
        assert_eq!(row["tracks"][1]["language"], "deu", "{row:#}");
    }
    let mut cases = Vec::new();
    for player in PLAYERS {
        for title in &titles {
            for way in [Way::Udp, Way::Tcp, Way::Tunnel] {
                cases.push(Play { player, way, title, server: &server, folder: folder.path() });
            }
        }
    }
    eprintln!("skip: tracks::vlc: Debian's receives RTSP by SAT>IP alone, transport streams only");
    eprintln!("skip: tracks::eac3: neither FFmpeg nor GStreamer has its payload format (RFC 4598)");
    side_by_side::run(cases);
    let log = server.stop();
    assert!(!log.contains("panicked"), "{log}");
}

/// Files of frames, as internet radio has them: every frame is received, ADTS frames without their
/// header.
#[test]
fn files_of_sound_come_frame_by_frame() {
    let test = "tracks::files_of_sound_come_frame_by_frame";
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let titles = [("radio.mp3", "libmp3lame", 0), ("radio.aac", "aac", ADTS_HEADER_BYTES)];
    let place = Place::new();
    let mut sent = Vec::new();
    for (name, encoder, _) in titles {
        let path = folder.path().join(name);
        let mut command = Command::new("ffmpeg");
        command.args(["-hide_banner", "-loglevel", "error", "-f", "lavfi", "-i"]);
        command.args(["sine=sample_rate=44100:duration=4", "-c:a", encoder]);
        let Some(()) = film::put(test, &mut command, &path) else { return };
        let Some(frames) = ffmpeg::frames(test, &[], path.as_os_str(), &[]) else { return };
        sent.push(frames);
        place.put(name, &std::fs::read(&path).expect("just made"));
    }
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    for ((name, _, header_bytes), sent) in titles.into_iter().zip(sent) {
        server.await_stream(name);
        let url = server.rtsp_url(name);
        let options = ["-rtsp_transport", "udp"];
        let Some(received) = ffmpeg::frames(test, &options, OsStr::new(&url), &[]) else { return };
        let received: Vec<_> = received.iter().map(|frame| frame.bytes + header_bytes).collect();
        let sent: Vec<_> = sent.iter().map(|frame| frame.bytes).collect();
        assert!(sent.len() > 100 && received == sent, "{name}: {received:?}, not {sent:?}");
    }
    server.stop();
}

const ADTS_HEADER_BYTES: u64 = 7;

/// Returns sequence number and timestamp of each stream in an answer to PLAY.
fn streams(answer: &Answer) -> Vec<(u16, u32)> {
    let info = answer.header("RTP-Info").unwrap_or_else(|| panic!("no RTP-Info: {answer:?}"));
    let value = |stream: &str, name: &str| -> u32 {
        let found = stream.split(';').find_map(|part| part.strip_prefix(name));
        found.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name}: {info}"))
    };
    let both = |stream: &str| (value(stream, "seq=") as u16, value(stream, "rtptime="));
    info.split(',').map(both).collect()
}

/// Tracks are set up one by one into one session and played together; sequence numbers and
/// timestamps continue over a jump (RFC 2326 Appendix B), all by the same time.
#[test]
fn tracks_of_a_session_play_together() {
    let test = "tracks::tracks_of_a_session_play_together";
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    if make(test, folder.path(), &TITLES[0]).is_none() {
        return;
    }
    let film = folder.path().join("avc.mp4");
    let server = Server::start(&[("film.mp4", &film), ("other.mp4", &film)]);
    server.await_stream("film.mp4");
    server.await_stream("other.mp4");
    let mut control = Control::to(server.rtsp);
    let ports = [PortPair::on(LOCAL), PortPair::on(LOCAL)];
    let [first, second] = ports.each_ref().map(PortPair::transport);
    let mut ask = |method: &str, name: &str, headers: &[&str]| control.ask(method, name, headers);
    let status = |answer: Answer| answer.status;
    assert_eq!(status(ask("SETUP", "film.mp4", &[&first])), 459, "it has three tracks");
    assert_eq!(status(ask("SETUP", "film.mp4/track3", &[&first])), 404);
    let answer = ask("SETUP", "film.mp4/track0", &[&first]);
    assert_eq!(answer.status, 200, "{answer:?}");
    let session = format!("Session: {}", session_of(&answer));
    let tcp = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1";
    for (name, transport, expected) in [
        ("film.mp4/track0", second.as_str(), 459),
        ("other.mp4/track1", &second, 459),
        ("film.mp4/track1", tcp, 461),
        ("film.mp4/track1", &second, 200),
    ] {
        let answer = ask("SETUP", name, &[&session, transport]);
        assert_eq!(answer.status, expected, "{name}: {answer:?}");
    }
    assert_eq!(status(ask("PLAY", "film.mp4/track1", &[&session])), 460);
    let begun = ask("PLAY", "film.mp4", &[&session, "Range: npt=0-"]);
    assert_eq!(begun.status, 200, "{begun:?}");
    assert_eq!(streams(&begun).len(), 2);
    assert_eq!(status(ask("SETUP", "film.mp4/track2", &[&session, &first])), 455, "it plays");
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(status(ask("PLAY", "film.mp4", &[&session, "Range: npt=60-"])), 457);
    // A key frame every two seconds: play begins at the previous one.
    let jumped = ask("PLAY", "film.mp4", &[&session, "Range: npt=3-"]);
    assert_eq!(jumped.status, 200, "{jumped:?}");
    let range = jumped.header("Range").unwrap_or_default();
    assert!(range.starts_with("npt=2.000-"), "{range}");
    let pairs = streams(&begun).into_iter().zip(streams(&jumped));
    let passed: Vec<f64> = pairs
        .zip([90_000.0, 48_000.0])
        .map(|((before, after), rate)| {
            let sent = after.0.wrapping_sub(before.0);
            assert!((1..1000).contains(&sent), "{sent} packets were sent before the jump");
            f64::from(after.1.wrapping_sub(before.1)) / rate
        })
        .collect();
    assert!((passed[0] - passed[1]).abs() < 0.001, "the tracks stay in step: {passed:?}");
    assert!((0.5..2.0).contains(&passed[0]), "as time goes by: {passed:?}");
    assert_eq!(status(ask("TEARDOWN", "film.mp4", &[&session])), 200);
    // The log has the tracks' numbers in the file, as the index has.
    let row = server.await_stream("film.mp4");
    assert_eq!((&row["tracks"][0]["id"], &row["tracks"][1]["id"]), (&1.into(), &2.into()));
    let log = server.stop();
    let expected = "track 1: the receiver reported nothing; track 2: the receiver reported nothing";
    assert!(log.contains(expected), "{log}");
}

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Payload type of the first track; the others follow.
const FIRST_PAYLOAD_TYPE: usize = 96;
/// The payload type of MPEG audio, which is static (RFC 3551 §6).
const MPEG_AUDIO: usize = 14;
const GSTREAMER_TRIES: usize = 5;
/// Pictures from one key frame to the next.
pub(crate) const GROUP_PICTURES: usize = 50;
/// Pictures at the beginning whose times ffmpeg may guess.
const GUESSED: usize = 4;
