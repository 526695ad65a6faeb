// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that copies are measured in, and the orders in which they go through it.
//!
//! Source and target begin at a page's start and half a page behind one. Modulo a page they are
//! then as far apart as can be: a load whose address has the last 12 bits of a store before it
//! waits for that store, by which a copy of 1,500 bytes takes 22 ns instead of 14.
//!
//! Hot, a copy goes to and fro between two pages: within the first cache, and to another address
//! each time, so that no copy can be left out as the one before was the same. Cold, it walks
//! through more than any cache holds in an order that no prefetcher guesses.
//!
//! Sources: Intel's optimisation manual, "4K aliasing".
//! Does not do: time.

use std::cell::RefCell;

/// Source and target.
pub(super) struct Arena {
    source: Vec<u8>,
    target: RefCell<Vec<u8>>,
}

/// Where source and target of a copy begin, behind the beginning of the arena's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offsets {
    pub(super) source: usize,
    pub(super) target: usize,
}

impl Arena {
    /// Of so many bytes each, all of them written to, so that they are there.
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

    /// Lends both from where the first copy begins.
    pub(super) fn lend<R>(&self, offsets: Offsets, work: impl FnOnce(&[u8], &mut [u8]) -> R) -> R {
        let mut target = self.target.borrow_mut();
        let page = |memory: &[u8]| memory.as_ptr().align_offset(PAGE_BYTES);
        let from = page(&self.source) + offsets.source;
        let to = page(&target) + PAGE_BYTES / 2 + offsets.target;
        work(&self.source[from..], &mut target[to..])
    }
}

/// Which copy comes after which.
pub(super) trait Order {
    /// Where call number `call` begins, and its bytes.
    fn copy(&self, call: usize) -> (usize, usize);

    /// Calls until it begins again.
    fn calls(&self) -> usize;

    /// The places, when all copies are of one size.
    fn places(&self) -> Option<&Places>;
}

/// Copies of one size in some places.
pub(super) struct Places {
    bytes: usize,
    /// From the start of one place to the start of the next.
    stride: usize,
    /// A power of two.
    count: usize,
    /// Odd, so that all places get their turn: places from one copy to the next.
    step: usize,
}

impl Places {
    /// To and fro between two pages; what is larger than half of one, in one place.
    pub(super) fn hot(bytes: usize) -> Places {
        let count = if bytes <= PAGE_BYTES / 2 { 2 } else { 1 };
        Places { bytes, stride: PAGE_BYTES, count, step: 1 }
    }

    /// Each copy where none was for a long time: through at least half of `arena_bytes`.
    pub(super) fn cold(bytes: usize, arena_bytes: usize) -> Places {
        // A line between two keeps them from fetching each other.
        let stride = bytes.next_multiple_of(LINE_BYTES) + LINE_BYTES;
        let count = 1 << (arena_bytes / stride).max(1).ilog2();
        // The golden section: neighbours in time are far apart in memory.
        let step = (count as f64 * 0.618) as usize | 1;
        Places { bytes, stride, count, step }
    }

    /// Bytes of a copy.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes from the first place to the end of the last.
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

/// Sizes without a pattern, in one place.
pub(super) struct Mixed {
    sizes: Vec<u32>,
}

impl Mixed {
    /// Evenly from a range; of as many that no predictor learns them by heart.
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
/// Room for offsets, and for the beginning of the arena to be at a page's.
const MARGIN: usize = 3 * PAGE_BYTES;
const MIXED_CALLS: u32 = 1 << 16;
