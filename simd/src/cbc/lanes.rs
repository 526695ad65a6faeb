// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages in lanes: assignment of messages to lanes, and the common number of blocks of each
//! step.
//!
//! All lanes advance by the number of blocks that the shortest has left. Then that one leaves, its
//! IV is written back, and the longest waiting message enters its lane. The longest start first, so
//! that the last to end are short and lanes stay full; when none waits, the last lane moves into
//! the gap. A change of a lane costs some 20 ns, so the number of messages matters, not the
//! difference of their lengths: 256 of up to 2 KiB at random are encrypted at 12 GB/s.
//!
//! Messages of one key size run together: lanes with fewer rounds would wait for the others. When
//! all lanes have the same key, its round keys are read from the key itself, otherwise from a table
//! with a column a lane, which is wiped at the end.
//!
//! Sources: Graham, "Bounds on Multiprocessing Timing Anomalies", 1969 (longest first).
//!
//! Does not encrypt; [`super::encrypt`] does, on the registers of each processor.

use core::mem::MaybeUninit;
use core::ptr;

use zeroize::Zeroize;

use super::key::{AesKey, ROUND_KEYS_MAX};
use super::{BLOCK_BYTES, Message};

/// Messages that are put in order at a time; the lanes run empty between one such window and the
/// next. 2 KiB of stack.
const WINDOW: usize = 256;

/// Rounds of the three key sizes.
const ROUNDS: [usize; 3] = [10, 12, 14];

/// Largest number of lanes for which a register holds one block: more lanes use wide registers.
pub(super) const DIRECT_MAX: usize = 8;

/// The state of `N` lanes. Lanes without a message are copies of the first where a kernel advances
/// them: they read and write the same bytes.
// The lanes start on a page of their own, as panels do, which keeps the throughput equal in each
// run.
#[repr(C, align(4096))]
pub(super) struct Lanes<const N: usize> {
    /// Round keys, a row a round and a column a lane. They are written only where messages have
    /// different keys.
    pub(super) keys: [[MaybeUninit<u128>; N]; ROUND_KEYS_MAX],
    /// The chaining values.
    pub(super) chain: [u128; N],
    /// Address of the next block of each lane.
    pub(super) at: [*mut u8; N],
    /// Key of each lane.
    pub(super) key: [*const AesKey; N],
    /// Blocks that each lane has left.
    left: [usize; N],
    /// Number of the message in each lane.
    message: [usize; N],
    /// Rounds of all keys.
    pub(super) rounds: usize,
    /// True when columns of `keys` are written.
    has_columns: bool,
}

/// Advances the first lanes, as many as given (a power of two up to [`DIRECT_MAX`], or otherwise
/// all), by a number of blocks.
pub(super) type Run<const N: usize> = unsafe fn(&mut Lanes<N>, usize, usize);

/// Encrypts all messages.
///
/// # Safety
/// The processor has the instructions of `run`.
pub(super) unsafe fn encrypt<const N: usize>(messages: &mut [Message<'_>], run: Run<N>) {
    let mut order = [0; WINDOW];
    for window in messages.chunks_mut(WINDOW) {
        for rounds in ROUNDS {
            let mut count = 0;
            for (index, message) in window.iter().enumerate() {
                let blocks = message.bytes.len() / BLOCK_BYTES;
                if blocks > 0 && message.key.rounds() == rounds {
                    order[count] = Entry::new(blocks, index).0;
                    count += 1;
                }
            }
            if count > 0 {
                let order = &mut order[..count];
                order.sort_unstable_by(|a, b| b.cmp(a));
                // SAFETY: the instructions by the caller; the entries are of this window, and their
                // messages have these rounds and some blocks.
                unsafe { pass(window, order, rounds, run) };
            }
        }
    }
}

/// A waiting message: its blocks, the sort key, and its place in the window.
#[derive(Clone, Copy)]
struct Entry(u64);

impl Entry {
    /// Packs blocks, cut to 56 bits (beyond any memory), and index.
    fn new(blocks: usize, index: usize) -> Self {
        Self((blocks as u64) << INDEX_BITS | index as u64)
    }

    fn index(self) -> usize {
        (self.0 & ((1 << INDEX_BITS) - 1)) as usize
    }
}

const INDEX_BITS: u32 = 8;
const _: () = assert!(WINDOW == 1 << INDEX_BITS);

/// Encrypts the messages that `order` names.
///
/// # Safety
/// The processor has the instructions of `run`. The messages have at least one block each, and
/// keys of `rounds` rounds.
unsafe fn pass<const N: usize>(
    messages: &mut [Message<'_>],
    order: &[u64],
    rounds: usize,
    run: Run<N>,
) {
    let mut waiting = order.iter().map(|entry| Entry(*entry).index());
    let first: *const AesKey = messages[Entry(order[0]).index()].key;
    let has_columns = waiting.clone().any(|index| !ptr::eq(messages[index].key, first));
    let mut lanes = Lanes::<N>::new(rounds, has_columns);
    let mut occupied = 0;
    while occupied < N
        && let Some(index) = waiting.next()
    {
        lanes.enter(occupied, index, &mut messages[index]);
        occupied += 1;
    }
    while occupied > 0 {
        let lane_count = match occupied {
            ..=DIRECT_MAX => occupied.next_power_of_two(),
            _ => N,
        };
        for idle in occupied..lane_count {
            lanes.copy(0, idle);
        }
        let blocks = *lanes.left[..occupied].iter().min().expect("one is occupied");
        // SAFETY: the instructions by the caller. Every lane belongs to a message, or is the copy
        // of one that does, and has that many blocks left.
        unsafe { run(&mut lanes, lane_count, blocks) };
        let mut lane = 0;
        while lane < occupied {
            lanes.left[lane] -= blocks;
            lanes.at[lane] = lanes.at[lane].wrapping_add(blocks * BLOCK_BYTES);
            if lanes.left[lane] > 0 {
                lane += 1;
                continue;
            }
            *messages[lanes.message[lane]].iv = lanes.chain[lane].to_ne_bytes();
            if let Some(index) = waiting.next() {
                lanes.enter(lane, index, &mut messages[index]);
                lane += 1;
            } else {
                // The moved lane has not been checked yet; it is the next, in its new place.
                occupied -= 1;
                lanes.copy(occupied, lane);
            }
        }
    }
}

impl<const N: usize> Lanes<N> {
    fn new(rounds: usize, has_columns: bool) -> Self {
        Self {
            keys: [[MaybeUninit::uninit(); N]; ROUND_KEYS_MAX],
            chain: [0; N],
            at: [ptr::null_mut(); N],
            key: [ptr::null(); N],
            left: [0; N],
            message: [0; N],
            rounds,
            has_columns,
        }
    }

    fn enter(&mut self, lane: usize, index: usize, message: &mut Message<'_>) {
        self.message[lane] = index;
        self.at[lane] = message.bytes.as_mut_ptr();
        self.left[lane] = message.bytes.len() / BLOCK_BYTES;
        self.chain[lane] = u128::from_ne_bytes(*message.iv);
        self.key[lane] = message.key;
        if self.has_columns {
            let keys = &message.key.encrypt().0[..=self.rounds];
            for (row, key) in self.keys.iter_mut().zip(keys) {
                row[lane].write(u128::from_ne_bytes(*key));
            }
        }
    }

    fn copy(&mut self, from: usize, to: usize) {
        self.message[to] = self.message[from];
        self.at[to] = self.at[from];
        self.left[to] = self.left[from];
        self.chain[to] = self.chain[from];
        self.key[to] = self.key[from];
        if self.has_columns {
            for row in &mut self.keys[..=self.rounds] {
                row[to] = row[from];
            }
        }
    }

    /// Returns the key of the first `lane_count` lanes, if they share it.
    pub(super) fn shared_key(&self, lane_count: usize) -> Option<*const AesKey> {
        let first = self.key[0];
        self.key[..lane_count].iter().all(|key| *key == first).then_some(first)
    }
}

impl<const N: usize> Drop for Lanes<N> {
    fn drop(&mut self) {
        if self.has_columns {
            // The cells are written first, because unwritten ones cannot be wiped; by blocks,
            // because wiping memory that may be unwritten works by bytes, at a microsecond.
            for cell in self.keys[..=self.rounds].as_flattened_mut() {
                cell.write(0).zeroize();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// Blocks by which all lanes advanced.
        static STEPS: Cell<usize> = const { Cell::new(0) };
    }

    /// A cipher that adds one to each byte, on two lanes.
    unsafe fn run(lanes: &mut Lanes<2>, lane_count: usize, blocks: usize) {
        STEPS.set(STEPS.get() + blocks);
        for at in &lanes.at[..lane_count] {
            // SAFETY: a lane has that many blocks left; no other slice refers to the same blocks at
            // once.
            let bytes = unsafe { core::slice::from_raw_parts_mut(*at, blocks * BLOCK_BYTES) };
            bytes.iter_mut().for_each(|byte| *byte += 1);
        }
    }

    fn steps(blocks: &[usize]) -> usize {
        STEPS.set(0);
        let key = AesKey::new(&[1; 16]).unwrap();
        let mut texts: Vec<Vec<u8>> =
            blocks.iter().map(|blocks| vec![0; blocks * BLOCK_BYTES]).collect();
        let mut ivs = vec![[0; BLOCK_BYTES]; blocks.len()];
        let each = texts.iter_mut().zip(&mut ivs);
        let mut messages: Vec<Message<'_>> =
            each.map(|(bytes, iv)| Message { key: &key, iv, bytes }).collect();
        // SAFETY: it needs no instructions.
        unsafe { encrypt(&mut messages, run) };
        let once = |text: &Vec<u8>| text.iter().all(|byte| *byte == 1);
        assert!(texts.iter().all(once), "every block once: {blocks:?}");
        STEPS.get()
    }

    #[test]
    fn lanes_stay_full_whatever_the_order() {
        assert_eq!(steps(&[]), 0);
        assert_eq!(steps(&[0, 3, 0]), 3);
        assert_eq!(steps(&[1, 1, 1, 1, 4]), 4);
        assert_eq!(steps(&[2, 5, 1, 1, 1]), 5);
        assert_eq!(steps(&[9, 2, 2]), 9);
        let many: Vec<usize> = (0..200).map(|n| n * 37 % 101).collect();
        assert_eq!(steps(&many), many.iter().sum::<usize>().div_ceil(2));
    }
}
