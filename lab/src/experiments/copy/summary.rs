// SPDX-License-Identifier: MIT OR Apache-2.0
//! Summary of the many sizes and alignments: geometric means and the worst case.
//!
//! The mean of ratios is geometric, so that it does not depend on which of the two is the
//! reference. It is computed round by round, so that it has a spread.
//!
//! Sources: Fleming and Wallace, "How not to lie with statistics", 1986.
//! Sets no pass/fail thresholds.

use std::collections::BTreeMap;

use super::plan::{PAPER_STEP, PUBLISHED};
use super::routine::MEMCPY;
use measure::memory::TIMES;
use measure::results::{Results, Row};
use measure::statistics::Figure;

/// Adds the means of each placement and, of `alignments`, the means of the worst.
pub(super) fn add(alignments: &[Row], results: &mut Results) {
    let ratio = format!("relative to {MEMCPY}");
    let of_the_paper =
        |bytes: usize| (128..=2048).contains(&bytes) && bytes.is_multiple_of(PAPER_STEP);
    let small = |bytes: usize| bytes <= 512;
    let hot: Vec<Row> = results
        .rows
        .iter()
        .filter(|row| row.metric == ratio && row.parameters.get("memory").is_some_and(is_hot))
        .cloned()
        .collect();
    let mut rows = means(&hot, "128 to 2048 bytes", of_the_paper);
    let fixed = |row: &&Row| row.member.starts_with("fixed");
    rows.extend(means(hot.iter().filter(fixed), "64 to 512 bytes", small));
    rows.retain(|row| row.member != MEMCPY);
    let of_alignments = alignments.iter().filter(|row| row.metric == ratio);
    let everywhere = means(of_alignments, "128 to 2048 bytes", of_the_paper);
    rows.extend(worst(&everywhere, "the worst alignment"));
    rows.extend(worst(&over_published(alignments), "the worst alignment and size"));
    results.rows.extend(rows);
}

fn is_hot(memory: &String) -> bool {
    memory == "hot"
}

/// Returns the geometric mean over the sizes, per member and place.
fn means<'a>(
    rows: impl IntoIterator<Item = &'a Row>,
    what: &str,
    is_in: impl Fn(usize) -> bool,
) -> Vec<Row> {
    let mut order: Vec<(&Row, Vec<&Figure>)> = Vec::new();
    let mut known: BTreeMap<(&str, BTreeMap<&str, &str>), usize> = BTreeMap::new();
    for row in rows {
        let bytes = row.parameters.get("bytes").and_then(|bytes| bytes.parse().ok());
        if !bytes.is_some_and(&is_in) {
            continue;
        }
        let place = row.parameters.iter().filter(|(name, _)| *name != "bytes");
        let place = place.map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let index = *known.entry((row.member.as_str(), place)).or_insert_with(|| {
            order.push((row, Vec::new()));
            order.len() - 1
        });
        order[index].1.push(&row.figure);
    }
    let of = order.iter().map(|(_, figures)| figures.len()).max().unwrap_or(0);
    // Members without all sizes have no mean.
    let whole = order.into_iter().filter(|(_, figures)| figures.len() == of);
    whole
        .map(|(row, figures)| {
            let mut row = Row {
                metric: format!("{}, {what}", row.metric),
                figure: geometric(&figures),
                detail: false,
                ..row.clone()
            };
            row.parameters.remove("bytes");
            row
        })
        .collect()
}

/// Computes the geometric mean round by round.
fn geometric(figures: &[&Figure]) -> Figure {
    let rounds = figures.iter().map(|figure| figure.samples.len()).min().unwrap_or(0);
    let mean = |round: usize| {
        let logarithms = figures.iter().map(|figure| figure.samples[round].ln());
        (logarithms.sum::<f64>() / figures.len() as f64).exp()
    };
    Figure::of((0..rounds).map(mean).collect())
}

/// Returns each member's throughput relative to the paper's routine at the same size and place.
fn over_published(rows: &[Row]) -> Vec<Row> {
    let throughputs = || rows.iter().filter(|row| row.metric == "throughput");
    let published: BTreeMap<_, _> = throughputs()
        .filter(|row| row.member == PUBLISHED)
        .map(|row| (&row.parameters, &row.figure))
        .collect();
    let others = throughputs().filter(|row| row.member != PUBLISHED && row.member != MEMCPY);
    others
        .filter_map(|row| {
            let figure = row.figure.relative_to(published.get(&row.parameters)?)?;
            let (metric, unit) = (format!("relative to {PUBLISHED}"), TIMES.to_owned());
            Some(Row { metric, unit, figure, ..row.clone() })
        })
        .collect()
}

/// Returns the row with the lowest median of each member.
fn worst(rows: &[Row], what: &str) -> Vec<Row> {
    let mut least: Vec<&Row> = Vec::new();
    for row in rows.iter().filter(|row| row.member != MEMCPY) {
        match least.iter_mut().find(|known| known.member == row.member) {
            Some(known) if row.figure.median < known.figure.median => *known = row,
            Some(_) => {}
            None => least.push(row),
        }
    }
    least
        .into_iter()
        .map(|row| {
            let mut row = Row { metric: format!("{}, {what}", row.metric), ..row.clone() };
            row.parameters.remove("placement");
            row
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(member: &str, metric: &str, bytes: usize, samples: [f64; 2]) -> Row {
        Row::new("copy", member, metric, TIMES, Figure::of(samples.to_vec()))
            .with("memory", "hot")
            .with("placement", "aligned")
            .with("bytes", bytes)
    }

    #[test]
    fn a_mean_is_of_all_sizes_and_taken_round_by_round() {
        let ratio = "relative to memcpy";
        let rows = [
            row("ours", ratio, 128, [1.0, 2.0]),
            row("ours", ratio, 256, [4.0, 8.0]),
            row("ours", ratio, 4096, [9.0, 9.0]),
            row("fixed", ratio, 128, [3.0, 3.0]),
        ];
        let means = means(&rows, "some", |bytes| bytes < 512);
        assert_eq!(means.len(), 1, "`fixed` has one size of two");
        assert_eq!(means[0].figure.samples, [2.0, 4.0]);
        assert_eq!(means[0].metric, "relative to memcpy, some");
        assert!(!means[0].parameters.contains_key("bytes"));
    }

    #[test]
    fn the_worst_is_that_of_each_member() {
        let rows = [
            row("published_sse", "throughput", 128, [1.0, 2.0]),
            row("published_sse", "throughput", 256, [2.0, 2.0]),
            row("ours", "throughput", 128, [3.0, 6.0]),
            row("ours", "throughput", 256, [4.0, 4.0]),
        ];
        let worst = worst(&over_published(&rows), "the worst");
        assert_eq!(worst.len(), 1);
        assert_eq!((worst[0].figure.median, worst[0].parameters["bytes"].as_str()), (2.0, "256"));
        assert_eq!(worst[0].metric, "relative to published_sse, the worst");
    }
}
