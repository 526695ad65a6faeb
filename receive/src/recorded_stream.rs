// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processing of one received stream, from its datagrams to ordered packets in the file.
//!
//! A datagram passes the list of allowed senders, the gate of a resumed session and the shared RTP
//! receiver ([`client::rtp_receiver`]). Its payload is delivered in order to the monitor
//! ([`media::ts::Monitor`]) and into blocks for the disk ([`StreamOutput`]); that of a camera whose
//! tracks are recorded as MP4 is a part of a file ([`FilePart`]). A packet that arrives
//! in order costs one copy per byte and no allocation. Refused datagrams are counted by kind and by
//! sender ([`RefusedSenders`]); no action of a sender ends a stream.
//!
//! Sources: RFC 2250 §2 (whole packets); RFC 3551 §6 (payload type 33).
//! Does not repair losses (FEC), nor read bare streams in packets of 204 bytes.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use client::rtp_receiver::{ObservedHeaders, PacketConsumer, RtpPacket, RtpReceiver, RtpRefusal};
use client::{FilePart, RefusalReason, RefusedSenders, TrackCounts};
use media::TS_PACKET_BYTES;
use media::ts::Monitor;
use wire::mp2t::CLOCK_RATE_HZ;
use wire::reorder::Limits;
use wire::rtp::SequenceUpdate;
use wire::sources::SourceTable;

use crate::fragment_output::FragmentOutput;
use crate::play_gate::{GateDecision, PlayGate};
use crate::write_queue::StreamOutput;

/// A stream that is received.
#[derive(Debug)]
pub(crate) struct RecordedStream {
    /// Allowed senders; any sender if empty.
    senders: Vec<IpAddr>,
    receiver: RtpReceiver<SourceTable>,
    recorder: StreamRecorder,
    /// Packets and bytes dropped by an output that has ended.
    dropped_packets: u64,
    dropped_bytes: u64,
    /// Counts of the multiplexed tracks in this session, and in those that have ended; their losses
    /// never were packets of the stream.
    track_counts: TrackCounts,
    earlier_track_counts: TrackCounts,
    gate: PlayGate,
}

/// Consumer of the packets of a stream: statistics, monitor and file.
#[derive(Debug)]
struct StreamRecorder {
    monitor: Monitor,
    output: Option<RecordOutput>,
    counts: DatagramCounts,
    refused: RefusedSenders,
    /// Time of the last packet of the stream, and its sender.
    last_packet: Option<(Duration, SocketAddr)>,
    is_out: bool,
    since: StreamActivity,
}

/// Output of a stream.
#[derive(Debug)]
pub(crate) enum RecordOutput {
    /// Whole packets of a transport stream.
    Packets(Box<StreamOutput>),
    /// Fragments of MP4.
    Fragments(FragmentOutput),
}

impl RecordOutput {
    /// Packets dropped because no block was free.
    fn dropped_packets(&self) -> u64 {
        match self {
            RecordOutput::Packets(output) => output.dropped_packets(),
            RecordOutput::Fragments(_) => 0,
        }
    }
}

/// Activity of a session, or of a port.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StreamActivity {
    /// RTP timestamps of the first packet and of the last that was not late.
    pub(crate) timestamps: Option<(u32, u32)>,
    /// The longest step between two successive timestamps, in units of the RTP clock.
    pub(crate) longest_step: u32,
    /// Time of the last packet.
    pub(crate) at: Option<Duration>,
    /// Total length of silences of at least [`OUTAGE_AFTER`].
    pub(crate) silent: Duration,
}

/// Counts of datagrams by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DatagramCounts {
    /// Datagrams of the stream.
    pub(crate) packets: u64,
    /// Payload bytes that went into the file.
    pub(crate) payload_bytes: u64,
    /// Datagrams that did not fit the gate before the answer to PLAY arrived.
    pub(crate) too_early: u64,
    /// RTP packets whose payload is not a whole number of transport stream packets.
    pub(crate) bad_payload_size: u64,
    /// Resumptions after a silence of at least [`OUTAGE_AFTER`], and the total length of these
    /// outages.
    pub(crate) outages: u64,
    pub(crate) outage: Duration,
}

/// Parameters that a session has announced for its stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnnouncedSession {
    pub(crate) host: IpAddr,
    /// Source port of RTP at the host, if the server has named it.
    pub(crate) port: Option<u16>,
    pub(crate) payload_type: u8,
    pub(crate) ssrc: Option<u32>,
    /// True if the session resumes a title: datagrams are held until its start is known.
    pub(crate) is_resumed: bool,
}

impl RecordedStream {
    pub(crate) fn new(
        senders: Vec<IpAddr>,
        wait: Duration,
        output: Option<RecordOutput>,
    ) -> RecordedStream {
        let sources = SourceTable::new(CLOCK_RATE_HZ);
        let reorder = Limits { wait, ..Limits::default() };
        RecordedStream {
            senders,
            receiver: RtpReceiver::new(PAYLOAD_TYPE, sources, Some(reorder)),
            recorder: StreamRecorder {
                monitor: Monitor::new(),
                output,
                counts: DatagramCounts::default(),
                refused: RefusedSenders::default(),
                last_packet: None,
                is_out: false,
                since: StreamActivity::default(),
            },
            dropped_packets: 0,
            dropped_bytes: 0,
            track_counts: TrackCounts::default(),
            earlier_track_counts: TrackCounts::default(),
            gate: PlayGate::default(),
        }
    }

    /// Begins a session with a server.
    pub(crate) fn announce(&mut self, announced: AnnouncedSession) {
        self.senders = vec![announced.host];
        self.recorder.since = StreamActivity::default();
        self.gate = if announced.is_resumed { PlayGate::held() } else { PlayGate::Open };
        let from = announced.port.map(|port| SocketAddr::new(announced.host, port));
        let AnnouncedSession { payload_type, ssrc, .. } = announced;
        self.receiver.announce(payload_type, from, ssrc, &mut self.recorder);
    }

    /// Sets the first sequence number, as announced by the server, so that losses before the first
    /// packet are counted.
    pub(crate) fn begin_at(&mut self, sequence: u16) {
        self.receiver.expect_first(sequence);
    }

    /// Processes the datagrams held since the announcement, and admits all later ones.
    pub(crate) fn admit_held(&mut self) {
        for held in std::mem::take(&mut self.gate).into_held() {
            self.take(&held.bytes, held.from, held.arrived_at);
        }
    }

    /// Drops the held datagrams and all others until the next announcement: they belong to another
    /// position of the title. Has no effect if the gate is open.
    pub(crate) fn shut(&mut self) {
        if !matches!(self.gate, PlayGate::Open) {
            self.gate = PlayGate::Shut;
        }
    }

    /// Time of arrival of the first held datagram.
    pub(crate) fn held_since(&self) -> Option<Duration> {
        self.gate.since()
    }

    /// Processes a datagram that arrived from `from` at `now` on the recording's clock. Returns
    /// true if a relay forwards it: for a datagram of the followed sender, or while no sender is
    /// followed.
    pub(crate) fn take(&mut self, datagram: &[u8], from: SocketAddr, now: Duration) -> bool {
        if !self.is_named(from) {
            self.recorder.refused.refuse(from, 1, RefusalReason::NotNamed);
            return false;
        }
        match self.gate.pass(datagram, from, now) {
            GateDecision::Open => {}
            GateDecision::Held => return true,
            GateDecision::Full => {
                // The cause is this host, not the sender.
                self.recorder.counts.too_early += 1;
                self.recorder.refused.note(from, 1, RefusalReason::TooEarly);
                return false;
            }
            GateDecision::Shut => return false,
        }
        let RecordedStream { receiver, recorder, .. } = self;
        receiver.receive_any(datagram, from, now, recorder)
    }

    /// Counts `packets` consecutive datagrams of `bytes` in total, of which only the beginning of
    /// the first is available. Delivers nothing. Returns true if a relay forwards them, as
    /// [`RecordedStream::take`] does.
    pub(crate) fn observe_headers(
        &mut self,
        head: &[u8],
        (packets, bytes): (u32, u32),
        from: SocketAddr,
        now: Duration,
    ) -> bool {
        if !self.is_named(from) {
            self.recorder.refused.refuse(from, packets.into(), RefusalReason::NotNamed);
            return false;
        }
        match self.receiver.observe_headers(head, packets, from, now, &mut self.recorder) {
            ObservedHeaders::Accepted { header_bytes } => {
                self.recorder.hear_many(packets, from, now);
                let of_heads = header_bytes as u64 * u64::from(packets);
                let payload = u64::from(bytes).saturating_sub(of_heads);
                self.recorder.counts.payload_bytes += payload;
                true
            }
            ObservedHeaders::Refused { is_sent_on } => is_sent_on,
        }
    }

    /// Performs work that is due without a packet: gives up missing packets, hands over blocks,
    /// detects outages.
    pub(crate) fn tick(&mut self, now: Duration) {
        let RecordedStream { receiver, recorder, .. } = self;
        receiver.expire(now, recorder);
        if let Some(RecordOutput::Packets(output)) = &mut recorder.output {
            output.tick(now);
        }
        let is_silent = recorder
            .last_packet
            .is_some_and(|(heard, _)| now.saturating_sub(heard) >= OUTAGE_AFTER);
        // Packets that this host has no room for wait in their queue.
        let is_heard = self.has_room();
        self.recorder.is_out |= is_silent && is_heard;
    }

    /// Ends the file of fragments of a session that has ended: the next session begins another.
    pub(crate) fn end_session(&mut self) {
        if matches!(self.recorder.output, Some(RecordOutput::Fragments(_))) {
            self.receiver.finish(&mut self.recorder);
        }
        if let Some(RecordOutput::Fragments(output)) = &mut self.recorder.output {
            output.end();
        }
    }

    /// Ends the stream: writes the packets that are still held.
    pub(crate) fn end(&mut self) {
        self.receiver.finish(&mut self.recorder);
        if let Some(mut output) = self.recorder.output.take() {
            match &mut output {
                RecordOutput::Packets(output) => output.end(),
                RecordOutput::Fragments(output) => output.end(),
            }
            self.dropped_packets = output.dropped_packets();
            if let RecordOutput::Fragments(output) = &output {
                self.dropped_bytes = output.dropped_bytes();
            }
        }
    }

    /// Drops a batch of the last packets of a session if there is no memory for it; returns true
    /// then. The batch has whole fragments: the file remains whole.
    pub(crate) fn drop_beyond_memory(&mut self, bytes: usize) -> bool {
        match &mut self.recorder.output {
            Some(RecordOutput::Fragments(output)) => output.drop_beyond_memory(bytes),
            _ => false,
        }
    }

    /// Bytes of fragments dropped because the disk was too slow.
    pub(crate) fn dropped_bytes(&self) -> u64 {
        match &self.recorder.output {
            Some(RecordOutput::Fragments(output)) => output.dropped_bytes(),
            _ => self.dropped_bytes,
        }
    }

    /// True if another batch of packets may be taken: false for fragments for which no block is
    /// free.
    pub(crate) fn has_room(&self) -> bool {
        match &self.recorder.output {
            Some(RecordOutput::Fragments(output)) => output.has_room(),
            _ => true,
        }
    }

    /// Packets dropped because the disk was too slow.
    pub(crate) fn dropped_packets(&self) -> u64 {
        self.recorder.output.as_ref().map_or(self.dropped_packets, RecordOutput::dropped_packets)
    }

    /// Sets the counts of the tracks that the stream is made of, in this session so far.
    pub(crate) fn set_track_counts(&mut self, counts: TrackCounts) {
        self.track_counts = counts;
    }

    /// True if tracks have lost packets in this session.
    pub(crate) fn has_track_losses(&self) -> bool {
        self.track_counts.lost_packets > 0
    }

    /// Ends the session of the tracks: counts that are set later are added.
    pub(crate) fn end_tracks(&mut self) {
        self.earlier_track_counts += std::mem::take(&mut self.track_counts);
    }

    /// Counts of the tracks that the stream is made of.
    pub(crate) fn track_counts(&self) -> TrackCounts {
        let mut counts = self.earlier_track_counts;
        counts += self.track_counts;
        counts
    }

    /// Datagrams by kind.
    pub(crate) fn counts(&self) -> DatagramCounts {
        self.recorder.counts
    }

    /// Packets that arrived after they had been given up.
    pub(crate) fn late(&self) -> u64 {
        self.receiver.late()
    }

    /// Packets that were given up as lost and are not in the file.
    pub(crate) fn missing(&self) -> u64 {
        self.receiver.missing()
    }

    /// Table of the sources received, including the followed one.
    pub(crate) fn sources(&self) -> &SourceTable {
        &self.receiver.sources
    }

    /// Mutable table of the sources, for reports and BYE.
    pub(crate) fn sources_mut(&mut self) -> &mut SourceTable {
        &mut self.receiver.sources
    }

    /// The monitor of the transport stream.
    pub(crate) fn monitor(&mut self) -> &mut Monitor {
        &mut self.recorder.monitor
    }

    /// Senders that were refused.
    pub(crate) fn refused(&mut self) -> &mut RefusedSenders {
        &mut self.recorder.refused
    }

    /// Time of the last packet of the stream, and its sender.
    pub(crate) fn last_packet(&self) -> Option<(Duration, SocketAddr)> {
        self.recorder.last_packet
    }

    /// Silence since the last packet, of a stream that is interrupted.
    pub(crate) fn silence(&self, now: Duration) -> Option<Duration> {
        let (heard, _) = self.last_packet().filter(|_| self.recorder.is_out)?;
        Some(now.saturating_sub(heard))
    }

    /// Activity since the last announcement.
    pub(crate) fn activity(&self) -> StreamActivity {
        self.recorder.since
    }

    /// True for a bare transport stream.
    pub(crate) fn is_bare(&self) -> bool {
        self.sources().followed().is_some_and(|source| source.ssrc.is_none())
    }

    fn is_named(&self, from: SocketAddr) -> bool {
        self.senders.is_empty() || self.senders.contains(&from.ip().to_canonical())
    }
}

impl StreamRecorder {
    fn hear_many(&mut self, packets: u32, from: SocketAddr, now: Duration) {
        self.counts.packets += u64::from(packets);
        let before = self.last_packet.replace((now, from));
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
}

impl PacketConsumer for StreamRecorder {
    fn arrived(&mut self, packet: RtpPacket<'_>) {
        self.hear_many(1, packet.from, packet.at);
        if let Some((header, arrival)) = packet.header
            && !matches!(
                arrival,
                SequenceUpdate::Reordered
                    | SequenceUpdate::Old
                    | SequenceUpdate::Duplicate
                    | SequenceUpdate::Stray
            )
        {
            let (first, last) = (header.timestamp, header.timestamp);
            let before = &mut self.since.timestamps.get_or_insert((first, last)).1;
            let step = last.wrapping_sub(*before).cast_signed().max(0).unsigned_abs();
            self.since.longest_step = self.since.longest_step.max(step);
            *before = last;
        }
    }

    fn deliver(&mut self, payload: &[u8], arrived_at: Duration, now: Duration) {
        if let Some(RecordOutput::Fragments(output)) = &mut self.output {
            if let Some(part) = FilePart::parse(payload) {
                self.counts.payload_bytes += part.bytes.len() as u64;
                output.push(&part);
            }
            return;
        }
        if !payload.len().is_multiple_of(TS_PACKET_BYTES) {
            // Not written, so that the packets of a file lie 188 bytes apart from its start to its
            // end.
            self.counts.bad_payload_size += 1;
            return;
        }
        self.monitor.feed(payload, arrived_at);
        self.counts.payload_bytes += payload.len() as u64;
        if let Some(RecordOutput::Packets(output)) = &mut self.output {
            output.push(payload, now);
        }
    }

    fn refused(
        &mut self,
        from: SocketAddr,
        datagrams: u64,
        reason: RtpRefusal,
        peer: Option<SocketAddr>,
    ) {
        self.refused.refuse_rtp(from, datagrams, reason, peer);
    }

    fn source_changed(&mut self) {
        self.monitor.renew();
    }
}

/// RFC 3551 §6: MP2T.
const PAYLOAD_TYPE: u8 = 33;
/// Silence after which a stream counts as interrupted.
pub(crate) const OUTAGE_AFTER: Duration = Duration::from_secs(1);
