// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rule: finds the loads of a trace that wait because no single store in flight has all their
//! bytes, and the stores they wait for.
//!
//! A store stays in the store buffer until it has retired and reached the cache. A load that
//! overlaps a store reads its bytes from the buffer, if one store has all of them. If a store has
//! only some, the load waits until the store has left: some 10 to 20 cycles. So, for each load, the
//! stores before it are searched, youngest first, until every byte has its giver:
//!
//! ```text
//!     givers = []; missing = bytes of the load
//!     for store in window, youngest first:
//!         if store overlaps missing: givers += store; missing -= store
//!     blocked = givers are several, or one and something is still missing
//! ```
//!
//! The model has only the rules that all processors have in common. Known differences: Intel's and
//! AMD's older cores also fail on some loads that lie within their store but at another offset, or
//! that cross a cache line; Atom needs equal addresses; a store whose address is computed late is
//! mispredicted. A pair found here blocks on all of them, when the load executes while the store is
//! in flight. The window bounds that: it has as many stores as a buffer holds (Haswell 42, Skylake
//! 56, Zen 3 and 4 64, Sunny Cove 72), and as many instructions as are in flight with them (Skylake
//! 224, Zen 4 320, Golden Cove 512). A store farther away has reached the cache, or nearly.
//!
//! Sources: Intel 64 and IA-32 Architectures Optimization Reference Manual, "Store Forwarding" and
//! its restrictions on size and alignment; Fog, "The microarchitecture of Intel, AMD and VIA CPUs",
//! store forwarding of each; AMD, Software Optimization Guide for the Zen family, "Load-Store
//! Unit": store-to-load forwarding.
//!
//! Does not time. A trace does not show how long a load waits, or what else the processor could do
//! meanwhile; the cost is an estimate (`cost`).

use std::collections::{HashMap, VecDeque};

/// An instruction that touches memory, and the number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Toucher {
    /// Address of the instruction.
    pub(crate) site: u64,
    /// Bytes it loads or stores; the longest of the accesses seen for a string instruction.
    pub(crate) bytes: u32,
}

/// Effect of an instruction on the store buffer, besides its own loads and stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No effect.
    Plain,
    /// Empties the buffer before any younger access: a lock, a fence, a system call.
    Drains,
    /// A string instruction with a repeat prefix: microcode, which stores more than an element at
    /// once. Its stores count as one store, and its loads are not judged.
    Repeats,
}

/// The longest distance from a store to a load that it blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    /// Number of stores.
    pub(crate) stores: usize,
    /// Number of instructions.
    pub(crate) instructions: u64,
}

/// A load and the stores that it waited for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Pair {
    /// The part of the program in which the pair was found, as given to [`Pairing::enter`].
    pub(crate) part: u32,
    /// The load.
    pub(crate) load: Toucher,
    /// The stores that have some of its bytes, youngest first, each once.
    pub(crate) stores: Vec<Toucher>,
    /// True when other bytes were loaded from the cache.
    pub(crate) rest: bool,
    /// False when a mask decides which bytes a load or store touches, so that they may not overlap.
    pub(crate) certain: bool,
}

/// Counts of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) instructions: u64,
    pub(crate) loads: u64,
    pub(crate) stores: u64,
    /// Loads of several addresses, or of more than [`LOAD_BYTES_MAX`].
    pub(crate) unjudged: u64,
    /// Blocked loads of pairs beyond [`PAIRS_MAX`].
    pub(crate) unlisted: u64,
}

struct Store {
    toucher: Toucher,
    address: u64,
    instruction: u64,
    certain: bool,
}

/// The window over a trace, and the pairs found in it. Memory is bounded by the window and by
/// [`PAIRS_MAX`].
pub(crate) struct Pairing {
    reach: Reach,
    stores: VecDeque<Store>,
    part: u32,
    site: u64,
    kind: Kind,
    repeated: bool,
    totals: Totals,
    pairs: HashMap<Pair, u64>,
}

impl Pairing {
    pub(crate) fn new(reach: Reach) -> Self {
        let stores = VecDeque::with_capacity(reach.stores);
        let (kind, totals, pairs) = (Kind::Plain, Totals::default(), HashMap::new());
        Self { reach, stores, part: 0, site: 0, kind, repeated: false, totals, pairs }
    }

    /// Begins a part of the program whose pairs are listed separately. Forgets the stores before
    /// it.
    pub(crate) fn enter(&mut self, part: u32) {
        self.part = part;
        self.forget();
    }

    /// Forgets the stores so far: they have reached the cache, or belong to other code.
    pub(crate) fn forget(&mut self) {
        self.stores.clear();
        self.repeated = false;
    }

    /// Begins an instruction; calls for its accesses follow.
    pub(crate) fn instruction(&mut self, site: u64, kind: Kind) {
        self.totals.instructions += 1;
        self.repeated = kind == Kind::Repeats && site == self.site && self.kind == kind;
        (self.site, self.kind) = (site, kind);
        if kind == Kind::Drains {
            self.stores.clear();
        }
    }

    /// Records a load of `bytes` at `address`.
    pub(crate) fn load(&mut self, address: u64, bytes: u32, certain: bool) {
        self.totals.loads += 1;
        if self.kind != Kind::Plain {
            return;
        }
        if bytes == 0 || bytes > LOAD_BYTES_MAX {
            self.totals.unjudged += 1;
            return;
        }
        let load = Toucher { site: self.site, bytes };
        if let Some(pair) = self.blocked(load, address, certain) {
            let known = self.pairs.len() < PAIRS_MAX || self.pairs.contains_key(&pair);
            match known {
                true => *self.pairs.entry(pair).or_default() += 1,
                false => self.totals.unlisted += 1,
            }
        }
    }

    /// Counts a load from several addresses at once, which is not judged.
    pub(crate) fn unjudged(&mut self) {
        self.totals.loads += 1;
        self.totals.unjudged += 1;
    }

    /// Records a store of `bytes` at `address`.
    pub(crate) fn store(&mut self, address: u64, bytes: u32, certain: bool) {
        self.totals.stores += 1;
        if self.kind == Kind::Drains || bytes == 0 {
            return;
        }
        if self.repeated
            && let Some(last) = self.stores.back_mut()
            && last.toucher.site == self.site
            && last.grow(address, bytes)
        {
            last.instruction = self.totals.instructions;
            return;
        }
        if self.stores.len() == self.reach.stores {
            self.stores.pop_front();
        }
        let toucher = Toucher { site: self.site, bytes };
        let instruction = self.totals.instructions;
        self.stores.push_back(Store { toucher, address, instruction, certain });
    }

    /// Returns the stores that `load` waits for; none when it does not wait.
    fn blocked(&self, load: Toucher, address: u64, certain: bool) -> Option<Pair> {
        let mut missing = u64::MAX >> (64 - load.bytes);
        let mut givers = 0;
        let mut pair = Pair { part: self.part, load, stores: Vec::new(), rest: false, certain };
        for store in self.stores.iter().rev() {
            let age = self.totals.instructions - store.instruction;
            if missing == 0 || age > self.reach.instructions {
                break;
            }
            let given = store.part_of(address, load.bytes) & missing;
            if given == 0 {
                continue;
            }
            // The usual case: one store has all bytes, and no younger one has any. There is no
            // pair.
            if givers == 0 && given == missing && store.certain && certain {
                return None;
            }
            givers += 1;
            pair.certain &= store.certain;
            if pair.stores.len() < GIVERS_MAX && !pair.stores.contains(&store.toucher) {
                pair.stores.push(store.toucher);
            }
            missing &= !given;
        }
        pair.rest = missing != 0;
        // A single giver of all bytes would forward them, if its mask allowed it.
        (givers > 1 || givers == 1 && pair.rest).then_some(pair)
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns the pairs and their counts, the most frequent first.
    pub(crate) fn into_pairs(self) -> Vec<(Pair, u64)> {
        let mut pairs: Vec<_> = self.pairs.into_iter().collect();
        pairs.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        pairs
    }
}

impl Store {
    /// Returns the bytes that it writes of the `bytes` from `address`, as a mask: bit 0 is the
    /// first.
    fn part_of(&self, address: u64, bytes: u32) -> u64 {
        let all = u64::MAX >> (64 - bytes);
        let ahead = address.wrapping_sub(self.address);
        if ahead < u64::from(self.toucher.bytes) {
            let left = u64::from(self.toucher.bytes) - ahead;
            return if left >= 64 { all } else { all & ((1 << left) - 1) };
        }
        let behind = self.address.wrapping_sub(address);
        if behind < u64::from(bytes) {
            let length = u64::from(self.toucher.bytes.min(64));
            return all & ((u64::MAX >> (64 - length)) << behind);
        }
        0
    }

    /// Joins a store that touches this one at either end.
    fn grow(&mut self, address: u64, bytes: u32) -> bool {
        let end = self.address.wrapping_add(self.toucher.bytes.into());
        let touches = address == end || address.wrapping_add(bytes.into()) == self.address;
        let Some(sum) = self.toucher.bytes.checked_add(bytes).filter(|_| touches) else {
            return false;
        };
        self.toucher.bytes = sum;
        self.address = self.address.min(address);
        true
    }
}

/// Bytes of the widest register. Longer loads read saved state, by microcode.
const LOAD_BYTES_MAX: u32 = 64;
/// The most stores listed for one load: eight single bytes before a word.
const GIVERS_MAX: usize = 8;
/// The most pairs listed separately. A program has some hundreds.
const PAIRS_MAX: usize = 16_384;

#[cfg(test)]
mod tests;
