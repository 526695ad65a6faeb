// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls that a process may make, by seccomp.
//!
//! All others fail with ENOSYS, as on a kernel that does not have them, so that libraries use a
//! fallback (the C library uses clone instead of clone3, whose flags a filter cannot see).
//!
//! Sources: seccomp(2), clone(2), open(2).
//! Does not inspect memory: [`crate::FilePermissions`] restricts paths.

use std::collections::BTreeMap;

use libc::{c_int, c_long};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

use crate::error::SandboxError;

/// System calls that are allowed.
#[derive(Debug, Clone, Default)]
pub struct CallFilter {
    rules: BTreeMap<c_long, Vec<SeccompRule>>,
}

impl CallFilter {
    /// Returns a filter that allows no calls.
    pub fn none() -> CallFilter {
        CallFilter::default()
    }

    /// Adds calls, by number.
    #[must_use]
    pub fn allowing(mut self, calls: &[c_long]) -> CallFilter {
        self.rules.extend(calls.iter().map(|&call| (call, Vec::new())));
        self
    }

    /// Adds calls that create threads, but none that create processes.
    #[must_use]
    pub fn with_threads(self) -> CallFilter {
        let flag = libc::CLONE_THREAD as u64;
        self.when(libc::SYS_clone, &[(0, SeccompCmpOp::MaskedEq(flag), flag)])
    }

    /// Adds calls that open files for reading.
    #[must_use]
    pub fn with_reading(self) -> CallFilter {
        let flags = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64;
        let reads = libc::O_RDONLY as u64;
        self.when(libc::SYS_openat, &[(2, SeccompCmpOp::MaskedEq(flags), reads)])
    }

    /// Adds calls that read and lower the limits of this process only.
    #[must_use]
    pub fn with_own_limits(self) -> CallFilter {
        self.when(libc::SYS_prlimit64, &[(0, SeccompCmpOp::Eq, 0)])
    }

    /// Adds calls that copy descriptors and read and set their flags, but none that make the kernel
    /// send signals to other processes (F_SETOWN, F_SETSIG).
    #[must_use]
    pub fn with_descriptor_flags(self) -> CallFilter {
        let commands =
            [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL];
        commands.into_iter().fold(self, |calls, command| {
            calls.when(libc::SYS_fcntl, &[(1, SeccompCmpOp::Eq, command as u64)])
        })
    }

    /// Adds calls that send a signal to this process, whose ID is `process`.
    #[must_use]
    pub fn with_signals_to(self, process: u32) -> CallFilter {
        self.when(libc::SYS_tgkill, &[(0, SeccompCmpOp::Eq, process.into())])
    }

    /// Adds a call that is allowed if all conditions on its arguments hold.
    fn when(mut self, call: c_long, arguments: &[(u8, SeccompCmpOp, u64)]) -> CallFilter {
        let condition = |(index, operator, value): &(u8, SeccompCmpOp, u64)| {
            let length = SeccompCmpArgLen::Qword;
            SeccompCondition::new(*index, length, operator.clone(), *value)
                .expect("a call has six arguments")
        };
        let rule = SeccompRule::new(arguments.iter().map(condition).collect());
        self.rules.entry(call).or_default().push(rule.expect("a condition at least"));
        self
    }

    /// Restricts the calling thread and the threads that it creates.
    ///
    /// # Errors
    /// The kernel has no seccomp filters, or the architecture is unknown.
    pub fn restrict(self) -> Result<(), SandboxError> {
        let missing = SeccompAction::Errno(libc::ENOSYS as c_int as u32);
        let compiled = || -> Result<BpfProgram, seccompiler::BackendError> {
            let architecture = std::env::consts::ARCH.try_into()?;
            SeccompFilter::new(self.rules, missing, SeccompAction::Allow, architecture)?.try_into()
        };
        let program = compiled().map_err(|error| SandboxError::SystemCalls(error.into()))?;
        apply_filter(&program).map_err(SandboxError::SystemCalls)
    }
}
