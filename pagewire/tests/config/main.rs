// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration of the real program: files, environment and command line at the start
//! ([`verbs`]: `pagewire config`), and the changes by a reload while sessions play ([`reload`]).
//!
//! The program's own unit tests cover the message of each fault of a file. No test here judges
//! times. The suite runs for about ten seconds.

#![forbid(unsafe_code)]

#[path = "../harness/mod.rs"]
mod harness;

mod reload;
mod verbs;
