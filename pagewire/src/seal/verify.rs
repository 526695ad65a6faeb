// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire seal verify`: a sealed folder, of files or of films, opened by OpenSSL and compared
//! with what was sealed.
//!
//! Does not do: change anything.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use seal::Error;
use seal::folder::verify;

use super::keys::Keys;
use super::{Running, Total, failures};
use crate::unseal::Named;

#[derive(Args)]
pub(crate) struct Options {
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

pub(super) fn run(options: Options) -> ExitCode {
    let running = &options.running;
    let (target, source) = (options.target.as_path(), options.source.as_deref());
    if !target.join(seal::manifest::NAME).exists() && seal::hls::holds_films(target) {
        return super::hls::verify(target, source, &options.keys, running);
    }
    let planned =
        running.settings().and_then(|settings| Ok((options.planned(settings.threads)?, settings)));
    let (plan, settings) = match planned {
        Ok(planned) => planned,
        Err(error) => return failures::list(&[error]),
    };
    let total = Total { bytes: plan.bytes(), files: plan.files() };
    running.run(|| total, |seen| plan.verify(&settings, seen))
}

impl Options {
    fn planned(&self, threads: usize) -> Result<verify::Plan, Error> {
        let how = self.named.how()?;
        let secret = self.keys.of_folder(&self.target, how.map(|how| how.form))?;
        let (target, source) = (self.target.clone(), self.source.clone());
        verify::plan(verify::Options { target, source, how, secret }, threads)
    }
}
