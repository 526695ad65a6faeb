// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads against a server with scripted faults.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::{Bottleneck, Load, LoadEvent, LoadOutcome, load};
use crate::scripted_server::{Script, ScriptedServer};
use crate::transport::StreamTransport;
use crate::trial_sockets::skips_for_drops;

/// Runs this number of sessions of it, for 300 ms after they have settled. `None`, with the reason
/// printed, where the kernel dropped datagrams.
async fn play(script: Script, sessions: u32, sample: u32) -> Option<LoadOutcome> {
    play_for(BRIEF, script, sessions, sample).await
}

async fn play_for(
    length: Duration,
    script: Script,
    sessions: u32,
    sample: u32,
) -> Option<LoadOutcome> {
    let host = Ipv4Addr::LOCALHOST.into();
    let seen = play_by(StreamTransport::Udp, host, script, (sessions, sample), length).await;
    (!skips_for_drops(seen.verified.dropped)).then_some(seen)
}

async fn play_by(
    transport: StreamTransport,
    host: IpAddr,
    script: Script,
    (sessions, sample): (u32, u32),
    length: Duration,
) -> LoadOutcome {
    // DESCRIBE uses a separate connection.
    let fake = ScriptedServer::at(host, script, sessions as usize + 1).await;
    let mut options = Load::new(fake.url.as_str(), sessions);
    options.length = length;
    options.transport = transport;
    options.ramp = Some(Duration::ZERO);
    options.sample = Some(sample);
    // These tests do not check times.
    options.within = Some(LIMIT);
    load(options, |_| {}).await.unwrap()
}

const BRIEF: Duration = Duration::from_millis(300);
/// Guards against a hang.
const LIMIT: Duration = Duration::from_secs(60);

/// A stream that outlasts the load.
fn long() -> Script {
    Script { packets: LONG, ..Script::default() }
}

/// A minute.
const LONG: u16 = 30_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_good_server_is_good() {
    let Some(seen) = play(long(), 4, 2).await else { return };
    assert!(seen.is_timely(), "{seen}");
    assert_eq!((seen.verified.sessions, seen.verified.timely), (2, 2));
    assert_eq!((seen.counted.sessions, seen.counted.accounted, seen.counted.lost), (2, 2, 0));
    assert_eq!(seen.bottleneck, Bottleneck::Nothing);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_good_server_is_good_over_tcp_and_ipv6() {
    let mut hosts = vec![IpAddr::from(Ipv4Addr::LOCALHOST)];
    match std::net::UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(_) => hosts.push(Ipv6Addr::LOCALHOST.into()),
        Err(_) => eprintln!("skip: no IPv6 on this machine's loopback"),
    }
    for host in hosts {
        let seen = play_by(StreamTransport::Tcp, host, long(), (4, 2), BRIEF).await;
        assert!(seen.is_timely(), "{seen}");
        assert_eq!((seen.verified.sessions, seen.verified.timely), (2, 2));
        let counted = &seen.counted;
        assert_eq!((counted.sessions, counted.accounted, counted.lost), (2, 2, 0));
        assert!(counted.packets > 0 && seen.to_string().contains(" over tcp for "), "{seen}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_is_verified_and_another_counted() {
    for sample in [1, 0] {
        let host = Ipv4Addr::LOCALHOST.into();
        let seen = play_by(StreamTransport::Http, host, long(), (1, sample), BRIEF).await;
        assert!(seen.is_timely(), "{seen}");
        assert_eq!((seen.verified.timely, seen.counted.accounted), (sample, 1 - sample), "{seen}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn losses_over_tcp_are_known_of_verified_and_of_counted_sessions() {
    let script = Script { lose: vec![0, 50, 51], ..long() };
    let host = Ipv4Addr::LOCALHOST.into();
    let seen = play_by(StreamTransport::Tcp, host, script, (3, 3), BRIEF).await;
    assert_eq!((seen.verified.lost, seen.counted.lost), (3, 6), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn losses_are_known_of_those_that_are_looked_at_and_of_those_that_are_not() {
    // The first packet is known to be missing because RTP-Info names it.
    let Some(seen) = play(Script { lose: vec![0, 50, 51], ..long() }, 3, 3).await else { return };
    assert_eq!((seen.verified.lost, seen.counted.lost), (3, 6), "{seen}");
    assert_eq!((seen.verified.timely, seen.verified.sessions), (0, 1));
    assert_eq!(seen.bottleneck, Bottleneck::Loss { packets: 9 });
    assert!(!seen.is_timely());
    let Some(unseen) = play(Script { lose: vec![7], ..long() }, 2, 0).await else { return };
    assert_eq!(unseen.bottleneck, Bottleneck::Loss { packets: 2 });
    assert!(!unseen.is_timely());
}

/// A laboratory may discard the packets on their way; with verified sessions their absence is a
/// fault.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_at_all_is_no_loss_where_nobody_looks() {
    let nothing = || Script { lose: (0..LONG).collect(), ..long() };
    let Some(sunk) = play(nothing(), 2, 0).await else { return };
    assert_eq!(sunk.bottleneck, Bottleneck::NotVerified, "{sunk}");
    assert!(sunk.is_timely());
    assert!(sunk.to_string().contains("; nothing reached this machine's sockets\n"), "{sunk}");
    let Some(missed) = play(nothing(), 2, 2).await else { return };
    assert_eq!(missed.bottleneck, Bottleneck::NothingCame { sessions: 1, verified: 1 }, "{missed}");
    assert!(!missed.is_timely());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_repeated_or_misplaced_is_counted_and_no_loss() {
    let noise = vec![b"noise".to_vec()];
    let Some(seen) = play(Script { repeat: vec![9], delay: vec![20], noise, ..long() }, 1, 1).await
    else {
        return;
    };
    let verified = &seen.verified;
    assert_eq!(
        (verified.duplicates, verified.reordered, verified.unexpected_source),
        (1, 1, 1),
        "{seen}"
    );
    assert!(verified.lost == 0 && seen.is_timely(), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_no_bye_leaves_the_sum_open() {
    let Some(seen) = play(Script { sends_bye: false, lose: vec![9], ..long() }, 2, 2).await else {
        return;
    };
    assert_eq!((seen.counted.accounted, seen.counted.lost), (0, 0), "{seen}");
    assert_eq!(seen.verified.lost, 1, "by the numbers of what came");
    let Some(silent) = play(Script { sends_bye: false, ..long() }, 3, 2).await else { return };
    assert_eq!(silent.bottleneck, Bottleneck::Unaccounted { sessions: 1 }, "{silent}");
    assert!(silent.verified.timely == 2 && !silent.is_timely(), "{silent}");
}

/// The count of a relay includes none of this session's packets. The packets lost of these are
/// known all the same, except for as many as may have overtaken its first report.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_relay_has_counted_before_is_no_loss_and_hides_none() {
    // At 20 ms a packet, 64 of them last more than a second: the first report is read by then.
    let interval = Duration::from_millis(20);
    let relay = || Script { counted_before: 3_000_000_000, interval, ..long() };
    let Some(seen) = play(relay(), 2, 2).await else { return };
    assert!(seen.is_timely(), "{seen}");
    assert_eq!((seen.counted.accounted, seen.counted.lost), (1, 0));
    // With two seconds of settling, twice as long as the loss lasts.
    let length = Duration::from_secs(2);
    let script = Script { lose: (20..100).collect(), ..relay() };
    let Some(seen) = play_for(length, script, 2, 2).await else { return };
    assert_eq!(seen.verified.lost, 80, "{seen}");
    assert!((80 - 64..=80).contains(&seen.counted.lost) && !seen.is_timely(), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_are_refused_are_counted_with_the_reason() {
    let refuse = Some(("SETUP", "RTSP/1.0 453 Not Enough Bandwidth\r\n\r\n"));
    let Some(seen) = play(Script { refuse, ..long() }, 3, 1).await else { return };
    assert_eq!((seen.asked, seen.played, seen.seconds), (3, 0, 0.0), "{seen}");
    let [reason] = &seen.failed[..] else { panic!("{:?}", seen.failed) };
    assert_eq!(reason.sessions, 3);
    assert!(reason.reason.contains("SETUP: 453 Not Enough Bandwidth"), "{}", reason.reason);
    assert!(matches!(&seen.bottleneck, Bottleneck::SetUp { sessions: 3, .. }), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_end_too_soon_are_counted_with_the_way_they_ended() {
    // The packets end after 1.8 s. A load without playing sessions is over.
    let script = Script { packets: 900, ..long() };
    let Some(seen) = play_for(LIMIT, script, 2, 1).await else { return };
    let [ended] = &seen.ended[..] else { panic!("{:?}", seen.ended) };
    assert_eq!((ended.sessions, &*ended.reason), (2, "the server said BYE"));
    let script = Script { close_at: Some(900), sends_bye: false, ..long() };
    let Some(gone) = play_for(LIMIT, script, 2, 1).await else { return };
    let [ended] = &gone.ended[..] else { panic!("{:?}", gone.ended) };
    assert_eq!((ended.sessions, &*ended.reason), (2, "the server closed the connection"));
    for outcome in [seen, gone] {
        assert!(matches!(&outcome.bottleneck, Bottleneck::Ended { sessions: 2, .. }), "{outcome}");
        assert_eq!(outcome.verified.timely, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_are_told_in_their_order() {
    let fake = ScriptedServer::for_connections(long(), 3).await;
    let mut options = Load::new(fake.url.as_str(), 2);
    options.length = Duration::from_millis(300);
    let mut events = Vec::new();
    load(options, |event| {
        if !matches!(event, LoadEvent::Progress(_)) {
            events.push(*event);
        }
    })
    .await
    .unwrap();
    let [
        LoadEvent::Starting { sessions: 2, verified: 2, .. },
        LoadEvent::Playing { played: 2, failed: 0 },
        LoadEvent::Measured { playing: 2, .. },
    ] = events[..]
    else {
        panic!("{events:?}")
    };
}
