// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two channels of one server, one of a constant rate, play files in a row: the recorded stream has
//! no seam, and holds all frames of the files in order.
//!
//! The test lasts as long as the files. All is judged by the stream's own clock except for
//! [`Played::assert_arrived_in_time`].

use std::fs;
use std::time::Duration;

use crate::capture::{Capture, Datagram, RTP_BYTES, longest_gap, rtp, stream};
use crate::clips::{self, FRAMES_PER_SECOND, Streams, clip};
use crate::harness::answer::http;
use crate::harness::{Place, await_true};
use crate::{await_state, date, has_left_out, second_ahead, serve, state, wall_now};

const RATE_KBPS: u64 = 2500;
/// A programme that becomes known later than this before its time may begin in its middle.
const AHEAD: Duration = Duration::from_millis(500);

/// Files that are played.
#[derive(Clone, Copy)]
pub(crate) struct Files {
    /// Frames of each file; the files play in rotation.
    pub(crate) frames: [u32; 4],
    /// Number of files that are played, in rotation.
    pub(crate) played: usize,
}

/// Files of 1.04 to 1.4 s: the guide leaves out a programme that begins and ends within one second.
const SHORT: Files = Files { frames: [27, 35, 26, 31], played: 5 };

/// Datagrams that two channels sent over so many files.
pub(crate) struct Played {
    place: Place,
    files: Files,
    constant: [Vec<Datagram>; 2],
    variable: [Vec<Datagram>; 2],
    /// State of both channels at the end.
    states: [serde_json::Value; 2],
}

#[test]
fn joined_files_have_no_seam() {
    let Some(played) = play("joined_files_have_no_seam", SHORT) else { return };
    played.assert_seamless();
    played.assert_frames();
}

/// Plays files once on two channels and records both; returns `None`, with the reason printed,
/// where there are no files or the machine was too busy.
pub(crate) fn play(test: &str, files: Files) -> Option<Played> {
    let place = Place::new();
    for (number, frames) in files.frames.into_iter().enumerate() {
        let bytes = clip(test, number as u32, frames, Streams::Both)?;
        place.put(&name(number), &bytes);
    }
    // A server that was ready too late has missed the beginning.
    let played = PREPARATIONS_S
        .into_iter()
        .find_map(|seconds| record(test, &place, files, Duration::from_secs(seconds)));
    let Some((log, states, streams)) = played else { panic!("the server is never ready in time") };
    if has_left_out(test, &log) {
        return None;
    }
    let [a, b, c, d] = streams.map(|receiver| receiver.stop_whole(test));
    Some(Played { place, files, constant: [a?, b?], variable: [c?, d?], states })
}

type Recorded = (String, [serde_json::Value; 2], [Capture; 4]);

/// As [`play`], with a time for the server to start and to read the files; returns `None` where it
/// was not ready by then. Returns the log, the channels' states at the end, and the receivers.
fn record(test: &str, place: &Place, files: Files, preparation: Duration) -> Option<Recorded> {
    let receivers = [(); 4].map(|()| Capture::unicast());
    let [a, b, c, d] = &receivers.each_ref().map(|receiver| receiver.local.port());
    let starts_at = second_ahead(preparation);
    let names: Vec<String> = (0..files.played).map(|file| format!("\"{}\"", name(file))).collect();
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
    let server = serve(place, &config);
    // Both channels have their programmes loaded, with half a second for work that is done ahead.
    let is_known = || {
        let guide = http(server.http, "GET", "/channels.xml").text();
        guide.matches("<programme ").count() >= 2 * files.played
    };
    let is_late = || wall_now() + AHEAD >= Duration::from_secs(starts_at);
    await_true("both know their programmes", || is_known() || is_late());
    if is_late() {
        eprintln!("{test}: the server was not ready within {preparation:?}; once more");
        return None;
    }
    let frames = (0..files.played).map(|file| files.frames[file % files.frames.len()]);
    let seconds = f64::from(frames.sum::<u32>()) / f64::from(FRAMES_PER_SECOND);
    // In steps: one wait is limited to less than the length of the long files.
    for second in (0..seconds as u64).step_by(20) {
        receivers[0].await_clock(0, (starts_at + second) as f64);
    }
    // Both channels continue with nothing on the air.
    for (receiver, head_bytes) in receivers.iter().zip([0, RTP_BYTES, 0, RTP_BYTES]) {
        receiver.await_clock(head_bytes, starts_at as f64 + seconds + 1.0);
    }
    for channel in [0, 1] {
        await_state(&server, channel, "all is over", |state| state["reason"] == "nothing");
    }
    let states = [0, 1].map(|channel| state(&server, channel));
    Some((server.stop(), states, receivers))
}

fn name(file: usize) -> String {
    format!("{}.ts", file % 4)
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
                self.files.played - 1,
                walk.packets,
                walk.null_packets,
                walk.counter_gaps.len(),
                gap.as_millis()
            );
            walk.assert_seamless(0);
            walk.assert_in_time();
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

    /// Asserts that no receiver waited for long.
    #[track_caller]
    pub(crate) fn assert_arrived_in_time(&self) {
        for (name, [udp, _]) in [("constant", &self.constant), ("variable", &self.variable)] {
            let gap = longest_gap(udp);
            assert!(gap < ARRIVAL_GAP_MAX, "{name}: nothing came for {gap:?}");
        }
    }

    /// Asserts that the recordings have all frames of the files, in order.
    #[track_caller]
    pub(crate) fn assert_frames(&self) {
        let files: Vec<_> =
            (0..4).map(|file| clips::frames(&self.place.folder().join(name(file)))).collect();
        for (name, [udp, _]) in [("even.ts", &self.constant), ("plain.ts", &self.variable)] {
            let recording = self.place.top().join(name);
            fs::write(&recording, stream(udp, 0).0).expect("room for a recording");
            clips::assert_decodes(&recording);
            let found = clips::frames(&recording);
            for (kind, what) in ["pictures, decoded", "pictures", "sounds"].iter().enumerate() {
                let of_file = |file: usize| &files[file % files.len()][kind];
                let wanted: Vec<&String> = (0..self.files.played).flat_map(of_file).collect();
                let found = &found[kind];
                let same = found.iter().zip(&wanted).take_while(|(a, b)| a == *b).count();
                assert!(
                    found.len() == wanted.len() && same == wanted.len(),
                    "{name}, {what}: {} frames, not {}; the same up to {same}",
                    found.len(),
                    wanted.len()
                );
            }
        }
    }
}

/// Asserts that both transports carry the same packets, except for the last moment.
#[track_caller]
fn assert_same_stream(udp: &[Datagram], rtp: &[Datagram]) {
    let (udp, rtp) = (stream(udp, 0).0, stream(rtp, RTP_BYTES).0);
    let same = udp.iter().zip(&rtp).take_while(|(a, b)| a == b).count();
    assert!(same == udp.len().min(rtp.len()), "the same up to byte {same} of {}", udp.len());
    assert!(udp.len().abs_diff(rtp.len()) < 200_000, "{} and {} bytes", udp.len(), rtp.len());
}

/// Asserts one sender, sequence numbers without a gap, and timestamps that follow the clock.
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

/// Time for a server to start and to read the files, in each attempt.
const PREPARATIONS_S: [u64; 5] = [1, 3, 9, 20, 60];
const DEVIATION_NS_MAX: f64 = 500.0;
/// Asserts no evenness: the thread of a channel waits for its processor like all others.
const ARRIVAL_GAP_MAX: Duration = Duration::from_secs(1);
/// A fifth of a second: packets wait for a full datagram for a shorter time.
const TIMESTAMP_STEP_MAX: u32 = 18_000;
