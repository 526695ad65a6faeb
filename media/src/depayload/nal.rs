// SPDX-License-Identifier: MIT OR Apache-2.0
//! H.264 and H.265: NAL units alone, aggregated and in fragments.
//!
//! An access unit ends where the next begins: its slices have another timestamp, or begin a picture
//! behind one that was marked. NAL units behind the slices that open an access unit (delimiter,
//! parameter sets, messages) belong to the picture that follows, whose time they take, whatever
//! their own; none is given out without a picture. The marker bit is a hint: some senders set it on
//! each NAL unit, on parameter sets, or never. It tells that the unit before a gap is whole, where
//! it has not lied before. Otherwise nobody knows to which of its neighbours missing packets
//! belonged: a unit behind a gap is whole only if its first slice is the first of the picture. A
//! unit so waits for the packet behind it, which is the next picture's, or for the end of the
//! stream.
//!
//! Start codes have no place in payloads; where a sender leaves them in, NAL units are taken apart
//! there.
//!
//! Sources: RFC 6184 §5.1 (marker bit), §5.3 (NAL unit header), §5.6–5.8; RFC 7798 §4.4; ISO/IEC
//! 14496-10 §7.3.3 (first_mb_in_slice), §7.4.1.2.3 (first NAL unit of an access unit); ISO/IEC
//! 23008-2 §7.3.1.2, §7.3.6.1 (first_slice_segment_in_pic_flag), §7.4.2.4.4, §7.3.3
//! (profile_tier_level).
//! Does not reorder by decoding order numbers (STAP-B, MTAP, FU-B, DONL), nor parts fields, layers
//! or pictures of one timestamp that are not marked.

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

/// The access unit that is being put together, and the parameter sets so far.
#[derive(Debug)]
pub(super) struct NalUnits {
    kind: NalKind,
    codec: Codec,
    /// Time of its first slice; none before that.
    time: Option<i64>,
    bytes: Vec<u8>,
    /// Where NAL units of the next access unit begin, which came behind the slices.
    next_at: Option<usize>,
    /// Where the length of a NAL unit stands whose fragments are coming.
    fragment_at: Option<usize>,
    /// A slice so far was the last of its packet, which was marked.
    is_marked: bool,
    /// The sender does not mark the ends of units, or marks others as well.
    is_unmarked: bool,
    is_marked_early: bool,
    is_broken: bool,
    is_after_gap: bool,
    /// The first slice is the first of the picture.
    is_whole_picture: bool,
}

/// Place of a NAL unit among those of its access unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NalPlace {
    Slice {
        /// First of its picture.
        is_first: bool,
    },
    /// Opens an access unit, where it comes behind slices.
    Opening,
    /// Anywhere.
    Any,
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

    /// Packets are missing behind those that came: gives out the unit before, if that is whole.
    pub(super) fn gap(&mut self, output: &mut Output) {
        self.drop_fragment();
        if self.is_ended() {
            self.complete(output);
        }
        if self.time.is_some() {
            self.is_broken = true;
        } else {
            // What came before a picture that may be lost tells nothing of another.
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

    /// The stream has ended: a unit without a mark lacks its end, if the sender marks.
    pub(super) fn finish(&mut self, output: &mut Output) {
        self.drop_fragment();
        self.is_broken |= !self.is_unmarked && !self.is_marked && self.next_at.is_none();
        self.complete(output);
        self.bytes.clear();
    }

    /// True where a unit waits that is whole, as far as its mark can be believed.
    pub(super) fn holds_whole(&self) -> bool {
        self.is_ended() && !self.is_damaged()
    }

    /// True where a part of the unit is missing.
    fn is_damaged(&self) -> bool {
        self.is_broken || self.is_after_gap && !self.is_whole_picture
    }

    /// True where all of the unit has come, as far as the sender can be believed.
    fn is_ended(&self) -> bool {
        let is_marked = self.is_marked && !self.is_marked_early;
        self.time.is_some() && (is_marked || self.next_at.is_some())
    }

    /// Gives the unit out, if it is whole, and begins the next one with what has come of it.
    fn complete(&mut self, output: &mut Output) {
        let Some(time) = self.time.take() else { return };
        let end = self.next_at.take().unwrap_or(self.bytes.len());
        // The next one is about as long.
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

    /// A packet could not be read: its unit is of no use.
    fn damage(&mut self, packet: TimedPacket<'_>, output: &mut Output) {
        self.drop_fragment();
        if self.is_ended() || self.time.is_some_and(|time| time != packet.time) {
            self.complete(output);
        }
        self.time = Some(packet.time);
        self.is_broken = true;
    }

    /// Takes a payload; none for one that is malformed.
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
        // A fragment that was not ended lacks its end.
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

    /// Takes a whole NAL unit, or several between start codes.
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
            // Its beginning is lost, or was never sent.
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

    /// The last fragment of the NAL unit has come whose length stands at `at`.
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

    /// Puts a NAL unit in its place: into the unit at hand, or into the next.
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
                // Of one whose end is lost nobody knows.
                self.is_unmarked |= !self.is_broken && !self.is_marked;
                self.complete(output);
                self.begin_picture(is_first, packet);
            }
            (NalPlace::Slice { is_first }, None) => self.begin_picture(is_first, packet),
            (NalPlace::Opening | NalPlace::Any, _) => {}
        }
        // Nobody sends so much before a picture; what there was of it is dropped.
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

    /// The place of a NAL unit by its header and the byte behind; none for one that is shorter.
    fn place_of(&self, nal: &[u8]) -> Option<NalPlace> {
        let unit_type = self.unit_type(nal)?;
        // In both the highest bit is set where the number is zero, or the flag is.
        let is_first = nal.get(self.header_bytes()).is_some_and(|byte| byte & 0x80 != 0);
        Some(match (self.kind, unit_type) {
            // The second and third partition of a slice have no number of a macroblock.
            (NalKind::H264, 3 | 4) => NalPlace::Slice { is_first: false },
            (NalKind::H264, 1..=5) => NalPlace::Slice { is_first },
            (NalKind::H264, 6..=9 | 14..=18) => NalPlace::Opening,
            (NalKind::H265, 0..32) => {
                // Of several layers the first begins the picture.
                let is_base = nal[0] & 1 == 0 && nal[1] >> 3 == 0;
                NalPlace::Slice { is_first: is_first && is_base }
            }
            (NalKind::H265, 32..=35 | 39 | 41..=44) => NalPlace::Opening,
            _ => NalPlace::Any,
        })
    }

    /// Keeps the parameter sets of a unit, as far as they fit.
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
            // The first of its kind in an access unit replaces those of the unit before.
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

    /// Gives up a NAL unit of which fragments are missing, and the picture that it belongs to.
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

    /// The type of a NAL unit; none for one that is shorter than its header, or has the forbidden
    /// bit set.
    fn unit_type(&self, unit: &[u8]) -> Option<u8> {
        let first = *unit.first().filter(|first| *first & 0x80 == 0)?;
        match self.kind {
            NalKind::H264 => Some(first & 0x1f),
            NalKind::H265 => (unit.len() >= 2).then_some(first >> 1 & 0x3f),
        }
    }

    /// True for zeros in the place of a header: the beginning of a start code.
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

/// The NAL units of an access unit that was put together here.
fn sized_nals(mut unit: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, behind) = unit.split_first_chunk()?;
        let (nal, behind) = behind.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        unit = behind;
        Some(nal)
    })
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
/// NAL units before the first slice of a picture: parameter sets, captions, metadata.
const OPENING_BYTES_MAX: usize = 1 << 20;
/// Room that is kept for the next unit.
const RESERVED_MAX: usize = 256 << 10;
