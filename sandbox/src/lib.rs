// SPDX-License-Identifier: MIT OR Apache-2.0
//! Restrictions that a process puts on itself, for good: files it may open, system calls it may
//! make, what it may use up.
//!
//! [`FilePermissions`] is Landlock, [`CallFilter`] seccomp, [`ProcessLimits`] setrlimit.
//! [`become_decoder`] puts all three around a program that decodes what strangers have written, and
//! becomes it. Restrictions hold in threads that are made later and over execve, and a second one
//! only narrows the first.
//!
//! Costs a few system calls once. Afterwards the kernel runs a filter of about a hundred
//! instructions for each system call, and looks the path up for each file that is opened; reads and
//! writes of open files are free of that.
//!
//! Sources: landlock(7), seccomp(2), setrlimit(2).
//! Does not make name spaces: those need privileges, or a kernel that gives them to everybody.
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
