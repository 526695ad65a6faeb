// SPDX-License-Identifier: MIT OR Apache-2.0
//! Depayloader of H.264 and H.265: NAL units, single, aggregated or in fragments.
//!
//! An access unit ends where the next one begins: at a slice with another timestamp, or at the
//! first slice of a picture after a packet with the marker bit. NAL units after the slices that
//! open an access unit (delimiter, parameter sets, SEI messages) belong to the next picture and get
//! its time instead of their own; they are never emitted without a picture. The marker bit is a
//! hint: some senders set it on each NAL unit, on parameter sets, or never. It proves that the unit
//! before a gap is whole, if the sender has not set it too early before. Otherwise the missing
//! packets may belong to either neighbour of the gap: a unit after a gap counts as whole only if
//! its first slice is the first of the picture. A unit is therefore held until the packet after it,
//! which belongs to the next picture, or until the end of the stream.
//!
//! Payloads must not contain start codes. Some senders leave them in; such payloads are split at
//! them.
//!
//! Sources: RFC 6184 §5.1 (marker bit), §5.3 (NAL unit header), §5.6–5.8; RFC 7798 §4.4; ISO/IEC
//! 14496-10 §7.3.3 (first_mb_in_slice), §7.4.1.2.3 (first NAL unit of an access unit); ISO/IEC
//! 23008-2 §7.3.1.2, §7.3.6.1 (first_slice_segment_in_pic_flag), §7.4.2.4.4, §7.3.3
//! (profile_tier_level).
//! Does not reorder by decoding order numbers (STAP-B, MTAP, FU-B, DONL), and does not separate
//! fields, layers or pictures that share a timestamp without a marker bit between them.

use super::{Output, PARAMETER_BYTES_MAX, TimedPacket, UNIT_BYTES_MAX};
use crate::bits::without_emulation;
use crate::byte_stream::{START_CODE_BYTES, start_codes, started_nals, without_zeros};
use crate::random_access::AccessReader;
use crate::tracks::{Codec, H264Config, H265Config};

/// One of the two codecs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NalKind {
    H264,
    H265,
}

/// Assembles access units and collects the parameter sets.
#[derive(Debug)]
pub(super) struct NalUnits {
    kind: NalKind,
    codec: Codec,
    /// Time of the first slice of the current unit; `None` before that slice.
    time: Option<i64>,
    bytes: Vec<u8>,
    /// Offset in `bytes` of the NAL units that follow the slices and belong to the next access
    /// unit.
    next_at: Option<usize>,
    /// Offset in `bytes` of the length field of a NAL unit whose last fragment is still missing.
    fragment_at: Option<usize>,
    /// A packet that ended with the last slice so far had the marker bit.
    is_marked: bool,
    /// Faults of this sender's marker bits: absent at the end of a unit, or set before it.
    is_unmarked: bool,
    is_marked_early: bool,
    is_broken: bool,
    is_after_gap: bool,
    /// The first slice received is the first of the picture.
    is_whole_picture: bool,
}

/// Role of a NAL unit in its access unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NalPlace {
    Slice {
        /// First slice of its picture.
        is_first: bool,
    },
    /// Opens the next access unit if it follows slices.
    Opening,
    /// Allowed anywhere in an access unit.
    Any,
}

impl NalUnits {
    /// Creates a depayloader; `codec` holds the parameters of the description, if it has any.
    pub(super) fn new(codec: Codec) -> NalUnits {
        let kind = if matches!(codec, Codec::H265(_)) { NalKind::H265 } else { NalKind::H264 };
        NalUnits {
            kind,
            codec,
            time: None,
            bytes: Vec::new(),
            next_at: None,
            fragment_at: None,
            is_marked: false,
            is_unmarked: false,
            is_marked_early: false,
            is_broken: false,
            is_after_gap: false,
            is_whole_picture: false,
        }
    }

    /// The codec; `None` before all kinds of parameter sets are known that a decoder needs.
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

    /// Handles missing packets: emits the pending unit if it is whole.
    pub(super) fn gap(&mut self, output: &mut Output) {
        self.drop_fragment();
        if self.is_ended() {
            self.complete(output);
        }
        if self.time.is_some() {
            self.is_broken = true;
        } else {
            // The NAL units held may belong to a lost picture: only their parameter sets are kept.
            let opening = std::mem::take(&mut self.bytes);
            self.note_sets(&opening);
        }
    }

    pub(super) fn push(&mut self, packet: TimedPacket<'_>, output: &mut Output) {
        self.is_after_gap |= packet.is_after_gap && self.time.is_none();
        if self.take(packet, output).is_none() {
            self.damage(packet, output);
            output.malformed();
        }
        let has_slice = self.time.is_some() && self.next_at.is_none();
        self.is_marked |= packet.marker && has_slice;
    }

    /// Ends the stream: a unit without a marker bit lacks its end, if the sender sets marker bits.
    pub(super) fn finish(&mut self, output: &mut Output) {
        self.drop_fragment();
        self.is_broken |= !self.is_unmarked && !self.is_marked && self.next_at.is_none();
        self.complete(output);
        self.bytes.clear();
    }

    /// True if the pending unit is whole, provided that the sender sets its marker bits correctly.
    pub(super) fn holds_whole(&self) -> bool {
        self.is_ended() && !self.is_damaged()
    }

    /// True if a part of the unit is missing.
    fn is_damaged(&self) -> bool {
        self.is_broken || self.is_after_gap && !self.is_whole_picture
    }

    /// True if all packets of the unit were received, provided that the sender sets its marker bits
    /// correctly.
    fn is_ended(&self) -> bool {
        let is_marked = self.is_marked && !self.is_marked_early;
        self.time.is_some() && (is_marked || self.next_at.is_some())
    }

    /// Ends the unit: emits it if it is whole, and counts it as broken otherwise. Starts the next
    /// unit with the bytes received for it.
    fn complete(&mut self, output: &mut Output) {
        let Some(time) = self.time.take() else { return };
        let end = self.next_at.take().unwrap_or(self.bytes.len());
        // The next unit is usually about as long as this one.
        let mut next = Vec::with_capacity(end.min(RESERVED_MAX) + self.bytes.len() - end);
        next.extend_from_slice(&self.bytes[end..]);
        let mut bytes = std::mem::replace(&mut self.bytes, next);
        bytes.truncate(end);
        self.note_sets(&bytes);
        if self.is_damaged() {
            output.broken_unit();
        } else if !bytes.is_empty() {
            let is_h265 = self.kind == NalKind::H265;
            let is_start = AccessReader::is_point(is_h265, sized_nals(&bytes));
            output.unit(time, bytes, is_start);
        }
        (self.is_broken, self.is_after_gap, self.is_marked) = (false, false, false);
    }

    /// Handles an unusable packet: marks its access unit as broken.
    fn damage(&mut self, packet: TimedPacket<'_>, output: &mut Output) {
        self.drop_fragment();
        if self.is_ended() || self.time.is_some_and(|time| time != packet.time) {
            self.complete(output);
        }
        self.time = Some(packet.time);
        self.is_broken = true;
    }

    /// Parses a payload; `None` if it is malformed.
    fn take(&mut self, packet: TimedPacket<'_>, output: &mut Output) -> Option<()> {
        let payload = packet.payload;
        let (aggregate, fragment) = match self.kind {
            NalKind::H264 => (24, 28),
            NalKind::H265 => (48, 49),
        };
        let unit_type = self.unit_type(payload);
        if unit_type == Some(fragment) {
            return self.take_fragment(packet, output);
        }
        // An unfinished fragmented NAL unit lacks its end.
        self.drop_fragment();
        if unit_type != Some(aggregate) {
            return self.take_unit(payload, packet, output);
        }
        let mut rest = &payload[self.header_bytes()..];
        while !rest.is_empty() {
            let (length, behind) = rest.split_first_chunk()?;
            let (unit, behind) = behind.split_at_checked(u16::from_be_bytes(*length).into())?;
            self.take_unit(unit, packet, output)?;
            rest = behind;
        }
        Some(())
    }

    /// Appends a whole NAL unit, or each of several that are separated by start codes.
    fn take_unit(
        &mut self,
        unit: &[u8],
        packet: TimedPacket<'_>,
        output: &mut Output,
    ) -> Option<()> {
        let Some(first) = start_codes(unit).next() else {
            return self.take_nal(unit, packet, output);
        };
        let before = without_zeros(&unit[..first - START_CODE_BYTES]);
        let before = Some(before).filter(|before| !before.is_empty());
        for nal in before.into_iter().chain(started_nals(unit)) {
            self.take_nal(nal, packet, output)?;
        }
        Some(())
    }

    fn take_nal(&mut self, nal: &[u8], packet: TimedPacket<'_>, output: &mut Output) -> Option<()> {
        let unit_type = self.unit_type(nal)?;
        let is_known = match self.kind {
            NalKind::H264 => (1..24).contains(&unit_type),
            NalKind::H265 => unit_type < 48,
        };
        if !is_known {
            return None;
        }
        self.place(self.place_of(nal)?, packet, output);
        if self.is_delimiter(unit_type) {
            return Some(());
        }
        self.append(&(nal.len() as u32).to_be_bytes())?;
        self.append(nal)
    }

    fn take_fragment(&mut self, packet: TimedPacket<'_>, output: &mut Output) -> Option<()> {
        let (payload, header_bytes) = (packet.payload, self.header_bytes());
        let fu = *payload.get(header_bytes)?;
        let body = payload.get(header_bytes + 1..).filter(|body| !body.is_empty())?;
        let (begins, ends) = (fu & 0x80 != 0, fu & 0x40 != 0);
        if begins {
            self.drop_fragment();
            let mut head = match self.kind {
                NalKind::H264 => vec![payload[0] & 0xe0 | fu & 0x1f],
                NalKind::H265 => vec![payload[0] & 0x81 | (fu & 0x3f) << 1, payload[1]],
            };
            head.push(body[0]);
            if let Some(place) = self.place_of(&head).filter(|_| !self.is_start_code(&head)) {
                self.place(place, packet, output);
            }
            self.fragment_at = Some(self.bytes.len());
            self.append(&[0; 4])?;
            self.append(&head[..header_bytes])?;
        } else if self.fragment_at.is_none() {
            // The first fragment was lost or never sent.
            self.damage(packet, output);
            return Some(());
        } else if self.next_at.is_none() {
            self.is_marked_early |= std::mem::take(&mut self.is_marked);
        }
        self.append(body)?;
        match self.fragment_at.filter(|_| ends) {
            Some(at) => self.end_fragment(at, packet, output),
            None => Some(()),
        }
    }

    /// Completes a NAL unit after its last fragment; its length field is at offset `at`.
    fn end_fragment(
        &mut self,
        at: usize,
        packet: TimedPacket<'_>,
        output: &mut Output,
    ) -> Option<()> {
        self.fragment_at = None;
        let nal = &self.bytes[at + 4..];
        if self.is_start_code(nal) || start_codes(nal).next().is_some() {
            let nal = self.bytes.split_off(at + 4);
            self.bytes.truncate(at);
            self.next_at = self.next_at.filter(|&next| next < at);
            return self.take_unit(&nal, packet, output);
        }
        let length = (nal.len() as u32).to_be_bytes();
        self.bytes[at..at + 4].copy_from_slice(&length);
        Some(())
    }

    /// Assigns the NAL unit that follows to the current access unit or to the next one.
    fn place(&mut self, place: NalPlace, packet: TimedPacket<'_>, output: &mut Output) {
        match (place, self.time) {
            (NalPlace::Opening, Some(_)) => {
                self.next_at.get_or_insert(self.bytes.len());
            }
            (NalPlace::Slice { is_first }, Some(time)) => {
                let is_of_it = match time == packet.time {
                    true => !is_first || !self.is_marked,
                    false => !is_first && !self.is_marked && self.next_at.is_none(),
                };
                if is_of_it && !(packet.is_after_gap && time != packet.time) {
                    self.next_at = None;
                    self.is_marked_early |= std::mem::take(&mut self.is_marked);
                    return;
                }
                // A broken unit proves nothing: its marker bit may have been lost.
                self.is_unmarked |= !self.is_broken && !self.is_marked;
                self.complete(output);
                self.begin_picture(is_first, packet);
            }
            (NalPlace::Slice { is_first }, None) => self.begin_picture(is_first, packet),
            (NalPlace::Opening | NalPlace::Any, _) => {}
        }
        // No sender puts so much before a picture: the NAL units held for it are dropped.
        let begun = self.next_at.or((self.time.is_none()).then_some(0));
        if let Some(begun) = begun.filter(|begun| self.bytes.len() - begun > OPENING_BYTES_MAX) {
            self.bytes.truncate(begun);
        }
    }

    fn begin_picture(&mut self, is_first: bool, packet: TimedPacket<'_>) {
        self.time = Some(packet.time);
        self.is_whole_picture = is_first;
        self.is_after_gap |= packet.is_after_gap;
    }

    /// Returns the role of a NAL unit from its header and the byte after it; `None` if it is
    /// shorter than its header.
    fn place_of(&self, nal: &[u8]) -> Option<NalPlace> {
        let unit_type = self.unit_type(nal)?;
        // The top bit is set in H.264 if first_mb_in_slice is 0 (Exp-Golomb code), in H.265 if
        // first_slice_segment_in_pic_flag is.
        let is_first = nal.get(self.header_bytes()).is_some_and(|byte| byte & 0x80 != 0);
        Some(match (self.kind, unit_type) {
            // Slice data partitions B and C have no first_mb_in_slice.
            (NalKind::H264, 3 | 4) => NalPlace::Slice { is_first: false },
            (NalKind::H264, 1..=5) => NalPlace::Slice { is_first },
            (NalKind::H264, 6..=9 | 14..=18) => NalPlace::Opening,
            (NalKind::H265, 0..32) => {
                // Only the base layer begins a picture.
                let is_base = nal[0] & 1 == 0 && nal[1] >> 3 == 0;
                NalPlace::Slice { is_first: is_first && is_base }
            }
            (NalKind::H265, 32..=35 | 39 | 41..=44) => NalPlace::Opening,
            _ => NalPlace::Any,
        })
    }

    /// Stores the parameter sets of a unit, up to the limits of their size and number.
    fn note_sets(&mut self, unit: &[u8]) {
        let (mut new_sets, mut bytes) = ([false; 3], 0);
        for set in sized_nals(unit) {
            if bytes + set.len() > PARAMETER_BYTES_MAX {
                continue;
            }
            let unit_type = self.unit_type(set).unwrap_or_default();
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
                _ => continue,
            };
            // The first set of a kind in an access unit replaces all sets of that kind from earlier
            // units.
            if !std::mem::replace(&mut new_sets[index], true) {
                sets.clear();
            }
            if sets.len() < SETS_MAX && !sets.iter().any(|known| known == set) {
                bytes += set.len();
                sets.push(set.to_vec());
            }
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

    /// Drops a NAL unit with missing fragments, and marks its picture as broken.
    fn drop_fragment(&mut self) {
        let Some(at) = self.fragment_at.take() else { return };
        self.bytes.truncate(at);
        match self.next_at {
            Some(next) => self.next_at = Some(next.min(at)),
            None => self.is_broken |= self.time.is_some(),
        }
    }

    fn header_bytes(&self) -> usize {
        match self.kind {
            NalKind::H264 => 1,
            NalKind::H265 => 2,
        }
    }

    /// Returns the type of a NAL unit; `None` if it is shorter than its header or has the forbidden
    /// bit set.
    fn unit_type(&self, unit: &[u8]) -> Option<u8> {
        let first = *unit.first().filter(|first| *first & 0x80 == 0)?;
        match self.kind {
            NalKind::H264 => Some(first & 0x1f),
            NalKind::H265 => (unit.len() >= 2).then_some(first >> 1 & 0x3f),
        }
    }

    /// True if the header bytes are zeros: the beginning of a start code.
    fn is_start_code(&self, nal: &[u8]) -> bool {
        nal.iter().take(self.header_bytes()).all(|&byte| byte == 0)
    }

    fn is_delimiter(&self, unit_type: u8) -> bool {
        match self.kind {
            NalKind::H264 => unit_type == 9,
            NalKind::H265 => unit_type == 35,
        }
    }
}

/// Iterates over the NAL units of an assembled access unit, each after its four-byte length.
fn sized_nals(mut unit: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, behind) = unit.split_first_chunk()?;
        let (nal, behind) = behind.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        unit = behind;
        Some(nal)
    })
}

/// Returns a codec without parameters.
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

/// Returns the twelve bytes from general_profile_space to general_level_idc of an H.265 sequence
/// parameter set. They follow the NAL unit header and one more byte.
pub(super) fn profile_of(set: &[u8]) -> Option<[u8; 12]> {
    let clean = without_emulation(set.get(..set.len().min(PROFILE_BYTES_READ))?);
    clean.get(3..15)?.try_into().ok()
}

/// Most parameter sets of a kind: H.264 allows 32 sequence sets and 256 picture sets, but real
/// streams have a few.
const SETS_MAX: usize = 32;
/// Twice the bytes needed, which leaves space for emulation prevention bytes.
const PROFILE_BYTES_READ: usize = 32;
/// Most bytes of NAL units before the first slice of a picture: parameter sets, captions, metadata.
const OPENING_BYTES_MAX: usize = 1 << 20;
/// Most bytes reserved for the next unit.
const RESERVED_MAX: usize = 256 << 10;
