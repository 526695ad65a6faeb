// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registers of x86-64 for the bodies of both directions, and thin functions for each.
//!
//! Sources: Intel's intrinsics guide.
//!
//! Does not choose a variant ([`super::Cbc`] does).

use core::arch::x86_64::*;

use super::encrypt::{Register, RoundKeys, alone, direct};
use super::lanes::{self, Lanes};
use super::panels::{Wide, panels};
use super::{AesKey, Block, Message, decrypt};

/// Defines both directions by the round instructions of one width. The rounds that all keys have
/// are written out by the compiler.
macro_rules! rounds {
    ($round:ident, $last:ident, $inverse_round:ident, $inverse_last:ident) => {
        #[inline(always)]
        unsafe fn encrypt<const G: usize>(
            chain: [Self; G],
            text: [Self; G],
            keys: impl RoundKeys<Self>,
            rounds: usize,
        ) -> [Self; G] {
            // SAFETY: the instructions and the keys, by the caller.
            unsafe {
                let mut state = chain;
                for group in 0..G {
                    // In this order only one of the two operations waits for the chain.
                    state[group] = text[group].xor(keys.key(0, group)).xor(chain[group]);
                }
                for round in 1..ROUNDS_MIN {
                    for group in 0..G {
                        state[group].0 = $round(state[group].0, keys.key(round, group).0);
                    }
                }
                for round in ROUNDS_MIN..rounds {
                    for group in 0..G {
                        state[group].0 = $round(state[group].0, keys.key(round, group).0);
                    }
                }
                for group in 0..G {
                    state[group].0 = $last(state[group].0, keys.key(rounds, group).0);
                }
                state
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
                for group in 0..G {
                    state[group] = state[group].xor(keys.key(0, group));
                }
                for round in 1..ROUNDS_MIN {
                    for group in 0..G {
                        state[group].0 = $inverse_round(state[group].0, keys.key(round, group).0);
                    }
                }
                for round in ROUNDS_MIN..rounds {
                    for group in 0..G {
                        state[group].0 = $inverse_round(state[group].0, keys.key(round, group).0);
                    }
                }
                for group in 0..G {
                    state[group].0 = $inverse_last(state[group].0, keys.key(rounds, group).0);
                }
                state
            }
        }
    };
}

/// Rounds of a key of 128 bits.
const ROUNDS_MIN: usize = 10;

#[derive(Clone, Copy)]
struct Xmm(__m128i);

impl Register<1> for Xmm {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: SSE2, by the caller.
        unsafe { Self(_mm_setzero_si128()) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: SSE2 and a block there, by the caller.
        unsafe { Self(_mm_loadu_si128(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: SSE2 and room for a block there, by the caller.
        unsafe { _mm_storeu_si128(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn broadcast(from: *const u8) -> Self {
        // SAFETY: by the caller.
        unsafe { Self::load(from) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: SSE2, by the caller.
        unsafe { Self(_mm_xor_si128(self.0, other.0)) }
    }

    rounds!(_mm_aesenc_si128, _mm_aesenclast_si128, _mm_aesdec_si128, _mm_aesdeclast_si128);
}

#[derive(Clone, Copy)]
struct Ymm(__m256i);

impl Register<2> for Ymm {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: AVX, by the caller.
        unsafe { Self(_mm256_setzero_si256()) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: AVX and two blocks there, by the caller.
        unsafe { Self(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: AVX and room for two blocks there, by the caller.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn broadcast(from: *const u8) -> Self {
        // SAFETY: AVX2 and a block there, by the caller.
        unsafe { Self(_mm256_broadcastsi128_si256(_mm_loadu_si128(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: AVX2, by the caller.
        unsafe { Self(_mm256_xor_si256(self.0, other.0)) }
    }

    rounds!(
        _mm256_aesenc_epi128,
        _mm256_aesenclast_epi128,
        _mm256_aesdec_epi128,
        _mm256_aesdeclast_epi128
    );
}

impl Wide<2> for Ymm {
    #[inline(always)]
    unsafe fn transposed([a, b]: [Self; 2]) -> [Self; 2] {
        // SAFETY: AVX2, by the caller.
        unsafe {
            let low = _mm256_permute2x128_si256::<0x20>(a.0, b.0);
            let high = _mm256_permute2x128_si256::<0x31>(a.0, b.0);
            [Self(low), Self(high)]
        }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: SSE, by the caller; any address is allowed.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
}

#[derive(Clone, Copy)]
struct Zmm(__m512i);

impl Register<4> for Zmm {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: AVX-512 F, by the caller.
        unsafe { Self(_mm512_setzero_si512()) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: AVX-512 F and four blocks there, by the caller.
        unsafe { Self(_mm512_loadu_si512(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: AVX-512 F and room for four blocks there, by the caller.
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn broadcast(from: *const u8) -> Self {
        // SAFETY: AVX-512 F and a block there, by the caller.
        unsafe { Self(_mm512_broadcast_i32x4(_mm_loadu_si128(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: AVX-512 F, by the caller.
        unsafe { Self(_mm512_xor_si512(self.0, other.0)) }
    }

    rounds!(
        _mm512_aesenc_epi128,
        _mm512_aesenclast_epi128,
        _mm512_aesdec_epi128,
        _mm512_aesdeclast_epi128
    );
}

impl Wide<4> for Zmm {
    #[inline(always)]
    unsafe fn transposed([a, b, c, d]: [Self; 4]) -> [Self; 4] {
        // Selects blocks 0 and 2 of both registers; the next, blocks 1 and 3.
        const EVEN: i32 = 0b10_00_10_00;
        const ODD: i32 = 0b11_01_11_01;
        // SAFETY: AVX-512 F, by the caller.
        unsafe {
            let ab_even = _mm512_shuffle_i32x4::<EVEN>(a.0, b.0);
            let ab_odd = _mm512_shuffle_i32x4::<ODD>(a.0, b.0);
            let cd_even = _mm512_shuffle_i32x4::<EVEN>(c.0, d.0);
            let cd_odd = _mm512_shuffle_i32x4::<ODD>(c.0, d.0);
            [
                Self(_mm512_shuffle_i32x4::<EVEN>(ab_even, cd_even)),
                Self(_mm512_shuffle_i32x4::<EVEN>(ab_odd, cd_odd)),
                Self(_mm512_shuffle_i32x4::<ODD>(ab_even, cd_even)),
                Self(_mm512_shuffle_i32x4::<ODD>(ab_odd, cd_odd)),
            ]
        }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: SSE, by the caller; any address is allowed.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
}

/// # Safety
/// The processor has AES-NI; the lanes satisfy the requirements of [`direct`].
#[target_feature(enable = "aes")]
unsafe fn run_direct<const N: usize>(lanes: &mut Lanes<N>, lane_count: usize, blocks: usize) {
    // SAFETY: compiled for AES-NI, which the processor has; the lanes by the caller.
    unsafe {
        match lane_count {
            1 => direct::<Xmm, 1, N>(lanes, blocks),
            2 => direct::<Xmm, 2, N>(lanes, blocks),
            4 => direct::<Xmm, 4, N>(lanes, blocks),
            _ => direct::<Xmm, 8, N>(lanes, blocks),
        }
    }
}

/// # Safety
/// The processor has AES-NI, AVX2 and VAES; the lanes satisfy the requirements of [`panels`].
#[target_feature(enable = "aes,avx2,vaes")]
unsafe fn run_vaes256(lanes: &mut Lanes<16>, lane_count: usize, blocks: usize) {
    // SAFETY: compiled for instructions that the processor has; the lanes by the caller.
    unsafe {
        match lane_count {
            ..=lanes::DIRECT_MAX => run_direct(lanes, lane_count, blocks),
            _ => panels::<Ymm, 2, 8, 16>(lanes, blocks),
        }
    }
}

/// # Safety
/// The processor has AES-NI, AVX-512 F and VAES; the lanes satisfy the requirements of [`panels`].
#[target_feature(enable = "aes,avx512f,vaes")]
unsafe fn run_vaes512(lanes: &mut Lanes<16>, lane_count: usize, blocks: usize) {
    // SAFETY: compiled for instructions that the processor has; the lanes by the caller.
    unsafe {
        match lane_count {
            ..=lanes::DIRECT_MAX => run_direct(lanes, lane_count, blocks),
            _ => panels::<Zmm, 4, 4, 16>(lanes, blocks),
        }
    }
}

/// # Safety
/// The processor has AES-NI.
#[target_feature(enable = "aes")]
pub(super) unsafe fn encrypt_aes_ni(messages: &mut [Message<'_>]) {
    // SAFETY: compiled for AES-NI, which the processor has.
    unsafe {
        match messages {
            [message] => alone::<Xmm>(message),
            messages => lanes::encrypt(messages, run_direct::<8>),
        }
    }
}

/// # Safety
/// The processor has AES-NI, AVX2 and VAES.
#[target_feature(enable = "aes")]
pub(super) unsafe fn encrypt_vaes256(messages: &mut [Message<'_>]) {
    // SAFETY: compiled for AES-NI; VAES and AVX2 by the caller.
    unsafe {
        match messages {
            [message] => alone::<Xmm>(message),
            messages => lanes::encrypt(messages, run_vaes256),
        }
    }
}

/// # Safety
/// The processor has AES-NI, AVX-512 F and VAES.
#[target_feature(enable = "aes")]
pub(super) unsafe fn encrypt_vaes512(messages: &mut [Message<'_>]) {
    // SAFETY: compiled for AES-NI; VAES and AVX-512 F by the caller.
    unsafe {
        match messages {
            [message] => alone::<Xmm>(message),
            messages => lanes::encrypt(messages, run_vaes512),
        }
    }
}

/// # Safety
/// The processor has AES-NI.
#[target_feature(enable = "aes")]
pub(super) unsafe fn decrypt_aes_ni(key: &AesKey, iv: &mut Block, bytes: &mut [u8]) {
    let (last, end) = (decrypt::last(bytes), bytes.len());
    // SAFETY: compiled for AES-NI, which the processor has.
    unsafe { decrypt::rest::<Xmm>(key, (iv, last), bytes, end) }
}

/// # Safety
/// The processor has AES-NI, AVX2 and VAES.
#[target_feature(enable = "aes,avx2,vaes")]
pub(super) unsafe fn decrypt_vaes256(key: &AesKey, iv: &mut Block, bytes: &mut [u8]) {
    let last = decrypt::last(bytes);
    // SAFETY: compiled for instructions that the processor has.
    unsafe {
        let end = decrypt::steps::<Ymm, 2, 8>(key, bytes, bytes.len());
        decrypt::rest::<Xmm>(key, (iv, last), bytes, end);
    }
}

/// # Safety
/// The processor has AES-NI, AVX-512 F and VAES.
#[target_feature(enable = "aes,avx512f,vaes")]
pub(super) unsafe fn decrypt_vaes512(key: &AesKey, iv: &mut Block, bytes: &mut [u8]) {
    let last = decrypt::last(bytes);
    // SAFETY: compiled for instructions that the processor has.
    unsafe {
        let end = decrypt::steps::<Zmm, 4, 8>(key, bytes, bytes.len());
        decrypt::rest::<Xmm>(key, (iv, last), bytes, end);
    }
}
