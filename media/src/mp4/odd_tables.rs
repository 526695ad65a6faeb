// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables that lack entries or contradict each other are read as by players, each with a warning.
//!
//! - Durations (`stts`) or presentation offsets (`ctts`) that end before the samples do: the last
//!   entry holds for all that follow.
//! - Samples of chunks (`stsc`) whose first entry is not for the first chunk: it applies from
//!   there.
//! - Random-access points (`stss`) out of order: decreasing ones are ignored.
//! - Pictures without any random-access point, because of an empty `stss` or the flags of
//!   fragments: the points are searched for in the samples. Costs some reads a sample; samples of
//!   other files are not read.
//! - Fragments whose first times (`tfdt`) are before the last sample by up to
//!   1 / [`STEPS_BACK_PER_SECOND`] s: their samples are decoded at the time of that one.
//!
//! Sources: ISO/IEC 14496-12 §8.6.1, §8.6.2, §8.7.4, §8.8.12.

use super::boxes::{FourCode, Input};
use super::movie::TrackState;
use crate::DemuxError;
use crate::random_access;
use crate::tracks::{MediaSample, SampleTableBuilder};

/// Part of a second by which times of fragments may step back: some pictures.
const STEPS_BACK_PER_SECOND: u32 = 5;

/// Findings about the tables of a track.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OddTables {
    /// Tables that end before the samples do, and the number of the first sample that they lack.
    pub(super) ended: Vec<(FourCode, u32)>,
    /// The first chunk in `stsc`, if it is not 1.
    pub(super) first_chunk: Option<u32>,
    /// Entries of `stss` that do not increase.
    pub(super) starts_back: u32,
    /// Random-access points that were found in the samples.
    pub(super) starts_found: u32,
    /// The longest step back of a fragment, in units of the time scale.
    pub(super) step_back: u64,
}

const CURE: &str = "make its tables anew (ffmpeg -i IN -map 0 -c copy OUT.mp4)";

impl OddTables {
    /// Returns the warnings of the track with this number; nearly every track has none.
    pub(super) fn warnings(&self, id: u32, timescale: u32) -> Vec<String> {
        let mut found = Vec::new();
        for (code, sample) in &self.ended {
            let code = String::from_utf8_lossy(code);
            found.push(format!("{code} ends before sample {sample}, and its last entry is kept"));
        }
        if let Some(first) = self.first_chunk {
            found.push(format!("stsc begins with chunk {first}, and its entry is taken for all"));
        }
        if self.starts_back > 0 {
            let count = self.starts_back;
            found.push(format!("stss has {count} entries out of order, which are ignored"));
        }
        if self.starts_found > 0 {
            let count = self.starts_found;
            found.push(format!(
                "no sample is marked as a random-access point, and {count} were found in the \
                 pictures"
            ));
        }
        if self.step_back > 0 {
            let ms = (self.step_back * 1000).div_ceil(timescale.into());
            found.push(format!(
                "times of fragments (tfdt) step back by up to {ms} ms, and samples are decoded \
                 later instead"
            ));
        }
        found.into_iter().map(|finding| format!("track {id}: {finding}; {CURE}")).collect()
    }

    /// Moves a sample that is decoded before the last one, by a little, to its time. Pictures are
    /// presented when they were to be.
    pub(super) fn step_forward(
        &mut self,
        sample: &mut MediaSample,
        (samples, is_video): (&SampleTableBuilder, bool),
    ) {
        let last = samples.last_decode();
        let most = samples.so_far().timescale() / STEPS_BACK_PER_SECOND;
        let back = last.saturating_sub(sample.decode);
        if back == 0 || back > u64::from(most) {
            return;
        }
        let units = back as u32;
        sample.decode = last;
        sample.duration = sample.duration.saturating_sub(units);
        if is_video {
            sample.offset = sample.offset.saturating_sub_unsigned(units);
        }
        self.step_back = self.step_back.max(back);
    }
}

impl TrackState {
    /// Looks for random-access points in the samples from `next` on, for at most `budget` samples,
    /// if the track is one of pictures without any; true at its end. A track of PCM gets its last
    /// block.
    pub(super) fn find_starts(
        &mut self,
        input: &Input<'_>,
        next: &mut usize,
        budget: &mut usize,
    ) -> Result<bool, DemuxError> {
        self.end_block()?;
        let description = self.chosen.and_then(|chosen| self.descriptions.get(chosen as usize - 1));
        let codec = description.and_then(|description| description.codec.as_ref().ok());
        let (Some(codec), Ok(samples)) = (codec, &mut self.samples) else { return Ok(true) };
        let found = &mut self.odd.starts_found;
        let read = |bytes: &mut [u8], at: u64| input.read(bytes, at);
        random_access::find_starts((codec, samples), (next, found), budget, read)
    }
}
