// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of a measurement, its progress callback and its stop flag.
//!
//! Sources: the command line (`pagewire lab --help`).
//! Does not parse the command line; `pagewire` does.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use paths::{Spec, Transport};

use crate::network::Sink;

/// Options of a measurement. [`Options::default`] measures everything in full.
#[derive(Clone, Default)]
pub struct Options {
    /// Fewer and shorter runs: under a minute, with a wider spread.
    pub quick: bool,
    /// Transports; empty for all.
    pub transports: Vec<Transport>,
    /// Members by name; empty for all.
    pub members: Vec<String>,
    /// Bytes of a datagram or a step; empty for the experiment's own.
    pub sizes: Vec<u32>,
    /// Sinks; empty for the experiment's own.
    pub sinks: Vec<Sink>,
    /// Timed rounds; `None` for the experiment's own.
    pub rounds: Option<usize>,
    /// Upper limit of rounds for an experiment that adds rounds until its figures are stable; by
    /// default its own limit, or `rounds` where that is given.
    pub rounds_max: Option<usize>,
    /// Numbers of sessions, for `sessions`; empty for its own.
    pub sessions: Vec<usize>,
    /// Seconds of steady streaming, for `sessions`.
    pub seconds: Option<u64>,
    /// Numbers of threads, for `seal`; empty for its own.
    pub threads: Vec<usize>,
    /// Folder below which `seal` works; a file system in memory by default.
    pub folder: Option<PathBuf>,
    /// Parts of `kernel`; empty for all.
    pub parts: Vec<String>,
    /// Checkout that `kernel` builds and boots; that of the working folder by default.
    pub tree: Option<PathBuf>,
    /// Number of cores for the server, for `sessions`; all by default.
    pub cores: Option<usize>,
    /// The command line, word by word, for the results.
    pub command: Vec<String>,
    /// Set by the caller to end early; figures measured until then are kept.
    pub stop: Arc<AtomicBool>,
    /// Called before each step.
    pub progress: Option<Progress>,
}

/// Arguments: steps done, steps in all, and the name of the present step.
pub type Progress = Arc<dyn Fn(usize, usize, &str) + Send + Sync>;

impl Options {
    /// True once the user has requested an early end.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Reports a step to the [`Options::progress`] callback: `done` of `of`, and its name.
    pub fn progress(&self, done: usize, of: usize, what: &str) {
        if let Some(progress) = &self.progress {
            progress(done, of, what);
        }
    }

    /// True when a path is to be measured. References always are, because ratios need them.
    pub fn wants(&self, spec: &Spec) -> bool {
        let transport = self.transports.is_empty() || self.transports.contains(&spec.transport);
        let member = self.members.is_empty() || self.members.iter().any(|name| name == spec.name);
        transport && (member || REFERENCES.contains(&(spec.transport, spec.name)))
    }

    /// Returns the requested sinks, or `sinks` where none was requested.
    pub fn sinks_or(&self, sinks: &[Sink]) -> Vec<Sink> {
        if self.sinks.is_empty() { sinks.to_vec() } else { self.sinks.clone() }
    }
}

/// Member of each transport that the others are compared with.
pub(crate) const REFERENCES: [(Transport, &str); 4] = [
    (Transport::Rtp, "read_writev"),
    (Transport::Udp, "read_write"),
    (Transport::Tcp, "read_write"),
    (Transport::Interleaved, "framed_writev"),
];
