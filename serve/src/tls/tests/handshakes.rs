// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handshakes over loopback: with rustls as the client, with openssl where it is installed, and
//! with bytes that are no handshake.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustls::crypto::aws_lc_rs::{Ticketer, default_provider};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ProducesTickets;
use rustls::time_provider::TimeProvider;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, HandshakeKind, ProtocolVersion, RootCertStore, SupportedProtocolVersion,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_rustls::TlsConnector;

use super::super::clock::{TimedTickets, WallClock};
use super::super::{HandshakeFailure, TlsCounters, TlsSource, TlsTerms, TlsUse, accept};
use super::{Files, Pair, pair};

/// A server that greets each client, and the results of its handshakes.
struct Greeter {
    address: SocketAddr,
    counters: Arc<TlsCounters>,
    failures: UnboundedReceiver<HandshakeFailure>,
    terms: Arc<TlsTerms>,
}

impl Greeter {
    async fn start(source: &TlsSource, usage: TlsUse, wait: Duration) -> Greeter {
        let terms = TlsTerms::start(source, None, false, Arc::default()).unwrap();
        Greeter::by(terms, usage, wait).await
    }

    async fn by(terms: TlsTerms, usage: TlsUse, wait: Duration) -> Greeter {
        let (counters, terms) = (terms.counters.clone(), Arc::new(terms));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (failure_sender, failures) = unbounded_channel();
        let shared = terms.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (terms, failure_sender) = (shared.clone(), failure_sender.clone());
                tokio::spawn(async move {
                    match accept(stream, &terms, usage, wait).await {
                        Ok(mut stream) => {
                            let _ = stream.write_all(b"hello").await;
                            let _ = stream.shutdown().await;
                            let _ = stream.read(&mut [0; 64]).await;
                        }
                        Err(failure) => failure_sender.send(failure).unwrap(),
                    }
                });
            }
        });
        Greeter { address, counters, failures, terms }
    }

    async fn https(files: &Files) -> Greeter {
        Greeter::start(&files.source(), TlsUse::Https, WAIT).await
    }

    /// Completed, resumed and failed handshakes.
    fn counts(&self) -> [u64; 3] {
        let TlsCounters { handshakes, resumed, failed, .. } = &*self.counters;
        [handshakes, resumed, failed].map(|counter: &AtomicU64| counter.load(Ordering::Relaxed))
    }

    async fn failure(&mut self) -> HandshakeFailure {
        let failure = tokio::time::timeout(WAIT, self.failures.recv()).await;
        failure.expect("a failure is told").unwrap()
    }

    /// Sends bytes and returns the answer up to the close.
    async fn exchange(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        answer
    }
}

/// Limit against hanging.
const WAIT: Duration = Duration::from_secs(60);

fn client(
    pair: &Pair,
    versions: &[&'static SupportedProtocolVersion],
    protocols: &[&str],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(pair.der.clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// Connection as a client saw it.
#[derive(Debug)]
struct Seen {
    version: ProtocolVersion,
    protocol: Option<String>,
    kind: HandshakeKind,
    certificate: CertificateDer<'static>,
}

async fn greeted(address: SocketAddr, config: &Arc<ClientConfig>) -> std::io::Result<Seen> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(config.clone()).connect(name, stream).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    assert_eq!(text, "hello");
    let (_, session) = stream.get_ref();
    Ok(Seen {
        version: session.protocol_version().unwrap(),
        protocol: session.alpn_protocol().map(|name| String::from_utf8(name.to_vec()).unwrap()),
        kind: session.handshake_kind().unwrap(),
        certificate: session.peer_certificates().unwrap()[0].clone().into_owned(),
    })
}

#[tokio::test]
async fn both_versions_are_spoken_and_sessions_resumed() {
    let made = pair();
    let files = Files::of(&made);
    let greeter = Greeter::https(&files).await;
    for (version, spoken) in
        [(&TLS13, ProtocolVersion::TLSv1_3), (&TLS12, ProtocolVersion::TLSv1_2)]
    {
        let client = client(&made, &[version], &["h2", "http/1.1"]);
        let first = greeted(greeter.address, &client).await.unwrap();
        assert_eq!((first.version, first.certificate), (spoken, made.der.clone()));
        assert_ne!(first.kind, HandshakeKind::Resumed);
        let second = greeted(greeter.address, &client).await.unwrap();
        assert_eq!((second.version, second.kind), (spoken, HandshakeKind::Resumed));
    }
    assert_eq!(greeter.counts(), [4, 2, 0]);
}

/// A clock that is this host's, or before 1970.
#[derive(Debug, Default)]
struct SetClock {
    is_before_1970: AtomicBool,
}

impl TimeProvider for SetClock {
    fn current_time(&self) -> Option<UnixTime> {
        let is_right = !self.is_before_1970.load(Ordering::Relaxed);
        is_right.then(|| WallClock.current_time()).flatten()
    }
}

#[tokio::test]
async fn handshakes_are_refused_by_name_while_the_clock_is_before_1970() {
    let (made, clock) = (pair(), Arc::<SetClock>::default());
    let files = Files::of(&made);
    let set_back = |is_before_1970| clock.is_before_1970.store(is_before_1970, Ordering::Relaxed);
    let start = || {
        let counters = Arc::<TlsCounters>::default();
        TlsTerms::start_by(clock.clone(), &files.source(), None, false, counters)
    };
    set_back(true);
    let refused = start().err().expect("no server at such a time").to_string();
    let expected = "clock_gettime CLOCK_REALTIME: a time before 1970, at which TLS has no tickets; \
                    set this host's clock";
    assert_eq!(refused, expected);
    set_back(false);
    let mut greeter = Greeter::by(start().unwrap(), TlsUse::Https, WAIT).await;
    for version in [&TLS13, &TLS12] {
        let client = client(&made, &[version], &[]);
        greeted(greeter.address, &client).await.unwrap();
        set_back(true);
        greeted(greeter.address, &client).await.unwrap_err();
        let failure = greeter.failure().await;
        assert!(matches!(failure, HandshakeFailure::WithoutTime), "{failure}");
        set_back(false);
        greeted(greeter.address, &client).await.unwrap();
    }
    assert_eq!(greeter.counts()[2], 2, "failed handshakes");
}

/// Keys of tickets, which must not be asked.
#[derive(Debug)]
struct Unasked;

impl ProducesTickets for Unasked {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        7
    }

    fn encrypt(&self, _plain: &[u8]) -> Option<Vec<u8>> {
        panic!("the clock is before 1970")
    }

    fn decrypt(&self, _cipher: &[u8]) -> Option<Vec<u8>> {
        panic!("the clock is before 1970")
    }
}

#[test]
fn tickets_are_neither_made_nor_read_while_the_clock_is_before_1970() {
    let clock = Arc::new(SetClock { is_before_1970: true.into() });
    let tickets = TimedTickets { tickets: Arc::new(Unasked), clock };
    assert_eq!((tickets.encrypt(b"a"), tickets.decrypt(b"a")), (None, None));
    assert!(tickets.enabled() && tickets.lifetime() == 7);
    let tickets = Ticketer::new().unwrap();
    let tickets = TimedTickets { tickets, clock: Arc::<SetClock>::default() };
    let made = tickets.encrypt(b"a").unwrap();
    assert_eq!(tickets.decrypt(&made).as_deref(), Some(&b"a"[..]));
}

#[tokio::test]
async fn protocol_is_chosen_by_the_server_and_refused_without_a_common_one() {
    let made = pair();
    let files = Files::of(&made);
    let mut greeter = Greeter::https(&files).await;
    for (offered, chosen) in [
        (&["http/1.1", "h2"][..], Some("h2")),
        (&["http/1.1"], Some("http/1.1")),
        (&["http/1.0"], Some("http/1.0")),
        (&[], None),
    ] {
        let seen = greeted(greeter.address, &client(&made, &[&TLS13], offered)).await.unwrap();
        assert_eq!(seen.protocol.as_deref(), chosen);
    }
    greeted(greeter.address, &client(&made, &[&TLS13], &["imap"])).await.unwrap_err();
    let failure = greeter.failure().await;
    let expected = rustls::Error::NoApplicationProtocol;
    assert!(matches!(&failure, HandshakeFailure::Refused(e) if *e == expected), "{failure}");

    let rtsps = Greeter::start(&files.source(), TlsUse::Rtsps, WAIT).await;
    let seen = greeted(rtsps.address, &client(&made, &[&TLS13], &["h2"])).await.unwrap();
    assert_eq!(seen.protocol, None, "RTSP has no name in ALPN");
}

#[tokio::test]
async fn unknown_server_name_is_shown_the_one_certificate() {
    let made = pair();
    let files = Files::of(&made);
    let mut greeter = Greeter::https(&files).await;
    let stream = TcpStream::connect(greeter.address).await.unwrap();
    let connector = TlsConnector::from(client(&made, &[&TLS13], &[]));
    let name = ServerName::try_from("elsewhere.example").unwrap();
    let error = connector.connect(name, stream).await.unwrap_err();
    assert!(error.to_string().contains("not valid for name"), "{error}");
    let failure = greeter.failure().await;
    assert!(matches!(failure, HandshakeFailure::Refused(_)), "the client's alert: {failure}");
    assert_eq!(greeter.counts(), [0, 0, 1]);
}

#[tokio::test]
async fn new_certificate_is_shown_while_the_server_runs_and_tickets_stay_valid() {
    let (old, new) = (pair(), pair());
    let files = Files::of(&old);
    let greeter = Greeter::https(&files).await;
    let before = client(&old, &[&TLS13], &[]);
    greeted(greeter.address, &before).await.unwrap();
    std::fs::write(files.cert(), &new.cert).unwrap();
    std::fs::write(files.key(), &new.key).unwrap();
    let deadline = Instant::now() + WAIT;
    while greeter.counters.reloads.load(Ordering::Relaxed) == 0 {
        assert!(Instant::now() < deadline, "the thread loads the new pair");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let fresh = greeted(greeter.address, &client(&new, &[&TLS13], &[])).await.unwrap();
    assert_eq!(fresh.certificate, new.der);
    let resumed = greeted(greeter.address, &before).await.unwrap();
    assert_eq!(resumed.kind, HandshakeKind::Resumed);
}

#[tokio::test]
async fn certificate_of_other_files_is_shown_and_its_files_are_watched() {
    let (old, new, third) = (pair(), pair(), pair());
    let (files, others) = (Files::of(&old), Files::of(&new));
    let greeter = Greeter::https(&files).await;
    let before = client(&old, &[&TLS13], &[]);
    greeted(greeter.address, &before).await.unwrap();
    let terms = &greeter.terms;
    assert!(terms.load(&files.source()).unwrap().is_none(), "it is in use");
    let missing = TlsSource::Files { cert: "/none".into(), key: "/none".into() };
    assert!(terms.load(&missing).is_err());
    let loaded = terms.load(&others.source()).unwrap().expect("other files");
    greeted(greeter.address, &before).await.expect("nothing has changed so far");
    terms.replace(loaded);
    let fresh = greeted(greeter.address, &client(&new, &[&TLS13], &[])).await.unwrap();
    assert_eq!(fresh.certificate, new.der);
    std::fs::write(others.cert(), &third.cert).unwrap();
    std::fs::write(others.key(), &third.key).unwrap();
    let deadline = Instant::now() + WAIT;
    while greeter.counters.reloads.load(Ordering::Relaxed) < 2 {
        assert!(Instant::now() < deadline, "the thread looks at the other files");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let fresh = greeted(greeter.address, &client(&third, &[&TLS13], &[])).await.unwrap();
    assert_eq!(fresh.certificate, third.der);
}

#[tokio::test]
async fn half_open_handshake_ends_in_time() {
    let made = pair();
    let files = Files::of(&made);
    let short = Duration::from_millis(200);
    let mut greeter = Greeter::start(&files.source(), TlsUse::Https, short).await;
    for sent in [&b""[..], &[0x16, 3, 1, 1, 0, 1]] {
        let began = Instant::now();
        greeter.exchange(sent).await;
        let took = began.elapsed();
        assert!(took >= short && took < WAIT, "{took:?}");
        let failure = greeter.failure().await;
        assert!(matches!(failure, HandshakeFailure::TimedOut(_)), "{failure}");
    }
    assert_eq!(greeter.counts(), [0, 0, 2]);
}

#[tokio::test]
async fn peers_without_tls_are_told_apart() {
    let made = pair();
    let files = Files::of(&made);
    let mut greeter = Greeter::https(&files).await;
    let request = format!("GET /a.ts HTTP/1.1\r\nHost: {}\r\n\r\n", greeter.address);
    let answer = String::from_utf8(greeter.exchange(request.as_bytes()).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
    let expected = format!("\r\n\r\nthis port speaks TLS: https://{}/\n", greeter.address);
    assert!(answer.ends_with(&expected), "{answer}");
    assert!(matches!(greeter.failure().await, HandshakeFailure::PlainRequest));

    assert_eq!(greeter.exchange(b"\x00\xff garbage").await, b"");
    assert!(matches!(greeter.failure().await, HandshakeFailure::NotTls(0)));

    // A record of a handshake with garbage in it.
    greeter.exchange(b"\x16\x03\x01\x00\x08garbage!").await;
    assert!(matches!(greeter.failure().await, HandshakeFailure::Refused(_)));

    drop(TcpStream::connect(greeter.address).await.unwrap());
    assert!(matches!(greeter.failure().await, HandshakeFailure::Silent));
    assert_eq!(greeter.counts(), [0, 0, 3], "a check of the port is no failure");
}

/// ClientHello of TLS 1.1 with the suite TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA (RFC 4346 §7.4.1.2).
fn client_hello_1_1() -> Vec<u8> {
    let mut hello = vec![3, 2];
    hello.extend([7; 32]);
    hello.extend([0, 0, 2, 0xc0, 0x09, 1, 0]);
    let length = u8::try_from(hello.len()).unwrap();
    [&[22, 3, 1, 0, length + 4, 1, 0, 0, length][..], &hello].concat()
}

#[tokio::test]
async fn tls_1_1_is_refused_with_an_alert() {
    let made = pair();
    let files = Files::of(&made);
    let mut greeter = Greeter::https(&files).await;
    let answer = greeter.exchange(&client_hello_1_1()).await;
    // A fatal alert: handshake_failure (40) or protocol_version (70), RFC 8446 §6.2.
    assert!(answer[0] == 21 && matches!(answer[5..], [2, 40 | 70]), "{answer:?}");
    let failure = greeter.failure().await;
    assert!(matches!(failure, HandshakeFailure::Refused(_)), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn openssl_agrees() {
    let made = pair();
    let files = Files::of(&made);
    let greeter = Greeter::https(&files).await;
    let run = |arguments: &str| {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &greeter.address.to_string(), "-CAfile"]);
        command.arg(files.cert()).args(arguments.split(' '));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn()?;
        let output = child.wait_with_output()?;
        let text = [output.stdout, output.stderr].concat();
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&text).into_owned())
    };
    for (arguments, expected) in [
        ("-tls1_3 -alpn h2 -servername localhost", "ALPN protocol: h2"),
        ("-tls1_3 -verify_return_error", "Verify return code: 0 (ok)"),
        ("-tls1_2 -verify_return_error", "Verify return code: 0 (ok)"),
        ("-tls1_1 -cipher DEFAULT@SECLEVEL=0", "SSL alert number"),
    ] {
        match run(arguments) {
            Ok(text) => assert!(text.contains(expected), "{arguments}: {text}"),
            Err(error) => return eprintln!("skip: openssl: {error}"),
        }
    }
}

/// Renegotiation is refused: openssl asks for it when a line begins with `R`.
#[tokio::test(flavor = "multi_thread")]
async fn renegotiation_is_refused() {
    let made = pair();
    let files = Files::of(&made);
    let counters = Arc::<TlsCounters>::default();
    let terms = TlsTerms::start(&files.source(), None, false, counters).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut command = Command::new("openssl");
    command.args(["s_client", "-tls1_2", "-connect", &address]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut openssl = match command.spawn() {
        Ok(openssl) => openssl,
        Err(error) => return eprintln!("skip: openssl: {error}"),
    };
    let (stream, _) = listener.accept().await.unwrap();
    let mut stream = accept(stream, &terms, TlsUse::Https, WAIT).await.unwrap();
    let mut input = openssl.stdin.take().unwrap();
    input.write_all(b"R\n").unwrap();
    // rustls queues the alert no_renegotiation, which leaves with the next bytes; openssl gives up.
    // It may be a while before it asks.
    let deadline = Instant::now() + WAIT;
    let mut byte = [0];
    let read = loop {
        let wait = Duration::from_millis(100);
        if let Ok(read) = tokio::time::timeout(wait, stream.read(&mut byte)).await {
            break read;
        }
        assert!(Instant::now() < deadline, "openssl does not end");
        if stream.write_all(b"x").await.is_err() {
            break Ok(0);
        }
    };
    assert!(!matches!(read, Ok(1..)), "{read:?}");
    drop((input, stream));
    openssl.wait().unwrap();
    let mut text = String::new();
    openssl.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(text.contains("no renegotiation"), "{text}");
}
