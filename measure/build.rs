// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets `PAGEWIRE_COMMIT`, the commit that the program is built from: twelve digits of the hash,
//! `+` appended when a file that goes into the program differs from it, `unknown` where there is no
//! git checkout (a tarball, a vendored copy) or no git.
//!
//! A measurement is useful only if its program is known, so the commit goes into every measurement
//! file. It costs four git calls in a build after HEAD or a source changed, and none otherwise.
//!
//! Sources: git-rev-parse(1), git-status(1); The Cargo Book, "Build Scripts".
//! Does not fail. Ignores documents and tests: they do not change the measured program.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let commit = package.parent().and_then(commit).unwrap_or_else(|| UNKNOWN.to_owned());
    println!("cargo:rustc-env=PAGEWIRE_COMMIT={commit}");
}

fn commit(root: &Path) -> Option<String> {
    // A tarball unpacked within another project's checkout must not get that project's commit.
    let top = PathBuf::from(git(root, &["rev-parse", "--show-toplevel"])?.trim_end());
    if top.canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    let hash = git(root, &["rev-parse", "--short=12", "HEAD"])?;
    let sources = git(root, &[&["ls-files", "-z", "--"], SOURCES].concat())?;
    let changes = git(root, &[STATUS, SOURCES].concat())?;
    rerun_when_head_moves(root);
    for source in sources.split('\0').filter(|source| !source.is_empty()) {
        rerun_if_changed(&root.join(source));
    }
    let mark = if changes.is_empty() { "" } else { "+" };
    Some(format!("{}{mark}", hash.trim()))
}

/// HEAD changes when another branch is checked out, its log at every commit.
fn rerun_when_head_moves(root: &Path) {
    for name in ["HEAD", "logs/HEAD", "packed-refs"] {
        if let Some(path) = git(root, &["rev-parse", "--git-path", name]) {
            rerun_if_changed(&root.join(path.trim_end()));
        }
    }
}

/// Cargo runs a script again each time when a file it named does not exist.
fn rerun_if_changed(path: &Path) {
    if let Some(path) = path.to_str().filter(|_| path.exists()) {
        println!("cargo:rerun-if-changed={path}");
    }
}

/// Returns the output of a git command; `None` when it fails or git is not installed.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    // A status that refreshed the index would touch a file another git may be writing.
    git.current_dir(root).env("GIT_OPTIONAL_LOCKS", "0").args(arguments);
    let output = git.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

const UNKNOWN: &str = "unknown";
const STATUS: &[&str] = &["status", "--porcelain", "--untracked-files=no", "--"];
/// Files that go into the program.
const SOURCES: &[&str] = &[
    "Cargo.toml",
    "Cargo.lock",
    "*/Cargo.toml",
    "*/build.rs",
    "*/src/*",
    "*/assets/*",
    "web/*",
    ":(exclude)fuzz/*",
];
