// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decryption: the blocks of one message side by side.
//!
//! A block's plaintext needs its own ciphertext and the block before, both there from the start, so
//! the blocks of one message fill the cipher unit as lanes do for encryption.
//!
//! Sources: NIST SP 800-38A §6.2 (CBC decryption may run in parallel).
//!
//! What it does not do: take more than one message; there is nothing to gain.

use super::key::{Key, Schedule};
use super::{BLOCK_BYTES, Block};

/// A register of `W` blocks that decrypts.
pub(super) trait Inverse<const W: usize>: super::lanes::Register<W> {
    /// The inverse cipher on `G` registers at once.
    ///
    /// # Safety
    /// The processor has the instructions of the implementation.
    unsafe fn decrypt<const G: usize>(
        state: [Self; G],
        keys: *const Schedule,
        rounds: usize,
    ) -> [Self; G];
}

/// Decrypts `blocks` blocks in runs of `W * G`; says how many it did.
///
/// # Safety
/// The processor has the instructions of `R`, and the caller is compiled for them.
#[inline(always)]
pub(super) unsafe fn decrypt<R: Inverse<W>, const W: usize, const G: usize>(
    key: &Key,
    chain: &mut Block,
    bytes: &mut [u8],
) -> usize {
    let run_bytes = W * G * BLOCK_BYTES;
    let keys: *const Schedule = key.decrypt();
    let rounds = key.rounds();
    let mut before = *chain;
    let mut done = 0;
    // SAFETY: the instructions by the caller. A run lies in `bytes`, as `chunks_exact_mut` says,
    // and the ciphertext of a run is read whole before its plaintext is written.
    unsafe {
        for run in bytes.chunks_exact_mut(run_bytes) {
            let at = run.as_mut_ptr();
            let mut state = [R::zero(); G];
            let mut other = [R::zero(); G];
            for group in 0..G {
                state[group] = R::load(at.add(group * W * BLOCK_BYTES));
                if group > 0 {
                    other[group] = R::load(at.add((group * W - 1) * BLOCK_BYTES));
                }
            }
            let mut first = [before.as_ptr(); W];
            for (place, block) in first.iter_mut().enumerate().skip(1) {
                *block = at.add((place - 1) * BLOCK_BYTES);
            }
            other[0] = R::gather(first);
            before = *at.add(run_bytes - BLOCK_BYTES).cast();
            state = R::decrypt(state, keys, rounds);
            for group in 0..G {
                state[group].xor(other[group]).store(at.add(group * W * BLOCK_BYTES));
            }
            done += run_bytes;
        }
    }
    *chain = before;
    done
}
