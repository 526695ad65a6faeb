// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads of descriptors into registers, by exactly the instructions of this file.
//!
//! A card writes to a ring while it is read. In the language that is a data race for any load, as
//! it has no atomic loads of 16 bytes. In the machine it is not one: x86-64 loads in the order of
//! the program, and processors with AVX read 16 aligned bytes in one piece, so that a descriptor is
//! either whole or not done. Wider loads consist of such pieces, and their users ignore every
//! descriptor behind the first that is not done. The third quad words of long descriptors are
//! loaded after the done bits.
//!
//! Sources: Intel's manual, volume 3A, 9.1.1 and 9.2.2 (order); AMD's, volume 2, 7.2 and 7.3.2.
//!
//! Does not promise the 16 bytes in one piece on processors without AVX. Where SSE4.1 is the widest
//! (before 2011), a reader that shares a ring with a card runs the same risk as the drivers of the
//! time.

use core::arch::asm;
use core::arch::x86_64::*;

use super::super::{Long, Short};

/// Registers, four of which hold four times [`Lanes::LANES`] descriptors.
pub(super) trait Lanes: Sized {
    /// Number of descriptors in a register.
    const LANES: usize;

    /// Loads descriptors; register k holds LANES of them from number LANES·k on.
    ///
    /// # Safety
    /// The processor has the instructions of the implementation; there are 4·LANES descriptors.
    unsafe fn short(from: *const Short) -> [Self; 4];

    /// Loads halves of long descriptors: those with the done bit, or with `SECOND` those behind.
    ///
    /// # Safety
    /// Same as for `short`.
    unsafe fn long<const SECOND: bool>(from: *const Long) -> [Self; 4];
}

/// Format of the XL710, loaded into registers `R`.
pub(super) trait Format<R>: super::super::scalar::Done {
    /// Loads the halves with the done bit.
    ///
    /// # Safety
    /// Same as for [`Lanes::short`].
    unsafe fn firsts(from: *const Self) -> [R; 4];

    /// Loads the halves behind, if the format has them.
    ///
    /// # Safety
    /// Same as for [`Lanes::short`].
    unsafe fn seconds(from: *const Self) -> Option<[R; 4]>;
}

impl<R: Lanes> Format<R> for Short {
    #[inline(always)]
    unsafe fn firsts(from: *const Self) -> [R; 4] {
        // SAFETY: by the caller.
        unsafe { R::short(from) }
    }

    #[inline(always)]
    unsafe fn seconds(_: *const Self) -> Option<[R; 4]> {
        None
    }
}

impl<R: Lanes> Format<R> for Long {
    #[inline(always)]
    unsafe fn firsts(from: *const Self) -> [R; 4] {
        // SAFETY: by the caller.
        unsafe { R::long::<false>(from) }
    }

    #[inline(always)]
    unsafe fn seconds(from: *const Self) -> Option<[R; 4]> {
        // SAFETY: by the caller.
        Some(unsafe { R::long::<true>(from) })
    }
}

impl Lanes for __m128i {
    const LANES: usize = 1;

    #[inline(always)]
    unsafe fn short(from: *const Short) -> [Self; 4] {
        // SAFETY: four descriptors of 16 bytes, by the caller.
        unsafe { [xmm::<0>(from), xmm::<16>(from), xmm::<32>(from), xmm::<48>(from)] }
    }

    #[inline(always)]
    unsafe fn long<const SECOND: bool>(from: *const Long) -> [Self; 4] {
        // SAFETY: four descriptors of 32 bytes, by the caller.
        unsafe {
            match SECOND {
                false => [xmm::<0>(from), xmm::<32>(from), xmm::<64>(from), xmm::<96>(from)],
                true => [xmm::<16>(from), xmm::<48>(from), xmm::<80>(from), xmm::<112>(from)],
            }
        }
    }
}

impl Lanes for __m256i {
    const LANES: usize = 2;

    #[inline(always)]
    unsafe fn short(from: *const Short) -> [Self; 4] {
        // SAFETY: AVX2 and eight descriptors of 16 bytes, by the caller.
        unsafe { [ymm::<0>(from), ymm::<32>(from), ymm::<64>(from), ymm::<96>(from)] }
    }

    #[inline(always)]
    unsafe fn long<const SECOND: bool>(from: *const Long) -> [Self; 4] {
        // SAFETY: AVX2 and eight descriptors of 32 bytes, by the caller.
        unsafe {
            match SECOND {
                false => [
                    halves::<0, 32>(from),
                    halves::<64, 96>(from),
                    halves::<128, 160>(from),
                    halves::<192, 224>(from),
                ],
                true => [
                    halves::<16, 48>(from),
                    halves::<80, 112>(from),
                    halves::<144, 176>(from),
                    halves::<208, 240>(from),
                ],
            }
        }
    }
}

impl Lanes for __m512i {
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn short(from: *const Short) -> [Self; 4] {
        // SAFETY: AVX-512 F and 16 descriptors of 16 bytes, by the caller.
        unsafe { [zmm::<0>(from), zmm::<64>(from), zmm::<128>(from), zmm::<192>(from)] }
    }

    #[inline(always)]
    unsafe fn long<const SECOND: bool>(from: *const Long) -> [Self; 4] {
        // SAFETY: AVX-512 F and 16 descriptors of 32 bytes, by the caller.
        unsafe {
            [
                quarters::<SECOND>(zmm::<0>(from), zmm::<64>(from)),
                quarters::<SECOND>(zmm::<128>(from), zmm::<192>(from)),
                quarters::<SECOND>(zmm::<256>(from), zmm::<320>(from)),
                quarters::<SECOND>(zmm::<384>(from), zmm::<448>(from)),
            ]
        }
    }
}

/// Returns quarters 0 and 2 of each register, or with `SECOND` quarters 1 and 3.
///
/// # Safety
/// The processor has AVX-512 F.
#[inline(always)]
unsafe fn quarters<const SECOND: bool>(a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: AVX-512 F, by the caller.
    unsafe {
        match SECOND {
            false => _mm512_shuffle_i64x2::<0x88>(a, b),
            true => _mm512_shuffle_i64x2::<0xdd>(a, b),
        }
    }
}

/// # Safety
/// 16 bytes lie AT bytes behind `from`, aligned to 16.
#[inline(always)]
unsafe fn xmm<const AT: i32>(from: *const impl Sized) -> __m128i {
    let loaded;
    // SAFETY: the bytes, by the caller; the instruction accesses no others.
    unsafe {
        asm!(
            "movdqa {to}, [{from} + {at}]",
            to = lateout(xmm_reg) loaded, from = in(reg) from, at = const AT,
            options(nostack, preserves_flags, readonly)
        );
    }
    loaded
}

/// # Safety
/// The processor has AVX; 32 bytes lie AT bytes behind `from`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn ymm<const AT: i32>(from: *const impl Sized) -> __m256i {
    let loaded;
    // SAFETY: the bytes, by the caller; the instruction accesses no others.
    unsafe {
        asm!(
            "vmovdqu {to}, [{from} + {at}]",
            to = lateout(ymm_reg) loaded, from = in(reg) from, at = const AT,
            options(nostack, preserves_flags, readonly)
        );
    }
    loaded
}

/// # Safety
/// The processor has AVX2; 16 bytes lie A and B bytes behind `from`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn halves<const A: i32, const B: i32>(from: *const impl Sized) -> __m256i {
    let loaded;
    // SAFETY: the bytes, by the caller; the instruction accesses no others.
    unsafe {
        asm!(
            "vmovdqa {to:x}, [{from} + {a}]",
            "vinserti128 {to}, {to}, [{from} + {b}], 1",
            to = out(ymm_reg) loaded, from = in(reg) from, a = const A, b = const B,
            options(nostack, preserves_flags, readonly)
        );
    }
    loaded
}

/// # Safety
/// The processor has AVX-512 F; 64 bytes lie AT bytes behind `from`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn zmm<const AT: i32>(from: *const impl Sized) -> __m512i {
    let loaded;
    // SAFETY: the bytes, by the caller; the instruction accesses no others.
    unsafe {
        asm!(
            "vmovdqu64 {to}, [{from} + {at}]",
            to = lateout(zmm_reg) loaded, from = in(reg) from, at = const AT,
            options(nostack, preserves_flags, readonly)
        );
    }
    loaded
}
