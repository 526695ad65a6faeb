// SPDX-License-Identifier: MIT OR Apache-2.0
//! Certificates of scripted servers, and connections of TLS to them.

use std::sync::Arc;

use rcgen::{CertificateParams, Issuer, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::control_stream::ControlStream;
use super::tls::{ServerTrust, handshake};

/// A certificate, and the server's side of TLS with it.
pub(super) struct Certified {
    pub(super) config: Arc<ServerConfig>,
    pub(super) pem: String,
    params: CertificateParams,
    key: KeyPair,
}

impl Certified {
    /// A self-signed certificate for the address of scripted servers, valid now.
    pub(super) fn new() -> Certified {
        Certified::with(|_| {})
    }

    /// As [`new`](Certified::new), with a change.
    pub(super) fn with(change: impl FnOnce(&mut CertificateParams)) -> Certified {
        let (params, key) = parts(change);
        let made = params.self_signed(&key).unwrap();
        Certified::of(made, params, key)
    }

    /// As [`new`](Certified::new), signed with the key of this certificate.
    pub(super) fn signed(&self) -> Certified {
        let (params, key) = parts(|_| {});
        let issuer = Issuer::from_params(&self.params, &self.key);
        let made = params.signed_by(&key, &issuer).unwrap();
        Certified::of(made, params, key)
    }

    fn of(made: rcgen::Certificate, params: CertificateParams, key: KeyPair) -> Certified {
        let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.der().clone()], private)
            .unwrap();
        Certified { config: Arc::new(config), pem: made.pem(), params, key }
    }

    /// Trust of a client that has a copy.
    pub(super) fn trust(&self) -> ServerTrust {
        ServerTrust::of_file(self.pem.as_bytes()).unwrap()
    }

    /// A connection of a client, and that of its server.
    pub(super) async fn connected(&self) -> (ControlStream, TlsStream<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let trust = self.trust();
        let (client, server) = tokio::join!(
            handshake(client, "127.0.0.1", Some(&trust), "peer"),
            TlsAcceptor::from(self.config.clone()).accept(server),
        );
        (ControlStream::Tls(Box::new(client.unwrap())), server.unwrap())
    }
}

fn parts(change: impl FnOnce(&mut CertificateParams)) -> (CertificateParams, KeyPair) {
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2500, 1, 1));
    change(&mut params);
    (params, KeyPair::generate().unwrap())
}
