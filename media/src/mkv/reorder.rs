// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times of decoding for frames that have times of presentation alone.
//!
//! The frames come in the order of decoding. Sorted, their times are those of decoding: the n-th
//! frame takes the n-th smallest. A bounded number of frames is held to find it.
//!
//! Sources: ISO/IEC 14496-10 §A.4.2 (at most 16 pictures are held for reordering).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Frames that wait for their times of decoding.
#[derive(Debug)]
pub(super) struct Reorder<T> {
    waiting: VecDeque<(T, i64)>,
    times: BinaryHeap<Reverse<i64>>,
    held: usize,
    last: i64,
}

impl<T> Reorder<T> {
    /// Holds as many frames as a decoder may; none where frames are presented as they are decoded.
    pub(super) fn new(is_reordered: bool) -> Reorder<T> {
        let held = if is_reordered { HELD_MAX } else { 0 };
        Reorder { waiting: VecDeque::new(), times: BinaryHeap::new(), held, last: i64::MIN }
    }

    /// Adds a frame; returns one whose time of decoding is known, with times of decoding and of
    /// presentation.
    pub(super) fn push(&mut self, frame: T, presented: i64) -> Option<(T, i64, i64)> {
        self.waiting.push_back((frame, presented));
        self.times.push(Reverse(presented));
        (self.waiting.len() > self.held).then(|| self.pop()).flatten()
    }

    /// Returns the next frame when there are no more to come.
    pub(super) fn pop(&mut self) -> Option<(T, i64, i64)> {
        let (frame, presented) = self.waiting.pop_front()?;
        let Reverse(time) = self.times.pop().expect("a time a frame");
        // A frame that comes later than any decoder could hold has a time before the last.
        self.last = self.last.max(time);
        Some((frame, self.last, presented))
    }
}

const HELD_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_decoded_at_the_sorted_times() {
        let mut reorder = Reorder::new(true);
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
    fn times_of_decoding_never_go_back() {
        let mut reorder = Reorder::new(false);
        let mut decoded = Vec::new();
        for time in [0, 40, 20, 60] {
            decoded.push(reorder.push((), time).unwrap().1);
        }
        assert_eq!(decoded, [0, 40, 40, 60]);
    }
}
