// SPDX-License-Identifier: MIT OR Apache-2.0
//! A script that drives Chromium, run by node, and its report.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::harness::watchdog;

/// Folder of the programs that scripts/setup.sh installs, and of files that tests leave for people.
fn out() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../out")
}

/// Runs a script against a server; returns `None`, with the reason printed, where a program is
/// missing.
///
/// # Panics
/// When the script ends without a report.
#[track_caller]
pub(crate) fn report(test: &str, script: &str, server: &str) -> Option<Value> {
    let tools = out().join("test-tools");
    for needed in ["puppeteer-core", "axe-core"] {
        if !tools.join("node_modules").join(needed).exists() {
            eprintln!("skip: {test}: {needed}: not installed; make setup");
            return None;
        }
    }
    if Command::new("chromium").arg("--version").output().is_err() {
        eprintln!("skip: {test}: chromium: not installed");
        return None;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page/clients");
    // A browser that is killed leaves folders there.
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new("node");
    command.env("TMPDIR", temporary.path());
    command.arg(folder.join(script)).arg(server).arg(&tools).arg(out().join("screenshots"));
    let outcome = match watchdog::run(&mut command, LIMIT) {
        Ok(outcome) => outcome,
        Err(reason) if reason.contains("not installed") => {
            eprintln!("skip: {test}: {reason}");
            return None;
        }
        Err(reason) => panic!("{script}: {reason}"),
    };
    let stderr = &outcome.stderr;
    assert!(outcome.status.success(), "{script}: {}: {stderr}", outcome.status);
    let report = serde_json::from_slice(&outcome.stdout);
    Some(report.unwrap_or_else(|error| panic!("{script}: report: {error}: {stderr}")))
}

/// Returns the texts of a list in a report.
#[track_caller]
pub(crate) fn texts(value: &Value) -> Vec<&str> {
    let list = value.as_array().unwrap_or_else(|| panic!("a list: {value}"));
    list.iter().map(|text| text.as_str().expect("a text")).collect()
}

const LIMIT: Duration = Duration::from_secs(180);
