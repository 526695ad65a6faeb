// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system calls between two marks as `strace(1)` traces them, compared with those that were
//! counted.
//!
//! An ignored test is run inside the tracer. It calls [`begin`] and [`end`] around the measured
//! calls and nothing else between, then prints its own count by [`counted`]; the trace holds all
//! three as calls of `write(2)`.

use std::fmt::Display;
use std::io::Write;
use std::process::Command;

const BEGIN: &str = "calls-begin";
const END: &str = "calls-end";
const COUNTED: &str = "calls-counted";

/// One measurement: the member, the calls the tracer saw, and those that were counted.
#[derive(Debug)]
pub(crate) struct Count {
    pub(crate) member: String,
    pub(crate) seen: u64,
    pub(crate) counted: u64,
}

/// Makes one recognisable call in the trace; it writes to the descriptor directly, because a test's
/// output is buffered.
fn mark(text: &str) {
    std::io::stderr().write_all(text.as_bytes()).unwrap();
}

pub(crate) fn begin() {
    mark(BEGIN);
}

pub(crate) fn end() {
    mark(END);
}

/// Prints the count between the last two marks. A member's name has no space.
pub(crate) fn counted(member: impl Display, calls: u64) {
    mark(&format!("{COUNTED} {member} {calls} "));
}

/// Returns the trace of the ignored test `name`; skips where the host has no tracer or forbids
/// tracing.
pub(crate) fn trace_of(name: &str) -> Option<String> {
    let trace = tempfile::NamedTempFile::new().unwrap();
    let mut strace = Command::new("strace");
    // The trace must hold the line complete.
    strace.args(["-f", "--string-limit=200", "-o"]).arg(trace.path());
    strace.arg(std::env::current_exe().unwrap());
    strace.args(["--exact", name, "--ignored", "--test-threads=1"]);
    let output = match strace.output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skip: strace: not installed: {error}");
            return None;
        }
    };
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("ptrace") {
        eprintln!("skip: strace may not trace here: {}", stderr.trim());
        return None;
    }
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}\n{stderr}");
    Some(std::fs::read_to_string(trace.path()).unwrap())
}

/// Returns the calls between each pair of marks, and the call after them that prints the count.
pub(crate) fn calls(trace: &str) -> Vec<Vec<&str>> {
    measured(trace).into_iter().map(|(calls, _)| calls).collect()
}

/// Returns each measurement's number of calls beside the test's own count.
pub(crate) fn counts(trace: &str) -> Vec<Count> {
    let count = |(calls, printed): (Vec<&str>, Option<&str>)| {
        let (_, printed) = printed?.split_once(COUNTED)?;
        let mut words = printed.split_whitespace();
        let member = words.next()?.to_string();
        Some(Count { member, seen: calls.len() as u64, counted: words.next()?.parse().ok()? })
    };
    let counts = measured(trace).into_iter().map(count);
    counts.map(|count| count.expect("what was measured is followed by what was counted")).collect()
}

/// Returns the calls between each pair of marks, and the call after them that prints the count.
fn measured(trace: &str) -> Vec<(Vec<&str>, Option<&str>)> {
    let mut measured = Vec::new();
    let mut begun: Option<(&str, Vec<&str>)> = None;
    for line in trace.lines() {
        let (thread, call) = line.split_once(' ').unwrap();
        if call.contains(BEGIN) {
            begun = Some((thread, Vec::new()));
        } else if call.contains(COUNTED) {
            if let Some((_, printed)) = measured.last_mut() {
                *printed = Some(call);
            }
        } else if begun.as_ref().is_some_and(|(tracked, _)| *tracked != thread) {
            // The call is another thread's.
        } else if call.contains(END) {
            measured.extend(begun.take().map(|(_, calls)| (calls, None)));
        } else if let Some((_, calls)) = &mut begun
            && !call.contains("resumed>")
            // The kernel restarts this call by itself, and the tracer sees the restart as another
            // call.
            && !call.contains("ERESTART")
            && !call.trim_start().starts_with("---")
        {
            calls.push(call);
        }
    }
    measured
}
