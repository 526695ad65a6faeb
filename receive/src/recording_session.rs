// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recording from an RTSP server, one session after another until the source has ended.
//!
//! A source with an announced end (`a=range` of the description, or Range of PLAY) is a title. A
//! title is complete, and not requested again, in three cases: its range has arrived (the last RTP
//! timestamp is within a second of the end, [`crate::title`]); the server sends BYE after packets
//! have arrived for the length of the range; or the server ends it twice at the same position, with
//! BYE, and little is missing: at most three seconds and at most a twentieth of the range, the
//! usual error of announced lengths. Two BYE packets at the same position with more missing end the
//! title as failed.
//!
//! A session that ends earlier (BYE, server shutdown, broken connection, silent stream) is followed
//! by another one, after one second at first and half a minute at most. The new session resumes at
//! the position reached, or at the random access point that the server selects before it. Datagrams
//! are held until the server has announced its start. A start that would repeat more recorded media
//! ends the title as failed, and nothing of that session is recorded. Three successive sessions
//! without progress, or with less progress than they repeat, also fail the title, and so do parts
//! that the server leaves out, of more than a second over all sessions.
//!
//! A source is live by the setting, or if it has no announced end. Its next session starts at its
//! current position. If its server has announced a start, the next session requests the position
//! reached: a file that another recorder still writes is not played from its start again, and is
//! complete once it has an end and has arrived up to it. [`crate::retry`] lists the refusals that
//! end a source.
//!
//! RTP arrives over UDP or on the RTSP connection, also through an HTTP tunnel. By default a source
//! is requested over UDP; once its server has refused UDP (461) or a UDP session has delivered no
//! packet in ten seconds, it is requested over TCP for the rest of the recording. The tracks of a
//! camera arrive as the packets of the file into which they are multiplexed
//! (`client::ClientSession`).
//!
//! Sources: RFC 2326 §10.5, §12.37, C.1.5; RFC 3550 §6.6.
//! Does not pause.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::sync::{Mutex, atomic::AtomicBool, atomic::AtomicU64, atomic::Ordering};
use std::time::Duration;

use client::rtp_receiver::ArrivalClock;
use client::{
    ClientLogin, ClientSession, FrameQueue, GrantedSetup, RecordedMedia, RefusedSenders,
    StreamTransport, TrackContainer, TrackCounts, TransportChoice,
};
use paths::Port;
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use wire::rtsp::PortPair;
use wire::rtsp::client::PlayReply;

use crate::receiver_reports::{ReceiverReporter, ReportLink, RtcpStats};
use crate::receiving_thread::{PortCommand, RECEIVER_GONE, add_port, lock, note_tracks};
use crate::recorded_stream::{AnnouncedSession, RecordedStream, StreamActivity};
use crate::retry::RefusalKind;
use crate::session_history::SessionHistory;
use crate::stream_source::{BUFFER_BYTES, by_ffmpeg};
use crate::title::{TitleRange, check_start, is_little, is_nothing};

/// A source at an RTSP server.
pub(crate) struct RecordingSession<'a> {
    pub(crate) url: &'a str,
    /// Its name in the log.
    pub(crate) shown: &'a str,
    pub(crate) login: &'a ClientLogin,
    pub(crate) key: u32,
    pub(crate) stream: &'a Mutex<RecordedStream>,
    pub(crate) rtcp: &'a Mutex<RtcpStats>,
    pub(crate) receiver: mpsc::Sender<PortCommand>,
    pub(crate) clock: ArrivalClock,
    /// Number of sessions that have played.
    pub(crate) sessions: &'a AtomicU64,
    /// True once the source has ended.
    pub(crate) is_over: &'a AtomicBool,
    pub(crate) progress: &'a Mutex<TitleProgress>,
    /// Reason why the last session ended.
    pub(crate) trouble: &'a Mutex<Option<String>>,
    /// Names of the tracks that are recorded.
    pub(crate) tracks: &'a Mutex<Vec<String>>,
    /// Reason why the server is not asked again.
    pub(crate) refusal: &'a Mutex<Option<String>>,
    /// True if the server is asked again regardless of an announced end.
    pub(crate) is_live: bool,
    /// True if it is asked again after any refusal.
    pub(crate) is_endless: bool,
    /// True if receiver reports are sent for tracks, too.
    pub(crate) reports: bool,
    pub(crate) transport: TransportChoice,
    pub(crate) container: TrackContainer,
    pub(crate) media: RecordedMedia,
}

/// Progress of a title over its ended sessions.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TitleProgress {
    /// `None` for a live source.
    pub(crate) end: Option<Duration>,
    /// Position in normal play time.
    pub(crate) reached: Option<Duration>,
    /// Length of media that is in the file twice.
    pub(crate) repeated: Duration,
}

/// Answer to SETUP, the queue of frames unless ports are used, and the transport of reports.
type SetUpStream = (GrantedSetup, Option<FrameQueue>, ReportLink);

/// Reason why a session ended.
enum SessionEnd {
    /// The recording was stopped.
    Stopped,
    /// All of the title has arrived.
    Complete,
    /// The session broke off at position `at` in normal play time, where another one may continue.
    /// `None` if the position is unknown, such as before the first packet.
    Broken { why: String, at: Option<Duration>, is_bye: bool },
    /// The server refused the session.
    Refused { why: String, kind: RefusalKind },
    /// Another session would deliver nothing more, or repeat recorded media.
    Failed { why: String },
}

impl RecordingSession<'_> {
    /// Runs sessions until the title is complete, the source is permanently refused, or the
    /// recording is stopped.
    pub(crate) async fn run(&self, mut stopped: watch::Receiver<bool>) {
        let mut history = SessionHistory::default();
        let mut wait = BACKOFF_MIN;
        loop {
            let before = self.sessions.load(Ordering::Relaxed);
            let ended = self.session(&mut history, &mut stopped).await;
            // The path binds another port for the next session, if there is one.
            let _ = self.receiver.send(PortCommand::Remove { key: self.key });
            let kind = match &ended {
                SessionEnd::Refused { kind, .. } => Some(*kind),
                _ => None,
            };
            let why = match self.next(&mut history, ended) {
                Ok(why) => why,
                Err(is_over) => return self.is_over.store(is_over, Ordering::Relaxed),
            };
            if self.sessions.load(Ordering::Relaxed) > before {
                wait = BACKOFF_MIN;
            }
            let has_played = self.sessions.load(Ordering::Relaxed) > 0;
            let asked_in = kind.map_or(wait, |kind| kind.wait(wait, has_played));
            let seconds = asked_in.as_secs();
            tracing::warn!("{}: {why}; asking again in {seconds} s", self.shown);
            *lock(self.trouble) = Some(why);
            tokio::select! {
                () = sleep(asked_in) => {}
                _ = stopped.changed() => return,
            }
            wait = (wait * 2).min(BACKOFF_MAX);
        }
    }

    /// Returns the reason for another session. `Err` means that there is none: true if the source
    /// has ended.
    fn next(&self, history: &mut SessionHistory, ended: SessionEnd) -> Result<String, bool> {
        let is_live = self.is_live || history.is_title == Some(false);
        match ended {
            SessionEnd::Stopped => Err(false),
            SessionEnd::Complete => match history.gap.take() {
                Some(gap) => Err(self.give_up(gap)),
                None => Err(true),
            },
            SessionEnd::Failed { why } => Err(self.give_up(why)),
            SessionEnd::Broken { why, at, .. } if is_live => {
                history.start = at.or(history.start);
                Ok(why)
            }
            SessionEnd::Broken { why, at, is_bye } => {
                let reached = at.or(history.start).unwrap_or_default();
                let is_stalled = history.is_stalled(reached, PROGRESS_MIN.max(history.repeats));
                history.stalled = if is_stalled { history.stalled + 1 } else { 0 };
                (history.start, history.is_bye) = (at.or(history.start), is_bye);
                if history.stalled >= STALLED_MAX {
                    let why = format!(
                        "{why}; {STALLED_MAX} sessions brought nothing more, or less than they \
                         repeated"
                    );
                    return Err(self.give_up(why));
                }
                Ok(why)
            }
            SessionEnd::Refused { why, kind } => {
                let has_played = self.sessions.load(Ordering::Relaxed) > 0;
                match self.is_endless || kind.is_retried(is_live, has_played) {
                    true => Ok(why),
                    false => Err(self.give_up(why)),
                }
            }
        }
    }

    fn refused(&self, error: client::Error) -> SessionEnd {
        let why = match &error {
            // The command of ffmpeg records all media.
            client::Error::NoTransportStream { offered, .. }
                if offered != "nothing" && self.media == RecordedMedia::All =>
            {
                let url = match self.login.credentials {
                    Some(_) => self.url.replacen("://", "://USER:PASSWORD@", 1),
                    None => self.url.to_owned(),
                };
                format!("{error}; {}", by_ffmpeg(&url, offered))
            }
            _ => error.to_string(),
        };
        SessionEnd::Refused { why, kind: RefusalKind::of(&error) }
    }

    fn give_up(&self, why: String) -> bool {
        tracing::error!("{}: {why}", self.shown);
        *lock(self.refusal) = Some(why);
        true
    }

    async fn session(
        &self,
        history: &mut SessionHistory,
        stopped: &mut watch::Receiver<bool>,
    ) -> SessionEnd {
        history.repeats = Duration::ZERO;
        let prepared = tokio::select! {
            prepared = self.prepare(history) => prepared,
            _ = stopped.changed() => return SessionEnd::Stopped,
        };
        let (mut session, reporter) = match prepared {
            Ok(prepared) => prepared,
            Err(ended) => return ended,
        };
        let byes = lock(self.rtcp).byes;
        let asked_at = Instant::now();
        let played = tokio::select! {
            played = self.play(&mut session, history, byes) => played,
            () = reporter.exchange() => SessionEnd::host("the reports have ended".to_owned()),
            _ = stopped.changed() => SessionEnd::Stopped,
        };
        drop(reporter);
        let is_silent = matches!(played, SessionEnd::Broken { is_bye: false, .. })
            && self.activity().at.is_none()
            && (session.heard_before().is_none() || lock(self.stream).has_track_losses())
            && asked_at.elapsed() >= SILENCE_MAX;
        history.prefers_tcp |= is_silent;
        if session.has_tracks() {
            self.note_tracks(session.finish_tracks(matches!(played, SessionEnd::Stopped)).await);
            lock(self.stream).end_tracks();
            // The receiving thread needs time to empty the queue of the last packets.
            sleep(SETTLE).await;
        }
        self.add_to_totals(history);
        lock(self.stream).shut();
        session.tear_down().await;
        played
    }

    /// Prepares a session, up to SETUP; a second one over TCP if the first one shows that UDP is
    /// unusable.
    async fn prepare(
        &self,
        history: &mut SessionHistory,
    ) -> Result<(ClientSession, ReceiverReporter<'_>), SessionEnd> {
        let has_preferred_tcp = history.prefers_tcp;
        let prepared = self.prepare_by(self.transport(history), history).await;
        if prepared.is_ok() || history.prefers_tcp == has_preferred_tcp {
            return prepared;
        }
        let _ = self.receiver.send(PortCommand::Remove { key: self.key });
        self.prepare_by(self.transport(history), history).await
    }

    fn transport(&self, history: &SessionHistory) -> StreamTransport {
        match self.transport {
            TransportChoice::Auto if history.prefers_tcp => StreamTransport::Tcp,
            choice => choice.first(self.url),
        }
    }

    async fn prepare_by(
        &self,
        transport: StreamTransport,
        history: &mut SessionHistory,
    ) -> Result<(ClientSession, ReceiverReporter<'_>), SessionEnd> {
        let (container, media) = (self.container.clone(), self.media);
        let session = ClientSession::open(self.url, self.login, transport, container, media);
        let mut session = session.await.map_err(|error| self.refused(error))?;
        if !session.has_tracks() && self.container.is_mp4() {
            let (why, kind) = (NOT_TRACKS.to_owned(), RefusalKind::Permanent);
            return Err(SessionEnd::Refused { why, kind });
        }
        if history.describe(session.duration()) {
            return Err(SessionEnd::Complete);
        }
        *lock(self.tracks) = session.recorded().to_vec();
        for reason in session.left_out() {
            tracing::warn!("{}: left out: {reason}", self.shown);
        }
        let set_up = if session.has_tracks() {
            let set_up = session.set_up_tracks(self.reports).await;
            set_up.map(|(granted, frames)| (granted, Some(frames), ReportLink::Tracks))
        } else if transport.is_interleaved() {
            self.set_up_frames(&mut session).await
        } else {
            self.set_up_ports(&mut session).await?
        };
        let (granted, frames, link) = set_up.map_err(|error| {
            let is_unsupported =
                matches!(error, client::Error::Refused { status: UNSUPPORTED_TRANSPORT, .. });
            history.prefers_tcp |= is_unsupported && self.transport == TransportChoice::Auto;
            self.refused(error)
        })?;
        lock(self.stream).announce(AnnouncedSession {
            host: granted.host.to_canonical(),
            port: granted.rtp.map(|address| address.port()),
            payload_type: session.payload_type(),
            ssrc: granted.ssrc,
            is_resumed: history.is_resumed(),
        });
        {
            let mut rtcp = lock(self.rtcp);
            let canonical =
                |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
            (rtcp.to, rtcp.named) = (granted.rtcp, granted.rtcp.map(canonical));
        }
        if let Some(frames) = frames {
            let added = self.receiver.send(PortCommand::AddFrames { key: self.key, frames });
            added.map_err(|_| SessionEnd::host(RECEIVER_GONE.to_owned()))?;
        }
        Ok((session, ReceiverReporter::new(link, (self.stream, self.rtcp), None)))
    }

    /// Sends SETUP for RTP on the connection.
    async fn set_up_frames(
        &self,
        session: &mut ClientSession,
    ) -> Result<SetUpStream, client::Error> {
        let (granted, frames, rtcp) = session.set_up_frames().await?;
        let link = ReportLink::Channel(rtcp, frames.from);
        Ok((granted, Some(frames), link))
    }

    /// Binds ports at the receive path, and sends SETUP with them.
    async fn set_up_ports(
        &self,
        session: &mut ClientSession,
    ) -> Result<Result<SetUpStream, client::Error>, SessionEnd> {
        let (ports, rtcp) = self.take_in(session).map_err(SessionEnd::host)?;
        let refused = |error| SessionEnd::host(format!("RTCP socket: {error}"));
        rtcp.set_nonblocking(true).map_err(refused)?;
        let link = ReportLink::Udp(UdpSocket::from_std(rtcp).map_err(refused)?);
        Ok(session.set_up(ports).await.map(|granted| (granted, None, link)))
    }

    /// Binds a pair of ports: RTP at the receive path, RTCP here.
    fn take_in(&self, session: &ClientSession) -> Result<(PortPair, std::net::UdpSocket), String> {
        let mut refusal = String::new();
        for _ in 0..PAIRS_TRIED_MAX {
            let (ports, rtcp) = session.ports().map_err(|error| error.to_string())?;
            let mut address = session.local();
            address.set_port(ports.rtp);
            let (sources, interface, buffer_bytes) = (Vec::new(), None, BUFFER_BYTES);
            let port = Port { address, sources, interface, buffer_bytes };
            match add_port(&self.receiver, self.key, port) {
                Ok(()) => return Ok((ports, rtcp)),
                // Another program has bound the port meanwhile.
                Err(found) => refusal = found,
            }
        }
        Err(refusal)
    }

    async fn play(
        &self,
        session: &mut ClientSession,
        history: &mut SessionHistory,
        byes: u64,
    ) -> SessionEnd {
        // The clock of a live source counts from its first session and continues across all
        // sessions.
        let now = self.clock.now();
        let at = now.saturating_sub(*history.begun.get_or_insert(now));
        let at = Some(at).filter(|_| !history.is_resumed());
        let started = match session.play(history.start, at).await {
            Ok(started) => started,
            Err(error) => {
                if history.is_title == Some(false) && matches!(error, client::Error::Refused { .. })
                {
                    // The live source cannot be played from a position; the next request has none.
                    history.start = None;
                }
                return self.refused(error);
            }
        };
        self.sessions.fetch_add(1, Ordering::Relaxed);
        tracing::info!("{}: it plays", self.shown);
        if let Some(asked) = history.start.filter(|_| history.is_resumed()) {
            match check_start(asked, started.range) {
                Ok(from) => history.resume(self.url, asked, from),
                Err(why) => return SessionEnd::Failed { why },
            }
        }
        let began = self.begin(&started);
        let span = TitleRange::of(&started, session.duration(), history.start, began);
        let span = span.behind(history.earlier);
        let span = if self.is_live { span.without_end() } else { span };
        history.is_title = Some(span.end().is_some());
        history.span = Some(span);
        let (is_bye, why) = self.listen(session, &span, began, byes).await;
        if self.is_live {
            return SessionEnd::Broken { why, at: None, is_bye };
        }
        self.end(&span, history, (is_bye, session.longest_step()), why)
    }

    /// Adds an ended session to the totals of the title.
    fn add_to_totals(&self, history: &mut SessionHistory) {
        let Some(span) = history.span.take() else { return };
        let (heard, now) = (self.activity(), self.clock.now());
        history.earlier = span.sums(&heard, now);
        let mut progress = lock(self.progress);
        // The duration of the last packet is not included in the time played.
        let played =
            span.played(&heard, now).map_or(Duration::ZERO, |played| played + PROGRESS_MIN);
        progress.repeated += history.repeats.min(played);
        progress.end = span.end();
        progress.reached = span.reached(&heard, now).or(progress.reached);
    }

    /// Admits the datagrams held until the answer to PLAY; returns the time at which PLAY was
    /// granted.
    fn begin(&self, started: &PlayReply) -> Duration {
        let mut stream = lock(self.stream);
        if let Some(sequence) = started.sequence {
            stream.begin_at(sequence);
        }
        // The session began no later than the first held datagram arrived.
        let began = stream.held_since().unwrap_or_else(|| self.clock.now());
        stream.admit_held();
        began
    }

    /// Waits until a session ends; returns true if the server has sent BYE, and the reason.
    async fn listen(
        &self,
        session: &mut ClientSession,
        span: &TitleRange,
        began: Duration,
        mut byes: u64,
    ) -> (bool, String) {
        let mut alive_at = Instant::now() + session.keep_alive_every();
        let mut look_at = Instant::now() + LOOK_EVERY;
        let mut all_at = None;
        loop {
            let due = alive_at.min(look_at);
            tokio::select! {
                why = session.closed() => {
                    sleep(SETTLE).await;
                    return (false, why);
                }
                () = sleep_until(due) => {}
            }
            let now = Instant::now();
            if now >= alive_at {
                if let Err(error) = session.keep_alive() {
                    return (false, error.to_string());
                }
                alive_at = now + session.keep_alive_every();
            }
            if now >= look_at {
                look_at = now + LOOK_EVERY;
                self.note_tracks(session.track_news());
                let have_left = session.have_tracks_left();
                lock(self.rtcp).byes += u64::from(have_left);
                if have_left || self.has_left(&mut byes).await {
                    return (true, "the server said BYE".to_owned());
                }
                let heard =
                    lock(self.stream).last_packet().map_or(began, |(heard, _)| heard.max(began));
                let unheard = self.clock.now().saturating_sub(heard);
                // Units may wait for a key frame, or here for the disk.
                let quiet = session.heard_before().map_or(unheard, |tracks| unheard.min(tracks));
                let has_room = lock(self.stream).has_room();
                if unheard >= UNUSED_MAX && has_room && self.activity().at.is_none() {
                    let seconds = UNUSED_MAX.as_secs();
                    return (false, format!("packets came for {seconds} s, and {NO_START}"));
                }
                let is_all = self.left(span).is_some_and(is_nothing);
                if quiet >= SILENCE_MAX || quiet >= QUIET && is_all {
                    return (false, format!("nothing came for {} s", quiet.as_secs()));
                }
                if is_all && now - *all_at.get_or_insert(now) >= PAST_END_MAX {
                    return (false, "the server sends on behind the announced end".to_owned());
                }
                if span.is_overdue(self.clock.now()) {
                    let why = "the session took more than twice its range and a minute";
                    return (false, why.to_owned());
                }
            }
        }
    }

    /// Returns true if the server has sent BYE and only packets in flight followed it. A BYE that
    /// later packets follow is considered forged, and is refused.
    async fn has_left(&self, byes: &mut u64) -> bool {
        if lock(self.rtcp).byes <= *byes {
            return false;
        }
        sleep(SETTLE).await;
        let heard = lock(self.stream).last_packet().map(|(heard, _)| heard);
        let now = self.clock.now();
        if heard.is_none_or(|heard| now.saturating_sub(heard) >= SETTLE / 2) {
            return true;
        }
        let mut rtcp = lock(self.rtcp);
        *byes = rtcp.byes;
        rtcp.byes_refused += 1;
        drop(rtcp);
        tracing::warn!("{}: BYE, and the stream goes on; it is not believed", self.shown);
        false
    }

    /// Decides how to proceed after a session of a title.
    fn end(
        &self,
        span: &TitleRange,
        history: &SessionHistory,
        (is_bye, track_step): (bool, Duration),
        why: String,
    ) -> SessionEnd {
        let heard = self.activity();
        let at = span.reached(&heard, self.clock.now());
        let (Some(end), Some(at)) = (span.end(), at) else {
            return SessionEnd::Broken { why, at, is_bye };
        };
        let left = end.saturating_sub(at);
        let is_stalled = is_bye && history.start.is_some() && history.is_stalled(at, PROGRESS_MIN);
        let is_wrong_end = is_stalled && is_little(left, end);
        let now = self.clock.now();
        let is_whole = span.has_passed(&heard) || span.ends_with_last(&heard, now, track_step);
        if is_nothing(left) || is_bye && is_whole || is_wrong_end {
            return SessionEnd::Complete;
        }
        if is_stalled && history.is_bye {
            let (at, end, left) = (at.as_secs_f64(), end.as_secs_f64(), left.as_secs_f64());
            let why = format!(
                "the server said BYE twice at {at:.1} s of the {end:.1} s that it announced: \
                 {left:.1} s have not come"
            );
            return SessionEnd::Failed { why };
        }
        SessionEnd::Broken { why, at: Some(at), is_bye }
    }

    fn note_tracks(&self, news: (TrackCounts, RefusedSenders)) {
        note_tracks((self.stream, self.shown), news, self.clock.now());
    }

    fn activity(&self) -> StreamActivity {
        lock(self.stream).activity()
    }

    /// Remainder of a title; `None` before a packet of the session has arrived.
    fn left(&self, span: &TitleRange) -> Option<Duration> {
        let at = span.reached(&self.activity(), self.clock.now())?;
        Some(span.end()?.saturating_sub(at))
    }
}

impl SessionEnd {
    /// A failure of this host or of the recording.
    fn host(why: String) -> SessionEnd {
        SessionEnd::Refused { why, kind: RefusalKind::Temporary }
    }
}

const NOT_TRACKS: &str =
    "it sends a transport stream, which is recorded as it is: name the recording .ts";
/// RFC 2326 §11.3.12.
const UNSUPPORTED_TRANSPORT: u16 = 461;
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Silence after which a session is complete if everything has arrived: its BYE may be lost.
const QUIET: Duration = Duration::from_secs(2);
/// Silence after which a stream counts as failed.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Time after which packets without any media are a failure: longer than parameters are awaited.
const UNUSED_MAX: Duration = Duration::from_secs(60);
const NO_START: &str = "nothing that a recording can begin with: let the camera send key frames, \
    with their parameter sets, more often";
/// Time for which a server may send past the announced end before the session is closed.
const PAST_END_MAX: Duration = Duration::from_secs(10);
/// Time to wait for packets in flight when the server ends a session.
const SETTLE: Duration = Duration::from_millis(200);
const PAIRS_TRIED_MAX: u32 = 8;
/// Smallest advance that counts as progress of a title.
const PROGRESS_MIN: Duration = Duration::from_secs(1);
const STALLED_MAX: u32 = 3;
