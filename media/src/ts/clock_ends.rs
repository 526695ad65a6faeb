// SPDX-License-Identifier: MIT OR Apache-2.0
//! Length of a recorded transport stream by the clock references at its two ends, without reading
//! what is between them: two reads of [`END_BYTES`].
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.5 (program clock reference).
//! Does not see breaks of the clock between the ends: after one the length is arbitrary.

use std::io;

use super::{PCR_MODULUS, TsHeader, TsPacket};
use crate::{ReadAt, TS_PACKET_BYTES};

/// Bytes that are read at each end: whole packets, over a tenth of a second at 80 Mb/s.
const END_BYTES: u64 = 5600 * TS_PACKET_BYTES as u64;

/// Returns the ticks from the first clock reference of a file of `bytes` bytes, which consists of
/// packets of 188 bytes, to the last of the same PID; `None` without one at each
/// end.
///
/// # Errors
/// `file` cannot be read.
pub fn clock_span(file: &(impl ReadAt + ?Sized), bytes: u64) -> io::Result<Option<u64>> {
    let whole = bytes - bytes % TS_PACKET_BYTES as u64;
    let mut packets = vec![0; END_BYTES.min(whole) as usize];
    file.read_exact_at(&mut packets, 0)?;
    let Some((pid, first)) = references(&packets).next() else { return Ok(None) };
    let at_end = whole - packets.len() as u64;
    file.read_exact_at(&mut packets, at_end)?;
    let last = references(&packets).filter(|(of, _)| *of == pid).last();
    Ok(last.map(|(_, last)| (last + PCR_MODULUS - first) % PCR_MODULUS))
}

/// The clock references in whole packets, with their PIDs.
fn references(packets: &[u8]) -> impl Iterator<Item = (u16, u64)> {
    let (packets, _) = packets.as_chunks::<TS_PACKET_BYTES>();
    packets.iter().filter_map(|bytes| {
        let header = TsHeader::read(bytes);
        let is_usable = header.is_sync() && !header.is_damaged();
        let pcr = TsPacket { header, bytes }.adaptation().pcr.filter(|_| is_usable)?;
        Some((header.pid(), pcr))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ts::put_pcr;

    fn packet(pid: u16, pcr: Option<u64>) -> [u8; TS_PACKET_BYTES] {
        let mut bytes = [0xff; TS_PACKET_BYTES];
        bytes[..4].copy_from_slice(&[0x47, (pid >> 8) as u8, pid as u8, 0x30]);
        bytes[4..6].copy_from_slice(&[7, 0]);
        if let Some(pcr) = pcr {
            bytes[5] = 0x10;
            put_pcr(&mut bytes, pcr);
        }
        bytes
    }

    #[test]
    fn the_span_is_from_the_first_reference_to_the_last_of_its_pid_also_over_the_wrap() {
        let begin = PCR_MODULUS - 1000;
        let mut file = Vec::new();
        file.extend(packet(64, None));
        file.extend(packet(64, Some(begin)));
        for _ in 0..2 * END_BYTES / TS_PACKET_BYTES as u64 {
            file.extend(packet(64, None));
        }
        file.extend(packet(64, Some(26_999_000)));
        file.extend(packet(65, Some(5)));
        let span = |bytes: &[u8]| clock_span(bytes, bytes.len() as u64).unwrap();
        assert_eq!(span(&file), Some(27_000_000));
        file.extend([0x47; 187]);
        assert_eq!(span(&file), Some(27_000_000), "the last packet is cut off");
        file.truncate(file.len() - 187 - 3 * TS_PACKET_BYTES);
        assert_eq!(span(&file), None, "no reference at the end");
        assert_eq!(span(&file[..TS_PACKET_BYTES]), None);
        assert_eq!(span(&[]), None);
        assert_eq!(span(&file[..2 * TS_PACKET_BYTES]), Some(0), "one reference");
    }
}
