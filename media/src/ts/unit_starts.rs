// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records the starts of the last access units of a growing stream, between which it can be cut.
//!
//! Only the stream that is searched for entry points is recorded. The positions of timestamp
//! discontinuities are retained longer than the units.
//!
//! Needs 48 bytes per unit, for at most [`UNITS_MAX`], and 8 bytes per discontinuity, for at most
//! [`BREAKS_MAX`].
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.7 (times), §2.4.3.5 (discontinuities).
//! Does not find the units; [`super::access`] does.

use std::collections::VecDeque;

use super::lead::{EntryContext, EntryPoints};
use super::rewrite::TIME_MODULUS;

/// Units retained: twenty seconds at 50 pictures a second.
const UNITS_MAX: usize = 1024;

/// Discontinuities retained: the first ones. A recording with more is cut by its clock after them.
const BREAKS_MAX: usize = 4096;

/// Timestamp steps beyond these, backward and forward, are discontinuities; in units of 90 kHz.
const BACKWARD_MAX: u64 = 90_000;
const FORWARD_MAX: u64 = 10 * 90_000;

/// Start of an access unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnitStart {
    /// Packet in which it begins.
    pub(crate) ts_packet: u64,
    /// Decoding time, in units of 90 kHz.
    pub(crate) decoded: Option<u64>,
    /// The current tables.
    pub(crate) context: EntryContext,
}

/// The last unit starts, and the discontinuities so far.
#[derive(Debug, Clone, Default)]
pub(super) struct UnitStarts {
    recent: VecDeque<UnitStart>,
    last: Option<u64>,
    breaks: Vec<u64>,
}

/// Points at which a recording can be cut so far: its entry points and the starts of the last
/// access units.
#[derive(Debug, Clone, Default)]
pub struct RecordedStarts {
    pub(crate) entries: EntryPoints,
    pub(crate) units: Vec<UnitStart>,
    /// First packets of units whose times are not continuous with the previous ones.
    pub(crate) breaks: Vec<u64>,
}

impl From<EntryPoints> for RecordedStarts {
    /// Creates the starts of a complete file.
    fn from(entries: EntryPoints) -> RecordedStarts {
        RecordedStarts { entries, ..RecordedStarts::default() }
    }
}

impl UnitStarts {
    /// Records a unit that begins in this packet with these payload bytes.
    pub(super) fn push(&mut self, ts_packet: u64, payload: &[u8], context: EntryContext) {
        let decoded = decoding(payload);
        if let (Some(last), Some(time)) = (self.last, decoded) {
            let step = time.wrapping_sub(last) % TIME_MODULUS;
            let is_break = (FORWARD_MAX..TIME_MODULUS - BACKWARD_MAX).contains(&step);
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

    /// Records a discontinuity at the unit that begins in this packet.
    pub(super) fn note_break(&mut self, ts_packet: u64) {
        if let Err(at) = self.breaks.binary_search(&ts_packet) {
            self.breaks.insert(at, ts_packet);
        }
    }

    /// Drops all starts before a packet.
    pub(super) fn drop_before(&mut self, ts_packet: u64) {
        let gone = self.recent.partition_point(|unit| unit.ts_packet < ts_packet);
        self.recent.drain(..gone);
        self.breaks.retain(|&at| at >= ts_packet);
    }

    /// Returns the starts together with the entry points.
    pub(super) fn with(&self, entries: EntryPoints) -> RecordedStarts {
        let units = self.recent.iter().copied().collect();
        RecordedStarts { entries, units, breaks: self.breaks.clone() }
    }
}

/// Returns the decoding time of a PES packet if it lies within these first bytes; the presentation
/// time if there is no separate decoding time.
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
        // Reordered pictures, timestamp wrap, clock reset, one missing second.
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
