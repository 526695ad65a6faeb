// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of paths in ARCHITECTURE.md is the list in the code.
//!
//! `UPDATE=1 cargo test -p paths --test documents` writes it anew.

use std::fmt::Write;
use std::path::Path;

use paths::{PATHS, Spec};

#[test]
fn the_table_of_paths_is_current() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ARCHITECTURE.md");
    let text = std::fs::read_to_string(&document).unwrap();
    let begin = text.find(BEGIN).expect("the marker") + BEGIN.len();
    let begin = begin + text[begin..].find('\n').expect("the marker's line ends") + 1;
    let end = text.find(END).expect("the end marker");
    let expected = table();
    if std::env::var_os("UPDATE").is_some() {
        let updated = format!("{}{expected}{}", &text[..begin], &text[end..]);
        std::fs::write(&document, updated).unwrap();
        return;
    }
    assert_eq!(text[begin..end], expected, "run this test with UPDATE=1");
}

fn table() -> String {
    let mut table = String::new();
    table.push_str("| path | for | copies a byte | system calls | how |\n|---|---|---|---|---|\n");
    for spec in PATHS {
        let Spec { name, transport, summary, copies_per_byte: copies, crossings, .. } = spec;
        let _ = writeln!(table, "| `{name}` | {transport} | {copies} | {crossings} | {summary} |");
    }
    table
}

const BEGIN: &str = "<!-- paths:";
const END: &str = "<!-- end of paths -->";
