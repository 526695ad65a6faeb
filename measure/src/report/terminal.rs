// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables for a terminal: notes, figures with bars, and at the end the warnings with cures.
//!
//! A table fits in 100 columns. Bars are drawn in eighths of a character and are proportional to
//! the medians within a table; those of published values are hatched. A doubtful figure has the
//! number of its warning before the bar: `!1`.
//!
//! Does not use colours, so that a pipe or a file holds the same text.

use std::fmt::Write;

use super::sections::{Section, tables};
use super::{Doubts, Ratios, facts, marks, number, pairs, published_sources, spread};
use crate::results::{Results, Row};

/// Returns the whole report for a terminal.
pub fn terminal(results: &Results) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "lab {}, {}", plain(&results.experiment), figures(results.rows.len()));
    for (name, value) in facts(results) {
        wrapped(&mut text, &format!("{name:FACT$}"), &value);
    }
    for note in &results.notes {
        wrapped(&mut text, "·", note);
    }
    let doubts = Doubts::of(results);
    let ratios = Ratios::of(&results.rows);
    let shown = results.rows.iter().filter(|row| !row.detail && !ratios.is_beside(row));
    for section in tables(shown) {
        table(&mut text, &section, &ratios, &doubts);
    }
    if let Some(details) = super::details(&results.rows) {
        text.push('\n');
        wrapped(&mut text, "", &details);
    }
    let sources = published_sources(&results.rows);
    if !sources.is_empty() {
        text.push('\n');
        wrapped(&mut text, "published, not measured here:", &sources.join("; "));
    }
    warnings(&mut text, &doubts);
    text
}

fn figures(count: usize) -> String {
    if count == 1 { "1 figure".to_owned() } else { format!("{count} figures") }
}

/// One line of a table, as text.
struct Line {
    member: String,
    own: String,
    median: String,
    spread: String,
    ratios: Vec<String>,
    marks: String,
    value: f64,
    published: bool,
}

fn table<'a>(text: &mut String, section: &Section<'a>, ratios: &Ratios<'a>, doubts: &Doubts<'a>) {
    let columns = ratios.columns(section.metric, &section.rows);
    let line = |row: &&'a Row| Line {
        member: cut(&plain(&row.member), MEMBER_CHARS_MAX),
        own: cut(&plain(&pairs(section.own(row))), OWN_CHARS_MAX),
        median: number(row.figure.median),
        spread: spread(row),
        ratios: columns
            .iter()
            .map(|column| ratios.beside(row, column))
            .map(|ratio| ratio.map(|row| number(row.figure.median)).unwrap_or_default())
            .collect(),
        marks: marks(&doubts.of_row(row)),
        value: row.figure.median,
        published: row.published.is_some(),
    };
    let lines: Vec<Line> = section.rows.iter().map(line).collect();
    let width = |of: fn(&Line) -> &str, least: usize| {
        lines.iter().map(|line| of(line).chars().count()).max().unwrap_or(0).max(least)
    };
    let member = width(|line| &line.member, 0);
    let own = width(|line| &line.own, 0);
    let median = width(|line| &line.median, 6);
    let spread = width(|line| &line.spread, 0);
    let mark = width(|line| &line.marks, 0).min(MARK_CHARS_MAX);
    let mut heading = plain(&section.title());
    for column in &columns {
        let _ = write!(heading, "; then {}", plain(column));
    }
    text.push('\n');
    wrapped(text, "", &heading);
    let used = member + own + median + spread + mark + columns.len() * (RATIO_CHARS + 2) + 12;
    let room = COLUMNS.saturating_sub(used).max(BAR_CHARS_MIN);
    let most = lines.iter().map(|line| line.value).fold(0.0, f64::max);
    for line in &lines {
        let mut shown = format!("  {:member$}  ", line.member);
        if own > 0 {
            let _ = write!(shown, "{:own$}  ", line.own);
        }
        let _ = write!(shown, "{:>median$}  ", line.median);
        if spread > 0 {
            let _ = write!(shown, "{:spread$}  ", line.spread);
        }
        for ratio in &line.ratios {
            let _ = write!(shown, "{ratio:>RATIO_CHARS$}  ");
        }
        if mark > 0 {
            let _ = write!(shown, "{:mark$}  ", cut(&line.marks, MARK_CHARS_MAX));
        }
        shown.push_str(&bar(line.value / most, room, line.published));
        let _ = writeln!(text, "{}", shown.trim_end());
    }
}

/// Draws a share of `room` characters; at least the smallest bar for a share above 0.
fn bar(share: f64, room: usize, hatched: bool) -> String {
    // 0 of 0 is NaN.
    if share.is_nan() || share <= 0.0 {
        return String::new();
    }
    let eighths = ((share.min(1.0) * room as f64 * 8.0).round() as usize).max(1);
    if hatched {
        return "░".repeat(eighths.div_ceil(8));
    }
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8 - 1]);
    }
    bar
}

fn warnings(text: &mut String, doubts: &Doubts<'_>) {
    if !doubts.kinds.is_empty() {
        text.push_str("\nwarnings\n");
    }
    for (index, kind) in doubts.kinds.iter().enumerate() {
        for (place, warning) in kind.warnings.iter().take(WARNINGS_MAX).enumerate() {
            let mark = if place == 0 { format!("!{}", index + 1) } else { String::new() };
            wrapped(text, &format!("{mark:3}"), &warning.to_string());
        }
        if let Some(more @ 1..) = kind.warnings.len().checked_sub(WARNINGS_MAX) {
            wrapped(text, "   ", &format!("and {more} more like these"));
        }
        wrapped(text, "    cure:", kind.cure());
    }
}

/// Appends `head` and `text`, broken at words so that each line fits; further lines are indented.
pub fn wrapped(target: &mut String, head: &str, text: &str) {
    let indent = if head.is_empty() { 2 } else { head.chars().count() + 1 };
    let mut column = head.chars().count();
    target.push_str(head);
    let mut first = true;
    for word in plain(text).split_whitespace() {
        let chars = word.chars().count();
        if column + 1 + chars > COLUMNS && !first {
            let _ = write!(target, "\n{:indent$}", "");
            column = indent;
        } else if column > 0 {
            target.push(' ');
            column += 1;
        }
        target.push_str(word);
        column += chars;
        first = false;
    }
    target.push('\n');
}

/// Replaces control characters, which a terminal would interpret. The printing program escapes
/// other special characters, such as changes of the writing direction.
pub fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

/// Returns at most `chars` characters; the last is a mark when some are missing.
fn cut(text: &str, chars: usize) -> String {
    if text.chars().count() <= chars {
        return text.to_owned();
    }
    text.chars().take(chars - 1).chain(['…']).collect()
}

const COLUMNS: usize = 100;
const FACT: usize = 10;
const MEMBER_CHARS_MAX: usize = 24;
const OWN_CHARS_MAX: usize = 26;
const RATIO_CHARS: usize = 7;
const MARK_CHARS_MAX: usize = 8;
const BAR_CHARS_MIN: usize = 8;
const WARNINGS_MAX: usize = 6;
const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_proportional_to_an_eighth() {
        assert_eq!(bar(1.0, 4, false), "████");
        assert_eq!(bar(0.5, 4, false), "██");
        assert_eq!(bar(0.3, 4, false), "█▎");
        assert_eq!(bar(1e-9, 4, false), "▏");
        assert_eq!(bar(0.3, 4, true), "░░");
        for nothing in [0.0, -1.0, f64::NAN] {
            assert_eq!(bar(nothing, 4, false), "");
        }
        assert_eq!(bar(f64::INFINITY, 4, false), "████");
    }

    #[test]
    fn lines_break_at_words_within_the_width() {
        let mut text = String::new();
        wrapped(&mut text, "·", &"word ".repeat(50));
        assert!(text.lines().count() == 3, "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= COLUMNS && !line.ends_with(' '), "{line:?}");
        }
        assert!(text.lines().skip(1).all(|line| line.starts_with("  word")), "{text}");
    }

    #[test]
    fn a_terminal_is_given_no_orders() {
        assert_eq!(plain("a\u{1b}[2Jb\r\nc"), "a\u{fffd}[2Jb\u{fffd}\u{fffd}c");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abcd", 4), "abcd");
    }
}
