// SPDX-License-Identifier: MIT OR Apache-2.0
//! Published figures of the fault and its remedy, compared with their cost here.
//!
//! The article contains a processor's counters: the share of cycles in which store forwarding
//! blocked a load, before and after, and the gain of the whole driver. Where there are no counters
//! the share is derived from times: the remedy differs from the fault in nothing else, so the extra
//! time of the fault is time spent waiting.
//!
//! Sources: Richardson, "Improving Driver Performance: A Worked Example": General Exploration
//! before and after, and its result.
//! Does not read values off the article's pictures.

use super::{AHEAD, CACHE, FAULT, PLACE, REMEDY, RUNNING, SHORT};
use crate::published;
use measure::memory::TIMES;
use measure::results::{Results, Row};
use measure::statistics::Figure;

/// Metric measured here.
const BLOCKED: &str = "share of the time lost to store forwarding, derived from times";
/// Published metric: another quantity, from a counter.
const COUNTED: &str = "share of cycles blocked by store forwarding, by VTune's counter";
const GAIN: &str = "relative to narrow_store";
const PUBLISHED: &str = include_str!("../../../../studies/vector-receive/published.csv");
const SOURCE: &str = "Richardson 2016, i40e vector receive under testpmd";

/// Adds the shares and the gains, measured and published.
pub(super) fn add(results: &mut Results) {
    let mut rows = Vec::new();
    for (place, format) in [(CACHE, SHORT), (CACHE, "32 B"), (AHEAD, SHORT), (RUNNING, SHORT)] {
        let time = |member: &str| {
            results.figure(member, "time", &[(PLACE, place), ("format", format)]).cloned()
        };
        let (Some(fault), Some(remedy)) = (time(FAULT), time(REMEDY)) else { continue };
        let Some(gain) = fault.relative_to(&remedy) else { continue };
        let shares = gain.samples.iter().map(|gain| 1.0 - 1.0 / gain).collect();
        let row = |member: &str, metric: &str, unit: &str, figure: Figure| {
            let row = Row::new("descriptors", member, metric, unit, figure);
            row.with(PLACE, place).with("format", format)
        };
        rows.push(row(FAULT, BLOCKED, "", Figure::of(shares)));
        rows.push(row(REMEDY, GAIN, TIMES, gain));
    }
    rows.extend(published::rows(PUBLISHED).map(|row| {
        let (unit, metric) = match row.field("metric") {
            GAIN => (TIMES, GAIN),
            _ => ("", COUNTED),
        };
        let figure = Figure::published(row.value("value"));
        let source = format!("{SOURCE}{}", row.field("note"));
        let row = Row::new("descriptors", row.field("member"), metric, unit, figure);
        let row = row.with(PLACE, "a driver").with("format", SHORT);
        Row { published: Some(source), ..row }
    }));
    results.rows.extend(rows);
}
