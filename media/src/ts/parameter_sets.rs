// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parameter sets of H.264 and H.265 that are in force where play can start, for the places whose
//! access unit lacks them.
//!
//! A film that was remultiplexed from MP4 may have its sets in the first access unit alone: of what
//! begins later no decoder shows a picture. So they are put in front, behind the tables, as a PES
//! packet with the times of the access unit, of which they are the first NAL units.
//!
//! It is spread over a multiple of 16 packets. The first has the continuity counter of the access
//! unit's first packet and the last the one before it, so no packet is missing where the part
//! before was played, or where none was (ISO/IEC 13818-1 §2.4.3.3). Fewer packets would need a
//! discontinuity_indicator; on the PID of the clock that announces a new time base (§2.4.3.5), and
//! ffmpeg takes one packet with the counter of the packet before it for a damaged picture.
//!
//! Costs a copy of the sets of each access unit that is looked at; 4 KiB for those in force, and as
//! much for each of [`SETS_MAX`] that a place lacks. A place that lacks others gets none.
//!
//! Sources: ISO/IEC 14496-10 §7.3.1, §7.4.1.2.1; ISO/IEC 23008-2 §7.3.1, §7.4.2.4.2 (order of sets
//! and slices); RFC 8216 §3.
//! Does not follow the identifiers from slices to sets: a place lacks all sets or none.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::lead::SETS_MAX;
use super::rewrite::{put_timestamp, spread};
use crate::bits::Bits;
use crate::byte_stream::{START_CODE_BYTES, without_zeros};
use crate::sequence::SequenceSet;

/// Bytes of the sets in force, start codes included.
pub(crate) const SETS_BYTES_MAX: usize = 4096;

/// Sets of a stream in byte stream format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParameterSets {
    /// PID of their stream.
    pub(crate) pid: u16,
    pub(crate) bytes: Arc<[u8]>,
}

/// First packet of the access unit that sets are put in front of.
#[derive(Debug, Clone, Copy)]
pub(super) struct LedUnit {
    /// Times of presentation and decoding, in units of 90 kHz.
    pub(super) presented: Option<u64>,
    pub(super) decoded: Option<u64>,
    pub(super) stream_id: u8,
    /// Its continuity counter.
    pub(super) continuity: u8,
}

impl ParameterSets {
    /// Puts them into a PES packet, before all other NAL units.
    pub(super) fn put_into(&self, payload: &mut Vec<u8>) {
        let header = payload.get(8).map(|&more| 9 + usize::from(more));
        if let Some(at) = header.filter(|&at| at <= payload.len()) {
            payload.splice(at..at, self.bytes.iter().copied());
            // The length of pictures need not be told (§2.4.3.7).
            payload[4..6].fill(0);
        }
    }

    /// Adds them as packets in front of an access unit.
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

/// Kinds of sets, as bits.
const VIDEO: u8 = 1;
const SEQUENCE: u8 = 2;
const PICTURE: u8 = 4;

/// Kind of the set that begins with this byte; 0 of other NAL units.
fn kind(is_h265: bool, first: u8) -> u8 {
    match (is_h265, if is_h265 { first >> 1 & 0x3f } else { first & 0x1f }) {
        (true, 32) => VIDEO,
        (false, 7) | (true, 33) => SEQUENCE,
        (false, 8) | (true, 34) => PICTURE,
        _ => 0,
    }
}

/// Identifier of a set among those of its kind; none where it is cut off.
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

/// A set in force.
#[derive(Clone)]
struct KnownSet {
    kind: u8,
    id: u32,
    nal: Vec<u8>,
}

impl KnownSet {
    /// Bytes of it with a start code.
    fn bytes(&self) -> usize {
        START_CODE_BYTES + 1 + self.nal.len()
    }
}

/// Sets in force in a stream, taken from the bytes of its access units.
#[derive(Clone, Default)]
pub(super) struct ParameterReader {
    pid: u16,
    is_h265: bool,
    /// By kind and identifier.
    in_force: Vec<KnownSet>,
    in_force_bytes: usize,
    /// Kinds found in the access unit that is read.
    found: u8,
    /// NAL unit that is read, if it is a set.
    nal: Vec<u8>,
    is_open: bool,
    /// Sets that places lack; which of them those in force are, if it is known.
    kept: Vec<ParameterSets>,
    /// Hashes of the bytes of these, by which they are found.
    hashes: Vec<u64>,
    current: Option<u16>,
    /// Of a stream without an end, the next that is replaced; of others none is.
    oldest: Option<usize>,
}

impl ParameterReader {
    /// One of a stream without an end, of which the last [`SETS_MAX`] are kept.
    pub(super) fn of_channel() -> ParameterReader {
        ParameterReader { oldest: Some(0), ..ParameterReader::default() }
    }

    /// Takes the bytes of another stream from now on.
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

    /// Takes the first byte of a NAL unit, behind a start code.
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

    /// Takes a further byte.
    #[inline]
    pub(super) fn take(&mut self, byte: u8) {
        if self.is_open {
            self.nal.push(byte);
        }
    }

    /// Ends the access unit where the next begins.
    pub(super) fn end_unit(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.end_nal();
        }
    }

    /// Gives up a set that is longer than what is looked at.
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
        // Beyond, all are forgotten and gathered anew.
        if self.in_force_bytes > SETS_BYTES_MAX {
            self.forget();
        }
    }

    /// Returns the number of the sets that the access unit read so far lacks; none where it has
    /// its own, or none are in force.
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

    /// Finds the sets in force among those kept, or keeps them.
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

    /// Sets that places lack.
    pub(super) fn kept(&self) -> &[ParameterSets] {
        &self.kept
    }
}
