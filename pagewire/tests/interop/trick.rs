// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trick play: real clients show the file's key frames at another rate and backwards, each at its
//! time.
//!
//! GStreamer requests the rate itself, by a seek (`seek.py`). ffmpeg cannot, so a proxy adds the
//! header to its PLAY. The operations of a remote control in one session (faster, backwards, normal
//! again) are performed by a scripted client.
//!
//! Sources: RFC 2326 §12.29, §12.34, §12.35, Appendix B.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::client;
use crate::harness::Server;
use crate::harness::answer::Answer;
use crate::harness::film;
use crate::harness::rtsp::{Player, PortPair};
use crate::side_by_side::{self, Case};
use crate::tracks::{Picture, pictures};

/// Seconds of the film, and pictures from one key frame to the next.
const SECONDS: u32 = 12;
const GROUP: usize = 25;

/// The film in a file with tracks and in one that is a stream, with the elements through which
/// GStreamer reads its pictures.
const TITLES: [(&str, &str); 2] = [
    ("film.mp4", "rtph264depay,h264parse,avdec_h264"),
    ("film.ts", "rtpmp2tdepay,tsdemux,h264parse,avdec_h264"),
];

/// The stream's pictures as a track.
const ELEMENTARY: (&str, &str) = ("film.ts?es", "rtph264depay,h264parse,avdec_h264");

struct Play<'a> {
    player: &'static str,
    title: (&'static str, &'static str),
    scale: i32,
    server: &'a Server,
    /// Every key frame's hash, in the file's order.
    keys: &'a [String],
}

impl Case for Play<'_> {
    /// Returns a name such as `trick::ffmpeg/film.mp4/-2`.
    fn name(&self) -> String {
        format!("trick::{}/{}/{}", self.player, self.title.0, self.scale)
    }

    fn plays(&self, name: &str) -> bool {
        let received = match self.player {
            "ffmpeg" => self.ffmpeg(name),
            _ => self.gstreamer(name),
        };
        let Some(received) = received else { return false };
        let mut expected = self.keys.to_vec();
        if self.scale < 0 {
            expected.reverse();
        }
        let found: Vec<_> = received.iter().map(|picture| picture.hash.clone()).collect();
        // The last unit of a transport stream ends with the next, for which ffmpeg waits.
        let is_open = self.player == "ffmpeg" && self.title.0.ends_with("ts");
        let expected = &expected[..expected.len() - usize::from(is_open)];
        assert!(found == expected, "{found:?}, not {expected:?}");
        // ffmpeg guesses the time of the first (libavcodec/parser.c, ff_fetch_timestamp).
        let times: Vec<_> = received[1..].iter().map(|picture| picture.time_ms).collect();
        let apart = 1000 / i64::from(self.scale.abs());
        for pair in times.windows(2) {
            let found = pair[1] - pair[0];
            assert!((found - apart).abs() <= TOLERANCE_MS, "{apart} ms apart: {times:?}");
        }
        true
    }
}

impl Play<'_> {
    fn ffmpeg(&self, name: &str) -> Option<Vec<Picture>> {
        let proxy = proxy(self.server.rtsp, format!("Scale: {}\r\n", self.scale));
        let url = format!("rtsp://{proxy}/{}", self.title.0);
        pictures(name, &["-rtsp_transport", "tcp"], OsStr::new(&url), &[])
    }

    fn gstreamer(&self, name: &str) -> Option<Vec<Picture>> {
        let url = self.server.rtsp_url(self.title.0);
        let mut received = seeks(name, &[&url, &self.scale.to_string(), self.title.1])?;
        // When playing backwards its decoder emits one group at a time, the last first.
        received.sort_by_key(|picture| picture.time_ms);
        Some(received)
    }
}

/// Returns the pictures that `seek.py` prints; `None`, with a skip printed, where GStreamer's
/// bindings are missing.
pub(crate) fn seeks(name: &str, arguments: &[&str]) -> Option<Vec<Picture>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/seek.py");
    // Debian's bindings belong to Debian's Python, which need not be the first on the PATH.
    for python in ["/usr/bin/python3", "python3"] {
        let outcome = client(name, Command::new(python).arg(script).args(arguments))?;
        if outcome.status.code() == Some(3) {
            let reason = outcome.stderr.trim();
            eprintln!("skip: {name}: {python}: bindings not installed: {reason}");
            continue;
        }
        let text = String::from_utf8(outcome.succeeded()).expect("it prints text");
        let picture = |line: &str| {
            let (time, hash) = line.split_once(' ').expect("a time and a hash");
            Picture { time_ms: time.parse().expect("a number"), hash: hash.to_owned() }
        };
        return Some(text.lines().map(picture).collect());
    }
    None
}

/// Starts a proxy that adds a header to each PLAY; returns its address. It ends with the test.
fn proxy(server: SocketAddr, header: String) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(server) else { return };
            let back = (server.try_clone().expect("a descriptor"), client.try_clone());
            let header = header.clone();
            thread::spawn(move || pump(client, server, Some(&header)));
            thread::spawn(move || pump(back.0, back.1.expect("a descriptor"), None));
        }
    });
    address
}

/// Copies received bytes, with `header` after the first line of each PLAY. A client writes a
/// request in one piece.
fn pump(mut from: TcpStream, mut to: TcpStream, header: Option<&str>) {
    let mut bytes = vec![0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let mut request = bytes[..count].to_vec();
        let play = request.windows(5).position(|word| word == b"PLAY ");
        if let (Some(header), Some(at)) = (header, play)
            && let Some(end) = request[at..].windows(2).position(|word| word == b"\r\n")
        {
            request.splice(at + end + 2..at + end + 2, header.bytes());
        }
        if to.write_all(&request).is_err() {
            break;
        }
    }
    // An error means that the other side has closed already, which is as good.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Makes the film in both forms; returns `None` where there is no ffmpeg.
pub(crate) fn make(test: &str, folder: &Path) -> Option<[PathBuf; 2]> {
    let paths = TITLES.map(|(name, _)| folder.join(name));
    film(test, &paths[0], SECONDS, GROUP)?;
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-y", "-i"]).arg(&paths[0]);
    command.args(["-c", "copy"]).arg(&paths[1]);
    client(test, &mut command)?.succeeded();
    Some(paths)
}

/// Makes an MP4 of so many seconds, with so many pictures from one key frame to the next.
pub(crate) fn film(test: &str, path: &Path, seconds: u32, group: usize) -> Option<()> {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-f", "lavfi", "-i"]);
    command.arg(format!("testsrc2=size=480x270:rate=25:duration={seconds}"));
    command.args(["-f", "lavfi", "-i"]).arg(format!("sine=duration={seconds}"));
    command.args(["-c:v", "libx264", "-preset", "ultrafast", "-bf", "2", "-sc_threshold", "0"]);
    command.args(["-g", &group.to_string(), "-c:a", "aac"]);
    film::put(test, &mut command, path)
}

pub(crate) fn serve(paths: &[PathBuf; 2]) -> Server {
    let server = Server::start(&[("film.mp4", &paths[0]), ("film.ts", &paths[1])]);
    TITLES.iter().for_each(|(name, _)| drop(server.await_stream(name)));
    server
}

#[test]
fn players_show_every_key_frame_at_its_time() {
    let test = "trick::players_show_every_key_frame_at_its_time";
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let Some(paths) = make(test, folder.path()) else { return };
    let Some(all) = pictures(test, &[], paths[0].as_os_str(), &[]) else { return };
    let keys: Vec<_> = all.iter().step_by(GROUP).map(|picture| picture.hash.clone()).collect();
    assert_eq!(keys.len(), SECONDS as usize);
    let server = serve(&paths);
    let mut cases = Vec::new();
    for player in ["ffmpeg", "gstreamer"] {
        for title in TITLES.into_iter().chain([ELEMENTARY]) {
            for scale in [4, -2] {
                cases.push(Play { player, title, scale, server: &server, keys: &keys });
            }
        }
    }
    side_by_side::run(cases);
    let log = server.stop();
    assert!(!log.contains("panicked"), "{log}");
}

/// Returns start and end of the range in an answer to PLAY, in seconds.
pub(crate) fn range(answer: &Answer) -> (f64, f64) {
    assert_eq!(answer.status, 200, "{answer:?}");
    let range = answer.header("Range").expect("PLAY is answered with one");
    let times = range.strip_prefix("npt=").and_then(|range| range.split_once('-'));
    let (start, end) = times.unwrap_or_else(|| panic!("Range: {range}"));
    (start.parse().expect("seconds"), end.parse().expect("seconds"))
}

/// Returns sequence number and timestamp of a packet.
pub(crate) fn coordinates(packet: &[u8]) -> (u16, u32) {
    let timestamp = u32::from_be_bytes([packet[4], packet[5], packet[6], packet[7]]);
    (u16::from_be_bytes([packet[2], packet[3]]), timestamp)
}

/// A remote control: play, four times as fast, backwards, play. Sequence numbers are consecutive,
/// timestamps advance with the clock, and each part begins at the position that the previous one
/// has reached.
#[test]
fn one_session_goes_through_all_rates() {
    let test = "trick::one_session_goes_through_all_rates";
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let Some(paths) = make(test, folder.path()) else { return };
    let server = serve(&paths);
    for name in ["film.mp4/track0", "film.ts", "film.ts/track0"] {
        let mut player = Player::set_up(server.rtsp, name);
        // Scale and Range at once, as set-top boxes send them.
        let steps = [
            ("Range: npt=0-", "Scale: 1", "1.0", 0.0..0.1),
            ("X-None: 0", "Scale: 4.0", "4.0", 0.0..2.1),
            // A second later, at about 4 s.
            ("X-None: 0", "Scale: -2", "-2.0", 2.0..6.1),
            ("X-None: 0", "Scale: 1.0", "1.0", 0.0..5.1),
            ("Range: npt=9-10", "Scale: 3", "4.0", 9.0..9.1),
        ];
        for (where_from, wanted, played, starts) in steps {
            let answer = player.command("PLAY", &[where_from, wanted]);
            let (start, _) = range(&answer);
            assert!(starts.contains(&start), "{name}: {wanted}: {answer:?}");
            assert_eq!(answer.header("Scale"), Some(played), "{name}: {answer:?}");
            thread::sleep(Duration::from_secs(1));
        }
        player.hear("the end of the range", |heard| !heard.byes.is_empty());
        let heard = player.heard();
        let all: Vec<_> = heard.packets.iter().map(|packet| coordinates(packet)).collect();
        for pair in all.windows(2) {
            assert_eq!(pair[1].0, pair[0].0.wrapping_add(1), "{name}: sequence numbers run on");
            let passed = pair[1].1.wrapping_sub(pair[0].1) as i32;
            // Pictures are sent in the order of decoding.
            assert!((-9000..140_000).contains(&passed), "{name}: {passed} between packets");
        }
        let passed = all[all.len() - 1].1.wrapping_sub(all[0].1);
        // Four seconds, and the range of a second at four times; a busy machine begins late.
        assert!((150_000..700_000).contains(&passed), "{name}: {passed} in all");
        drop(heard);
        assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    }
    server.stop();
}

/// Where key frames are far apart, play continues at once, near the current position.
#[test]
fn normal_play_follows_sparse_key_frames_at_once() {
    let test = "trick::normal_play_follows_sparse_key_frames_at_once";
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = folder.path().join("sparse.mp4");
    let Some(()) = film(test, &path, 32, 250) else { return };
    let server = Server::start(&[("sparse.mp4", &path)]);
    server.await_stream("sparse.mp4");
    let mut player = Player::set_up(server.rtsp, "sparse.mp4/track0");
    let answer = player.command("PLAY", &["Range: npt=30-", "Scale: -1"]);
    assert_eq!(range(&answer).0, 30.0);
    player.hear("a picture", |heard| !heard.packets.is_empty());
    thread::sleep(Duration::from_secs(1));
    let before = player.heard().packets.len();
    let asked = Instant::now();
    let answer = player.command("PLAY", &["Scale: 1"]);
    // A second back from there: the key frame at 20 s is the last before that.
    assert_eq!(range(&answer).0, 20.0, "{answer:?}");
    player.hear("normal play", |heard| heard.packets.len() > before);
    let waited = asked.elapsed().as_secs_f64();
    // It would be nine seconds if the next picture backwards were waited for.
    assert!(waited < 4.0, "{waited} s");
    assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    server.stop();
}

/// Sound that is set up while only the pictures are sent is played with them later.
#[test]
fn a_track_is_set_up_between_plays_at_two_rates() {
    let test = "trick::a_track_is_set_up_between_plays_at_two_rates";
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let Some(paths) = make(test, folder.path()) else { return };
    let server = serve(&paths);
    let mut player = Player::set_up(server.rtsp, "film.mp4/track0");
    assert_eq!(player.command("PLAY", &["Scale: 2"]).status, 200);
    player.hear("pictures", |heard| !heard.packets.is_empty());
    assert_eq!(player.command("PAUSE", &[]).status, 200);
    let ports = PortPair::on(server.rtsp.ip());
    let session = format!("Session: {}", player.session);
    let headers = [session.as_str(), &ports.transport()];
    let answer = player.control.ask("SETUP", "film.mp4/track1", &headers);
    assert_eq!(answer.status, 200, "{answer:?}");
    let all = [session.as_str(), "Range: npt=2-", "Scale: 1"];
    let answer = player.control.ask("PLAY", "film.mp4", &all);
    assert_eq!(answer.header("Scale"), Some("1.0"), "{answer:?}");
    let mut datagram = [0; 2048];
    let heard = (0..100).find_map(|_| ports.rtp.recv(&mut datagram).ok());
    assert!(heard.is_some_and(|bytes| bytes > 12), "sound comes too");
    server.stop();
}

#[test]
fn ranges_backwards_in_time_codes_and_of_the_day() {
    let test = "trick::ranges_backwards_in_time_codes_and_of_the_day";
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let Some(paths) = make(test, folder.path()) else { return };
    let server = serve(&paths);
    for name in ["film.mp4/track0", "film.ts", "film.ts/track0"] {
        let mut player = Player::set_up(server.rtsp, name);
        let mut play = |headers: &[&str]| player.command("PLAY", headers);
        let near = |found: (f64, f64), expected: (f64, f64)| {
            let is_near = (found.0 - expected.0).abs() < 0.05 && (found.1 - expected.1).abs() < 0.4;
            assert!(is_near, "{name}: {found:?}, not {expected:?}");
        };
        // Both ways to write a range that is played backwards.
        near(range(&play(&["Scale: -2", "Range: npt=8-3"])), (8.0, 3.0));
        near(range(&play(&["Scale: -2", "Range: npt=3-8"])), (8.0, 3.0));
        near(range(&play(&["Scale: -2", "Range: npt=99-"])), (12.0, 0.0));
        assert_eq!(play(&["Scale: 2", "Range: npt=8-3"]).status, 457);
        assert_eq!(play(&["Range: npt=8-3"]).status, 457);
        assert_eq!(play(&["Scale: 2", "Range: npt=12.5-"]).status, 457);
        // A rate that does not exist; a file has no time of day.
        near(range(&play(&["Scale: 0.5", "Range: npt=3-"])), (3.0, 12.0));
        assert_eq!(play(&["Range: clock=20261123T120000Z-"]).status, 457);
        assert_eq!(play(&["Range: bytes=0-"]).status, 501);
        // Between key frames: the previous one is named, in the unit of the request.
        let answer = play(&["Range: smpte-25=0:00:03:12.50-0:00:05:00"]);
        let found = answer.header("Range").unwrap_or_default().to_owned();
        assert!(found.starts_with("smpte-25=0:00:03:00-0:00:05:"), "{name}: {found}");
        let answer = play(&["Range: smpte=0:00:03:00-"]);
        let found = answer.header("Range").unwrap_or_default().to_owned();
        assert!(found.starts_with("smpte-30-drop=0:00:0"), "{name}: {found}");
        // Faster than recorded, with the timestamps of the file: eight seconds in two.
        let answer = play(&["Speed: 9", "Range: npt=2-10"]);
        assert_eq!(answer.header("Speed"), Some("4.0"), "{name}: {answer:?}");
        let before = player.heard().packets.len();
        let began = Instant::now();
        player.hear("the end of the range", |heard| !heard.byes.is_empty());
        let took = began.elapsed().as_secs_f64();
        assert!((1.5..6.0).contains(&took), "{name}: {took} s");
        let heard = player.heard();
        let all: Vec<_> =
            heard.packets[before..].iter().map(|packet| coordinates(packet)).collect();
        let passed = all[all.len() - 1].1.wrapping_sub(all[0].1);
        assert!((600_000..750_000).contains(&passed), "{name}: {passed} of 90 kHz");
        drop(heard);
        assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    }
    server.stop();
}

/// A client's own rounding, and that of a slow machine's jitter buffer: GStreamer shifts times by
/// the drift that it measures.
const TOLERANCE_MS: i64 = 25;
