// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registers of x86-64 for the lanes and for decryption, and a thin function for each.
//!
//! Sources: Intel's intrinsics guide.
//!
//! What it does not do: choose (`VARIANTS` and whoever made the [`super::Cbc`] did).

use core::arch::x86_64::*;

use super::blocks::{self, Inverse};
use super::key::{Key, Schedule};
use super::lanes::{self, Lanes, Register, RoundKeys};
use super::{BLOCK_BYTES, Block, Message};

/// The rounds of the cipher, with the instructions of one width.
macro_rules! rounds {
    ($round:ident, $last:ident) => {
        #[inline(always)]
        unsafe fn encrypt<const G: usize, K: RoundKeys<Self>>(
            mut state: [Self; G],
            keys: K,
            rounds: usize,
        ) -> [Self; G] {
            // SAFETY: the instructions, by the caller.
            unsafe {
                for group in 0..G {
                    state[group] = state[group].xor(keys.key(0, group));
                }
                for round in 1..10 {
                    for group in 0..G {
                        state[group].0 = $round(state[group].0, keys.key(round, group).0);
                    }
                }
                let mut round = 10;
                while round < rounds {
                    for group in 0..G {
                        state[group].0 = $round(state[group].0, keys.key(round, group).0);
                        state[group].0 = $round(state[group].0, keys.key(round + 1, group).0);
                    }
                    round += 2;
                }
                for group in 0..G {
                    state[group].0 = $last(state[group].0, keys.key(rounds, group).0);
                }
                state
            }
        }
    };
}

/// The rounds of the inverse cipher.
macro_rules! inverse {
    ($type:ty, $blocks:literal, $round:ident, $last:ident) => {
        impl Inverse<$blocks> for $type {
            #[inline(always)]
            unsafe fn decrypt<const G: usize>(
                mut state: [Self; G],
                keys: *const Schedule,
                rounds: usize,
            ) -> [Self; G] {
                // SAFETY: the instructions, by the caller; a schedule has `rounds + 1` keys.
                unsafe {
                    let key =
                        |round: usize| Self::broadcast(keys.cast::<u8>().add(round * BLOCK_BYTES));
                    let first = key(0);
                    for group in 0..G {
                        state[group] = state[group].xor(first);
                    }
                    for round in 1..10 {
                        let key = key(round);
                        for group in 0..G {
                            state[group].0 = $round(state[group].0, key.0);
                        }
                    }
                    for round in 10..rounds {
                        let key = key(round);
                        for group in 0..G {
                            state[group].0 = $round(state[group].0, key.0);
                        }
                    }
                    let last = key(rounds);
                    for group in 0..G {
                        state[group].0 = $last(state[group].0, last.0);
                    }
                    state
                }
            }
        }
    };
}

inverse!(Xmm, 1, _mm_aesdec_si128, _mm_aesdeclast_si128);
inverse!(Ymm, 2, _mm256_aesdec_epi128, _mm256_aesdeclast_epi128);
inverse!(Zmm, 4, _mm512_aesdec_epi128, _mm512_aesdeclast_epi128);

#[derive(Clone, Copy)]
struct Xmm(__m128i);

impl Register<1> for Xmm {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the instructions and the memory, by the caller.
        unsafe { Self(_mm_setzero_si128()) }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the instructions and the memory, by the caller.
        unsafe { Self(_mm_loadu_si128(from.cast())) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the instructions and the memory, by the caller.
        unsafe { _mm_storeu_si128(to.cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn gather(from: [*const u8; 1]) -> Self {
        // SAFETY: the instructions and the memory, by the caller.
        unsafe { Self::load(from[0]) }
    }
    #[inline(always)]
    unsafe fn scatter(self, to: [*mut u8; 1]) {
        // SAFETY: the instructions and the memory, by the caller.
        unsafe { self.store(to[0]) }
    }
    #[inline(always)]
    unsafe fn broadcast(from: *const u8) -> Self {
        // SAFETY: the instructions and the memory, by the caller.
        unsafe { Self::load(from) }
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the instructions and the memory, by the caller.
        unsafe { Self(_mm_xor_si128(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn transposed(rows: [Self; 1]) -> [Self; 1] {
        rows
    }
    rounds!(_mm_aesenc_si128, _mm_aesenclast_si128);
}

#[derive(Clone, Copy)]
struct Ymm(__m256i);

impl Register<2> for Ymm {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the instructions and the memory, by the caller.
        unsafe { Self(_mm256_setzero_si256()) }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the instructions and the memory, by the caller.
        unsafe { Self(_mm256_loadu_si256(from.cast())) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the instructions and the memory, by the caller.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn gather(from: [*const u8; 2]) -> Self {
        // SAFETY: the instructions and the memory, by the caller.
        unsafe {
            let [low, high] = from.map(|from| _mm_loadu_si128(from.cast()));
            Self(_mm256_set_m128i(high, low))
        }
    }
    #[inline(always)]
    unsafe fn scatter(self, to: [*mut u8; 2]) {
        // SAFETY: the instructions and the memory, by the caller.
        unsafe {
            _mm_storeu_si128(to[0].cast(), _mm256_castsi256_si128(self.0));
            _mm_storeu_si128(to[1].cast(), _mm256_extracti128_si256::<1>(self.0));
        }
    }
    #[inline(always)]
    unsafe fn broadcast(from: *const u8) -> Self {
        // SAFETY: the instructions and the memory, by the caller.
        unsafe { Self(_mm256_broadcastsi128_si256(_mm_loadu_si128(from.cast()))) }
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the instructions and the memory, by the caller.
        unsafe { Self(_mm256_xor_si256(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn transposed(rows: [Self; 2]) -> [Self; 2] {
        // SAFETY: the instructions and the memory, by the caller.
        unsafe {
            let [a, b] = rows;
            [
                Self(_mm256_permute2x128_si256::<0x20>(a.0, b.0)),
                Self(_mm256_permute2x128_si256::<0x31>(a.0, b.0)),
            ]
        }
    }
    rounds!(_mm256_aesenc_epi128, _mm256_aesenclast_epi128);
}

#[derive(Clone, Copy)]
struct Zmm(__m512i);

impl Register<4> for Zmm {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the instructions and the memory, by the caller.
        unsafe { Self(_mm512_setzero_si512()) }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the instructions and the memory, by the caller.
        unsafe { Self(_mm512_loadu_si512(from.cast())) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the instructions and the memory, by the caller.
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn gather(from: [*const u8; 4]) -> Self {
        // SAFETY: the instructions and the memory, by the caller.
        unsafe {
            let load = |from: *const u8| _mm_loadu_si128(from.cast());
            let low = _mm512_castsi128_si512(load(from[0]));
            let low = _mm512_inserti32x4::<1>(low, load(from[1]));
            let low = _mm512_inserti32x4::<2>(low, load(from[2]));
            Self(_mm512_inserti32x4::<3>(low, load(from[3])))
        }
    }
    #[inline(always)]
    unsafe fn scatter(self, to: [*mut u8; 4]) {
        // SAFETY: the instructions and the memory, by the caller.
        unsafe {
            _mm_storeu_si128(to[0].cast(), _mm512_castsi512_si128(self.0));
            _mm_storeu_si128(to[1].cast(), _mm512_extracti32x4_epi32::<1>(self.0));
            _mm_storeu_si128(to[2].cast(), _mm512_extracti32x4_epi32::<2>(self.0));
            _mm_storeu_si128(to[3].cast(), _mm512_extracti32x4_epi32::<3>(self.0));
        }
    }
    #[inline(always)]
    unsafe fn broadcast(from: *const u8) -> Self {
        // SAFETY: the instructions and the memory, by the caller.
        unsafe { Self(_mm512_broadcast_i32x4(_mm_loadu_si128(from.cast()))) }
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the instructions and the memory, by the caller.
        unsafe { Self(_mm512_xor_si512(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn transposed(rows: [Self; 4]) -> [Self; 4] {
        // SAFETY: the instructions and the memory, by the caller.
        unsafe {
            let [a, b, c, d] = rows.map(|row| row.0);
            // Blocks 0 and 2 of both, then 1 and 3.
            let (ab_even, ab_odd) =
                (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b));
            let (cd_even, cd_odd) =
                (_mm512_shuffle_i32x4::<0x88>(c, d), _mm512_shuffle_i32x4::<0xdd>(c, d));
            [
                Self(_mm512_shuffle_i32x4::<0x88>(ab_even, cd_even)),
                Self(_mm512_shuffle_i32x4::<0x88>(ab_odd, cd_odd)),
                Self(_mm512_shuffle_i32x4::<0xdd>(ab_even, cd_even)),
                Self(_mm512_shuffle_i32x4::<0xdd>(ab_odd, cd_odd)),
            ]
        }
    }
    rounds!(_mm512_aesenc_epi128, _mm512_aesenclast_epi128);
}

/// # Safety
/// The processor has these instructions; `lanes` have so many blocks left.
#[target_feature(enable = "aes,sse2")]
unsafe fn run_aes_ni(lanes: &mut Lanes<8>, occupied: usize, blocks: usize) {
    // SAFETY: the instructions and the memory, by the caller.
    unsafe {
        match occupied {
            0..=1 => lanes::run::<Xmm, 1, 1, 8>(lanes, blocks),
            2 => lanes::run::<Xmm, 1, 2, 8>(lanes, blocks),
            3..=4 => lanes::run::<Xmm, 1, 4, 8>(lanes, blocks),
            _ => lanes::run::<Xmm, 1, 8, 8>(lanes, blocks),
        }
    }
}

/// # Safety
/// The processor has these instructions; `lanes` have so many blocks left.
#[target_feature(enable = "vaes,avx2,aes")]
unsafe fn run_vaes256(lanes: &mut Lanes<16>, occupied: usize, blocks: usize) {
    // SAFETY: the instructions and the memory, by the caller.
    unsafe {
        match occupied {
            0..=1 => lanes::run::<Xmm, 1, 1, 16>(lanes, blocks),
            2..=4 => lanes::run::<Ymm, 2, 2, 16>(lanes, blocks),
            5..=8 => lanes::run::<Ymm, 2, 4, 16>(lanes, blocks),
            _ => lanes::run::<Ymm, 2, 8, 16>(lanes, blocks),
        }
    }
}

/// # Safety
/// The processor has these instructions; `lanes` have so many blocks left.
#[target_feature(enable = "vaes,avx512f,aes")]
unsafe fn run_vaes512(lanes: &mut Lanes<16>, occupied: usize, blocks: usize) {
    // SAFETY: the instructions and the memory, by the caller.
    unsafe {
        match occupied {
            0..=1 => lanes::run::<Xmm, 1, 1, 16>(lanes, blocks),
            2..=4 => lanes::run::<Zmm, 4, 1, 16>(lanes, blocks),
            5..=8 => lanes::run::<Zmm, 4, 2, 16>(lanes, blocks),
            _ => lanes::run::<Zmm, 4, 4, 16>(lanes, blocks),
        }
    }
}

/// # Safety
/// The processor has AES-NI.
pub(super) unsafe fn encrypt_aes_ni(messages: &mut [Message<'_>]) {
    // SAFETY: the instructions and the memory, by the caller.
    unsafe { lanes::encrypt(messages, run_aes_ni) }
}

/// # Safety
/// The processor has AVX2 and VAES.
pub(super) unsafe fn encrypt_vaes256(messages: &mut [Message<'_>]) {
    // SAFETY: the instructions and the memory, by the caller.
    unsafe { lanes::encrypt(messages, run_vaes256) }
}

/// # Safety
/// The processor has AVX-512 F and VAES.
pub(super) unsafe fn encrypt_vaes512(messages: &mut [Message<'_>]) {
    // SAFETY: the instructions and the memory, by the caller.
    unsafe { lanes::encrypt(messages, run_vaes512) }
}

/// # Safety
/// The processor has these instructions.
#[target_feature(enable = "aes,sse2")]
pub(super) unsafe fn decrypt_aes_ni(key: &Key, chain: &mut Block, bytes: &mut [u8]) {
    // SAFETY: the instructions and the memory, by the caller.
    unsafe {
        let done = blocks::decrypt::<Xmm, 1, 8>(key, chain, bytes);
        blocks::decrypt::<Xmm, 1, 1>(key, chain, &mut bytes[done..]);
    }
}

/// # Safety
/// The processor has these instructions.
#[target_feature(enable = "vaes,avx2,aes")]
pub(super) unsafe fn decrypt_vaes256(key: &Key, chain: &mut Block, bytes: &mut [u8]) {
    // SAFETY: the instructions and the memory, by the caller.
    unsafe {
        let done = blocks::decrypt::<Ymm, 2, 8>(key, chain, bytes);
        decrypt_aes_ni(key, chain, &mut bytes[done..]);
    }
}

/// # Safety
/// The processor has these instructions.
#[target_feature(enable = "vaes,avx512f,aes")]
pub(super) unsafe fn decrypt_vaes512(key: &Key, chain: &mut Block, bytes: &mut [u8]) {
    // SAFETY: the instructions and the memory, by the caller.
    unsafe {
        let done = blocks::decrypt::<Zmm, 4, 8>(key, chain, bytes);
        decrypt_aes_ni(key, chain, &mut bytes[done..]);
    }
}
