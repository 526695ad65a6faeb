// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads by a scenario against a server with scripted faults. The trials in `timed` judge the
//! frequency and the speed of a session's actions; the others compare counts.

use std::time::Duration;

use wire::rtcp::RtcpItem;

use super::{
    GroupDraft, GroupOutcome, Load, LoadOutcome, Scenario, ScenarioDraft, VerifiedSessions, load,
};
use crate::error::Error;
use crate::scripted_server::{Script, ScriptedServer};
use crate::transport::StreamTransport;
use crate::trial_sockets::skips_for_drops;

fn group(behaviour: &str) -> GroupDraft {
    GroupDraft { behaviour: Some(behaviour.to_owned()), ..GroupDraft::default() }
}

fn scenario(groups: Vec<GroupDraft>) -> Scenario {
    ScenarioDraft { groups, ..ScenarioDraft::default() }.check().unwrap()
}

/// Guards against a hang.
const LIMIT: Duration = Duration::from_secs(60);

/// A stream that outlasts the load, of five minutes by its description.
fn long() -> Script {
    Script { packets: 30_000, duration_s: Some(300), ..Script::default() }
}

/// Runs one session of each group, for two and a half seconds after settling; returns the server as
/// well.
async fn run(
    transport: StreamTransport,
    script: Script,
    groups: Vec<GroupDraft>,
) -> (LoadOutcome, ScriptedServer) {
    let fake = ScriptedServer::for_connections(script, 200).await;
    let mut options = Load::new(fake.url.as_str(), groups.len() as u32);
    options.length = Duration::from_millis(2500);
    options.transport = transport;
    options.ramp = Some(Duration::ZERO);
    // These tests do not check times.
    options.within = Some(LIMIT);
    options.scenario = Some(scenario(groups));
    let outcome = load(options, |_| {}).await.unwrap();
    (outcome, fake)
}

fn only(outcome: &LoadOutcome) -> &GroupOutcome {
    let [group] = &outcome.groups[..] else { panic!("{outcome}") };
    group
}

/// Number of requests of a method that the server has received.
fn requests(fake: &ScriptedServer, method: &str) -> usize {
    fake.seen().methods.iter().filter(|seen| *seen == method).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seek_is_a_pause_and_a_play_at_a_place_of_the_asset() {
    let draft = GroupDraft { every_s: Some((0.3, 0.6)), ..group("seek") };
    let over = |transport| run(transport, long(), vec![draft.clone()]);
    let (udp, tcp) = tokio::join!(over(StreamTransport::Udp), over(StreamTransport::Tcp));
    for (outcome, fake) in [udp, tcp] {
        if skips_for_drops(outcome.verified.dropped) {
            continue;
        }
        let zap = only(&outcome);
        assert!(outcome.is_timely() && !zap.is_harmed && zap.seeks > 0, "{outcome}");
        // The last PAUSE precedes TEARDOWN. The load may end between a request and its answer, or
        // before the last play has a packet.
        let granted = zap.seeks as usize + 1;
        assert!((granted..=granted + 1).contains(&requests(&fake, "PLAY")), "{outcome}");
        assert!((granted..=granted + 1).contains(&requests(&fake, "PAUSE")), "{outcome}");
        let plays = zap.first_packet_ms.plays as usize;
        assert!((granted - 1..=granted).contains(&plays), "{outcome}");
        assert_eq!((zap.verified.sessions, zap.verified.timely, zap.verified.lost), (1, 1, 0));
        let places = places(&fake);
        assert!(places.iter().all(|place| (0.0..300.0).contains(place)), "{places:?}");
    }
}

/// Positions of seeks in the asset, in seconds.
fn places(fake: &ScriptedServer) -> Vec<f64> {
    fake.seen().ranges[1..].iter().map(npt).collect()
}

fn npt(range: &Option<String>) -> f64 {
    let text = range.as_deref().unwrap().strip_prefix("npt=").unwrap();
    text.strip_suffix('-').unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seed_repeats_the_places_and_another_does_not() {
    let mut places = Vec::new();
    for seed in [7, 7, 8] {
        let fake = ScriptedServer::for_connections(long(), 10).await;
        let mut options = Load::new(fake.url.as_str(), 1);
        options.length = LIMIT;
        let record = fake.record();
        options.stop = Some(Box::pin(async move {
            // The first play and three seeks.
            while record.lock().unwrap().ranges.len() < 4 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }));
        let groups = vec![GroupDraft { every_s: Some((0.3, 0.6)), ..group("seek") }];
        let draft = ScenarioDraft { seed: Some(seed), groups, ..ScenarioDraft::default() };
        options.scenario = Some(draft.check().unwrap());
        load(options, |_| {}).await.unwrap();
        let ranges = fake.seen().ranges[1..4].iter().map(npt).collect::<Vec<_>>();
        places.push(ranges);
    }
    assert_eq!(places[0], places[1]);
    assert_ne!(places[0], places[2]);
}

fn pauses() -> GroupDraft {
    GroupDraft { every_s: Some((0.3, 0.5)), pause_s: Some((0.3, 0.4)), ..group("pause") }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_goes_on_where_it_stopped() {
    let (outcome, fake) = run(StreamTransport::Tcp, long(), vec![pauses()]).await;
    assert!(outcome.is_timely() && only(&outcome).pauses > 0, "{outcome}");
    assert!(fake.seen().ranges[1..].iter().all(Option::is_none), "{:?}", fake.seen().ranges);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_leaves_tears_down_and_one_that_vanishes_does_not() {
    tokio::join!(
        comes_and_goes("leave", 1),
        comes_and_goes("leave", 0),
        comes_and_goes("vanish", 1),
        comes_and_goes("vanish", 0),
    );
}

async fn comes_and_goes(behaviour: &str, sample: u32) {
    let fake = ScriptedServer::for_connections(long(), 200).await;
    let mut options = Load::new(fake.url.as_str(), 1);
    options.length = Duration::from_millis(2500);
    options.sample = Some(sample);
    options.within = Some(LIMIT);
    let (stay_s, away_s) = (Some((0.3, 0.6)), Some((0.1, 0.2)));
    options.scenario = Some(scenario(vec![GroupDraft { stay_s, away_s, ..group(behaviour) }]));
    let outcome = load(options, |_| {}).await.unwrap();
    if skips_for_drops(outcome.verified.dropped) {
        return;
    }
    let it = only(&outcome);
    assert!(outcome.is_timely(), "{behaviour}: {outcome}");
    assert!(it.reconnects > 0 && it.starts == it.reconnects + 1, "{outcome}");
    // The load may end while a session reconnects.
    let set_up = requests(&fake, "SETUP") as u32;
    assert!((it.starts..=it.starts + 1).contains(&set_up), "{set_up}: {outcome}");
    let left = requests(&fake, "TEARDOWN") as u32;
    match behaviour {
        "leave" => assert_eq!(left, it.starts, "{outcome}"),
        // When the load ended, the session was present or away.
        _ => assert!(left <= 1, "{outcome}"),
    }
    assert_eq!(it.verified.sessions, sample, "{outcome}");
    if sample == 0 {
        assert_eq!((it.counted.visits, it.counted.lost), (it.starts, 0), "{outcome}");
        let accounted = if behaviour == "leave" { it.starts } else { left };
        assert_eq!(it.counted.accounted, accounted, "{outcome}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_that_lag_are_not_judged_and_others_are() {
    // 330 packets are missing of some 2000, 1.3 kB each, 500 a second.
    let script = Script { lose: (20..350).collect(), ..long() };
    let slow = GroupDraft { bytes_per_second: Some(50_000), ..group("slow") };
    let (outcome, _) =
        run(StreamTransport::Tcp, script.clone(), vec![slow.clone(), group("stall")]).await;
    assert!(
        outcome.is_timely()
            && outcome.verified
                == VerifiedSessions {
                    lateness_ms: outcome.verified.lateness_ms,
                    ..VerifiedSessions::default()
                },
        "{outcome}"
    );
    let [slow_one, stalled] = &outcome.groups[..] else { panic!("{outcome}") };
    assert!(slow_one.verified.lost >= 330 && slow_one.reader_skips == 1, "{outcome}");
    assert!(!slow_one.is_harmed && !stalled.is_harmed && !slow_one.group.is_judged, "{outcome}");
    let groups = vec![slow, group("steady")];
    let (outcome, _) = run(StreamTransport::Tcp, script, groups).await;
    let [slow, steady] = &outcome.groups[..] else { panic!("{outcome}") };
    assert!(!outcome.is_timely() && steady.is_harmed && !slow.is_harmed, "{outcome}");
    assert_eq!((outcome.verified.sessions, outcome.verified.lost), (1, 330), "{outcome}");
}

/// Bytes read in 2.5 s by a slow reader, a stalled one and a steady one; by a tunnel only those of
/// the slow one, as the scripted server supports one tunnel at a time.
async fn bytes_of_readers(transport: StreamTransport) -> Vec<u64> {
    let slow = GroupDraft { bytes_per_second: Some(100_000), ..group("slow") };
    let groups = [slow, group("stall"), group("steady")];
    let groups = if transport == StreamTransport::Http { &groups[..1] } else { &groups[..] };
    let (outcome, _) = run(transport, long(), groups.to_vec()).await;
    outcome.groups.iter().map(|group| group.verified.bytes).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_reads_less_than_a_steady_one_and_a_stalled_one_nothing() {
    let bytes = bytes_of_readers(StreamTransport::Tcp).await;
    let [slow, stalled, steady] = bytes[..] else { panic!("{bytes:?}") };
    assert!(0 < slow && slow < steady && stalled == 0, "{bytes:?}");
    assert!(bytes_of_readers(StreamTransport::Http).await[0] > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_harm_every_group_and_are_told_with_the_reason() {
    let refuse = Some(("SETUP", "RTSP/1.0 453 Not Enough Bandwidth\r\n\r\n"));
    let (stay_s, away_s) = (Some((0.3, 0.6)), Some((0.1, 0.2)));
    let groups = vec![group("stall"), GroupDraft { stay_s, away_s, ..group("leave") }];
    let script = Script { refuse, ..long() };
    let (outcome, _) = run(StreamTransport::Tcp, script, groups).await;
    assert!(!outcome.is_timely() && outcome.played == 0, "{outcome}");
    for group in &outcome.groups {
        let [reason] = &group.failed[..] else { panic!("{outcome}") };
        assert!(group.is_harmed && reason.reason.contains("SETUP: 453 Not Enough"), "{outcome}");
    }
    let refuse = Some(("PAUSE", "RTSP/1.0 500 Internal Server Error\r\n\r\n"));
    let script = Script { refuse, ..long() };
    let groups = vec![GroupDraft { every_s: Some((0.3, 0.6)), ..group("seek") }];
    let (outcome, _) = run(StreamTransport::Udp, script, groups).await;
    let [reason] = &only(&outcome).ended[..] else { panic!("{outcome}") };
    assert!(reason.reason.contains("PAUSE: 500 Internal Server Error"), "{outcome}");
    assert!(only(&outcome).is_harmed && only(&outcome).seeks == 0, "{outcome}");
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_scenarios_are_refused_before_the_first_session() {
    let live = Script { duration_s: None, ..long() };
    let seek = GroupDraft { every_s: Some((2.0, 8.0)), ..group("seek") };
    let short = Script { duration_s: Some(9), ..long() };
    let cases = [
        (live, seek.clone(), "group seek: no seeks in a stream without a duration, such as a"),
        (short, seek, "group seek: a session plays for up to 11.0 s and the asset ends after 9.0"),
        (long(), group("stall"), "group stall: stall over udp; write transport = \"tcp\" or"),
    ];
    for (script, draft, expected) in cases {
        let fake = ScriptedServer::for_connections(script, 2).await;
        let mut options = Load::new(fake.url.as_str(), 1);
        options.scenario = Some(scenario(vec![draft]));
        let refused = load(options, |_| {}).await.unwrap_err();
        assert!(matches!(refused, Error::Setting { .. }), "{refused}");
        assert!(refused.to_string().contains(expected), "{refused}");
        assert_eq!(requests(&fake, "SETUP"), 0);
    }
}

/// Number of reports by which a slow reader keeps its session alive.
async fn reports_of_a_reader_that_lags() -> usize {
    let script = Script { session_timeout_s: 3, ..long() };
    let slow = GroupDraft { bytes_per_second: Some(200_000), ..group("slow") };
    let (outcome, fake) = run(StreamTransport::Tcp, script, vec![slow]).await;
    assert!(outcome.is_timely(), "{outcome}");
    assert_eq!(requests(&fake, "GET_PARAMETER"), 0);
    let is_report = |item: &&RtcpItem| matches!(item, RtcpItem::Report { .. });
    fake.seen().rtcp.iter().filter(is_report).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_lags_keeps_its_session_by_reports_alone() {
    assert!(reports_of_a_reader_that_lags().await > 0);
}

/// Measure real time: `make test-time`.
mod timed {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn seeks_follow_each_other_in_the_time_of_the_scenario() {
        let draft = GroupDraft { every_s: Some((0.3, 0.6)), ..group("seek") };
        for transport in [StreamTransport::Udp, StreamTransport::Tcp] {
            let (outcome, fake) = run(transport, long(), vec![draft.clone()]).await;
            let zap = only(&outcome);
            assert!((5..=15).contains(&zap.seeks), "{outcome}");
            assert!(zap.first_packet_ms.max < 1000.0, "{outcome}");
            let places = places(&fake);
            assert!(places.windows(2).any(|two| two[1] < two[0]), "not in order: {places:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn pauses_follow_each_other_in_time_and_are_not_late() {
        let (outcome, _) = run(StreamTransport::Tcp, long(), vec![pauses()]).await;
        let pause = only(&outcome);
        assert!((3..=8).contains(&pause.pauses), "{outcome}");
        assert!(pause.verified.lateness_ms.max < 250.0, "{outcome}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_session_leaves_and_returns_in_the_time_of_the_scenario() {
        let fake = ScriptedServer::for_connections(long(), 200).await;
        let mut options = Load::new(fake.url.as_str(), 1);
        options.length = Duration::from_millis(2500);
        let (stay_s, away_s) = (Some((0.3, 0.6)), Some((0.1, 0.2)));
        options.scenario = Some(scenario(vec![GroupDraft { stay_s, away_s, ..group("leave") }]));
        let outcome = load(options, |_| {}).await.unwrap();
        assert!(only(&outcome).reconnects >= 3, "{outcome}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_slow_reader_reads_at_its_rate() {
        for transport in [StreamTransport::Tcp, StreamTransport::Http] {
            let bytes = bytes_of_readers(transport).await;
            assert!((150_000..300_000).contains(&bytes[0]), "{bytes:?}");
            assert!(bytes.get(2).is_none_or(|steady| *steady > 1_000_000), "{bytes:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_reader_that_lags_reports_each_second() {
        // One report a second for four and a half seconds, and the one before TEARDOWN.
        let reports = reports_of_a_reader_that_lags().await;
        assert!((4..=8).contains(&reports), "{reports}");
    }
}
