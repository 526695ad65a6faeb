// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab planning`: the cost of packet plans: bytes a second of transport streams, samples
//! a second of files with tracks, and a folder of many files beside paced sessions.
//!
//! Files lie in memory, so no disk is measured. Transport streams and tables are planned by the
//! library on one core, in the steps of the server's planner; the folder is planned by the
//! installed server. Every plan is compared with the written data.
//!
//! Sources: [`media::ts::Scanner`], [`media::Demuxer`]; docs/index-json.md.
//! Does not measure plans that are read from the cache. Sets no pass/fail thresholds.

mod counted;
mod folder;
mod matroska;
mod movie;
mod mp4;
mod stream;
mod tables;

use std::path::PathBuf;

use media::RtpIdentity;

use measure::Error;
use measure::Options;
use measure::memory::Turns;
use measure::results::Results;
use measure::scratch::ScratchDir;
use measure::warning::Warning;

/// Parts of the experiment, as `--member` names them.
pub(crate) const MEMBERS: &[&str] = &[stream::SCAN, TABLES, folder::SERVER];

/// Files to be planned, and their place.
struct Planning<'a> {
    options: &'a Options,
    folder: PathBuf,
    /// Description of the folder's file system.
    place: String,
    /// Size of a transport stream.
    stream_bytes: u64,
    /// Length of the movie of files with tables.
    movie_s: u64,
    /// Small files of the folder.
    files: u64,
    sessions: usize,
    /// Seconds of a period in which sessions play.
    seconds: u64,
}

pub(crate) fn run(options: &Options) -> Result<Results, Error> {
    let mut results = Results::new("planning", options.command.clone());
    if let Some(name) = options.members.iter().find(|name| !MEMBERS.contains(&name.as_str())) {
        let found = format!("no such part of planning; write one of {}", MEMBERS.join(", "));
        return Err(Error::Caller { what: format!("member {name}"), found });
    }
    let wants =
        |name: &str| options.members.is_empty() || options.members.iter().any(|m| m == name);
    let scratch = ScratchDir::new(options.folder.as_deref())?;
    let quick = options.quick;
    let planning = Planning {
        options,
        folder: scratch.folder("planning")?,
        place: scratch.description.clone(),
        stream_bytes: if quick { 32_000_000 } else { 512_000_000 },
        movie_s: if quick { 1800 } else { 4 * 3600 },
        files: if quick { 600 } else { 10_000 },
        sessions: options.sessions.first().copied().unwrap_or(if quick { 10 } else { 100 }).max(1),
        seconds: options.seconds.unwrap_or(2).max(1),
    };
    results.complete = true;
    // First, as the other parts pin this thread to one core.
    if wants(folder::SERVER) {
        folder::measure(&planning, &mut results)?;
    }
    if wants(stream::SCAN) || wants(TABLES) {
        let mut turns = Turns::new(options, 3, &mut results);
        if wants(stream::SCAN) {
            stream::measure(&planning, &mut turns, &mut results)?;
        }
        if wants(TABLES) && !options.stopped() {
            tables::measure(&planning, &mut turns, &mut results)?;
        }
        turns.finish(&mut results);
    }
    results.complete = results.complete && !options.stopped();
    Ok(results)
}

/// Renames the rows of times from `first` on: an operation is a packet or a sample.
fn name_times(results: &mut Results, first: usize, metric: &str) {
    for row in results.rows[first..].iter_mut().filter(|row| row.metric == "time") {
        metric.clone_into(&mut row.metric);
    }
}

/// Notes that a part returned no figures.
fn add_failure(results: &mut Results, member: &str, found: impl ToString) {
    results.complete = false;
    let (member, found) = (member.to_owned(), found.to_string());
    results.warn(Warning::MemberFailed { member, found });
}

const TABLES: &str = "tables";
/// No random value enters the comparison of plans.
const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };
