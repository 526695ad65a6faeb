// SPDX-License-Identifier: MIT OR Apache-2.0
//! HLS loads against a scripted server.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::scripted_origin::{Answer, ScriptedOrigin, ts_segment, vod};
use super::{HlsLoad, HlsLoadOutcome, load_hls};
use crate::load::LoadEvent;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn load(origin: &ScriptedOrigin, viewers: u32) -> HlsLoad {
    let mut load = HlsLoad::new(origin.url("/m.m3u8"), viewers);
    // The load ends when all viewers have played to the end.
    (load.ramp, load.length) = (Some(ms(200)), LIMIT);
    load.timeouts.read = LIMIT;
    load
}

/// Guards against a hang.
const LIMIT: Duration = Duration::from_secs(60);

/// A prebuffer of the whole film: no viewer can stall, regardless of the delay of a segment.
const WHOLE_FILM: Option<Duration> = Some(Duration::from_secs(2));

async fn film(second: Answer) -> ScriptedOrigin {
    film_of(second, 0.5).await
}

async fn film_of(second: Answer, segment_seconds: f64) -> ScriptedOrigin {
    ScriptedOrigin::start([
        ("/m.m3u8", Answer::text(vod(4, segment_seconds))),
        ("/s0.ts", Answer::Body(ts_segment(0))),
        ("/s1.ts", second),
        ("/s2.ts", Answer::Body(ts_segment(2))),
        ("/s3.ts", Answer::Body(ts_segment(3))),
    ])
    .await
}

async fn loaded(load: HlsLoad) -> HlsLoadOutcome {
    load_hls(load, |_| {}).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn viewers_of_a_good_server_would_not_have_stalled() {
    let origin = film(Answer::Body(ts_segment(1))).await;
    let mut events = Vec::new();
    let mut options = load(&origin, 20);
    (options.sample, options.settings.prebuffer) = (Some(5), WHOLE_FILM);
    let seen = load_hls(options, |event| {
        if !matches!(event, LoadEvent::Progress(_)) {
            events.push(*event);
        }
    })
    .await
    .unwrap();
    assert!(seen.is_smooth(), "{seen}");
    assert_eq!((seen.started, seen.without_stall, seen.verified), (20, 20, 4));
    assert_eq!((seen.segments, seen.bytes_in_all), (80, 80 * 18_800), "{seen}");
    assert!(seen.seconds < LIMIT.as_secs_f64(), "all have played to the end by then: {seen}");
    assert!(seen.start_ms.p50 > 0.0 && seen.start_ms.p50 <= seen.start_ms.max);
    // The server is this process, whose CPU time may be zero ticks of a hundredth of a second.
    assert!(seen.client.server_is_local && seen.client.server_cores.is_some(), "{seen}");
    let connections: std::collections::HashSet<_> =
        origin.requests().into_iter().map(|request| request.connection).collect();
    assert_eq!(connections.len(), 21, "one each, and one that looks");
    assert!(
        matches!(
            events[..],
            [
                LoadEvent::Starting { sessions: 20, verified: 4, .. },
                LoadEvent::Playing { played: 20, failed: 0 },
                LoadEvent::Measured { playing: 0, .. }
            ]
        ),
        "{events:?}"
    );
    serde_json::to_string(&seen).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_segment_stalls_every_viewer() {
    let late = Answer::Late(ms(700), Box::new(Answer::Body(ts_segment(1))));
    let origin = film(late).await;
    let seen = loaded(load(&origin, 6)).await;
    assert_eq!((seen.started, seen.stalled, seen.without_stall), (6, 6, 0), "{seen}");
    assert!(seen.stalled_s > 0.6 && !seen.is_smooth() && seen.faults == 0, "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_are_counted_by_their_reason() {
    let missing = film(Answer::status("404 Not Found")).await;
    let seen = loaded(load(&missing, 4)).await;
    assert_eq!((seen.without_stall, seen.missed, seen.faults), (0, 4, 8), "{seen}");
    assert_eq!((seen.first_faults[0].sessions, seen.first_faults.len()), (4, 1), "{seen}");
    assert_eq!(seen.first_faults[0].reason, "404 Not Found");

    // Only the verified viewer detects wrong bytes.
    let wrong = film(Answer::Body(ts_segment(2))).await;
    let mut options = load(&wrong, 4);
    (options.sample, options.settings.prebuffer) = (Some(4), WHOLE_FILM);
    let seen = loaded(options).await;
    assert_eq!((seen.verified, seen.without_stall), (1, 3), "{seen}");
    assert!(seen.first_faults[0].reason.contains("continuity counter"), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn viewers_that_are_refused_are_counted() {
    let good = Answer::text(vod(4, 0.5));
    let busy = Answer::status("503 Service Unavailable");
    let origin = ScriptedOrigin::start([
        ("/m.m3u8", Answer::InTurn(vec![good, busy])),
        ("/s0.ts", Answer::Body(ts_segment(0))),
    ])
    .await;
    let seen = loaded(load(&origin, 3)).await;
    assert_eq!((seen.started, seen.without_stall), (0, 0), "{seen}");
    assert_eq!(seen.ended.len(), 1, "{seen}");
    assert!(seen.ended[0].sessions == 3 && seen.ended[0].reason.contains("503"), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_a_load_with_its_figures() {
    // A film of one minute does not end before the stop.
    let origin = film_of(Answer::Body(ts_segment(1)), 15.0).await;
    let mut options = load(&origin, 2);
    options.settings.prebuffer = Some(LIMIT);
    let all_play = Arc::new(Notify::new());
    let stop = all_play.clone();
    options.stop = Some(Box::pin(async move { stop.notified().await }));
    let report = |event: &LoadEvent| {
        if matches!(event, LoadEvent::Progress(now) if now.played == 2) {
            all_play.notify_one();
        }
    };
    let seen = load_hls(options, report).await.unwrap();
    assert!(seen.interrupted && seen.started == 2 && seen.is_smooth(), "{seen}");
}

#[tokio::test]
async fn wrong_settings_are_refused() {
    let origin = film(Answer::Body(ts_segment(1))).await;
    let refused = async |options: HlsLoad| load_hls(options, |_| {}).await.unwrap_err();
    assert!(refused(load(&origin, 0)).await.to_string().starts_with("sessions: 0; write 1 to"));
    let mut short = load(&origin, 1);
    short.length = ms(1);
    assert!(refused(short).await.is_caller());
    let none = HlsLoad::new(origin.url("/none.m3u8"), 1);
    assert!(refused(none).await.to_string().ends_with("GET /none.m3u8: 404 Not Found"));
}
