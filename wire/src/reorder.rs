// SPDX-License-Identifier: MIT OR Apache-2.0
//! Restores the order of payloads by their sequence numbers.
//!
//! The next packet in order passes without a copy. A packet ahead of it is held until the gap
//! before it is filled, or until the window is full or its time has elapsed; then the gap is
//! skipped. The window can be wider than the range in which [`crate::rtp::Reception`] counts
//! packets as reordered ([`Limits::default`]), so that a packet that counts as received is written.
//! Costs nothing while packets arrive in order, and one copy of each packet after a gap; held
//! packets are bounded in number, bytes and time, and their memory is reused.
//!
//! Sources: RFC 3550 §5.1 (sequence number), A.1.
//! Does not distinguish a duplicate from a late packet: both are dropped.

use std::collections::VecDeque;
use std::time::Duration;

/// Limits on packets held after a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Sequence numbers, from the expected one on.
    pub packets: u16,
    /// Payload bytes.
    pub bytes: usize,
    /// Longest time for which the first packet after a gap is held.
    pub wait: Duration,
}

impl Default for Limits {
    /// More than the 3000 that a packet may be misordered by and still count as received, 16 MiB,
    /// and for ever.
    fn default() -> Limits {
        Limits { packets: 4096, bytes: 16 << 20, wait: Duration::MAX }
    }
}

/// Result of pushing a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// It was passed on, perhaps with others behind it.
    Through,
    /// The packet is held: a packet before it is missing.
    Kept,
    /// A packet of this number is held already.
    Twice,
    /// A later packet was passed on already: this one is a duplicate or too late.
    Behind,
}

/// The window: packets ahead of the expected one.
#[derive(Debug, Default)]
pub struct Reorder {
    limits: Limits,
    /// The expected sequence number; none before the first packet.
    next: Option<u16>,
    /// From `next` on; the front is a hole whenever there is one.
    ahead: VecDeque<Option<HeldPacket>>,
    kept_bytes: usize,
    missing: u64,
    /// Buffers for reuse.
    spare: Vec<Vec<u8>>,
}

#[derive(Debug, Clone)]
struct HeldPacket {
    payload: Vec<u8>,
    arrived: Duration,
}

impl Reorder {
    /// An empty window.
    pub fn new(limits: Limits) -> Reorder {
        Reorder { limits, ..Reorder::default() }
    }

    /// Sets the expected sequence number. Call [`finish`](Self::finish) first if packets are held.
    pub fn start_at(&mut self, sequence: u16) {
        self.next = Some(sequence);
    }

    /// Adds a packet and passes all packets that are now in order to `sink`, each with its arrival
    /// time. `now` is the time on any steady clock.
    pub fn push(
        &mut self,
        sequence: u16,
        payload: &[u8],
        now: Duration,
        mut sink: impl FnMut(&[u8], Duration),
    ) -> Placed {
        let next = *self.next.get_or_insert(sequence);
        let distance = sequence.wrapping_sub(next).cast_signed();
        if distance == 0 && self.ahead.is_empty() {
            sink(payload, now);
            self.next = Some(next.wrapping_add(1));
            return Placed::Through;
        }
        let Ok(mut index) = usize::try_from(distance) else {
            return Placed::Behind;
        };
        if index == 0 {
            // The packet fills the gap at the front and need not be held.
            sink(payload, now);
            self.ahead.pop_front();
            self.next = Some(next.wrapping_add(1));
            self.drain(&mut sink);
            self.expire(now, sink);
            return Placed::Through;
        }
        while index >= usize::from(self.limits.packets.max(1)) {
            index -= self.give_up(&mut sink).min(index);
        }
        if self.ahead.len() <= index {
            self.ahead.resize(index + 1, None);
        }
        if self.ahead[index].is_some() {
            return Placed::Twice;
        }
        let mut room = self.spare.pop().unwrap_or_default();
        room.clear();
        room.extend_from_slice(payload);
        self.ahead[index] = Some(HeldPacket { payload: room, arrived: now });
        self.kept_bytes += payload.len();
        let moved = self.drain(&mut sink);
        while self.kept_bytes > self.limits.bytes {
            self.give_up(&mut sink);
        }
        if moved > index { Placed::Through } else { Placed::Kept }
    }

    /// Skips gaps whose time has elapsed. Call it regularly, since the packet after a gap may be
    /// the last one for a while.
    pub fn expire(&mut self, now: Duration, mut sink: impl FnMut(&[u8], Duration)) {
        let limit = self.limits.wait;
        while let Some((holes, first)) = self.first_held()
            && now.saturating_sub(first.arrived) >= limit
        {
            // Skips all of them at once: a search for each would make a wide gap cost its square.
            for _ in 0..holes {
                self.give_up(&mut sink);
            }
        }
    }

    /// Passes all held packets to `sink` and skips the gaps. The next packet starts a new order.
    pub fn finish(&mut self, mut sink: impl FnMut(&[u8], Duration)) {
        while !self.ahead.is_empty() {
            self.give_up(&mut sink);
        }
        self.next = None;
    }

    /// Arrival of the first packet after the gap at the front.
    pub fn held_since(&self) -> Option<Duration> {
        Some(self.first_held()?.1.arrived)
    }

    /// The first held packet, and the number of those that are missing before it.
    fn first_held(&self) -> Option<(usize, &HeldPacket)> {
        let mut kept = self.ahead.iter().enumerate();
        kept.find_map(|(holes, packet)| Some((holes, packet.as_ref()?)))
    }

    /// Packets missing in skipped gaps.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// True if no packet is held.
    pub fn is_empty(&self) -> bool {
        self.ahead.is_empty()
    }

    /// Bytes of the held payloads.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Skips the gap at the front; returns by how many packets the window moved.
    fn give_up(&mut self, sink: &mut impl FnMut(&[u8], Duration)) -> usize {
        self.missing += 1;
        self.ahead.pop_front();
        self.next = self.next.map(|next| next.wrapping_add(1));
        1 + self.drain(sink)
    }

    fn drain(&mut self, sink: &mut impl FnMut(&[u8], Duration)) -> usize {
        let mut moved = 0;
        while let Some(Some(_)) = self.ahead.front() {
            if let Some(Some(kept)) = self.ahead.pop_front() {
                self.kept_bytes -= kept.payload.len();
                sink(&kept.payload, kept.arrived);
                if self.spare.len() < SPARE_MAX && kept.payload.capacity() <= SPARE_BYTES_MAX {
                    self.spare.push(kept.payload);
                }
            }
            moved += 1;
        }
        self.next = self.next.map(|next| next.wrapping_add(moved as u16));
        moved
    }
}

/// Buffers kept for the packets after the next gap: a quarter of a mebibyte.
const SPARE_MAX: usize = 128;
const SPARE_BYTES_MAX: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_PACKETS: u16 = 4096;
    const NOW: Duration = Duration::from_secs(7);

    fn written(reorder: &mut Reorder, numbers: &[u16]) -> Vec<u16> {
        written_at(reorder, NOW, numbers)
    }

    fn written_at(reorder: &mut Reorder, now: Duration, numbers: &[u16]) -> Vec<u16> {
        let mut out = Vec::new();
        for number in numbers {
            reorder.push(*number, &number.to_be_bytes(), now, |bytes, _| {
                out.push(u16::from_be_bytes([bytes[0], bytes[1]]));
            });
        }
        out
    }

    fn rest(reorder: &mut Reorder) -> Vec<u16> {
        let mut out = Vec::new();
        reorder.finish(|bytes, _| out.push(u16::from_be_bytes([bytes[0], bytes[1]])));
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
        assert_eq!((reorder.missing(), reorder.kept_bytes()), (0, 0));
    }

    #[test]
    fn each_packet_is_told_what_became_of_it() {
        let mut reorder = Reorder::default();
        let mut push = |number: u16| reorder.push(number, &[0; 2], NOW, |_, _| {});
        let placed: Vec<_> = [5, 7, 7, 6, 6, 5, 8].map(&mut push).into();
        use Placed::{Behind, Kept, Through, Twice};
        assert_eq!(placed, [Through, Kept, Twice, Through, Behind, Behind, Through]);
    }

    #[test]
    fn a_hole_is_given_up_when_the_window_is_full() {
        let mut reorder = Reorder::default();
        reorder.start_at(0);
        let ahead: Vec<u16> = (2..WINDOW_PACKETS).collect();
        assert_eq!(written(&mut reorder, &[0]), [0]);
        assert!(written(&mut reorder, &ahead).is_empty());
        let last = WINDOW_PACKETS + 1;
        // Packet 1 is skipped, and all packets up to the gap before `last` are released.
        assert_eq!(written(&mut reorder, &[last]), ahead);
        assert!(written(&mut reorder, &[1]).is_empty());
        assert_eq!(rest(&mut reorder), [last]);
        assert_eq!(reorder.missing(), 2);
    }

    #[test]
    fn a_hole_is_given_up_after_its_time() {
        let wait = Duration::from_millis(100);
        let mut reorder = Reorder::new(Limits { wait, ..Limits::default() });
        let at = |ms: u64| Duration::from_millis(1000 + ms);
        assert_eq!(written_at(&mut reorder, at(0), &[1, 3]), [1]);
        assert!(written_at(&mut reorder, at(50), &[5]).is_empty());
        let mut out = Vec::new();
        let mut expired = |ms| {
            reorder.expire(at(ms), |bytes, _| out.push(bytes[1]));
            out.clone()
        };
        assert!(expired(99).is_empty());
        assert_eq!(expired(100), [3]);
        assert_eq!(expired(149), [3]);
        assert_eq!(expired(150), [3, 5]);
        assert_eq!(reorder.missing(), 2);
        assert_eq!(written_at(&mut reorder, at(151), &[4, 2, 6]), [6]);
    }

    #[test]
    fn the_end_writes_what_is_kept() {
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
            reorder.push(number, &payload, NOW, |written, _| bytes += written.len());
            assert!(reorder.kept_bytes() <= Limits::default().bytes);
        }
        assert_eq!((bytes, reorder.missing()), (600 * 65_000, 1));
    }
}
