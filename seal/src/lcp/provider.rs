// SPDX-License-Identifier: MIT OR Apache-2.0
//! A provider for tests: a root certificate and a provider's certificate signed by it.
//!
//! Real providers get their certificates from the licence authority, whose root is built into the
//! reading systems. Only a verifier that is given this provider's root trusts it.
//!
//! Sources: Readium LCP 1.0.4 §5.2; RFC 5280 §4.1, §4.2.1. Does not keep the root's key outside the
//! files that the caller writes.

use openssl::asn1::Asn1Time;
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::x509::extension::{BasicConstraints, KeyUsage, SubjectKeyIdentifier};
use openssl::x509::{X509, X509Builder, X509NameBuilder};
use zeroize::Zeroizing;

use super::date;
use crate::error::Error;

/// Signature algorithm of the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RSA of 2048 bits.
    Rsa,
    /// ECDSA on P-256.
    Ecdsa,
}

/// Common names in the certificates.
#[derive(Clone, Debug)]
pub struct CertificateNames {
    /// Name of the root.
    pub root: String,
    /// Name of the provider.
    pub provider: String,
}

/// Certificates and keys, all in PEM.
pub struct TestProvider {
    /// Root certificate, for verifiers.
    pub root_certificate: Vec<u8>,
    /// Key of the root, to sign further providers.
    pub root_key: Zeroizing<Vec<u8>>,
    /// Provider's certificate, stored in its licences.
    pub certificate: Vec<u8>,
    /// Provider's key, which signs licences.
    pub key: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for TestProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TestProvider")
    }
}

impl TestProvider {
    /// Makes a new provider, valid for `days` from yesterday on (clocks differ).
    ///
    /// # Errors
    /// [`Error::Host`]: OpenSSL fails; the error has its message.
    pub fn new(names: &CertificateNames, algorithm: Algorithm, days: u32) -> Result<Self, Error> {
        made(names, algorithm, days).map_err(|error| {
            Error::host("making", "certificates".as_ref())(std::io::Error::other(error))
        })
    }
}

fn made(
    names: &CertificateNames,
    algorithm: Algorithm,
    days: u32,
) -> Result<TestProvider, ErrorStack> {
    let root_key = key(algorithm)?;
    let root = certificate(&names.root, &root_key, days, None, &root_key)?;
    let provider_key = key(algorithm)?;
    let provider = certificate(&names.provider, &provider_key, days, Some(&root), &root_key)?;
    Ok(TestProvider {
        root_certificate: root.to_pem()?,
        root_key: Zeroizing::new(root_key.private_key_to_pem_pkcs8()?),
        certificate: provider.to_pem()?,
        key: Zeroizing::new(provider_key.private_key_to_pem_pkcs8()?),
    })
}

fn key(algorithm: Algorithm) -> Result<PKey<Private>, ErrorStack> {
    match algorithm {
        Algorithm::Rsa => PKey::from_rsa(Rsa::generate(RSA_BITS)?),
        Algorithm::Ecdsa => {
            let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
            PKey::from_ec_key(EcKey::generate(&group)?)
        }
    }
}

/// Makes a certificate; without an issuer it is a root, signed by itself.
fn certificate(
    name: &str,
    key: &PKey<Private>,
    days: u32,
    issuer: Option<&X509>,
    issuer_key: &PKey<Private>,
) -> Result<X509, ErrorStack> {
    let mut subject = X509NameBuilder::new()?;
    subject.append_entry_by_text("CN", name)?;
    let subject = subject.build();
    let mut serial = BigNum::new()?;
    serial.rand(SERIAL_BITS, MsbOption::MAYBE_ZERO, false)?;
    let yesterday = date::now() - DAY_SECONDS;
    let end = yesterday + i64::from(days.max(1) + 1) * DAY_SECONDS;

    let mut builder = X509Builder::new()?;
    builder.set_version(VERSION_3)?;
    let serial = serial.to_asn1_integer()?;
    builder.set_serial_number(&serial)?;
    builder.set_subject_name(&subject)?;
    builder.set_issuer_name(issuer.map_or(&*subject, |issuer| issuer.subject_name()))?;
    builder.set_pubkey(key)?;
    let (from, to) = (Asn1Time::from_unix(yesterday)?, Asn1Time::from_unix(end)?);
    builder.set_not_before(&from)?;
    builder.set_not_after(&to)?;
    let (mut constraints, mut usage) = (BasicConstraints::new(), KeyUsage::new());
    constraints.critical();
    usage.critical();
    if issuer.is_none() {
        constraints.ca();
        usage.key_cert_sign().crl_sign();
    } else {
        usage.digital_signature();
    }
    builder.append_extension(constraints.build()?)?;
    builder.append_extension(usage.build()?)?;
    let identifier =
        SubjectKeyIdentifier::new().build(&builder.x509v3_context(issuer.map(|x| &**x), None))?;
    builder.append_extension(identifier)?;
    builder.sign(issuer_key, MessageDigest::sha256())?;
    Ok(builder.build())
}

const RSA_BITS: u32 = 2048;
const SERIAL_BITS: i32 = 127;
const DAY_SECONDS: i64 = 24 * 3600;
/// Versions are counted from 0 (RFC 5280 §4.1.2.1).
const VERSION_3: i32 = 2;
