// SPDX-License-Identifier: MIT OR Apache-2.0
//! The packet plan: file offset and due time of each RTP payload, and the places where play can
//! start.
//!
//! For a transport stream it is arithmetic: the file is a row of extents of undisturbed packets,
//! seven of which form a payload; only an extent's last payload may be shorter. Its clock is a
//! table of points between which time is interpolated linearly. Nothing is stored per RTP packet:
//! an hour of film with a clock reference every 40 ms needs 1.4 MB, at any bitrate.
//!
//! The stream has the same identity for all its players, so the header of packet n depends on the
//! asset and n alone. That makes the wire image possible, and lets a session change its send path
//! during play.
//!
//! Sources: RFC 2250 §2 (MP2T in RTP), RFC 3550 §5.1 (header).

mod arithmetic;
mod encode;
mod identity;
mod places;
mod presentation;
mod rows;
mod survey;

pub use arithmetic::Timestamps;
use arithmetic::fraction;
pub use encode::{FORMAT, PlanKey};
pub use identity::RtpIdentity;
pub use places::PacketPlaces;
pub(crate) use presentation::present;
pub use rows::{ClockPoint, ElementaryStream, EntryPoint, Extent, PayloadRange, SyncLoss};
pub(crate) use rows::{EXTENTS_MAX, LOSSES_MAX, STREAMS_MAX, TIMELINE_TICKS_MAX};
use rows::{HEADER_BYTES, PACKET_BYTES};

use crate::TICKS_PER_SECOND;
use crate::ts::{ParameterSets, SETS_BYTES_MAX, SETS_MAX};

/// Largest file: the highest file offset (off_t).
const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// The packet plan of an asset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketPlan {
    identity: RtpIdentity,
    stride: u64,
    file_bytes: u64,
    extents: Vec<Extent>,
    clock: Vec<ClockPoint>,
    discontinuities: u64,
    entries: Vec<EntryPoint>,
    parameters: Vec<ParameterSets>,
    key_units: Box<KeyUnits>,
    streams: Vec<ElementaryStream>,
    losses: Vec<SyncLoss>,
    losses_seen: u64,
    lost_bytes: u64,
    tail_bytes: u64,
    bad_tables: u64,
    codecs: Option<String>,
    unsent: Vec<String>,
    ts_packets: u64,
    packets: u64,
    /// By these, fractions of 2⁶⁴, a place in the clock's table is guessed.
    points_per_ts_packet: u64,
    points_per_tick: u64,
}

/// Access units at which play can start.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KeyUnits {
    /// Access units that lack parameter sets, and the numbers of these.
    lacking: Vec<(u64, u16)>,
    /// Access units whose end is known, and their packets.
    packets: Vec<(u64, u64)>,
}

/// Parts of a plan: the outcome of a scan, or a stored plan.
pub(crate) struct PlanParts {
    pub(crate) identity: RtpIdentity,
    pub(crate) stride: u64,
    pub(crate) file_bytes: u64,
    /// File offset and number of packets of each extent.
    pub(crate) extents: Vec<(u64, u64)>,
    pub(crate) clock: Vec<ClockPoint>,
    pub(crate) discontinuities: u64,
    pub(crate) entries: Vec<EntryPoint>,
    pub(crate) parameters: Vec<ParameterSets>,
    /// Access units that lack parameter sets, and the numbers of these.
    pub(crate) lacking: Vec<(u64, u16)>,
    /// Access units at which play can start, and their packets.
    pub(crate) units: Vec<(u64, u64)>,
    pub(crate) streams: Vec<ElementaryStream>,
    pub(crate) losses: Vec<SyncLoss>,
    pub(crate) losses_seen: u64,
    pub(crate) lost_bytes: u64,
    pub(crate) tail_bytes: u64,
    pub(crate) bad_tables: u64,
    pub(crate) codecs: Option<String>,
    pub(crate) unsent: Vec<String>,
}

impl PacketPlan {
    /// Creates a plan: checks every value on which the arithmetic relies; the error names the wrong
    /// part.
    pub(crate) fn assemble(parts: PlanParts) -> Result<Self, &'static str> {
        check(parts.file_bytes <= FILE_BYTES_MAX, "file size")?;
        check(matches!(parts.stride, PACKET_BYTES | 192), "stride")?;
        let extents = lay_out(&parts.extents, parts.stride, parts.file_bytes)?;
        let last = extents.last().ok_or("no extents")?;
        let ts_packets = last.first_ts_packet + last.ts_packets;
        let packets = last.first_packet + last.packets();
        check_clock(&parts.clock, ts_packets)?;
        let entries = entries_from_zero(parts.entries);
        check_entries(&entries, ts_packets)?;
        check_parameters(&parts.parameters, &parts.lacking)?;
        check_units(&parts.units, ts_packets)?;
        check(parts.streams.len() <= STREAMS_MAX, "number of streams")?;
        check(parts.losses.len() <= LOSSES_MAX, "number of losses")?;
        check(parts.losses.len() as u64 <= parts.losses_seen, "losses seen")?;
        check(parts.tail_bytes < PACKET_BYTES + parts.stride, "tail")?;
        let codecs = parts.codecs.as_deref().unwrap_or_default();
        check(codecs.bytes().all(|byte| byte.is_ascii_graphic()), "codecs")?;
        let spans = parts.clock.len() as u64 - 1;
        let duration_ticks = parts.clock.last().map_or(0, |point| point.ticks);
        Ok(Self {
            points_per_ts_packet: fraction(spans, ts_packets),
            points_per_tick: fraction(spans, duration_ticks),
            identity: parts.identity,
            stride: parts.stride,
            file_bytes: parts.file_bytes,
            extents,
            clock: parts.clock,
            discontinuities: parts.discontinuities,
            entries,
            parameters: parts.parameters,
            key_units: Box::new(KeyUnits { lacking: parts.lacking, packets: parts.units }),
            streams: parts.streams,
            losses: parts.losses,
            losses_seen: parts.losses_seen,
            lost_bytes: parts.lost_bytes,
            tail_bytes: parts.tail_bytes,
            bad_tables: parts.bad_tables,
            codecs: parts.codecs,
            unsent: parts.unsent,
            ts_packets,
            packets,
        })
    }

    /// SSRC and first values of the RTP stream.
    pub fn identity(&self) -> RtpIdentity {
        self.identity
    }

    /// Distance of transport stream packets in the file: 188 or 192 bytes.
    pub fn stride(&self) -> u64 {
        self.stride
    }

    /// Size of the file.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// The parts of the file that are streamed, in order; at least one.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// The timeline; its first point is zero, its last the end of the last packet.
    pub fn clock(&self) -> &[ClockPoint] {
        &self.clock
    }

    /// Number of places at which the file's clock was reset. The timeline continues across them.
    pub fn discontinuities(&self) -> u64 {
        self.discontinuities
    }

    /// Places where play can start, in order; the first is packet 0.
    pub fn entries(&self) -> &[EntryPoint] {
        &self.entries
    }

    /// Parameter sets that access units lack.
    pub(crate) fn parameters(&self) -> &[ParameterSets] {
        &self.parameters
    }

    /// Number of the parameter sets that the access unit lacks which begins in a packet.
    pub(crate) fn lacking(&self, access_unit: u64) -> Option<u16> {
        let lacking = &self.key_units.lacking;
        let at = lacking.binary_search_by_key(&access_unit, |&(unit, _)| unit).ok()?;
        Some(lacking[at].1)
    }

    /// Returns the packets of the access unit that begins in a packet, from the first to the last
    /// of its stream; `None` if play cannot start with it, or its end is unknown.
    pub(crate) fn unit_packets(&self, access_unit: u64) -> Option<u64> {
        let packets = &self.key_units.packets;
        let at = packets.binary_search_by_key(&access_unit, |&(unit, _)| unit).ok()?;
        Some(packets[at].1)
    }

    /// The parameter sets that the access unit lacks which begins in a packet.
    pub(crate) fn lacking_sets(&self, access_unit: u64) -> Option<&ParameterSets> {
        self.parameters.get(usize::from(self.lacking(access_unit)?))
    }

    /// The elementary streams that the maps of the programme that is followed name, in the order
    /// of their first mention; none if no map was found.
    pub fn streams(&self) -> &[ElementaryStream] {
        &self.streams
    }

    /// The codecs of the streams as RFC 6381 names them, if [`PacketPlan::name_codecs`] found all.
    pub fn codecs(&self) -> Option<&str> {
        self.codecs.as_deref()
    }

    /// Parts that are not sent if the streams are tracks ([`crate::ElementaryDemuxer`]), from the
    /// start of the file, each with the reason, if [`PacketPlan::name_codecs`] was called; the last
    /// counts those beyond eight.
    pub fn unsent(&self) -> &[String] {
        &self.unsent
    }

    /// Number of places to start whose pictures lack their parameter sets.
    pub fn entries_lacking(&self) -> usize {
        let lacks = |entry: &&EntryPoint| self.lacking(entry.access_unit).is_some();
        self.entries.iter().filter(lacks).count()
    }

    /// The first 256 losses of synchronisation.
    pub fn losses(&self) -> &[SyncLoss] {
        &self.losses
    }

    /// All losses of synchronisation.
    pub fn losses_seen(&self) -> u64 {
        self.losses_seen
    }

    /// Bytes lost in all of them.
    pub fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }

    /// Bytes at the end of the file that are less than a packet.
    pub fn tail_bytes(&self) -> u64 {
        self.tail_bytes
    }

    /// Sections of the association table and of maps that were not followed because their CRC is
    /// wrong.
    pub fn bad_tables(&self) -> u64 {
        self.bad_tables
    }

    /// Faults of the whole file that viewers would notice, each with its remedy.
    pub fn warnings(&self) -> Vec<String> {
        let (number, noun) = match self.bad_tables {
            0 => return Vec::new(),
            1 => (1, "table (PAT, PMT) has"),
            more => (more, "tables (PAT, PMT) have"),
        };
        let loss = match self.streams.is_empty() {
            true => "no programme is known by another, so that seeking and HLS are missing",
            false => "streams that only these name are missing",
        };
        let cure = "remux it (ffmpeg -i IN -map 0 -c copy OUT.ts)";
        vec![format!("{number} {noun} a wrong checksum, and {loss}; {cure}")]
    }

    /// Transport stream packets that are streamed.
    pub fn ts_packets(&self) -> u64 {
        self.ts_packets
    }

    /// RTP packets.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Duration of play.
    pub fn duration_ticks(&self) -> u64 {
        self.clock.last().map_or(0, |point| point.ticks)
    }

    /// Returns the same plan, ending at `ticks`: for a caller with the start time of the media
    /// after it. Otherwise the end is calculated from the last clock references. A time before the
    /// last of them is ignored.
    #[must_use]
    pub fn ending_at(mut self, ticks: u64) -> Self {
        if let [.., before, end] = &mut self.clock[..]
            && ticks > before.ticks
        {
            end.ticks = ticks;
            self.points_per_tick = fraction(self.clock.len() as u64 - 1, ticks);
        }
        self
    }

    /// RTP packets before the last clock reference: the packets of a growing file whose bytes and
    /// times no longer change.
    pub fn settled_packets(&self) -> u64 {
        let last_reference = self.clock[self.clock.len() - 2];
        self.packet_of(last_reference.ts_packet)
    }

    /// Average bitrate of the transport stream, at least 1.
    pub fn bits_per_second(&self) -> u64 {
        let bits = u128::from(self.ts_packets) * u128::from(PACKET_BYTES * 8);
        let rate = bits * u128::from(TICKS_PER_SECOND) / u128::from(self.duration_ticks());
        u64::try_from(rate).unwrap_or(u64::MAX).max(1)
    }
}

/// Sums the sizes of the extents before each one.
fn lay_out(
    extents: &[(u64, u64)],
    stride: u64,
    file_bytes: u64,
) -> Result<Vec<Extent>, &'static str> {
    check(extents.len() <= EXTENTS_MAX, "number of extents")?;
    let mut end = 0;
    let mut next = Extent {
        file_offset: 0,
        ts_packets: 0,
        first_ts_packet: 0,
        first_packet: 0,
        wire_offset: 0,
    };
    let mut laid_out = Vec::with_capacity(extents.len());
    for &(file_offset, ts_packets) in extents {
        check(ts_packets > 0, "empty extent")?;
        check(file_offset >= end, "extents overlap")?;
        end = (ts_packets - 1)
            .checked_mul(stride)
            .and_then(|bytes| bytes.checked_add(PACKET_BYTES)?.checked_add(file_offset))
            .filter(|&end| end <= file_bytes)
            .ok_or("extent past the end of the file")?;
        let extent = Extent { file_offset, ts_packets, ..next };
        laid_out.push(extent);
        // These fit: they count parts of a file of at most 2^63 bytes, and headers of 12 bytes to
        // payloads of at least 188.
        next.first_ts_packet += ts_packets;
        next.first_packet += extent.packets();
        next.wire_offset += extent.packets() * HEADER_BYTES + ts_packets * PACKET_BYTES;
    }
    Ok(laid_out)
}

fn check_clock(clock: &[ClockPoint], ts_packets: u64) -> Result<(), &'static str> {
    let (Some(first), Some(last)) = (clock.first(), clock.last()) else {
        return Err("no clock");
    };
    check(*first == ClockPoint { ts_packet: 0, ticks: 0 }, "clock does not begin with zero")?;
    check(last.ts_packet == ts_packets, "clock does not end with the last packet")?;
    check((1..=TIMELINE_TICKS_MAX).contains(&last.ticks), "duration")?;
    let in_order = clock
        .windows(2)
        .all(|pair| pair[0].ts_packet < pair[1].ts_packet && pair[0].ticks <= pair[1].ticks);
    check(in_order, "clock goes backwards")
}

/// Puts packet 0 first, and drops entries that begin at the same place as the one before.
fn entries_from_zero(mut entries: Vec<EntryPoint>) -> Vec<EntryPoint> {
    let zero = EntryPoint { ts_packet: 0, access_unit: 0, presented_ticks: 0 };
    if entries.first() != Some(&zero) {
        entries.insert(0, zero);
    }
    entries.dedup_by_key(|entry| entry.ts_packet);
    entries
}

fn check_entries(entries: &[EntryPoint], ts_packets: u64) -> Result<(), &'static str> {
    let in_order = entries.windows(2).all(|pair| {
        pair[0].ts_packet < pair[1].ts_packet
            && pair[0].access_unit < pair[1].access_unit
            && pair[0].presented_ticks <= pair[1].presented_ticks
    });
    let in_place = entries.iter().all(|entry| {
        entry.ts_packet <= entry.access_unit
            && entry.access_unit < ts_packets
            && entry.presented_ticks <= TIMELINE_TICKS_MAX
    });
    check(in_order && in_place, "entries out of order")
}

fn check_parameters(
    parameters: &[ParameterSets],
    lacking: &[(u64, u16)],
) -> Result<(), &'static str> {
    check(parameters.len() <= SETS_MAX, "number of parameter sets")?;
    let is_short = parameters.iter().all(|sets| sets.bytes.len() <= SETS_BYTES_MAX);
    check(is_short && parameters.iter().all(|sets| sets.pid < 0x2000), "parameter sets")?;
    let in_order = lacking.windows(2).all(|pair| pair[0].0 < pair[1].0);
    let are_known = lacking.iter().all(|&(_, number)| usize::from(number) < parameters.len());
    check(in_order && are_known, "access units without parameter sets")
}

fn check_units(units: &[(u64, u64)], ts_packets: u64) -> Result<(), &'static str> {
    let in_order = units.windows(2).all(|pair| pair[0].0 < pair[1].0);
    let is_inside = |&(unit, packets): &(u64, u64)| {
        packets > 0 && unit.checked_add(packets).is_some_and(|end| end <= ts_packets)
    };
    check(in_order && units.iter().all(is_inside), "access units")
}

fn check(holds: bool, what: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(what) }
}
