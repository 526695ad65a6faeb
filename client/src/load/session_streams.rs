// SPDX-License-Identifier: MIT OR Apache-2.0
//! The streams of one session of many: the transport stream, or each track of a file.
//!
//! A verified session's RTP sockets belong to the reading thread; any other session's have a filter
//! that drops everything. Where RTP shares the RTSP connection, one task for each session reads
//! that (`frame_sinks`): stream n has the channels 2n and 2n + 1.
//!
//! Sources: RFC 2326 §10.4, §10.12, C.3 (streams of a session); RFC 3550 §6.6.
//! Does not send PLAY.

use std::future::{Future, poll_fn};
use std::net::UdpSocket;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use clock::Clock;
use paths::dropped_packets;
use wire::rtsp::ChannelPair;
use wire::rtsp::client::SetupReply;

use super::drop_filter::drop_all;
use super::frame_sinks::{COUNTED_PAUSE, CountingSink, SampledCell, SampledSink};
use super::load_session::{Attention, LoadState};
use super::sample_reader::SampledStream;
use super::sampled_stats::{ExpectedStream, SampledStats};
use super::session_rtcp::SessionRtcp;
use super::session_sums::missing;
use crate::channel_rtcp::ChannelRtcp;
use crate::error::Error;
use crate::play_verdict::LOST_AT_ENDS_MAX;
use crate::read_pace::ReadPace;
use crate::rtcp_reporter::{RtcpLink, report_target};
use crate::rtp_receiver::{ArrivalClock, SocketReader};
use crate::rtsp_connection::RtspConnection;
use crate::socket_pair::{SocketPair, udp_offer};
use crate::stream_setup::{ask, sender_of, set_up_channels_of};
use crate::stream_stats::lock;

/// The streams that each session sets up.
pub(super) struct LoadStreams {
    /// URLs of SETUP, in the order of the description.
    pub(super) urls: Vec<String>,
    /// Expectations for a verified stream; the answers add its SSRC and first sequence number.
    pub(super) expected: Vec<ExpectedStream>,
}

/// A stream of a playing session.
pub(super) struct PlayingStream {
    rtcp: SessionRtcp,
    pub(super) media: Media,
    /// Packets that the sender had counted before PLAY; known after its first report.
    sent_before: Option<u32>,
}

#[derive(Clone)]
pub(super) enum Media {
    Verified(Arc<Mutex<SampledStats>>),
    Counted(PacketCounter),
}

/// Counter of a stream's packets.
#[derive(Clone)]
pub(super) enum PacketCounter {
    /// The kernel counts the packets dropped by a socket's filter.
    Socket(Arc<UdpSocket>),
    Frames(Arc<AtomicU32>),
}

/// Result of a stream.
pub(super) struct StreamEnd {
    /// Packets sent since PLAY, by the sender's own count.
    pub(super) sent: Option<u32>,
    pub(super) media: Media,
    /// Packets of a counted stream at the end, modulo 2^32.
    arrived: Option<u32>,
}

/// A stream between SETUP and PLAY.
pub(super) struct PendingStream {
    media: PendingMedia,
    link: RtcpLink,
    ssrc: Option<u32>,
    /// The session's time-out.
    pub(super) timeout: Duration,
}

/// Source of a stream's packets between SETUP and PLAY.
enum PendingMedia {
    VerifiedSocket(UdpSocket),
    VerifiedFrames(SampledCell),
    Counted(PacketCounter),
}

impl PacketCounter {
    /// Packets so far, modulo 2^32.
    pub(super) fn packets(&self) -> Option<u32> {
        match self {
            PacketCounter::Socket(socket) => dropped_packets(&**socket).ok(),
            PacketCounter::Frames(packets) => Some(packets.load(Ordering::Relaxed)),
        }
    }
}

impl Media {
    /// Packets that arrived, modulo 2^32, like the count of a sender.
    fn arrived(&self) -> Option<u32> {
        match self {
            Media::Verified(stats) => {
                let stats = lock(stats);
                let reception = stats.reception();
                Some((reception.received() - reception.duplicates()) as u32)
            }
            Media::Counted(counter) => counter.packets(),
        }
    }
}

impl StreamEnd {
    /// Packets of a counted stream, modulo 2^32.
    pub(super) fn counted(&self) -> Option<u32> {
        self.arrived.filter(|_| matches!(self.media, Media::Counted(_)))
    }

    /// Packets missing from a counted stream; none where its sender's count is unknown.
    pub(super) fn missing(&self) -> Option<u64> {
        self.sent.zip(self.counted()).map(|(sent, arrived)| missing(sent, arrived).into())
    }
}

impl PendingStream {
    /// Starts to receive after the answer to PLAY, with the first sequence number if it is known.
    pub(super) fn begin(
        self,
        shared: &LoadState,
        index: usize,
        sequence: Option<u16>,
        compares_file: bool,
    ) -> PlayingStream {
        let PendingStream { media, link, ssrc, .. } = self;
        let stats = || {
            let of_all = &shared.streams.expected[index];
            let file = of_all.file.clone().filter(|_| compares_file);
            let expected = ExpectedStream { ssrc, sequence, file, ..of_all.clone() };
            Arc::new(Mutex::new(SampledStats::new(expected, &shared.window)))
        };
        let media = match media {
            PendingMedia::VerifiedSocket(socket) => {
                let stats = stats();
                // The thread outlives all sessions.
                let _ = shared.reader.send(SampledStream { socket, stats: stats.clone() });
                Media::Verified(stats)
            }
            PendingMedia::VerifiedFrames(cell) => Media::Verified(cell.get_or_init(stats).clone()),
            PendingMedia::Counted(counter) => Media::Counted(counter),
        };
        PlayingStream { rtcp: SessionRtcp::new(link, ssrc), media, sent_before: None }
    }
}

impl PlayingStream {
    /// The counter of a stream whose packets are not read.
    pub(super) fn counter(&self) -> Option<PacketCounter> {
        match &self.media {
            Media::Verified(_) => None,
            Media::Counted(counter) => Some(counter.clone()),
        }
    }

    /// Statistics of a verified stream.
    pub(super) fn stats(&self) -> Option<&Mutex<SampledStats>> {
        match &self.media {
            Media::Verified(stats) => Some(&**stats),
            Media::Counted(_) => None,
        }
    }

    /// Sends a report.
    pub(super) fn report(&self) {
        self.rtcp.report(self.stats());
    }

    /// Sends a last report of the reception, and BYE.
    pub(super) fn leave(&self) {
        if let Some(stats) = self.stats() {
            self.rtcp.report(Some(stats));
        }
        self.rtcp.leave();
    }

    /// Computes the packets sent before PLAY from the sender's first report.
    pub(super) fn note_sent_before(&mut self) {
        if self.sent_before.is_none() {
            let first = self.rtcp.first_count.zip(self.media.arrived());
            self.sent_before = first.map(|(reported, arrived)| sent_before(reported, arrived));
        }
    }

    /// Packets sent since PLAY, by the sender's own count. Without an earlier report, a count that
    /// exceeds the received packets by an unlikely number may include other sessions', and none is
    /// returned.
    pub(super) fn sent(&self) -> Option<u32> {
        let reported = self.rtcp.sent_in_all()?;
        match self.sent_before {
            Some(before) => Some(reported.wrapping_sub(before)),
            None => Some(reported)
                .filter(|reported| sent_before(*reported, self.media.arrived().unwrap_or(0)) == 0),
        }
    }

    /// The result, with the sender's count if that is known.
    pub(super) fn end(&self, sent: Option<u32>) -> StreamEnd {
        StreamEnd { sent, media: self.media.clone(), arrived: self.media.arrived() }
    }
}

/// Returns true where the senders of all streams have sent BYE.
pub(super) fn has_sent_bye(streams: &[PlayingStream]) -> bool {
    streams.iter().all(|stream| stream.rtcp.has_sent_bye)
}

/// Waits for an RTCP packet of any stream and parses it; returns the stream's number. Dropping the
/// future loses none.
pub(super) async fn receive_report(streams: &mut [PlayingStream]) -> usize {
    if let [stream] = streams {
        stream.rtcp.receive_report().await;
        return 0;
    }
    let (number, (packet, from)) = {
        let mut waiting: Vec<Pin<Box<dyn Future<Output = _> + Send + '_>>> = Vec::new();
        for stream in &*streams {
            waiting.push(Box::pin(stream.rtcp.receive()));
        }
        poll_fn(|context| {
            for (number, packet) in waiting.iter_mut().enumerate() {
                if let Poll::Ready(packet) = packet.as_mut().poll(context) {
                    return Poll::Ready((number, packet));
                }
            }
            Poll::Pending
        })
        .await
    };
    streams[number].rtcp.take(&packet, from);
    number
}

/// Packets included in the sender's count of `reported` that were sent earlier to other receivers,
/// as by a relay, when `arrived` packets have been received since. They do not count as lost at the
/// start of the session. The result is a little higher, so that packets that overtook the report do
/// not count as lost.
fn sent_before(reported: u32, arrived: u32) -> u32 {
    // Modulo 2^32. Slightly negative where duplicates have arrived.
    let before = reported.wrapping_sub(arrived);
    let is_anothers = before.cast_signed().unsigned_abs() > LOST_AT_ENDS_MAX;
    if is_anothers { before.wrapping_add(OVERTAKEN_MAX) } else { 0 }
}

/// Sends SETUP of all streams over UDP, each with a pair of ports.
pub(super) async fn set_up_ports(
    shared: &LoadState,
    control: &mut RtspConnection,
    is_verified: bool,
) -> Result<Vec<PendingStream>, Error> {
    let mut pending = Vec::with_capacity(shared.streams.urls.len());
    for url in &shared.streams.urls {
        let SocketPair { rtp, rtcp, ports, .. } = SocketPair::bind(control.local)?;
        prepare(&rtp, is_verified)?;
        let reply = ask(control, url, &udp_offer(ports)).await?;
        let host = sender_of(&reply, control);
        let to = report_target(&reply, host, control.remote);
        let link = RtcpLink::udp(rtcp, Some(host), to)?;
        let media = match is_verified {
            true => PendingMedia::VerifiedSocket(rtp),
            false => PendingMedia::Counted(PacketCounter::Socket(Arc::new(rtp))),
        };
        let SetupReply { ssrc, timeout, .. } = reply;
        pending.push(PendingStream { media, link, ssrc, timeout });
    }
    Ok(pending)
}

fn prepare(rtp: &UdpSocket, is_verified: bool) -> Result<(), Error> {
    let object = || "RTP socket".to_owned();
    if is_verified {
        SocketReader::prepare(rtp)
    } else {
        let call = "setsockopt SO_ATTACH_FILTER";
        drop_all(rtp).map_err(|source| Error::Host { call, object: object(), source })
    }
}

/// Sends SETUP of all streams on the RTSP connection, and starts a task that reads it.
pub(super) async fn set_up_frames(
    shared: &LoadState,
    control: &mut RtspConnection,
    attention: Attention,
) -> Result<Vec<PendingStream>, Error> {
    let mut granted = Vec::with_capacity(shared.streams.urls.len());
    let mut used = Vec::new();
    for (number, url) in shared.streams.urls.iter().enumerate() {
        granted.push(set_up_channels_of(control, url, number, &mut used).await?);
    }
    let channels = granted.iter().map(|(_, channels)| *channels);
    let pace = match attention {
        Attention::Verified => ReadPace::Prompt,
        Attention::Limited(rates) => ReadPace::Limited(rates),
        Attention::Counted => {
            let counts: Vec<_> = granted.iter().map(|_| Arc::new(AtomicU32::new(0))).collect();
            let sinks =
                counts.iter().map(|packets| CountingSink { packets: packets.clone(), new: 0 });
            let sinks = channels.zip(sinks).collect();
            let links = control.read_streams(sinks, ReadPace::Gathered(COUNTED_PAUSE));
            let count = |packets| PendingMedia::Counted(PacketCounter::Frames(packets));
            let media = counts.into_iter().map(count);
            return Ok(pending(&granted, media, links));
        }
    };
    let cells: Vec<_> = granted.iter().map(|_| SampledCell::default()).collect();
    let (clock, from) = (ArrivalClock::start(&Clock::HOST), control.server);
    let sink = |stats: &SampledCell| {
        let (stats, window) = (stats.clone(), shared.window.clone());
        SampledSink { stats, window, clock: clock.clone(), from, held: Vec::new() }
    };
    let sinks = channels.zip(cells.iter().map(sink)).collect();
    let links = control.read_streams(sinks, pace);
    let media = cells.into_iter().map(PendingMedia::VerifiedFrames);
    Ok(pending(&granted, media, links))
}

/// Combines the parts of each stream.
fn pending(
    granted: &[(SetupReply, ChannelPair)],
    media: impl Iterator<Item = PendingMedia>,
    links: Vec<ChannelRtcp>,
) -> Vec<PendingStream> {
    let mut pending = Vec::with_capacity(granted.len());
    for (((reply, _), media), link) in granted.iter().zip(media).zip(links) {
        let (ssrc, timeout) = (reply.ssrc, reply.timeout);
        pending.push(PendingStream { media, link: RtcpLink::Channel(link), ssrc, timeout });
    }
    pending
}

/// The packets of a burst, by which a report may lag.
const OVERTAKEN_MAX: u32 = 64;

#[cfg(test)]
impl StreamEnd {
    /// The end of a counted stream.
    pub(super) fn of_counted(sent: Option<u32>, arrived: u32) -> StreamEnd {
        let counter = PacketCounter::Frames(Arc::new(AtomicU32::new(arrived)));
        StreamEnd { sent, media: Media::Counted(counter), arrived: Some(arrived) }
    }
}
