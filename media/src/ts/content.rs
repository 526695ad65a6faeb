// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dispatches each packet to the modules that need it: tables, clock, entry point search, or none.
//!
//! This is the scanner's inner loop. Most packets carry the middle of a picture and need only one
//! table lookup by PID and one test of the header word. The lookup table marks the consumers of
//! each PID with one byte (8 KiB, in the first-level cache).

use super::access::EntryFinder;
use super::clock::{ClockTimeline, PcrTimelines};
use super::lead::{EntryPoints, TablePackets};
use super::stream_ends::StreamEnds;
use super::tables::{SERVICE_PIDS, TableChange, TableReader};
use super::unit_starts::UnitStarts;
use super::{PIDS, TsHeader, TsPacket};
use crate::plan::{ElementaryStream, STREAMS_MAX};
use crate::{Refusal, TS_PACKET_BYTES};

/// The PID carries tables.
const TABLES: u8 = 1;
/// The PID is searched for entry points.
const WATCHED: u8 = 2;
/// The PID carries video or audio whose end of presentation is determined.
const TIMED: u8 = 4;

/// The PID carries tables about all programmes.
const SERVICE: u8 = 8;

/// State of all modules after the packets consumed so far.
#[derive(Clone)]
pub(super) struct PacketDispatch {
    packets: u64,
    wanted: Box<[u8; PIDS]>,
    tables: TableReader,
    clock: PcrTimelines,
    access: EntryFinder,
    lead: TablePackets,
    ends: StreamEnds,
    /// Number of the last programme with a map, and the streams of all its maps.
    programme: Option<u16>,
    streams: Vec<ElementaryStream>,
}

impl PacketDispatch {
    pub(super) fn new() -> Self {
        let mut content = Self {
            packets: 0,
            wanted: Box::new([0; PIDS]),
            tables: TableReader::default(),
            clock: PcrTimelines::default(),
            access: EntryFinder::default(),
            lead: TablePackets::default(),
            ends: StreamEnds::default(),
            programme: None,
            streams: Vec::new(),
        };
        content.mark(None);
        content
    }

    /// Returns the number of packets consumed.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the starts of the last access units.
    pub(super) fn units(&self) -> &UnitStarts {
        self.access.units()
    }

    /// Consumes the next packet.
    #[inline]
    pub(super) fn feed(&mut self, header: TsHeader, bytes: &[u8; TS_PACKET_BYTES]) {
        let index = self.packets;
        self.packets += 1;
        let wanted = self.wanted[usize::from(header.pid())];
        let is_middle = wanted & (TABLES | SERVICE) == 0
            && !header.starts_unit()
            && !(wanted & WATCHED != 0 && self.access.is_probing());
        if header.has_adaptation() || !(wanted == 0 || is_middle) {
            self.examine(index, wanted, &TsPacket { header, bytes });
        }
        if wanted & WATCHED != 0 {
            self.access.note_packet(index);
        }
    }

    fn examine(&mut self, index: u64, wanted: u8, packet: &TsPacket<'_>) {
        if packet.header.is_damaged() {
            return;
        }
        let adaptation = packet.adaptation();
        if adaptation.pcr.is_some() || adaptation.discontinuity {
            let pid = packet.header.pid();
            self.clock.feed(pid, index, adaptation.pcr, adaptation.discontinuity);
            let is_clock = self.tables.map().is_some_and(|map| map.pcr_pid == pid);
            if is_clock && adaptation.pcr.is_some() {
                self.ends.note_clock();
            }
        }
        if wanted & TIMED != 0 && packet.header.starts_unit() {
            self.ends.feed(index, packet);
        }
        if wanted & TABLES != 0 {
            let change = self.tables.feed(index, packet);
            if change != TableChange::None {
                self.apply_tables(change);
            }
            self.lead.feed(index, packet, &self.tables);
        }
        if wanted & (TABLES | SERVICE | WATCHED) == SERVICE {
            self.lead.feed_service(index);
        }
        if wanted & WATCHED != 0 {
            let tables_from = self.tables.complete_from();
            let start = self.lead.at(index, tables_from);
            self.access.feed(index, packet, adaptation.random_access, tables_from, start);
        }
    }

    /// Applies the new tables to all modules.
    fn apply_tables(&mut self, change: TableChange) {
        if change == TableChange::Preferred {
            self.access.forget();
        }
        let watched = self.tables.map().and_then(|map| {
            if self.programme != self.tables.programme() {
                self.programme = self.tables.programme();
                self.streams.clear();
            }
            self.clock.follow(map.pcr_pid, self.tables.is_settled());
            for &(pid, stream_type) in &map.streams {
                let stream = ElementaryStream { pid, stream_type };
                if self.streams.len() < STREAMS_MAX && !self.streams.contains(&stream) {
                    self.streams.push(stream);
                }
            }
            self.ends.watch(map);
            self.access.watch(map)
        });
        self.mark(watched);
    }

    fn mark(&mut self, watched: Option<u16>) {
        self.wanted.fill(0);
        for pid in SERVICE_PIDS {
            self.wanted[usize::from(pid)] |= SERVICE;
        }
        for pid in self.tables.pids() {
            self.wanted[usize::from(pid)] |= TABLES;
        }
        if let Some(pid) = watched {
            self.wanted[usize::from(pid)] |= WATCHED;
        }
        for pid in self.ends.pids() {
            self.wanted[usize::from(pid)] |= TIMED;
        }
    }

    /// Returns the number of PAT and PMT sections dropped for a wrong CRC.
    pub(super) fn bad_sections(&self) -> u64 {
        self.tables.bad_sections()
    }

    /// Returns the timeline, the entry points, the stream ends and the streams of the followed
    /// programme.
    pub(super) fn finish(
        self,
    ) -> Result<(ClockTimeline, EntryPoints, StreamEnds, Vec<ElementaryStream>), Refusal> {
        let timeline = self.clock.timeline(self.packets)?;
        let begin = self.access.begin();
        let (entries, parameters) = self.access.into_entries();
        let starts = self.lead.into_starts(entries, parameters, begin);
        Ok((timeline, starts, self.ends, self.streams))
    }
}
