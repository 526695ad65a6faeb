// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of warnings in docs/measuring.md is the list in the code.
//!
//! `UPDATE=1 cargo test -p lab --test documents` writes it anew.
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::path::Path;

use lab::Warning;

#[test]
fn the_list_of_warnings_is_current() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/measuring.md");
    let text = std::fs::read_to_string(&document).unwrap();
    let begin = text.find(BEGIN).expect("the marker") + BEGIN.len();
    let begin = begin + text[begin..].find('\n').expect("the marker's line ends") + 1;
    let end = text.find(END).expect("the end marker");
    let expected = list();
    if std::env::var_os("UPDATE").is_some() {
        let updated = format!("{}{expected}{}", &text[..begin], &text[end..]);
        std::fs::write(&document, updated).unwrap();
        return;
    }
    assert_eq!(text[begin..end], expected, "run this test with UPDATE=1");
}

fn list() -> String {
    let mut list = String::new();
    for warning in Warning::examples() {
        let _ = writeln!(list, "\n    {warning}\n\nCure: {}.", warning.cure());
    }
    list.push('\n');
    list
}

const BEGIN: &str = "<!-- warnings:";
const END: &str = "<!-- end of warnings -->";
