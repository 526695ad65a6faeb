// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzes subtitles (`media::text`) with the bytes of a side-car file, and of a file with tracks;
//! also the segments of TTML.
//!
//! Checked: cues are in order and end after they begin, and written cues are read again as the
//! same; a segment of TTML has ranges of the file. Memory is bounded by `fuzz/run.sh`.

use media::cmaf::{TARGET_S, TrackSegments, TtmlSegments};
use media::mp4::Mp4Demuxer;
use media::text::{TextFormat, TimestampMap, parse, text_cues, text_tracks, ttml_tracks};
use media::{Presentation, RtpIdentity};

use crate::FuzzTarget;

pub(crate) const TARGET: FuzzTarget = FuzzTarget { name: "text", run };

fn run(data: &[u8]) {
    for format in [TextFormat::SubRip, TextFormat::WebVtt] {
        let Ok(list) = parse(data, format) else { continue };
        let again = parse(list.whole().as_bytes(), TextFormat::WebVtt);
        assert_eq!(again.expect("what was written").cues(), list.cues());
        assert!(list.cues().is_sorted_by_key(|cue| cue.start_ms));
        assert!(list.cues().iter().all(|cue| cue.start_ms < cue.end_ms));
        let first = list.cues()[0].start_ms;
        let map = TimestampMap { mpegts: 0, local_ms: 0 };
        assert!(list.segment(first..first + 1, map).len() > 60);
    }
    let bytes = data.len() as u64;
    for track in text_tracks(data, bytes).unwrap_or_default() {
        let _ = text_cues(data, bytes, track.id, 0);
    }
    for (_, track) in ttml_tracks(data, bytes).unwrap_or_default() {
        let (Ok(track), Some((film, plan))) = (track, film(data)) else { continue };
        let Ok(segments) = TtmlSegments::of(track, &film, &plan) else { continue };
        assert_eq!(segments.timeline().len(), segments.len());
        for number in 0..segments.len() {
            let parts = segments.parts(number).expect("it is one of them");
            assert!(parts.ranges.iter().all(|range| range.start < range.end && range.end <= bytes));
        }
    }
}

/// The film of a file with tracks, and its segments.
fn film(data: &[u8]) -> Option<(Presentation, TrackSegments)> {
    let mut demuxer = Mp4Demuxer::new(data.len() as u64);
    while !demuxer.advance(data, usize::MAX).ok()? {}
    let film = demuxer.finish(|| IDENTITY).ok()?;
    let plan = TrackSegments::of(&film, TARGET_S).ok()?;
    Some((film, plan))
}

const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };
