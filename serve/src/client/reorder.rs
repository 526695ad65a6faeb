// SPDX-License-Identifier: MIT OR Apache-2.0
//! Payloads put back into the order of their sequence numbers.
//!
//! A packet that is due goes through without being copied; one that is ahead is kept until the hole
//! before it is filled, or until the window is full and the hole is given up. The window is wider
//! than what [`wire::rtp::Reception`] still calls reordered, so a packet that counts as received is
//! written. Costs nothing while packets come in order; memory is bounded by [`HELD_BYTES_MAX`].
//!
//! Sources: RFC 3550 §5.1 (sequence number), A.1.
//! Does not do: tell a duplicate from a packet that came too late; both are behind, and dropped.

use std::collections::VecDeque;

/// The window: the packets that are ahead of the one that is due.
#[derive(Debug, Default)]
pub(super) struct Reorder {
    /// The sequence number that is due; none before the first.
    next: Option<u16>,
    /// From `next` on; the front is a hole whenever there is one.
    ahead: VecDeque<Option<Vec<u8>>>,
    held_bytes: usize,
    missing: u64,
}

impl Reorder {
    /// Says which sequence number is due. What is held is for [`finish`](Self::finish) to write
    /// first.
    pub(super) fn start_at(&mut self, sequence: u16) {
        self.next = Some(sequence);
    }

    /// Takes a packet, and gives all to `sink` that is now in order.
    pub(super) fn push(&mut self, sequence: u16, payload: &[u8], mut sink: impl FnMut(&[u8])) {
        let next = *self.next.get_or_insert(sequence);
        let distance = sequence.wrapping_sub(next).cast_signed();
        if distance == 0 && self.ahead.is_empty() {
            sink(payload);
            self.next = Some(next.wrapping_add(1));
            return;
        }
        let Ok(mut index) = usize::try_from(distance) else {
            return;
        };
        while index >= WINDOW_PACKETS {
            index -= self.give_up(&mut sink).min(index);
        }
        if self.ahead.len() <= index {
            self.ahead.resize(index + 1, None);
        }
        if self.ahead[index].is_none() {
            self.ahead[index] = Some(payload.to_vec());
            self.held_bytes += payload.len();
        }
        self.drain(&mut sink);
        while self.held_bytes > HELD_BYTES_MAX {
            self.give_up(&mut sink);
        }
    }

    /// Gives all that is held to `sink`; holes stay holes. The next packet is the first of a new
    /// order.
    pub(super) fn finish(&mut self, mut sink: impl FnMut(&[u8])) {
        while !self.ahead.is_empty() {
            self.give_up(&mut sink);
        }
        self.next = None;
    }

    /// Holes that were given up.
    pub(super) fn missing(&self) -> u64 {
        self.missing
    }

    /// Gives up the hole at the front; returns how many packets the window moved.
    fn give_up(&mut self, sink: &mut impl FnMut(&[u8])) -> usize {
        self.missing += 1;
        self.ahead.pop_front();
        self.next = self.next.map(|next| next.wrapping_add(1));
        1 + self.drain(sink)
    }

    fn drain(&mut self, sink: &mut impl FnMut(&[u8])) -> usize {
        let mut moved = 0;
        while let Some(Some(_)) = self.ahead.front() {
            if let Some(Some(payload)) = self.ahead.pop_front() {
                self.held_bytes -= payload.len();
                sink(&payload);
            }
            moved += 1;
        }
        self.next = self.next.map(|next| next.wrapping_add(moved as u16));
        moved
    }
}

/// More than the 3000 that a packet may be misordered by and still count as received.
const WINDOW_PACKETS: usize = 4096;

/// Payloads may be large: what is held is bounded in bytes too.
const HELD_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn written(reorder: &mut Reorder, numbers: &[u16]) -> Vec<u16> {
        let mut out = Vec::new();
        for number in numbers {
            reorder.push(*number, &number.to_be_bytes(), |bytes| {
                out.push(u16::from_be_bytes([bytes[0], bytes[1]]));
            });
        }
        out
    }

    fn rest(reorder: &mut Reorder) -> Vec<u16> {
        let mut out = Vec::new();
        reorder.finish(|bytes| out.push(u16::from_be_bytes([bytes[0], bytes[1]])));
        out
    }

    #[test]
    fn in_order_across_the_wrap() {
        let mut reorder = Reorder::default();
        assert_eq!(written(&mut reorder, &[65534, 65535, 0, 1]), [65534, 65535, 0, 1]);
        assert_eq!(reorder.missing(), 0);
    }

    #[test]
    fn reordered_and_repeated_packets_are_put_right() {
        let mut reorder = Reorder::default();
        reorder.start_at(65535);
        assert!(written(&mut reorder, &[1, 0, 0, 1]).is_empty());
        assert_eq!(written(&mut reorder, &[65535, 0, 3, 2]), [65535, 0, 1, 2, 3]);
        assert_eq!(reorder.missing(), 0);
    }

    #[test]
    fn a_hole_is_given_up_when_the_window_is_full() {
        let mut reorder = Reorder::default();
        reorder.start_at(0);
        let ahead: Vec<u16> = (2..WINDOW_PACKETS as u16).collect();
        assert_eq!(written(&mut reorder, &[0]), [0]);
        assert!(written(&mut reorder, &ahead).is_empty());
        let last = WINDOW_PACKETS as u16 + 1;
        // 1 is given up and all but the hole before `last` leave.
        assert_eq!(written(&mut reorder, &[last]), ahead);
        assert!(written(&mut reorder, &[1]).is_empty());
        assert_eq!(rest(&mut reorder), [last]);
        assert_eq!(reorder.missing(), 2);
    }

    #[test]
    fn the_end_writes_what_is_held() {
        let mut reorder = Reorder::default();
        assert_eq!(written(&mut reorder, &[10, 12, 15]), [10]);
        assert_eq!(rest(&mut reorder), [12, 15]);
        assert_eq!(reorder.missing(), 3);
        assert_eq!(written(&mut reorder, &[3]), [3]);
    }

    #[test]
    fn large_payloads_are_bounded_in_bytes() {
        let mut reorder = Reorder::default();
        reorder.start_at(0);
        let payload = vec![7; 65_000];
        let mut bytes = 0;
        for number in 1..=600 {
            reorder.push(number, &payload, |written| bytes += written.len());
            assert!(reorder.held_bytes <= HELD_BYTES_MAX);
        }
        assert_eq!((bytes, reorder.missing()), (600 * 65_000, 1));
    }
}
