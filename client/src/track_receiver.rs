// SPDX-License-Identifier: MIT OR Apache-2.0
//! A track of a play: from packets in order to access units, with times of decoding for the
//! lateness.
//!
//! Sources: RFC 3550 §5.1; the payload formats of `media::depayload`.
//! Does not put packets in order (the reorder window before it does).

use std::time::{Duration, Instant};

use media::depayload::{DepayloadCounts, Depayloader, TrackPacket};
use media::{AccessUnit, Codec};
use wire::reorder::Limits;
use wire::rtcp::SenderInfo;
use wire::rtp::Header;

use super::decode_order::DecodeOrder;
use super::lateness::Lateness;
use super::sender_clock::SenderClock;
use super::track_muxer::TrackOrigin;
use super::track_queue::TrackSink;

/// The depayloader of a track, and who gets its units.
#[derive(Debug)]
pub(super) struct TrackReceiver {
    depayloader: Depayloader,
    /// Of pictures, which may be sent in another order than they are presented in.
    order: Option<DecodeOrder>,
    sink: Option<TrackSink>,
    announced: Option<Codec>,
}

impl TrackReceiver {
    pub(super) fn new(
        depayloader: Depayloader,
        is_video: bool,
        sink: Option<TrackSink>,
    ) -> TrackReceiver {
        let order = is_video.then(DecodeOrder::default);
        TrackReceiver { depayloader, order, sink, announced: None }
    }

    /// Counts so far.
    pub(super) fn counts(&self) -> DepayloadCounts {
        self.depayloader.counts()
    }

    /// The format, once it is known.
    pub(super) fn codec(&self) -> Option<&Codec> {
        self.depayloader.codec()
    }

    /// Times a packet that arrived for the first time.
    pub(super) fn time(&mut self, timestamp: u32, arrival: Instant, lateness: &mut Lateness) {
        self.push_time(timestamp, arrival, |timestamp, arrival| {
            lateness.arrived(timestamp, arrival);
        });
    }

    /// Times what is still held: the stream pauses, or has ended.
    pub(super) fn flush_times(&mut self, lateness: &mut Lateness) {
        self.flush_held(|timestamp, arrival| lateness.arrived(timestamp, arrival));
    }

    /// Takes a packet that arrived for the first time; calls `ready` with a time of decoding and
    /// the arrival for each packet whose time is known now.
    pub(super) fn push_time(
        &mut self,
        timestamp: u32,
        arrival: Instant,
        mut ready: impl FnMut(u32, Instant),
    ) {
        match &mut self.order {
            Some(order) => order.push(timestamp, arrival, ready),
            None => ready(timestamp, arrival),
        }
    }

    /// Calls `ready` for what is still held.
    pub(super) fn flush_held(&mut self, ready: impl FnMut(u32, Instant)) {
        if let Some(order) = &mut self.order {
            order.flush(ready);
        }
    }

    /// Takes a sender report.
    pub(super) fn report(&mut self, sender: &SenderInfo) {
        let Some(sink) = &mut self.sink else { return };
        let clock_rate_hz = self.depayloader.clock_rate_hz();
        let origin = TrackOrigin { timestamp: sender.rtp_timestamp, clock_rate_hz };
        sink.report(SenderClock { ntp: sender.ntp, origin });
    }

    /// Takes the next packet in order, with its header.
    pub(super) fn take(&mut self, datagram: &[u8]) {
        // It has been parsed before.
        let Ok((header, payload)) = Header::parse(datagram) else { return };
        let packet = TrackPacket {
            sequence: header.sequence,
            timestamp: header.timestamp,
            marker: header.marker,
            payload: &datagram[payload],
        };
        let units: Vec<_> = self.depayloader.push(packet).collect();
        self.pass_on(units);
    }

    /// The stream has ended, or is `is_cut` off while the sender goes on.
    pub(super) fn finish(&mut self, is_cut: bool) {
        let units: Vec<_> = match is_cut {
            true => self.depayloader.cut_off().collect(),
            false => self.depayloader.finish().collect(),
        };
        self.pass_on(units);
    }

    fn pass_on(&mut self, units: Vec<AccessUnit>) {
        let Some(sink) = self.sink.as_mut().filter(|_| !units.is_empty()) else { return };
        if let Some(codec) = self.depayloader.codec()
            && self.announced.as_ref() != Some(codec)
        {
            self.announced = Some(codec.clone());
            sink.announce(codec.clone());
        }
        // Before the parameters have come nobody could decode them.
        if self.announced.is_some() {
            units.into_iter().for_each(|unit| sink.push(unit));
        }
    }
}

/// The reorder window of a track: a lost packet holds the others up for as long as a player would.
pub(super) const TRACK_REORDER: Limits =
    Limits { packets: 4096, bytes: 16 << 20, wait: Duration::from_millis(200) };
