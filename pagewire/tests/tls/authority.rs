// SPDX-License-Identifier: MIT OR Apache-2.0
//! A temporary authority and the certificates that it issues, as files that a server and its
//! clients read.
//!
//! Sources: RFC 5280; the 366 days that Mozilla's recommendations allow a certificate.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::CertificateDer;

/// An authority with a folder for its files.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
}

/// A certificate and its key.
pub(crate) struct Pair {
    cert: String,
    key: String,
    pub(crate) der: CertificateDer<'static>,
}

impl Authority {
    pub(crate) fn new(folder: &Path) -> Authority {
        let key = KeyPair::generate().expect("random numbers");
        let mut params = params("pagewire tests, an authority", &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let made = params.self_signed(&key).expect("fields that X.509 can express");
        let authority = Authority { issuer: Issuer::new(params, key), folder: folder.to_owned() };
        fs::write(authority.root(), made.pem()).expect("room for a file");
        authority
    }

    /// Returns the file of the authority's own certificate, for clients.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.join("root.pem")
    }

    /// Returns the file of the server's certificate.
    pub(crate) fn cert(&self) -> PathBuf {
        self.folder.join("cert.pem")
    }

    /// Returns the file of the server's key.
    pub(crate) fn key(&self) -> PathBuf {
        self.folder.join("key.pem")
    }

    /// Issues a certificate for this name, localhost and 127.0.0.1, valid for three months.
    pub(crate) fn issue(&self, name: &str) -> Pair {
        self.issue_from(name, params(name, &[name, "localhost", "127.0.0.1"]))
    }

    /// As [`Authority::issue`], valid in January 2001.
    pub(crate) fn issue_expired(&self, name: &str) -> Pair {
        let mut params = params(name, &[name, "localhost", "127.0.0.1"]);
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2001, 2, 1);
        self.issue_from(name, params)
    }

    fn issue_from(&self, name: &str, mut params: CertificateParams) -> Pair {
        let key = KeyPair::generate().expect("random numbers");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let made = params.signed_by(&key, &self.issuer).unwrap_or_else(|e| panic!("{name}: {e}"));
        Pair { cert: made.pem(), key: key.serialize_pem(), der: made.der().clone() }
    }

    /// Writes a pair to the server's files, each complete from the moment it has its name.
    pub(crate) fn put(&self, pair: &Pair) {
        for (target, text) in [(self.key(), &pair.key), (self.cert(), &pair.cert)] {
            let unfinished = target.with_extension("unfinished");
            fs::write(&unfinished, text).expect("room for a file");
            let private = fs::Permissions::from_mode(0o600);
            fs::set_permissions(&unfinished, private).expect("the test owns it");
            fs::rename(&unfinished, &target).expect("both names are in one file system");
        }
    }
}

fn params(common: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names that X.509 can express");
    params.distinguished_name.push(DnType::CommonName, common);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock behind 1970");
    params.not_before = date_time_ymd(1970, 1, 1) + (now - DAY);
    params.not_after = date_time_ymd(1970, 1, 1) + (now + 90 * DAY);
    params
}

const DAY: Duration = Duration::from_secs(86_400);
