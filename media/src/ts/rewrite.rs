// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rewrites packet fields that change when streams are joined or sent at another time.
//!
//! The adaptation field is rewritten within its length. It keeps random_access_indicator and
//! elementary_stream_priority_indicator. The discontinuity_indicator is cleared because the output
//! has no discontinuity. OPCR, splice_countdown, private data and the extension are replaced by
//! stuffing because they refer to times and splice points of the file (ISO/IEC 13818-1 §2.4.3.5).
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.4 (adaptation field), §2.4.3.6 (PES packet).
//! Does not shift ESCR, which no decoder of transport streams reads.

use crate::TS_PACKET_BYTES;
use crate::ts::{HEADER_BYTES, SYNC_BYTE};

/// Number of values of a 90 kHz timestamp (33 bits).
pub(crate) const TIME_MODULUS: u64 = 1 << 33;

/// Packets after which a continuity counter repeats.
pub(super) const COUNTER_PACKETS: usize = 16;

/// Bytes of payload in a packet without an adaptation field.
const BODY_BYTES: usize = TS_PACKET_BYTES - HEADER_BYTES;

const HAS_PCR: u8 = 0x10;
/// random_access_indicator and elementary_stream_priority_indicator.
const KEPT_FLAGS: u8 = 0x60;

/// Timestamps of a PES packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PesTimes {
    /// The packet has no timestamps.
    None,
    /// The timestamps are unreadable: the header is truncated, or its length field is too small.
    Unreadable,
    /// Presentation and decoding time; the latter is omitted if both are equal.
    Some(u64, Option<u64>),
}

impl PesTimes {
    /// Parses the start of a PES packet.
    pub(super) fn find(payload: &[u8]) -> Self {
        let &[0, 0, 1, stream_id, ..] = payload else { return PesTimes::Unreadable };
        // Without the optional header (table 2-21): map, padding, private 2, ECM, EMM, DSM-CC,
        // H.222.1 type E, directory.
        if matches!(stream_id, 0xbc | 0xbe | 0xbf | 0xf0 | 0xf1 | 0xf2 | 0xf8 | 0xff) {
            return PesTimes::None;
        }
        let &[_, _, _, _, _, _, _, flags, header_bytes, ..] = payload else {
            return PesTimes::Unreadable;
        };
        let (wanted, has_decoding) = match flags >> 6 {
            0 => return PesTimes::None,
            2 => (5, false),
            3 => (10, true),
            // Forbidden.
            _ => return PesTimes::Unreadable,
        };
        match payload.get(9..9 + wanted) {
            Some(fields) if usize::from(header_bytes) >= wanted => {
                PesTimes::Some(timestamp(fields), has_decoding.then(|| timestamp(&fields[5..])))
            }
            _ => PesTimes::Unreadable,
        }
    }

    /// Returns the decoding time.
    pub(super) fn decoding(self) -> Option<u64> {
        match self {
            PesTimes::Some(presented, decoded) => Some(decoded.unwrap_or(presented)),
            PesTimes::None | PesTimes::Unreadable => None,
        }
    }

    /// Sets presentation and decoding time of the PES packet from which the timestamps were parsed
    /// to `presented`.
    pub(super) fn set(self, presented: u64, payload: &mut [u8]) {
        let PesTimes::Some(_, decoded) = self else { return };
        let has_more = payload[7] & 0x3f != 0;
        match decoded {
            // Equal times are written once (§2.7.5); header bytes without a flag are stuffing.
            Some(_) if !has_more => {
                payload[7] = 0x80;
                put_timestamp(&mut payload[9..14], 0x20, presented);
                payload[14..19].fill(0xff);
            }
            Some(_) => {
                put_timestamp(&mut payload[9..14], 0x30, presented);
                put_timestamp(&mut payload[14..19], 0x10, presented);
            }
            None => put_timestamp(&mut payload[9..14], 0x20, presented),
        }
    }

    /// Adds `offset` to the timestamps and writes them to the PES packet from which they were
    /// parsed.
    pub(super) fn shift(self, offset: u64, payload: &mut [u8]) {
        let PesTimes::Some(presented, decoded) = self else { return };
        let moved = |time: u64| (time + offset) % TIME_MODULUS;
        let prefix = if decoded.is_some() { 0x30 } else { 0x20 };
        put_timestamp(&mut payload[9..14], prefix, moved(presented));
        if let Some(decoded) = decoded {
            put_timestamp(&mut payload[14..19], 0x10, moved(decoded));
        }
    }
}

fn timestamp(field: &[u8]) -> u64 {
    let [a, b, c, d, e] = [field[0], field[1], field[2], field[3], field[4]].map(u64::from);
    (a >> 1 & 7) << 30 | b << 22 | (c >> 1) << 15 | d << 7 | e >> 1
}

/// Writes a 33-bit time with its prefix and the three marker bits.
pub(crate) fn put_timestamp(field: &mut [u8], prefix: u8, time: u64) {
    field[0] = prefix | (time >> 29) as u8 & 0x0e | 1;
    field[1] = (time >> 22) as u8;
    field[2] = (time >> 14) as u8 | 1;
    field[3] = (time >> 7) as u8;
    field[4] = (time << 1) as u8 | 1;
}

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

    fn unit(times: &[(u8, u64)]) -> Vec<u8> {
        let mut unit = vec![0, 0, 1, 0xe0, 0, 0, 0x80, 0, 5 * times.len() as u8];
        unit[7] = [0, 0x80, 0xc0][times.len()];
        for &(prefix, time) in times {
            let mut field = [0; 5];
            put_timestamp(&mut field, prefix, time);
            unit.extend(field);
        }
        unit
    }

    #[test]
    fn timestamp_of_an_ffmpeg_file_is_read_and_written_with_its_marker_bits() {
        // PTS 126000 (1.4 s) and DTS 122400 as ffmpeg writes them.
        let pts = [0x31, 0x00, 0x07, 0xd8, 0x61];
        assert_eq!(timestamp(&pts), 126_000);
        let mut written = [0; 5];
        put_timestamp(&mut written, 0x30, 126_000);
        assert_eq!(written, pts);
        put_timestamp(&mut written, 0x20, TIME_MODULUS - 1);
        assert_eq!(written, [0x2f, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(timestamp(&written), TIME_MODULUS - 1);
    }

    #[test]
    fn shift_wraps_at_33_bits() {
        let mut found = unit(&[(0x30, 10), (0x10, TIME_MODULUS - 10)]);
        PesTimes::find(&found).shift(15, &mut found);
        assert_eq!(found, unit(&[(0x30, 25), (0x10, 5)]));
        let mut found = unit(&[(0x20, 7)]);
        PesTimes::find(&found).shift(TIME_MODULUS - 8, &mut found);
        assert_eq!(found, unit(&[(0x20, TIME_MODULUS - 1)]));
    }

    #[test]
    fn one_time_takes_the_place_of_two_that_are_equal() {
        let mut found = unit(&[(0x30, 10), (0x10, 7)]);
        PesTimes::find(&found).set(99, &mut found);
        assert_eq!(PesTimes::find(&found), PesTimes::Some(99, None));
        assert_eq!((found[8], &found[14..19]), (10, &[0xff; 5][..]), "the header has its length");
        // With an ES_rate field after the times, both time fields stay in place.
        let mut found = unit(&[(0x30, 10), (0x10, 7)]);
        (found[7], found[8]) = (0xd0, 13);
        found.extend([0x80, 0, 1]);
        PesTimes::find(&found).set(99, &mut found);
        assert_eq!(PesTimes::find(&found), PesTimes::Some(99, Some(99)));
        assert_eq!(found[19..], [0x80, 0, 1]);
        let mut found = unit(&[(0x20, 10)]);
        PesTimes::find(&found).set(TIME_MODULUS - 1, &mut found);
        assert_eq!(found, unit(&[(0x20, TIME_MODULUS - 1)]));
    }

    #[test]
    fn headers_that_are_cut_off_or_too_short_are_told_apart_from_those_without_times() {
        let whole = unit(&[(0x30, 10), (0x10, 10)]);
        for end in 0..whole.len() {
            assert_eq!(PesTimes::find(&whole[..end]), PesTimes::Unreadable, "{end}");
        }
        let mut short = whole.clone();
        short[8] = 9;
        assert_eq!(PesTimes::find(&short), PesTimes::Unreadable);
        assert_eq!(PesTimes::find(&unit(&[])), PesTimes::None);
        assert_eq!(PesTimes::find(&[0, 0, 1, 0xbe]), PesTimes::None);
    }

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
