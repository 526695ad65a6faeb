// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration of the real program: files, environment and command line at the start
//! ([`verbs`]: `pagewire config`), and what a reload changes while sessions play ([`reload`]).
//!
//! Which fault of a file has which message, the program's own unit tests hold. Nothing here judges
//! times. Takes about ten seconds.

#![forbid(unsafe_code)]

#[path = "../harness/mod.rs"]
mod harness;

mod reload;
mod verbs;
