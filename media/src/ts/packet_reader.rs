// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the transport stream packets of a file sequentially, from any packet on.
//!
//! Costs one read of 64 KiB per 348 packets, and a copy of each packet.
//!
//! Sources: pread(2).
//! Does not read the bytes between extents.

use std::io;

use crate::plan::PacketPlaces;
use crate::{ReadAt, TS_PACKET_BYTES};

pub(super) type PacketBytes = [u8; TS_PACKET_BYTES];

/// A position among the packets of a file.
pub(super) struct PacketReader<'a, F: ?Sized> {
    places: PacketPlaces<'a>,
    file: &'a F,
    /// Index of the next packet.
    next: u64,
    /// Packets read, at the file's stride.
    block: Vec<u8>,
    /// Offset of the first of them in the file, and of the next packet in the block.
    block_offset: u64,
    at: usize,
}

impl<'a, F: ReadAt + ?Sized> PacketReader<'a, F> {
    pub(super) fn new(places: impl Into<PacketPlaces<'a>>, next: u64, file: &'a F) -> Self {
        let places = places.into();
        PacketReader { places, file, next, block: Vec::new(), block_offset: 0, at: 0 }
    }

    /// Returns the index of the next packet.
    pub(super) fn next_packet(&self) -> u64 {
        self.next
    }

    /// Moves to a packet; the block is retained if it contains that packet.
    pub(super) fn seek(&mut self, next: u64) {
        let stride = self.places.stride as usize;
        let first = self.next - (self.at / stride) as u64;
        let packets = self.block.len().div_ceil(stride) as u64;
        match next.checked_sub(first).filter(|&ahead| ahead < packets) {
            Some(ahead) => self.at = ahead as usize * stride,
            None => {
                self.at = 0;
                self.block.clear();
            }
        }
        self.next = next;
    }

    /// Reads the next packet; returns none at the end of the file.
    pub(super) fn read(&mut self) -> io::Result<Option<PacketBytes>> {
        Ok(self.read_at()?.map(|(_, packet)| packet))
    }

    /// Reads the next packet and returns it with its offset in the file; none at the end of the
    /// file.
    pub(super) fn read_at(&mut self) -> io::Result<Option<(u64, PacketBytes)>> {
        if self.at >= self.block.len() {
            let Some((offset, packets)) = self.places.ts_run(self.next, BLOCK_PACKETS) else {
                return Ok(None);
            };
            // After the last packet the rest of its stride may be missing.
            let bytes = (packets - 1) * self.places.stride + TS_PACKET_BYTES as u64;
            self.block.resize(bytes as usize, 0);
            (self.block_offset, self.at) = (offset, 0);
            if let Err(error) = self.file.read_exact_at(&mut self.block, offset) {
                self.block.clear();
                return Err(error);
            }
        }
        let offset = self.block_offset + self.at as u64;
        let packet = self.block[self.at..].first_chunk().copied();
        self.at += self.places.stride as usize;
        self.next += 1;
        Ok(packet.map(|packet| (offset, packet)))
    }
}

/// Packets read by one call.
const BLOCK_PACKETS: u64 = 348;
