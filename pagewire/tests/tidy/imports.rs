// SPDX-License-Identifier: MIT OR Apache-2.0
//! The imports of a Rust source file: names of `use` declarations, and paths elsewhere.
//!
//! No parser: lines, braces and colons are enough for code that rustfmt has formatted.
//!
//! Sources: The Rust Reference, "Use declarations", "Paths".
//! Does not read files or resolve re-exports.

use std::collections::BTreeMap;
use std::path::Path;

/// The code without test modules: one with a body ends the file, one without is a line.
pub(crate) fn without_tests(code: &str) -> String {
    let mut parts = code.split("#[cfg(test)]\nmod ");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let name = part.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(part.len());
        let Some(rest) = part[name..].strip_prefix(';') else { break };
        // The blank line keeps the numbers of lines.
        kept.push('\n');
        kept.push_str(rest);
    }
    kept
}

/// Returns the module path of a file below `folder`; empty for the crate's root.
pub(crate) fn module_path(file: &Path, folder: &Path) -> Vec<String> {
    let below = file.strip_prefix(folder).expect("it lies there").with_extension("");
    let mut path: Vec<_> = below.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    if path.last().is_some_and(|name| ["mod", "lib", "main"].contains(&name.as_str())) {
        path.pop();
    }
    path
}

/// Returns the path from the crate's root; empty for one that begins with neither `crate` nor
/// `super`.
pub(crate) fn absolute(of: &[String], path: &[String]) -> Vec<String> {
    let ups = path.iter().take_while(|word| *word == "super").count();
    match path.first().map(String::as_str) {
        Some("crate") => path[1..].to_vec(),
        Some("super") => [&of[..of.len().saturating_sub(ups)], &path[ups..]].concat(),
        _ => Vec::new(),
    }
}

/// A name that a `use` declaration brings in.
pub(crate) struct Declared {
    pub(crate) line: usize,
    pub(crate) is_public: bool,
    pub(crate) path: Vec<String>,
    pub(crate) name: String,
}

/// Returns the names of the `use` declarations.
pub(crate) fn declarations(code: &str) -> Vec<Declared> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(line) = rest.split_inclusive('\n').next() {
        let (visibility, is_declaration) = declaration(line);
        if !is_declaration {
            rest = &rest[line.len()..];
            continue;
        }
        let tree = &rest[visibility.len() + "use ".len()..];
        let end = tree.find(';').unwrap_or(tree.len());
        let line = code[..code.len() - rest.len()].lines().count() + 1;
        expand(&mut Vec::new(), &tree[..end], &mut |path, name| {
            let is_glob = name == "*";
            assert!(!(is_glob && visibility.contains("pub")), "{path:?}: write the names");
            let name = name.to_owned();
            found.push(Declared { line, is_public: visibility.contains("pub"), path, name });
        });
        rest = &tree[end..];
    }
    found
}

/// Splits a line that begins a `use` declaration in front of that word; otherwise returns false.
fn declaration(line: &str) -> (&str, bool) {
    let begins = line.find("use ").unwrap_or(0);
    let (before, from) = line.split_at(begins);
    let word = before.trim();
    let is_visibility =
        word.is_empty() || word == "pub" || (word.starts_with("pub(") && word.ends_with(')'));
    (before, from.starts_with("use ") && is_visibility)
}

/// Adds each path of a `use` tree, with the name that it has here.
fn expand(prefix: &mut Vec<String>, tree: &str, add: &mut impl FnMut(Vec<String>, &str)) {
    let tree = tree.trim();
    let depth = prefix.len();
    let (head, list) = match tree.split_once('{') {
        Some((head, list)) => (head, list.strip_suffix('}')),
        None => (tree, None),
    };
    let (name, alias) = head.split_once(" as ").unwrap_or((head, ""));
    prefix.extend(name.split("::").map(str::trim).filter(|w| !w.is_empty()).map(str::to_owned));
    match list {
        Some(list) => items(list).for_each(|item| expand(prefix, item, add)),
        None if !tree.is_empty() => {
            // `{self, Name}` names the module itself.
            let is_self = prefix.len() > 1 && prefix.last().is_some_and(|word| word == "self");
            let path = prefix[..prefix.len() - usize::from(is_self)].to_vec();
            let last = path.last().cloned().unwrap_or_default();
            add(path, if alias.is_empty() { &last } else { alias.trim() });
        }
        None => {}
    }
    prefix.truncate(depth);
}

/// Splits a list at the commas outside of braces.
fn items(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    list.split(move |letter| {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        letter == ',' && depth == 0
    })
}

/// Returns each path outside of `use` declarations that begins with `crate`, with `super` or with a
/// module that is imported (`at`), from the crate's root on, with its line.
pub(crate) fn paths(
    of: &[String],
    code: &str,
    at: &BTreeMap<String, Vec<String>>,
) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    let mut is_declaration = false;
    for (number, line) in (1..).zip(code.lines()) {
        is_declaration |= declaration(line).1;
        if !is_declaration {
            let words = line.split(|c: char| !c.is_alphanumeric() && !"_:".contains(c));
            for word in words.filter(|word| word.contains("::")) {
                let path: Vec<_> = word.split("::").map(str::to_owned).collect();
                let path = match at.get(&path[0]) {
                    Some(module) => [module, &path[1..]].concat(),
                    None => absolute(of, &path),
                };
                found.push((number, path));
            }
        }
        is_declaration &= !line.contains(';');
    }
    found
}
