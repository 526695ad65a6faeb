// SPDX-License-Identifier: MIT OR Apache-2.0
//! What failed, listed at the end of a run, and the exit status that follows.
//!
//! A file's failure is that file's alone: the run goes on, and whoever started it must still learn
//! of each, once, where it is not scrolled away by what came later.
//!
//! Does not do: shorten the list. A script that reads it wants every name.

use std::io::Write;
use std::process::ExitCode;

use seal::Error;

use crate::escape::Escaped;

/// Lists every failure on standard error, in an order that does not depend on the threads. Exit
/// status 0 when there is none, 2 when the command line is at fault, else 1.
pub(crate) fn list(failed: &[Error]) -> ExitCode {
    let mut lines = lines(failed);
    lines.sort_unstable();
    let mut out = std::io::stderr().lock();
    for line in &lines {
        // Whoever closed standard error does not want to know.
        let _ = writeln!(out, "pagewire: {line}");
    }
    if lines.len() > 1 {
        let _ = writeln!(out, "pagewire: {} failures; all else was done", lines.len());
    }
    ExitCode::from(status(failed))
}

/// Names on standard error each file that a run passed over, and how many they are.
pub(crate) fn passed_over(files: &[Error]) {
    let mut out = std::io::stderr().lock();
    for line in lines(files) {
        // As above.
        let _ = writeln!(out, "pagewire: {line}");
    }
    if files.len() > 1 {
        let _ = writeln!(out, "pagewire: {} files passed over", files.len());
    }
}

/// Names on standard error what was found and is no failure.
pub(crate) fn note(found: &[Error]) {
    let mut out = std::io::stderr().lock();
    for line in lines(found) {
        // As above.
        let _ = writeln!(out, "pagewire: note: {line}");
    }
}

/// Each as a line; the control characters of file names are escaped.
pub(crate) fn lines(failed: &[Error]) -> Vec<String> {
    failed.iter().map(|error| Escaped(error).to_string()).collect()
}

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

    use seal::Fault;

    use super::*;

    #[test]
    fn the_status_says_whose_fault_it_is() {
        let file = || Error::file(Path::new("a"), Fault::Changed);
        let found = "17 hex digits".to_owned();
        let option = Error::Option { option: "--iv", found, cure: "write 32".to_owned() };
        assert_eq!(status(&[]), 0);
        assert_eq!(status(&[file()]), 1);
        assert_eq!(status(&[file(), option]), 2);
    }

    #[test]
    fn a_name_gives_the_terminal_no_orders() {
        let shown = lines(&[Error::file(Path::new("a\n\u{1b}[2Jb"), Fault::Changed)]);
        assert!(shown[0].starts_with("a\\n\\u001b[2Jb: changed"), "{shown:?}");
    }
}
