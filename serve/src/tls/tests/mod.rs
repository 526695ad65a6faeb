// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of TLS: `files` (errors of certificates and keys), `reload`, `handshakes`.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::CertificateDer;

use super::TlsSource;
use super::validity::unix_s;
use crate::config::Config;

mod files;
mod handshakes;
mod reload;

/// A certificate with its key, as PEM.
pub(super) struct Pair {
    cert: String,
    key: String,
    der: CertificateDer<'static>,
}

/// Makes a certificate for localhost that is valid for a year.
pub(super) fn pair() -> Pair {
    pair_with(|_| {})
}

fn pair_with(change: impl FnOnce(&mut CertificateParams)) -> Pair {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let year = 1970 + i32::try_from(unix_s(SystemTime::now()) / 31_556_952).unwrap();
    params.not_before = rcgen::date_time_ymd(year - 1, 1, 1);
    params.not_after = rcgen::date_time_ymd(year + 2, 1, 1);
    change(&mut params);
    let made = params.self_signed(&key).unwrap();
    Pair { cert: made.pem(), key: key.serialize_pem(), der: made.der().clone() }
}

/// Makes a certificate that expired in 2001.
fn expired() -> Pair {
    pair_with(|params| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2001, 2, 1);
    })
}

/// A folder with `cert.pem` and `key.pem`.
pub(super) struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new(cert: &str, key: &str) -> Files {
        let files = Files { folder: tempfile::tempdir().unwrap() };
        std::fs::write(files.cert(), cert).unwrap();
        std::fs::write(files.key(), key).unwrap();
        files
    }

    pub(super) fn of(pair: &Pair) -> Files {
        Files::new(&pair.cert, &pair.key)
    }

    pub(super) fn cert(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    pub(super) fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    fn source(&self) -> TlsSource {
        TlsSource::Files { cert: self.cert(), key: self.key() }
    }
}

#[test]
fn listener_needs_a_certificate_and_a_certificate_a_listener() {
    let refused = |change: fn(&mut Config)| {
        let mut config = Config::new(".");
        change(&mut config);
        config.check().expect_err("it is refused").to_string()
    };
    assert_eq!(
        refused(|config| config.https = Some((Ipv4Addr::LOCALHOST, 8443).into())),
        "HTTPS address: 127.0.0.1:8443 without a certificate; give a certificate with its key, or \
         choose a self-signed one"
    );
    let text = refused(|config| config.rtsps = Some((Ipv4Addr::LOCALHOST, 322).into()));
    assert!(text.starts_with("RTSPS address: 127.0.0.1:322 without a certificate; "), "{text}");
    assert_eq!(
        refused(|config| config.tls = Some(TlsSource::SelfSigned)),
        "self-signed TLS certificate: a certificate, and nothing listens with TLS; write an \
         address of HTTPS or RTSPS, or leave it out"
    );
    let mut config = Config::new(".");
    config.https = Some((Ipv4Addr::LOCALHOST, 8443).into());
    config.tls = Some(TlsSource::SelfSigned);
    assert!(config.check().is_ok());
}

/// A time at which files written just now are no longer read again without a change.
fn later(s: u64) -> SystemTime {
    SystemTime::now() + Duration::from_secs(s)
}
