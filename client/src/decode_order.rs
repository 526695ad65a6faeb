// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decoding times for video packets, whose RTP timestamps are presentation times.
//!
//! Pictures are sent in decoding order, and a picture that is presented after a later one is not
//! late for that reason. The sorted presentation times equal the decoding times: the n-th picture
//! to arrive gets the n-th smallest. The buffer holds as many pictures as a decoder may hold; a
//! lost picture is missing from both orders.
//!
//! Sources: RFC 6184 §5.1, RFC 7798 §4.1 (timestamps); ISO/IEC 14496-10 §A.4.2 (16 pictures).
//! Does not detect reordering: it delays all video streams alike.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Instant;

/// Pictures whose packets wait for their decoding times.
#[derive(Debug, Default)]
pub(super) struct DecodeOrder {
    pictures: VecDeque<HeldPicture>,
    /// Timestamps of the same pictures, unwrapped.
    times: BinaryHeap<Reverse<i64>>,
    last: Option<i64>,
    /// The last decoding time, and its distance from the previous one.
    ready: Option<(i64, Option<i64>)>,
}

#[derive(Debug)]
struct HeldPicture {
    time: i64,
    arrivals: Vec<Instant>,
}

impl DecodeOrder {
    /// Adds a packet; calls `ready` with a timestamp in decoding order and the arrival for each
    /// packet whose decoding time is now known.
    pub(super) fn push(
        &mut self,
        timestamp: u32,
        arrival: Instant,
        mut ready: impl FnMut(u32, Instant),
    ) {
        let time = match self.last {
            None => i64::from(timestamp),
            Some(last) => last + i64::from(timestamp.wrapping_sub(last as u32).cast_signed()),
        };
        self.last = Some(time);
        // An overtaken packet belongs to a picture already in the buffer.
        if let Some(picture) = self.pictures.iter_mut().rev().find(|picture| picture.time == time) {
            if picture.arrivals.len() < PACKETS_MAX {
                picture.arrivals.push(arrival);
            }
            return;
        }
        self.pictures.push_back(HeldPicture { time, arrivals: vec![arrival] });
        self.times.push(Reverse(time));
        if self.pictures.len() > HELD_MAX {
            self.pop(&mut ready);
        }
    }

    /// Calls `ready` for the held packets: the stream pauses or has ended. Where it was cut off,
    /// pictures are missing among the last ones; times after such a gap are not decoding times, and
    /// are dropped.
    pub(super) fn flush(&mut self, mut ready: impl FnMut(u32, Instant)) {
        while let Some(Reverse(next)) = self.times.peek() {
            let is_gap = match self.ready {
                Some((last, Some(step))) => 2 * (next - last) > 3 * step,
                _ => false,
            };
            if is_gap {
                break;
            }
            self.pop(&mut ready);
        }
        *self = DecodeOrder::default();
    }

    fn pop(&mut self, ready: &mut impl FnMut(u32, Instant)) {
        let (Some(picture), Some(Reverse(time))) = (self.pictures.pop_front(), self.times.pop())
        else {
            return;
        };
        self.ready = Some((time, self.ready.map(|(last, _)| time - last)));
        for arrival in picture.arrivals {
            ready(time as u32, arrival);
        }
    }
}

/// Pictures that a decoder may hold for reordering.
const HELD_MAX: usize = 16;
/// Packets of one picture that are timed: a picture of 90 MB.
const PACKETS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn pictures_take_the_times_of_decoding() {
        let mut order = DecodeOrder::default();
        let from = Instant::now();
        let mut found = Vec::new();
        // I P B B, with a step of four pictures between groups and a wrap in between; two packets
        // each.
        for group in 0..8_u32 {
            for (at, place) in [(0, 0), (1, 3), (2, 1), (3, 2)] {
                let timestamp =
                    u32::MAX.wrapping_sub(9000).wrapping_add((4 * group + place) * 3000);
                let arrival = from + Duration::from_millis(u64::from(4 * group + at) * 33);
                for _ in 0..2 {
                    order.push(timestamp, arrival, |time, arrival| found.push((time, arrival)));
                }
            }
        }
        // The stream is cut off after the first picture of a group, which is presented late.
        let cut_off = u32::MAX.wrapping_sub(9000).wrapping_add(35 * 3000);
        order.push(cut_off, from + Duration::from_millis(32 * 33), |time, at| {
            found.push((time, at));
        });
        order.flush(|time, arrival| found.push((time, arrival)));
        assert_eq!(found.len(), 64);
        for (number, (time, arrival)) in found.iter().enumerate() {
            let picture = number as u32 / 2;
            assert_eq!(*time, u32::MAX.wrapping_sub(9000).wrapping_add(picture * 3000));
            assert_eq!(*arrival, from + Duration::from_millis(u64::from(picture) * 33));
        }
    }
}
