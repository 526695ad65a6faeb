// SPDX-License-Identifier: MIT OR Apache-2.0
//! lab: what a data path costs, measured on this machine.
//!
//! Each experiment is one file and one line in [`EXPERIMENTS`]. Runs are interleaved between
//! members, the bytes of every member are verified before its time counts, and figures are medians
//! with their spread. Processor time is that of the measuring process, user and system, and of the
//! kernel's threads that worked for it.
//!
//! How the pieces fit: an experiment (`experiments/`) plans cases and their turns; `bench` verifies
//! and times a case with a `sender`, a `receiver` and the `meter`, in a `network` of its own, from
//! `material`; what comes out are `results`, which `report` shows and `compare` compares.
//!
//! Does not do: judge. Bars are the reader's.

#![forbid(unsafe_code)]

mod asset;
mod bench;
mod calibrate;
mod claims;
mod compare;
mod course;
mod error;
mod experiments;
pub mod explain;
mod host;
mod material;
mod memory;
mod meter;
mod network;
mod options;
mod published;
mod receiver;
pub mod report;
mod results;
mod sender;
mod shelf;
pub mod stalls;
mod statistics;
mod warning;

pub use calibrate::{BURSTS, Rank, calibrate, has_engine};
pub use claims::Claims;
pub use compare::{Change, Comparison, Verdict, compare};
pub use error::Error;
pub use experiments::{EXPERIMENTS, Experiment, calibrate_receiving, find};
pub use host::{COMMIT, HostFacts};
pub use network::{Sink, private};
pub use options::{Options, Progress};
pub use paths::{Transport, segments_udp};
pub use results::{FORMAT, Results, Row, save};
pub use statistics::Figure;
pub use warning::{INSTRUMENT_SHARE_MAX, SAMPLES_MIN, SPREAD_MAX, Warning};
