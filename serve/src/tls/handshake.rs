// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accepts a TLS client within a time-out.
//!
//! Memory of a handshake is bounded: rustls refuses a handshake message over 64 KiB and any message
//! out of order, and without client certificates and 0-RTT data a client sends two messages at
//! most (three after a retry). The time-out bounds a client that sends them a byte at a time.
//! rustls refuses renegotiation and TLS 1.1 and older with an alert.
//!
//! The first byte reveals clients without TLS (RFC 8446 §5.1: a record of a handshake begins with
//! 22). It is peeked at, one system call a connection, and such clients are answered in their own
//! protocol.
//!
//! Does not limit connections ([`crate::limits`] does) or serve them.

use std::io::{self, ErrorKind};
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustls::HandshakeKind;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::record_socket::{ClientTls, RecordSocket};
use super::terms::{TlsTerms, TlsUse};
use super::{TlsCounters, plain_request};

/// Reason why a handshake did not complete. The peer or the network causes each but `WithoutTime`,
/// so none is logged above `debug`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeFailure {
    /// The peer did not complete the handshake in time.
    #[error("handshake: nothing complete for {0:?}")]
    TimedOut(Duration),
    /// The peer closed before it sent a byte, as checks of a port do.
    #[error("handshake: closed before the first byte")]
    Silent,
    /// The peer closed within the handshake; clients that distrust the certificate may do that.
    #[error("handshake: closed by the peer")]
    Closed,
    /// The peer spoke HTTP or RTSP without TLS and was answered.
    #[error("handshake: a request without TLS (answered 400)")]
    PlainRequest,
    /// The peer's first byte begins no handshake (RFC 8446 §5.1).
    #[error("handshake: first byte {0:#04x} instead of 0x16 (RFC 8446 §5.1)")]
    NotTls(u8),
    /// The peer broke the protocol, offered nothing in common, or sent an alert.
    #[error("handshake: {0}")]
    Refused(rustls::Error),
    /// The connection failed.
    #[error("handshake: {0}")]
    Connection(io::Error),
    /// This host's clock was set back; logged once, until it is right again.
    #[error("handshake: this host's clock is before 1970; set it")]
    WithoutTime,
}

/// Completes the handshake of a client within `wait`; counts the result.
pub(crate) async fn accept(
    stream: TcpStream,
    terms: &TlsTerms,
    usage: TlsUse,
    wait: Duration,
) -> Result<ClientTls, HandshakeFailure> {
    let handshake = timeout(wait, shake(stream, terms, usage)).await;
    let result = handshake.unwrap_or(Err(HandshakeFailure::TimedOut(wait)));
    let counters = &terms.counters;
    match &result {
        Ok(stream) => {
            TlsCounters::count(&counters.handshakes);
            if stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed) {
                TlsCounters::count(&counters.resumed);
            }
        }
        Err(HandshakeFailure::Silent) => {}
        Err(_) => TlsCounters::count(&counters.failed),
    }
    result
}

async fn shake(
    stream: TcpStream,
    terms: &TlsTerms,
    usage: TlsUse,
) -> Result<ClientTls, HandshakeFailure> {
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(0) => return Err(HandshakeFailure::Silent),
        Ok(_) => {}
        Err(error) => return Err(HandshakeFailure::Connection(error)),
    }
    match first[0] {
        CONTENT_TYPE_HANDSHAKE => {}
        // Methods of HTTP and RTSP are written in capitals.
        b'A'..=b'Z' => {
            plain_request::answer(stream, usage).await;
            return Err(HandshakeFailure::PlainRequest);
        }
        other => return Err(HandshakeFailure::NotTls(other)),
    }
    // rustls would panic.
    let is_without_time = terms.clock.current_time().is_none();
    let was_without_time = terms.is_without_time.swap(is_without_time, Ordering::Relaxed);
    if is_without_time {
        if !was_without_time {
            tracing::warn!("tls: this host's clock is before 1970: no handshakes; set the clock");
        }
        return Err(HandshakeFailure::WithoutTime);
    }
    let is_by_record = usage == TlsUse::Https && terms.kernel.is_some();
    let stream = RecordSocket::new(stream, is_by_record);
    TlsAcceptor::from(terms.config(usage).clone()).accept(stream).await.map_err(|error| {
        let refused = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match (refused, error.kind()) {
            (Some(refused), _) => HandshakeFailure::Refused(refused.clone()),
            (None, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
                HandshakeFailure::Closed
            }
            (None, _) => HandshakeFailure::Connection(error),
        }
    })
}

/// Type of a record that carries a handshake (RFC 8446 §5.1).
const CONTENT_TYPE_HANDSHAKE: u8 = 22;
