// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends playable media at a multiple of its rate, and any file within the limits.
//!
//! Players ask for the rest of a film in one request and stop reading when their buffer is full, or
//! end half-way: sent as fast as the network allows, much of it is never watched. So a body leaves
//! at `http_pace` times its media's rate ([`crate::library`], `media_rate`) behind a start burst.
//!
//! The burst is a credit of the connection, a leaky bucket that drains at the paced rate, not of a
//! request: otherwise a player that asks in many small ranges would never be paced. A player that
//! plays at the rate of its media has full credit at each segment, and one that seeks after some
//! seconds has it again. Media of another rate has a bucket of its own, and bytes cancelled before
//! they were sent are credited back. Bodies are charged without a look-up until they exceed the
//! least burst together.
//!
//! As much as the burst has room for leaves at once, unless a limit applies. The rest of a body
//! leaves one turn at a time: a second's bytes, at most `TURN_BYTES_MAX`, by a timer of its task.
//! Pace and share are read again at each turn, and the kernel holds a turn, where a socket's buffer
//! may hold megabytes. Within a turn the kernel spreads the packets (`SO_MAX_PACING_RATE`) at 5/4
//! of the rate: by the queueing discipline `fq` where the interface has it, by a timer of the
//! socket elsewhere; the call is the same. The turns set the rate and the option smooths it, so the
//! rate is kept where the option has no effect.
//!
//! Costs nothing until the burst is used up, except a look-up of the file's rate for bodies over a
//! mebibyte; then a timer and a `sendfile` a turn, and two `setsockopt` a body.
//!
//! CPU time of the server, user and system, in seconds per GB over loopback at 5 Mb/s a connection,
//! beside nginx 1.22 with `limit_rate 625k` (one core each, Linux 6.18, BBR, other work on the
//! machine; medians of three interleaved runs; in brackets all samples of its core, with soft
//! interrupts):
//!
//! | connections | pagewire | nginx |
//! |---|---|---|
//! | 200 | 0.22 (0.21) | 0.33 (0.30) |
//! | 1,000 | 0.15 (0.18) | 0.22 (0.23) |
//!
//! The receiver, which a smooth stream wakes more often, uses 0.15 beside 0.06 (200 connections),
//! 0.11 beside 0.08 (1,000).
//!
//! Alternatives at 200 connections: turns of 250 ms 0.48, with the option 0.33; turns of 500 ms
//! with it 0.27; the option alone, with a full socket buffer, 0.06 to 0.09 in the process and 0.24
//! in soft interrupts. A short turn costs by its wake-up of the receiver's core (a sixth to a half
//! of the samples are in `_raw_spin_unlock_irqrestore`), so turns are long. For round trips above
//! half a millisecond TCP cuts paced sends into two segments each (`tcp_tso_rtt_log`): with that
//! rule on loopback both cores together took 1.9 to 3.1 with the option and 0.8 without, the price
//! of packets that do not leave in one burst.
//!
//! Sources: socket(7), Linux `net/ipv4/tcp_output.c` (`tcp_tso_autosize`, `tcp_pacing_check`);
//! Spang and others, "Sammy", SIGCOMM 2023 (pacing at a multiple of the media's rate).
//! Does not pace media of up to 16 KiB, listings and RTSP. The streams of an HTTP/2 connection
//! share its buckets and alternate turns without the socket's option, which would hold all of them.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use paths::{UNPACED, set_max_pacing_rate};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::time::sleep;
use wire::http::{Part, Request, Response};

use crate::http::content::Content;
use crate::http::cork::uncork;
use crate::http::open_files::FileContent;
use crate::http::pace_buckets::{
    BURST_BYTES_MIN, Bucket, MediaBuckets, Rate, TURN_BYTES_MIN, bytes_in, time_of,
};
use crate::limits::{DownloadPermit, RateLimit};
use crate::meter::DownloadPaceCounters;
use crate::server_state::ServerState;
use crate::watch::HttpViewer;
use crate::web;

/// Pace of the downloads of one connection.
#[derive(Default)]
pub(super) struct ConnectionPace {
    media: Mutex<MediaBuckets>,
    limit: Mutex<Bucket>,
    /// Downloads in progress to which a limit applies.
    downloads: AtomicU32,
}

/// Pace of one download; the default leaves at once.
#[derive(Default)]
pub(super) struct DownloadPace<'a> {
    schedule: Option<Schedule<'a>>,
    /// The connection, as the watchers of the server see it.
    viewer: Option<&'a Arc<HttpViewer>>,
    /// Bytes of the body that were counted as sent.
    counted: u64,
}

/// Times of a download to which a pace or a limit applies.
struct Schedule<'a> {
    connection: &'a ConnectionPace,
    counters: &'a DownloadPaceCounters,
    /// Bytes not sent yet.
    left: u64,
    /// Bytes of this turn not sent yet.
    granted: u64,
    media: Option<Rate>,
    /// Rate whose bucket was charged with all of the body, which leaves at once.
    charged: Option<Rate>,
    permit: Option<DownloadPermit>,
    /// True once the start burst is used up.
    is_paced: bool,
    /// Limits that it waited for, by their number.
    limited: [bool; 3],
    /// Rate of the socket; [`UNPACED`] when it was not set.
    socket_rate: u64,
}

/// Pace of a body of media.
#[derive(Debug, PartialEq, Eq)]
enum MediaPace {
    /// It leaves at once, charged to no bucket.
    Free,
    /// It leaves at once within the burst, and is charged to the bucket of the rate.
    Charged(Rate),
    Paced(Rate),
}

impl ConnectionPace {
    /// Begins the download of an answer.
    pub(super) fn begin<'a>(
        &'a self,
        peer: IpAddr,
        (request, response, content): (&Request, &Response, &Content),
        server: &'a ServerState,
    ) -> DownloadPace<'a> {
        let range = |part: &Part| if let Part::File { bytes, .. } = part { *bytes } else { 0 };
        let left = response.parts.iter().map(range).sum();
        let (is_open, file_bytes) = match content {
            Content::File { file, .. } if left > 0 => {
                (matches!(file.content, FileContent::Open(_)), Some(file.entity().bytes))
            }
            Content::Files(_) if left > 0 => (true, None),
            _ => return DownloadPace::default(),
        };
        let permit = server.limits.download(peer);
        let factor = server.limits.limits().http_pace.filter(|_| is_open);
        let pace = factor.map_or(MediaPace::Free, |factor| {
            let media_rate = || {
                let parts = request.path.split('/').filter(|part| !matches!(*part, "" | "."));
                let name = parts.collect::<Vec<_>>().join("/");
                match web::address::parse(&name) {
                    // A part of the file, or made of it.
                    Some(address) => server.library.media_rate(address.file, None),
                    None => server.library.media_rate(&name, file_bytes),
                }
            };
            self.media_pace(left, factor, media_rate, now())
        });
        let (media, charged) = match pace {
            MediaPace::Free if permit.is_none() => return DownloadPace::default(),
            MediaPace::Free => (None, None),
            MediaPace::Charged(rate) => (None, Some(rate)),
            MediaPace::Paced(rate) => (Some(rate), None),
        };
        if permit.is_some() {
            self.downloads.fetch_add(1, Ordering::Relaxed);
        }
        let schedule = Some(Schedule {
            connection: self,
            counters: &server.meters.download_pace,
            left,
            granted: 0,
            media,
            charged,
            permit,
            is_paced: false,
            limited: [false; 3],
            socket_rate: UNPACED,
        });
        DownloadPace { schedule, ..DownloadPace::default() }
    }

    /// Returns the pace of a body; `media_rate` looks up the rate of its media, bytes a second.
    fn media_pace(
        &self,
        body_bytes: u64,
        factor: f64,
        media_rate: impl FnOnce() -> Option<u64>,
        now: Instant,
    ) -> MediaPace {
        let mut buckets = locked(&self.media);
        if buckets.by_rate.is_empty() {
            let unknown = buckets.unknown_bytes.unwrap_or(0).saturating_add(body_bytes);
            if unknown <= BURST_BYTES_MIN {
                buckets.unknown_bytes = Some(unknown);
                return MediaPace::Free;
            }
        }
        // Waits for the library's locks must not be waits for the buckets'.
        drop(buckets);
        let Some(rate) = media_rate() else { return MediaPace::Free };
        let rate = Rate::of_media(rate, factor);
        buckets = locked(&self.media);
        let bucket = buckets.of(rate, now);
        bucket.drain(rate.bytes_per_s, now);
        if bucket.ahead_bytes.saturating_add(body_bytes) <= rate.burst_bytes {
            bucket.charge(body_bytes, now);
            return MediaPace::Charged(rate);
        }
        MediaPace::Paced(rate)
    }
}

impl<'a> DownloadPace<'a> {
    /// Adds the connection's figures for the watchers of the server.
    pub(super) fn watched_by(self, viewer: &'a Arc<HttpViewer>) -> DownloadPace<'a> {
        DownloadPace { viewer: Some(viewer), ..self }
    }

    /// Returns the bytes that were sent; of an answer that was sent `whole`, all of its bytes,
    /// which are counted now where they were not.
    pub(super) fn counted(&mut self, whole: Option<u64>) -> u64 {
        if let (Some(bytes), Some(viewer)) = (whole, self.viewer) {
            viewer.sent(bytes.saturating_sub(self.counted));
            self.counted = bytes;
        }
        self.counted
    }

    /// Notes that the download waits for a disk.
    pub(super) fn stalled(&self) {
        self.viewer.iter().for_each(|viewer| viewer.count_stall());
    }

    /// Waits for the next turn; returns how many of the `wanted` bytes may be handed to the kernel,
    /// and the time waited. `socket` is the connection's, if no other task sends by it.
    pub(super) async fn turn(
        &mut self,
        wanted: u64,
        socket: Option<BorrowedFd<'_>>,
    ) -> (u64, Duration) {
        let Some(schedule) = self.schedule.as_mut().filter(|schedule| schedule.has_rate()) else {
            return (wanted, Duration::ZERO);
        };
        if schedule.granted > 0 {
            return (wanted.min(schedule.granted), Duration::ZERO);
        }
        let began = now();
        let (media_wait, mut excess, rate) = schedule.reserve(began);
        if let Some(socket) = socket {
            schedule.set_socket_rate(rate, socket);
        }
        let mut waited = Duration::ZERO;
        loop {
            // Read again, as downloads begin and end: their share may be another by now.
            let limit = schedule.limit().map_or(u64::MAX, |(rate, _)| rate.bytes_per_s);
            let wait = media_wait.saturating_sub(waited).max(time_of(excess, limit));
            if wait.is_zero() {
                return (wanted.min(schedule.granted), waited);
            }
            // The bytes of the last turn must not wait together with this one.
            if let Some(socket) = socket.filter(|_| waited.is_zero()) {
                uncork(socket);
            }
            sleep(wait.min(LOOK_EVERY)).await;
            if socket.is_some_and(has_failed) {
                // A peer that is gone has no share; the send reports it.
                return (wanted.min(schedule.granted), waited);
            }
            let passed = now().saturating_duration_since(began);
            excess = excess.saturating_sub(bytes_in(passed - waited, limit));
            waited = passed;
        }
    }

    /// Waits until all of a short answer may leave by one call.
    pub(super) async fn whole(&mut self, mut bytes: u64, socket: BorrowedFd<'_>) {
        while bytes > 0 {
            let (turn, _) = self.turn(bytes, Some(socket)).await;
            self.sent(turn);
            bytes -= turn;
        }
    }

    /// True where a rate applies.
    pub(super) fn has_rate(&self) -> bool {
        self.schedule.as_ref().is_some_and(Schedule::has_rate)
    }

    /// True where the first turn may have to wait.
    pub(super) fn may_wait(&self) -> bool {
        self.schedule.as_ref().is_some_and(Schedule::may_wait)
    }

    /// Counts bytes handed to the kernel.
    pub(super) fn sent(&mut self, bytes: u64) {
        if let Some(viewer) = self.viewer {
            viewer.sent(bytes);
            self.counted += bytes;
        }
        let Some(schedule) = &mut self.schedule else { return };
        schedule.left = schedule.left.saturating_sub(bytes);
        schedule.granted = schedule.granted.saturating_sub(bytes);
        if schedule.is_paced {
            schedule.counters.bytes_paced.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Lifts the rate of the socket for the next request. A connection that ends need not.
    pub(super) fn end(self, socket: BorrowedFd<'_>) {
        if self.schedule.as_ref().is_some_and(|schedule| schedule.socket_rate != UNPACED) {
            let _ = set_max_pacing_rate(socket, UNPACED);
        }
    }
}

impl Schedule<'_> {
    fn has_rate(&self) -> bool {
        self.media.is_some() || self.permit.is_some()
    }

    /// A first turn that the burst has room for leaves at once.
    fn may_wait(&self) -> bool {
        let media_waits = |rate: Rate| self.room(rate, now()) < rate.turn_bytes().min(self.left);
        self.limit().is_some() || self.media.is_some_and(media_waits)
    }

    /// Returns the bytes of media of a rate that may leave at once.
    fn room(&self, rate: Rate, now: Instant) -> u64 {
        locked(&self.connection.media).of(rate, now).room(rate, now)
    }

    /// Returns the connection's rate within the limits at present, and the limit that it is from.
    fn limit(&self) -> Option<(Rate, RateLimit)> {
        let downloads = self.connection.downloads.load(Ordering::Relaxed);
        let (share, limit) = self.permit.as_ref()?.share(downloads)?;
        // The bucket is the connection's, and so is its rate.
        Some((Rate::of_limit(share.saturating_mul(u64::from(downloads.max(1)))), limit))
    }

    /// Reserves the next turn behind those of the connection's other downloads; returns the wait
    /// for the media's rate, the bytes ahead of the limit's, and the rate that applies.
    fn reserve(&mut self, now: Instant) -> (Duration, u64, u64) {
        let (limit, limited_by) = self.limit().unzip();
        let turns = [self.media, limit].into_iter().flatten().map(Rate::turn_bytes);
        // Heads and the text of multipart answers are sent, too: never a few bytes at a time.
        let mut turn = turns.min().unwrap_or(u64::MAX);
        if let (Some(rate), None) = (self.media, limit) {
            // All bytes within the burst leave at once: a segment, in as few calls as possible.
            turn = turn.max(self.room(rate, now));
        }
        self.granted = turn.min(self.left.max(TURN_BYTES_MIN));
        let media_wait = self.media.map_or(Duration::ZERO, |rate| {
            let mut buckets = locked(&self.connection.media);
            let excess = buckets.of(rate, now).reserve(rate, self.granted, now);
            time_of(excess, rate.bytes_per_s)
        });
        let excess =
            limit.map_or(0, |rate| locked(&self.connection.limit).reserve(rate, self.granted, now));
        let limit_wait = limit.map_or(Duration::ZERO, |rate| time_of(excess, rate.bytes_per_s));
        if !media_wait.is_zero() && !self.is_paced {
            self.is_paced = true;
            self.counters.paced.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(limit) = limited_by.filter(|_| limit_wait > media_wait)
            && !std::mem::replace(&mut self.limited[limit as usize], true)
        {
            self.counters.count_limited(limit);
        }
        let rates = [self.media.filter(|_| self.is_paced), limit].into_iter().flatten();
        let rate = rates.map(|rate| rate.bytes_per_s).min().unwrap_or(UNPACED);
        (media_wait, excess, rate)
    }

    /// Has the kernel spread a turn's packets, unless the rate in force is near.
    fn set_socket_rate(&mut self, rate: u64, socket: BorrowedFd<'_>) {
        if rate == UNPACED {
            return;
        }
        let mut rate = rate.saturating_add(rate / 4);
        if rate < self.socket_rate {
            // The bytes of earlier turns in the socket were granted at the rate of those turns.
            rate = rate.max(paths::unacknowledged(socket).unwrap_or(0));
        }
        if self.socket_rate == UNPACED || rate.abs_diff(self.socket_rate) > self.socket_rate / 8 {
            self.socket_rate = rate;
            // Without the option its turns leave in one burst each.
            let _ = set_max_pacing_rate(socket, rate);
        }
    }
}

impl Drop for Schedule<'_> {
    /// Gives back what was reserved and is not sent: a stream that was cancelled is no debt.
    fn drop(&mut self) {
        let unsent = self.charged.map(|rate| (rate, self.left));
        if let Some((rate, bytes)) = unsent.or(self.media.map(|rate| (rate, self.granted)))
            && bytes > 0
        {
            locked(&self.connection.media).of(rate, now()).refund(bytes);
        }
        if self.permit.is_some() {
            locked(&self.connection.limit).refund(self.granted);
            self.connection.downloads.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Returns the present time, by the clock of this task's sleeps.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// True when the peer has reset the connection; one that closed its side may still read.
fn has_failed(socket: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::empty())];
    let looked = poll(&mut polled, Some(&Timespec::default()));
    looked.is_ok() && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

fn locked<T>(buckets: &Mutex<T>) -> MutexGuard<'_, T> {
    // A bucket is valid with any content.
    buckets.lock()
}

/// Longest sleep before a share is read again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::os::fd::AsFd;
    use std::pin::pin;
    use std::task::Poll;

    use rustix::net::sockopt::tcp_cork;

    use super::*;
    use crate::http::cork::Cork;

    const MB: u64 = 1_000_000;

    fn after(began: Instant, ms: u64) -> Instant {
        began + Duration::from_millis(ms)
    }

    #[test]
    fn many_small_ranges_have_one_burst_between_them() {
        let (pace, now) = (ConnectionPace::default(), Instant::now());
        let mut looked = 0;
        let ranges = (0..1000).take_while(|_| {
            let media_rate = || {
                looked += 1;
                Some(MB)
            };
            !matches!(pace.media_pace(100_000, 4.0, media_rate, now), MediaPace::Paced(_))
        });
        assert_eq!(ranges.count(), 100, "ten seconds of media");
        assert_eq!(looked, 91, "none for the first mebibyte, then one for each request");
        let soon = pace.media_pace(100_000, 4.0, || Some(MB), after(now, 24));
        assert!(matches!(soon, MediaPace::Paced(_)), "less has drained");
        let later = pace.media_pace(100_000, 4.0, || Some(MB), after(now, 26));
        assert!(matches!(later, MediaPace::Charged(_)));
    }

    #[test]
    fn player_at_the_rate_of_its_media_is_never_paced() {
        let (pace, began) = (ConnectionPace::default(), Instant::now());
        for segment in 0..100 {
            let now = after(began, segment * 6000);
            let applies = pace.media_pace(6 * MB, 4.0, || Some(MB), now);
            assert!(matches!(applies, MediaPace::Charged(_)), "segment {segment}");
        }
    }

    #[test]
    fn files_of_no_rate_are_neither_paced_nor_charged() {
        let (pace, now) = (ConnectionPace::default(), Instant::now());
        assert_eq!(pace.media_pace(1 << 40, 4.0, || None, now), MediaPace::Free);
        assert_eq!(pace.media.lock().unknown_bytes, None);
        let small = pace.media_pace(BURST_BYTES_MIN, 4.0, || panic!("no look-up"), now);
        assert_eq!(small, MediaPace::Free);
    }

    #[test]
    fn sound_of_a_lower_rate_does_not_wait_for_what_the_picture_has_sent() {
        let (pace, began) = (ConnectionPace::default(), Instant::now());
        for segment in 0..100 {
            let now = after(began, segment * 6000);
            let picture = pace.media_pace(9 * MB, 4.0, || Some(3 * MB / 2), now);
            assert!(matches!(picture, MediaPace::Charged(_)), "picture {segment}");
            let sound = pace.media_pace(96_000, 4.0, || Some(16_000), now);
            assert!(matches!(sound, MediaPace::Charged(_)), "sound {segment}");
        }
        assert_eq!(pace.media.lock().by_rate.len(), 2);
        // Rates that are near each other have one burst between them.
        let near = pace.media_pace(9 * MB, 4.0, || Some(5 * MB / 4), after(began, 594_000));
        assert!(matches!(near, MediaPace::Paced(_)));
    }

    #[test]
    fn what_is_not_sent_is_no_debt() {
        let (pace, now) = (ConnectionPace::default(), Instant::now());
        let counters = DownloadPaceCounters::default();
        let schedule = |media, charged, left| Schedule {
            connection: &pace,
            counters: &counters,
            left,
            granted: 0,
            media,
            charged,
            permit: None,
            is_paced: false,
            limited: [false; 3],
            socket_rate: UNPACED,
        };
        let rate = Rate::of_media(MB, 4.0);
        for _ in 0..100 {
            let MediaPace::Charged(rate) = pace.media_pace(6 * MB, 4.0, || Some(MB), now) else {
                panic!("the segments before were cancelled");
            };
            drop(schedule(None, Some(rate), 6 * MB));
            let mut seek = schedule(Some(rate), None, 100 * MB);
            assert!(seek.reserve(now).0.is_zero());
        }
        assert_eq!(locked(&pace.media).of(rate, now).ahead_bytes, 0);
    }

    #[tokio::test]
    async fn what_was_written_leaves_before_a_wait() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (connection, counters) = (ConnectionPace::default(), DownloadPaceCounters::default());
        let schedule = Some(Schedule {
            connection: &connection,
            counters: &counters,
            left: 100 * MB,
            granted: 0,
            media: Some(Rate::of_media(MB, 4.0)),
            charged: None,
            permit: None,
            is_paced: false,
            limited: [false; 3],
            socket_rate: UNPACED,
        });
        let mut pace = DownloadPace { schedule, ..DownloadPace::default() };
        let cork = Cork::of_answer(&stream, 1, 100 * MB);
        for turn in 0.. {
            assert!(tcp_cork(&stream).unwrap(), "turn {turn}");
            let polled = polled_once(pin!(pace.turn(MB, Some(stream.as_fd())))).await;
            let Poll::Ready((bytes, _)) = polled else { break };
            pace.sent(bytes);
        }
        assert!(!tcp_cork(&stream).unwrap());
        drop(cork);
    }

    /// Polls once.
    async fn polled_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
    }
}

#[cfg(test)]
#[path = "rate_tests.rs"]
mod rate_tests;
