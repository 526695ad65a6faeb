// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire seal epub`, `unseal epub` and `seal verify epub`: one publication or a catalogue,
//! protected by Readium LCP.
//!
//! The secret is a passphrase that the reader types. It is read from a file, an environment
//! variable or the terminal, never from the command line.
//!
//! [`seal::epub`] does the work.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use seal::Error;
use seal::engine::{Settings, Work};
use seal::epub::catalogue::{self, CataloguePaths, OpenSettings, SealSettings};
use seal::lcp::{Rights, RootCertificates, Signer, Terms, User, UserKey};

use super::keys::{self, Ask};
use super::{Running, Total, Writing, failures};

/// Source, target, and when the target is on the disk.
#[derive(Args)]
struct Where {
    /// EPUB file, or a folder of them.
    source: PathBuf,
    /// File or folder for one book; a folder for a folder of books.
    target: PathBuf,
    #[command(flatten)]
    writing: Writing,
}

/// Source of the passphrase; with none of these the terminal asks for it.
#[derive(Args)]
#[command(next_help_heading = "Passphrase")]
struct Passphrases {
    /// File with the passphrase as its only line.
    #[arg(long, value_name = "FILE", conflicts_with = "passphrase_env")]
    passphrase_file: Option<PathBuf>,
    /// Environment variable with the passphrase.
    #[arg(long, value_name = "NAME")]
    passphrase_env: Option<String>,
}

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    places: Where,
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    passphrase: Passphrases,
    #[command(flatten)]
    licence: Licence,
}

/// Content of the licences, and their signer.
#[derive(Args)]
#[command(next_help_heading = "Licence")]
struct Licence {
    /// Certificate of the provider, in PEM; `pagewire lcp keygen` makes one for tests.
    #[arg(long, value_name = "FILE")]
    certificate: PathBuf,
    /// Private key of the certificate, in PEM.
    #[arg(long, value_name = "FILE")]
    signing_key: PathBuf,
    /// URI that identifies the provider.
    #[arg(long, value_name = "URI")]
    provider: String,
    /// Hint that reminds readers of their passphrase.
    #[arg(long, value_name = "TEXT")]
    hint: String,
    /// Page with more about the hint.
    #[arg(long, value_name = "URI")]
    hint_url: String,
    /// Link to the sealed book; {name} stands for its file name and is required for a folder:
    /// https://example.org/books/{name}
    #[arg(long, value_name = "URI")]
    publication_url: String,
    /// Pages that may be printed [default: all].
    #[arg(long, value_name = "PAGES")]
    print: Option<u64>,
    /// Characters that may be copied [default: all].
    #[arg(long, value_name = "CHARACTERS")]
    copy: Option<u64>,
    /// Start of the licence, such as 2026-11-21T10:00:00Z.
    #[arg(long, value_name = "DATE")]
    start: Option<String>,
    /// End of the licence.
    #[arg(long, value_name = "DATE")]
    end: Option<String>,
    /// User: an identifier given by the provider.
    #[arg(long, value_name = "ID")]
    user_id: Option<String>,
    /// User: an e-mail address, encrypted in the licence.
    #[arg(long, value_name = "ADDRESS")]
    user_email: Option<String>,
    /// User: a name, encrypted in the licence.
    #[arg(long, value_name = "NAME")]
    user_name: Option<String>,
    /// Also write each licence beside its book, as NAME.lcpl.
    #[arg(long)]
    licence_beside: bool,
}

pub(super) fn run(options: Options) -> ExitCode {
    let planned = || {
        let settings = options.running.settings()?;
        let terms = options.licence.terms(&settings)?;
        let user_key = options.passphrase.read(Ask::Twice)?;
        let licence_beside = options.licence.licence_beside;
        let how = SealSettings { terms: terms.into(), user_key, licence_beside };
        Ok((catalogue::seal(&options.places.places(), &how)?, settings))
    };
    worked(&options.running, planned())
}

/// `pagewire unseal epub`.
#[derive(Args)]
pub(crate) struct Unseal {
    #[command(flatten)]
    places: Where,
    #[command(flatten)]
    passphrase: Passphrases,
    /// Root certificates in PEM: licences must be signed by a provider of theirs.
    #[arg(long, value_name = "FILE")]
    root: Option<PathBuf>,
    #[command(flatten)]
    running: Running,
}

/// Opens sealed books.
pub(crate) fn unseal(options: Unseal) -> ExitCode {
    let planned = || {
        let settings = options.running.settings()?;
        let how = opened(&options.passphrase, options.root.as_deref(), &settings)?;
        Ok((catalogue::unseal(&options.places.places(), &how)?, settings))
    };
    worked(&options.running, planned())
}

/// `pagewire seal verify epub`.
#[derive(Args)]
pub(crate) struct Verify {
    /// A sealed EPUB, or a folder of them.
    target: PathBuf,
    /// Folder of the originals, compared byte for byte; without it, lengths, checksums and the
    /// journal are.
    #[arg(long, value_name = "SOURCE")]
    source: Option<PathBuf>,
    #[command(flatten)]
    passphrase: Passphrases,
    /// Root certificates in PEM: licences must be signed by a provider of theirs.
    #[arg(long, value_name = "FILE")]
    root: Option<PathBuf>,
    #[command(flatten)]
    running: Running,
}

/// Opens sealed books with OpenSSL and compares them.
pub(crate) fn verify(options: Verify) -> ExitCode {
    let planned = || -> Result<_, Error> {
        let settings = options.running.settings()?;
        let how = opened(&options.passphrase, options.root.as_deref(), &settings)?;
        catalogue::verify(&options.target, options.source.as_deref(), &how)
            .map(|plan| (plan, settings))
    };
    worked(&options.running, planned())
}

/// Runs the plan, or reports the error of planning.
fn worked<W: Work>(
    running: &Running,
    planned: Result<(catalogue::CataloguePlan<W>, Settings), Error>,
) -> ExitCode {
    let (plan, settings) = match planned {
        Ok(planned) => planned,
        Err(error) => return failures::list(&[error]),
    };
    let total = Total { bytes: plan.bytes(), files: plan.files() };
    running.run(|| total, |seen| Ok(plan.run(&settings, seen)))
}

fn opened(
    passphrase: &Passphrases,
    root: Option<&Path>,
    settings: &Settings,
) -> Result<OpenSettings, Error> {
    let roots =
        root.map(|root| RootCertificates::from_file("--root", root)).transpose()?.map(Arc::new);
    Ok(OpenSettings { user_key: passphrase.read(Ask::Once)?, roots, cbc: settings.cbc })
}

impl Where {
    fn places(&self) -> CataloguePaths {
        let (source, target) = (self.source.clone(), self.target.clone());
        CataloguePaths { source, target, force: self.writing.force, sync: self.writing.sync() }
    }
}

impl Passphrases {
    fn read(&self, ask: Ask) -> Result<Arc<UserKey>, Error> {
        let (file, variable) = (self.passphrase_file.as_deref(), self.passphrase_env.as_deref());
        let passphrase = keys::passphrase(file, variable, ask)?;
        UserKey::new(&passphrase).map(Arc::new)
    }
}

impl Licence {
    fn terms(&self, settings: &Settings) -> Result<Terms, Error> {
        let certificate = ("--certificate", self.certificate.as_path());
        let signer = Signer::from_files(certificate, ("--signing-key", &self.signing_key))?;
        let rights = Rights {
            print_pages: self.print,
            copy_characters: self.copy,
            start: self.start.clone(),
            end: self.end.clone(),
        };
        let user = User {
            id: self.user_id.clone(),
            email: self.user_email.clone(),
            name: self.user_name.clone(),
        };
        let terms = Terms {
            provider: self.provider.clone(),
            hint: self.hint.clone(),
            hint_url: self.hint_url.clone(),
            publication_url: self.publication_url.clone(),
            rights: (rights != Rights::default()).then_some(rights),
            user: (user != User::default()).then_some(user),
            signer,
            cbc: settings.cbc,
        };
        terms.check(|field| match field {
            "provider" => "--provider",
            "hint" => "--hint",
            "hint_url" => "--hint-url",
            "publication_url" => "--publication-url",
            "start" => "--start",
            "end" => "--end",
            _ => "--user-id",
        })?;
        Ok(terms)
    }
}
