// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encryption of lanes that have a register each, and of a message that is alone.
//!
//! Sources: see [`super`], where the idea is written down.
//!
//! Does not assign messages to lanes; [`super::lanes`] does.

#![expect(clippy::needless_range_loop, reason = "registers and places in memory count together")]

use super::key::{ROUND_KEYS_MAX, Schedule};
use super::lanes::Lanes;
use super::{BLOCK_BYTES, Message};

/// A register of `W` blocks.
///
/// # Safety of all functions
/// The processor has the instructions of the implementation.
pub(super) trait Register<const W: usize>: Copy {
    /// # Safety
    /// Same as for the trait.
    unsafe fn zero() -> Self;

    /// # Safety
    /// `W` blocks can be read there, at any alignment.
    unsafe fn load(from: *const u8) -> Self;

    /// # Safety
    /// `W` blocks can be written there, at any alignment.
    unsafe fn store(self, to: *mut u8);

    /// Returns a register with `W` copies of a block.
    ///
    /// # Safety
    /// A block can be read there.
    unsafe fn broadcast(from: *const u8) -> Self;

    /// # Safety
    /// Same as for the trait.
    unsafe fn xor(self, other: Self) -> Self;

    /// Encrypts `chain ^ text`, in `G` registers at once.
    ///
    /// # Safety
    /// There are `rounds + 1` keys.
    unsafe fn encrypt<const G: usize>(
        chain: [Self; G],
        text: [Self; G],
        keys: impl RoundKeys<Self>,
        rounds: usize,
    ) -> [Self; G];

    /// Applies the equivalent inverse cipher, in `G` registers at once.
    ///
    /// # Safety
    /// There are `rounds + 1` keys.
    unsafe fn decrypt<const G: usize>(
        state: [Self; G],
        keys: impl RoundKeys<Self>,
        rounds: usize,
    ) -> [Self; G];
}

/// Source of the round keys.
pub(super) trait RoundKeys<R>: Copy {
    /// Returns the round keys of register `group` of the lanes.
    ///
    /// # Safety
    /// The processor has the instructions of `R`; there is such a round, and such a group.
    unsafe fn key(self, round: usize, group: usize) -> R;
}

/// One key for all lanes.
#[derive(Clone, Copy)]
pub(super) struct Shared<const W: usize>(pub(super) *const Schedule);

impl<R: Register<W>, const W: usize> RoundKeys<R> for Shared<W> {
    #[inline(always)]
    unsafe fn key(self, round: usize, _: usize) -> R {
        // SAFETY: a schedule has all rounds; the rest by the caller.
        unsafe { R::broadcast(self.0.cast::<u8>().add(round * BLOCK_BYTES)) }
    }
}

/// A key for each of `N` lanes.
#[derive(Clone, Copy)]
pub(super) struct Columns<const W: usize, const N: usize>(pub(super) *const u8);

impl<R: Register<W>, const W: usize, const N: usize> RoundKeys<R> for Columns<W, N> {
    #[inline(always)]
    unsafe fn key(self, round: usize, group: usize) -> R {
        // SAFETY: a row for each round, of a column for each lane; the rest by the caller.
        unsafe { R::load(self.0.add((round * N + group * W) * BLOCK_BYTES)) }
    }
}

const _: () = assert!(size_of::<u128>() == BLOCK_BYTES);
const _: () = assert!(size_of::<Schedule>() == ROUND_KEYS_MAX * BLOCK_BYTES);

/// Advances the first `G` lanes by `blocks` blocks, each in a register of its own.
///
/// # Safety
/// The processor has the instructions of `R`, and the caller is compiled for them. The lanes are
/// messages or copies of the first, with that many blocks left.
#[inline(always)]
pub(super) unsafe fn direct<R: Register<1>, const G: usize, const N: usize>(
    lanes: &mut Lanes<N>,
    blocks: usize,
) {
    const { assert!(G <= N) };
    // SAFETY: by the caller; lanes with columns or one key have their round keys there.
    unsafe {
        match lanes.shared_key(G) {
            Some(key) => direct_with::<R, G, N>(lanes, Shared((*key).encrypt()), blocks),
            None => {
                let keys = Columns::<1, N>(lanes.keys.as_ptr().cast());
                direct_with::<R, G, N>(lanes, keys, blocks);
            }
        }
    }
}

/// # Safety
/// Same as for [`direct`].
#[inline(always)]
unsafe fn direct_with<R: Register<1>, const G: usize, const N: usize>(
    lanes: &mut Lanes<N>,
    keys: impl RoundKeys<R>,
    blocks: usize,
) {
    let (at, rounds) = (lanes.at, lanes.rounds);
    let chain_at = lanes.chain.as_mut_ptr().cast::<u8>();
    // SAFETY: by the caller. Copies of a lane read a block before any of them writes it.
    unsafe {
        let mut chain = [R::zero(); G];
        for lane in 0..G {
            chain[lane] = R::load(chain_at.add(lane * BLOCK_BYTES));
        }
        for block in 0..blocks {
            let mut text = [R::zero(); G];
            for lane in 0..G {
                text[lane] = R::load(at[lane].add(block * BLOCK_BYTES));
            }
            chain = R::encrypt(chain, text, keys, rounds);
            for lane in 0..G {
                chain[lane].store(at[lane].add(block * BLOCK_BYTES));
            }
        }
        for lane in 0..G {
            chain[lane].store(chain_at.add(lane * BLOCK_BYTES));
        }
    }
}

/// Encrypts a message that is alone, at the latency of the cipher unit.
///
/// # Safety
/// The processor has the instructions of `R`, and the caller is compiled for them.
#[inline(always)]
pub(super) unsafe fn alone<R: Register<1>>(message: &mut Message<'_>) {
    let keys = Shared::<1>(message.key.encrypt());
    let rounds = message.key.rounds();
    // SAFETY: the instructions by the caller; the types guarantee blocks and IV.
    unsafe {
        let mut chain = [R::load(message.iv.as_ptr())];
        for block in message.bytes.as_chunks_mut::<BLOCK_BYTES>().0 {
            chain = R::encrypt(chain, [R::load(block.as_ptr())], keys, rounds);
            chain[0].store(block.as_mut_ptr());
        }
        chain[0].store(message.iv.as_mut_ptr());
    }
}
