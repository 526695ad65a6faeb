// SPDX-License-Identifier: MIT OR Apache-2.0
//! Documents with parts between markers, and the measurement files behind those parts.
//!
//! Text outside the markers is never changed.

use std::path::{Path, PathBuf};

use measure::Results;

/// Compares the part of a document between its markers with `expected`; with UPDATE set, writes it.
pub(crate) fn check(document: &str, part: &str, expected: &str) {
    let text = text(document);
    let marker = marker(part);
    let begin = text.find(&marker).unwrap_or_else(|| panic!("{document}: no line {marker}"));
    let begin = begin + marker.len();
    let end = text.find(&format!("<!-- end of {part} -->")).expect("the end marker");
    if std::env::var_os("UPDATE").is_some() {
        let updated = format!("{}{expected}{}", &text[..begin], &text[end..]);
        std::fs::write(root().join(document), updated).unwrap();
        return;
    }
    let found = &text[begin..end];
    let same =
        found.lines().zip(expected.lines()).take_while(|(found, made)| found == made).count();
    let [found_line, made_line] = [found, expected].map(|text| text.lines().nth(same));
    assert!(
        found == expected,
        "{document}: {part} is stale: {found_line:?} is {made_line:?} now; run {COMMAND}"
    );
}

/// Returns the text of a document, named from the repository's root.
pub(crate) fn text(document: &str) -> String {
    std::fs::read_to_string(root().join(document)).unwrap()
}

fn marker(part: &str) -> String {
    format!("<!-- {part}: made by `{COMMAND}` -->\n")
}

/// Returns the committed measurement of an experiment; prints a line and returns none where there
/// is none.
pub(crate) fn measured(experiment: &str) -> Option<Results> {
    let name = format!("docs/measurements/{experiment}.json");
    let path = root().join(&name);
    if !path.exists() {
        eprintln!("skip: {name} is not there; the documents have no table of it");
        return None;
    }
    let results = Results::read(&path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(results.experiment, experiment, "{name}");
    Some(results)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Of the crate whose tests these are.
const COMMAND: &str =
    concat!("UPDATE=1 cargo test -p ", env!("CARGO_PKG_NAME"), " --test documents");
