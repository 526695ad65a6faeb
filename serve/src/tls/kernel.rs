// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections of HTTPS that the kernel encrypts and decrypts (kernel TLS, kTLS).
//!
//! rustls performs the handshake. If the kernel passed a test with this version and cipher at
//! start, it then receives the keys, and the answers of HTTP/1 are sent by the paths of plain
//! connections: a download is a `sendfile` again. On a host without the module `tls`, rustls
//! encrypts as well.
//!
//! This module implements the parts that the kernel lacks. An alert of the peer ends the
//! connection. So does a handshake message: Linux before 6.14 cannot change keys, and rustls
//! exports the next ones only through its unbuffered interface. A client that updates its keys (RFC
//! 8446 §4.6.3, after hundreds of gigabytes) or renegotiates gets the answer to its last request
//! and sees the connection closed, like an idle one.
//!
//! Counted in a guest with Debian's 6.12 on an emulated processor that has AES instructions and not
//! VAES, a byte costs the kernel 3.3 to 3.4 instructions of cipher and TCP. If the server encrypts,
//! it costs 3.7: 2.2 of its own and 1.5 of the kernel's, with two copies through the caches. If the
//! processor has VAES and the kernel does not use it (before 6.11), the server's cipher is the
//! faster one: `--kernel-tls off`.
//!
//! Records under a key are limited ([`RECORDS_MAX`]); the answer that would exceed the limit ends
//! there, with the connection, and clients resume it by a range. Long answers have 64 GiB at least.
//!
//! Sources: Linux `Documentation/networking/tls.rst`; RFC 8446 §5.5 (limits), §6.1 (close_notify).
//! Does not serve HTTP/2, whose frames are made in this process, or RTSPS.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use paths::{
    RecordCipher, TlsVersion, TrafficKeys, ready_kernel_tls, receive_record, send_record,
    start_kernel_tls, try_kernel_tls,
};
use rustix::io::Errno;
use rustls::{CipherSuite, ConnectionTrafficSecrets, ProtocolVersion, ServerConnection};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use wire::http::{Part, Response};

use super::TlsCounters;
use super::record_socket::ClientTls;

/// Versions and ciphers that the kernel of this host encrypts.
pub(crate) struct KernelTls(Vec<(TlsVersion, RecordCipher)>);

/// Connection that the kernel encrypts.
pub(crate) struct KernelTlsStream {
    stream: TcpStream,
    /// Most records that may have been sent.
    records: u64,
    /// True once an error was sent to the peer, behind which nothing is sent.
    is_failed: bool,
}

impl KernelTls {
    /// Tries all versions and ciphers, over loopback; `None` if the kernel supports none.
    pub(super) fn probe() -> Option<KernelTls> {
        let mut found = Vec::new();
        for version in [TlsVersion::Tls13, TlsVersion::Tls12] {
            for cipher in CIPHERS {
                match try_kernel_tls(version, cipher) {
                    Ok(()) => found.push((version, cipher)),
                    Err(error) => tracing::debug!("kernel TLS, {version:?} {cipher:?}: {error}"),
                }
            }
        }
        if found.is_empty() {
            return None;
        }
        tracing::info!("HTTPS by HTTP/1 is encrypted by the kernel (kernel TLS)");
        Some(KernelTls(found))
    }

    /// Prepares a connection for [`KernelTlsStream::start`]; returns its version and cipher, or
    /// `None` if it cannot be handed over and continues unchanged.
    pub(super) fn suits(&self, stream: &mut ClientTls) -> Option<(TlsVersion, RecordCipher)> {
        let (socket, session) = stream.get_mut();
        let terms = terms_of(session).filter(|terms| self.0.contains(terms))?;
        // No data may be in transit: it would be lost, or encrypted twice.
        let is_read = session.process_new_packets().ok()?.plaintext_bytes_to_read() > 0;
        let is_idle = socket.is_between_records() && !session.wants_write() && !is_read;
        // The kernel rejects a connection whose peer has closed its side.
        (is_idle && ready_kernel_tls(socket.as_fd()).is_ok()).then_some(terms)
    }
}

impl KernelTlsStream {
    /// Hands a connection that [`KernelTls::suits`] to the kernel.
    ///
    /// # Errors
    /// The kernel has no memory, or rustls exports no keys; the connection is lost.
    pub(crate) fn start(
        stream: ClientTls,
        (version, cipher): (TlsVersion, RecordCipher),
        counters: &TlsCounters,
    ) -> io::Result<KernelTlsStream> {
        let (socket, session) = stream.into_inner();
        let secrets = session.dangerous_extract_secrets().map_err(io::Error::other)?;
        let sending = traffic_keys(&secrets.tx, cipher)?;
        let receiving = traffic_keys(&secrets.rx, cipher)?;
        let stream = socket.into_tcp();
        start_kernel_tls(stream.as_fd(), version, &sending, &receiving)?;
        TlsCounters::count(&counters.in_kernel);
        Ok(KernelTlsStream { stream, records: sending.sequence, is_failed: false })
    }

    /// Returns the connection, which reads and writes plain bytes.
    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.stream
    }

    fn alert(&self, level: u8, description: u8) {
        // A peer that reads nothing, or is gone, needs no alert.
        let _ = send_record(self.stream.as_fd(), CONTENT_TYPE_ALERT, &[level, description]);
    }

    /// Counts the records of an answer, and shortens it to those that the key may encrypt; false if
    /// the connection has to be closed after it.
    pub(crate) fn may_send(&mut self, response: &mut Response) -> bool {
        let bytes_max = RECORDS_MAX.saturating_sub(self.records) * RECORD_BYTES_LEAST;
        let is_whole = shorten(&mut response.parts, bytes_max);
        if !is_whole {
            tracing::warn!("https: an answer ends at the {RECORDS_MAX} records of its key");
        }
        // Head and each part may end in a record that is not full.
        let short = 1 + response.parts.len() as u64;
        self.records += response.bytes_total() / RECORD_BYTES_LEAST + short;
        is_whole && self.records < RECORDS_MAX
    }
}

impl AsyncRead for KernelTlsStream {
    /// Reads data; returns nothing more if the peer has closed, and an error if it changes keys.
    ///
    /// A record of another type ends a read early, so a read that does not fill the buffer has not
    /// drained the socket, contrary to the assumption of tokio's own reads. Bytes that begin no
    /// record set an error that wakes no reader: then the connection ends by its time-out.
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let stream = &self.stream;
            ready!(stream.poll_read_ready(context))?;
            let target = buffer.initialize_unfilled();
            let received =
                stream.try_io(Interest::READABLE, || Ok(receive_record(stream.as_fd(), target)?));
            return Poll::Ready(match received {
                Ok((CONTENT_TYPE_DATA, bytes)) => {
                    buffer.advance(bytes);
                    Ok(())
                }
                Ok((content_type, bytes)) => end(content_type, &target[..bytes]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => {
                    let alert = match error.raw_os_error().map(Errno::from_raw_os_error) {
                        Some(Errno::BADMSG) => Some(BAD_RECORD_MAC),
                        Some(Errno::MSGSIZE) => Some(RECORD_OVERFLOW),
                        Some(Errno::INVAL) => Some(UNEXPECTED_MESSAGE),
                        _ => None,
                    };
                    if let Some(alert) = alert {
                        // The socket keeps the error for the next send, which is the alert.
                        let _ = stream.take_error();
                        self.alert(FATAL, alert);
                        self.is_failed = true;
                    }
                    Err(error)
                }
            });
        }
    }
}

/// Returns how a record that is no data ends the connection: without an error if the peer has
/// closed it.
fn end(content_type: u8, content: &[u8]) -> io::Result<()> {
    match (content_type, content) {
        (CONTENT_TYPE_ALERT, [_, CLOSE_NOTIFY]) => Ok(()),
        (CONTENT_TYPE_ALERT, [_, alert]) => {
            Err(io::Error::other(format!("alert {alert} of the peer (RFC 8446 §6)")))
        }
        (CONTENT_TYPE_HANDSHAKE, _) => {
            Err(io::Error::other("new keys or renegotiation; the kernel's keys cannot change"))
        }
        (other, _) => Err(io::Error::other(format!("a record of type {other}"))),
    }
}

impl AsyncWrite for KernelTlsStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    /// Sends the peer close_notify, and closes this side. Records for which TCP had no room are
    /// lost.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_failed {
            this.alert(WARNING, CLOSE_NOTIFY);
        }
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}

/// Leaves the first `left` bytes of an answer, less where they end in text; false if it had more.
fn shorten(parts: &mut Vec<Part>, mut left: u64) -> bool {
    for index in 0..parts.len() {
        let part = &mut parts[index];
        if part.bytes() > left {
            let kept = match part {
                Part::File { bytes, .. } => {
                    *bytes = left;
                    index + 1
                }
                Part::Bytes(_) | Part::Held { .. } => index,
            };
            parts.truncate(kept);
            return false;
        }
        left -= part.bytes();
    }
    true
}

/// Returns version and cipher of a session; `None` for those that the kernel cannot have.
fn terms_of(session: &ServerConnection) -> Option<(TlsVersion, RecordCipher)> {
    use CipherSuite as Suite;
    let version = match session.protocol_version()? {
        ProtocolVersion::TLSv1_3 => TlsVersion::Tls13,
        ProtocolVersion::TLSv1_2 => TlsVersion::Tls12,
        _ => return None,
    };
    let cipher = match session.negotiated_cipher_suite()?.suite() {
        Suite::TLS13_AES_128_GCM_SHA256
        | Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        | Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => RecordCipher::Aes128Gcm,
        Suite::TLS13_AES_256_GCM_SHA384
        | Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        | Suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => RecordCipher::Aes256Gcm,
        Suite::TLS13_CHACHA20_POLY1305_SHA256
        | Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        | Suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => RecordCipher::Chacha20Poly1305,
        _ => return None,
    };
    Some((version, cipher))
}

/// Returns one direction's keys.
fn traffic_keys(
    (sequence, secrets): &(u64, ConnectionTrafficSecrets),
    cipher: RecordCipher,
) -> io::Result<TrafficKeys<'_>> {
    let (key, iv) = match (secrets, cipher) {
        (ConnectionTrafficSecrets::Aes128Gcm { key, iv }, RecordCipher::Aes128Gcm)
        | (ConnectionTrafficSecrets::Aes256Gcm { key, iv }, RecordCipher::Aes256Gcm)
        | (
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv },
            RecordCipher::Chacha20Poly1305,
        ) => (key.as_ref(), iv.as_ref()),
        _ => return Err(io::Error::other("keys are not those of the cipher")),
    };
    let iv = iv.try_into().map_err(|_| io::Error::other("the iv has not twelve bytes"))?;
    Ok(TrafficKeys { cipher, key, iv, sequence: *sequence })
}

const CIPHERS: [RecordCipher; 3] =
    [RecordCipher::Aes128Gcm, RecordCipher::Aes256Gcm, RecordCipher::Chacha20Poly1305];
/// Most records under one key of AES-GCM: 2^24.5 (RFC 8446 §5.5), rounded down.
const RECORDS_MAX: u64 = 1 << 24;
/// Bytes that records of a long answer have at least, on average: a page, as Linux 6.1 makes them
/// where a pipe has no room for more.
const RECORD_BYTES_LEAST: u64 = 4 << 10;
/// Types of records (RFC 8446 §5.1), and alerts (§6).
const CONTENT_TYPE_ALERT: u8 = 21;
const CONTENT_TYPE_HANDSHAKE: u8 = 22;
const CONTENT_TYPE_DATA: u8 = 23;
const WARNING: u8 = 1;
const FATAL: u8 = 2;
const CLOSE_NOTIFY: u8 = 0;
const UNEXPECTED_MESSAGE: u8 = 10;
const BAD_RECORD_MAC: u8 = 20;
const RECORD_OVERFLOW: u8 = 22;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_where_the_records_of_its_key_do() {
        let parts = || {
            vec![
                Part::Bytes(b"--a"[..].into()),
                Part::File { offset: 7, bytes: 100 },
                Part::Bytes(b"--a--"[..].into()),
            ]
        };
        let left = |bytes_max| {
            let mut parts = parts();
            let is_whole = shorten(&mut parts, bytes_max);
            (is_whole, parts.len(), parts.iter().map(Part::bytes).sum::<u64>())
        };
        assert_eq!(left(108), (true, 3, 108));
        assert_eq!(left(107), (false, 2, 103));
        assert_eq!(left(103), (false, 2, 103));
        assert_eq!(left(50), (false, 2, 50));
        assert_eq!(left(2), (false, 0, 0));
    }
}
