// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registers of x86-64 for the checksum's body, and a thin function for each.
//!
//! Sources: Intel's intrinsics guide; RFC 1071.
//!
//! Does not choose a variant ([`super::Checksum`] does).

use core::arch::x86_64::*;

use super::{Lanes, Ranges, Words, body};

/// Two 64-bit lanes: `all` sums whole words modulo 2^64, `high` their upper halves. The sum of the
/// lower halves, less than 2^64, is the excess of `all` over 2^32 × `high`: no register is masked.
#[derive(Clone, Copy)]
pub struct Xmm {
    all: __m128i,
    high: __m128i,
}

impl Lanes for Xmm {
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: SSE2, by the caller.
        unsafe { Self { all: _mm_setzero_si128(), high: _mm_setzero_si128() } }
    }

    #[inline(always)]
    unsafe fn add(self, chunk: &[u8]) -> Self {
        // SAFETY: SSE2 and 16 bytes to load from any address, by the caller.
        unsafe {
            let words = _mm_loadu_si128(chunk.as_ptr().cast());
            Self {
                all: _mm_add_epi64(self.all, words),
                high: _mm_add_epi64(self.high, _mm_srli_epi64::<32>(words)),
            }
        }
    }

    #[inline(always)]
    unsafe fn add_rest(self, rest: &[u8]) -> Self {
        // SAFETY: SSE2, by the caller.
        unsafe {
            let total = Words { low: 0, high: 0 }.plus_all(rest).total();
            Self { all: _mm_add_epi64(self.all, _mm_set_epi64x(0, total as i64)), ..self }
        }
    }

    #[inline(always)]
    unsafe fn total(self) -> u64 {
        // SAFETY: SSE2, by the caller.
        unsafe {
            let low = _mm_sub_epi64(self.all, _mm_slli_epi64::<32>(self.high));
            of_lanes(_mm_add_epi64(low, self.high))
        }
    }
}

/// Returns the sum of both lanes.
///
/// # Safety
/// The processor has SSE2.
#[inline(always)]
unsafe fn of_lanes(both: __m128i) -> u64 {
    // SAFETY: SSE2, by the caller.
    unsafe {
        let upper = _mm_unpackhi_epi64(both, both);
        _mm_cvtsi128_si64(_mm_add_epi64(both, upper)) as u64
    }
}

/// Four 64-bit lanes.
#[derive(Clone, Copy)]
pub struct Ymm {
    all: __m256i,
    high: __m256i,
}

impl Lanes for Ymm {
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: AVX2, by the caller.
        unsafe { Self { all: _mm256_setzero_si256(), high: _mm256_setzero_si256() } }
    }

    #[inline(always)]
    unsafe fn add(self, chunk: &[u8]) -> Self {
        // SAFETY: AVX2 and 32 bytes to load from any address, by the caller.
        unsafe {
            let words = _mm256_loadu_si256(chunk.as_ptr().cast());
            Self {
                all: _mm256_add_epi64(self.all, words),
                high: _mm256_add_epi64(self.high, _mm256_srli_epi64::<32>(words)),
            }
        }
    }

    #[inline(always)]
    unsafe fn add_rest(self, rest: &[u8]) -> Self {
        // SAFETY: AVX2, by the caller.
        unsafe {
            let total = Words { low: 0, high: 0 }.plus_all(rest).total();
            let lane = _mm256_set_epi64x(0, 0, 0, total as i64);
            Self { all: _mm256_add_epi64(self.all, lane), ..self }
        }
    }

    #[inline(always)]
    unsafe fn total(self) -> u64 {
        // SAFETY: AVX2, by the caller.
        unsafe {
            let low = _mm256_sub_epi64(self.all, _mm256_slli_epi64::<32>(self.high));
            let both = _mm256_add_epi64(low, self.high);
            let upper = _mm256_extracti128_si256::<1>(both);
            of_lanes(_mm_add_epi64(_mm256_castsi256_si128(both), upper))
        }
    }
}

/// Eight 64-bit lanes.
#[derive(Clone, Copy)]
pub struct Zmm {
    all: __m512i,
    high: __m512i,
}

impl Zmm {
    #[inline(always)]
    unsafe fn plus(self, words: __m512i) -> Self {
        // SAFETY: AVX-512 F, by the caller.
        unsafe {
            Self {
                all: _mm512_add_epi64(self.all, words),
                high: _mm512_add_epi64(self.high, _mm512_srli_epi64::<32>(words)),
            }
        }
    }
}

impl Lanes for Zmm {
    const BYTES: usize = 64;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: AVX-512 F, by the caller.
        unsafe { Self { all: _mm512_setzero_si512(), high: _mm512_setzero_si512() } }
    }

    #[inline(always)]
    unsafe fn add(self, chunk: &[u8]) -> Self {
        // SAFETY: AVX-512 F and 64 bytes to load from any address, by the caller.
        unsafe { self.plus(_mm512_loadu_si512(chunk.as_ptr().cast())) }
    }

    #[inline(always)]
    unsafe fn add_rest(self, rest: &[u8]) -> Self {
        let mask = (1_u64 << rest.len()) - 1;
        // SAFETY: AVX-512 F and BW, by the caller. Fewer than 64 bytes, so the mask has a bit for
        // each of `rest` and none for the bytes behind, which a masked load does not touch.
        unsafe { self.plus(_mm512_maskz_loadu_epi8(mask, rest.as_ptr().cast())) }
    }

    #[inline(always)]
    unsafe fn total(self) -> u64 {
        // SAFETY: AVX-512 F, by the caller.
        unsafe {
            let low = _mm512_sub_epi64(self.all, _mm512_slli_epi64::<32>(self.high));
            _mm512_reduce_add_epi64(_mm512_add_epi64(low, self.high)) as u64
        }
    }
}

/// # Safety
/// The processor has SSE2.
#[target_feature(enable = "sse2")]
pub(super) unsafe fn sse2(ranges: Ranges<'_>, sums: &mut [u16]) {
    // SAFETY: compiled for SSE2, which the processor has, by the caller.
    unsafe { body::<Xmm>(ranges, sums) }
}

/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn avx2(ranges: Ranges<'_>, sums: &mut [u16]) {
    // SAFETY: compiled for AVX2, which the processor has, by the caller.
    unsafe { body::<Ymm>(ranges, sums) }
}

/// # Safety
/// The processor has AVX-512 F and BW.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn avx512(ranges: Ranges<'_>, sums: &mut [u16]) {
    // SAFETY: compiled for AVX-512 F and BW, which the processor has, by the caller.
    unsafe { body::<Zmm>(ranges, sums) }
}
