// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts edit lists to the shift from media time to presentation time.
//!
//! Encoders write one edit that skips the delay of B-frames or the priming of sound, and empty
//! edits in front of it for a track that begins late. Such a list is one shift. A list that cuts
//! the track into pieces, or changes its speed, is not played.
//!
//! Sources: ISO/IEC 14496-12 §8.6.5 (timelines), §8.6.6 (elst).
//! Ignores the duration of edits: a title ends where its samples end.

use mp4_atom::Elst;

use crate::tracks::SampleTable;

/// Effect of an edit list on a track.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Edit {
    /// Empty time before the track, in units of the movie's time scale.
    delay: u64,
    /// Media time at which play begins.
    start: u64,
}

impl Edit {
    /// The edit of a list.
    ///
    /// # Errors
    /// The reason why the track is left out.
    pub(super) fn of(list: &Elst) -> Result<Edit, String> {
        let mut edits = list.entries.iter().peekable();
        let mut delay = 0_u64;
        while let Some(empty) = edits.next_if(|edit| edit.media_time.is_none()) {
            delay = delay.saturating_add(empty.segment_duration);
        }
        let Some(edit) = edits.next() else {
            return match list.entries.len() {
                0 => Ok(Edit::default()),
                _ => Err(format!("an edit list that shows nothing of it; {CURE}")),
            };
        };
        // Empty edits at the end show nothing, as does the end.
        if edits.any(|edit| edit.media_time.is_some()) {
            let edits = list.entries.len();
            return Err(format!("an edit list of {edits} edits; {CURE}"));
        }
        let rate = (edit.media_rate.integer(), edit.media_rate.decimal());
        if rate != (1, 0) {
            let rate = f64::from(rate.0) + f64::from(rate.1 as u16) / 65536.0;
            return Err(format!("an edit list that plays it at {rate:.3} of its speed; {CURE}"));
        }
        Ok(Edit { delay, start: edit.media_time.unwrap_or(0) })
    }

    /// The shift of a track with these samples, in units of its time scale. `movie_timescale` is
    /// at least 1.
    ///
    /// # Errors
    /// The reason why the track is left out.
    pub(super) fn shift(&self, movie_timescale: u32, samples: &SampleTable) -> Result<i64, String> {
        let end = i128::from(samples.presented_end());
        if self.start > 0 && i128::from(self.start) >= end {
            let start = self.start;
            return Err(format!(
                "an edit list that begins at {start} where its samples end at {end}; {CURE}"
            ));
        }
        let movie_timescale = i128::from(movie_timescale);
        let units = i128::from(self.delay) * i128::from(samples.timescale());
        let delay = (units + movie_timescale / 2) / movie_timescale;
        i64::try_from(delay - i128::from(self.start))
            .map_err(|_| format!("an edit list that begins beyond all times; {CURE}"))
    }
}

const CURE: &str = "encode it anew (ffmpeg -i IN OUT.mp4)";

#[cfg(test)]
mod tests {
    use mp4_atom::{ElstEntry, FixedPoint};

    use super::*;
    use crate::tracks::{MediaSample, SampleTableBuilder};

    fn list(edits: &[(u64, Option<u64>)]) -> Elst {
        let entry = |&(segment_duration, media_time)| ElstEntry {
            segment_duration,
            media_time,
            media_rate: FixedPoint::new(1, 0),
        };
        Elst { entries: edits.iter().map(entry).collect() }
    }

    fn second_of_90khz() -> SampleTable {
        let mut table = SampleTableBuilder::new(90_000, 100);
        let sample = MediaSample {
            file_offset: 0,
            bytes: 1,
            decode: 0,
            offset: 0,
            duration: 90_000,
            is_start: true,
        };
        table.push(sample).unwrap();
        table.finish().unwrap()
    }

    #[test]
    fn one_edit_behind_empty_ones_is_a_shift() {
        let samples = second_of_90khz();
        let shift = |edits: &[(u64, Option<u64>)]| {
            Edit::of(&list(edits)).and_then(|edit| edit.shift(1000, &samples))
        };
        assert_eq!(shift(&[]), Ok(0));
        assert_eq!(shift(&[(5, Some(0))]), Ok(0));
        assert_eq!(shift(&[(0, Some(1024))]), Ok(-1024));
        assert_eq!(shift(&[(100, None), (21, None), (5, Some(90))]), Ok(9000 + 1890 - 90));
        assert_eq!(shift(&[(5, Some(90)), (100, None)]), Ok(-90), "blank at the end");
    }

    #[test]
    fn other_lists_leave_the_track_out() {
        let samples = second_of_90khz();
        assert!(Edit::of(&list(&[(5, None)])).is_err());
        let cut = Edit::of(&list(&[(5, Some(0)), (5, Some(90))]));
        assert!(cut.unwrap_err().starts_with("an edit list of 2 edits;"));
        let mut slow = list(&[(5, Some(0))]);
        slow.entries[0].media_rate = FixedPoint::new(0, i16::MIN);
        assert!(Edit::of(&slow).unwrap_err().contains("0.500"));
        let shift = |edits: &[(u64, Option<u64>)]| {
            Edit::of(&list(edits)).and_then(|edit| edit.shift(1000, &samples))
        };
        assert!(shift(&[(5, Some(90_000))]).is_err());
        assert!(shift(&[(u64::MAX, None), (5, Some(0))]).is_err());
        assert!(shift(&[(5, Some(i64::MAX as u64))]).is_err());
    }
}
