// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shell script with small programs and pipes between them, after UnixBench's shell scripts: sorts
//! a text, dumps it, sorts the dump, counts and searches. `calls` are the started programs, the
//! shell included.
//!
//! The guest's root needs a shell and its programs; guest/root.sh copies those of the host. The
//! last output of the script is compared with the result that the text must produce.
//!
//! Sources: UnixBench 5.1.3 `USAGE` (shell1); the commands are POSIX.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{Amount, MIX, Workload, WorkloadSpec};
use crate::error::Error;
use crate::program::{command, succeeded};
use crate::protocol::WorkDone;
use crate::settings::GuestSettings;

const NAME: &str = "shell_scripts";
const SHELL: &str = "/bin/sh";
/// Lines of the text; the script searches for every third one.
const LINES: u64 = 150;
/// The shell, and every program of its script.
const PROGRAMS: u64 = 8;

/// Shell script; `$1` is a folder with the text.
const SCRIPT: &str = r#"
set -e
cd "$1"
sort text >sorted
od -c sorted | sort >dump
grep third sorted | tee found | wc -l >lines
read lines <lines
read first <found
test -s dump
rm sorted dump found lines
echo $lines $first
"#;

pub(super) static SHELL_SCRIPTS: WorkloadSpec =
    WorkloadSpec { name: NAME, groups: MIX, amount: Amount::Calls(5 * PROGRAMS), open };

struct ShellScripts {
    folder: PathBuf,
    expected: String,
    runs: u64,
}

fn open(amount: Amount, _: &GuestSettings) -> Result<Box<dyn Workload>, Error> {
    if fs::metadata(SHELL).is_err() {
        return Err(Error::Unavailable {
            what: NAME.into(),
            found: format!("no {SHELL} in the root folder"),
            cure: "make the root folder with guest/root.sh, without --no-shell, on a host with \
                   busybox: apt-get install busybox-static",
        });
    }
    let folder = std::env::temp_dir().join(format!("guest-shell-{}", std::process::id()));
    let named = folder.display().to_string();
    fs::create_dir_all(&folder).map_err(Error::host("mkdir", named.as_str()))?;
    fs::write(folder.join("text"), text()).map_err(Error::host("write", named))?;
    // The script finds the lines of kind "third"; line 0 is the first of them when sorted.
    let expected = format!("{} {}", LINES / 3, line(0));
    Ok(Box::new(ShellScripts { folder, expected, runs: amount.turns(u64::MAX, PROGRAMS) }))
}

fn line(number: u64) -> String {
    let kind = ["third", "plain", "other"][(number % 3) as usize];
    format!("{number:04} a {kind} line")
}

/// Returns the lines in reverse order, so that the script has something to sort.
fn text() -> String {
    (0..LINES).rev().fold(String::new(), |mut text, number| {
        writeln!(text, "{}", line(number)).expect("a string takes all");
        text
    })
}

impl Workload for ShellScripts {
    fn run(&mut self) -> Result<WorkDone, Error> {
        for _ in 0..self.runs {
            let mut script: Command = command(SHELL);
            let output = script.args(["-c", SCRIPT, NAME]).arg(&self.folder).output();
            let output = output.map_err(Error::host("execve", SHELL))?;
            succeeded(
                &format!("{NAME}: {}", String::from_utf8_lossy(&output.stderr)),
                output.status,
            )?;
            let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            if found != self.expected {
                let expected = self.expected.clone();
                return Err(Error::Wrong { what: NAME.into(), expected, found });
            }
        }
        Ok(WorkDone { calls: self.runs * PROGRAMS, ..WorkDone::default() })
    }
}

impl Drop for ShellScripts {
    fn drop(&mut self) {
        // Ignores an error: the rest is in the guest's memory, or in a folder of temporary files.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
