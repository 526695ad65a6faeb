// SPDX-License-Identifier: MIT OR Apache-2.0
//! A TLS client whose every step a test controls: the server name it requests, the amount it reads,
//! the size of its receive buffer.
//!
//! It shows a test the certificate and trusts any: curl, wget and ffmpeg check the trust.
//!
//! Sources: rustls 0.23 `ClientConfig`; RFC 9113 §3.2 (ALPN).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme, SupportedCipherSuite};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// One connection, and the runtime that it runs on.
pub(crate) struct Client {
    runtime: Runtime,
    stream: TlsStream<TcpStream>,
}

impl Client {
    /// Connects as `name`, a name of DNS or an address.
    pub(crate) fn connect(server: SocketAddr, name: &str) -> Client {
        let runtime = runtime();
        let stream = runtime.block_on(connect(server, name, b"http/1.1", None));
        Client { runtime, stream }
    }

    /// Connects to a port of RTSPS, which has no protocols to choose from.
    pub(crate) fn connect_to_rtsps(server: SocketAddr, receive_bytes: Option<u32>) -> Client {
        let runtime = runtime();
        let stream = runtime.block_on(connect(server, "localhost", b"", receive_bytes));
        Client { runtime, stream }
    }

    /// As [`Client::connect`], with a receive buffer of a few kilobytes.
    pub(crate) fn connect_narrow(server: SocketAddr) -> Client {
        let runtime = runtime();
        let stream = runtime.block_on(connect(server, "localhost", b"http/1.1", Some(NARROW)));
        Client { runtime, stream }
    }

    /// As [`Client::connect`], with only this version and this cipher suite.
    pub(crate) fn connect_by(server: SocketAddr, suite: SupportedCipherSuite) -> Client {
        let (runtime, mut provider) = (runtime(), default_provider());
        provider.cipher_suites = vec![suite];
        let config = config(provider, b"http/1.1");
        let stream = runtime.block_on(connect_by(config, server, "localhost", None));
        Client { runtime, stream }
    }

    /// Changes the keys that this side sends with (RFC 8446 §4.6.3).
    pub(crate) fn change_keys(&mut self) {
        let session = self.stream.get_mut().1;
        session.refresh_traffic_keys().expect("a connection of TLS 1.3");
        self.runtime.block_on(self.stream.flush()).expect("the message goes out");
    }

    /// Sends bytes below TLS.
    pub(crate) fn send_below(&mut self, bytes: &[u8]) {
        let socket = self.stream.get_mut().0;
        self.runtime.block_on(socket.write_all(bytes)).expect("the bytes go out");
    }

    /// Closes this side of the connection below TLS.
    pub(crate) fn end_below(&mut self) {
        let socket = self.stream.get_mut().0;
        self.runtime.block_on(socket.shutdown()).expect("it is connected");
    }

    /// Ends this side of the connection with close_notify.
    pub(crate) fn end(&mut self) {
        self.runtime.block_on(self.stream.shutdown()).expect("the alert goes out");
    }

    /// Returns the certificate that the server has shown.
    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        let shown = self.stream.get_ref().1.peer_certificates().expect("its handshake is over");
        shown[0].clone().into_owned()
    }

    /// Sends a request of HTTP/1.1 and reads nothing.
    pub(crate) fn send(&mut self, target: &str) {
        self.send_text(&format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    }

    pub(crate) fn send_text(&mut self, request: &str) {
        self.runtime.block_on(async {
            self.stream.write_all(request.as_bytes()).await.expect("the request goes out");
            self.stream.flush().await.expect("the request goes out");
        });
    }

    /// Sends one request; returns status and content of the answer.
    pub(crate) fn get(&mut self, target: &str) -> (u16, Vec<u8>) {
        self.send(target);
        let (status, length, mut body) = self.head();
        body.extend(self.read(length - body.len()));
        (status, body)
    }

    /// Waits until the server has sent more than session tickets, and reads none of it.
    pub(crate) fn await_answer(&self) {
        let socket = self.stream.get_ref().0;
        let deadline = Instant::now() + ANSWER_WAIT;
        self.runtime.block_on(async {
            let mut piece = [0; 2048];
            while socket.peek(&mut piece).await.expect("it is connected") < piece.len() {
                assert!(Instant::now() < deadline, "no answer within {ANSWER_WAIT:?}");
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
    }

    /// Reads this many bytes.
    pub(crate) fn read(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let read = self.stream.read_exact(&mut bytes);
        self.runtime.block_on(read).expect("as many bytes as awaited");
        bytes
    }

    /// Reads the head of an answer; returns its status, the length of its content, and the part of
    /// the content already read.
    pub(crate) fn head(&mut self) -> (u16, usize, Vec<u8>) {
        let mut read = Vec::new();
        loop {
            let count = self.runtime.block_on(self.stream.read_buf(&mut read)).expect("an answer");
            assert!(count > 0, "closed without an answer");
            let end = read.windows(4).position(|four| four == b"\r\n\r\n");
            let Some(end) = end else { continue };
            let head = String::from_utf8(read[..end].to_vec()).expect("a head in ASCII");
            let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok()
            });
            let found = (status.expect("a status"), length.expect("a length"));
            return (found.0, found.1, read.split_off(end + 4));
        }
    }

    /// True when the server ends the connection by TLS (close_notify) and sends nothing before.
    pub(crate) fn ends_well(&mut self) -> bool {
        matches!(self.runtime.block_on(self.stream.read(&mut [0])), Ok(0))
    }

    /// Returns all bytes up to the end of the connection, which has to be a TLS end.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.runtime.block_on(self.stream.read_to_end(&mut bytes)).expect("an end by TLS");
        bytes
    }

    /// Returns the number of bytes up to the end of the connection, however it ends.
    pub(crate) fn count_rest(&mut self) -> usize {
        let mut piece = vec![0; 64 << 10];
        let mut bytes = 0;
        while let Ok(count @ 1..) = self.runtime.block_on(self.stream.read(&mut piece)) {
            bytes += count;
        }
        bytes
    }
}

/// Creates a runtime for one connection.
pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("free descriptors")
}

/// Connects and completes a handshake for `protocol`, which may be empty for none;
/// `receive_bytes` is the size of the receive buffer.
pub(crate) async fn connect(
    server: SocketAddr,
    name: &str,
    protocol: &[u8],
    receive_bytes: Option<u32>,
) -> TlsStream<TcpStream> {
    connect_by(config(default_provider(), protocol), server, name, receive_bytes).await
}

async fn connect_by(
    config: ClientConfig,
    server: SocketAddr,
    name: &str,
    receive_bytes: Option<u32>,
) -> TlsStream<TcpStream> {
    let socket = TcpSocket::new_v4().expect("a free descriptor");
    if let Some(bytes) = receive_bytes {
        socket.set_recv_buffer_size(bytes).expect("a TCP socket has the option");
    }
    let stream = socket.connect(server).await.expect("the server listens");
    stream.set_nodelay(true).expect("a TCP socket has the option");
    let protocol = config.alpn_protocols.first().cloned().unwrap_or_default();
    let name = ServerName::try_from(name.to_owned()).expect("a name of DNS or an address");
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    let stream = stream.expect("a handshake");
    assert_eq!(stream.get_ref().1.alpn_protocol().unwrap_or_default(), protocol);
    stream
}

/// Returns the settings of a client that offers `protocol` and trusts every certificate.
pub(crate) fn config(provider: CryptoProvider, protocol: &[u8]) -> ClientConfig {
    let provider = Arc::new(provider);
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("the provider has a suite")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TrustAny(provider)))
        .with_no_client_auth();
    let protocols = [protocol].into_iter().filter(|protocol| !protocol.is_empty());
    config.alpn_protocols = protocols.map(<[u8]>::to_vec).collect();
    config
}

/// Trusts every certificate; signatures are checked.
#[derive(Debug)]
struct TrustAny(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Bytes of a receive buffer that a server fills at once.
pub(crate) const NARROW: u32 = 4096;
const ANSWER_WAIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(5);
