// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order of the folders of `serve`: a layer imports itself and those below, never one above.
//!
//! Modules that import each other in a circle can be read only together. ARCHITECTURE.md draws the
//! layers; the list is here.
//!
//! Does not look at tests, which may import any module, nor at the order within a layer.

use std::path::{Path, PathBuf};

use crate::text::{code_of, words};
use crate::{Findings, files, has_extension, read, root};

/// Layers from the bottom: a module, which is a file or folder of `serve/src`, is in one of them.
/// Modules that are in none lie above all.
const LAYERS: &[&[&str]] = &[
    &[
        "error",
        "limits",
        "meter",
        "nameless_file",
        "random",
        "segment_key",
        "swapped",
        "ticks",
        "tls",
        "turn",
        "write_deadline",
    ],
    &["library", "prefetch", "wire_image"],
    &["play"],
    &["pacer"],
];

/// Imports against the order: file, module above it, and the reason.
const EXCEPTIONS: &[(&str, &str, &str)] =
    &[("error.rs", "channel", "the crate's one error has those of channels")];

const SOURCES: &str = "serve/src";

#[test]
fn modules_of_the_server_import_no_layer_above() {
    let Some(files) = files() else { return };
    let root = root();
    let (mut findings, mut excepted) = (Findings::default(), Vec::new());
    for file in files.iter().filter(|file| file.starts_with(SOURCES) && is_product(file)) {
        let Some(own) = layer(&module(file)) else { continue };
        let short = file.strip_prefix(SOURCES).expect("it lies there").to_string_lossy();
        for (line, imported) in imports(&without_tests(&code_of(&read(&root, file)))) {
            if layer(&imported).is_some_and(|other| other <= own) {
                continue;
            }
            match EXCEPTIONS.iter().find(|(of, above, _)| *of == short && *above == imported) {
                Some(exception) => excepted.push(exception),
                None => findings.add(file, line, &format!("imports {imported}, a layer above it")),
            }
        }
    }
    findings.assert_none();
    for exception in EXCEPTIONS {
        assert!(excepted.contains(&exception), "{exception:?}: no such import; remove it");
    }
}

#[test]
fn imports_are_found_outside_of_tests() {
    let text = "use crate::pacer::Handle;\nuse crate::{admin, http};\nlet a = crate::meter::b();\n\
                #[cfg(test)]\nmod tests {\n    use crate::rtsp::Session;\n}\n";
    let found = imports(&without_tests(text));
    let expected = [(1, "pacer"), (2, "admin"), (2, "http"), (3, "meter")];
    assert_eq!(found, expected.map(|(line, name)| (line, name.to_owned())));
    assert_eq!(module(Path::new("serve/src/pacer/mod.rs")), "pacer");
    assert_eq!(module(Path::new("serve/src/meter.rs")), "meter");
    assert!(!is_product(Path::new("serve/src/pacer/tests.rs")));
    assert!(!is_product(Path::new("serve/src/tls/tests/mod.rs")));
}

/// Line and module of each `crate::module`, and of each name in `crate::{…}` of a line.
fn imports(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in code.lines().enumerate() {
        for (at, path) in line.match_indices("crate::") {
            let rest = &line[at + path.len()..];
            let names = match rest.strip_prefix('{') {
                Some(list) => list.split('}').next().unwrap_or_default(),
                None => rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(""),
            };
            let names = names.split(',').filter_map(|name| words(name).next());
            // Types of the crate's root are no modules.
            let names = names.filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase()));
            found.extend(names.map(|name| (index + 1, name.to_owned())));
        }
    }
    found
}

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

pub(crate) fn is_product(file: &Path) -> bool {
    let is_trial = |name: &str| name == "tests" || name.ends_with("_trials") || name == "trials";
    let mut names = file.iter().map(|name| name.to_string_lossy());
    has_extension(file, "rs") && !names.any(|name| is_trial(name.trim_end_matches(".rs")))
}

/// The file or folder directly below `serve/src` that a file is, or lies in.
fn module(file: &Path) -> String {
    let below: PathBuf = file.iter().skip(Path::new(SOURCES).iter().count()).collect();
    let first = below.iter().next().unwrap_or_default().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|names| names.contains(&module))
}
