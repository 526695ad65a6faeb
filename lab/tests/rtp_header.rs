// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the RTP fields that the specimen `packet` finds in a frame with those that `wire::rtp`
//! reads.
//!
//! Neither `simd` nor the specimen depends on `wire`, so the layout of the RTP header is compared
//! here.

#![forbid(unsafe_code)]

use lab::specimens::packet::{Fields, Packet, ParseFlags};
use simd::stamp::{Addresses, FRONT_BYTES, Frames, Template};
use simd::{Checksum, Stamp};
use wire::rtp::{HEADER_BYTES, Header};

const PAYLOAD_BYTES: usize = 188;
const FRAME_BYTES: usize = FRONT_BYTES + HEADER_BYTES + PAYLOAD_BYTES;

/// Makes one frame with this header for each stamping variant.
fn frames(header: &Header) -> Vec<Vec<u8>> {
    let addresses = Addresses {
        source_mac: [2, 0, 0, 0, 0, 1],
        target_mac: [2, 0, 0, 0, 0, 2],
        source: "10.99.0.1:5004".parse().unwrap(),
        target: "10.99.0.2:6004".parse().unwrap(),
    };
    let template = Template::new(&addresses, 64, 0);
    let stamped = |stamp: Stamp| {
        let mut slot = vec![0x47; FRAME_BYTES];
        let sum = Checksum::all().next().unwrap().sum(&slot[FRONT_BYTES + HEADER_BYTES..]);
        let datagram_bytes = (HEADER_BYTES + PAYLOAD_BYTES) as u16;
        let frames = Frames {
            slots: &mut slot,
            stride: FRAME_BYTES,
            at: 0,
            heads: &header.write(),
            datagram_bytes,
            last_bytes: datagram_bytes,
            identification: 7,
        };
        stamp.frames(&template, frames, &[sum]);
        slot
    };
    Stamp::all().map(stamped).collect()
}

#[test]
fn stamped_and_parsed_headers_are_those_of_wire() {
    for bit in 0..12 {
        let header = Header {
            marker: bit % 2 == 1,
            payload_type: 0x21 ^ (bit as u8 & 7),
            sequence: 0x1234 ^ 1 << bit,
            timestamp: 0x5678_9abc ^ 1 << (2 * bit),
            ssrc: 0xdef0_1234 ^ 1 << (2 * bit + 5),
        };
        for frame in frames(&header) {
            let datagram = &frame[FRONT_BYTES..];
            let (read, payload) = Header::parse(datagram).unwrap();
            assert_eq!((read, payload), (header, HEADER_BYTES..datagram.len()));
            for packet in Packet::all() {
                let mut fields = [Fields::default(); 9];
                packet.fields(&[&frame[..]; 9], &mut fields);
                for found in fields {
                    assert!(found.found.contains(ParseFlags::RTP), "{packet:?}: {found:?}");
                    let seen = Header {
                        marker: found.marker(),
                        payload_type: found.payload_type(),
                        sequence: found.sequence,
                        timestamp: found.timestamp,
                        ssrc: found.ssrc,
                    };
                    assert_eq!(seen, header, "{packet:?}");
                    assert_eq!(usize::from(found.payload_at), FRONT_BYTES + HEADER_BYTES);
                }
            }
        }
    }
}
