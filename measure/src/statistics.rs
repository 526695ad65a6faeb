// SPDX-License-Identifier: MIT OR Apache-2.0
//! Median and spread of few samples.
//!
//! Disturbances of a machine add time to some samples and subtract it from none, so means and
//! standard deviations reflect the disturbance more than the measured quantity. The median and the
//! median absolute deviation stay stable while fewer than half of the samples are disturbed. All
//! samples are kept, in order.
//!
//! Sources: Hampel, "The Influence Curve and its Role in Robust Estimation", 1974 (the median
//! absolute deviation, and 1.4826 as its factor to a standard deviation).
//! Does not drop outliers.

use serde::{Deserialize, Serialize};

/// A measured quantity: its median, the spread of its samples, and the samples. All values are
/// finite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The middle sample; the mean of the two middle ones of an even number.
    pub median: f64,
    /// Median absolute deviation in parts of the median. 0 when all samples are equal; 1 when the
    /// median is 0 and they differ, as the relative spread is then undefined.
    pub spread: f64,
    /// All samples in order; empty for a published value, and for one derived from another
    /// figure.
    pub samples: Vec<f64>,
}

/// Squares of larger values overflow.
const VALUE_MAX: f64 = 1e100;

impl Figure {
    /// True when the median lies within its samples and all values are small enough to compute
    /// with, as of every figure that was measured.
    pub(crate) fn is_consistent(&self) -> bool {
        let is_usable = |value: f64| value.abs() < VALUE_MAX;
        let least = self.samples.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        // Medians were computed before they were written, so they may be off by a rounding.
        let slack = 1e-9 * least.abs().max(most.abs());
        let is_within = least - slack <= self.median && self.median <= most + slack;
        (self.samples.is_empty() || is_within)
            && is_usable(self.median)
            && is_usable(self.spread)
            && self.samples.iter().copied().all(is_usable)
    }

    /// Returns the figure of these samples.
    ///
    /// # Panics
    /// Without a sample, or with one that is not finite.
    pub fn of(samples: Vec<f64>) -> Figure {
        assert!(!samples.is_empty(), "a figure has samples");
        assert!(samples.iter().all(|sample| sample.is_finite()), "samples are finite");
        let median = median(samples.clone());
        let deviation = deviation(&samples, median);
        let spread = if deviation == 0.0 {
            0.0
        } else if median == 0.0 {
            1.0
        } else {
            (deviation / median.abs()).min(f64::MAX)
        };
        Figure { median, spread, samples }
    }

    /// Returns a published value: without samples, and so without a spread.
    ///
    /// # Panics
    /// When it is not finite.
    pub fn published(value: f64) -> Figure {
        assert!(value.is_finite(), "a published value is finite");
        Figure { median: value, spread: 0.0, samples: Vec::new() }
    }

    /// Returns a value derived from another figure's samples, such as their maximum: without
    /// samples of its own.
    ///
    /// # Panics
    /// When it is not finite.
    pub fn derived(value: f64) -> Figure {
        assert!(value.is_finite(), "a derived value is finite");
        Figure { median: value, spread: 0.0, samples: Vec::new() }
    }

    /// Returns the median absolute deviation, in the figure's unit.
    pub fn deviation(&self) -> f64 {
        if self.samples.is_empty() { 0.0 } else { deviation(&self.samples, self.median) }
    }

    /// Returns the ratios sample by sample: both of a round suffered the same disturbance. A round
    /// whose reference is 0 has no ratio and is left out; `None` when no round has one.
    pub fn relative_to(&self, reference: &Figure) -> Option<Figure> {
        let pairs = self.samples.iter().zip(&reference.samples);
        let ratios = pairs.map(|(sample, reference)| sample / reference);
        let ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
        (!ratios.is_empty()).then(|| Figure::of(ratios))
    }
}

/// Returns the median distance of the samples from `of`.
fn deviation(samples: &[f64], of: f64) -> f64 {
    // The distance of two finite numbers may exceed the largest finite number.
    median(samples.iter().map(|sample| (sample - of).abs().min(f64::MAX)).collect())
}

/// Returns the median of at least one number.
fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    f64::midpoint(samples[(samples.len() - 1) / 2], samples[samples.len() / 2])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn medians_and_spread() {
        let odd = Figure::of(vec![3.0, 1.0, 2.0]);
        assert_eq!((odd.median, odd.spread, odd.deviation()), (2.0, 0.5, 1.0));
        assert_eq!(odd.samples, [3.0, 1.0, 2.0]);
        let even = Figure::of(vec![1.0, 2.0, 3.0, 10.0]);
        assert_eq!((even.median, even.deviation()), (2.5, 1.0));
        assert_eq!(Figure::of(vec![7.0]).spread, 0.0);
    }

    #[test]
    fn one_disturbed_sample_moves_neither() {
        let calm = Figure::of(vec![2.0, 2.02, 1.98, 2.01, 1.99]);
        let disturbed = Figure::of(vec![2.0, 2.02, 1.98, 900.0, 1.99]);
        assert!((disturbed.median / calm.median - 1.0).abs() < 0.01);
        assert!(disturbed.spread < 0.02, "{}", disturbed.spread);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let slow_then_fast = Figure::of(vec![4.0, 2.0]);
        let reference = Figure::of(vec![8.0, 4.0]);
        let ratio = slow_then_fast.relative_to(&reference).unwrap();
        assert_eq!((ratio.samples.as_slice(), ratio.spread), ([0.5, 0.5].as_slice(), 0.0));
    }

    #[test]
    fn a_reference_of_nothing_has_no_ratio() {
        let some = Figure::of(vec![1.0, 3.0, 0.0]);
        let partly = Figure::of(vec![0.0, 2.0, 0.0]);
        assert_eq!(some.relative_to(&partly).unwrap().samples, [1.5]);
        assert_eq!(some.relative_to(&Figure::of(vec![0.0; 3])), None);
        assert_eq!(some.relative_to(&Figure::published(1.0)), None);
    }

    #[test]
    fn a_median_of_zero_has_a_spread() {
        assert_eq!(Figure::of(vec![0.0, 0.0, 5.0]).spread, 0.0);
        assert_eq!(Figure::of(vec![-1.0, 0.0, 1.0]).spread, 1.0);
    }

    proptest! {
        #[test]
        fn figures_are_finite(samples in prop::collection::vec(prop::num::f64::NORMAL
            | prop::num::f64::ZERO | prop::num::f64::SUBNORMAL, 1..9)) {
            let figure = Figure::of(samples.clone());
            prop_assert!(figure.median.is_finite() && figure.spread.is_finite());
            prop_assert!(figure.spread >= 0.0);
            let least = samples.iter().copied().fold(f64::MAX, f64::min);
            let most = samples.iter().copied().fold(f64::MIN, f64::max);
            prop_assert!(least <= figure.median && figure.median <= most);
        }
    }
}
