// SPDX-License-Identifier: MIT OR Apache-2.0
//! Program specific information: assembles sections from packets and reads the two tables.
//!
//! A section that is incomplete or whose CRC is wrong is dropped: the tables are repeated several
//! times a second. Those of a PAT or PMT with a wrong CRC are counted. One PID's sections need at
//! most [`SECTION_BYTES_MAX`] bytes.
//!
//! Sources: ISO/IEC 13818-1 §2.4.4 (sections, pointer_field, PAT §2.4.4.3, PMT §2.4.4.8), annex A
//! (CRC). Descriptors are returned unparsed.

use super::TsPacket;

/// Longest section of a PAT or PMT: 3 bytes of header and a length of at most 1021.
const SECTION_BYTES_MAX: usize = 1024;

/// Table ids of the association table and of a programme's map (table 2-31).
const PAT: u8 = 0x00;
const PMT: u8 = 0x02;
/// section_syntax_indicator, in the byte after the table id: the section ends with a CRC.
const LONG_FORM: u8 = 0x80;

/// Table id of the bytes that fill up a packet after its last section.
const SECTION_STUFFING: u8 = 0xff;

/// Puts the sections of one PID together.
#[derive(Clone, Default)]
pub(super) struct Sections {
    /// The section begun and not ended; may hold the start of its successor for a moment.
    buffer: Vec<u8>,
    /// True when `buffer` begins with a section's start.
    open: bool,
    /// Index of the packet in which that section starts.
    started: u64,
    continuity: Option<u8>,
    /// Sections of a PAT or PMT with a wrong CRC, since [`take_bad`](Self::take_bad).
    bad: u64,
}

impl Sections {
    /// Takes the PID's next packet, whose index is `index`, and hands every section that it
    /// completes to `each`, with the index of the packet in which it starts.
    pub(super) fn feed(
        &mut self,
        index: u64,
        packet: &TsPacket<'_>,
        mut each: impl FnMut(&[u8], u64),
    ) {
        let mut payload = packet.payload();
        if payload.is_empty() || packet.header.is_scrambled() {
            return;
        }
        let continuity = packet.header.continuity();
        match self.continuity.replace(continuity) {
            // A packet may be sent twice (§2.4.3.3).
            Some(before) if before == continuity => return,
            Some(before) if (before + 1) & 0x0f != continuity => self.close(),
            _ => {}
        }
        if packet.header.starts_unit() {
            let pointer = usize::from(payload[0]);
            let Some((before, after)) = payload[1..].split_at_checked(pointer) else {
                return self.close();
            };
            if self.open {
                self.buffer.extend_from_slice(before);
                self.complete(&mut each);
            }
            self.close();
            self.open = true;
            self.started = index;
            payload = after;
        }
        if self.open {
            self.buffer.extend_from_slice(payload);
            while self.complete(&mut each) {
                self.started = index;
            }
        }
    }

    /// The sections of a PAT or PMT dropped since the last call because their CRC is wrong.
    pub(super) fn take_bad(&mut self) -> u64 {
        std::mem::take(&mut self.bad)
    }

    fn close(&mut self) {
        self.buffer.clear();
        self.open = false;
    }

    /// Hands over the section at the front of the buffer if it is whole; whether another may
    /// follow it.
    fn complete(&mut self, each: &mut impl FnMut(&[u8], u64)) -> bool {
        let &[table, high, low, ..] = self.buffer.as_slice() else {
            // Fewer than three bytes: a start that goes on in the next packet, or stuffing.
            self.open &= self.buffer.first() != Some(&SECTION_STUFFING);
            return false;
        };
        let bytes = 3 + (usize::from(high & 0x0f) << 8 | usize::from(low));
        if table == SECTION_STUFFING || bytes > SECTION_BYTES_MAX {
            self.close();
            return false;
        }
        if self.buffer.len() < bytes {
            return false;
        }
        if crc32_mpeg(&self.buffer[..bytes]) == 0 {
            each(&self.buffer[..bytes], self.started);
        } else if matches!(table, PAT | PMT) && high & LONG_FORM != 0 {
            self.bad += 1;
        }
        self.buffer.drain(..bytes);
        self.open = !self.buffer.is_empty();
        self.open
    }
}

/// One section of a programme association table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AssociationSection {
    pub(super) version: u8,
    pub(super) section: u8,
    /// Programme number and PID of its map, in the table's order, without the network's (0).
    pub(super) programmes: Vec<(u16, u16)>,
}

/// Map of a programme.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProgrammeMap {
    pub(super) pcr_pid: u16,
    /// PID and stream type, in the table's order.
    pub(super) streams: Vec<(u16, u8)>,
}

/// Reads a section of a PAT that is in force.
pub(super) fn association(section: &[u8]) -> Option<AssociationSection> {
    let (header, body) = table(section, PAT)?;
    let programmes = body
        .chunks_exact(4)
        .map(|entry| (u16::from_be_bytes([entry[0], entry[1]]), pid(&entry[2..])))
        .filter(|&(number, _)| number != 0)
        .collect();
    Some(AssociationSection { version: header[5] >> 1 & 0x1f, section: header[6], programmes })
}

/// A section of a PMT with its descriptors.
pub(super) struct MapSection<'a> {
    pub(super) number: u16,
    pub(super) pcr_pid: u16,
    /// Descriptors of the programme.
    pub(super) descriptors: &'a [u8],
    /// PID, stream type and descriptors, in the table's order.
    pub(super) streams: Vec<(u16, u8, &'a [u8])>,
}

/// Reads a section of a PMT that is in force, with its descriptors.
pub(super) fn described(section: &[u8]) -> Option<MapSection<'_>> {
    let (header, body) = table(section, PMT)?;
    let number = u16::from_be_bytes([header[3], header[4]]);
    let pcr_pid = pid(body.get(..2)?);
    let (descriptors, mut rest) = body.get(4..)?.split_at_checked(length(body.get(2..4)?))?;
    let mut streams = Vec::new();
    while let Some(entry) = rest.get(..5) {
        let bytes = length(&entry[3..5]);
        let own = rest.get(5..5 + bytes).unwrap_or(&[]);
        streams.push((pid(&entry[1..3]), entry[0], own));
        rest = rest.get(5 + bytes..).unwrap_or(&[]);
    }
    Some(MapSection { number, pcr_pid, descriptors, streams })
}

/// Reads a section of a PMT that is in force: the programme's number and its map.
pub(super) fn map(section: &[u8]) -> Option<(u16, ProgrammeMap)> {
    let MapSection { number, pcr_pid, streams, .. } = described(section)?;
    let streams = streams.into_iter().map(|(pid, stream_type, _)| (pid, stream_type)).collect();
    Some((number, ProgrammeMap { pcr_pid, streams }))
}

/// Splits a section of long form and of the kind `table_id` into its header of eight bytes and
/// what lies between that and the CRC; nothing if it is announced for later only.
fn table(section: &[u8], table_id: u8) -> Option<(&[u8], &[u8])> {
    let is_long = section.get(1)? & LONG_FORM != 0;
    let body = section.get(8..section.len().checked_sub(4)?)?;
    let is_current = section[5] & 1 != 0;
    (section[0] == table_id && is_long && is_current).then_some((&section[..8], body))
}

fn pid(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[0], bytes[1]]) & 0x1fff
}

fn length(bytes: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([bytes[0], bytes[1]]) & 0x0fff)
}

/// The CRC of annex A: polynomial 0x04c11db7, from all ones, not reflected. Over a section with
/// its CRC it is zero. (crc32fast computes the reflected one.)
pub(super) fn crc32_mpeg(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(u32::MAX, |crc, &byte| crc << 8 ^ CRC_TABLE[usize::from((crc >> 24) as u8 ^ byte)])
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = crc << 1 ^ if crc >> 31 != 0 { 0x04c1_1db7 } else { 0 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    /// A PAT as written by ffmpeg 5.1: programme 1, map on PID 0x1000.
    const PAT: [u8; 16] = [
        0x00, 0xb0, 0x0d, 0x00, 0x01, 0xc1, 0x00, 0x00, 0x00, 0x01, 0xf0, 0x00, 0x2a, 0xb1, 0x04,
        0xb2,
    ];

    #[test]
    fn crc_check_value_of_the_catalogue() {
        // CRC-32/MPEG-2 of "123456789" in the catalogue of parametrised CRC algorithms.
        assert_eq!(crc32_mpeg(b"123456789"), 0x0376_e6e7);
    }

    #[test]
    fn association_of_ffmpeg_is_read() {
        assert_eq!(crc32_mpeg(&PAT), 0);
        let expected = AssociationSection { version: 0, section: 0, programmes: vec![(1, 0x1000)] };
        assert_eq!(association(&PAT), Some(expected));
        assert_eq!(map(&PAT), None);
    }

    #[test]
    fn table_announced_for_later_is_not_read() {
        let mut later = PAT;
        later[5] &= !1;
        assert_eq!(association(&later), None);
    }

    #[test]
    fn cut_off_tables_are_read_without_panic() {
        for end in 0..PAT.len() {
            let _ = association(&PAT[..end]);
            let mut as_map = PAT;
            as_map[0] = 2;
            let _ = map(&as_map[..end]);
        }
    }
}
