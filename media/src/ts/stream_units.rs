// SPDX-License-Identifier: MIT OR Apache-2.0
//! The last access units of a stream without an end: the places where a channel can be cut, with
//! its clock.
//!
//! A plan is made of a file from its first packet on; this forgets what was cut
//! ([`StreamUnits::forget_before`]), so its cost stays the same however long a channel runs.
//! Packets are numbered from the stream's start. Times count from its first clock reference: those
//! of packets by the clock, those of presentation by the difference of the PES packet's time and
//! the first reference, which is exact.
//!
//! Costs a look at each header word, and at whole packets of tables and of the first video; needs
//! some 20 bytes a clock reference and 24 an access unit that is kept.
//!
//! Sources: ISO/IEC 13818-1 §2.4.2.2 (clock), §2.4.3.7 (times).
//! Does not search for packets: a channel has nothing else. One programme is followed.

use super::access::EntryFinder;
use super::lead::{EntryContext, TablePackets};
use super::tables::{SERVICE_PIDS, TableChange, TableReader};
use super::unit_starts::RecordedStarts;
use super::{PCR_MODULUS, PIDS, TsHeader, TsPacket};
use crate::growing_times::CutClock;
use crate::{TICKS_PER_SECOND, TICKS_PER_TIMESTAMP, TS_PACKET_BYTES};

/// Longest time by which a picture is presented after its first packet, and before it; others have
/// a wrong time, as one that stands still.
const LEAD_TICKS_MAX: u64 = 10 * TICKS_PER_SECOND;
const LATE_TICKS_MAX: u64 = TICKS_PER_SECOND / 2;

/// Longest step of the clock; a longer one is a clock that was set.
const STEP_TICKS_MAX: u64 = 3600 * TICKS_PER_SECOND;

/// Packets, 3 MB, in which it is decided whether play can start at an access unit.
const UNDECIDED_MAX: u64 = 1 << 14;

/// Programmes that begin at the next key frame, at most.
const JOINS_MAX: usize = 1024;

/// A place where play can start, of the packets taken so far.
#[derive(Debug, Clone, Copy)]
pub struct StreamEntry {
    /// First packet of what is played: of the tables directly before its access unit, if it lacks
    /// nothing else, or of that.
    pub ts_packet: u64,
    /// Packet in which its access unit begins.
    pub access_unit: u64,
    context: EntryContext,
}

/// The last access units of a channel.
pub struct StreamUnits {
    packets: u64,
    /// True for PIDs of tables.
    has_tables: Box<[bool; PIDS]>,
    tables: TableReader,
    lead: TablePackets,
    access: EntryFinder,
    watched: Option<u16>,
    clock: StreamClock,
    /// Packets from which on another programme is sent, until its first key frame is found.
    joins: Vec<u64>,
    /// Access units up to which key frames were looked at for that.
    joined_to: u64,
}

/// The last clock references of a stream.
#[derive(Default)]
pub(crate) struct StreamClock {
    /// Values of the first reference, and of the last.
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

    /// Time of presentation by a timestamp of 90 kHz, of a packet that is due at `ticks`.
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
        units.learn();
        units
    }
}

impl std::fmt::Debug for StreamUnits {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("StreamUnits").field("packets", &self.packets).finish_non_exhaustive()
    }
}

impl StreamUnits {
    /// Takes the next packets, which lie side by side; bytes behind the last whole one are left.
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
                self.learn();
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

    /// Follows what the tables say from now on.
    fn learn(&mut self) {
        self.watched = self.tables.map().and_then(|map| self.access.watch(map));
        self.has_tables.fill(false);
        for pid in self.tables.pids() {
            self.has_tables[usize::from(pid)] = true;
        }
    }

    /// Notes that another programme is sent from a packet on, which may still come: timestamps and
    /// codecs are another file's from its first key frame on.
    pub fn note_join(&mut self, packet: u64) {
        if self.joins.len() < JOINS_MAX {
            self.joins.push(packet);
        }
    }

    /// Makes the first key frames of other programmes breaks.
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

    /// Takes the next place where play can start, and forgets what lies before it; all that is
    /// settled where there is none.
    pub fn next_start(&mut self) -> Option<StreamEntry> {
        let Some(&(entry, context)) = self.access.entries().first() else {
            self.forget_before(self.settled());
            return None;
        };
        self.forget_before(entry.access_unit + 1);
        let ts_packet = context.first_packet(&entry);
        Some(StreamEntry { ts_packet, access_unit: entry.access_unit, context })
    }

    /// The packets that a stream cut at the access unit of `start` begins with: the tables, and the
    /// parameter sets that it lacks.
    pub fn lead(&self, start: &StreamEntry) -> Vec<u8> {
        self.lead.lead(&start.context, self.access.parameters())
    }

    /// Packets of which nothing more will be found out, or not soon: an access unit that goes on
    /// for [`UNDECIDED_MAX`] packets without a picture is not waited for.
    pub fn settled(&self) -> u64 {
        let recent = |&unit: &u64| self.packets - unit < UNDECIDED_MAX;
        self.access.undecided().filter(recent).unwrap_or(self.packets)
    }

    /// True when a place was found at which play can start.
    pub fn has_starts(&self) -> bool {
        !self.access.entries().is_empty()
    }

    /// Leaves out the packets before this one, which were not taken and never will be.
    pub fn skip_to(&mut self, packet: u64) {
        self.packets = self.packets.max(packet);
    }

    /// Packets taken.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Time of the last clock reference, in ticks from the first.
    pub fn ticks(&self) -> u64 {
        self.clock.points.last().map_or(0, |&(_, ticks)| ticks)
    }

    /// Time at which a packet is due that is not forgotten, in ticks from the first clock
    /// reference.
    pub fn ticks_of(&self, packet: u64) -> u64 {
        self.clock.ticks_of(packet)
    }

    pub(crate) fn clock(&self) -> &StreamClock {
        &self.clock
    }

    /// The places where the stream can be cut.
    pub(crate) fn starts(&self) -> RecordedStarts {
        let mut entries = self.access.entries().to_vec();
        for (entry, context) in &mut entries {
            let ticks = self.clock.ticks_of(entry.access_unit);
            let presented = context.timestamp().and_then(|at| self.clock.presented(at, ticks));
            entry.presented_ticks = presented.unwrap_or(ticks);
        }
        self.access.units().with(self.lead.starts(entries, self.access.parameters()))
    }

    /// Forgets what was cut: all before a packet.
    pub fn forget_before(&mut self, packet: u64) {
        self.access.drop_before(packet);
        self.clock.drop_before(packet);
    }
}
