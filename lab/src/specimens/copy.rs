// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of memory: of any size, of a size that is constant at compile time, and with the internet
//! checksum computed in the same pass.
//!
//! A packet is copied when it cannot be sent from its place in memory. When its size is constant at
//! compile time, a copy consists of loads and stores only; otherwise registers of 32 bytes make
//! smaller steps than glibc's of 64. Measured by `pagewire lab copy` (AMD EPYC with AVX-512, glibc
//! 2.36, rustc 1.95), as multiples of the speed of glibc's memcpy:
//!
//! - 128 to 2,048 bytes, one size at a time: 1.03 to 1.15 by alignment, geometric means; 0.9 at
//!   576, 832, 1,088 and so on when both ends are aligned to 64, where glibc's steps fit exactly;
//! - sizes without a pattern: 1.05 (128 to 2,048 bytes), 0.98 (64 to 512), 0.87 (1 to 256);
//! - fixed sizes of 64, 128, 256, 384 and 512 bytes, aligned: 2.7, 2.0, 1.3, 1.4 and 1.1. At 512
//!   both store close to 32 bytes a clock, the maximum of this processor;
//! - past the caches: 0.6 at 1 MiB, 0.7 at 8, 1.1 at 16 (32 with the target, the size of the last
//!   cache), 1.4 at 64; in no cache at the start: 1.0 to 1.1;
//! - 1,316 bytes with their checksum: 19 ns; copied, then summed: 31.
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

/// Copies byte by byte; [`simd::checksum::oracle`] is the oracle of the checksum.
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
//     n <= 512:     as many as needed
//     else:         a register; then steps of four where the target is aligned; the last four
//
// Departures from the published routine (512 bytes at a time, then a string instruction):
// 1. The rest is copied by registers that overlap with bytes already copied. A string instruction
//    needs as long to start as a copy of 250 bytes lasts.
// 2. Up to 512 bytes there is no loop but a branch for each doubling, so that few branches can be
//    mispredicted. A jump table with a row for every 32 bytes was 4 % faster when all sizes were
//    equal, and 50 % slower when they were not.
// 3. This processor stores registers of 64 bytes (avx512f) in two halves: they are no faster when
//    source and target are aligned, and 10 % slower when the source is not.
// 4. Short copies use no masked registers. They take 2.4 ns instead of 7 for sizes without a
//    pattern, but an immediate reader of the copy waits 8 ns for it, not 3. (A string instruction
//    takes 4 and 6 ns: the published routine is faster there, for random sizes up to 64 bytes.)
// 5. `rep movsb` for long copies was never faster while source or target fits a cache.
// 6. From PAST_CACHES_BYTES_MIN on, the target is not read before it is written.

/// Functions of a variant.
struct Run {
    copy: unsafe fn(&[u8], &mut [u8]),
    copy_and_sum: unsafe fn(&[u8], &mut [u8]) -> u16,
    past_caches: unsafe fn(&[u8], &mut [u8]),
    set: Set,
}

/// # Safety
/// There is no condition; `unsafe` by the type of the other variants.
unsafe fn portable(source: &[u8], target: &mut [u8]) {
    target.copy_from_slice(source);
}

/// # Safety
/// There is no condition; `unsafe` by the type of the other variants.
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

/// Least size of a copy past the caches: its beginning would hardly stay in them until its end.
pub const PAST_CACHES_BYTES_MIN: usize = 16 << 20;
/// Bytes that are still in the first-level cache when read again; even, so that words stay whole.
const CACHED_BYTES: usize = 4096;

/// Variant that this processor has.
#[derive(Clone, Copy)]
pub struct Copier(&'static Variant<Run>);

impl Copier {
    /// Returns the variants that this processor has, the one that measured best last.
    pub fn all() -> impl Iterator<Item = Self> {
        variant::here(VARIANTS).map(Self)
    }

    pub(crate) fn choose() -> (Self, Option<Dropped>) {
        let (chosen, dropped) =
            variant::choose("copy", VARIANTS, |candidate| Self(candidate).is_right());
        (Self(chosen), dropped)
    }

    /// Returns its instruction set.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Copies `source` to `target`.
    ///
    /// # Panics
    /// When the lengths differ.
    #[inline]
    pub fn copy(self, source: &[u8], target: &mut [u8]) {
        assert!(source.len() == target.len(), "source and target are of one length");
        // SAFETY: `variant::here` found every variant that a `Copier` holds; the lengths are equal,
        // and a `&mut` overlaps with nothing.
        unsafe { (self.0.run.copy)(source, target) }
    }

    /// Copies `source` to `target`; returns its sum, the same as [`simd::checksum::oracle`].
    ///
    /// # Panics
    /// When the lengths differ.
    #[inline]
    pub fn copy_and_sum(self, source: &[u8], target: &mut [u8]) -> u16 {
        assert!(source.len() == target.len(), "source and target are of one length");
        // SAFETY: as for `copy`.
        unsafe { (self.0.run.copy_and_sum)(source, target) }
    }

    /// Copies `source` to `target` without loading the target into the caches, as [`Copier::copy`]
    /// does from [`PAST_CACHES_BYTES_MIN`] on.
    ///
    /// # Panics
    /// When the lengths differ.
    #[inline]
    pub fn copy_past_caches(self, source: &[u8], target: &mut [u8]) {
        assert!(source.len() == target.len(), "source and target are of one length");
        // SAFETY: as for `copy`.
        unsafe { (self.0.run.past_caches)(source, target) }
    }

    /// Copies `N` bytes, [`FIXED_BYTES_MAX`] at most, by one branch to the routine for this size,
    /// which has none. For many copies [`Copier::batch`] avoids that branch.
    #[inline]
    pub fn copy_fixed<const N: usize>(self, source: &[u8; N], target: &mut [u8; N]) {
        self.batch(fixed::One { source, target });
    }

    /// Runs the batch, compiled for the registers of this variant.
    #[inline]
    pub fn batch<B: CopyBatch>(self, batch: B) -> B::Output {
        // SAFETY: as for `copy`.
        unsafe { self.0.run.set.batch(batch) }
    }

    /// True when the variant computes the known answers.
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

/// Bytes of the known answer, enough for every branch of [`Copier::copy`] except past the caches.
const KNOWN_BYTES: usize = 1331;

#[cfg(test)]
mod tests;
