// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests that are malformed, oversized or endless, and names that lead out of the folder: each
//! gets the status of its RFC, the connection ends where it cannot continue, and the server is
//! unchanged.
//!
//! Sources: RFC 2326 §7.1.1, §11.3; RFC 9110 §15, RFC 9112 §2.2, RFC 6585 §5; RFC 3986 §2.1.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::thread;
use std::time::Duration;

use crate::harness::Server;
use crate::harness::answer::{Line, http};
use crate::harness::clip::Clip;
use crate::harness::rtsp::{Control, LOCALHOST, PortPair, session_of};
use crate::resource_snapshot::ResourceSnapshot;
use crate::serve;

fn server() -> (Server, ResourceSnapshot) {
    let server = serve(&[("a.ts", &Clip::of_seconds(1, 2).bytes())], &[]);
    let snapshot = ResourceSnapshot::of(&server);
    (server, snapshot)
}

/// Sends it, and asserts that one answer with this status arrives and then the end of the
/// connection.
#[track_caller]
fn assert_ended_with(server: SocketAddr, request: &[u8], status: u16) {
    let shown = String::from_utf8_lossy(&request[..request.len().min(80)]).into_owned();
    let mut line = Line::to(server);
    line.send(request);
    let answer = line.answer().unwrap_or_else(|| panic!("closed without a word: {shown:?}"));
    assert_eq!(answer.status, status, "{shown:?}: {answer:?}");
    let (rest, _) = line.rest(CLOSE_WAIT);
    assert!(rest.is_empty(), "{shown:?}: {}", String::from_utf8_lossy(&rest));
}

#[track_caller]
fn assert_healthy(server: &Server) {
    assert_eq!(http(server.http, "GET", "/a.ts").status, 200);
    assert_eq!(Control::to(server.rtsp).ask("DESCRIBE", "a.ts", &[]).status, 200);
}

fn malformed(server: &Server) -> u64 {
    server.index()["server"]["requests_malformed"].as_u64().expect("a count")
}

#[test]
fn malformed_rtsp_is_answered_and_the_connection_ends() {
    let (server, snapshot) = server();
    let long = "x".repeat(20_000);
    let flood = "X-Flood: 1\r\n".repeat(10_000);
    let cases: &[(&[u8], u16)] = &[
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"\0\0\0\0\0\0\0\0", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"DESCRIBE\r\n\r\n", 400),
        (b"DESCRIBE rtsp://h/a.ts\r\nCSeq: 1\r\n\r\n", 400),
        (b"DESCRIBE rtsp://h/a.ts RTSP/2.0\r\nCSeq: 1\r\n\r\n", 505),
        (b"DESCRIBE http://h/a.ts RTSP/1.0\r\nCSeq: 1\r\n\r\n", 400),
        (b"DESCRIBE rtsp://h/a%00.ts RTSP/1.0\r\nCSeq: 1\r\n\r\n", 400),
        (b"OPTIONS * RTSP/1.0\r\nno colon here\r\n\r\n", 400),
        (b"OPTIONS * RTSP/1.0\r\nX: a\0b\r\n\r\n", 400),
        (b"OPTIONS * RTSP/1.0\r\n folded: first\r\n\r\n", 400),
        (b"OPTIONS * RTSP/1.0\r\nContent-Length: -1\r\n\r\n", 400),
        (b"OPTIONS * RTSP/1.0\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"OPTIONS * RTSP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"OPTIONS * RTSP/1.0\r\nContent-Length: 99999999999999999999\r\n\r\n", 413),
        (&format!("DESCRIBE rtsp://h/{long} RTSP/1.0\r\n").into_bytes(), 414),
        (&format!("OPTIONS * RTSP/1.0\r\nX: {long}\r\n\r\n").into_bytes(), 400),
        (&format!("OPTIONS * RTSP/1.0\r\n{flood}\r\n").into_bytes(), 400),
    ];
    let before = malformed(&server);
    for (request, status) in cases {
        assert_ended_with(server.rtsp, request, *status);
    }
    assert_eq!(malformed(&server) - before, cases.len() as u64, "each is counted");
    assert_healthy(&server);
    snapshot.assert_restored(&server);
}

#[test]
fn malformed_http_is_answered_and_the_connection_ends() {
    let (server, snapshot) = server();
    let long = "x".repeat(20_000);
    let flood = "X-Flood: 1\r\n".repeat(10_000);
    let chunk = format!("ffff\r\n{}\r\n", "x".repeat(0xffff));
    let endless = format!("PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}");
    let cases: &[(&[u8], u16)] = &[
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET /a.ts\r\n\r\n", 400),
        (b"GET /a.ts HTTP/1.1\r\n\r\n", 400),
        (b"GET /a.ts HTTP/1.1\nHost: h\n\n", 400),
        (b"GET /a.ts HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n", 400),
        (b"GET /a.ts HTTP/1.1\r\nHost: h\r\n X: folded\r\n\r\n", 400),
        (b"GET /a.ts HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n", 400),
        (b"GET /a%00.ts HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"GET /a.ts#x HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"GET ftp://h/a.ts HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (b"GET / HTTP/3.0\r\nHost: h\r\n\r\n", 505),
        (b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 9999999999\r\n\r\n", 413),
        (&b"M".repeat(9000), 501),
        (&format!("GET /{long} HTTP/1.1\r\n").into_bytes(), 414),
        (&format!("GET / HTTP/1.1\r\nHost: h\r\nX: {long}\r\n\r\n").into_bytes(), 431),
        (&format!("GET / HTTP/1.1\r\nHost: h\r\n{flood}\r\n").into_bytes(), 431),
        (&endless.into_bytes(), 413),
    ];
    let before = malformed(&server);
    for (request, status) in cases {
        assert_ended_with(server.http, request, *status);
    }
    assert_eq!(malformed(&server) - before, cases.len() as u64, "each is counted");
    assert_healthy(&server);
    snapshot.assert_restored(&server);
}

/// Requests before the fault are served.
#[test]
fn good_requests_before_a_bad_one_are_answered() {
    let (server, snapshot) = server();
    let mut line = Line::to(server.rtsp);
    line.send("OPTIONS * RTSP/1.0\r\nCSeq: 7\r\n\r\n");
    line.send("DESCRIBE rtsp://h/a.ts RTSP/1.0\r\nCSeq: 8\r\n\r\n??\r\n");
    let mut answers = || line.answer().map(|a| (a.status, a.header("CSeq").map(str::to_owned)));
    assert_eq!(answers(), Some((200, Some("7".to_owned()))));
    assert_eq!(answers(), Some((200, Some("8".to_owned()))));
    assert_eq!(answers(), Some((400, None)));
    assert_eq!(answers(), None);

    let mut line = Line::to(server.http);
    line.send(
        "GET /none HTTP/1.1\r\nHost: h\r\n\r\nGET /a.ts HTTP/1.1\r\nHost: h\r\n\r\n??\r\n\r\n",
    );
    let mut answers = || line.answer().map(|answer| answer.status);
    assert_eq!([(); 4].map(|()| answers()), [Some(404), Some(200), Some(400), None]);
    snapshot.assert_restored(&server);
}

/// A client that sends without an end is disconnected, and its bytes are not kept.
#[test]
fn endless_requests_are_cut_off_and_take_no_memory() {
    let (server, snapshot) = server();
    let memory = |server: &Server| {
        server.index()["server"]["memory_bytes"].as_u64().expect("it says how much it takes")
    };
    let before = memory(&server);
    let piece = 1 << 16;
    let line_of = |start: &[u8], more: &[u8]| (start.to_vec(), more.repeat(piece / more.len()));
    let rtsp_head = b"OPTIONS * RTSP/1.0\r\n";
    let http_head = b"GET / HTTP/1.1\r\nHost: h\r\n";
    let streams = [
        (server.rtsp, line_of(b"", b"A")),
        (server.rtsp, line_of(b"OPTIONS ", b"rtsp://h/")),
        (server.rtsp, line_of(rtsp_head, b"X: y\r\n")),
        (server.rtsp, line_of(rtsp_head, b"x")),
        (server.rtsp, line_of(b"OPTIONS * RTSP/1.0\r\nContent-Length: 4000000000\r\n\r\n", b"x")),
        (server.http, line_of(b"", b"A")),
        (server.http, line_of(b"GET /", b"A")),
        (server.http, line_of(http_head, b"X: y\r\n")),
        (server.http, line_of(http_head, b"x")),
        (server.http, line_of(b"", b"\r\n")),
        (
            server.http,
            line_of(b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 4000000000\r\n\r\n", b"x"),
        ),
        (
            server.http,
            line_of(
                b"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
                b"1\r\nx\r\n",
            ),
        ),
    ];
    thread::scope(|scope| {
        for (index, (address, (start, more))) in streams.iter().enumerate() {
            scope.spawn(move || {
                let mut line = Line::to(*address);
                line.send(start);
                // The server continues to read for a moment after its answer, so that the answer
                // arrives.
                let sent = (0..ENDLESS_PIECES).take_while(|_| line.send(more)).count();
                assert!(sent < ENDLESS_PIECES, "stream {index}: {sent} pieces were taken");
            });
        }
    });
    let grown = memory(&server).saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more are in memory");
    assert_healthy(&server);
    snapshot.assert_restored(&server);
}

/// Requests that are well formed and cannot be carried out leave the connection open.
#[test]
fn refusals_keep_the_connection() {
    let (server, snapshot) = server();
    let mut control = Control::to(server.rtsp);
    let udp = "Transport: RTP/AVP;unicast;client_port=5000-5001";
    let elsewhere = "Transport: RTP/AVP;unicast;client_port=5000-5001;destination=192.0.2.7";
    let cases: &[(&str, &str, &[&str], u16)] = &[
        ("DESCRIBE", "none.ts", &[], 404),
        ("SETUP", "none.ts", &[udp], 404),
        ("SETUP", "a.ts", &[], 400),
        ("SETUP", "a.ts", &["Transport: RTP/SAVP/TCP;unicast;interleaved=0-1"], 461),
        ("SETUP", "a.ts", &["Transport: RTP/AVP;unicast;client_port=0-1"], 461),
        ("SETUP", "a.ts", &["Transport: RTP/AVP;multicast"], 461),
        ("SETUP", "a.ts", &[elsewhere], 461),
        ("DESCRIBE", "a.ts", &["Require: funky-feature"], 551),
        ("DESCRIBE", "a.ts", &["Accept: text/html"], 406),
        ("PLAY", "a.ts", &[], 454),
        ("RECORD", "a.ts", &["Session: 1"], 405),
        ("FROBNICATE", "a.ts", &[], 501),
    ];
    for (method, name, headers, status) in cases {
        let answer = control.ask(method, name, headers);
        assert_eq!(answer.status, *status, "{method} {name} {headers:?}: {answer:?}");
    }
    assert_eq!(control.ask("DESCRIBE", "a.ts", &[]).status, 200);
    drop(control);
    snapshot.assert_restored(&server);
}

/// `..` in every spelling, links that lead out, hidden names: no file outside is ever sent.
#[test]
fn no_name_leads_out_of_the_folder() {
    let server = serve(&[("deep/a.ts", &Clip::of_seconds(2, 1).bytes())], &[]);
    let folder = server.folder();
    let secret = Clip { seed: 77, milliseconds: 500, bits_per_second: 500_000, with_clock: true };
    fs::write(server.place.top().join("secret.ts"), secret.bytes()).expect("a file outside");
    fs::write(folder.join(".hidden.ts"), secret.bytes()).expect("a hidden file");
    fs::create_dir(folder.join(".git")).expect("a hidden folder");
    fs::write(folder.join(".git/config.ts"), secret.bytes()).expect("a file in it");
    symlink("../secret.ts", folder.join("out.ts")).expect("a link out");
    symlink("..", folder.join("up")).expect("a link up");
    symlink(server.place.top().join("secret.ts"), folder.join("absolute.ts")).expect("a link");
    symlink("loop.ts", folder.join("loop.ts")).expect("a link to itself");
    symlink("deep/a.ts", folder.join("inside.ts")).expect("a link inside");
    let snapshot = ResourceSnapshot::of(&server);

    let inside = http(server.http, "GET", "/inside.ts");
    assert!([200, 403].contains(&inside.status), "403 where openat2 is missing: {inside:?}");
    let served = http(server.http, "GET", "/deep//./a.ts");
    assert_eq!(served.status, 200);

    let names = [
        "../secret.ts",
        "deep/../../secret.ts",
        "%2e%2e/secret.ts",
        "%2E./secret.ts",
        "..%2fsecret.ts",
        "%2e%2e%2fsecret.ts",
        "deep/%2e%2e/%2e%2e/secret.ts",
        "%252e%252e/secret.ts",
        "%c0%ae%c0%ae/secret.ts",
        "%e0%80%ae%e0%80%ae/secret.ts",
        "..%c0%afsecret.ts",
        "..\\secret.ts",
        "..%5csecret.ts",
        "..;/secret.ts",
        "/../secret.ts",
        "//secret.ts",
        "out.ts",
        "up/secret.ts",
        "absolute.ts",
        "loop.ts",
        ".hidden.ts",
        "%2ehidden.ts",
        ".git/config.ts",
        "deep/../.hidden.ts",
        "proc/self/environ",
        "deep",
        "deep/",
        "deep/a.ts/x",
        "up",
        "up/",
        ".git",
        ".git/",
        "deep/..",
        "deep/../.git/",
    ];
    for name in names {
        let answer = http(server.http, "GET", &format!("/{name}"));
        // A folder has the index of the files served below it, and no other.
        if matches!(name, "deep" | "deep/") {
            assert_eq!(answer.status, 200, "{name}: {answer:?}");
            assert_eq!(answer.text().matches("<tr><td>").count(), 1, "{name}: {answer:?}");
        } else {
            assert!(matches!(answer.status, 400 | 403 | 404), "HTTP {name}: {answer:?}");
            let is_short = answer.body.len() < 1000 && !answer.text().contains('\u{47}');
            assert!(is_short, "{name}: {answer:?}");
        }
        for method in ["DESCRIBE", "SETUP"] {
            let headers: &[&str] = match method {
                "SETUP" => &["Transport: RTP/AVP;unicast;client_port=5000-5001"],
                _ => &[],
            };
            let answer = Control::to(server.rtsp).ask(method, name, headers);
            assert!(matches!(answer.status, 400 | 403 | 404), "{method} {name}: {answer:?}");
        }
    }
    let index = server.index().to_string();
    for name in ["hidden", "config", "secret", "absolute", "loop", "\"out.ts\""] {
        assert!(!index.contains(name), "{name} is listed: {index}");
    }
    snapshot.assert_restored(&server);
}

/// Players seek to any position on their bar: each position of the range that DESCRIBE announces is
/// played, also the part of it after the last picture, and positions beyond it are refused.
#[test]
fn each_place_of_the_announced_range_is_played() {
    let server = serve(&[("film.ts", include_bytes!("../../assets/clip.ts"))], &[]);
    server.await_stream("film.ts");
    for (asset, stream) in [("film.ts", "film.ts/stream"), ("film.ts?es", "film.ts/track0")] {
        let mut control = Control::to(server.rtsp);
        let described = control.ask("DESCRIBE", asset, &[]).text();
        let range = described.lines().find_map(|line| line.strip_prefix("a=range:npt=0-"));
        let end: f64 = range.and_then(|end| end.parse().ok()).expect("it has an end");
        let ports = PortPair::on(LOCALHOST);
        let answer = control.ask("SETUP", stream, &[&ports.transport()]);
        assert_eq!(answer.status, 200, "{answer:?}");
        let session = format!("Session: {}", session_of(&answer));
        let places = (0..20).map(|part| end * f64::from(part) / 20.0);
        for at in places.chain([end - 0.25, end - 0.1, end - 0.001]) {
            let range = format!("Range: npt={at:.3}-");
            let played = control.ask("PLAY", "film.ts", &[&session, &range]);
            assert_eq!(played.status, 200, "{asset} to {end}, {range}: {played:?}");
        }
        let beyond = format!("Range: npt={:.3}-", end + 0.001);
        let refused = control.ask("PLAY", "film.ts", &[&session, &beyond]);
        assert_eq!(refused.status, 457, "{asset} to {end}, {beyond}: {refused:?}");
        // Some clients use it as a keep-alive and treat an error as the end of the session.
        assert_eq!(control.ask("SET_PARAMETER", "film.ts", &[&session]).status, 200);
        assert_eq!(control.ask("TEARDOWN", "film.ts", &[&session]).status, 200);
    }
    server.stop();
}

/// Guards against hanging; not a measure of speed.
const CLOSE_WAIT: Duration = Duration::from_secs(60);
/// 256 MiB: more than all socket buffers on the way hold.
const ENDLESS_PIECES: usize = 4096;

#[test]
fn an_unknown_transport_is_told_which_ones_there_are() {
    let (server, _) = server();
    let encrypted = ["Transport: RTP/SAVP;unicast;client_port=5000-5001"];
    let refused = Control::to(server.rtsp).ask("SETUP", "a.ts", &encrypted);
    assert_eq!(refused.status, 461);
    let line = refused.head.lines().next().expect("a status line");
    assert_eq!(line, "RTSP/1.0 461 Unsupported Transport: RTP over UDP or TCP");
    assert!(refused.text().contains("client_port=PORT-PORT"), "{refused:?}");
    server.stop();
}
