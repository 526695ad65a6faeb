// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers about channels: their titles, the targets of their links in the index, and reasons for
//! channels and transports that do not exist.
//!
//! Sources: RFC 2326 §10.2, §10.4, RFC 8866 §5.3.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::answer::{Answer, Line, http};
use crate::harness::rtsp::Control;
use crate::harness::{PROGRAM, Place, Server, await_ok};

/// Starts a server of a channel for viewers over RTSP, of one that cannot be watched over RTP, and
/// of one that is sent to a receiver only.
fn serve_channels() -> Server {
    let place = Place::new();
    place.put("a.ts", include_bytes!("../../assets/clip.ts"));
    let config = place.top().join("pagewire.toml");
    let text = "[channel.news]\ntitle = \"The News\"\nplaylist = [\"a.ts\"]\n\
                [channel.bare]\nplaylist = [\"a.ts\"]\nsend = [\"udp://127.0.0.1:9\"]\n\
                rtsp = false\n";
    fs::write(&config, text).expect("room for settings");
    let options = ["--config", config.to_str().expect("a plain path")];
    Server::at(&place, Command::new(PROGRAM), &options)
}

#[test]
fn channels_are_described_linked_and_refused_with_the_reason() {
    let server = serve_channels();
    let mut control = Control::to(server.rtsp);
    let description = await_ok(|| {
        let answer = control.ask("DESCRIBE", "channel/news", &[]);
        if answer.status == 200 {
            return Ok(answer.text());
        }
        assert!(answer.text().contains("not on the air here yet"), "{answer:?}");
        Err(server.log())
    });
    assert!(description.contains("\r\ns=The News\r\n"), "{description}");

    let none = control.ask("DESCRIBE", "channel/none", &[]);
    let text = "no such channel: none; /channels.json over HTTP lists them\n";
    assert_eq!((none.status, none.text().as_str()), (404, text));
    let file = control.ask("DESCRIBE", "none.ts", &[]);
    assert!(file.status == 404 && !file.text().contains("channel"), "{file:?}");
    let offer = "Transport: RTP/AVP;multicast";
    let refused = control.ask("SETUP", "channel/news/stream", &[offer]);
    let text = "RTP/AVP;multicast for a channel with an RTP group\n";
    assert!(refused.status == 461 && refused.text().ends_with(text), "{refused:?}");

    let missing = |path: &str| {
        let answer = http(server.http, "GET", path);
        assert_eq!(answer.status, 404, "{path}: {}", answer.head);
        answer.text()
    };
    let address = format!("rtsp://{}/channel/news", server.rtsp);
    let text = missing("/channel/news.sdp");
    assert!(text.contains(&format!("channel news has no RTP group; play {address}")), "{text}");
    assert!(missing("/channel/none.sdp").contains("no such channel"));

    let page = http(server.http, "GET", "/").text();
    for path in ["/channels.m3u", "/channels-rtsp.m3u", "/channels.xml", "/channels.json"] {
        assert!(page.contains(&format!("<a href=\"{path}\">")), "{path}: {page}");
        assert_eq!(http(server.http, "GET", path).status, 200, "{path}");
    }
    assert!(!page.contains("{{"), "{page}");
    for path in ["/channels.m3u", "/channels-rtsp.m3u", "/channels.xml", "/channels.json"] {
        assert_kept(&server, path);
    }
    server.stop();
}

/// Asserts that a client with a current list gets "not modified", and that a compressed form has
/// its own tag. A list may change between two requests, but not each time.
#[track_caller]
fn assert_kept(server: &Server, path: &str) {
    let ask = |fields: &str| {
        let mut line = Line::to(server.http);
        line.send(format!(
            "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{fields}\r\n"
        ));
        line.answer().expect("an answer")
    };
    let deadline = Instant::now() + WAIT;
    loop {
        let [plain, gzip] = ["", "Accept-Encoding: gzip\r\n"].map(&ask);
        let tag = |answer: &Answer| answer.header("ETag").expect("a tag").to_owned();
        let kept = ask(&format!("If-None-Match: {}\r\n", tag(&plain)));
        assert!(tag(&plain).starts_with('"'), "a strong one: {}", plain.head);
        if kept.status == 304 {
            let is_packed = gzip.header("Content-Encoding") == Some("gzip");
            assert_eq!(is_packed, plain.body.len() >= 2048, "{path}: {}", gzip.head);
            assert!(!is_packed || tag(&gzip) != tag(&plain), "{path}: {}", gzip.head);
            return;
        }
        assert_eq!(kept.status, 200, "{path}: {}", kept.head);
        assert!(Instant::now() < deadline, "{path} changes all the time");
    }
}

#[test]
fn index_of_a_server_without_channels_names_none() {
    let server = crate::serve(&[], &[]);
    let page = http(server.http, "GET", "/").text();
    assert!(!page.contains("channels") && !page.contains("{{"), "{page}");
    server.stop();
}

/// Guards against hanging; not a measure of speed.
const WAIT: Duration = Duration::from_secs(60);
