// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of certificates and keys, kinds of keys, the self-signed certificate.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustls::crypto::aws_lc_rs::default_provider;

use super::super::certificates::{Certificate, fingerprint};
use super::super::self_signed::{SelfSigned, host_names, is_due, subject_names};
use super::{Files, Pair, expired, pair};
use crate::error::{Error, Setting};

fn read(files: &Files) -> Result<Certificate, Error> {
    Certificate::read(&files.cert(), &files.key(), &default_provider())
}

/// The setting at fault and the text of the fault, without the path.
fn fault(cert: &str, key: &str) -> (Setting, String) {
    let files = Files::new(cert, key);
    let error = read(&files).expect_err("it is refused");
    assert!(error.is_caller());
    let folder = format!("{}/", files.folder.path().display());
    match error {
        Error::Setting { setting, found, cure } => {
            (setting, format!("{found}; {cure}").replace(&folder, ""))
        }
        other => panic!("{other}"),
    }
}

#[test]
fn faults_of_the_files_are_named_with_their_cure() {
    let Pair { cert, key, .. } = pair();
    let other = pair();
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n\
                     -----END ENCRYPTED PRIVATE KEY-----\n";
    let old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\
               DEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n";
    let garbled = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let damaged = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let cut = &cert[..cert.len() / 2];
    let chain = format!("{}{cert}", other.cert);
    let (c, k) = (Setting::TlsCert, Setting::TlsKey);
    for (cert, key, setting, text) in [
        ("", &key[..], c, "cert.pem: no certificate in it; name a PEM file with"),
        ("junk", &key, c, "cert.pem: no certificate in it; name a PEM file with"),
        (cut, &key, c, "cert.pem: a section without its END line; write the whole file again"),
        (garbled, &key, c, "cert.pem: certificate 1: "),
        (&key, &cert, c, "cert.pem: a private key, and key.pem: a certificate; swap the two"),
        (encrypted, &cert, c, "cert.pem: a private key, and key.pem: a certificate; swap the two"),
        (&key, &key, c, "cert.pem: a private key and no certificate; name the file of the cert"),
        (&chain, &key, c, "cert.pem: the server's own certificate comes as number 2; write it"),
        (&cert, "", k, "key.pem: no key in it; name a PEM file with"),
        (&cert, &cert, k, "key.pem: a certificate and no key; name the file of its private key"),
        (&cert, encrypted, k, "key.pem: an encrypted key; decrypt it: openssl pkey -in key.pem"),
        (&cert, old, k, "key.pem: an encrypted key; decrypt it: openssl pkey -in key.pem"),
        (&cert, damaged, k, "key.pem: a damaged key, or one of a kind that is not supported; "),
        (&cert, &other.key, k, "key.pem: the key of another certificate than cert.pem; name the"),
        ("0\u{2}", "", c, "cert.pem: no certificate in it"),
    ] {
        let (found, text_found) = fault(cert, key);
        assert_eq!(found, setting, "{text_found}");
        assert!(text_found.starts_with(text), "{text_found}");
    }
}

#[test]
fn missing_and_unreadable_files_are_named() {
    let made = pair();
    let files = Files::of(&made);
    std::fs::remove_file(files.key()).unwrap();
    let fault_of = |files: &Files| read(files).unwrap_err().to_string();
    assert!(fault_of(&files).ends_with("key.pem: no such file; name one that is there"));
    std::fs::create_dir(files.key()).unwrap();
    assert!(
        fault_of(&files).ends_with("key.pem: a folder; name the file in it"),
        "{}",
        fault_of(&files)
    );
    std::fs::write(files.cert(), vec![b' '; 300 << 10]).unwrap();
    let text = "cert.pem: more than 256 KiB; name a file that holds nothing else";
    assert!(fault_of(&files).ends_with(text), "{}", fault_of(&files));
    std::fs::remove_dir(files.key()).unwrap();
    std::fs::write(files.key(), &made.key).unwrap();
    std::fs::write(files.cert(), [0x30, 0x82, 1, 2]).unwrap();
    assert!(fault_of(&files).contains("cert.pem: DER instead of PEM; convert it: openssl x509"));
}

#[test]
fn key_that_others_may_read_is_warned_of() {
    let files = Files::of(&pair());
    for (mode, is_exposed) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true)] {
        std::fs::set_permissions(files.key(), std::fs::Permissions::from_mode(mode)).unwrap();
        let exposure = read(&files).unwrap().exposure(&files.key());
        assert_eq!(exposure.is_some(), is_exposed, "{mode:o}: {exposure:?}");
    }
}

#[test]
fn one_file_may_hold_certificate_and_key_in_any_order() {
    let made = pair();
    for text in [format!("{}{}", made.cert, made.key), format!("{}{}", made.key, made.cert)] {
        let files = Files::new(&text, &text);
        assert_eq!(read(&files).unwrap().key.cert, std::slice::from_ref(&made.der));
    }
}

#[test]
fn expired_certificates_are_loaded_with_their_dates() {
    let loaded = read(&Files::of(&expired())).unwrap();
    let fault = loaded.validity.fault(SystemTime::now()).unwrap().to_string();
    assert!(fault.starts_with("expired on 2001-02-01 00:00 UTC; "), "{fault}");
}

#[test]
fn keys_are_read_as_pkcs8_pkcs1_and_sec1() {
    let openssl = |files: &Files, arguments: &str| {
        let mut command = Command::new("openssl");
        command.args(arguments.split(' ')).current_dir(files.folder.path()).output()
    };
    let files = Files::new("", "");
    if let Err(error) = openssl(&files, "version") {
        return eprintln!("skip: openssl: {error}");
    }
    for (kind, mark) in [
        ("-newkey rsa:2048", "BEGIN RSA PRIVATE KEY"),
        ("-newkey ec -pkeyopt ec_paramgen_curve:P-256", "BEGIN EC PRIVATE KEY"),
    ] {
        let request = "req -x509 -nodes -subj /CN=localhost -days 9 -keyout key.pem -out cert.pem";
        openssl(&files, &format!("{request} {kind}")).unwrap();
        let read_as = |mark: &str| {
            let text = std::fs::read_to_string(files.key()).unwrap();
            assert!(text.contains(mark), "{mark}");
            read(&files).unwrap_or_else(|error| panic!("{mark}: {error}"))
        };
        let before = read_as("BEGIN PRIVATE KEY");
        openssl(&files, "pkey -traditional -in key.pem -out old.pem").unwrap();
        std::fs::rename(files.folder.path().join("old.pem"), files.key()).unwrap();
        let after = read_as(mark);
        let shown = openssl(&files, "x509 -in cert.pem -noout -fingerprint -sha256").unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        assert!(shown.trim().ends_with(&fingerprint(&after.key.cert[0])), "{shown}");
        assert_eq!(before.key.cert, after.key.cert);
    }
}

#[test]
fn self_signed_certificate_is_kept_until_it_ages_or_lacks_a_name() {
    let (cache, provider) = (tempfile::tempdir().unwrap(), default_provider());
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let open = |wanted: &[&str], now| {
        let made = SelfSigned::new(Some(cache.path()), names(wanted)).open(&provider, now);
        made.unwrap().key.cert[0].clone()
    };
    let now = SystemTime::now();
    let first = open(&["films.example", "192.0.2.7", "2001:db8::7"], now);
    assert_eq!(subject_names(&first), ["films.example", "192.0.2.7", "2001:db8::7"]);
    let path = cache.path().join("tls/self-signed.pem");
    let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(path.clone()), mode(cache.path().join("tls"))), (0o600, 0o700));
    assert_eq!(std::fs::read_dir(cache.path().join("tls")).unwrap().count(), 1);

    assert_eq!(open(&["films.example", "192.0.2.7", "2001:db8::8"], now), first, "as before");
    let second = open(&["films.example", "192.0.2.8"], now);
    assert_ne!(second, first, "another IPv4 address");
    let aged = now + Duration::from_secs(61 * 86_400);
    let third = open(&["films.example"], aged);
    assert_ne!(third, second, "less than 30 days are left");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert_ne!(open(&["films.example"], aged), third, "others could have read its key");
    std::fs::write(&path, "junk").unwrap();
    let fifth = open(&["films.example"], aged);
    assert_eq!(open(&["films.example"], aged), fifth, "made again, then kept");
}

#[test]
fn self_signed_certificate_names_this_host() {
    let names = host_names();
    for name in ["localhost", "127.0.0.1", "::1"] {
        assert!(names.iter().any(|found| found == name), "{name} in {names:?}");
    }
    let now = SystemTime::now();
    let made = SelfSigned::new(None, names.clone()).open(&default_provider(), now).unwrap();
    assert_eq!(subject_names(&made.key.cert[0]), names);
    assert!(!is_due(made.validity, now) && made.validity.fault(now).is_none());
    let days = (made.validity.not_after_s - made.validity.not_before_s) / 86_400;
    assert_eq!(days, 91);
}
