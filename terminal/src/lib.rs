// SPDX-License-Identifier: MIT OR Apache-2.0
//! Escaped text, standard output and Ctrl-C for the programs `pagewire` and `pagewire-lab`, and the
//! search of each program for the other.
//!
//! Both programs print untrusted names, may write into a closed pipe, and work for minutes until
//! Ctrl-C.
//!
//! Sources: the headers of the modules.
//! Does not parse command lines.

#![forbid(unsafe_code)]

pub mod escape;
mod installed;
pub mod interrupt;
pub mod output;

pub use escape::{Escaped, EscapedLines};
pub use installed::installed;
