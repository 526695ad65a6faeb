// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of eight descriptors at a time by AVX2, sixteen by AVX-512; AF_XDP's by any width.
//!
//! Unpacking pairs the lengths and last double words, and puts each pair into an upper or a lower
//! quad word. Unpacking or a blend of quad words joins it with the descriptor's own lower half,
//! whose tag and hash are at their places in the record. This needs no byte shuffle and no blend of
//! single words.
//!
//! Does not use registers of 16 bytes for the XL710; [`super::blend`] does, as published.

use core::arch::x86_64::*;

use super::super::scalar::{self, Done, XDP_FLAGS};
use super::super::{Burst, Flags, Metadata, Xdp, option, status};
use super::load::{Format, Lanes};
use super::{Dwords, last_of, lengths_of};

/// Register of descriptors, 16 bytes each.
pub(super) trait Wide: Dwords + Lanes {
    /// # Safety
    /// The processor has the instructions of the implementation.
    unsafe fn of_each(quad: __m128i) -> Self;
    /// # Safety
    /// Same as for `of_each`.
    unsafe fn unpack_upper_dwords(self, other: Self) -> Self;
    /// # Safety
    /// Same as for `of_each`.
    unsafe fn unpack_lower_dwords(self, other: Self) -> Self;
    /// # Safety
    /// Same as for `of_each`.
    unsafe fn unpack_upper(self, other: Self) -> Self;
    /// # Safety
    /// Same as for `of_each`.
    unsafe fn unpack_lower(self, other: Self) -> Self;
    /// Returns the lower quad words of `self` with the upper ones of `other`.
    ///
    /// # Safety
    /// Same as for `of_each`.
    unsafe fn with_upper(self, other: Self) -> Self;
    /// Shifts each quad word's highest 16 bits to its lowest.
    ///
    /// # Safety
    /// Same as for `of_each`.
    unsafe fn tops(self) -> Self;
    /// # Safety
    /// Same as for `of_each`.
    unsafe fn xor(self, other: Self) -> Self;
    /// # Safety
    /// Same as for `of_each`.
    unsafe fn plus(self, other: Self) -> Self;
    /// Returns the sum of the double words, modulo 2³².
    ///
    /// # Safety
    /// Same as for `of_each`.
    unsafe fn total(self) -> u32;
    /// True when the lowest bit of each double word is set.
    ///
    /// # Safety
    /// Same as for `of_each`.
    unsafe fn all_odd(self) -> bool;
    /// # Safety
    /// Same as for `of_each`; the bytes of a register are readable at `from`, and no code writes
    /// them.
    unsafe fn read(from: *const u8) -> Self;
    /// # Safety
    /// Same as for `of_each`; the bytes of a register are writable at `to`.
    unsafe fn write(self, to: *mut u8);
}

/// # Safety
/// The processor has the instructions of `R`, the caller is compiled for them, and both slices
/// have the same length.
#[inline(always)]
pub(super) unsafe fn body<F: Format<R> + Done, R: Wide>(
    descriptors: &[F],
    packets: &mut [Metadata],
) -> Burst {
    let step = 4 * R::LANES;
    let (mut count, all) = (0, descriptors.len());
    // SAFETY: the instructions, by the caller. A step's descriptors and records are valid from
    // `count` on, and so are the bytes of four registers.
    unsafe {
        let front = R::of_each(_mm_set_epi64x(0, !0xffff));
        let mut ends = R::splat(0);
        while all - count >= step {
            let from = descriptors.as_ptr().add(count);
            let [a, b, c, d] = F::firsts(from);
            let (ab, cd) = (a.unpack_upper_dwords(b), c.unpack_upper_dwords(d));
            let (lower, upper) = (ab.unpack_lower(cd), ab.unpack_upper(cd));
            if !lower.all_odd() {
                break;
            }
            let mut last = last_of(lower, upper);
            let mut fronts = [a.and(front), b.and(front), c.and(front), d.and(front)];
            if let Some(seconds) = F::seconds(from) {
                let [a, b, c, d] = seconds;
                let (ab, cd) = (a.unpack_lower_dwords(b), c.unpack_lower_dwords(d));
                let bits = ab.unpack_lower(cd).and(R::splat(1));
                last = last.or(bits.left::<{ Flags::SECOND_VLAN.0.trailing_zeros() }>());
                for (front, second) in fronts.iter_mut().zip(seconds) {
                    *front = front.or(second.tops());
                }
            }
            ends = ends.plus(lower.right::<1>().and(R::splat(1)));
            let lengths = lengths_of(upper);
            let (ab, cd) = (lengths.unpack_lower_dwords(last), lengths.unpack_upper_dwords(last));
            let to = packets.as_mut_ptr().add(count).cast::<u8>();
            let bytes = size_of::<R>();
            fronts[0].unpack_lower(ab).write(to);
            fronts[1].with_upper(ab).write(to.add(bytes));
            fronts[2].unpack_lower(cd).write(to.add(2 * bytes));
            fronts[3].with_upper(cd).write(to.add(3 * bytes));
            count += step;
        }
        let split = count - ends.total() as usize;
        scalar::rest(descriptors, packets, Burst { count, split })
    }
}

const _: () = assert!(status::DONE == 1 && status::END == 1 << 1);

/// # Safety
/// Same as for [`body`].
#[inline(always)]
pub(super) unsafe fn xdp<R: Wide>(descriptors: &[Xdp], packets: &mut [Metadata]) -> Burst {
    let step = 4 * R::LANES;
    let (mut count, all) = (0, descriptors.len());
    // SAFETY: as in `body`; neither side writes to descriptors that the producer index covers.
    unsafe {
        let options = i64::from(option::CONTINUED) << 32;
        let kept = R::of_each(_mm_set_epi64x(options | 0xffff_ffff, 0));
        let option = R::of_each(_mm_set_epi64x(options, 0));
        let flags = R::of_each(_mm_set_epi64x(i64::from(XDP_FLAGS) << 32, 0));
        let mut split = R::splat(0);
        while all - count >= step {
            let from = descriptors.as_ptr().add(count).cast::<u8>();
            let to = packets.as_mut_ptr().add(count).cast::<u8>();
            for at in [0, 1, 2, 3].map(|index| index * size_of::<R>()) {
                let register = R::read(from.add(at)).and(kept);
                split = split.plus(register.and(option));
                register.xor(flags).write(to.add(at));
            }
            count += step;
        }
        let split = split.total() as usize;
        scalar::rest_xdp(descriptors, packets, Burst { count, split })
    }
}

const _: () = assert!(option::CONTINUED == 1 && core::mem::offset_of!(Xdp, length) == 8);

impl Wide for __m128i {
    #[inline(always)]
    unsafe fn of_each(quad: __m128i) -> Self {
        quad
    }
    #[inline(always)]
    unsafe fn unpack_upper_dwords(self, other: Self) -> Self {
        // SAFETY: SSE2, by the caller.
        unsafe { _mm_unpackhi_epi32(self, other) }
    }
    #[inline(always)]
    unsafe fn unpack_lower_dwords(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm_unpacklo_epi32(self, other) }
    }
    #[inline(always)]
    unsafe fn unpack_upper(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm_unpackhi_epi64(self, other) }
    }
    #[inline(always)]
    unsafe fn unpack_lower(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm_unpacklo_epi64(self, other) }
    }
    #[inline(always)]
    unsafe fn with_upper(self, other: Self) -> Self {
        // SAFETY: SSE4.1, by the caller.
        unsafe { _mm_blend_epi16::<0xf0>(self, other) }
    }
    #[inline(always)]
    unsafe fn tops(self) -> Self {
        // SAFETY: as above.
        unsafe { _mm_srli_epi64::<48>(self) }
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm_xor_si128(self, other) }
    }
    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm_add_epi32(self, other) }
    }
    #[inline(always)]
    unsafe fn total(self) -> u32 {
        // SAFETY: as above.
        unsafe {
            let pair = _mm_add_epi32(self, _mm_unpackhi_epi64(self, self));
            let pair = _mm_cvtsi128_si64(pair) as u64;
            (pair as u32).wrapping_add((pair >> 32) as u32)
        }
    }
    #[inline(always)]
    unsafe fn all_odd(self) -> bool {
        // SAFETY: SSE4.1, by the caller.
        unsafe { _mm_testc_si128(self, _mm_set1_epi32(1)) != 0 }
    }
    #[inline(always)]
    unsafe fn read(from: *const u8) -> Self {
        // SAFETY: the bytes, by the caller.
        unsafe { _mm_loadu_si128(from.cast()) }
    }
    #[inline(always)]
    unsafe fn write(self, to: *mut u8) {
        // SAFETY: the bytes, by the caller.
        unsafe { _mm_storeu_si128(to.cast(), self) }
    }
}

impl Wide for __m256i {
    #[inline(always)]
    unsafe fn of_each(quad: __m128i) -> Self {
        // SAFETY: AVX2, by the caller.
        unsafe { _mm256_broadcastsi128_si256(quad) }
    }
    #[inline(always)]
    unsafe fn unpack_upper_dwords(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_unpackhi_epi32(self, other) }
    }
    #[inline(always)]
    unsafe fn unpack_lower_dwords(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_unpacklo_epi32(self, other) }
    }
    #[inline(always)]
    unsafe fn unpack_upper(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_unpackhi_epi64(self, other) }
    }
    #[inline(always)]
    unsafe fn unpack_lower(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_unpacklo_epi64(self, other) }
    }
    #[inline(always)]
    unsafe fn with_upper(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_blend_epi32::<0xcc>(self, other) }
    }
    #[inline(always)]
    unsafe fn tops(self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_srli_epi64::<48>(self) }
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_xor_si256(self, other) }
    }
    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_add_epi32(self, other) }
    }
    #[inline(always)]
    unsafe fn total(self) -> u32 {
        // SAFETY: as above.
        unsafe {
            let upper = _mm256_extracti128_si256::<1>(self);
            _mm256_castsi256_si128(self).plus(upper).total()
        }
    }
    #[inline(always)]
    unsafe fn all_odd(self) -> bool {
        // SAFETY: as above.
        unsafe { _mm256_testc_si256(self, _mm256_set1_epi32(1)) != 0 }
    }
    #[inline(always)]
    unsafe fn read(from: *const u8) -> Self {
        // SAFETY: the bytes, by the caller.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn write(self, to: *mut u8) {
        // SAFETY: the bytes, by the caller.
        unsafe { _mm256_storeu_si256(to.cast(), self) }
    }
}

impl Wide for __m512i {
    #[inline(always)]
    unsafe fn of_each(quad: __m128i) -> Self {
        // SAFETY: AVX-512 F, by the caller.
        unsafe { _mm512_broadcast_i32x4(quad) }
    }
    #[inline(always)]
    unsafe fn unpack_upper_dwords(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_unpackhi_epi32(self, other) }
    }
    #[inline(always)]
    unsafe fn unpack_lower_dwords(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_unpacklo_epi32(self, other) }
    }
    #[inline(always)]
    unsafe fn unpack_upper(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_unpackhi_epi64(self, other) }
    }
    #[inline(always)]
    unsafe fn unpack_lower(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_unpacklo_epi64(self, other) }
    }
    #[inline(always)]
    unsafe fn with_upper(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_mask_blend_epi64(0b1010_1010, self, other) }
    }
    #[inline(always)]
    unsafe fn tops(self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_srli_epi64::<48>(self) }
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_xor_si512(self, other) }
    }
    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_add_epi32(self, other) }
    }
    #[inline(always)]
    unsafe fn total(self) -> u32 {
        // SAFETY: as above.
        unsafe { _mm512_reduce_add_epi32(self) as u32 }
    }
    #[inline(always)]
    unsafe fn all_odd(self) -> bool {
        // SAFETY: as above.
        unsafe { _mm512_test_epi32_mask(self, _mm512_set1_epi32(1)) == 0xffff }
    }
    #[inline(always)]
    unsafe fn read(from: *const u8) -> Self {
        // SAFETY: the bytes, by the caller.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn write(self, to: *mut u8) {
        // SAFETY: the bytes, by the caller.
        unsafe { _mm512_storeu_si512(to.cast(), self) }
    }
}
