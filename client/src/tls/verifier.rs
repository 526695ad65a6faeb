// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verification of a server's certificate: by authorities, by a copy, or by a fingerprint.
//!
//! A certificate of which the client has a copy is valid for its names and times, with any
//! signature: it is no authority for others, so that one camera cannot sign for another. A pinned
//! one is valid whatever its names and times: cameras sign themselves, for a name and a time that
//! are seldom right. In all cases the signature of the handshake proves that the server has the
//! key. That proof needs X.509 version 3, and RSA of 2048 bits or more, ECDSA or Ed25519.
//!
//! Sources: RFC 5280 §6; RFC 9525 §6 (names); RFC 8446 §4.4.3; rustls 0.23 `ServerCertVerifier`.
//! Does not ask for revocation.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::X509Version;

use super::FAULT_CHARS_MAX;
use super::fingerprint::CertificateFingerprint;
use crate::one_line;

/// Verifier of the certificates of servers.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) anchor: TrustAnchor,
}

/// Reason for which a certificate is trusted.
#[derive(Debug)]
pub(super) enum TrustAnchor {
    Known {
        /// Authorities; `None` if there are none.
        authorities: Option<Arc<WebPkiServerVerifier>>,
        /// Copies of certificates.
        copies: Vec<CertificateDer<'static>>,
    },
    Pinned(CertificateFingerprint),
}

/// A certificate that was refused, as the cause of an error of rustls.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct UntrustedCertificate {
    pub(super) fingerprint: CertificateFingerprint,
    pub(super) fault: Distrust,
}

/// Reason why a certificate is refused.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Distrust {
    /// It is not the pinned one.
    NotPinned,
    /// It is of a kind that also a pinned one may not be of.
    Unusable(&'static str),
    Fault(CertificateError),
}

impl fmt::Display for UntrustedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "certificate {}", self.fingerprint)
    }
}

impl std::error::Error for UntrustedCertificate {}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let fingerprint = CertificateFingerprint::of(end_entity);
        let untrusted = |fault| {
            let cause = Arc::new(UntrustedCertificate { fingerprint, fault });
            Error::InvalidCertificate(CertificateError::Other(OtherError(cause)))
        };
        let unusable = |reason| untrusted(Distrust::Unusable(reason));
        let (_, parsed) =
            X509Certificate::from_der(end_entity).map_err(|_| unusable("it cannot be read"))?;
        if let Some(reason) = reason_unusable(&parsed) {
            return Err(unusable(reason));
        }
        let verified = match &self.anchor {
            TrustAnchor::Pinned(pinned) if *pinned == fingerprint => {
                Ok(ServerCertVerified::assertion())
            }
            TrustAnchor::Pinned(_) => return Err(untrusted(Distrust::NotPinned)),
            TrustAnchor::Known { copies, .. } if copies.iter().any(|copy| copy == end_entity) => {
                verify_times(&parsed, now)
                    .and_then(|()| {
                        verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)
                    })
                    .map(|()| ServerCertVerified::assertion())
            }
            TrustAnchor::Known { authorities: None, .. } => {
                Err(CertificateError::UnknownIssuer.into())
            }
            TrustAnchor::Known { authorities: Some(authorities), .. } => {
                let verify = |at| {
                    authorities.verify_server_cert(
                        end_entity,
                        intermediates,
                        server_name,
                        ocsp_response,
                        at,
                    )
                };
                let verified = verify(now);
                // Times are verified first: what else is wrong shows at a time that is right.
                match (&verified, begin(&parsed)) {
                    (Err(error), Some(begin)) if is_of_time(error) => verify(begin).and(verified),
                    _ => verified,
                }
            }
        };
        verified.map_err(|error| match error {
            Error::InvalidCertificate(fault) => untrusted(Distrust::Fault(fault)),
            error => error,
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Verifies the times of a certificate.
fn verify_times(certificate: &X509Certificate<'_>, now: UnixTime) -> Result<(), Error> {
    let validity = certificate.validity();
    let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now_s < validity.not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now_s > validity.not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}

/// The time from which on a certificate is valid.
fn begin(certificate: &X509Certificate<'_>) -> Option<UnixTime> {
    let begin_s = u64::try_from(certificate.validity().not_before.timestamp()).ok()?;
    Some(UnixTime::since_unix_epoch(Duration::from_secs(begin_s)))
}

/// True for a certificate that is valid at another time.
fn is_of_time(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidCertificate(
            CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. }
        )
    )
}

/// True for the certificate of an authority (RFC 5280 §4.2.1.9); `None` for one that cannot be
/// read, or has bytes behind it.
pub(super) fn is_authority(certificate: &CertificateDer<'_>) -> Option<bool> {
    let (rest, parsed) = X509Certificate::from_der(certificate).ok()?;
    rest.is_empty().then(|| parsed.is_ca())
}

/// The reason why the signature of a handshake could not be verified with a certificate.
fn reason_unusable(certificate: &X509Certificate<'_>) -> Option<&'static str> {
    if certificate.version() != X509Version::V3 {
        return Some("it is not X.509 version 3");
    }
    match certificate.public_key().parsed() {
        Ok(PublicKey::RSA(key)) if key.key_size() < RSA_BITS_MIN => {
            Some("its key is RSA of less than 2048 bits")
        }
        _ => None,
    }
}

/// Describes the fault of a certificate.
pub(super) fn words(fault: &CertificateError) -> String {
    match fault {
        CertificateError::UnknownIssuer => {
            "no trusted authority has issued it (--ca FILE names others)".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired".to_owned()
        }
        CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            "it has no names (subjectAltName)".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another name than that of the address".to_owned()
        }
        CertificateError::Other(other) => match other.to_string().as_str() {
            // Names of errors of rustls-webpki, which rustls does not pass on by type.
            "CaUsedAsEndEntity" => "it is that of an authority, and not in --ca".to_owned(),
            "UnsupportedCriticalExtension" => "it has an unknown critical extension".to_owned(),
            other => one_line(other, FAULT_CHARS_MAX),
        },
        CertificateError::BadSignature => {
            "the authority that it names has not signed it".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is not one of a server".to_owned()
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "its algorithm of signature is not supported".to_owned()
        }
        // Texts of rustls may repeat lists of the certificate.
        fault => one_line(&fault.to_string(), FAULT_CHARS_MAX),
    }
}

/// The shortest that the verifier of signatures accepts.
const RSA_BITS_MIN: usize = 2048;
