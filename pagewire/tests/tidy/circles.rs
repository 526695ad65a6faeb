// SPDX-License-Identifier: MIT OR Apache-2.0
//! Import circles: source files of a crate that import each other have to be read together, so a
//! circle has few of them.
//!
//! A file imports those that its `use` lines and its paths name, from `crate` or `super` on. A name
//! that a module re-exports counts as the file that declares it. What a module takes from its own
//! children, as a list does from its members, is no import: they are read together anyway.
//!
//! Sources: The Rust Reference, "Use declarations", "Paths".
//! Does not look at tests, or at circles of crates, which cargo refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::layers::{is_product, without_tests};
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
        ("a/mod.rs", "mod one;\nmod two;\npub(crate) use self::one::One;\nuse crate::b::B;\n"),
        ("e/mod.rs", "mod f;\nuse self::f::F;\nfn g() {\n    f::g(serde::F);\n}\n"),
        ("e/f.rs", "use super::E;\n"),
        ("a/one.rs", "use super::two::{self, Two};\n"),
        ("a/two.rs", "fn f() -> crate::a::One { todo!() }\n#[cfg(test)]\nmod tests {\n}\n"),
        ("b.rs", "use crate::c::{C, d::D};\n"),
        ("c.rs", "#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n"),
        ("d.rs", "mod e;\n\nuse crate::{\n    a::One,\n    b,\n};\nuse std::io;\n"),
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
    assert_eq!(of("a::one"), [path("a::two")].into());
    assert_eq!(of("a::two"), [path("a::one")].into());
    assert_eq!(of("b"), [path("c")].into());
    assert_eq!(of("c"), [].into());
    assert_eq!((of("e"), of("e::f")), ([].into(), [path("e")].into()), "its own children");
    assert_eq!(of("d"), [path("a::one"), path("b")].into());
    assert_eq!(circles(&imports), [vec![path("a::one"), path("a::two")]]);
}

/// Returns the module path of a file below `folder`; empty for the crate's root.
fn module_path(file: &Path, folder: &Path) -> Vec<String> {
    let below = file.strip_prefix(folder).expect("it lies there").with_extension("");
    let mut path: Vec<_> = below.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    if path.last().is_some_and(|name| ["mod", "lib", "main"].contains(&name.as_str())) {
        path.pop();
    }
    path
}

/// Returns the modules that each module imports, without the crate's root.
fn imports(modules: &Modules) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    let exported: BTreeMap<_, _> =
        modules.iter().map(|(of, (_, code))| (of.clone(), exports(of, code))).collect();
    let named = |of: &Vec<String>, path: &[String]| {
        let mut wanted = absolute(of, path, false);
        // A name may be re-exported from one module to the next.
        for _ in 0..EXPORTS_MAX {
            let length = (0..=wanted.len()).rev().find(|&end| modules.contains_key(&wanted[..end]));
            let (module, rest) = wanted.split_at(length.unwrap_or(0));
            match rest.first().and_then(|name| exported.get(module)?.get(name)) {
                Some(declared) if declared.len() > 1 => wanted = declared.clone(),
                _ => return module.to_vec(),
            }
        }
        Vec::new()
    };
    let of_file = |of: &Vec<String>| {
        let code = &modules[of].1;
        let own = declarations(code).into_iter().filter(|(is_public, _)| !is_public);
        let used = own.map(|(_, path)| path).chain(paths(code));
        let found = used.map(|path| named(of, &path));
        found.filter(|found| found != of && !found.is_empty()).collect()
    };
    modules.keys().map(|of| (of.clone(), of_file(of))).collect()
}

/// Returns the names that a module re-exports, each with the path of its declaration.
fn exports(of: &[String], code: &str) -> BTreeMap<String, Vec<String>> {
    let public = declarations(code).into_iter().filter(|(is_public, _)| *is_public);
    let named = public.filter_map(|(_, path)| Some((path.last()?.clone(), path)));
    named.map(|(name, path)| (name, absolute(of, &path, true))).collect()
}

/// Returns the path from the crate's root; empty for one that begins with neither `crate` nor
/// `super`, unless children are looked for, too (`is_own`).
fn absolute(of: &[String], path: &[String], is_own: bool) -> Vec<String> {
    let mut base = of.to_vec();
    let mut rest = path;
    match path.first().map(String::as_str) {
        Some("crate") => (base.clear(), rest = &path[1..]).0,
        Some("super") => {}
        Some("self") if is_own => rest = &path[1..],
        _ if is_own => {}
        _ => return Vec::new(),
    }
    while rest.first().is_some_and(|word| word == "super") {
        base.pop();
        rest = &rest[1..];
    }
    base.extend_from_slice(rest);
    base
}

/// Returns each path of the `use` declarations, and whether it is re-exported.
fn declarations(code: &str) -> Vec<(bool, Vec<String>)> {
    let mut found = Vec::new();
    let mut is_public = false;
    let mut rest = code;
    while let Some(at) = rest.find("use ") {
        let before = rest[..at].rsplit('\n').next().unwrap_or_default();
        let is_declaration = before.trim().is_empty() || before.trim_start().starts_with("pub");
        is_public = if is_declaration { before.contains("pub") } else { is_public };
        rest = &rest[at + "use ".len()..];
        if is_declaration && let Some(end) = rest.find(';') {
            let mut paths = Vec::new();
            expand(&mut Vec::new(), &rest[..end], &mut paths);
            found.extend(paths.into_iter().map(|path| (is_public, path)));
            rest = &rest[end..];
        }
    }
    found
}

/// Adds the paths of a `use` tree.
fn expand(prefix: &mut Vec<String>, tree: &str, found: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    let depth = prefix.len();
    let (head, list) = match tree.split_once('{') {
        Some((head, list)) => (head, list.strip_suffix('}')),
        None => (tree, None),
    };
    let name = head.split(" as ").next().unwrap_or_default();
    prefix.extend(name.split("::").map(str::trim).filter(|w| !w.is_empty()).map(str::to_owned));
    match list {
        Some(list) => items(list).for_each(|item| expand(prefix, item, found)),
        None if !tree.is_empty() => {
            // `{self, Name}` names the module itself.
            let is_self = prefix.len() > 1 && prefix.last().is_some_and(|word| word == "self");
            found.push(prefix[..prefix.len() - usize::from(is_self)].to_vec());
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

/// Returns each path that begins with `crate` or `super` outside of `use` declarations.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut is_declaration = false;
    for line in code.lines() {
        let words = || line.split(|c: char| !c.is_alphanumeric() && !"_:".contains(c));
        is_declaration |= words().any(|word| word == "use");
        if !is_declaration {
            let is_path = |word: &&str| ["crate::", "super::"].iter().any(|s| word.starts_with(s));
            let paths = words().filter(is_path);
            found.extend(paths.map(|path| path.split("::").map(str::to_owned).collect()));
        }
        is_declaration &= !line.contains(';');
    }
    found
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
