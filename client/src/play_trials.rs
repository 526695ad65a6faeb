// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plays against a server with scripted faults: the verdict must name exactly those.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use wire::rtcp::RtcpItem;

use super::scripted_server::{Played, SSRC, Script, ScriptedServer, asset};
use super::trial_sockets::nobody;
use super::verdict::{MissingPackets, PlayEnd};
use super::{Play, PlayProgress, StreamTransport, TransportChoice, play};
use crate::error::Error;

/// Plays with these options. `None`, with the reason printed, where the kernel dropped datagrams.
async fn trial(script: Script, options: impl FnOnce(&mut Play)) -> Option<Played> {
    ScriptedServer::start(script).await.played(options, |_| {}).await
}

async fn refused(script: Script) -> Error {
    let fake = ScriptedServer::start(script).await;
    let mut asked = Play::new(&fake.url);
    asked.transport = TransportChoice::Only(StreamTransport::Udp);
    play(asked, |_| {}).await.unwrap_err()
}

#[tokio::test]
async fn interim_answers_are_not_taken_for_final_ones() {
    let script = Script { continues: true, ..Script::default() };
    let Some((verdict, record, file)) = trial(script, |_| {}).await else { return };
    assert!(verdict.is_whole(), "{verdict}");
    assert_eq!(record.methods, ["DESCRIBE", "SETUP", "PLAY", "TEARDOWN"]);
    assert!(file == asset(0..200));
}

#[tokio::test]
async fn a_faultless_play_is_whole_and_the_file_is_the_asset() {
    let mut seen_wall = Duration::ZERO;
    let fake = ScriptedServer::start(Script::default()).await;
    let played = fake.played(|_| {}, |progress| seen_wall = progress.wall).await;
    let Some((verdict, record, file)) = played else { return };
    assert!(verdict.is_whole(), "{verdict}");
    assert_eq!((verdict.packets, verdict.end.clone(), verdict.bye), (200, PlayEnd::Bye, true));
    assert_eq!((verdict.lost, verdict.lost_at_ends, verdict.duplicates), (0, 0, 0));
    assert_eq!(verdict.sender_reports, 2);
    assert_eq!(verdict.announced.sequence, Some(65_450));
    assert!((0.39..0.4).contains(&verdict.media_s), "{}", verdict.media_s);
    assert!(verdict.wall_s > 0.0, "{}", verdict.wall_s);
    assert!(seen_wall > Duration::ZERO);
    assert!(file == asset(0..200));

    assert_eq!(record.methods, ["DESCRIBE", "SETUP", "PLAY", "TEARDOWN"]);
    assert_eq!(record.ranges, [Some("npt=0.000-".to_owned())]);
    let report = record.rtcp.iter().rev().find_map(|seen| match seen {
        RtcpItem::Report { report, .. } => Some(*report),
        _ => None,
    });
    let report = report.unwrap();
    assert_eq!((report.ssrc, report.lost, report.fraction_lost), (SSRC, 0, 0));
    assert_eq!(report.highest_sequence, 65_450 + 199);
    assert_eq!(report.last_sender_report, 1 << 16);
    let is_bye = |item: &RtcpItem| matches!(item, RtcpItem::Bye { .. });
    assert!(record.rtcp.iter().any(is_bye), "{:?}", record.rtcp);
}

#[tokio::test]
async fn loss_duplicates_and_reordering_are_named_exactly() {
    let script = Script {
        lose: vec![10, 11, 12, 90],
        repeat: vec![20, 150],
        delay: vec![30, 85, 160],
        ..Script::default()
    };
    let Some((verdict, _, file)) = trial(script, |_| {}).await else { return };
    assert_eq!((verdict.packets, verdict.lost, verdict.lost_at_ends), (200 - 4 + 2, 4, 0));
    assert_eq!((verdict.duplicates, verdict.reordered), (2, 3));
    let missing = |sequence, packets| MissingPackets { sequence, packets };
    assert_eq!(verdict.gaps, [missing(65_460, 3), missing(4, 1)]);
    assert!(!verdict.is_whole());
    assert!(file == asset((0..200).filter(|n| ![10, 11, 12, 90].contains(n))));
    let written = verdict.output.as_ref().unwrap();
    assert_eq!((written.missing, written.bytes), (4, 196 * 1316));
    let text = verdict.to_string();
    assert!(
        text.contains("NOT whole") && text.contains("4 lost, 2 duplicates, 3 reordered"),
        "{text}"
    );
    assert!(text.contains("65460 (+2), 4\n"), "{text}");
    assert!(text.contains("4 packets missing"), "{text}");
}

#[tokio::test]
async fn duplicates_and_reordering_alone_do_no_harm() {
    let script = Script { repeat: vec![0, 199], delay: vec![0, 40, 41], ..Script::default() };
    let Some((verdict, _, file)) = trial(script, |_| {}).await else { return };
    assert!(verdict.is_whole(), "{verdict}");
    assert!(file == asset(0..200));
}

#[tokio::test]
async fn losses_before_the_first_and_after_the_last_packet_are_known() {
    let script = Script { lose: vec![0, 1, 197, 198, 199], ..Script::default() };
    let Some((verdict, _, file)) = trial(script, |_| {}).await else { return };
    assert_eq!((verdict.lost, verdict.lost_at_ends), (2, 3));
    assert_eq!(verdict.gaps, [MissingPackets { sequence: 65_450, packets: 2 }]);
    assert!(!verdict.is_whole());
    assert!(file == asset(2..197));
}

/// Plays this number of packets, two milliseconds each, with a pause of 1.5 s after the first 100;
/// the session's time-out is 3 s.
async fn with_a_pause(packets: u16) -> Option<Played> {
    let script = Script { session_timeout_s: 3, packets, ..Script::default() };
    let pause = (Duration::from_millis(200), Duration::from_millis(1500));
    trial(script, |asked| asked.pause = Some(pause)).await
}

#[tokio::test]
async fn a_pause_loses_nothing_and_keeps_the_session() {
    let Some((verdict, mut record, file)) = with_a_pause(1000).await else { return };
    assert!(verdict.is_whole(), "{verdict}");
    assert_eq!((verdict.packets, verdict.pauses, verdict.while_paused), (1000, 1, 0));
    assert!(file == asset(0..1000));
    assert!(verdict.wall_s >= 1.5, "{verdict}");
    // One keep-alive a second, a third of the time-out.
    let requests = record.methods.len();
    record.methods.retain(|method| method != "GET_PARAMETER");
    assert!(record.methods.len() < requests, "nothing kept the session");
    assert_eq!(record.methods, ["DESCRIBE", "SETUP", "PLAY", "PAUSE", "PLAY", "TEARDOWN"]);
    assert_eq!(record.ranges, [Some("npt=0.000-".to_owned()), None]);
}

/// Measures real time: `make test-time`.
mod timed {
    use super::*;

    #[tokio::test]
    async fn a_pause_is_not_lateness() {
        let Some((verdict, record, _)) = with_a_pause(200).await else { return };
        // Half of the packets arrived 1.5 s after the others: with one clock at least those would
        // be late.
        assert!(verdict.lateness.p90 < 750.0 && verdict.jitter_ms < 75.0, "{verdict}");
        let methods = ["DESCRIBE", "SETUP", "PLAY", "PAUSE", "GET_PARAMETER", "PLAY", "TEARDOWN"];
        assert_eq!(record.methods, methods);
    }
}

#[tokio::test]
async fn a_range_is_asked_for_and_a_server_that_goes_on_is_left() {
    let script = Script { packets: 60_000, sends_rtp_info: false, ..Script::default() };
    let Some((verdict, record, file)) = trial(script, |asked| {
        asked.start = Some(Duration::from_secs(30));
        asked.length = Some(Duration::from_millis(300));
    })
    .await
    else {
        return;
    };
    assert_eq!(verdict.end, PlayEnd::Length);
    assert_eq!(record.ranges, [Some("npt=30.000-30.300".to_owned())]);
    assert_eq!(record.methods.last().map(String::as_str), Some("TEARDOWN"));
    assert!(file == asset(0..verdict.packets as u16));
}

/// A stream without an end, such as a channel's: the length of the missing part is unknown.
#[tokio::test]
async fn a_stream_without_an_end_that_the_server_ends_is_not_called_whole() {
    let endless = Script { is_endless: true, ..Script::default() };
    let Some((verdict, ..)) = trial(endless.clone(), |_| {}).await else { return };
    assert_eq!((verdict.end.clone(), verdict.ended_early), (PlayEnd::Bye, true));
    assert_eq!(verdict.short_s, None);
    let text = verdict.to_string();
    assert!(text.contains(": ended by the server after 0.4 s\n"), "{text}");
    assert!(verdict.is_whole(), "nothing of it is known to be missing: {verdict}");

    let length = Duration::from_secs(5);
    let Some((verdict, ..)) = trial(endless.clone(), |asked| asked.length = Some(length)).await
    else {
        return;
    };
    let text = verdict.to_string();
    assert!(text.contains(": ended by the server after 0.4 s; NOT whole\n"), "{text}");
    assert!(text.contains("; 4.6 s of it did not come"), "{text}");
    assert!(!verdict.is_whole(), "{verdict}");

    let length = Duration::from_millis(400);
    let Some((verdict, ..)) = trial(endless.clone(), |asked| asked.length = Some(length)).await
    else {
        return;
    };
    assert!(!verdict.ended_early && verdict.is_whole(), "{verdict}");

    let described = Script { duration_s: Some(1), ..endless };
    let Some((verdict, ..)) = trial(described, |_| {}).await else { return };
    assert!(verdict.to_string().contains(": ended by the server; whole\n"), "{verdict}");
}

#[tokio::test]
async fn stopped_from_here() {
    let script = Script { packets: 60_000, ..Script::default() };
    let has_packets = Arc::new(Notify::new());
    let stop = has_packets.clone();
    let stops = |asked: &mut Play| {
        asked.stop = Some(Box::pin(async move { stop.notified().await }));
    };
    let progress = |now: &PlayProgress| {
        if now.packets > 0 {
            has_packets.notify_one();
        }
    };
    let fake = ScriptedServer::start(script).await;
    let Some((verdict, record, file)) = fake.played(stops, progress).await else { return };
    // The server sends BYE in response to TEARDOWN.
    assert_eq!((verdict.end.clone(), verdict.bye), (PlayEnd::Stopped, true));
    assert!(verdict.is_whole(), "{verdict}");
    assert_eq!(record.methods.last().map(String::as_str), Some("TEARDOWN"));
    assert!(file == asset(0..verdict.packets as u16));
}

#[tokio::test]
async fn nothing_is_added_where_the_server_said_what_to_do() {
    for (answer, found) in [
        (
            "RTSP/1.0 503 Service Unavailable\r\nContent-Length: 26\r\n\r\n\
             other files are being read",
            "DESCRIBE: 503 Service Unavailable: other files are being read",
        ),
        (
            "RTSP/1.0 453 Not Enough Bandwidth\r\nContent-Length: 17\r\n\r\n\
             too many sessions",
            "DESCRIBE: 453 Not Enough Bandwidth: too many sessions",
        ),
        (
            "RTSP/1.0 404 Not Found\r\nContent-Length: 34\r\n\r\n\
             no such channel; a list names them",
            "DESCRIBE: 404 Not Found: no such channel; a list names them",
        ),
    ] {
        let script = Script { refuse: Some(("DESCRIBE", answer)), ..Script::default() };
        let text = refused(script).await.to_string();
        assert!(text.ends_with(found), "{text}");
    }
}

#[tokio::test]
async fn a_session_that_is_sent_elsewhere_is_refused_with_the_address() {
    for method in ["SETUP", "PLAY"] {
        let answer = "RTSP/1.0 302 Found\r\nLocation: rtsp://other:8554/b.ts\r\n\r\n";
        let script = Script { refuse: Some((method, answer)), ..Script::default() };
        let text = refused(script).await.to_string();
        let words = "302 Found; it moved: give rtsp://other:8554/b.ts instead";
        assert!(text.ends_with(&format!("{method}: {words}")), "{text}");
    }
}

#[tokio::test]
async fn stopped_before_the_server_answers() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut asked = Play::new(format!("rtsp://{}/a.ts", listener.local_addr().unwrap()));
    asked.stop = Some(Box::pin(async move {
        // The server accepts the connection and the request, and does not answer.
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 8];
        tokio::io::AsyncReadExt::read_exact(&mut stream, &mut request).await.unwrap();
        assert_eq!(&request, b"DESCRIBE");
    }));
    let error = play(asked, |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("stopped before the stream began"), "{error}");
}

#[tokio::test]
async fn a_connection_that_closes_in_mid_play_is_told_and_a_bye_before_it_is_heard() {
    let script = Script { close_at: Some(100), sends_bye: false, ..Script::default() };
    let Some((verdict, _, file)) = trial(script.clone(), |_| {}).await else { return };
    let found = "the server closed the connection".to_owned();
    assert_eq!((verdict.end.clone(), verdict.packets), (PlayEnd::Closed { found }, 100));
    assert!(!verdict.is_whole());
    assert!(file == asset(0..100));

    let script = Script { sends_bye: true, interval: Duration::from_millis(10), ..script };
    let Some((verdict, ..)) = trial(script, |_| {}).await else { return };
    assert_eq!((verdict.end.clone(), verdict.lost, verdict.lost_at_ends), (PlayEnd::Bye, 0, 0));
    // No packet is lost, but one second of the announced range was not sent.
    assert!(!verdict.is_whole());
    assert!(verdict.to_string().contains("1.0 s of it did not come"), "{verdict}");
}

#[tokio::test]
async fn an_end_without_bye_is_noticed() {
    let script = Script { sends_bye: false, ..Script::default() };
    let Some((verdict, ..)) = trial(script, |_| {}).await else { return };
    assert_eq!((verdict.end.clone(), verdict.bye), (PlayEnd::Quiet, false));
    assert!(verdict.is_whole(), "{verdict}");
}

#[tokio::test]
async fn what_is_not_of_the_stream_is_counted_and_left_out() {
    let mut other = vec![0x80, 33, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4];
    other.extend([0x47; 188]);
    let noise = vec![b"no RTP at all".to_vec(), other, Vec::new()];
    let Some((verdict, _, file)) = trial(Script { noise, ..Script::default() }, |_| {}).await
    else {
        return;
    };
    assert_eq!((verdict.malformed, verdict.unexpected_source, verdict.packets), (2, 1, 200));
    assert!(verdict.is_whole(), "{verdict}");
    assert!(file == asset(0..200));
}

#[tokio::test]
async fn a_wrong_rtp_info_is_told_and_the_stream_still_taken() {
    let script = Script { announced: Some(30_000), ..Script::default() };
    let Some((verdict, _, file)) = trial(script, |_| {}).await else { return };
    assert_eq!((verdict.announced.first_received, verdict.lost), (Some(65_450), 0));
    assert!(
        verdict.to_string().contains("RTP-Info named sequence 30000, and 65450 came"),
        "{verdict}"
    );
    assert!(file == asset(0..200));
}

#[tokio::test]
async fn a_verdict_is_written_as_json() {
    let Some((verdict, ..)) = trial(Script { lose: vec![3], ..Script::default() }, |_| {}).await
    else {
        return;
    };
    let json: serde_json::Value = serde_json::to_value(&verdict).unwrap();
    assert_eq!(json["gaps"][0]["sequence"], 65_453);
    assert_eq!((&json["end"], &json["lost"]), (&"bye".into(), &1.into()));
    assert!(json["lateness"]["p99"].is_number());
    let beside = "application vnd.onvif.metadata/90000: a transport stream is taken alone";
    assert_eq!(json["left_out"], serde_json::json!([beside]));
    assert!(verdict.to_string().contains(&format!("  not played  {beside}\n")), "{verdict}");
}

#[tokio::test]
async fn refusals_say_what_the_server_said_and_what_to_do() {
    for (method, answer, found) in [
        (
            "DESCRIBE",
            "RTSP/1.0 404 Not Found\r\n\r\n",
            "DESCRIBE: 404 Not Found; the index of the server lists what is there",
        ),
        (
            "DESCRIBE",
            "RTSP/1.0 404 Not Found\r\nContent-Length: 14\r\n\r\nno such file\r\n",
            "404 Not Found: no such file; the index of the server lists what is there",
        ),
        (
            "SETUP",
            "RTSP/1.0 503 Service Unavailable\r\n\r\n",
            "SETUP: 503 Service Unavailable; the server is full; try again later",
        ),
        (
            "DESCRIBE",
            "RTSP/1.0 415 Unsupported Media Type\r\nContent-Type: text/plain\r\n\
             Content-Length: 17\r\n\r\nit has no clock\r\n",
            "415 Unsupported Media Type: it has no clock; it can be downloaded over HTTP",
        ),
        (
            "DESCRIBE",
            "RTSP/1.0 302 Found\r\nLocation: http://me:secret@other/clip.ts\r\n\r\n",
            "DESCRIBE: 302 Found; it moved: give http://…@other/clip.ts instead",
        ),
        (
            "SETUP",
            "RTSP/1.0 461 Unsupported Transport\r\n\r\n",
            "SETUP: 461 Unsupported Transport; it does not send RTP by this transport to this \
             address",
        ),
        ("DESCRIBE", "RTSP/1.0 200 OK\r\n\r\n", "session description that is not SDP"),
        ("SETUP", "RTSP/1.0 200 OK\r\n\r\n", "reply with no Session header"),
        ("PLAY", "RTSP/1.0 457 Invalid Range\r\n\r\n", "start before the end of the asset"),
        ("PLAY", "SSH-2.0-x\r\n\r\n", "start line that is not RTSP (RFC 2326 §6.1)"),
    ] {
        let error = refused(Script { refuse: Some((method, answer)), ..Script::default() }).await;
        let text = error.to_string();
        assert!(text.contains(found), "{text}");
        assert!(text.starts_with("rtsp 127.0.0.1:"), "{text}");
        assert!(!error.is_caller());
    }
}

#[tokio::test]
async fn nothing_comes_and_the_firewall_is_suspected() {
    let script =
        Script { packets: 0, sends_rtp_info: false, sends_bye: false, ..Script::default() };
    let fake = ScriptedServer::start(script).await;
    let mut asked = Play::new(&fake.url);
    asked.transport = TransportChoice::Only(StreamTransport::Udp);
    let error = play(asked, |_| {}).await.unwrap_err().to_string();
    assert!(error.contains("no packet came to UDP port"), "{error}");
    assert!(error.ends_with("in 5 s; is a firewall between?"), "{error}");
    assert_eq!(fake.end().await.methods, ["DESCRIBE", "SETUP", "PLAY", "TEARDOWN"]);
}

#[tokio::test]
async fn nobody_there_and_wrong_options() {
    let (_held, nobody) = nobody();
    let error = play(Play::new(format!("rtsp://{nobody}/a.ts")), |_| {}).await.unwrap_err();
    let expected = format!("connect {nobody}: Connection refused");
    assert!(error.to_string().starts_with(&expected), "{error}");

    let wrong = play(Play::new("a.ts"), |_| {}).await.unwrap_err();
    assert!(wrong.is_caller() && wrong.to_string().contains("write rtsp://"), "{wrong}");
    let mut asked = Play::new(format!("rtsp://{nobody}/a.ts"));
    asked.length = Some(Duration::ZERO);
    let wrong = play(asked, |_| {}).await.unwrap_err();
    assert!(wrong.is_caller() && wrong.to_string().starts_with("length: 0 s"), "{wrong}");
}

#[tokio::test]
async fn a_file_that_cannot_be_written_ends_the_play() {
    let fake = ScriptedServer::start(Script::default()).await;
    let mut asked = Play::new(&fake.url);
    asked.output = Some("/nowhere/out.ts".into());
    let error = play(asked, |_| {}).await.unwrap_err().to_string();
    assert!(error.starts_with("open /nowhere/out.ts: No such file"), "{error}");
}
