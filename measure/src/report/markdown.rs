// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables in Markdown, for README and docs/: figures, and below them the set-up.
//!
//! Sources: GitHub Flavored Markdown, "Tables (extension)".
//! Does not contain bars or samples; the measurement file has the samples.

use std::fmt::Write;

use super::sections::{Section, tables};
use super::{Doubts, Ratios, facts, marks, number, published_sources, spread};
use crate::results::Results;

/// Returns tables, notes, warnings and facts in Markdown.
pub fn markdown(results: &Results) -> String {
    let mut text = format!("## {}\n", escape(&results.experiment));
    for note in &results.notes {
        let _ = write!(text, "\n- {}", escape(note));
    }
    if !results.notes.is_empty() {
        text.push('\n');
    }
    let doubts = Doubts::of(results);
    let ratios = Ratios::of(&results.rows);
    let shown = results.rows.iter().filter(|row| !row.detail && !ratios.is_beside(row));
    for section in tables(shown) {
        let _ = write!(text, "\n### {}\n\n", escape(&section.title()));
        table(&mut text, &section, &ratios, &doubts);
    }
    if let Some(details) = super::details(&results.rows) {
        let _ = writeln!(text, "\n{}.", escape(&details));
    }
    let sources = published_sources(&results.rows);
    if !sources.is_empty() {
        let _ = write!(text, "\nPublished, not measured here: {}.\n", escape(&sources.join("; ")));
    }
    if !doubts.kinds.is_empty() {
        text.push_str("\n### Warnings\n");
    }
    for (index, kind) in doubts.kinds.iter().enumerate() {
        let _ = write!(text, "\n**!{}** {}\n\n", index + 1, escape(kind.cure()));
        for warning in &kind.warnings {
            let _ = writeln!(text, "- {}", escape(&warning.to_string()));
        }
    }
    text.push_str("\n| | |\n|---|---|\n");
    for (name, value) in facts(results) {
        let _ = writeln!(text, "| {name} | {} |", escape(&value));
    }
    text
}

fn table(text: &mut String, section: &Section<'_>, ratios: &Ratios<'_>, doubts: &Doubts<'_>) {
    let columns = ratios.columns(section.metric, &section.rows);
    let any_marks = section.rows.iter().any(|row| !doubts.of_row(row).is_empty());
    let _ = write!(text, "| | {} | spread |", escape(&section.metric_line()));
    for column in &columns {
        let _ = write!(text, " {} |", escape(column));
    }
    text.push_str(if any_marks { " warnings |\n" } else { "\n" });
    text.push_str("|---|--:|--:|");
    text.push_str(&"--:|".repeat(columns.len()));
    text.push_str(if any_marks { "---|\n" } else { "\n" });
    for row in &section.rows {
        let (label, median) = (escape(&section.label(row)), number(row.figure.median));
        let _ = write!(text, "| {label} | {median} | {} |", spread(row));
        for column in &columns {
            let Some(ratio) = ratios.beside(row, column) else {
                text.push_str("  |");
                continue;
            };
            let (value, marks) = (number(ratio.figure.median), marks(&doubts.of_row(ratio)));
            let _ = write!(text, " {} |", format!("{value} {marks}").trim_end());
        }
        if any_marks {
            let _ = write!(text, " {} |", marks(&doubts.of_row(row)));
        }
        text.push('\n');
    }
}

/// Escapes text so that it contains no markup and no line break. An underscore within a word is no
/// markup and stays; many names have one.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    let mut before = ' ';
    while let Some(letter) = letters.next() {
        let within_word =
            before.is_alphanumeric() && letters.peek().is_some_and(|after| after.is_alphanumeric());
        match letter {
            '_' if within_word => escaped.push('_'),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' => {
                escaped.push('\\');
                escaped.push(letter);
            }
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            letter if letter.is_control() => escaped.push(' '),
            letter => escaped.push(letter),
        }
        before = letter;
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_is_markup() {
        assert_eq!(escape("wire_sendfile _x_ a|b"), r"wire_sendfile \_x\_ a\|b");
        assert_eq!(escape("<b>\n`*[l](u)"), r"&lt;b&gt; \`\*\[l\](u)");
    }
}
