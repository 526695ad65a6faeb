// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire unseal`: opens sealed files; each form of protection is one variant of [`SealedKind`].
//!
//! Exit status as for `seal`: 0 all done, 1 some failed and the others are done, 2 a wrong option.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use seal::Error;
use seal::folder::unseal::{self, SealedForm};
use seal::folder::{FORMS, FolderForm};

use crate::seal::keys::{self, Keys};
use crate::seal::{Running, Total, Writing, epub, failures, hls};

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: SealedKind,
}

/// Kinds of sealed libraries, one line each.
#[derive(Subcommand)]
enum SealedKind {
    /// A folder of files: tree, modes and times are kept.
    Folder(Folder),
    /// Publications with a passphrase: a book or a catalogue.
    Epub(epub::Unseal),
    /// Films in folders of segments: transport streams again.
    Hls(hls::Unseal),
}

pub(crate) fn run(options: Options) -> ExitCode {
    match options.what {
        SealedKind::Folder(options) => folder(&options),
        SealedKind::Epub(options) => epub::unseal(options),
        SealedKind::Hls(options) => hls::unseal(&options),
    }
}

/// Form in which a folder was sealed, for a folder without a manifest.
#[derive(Args)]
pub(crate) struct Named {
    /// Form in which it was sealed; needed where it has no .pagewire-seal.
    #[arg(long, value_name = "FORM", value_parser = form_names())]
    form: Option<String>,
    /// The IV of all files as 32 hex digits, when it is in front of none (openssl enc -iv).
    #[arg(long, value_name = "HEX", value_parser = keys::iv, requires = "form")]
    iv: Option<[u8; 16]>,
}

fn form_names() -> clap::builder::PossibleValuesParser {
    FORMS.iter().map(|form| form.name).collect::<Vec<_>>().into()
}

impl Named {
    pub(crate) fn how(&self) -> Result<Option<SealedForm>, Error> {
        let Some(name) = &self.form else { return Ok(None) };
        let form = FolderForm::named(name).ok_or_else(|| Error::Option {
            option: "--form",
            found: format!("{name}: no form of a folder"),
            cure: "write one that --help lists".to_owned(),
        })?;
        Ok(Some(SealedForm { form, iv: self.iv }))
    }
}

#[derive(Args)]
struct Folder {
    /// The sealed folder.
    source: PathBuf,
    /// Target folder; a new one appears when all files that open are in it.
    target: PathBuf,
    #[command(flatten)]
    writing: Writing,
    #[command(flatten)]
    named: Named,
    #[command(flatten)]
    keys: Keys,
    #[command(flatten)]
    running: Running,
}

fn folder(options: &Folder) -> ExitCode {
    let planned = options
        .running
        .settings()
        .and_then(|settings| Ok((options.planned(settings.threads)?, settings)));
    let (plan, settings) = match planned {
        Ok(planned) => planned,
        Err(error) => return failures::list(&[error]),
    };
    failures::note(plan.notes());
    let total = Total { bytes: plan.bytes(), files: plan.files() };
    options.running.run(|| total, |seen| plan.unseal(&settings, seen))
}

impl Folder {
    fn planned(&self, threads: usize) -> Result<unseal::UnsealPlan, Error> {
        let how = self.named.how()?;
        let secret = self.keys.of_folder(&self.source, how.map(|how| how.form))?;
        let options = unseal::UnsealOptions {
            source: self.source.clone(),
            target: self.target.clone(),
            how,
            secret,
            sync: self.writing.sync(),
            force: self.writing.force,
        };
        unseal::plan(options, threads)
    }
}
