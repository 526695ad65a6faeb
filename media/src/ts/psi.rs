// SPDX-License-Identifier: MIT OR Apache-2.0
//! Assembles sections of program specific information from packets and parses PAT and PMT.
//!
//! An incomplete section, or one with a wrong CRC, is dropped, because the tables are repeated
//! several times a second. PAT and PMT sections with a wrong CRC are counted. Each PID needs a
//! buffer of at most [`SECTION_BYTES_MAX`] bytes.
//!
//! Sources: ISO/IEC 13818-1 §2.4.4 (sections, pointer_field, PAT §2.4.4.3, PMT §2.4.4.8), annex A
//! (CRC). Descriptors are returned unparsed.

use super::TsPacket;

/// Longest section of a PAT or PMT: 3 bytes of header and a length of at most 1021.
const SECTION_BYTES_MAX: usize = 1024;

/// Table ids of the PAT and of the PMT (table 2-31).
const PAT: u8 = 0x00;
const PMT: u8 = 0x02;
/// section_syntax_indicator, in the byte after the table id: the section ends with a CRC.
const LONG_FORM: u8 = 0x80;

/// Value of the stuffing bytes that fill a packet after its last section, at the place of a table
/// id.
const SECTION_STUFFING: u8 = 0xff;

/// Assembles the sections of one PID.
#[derive(Clone, Default)]
pub(super) struct Sections {
    /// Bytes of the incomplete section. During a call it may also hold the start of the next
    /// section.
    buffer: Vec<u8>,
    /// True if `buffer` begins with the start of a section.
    open: bool,
    /// Index of the packet in which that section starts.
    started: u64,
    continuity: Option<u8>,
    /// Sections of a PAT or PMT with a wrong CRC, since [`take_bad`](Self::take_bad).
    bad: u64,
}

impl Sections {
    /// Consumes the PID's next packet, number `index`, and calls `each` for every section that it
    /// completes, with the index of the packet in which that section starts.
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

    /// Returns the number of PAT and PMT sections dropped for a wrong CRC since the last call.
    pub(super) fn take_bad(&mut self) -> u64 {
        std::mem::take(&mut self.bad)
    }

    fn close(&mut self) {
        self.buffer.clear();
        self.open = false;
    }

    /// Passes a complete section at the front of the buffer to `each`. Returns true if another
    /// section may follow it.
    fn complete(&mut self, each: &mut impl FnMut(&[u8], u64)) -> bool {
        let &[table, high, low, ..] = self.buffer.as_slice() else {
            // Fewer than three bytes are stuffing, or a header that continues in the next packet.
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
    /// Programme numbers and PMT PIDs in the order of the table, without the network PID (number
    /// 0).
    pub(super) programmes: Vec<(u16, u16)>,
}

/// Contents of a PMT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProgrammeMap {
    pub(super) pcr_pid: u16,
    /// PIDs and stream types in the order of the table.
    pub(super) streams: Vec<(u16, u8)>,
}

/// Parses a PAT section whose current_next_indicator is set.
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
    /// PIDs, stream types and descriptors in the order of the table.
    pub(super) streams: Vec<(u16, u8, &'a [u8])>,
}

/// Parses a PMT section whose current_next_indicator is set, with its descriptors.
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

/// Parses a PMT section whose current_next_indicator is set. Returns the programme number and the
/// map.
pub(super) fn map(section: &[u8]) -> Option<(u16, ProgrammeMap)> {
    let MapSection { number, pcr_pid, streams, .. } = described(section)?;
    let streams = streams.into_iter().map(|(pid, stream_type, _)| (pid, stream_type)).collect();
    Some((number, ProgrammeMap { pcr_pid, streams }))
}

/// Splits a long-form section of the kind `table_id` into its eight header bytes and the body
/// between header and CRC. Returns none if the section is not yet applicable
/// (current_next_indicator 0).
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

/// Computes the CRC of annex A: polynomial 0x04c11db7, initial value all ones, not reflected. The
/// CRC over a section including its CRC field is zero. (crc32fast computes the reflected variant.)
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
