// SPDX-License-Identifier: MIT OR Apache-2.0
//! Medians and spread of few samples.

use serde::{Deserialize, Serialize};

/// A measured quantity: its median, how far the samples lie apart, and the samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The middle sample; the mean of the two middle ones of an even number.
    pub median: f64,
    /// The smallest sample.
    pub least: f64,
    /// The largest sample.
    pub most: f64,
    /// All, in the order they were taken.
    pub samples: Vec<f64>,
}

impl Figure {
    /// # Panics
    /// Without a sample.
    pub fn of(samples: Vec<f64>) -> Figure {
        assert!(!samples.is_empty(), "a figure has samples");
        let mut sorted = samples.clone();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        let (least, most) = (sorted[0], sorted[sorted.len() - 1]);
        Figure { median: f64::midpoint(low, high), least, most, samples }
    }

    /// Half the distance of the extremes, in parts of the median.
    pub fn spread(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.most - self.least) / 2.0 / self.median }
    }

    /// Sample by sample: both were taken in the same round, so what disturbed one disturbed the
    /// other.
    pub fn relative_to(&self, reference: &Figure) -> Figure {
        let pairs = self.samples.iter().zip(&reference.samples);
        Figure::of(pairs.map(|(sample, reference)| sample / reference).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spread() {
        let odd = Figure::of(vec![3.0, 1.0, 2.0]);
        assert_eq!((odd.median, odd.least, odd.most), (2.0, 1.0, 3.0));
        assert_eq!(odd.spread(), 0.5);
        assert_eq!(Figure::of(vec![1.0, 2.0, 3.0, 10.0]).median, 2.5);
        assert_eq!(Figure::of(vec![7.0]).spread(), 0.0);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let slow_then_fast = Figure::of(vec![4.0, 2.0]);
        let reference = Figure::of(vec![8.0, 4.0]);
        assert_eq!(slow_then_fast.relative_to(&reference).samples, [0.5, 0.5]);
    }
}
