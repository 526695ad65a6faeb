// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzes untrusted publications: archives, package documents, encryption.xml, and altered sealed
//! books.
//!
//! Checked: the second implementation verifies each sealed book against its source, and the book
//! opens; a book that the second implementation verifies opens; a failure leaves no file behind.
//!
//! The first byte of the input selects the meaning of the rest. The fuzzed code reads real files by
//! offset from a descriptor; they are in /dev/shm if the system has it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use seal::engine::{self, SealProgress, Settings, Work};
use seal::epub::{Book, SealedBook, verify};
use seal::key::Origin;
use seal::key::passphrase::Passphrase;
use seal::lcp::{Algorithm, CertificateNames, Signer, Terms, TestProvider, UserKey};
use zeroize::Zeroizing;

use crate::FuzzTarget;

pub(crate) const TARGET: FuzzTarget = FuzzTarget { name: "epub", run };

fn run(data: &[u8]) {
    thread_local! {
        // Dropped with the thread; a static would leave its folder on the disk.
        static DESK: Desk = Desk::new();
    }
    let Some((choice, body)) = data.split_first() else { return };
    DESK.with(|desk| desk.run(*choice, body));
}

/// A provider, the key of a reader, and a sealed book.
struct Desk {
    folder: tempfile::TempDir,
    terms: Arc<Terms>,
    user_key: Arc<UserKey>,
    settings: Settings,
    sealed: Vec<u8>,
    licence: Vec<u8>,
    ciphertext: Vec<u8>,
}

impl Desk {
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let folder =
            if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let folder = folder.expect("a folder for files");
        let names = CertificateNames { root: "root".into(), provider: "provider".into() };
        let made = TestProvider::new(&names, Algorithm::Ecdsa, 1).expect("a provider");
        let written = |name: &str, bytes: &[u8]| -> PathBuf {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).expect("room for files");
            path
        };
        let certificate = written("certificate", &made.certificate);
        let key = written("key", &made.key);
        let signer = Signer::from_files(("--certificate", &certificate), ("--signing-key", &key));
        std::fs::remove_file(certificate).expect("was written");
        std::fs::remove_file(key).expect("was written");
        let settings = Settings::here(Some(1));
        let terms = Terms {
            provider: "https://example.org".into(),
            hint: "hint".into(),
            hint_url: "https://example.org".into(),
            publication_url: "https://example.org/{name}".into(),
            rights: None,
            user: None,
            signer: signer.expect("was made"),
            cbc: settings.cbc,
        };
        let text = Zeroizing::new(b"passphrase".to_vec());
        let passphrase = Passphrase::new(text, Origin::new("passphrase", "")).expect("not empty");
        let user_key = UserKey::new(&passphrase).expect("UTF-8");
        let (terms, user_key) = (Arc::new(terms), Arc::new(user_key));
        let (sealed, licence, ciphertext) = Default::default();
        let mut desk = Self { folder, terms, user_key, settings, sealed, licence, ciphertext };
        desk.sealed = desk.sealed_once(&book(&[("OEBPS/p.opf", PACKAGE), ("a.css", &[b'x'; 999])]));
        // The entries are stored, so the file contains their bytes unchanged.
        let find = |what: &[u8]| {
            let mut windows = desk.sealed.windows(what.len());
            windows.position(|window| window == what).expect("is in the book")
        };
        let licence = find(b"{\"encryption\"")..find(b"PK\x01\x02");
        let begin = find(b"a.css") + 5;
        desk.licence = desk.sealed[licence].to_vec();
        desk.ciphertext = desk.sealed[begin..begin + 64].to_vec();
        desk
    }

    fn run(&self, choice: u8, body: &[u8]) {
        match choice % 6 {
            0 => self.seal(body),
            1 => self.seal(&book(&[("OEBPS/p.opf", body), ("OEBPS/a b.png", b"picture")])),
            2 => self.seal(&book_with("META-INF/container.xml", body)),
            3 => self.open(&book(&[
                ("OEBPS/p.opf", PACKAGE),
                ("a.css", &self.ciphertext),
                ("META-INF/encryption.xml", body),
                ("META-INF/license.lcpl", &self.licence),
            ])),
            4 => {
                let mut sealed = self.sealed.clone();
                for change in body.chunks_exact(3) {
                    let at = usize::from(u16::from_be_bytes([change[0], change[1]])) % sealed.len();
                    sealed[at] ^= change[2];
                }
                self.open(&sealed);
            }
            _ => self.seal(&book(&[
                ("OEBPS/p.opf", PACKAGE),
                ("a.otf", b"font"),
                ("META-INF/encryption.xml", body),
            ])),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn sealed_once(&self, book: &[u8]) -> Vec<u8> {
        let (source, target) = (self.path("source"), self.path("sealed"));
        std::fs::write(&source, book).expect("room for files");
        assert!(self.works(self.book(&source, &target)), "the sample is well");
        let sealed = std::fs::read(&target).expect("was sealed");
        self.clear();
        sealed
    }

    /// Seals, verifies and opens the book; or expects that sealing was refused.
    fn seal(&self, bytes: &[u8]) {
        let (source, target) = (self.path("source"), self.path("sealed"));
        std::fs::write(&source, bytes).expect("room for files");
        if self.works(self.book(&source, &target)) {
            let verified = verify(&target, Some(&source), &self.user_key, None, None);
            verified.expect("what was sealed is well");
            let again = self.path("again");
            assert!(self.works(self.sealed_book(&target, &again)), "what was sealed opens");
        } else {
            self.expect_files(&["source"]);
        }
        self.clear();
    }

    /// Opens the book, or expects that opening was refused; a book that verifies must open.
    fn open(&self, bytes: &[u8]) {
        let (source, target) = (self.path("source"), self.path("again"));
        std::fs::write(&source, bytes).expect("room for files");
        let is_well = verify(&source, None, &self.user_key, None, None).is_ok();
        let opens = self.works(self.sealed_book(&source, &target));
        assert!(opens || !is_well, "well, and does not open");
        self.expect_files(if opens { &["again", "source"] } else { &["source"] });
        self.clear();
    }

    fn works<W: Work>(&self, work: W) -> bool {
        let outcome = engine::run(vec![work], &self.settings, &SealProgress::default());
        assert_eq!(outcome.done as usize + outcome.failed.len(), 1);
        outcome.done == 1
    }

    fn expect_files(&self, expected: &[&str]) {
        let entries = std::fs::read_dir(self.folder.path()).expect("is there");
        let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        assert_eq!(names, expected, "something was left behind");
    }

    fn clear(&self) {
        for entry in std::fs::read_dir(self.folder.path()).expect("is there").flatten() {
            std::fs::remove_file(entry.path()).expect("a file");
        }
    }

    fn book(&self, source: &Path, target: &Path) -> Book {
        Book {
            source: source.into(),
            target: target.into(),
            bytes: std::fs::metadata(source).map_or(0, |metadata| metadata.len()),
            mode: 0o600,
            replace: false,
            sync: false,
            licence_beside: false,
            terms: self.terms.clone(),
            user_key: self.user_key.clone(),
            ledger: None,
        }
    }

    fn sealed_book(&self, source: &Path, target: &Path) -> SealedBook {
        SealedBook {
            source: source.into(),
            target: target.into(),
            bytes: std::fs::metadata(source).map_or(0, |metadata| metadata.len()),
            mode: 0o600,
            replace: false,
            sync: false,
            user_key: self.user_key.clone(),
            roots: None,
            cbc: self.settings.cbc,
        }
    }
}

const CONTAINER: &[u8] = b"<container><rootfiles><rootfile full-path='OEBPS/p.opf' \
    media-type='application/oebps-package+xml'/></rootfiles></container>";
const PACKAGE: &[u8] = b"<package><manifest><item href='../a.css' media-type='text/css'/>\
    </manifest></package>";

fn book(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut all = vec![("mimetype", &b"application/epub+zip"[..])];
    all.push(("META-INF/container.xml", CONTAINER));
    all.extend_from_slice(entries);
    archive(&all)
}

fn book_with(name: &str, bytes: &[u8]) -> Vec<u8> {
    archive(&[
        ("mimetype", b"application/epub+zip"),
        (name, bytes),
        ("OEBPS/p.opf", PACKAGE),
        ("a.css", b"p{}"),
    ])
}

/// Returns an archive with all entries stored (PKWARE APPNOTE §4.3).
fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut out, mut central) = (Vec::new(), Vec::new());
    for (name, bytes) in entries {
        let mut head = vec![0; 10];
        head.extend_from_slice(&crc32fast::hash(bytes).to_le_bytes());
        head.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        head.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        head.extend_from_slice(&(name.len() as u32).to_le_bytes());
        central.extend_from_slice(b"PK\x01\x02\x14\0");
        central.extend_from_slice(&head);
        central.extend_from_slice(&[0; 10]);
        central.extend_from_slice(&(out.len() as u32).to_le_bytes());
        central.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"PK\x03\x04");
        out.extend_from_slice(&head);
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(bytes);
    }
    let (count, begin) = ((entries.len() as u16).to_le_bytes(), out.len() as u32);
    out.extend_from_slice(&central);
    out.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    out.extend_from_slice(&[count, count].concat());
    out.extend_from_slice(&(central.len() as u32).to_le_bytes());
    out.extend_from_slice(&begin.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    out
}
