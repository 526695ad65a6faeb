// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts of the last access units of a stream that grows: places between which a part of it is
//! whole.
//!
//! They are those of the stream whose access units are places to start. A place where its times
//! were set anew is kept for good.
//!
//! Needs 48 bytes a unit, of [`UNITS_MAX`] at most, and 8 bytes a break, of [`BREAKS_MAX`].
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.7 (times), §2.4.3.5 (discontinuities).
//! Does not find them ([`super::access`] does).

use std::collections::VecDeque;

use super::lead::{EntryContext, EntryPoints};
use super::rewrite::TIME_MODULUS;

/// Units kept: twenty seconds of 50 pictures a second.
const UNITS_MAX: usize = 1024;

/// Breaks kept, the first: a recording with more is cut by its clock behind them.
const BREAKS_MAX: usize = 4096;

/// Steps of time that no stream makes, in units of 90 kHz: back, and forth.
const BACK_MAX: u64 = 90_000;
const FORTH_MAX: u64 = 10 * 90_000;

/// Start of an access unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnitStart {
    /// Packet in which it begins.
    pub(crate) ts_packet: u64,
    /// Time of decoding, in units of 90 kHz.
    pub(crate) decoded: Option<u64>,
    /// The tables in force.
    pub(crate) context: EntryContext,
}

/// The last of them, and the breaks so far.
#[derive(Debug, Clone, Default)]
pub(super) struct UnitStarts {
    recent: VecDeque<UnitStart>,
    last: Option<u64>,
    breaks: Vec<u64>,
}

/// Places of a recording so far where it can be cut: those where play can start, and the starts of
/// the last access units.
#[derive(Debug, Clone, Default)]
pub struct RecordedStarts {
    pub(crate) entries: EntryPoints,
    pub(crate) units: Vec<UnitStart>,
    /// Packets of units whose times do not follow those before.
    pub(crate) breaks: Vec<u64>,
}

impl From<EntryPoints> for RecordedStarts {
    /// Those of a file that is whole.
    fn from(entries: EntryPoints) -> RecordedStarts {
        RecordedStarts { entries, ..RecordedStarts::default() }
    }
}

impl UnitStarts {
    /// Takes the first payload bytes of a unit that begins in this packet.
    pub(super) fn push(&mut self, ts_packet: u64, payload: &[u8], context: EntryContext) {
        let decoded = decoding(payload);
        if let (Some(last), Some(time)) = (self.last, decoded) {
            let step = time.wrapping_sub(last) % TIME_MODULUS;
            let is_break = (FORTH_MAX..TIME_MODULUS - BACK_MAX).contains(&step);
            if is_break && self.breaks.len() < BREAKS_MAX {
                self.breaks.push(ts_packet);
            }
        }
        self.last = decoded.or(self.last);
        if self.recent.len() == UNITS_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(UnitStart { ts_packet, decoded, context });
    }

    /// Notes a break at the unit that begins in this packet.
    pub(super) fn note_break(&mut self, ts_packet: u64) {
        if let Err(at) = self.breaks.binary_search(&ts_packet) {
            self.breaks.insert(at, ts_packet);
        }
    }

    /// Drops those before a packet.
    pub(super) fn drop_before(&mut self, ts_packet: u64) {
        let gone = self.recent.partition_point(|unit| unit.ts_packet < ts_packet);
        self.recent.drain(..gone);
        self.breaks.retain(|&at| at >= ts_packet);
    }

    /// Returns them with the places where play can start.
    pub(super) fn with(&self, entries: EntryPoints) -> RecordedStarts {
        let units = self.recent.iter().copied().collect();
        RecordedStarts { entries, units, breaks: self.breaks.clone() }
    }
}

/// The time of decoding of a PES packet, if it lies in these its first bytes; that of presentation
/// where it is the same.
fn decoding(bytes: &[u8]) -> Option<u64> {
    let flags = *bytes.get(7)?;
    let at = if flags & 0xc0 == 0xc0 { 14 } else { 9 };
    let [a, b, c, d, e] = *bytes.get(at..at + 5)?.first_chunk()?;
    let bits = |byte: u8, shift: u32| u64::from(byte >> 1) << shift;
    let time = u64::from(a >> 1 & 7) << 30 | u64::from(b) << 22 | bits(c, 15);
    let is_timed = bytes.starts_with(&[0, 0, 1]) && flags & 0x80 != 0;
    is_timed.then_some(time | u64::from(d) << 7 | bits(e, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(presented: u64, decoded: Option<u64>) -> Vec<u8> {
        let time = |prefix: u8, time: u64| {
            let part = |shift: u32, bits: u32| (time >> shift & ((1 << bits) - 1)) as u8;
            [prefix << 4 | part(30, 3) << 1 | 1, part(22, 8), part(15, 7) << 1 | 1, part(7, 8)]
                .into_iter()
                .chain([part(0, 7) << 1 | 1])
                .collect::<Vec<u8>>()
        };
        let mut bytes = vec![0, 0, 1, 0xe0, 0, 0, 0x80, 0x80, 5];
        if decoded.is_some() {
            (bytes[7], bytes[8]) = (0xc0, 10);
        }
        bytes.extend(time(2, presented));
        bytes.extend(decoded.map(|decoded| time(1, decoded)).unwrap_or_default());
        bytes
    }

    #[test]
    fn the_time_of_decoding_is_that_of_presentation_where_it_has_none() {
        assert_eq!(decoding(&payload(0x1_2345_6789, None)), Some(0x1_2345_6789));
        assert_eq!(decoding(&payload(7200, Some(3600))), Some(3600));
        assert_eq!(decoding(&payload(7200, Some(3600))[..13]), None);
        assert_eq!(decoding(&[0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn a_break_is_a_step_that_no_stream_makes() {
        let mut starts = UnitStarts::default();
        let end = TIME_MODULUS - 3600;
        // Pictures out of order, the end of the count, a new clock, a lost second.
        for (packet, time) in
            [(1, end - 3600), (2, end + 1800), (3, end), (4, 0), (5, 900_000_000), (6, 900_090_000)]
        {
            starts.push(packet, &payload(time, None), EntryContext::default());
        }
        let found = starts.with(EntryPoints::default());
        assert_eq!(found.breaks, [5]);
        assert_eq!(found.units.len(), 6);
        for packet in 7..2000 {
            starts.push(packet, &payload(900_090_000, None), EntryContext::default());
        }
        assert_eq!(starts.with(EntryPoints::default()).units.len(), UNITS_MAX);
    }
}
