// SPDX-License-Identifier: MIT OR Apache-2.0
//! SECURITY.md states only facts: every test it cites exists, every test here is cited, and every
//! flag it names is in the help of the verb it is named with.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::harness::PROGRAM;
use crate::harness::watchdog;

/// Backticked names of the form `file::test` or `file::timed::test` are tests of this program.
#[test]
fn security_md_cites_exactly_the_tests_that_exist() {
    let cited: BTreeSet<_> = quoted()
        .into_iter()
        .filter(|word| word.contains("::") && !word.contains(['/', ' ']))
        .collect();
    let missing: Vec<_> = cited.difference(&tests()).cloned().collect();
    assert!(missing.is_empty(), "SECURITY.md cites tests that do not exist: {missing:?}");
    let uncited: Vec<_> = tests().difference(&cited).cloned().collect();
    assert!(uncited.is_empty(), "SECURITY.md cites nowhere: {uncited:?}");
}

/// A flag is named with its verb: `serve --sessions-max`.
#[test]
fn security_md_names_flags_that_the_program_has() {
    let mut flags = 0;
    for words in quoted() {
        let words: Vec<_> = words.split_whitespace().collect();
        let verb = words.iter().take_while(|word| !word.starts_with('-')).copied();
        let verb: Vec<_> = verb.filter(|word| *word != "pagewire").collect();
        let named: Vec<_> = words.iter().filter(|word| word.starts_with("--")).collect();
        if named.is_empty() {
            continue;
        }
        assert!(!verb.is_empty(), "{words:?}: SECURITY.md names a flag without its verb");
        let mut command = Command::new(PROGRAM);
        let help = watchdog::run(command.args(&verb).arg("--help"), LIMIT).expect("it is built");
        let help = String::from_utf8(help.succeeded()).expect("help is UTF-8");
        for flag in named {
            let is_flag = |word: &str| word.trim_end_matches([',', ']', '=']) == *flag;
            assert!(help.split_whitespace().any(is_flag), "{verb:?} has no {flag}:\n{help}");
            flags += 1;
        }
    }
    assert!(flags > 0, "SECURITY.md names no flag");
}

/// Returns the texts between backticks.
fn quoted() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../SECURITY.md");
    let text = fs::read_to_string(path).expect("SECURITY.md lies at the top");
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Returns `file::test` of every test in this folder that no other test runs; tests in a module
/// `timed`, which is at the end of its file, are `file::timed::test`.
fn tests() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attacks");
    let mut tests = BTreeSet::new();
    for entry in fs::read_dir(folder).expect("this folder") {
        let path = entry.expect("an entry").path();
        let file = path.file_stem().expect("a name").to_str().expect("UTF-8").to_owned();
        if file == "promises" {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source file");
        let (text, timed) = text.split_once("\nmod timed {\n").unwrap_or((&text, ""));
        for (text, module) in [(text, ""), (timed, "timed::")] {
            for after in text.split("#[test]\n").skip(1) {
                let (attributes, function) = after.split_once("fn ").expect("a function follows");
                if !attributes.contains("#[ignore") {
                    let name = function.split('(').next().expect("a split has one part");
                    tests.insert(format!("{file}::{module}{name}"));
                }
            }
        }
    }
    tests
}

const LIMIT: Duration = Duration::from_secs(60);
