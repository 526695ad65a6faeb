// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is in media files: MPEG transport streams and the packet plan made from them.
//!
//! A file is read once, by a [`Scanner`] that is handed its bytes; what comes out is a [`Plan`]:
//! where in the file each RTP payload lies, when it is due and where play can start. After that
//! nothing is parsed any more: serving and seeking are arithmetic on the plan, O(log n) a lookup,
//! without I/O, without allocation and with whole numbers only.
//!
//! The unit of time is the tick of the 27 MHz system clock (ISO/IEC 13818-1 §2.4.2.1); an RTP
//! timestamp (90 kHz, RFC 2250 §2) is ticks divided by 300.
//!
//! This crate reads no file, asks no clock and draws no random number; all three are arguments.
#![forbid(unsafe_code)]

mod error;
pub mod plan;
pub mod segments;
pub mod ts;

pub use error::{Aspect, PlanFault, Refusal};
pub use plan::{
    ClockPoint, Entry, Extent, Identity, Key, Payload, Plan, Stream, SyncLoss, Timestamps,
};
pub use segments::{Segment, Segments};
pub use ts::{
    Coding, Counters, Extract, Format, Programme, Scanner, Starts, Survey, Track, codecs,
};

/// The system clock of an MPEG transport stream, and the unit of media time everywhere here.
pub const TICKS_PER_SECOND: u64 = 27_000_000;

/// Ticks per unit of an RTP timestamp of MP2T, whose clock is 90 kHz (RFC 2250 §2).
pub const TICKS_PER_TIMESTAMP: u64 = TICKS_PER_SECOND / 90_000;

/// Bytes of a transport stream packet, from its sync byte on (ISO/IEC 13818-1 §2.4.1).
pub const TS_PACKET_BYTES: usize = 188;

/// Transport stream packets in a full RTP payload: 7 × 188 = 1316 bytes is the most that fits an
/// Ethernet frame of 1500 bytes with its IP, UDP and RTP headers.
pub const TS_PACKETS_PER_PAYLOAD: u64 = 7;

/// Bytes of the fixed RTP header (RFC 3550 §5.1).
pub const RTP_HEADER_BYTES: usize = 12;
