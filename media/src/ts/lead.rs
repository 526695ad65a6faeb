// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stores the table packets current at each entry point, and the parameter sets missing there.
//!
//! A segmenter puts them before the entry point at which it cuts a stream (RFC 8216 §3.2: a segment
//! begins with PAT and PMT). They are stored as packets with their continuity counters. If
//! consecutive segments are played, such a packet is a repetition of the same packet, which every
//! decoder expects (ISO/IEC 13818-1 §2.4.3.3). If a segment is played alone, the packet is the
//! first.
//!
//! The parameter sets follow them, if any ([`super::parameter_sets`]).
//!
//! Needs about 1.3 KiB per PID with tables. Unchanged tables are stored once, changing tables at
//! most [`TABLE_SETS_MAX`] times, and an entry point costs 20 bytes. Of tables of several sections
//! only the last is stored.

use super::TsPacket;
use super::parameter_sets::{LedUnit, ParameterSets};
use super::pes_times::{PesTimes, TIME_MODULUS, presentation_of};
use super::stream_types::{is_played, is_video};
use super::tables::{PAT_PID, TableReader};
use crate::TS_PACKET_BYTES;
use crate::plan::EntryPoint;

/// Packets that a section of 1024 bytes can occupy, wherever it begins in the first.
const SECTION_PACKETS_MAX: usize = 7;

/// Different tables stored per file. A broadcaster changes them with the programme.
pub(crate) const TABLE_SETS_MAX: usize = 256;

/// PIDs whose packets are stored; above the limit all are dropped and collected again.
const PIDS_MAX: usize = 256;

/// Longest run of table packets that belongs to the access unit after it.
pub(super) const ROW_MAX: u64 = 16;

type PacketBytes = [u8; TS_PACKET_BYTES];

/// The packets of a PAT and of a PMT, with continuity counters of zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct TableSet {
    pat: Vec<PacketBytes>,
    map: Vec<PacketBytes>,
    /// PIDs and types of the video and audio streams.
    played: Vec<(u16, u8)>,
}

/// Presentation time, tables and parameter sets of an entry point.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct EntryContext {
    /// Presentation time of its access unit, the low 32 of 33 bits.
    presented: u32,
    /// Presentation time minus decoding time.
    early: u32,
    set: u16,
    /// Index of the parameter sets that it lacks.
    parameters: u16,
    /// Continuity counters of the last packets of PAT (high bits) and PMT (low bits).
    counters: u8,
    /// Low bits of its stream_id (high bits), and continuity counter of its first packet (low
    /// bits).
    unit: u8,
    /// Table packets of any kind directly before its access unit, at most [`ROW_MAX`].
    row: u8,
    flags: u8,
    /// Packets from the first of its access unit to the last; 0 if unknown.
    packets: u32,
}

const HAS_TIME: u8 = 1;
const IS_LED: u8 = 2;
const HAS_TABLES: u8 = 4;
/// Bit 32 of the presentation time.
const HAS_BIT_32: u8 = 8;
const LACKS_PARAMETERS: u8 = 16;

impl EntryContext {
    /// Stores the times and the counter of the packet in which its access unit begins.
    pub(super) fn of_unit(self, packet: &TsPacket<'_>) -> Self {
        if packet.header.is_scrambled() {
            return self;
        }
        let payload = packet.payload();
        let mut context = self.presented_at(presentation_of(payload));
        if let PesTimes::Some(presented, Some(decoded)) = PesTimes::find(payload) {
            let early = presented.wrapping_sub(decoded) % TIME_MODULUS;
            context.early = u32::try_from(early).unwrap_or(0);
        }
        let stream = payload.get(3).map_or(0, |id| id << 4);
        context.unit = stream | packet.header.continuity();
        context
    }

    /// Stores the index of the parameter sets that its access unit lacks.
    pub(super) fn lacking(mut self, parameters: Option<u16>) -> Self {
        if let Some(parameters) = parameters {
            self.parameters = parameters;
            self.flags |= LACKS_PARAMETERS;
        }
        self
    }

    /// Returns the index of the parameter sets that its access unit lacks.
    pub(crate) fn parameters(&self) -> Option<u16> {
        (self.flags & LACKS_PARAMETERS != 0).then_some(self.parameters)
    }

    /// Stores the number of packets from the first of its access unit to the last, if known.
    pub(super) fn of_packets(mut self, packets: Option<u64>) -> Self {
        self.packets = packets.and_then(|packets| u32::try_from(packets).ok()).unwrap_or(0);
        self
    }

    /// Returns the number of packets from the first of its access unit to the last, including
    /// packets of other streams. Returns none if play cannot start with the unit, or its end is
    /// unknown.
    pub(crate) fn unit_packets(&self) -> Option<u64> {
        (self.packets > 0).then_some(self.packets.into())
    }

    /// True if both have the same tables.
    pub(crate) fn has_tables_of(&self, other: &EntryContext) -> bool {
        self.has_tables() && other.has_tables() && self.set == other.set
    }

    /// Clears the missing parameter sets: at the beginning of a file all packets before the access
    /// unit are present.
    pub(crate) fn of_beginning(mut self) -> Self {
        self.flags &= !LACKS_PARAMETERS;
        self
    }

    fn led_unit(&self) -> LedUnit {
        let presented = self.timestamp();
        let early = Some(u64::from(self.early)).filter(|&early| early > 0);
        let decoded = presented.zip(early).map(|(time, early)| time.wrapping_sub(early));
        LedUnit {
            presented,
            decoded: decoded.map(|time| time % TIME_MODULUS),
            stream_id: 0xe0 | self.unit >> 4,
            continuity: self.unit & 15,
        }
    }

    /// Stores the presentation time of its access unit, in units of 90 kHz.
    pub(crate) fn presented_at(mut self, time: Option<u64>) -> Self {
        if let Some(time) = time {
            self.presented = time as u32;
            self.flags |= HAS_TIME;
            self.flags |= if time >> 32 & 1 == 1 { HAS_BIT_32 } else { 0 };
        }
        self
    }

    /// Returns the presentation time of its access unit, modulo 2³², in units of 90 kHz.
    pub(crate) fn presented(&self) -> Option<u32> {
        (self.flags & HAS_TIME != 0).then_some(self.presented)
    }

    /// Returns the presentation time of its access unit, all 33 bits, in units of 90 kHz.
    pub(crate) fn timestamp(&self) -> Option<u64> {
        let bit_32 = u64::from(self.flags & HAS_BIT_32 != 0) << 32;
        Some(bit_32 | u64::from(self.presented()?))
    }

    /// Returns the first packet to play from the entry point: the first of the tables directly
    /// before its access unit, otherwise the first of the access unit.
    pub(crate) fn first_packet(&self, entry: &EntryPoint) -> u64 {
        if self.is_led() { entry.ts_packet } else { entry.access_unit }
    }

    /// Returns the first packet to play if another stream begins at the entry point. It includes
    /// other tables before the access unit, whose counters have no predecessor to continue.
    pub(crate) fn first_of_stream(&self, entry: &EntryPoint) -> u64 {
        self.first_packet(entry).min(entry.access_unit - u64::from(self.row))
    }

    /// Returns the number of table packets of any kind directly before its access unit.
    pub(crate) fn row(&self) -> u64 {
        self.row.into()
    }

    /// True if only its own tables lie between the entry point and its access unit, and the unit
    /// lacks no parameter sets: nothing has to be inserted.
    pub(crate) fn is_led(&self) -> bool {
        self.flags & (IS_LED | LACKS_PARAMETERS) == IS_LED
    }
}

/// Entry points, at which play can start, and the tables current there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EntryPoints {
    /// The entry points, in order.
    pub(crate) entries: Vec<(EntryPoint, EntryContext)>,
    /// First access unit of the stream that has the entry points, and its presentation time.
    pub(crate) begin: Option<(u64, u32)>,
    /// End of presentation of that stream, if it was determined.
    pub(crate) end: Option<u64>,
    /// Time of the end of the clock, if audio continues after it.
    pub(crate) clock_end: Option<u64>,
    sets: Vec<TableSet>,
    /// Parameter sets that entry points lack.
    pub(crate) parameters: Vec<ParameterSets>,
    is_exhausted: bool,
}

impl EntryPoints {
    /// True if the tables changed more often than can be stored.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// Returns the packets of the tables current at `start` and of the parameter sets that its
    /// access unit lacks; empty if there were no tables.
    pub(crate) fn tables(&self, start: &EntryContext) -> Vec<u8> {
        start.lead(&self.sets, &self.parameters)
    }

    /// Returns the PIDs and types of the video and audio streams in the tables current at `start`;
    /// empty without tables.
    pub(crate) fn played(&self, start: &EntryContext) -> &[(u16, u8)] {
        let set = self.sets.get(usize::from(start.set)).filter(|_| start.has_tables());
        set.map_or(&[], |set| &set.played)
    }

    /// Returns a copy of the tables and parameter sets, without the entry points.
    pub(crate) fn without_entries(&self) -> EntryPoints {
        let (sets, parameters) = (self.sets.clone(), self.parameters.clone());
        EntryPoints { sets, parameters, ..EntryPoints::default() }
    }

    /// Returns the access units at which play can start, and their numbers of packets.
    pub(crate) fn units(&self) -> Vec<(u64, u64)> {
        let unit = |(entry, context): &(EntryPoint, EntryContext)| {
            context.unit_packets().map(|packets| (entry.access_unit, packets))
        };
        self.entries.iter().filter_map(unit).collect()
    }

    /// Returns the access units that lack parameter sets, and the indices of those sets.
    pub(crate) fn lacking(&self) -> Vec<(u64, u16)> {
        let lacking = |(entry, context): &(EntryPoint, EntryContext)| {
            context.parameters().map(|parameters| (entry.access_unit, parameters))
        };
        self.entries.iter().filter_map(lacking).collect()
    }
}

/// Video and audio streams named by the last tables, to detect changes.
#[derive(Debug, Clone, Default)]
pub(crate) struct PlayedStreams(Vec<(u16, u8)>);

impl PlayedStreams {
    /// True if tables name streams other than the previous ones; `named` are their PIDs and types,
    /// empty if unknown.
    pub(crate) fn are_other(&self, named: &[(u16, u8)]) -> bool {
        !self.0.is_empty() && !named.is_empty() && self.0 != named
    }

    /// True if tables name other video streams.
    pub(crate) fn has_other_pictures(&self, named: &[(u16, u8)]) -> bool {
        let is_picture = |(_, of_type): &&(u16, u8)| is_video(*of_type);
        self.are_other(named)
            && !self.0.iter().filter(is_picture).eq(named.iter().filter(is_picture))
    }

    /// Stores the named streams, if there are any.
    pub(crate) fn set(&mut self, named: &[(u16, u8)]) {
        if !named.is_empty() && self.0 != named {
            self.0 = named.to_vec();
        }
    }
}

impl EntryContext {
    pub(crate) fn has_tables(&self) -> bool {
        self.flags & HAS_TABLES != 0
    }

    /// Returns the packets of its tables and of the parameter sets that it lacks.
    fn lead(&self, sets: &[TableSet], parameters: &[ParameterSets]) -> Vec<u8> {
        let Some(set) = sets.get(usize::from(self.set)).filter(|_| self.has_tables()) else {
            return Vec::new();
        };
        let mut bytes = Vec::with_capacity((set.pat.len() + set.map.len()) * TS_PACKET_BYTES);
        for (packets, last) in [(&set.pat, self.counters >> 4), (&set.map, self.counters & 15)] {
            for (packet, after) in packets.iter().zip((0..packets.len()).rev()) {
                let at = bytes.len();
                bytes.extend_from_slice(packet);
                bytes[at + 3] |= last.wrapping_sub(after as u8) & 15;
            }
        }
        if let Some(parameters) = self.parameters().and_then(|at| parameters.get(usize::from(at))) {
            parameters.put_in_front(&self.led_unit(), &mut bytes);
        }
        bytes
    }
}

/// Extends a run by a packet, or begins a new run with it.
fn extend(row: &mut std::ops::Range<u64>, index: u64) {
    *row = if row.end == index { row.start } else { index }..index + 1;
}

/// Collects the table packets of a stream.
#[derive(Clone, Default)]
pub(super) struct TablePackets {
    recent: Vec<(u16, Vec<(u64, PacketBytes)>)>,
    /// First packets of the last stored PAT and PMT.
    pat_at: Option<u64>,
    map_at: Option<u64>,
    current: TableSet,
    sets: Vec<TableSet>,
    is_exhausted: bool,
    /// Index of the stored tables that are replaced next; none if tables are not replaced.
    oldest: Option<usize>,
    /// The last run of consecutive table packets.
    row: std::ops::Range<u64>,
    /// The same run, including packets of tables about all programmes.
    whole_row: std::ops::Range<u64>,
    start: EntryContext,
}

impl TablePackets {
    /// Creates the collection of an endless stream, which retains the last [`TABLE_SETS_MAX`]
    /// tables.
    pub(super) fn of_channel() -> TablePackets {
        TablePackets { oldest: Some(0), ..TablePackets::default() }
    }

    /// Records a packet with a table about all programmes.
    pub(super) fn feed_service(&mut self, index: u64) {
        extend(&mut self.whole_row, index);
    }

    /// Stores a table packet that `tables` has already consumed.
    pub(super) fn feed(&mut self, index: u64, packet: &TsPacket<'_>, tables: &TableReader) {
        if packet.payload().is_empty() || packet.header.is_scrambled() {
            return;
        }
        self.feed_service(index);
        extend(&mut self.row, index);
        let pid = packet.header.pid();
        let counter = packet.header.continuity();
        self.keep(index, pid, counter, packet.bytes);
        let (pat_at, map_at) = (tables.pat_at(), tables.map_at());
        let mut is_new = false;
        if pid == PAT_PID && pat_at != self.pat_at {
            self.pat_at = pat_at;
            self.current.pat = self.since(pid, pat_at);
            self.start.counters = self.start.counters & 0x0f | counter << 4;
            is_new = true;
        }
        if map_at != self.map_at {
            self.map_at = map_at;
            self.current.map = self.since(pid, map_at);
            self.start.counters = self.start.counters & 0xf0 | counter;
            is_new = true;
        }
        if is_new && !self.current.pat.is_empty() && !self.current.map.is_empty() {
            let streams = tables.map().map_or(&[][..], |map| &map.streams);
            self.current.played.clear();
            self.current.played.extend(streams.iter().filter(|(_, of_type)| is_played(*of_type)));
            self.current.played.sort_unstable();
            self.settle();
        }
    }

    /// Returns the state at the access unit that starts at `index`; `tables_from` is the result of
    /// [`TableReader::complete_from`].
    pub(super) fn at(&self, index: u64, tables_from: Option<u64>) -> EntryContext {
        let mut start = self.start;
        if self.row.end == index && tables_from.is_some_and(|from| from >= self.row.start) {
            start.flags |= IS_LED;
        }
        let row = index - self.whole_row.start;
        if self.whole_row.end == index && row <= ROW_MAX {
            start.row = row as u8;
        }
        start
    }

    pub(super) fn into_starts(
        self,
        entries: Vec<(EntryPoint, EntryContext)>,
        parameters: Vec<ParameterSets>,
        begin: Option<(u64, u32)>,
    ) -> EntryPoints {
        let (sets, is_exhausted) = (self.sets, self.is_exhausted);
        EntryPoints { entries, begin, end: None, clock_end: None, sets, parameters, is_exhausted }
    }

    /// Combines entry points with the stored tables.
    pub(super) fn starts(
        &self,
        entries: Vec<(EntryPoint, EntryContext)>,
        parameters: &[ParameterSets],
    ) -> EntryPoints {
        let (sets, parameters) = (self.sets.clone(), parameters.to_vec());
        EntryPoints { entries, sets, parameters, ..EntryPoints::default() }
    }

    /// Returns the packets to insert before an entry point, as [`EntryPoints::tables`] does,
    /// without copying the tables first.
    pub(super) fn lead(&self, start: &EntryContext, parameters: &[ParameterSets]) -> Vec<u8> {
        start.lead(&self.sets, parameters)
    }

    fn keep(&mut self, index: u64, pid: u16, counter: u8, bytes: &PacketBytes) {
        let at = self.recent.iter().position(|&(known, _)| known == pid).unwrap_or_else(|| {
            if self.recent.len() == PIDS_MAX {
                self.recent.clear();
            }
            self.recent.push((pid, Vec::with_capacity(SECTION_PACKETS_MAX)));
            self.recent.len() - 1
        });
        let packets = &mut self.recent[at].1;
        // A repeated packet is stored once.
        if packets.last().is_some_and(|(_, last)| last[3] & 15 == counter) {
            return;
        }
        if packets.len() == SECTION_PACKETS_MAX {
            packets.remove(0);
        }
        packets.push((index, *bytes));
    }

    /// Returns the stored packets of `pid` from `first` on, with cleared counters.
    fn since(&self, pid: u16, first: Option<u64>) -> Vec<PacketBytes> {
        let packets = self.recent.iter().find(|&&(known, _)| known == pid);
        let packets = packets.map_or(&[][..], |(_, packets)| packets);
        let wanted = packets.iter().filter(|&&(index, _)| Some(index) >= first);
        wanted
            .map(|(_, bytes)| {
                let mut bytes = *bytes;
                bytes[3] &= 0xf0;
                bytes
            })
            .collect()
    }

    /// Selects the current tables among the stored ones; stores them if they are new.
    fn settle(&mut self) {
        let known = self.sets.iter().position(|set| *set == self.current);
        let set = match known {
            Some(set) => set,
            None if self.sets.len() == TABLE_SETS_MAX => {
                let Some(oldest) = &mut self.oldest else {
                    self.is_exhausted = true;
                    return;
                };
                let set = *oldest;
                *oldest = (set + 1) % TABLE_SETS_MAX;
                self.sets[set] = self.current.clone();
                set
            }
            None => {
                self.sets.push(self.current.clone());
                self.sets.len() - 1
            }
        };
        self.start.set = set as u16;
        self.start.flags |= HAS_TABLES;
    }
}
