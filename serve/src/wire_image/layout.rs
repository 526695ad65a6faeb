// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes before each payload of a wire image, by the transport that it serves.
//!
//! Over UDP a datagram is an RTP packet. Over TCP each packet has the header of a frame before it,
//! which names a channel of the connection. Clients choose the channel, but all ask for channel 0
//! when they have one stream, so an image is made for that one alone.
//!
//! Sources: RFC 2326 §10.12; RFC 3550 §5.1.
//! Does not hold sequence numbers or timestamps of a session: an image has the plan's.

use media::plan::PacketPlan;
use wire::rtsp::{INTERLEAVED_HEADER_BYTES, interleaved_header};

/// The two ways to lay an asset out; an asset may have an image of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ImageLayout {
    /// RTP packets one after the other, for datagrams.
    Packets,
    /// RTP packets in frames of channel [`FRAMES_CHANNEL`], for RTSP connections.
    Frames,
}

impl ImageLayout {
    /// Returns the layout for frames of `channel`; `None` for a channel without images.
    pub(crate) fn of_channel(channel: u8) -> Option<ImageLayout> {
        (channel == FRAMES_CHANNEL).then_some(ImageLayout::Frames)
    }

    /// Returns the offset of `packet` in the image, in bytes; past the last packet its end.
    pub(crate) fn offset(self, plan: &PacketPlan, packet: u64) -> u64 {
        plan.wire_offset(packet) + packet.min(plan.packets()) * self.frame_header_bytes()
    }

    /// Returns the bytes of all packets.
    pub(crate) fn packets_bytes(self, plan: &PacketPlan) -> u64 {
        self.offset(plan, plan.packets())
    }

    /// Writes what lies before the payload of `packet`.
    pub(crate) fn write_head(self, plan: &PacketPlan, packet: u64, output: &mut Vec<u8>) {
        if self == ImageLayout::Frames {
            let bytes = plan.wire_offset(packet + 1) - plan.wire_offset(packet);
            let bytes = u16::try_from(bytes).expect("a packet fits a datagram");
            output.extend_from_slice(&interleaved_header(FRAMES_CHANNEL, bytes));
        }
        output.extend_from_slice(&plan.header(packet));
    }

    /// Returns the end of the image's file name.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            ImageLayout::Packets => ".wire",
            ImageLayout::Frames => ".framed.wire",
        }
    }

    /// Returns the magic with version: an image of another version is made again.
    pub(crate) const fn magic(self) -> &'static [u8; 8] {
        match self {
            ImageLayout::Packets => b"pwimage2",
            ImageLayout::Frames => b"pwframe1",
        }
    }

    /// Returns the name in the log.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            ImageLayout::Packets => "wire image",
            ImageLayout::Frames => "framed wire image",
        }
    }

    const fn frame_header_bytes(self) -> u64 {
        match self {
            ImageLayout::Packets => 0,
            ImageLayout::Frames => INTERLEAVED_HEADER_BYTES as u64,
        }
    }
}

/// The channel of an image's frames: the first of `interleaved=0-1`.
const FRAMES_CHANNEL: u8 = 0;

#[cfg(test)]
mod tests {
    use media::Scanner;
    use media::store::random_identity;

    use super::*;

    /// Null packets with a clock reference every 100, so that the last RTP packet is short.
    fn plan() -> PacketPlan {
        let mut scanner = Scanner::new();
        let mut bytes = Vec::new();
        for number in 0..1003_u64 {
            let mut packet = [0xff; 188];
            packet[..4].copy_from_slice(&[0x47, 1, 0, 0x10]);
            if number.is_multiple_of(100) {
                packet[3..6].copy_from_slice(&[0x20, 183, 0x10]);
                packet[6..12].copy_from_slice(&((number * 90) << 15 | 0x7e00).to_be_bytes()[2..]);
            }
            bytes.extend_from_slice(&packet);
        }
        scanner.feed(&bytes);
        scanner.finish(bytes.len() as u64, random_identity()).unwrap()
    }

    #[test]
    fn offsets_are_the_sums_of_heads_and_payloads() {
        let plan = plan();
        for layout in [ImageLayout::Packets, ImageLayout::Frames] {
            let mut at = 0;
            for packet in 0..plan.packets() {
                assert_eq!(layout.offset(&plan, packet), at, "{layout:?} {packet}");
                let mut head = Vec::new();
                layout.write_head(&plan, packet, &mut head);
                at += head.len() as u64 + plan.payload_bytes(packet..packet + 1);
            }
            assert_eq!(layout.packets_bytes(&plan), at);
            assert_eq!(layout.offset(&plan, plan.packets() + 7), at, "past the end");
        }
    }

    #[test]
    fn a_frame_names_its_channel_and_the_bytes_behind_it() {
        let plan = plan();
        let mut head = Vec::new();
        ImageLayout::Frames.write_head(&plan, 0, &mut head);
        assert_eq!(head[..4], [b'$', 0, 5, 48], "12 bytes of RTP and 7 packets: 1328");
        assert_eq!(head[4..], plan.header(0));
        assert_eq!(ImageLayout::of_channel(0), Some(ImageLayout::Frames));
        assert_eq!(ImageLayout::of_channel(2), None);
    }
}
