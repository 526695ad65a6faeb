// SPDX-License-Identifier: MIT OR Apache-2.0
//! The segments of subtitles, cut at the times of the film's segments.
//!
//! A cue that is shown over a border is in both segments. Each segment states which media timestamp
//! belongs to a time of its cues: the film's start where all times are continuous, otherwise the
//! place from which they are (EXT-X-DISCONTINUITY).
//!
//! Costs a pass over the film's segments for each text: some 1200 of two hours, a microsecond.
//!
//! Sources: RFC 8216 §3.5.
//! Does not find cues ([`media::text`]).

use media::cmaf::TrackSegments;
use media::text::{CueList, TimestampMap};
use media::{SegmentPlan, TICKS_PER_SECOND};

use super::address::SubtitleId;
use super::media_playlist::{self, TextForm};

const TICKS_PER_MS: u64 = TICKS_PER_SECOND / 1000;

/// Units of a media timestamp in a second.
const TIMESTAMPS_PER_S: u64 = 90_000;

/// The segments of a film, as subtitles have them.
pub(super) struct TextSegments {
    /// Duration in ticks; true where timestamps are set anew.
    durations: Vec<(u64, bool)>,
    /// Start of the first in ticks.
    start: u64,
    target_s: u64,
    /// Number and map of each segment from which timestamps differ.
    maps: Vec<(usize, TimestampMap)>,
}

impl TextSegments {
    /// Returns the segments of the first rendition; `None` for a file without one.
    pub(super) fn of_tracks(plan: &TrackSegments) -> Option<TextSegments> {
        let rendition = plan.renditions().first()?;
        let segments = rendition.segments();
        let map = TimestampMap { mpegts: plan.origin_s() * TIMESTAMPS_PER_S, local_ms: 0 };
        Some(TextSegments {
            durations: segments.iter().map(|segment| (segment.ticks, false)).collect(),
            start: u64::try_from(segments.first()?.start).unwrap_or(0),
            target_s: plan.target_s(),
            maps: vec![(0, map)],
        })
    }

    /// Returns the segments of a transport stream.
    pub(super) fn of_stream(plan: &SegmentPlan) -> TextSegments {
        let (mut maps, mut ticks) = (Vec::new(), 0);
        for (number, segment) in plan.list().iter().enumerate() {
            if let Some(mpegts) = segment.timestamp.filter(|_| number == 0 || segment.is_break) {
                maps.push((number, TimestampMap { mpegts, local_ms: ticks / TICKS_PER_MS }));
            }
            ticks += segment.ticks;
        }
        TextSegments {
            durations: plan.list().iter().map(|one| (one.ticks, one.is_break)).collect(),
            start: 0,
            target_s: plan.target_s(),
            maps,
        }
    }

    /// Returns the playlist.
    pub(super) fn playlist(&self, id: SubtitleId, form: TextForm) -> Vec<u8> {
        media_playlist::of_subtitles((id, form), &self.durations, self.target_s)
    }

    /// Returns a segment; `None` past the last. The first begins with the film, and the last has
    /// the rest.
    pub(super) fn text(&self, number: usize, cues: &CueList) -> Option<String> {
        let ticks = |segments: &[(u64, bool)]| segments.iter().map(|(ticks, _)| ticks).sum::<u64>();
        let (own, _) = self.durations.get(number)?;
        let start = self.start + ticks(&self.durations[..number]);
        let start_ms = if number == 0 { 0 } else { start / TICKS_PER_MS };
        let is_last = number + 1 == self.durations.len();
        let end_ms = if is_last { u64::MAX } else { (start + own) / TICKS_PER_MS };
        let map = self.maps.iter().rev().find(|(first, _)| *first <= number);
        let map = map.map_or(TimestampMap { mpegts: 0, local_ms: 0 }, |(_, map)| *map);
        Some(cues.segment(start_ms..end_ms, map))
    }
}

#[cfg(test)]
mod tests {
    use media::text::{TextFormat, parse};

    use super::*;

    #[test]
    fn a_segment_has_the_map_of_its_timestamps() {
        let second = TICKS_PER_SECOND;
        let map = |mpegts, local_ms| TimestampMap { mpegts, local_ms };
        let segments = TextSegments {
            durations: vec![(6 * second, false), (6 * second, false), (3 * second, true)],
            start: 0,
            target_s: 6,
            maps: vec![(0, map(90_000, 0)), (2, map(5, 12_000))],
        };
        let list = "0:01 --> 0:02\na\n0:05 --> 0:07\nb\n0:13 --> 0:14\nc\n5:00 --> 5:01\nd\n";
        let cues = parse(list.as_bytes(), TextFormat::SubRip).unwrap();
        let text = |number| segments.text(number, &cues);
        let letters =
            |text: &str| text.lines().filter(|line| line.len() == 1).collect::<Vec<_>>().concat();
        for (number, head, shown) in [
            (0, "MPEGTS:90000,LOCAL:00:00:00.000", "ab"),
            (1, "MPEGTS:90000,LOCAL:00:00:00.000", "b"),
            (2, "MPEGTS:5,LOCAL:00:00:12.000", "cd"),
        ] {
            let text = text(number).unwrap();
            assert!(text.starts_with(&format!("WEBVTT\nX-TIMESTAMP-MAP={head}\n\n")), "{text}");
            assert_eq!(letters(&text), shown);
        }
        assert_eq!(text(3), None);
        let playlist =
            |form| String::from_utf8(segments.playlist(SubtitleId::Track(3), form)).unwrap();
        let ttml = playlist(TextForm::Ttml);
        assert!(ttml.contains("#EXT-X-MAP:URI=\"s3/init.mp4\"\n"), "{ttml}");
        assert!(ttml.contains("#EXT-X-VERSION:6\n") && ttml.contains("\ns3/1.m4s\n"), "{ttml}");
        let playlist = playlist(TextForm::WebVtt);
        let lines: Vec<&str> = playlist.lines().collect();
        let end = ["#EXT-X-DISCONTINUITY", "#EXTINF:3.000000,", "s3/2.vtt", "#EXT-X-ENDLIST"];
        assert_eq!(lines[lines.len() - 4..], end);
        assert!(playlist.contains("#EXT-X-TARGETDURATION:6\n"));
    }
}
