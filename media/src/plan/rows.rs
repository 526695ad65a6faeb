// SPDX-License-Identifier: MIT OR Apache-2.0
//! Defines the rows of a packet plan's tables, and the limits of these tables.
//!
//! A scan collects the rows and the plan stores them, so both use these definitions.
//!
//! Does not check the order of the rows; [`PacketPlan`](super::PacketPlan) does.

use wire::rtp;

use crate::{TS_PACKET_BYTES, TS_PACKETS_PER_PAYLOAD};

/// Bytes of a transport stream packet.
pub(super) const PACKET_BYTES: u64 = TS_PACKET_BYTES as u64;
/// Bytes of the header of an RTP packet.
pub(super) const HEADER_BYTES: u64 = rtp::HEADER_BYTES as u64;

/// Extents of contiguous packets allowed in a file.
pub(crate) const EXTENTS_MAX: usize = 1 << 16;

/// Longest timeline, 5,400 years: keeps all products of two times within 128 bits.
pub(crate) const TIMELINE_TICKS_MAX: u64 = 1 << 62;

/// Losses whose offset and size are stored; further ones are only counted.
pub(crate) const LOSSES_MAX: usize = 256;

/// Elementary streams of a programme: more do not fit a section of its map.
pub(crate) const STREAMS_MAX: usize = 256;

/// A part of the file in which packets follow each other without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// File offset of its first sync byte.
    pub file_offset: u64,
    /// Its transport stream packets, at least one.
    pub ts_packets: u64,
    /// Transport stream packets in the extents before.
    pub first_ts_packet: u64,
    /// RTP packets in the extents before.
    pub first_packet: u64,
    /// Offset of its first RTP packet in the wire image.
    pub wire_offset: u64,
}

impl Extent {
    /// Its RTP packets.
    pub fn packets(&self) -> u64 {
        self.ts_packets.div_ceil(TS_PACKETS_PER_PAYLOAD)
    }
}

/// A point of the timeline, which begins with zero at the first packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockPoint {
    /// Index of a transport stream packet.
    pub ts_packet: u64,
    /// Time at which it is due.
    pub ticks: u64,
}

/// A place where play can start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryPoint {
    /// The first transport stream packet to send: that of the access unit, or that of the tables
    /// before it, so that a decoder gets them in time.
    pub ts_packet: u64,
    /// The transport stream packet in which the access unit starts that needs no other.
    pub access_unit: u64,
    /// Presentation time of that access unit, counted from the title's start. Never less than for
    /// the entry before.
    pub presented_ticks: u64,
}

/// An elementary stream of the programme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElementaryStream {
    /// Its packet identifier.
    pub pid: u16,
    /// Stream type (ISO/IEC 13818-1 table 2-34).
    pub stream_type: u8,
}

/// Bytes of the file that belong to no packet and are not streamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncLoss {
    /// Offset of the first of them.
    pub offset: u64,
    /// Count of bytes.
    pub bytes: u64,
}

/// Location of an RTP packet's payload in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadRange {
    /// Offset of the first sync byte; the others follow at the plan's stride, and of each 188
    /// bytes are sent.
    pub file_offset: u64,
    /// Transport stream packets: seven, or fewer in the last payload of an extent.
    pub ts_packets: u64,
}
