// SPDX-License-Identifier: MIT OR Apache-2.0
//! TLS of RTSP connections (`rtsps:`): trust in servers, and the handshake.
//!
//! A server is trusted for a certificate of an authority (those of the system, or of a file), for
//! one of which the user has a copy, or for one whose fingerprint the user has compared
//! (`verifier`). The error for any other server has the fingerprint of its certificate, so that
//! there is something to compare.
//!
//! Versions are 1.3 and 1.2. No session is resumed: a resumed one would not show the certificate,
//! which may have expired or changed in the months that a camera is recorded.
//!
//! Media costs a decryption and three copies more than without TLS (into the `BufReader`, into the
//! buffer of rustls, and out), and a system call for each 32 KiB; a connection costs about 64 KiB
//! of memory.
//!
//! Sources: RFC 8446, RFC 5246; RFC 7826 §19.2.
//! Does not send certificates of its own.

mod fingerprint;
mod verifier;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, InvalidMessage, OtherError, RootCertStore,
};
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use self::verifier::{Distrust, TrustAnchor, UntrustedCertificate, Verifier, is_authority, words};
use crate::control_stream::TlsSocket;
use crate::error::Error;
use crate::one_line;

pub use self::fingerprint::CertificateFingerprint;

/// Servers that a client trusts.
#[derive(Clone)]
pub struct ServerTrust {
    config: Arc<ClientConfig>,
    pub(crate) is_pinned: bool,
}

impl ServerTrust {
    /// Trusts the certificate authorities of the system. Reads files.
    ///
    /// # Errors
    /// [`TrustFault::NoAuthorities`].
    pub fn of_system() -> Result<ServerTrust, TrustFault> {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::debug!("certificates of the system: {error}");
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs);
        match roots.is_empty() {
            true => Err(TrustFault::NoAuthorities),
            false => Ok(ServerTrust::known(roots, Vec::new())),
        }
    }

    /// Trusts the certificates in the bytes of a file, in PEM or DER, for their own names and
    /// times, and the authorities among them for all that they have issued.
    ///
    /// # Errors
    /// There is no certificate, or one that cannot be read.
    pub fn of_file(bytes: &[u8]) -> Result<ServerTrust, TrustFault> {
        let is_pem = bytes.windows(PEM_BEGIN.len()).any(|window| window == PEM_BEGIN);
        let copies: Vec<CertificateDer<'static>> = match is_pem {
            true => CertificateDer::pem_slice_iter(bytes)
                .collect::<Result<_, _>>()
                .map_err(|error| TrustFault::Pem(fault_of_pem(&error)))?,
            false if bytes.trim_ascii().is_empty() => Vec::new(),
            false => vec![CertificateDer::from(bytes.to_vec())],
        };
        if copies.is_empty() {
            return Err(TrustFault::NoCertificate);
        }
        let mut roots = RootCertStore::empty();
        for (index, certificate) in copies.iter().enumerate() {
            let unread = TrustFault::Certificate { number: index + 1 };
            if is_authority(certificate).ok_or(unread.clone())? {
                roots.add(certificate.clone()).map_err(|_| unread)?;
            }
        }
        Ok(ServerTrust::known(roots, copies))
    }

    /// Trusts one certificate, whatever its names, issuer and times.
    pub fn pinned(fingerprint: CertificateFingerprint) -> ServerTrust {
        let (provider, anchor) = (provider(), TrustAnchor::Pinned(fingerprint));
        ServerTrust { config: client_config(provider, anchor), is_pinned: true }
    }

    fn known(roots: RootCertStore, copies: Vec<CertificateDer<'static>>) -> ServerTrust {
        let provider = provider();
        // The builder refuses an empty list, and nothing else.
        let authorities =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        let anchor = TrustAnchor::Known { authorities: authorities.ok(), copies };
        ServerTrust { config: client_config(provider, anchor), is_pinned: false }
    }
}

impl fmt::Debug for ServerTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTrust").field("is_pinned", &self.is_pinned).finish_non_exhaustive()
    }
}

/// Reason why certificates cannot be trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrustFault {
    /// The system has no certificate authorities.
    #[error(
        "no certificate authorities on this system; install them (ca-certificates), or name a \
         file by --ca"
    )]
    NoAuthorities,
    /// A file has no certificate.
    #[error("no certificate in it; name a file in PEM or DER")]
    NoCertificate,
    /// A file is not PEM.
    #[error("{0}; name a file of certificates in PEM or DER")]
    Pem(&'static str),
    /// A certificate cannot be read.
    #[error("certificate {number} cannot be read; name a file in PEM, or of one in DER")]
    Certificate {
        /// Place in the file, from 1.
        number: usize,
    },
}

/// Reason why a connection of TLS failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFault {
    /// The certificate is not trusted.
    #[error(
        "its certificate is not trusted: {fault}; if {fingerprint} is the SHA-256 fingerprint that \
         the server itself shows, write --fingerprint with it"
    )]
    Untrusted {
        /// The fault.
        fault: String,
        /// Fingerprint of the certificate.
        fingerprint: CertificateFingerprint,
    },
    /// The certificate is valid from a later time on.
    #[error(
        "its certificate is not valid yet: see the clock of this machine; if {0} is the SHA-256 \
         fingerprint that the server itself shows, write --fingerprint with it"
    )]
    NotValidYet(CertificateFingerprint),
    /// The certificate is not the pinned one.
    #[error(
        "its certificate is another one than that of --fingerprint, and has {0}: the server has \
         made a new one, or another answers in its place; compare it at the server itself"
    )]
    NotPinned(CertificateFingerprint),
    /// The certificate is of a kind that cannot be verified.
    #[error("its certificate cannot be used: {0}; the server needs another")]
    Unusable(String),
    /// The server asks for a certificate of the client.
    #[error("it asks for a certificate of the client, which is not supported")]
    ClientCertificate,
    /// The server does not speak TLS.
    #[error("it does not speak TLS on this port; write rtsp://, or the port of its RTSP over TLS")]
    NoTls,
    /// The handshake failed.
    #[error("TLS handshake: {0}")]
    Handshake(String),
    /// The host is neither a name nor an address.
    #[error("a certificate cannot have this name; write the name or the address of the server")]
    UnusableName,
    /// The clock of this host is before 1970.
    #[error("the clock of this machine is before 1970, and no certificate is valid then; set it")]
    Clock,
    /// No trust was given, and that in the system cannot be had.
    #[error("{0}")]
    NoTrust(TrustFault),
}

/// Makes a connection one of TLS. Without a trust, that in the authorities of the system is read.
///
/// # Errors
/// The server is not trusted, does not speak TLS, or does not answer in [`HANDSHAKE_WAIT`].
pub(crate) async fn handshake(
    stream: TcpStream,
    host: &str,
    trust: Option<&ServerTrust>,
    peer: &str,
) -> Result<TlsStream<TlsSocket>, Error> {
    let failed = |fault| Error::Tls { peer: peer.to_owned(), fault };
    // rustls-pki-types panics at such a time.
    if SystemTime::now() < UNIX_EPOCH {
        return Err(failed(TlsFault::Clock));
    }
    let trust = match trust {
        Some(trust) => trust.clone(),
        None => {
            let read = tokio::task::spawn_blocking(ServerTrust::of_system).await;
            let read = read.unwrap_or(Err(TrustFault::NoAuthorities));
            read.map_err(|fault| failed(TlsFault::NoTrust(fault)))?
        }
    };
    let name = match (ServerName::try_from(host.to_owned()), stream.peer_addr()) {
        (Ok(name), _) => name,
        // The name is not compared.
        (Err(_), Ok(address)) if trust.is_pinned => ServerName::from(address.ip()),
        (Err(_), _) => return Err(failed(TlsFault::UnusableName)),
    };
    let stream = BufReader::with_capacity(READ_BYTES, stream);
    let connecting = TlsConnector::from(trust.config).connect(name, stream);
    let lost = |found: String| Error::Lost { peer: peer.to_owned(), found };
    match timeout(HANDSHAKE_WAIT, connecting).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(match fault_of(&error) {
            Some(fault) => failed(fault),
            // Alerts and faults that pass, too: of a server that starts, or of the network.
            None if error.kind() == io::ErrorKind::UnexpectedEof => lost(CLOSED.to_owned()),
            None => lost(format!("TLS handshake: the connection broke: {error}")),
        }),
        Err(_) => {
            let seconds = HANDSHAKE_WAIT.as_secs();
            Err(lost(format!("TLS handshake: no answer in {seconds} s; does it speak TLS?")))
        }
    }
}

/// Returns the fault of TLS in an error; `None` if it has another cause.
fn fault_of(error: &io::Error) -> Option<TlsFault> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    let text = one_line(&error.to_string(), FAULT_CHARS_MAX);
    let needed = |needed: &str| TlsFault::Handshake(format!("{text}; {needed} is needed"));
    if let rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(cause))) = error
        && let Some(untrusted) = cause.downcast_ref::<UntrustedCertificate>()
    {
        return Some(untrusted.into());
    }
    Some(match error {
        rustls::Error::InvalidCertificate(fault) => TlsFault::Unusable(words(fault)),
        rustls::Error::DecryptError
        | rustls::Error::AlertReceived(
            AlertDescription::InternalError
            | AlertDescription::UserCanceled
            | AlertDescription::CloseNotify,
        ) => return None,
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => TlsFault::NoTls,
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
            TlsFault::ClientCertificate
        }
        rustls::Error::AlertReceived(AlertDescription::ProtocolVersion) => needed("TLS 1.2 or 1.3"),
        rustls::Error::PeerIncompatible(_)
        | rustls::Error::AlertReceived(AlertDescription::HandshakeFailure) => needed(
            "TLS 1.3, or 1.2 with ECDHE and AES-GCM or ChaCha20-Poly1305, and no certificate of \
             the client,",
        ),
        _ => TlsFault::Handshake(text),
    })
}

/// Returns the fault that a server of TLS 1.3 finds behind the handshake; `None` if an error has
/// another cause.
pub(crate) fn late_fault_of(error: &io::Error) -> Option<TlsFault> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    let required = rustls::Error::AlertReceived(AlertDescription::CertificateRequired);
    (*error == required).then_some(TlsFault::ClientCertificate)
}

/// The fault of PEM, without the text of the file: it may be a key.
fn fault_of_pem(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a section has no END on a line of its own",
        pem::Error::IllegalSectionStart { .. } => "a BEGIN has no line of its own",
        pem::Error::Base64Decode(_) => "a section is not base64",
        _ => "it cannot be read",
    }
}

impl From<&UntrustedCertificate> for TlsFault {
    fn from(untrusted: &UntrustedCertificate) -> TlsFault {
        let fingerprint = untrusted.fingerprint;
        match &untrusted.fault {
            Distrust::NotPinned => TlsFault::NotPinned(fingerprint),
            Distrust::Unusable(reason) => TlsFault::Unusable((*reason).to_owned()),
            Distrust::Fault(
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
            ) => TlsFault::NotValidYet(fingerprint),
            Distrust::Fault(fault) => TlsFault::Untrusted { fault: words(fault), fingerprint },
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn client_config(provider: Arc<CryptoProvider>, anchor: TrustAnchor) -> Arc<ClientConfig> {
    let verifier = Arc::new(Verifier { provider: provider.clone(), anchor });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has cipher suites of both versions")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

/// Two records of the largest size.
const READ_BYTES: usize = 32 << 10;
/// Limit of a handshake: a camera signs on a slow processor.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);
const CLOSED: &str = "TLS handshake: the server closed the connection; does it speak TLS?";
const FAULT_CHARS_MAX: usize = 120;
const PEM_BEGIN: &[u8] = b"-----BEGIN ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_asks_for_a_certificate_is_told_from_one_that_is_gone() {
        let error = |fault| io::Error::new(io::ErrorKind::InvalidData, fault);
        let required = || rustls::Error::AlertReceived(AlertDescription::CertificateRequired);
        assert_eq!(late_fault_of(&error(required())), Some(TlsFault::ClientCertificate));
        assert_eq!(fault_of(&error(required())), Some(TlsFault::ClientCertificate));
        let passing = error(rustls::Error::AlertReceived(AlertDescription::InternalError));
        assert_eq!((late_fault_of(&passing), fault_of(&passing)), (None, None));
        assert_eq!(late_fault_of(&io::ErrorKind::ConnectionReset.into()), None);
    }
}
