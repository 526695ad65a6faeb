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
use super::pes_times::{TIME_MODULUS, decoding_of};

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
        let decoded = decoding_of(payload);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ts::pes_times::put_timestamp;

    fn payload(presented: u64) -> Vec<u8> {
        let mut bytes = vec![0, 0, 1, 0xe0, 0, 0, 0x80, 0x80, 5, 0, 0, 0, 0, 0];
        put_timestamp(&mut bytes[9..], 0x20, presented);
        bytes
    }

    #[test]
    fn a_break_is_a_step_that_no_stream_makes() {
        let mut starts = UnitStarts::default();
        let end = TIME_MODULUS - 3600;
        // Reordered pictures, timestamp wrap, clock reset, one missing second.
        for (packet, time) in
            [(1, end - 3600), (2, end + 1800), (3, end), (4, 0), (5, 900_000_000), (6, 900_090_000)]
        {
            starts.push(packet, &payload(time), EntryContext::default());
        }
        let found = starts.with(EntryPoints::default());
        assert_eq!(found.breaks, [5]);
        assert_eq!(found.units.len(), 6);
        for packet in 7..2000 {
            starts.push(packet, &payload(900_090_000), EntryContext::default());
        }
        assert_eq!(starts.with(EntryPoints::default()).units.len(), UNITS_MAX);
    }
}
