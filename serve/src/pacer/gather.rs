// SPDX-License-Identifier: MIT OR Apache-2.0
//! The gather list of a batch: an RTP header and the pieces of the file for each packet.
//!
//! It is filled from the plan into buffers that a pacer thread reuses: 12 bytes are written per
//! packet, and no memory is allocated after the first batches.
//!
//! Sources: RFC 3550 §5.1, RFC 2250 §2.

use std::ops::Range;

use media::TS_PACKET_BYTES;
use media::payload::{Layout, RtpValues};
use media::plan::PacketPlan;
use paths::{Batch, MappedFile, Piece};
use wire::rtsp::{INTERLEAVED_HEADER_BYTES, interleaved_header};

use crate::play::Shift;

/// Packets of one row of a track's chapter, and the values of their RTP headers.
pub(super) type TrackRow<'a> = (&'a Layout, Range<u32>, &'a RtpValues);

/// Reused buffers of a thread.
#[derive(Default)]
pub(crate) struct Gather {
    heads: Vec<u8>,
    pieces: Vec<Piece>,
}

impl Gather {
    /// Lays out `packets`, all of one segment run, with sequence numbers and timestamps shifted.
    pub(crate) fn fill(&mut self, plan: &PacketPlan, packets: Range<u64>, shift: Shift) {
        self.heads.clear();
        for (packet, timestamp) in packets.clone().zip(plan.timestamps(packets.clone())) {
            self.head(plan, packet, timestamp, shift);
        }
        self.payloads(plan, packets);
    }

    /// Lays out `packets` like [`Gather::fill`], each with the header of a frame of `channel`.
    pub(crate) fn fill_framed(
        &mut self,
        plan: &PacketPlan,
        packets: Range<u64>,
        shift: Shift,
        channel: u8,
    ) {
        self.heads.clear();
        for (packet, timestamp) in packets.clone().zip(plan.timestamps(packets.clone())) {
            let bytes = plan.wire_offset(packet + 1) - plan.wire_offset(packet);
            let bytes = u16::try_from(bytes).expect("a packet fits a datagram");
            self.heads.extend_from_slice(&interleaved_header(channel, bytes));
            self.head(plan, packet, timestamp, shift);
        }
        self.payloads(plan, packets);
    }

    /// Lays out packets of a track, all of one row of its layout; with a frame header for `channel`
    /// before each, if one is given.
    pub(crate) fn fill_track<'a>(
        &'a mut self,
        media: &'a MappedFile,
        (layout, packets, values): TrackRow<'_>,
        channel: Option<u8>,
    ) -> Batch<'a> {
        self.heads.clear();
        self.pieces.clear();
        let count = packets.end - packets.start;
        let packet_bytes = layout.row(packets.start, count).packet_bytes;
        let mut frame_header = 0;
        match channel {
            None => layout.write_heads(packets.clone(), values, &mut self.heads),
            Some(channel) => {
                for packet in packets.clone() {
                    let bytes = layout.wire_offset(packet + 1) - layout.wire_offset(packet);
                    let bytes = u16::try_from(bytes).expect("a packet fits a datagram");
                    self.heads.extend_from_slice(&interleaved_header(channel, bytes));
                    layout.write_head(packet, values, &mut self.heads);
                }
                frame_header = INTERLEAVED_HEADER_BYTES as u32;
            }
        }
        let pieces = &mut self.pieces;
        layout.write_pieces(packets, |piece| {
            pieces.push(Piece { offset: piece.file_offset, bytes: piece.bytes.into() });
        });
        Batch::gathered(media, count, packet_bytes + frame_header, &self.heads, &self.pieces)
    }

    fn head(&mut self, plan: &PacketPlan, packet: u64, timestamp: u32, shift: Shift) {
        let number = packet.wrapping_add(u64::from(shift.sequence));
        let timestamp = timestamp.wrapping_add(shift.timestamp);
        self.heads.extend_from_slice(&plan.header_at(number, timestamp));
    }

    fn payloads(&mut self, plan: &PacketPlan, packets: Range<u64>) {
        self.pieces.clear();
        // The packets of a segment run are contiguous in the file.
        let offset = plan.payload(packets.start).file_offset;
        let bytes = plan.payload_bytes(packets);
        let ts_bytes = TS_PACKET_BYTES as u64;
        let stride = plan.stride();
        if stride == ts_bytes {
            self.pieces.push(Piece { offset, bytes });
        } else {
            let piece = |index| Piece { offset: offset + index * stride, bytes: ts_bytes };
            self.pieces.extend((0..bytes / ts_bytes).map(piece));
        }
    }

    /// Returns the headers: 12 bytes of RTP for each packet, after a 4-byte frame header if framed.
    pub(crate) fn heads(&self) -> &[u8] {
        &self.heads
    }

    /// Returns the payloads' byte ranges in the file, in order.
    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }
}
