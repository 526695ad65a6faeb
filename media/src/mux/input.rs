// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the units of a track on their way into a file and derives their decoding times.
//!
//! A unit has only a presentation time. The presentation times of a group of pictures, sorted, are
//! its decoding times ([`Reorder`]). As many units are held as the sequence parameter set allows an
//! encoder to reorder, 16 if it gives no number, and none of them for longer than the writer
//! allows. If pictures are reordered, sorted times are later than presentation times, so all
//! decoding times are moved back by a constant. It is derived from the first group of pictures and
//! from the number in the parameter set. If it turns out to be too small, a unit is decoded no
//! later than the earliest presentation time of the held units.
//!
//! A track of pictures begins with a random access point. Pictures that follow it and refer to
//! pictures before it are dropped: no decoder that begins here could show them.
//!
//! Sources: RFC 3550 §5.1 (timestamps); ISO/IEC 14496-10 annex E.2.1 (max_num_reorder_frames);
//! ISO/IEC 23008-2 table 7-1, §8.1.3 (RASL pictures).
//! Does not wait for another key frame if one is missing after the first.

use std::collections::VecDeque;

use super::UNIT_BYTES_MAX;
use super::parameters::{Parameters, nal_units};
use crate::reorder::{HELD_MAX, Reorder};
use crate::tracks::{Codec, TrackMedia};
use crate::{AccessUnit, MuxRefusal, TICKS_PER_SECOND};

/// Most seconds by which a unit may be presented before the one received before it: reordering of
/// any encoder.
const BACK_S_MAX: i64 = 10;

/// Most seconds by which a unit may be presented after the one before it: a camera was offline.
/// Offsets of MP4 have 32 bits, 6.6 h at 90 kHz.
const AHEAD_S_MAX: i64 = 6 * 3600;

/// Largest absolute time of a unit, in seconds: clocks may count from 1900.
const TIME_S_MAX: i64 = 1 << 34;

/// Memory of a unit in addition to its bytes.
const UNIT_OVERHEAD_BYTES: usize = 128;

/// A unit with its times, in units of the track's clock.
#[derive(Debug)]
pub(super) struct TimedUnit {
    pub(super) bytes: Vec<u8>,
    pub(super) is_start: bool,
    /// Decoding time; not after presentation, and never before that of the previous unit.
    pub(super) decode: i64,
    pub(super) presented: i64,
}

impl TimedUnit {
    /// Memory used by the unit.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.len() + UNIT_OVERHEAD_BYTES
    }
}

/// The held units of a track, and their checks.
#[derive(Debug)]
pub(super) struct TrackInput {
    track: usize,
    rate_hz: u32,
    is_video: bool,
    pub(super) parameters: Parameters,
    reorder: Reorder<(Vec<u8>, bool)>,
    /// Units whose decoding times are known.
    pub(super) ready: VecDeque<TimedUnit>,
    /// Memory of all held units.
    held_bytes: usize,
    /// Presentation time of the last unit received.
    last: Option<i64>,
    /// Largest delay from the presentation of a unit to its sorted time, derived from the first
    /// units.
    lag: Option<i64>,
    /// Presentation time of the first unit, as long as pictures presented before it may follow.
    leads: Option<i64>,
}

impl TrackInput {
    pub(super) fn new(track: usize, codec: &Codec) -> TrackInput {
        let parameters = Parameters::of(codec);
        TrackInput {
            track,
            rate_hz: codec.clock_rate_hz().max(1),
            is_video: codec.media() == TrackMedia::Video,
            reorder: Reorder::new(0),
            parameters,
            ready: VecDeque::new(),
            held_bytes: 0,
            last: None,
            lag: None,
            leads: None,
        }
    }

    /// Converts a time of this track to ticks of 27 MHz, rounded down.
    pub(super) fn ticks(&self, time: i64) -> i64 {
        let ticks = i128::from(time) * i128::from(TICKS_PER_SECOND);
        ticks.div_euclid(self.rate_hz.into()) as i64
    }

    /// Converts ticks to units of this track's clock, rounded down.
    pub(super) fn units(&self, ticks: i64) -> i64 {
        let units = i128::from(ticks) * i128::from(self.rate_hz);
        units.div_euclid(TICKS_PER_SECOND.into()) as i64
    }

    /// Memory of the held units, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// True after the first accepted unit.
    pub(super) fn has_begun(&self) -> bool {
        self.last.is_some()
    }

    /// Presentation time of the last unit received, in ticks.
    pub(super) fn newest(&self) -> Option<i64> {
        self.last.map(|last| self.ticks(last))
    }

    /// True if some units have no decoding time yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.reorder.earliest().is_some()
    }

    /// Earliest decoding time of the held units.
    pub(super) fn earliest(&self) -> Option<i64> {
        let ready = self.ready.front().map(|unit| unit.decode);
        let lag = || self.lag.unwrap_or_else(|| lag(&self.reorder, self.parameters.reordered()));
        ready.or_else(|| self.reorder.earliest().map(|earliest| earliest - lag()))
    }

    /// Adds a unit, with its bytes converted by `form`. `newest` is the latest time in the file, in
    /// ticks.
    pub(super) fn push(
        &mut self,
        unit: AccessUnit,
        newest: Option<i64>,
        form: impl FnOnce(Vec<u8>, &Parameters) -> Vec<u8>,
    ) -> Result<(), MuxRefusal> {
        let track = self.track;
        let AccessUnit { time, bytes, is_start, .. } = unit;
        if bytes.len() > UNIT_BYTES_MAX {
            let limit = UNIT_BYTES_MAX;
            return Err(MuxRefusal::TooLarge { track, bytes: bytes.len(), limit });
        }
        self.check_time(time, newest)?;
        let is_empty = match &self.parameters {
            Parameters::Sets { .. } => nal_units(&bytes).is_some_and(|nals| nals.is_empty()),
            _ => bytes.is_empty(),
        };
        if is_empty {
            return Err(MuxRefusal::Empty { track });
        }
        let observed = self.parameters.observe(&bytes);
        observed.map_err(|what| MuxRefusal::Malformed { track, what })?;
        if self.is_video && !self.has_begun() && !(is_start && self.parameters.are_known()) {
            return Err(MuxRefusal::NoStart { track });
        }
        if !self.has_begun() {
            self.leads = Some(time);
        } else if let Some(first) = self.leads {
            match self.parameters.is_leading(&bytes, time < first) {
                Some(false) => self.leads = None,
                Some(true) => return Err(MuxRefusal::Leading { track }),
                None => {}
            }
        }
        if is_start {
            self.reorder.hold(self.parameters.reordered());
        }
        let bytes = form(bytes, &self.parameters);
        self.last = Some(time);
        self.held_bytes += bytes.len() + UNIT_OVERHEAD_BYTES;
        self.reorder.add((bytes, is_start), time);
        while self.reorder.is_over() {
            self.release();
        }
        Ok(())
    }

    /// Releases the units presented at `time` or before, in decoding order: they have been held for
    /// the longest time allowed.
    pub(super) fn release_until(&mut self, time: i64) {
        while self.reorder.earliest().is_some_and(|earliest| earliest <= time) {
            self.release();
        }
    }

    /// Releases all units.
    pub(super) fn release_all(&mut self) {
        self.release_until(i64::MAX);
    }

    /// Releases the next unit with the decoding time derived so far.
    fn release(&mut self) {
        let Some(earliest) = self.reorder.earliest() else { return };
        let known = || lag(&self.reorder, self.parameters.reordered());
        let lag = *self.lag.get_or_insert_with(known);
        let Some(((bytes, is_start), decode, presented)) = self.reorder.pop() else { return };
        let decode = (decode - lag).min(earliest);
        self.ready.push_back(TimedUnit { bytes, is_start, decode, presented });
    }

    /// Removes the next unit whose times are known.
    pub(super) fn take(&mut self) -> Option<TimedUnit> {
        let unit = self.ready.pop_front()?;
        self.held_bytes -= unit.held_bytes();
        Some(unit)
    }

    /// Checks that a unit's time is plausible after the times before it.
    pub(super) fn check_time(&self, time: i64, newest: Option<i64>) -> Result<(), MuxRefusal> {
        let rate = i64::from(self.rate_hz);
        let is_far = time.unsigned_abs() > (TIME_S_MAX as u64).saturating_mul(rate as u64);
        let step_ms = |step: i128, rate: i128| {
            let ms = step * 1000 / rate;
            ms.clamp(i64::MIN.into(), i64::MAX.into()) as i64
        };
        let behind_ms = |newest: i64| {
            step_ms(i128::from(self.ticks(time)) - i128::from(newest), TICKS_PER_SECOND.into())
        };
        let by_ms = match (self.last, newest) {
            (Some(last), newest) => {
                let by_ms = step_ms(i128::from(time) - i128::from(last), rate.into());
                match newest {
                    // The track paused while others continued.
                    Some(newest) if by_ms > AHEAD_S_MAX * 1000 => by_ms.min(behind_ms(newest)),
                    _ => by_ms,
                }
            }
            _ if is_far => step_ms(time.into(), rate.into()),
            (None, Some(newest)) => behind_ms(newest),
            (None, None) => 0,
        };
        // The first unit of another track may have been delayed for longer.
        let back_s = if self.has_begun() { BACK_S_MAX } else { AHEAD_S_MAX };
        let (back_ms, ahead_ms) = (back_s * 1000, AHEAD_S_MAX * 1000);
        match is_far || by_ms < -back_ms || by_ms > ahead_ms {
            true => Err(MuxRefusal::TimeJump { track: self.track, by_ms, back_ms, ahead_ms }),
            false => Ok(()),
        }
    }
}

/// Returns the largest delay from the presentation of a unit to its sorted time: of the first
/// units, and of the reordering that the parameter set allows.
fn lag<T>(first: &Reorder<T>, reordered: usize) -> i64 {
    let (count, span) = first.span();
    let interval = span / (count as i64 - 1).max(1);
    let declared = if reordered < HELD_MAX { reordered as i64 * interval } else { 0 };
    first.lag().max(declared)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(
        input: &mut TrackInput,
        unit: AccessUnit,
        newest: Option<i64>,
    ) -> Result<(), MuxRefusal> {
        input.push(unit, newest, |bytes, _| bytes)
    }

    fn sound() -> TrackInput {
        TrackInput::new(3, &Codec::Opus { channels: 2 })
    }

    fn unit(time: i64, bytes: &[u8]) -> AccessUnit {
        AccessUnit { time, bytes: bytes.to_vec(), is_start: true, is_after_loss: false }
    }

    #[test]
    fn sound_is_ready_at_once_and_its_memory_is_counted() {
        let mut input = sound();
        push(&mut input, unit(960, &[1, 2, 3]), None).unwrap();
        assert_eq!(input.held_bytes(), 3 + UNIT_OVERHEAD_BYTES);
        let released = input.take().unwrap();
        assert_eq!((released.decode, released.presented), (960, 960));
        assert_eq!((input.held_bytes(), input.is_waiting()), (0, false));
    }

    #[test]
    fn pictures_are_decoded_before_they_are_presented_also_where_the_order_gets_deeper() {
        // Main profile, 16 × 16, without VUI: the reordering depth is unknown.
        let set = [0x67, 0x4d, 0x00, 0x0a, 0xf2, 0xbc, 0x80];
        let codec = Codec::H264(crate::tracks::H264Config {
            length_bytes: 4,
            profile: [0x4d, 0x40, 0x0a],
            sequence_sets: vec![set.to_vec()],
            picture_sets: vec![vec![0x68, 0xce]],
        });
        let mut input = TrackInput::new(0, &codec);
        assert_eq!(input.parameters.reordered(), HELD_MAX);
        // First without B pictures, then I P B B, at 25 pictures a second.
        let order = (0..20).chain((20..80).map(|at| at + [2, -1, -1][(at as usize - 20) % 3]));
        for picture in order {
            let bytes = [0, 0, 0, 2, 0x65, 1];
            push(&mut input, unit(picture * 3600, &bytes), None).unwrap();
        }
        input.release_all();
        let all: Vec<_> = std::iter::from_fn(|| input.take()).collect();
        assert_eq!(all.len(), 80);
        assert!(all.iter().all(|unit| unit.decode <= unit.presented));
        assert!(all.windows(2).all(|pair| pair[0].decode <= pair[1].decode));
    }

    #[test]
    fn pictures_that_refer_to_those_before_the_first_are_left_out() {
        let accepted = |codec: &Codec, pictures: &[(i64, bool, u8)]| {
            let mut input = TrackInput::new(0, codec);
            let push = |&(time, is_start, header): &(i64, bool, u8)| {
                let bytes = vec![0, 0, 0, 3, header, 1, 0x80];
                let unit = AccessUnit { time, bytes, is_start, is_after_loss: false };
                match push(&mut input, unit, None) {
                    Ok(()) => Some(time),
                    Err(refusal) => {
                        let expected = match input.has_begun() {
                            true => MuxRefusal::Leading { track: 0 },
                            false => MuxRefusal::NoStart { track: 0 },
                        };
                        assert_eq!(refusal, expected);
                        None
                    }
                }
            };
            pictures.iter().filter_map(push).collect::<Vec<_>>()
        };
        let codec = Codec::H264(crate::tracks::H264Config {
            length_bytes: 4,
            profile: [0x4d, 0x40, 0x0a],
            sequence_sets: vec![vec![0x67, 0x4d, 0x00, 0x0a, 0xf2, 0xbc, 0x80]],
            picture_sets: vec![vec![0x68, 0xce]],
        });
        // An open group of pictures: P, then I, B, B, P; the later pictures have all their
        // references.
        let pictures = [(1, false), (4, true), (2, false), (3, false), (7, false), (5, false)];
        let pictures = pictures.map(|(time, is_start)| (time, is_start, 0x41));
        assert_eq!(accepted(&codec, &pictures), [4, 7, 5]);
        // CRA, RASL, RADL, RASL, then a trailing picture.
        let set = [
            0x42, 0x01, 0x01, 0x01, 0x60, 0x00, 0x00, 0x03, 0x00, 0x90, 0x00, 0x00, 0x03, 0x00,
            0x00, 0x03, 0x00, 0x3c, 0xa0, 0x0a, 0x08, 0x0b, 0x9f, 0x79, 0x65, 0x79, 0x24, 0xca,
            0xe0, 0x10, 0x00, 0x00, 0x03, 0x00, 0x10, 0x00, 0x00, 0x03, 0x01, 0x90, 0x80,
        ];
        let codec = Codec::H265(crate::tracks::H265Config {
            length_bytes: 4,
            profile: [0; 12],
            video_sets: vec![vec![0x40, 1, 1]],
            sequence_sets: vec![set.to_vec()],
            picture_sets: vec![vec![0x44, 1, 1]],
        });
        let of = |time, kind: u8| (time, kind == 21, kind << 1);
        let pictures = [of(9, 21), of(5, 9), of(6, 7), of(7, 8), of(12, 1), of(10, 9), of(11, 1)];
        assert_eq!(accepted(&codec, &pictures), [9, 6, 12, 10, 11]);
    }

    #[test]
    fn units_far_from_those_before_are_refused_and_the_next_is_taken() {
        let mut input = sound();
        for time in [i64::MIN, i64::MAX, (TIME_S_MAX + 1) * 48_000] {
            let refusal = push(&mut input, unit(time, &[1]), None).unwrap_err();
            assert!(matches!(refusal, MuxRefusal::TimeJump { track: 3, .. }), "{refusal}");
        }
        // The first unit of a track is compared with the other tracks.
        let newest = Some(input.ticks(0));
        let late = (AHEAD_S_MAX + 1) * 48_000;
        assert!(push(&mut input, unit(late, &[1]), newest).is_err());
        push(&mut input, unit(0, &[1]), newest).unwrap();
        for time in [-11 * 48_000, late] {
            assert!(push(&mut input, unit(time, &[1]), newest).is_err(), "{time}");
        }
        push(&mut input, unit(-9 * 48_000, &[1]), newest).unwrap();
        push(&mut input, unit(960, &[1]), newest).unwrap();
    }

    #[test]
    fn units_without_content_or_too_large_are_refused() {
        let mut input = sound();
        assert_eq!(push(&mut input, unit(0, &[]), None), Err(MuxRefusal::Empty { track: 3 }));
        let large = vec![0; UNIT_BYTES_MAX + 1];
        let refusal = push(&mut input, unit(0, &large), None).unwrap_err();
        assert!(matches!(refusal, MuxRefusal::TooLarge { .. }), "{refusal}");
        push(&mut input, unit(0, &large[1..]), None).unwrap();
    }
}
