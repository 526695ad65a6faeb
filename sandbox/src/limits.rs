// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits on the resources of a process.
//!
//! Sources: setrlimit(2), nice(2).
//! Does not limit the number of processes: the kernel counts those of a user together, and the
//! superuser's not at all. [`crate::CallFilter`] forbids to make them.

use std::io;

use rustix::process::{Resource, Rlimit, nice, setrlimit};

use crate::error::SandboxError;

/// Limits of a process; both the soft and the hard ones, so that it cannot raise them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Processor time; the kernel kills it then.
    pub cpu_s: u64,
    /// Address space.
    pub memory_bytes: u64,
    /// Largest file that it may write.
    pub file_bytes: u64,
    /// Open files.
    pub files: u64,
}

impl ProcessLimits {
    /// Puts the limits on the process. It leaves no core file, and has the lowest priority.
    ///
    /// # Errors
    /// The kernel refuses: a limit is higher than the one in force.
    pub fn restrict(&self) -> Result<(), SandboxError> {
        let limits = [
            (Resource::Cpu, "RLIMIT_CPU", self.cpu_s),
            (Resource::As, "RLIMIT_AS", self.memory_bytes),
            (Resource::Fsize, "RLIMIT_FSIZE", self.file_bytes),
            (Resource::Nofile, "RLIMIT_NOFILE", self.files),
            (Resource::Core, "RLIMIT_CORE", 0),
        ];
        for (resource, name, limit) in limits {
            let both = Rlimit { current: Some(limit), maximum: Some(limit) };
            setrlimit(resource, both).map_err(|errno| failed("setrlimit", name, errno.into()))?;
        }
        // I/O priority follows from it (ioprio_set(2)).
        nice(LOWEST).map_err(|errno| failed("nice", "19", errno.into()))?;
        Ok(())
    }
}

fn failed(call: &'static str, object: &str, source: io::Error) -> SandboxError {
    SandboxError::Host { call, object: object.to_owned(), source }
}

/// sched(7): the least share of a processor that others want.
const LOWEST: i32 = 19;
