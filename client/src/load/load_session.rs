// SPDX-License-Identifier: MIT OR Apache-2.0
//! One session of many: a task that sets up, plays, keeps alive, and tears down.
//!
//! It owns an RTSP connection, and an RTCP socket for each of its streams (`session_streams`).
//! Memory is about 9 KiB a session, most of it the buffer of the RTSP connection.
//!
//! Sources: RFC 2326 §10.5–10.8, §12.37 (keep-alive); RFC 3550 §6.6.
//! Does not restart an ended session.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, sleep_until, timeout, timeout_at};
use wire::rtsp::client::Client;
use wire::rtsp::{NptRange, NptStart};

use super::sample_reader::SampledStream;
use super::sampled_stats::Window;
use super::session_rtcp::SessionRtcp;
use super::session_streams::{
    LoadStreams, Media, PacketCounter, PlayingStream, StreamEnd, has_sent_bye, receive_report,
    set_up_frames, set_up_ports,
};
use super::stages::StageCounts;
use crate::connect::connect_from;
use crate::error::{ClientSetting, Error};
use crate::login::ClientLogin;
use crate::read_pace::ReadRate;
use crate::rtsp_connection::RtspConnection;
use crate::transport::StreamTransport;

/// State shared by all sessions.
pub(super) struct LoadState {
    /// Client with the session's URL from DESCRIBE.
    pub(super) client: Client,
    pub(super) server: SocketAddr,
    pub(super) source: Option<IpAddr>,
    pub(super) url: String,
    pub(super) login: ClientLogin,
    pub(super) window: Arc<Window>,
    /// The streams of each session; not empty.
    pub(super) streams: LoadStreams,
    pub(super) reader: Sender<SampledStream>,
    /// Set when all sessions must leave: the deadline for leaving.
    pub(super) ending: watch::Receiver<Option<Instant>>,
    pub(super) setting_up: Semaphore,
    pub(super) leaving: Semaphore,
    pub(super) counts: SessionCounts,
    /// Packet counters of counted sessions, one for each stream; the sessions are unordered.
    pub(super) counting: Mutex<Vec<Box<[PacketCounter]>>>,
}

/// Setup of a session.
pub(super) struct SessionManner {
    pub(super) transport: StreamTransport,
    pub(super) attention: Attention,
    /// False for a session whose payloads are not in the order of the file.
    pub(super) compares_file: bool,
}

/// Reading mode of a session's packets.
pub(super) enum Attention {
    Verified,
    Counted,
    /// Verified, at a rate that may change; only over a connection.
    Limited(watch::Receiver<ReadRate>),
}

/// Counts of sessions by stage.
#[derive(Debug, Default)]
pub(super) struct SessionCounts {
    pub(super) played: AtomicU32,
    pub(super) failed: AtomicU32,
    pub(super) ended: AtomicU32,
    pub(super) left: AtomicU32,
}

impl SessionCounts {
    pub(super) fn now(&self) -> StageCounts {
        let get = |count: &AtomicU32| count.load(Ordering::Relaxed);
        let [played, failed] = [&self.played, &self.failed].map(get);
        let [ended, left] = [&self.ended, &self.left].map(get);
        StageCounts { played, failed, ended, left }
    }
}

/// Result of a session.
#[derive(Default)]
pub(super) struct SessionEnd {
    pub(super) is_played: bool,
    /// Reason and time of a failed setup or a premature end.
    pub(super) failed: Option<(Instant, String)>,
    pub(super) ended: Option<(Instant, String)>,
    /// Its streams, in the order of the description; empty if it was not set up.
    pub(super) streams: Vec<StreamEnd>,
    /// It ended so soon after PLAY that it may have no packet.
    pub(super) is_brief: bool,
    /// It ended without TEARDOWN.
    pub(super) has_vanished: bool,
}

/// A playing session.
pub(super) struct PlayingSession {
    pub(super) control: RtspConnection,
    pub(super) streams: Vec<PlayingStream>,
    keep_alive_every: Duration,
    keep_alive_at: Instant,
    report_at: Instant,
    /// False for a session that does not read the answer to a keep-alive; it sends a report
    /// instead.
    reads_answers: bool,
    pub(super) is_paused: bool,
    /// Time of the request of PLAY.
    pub(super) asked_at: Instant,
}

impl SessionEnd {
    /// True if its packets were read.
    pub(super) fn is_verified(&self) -> bool {
        self.streams.iter().any(|stream| matches!(stream.media, Media::Verified(_)))
    }

    /// Packets of a counted session; none if unknown.
    pub(super) fn counted(&self) -> Option<u64> {
        let counts = self.streams.iter().map(|stream| stream.counted().map(u64::from));
        counts.reduce(|sum, count| Some(sum? + count?)).flatten()
    }

    /// Packets missing from a counted session; none where its senders have not reported their
    /// counts.
    pub(super) fn missing(&self) -> Option<u64> {
        let missing = self.streams.iter().map(StreamEnd::missing);
        missing.reduce(|sum, missing| Some(sum? + missing?)).flatten()
    }
}

/// Runs a session from its start to its end.
pub(super) async fn session(
    shared: Arc<LoadState>,
    manner: SessionManner,
    turn: Instant,
) -> SessionEnd {
    let mut ending = shared.ending.clone();
    let started = async {
        sleep_until(turn.into()).await;
        let _turn = shared.setting_up.acquire().await;
        start(&shared, manner).await
    };
    let started = tokio::select! {
        started = started => started,
        _ = ending.wait_for(Option::is_some) => return SessionEnd::default(),
    };
    let mut playing = match started {
        Ok(playing) => playing,
        Err(error) => {
            shared.counts.failed.fetch_add(1, Ordering::Relaxed);
            let failed = Some((Instant::now(), error.to_string()));
            return SessionEnd { failed, ..SessionEnd::default() };
        }
    };
    let counters: Box<[_]> = playing.streams.iter().filter_map(PlayingStream::counter).collect();
    if !counters.is_empty() {
        shared.counting.lock().unwrap_or_else(PoisonError::into_inner).push(counters);
    }
    shared.counts.played.fetch_add(1, Ordering::Relaxed);
    let ended = tokio::select! {
        found = playing.run() => Some((Instant::now(), found)),
        _ = ending.wait_for(Option::is_some) => None,
    };
    if ended.is_some() {
        shared.counts.ended.fetch_add(1, Ordering::Relaxed);
    }
    let end = playing.leave(&shared, ended).await;
    shared.counts.left.fetch_add(1, Ordering::Relaxed);
    end
}

/// Connects; for a tunnel twice.
pub(super) async fn connect_control(
    (client, url): (Client, &str),
    login: ClientLogin,
    transport: StreamTransport,
    (source, server): (Option<IpAddr>, SocketAddr),
) -> Result<RtspConnection, Error> {
    let stream = connect_from(source, server).await?;
    match transport {
        StreamTransport::Http => {
            RtspConnection::tunnelled((client, url), login, stream, (source, server)).await
        }
        _ => RtspConnection::over(client, login, stream).await,
    }
}

/// Sends SETUP and PLAY.
pub(super) async fn start(
    shared: &LoadState,
    manner: SessionManner,
) -> Result<PlayingSession, Error> {
    let SessionManner { transport, attention, compares_file } = manner;
    let at = (shared.source, shared.server);
    let (client, login) = (shared.client.clone(), shared.login.clone());
    let mut control = connect_control((client, &shared.url), login, transport, at).await?;
    let reads_answers = !matches!(attention, Attention::Limited(_));
    let pending = match transport.is_interleaved() {
        true => set_up_frames(shared, &mut control, attention).await?,
        false => {
            let is_verified = !matches!(attention, Attention::Counted);
            set_up_ports(shared, &mut control, is_verified).await?
        }
    };
    let timeouts = pending.iter().map(|stream| stream.timeout);
    let keep_alive_every = (timeouts.min().unwrap_or_default() / 3).max(KEEP_ALIVE_EVERY_MIN);
    let asked_at = Instant::now();
    let range = NptRange { start: NptStart::At(Duration::ZERO), end: None };
    let reply = control.ask("PLAY", |client| client.play(Some(range))).await?;
    let started = control.client.streams_started(&reply, &shared.streams.urls);
    let (started, starts) = started.map_err(|malformed| control.fault("PLAY", malformed))?;
    let is_one = starts.len() == 1;
    let streams = pending.into_iter().zip(starts).enumerate().map(|(index, (stream, start))| {
        // With only one stream, RTP-Info always applies to it.
        let sequence = start.sequence.or(started.sequence.filter(|_| is_one));
        stream.begin(shared, index, sequence, compares_file)
    });
    let streams = streams.collect();
    let now = Instant::now();
    Ok(PlayingSession {
        control,
        streams,
        keep_alive_every,
        keep_alive_at: now + keep_alive_every,
        report_at: now + SessionRtcp::first_report_after(),
        reads_answers,
        is_paused: false,
        asked_at,
    })
}

impl PlayingSession {
    /// Waits until the server ends the session; returns the reason. Dropping the future loses
    /// nothing: the method may be called again.
    pub(super) async fn run(&mut self) -> String {
        loop {
            tokio::select! {
                found = self.control.closed() => return found,
                stream = receive_report(&mut self.streams) => {
                    if has_sent_bye(&self.streams) {
                        return "the server said BYE".to_owned();
                    }
                    self.streams[stream].note_sent_before();
                }
                () = sleep_until(self.report_at.into()) => {
                    self.report_at = Instant::now() + self.report();
                }
                () = sleep_until(self.keep_alive_at.into()) => {
                    self.keep_alive_at = Instant::now() + self.keep_alive_every;
                    if !self.reads_answers {
                        // A server that requires no more accepts a report as a keep-alive.
                        self.report();
                        continue;
                    }
                    if let Err(error) = self.control.keep_alive() {
                        return error.to_string();
                    }
                }
            }
        }
    }

    /// Sends reports of all streams; returns the time until the next.
    fn report(&self) -> Duration {
        self.streams.iter().for_each(PlayingStream::report);
        SessionRtcp::next_report_after()
    }

    /// Sends PAUSE first, so that the count with BYE includes all packets; then TEARDOWN.
    pub(super) async fn leave(
        mut self,
        shared: &LoadState,
        ended: Option<(Instant, String)>,
    ) -> SessionEnd {
        let _turn = shared.leaving.acquire().await;
        // A server that does not answer drops the session after its time-out.
        let until = Instant::now() + LEAVE_WAIT;
        let until = shared.ending.borrow().map_or(until, |end| until.min(end));
        let is_playing = ended.is_none() && !self.is_paused;
        let _ = timeout_at(until.into(), self.leave_session(is_playing)).await;
        sleep(SETTLE).await;
        let streams = self.streams.iter().map(|stream| stream.end(stream.sent())).collect();
        SessionEnd { is_played: true, ended, streams, ..SessionEnd::default() }
    }

    /// Closes all sockets at once, without TEARDOWN.
    pub(super) fn vanish(self) -> SessionEnd {
        // The number of packets sent remains unknown.
        let streams = self.streams.iter().map(|stream| stream.end(None)).collect();
        SessionEnd { is_played: true, has_vanished: true, streams, ..SessionEnd::default() }
    }

    async fn leave_session(&mut self, is_playing: bool) {
        if is_playing && self.control.ask("PAUSE", Client::pause).await.is_ok() {
            sleep(SETTLE).await;
        }
        for stream in &self.streams {
            stream.leave();
        }
        // A server that does not answer may have sent BYE before.
        let _ = self.control.ask("TEARDOWN", Client::teardown).await;
        let streams = &mut self.streams;
        let byes = async {
            while !has_sent_bye(streams) {
                receive_report(streams).await;
            }
        };
        let _ = timeout(BYE_WAIT, byes).await;
    }
}

/// Reads the asset for the comparison.
pub(super) fn file(path: &Path) -> Result<Arc<Vec<u8>>, Error> {
    let wrong = |found: String, cure: &str| Error::Setting {
        setting: ClientSetting::File,
        found: format!("{}: {found}", path.display()),
        cure: cure.to_owned(),
    };
    let readable = "name the asset, as the server has it";
    let bytes = std::fs::metadata(path).map_err(|e| wrong(e.to_string(), readable))?.len();
    if bytes > FILE_BYTES_MAX {
        let found = format!("{bytes} bytes are more than are kept in memory");
        return Err(wrong(found, "play a shorter asset, or compare with no file"));
    }
    std::fs::read(path).map(Arc::new).map_err(|e| wrong(e.to_string(), readable))
}

/// Concurrent setups: far fewer than the length of a listener's queue.
pub(super) const SETTING_UP_MAX: usize = 256;
pub(super) const LEAVING_MAX: usize = 512;
/// A zero or very short time-out must not make this client flood the server.
const KEEP_ALIVE_EVERY_MIN: Duration = Duration::from_secs(1);
const LEAVE_WAIT: Duration = Duration::from_secs(10);
/// Time for packets in flight when an answer arrives.
pub(super) const SETTLE: Duration = Duration::from_millis(100);
const BYE_WAIT: Duration = Duration::from_millis(500);
const FILE_BYTES_MAX: u64 = 4 << 30;
