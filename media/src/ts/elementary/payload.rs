// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extracts the elementary stream of a PID from the payload of its PES packets, packet by packet.
//!
//! The scan and the layout of a chapter both use it, so the layout finds the bytes that the scan
//! counted. A repeated packet counts once. A PES packet ends where the next of its PID begins:
//! PES_packet_length is ignored, because wrong lengths are common and nothing in a transport stream
//! needs it.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.3 (continuity), §2.4.3.6 (PES packet).
//! Does not reorder packets or repair losses.

use crate::ts::pes_times::PesTimes;
use crate::ts::{TsHeader, TsPacket};

/// State of one PID after the packets so far.
#[derive(Debug, Default)]
pub(in crate::ts) struct PesPayload {
    continuity: Option<u8>,
    state: PesState,
    /// Header of the current PES packet.
    header: Vec<u8>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum PesState {
    /// Before the first PES packet, or in one that carries no elementary stream.
    #[default]
    Outside,
    Header,
    Payload,
}

/// Bytes and events that a packet adds to the elementary stream.
#[derive(Debug, Default)]
pub(in crate::ts) struct PesPart<'a> {
    /// Times of the PES packet whose payload begins here.
    pub(in crate::ts) begins: Option<PesTimes>,
    /// True if packets are missing before this one.
    pub(in crate::ts) is_after_loss: bool,
    /// True if the PES packet that begins here is scrambled.
    pub(in crate::ts) is_scrambled: bool,
    /// Bytes of the elementary stream, and their offset in the packet.
    pub(in crate::ts) bytes: &'a [u8],
    pub(in crate::ts) at: usize,
}

impl PesPayload {
    /// Creates the state after a packet in the middle of a PES packet's payload.
    pub(super) fn within(header: TsHeader) -> PesPayload {
        let continuity = Some(header.continuity());
        PesPayload { continuity, state: PesState::Payload, header: Vec::new() }
    }

    /// Consumes the PID's next packet, which must not be scrambled.
    pub(in crate::ts) fn feed<'a>(&mut self, packet: &TsPacket<'a>) -> PesPart<'a> {
        let mut bytes = packet.payload();
        let mut part = PesPart::default();
        if packet.header.is_damaged() || bytes.is_empty() {
            return part;
        }
        let continuity = packet.header.continuity();
        match self.continuity.replace(continuity) {
            Some(before) if before == continuity && !packet.adaptation().discontinuity => {
                return part;
            }
            Some(before) => part.is_after_loss = (before + 1) & 0x0f != continuity,
            None => {}
        }
        if packet.header.starts_unit() {
            self.header.clear();
            self.state = PesState::Header;
        } else if part.is_after_loss && self.state == PesState::Header {
            self.state = PesState::Outside;
        }
        if self.state == PesState::Header {
            bytes = self.take_header(bytes, &mut part);
        }
        if self.state == PesState::Payload {
            part.at = packet.bytes.len() - bytes.len();
            part.bytes = bytes;
        }
        part
    }

    /// Consumes the bytes of the PES header; returns the rest.
    fn take_header<'a>(&mut self, mut bytes: &'a [u8], part: &mut PesPart<'a>) -> &'a [u8] {
        loop {
            let wanted = match *self.header {
                [_, _, _, _, _, _, _, _, more, ..] => FIXED_BYTES + usize::from(more),
                _ => FIXED_BYTES,
            };
            let (own, rest) = bytes.split_at(bytes.len().min(wanted - self.header.len()));
            self.header.extend_from_slice(own);
            bytes = rest;
            let is_pes = self.header.iter().zip([0, 0, 1]).all(|(&own, byte)| own == byte);
            if !is_pes {
                self.state = PesState::Outside;
                return &[];
            }
            match *self.header {
                [_, _, _, _, _, _, _, _, more, ..]
                    if self.header.len() == FIXED_BYTES + usize::from(more) =>
                {
                    break;
                }
                // The header continues in the next packet.
                _ if bytes.is_empty() => return &[],
                _ => {}
            }
        }
        // Streams without the optional header have another syntax (table 2-21), as has MPEG-1.
        let has_stream = !matches!(self.header[3], 0xbc | 0xbe | 0xbf | 0xf0..=0xf2 | 0xf8 | 0xff);
        if !has_stream || self.header[6] >> 6 != 2 {
            self.state = PesState::Outside;
            return &[];
        }
        self.state = PesState::Payload;
        part.is_scrambled = self.header[6] & 0x30 != 0;
        part.begins = Some(PesTimes::find(&self.header));
        bytes
    }
}

/// Bytes of a PES header up to and including PES_header_data_length.
const FIXED_BYTES: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TS_PACKET_BYTES;

    /// Returns a packet of PID 256 with stuffing before its payload.
    fn packet(start: bool, continuity: u8, payload: &[u8]) -> [u8; TS_PACKET_BYTES] {
        let mut bytes = [0xff; TS_PACKET_BYTES];
        let stuffing = TS_PACKET_BYTES - 4 - payload.len();
        let control = if stuffing > 0 { 0x30 } else { 0x10 };
        bytes[..4].copy_from_slice(&[0x47, u8::from(start) << 6 | 1, 0, control | continuity]);
        if stuffing > 0 {
            bytes[4] = stuffing as u8 - 1;
        }
        if stuffing > 1 {
            bytes[5] = 0;
        }
        bytes[TS_PACKET_BYTES - payload.len()..].copy_from_slice(payload);
        bytes
    }

    /// Returns times, loss and bytes of each packet.
    fn parts(packets: &[[u8; TS_PACKET_BYTES]]) -> Vec<(Option<PesTimes>, bool, Vec<u8>)> {
        let mut payload = PesPayload::default();
        let part = |bytes: &[u8; TS_PACKET_BYTES]| {
            let packet = TsPacket { header: TsHeader::read(bytes), bytes };
            let part = payload.feed(&packet);
            assert!(part.bytes.is_empty() || bytes[part.at..] == *part.bytes);
            (part.begins, part.is_after_loss, part.bytes.to_vec())
        };
        packets.iter().map(part).collect()
    }

    const HEADER: [u8; 14] = [0, 0, 1, 0xe0, 0, 0, 0x80, 0x80, 5, 0x21, 0, 1, 0, 0x15];
    const TIMES: Option<PesTimes> = Some(PesTimes::Some(10, None));

    #[test]
    fn payload_goes_on_over_a_header_that_is_cut_anywhere() {
        for cut in 1..HEADER.len() {
            let (first, second) = HEADER.split_at(cut);
            let found = parts(&[
                packet(true, 3, first),
                packet(false, 4, &[second, &[1, 2]].concat()),
                packet(false, 5, &[3]),
            ]);
            let nothing = (None, false, vec![]);
            assert_eq!(found[0], nothing, "{cut}");
            assert_eq!(found[1..], [(TIMES, false, vec![1, 2]), (None, false, vec![3])], "{cut}");
        }
    }

    #[test]
    fn packet_sent_twice_counts_once_and_a_missing_one_is_told() {
        let first = packet(true, 15, &[&HEADER[..], &[1]].concat());
        let second = packet(false, 0, &[2]);
        let found = parts(&[first, first, second, second, packet(false, 2, &[3])]);
        let bytes: Vec<_> = found.iter().map(|(_, _, bytes)| bytes.clone()).collect();
        assert_eq!(bytes, [vec![1], vec![], vec![2], vec![], vec![3]]);
        let losses: Vec<_> = found.iter().map(|&(_, is_after_loss, _)| is_after_loss).collect();
        assert_eq!(losses, [false, false, false, false, true]);
    }

    #[test]
    fn lengths_that_lie_are_not_believed() {
        for length in [1_u16, 3, 4000, 65_535] {
            let mut header = HEADER;
            header[4..6].copy_from_slice(&length.to_be_bytes());
            let found = parts(&[
                packet(true, 0, &[&header[..], &[1, 2, 3]].concat()),
                packet(false, 1, &[4; 180]),
                packet(true, 2, &[&header[..], &[5]].concat()),
            ]);
            let bytes: Vec<_> = found.iter().map(|(_, _, bytes)| bytes.len()).collect();
            assert_eq!(bytes, [3, 180, 1], "{length}");
        }
    }

    #[test]
    fn what_is_no_pes_packet_has_no_payload() {
        for (at, byte) in [(2, 2), (3, 0xbe), (6, 0x40)] {
            let mut header = HEADER;
            header[at] = byte;
            let found = parts(&[
                packet(true, 0, &[&header[..], &[1]].concat()),
                packet(false, 1, &[2]),
                packet(true, 2, &HEADER),
                packet(false, 3, &[3]),
            ]);
            let bytes: Vec<_> = found.iter().map(|(_, _, bytes)| bytes.clone()).collect();
            assert_eq!(bytes, [vec![], vec![], vec![], vec![3]], "byte {at}");
        }
    }
}
