// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends of presentation of a programme's pictures and sounds behind the last clock reference.
//!
//! A multiplexer sends the clock with the pictures, so it stops where these end; sound that goes on
//! for minutes has no clock, and would be due at once. Its own times tell the film's end.
//!
//! Costs a look at the first packet of each PES packet, and 88 bytes a stream.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.7 (times).
//! Does not read private sounds (stream type 6), which a descriptor tells.

use super::access::presentation;
use super::psi::ProgrammeMap;
use super::rewrite::TIME_MODULUS;
use super::{Coding, TsPacket};

/// Steps of time that no stream makes, in units of 90 kHz: back, and forth.
const BACK_MAX: u64 = 90_000;
const FORTH_MAX: u64 = 10 * 90_000;

/// Media behind the last clock reference that the clock's own rate covers.
const COVERED: u64 = 2 * 90_000;

/// Longest time between two units of which the last is as long.
const UNIT_MAX: u64 = 90_000;

/// Times of a stream, in units of 90 kHz.
#[derive(Clone, Default)]
struct StreamEnd {
    pid: u16,
    /// The latest, and the one before that.
    last: Option<u64>,
    before: Option<u64>,
    /// One that follows on none, and its packet: a new timeline, once another follows on it.
    alone: Option<(u64, u64)>,
    /// The first since the last clock reference.
    since_clock: Option<u64>,
    /// Packet from which on they are on one timeline; the first is that of the programme.
    from: u64,
}

/// Ends of the streams of the programme that is followed.
#[derive(Clone, Default)]
pub(super) struct StreamEnds {
    streams: Vec<StreamEnd>,
}

impl StreamEnds {
    /// Follows the pictures and sounds of a programme from now on.
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

    /// Notes a clock reference of the programme.
    pub(super) fn note_clock(&mut self) {
        self.streams.iter_mut().for_each(|stream| stream.since_clock = None);
    }

    /// Takes a packet that begins a unit.
    pub(super) fn feed(&mut self, index: u64, packet: &TsPacket<'_>) {
        let pid = packet.header.pid();
        let Some(stream) = self.streams.iter_mut().find(|stream| stream.pid == pid) else { return };
        let Some(time) = presentation(packet.payload()).filter(|_| !packet.header.is_scrambled())
        else {
            return;
        };
        let step = |from: u64| time.wrapping_sub(from) % TIME_MODULUS;
        let follows = |from| !(FORTH_MAX..=TIME_MODULUS - BACK_MAX).contains(&step(from));
        if !stream.last.is_some_and(follows) {
            let alone = stream.alone.replace((time, index));
            let Some((first, from)) = alone.filter(|&(first, _)| follows(first)) else { return };
            stream.from = if stream.last.is_some() { from } else { 0 };
            (stream.last, stream.before, stream.since_clock) = (Some(first), None, None);
        }
        stream.alone = None;
        stream.since_clock.get_or_insert(time);
        match stream.last.map(step) {
            Some(0) => {}
            Some(step) if step >= FORTH_MAX => stream.before = stream.before.max(Some(time)),
            _ => (stream.last, stream.before) = (Some(time), stream.last),
        }
    }

    /// Time from `since`, which is presented at the access unit in a packet, to the end of the
    /// longest stream, of those that go on behind the last clock reference.
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
