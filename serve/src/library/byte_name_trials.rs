// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that every protocol of a running server serves files whose names are not UTF-8.
//!
//! Sources: RFC 3986 §2.5 (percent-encoding represents bytes); [`wire::http::path_text`].

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use access::{AccessConfig, rules::RuleDraft};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::config::Config;
use crate::rtsp::player::play;
use crate::server::Server;

pub(crate) static CLIP: &[u8] = include_bytes!("../../../pagewire/assets/clip.ts");

/// Creates a temporary folder with these files in its folder `served`.
pub(crate) fn place(files: &[(&[u8], &[u8])]) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = place.path().join("served").join(OsStr::from_bytes(name));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    place
}

pub(crate) fn config(place: &tempfile::TempDir) -> Config {
    let mut config = Config::new(place.path().join("served"));
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    (config.rtsp, config.http) = (any, any);
    config.cache = Some(place.path().join("cache"));
    config
}

/// Requests `target`; returns status and body of the answer.
pub(crate) async fn get(server: &Server, target: &str) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect(server.http()).await.unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    let status = str::from_utf8(&answer[9..12]).unwrap().parse().unwrap();
    (status, answer.split_off(end))
}

pub(crate) async fn text(server: &Server, target: &str) -> String {
    let (status, body) = get(server, target).await;
    assert_eq!(status, 200, "{target}");
    String::from_utf8(body).unwrap()
}

/// Returns the first URI of a playlist, resolved against the playlist's own path `at`.
fn first_uri(playlist: &str, at: &str) -> String {
    let line = playlist.lines().find(|line| !line.starts_with('#')).expect("an address");
    format!("{}/{line}", at.rsplit_once('/').unwrap().0)
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_any_name_are_served_at_their_percent_encoded_address() {
    let private = "\u{10ffe9}.bin".as_bytes();
    let files: [(&[u8], &[u8]); 3] =
        [(b"caf\xe9.ts", CLIP), (b"caf\xea.bin", b"another"), (private, b"private")];
    let place = place(&files);
    let server = Server::start(config(&place)).await.unwrap();
    assert_eq!(get(&server, "/caf%E9.ts").await, (200, CLIP.to_vec()));
    assert_eq!(get(&server, "/caf%ea.bin").await, (200, b"another".to_vec()));
    assert_eq!(get(&server, "/%F4%8F%BF%A9.bin").await, (200, b"private".to_vec()));
    // Not served: the byte E9 in place of U+10FFE9, and in place of the byte E9 the UTF-8 of é or
    // of U+10FFE9.
    for other in ["/%E9.bin", "/caf%C3%A9.ts", "/caf%F4%8F%BF%A9.ts"] {
        assert_eq!(get(&server, other).await.0, 404, "{other}");
    }

    let master = text(&server, "/caf%E9.ts/master.m3u8").await;
    let media = first_uri(&master, "/caf%E9.ts/master.m3u8");
    let segment = first_uri(&text(&server, &media).await, &media);
    assert_eq!(get(&server, &segment).await.0, 200, "{segment}");

    let url = format!("rtsp://{}/caf%E9.ts", server.rtsp());
    let seen = play((url, Duration::from_secs(1))).await;
    assert!(seen.is_whole(), "{seen:?}");

    let listed = async {
        loop {
            let index = text(&server, "/index.json?after=%01").await;
            if ["h/caf%E9.ts\"", "h/caf%EA.bin\"", "h/%F4%8F%BF%A9.bin\""]
                .iter()
                .all(|address| index.contains(address))
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), listed).await.expect("all are listed");
    let found = text(&server, "/index.json?name=caf%EA.bin").await;
    assert!(found.contains("h/caf%EA.bin\"") && !found.contains("h/caf%E9.ts\""), "{found}");
    assert!(text(&server, "/?plain=1").await.contains("href=\"/caf%E9.ts\">caf\u{fffd}.ts"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_of_folders_hold_for_names_of_any_bytes() {
    let private = "\u{10ffe9}/a.bin".as_bytes();
    let files: [(&[u8], &[u8]); 4] = [
        (b"in/caf\xe9.bin", b"1"),
        (b"in/\xe9/a.bin", b"2"),
        (private, b"3"),
        (b"\xe9/a.bin", b"4"),
    ];
    // TEST-NET-1 (RFC 5737): no client of this test has such an address.
    const ELSEWHERE: &str = "address:192.0.2.0/24";
    let place = place(&files);
    let rule = |path: &str, allow: &str| {
        let verbs = ["list", "play", "download"].map(str::to_owned).to_vec();
        let (path, allow) = (Some(path.to_owned()), vec![allow.to_owned()]);
        RuleDraft { path, verbs, allow, channel: None }.check().unwrap()
    };
    let mut config = config(&place);
    let rules = vec![rule("/", "anyone"), rule("/in", ELSEWHERE), rule("/\u{10ffe9}", ELSEWHERE)];
    config.access = AccessConfig::default();
    config.access.rules = rules;
    let server = Server::start(config).await.unwrap();
    for target in [
        "/in/caf%E9.bin",
        "/in/%e9/a.bin",
        "//in/.//%E9/a.bin",
        "/%69n/caf%E9.bin",
        "/%F4%8F%BF%A9/a.bin",
        "/in/caf%F4%8F%BF%A9.bin",
    ] {
        assert!(matches!(get(&server, target).await.0, 401 | 403), "{target}");
    }
    // The rule of the folder named U+10FFE9 does not apply to the folder named by the byte E9.
    assert_eq!(get(&server, "/%E9/a.bin").await, (200, b"4".to_vec()));
    server.stop().await;
}
