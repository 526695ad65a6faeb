// SPDX-License-Identifier: MIT OR Apache-2.0
//! Import circles: source files of a crate that import each other have to be read together, so a
//! circle has few of them.
//!
//! A file imports those that its `use` lines and its paths name, from `crate` or `super` on. A name
//! that a module re-exports counts as the file that declares it. What a module takes from its own
//! children, as a list does from its members, is not counted.
//!
//! Sources: The Rust Reference, "Use declarations", "Paths".
//! Does not look at tests, or at circles of crates, which cargo refuses. Does not find a circle
//! that leads through a parent module to another of its children.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::imports::{absolute, declarations, module_path, paths, without_tests};
use crate::layers::is_product;
use crate::text::code_of;
use crate::{Findings, files, members, read, root};

/// Most files of a circle.
const FILES_MAX: usize = 6;

/// The files of a crate by module path, with the code of each.
type Modules = BTreeMap<Vec<String>, (PathBuf, String)>;

#[test]
fn import_circles_are_small() {
    let Some(files) = files() else { return };
    let root = root();
    let mut findings = Findings::default();
    for member in members(&root) {
        let folder = PathBuf::from(&member).join("src");
        let sources = files.iter().filter(|file| file.starts_with(&folder) && is_product(file));
        let code = |file: &PathBuf| without_tests(&code_of(&read(&root, file)));
        let modules = sources.map(|file| (module_path(file, &folder), (file.clone(), code(file))));
        let modules: Modules = modules.collect();
        for circle in circles(&imports(&modules)) {
            if circle.len() > FILES_MAX {
                let file = &modules[&circle[0]].0;
                let names: Vec<_> = circle.iter().map(|path| path.join("::")).collect();
                let what = format!(
                    "{} files import each other, {FILES_MAX} may ({}); move what they share into \
                     a file below them",
                    names.len(),
                    names.join(", ")
                );
                findings.add(file, 1, &what);
            }
        }
    }
    findings.assert_none();
}

#[test]
fn circles_are_found_over_re_exports_and_not_in_tests() {
    let sources = [
        ("lib.rs", "mod a;\npub use a::One;\n"),
        (
            "a/mod.rs",
            "mod one;\n#[cfg(test)]\nmod trials;\nmod two;\npub(crate) use self::one::One;\n\
             pub(in crate::a) use two::Two as Other;\nuse crate::b::B;\n",
        ),
        ("a/one.rs", "use super::two::{self, Two};\nstruct Pause {\n    of: crate::d::D,\n}\n"),
        ("a/two.rs", "fn f(_: crate::a::One) {}\n#[cfg(test)]\nmod tests {\n}\n"),
        (
            "b.rs",
            "use crate::c::{C, d::D};\nfn f() -> impl Copy + use<> {\n    crate::a::Other\n}\n",
        ),
        ("c.rs", "#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n"),
        ("d.rs", "use crate::{\n    a::One,\n    b as other,\n    e,\n};\nuse std::io;\n"),
        (
            "e/mod.rs",
            "mod f;\npub(crate) use self::f as files;\nfn g() {\n    f::g(serde::F);\n}\n",
        ),
        ("e/f.rs", "use super::E;\n"),
        ("g.rs", "use crate::e;\nfn g() {\n    e::files::F::new(std::e::f::F)\n}\n"),
    ];
    let folder = Path::new("");
    let modules = sources.map(|(file, text)| {
        let file = PathBuf::from(file);
        (module_path(&file, folder), (file, without_tests(text)))
    });
    let imports = imports(&modules.into());
    let path = |text: &str| text.split("::").map(str::to_owned).collect::<Vec<_>>();
    let of = |text: &str| imports[&path(text)].clone();
    assert_eq!(of("a"), [path("b")].into(), "what a module re-exports is not its import");
    assert_eq!(of("a::one"), [path("a::two"), path("d")].into());
    assert_eq!(of("a::two"), [path("a::one")].into());
    assert_eq!(of("b"), [path("c"), path("a::two")].into(), "by the other name");
    assert_eq!(of("c"), [].into());
    assert_eq!((of("e"), of("e::f")), ([].into(), [path("e")].into()), "its own children");
    assert_eq!(of("d"), [path("a::one"), path("b"), path("e")].into());
    assert_eq!(of("g"), [path("e"), path("e::f")].into(), "through the module that is imported");
    let circle = ["a::one", "a::two", "b", "d"].map(path).to_vec();
    assert_eq!(circles(&imports), [circle]);
}

/// Returns the modules that each module imports, without the crate's root.
fn imports(modules: &Modules) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    let exported: Exports =
        modules.iter().map(|(of, (_, code))| (of.clone(), exports(of, code))).collect();
    let of_file = |of: &Vec<String>, code: &str| {
        let own = declarations(code).into_iter().filter(|declared| !declared.is_public);
        let own: Vec<_> =
            own.map(|declared| (declared.name, absolute(of, &declared.path))).collect();
        // A module that is imported leads to its contents: `use crate::web;`, `web::answer()`.
        let at = own.iter().filter(|(_, path)| modules.contains_key(path)).cloned().collect();
        let used = own
            .into_iter()
            .map(|(_, path)| path)
            .chain(paths(of, code, &at).into_iter().map(|(_, path)| path));
        let found = used.map(|path| declared_in(modules, &exported, path));
        found.filter(|found| found != of && !found.is_empty()).collect()
    };
    modules.iter().map(|(of, (_, code))| (of.clone(), of_file(of, code))).collect()
}

/// Names that each module re-exports, with the paths of their declarations.
type Exports = BTreeMap<Vec<String>, BTreeMap<String, Vec<String>>>;

/// Returns the module that declares what `path` names.
fn declared_in(modules: &Modules, exported: &Exports, mut path: Vec<String>) -> Vec<String> {
    for _ in 0..EXPORTS_MAX {
        let end = (0..=path.len()).rev().find(|&end| modules.contains_key(&path[..end]));
        let (module, rest) = path.split_at(end.unwrap_or(0));
        let declared = rest.first().and_then(|name| exported.get(module)?.get(name));
        // A re-export of another crate has no path here.
        let Some(declared) = declared.filter(|declared| !declared.is_empty()) else {
            return module.to_vec();
        };
        path = [declared, &rest[1..]].concat();
    }
    panic!("{path:?}: re-exported more than {EXPORTS_MAX} times");
}

/// Returns the names that a module re-exports, each with the path of its declaration.
fn exports(of: &[String], code: &str) -> BTreeMap<String, Vec<String>> {
    let public = declarations(code).into_iter().filter(|declared| declared.is_public);
    let absolute = |path: &[String]| match path.first().map(String::as_str) {
        Some("crate" | "super") => absolute(of, path),
        Some("self") => [of, &path[1..]].concat(),
        _ => [of, path].concat(),
    };
    public.map(|declared| (declared.name, absolute(&declared.path))).collect()
}

/// Returns the circles, each in order, the largest first.
fn circles(imports: &BTreeMap<Vec<String>, BTreeSet<Vec<String>>>) -> Vec<Vec<Vec<String>>> {
    let reached = |from: &Vec<String>| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(next) = open.pop() {
            for import in imports.get(&next).into_iter().flatten() {
                if seen.insert(import.clone()) {
                    open.push(import.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<_, _> = imports.keys().map(|from| (from, reached(from))).collect();
    let mut found = BTreeSet::new();
    for (from, seen) in &reached {
        if seen.contains(*from) {
            let is_mutual = |other: &&Vec<String>| reached[other].contains(*from);
            found.insert(seen.iter().filter(is_mutual).cloned().collect::<Vec<_>>());
        }
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

/// Most modules that re-export one name.
const EXPORTS_MAX: usize = 4;
