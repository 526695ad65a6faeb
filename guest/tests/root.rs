// SPDX-License-Identifier: MIT OR Apache-2.0
//! `guest/root.sh`: the files that it puts into a root folder, and its refusals.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/root.sh");
const GUEST: &str = env!("CARGO_BIN_EXE_guest");

fn root(arguments: &[&str]) -> Output {
    let mut script = Command::new(SCRIPT);
    script.args(arguments).env("GUEST", GUEST).output().expect("bash runs")
}

fn refused(arguments: &[&str], expected: &str) {
    let output = root(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains(expected), "{arguments:?}: {stderr}");
}

#[test]
fn a_root_has_the_guest_and_what_was_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("a.ko"), "module").expect("a file");
    fs::create_dir_all(at("bench/pgms")).expect("a folder");
    fs::write(at("bench/pgms/pipe"), "program").expect("a file");
    let module = format!("{}=/lib/modules/b.ko", at("a.ko"));
    let bench = format!("{}=/unixbench", at("bench"));
    let output = root(&["--no-shell", &at("root"), &module, &bench]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let made = fs::canonicalize(at("root")).expect("a root");
    let stdout = String::from_utf8(output.stdout).expect("text");
    assert_eq!(stdout, format!("root={}\n", made.display()));
    for init in ["init", "sbin/init"] {
        let same = fs::read(made.join(init)).expect(init) == fs::read(GUEST).expect("the guest");
        assert!(same, "{init} is not the guest");
    }
    for empty in ["dev", "proc", "sys", "tmp", "bin"] {
        let entries = fs::read_dir(made.join(empty)).expect(empty).count();
        assert_eq!(entries, 0, "{empty} is not empty");
    }
    assert_eq!(fs::read_to_string(made.join("lib/modules/b.ko")).expect("module"), "module");
    assert_eq!(fs::read_to_string(made.join("unixbench/pgms/pipe")).expect("bench"), "program");
}

#[test]
fn a_shell_brings_all_that_its_script_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("root");
    let output = root(&[&out.display().to_string()]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    if stderr.contains("so no shell") {
        eprintln!("skip: root: {}", stderr.trim());
        return;
    }
    for program in ["sh", "sort", "od", "grep", "tee", "wc", "rm"] {
        let there = out.join("bin").join(program).is_file();
        assert!(there, "{program} is not there, or a link to nothing");
    }
}

#[test]
fn half_a_shell_is_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let programs = folder.path().join("programs");
    fs::create_dir(&programs).expect("a folder");
    // Provides all programs that the script itself runs, and of the shell's programs not tee.
    for name in ["bash", "cat", "grep", "install", "ln", "ls", "mkdir", "realpath", "rm", "sort"] {
        let Some(file) = ["/usr/bin", "/bin"]
            .map(|at| Path::new(at).join(name))
            .into_iter()
            .find(|file| file.exists())
        else {
            eprintln!("skip: root: no {name} in /usr/bin or /bin on this host");
            return;
        };
        std::os::unix::fs::symlink(file, programs.join(name)).expect("a link");
    }
    std::os::unix::fs::symlink("/bin/sh", programs.join("sh")).expect("a link");
    let out = folder.path().join("root");
    let mut script = Command::new("/usr/bin/env");
    script.arg("bash").arg(SCRIPT).arg(&out).env("PATH", &programs).env("GUEST", GUEST);
    let output = script.output().expect("bash runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("apt-get install busybox-static"), "{stderr}");
    assert_eq!(fs::read_dir(out.join("bin")).expect("bin").count(), 0, "{stderr}");
}

#[test]
fn what_cannot_be_made_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("root").display().to_string();
    refused(&[], "usage: guest/root.sh");
    refused(&["--shell"], "usage: guest/root.sh");
    let full = folder.path().display().to_string();
    fs::write(folder.path().join("file"), "").expect("a file");
    refused(&[&full], "there already, and not an empty folder; remove it");
    refused(&[&out, "/none=/there"], "/none: no such file");
    refused(&[&out, "file=relative"], "file=relative: write FROM=TO");
    refused(&[&out, "=/there"], "=/there: write FROM=TO");
    assert!(!Path::new(&out).exists(), "a root was made all the same");
}
