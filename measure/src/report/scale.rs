// SPDX-License-Identifier: MIT OR Apache-2.0
//! Positions of a plot's values and names.
//!
//! Sources: Heckbert, "Nice Numbers for Graph Labels", Graphics Gems, 1990 (steps of 1, 2 and 5).
//! Does not draw.

use crate::results::Row;

/// A range of numbers and its mapping: linear from 0, or logarithmic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) log: bool,
}

impl Scale {
    /// Returns the scale of the axis: sizes double, so it is logarithmic.
    pub(super) fn across(values: Vec<f64>) -> Option<Scale> {
        let least = values.iter().copied().reduce(f64::min)?;
        let most = values.iter().copied().reduce(f64::max)?;
        let log = least > 0.0 && most / least >= 8.0;
        Some(Scale { from: least, to: most, log })
    }

    /// Returns the scale of medians: logarithmic when small ones would look like 0.
    pub(super) fn up(rows: Vec<&Row>) -> Scale {
        let medians = || rows.iter().map(|row| row.figure.median);
        let most = rows.iter().map(|row| top(row)).fold(0.0, f64::max);
        let least = medians().fold(f64::MAX, f64::min);
        if least > 0.0 && most / least > LOG_RATIO {
            return Scale { from: least * 0.8, to: most * 1.15, log: true };
        }
        Scale { from: 0.0, to: if most > 0.0 { most * 1.04 } else { 1.0 }, log: false }
    }

    /// Returns the position of a value, from 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        let place = if self.log {
            (value.max(f64::MIN_POSITIVE) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.5 }
    }

    /// Returns round numbers within the range.
    pub(super) fn round_values(&self) -> Vec<f64> {
        let mut values = Vec::new();
        if self.log {
            let mut decade = 10_f64.powf(self.from.log10().floor());
            while decade <= self.to && decade > 0.0 && values.len() < TICKS_MAX {
                let steps = [1.0, 2.0, 5.0].map(|step| step * decade);
                values.extend(steps.iter().filter(|v| **v >= self.from && **v <= self.to));
                decade *= 10.0;
            }
            return values;
        }
        let rough = (self.to - self.from) / 5.0;
        let decade = 10_f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
        let step = steps.into_iter().find(|step| *step >= rough).unwrap_or(rough);
        if step.is_normal() {
            let count = ((self.to - self.from) / step).floor() as usize;
            values.extend((0..=count.min(TICKS_MAX)).map(|n| (n as f64).mul_add(step, self.from)));
        }
        values
    }
}

pub(super) struct Area {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Area {
    pub(super) fn x(&self, scale: &Scale, value: f64) -> f64 {
        (self.right - self.left).mul_add(scale.place(value), self.left)
    }

    pub(super) fn y(&self, scale: &Scale, value: f64) -> f64 {
        (self.top - self.bottom).mul_add(scale.place(value), self.bottom)
    }
}

/// Returns the largest value drawn for a row.
pub(super) fn top(row: &Row) -> f64 {
    (row.figure.median + row.figure.deviation()).min(f64::MAX / 4.0)
}

/// Returns positions as near to `wanted` as possible with [`NAME_GAP`] between them.
pub(super) fn apart(wanted: &[f64], area: &Area) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let mut places = wanted.to_vec();
    let mut least = area.top;
    for index in &order {
        places[*index] = places[*index].max(least);
        least = places[*index] + NAME_GAP;
    }
    let mut most = area.bottom;
    for index in order.iter().rev() {
        places[*index] = places[*index].min(most);
        most = places[*index] - NAME_GAP;
    }
    places
}

/// Gap between the names at the ends of lines.
pub(super) const NAME_GAP: f64 = 15.0;
const TICKS_MAX: usize = 40;
const LOG_RATIO: f64 = 25.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::report::plot::number_short;
    use crate::statistics::Figure;

    #[test]
    fn ticks_are_round_numbers() {
        let linear = Scale { from: 0.0, to: 2.6, log: false };
        assert_eq!(linear.round_values(), [0.0, 1.0, 2.0]);
        let log = Scale { from: 0.04, to: 3.0, log: true };
        let shown: Vec<_> = log.round_values().into_iter().map(number_short).collect();
        assert_eq!(shown, ["0.05", "0.1", "0.2", "0.5", "1", "2"]);
    }

    #[test]
    fn a_wide_range_is_logarithmic() {
        let row = |value: f64| Row::new("x", "m", "CPU cost", "", Figure::of(vec![value]));
        let (small, large) = (row(0.06), row(2.2));
        assert!(Scale::up(vec![&small, &large]).log);
        assert!(!Scale::up(vec![&large, &large]).log);
        let zero = row(0.0);
        assert!(!Scale::up(vec![&zero, &large]).log);
        assert_eq!(Scale::up(vec![&zero]).place(0.0), 0.0);
    }

    #[test]
    fn one_value_lies_in_the_middle() {
        let scale = Scale::across(vec![1328.0]).unwrap();
        assert_eq!(scale.place(1328.0), 0.5);
        assert_eq!(Scale::across(vec![]), None);
    }

    proptest! {
        #[test]
        fn names_never_cover_each_other(wanted in prop::collection::vec(0.0..400.0_f64, 1..27)) {
            let area = Area { left: 0.0, right: 1.0, top: 0.0, bottom: 400.0 };
            let mut places = apart(&wanted, &area);
            places.sort_by(f64::total_cmp);
            prop_assert!(places[0] >= -1e-9 && places[places.len() - 1] <= 400.0 + 1e-9);
            for pair in places.windows(2) {
                prop_assert!(pair[1] - pair[0] >= NAME_GAP - 1e-9, "{places:?}");
            }
        }

        #[test]
        fn places_are_within_the_plot(from in -1e300..1e300_f64, to in -1e300..1e300_f64,
            value in -1e300..1e300_f64, log: bool) {
            let place = Scale { from, to, log }.place(value);
            prop_assert!((0.0..=1.0).contains(&place));
        }
    }
}
