// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire seal folder`: every file below a folder enciphered into another.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use seal::Error;
use seal::folder::{self, FORMS, FolderForm};
use seal::key::passphrase::Stretch;

use super::keys::{self, Ask, Key, Keys};
use super::{Running, Total, Writing, failures};

#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct Options {
    /// The folder to be sealed. Symlinks and special files in it are passed over and named.
    source: PathBuf,
    /// Where to. One that is not there yet appears when all is in it.
    target: PathBuf,
    /// How; see below.
    #[arg(long, value_name = "FORM", default_value = FORMS[0].name, value_parser = form)]
    form: &'static FolderForm,
    /// With a CBC form one IV for all files, 32 hex digits, and none in front of them: as openssl
    /// enc -K -iv writes them. Equal beginnings of files then show.
    #[arg(long, value_name = "HEX", value_parser = keys::iv)]
    iv: Option<[u8; 16]>,
    /// Reads each source a second time, to notice changes through a mapping, which set no time.
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    writing: Writing,
    #[command(flatten)]
    keys: Keys,
    #[command(flatten)]
    running: Running,
}

const AFTER: &str = "\
Forms: gcm (AES-256-GCM in segments) is taken unless another is named: what was changed does not \
open, and Google's Tink opens the files (docs/sealing.md).
aes-256-cbc, aes-192-cbc and aes-128-cbc open with openssl enc and do not tell what was changed.
A folder that was begun with one form goes on with that form alone.

The same command goes on with a run that was stopped or killed, and skips what is done. What it \
knows of that is in TARGET/.pagewire-seal.";

fn form(name: &str) -> Result<&'static FolderForm, String> {
    FolderForm::named(name).ok_or_else(|| {
        let names: Vec<_> = FORMS.iter().map(|form| form.name).collect();
        format!("write one of {}", names.join(", "))
    })
}

pub(crate) fn run(options: Options) -> ExitCode {
    let planned = options.running.settings().and_then(|settings| {
        let threads = settings.threads;
        Ok((settings, folder::plan(options.plan()?, threads)?))
    });
    let (settings, plan) = match planned {
        Ok(planned) => planned,
        Err(error) => return failures::list(&[error]),
    };
    failures::note(plan.notes());
    let total = Total { bytes: plan.bytes(), files: plan.files() };
    options.running.run(|| total, |seen| plan.seal(&settings, seen))
}

impl Options {
    fn plan(&self) -> Result<folder::FolderOptions, Error> {
        let known = folder::header(&self.target)?;
        let ask = if known.is_some() { Ask::Once } else { Ask::Twice };
        let key = self.keys.read(ask)?;
        let stretch = match (&known, &key) {
            (Some(known), _) => known.stretch,
            (None, Key::Passphrase(_)) => Some(Stretch::new()?),
            (None, Key::Key(_)) => None,
        };
        Ok(folder::FolderOptions {
            source: self.source.clone(),
            target: self.target.clone(),
            form: self.form,
            iv: self.iv,
            secret: key.secret(stretch.as_ref(), self.form.key_bytes)?,
            stretch,
            sync: self.writing.sync(),
            force: self.writing.force,
            verify: self.verify,
        })
    }
}
