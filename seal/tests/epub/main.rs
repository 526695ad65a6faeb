// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of publications: sealed, opened by independent readers, unsealed; and every refusal.
#![forbid(unsafe_code)]

mod books;
mod catalogues;
mod opened;
mod refused;
mod zip;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use seal::engine::{self, SealOutcome, SealProgress, Settings};
use seal::epub::{Book, SealedBook};
use seal::key::Origin;
use seal::key::passphrase::Passphrase;
use seal::lcp::{
    Algorithm, CertificateNames, RootCertificates, Signer, Terms, TestProvider, UserKey,
};
use zeroize::Zeroizing;

pub(crate) const PASSPHRASE: &str = "Frère Jacques, dormez-vous?";

/// A folder with a provider's files.
pub(crate) struct Desk {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) terms: Arc<Terms>,
    pub(crate) user_key: Arc<UserKey>,
}

pub(crate) fn user_key(text: &str) -> UserKey {
    let text = Zeroizing::new(text.as_bytes().to_vec());
    UserKey::new(&Passphrase::new(text, Origin::new("passphrase", "")).unwrap()).unwrap()
}

impl Desk {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let names = CertificateNames { root: "A root".into(), provider: "A provider".into() };
        let provider = TestProvider::new(&names, algorithm, 30).unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        write("root.pem", &provider.root_certificate);
        write("provider.pem", &provider.certificate);
        write("provider.key", &provider.key);
        let terms = Self::again(folder.path());
        Self { folder, terms, user_key: Arc::new(user_key(PASSPHRASE)) }
    }

    /// Returns the terms of a desk that another process made.
    pub(crate) fn again(folder: &Path) -> Arc<Terms> {
        let (certificate, key) = (folder.join("provider.pem"), folder.join("provider.key"));
        let signer =
            Signer::from_files(("--certificate", &certificate), ("--signing-key", &key)).unwrap();
        Arc::new(Terms {
            provider: "https://example.org".into(),
            hint: "Which song? \"Frère\" \\".into(),
            hint_url: "https://example.org/hint".into(),
            publication_url: "https://example.org/books/{name}".into(),
            rights: None,
            user: None,
            signer,
            cbc: Settings::here(None).cbc,
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) fn roots(&self) -> RootCertificates {
        RootCertificates::from_file("--root", &self.path("root.pem")).unwrap()
    }

    pub(crate) fn book(&self, source: &Path, target: &Path) -> Book {
        Book {
            source: source.into(),
            target: target.into(),
            bytes: std::fs::metadata(source).unwrap().len(),
            mode: 0o644,
            replace: false,
            sync: false,
            licence_beside: false,
            terms: self.terms.clone(),
            user_key: self.user_key.clone(),
            ledger: None,
        }
    }

    pub(crate) fn sealed_book(&self, source: &Path, target: &Path) -> SealedBook {
        SealedBook {
            source: source.into(),
            target: target.into(),
            bytes: std::fs::metadata(source).unwrap().len(),
            mode: 0o644,
            replace: false,
            sync: false,
            user_key: self.user_key.clone(),
            roots: None,
            cbc: Settings::here(None).cbc,
        }
    }

    /// Lists the names in the folder, without the provider's files.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !["root.pem", "provider.pem", "provider.key"].contains(&name.as_str()))
            .collect();
        names.sort();
        names
    }
}

pub(crate) fn run<W: engine::Work>(works: Vec<W>) -> SealOutcome {
    engine::run(works, &Settings::here(Some(2)), &SealProgress::default())
}

/// Runs one work and returns the text of its only error.
pub(crate) fn refusal<W: engine::Work>(work: W) -> String {
    let outcome = run(vec![work]);
    assert_eq!((outcome.done, outcome.failed.len()), (0, 1), "{:?}", outcome.failed);
    outcome.failed[0].to_string()
}

pub(crate) fn well<W: engine::Work>(works: Vec<W>) {
    let count = works.len() as u64;
    let outcome = run(works);
    assert_eq!(outcome.done, count, "{:?}", outcome.failed);
}
