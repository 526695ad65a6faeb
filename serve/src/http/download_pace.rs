// SPDX-License-Identifier: MIT OR Apache-2.0
//! download_pace: sends playable media at a multiple of its rate, and any file within the limits.
//!
//! Players ask for the rest of a film in one request and stop reading when their buffer is full, or
//! end half-way: sent as fast as the network allows, much of it is never watched. So a body leaves
//! at `http_pace` times its media's rate ([`crate::library`], `media_rate`) behind a start burst.
//!
//! The burst is a credit of the connection, a leaky bucket that drains at the paced rate, not of a
//! request: else a player that asks in many small ranges would never be paced. A player that plays
//! at the rate of its media has full credit at each segment, and one that seeks after some seconds
//! has it again. Bodies are charged without a look-up until they exceed the least burst together.
//!
//! A body leaves in turns of a second's bytes, at most [`TURN_BYTES_MAX`], by a timer of its task:
//! pace and share are read again at each, and the kernel holds a turn, where a socket's buffer may
//! hold megabytes. Within a turn the kernel spreads the packets (`SO_MAX_PACING_RATE`) at 5/4 of
//! the rate: by the queueing discipline `fq` where the interface has it, by a timer of the socket
//! elsewhere; the call is the same. The turns give the rate and the option the smoothness, so the
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
//! The receiver, whom a smooth stream wakes more often, takes 0.15 beside 0.06 (200 connections),
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
//! Does not pace bodies of up to 16 KiB, listings and RTSP. The streams of an HTTP/2 connection
//! share its buckets and leave in turns without the socket's option, which would hold all of them.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use paths::{UNPACED, set_max_pacing_rate};
use tokio::time::sleep;
use wire::http::{Part, Request, Response};

use crate::http::open_files::FileContent;
use crate::http::resource::Content;
use crate::limits::{DownloadPermit, RateLimit};
use crate::server_state::ServerState;

/// Pace of the downloads of one connection.
#[derive(Default)]
pub(super) struct ConnectionPace {
    media: Mutex<Bucket>,
    limit: Mutex<Bucket>,
    /// Downloads in progress to which a limit applies.
    downloads: AtomicU32,
}

/// Pace of one download; the default leaves at once.
#[derive(Default)]
pub(super) struct DownloadPace<'a>(Option<Schedule<'a>>);

/// Times of a download to which a pace or a limit applies.
struct Schedule<'a> {
    connection: &'a ConnectionPace,
    counters: &'a DownloadPaceCounters,
    /// Bytes not sent yet.
    left: u64,
    /// Bytes of this turn not sent yet.
    granted: u64,
    media: Option<Rate>,
    permit: Option<DownloadPermit>,
    /// True once the start burst is used up.
    is_paced: bool,
    /// Limits that it waited for, by their number.
    limited: [bool; 3],
    /// Rate of the socket; [`UNPACED`] when it was not set.
    socket_rate: u64,
}

/// Bytes sent ahead of a rate.
#[derive(Default)]
struct Bucket {
    ahead_bytes: u64,
    /// Time up to which it has drained.
    drained: Option<Instant>,
}

/// A rate with the bytes that may leave ahead of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rate {
    bytes_per_s: u64,
    burst_bytes: u64,
}

/// Counters of paced and limited downloads.
#[derive(Default)]
pub(crate) struct DownloadPaceCounters {
    pub(crate) paced: AtomicU64,
    pub(crate) bytes_paced: AtomicU64,
    limited: [AtomicU64; 3],
}

impl DownloadPaceCounters {
    /// Returns the number of downloads that were slowed to this limit.
    pub(crate) fn limited(&self, limit: RateLimit) -> u64 {
        self.limited[limit as usize].load(Ordering::Relaxed)
    }
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
        let file = match content {
            Content::File(file) if left > 0 && matches!(file.content, FileContent::Open(_)) => file,
            _ => return DownloadPace::default(),
        };
        let permit = server.limits.download(peer);
        let media = server.limits.limits.http_pace.and_then(|factor| {
            let media_rate = || {
                let parts = request.path.split('/').filter(|part| !matches!(*part, "" | "."));
                let name = parts.collect::<Vec<_>>().join("/");
                server.library.media_rate(&name, file.entity().bytes)
            };
            self.media_rate(left, factor, media_rate, Instant::now())
        });
        if media.is_none() && permit.is_none() {
            return DownloadPace::default();
        }
        if permit.is_some() {
            self.downloads.fetch_add(1, Ordering::Relaxed);
        }
        DownloadPace(Some(Schedule {
            connection: self,
            counters: &server.meters.download_pace,
            left,
            granted: 0,
            media,
            permit,
            is_paced: false,
            limited: [false; 3],
            socket_rate: UNPACED,
        }))
    }

    /// Returns the rate of a body of media; `None` when it leaves within the connection's burst,
    /// which is charged, or when `media_rate` knows none.
    fn media_rate(
        &self,
        body_bytes: u64,
        factor: f64,
        media_rate: impl FnOnce() -> Option<u64>,
        now: Instant,
    ) -> Option<Rate> {
        let mut bucket = locked(&self.media);
        if bucket.ahead_bytes.saturating_add(body_bytes) <= BURST_BYTES_MIN {
            bucket.charge(body_bytes, now);
            return None;
        }
        // Waits for the library's locks must not be waits for the bucket's.
        drop(bucket);
        let rate = Rate::of_media(media_rate()?, factor);
        bucket = locked(&self.media);
        bucket.drain(rate.bytes_per_s, now);
        if bucket.ahead_bytes.saturating_add(body_bytes) <= rate.burst_bytes {
            bucket.charge(body_bytes, now);
            return None;
        }
        Some(rate)
    }
}

impl DownloadPace<'_> {
    /// Waits for the next turn; returns how many of the `wanted` bytes may be handed to the kernel,
    /// and the time waited. `socket` is the connection's, if nobody else sends by it.
    pub(super) async fn turn(
        &mut self,
        wanted: u64,
        socket: Option<BorrowedFd<'_>>,
    ) -> (u64, Duration) {
        let Some(schedule) = &mut self.0 else { return (wanted, Duration::ZERO) };
        let began = Instant::now();
        if schedule.granted == 0 {
            let (wait, rate) = schedule.reserve(began);
            if let Some(socket) = socket {
                schedule.set_socket_rate(rate, socket);
            }
            if wait.is_zero() {
                return (wanted.min(schedule.granted), wait);
            }
            sleep(wait).await;
            return (wanted.min(schedule.granted), began.elapsed());
        }
        (wanted.min(schedule.granted), Duration::ZERO)
    }

    /// Counts bytes handed to the kernel.
    pub(super) fn sent(&mut self, bytes: u64) {
        let Some(schedule) = &mut self.0 else { return };
        schedule.left = schedule.left.saturating_sub(bytes);
        schedule.granted = schedule.granted.saturating_sub(bytes);
        if schedule.is_paced {
            schedule.counters.bytes_paced.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Lifts the rate of the socket for the next request. A connection that ends need not.
    pub(super) fn end(self, socket: BorrowedFd<'_>) {
        if self.0.as_ref().is_some_and(|schedule| schedule.socket_rate != UNPACED) {
            let _ = set_max_pacing_rate(socket, UNPACED);
        }
    }
}

impl Schedule<'_> {
    /// Reserves the next turn behind those of the connection's other downloads; returns the wait
    /// for it and the rate that applies.
    fn reserve(&mut self, now: Instant) -> (Duration, u64) {
        let downloads = self.connection.downloads.load(Ordering::Relaxed);
        let share = self.permit.as_ref().and_then(|permit| permit.share(downloads));
        // The bucket is the connection's, and so is its rate.
        let of_connection = |share: u64| share.saturating_mul(u64::from(downloads.max(1)));
        let limit = share.map(|(share, _)| Rate::of_limit(of_connection(share)));
        let turns = [self.media, limit].into_iter().flatten().map(Rate::turn_bytes);
        // Heads and the text of multipart answers are sent, too: never a few bytes at a time.
        self.granted = turns.min().unwrap_or(u64::MAX).min(self.left.max(TURN_BYTES_MIN));
        let reserve = |bucket, rate: Option<Rate>| {
            rate.map_or(Duration::ZERO, |rate| locked(bucket).reserve(rate, self.granted, now))
        };
        let media_wait = reserve(&self.connection.media, self.media);
        let limit_wait = reserve(&self.connection.limit, limit);
        if !media_wait.is_zero() && !self.is_paced {
            self.is_paced = true;
            self.counters.paced.fetch_add(1, Ordering::Relaxed);
        }
        if let Some((_, limit)) = share.filter(|_| limit_wait > media_wait)
            && !std::mem::replace(&mut self.limited[limit as usize], true)
        {
            self.counters.limited[limit as usize].fetch_add(1, Ordering::Relaxed);
        }
        let rates = [self.media.filter(|_| self.is_paced), limit].into_iter().flatten();
        let rate = rates.map(|rate| rate.bytes_per_s).min().unwrap_or(UNPACED);
        (media_wait.max(limit_wait), rate)
    }

    /// Has the kernel spread a turn's packets, unless the rate in force is near.
    fn set_socket_rate(&mut self, rate: u64, socket: BorrowedFd<'_>) {
        if rate == UNPACED {
            return;
        }
        let rate = rate.saturating_add(rate / 4);
        if self.socket_rate == UNPACED || rate.abs_diff(self.socket_rate) > self.socket_rate / 8 {
            self.socket_rate = rate;
            // Without the option its turns leave in one burst each.
            let _ = set_max_pacing_rate(socket, rate);
        }
    }
}

impl Drop for Schedule<'_> {
    fn drop(&mut self) {
        if self.permit.is_some() {
            self.connection.downloads.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Rate {
    fn of_media(media_bytes_per_s: u64, factor: f64) -> Rate {
        let burst_bytes = media_bytes_per_s.saturating_mul(BURST_S);
        Rate {
            bytes_per_s: ((media_bytes_per_s as f64 * factor) as u64).max(BYTES_PER_S_MIN),
            burst_bytes: burst_bytes.clamp(BURST_BYTES_MIN, BURST_BYTES_MAX),
        }
    }

    /// A limit's rate: a turn may leave at once, and the quarter by which one may be late.
    fn of_limit(bytes_per_s: u64) -> Rate {
        let rate = Rate { bytes_per_s, burst_bytes: 0 };
        Rate { burst_bytes: rate.turn_bytes() * 5 / 4, ..rate }
    }

    /// A second's bytes, within bounds.
    fn turn_bytes(self) -> u64 {
        self.bytes_per_s.clamp(TURN_BYTES_MIN, TURN_BYTES_MAX)
    }
}

impl Bucket {
    /// Adds bytes that leave next; returns how long they have to wait.
    fn reserve(&mut self, rate: Rate, bytes: u64, now: Instant) -> Duration {
        self.drain(rate.bytes_per_s, now);
        self.ahead_bytes = self.ahead_bytes.saturating_add(bytes);
        let excess = self.ahead_bytes.saturating_sub(rate.burst_bytes);
        let ns = (u128::from(excess) * NS_PER_S).div_ceil(u128::from(rate.bytes_per_s));
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    fn drain(&mut self, bytes_per_s: u64, now: Instant) {
        let since = self.drained.replace(now).unwrap_or(now);
        let passed = now.saturating_duration_since(since).as_nanos();
        let bytes = passed * u128::from(bytes_per_s) / NS_PER_S;
        self.ahead_bytes =
            self.ahead_bytes.saturating_sub(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Adds bytes that leave; they drain from now on if it was empty.
    fn charge(&mut self, bytes: u64, now: Instant) {
        if self.ahead_bytes == 0 {
            self.drained = Some(now);
        }
        self.ahead_bytes = self.ahead_bytes.saturating_add(bytes);
    }
}

fn locked(bucket: &Mutex<Bucket>) -> MutexGuard<'_, Bucket> {
    // A bucket is valid whatever it holds.
    bucket.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Media time of a start burst: more than the segment that players start with (RFC 8216 recommends
/// six seconds), and what browsers buffer before they play.
const BURST_S: u64 = 10;
/// A second of the highest rates, and as long as a step of an unpaced download.
const BURST_BYTES_MIN: u64 = 1 << 20;
/// Ten seconds at 13 Mb/s. A longer film's index (`moov`) fits, too.
const BURST_BYTES_MAX: u64 = 16 << 20;
/// A megabit a second: slower pacing saves nothing, and a player's own requests disturb it.
const BYTES_PER_S_MIN: u64 = 125_000;
/// Longest turn; two must fit into the least burst.
const TURN_BYTES_MAX: u64 = 512 << 10;
/// One packet: a share below it is that of too many downloads.
const TURN_BYTES_MIN: u64 = 1 << 10;
const NS_PER_S: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn after(began: Instant, ms: u64) -> Instant {
        began + Duration::from_millis(ms)
    }

    /// Sends `bytes` by turns, each of which wakes `late_ms` after its time; returns the seconds.
    fn seconds(bucket: &mut Bucket, rate: Rate, bytes: u64, late_ms: u64) -> f64 {
        let began = Instant::now();
        let (mut now, mut left) = (began, bytes);
        while left > 0 {
            let turn = rate.turn_bytes().min(left);
            let wait = bucket.reserve(rate, turn, now);
            if !wait.is_zero() {
                now += wait + Duration::from_millis(late_ms);
            }
            left -= turn;
        }
        (now - began).as_secs_f64()
    }

    #[test]
    fn body_leaves_at_its_rate_behind_its_burst() {
        let rate = Rate::of_media(MB, 4.0);
        assert_eq!(rate, Rate { bytes_per_s: 4 * MB, burst_bytes: 10 * MB });
        for late_ms in [0, 7, 50] {
            let took = seconds(&mut Bucket::default(), rate, 50 * MB, late_ms);
            assert!((10.0..10.06).contains(&took), "{late_ms} ms late: {took}");
        }
        assert_eq!(seconds(&mut Bucket::default(), rate, 10 * MB, 0), 0.0, "the burst alone");
        let limit = Rate::of_limit(MB);
        let took = seconds(&mut Bucket::default(), limit, 20 * MB, 7);
        assert!((18.5..20.0).contains(&took), "{took}");
    }

    #[test]
    fn bursts_and_rates_have_bounds() {
        let slow = Rate::of_media(16_000, 4.0);
        assert_eq!((slow.bytes_per_s, slow.burst_bytes), (BYTES_PER_S_MIN, BURST_BYTES_MIN));
        let fast = Rate::of_media(u64::MAX, 1000.0);
        assert_eq!((fast.bytes_per_s, fast.burst_bytes), (u64::MAX, BURST_BYTES_MAX));
        for rate in [slow, fast, Rate::of_limit(1), Rate::of_limit(u64::MAX)] {
            assert!(rate.turn_bytes() < rate.burst_bytes, "{rate:?}");
            assert!((TURN_BYTES_MIN..=TURN_BYTES_MAX).contains(&rate.turn_bytes()));
            let wait = Bucket { ahead_bytes: u64::MAX / 2, drained: None };
            assert!(!{ wait }.reserve(rate, 1, Instant::now()).is_zero());
        }
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
            pace.media_rate(100_000, 4.0, media_rate, now).is_none()
        });
        assert_eq!(ranges.count(), 100, "ten seconds of media");
        assert_eq!(looked, 91, "none for the first mebibyte, then one for each request");
        let rate = pace.media_rate(100_000, 4.0, || Some(MB), after(now, 24));
        assert!(rate.is_some(), "less has drained");
        assert!(pace.media_rate(100_000, 4.0, || Some(MB), after(now, 26)).is_none());
    }

    #[test]
    fn player_at_the_rate_of_its_media_is_never_paced() {
        let (pace, began) = (ConnectionPace::default(), Instant::now());
        for segment in 0..100 {
            let now = after(began, segment * 6000);
            let rate = pace.media_rate(6 * MB, 4.0, || Some(MB), now);
            assert_eq!(rate, None, "segment {segment}");
        }
    }

    #[test]
    fn files_of_no_rate_are_neither_paced_nor_charged() {
        let (pace, now) = (ConnectionPace::default(), Instant::now());
        assert_eq!(pace.media_rate(1 << 40, 4.0, || None, now), None);
        assert_eq!(pace.media.lock().unwrap().ahead_bytes, 0);
        let small = pace.media_rate(BURST_BYTES_MIN, 4.0, || panic!("no look-up"), now);
        assert_eq!(small, None);
    }

    #[test]
    fn film_of_a_lower_rate_waits_for_what_the_one_before_has_sent() {
        let mut bucket = Bucket { ahead_bytes: 10 * MB, drained: None };
        let slow = Rate { bytes_per_s: MB, burst_bytes: 2 * MB };
        let now = Instant::now();
        assert_eq!(bucket.reserve(slow, MB / 2, now), Duration::from_millis(8500));
        assert_eq!(bucket.reserve(slow, MB / 2, after(now, 8500)), Duration::from_millis(500));
    }

    #[test]
    fn streams_of_a_connection_have_turns_by_turns() {
        let (mut bucket, rate, began) = (Bucket::default(), Rate::of_limit(MB), Instant::now());
        let turn = rate.turn_bytes();
        // Each reserves its next turn when its last one has come.
        let (mut due, mut sent) = ([began; 2], [0; 2]);
        while due[0].min(due[1]) < after(began, 60_000) {
            let next = usize::from(due[1] < due[0]);
            sent[next] += turn;
            let now = due[next];
            due[next] = now + bucket.reserve(rate, turn, now);
        }
        assert!(sent[0].abs_diff(sent[1]) <= 2 * turn, "{sent:?}");
        assert!((58 * MB..63 * MB).contains(&(sent[0] + sent[1])), "{sent:?}");
    }
}
