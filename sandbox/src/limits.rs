// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits on the resources of a process.
//!
//! Sources: setrlimit(2), nice(2).
//! Does not limit the number of processes: the kernel counts the processes of a user together, and
//! does not count the superuser's. [`crate::CallFilter`] forbids creating processes.

use std::io;

use rustix::process::{Resource, Rlimit, nice, setrlimit};

use crate::error::SandboxError;

/// Limits of a process; soft and hard limits are equal, so that the process cannot raise them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessLimits {
    /// CPU time after which the kernel kills the process.
    pub cpu_s: u64,
    /// Address space.
    pub memory_bytes: u64,
    /// Size of the largest file that the process may write.
    pub file_bytes: u64,
    /// Open files.
    pub files: u64,
}

impl ProcessLimits {
    /// Applies the limits to this process, disables its core file and gives it the lowest priority.
    ///
    /// # Errors
    /// The kernel refuses: a limit is higher than the current one.
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
        // The I/O priority follows from the nice value (ioprio_set(2)).
        nice(LOWEST).map_err(|errno| failed("nice", "19", errno.into()))?;
        Ok(())
    }
}

fn failed(call: &'static str, object: &str, source: io::Error) -> SandboxError {
    SandboxError::Host { call, object: object.to_owned(), source }
}

/// Smallest share of a contended CPU (sched(7)).
const LOWEST: i32 = 19;
