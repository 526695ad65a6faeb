// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page: as sent ([`answers`]: the policy, the table for others, the size), and as people use
//! it in a browser ([`clients`]).

#![forbid(unsafe_code)]

#[path = "../harness/mod.rs"]
mod harness;

mod answers;
mod clients;
