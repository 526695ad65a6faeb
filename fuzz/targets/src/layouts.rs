// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks packets of fuzzed files: the properties of every `media::payload::Layout`; used by the
//! targets `payload`, `mp4`, `mkv`, `frames` and `ts`.
//!
//! Checked: every range of the file that a packet carries lies in it; no packet is empty or larger
//! than `PACKET_BYTES_MAX`; sizes and due times, looked up one by one, agree with each other.

use media::payload::{Layout, PACKET_BYTES_MAX, RtpValues};

pub(crate) const VALUES: RtpValues =
    RtpValues { payload_type: 96, ssrc: 1, sequence: 65_530, timestamp: 3 };

/// Bytes of an RTP header.
pub(crate) const RTP_BYTES: usize = 12;

/// Packets of a row that are compared with its first.
const ROW_PACKETS: u32 = 8;

pub(crate) fn check(layout: &Layout, file_bytes: u64) {
    let (mut head, mut due) = (Vec::new(), 0);
    for packet in 0..layout.packets() {
        head.clear();
        layout.write_head(packet, &VALUES, &mut head);
        assert_eq!(head.len(), layout.head_bytes(packet));
        let sequence = VALUES.sequence.wrapping_add(packet as u16);
        assert_eq!(head[2..4], sequence.to_be_bytes());
        let mut bytes = head.len();
        layout.write_pieces(packet..packet + 1, |piece| {
            let end = piece.file_offset.checked_add(piece.bytes.into());
            assert!(end.is_some_and(|end| end <= file_bytes), "{piece:?} past the end of the file");
            bytes += piece.bytes as usize;
        });
        assert!((RTP_BYTES + 1..=PACKET_BYTES_MAX).contains(&bytes), "packet of {bytes} bytes");
        assert_eq!(bytes as u64, wire_bytes(layout, packet), "packet {packet}");

        let ticks = layout.ticks(packet);
        assert!(ticks >= due, "packet {packet} is due before the one before it");
        assert!(layout.packets_before(ticks) <= packet);
        assert!(layout.packets_before(ticks + 1) > packet);
        due = ticks;
        check_row(layout, packet);
    }
    let all = layout.packets();
    assert_eq!(layout.packets_before(u64::MAX), all);
    assert_eq!(layout.wire_offset(all), layout.wire_bytes());
    let headers = u64::from(all) * RTP_BYTES as u64;
    assert_eq!(layout.payload_bytes(0..all), layout.wire_bytes() - headers);
}

/// Packets of a row are of one size but the last, which may be shorter.
fn check_row(layout: &Layout, packet: u32) {
    let row = layout.row(packet, ROW_PACKETS);
    assert!((1..=ROW_PACKETS).contains(&row.packets));
    for number in packet..packet + row.packets {
        let (bytes, full) = (wire_bytes(layout, number), u64::from(row.packet_bytes));
        let is_last = number + 1 == packet + row.packets;
        assert!(bytes == full || is_last && bytes < full, "packet {number} of {bytes} in {row:?}");
    }
}

fn wire_bytes(layout: &Layout, packet: u32) -> u64 {
    layout.wire_offset(packet + 1) - layout.wire_offset(packet)
}
