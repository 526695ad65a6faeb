// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tracks in detail: times, order of pictures, and random-access points. One pass over the sample
//! table of each track, without a read.
//!
//! Also computes the gaps between the random-access points of a transport stream.

use media::{Container, MediaTrack, PacketPlan, Presentation, TICKS_PER_SECOND};
use serde::Serialize;
use serve::TrackSummary;

use super::figures::PlanFigures;
use super::rates::Rates;

/// A track of the file. Its first fields are those of the index.
#[derive(Serialize)]
pub(super) struct InspectedTrack {
    #[serde(flatten)]
    pub(super) summary: TrackSummary,
    #[serde(flatten)]
    pub(super) times: TrackTimes,
    pub(super) plan: PlanFigures,
    pub(super) bitrate: Rates,
}

/// Times of a track's samples.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct TrackTimes {
    /// Ticks of media time per second.
    pub(super) timescale: u32,
    /// Shift of media time by the edit list of an MP4, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) shift_s: Option<f64>,
    /// Presentation time of the first sample, from the title's start; sound that primes a decoder
    /// lies before it.
    pub(super) start_s: f64,
    /// Samples that are presented before one that is decoded earlier (B-frames).
    pub(super) reordered: usize,
    /// Random-access points.
    pub(super) entries: usize,
    /// The longest time without one; absent where play can start with every sample.
    #[serde(flatten)]
    pub(super) gap: Option<EntryGap>,
}

/// The longest time in which play cannot start.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct EntryGap {
    /// Its length in seconds.
    #[serde(rename = "entry_gap_s")]
    pub(super) seconds: f64,
    /// Its start in seconds from the start of the title.
    #[serde(rename = "entry_gap_at_s")]
    pub(super) at_s: f64,
}

impl EntryGap {
    /// Returns the longest gap between these presentation times, in ticks and in order, and from
    /// the last to `end`.
    fn longest(times: impl Iterator<Item = i64>, end: i64) -> EntryGap {
        let (mut before, mut longest) = (0, (0, 0));
        for time in times.chain([end]) {
            let gap = time.saturating_sub(before);
            if gap > longest.0 {
                longest = (gap, before);
            }
            before = before.max(time);
        }
        let seconds = |ticks: i64| ticks as f64 / TICKS_PER_SECOND as f64;
        EntryGap { seconds: seconds(longest.0), at_s: seconds(longest.1) }
    }
}

/// Returns the longest gap between random-access points of a transport stream.
pub(super) fn gap_of_transport_stream(plan: &PacketPlan) -> EntryGap {
    let ticks = |ticks: u64| i64::try_from(ticks).unwrap_or(i64::MAX);
    let times = plan.entries().iter().map(|entry| ticks(entry.presented_ticks));
    EntryGap::longest(times, ticks(plan.duration_ticks()))
}

pub(super) fn times_of(presentation: &Presentation, track: &MediaTrack) -> TrackTimes {
    let samples = &track.samples;
    let (mut first, mut latest, mut reordered) = (i64::MAX, i64::MIN, 0);
    for sample in samples.samples(0..samples.len()) {
        let presented = track.presented(&sample);
        reordered += usize::from(presented < latest);
        (first, latest) = (first.min(presented), latest.max(presented));
    }
    let starts = samples.samples(0..samples.len()).filter(|sample| sample.is_start);
    let starts = starts.map(|sample| track.presented_ticks(&sample));
    let end = i64::try_from(presentation.presented_end_ticks()).unwrap_or(i64::MAX);
    let seconds = |units: i64| units as f64 / f64::from(samples.timescale());
    let origin_s = presentation.file_origin_ticks() as f64 / TICKS_PER_SECOND as f64;
    let has_edits = matches!(presentation.container(), Container::Mp4 | Container::FragmentedMp4);
    let every = samples.starts() == samples.len();
    TrackTimes {
        timescale: samples.timescale(),
        shift_s: has_edits.then(|| seconds(track.shift) + origin_s),
        start_s: seconds(first),
        reordered,
        entries: samples.starts(),
        gap: (!every).then(|| EntryGap::longest(starts, end)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gap_before_the_first_and_behind_the_last_count() {
        let second = TICKS_PER_SECOND as i64;
        let longest = |times: &[i64], end: i64| {
            let times = times.iter().map(|time| time * second);
            let EntryGap { seconds, at_s } = EntryGap::longest(times, end * second);
            (seconds, at_s)
        };
        assert_eq!(longest(&[0, 2, 10, 12], 13), (8.0, 2.0));
        assert_eq!(longest(&[5, 6], 7), (5.0, 0.0));
        assert_eq!(longest(&[0, 1], 9), (8.0, 1.0));
        assert_eq!(longest(&[-1, 0, 3, 2], 4), (3.0, 0.0));
        assert_eq!(longest(&[], 0), (0.0, 0.0));
    }
}
