// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures listed at the end of a run, and the exit status.
//!
//! A failed file does not stop the run. Each failure is listed once, at the end, where later output
//! cannot scroll it away. The list is never shortened: scripts read every name. The crate `seal`
//! names settings; this module adds the flags.

use std::io::Write;
use std::process::ExitCode;

use seal::engine::SealOutcome;
use seal::epub::BookFault;
use seal::folder::opener::SealedFileFault;
use seal::hls::FilmFault;
use seal::{Error, FileFault, counted};

use crate::escape::Escaped;

/// Lists the reasons why a run could not begin; returns the exit status of [`end`].
pub(crate) fn list(failed: &[Error]) -> ExitCode {
    end(failed, None)
}

/// Lists every failure on standard error, sorted, so that the order does not depend on the threads;
/// after several, counts the files that were done. Exit status 0 without failures, 2 when the
/// command line is at fault, otherwise 1.
pub(crate) fn end(failed: &[Error], outcome: Option<&SealOutcome>) -> ExitCode {
    let mut lines = lines(failed);
    lines.sort_unstable();
    let mut out = std::io::stderr().lock();
    for line in &lines {
        // Ignores a closed standard error.
        let _ = writeln!(out, "pagewire: {line}");
    }
    if lines.len() > 1 {
        let _ = writeln!(out, "pagewire: {} failures; {}", lines.len(), beside(outcome));
    }
    ExitCode::from(status(failed))
}

/// Describes how many files are done, now and before, and if the run was stopped.
fn beside(outcome: Option<&SealOutcome>) -> String {
    let files = |count| counted(count, "file");
    let (done, skipped) = outcome.map_or((0, 0), |outcome| (outcome.done, outcome.skipped));
    let end = if outcome.is_some_and(|outcome| outcome.is_stopped) { ", then stopped" } else { "" };
    match (done, skipped) {
        (0, 0) => format!("nothing was done{end}"),
        (0, before) => format!("nothing new was done, {} before{end}", files(before)),
        (done, 0) => format!("{} done{end}", files(done)),
        (done, before) => format!("{} done, {before} before{end}", files(done)),
    }
}

/// Lists on standard error the files that a run passed over, and their number.
pub(crate) fn passed_over(files: &[Error]) {
    let mut out = std::io::stderr().lock();
    for line in lines(files) {
        // Ignores a closed standard error.
        let _ = writeln!(out, "pagewire: {line}");
    }
    if files.len() > 1 {
        let _ = writeln!(out, "pagewire: {} passed over", counted(files.len() as u64, "file"));
    }
}

/// Lists remarks that are not failures on standard error.
pub(crate) fn note(found: &[Error]) {
    let mut out = std::io::stderr().lock();
    for line in lines(found) {
        // Ignores a closed standard error.
        let _ = writeln!(out, "pagewire: note: {line}");
    }
}

/// Formats each error as a line that names flags; escapes the control characters of file names.
pub(crate) fn lines(failed: &[Error]) -> Vec<String> {
    failed.iter().map(|error| Escaped(shown(error)).to_string()).collect()
}

/// Formats an error in the words of the command line: the crate `seal` names settings, not flags.
fn shown(error: &Error) -> String {
    match error {
        Error::Option { option, found, cure } => {
            let flag = FLAGS.iter().find(|(setting, _)| setting == option);
            format!("{}: {found}; {cure}", flag.map_or(*option, |(_, flag)| flag))
        }
        _ => match flags(error) {
            Some(flags) => format!("{error} ({flags})"),
            None => error.to_string(),
        },
    }
}

/// Settings of the crate `seal` and their flags on the command line.
const FLAGS: &[(&str, &str)] = &[
    ("form", "--form"),
    ("iv", "--iv"),
    ("key_folder", "--keys"),
    ("key_uri", "--key-uri"),
    ("keys", "--key-file or --keys"),
    ("memory", "--memory"),
    ("publication_url", "--publication-url"),
    ("source", "--source"),
];

/// Returns the flags that the cure of an error needs.
fn flags(error: &Error) -> Option<&'static str> {
    const FORCE: &str = "--force";
    let fault = match error {
        Error::Host { source, .. } if source.raw_os_error() == Some(EMFILE) => {
            return Some("--threads");
        }
        Error::File { fault, .. } => fault,
        _ => return None,
    };
    match fault {
        FileFault::Exists | FileFault::Older | FileFault::Book(BookFault::Exchanged) => Some(FORCE),
        FileFault::Sealed(SealedFileFault::TooLong { .. }) => Some("--form"),
        FileFault::Stream(fault) => match **fault {
            FilmFault::OtherKey | FilmFault::EarlierVersion => Some(FORCE),
            FilmFault::KeyNeeded => Some("--key-file or --keys"),
            FilmFault::NoKey | FilmFault::KeyBytes { .. } => Some("seal hls --keys"),
            FilmFault::Scattered { .. } => Some("--target-duration"),
            _ => None,
        },
        _ => None,
    }
}

/// errno of too many open files.
const EMFILE: i32 = 24;

fn status(failed: &[Error]) -> u8 {
    match failed {
        [] => 0,
        failed if failed.iter().any(Error::is_caller) => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_status_says_whose_fault_it_is() {
        let file = || Error::file(Path::new("a"), FileFault::Changed);
        let found = "17 hex digits".to_owned();
        let option = Error::Option { option: "--iv", found, cure: "write 32".to_owned() };
        assert_eq!(status(&[]), 0);
        assert_eq!(status(&[file()]), 1);
        assert_eq!(status(&[file(), option]), 2);
    }

    #[test]
    fn settings_and_cures_are_shown_with_their_flags() {
        let option = |option| Error::Option { option, found: "x".into(), cure: "y".into() };
        for (setting, line) in
            [("key_uri", "--key-uri: x; y"), ("TARGET", "TARGET: x; y"), ("--root", "--root: x; y")]
        {
            assert_eq!(lines(&[option(setting)]), [line]);
        }
        let file = |fault| lines(&[Error::file(Path::new("a"), fault)]).remove(0);
        assert_eq!(file(FileFault::Exists), "a: is there already; replace it by force (--force)");
        assert!(file(FilmFault::KeyNeeded.into()).ends_with(" (--key-file or --keys)"));
        let refused = std::io::Error::from_raw_os_error(EMFILE);
        let line = lines(&[Error::host("open", Path::new("a"))(refused)]).remove(0);
        assert!(line.ends_with("or use fewer threads (--threads)"), "{line}");
        assert!(!file(FileFault::Changed).contains("--"));
    }

    #[test]
    fn what_was_done_beside_failures_is_what_was_done() {
        let text = |done, skipped, is_stopped| {
            beside(Some(&SealOutcome { done, skipped, is_stopped, ..SealOutcome::default() }))
        };
        assert_eq!(beside(None), "nothing was done");
        assert_eq!(text(0, 0, false), "nothing was done");
        assert_eq!(text(0, 1, false), "nothing new was done, 1 file before");
        assert_eq!(text(1, 0, false), "1 file done");
        assert_eq!(text(3, 2, true), "3 files done, 2 before, then stopped");
    }

    #[test]
    fn a_name_gives_the_terminal_no_orders() {
        let shown = lines(&[Error::file(Path::new("a\n\u{1b}[2Jb"), FileFault::Changed)]);
        assert!(shown[0].starts_with("a\\n\\u001b[2Jb: changed"), "{shown:?}");
    }
}
