// SPDX-License-Identifier: MIT OR Apache-2.0
//! GStreamer's tools, as clients.

use std::process::Command;
use std::time::Duration;

use super::watchdog::{self, Outcome};

const INSPECT_LIMIT: Duration = Duration::from_secs(60);

/// True when GStreamer has these elements; prints the missing ones for `test`.
pub(crate) fn has_elements(test: &str, elements: &[&str]) -> bool {
    elements.iter().all(|element| {
        let mut command = Command::new("gst-inspect-1.0");
        let outcome = match watchdog::run(command.args(["--exists", element]), INSPECT_LIMIT) {
            Ok(outcome) => outcome,
            Err(reason) => {
                eprintln!("skip: {test}: {reason}");
                return false;
            }
        };
        if !outcome.status.success() {
            eprintln!("skip: {test}: GStreamer element {element}: not installed");
        }
        outcome.status.success()
    })
}

/// Returns the standard output of a pipeline behind `rtspsrc` that played to the end of its stream.
///
/// At the end two of its threads may each talk to the server: on a busy host the second finds the
/// connection closed, once in some forty films, and the exit status reports an error, though the
/// server has closed nothing and receives its TEARDOWN. Errors of `rtspsrc` are therefore printed
/// and not judged; callers compare the bytes.
#[track_caller]
pub(crate) fn played(outcome: Outcome) -> Vec<u8> {
    if outcome.status.success() || !outcome.stderr.contains("gst_rtspsrc_") {
        return outcome.succeeded();
    }
    eprintln!("{}: {}", outcome.status, outcome.stderr);
    outcome.stdout
}
