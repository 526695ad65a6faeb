// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collects the H.264 and H.265 parameter sets active at each entry point and inserts them before
//! access units that lack them.
//!
//! A film remultiplexed from MP4 may carry its parameter sets in the first access unit only. A
//! decoder that starts later cannot decode any picture. The sets are therefore inserted before the
//! access unit, as a PES packet with the times of that access unit. They become its first NAL
//! units.
//!
//! The PES packet is spread over a multiple of 16 transport packets. The first has the continuity
//! counter of the access unit's first packet, and the last has the counter before that. The
//! receiver therefore sees no missing packet, both after the preceding part and at the start of
//! playback (ISO/IEC 13818-1 §2.4.3.3). Fewer packets would need a discontinuity_indicator, which
//! on the PCR PID announces a new time base (§2.4.3.5). A single packet that repeats the counter of
//! the previous packet makes ffmpeg treat the picture as damaged.
//!
//! Costs a copy of the sets of each examined access unit, 4 KiB for the active sets and as much for
//! each of up to [`SETS_MAX`] stored combinations of sets. Entry points that lack further
//! combinations get none.
//!
//! Sources: ISO/IEC 14496-10 §7.3.1, §7.4.1.2.1; ISO/IEC 23008-2 §7.3.1, §7.4.2.4.2 (order of sets
//! and slices); RFC 8216 §3.
//! Does not resolve the set identifiers of slices: an entry point lacks all sets or none.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::pes_times::put_timestamp;
use super::rewrite::spread;
use crate::bits::Bits;
use crate::byte_stream::{START_CODE_BYTES, without_zeros};
use crate::sequence::SequenceSet;

/// Most combinations of parameter sets stored per file, for entry points that lack them.
pub(crate) const SETS_MAX: usize = 256;

/// Bytes of the active sets, start codes included.
pub(crate) const SETS_BYTES_MAX: usize = 4096;

/// Parameter sets of a stream in byte stream format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParameterSets {
    /// PID of their stream.
    pub(crate) pid: u16,
    pub(crate) bytes: Arc<[u8]>,
}

/// Header fields of the access unit before which the sets are inserted.
#[derive(Debug, Clone, Copy)]
pub(super) struct LedUnit {
    /// Presentation and decoding times, in units of 90 kHz.
    pub(super) presented: Option<u64>,
    pub(super) decoded: Option<u64>,
    pub(super) stream_id: u8,
    /// Continuity counter of its first packet.
    pub(super) continuity: u8,
}

impl ParameterSets {
    /// Inserts the sets into a PES packet, before all other NAL units.
    pub(super) fn put_into(&self, payload: &mut Vec<u8>) {
        let header = payload.get(8).map(|&more| 9 + usize::from(more));
        if let Some(at) = header.filter(|&at| at <= payload.len()) {
            payload.splice(at..at, self.bytes.iter().copied());
            // PES_packet_length may be 0 for video (§2.4.3.7).
            payload[4..6].fill(0);
        }
    }

    /// Appends the sets as transport packets that precede an access unit.
    pub(super) fn put_in_front(&self, unit: &LedUnit, out: &mut Vec<u8>) {
        let mut pes = vec![0, 0, 1, unit.stream_id, 0, 0, 0x80, 0, 0];
        for (flag, prefix, time) in [(0x80, 0x20, unit.presented), (0x40, 0x10, unit.decoded)] {
            let Some(time) = time else { break };
            let at = pes.len();
            pes[7] |= flag;
            pes[8] += 5;
            pes.resize(at + 5, 0);
            put_timestamp(&mut pes[at..], prefix, time);
        }
        if unit.presented.and(unit.decoded).is_some() {
            // PTS_DTS_flags 11 (table 2-21).
            pes[9] |= 0x10;
        }
        pes.extend_from_slice(&self.bytes);
        let bytes = (pes.len() - 6) as u16;
        pes[4..6].copy_from_slice(&bytes.to_be_bytes());
        spread(self.pid, &pes, (unit.continuity, false), out);
    }
}

/// Kinds of parameter sets, as bits.
const VIDEO: u8 = 1;
const SEQUENCE: u8 = 2;
const PICTURE: u8 = 4;

/// Returns the kind of the set whose first byte this is; 0 for other NAL units.
fn kind(is_h265: bool, first: u8) -> u8 {
    match (is_h265, if is_h265 { first >> 1 & 0x3f } else { first & 0x1f }) {
        (true, 32) => VIDEO,
        (false, 7) | (true, 33) => SEQUENCE,
        (false, 8) | (true, 34) => PICTURE,
        _ => 0,
    }
}

/// Returns the identifier of a set among sets of its kind; none if the set is truncated.
fn identifier(is_h265: bool, kind: u8, nal: &[u8]) -> Option<u32> {
    let golomb = |from: usize| Bits::new(nal.get(from..)?).golomb();
    match (is_h265, kind) {
        (true, VIDEO) => nal.get(2).map(|&byte| u32::from(byte >> 4)),
        (true, SEQUENCE) => SequenceSet::h265_id(nal),
        (true, _) => golomb(2),
        (false, SEQUENCE) => golomb(4),
        (false, _) => golomb(1),
    }
}

/// An active set.
#[derive(Clone)]
struct KnownSet {
    kind: u8,
    id: u32,
    nal: Vec<u8>,
}

impl KnownSet {
    /// Returns the size of the set with a start code.
    fn bytes(&self) -> usize {
        START_CODE_BYTES + 1 + self.nal.len()
    }
}

/// Tracks the active sets of a stream by reading its access units.
#[derive(Clone, Default)]
pub(super) struct ParameterReader {
    pid: u16,
    is_h265: bool,
    /// Sorted by kind and identifier.
    in_force: Vec<KnownSet>,
    in_force_bytes: usize,
    /// Kinds found in the current access unit.
    found: u8,
    /// Bytes of the current NAL unit, if it is a parameter set.
    nal: Vec<u8>,
    is_open: bool,
    /// Stored combinations of sets that entry points lack; `current` is the index of the active
    /// one, if known.
    kept: Vec<ParameterSets>,
    /// Hashes of the stored combinations, for lookup.
    hashes: Vec<u64>,
    current: Option<u16>,
    /// Index of the stored combination that is replaced next; none if combinations are not
    /// replaced.
    oldest: Option<usize>,
}

impl ParameterReader {
    /// Creates a reader for an endless stream, which retains the last [`SETS_MAX`] combinations.
    pub(super) fn of_channel() -> ParameterReader {
        ParameterReader { oldest: Some(0), ..ParameterReader::default() }
    }

    /// Switches to the bytes of another stream.
    pub(super) fn watch(&mut self, pid: u16, is_h265: bool) {
        (self.pid, self.is_h265) = (pid, is_h265);
        self.forget();
        self.is_open = false;
    }

    fn forget(&mut self) {
        self.in_force.clear();
        (self.in_force_bytes, self.current) = (0, None);
    }

    pub(super) fn begin_unit(&mut self) {
        (self.found, self.is_open) = (0, false);
    }

    /// Begins a NAL unit with its first byte, which follows a start code.
    #[inline]
    pub(super) fn begin_nal(&mut self, first: u8) {
        if self.is_open {
            let end = self.nal.len() - START_CODE_BYTES.min(self.nal.len());
            self.nal.truncate(end);
            self.end_nal();
        }
        self.is_open = kind(self.is_h265, first) != 0;
        if self.is_open {
            self.nal.clear();
            self.nal.push(first);
        }
    }

    /// Appends the next byte of the NAL unit.
    #[inline]
    pub(super) fn take(&mut self, byte: u8) {
        if self.is_open {
            self.nal.push(byte);
        }
    }

    /// Ends the access unit, at the start of the next.
    pub(super) fn end_unit(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.end_nal();
        }
    }

    /// Discards a set that extends beyond the probed bytes.
    pub(super) fn give_up(&mut self) {
        self.is_open = false;
    }

    fn end_nal(&mut self) {
        let nal = without_zeros(&self.nal);
        let Some(&first) = nal.first() else { return };
        let kind = kind(self.is_h265, first);
        let Some(id) = identifier(self.is_h265, kind, nal) else { return };
        self.found |= kind;
        let known = self.in_force.binary_search_by_key(&(kind, id), |set| (set.kind, set.id));
        match known {
            Ok(at) if self.in_force[at].nal == nal => return,
            Ok(at) => {
                self.in_force_bytes -= self.in_force[at].bytes();
                self.in_force[at].nal = nal.to_vec();
                self.in_force_bytes += self.in_force[at].bytes();
            }
            Err(at) => {
                self.in_force.insert(at, KnownSet { kind, id, nal: nal.to_vec() });
                self.in_force_bytes += self.in_force[at].bytes();
            }
        }
        self.current = None;
        // Above the limit all active sets are dropped and collected again.
        if self.in_force_bytes > SETS_BYTES_MAX {
            self.forget();
        }
    }

    /// Returns the index of the stored combination that the current access unit lacks; none if the
    /// unit has its own sets or no complete combination is active.
    pub(super) fn lacking(&mut self) -> Option<u16> {
        let needed = SEQUENCE | PICTURE | if self.is_h265 { VIDEO } else { 0 };
        let known = self.in_force.iter().fold(0, |kinds, set| kinds | set.kind);
        if self.found & needed == needed || known & needed != needed {
            return None;
        }
        if self.current.is_none() {
            self.current = self.settle();
        }
        self.current
    }

    /// Returns the index of the active combination among the stored ones; stores it if it is new.
    fn settle(&mut self) -> Option<u16> {
        let mut bytes = Vec::new();
        for set in &self.in_force {
            bytes.extend([0, 0, 0, 1]);
            bytes.extend_from_slice(&set.nal);
        }
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let hash = hasher.finish();
        let sets = ParameterSets { pid: self.pid, bytes: bytes.into() };
        let mut alike = self.hashes.iter().zip(&self.kept);
        let at = match alike.position(|(known, kept)| *known == hash && *kept == sets) {
            Some(at) => at,
            None if self.kept.len() < SETS_MAX => {
                self.kept.push(sets);
                self.hashes.push(hash);
                self.kept.len() - 1
            }
            None => {
                let oldest = self.oldest.as_mut()?;
                let at = *oldest;
                *oldest = (at + 1) % SETS_MAX;
                (self.kept[at], self.hashes[at]) = (sets, hash);
                at
            }
        };
        u16::try_from(at).ok()
    }

    /// Returns the combinations of sets that entry points lack.
    pub(super) fn kept(&self) -> &[ParameterSets] {
        &self.kept
    }
}
