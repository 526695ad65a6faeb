// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire seal folder` unchanged: many files in the lanes of each core, with all its safety.
//!
//! Unlike the published method, its time includes a random IV a file, a hash of each source, a
//! journal for reruns, preserved times and modes, names that appear only when their file is
//! complete, and a sync of the file system. Its account of stages gives the cost of each of these.
//!
//! Sources: crate `seal`, module `folder`.

use std::path::Path;

use seal::engine::{SealProgress, Settings};
use seal::folder::{self, Durability, FolderForm, FolderOptions};
use seal::key::{Origin, Secret};

use super::member::{Account, KEY, Layout, Member};
use measure::Error;

pub(super) static MEMBER: Member = Member {
    name: "lanes",
    summary: "pagewire seal folder: files in the lanes of every core, IV, hash, journal, rename",
    layout: Layout::IvBody,
    run,
};

fn run(source: &Path, target: &Path, threads: usize) -> Result<Account, Error> {
    let failed = |error: &dyn std::fmt::Display| Error::Host {
        what: format!("sealing {}", source.display()),
        found: error.to_string(),
    };
    let origin = Origin::new("the experiment's key", "");
    let secret = Secret::new(KEY.to_vec().into(), origin).map_err(|error| failed(&error))?;
    let options = FolderOptions {
        source: source.to_owned(),
        target: target.to_owned(),
        form: FolderForm::named(FORM).expect("a form of the list"),
        iv: None,
        secret,
        stretch: None,
        sync: Durability::End,
        force: false,
        verify: false,
    };
    let settings = Settings::here(Some(threads));
    let plan = folder::plan(options, threads).map_err(|error| failed(&error))?;
    let outcome = plan.seal(&settings, &SealProgress::default()).map_err(|error| failed(&error))?;
    match outcome.failed.first() {
        Some(error) => Err(failed(error)),
        None => Ok(Some(outcome.stages)),
    }
}

const FORM: &str = "aes-128-cbc";
