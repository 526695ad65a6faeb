// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire seal folder` as it is: many files in the lanes of each core, and all its safety.
//!
//! What the published method has not and this has in its time: a random IV a file, a hash of each
//! source, a journal that a rerun goes by, times and modes kept, names that appear only when what
//! they name is whole, and the file system asked to write it all down. Its account of stages tells
//! what each of these costs.
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
    let origin = Origin::new("the study's key", "");
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
