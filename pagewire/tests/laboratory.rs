// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab` becomes `pagewire-lab`: arguments, output and status are that program's; where it
//! is missing, the message names the way to install it.
//!
//! The program under test is linked into a folder, and a script replaces the laboratory.

#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

/// One test at a time: a script that is open for writing in this process, or in a child that
/// another test has just forked, cannot be executed (ETXTBSY).
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn installed() -> TempDir {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
    fs::hard_link(env!("CARGO_BIN_EXE_pagewire"), folder.path().join("pagewire")).expect("a link");
    folder
}

fn script(folder: &Path, text: &str) {
    let file = folder.join("pagewire-lab");
    fs::write(&file, text).expect("a script");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("its mode");
}

fn run(folder: &Path, path: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(folder.join("pagewire"));
    command.args(arguments).env("PATH", path).output().expect("the program runs")
}

#[test]
fn laboratory_beside_the_program_gets_all_arguments() {
    let _alone = alone();
    let folder = installed();
    script(folder.path(), "#!/bin/sh\nprintf '<%s>' \"$@\"\nexit 7\n");
    let arguments = ["lab", "--quick", "paths", "--help", "--", "a b", "--log", "x"];
    let output = run(folder.path(), "", &arguments);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "<--quick><paths><--help><--><a b><--log><x>"
    );
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn laboratory_is_found_in_path() {
    let _alone = alone();
    let (folder, elsewhere) = (installed(), TempDir::new().expect("a temporary folder"));
    script(elsewhere.path(), "#!/bin/sh\necho found\n");
    let path = elsewhere.path().to_str().expect("a plain name");
    assert_eq!(run(folder.path(), path, &["lab"]).stdout, b"found\n");
}

/// The working folder is a stranger's: its programs are not run, whatever PATH is.
#[test]
fn laboratory_is_an_absolute_path_of_a_file_that_can_be_executed() {
    let _alone = alone();
    let (folder, elsewhere) = (installed(), TempDir::new().expect("a temporary folder"));
    script(elsewhere.path(), "#!/bin/sh\necho found\n");
    for path in [None, Some(""), Some("."), Some(":/nonexistent")] {
        let mut command = Command::new(folder.path().join("pagewire"));
        command.arg("lab").current_dir(elsewhere.path()).env_remove("PATH");
        command.envs(path.map(|path| ("PATH", path)));
        let output = command.output().expect("the program runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{path:?}: {stderr}");
        assert!(stderr.contains("neither beside this program nor in PATH"), "{path:?}: {stderr}");
    }
    let beside = folder.path().join("pagewire-lab");
    fs::write(&beside, "no program").expect("a file");
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o644)).expect("its mode");
    let path = elsewhere.path().to_str().expect("a plain name");
    assert_eq!(run(folder.path(), path, &["lab"]).stdout, b"found\n", "the next one is taken");
}

#[test]
fn a_level_of_the_log_is_refused_and_not_dropped() {
    let _alone = alone();
    let folder = installed();
    let output = run(folder.path(), "", &["--log", "debug", "lab"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("--log is for the other verbs"), "{stderr}");
}

#[test]
fn missing_laboratory_is_named_with_the_line_that_installs_it() {
    let _alone = alone();
    let folder = installed();
    let output = run(folder.path(), "/nonexistent", &["lab", "paths"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("pagewire-lab, and is neither beside this program nor in PATH"),
        "{stderr}"
    );
    assert!(stderr.contains("cargo install --locked --path lab"), "{stderr}");
}
