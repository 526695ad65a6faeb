// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times of fragments in a file that joins several.
//!
//! The pictures of a part begin at the end of those of the part before, and the sound keeps its
//! distance to them. It follows the sound before without a gap if it is within a millisecond of it,
//! because the times of a file are rounded to its samples. No track begins before its own end: all
//! are moved by an overlap.
//!
//! Sources: ISO/IEC 14496-12 §8.8.12 (tfdt).

use media::TICKS_PER_SECOND;
use media::mp4::{FileFragment, FragmentRun, FragmentedTrack};

/// Difference of times that comes from rounding.
const ROUNDING_TICKS: i128 = TICKS_PER_SECOND as i128 / 1000;

/// Times in the new file so far.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// End of each track, in its units.
    ends: Vec<Option<u64>>,
    /// By how much the times of the current part are moved, in units of each track.
    moved: Vec<i128>,
}

impl Timeline {
    /// Places the next part, which begins with this fragment, behind the one before.
    pub(super) fn begin_part(
        &mut self,
        tracks: &[FragmentedTrack],
        leading: usize,
        first: &FileFragment,
    ) {
        self.ends.resize(tracks.len(), None);
        let starts: Vec<Option<i128>> = tracks
            .iter()
            .zip(&first.runs)
            .map(|(track, run)| Some(i128::from(track.ticks(run.as_ref()?.decode))))
            .collect();
        let ends: Vec<Option<i128>> = tracks
            .iter()
            .zip(&self.ends)
            .map(|(track, end)| Some(i128::from(track.ticks((*end)?))))
            .collect();
        // Ticks by which each track would follow its own end.
        let follows: Vec<Option<i128>> =
            ends.iter().zip(&starts).map(|(end, start)| Some((*end)? - (*start)?)).collect();
        let latest = follows.iter().flatten().max();
        let moved = match (follows[leading], latest) {
            (Some(own), Some(latest)) if *latest <= own + ROUNDING_TICKS => own,
            (_, Some(latest)) => *latest,
            (_, None) => {
                let end = ends.iter().flatten().max().copied().unwrap_or(0);
                end - starts.iter().flatten().min().copied().unwrap_or(0)
            }
        };
        let units = |(track, follows): (usize, &Option<i128>)| match (
            self.ends[track],
            &first.runs[track],
            follows,
        ) {
            (Some(end), Some(run), Some(own)) if (own - moved).abs() <= ROUNDING_TICKS => {
                i128::from(end) - i128::from(run.decode)
            }
            _ => units_of(&tracks[track], moved),
        };
        self.moved = follows.iter().enumerate().map(units).collect();
    }

    /// Returns the decoding times of a fragment's tracks in the new file.
    pub(super) fn place(
        &mut self,
        tracks: &[FragmentedTrack],
        fragment: &FileFragment,
    ) -> Vec<Option<u64>> {
        let early = |(track, run): (usize, &Option<FragmentRun>)| {
            let decode = i128::from(run.as_ref()?.decode) + self.moved[track];
            let early = i128::from(self.ends[track].unwrap_or(0)) - decode;
            Some(early.max(0) * i128::from(TICKS_PER_SECOND) / i128::from(tracks[track].timescale))
        };
        let overlap = fragment.runs.iter().enumerate().filter_map(early).max().unwrap_or(0);
        if overlap > ROUNDING_TICKS {
            for (track, moved) in tracks.iter().zip(&mut self.moved) {
                *moved += units_of(track, overlap);
            }
        }
        let place = |((run, moved), end): ((&Option<FragmentRun>, &i128), &mut Option<u64>)| {
            let run = run.as_ref()?;
            let decode = u64::try_from(i128::from(run.decode) + moved).unwrap_or(0);
            let decode = decode.max(end.unwrap_or(0));
            *end = Some(decode.saturating_add(run.duration));
            Some(decode)
        };
        fragment.runs.iter().zip(&self.moved).zip(&mut self.ends).map(place).collect()
    }
}

/// Ticks in units of a track, to the nearest.
fn units_of(track: &FragmentedTrack, ticks: i128) -> i128 {
    let units = track.units(u64::try_from(ticks.unsigned_abs()).unwrap_or(u64::MAX));
    if ticks < 0 { -i128::from(units) } else { i128::from(units) }
}

#[cfg(test)]
mod tests {
    use media::mp4::FragmentedFile;
    use media::mux::{MediaWriter, WriterKind};
    use media::tracks::{PcmConfig, PcmForm};
    use media::{AccessUnit, Codec};

    use super::*;

    /// Samples a second of the tracks, as in a camera with sound of 8 kHz and one of 44.1.
    const RATES: [u32; 2] = [44_100, 8000];

    /// A file with two tracks of sound in its first fragment.
    fn file() -> Vec<u8> {
        let codecs = RATES
            .map(|rate_hz| Codec::Pcm(PcmConfig { form: PcmForm::ALaw, rate_hz, channels: 1 }));
        let mut writer = MediaWriter::new(WriterKind::FragmentedMp4, &codecs).unwrap();
        let mut out = Vec::new();
        for (track, rate) in RATES.iter().enumerate() {
            for second in 0..2 {
                let bytes = vec![0xd5; *rate as usize];
                let time = second * i64::from(*rate);
                let unit = AccessUnit { time, bytes, is_start: true, is_after_loss: false };
                writer.push(track, unit, &mut out).unwrap();
            }
        }
        writer.end(&mut out);
        out
    }

    /// Times of decoding and durations of the tracks in a fragment.
    type Runs = [Option<(u64, u64)>; 2];

    fn fragment(whole: &FileFragment, runs: Runs) -> FileFragment {
        let mut fragment = whole.clone();
        for (run, times) in fragment.runs.iter_mut().zip(runs) {
            *run = run.zip(times).map(|(mut run, (decode, duration))| {
                (run.decode, run.duration) = (decode, duration);
                run
            });
        }
        fragment
    }

    /// Places parts of fragments; returns the times of decoding of each fragment.
    fn placed(parts: &[&[Runs]]) -> Vec<Vec<Option<u64>>> {
        let bytes = file();
        let file = FragmentedFile::open(bytes.as_slice(), bytes.len() as u64).unwrap();
        let whole = file.first().unwrap().unwrap();
        assert!(whole.runs.iter().all(Option::is_some), "both tracks are in it");
        let mut timeline = Timeline::default();
        let mut all = Vec::new();
        for part in parts {
            for (index, runs) in part.iter().enumerate() {
                let fragment = fragment(&whole, *runs);
                if index == 0 {
                    timeline.begin_part(file.tracks(), file.leading(), &fragment);
                }
                all.push(timeline.place(file.tracks(), &fragment));
            }
        }
        all
    }

    #[test]
    fn a_cut_begins_at_zero_and_the_tracks_keep_their_distance() {
        let found = placed(&[&[
            [Some((441_000, 88_200)), Some((80_800, 16_000))],
            [Some((529_200, 88_200)), Some((96_800, 16_000))],
        ]]);
        assert_eq!(found, [[Some(0), Some(800)], [Some(88_200), Some(16_800)]]);
    }

    #[test]
    fn the_next_file_follows_without_a_gap_also_where_its_times_are_rounded() {
        // The second file begins at 0.1 s of its first track, and within a millisecond of it.
        for rounded in 793..=807 {
            let found = placed(&[
                &[[Some((0, 44_100)), Some((0, 8000))]],
                &[[Some((4410, 44_100)), Some((rounded, 8000))]],
            ]);
            assert_eq!(found[1], [Some(44_100), Some(8000)], "{rounded}");
        }
        let apart = placed(&[
            &[[Some((0, 44_100)), Some((0, 8000))]],
            &[[Some((4410, 44_100)), Some((880, 8000))]],
        ]);
        assert_eq!(apart[1], [Some(44_100), Some(8080)]);
    }

    #[test]
    fn sound_that_is_longer_than_the_pictures_moves_both() {
        let found = placed(&[
            &[[Some((0, 44_100)), Some((0, 12_000))]],
            &[[Some((0, 44_100)), Some((0, 8000))], [Some((44_100, 44_100)), Some((8000, 8000))]],
        ]);
        assert_eq!(found[1], [Some(66_150), Some(12_000)]);
        assert_eq!(found[2], [Some(110_250), Some(20_000)]);
    }

    #[test]
    fn a_track_that_is_missing_in_the_first_fragment_keeps_its_distance() {
        // The sound of the second file begins in its second fragment.
        let found = placed(&[
            &[[Some((0, 88_200)), Some((0, 16_000))]],
            &[[Some((0, 88_200)), None], [Some((88_200, 88_200)), Some((16_000, 16_000))]],
        ]);
        assert_eq!(found[1], [Some(88_200), None]);
        assert_eq!(found[2], [Some(176_400), Some(32_000)]);
        // And then overlaps its end: all are moved, by half a second.
        let found = placed(&[
            &[[Some((0, 88_200)), Some((0, 36_000))]],
            &[[Some((0, 88_200)), None], [Some((88_200, 88_200)), Some((16_000, 16_000))]],
        ]);
        assert_eq!(found[2], [Some(198_450), Some(36_000)]);
        // A file of which the other track comes first follows the longest.
        let found = placed(&[
            &[[Some((0, 88_200)), None]],
            &[[None, Some((0, 8000))], [Some((0, 44_100)), None]],
        ]);
        assert_eq!(found[1..], [[None, Some(16_000)], [Some(88_200), None]]);
    }
}
