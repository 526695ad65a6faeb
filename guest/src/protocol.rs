// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines that the guest prints for the laboratory.
//!
//! The console is shared with the kernel's messages, so the guest writes every line by one call and
//! begins it with `guest: `; the laboratory reads those lines and ignores the rest. The last one is
//! `guest: end`; a log without it is incomplete.
//!
//!     guest: begin NAME                 20 ms of quiet follow, in which the host samples the CPU
//!     guest: end-of NAME bytes=N calls=N packets=N wall_ns=N user_ns=N system_ns=N
//!     guest: ok|not ok DESCRIPTION
//!     guest: skip WHAT: REASON
//!     guest: memcpy-sizes CALLER BUCKET COUNT
//!     guest: fpu WHAT KEY=VALUE...
//!     guest: end

use std::fmt;
use std::io::{self, Write};

/// Line of the protocol.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ConsoleLine<'a> {
    /// Start of a measured section; a pause follows.
    Begin(&'a str),
    /// End of a measured section, and its figures.
    EndOf(&'a str, Measurement),
    /// A check that passed.
    Ok(&'a str),
    /// A check that failed, or the error that ends the run.
    NotOk(&'a str),
    /// A task that this machine cannot do, and the reason.
    Skip(&'a str),
    /// One figure of the kernel's histogram: caller, bucket and count, in the kernel's text.
    MemcpySizes(&'a str),
    /// One figure of the module `pagewire_fpu`, in the module's text.
    Fpu(&'a str),
    /// The last line.
    End,
}

/// Work and times of a measured section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measurement {
    /// Work done.
    pub(crate) work: WorkDone,
    /// Wall time of the section.
    pub(crate) wall_ns: u64,
    /// Processor time outside the kernel, of this process and the children it waited for.
    pub(crate) user_ns: u64,
    /// Processor time inside the kernel, of the same processes.
    pub(crate) system_ns: u64,
}

/// Work of a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkDone {
    /// Bytes copied between the program and the kernel, each direction counted.
    pub(crate) bytes: u64,
    /// System calls (or operations, where the list of a workload defines them so).
    pub(crate) calls: u64,
    /// Datagrams sent.
    pub(crate) packets: u64,
}

impl fmt::Display for ConsoleLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConsoleLine::Begin(name) => write!(f, "guest: begin {name}"),
            ConsoleLine::EndOf(name, Measurement { work, wall_ns, user_ns, system_ns }) => {
                let WorkDone { bytes, calls, packets } = work;
                write!(f, "guest: end-of {name} bytes={bytes} calls={calls} packets={packets} ")?;
                write!(f, "wall_ns={wall_ns} user_ns={user_ns} system_ns={system_ns}")
            }
            ConsoleLine::Ok(what) => write!(f, "guest: ok {what}"),
            ConsoleLine::NotOk(what) => write!(f, "guest: not ok {what}"),
            ConsoleLine::Skip(what) => write!(f, "guest: skip {what}"),
            ConsoleLine::MemcpySizes(figure) => write!(f, "guest: memcpy-sizes {figure}"),
            ConsoleLine::Fpu(figure) => write!(f, "guest: fpu {figure}"),
            ConsoleLine::End => write!(f, "guest: end"),
        }
    }
}

impl ConsoleLine<'_> {
    /// Writes the line and its newline by one call, so that no kernel message falls between.
    pub(crate) fn say(&self) {
        // Replaces newlines inside (of an error), which would start a line without `guest: `.
        let line = format!("{}\n", self.to_string().replace('\n', " | "));
        let mut console = io::stdout().lock();
        // Ignores a console that refuses output; the laboratory misses `guest: end`.
        let _ = console.write_all(line.as_bytes()).and_then(|()| console.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_the_protocol() {
        let work = WorkDone { bytes: 1, calls: 2, packets: 3 };
        let figures = Measurement { work, wall_ns: 4, user_ns: 5, system_ns: 6 };
        let cases = [
            (ConsoleLine::Begin("udp"), "guest: begin udp"),
            (
                ConsoleLine::EndOf("udp", figures),
                "guest: end-of udp bytes=1 calls=2 packets=3 wall_ns=4 user_ns=5 system_ns=6",
            ),
            (ConsoleLine::Ok("it is so"), "guest: ok it is so"),
            (ConsoleLine::NotOk("it is not"), "guest: not ok it is not"),
            (ConsoleLine::Skip("a: too old"), "guest: skip a: too old"),
            (ConsoleLine::MemcpySizes("a 64 3"), "guest: memcpy-sizes a 64 3"),
            (ConsoleLine::Fpu("section ps=7"), "guest: fpu section ps=7"),
            (ConsoleLine::End, "guest: end"),
        ];
        for (line, expected) in cases {
            assert_eq!(line.to_string(), expected);
        }
    }
}
