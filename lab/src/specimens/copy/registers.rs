// SPDX-License-Identifier: MIT OR Apache-2.0
//! Building blocks of a copy, for a register of any width.
//!
//! LLVM recognizes a loop that loads and stores one register as memcpy and replaces it by a call of
//! the C library; it replaces a loop that also sums by such a call and a loop for the sum. So each
//! step here handles several registers, which LLVM leaves unchanged.
//!
//! Sources: glibc's `memmove-vec-unaligned-erms.S` (registers from both ends).
//!
//! Does not choose an instruction set.

use core::arch::asm;

use super::PAST_CACHES_BYTES_MIN;
use simd::checksum::{Lanes, fold};

/// Bytes that are loaded by one instruction and stored by one.
pub(super) trait Register: Copy {
    const BYTES: usize;

    /// # Safety
    /// The processor has the instructions of the implementation, and the caller is compiled for
    /// them; `BYTES` bytes can be read.
    unsafe fn load(from: *const u8) -> Self;

    /// # Safety
    /// Same as for `load`; `BYTES` bytes can be written.
    unsafe fn store(self, to: *mut u8);
}

macro_rules! word {
    ($($word:ty)*) => {$(
        impl Register for $word {
            const BYTES: usize = size_of::<$word>();

            #[inline(always)]
            unsafe fn load(from: *const u8) -> Self {
                // SAFETY: by the caller.
                unsafe { from.cast::<Self>().read_unaligned() }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut u8) {
                // SAFETY: by the caller.
                unsafe { to.cast::<Self>().write_unaligned(self) }
            }
        }
    )*};
}

word!(u16 u32 u64);

/// Register of the vector unit.
pub(super) trait Vector: Register {
    /// Stores past the caches.
    ///
    /// # Safety
    /// Same as for `store`; and `to` is a multiple of `BYTES`.
    unsafe fn stream(self, to: *mut u8);

    /// Makes streamed stores visible before all later stores.
    ///
    /// # Safety
    /// Same as for `load`.
    unsafe fn fence();

    /// Copies fewer than `BYTES` bytes.
    ///
    /// # Safety
    /// Same as for [`by_size`].
    unsafe fn shorter(source: *const u8, target: *mut u8, bytes: usize);

    /// Calls [`past_caches`] as a separate function, since copies of that size are rare.
    ///
    /// # Safety
    /// Same as for [`past_caches`].
    unsafe fn past_caches_apart(source: *const u8, target: *mut u8, bytes: usize);
}

/// Copies one register.
///
/// # Safety
/// Same as for [`Register::load`] and [`Register::store`].
#[inline(always)]
unsafe fn one<R: Register>(source: *const u8, target: *mut u8) {
    // SAFETY: by the caller.
    unsafe { R::load(source).store(target) }
}

macro_rules! twice {
    ($($name:ident: $half:ident, $registers:literal;)*) => {$(
        /// # Safety
        /// Same as for [`one`], for that number of registers.
        #[inline(always)]
        unsafe fn $name<R: Register>(source: *const u8, target: *mut u8) {
            let half_bytes = $registers / 2 * R::BYTES;
            // SAFETY: both halves lie in the caller's ranges.
            unsafe {
                $half::<R>(source, target);
                $half::<R>(source.add(half_bytes), target.add(half_bytes));
            }
        }
    )*};
}

twice! {
    two: one, 2;
    four: two, 4;
    eight: four, 8;
    sixteen: eight, 16;
    moves_32: sixteen, 32;
    moves_64: moves_32, 64;
    moves_128: moves_64, 128;
    moves_256: moves_128, 256;
}

/// Copies `COUNT` registers from the front and as many from the end; they may overlap in the
/// middle.
///
/// # Safety
/// Same as for [`by_size`]; `bytes` is at least `COUNT` registers.
#[inline(always)]
pub(super) unsafe fn ends<R: Register, const COUNT: usize>(
    source: *const u8,
    target: *mut u8,
    bytes: usize,
) {
    let from_end = bytes - COUNT * R::BYTES;
    // SAFETY: `COUNT` registers from either end lie in the caller's ranges.
    unsafe {
        moves::<R>(source, target, COUNT);
        moves::<R>(source.add(from_end), target.add(from_end), COUNT);
    }
}

/// Copies `count` registers. All callers pass a constant, so no condition is left.
///
/// # Safety
/// Same as for [`one`], for `count` registers, [`MOVES_MAX`] at most.
#[inline(always)]
unsafe fn moves<R: Register>(mut source: *const u8, mut target: *mut u8, count: usize) {
    macro_rules! part {
        ($($registers:literal $copy:ident)*) => {$(
            if count & $registers != 0 {
                // SAFETY: the bits of `count` add up to it.
                unsafe {
                    $copy::<R>(source, target);
                    source = source.add($registers * R::BYTES);
                    target = target.add($registers * R::BYTES);
                }
            }
        )*};
    }
    part!(256 moves_256 128 moves_128 64 moves_64 32 moves_32 16 sixteen);
    part!(8 eight 4 four 2 two 1 one);
    let _ = (source, target);
}

/// Copies `N` bytes without a branch.
///
/// # Safety
/// Same as for [`Register::load`].
#[inline(always)]
pub(super) unsafe fn straight<R: Register, const N: usize>(source: &[u8; N], target: &mut [u8; N]) {
    const { assert!(N / R::BYTES <= MOVES_MAX) }
    if N < R::BYTES {
        // The compiler makes a few moves of this.
        *target = *source;
        return;
    }
    let (source, target) = (source.as_ptr(), target.as_mut_ptr());
    if N < ALIGNED_BYTES_MIN {
        // SAFETY: the whole registers of N bytes, and the last register when a rest is left.
        unsafe {
            moves::<R>(source, target, N / R::BYTES);
            if !N.is_multiple_of(R::BYTES) {
                one::<R>(source.add(N - R::BYTES), target.add(N - R::BYTES));
            }
        }
        return;
    }
    let at = R::BYTES - target.addr() % R::BYTES;
    // The first aligned address lies up to a register behind the start, so all whole registers
    // except one fit from there on. They leave less than one register at the end, or less than two
    // when N is not a whole number of registers.
    // SAFETY: all accesses lie within N bytes, as explained above.
    unsafe {
        one::<R>(source, target);
        moves::<R>(source.add(at), target.add(at), N / R::BYTES - 1);
        if !N.is_multiple_of(R::BYTES) {
            one::<R>(source.add(N - 2 * R::BYTES), target.add(N - 2 * R::BYTES));
        }
        one::<R>(source.add(N - R::BYTES), target.add(N - R::BYTES));
    }
}

/// Copies any number of bytes.
///
/// # Safety
/// The processor has the instructions of `R`, and the caller is compiled for them. `bytes` bytes
/// can be read and written and do not overlap.
#[inline(always)]
pub(super) unsafe fn by_size<R: Vector>(source: *const u8, target: *mut u8, bytes: usize) {
    // SAFETY: the conditions ensure the number of bytes.
    unsafe {
        if bytes <= 4 * R::BYTES {
            if bytes > 2 * R::BYTES {
                ends::<R, 2>(source, target, bytes);
            } else if bytes >= R::BYTES {
                ends::<R, 1>(source, target, bytes);
            } else {
                R::shorter(source, target, bytes);
            }
        } else if bytes <= 8 * R::BYTES {
            ends::<R, 4>(source, target, bytes);
        } else if bytes <= 16 * R::BYTES && 16 * R::BYTES <= ENDS_BYTES_MAX {
            ends::<R, 8>(source, target, bytes);
        } else if bytes < PAST_CACHES_BYTES_MIN {
            long::<R>(source, target, bytes);
        } else {
            R::past_caches_apart(source, target, bytes);
        }
    }
}

/// Copies up to a register of the smallest width, by words from both ends.
///
/// # Safety
/// Same as for [`by_size`]; at most 16 bytes.
#[inline(always)]
pub(super) unsafe fn words(source: *const u8, target: *mut u8, bytes: usize) {
    // SAFETY: the conditions ensure the number of bytes.
    unsafe {
        match bytes {
            8.. => ends::<u64, 1>(source, target, bytes),
            4.. => ends::<u32, 1>(source, target, bytes),
            2.. => ends::<u16, 1>(source, target, bytes),
            1 => *target = *source,
            0 => {}
        }
    }
}

/// Copies by steps of four registers; all stores except those at the ends are aligned.
///
/// # Safety
/// Same as for [`by_size`]; more than five registers.
#[inline(always)]
unsafe fn long<R: Register>(source: *const u8, target: *mut u8, bytes: usize) {
    let last = bytes - 4 * R::BYTES;
    let mut at = R::BYTES - target.addr() % R::BYTES;
    // SAFETY: the first register; steps that begin before the last four; the last four.
    unsafe {
        one::<R>(source, target);
        while at < last {
            four::<R>(source.add(at), target.add(at));
            at += 4 * R::BYTES;
            // Keeps LLVM from doubling the step, with a test for an odd number of steps: that costs
            // 3 ns when sizes differ from call to call, and gains nothing when they do not.
            asm!("/* {0} */", inout(reg) at, options(nomem, nostack, preserves_flags));
        }
        four::<R>(source.add(last), target.add(last));
    }
}

/// Copies like [`long`] without loading the target into the caches.
///
/// # Safety
/// Same as for [`long`]; [`PAST_CACHES_REGISTERS_MIN`] registers at least.
#[inline(always)]
pub(super) unsafe fn past_caches<R: Vector>(source: *const u8, target: *mut u8, bytes: usize) {
    let last = bytes - 4 * R::BYTES;
    let mut at = R::BYTES - target.addr() % R::BYTES;
    // SAFETY: as for `long`, and `at` is aligned from the first step on.
    unsafe {
        one::<R>(source, target);
        while at < last {
            let (source, target) = (source.add(at), target.add(at));
            let load = |index: usize| R::load(source.add(index * R::BYTES));
            let (a, b, c, d) = (load(0), load(1), load(2), load(3));
            a.stream(target);
            b.stream(target.add(R::BYTES));
            c.stream(target.add(2 * R::BYTES));
            d.stream(target.add(3 * R::BYTES));
            at += 4 * R::BYTES;
        }
        four::<R>(source.add(last), target.add(last));
        R::fence();
    }
}

/// Copies, and returns the same sum as [`simd::checksum::oracle`].
///
/// # Safety
/// The processor has the instructions of `R` and `L`, and the caller is compiled for them; the
/// lengths are equal.
#[inline(always)]
pub(super) unsafe fn and_sum<R: Vector, L: Lanes>(source: &[u8], target: &mut [u8]) -> u16 {
    const { assert!(R::BYTES == L::BYTES) }
    let (mut whole, rest) = source.split_at(source.len() - source.len() % R::BYTES);
    let (bytes, rest_at) = (source.len(), whole.len());
    let (from, to) = (source.as_ptr(), target.as_mut_ptr());
    let mut at = 0;
    // SAFETY: `at` and the length of `whole` add up to `rest_at`.
    unsafe {
        let mut lanes = L::zero();
        macro_rules! step {
            ($($index:literal)*) => {$(
                one::<R>(from.add(at + $index * R::BYTES), to.add(at + $index * R::BYTES));
                lanes = lanes.add(&whole[$index * R::BYTES..][..R::BYTES]);
            )*};
        }
        while whole.len() >= 4 * R::BYTES {
            step!(0 1 2 3);
            (whole, at) = (&whole[4 * R::BYTES..], at + 4 * R::BYTES);
        }
        if whole.len() >= 2 * R::BYTES {
            step!(0 1);
            (whole, at) = (&whole[2 * R::BYTES..], at + 2 * R::BYTES);
        }
        if !whole.is_empty() {
            step!(0);
        }
        if !rest.is_empty() {
            lanes = lanes.add_rest(rest);
            if rest_at > 0 {
                one::<R>(from.add(bytes - R::BYTES), to.add(bytes - R::BYTES));
            } else {
                R::shorter(from, to, bytes);
            }
        }
        fold(lanes.total()).swap_bytes()
    }
}

/// Most bytes copied from both ends: for more, a loop costs less than the registers.
const ENDS_BYTES_MAX: usize = 512;
/// Least bytes of a fixed copy with aligned stores: one store more, but without it every second or
/// every store would touch two cache lines.
const ALIGNED_BYTES_MIN: usize = 320;
/// Least registers of [`past_caches`]: one to the first aligned address, and four at the end.
pub(super) const PAST_CACHES_REGISTERS_MIN: usize = 6;
/// Most registers that [`moves`] copies.
const MOVES_MAX: usize = 511;
