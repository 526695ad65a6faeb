// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plays by each transport against a server with scripted faults.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use wire::rtcp::RtcpItem;

use super::login::ClientLogin;
use super::rtsp_connection::RtspConnection;
use super::scripted_server::{Played, SSRC, Script, ScriptedServer, asset, frame};
use super::verdict::PlayEnd;
use super::{Play, PlayProgress, StreamTransport, TransportChoice, play};

const INTERLEAVED: [StreamTransport; 2] = [StreamTransport::Tcp, StreamTransport::Http];

/// Plays by one transport. `None`, with the reason printed, where the kernel dropped datagrams.
async fn trial(
    transport: StreamTransport,
    script: Script,
    options: impl FnOnce(&mut Play),
) -> Option<Played> {
    trial_at(Ipv4Addr::LOCALHOST.into(), transport, script, options, |_| {}).await
}

async fn trial_at(
    host: IpAddr,
    transport: StreamTransport,
    script: Script,
    options: impl FnOnce(&mut Play),
    progress: impl FnMut(&PlayProgress),
) -> Option<Played> {
    let options = |asked: &mut Play| {
        asked.transport = TransportChoice::Only(transport);
        options(asked);
    };
    ScriptedServer::at(host, script, 1).await.played(options, progress).await
}

#[tokio::test]
async fn an_interleaved_play_is_whole_and_its_reports_are_frames() {
    for transport in INTERLEAVED {
        let Some((verdict, record, file)) = trial(transport, Script::default(), |_| {}).await
        else {
            return;
        };
        assert!(verdict.is_whole(), "{verdict}");
        assert_eq!((verdict.transport, verdict.transport_reason.as_deref()), (transport, None));
        assert_eq!((verdict.packets, verdict.end.clone(), verdict.bye), (200, PlayEnd::Bye, true));
        assert_eq!((verdict.sender_reports, verdict.kernel_drops), (2, None));
        assert!(file == asset(0..200));
        assert_eq!(record.methods, ["DESCRIBE", "SETUP", "PLAY", "TEARDOWN"]);
        assert_eq!(record.transports, ["RTP/AVP/TCP;unicast;interleaved=0-1"]);
        let report = record.rtcp.iter().rev().find_map(|seen| match seen {
            RtcpItem::Report { report, .. } => Some(*report),
            _ => None,
        });
        let report = report.unwrap();
        assert_eq!((report.ssrc, report.lost), (SSRC, 0));
        assert_eq!(report.highest_sequence, 65_450 + 199);
        let is_bye = |item: &RtcpItem| matches!(item, RtcpItem::Bye { .. });
        assert!(record.rtcp.iter().any(is_bye), "{:?}", record.rtcp);
    }
}

#[tokio::test]
async fn the_heads_of_a_tunnel_share_a_cookie() {
    let Some((_, record, _)) = trial(StreamTransport::Http, Script::default(), |_| {}).await else {
        return;
    };
    let [get, post] = &record.tunnels[..] else { panic!("{:?}", record.tunnels) };
    assert!(get.starts_with("GET /clip.ts HTTP/1.0\r\n"), "{get}");
    assert!(post.starts_with("POST /clip.ts HTTP/1.0\r\n"), "{post}");
    let cookie = |head: &str| {
        let found = head.lines().find_map(|line| line.strip_prefix("x-sessioncookie: "));
        found.unwrap().to_owned()
    };
    assert_eq!(cookie(get), cookie(post));
}

#[tokio::test]
async fn faults_of_a_stream_are_named_over_tcp_as_over_udp() {
    let script = Script {
        lose: vec![10, 11, 12, 90],
        repeat: vec![20, 150],
        delay: vec![30, 85, 160],
        ..Script::default()
    };
    let Some((verdict, _, file)) = trial(StreamTransport::Tcp, script, |_| {}).await else {
        return;
    };
    assert_eq!((verdict.packets, verdict.lost, verdict.lost_at_ends), (200 - 4 + 2, 4, 0));
    assert_eq!((verdict.duplicates, verdict.reordered), (2, 3));
    assert!(file == asset((0..200).filter(|n| ![10, 11, 12, 90].contains(n))));
}

/// Plays this number of packets, two milliseconds each, with a pause of 0.4 s after 1.2 s; the
/// session's time-out is 3 s.
async fn with_a_pause(transport: StreamTransport, packets: u16) -> Option<Played> {
    let script = Script { session_timeout_s: 3, packets, ..Script::default() };
    let pause = (Duration::from_millis(1200), Duration::from_millis(400));
    trial(transport, script, |asked| asked.pause = Some(pause)).await
}

#[tokio::test]
async fn requests_are_answered_while_media_flows() {
    for transport in INTERLEAVED {
        let Some((verdict, mut record, file)) = with_a_pause(transport, 1500).await else { return };
        assert!(verdict.is_whole(), "{verdict}");
        assert_eq!((verdict.packets, verdict.pauses, verdict.while_paused), (1500, 1, 0));
        assert!(file == asset(0..1500));
        // One keep-alive a second, a third of the time-out.
        let requests = record.methods.len();
        record.methods.retain(|method| method != "GET_PARAMETER");
        assert!(record.methods.len() < requests, "nothing kept the session");
        assert_eq!(record.methods, ["DESCRIBE", "SETUP", "PLAY", "PAUSE", "PLAY", "TEARDOWN"]);
    }
}

/// Measures real time: `make test-time`.
mod timed {
    use super::*;

    #[tokio::test]
    async fn packets_behind_a_pause_are_not_late() {
        for transport in INTERLEAVED {
            let Some((verdict, record, _)) = with_a_pause(transport, 700).await else { return };
            assert!(verdict.lateness.p90 < 200.0, "{verdict}");
            let methods =
                ["DESCRIBE", "SETUP", "PLAY", "GET_PARAMETER", "PAUSE", "PLAY", "TEARDOWN"];
            assert_eq!(record.methods, methods);
        }
    }
}

#[tokio::test]
async fn the_channels_of_the_answer_are_used() {
    assert_whole_both_ways(Script { channels: Some((6, 9)), ..Script::default() }).await;
}

#[tokio::test]
async fn channels_that_the_answer_does_not_name_are_those_of_the_request() {
    assert_whole_both_ways(Script { names_no_channels: true, ..Script::default() }).await;
}

/// Plays over TCP; asserts that all media arrives, and that reports reach the server.
async fn assert_whole_both_ways(script: Script) {
    let Some((verdict, record, file)) = trial(StreamTransport::Tcp, script, |_| {}).await else {
        return;
    };
    assert!(verdict.is_whole() && !record.rtcp.is_empty(), "{verdict}");
    assert!(file == asset(0..200));
}

#[tokio::test]
async fn an_ssrc_that_changes_is_the_same_stream() {
    let script = Script { ssrc_packets: Some(25), sends_bye: false, ..Script::default() };
    for transport in [StreamTransport::Tcp, StreamTransport::Udp] {
        let Some((verdict, _, file)) = trial(transport, script.clone(), |_| {}).await else {
            return;
        };
        assert!(verdict.is_whole(), "{verdict}");
        assert_eq!((verdict.packets, verdict.lost, verdict.unexpected_source), (200, 0, 0));
        assert!(file == asset(0..200));
    }
}

/// Keep-alives alternate between the two methods until one is granted.
#[tokio::test]
async fn a_granted_keep_alive_keeps_its_method() {
    let gone = Some(("GET_PARAMETER", "RTSP/1.0 454 Session Not Found\r\n\r\n"));
    let plain = Script::default();
    for (script, methods) in [
        (Script { refuse: gone, ..plain.clone() }, ["GET_PARAMETER", "OPTIONS", "OPTIONS"]),
        (
            Script { ignore: Some("GET_PARAMETER"), ..plain.clone() },
            ["GET_PARAMETER", "OPTIONS", "OPTIONS"],
        ),
        (plain, ["GET_PARAMETER"; 3]),
    ] {
        let server = ScriptedServer::start(script).await;
        let (login, transport) = (ClientLogin::default(), StreamTransport::Tcp);
        let opened = RtspConnection::open_described(&server.url, &login, transport).await;
        let (mut connection, _) = opened.unwrap();
        for _ in 0..3 {
            connection.keep_alive().unwrap();
            // The answer to the keep-alive, if there is one, is read before this one.
            connection.ask("PAUSE", |client| client.pause()).await.unwrap();
        }
        drop(connection);
        let mut found = server.end().await.methods;
        found.retain(|method| method != "DESCRIBE" && method != "PAUSE");
        assert_eq!(found, methods);
    }
}

/// The session continues as long as media arrives.
#[tokio::test]
async fn keep_alives_that_are_refused_or_not_answered_end_no_play() {
    let gone = Some(("GET_PARAMETER", "RTSP/1.0 454 Session Not Found\r\n\r\n"));
    let plain = Script { session_timeout_s: 3, packets: 2000, ..Script::default() };
    for script in [
        Script { refuse: gone, ..plain.clone() },
        Script { ignore: Some("GET_PARAMETER"), ..plain.clone() },
        Script { ignore: Some("GET_PARAMETER"), refuse: gone, ..plain },
    ] {
        let Some((verdict, mut record, file)) = trial(StreamTransport::Tcp, script, |_| {}).await
        else {
            return;
        };
        assert!(verdict.is_whole() && verdict.end == PlayEnd::Bye, "{verdict}");
        assert!(file == asset(0..2000));
        record.methods.retain(|method| method == "GET_PARAMETER" || method == "OPTIONS");
        assert_eq!(record.methods[..2], ["GET_PARAMETER", "OPTIONS"]);
    }
}

#[tokio::test]
async fn a_presentation_that_has_moved_is_played_where_it_is() {
    let moved = |to: &str| -> &'static str {
        format!("RTSP/1.0 302 Found\r\nLocation: {to}\r\n\r\n").leak()
    };
    let there = ScriptedServer::start(Script::default()).await;
    let refuse = Some(("DESCRIBE", moved(&there.url.replace("//", "//me:secret@"))));
    let here = ScriptedServer::start(Script { refuse, ..Script::default() }).await;
    let mut asked = Play::new(&here.url);
    asked.transport = TransportChoice::Only(StreamTransport::Tcp);
    let verdict = play(asked, |_| {}).await.unwrap();
    assert!(verdict.is_whole(), "{verdict}");
    assert_eq!(here.end().await.methods, ["DESCRIBE"]);
    assert_eq!(there.end().await.methods, ["DESCRIBE", "SETUP", "PLAY", "TEARDOWN"]);
    // The location redirects to itself.
    let refuse = Some(("DESCRIBE", moved("/clip.ts")));
    let script = Script { refuse, ..Script::default() };
    let turning = ScriptedServer::for_connections(script, 5).await;
    let error = play(Play::new(&turning.url), |_| {}).await.unwrap_err().to_string();
    assert!(error.ends_with("DESCRIBE: more than 5 redirections"), "{error}");
    assert_eq!(turning.end().await.methods, ["DESCRIBE"; 5]);
}

#[tokio::test]
async fn frames_on_another_channel_are_counted_and_named() {
    // A track of metadata without SETUP.
    let metadata = [&[0x80][..], &[0; 100]].concat();
    let between = (0..200).map(|n| (n, frame(7, &metadata))).collect();
    let script = Script { between, ..Script::default() };
    let Some((verdict, _, file)) = trial(StreamTransport::Tcp, script, |_| {}).await else {
        return;
    };
    assert_eq!((verdict.unexpected_frames, verdict.unexpected_channel), (200, Some(7)));
    assert!(verdict.is_whole() && file == asset(0..200), "{verdict}");
    let words = "200 frames on channels that SETUP has not named (RFC 2326 §10.12), 7 the last";
    assert!(verdict.to_string().contains(words), "{verdict}");
}

#[tokio::test]
async fn bytes_between_frames_that_belong_to_nothing_are_skipped_and_counted() {
    let strays = b"\0\x9b\x41\xe0garbage$\x17\x80RTSP/";
    let between = (0..200).step_by(7).map(|n| (n, strays.to_vec())).collect();
    // PAUSE, the second PLAY and TEARDOWN are answered among them.
    let script = Script { between, session_timeout_s: 3, ..Script::default() };
    for transport in INTERLEAVED {
        let pause = Some((Duration::from_millis(100), Duration::from_millis(100)));
        let pauses = |asked: &mut Play| asked.pause = pause;
        let Some((verdict, _, file)) = trial(transport, script.clone(), pauses).await else {
            return;
        };
        assert!(verdict.is_whole() && file == asset(0..200), "{verdict}");
        let words = format!("{} bytes between frames (RFC 2326 §10.12)\n", 29 * strays.len());
        assert!(verdict.to_string().contains(&words), "{verdict}");
    }
}

/// Each kind is sent faster than by any honest server: the play ends, and reports the reason.
#[tokio::test]
async fn a_server_that_pours_what_belongs_to_nothing_is_left() {
    let media = [&[0x80][..], &[0; 100]].concat();
    let answer = |cseq: &str| format!("RTSP/1.0 200 OK\r\n{cseq}\r\n").into_bytes();
    let ping = b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n";
    for (what, part) in [
        ("frames on channels that SETUP has not named, ", frame(7, &media)),
        ("frames on channels that SETUP has not named, ", frame(7, &[])),
        ("frames without media, ", frame(0, &[])),
        ("frames without media, ", frame(0, &media[..12])),
        ("frames without media, ", frame(1, &media)),
        ("bytes of messages, ", answer("")),
        ("bytes of messages, ", answer("CSeq: 99\r\n")),
        ("bytes of messages, ", ping.to_vec()),
        ("bytes of messages, ", b"\r\n".repeat(8)),
        ("bytes between frames", b"$\0\0\x01A$\0".to_vec()),
    ] {
        let between = vec![(100, part.repeat(20_000))];
        let script = Script { between, ..Script::default() };
        let Some((verdict, ..)) = trial(StreamTransport::Tcp, script, |_| {}).await else { return };
        let PlayEnd::Closed { found } = &verdict.end else { panic!("{part:?}: {verdict}") };
        let words = "the server sends more that belongs to nothing than media: ";
        let counts = found.strip_prefix(words).unwrap_or_else(|| panic!("{part:?}: {found}"));
        let named = counts.split(", ").find(|count| format!("{count}, ").contains(what.trim()));
        let count: u64 = named.unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!(count > 5_000, "{part:?}: {found}");
        assert_eq!(verdict.packets, 100, "{part:?}");
    }
}

#[tokio::test]
async fn a_connection_that_closes_in_mid_stream_ends_the_play() {
    let script = Script { close_at: Some(100), sends_bye: false, ..Script::default() };
    let Some((verdict, _, file)) = trial(StreamTransport::Tcp, script, |_| {}).await else {
        return;
    };
    let found = "the server closed the connection".to_owned();
    assert_eq!((verdict.end.clone(), verdict.packets), (PlayEnd::Closed { found }, 100));
    assert!(file == asset(0..100));
}

/// The client and the server stall together: packets did not arrive because neither was scheduled.
#[tokio::test]
async fn a_stall_of_this_process_is_not_the_servers_silence() {
    let host = Ipv4Addr::LOCALHOST.into();
    let mut has_stalled = false;
    let played = trial_at(
        host,
        StreamTransport::Tcp,
        Script::default(),
        |_| {},
        |_| {
            if !std::mem::replace(&mut has_stalled, true) {
                // Longer than the wait for a silent server.
                std::thread::sleep(Duration::from_millis(5500));
            }
        },
    );
    let Some((verdict, _, file)) = played.await else { return };
    assert!(verdict.is_whole() && verdict.end == PlayEnd::Bye, "{verdict}");
    assert!(file == asset(0..200));
}

#[tokio::test]
async fn a_play_is_stopped_from_here() {
    let script = Script { packets: 60_000, ..Script::default() };
    let has_packets = Arc::new(Notify::new());
    let stop = has_packets.clone();
    let stops = |asked: &mut Play| {
        asked.stop = Some(Box::pin(async move { stop.notified().await }));
    };
    let host = Ipv4Addr::LOCALHOST.into();
    let Some((verdict, record, file)) =
        trial_at(host, StreamTransport::Tcp, script, stops, |now| {
            if now.packets > 0 {
                has_packets.notify_one();
            }
        })
        .await
    else {
        return;
    };
    assert_eq!((verdict.end.clone(), verdict.bye), (PlayEnd::Stopped, true));
    assert!(verdict.is_whole(), "{verdict}");
    assert_eq!(record.methods.last().map(String::as_str), Some("TEARDOWN"));
    assert!(file == asset(0..verdict.packets as u16));
}

#[tokio::test]
async fn auto_takes_tcp_where_udp_is_refused_or_brings_nothing() {
    let refuses = Script { refuses_udp: true, ..Script::default() };
    let blocks = Script { blocks_udp: true, ..Script::default() };
    for (script, reason) in
        [(refuses, "the server refused UDP (461)"), (blocks, "no packet came over UDP")]
    {
        let fake = ScriptedServer::for_connections(script, 2).await;
        let verdict = play(Play::new(&fake.url), |_| {}).await.unwrap();
        assert!(verdict.is_whole(), "{verdict}");
        assert_eq!(verdict.transport, StreamTransport::Tcp);
        assert_eq!(verdict.transport_reason.as_deref(), Some(reason));
        assert!(verdict.to_string().contains(&format!("transport   tcp, since {reason}\n")));
        assert_eq!(fake.end().await.transports.last().unwrap().find("TCP"), Some(8));
    }
}

#[tokio::test]
async fn the_group_of_the_answer_is_joined_for_all_senders_or_for_the_named_one() {
    for names_source in [false, true] {
        let script = Script { names_source, ..Script::default() };
        let Some((verdict, record, file)) = trial(StreamTransport::Multicast, script, |_| {}).await
        else {
            return;
        };
        assert!(verdict.is_whole() && verdict.packets == 200, "{verdict}");
        assert!(file == asset(0..200));
        assert_eq!(record.transports, ["RTP/AVP;multicast"]);
    }
}

#[tokio::test]
async fn every_transport_plays_over_ipv6() {
    let host = IpAddr::from(Ipv6Addr::LOCALHOST);
    if std::net::UdpSocket::bind((host, 0)).is_err() {
        eprintln!("skip: no IPv6 on this machine's loopback");
        return;
    }
    for transport in [StreamTransport::Udp, StreamTransport::Tcp, StreamTransport::Http] {
        let Some((verdict, _, file)) =
            trial_at(host, transport, Script::default(), |_| {}, |_| {}).await
        else {
            return;
        };
        assert!(verdict.is_whole(), "{verdict}");
        assert!(verdict.url.starts_with("rtsp://[::1]:") && file == asset(0..200), "{verdict}");
    }
}
