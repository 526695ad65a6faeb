// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encryption of lanes in wide registers, through panels.
//!
//! A panel holds the next blocks of all lanes, copied so that the messages' places in memory do not
//! matter: a row a block, a column a lane, so that a register is read at once. One is encrypted in
//! place while the other, of the turn before, is written to the messages and filled for the turn
//! after. A byte is copied twice more than by lanes that read their messages, on units that the
//! cipher leaves idle.
//!
//! Sources: see [`super`], where the idea is written down; AMD's Software Optimization Guide for
//! Zen 4 (sets of the cache; loads that wait for stores of the same place of another page).
//!
//! Does not serve lanes of a block a register; [`super::encrypt`] does.

#![expect(clippy::needless_range_loop, reason = "registers and places in memory count together")]

use core::mem::MaybeUninit;

use super::BLOCK_BYTES;
use super::encrypt::{Columns, Register, RoundKeys, Shared};
use super::lanes::Lanes;

/// Blocks of a lane that are copied to a panel at a time: two lines of cache.
// 4 and 16 were slower by up to a third and by a tenth, depending on how messages lie in memory.
const PANEL_BLOCKS: usize = 8;

/// Panels ahead of which a message is fetched: 1 KiB.
// The processor's own prefetch covers few of 16 messages. From memory or the third-level cache, 32
// of 1 MiB: 9.2 to 11.7 GB/s without, 13.5 with 1 KiB; 128 B were too few, 4 KiB no better.
const PANELS_AHEAD: usize = 8;

/// A register of `W` blocks that panels can be filled by.
///
/// # Safety of all functions
/// The processor has the instructions of the implementation.
pub(super) trait Wide<const W: usize>: Register<W> {
    /// Rows to columns: register `i` of the result has block `i` of each of `rows`.
    ///
    /// # Safety
    /// Same as for the trait.
    unsafe fn transposed(rows: [Self; W]) -> [Self; W];

    /// Prefetches the cache line of an address.
    ///
    /// # Safety
    /// Same as for the trait.
    unsafe fn prefetch(at: *const u8);
}

/// Memory for two panels.
// The panels start on a page of their own: their place on a page changed the throughput by a tenth.
#[repr(C, align(4096))]
struct Room<const N: usize>([[[MaybeUninit<u128>; N]; PANEL_BLOCKS]; 2]);

/// Advances the first `W * G` lanes by `blocks` blocks, through panels.
///
/// # Safety
/// The processor has the instructions of `R`, and the caller is compiled for them. The lanes are
/// messages or copies of the first, with that many blocks left.
#[inline(always)]
pub(super) unsafe fn panels<R: Wide<W>, const W: usize, const G: usize, const N: usize>(
    lanes: &mut Lanes<N>,
    blocks: usize,
) {
    const { assert!(W * G <= N) };
    // SAFETY: by the caller; lanes with columns or one key have their round keys there.
    unsafe {
        match lanes.shared_key(W * G) {
            Some(key) => {
                let keys = Shared::<W>((*key).encrypt());
                panels_with::<R, W, G, N>(lanes, keys, blocks);
            }
            None => {
                let keys = Columns::<W, N>(lanes.keys.as_ptr().cast());
                panels_with::<R, W, G, N>(lanes, keys, blocks);
            }
        }
    }
}

/// # Safety
/// Same as for [`panels`].
#[inline(always)]
unsafe fn panels_with<R: Wide<W>, const W: usize, const G: usize, const N: usize>(
    lanes: &mut Lanes<N>,
    keys: impl RoundKeys<R>,
    blocks: usize,
) {
    const { assert!(PANEL_BLOCKS.is_multiple_of(W) && G.is_multiple_of(W)) };
    let rounds = lanes.rounds;
    let chain_at = lanes.chain.as_mut_ptr().cast::<u8>();
    let mut room = Room([[[MaybeUninit::<u128>::uninit(); N]; PANEL_BLOCKS]; 2]);
    let [first, second] = &mut room.0;
    let panels = [Panel::<N>(first.as_mut_ptr().cast()), Panel(second.as_mut_ptr().cast())];
    let at = &lanes.at;
    let (whole, rest) = (blocks / PANEL_BLOCKS, blocks % PANEL_BLOCKS);
    let squares = G * PANEL_BLOCKS / W;
    // SAFETY: by the caller. The blocks of a panel are all read, those of copies too, before any
    // of them is written.
    unsafe {
        let mut chain = [R::zero(); G];
        for group in 0..G {
            chain[group] = R::load(chain_at.add(group * W * BLOCK_BYTES));
        }
        if whole > 0 {
            for square in 0..squares {
                panels[0].take::<R, W>(at, 0, square);
            }
        }
        for turn in 0..whole {
            let (here, other) = (panels[turn % 2], panels[(turn + 1) % 2]);
            for column in 0..PANEL_BLOCKS {
                chain = here.encrypt::<R, W, G>(chain, column, keys, rounds);
                // While the rounds wait for each other, neighbouring squares are copied.
                for square in column * (G / W)..(column + 1) * (G / W) {
                    if turn > 0 {
                        other.give::<R, W>(at, turn - 1, square);
                    }
                    if turn + 1 < whole {
                        other.take::<R, W>(at, turn + 1, square);
                    }
                    if turn + 1 + PANELS_AHEAD < whole {
                        Panel::<N>::fetch::<R, W>(at, turn + 1 + PANELS_AHEAD, square);
                    }
                }
            }
        }
        if whole > 0 {
            for square in 0..squares {
                panels[(whole - 1) % 2].give::<R, W>(at, whole - 1, square);
            }
        }
        panels[0].take_rest(&at[..W * G], whole, rest);
        for column in 0..rest {
            chain = panels[0].encrypt::<R, W, G>(chain, column, keys, rounds);
        }
        panels[0].give_rest(&at[..W * G], whole, rest);
        for group in 0..G {
            chain[group].store(chain_at.add(group * W * BLOCK_BYTES));
        }
    }
}

/// Memory for [`PANEL_BLOCKS`] blocks of each of `N` lanes: a row a block, a column a lane. The
/// number of the turn determines its place in the messages.
#[derive(Clone, Copy)]
struct Panel<const N: usize>(*mut u8);

impl<const N: usize> Panel<N> {
    /// # Safety
    /// The block and the lane exist, here and below.
    #[inline(always)]
    unsafe fn place(self, block: usize, lane: usize) -> *mut u8 {
        // SAFETY: by the caller.
        unsafe { self.0.add((block * N + lane) * BLOCK_BYTES) }
    }

    /// Encrypts a block of each lane in place.
    ///
    /// # Safety
    /// Same as for [`panels`].
    #[inline(always)]
    unsafe fn encrypt<R: Wide<W>, const W: usize, const G: usize>(
        self,
        mut chain: [R; G],
        block: usize,
        keys: impl RoundKeys<R>,
        rounds: usize,
    ) -> [R; G] {
        // SAFETY: by the caller.
        unsafe {
            let mut text = [R::zero(); G];
            for group in 0..G {
                text[group] = R::load(self.place(block, group * W));
            }
            chain = R::encrypt(chain, text, keys, rounds);
            for group in 0..G {
                chain[group].store(self.place(block, group * W));
            }
            chain
        }
    }

    /// Returns the first block and lane of a square: `W` blocks of `W` lanes. Those of the same
    /// lanes follow each other.
    #[inline(always)]
    fn square<const W: usize>(square: usize) -> (usize, usize) {
        let squares_a_lane = PANEL_BLOCKS / W;
        (square % squares_a_lane * W, square / squares_a_lane * W)
    }

    /// Reads a square from the messages.
    ///
    /// # Safety
    /// Same as for [`panels`]; the lanes have the blocks of that turn.
    #[inline(always)]
    unsafe fn take<R: Wide<W>, const W: usize>(
        self,
        at: &[*mut u8; N],
        turn: usize,
        square: usize,
    ) {
        let (block, lane) = Self::square::<W>(square);
        let offset = (turn * PANEL_BLOCKS + block) * BLOCK_BYTES;
        // SAFETY: by the caller.
        unsafe {
            let mut rows = [R::zero(); W];
            for row in 0..W {
                rows[row] = R::load(at[lane + row].add(offset));
            }
            let columns = R::transposed(rows);
            for column in 0..W {
                columns[column].store(self.place(block + column, lane));
            }
        }
    }

    /// Prefetches a square of the messages.
    ///
    /// # Safety
    /// Same as for [`panels`]; the lanes have the blocks of that turn.
    #[inline(always)]
    unsafe fn fetch<R: Wide<W>, const W: usize>(at: &[*mut u8; N], turn: usize, square: usize) {
        let (block, lane) = Self::square::<W>(square);
        let offset = (turn * PANEL_BLOCKS + block) * BLOCK_BYTES;
        for row in 0..W {
            // SAFETY: by the caller.
            unsafe { R::prefetch(at[lane + row].add(offset)) };
        }
    }

    /// Writes a square to the messages.
    ///
    /// # Safety
    /// Same as for [`Panel::take`].
    #[inline(always)]
    unsafe fn give<R: Wide<W>, const W: usize>(
        self,
        at: &[*mut u8; N],
        turn: usize,
        square: usize,
    ) {
        let (block, lane) = Self::square::<W>(square);
        let offset = (turn * PANEL_BLOCKS + block) * BLOCK_BYTES;
        // SAFETY: by the caller.
        unsafe {
            let mut columns = [R::zero(); W];
            for column in 0..W {
                columns[column] = R::load(self.place(block + column, lane));
            }
            let rows = R::transposed(columns);
            for row in 0..W {
                rows[row].store(at[lane + row].add(offset));
            }
        }
    }

    /// Reads fewer blocks than a panel's of each lane.
    ///
    /// # Safety
    /// The lanes have them.
    #[inline(always)]
    unsafe fn take_rest(self, at: &[*mut u8], turn: usize, blocks: usize) {
        for (lane, at) in at.iter().enumerate() {
            for block in 0..blocks {
                // SAFETY: by the caller.
                unsafe {
                    let from = at.add((turn * PANEL_BLOCKS + block) * BLOCK_BYTES).cast::<u128>();
                    self.place(block, lane).cast::<u128>().write(from.read_unaligned());
                }
            }
        }
    }

    /// Writes such blocks to the messages.
    ///
    /// # Safety
    /// The lanes have them.
    #[inline(always)]
    unsafe fn give_rest(self, at: &[*mut u8], turn: usize, blocks: usize) {
        for (lane, at) in at.iter().enumerate() {
            for block in 0..blocks {
                // SAFETY: by the caller.
                unsafe {
                    let to = at.add((turn * PANEL_BLOCKS + block) * BLOCK_BYTES).cast::<u128>();
                    to.write_unaligned(self.place(block, lane).cast::<u128>().read());
                }
            }
        }
    }
}
