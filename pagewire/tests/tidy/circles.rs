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
        (
            "a/mod.rs",
            "mod one;\n#[cfg(test)]\nmod trials;\nmod two;\npub(crate) use self::one::One;\n\
             pub(in crate::a) use two::Two as Other;\nuse crate::b::B;\n",
        ),
        ("a/one.rs", "use super::two::{self, Two};\nstruct Pause {\n    of: crate::d::D,\n}\n"),
        ("a/two.rs", "fn f() -> crate::a::One { todo!() }\n#[cfg(test)]\nmod tests {\n}\n"),
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
    let exported: Exports =
        modules.iter().map(|(of, (_, code))| (of.clone(), exports(of, code))).collect();
    let of_file = |of: &Vec<String>, code: &str| {
        let own = declarations(code).into_iter().filter(|declared| !declared.is_public);
        let own: Vec<_> =
            own.map(|declared| (declared.name, absolute(of, &declared.path))).collect();
        // A module that is imported leads to its contents: `use crate::web;`, `web::answer()`.
        let at = own.iter().filter(|(_, path)| modules.contains_key(path)).cloned().collect();
        let used = own.into_iter().map(|(_, path)| path).chain(paths(of, code, &at));
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

/// Returns the path from the crate's root; empty for one that begins with neither `crate` nor
/// `super`.
fn absolute(of: &[String], path: &[String]) -> Vec<String> {
    let ups = path.iter().take_while(|word| *word == "super").count();
    match path.first().map(String::as_str) {
        Some("crate") => path[1..].to_vec(),
        Some("super") => [&of[..of.len().saturating_sub(ups)], &path[ups..]].concat(),
        _ => Vec::new(),
    }
}

/// A name that a `use` declaration brings in.
struct Declared {
    is_public: bool,
    path: Vec<String>,
    name: String,
}

/// Returns the names of the `use` declarations.
fn declarations(code: &str) -> Vec<Declared> {
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
        expand(&mut Vec::new(), &tree[..end], &mut |path, name| {
            let is_glob = name == "*";
            assert!(!(is_glob && visibility.contains("pub")), "{path:?}: write the names");
            let name = name.to_owned();
            found.push(Declared { is_public: visibility.contains("pub"), path, name });
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
/// module that is imported (`at`), from the crate's root on.
fn paths(of: &[String], code: &str, at: &BTreeMap<String, Vec<String>>) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut is_declaration = false;
    for line in code.lines() {
        is_declaration |= declaration(line).1;
        if !is_declaration {
            let words = line.split(|c: char| !c.is_alphanumeric() && !"_:".contains(c));
            for word in words.filter(|word| word.contains("::")) {
                let path: Vec<_> = word.split("::").map(str::to_owned).collect();
                match at.get(&path[0]) {
                    Some(module) => found.push([module, &path[1..]].concat()),
                    None => found.push(absolute(of, &path)),
                }
            }
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
