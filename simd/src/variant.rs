// SPDX-License-Identifier: MIT OR Apache-2.0
//! A variant of a kernel, and the choice among those that this processor has.
//!
//! Sources: STYLE of memchr's and ring's dispatch: detected once, then a plain function pointer.
//!
//! Does not measure. Widest last is the author's order, backed by the figures in each kernel's
//! header.

use std::fmt;

/// A kernel's function for one instruction set.
pub struct Variant<F: 'static> {
    /// The instruction set, as in `/proc/cpuinfo`; `portable` needs none.
    pub name: &'static str,
    /// True when this processor has the instruction set.
    pub is_here: fn() -> bool,
    /// The function, which requires that `is_here` returns true.
    pub run: F,
}

/// A variant that computed a wrong answer on this processor and is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The kernel.
    pub kernel: &'static str,
    /// The widest variant that was wrong.
    pub variant: &'static str,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, variant } = self;
        write!(f, "kernel {kernel}, variant {variant}: wrong on known answers; using another")
    }
}

/// Returns those of `variants` that this processor has.
pub fn here<F>(
    variants: &'static [Variant<F>],
) -> impl DoubleEndedIterator<Item = &'static Variant<F>> {
    variants.iter().filter(|variant| (variant.is_here)())
}

/// Returns the last of `variants` that this processor has and that is `right`, and the widest that
/// was not right.
///
/// # Panics
/// When not even the first is right.
pub fn choose<F>(
    kernel: &'static str,
    variants: &'static [Variant<F>],
    right: impl Fn(&'static Variant<F>) -> bool,
) -> (&'static Variant<F>, Option<Dropped>) {
    let mut dropped = None;
    for variant in here(variants).rev() {
        if right(variant) {
            return (variant, dropped);
        }
        dropped = dropped.or(Some(Dropped { kernel, variant: variant.name }));
    }
    panic!("kernel {kernel}: no variant gives the known answers");
}

/// Returns true: for variants without requirements.
pub fn everywhere() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    static VARIANTS: &[Variant<u32>] = &[
        Variant { name: "portable", is_here: everywhere, run: 1 },
        Variant { name: "wide", is_here: everywhere, run: 2 },
        Variant { name: "wider", is_here: everywhere, run: 3 },
        Variant { name: "elsewhere", is_here: || false, run: 4 },
    ];

    #[test]
    fn the_widest_right_one_is_chosen_and_a_wrong_one_named() {
        let chosen = |wrong: &'static [u32]| {
            let (variant, dropped) = choose("k", VARIANTS, |v| !wrong.contains(&v.run));
            (variant.name, dropped.map(|dropped| dropped.variant))
        };
        assert_eq!(chosen(&[]), ("wider", None));
        assert_eq!(chosen(&[4]), ("wider", None));
        assert_eq!(chosen(&[3]), ("wide", Some("wider")));
        assert_eq!(chosen(&[2]), ("wider", None));
        assert_eq!(chosen(&[2, 3]), ("portable", Some("wider")));
        let message = Dropped { kernel: "stamp", variant: "avx2" }.to_string();
        assert_eq!(message, "kernel stamp, variant avx2: wrong on known answers; using another");
    }

    #[test]
    #[should_panic(expected = "no variant gives the known answers")]
    fn a_kernel_without_a_right_variant_is_our_own_mistake() {
        choose("k", VARIANTS, |_| false);
    }
}
