// SPDX-License-Identifier: MIT OR Apache-2.0
//! One stream at its receiver: from a datagram to packets in order in the file.
//!
//! The way of a datagram: RTP or a bare transport stream (the first byte tells: version 2 against
//! the sync byte) → of the source that is followed ([`wire::sources`]) → put into order
//! ([`wire::reorder`]) → watched ([`media::ts::Monitor`]) → gathered for the disk ([`Output`]). In
//! order, that is one copy a byte and no allocation. What does not belong is counted by kind and
//! goes no further; nothing a sender does ends a stream.
//!
//! Sources: RFC 3550 §5.1, A.1; RFC 2250 §2 (whole packets); RFC 3551 §6 (payload type 33).
//! Does not do: FEC, bare streams in packets of 204 bytes.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use media::TS_PACKET_BYTES;
use media::ts::Monitor;
use wire::reorder::{Limits, Placed, Reorder};
use wire::rtp::{Arrival, HEADER_BYTES, Header};
use wire::sdp::CLOCK_RATE_HZ;
use wire::sources::{SILENCE, Sources, Standing};

use crate::block::Output;
use crate::room::{Room, Waited};

/// A stream that is received.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Who may send; anybody when empty.
    senders: Vec<IpAddr>,
    payload_type: u8,
    pub(crate) sources: Sources,
    window: Reorder,
    pub(crate) monitor: Monitor,
    room: Room,
    /// A packet far from those before, whose successor would make it the first of a new order.
    stray: Option<(u16, Vec<u8>)>,
    /// Who sends a bare stream, and when it was heard.
    bare: Option<(SocketAddr, Duration)>,
    output: Option<Output>,
    /// By an output that has ended.
    dropped_packets: u64,
    pub(crate) counts: Counts,
    /// When the stream was heard, and who sent.
    pub(crate) heard: Option<(Duration, SocketAddr)>,
    is_out: bool,
    last_timestamp: u32,
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
    /// Neither RTP nor transport stream.
    pub(crate) malformed: u64,
    /// RTP without whole transport stream packets in it.
    pub(crate) misshapen: u64,
    /// How often the stream came back after [`OUTAGE_AFTER`] and more, and how long it was away.
    pub(crate) outages: u64,
    pub(crate) outage: Duration,
}

/// What the signalling has said of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Announced {
    pub(crate) host: IpAddr,
    pub(crate) payload_type: u8,
    pub(crate) ssrc: Option<u32>,
}

impl Stream {
    pub(crate) fn new(senders: Vec<IpAddr>, wait: Duration, output: Option<Output>) -> Stream {
        Stream {
            senders,
            payload_type: PAYLOAD_TYPE,
            sources: Sources::new(CLOCK_RATE_HZ),
            window: Reorder::new(Limits { wait, ..Limits::default() }),
            monitor: Monitor::new(),
            room: Room::default(),
            stray: None,
            bare: None,
            output,
            dropped_packets: 0,
            counts: Counts::default(),
            heard: None,
            is_out: false,
            last_timestamp: 0,
        }
    }

    /// A session with a server begins.
    pub(crate) fn announce(&mut self, announced: Announced) {
        self.senders = vec![announced.host];
        self.payload_type = announced.payload_type;
        self.flush();
        self.sources.renounce();
        if let Some(ssrc) = announced.ssrc {
            self.sources.announce(ssrc, None);
        }
    }

    /// The server has said which number is the first; what is lost before the first packet counts.
    pub(crate) fn begin_at(&mut self, sequence: u16) {
        let followed = self.sources.followed().filter(|source| source.reception.received() == 0);
        if let Some(ssrc) = followed.map(|source| source.ssrc) {
            self.sources.announce(ssrc, Some(sequence));
            self.window.start_at(sequence);
        }
    }

    /// Takes a datagram that came from there at that time on our clock.
    pub(crate) fn take(&mut self, datagram: &[u8], from: SocketAddr, now: Duration) {
        let host = from.ip().to_canonical();
        if !self.senders.is_empty() && !self.senders.contains(&host) {
            self.counts.foreign += 1;
            return;
        }
        match datagram.first() {
            Some(&SYNC_BYTE) => self.take_bare(datagram, from, now),
            _ => self.take_rtp(datagram, from, now),
        }
    }

    /// Takes note of a run of datagrams of which only the beginning of the first is seen; so many,
    /// of so many bytes in all. Nothing is delivered.
    pub(crate) fn glance(
        &mut self,
        head: &[u8],
        (packets, bytes): (u32, u32),
        from: SocketAddr,
        now: Duration,
    ) {
        if head.first() == Some(&SYNC_BYTE) {
            self.bare = Some((from, now));
            self.hear_many(packets, from, now);
            self.counts.payload_bytes += u64::from(bytes);
            return;
        }
        // Extension and padding are not looked at: the fixed header has all that is counted.
        let fixed = head.first_chunk::<HEADER_BYTES>().map(|fixed| {
            let mut fixed = *fixed;
            fixed[0] &= VERSION_BITS;
            fixed
        });
        let parsed = fixed.and_then(|fixed| Header::parse(&fixed).ok());
        let Some((mut header, _)) = parsed else {
            self.counts.malformed += u64::from(packets);
            return;
        };
        for _ in 0..packets {
            self.sources.receive(&header, now);
            header.sequence = header.sequence.wrapping_add(1);
        }
        self.hear_many(packets, from, now);
        self.counts.payload_bytes +=
            u64::from(bytes).saturating_sub(HEADER_BYTES as u64 * u64::from(packets));
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

    /// The RTP timestamp of the last packet that was not late.
    pub(crate) fn last_timestamp(&self) -> u32 {
        self.last_timestamp
    }

    /// Whether what comes is a bare transport stream.
    pub(crate) fn is_bare(&self) -> bool {
        self.bare.is_some()
    }

    fn hear(&mut self, from: SocketAddr, now: Duration) {
        self.hear_many(1, from, now);
    }

    fn hear_many(&mut self, packets: u32, from: SocketAddr, now: Duration) {
        self.counts.packets += u64::from(packets);
        let before = self.heard.replace((now, from));
        if std::mem::take(&mut self.is_out)
            && let Some((heard, _)) = before
        {
            self.counts.outages += 1;
            self.counts.outage += now.saturating_sub(heard);
        }
    }

    fn take_bare(&mut self, datagram: &[u8], from: SocketAddr, now: Duration) {
        if !datagram.len().is_multiple_of(TS_PACKET_BYTES) {
            self.counts.malformed += 1;
            return;
        }
        let is_same = self.bare.is_some_and(|(sender, _)| sender == from);
        if !is_same && (self.is_bare_heard(now) || self.is_rtp_heard(now)) {
            self.counts.foreign += 1;
            return;
        }
        self.bare = Some((from, now));
        if !is_same {
            self.flush();
            self.monitor.renew();
        }
        self.hear(from, now);
        let Stream { monitor, output, counts, .. } = self;
        deliver((monitor, output, counts), datagram, now, now);
    }

    fn is_bare_heard(&self, now: Duration) -> bool {
        self.bare.is_some_and(|(_, heard)| now.saturating_sub(heard) < SILENCE)
    }

    fn is_rtp_heard(&self, now: Duration) -> bool {
        self.sources.followed().is_some_and(|source| now.saturating_sub(source.heard) < SILENCE)
    }

    fn take_rtp(&mut self, datagram: &[u8], from: SocketAddr, now: Duration) {
        let Ok((header, payload)) = Header::parse(datagram) else {
            self.counts.malformed += 1;
            return;
        };
        let is_bare_heard = self.bare.is_some_and(|(_, heard)| now.saturating_sub(heard) < SILENCE);
        if header.payload_type != self.payload_type || is_bare_heard {
            self.counts.foreign += 1;
            return;
        }
        let payload = &datagram[payload];
        match self.sources.receive(&header, now) {
            Standing::Followed(arrival) => {
                if !self.room.is_empty() {
                    self.counts.foreign += self.room.clear();
                }
                self.hear(from, now);
                self.place(&header, payload, arrival, now);
            }
            Standing::Chosen(arrival) => {
                self.follow(&header, from, now);
                self.place(&header, payload, arrival, now);
            }
            Standing::Waiting => {
                let packet = Waited { sequence: header.sequence, payload, came: now };
                self.counts.foreign += u64::from(!self.room.keep(header.ssrc, packet));
            }
            Standing::Foreign => self.counts.foreign += 1,
        }
    }

    /// Goes over to another source, whose first packets have waited.
    fn follow(&mut self, header: &Header, from: SocketAddr, now: Duration) {
        self.flush();
        self.monitor.renew();
        self.bare = None;
        let room = std::mem::take(&mut self.room);
        let ahead = |sequence: u16| sequence.wrapping_sub(header.sequence).cast_signed();
        let first = room.of(header.ssrc).map(|waited| ahead(waited.sequence)).min();
        let first = header.sequence.wrapping_add_signed(first.unwrap_or(0).min(0));
        self.window.start_at(first);
        let mut followed = 0;
        for waited in room.of(header.ssrc) {
            self.hear(from, now);
            self.push(waited.sequence, waited.payload, waited.came);
            followed += 1;
        }
        self.hear(from, now);
        // The memory of the room is used again; others' packets in it were theirs alone.
        self.room = room;
        self.counts.foreign += self.room.clear() - followed;
    }

    /// A packet of the source that is followed.
    fn place(&mut self, header: &Header, payload: &[u8], arrival: Arrival, now: Duration) {
        match arrival {
            Arrival::Duplicate => return,
            Arrival::Stray => {
                self.stray = Some((header.sequence, payload.to_vec()));
                return;
            }
            Arrival::Restarted => {
                let stray = self.stray.take();
                let stray = stray.filter(|(at, _)| at.wrapping_add(1) == header.sequence);
                self.flush();
                if let Some((sequence, payload)) = stray {
                    self.push(sequence, &payload, now);
                }
            }
            Arrival::InOrder | Arrival::AfterGap { .. } | Arrival::Reordered | Arrival::Old => {}
        }
        if !matches!(arrival, Arrival::Reordered | Arrival::Old) {
            self.last_timestamp = header.timestamp;
        }
        let placed = self.push(header.sequence, payload, now);
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
/// A stream that says nothing for so long is interrupted.
pub(crate) const OUTAGE_AFTER: Duration = Duration::from_secs(1);
