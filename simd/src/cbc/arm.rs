// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registers of ARMv8 with its cryptographic extension, eight lanes of a block each.
//!
//! Its instructions add the round key first where x86 adds it last, so the text is added to the
//! first round key, which is ready before the chain is, and the chain waits for rounds only. Its
//! speed is unknown: it was run on an emulator only.
//!
//! Sources: Arm Architecture Reference Manual for A-profile, C7.2 (AESE, AESMC, AESD, AESIMC).
//!
//! Does not use SVE's wide AES, which few processors have.

// Registers are inlined into bodies, and these into functions that are compiled for AES, so inner
// loops contain no calls.
#![allow(unknown_lints, inline_always_mismatching_target_features)]
#![expect(clippy::needless_range_loop, reason = "registers and their keys count together")]

use core::arch::aarch64::*;

use super::encrypt::{Register, RoundKeys, alone, direct};
use super::lanes::{self, Lanes};
use super::{AesKey, Block, Message, decrypt};

#[derive(Clone, Copy)]
struct Vector(uint8x16_t);

impl Register<1> for Vector {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: NEON, by the caller.
        unsafe { Self(vdupq_n_u8(0)) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: NEON and a block there, by the caller.
        unsafe { Self(vld1q_u8(from)) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: NEON and room for a block there, by the caller.
        unsafe { vst1q_u8(to, self.0) }
    }

    #[inline(always)]
    unsafe fn broadcast(from: *const u8) -> Self {
        // SAFETY: by the caller.
        unsafe { Self::load(from) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: NEON, by the caller.
        unsafe { Self(veorq_u8(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn encrypt<const G: usize>(
        mut chain: [Self; G],
        text: [Self; G],
        keys: impl RoundKeys<Self>,
        rounds: usize,
    ) -> [Self; G] {
        // SAFETY: the instructions and the keys, by the caller.
        unsafe {
            for group in 0..G {
                let key = text[group].xor(keys.key(0, group));
                chain[group].0 = vaesmcq_u8(vaeseq_u8(chain[group].0, key.0));
            }
            for round in 1..rounds - 1 {
                for group in 0..G {
                    let key: Self = keys.key(round, group);
                    chain[group].0 = vaesmcq_u8(vaeseq_u8(chain[group].0, key.0));
                }
            }
            for group in 0..G {
                let key: Self = keys.key(rounds - 1, group);
                chain[group].0 = vaeseq_u8(chain[group].0, key.0);
                chain[group] = chain[group].xor(keys.key(rounds, group));
            }
            chain
        }
    }

    #[inline(always)]
    unsafe fn decrypt<const G: usize>(
        mut state: [Self; G],
        keys: impl RoundKeys<Self>,
        rounds: usize,
    ) -> [Self; G] {
        // SAFETY: the instructions and the keys, by the caller.
        unsafe {
            for round in 0..rounds - 1 {
                for group in 0..G {
                    let key: Self = keys.key(round, group);
                    state[group].0 = vaesimcq_u8(vaesdq_u8(state[group].0, key.0));
                }
            }
            for group in 0..G {
                let key: Self = keys.key(rounds - 1, group);
                state[group].0 = vaesdq_u8(state[group].0, key.0);
                state[group] = state[group].xor(keys.key(rounds, group));
            }
            state
        }
    }
}

/// # Safety
/// The processor has the AES instructions; the lanes satisfy the requirements of [`direct`].
#[target_feature(enable = "neon,aes")]
unsafe fn run(lanes: &mut Lanes<8>, lane_count: usize, blocks: usize) {
    // SAFETY: compiled for AES, which the processor has; the lanes by the caller.
    unsafe {
        match lane_count {
            1 => direct::<Vector, 1, 8>(lanes, blocks),
            2 => direct::<Vector, 2, 8>(lanes, blocks),
            4 => direct::<Vector, 4, 8>(lanes, blocks),
            _ => direct::<Vector, 8, 8>(lanes, blocks),
        }
    }
}

/// # Safety
/// The processor has the AES instructions.
#[target_feature(enable = "neon,aes")]
pub(super) unsafe fn encrypt(messages: &mut [Message<'_>]) {
    // SAFETY: compiled for AES, which the processor has.
    unsafe {
        match messages {
            [message] => alone::<Vector>(message),
            messages => lanes::encrypt(messages, run),
        }
    }
}

/// # Safety
/// The processor has the AES instructions.
#[target_feature(enable = "neon,aes")]
pub(super) unsafe fn decrypt(key: &AesKey, iv: &mut Block, bytes: &mut [u8]) {
    let (last, end) = (decrypt::last(bytes), bytes.len());
    // SAFETY: compiled for AES, which the processor has.
    unsafe { decrypt::rest::<Vector>(key, (iv, last), bytes, end) }
}
