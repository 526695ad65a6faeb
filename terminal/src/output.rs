// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard output: this is the only module that writes the text of a verb.
//!
//! The reader may close the pipe early: `pagewire lab compare a b | head -1`. Rust ignores SIGPIPE,
//! so the write returns EPIPE, and `println!` panics. Here the process ends silently with the
//! status that a shell reports for a program killed by SIGPIPE. A verb with more work to do (files
//! to write, a server to run) uses [`attempt`] or [`offer`] and continues.
//!
//! Sources: pipe(7), "EPIPE"; POSIX.1-2024, shell language §2.8.2 (128 + signal); ioctl_tty(2),
//! TIOCGWINSZ.
//! Does not restore the default action of SIGPIPE, which needs unsafe code and would kill a server
//! when a client closes its socket.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::exit;

/// Writes `text`; ends the process if the write fails. Used for the last action of a verb.
pub fn print(text: impl Display) {
    attempt(text).or_end();
}

/// Writes `text` and a line feed, as [`print`].
pub fn line(text: impl Display) {
    print(format_args!("{text}\n"));
}

/// Writes a line and ignores a failure, for a verb that continues without a reader.
pub fn offer(text: impl Display) {
    // A closed standard output is no error here.
    let _ = attempt(format_args!("{text}\n"));
}

/// Writes `text`; the caller checks the result when its other work is done.
pub fn attempt(text: impl Display) -> Written {
    let mut out = io::stdout().lock();
    Written(write!(out, "{text}").and_then(|()| out.flush()))
}

/// Returns the number of columns of the terminal at standard output; `None` if it is not a
/// terminal.
pub fn columns() -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    // A terminal whose size was never set reports 0 columns.
    Some(size.ws_col).filter(|&columns| columns > 0)
}

/// Result of a write to standard output.
#[must_use]
pub struct Written(io::Result<()>);

impl Written {
    /// Ends the process after a failed write: silently if the reader has closed the pipe, otherwise
    /// with the error.
    pub fn or_end(self) {
        let Err(error) = self.0 else { return };
        if error.kind() == ErrorKind::BrokenPipe {
            exit(KILLED_BY_SIGPIPE);
        }
        eprintln!("pagewire: writing to standard output: {error}");
        exit(1);
    }
}

/// 128 + SIGPIPE.
const KILLED_BY_SIGPIPE: i32 = 141;
