// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads and writes the timestamps of PES packets.
//!
//! [`PesTimes`] checks the header, so that its timestamps can be rewritten in place;
//! [`presentation_of`] and [`decoding_of`] read one time from a packet's first bytes without these
//! checks.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.6 (PES packet), §2.4.3.7 (times).
//! Does not shift ESCR, which no decoder of transport streams reads.

/// Number of values of a 90 kHz timestamp (33 bits).
pub(crate) const TIME_MODULUS: u64 = 1 << 33;

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

/// Parses the presentation time of a PES packet, if it lies within these first bytes (§2.4.3.7).
pub(super) fn presentation_of(bytes: &[u8]) -> Option<u64> {
    let [0, 0, 1, _, _, _, _, flags, _, a, b, c, d, e, ..] = *bytes else { return None };
    let bits = |byte: u8, shift: u32| u64::from(byte >> 1) << shift;
    let time = u64::from(a >> 1 & 7) << 30 | u64::from(b) << 22 | bits(c, 15);
    (flags & 0x80 != 0).then_some(time | u64::from(d) << 7 | bits(e, 0))
}

/// Returns the decoding time of a PES packet if it lies within these first bytes; the presentation
/// time if there is no separate decoding time.
pub(super) fn decoding_of(bytes: &[u8]) -> Option<u64> {
    let flags = *bytes.get(7)?;
    let at = if flags & 0xc0 == 0xc0 { 14 } else { 9 };
    let [a, b, c, d, e] = *bytes.get(at..at + 5)?.first_chunk()?;
    let bits = |byte: u8, shift: u32| u64::from(byte >> 1) << shift;
    let time = u64::from(a >> 1 & 7) << 30 | u64::from(b) << 22 | bits(c, 15);
    let is_timed = bytes.starts_with(&[0, 0, 1]) && flags & 0x80 != 0;
    is_timed.then_some(time | u64::from(d) << 7 | bits(e, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn the_time_of_decoding_is_that_of_presentation_where_it_has_none() {
        assert_eq!(decoding_of(&unit(&[(0x20, 0x1_2345_6789)])), Some(0x1_2345_6789));
        assert_eq!(decoding_of(&unit(&[(0x30, 7200), (0x10, 3600)])), Some(3600));
        assert_eq!(decoding_of(&unit(&[(0x30, 7200), (0x10, 3600)])[..13]), None);
        assert_eq!(decoding_of(&[0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
