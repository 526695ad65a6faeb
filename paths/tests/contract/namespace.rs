// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs one of these tests in a network of its own, made without root (`unshare(1)`, `ip(8)`).

use std::process::Command;

fn inside(script: &str, program: &std::path::Path) -> std::io::Result<std::process::Output> {
    Command::new("unshare").args(["-Urn", "sh", "-ec", script]).arg(program).output()
}

/// Sets up a network with `setup` and runs the ignored test `name` there. Skips where the host does
/// not allow a namespace or lacks what `setup` needs.
pub(crate) fn run(setup: &str, name: &str) {
    let program = std::env::current_exe().unwrap();
    match inside(setup, &program) {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let reason = String::from_utf8_lossy(&output.stderr);
            eprintln!("skip: no network namespace ({setup}): {}", reason.trim());
            return;
        }
        Err(error) => {
            eprintln!("skip: no network namespace: unshare: {error}");
            return;
        }
    }
    let script = format!("{setup}\nexec \"$0\" --exact {name} --ignored --nocapture");
    let output = inside(&script, &program).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}:\n{said}\n{complained}");
    assert!(said.contains("1 passed"), "{name} was not found:\n{said}");
    complained
        .lines()
        .filter(|line| line.starts_with("skip:"))
        .for_each(|line| eprintln!("{line}"));
}

/// Runs a command of the shell that has to succeed.
pub(crate) fn sh(script: &str) {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {complained}");
}
