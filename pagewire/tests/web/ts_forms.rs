// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both forms of the playlists of a transport stream and of its key frames: byte ranges of the
//! file, and segments with an address each (`master.m3u8?ranges=no`).
//!
//! Sources: RFC 8216 §3.2, §4.3.2.2, §4.3.3.6; RFC 9110 §13, §14.
//! Does not decode ([`crate::clients`] does).

use std::process::Command;

use media::{Coding, Survey};

use crate::harness::answer::{Answer, Line};
use crate::harness::clip::{self, pictures, with_sets_once};
use crate::harness::{PROGRAM, Place, Server};
use crate::playlist_rules::broken;
use crate::site::{Playlist, fetch, resolved};

const CLIP: &[u8] = include_bytes!("../../assets/clip.ts");

/// Starts a server of the built-in clip, of the same with parameter sets only at its beginning, of
/// two such joined, and of two in a folder.
fn serve() -> Server {
    let place = Place::new();
    place.put("each.ts", CLIP);
    place.put("once.ts", &with_sets_once());
    place.put("joined.ts", &[CLIP, CLIP].concat());
    place.put("noise.ts", &clip::Clip::of_seconds(7, 8).bytes());
    place.put("title/a.ts", CLIP);
    place.put("title/b.ts", &with_sets_once());
    // Copies are counted: where a calibration of this host prefers it, the server would copy.
    let server = Server::at(&place, Command::new(PROGRAM), &["--path", "sendfile"]);
    for name in FILES.iter().chain(&["noise.ts", "title/a.ts", "title/b.ts"]) {
        server.await_stream(name);
    }
    server
}

const FILES: [&str; 3] = ["each.ts", "once.ts", "joined.ts"];

/// Returns the multivariant playlist with this query, and the media playlists of its variants.
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

/// Parses offset and number of bytes.
fn range_of(value: &str) -> (u64, u64) {
    let (bytes, offset) = value.split_once('@').expect("an offset");
    (offset.parse().unwrap(), bytes.parse().unwrap())
}

/// Returns segments of a playlist, each as a player fetches it, without their map.
fn segments(server: &Server, playlist: &Playlist) -> Vec<Vec<u8>> {
    let mut range = None;
    let mut all = Vec::new();
    for line in playlist.text.lines() {
        if let Some(value) = line.strip_prefix("#EXT-X-BYTERANGE:") {
            range = Some(range_of(value));
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
            assert_eq!(broken(playlist), [""; 0], "{}", playlist.text);
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

    // The two multivariant playlists have different tags, and each supports conditions.
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

/// Returns the playlist of key frames that a multivariant playlist names.
#[track_caller]
fn key_playlist(server: &Server, master: &Playlist) -> Playlist {
    let [list] = master.values("EXT-X-I-FRAME-STREAM-INF")[..] else { panic!("{}", master.text) };
    let (attributes, uri) = list.split_once(",URI=\"").expect("an address");
    assert!(attributes.starts_with("BANDWIDTH="), "{list}");
    let tracks = attributes.split_once(',').expect("more").1;
    assert_eq!(tracks, "CODECS=\"avc1.64001e\",RESOLUTION=640x360");
    let path = resolved(&master.path, uri.trim_end_matches('"'));
    let answer = fetch(server, &path, None);
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    Playlist { text: answer.text(), path }
}

/// Returns offsets of the packets with which key frames of a file begin, as marked by its
/// multiplexer.
fn announced(file: &[u8]) -> Vec<u64> {
    let is_key = |packet: &[u8; 188]| {
        let is_picture = packet[1] & 0x5f == 0x41 && packet[2] == 0;
        is_picture && packet[3] & 0x20 != 0 && packet[4] > 0 && packet[5] & 0x40 != 0
    };
    let packets = file.as_chunks::<188>().0.iter().zip(0..);
    packets.filter(|(packet, _)| is_key(packet)).map(|(_, number)| number * 188).collect()
}

#[test]
fn key_frames_of_both_forms_are_one_picture_each_behind_its_tables() {
    let server = serve();
    let copied = || server.index()["server"]["bytes_copied"].as_u64().expect("a count");
    for (name, query) in FILES.iter().flat_map(|name| [(name, ""), (name, "?ranges=no")]) {
        let (master, media) = playlists(&server, name, query);
        let playlist = key_playlist(&server, &master);
        assert_eq!(broken(&playlist), [""; 0], "{}", playlist.text);
        let is_ranges = *name != "once.ts" && query.is_empty();
        let ranges = playlist.values("EXT-X-BYTERANGE");
        assert_eq!(!ranges.is_empty(), is_ranges, "{name}{query}: {}", playlist.text);
        let file = match *name {
            "joined.ts" => [CLIP, CLIP].concat(),
            _ => CLIP.to_vec(),
        };
        let expected = announced(&file);
        if is_ranges {
            let offsets: Vec<u64> = ranges.iter().map(|value| range_of(value).0).collect();
            assert_eq!(offsets, expected, "{name}: the packets of the pictures themselves");
        }
        let breaks = playlist.values("EXT-X-DISCONTINUITY").len();
        assert_eq!(breaks, media[0].values("EXT-X-DISCONTINUITY").len(), "{name}");
        let seconds = |playlist: &Playlist| -> f64 {
            let values = playlist.values("EXTINF").into_iter();
            values.map(|value| value.trim_end_matches(',').parse::<f64>().unwrap()).sum()
        };
        let (own, film) = (seconds(&playlist), seconds(&media[0]));
        assert!((own - film).abs() < 0.001, "{name}{query}: {own} s of {film}");

        let before = copied();
        let frames = segments(&server, &playlist);
        let sent: usize = frames.iter().map(Vec::len).sum();
        let copied = copied() - before;
        // Heads of answers and tables in front, including parameter sets; no picture.
        let in_front = if *name == "once.ts" { 18 * 188 } else { 2 * 188 };
        let text = frames.len() * (1024 + in_front) + 16_384;
        assert!(copied < text as u64, "{name}{query}: {copied} of {sent} bytes copied");
        assert_eq!(frames.len(), expected.len(), "{name}{query}");
        let map = playlist.values("EXT-X-MAP");
        assert_eq!(map.len(), usize::from(is_ranges), "{}", playlist.text);
        let map = map.first().map_or(Vec::new(), |list| {
            let range = list.split_once("BYTERANGE=\"").expect("a range of the file").1;
            let path = resolved(&playlist.path, "media.ts");
            fetch(&server, &path, Some(range_of(range.trim_end_matches('"')))).body
        });
        for frame in &frames {
            assert_one_picture(&[&map[..], frame].concat(), &format!("{name}{query}"));
        }
    }
    server.stop();
}

/// Asserts that a decoder that has these packets alone shows one picture, a key frame.
#[track_caller]
fn assert_one_picture(bytes: &[u8], label: &str) {
    let packets = bytes.as_chunks::<188>().0;
    assert_eq!(bytes.len() % 188, 0, "{label}");
    let pid = |packet: &[u8; 188]| u16::from_be_bytes([packet[1] & 0x1f, packet[2]]);
    assert_eq!(packets[..2].iter().map(pid).collect::<Vec<_>>(), [0, 0x1000], "{label}: tables");
    let mut survey = Survey::default();
    packets.iter().for_each(|packet| survey.feed(packet));
    let programmes = survey.finish();
    let tracks: Vec<_> = programmes.iter().flat_map(|programme| &programme.tracks).collect();
    assert!(tracks.iter().any(|track| track.coding == Coding::H264), "{label}: {tracks:?}");
    let payload = pictures(bytes);
    let first = |nal: u8| payload.windows(4).position(|four| four == [0, 0, 1, nal]);
    let (sequence, picture, slice) = (first(0x67), first(0x68), first(0x65));
    assert!(sequence.is_some() && sequence < picture && picture < slice, "{label}: its sets");
    let slices = payload.windows(5).filter(|five| five[..3] == [0, 0, 1]).filter_map(|five| {
        let first = five[4] & 0x80 != 0;
        matches!(five[3] & 0x1f, 1..=5).then_some((five[3] & 0x1f, first))
    });
    let slices: Vec<(u8, bool)> = slices.collect();
    assert!(slices.iter().all(|&(kind, _)| kind == 5), "{label}: {slices:?}");
    let pictures = slices.iter().filter(|&&(_, is_first)| is_first).count();
    assert_eq!(pictures, 1, "{label}: {slices:?}");
    assert_eq!(packets.last().map(pid), Some(0x100), "{label}: nothing behind the picture");
}

#[test]
fn key_frames_that_no_decoder_shows_alone_are_refused_by_name() {
    let server = serve();
    let (master, media) = playlists(&server, "noise.ts", "");
    assert!(!master.text.contains("I-FRAME"), "{}", master.text);
    let path = media[0].path.replace("/ts.m3u8", "/ts-key.m3u8");
    let answer = fetch(&server, &path, None);
    let text = answer.text();
    assert_eq!(answer.status, 404, "{text}");
    assert!(text.contains("no playlist of key frames as they lie in it: a key frame is"), "{text}");
    assert_eq!(fetch(&server, &path.replace(".m3u8", "/0.ts"), None).status, 404);
    let (master, _) = playlists(&server, "each.ts", "");
    let path = key_playlist(&server, &master).path;
    assert_eq!(fetch(&server, &path.replace(".m3u8", "/9999.ts"), None).status, 404);
    server.stop();
}
