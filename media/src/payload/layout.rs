// SPDX-License-Identifier: MIT OR Apache-2.0
//! A layout describes the RTP packets of a chapter as header bytes and ranges of the file.
//!
//! A record describes a row of packets that one call can send: the fragments of a NAL unit, all of
//! one size but the last, or a single packet. It holds the bytes after the RTP header and the
//! ranges of the file; sequence number, timestamp and SSRC are the session's. Costs 48 bytes a
//! record and 16 a range: an hour of pictures of one slice each at 25 a second needs 6 MB, one of
//! AAC 3 MB. Look-ups are binary searches; nothing is parsed and nothing allocated for a session.
//!
//! Sources: RFC 3550 §5.1; the fragment headers of RFC 6184 §5.8, RFC 7798 §4.4.3, RFC 2250 §3.5,
//! RFC 4184 §4.1.1 and the AV1 payload format §4.4.
//! Does not know codecs: payloaders write records with [`LayoutWriter`].

mod writer;

pub use writer::LayoutWriter;

use std::ops::Range;

use wire::rtp;

use super::fragments::Fragments;

/// Largest RTP packet, header included: it passes an Ethernet of 1500 bytes with IPv6, and most
/// tunnels.
pub const PACKET_BYTES_MAX: usize = 1400;

/// Largest payload of a packet, the payload format's own header included.
pub const PAYLOAD_BYTES_MAX: usize = PACKET_BYTES_MAX - rtp::HEADER_BYTES;

/// Most bytes of a record before those of the file: a packet of parameter sets has nothing else.
const HEAD_BYTES_MAX: usize = PAYLOAD_BYTES_MAX;

/// Most ranges of the file in one packet: a send call accepts 1024 in all.
pub const PIECES_MAX: usize = 16;

/// Units of a chapter that are read for all tracks of pictures, padding and broken ones included:
/// 60 pictures of 600 slices, the most that a level of H.264 allows, and as many again. At a third
/// of a microsecond each, a file that is nothing but units holds a reader thread for 20 ms a
/// second.
pub const UNITS_READ_MAX: u32 = 1 << 16;

/// Packets of a chapter, of all tracks of pictures or of sound: a second of 700 Mb/s.
pub const PACKETS_MAX: u32 = 1 << 16;

/// Rows that are searched for a packet without bytes of the file.
const KNOWN_ROWS: usize = 512;

/// Longest time over which the packets of one unit are spread: that of a picture at 25 a second.
/// The packets of a picture with a long duration must not be delayed until its end.
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
    /// True if its last packet has the marker bit.
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
    /// Time until the next unit is due, over which its packets are spread; zero if they are sent at
    /// once.
    pub duration_ticks: u64,
    /// Its RTP timestamp, from the title's start.
    pub timestamp: u32,
    /// True if play can start with it.
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
    /// Returns the RTP timestamp of one of its packets, from the title's start.
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

    /// Memory used.
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

    /// Returns the RTP timestamp of `packet`, from the title's start. Panics past the end.
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

    /// Writes the headers of `packets`, all of one row, to `heads`: RTP's and those of the payload
    /// format. Panics past the end of the row.
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

    /// Writes the header bytes of packet `index` of a row that follow the RTP header.
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

    /// Returns the same packets, with the bytes of their ranges in memory: those of `media`, to
    /// which the ranges refer. A shorter last packet of a row becomes a row of its own: a call
    /// sends heads of one size.
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
                        // The marker bit is that of the row's last packet.
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
            let bytes_here = (whole.bytes - skip).min(left);
            if bytes_here > 0 {
                let file_offset = whole.file_offset + u64::from(skip);
                piece(FilePiece { file_offset, bytes: bytes_here });
            }
            (skip, left) = (0, left - bytes_here);
        }
    }

    /// All ranges of the file that the chapter's packets carry.
    pub fn pieces(&self) -> &[FilePiece] {
        &self.pieces
    }

    /// Returns the offset of these header bytes if a recent packet had the same and nothing else:
    /// parameter sets are sent repeatedly. Otherwise the end of all header bytes.
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
