// SPDX-License-Identifier: MIT OR Apache-2.0
//! Downloads at the rates of their media and of the server's limits, by tokio's paused clock: how
//! long each takes, to the millisecond, whatever the size of its calls.
//!
//! Does not test sockets: no time passes in a send.

use std::net::Ipv4Addr;

use super::*;
use crate::http::pace_buckets::{TURN_BYTES_MAX, bytes_in};
use crate::limits::{ClientLimits, Limiter};

const MB: u64 = 1_000_000;
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// A download of so many bytes on a connection.
fn download<'a>(
    connection: &'a ConnectionPace,
    counters: &'a DownloadPaceCounters,
    (left, media): (u64, Option<Rate>),
    limiter: Option<&Arc<Limiter>>,
) -> DownloadPace<'a> {
    let permit = limiter.and_then(|limiter| limiter.download(PEER));
    if permit.is_some() {
        connection.downloads.fetch_add(1, Ordering::Relaxed);
    }
    let schedule = Some(Schedule {
        connection,
        counters,
        left,
        granted: 0,
        media,
        charged: None,
        permit,
        is_paced: false,
        limited: [false; 3],
        socket_rate: UNPACED,
    });
    DownloadPace { schedule, ..DownloadPace::default() }
}

/// Sends all of it, at most `each` bytes a call; returns the time that it takes, and the most bytes
/// by which it was ever ahead of `bytes_per_s`.
async fn send(
    pace: &mut DownloadPace<'_>,
    bytes: u64,
    each: u64,
    bytes_per_s: u64,
) -> (Duration, u64) {
    let began = now();
    let (mut sent, mut ahead) = (0, 0);
    while sent < bytes {
        let (turn, _) = pace.turn(each.min(bytes - sent), None).await;
        pace.sent(turn);
        sent += turn;
        ahead = ahead.max(sent.saturating_sub(bytes_in(now() - began, bytes_per_s)));
    }
    (now() - began, ahead)
}

/// Sleeps of tokio end at the next millisecond.
#[track_caller]
fn assert_takes(time: Duration, wanted: Duration) {
    assert!(time >= wanted && time < wanted + Duration::from_millis(1), "{time:?} {wanted:?}");
}

#[tokio::test(start_paused = true)]
async fn film_has_its_burst_at_once_and_the_rest_at_its_rate() {
    let rate = Rate::of_media(MB, 4.0);
    let bytes = 100 * MB;
    for each in [bytes, 4 << 20, 64 << 10, 1000] {
        let (connection, counters) = (ConnectionPace::default(), DownloadPaceCounters::default());
        let mut pace = download(&connection, &counters, (bytes, Some(rate)), None);
        let (time, ahead) = send(&mut pace, bytes, each, rate.bytes_per_s).await;
        assert_takes(time, time_of(bytes - rate.burst_bytes, rate.bytes_per_s));
        assert_eq!(ahead, rate.burst_bytes, "{each} a call");
        assert_eq!(counters.paced.load(Ordering::Relaxed), 1);
    }
}

/// Bits a second of the limits here.
fn limiter(per_connection: Option<u64>, per_address: Option<u64>) -> Arc<Limiter> {
    let limits = ClientLimits {
        http_rate_per_connection: per_connection.map(|bytes| 8 * bytes),
        http_rate_per_address: per_address.map(|bytes| 8 * bytes),
        ..ClientLimits::default()
    };
    Arc::new(Limiter::new(limits, 1000))
}

#[tokio::test(start_paused = true)]
async fn connection_has_its_rate_and_one_turn_ahead() {
    let (bytes, rate) = (10 * MB, Rate::of_limit(MB));
    for each in [bytes, 4 << 20, 64 << 10, 1000] {
        let (connection, counters) = (ConnectionPace::default(), DownloadPaceCounters::default());
        let limiter = limiter(Some(MB), None);
        let mut pace = download(&connection, &counters, (bytes, None), Some(&limiter));
        let (time, ahead) = send(&mut pace, bytes, each, MB).await;
        assert_takes(time, time_of(bytes - rate.burst_bytes, MB));
        assert!(ahead <= rate.burst_bytes, "{ahead} of {} ahead", rate.burst_bytes);
        assert_eq!(rate.burst_bytes, TURN_BYTES_MAX * 5 / 4);
    }
}

/// Two downloads of an address have half of its rate each; the one that is left has all of it.
#[tokio::test(start_paused = true)]
async fn downloads_of_an_address_divide_its_rate() {
    let counters = DownloadPaceCounters::default();
    let (first, second) = (ConnectionPace::default(), ConnectionPace::default());
    let limiter = limiter(None, Some(2 * MB));
    let began = now();
    let of = |connection, bytes| {
        let mut pace = download(connection, &counters, (bytes, None), Some(&limiter));
        async move {
            send(&mut pace, bytes, 64 << 10, MB).await;
            now() - began
        }
    };
    let (short, long) = tokio::join!(of(&first, 10 * MB), of(&second, 20 * MB));
    // Each has its first turn at once, and looks at its share once a second.
    let ahead = time_of(TURN_BYTES_MAX * 5 / 4, MB);
    let near = |found: Duration, wanted: Duration| {
        assert!(found <= wanted && found + LOOK_EVERY + ahead >= wanted, "{found:?} {wanted:?}");
    };
    near(short, Duration::from_secs(10));
    near(long, Duration::from_secs(15));
    // Together never more than the rate.
    assert!(long + ahead * 2 >= time_of(30 * MB, 2 * MB), "{long:?}");
}
