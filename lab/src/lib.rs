// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the CPU cost of data paths on this machine.
//!
//! Each experiment is one file and one line in [`EXPERIMENTS`]. Runs are interleaved between
//! members, the bytes of every member are verified before its time counts, and figures are medians
//! with their spread. Processor time is that of the measuring process, user and system, and of the
//! kernel's threads that worked for it.
//!
//! The parts: an experiment (`experiments/`) plans cases and their turns. In the crate `measure`,
//! `bench` verifies and times a case with a `sender`, a `receiver` and the `meter`, in a `network`
//! of its own, with files of `fixture`; `report` shows the `results` and `compare` compares them.
//!
//! Sets no pass/fail thresholds.

#![deny(unsafe_code)]

mod experiments;
pub mod explain;
mod installed;
mod published;
pub mod specimens;

pub use experiments::{EXPERIMENTS, Experiment, find};
