// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both forms of the playlists of a transport stream: byte ranges of the file, and segments that
//! have an address each (`master.m3u8?ranges=no`).
//!
//! Sources: RFC 8216 §3.2, §4.3.2.2; RFC 9110 §13, §14.
//! Does not decode.

use std::process::Command;

use crate::harness::answer::{Answer, Line};
use crate::harness::clip::with_sets_once;
use crate::harness::{PROGRAM, Place, Server};
use crate::playlist_rules::MUSTS;
use crate::site::{Playlist, fetch, resolved};

const CLIP: &[u8] = include_bytes!("../../assets/clip.ts");

/// A server of the built-in clip, of the same with parameter sets at its beginning alone, of two
/// such joined, and of two in a folder.
fn serve() -> Server {
    let place = Place::new();
    place.put("each.ts", CLIP);
    place.put("once.ts", &with_sets_once());
    place.put("joined.ts", &[CLIP, CLIP].concat());
    place.put("title/a.ts", CLIP);
    place.put("title/b.ts", &with_sets_once());
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    for name in FILES.iter().chain(&["title/a.ts", "title/b.ts"]) {
        server.await_stream(name);
    }
    server
}

const FILES: [&str; 3] = ["each.ts", "once.ts", "joined.ts"];

/// The multivariant playlist with this query, and the media playlists of its variants.
#[track_caller]
fn playlists(server: &Server, name: &str, query: &str) -> (Playlist, Vec<Playlist>) {
    let path = format!("/{name}/master.m3u8");
    let answer = fetch(server, &format!("{path}{query}"), None);
    assert_eq!(answer.status, 200, "{name}{query}: {}", answer.text());
    let text = answer.text();
    let uris = text.lines().filter(|line| !line.starts_with('#'));
    let media = uris.map(|uri| {
        let path = resolved(&path, uri);
        Playlist { text: fetch(server, &path, None).text(), path }
    });
    let media = media.collect();
    (Playlist { path, text }, media)
}

/// Segments of a playlist, each as a player fetches it.
fn segments(server: &Server, playlist: &Playlist) -> Vec<Vec<u8>> {
    let mut range = None;
    let mut all = Vec::new();
    for line in playlist.text.lines() {
        if let Some(value) = line.strip_prefix("#EXT-X-BYTERANGE:") {
            let (bytes, offset) = value.split_once('@').expect("an offset");
            range = Some((offset.parse().unwrap(), bytes.parse().unwrap()));
        } else if !line.starts_with('#') {
            let status = if range.is_some() { 206 } else { 200 };
            let answer = fetch(server, &resolved(&playlist.path, line), range.take());
            assert_eq!(answer.status, status, "{line}");
            all.push(answer.body);
        }
    }
    all
}

#[test]
fn plain_segments_are_the_byte_ranges_and_neither_is_copied() {
    let server = serve();
    let copied = || server.index()["server"]["bytes_copied"].as_u64().expect("a count");
    for name in FILES {
        let (ranges_master, ranges) = playlists(&server, name, "");
        let (master, plain) = playlists(&server, name, "?access=1&ranges=no");
        let [ranges, plain] = [&ranges[0], &plain[0]];
        let is_ranges = name != "once.ts";
        assert_eq!(ranges.text.contains("#EXT-X-BYTERANGE:"), is_ranges, "{}", ranges.text);
        assert!(plain.path.ends_with("/ts-segments.m3u8"), "{}", master.text);
        for playlist in [&master, plain] {
            for must in MUSTS.iter().filter(|must| must.concerns(playlist)) {
                assert!((must.holds)(playlist), "{}: {}", must.rule, playlist.text);
            }
        }
        let has_ranges = ["BYTERANGE", "media.ts"].iter().any(|part| plain.text.contains(part));
        assert!(!has_ranges && plain.values("EXT-X-VERSION") == ["3"], "{}", plain.text);
        for tag in ["EXTINF", "EXT-X-TARGETDURATION", "EXT-X-DISCONTINUITY"] {
            assert_eq!(plain.values(tag), ranges.values(tag), "{name}: {tag}");
        }
        let breaks = usize::from(name == "joined.ts");
        assert_eq!(plain.values("EXT-X-DISCONTINUITY").len(), breaks, "{}", plain.text);
        let rates = |master: &Playlist| master.values("EXT-X-STREAM-INF").join("\n");
        assert_eq!(rates(&master), rates(&ranges_master), "the same bytes");

        let before = copied();
        let as_ranges = segments(&server, ranges);
        let as_plain = segments(&server, plain);
        let sent: usize = as_ranges.iter().chain(&as_plain).map(Vec::len).sum();
        let copied = copied() - before;
        assert!(as_plain == as_ranges, "{name}");
        if is_ranges {
            let expected = [CLIP, CLIP].concat();
            let expected = if name == "joined.ts" { &expected[..] } else { CLIP };
            assert!(as_plain.concat() == expected, "{name}: all of the file");
        }
        // Heads of answers, and tables in front; no segment.
        let smallest = as_plain.iter().map(Vec::len).min().expect("a segment") as u64;
        let answers = 2 * as_plain.len() as u64;
        assert!(copied < (answers * 8192).min(smallest), "{name}: {copied} of {sent} bytes copied");
    }
    server.stop();
}

#[test]
fn plain_segments_have_tags_conditions_and_ranges() {
    let server = serve();
    let (_, media) = playlists(&server, "each.ts", "?ranges=no");
    let [media] = &media[..] else { panic!("{media:?}") };
    let uri = media.text.lines().rfind(|line| !line.starts_with('#')).expect("a segment");
    let path = resolved(&media.path, uri);
    let ask = |path: &str, fields: &str| -> Answer {
        let mut line = Line::to(server.http);
        line.send(format!(
            "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{fields}\r\n"
        ));
        line.answer().expect("an answer")
    };
    let whole = ask(&path, "");
    assert!(CLIP.ends_with(&whole.body) && whole.body.len() < CLIP.len());
    assert_eq!(whole.header("Content-Type"), Some("video/mp2t"));
    assert!(whole.header("Cache-Control").expect("a field").contains("immutable"));
    let etag = whole.header("ETag").expect("a tag").to_owned();
    assert_eq!(ask(&path, &format!("If-None-Match: {etag}\r\n")).status, 304);
    assert_eq!(ask(&path, "If-Match: \"other\"\r\n").status, 412);
    let range = ask(&path, "Range: bytes=188-999\r\n");
    assert_eq!((range.status, &range.body[..]), (206, &whole.body[188..1000]));
    let field = format!("Range: bytes=-10\r\nIf-Range: {etag}\r\n");
    let end = ask(&path, &field);
    assert_eq!((end.status, &end.body[..]), (206, &CLIP[CLIP.len() - 10..]));
    let beyond = format!("Range: bytes={}-\r\n", whole.body.len());
    assert_eq!(ask(&path, &beyond).status, 416);
    let mut line = Line::to(server.http);
    line.send(format!("HEAD {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
    let head = line.head().expect("an answer");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", whole.body.len())), "{head}");
    let next = path.replace(uri, "ts/9999.ts");
    assert_eq!(ask(&next, "").status, 404, "{next}");

    // The two multivariant playlists are told apart, and each has conditions.
    let tag = |query: &str| {
        let answer = ask(&format!("/each.ts/master.m3u8{query}"), "");
        answer.header("ETag").expect("a tag").to_owned()
    };
    let (ranges, plain) = (tag(""), tag("?ranges=no"));
    assert_ne!(ranges, plain);
    assert_eq!(tag("?ranges=yes"), ranges);
    let known = format!("If-None-Match: {plain}\r\n");
    assert_eq!(ask("/each.ts/master.m3u8?ranges=no", &known).status, 304);
    assert_eq!(ask("/each.ts/master.m3u8", &known).status, 200);
    server.stop();
}

#[test]
fn renditions_of_a_title_are_plain_and_wrong_forms_are_refused() {
    let server = serve();
    let (master, media) = playlists(&server, "title", "?ranges=no");
    assert_eq!(media.len(), 2, "{}", master.text);
    assert!(media.iter().all(|one| !one.text.contains("BYTERANGE")), "{media:?}");
    assert!(media.iter().all(|one| one.path.ends_with("/ts-segments.m3u8")), "{media:?}");
    for name in ["each.ts", "title"] {
        for query in ["ranges", "ranges=", "ranges=NO", "ranges=no&ranges=1", "v=1&ranges=%6eo"] {
            let answer = fetch(&server, &format!("/{name}/master.m3u8?{query}"), None);
            let text = answer.text();
            assert_eq!(answer.status, 400, "{name} {query}: {text}");
            assert!(text.contains("in the query: write ranges=no"), "{name} {query}: {text}");
        }
        let answer = fetch(&server, &format!("/{name}/manifest.mpd?ranges=x"), None);
        assert_eq!(answer.status, 200, "{name}: a description has one form");
    }
    server.stop();
}
