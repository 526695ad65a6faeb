// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trials of a login at a scripted server that asks for a password.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::login::{ClientLogin, LoginRefusal, UserCredentials};
use super::rtsp_connection::RtspConnection;
use super::scripted_login::{Nonces, PASSWORD, ScriptedLogin, USER};
use super::scripted_server::{Script, ScriptedServer, ServerRecord, asset};
use super::transport::{StreamTransport, TransportChoice};
use super::{Error, Play, play};

fn login(password: &str) -> ClientLogin {
    ClientLogin::new(Some(UserCredentials::new(USER, password).unwrap()))
}

fn script(nonces: Nonces, counts: bool) -> Script {
    Script { login: Some(ScriptedLogin { nonces, counts }), ..Script::default() }
}

/// Plays to the end by this transport; `None` where the kernel dropped datagrams.
async fn played(script: Script, transport: StreamTransport) -> Option<ServerRecord> {
    let server = ScriptedServer::start(script).await;
    let options = |asked: &mut Play| {
        asked.login = login(PASSWORD);
        asked.transport = TransportChoice::Only(transport);
    };
    let (verdict, record, file) = server.played(options, |_| {}).await?;
    assert!(verdict.is_whole() && file == asset(0..200), "{verdict}");
    assert_eq!(record.wrong_passwords, 0);
    Some(record)
}

/// Plays from a server that refuses; returns the reason.
async fn refused(server: ScriptedServer, login: ClientLogin) -> (LoginRefusal, ServerRecord) {
    let mut asked = Play::new(&server.url);
    asked.login = login;
    let error = play(asked, |_| {}).await.unwrap_err();
    assert!(!error.to_string().contains(PASSWORD) && !error.is_caller(), "{error}");
    match error {
        Error::Login { reason, .. } => (reason, server.end().await),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_challenge_is_answered_once_for_all_requests_of_a_connection() {
    for counts in [true, false] {
        for transport in [StreamTransport::Udp, StreamTransport::Tcp] {
            let script = script(Nonces::Lasting, counts);
            // Where the kernel dropped datagrams, `played` has printed that it skips.
            let Some(record) = played(script, transport).await else { continue };
            assert_eq!(record.methods, ["DESCRIBE", "DESCRIBE", "SETUP", "PLAY", "TEARDOWN"]);
            assert_eq!(record.authorized, 4);
        }
    }
}

#[tokio::test]
async fn a_tunnel_and_the_requests_in_it_are_authorized() {
    let record = played(script(Nonces::Lasting, true), StreamTransport::Http).await;
    let record = record.expect("frames of a connection are not dropped");
    assert_eq!(record.methods, ["DESCRIBE", "SETUP", "PLAY", "TEARDOWN"]);
    // GET, POST, and the requests.
    assert_eq!((record.authorized, record.tunnels.len()), (6, 2));
}

#[tokio::test]
async fn nonces_of_one_request_and_those_that_expire_are_renewed() {
    let once = played(script(Nonces::OfOneRequest, true), StreamTransport::Tcp).await.unwrap();
    let twice = ["DESCRIBE", "SETUP", "PLAY", "TEARDOWN"].map(|method| [method, method]);
    assert_eq!(once.methods, twice.concat());
    let expired = played(script(Nonces::Expiring(2), true), StreamTransport::Tcp).await.unwrap();
    let methods = ["DESCRIBE", "DESCRIBE", "SETUP", "PLAY", "PLAY", "TEARDOWN"];
    assert_eq!(expired.methods, methods);
}

#[tokio::test]
async fn a_wrong_password_is_sent_once() {
    let server = ScriptedServer::start(script(Nonces::Lasting, true)).await;
    let (reason, record) = refused(server, login("wrong")).await;
    assert_eq!(reason, LoginRefusal::WrongPassword);
    assert_eq!(record.methods, ["DESCRIBE", "DESCRIBE"]);
    assert_eq!((record.authorized, record.wrong_passwords), (1, 1));
}

#[tokio::test]
async fn endless_stale_nonces_end_the_session() {
    let server = ScriptedServer::start(script(Nonces::Stale, true)).await;
    let (reason, record) = refused(server, login(PASSWORD)).await;
    assert_eq!((reason, record.authorized), (LoginRefusal::Stale, 3));
}

#[tokio::test]
async fn without_credentials_nothing_is_answered() {
    let server = ScriptedServer::start(script(Nonces::Lasting, true)).await;
    let (reason, record) = refused(server, ClientLogin::default()).await;
    assert_eq!((reason, record.authorized), (LoginRefusal::NoCredentials, 0));
}

#[tokio::test]
async fn another_server_gets_no_password_after_a_redirection() {
    let second = ScriptedServer::start(script(Nonces::Lasting, true)).await;
    let answer = format!("RTSP/1.0 302 Found\r\nLocation: {}\r\n\r\n", second.url);
    let answer: &'static str = answer.leak();
    let first = Script { refuse: Some(("DESCRIBE", answer)), ..script(Nonces::Lasting, true) };
    let first = ScriptedServer::start(first).await;
    let (reason, record) = refused(first, login(PASSWORD)).await;
    assert_eq!((reason, record.authorized), (LoginRefusal::Redirected, 1));
    let record = second.end().await;
    assert_eq!(record.methods, ["DESCRIBE"]);
    assert_eq!(record.authorized, 0);
}

#[tokio::test]
async fn a_stale_keep_alive_is_answered_by_the_next_one() {
    answer_keep_alive(Nonces::Expiring(1)).await;
}

/// The nonce of a keep-alive and of the request behind it is refused twice, for one other nonce.
#[tokio::test]
async fn a_nonce_that_changes_under_two_requests_is_renewed_once() {
    answer_keep_alive(Nonces::ChangedAfter(1)).await;
}

async fn answer_keep_alive(nonces: Nonces) {
    let server = ScriptedServer::start(script(nonces, true)).await;
    let transport = StreamTransport::Tcp;
    let opened = RtspConnection::open_described(&server.url, &login(PASSWORD), transport).await;
    let (mut connection, _) = opened.unwrap();
    // The answer to the first is read before that to the next request, whose nonce is renewed, too.
    connection.keep_alive().unwrap();
    connection.ask("PAUSE", |client| client.pause()).await.unwrap();
    connection.keep_alive().unwrap();
    drop(connection);
    let record = server.end().await;
    let methods = ["DESCRIBE", "DESCRIBE", "GET_PARAMETER", "PAUSE", "PAUSE", "GET_PARAMETER"];
    assert_eq!(record.methods, methods);
    assert_eq!(record.wrong_passwords, 0);
}

/// Reads a request; returns it.
async fn request_of(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(request).unwrap()
}

/// A server that challenges, with further fields, and closes the first connection at once; the
/// second has 404 for a request with an answer. Or it closes both behind their answers. Returns the
/// reason of the refusal.
async fn closing(fields: &'static str, closes_at_once: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut asked = Play::new(format!("rtsp://{}/a.ts", listener.local_addr().unwrap()));
    asked.login = login(PASSWORD);
    let serving = async {
        let (mut first, _) = listener.accept().await.unwrap();
        request_of(&mut first).await;
        let challenge = "WWW-Authenticate: Digest realm=\"r\", nonce=\"n\"\r\n";
        let refused = format!("RTSP/1.0 401 Unauthorized\r\nCSeq: 1\r\n{challenge}{fields}\r\n");
        first.write_all(refused.as_bytes()).await.unwrap();
        if !closes_at_once {
            request_of(&mut first).await;
        }
        drop(first);
        let (mut second, _) = listener.accept().await.unwrap();
        let request = request_of(&mut second).await;
        assert!(request.contains("Authorization: Digest "), "{request}");
        if closes_at_once {
            let cseq = request.lines().find(|line| line.starts_with("CSeq: ")).unwrap();
            let refused = format!("RTSP/1.0 404 Not Found\r\n{cseq}\r\n\r\n");
            second.write_all(refused.as_bytes()).await.unwrap();
        }
        drop(second);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        played = play(asked, |_| {}) => played.unwrap_err().to_string(),
        () = serving => unreachable!("it serves for ever"),
    }
}

#[tokio::test]
async fn a_connection_that_is_closed_behind_its_challenge_is_opened_again() {
    for fields in ["Connection: x, Close\r\n", ""] {
        let found = closing(fields, true).await;
        assert!(found.contains("DESCRIBE: 404 Not Found"), "{found}");
    }
}

/// Some cameras refuse a password so: it must not be sent again soon.
#[tokio::test]
async fn a_connection_that_is_closed_behind_an_answer_is_a_refused_login() {
    let found = closing("", false).await;
    assert!(found.contains("no reply to the password: the server closed"), "{found}");
}
