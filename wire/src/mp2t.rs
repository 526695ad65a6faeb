// SPDX-License-Identifier: MIT OR Apache-2.0
//! Constants of the RTP payload format of MPEG transport streams.
//!
//! A payload is a whole number of transport stream packets (RFC 2250 §2). Seven of them fill an
//! Ethernet frame of 1500 bytes: 7 × 188 = 1316 bytes, with the RTP header 1328.
//!
//! Sources: RFC 2250 §2, RFC 3551 §6 (table 5), ISO/IEC 13818-1 §2.4.1, §2.4.3.

use crate::rtp;

/// Static payload type of MP2T (RFC 3551 §6).
pub const PAYLOAD_TYPE: u8 = 33;

/// Encoding name in SDP's `rtpmap` (RFC 3551 §6).
pub const ENCODING_NAME: &str = "MP2T";

/// RTP clock rate, in hertz (RFC 2250 §2).
pub const CLOCK_RATE_HZ: u32 = 90_000;

/// Bytes of a transport stream packet, from its sync byte on (ISO/IEC 13818-1 §2.4.1).
pub const TS_PACKET_BYTES: usize = 188;

/// First byte of a transport stream packet (ISO/IEC 13818-1 §2.4.3.3).
pub const TS_SYNC_BYTE: u8 = 0x47;

/// Transport stream packets in a full payload: as many as fit an Ethernet frame of 1500 bytes with
/// its IP, UDP and RTP headers.
pub const TS_PACKETS_PER_PAYLOAD: usize = 7;

/// Bytes of a full payload.
pub const PAYLOAD_BYTES: usize = TS_PACKETS_PER_PAYLOAD * TS_PACKET_BYTES;

/// Bytes of an RTP packet with a full payload: UDP's payload.
pub const PACKET_BYTES: usize = rtp::HEADER_BYTES + PAYLOAD_BYTES;

// IPv6, the longer of the two, has 40 bytes; UDP has 8.
const _: () = assert!(PAYLOAD_BYTES == 1316 && PACKET_BYTES == 1328 && PACKET_BYTES + 48 <= 1500);
