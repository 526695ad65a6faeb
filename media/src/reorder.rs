// SPDX-License-Identifier: MIT OR Apache-2.0
//! Derives decoding times for frames that have only presentation times.
//!
//! The frames arrive in decoding order. Their presentation times, sorted, are their decoding times:
//! the n-th frame gets the n-th smallest. A bounded number of frames is held to find it.
//!
//! Sources: ISO/IEC 14496-10 §A.4.2 (at most 16 pictures are held for reordering).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Frames held until their decoding times are known.
#[derive(Debug)]
pub(crate) struct Reorder<T> {
    waiting: VecDeque<(T, i64)>,
    times: BinaryHeap<Reverse<i64>>,
    held: usize,
    last: i64,
}

impl<T> Reorder<T> {
    /// Creates a queue that holds this many frames: [`HELD_MAX`] if nothing is known about them,
    /// and 0 if they are presented in decoding order.
    pub(crate) fn new(held: usize) -> Reorder<T> {
        Reorder { waiting: VecDeque::new(), times: BinaryHeap::new(), held, last: i64::MIN }
    }

    /// Adds a frame; returns one whose decoding time is known, with its decoding and presentation
    /// times.
    pub(crate) fn push(&mut self, frame: T, presented: i64) -> Option<(T, i64, i64)> {
        self.add(frame, presented);
        self.is_over().then(|| self.pop()).flatten()
    }

    /// Adds a frame.
    pub(crate) fn add(&mut self, frame: T, presented: i64) {
        self.waiting.push_back((frame, presented));
        self.times.push(Reverse(presented));
    }

    /// True if more frames are present than must be held: the decoding time of the first is known.
    pub(crate) fn is_over(&self) -> bool {
        self.waiting.len() > self.held
    }

    /// Raises the number of frames to hold to this one, if it is smaller.
    pub(crate) fn hold(&mut self, held: usize) {
        self.held = self.held.max(held);
    }

    /// Earliest presentation time of the held frames.
    pub(crate) fn earliest(&self) -> Option<i64> {
        self.waiting.iter().map(|&(_, presented)| presented).min()
    }

    /// Largest delay from the presentation of a held frame to its sorted time, as far as those
    /// frames show; never negative.
    pub(crate) fn lag(&self) -> i64 {
        let mut times: Vec<_> = self.times.iter().map(|&Reverse(time)| time).collect();
        times.sort_unstable();
        let lags = self.waiting.iter().zip(times).map(|(&(_, presented), time)| time - presented);
        lags.fold(0, i64::max)
    }

    /// Number of held frames, and their span of presentation times.
    pub(crate) fn span(&self) -> (usize, i64) {
        let latest = self.waiting.iter().map(|&(_, presented)| presented).max();
        let span = latest.zip(self.earliest()).map_or(0, |(latest, earliest)| latest - earliest);
        (self.waiting.len(), span)
    }

    /// Returns the next frame if no more will arrive.
    pub(crate) fn pop(&mut self) -> Option<(T, i64, i64)> {
        let (frame, presented) = self.waiting.pop_front()?;
        let Reverse(time) = self.times.pop().expect("a time a frame");
        // A frame later than any decoder could reorder has a time before the last one.
        self.last = self.last.max(time);
        Some((frame, self.last, presented))
    }
}

/// Most frames that a decoder holds.
pub(crate) const HELD_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_decoded_at_the_sorted_times() {
        let mut reorder = Reorder::new(HELD_MAX);
        // I P B B P B B, in the order of decoding.
        let presented = [0, 3, 1, 2, 6, 4, 5];
        let mut out: Vec<_> =
            presented.iter().filter_map(|&time| reorder.push(time, time)).collect();
        out.extend(std::iter::from_fn(|| reorder.pop()));
        let decoded: Vec<_> = out.iter().map(|&(_, decode, _)| decode).collect();
        assert_eq!(decoded, [0, 1, 2, 3, 4, 5, 6]);
        assert!(
            out.iter().zip(presented).all(|(&(frame, _, time), was)| (frame, time) == (was, was))
        );
    }

    #[test]
    fn frames_that_wait_tell_by_how_much_decoding_lags_behind_presentation() {
        let mut reorder = Reorder::new(HELD_MAX);
        assert_eq!((reorder.lag(), reorder.earliest(), reorder.span()), (0, None, (0, 0)));
        // I P B B: the pictures sorted are decoded one picture after the second B is presented.
        for time in [40, 160, 80, 120] {
            assert!(reorder.push((), time).is_none());
        }
        assert_eq!((reorder.lag(), reorder.earliest(), reorder.span()), (40, Some(40), (4, 120)));
        reorder.pop();
        assert_eq!((reorder.lag(), reorder.earliest()), (40, Some(80)));
    }

    #[test]
    fn times_of_decoding_never_go_back() {
        let mut reorder = Reorder::new(0);
        let mut decoded = Vec::new();
        for time in [0, 40, 20, 60] {
            decoded.push(reorder.push((), time).unwrap().1);
        }
        assert_eq!(decoded, [0, 40, 40, 60]);
    }
}
