// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire seal folder`: encrypts every file below a folder into another folder.

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
    /// Folder to seal. Symlinks and special files in it are skipped and listed.
    source: PathBuf,
    /// Folder for the sealed files. A new one appears under its name when it is complete.
    target: PathBuf,
    /// Form of encryption; see below.
    #[arg(long, value_name = "FORM", default_value = FORMS[0].name, value_parser = form)]
    form: &'static FolderForm,
    /// One IV for all files of a CBC form, 32 hex digits, not stored in the files: the layout of
    /// openssl enc -K -iv. Files that begin alike then show it.
    #[arg(long, value_name = "HEX", value_parser = keys::iv)]
    iv: Option<[u8; 16]>,
    /// Read each source a second time: writes through a memory mapping set no modification time.
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
Forms: gcm (AES-256-GCM in segments) is the default: a changed file does not open, and Google's \
Tink opens the files (docs/sealing.md).
aes-256-cbc, aes-192-cbc and aes-128-cbc open with openssl enc and do not detect changes.
A folder keeps the form of its first run.

The same command resumes a run that was stopped or killed and skips finished files. The journal \
is TARGET/.pagewire-seal.";

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
