// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decryption: the blocks of one message side by side, from the last to the first.
//!
//! A block's plaintext needs its own ciphertext and the block before it, and both are there from
//! the start, so the blocks of one message fill the cipher unit as lanes do for encryption. Going
//! backwards, the previous block is still ciphertext when it is read, although plaintext replaces
//! ciphertext; so no block is kept from one step to the next.
//!
//! Sources: NIST SP 800-38A §6.2 (CBC decryption may run in parallel).
//!
//! Does not decrypt several messages at once, which would gain nothing.

use super::encrypt::{Register, Shared};
use super::key::AesKey;
use super::{BLOCK_BYTES, Block};

/// Decrypts the last bytes before `end`, in steps of `W * G` blocks, while there is a block before
/// them; returns the place where it stopped.
///
/// # Safety
/// The processor has the instructions of `R`, and the caller is compiled for them.
#[inline(always)]
pub(super) unsafe fn steps<R: Register<W>, const W: usize, const G: usize>(
    key: &AesKey,
    bytes: &mut [u8],
    mut end: usize,
) -> usize {
    let keys = Shared::<W>(key.decrypt());
    let (rounds, step_bytes) = (key.rounds(), W * G * BLOCK_BYTES);
    assert!(end <= bytes.len(), "the end lies in the bytes");
    while end >= step_bytes + BLOCK_BYTES {
        end -= step_bytes;
        // SAFETY: the instructions by the caller; a step and the block before it lie in `bytes`,
        // as just compared.
        unsafe {
            let at = bytes.as_mut_ptr().add(end);
            let (mut state, mut before) = ([R::zero(); G], [R::zero(); G]);
            for group in 0..G {
                state[group] = R::load(at.add(group * W * BLOCK_BYTES));
                before[group] = R::load(at.add(group * W * BLOCK_BYTES).sub(BLOCK_BYTES));
            }
            state = R::decrypt(state, keys, rounds);
            for group in 0..G {
                state[group].xor(before[group]).store(at.add(group * W * BLOCK_BYTES));
            }
        }
    }
    end
}

/// Decrypts the rest before `end`, fewer blocks than a step of the widest register, and leaves `iv`
/// as `last`.
///
/// # Safety
/// Same as for [`steps`].
#[inline(always)]
pub(super) unsafe fn rest<R: Register<1>>(
    key: &AesKey,
    (iv, last): (&mut Block, Block),
    bytes: &mut [u8],
    end: usize,
) {
    // SAFETY: the instructions by the caller.
    unsafe {
        let end = steps::<R, 1, 8>(key, bytes, end);
        steps::<R, 1, 1>(key, bytes, end);
    }
    let Some(first) = bytes.first_chunk_mut::<BLOCK_BYTES>() else { return };
    // SAFETY: the instructions by the caller; the types guarantee the blocks.
    unsafe {
        let state = [R::load(first.as_ptr())];
        let [state] = R::decrypt(state, Shared::<1>(key.decrypt()), key.rounds());
        state.xor(R::load(iv.as_ptr())).store(first.as_mut_ptr());
    }
    *iv = last;
}

/// Returns the last block of ciphertext.
pub(super) fn last(bytes: &[u8]) -> Block {
    bytes.last_chunk().copied().unwrap_or_default()
}
