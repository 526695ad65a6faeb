// SPDX-License-Identifier: MIT OR Apache-2.0
//! Demands of RFC 8216 on playlists, for the tags that pagewire writes: one row each, with a
//! playlist that breaks it.
//!
//! Every row is checked on every playlist of every clip, and refuses its own specimen. Rules about
//! segments and about several playlists are tests of their own below.
//!
//! Sources: RFC 8216 §3, §4, §6.2.4, §7.
//! Has no rows for tags that are not written: keys, dates, ranges of dates, session data.

use std::process::Command;

use crate::clips::{CLIPS, Clip, serve};
use crate::fragments::{at_path, boxes, track_fragments, u32_at};
use crate::harness::clip::{pictures, with_sets_once};
use crate::harness::{PROGRAM, Place, Server};
use crate::playlist_rules::{MUSTS, Must};
use crate::site::{Playlist, fetch, playlists, resolved};

#[test]
fn every_rule_holds_of_every_playlist() {
    let test = "rfc8216::every_rule_holds_of_every_playlist";
    let Some(server) = serve(test) else { return };
    let mut broken = Vec::new();
    for playlist in CLIPS.iter().flat_map(|clip| playlists(&server, *clip)) {
        for must in MUSTS.iter().filter(|must| must.concerns(&playlist)) {
            if !(must.holds)(&playlist) {
                broken.push(format!("{} {}: {}", playlist.path, must.section, must.rule));
            }
        }
    }
    assert_eq!(broken, [""; 0]);
    server.stop();
}

#[test]
fn every_rule_refuses_its_specimen() {
    for Must { section, rule, on, holds, specimen } in MUSTS {
        let name = if on.is_of_masters() { "master.m3u8" } else { "1.m3u8" };
        let playlist = Playlist { path: format!("/a/{name}"), text: (*specimen).to_owned() };
        assert!(!holds(&playlist), "{section} {rule}: {specimen:?} is not refused");
    }
}

/// Media playlists of a variant and its sounds have one target duration (§6.2.4); those of key
/// frames are free.
#[test]
fn renditions_have_one_target_duration() {
    let test = "rfc8216::renditions_have_one_target_duration";
    let Some(server) = serve(test) else { return };
    for clip in CLIPS {
        let all = playlists(&server, clip);
        let timed = all
            .iter()
            .filter(|one| !one.is_master() && one.values("EXT-X-I-FRAMES-ONLY").is_empty());
        let targets: Vec<&str> = timed.map(|one| one.values("EXT-X-TARGETDURATION")[0]).collect();
        assert!(targets.windows(2).all(|pair| pair[0] == pair[1]), "{clip:?}: {targets:?}");
    }
    server.stop();
}

/// A transport stream segment holds a PAT and a PMT, at its beginning (§3.2).
#[test]
fn transport_stream_segments_begin_with_their_tables() {
    let test = "rfc8216::transport_stream_segments_begin_with_their_tables";
    let Some(server) = serve(test) else { return };
    let all = playlists(&server, Clip::Ts);
    let [_, media] = &all[..] else { panic!("{all:?}") };
    let mut segments = 0;
    let mut range = None;
    for line in media.text.lines() {
        if let Some(value) = line.strip_prefix("#EXT-X-BYTERANGE:") {
            let (bytes, offset) = value.split_once('@').expect("an offset");
            range = Some((offset.parse().unwrap(), bytes.parse().unwrap()));
        }
        if line.starts_with('#') {
            continue;
        }
        let segment = fetch(&server, &resolved(&media.path, line), range.take()).body;
        assert_eq!(segment.len() % 188, 0, "{line}");
        let pid = |packet: &[u8]| u16::from_be_bytes([packet[1], packet[2]]) & 0x1fff;
        let payload = |packet: &'_ [u8]| {
            let adaptation = packet[3] & 0x20 != 0;
            packet[4 + if adaptation { 1 + usize::from(packet[4]) } else { 0 }..].to_vec()
        };
        let mut packets = segment.chunks(188);
        // ffmpeg's own may write a service description in front.
        let pat = packets.find(|packet| pid(packet) != 0x11).expect("a packet");
        assert_eq!(pid(pat), 0, "{line}: the PAT");
        let programme = payload(pat);
        let pmt = u16::from_be_bytes([programme[11], programme[12]]) & 0x1fff;
        assert_eq!(pid(packets.next().expect("a packet")), pmt, "{line}: the PMT");
        segments += 1;
    }
    assert_eq!(segments, 3, "{}", media.text);
    server.stop();
}

/// A segment has what initialises a decoder (§3), also of a film that has its parameter sets once.
/// Its playlist names no ranges of the film.
#[test]
fn segments_of_a_film_with_parameter_sets_at_its_start_alone_have_them() {
    let film = with_sets_once();
    let place = Place::new();
    place.put("once.ts", &film);
    place.put("each.ts", include_bytes!("../../assets/clip.ts"));
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    let media = |name: &str| {
        server.await_stream(name);
        let master = format!("/{name}/master.m3u8");
        let text = fetch(&server, &master, None).text();
        let uri = text.lines().find(|line| line.ends_with("/ts.m3u8")).expect("a variant");
        let path = resolved(&master, uri);
        Playlist { text: fetch(&server, &path, None).text(), path }
    };
    let (once, each) = (media("once.ts"), media("each.ts"));
    assert!(each.text.contains("#EXT-X-BYTERANGE"), "{}", each.text);
    assert!(!once.text.contains("#EXT-X-BYTERANGE"), "{}", once.text);
    assert_eq!(once.values("EXTINF"), each.values("EXTINF"));
    let (mut segments, mut in_front) = (0, 0);
    for uri in once.text.lines().filter(|line| !line.starts_with('#')) {
        let answer = fetch(&server, &resolved(&once.path, uri), None);
        let bytes = answer.body.len().to_string();
        assert_eq!(answer.header("content-length"), Some(&*bytes), "{uri}");
        let payload = pictures(&answer.body);
        let first = |nal: u8| payload.windows(4).position(|four| four == [0, 0, 1, nal]);
        let (sequence, picture, slice) = (first(0x67), first(0x68), first(0x65));
        assert!(sequence.is_some() && sequence < picture && picture < slice, "{uri}");
        segments += 1;
        in_front += answer.body.len();
    }
    assert_eq!(in_front - film.len(), (segments - 1) * (2 + 16) * 188, "{}", once.text);
    server.stop();
}

/// Initialization sections and segments of fragmented MP4 (§3.3).
#[test]
fn fragments_are_laid_out_as_demanded() {
    let test = "rfc8216::fragments_are_laid_out_as_demanded";
    let Some(server) = serve(test) else { return };
    let mut segments = 0;
    for clip in [Clip::Mp4, Clip::TwoSounds, Clip::Renditions] {
        for playlist in playlists(&server, clip).into_iter().skip(1) {
            let map = playlist.values("EXT-X-MAP")[0];
            let uri = map.split('"').nth(1).expect("a URI");
            let init = fetch(&server, &resolved(&playlist.path, uri), None).body;
            assert_init(&init);
            let uris = playlist.text.lines().filter(|line| !line.starts_with('#'));
            for uri in uris {
                let segment = fetch(&server, &resolved(&playlist.path, uri), None).body;
                assert_segment(&segment, uri);
                segments += 1;
            }
        }
    }
    // Of a film three segments and eight key frames; of two sounds three of each track.
    assert_eq!(segments, (3 + 8) + (3 * 3 + 8) + 2 * (3 + 8));
    server.stop();
}

#[track_caller]
fn assert_init(init: &[u8]) {
    let kinds: Vec<String> = boxes(init).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["ftyp", "moov"]);
    let ftyp = at_path(init, "ftyp")[0];
    let brands: Vec<&[u8]> = ftyp.chunks(4).collect();
    let is_six = |brand: &&[u8]| brand.starts_with(b"iso") && (b'6'..=b'9').contains(&brand[3]);
    assert!(brands.iter().any(is_six), "compatible with iso6: {brands:?}");
    let movie = boxes(at_path(init, "moov")[0]);
    let last_track = movie.iter().rposition(|(kind, _)| kind == "trak").expect("a track");
    let extends = movie.iter().position(|(kind, _)| kind == "mvex").expect("movie extends");
    assert!(extends > last_track, "mvex follows the last track");
    let duration = |header: &[u8]| u32_at(header, if header[0] == 0 { 16 } else { 28 });
    assert_eq!(duration(at_path(init, "moov/mvhd")[0]), 0, "duration of the movie");
    for header in at_path(init, "moov/trak/tkhd") {
        assert_eq!(u32_at(header, if header[0] == 0 { 20 } else { 32 }), 0, "of a track");
    }
    for table in ["stts", "stsc", "stco"] {
        for found in at_path(init, &format!("moov/trak/mdia/minf/stbl/{table}")) {
            assert_eq!(u32_at(found, 4), 0, "entries of {table}");
        }
    }
    for sizes in at_path(init, "moov/trak/mdia/minf/stbl/stsz") {
        assert_eq!(u32_at(sizes, 8), 0, "entries of stsz");
    }
}

#[track_caller]
fn assert_segment(segment: &[u8], name: &str) {
    let kinds: Vec<String> = boxes(segment).into_iter().map(|(kind, _)| kind).collect();
    let begins = kinds.iter().filter(|kind| *kind != "styp").map(String::as_str);
    assert_eq!(begins.collect::<Vec<_>>(), ["moof", "mdat"], "{name}");
    let tracks = track_fragments(segment);
    assert!(!tracks.is_empty(), "{name}");
    for (track, fragment) in tracks {
        // No base-data-offset, default-base-is-moof: addresses are relative to the fragment.
        assert_eq!(fragment.flags & 0x2_0001, 0x2_0000, "{name}: {track}");
        assert!(fragment.begins_with_sync, "independent segments: {name}: {track}");
    }
}
