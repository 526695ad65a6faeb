// SPDX-License-Identifier: MIT OR Apache-2.0
//! A certificate chain and its private key, read from PEM files.
//!
//! Each fault of the files has an error of its own, with the cure, since an operator meets them one
//! after the other. A key file with permissions for others causes a warning, not an error: a
//! container's secrets often have them.
//!
//! Sources: RFC 7468 (PEM), RFC 5958 (PKCS#8), RFC 8017 (PKCS#1), RFC 5915 (SEC1), RFC 1421
//! §4.6.1.1 (the header of an encrypted PKCS#1 key).
//! Does not verify the chain: clients do, with roots that this host may lack.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::InconsistentKeys;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use zeroize::Zeroizing;

use super::validity::{Validity, shown_date};
use crate::error::{Error, Setting};

/// A chain with its key, ready for handshakes.
#[derive(Debug, Clone)]
pub(super) struct Certificate {
    pub(super) key: Arc<CertifiedKey>,
    pub(super) validity: Validity,
    /// Permission bits of the key's file, when they have some for others than its owner.
    exposed: Option<u32>,
}

impl Certificate {
    /// Reads the chain and the key, which may lie in one file.
    pub(super) fn read(
        cert: &Path,
        key: &Path,
        provider: &CryptoProvider,
    ) -> Result<Certificate, Error> {
        let in_cert = PemFile::read(Setting::TlsCert, cert)?;
        let in_key = PemFile::read(Setting::TlsKey, key)?;
        let holds_key = in_cert.key.is_some() || in_cert.is_encrypted;
        if in_cert.chain.is_empty() && holds_key && !in_key.chain.is_empty() {
            let (cert, key) = (cert.display(), key.display());
            return Err(Error::Setting {
                setting: Setting::TlsCert,
                found: format!("{cert}: a private key, and {key}: a certificate"),
                cure: "swap the two".to_owned(),
            });
        }
        let chain = in_cert.into_chain()?;
        let exposed = in_key.exposed;
        let private = in_key.into_key()?;
        let mut certificate = Certificate::new(chain, private, provider).map_err(|unfit| {
            let (setting, named) = match unfit {
                Unfit::Certificate { .. } | Unfit::Order { .. } => (Setting::TlsCert, cert),
                Unfit::Key | Unfit::OtherKey => (Setting::TlsKey, key),
            };
            let (found, cure) = unfit.text(cert);
            refused(setting, named, &found, &cure)
        })?;
        certificate.exposed = exposed;
        Ok(certificate)
    }

    /// Puts a chain and a key together.
    pub(super) fn new(
        chain: Vec<CertificateDer<'static>>,
        private: PrivateKeyDer<'static>,
        provider: &CryptoProvider,
    ) -> Result<Certificate, Unfit> {
        let mut validity = None;
        for (number, der) in (1..).zip(&chain) {
            let invalid = |reason: String| Unfit::Certificate { number, reason };
            let (rest, parsed) =
                X509Certificate::from_der(der).map_err(|error| invalid(error.to_string()))?;
            if !rest.is_empty() {
                return Err(invalid(format!("{} bytes behind its end", rest.len())));
            }
            validity.get_or_insert(Validity::of(&parsed));
        }
        let validity = validity.expect("callers give a certificate at least");
        let private = provider.key_provider.load_private_key(private).map_err(|_| Unfit::Key)?;
        let key = CertifiedKey::new(chain, private);
        match key.keys_match() {
            // A key whose kind does not say its public half is tried by the first handshake.
            Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(rustls::Error::InconsistentKeys(_)) => {
                let mut others = (2..).zip(&key.cert[1..]);
                let own = others.find(|(_, der)| {
                    let alone = CertifiedKey::new(vec![(*der).clone()], key.key.clone());
                    alone.keys_match().is_ok()
                });
                return Err(own.map_or(Unfit::OtherKey, |(number, _)| Unfit::Order { number }));
            }
            Err(error) => {
                return Err(Unfit::Certificate { number: 1, reason: error.to_string() });
            }
        }
        Ok(Certificate { key: Arc::new(key), validity, exposed: None })
    }

    /// Returns the warning of a key file with permissions for others; `key` is its path.
    pub(super) fn exposure(&self, key: &Path) -> Option<String> {
        let (mode, key) = (self.exposed?, key.display());
        Some(format!("{key}: others may touch this key (mode {mode:04o}); chmod 600 {key}"))
    }

    /// Describes the certificate with its last date and its fingerprint, as browsers and
    /// `openssl x509 -fingerprint -sha256` show it.
    pub(super) fn description(&self) -> String {
        let last = shown_date(self.validity.not_after_s);
        format!("valid until {last}, SHA-256 {}", fingerprint(&self.key.cert[0]))
    }
}

/// SHA-256 of a certificate as hexadecimal bytes with colons.
pub(super) fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    let hash = digest(&SHA256, certificate);
    let bytes: Vec<String> = hash.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
    bytes.join(":")
}

/// Reason why a chain and a key do not make a pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unfit {
    /// The certificate with this number, counted from 1, cannot be used.
    Certificate { number: usize, reason: String },
    /// The key belongs to the certificate with this number instead of the first.
    Order { number: usize },
    /// The key is of an unsupported kind, or damaged.
    Key,
    /// The key belongs to none of the certificates.
    OtherKey,
}

impl Unfit {
    /// Returns the fault and its cure; `cert` is the file of the chain.
    fn text(&self, cert: &Path) -> (String, String) {
        match self {
            Unfit::Certificate { number, reason } => (
                format!("certificate {number}: {reason}"),
                "write the certificate as its issuer gave it (X.509 version 3, PEM)".to_owned(),
            ),
            Unfit::Order { number } => (
                format!("the server's own certificate comes as number {number}"),
                "write it first and its issuers after it (RFC 8446 §4.4.2)".to_owned(),
            ),
            Unfit::Key => (
                "a damaged key, or one of a kind that is not supported".to_owned(),
                "use a key of RSA (2048 bits or more), ECDSA (P-256, P-384, P-521) or Ed25519"
                    .to_owned(),
            ),
            Unfit::OtherKey => {
                let cert = cert.display();
                let cure = format!("name the key that {cert} was issued for");
                (format!("the key of another certificate than {cert}"), cure)
            }
        }
    }
}

/// Sections of a PEM file that TLS uses.
struct PemFile<'a> {
    setting: Setting,
    path: &'a Path,
    chain: Vec<CertificateDer<'static>>,
    key: Option<PrivateKeyDer<'static>>,
    is_encrypted: bool,
    is_request: bool,
    /// True for a file that begins like a DER structure.
    is_der: bool,
    /// Permission bits, when they have some for others than the owner.
    exposed: Option<u32>,
}

impl<'a> PemFile<'a> {
    fn read(setting: Setting, path: &'a Path) -> Result<PemFile<'a>, Error> {
        let (bytes, exposed) = read_file(setting, path)?;
        let mut file = PemFile {
            setting,
            path,
            chain: Vec::new(),
            key: None,
            is_encrypted: ENCRYPTED.iter().any(|mark| contains(&bytes, mark)),
            is_request: false,
            is_der: bytes.starts_with(&[0x30, 0x82]),
            exposed,
        };
        let mut rest = &bytes[..];
        loop {
            match pem::from_buf(&mut rest) {
                Ok(None) => return Ok(file),
                Ok(Some((SectionKind::Certificate, der))) => file.chain.push(der.into()),
                Ok(Some((SectionKind::Csr, _))) => file.is_request = true,
                Ok(Some((kind, der))) if file.key.is_none() => {
                    file.key = PrivateKeyDer::from_pem(kind, der);
                }
                Ok(Some(_)) => {}
                // An encrypted PKCS#1 key has headers, which are not base64.
                Err(_) if file.is_encrypted => return Ok(file),
                Err(error) => return Err(refused(setting, path, pem_fault(&error), WHOLE)),
            }
        }
    }

    fn into_chain(self) -> Result<Vec<CertificateDer<'static>>, Error> {
        if !self.chain.is_empty() {
            return Ok(self.chain);
        }
        let shown = self.path.display();
        let (found, cure) = if self.is_request {
            let cure = "name the certificate that its issuer made of it".to_owned();
            ("a request for a certificate", cure)
        } else if self.is_der {
            let cure = format!("convert it: openssl x509 -inform der -in {shown} -out {shown}.pem");
            ("DER instead of PEM", cure)
        } else if self.key.is_some() || self.is_encrypted {
            ("a private key and no certificate", "name the file of the certificate".to_owned())
        } else {
            let cure = "name a PEM file with -----BEGIN CERTIFICATE-----".to_owned();
            ("no certificate in it", cure)
        };
        Err(refused(self.setting, self.path, found, &cure))
    }

    fn into_key(self) -> Result<PrivateKeyDer<'static>, Error> {
        let shown = self.path.display();
        let (found, cure) = match self.key {
            Some(key) => return Ok(key),
            None if self.is_encrypted => {
                let cure = format!("decrypt it: openssl pkey -in {shown} -out {shown}.plain");
                ("an encrypted key", cure)
            }
            None if self.is_der => {
                let cure = format!("convert it: openssl pkey -inform der -in {shown} -out ...");
                ("DER instead of PEM", cure)
            }
            None if !self.chain.is_empty() => {
                ("a certificate and no key", "name the file of its private key".to_owned())
            }
            None => {
                let cure = "name a PEM file with -----BEGIN PRIVATE KEY-----".to_owned();
                ("no key in it", cure)
            }
        };
        Err(refused(self.setting, self.path, found, &cure))
    }
}

/// Reads a small file; also returns its permission bits when others than its owner have some.
/// Permissions of a pipe (`<(pass show key)`) mean nothing.
fn read_file(setting: Setting, path: &Path) -> Result<(Zeroizing<Vec<u8>>, Option<u32>), Error> {
    let unreadable = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => refused(setting, path, "no such file", "name one that is there"),
        ErrorKind::IsADirectory => refused(setting, path, "a folder", "name the file in it"),
        _ => {
            let cure = "name a file that the user of this server may read";
            refused(setting, path, &error.to_string(), cure)
        }
    };
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    // All bytes are allocated at once: a vector that grows leaves copies of a key behind that
    // nothing overwrites.
    let mut bytes = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX + 1));
    let limit = FILE_BYTES_MAX as u64 + 1;
    file.take(limit).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > FILE_BYTES_MAX {
        let found = format!("more than {} KiB", FILE_BYTES_MAX >> 10);
        return Err(refused(setting, path, &found, "name a file that holds nothing else"));
    }
    let mode = metadata.mode() & 0o7777;
    Ok((bytes, (metadata.is_file() && mode & OTHERS != 0).then_some(mode)))
}

fn pem_fault(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a section without its END line",
        pem::Error::IllegalSectionStart { .. } => "a BEGIN line that does not end in -----",
        pem::Error::Base64Decode(_) => "a section that is not base64",
        _ => "damaged PEM",
    }
}

fn refused(setting: Setting, path: &Path, found: &str, cure: &str) -> Error {
    let found = format!("{}: {found}", path.display());
    Error::Setting { setting, found, cure: cure.to_owned() }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Marks of keys that a passphrase protects: PKCS#8, and PKCS#1 or SEC1.
const ENCRYPTED: [&[u8]; 2] = [b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED"];
const WHOLE: &str = "write the whole file again, as PEM";
/// Most bytes of a file: a chain of the largest usual certificates several times over.
const FILE_BYTES_MAX: usize = 256 << 10;
/// Permission bits of group and others.
const OTHERS: u32 = 0o077;
