// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams that a server is asked for: one RTSP session after the other for as long as it takes.
//!
//! A session that breaks off (the server stops, the connection breaks, nothing comes any more) is
//! begun again, after a second at first and half a minute at last. Of an asset with an end, play
//! goes on where it was broken off, at the random access point that the server starts from, and its
//! end ends the stream; a live stream goes on wherever it is.
//!
//! Sources: RFC 2326 §10.5, §12.29 (Range), §12.37.
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
use wire::rtsp::{NptStart, Ports};
use wire::sdp::CLOCK_RATE_HZ;

use crate::receiver::{Clock, Order, lock};
use crate::reports::{Exchanged, Reporter, random};
use crate::source::BUFFER_BYTES;
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
}

/// What ended a session.
enum End {
    /// It was told to.
    Stopped,
    /// All of the asset came.
    Complete,
    /// It may go on from here, in normal play time.
    Broken { why: String, at: Option<Duration> },
}

impl Asked<'_> {
    /// Asks until the asset is over, or it is told to stop.
    pub(crate) async fn run(&self, mut stopped: watch::Receiver<bool>) {
        let mut start = None;
        let mut wait = BACKOFF_MIN;
        loop {
            let before = self.sessions.load(Ordering::Relaxed);
            let ended = self.session(start, &mut stopped).await;
            // The path takes in for the next session, if there is one.
            let _ = self.receiver.send(Order::Remove { key: self.key });
            match ended {
                Ok(End::Stopped) => return,
                Ok(End::Complete) => return self.is_over.store(true, Ordering::Relaxed),
                Ok(End::Broken { why, at }) => {
                    start = at.or(start);
                    self.complain(&why);
                }
                Err(why) => self.complain(&why),
            }
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

    fn complain(&self, why: &str) {
        tracing::warn!("{}: {why}; asking again", self.url);
        *lock(self.trouble) = Some(why.to_owned());
    }

    async fn session(
        &self,
        start: Option<Duration>,
        stopped: &mut watch::Receiver<bool>,
    ) -> Result<End, String> {
        let (mut session, reporter) = tokio::select! {
            prepared = self.prepare() => prepared?,
            _ = stopped.changed() => return Ok(End::Stopped),
        };
        let byes = lock(self.exchanged).byes;
        let played = tokio::select! {
            played = self.play(&mut session, start, byes) => played,
            () = reporter.exchange() => Err("the reports have ended".to_owned()),
            _ = stopped.changed() => Ok(End::Stopped),
        };
        drop(reporter);
        session.tear_down().await;
        played
    }

    /// Up to SETUP.
    async fn prepare(&self) -> Result<(Session, Reporter<'_>), String> {
        let said = |error: serve::Error| error.to_string();
        let mut session = Session::open(self.url).await.map_err(said)?;
        let (ports, rtcp) = self.take_in(&session)?;
        let granted = session.set_up(ports).await.map_err(said)?;
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
        let refused = |error| format!("RTCP socket: {error}");
        rtcp.set_nonblocking(true).map_err(refused)?;
        let socket = UdpSocket::from_std(rtcp).map_err(refused)?;
        let (stream, exchanged) = (self.stream, self.exchanged);
        let reporter = Reporter { socket, stream, exchanged, group: None, ssrc: random() };
        Ok((session, reporter))
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

    async fn play(
        &self,
        session: &mut Session,
        start: Option<Duration>,
        mut byes: u64,
    ) -> Result<End, String> {
        let started = session.play(start).await.map_err(|error| error.to_string())?;
        self.sessions.fetch_add(1, Ordering::Relaxed);
        if let Some(sequence) = started.sequence {
            lock(self.stream).begin_at(sequence);
        }
        let began = self.clock.now();
        let mut alive_at = Instant::now() + session.keep_alive_every();
        let mut look_at = Instant::now() + LOOK_EVERY;
        loop {
            let due = alive_at.min(look_at);
            tokio::select! {
                why = session.closed() => {
                    sleep(SETTLE).await;
                    return Ok(self.end(&started, why));
                }
                () = sleep_until(due) => {}
            }
            let now = Instant::now();
            if now >= alive_at {
                if let Err(error) = session.keep_alive().await {
                    return Ok(self.end(&started, error.to_string()));
                }
                alive_at = now + session.keep_alive_every();
            }
            if now >= look_at {
                look_at = now + LOOK_EVERY;
                if self.has_left(&mut byes).await {
                    return Ok(self.end(&started, "the server said BYE".to_owned()));
                }
                let heard = lock(self.stream).heard.map_or(began, |(heard, _)| heard.max(began));
                let silence = self.clock.now().saturating_sub(heard);
                let is_all = || self.short(&started).is_some_and(|short| short <= SHORT_STAMPS_MAX);
                if silence >= SILENCE_MAX || silence >= QUIET && is_all() {
                    let why = format!("nothing came for {} s", silence.as_secs());
                    return Ok(self.end(&started, why));
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

    /// Whether that was the end of the asset.
    fn end(&self, started: &Started, why: String) -> End {
        let Some(short) = self.short(started) else {
            return End::Broken { why, at: None };
        };
        if short <= SHORT_STAMPS_MAX {
            return End::Complete;
        }
        let left = Duration::from_secs(u64::from(short)) / CLOCK_RATE_HZ;
        let end = started.range.and_then(|range| range.end);
        End::Broken { why, at: end.map(|end| end.saturating_sub(left)) }
    }

    /// How much of the range that was announced has not come, in RTP's units.
    fn short(&self, started: &Started) -> Option<u32> {
        let range = started.range?;
        let NptStart::At(from) = range.start else { return None };
        let length = range.end?.saturating_sub(from);
        let stamps = length.as_nanos() * u128::from(CLOCK_RATE_HZ) / 1_000_000_000;
        let end = started.timestamp?.wrapping_add(stamps as u32);
        let stream = lock(self.stream);
        stream.heard?;
        Some(end.wrapping_sub(stream.last_timestamp()).cast_signed().max(0).unsigned_abs())
    }
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
/// A second: the last packet is stamped with the time of its first byte.
const SHORT_STAMPS_MAX: u32 = CLOCK_RATE_HZ;
