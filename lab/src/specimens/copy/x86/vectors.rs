// SPDX-License-Identifier: MIT OR Apache-2.0
//! Vector registers of x86-64 as implementations of [`Vector`].
//!
//! Sources: Intel's intrinsics guide; its manual, volume 3, on streamed stores and sfence.
//!
//! Does not interpret the copied bytes.

use core::arch::x86_64::*;

use crate::specimens::copy::registers::{Register, Vector, ends, words};

impl Register for __m128i {
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: by the caller.
        unsafe { _mm_loadu_si128(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: by the caller.
        unsafe { _mm_storeu_si128(to.cast(), self) }
    }
}

impl Vector for __m128i {
    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: by the caller.
        unsafe { _mm_stream_si128(to.cast(), self) }
    }

    #[inline(always)]
    unsafe fn fence() {
        // SAFETY: by the caller.
        unsafe { _mm_sfence() }
    }

    #[inline(always)]
    unsafe fn shorter(source: *const u8, target: *mut u8, bytes: usize) {
        // SAFETY: by the caller; half of this register is a whole one of the next smaller width.
        unsafe {
            words(source, target, bytes);
        }
    }

    #[inline(always)]
    unsafe fn past_caches_apart(source: *const u8, target: *mut u8, bytes: usize) {
        // SAFETY: by the caller.
        unsafe { super::sse2_apart(source, target, bytes) }
    }
}

impl Register for __m256i {
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: by the caller.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: by the caller.
        unsafe { _mm256_storeu_si256(to.cast(), self) }
    }
}

impl Vector for __m256i {
    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: by the caller.
        unsafe { _mm256_stream_si256(to.cast(), self) }
    }

    #[inline(always)]
    unsafe fn fence() {
        // SAFETY: by the caller.
        unsafe { _mm_sfence() }
    }

    #[inline(always)]
    unsafe fn shorter(source: *const u8, target: *mut u8, bytes: usize) {
        // SAFETY: by the caller; half of this register is a whole one of the next smaller width.
        unsafe {
            match bytes {
                16.. => ends::<__m128i, 1>(source, target, bytes),
                _ => words(source, target, bytes),
            }
        }
    }

    #[inline(always)]
    unsafe fn past_caches_apart(source: *const u8, target: *mut u8, bytes: usize) {
        // SAFETY: by the caller.
        unsafe { super::avx2_apart(source, target, bytes) }
    }
}

impl Register for __m512i {
    const BYTES: usize = 64;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: by the caller.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: by the caller.
        unsafe { _mm512_storeu_si512(to.cast(), self) }
    }
}

impl Vector for __m512i {
    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: by the caller.
        unsafe { _mm512_stream_si512(to.cast(), self) }
    }

    #[inline(always)]
    unsafe fn fence() {
        // SAFETY: by the caller.
        unsafe { _mm_sfence() }
    }

    #[inline(always)]
    unsafe fn shorter(source: *const u8, target: *mut u8, bytes: usize) {
        // SAFETY: by the caller; half of this register is a whole one of the next smaller width.
        unsafe {
            match bytes {
                32.. => ends::<__m256i, 1>(source, target, bytes),
                _ => __m256i::shorter(source, target, bytes),
            }
        }
    }

    #[inline(always)]
    unsafe fn past_caches_apart(source: *const u8, target: *mut u8, bytes: usize) {
        // SAFETY: by the caller.
        unsafe { super::avx512_apart(source, target, bytes) }
    }
}
