// SPDX-License-Identifier: MIT OR Apache-2.0
//! Playlists and MPDs read by third-party parsers, and every listed segment fetched: it exists, and
//! has the stated duration and times.
//!
//! The parsers are the crates m3u8-rs and dash-mpd-core (the reader of dash-mpd), and hls-parser of
//! npm, which refuses violations of RFC 8216.
//!
//! Sources: RFC 8216 §4.3.4.2 (rates), §6.2.4 (renditions); ISO/IEC 23009-1 §5.3.9.6 (timelines).
//! Does not decode.

use std::process::Command;

use dash_mpd_core::{Representation, SegmentTemplate};
use m3u8_rs::{MediaPlaylist, parse_master_playlist_res, parse_media_playlist_res};

use crate::clips::{CLIPS, Clip, LIMIT, SECONDS, serve};
use crate::fragments::{timescales, track_fragments};
use crate::harness::Server;
use crate::harness::watchdog;
use crate::site::{Playlist, fetch, manifest, playlists, resolved};
use crate::tool;

/// A media playlist's fetched segments.
struct Fetched {
    seconds: f64,
    bytes: u64,
    /// Highest rate of a segment of at least a second.
    peak: f64,
    target_s: u64,
}

#[test]
fn every_playlist_is_read_and_every_segment_is_there() {
    let test = "parsers::every_playlist_is_read_and_every_segment_is_there";
    let Some(server) = serve(test) else { return };
    for clip in CLIPS {
        let all = playlists(&server, clip);
        let (master, media) = all.split_first().expect("a master");
        let read = parse_master_playlist_res(master.text.as_bytes());
        let read = read.unwrap_or_else(|error| panic!("{error:?} {}", master.text));
        let of = |uri: &str| {
            let path = resolved(&master.path, uri);
            let found = media.iter().find(|one| one.path == path);
            fetched(&server, found.unwrap_or_else(|| panic!("{path} in {}", master.text)))
        };
        let sounds: Vec<Fetched> =
            read.alternatives.iter().filter_map(|one| one.uri.as_deref()).map(of).collect();
        let expected = if clip == Clip::TwoSounds { 2 } else { 0 };
        assert_eq!(sounds.len(), expected, "{}", master.text);
        let mut key_frames = 0;
        for variant in &read.variants {
            let own = of(&variant.uri);
            let label = format!("{clip:?}: {variant:?}");
            // Exactly the duration of the pictures.
            assert!((own.seconds - SECONDS).abs() < 0.001, "{label}: {} s", own.seconds);
            if variant.is_i_frame {
                key_frames += 1;
                assert!(own.peak <= variant.bandwidth as f64, "{label}: {}", own.peak);
                continue;
            }
            // Apple's tolerance is 10 %; the sum of two peaks is no less than the peak of both.
            let peak = |all: &[Fetched]| all.iter().map(|one| one.peak).fold(0.0, f64::max);
            let mean = |one: &Fetched| one.bytes as f64 * 8.0 / one.seconds;
            let means = sounds.iter().map(mean).fold(0.0, f64::max);
            let (peak, mean) = (own.peak + peak(&sounds), mean(&own) + means);
            let (stated, stated_mean) = (variant.bandwidth as f64, variant.average_bandwidth);
            let stated_mean = stated_mean.expect("an average") as f64;
            assert!((peak * 0.999..peak * 1.1).contains(&stated), "{label}: {peak}");
            assert!((mean * 0.999..mean * 1.1).contains(&stated_mean), "{label}: {mean}");
            assert!(variant.codecs.is_some(), "{label}");
            for sound in &sounds {
                assert_eq!(sound.target_s, own.target_s, "RFC 8216 §6.2.4: {label}");
                assert!((sound.seconds - own.seconds).abs() < 0.1, "{label}");
            }
        }
        assert_eq!(key_frames, clip.pictures(), "{}", master.text);
    }
    server.stop();
}

/// Fetches every segment of a media playlist.
#[track_caller]
fn fetched(server: &Server, playlist: &Playlist) -> Fetched {
    let read = parse_media_playlist_res(playlist.text.as_bytes());
    let read: MediaPlaylist = read.unwrap_or_else(|error| panic!("{error:?} {}", playlist.text));
    assert!(read.end_list && !read.segments.is_empty(), "{}", playlist.text);
    assert!(read.unknown_tags.is_empty(), "{:?}", read.unknown_tags);
    let mut all = Fetched { seconds: 0.0, bytes: 0, peak: 0.0, target_s: read.target_duration };
    let mut scales = None;
    for (number, segment) in read.segments.iter().enumerate() {
        if let Some(map) = &segment.map {
            let range = map.byte_range.as_ref();
            let range = range.map(|range| (range.offset.expect("an offset"), range.length));
            let init = fetch(server, &resolved(&playlist.path, &map.uri), range);
            assert_eq!(init.status, if range.is_some() { 206 } else { 200 }, "{}", init.head);
            // Transport streams have tables there.
            scales = range.is_none().then(|| timescales(&init.body));
        }
        let path = resolved(&playlist.path, &segment.uri);
        let range = segment.byte_range.as_ref();
        let range = range.map(|range| (range.offset.expect("an offset"), range.length));
        let answer = fetch(server, &path, range);
        assert_eq!(answer.status, if range.is_some() { 206 } else { 200 }, "{}", answer.head);
        let bytes = answer.body.len() as u64;
        assert!(bytes > 0 && range.is_none_or(|(_, length)| length == bytes), "{path}: {bytes}");
        let seconds = f64::from(segment.duration);
        if let Some(scales) = scales.as_ref().filter(|_| !read.i_frames_only) {
            let lasts = fragment_seconds(&answer.body, scales);
            let is_last = number + 1 == read.segments.len();
            // At most one frame of sound is in the previous or next segment.
            let tolerance = if is_last { 0.1 } else { 0.05 };
            assert!((lasts - seconds).abs() < tolerance, "{path}: {lasts} s, stated {seconds}");
        }
        let rate = bytes as f64 * 8.0 / seconds;
        if seconds >= 1.0 {
            all.peak = rate.max(all.peak);
        }
        all.seconds += seconds;
        all.bytes += bytes;
    }
    all
}

/// Returns the duration of a segment: that of its first track.
fn fragment_seconds(segment: &[u8], scales: &std::collections::BTreeMap<u32, u32>) -> f64 {
    let fragments = track_fragments(segment);
    let (track, fragment) = fragments.first_key_value().expect("a track");
    fragment.duration as f64 / f64::from(scales[track])
}

/// Reads files and prints the faults of each.
const CHECK: &str = "
    const HLS = require('hls-parser'), fs = require('fs');
    HLS.setOptions({strictMode: true});
    for (const path of process.argv.slice(1)) {
        try {
            HLS.parse(fs.readFileSync(path, 'utf8'));
        } catch (error) {
            console.log(path, error.message);
        }
    }";

#[test]
fn every_mpd_is_read_and_every_segment_has_its_time() {
    let test = "parsers::every_mpd_is_read_and_every_segment_has_its_time";
    let Some(server) = serve(test) else { return };
    for clip in CLIPS {
        let (text, path) = manifest(&server, clip);
        let mpd = dash_mpd_core::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(dash_mpd_core::check_conformity(&mpd), [""; 0], "{text}");
        let total = mpd.mediaPresentationDuration.expect("it ends").as_secs_f64();
        assert!((total - SECONDS).abs() < 0.1, "{total}");
        let longest = mpd.maxSegmentDuration.expect("it is static").as_secs_f64();
        let [period] = &mpd.periods[..] else { panic!("{text}") };
        let expected = if clip == Clip::TwoSounds { 3 } else { 2 };
        assert_eq!(period.adaptations.len(), expected, "{text}");
        for set in &period.adaptations {
            let is_video = set.contentType.as_deref() == Some("video");
            let expected = if is_video { clip.pictures() } else { 1 };
            assert_eq!(set.representations.len(), expected, "{text}");
            for representation in &set.representations {
                let ended = timeline_end(&server, &path, representation, longest);
                assert!((ended - total).abs() < 0.1, "{ended} of {total}: {text}");
            }
        }
    }
    server.stop();
}

/// Fetches every segment of a representation, and compares its time with the timeline's; returns
/// the end in seconds of the presentation.
fn timeline_end(server: &Server, path: &str, about: &Representation, longest: f64) -> f64 {
    let template: &SegmentTemplate = about.SegmentTemplate.as_ref().expect("a template");
    let scale = template.timescale.expect("a time scale");
    let init = template.initialization.as_ref().expect("an initialization section");
    let init = fetch(server, &resolved(path, init), None);
    assert_eq!(init.status, 200, "{}", init.head);
    let scales = timescales(&init.body);
    let (&track, &units) = scales.first_key_value().expect("a track");
    assert_eq!((scales.len(), u64::from(units)), (1, scale));
    let timeline = template.SegmentTimeline.as_ref().expect("a timeline");
    let mut time = timeline.segments[0].t.expect("the first has a time");
    let mut number = template.startNumber.expect("a start");
    let media = template.media.as_ref().expect("a template of segments");
    for entry in &timeline.segments {
        time = entry.t.unwrap_or(time);
        for _ in 0..=entry.r.unwrap_or(0) {
            let path = resolved(path, &media.replace("$Number$", &number.to_string()));
            let answer = fetch(server, &path, None);
            assert_eq!(answer.status, 200, "{}", answer.head);
            let fragment = track_fragments(&answer.body)[&track];
            assert_eq!(fragment.start, time, "{path}: {fragment:?}");
            assert_eq!(fragment.end, time + entry.d, "{path}: {fragment:?}");
            assert!(entry.d as f64 / scale as f64 <= longest + 1e-9, "{path}: {}", entry.d);
            let seconds = entry.d as f64 / scale as f64;
            let rate = answer.body.len() as f64 * 8.0 / seconds;
            let stated = about.bandwidth.expect("a rate") as f64;
            assert!(rate <= stated * 1.01 || seconds < 1.0, "{path}: {rate} of {stated}");
            assert!(fragment.begins_with_sync, "{path}: {fragment:?}");
            (time, number) = (time + entry.d, number + 1);
        }
    }
    // No further segment exists.
    let behind = resolved(path, &media.replace("$Number$", &number.to_string()));
    assert_eq!(fetch(server, &behind, None).status, 404);
    let offset = template.presentationTimeOffset.unwrap_or(0);
    (time - offset) as f64 / scale as f64
}

mod clients {
    use super::*;

    #[test]
    fn hls_parser_finds_no_rule_broken() {
        let test = "parsers::clients::hls_parser_finds_no_rule_broken";
        let Some(parser) = tool(test, "node_modules/hls-parser") else { return };
        let modules = parser.parent().expect("a folder of modules");
        let Some(server) = serve(test) else { return };
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new("node");
        command.env("NODE_PATH", modules).args(["-e", CHECK]);
        for (number, playlist) in
            CLIPS.iter().flat_map(|clip| playlists(&server, *clip)).enumerate()
        {
            let path = folder.path().join(format!("{number}.m3u8"));
            std::fs::write(&path, &playlist.text).expect("written");
            command.arg(path);
        }
        // The parser does refuse an invalid file.
        let wrong = folder.path().join("wrong.m3u8");
        let text = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:9,\na.ts\n#EXT-X-ENDLIST\n";
        std::fs::write(&wrong, text).expect("written");
        let outcome = match watchdog::run(command.arg(&wrong), LIMIT) {
            Ok(outcome) => String::from_utf8_lossy(&outcome.succeeded()).into_owned(),
            Err(reason) => return eprintln!("skip: {test}: {reason}"),
        };
        let refused: Vec<&str> = outcome.lines().collect();
        assert!(matches!(refused[..], [one] if one.contains("wrong.m3u8")), "{outcome}");
        server.stop();
    }
}
