// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trials of `rtsps:` at a scripted server: trust, refusals, and the way of a stream.

use rcgen::{BasicConstraints, CertificateParams, IsCa, SanType, date_time_ymd};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::login::{ClientLogin, LoginRefusal, UserCredentials};
use super::scripted_login::{Nonces, PASSWORD, ScriptedLogin, USER};
use super::scripted_server::{Script, ScriptedServer, asset};
use super::scripted_tls::Certified;
use super::tls::{CertificateFingerprint, ServerTrust, TlsFault, TrustFault, handshake};
use super::transport::{StreamTransport, TransportChoice};
use super::{Error, Play, play};

fn script(made: &Certified) -> Script {
    Script { tls: Some(made.config.clone()), ..Script::default() }
}

fn with_login(made: &Certified) -> Script {
    let login = ScriptedLogin { nonces: Nonces::Lasting, counts: true };
    Script { login: Some(login), ..script(made) }
}

fn login(trust: ServerTrust) -> ClientLogin {
    let mut login = ClientLogin::new(Some(UserCredentials::new(USER, PASSWORD).unwrap()));
    login.trust = Some(trust);
    login
}

/// Plays from a server with this certificate; returns the fault of TLS.
async fn refused(made: &Certified, trust: ServerTrust) -> TlsFault {
    let server = ScriptedServer::start(script(made)).await;
    let mut asked = Play::new(&server.url);
    asked.login = login(trust);
    let error = play(asked, |_| {}).await.unwrap_err();
    let record = server.end().await;
    // The handshake ended with the client's alert: no request is possible before its end.
    assert!(record.methods.is_empty() && record.tls_faults.len() == 1, "{record:?}");
    assert!(record.tls_faults[0].contains("received fatal alert"), "{record:?}");
    fault(error)
}

fn fault(error: Error) -> TlsFault {
    match error {
        Error::Tls { peer, fault } => {
            assert!(peer.starts_with("rtsps 127.0.0.1:"), "{peer}");
            fault
        }
        other => panic!("{other}"),
    }
}

/// Trust in another certificate.
fn stranger() -> ServerTrust {
    Certified::new().trust()
}

/// The fingerprint, as the fault of a certificate that nobody has issued tells it.
async fn fingerprint(made: &Certified) -> CertificateFingerprint {
    match refused(made, stranger()).await {
        TlsFault::Untrusted { fault, fingerprint } => {
            assert_eq!(fault, "no trusted authority has issued it (--ca FILE names others)");
            fingerprint
        }
        other => panic!("{other}"),
    }
}

/// Plays to the end; returns the methods of the requests.
async fn played(script: Script, trust: ServerTrust) -> Vec<String> {
    let packets = script.packets;
    let server = ScriptedServer::start(script).await;
    let options = |asked: &mut Play| asked.login = login(trust);
    let (verdict, record, file) = server.played(options, |_| {}).await.unwrap();
    assert!(verdict.is_whole() && file == asset(0..packets), "{verdict}");
    assert_eq!(verdict.transport, StreamTransport::Tcp);
    assert!(!record.rtcp.is_empty(), "reports are sent over TLS, too");
    record.methods
}

fn authority(params: &mut CertificateParams) {
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
}

#[tokio::test]
async fn a_stream_arrives_whole_from_a_server_that_is_trusted() {
    let made = Certified::new();
    // `openssl req -x509` marks what it makes as an authority.
    let marked = Certified::with(authority);
    let issued = marked.signed();
    for (made, trust) in [
        (&made, ServerTrust::pinned(fingerprint(&made).await)),
        (&made, made.trust()),
        (&marked, marked.trust()),
        (&issued, marked.trust()),
    ] {
        let methods = played(script(made), trust).await;
        assert_eq!(methods, ["DESCRIBE", "SETUP", "PLAY", "TEARDOWN"]);
    }
}

#[tokio::test]
async fn keep_alives_and_answers_go_over_tls() {
    let made = Certified::new();
    // Each keep-alive is due after a second.
    let script = Script { session_timeout_s: 1, packets: 1000, ..with_login(&made) };
    let methods = played(script, made.trust()).await;
    assert!(methods.iter().any(|method| method == "GET_PARAMETER"), "{methods:?}");
}

#[tokio::test]
async fn each_certificate_is_refused_by_its_fault() {
    let made = Certified::new();
    let other = ServerTrust::pinned(fingerprint(&Certified::new()).await);
    assert_eq!(refused(&made, other).await, TlsFault::NotPinned(fingerprint(&made).await));
    // A camera is no authority for another.
    let forged = made.signed();
    let found = refused(&forged, made.trust()).await.to_string();
    assert!(found.contains("not trusted: no trusted authority has issued it (--ca"), "{found}");
    let named = Certified::with(|params| {
        params.subject_alt_names = vec![SanType::DnsName("camera.example".try_into().unwrap())];
    });
    let found = refused(&named, named.trust()).await.to_string();
    assert!(found.contains("it is for another name than that of the address; if "), "{found}");
    let years = |from, to| {
        Certified::with(|params| {
            params.not_before = date_time_ymd(from, 1, 1);
            params.not_after = date_time_ymd(to, 1, 1);
        })
    };
    let expired = years(2001, 2002);
    let found = refused(&expired, expired.trust()).await;
    assert!(found.to_string().contains("not trusted: it has expired; if "), "{found}");
    let early = years(2500, 2501);
    let TlsFault::NotValidYet(pin) = refused(&early, early.trust()).await else { panic!() };
    // A camera's own clock is seldom right.
    played(script(&early), ServerTrust::pinned(pin)).await;
}

/// A server that answers the first bytes with these, and closes.
async fn answering(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await;
        let _ = stream.write_all(answer).await;
    });
    format!("rtsps://{address}/clip.ts")
}

#[tokio::test]
async fn a_server_without_tls_is_named_so() {
    let error = async |answer| {
        let mut asked = Play::new(answering(answer).await);
        asked.login.trust = Some(stranger());
        play(asked, |_| {}).await.unwrap_err()
    };
    let plain = error(b"RTSP/1.0 400 Bad Request\r\n\r\n").await;
    assert_eq!(fault(plain), TlsFault::NoTls);
    let closed = error(b"").await;
    assert!(matches!(closed, Error::Lost { .. }), "{closed}");
    assert!(closed.to_string().ends_with("closed the connection; does it speak TLS?"), "{closed}");
    let old = error(b"\x15\x03\x03\x00\x02\x02\x46").await;
    assert!(old.to_string().ends_with("; TLS 1.2 or 1.3 is needed"), "{old}");
}

#[tokio::test]
async fn a_silent_server_is_left_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let _silent = listener.accept().await.unwrap();
    let trust = stranger();
    // From now on a deadline has passed as soon as nothing else happens.
    tokio::time::pause();
    let error = handshake(stream, "127.0.0.1", Some(&trust), "peer").await.unwrap_err();
    assert!(error.to_string().contains("no answer in 10 s; does it speak TLS?"), "{error}");
}

/// The answer to DESCRIBE that redirects.
fn redirecting(to: &str, script: Script) -> Script {
    let answer = format!("RTSP/1.0 302 Found\r\nLocation: {to}\r\n\r\n");
    Script { refuse: Some(("DESCRIBE", &*answer.leak())), ..script }
}

#[tokio::test]
async fn no_redirection_leads_out_of_tls_or_into_it() {
    let made = Certified::new();
    let pin = ServerTrust::pinned(fingerprint(&made).await);
    for (script, trust, to, fault) in [
        (script(&made), made.trust(), "rtsp://127.0.0.1:1/a", "without TLS"),
        (Script::default(), made.trust(), "rtsps://127.0.0.1:1/a", "over TLS"),
        (script(&made), pin, "rtsps://127.0.0.1:1/a", "another server than the pinned one"),
    ] {
        let server = ScriptedServer::start(redirecting(to, script)).await;
        let mut asked = Play::new(&server.url);
        asked.login = login(trust);
        let error = play(asked, |_| {}).await.unwrap_err().to_string();
        let found = format!("302 to {to}, {fault}; write that address instead");
        assert!(error.ends_with(&found), "{error}");
    }
}

#[tokio::test]
async fn another_server_over_tls_gets_no_password_after_a_redirection() {
    let made = Certified::new();
    let second = ScriptedServer::start(with_login(&made)).await;
    let first = ScriptedServer::start(redirecting(&second.url, with_login(&made))).await;
    let mut asked = Play::new(&first.url);
    asked.login = login(made.trust());
    let error = play(asked, |_| {}).await.unwrap_err();
    assert!(matches!(error, Error::Login { reason: LoginRefusal::Redirected, .. }), "{error}");
    assert_eq!(first.end().await.authorized, 1);
    let record = second.end().await;
    assert_eq!((record.authorized, record.methods), (0, vec!["DESCRIBE".to_owned()]));
}

#[tokio::test]
async fn a_server_that_closes_without_a_word_has_closed() {
    let made = Certified::new();
    let script = Script { close_at: Some(100), sends_bye: false, ..script(&made) };
    let server = ScriptedServer::start(script).await;
    let options = |asked: &mut Play| asked.login = login(made.trust());
    let (verdict, _, file) = server.played(options, |_| {}).await.unwrap();
    assert!(!verdict.is_whole() && file == asset(0..100), "{verdict}");
    assert!(verdict.to_string().contains("the server closed the connection"), "{verdict}");
}

#[tokio::test]
async fn media_of_rtsps_has_no_transport_but_its_connection() {
    for transport in [StreamTransport::Udp, StreamTransport::Http, StreamTransport::Multicast] {
        let mut asked = Play::new("rtsps://127.0.0.1:1/a");
        asked.transport = TransportChoice::Only(transport);
        let error = play(asked, |_| {}).await.unwrap_err();
        assert!(error.is_caller(), "{error}");
    }
}

#[test]
fn a_file_has_one_certificate_in_der_or_several_in_pem() {
    let made = Certified::new();
    let der = CertificateDer::from_pem_slice(made.pem.as_bytes()).unwrap();
    assert!(ServerTrust::of_file(&der).is_ok());
    let two = [&der[..], &der].concat();
    let unread = TrustFault::Certificate { number: 1 };
    assert_eq!(ServerTrust::of_file(&two).unwrap_err(), unread);
    let two = [made.pem.as_str(), &Certified::new().pem].concat();
    assert!(ServerTrust::of_file(two.as_bytes()).is_ok());
}
