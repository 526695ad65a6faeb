// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server as a service: sockets that a service manager has opened ([`sockets`]), an upgrade with
//! playing sessions ([`upgrade`]), dropped privileges ([`privileges`]), files that it may not open
//! ([`confined`]), the image of a container ([`container`]), and the units of its packages
//! ([`units`]). [`thousand`]: a reload and an upgrade while a thousand sessions play.
//!
//! All tests use the real program over loopback. Tests that need root, or a program that is not
//! installed, are skipped with a message. The suite takes some twenty seconds on two cores.

#![forbid(unsafe_code)]

#[path = "../harness/mod.rs"]
mod harness;

mod confined;
mod container;
mod privileges;
mod process;
mod sockets;
mod thousand;
mod units;
mod upgrade;
