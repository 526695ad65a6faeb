// SPDX-License-Identifier: MIT OR Apache-2.0
//! WAV files: clients receive the samples of the file, bit by bit, from its beginning and from the
//! time of a seek.
//!
//! Each file is noise, so that no sample equals its neighbours. One server serves all; the cases
//! run side by side.
//!
//! Sources: RFC 3551 §4.5, RFC 3190 §4, RFC 2326 §12.29.

use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::harness::rtsp::Player as RtspPlayer;
use crate::harness::{PROGRAM, Place, Server, gstreamer};
use crate::side_by_side::{self, Case};
use crate::{assert_bytes, client};

/// A file.
struct Title {
    name: &'static str,
    /// Format tag.
    tag: u16,
    /// Bytes of a sample.
    width: u16,
    channels: u16,
    rate_hz: u32,
    /// The raw format of ffmpeg, and its decoder of the unchanged samples.
    raw: (&'static str, &'static str),
    /// The depayloader of GStreamer.
    depay: &'static str,
}

const TITLES: &[Title] = &[
    Title {
        name: "cd.wav",
        tag: 1,
        width: 2,
        channels: 2,
        rate_hz: 44_100,
        raw: ("s16le", "pcm_s16le"),
        depay: "rtpL16depay",
    },
    Title {
        name: "surround.wav",
        tag: 1,
        width: 3,
        channels: 6,
        rate_hz: 48_000,
        raw: ("s24le", "pcm_s24le"),
        depay: "rtpL24depay",
    },
    Title {
        name: "studio.wav",
        tag: 1,
        width: 3,
        channels: 2,
        rate_hz: 96_000,
        raw: ("s24le", "pcm_s24le"),
        depay: "rtpL24depay",
    },
    Title {
        name: "telephone.wav",
        tag: 6,
        width: 1,
        channels: 1,
        rate_hz: 8000,
        raw: ("alaw", "copy"),
        depay: "rtppcmadepay",
    },
];

const SECONDS: u32 = 3;

impl Title {
    fn frame_bytes(&self) -> u32 {
        u32::from(self.width * self.channels)
    }

    /// A little more than three seconds, so that the last block is not full.
    fn samples(&self) -> Vec<u8> {
        let mut state = self.rate_hz;
        let noise = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let frames = SECONDS * self.rate_hz + 77;
        (0..frames * self.frame_bytes()).map(noise).collect()
    }

    /// Returns the file, with a chunk of odd size before the sound, and one behind.
    fn file(&self) -> Vec<u8> {
        let short = u16::to_le_bytes;
        let frame = self.frame_bytes() as u16;
        let rates = [self.rate_hz, self.rate_hz * u32::from(frame)].map(u32::to_le_bytes);
        let format = [
            [short(self.tag), short(self.channels)].concat(),
            rates.concat(),
            [short(frame), short(8 * self.width)].concat(),
        ];
        let chunk = |id: &[u8; 4], body: &[u8]| {
            let padding: &[u8] = if body.len() % 2 == 1 { &[0] } else { &[] };
            [id, &(body.len() as u32).to_le_bytes()[..], body, padding].concat()
        };
        let chunks = [
            b"WAVE".to_vec(),
            chunk(b"LIST", b"INFOINAM\x05\0\0\0noise"),
            chunk(b"fmt ", &format.concat()),
            chunk(b"data", &self.samples()),
            chunk(b"LIST", b"adtl"),
        ];
        chunk(b"RIFF", &chunks.concat())
    }
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Udp,
    Tcp,
}

struct Play<'a> {
    player: &'static Player,
    way: Way,
    title: &'static Title,
    server: &'a Server,
}

struct Player {
    name: &'static str,
    plays: fn(&Play<'_>, &str) -> bool,
}

const PLAYERS: &[Player] = &[
    Player { name: "ffmpeg", plays: ffmpeg_plays },
    Player { name: "gstreamer", plays: gstreamer_plays },
    Player { name: "pagewire", plays: pagewire_plays },
];

impl Play<'_> {
    fn way(&self) -> &'static str {
        match self.way {
            Way::Udp => "udp",
            Way::Tcp => "tcp",
        }
    }

    fn url(&self) -> String {
        self.server.rtsp_url(self.title.name)
    }
}

impl Case for Play<'_> {
    /// Returns a name such as `wav::ffmpeg/udp/cd.wav`.
    fn name(&self) -> String {
        format!("wav::{}/{}/{}", self.player.name, self.way(), self.title.name)
    }

    fn plays(&self, name: &str) -> bool {
        (self.player.plays)(self, name)
    }
}

fn ffmpeg_plays(case: &Play<'_>, name: &str) -> bool {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-rtsp_transport", case.way(), "-i"]);
    let (format, codec) = case.title.raw;
    command.arg(case.url()).args(["-c:a", codec, "-f", format, "-"]);
    let Some(outcome) = client(name, &mut command) else { return false };
    assert_bytes(&outcome.succeeded(), &case.title.samples());
    true
}

/// Its depayloaders emit samples as received, in network order.
fn gstreamer_plays(case: &Play<'_>, name: &str) -> bool {
    let depay = case.title.depay;
    if !gstreamer::has_elements(name, &["rtspsrc", depay, "fdsink"]) {
        return false;
    }
    let mut command = Command::new("gst-launch-1.0");
    command.args(["-q", "rtspsrc", &format!("protocols={}", case.way())]);
    command.arg(format!("location={}", case.url()));
    command.args(["!", depay, "!", "fdsink", "fd=1", "sync=false"]);
    let Some(outcome) = client(name, &mut command) else { return false };
    let mut sent = case.title.samples();
    sent.chunks_mut(case.title.width.into()).for_each(<[u8]>::reverse);
    assert_bytes(&gstreamer::played(outcome), &sent);
    true
}

/// The program's own player checks every packet.
fn pagewire_plays(case: &Play<'_>, name: &str) -> bool {
    let mut command = Command::new(PROGRAM);
    command.args(["play", &case.url(), "--json", "--transport", case.way()]);
    let outcome = client(name, &mut command).expect("the program was built");
    let verdict: Value = serde_json::from_slice(&outcome.succeeded()).expect("a verdict in JSON");
    let track = &verdict["tracks"][0];
    assert_eq!(track["unit_bytes"], case.title.samples().len(), "{verdict:#}");
    for figure in ["broken_units", "malformed_packets"] {
        assert_eq!(track[figure], 0, "{verdict:#}");
    }
    assert_eq!(verdict["lost"], 0, "{verdict:#}");
    true
}

/// Starts a server of all titles, ready to be streamed.
fn serve() -> Server {
    let place = Place::new();
    for title in TITLES {
        place.put(title.name, &title.file());
    }
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    for title in TITLES {
        server.await_stream(title.name);
    }
    server
}

#[test]
fn every_client_receives_every_sample() {
    let server = serve();
    let mut cases = Vec::new();
    for player in PLAYERS {
        // GStreamer's depayloaders reorder more than two channels (gst/rtp/gstrtpchannels.c),
        // unlike files.
        let is_kept = |title: &&Title| player.name != "gstreamer" || title.channels <= 2;
        for title in TITLES.iter().filter(is_kept) {
            for way in [Way::Udp, Way::Tcp] {
                cases.push(Play { player, way, title, server: &server });
            }
        }
    }
    side_by_side::run(cases);
    let log = server.stop();
    assert!(!log.contains("panicked"), "{log}");
}

/// The timestamps count samples: that of RTP-Info, less the title's, is the place in the file.
#[test]
fn a_seek_begins_with_the_sample_that_its_answer_names() {
    let server = serve();
    for title in TITLES {
        let sent = title.samples();
        let begun = heard(&server, title, "0");
        assert_eq!(begun.range_s, 0.0);
        assert!(sent.starts_with(&begun.samples), "{}: the beginning", title.name);
        for (asked, seconds) in [("1", 1.0), ("1.507", 1.507), ("0.01", 0.01), ("2.9999", 2.9999)] {
            let found = heard(&server, title, asked);
            let frame = found.timestamp.wrapping_sub(begun.timestamp);
            let wanted = seconds * f64::from(title.rate_hz);
            let (early, block) = (wanted - f64::from(frame), f64::from(title.rate_hz) / 50.0);
            assert!((0.0..=block).contains(&early), "{} from {asked}: {early}", title.name);
            let range = f64::from(frame) / f64::from(title.rate_hz);
            assert!((found.range_s - range).abs() < 2e-6, "{}: {}", title.name, found.range_s);
            let at = (frame * title.frame_bytes()) as usize;
            let is_there = sent[at..].starts_with(&found.samples);
            assert!(is_there, "{} from {asked}: not the samples from {frame} on", title.name);
            assert!(found.samples.len() >= title.frame_bytes() as usize * 77, "{asked}");
        }
    }
    server.stop();
}

struct Heard {
    /// Start time in the answer.
    range_s: f64,
    /// Timestamp of the first packet, which is that of the answer.
    timestamp: u32,
    /// In the order of the file.
    samples: Vec<u8>,
}

/// Plays from a time on for some tenths of a second.
fn heard(server: &Server, title: &Title, from: &str) -> Heard {
    let mut player = RtspPlayer::set_up(server.rtsp, title.name);
    let answer = player.command("PLAY", &[&format!("Range: npt={from}-")]);
    assert_eq!(answer.status, 200, "{} from {from}: {answer:?}", title.name);
    let value = |header: &str, begin: &str, end: char| {
        let text = answer.header(header).unwrap_or_else(|| panic!("no {header}: {answer:?}"));
        let (_, value) = text.split_once(begin).unwrap_or_else(|| panic!("{begin} in {text}"));
        value.split(end).next().unwrap_or_default().to_owned()
    };
    player.hear("sound", |heard| !heard.packets.is_empty());
    thread::sleep(HEARD_FOR);
    let packets = player.heard().packets.clone();
    let timestamp: u32 = value("RTP-Info", "rtptime=", ',').parse().expect("a number");
    let first = u32::from_be_bytes(packets[0][4..8].try_into().expect("four bytes"));
    assert_eq!(first, timestamp, "{} from {from}", title.name);
    let mut samples: Vec<u8> = packets.iter().flat_map(|packet| packet[12..].to_vec()).collect();
    samples.chunks_mut(title.width.into()).for_each(<[u8]>::reverse);
    assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    let range_s = value("Range", "npt=", '-').parse().expect("seconds");
    Heard { range_s, timestamp, samples }
}

const HEARD_FOR: Duration = Duration::from_millis(300);
