// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requirements of RFC 8216 on playlists, for the tags that pagewire writes: one row each, with a
//! playlist that breaks it.
//!
//! Every row is checked on every playlist of every clip, plain and enciphered, with subtitles and
//! with sounds of several codecs, and refuses its own specimen; playlists of recordings and
//! channels are checked where they are played. Rules about segments and about several playlists are
//! tests of their own below.
//!
//! Sources: RFC 8216 §3, §4, §6.2.4, §7; draft-pantos-hls-rfc8216bis §4.4.3, §4.4.4, §4.4.5.
//! Has no rows for tags that are not written: ranges of dates, session data, steering.

use std::process::Command;

use crate::clips::{CLIPS, Clip, serve, serve_files, serve_with};
use crate::enciphered::secret;
use crate::fragments::{at_path, boxes, track_fragments, u32_at};
use crate::harness::clip::{pictures, with_sets_once};
use crate::harness::{PROGRAM, Place, Server, await_ok};
use crate::live_rules::RELOADS;
use crate::playlist_rules::{Must, broken, musts};
use crate::segment_list::{attribute, segments};
use crate::site::{Playlist, fetch, playlists, playlists_below, resolved};

#[test]
fn every_rule_holds_of_every_playlist() {
    let test = "rfc8216::every_rule_holds_of_every_playlist";
    let Some(server) = serve(test) else { return };
    for clip in CLIPS {
        assert_rules(&server, clip.name(), "");
    }
    server.stop();
}

/// Asserts the rules of all playlists of a complete file or folder.
#[track_caller]
fn assert_rules(server: &Server, name: &str, query: &str) -> Vec<Playlist> {
    let all = playlists_below(server, name, query);
    for playlist in &all {
        assert_eq!(broken(playlist), [""; 0], "{}: {}", playlist.path, playlist.text);
        let kind = playlist.values("EXT-X-PLAYLIST-TYPE");
        assert!(playlist.is_master() || kind == ["VOD"], "{}", playlist.text);
    }
    assert_key_frames(&all);
    assert_codecs(server, &all);
    all
}

/// Asserts that the playlists that a master playlist names for key frames are of key frames, and no
/// others are (§4.3.4.3).
#[track_caller]
fn assert_key_frames(all: &[Playlist]) {
    let (master, media) = all.split_first().expect("a master");
    let uris = master.values("EXT-X-I-FRAME-STREAM-INF").into_iter();
    let uris = uris.map(|list| attribute(list, "URI").expect("a URI").trim_matches('"'));
    let named: Vec<String> = uris.map(|uri| resolved(&master.path, uri)).collect();
    for playlist in media {
        let is_of_frames = !playlist.values("EXT-X-I-FRAMES-ONLY").is_empty();
        assert_eq!(is_of_frames, named.contains(&playlist.path), "{}", playlist.path);
    }
}

/// Asserts that each variant names the codecs of its media playlists and of the groups that it
/// refers to, and no others (§4.3.4.1.1, §4.3.4.2); variants of transport streams are not checked.
#[track_caller]
fn assert_codecs(server: &Server, all: &[Playlist]) {
    let (master, media) = all.split_first().expect("a master");
    let lines: Vec<&str> = master.text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let Some(list) = line.strip_prefix("#EXT-X-STREAM-INF:") else { continue };
        let own = ["AUDIO", "SUBTITLES"].into_iter().filter_map(|kind| attribute(list, kind));
        let own: Vec<&str> = own.collect();
        let members = master.values("EXT-X-MEDIA").into_iter();
        let members = members.filter(|member| {
            attribute(member, "GROUP-ID").is_some_and(|group| own.contains(&group))
        });
        let uris = members.filter_map(|member| Some(attribute(member, "URI")?.trim_matches('"')));
        let mut found = Vec::new();
        for uri in uris.chain([lines[at + 1]]) {
            let path = resolved(&master.path, uri);
            let playlist = media.iter().find(|one| one.path == path).expect("it is listed");
            found.extend(sample_entries(server, playlist));
        }
        found.sort_unstable();
        found.dedup();
        let named = attribute(list, "CODECS").expect("codecs").trim_matches('"').split(',');
        let named = named.map(|codec| codec.split('.').next().unwrap_or(codec).to_owned());
        let mut named: Vec<String> = named.collect();
        named.sort_unstable();
        named.dedup();
        assert!(found.is_empty() || found == named, "{found:?}: {list}");
    }
}

/// Returns types of the sample entries in the initialization section of a playlist, in the form of
/// CODECS.
fn sample_entries(server: &Server, playlist: &Playlist) -> Vec<String> {
    let Some(map) = segments(playlist)[0].map else { return Vec::new() };
    let uri = attribute(map, "URI").expect("a URI").trim_matches('"');
    let init = fetch(server, &resolved(&playlist.path, uri), None).body;
    let tables = at_path(&init, "moov/trak/mdia/minf/stbl/stsd");
    let entries = tables.into_iter().flat_map(|table| boxes(&table[8..]));
    let name = |(kind, entry): (String, &[u8])| {
        let at = entry.windows(4).position(|four| four == b"frma");
        let clear = at.map(|at| String::from_utf8_lossy(&entry[at + 4..at + 8]).into_owned());
        let is_enciphered = kind.starts_with("enc");
        assert_eq!(is_enciphered, clear.is_some(), "{kind}");
        clear.unwrap_or(kind).to_lowercase()
    };
    entries.map(name).collect()
}

/// Keys are named as required, with the key formats that players need (§4.3.2.4).
#[test]
fn every_rule_holds_where_segments_are_enciphered() {
    let test = "rfc8216::every_rule_holds_where_segments_are_enciphered";
    let (_folder, secret) = secret();
    let secret = secret.to_str().expect("a path in UTF-8");
    for (cipher, queries) in [("aes-128", &[""][..]), ("cbcs", &["", "?keyformat=org.w3.clearkey"])]
    {
        let options = ["--hls-cipher", cipher, "--hls-key-file", secret];
        let Some(server) = serve_with(test, &options) else { return };
        for (clip, query) in CLIPS.iter().flat_map(|clip| queries.iter().map(move |q| (clip, q))) {
            for playlist in &assert_rules(&server, clip.name(), query)[1..] {
                let keyed = segments(playlist).iter().filter(|one| one.keys.len() == 1).count();
                assert!(keyed > 2 && keyed == segments(playlist).len(), "{}", playlist.text);
            }
        }
        server.stop();
    }
}

const CUES: &str = "1\n00:00:01,000 --> 00:00:02,000\nHello\n";

/// Subtitles beside files of each kind, and sounds of two codecs: where both codecs have the same
/// languages, or one has all, their groups have the same members (§4.3.4.1.1).
#[test]
fn every_rule_holds_with_subtitles_and_sounds_of_two_codecs() {
    let test = "rfc8216::every_rule_holds_with_subtitles_and_sounds_of_two_codecs";
    let texts = ["film.en.srt", "film.de.forced.srt", "codecs.fr.srt", "title/en.sdh.srt"];
    let texts = texts.map(|name| (name, CUES));
    let films = ["film.mp4", "film.ts", "codecs.mp4", "alike.mp4", "sounds.mp4", "apart.mp4"];
    let films = [&films[..], &["title/large.mp4", "title/small.mp4"]].concat();
    let Some(server) = serve_files(test, &films, &texts, &[]) else { return };
    for (name, subtitles, sounds) in [
        ("film.mp4", 2, &[][..]),
        ("film.ts", 2, &[]),
        ("codecs.mp4", 1, &["German", "French", "German", "French"]),
        ("alike.mp4", 0, &["German", "German"]),
        ("sounds.mp4", 0, &["German", "French"]),
        ("title", 1, &[]),
    ] {
        let master = format!("/{name}/master.m3u8");
        await_ok(|| {
            let text = fetch(&server, &master, None).text();
            let found = text.matches("TYPE=SUBTITLES").count();
            if found == subtitles { Ok(()) } else { Err(text) }
        });
        let all = assert_rules(&server, name, "");
        let lists = all[0].values("EXT-X-MEDIA").into_iter();
        let lists = lists.filter(|list| attribute(list, "TYPE") == Some("AUDIO"));
        let names = lists.filter_map(|list| Some(attribute(list, "NAME")?.trim_matches('"')));
        assert_eq!(names.collect::<Vec<_>>(), sounds, "{}", all[0].text);
    }
    // With a member of a rare codec in each group, few players could play any group; the groups
    // therefore differ, against the rule.
    let all = playlists_below(&server, "apart.mp4", "");
    let rule =
        "4.3.4.1.1: groups of one type have the same members, alike but for URI and CHANNELS";
    assert_eq!(broken(&all[0]), [rule], "{}", all[0].text);
    assert_codecs(&server, &all);
    server.stop();
}

/// BANDWIDTH of a film of sounds alone is that of the largest of them (§4.3.4.2).
#[test]
fn a_variant_of_sounds_has_the_rate_of_the_largest() {
    let test = "rfc8216::a_variant_of_sounds_has_the_rate_of_the_largest";
    let Some(server) = serve_files(test, &["sounds.mp4"], &[], &[]) else { return };
    let all = playlists_below(&server, "sounds.mp4", "");
    let list = all[0].values("EXT-X-STREAM-INF")[0];
    let rate = |name| attribute(list, name).and_then(|n| n.parse::<f64>().ok()).expect("a rate");
    let mut largest = 0.0;
    for playlist in &all[1..] {
        let (mut seconds, mut bytes) = (0.0, 0);
        for segment in segments(playlist) {
            bytes += fetch(&server, &resolved(&playlist.path, segment.uri), None).body.len();
            seconds += segment.seconds();
        }
        largest = f64::max(largest, bytes as f64 * 8.0 / seconds);
    }
    let stated = rate("AVERAGE-BANDWIDTH");
    assert!((largest * 0.999..largest * 1.01).contains(&stated), "{largest}: {list}");
    assert!(rate("BANDWIDTH") >= stated, "{list}");
    server.stop();
}

#[test]
fn every_rule_refuses_its_specimen() {
    for Must { section, rule, on, holds, specimen } in musts() {
        let name = if on.is_of_masters() { "master.m3u8" } else { "1.m3u8" };
        let playlist = Playlist { path: format!("/a/{name}"), text: (*specimen).to_owned() };
        assert!(!holds(&playlist), "{section} {rule}: {specimen:?} is not refused");
    }
    for must in RELOADS {
        let copy = |text: &str| Playlist { path: "/a/1.m3u8".to_owned(), text: text.to_owned() };
        let (before, after) = (copy(must.specimen.0), copy(must.specimen.1));
        assert!(!(must.holds)(&before, &after), "{} {}: {after:?}", must.section, must.rule);
        assert!((must.holds)(&before, &before), "{} {}: {before:?}", must.section, must.rule);
    }
}

/// Media playlists of a variant and its sounds have one target duration (§6.2.4); playlists of key
/// frames may differ.
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
    let media = all.iter().find(|one| one.path.ends_with("/ts.m3u8")).expect("a variant");
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

/// A segment has the initialisation data of a decoder (§3), also of a film whose parameter sets
/// occur once. Its playlist names no ranges of the film.
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
    // A film has three segments and eight key frames; two sounds have three of each track.
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
