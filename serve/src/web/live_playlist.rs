// SPDX-License-Identifier: MIT OR Apache-2.0
//! The media playlist of a recording while it is written, or of a channel.
//!
//! The playlist of a recording is an event; behind [`LISTED_MAX`] segments the oldest leave it.
//! That of a channel slides: media sequence numbers and discontinuities keep counting. While it
//! grows, the last segments are also listed by their parts, which low-latency players play before
//! the segment is whole; other players ignore those tags. A player that has an older copy may
//! request an update, which leaves out the segments that it has.
//!
//! Sources: RFC 8216 §4.3.2.6 (dates), §4.3.3.3 (EXT-X-DISCONTINUITY-SEQUENCE), §4.3.3.5 (EVENT);
//! draft-pantos-hls-rfc8216bis §4.4.3.7 (parts), §4.4.3.8 (server control), §4.4.4.9 (EXT-X-PART),
//! §4.4.5.2 (EXT-X-SKIP), §4.4.5.3 (hints).
//! Does not cut ([`media::GrowingSegments`]).

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use media::{GrowingSegments, TICKS_PER_SECOND};

use super::media_playlist::{TICKS_PER_US, seconds};

/// Segments that a playlist lists at most: four hours of 2 s, 500 KB.
pub(super) const LISTED_MAX: usize = 7200;

/// Distance of low-latency players from the last part: at least three parts of 0.4 s, and a quarter
/// for late parts.
const PART_HOLD_BACK_S: &str = "1.5";

/// Target durations for which parts are listed.
const PARTED_TARGETS: u64 = 3;

/// Target durations at the end that an update contains.
const UPDATE_TARGETS: u64 = 6;

/// Parts ahead of the last that can be asked for: three seconds of them.
pub(super) const PARTS_AHEAD_MAX: usize = 8;

const VERSION: u8 = 3;
/// Version of playlists that are updates.
const VERSION_OF_UPDATES: u8 = 9;

/// Content of a playlist.
pub(super) struct LiveList<'a> {
    pub(super) segments: &'a GrowingSegments,
    pub(super) dates: &'a [PartDate],
    /// Number of the first segment.
    pub(super) first: usize,
    /// True for a recording.
    pub(super) is_event: bool,
}

/// Date of the time zero of recording or channel, by which segments from this one on are dated.
pub(super) struct PartDate {
    pub(super) segment: usize,
    pub(super) began: SystemTime,
}

impl LiveList<'_> {
    /// Returns the playlist, or the `update` of an older copy, which is the same where nothing can
    /// be left out. Writing to a String cannot fail.
    pub(super) fn text(&self, update: bool) -> String {
        let (segments, dates, first) = (self.segments, self.dates, self.first);
        let all = &segments.list()[first - segments.first_number()..];
        let target = segments.target_s() * TICKS_PER_SECOND;
        let since = |targets: u64| segments.next_start().saturating_sub(targets * target);
        let skipped = match update && !segments.is_complete() {
            true => all.partition_point(|one| one.start + one.ticks < since(UPDATE_TARGETS)),
            false => 0,
        };
        let mut text = String::with_capacity(1024 + (all.len() - skipped) * 40);
        self.head(&mut text, skipped);
        for (at, segment) in all.iter().enumerate().skip(skipped) {
            let (number, end) = (first + at, segment.start + segment.ticks);
            if segment.is_break {
                text.push_str("#EXT-X-DISCONTINUITY\n");
            }
            let follows = |before: usize| all[before].start + all[before].ticks == segment.start;
            let is_dated = dates.iter().any(|date| date.segment == number) || segment.is_break;
            if is_dated || at == skipped || !follows(at - 1) {
                date(&mut text, dates, number, segment.start);
            }
            if !segments.is_complete() && end > since(PARTED_TARGETS) {
                parts(&mut text, segments, number);
            }
            // Differences of rounded times, so that they add up.
            let lasts = end / TICKS_PER_US - segment.start / TICKS_PER_US;
            let _ = write!(text, "#EXTINF:{},\nlive/{number}.ts\n", seconds(lasts));
        }
        if segments.is_complete() {
            text.push_str("#EXT-X-ENDLIST\n");
        } else {
            next(&mut text, segments, dates);
        }
        text
    }

    /// Writes the tags before the first segment, of which `skipped` are left out.
    fn head(&self, text: &mut String, skipped: usize) {
        let segments = self.segments;
        let version = if skipped > 0 { VERSION_OF_UPDATES } else { VERSION };
        let target_s = segments.target_s();
        let _ =
            write!(text, "#EXTM3U\n#EXT-X-VERSION:{version}\n#EXT-X-TARGETDURATION:{target_s}\n");
        if !segments.is_complete() {
            let _ = write!(
                text,
                "#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,CAN-SKIP-UNTIL={},HOLD-BACK={},\
                 PART-HOLD-BACK={PART_HOLD_BACK_S}\n#EXT-X-PART-INF:PART-TARGET={}\n",
                UPDATE_TARGETS * target_s,
                3 * target_s,
                seconds(segments.part_ticks() / TICKS_PER_US)
            );
        }
        let _ = writeln!(text, "#EXT-X-MEDIA-SEQUENCE:{}", self.first);
        if self.is_event && self.first == 0 {
            text.push_str("#EXT-X-PLAYLIST-TYPE:EVENT\n");
        } else {
            let gone = segments.breaks_before(self.first);
            let _ = writeln!(text, "#EXT-X-DISCONTINUITY-SEQUENCE:{gone}");
        }
        if skipped > 0 {
            let _ = writeln!(text, "#EXT-X-SKIP:SKIPPED-SEGMENTS={skipped}");
        }
    }
}

/// Writes the parts of the segment that is not whole, and the address of the next of them.
fn next(text: &mut String, segments: &GrowingSegments, dates: &[PartDate]) {
    let number = segments.next_number();
    let there = segments.parts(number);
    let has_parts = !there.is_empty()
        || number.checked_sub(1).is_some_and(|before| !segments.parts(before).is_empty());
    if !has_parts {
        return;
    }
    if segments.is_next_break() {
        text.push_str("#EXT-X-DISCONTINUITY\n");
    }
    if segments.is_next_break() || dates.iter().any(|date| date.segment == number) {
        date(text, dates, number, segments.next_start());
    }
    parts(text, segments, number);
    let part = there.len();
    let _ = writeln!(text, "#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"live/{number}.{part}.ts\"");
}

/// Writes the date of a segment, which begins at this time of the recording.
fn date(text: &mut String, dates: &[PartDate], number: usize, start: u64) {
    if let Some(known) = dates.iter().rev().find(|date| date.segment <= number) {
        write_date(text, known.began, start);
    }
}

/// Writes the date of a time, in ticks, of media that began at a date.
pub(super) fn write_date(text: &mut String, began: SystemTime, ticks: u64) {
    let at = began.checked_add(Duration::from_micros(ticks / TICKS_PER_US));
    if let Some(Ok(at)) = at.map(Timestamp::try_from) {
        let _ = writeln!(text, "#EXT-X-PROGRAM-DATE-TIME:{at:.3}");
    }
}

fn parts(text: &mut String, segments: &GrowingSegments, number: usize) {
    for (at, part) in segments.parts(number).iter().enumerate() {
        let lasts = seconds(part.ticks / TICKS_PER_US);
        let _ = write!(text, "#EXT-X-PART:DURATION={lasts},URI=\"live/{number}.{at}.ts\"");
        if part.is_independent {
            text.push_str(",INDEPENDENT=YES");
        }
        text.push('\n');
    }
}
