// SPDX-License-Identifier: MIT OR Apache-2.0
//! H.264 and H.265: NAL units alone, aggregated and in fragments.
//!
//! An access unit ends with the marker bit, or where the timestamp changes (some senders do not
//! mark). After a gap nobody knows to which of its neighbours the missing packets belonged: the
//! unit before it is whole only if it was marked, and the one behind it only if its first slice is
//! the first of the picture.
//!
//! Sources: RFC 6184 §5.3 (NAL unit header), §5.6–5.8; RFC 7798 §4.4; ISO/IEC 14496-10 §7.3.3
//! (first_mb_in_slice); ISO/IEC 23008-2 §7.3.1.2, §7.3.6.1 (first_slice_segment_in_pic_flag),
//! §7.3.3 (profile_tier_level).
//! Does not reorder by decoding order numbers (STAP-B, MTAP, FU-B, DONL).

use super::{Output, TimedPacket, UNIT_BYTES_MAX};
use crate::bits::without_emulation;
use crate::tracks::{Codec, H264Config, H265Config};

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NalKind {
    H264,
    H265,
}

/// The access unit that is being put together, and the parameter sets so far.
#[derive(Debug)]
pub(super) struct NalUnits {
    kind: NalKind,
    codec: Codec,
    /// Its time; none between two units.
    time: Option<i64>,
    bytes: Vec<u8>,
    /// Where the length of a NAL unit stands whose fragments are coming.
    fragment_at: Option<usize>,
    /// The sender does not mark the ends of units.
    is_unmarked: bool,
    is_broken: bool,
    is_after_gap: bool,
    is_start: bool,
    /// The first slice is the first of the picture; none before a slice.
    is_first_slice: Option<bool>,
    /// A parameter set of this unit has begun a new list.
    new_sets: [bool; 3],
}

impl NalUnits {
    /// Puts units together; `codec` has what the description told, or nothing.
    pub(super) fn new(codec: Codec) -> NalUnits {
        let kind = if matches!(codec, Codec::H265(_)) { NalKind::H265 } else { NalKind::H264 };
        NalUnits {
            kind,
            codec,
            time: None,
            bytes: Vec::new(),
            fragment_at: None,
            is_unmarked: false,
            is_broken: false,
            is_after_gap: false,
            is_start: false,
            is_first_slice: None,
            new_sets: [false; 3],
        }
    }

    /// The codec, once a decoder could be set up by it.
    pub(super) fn codec(&self) -> Option<&Codec> {
        let is_whole = match &self.codec {
            Codec::H264(config) => {
                !config.sequence_sets.is_empty() && !config.picture_sets.is_empty()
            }
            Codec::H265(config) => {
                let sets = [&config.video_sets, &config.sequence_sets, &config.picture_sets];
                sets.iter().all(|sets| !sets.is_empty())
            }
            _ => false,
        };
        is_whole.then_some(&self.codec)
    }

    pub(super) fn push(&mut self, packet: TimedPacket<'_>, output: &mut Output) {
        if packet.is_after_gap {
            // A unit that was marked is gone already.
            self.is_broken |= self.time.is_some();
            self.drop_fragment();
        }
        if self.time.is_some_and(|time| time != packet.time) {
            self.is_unmarked |= !packet.is_after_gap;
            self.complete(output);
        }
        if self.time.is_none() {
            self.time = Some(packet.time);
            self.is_after_gap = packet.is_after_gap;
        }
        if self.take(packet.payload).is_none() {
            self.is_broken = true;
            output.malformed();
        }
        if packet.marker {
            self.complete(output);
        }
    }

    /// The stream has ended: a unit without a mark lacks its end, if the sender marks.
    pub(super) fn finish(&mut self, output: &mut Output) {
        self.is_broken |= !self.is_unmarked;
        self.complete(output);
    }

    /// Gives the unit out, if it is whole.
    fn complete(&mut self, output: &mut Output) {
        let Some(time) = self.time.take() else { return };
        let is_cut_off = self.fragment_at.is_some();
        let is_beginning_lost = self.is_after_gap && self.is_first_slice != Some(true);
        let bytes = std::mem::take(&mut self.bytes);
        if self.is_broken || is_cut_off || is_beginning_lost {
            output.broken_unit();
        } else if !bytes.is_empty() {
            // The next one is about as long.
            self.bytes.reserve(bytes.len().min(RESERVED_MAX));
            output.unit(time, bytes, self.is_start);
        }
        (self.is_broken, self.is_start, self.is_after_gap) = (false, false, false);
        (self.fragment_at, self.is_first_slice, self.new_sets) = (None, None, [false; 3]);
    }

    /// Takes a payload; none for one that is malformed.
    fn take(&mut self, payload: &[u8]) -> Option<()> {
        let unit_type = self.unit_type(payload)?;
        let header_bytes = self.header_bytes();
        let (aggregate, fragment) = match self.kind {
            NalKind::H264 => (24, 28),
            NalKind::H265 => (48, 49),
        };
        if unit_type == fragment {
            return self.take_fragment(payload);
        }
        // A fragment that was not ended lacks its end.
        self.is_broken |= self.fragment_at.is_some();
        self.drop_fragment();
        if unit_type != aggregate {
            return self.take_unit(payload);
        }
        let mut rest = &payload[header_bytes..];
        while !rest.is_empty() {
            let (length, behind) = rest.split_first_chunk()?;
            let (unit, behind) = behind.split_at_checked(u16::from_be_bytes(*length).into())?;
            self.take_unit(unit)?;
            rest = behind;
        }
        Some(())
    }

    /// Takes a whole NAL unit.
    fn take_unit(&mut self, unit: &[u8]) -> Option<()> {
        let unit_type = self.unit_type(unit)?;
        let is_known = match self.kind {
            NalKind::H264 => (1..24).contains(&unit_type),
            NalKind::H265 => unit_type < 48,
        };
        if !is_known {
            return None;
        }
        if self.is_delimiter(unit_type) {
            return Some(());
        }
        self.begin(unit_type, unit.get(self.header_bytes()).copied());
        self.append(&(unit.len() as u32).to_be_bytes())?;
        let at = self.bytes.len();
        self.append(unit)?;
        self.note_set(unit_type, at);
        Some(())
    }

    fn take_fragment(&mut self, payload: &[u8]) -> Option<()> {
        let header_bytes = self.header_bytes();
        let fu = *payload.get(header_bytes)?;
        let body = payload.get(header_bytes + 1..).filter(|body| !body.is_empty())?;
        let (begins, ends) = (fu & 0x80 != 0, fu & 0x40 != 0);
        if begins {
            self.is_broken |= self.fragment_at.is_some();
            self.drop_fragment();
            let (unit_type, header) = match self.kind {
                NalKind::H264 => (fu & 0x1f, vec![payload[0] & 0xe0 | fu & 0x1f]),
                NalKind::H265 => {
                    (fu & 0x3f, vec![payload[0] & 0x81 | (fu & 0x3f) << 1, payload[1]])
                }
            };
            self.begin(unit_type, body.first().copied());
            self.fragment_at = Some(self.bytes.len());
            self.append(&[0; 4])?;
            self.append(&header)?;
        } else if self.fragment_at.is_none() {
            // Its beginning is lost, or was never sent.
            self.is_broken = true;
            return Some(());
        }
        self.append(body)?;
        if let Some(at) = self.fragment_at.filter(|_| ends) {
            self.fragment_at = None;
            let length = (self.bytes.len() - at - 4) as u32;
            self.bytes[at..at + 4].copy_from_slice(&length.to_be_bytes());
            let unit_type = self.unit_type(&self.bytes[at + 4..])?;
            self.note_set(unit_type, at + 4);
        }
        Some(())
    }

    /// Notes what the beginning of a NAL unit tells of the access unit; `first` is the byte behind
    /// its header.
    fn begin(&mut self, unit_type: u8, first: Option<u8>) {
        let is_slice = match self.kind {
            NalKind::H264 => (1..=5).contains(&unit_type),
            NalKind::H265 => unit_type < 32,
        };
        if !is_slice {
            return;
        }
        self.is_start |= match self.kind {
            NalKind::H264 => unit_type == 5,
            NalKind::H265 => (16..=21).contains(&unit_type),
        };
        // In both the highest bit is set where the number is zero, or the flag is.
        self.is_first_slice.get_or_insert(first.is_some_and(|first| first & 0x80 != 0));
    }

    /// Keeps a parameter set that lies in the unit from `at` on.
    fn note_set(&mut self, unit_type: u8, at: usize) {
        let set = &self.bytes[at..];
        let (index, sets) = match (&mut self.codec, unit_type) {
            (Codec::H264(config), 7) => {
                if let Some(profile) = set.get(1..4) {
                    config.profile.copy_from_slice(profile);
                }
                (1, &mut config.sequence_sets)
            }
            (Codec::H264(config), 8) => (2, &mut config.picture_sets),
            (Codec::H265(config), 32) => (0, &mut config.video_sets),
            (Codec::H265(config), 33) => {
                if let Some(profile) = profile_of(set) {
                    config.profile = profile;
                }
                (1, &mut config.sequence_sets)
            }
            (Codec::H265(config), 34) => (2, &mut config.picture_sets),
            _ => return,
        };
        // The first of its kind in an access unit replaces those of the unit before.
        if !std::mem::replace(&mut self.new_sets[index], true) {
            sets.clear();
        }
        if sets.len() < SETS_MAX && !sets.iter().any(|known| known == set) {
            sets.push(set.to_vec());
        }
    }

    fn append(&mut self, bytes: &[u8]) -> Option<()> {
        if self.bytes.len() + bytes.len() > UNIT_BYTES_MAX {
            self.drop_fragment();
            return None;
        }
        self.bytes.extend_from_slice(bytes);
        Some(())
    }

    fn drop_fragment(&mut self) {
        if let Some(at) = self.fragment_at.take() {
            self.bytes.truncate(at);
            self.is_broken = true;
        }
    }

    fn header_bytes(&self) -> usize {
        match self.kind {
            NalKind::H264 => 1,
            NalKind::H265 => 2,
        }
    }

    /// The type of a NAL unit; none for one that is shorter than its header, or has the forbidden
    /// bit set.
    fn unit_type(&self, unit: &[u8]) -> Option<u8> {
        let first = *unit.first().filter(|first| *first & 0x80 == 0)?;
        match self.kind {
            NalKind::H264 => Some(first & 0x1f),
            NalKind::H265 => (unit.len() >= 2).then_some(first >> 1 & 0x3f),
        }
    }

    fn is_delimiter(&self, unit_type: u8) -> bool {
        match self.kind {
            NalKind::H264 => unit_type == 9,
            NalKind::H265 => unit_type == 35,
        }
    }
}

/// A codec of which nothing is known yet.
pub(super) fn unknown(kind: NalKind) -> Codec {
    match kind {
        NalKind::H264 => Codec::H264(H264Config {
            length_bytes: 4,
            profile: [0; 3],
            sequence_sets: Vec::new(),
            picture_sets: Vec::new(),
        }),
        NalKind::H265 => Codec::H265(H265Config {
            length_bytes: 4,
            profile: [0; 12],
            video_sets: Vec::new(),
            sequence_sets: Vec::new(),
            picture_sets: Vec::new(),
        }),
    }
}

/// The twelve bytes from general_profile_space to general_level_idc of a sequence parameter set of
/// H.265: behind the header of the NAL unit and one byte.
pub(super) fn profile_of(set: &[u8]) -> Option<[u8; 12]> {
    let clean = without_emulation(set.get(..set.len().min(PROFILE_BYTES_READ))?);
    clean.get(3..15)?.try_into().ok()
}

/// Parameter sets of a kind: H.264 numbers 32 sequence sets and 256 picture sets, and a stream has
/// a few.
const SETS_MAX: usize = 32;
/// Twice what is needed, for bytes that only keep start codes out.
const PROFILE_BYTES_READ: usize = 32;
/// Room that is kept for the next unit.
const RESERVED_MAX: usize = 256 << 10;
