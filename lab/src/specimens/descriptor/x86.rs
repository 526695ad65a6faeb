// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts shared by the widths of x86-64, and a thin function for each instruction set and format.
//!
//! The functions are never inlined, so that a profile, or a search for stalls, names them.
//!
//! Assembly ([`load`]) reads the memory that a card may write to meanwhile: the compiler then
//! cannot choose the time and the size of each read.
//!
//! Sources: Intel's intrinsics guide.
//!
//! Does not choose a variant ([`super::Descriptor`] does).

mod blend;
mod load;
mod wide;

use core::arch::x86_64::*;

use super::scalar::{ERRORS, FILTER, FILTER_SHIFT, STATUS};
use super::{Burst, Long, Metadata, Short, Xdp, status};

use blend::{Blends, Stores};

/// Vector of four double words, or a multiple of four.
trait Dwords: Copy {
    /// # Safety
    /// The processor has the instructions of the implementation.
    unsafe fn splat(value: u32) -> Self;
    /// # Safety
    /// Same as for `splat`.
    unsafe fn and(self, other: Self) -> Self;
    /// # Safety
    /// Same as for `splat`.
    unsafe fn or(self, other: Self) -> Self;
    /// # Safety
    /// Same as for `splat`.
    unsafe fn left<const N: u32>(self) -> Self;
    /// # Safety
    /// Same as for `splat`.
    unsafe fn right<const N: u32>(self) -> Self;
    /// Replaces each byte whose highest bit is clear by the byte of `table` at its lowest four
    /// bits.
    ///
    /// # Safety
    /// Same as for `splat`.
    unsafe fn lookup(self, table: &[u8; 16]) -> Self;
}

/// Flags for the lower four bits of the errors; the next table has those for the upper four.
const ERRORS_LOW: [u8; 16] = {
    let mut table = [0; 16];
    let mut bits = 0;
    while bits < 16 {
        table[bits] = ERRORS[bits];
        bits += 1;
    }
    table
};
const ERRORS_HIGH: [u8; 16] = {
    let mut table = [0; 16];
    let mut bits = 0;
    while bits < 16 {
        table[bits] = ERRORS[bits << 4];
        bits += 1;
    }
    table
};

/// Bits of the last double word of a record.
mod last {
    pub(super) const ERRORS: u32 = 0x00ff_0000;
    pub(super) const ERRORS_SHIFT: u32 = 16;
    pub(super) const KIND_SHIFT: u32 = 24;
}

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(Metadata, flags) == 12);
    assert!(8 * (offset_of!(Metadata, errors) - 12) == last::ERRORS_SHIFT as usize);
    assert!(8 * (offset_of!(Metadata, kind) - 12) == last::KIND_SHIFT as usize);
    assert!(last::ERRORS == 0xff << last::ERRORS_SHIFT);
    // Tables of four bits each rely on this: no flag depends on both halves.
    let mut bits = 0;
    while bits < 256 {
        assert!(ERRORS[bits] == ERRORS_LOW[bits & 15] | ERRORS_HIGH[bits >> 4]);
        bits += 1;
    }
    assert!(FILTER[0] == 0 && ERRORS[0] == 0);
    // The type begins in the lower double word and continues in the upper, which has the length.
    assert!(status::KIND_SHIFT == 30 && status::LENGTH_SHIFT == 32 + LENGTH_SHIFT);
};

const LENGTH_SHIFT: u32 = 6;

/// Returns the last double words of records (flags, errors, type) for the lower and upper double
/// words of status.
///
/// # Safety
/// The processor has the instructions of `D`, and the caller is compiled for them.
#[inline(always)]
unsafe fn last_of<D: Dwords>(lower: D, upper: D) -> D {
    const ERRORS_SHIFT: u32 = status::ERRORS_SHIFT;
    const ERRORS_HIGH_SHIFT: u32 = status::ERRORS_SHIFT + 4;
    const ERRORS_RIGHT: u32 = status::ERRORS_SHIFT - last::ERRORS_SHIFT;
    const KIND_RIGHT: u32 = status::KIND_SHIFT - last::KIND_SHIFT;
    const KIND_LEFT: u32 = 32 - status::KIND_SHIFT + last::KIND_SHIFT;
    // SAFETY: the instructions, by the caller.
    unsafe {
        let four = D::splat(15);
        let flags = lower.and(four).lookup(&STATUS);
        // Clears the upper bytes: they have the entry of 0, which is not 0.
        let flags = flags.and(D::splat(0xff));
        let flags = flags.or(lower.right::<FILTER_SHIFT>().and(four).lookup(&FILTER));
        let flags = flags.or(lower.right::<ERRORS_SHIFT>().and(four).lookup(&ERRORS_LOW));
        let flags = flags.or(lower.right::<ERRORS_HIGH_SHIFT>().and(four).lookup(&ERRORS_HIGH));
        let errors = lower.right::<ERRORS_RIGHT>().and(D::splat(last::ERRORS));
        let kind = lower.right::<KIND_RIGHT>().and(D::splat(3 << last::KIND_SHIFT));
        let kind = kind.or(upper.left::<KIND_LEFT>());
        flags.or(errors).or(kind)
    }
}

/// Returns the lengths in the upper double words of status.
///
/// # Safety
/// Same as for [`last_of`].
#[inline(always)]
unsafe fn lengths_of<D: Dwords>(upper: D) -> D {
    // SAFETY: the instructions, by the caller.
    unsafe { upper.right::<LENGTH_SHIFT>().and(D::splat(status::LENGTH_MAX as u32)) }
}

impl Dwords for __m128i {
    #[inline(always)]
    unsafe fn splat(value: u32) -> Self {
        // SAFETY: SSE2, by the caller.
        unsafe { _mm_set1_epi32(value as i32) }
    }
    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm_and_si128(self, other) }
    }
    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm_or_si128(self, other) }
    }
    #[inline(always)]
    unsafe fn left<const N: u32>(self) -> Self {
        // SAFETY: as above.
        unsafe { _mm_sll_epi32(self, _mm_cvtsi32_si128(N as i32)) }
    }
    #[inline(always)]
    unsafe fn right<const N: u32>(self) -> Self {
        // SAFETY: as above.
        unsafe { _mm_srl_epi32(self, _mm_cvtsi32_si128(N as i32)) }
    }
    #[inline(always)]
    unsafe fn lookup(self, table: &[u8; 16]) -> Self {
        // SAFETY: SSSE3, by the caller; a table has 16 bytes.
        unsafe { _mm_shuffle_epi8(_mm_loadu_si128(table.as_ptr().cast()), self) }
    }
}

impl Dwords for __m256i {
    #[inline(always)]
    unsafe fn splat(value: u32) -> Self {
        // SAFETY: AVX2, by the caller.
        unsafe { _mm256_set1_epi32(value as i32) }
    }
    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_and_si256(self, other) }
    }
    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_or_si256(self, other) }
    }
    #[inline(always)]
    unsafe fn left<const N: u32>(self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_sll_epi32(self, _mm_cvtsi32_si128(N as i32)) }
    }
    #[inline(always)]
    unsafe fn right<const N: u32>(self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_srl_epi32(self, _mm_cvtsi32_si128(N as i32)) }
    }
    #[inline(always)]
    unsafe fn lookup(self, table: &[u8; 16]) -> Self {
        // SAFETY: AVX2, by the caller; a table has 16 bytes.
        unsafe {
            let table = _mm_loadu_si128(table.as_ptr().cast());
            _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), self)
        }
    }
}

impl Dwords for __m512i {
    #[inline(always)]
    unsafe fn splat(value: u32) -> Self {
        // SAFETY: AVX-512 F, by the caller.
        unsafe { _mm512_set1_epi32(value as i32) }
    }
    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_and_si512(self, other) }
    }
    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_or_si512(self, other) }
    }
    #[inline(always)]
    unsafe fn left<const N: u32>(self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_slli_epi32::<N>(self) }
    }
    #[inline(always)]
    unsafe fn right<const N: u32>(self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_srli_epi32::<N>(self) }
    }
    #[inline(always)]
    unsafe fn lookup(self, table: &[u8; 16]) -> Self {
        // SAFETY: AVX-512 F and BW, by the caller; a table has 16 bytes.
        unsafe {
            let table = _mm_loadu_si128(table.as_ptr().cast());
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), self)
        }
    }
}

/// Writes a record from its two quad words by one store. The next reader may load 16 bytes, as a
/// copy does; after a store for each field, or two of eight bytes, that load would stall.
#[inline(always)]
pub(super) fn write(packet: &mut Metadata, [front, back]: [u64; 2]) {
    // SAFETY: all of x86-64 has SSE2; a record has the size and alignment of a register.
    unsafe {
        let record = _mm_set_epi64x(back as i64, front as i64);
        (&raw mut *packet).cast::<__m128i>().write(record);
    }
}

/// Converts with the published fault: stores lengths of 16 bits into registers kept in memory.
///
/// # Safety
/// The processor has SSE4.1; both slices have the same length.
#[target_feature(enable = "sse4.1")]
#[inline(never)]
pub(super) unsafe fn narrow_store(descriptors: &[Short], packets: &mut [Metadata]) -> Burst {
    // SAFETY: compiled for SSE4.1, which the processor has; same length, by the caller.
    unsafe { blend::body::<Short, Stores>(descriptors, packets) }
}

/// # Safety
/// Same as for [`narrow_store`].
#[target_feature(enable = "sse4.1")]
#[inline(never)]
pub(super) unsafe fn narrow_store_long(descriptors: &[Long], packets: &mut [Metadata]) -> Burst {
    // SAFETY: as in `narrow_store`.
    unsafe { blend::body::<Long, Stores>(descriptors, packets) }
}

/// Converts with the published remedy.
///
/// # Safety
/// Same as for [`narrow_store`].
#[target_feature(enable = "sse4.1")]
#[inline(never)]
pub(super) unsafe fn sse_blend(descriptors: &[Short], packets: &mut [Metadata]) -> Burst {
    // SAFETY: as in `narrow_store`.
    unsafe { blend::body::<Short, Blends>(descriptors, packets) }
}

/// # Safety
/// Same as for [`narrow_store`].
#[target_feature(enable = "sse4.1")]
#[inline(never)]
pub(super) unsafe fn sse_blend_long(descriptors: &[Long], packets: &mut [Metadata]) -> Burst {
    // SAFETY: as in `narrow_store`.
    unsafe { blend::body::<Long, Blends>(descriptors, packets) }
}

/// # Safety
/// Same as for [`narrow_store`].
#[target_feature(enable = "sse4.1")]
#[inline(never)]
pub(super) unsafe fn sse_xdp(descriptors: &[Xdp], packets: &mut [Metadata]) -> Burst {
    // SAFETY: as in `narrow_store`.
    unsafe { wide::xdp::<__m128i>(descriptors, packets) }
}

/// # Safety
/// The processor has AVX2; both slices have the same length.
#[target_feature(enable = "avx2")]
#[inline(never)]
pub(super) unsafe fn avx2(descriptors: &[Short], packets: &mut [Metadata]) -> Burst {
    // SAFETY: compiled for AVX2, which the processor has; same length, by the caller.
    unsafe { wide::body::<Short, __m256i>(descriptors, packets) }
}

/// # Safety
/// Same as for [`avx2`].
#[target_feature(enable = "avx2")]
#[inline(never)]
pub(super) unsafe fn avx2_long(descriptors: &[Long], packets: &mut [Metadata]) -> Burst {
    // SAFETY: as in `avx2`.
    unsafe { wide::body::<Long, __m256i>(descriptors, packets) }
}

/// # Safety
/// Same as for [`avx2`].
#[target_feature(enable = "avx2")]
#[inline(never)]
pub(super) unsafe fn avx2_xdp(descriptors: &[Xdp], packets: &mut [Metadata]) -> Burst {
    // SAFETY: as in `avx2`.
    unsafe { wide::xdp::<__m256i>(descriptors, packets) }
}

/// # Safety
/// The processor has AVX-512 F and BW; both slices have the same length.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline(never)]
pub(super) unsafe fn avx512(descriptors: &[Short], packets: &mut [Metadata]) -> Burst {
    // SAFETY: compiled for AVX-512 F and BW, which the processor has; same length, by the caller.
    unsafe { wide::body::<Short, __m512i>(descriptors, packets) }
}

/// # Safety
/// Same as for [`avx512`].
#[target_feature(enable = "avx512f,avx512bw")]
#[inline(never)]
pub(super) unsafe fn avx512_long(descriptors: &[Long], packets: &mut [Metadata]) -> Burst {
    // SAFETY: as in `avx512`.
    unsafe { wide::body::<Long, __m512i>(descriptors, packets) }
}

/// # Safety
/// Same as for [`avx512`].
#[target_feature(enable = "avx512f,avx512bw")]
#[inline(never)]
pub(super) unsafe fn avx512_xdp(descriptors: &[Xdp], packets: &mut [Metadata]) -> Burst {
    // SAFETY: as in `avx512`.
    unsafe { wide::xdp::<__m512i>(descriptors, packets) }
}
