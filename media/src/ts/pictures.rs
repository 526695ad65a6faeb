// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lays out single pictures of a transport stream, each sent at its own time, for fast forward and
//! reverse play.
//!
//! A picture is the access unit of an entry point ([`EntryPoint`]): the payload of its packets up
//! to the next unit of the same PID. It is sent after a clock reference, with the tables that
//! precede it in the file, or with the file's first tables, and with the parameter sets that it
//! lacks. Its packets are rebuilt: presentation time and clock are those of the new timeline, and
//! its payload is spread over a multiple of 16 packets, so that continuity counters depend on the
//! picture alone and match between any two pictures. Null packets fill the last RTP packet. Between
//! pictures the clock continues in separate packets, 40 ms apart.
//!
//! Costs reading (at most 20 MB per picture, in a file where pictures are hard to find) and two
//! copies of the picture's bytes, once for all sessions; at most 15 packets of 188 bytes beyond the
//! payload. Memory: the picture, at most [`PICTURE_BYTES_MAX`].
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.2 to §2.4.3.7; ETSI TS 101 154 §4.1.5 (clock references every 40
//! ms); RFC 2250 §2.
//! Does not send audio, and does not choose pictures ([`crate::trick`]).

use std::io;

use wire::mp2t;

use super::packet_reader::{PacketBytes, PacketReader};
use super::pes_times::{PesTimes, TIME_MODULUS};
use super::rewrite::{COUNTER_PACKETS, clock_packet, spread};
use super::stream_types::is_video;
use super::tables::TableReader;
use super::{NULL_PID, SYNC_BYTE, TsHeader, TsPacket};
use crate::payload::{LayoutWriter, UnitTimes};
use crate::plan::{EntryPoint, PacketPlan};
use crate::{ReadAt, TICKS_PER_SECOND, TICKS_PER_TIMESTAMP, TS_PACKET_BYTES};

/// A picture and its send time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TrickPicture {
    /// Its number on the timeline; the continuity counters of tables are computed from it.
    pub(crate) number: u64,
    /// Its entry point in the file.
    pub(crate) entry: EntryPoint,
    /// Its time since the beginning of the timeline.
    pub(crate) ticks: u64,
    /// Times of its packets.
    pub(crate) times: UnitTimes,
}

/// Largest picture that is sent: larger than a key frame of any profile that a transport stream
/// carries.
const PICTURE_BYTES_MAX: usize = 4 << 20;

/// Transport stream packets searched for a picture: four times its size, for packets of other
/// streams in between.
const UNIT_PACKETS_MAX: u64 = (4 * PICTURE_BYTES_MAX / TS_PACKET_BYTES) as u64;

/// Most transport stream packets read between tables and picture, or before the first tables of a
/// file.
const LEAD_PACKETS_MAX: u64 = 1 << 14;

/// Table packets that are sent with a picture.
const TABLE_PACKETS_MAX: usize = 16;

/// Time from a picture's clock reference to its presentation: the whole picture arrives before.
const PRESENTED_AFTER: u64 = 200 * TICKS_PER_SECOND / 1000;

/// Distance of clock references.
const CLOCK_TICKS: u64 = TICKS_PER_SECOND / 25;

/// Time for which the clock continues after a picture: no group of pictures is longer.
const CLOCK_FOR_TICKS: u64 = 60 * TICKS_PER_SECOND;

/// Bytes of a PES header up to and including PES_header_data_length.
const PES_HEADER_BYTES: usize = 9;

/// Transport stream packets of one RTP packet.
const PER_PACKET: usize = mp2t::TS_PACKETS_PER_PAYLOAD;

/// Lays out a picture and the clock references up to the next picture. A picture that is not found
/// in the file, or is scrambled, is omitted and counted ([`crate::payload::Layout::faults`]).
///
/// # Errors
/// `file` cannot be read.
pub(crate) fn lay_out(
    plan: &PacketPlan,
    picture: &TrickPicture,
    file: &(impl ReadAt + ?Sized),
    out: &mut LayoutWriter,
) -> io::Result<()> {
    let Some(found) = FoundPicture::find(plan, picture.entry, file)? else {
        // A file may begin in the middle of its first picture.
        if picture.entry.access_unit > 0 {
            out.fault();
        }
        return Ok(());
    };
    out.unit(picture.times);
    let packets = found.packets(picture);
    out.rows(&packets, PER_PACKET * TS_PACKET_BYTES);
    let mut passed = CLOCK_TICKS;
    while passed < picture.times.duration_ticks.min(CLOCK_FOR_TICKS) {
        out.unit(UnitTimes {
            due_ticks: picture.times.due_ticks + passed,
            duration_ticks: 0,
            timestamp: picture.times.timestamp.wrapping_add((passed / TICKS_PER_TIMESTAMP) as u32),
            is_start: false,
        });
        out.rows(&found.clock(picture.ticks + passed), TS_PACKET_BYTES);
        passed += CLOCK_TICKS;
    }
    Ok(())
}

/// Finds the picture of an entry point. Returns its stream type and its bytes in the elementary
/// stream; none if it is not found or is scrambled.
///
/// # Errors
/// `file` cannot be read.
pub(crate) fn key_unit(
    plan: &PacketPlan,
    entry: EntryPoint,
    file: &(impl ReadAt + ?Sized),
) -> io::Result<Option<(u8, Vec<u8>)>> {
    let Some(found) = FoundPicture::find(plan, entry, file)? else { return Ok(None) };
    let header = found.payload.get(PES_HEADER_BYTES - 1).map(|&more| usize::from(more));
    let stream = plan.streams().iter().find(|stream| stream.pid == found.pid);
    let (Some(header), Some(stream)) = (header, stream) else { return Ok(None) };
    let unit = found.payload.get(PES_HEADER_BYTES + header..);
    Ok(unit.map(|unit| (stream.stream_type, unit.to_vec())))
}

/// A picture as found in the file.
struct FoundPicture {
    /// Packets of the PAT and of the programme's PMT.
    tables: Vec<PacketBytes>,
    pid: u16,
    pcr_pid: u16,
    /// The PES packet.
    payload: Vec<u8>,
}

impl FoundPicture {
    fn find(
        plan: &PacketPlan,
        entry: EntryPoint,
        file: &(impl ReadAt + ?Sized),
    ) -> io::Result<Option<FoundPicture>> {
        let mut found = FoundTables::default();
        let lead = entry.access_unit.saturating_sub(LEAD_PACKETS_MAX).max(entry.ts_packet);
        let mut packets = PacketReader::new(plan, lead, file);
        while packets.next_packet() < entry.access_unit && !found.is_whole() {
            let Some(bytes) = packets.read()? else { return Ok(None) };
            found.take(&bytes);
        }
        if !found.is_whole() {
            found = FoundTables::default();
            let mut packets = PacketReader::new(plan, 0, file);
            while !found.is_whole() && packets.next_packet() < LEAD_PACKETS_MAX {
                let Some(bytes) = packets.read()? else { return Ok(None) };
                found.take(&bytes);
            }
        }
        let Some(map) = found.reader.map() else { return Ok(None) };
        let pcr_pid = map.pcr_pid;
        let is_picture = |pid| map.streams.iter().any(|&(own, kind)| own == pid && is_video(kind));
        let access_unit = match entry.access_unit {
            // The file's beginning: the access unit lies at some later packet.
            0 => first_unit(PacketReader::new(plan, 0, file), is_picture)?,
            known => Some(known),
        };
        let Some(access_unit) = access_unit else { return Ok(None) };
        packets.seek(access_unit);
        let Some((pid, mut payload)) = unit(&mut packets)? else { return Ok(None) };
        if let Some(sets) = plan.lacking_sets(access_unit) {
            sets.put_into(&mut payload);
        }
        let has_times = matches!(PesTimes::find(&payload), PesTimes::Some(..));
        let tables = found.packets;
        Ok((is_picture(pid) && has_times).then_some(FoundPicture { tables, pid, pcr_pid, payload }))
    }

    /// Builds the transport stream packets of the picture; their number is a multiple of that of an
    /// RTP packet.
    fn packets(&self, picture: &TrickPicture) -> Vec<u8> {
        let mut out = self.clock(picture.ticks);
        // The same number of table packets was sent with each previous picture.
        let mut counters = Counters { before: picture.number, packets: &self.tables };
        for (index, packet) in self.tables.iter().enumerate() {
            let mut packet = *packet;
            packet[3] = packet[3] & 0xf0 | counters.of(index);
            out.extend_from_slice(&packet);
        }
        let mut payload = self.payload.clone();
        let presented = (picture.ticks + PRESENTED_AFTER) / TICKS_PER_TIMESTAMP % TIME_MODULUS;
        PesTimes::find(&payload).set(presented, &mut payload);
        spread(self.pid, &payload, (0, true), &mut out);
        while !(out.len() / TS_PACKET_BYTES).is_multiple_of(PER_PACKET) {
            out.extend_from_slice(&null_packet());
        }
        out
    }

    /// Builds the packet with the clock reference of a time.
    fn clock(&self, ticks: u64) -> Vec<u8> {
        // A packet without payload does not increment the counter (§2.4.3.3): it repeats the last
        // one.
        let counter = if self.pcr_pid == self.pid { COUNTER_PACKETS as u8 - 1 } else { 0 };
        clock_packet(self.pcr_pid, counter, ticks % super::PCR_MODULUS).to_vec()
    }
}

/// Continuity counters of table packets.
struct Counters<'a> {
    /// Number of previous pictures.
    before: u64,
    packets: &'a [PacketBytes],
}

impl Counters<'_> {
    fn of(&mut self, index: usize) -> u8 {
        let pid = |bytes: &PacketBytes| TsHeader::read(bytes).pid();
        let own = pid(&self.packets[index]);
        let same = |packets: &[PacketBytes]| packets.iter().filter(|p| pid(p) == own).count();
        let each = same(self.packets) as u64;
        (self.before.wrapping_mul(each) as usize + same(&self.packets[..index])) as u8 & 15
    }
}

fn null_packet() -> PacketBytes {
    let mut bytes = [0xff; TS_PACKET_BYTES];
    let [high, low] = NULL_PID.to_be_bytes();
    bytes[..4].copy_from_slice(&[SYNC_BYTE as u8, high, low, 0x10]);
    bytes
}

/// Returns the first packet that starts a unit of a video PID and has a random_access_indicator.
fn first_unit<F: ReadAt + ?Sized>(
    mut packets: PacketReader<'_, F>,
    is_picture: impl Fn(u16) -> bool,
) -> io::Result<Option<u64>> {
    while packets.next_packet() < LEAD_PACKETS_MAX
        && let Some(bytes) = packets.read()?
    {
        let packet = TsPacket { header: TsHeader::read(&bytes), bytes: &bytes };
        let header = packet.header;
        if header.starts_unit() && is_picture(header.pid()) && packet.adaptation().random_access {
            return Ok(Some(packets.next_packet() - 1));
        }
    }
    Ok(None)
}

/// Reads the unit that starts in the next packet. Returns its PID and payload; none if there is no
/// such unit.
fn unit<F: ReadAt + ?Sized>(
    packets: &mut PacketReader<'_, F>,
) -> io::Result<Option<(u16, Vec<u8>)>> {
    let mut payload = Vec::new();
    let mut unit = None;
    let end = packets.next_packet() + UNIT_PACKETS_MAX;
    while packets.next_packet() < end
        && let Some(bytes) = packets.read()?
    {
        let packet = TsPacket { header: TsHeader::read(&bytes), bytes: &bytes };
        let header = packet.header;
        match unit {
            None if header.starts_unit() => unit = Some(header.pid()),
            None => return Ok(None),
            Some(pid) if header.pid() != pid => continue,
            Some(_) if header.starts_unit() => break,
            Some(_) => {}
        }
        if header.is_scrambled() || header.is_damaged() {
            return Ok(None);
        }
        payload.extend_from_slice(packet.payload());
        if payload.len() > PICTURE_BYTES_MAX {
            return Ok(None);
        }
    }
    // Each of the 16 packets needs at least one byte.
    Ok(unit.map(|pid| (pid, payload)).filter(|(_, payload)| payload.len() >= COUNTER_PACKETS))
}

/// The tables found so far.
#[derive(Default)]
struct FoundTables {
    reader: TableReader,
    packets: Vec<PacketBytes>,
    seen: u64,
}

impl FoundTables {
    /// True if a decoder that receives these packets can identify the programme's streams.
    fn is_whole(&self) -> bool {
        self.reader.complete_from().is_some()
    }

    fn take(&mut self, bytes: &PacketBytes) {
        let packet = TsPacket { header: TsHeader::read(bytes), bytes };
        self.seen += 1;
        let is_table = self.reader.pids().any(|pid| pid == packet.header.pid());
        if !is_table || packet.header.is_damaged() || self.packets.len() == TABLE_PACKETS_MAX {
            return;
        }
        self.packets.push(*bytes);
        self.reader.feed(self.seen, &packet);
    }
}
