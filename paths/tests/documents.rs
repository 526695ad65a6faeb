// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of paths in ARCHITECTURE.md agree with the lists in the code.
//!
//! `UPDATE=1 cargo test -p pagewire-paths --test documents` rewrites the tables.

use std::fmt::Write;
use std::path::Path;

use paths::{INTERLEAVED_PATHS, PATHS, RECEIVE_PATHS, ReceiveSpec, Spec};

#[test]
fn the_tables_of_paths_are_current() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ARCHITECTURE.md");
    let mut text = std::fs::read_to_string(&document).unwrap();
    let update = std::env::var_os("UPDATE").is_some();
    for (name, expected) in [("paths", sending()), ("receive", receiving())] {
        let begin = text.find(&format!("<!-- {name}:")).expect("the marker");
        let begin = begin + text[begin..].find('\n').expect("the marker's line ends") + 1;
        let end = text.find(&format!("<!-- end of {name} -->")).expect("the end marker");
        if update {
            text.replace_range(begin..end, &expected);
        } else {
            assert_eq!(text[begin..end], expected, "run this test with UPDATE=1");
        }
    }
    if update {
        std::fs::write(&document, text).unwrap();
    }
}

fn sending() -> String {
    let mut table = String::new();
    table.push_str("| path | for | copies a byte | system calls | how |\n|---|---|---|---|---|\n");
    for spec in PATHS.iter().chain(INTERLEAVED_PATHS) {
        let Spec { name, transport, summary, copies_per_byte: copies, system_calls, .. } = spec;
        let _ =
            writeln!(table, "| `{name}` | {transport} | {copies} | {system_calls} | {summary} |");
    }
    table
}

fn receiving() -> String {
    let mut table = String::new();
    table.push_str("| path | copies a byte | system calls | how |\n|---|---|---|---|\n");
    for spec in RECEIVE_PATHS {
        let ReceiveSpec { name, summary, copies_per_byte: copies, system_calls, .. } = spec;
        let _ = writeln!(table, "| `{name}` | {copies} | {system_calls} | {summary} |");
    }
    table
}
