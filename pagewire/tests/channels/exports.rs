// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists, guides and announcements of channels: `/channels.m3u`, `/channels.xml`,
//! `/channel/NAME.sdp`, and SAP, which is withdrawn at the end.
//!
//! Titles are hostile. Sources: RFC 2974 §6 (SAP), RFC 8866 §5 (SDP), xmltv.dtd.

use serde_json::Value;

use crate::capture::{Capture, Datagram};
use crate::clips::{Streams, clip};
use crate::harness::answer::{Answer, http};
use crate::harness::{Place, Server};
use crate::network::{self, Owner};
use crate::{await_state, serve, state};

const LOOPBACK: &str = "ip link set lo up multicast on
    ip route add 224.0.0.0/4 dev lo";
const TITLE: &str = "A & \\\"B\\\" <news>";
/// Groups of announcements: of the organisation-local scope, and global (RFC 2974 §3).
const SAP_GROUP: &str = "239.195.255.255:9875";

#[test]
fn exports_and_announcements() {
    network::run(Owner::User, LOOPBACK, "exports::channels_are_listed_announced_and_withdrawn");
}

#[track_caller]
fn document(server: &Server, path: &str, media_type: &str) -> String {
    let answer: Answer = http(server.http, "GET", path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.head);
    let found = answer.header("Content-Type").unwrap_or_default();
    assert!(found.starts_with(media_type), "{path}: {found}");
    answer.text()
}

#[test]
#[ignore = "in a network of its own"]
fn channels_are_listed_announced_and_withdrawn() {
    let Some(bytes) = clip("exports_and_announcements", 40, 50, Streams::Both) else { return };
    let place = Place::new();
    place.put("a & b.ts", &bytes);
    let announcements = Capture::group(SAP_GROUP, "lo");
    let server = serve(
        &place,
        &format!(
            "[channel.news]\ntitle = \"{TITLE}\"\nplaylist = [\"a & b.ts\"]\ninterface = \"lo\"\n\
             send = [\"rtp://239.192.1.1:5004\"]\nannounce = true\n\
             [channel.quiet]\nplaylist = [\"a & b.ts\"]\ninterface = \"lo\"\n\
             send = [\"udp://239.192.1.2:5006\"]\n"
        ),
    );
    await_state(&server, 0, "it plays", |state| state["on_air"].is_string());

    assert_documented(&state(&server, 0));

    let list = document(&server, "/channels.m3u", "audio/x-mpegurl");
    let lines: Vec<&str> = list.lines().collect();
    assert!(lines[0].starts_with("#EXTM3U url-tvg=\"http://"), "{list}");
    let urls: Vec<&&str> = lines.iter().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(urls, [&"rtp://@239.192.1.1:5004", &"udp://@239.192.1.2:5006"], "{list}");
    assert!(lines[1].starts_with("#EXTINF:-1 tvg-id=\"news\""), "{list}");
    assert!(lines[1].ends_with(",A & \"B\" <news>"), "{list}");
    assert_eq!(lines.len(), 5, "{list}");

    let guide = document(&server, "/channels.xml", "application/xml");
    assert_well_formed(&guide);
    assert!(guide.contains("<channel id=\"news\">") && guide.contains("A &amp; "), "{guide}");
    assert!(guide.matches("<programme ").count() > 10, "a day of files of 2 s");

    let description = document(&server, "/channel/news.sdp", "application/sdp");
    assert_session(description.as_bytes());
    assert_eq!(http(server.http, "GET", "/channel/none.sdp").status, 404);
    for (form, name) in [("hls", "master.m3u8"), ("dash", "manifest.mpd")] {
        let address = format!("http://{}/channel/news/{name}", server.http);
        assert_eq!(state(&server, 0)[form], *address);
    }
    let page = http(server.http, "GET", "/").text();
    assert!(page.contains("<a href=\"/channel/news/player.html\">news</a>"), "{page}");
    for name in ["master.m3u8", "manifest.mpd", "player.html"] {
        let none = http(server.http, "GET", &format!("/channel/none/{name}"));
        assert!(none.status == 404 && !none.text().contains("HLS"), "{}", none.text());
    }

    announcements.await_any("an announcement", |_| true);
    let log = server.stop();
    assert!(log.contains("channel.news: on the air"), "{log}");
    announcements.await_any("the end of the announcement", |datagram| sap(datagram).is_deletion);
    let packets: Vec<Sap> = announcements.stop().iter().map(sap).collect();
    let [first, .., last] = &packets[..] else { panic!("an announcement and its end") };
    assert!(!first.is_deletion && last.is_deletion, "{packets:?}");
    assert_eq!((first.hash, first.source), (last.hash, last.source));
    assert_session(&first.description);
    let origin = |sap: &Sap| {
        let text = String::from_utf8_lossy(&sap.description).into_owned();
        text.lines().find(|line| line.starts_with("o=")).map(str::to_owned)
    };
    assert!(origin(first).is_some() && origin(first) == origin(last), "{packets:?}");
    // Only one channel is announced.
    assert!(packets.iter().all(|sap| sap.hash == first.hash), "{packets:?}");
}

/// Asserts that the document for operators has each field of a channel's state in a row.
#[track_caller]
fn assert_documented(state: &Value) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/channels.md");
    let document = std::fs::read_to_string(path).expect("it lies in docs");
    let (_, chapter) = document.split_once("## `channels.json`").expect("a chapter of it");
    let rows = chapter.split("\n## ").next().unwrap_or_default();
    let heads: Vec<&str> = rows.lines().filter_map(|row| row.split('|').nth(1)).collect();
    let is_in = |field: &String| heads.iter().any(|head| head.contains(&format!("`{field}`")));
    let fields = state.as_object().expect("an object").keys();
    let missing: Vec<&String> = fields.filter(|field| !is_in(field)).collect();
    assert!(missing.is_empty(), "docs/channels.md names no {missing:?}");
}

/// Asserts the description of the channel `news`: lines in their order, with the line ends of RFC
/// 8866.
#[track_caller]
fn assert_session(description: &[u8]) {
    let text = std::str::from_utf8(description).expect("UTF-8");
    assert!(text.ends_with("\r\n") && !text.replace("\r\n", "").contains(['\r', '\n']), "{text}");
    let kinds: String = text.lines().map(|line| &line[..1]).collect();
    assert!(kinds.starts_with("vosct") && kinds.matches('m').count() == 1, "{kinds}");
    assert!(text.lines().all(|line| line.as_bytes()[1] == b'='), "{text}");
    for line in ["v=0", "s=A & \"B\" <news>", "m=video 5004 RTP/AVP 33"] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(text.contains("c=IN IP4 239.192.1.1/1\r\n"), "the group and its TTL: {text}");
}

/// Asserts that elements are closed in order and that no other text looks like markup.
#[track_caller]
fn assert_well_formed(xml: &str) {
    let mut open = Vec::new();
    let mut rest = xml;
    while let Some(at) = rest.find('<') {
        let end = rest[at..].find('>').map(|end| at + end).expect("an end of the tag");
        let text = &rest[..at];
        let entities = text.match_indices('&').all(|(at, _)| {
            ["&amp;", "&lt;", "&gt;", "&quot;", "&apos;"].iter().any(|e| text[at..].starts_with(e))
        });
        assert!(entities && !text.contains('>'), "{text}");
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        let name = tag.trim_start_matches('/').split([' ', '/']).next().expect("a name");
        match (tag.starts_with(['?', '!']), tag.starts_with('/'), tag.ends_with('/')) {
            (true, ..) | (_, _, true) => {}
            (_, true, _) => assert_eq!(open.pop(), Some(name), "{tag}"),
            _ => open.push(name),
        }
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} are open");
}

/// A SAP packet.
#[derive(Debug)]
struct Sap {
    is_deletion: bool,
    hash: u16,
    source: [u8; 4],
    description: Vec<u8>,
}

#[track_caller]
fn sap(datagram: &Datagram) -> Sap {
    let bytes = &datagram.bytes;
    // Version 1, IPv4, no encryption, no compression, no authentication.
    assert_eq!((bytes[0] & !0x04, bytes[1]), (0x20, 0), "{bytes:?}");
    let rest = &bytes[8..];
    let description = rest.strip_prefix(b"application/sdp\0").expect("the payload type");
    Sap {
        is_deletion: bytes[0] & 0x04 != 0,
        hash: u16::from_be_bytes([bytes[2], bytes[3]]),
        source: bytes[4..8].try_into().expect("4 bytes"),
        description: description.to_vec(),
    }
}
