// SPDX-License-Identifier: MIT OR Apache-2.0
//! Payloader of AV1: open bitstream units (OBUs), one in a packet or a row of fragments.
//!
//! The header and size of each unit are read from the file: one read of a few bytes a unit. A unit
//! is sent without its size, so its header is written again, before the first fragment. Temporal
//! delimiters are not sent: a packet's timestamp and marker carry the same information. A
//! random-access point without a sequence header is preceded by that of the configuration. A
//! temporal unit is sent at once and not spread over its duration: ffmpeg's depacketiser
//! (libavformat/rtpdec_av1.c) loses a temporal unit if packets of another track arrive between its
//! packets.
//!
//! Sources: RTP Payload Format For AV1 (AOM) §4.4 (aggregation header), §5 (packetization); AV1
//! Bitstream §5.3 (OBU header), §4.10.5 (leb128).
//! Does not put several units into a packet: a temporal unit consists mainly of one large unit.

use std::io;

use super::fragments::Fragments;
use super::layout::{FilePiece, LayoutWriter, PAYLOAD_BYTES_MAX, UnitTimes};
use crate::read_at::ReadAt;
use crate::tracks::{Av1Config, MediaSample};

/// An OBU of a sample.
struct Unit {
    /// Its header with the size flag cleared; includes the extension byte if there is one.
    header: Vec<u8>,
    /// Its payload in the file.
    payload: FilePiece,
}

impl Unit {
    fn unit_type(&self) -> u8 {
        self.header[0] >> 3 & 15
    }
}

/// Returns the times of a temporal unit with all packets due at once.
pub(super) fn at_once(times: UnitTimes) -> UnitTimes {
    UnitTimes { duration_ticks: 0, ..times }
}

/// Lays out the packets of a sample.
pub(super) fn lay_out(
    config: &Av1Config,
    sample: &MediaSample,
    file: &(impl ReadAt + ?Sized),
    writer: &mut LayoutWriter,
) -> io::Result<()> {
    let units = units(sample, file, writer)?;
    let mut first = if sample.is_start { NEW_SEQUENCE } else { 0 };
    let has_sequence = units.iter().any(|unit| unit.unit_type() == SEQUENCE_HEADER);
    if sample.is_start
        && !has_sequence
        && !units.is_empty()
        && let Some(sequence) = sequence_header(&config.units)
    {
        writer.packet(&[&[ONE_ELEMENT | first], &sequence[..]].concat(), &[], false);
        first = 0;
    }
    for (index, unit) in units.iter().enumerate() {
        write(unit, first, index + 1 == units.len(), writer);
        first = 0;
    }
    Ok(())
}

/// Writes a unit as one packet, or as a first fragment with its header and a row of further
/// fragments.
fn write(unit: &Unit, first: u8, is_last: bool, writer: &mut LayoutWriter) {
    let Unit { header, payload } = unit;
    let head = |flags: u8| [&[ONE_ELEMENT | first | flags], &header[..]].concat();
    let room = (PAYLOAD_BYTES_MAX - 1 - header.len()) as u32;
    if payload.bytes <= room {
        writer.packet(&head(0), &[*payload], is_last);
        return;
    }
    let begin = FilePiece { bytes: room, ..*payload };
    let rest = FilePiece {
        file_offset: payload.file_offset + u64::from(room),
        bytes: payload.bytes - room,
    };
    if writer.packet(&head(CONTINUES), &[begin], false) {
        writer.fragments(&[ONE_ELEMENT | CONTINUED], rest, Fragments::Av1, is_last);
    }
}

/// Reads the headers and sizes of a sample's units. A broken unit is counted and dropped, with the
/// rest of the sample.
fn units(
    sample: &MediaSample,
    file: &(impl ReadAt + ?Sized),
    writer: &mut LayoutWriter,
) -> io::Result<Vec<Unit>> {
    let end = sample.file_offset + u64::from(sample.bytes);
    let (mut at, mut units) = (sample.file_offset, Vec::new());
    while at < end && writer.reads_unit() {
        let mut head = [0; 2 + LEB128_BYTES_MAX];
        let there = (end - at).min(head.len() as u64) as usize;
        file.read_exact_at(&mut head[..there], at)?;
        let Some((header, before, bytes)) = parse(&head[..there], end - at) else {
            writer.fault();
            break;
        };
        if units.len() >= UNITS_MAX {
            writer.fault();
            break;
        }
        let payload = FilePiece { file_offset: at + before as u64, bytes };
        at = payload.file_offset + u64::from(bytes);
        let unit = Unit { header, payload };
        // Delimiters, tile lists and padding are not sent (§5).
        if !matches!(unit.unit_type(), 2 | 8 | 15) {
            units.push(unit);
        }
    }
    Ok(units)
}

/// Reads the header of a unit of at most `room` bytes; returns the header to send, the number of
/// bytes before the payload, and the number in it.
pub(crate) fn parse(head: &[u8], room: u64) -> Option<(Vec<u8>, usize, u32)> {
    let first = *head.first()?;
    if first & 0x80 != 0 {
        return None;
    }
    let header_bytes = if first & EXTENSION != 0 { 2 } else { 1 };
    let mut header = head.get(..header_bytes)?.to_vec();
    header[0] &= !HAS_SIZE;
    let (size, size_bytes) = match first & HAS_SIZE != 0 {
        true => leb128(&head[header_bytes..])?,
        // The last unit of a sample may have no size field.
        false => (room - header_bytes as u64, 0),
    };
    let before = header_bytes + size_bytes;
    let fits = size.checked_add(before as u64).is_some_and(|bytes| bytes <= room);
    fits.then_some((header, before, u32::try_from(size).ok()?))
}

fn leb128(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (index, byte) in bytes.iter().take(LEB128_BYTES_MAX).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}

/// Returns the first sequence header among units in memory, as it is sent (without its size).
fn sequence_header(units: &[u8]) -> Option<Vec<u8>> {
    let mut rest = units;
    while !rest.is_empty() {
        let (mut header, before, bytes) = parse(rest, rest.len() as u64)?;
        let payload = rest.get(before..before + bytes as usize)?;
        if header[0] >> 3 & 15 == SEQUENCE_HEADER {
            header.extend_from_slice(payload);
            return Some(header);
        }
        rest = &rest[before + payload.len()..];
    }
    None
}

pub(crate) const SEQUENCE_HEADER: u8 = 1;
/// Flags of an OBU's header.
const EXTENSION: u8 = 0x04;
const HAS_SIZE: u8 = 0x02;
/// Aggregation header: W = 1, Z, Y and N.
const ONE_ELEMENT: u8 = 0x10;
const CONTINUED: u8 = 0x80;
const CONTINUES: u8 = 0x40;
const NEW_SEQUENCE: u8 = 0x08;
const LEB128_BYTES_MAX: usize = 8;
/// Most OBUs of a sample. Tiles are usually not units of their own, so few are needed.
const UNITS_MAX: usize = 4096;
