// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arena: source and target memory of the measured copies, and the orders that walk it.
//!
//! Source and target begin at a page's start and half a page after one. Modulo a page this is the
//! largest possible distance: a load whose address shares the last 12 bits of an earlier store
//! waits for that store, and a copy of 1,500 bytes then lasts 22 ns instead of 14.
//!
//! Hot copies alternate between two pages: they stay in the first-level cache, and each has another
//! address, so that no copy can be skipped as a repetition. Cold copies walk through more than any
//! cache holds, in an order that no prefetcher predicts.
//!
//! Sources: Intel's optimisation manual, "4K aliasing".
//! Does not measure time.

use std::cell::RefCell;

/// Source and target memory.
pub(super) struct Arena {
    source: Vec<u8>,
    target: RefCell<Vec<u8>>,
}

/// Offsets of source and target from the beginning of the arena's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offsets {
    pub(super) source: usize,
    pub(super) target: usize,
}

impl Arena {
    /// Allocates source and target of `bytes` bytes each; writes to every page, so that it is
    /// mapped.
    pub(super) fn new(bytes: usize) -> Arena {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut source = vec![0; bytes + MARGIN];
        for word in source.chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
        }
        let target = RefCell::new(vec![1; bytes + MARGIN]);
        Arena { source, target }
    }

    /// Lends source and target from the start of the first copy.
    pub(super) fn lend<R>(&self, offsets: Offsets, work: impl FnOnce(&[u8], &mut [u8]) -> R) -> R {
        let mut target = self.target.borrow_mut();
        let page = |memory: &[u8]| memory.as_ptr().align_offset(PAGE_BYTES);
        let from = page(&self.source) + offsets.source;
        let to = page(&target) + PAGE_BYTES / 2 + offsets.target;
        work(&self.source[from..], &mut target[to..])
    }
}

/// Sequence of the copies of a run.
pub(super) trait Order {
    /// Returns the start of call number `call` and its bytes.
    fn copy(&self, call: usize) -> (usize, usize);

    /// Returns the number of calls until the order repeats.
    fn calls(&self) -> usize;

    /// Returns the places when all copies have one size.
    fn places(&self) -> Option<&Places>;
}

/// Copies of one size in several places.
pub(super) struct Places {
    bytes: usize,
    /// Bytes from the start of one place to the start of the next.
    stride: usize,
    /// Number of places, a power of two.
    count: usize,
    /// Places from one copy to the next; odd, so that every place is visited.
    step: usize,
}

impl Places {
    /// Alternates between two pages; copies larger than half a page stay in one place.
    pub(super) fn hot(bytes: usize) -> Places {
        let count = if bytes <= PAGE_BYTES / 2 { 2 } else { 1 };
        Places { bytes, stride: PAGE_BYTES, count, step: 1 }
    }

    /// Reuses a place only after all others: walks through at least half of `arena_bytes`.
    pub(super) fn cold(bytes: usize, arena_bytes: usize) -> Places {
        // One cache line between two places keeps them from prefetching each other.
        let stride = bytes.next_multiple_of(LINE_BYTES) + LINE_BYTES;
        let count = 1 << (arena_bytes / stride).max(1).ilog2();
        // Golden ratio: successive copies are far apart in memory.
        let step = (count as f64 * 0.618) as usize | 1;
        Places { bytes, stride, count, step }
    }

    /// Returns the bytes of a copy.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes from the first place to the end of the last.
    pub(super) fn reach(&self) -> usize {
        (self.count - 1) * self.stride + self.bytes
    }
}

impl Order for Places {
    #[inline(always)]
    fn copy(&self, call: usize) -> (usize, usize) {
        let place = call.wrapping_mul(self.step) & (self.count - 1);
        (place * self.stride, self.bytes)
    }

    fn calls(&self) -> usize {
        self.count
    }

    fn places(&self) -> Option<&Places> {
        Some(self)
    }
}

/// Random sizes in one place.
pub(super) struct Mixed {
    sizes: Vec<u32>,
}

impl Mixed {
    /// Draws sizes uniformly from a range, too many for a branch predictor to learn.
    pub(super) fn new(least: usize, most: usize) -> Mixed {
        let count = (most - least + 1) as u32;
        let mut sizes: Vec<u32> =
            (0..MIXED_CALLS).map(|number| least as u32 + number % count).collect();
        shuffle(&mut sizes);
        Mixed { sizes }
    }
}

impl Order for Mixed {
    #[inline(always)]
    fn copy(&self, call: usize) -> (usize, usize) {
        (0, self.sizes[call % MIXED_CALLS as usize] as usize)
    }

    fn calls(&self) -> usize {
        MIXED_CALLS as usize
    }

    fn places(&self) -> Option<&Places> {
        None
    }
}

fn shuffle(numbers: &mut [u32]) {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for last in (1..numbers.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let other = (state >> 33) as usize % (last + 1);
        numbers.swap(last, other);
    }
}

const PAGE_BYTES: usize = 4096;
const LINE_BYTES: usize = 64;
/// Bytes left for the offsets and for aligning the start of the arena to a page.
const MARGIN: usize = 3 * PAGE_BYTES;
const MIXED_CALLS: u32 = 1 << 16;
