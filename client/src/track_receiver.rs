// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receives a track of a play: assembles access units from packets in order, and computes decoding
//! times for the lateness.
//!
//! Sources: RFC 3550 §5.1; the payload formats of `media::depayload`.
//! Does not reorder packets (the reorder window does).

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

/// The depayloader of a track, and the consumer of its units.
#[derive(Debug)]
pub(super) struct TrackReceiver {
    depayloader: Depayloader,
    /// Reorders decoding times of video, which may be sent in another order than it is presented.
    order: Option<DecodeOrder>,
    sink: Option<TrackSink>,
    /// The lateness of its packets is computed.
    is_timed: bool,
    announced: Option<Codec>,
    /// Units received before the codec's parameters and not yet reported.
    undecodable: u64,
    /// Arrival of the last packet; `None` before the first.
    last_arrival: Option<Instant>,
}

impl TrackReceiver {
    pub(super) fn new(
        depayloader: Depayloader,
        is_video: bool,
        sink: Option<TrackSink>,
    ) -> TrackReceiver {
        let order = is_video.then(DecodeOrder::default);
        TrackReceiver {
            depayloader,
            order,
            sink,
            is_timed: true,
            announced: None,
            undecodable: 0,
            last_arrival: None,
        }
    }

    /// A receiver for a recorder, which does not need the lateness. Passes on the codec that the
    /// description names; other parameters in the stream are in its units as well.
    pub(super) fn of_recorder(depayloader: Depayloader, mut sink: TrackSink) -> TrackReceiver {
        let announced = depayloader.codec().cloned();
        if let Some(codec) = &announced {
            sink.describe(codec.clone());
        }
        let receiver = TrackReceiver::new(depayloader, false, Some(sink));
        TrackReceiver { is_timed: false, announced, ..receiver }
    }

    /// Counts so far.
    pub(super) fn counts(&self) -> DepayloadCounts {
        self.depayloader.counts()
    }

    /// The format, once it is known.
    pub(super) fn codec(&self) -> Option<&Codec> {
        self.depayloader.codec()
    }

    /// Computes the lateness of a packet that arrived for the first time.
    pub(super) fn time(&mut self, timestamp: u32, arrival: Instant, lateness: &mut Lateness) {
        if self.is_timed {
            self.push_time(timestamp, arrival, |timestamp, arrival| {
                lateness.arrived(timestamp, arrival);
            });
        }
    }

    /// Computes the lateness of the held packets: the stream pauses, or has ended.
    pub(super) fn flush_times(&mut self, lateness: &mut Lateness) {
        self.flush_held(|timestamp, arrival| lateness.arrived(timestamp, arrival));
    }

    /// Adds a packet that arrived for the first time; calls `ready` with a decoding time and the
    /// arrival for each packet whose decoding time is now known.
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

    /// Calls `ready` for the packets still held.
    pub(super) fn flush_held(&mut self, ready: impl FnMut(u32, Instant)) {
        if let Some(order) = &mut self.order {
            order.flush(ready);
        }
    }

    /// Passes a sender report on.
    pub(super) fn report(&mut self, sender: &SenderInfo) {
        let Some(sink) = &mut self.sink else { return };
        let clock_rate_hz = self.depayloader.clock_rate_hz();
        let origin = TrackOrigin { timestamp: sender.rtp_timestamp, clock_rate_hz };
        sink.report(SenderClock { ntp: sender.ntp, origin });
    }

    /// All packets that arrived until then were passed to this receiver.
    pub(super) fn read_until(&self, arrived: Instant) {
        if let Some(sink) = &self.sink {
            sink.read_until(arrived);
        }
    }

    /// Depacketizes the next packet in order, with its header; its units have this arrival.
    pub(super) fn take_arrived(&mut self, datagram: &[u8], at: Instant) {
        self.last_arrival = Some(at);
        self.take(datagram);
    }

    /// Depacketizes the next packet in order, with its header.
    pub(super) fn take(&mut self, datagram: &[u8]) {
        // The header has been parsed successfully before.
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

    /// The stream has ended; with `is_cut` the sender continues, and the last unit may be
    /// incomplete.
    pub(super) fn finish(&mut self, is_cut: bool) {
        let units: Vec<_> = match is_cut {
            true => self.depayloader.cut_off().collect(),
            false => self.depayloader.finish().collect(),
        };
        self.pass_on(units);
        self.report_undecodable();
    }

    fn report_undecodable(&mut self) {
        let units = std::mem::take(&mut self.undecodable);
        let sink = self.sink.as_mut().filter(|_| units > 0);
        if let Some((sink, arrived)) = sink.zip(self.last_arrival) {
            sink.leave_out(units, arrived);
        }
    }

    fn pass_on(&mut self, units: Vec<AccessUnit>) {
        let Some(sink) = self.sink.as_mut().filter(|_| !units.is_empty()) else { return };
        if let Some(codec) = self.depayloader.codec()
            && self.announced.as_ref() != Some(codec)
        {
            self.announced = Some(codec.clone());
            sink.announce(codec.clone());
        }
        if self.announced.is_none() {
            self.undecodable += units.len() as u64;
            return;
        }
        self.report_undecodable();
        if let Some((sink, arrived)) = self.sink.as_mut().zip(self.last_arrival) {
            units.into_iter().for_each(|unit| sink.push(unit, arrived));
        }
    }
}

/// The reorder window of a track: a lost packet delays the others for as long as in a player.
pub(super) const TRACK_REORDER: Limits =
    Limits { packets: 4096, bytes: 16 << 20, wait: Duration::from_millis(200) };

#[cfg(test)]
mod tests {
    use clock::Clock;

    use super::*;
    use crate::track_queue::{TrackEvent, TrackQueue};

    /// A sequence parameter set by x264 for pictures of 16 x 16.
    const SEQUENCE: [u8; 21] = [
        0x67, 0x42, 0xc0, 0x0a, 0xda, 0x7b, 0x01, 0x10, 0, 0, 3, 0, 0x10, 0, 0, 3, 3, 0x20, 0xf1,
        0x22, 0x6a,
    ];

    /// Events of a camera whose parameters are only in its stream, which was joined midway. A
    /// packet arrives each second from `began` on.
    fn events(nals: &[&[u8]], began: Instant) -> Vec<TrackEvent> {
        let text = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=x\r\nt=0 0\r\n\
                    m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n";
        let offer = wire::sdp::parse_tracks(text.as_bytes()).unwrap().tracks.remove(0);
        let (mut sinks, mut queue) = TrackQueue::new(1, &Clock::HOST);
        let mut track = TrackReceiver::new(Depayloader::new(&offer).unwrap(), true, sinks.pop());
        let mut timestamp = 0;
        for (sequence, nal) in (0..).zip(nals) {
            let marker = nal[0] & 0x1f < 6;
            let header = Header { payload_type: 96, marker, sequence, timestamp, ssrc: 1 };
            let at = began + Duration::from_secs(sequence.into());
            track.take_arrived(&[&header.write()[..], nal].concat(), at);
            timestamp += if marker { 3600 } else { 0 };
        }
        track.finish(false);
        drop(track);
        std::iter::from_fn(|| queue.next(Duration::ZERO).ok().flatten())
            .map(|(_, event)| event)
            .collect()
    }

    #[test]
    fn units_before_the_parameters_of_their_codec_are_counted() {
        let (slice, key, parameters): (&[u8], &[u8], &[u8]) =
            (&[0x41, 0x9a, 0, 1], &[0x65, 0x88, 0x84, 0], &[0x68, 0xce, 0x0f, 0xc8]);
        let nals = [slice, slice, slice, &SEQUENCE, parameters, key, slice];
        let found = events(&nals, Instant::now());
        let [
            TrackEvent::Undecodable(3),
            TrackEvent::Codec(_),
            TrackEvent::Unit(..),
            TrackEvent::Unit(..),
        ] = &found[..]
        else {
            panic!("{found:?}");
        };
        let found = events(&[slice, slice], Instant::now());
        assert!(matches!(found[..], [TrackEvent::Undecodable(2)]), "{found:?}");
    }

    #[test]
    fn a_unit_has_the_arrival_of_the_packet_that_completes_it() {
        let (slice, key, parameters): (&[u8], &[u8], &[u8]) =
            (&[0x41, 0x9a, 0, 1], &[0x65, 0x88, 0x84, 0], &[0x68, 0xce, 0x0f, 0xc8]);
        let began = Instant::now();
        let found = events(&[&SEQUENCE, parameters, key, slice, slice], began);
        let arrivals = found.iter().filter_map(|event| match event {
            TrackEvent::Unit(_, at) => Some((*at - began).as_secs()),
            _ => None,
        });
        // The packet behind a picture completes it; the end of the stream, the last one.
        assert_eq!(arrivals.collect::<Vec<_>>(), [3, 4, 4]);
    }

    #[test]
    fn a_recorder_spends_no_time_on_the_lateness() {
        let text = b"v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=audio 5004 RTP/AVP 0\r\n";
        let offer = wire::sdp::parse_tracks(text).unwrap().tracks.remove(0);
        let depayloader = || Depayloader::new(&offer).unwrap();
        let (mut sinks, _queue) = TrackQueue::new(1, &Clock::HOST);
        let recording = TrackReceiver::of_recorder(depayloader(), sinks.remove(0));
        let playing = TrackReceiver::new(depayloader(), false, None);
        for (mut track, is_timed) in [(recording, false), (playing, true)] {
            let mut lateness = Lateness::new(8000);
            track.time(0, Instant::now(), &mut lateness);
            assert_eq!(lateness.first().is_some(), is_timed);
        }
    }
}
