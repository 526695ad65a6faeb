// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab seal`: folders encrypted by the published method, and by `pagewire seal`.
//!
//! The file-encryption paper encrypted folders of equal files by OpenSSL, a file a thread. It found
//! that many cores gained little and that some runs took seconds longer than others, for a cause it
//! could not name. The grid repeats its cells with its method, with its method and this program's
//! cipher, and with the lanes; every slow run is reported with its cause (`outlier`, `cause`). Then
//! follow folders as publishers have them (`library`), and their books (`catalogue`).
//!
//! OpenSSL decrypts every output of every member, and the result is compared, before the member is
//! timed. After every timed run the number and the sizes of the outputs are checked.
//!
//! Sources: the file-encryption paper (Shirase: parallel encryption on the many-core coprocessor
//! Xeon Phi).
//! Does not decrypt, as the paper publishes no times of it.

mod books;
mod catalogue;
mod cause;
mod copy;
mod counters;
mod grid;
mod lanes;
mod library;
mod member;
mod outlier;
mod paper;
mod per_file;
mod published;
mod source;

use std::time::Duration;

use member::{MEMBERS, Member};

use measure::Error;
use measure::Options;
use measure::meter::Meter;
use measure::results::Results;
use measure::scratch::ScratchDir;
use measure::warning::Warning;

pub(crate) fn run(options: &Options) -> Result<Results, Error> {
    let members = members(options)?;
    let mut results = Results::new("seal", options.command.clone());
    let mut scratch = ScratchDir::new(options.folder.as_deref())?;
    results.notes.push(format!("source and target in {}", scratch.description));
    for member in &members {
        results.notes.push(format!("{}: {}", member.name, member.summary));
    }
    let meter = Meter::of_this_process();
    let begun = meter.begin();
    results.notes.push(format!("{}: {}", copy::MEMBER.name, copy::MEMBER.summary));
    let beside: Vec<&Member> = members.iter().copied().chain([&copy::MEMBER]).collect();
    library::measure(&beside, &mut scratch, options, &mut results)?;
    if options.members.is_empty() {
        catalogue::measure(&mut scratch, options, &mut results)?;
    }
    let plan = grid::Plan::of(options, members);
    grid::measure(&plan, &mut scratch, options, &mut results)?;
    paper::add(&plan.sizes, &mut results);
    let cost = begun.end(Duration::ZERO);
    if cost.others_share() > OTHERS_MAX {
        results.warn(Warning::OtherLoad { busy_share: cost.others_share() });
    }
    let stolen = cost.stolen.as_secs_f64() / (cost.wall.as_secs_f64() * cost.processors as f64);
    if stolen > STOLEN_MAX {
        results.warn(Warning::StolenTime { share: stolen });
    }
    results.complete = !options.stopped();
    Ok(results)
}

/// Returns the selected members and the first, which the ratios need.
fn members(options: &Options) -> Result<Vec<&'static Member>, Error> {
    let known = || MEMBERS.iter().map(|member| member.name);
    if let Some(name) = options.members.iter().find(|name| known().all(|known| known != *name)) {
        return Err(Error::Caller {
            what: format!("member {name}"),
            found: format!("write one of {}", known().collect::<Vec<_>>().join(", ")),
        });
    }
    let wanted = |member: &&Member| {
        let all = options.members.is_empty() || member.name == MEMBERS[0].name;
        all || options.members.iter().any(|name| name == member.name)
    };
    Ok(MEMBERS.iter().copied().filter(wanted).collect())
}

/// Parameters of a row.
const FOLDER: &str = "folder";
const BYTES: &str = "bytes";
const THREADS: &str = "threads";
/// Files in the paper's folders.
const FILES: [usize; 2] = [10, 100];
const OTHERS_MAX: f64 = 0.05;
const STOLEN_MAX: f64 = 0.01;
