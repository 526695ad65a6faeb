// SPDX-License-Identifier: MIT OR Apache-2.0
//! Permanent restrictions that a process applies to itself: on the files it may open, the system
//! calls it may make and the resources it may use.
//!
//! [`FilePermissions`] is Landlock, [`CallFilter`] seccomp, [`ProcessLimits`] setrlimit.
//! [`become_decoder`] applies all three to this process and executes a program that decodes
//! untrusted data. Restrictions also apply to threads created later and persist across execve; a
//! second restriction can only narrow the first.
//!
//! Costs a few system calls once. Afterwards the kernel runs a filter of about a hundred
//! instructions for each system call, and checks the path of each file that is opened; reads and
//! writes of open files need no path check.
//!
//! Sources: landlock(7), seccomp(2), setrlimit(2).
//! Does not create namespaces: they need privileges, or a kernel that permits them to every user.
#![forbid(unsafe_code)]

mod architecture;
mod decoder;
mod error;
mod file_permissions;
mod limits;
mod server_calls;
mod system_calls;

pub use decoder::{DecoderLimits, become_decoder};
pub use error::SandboxError;
pub use file_permissions::{Enforced, FilePermissions};
pub use limits::ProcessLimits;
pub use system_calls::CallFilter;
