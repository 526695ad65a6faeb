// SPDX-License-Identifier: MIT OR Apache-2.0
//! PCM in WAV and MP4 files: clients receive the samples of the file, bit by bit, from its
//! beginning and from the time of a seek; an MP4 that `pagewire play` writes holds them.
//!
//! An MP4 file has the form of a recording, fragments of a second of blocks of 20 ms, or that of
//! QuickTime: a frame a sample, and chunks of frames.
//!
//! Each file is noise, so that no sample equals its neighbours. One server serves all; the cases
//! run side by side.
//!
//! Sources: RFC 3551 §4.5, RFC 3190 §4, RFC 2326 §12.29; ISO/IEC 23003-5 §5; QuickTime File Format.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::rtsp::Player as RtspPlayer;
use crate::harness::{PROGRAM, Place, Server, gstreamer};
use crate::side_by_side::{self, Case};
use crate::{assert_bytes, client};

/// A file.
struct Title {
    name: &'static str,
    container: Container,
    /// Bytes of a sample.
    width: u16,
    channels: u16,
    rate_hz: u32,
    /// The raw format of ffmpeg, and its decoder of the unchanged samples.
    raw: (&'static str, &'static str),
    /// The depayloader of GStreamer.
    depay: &'static str,
}

enum Container {
    /// A WAV file with this format tag.
    Wav(u16),
    /// Movie fragments, as they are recorded: little-endian, by its box.
    Recording,
    /// An entry of QuickTime of this type; true if its samples are big-endian.
    QuickTime(&'static [u8; 4], bool),
}

const TITLES: &[Title] = &[
    Title {
        name: "cd.wav",
        container: Container::Wav(1),
        width: 2,
        channels: 2,
        rate_hz: 44_100,
        raw: ("s16le", "pcm_s16le"),
        depay: "rtpL16depay",
    },
    Title {
        name: "surround.wav",
        container: Container::Wav(1),
        width: 3,
        channels: 6,
        rate_hz: 48_000,
        raw: ("s24le", "pcm_s24le"),
        depay: "rtpL24depay",
    },
    Title {
        name: "studio.wav",
        container: Container::Wav(1),
        width: 3,
        channels: 2,
        rate_hz: 96_000,
        raw: ("s24le", "pcm_s24le"),
        depay: "rtpL24depay",
    },
    Title {
        name: "telephone.wav",
        container: Container::Wav(6),
        width: 1,
        channels: 1,
        rate_hz: 8000,
        raw: ("alaw", "copy"),
        depay: "rtppcmadepay",
    },
    Title {
        name: "intercom.wav",
        container: Container::Wav(7),
        width: 1,
        channels: 1,
        rate_hz: 8000,
        raw: ("mulaw", "copy"),
        depay: "rtppcmudepay",
    },
    Title {
        name: "recording.mp4",
        container: Container::Recording,
        width: 2,
        channels: 2,
        rate_hz: 48_000,
        raw: ("s16le", "pcm_s16le"),
        depay: "rtpL16depay",
    },
    Title {
        name: "recording24.mp4",
        container: Container::Recording,
        width: 3,
        channels: 2,
        rate_hz: 44_100,
        raw: ("s24le", "pcm_s24le"),
        depay: "rtpL24depay",
    },
    Title {
        name: "camera.mp4",
        container: Container::Recording,
        width: 2,
        channels: 1,
        rate_hz: 8000,
        raw: ("s16le", "pcm_s16le"),
        depay: "rtpL16depay",
    },
    Title {
        name: "sowt.mov",
        container: Container::QuickTime(b"sowt", false),
        width: 2,
        channels: 2,
        rate_hz: 48_000,
        raw: ("s16le", "pcm_s16le"),
        depay: "rtpL16depay",
    },
    Title {
        name: "twos.mov",
        container: Container::QuickTime(b"twos", true),
        width: 2,
        channels: 2,
        rate_hz: 44_100,
        raw: ("s16be", "pcm_s16be"),
        depay: "rtpL16depay",
    },
    Title {
        name: "ulaw.mov",
        container: Container::QuickTime(b"ulaw", false),
        width: 1,
        channels: 1,
        rate_hz: 8000,
        raw: ("mulaw", "copy"),
        depay: "rtppcmudepay",
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

    /// In the order of bytes of packets, or from it.
    fn swapped(&self, mut samples: Vec<u8>) -> Vec<u8> {
        if !matches!(self.container, Container::QuickTime(_, true)) {
            samples.chunks_mut(self.width.into()).for_each(<[u8]>::reverse);
        }
        samples
    }

    fn file(&self) -> Vec<u8> {
        match self.container {
            Container::Wav(tag) => self.wav(tag),
            Container::Recording => self.recording(),
            Container::QuickTime(code, _) => self.quicktime(code),
        }
    }

    /// Returns a file with a chunk of odd size before the sound, and one behind.
    fn wav(&self, tag: u16) -> Vec<u8> {
        let short = u16::to_le_bytes;
        let frame = self.frame_bytes() as u16;
        let rates = [self.rate_hz, self.rate_hz * u32::from(frame)].map(u32::to_le_bytes);
        let format = [
            [short(tag), short(self.channels)].concat(),
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

    /// Returns a file whose fragments have a second each, as blocks of 20 ms.
    fn recording(&self) -> Vec<u8> {
        let config = boxed(b"pcmC", &[&[0, 0, 0, 0, 1, 8 * self.width as u8]]);
        let empty = |code| boxed(code, &[&words(&[0, 0])]);
        let sizes = boxed(b"stsz", &[&words(&[0, 0, 0])]);
        let tables = [empty(b"stts"), empty(b"stsc"), sizes, empty(b"stco")].concat();
        let mvex = boxed(b"mvex", &[&boxed(b"trex", &[&words(&[0, 1, 1, 0, 0, 0])])]);
        let mut file = boxed(b"ftyp", &[b"iso6\0\0\0\0"]);
        file.extend(self.moov(b"ipcm", &config, &tables, &mvex));
        let (block, frame) = (self.rate_hz / 50, self.frame_bytes());
        for (second, sound) in (0..).zip(self.samples().chunks((50 * block * frame) as usize)) {
            // Blocks of one size, and the last one of the file, which is shorter.
            let count = sound.len().div_ceil((block * frame) as usize) as u32;
            let last = sound.len() as u32 / frame - (count - 1) * block;
            let of_run = |number: u32| if number + 1 == count { last } else { block };
            let entries = (0..count).flat_map(|number| [of_run(number), of_run(number) * frame]);
            let entries: Vec<_> = entries.collect();
            let tfhd = boxed(b"tfhd", &[&words(&[0x2_0000, 1])]);
            let tfdt = boxed(b"tfdt", &[&words(&[0, second * 50 * block])]);
            let moof = |at: u32| {
                let trun = boxed(b"trun", &[&words(&[0x301, count, at]), &words(&entries)]);
                boxed(b"moof", &[&boxed(b"traf", &[&tfhd, &tfdt, &trun])])
            };
            let at = moof(0).len() as u32 + 8;
            file.extend([moof(at), boxed(b"mdat", &[sound])].concat());
        }
        file
    }

    /// Returns a file of a frame a sample, in chunks of a third of a second.
    fn quicktime(&self, code: &[u8; 4]) -> Vec<u8> {
        let (samples, frame) = (self.samples(), self.frame_bytes());
        let (count, chunk) = (samples.len() as u32 / frame, self.rate_hz / 3);
        let ftyp = boxed(b"ftyp", &[b"qt  \0\0\0\0"]);
        let first = ftyp.len() as u32 + 8;
        let places: Vec<_> =
            (0..count.div_ceil(chunk)).map(|number| first + number * chunk * frame).collect();
        let whole = count / chunk;
        let rules = [1, chunk, 1, whole + 1, count - whole * chunk, 1];
        let tables = [
            boxed(b"stts", &[&words(&[0, 1, count, 1])]),
            boxed(b"stsz", &[&words(&[0, frame, count])]),
            boxed(b"stsc", &[&words(&[0, 2]), &words(&rules)]),
            boxed(b"stco", &[&words(&[0, places.len() as u32]), &words(&places)]),
        ];
        let moov = self.moov(code, &[], &tables.concat(), &[]);
        [ftyp, boxed(b"mdat", &[&samples]), moov].concat()
    }

    fn moov(&self, code: &[u8; 4], config: &[u8], tables: &[u8], further: &[u8]) -> Vec<u8> {
        let sizes = u32::from(self.channels) << 16 | u32::from(8 * self.width).max(16);
        let fields = words(&[0, 1, 0, 0, sizes, 0, self.rate_hz << 16]);
        let stsd = boxed(b"stsd", &[&words(&[0, 1]), &boxed(code, &[&fields, config])]);
        let minf = boxed(b"minf", &[&boxed(b"stbl", &[&stsd, tables])]);
        let times = words(&[0, 0, 0, self.rate_hz, 0, 0x55c4_0000]);
        let mdia = boxed(b"mdia", &[&boxed(b"mdhd", &[&times]), &minf]);
        let tkhd = boxed(b"tkhd", &[&words(&[7, 0, 0, 1]), &[0; 68]]);
        let mvhd = boxed(b"mvhd", &[&words(&[0, 0, 0, 1000, 0]), &[0; 80]]);
        boxed(b"moov", &[&mvhd, &boxed(b"trak", &[&tkhd, &mdia]), further])
    }
}

/// A box.
fn boxed(code: &[u8; 4], parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    [&(8 + body.len() as u32).to_be_bytes(), code.as_slice(), &body].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
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
    Player { name: "mp4", plays: pagewire_writes_mp4 },
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
    /// Returns a name such as `pcm::ffmpeg/udp/cd.wav`.
    fn name(&self) -> String {
        format!("pcm::{}/{}/{}", self.player.name, self.way(), self.title.name)
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
    assert_bytes(&gstreamer::played(outcome), &case.title.swapped(case.title.samples()));
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

/// The program's own player writes an MP4, in which ffmpeg finds the sound: G.711 as 16 bits, and
/// other samples unchanged.
fn pagewire_writes_mp4(case: &Play<'_>, name: &str) -> bool {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let [sent, written] = ["sent.raw", "written.mp4"].map(|name| folder.path().join(name));
    fs::write(&sent, case.title.samples()).expect("a new folder");
    let mut command = Command::new(PROGRAM);
    command.args(["play", &case.url(), "--json", "--transport", case.way(), "--output"]);
    let outcome = client(name, command.arg(&written)).expect("the program was built");
    let verdict: Value = serde_json::from_slice(&outcome.succeeded()).expect("a verdict in JSON");
    assert_eq!(verdict["lost"], 0, "{verdict:#}");
    let stored = if case.title.width == 3 { "s24le" } else { "s16le" };
    let decoded = |input: &[&str], path: &Path| {
        let mut command = Command::new("ffmpeg");
        command.args(["-hide_banner", "-loglevel", "error"]).args(input).arg("-i").arg(path);
        Some(client(name, command.args(["-f", stored, "-"]))?.succeeded())
    };
    let rate = case.title.rate_hz.to_string();
    let channels = case.title.channels.to_string();
    let raw = ["-f", case.title.raw.0, "-ar", &rate, "-ac", &channels];
    let Some(expected) = decoded(&raw, &sent) else { return false };
    let Some(found) = decoded(&[], &written) else { return false };
    assert_bytes(&found, &expected);
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
        // unlike files; an MP4 is written of two at most.
        let is_whole = !["gstreamer", "mp4"].contains(&player.name);
        let is_kept = |title: &&Title| is_whole || title.channels <= 2;
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
            // The last block of a chunk or a fragment is longer than 20 ms.
            let longest = if let Container::Wav(_) = title.container { 50.0 } else { 25.0 };
            let (early, block) = (wanted - f64::from(frame), f64::from(title.rate_hz) / longest);
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
    let samples = packets.iter().flat_map(|packet| packet[12..].to_vec()).collect();
    let samples = title.swapped(samples);
    assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    let range_s = value("Range", "npt=", '-').parse().expect("seconds");
    Heard { range_s, timestamp, samples }
}

const HEARD_FOR: Duration = Duration::from_millis(300);
