// SPDX-License-Identifier: MIT OR Apache-2.0
//! Name, version and size limits of the journal of sealed files.
//!
//! Does not describe the lines (`line` does).

use std::ffi::CStr;

/// Name of the journal in the sealed folder. It is hidden, so it is never served.
pub const NAME: &str = ".pagewire-seal";
/// The same name, for the kernel.
pub(super) const FILE: &CStr = c".pagewire-seal";
/// Format version that this program writes, and the only one it reads.
pub const VERSION: u32 = 1;
/// Most bytes of a journal, about 20 million lines: limits the time spent on an untrusted file.
pub const BYTES_MAX: u64 = 4 << 30;
/// Most bytes of a line: a path of 4096 bytes, each escaped, and the rest.
pub const LINE_BYTES_MAX: usize = 32 * 1024;
