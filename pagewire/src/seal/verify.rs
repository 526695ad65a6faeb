// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire seal verify`: opens sealed files with OpenSSL and compares them with their source or
//! with the stored hashes; each form is one variant of [`SealedKind`].
//!
//! Does not change anything.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use seal::Error;
use seal::folder::verify;

use super::keys::Keys;
use super::{Running, Total, epub, failures, hls};
use crate::unseal::Named;

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: SealedKind,
}

/// Kinds of sealed libraries, one line each.
#[derive(Subcommand)]
enum SealedKind {
    /// A folder of files.
    Folder(Folder),
    /// Publications with a passphrase: a book or a catalogue.
    Epub(epub::Verify),
    /// Films in folders of segments.
    Hls(hls::Verify),
}

pub(super) fn run(options: Options) -> ExitCode {
    match options.what {
        SealedKind::Folder(options) => folder(&options),
        SealedKind::Epub(options) => epub::verify(options),
        SealedKind::Hls(options) => hls::verify(&options),
    }
}

#[derive(Args)]
struct Folder {
    /// The sealed folder.
    target: PathBuf,
    /// The folder that was sealed, compared byte for byte; else the manifest's hashes are.
    #[arg(long, value_name = "SOURCE")]
    source: Option<PathBuf>,
    #[command(flatten)]
    named: Named,
    #[command(flatten)]
    keys: Keys,
    #[command(flatten)]
    running: Running,
}

fn folder(options: &Folder) -> ExitCode {
    let running = &options.running;
    let planned =
        running.settings().and_then(|settings| Ok((options.planned(settings.threads)?, settings)));
    let (plan, settings) = match planned {
        Ok(planned) => planned,
        Err(error) => return failures::list(&[error]),
    };
    let total = Total { bytes: plan.bytes(), files: plan.files() };
    running.run(|| total, |seen| plan.verify(&settings, seen))
}

impl Folder {
    fn planned(&self, threads: usize) -> Result<verify::VerifyPlan, Error> {
        let how = self.named.how()?;
        let secret = self.keys.of_folder(&self.target, how.map(|how| how.form))?;
        let (target, source) = (self.target.clone(), self.source.clone());
        verify::plan(verify::VerifyOptions { target, source, how, secret }, threads)
    }
}
