// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segments of a film as listed by its playlists and its MPD, and their content.
//!
//! Does not parse segments of MPEG-TS.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use dash_mpd_core::SegmentTemplate;
use m3u8_rs::parse_media_playlist_res;

use crate::clips::ffmpeg;
use crate::fragments::{TrackFragment, track_fragments};
use crate::harness::Server;
use crate::site::{Playlist, fetch, manifest_of, playlists_below, resolved};

/// A segment of HLS.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ListedSegment {
    pub(crate) path: String,
    /// Offset and number of bytes.
    pub(crate) range: Option<(u64, u64)>,
    pub(crate) seconds: f64,
    pub(crate) is_break: bool,
}

/// A media playlist and its segments.
#[derive(Debug, Clone)]
pub(crate) struct ListedPlaylist {
    pub(crate) playlist: Playlist,
    pub(crate) init: Option<String>,
    pub(crate) target_s: u64,
    pub(crate) segments: Vec<ListedSegment>,
}

impl ListedPlaylist {
    /// Returns the duration of each segment, in whole seconds.
    pub(crate) fn seconds(&self) -> Vec<u64> {
        self.segments.iter().map(|segment| segment.seconds.round() as u64).collect()
    }

    pub(crate) fn total_s(&self) -> f64 {
        self.segments.iter().map(|segment| segment.seconds).sum()
    }

    /// Returns the numbers of the segments whose timestamps do not continue the previous ones.
    pub(crate) fn breaks(&self) -> Vec<usize> {
        let segments = self.segments.iter().enumerate();
        segments.filter_map(|(number, segment)| segment.is_break.then_some(number)).collect()
    }
}

/// Returns the multivariant playlist of a film, and its media playlists except that of the key
/// frames.
#[track_caller]
pub(crate) fn hls(server: &Server, name: &str) -> (Playlist, Vec<ListedPlaylist>) {
    let mut all = playlists_below(server, name, "");
    let master = all.remove(0);
    let timed = all.into_iter().filter(|one| one.values("EXT-X-I-FRAMES-ONLY").is_empty());
    (master, timed.map(listed).collect())
}

/// Returns the segments of a media playlist.
#[track_caller]
pub(crate) fn listed(playlist: Playlist) -> ListedPlaylist {
    let read = parse_media_playlist_res(playlist.text.as_bytes());
    let read = read.unwrap_or_else(|error| panic!("{error:?} {}", playlist.text));
    let map = read.segments.iter().find_map(|segment| segment.map.as_ref());
    let init = map.map(|map| resolved(&playlist.path, &map.uri));
    let segments = read.segments.iter().map(|segment| ListedSegment {
        path: resolved(&playlist.path, &segment.uri),
        range: segment.byte_range.as_ref().map(|r| (r.offset.expect("an offset"), r.length)),
        seconds: f64::from(segment.duration),
        is_break: segment.discontinuity,
    });
    let segments: Vec<ListedSegment> = segments.collect();
    assert!(read.end_list && !segments.is_empty(), "{}", playlist.text);
    let target_s = read.target_duration;
    for segment in &segments {
        assert!(segment.seconds.round() as u64 <= target_s, "{}", playlist.text);
    }
    ListedPlaylist { playlist, init, target_s, segments }
}

/// A representation of an MPD and its segments.
#[derive(Debug, Clone)]
pub(crate) struct ListedTrack {
    pub(crate) is_video: bool,
    /// Ticks per second, and the time of the period's start.
    pub(crate) scale: u64,
    pub(crate) offset: u64,
    pub(crate) init: String,
    /// Address, start and duration.
    pub(crate) segments: Vec<(String, u64, u64)>,
    /// True where the MPD declares that all segments begin with a key frame.
    pub(crate) is_independent: bool,
}

impl ListedTrack {
    /// Returns start of the first segment and end of the last, in seconds of the period.
    pub(crate) fn span_s(&self) -> (f64, f64) {
        let seconds = |time: u64| (time as f64 - self.offset as f64) / self.scale as f64;
        let last = self.segments.last().expect("a segment");
        (seconds(self.segments[0].1), seconds(last.1 + last.2))
    }

    /// Fetches all segments; asserts that each has the times of the timeline and follows the
    /// previous one.
    #[track_caller]
    pub(crate) fn fetched(&self, server: &Server) -> Vec<(Vec<u8>, TrackFragment)> {
        let mut at = self.segments[0].1;
        let fetched = self.segments.iter().map(|(path, start, duration)| {
            let body = whole(server, path);
            let fragments = track_fragments(&body);
            assert_eq!(fragments.len(), 1, "{path}: {fragments:?}");
            let fragment = *fragments.first_key_value().expect("one").1;
            assert_eq!((fragment.start, *start), (*start, at), "{path}: {fragment:?}");
            assert_eq!(fragment.end, start + duration, "{path}: {fragment:?}");
            assert!(fragment.begins_with_sync || !self.is_independent, "{path}: {fragment:?}");
            at = start + duration;
            (body, fragment)
        });
        fetched.collect()
    }
}

/// Returns the duration of the presentation, and all representations except text.
#[track_caller]
pub(crate) fn dash(server: &Server, name: &str) -> (f64, Vec<ListedTrack>) {
    let (text, path) = manifest_of(server, name);
    let mpd = dash_mpd_core::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(dash_mpd_core::check_conformity(&mpd), [""; 0], "{text}");
    let total = mpd.mediaPresentationDuration.expect("it ends").as_secs_f64();
    let [period] = &mpd.periods[..] else { panic!("{text}") };
    let mut tracks = Vec::new();
    for set in period.adaptations.iter() {
        for representation in &set.representations {
            // Subtitles of WebVTT are one file.
            let Some(template) = &representation.SegmentTemplate else { continue };
            tracks.push(ListedTrack {
                is_video: set.contentType.as_deref() == Some("video"),
                is_independent: set.startWithSAP.is_some(),
                ..of_template(&path, template)
            });
        }
    }
    (total, tracks)
}

fn of_template(path: &str, template: &SegmentTemplate) -> ListedTrack {
    let timeline = template.SegmentTimeline.as_ref().expect("a timeline");
    let mut time = timeline.segments[0].t.expect("the first has a time");
    let mut number = template.startNumber.expect("a start");
    let media = template.media.as_ref().expect("addresses of segments");
    let mut segments = Vec::new();
    for entry in &timeline.segments {
        time = entry.t.unwrap_or(time);
        for _ in 0..=entry.r.unwrap_or(0) {
            let address = resolved(path, &media.replace("$Number$", &number.to_string()));
            segments.push((address, time, entry.d));
            (time, number) = (time + entry.d, number + 1);
        }
    }
    ListedTrack {
        is_video: false,
        scale: template.timescale.expect("a time scale"),
        offset: template.presentationTimeOffset.unwrap_or(0),
        init: resolved(path, template.initialization.as_ref().expect("a section")),
        segments,
        is_independent: false,
    }
}

/// Returns the bytes of an existing resource.
#[track_caller]
pub(crate) fn whole(server: &Server, path: &str) -> Vec<u8> {
    let answer = fetch(server, path, None);
    assert_eq!(answer.status, 200, "{path}: {} {}", answer.head, answer.text());
    answer.body
}

/// Returns the bytes of a listed segment; asserts that it is not empty.
#[track_caller]
pub(crate) fn segment(server: &Server, segment: &ListedSegment) -> Vec<u8> {
    let answer = fetch(server, &segment.path, segment.range);
    let expected = if segment.range.is_some() { 206 } else { 200 };
    assert_eq!(answer.status, expected, "{segment:?}: {}", answer.head);
    let bytes = answer.body.len() as u64;
    assert!(bytes > 0 && segment.range.is_none_or(|(_, length)| length == bytes), "{segment:?}");
    answer.body
}

/// Encodes small pictures, five a second and a key frame every `gop_s` seconds, so that minutes of
/// them take no time, and a sound; each of the given length.
pub(crate) fn encode(pictures_s: u32, gop_s: u32, sound_s: u32) -> Command {
    let mut command = ffmpeg();
    let picture = format!("testsrc2=size=128x72:rate=5:duration={pictures_s}");
    command.args(["-f", "lavfi", "-i", &picture]);
    if sound_s > 0 {
        let sound = format!("sine=frequency=440:sample_rate=48000:duration={sound_s}");
        command.args(["-f", "lavfi", "-i", &sound, "-c:a", "aac", "-b:a", "32k"]);
    }
    let gop = (5 * gop_s).to_string();
    command.args(["-c:v", "libx264", "-preset", "ultrafast", "-bf", "0", "-sc_threshold", "0"]);
    command.args(["-g", &gop, "-keyint_min", &gop, "-pix_fmt", "yuv420p"]);
    command
}

/// Copies the streams of a film into another container or to other times.
pub(crate) fn remux(film: &Path, options: &[&str]) -> Command {
    let mut command = ffmpeg();
    command.arg("-i").arg(film).args(["-map", "0", "-c", "copy"]).args(options);
    command
}

/// Returns all addresses of a film: its playlists, its MPD, and all that these name.
#[track_caller]
pub(crate) fn addresses(server: &Server, name: &str) -> Vec<String> {
    let mut all = BTreeSet::new();
    for playlist in playlists_below(server, name, "") {
        all.insert(playlist.path.clone());
        if !playlist.is_master() {
            let listed = listed(playlist);
            all.extend(listed.init);
            all.extend(listed.segments.into_iter().map(|segment| segment.path));
        }
    }
    let (text, path) = match fetch(server, &format!("/{name}/manifest.mpd"), None) {
        // Segments that are enciphered as a whole.
        answer if answer.status == 404 => return all.into_iter().collect(),
        _ => manifest_of(server, name),
    };
    let files = text.split("<BaseURL>").skip(1).filter_map(|text| text.split('<').next());
    all.extend(files.map(|file| resolved(&path, file)));
    all.insert(path);
    for track in dash(server, name).1 {
        all.insert(track.init);
        all.extend(track.segments.into_iter().map(|(path, ..)| path));
    }
    all.into_iter().collect()
}
