// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that every figure with a warning carries a mark in the generated documents.
//!
//! The documents are made again from the committed files with one change: each figure that has a
//! warning gets a unique value, so it is found in any table, bar or sentence. A mark, `!2` or in
//! README.md a dagger, follows it in its cell, or is in the column of warnings.
//!
//! Does not look at sentences written by hand.

use std::collections::BTreeMap;

use lab::EXPERIMENTS;
use measure::{Figure, Results};

use crate::grid::{Marks, concerns};
use crate::{document, hls, http, kernel, measurements, peers, picture};

/// Returns all documents generated from a measurement file.
fn documents(results: &Results) -> Vec<(&'static str, String)> {
    match results.experiment.as_str() {
        "hls" => vec![("docs/peers.md", hls::tables(results))],
        "http" => vec![("docs/peers.md", http::tables(results))],
        "kernel" => vec![("docs/kernel.md", kernel::tables(results))],
        "peers" => {
            vec![("docs/peers.md", peers::tables(results)), ("README.md", peers::headline(results))]
        }
        "paths" => vec![
            ("docs/measurements.md", measurements::section(results, &Marks::of(&results.warnings))),
            ("README.md", picture::of(results)),
        ],
        _ => vec![(
            "docs/measurements.md",
            measurements::section(results, &Marks::of(&results.warnings)),
        )],
    }
}

/// Gives each figure with a warning a unique value; returns the values by their text, with the
/// names of their figures.
fn sentinels(results: &mut Results) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    for row in &mut results.rows {
        if !results.warnings.iter().any(|warning| concerns(warning, row)) {
            continue;
        }
        let index = values.len();
        let text = format!("{}.{:02}e{}", index % 9 + 1, index / 9 % 100, 10 + index / 900);
        // The samples stay, so that values computed from them keep their size.
        row.figure = Figure { median: text.parse().expect("a number"), ..row.figure.clone() };
        let parameters = row.parameters.values().map(String::as_str).collect::<Vec<_>>();
        let title = format!("{}, {}: {}", row.member, parameters.join(", "), row.metric);
        assert!(values.insert(text, title).is_none(), "values are unique");
    }
    values
}

/// Searches a document for figures of these values: returns their number, and those without a mark.
fn bare<'a>(text: &str, values: &'a BTreeMap<String, String>) -> (usize, Vec<&'a str>) {
    let (mut found, mut bare) = (0, Vec::new());
    let mut marks_last = false;
    for line in text.lines() {
        if line.starts_with('|') && line.contains(" spread |") {
            marks_last = line.ends_with(" warnings |");
        }
        let last = line.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        let in_column = marks_last && line.starts_with('|') && last.contains('!');
        let words: Vec<&str> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        for (index, word) in words.iter().enumerate() {
            let Some(title) = values.get(*word) else { continue };
            found += 1;
            let after = words[index + 1..].iter();
            let mut after = after.skip_while(|word| **word == "s/GB");
            if !in_column && !after.next().is_some_and(|word| word.starts_with(['!', '†'])) {
                bare.push(title.as_str());
            }
        }
    }
    (found, bare)
}

#[test]
fn every_figure_in_doubt_has_its_mark_wherever_it_stands() {
    let mut marked = 0;
    for experiment in EXPERIMENTS {
        let Some(mut results) = document::measured(experiment.name) else { continue };
        let values = sentinels(&mut results);
        for (document, text) in documents(&results) {
            let (found, bare) = bare(&text, &values);
            assert!(
                bare.is_empty(),
                "{document}: {} of {found} figures in doubt stand without a mark: {}",
                bare.len(),
                bare.join("; ")
            );
            eprintln!("{document}, {}: {found} figures in doubt, all marked", experiment.name);
            marked += found;
        }
    }
    assert!(marked > 0, "no figure in doubt was found; the test looks at nothing");
}

#[test]
fn a_figure_without_its_mark_is_found() {
    let value = ("1.23e10".to_owned(), "a, 64: CPU cost".to_owned());
    let values = BTreeMap::from([value]);
    let is_bare = |text: &str| {
        let (found, bare) = bare(text, &values);
        (found, bare.len())
    };
    assert_eq!(is_bare("| a | 1.23e10 | 2.00 |"), (1, 1));
    assert_eq!(is_bare("| a | 1.23e10 !1 | 2.00 |"), (1, 0));
    assert_eq!(is_bare("| a | 1.23e10 † | 2.00 |"), (1, 0));
    assert_eq!(is_bare("- stock: `memcpy` 1.23e10, `other` 3.00 !1"), (1, 1));
    assert_eq!(is_bare("    a  1 a call  1.23e10 s/GB !1  ██"), (1, 0));
    let head = "| | CPU cost | spread | warnings |\n|---|--:|--:|---|\n";
    assert_eq!(is_bare(&format!("{head}| a | 1.23e10 | ± 9 % | !1 |")), (1, 0));
    assert_eq!(is_bare(&format!("{head}| a | 1.23e10 | ± 9 % |  |")), (1, 1));
    assert_eq!(is_bare("| a | 2.00 |"), (0, 0));
}
