// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of fixed sizes in a loop: a program has one constant size, the lab a list of them.
//!
//! Does not choose which sizes are measured in which places.

use std::hint::black_box;
use std::ops::Range;

use crate::specimens::copy::Copier;
use crate::specimens::copy::{CopyBatch, Fixed};

use super::arena::{Order, Places};

/// Successive copies of `N` bytes.
struct Copies<'a, const N: usize> {
    source: &'a [u8],
    target: &'a mut [u8],
    places: &'a Places,
    calls: Range<usize>,
}

impl<const N: usize> CopyBatch for Copies<'_, N> {
    type Output = u64;

    #[inline(always)]
    fn run<F: Fixed>(self, fixed: F) -> u64 {
        let Copies { source, target, places, calls } = self;
        let mut copied = 0;
        for call in calls {
            let (at, _) = places.copy(call);
            let source = source[at..].first_chunk::<N>().expect("the arena has as many");
            let target = target[at..].first_chunk_mut::<N>().expect("the arena has as many");
            fixed.copy(source, target);
            copied += N as u64;
        }
        black_box(target);
        copied
    }
}

macro_rules! sizes {
    ($($bytes:literal)*) => {
        /// Sizes that have a routine.
        pub(super) const SIZES: &[usize] = &[$($bytes),*];

        /// Runs the routine of the places' size; returns the bytes copied.
        ///
        /// # Panics
        /// For a size that is not in [`SIZES`].
        pub(super) fn run(
            copier: Copier,
            source: &[u8],
            target: &mut [u8],
            (places, calls): (&Places, Range<usize>),
        ) -> u64 {
            match places.copy(calls.start).1 {
                $($bytes => copier.batch(Copies::<$bytes> { source, target, places, calls }),)*
                bytes => panic!("no routine for {bytes} bytes"),
            }
        }
    };
}

sizes! {
    64 128 192 256 320 384 448 512 576 640 704 768 832 896 960 1024 1088 1152 1216 1280 1316 1328
    1344 1408 1472 1536 1600 1664 1728 1792 1856 1920 1984 2048 4096
}
