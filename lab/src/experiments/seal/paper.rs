// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of the file-encryption paper as reference series: every average, minimum and maximum,
//! the number of outliers, and the best number of threads.
//!
//! Two processors of 2012: two Xeon E5-2640 (12 cores together, with an AES unit), and a Xeon Phi
//! 5110P (60 cores, without). A hundred repetitions a cell. A value that the paper does not
//! contain, or that cannot be read in print, is left out. Shapes can be compared, milliseconds
//! cannot.
//!
//! Sources: the file-encryption paper (Shirase: parallel encryption on the many-core coprocessor
//! Xeon Phi), tables 2 to 4 and A.1.
//! Does not repeat its averages without outliers for every cell; table 4 has the best of them.

use std::collections::BTreeMap;

use super::grid::{BEST_AVERAGE, BEST_THREADS, PER_RUNS, folder};
use super::outlier::OVER_A_SECOND;
use super::{BYTES, FILES, FOLDER, THREADS};
use crate::published::{self, PublishedRow};
use measure::results::{Results, Row};
use measure::statistics::Figure;

/// A folder that was encrypted a hundred times by some threads of a processor.
struct Cell {
    files: usize,
    bytes: u64,
    member: String,
    threads: usize,
    row: PublishedRow,
}

impl Cell {
    fn of(row: PublishedRow) -> Cell {
        let whole = |column: &str| row.value(column) as u64;
        Cell {
            files: whole("files") as usize,
            bytes: whole("bytes"),
            member: format!("paper: {}", row.field("processor")),
            threads: whole("threads") as usize,
            row,
        }
    }

    fn result(&self, metric: &str, unit: &str, value: f64, place: &str) -> Row {
        let row = result(&self.member, metric, unit, value, place);
        row.with(FOLDER, folder(self.files)).with(BYTES, self.bytes)
    }
}

/// Adds the rows of the sizes that were measured here.
pub(super) fn add(sizes: &[u64], results: &mut Results) {
    let is_measured = |cell: &Cell| sizes.contains(&cell.bytes);
    let cells: Vec<_> = published::rows(CELLS).map(Cell::of).filter(is_measured).collect();
    for cell in &cells {
        for metric in ["average", "minimum", "maximum"] {
            if let Some(value) = cell.row.number(&format!("{metric}_ms")) {
                let row = cell.result(metric, "ms", value, "A.1");
                results.rows.push(row.with(THREADS, cell.threads).as_detail());
            }
        }
    }
    for best in published::rows(BEST).map(Cell::of).filter(is_measured) {
        let average = best.row.value("average_ms");
        results.rows.push(best.result(BEST_AVERAGE, "ms", average, "table 4"));
        results.rows.push(best.result(BEST_THREADS, "", best.threads as f64, "table 4"));
    }
    add_outliers(&cells, results);
}

/// Adds the outliers, by cell as details and for all measured sizes together.
fn add_outliers(cells: &[Cell], results: &mut Results) {
    let mut shares = BTreeMap::new();
    for cell in cells {
        let outliers = cell.row.value("outliers");
        let (sum, count) = shares.entry(cell.member.clone()).or_insert((0.0, 0.0));
        (*sum, *count) = (*sum + outliers, *count + 1.0);
        if outliers > 0.0 {
            let source = if cell.files == FILES[0] { "table 2" } else { "table 3" };
            let row = cell.result(OUTLIERS_OF_CELL, PER_RUNS, outliers, source);
            results.rows.push(row.with(THREADS, cell.threads).as_detail());
        }
    }
    for (member, (sum, count)) in shares {
        results.rows.push(result(&member, OVER_A_SECOND, PER_RUNS, sum / count, "tables 2 and 3"));
    }
}

fn result(member: &str, metric: &str, unit: &str, value: f64, place: &str) -> Row {
    let row = Row::new("seal", member, metric, unit, Figure::published(value));
    Row { published: Some(format!("the file-encryption paper, {place}")), ..row }
}

const OUTLIERS_OF_CELL: &str = "outliers of a cell, over 1 s above the average";
/// Tables A.1.1, A.1.2, 2 and 3; a row a cell.
const CELLS: &str = include_str!("../../../../studies/file-encryption/cells.csv");
/// Table 4: the best number of threads and the average there, outliers left out.
const BEST: &str = include_str!("../../../../studies/file-encryption/best.csv");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_4_follows_from_the_appendix() {
        let cells: Vec<_> = published::rows(CELLS).map(Cell::of).collect();
        let key = |cell: &Cell| (cell.files, cell.bytes, cell.member.clone(), cell.threads);
        for best in published::rows(BEST).map(Cell::of) {
            let found = cells.iter().find(|cell| key(cell) == key(&best)).expect("a cell");
            let average = best.row.value("average_ms");
            // With outliers the average of all runs is larger, or could not be read.
            let all = found.row.number("average_ms");
            assert!(all.is_none_or(|all| average <= all * 1.001), "{:?}: {all:?}", key(&best));
            let least = found.row.value("minimum_ms");
            assert!(least <= average, "{:?}", key(&best));
        }
    }

    #[test]
    fn averages_lie_between_minima_and_maxima() {
        let mut cells = 0;
        for row in published::rows(CELLS) {
            let [average, least, most] =
                ["average", "minimum", "maximum"].map(|name| row.number(&format!("{name}_ms")));
            let (Some(average), Some(least), Some(most)) = (average, least, most) else { continue };
            assert!(least <= average && average <= most, "{least} {average} {most}");
            cells += 1;
        }
        assert_eq!(cells, 16 * (8 + 12) - 2, "two cells were not readable");
    }

    #[test]
    fn only_sizes_that_are_measured_are_added() {
        let mut results = Results::new("seal", []);
        add(&[128, 4 << 20], &mut results);
        assert!(results.rows.iter().all(|row| row.published.is_some()));
        let best = results.rows.iter().filter(|row| row.metric == BEST_THREADS).count();
        assert_eq!(best, 2 * 4);
        let of_cells = results.rows.iter().filter(|row| row.metric == OUTLIERS_OF_CELL);
        // Table 2: 2 and 6; table 3: 1, 1, 12 and 23, and 6, 1 and 1 on the Phi.
        assert_eq!(of_cells.map(|row| row.figure.median).sum::<f64>(), 53.0);
        add(&[100], &mut Results::new("seal", []));
    }
}
