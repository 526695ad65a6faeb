// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes a [`Layout`]: payloaders add the packets of a chapter, unit by unit.
//!
//! Enforces the limits of a chapter; samples beyond them are counted as faults of the layout.
//!
//! Sources: those of [`super`].

use wire::rtp;

use super::{
    FilePiece, HEAD_BYTES_MAX, Layout, PACKETS_MAX, PAYLOAD_BYTES_MAX, PIECES_MAX, Row,
    SPREAD_TICKS_MAX, UNITS_READ_MAX, Unit, UnitTimes,
};
use crate::payload::fragments::Fragments;
use crate::tracks::TRACKS_MAX;

/// Writes the layout of a chapter, unit by unit.
#[derive(Debug, Default)]
pub struct LayoutWriter {
    layout: Layout,
    /// Units that have been read.
    units_read: u32,
    /// Other tracks, with which the limits of a chapter are shared.
    others: u32,
}

impl LayoutWriter {
    /// Creates a writer for one of this number of tracks of a file: together they have
    /// [`PACKETS_MAX`] packets in a chapter, and read [`UNITS_READ_MAX`] units.
    pub fn shared_by(tracks: usize) -> LayoutWriter {
        let others = tracks.clamp(1, TRACKS_MAX) as u32 - 1;
        LayoutWriter { others, ..LayoutWriter::default() }
    }

    fn packets_max(&self) -> u32 {
        PACKETS_MAX / (self.others + 1)
    }

    /// Begins a unit; the packets that follow are its own. A unit without packets is dropped by
    /// the next.
    pub fn unit(&mut self, times: UnitTimes) {
        self.stepped_unit(times, 0);
    }

    /// Starts a unit whose packets have separate timestamps, `timestamp_step` apart.
    pub fn stepped_unit(&mut self, times: UnitTimes, timestamp_step: u16) {
        let layout = &mut self.layout;
        layout.units.pop_if(|last| last.first_packet == layout.packets);
        let mut due_ticks = times.due_ticks;
        if let Some(before) = layout.units.last_mut() {
            // Never less than for a packet before.
            due_ticks = due_ticks.max(before.due_ticks);
            let apart = u32::try_from(due_ticks - before.due_ticks).unwrap_or(u32::MAX);
            before.spread_ticks = before.spread_ticks.min(apart);
        }
        let spread = times.duration_ticks.min(SPREAD_TICKS_MAX) as u32;
        layout.units.push(Unit {
            first_packet: layout.packets,
            timestamp: times.timestamp,
            due_ticks,
            spread_ticks: spread,
            timestamp_step,
            is_start: times.is_start,
        });
    }

    /// Adds packets that carry `bytes` and nothing of the file, `each` bytes per packet: generated
    /// when the chapter was laid out. Counts a fault instead if `bytes` are not a multiple of
    /// `each`, or a packet would be larger than it may be.
    ///
    /// Returns true if they were added.
    pub fn rows(&mut self, bytes: &[u8], each: usize) -> bool {
        let fits = (1..=PAYLOAD_BYTES_MAX).contains(&each) && bytes.len().is_multiple_of(each);
        let packets = if fits { bytes.len() / each } else { 0 };
        let packets_max = self.packets_max();
        let layout = &mut self.layout;
        if packets == 0 || packets > (packets_max - layout.packets) as usize {
            self.fault();
            return false;
        }
        layout.rows.push(Row {
            first_packet: layout.packets,
            unit: layout.units.len() as u32 - 1,
            first_piece: layout.pieces.len() as u32,
            head_at: layout.heads.len() as u32,
            file_bytes: 0,
            packet_file_bytes: 0,
            head_bytes: each as u16,
            fragments: Fragments::Alike,
            is_marked: false,
            wire_offset: layout.wire_bytes,
        });
        layout.heads.extend_from_slice(bytes);
        layout.packets += packets as u32;
        layout.wire_bytes += (packets * rtp::HEADER_BYTES + bytes.len()) as u64;
        true
    }

    /// Adds one packet: `head` after the RTP header, then `pieces` of the file. Counts a fault
    /// instead if it is empty or larger than a packet may be.
    ///
    /// Returns true if it was added.
    pub fn packet(&mut self, head: &[u8], pieces: &[FilePiece], is_marked: bool) -> bool {
        let file_bytes: u64 = pieces.iter().map(|piece| u64::from(piece.bytes)).sum();
        let bytes = head.len() as u64 + file_bytes;
        let fits = (1..=PAYLOAD_BYTES_MAX as u64).contains(&bytes) && pieces.len() <= PIECES_MAX;
        if !fits {
            self.fault();
            return false;
        }
        let packet = (file_bytes as u32, file_bytes as u16);
        self.row(head, pieces, packet, Fragments::Alike, is_marked)
    }

    /// Adds the fragments of `piece`: each has `head` (modified by [`Fragments`]) after the RTP
    /// header. All but the last have the largest size of a packet: so long rows of a track have
    /// packets of one size, and the segment size of a socket is set once and not for every picture.
    ///
    /// Returns true if they were added.
    pub fn fragments(
        &mut self,
        head: &[u8],
        piece: FilePiece,
        fragments: Fragments,
        is_marked: bool,
    ) -> bool {
        let room = PAYLOAD_BYTES_MAX.saturating_sub(head.len()) as u32;
        let has_room = match fragments {
            Fragments::Alike => true,
            Fragments::Av1 | Fragments::Ac3 => !head.is_empty(),
            // A unit that is not cut has no fragments (RFC 6184 §5.8, RFC 7798 §4.4.3).
            Fragments::StartEnd => !head.is_empty() && piece.bytes > room,
            // A fragment offset has 16 bits.
            Fragments::Offset => head.len() >= 2 && piece.bytes <= u32::from(u16::MAX),
        };
        if piece.bytes == 0 || room == 0 || !has_room {
            self.fault();
            return false;
        }
        let each = piece.bytes.min(room) as u16;
        self.row(head, &[piece], (piece.bytes, each), fragments, is_marked)
    }

    /// Adds packets of `piece` alone, `each` bytes in all but the last, which may be shorter.
    /// Counts a fault instead if a packet would be larger than it may be.
    ///
    /// Returns true if they were added.
    pub fn slices(&mut self, piece: FilePiece, each: usize) -> bool {
        if piece.bytes == 0 || !(1..=PAYLOAD_BYTES_MAX).contains(&each) {
            self.fault();
            return false;
        }
        self.row(&[], &[piece], (piece.bytes, each as u16), Fragments::Alike, false)
    }

    /// Counts a part of a sample that cannot be laid out.
    pub fn fault(&mut self) {
        self.layout.faults = self.layout.faults.saturating_add(1);
    }

    /// Counts a unit that is about to be read from the file, of any kind; false, and a fault, if
    /// the chapter has used the track's share of [`UNITS_READ_MAX`].
    pub fn reads_unit(&mut self) -> bool {
        self.units_read += 1;
        let units_max = UNITS_READ_MAX / (self.others + 1);
        let is_allowed = self.units_read <= units_max;
        if !is_allowed {
            self.units_read = units_max;
            self.fault();
        }
        is_allowed
    }

    /// True if the chapter is full.
    pub fn is_full(&self) -> bool {
        self.layout.packets >= self.packets_max()
    }

    fn row(
        &mut self,
        head: &[u8],
        pieces: &[FilePiece],
        (file_bytes, packet_file_bytes): (u32, u16),
        fragments: Fragments,
        is_marked: bool,
    ) -> bool {
        assert!(!self.layout.units.is_empty(), "a unit is begun before its packets");
        let packets_max = self.packets_max();
        let layout = &mut self.layout;
        let packets = match packet_file_bytes {
            0 => 1,
            bytes => file_bytes.div_ceil(u32::from(bytes)),
        };
        if layout.packets + packets > packets_max || head.len() > HEAD_BYTES_MAX {
            self.fault();
            return false;
        }
        let head_at = match pieces.is_empty() {
            true => layout.known_head(head),
            false => layout.heads.len() as u32,
        };
        let is_known = (head_at as usize) < layout.heads.len();
        layout.rows.push(Row {
            first_packet: layout.packets,
            unit: layout.units.len() as u32 - 1,
            first_piece: layout.pieces.len() as u32,
            head_at,
            file_bytes,
            packet_file_bytes,
            head_bytes: head.len() as u16,
            fragments,
            is_marked,
            wire_offset: layout.wire_bytes,
        });
        if !is_known {
            layout.heads.extend_from_slice(head);
        }
        layout.pieces.extend_from_slice(pieces);
        layout.packets += packets;
        layout.wire_bytes += u64::from(packets) * (rtp::HEADER_BYTES + head.len()) as u64;
        layout.wire_bytes += u64::from(file_bytes);
        true
    }

    /// Returns the layout, with all bytes of its packets in memory: the written ranges are those of
    /// `media`, not of a file. Panics if they exceed it.
    pub fn finish_with(self, media: &[u8]) -> Layout {
        self.finish().with_media(media)
    }

    /// The layout.
    pub fn finish(mut self) -> Layout {
        let layout = &mut self.layout;
        layout.units.pop_if(|last| last.first_packet == layout.packets);
        layout.rows.shrink_to_fit();
        layout.units.shrink_to_fit();
        layout.pieces.shrink_to_fit();
        layout.heads.shrink_to_fit();
        self.layout
    }
}
