// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the programs of a compiled UnixBench and prints their counts as figures.
//!
//! `unixbench=PATH` is a folder of the guest's root with `pgms/` and `testdir/` of UnixBench 5 or
//! newer; `guest/root.sh OUT FOLDER=/unixbench` puts it there. The driver of UnixBench is a Perl
//! script, so this job starts the programs in the same way, each for `seconds=` (default 10), one
//! copy at a time. The programs must run in the guest: link them statically (`LDFLAGS=-static
//! make`), or add their libraries to the root. The shell scripts need the shell of root.sh.
//!
//! The count of a program is `calls`, in its own unit: loops, or for the file copies kilobytes a
//! second, which are printed as bytes.
//!
//! Sources: UnixBench 5.1.3 and 6.0, `Run` (tests and their options) and `USAGE`.
//!
//! Does not run Dhrystone and Whetstone, which do not use the kernel. Does not compute the index,
//! which compares with a machine of 1995.

use std::path::Path;
use std::process::Stdio;

use crate::error::Error;
use crate::guest_job::GuestJob;
use crate::meter::measure;
use crate::program::{command, succeeded};
use crate::protocol::WorkDone;
use crate::settings::GuestSettings;

/// Job of the command line; `unixbench=PATH` adds it without its word.
pub(crate) static JOB: GuestJob = GuestJob { name: "unixbench", run };

const SECONDS: u64 = 10;
const FOLDER: &str = "/unixbench";

/// Name, program, and options; the job replaces `SECONDS`, `TMP` and `MULTI`.
const PROGRAMS: &[(&str, &str, &[&str])] = &[
    ("unixbench_execl", "execl", &["SECONDS"]),
    ("unixbench_file_copy_1024", "fstime", &copy_of("1024", "2000")),
    ("unixbench_file_copy_256", "fstime", &copy_of("256", "500")),
    ("unixbench_file_copy_4096", "fstime", &copy_of("4096", "8000")),
    ("unixbench_pipe", "pipe", &["SECONDS"]),
    ("unixbench_context_switch", "context1", &["SECONDS"]),
    ("unixbench_spawn", "spawn", &["SECONDS"]),
    ("unixbench_syscall", "syscall", &["SECONDS"]),
    ("unixbench_shell_1", "looper", &["SECONDS", "MULTI", "1"]),
    ("unixbench_shell_8", "looper", &["SECONDS", "MULTI", "8"]),
];

const fn copy_of(buffer_bytes: &'static str, blocks: &'static str) -> [&'static str; 9] {
    ["-c", "-t", "SECONDS", "-d", "TMP", "-b", buffer_bytes, "-m", blocks]
}

fn run(settings: &GuestSettings) -> Result<(), Error> {
    let top = Path::new(settings.text("unixbench").unwrap_or(FOLDER));
    let (folder, texts) = (top.join("pgms"), top.join("testdir"));
    let seconds = settings.number("seconds").unwrap_or(SECONDS).to_string();
    for &(name, program, options) in PROGRAMS {
        let file = folder.join(program);
        if !file.is_file() {
            return Err(Error::Unavailable {
                what: name.into(),
                found: format!("no program {}", file.display()),
                cure: "build UnixBench with `LDFLAGS=-static make` and put its folder into the \
                       root: guest/root.sh OUT FOLDER=/unixbench",
            });
        }
        let temporary = std::env::temp_dir();
        let arguments = options.iter().map(|&option| match option {
            "SECONDS" => seconds.as_str().into(),
            "TMP" => temporary.as_os_str().to_owned(),
            "MULTI" => folder.join("multi.sh").into(),
            option => option.into(),
        });
        let mut started = command(&file.to_string_lossy());
        started.args(arguments).env("UB_BINDIR", &folder).current_dir(&texts);
        started.stdout(Stdio::null()).stderr(Stdio::piped());
        measure(name, || {
            let output = started.output().map_err(Error::host("execve", name))?;
            succeeded(name, output.status)?;
            work_of(name, &String::from_utf8_lossy(&output.stderr), &seconds)
        })?;
    }
    Ok(())
}

/// Parses a program's line `COUNT|number|seconds|unit`.
fn work_of(name: &str, text: &str, seconds: &str) -> Result<WorkDone, Error> {
    let wrong = || Error::Wrong {
        what: name.to_owned(),
        expected: "a line COUNT|number|seconds|unit".into(),
        found: text.trim().to_owned(),
    };
    let line = text.lines().find_map(|line| line.strip_prefix("COUNT|")).ok_or_else(wrong)?;
    let mut parts = line.split('|');
    let count = parts.next().and_then(|count| count.parse::<f64>().ok());
    let count = count.filter(|count| *count > 0.0).ok_or_else(wrong)?;
    let unit = parts.nth(1).ok_or_else(wrong)?;
    Ok(match unit.trim() {
        "KBps" => {
            let seconds: f64 = seconds.parse().map_err(|_| wrong())?;
            WorkDone { bytes: (count * 1024.0 * seconds) as u64, ..WorkDone::default() }
        }
        _ => WorkDone { calls: count as u64, ..WorkDone::default() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_unixbench_writes_them() {
        let text = "Write done: 100 in 2.0\nCOUNT|118784|0|KBps\nTIME|2.0\n";
        assert_eq!(work_of("copy", text, "2").expect("work").bytes, 118_784 * 1024 * 2);
        assert_eq!(work_of("pipe", "COUNT|5193|1|lps\n", "2").expect("work").calls, 5193);
        for bad in ["", "COUNT|0|1|lps", "COUNT|x|1|lps", "COUNT|1"] {
            assert!(work_of("pipe", bad, "2").is_err(), "{bad}");
        }
    }
}
