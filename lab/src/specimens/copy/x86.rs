// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thin functions for each kind of register of x86-64, and the variants made of them.
//!
//! Sources: Intel's intrinsics guide.
//!
//! Does not choose a variant ([`super::Copier`] does).

mod vectors;

use core::arch::x86_64::{__m128i, __m256i, __m512i};

use super::fixed::sealed::SealedSize;
use super::fixed::{Compiled, CopyBatch, FIXED_BYTES_MAX, Fixed};
use super::registers::{
    PAST_CACHES_REGISTERS_MIN, Register, and_sum, by_size, past_caches, straight,
};
use super::{Run, portable, portable_and_sum};
use simd::checksum::x86::{Xmm, Ymm, Zmm};
use simd::variant::{Variant, everywhere};

pub(super) static VARIANTS: &[Variant<Run>] = &[
    Variant {
        name: "portable",
        is_here: everywhere,
        run: Run {
            copy: portable,
            copy_and_sum: portable_and_sum,
            past_caches: portable,
            set: Set::Compiled,
        },
    },
    Variant {
        name: "sse2",
        is_here: || is_x86_feature_detected!("sse2"),
        run: Run {
            copy: sse2,
            copy_and_sum: sse2_and_sum,
            past_caches: sse2_past_caches,
            set: Set::Sse2,
        },
    },
    // Some processors store registers of 64 bytes in two halves, and then are no faster.
    Variant {
        name: "avx512f",
        is_here: has_avx512,
        run: Run {
            copy: avx512,
            copy_and_sum: avx512_and_sum,
            past_caches: avx512_past_caches,
            set: Set::Avx512,
        },
    },
    Variant {
        name: "avx2",
        is_here: || is_x86_feature_detected!("avx2"),
        run: Run {
            copy: avx2,
            copy_and_sum: avx2_and_sum,
            past_caches: avx2_past_caches,
            set: Set::Avx2,
        },
    },
    // Copies by registers of 32 bytes and sums by 64, which measured fastest.
    Variant {
        name: "avx512bw",
        is_here: || has_avx512() && is_x86_feature_detected!("avx2"),
        run: Run {
            copy: avx2,
            copy_and_sum: avx512_and_sum,
            past_caches: avx2_past_caches,
            set: Set::Avx2,
        },
    },
];

fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
}

/// Registers of a variant.
#[derive(Clone, Copy)]
pub(super) enum Set {
    Compiled,
    Sse2,
    Avx2,
    Avx512,
}

impl Set {
    /// # Safety
    /// The processor has the registers.
    #[inline]
    pub(super) unsafe fn batch<B: CopyBatch>(self, batch: B) -> B::Output {
        // SAFETY: by the caller.
        unsafe {
            match self {
                Set::Compiled => batch.run(Compiled),
                Set::Sse2 => sse2_batch(batch),
                Set::Avx2 => avx2_batch(batch),
                Set::Avx512 => avx512_batch(batch),
            }
        }
    }
}

/// Proof that the processor has SSE2.
#[derive(Clone, Copy)]
struct Sse2(());

/// Proof that the processor has AVX2.
#[derive(Clone, Copy)]
struct Avx2(());

/// Proof that the processor has AVX-512 F and BW.
#[derive(Clone, Copy)]
struct Avx512(());

impl SealedSize for Sse2 {}
impl SealedSize for Avx2 {}
impl SealedSize for Avx512 {}

/// # Safety
/// The processor has SSE2. The lengths are equal.
#[target_feature(enable = "sse2")]
unsafe fn sse2(source: &[u8], target: &mut [u8]) {
    // SAFETY: compiled for SSE2, which the processor has; equal lengths (caller).
    unsafe { by_size::<__m128i>(source.as_ptr(), target.as_mut_ptr(), source.len()) }
}

/// # Safety
/// Same as for [`sse2`].
#[target_feature(enable = "sse2")]
unsafe fn sse2_and_sum(source: &[u8], target: &mut [u8]) -> u16 {
    // SAFETY: compiled for SSE2, which the processor has; equal lengths (caller).
    unsafe { and_sum::<__m128i, Xmm>(source, target) }
}

/// # Safety
/// Same as for [`past_caches`], and the processor has SSE2.
#[target_feature(enable = "sse2")]
unsafe fn sse2_apart(source: *const u8, target: *mut u8, bytes: usize) {
    // SAFETY: by the caller.
    unsafe { past_caches::<__m128i>(source, target, bytes) }
}

/// # Safety
/// Same as for [`sse2`].
#[target_feature(enable = "sse2")]
unsafe fn sse2_past_caches(source: &[u8], target: &mut [u8]) {
    // SAFETY: compiled for SSE2, which the processor has; equal lengths (caller).
    unsafe {
        match source.len() {
            bytes if bytes < PAST_CACHES_REGISTERS_MIN * __m128i::BYTES => sse2(source, target),
            bytes => sse2_apart(source.as_ptr(), target.as_mut_ptr(), bytes),
        }
    }
}

/// # Safety
/// The processor has SSE2.
#[target_feature(enable = "sse2")]
unsafe fn sse2_batch<B: CopyBatch>(batch: B) -> B::Output {
    batch.run(Sse2(()))
}

/// # Safety
/// The processor has SSE2.
#[inline]
#[target_feature(enable = "sse2")]
unsafe fn sse2_fixed<const N: usize>(source: &[u8; N], target: &mut [u8; N]) {
    // SAFETY: compiled for SSE2, which the processor has (caller).
    unsafe { straight::<__m128i, N>(source, target) }
}

impl Fixed for Sse2 {
    #[inline(always)]
    fn copy<const N: usize>(self, source: &[u8; N], target: &mut [u8; N]) {
        const { assert!(N <= FIXED_BYTES_MAX) }
        // SAFETY: this is made in `sse2_batch` alone, where the processor has SSE2.
        unsafe { sse2_fixed(source, target) }
    }
}

/// # Safety
/// The processor has AVX2. The lengths are equal.
#[target_feature(enable = "avx2")]
unsafe fn avx2(source: &[u8], target: &mut [u8]) {
    // SAFETY: compiled for AVX2, which the processor has; equal lengths (caller).
    unsafe { by_size::<__m256i>(source.as_ptr(), target.as_mut_ptr(), source.len()) }
}

/// # Safety
/// Same as for [`avx2`].
#[target_feature(enable = "avx2")]
unsafe fn avx2_and_sum(source: &[u8], target: &mut [u8]) -> u16 {
    // SAFETY: compiled for AVX2, which the processor has; equal lengths (caller).
    unsafe { and_sum::<__m256i, Ymm>(source, target) }
}

/// # Safety
/// Same as for [`past_caches`], and the processor has AVX2.
#[target_feature(enable = "avx2")]
unsafe fn avx2_apart(source: *const u8, target: *mut u8, bytes: usize) {
    // SAFETY: by the caller.
    unsafe { past_caches::<__m256i>(source, target, bytes) }
}

/// # Safety
/// Same as for [`avx2`].
#[target_feature(enable = "avx2")]
unsafe fn avx2_past_caches(source: &[u8], target: &mut [u8]) {
    // SAFETY: compiled for AVX2, which the processor has; equal lengths (caller).
    unsafe {
        match source.len() {
            bytes if bytes < PAST_CACHES_REGISTERS_MIN * __m256i::BYTES => avx2(source, target),
            bytes => avx2_apart(source.as_ptr(), target.as_mut_ptr(), bytes),
        }
    }
}

/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2")]
unsafe fn avx2_batch<B: CopyBatch>(batch: B) -> B::Output {
    batch.run(Avx2(()))
}

/// # Safety
/// The processor has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn avx2_fixed<const N: usize>(source: &[u8; N], target: &mut [u8; N]) {
    // SAFETY: compiled for AVX2, which the processor has (caller).
    unsafe { straight::<__m256i, N>(source, target) }
}

impl Fixed for Avx2 {
    #[inline(always)]
    fn copy<const N: usize>(self, source: &[u8; N], target: &mut [u8; N]) {
        const { assert!(N <= FIXED_BYTES_MAX) }
        // SAFETY: this is made in `avx2_batch` alone, where the processor has AVX2.
        unsafe { avx2_fixed(source, target) }
    }
}

/// # Safety
/// The processor has AVX-512 F and BW. The lengths are equal.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn avx512(source: &[u8], target: &mut [u8]) {
    // SAFETY: compiled for AVX-512 F and BW, which the processor has; equal lengths (caller).
    unsafe { by_size::<__m512i>(source.as_ptr(), target.as_mut_ptr(), source.len()) }
}

/// # Safety
/// Same as for [`avx512`].
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn avx512_and_sum(source: &[u8], target: &mut [u8]) -> u16 {
    // SAFETY: compiled for AVX-512 F and BW, which the processor has; equal lengths (caller).
    unsafe { and_sum::<__m512i, Zmm>(source, target) }
}

/// # Safety
/// Same as for [`past_caches`], and the processor has AVX-512 F and BW.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn avx512_apart(source: *const u8, target: *mut u8, bytes: usize) {
    // SAFETY: by the caller.
    unsafe { past_caches::<__m512i>(source, target, bytes) }
}

/// # Safety
/// Same as for [`avx512`].
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn avx512_past_caches(source: &[u8], target: &mut [u8]) {
    // SAFETY: compiled for AVX-512 F and BW, which the processor has; equal lengths (caller).
    unsafe {
        match source.len() {
            bytes if bytes < PAST_CACHES_REGISTERS_MIN * __m512i::BYTES => avx512(source, target),
            bytes => avx512_apart(source.as_ptr(), target.as_mut_ptr(), bytes),
        }
    }
}

/// # Safety
/// The processor has AVX-512 F and BW.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn avx512_batch<B: CopyBatch>(batch: B) -> B::Output {
    batch.run(Avx512(()))
}

/// # Safety
/// The processor has AVX-512 F and BW.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn avx512_fixed<const N: usize>(source: &[u8; N], target: &mut [u8; N]) {
    // SAFETY: compiled for AVX-512 F and BW, which the processor has (caller).
    unsafe { straight::<__m512i, N>(source, target) }
}

impl Fixed for Avx512 {
    #[inline(always)]
    fn copy<const N: usize>(self, source: &[u8; N], target: &mut [u8; N]) {
        const { assert!(N <= FIXED_BYTES_MAX) }
        // SAFETY: this is made in `avx512_batch` alone, where the processor has AVX-512 F and BW.
        unsafe { avx512_fixed(source, target) }
    }
}
