// SPDX-License-Identifier: MIT OR Apache-2.0
//! A track of fragmented MP4: its units from their arrival to the fragment.
//!
//! Units wait in `input` for their decoding times, one waits in `last` for the next, which ends it,
//! and `samples` are those of the current fragment. A track that pauses keeps none waiting.
//!
//! Does not decide where fragments end ([`super::fmp4`] does).

use super::FRAGMENT_S_MAX;
use super::entries::entry;
use super::input::{TimedUnit, TrackInput};
use super::parameters::needs_first_unit;
use super::pcm_blocks::PcmBlocks;
use crate::TICKS_PER_SECOND;
use crate::tracks::Codec;

/// Time without a unit after which no unit of a track is held.
const TRACK_PAUSE_TICKS: i64 = FRAGMENT_S_MAX * TICKS_PER_SECOND as i64;

/// A track of the file.
#[derive(Debug)]
pub(super) struct Track {
    pub(super) codec: Codec,
    pub(super) input: TrackInput,
    /// Regroups PCM before it enters `input`.
    pub(super) pcm: Option<PcmBlocks>,
    /// Its sample description, from the parameters of its first unit.
    pub(super) entry: Option<mp4_atom::Codec>,
    /// The sample description in the file.
    pub(super) written_entry: Option<mp4_atom::Codec>,
    pub(super) size: (u32, u32),
    /// Units of the current fragment, with their durations.
    pub(super) samples: Vec<(TimedUnit, u32)>,
    /// Memory of `samples`.
    pub(super) sample_bytes: usize,
    /// The unit after `samples`, until its end is known.
    pub(super) last: Option<TimedUnit>,
    /// Duration of the unit before `last`.
    pub(super) duration: u32,
    /// Decoding time that becomes zero in the file.
    pub(super) base: i64,
    /// Earliest decoding time of the next unit, after those before a pause.
    pub(super) floor: i64,
    /// False if the file was started without this track.
    pub(super) is_written: bool,
    pub(super) language: Option<[u8; 3]>,
}

impl Track {
    /// The track of this number in the file.
    pub(super) fn new(index: usize, codec: &Codec) -> Track {
        Track {
            codec: codec.clone(),
            input: TrackInput::new(index, codec),
            pcm: PcmBlocks::of(index, codec),
            entry: None,
            written_entry: None,
            size: (0, 0),
            samples: Vec::new(),
            sample_bytes: 0,
            last: None,
            duration: 0,
            base: i64::MIN,
            floor: i64::MIN,
            is_written: true,
            language: None,
        }
    }

    /// Returns the decoding time of the first unit not yet written.
    pub(super) fn first(&self) -> Option<i64> {
        let next = self.samples.first().map(|(unit, _)| unit).or(self.last.as_ref());
        let started = || self.pcm.as_ref().and_then(PcmBlocks::start);
        next.map(|unit| unit.decode).or_else(|| self.input.earliest()).or_else(started)
    }

    /// Media time of the units in the fragment.
    pub(super) fn fragment_ticks(&self) -> i64 {
        let first = self.samples.first().map(|(unit, _)| unit);
        let last = self.last.as_ref().or(self.samples.last().map(|(unit, _)| unit));
        first.zip(last).map_or(0, |(first, last)| {
            self.input.ticks(last.decode).saturating_sub(self.input.ticks(first.decode))
        })
    }

    pub(super) fn held_bytes(&self) -> usize {
        let last = self.last.as_ref().map_or(0, TimedUnit::held_bytes);
        self.input.held_bytes() + self.sample_bytes + last
    }

    /// Creates the sample description if the parameters are known.
    pub(super) fn describe(&mut self) {
        if self.entry.is_none() {
            self.entry = entry(&self.codec, &self.input.parameters);
            self.size = self.input.parameters.size().unwrap_or((0, 0));
        }
    }

    /// True if `moov` needs parameters that are still unknown.
    pub(super) fn is_awaited(&self) -> bool {
        !self.input.has_begun() && needs_first_unit(&self.codec)
    }

    /// True if the parameters are others than those in the file.
    pub(super) fn has_changed(&self) -> bool {
        let described = entry(&self.codec, &self.input.parameters);
        described.is_some() && described != self.written_entry
    }

    /// Appends a unit; the unit before it ends at its decoding time.
    pub(super) fn enter(&mut self, mut unit: TimedUnit) {
        unit.decode = unit.decode.max(self.base).max(self.floor);
        if let Some(last) = self.last.take() {
            // Equal times would create samples without duration, which some players drop.
            unit.decode = unit.decode.max(last.decode + 1);
            self.duration = u32::try_from(unit.decode - last.decode).unwrap_or(u32::MAX);
            self.put(last, self.duration);
        } else if let Some((before, duration)) = self.samples.last_mut() {
            // It was put there in a pause, and is not written yet.
            *duration = u32::try_from(unit.decode - before.decode).unwrap_or(u32::MAX);
        }
        self.last = Some(unit);
    }

    /// Puts all units of a track that pauses into the fragment: the next one may be hours away, and
    /// the files until then must not begin with these. `newest` is the latest time of all tracks.
    pub(super) fn end_if_paused(&mut self, newest: i64) {
        let pause = self.input.newest().map_or(0, |last| newest.saturating_sub(last));
        if pause < TRACK_PAUSE_TICKS {
            return;
        }
        self.release_all();
        if let Some(last) = self.last.take() {
            let passed = self.input.units(newest).saturating_sub(last.decode);
            let passed = u32::try_from(passed).unwrap_or(u32::MAX);
            let duration = self.last_duration(&last).min(passed).max(1);
            // A track that lags behind the others may continue before the end of this unit.
            self.floor = last.decode + 1;
            self.put(last, duration);
        }
    }

    /// Moves all units into the fragment but the last.
    pub(super) fn release_all(&mut self) {
        if let Some(block) = self.pcm.as_mut().and_then(PcmBlocks::cut) {
            // Its units were accepted with their times.
            let _ = self.input.push(block, None, |bytes, _| bytes);
        }
        self.input.release_all();
        while let Some(unit) = self.input.take() {
            self.enter(unit);
        }
    }

    /// Duration of the last unit: that of its frames for PCM, else of the unit before it, or 1 if
    /// it is the only one.
    pub(super) fn last_duration(&self, last: &TimedUnit) -> u32 {
        match &self.pcm {
            Some(pcm) => pcm.frames(last.bytes.len()),
            None => self.duration.max(1),
        }
    }

    /// Leaves the track out of the file, with the units that are there.
    pub(super) fn leave_out(&mut self) {
        self.is_written = false;
        self.samples.clear();
        (self.sample_bytes, self.last) = (0, None);
    }

    /// True if a sample of the fragment is decoded before `until`.
    pub(super) fn begins_by(&self, until: i64) -> bool {
        self.samples.first().is_some_and(|(unit, _)| self.input.ticks(unit.decode) < until)
    }

    /// Adds a unit of known duration to the fragment, unless the file is without the track.
    pub(super) fn put(&mut self, unit: TimedUnit, duration: u32) {
        if self.is_written {
            self.sample_bytes += unit.held_bytes();
            self.samples.push((unit, duration));
        }
    }

    /// Removes and returns the samples of the fragment that are decoded at `until` or later.
    pub(super) fn split_off(&mut self, until: Option<i64>) -> Vec<(TimedUnit, u32)> {
        let Some(until) = until else { return Vec::new() };
        let is_before = |(unit, _): &(TimedUnit, u32)| self.input.ticks(unit.decode) < until;
        let due = self.samples.partition_point(is_before);
        self.samples.split_off(due)
    }
}
