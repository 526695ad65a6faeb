// SPDX-License-Identifier: MIT OR Apache-2.0
//! The movie of the experiment's files: samples of pictures with B-frames and of AAC, and the check
//! that a plan has all of them.
//!
//! Pictures come 25 a second in closed groups of [`GROUP_PICTURES`], decoded in the order I P B B;
//! sound has 48,000 samples a second, 1024 a frame. Sizes vary, about as an encoder's at 5 Mb/s and
//! 128 kb/s. Everything follows from the number of a sample, so a writer and a check need no list.
//!
//! Sources: ISO/IEC 14496-12 §8.6 (times of decoding and presentation).
//! Does not write files; `mp4`, `matroska` and `stream` do.

use std::ops::Range;

use media::{MediaSample, MediaTrack, Presentation, TICKS_PER_SECOND};

/// A movie of whole groups of pictures.
#[derive(Clone, Copy, Debug)]
pub(super) struct Movie {
    pub(super) groups: u64,
}

/// A track of the movie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Pictures,
    Sound,
}

/// A sample of the movie. Times are those of presentation, in ticks of 27 MHz from the movie's
/// start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) bytes: u32,
    pub(super) presented: u64,
    pub(super) is_start: bool,
}

impl Movie {
    /// Returns a movie of about so many seconds, a group at least.
    pub(super) fn of_seconds(seconds: u64) -> Movie {
        Movie { groups: (seconds * PICTURES_PER_SECOND).div_ceil(GROUP_PICTURES).max(1) }
    }

    pub(super) fn hours(self) -> f64 {
        (self.groups * GROUP_PICTURES) as f64 / PICTURES_PER_SECOND as f64 / 3600.0
    }

    /// Returns the samples of a track in the groups before `group`.
    pub(super) fn before(kind: Kind, group: u64) -> u64 {
        match kind {
            Kind::Pictures => group * GROUP_PICTURES,
            // A frame belongs to the group in whose time it begins.
            Kind::Sound => (group * GROUP_PICTURES * SOUND_RATE_HZ / PICTURES_PER_SECOND)
                .div_ceil(FRAME_SAMPLES),
        }
    }

    /// Returns the numbers of a track's samples in a group.
    pub(super) fn group(kind: Kind, group: u64) -> Range<u64> {
        Movie::before(kind, group)..Movie::before(kind, group + 1)
    }

    /// Returns the samples of a group in the order of a file: each frame of sound before the
    /// picture that is decoded at its time or later.
    pub(super) fn interleaved(group: u64) -> Vec<(Kind, u64)> {
        let mut sound = Movie::group(Kind::Sound, group).peekable();
        let mut samples = Vec::new();
        for picture in Movie::group(Kind::Pictures, group) {
            let decoded = picture * TICKS_PER_SECOND / PICTURES_PER_SECOND;
            let is_before = |frame: &u64| Kind::Sound.unit(*frame).presented < decoded;
            while let Some(frame) = sound.next_if(is_before) {
                samples.push((Kind::Sound, frame));
            }
            samples.push((Kind::Pictures, picture));
        }
        samples.extend(sound.map(|frame| (Kind::Sound, frame)));
        samples
    }

    pub(super) fn count(self, kind: Kind) -> u64 {
        Movie::before(kind, self.groups)
    }

    /// Returns the samples of both tracks.
    pub(super) fn samples(self) -> u64 {
        Kind::ALL.map(|kind| self.count(kind)).iter().sum()
    }

    /// Returns the bytes of a track's samples in a group.
    pub(super) fn group_bytes(kind: Kind, group: u64) -> u64 {
        Movie::group(kind, group).map(|number| u64::from(kind.unit(number).bytes)).sum()
    }

    /// Compares a presentation with the movie, sample by sample; `places` are the offsets at which
    /// the writer put the samples. Times may differ by `tolerance_ticks`.
    ///
    /// # Errors
    /// The first difference.
    pub(super) fn check(
        self,
        found: &Presentation,
        places: &[Vec<u64>; 2],
        tolerance_ticks: u64,
    ) -> Result<(), String> {
        let [pictures, sound] = found.tracks() else {
            return Err(format!("{} tracks of 2", found.tracks().len()));
        };
        for ((kind, track), places) in Kind::ALL.into_iter().zip([pictures, sound]).zip(places) {
            let (samples, count) = (track.samples.len() as u64, self.count(kind));
            if samples != count {
                return Err(format!("{kind:?}: {samples} samples of {count}"));
            }
            let first = track.samples.sample(0);
            let origin = track.presented_ticks(&first) - kind.unit(0).presented as i64;
            let all = track.samples.samples(0..track.samples.len()).zip(places);
            for (number, (sample, &place)) in (0..).zip(all) {
                let is_right = is_unit(track, &sample, kind.unit(number), origin, tolerance_ticks);
                if !is_right || sample.file_offset != place {
                    let wanted = kind.unit(number);
                    return Err(format!(
                        "{kind:?}, sample {number}: {sample:?} of {wanted:?} at {place}"
                    ));
                }
            }
        }
        Ok(())
    }
}

fn is_unit(track: &MediaTrack, sample: &MediaSample, unit: Unit, origin: i64, most: u64) -> bool {
    let presented = track.presented_ticks(sample) - origin;
    (sample.bytes, sample.is_start) == (unit.bytes, unit.is_start)
        && presented.abs_diff(unit.presented as i64) <= most
}

impl Kind {
    pub(super) const ALL: [Kind; 2] = [Kind::Pictures, Kind::Sound];

    /// Returns a sample by its number in decoding order.
    pub(super) fn unit(self, number: u64) -> Unit {
        let noise = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        let bytes = |mean: u64| (mean / 2 + mean * noise / 0xffff) as u32;
        match self {
            Kind::Sound => {
                let presented = number * FRAME_SAMPLES * TICKS_PER_SECOND / SOUND_RATE_HZ;
                Unit { bytes: bytes(341), presented, is_start: true }
            }
            Kind::Pictures => {
                let mean = match number % GROUP_PICTURES {
                    0 => 100_000,
                    place if place % 3 == 1 => 36_000,
                    _ => 17_000,
                };
                let shown = number + u64::from(delay_pictures(number)) - DELAY_PICTURES;
                Unit {
                    bytes: bytes(mean),
                    presented: shown * TICKS_PER_SECOND / PICTURES_PER_SECOND,
                    is_start: number.is_multiple_of(GROUP_PICTURES),
                }
            }
        }
    }
}

/// Returns the pictures' times from decoding to presentation: one for a key frame, three for a P
/// picture, which is decoded before the two B pictures that are presented before it.
pub(super) fn delay_pictures(number: u64) -> u32 {
    match number % GROUP_PICTURES {
        0 => DELAY_PICTURES as u32,
        place if place % 3 == 1 => 3,
        _ => 0,
    }
}

/// Record of H.264 without parameter sets (`avcC`): high profile, lengths of four bytes.
pub(super) const AVC_RECORD: [u8; 7] = [1, 100, 0, 31, 0xff, 0xe0, 0];
/// AudioSpecificConfig: AAC-LC, 48 kHz, two channels.
pub(super) const AAC_CONFIG: [u8; 2] = [0x11, 0x90];
/// Pictures of a group: a key frame, then sixteen times P B B.
pub(super) const GROUP_PICTURES: u64 = 49;
pub(super) const PICTURES_PER_SECOND: u64 = 25;
pub(super) const SOUND_RATE_HZ: u64 = 48_000;
/// Samples of sound in a frame of AAC.
pub(super) const FRAME_SAMPLES: u64 = 1024;
/// Pictures' times from decoding to presentation of a key frame.
const DELAY_PICTURES: u64 = 1;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_picture_is_shown_once_and_none_before_it_is_decoded() {
        let pictures = 3 * GROUP_PICTURES;
        let step = TICKS_PER_SECOND / PICTURES_PER_SECOND;
        let shown = (0..pictures).map(|number| Kind::Pictures.unit(number).presented / step);
        let shown: Vec<u64> = shown.collect();
        assert_eq!(shown[..7], [0, 3, 1, 2, 6, 4, 5]);
        assert_eq!(shown.iter().copied().collect::<BTreeSet<_>>(), (0..pictures).collect());
        assert!(shown.iter().zip(0..).all(|(&shown, decoded)| shown + DELAY_PICTURES >= decoded));
    }

    #[test]
    fn frames_of_sound_begin_in_the_time_of_their_group() {
        let ticks = |pictures: u64| pictures * TICKS_PER_SECOND / PICTURES_PER_SECOND;
        for group in 0..200 {
            let begin = ticks(group * GROUP_PICTURES);
            let end = ticks((group + 1) * GROUP_PICTURES);
            for number in Movie::group(Kind::Sound, group) {
                assert!((begin..end).contains(&Kind::Sound.unit(number).presented), "{number}");
            }
        }
        let movie = Movie::of_seconds(3600);
        let bits = |kind| {
            let bytes = (0..movie.groups).map(|group| Movie::group_bytes(kind, group));
            bytes.sum::<u64>() * 8 / 3600
        };
        assert!((4_800_000..5_400_000).contains(&bits(Kind::Pictures)), "{}", bits(Kind::Pictures));
        assert!((120_000..136_000).contains(&bits(Kind::Sound)), "{}", bits(Kind::Sound));
    }
}
