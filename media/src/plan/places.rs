// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places of transport stream packets in a file, from a plan, or contiguous from the file's first
//! byte on, as in a channel.
//!
//! Does not know times.

use super::PacketPlan;
use super::rows::{Extent, PACKET_BYTES};

/// Places of the packets of a file.
#[derive(Debug, Clone, Copy)]
pub struct PacketPlaces<'a> {
    pub(crate) stride: u64,
    pub(crate) file_bytes: u64,
    pub(crate) extents: &'a [Extent],
}

impl<'a> From<&'a PacketPlan> for PacketPlaces<'a> {
    fn from(plan: &'a PacketPlan) -> PacketPlaces<'a> {
        plan.places()
    }
}

impl Extent {
    /// Returns this many adjacent packets, from the first byte of a file on.
    pub fn of_packets(ts_packets: u64) -> Extent {
        Extent { file_offset: 0, ts_packets, first_ts_packet: 0, first_packet: 0, wire_offset: 0 }
    }

    /// Returns the places of packets that are in no other extent.
    pub fn places(&self) -> PacketPlaces<'_> {
        let file_bytes = self.file_offset + self.ts_packets * PACKET_BYTES;
        PacketPlaces { stride: PACKET_BYTES, file_bytes, extents: std::slice::from_ref(self) }
    }
}

impl PacketPlan {
    /// The places of its packets.
    pub fn places(&self) -> PacketPlaces<'_> {
        let PacketPlan { stride, file_bytes, .. } = *self;
        PacketPlaces { stride, file_bytes, extents: &self.extents }
    }

    /// As [`PacketPlaces::ts_run`].
    pub fn ts_run(&self, ts_packet: u64, limit: u64) -> Option<(u64, u64)> {
        self.places().ts_run(ts_packet, limit)
    }

    /// As [`PacketPlaces::ts_packets_before_byte`].
    pub fn ts_packets_before_byte(&self, offset: u64) -> u64 {
        self.places().ts_packets_before_byte(offset)
    }
}

impl PacketPlaces<'_> {
    /// File offset of transport stream packet `ts_packet`, and how many follow it at the file's
    /// stride, itself included, `limit` at most; none past the end.
    pub fn ts_run(&self, ts_packet: u64, limit: u64) -> Option<(u64, u64)> {
        let after = self.extents.partition_point(|extent| extent.first_ts_packet <= ts_packet);
        let extent = &self.extents[after.checked_sub(1)?];
        let within = ts_packet - extent.first_ts_packet;
        let left = extent.ts_packets.checked_sub(within).filter(|&left| left > 0)?;
        Some((extent.file_offset + within * self.stride, left.min(limit)))
    }

    /// Number of transport stream packets that begin before this offset of the file.
    pub fn ts_packets_before_byte(&self, offset: u64) -> u64 {
        let after = self.extents.partition_point(|extent| extent.file_offset < offset);
        let Some(extent) = after.checked_sub(1).map(|at| &self.extents[at]) else { return 0 };
        let within = (offset - extent.file_offset).div_ceil(self.stride).min(extent.ts_packets);
        extent.first_ts_packet + within
    }
}
