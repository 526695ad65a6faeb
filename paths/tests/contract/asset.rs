// SPDX-License-Identifier: MIT OR Apache-2.0
//! An asset of any shape: as file with headers apart, as wire image, and as the datagrams expected.

use std::ops::Range;
use std::os::unix::fs::FileExt;

use paths::{Batch, Feed, MappedFile, Piece};

use crate::harness::noise;

pub(crate) const HEAD_BYTES: usize = 12;
/// 12 bytes of RTP and 7 packets of transport stream.
pub(crate) const SEGMENT_BYTES: usize = 1328;

/// Kind of headers. Most paths treat them as bytes; some let the kernel make them where it makes
/// the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineHeaders {
    /// RTP headers, numbered without a gap across the wrap of the sequence, timestamps evenly
    /// apart.
    Even,
    /// The same with uneven timestamps and occasional markers.
    Uneven,
    /// Even, with a jump in the sequence behind every seventh.
    Jumping,
    /// Bytes of no protocol.
    Noise,
}

impl EngineHeaders {
    fn of(self, packets: usize) -> Vec<u8> {
        const SSRC: u32 = 0x89ab_cdef;
        if self == Self::Noise {
            return noise(packets * HEAD_BYTES, 0x1234_5678_9abc_def1);
        }
        let mut heads = Vec::new();
        for packet in 0..packets as u32 {
            let jumps = if self == Self::Jumping { packet / 7 } else { 0 };
            let uneven = if self == Self::Uneven { packet * packet } else { 0 };
            let marker = u8::from(self == Self::Uneven && packet % 5 == 2) << 7;
            heads.extend([0x80, marker | 33]);
            heads.extend((65_531 + packet + jumps).to_be_bytes()[2..].iter());
            heads.extend(0xffff_f000_u32.wrapping_add(packet * 190 + uneven).to_be_bytes());
            heads.extend(SSRC.to_be_bytes());
        }
        heads
    }
}

/// Shape of an asset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) packets: usize,
    pub(crate) segment_bytes: usize,
    pub(crate) last_bytes: usize,
    /// Offset of the first payload in the file, and of the first datagram in the wire image.
    pub(crate) offset: usize,
    /// Bytes of the file between one 188 bytes of payload and the next.
    pub(crate) gap_bytes: usize,
    pub(crate) heads: EngineHeaders,
}

impl Shape {
    /// `packets` full packets of the usual size.
    pub(crate) const fn full(packets: usize) -> Self {
        let (segment_bytes, last_bytes) = (SEGMENT_BYTES, SEGMENT_BYTES);
        let heads = EngineHeaders::Even;
        Self { packets, segment_bytes, last_bytes, offset: 0, gap_bytes: 0, heads }
    }
}

/// Files and expectations of one shape.
pub(crate) struct Asset {
    pub(crate) shape: Shape,
    pub(crate) source: MappedFile,
    pub(crate) image: MappedFile,
    pub(crate) heads: Vec<u8>,
    pub(crate) datagrams: Vec<Vec<u8>>,
    /// Each packet's ranges of the file.
    ranges: Vec<Vec<Piece>>,
}

fn file_of(bytes: &[u8], name: &str) -> MappedFile {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(bytes, 0).unwrap();
    MappedFile::open(file, name).unwrap()
}

impl Asset {
    pub(crate) fn new(shape: Shape) -> Self {
        let heads = shape.heads.of(shape.packets);
        let mut ranges = Vec::new();
        let mut at = shape.offset;
        for packet in 0..shape.packets {
            let last = packet + 1 == shape.packets;
            let mut left = if last { shape.last_bytes } else { shape.segment_bytes } - HEAD_BYTES;
            let mut of_packet = Vec::new();
            while left > 0 {
                let bytes = if shape.gap_bytes == 0 { left } else { left.min(188) };
                of_packet.push(Piece { offset: at as u64, bytes: bytes as u64 });
                at += bytes + shape.gap_bytes;
                left -= bytes;
            }
            ranges.push(of_packet);
        }
        let content = noise(at, 0xfeed_0000_0000_0001);
        let datagrams: Vec<Vec<u8>> = ranges
            .iter()
            .zip(heads.chunks(HEAD_BYTES))
            .map(|(of_packet, head)| {
                let mut datagram = head.to_vec();
                for piece in of_packet {
                    let start = piece.offset as usize;
                    datagram.extend_from_slice(&content[start..start + piece.bytes as usize]);
                }
                datagram
            })
            .collect();
        let wire = [noise(shape.offset, 9), datagrams.concat()].concat();
        let source = file_of(&content, "asset.ts");
        let image = file_of(&wire, "asset.wire");
        Self { shape, source, image, heads, datagrams, ranges }
    }

    pub(crate) fn packets(&self) -> u32 {
        self.shape.packets as u32
    }

    /// Returns the ranges of some packets, joined where one follows the other.
    pub(crate) fn pieces(&self, packets: Range<u32>) -> Vec<Piece> {
        let mut joined: Vec<Piece> = Vec::new();
        for piece in self.ranges[packets.start as usize..packets.end as usize].iter().flatten() {
            match joined.last_mut() {
                Some(last) if last.offset + last.bytes == piece.offset => last.bytes += piece.bytes,
                _ => joined.push(*piece),
            }
        }
        joined
    }

    /// Returns a batch of some packets; `pieces` are theirs.
    pub(crate) fn batch<'a>(
        &'a self,
        feed: Feed,
        packets: Range<u32>,
        pieces: &'a [Piece],
    ) -> Batch<'a> {
        let (first, end) = (packets.start as usize, packets.end as usize);
        let (count, segment_bytes) = (packets.end - packets.start, self.shape.segment_bytes as u32);
        match feed {
            Feed::Gathered => {
                let heads = &self.heads[first * HEAD_BYTES..end * HEAD_BYTES];
                Batch::gathered(&self.source, count, segment_bytes, heads, pieces)
            }
            Feed::Image => {
                let bytes: usize = self.datagrams[first..end].iter().map(Vec::len).sum();
                let offset = self.image_offset(packets.start);
                Batch::image(&self.image, count, segment_bytes, offset, bytes as u64)
            }
        }
    }

    /// Returns the file a path of that feed sends from.
    pub(crate) fn source(&self, feed: Feed) -> &MappedFile {
        match feed {
            Feed::Gathered => &self.source,
            Feed::Image => &self.image,
        }
    }

    /// Returns the offset of a packet's bytes in the file of that feed.
    pub(crate) fn offset_of(&self, feed: Feed, packet: u32) -> u64 {
        match feed {
            Feed::Gathered => self.ranges[packet as usize][0].offset,
            Feed::Image => self.image_offset(packet),
        }
    }

    fn image_offset(&self, packet: u32) -> u64 {
        (self.shape.offset + packet as usize * self.shape.segment_bytes) as u64
    }
}
