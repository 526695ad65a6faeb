// SPDX-License-Identifier: MIT OR Apache-2.0
//! Certificates, session terms and handshakes of HTTPS and RTSPS.
//!
//! One certificate serves both protocols and every server name: a client that asks for an unknown
//! name (SNI) is shown the same certificate and decides itself, as with a default server elsewhere.
//! TLS 1.3 and 1.2 are spoken; older versions, renegotiation and 0-RTT data are refused. 0-RTT data
//! can be replayed (RFC 8446 §8), and a download gains one round trip from it.
//!
//! Files: `certificates` (PEM files), `self_signed`, `validity` (dates), `clock` (a host's before
//! 1970), `terms` (what a handshake needs), `reload` (changed files), `handshake`, `record_socket`
//! (reads of a handshake), `kernel` (connections that the kernel encrypts), `plain_request` (for
//! clients without TLS), `counters`.
//!
//! Sources: RFC 8446 (TLS 1.3), RFC 5246 (TLS 1.2), RFC 7301 (ALPN), RFC 6066 §3 (SNI).
//! Does not move media: its server does.

use std::path::PathBuf;

use crate::error::Error;

mod certificates;
mod clock;
mod counters;
mod handshake;
mod kernel;
mod plain_request;
mod record_socket;
mod reload;
mod self_signed;
mod terms;
mod validity;

pub(crate) use counters::TlsCounters;
#[cfg(test)]
pub(crate) use handshake::HandshakeFailure;
pub(crate) use handshake::accept;
pub(crate) use kernel::KernelTlsStream;
pub(crate) use record_socket::ClientTls;
pub(crate) use terms::{TlsTerms, TlsUse};

/// Source of the certificate that HTTPS and RTSPS show.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsSource {
    /// PEM files, read again when they change. One file may hold both.
    Files {
        /// The certificate, followed by those of its issuers.
        cert: PathBuf,
        /// The private key: PKCS#8, PKCS#1 or SEC1, not encrypted.
        key: PathBuf,
    },
    /// A certificate for this host's names and addresses, signed by itself and kept in the cache.
    SelfSigned,
}

impl TlsSource {
    /// Loads the certificate of files, as a server does; returns its description. A self-signed
    /// certificate does not exist before a server makes it, so none is loaded.
    ///
    /// # Errors
    /// [`Error::Setting`]: the files cannot be used.
    pub fn check(&self) -> Result<Option<String>, Error> {
        let TlsSource::Files { cert, key } = self else { return Ok(None) };
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let certificate = certificates::Certificate::read(cert, key, &provider)?;
        Ok(Some(certificate.description().to_string()))
    }
}

#[cfg(test)]
mod tests;
