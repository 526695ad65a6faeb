// SPDX-License-Identifier: MIT OR Apache-2.0
//! One stream at its receiver: from a datagram to packets in order in the file.
//!
//! The way of a datagram: RTP or a bare transport stream (the first byte tells: version 2 against
//! the sync byte) → of the source that is followed ([`wire::sources`]) → put into order
//! ([`wire::reorder`]) → watched ([`media::ts::Monitor`]) → gathered for the disk ([`Output`]). In
//! order, that is one copy a byte and no allocation. What does not belong is counted by kind and by
//! sender ([`Refused`]) and goes no further; nothing a sender does ends a stream.
//!
//! Sources: RFC 3550 §5.1, A.1; RFC 2250 §2 (whole packets); RFC 3551 §6 (payload type 33).
//! Does not do: FEC, bare streams in packets of 204 bytes.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use media::TS_PACKET_BYTES;
use media::ts::Monitor;
use wire::mp2t::CLOCK_RATE_HZ;
use wire::reorder::{Limits, Placed, Reorder};
use wire::rtp::{HEADER_BYTES, Header, SequenceUpdate};
use wire::sources::{SourceStatus, SourceTable};

use crate::block::Output;
use crate::gate::{Gate, Passage};
use crate::refused::{Refused, RefusedCounts, Why};
use crate::room::{Identity, Room, Waited};

/// A stream that is received.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Who may send; anybody when empty.
    senders: Vec<IpAddr>,
    payload_type: u8,
    pub(crate) sources: SourceTable,
    window: Reorder,
    pub(crate) monitor: Monitor,
    room: Room,
    /// A packet far from those before, whose successor would make it the first of a new order.
    stray: Option<(u16, Vec<u8>)>,
    output: Option<Output>,
    /// By an output that has ended.
    dropped_packets: u64,
    pub(crate) counts: Counts,
    pub(crate) refused: Refused,
    /// When the stream was heard, and who sent.
    pub(crate) heard: Option<(Duration, SocketAddr)>,
    is_out: bool,
    gate: Gate,
    since: Heard,
}

/// What was heard of a session, or of a port.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Heard {
    /// RTP timestamps of the first packet and of the last that was not late.
    pub(crate) timestamps: Option<(u32, u32)>,
    /// When the last packet came.
    pub(crate) at: Option<Duration>,
    /// How long it was silent, where that was for [`OUTAGE_AFTER`] and more.
    pub(crate) silent: Duration,
}

/// What came, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Datagrams of the stream.
    pub(crate) packets: u64,
    /// Payload bytes that went into the file.
    pub(crate) payload_bytes: u64,
    /// Came after they had been given up.
    pub(crate) late: u64,
    /// Of other senders, sources or payload types.
    pub(crate) foreign: u64,
    /// Among those, RTP of another payload type, and the last of these.
    pub(crate) foreign_type: u64,
    pub(crate) foreign_type_last: Option<u8>,
    /// Among those, another source of the sender that is followed.
    pub(crate) foreign_ssrc: u64,
    /// Found no room before the answer to PLAY had come.
    pub(crate) too_early: u64,
    /// Neither RTP nor transport stream.
    pub(crate) malformed: u64,
    /// Among those, what begins as a transport stream and is not whole packets.
    pub(crate) bare_misshapen: u64,
    /// RTP without whole transport stream packets in it.
    pub(crate) misshapen: u64,
    /// How often the stream came back after [`OUTAGE_AFTER`] and more, and how long it was away.
    pub(crate) outages: u64,
    pub(crate) outage: Duration,
}

impl Counts {
    /// What was refused, by reason.
    pub(crate) fn refused(&self) -> RefusedCounts {
        RefusedCounts {
            payload_type: self.foreign_type,
            last_payload_type: self.foreign_type_last,
            ssrc: self.foreign_ssrc,
            sender: self.foreign - self.foreign_type - self.foreign_ssrc,
            size: self.misshapen + self.bare_misshapen,
            malformed: self.malformed - self.bare_misshapen,
        }
    }
}

/// What the signalling has said of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Announced {
    pub(crate) host: IpAddr,
    /// The port there that RTP comes from, where the server has said it.
    pub(crate) port: Option<u16>,
    pub(crate) payload_type: u8,
    pub(crate) ssrc: Option<u32>,
    /// The session takes up a title: what comes waits until it is known where it begins.
    pub(crate) is_resumed: bool,
}

impl Stream {
    pub(crate) fn new(senders: Vec<IpAddr>, wait: Duration, output: Option<Output>) -> Stream {
        Stream {
            senders,
            payload_type: PAYLOAD_TYPE,
            sources: SourceTable::new(CLOCK_RATE_HZ),
            window: Reorder::new(Limits { wait, ..Limits::default() }),
            monitor: Monitor::new(),
            room: Room::default(),
            stray: None,
            output,
            dropped_packets: 0,
            counts: Counts::default(),
            refused: Refused::default(),
            heard: None,
            is_out: false,
            gate: Gate::default(),
            since: Heard::default(),
        }
    }

    /// A session with a server begins.
    pub(crate) fn announce(&mut self, announced: Announced) {
        self.senders = vec![announced.host];
        self.payload_type = announced.payload_type;
        self.since = Heard::default();
        self.gate = if announced.is_resumed { Gate::held() } else { Gate::Open };
        self.flush();
        self.sources.renounce();
        self.sources.expect(announced.port.map(|port| SocketAddr::new(announced.host, port)));
        if let Some(ssrc) = announced.ssrc {
            self.sources.announce(ssrc, None);
        }
    }

    /// The server has said which number is the first; what is lost before the first packet counts.
    pub(crate) fn begin_at(&mut self, sequence: u16) {
        let followed = self.sources.followed().filter(|source| source.reception.received() == 0);
        if let Some(ssrc) = followed.and_then(|source| source.ssrc) {
            self.sources.announce(ssrc, Some(sequence));
            self.window.start_at(sequence);
        }
    }

    /// Takes what has waited since the announcement, and all that comes.
    pub(crate) fn let_in(&mut self) {
        for waited in std::mem::take(&mut self.gate).waiting() {
            self.take(&waited.bytes, waited.from, waited.came);
        }
    }

    /// Drops what still waits, and what comes before the next announcement: it belongs elsewhere.
    pub(crate) fn shut(&mut self) {
        if !matches!(self.gate, Gate::Open) {
            self.gate = Gate::Shut;
        }
    }

    /// When the first of those that wait came.
    pub(crate) fn held_since(&self) -> Option<Duration> {
        self.gate.since()
    }

    /// Takes a datagram that came from there at that time on our clock. Says whether a relay sends
    /// it on: it is of the sender that is followed, or nobody is followed yet.
    pub(crate) fn take(&mut self, datagram: &[u8], from: SocketAddr, now: Duration) -> bool {
        if !self.is_named(from) {
            self.refuse(from, 1, Why::NotNamed);
            return false;
        }
        match self.gate.pass(datagram, from, now) {
            Passage::Open => {}
            Passage::Waits => return true,
            Passage::Full => {
                // This host's doing, and not the sender's.
                self.counts.too_early += 1;
                self.refused.note(from, 1, Why::TooEarly);
                return false;
            }
            Passage::Shut => return false,
        }
        match datagram.first() {
            Some(&SYNC_BYTE) => self.take_bare(datagram, from, now),
            _ => self.take_rtp(datagram, from, now),
        }
    }

    /// Takes note of a run of datagrams of which only the beginning of the first is seen; so many,
    /// of so many bytes in all. Nothing is delivered. Says whether the run is to be sent on, as
    /// [`Stream::take`] does.
    pub(crate) fn glance(
        &mut self,
        head: &[u8],
        (packets, bytes): (u32, u32),
        from: SocketAddr,
        now: Duration,
    ) -> bool {
        if !self.is_named(from) {
            self.refuse(from, packets.into(), Why::NotNamed);
            return false;
        }
        let is_bare = head.first() == Some(&SYNC_BYTE);
        // Extension and padding are not looked at: the fixed header has all that is counted.
        let fixed = head.first_chunk::<HEADER_BYTES>().map(|fixed| {
            let mut fixed = *fixed;
            fixed[0] &= VERSION_BITS;
            fixed
        });
        let parsed = fixed.and_then(|fixed| Header::parse(&fixed).ok());
        let (mut standing, mut ssrc, mut head_bytes) = (SourceStatus::Foreign, None, 0);
        if is_bare {
            for _ in 0..packets {
                standing = self.sources.receive_bare(from, now);
            }
        } else if let Some((mut header, _)) = parsed {
            (ssrc, head_bytes) = (Some(header.ssrc), HEADER_BYTES as u64);
            for _ in 0..packets {
                standing = self.sources.receive(&header, from, now);
                header.sequence = header.sequence.wrapping_add(1);
            }
        } else {
            return self.malformed(from, packets.into());
        }
        match standing {
            // Nobody else is there yet.
            SourceStatus::Waiting if self.sources.followed().is_none() => {}
            SourceStatus::Followed(_) | SourceStatus::Chosen(_) => {}
            SourceStatus::Waiting | SourceStatus::Foreign => {
                self.refuse_source((ssrc, from), packets.into());
                return false;
            }
        }
        self.hear_many(packets, from, now);
        let of_heads = head_bytes * u64::from(packets);
        self.counts.payload_bytes += u64::from(bytes).saturating_sub(of_heads);
        true
    }

    /// What is due without a packet: holes are given up, blocks and outages looked at.
    pub(crate) fn tick(&mut self, now: Duration) {
        let Stream { window, monitor, output, counts, .. } = self;
        window.expire(now, |bytes, came| deliver((monitor, output, counts), bytes, came, now));
        if let Some(output) = output {
            output.tick(now);
        }
        let is_silent =
            self.heard.is_some_and(|(heard, _)| now.saturating_sub(heard) >= OUTAGE_AFTER);
        if is_silent && !self.is_out {
            self.is_out = true;
        }
    }

    /// Nothing comes any more: what is held is written.
    pub(crate) fn end(&mut self) {
        self.flush();
        self.clear_room();
        if let Some(mut output) = self.output.take() {
            output.end();
            self.dropped_packets = output.dropped_packets();
        }
    }

    /// Packets that the disk was too slow for.
    pub(crate) fn dropped_packets(&self) -> u64 {
        self.output.as_ref().map_or(self.dropped_packets, Output::dropped_packets)
    }

    /// Holes that were given up: what the file lacks.
    pub(crate) fn missing(&self) -> u64 {
        self.window.missing()
    }

    /// What was heard since the last announcement.
    pub(crate) fn heard_since(&self) -> Heard {
        self.since
    }

    /// Whether what comes is a bare transport stream.
    pub(crate) fn is_bare(&self) -> bool {
        self.sources.followed().is_some_and(|source| source.ssrc.is_none())
    }

    /// Where the stream comes from.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.sources.followed()?.from
    }

    fn is_named(&self, from: SocketAddr) -> bool {
        self.senders.is_empty() || self.senders.contains(&from.ip().to_canonical())
    }

    fn refuse(&mut self, from: SocketAddr, datagrams: u64, why: Why) {
        self.counts.foreign += datagrams;
        self.refused.note(from, datagrams, why);
    }

    /// Refuses datagrams of a source that is not followed.
    fn refuse_source(&mut self, (ssrc, from): Identity, datagrams: u64) {
        let followed = self.sources.followed();
        let is_same = |other: Option<u32>| followed.is_some_and(|source| source.ssrc == other);
        let why = match followed {
            None => Why::NoStream,
            Some(_) if is_same(ssrc) => Why::Collision,
            Some(_) => Why::NotFollowed,
        };
        if self.peer() == Some(from) {
            // Another source of the same sender.
            self.counts.foreign += datagrams;
            self.counts.foreign_ssrc += datagrams;
        } else {
            self.refuse(from, datagrams, why);
        }
    }

    /// Refuses a packet of another payload type.
    fn refuse_type(&mut self, payload_type: u8, from: SocketAddr) {
        self.counts.foreign += 1;
        self.counts.foreign_type += 1;
        self.counts.foreign_type_last = Some(payload_type);
        if self.peer() != Some(from) {
            self.refused.note(from, 1, Why::PayloadType);
        }
    }

    /// Counts datagrams that are of no stream; says whether a relay sends them on.
    fn malformed(&mut self, from: SocketAddr, datagrams: u64) -> bool {
        self.counts.malformed += datagrams;
        let is_own = self.peer().is_none_or(|peer| peer == from);
        if !is_own {
            self.refused.note(from, datagrams, Why::Malformed);
        }
        is_own
    }

    fn hear(&mut self, from: SocketAddr, now: Duration) {
        self.hear_many(1, from, now);
    }

    fn hear_many(&mut self, packets: u32, from: SocketAddr, now: Duration) {
        self.counts.packets += u64::from(packets);
        let before = self.heard.replace((now, from));
        let is_first = self.since.at.replace(now).is_none();
        if std::mem::take(&mut self.is_out)
            && let Some((heard, _)) = before
        {
            let silent = now.saturating_sub(heard);
            self.counts.outages += 1;
            self.counts.outage += silent;
            if !is_first {
                self.since.silent += silent;
            }
        }
    }

    fn take_bare(&mut self, datagram: &[u8], from: SocketAddr, now: Duration) -> bool {
        if !datagram.len().is_multiple_of(TS_PACKET_BYTES) {
            self.counts.bare_misshapen += 1;
            return self.malformed(from, 1);
        }
        let standing = self.sources.receive_bare(from, now);
        self.take_standing(standing, (None, from), (0, datagram), now)
    }

    fn take_rtp(&mut self, datagram: &[u8], from: SocketAddr, now: Duration) -> bool {
        let Ok((header, payload)) = Header::parse(datagram) else {
            return self.malformed(from, 1);
        };
        let who = (Some(header.ssrc), from);
        if header.payload_type != self.payload_type {
            self.refuse_type(header.payload_type, from);
            return self.peer().is_none_or(|peer| peer == from);
        }
        let payload = &datagram[payload];
        let standing = self.sources.receive(&header, from, now);
        if let SourceStatus::Followed(arrival) | SourceStatus::Chosen(arrival) = standing
            && !matches!(
                arrival,
                SequenceUpdate::Reordered
                    | SequenceUpdate::Old
                    | SequenceUpdate::Duplicate
                    | SequenceUpdate::Stray
            )
        {
            let (first, last) = (header.timestamp, header.timestamp);
            self.since.timestamps.get_or_insert((first, last)).1 = last;
        }
        self.take_standing(standing, who, (header.sequence, payload), now)
    }

    /// Takes a payload of a source that has been looked at.
    fn take_standing(
        &mut self,
        standing: SourceStatus,
        who: Identity,
        (sequence, payload): (u16, &[u8]),
        now: Duration,
    ) -> bool {
        match standing {
            SourceStatus::Followed(arrival) => {
                if let Some(oldest) = self.room.oldest()
                    && (!self.sources.is_contested()
                        || now.saturating_sub(oldest) >= CONTESTED_FOR_MAX)
                {
                    self.clear_room();
                }
                self.hear(who.1, now);
                self.deliver_or_place(who, (sequence, payload), arrival, now);
                true
            }
            SourceStatus::Chosen(arrival) => {
                self.follow(who, sequence, now);
                self.deliver_or_place(who, (sequence, payload), arrival, now);
                true
            }
            SourceStatus::Waiting => {
                self.wait(who, (sequence, payload), now);
                self.sources.followed().is_none()
            }
            SourceStatus::Foreign => {
                self.refuse_source(who, 1);
                false
            }
        }
    }

    /// Keeps a packet whose source may be followed later, if there is room.
    fn wait(&mut self, who: Identity, (sequence, payload): (u16, &[u8]), now: Duration) {
        let packet = Waited { sequence, payload, came: now };
        if self.room.keep(who, packet) {
            return;
        }
        if self.room.may_compact(now) {
            let Stream { room, sources, counts, refused, .. } = self;
            let knows = |(ssrc, from): Identity| sources.knows(ssrc, from);
            room.retain(knows, |(_, from)| {
                counts.foreign += 1;
                refused.note(from, 1, Why::NotFollowed);
            });
            if room.keep(who, packet) {
                return;
            }
        }
        self.refuse_source(who, 1);
    }

    /// Sends away those that wait: another is followed.
    fn clear_room(&mut self) {
        let mut room = std::mem::take(&mut self.room);
        room.retain(|_| false, |who| self.refuse_source(who, 1));
        self.room = room;
    }

    /// Goes over to another source, whose first packets have waited.
    fn follow(&mut self, who: Identity, sequence: u16, now: Duration) {
        self.flush();
        self.monitor.renew();
        let mut room = std::mem::take(&mut self.room);
        if who.0.is_some() {
            let ahead = |other: u16| other.wrapping_sub(sequence).cast_signed();
            let first = room.of(who).map(|waited| ahead(waited.sequence)).min();
            self.window.start_at(sequence.wrapping_add_signed(first.unwrap_or(0).min(0)));
        }
        for waited in room.of(who) {
            self.hear(who.1, now);
            if who.0.is_some() {
                self.push(waited.sequence, waited.payload, waited.came);
            } else {
                self.deliver(waited.payload, waited.came, now);
            }
        }
        self.hear(who.1, now);
        room.retain(
            |_| false,
            |other| {
                if other != who {
                    self.refuse_source(other, 1);
                }
            },
        );
        // The memory of the room is used again.
        self.room = room;
    }

    fn deliver_or_place(
        &mut self,
        who: Identity,
        packet: (u16, &[u8]),
        arrival: SequenceUpdate,
        now: Duration,
    ) {
        match who.0 {
            Some(_) => self.place(packet, arrival, now),
            None => self.deliver(packet.1, now, now),
        }
    }

    fn deliver(&mut self, payload: &[u8], came: Duration, now: Duration) {
        let Stream { monitor, output, counts, .. } = self;
        deliver((monitor, output, counts), payload, came, now);
    }

    /// A packet of the source that is followed.
    fn place(&mut self, (sequence, payload): (u16, &[u8]), arrival: SequenceUpdate, now: Duration) {
        match arrival {
            SequenceUpdate::Duplicate => return,
            SequenceUpdate::Stray => {
                self.stray = Some((sequence, payload.to_vec()));
                return;
            }
            SequenceUpdate::Restarted => {
                let stray = self.stray.take();
                let stray = stray.filter(|(at, _)| at.wrapping_add(1) == sequence);
                self.flush();
                if let Some((at, payload)) = stray {
                    self.push(at, &payload, now);
                }
            }
            SequenceUpdate::InOrder
            | SequenceUpdate::AfterGap { .. }
            | SequenceUpdate::Reordered
            | SequenceUpdate::Old => {}
        }
        let placed = self.push(sequence, payload, now);
        self.counts.late += u64::from(placed == Placed::Behind);
    }

    fn push(&mut self, sequence: u16, payload: &[u8], now: Duration) -> Placed {
        let Stream { window, monitor, output, counts, .. } = self;
        window.push(sequence, payload, now, |bytes, came| {
            deliver((monitor, output, counts), bytes, came, now);
        })
    }

    /// Writes what is held and forgets the order.
    fn flush(&mut self) {
        let Stream { window, monitor, output, counts, .. } = self;
        window.finish(|bytes, came| deliver((monitor, output, counts), bytes, came, came));
        self.stray = None;
    }
}

/// A payload in its place: watched, and into the file.
fn deliver(
    (monitor, output, counts): (&mut Monitor, &mut Option<Output>, &mut Counts),
    payload: &[u8],
    came: Duration,
    now: Duration,
) {
    if !payload.len().is_multiple_of(TS_PACKET_BYTES) {
        // Not written: the packets of a file lie 188 bytes apart from its start to its end.
        counts.misshapen += 1;
        return;
    }
    monitor.feed(payload, came);
    counts.payload_bytes += payload.len() as u64;
    if let Some(output) = output {
        output.push(payload, now);
    }
}

/// RFC 3551 §6: MP2T.
const PAYLOAD_TYPE: u8 = 33;
/// ISO/IEC 13818-1 §2.4.3.3; as the first byte of RTP it would be version 1.
const SYNC_BYTE: u8 = 0x47;
/// RFC 3550 §5.1.
const VERSION_BITS: u8 = 0xc0;
/// Packets of another source are kept beside a weak one for so long: two windows of
/// [`wire::sources`] and some.
const CONTESTED_FOR_MAX: Duration = Duration::from_secs(3);
/// A stream that says nothing for so long is interrupted.
pub(crate) const OUTAGE_AFTER: Duration = Duration::from_secs(1);
