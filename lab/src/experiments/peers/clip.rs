// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clip that every peer streams: an MPEG transport stream of constant rate that any demultiplexer
//! accepts.
//!
//! One programme (PAT, PMT) has one elementary stream of private data: a PES packet with PTS and
//! PCR every 20 ms. It has no padding, so that a peer that multiplexes again sends as many bytes as
//! one that sends the file unchanged.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3 (packets, PCR, PES), §2.4.4 (PAT, PMT, CRC).
//! Does not encode pictures; no peer decodes the clip.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes a clip of `seconds` at [`BITS_PER_SECOND`].
pub(crate) fn write(path: &Path, seconds: u64) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let packets = seconds * BITS_PER_SECOND / 8 / PACKET_BYTES;
    let (mut media_counter, mut table_counter, mut clock_due) = (0, 0, 0);
    for index in 0..packets {
        match index % TABLES_EVERY {
            0 => out.write_all(&table(PAT_PID, table_counter, PAT))?,
            1 => {
                out.write_all(&table(PMT_PID, table_counter, PMT))?;
                table_counter = (table_counter + 1) & 15;
            }
            _ => {
                let begins = ticks(index) >= clock_due;
                if begins {
                    clock_due += CLOCK_EVERY_TICKS;
                }
                let follow = if begins { media_until(index + 1, packets, clock_due) } else { 0 };
                out.write_all(&media(index, media_counter, begins.then_some(follow)))?;
                media_counter = (media_counter + 1) & 15;
            }
        }
    }
    out.flush()
}

/// Returns the time of a packet's first byte at 27 MHz.
fn ticks(index: u64) -> u64 {
    index * PACKET_BYTES * 8 * TICKS_PER_SECOND / BITS_PER_SECOND
}

/// Counts the packets of media from `index` on that belong to the PES packet which ends at `due`.
fn media_until(index: u64, packets: u64, due: u64) -> u64 {
    let own = (index..packets).take_while(|&index| ticks(index) < due);
    own.filter(|index| index % TABLES_EVERY > 1).count() as u64
}

/// Makes a packet of media; `follow` counts the packets after it in the PES packet that it begins.
fn media(index: u64, counter: u8, follow: Option<u64>) -> [u8; PACKET_BYTES as usize] {
    let mut packet = [0; PACKET_BYTES as usize];
    // The number makes every packet unique.
    for word in packet.chunks_exact_mut(4) {
        word.copy_from_slice(&(index as u32).to_be_bytes());
    }
    packet[..4].copy_from_slice(&[0x47, MEDIA_PID[0], MEDIA_PID[1], 0x10 | counter]);
    let Some(follow) = follow else { return packet };
    let (base, extension) = (ticks(index) / 300, ticks(index) % 300);
    packet[1] |= 0x40;
    packet[3] |= 0x20;
    // Adaptation field of 7 bytes: random access indicator and PCR flag, then the PCR.
    packet[4..6].copy_from_slice(&[7, 0x50]);
    packet[6..10].copy_from_slice(&((base >> 1) as u32).to_be_bytes());
    packet[10] = (base as u8) << 7 | 0x7e | (extension >> 8) as u8;
    packet[11] = extension as u8;
    // PES header of private_stream_1 with a PTS 100 ms after the PCR.
    let pts = base + 9000;
    let bytes = (PACKET_BYTES - 18) + follow * (PACKET_BYTES - 4);
    packet[12..16].copy_from_slice(&[0, 0, 1, 0xbd]);
    packet[16..18].copy_from_slice(&(bytes as u16).to_be_bytes());
    packet[18..21].copy_from_slice(&[0x80, 0x80, 5]);
    packet[21] = 0x21 | (pts >> 29) as u8 & 0x0e;
    packet[22] = (pts >> 22) as u8;
    packet[23] = (pts >> 14) as u8 | 1;
    packet[24] = (pts >> 7) as u8;
    packet[25] = (pts << 1) as u8 | 1;
    packet
}

/// Makes a packet with one section and its CRC.
fn table(pid: [u8; 2], counter: u8, section: &[u8]) -> [u8; PACKET_BYTES as usize] {
    let mut packet = [0xff; PACKET_BYTES as usize];
    packet[..5].copy_from_slice(&[0x47, 0x40 | pid[0], pid[1], 0x10 | counter, 0]);
    let end = 5 + section.len();
    packet[5..end].copy_from_slice(section);
    packet[end..end + 4].copy_from_slice(&crc(section).to_be_bytes());
    packet
}

/// Returns the elementary stream of whole transport packets, from the first PES packet on: equal
/// for any multiplexing. `None` when a packet is damaged or missing.
pub(crate) fn elementary(stream: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(stream.len());
    let mut counter = None;
    for packet in stream.chunks(PACKET_BYTES as usize) {
        if packet.len() != PACKET_BYTES as usize || packet[0] != 0x47 {
            return None;
        }
        let has_payload = packet[3] & 0x10 != 0;
        if [packet[1] & 0x1f, packet[2]] != MEDIA_PID || !has_payload {
            continue;
        }
        let begins = packet[1] & 0x40 != 0;
        match counter {
            Some(last) if packet[3] & 15 != (last + 1) & 15 => return None,
            None if !begins => continue,
            _ => counter = Some(packet[3] & 15),
        }
        let adaptation = if packet[3] & 0x20 == 0 { 0 } else { 1 + usize::from(packet[4]) };
        let payload = packet.get(4 + adaptation..)?;
        // Start code, stream, length, two bytes of flags; then a header of the given length.
        let header = if begins { 9 + usize::from(*payload.get(8)?) } else { 0 };
        bytes.extend_from_slice(payload.get(header..)?);
    }
    Some(bytes)
}

/// Returns the CRC-32/MPEG-2.
fn crc(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte) << 24, |crc, _| {
            if crc >> 31 == 1 { crc << 1 ^ 0x04c1_1db7 } else { crc << 1 }
        })
    })
}

pub(crate) const BITS_PER_SECOND: u64 = 5_000_000;
pub(crate) const PACKET_BYTES: u64 = 188;
/// PID of the elementary stream, which carries the PCR.
pub(crate) const PCR_PID: u16 = 0x100;
const MEDIA_PID: [u8; 2] = PCR_PID.to_be_bytes();
const PAT_PID: [u8; 2] = [0, 0];
const PMT_PID: [u8; 2] = [0x10, 0];
/// Programme 1 is described on the PID of the PMT.
const PAT: &[u8] = &[0, 0xb0, 13, 0, 1, 0xc1, 0, 0, 0, 1, 0xf0, 0];
/// PCR on the PID of the media, which is private data in PES packets (stream type 6).
const PMT: &[u8] = &[2, 0xb0, 18, 0, 1, 0xc1, 0, 0, 0xe1, 0, 0xf0, 0, 6, 0xe1, 0, 0xf0, 0];
const TICKS_PER_SECOND: u64 = 27_000_000;
const CLOCK_EVERY_TICKS: u64 = TICKS_PER_SECOND / 50;
/// Packets from one pair of tables to the next: a tenth of a second.
const TABLES_EVERY: u64 = 332;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_end_with_the_crc_of_the_standard() {
        // The CRC over a section and its own CRC is 0.
        for section in [PAT, PMT] {
            let packet = table(PAT_PID, 0, section);
            assert_eq!(crc(&packet[5..5 + section.len() + 4]), 0);
        }
        // The check value of CRC-32/MPEG-2.
        assert_eq!(crc(b"123456789"), 0x0376_e6e7);
    }

    #[test]
    fn clip_has_its_rate_and_whole_pes_packets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clip.ts");
        write(&path, 2).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len() as u64, 2 * BITS_PER_SECOND / 8 / PACKET_BYTES * PACKET_BYTES);
        let (mut left, mut begun, mut counter) = (0_usize, 0, 15_u8);
        for packet in bytes.chunks(PACKET_BYTES as usize) {
            assert_eq!(packet[0], 0x47);
            if [packet[1] & 0x1f, packet[2]] != MEDIA_PID {
                continue;
            }
            counter = (counter + 1) & 15;
            assert_eq!(packet[3] & 15, counter);
            if packet[1] & 0x40 == 0 {
                left -= PACKET_BYTES as usize - 4;
                continue;
            }
            assert_eq!(left, 0, "the PES packet before is whole");
            begun += 1;
            left = usize::from(u16::from_be_bytes([packet[16], packet[17]]));
            left -= PACKET_BYTES as usize - 18;
        }
        assert_eq!((left, begun), (0, 100));
        let whole = elementary(&bytes).unwrap();
        let later = elementary(&bytes[1000 * PACKET_BYTES as usize..]).unwrap();
        assert!(later.len() > 100_000 && whole.ends_with(&later));
        let hole = [&bytes[..40 * 188], &bytes[41 * 188..]].concat();
        assert_eq!(elementary(&hole), None, "a missing packet is found");
    }
}
