// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a channel's stream over changes of programme: media follow each other without a gap,
//! the clock is the time at which its packets leave, and nothing is lost.
//!
//! The clip is played again and again, as it is and with a clock that runs on behind its media.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::time::Instant;

use media::Scanner;
use media::plan::PlanKey;
use media::store::random_identity;

use super::*;
use crate::channel::settings::ChannelDraft;
use crate::channel::timeline::{Lineup, Timeline, TimelineEntry};
use crate::library::asset::Asset;

pub(in crate::channel::playout) static CLIP: &[u8] =
    include_bytes!("../../../../pagewire/assets/clip.ts");

const PICTURES: u16 = 0x100;
const SOUND: u16 = 0x110;
const MS: u64 = TICKS_PER_SECOND / 1000;
/// From picture to picture 40 ms; sound begins 21 ms earlier than the pictures of the clip, which
/// may be shown a picture later than they are decoded.
const PICTURES_APART: u64 = 102 * MS;
/// In the clip 17 frames, and as much as the pictures end later by that reckoning.
const SOUND_APART: u64 = 388 * MS;
/// Where the clip is cut, pictures of the same time come before sound.
const CUT_APART: u64 = 700 * MS;

/// Returns a file with these bytes, as a channel plays it.
pub(in crate::channel::playout) fn measured(bytes: &[u8]) -> ChannelFile {
    let mut scanner = Scanner::new();
    scanner.feed(bytes);
    let plan = scanner.finish(bytes.len() as u64, random_identity()).expect("a stream");
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(bytes).expect("room for a file");
    let key = PlanKey { path: Vec::new(), bytes: bytes.len() as u64, modified_ns: 0, inode: 1 };
    let asset = Arc::new(Asset::new("clip.ts".to_owned(), key, plan));
    ChannelFile::measure(asset, file, None).expect("it can be joined")
}

/// The clock reference of a packet.
pub(in crate::channel::playout) fn reference(packet: &[u8]) -> Option<u64> {
    let has_one = packet[3] & 0x20 != 0 && packet[4] >= 7 && packet[5] & 0x10 != 0;
    let base = || packet[6..11].iter().fold(0, |base, &byte| base << 8 | u64::from(byte)) >> 7;
    has_one.then(|| base() * 300 + (u64::from(packet[10] & 1) << 8 | u64::from(packet[11])))
}

/// The decoding time of the PES packet that begins in a packet, in ticks.
fn decoding_time(packet: &[u8]) -> Option<u64> {
    let from = if packet[3] & 0x20 == 0 { 4 } else { 5 + usize::from(packet[4]) };
    let unit = packet.get(from..).filter(|_| packet[1] & 0x40 != 0)?;
    let at = match (unit, unit.get(7)? >> 6) {
        ([0, 0, 1, ..], 2) => 9,
        ([0, 0, 1, ..], 3) => 14,
        _ => return None,
    };
    let field = unit.get(at..at + 5)?;
    let bits = |at: usize, bits: u8| u64::from(field[at] >> 1 & bits);
    let high = bits(0, 7) << 30 | u64::from(field[1]) << 22 | bits(2, 0x7f) << 15;
    Some((high | u64::from(field[3]) << 7 | bits(4, 0x7f)) * 300)
}

/// Writes a clock reference.
fn put_reference(packet: &mut [u8], ticks: u64) {
    packet[6..11].copy_from_slice(&((ticks / 300) << 7 | 0x7e).to_be_bytes()[3..]);
    packet[10] |= ((ticks % 300) >> 8) as u8;
    packet[11] = (ticks % 300) as u8;
}

/// The clip with a clock that runs on for so many milliseconds behind its last reference.
fn clip_with_clock_behind(ms: u64) -> Vec<u8> {
    let mut bytes = CLIP.to_vec();
    let last = CLIP.chunks_exact(TS_PACKET_BYTES).rfind(|packet| reference(packet).is_some());
    let last = last.expect("it has a clock");
    let from = reference(last).expect("it has one");
    for n in 1..=ms / 20 {
        let mut packet = [0xff; TS_PACKET_BYTES];
        packet[..4].copy_from_slice(&[0x47, last[1] & 0x1f, last[2], 0x20 | last[3] & 0xf]);
        (packet[4], packet[5]) = (183, 0x10);
        put_reference(&mut packet, from + n * 20 * MS);
        bytes.extend(packet);
    }
    bytes
}

/// The clip with a clock that runs too fast, so that its media leave later than it lasts.
fn clip_with_fast_clock() -> Vec<u8> {
    let mut bytes = CLIP.to_vec();
    let first = CLIP.chunks_exact(TS_PACKET_BYTES).find_map(reference).expect("it has a clock");
    for packet in bytes.chunks_exact_mut(TS_PACKET_BYTES) {
        if let Some(ticks) = reference(packet) {
            put_reference(packet, ticks + (ticks - first) / 25);
        }
    }
    bytes
}

/// Plays a file again and again for a minute; asserts that its packets leave at the times of the
/// clock. Returns the decoding times of pictures and audio.
fn played(file: ChannelFile) -> BTreeMap<u16, Vec<u64>> {
    let draft = ChannelDraft { playlist: vec!["clip.ts".to_owned()], ..ChannelDraft::default() };
    let began = Duration::from_secs(1000);
    let config = draft.check("news").expect("good settings");
    let config = ChannelConfig { starts_at: began, ..config };
    let name: Arc<str> = "clip.ts".into();
    let entries = vec![TimelineEntry { name: name.clone(), duration: Some(file.duration) }];
    let lineup = Lineup { entries, ..Lineup::default() };
    let plan = ChannelPlan {
        timeline: Timeline::new(&config, &lineup),
        files: HashMap::from([(name, Arc::new(file))]),
        faults: Vec::new(),
        version: 1,
    };
    let clock = ChannelClock::new(Instant::now(), began);
    let mut producer = Producer::new(&config, ticks_of(began));
    let mut times: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
    let mut until = ticks_of(began);
    let mut sent = std::iter::from_fn(|| {
        loop {
            match producer.next(until) {
                None if until > ticks_of(began + Duration::from_secs(60)) => return None,
                None => until += 100 * MS,
                packet => return packet,
            }
            producer.advance(until, &clock, &plan);
        }
    });
    for packet in &mut sent {
        for bytes in packet.payload.chunks_exact(TS_PACKET_BYTES) {
            if let Some(reference) = reference(bytes) {
                let due = packet.begins.saturating_sub(MS)..=packet.due + MS;
                assert!(due.contains(&reference), "{reference} in a packet of {due:?}");
            }
            let pid = u16::from_be_bytes([bytes[1] & 0x1f, bytes[2]]);
            times.entry(pid).or_default().extend(decoding_time(bytes));
        }
    }
    times
}

/// Returns the number of PES packets of a PID.
fn units(bytes: &[u8], pid: u16) -> usize {
    let packets = bytes.chunks_exact(TS_PACKET_BYTES);
    let own = packets.filter(|packet| [packet[1] & 0x1f, packet[2]] == pid.to_be_bytes());
    own.filter_map(decoding_time).count()
}

/// Plays a file made of clips; asserts that no unit is further from the one before it than in the
/// clip, but for the time by which sound and pictures do not begin and end together, and that each
/// programme has all units.
#[track_caller]
fn assert_continuous(bytes: &[u8], sound_apart: u64) {
    let file = measured(bytes);
    let duration = ticks_of(file.duration);
    let times = played(file);
    for (pid, own, apart_max) in
        [(PICTURES, PICTURES, PICTURES_APART), (SOUND, PICTURES + 1, sound_apart)]
    {
        let (times, units) = (&times[&pid], units(bytes, own));
        assert!(units > 40 && times.len() > 2 * units, "{pid:#x}: {units} of {}", times.len());
        for (first, second) in times.iter().zip(&times[units..]) {
            assert!((second - first).abs_diff(duration) < MS, "{pid:#x}: {first} {second}");
        }
        let apart = times.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(apart < Some(apart_max), "{pid:#x}: {apart:?}");
    }
}

#[test]
fn pictures_follow_each_other_over_changes_of_programme() {
    assert_continuous(CLIP, SOUND_APART);
}

#[test]
fn clock_that_runs_on_behind_its_media_makes_no_gap() {
    for behind_ms in [200, 900, 3000, 5000, 20_000] {
        assert_continuous(&clip_with_clock_behind(behind_ms), SOUND_APART);
    }
}

#[test]
fn media_that_leave_later_than_they_last_leave_faster() {
    let bytes = clip_with_fast_clock();
    let file = measured(&bytes);
    assert!(file.duration < Duration::from_millis(14_100), "{:?}", file.duration);
    assert!(file.asset.plan.duration_ticks() > 14_500 * MS);
    assert_continuous(&bytes, SOUND_APART);
}

/// The time base of such a file begins anew in its middle.
#[test]
fn clips_one_behind_the_other_in_a_file_lose_nothing() {
    let plan = measured(CLIP).asset.plan.clone();
    for seconds in [3, 5] {
        let packets =
            (0..).take_while(|&packet| plan.ticks_of(packet) < seconds * 1000 * MS).count();
        let beginning = &CLIP[..packets * TS_PACKET_BYTES];
        assert_continuous(&[beginning, CLIP].concat(), CUT_APART);
        assert_continuous(&[beginning, &clip_with_clock_behind(900)].concat(), CUT_APART);
    }
    let fast = clip_with_fast_clock();
    assert_continuous(&[CLIP, &fast].concat(), SOUND_APART);
}
