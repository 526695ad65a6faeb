// SPDX-License-Identifier: MIT OR Apache-2.0
//! H.264 and H.265: NAL units as single packets, aggregates and fragments.
//!
//! The length before each NAL unit is read from the file, with the unit's header: one read of a few
//! bytes a unit, about half a microsecond from the page cache. Consecutive small units share a
//! packet; the low 16 bits of a length of four bytes are the size that an aggregate needs, so a
//! range of the file holds size and unit. A large unit is a row of full fragments, the last
//! shorter. Parameter sets of the configuration are sent before each random-access point that has
//! none of its own.
//!
//! Sources: RFC 6184 §5.6 (single), §5.7.1 (STAP-A), §5.8 (FU-A); RFC 7798 §4.4.1 to §4.4.3.
//! Does not interleave (packetization-mode 2, DONL).

use std::io;

use super::fragments::Fragments;
use super::layout::{FilePiece, LayoutWriter, PAYLOAD_BYTES_MAX, PIECES_MAX};
use crate::read_at::ReadAt;
use crate::tracks::{H264Config, H265Config, MediaSample};

/// Length prefix, header and parameter sets of one of the two codecs.
pub(super) struct NalFormat<'a> {
    length_bytes: u8,
    is_h265: bool,
    /// Parameter sets in the order in which they are sent.
    sets: Vec<&'a [u8]>,
}

/// A NAL unit of a sample.
#[derive(Clone, Copy)]
struct Unit {
    /// Its first byte in the file.
    offset: u64,
    bytes: u32,
    header: [u8; 2],
}

impl<'a> NalFormat<'a> {
    pub(super) fn h264(config: &'a H264Config) -> NalFormat<'a> {
        let sets = config.sequence_sets.iter().chain(&config.picture_sets);
        let sets = sets.map(Vec::as_slice).collect();
        NalFormat { length_bytes: config.length_bytes, is_h265: false, sets }
    }

    pub(super) fn h265(config: &'a H265Config) -> NalFormat<'a> {
        let sets =
            config.video_sets.iter().chain(&config.sequence_sets).chain(&config.picture_sets);
        let sets = sets.map(Vec::as_slice).collect();
        NalFormat { length_bytes: config.length_bytes, is_h265: true, sets }
    }

    /// Lays out the packets of a sample.
    pub(super) fn lay_out(
        &self,
        sample: &MediaSample,
        file: &(impl ReadAt + ?Sized),
        writer: &mut LayoutWriter,
    ) -> io::Result<()> {
        let units = self.units(sample, file, writer)?;
        let has_sets = units.iter().any(|unit| self.is_set(unit));
        // A delimiter begins an access unit. Sets follow it, and precede the first unit to decode.
        let is_delimited = units.first().is_some_and(|first| self.is_delimiter(first));
        let (delimiter, others) = units.split_at(usize::from(is_delimited));
        let mut rest = &units[..];
        if sample.is_start && !has_sets && !self.sets.is_empty() && !others.is_empty() {
            delimiter.iter().for_each(|unit| self.alone(unit, false, writer));
            self.write_sets(writer);
            rest = others;
        }
        while !rest.is_empty() {
            let count = self.aggregated(rest);
            let (now, later) = rest.split_at(count);
            let is_last = later.is_empty();
            match now {
                [unit] => self.alone(unit, is_last, writer),
                units => self.aggregate(units, is_last, writer),
            }
            rest = later;
        }
        Ok(())
    }

    fn header_bytes(&self) -> usize {
        if self.is_h265 { 2 } else { 1 }
    }

    fn unit_type(&self, unit: &Unit) -> u8 {
        if self.is_h265 { unit.header[0] >> 1 & 0x3f } else { unit.header[0] & 0x1f }
    }

    fn is_delimiter(&self, unit: &Unit) -> bool {
        self.unit_type(unit) == if self.is_h265 { 35 } else { 9 }
    }

    fn is_set(&self, unit: &Unit) -> bool {
        let sets = if self.is_h265 { 32..=34 } else { 7..=8 };
        sets.contains(&self.unit_type(unit))
    }

    /// True for types that a stream of NAL units may have; others belong to the payload format.
    fn is_sent(&self, unit: &Unit) -> bool {
        let is_forbidden = unit.header[0] & 0x80 != 0;
        let unit_type = self.unit_type(unit);
        let is_own = if self.is_h265 { unit_type < 48 } else { (1..24).contains(&unit_type) };
        !is_forbidden && is_own
    }

    /// Reads the lengths and headers of a sample's units. A broken unit is counted and dropped;
    /// after a wrong length, so is the rest of the sample.
    fn units(
        &self,
        sample: &MediaSample,
        file: &(impl ReadAt + ?Sized),
        writer: &mut LayoutWriter,
    ) -> io::Result<Vec<Unit>> {
        let prefix = usize::from(self.length_bytes);
        let end = sample.file_offset + u64::from(sample.bytes);
        let mut at = sample.file_offset;
        let mut units = Vec::new();
        while at < end && writer.reads_unit() {
            let mut head = [0; 6];
            let there = (end - at).min((prefix + self.header_bytes()) as u64) as usize;
            file.read_exact_at(&mut head[..there], at)?;
            let length = head[..prefix].iter().fold(0, |sum, &byte| sum << 8 | u32::from(byte));
            at += prefix as u64;
            if at > end || u64::from(length) > end - at || units.len() >= UNITS_MAX {
                writer.fault();
                break;
            }
            let mut header = [0; 2];
            header[..self.header_bytes()].copy_from_slice(&head[prefix..][..self.header_bytes()]);
            let unit = Unit { offset: at, bytes: length, header };
            at += u64::from(length);
            match length as usize >= self.header_bytes() && self.is_sent(&unit) {
                true => units.push(unit),
                // Padding of zero bytes is not a fault.
                false if length == 0 => {}
                false => writer.fault(),
            }
        }
        Ok(units)
    }

    /// Returns the number of first units that fit one packet.
    fn aggregated(&self, units: &[Unit]) -> usize {
        // Without two bytes of length before it, a unit has no size that an aggregate could use.
        if self.length_bytes < 2 {
            return 1;
        }
        let mut bytes = self.header_bytes();
        let fits = |unit: &&Unit| {
            bytes += 2 + unit.bytes as usize;
            bytes <= PAYLOAD_BYTES_MAX
        };
        units.iter().take(PIECES_MAX).take_while(fits).count().max(1)
    }

    /// A packet of one unit, or a row of its fragments.
    fn alone(&self, unit: &Unit, is_marked: bool, writer: &mut LayoutWriter) {
        if unit.bytes as usize > PAYLOAD_BYTES_MAX {
            self.fragments(unit, is_marked, writer);
            return;
        }
        let piece = FilePiece { file_offset: unit.offset, bytes: unit.bytes };
        writer.packet(&[], &[piece], is_marked);
    }

    fn fragments(&self, unit: &Unit, is_marked: bool, writer: &mut LayoutWriter) {
        let header = self.header_bytes();
        let unit_type = self.unit_type(unit);
        let head = match self.is_h265 {
            true => vec![unit.header[0] & 0x81 | 49 << 1, unit.header[1], unit_type],
            false => vec![unit.header[0] & 0xe0 | 28, unit_type],
        };
        let piece = FilePiece {
            file_offset: unit.offset + header as u64,
            bytes: unit.bytes - header as u32,
        };
        writer.fragments(&head, piece, Fragments::StartEnd, is_marked);
    }

    /// A packet of several units, each after its size in two bytes, contiguous in the file.
    fn aggregate(&self, units: &[Unit], is_marked: bool, writer: &mut LayoutWriter) {
        let piece = |unit: &Unit| FilePiece { file_offset: unit.offset - 2, bytes: unit.bytes + 2 };
        let pieces: Vec<_> = units.iter().map(piece).collect();
        let headers = units.iter().map(|unit| unit.header);
        writer.packet(&self.aggregate_header(headers), &pieces, is_marked);
    }

    /// Header of an aggregate: the highest importance of its units (RFC 6184 §5.7), or the lowest
    /// layer and temporal identifier (RFC 7798 §4.4.2).
    fn aggregate_header(&self, headers: impl Iterator<Item = [u8; 2]>) -> Vec<u8> {
        if !self.is_h265 {
            let importance = headers.map(|header| header[0] & 0x60).max().unwrap_or(0);
            return vec![importance | 24];
        }
        let layer = |[a, b]: [u8; 2]| (u16::from(a & 1) << 5 | u16::from(b >> 3), b & 7);
        let (layer, temporal) = headers
            .map(layer)
            .fold((u16::MAX, u8::MAX), |least, one| (least.0.min(one.0), least.1.min(one.1)));
        vec![48 << 1 | (layer >> 5) as u8 & 1, (layer << 3) as u8 | temporal]
    }

    /// The parameter sets of the configuration, from memory.
    fn write_sets(&self, writer: &mut LayoutWriter) {
        let header = |set: &&[u8]| [set[0], set.get(1).copied().unwrap_or_default()];
        let mut packet = self.aggregate_header(self.sets.iter().map(header));
        let before = packet.len();
        for set in &self.sets {
            packet.extend((set.len() as u16).to_be_bytes());
            packet.extend_from_slice(set);
        }
        if packet.len() <= PAYLOAD_BYTES_MAX && packet.len() > before {
            writer.packet(&packet, &[], false);
            return;
        }
        for set in &self.sets {
            // A set that does not fit a packet is counted as a fault: the description has it too.
            writer.packet(set, &[], false);
        }
    }
}

/// NAL units of a sample: a picture of the largest profile has 600 slices.
const UNITS_MAX: usize = 4096;
