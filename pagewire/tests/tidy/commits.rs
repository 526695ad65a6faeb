// SPDX-License-Identifier: MIT OR Apache-2.0
//! Subjects of commits: `area: change`, short enough for a list of them.
//!
//! Commits from before the rule keep what they have.
//!
//! Sources: CONTRIBUTING.md, "Commits".
//! Does not judge merges, nor bodies.

use std::process::Command;

use crate::root;

/// Commits from this day on follow the rule.
const SINCE: &str = "2026-11-30T12:00:00Z";
const COLUMNS_MAX: usize = 72;

#[test]
fn subjects_of_commits_name_their_area_in_72_columns() {
    let log = Command::new("git")
        .args(["log", "--no-merges", "--format=%h %s", "--since", SINCE])
        .current_dir(root())
        .output();
    let log = match log {
        Ok(output) if output.status.success() => output.stdout,
        Ok(output) => return skip(&String::from_utf8_lossy(&output.stderr)),
        Err(fault) => return skip(&fault.to_string()),
    };
    let log = String::from_utf8_lossy(&log);
    let faults = log.lines().filter_map(|line| {
        let (commit, subject) = line.split_once(' ').unwrap_or((line, ""));
        fault(subject).map(|fault| format!("{commit} {subject}: {fault}"))
    });
    let faults: Vec<String> = faults.collect();
    assert!(faults.is_empty(), "{} commits:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn subjects_are_judged() {
    let long = format!("serve: {}", "a".repeat(COLUMNS_MAX));
    let wrong = ["Fix a bug", "serve: a seek.", "Serve: a seek", "serve:", "", &long];
    assert!(wrong.into_iter().all(|subject| fault(subject).is_some()));
    let right =
        ["serve: a seek", "media, serve: a seek", "fuzz/targets: a seed", "docs: 72 columns"];
    assert!(right.into_iter().all(|subject| fault(subject).is_none()));
    assert!(fault(&long[..COLUMNS_MAX]).is_none());
}

/// The rule that a subject breaks.
fn fault(subject: &str) -> Option<String> {
    let columns = subject.chars().count();
    if columns > COLUMNS_MAX {
        return Some(format!("{columns} columns; {COLUMNS_MAX} at most"));
    }
    let is_area = |area: &str| {
        let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_/.".contains(c);
        area.split(", ").all(|area| !area.is_empty() && area.chars().all(is_part))
    };
    match subject.split_once(": ") {
        Some((area, change)) if is_area(area) && !change.is_empty() => {
            change.ends_with('.').then(|| "a full stop at its end; remove it".to_owned())
        }
        _ => Some("no `area: change`; CONTRIBUTING.md, Commits".to_owned()),
    }
}

fn skip(reason: &str) {
    eprintln!("skip: tidy: git log: {}", reason.trim());
}
