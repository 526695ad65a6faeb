// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signatures of licences: signs as the provider and verifies as a reader.
//!
//! ECDSA values are r and s side by side, as in XML Signature, not the DER sequence that OpenSSL
//! makes. A signature costs about 1 ms with RSA-2048, 0.05 ms with P-256; one a book.
//!
//! Sources: Readium LCP 1.0.4 §3.8, §5; RFC 4051 §2.3.2 and XML Signature 1.1 §6.4 (the algorithms
//! and the form of values). Does not read revocation lists.

use std::io::ErrorKind;
use std::path::Path;

use openssl::asn1::Asn1Time;
use openssl::base64::{decode_block, encode_block};
use openssl::bn::BigNum;
use openssl::ecdsa::EcdsaSig;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::{Id, PKey, Private, Public};
use openssl::stack::Stack;
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::verify::X509VerifyParam;
use openssl::x509::{X509, X509StoreContext};
use serde_json::{Value, json};

use super::canonical::canonical;
use super::date;
use super::fault::SignatureFault;
use crate::error::Error;

const RSA_SHA256: &str = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256";
const ECDSA_SHA256: &str = "http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha256";

/// A provider's certificate and its private key.
pub struct Signer {
    certificate_der: Vec<u8>,
    key: PKey<Private>,
    /// Bytes of r and of s; `None` for RSA.
    curve_bytes: Option<i32>,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer")
    }
}

impl Signer {
    /// Reads PEM files. `certificate` and `key` each have the option that names the file.
    ///
    /// # Errors
    /// [`Error::Option`]: a file cannot be read or has other content, the key is not the
    /// certificate's, or the certificate is not valid today.
    pub fn from_files(
        certificate: (&'static str, &Path),
        key: (&'static str, &Path),
    ) -> Result<Self, Error> {
        let wrong = |(option, path): (&'static str, &Path), found: &str, cure: &str| {
            let found = format!("{}: {found}", path.display());
            Error::Option { option, found, cure: cure.into() }
        };
        let read = |file: (&'static str, &Path)| {
            std::fs::read(file.1).map_err(|error| {
                let cure = match error.kind() {
                    ErrorKind::NotFound => "name one that is there; pagewire lcp keygen makes one",
                    _ => "name a file that you can read",
                };
                wrong(file, &error.to_string(), cure)
            })
        };
        let parsed = X509::from_pem(&read(certificate)?).map_err(|_| {
            wrong(certificate, "no certificate in PEM", "pagewire lcp keygen makes one")
        })?;
        // The empty passphrase keeps OpenSSL from asking on the terminal.
        let pem = zeroize::Zeroizing::new(read(key)?);
        let private = PKey::private_key_from_pem_passphrase(&pem, b"")
            .map_err(|_| wrong(key, "no private key in PEM without a passphrase", KEYGEN))?;
        let is_same = parsed.public_key().is_ok_and(|public| public.public_eq(&private));
        if !is_same {
            return Err(wrong(key, "not the key of the certificate", "name the key it came with"));
        }
        if !is_valid_at(&parsed, date::now()).unwrap_or(false) {
            let (from, to) = (parsed.not_before(), parsed.not_after());
            let found = format!("valid from {from} to {to}, not now");
            return Err(wrong(certificate, &found, "name one that is valid"));
        }
        let curve_bytes = match private.id() {
            Id::RSA => None,
            Id::EC => Some(
                curve_bytes(&private).map_err(|_| wrong(key, "no curve that is known", KEYGEN))?,
            ),
            _ => return Err(wrong(key, "neither RSA nor ECDSA", KEYGEN)),
        };
        let certificate_der =
            parsed.to_der().map_err(|error| wrong(certificate, &error.to_string(), KEYGEN))?;
        Ok(Self { certificate_der, key: private, curve_bytes })
    }

    /// Returns the `signature` object for a licence that has none.
    pub(super) fn sign(&self, licence: &Value) -> Result<Value, Error> {
        let (algorithm, value) = self.value(canonical(licence).as_bytes()).map_err(|error| {
            Error::host("signing", "the licence".as_ref())(std::io::Error::other(error))
        })?;
        Ok(json!({
            "algorithm": algorithm,
            "certificate": encode_block(&self.certificate_der),
            "value": encode_block(&value),
        }))
    }

    fn value(&self, bytes: &[u8]) -> Result<(&'static str, Vec<u8>), ErrorStack> {
        let mut signer = openssl::sign::Signer::new(MessageDigest::sha256(), &self.key)?;
        let value = signer.sign_oneshot_to_vec(bytes)?;
        let Some(curve_bytes) = self.curve_bytes else { return Ok((RSA_SHA256, value)) };
        let pair = EcdsaSig::from_der(&value)?;
        let mut value = pair.r().to_vec_padded(curve_bytes)?;
        value.extend(pair.s().to_vec_padded(curve_bytes)?);
        Ok((ECDSA_SHA256, value))
    }
}

/// Trusted certificates: one of them must have signed a provider's certificate.
pub struct RootCertificates(Vec<X509>);

impl std::fmt::Debug for RootCertificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RootCertificates({})", self.0.len())
    }
}

impl RootCertificates {
    /// Reads all certificates of a PEM file.
    ///
    /// # Errors
    /// [`Error::Option`]: the file cannot be read or has no certificate.
    pub fn from_file(option: &'static str, path: &Path) -> Result<Self, Error> {
        let wrong = |found: String| Error::Option {
            option,
            found: format!("{}: {found}", path.display()),
            cure: "name the root certificate in PEM".into(),
        };
        let pem = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        match X509::stack_from_pem(&pem) {
            Ok(roots) if !roots.is_empty() => Ok(Self(roots)),
            _ => Err(wrong("no certificate in PEM".into())),
        }
    }
}

/// Verifies the signature of a licence and that its certificate was valid when the licence was
/// issued; with `roots`, also that one of them signed the certificate.
pub(super) fn verify(
    licence: &Value,
    roots: Option<&RootCertificates>,
) -> Result<(), SignatureFault> {
    let signature = &licence["signature"];
    let decoded = |name: &'static str| -> Result<Vec<u8>, SignatureFault> {
        let text = signature[name].as_str().ok_or(SignatureFault::Missing(name))?;
        decode_block(text).map_err(|_| SignatureFault::Base64(name))
    };
    let certificate =
        X509::from_der(&decoded("certificate")?).map_err(|_| SignatureFault::Certificate)?;
    let value = decoded("value")?;
    let mut unsigned = licence.clone();
    if let Some(members) = unsigned.as_object_mut() {
        members.remove("signature");
    }
    let public = certificate.public_key().map_err(|_| SignatureFault::NoKey)?;
    let algorithm = signature["algorithm"].as_str().unwrap_or_default();
    let is_right = match (algorithm, public.id()) {
        (RSA_SHA256, Id::RSA) => is_value_of(&public, canonical(&unsigned).as_bytes(), &value),
        (ECDSA_SHA256, Id::EC) => der_of(&public, &value)
            .and_then(|der| is_value_of(&public, canonical(&unsigned).as_bytes(), &der)),
        _ => return Err(SignatureFault::Algorithm(algorithm.to_owned())),
    };
    if !is_right.unwrap_or(false) {
        return Err(SignatureFault::Changed);
    }
    let issued = licence["issued"].as_str().and_then(date::read).ok_or(SignatureFault::Issued)?;
    if !is_valid_at(&certificate, issued).unwrap_or(false) {
        return Err(SignatureFault::Expired);
    }
    match roots {
        Some(roots) if !is_rooted(&certificate, roots, issued).unwrap_or(false) => {
            Err(SignatureFault::Root)
        }
        _ => Ok(()),
    }
}

fn is_value_of(public: &PKey<Public>, bytes: &[u8], value: &[u8]) -> Result<bool, ErrorStack> {
    openssl::sign::Verifier::new(MessageDigest::sha256(), public)?.verify_oneshot(value, bytes)
}

/// Converts r and s side by side to the DER sequence that OpenSSL accepts.
fn der_of(public: &PKey<Public>, value: &[u8]) -> Result<Vec<u8>, ErrorStack> {
    let bytes = curve_bytes(public)? as usize;
    if value.len() != 2 * bytes {
        // The length is wrong; an empty value never verifies.
        return Ok(Vec::new());
    }
    let (r, s) = value.split_at(bytes);
    EcdsaSig::from_private_components(BigNum::from_slice(r)?, BigNum::from_slice(s)?)?.to_der()
}

/// Returns the bytes of the order of an elliptic key's curve.
fn curve_bytes<T: openssl::pkey::HasPublic>(key: &PKey<T>) -> Result<i32, ErrorStack> {
    Ok(key.ec_key()?.group().order_bits().div_ceil(8) as i32)
}

fn is_valid_at(certificate: &X509, seconds: i64) -> Result<bool, ErrorStack> {
    let time = Asn1Time::from_unix(seconds)?;
    Ok(certificate.not_before() <= time && certificate.not_after() >= time)
}

fn is_rooted(
    certificate: &X509,
    roots: &RootCertificates,
    issued: i64,
) -> Result<bool, ErrorStack> {
    let mut store = X509StoreBuilder::new()?;
    for root in &roots.0 {
        store.add_cert(root.clone())?;
    }
    let mut param = X509VerifyParam::new()?;
    param.set_time(issued);
    store.set_param(&param)?;
    let store = store.build();
    let chain = Stack::new()?;
    X509StoreContext::new()?.init(&store, certificate, &chain, |context| context.verify_cert())
}

const KEYGEN: &str = "pagewire lcp keygen makes one";
