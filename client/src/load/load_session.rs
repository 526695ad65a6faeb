// SPDX-License-Identifier: MIT OR Apache-2.0
//! One session of many: a task that sets up, plays, keeps alive, and tears down.
//!
//! It owns an RTSP connection and an RTCP socket. Its RTP socket belongs to the reading thread when
//! the session is verified, and has a filter that drops everything when it is not. Where RTP shares
//! the RTSP connection, a task of its own reads that (`frame_sinks`). Memory is some 9 KiB a
//! session, most of it the buffer of the RTSP connection.
//!
//! Sources: RFC 2326 §10.4–10.8, §12.37 (keep-alive); RFC 3550 §6.6.
//! Does not begin an ended session again.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use paths::dropped_packets;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, sleep_until, timeout, timeout_at};
use wire::rtsp::client::{Client, SetupReply};
use wire::rtsp::{NptRange, NptStart};

use super::drop_filter::drop_all;
use super::frame_sinks::{COUNTED_PAUSE, CountingSink, SampledCell, SampledSink};
use super::sample_reader::SampledSession;
use super::sampled_stats::{ExpectedStream, SampledStats, Window};
use super::session_rtcp::SessionRtcp;
use crate::error::{ClientSetting, Error};
use crate::play_verdict::LOST_AT_ENDS_MAX;
use crate::read_pace::{ReadPace, ReadRate};
use crate::receive_thread::lock;
use crate::rtcp_reporter::{RtcpLink, report_target};
use crate::rtp_receiver::{ArrivalClock, SocketReader};
use crate::rtsp_connection::{RtspConnection, connect_from};
use crate::socket_pair::{SocketPair, udp_offer};
use crate::stream_setup::set_up_channels;
use crate::transport::StreamTransport;

/// State that all sessions share.
pub(super) struct LoadState {
    /// It has the stream's URL from DESCRIBE.
    pub(super) client: Client,
    pub(super) server: SocketAddr,
    pub(super) source: Option<IpAddr>,
    pub(super) url: String,
    pub(super) window: Arc<Window>,
    /// Expectations of a verified session; its SSRC and first number come with its own answers.
    pub(super) expected: ExpectedStream,
    pub(super) reader: Sender<SampledSession>,
    /// Set when all are to leave: the time by which they must have left.
    pub(super) ending: watch::Receiver<Option<Instant>>,
    pub(super) setting_up: Semaphore,
    pub(super) leaving: Semaphore,
    pub(super) counts: SessionCounts,
    /// Counters of sessions that are only counted, in no order.
    pub(super) counting: Mutex<Vec<PacketCounter>>,
}

/// Way in which a session is set up.
pub(super) struct SessionManner {
    pub(super) transport: StreamTransport,
    pub(super) attention: Attention,
    /// False for a session whose payloads are not in the order of the file.
    pub(super) compares_file: bool,
}

/// Way in which a session's packets are read.
pub(super) enum Attention {
    Verified,
    Counted,
    /// Verified, at a rate that may change: over a connection alone.
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

/// Result of a session.
#[derive(Default)]
pub(super) struct SessionEnd {
    pub(super) is_played: bool,
    /// Reason why it could not be set up, or ended before its time, and the time of that.
    pub(super) failed: Option<(Instant, String)>,
    pub(super) ended: Option<(Instant, String)>,
    /// Packets that the sender has sent since PLAY, by its own count.
    pub(super) sent: Option<u32>,
    /// Statistics of a verified session.
    pub(super) stats: Option<Arc<Mutex<SampledStats>>>,
    /// Packets of a counted session.
    pub(super) counted: Option<u32>,
    /// It ended so soon after PLAY that it may have no packet.
    pub(super) is_brief: bool,
    /// It ended without TEARDOWN.
    pub(super) has_vanished: bool,
}

/// A playing session.
pub(super) struct PlayingSession {
    pub(super) control: RtspConnection,
    rtcp: SessionRtcp,
    pub(super) media: Media,
    /// Packets that the sender had counted before PLAY; known from its first report on.
    sent_before: Option<u32>,
    keep_alive_every: Duration,
    keep_alive_at: Instant,
    report_at: Instant,
    /// False for a session that would not read the answer to a keep-alive; it sends a report.
    reads_answers: bool,
    pub(super) is_paused: bool,
    /// Time of the request of PLAY.
    pub(super) asked_at: Instant,
}

pub(super) enum Media {
    Verified(Arc<Mutex<SampledStats>>),
    Counted(PacketCounter),
}

/// Counter of a session's packets.
#[derive(Clone)]
pub(super) enum PacketCounter {
    /// The kernel counts what a socket's filter drops.
    Socket(Arc<UdpSocket>),
    Frames(Arc<AtomicU32>),
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
    /// Packets that arrived, modulo 2^32 as senders count.
    fn came(&self) -> Option<u32> {
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

/// Packets among the sender's count of `said` that went to others before, as a relay counts, when
/// `came` have arrived since. They are not lost at the start of the session. The result is a little
/// higher, so that packets that overtook the report do not count as lost.
fn sent_before(said: u32, came: u32) -> u32 {
    // Modulo 2^32. A little below zero: duplicates have arrived.
    let before = said.wrapping_sub(came);
    let is_anothers = before.cast_signed().unsigned_abs() > LOST_AT_ENDS_MAX;
    if is_anothers { before.wrapping_add(OVERTAKEN_MAX) } else { 0 }
}

/// Runs a session from its turn to its end.
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
    if let Media::Counted(counter) = &playing.media {
        let mut all = shared.counting.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(counter.clone());
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

/// Source of a session's packets between SETUP and PLAY.
enum PendingMedia {
    VerifiedSocket(UdpSocket),
    VerifiedFrames(SampledCell),
    Counted(PacketCounter),
}

/// Connects, for a tunnel twice.
pub(super) async fn connect_control(
    client: Client,
    url: &str,
    transport: StreamTransport,
    (source, server): (Option<IpAddr>, SocketAddr),
) -> Result<RtspConnection, Error> {
    let stream = connect_from(source, server).await?;
    match transport {
        StreamTransport::Http => {
            RtspConnection::tunnelled(client, url, stream, source, server).await
        }
        _ => RtspConnection::over(client, stream),
    }
}

/// Sends SETUP and PLAY.
pub(super) async fn start(
    shared: &LoadState,
    manner: SessionManner,
) -> Result<PlayingSession, Error> {
    let SessionManner { transport, attention, compares_file } = manner;
    let at = (shared.source, shared.server);
    let mut control = connect_control(shared.client.clone(), &shared.url, transport, at).await?;
    let reads_answers = !matches!(attention, Attention::Limited(_));
    let (set_up, pending, link) = match transport.is_interleaved() {
        true => set_up_frames(shared, &mut control, attention).await?,
        false => set_up_ports(&mut control, !matches!(attention, Attention::Counted)).await?,
    };
    let rtcp = SessionRtcp::new(link, set_up.ssrc);
    let asked_at = Instant::now();
    let range = NptRange { start: NptStart::At(Duration::ZERO), end: None };
    let reply = control.ask("PLAY", |client| client.play(Some(range))).await?;
    let started = control.client.started(&reply);
    let started = started.map_err(|malformed| control.fault("PLAY", malformed))?;
    let stats = || {
        let sequence = started.sequence;
        let file = shared.expected.file.clone().filter(|_| compares_file);
        let ssrc = set_up.ssrc;
        let expected = ExpectedStream { ssrc, sequence, file, ..shared.expected.clone() };
        Arc::new(Mutex::new(SampledStats::new(expected)))
    };
    let media = match pending {
        PendingMedia::VerifiedSocket(socket) => {
            let stats = stats();
            // The thread outlives all sessions.
            let _ = shared.reader.send(SampledSession { socket, stats: stats.clone() });
            Media::Verified(stats)
        }
        PendingMedia::VerifiedFrames(cell) => Media::Verified(cell.get_or_init(stats).clone()),
        PendingMedia::Counted(counter) => Media::Counted(counter),
    };
    let keep_alive_every = (set_up.timeout / 3).max(KEEP_ALIVE_EVERY_MIN);
    let now = Instant::now();
    Ok(PlayingSession {
        control,
        rtcp,
        media,
        sent_before: None,
        keep_alive_every,
        keep_alive_at: now + keep_alive_every,
        report_at: now + SessionRtcp::first_report_after(),
        reads_answers,
        is_paused: false,
        asked_at,
    })
}

async fn set_up_ports(
    control: &mut RtspConnection,
    is_verified: bool,
) -> Result<(SetupReply, PendingMedia, RtcpLink), Error> {
    let SocketPair { rtp, rtcp, ports, .. } = SocketPair::bind(control.local)?;
    prepare(&rtp, is_verified)?;
    let reply = control.ask("SETUP", |client| client.setup(&udp_offer(ports))).await?;
    let set_up = control.client.set_up(&reply);
    let set_up = set_up.map_err(|malformed| control.fault("SETUP", malformed))?;
    let said = set_up.source.as_deref().and_then(|source| source.parse::<IpAddr>().ok());
    let host = said.unwrap_or(control.remote);
    let to = report_target(&set_up, host, control.remote);
    let link = RtcpLink::udp(rtcp, Some(host), to)?;
    let pending = match is_verified {
        true => PendingMedia::VerifiedSocket(rtp),
        false => PendingMedia::Counted(PacketCounter::Socket(Arc::new(rtp))),
    };
    Ok((set_up, pending, link))
}

async fn set_up_frames(
    shared: &LoadState,
    control: &mut RtspConnection,
    attention: Attention,
) -> Result<(SetupReply, PendingMedia, RtcpLink), Error> {
    let (set_up, channels) = set_up_channels(control).await?;
    let pace = match attention {
        Attention::Verified => ReadPace::Prompt,
        Attention::Limited(rates) => ReadPace::Limited(rates),
        Attention::Counted => {
            let packets = Arc::new(AtomicU32::new(0));
            let sink = CountingSink { packets: packets.clone(), new: 0 };
            let pace = ReadPace::Gathered(COUNTED_PAUSE);
            let (rtcp, _) = control.read_frames(channels, sink, pace);
            let pending = PendingMedia::Counted(PacketCounter::Frames(packets));
            return Ok((set_up, pending, RtcpLink::Channel(rtcp)));
        }
    };
    let cell = SampledCell::default();
    let (window, clock) = (shared.window.clone(), ArrivalClock::start());
    let (stats, from) = (cell.clone(), control.server);
    let sink = SampledSink { stats, window, clock, from, held: Vec::new() };
    let (rtcp, _) = control.read_frames(channels, sink, pace);
    let pending = PendingMedia::VerifiedFrames(cell);
    Ok((set_up, pending, RtcpLink::Channel(rtcp)))
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

impl PlayingSession {
    /// Waits until the other side ends the session; returns the reason. Dropping the future loses
    /// nothing: it may be called again.
    pub(super) async fn run(&mut self) -> String {
        let stats = match &self.media {
            Media::Verified(stats) => Some(&**stats),
            Media::Counted(_) => None,
        };
        loop {
            tokio::select! {
                found = self.control.closed() => return found,
                () = self.rtcp.receive_report() => {
                    if self.rtcp.has_sent_bye {
                        return "the server said BYE".to_owned();
                    }
                    if self.sent_before.is_none() {
                        let first = self.rtcp.first_count.zip(self.media.came());
                        self.sent_before = first.map(|(said, came)| sent_before(said, came));
                    }
                }
                () = sleep_until(self.report_at.into()) => {
                    self.report_at = Instant::now() + self.rtcp.report(stats);
                }
                () = sleep_until(self.keep_alive_at.into()) => {
                    self.keep_alive_at = Instant::now() + self.keep_alive_every;
                    if !self.reads_answers {
                        // A server that asks for no more is content with a report.
                        self.rtcp.report(stats);
                        continue;
                    }
                    let asked = self.control.ask("GET_PARAMETER", Client::get_parameter);
                    if let Err(error) = asked.await {
                        return error.to_string();
                    }
                }
            }
        }
    }

    /// Sends PAUSE first, so that the count of BYE is of all packets; then TEARDOWN.
    pub(super) async fn leave(
        mut self,
        shared: &LoadState,
        ended: Option<(Instant, String)>,
    ) -> SessionEnd {
        let _turn = shared.leaving.acquire().await;
        // A server that does not answer forgets the session after its time-out.
        let until = Instant::now() + LEAVE_WAIT;
        let until = shared.ending.borrow().map_or(until, |end| until.min(end));
        let is_playing = ended.is_none() && !self.is_paused;
        let _ = timeout_at(until.into(), self.leave_session(is_playing)).await;
        sleep(SETTLE).await;
        let sent = self.sent();
        let mut end = SessionEnd { is_played: true, ended, sent, ..SessionEnd::default() };
        match self.media {
            Media::Verified(stats) => end.stats = Some(stats),
            Media::Counted(counter) => end.counted = counter.packets(),
        }
        end
    }

    /// Closes all sockets at once, without TEARDOWN.
    pub(super) fn vanish(self) -> SessionEnd {
        let mut end = SessionEnd { is_played: true, has_vanished: true, ..SessionEnd::default() };
        match self.media {
            Media::Verified(stats) => end.stats = Some(stats),
            Media::Counted(counter) => end.counted = counter.packets(),
        }
        end
    }

    /// Packets that the sender has sent since PLAY, by its own count. Without a report before the
    /// last, a count that exceeds the arrivals by more than is likely is not known to be of this
    /// session.
    fn sent(&self) -> Option<u32> {
        let said = self.rtcp.sent_in_all()?;
        match self.sent_before {
            Some(before) => Some(said.wrapping_sub(before)),
            None => {
                Some(said).filter(|said| sent_before(*said, self.media.came().unwrap_or(0)) == 0)
            }
        }
    }

    async fn leave_session(&mut self, is_playing: bool) {
        if is_playing && self.control.ask("PAUSE", Client::pause).await.is_ok() {
            sleep(SETTLE).await;
        }
        if let Media::Verified(stats) = &self.media {
            self.rtcp.report(Some(stats));
        }
        self.rtcp.leave();
        if self.control.ask("TEARDOWN", Client::teardown).await.is_err() {
            // It may have said BYE before it went.
            let _ = timeout(BYE_WAIT, self.rtcp.receive_report()).await;
            return;
        }
        let until = tokio::time::Instant::now() + BYE_WAIT;
        while !self.rtcp.has_sent_bye {
            tokio::select! {
                () = self.rtcp.receive_report() => {}
                () = sleep_until(until) => return,
            }
        }
    }
}

/// Reads the asset to compare with.
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

/// Sessions that are set up at the same time: far fewer than a listener's queue holds.
pub(super) const SETTING_UP_MAX: usize = 256;
pub(super) const LEAVING_MAX: usize = 512;
/// A server that announces no time-out must not make this client a flood.
const KEEP_ALIVE_EVERY_MIN: Duration = Duration::from_secs(1);
/// The packets of a burst, which a report may be behind.
const OVERTAKEN_MAX: u32 = 64;
const LEAVE_WAIT: Duration = Duration::from_secs(10);
/// Time for packets under way when an answer arrives.
pub(super) const SETTLE: Duration = Duration::from_millis(100);
const BYE_WAIT: Duration = Duration::from_millis(500);
const FILE_BYTES_MAX: u64 = 4 << 30;
