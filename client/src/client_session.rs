// SPDX-License-Identifier: MIT OR Apache-2.0
//! An RTSP session without the reception of media: sends the requests for a caller that receives by
//! itself.
//!
//! The recorder uses it, because the recorder's receiving thread owns the sockets. The requests are
//! those of [`play`](super::play): DESCRIBE, SETUP with the caller's ports or on the connection
//! itself, PLAY, keep-alives, TEARDOWN. Separate tracks, which cameras send, are received here, and
//! passed on as packets of one file (`track_stream`).
//!
//! Sources: RFC 2326 §10, §10.12, §12.37.
//! Does not receive a transport stream over UDP, report on one (RTCP), or reconnect.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use tokio::time::timeout;
use wire::mp2t::PAYLOAD_TYPE;
use wire::rtsp::client::PlayReply;
use wire::rtsp::{NptRange, NptStart, PortPair};

use super::channel_rtcp::ChannelRtcp;
use super::chosen_stream::{ChosenStream, StreamChoice};
use super::frame_reader::FrameQueue;
use super::login::ClientLogin;
use super::read_pace::ReadPace;
use super::recorded_media::RecordedMedia;
use super::refused_senders::RefusedSenders;
use super::rtsp_connection::RtspConnection;
use super::socket_pair::{SocketPair, udp_offer};
use super::stream_setup::{set_up_channels, set_up_streams};
use super::track_packetizer::TrackContainer;
use super::track_stream::{TrackCounts, TrackInput, TrackStream};
use super::transport::StreamTransport;
use crate::error::Error;

/// A session with a server.
pub struct ClientSession {
    url: String,
    control: RtspConnection,
    payload_type: u8,
    duration: Option<Duration>,
    timeout: Duration,
    transport: StreamTransport,
    container: TrackContainer,
    tracks: Option<SessionTracks>,
    left_out: Vec<String>,
    recorded: Vec<String>,
}

/// Tracks of a session.
struct SessionTracks {
    /// Chosen streams; empty after SETUP.
    chosen: Vec<ChosenStream>,
    urls: Vec<String>,
    /// None before SETUP.
    stream: Option<TrackStream>,
}

/// Answer to SETUP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantedSetup {
    /// Host that sends the media.
    pub host: IpAddr,
    /// SSRC of the sender, where the answer names one.
    pub ssrc: Option<u32>,
    /// Source address of RTP, where the answer names one.
    pub rtp: Option<SocketAddr>,
    /// Address of the sender's RTCP, to which receiver reports go, where the answer names one. A
    /// host other than the server might not expect reports: none is sent there before its media has
    /// arrived.
    pub rtcp: Option<SocketAddr>,
}

impl ClientSession {
    /// Connects to the server of a URL and requests the description; uses a tunnel for
    /// [`StreamTransport::Http`]. Tracks of `media` are put into `container`.
    ///
    /// # Errors
    /// The server cannot be reached, refuses, or offers no stream that can be received. With one
    /// medium alone: it offers no track of it, or a transport stream.
    pub async fn open(
        url: &str,
        login: &ClientLogin,
        transport: StreamTransport,
        container: TrackContainer,
        media: RecordedMedia,
    ) -> Result<ClientSession, Error> {
        let (control, described) = RtspConnection::open_described(url, login, transport).await?;
        let duration = described.offer.duration;
        let choice = StreamChoice::to_record(described, container.kind(), media);
        let choice = choice.map_err(|reason| control.fault("DESCRIBE", reason))?;
        let StreamChoice { streams: chosen, left_out, left_out_formats } = choice;
        let mut session = ClientSession {
            url: url.to_owned(),
            control,
            payload_type: PAYLOAD_TYPE,
            duration,
            timeout: Duration::ZERO,
            transport,
            container: container.clone(),
            tracks: None,
            left_out,
            recorded: Vec::new(),
        };
        match chosen.first() {
            None => return Err(session.control.no_transport_stream(&left_out_formats)),
            Some(stream) if stream.depayloader.is_none() => {
                session.payload_type = stream.offer.payload_type;
                session.control.client.set_stream_url(&stream.url);
            }
            Some(_) => {
                let name = |stream: &ChosenStream| stream.recorded_name(container.kind());
                session.recorded = chosen.iter().map(name).collect();
                let urls = chosen.iter().map(|stream| stream.url.clone()).collect();
                session.tracks = Some(SessionTracks { chosen, urls, stream: None });
            }
        }
        Ok(session)
    }

    /// Returns true where the server sends tracks: [`set_up_tracks`](Self::set_up_tracks) then
    /// replaces the other SETUP methods.
    pub fn has_tracks(&self) -> bool {
        self.tracks.is_some()
    }

    /// Names of the tracks that are recorded; none for a transport stream.
    pub fn recorded(&self) -> &[String] {
        &self.recorded
    }

    /// Streams of the description that are left out, each with its reason.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Sends SETUP for all tracks and starts to receive them. Returns the queue of packets of the
    /// container that is made from the tracks.
    ///
    /// # Errors
    /// Peer: the server refuses, or its answer is malformed. Host: sockets or threads.
    ///
    /// # Panics
    /// The session has no tracks, or they are set up already.
    pub async fn set_up_tracks(
        &mut self,
        reports: bool,
    ) -> Result<(GrantedSetup, FrameQueue), Error> {
        let tracks = self.tracks.as_mut().expect("it has tracks");
        let chosen = std::mem::take(&mut tracks.chosen);
        let setups = set_up_streams(&mut self.control, self.transport, &tracks.urls).await?;
        let timeouts = setups.iter().map(|setup| setup.reply.timeout);
        self.timeout = timeouts.min().expect("a session has a track");
        let host = setups[0].host;
        let inputs = chosen.into_iter().zip(setups).map(|(stream, setup)| TrackInput {
            stream,
            input: setup.input,
            rtcp: setup.rtcp,
            host: Some(setup.host),
            ssrc: setup.reply.ssrc,
        });
        let from = SocketAddr::new(host.to_canonical(), self.control.server.port());
        let (stream, frames) =
            TrackStream::start(&self.url, inputs.collect(), from, reports, self.container.clone())?;
        let (ssrc, rtp) = (Some(stream.ssrc), Some(from));
        tracks.stream = Some(stream);
        Ok((GrantedSetup { host: from.ip(), ssrc, rtp, rtcp: None }, frames))
    }

    /// Stops the tracks, and waits until the last packets are in the queue. Returns the last
    /// [`track_news`](Self::track_news). With `is_cut` the tracks continue without this receiver.
    pub async fn finish_tracks(&mut self, is_cut: bool) -> (TrackCounts, RefusedSenders) {
        match self.tracks.as_mut().and_then(|tracks| tracks.stream.take()) {
            Some(stream) => stream.finish(is_cut).await,
            None => Default::default(),
        }
    }

    fn stream(&self) -> Option<&TrackStream> {
        self.tracks.as_ref()?.stream.as_ref()
    }

    /// Counts of the tracks so far, and the senders that they have refused since the last call;
    /// none without tracks.
    pub fn track_news(&self) -> (TrackCounts, RefusedSenders) {
        self.stream().map(TrackStream::news).unwrap_or_default()
    }

    /// The longest time from one timestamp of a track to the next; zero without tracks.
    pub fn longest_step(&self) -> Duration {
        self.stream().map_or(Duration::ZERO, TrackStream::longest_step)
    }

    /// Time since the last packet of any track; `None` before the first, and without tracks.
    pub fn heard_before(&self) -> Option<Duration> {
        let last = self.stream()?.heard().filter_map(|track| track.last).max();
        last.map(|last| last.elapsed())
    }

    /// True if the server has left all tracks with BYE: none has sent a packet since, for half a
    /// second and twice its longest pause.
    pub fn have_tracks_left(&self) -> bool {
        self.stream().is_some_and(TrackStream::have_left)
    }

    /// Local address of the connection; media is received at the same address.
    pub fn local(&self) -> SocketAddr {
        self.control.local
    }

    /// Payload type of the description.
    pub fn payload_type(&self) -> u8 {
        self.payload_type
    }

    /// End of the range of the description (`a=range:npt=0-60`); none for a range without an end.
    pub fn duration(&self) -> Option<Duration> {
        self.duration
    }

    /// Finds two free neighbouring ports at the local address by binding them. The first is
    /// released for the caller's receive path; the socket of the second is returned, for RTCP.
    ///
    /// # Errors
    /// Host: no pair is free.
    pub fn ports(&self) -> Result<(PortPair, UdpSocket), Error> {
        let pair = SocketPair::bind(self.control.local)?;
        Ok((pair.ports, pair.rtcp))
    }

    /// Sends SETUP with these ports.
    ///
    /// # Errors
    /// Peer: the server refuses, or its answer is malformed.
    pub async fn set_up(&mut self, ports: PortPair) -> Result<GrantedSetup, Error> {
        let control = &mut self.control;
        let reply = control.ask("SETUP", |client| client.setup(&udp_offer(ports))).await?;
        let set_up = control.client.set_up(&reply);
        let set_up = set_up.map_err(|malformed| control.fault("SETUP", malformed))?;
        control.note_ignored("SETUP", &set_up.ignored);
        self.timeout = set_up.timeout;
        let source = set_up.source.as_deref().and_then(|source| source.parse().ok());
        let host = source.unwrap_or(control.remote);
        let rtp = set_up.server.map(|server| SocketAddr::new(host, server.rtp));
        let rtcp = set_up.server.map(|server| SocketAddr::new(host, server.rtcp));
        Ok(GrantedSetup { host, ssrc: set_up.ssrc, rtp, rtcp })
    }

    /// Sends SETUP for RTP on this connection and starts a task that reads it. Returns the queue of
    /// RTP packets, and the RTCP channel.
    ///
    /// # Errors
    /// Peer: the server refuses, or its answer is malformed.
    pub async fn set_up_frames(
        &mut self,
    ) -> Result<(GrantedSetup, FrameQueue, ChannelRtcp), Error> {
        let control = &mut self.control;
        let (set_up, channels) = set_up_channels(control).await?;
        self.timeout = set_up.timeout;
        let from = SocketAddr::new(control.remote.to_canonical(), control.server.port());
        let (sink, frames) = FrameQueue::new(from);
        let rtcp = control.read_frames(channels, sink, ReadPace::Prompt);
        let (rtp_from, rtcp_from) = (Some(from), Some(from));
        let ssrc = set_up.ssrc;
        let granted = GrantedSetup { host: from.ip(), ssrc, rtp: rtp_from, rtcp: rtcp_from };
        Ok((granted, frames, rtcp))
    }

    /// Sends PLAY, from `start` on where that is given. A transport stream of tracks begins at time
    /// `at`. Without `at` it begins at the time in the server's Range, which is that of a
    /// resumed title.
    ///
    /// # Errors
    /// Peer: the server refuses, or its answer is malformed.
    pub async fn play(
        &mut self,
        start: Option<Duration>,
        at: Option<Duration>,
    ) -> Result<PlayReply, Error> {
        let range = start.map(|start| NptRange { start: NptStart::At(start), end: None });
        if let Some(stream) = self.stream() {
            stream.hold();
        }
        let reply = self.control.ask("PLAY", |client| client.play(range)).await?;
        let fault = |malformed| self.control.fault("PLAY", malformed);
        let (Some(stream), Some(tracks)) = (self.stream(), &self.tracks) else {
            let started = self.control.client.started(&reply).map_err(fault)?;
            self.control.note_ignored("PLAY", &started.ignored);
            return Ok(started);
        };
        let started = self.control.client.streams_started(&reply, &tracks.urls);
        let (started, starts) = started.map_err(fault)?;
        self.control.note_ignored("PLAY", &started.ignored);
        let from = started.range.and_then(|range| match range.start {
            NptStart::At(from) => Some(from),
            NptStart::Now => None,
        });
        stream.begin(&starts, at.or(from).or(start).unwrap_or_default());
        // Sequence and timestamp of the packets made here: time zero is the start of the range.
        let (sequence, timestamp) = (Some(stream.first_sequence), Some(0));
        Ok(PlayReply { sequence, timestamp, ..started })
    }

    /// Interval between keep-alives.
    pub fn keep_alive_every(&self) -> Duration {
        (self.timeout / 3).max(KEEP_ALIVE_EVERY_MIN)
    }

    /// Sends a keep-alive. The arrival of media shows that the session is alive; the answer is not
    /// awaited.
    ///
    /// # Errors
    /// Peer: the connection is gone, or the server does not read.
    pub fn keep_alive(&mut self) -> Result<(), Error> {
        self.control.keep_alive()
    }

    /// Waits until the server closes the connection; returns the reason.
    pub async fn closed(&mut self) -> String {
        self.control.closed().await
    }

    /// Sends TEARDOWN. A server that does not answer drops the session after its time-out.
    pub async fn tear_down(mut self) {
        let counts = &self.control.unasked;
        if counts.frames().0 + counts.stray_bytes() > 0 {
            tracing::warn!("{}: beside the media it sent {counts}", self.control.peer());
        }
        let leave_session = self.control.ask("TEARDOWN", |client| client.teardown());
        let _ = timeout(LEAVE_WAIT, leave_session).await;
    }
}

/// A zero or very short time-out must not make this client flood the server.
const KEEP_ALIVE_EVERY_MIN: Duration = Duration::from_secs(1);
const LEAVE_WAIT: Duration = Duration::from_secs(2);
