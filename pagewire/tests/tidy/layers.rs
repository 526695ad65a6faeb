// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order of the folders of `serve`: a layer imports itself and those below, never one above.
//!
//! Modules that import each other in a circle can be read only together. ARCHITECTURE.md draws the
//! layers; the list is here.
//!
//! Does not look at tests, which may import any module, nor at the order within a layer.

use std::collections::BTreeMap;
use std::path::Path;

use crate::imports::{absolute, declarations, module_path, paths, without_tests};
use crate::text::code_of;
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
        let of = module_path(file, Path::new(SOURCES));
        let Some(own) = of.first().and_then(|module| layer(module)) else { continue };
        let short = file.strip_prefix(SOURCES).expect("it lies there").to_string_lossy();
        let code = without_tests(&code_of(&read(&root, file)));
        for (line, imported) in imports(&of, &code) {
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
                let c = super::super::web::c() + crate::Error;\n\
                #[cfg(test)]\nmod tests {\n    use crate::rtsp::Session;\n}\n";
    let found = imports(&["http".to_owned(), "page".to_owned()], &without_tests(text));
    let expected = [(1, "pacer"), (2, "admin"), (2, "http"), (3, "meter"), (4, "web")];
    assert_eq!(found, expected.map(|(line, name)| (line, name.to_owned())));
    let path = |file: &str| module_path(Path::new(file), Path::new(SOURCES));
    assert_eq!(path("serve/src/pacer/mod.rs"), ["pacer"]);
    assert_eq!(path("serve/src/meter.rs"), ["meter"]);
    assert!(!is_product(Path::new("serve/src/pacer/tests.rs")));
    assert!(!is_product(Path::new("serve/src/tls/tests/mod.rs")));
}

/// Line and first module of each import from the crate's root.
fn imports(of: &[String], code: &str) -> Vec<(usize, String)> {
    let declared = declarations(code).into_iter();
    let declared = declared.map(|declared| (declared.line, absolute(of, &declared.path)));
    let used = declared.chain(paths(of, code, &BTreeMap::new()));
    let first = used.filter_map(|(line, path)| Some((line, path.into_iter().next()?)));
    // Types of the crate's root are no modules.
    first.filter(|(_, name)| name.starts_with(|c: char| c.is_ascii_lowercase())).collect()
}

pub(crate) fn is_product(file: &Path) -> bool {
    let is_trial = |name: &str| {
        ["tests", "trials"].contains(&name) || name.ends_with("_tests") || name.ends_with("_trials")
    };
    let mut names = file.iter().map(|name| name.to_string_lossy());
    has_extension(file, "rs") && !names.any(|name| is_trial(name.trim_end_matches(".rs")))
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|names| names.contains(&module))
}
