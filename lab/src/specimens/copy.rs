// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of memory: of any size, of a size the compiler knows, and with the internet checksum's
//! sum taken on the way.
//!
//! A packet is copied where it cannot be sent from where it lies. Where the compiler knows its
//! size, nothing is left of a copy but loads and stores; where it does not, registers of 32 bytes
//! do in smaller steps what glibc does by 64. Measured by `pagewire lab copy` (AMD EPYC with
//! AVX-512, glibc 2.36, rustc 1.95), in times the speed of glibc's memcpy:
//!
//! - 128 to 2,048 bytes, one size at a time: 1.03 to 1.15 by alignment, geometric means; 0.9 at
//!   576, 832, 1,088 and so on when both ends are aligned to 64, where glibc's steps fit exactly;
//! - sizes without a pattern: 1.05 (128 to 2,048 bytes), 0.98 (64 to 512), 0.87 (1 to 256);
//! - fixed sizes of 64, 128, 256, 384 and 512 bytes, aligned: 2.7, 2.0, 1.3, 1.4 and 1.1. At 512
//!   both store close to 32 bytes a clock, which is all that this processor can;
//! - past the caches: 0.6 at 1 MiB, 0.7 at 8, 1.1 at 16 (32 with the target, and so is the last
//!   cache), 1.4 at 64; in no cache at the start: 1.0 to 1.1;
//! - 1,316 bytes with their sum: 19 ns; copied, then summed: 31.
//!
//! Sources: RFC 1071 (the sum); Saito and Oikawa, "Utilization of a SIMD unit in the OS Kernel",
//! sections 6 and 8.1 (a routine for each fixed size); glibc's `memmove-vec-unaligned-erms.S`
//! (registers from both ends that overlap).
//!
//! Does not copy overlapping ranges; two references cannot overlap.

mod fixed;
pub mod published;
#[cfg(target_arch = "x86_64")]
mod registers;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(not(target_arch = "x86_64"))]
mod elsewhere;

#[cfg(not(target_arch = "x86_64"))]
use elsewhere::{Set, VARIANTS};
#[cfg(target_arch = "x86_64")]
use x86::{Set, VARIANTS};

pub use fixed::{CopyBatch, FIXED_BYTES_MAX, Fixed};

use simd::checksum::{self, Lanes, Ranges, Words, fold};
use simd::variant::{self, Dropped, Variant};

/// Byte by byte; the sum is [`simd::checksum::oracle`]'s.
pub fn oracle(source: &[u8], target: &mut [u8]) {
    assert_eq!(source.len(), target.len(), "source and target are of one length");
    for (to, from) in target.iter_mut().zip(source) {
        *to = *from;
    }
}

// The idea, for n bytes and registers of w:
//
//     n < w:        narrower registers, by the same rule; words of 8, 4, 2 bytes and 1
//     n <= 2 w:     a register from the front and one from the end, which overlap
//     n <= 4 w:     2 and 2
//     ...
//     n <= 512:     as many as it takes
//     else:         a register; then steps of four where the target is aligned; the last four
//
// Departures from the published routine (512 bytes at a time, then a string instruction):
// 1. What is left is copied by registers that reach back over what was copied. A string instruction
//    takes as long to start as 250 bytes take to copy.
// 2. Up to 512 bytes there is no loop: a branch for each doubling, as few as can be mispredicted. A
//    jump table with a row for every 32 bytes was 4 % faster where all sizes were alike, and took
//    half as long again where they were not.
// 3. Registers of 64 bytes (avx512f) are stored in two halves by this processor: no faster where
//    source and target are aligned, 10 % slower where the source is not.
// 4. No masked registers for what is short. They take 2.4 ns for 7 where sizes have no pattern, but
//    who reads the copy at once waits 8 ns for it, not 3. (A string instruction takes 4, and 6: the
//    published routine is ahead there, with no size in particular up to 64 bytes.)
// 5. `rep movsb` for what is long was never faster while either end fits a cache.
// 6. From PAST_CACHES_BYTES_MIN on, the target is not read before it is written to.

/// A variant's functions.
struct Run {
    copy: unsafe fn(&[u8], &mut [u8]),
    copy_and_sum: unsafe fn(&[u8], &mut [u8]) -> u16,
    past_caches: unsafe fn(&[u8], &mut [u8]),
    set: Set,
}

/// # Safety
/// None is needed; it has the type of the others.
unsafe fn portable(source: &[u8], target: &mut [u8]) {
    target.copy_from_slice(source);
}

/// # Safety
/// None is needed; it has the type of the others.
unsafe fn portable_and_sum(source: &[u8], target: &mut [u8]) -> u16 {
    // SAFETY: Words needs no instructions of its own.
    let mut words = unsafe { Words::zero() };
    for (from, to) in source.chunks(CACHED_BYTES).zip(target.chunks_mut(CACHED_BYTES)) {
        to.copy_from_slice(from);
        words = words.plus_all(from);
    }
    // SAFETY: as above.
    fold(unsafe { words.total() }).swap_bytes()
}

/// From here on a copy goes past the caches: its beginning would hardly stay there until its end.
pub const PAST_CACHES_BYTES_MIN: usize = 16 << 20;
/// So much is still in the first cache when it is read again; even, so that words stay whole.
const CACHED_BYTES: usize = 4096;

/// A variant that this processor has.
#[derive(Clone, Copy)]
pub struct Copier(&'static Variant<Run>);

impl Copier {
    /// All that are here, the one that measured best last.
    pub fn all() -> impl Iterator<Item = Self> {
        variant::here(VARIANTS).map(Self)
    }

    pub(crate) fn choose() -> (Self, Option<Dropped>) {
        let (chosen, dropped) =
            variant::choose("copy", VARIANTS, |candidate| Self(candidate).is_right());
        (Self(chosen), dropped)
    }

    /// Its instruction set.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Copies `source` to `target`.
    ///
    /// # Panics
    /// When they are of different lengths.
    #[inline]
    pub fn copy(self, source: &[u8], target: &mut [u8]) {
        assert!(source.len() == target.len(), "source and target are of one length");
        // SAFETY: a `Copier` is made of variants alone that `variant::here` found here; the lengths
        // are equal, and a `&mut` overlaps with nothing.
        unsafe { (self.0.run.copy)(source, target) }
    }

    /// Copies `source` to `target`, and its sum as [`simd::checksum::oracle`] has it.
    ///
    /// # Panics
    /// When they are of different lengths.
    #[inline]
    pub fn copy_and_sum(self, source: &[u8], target: &mut [u8]) -> u16 {
        assert!(source.len() == target.len(), "source and target are of one length");
        // SAFETY: as for `copy`.
        unsafe { (self.0.run.copy_and_sum)(source, target) }
    }

    /// Copies `source` to `target`, which is not brought into the caches, as [`Copier::copy`] does
    /// of itself from [`PAST_CACHES_BYTES_MIN`] on.
    ///
    /// # Panics
    /// When they are of different lengths.
    #[inline]
    pub fn copy_past_caches(self, source: &[u8], target: &mut [u8]) {
        assert!(source.len() == target.len(), "source and target are of one length");
        // SAFETY: as for `copy`.
        unsafe { (self.0.run.past_caches)(source, target) }
    }

    /// Copies `N` bytes, [`FIXED_BYTES_MAX`] at most: a branch to the routine for this size, which
    /// has none. Where there are many, [`Copier::batch`] spares that one.
    #[inline]
    pub fn copy_fixed<const N: usize>(self, source: &[u8; N], target: &mut [u8; N]) {
        self.batch(fixed::One { source, target });
    }

    /// Runs the batch, compiled for this variant's registers.
    #[inline]
    pub fn batch<B: CopyBatch>(self, batch: B) -> B::Output {
        // SAFETY: as for `copy`.
        unsafe { self.0.run.set.batch(batch) }
    }

    /// True when it gives the known answers.
    fn is_right(self) -> bool {
        let source: [u8; KNOWN_BYTES] = std::array::from_fn(|n| (n * n / 3 + 200) as u8);
        let fixed = |target: &mut [u8; KNOWN_BYTES]| self.copy_fixed(&source, target);
        let mut target = [0; KNOWN_BYTES];
        fixed(&mut target);
        target == source
            && [0, 1, 2, 5, 15, 33, 64, 100, 200, 400, 513, KNOWN_BYTES].into_iter().all(|bytes| {
                let (mut copied, mut summed) = ([0; KNOWN_BYTES], [0; KNOWN_BYTES]);
                let source = &source[..bytes];
                self.copy(source, &mut copied[..bytes]);
                let sum = self.copy_and_sum(source, &mut summed[..bytes]);
                let mut sums = [0];
                let (stride, at, last_bytes) = (0, 0, bytes);
                let ranges = Ranges { slots: source, stride, at, bytes, last_bytes };
                checksum::oracle(ranges, &mut sums);
                let is_copy = |target: [u8; KNOWN_BYTES]| {
                    target[..bytes] == *source && target[bytes..].iter().all(|byte| *byte == 0)
                };
                is_copy(copied) && is_copy(summed) && sums == [sum]
            })
    }
}

impl std::fmt::Debug for Copier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "copy by {}", self.name())
    }
}

/// More than any path of [`Copier::copy`] but that past the caches.
const KNOWN_BYTES: usize = 1331;

#[cfg(test)]
mod tests;
