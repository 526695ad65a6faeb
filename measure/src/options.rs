// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a measurement is told, and how it says where it is and hears that it shall stop.
//!
//! Sources: the command line (`pagewire lab --help`).
//! Does not do: parse; that is the command line's.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use paths::{Spec, Transport};

use crate::network::Sink;

/// What a measurement is told. [`Options::default`] measures everything in full.
#[derive(Clone, Default)]
pub struct Options {
    /// Fewer and shorter runs: under a minute, with a wider spread.
    pub quick: bool,
    /// Transports; all when empty.
    pub transports: Vec<Transport>,
    /// Members by name; all when empty.
    pub members: Vec<String>,
    /// Bytes of a datagram or a step; the experiment's own when empty.
    pub sizes: Vec<u32>,
    /// Sinks; the experiment's own when empty.
    pub sinks: Vec<Sink>,
    /// Timed rounds; the experiment's own by default.
    pub rounds: Option<usize>,
    /// The most rounds where an experiment adds some until its figures are calm; its own by
    /// default, or as many as `rounds` when those are given.
    pub rounds_max: Option<usize>,
    /// Numbers of sessions, for `sessions`; its own when empty.
    pub sessions: Vec<usize>,
    /// Seconds of steady streaming, for `sessions`.
    pub seconds: Option<u64>,
    /// Numbers of threads, for `seal`; its own when empty.
    pub threads: Vec<usize>,
    /// Where the folders of `seal` lie; in memory by default.
    pub folder: Option<PathBuf>,
    /// Parts of `kernel`; all when empty.
    pub parts: Vec<String>,
    /// The checkout that `kernel` builds and boots; that of the working folder by default.
    pub tree: Option<PathBuf>,
    /// Cores the server may use, for `sessions`; all by default.
    pub cores: Option<usize>,
    /// The command as it was typed, word by word, for the results.
    pub command: Vec<String>,
    /// Set from outside when the user has had enough; what was measured is kept.
    pub stop: Arc<AtomicBool>,
    /// Called before each step: done, of how many, what now.
    pub progress: Option<Progress>,
}

/// Steps done, steps in all, and what is being measured.
pub type Progress = Arc<dyn Fn(usize, usize, &str) + Send + Sync>;

impl Options {
    /// True once the user has asked for an early end.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Reports a step to [`Options::progress`]'s callback: `done` of `of`, and its name.
    pub fn progress(&self, done: usize, of: usize, what: &str) {
        if let Some(progress) = &self.progress {
            progress(done, of, what);
        }
    }

    /// Whether a path is asked for. References are always: ratios need them.
    pub fn wants(&self, spec: &Spec) -> bool {
        let transport = self.transports.is_empty() || self.transports.contains(&spec.transport);
        let member = self.members.is_empty() || self.members.iter().any(|name| name == spec.name);
        transport && (member || REFERENCES.contains(&(spec.transport, spec.name)))
    }

    /// Sinks that were asked for, or `sinks` where none was.
    pub fn sinks_or(&self, sinks: &[Sink]) -> Vec<Sink> {
        if self.sinks.is_empty() { sinks.to_vec() } else { self.sinks.clone() }
    }
}

/// What each transport's members are compared with.
pub(crate) const REFERENCES: [(Transport, &str); 3] = [
    (Transport::Rtp, "read_writev"),
    (Transport::Udp, "read_write"),
    (Transport::Tcp, "read_write"),
];
