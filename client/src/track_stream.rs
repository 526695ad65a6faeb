// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receives the tracks of a camera as one stream of packets made here.
//!
//! The recorder has one path for media, from RTP packets to files. A camera's tracks use that path:
//! a thread receives them, assembles access units, multiplexes these into a transport stream or
//! fragmented MP4 ([`super::track_packetizer`]), and passes its packets to a [`FrameQueue`], like
//! the reader of an RTSP connection ([`super::camera_thread`]). Costs two copies a byte more than a
//! transport stream that the camera sends itself, and memory for the writer's buffer: a group of
//! pictures, two seconds at most.
//!
//! Sources: RFC 2326 §12.33 (RTP-Info).
//! Does not decode, or change video and audio but for the form of PCM.

use std::net::SocketAddr;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::Thread;
use std::time::{Duration, Instant};

use clock::Clock;
use media::depayload::DepayloadCounts;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use wire::mp2t::PAYLOAD_TYPE;
use wire::rtp::Header;
use wire::rtsp::client::StreamStart;

use super::camera_thread::{CameraThread, DoneMark, StartCheck, TrackIntake};
use super::chosen_stream::ChosenStream;
use super::frame_reader::FrameQueue;
use super::packet_intake::{
    AnnouncedSender, Command, Intake, IntakeHandle, PacketInput, StreamFormat,
};
use super::random::random_u32;
use super::refused_senders::RefusedSenders;
use super::rtcp_reporter::{RtcpLink, RtcpReporter};
use super::stream_stats::ByeVerdict;
use super::track_muxer::{TrackMuxer, TrackOrigin};
use super::track_packetizer::{MuxedTotals, Packetizer, TrackContainer, TrackOrigins};
use super::track_queue::{QueueControl, TrackQueue};
use super::track_receiver::TrackReceiver;
use crate::error::Error;

/// A track after SETUP: the source of its packets and reports.
pub(super) struct TrackInput {
    pub(super) stream: ChosenStream,
    pub(super) input: PacketInput,
    pub(super) rtcp: RtcpLink,
    /// Host that sends it; none, for any host, where the track is known only from a description.
    pub(super) host: Option<std::net::IpAddr>,
    pub(super) ssrc: Option<u32>,
}

/// The thread of a camera's tracks, and their reports.
pub(super) struct TrackStream {
    tracks: Vec<TrackTasks>,
    rates: Vec<u32>,
    /// None where the owner of the camera calls its turns.
    thread: Option<Thread>,
    clock: Clock,
    /// None once the stream is finished.
    origins: Option<Sender<TrackOrigins>>,
    is_done: Arc<AtomicBool>,
    queue: QueueControl,
    muxed: Arc<MuxedTotals>,
    /// Name of the source.
    name: Arc<str>,
    /// SSRC of the outgoing packets.
    pub(super) ssrc: u32,
    /// Sequence number of the first of them.
    pub(super) first_sequence: u16,
}

/// Counts of the tracks of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrackCounts {
    /// Packets of the tracks, without duplicates.
    pub packets: u64,
    /// Sender reports (RTCP).
    pub sender_reports: u64,
    /// Packets of the tracks that are missing or malformed, and units that were left out because of
    /// their times or, with all their packets, as broken.
    pub lost_packets: u64,
    /// Access units that this host was too slow to put into the file.
    pub dropped_units: u64,
    /// Datagrams that the kernel dropped because a buffer was full, once the tracks have ended.
    pub dropped_by_kernel: u64,
    /// Packets that arrived after one with a higher number.
    pub reordered: u64,
    /// Packets that arrived again.
    pub duplicates: u64,
    /// Packets that arrived after they had been given up.
    pub late: u64,
    /// Restarts of the sequence numbers.
    pub restarts: u64,
    /// Jumps of a sender's clock: the timeline of its track continued.
    pub clock_jumps: u64,
    /// Receiver reports sent, and BYE.
    pub reports_sent: u64,
    /// BYE of other ports, and those that more packets of the track have refuted.
    pub byes_refused: u64,
    /// The largest interarrival jitter of a track now (RFC 3550 A.8).
    pub jitter: Duration,
}

impl AddAssign for TrackCounts {
    /// Adds those of a later session.
    fn add_assign(&mut self, more: TrackCounts) {
        self.packets += more.packets;
        self.sender_reports += more.sender_reports;
        self.lost_packets += more.lost_packets;
        self.dropped_units += more.dropped_units;
        self.dropped_by_kernel += more.dropped_by_kernel;
        self.reordered += more.reordered;
        self.duplicates += more.duplicates;
        self.late += more.late;
        self.restarts += more.restarts;
        self.clock_jumps += more.clock_jumps;
        self.reports_sent += more.reports_sent;
        self.byes_refused += more.byes_refused;
        if !more.jitter.is_zero() {
            self.jitter = more.jitter;
        }
    }
}

/// Arrivals of a track.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HeardTrack {
    /// Arrival of the last packet.
    pub(super) last: Option<Instant>,
    /// Packets of the sender that is followed.
    pub(super) packets: u64,
    /// Datagrams of other senders.
    pub(super) foreign: u64,
}

struct TrackTasks {
    intake: IntakeHandle,
    /// Task that exchanges RTCP.
    reports: JoinHandle<()>,
}

impl Drop for TrackTasks {
    fn drop(&mut self) {
        self.reports.abort();
    }
}

impl TrackStream {
    /// Starts to receive, in a thread; packets are held until [`begin`](Self::begin). Returns the
    /// queue of the packets, whose source address is `from`. `name` is that of the source, for the
    /// log.
    pub(super) fn start(
        name: &str,
        inputs: Vec<TrackInput>,
        from: SocketAddr,
        reports: bool,
        container: TrackContainer,
    ) -> Result<(TrackStream, FrameQueue), Error> {
        let opened = TrackStream::open(name, inputs, from, reports, container, &Clock::HOST)?;
        let (mut stream, frames, camera) = opened;
        stream.run(camera)?;
        Ok((stream, frames))
    }

    /// Starts the thread of its camera.
    pub(super) fn run(&mut self, camera: CameraThread) -> Result<(), Error> {
        self.thread = Some(camera.start()?);
        Ok(())
    }

    /// Does the same on a clock, without a thread: the tracks are received by the
    /// [turns](CameraThread::turn) of the camera.
    pub(super) fn open(
        name: &str,
        inputs: Vec<TrackInput>,
        from: SocketAddr,
        reports: bool,
        container: TrackContainer,
        clock: &Clock,
    ) -> Result<(TrackStream, FrameQueue, CameraThread), Error> {
        let (sinks, queue) = TrackQueue::new(inputs.len(), clock);
        let control = queue.control.clone();
        let rates = inputs.iter().map(|input| input.stream.offer.clock_rate_hz).collect();
        let mut muxer = TrackMuxer::new(container.kind(), inputs.len(), clock);
        if let TrackContainer::FragmentedMp4(limits) = &container {
            muxer.rotate(limits.clone());
        }
        muxer.name_languages(inputs.iter().map(|input| input.stream.offer.language.as_deref()));
        let (mut tracks, mut intakes) = (Vec::with_capacity(inputs.len()), Vec::new());
        for (TrackInput { stream, input, rtcp, host, ssrc }, sink) in inputs.into_iter().zip(sinks)
        {
            let ChosenStream { offer, depayloader, .. } = stream;
            let Some(depayloader) = depayloader else { continue };
            let track = TrackReceiver::of_recorder(depayloader, sink);
            let (payload_type, clock_rate_hz) = (offer.payload_type, offer.clock_rate_hz);
            let sender = AnnouncedSender { host, ssrc, payload_type, clock_rate_hz };
            let (handle, intake) =
                Intake::new(&input, sender, StreamFormat::Track(Box::new(track)), clock)?;
            intakes.push(TrackIntake { input, intake: Some(intake), start: StartCheck::default() });
            let reporter = RtcpReporter::of_recorder(rtcp, handle.shared(), clock);
            let exchange = async move {
                match reports {
                    true => match reporter.exchange().await {},
                    false => match reporter.listen().await {},
                }
            };
            tracks.push(TrackTasks { intake: handle, reports: tokio::spawn(exchange) });
        }
        let (sink, frames) = match container {
            TrackContainer::TransportStream => FrameQueue::new(from),
            TrackContainer::FragmentedMp4(_) => FrameQueue::of_fragments(from),
        };
        let (origins, inbox) = channel();
        let is_done = Arc::new(AtomicBool::new(false));
        let (ssrc, first_sequence) = (random_u32(), random_u32() as u16);
        let name: Arc<str> = name.into();
        let header = Header {
            payload_type: PAYLOAD_TYPE,
            marker: false,
            sequence: first_sequence,
            timestamp: 0,
            ssrc,
        };
        let muxed: Arc<MuxedTotals> = Arc::default();
        let (totals, clock) = (muxed.clone(), clock.clone());
        let packetizer =
            Packetizer::new(name.clone(), muxer, sink, header, inbox, totals, clock.clone());
        let done = DoneMark(is_done.clone());
        let camera =
            CameraThread::new(name.clone(), intakes, queue, packetizer, clock.clone(), done);
        let stream = TrackStream {
            name,
            tracks,
            rates,
            thread: None,
            clock,
            origins: Some(origins),
            is_done,
            queue: control,
            muxed,
            ssrc,
            first_sequence,
        };
        Ok((stream, frames, camera))
    }

    /// Holds packets: PLAY is about to be sent.
    pub(super) fn hold(&self) {
        self.tracks.iter().for_each(|track| track.intake.command(Command::Hold));
    }

    /// Starts the stream after the answer to PLAY. Time `at` of the transport stream is the start
    /// of the tracks, as far as the server has announced it.
    pub(super) fn begin(&self, starts: &[StreamStart], at: Duration) {
        let origin = |(start, &clock_rate_hz): (&StreamStart, &u32)| {
            Some(TrackOrigin { timestamp: start.timestamp?, clock_rate_hz })
        };
        let origins = starts.iter().zip(&self.rates).map(origin).collect();
        let _ = self.origins.as_ref().map(|inbox| inbox.send((origins, at)));
        for (track, start) in self.tracks.iter().zip(starts) {
            track.intake.command(Command::Begin { sequence: start.sequence });
        }
        self.wake();
    }

    /// Arrivals of each track so far.
    pub(super) fn heard(&self) -> impl Iterator<Item = HeardTrack> {
        self.tracks.iter().map(|track| {
            let stats = track.intake.stats();
            HeardTrack {
                last: stats.packets.last,
                packets: stats.reception().received(),
                foreign: stats.packets.unexpected_source,
            }
        })
    }

    /// The longest time from one timestamp of a track to the next.
    pub(super) fn longest_step(&self) -> Duration {
        let step = |(track, &rate): (&TrackTasks, &u32)| {
            let stamps = track.intake.stats().packets.longest_step;
            Duration::from_secs(stamps.into()) / rate.max(1)
        };
        self.tracks.iter().zip(&self.rates).map(step).max().unwrap_or_default()
    }

    /// Counts of all tracks so far.
    pub(super) fn counts(&self) -> TrackCounts {
        let mut counts = TrackCounts {
            lost_packets: self.muxed.lost_units.load(Ordering::Relaxed),
            clock_jumps: self.muxed.clock_jumps.load(Ordering::Relaxed),
            dropped_units: self.queue.dropped_units(),
            ..TrackCounts::default()
        };
        for track in &self.tracks {
            let stats = track.intake.stats();
            let (units, reception) = (stats.units, stats.reception());
            counts.lost_packets +=
                (stats.receiver.missing() + units.malformed_packets).max(units.broken_units);
            counts.packets += reception.received();
            counts.sender_reports += stats.rtcp.sender_reports;
            counts.dropped_by_kernel += stats.kernel_drops.unwrap_or(0);
            counts.reordered += reception.reordered();
            counts.duplicates += reception.duplicates();
            counts.late += stats.receiver.late();
            counts.restarts += reception.restarts();
            counts.reports_sent += stats.rtcp.sent;
            counts.byes_refused += stats.rtcp.byes_refuted;
            counts.jitter = counts.jitter.max(reception.jitter_time());
        }
        counts
    }

    /// Counts of all tracks so far, and the senders that were refused since the last call.
    pub(super) fn news(&self) -> (TrackCounts, RefusedSenders) {
        let mut refused = RefusedSenders::default();
        for track in &self.tracks {
            refused.absorb(std::mem::take(&mut track.intake.stats().packets.refused));
        }
        (self.counts(), refused)
    }

    /// True if the sender has left all tracks with BYE but those that have sent nothing.
    pub(super) fn have_left(&self) -> bool {
        let now = self.clock.now();
        let (mut left, mut others) = (0, 0);
        for (index, track) in self.tracks.iter().enumerate() {
            let (verdict, is_silent, refuted) = {
                let mut stats = track.intake.stats();
                let verdict = stats.judge_bye(now);
                (verdict, stats.packets.last.is_none(), stats.rtcp.byes_refuted)
            };
            if !is_silent {
                let has_left = verdict == ByeVerdict::Left;
                (left, others) = (left + u32::from(has_left), others + u32::from(!has_left));
            }
            // A flood of them costs few lines.
            if verdict == ByeVerdict::Refuted && refuted.is_power_of_two() {
                tracing::warn!(
                    "{}: track {index}: BYE is refused, as packets follow it; {refuted} so far",
                    self.name
                );
            }
        }
        left > 0 && others == 0
    }

    /// Waits until the sender has left all tracks with BYE.
    pub(super) async fn bye(&self) {
        while !self.have_left() {
            sleep(BYE_LOOK_EVERY).await;
        }
    }

    /// Stops the thread, and waits until the last packet is in the queue of packets; units that
    /// are too late for that are dropped. Returns the last [`news`](Self::news). With `is_cut` the
    /// stream continues without this receiver.
    pub(super) async fn finish(mut self, is_cut: bool) -> (TrackCounts, RefusedSenders) {
        for track in &self.tracks {
            track.intake.command(Command::Stop { is_cut });
        }
        self.origins = None;
        self.wake();
        if timeout(FINISH_WAIT, self.done()).await.is_err() {
            self.queue.close();
            let _ = timeout(FINISH_WAIT, self.done()).await;
        }
        self.report_broken();
        self.news()
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.unpark();
        }
    }

    async fn done(&self) {
        while !self.is_done.load(Ordering::Relaxed) {
            sleep(LOOK_EVERY).await;
        }
    }
}

impl TrackStream {
    /// Logs the media that was not recorded: units with a lost or wrong packet.
    fn report_broken(&self) {
        for (index, track) in self.tracks.iter().enumerate() {
            let stats = track.intake.stats();
            let DepayloadCounts { broken_units, malformed_packets, .. } = stats.units;
            if broken_units > 0 || malformed_packets > 0 {
                tracing::warn!(
                    "{}: track {index}: {broken_units} units were broken and left out; \
                     {malformed_packets} packets did not keep to their payload format",
                    self.name
                );
            }
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(10);
/// BYE is not urgent, and a recorder has many cameras.
const BYE_LOOK_EVERY: Duration = Duration::from_millis(250);
/// Time for the last packets, and for the last group of pictures.
const FINISH_WAIT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use media::TS_PACKET_BYTES;
    use media::depayload::Depayloader;
    use wire::rtcp::{self, SenderInfo};

    use super::*;
    use crate::frame_reader::{PacketSink, QueueSink};

    /// A camera with one packet for each picture: its sink, its RTCP port, and the track.
    fn camera() -> (QueueSink, SocketAddr, TrackInput) {
        let text = b"v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=video 0 RTP/AVP 96\r\n\
            a=rtpmap:96 H264/90000\r\na=fmtp:96 sprop-parameter-sets=Z0IACpZTBYmI,aMljiA==\r\n";
        let offer = wire::sdp::parse_tracks(text).unwrap().tracks.remove(0);
        let depayloader = Some(Depayloader::new(&offer).unwrap());
        let stream = ChosenStream { url: String::new(), offer, depayloader };
        let (sink, frames) = FrameQueue::new(SocketAddr::from(([127, 0, 0, 1], 554)));
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        let rtcp = RtcpLink::udp(socket, None, None).unwrap();
        let input = PacketInput::Frames(frames);
        (sink, to, TrackInput { stream, input, rtcp, host: None, ssrc: None })
    }

    /// Sends pictures with these numbers.
    fn send(sink: &mut QueueSink, ssrc: u32, numbers: Range<u16>, bytes: usize) {
        let picture = [&[0x65, 0x88][..], &vec![0xff; bytes]].concat();
        for sequence in numbers {
            let timestamp = u32::from(sequence) * 3600;
            let header = Header { payload_type: 96, marker: true, sequence, timestamp, ssrc };
            sink.take(&[&header.write()[..], &picture].concat(), Instant::now());
            while !sink.flush() {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// Waits for a condition; a minute only guards against a hang.
    async fn until(comes: impl Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !comes() {
            assert!(Instant::now() < until, "it does not come");
            sleep(LOOK_EVERY).await;
        }
    }

    fn heard(stream: &TrackStream) -> u64 {
        stream.heard().map(|heard| heard.packets).sum()
    }

    /// Number of pictures that begin in the packets of a queue.
    fn begun(frames: &FrameQueue) -> u64 {
        let batches = std::iter::from_fn(|| frames.next());
        let begins = |ts: &[u8]| ts[1..3] == [0x41, 0x00];
        let of_packet =
            |packet: &[u8]| packet[12..].chunks(TS_PACKET_BYTES).filter(|ts| begins(ts)).count();
        batches.map(|batch| batch.packets().map(of_packet).sum::<usize>() as u64).sum()
    }

    /// Starts the stream of these inputs.
    fn started<const N: usize>(inputs: [TrackInput; N]) -> (TrackStream, FrameQueue) {
        let from = SocketAddr::from(([127, 0, 0, 1], 554));
        let container = TrackContainer::TransportStream;
        let (stream, frames) =
            TrackStream::start("camera", inputs.into(), from, false, container).unwrap();
        stream.begin(&[StreamStart::default(); N], Duration::ZERO);
        (stream, frames)
    }

    fn say_bye(ssrc: u32, to: SocketAddr) {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = SenderInfo { ssrc, ntp: 1, rtp_timestamp: 0, packets: 9, octets: 9 };
        socket.send_to(&rtcp::sender_bye(&sender, "camera", ""), to).unwrap();
    }

    #[tokio::test]
    async fn units_that_a_slow_recorder_leaves_are_dropped_and_counted() {
        let (mut sink, _, input) = camera();
        let (stream, frames) = started([input]);
        send(&mut sink, 7, 0..PICTURES, 60_000);
        until(|| heard(&stream) == u64::from(PICTURES)).await;
        // The queue of packets is not read: it is full, and so is that of units.
        let during = stream.counts().dropped_units;
        let in_all = stream.finish(false).await.0.dropped_units;
        assert!(during > 0 && in_all > during, "{during} of {in_all}");
        assert_eq!(begun(&frames) + in_all, u64::from(PICTURES));
    }

    #[tokio::test]
    async fn a_bye_of_an_ssrc_that_the_sender_has_changed_ends_no_track() {
        let (mut sink, to, input) = camera();
        let (stream, _frames) = started([input]);
        let say_bye = |ssrc| say_bye(ssrc, to);
        let stats = || stream.tracks[0].intake.stats();
        send(&mut sink, 7, 0..10, 100);
        until(|| heard(&stream) == 10).await;
        // BYE arrives before the packets of the next SSRC, and once more after them.
        say_bye(7);
        until(|| stats().has_sent_bye()).await;
        send(&mut sink, 8, 10..20, 100);
        until(|| heard(&stream) == 20).await;
        let reports = stats().rtcp.sender_reports;
        say_bye(7);
        say_bye(8);
        until(|| stats().rtcp.sender_reports > reports).await;
        timeout(Duration::from_secs(60), stream.bye()).await.expect("it has left");
        // The sender starts again with another SSRC.
        send(&mut sink, 9, 20..30, 100);
        until(|| heard(&stream) == 30).await;
        assert!(!stats().has_sent_bye() && !stream.have_left());
        assert_eq!(stream.counts().byes_refused, 0);
    }

    /// Regression: a camera with a microphone that is off was found silent 10 s behind its BYE.
    #[tokio::test]
    async fn a_track_that_has_sent_nothing_need_not_be_left() {
        let (mut sink, to, input) = camera();
        let (_silent_sink, _, silent) = camera();
        let (stream, _frames) = started([input, silent]);
        // Anybody can say so before the first packet.
        say_bye(7, to);
        until(|| stream.tracks[0].intake.stats().has_sent_bye()).await;
        let later = Instant::now() + Duration::from_secs(60);
        assert_eq!(stream.tracks[0].intake.stats().judge_bye(later), ByeVerdict::Left);
        assert!(!stream.have_left());
        send(&mut sink, 7, 0..10, 100);
        until(|| heard(&stream) == 10).await;
        assert!(!stream.have_left());
        say_bye(7, to);
        timeout(Duration::from_secs(60), stream.bye()).await.expect("it has left");
    }

    /// Regression: the loss of a camera that had begun new numbers was wrong by thousands, and its
    /// order, its jitter and the reports to it were not counted.
    #[tokio::test]
    async fn new_numbers_of_a_sender_are_no_loss() {
        let (mut sink, _, input) = camera();
        let (stream, _frames) = started([input]);
        send(&mut sink, 7, 0..10, 100);
        send(&mut sink, 7, 12..14, 100);
        send(&mut sink, 7, 13..14, 100);
        // The same SSRC, and another one.
        send(&mut sink, 7, 30_000..30_010, 100);
        send(&mut sink, 8, 5000..5010, 100);
        until(|| heard(&stream) >= 32).await;
        let (counts, _) = stream.finish(false).await;
        let of = |counts: &TrackCounts| (counts.lost_packets, counts.duplicates, counts.restarts);
        assert_eq!(of(&counts), (2, 1, 2), "{counts:?}");
        assert!(counts.jitter > Duration::ZERO, "{counts:?}");
    }

    /// More than fit the queues of units and of packets.
    const PICTURES: u16 = 1700;
}
