// SPDX-License-Identifier: MIT OR Apache-2.0
//! The house rules that a program can check, checked on the source tree itself.
//!
//! A rule that only a reader enforces decays. These cost a few milliseconds: plain text, no parser
//! for Rust or TOML. Findings are listed all together, each as `file:line: what; what to do`.
//!
//! Sources: ARCHITECTURE.md ("The crates": which crate may depend on which); the idea is from
//! TigerBeetle's `tidy.zig`.
//!
//! Does not look at what git ignores, nor judge the length of functions.
#![forbid(unsafe_code)]

mod circles;
mod clocks;
mod commits;
mod imports;
mod layers;
mod text;
mod voice;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use text::{code_of, declared_modules, names_folder, public_types, words};

/// Folders and files in which `unsafe` may be written. Crates that own none of these folders forbid
/// it.
const UNSAFE_FOLDERS: &[&str] =
    &["paths/src/sys/", "simd/", "lab/src/specimens/", "stalls/src/forwarding.rs"];

/// Has the table of crates and their dependencies.
const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// Crates, by the names of their libraries, that the laboratory's program has and the product's
/// not.
const LABORATORY_ONLY: &[&str] =
    &["addr2line", "iced_x86", "nix", "object", "perf_event", "stalls"];

/// Packages whose library has a name of its own.
const LIBRARY_NAMES: &[(&str, &str)] = &[("md-5", "md5"), ("perf-event2", "perf_event")];

/// Names of public types that several crates may have, and why.
const SHARED_TYPE_NAMES: &[(&str, &str)] =
    &[("Error", "each crate has its own; callers write `paths::Error`")];

/// Crates of the server, whose locks are those of `parking_lot`.
const POISON_FREE: &[&str] = &["access/src", "serve/src"];
const POISONING: &[&str] = &["Mutex", "RwLock", "Condvar", "PoisonError"];

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] =
    &["common", "core", "helper", "helpers", "misc", "types", "util", "utils"];

const COLUMNS_MAX: usize = 100;
const LINES_MAX: usize = 600;
const LINES_REASON: &str = "over 600 lines because";
/// The SPDX line may stand below `#!` and the like.
const SPDX_WITHIN_LINES: usize = 3;
const SPDX: &str = concat!("SPDX-License-", "Identifier: ");

#[test]
fn dependencies_are_those_that_the_architecture_draws() {
    let root = root();
    let text = read(&root, Path::new(ARCHITECTURE));
    let drawn = drawn_arrows(&text);
    let members = members(&root);
    let mut findings = Findings::default();
    for (line, name, _) in drawn.iter().filter(|(_, name, _)| !members.contains(name)) {
        findings.add(Path::new(ARCHITECTURE), *line, &format!("`{name}` is no crate; remove it"));
    }
    for member in &members {
        let manifest = PathBuf::from(member).join("Cargo.toml");
        let Some((row, _, allowed)) = drawn.iter().find(|(_, name, _)| name == member) else {
            let what = format!("a crate without a row among the crates of {ARCHITECTURE}; add it");
            findings.add(&manifest, 1, &what);
            continue;
        };
        let found = dependencies(&read(&root, &manifest));
        for (line, dependency) in &found {
            if members.contains(dependency) && !allowed.contains(dependency) {
                let what = format!("{member} → {dependency} is no arrow of {ARCHITECTURE}");
                findings.add(&manifest, *line, &what);
            }
        }
        for arrow in allowed.iter().filter(|name| !found.iter().any(|(_, found)| found == *name)) {
            let what = format!("{member} → {arrow} is drawn and not in {member}/Cargo.toml");
            findings.add(Path::new(ARCHITECTURE), *row, &what);
        }
    }
    findings.assert_none();
}

/// A dependency that no line of a crate names costs each build of it, and draws a false arrow.
#[test]
fn every_dependency_is_used() {
    let Some(files) = files() else { return };
    let root = root();
    let mut findings = Findings::default();
    for member in members(&root) {
        let sources = files.iter().filter(|file| file.starts_with(&member));
        let sources = sources.filter(|file| has_extension(file, "rs"));
        let text: String = sources.map(|file| code_of(&read(&root, file))).collect();
        let manifest = PathBuf::from(&member).join("Cargo.toml");
        for (line, package) in dependencies(&read(&root, &manifest)) {
            let renamed = LIBRARY_NAMES.iter().find(|(name, _)| *name == package);
            let library = renamed.map_or(package.replace('-', "_"), |(_, name)| (*name).to_owned());
            if !names_crate(&text, &library) {
                findings.add(
                    &manifest,
                    line,
                    &format!("`{package}` is used by no line; remove it"),
                );
            }
        }
    }
    findings.assert_none();
}

#[test]
fn a_crate_is_named_by_a_path_or_an_import() {
    let is_named = |text: &str| names_crate(text, "serve");
    assert!(is_named("use serve::Limits;") && is_named("serve::run()") && is_named("use serve;"));
    assert!(is_named("use {media, serve as server};") && is_named("serve!(a)"));
    assert!(!is_named("fn serve() {}") && !is_named("observe::a()") && !is_named("let serve = 1;"));
}

/// A tracer, a disassembler and performance counters are the laboratory's; nobody's server has
/// them.
#[test]
fn server_program_has_no_part_of_the_laboratory() {
    let tree = |package: &str| {
        let output = Command::new(env!("CARGO"))
            .args(["tree", "--offline", "--locked", "--edges", "normal", "--prefix", "none"])
            .args(["--format", "{lib}", "--package", package])
            .current_dir(root())
            .output()
            .expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("names of crates");
        text.lines().map(str::to_owned).collect::<BTreeSet<String>>()
    };
    let (product, laboratory) = (tree("pagewire"), tree("lab"));
    for name in LABORATORY_ONLY {
        assert!(laboratory.contains(*name), "{name} is no dependency of lab; remove it here");
        assert!(!product.contains(*name), "pagewire depends on {name}; see cargo tree -i {name}");
    }
}

#[test]
fn drawn_arrows_are_read_from_the_table() {
    let text = "# A\n<!-- crates: x -->\n| crate | depends on | holds |\n|---|---|---|\n\
        | `a` | | one |\n| `b` | `a`, `c` | `d` |\n<!-- end of crates -->\n| `e` | `f` | g |\n";
    let strings = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let expected = [(5, "a".to_owned(), vec![]), (6, "b".to_owned(), strings(&["a", "c"]))];
    assert_eq!(drawn_arrows(text), expected);
}

#[test]
fn manifests_are_read_in_every_spelling() {
    let text = "[dependencies]\nmedia.workspace = true\n# lab = 1\nwire={ path = \"../wire\" }\n\
        other = { package = \"serve\" }\n[lints]\nlab = 1\n[dev-dependencies.paths]\nlab = 1\n\
        [target.'cfg(unix)'.build-dependencies]\n\"simd\" = \"1\"\n[features]\nseal = []\n";
    let found: Vec<_> = dependencies(text);
    let expected = [(2, "media"), (4, "wire"), (5, "serve"), (8, "paths"), (11, "simd")];
    assert_eq!(found, expected.map(|(line, name)| (line, name.to_owned())));
}

#[test]
fn every_source_file_is_compiled() {
    let Some(files) = files() else { return };
    let root = root();
    let mut findings = Findings::default();
    let rust: BTreeSet<_> = files.iter().filter(|file| has_extension(file, "rs")).collect();
    let mut reached = BTreeSet::new();
    let mut open: Vec<PathBuf> =
        rust.iter().filter(|file| is_crate_root(file)).map(|file| file.to_path_buf()).collect();
    while let Some(file) = open.pop() {
        if reached.insert(file.clone()) {
            open.extend(submodules(&root, &file).into_iter().filter(|next| rust.contains(next)));
        }
    }
    for file in rust {
        if !reached.contains(file) {
            findings.add(
                file,
                1,
                "no `mod` leads here, so it is never compiled; declare or delete",
            );
        }
    }
    findings.assert_none();
}

#[test]
fn every_source_file_names_its_licence() {
    let Some(files) = files() else { return };
    let root = root();
    let mut findings = Findings::default();
    for file in files.iter().filter(|file| is_source(&root, file)) {
        let licence = if file.starts_with("kernel") { "GPL-2.0" } else { "MIT OR Apache-2.0" };
        let wanted = format!("{SPDX}{licence}");
        let text = read(&root, file);
        if !text.lines().take(SPDX_WITHIN_LINES).any(|line| line.contains(&wanted)) {
            findings.add(file, 1, &format!("no line `{wanted}` on top"));
        }
    }
    findings.assert_none();
}

#[test]
fn lines_and_files_are_short() {
    let Some(files) = files() else { return };
    let root = root();
    let mut findings = Findings::default();
    for file in files.iter().filter(|file| is_source(&root, file)) {
        let text = read(&root, file);
        for (index, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX {
                let what = format!("{columns} columns; {COLUMNS_MAX} at most");
                findings.add(file, index + 1, &what);
            }
        }
        let lines = text.lines().count();
        let explained = header(&text).contains(LINES_REASON);
        if lines > LINES_MAX && !explained {
            let what = format!("{lines} lines; divide it, or say in the header: {LINES_REASON} …");
            findings.add(file, 1, &what);
        }
        if lines <= LINES_MAX && explained {
            findings.add(file, 1, &format!("only {lines} lines; the header need not explain"));
        }
    }
    findings.assert_none();
}

#[test]
fn unsafe_code_stays_in_its_folders() {
    let Some(files) = files() else { return };
    let root = root();
    let mut findings = Findings::default();
    for file in files.iter().filter(|file| has_extension(file, "rs")) {
        if UNSAFE_FOLDERS.iter().any(|folder| file.starts_with(folder)) {
            continue;
        }
        let text = read(&root, file);
        for (index, line) in code_of(&text).lines().enumerate() {
            if words(line).any(|word| word == "unsafe") {
                findings.add(file, index + 1, "unsafe outside its folders (docs/style.md, unsafe)");
            }
        }
        let package = file.components().next().map(|part| part.as_os_str().to_string_lossy());
        let owns_unsafe = package.is_some_and(|package| {
            UNSAFE_FOLDERS.iter().any(|folder| folder.starts_with(&format!("{package}/")))
        });
        let is_crate = file.ends_with("src/lib.rs") || file.ends_with("src/main.rs");
        if is_crate && !owns_unsafe && !text.contains("#![forbid(unsafe_code)]") {
            findings.add(file, 1, "a crate root without #![forbid(unsafe_code)]; add it");
        }
    }
    findings.assert_none();
}

/// A panic must not end what all connections share: see docs/decisions.md, "Locks do not poison".
#[test]
fn locks_of_the_server_do_not_poison() {
    let Some(files) = files() else { return };
    let root = root();
    let mut findings = Findings::default();
    let is_server = |file: &&PathBuf| POISON_FREE.iter().any(|folder| file.starts_with(folder));
    for file in files.iter().filter(is_server).filter(|file| has_extension(file, "rs")) {
        let code = code_of(&read(&root, file));
        for statement in code.split_inclusive(';').filter(|part| part.contains("std::sync::")) {
            if let Some(lock) = words(statement).find(|word| POISONING.contains(word)) {
                let end = statement.as_ptr() as usize - code.as_ptr() as usize + statement.len();
                let line = code[..end].matches('\n').count() + 1;
                findings.add(file, line, &format!("`std::sync::{lock}`; write parking_lot's"));
            }
        }
    }
    findings.assert_none();
}

#[test]
fn modules_have_names_that_say_something() {
    let Some(files) = files() else { return };
    let root = root();
    let mut findings = Findings::default();
    for file in files.iter().filter(|file| has_extension(file, "rs")) {
        let parts = file.components().map(|part| part.as_os_str().to_string_lossy());
        for part in parts {
            let name = part.strip_suffix(".rs").unwrap_or(&part);
            if EMPTY_NAMES.contains(&name) {
                findings.add(file, 1, &format!("`{name}` says nothing; name what is in it"));
            }
        }
        for (line, name) in declared_modules(&read(&root, file)) {
            if EMPTY_NAMES.contains(&name.as_str()) {
                findings.add(file, line, &format!("`mod {name}` says nothing; name what is in it"));
            }
        }
    }
    findings.assert_none();
}

/// One name, one thing: a reader of `RtspSession` need not ask of which crate.
#[test]
fn public_type_names_stand_in_one_crate() {
    let Some(files) = files() else { return };
    let root = root();
    let mut crates: BTreeMap<String, BTreeMap<String, (PathBuf, usize)>> = BTreeMap::new();
    for file in files.iter().filter(|file| has_extension(file, "rs")) {
        let mut parts = file.iter().map(|part| part.to_string_lossy().into_owned());
        let (Some(package), Some(folder)) = (parts.next(), parts.next()) else { continue };
        if folder != "src" || package == "fuzz" {
            continue;
        }
        for (line, name) in public_types(&read(&root, file)) {
            let at = crates.entry(name).or_default();
            at.entry(package.clone()).or_insert_with(|| (file.clone(), line));
        }
    }
    let mut findings = Findings::default();
    for (name, at) in &crates {
        if at.len() > 1 && !SHARED_TYPE_NAMES.iter().any(|(shared, _)| shared == name) {
            let all: Vec<&str> = at.keys().map(String::as_str).collect();
            for (file, line) in at.values() {
                let what = format!("`{name}` is public in {}; rename one", all.join(", "));
                findings.add(file, *line, &what);
            }
        }
    }
    for (name, _) in SHARED_TYPE_NAMES {
        if crates.get(*name).is_none_or(|at| at.len() <= 1) {
            findings.add(Path::new(file!()), 1, &format!("`{name}` is shared no more; remove it"));
        }
    }
    findings.assert_none();
}

#[test]
fn no_file_knows_one_machine() {
    let Some(files) = files() else { return };
    let root = root();
    // Put together here, or this file would be its own first finding.
    let folders = ["work", "root", "home"].map(|name| format!("/{name}/"));
    let mut findings = Findings::default();
    for file in &files {
        // A file that is not text (the clip) has no paths to read.
        let Ok(text) = fs::read_to_string(root.join(file)) else { continue };
        for (index, line) in text.lines().enumerate() {
            if let Some(folder) = folders.iter().find(|folder| names_folder(line, folder)) {
                let what = format!("a path below {folder} is there on one machine only");
                findings.add(file, index + 1, &what);
            }
        }
    }
    findings.assert_none();
}

/// Places that break the rule under test.
#[derive(Default)]
struct Findings(Vec<String>);

impl Findings {
    fn add(&mut self, file: &Path, line: usize, what: &str) {
        self.0.push(format!("{}:{line}: {what}", file.display()));
    }

    #[track_caller]
    fn assert_none(&self) {
        assert!(self.0.is_empty(), "{} findings:\n{}", self.0.len(), self.0.join("\n"));
    }
}

/// The top of the repository.
fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("the crate lies below the workspace").to_owned()
}

fn read(root: &Path, file: &Path) -> String {
    let path = root.join(file);
    fs::read_to_string(&path).unwrap_or_else(|fault| panic!("read {}: {fault}", path.display()))
}

/// Every file of the project, relative to the root: what git tracks and what it would add. None
/// (said in a `skip:` line) outside a git checkout, where generated files cannot be distinguished.
fn files() -> Option<Vec<PathBuf>> {
    let listing = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output();
    let reason = match listing {
        Ok(output) if output.status.success() => {
            let names = String::from_utf8(output.stdout).expect("file names in UTF-8");
            let names = names.split('\0').filter(|name| !name.is_empty());
            // A file that was deleted but not yet from the index is still listed.
            let files = names.map(PathBuf::from).filter(|file| root().join(file).is_file());
            return Some(files.collect());
        }
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(fault) => fault.to_string(),
    };
    eprintln!("skip: tidy: git ls-files: {reason}");
    None
}

/// The folders in `members` of the workspace's Cargo.toml.
fn members(root: &Path) -> Vec<String> {
    let text = read(root, Path::new("Cargo.toml"));
    let (_, list) = text.split_once("\nmembers = [").expect("a list of members");
    let (list, _) = list.split_once(']').expect("the end of the list of members");
    let members: Vec<_> = list
        .split(',')
        .map(|name| name.trim().trim_matches('"').to_owned())
        .filter(|name| !name.is_empty())
        .collect();
    assert!(!members.is_empty());
    members
}

/// The rows of the architecture's table of crates: line number, crate, and what it depends on.
fn drawn_arrows(text: &str) -> Vec<(usize, String, Vec<String>)> {
    let mut rows = Vec::new();
    let mut in_table = false;
    for (index, line) in text.lines().enumerate() {
        in_table = line.starts_with("<!-- crates:") || in_table && !line.starts_with("<!-- end");
        let cells: Vec<_> = line.split('|').collect();
        if let ([_, name, arrows, _, _], true) = (&cells[..], in_table)
            && let [name] = &quoted(name)[..]
        {
            rows.push((index + 1, name.clone(), quoted(arrows)));
        }
    }
    assert!(!rows.is_empty(), "a table of crates between its markers");
    rows
}

/// True when code names a crate: `name::`, `name!`, or alone in a `use`.
fn names_crate(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + name.len()..]);
        let is_whole = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let statement = before.rsplit([';', '}']).next().unwrap_or_default();
        let is_imported =
            statement.trim_start().starts_with("use ") && after.starts_with([';', ',', '}', ' ']);
        is_whole && (after.starts_with("::") || after.starts_with('!') || is_imported)
    })
}

/// The names in backquotes.
fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Line number and package name of every dependency in a Cargo.toml, of whichever kind.
fn dependencies(manifest: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_table = false;
    for (index, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if let Some(table) = line.strip_prefix('[') {
            let table = table.trim_end_matches(']');
            in_table = table.ends_with("dependencies");
            if let Some((kind, name)) = table.rsplit_once('.')
                && kind.ends_with("dependencies")
            {
                found.push((index + 1, name.trim_matches('"').to_owned()));
            }
            continue;
        }
        if !in_table || line.starts_with('#') {
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let renamed = value.split_once("package = \"").and_then(|(_, rest)| rest.split_once('"'));
        let key = key.split('.').next().unwrap_or(key).trim().trim_matches('"');
        found.push((index + 1, renamed.map_or(key, |(package, _)| package).to_owned()));
    }
    found
}

fn has_extension(file: &Path, extension: &str) -> bool {
    file.extension().is_some_and(|found| found == extension)
}

/// True for a file that cargo or a person reads first, without a `mod`.
fn is_crate_root(file: &Path) -> bool {
    let names: Vec<_> = file.iter().map(|part| part.to_string_lossy()).collect();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    // A crate lies at the top, but for the crate fuzz/targets.
    let names = names.strip_prefix(&["fuzz"]).unwrap_or(&names);
    matches!(
        names,
        [.., "src", "lib.rs" | "main.rs"]
            | [.., "src", "bin", _]
            | [.., "src", "bin", _, "main.rs"]
            | [_, "build.rs"]
            | [_, "tests" | "benches" | "examples", _]
            | [_, "tests" | "benches" | "examples", _, "main.rs"]
    )
}

/// Programs in the languages we write: Rust, C, and everything that a shell runs.
fn is_source(root: &Path, file: &Path) -> bool {
    const EXTENSIONS: &[&str] = &["rs", "sh", "c", "h", "S", "py", "js", "mk"];
    let by_name = file.file_name().is_some_and(|name| name == "Makefile" || name == "Kbuild");
    by_name
        || EXTENSIONS.iter().any(|extension| has_extension(file, extension))
        || fs::read(root.join(file)).is_ok_and(|bytes| bytes.starts_with(b"#!"))
}

/// The comment a file opens with.
fn header(text: &str) -> String {
    let comment = |line: &&str| line.starts_with("//") || line.starts_with('#') || line.is_empty();
    text.lines().take_while(comment).collect::<Vec<_>>().join("\n")
}

/// The files that the `mod` declarations of a file may mean, and those it includes.
fn submodules(root: &Path, file: &Path) -> Vec<PathBuf> {
    let text = read(root, file);
    let folder = file.parent().unwrap_or(Path::new(""));
    let is_top = is_crate_root(file) || file.file_name().is_some_and(|name| name == "mod.rs");
    let below = if is_top { folder.to_owned() } else { file.with_extension("") };
    let mut next = Vec::new();
    for (_, name) in declared_modules(&text) {
        next.push(below.join(format!("{name}.rs")));
        next.push(below.join(&name).join("mod.rs"));
    }
    for opening in ["#[path = \"", "include!(\""] {
        for part in text.split(opening).skip(1) {
            let (target, _) = part.split_once('"').unwrap_or((part, ""));
            next.push(without_dots(&folder.join(target)));
        }
    }
    next
}

/// `a/../b` as `b`; the tree has no links that would make this wrong.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}
