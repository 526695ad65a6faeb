// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measured routine: a way to copy, its loop, and the check of its result.
//!
//! Each routine has the same loop, compiled for it: two slices are made, then the routine is called
//! as a program would call it. `copy_from_slice` calls the C library's memcpy through the dynamic
//! linker's table; a kernel of ours is called by its pointer; a copy of a fixed size is inlined.
//! The compiler has the size of that copy only.
//!
//! Does not choose sizes or places; does not measure time.

use std::hint::black_box;

use crate::specimens::copy::Copier;
use crate::specimens::copy::published::Routine as Published;
use simd::Checksum;
use simd::checksum::{self, Ranges};

use super::arena::{Arena, Offsets, Order};
use super::fixed;
use measure::Error;

/// A way to copy.
#[derive(Clone, Copy, Debug)]
pub(super) enum Routine {
    /// The C library's memcpy.
    Memcpy,
    /// Published routines and string instructions.
    Published(&'static Published),
    /// Our kernel.
    Copier(Copier),
    /// Our kernel with a constant size.
    Fixed(Copier),
    /// Our kernel with non-temporal stores.
    PastCaches(Copier),
    /// Our kernel with a checksum in the same pass.
    AndSum(Copier),
    /// Our kernel, then a checksum of the copy.
    ThenSum(Copier, Checksum),
    /// The C library's memcpy, then a checksum of the copy.
    MemcpyThenSum(Checksum),
}

impl Routine {
    /// Returns its member name.
    pub(super) fn name(self) -> String {
        match self {
            Routine::Memcpy => MEMCPY.to_owned(),
            Routine::Published(routine) => routine.name.to_owned(),
            Routine::Copier(copier) => format!("copy by {}", copier.name()),
            Routine::Fixed(copier) => format!("fixed by {}", copier.name()),
            Routine::PastCaches(copier) => format!("past the caches by {}", copier.name()),
            Routine::AndSum(copier) => format!("copy and sum by {}", copier.name()),
            Routine::ThenSum(copier, _) => format!("copy, then sum by {}", copier.name()),
            Routine::MemcpyThenSum(checksum) => format!("memcpy, then sum by {}", checksum.name()),
        }
    }

    /// True when the routine can copy `bytes` bytes.
    pub(super) fn is_for(self, bytes: usize) -> bool {
        !matches!(self, Routine::Fixed(_)) || fixed::SIZES.contains(&bytes)
    }

    /// Makes `calls` copies of an order, from number `first` on; returns their bytes.
    pub(super) fn run<O: Order>(
        self,
        arena: &Arena,
        (offsets, order): (Offsets, &O),
        (first, calls): (usize, usize),
    ) -> u64 {
        let calls = first..first + calls;
        arena.lend(offsets, |source, target| match self {
            Routine::Memcpy => each(source, target, order, calls, |source, target| {
                target.copy_from_slice(source);
            }),
            Routine::Published(routine) => each(source, target, order, calls, |source, target| {
                routine.copy(source, target);
            }),
            Routine::Copier(copier) => each(source, target, order, calls, |source, target| {
                copier.copy(source, target);
            }),
            Routine::Fixed(copier) => {
                let places = order.places().expect("a fixed size is one size");
                fixed::run(copier, source, target, (places, calls))
            }
            Routine::PastCaches(copier) => each(source, target, order, calls, |source, target| {
                copier.copy_past_caches(source, target);
            }),
            Routine::AndSum(copier) => each(source, target, order, calls, |source, target| {
                black_box(copier.copy_and_sum(source, target));
            }),
            Routine::ThenSum(copier, checksum) => {
                each(source, target, order, calls, |source, target| {
                    copier.copy(source, target);
                    black_box(checksum.sum(target));
                })
            }
            Routine::MemcpyThenSum(checksum) => {
                each(source, target, order, calls, |source, target| {
                    target.copy_from_slice(source);
                    black_box(checksum.sum(target));
                })
            }
        })
    }

    /// Checks that the first copies of an order are correct and change no byte around them.
    ///
    /// # Errors
    /// [`Error::Wrong`].
    pub(super) fn check<O: Order>(
        self,
        arena: &Arena,
        (offsets, order): (Offsets, &O),
    ) -> Result<(), Error> {
        for call in 0..order.calls().min(CHECKED_CALLS) {
            let (at, bytes) = order.copy(call);
            arena.lend(offsets, |source, target| {
                let end = (at + bytes + AROUND_BYTES).min(target.len());
                for (to, from) in target[at..end].iter_mut().zip(&source[at..end]) {
                    *to = !from;
                }
            });
            self.run(arena, (offsets, order), (call, 1));
            let right = arena.lend(offsets, |source, target| {
                let end = (at + bytes + AROUND_BYTES).min(target.len());
                let mut around = target[at + bytes..end].iter().zip(&source[at + bytes..end]);
                target[at..][..bytes] == source[at..][..bytes]
                    && around.all(|(to, from)| *to == !from)
                    && self.sums_right(&source[at..][..bytes], &mut target[at..][..bytes])
            });
            if !right {
                let found = format!("{bytes} bytes from {offsets:?}: not what the source has");
                return Err(Error::Wrong { member: self.name(), found });
            }
        }
        Ok(())
    }

    fn sums_right(self, source: &[u8], target: &mut [u8]) -> bool {
        let (sum, bytes) = match self {
            Routine::AndSum(copier) => (copier.copy_and_sum(source, target), source.len()),
            Routine::ThenSum(_, checksum) | Routine::MemcpyThenSum(checksum) => {
                (checksum.sum(target), source.len())
            }
            _ => return true,
        };
        let mut sums = [0];
        let ranges = Ranges { slots: source, stride: 0, at: 0, bytes, last_bytes: bytes };
        checksum::oracle(ranges, &mut sums);
        sums == [sum]
    }
}

/// Calls the routine once for each copy of the order; compiled for each routine.
#[inline(always)]
fn each<O: Order>(
    source: &[u8],
    target: &mut [u8],
    order: &O,
    calls: std::ops::Range<usize>,
    copy: impl Fn(&[u8], &mut [u8]),
) -> u64 {
    let mut copied = 0;
    for call in calls {
        let (at, bytes) = order.copy(call);
        copy(&source[at..][..bytes], &mut target[at..][..bytes]);
        copied += bytes as u64;
    }
    black_box(target);
    copied
}

/// Reference of every comparison.
pub(super) const MEMCPY: &str = "memcpy";
const CHECKED_CALLS: usize = 64;
const AROUND_BYTES: usize = 64;
