// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two channels of one server, one of a constant rate, play a dozen files in a row: the stream that
//! a receiver records has no seam, and holds the frames of the files, all of them, in order.
//!
//! Takes as long as the files: 40 s.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crate::capture::{Capture, Datagram, RTP_BYTES, longest_gap, rtp, stream};
use crate::clips::{self, FRAMES_PER_SECOND, Streams, clip};
use crate::harness::{Place, Server};
use crate::{await_state, date, second_ahead, serve, state};

const TEST: &str = "joined_files_have_no_seam";
/// Frames of each file; files of 2.6 to 3.4 s.
const FRAMES: [u32; 4] = [65, 77, 70, 85];
const PLAYED: usize = 14;
const RATE_KBPS: u64 = 2500;

/// Datagrams that two channels sent over so many files.
pub(crate) struct Played {
    place: Place,
    files: usize,
    constant: [Vec<Datagram>; 2],
    variable: [Vec<Datagram>; 2],
    /// State of both channels at the end.
    states: [serde_json::Value; 2],
}

pub(crate) fn joined_files_have_no_seam() {
    let Some(played) = play(TEST, PLAYED, 1) else { return };
    played.assert_seamless();
    played.assert_frames();
}

/// Plays `files` files once by two channels and records both; `None` where there are no files.
/// Files are `longer` times as long as they are here.
pub(crate) fn play(test: &str, files: usize, longer: u32) -> Option<Played> {
    let place = Place::new();
    for (number, frames) in FRAMES.iter().enumerate() {
        let bytes = clip(test, number as u32, longer * frames, Streams::Both)?;
        place.put(&name(number), &bytes);
    }
    let receivers = [(); 4].map(|()| Capture::unicast());
    let [a, b, c, d] = &receivers.each_ref().map(|receiver| receiver.local.port());
    let starts_at = second_ahead(PREPARATION);
    let names: Vec<String> = (0..files).map(|file| format!("\"{}\"", name(file))).collect();
    let channel = |name: &str, more: &str, targets: &str| {
        let playlist = names.join(", ");
        let starts_at = date(starts_at);
        format!(
            "[channel.{name}]\nplaylist = [{playlist}]\norder = \"once\"\n\
             starts_at = {starts_at}\nsend = [{targets}]\n{more}\n"
        )
    };
    let targets =
        |udp: &u16, rtp: &u16| format!("\"udp://127.0.0.1:{udp}\", \"rtp://127.0.0.1:{rtp}\"");
    let rate = format!("constant_rate_kbps = {RATE_KBPS}");
    let config = channel("even", &rate, &targets(a, b)) + &channel("plain", "", &targets(c, d));
    let server = serve(&place, &config);
    assert!(crate::wall_now().as_secs() < starts_at, "the server was ready too late to begin");
    await_programmes(&server, files, longer);
    thread::sleep(AFTERWARDS);
    let states = [0, 1].map(|channel| state(&server, channel));
    server.stop();
    let [a, b, c, d] = receivers.map(Capture::stop);
    Some(Played { place, files, constant: [a, b], variable: [c, d], states })
}

fn name(file: usize) -> String {
    format!("{}.ts", file % FRAMES.len())
}

/// Waits until the first file is on the air, and then until the last is over.
fn await_programmes(server: &Server, files: usize, longer: u32) {
    await_state(server, 0, "a file is on the air", |state| state["on_air"].is_string());
    let frames: u32 = (0..files).map(|file| longer * FRAMES[file % FRAMES.len()]).sum();
    thread::sleep(Duration::from_secs_f64(f64::from(frames / FRAMES_PER_SECOND)));
    for channel in [0, 1] {
        await_state(server, channel, "all is over", |state| state["reason"] == "nothing");
    }
}

impl Played {
    /// Asserts streams without a seam, and prints their figures.
    #[track_caller]
    pub(crate) fn assert_seamless(&self) {
        let rate = RATE_KBPS * 1000;
        for (name, [udp, rtp], is_constant) in
            [("constant", &self.constant, true), ("variable", &self.variable, false)]
        {
            let walk = stream(udp, 0).walk();
            let deviation = walk.line_deviation_ns(rate);
            let gap = longest_gap(udp);
            let line = match is_constant {
                true => format!("{deviation:.0} ns"),
                false => "no line".to_owned(),
            };
            eprintln!(
                "{name}: {} changes of file, {} packets ({} null), {} gaps of counters, clock off \
                 its line by {line}, longest gap in arrival {} ms",
                self.files - 1,
                walk.packets,
                walk.null_packets,
                walk.counter_gaps.len(),
                gap.as_millis()
            );
            walk.assert_seamless(0);
            walk.assert_in_time();
            assert!(gap < ARRIVAL_GAP_MAX, "{name}: nothing came for {gap:?}");
            if is_constant {
                assert!(deviation <= DEVIATION_NS_MAX, "{name}: {deviation} ns off the line");
                assert!(walk.null_packets > 0, "{name}: it is filled up");
            } else {
                assert_eq!(walk.null_packets, 0, "{name}");
            }
            assert_same_stream(udp, rtp);
            assert_rtp(rtp, is_constant.then_some(rate));
        }
        for state in &self.states {
            assert_eq!(state["dropped_packets"], 0, "{state:#}");
            assert_eq!(state["faults"].as_array().map(Vec::len), Some(0), "{state:#}");
        }
    }

    /// Asserts that the recordings have the frames of the files, all and in order.
    #[track_caller]
    pub(crate) fn assert_frames(&self) {
        let of_file = |file: usize, stream: &str, is_decoded: bool| {
            clips::frames(&self.place.folder().join(name(file)), stream, is_decoded)
        };
        let stored = |name: &str, datagrams: &[Datagram]| -> PathBuf {
            let path = self.place.top().join(name);
            fs::write(&path, stream(datagrams, 0).0).expect("room for a recording");
            path
        };
        let recordings =
            [stored("even.ts", &self.constant[0]), stored("plain.ts", &self.variable[0])];
        for recording in &recordings {
            clips::assert_decodes(recording);
        }
        for (stream, is_decoded) in [("0:v", true), ("0:v", false), ("0:a", false)] {
            let files: Vec<_> =
                (0..FRAMES.len()).map(|file| of_file(file, stream, is_decoded)).collect();
            let wanted: Vec<&String> =
                (0..self.files).flat_map(|file| &files[file % FRAMES.len()]).collect();
            for recording in &recordings {
                let found = clips::frames(recording, stream, is_decoded);
                let same = found.iter().zip(&wanted).take_while(|(a, b)| a == *b).count();
                assert!(
                    found.len() == wanted.len() && same == wanted.len(),
                    "{}, {stream}: {} frames, not {}; the same up to {same}",
                    recording.display(),
                    found.len(),
                    wanted.len()
                );
            }
        }
    }
}

/// Asserts that both ways of sending have the same packets, but for the last moment.
#[track_caller]
fn assert_same_stream(udp: &[Datagram], rtp: &[Datagram]) {
    let (udp, rtp) = (stream(udp, 0).0, stream(rtp, RTP_BYTES).0);
    let same = udp.iter().zip(&rtp).take_while(|(a, b)| a == b).count();
    assert!(same == udp.len().min(rtp.len()), "the same up to byte {same} of {}", udp.len());
    assert!(udp.len().abs_diff(rtp.len()) < 200_000, "{} and {} bytes", udp.len(), rtp.len());
}

/// Asserts one sender, numbers without a gap, and timestamps that are the clock's.
#[track_caller]
pub(crate) fn assert_rtp(datagrams: &[Datagram], bits_per_second: Option<u64>) {
    let (first, origin, source) = rtp(datagrams.first().expect("packets came"));
    let (mut next, mut last, mut bits) = (first, origin, 0);
    for datagram in datagrams {
        let (sequence, timestamp, ssrc) = rtp(datagram);
        assert_eq!((sequence, ssrc), (next, source));
        next = next.wrapping_add(1);
        assert!(timestamp.wrapping_sub(last) < TIMESTAMP_STEP_MAX, "{timestamp} after {last}");
        last = timestamp;
        if let Some(rate) = bits_per_second {
            let elapsed = (bits as f64 * 90_000.0 / rate as f64) as u64 as u32;
            let found = timestamp.wrapping_sub(origin);
            assert!(elapsed.abs_diff(found) <= 1, "{found} ticks after {bits} bits");
            bits += (datagram.bytes.len() - RTP_BYTES) as u64 * 8;
        }
    }
}

/// Time for a server to start and to read the files.
const PREPARATION: Duration = Duration::from_secs(4);
const AFTERWARDS: Duration = Duration::from_millis(500);
const DEVIATION_NS_MAX: f64 = 500.0;
/// No claim of evenness: the thread of a channel waits for its processor like all others.
const ARRIVAL_GAP_MAX: Duration = Duration::from_secs(1);
/// A fifth of a second: packets wait for a full datagram for a shorter time.
const TIMESTAMP_STEP_MAX: u32 = 18_000;
