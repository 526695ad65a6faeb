// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lcp`: makes the certificates of a Readium LCP provider for tests.
//!
//! Does not obtain a certificate that reading systems trust; the licence authority issues those.

use std::ffi::CString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};
use seal::folder_walk::DirHandle;
use seal::lcp::{Algorithm, CertificateNames, TestProvider};
use seal::{Error, PendingFile};

use crate::output;
use crate::seal::failures;

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Makes a provider for tests: a root certificate and, signed by it, a provider's.
    Keygen(Keygen),
}

#[derive(Args)]
struct Keygen {
    /// The folder for root.pem, root.key, provider.pem and provider.key; made if it is not there.
    folder: PathBuf,
    /// Subject of the provider's certificate.
    #[arg(long, value_name = "NAME", default_value = "pagewire test provider")]
    name: String,
    /// Algorithm of the signature.
    #[arg(long, value_name = "KIND", value_enum, default_value_t = Kind::Ecdsa)]
    algorithm: Kind,
    /// Days for which the certificates are valid.
    #[arg(long, value_name = "DAYS", default_value_t = 365,
          value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// ECDSA on P-256: short, and fast to sign with.
    Ecdsa,
    /// RSA of 2048 bits, which older reading systems require.
    Rsa,
}

pub(crate) fn run(options: Options) -> ExitCode {
    let Verb::Keygen(keygen) = options.verb;
    match keygen.make() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failures::list(&[error]),
    }
}

impl Keygen {
    fn make(&self) -> Result<(), Error> {
        let algorithm = match self.algorithm {
            Kind::Ecdsa => Algorithm::Ecdsa,
            Kind::Rsa => Algorithm::Rsa,
        };
        let names =
            CertificateNames { root: format!("{} root", self.name), provider: self.name.clone() };
        let made = TestProvider::new(&names, algorithm, self.days)?;
        std::fs::create_dir_all(&self.folder).map_err(Error::host("mkdir", &self.folder))?;
        let files: [(&str, &[u8], u32); 4] = [
            ("root.pem", &made.root_certificate, 0o644),
            ("root.key", &made.root_key, 0o600),
            ("provider.pem", &made.certificate, 0o644),
            ("provider.key", &made.key, 0o600),
        ];
        // Checks all four files first: new files beside old ones would not match each other.
        for (name, ..) in files {
            let path = self.folder.join(name);
            if path.symlink_metadata().is_ok() {
                let found = format!("{} is there already", path.display());
                let cure = "name another folder".to_owned();
                return Err(Error::Option { option: "FOLDER", found, cure });
            }
        }
        let root = Arc::new(DirHandle::open(&self.folder)?);
        for (name, bytes, mode) in files {
            let name = CString::new(name).expect("a name has no NUL");
            let pending = PendingFile::create_below(&root, name, mode)?;
            let written = pending.file().write_all(bytes);
            written.map_err(Error::host("write", &pending.target()))?;
            pending.commit(false)?;
        }
        let folder = self.folder.display();
        output::line(format_args!(
            "{folder}/provider.pem and provider.key: --certificate and --signing-key\n\
             {folder}/root.pem: --root, for whoever verifies"
        ));
        Ok(())
    }
}
