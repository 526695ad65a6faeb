// SPDX-License-Identifier: MIT OR Apache-2.0
//! Media playlists of HLS.
//!
//! Durations are differences of times that are each rounded to a microsecond, so that they add up
//! to the duration of the file.
//!
//! Sources: RFC 8216 §4.3.2 (tags of segments), §4.3.3 (tags of playlists), §7 (versions).
//! Does not write playlists of transport streams that grow ([`super::live_playlist`]).

use std::fmt::Write;

use bytes::Bytes;
use media::TICKS_PER_SECOND;

use super::address::{SubtitleId, TrackList, WebItem};
use super::live_playlist::write_date;
use super::stream_media::StreamMedia;
use super::ts_form::TsForm;
use super::web_media::TrackMedia;

pub(crate) const TICKS_PER_US: u64 = TICKS_PER_SECOND / 1_000_000;

/// Version with EXT-X-MAP in playlists of all kinds (RFC 8216 §7); 4 has byte ranges, 3 has
/// durations with fractions.
const VERSION_OF_FRAGMENTS: u8 = 6;
/// The same, in playlists of key frames.
const VERSION_OF_KEY_RANGES: u8 = 5;
const VERSION_OF_RANGES: u8 = 4;
const VERSION_OF_KEYS: u8 = 4;
const VERSION_OF_STREAMS: u8 = 3;

/// Bytes of a line pair of a playlist.
const SEGMENT_BYTES: usize = 40;

/// A playlist under construction. Writing to a String cannot fail.
struct Lines {
    text: String,
    /// Duration so far in ticks, and as it was written in microseconds.
    ticks: u64,
    us: u64,
}

impl Lines {
    fn new(version: u8, target_s: u64, segments: usize) -> Lines {
        let mut lines = Lines::begin((version, target_s), 0, segments);
        lines.text.push_str("#EXT-X-PLAYLIST-TYPE:VOD\n");
        lines
    }

    /// Begins the playlist of a recording with segment `first`.
    fn of_recording(versions: (u8, u64), first: usize, segments: usize) -> Lines {
        let mut lines = Lines::begin(versions, first, segments);
        if first == 0 {
            lines.text.push_str("#EXT-X-PLAYLIST-TYPE:EVENT\n");
        }
        lines
    }

    fn begin((version, target_s): (u8, u64), first: usize, segments: usize) -> Lines {
        let mut text = String::with_capacity(256 + segments * SEGMENT_BYTES);
        let _ = write!(
            text,
            "#EXTM3U\n#EXT-X-VERSION:{version}\n#EXT-X-TARGETDURATION:{target_s}\n\
             #EXT-X-MEDIA-SEQUENCE:{first}\n"
        );
        Lines { text, ticks: 0, us: 0 }
    }

    /// Lets durations count from a time on.
    fn begin_at(&mut self, ticks: u64) {
        (self.ticks, self.us) = (ticks, ticks / TICKS_PER_US);
    }

    fn duration(&mut self, ticks: u64) {
        self.ticks += ticks;
        let us = self.ticks / TICKS_PER_US - self.us;
        self.us += us;
        let _ = writeln!(self.text, "#EXTINF:{},", seconds(us));
    }

    fn end(mut self) -> Vec<u8> {
        self.text.push_str("#EXT-X-ENDLIST\n");
        self.text.into_bytes()
    }
}

/// Microseconds as playlists have them.
pub(super) fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

/// Returns the playlist of tracks that are sent together; `key` is the tag of its key, or empty.
pub(super) fn of_tracks(media: &TrackMedia, list: &TrackList, key: &str) -> Bytes {
    let rendition = media.plan.rendition(&list.0).expect("the plan has what has an init section");
    let listed = media.listed(rendition);
    let segments = &rendition.segments()[listed.clone()];
    let mut lines = match &media.growing {
        None => Lines::new(VERSION_OF_FRAGMENTS, media.plan.target_s(), segments.len()),
        Some(growing) => {
            let head = (VERSION_OF_FRAGMENTS, growing.target_s);
            Lines::of_recording(head, listed.start, segments.len())
        }
    };
    if media.is_independent(rendition) {
        lines.text.push_str("#EXT-X-INDEPENDENT-SEGMENTS\n");
    }
    let _ = writeln!(lines.text, "#EXT-X-MAP:URI=\"{list}/init.mp4\"");
    // Behind the map, which is clear.
    lines.text.push_str(key);
    let mut end = None;
    for (number, segment) in listed.zip(segments) {
        if let Some(growing) = &media.growing {
            let start = u64::try_from(segment.start).unwrap_or(0);
            // The first one, and each behind a pause.
            if end != Some(start) {
                write_date(&mut lines.text, growing.began, start);
                lines.begin_at(start);
            }
            end = Some(start + segment.ticks);
            if segment.bytes == 0 {
                lines.text.push_str("#EXT-X-GAP\n");
            }
        }
        lines.duration(segment.ticks);
        let _ = writeln!(lines.text, "{list}/{number}.m4s");
    }
    match &media.growing {
        Some(growing) if !growing.is_complete => lines.text.into(),
        _ => lines.end().into(),
    }
}

/// Form of the segments of subtitles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextForm {
    WebVtt,
    /// TTML in fragments of MP4.
    Ttml,
}

/// Returns the playlist of subtitles, with segments like those of the film: their durations, and
/// whether timestamps are set anew.
pub(super) fn of_subtitles(
    (id, form): (SubtitleId, TextForm),
    segments: &[(u64, bool)],
    target_s: u64,
) -> Vec<u8> {
    let (version, extension) = match form {
        TextForm::WebVtt => (VERSION_OF_STREAMS, "vtt"),
        TextForm::Ttml => (VERSION_OF_FRAGMENTS, "m4s"),
    };
    let mut lines = Lines::new(version, target_s, segments.len());
    if form == TextForm::Ttml {
        let _ = writeln!(lines.text, "#EXT-X-MAP:URI=\"{id}/init.mp4\"");
    }
    for (number, &(ticks, is_break)) in segments.iter().enumerate() {
        if is_break {
            lines.text.push_str("#EXT-X-DISCONTINUITY\n");
        }
        lines.duration(ticks);
        let _ = writeln!(lines.text, "{id}/{number}.{extension}");
    }
    lines.end()
}

/// Returns the playlist of the key frames; `None` for a file without pictures.
pub(super) fn of_key_frames(media: &TrackMedia, key: &str) -> Option<Bytes> {
    let frames = media.plan.key_frames();
    frames.first()?;
    let pictures = TrackList(vec![media.plan.pictures(&media.asset.presentation)?]);
    media.inits.get(&pictures)?;
    let target_s = target_s(frames.iter().map(|frame| frame.ticks));
    let mut lines = Lines::new(VERSION_OF_FRAGMENTS, target_s, frames.len());
    lines.text.push_str("#EXT-X-I-FRAMES-ONLY\n");
    let _ = writeln!(lines.text, "#EXT-X-MAP:URI=\"{pictures}/init.mp4\"");
    lines.text.push_str(key);
    for (number, frame) in frames.iter().enumerate() {
        lines.duration(frame.ticks);
        let _ = writeln!(lines.text, "key/{number}.m4s");
    }
    Some(lines.end().into())
}

/// Target duration of key frames that last so long.
fn target_s(ticks: impl Iterator<Item = u64>) -> u64 {
    let rounded = ticks.map(|ticks| (ticks + TICKS_PER_SECOND / 2) / TICKS_PER_SECOND);
    rounded.max().unwrap_or(0).max(1)
}

/// Returns the playlist of the key frames of a transport stream: byte ranges of it, where the
/// tables of each are ranges and `form` asks for ranges, otherwise segments; `None` where there is
/// no list of them.
pub(super) fn of_stream_keys(media: &StreamMedia, form: TsForm, key: &str) -> Option<Bytes> {
    let frames = media.key_frames().ok()?.list();
    let tables = media.key_tables.as_ref().filter(|_| form == TsForm::Ranges);
    let version = if tables.is_some() { VERSION_OF_KEY_RANGES } else { VERSION_OF_KEYS };
    let target_s = target_s(frames.iter().map(|frame| frame.ticks));
    let mut lines = Lines::new(version, target_s, frames.len());
    lines.text.push_str("#EXT-X-I-FRAMES-ONLY\n");
    lines.text.push_str(key);
    let mut in_force = None;
    for (number, frame) in frames.iter().enumerate() {
        if frame.is_break {
            lines.text.push_str("#EXT-X-DISCONTINUITY\n");
        }
        let own = tables.map(|tables| &tables[number]);
        if let Some(own) = own.filter(|own| in_force.replace(*own) != Some(*own)) {
            let (bytes, offset) = (own.end - own.start, own.start);
            let _ = writeln!(
                lines.text,
                "#EXT-X-MAP:URI=\"{}\",BYTERANGE=\"{bytes}@{offset}\"",
                WebItem::Ts
            );
        }
        lines.duration(frame.ticks);
        if own.is_some() {
            let (offset, bytes) = (frame.file.start, frame.file.end - frame.file.start);
            let _ = writeln!(lines.text, "#EXT-X-BYTERANGE:{bytes}@{offset}\n{}", WebItem::Ts);
        } else {
            let _ = writeln!(lines.text, "{}", WebItem::TsKeyFrame(number));
        }
    }
    Some(lines.end().into())
}

/// Returns the playlist of a transport stream: byte ranges of it, where every segment begins with
/// its tables and `form` asks for ranges, otherwise segments; `None` where its packets cannot be
/// sent as they are.
pub(super) fn of_stream(media: &StreamMedia, form: TsForm, key: &str) -> Option<Bytes> {
    let is_ranges = media.is_ranges && form == TsForm::Ranges;
    let version = if is_ranges { VERSION_OF_RANGES } else { VERSION_OF_STREAMS };
    let plan = media.segments()?;
    let segments = plan.list();
    let mut lines = Lines::new(version, plan.target_s(), segments.len());
    lines.text.push_str("#EXT-X-INDEPENDENT-SEGMENTS\n");
    lines.text.push_str(key);
    for (number, segment) in segments.iter().enumerate() {
        if segment.is_break {
            lines.text.push_str("#EXT-X-DISCONTINUITY\n");
        }
        lines.duration(segment.ticks);
        if is_ranges {
            let (offset, bytes) = (segment.file.start, segment.file.end - segment.file.start);
            let _ = writeln!(lines.text, "#EXT-X-BYTERANGE:{bytes}@{offset}\nmedia.ts");
        } else {
            let _ = writeln!(lines.text, "ts/{number}.ts");
        }
    }
    Some(lines.end().into())
}
