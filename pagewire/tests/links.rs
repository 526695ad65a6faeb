// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links of the documents: each leads to a file or folder that exists.
//!
//! Checked in Markdown at the root, in docs/ and in each crate's README.md: relative links, and
//! paths in backquotes that begin with a name at the root and end in an extension. Findings are
//! listed together, each as `file:line: target`.
//!
//! Does not check addresses of other hosts, anchors within a document, or Markdown below a crate.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

/// Marks a path that stands for any name (`NAME`, `*`, `{name}`): no file has it.
const PLACEHOLDERS: &[char] = &['*', '{', '}', '<', '>', '$', '…', ' '];

#[test]
fn every_link_of_the_documents_leads_to_a_file() {
    let root = root();
    let mut findings = Vec::new();
    for document in documents(&root) {
        let path = root.join(&document);
        let text = fs::read_to_string(&path).expect("a document in UTF-8");
        let folder = path.parent().expect("a document lies in a folder");
        for (line, target) in links(&text) {
            if !folder.join(&target).exists() {
                findings.push(format!("{}:{line}: {target}", document.display()));
            }
        }
        for (line, target) in quoted_paths(&root, &text) {
            if !root.join(&target).exists() {
                findings.push(format!("{}:{line}: {target}", document.display()));
            }
        }
    }
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

#[test]
fn links_and_quoted_paths_are_found() {
    let text = "[a](b/c.md#d), [e](\n../f.md)\n[g](https://h/i.md) [j](#k)\n";
    let expected = [(1, "b/c.md"), (1, "../f.md")];
    assert_eq!(links(text), expected.map(|(line, target)| (line, target.to_owned())));
    let text = "`docs/a.md` `b.md`\n`docs/{name}.md` `docs/` `docs/c.md --all`\n";
    assert_eq!(quoted_paths(&root(), text), [(1, "docs/a.md".to_owned())]);
}

/// Returns the top of the repository.
fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("the crate lies below the workspace").to_owned()
}

/// Returns Markdown at the root and in docs/, and README.md of each folder at the root.
fn documents(root: &Path) -> Vec<PathBuf> {
    let is_markdown = |name: &PathBuf| name.extension().is_some_and(|found| found == "md");
    let mut found: Vec<PathBuf> = names(root).into_iter().filter(is_markdown).collect();
    let docs = names(&root.join("docs")).into_iter().map(|name| Path::new("docs").join(name));
    found.extend(docs.filter(is_markdown));
    let readmes = names(root).into_iter().map(|name| name.join("README.md"));
    found.extend(readmes.filter(|name| name.parent() != Some(Path::new("docs"))));
    found.retain(|name| root.join(name).is_file());
    found.sort();
    assert!(!found.is_empty(), "no document below {}", root.display());
    found
}

/// Returns names of the files and folders in a folder.
fn names(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder that can be read");
    entries.map(|entry| entry.expect("an entry of the folder").file_name().into()).collect()
}

/// Returns line number and target of each relative link, without its anchor.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, opening) in text.match_indices("](") {
        let rest = &text[at + opening.len()..];
        let Some((target, _)) = rest.split_once(')') else { continue };
        let target = target.trim().split('#').next().unwrap_or_default();
        if target.is_empty() || target.contains("://") || target.contains(PLACEHOLDERS) {
            continue;
        }
        found.push((line_of(text, at), target.to_owned()));
    }
    found
}

/// Returns line number and text of each path in backquotes that begins at the root and has an
/// extension.
fn quoted_paths(root: &Path, text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for quoted in line.split('`').skip(1).step_by(2) {
            let Some((first, _)) = quoted.split_once('/') else { continue };
            let has_extension = Path::new(quoted).extension().is_some();
            if first.is_empty() || !has_extension || quoted.contains(PLACEHOLDERS) {
                continue;
            }
            // Folders that builds and runs create are in no checkout.
            if root.join(first).is_dir() && !["out", "target"].contains(&first) {
                found.push((index + 1, quoted.to_owned()));
            }
        }
    }
    found
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}
