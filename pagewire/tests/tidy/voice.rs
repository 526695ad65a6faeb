// SPDX-License-Identifier: MIT OR Apache-2.0
//! The openings, phrases and identifiers that the house style bans, looked for in Rust.
//!
//! docs/style.md has the three tables: the words, and what to write instead. They are read from
//! there, so that a row more is a rule more.
//!
//! Sources: docs/style.md, "Sentences".
//! Does not look at literals, which users read, nor at other languages; does not judge grammar.

use std::path::{Path, PathBuf};

use crate::text::{code_of, line_comments, words};
use crate::{Findings, files, has_extension, quoted, read, root};

const STYLE: &str = "docs/style.md";

/// Files and folders that may contain a banned word, the word, and the reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("client/src", "Starting", "a stage of a load, as its JSON and its progress name it"),
    ("pagewire/src/load.rs", "Starting", "shows the stage"),
    ("measure", "taken", "the time of a run, as its JSON names it"),
    ("stalls/src/report.rs", "taken", "the same of a report of stalls"),
    ("lab/tests/documents", "taken", "reads both"),
];

/// Banned words in backquotes, and the cell with what to write.
type Rule = (String, String);

#[test]
fn comments_and_identifiers_are_in_the_house_style() {
    let Some(files) = files() else { return };
    let root = root();
    let style = read(&root, Path::new(STYLE));
    let [openings, phrases, identifiers] =
        ["openings", "phrases", "identifiers"].map(|table| rules(&style, table));
    let mut findings = Findings::default();
    let mut excepted = Vec::new();
    let mut report = |file: &PathBuf, line: usize, (word, instead): &Rule| {
        let exception =
            |(of, banned, _): &&(&str, &str, &str)| file.starts_with(of) && banned == word;
        match EXCEPTIONS.iter().find(exception) {
            Some(exception) => excepted.push(exception),
            None => {
                let what = format!("`{word}`; write as {STYLE} has it: {instead}");
                findings.add(file, line, &what);
            }
        }
    };
    for file in files.iter().filter(|file| has_extension(file, "rs")) {
        let text = read(&root, file);
        for paragraph in paragraphs(&text) {
            for rule in openings.iter().filter(|(word, _)| paragraph.opens_with(word)) {
                report(file, paragraph.lines[0].0, rule);
            }
            for rule in &phrases {
                for line in paragraph.lines_with(&rule.0) {
                    report(file, line, rule);
                }
            }
        }
        for (index, line) in code_of(&text).lines().enumerate() {
            for word in words(line) {
                if let Some(rule) = identifiers.iter().find(|(banned, _)| banned == word) {
                    report(file, index + 1, rule);
                }
            }
        }
    }
    findings.assert_none();
    for exception in EXCEPTIONS {
        assert!(excepted.contains(&exception), "{exception:?}: not there; remove it");
    }
}

#[test]
fn banned_words_are_found_across_lines_and_not_in_names() {
    let text = "/// Takes a packet.\n\
        ///\n\
        /// It goes\n\
        /// on. `goes on` is a name.\n\
        fn f() { g(\"goes on\"); } // Whatever it is.\n\n\
        // Which\n";
    let found: Vec<Paragraph> = paragraphs(text);
    let openings = ["Takes", "What", "Whatever", "Which"];
    let opened = |word| found.iter().filter(|paragraph| paragraph.opens_with(word)).count();
    assert_eq!(openings.map(opened), [1, 0, 1, 1], "{found:?}");
    let lines: Vec<usize> = found.iter().flat_map(|text| text.lines_with("goes on")).collect();
    assert_eq!(lines, [3], "{found:?}");
}

#[test]
fn headers_begin_without_the_name_of_their_module() {
    let Some(files) = files() else { return };
    let root = root();
    let mut findings = Findings::default();
    for file in files.iter().filter(|file| has_extension(file, "rs")) {
        let text = read(&root, file);
        let header = text.lines().enumerate().find(|(_, line)| line.starts_with("//! "));
        let Some((index, line)) = header else { continue };
        let names = file.with_extension("");
        let mut names = names.iter().map(|name| name.to_string_lossy());
        let opening = line["//! ".len()..].split_once(": ").map(|(name, _)| name.trim_matches('`'));
        if let Some(name) = opening
            && names.any(|part| part == name)
        {
            findings.add(file, index + 1, &format!("`{name}:` in front; the sentence alone"));
        }
    }
    findings.assert_none();
}

/// A comment up to an empty line.
#[derive(Debug, Default)]
struct Paragraph {
    /// `//`, `///` or `//!`.
    marker: String,
    text: String,
    /// The number of each line, and where it begins in the text.
    lines: Vec<(usize, usize)>,
    /// The text in lower case, names in backquotes blanked.
    searched: String,
}

impl Paragraph {
    fn push(&mut self, line: usize, words: &str) {
        self.lines.push((line, self.text.len()));
        self.text.push_str(words);
        self.text.push(' ');
    }

    fn close(mut self) -> Paragraph {
        let parts = self.text.split('`').enumerate();
        let blanked = parts.map(|(index, part)| match index % 2 {
            0 => part.to_ascii_lowercase(),
            _ => " ".repeat(part.len()),
        });
        self.searched = blanked.collect::<Vec<_>>().join(" ");
        self
    }

    fn opens_with(&self, opening: &str) -> bool {
        self.text.strip_prefix(opening).is_some_and(|rest| !rest.starts_with(is_letter))
    }

    /// Numbers of the lines at which `phrase` begins; its end may be in the next.
    fn lines_with(&self, phrase: &str) -> Vec<usize> {
        let text = &self.searched;
        let begins = text.match_indices(phrase).map(|(from, _)| from);
        let whole = begins.filter(|from| {
            let (before, after) = (&text[..*from], &text[from + phrase.len()..]);
            !before.ends_with(is_letter) && !after.starts_with(is_letter)
        });
        let line = |from| self.lines.iter().rev().find(|(_, start)| *start <= from);
        whole.filter_map(line).map(|(line, _)| *line).collect()
    }
}

fn is_letter(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn paragraphs(text: &str) -> Vec<Paragraph> {
    let mut found: Vec<Paragraph> = Vec::new();
    let mut next = 0;
    for (line, comment) in line_comments(text) {
        let words = comment.trim_start_matches(['/', '!']);
        let marker = &comment[..comment.len() - words.len()];
        let words = words.trim();
        let is_list = words.starts_with(['-', '*', '|', '#']);
        match found.last_mut() {
            _ if words.is_empty() => {}
            Some(paragraph) if line == next && paragraph.marker == marker && !is_list => {
                paragraph.push(line, words);
            }
            _ => {
                let mut paragraph = Paragraph { marker: marker.to_owned(), ..Default::default() };
                paragraph.push(line, words);
                found.push(paragraph);
            }
        }
        next = if words.is_empty() { 0 } else { line + 1 };
    }
    found.into_iter().map(Paragraph::close).collect()
}

/// The rows of a table of the style: each banned word, and what to write instead.
fn rules(style: &str, table: &str) -> Vec<Rule> {
    let (_, rows) = style.split_once(&format!("<!-- {table}: ")).expect("the table's marker");
    let (rows, _) = rows.split_once("<!-- end of ").expect("the table's end");
    let mut found = Vec::new();
    for row in rows.lines() {
        if let [_, not, but, _] = row.split('|').collect::<Vec<_>>()[..] {
            found.extend(quoted(not).into_iter().map(|word| (word, but.trim().to_owned())));
        }
    }
    assert!(found.len() > 5, "{STYLE} has a table of {table}: {found:?}");
    found
}
