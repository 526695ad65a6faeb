// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses a text into a TOML table and reports its syntax errors, each with a cure.
//!
//! The parser continues after a fault and guesses. Its reports about the rest of that line, or
//! about the settings behind an unclosed list, are left out.
//!
//! Sources: TOML 1.0, "Keys", "Table", "Array"; messages of the crate `toml`. Does not interpret
//! settings.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, Error};

use super::faults::Faults;
use super::reader::without_password;

/// Parses a text; the table is a guess where the text has faults.
pub(super) fn parse<'t>(text: &'t str, faults: &mut Faults<'_>) -> Spanned<DeTable<'t>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let is_setting = |error: &&Error| error.message().starts_with(EQUALS);
    let settings = errors.iter().filter(is_setting).filter_map(Error::span);
    let last_setting = settings.map(|place| place.start).max();
    let mut line_end = 0;
    for (at, error) in errors.iter().enumerate() {
        // After a syntax error the parser guesses until the end of the line.
        if let Some(place) = error.span() {
            if place.start < line_end {
                continue;
            }
            line_end = end_of_line(text, place.start);
        }
        let is_open = is_unclosed(text, error, &errors[at + 1..], last_setting);
        faults.add(error.span(), finding(text, error, is_open));
        if is_open {
            break;
        }
    }
    table
}

/// Fault and cure of an error.
fn finding(text: &str, error: &Error, is_open: bool) -> String {
    let message = error.message().lines().next().unwrap_or_default();
    match error.span() {
        Some(place) if message == DUPLICATE => twice(text, place),
        Some(place) if is_open => {
            let before = text.get(..place.start).unwrap_or_default().trim_end();
            let line = 1 + before.bytes().filter(|byte| *byte == b'\n').count();
            format!("{NO_COMMA}; close the list with ], line {line} or before")
        }
        _ => format!("{message}; write TOML 1.0"),
    }
}

/// Returns the fault of a table or key that is defined twice, by the place of its last name.
fn twice(text: &str, place: Range<usize>) -> String {
    let begin = line_begin(text, place.start);
    let line = text[begin..end_of_line(text, place.start)].trim();
    let is_header = line.starts_with('[') && text[place.end..].trim_start().starts_with(']');
    if !is_header {
        return format!("{} stands twice; leave one out", shown(&text[place]));
    }
    let path = &text[begin..place.end].trim_start().trim_start_matches('[').trim();
    let cure = match path.split_once('.') {
        _ if line.starts_with("[[") => format!("write it [[{}]] each time", shown(path)),
        Some((of @ ("channel" | "camera"), name)) if !name.contains('.') => {
            format!("give each {of} its own name")
        }
        _ => format!("leave one out, or write [[{}]] for each item of a list", shown(path)),
    };
    let brackets = if line.starts_with("[[") { ("[[", "]]") } else { ("[", "]") };
    format!("{}{}{} stands twice; {cure}", brackets.0, shown(path), brackets.1)
}

/// True when a setting or table begins within a list: the end of the list is missing, and the rest
/// is a guess. `last_setting` is the offset of the last setting that begins in a list.
fn is_unclosed(text: &str, error: &Error, later: &[Error], last_setting: Option<usize>) -> bool {
    let Some(place) = error.span().filter(|_| error.message().starts_with(NO_COMMA)) else {
        return false;
    };
    if text[line_begin(text, place.start)..].trim_start().starts_with('[') {
        return last_setting > Some(place.start);
    }
    let end = end_of_line(text, place.start);
    let is_here = |error: &&Error| error.span().is_some_and(|place| place.start < end);
    later.iter().take_while(is_here).any(|error| error.message().starts_with(EQUALS))
}

fn line_begin(text: &str, from: usize) -> usize {
    text.as_bytes()[..from].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
}

fn end_of_line(text: &str, from: usize) -> usize {
    let rest = text.as_bytes().iter().skip(from);
    (from + 1 + rest.take_while(|byte| **byte != b'\n').count()).min(text.len())
}

fn shown(text: &str) -> String {
    without_password(text).chars().take(SHOWN_CHARS_MAX).collect()
}

const DUPLICATE: &str = "duplicate key";
const NO_COMMA: &str = "missing comma between array elements";
const EQUALS: &str = "unexpected `=` in array";
const SHOWN_CHARS_MAX: usize = 80;
