// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the tables at the entry points of a file that has a plan.
//!
//! A plan contains the entry points, the ends of their access units and the missing parameter sets,
//! but neither the tables nor the presentation times of the file. These are read from the packets
//! between each entry point and its access unit: one read of 64 KiB per entry point if the tables
//! directly precede the unit, more if they are earlier. If no tables lie there, those of an earlier
//! entry point apply. The first entry of a plan is at packet zero, whatever lies there; here it is
//! moved to the first access unit. The end of presentation is read from the last 1.5 MB.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.6 (times), §2.4.4 (tables).
//! Does not examine the packets in between: a table change there takes effect at the next entry
//! point.

use std::io;

use super::access::chosen_pid;
use super::lead::{EntryPoints, ROW_MAX, TablePackets};
use super::packet_reader::PacketReader;
use super::pes_times::presentation_of;
use super::tables::{SERVICE_PIDS, TableReader};
use super::{TsHeader, TsPacket};
use crate::ReadAt;
use crate::plan::{EntryPoint, PacketPlan};

/// Packets at the beginning that are searched for tables: 750 KiB.
const BEGINNING_PACKETS: u64 = 4096;

/// Packets read between an entry point and its access unit: half a second at 50 Mb/s.
const LEAD_PACKETS_MAX: u64 = 16 << 10;

/// Packets at the end that are searched for times: a second at 12 Mb/s.
const TAIL_PACKETS: u64 = 8192;

/// Longest distance of two pictures that is used as the duration of the last.
const PICTURE_MAX: u64 = 90_000;

/// Returns the entry points of the file with this plan, with their tables and times.
///
/// # Errors
/// `file` cannot be read.
pub fn entry_points(plan: &PacketPlan, file: &(impl ReadAt + ?Sized)) -> io::Result<EntryPoints> {
    let (mut starts, pid) = read_places(plan, &places(plan, file)?, BEGINNING_PACKETS, file)?;
    starts.end = pid.map_or(Ok(None), |pid| presented_end(plan, file, pid))?;
    Ok(starts)
}

/// First packets of a stream that starts at an entry point whose access unit lacks parameter sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryLead {
    /// Whole transport stream packets: the tables, the parameter sets, and the beginning of the
    /// access unit.
    pub packets: Vec<u8>,
    /// The packet of the plan that follows them. Packets between the entry point and the access
    /// unit are omitted: they may end a unit whose beginning was not sent.
    pub next: u64,
}

/// Returns the packets to send if play starts with `packet` of the plan, in place of the packets
/// before `next`; `None` if nothing is missing. If something is, this reads 64 KiB, and 750 KiB
/// more if the tables are earlier; otherwise nothing.
///
/// # Errors
/// `file` cannot be read.
pub fn entry_lead(
    plan: &PacketPlan,
    packet: u64,
    file: &(impl ReadAt + ?Sized),
) -> io::Result<Option<EntryLead>> {
    let Some(place) = plan.lacking_entry(packet) else { return Ok(None) };
    let next = plan.packet_of(place.access_unit) + 1;
    let near = (place.access_unit - place.ts_packet).min(LEAD_PACKETS_MAX);
    let mut packets = Vec::new();
    for before in [near, BEGINNING_PACKETS] {
        let (starts, _) = read_places(plan, &[*place], before, file)?;
        packets = starts.entries.first().map_or(packets, |(_, context)| starts.tables(context));
        if !packets.is_empty() {
            break;
        }
    }
    // Without tables a client cannot identify the sets, and without further packets no picture is
    // complete.
    if packets.is_empty() || next >= plan.packets() {
        return Ok(None);
    }
    let mut reader = PacketReader::new(plan, place.access_unit, file);
    while reader.next_packet() < plan.ts_packets() && plan.packet_of(reader.next_packet()) < next {
        let Some(bytes) = reader.read()? else { break };
        packets.extend_from_slice(&bytes);
    }
    Ok(Some(EntryLead { packets, next }))
}

/// Reads the tables and times at entry points of the plan, and the PID of their access units. For
/// the first entry point, reading begins `before_first` packets before its access unit.
fn read_places(
    plan: &PacketPlan,
    places: &[EntryPoint],
    before_first: u64,
    file: &(impl ReadAt + ?Sized),
) -> io::Result<(EntryPoints, Option<u16>)> {
    let mut tables = TableReader::default();
    let mut packets = TablePackets::default();
    let mut reader = PacketReader::new(plan, 0, file);
    let mut entries = Vec::with_capacity(places.len());
    let mut next = 0;
    let mut pid = None;
    for (number, entry) in places.iter().enumerate() {
        let from = match number {
            0 => entry.access_unit.saturating_sub(before_first),
            _ => {
                let least = entry.access_unit.saturating_sub(LEAD_PACKETS_MAX);
                entry.ts_packet.saturating_sub(ROW_MAX).max(least)
            }
        };
        if from > next {
            reader.seek(from);
            next = from;
        }
        let mut context = None;
        let is_other = |tables: &TableReader, pid| {
            SERVICE_PIDS.contains(&pid) && tables.map().and_then(chosen_pid) != Some(pid)
        };
        while next <= entry.access_unit {
            let Some(bytes) = reader.read()? else { break };
            let packet = TsPacket { header: TsHeader::read(&bytes), bytes: &bytes };
            if next == entry.access_unit {
                let at = packets.at(next, tables.complete_from()).of_unit(&packet);
                let at = at.lacking(plan.lacking(next));
                context = Some(at.of_packets(plan.unit_packets(next)));
                pid = Some(packet.header.pid());
            } else if tables.pids().any(|pid| pid == packet.header.pid()) {
                tables.feed(next, &packet);
                packets.feed(next, &packet, &tables);
            } else if is_other(&tables, packet.header.pid()) {
                packets.feed_service(next);
            }
            next += 1;
        }
        entries.extend(context.map(|context| (*entry, context)));
    }
    Ok((packets.into_starts(entries, plan.parameters().to_vec(), None), pid))
}

/// Returns the plan's entry points, the first of them at an access unit.
fn places(plan: &PacketPlan, file: &(impl ReadAt + ?Sized)) -> io::Result<Vec<EntryPoint>> {
    let mut places = plan.entries().to_vec();
    if let Some(first) = first_access_unit(plan, file)? {
        match places[..] {
            [zero, second, ..] if zero.access_unit == 0 && second.access_unit <= first => {
                places.remove(0);
            }
            [ref mut zero, ..] if zero.access_unit == 0 => zero.access_unit = first,
            _ => {}
        }
    }
    Ok(places)
}

/// Returns the first access unit with a time in the stream that has the entry points.
fn first_access_unit(plan: &PacketPlan, file: &(impl ReadAt + ?Sized)) -> io::Result<Option<u64>> {
    let mut tables = TableReader::default();
    let mut reader = PacketReader::new(plan, 0, file);
    for index in 0..BEGINNING_PACKETS {
        let Some(bytes) = reader.read()? else { break };
        let packet = TsPacket { header: TsHeader::read(&bytes), bytes: &bytes };
        let pid = packet.header.pid();
        if tables.pids().any(|table| table == pid) {
            tables.feed(index, &packet);
            continue;
        }
        let is_chosen = tables.map().and_then(chosen_pid) == Some(pid);
        // A unit at packet zero precedes all tables.
        if (is_chosen || index == 0) && presented(&packet).is_some() {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

/// Returns the end of presentation of a stream, in units of 90 kHz: the last picture is assumed as
/// long as the previous one.
fn presented_end(
    plan: &PacketPlan,
    file: &(impl ReadAt + ?Sized),
    pid: u16,
) -> io::Result<Option<u64>> {
    let mut reader = PacketReader::new(plan, 0, file);
    reader.seek(plan.ts_packets().saturating_sub(TAIL_PACKETS));
    let (mut last, mut before) = (None, None);
    while let Some(bytes) = reader.read()? {
        let packet = TsPacket { header: TsHeader::read(&bytes), bytes: &bytes };
        let time = presented(&packet).filter(|_| packet.header.pid() == pid);
        if time > last {
            (last, before) = (time, last);
        } else if time < last {
            before = time.max(before);
        }
    }
    Ok(last.zip(before).map(|(last, before)| last + (last - before).min(PICTURE_MAX)))
}

/// Returns the presentation time of the access unit that begins in a packet.
fn presented(packet: &TsPacket<'_>) -> Option<u64> {
    let begins = packet.header.starts_unit() && !packet.header.is_scrambled();
    presentation_of(packet.payload()).filter(|_| begins)
}
