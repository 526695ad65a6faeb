// SPDX-License-Identifier: MIT OR Apache-2.0
//! The layout of a chapter: its RTP packets as header bytes and ranges of the file.
//!
//! A record stands for a row of packets that one call can send: the fragments of a NAL unit, all of
//! one size but the last, or one packet by itself. It holds the bytes behind the RTP header and the
//! ranges of the file; sequence number, timestamp and SSRC are the session's. Costs 48 bytes a
//! record and 16 a range: an hour of pictures of one slice each at 25 a second takes 6 MB, one of
//! AAC 3 MB. Look-ups are binary searches; nothing is parsed and nothing allocated for a session.
//!
//! Sources: RFC 3550 §5.1; the fragment headers of RFC 6184 §5.8, RFC 7798 §4.4.3, RFC 2250 §3.5,
//! RFC 4184 §4.1.1 and the AV1 payload format §4.4.
//! Does not know codecs: payloaders write records with [`LayoutWriter`].

use std::ops::Range;

use wire::rtp;

use super::fragments::Fragments;
use crate::tracks::TRACKS_MAX;

/// Largest RTP packet, header included: it passes an Ethernet of 1500 bytes with IPv6, and most
/// tunnels.
pub const PACKET_BYTES_MAX: usize = 1400;

/// Largest payload of a packet, the payload format's own header included.
pub const PAYLOAD_BYTES_MAX: usize = PACKET_BYTES_MAX - rtp::HEADER_BYTES;

/// Bytes that a record may put before the file's: a packet of parameter sets has nothing else.
const HEAD_BYTES_MAX: usize = PAYLOAD_BYTES_MAX;

/// Ranges of the file in one packet: a send call takes 1024 in all.
pub const PIECES_MAX: usize = 16;

/// Units of a chapter that are read for all tracks of pictures, padding and broken ones included:
/// 60 pictures of 600 slices, the most that a level of H.264 allows, and as many again. At a third
/// of a microsecond each, a file that is nothing but units holds a reader thread for 20 ms a second.
pub const UNITS_READ_MAX: u32 = 1 << 16;

/// Packets of a chapter, of all tracks of pictures or of sound: a second of 700 Mb/s.
pub const PACKETS_MAX: u32 = 1 << 16;

/// Rows among which a packet without bytes of the file is looked for.
const KNOWN_ROWS: usize = 512;

/// The longest time over which the packets of one unit are spread: that of a picture at 25 a
/// second. Those of a picture that is shown for long must not arrive as late as it ends.
const SPREAD_TICKS_MAX: u64 = crate::TICKS_PER_SECOND / 25;

/// A range of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePiece {
    /// Its start.
    pub file_offset: u64,
    /// Its length.
    pub bytes: u32,
}

/// A row of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    first_packet: u32,
    unit: u32,
    first_piece: u32,
    head_at: u32,
    /// Bytes of the file in all its packets.
    file_bytes: u32,
    /// Bytes of the file in each of its packets but the last.
    packet_file_bytes: u16,
    head_bytes: u16,
    fragments: Fragments,
    /// True when its last packet has the marker bit.
    is_marked: bool,
    /// Bytes of all packets before, RTP headers included.
    wire_offset: u64,
}

/// Packets of one time: an access unit, or frames of sound that share a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unit {
    first_packet: u32,
    timestamp: u32,
    due_ticks: u64,
    spread_ticks: u32,
    timestamp_step: u16,
    is_start: bool,
}

/// Times of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitTimes {
    /// When its first packet is due.
    pub due_ticks: u64,
    /// Time until the next unit is due.
    pub duration_ticks: u64,
    /// Its RTP timestamp, counted from that of the title's start.
    pub timestamp: u32,
    /// True when play can start with it.
    pub is_start: bool,
}

/// The packets of a track in a chapter; there may be none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    rows: Vec<Row>,
    units: Vec<Unit>,
    pieces: Vec<FilePiece>,
    heads: Vec<u8>,
    packets: u32,
    wire_bytes: u64,
    /// Parts of samples that could not be laid out.
    faults: u32,
}

/// Values of the RTP headers of a session's track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtpValues {
    /// Payload type.
    pub payload_type: u8,
    /// Synchronisation source.
    pub ssrc: u32,
    /// Sequence number of packet 0 of the chapter; wraps.
    pub sequence: u16,
    /// Timestamp of the title's start; wraps.
    pub timestamp: u32,
}

/// Neighbouring packets that one call can send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketRow {
    /// Number of packets.
    pub packets: u32,
    /// Bytes of each but the last, RTP header included.
    pub packet_bytes: u32,
}

impl Unit {
    /// The RTP timestamp of a packet of it, counted from that of the title's start.
    fn timestamp_of(&self, packet: u32) -> u32 {
        let before = (packet - self.first_packet).wrapping_mul(self.timestamp_step.into());
        self.timestamp.wrapping_add(before)
    }
}

impl Layout {
    /// Number of packets.
    pub fn packets(&self) -> u32 {
        self.packets
    }

    /// Bytes of all packets, RTP headers included.
    pub fn wire_bytes(&self) -> u64 {
        self.wire_bytes
    }

    /// Parts of samples that could not be laid out, and are not sent.
    pub fn faults(&self) -> u32 {
        self.faults
    }

    /// Memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Row>()
            + self.units.capacity() * size_of::<Unit>()
            + self.pieces.capacity() * size_of::<FilePiece>()
            + self.heads.capacity()
    }

    /// Time at which `packet` is due. Never less than for the packet before. Panics past the end.
    pub fn ticks(&self, packet: u32) -> u64 {
        let (unit, packets) = self.unit_of(packet);
        let before = u64::from(packet - unit.first_packet);
        unit.due_ticks + u64::from(unit.spread_ticks) * before / u64::from(packets)
    }

    /// Number of packets due before `ticks`.
    pub fn packets_before(&self, ticks: u64) -> u32 {
        let after = self.units.partition_point(|unit| unit.due_ticks < ticks);
        let Some(unit) = after.checked_sub(1).map(|at| self.units[at]) else { return 0 };
        let end = self.units.get(after).map_or(self.packets, |next| next.first_packet);
        let packets = u64::from(end - unit.first_packet);
        // The first k with spread · k / packets ≥ passed, rounded down as in `ticks`.
        let passed = ticks - unit.due_ticks;
        let spread = u64::from(unit.spread_ticks);
        let before = match passed >= spread {
            true => packets,
            false => (passed * packets).div_ceil(spread),
        };
        unit.first_packet + before as u32
    }

    /// Number of packets due before `ticks`, or a few more: all of the row that would be cut there,
    /// if the rest of it is due before `later`. A row is sent by one call, and each cut costs one.
    pub fn packets_in_rows_before(&self, ticks: u64, later: u64) -> u32 {
        let before = self.packets_before(ticks);
        if before == 0 || before == self.packets {
            return before;
        }
        let end = self.row_end(self.row_index(before - 1));
        if end > before && self.ticks(end - 1) < later { end } else { before }
    }

    /// First packet of the first unit from `packet` on with which play can start.
    pub fn start_from(&self, packet: u32) -> Option<u32> {
        let at = self.units.partition_point(|unit| unit.first_packet < packet);
        self.units[at..].iter().find(|unit| unit.is_start).map(|unit| unit.first_packet)
    }

    /// First packet of the first unit that is due at `ticks` or later.
    pub fn unit_due(&self, ticks: u64) -> u32 {
        let at = self.units.partition_point(|unit| unit.due_ticks < ticks);
        self.units.get(at).map_or(self.packets, |unit| unit.first_packet)
    }

    /// The RTP timestamp of `packet`, counted from that of the title's start. Panics past the end.
    pub fn timestamp(&self, packet: u32) -> u32 {
        self.unit_of(packet).0.timestamp_of(packet)
    }

    /// Packets from `packet` on, `limit` at most, that are all of one size but the last, which may
    /// be shorter. Panics past the end.
    pub fn row(&self, packet: u32, limit: u32) -> PacketRow {
        let at = self.row_index(packet);
        let row = &self.rows[at];
        let left = self.row_end(at) - packet;
        PacketRow {
            packets: left.min(limit),
            packet_bytes: self.packet_bytes(at, packet - row.first_packet),
        }
    }

    /// Octets of the payloads of `packets`, without RTP headers.
    pub fn payload_bytes(&self, packets: Range<u32>) -> u64 {
        let headers = u64::from(packets.end - packets.start) * rtp::HEADER_BYTES as u64;
        self.wire_offset(packets.end) - self.wire_offset(packets.start) - headers
    }

    /// Bytes of all packets before `packet`, RTP headers included.
    pub fn wire_offset(&self, packet: u32) -> u64 {
        if packet >= self.packets {
            return self.wire_bytes;
        }
        let row = &self.rows[self.row_index(packet)];
        let before = u64::from(packet - row.first_packet);
        let bytes =
            rtp::HEADER_BYTES as u64 + u64::from(row.head_bytes) + u64::from(row.packet_file_bytes);
        row.wire_offset + before * bytes
    }

    /// Bytes of the headers of a packet: RTP's and those of the payload format.
    pub fn head_bytes(&self, packet: u32) -> usize {
        rtp::HEADER_BYTES + usize::from(self.rows[self.row_index(packet)].head_bytes)
    }

    /// Writes the headers of `packets`, all of one row, behind `heads`: RTP's and those of the
    /// payload format. Panics past the end of the row.
    pub fn write_heads(&self, packets: Range<u32>, values: &RtpValues, heads: &mut Vec<u8>) {
        let at = self.row_index(packets.start);
        let (row, end) = (&self.rows[at], self.row_end(at));
        assert!(packets.end <= end, "{packets:?} of a row that ends with {end}");
        let unit = &self.units[row.unit as usize];
        for packet in packets {
            let header = rtp::Header {
                marker: packet + 1 == end && row.is_marked,
                payload_type: values.payload_type,
                sequence: values.sequence.wrapping_add(packet as u16),
                timestamp: values.timestamp.wrapping_add(unit.timestamp_of(packet)),
                ssrc: values.ssrc,
            };
            heads.extend_from_slice(&header.write());
            self.write_own_head(at, packet - row.first_packet, heads);
        }
    }

    /// Writes the headers of one packet; see [`Layout::write_heads`].
    pub fn write_head(&self, packet: u32, values: &RtpValues, heads: &mut Vec<u8>) {
        self.write_heads(packet..packet + 1, values, heads);
    }

    /// Writes the header bytes of packet `index` of a row that lie behind RTP's.
    fn write_own_head(&self, at: usize, index: u32, heads: &mut Vec<u8>) {
        let (row, from) = (&self.rows[at], heads.len());
        let is_last = row.first_packet + index + 1 == self.row_end(at);
        // Packets without bytes of the file have bytes of their own each.
        let own = if row.file_bytes == 0 { index as usize } else { 0 };
        let head = row.head_at as usize + own * usize::from(row.head_bytes);
        heads.extend_from_slice(&self.heads[head..head + usize::from(row.head_bytes)]);
        let skipped = index * u32::from(row.packet_file_bytes);
        row.fragments.mark(&mut heads[from..], (index == 0, is_last), skipped);
    }

    /// The same packets, with the bytes of their ranges in memory: those of `media`, to which the
    /// ranges refer. The last packet of a row is one by itself where it is shorter: a call sends
    /// heads of one size.
    fn with_media(self, media: &[u8]) -> Layout {
        let mut heads = Vec::with_capacity(self.wire_bytes as usize);
        let mut rows: Vec<Row> = Vec::with_capacity(self.rows.len());
        for (at, row) in self.rows.iter().enumerate() {
            let last = self.row_end(at) - 1;
            let mut before = 0;
            for packet in row.first_packet..=last {
                let head_at = heads.len();
                self.write_own_head(at, packet - row.first_packet, &mut heads);
                self.write_pieces(packet..packet + 1, |piece| {
                    let from = piece.file_offset as usize;
                    heads.extend_from_slice(&media[from..from + piece.bytes as usize]);
                });
                let head_bytes = (heads.len() - head_at) as u16;
                if head_bytes != before {
                    if packet > row.first_packet {
                        // The mark is that of the row's last packet.
                        rows.last_mut().expect("it has a packet before").is_marked = false;
                    }
                    rows.push(Row {
                        first_packet: packet,
                        first_piece: 0,
                        head_at: head_at as u32,
                        file_bytes: 0,
                        packet_file_bytes: 0,
                        head_bytes,
                        fragments: Fragments::Alike,
                        wire_offset: self.wire_offset(packet),
                        ..*row
                    });
                }
                before = head_bytes;
            }
        }
        heads.shrink_to_fit();
        Layout { rows, heads, pieces: Vec::new(), ..self }
    }

    /// Calls `piece` with each range of the file that `packets`, all of one row, carry.
    pub fn write_pieces(&self, packets: Range<u32>, mut piece: impl FnMut(FilePiece)) {
        let at = self.row_index(packets.start);
        let row = &self.rows[at];
        let bytes = u32::from(row.packet_file_bytes);
        let mut skip = (packets.start - row.first_packet) * bytes;
        let end = (packets.end - row.first_packet).saturating_mul(bytes).min(row.file_bytes);
        let mut left = end - skip;
        for &whole in &self.pieces[row.first_piece as usize..self.pieces_end(at)] {
            if skip >= whole.bytes {
                skip -= whole.bytes;
                continue;
            }
            let taken = (whole.bytes - skip).min(left);
            if taken > 0 {
                let file_offset = whole.file_offset + u64::from(skip);
                piece(FilePiece { file_offset, bytes: taken });
            }
            (skip, left) = (0, left - taken);
        }
    }

    /// All ranges of the file that the chapter's packets carry.
    pub fn pieces(&self) -> &[FilePiece] {
        &self.pieces
    }

    /// Offset of these header bytes where a packet lately had the same and nothing else: parameter
    /// sets are sent again and again. The end of all where none had.
    fn known_head(&self, head: &[u8]) -> u32 {
        let recent = self.rows.iter().rev().take(KNOWN_ROWS).find(|row| {
            let at = row.head_at as usize;
            row.file_bytes == 0 && self.heads[at..at + usize::from(row.head_bytes)] == *head
        });
        recent.map_or(self.heads.len() as u32, |row| row.head_at)
    }

    fn unit_of(&self, packet: u32) -> (Unit, u32) {
        assert!(packet < self.packets, "packet {packet} of {}", self.packets);
        let after = self.units.partition_point(|unit| unit.first_packet <= packet);
        let unit = self.units[after - 1];
        let end = self.units.get(after).map_or(self.packets, |next| next.first_packet);
        (unit, end - unit.first_packet)
    }

    fn row_index(&self, packet: u32) -> usize {
        assert!(packet < self.packets, "packet {packet} of {}", self.packets);
        self.rows.partition_point(|row| row.first_packet <= packet) - 1
    }

    fn row_end(&self, row: usize) -> u32 {
        self.rows.get(row + 1).map_or(self.packets, |next| next.first_packet)
    }

    fn pieces_end(&self, row: usize) -> usize {
        self.rows.get(row + 1).map_or(self.pieces.len(), |next| next.first_piece as usize)
    }

    /// Bytes of packet `index` of a row, RTP header included.
    fn packet_bytes(&self, row: usize, index: u32) -> u32 {
        let row = &self.rows[row];
        let skipped = index * u32::from(row.packet_file_bytes);
        let carried = (row.file_bytes - skipped).min(u32::from(row.packet_file_bytes));
        rtp::HEADER_BYTES as u32 + u32::from(row.head_bytes) + carried
    }
}

/// Writes the layout of a chapter, unit by unit.
#[derive(Debug, Default)]
pub struct LayoutWriter {
    layout: Layout,
    /// Units that have been looked for.
    units_read: u32,
    /// Other tracks, with which the limits of a chapter are shared.
    others: u32,
}

impl LayoutWriter {
    /// A writer for one of so many tracks of a file: together they have [`PACKETS_MAX`] packets in
    /// a chapter, and read [`UNITS_READ_MAX`] units.
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

    /// Begins a unit whose packets have timestamps of their own, `timestamp_step` apart.
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

    /// Adds packets that carry `bytes` and nothing of the file, `each` of them a packet: what was
    /// made when the chapter was laid out. Counts a fault instead where `bytes` are not a multiple
    /// of `each`, or a packet would be larger than it may be.
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

    /// Adds one packet: `head` behind the RTP header, then `pieces` of the file. Counts a fault
    /// instead where it is empty or larger than a packet may be.
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

    /// Adds the fragments of `piece`: each has `head` (with what [`Fragments`] says) behind the RTP
    /// header. All are as long as a packet may be, but the last: so long rows of a track have
    /// packets of one size, and a socket is told the size for segmentation once and not for every
    /// picture.
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
    /// Counts a fault instead where a packet would be larger than it may be.
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

    /// Counts a unit that is about to be read from the file, of any kind; false, and a fault, where
    /// the chapter has had the track's share of [`UNITS_READ_MAX`].
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

    /// True when the chapter takes no more packets.
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

    /// The layout, with all bytes of its packets in memory: the ranges that were written are those
    /// of `media`, not of a file. Panics if they do not lie in it.
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
