// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ring model: a descriptor ring with a card on one side and a driver on the other.
//!
//! The card is a thread on another core. It reads the addresses of buffers from the ring, up to the
//! tail, and writes XL710 descriptors in their place, the done bit last. The driver does the work
//! of a poll mode driver in a burst: it converts descriptors that are done, prefetches the next
//! descriptors and buffer heads, writes each packet's metadata into the head of its buffer, hands
//! the buffers over, puts free buffers into the ring and moves the tail. The application reads each
//! head and frees the buffer. So the cost of a packet is that of a whole loop; the conversion is a
//! part of it.
//!
//! Every packet is verified: both sides sum up lengths and, in order, hashes; the card counts
//! descriptors in a state that a driver must not leave.
//!
//! Sources: DPDK's `i40e_rxtx_vec_sse.c`, for the steps of such a driver and their order;
//! Richardson, "Improving Driver Performance: A Worked Example".
//! Does not model a card's way through PCI Express and into the last-level cache, or payloads.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::specimens::descriptor::{Burst, Metadata, Short, kind, status};
use crate::specimens::prefetch::prefetch;

/// State shared by card and driver.
pub(super) struct Ring {
    descriptors: Vec<Short>,
    /// Descriptors handed to the card since the start: the tail register.
    tail: Line,
    /// Packets requested from the card since the start.
    wanted: Line,
    /// Packets that the card has written.
    written: Line,
}

/// A word alone in its cache line.
#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicUsize);

impl Ring {
    /// Makes an empty ring; the card has no descriptor.
    pub(super) fn new() -> Ring {
        Ring {
            descriptors: (0..RING).map(|_| Short::default()).collect(),
            tail: Line::default(),
            wanted: Line::default(),
            written: Line::default(),
        }
    }

    /// Requests packets from the card until the total is `total`.
    pub(super) fn want(&self, total: usize) {
        self.wanted.0.store(total, Ordering::Release);
    }

    /// Signals the card to end.
    pub(super) fn end(&self) {
        self.want(END);
    }

    /// Waits until the card has written `total` packets.
    pub(super) fn await_written(&self, total: usize) {
        let mut spins = 0;
        while self.written.0.load(Ordering::Acquire) < total {
            wait(&mut spins);
        }
    }
}

/// Checksums of one side's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    packets: usize,
    bytes: u64,
    /// Checksum of the hashes, in order.
    hashes: u32,
}

impl Sums {
    #[inline(always)]
    fn add(&mut self, length: u32, hash: u32) {
        self.packets += 1;
        self.bytes += u64::from(length);
        self.hashes = self.hashes.rotate_left(5) ^ hash;
    }
}

/// Result of the card.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    pub(super) sums: Sums,
    /// Descriptors without a valid buffer address, or not cleared.
    pub(super) wrong: usize,
}

/// Runs the card: writes the requested packets until the end.
pub(super) fn card(ring: &Ring) -> Done {
    let mut done = Done::default();
    let mut spins = 0;
    // A write to other memory evicts the ring's lines from this core's caches, as a card writes to
    // the last-level cache.
    let mut elsewhere = vec![0_u64; ELSEWHERE_BYTES / 8];
    loop {
        let wanted = ring.wanted.0.load(Ordering::Acquire);
        if wanted == END {
            return done;
        }
        let written = done.sums.packets;
        let given = ring.tail.0.load(Ordering::Acquire);
        let count = (given - written).min(wanted.saturating_sub(written)).min(CARD_BURST);
        if count == 0 {
            wait(&mut spins);
            continue;
        }
        spins = 0;
        for number in written..written + count {
            let descriptor = &ring.descriptors[number % RING];
            let [address, other] = descriptor.qwords();
            done.wrong += usize::from(address % BUFFER_BYTES != 0 || address == 0 || other != 0);
            let (length, hash) = packet(number);
            let first = u64::from(hash) << 32 | 0x0fff << 16;
            let flags = status::DONE | status::END | status::CHECKED | status::HASH;
            let kind = u64::from(kind::IPV4_UDP) << status::KIND_SHIFT;
            let length_bits = u64::from(length) << status::LENGTH_SHIFT;
            descriptor.write_back([first, flags | kind | length_bits]);
            done.sums.add(length, hash);
        }
        if done.sums.packets == wanted {
            for word in elsewhere.iter_mut().step_by(8) {
                *word += 1;
            }
            std::hint::black_box(&mut elsewhere);
        }
        ring.written.0.store(done.sums.packets, Ordering::Release);
    }
}

/// Returns length and hash of packet `number`; their period is not the ring's length.
#[inline(always)]
fn packet(number: usize) -> (u32, u32) {
    let mixed = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (60 + (mixed >> 40) as u32 % 1455, mixed as u32)
}

/// Head of a buffer, in front of it as in drivers.
#[derive(Clone, Default)]
#[repr(align(64))]
struct Head {
    metadata: Metadata,
    /// Address of the buffer, for the card.
    address: u64,
}

/// The driver, and the application that reads its packets.
pub(super) struct Driver<'a> {
    ring: &'a Ring,
    heads: Vec<Head>,
    /// The buffer of each descriptor.
    buffers: Vec<u32>,
    free: Vec<u32>,
    metadata: [Metadata; BURST],
    handed: [u32; BURST],
    /// Descriptors consumed since the start, and descriptors handed to the card.
    consumed: usize,
    given: usize,
    pub(super) sums: Sums,
}

impl<'a> Driver<'a> {
    /// Makes a driver that has handed the whole ring to the card.
    pub(super) fn new(ring: &'a Ring) -> Driver<'a> {
        let address = |number: usize| (number as u64 + 1) * BUFFER_BYTES;
        let heads = (0..RING + SPARE)
            .map(|number| Head { address: address(number), ..Head::default() })
            .collect();
        let mut driver = Driver {
            ring,
            heads,
            buffers: vec![0; RING],
            free: (0..(RING + SPARE) as u32).collect(),
            metadata: [Metadata::default(); BURST],
            handed: [0; BURST],
            consumed: 0,
            given: 0,
            sums: Sums::default(),
        };
        while driver.given < RING {
            driver.refill();
        }
        driver
    }

    /// Polls the ring for one burst at most; returns the number of packets.
    #[inline(always)]
    pub(super) fn poll(&mut self, convert: impl Fn(&[Short], &mut [Metadata]) -> Burst) -> usize {
        let at = self.consumed % RING;
        let next = (at + BURST) % RING;
        // The ring and a burst are multiples of each other: bursts do not wrap when all are full.
        for descriptor in self.ring.descriptors[next..].iter().take(BURST).step_by(LINE_DESCRIPTORS)
        {
            prefetch(descriptor);
        }
        let end = (at + BURST).min(RING);
        let burst = convert(&self.ring.descriptors[at..end], &mut self.metadata);
        let count = burst.count;
        for buffer in self.buffers[next..].iter().take(count) {
            prefetch(&self.heads[*buffer as usize]);
        }
        let buffers = &self.buffers[at..end];
        let packets = buffers.iter().zip(&self.metadata).zip(&mut self.handed).take(count);
        for ((buffer, metadata), handed) in packets {
            self.heads[*buffer as usize].metadata = *metadata;
            *handed = *buffer;
        }
        self.consumed += count;
        self.take(count);
        if self.consumed + RING - self.given >= BURST {
            self.refill();
        }
        count
    }

    /// The application: reads the packets' heads and frees the buffers.
    #[inline(always)]
    fn take(&mut self, count: usize) {
        for buffer in &self.handed[..count] {
            let metadata = &self.heads[*buffer as usize].metadata;
            self.sums.add(metadata.length, metadata.hash);
        }
        self.free.extend_from_slice(&self.handed[..count]);
    }

    /// Hands the card a burst of buffers.
    #[inline(always)]
    fn refill(&mut self) {
        let from = self.free.len() - BURST;
        let at = self.given % RING;
        let descriptors = &self.ring.descriptors[at..][..BURST];
        let slots = descriptors.iter().zip(&mut self.buffers[at..]);
        for ((descriptor, slot), buffer) in slots.zip(self.free.drain(from..)) {
            *slot = buffer;
            descriptor.refill(self.heads[buffer as usize].address);
        }
        self.given += BURST;
        self.ring.tail.0.store(self.given, Ordering::Release);
    }

    /// Counts the descriptors consumed since the start.
    pub(super) fn consumed(&self) -> usize {
        self.consumed
    }
}

/// Spins; yields the core when the wait is long.
fn wait(spins: &mut u32) {
    *spins += 1;
    if spins.is_multiple_of(SPINS_MAX) {
        std::thread::yield_now();
    }
    spin_loop();
}

/// Descriptors of the ring: the default of drivers, or twice that.
pub(super) const RING: usize = 1024;
/// Descriptors of a poll, and of a refill.
pub(super) const BURST: usize = 32;
/// Buffers outside the ring.
const SPARE: usize = 2 * BURST;
/// Descriptors that the card writes before it reads the tail again.
const CARD_BURST: usize = 64;
const BUFFER_BYTES: u64 = 2048;
const LINE_DESCRIPTORS: usize = 4;
const ELSEWHERE_BYTES: usize = 2 << 20;
const SPINS_MAX: u32 = 1 << 12;
/// Marks the end; not a number of packets.
const END: usize = usize::MAX;

const _: () = assert!(RING.is_multiple_of(BURST) && CARD_BURST < RING);

#[cfg(test)]
mod tests {
    use crate::specimens::descriptor::Descriptor;

    use super::*;

    #[test]
    fn a_driver_takes_what_the_card_wrote_whatever_converts() {
        for variant in Descriptor::all().chain(Descriptor::specimens()) {
            let ring = Ring::new();
            let total = 5 * RING + 7;
            let (sums, done) = std::thread::scope(|scope| {
                let card = scope.spawn(|| card(&ring));
                let mut driver = Driver::new(&ring);
                ring.want(total);
                while driver.consumed() < total {
                    if driver.poll(|ring, packets| variant.short(ring, packets)) == 0 {
                        std::thread::yield_now();
                    }
                }
                ring.end();
                (driver.sums, card.join().unwrap())
            });
            assert_eq!((sums, done.wrong), (done.sums, 0), "{variant:?}");
            assert_eq!(sums.packets, total);
        }
    }

    #[test]
    fn a_driver_that_converts_wrongly_has_other_sums() {
        let ring = Ring::new();
        let (sums, done) = std::thread::scope(|scope| {
            let card = scope.spawn(|| card(&ring));
            let mut driver = Driver::new(&ring);
            ring.want(RING);
            ring.await_written(RING);
            while driver.consumed() < RING {
                driver.poll(|ring, packets| {
                    let burst = crate::specimens::descriptor::oracle_short(ring, packets);
                    packets[..burst.count].swap(0, 1);
                    burst
                });
            }
            ring.end();
            (driver.sums, card.join().unwrap())
        });
        assert_eq!((sums.packets, sums.bytes), (done.sums.packets, done.sums.bytes));
        assert_ne!(sums, done.sums);
    }
}
