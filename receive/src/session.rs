// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams that a server is asked for: one RTSP session after the other for as long as it takes.
//!
//! A title is what has an announced end (`a=range` of the description, or Range of PLAY). It is
//! complete, and asked for no more, when its range has come (the last RTP timestamp is within a
//! second of the end), or when the server ends it (BYE, or the connection) and nothing shows that
//! a part is missing. A session that breaks off before that (the server stops, the connection
//! breaks, nothing comes any more) is begun again, after a second at first and half a minute at
//! last, where it was broken off, at the random access point that the server starts from; three
//! sessions in a row that bring nothing more end the title as failed. A live source, by `--live` or
//! for want of an announced end, goes on wherever it is. [`crate::asking`] lists the refusals that
//! end a source.
//!
//! RTP-Info names the timestamp of the start; where it is missing, or lies more than ten seconds
//! from the first packet's, that of the first packet counts. A BYE when the range's length has
//! passed by the clock is the end, whatever the timestamps are.
//!
//! Sources: RFC 2326 §10.5, §12.29 (Range), §12.33 (RTP-Info), §12.37, C.1.5; RFC 3550 §6.6.
//! Does not do: pause, or RTP over the RTSP connection.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::sync::{Mutex, atomic::AtomicBool, atomic::AtomicU64, atomic::Ordering};
use std::time::Duration;

use paths::Port;
use serve::client::Session;
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use wire::rtsp::client::Started;
use wire::rtsp::{NptRange, NptStart, Ports};
use wire::sdp::CLOCK_RATE_HZ;

use crate::asking::Stands;
use crate::receiver::{Clock, Order, lock};
use crate::reports::{Exchanged, Reporter};
use crate::source::{BUFFER_BYTES, by_ffmpeg};
use crate::stream::{Announced, Stream};

/// A stream that a server is asked for.
pub(crate) struct Asked<'a> {
    pub(crate) url: &'a str,
    pub(crate) key: u32,
    pub(crate) stream: &'a Mutex<Stream>,
    pub(crate) exchanged: &'a Mutex<Exchanged>,
    pub(crate) receiver: mpsc::Sender<Order>,
    pub(crate) clock: Clock,
    /// Sessions that have played.
    pub(crate) sessions: &'a AtomicU64,
    /// The asset has come to its end.
    pub(crate) is_over: &'a AtomicBool,
    /// Why the last session did not go on.
    pub(crate) trouble: &'a Mutex<Option<String>>,
    /// Why the server is not asked again.
    pub(crate) refusal: &'a Mutex<Option<String>>,
    /// `--live`: asked again whatever is announced.
    pub(crate) is_live: bool,
}

/// What ended a session.
enum End {
    /// It was told to.
    Stopped,
    /// All of the title came.
    Complete,
    /// It may go on from here, in normal play time.
    Broken { why: String, at: Option<Duration> },
    /// It was refused.
    Refused { why: String, stands: Stands },
}

/// Why a session is over, before it is known how much of a title is missing.
enum Farewell {
    /// The server said BYE.
    Bye,
    /// The connection, the session or the packets stopped.
    Silence(String),
}

/// Earlier sessions, as far as the next one depends on them.
#[derive(Default)]
struct Course {
    /// Where play goes on, in normal play time.
    start: Option<Duration>,
    /// Whether an end of the range was announced; `None` before the first description.
    is_title: Option<bool>,
    /// Sessions in a row that have brought nothing more of a title.
    stalled: u32,
}

/// The range of a title that a session plays.
#[derive(Debug, Clone, Copy)]
struct Span {
    from: Duration,
    end: Duration,
    /// RTP timestamp of `from`, where RTP-Info has it.
    timestamp: Option<u32>,
    /// When PLAY was granted, by the recording's clock.
    began: Duration,
}

impl Asked<'_> {
    /// Asks until the title is complete, the source is refused for good, or it is told to stop.
    pub(crate) async fn run(&self, mut stopped: watch::Receiver<bool>) {
        let mut course = Course::default();
        let mut wait = BACKOFF_MIN;
        loop {
            let before = self.sessions.load(Ordering::Relaxed);
            let ended = self.session(&mut course, &mut stopped).await;
            // The path takes in for the next session, if there is one.
            let _ = self.receiver.send(Order::Remove { key: self.key });
            let why = match self.next(&mut course, ended) {
                Ok(why) => why,
                Err(is_over) => return self.is_over.store(is_over, Ordering::Relaxed),
            };
            tracing::warn!("{}: {why}; asking again", self.url);
            *lock(self.trouble) = Some(why);
            if self.sessions.load(Ordering::Relaxed) > before {
                wait = BACKOFF_MIN;
            }
            tokio::select! {
                () = sleep(wait) => {}
                _ = stopped.changed() => return,
            }
            wait = (wait * 2).min(BACKOFF_MAX);
        }
    }

    /// Why there is another session, or, where there is none, whether the source has ended.
    fn next(&self, course: &mut Course, ended: End) -> Result<String, bool> {
        let is_live = self.is_live || course.is_title == Some(false);
        match ended {
            End::Stopped => Err(false),
            End::Complete => Err(true),
            End::Broken { why, at: None } => Ok(why),
            End::Broken { why, at: Some(at) } => {
                let is_stalled = at <= course.start.unwrap_or_default() + PROGRESS_MIN;
                course.stalled = if is_stalled { course.stalled + 1 } else { 0 };
                course.start = Some(at);
                if course.stalled >= STALLED_MAX {
                    let why = format!("{why}; {STALLED_MAX} sessions brought nothing more");
                    return Err(self.give_up(why));
                }
                Ok(why)
            }
            End::Refused { why, stands } => {
                let has_played = self.sessions.load(Ordering::Relaxed) > 0;
                match stands.is_asked_again(is_live, has_played) {
                    true => Ok(why),
                    false => Err(self.give_up(why)),
                }
            }
        }
    }

    fn refused(&self, error: serve::Error) -> End {
        let why = match &error {
            serve::Error::NoTransportStream { offered, .. } if offered != "nothing" => {
                format!("{error}; {}", by_ffmpeg(self.url))
            }
            _ => error.to_string(),
        };
        End::Refused { why, stands: Stands::of(&error) }
    }

    fn give_up(&self, why: String) -> bool {
        tracing::error!("{}: {why}", self.url);
        *lock(self.refusal) = Some(why);
        true
    }

    async fn session(&self, course: &mut Course, stopped: &mut watch::Receiver<bool>) -> End {
        let prepared = tokio::select! {
            prepared = self.prepare() => prepared,
            _ = stopped.changed() => return End::Stopped,
        };
        let (mut session, reporter) = match prepared {
            Ok(prepared) => prepared,
            Err(refused) => return refused,
        };
        course.is_title = Some(session.duration().is_some());
        let byes = lock(self.exchanged).byes;
        let played = tokio::select! {
            played = self.play(&mut session, course, byes) => played,
            () = reporter.exchange() => End::host("the reports have ended".to_owned()),
            _ = stopped.changed() => End::Stopped,
        };
        drop(reporter);
        session.tear_down().await;
        played
    }

    /// Up to SETUP.
    async fn prepare(&self) -> Result<(Session, Reporter<'_>), End> {
        let mut session = Session::open(self.url).await.map_err(|error| self.refused(error))?;
        let (ports, rtcp) = self.take_in(&session).map_err(End::host)?;
        let granted = session.set_up(ports).await.map_err(|error| self.refused(error))?;
        lock(self.stream).announce(Announced {
            host: granted.host.to_canonical(),
            port: granted.rtp.map(|address| address.port()),
            payload_type: session.payload_type(),
            ssrc: granted.ssrc,
        });
        {
            let mut exchanged = lock(self.exchanged);
            let canonical =
                |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
            (exchanged.to, exchanged.named) = (granted.rtcp, granted.rtcp.map(canonical));
        }
        let refused = |error| End::host(format!("RTCP socket: {error}"));
        rtcp.set_nonblocking(true).map_err(refused)?;
        let socket = UdpSocket::from_std(rtcp).map_err(refused)?;
        Ok((session, Reporter::new(socket, (self.stream, self.exchanged), None)))
    }

    /// Has the path take in at a pair of ports.
    fn take_in(&self, session: &Session) -> Result<(Ports, std::net::UdpSocket), String> {
        let mut refusal = String::new();
        for _ in 0..PAIRS_TRIED_MAX {
            let (ports, rtcp) = session.ports().map_err(|error| error.to_string())?;
            let mut address = session.local();
            address.set_port(ports.rtp);
            match self.add(address) {
                Ok(()) => return Ok((ports, rtcp)),
                // Somebody was faster.
                Err(found) => refusal = found,
            }
        }
        Err(refusal)
    }

    fn add(&self, address: SocketAddr) -> Result<(), String> {
        let (done, answer) = mpsc::channel();
        let port =
            Port { address, sources: Vec::new(), interface: None, buffer_bytes: BUFFER_BYTES };
        let gone = |_| "the receiving thread has ended".to_owned();
        self.receiver.send(Order::Add { key: self.key, port, done }).map_err(|_| gone(()))?;
        // The thread obeys within tens of milliseconds.
        answer.recv_timeout(ADD_WAIT).map_err(|_| gone(()))?.map(|_| ())
    }

    async fn play(&self, session: &mut Session, course: &mut Course, mut byes: u64) -> End {
        let started = match session.play(course.start).await {
            Ok(started) => started,
            Err(error) => return self.refused(error),
        };
        self.sessions.fetch_add(1, Ordering::Relaxed);
        if let Some(sequence) = started.sequence {
            lock(self.stream).begin_at(sequence);
        }
        let began = self.clock.now();
        let span = Span::of(&started, session.duration(), course.start, began);
        let span = span.filter(|_| !self.is_live);
        course.is_title = Some(span.is_some());
        let silence = |why| self.end(span, course.start, Farewell::Silence(why));
        let mut alive_at = Instant::now() + session.keep_alive_every();
        let mut look_at = Instant::now() + LOOK_EVERY;
        loop {
            let due = alive_at.min(look_at);
            tokio::select! {
                why = session.closed() => {
                    sleep(SETTLE).await;
                    return silence(why);
                }
                () = sleep_until(due) => {}
            }
            let now = Instant::now();
            if now >= alive_at {
                if let Err(error) = session.keep_alive().await {
                    return silence(error.to_string());
                }
                alive_at = now + session.keep_alive_every();
            }
            if now >= look_at {
                look_at = now + LOOK_EVERY;
                if self.has_left(&mut byes).await {
                    return self.end(span, course.start, Farewell::Bye);
                }
                let heard = lock(self.stream).heard.map_or(began, |(heard, _)| heard.max(began));
                let quiet = self.clock.now().saturating_sub(heard);
                let is_all = || span.and_then(|span| self.left(&span)).is_some_and(is_nothing);
                if quiet >= SILENCE_MAX || quiet >= QUIET && is_all() {
                    return silence(format!("nothing came for {} s", quiet.as_secs()));
                }
            }
        }
    }

    /// Whether the server has said BYE, and nothing came after what was on its way: a BYE after
    /// which the stream goes on is forged, and refused.
    async fn has_left(&self, byes: &mut u64) -> bool {
        if lock(self.exchanged).byes <= *byes {
            return false;
        }
        sleep(SETTLE).await;
        let heard = lock(self.stream).heard.map(|(heard, _)| heard);
        let now = self.clock.now();
        if heard.is_none_or(|heard| now.saturating_sub(heard) >= SETTLE / 2) {
            return true;
        }
        let mut exchanged = lock(self.exchanged);
        *byes = exchanged.byes;
        exchanged.byes_refused += 1;
        drop(exchanged);
        tracing::warn!("{}: BYE, and the stream goes on; it is not believed", self.url);
        false
    }

    /// Whether that was the end of the title.
    fn end(&self, span: Option<Span>, start: Option<Duration>, farewell: Farewell) -> End {
        let (is_bye, why) = match farewell {
            Farewell::Bye => (true, "the server said BYE".to_owned()),
            Farewell::Silence(why) => (false, why),
        };
        let Some(span) = span else {
            return End::Broken { why, at: None };
        };
        let Some(left) = self.left(&span) else {
            return End::Broken { why, at: Some(span.from) };
        };
        let at = span.end.saturating_sub(left);
        let passed = self.clock.now().saturating_sub(span.began);
        let has_passed = span.from + passed + SHORT_MAX >= span.end;
        let is_stalled = start.is_some_and(|start| at <= start + PROGRESS_MIN);
        if is_nothing(left) || is_bye && (has_passed || is_stalled) {
            return End::Complete;
        }
        End::Broken { why, at: Some(at) }
    }

    /// How much of the range has not come; `None` when no packet of the session has.
    fn left(&self, span: &Span) -> Option<Duration> {
        let stream = lock(self.stream);
        let first = stream.first_timestamp()?;
        let is_near = |announced: &u32| {
            announced.wrapping_sub(first).cast_signed().unsigned_abs() <= NEAR_STAMPS_MAX
        };
        let start = span.timestamp.filter(is_near).unwrap_or(first);
        let stamps = stream.last_timestamp().wrapping_sub(start);
        // 32 bits are 13 hours: the number of their turns is that which fits the clock best.
        let passed = self.clock.now().saturating_sub(span.began).as_nanos();
        let passed = (passed * u128::from(CLOCK_RATE_HZ) / 1_000_000_000) as u64;
        let ahead = stamps.wrapping_sub(passed as u32).cast_signed();
        let played = passed.saturating_add_signed(ahead.into());
        let played = Duration::from_nanos(
            (u128::from(played) * 1_000_000_000 / u128::from(CLOCK_RATE_HZ)) as u64,
        );
        Some(span.end.saturating_sub(span.from + played))
    }
}

impl End {
    /// This host, or the recording, did not do its part.
    fn host(why: String) -> End {
        End::Refused { why, stands: Stands::Moment }
    }
}

impl Span {
    /// What is played, where its end is announced; Range of PLAY goes before the description.
    fn of(
        started: &Started,
        described: Option<Duration>,
        asked: Option<Duration>,
        began: Duration,
    ) -> Option<Span> {
        let range = started.range.unwrap_or(NptRange { start: NptStart::Now, end: None });
        let end = range.end.or(described)?;
        let from = match range.start {
            NptStart::At(from) => from,
            NptStart::Now => asked.unwrap_or_default(),
        };
        Some(Span { from: from.min(end), end, timestamp: started.timestamp, began })
    }
}

fn is_nothing(left: Duration) -> bool {
    left <= SHORT_MAX
}

const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// All of it has come and BYE has not: it was lost.
const QUIET: Duration = Duration::from_secs(2);
/// Something is wrong when a stream says nothing for so long.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Packets under way when the server says that it is done.
const SETTLE: Duration = Duration::from_millis(200);
const ADD_WAIT: Duration = Duration::from_secs(5);
const PAIRS_TRIED_MAX: u32 = 8;
/// The last packet is stamped with the time of its first byte.
const SHORT_MAX: Duration = Duration::from_secs(1);
/// Less than this is no progress of a title.
const PROGRESS_MIN: Duration = Duration::from_secs(1);
const STALLED_MAX: u32 = 3;
/// Ten seconds: a first packet that is lost, and a server that starts at the key frame before.
const NEAR_STAMPS_MAX: u32 = 10 * CLOCK_RATE_HZ;
