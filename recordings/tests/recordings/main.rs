// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of lists and cuts of recordings.

#![forbid(unsafe_code)]

mod cuts;
mod lists;
mod made;
mod timed;
