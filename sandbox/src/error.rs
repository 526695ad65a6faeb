// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of restrictions.

use std::io;
use std::path::PathBuf;

/// Reason why a restriction is not in force, or a program did not start under it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// Landlock refuses rules that it supports.
    #[error("landlock: {0}")]
    Files(#[from] landlock::RulesetError),
    /// seccomp refuses the filter.
    #[error("seccomp: {0}; the kernel needs CONFIG_SECCOMP_FILTER")]
    SystemCalls(seccompiler::Error),
    /// A system call failed.
    #[error("{call} {object}: {source}")]
    Host {
        /// The system call.
        call: &'static str,
        /// Its object.
        object: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The program cannot be started.
    #[error("execve {}: {source}", program.display())]
    Program {
        /// Its path.
        program: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}
