// SPDX-License-Identifier: MIT OR Apache-2.0
//! Determines the end of presentation of video and audio streams after the last clock reference.
//!
//! A multiplexer sends the clock with the video, so the clock stops at the end of the video. Audio
//! that continues for minutes has no clock and would be due at once. The end of the film is
//! therefore computed from the audio's own times.
//!
//! Examines the first packet of each PES packet; needs 88 bytes per stream.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.7 (times).
//! Does not follow private audio streams (stream type 6), which only a descriptor identifies.

use super::pes_times::{TIME_MODULUS, presentation_of};
use super::psi::ProgrammeMap;
use super::{Coding, TsPacket};

/// Timestamp steps beyond these, backward and forward, are discontinuities; in units of 90 kHz.
const BACKWARD_MAX: u64 = 90_000;
const FORWARD_MAX: u64 = 10 * 90_000;

/// Duration of media after the last clock reference that the clock's own rate covers.
const COVERED: u64 = 2 * 90_000;

/// Longest distance of two units that is used as the duration of the last.
const UNIT_MAX: u64 = 90_000;

/// Times of a stream, in units of 90 kHz.
#[derive(Clone, Default)]
struct StreamEnd {
    pid: u16,
    /// The latest time, and the second latest.
    last: Option<u64>,
    before: Option<u64>,
    /// A time that is not continuous with the others, and its packet. It begins a new timeline if
    /// the next time is continuous with it.
    isolated: Option<(u64, u64)>,
    /// The first time after the last clock reference.
    since_clock: Option<u64>,
    /// Packet at which the current timeline begins; 0 for the first timeline.
    from: u64,
}

/// Ends of the streams of the followed programme.
#[derive(Clone, Default)]
pub(super) struct StreamEnds {
    streams: Vec<StreamEnd>,
}

impl StreamEnds {
    /// Switches to the video and audio streams of this map.
    pub(super) fn watch(&mut self, map: &ProgrammeMap) {
        let is_media = |stream_type| Coding::of(stream_type, &[]).is_media();
        self.streams.retain(|one| map.streams.iter().any(|&(pid, _)| pid == one.pid));
        for &(pid, stream_type) in &map.streams {
            if is_media(stream_type) && !self.pids().any(|known| known == pid) {
                self.streams.push(StreamEnd { pid, ..StreamEnd::default() });
            }
        }
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = u16> {
        self.streams.iter().map(|stream| stream.pid)
    }

    /// Records a clock reference of the programme.
    pub(super) fn note_clock(&mut self) {
        self.streams.iter_mut().for_each(|stream| stream.since_clock = None);
    }

    /// Consumes a packet that begins a unit.
    pub(super) fn feed(&mut self, index: u64, packet: &TsPacket<'_>) {
        let pid = packet.header.pid();
        let Some(stream) = self.streams.iter_mut().find(|stream| stream.pid == pid) else { return };
        let Some(time) =
            presentation_of(packet.payload()).filter(|_| !packet.header.is_scrambled())
        else {
            return;
        };
        let step = |from: u64| time.wrapping_sub(from) % TIME_MODULUS;
        let follows = |from| !(FORWARD_MAX..=TIME_MODULUS - BACKWARD_MAX).contains(&step(from));
        if !stream.last.is_some_and(follows) {
            let isolated = stream.isolated.replace((time, index));
            let Some((first, from)) = isolated.filter(|&(first, _)| follows(first)) else { return };
            stream.from = if stream.last.is_some() { from } else { 0 };
            (stream.last, stream.before, stream.since_clock) = (Some(first), None, None);
        }
        stream.isolated = None;
        stream.since_clock.get_or_insert(time);
        match stream.last.map(step) {
            Some(0) => {}
            Some(step) if step >= FORWARD_MAX => stream.before = stream.before.max(Some(time)),
            _ => (stream.last, stream.before) = (Some(time), stream.last),
        }
    }

    /// Returns the time from `since`, the presentation time of the given access unit, to the end of
    /// the longest stream. Only streams that continue after the last clock reference count.
    pub(super) fn passed(&self, (access_unit, since): (u64, u64)) -> Option<u64> {
        let of = |stream: &StreamEnd| {
            let (last, before) = (stream.last?, stream.before?);
            let unit = (last.wrapping_sub(before) % TIME_MODULUS).min(UNIT_MAX);
            let from = |time: u64| last.wrapping_sub(time) % TIME_MODULUS + unit;
            let is_late = (COVERED..TIME_MODULUS / 2).contains(&from(stream.since_clock?));
            let passed = Some(from(since)).filter(|&passed| passed < TIME_MODULUS / 2);
            passed.filter(|_| is_late && stream.from <= access_unit)
        };
        self.streams.iter().filter_map(of).max()
    }
}
