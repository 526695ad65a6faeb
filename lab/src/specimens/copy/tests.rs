// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of every variant of the copy, and of the published routines, against the oracle.
//!
//! Does not measure.

use super::*;
use crate::specimens::trials::{LENGTHS, noise};

/// Widest register of any variant.
const WIDTH: usize = 64;

/// Offsets that are aligned, one off, and in the middle, for every register width.
const OFFSETS: &[usize] = &[0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63];

/// Source and target with room to align them to [`WIDTH`], and the target's initial content.
struct Trial {
    source: Vec<u8>,
    target: Vec<u8>,
    before: Vec<u8>,
}

impl Trial {
    fn of(bytes_max: usize) -> Trial {
        let before: Vec<u8> = noise(bytes_max + 5 * WIDTH).iter().map(|byte| !byte).collect();
        Trial { source: noise(bytes_max + 3 * WIDTH), target: before.clone(), before }
    }

    /// Asserts that `copy` writes the same as the oracle, and leaves all bytes around it unchanged.
    fn agrees(
        &mut self,
        what: &dyn std::fmt::Debug,
        (from, to, bytes): (usize, usize, usize),
        copy: impl FnOnce(&[u8], &mut [u8]),
    ) {
        let aligned = |memory: &[u8]| memory.as_ptr().align_offset(WIDTH);
        let from = aligned(&self.source) + from;
        let to_end = aligned(&self.target) + to + bytes + WIDTH;
        let source = &self.source[from..][..bytes];
        let (around, to) = (to_end - bytes - WIDTH, to_end - bytes);
        copy(source, &mut self.target[to..][..bytes]);
        let mut expected = self.before[around..to_end + WIDTH].to_vec();
        oracle(source, &mut expected[WIDTH..][..bytes]);
        let found = &self.target[around..to_end + WIDTH];
        assert!(found == expected, "{what:?}: {bytes} bytes from {from} to {to}");
        self.target[around..to_end + WIDTH].copy_from_slice(&self.before[around..to_end + WIDTH]);
    }
}

fn sum(source: &[u8]) -> u16 {
    let (slots, bytes, mut sums) = (source, source.len(), [0]);
    checksum::oracle(Ranges { slots, stride: 0, at: 0, bytes, last_bytes: bytes }, &mut sums);
    sums[0]
}

/// Calls `try_it` for every copy, with its name.
fn for_each_copy(mut try_it: impl FnMut(&dyn std::fmt::Debug, &dyn Fn(&[u8], &mut [u8]))) {
    for copier in Copier::all() {
        try_it(&copier, &|source, target| copier.copy(source, target));
        try_it(&format!("{copier:?} past the caches"), &|source, target| {
            copier.copy_past_caches(source, target);
        });
        let summing = |source: &[u8], target: &mut [u8]| {
            assert_eq!(copier.copy_and_sum(source, target), sum(source), "{copier:?}, sum");
        };
        try_it(&format!("{copier:?} and sum"), &summing);
    }
    for routine in published::ROUTINES {
        try_it(&routine.name, &|source, target| routine.copy(source, target));
    }
}

#[test]
fn every_copy_is_right_at_every_length_and_offset() {
    for_each_copy(|what, copy| {
        let mut trial = Trial::of(4 * WIDTH + 1);
        for bytes in 0..=4 * WIDTH + 1 {
            // Tries all offsets of each side, but only a part of their pairs.
            for offset in 0..WIDTH {
                let other = (offset * 5 + bytes * 11) % WIDTH;
                trial.agrees(what, (offset, other, bytes), copy);
            }
            for to in [0, 1, 31, 63] {
                trial.agrees(what, (0, to, bytes), copy);
            }
        }
    });
}

#[test]
fn every_copy_is_right_at_the_lengths_of_packets_and_pages() {
    // Includes the lengths around those at which the routines change their method.
    let changes = (3..=9).flat_map(|exponent| {
        let at = 64 * exponent;
        [at - 1, at, at + 1]
    });
    let lengths: Vec<usize> =
        LENGTHS.iter().copied().chain(changes).chain([1024, 1328, 8191, 8192]).collect();
    for_each_copy(|what, copy| {
        let mut trial = Trial::of(65_507);
        for &bytes in &lengths {
            let offsets = if bytes > 10_000 { &OFFSETS[..3] } else { OFFSETS };
            for &from in offsets {
                for &to in offsets {
                    trial.agrees(what, (from, to, bytes), copy);
                }
            }
        }
    });
}

#[test]
fn a_copy_past_the_caches_is_right_to_the_last_byte() {
    const BYTES: usize = PAST_CACHES_BYTES_MIN + 77;
    for copier in Copier::all() {
        let mut trial = Trial::of(BYTES);
        trial.agrees(&copier, (3, 5, BYTES), |source, target| copier.copy(source, target));
        trial.agrees(&copier, (0, 0, BYTES - 77), |source, target| copier.copy(source, target));
    }
}

/// Batch that copies each size once, compiled for the copier's registers.
struct Sizes<'a> {
    trial: &'a mut Trial,
    copier: Copier,
    offsets: (usize, usize),
}

macro_rules! sizes {
    ($self:ident, $fixed:ident, $($bytes:literal)*) => {{
        let (what, (from, to)) = (format!("{:?}, fixed", $self.copier), $self.offsets);
        $(
            let place = (from, to, $bytes);
            $self.trial.agrees(&what, place, |source, target| {
                let (source, target) = (source.try_into().unwrap(), target.try_into().unwrap());
                $fixed.copy::<$bytes>(source, target);
            });
        )*
    }};
}

impl CopyBatch for Sizes<'_> {
    type Output = ();

    fn run<F: Fixed>(self, fixed: F) {
        sizes!(self, fixed, 0 1 2 3 7 8 15 16 17 24 31 32 33 47 48 63 64 65 96 127 128 129 188 192);
        sizes!(self, fixed, 255 256 320 384 448 512 640 768 896 1023 1024 1025 1280 1316 1328 1500);
        sizes!(self, fixed, 1536 1792 2048 3072 4095 4096);
    }
}

#[test]
fn a_fixed_size_is_copied_whole_and_nothing_else() {
    let mut trial = Trial::of(4096);
    for copier in Copier::all() {
        for &from in OFFSETS {
            for &to in OFFSETS {
                copier.batch(Sizes { trial: &mut trial, copier, offsets: (from, to) });
            }
        }
        trial.agrees(&copier, (1, 2, 1316), |source, target| {
            copier.copy_fixed::<1316>(source.try_into().unwrap(), target.try_into().unwrap());
        });
    }
}

#[test]
fn a_batch_gives_what_it_gives() {
    struct Name;
    impl CopyBatch for Name {
        type Output = &'static str;

        fn run<F: Fixed>(self, _: F) -> &'static str {
            std::any::type_name::<F>().rsplit("::").next().unwrap()
        }
    }
    let ran: Vec<_> = Copier::all().map(|copier| (copier.name(), copier.batch(Name))).collect();
    let all = [
        ("portable", "Compiled"),
        ("sse2", "Sse2"),
        ("avx512f", "Avx512"),
        ("avx2", "Avx2"),
        ("avx512bw", "Avx2"),
    ];
    assert!(ran.iter().all(|pair| all.contains(pair)), "{ran:?}");
}

#[test]
fn carries_of_a_sum_are_kept_over_megabytes() {
    let source = vec![0xff; (4 << 20) + 1];
    let mut target = vec![0; source.len()];
    for copier in Copier::all() {
        assert_eq!(copier.copy_and_sum(&source, &mut target), 0xff00, "{copier:?}");
    }
}

#[test]
#[should_panic(expected = "source and target are of one length")]
fn different_lengths_are_the_callers_mistake() {
    Copier::all().last().unwrap().copy(&[0; 3], &mut [0; 4]);
}

#[test]
#[should_panic(expected = "source and target are of one length")]
fn different_lengths_of_a_sum_are_the_callers_mistake() {
    Copier::all().last().unwrap().copy_and_sum(&[0; 4], &mut [0; 3]);
}
