// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rewrites packet fields that change when streams are joined or sent at another time.
//!
//! The adaptation field is rewritten within its length. It keeps random_access_indicator and
//! elementary_stream_priority_indicator. The discontinuity_indicator is cleared because the output
//! has no discontinuity. OPCR, splice_countdown, private data and the extension are replaced by
//! stuffing because they refer to times and splice points of the file (ISO/IEC 13818-1 §2.4.3.5).
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.4 (adaptation field).
//! Does not change timestamps of PES packets; [`super::pes_times`] does.

use crate::TS_PACKET_BYTES;
use crate::ts::{HEADER_BYTES, SYNC_BYTE};

/// Packets after which a continuity counter repeats.
pub(super) const COUNTER_PACKETS: usize = 16;

/// Bytes of payload in a packet without an adaptation field.
const BODY_BYTES: usize = TS_PACKET_BYTES - HEADER_BYTES;

const HAS_PCR: u8 = 0x10;
/// random_access_indicator and elementary_stream_priority_indicator.
const KEPT_FLAGS: u8 = 0x60;

/// Writes a clock reference, in ticks, to the adaptation field of a packet with room for it.
pub(crate) fn put_pcr(bytes: &mut [u8; TS_PACKET_BYTES], pcr: u64) {
    let field = (pcr / 300) << 15 | 0x3f << 9 | (pcr % 300);
    bytes[6..12].copy_from_slice(&field.to_be_bytes()[2..]);
}

/// Rewrites the adaptation field, with room for a clock reference if `has_pcr`, and returns the
/// offset of the payload. Returns none if the field is longer than the packet or too short for the
/// clock reference.
pub(super) fn renew_adaptation(bytes: &mut [u8; TS_PACKET_BYTES], has_pcr: bool) -> Option<usize> {
    let has_payload = bytes[3] & 0x10 != 0;
    if bytes[3] & 0x20 == 0 {
        return Some(HEADER_BYTES);
    }
    let end = HEADER_BYTES + 1 + usize::from(bytes[4]);
    let is_valid = if has_payload { end < TS_PACKET_BYTES } else { end <= TS_PACKET_BYTES };
    if !is_valid || (has_pcr && end < 12) {
        return None;
    }
    if end > 5 {
        bytes[5] = bytes[5] & KEPT_FLAGS | if has_pcr { HAS_PCR } else { 0 };
        bytes[if has_pcr { 12 } else { 6 }..end].fill(0xff);
    }
    Some(end)
}

/// Writes `payload` of at least 16 bytes as packets of `pid`. The number of packets is a multiple
/// of 16, so a packet with the same counter may follow the last. The first has this continuity
/// counter, and a random_access_indicator if `is_start`.
pub(super) fn spread(
    pid: u16,
    payload: &[u8],
    (continuity, is_start): (u8, bool),
    out: &mut Vec<u8>,
) {
    // The indicator occupies two bytes of the first packet.
    let least = (payload.len() + 2).div_ceil(BODY_BYTES);
    let count = least.next_multiple_of(COUNTER_PACKETS);
    let mut rest = payload;
    for index in 0..count {
        let is_first = index == 0;
        let room = if is_first { BODY_BYTES - 2 } else { BODY_BYTES };
        let (body, after) = rest.split_at(rest.len().div_ceil(count - index).min(room));
        rest = after;
        let start = if is_first { 0x40 } else { 0 };
        let [high, low] = pid.to_be_bytes();
        let stuffing = BODY_BYTES - body.len();
        let control = if stuffing > 0 { 0x30 } else { 0x10 };
        let counter = continuity.wrapping_add(index as u8) & 15;
        out.extend([SYNC_BYTE as u8, start | high, low, control | counter]);
        if stuffing > 0 {
            out.push((stuffing - 1) as u8);
        }
        if stuffing > 1 {
            out.push(if is_first && is_start { 0x40 } else { 0 });
            out.extend(std::iter::repeat_n(0xff, stuffing - 2));
        }
        out.extend_from_slice(body);
    }
}

/// Returns a packet with a clock reference and without payload.
pub(crate) fn clock_packet(pid: u16, continuity: u8, pcr: u64) -> [u8; TS_PACKET_BYTES] {
    let mut bytes = [0xff; TS_PACKET_BYTES];
    let [high, low] = pid.to_be_bytes();
    let length = (TS_PACKET_BYTES - HEADER_BYTES - 1) as u8;
    bytes[..6].copy_from_slice(&[SYNC_BYTE as u8, high, low, 0x20 | continuity, length, HAS_PCR]);
    put_pcr(&mut bytes, pcr);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ts::{PCR_MODULUS, TsHeader, TsPacket};

    #[test]
    fn adaptation_field_keeps_its_length_and_loses_what_refers_to_the_file() {
        let mut bytes = [0x55; TS_PACKET_BYTES];
        // All flags: discontinuity, random access, priority, PCR, OPCR, countdown, private,
        // extension.
        bytes[..6].copy_from_slice(&[0x47, 0x41, 0, 0x30, 40, 0xff]);
        assert_eq!(renew_adaptation(&mut bytes, true), Some(45));
        put_pcr(&mut bytes, PCR_MODULUS - 1);
        assert_eq!(bytes[4..6], [40, 0x70]);
        assert!(bytes[12..45].iter().all(|&byte| byte == 0xff) && bytes[45] == 0x55);
        let packet = TsPacket { header: TsHeader::read(&bytes), bytes: &bytes };
        assert_eq!(packet.adaptation().pcr, Some(PCR_MODULUS - 1));
        assert!(packet.adaptation().random_access && !packet.adaptation().discontinuity);
    }

    #[test]
    fn impossible_adaptation_fields_are_refused() {
        for (control, length, has_pcr, end) in [
            (0x30, 183, false, None),
            (0x20, 183, false, Some(188)),
            (0x20, 184, false, None),
            (0x30, 6, true, None),
            (0x30, 7, true, Some(12)),
            (0x30, 0, false, Some(5)),
            (0x10, 0, false, Some(4)),
        ] {
            let mut bytes = [0; TS_PACKET_BYTES];
            bytes[3..5].copy_from_slice(&[control, length]);
            assert_eq!(renew_adaptation(&mut bytes, has_pcr), end, "{control:x} {length}");
        }
    }
}
