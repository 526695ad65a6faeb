// SPDX-License-Identifier: MIT OR Apache-2.0
//! Depayloader of AV1: open bitstream units (OBUs), several in a packet or in fragments.
//!
//! OBUs arrive without size fields; size fields are added, as in samples of MP4. A temporal unit
//! ends at the first packet with another timestamp. The marker bit is a hint, as some senders set
//! it on each packet: it proves that the unit before a gap is whole, if the sender has not set it
//! too early before. A unit with a gap inside is dropped.
//!
//! Sources: RTP Payload Format For AV1 (AOM) §4.4 (aggregation header), §5; AV1 Bitstream §5.3 (OBU
//! header), §5.5 (sequence header), §4.10.5 (leb128).
//! Does not select layers of scalable streams: all layers are emitted.

use super::{Output, PARAMETER_BYTES_MAX, TimedPacket, UNIT_BYTES_MAX};
use crate::sequence::Av1Sequence;
use crate::tracks::{Av1Config, Codec};

/// Assembles temporal units.
#[derive(Debug)]
pub(super) struct Av1Units {
    codec: Codec,
    /// A sequence header was received.
    is_known: bool,
    time: Option<i64>,
    bytes: Vec<u8>,
    /// An OBU whose last fragment is still missing.
    open: Option<Vec<u8>>,
    is_broken: bool,
    is_start: bool,
    /// The unit has a part of a frame. Without one it is only headers, which are kept for the next
    /// unit.
    has_frame: bool,
    /// The last packet received had the marker bit.
    is_marked: bool,
    /// The sender also sets the marker bit before the end of a unit.
    is_marked_early: bool,
}

impl Av1Units {
    /// Creates a depayloader; `config` holds the parameters of the description.
    pub(super) fn new(config: Av1Config) -> Av1Units {
        Av1Units {
            codec: Codec::Av1(config),
            is_known: false,
            time: None,
            bytes: Vec::new(),
            open: None,
            is_broken: false,
            is_start: false,
            has_frame: false,
            is_marked: false,
            is_marked_early: false,
        }
    }

    /// The codec; `None` before the first sequence header.
    pub(super) fn codec(&self) -> Option<&Codec> {
        self.is_known.then_some(&self.codec)
    }

    /// True if the pending unit is whole, provided that the sender sets its marker bits correctly.
    pub(super) fn holds_whole(&self) -> bool {
        let is_cut_off = self.open.is_some() || self.is_broken;
        self.time.is_some() && self.is_ended() && self.has_frame && !is_cut_off
    }

    /// True if all packets of the unit were received, provided that the sender sets its marker bits
    /// correctly.
    fn is_ended(&self) -> bool {
        self.is_marked && !self.is_marked_early
    }

    /// Handles missing packets: emits the pending unit if it is whole.
    pub(super) fn gap(&mut self, output: &mut Output) {
        if self.is_ended() {
            self.complete(output);
        }
        self.is_broken |= self.time.is_some();
        if self.time.is_none() {
            // The headers may belong to a lost frame; they must not precede another one.
            self.bytes.clear();
            self.is_start = false;
        }
    }

    pub(super) fn push(&mut self, packet: TimedPacket<'_>, output: &mut Output) {
        if self.time.is_some_and(|time| time != packet.time) {
            self.complete(output);
        }
        self.is_marked_early |= self.is_marked;
        self.time = Some(packet.time);
        // The missing packets may include the beginning of this unit, unless the packet starts a
        // coded video sequence (N bit).
        let begins = packet.payload.first().is_some_and(|aggregation| aggregation & 0x08 != 0);
        self.is_broken |= packet.is_after_gap && !begins;
        if self.take(packet.payload).is_none() {
            self.is_broken = true;
            output.malformed();
        }
        self.is_marked = packet.marker;
    }

    /// Ends the stream: a unit without the marker bit lacks its end.
    pub(super) fn finish(&mut self, output: &mut Output) {
        self.is_broken |= !self.is_marked;
        self.complete(output);
    }

    /// Ends the unit: emits it if it is whole, and counts it as broken otherwise. A unit of headers
    /// alone is kept for the next frame.
    fn complete(&mut self, output: &mut Output) {
        let Some(time) = self.time.take() else { return };
        let is_cut_off = self.open.take().is_some();
        if !self.has_frame && !self.is_broken && !is_cut_off {
            return;
        }
        let bytes = std::mem::take(&mut self.bytes);
        if self.is_broken || is_cut_off {
            output.broken_unit();
        } else {
            output.unit(time, bytes, self.is_start);
        }
        (self.is_broken, self.is_start) = (false, false);
        (self.has_frame, self.is_marked) = (false, false);
    }

    /// Parses a payload; `None` if it is malformed.
    fn take(&mut self, payload: &[u8]) -> Option<()> {
        let (&aggregation, mut rest) = payload.split_first()?;
        let (continued, continues) = (aggregation & 0x80 != 0, aggregation & 0x40 != 0);
        // Number of OBU elements; 0 if each has its own length field.
        let count = usize::from(aggregation >> 4 & 3);
        if !continued && self.open.take().is_some() {
            self.is_broken = true;
        }
        let mut number = 0;
        while !rest.is_empty() {
            number += 1;
            let element = if number == count {
                std::mem::take(&mut rest)
            } else {
                let (length, length_bytes) = leb128(rest)?;
                let (element, behind) = rest.get(length_bytes..)?.split_at_checked(length)?;
                rest = behind;
                element
            };
            if count > 0 && number > count {
                return None;
            }
            let is_last = rest.is_empty();
            let mut whole = match number == 1 && continued {
                // A fragment without its beginning is discarded.
                true => match self.open.take() {
                    Some(open) => open,
                    None => {
                        self.is_broken = true;
                        continue;
                    }
                },
                false => Vec::new(),
            };
            if whole.len() + element.len() > UNIT_BYTES_MAX {
                return None;
            }
            whole.extend_from_slice(element);
            match is_last && continues {
                true => self.open = Some(whole),
                false => self.take_unit(&whole)?,
            }
        }
        (number >= count).then_some(())
    }

    /// Appends a whole OBU with a size field.
    fn take_unit(&mut self, unit: &[u8]) -> Option<()> {
        let first = *unit.first().filter(|first| *first & 0x80 == 0)?;
        let header_bytes = if first & 0x04 != 0 { 2 } else { 1 };
        let mut payload = unit.get(header_bytes..)?;
        if first & HAS_SIZE != 0 {
            // A sender should omit the size field, but may send it (§5).
            let (size, size_bytes) = leb128(payload)?;
            payload = payload.get(size_bytes..size_bytes + size)?;
        }
        let unit_type = first >> 3 & 15;
        // Temporal delimiters, tile lists and padding are dropped.
        if matches!(unit_type, 2 | 8 | 15) {
            return Some(());
        }
        if self.bytes.len() + unit.len() + 8 > UNIT_BYTES_MAX {
            return None;
        }
        self.has_frame |= matches!(unit_type, FRAME_HEADER | TILE_GROUP | FRAME);
        let at = self.bytes.len();
        self.bytes.push(first | HAS_SIZE);
        self.bytes.extend_from_slice(&unit[1..header_bytes]);
        let mut size = payload.len();
        while size > 0x7f {
            self.bytes.push(size as u8 | 0x80);
            size >>= 7;
        }
        self.bytes.push(size as u8);
        self.bytes.extend_from_slice(payload);
        if unit_type == SEQUENCE_HEADER {
            self.is_start = true;
            let units = &self.bytes[at..];
            let fits = units.len() <= PARAMETER_BYTES_MAX;
            if let Some(found) = Av1Sequence::read(payload).filter(|_| fits) {
                let Av1Sequence { profile, level, is_high_tier, bit_depth, .. } = found;
                let units = units.to_vec();
                let config = Av1Config { profile, level, is_high_tier, bit_depth, units };
                self.codec = Codec::Av1(config);
                self.is_known = true;
            }
        }
        Some(())
    }
}

fn leb128(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0_usize;
    for (index, byte) in bytes.iter().take(LEB128_BYTES_MAX).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}

const SEQUENCE_HEADER: u8 = 1;
const FRAME_HEADER: u8 = 3;
const TILE_GROUP: u8 = 4;
const FRAME: u8 = 6;
const HAS_SIZE: u8 = 0x02;
/// 28 bits are enough for the size of any packet.
const LEB128_BYTES_MAX: usize = 4;
