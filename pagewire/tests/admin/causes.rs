// SPDX-License-Identifier: MIT OR Apache-2.0
//! Causes of slow clients: the server names a client whose network loses packets and one that does
//! not read, but not a healthy one beside them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::harness::PROGRAM;
use crate::harness::answer::Line;
use crate::harness::clip::Clip;
use crate::harness::lossy_relay::LossyRelay;
use crate::{ask, await_session, serve};

#[test]
fn reader_that_never_reads_over_tcp_has_closed_its_window() {
    let clip = Clip { bits_per_second: 20_000_000, ..Clip::of_seconds(12, 20) };
    let server = serve(clip, &[]);
    let mut line = Line::to(server.rtsp);
    let url = format!("rtsp://{}/film.ts", server.rtsp);
    let transport = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n";
    line.send(format!("SETUP {url} RTSP/1.0\r\nCSeq: 1\r\n{transport}\r\n"));
    let session = crate::harness::rtsp::session_of(&line.answer().expect("an answer"));
    line.send(format!("PLAY {url} RTSP/1.0\r\nCSeq: 2\r\nSession: {session}\r\n\r\n"));
    let row = await_session(&server, "its window is full", |row| row["cause"] == "window_closed");
    assert_eq!((&row["protocol"], &row["asset"]), (&"rtsp_tcp".into(), &"film.ts".into()));
    assert!(
        row["cause_text"].as_str().is_some_and(|text| text.contains("does not read")),
        "{row:#}"
    );
    server.stop();
}

#[test]
fn download_that_is_not_read_is_a_session_with_a_closed_window_and_can_be_ended() {
    let clip = Clip { bits_per_second: 20_000_000, ..Clip::of_seconds(13, 20) };
    let server = serve(clip, &["--http-pace", "off"]);
    let mut reader = TcpStream::connect(server.http).expect("HTTP listens");
    write!(reader, "GET /film.ts HTTP/1.1\r\nHost: test\r\n\r\n").expect("the request goes out");
    let row = await_session(&server, "it is listed", |row| row["cause"] == "window_closed");
    assert_eq!((&row["protocol"], &row["asset"]), (&"http".into(), &"film.ts".into()));
    assert!(row["bytes"].as_u64().is_some_and(|bytes| bytes >= 1_000_000), "{row:#}");
    let target = format!("/v1/sessions/{}", row["id"].as_str().expect("text"));
    let trace = ask(&server, "GET", &format!("{target}/trace"), &[]);
    assert_eq!(trace.status, 409, "{trace:?}");
    assert_eq!(ask(&server, "DELETE", &target, &["X-Pagewire: 1"]).status, 200);
    let mut rest = Vec::new();
    // It ends before the file does, by a reset or after the bytes in transit.
    let _ = reader.read_to_end(&mut rest);
    let whole = std::fs::metadata(server.folder().join("film.ts")).expect("the clip").len();
    assert!((rest.len() as u64) < whole, "{} of {whole} bytes", rest.len());
    server.stop();
}

mod timed {
    use super::*;

    #[test]
    fn client_behind_a_network_that_loses_packets_is_named_so() {
        let server = serve(Clip::of_seconds(11, 60), &[]);
        let relay = LossyRelay::to(server.rtsp, 20);
        let play = |address| {
            let mut command = Command::new(PROGRAM);
            let url = format!("rtsp://{address}/film.ts");
            command.args(["play", &url]).stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().expect("the player starts")
        };
        let (mut lossy, mut whole) = (play(relay.address), play(server.rtsp));
        let found = await_session(&server, "5 % are lost", |row| row["cause"] == "network_loss");
        let lost = found["lost_percent"].as_f64().expect("it reports");
        assert!((3.0..8.0).contains(&lost), "{found:#}");
        assert!(found["cause_text"].as_str().is_some_and(|text| text.contains('%')), "{found:#}");
        assert_eq!(found["protocol"], "rtsp_udp");
        let other = await_session(&server, "the other reports, too", |row| {
            row["id"] != found["id"] && row["lost_percent"].is_number()
        });
        assert_ne!(other["cause"], "network_loss", "{other:#}");
        assert!(other["bits_per_s"].as_u64().is_some_and(|rate| rate > 100_000), "{other:#}");
        assert!(other["path"].is_string() && other["late_ms"]["p99"].is_number(), "{other:#}");
        let metrics = ask(&server, "GET", "/metrics", &[]).text();
        assert!(
            metrics.contains("pagewire_session_causes{cause=\"network_loss\"} 1\n"),
            "{metrics}"
        );
        for player in [&mut lossy, &mut whole] {
            player.kill().expect("it runs");
            player.wait().expect("it ends");
        }
        server.stop();
    }
}
