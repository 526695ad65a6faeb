// SPDX-License-Identifier: MIT OR Apache-2.0
//! Downloads over TLS 1.3: a certificate for the run, and a client that does not decrypt.
//!
//! The client offers TLS_AES_128_GCM_SHA256 alone, so that all servers encrypt alike. A download is
//! verified once a round: decrypted by OpenSSL and compared byte by byte. The timed downloads make
//! the handshake by OpenSSL and send `Connection: close`; the records that follow are counted and
//! discarded in the kernel, as decrypting them would make the client the limit. Each has at least
//! the file's bytes, and the records' overhead of 22 bytes in 16 KiB.
//!
//! Sources: RFC 8446 §5.2 (record payload), §9.1 (cipher suites); RFC 9112 §9.6 (close).
//! Does not measure handshakes: one is in a gigabyte's cost.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::PKey;
use openssl::ssl::{SslConnector, SslMethod, SslStream, SslVersion};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509NameBuilder};

use super::client::{self, DISCARDED_BYTES_MAX, Target};
use super::response;
use super::server::{CERTIFICATE, HTTPS_PORT, KEY};
use crate::experiments::peers::downloads::{connect, is_content};
use measure::Error;

/// Certificate of the run, with its key, in a folder.
pub(super) struct Identity {
    pub(super) folder: PathBuf,
}

impl Identity {
    /// Makes a key (P-256) and a certificate of 127.0.0.1 that it signs itself.
    pub(super) fn make(folder: &Path) -> Result<Identity, Error> {
        let (certificate, key) = pems().map_err(|error| Error::Host {
            what: "a certificate".to_owned(),
            found: error.to_string(),
        })?;
        for (name, text) in [(CERTIFICATE, certificate), (KEY, key)] {
            let mut options = OpenOptions::new();
            let written = options.write(true).create_new(true).mode(0o600).open(folder.join(name));
            let written = written.and_then(|mut file| file.write_all(&text));
            written.map_err(Error::host("writing a certificate"))?;
        }
        Ok(Identity { folder: folder.to_owned() })
    }

    /// Connects and makes the handshake; trusts this certificate alone.
    fn connect(&self) -> Result<SslStream<TcpStream>, String> {
        let connector = || -> Result<SslConnector, ErrorStack> {
            let mut builder = SslConnector::builder(SslMethod::tls_client())?;
            builder.set_ca_file(self.folder.join(CERTIFICATE))?;
            builder.set_min_proto_version(Some(SslVersion::TLS1_3))?;
            builder.set_ciphersuites(SUITE)?;
            Ok(builder.build())
        };
        let connector = connector().map_err(|error| error.to_string())?;
        let stream = connect(HTTPS_PORT).map_err(|error| error.to_string())?;
        let stream = connector.connect("127.0.0.1", stream);
        stream.map_err(|error| format!("the TLS handshake: {error}"))
    }

    /// Downloads once, decrypts and compares; returns the suite that was negotiated.
    pub(super) fn verify(&self, target: &Target) -> Result<String, String> {
        let mut stream = self.connect()?;
        let (request, wanted) = target.request(0, "");
        stream.write_all(request.as_bytes()).map_err(|error| format!("a request: {error}"))?;
        response::read(&mut stream, wanted, &mut vec![0; 1 << 20], is_content)?;
        let suite = stream.ssl().current_cipher().map(|cipher| cipher.name());
        Ok(suite.unwrap_or_default().to_owned())
    }

    /// Downloads whole files until the time has passed; returns their number.
    pub(super) fn download(&self, target: &Target, time: Duration) -> Result<u64, String> {
        let (began, mut count, mut buffer) = (Instant::now(), 0, vec![0; DISCARDED_BYTES_MAX]);
        while count == 0 || began.elapsed() < time {
            let mut stream = self.connect()?;
            let (request, _) = target.request(0, "Connection: close\r\n");
            stream.write_all(request.as_bytes()).map_err(|error| format!("a request: {error}"))?;
            let bytes = client::drain(stream.get_ref(), &mut buffer)?;
            if bytes < target.bytes {
                return Err(format!("{bytes} bytes of records; the file has {}", target.bytes));
            }
            count += 1;
        }
        Ok(count)
    }
}

/// Returns a certificate and its key as PEM.
fn pems() -> Result<(Vec<u8>, Vec<u8>), ErrorStack> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
    let key = PKey::from_ec_key(EcKey::generate(&group)?)?;
    let mut name = X509NameBuilder::new()?;
    name.append_entry_by_nid(Nid::COMMONNAME, "127.0.0.1")?;
    let name = name.build();
    let mut certificate = X509::builder()?;
    certificate.set_version(2)?;
    let serial = BigNum::from_u32(1)?.to_asn1_integer()?;
    certificate.set_serial_number(&serial)?;
    certificate.set_subject_name(&name)?;
    certificate.set_issuer_name(&name)?;
    certificate.set_pubkey(&key)?;
    let (from, until) = (Asn1Time::days_from_now(0)?, Asn1Time::days_from_now(2)?);
    certificate.set_not_before(&from)?;
    certificate.set_not_after(&until)?;
    certificate.append_extension(BasicConstraints::new().ca().build()?)?;
    let context = certificate.x509v3_context(None, None);
    let names = SubjectAlternativeName::new().ip("127.0.0.1").build(&context)?;
    certificate.append_extension(names)?;
    certificate.sign(&key, MessageDigest::sha256())?;
    Ok((certificate.build().to_pem()?, key.private_key_to_pem_pkcs8()?))
}

pub(super) const SUITE: &str = "TLS_AES_128_GCM_SHA256";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_is_of_its_key_and_the_key_is_the_owners_alone() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let identity = Identity::make(folder.path()).unwrap();
        let read = |name: &str| std::fs::read(identity.folder.join(name)).unwrap();
        let certificate = X509::from_pem(&read(CERTIFICATE)).unwrap();
        let key = PKey::private_key_from_pem(&read(KEY)).unwrap();
        assert!(certificate.public_key().unwrap().public_eq(&key));
        assert!(certificate.verify(&key).unwrap());
        let names = certificate.subject_alt_names().unwrap();
        assert_eq!(names[0].ipaddress(), Some(&[127, 0, 0, 1][..]));
        let mode = std::fs::metadata(folder.path().join(KEY)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
