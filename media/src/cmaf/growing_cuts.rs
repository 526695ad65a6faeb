// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts of a recording that is still written.
//!
//! A longer presentation continues the cuts of the one before: those that are final stay, with the
//! first sample of each track behind them, whatever comes later. A cut is final when all tracks
//! have reached it, or are silent ([`SILENT_TICKS`] behind the one that is furthest).
//!
//! A segment ends at the last key frame that keeps it within the target duration; at another
//! picture if there is none; and by the clock where pictures are missing. No segment is longer than
//! the target, as rounded in a playlist: where no track has media, the next one begins behind the
//! gap.
//!
//! Costs a search for each new cut; 12 bytes a cut, and 4 a track of it.
//!
//! Sources: RFC 8216 §4.3.3.1 (the target duration never changes), §6.2.1 (segments neither).
//! Does not examine samples: the file's marks of key frames are trusted.

use super::cuts::{Cuts, first_decoded, media_ticks, presented_end};
use crate::TICKS_PER_SECOND;
use crate::tracks::{Presentation, SILENT_TICKS, Track, TrackMedia};

/// Most segments: six days of two seconds each.
const CUTS_MAX: usize = 1 << 18;

/// Duration by which a segment may exceed the target; a frame of sound may add more to it before it
/// is rounded up.
pub(super) const EXCESS_TICKS: u64 = 2 * TICKS_PER_SECOND / 5;

/// The tracks that are cut, and the times that they have reached.
struct Progress<'a> {
    tracks: &'a [Track],
    carried: &'a [usize],
    leading: usize,
    /// Latest time of decoding of any track.
    latest: i64,
    /// Time before which it is known where the leading track has key frames.
    known: i64,
    /// End of presentation if no more follows.
    end: Option<i64>,
    target: i64,
}

impl Cuts {
    /// Continues the cuts of a recording, `before`, by the tracks `carried`, of which `leading` has
    /// the pictures or is the first sound, into segments of `target_s` seconds; the last ones, too,
    /// if it `is_complete`. The error is the most segments.
    pub(super) fn extended(
        before: Option<&Cuts>,
        presentation: &Presentation,
        (carried, leading): (&[usize], usize),
        (target_s, is_complete): (u64, bool),
    ) -> Result<Cuts, usize> {
        let tracks = presentation.tracks();
        let mut cuts = match before {
            Some(before) => before.only_final(tracks.len()),
            None => {
                let begins = |&index: &usize| {
                    let track: &Track = &tracks[index];
                    track.presented_ticks(&track.samples.sample(0))
                };
                let first = carried.iter().map(begins).min().unwrap_or(0);
                Cuts::begin_recording(first, tracks.len())
            }
        };
        (cuts.leading, cuts.end) = (leading, carried_end(tracks, carried));
        let progress = Progress::new(tracks, (carried, leading), (target_s, is_complete));
        while let Some((start, first, is_independent)) = progress.next(cuts.begin()) {
            if cuts.len() >= CUTS_MAX {
                return Err(CUTS_MAX);
            }
            let own = |index: usize| match first {
                Some(first) if index == leading => first,
                _ => first_decoded(&tracks[index], start),
            };
            // Samples that came late belong to the next segment.
            let before = cuts.last_firsts().into_iter().enumerate();
            let firsts = before.map(|(index, before)| before.max(own(index) as u32));
            cuts.push_growing(start, firsts, is_independent);
        }
        let is_final = |&start: &i64| progress.has_passed(start);
        cuts.final_cuts = cuts.starts().iter().take_while(|start| is_final(start)).count().max(1);
        Ok(cuts)
    }
}

/// End of presentation of the latest of the carried tracks.
fn carried_end(tracks: &[Track], carried: &[usize]) -> i64 {
    carried.iter().map(|&index| presented_end(&tracks[index])).max().unwrap_or(0)
}

/// Time of decoding of the last sample of a track. Later ones are decoded later.
fn last_decoded(track: &Track) -> i64 {
    media_ticks(track, track.samples.last_decode())
}

impl Progress<'_> {
    fn new<'a>(
        tracks: &'a [Track],
        (carried, leading): (&'a [usize], usize),
        (target_s, is_complete): (u64, bool),
    ) -> Progress<'a> {
        let latest = carried.iter().map(|&index| last_decoded(&tracks[index])).max().unwrap_or(0);
        let led = last_decoded(&tracks[leading]);
        let silence = SILENT_TICKS as i64;
        let known = if latest - led > silence { latest - silence } else { led };
        let end = is_complete.then(|| carried_end(tracks, carried));
        let target = (target_s * TICKS_PER_SECOND) as i64;
        Progress { tracks, carried, leading, latest, known, end, target }
    }

    /// True if no sample before this time is to be expected.
    fn has_passed(&self, start: i64) -> bool {
        let is_past = |&index: &usize| {
            let last = last_decoded(&self.tracks[index]);
            last >= start || self.latest - last > SILENT_TICKS as i64
        };
        self.end.is_some() || self.carried.iter().all(is_past)
    }

    /// Returns the cut behind one at `begin`: its time, the first sample of the leading track if
    /// that is known, and true if play can start there. `None` if it is not known yet, or nothing
    /// is left to cut.
    fn next(&self, begin: i64) -> Option<(i64, Option<usize>, bool)> {
        let longest_end = begin + self.target + EXCESS_TICKS as i64;
        if self.end.unwrap_or(self.known) < longest_end {
            return None;
        }
        let leading = &self.tracks[self.leading];
        let presented = |number: usize| leading.presented_ticks(&leading.samples.sample(number));
        let is_video = leading.codec.media() == TrackMedia::Video;
        if is_video {
            let is_near = |sample: &_| leading.presented_ticks(sample) < longest_end;
            let key = leading.samples.last_start(is_near);
            if let Some(key) = key.filter(|&key| presented(key) > begin) {
                return Some((presented(key), Some(key), true));
            }
        }
        let at = begin + self.target;
        // The first sample from then on.
        let next = |&index: &usize| {
            let (track, number) = (&self.tracks[index], first_decoded(&self.tracks[index], at));
            let sample = (number < track.samples.len()).then(|| track.samples.sample(number))?;
            Some(media_ticks(track, sample.decode))
        };
        let next = self.carried.iter().filter_map(next).min()?;
        let start = if next < longest_end { at } else { next };
        let led = first_decoded(leading, start);
        // Without pictures nothing depends on others; those behind a gap may be key frames.
        let ends = longest_end.max(start + self.target);
        let is_independent = !is_video
            || led >= leading.samples.len()
            || presented(led) >= ends
            || leading.samples.sample(led).is_start;
        Some((start, None, is_independent))
    }
}
