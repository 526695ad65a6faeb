// SPDX-License-Identifier: MIT OR Apache-2.0
//! Meters, private networks, interleaved rounds, statistics, results and reports.
//!
//! Both programs use it: `pagewire serve --path auto` and `pagewire paths` rank the paths of a
//! machine with it ([`calibrate`]), and the laboratory's experiments are built on it. Runs are
//! interleaved between members, the bytes of every member are verified before its time counts, and
//! figures are medians with their spread. CPU time is that of the measuring process, user and
//! system, and of the kernel threads that worked for it.
//!
//! The pieces: [`bench`] verifies and times a case with a [`sender`], a [`receiver`] and the
//! [`meter`], in a [`network`] of its own, from [`fixture`]; [`schedule`] runs cases in interleaved
//! rounds; [`results`] holds rows and warnings, [`report`] shows them and [`compare()`] compares
//! two files of them.
//!
//! Sources: hyperfine (interleaving, warnings that name a cure).
//! Sets no pass/fail thresholds.

#![forbid(unsafe_code)]

pub mod asset;
pub mod bench;
mod calibrate;
mod calibrate_receiving;
mod calibration;
pub mod claims;
mod compare;

mod error;
pub mod feed;
pub mod fixture;
pub mod framed;
mod host;
mod inside;

pub mod memory;
pub mod meter;
pub mod network;
mod options;
pub mod receive_bench;
pub mod receiver;
pub mod report;
pub mod results;
pub mod schedule;
pub mod scratch;
pub mod sender;

pub mod statistics;
pub mod warning;

pub use calibrate::{BURSTS, Rank, calibrate, has_engine};
pub use calibrate_receiving::calibrate_receiving;
pub use calibration::{Calibration, Subject, calibration_folder};
pub use claims::Claims;
pub use compare::{Change, ChangeVerdict, Comparison, compare};
pub use error::Error;
pub use host::{COMMIT, HostFacts};
pub use inside::{INSIDE, enter, inside};
pub use network::{Sink, private};
pub use options::{Options, Progress};
pub use paths::{Transport, segments_udp};
pub use results::{FORMAT, Results, Row, save};
pub use statistics::Figure;
pub use warning::{INSTRUMENT_SHARE_MAX, SAMPLES_MIN, SPREAD_MAX, Warning};
