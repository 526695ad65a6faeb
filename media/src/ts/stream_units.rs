// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tracks the last access units and the clock of an endless stream, to cut a channel there.
//!
//! A plan covers a file from its first packet on. This state drops everything before the last cut
//! ([`StreamUnits::forget_before`]), so its cost stays constant however long a channel runs.
//! Packets are numbered from the start of the stream. Times count from its first clock reference:
//! times of packets follow the clock, and presentation times are the exact difference between the
//! time of the PES packet and the first reference.
//!
//! Examines each header word, and whole packets of tables and of the first video stream. Needs
//! about 20 bytes per clock reference and 24 per retained access unit.
//!
//! Sources: ISO/IEC 13818-1 §2.4.2.2 (clock), §2.4.3.7 (times).
//! Does not search for sync bytes: a channel consists of whole packets. Follows one programme.

use super::access::EntryFinder;
use super::lead::{EntryContext, TablePackets};
use super::tables::{SERVICE_PIDS, TableChange, TableReader};
use super::unit_starts::RecordedStarts;
use super::{PCR_MODULUS, PIDS, TsHeader, TsPacket};
use crate::growing_times::CutClock;
use crate::{TICKS_PER_SECOND, TICKS_PER_TIMESTAMP, TS_PACKET_BYTES};

/// Limits for the presentation time of a picture relative to its first packet: latest and earliest.
/// Times outside are treated as wrong, for example those of a stopped timestamp counter.
const LEAD_TICKS_MAX: u64 = 10 * TICKS_PER_SECOND;
const LATE_TICKS_MAX: u64 = TICKS_PER_SECOND / 2;

/// Longest step of the clock; a longer step means that the clock was set.
const STEP_TICKS_MAX: u64 = 3600 * TICKS_PER_SECOND;

/// Packets (3 MB) within which an access unit must prove to be an entry point.
const UNDECIDED_MAX: u64 = 1 << 14;

/// Most pending programme changes that await their first key frame.
const JOINS_MAX: usize = 1024;

/// An entry point among the packets consumed so far.
#[derive(Debug, Clone, Copy)]
pub struct StreamEntry {
    /// First packet to play: the first of the tables directly before the access unit if it lacks
    /// nothing else, otherwise the first of the access unit.
    pub ts_packet: u64,
    /// Packet in which its access unit begins.
    pub access_unit: u64,
    context: EntryContext,
}

/// The last access units of a channel.
pub struct StreamUnits {
    packets: u64,
    /// True for PIDs that carry tables.
    has_tables: Box<[bool; PIDS]>,
    tables: TableReader,
    lead: TablePackets,
    access: EntryFinder,
    watched: Option<u16>,
    clock: StreamClock,
    /// Packets at which another programme starts, until its first key frame is found.
    joins: Vec<u64>,
    /// Access units before this packet were already checked for such key frames.
    joined_to: u64,
}

/// The last clock references of a stream.
#[derive(Default)]
pub(crate) struct StreamClock {
    /// Values of the first and the last reference.
    first: Option<u64>,
    last: u64,
    /// Packets and their times.
    points: Vec<(u64, u64)>,
}

impl CutClock for StreamClock {
    fn ticks_of(&self, packet: u64) -> u64 {
        let after = self.points.partition_point(|&(at, _)| at <= packet);
        match (after.checked_sub(1).map(|at| self.points[at]), self.points.get(after)) {
            (Some((at, ticks)), Some(&(next, next_ticks))) => {
                let part = u128::from(next_ticks - ticks) * u128::from(packet - at);
                ticks + (part / u128::from(next - at)) as u64
            }
            (Some((_, ticks)), None) => ticks,
            (None, Some(&(_, ticks))) => ticks,
            (None, None) => 0,
        }
    }

    fn byte_of(&self, packet: u64) -> u64 {
        packet * TS_PACKET_BYTES as u64
    }

    fn reference_from(&self, ticks: u64) -> Option<(u64, u64)> {
        self.points.get(self.points.partition_point(|&(_, time)| time < ticks)).copied()
    }

    fn reference_before(&self, packet: u64) -> u64 {
        let after = self.points.partition_point(|&(at, _)| at <= packet);
        after.checked_sub(1).map_or(0, |at| self.points[at].1)
    }
}

impl StreamClock {
    fn feed(&mut self, packet: u64, pcr: u64) {
        let Some(_) = self.first else {
            (self.first, self.last) = (Some(pcr), pcr);
            self.points.push((packet, 0));
            return;
        };
        let before = self.points.last().map_or(0, |&(_, ticks)| ticks);
        let step = (pcr + PCR_MODULUS - self.last) % PCR_MODULUS;
        self.last = pcr;
        self.points.push((packet, before + if step > STEP_TICKS_MAX { 0 } else { step }));
    }

    /// Returns the presentation time for a 90 kHz timestamp in a packet that is due at `ticks`.
    fn presented(&self, timestamp: u64, ticks: u64) -> Option<u64> {
        let due = (self.first? + ticks) % PCR_MODULUS;
        let lead = (timestamp * TICKS_PER_TIMESTAMP + PCR_MODULUS - due) % PCR_MODULUS;
        match (lead, PCR_MODULUS - lead) {
            (lead, _) if lead <= LEAD_TICKS_MAX => Some(ticks + lead),
            (_, late) if late <= LATE_TICKS_MAX => Some(ticks.saturating_sub(late)),
            _ => None,
        }
    }

    fn drop_before(&mut self, packet: u64) {
        let gone = self.points.partition_point(|&(at, _)| at <= packet).saturating_sub(1);
        self.points.drain(..gone);
    }
}

impl Default for StreamUnits {
    fn default() -> StreamUnits {
        let mut units = StreamUnits {
            packets: 0,
            has_tables: Box::new([false; PIDS]),
            tables: TableReader::default(),
            lead: TablePackets::of_channel(),
            access: EntryFinder::of_channel(),
            watched: None,
            clock: StreamClock::default(),
            joins: Vec::new(),
            joined_to: 0,
        };
        units.apply_tables();
        units
    }
}

impl std::fmt::Debug for StreamUnits {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("StreamUnits").field("packets", &self.packets).finish_non_exhaustive()
    }
}

impl StreamUnits {
    /// Consumes the next packets, which are contiguous; a trailing partial packet is ignored.
    pub fn feed(&mut self, bytes: &[u8]) {
        for packet in bytes.as_chunks::<TS_PACKET_BYTES>().0 {
            let header = TsHeader::read(packet);
            let pid = header.pid();
            let has_tables = self.has_tables[usize::from(pid)];
            let is_watched = self.watched == Some(pid);
            if SERVICE_PIDS.contains(&pid) && !has_tables && !is_watched {
                self.lead.feed_service(self.packets);
            }
            let is_middle = !header.starts_unit() && !self.access.is_probing();
            if header.has_adaptation() || has_tables || is_watched && !is_middle {
                self.examine(&TsPacket { header, bytes: packet }, has_tables, is_watched);
            }
            self.packets += 1;
        }
    }

    fn examine(&mut self, packet: &TsPacket<'_>, has_tables: bool, is_watched: bool) {
        if !packet.header.is_sync() || packet.header.is_damaged() {
            return;
        }
        let (index, adaptation) = (self.packets, packet.adaptation());
        let is_clock = self.tables.map().is_some_and(|map| map.pcr_pid == packet.header.pid());
        if let Some(pcr) = adaptation.pcr.filter(|_| is_clock) {
            self.clock.feed(index, pcr);
        }
        if has_tables {
            if self.tables.feed(index, packet) != TableChange::None {
                self.apply_tables();
            }
            self.lead.feed(index, packet, &self.tables);
        }
        if is_watched {
            let tables_from = self.tables.complete_from();
            let start = self.lead.at(index, tables_from);
            self.access.feed(index, packet, adaptation.random_access, tables_from, start);
            self.join();
        }
    }

    /// Applies the new tables.
    fn apply_tables(&mut self) {
        self.watched = self.tables.map().and_then(|map| self.access.watch(map));
        self.has_tables.fill(false);
        for pid in self.tables.pids() {
            self.has_tables[usize::from(pid)] = true;
        }
    }

    /// Records that another programme starts at a packet, which may be in the future. Timestamps
    /// and codecs change at its first key frame.
    pub fn note_join(&mut self, packet: u64) {
        if self.joins.len() < JOINS_MAX {
            self.joins.push(packet);
        }
    }

    /// Marks the first key frame of each new programme as a discontinuity.
    fn join(&mut self) {
        let Some(&(entry, _)) = self.access.entries().last() else { return };
        let key = entry.access_unit;
        if key < self.joined_to {
            return;
        }
        self.joined_to = key + 1;
        let before = self.joins.len();
        self.joins.retain(|&join| join > key);
        if self.joins.len() < before {
            self.access.note_break(key);
        }
    }

    /// Returns the next entry point and drops all packets before it; without one, drops all settled
    /// packets.
    pub fn next_start(&mut self) -> Option<StreamEntry> {
        let Some(&(entry, context)) = self.access.entries().first() else {
            self.forget_before(self.settled());
            return None;
        };
        self.forget_before(entry.access_unit + 1);
        let ts_packet = context.first_packet(&entry);
        Some(StreamEntry { ts_packet, access_unit: entry.access_unit, context })
    }

    /// Returns the packets that precede the access unit of `start` in a stream cut there: the
    /// tables and the missing parameter sets.
    pub fn lead(&self, start: &StreamEntry) -> Vec<u8> {
        self.lead.lead(&start.context, self.access.parameters())
    }

    /// Returns the number of packets that need no longer be waited for: their analysis is final, or
    /// has found no picture for [`UNDECIDED_MAX`] packets.
    pub fn settled(&self) -> u64 {
        let recent = |&unit: &u64| self.packets - unit < UNDECIDED_MAX;
        self.access.undecided().filter(recent).unwrap_or(self.packets)
    }

    /// True if an entry point was found.
    pub fn has_starts(&self) -> bool {
        !self.access.entries().is_empty()
    }

    /// Skips to this packet; the packets before it were not consumed and never will be.
    pub fn skip_to(&mut self, packet: u64) {
        self.packets = self.packets.max(packet);
    }

    /// Returns the number of packets consumed.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the time of the last clock reference, in ticks since the first.
    pub fn ticks(&self) -> u64 {
        self.clock.points.last().map_or(0, |&(_, ticks)| ticks)
    }

    /// Returns the due time of a retained packet, in ticks since the first clock reference.
    pub fn ticks_of(&self, packet: u64) -> u64 {
        self.clock.ticks_of(packet)
    }

    pub(crate) fn clock(&self) -> &StreamClock {
        &self.clock
    }

    /// Returns the points at which the stream can be cut.
    pub(crate) fn starts(&self) -> RecordedStarts {
        let mut entries = self.access.entries().to_vec();
        for (entry, context) in &mut entries {
            let ticks = self.clock.ticks_of(entry.access_unit);
            let presented = context.timestamp().and_then(|at| self.clock.presented(at, ticks));
            entry.presented_ticks = presented.unwrap_or(ticks);
        }
        self.access.units().with(self.lead.starts(entries, self.access.parameters()))
    }

    /// Drops all state before a packet.
    pub fn forget_before(&mut self, packet: u64) {
        self.access.drop_before(packet);
        self.clock.drop_before(packet);
    }
}
