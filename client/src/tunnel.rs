// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens a tunnel of RTSP over HTTP, which passes firewalls and proxies that support only HTTP.
//!
//! Two connections to the port of the URL share a cookie: the response to a GET never ends and
//! carries replies and media; the body of a POST never ends and carries the requests in base64.
//! Both requests use HTTP/1.0, so that no proxy expects chunks. The Content-Length of the POST is
//! the one that QuickTime sends; servers do not enforce it.
//!
//! A challenge to GET is answered on another connection. POST, which has no reply, carries an
//! answer at once, as do the requests inside.
//!
//! Sources: Apple, Tunnelling RTSP and RTP over HTTP (1998); RFC 1945 §8.1, §8.3.
//! Does not connect through a proxy, or open another POST.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use wire::rtsp::client::Client;

use super::connect::authority;
use super::login::{CHALLENGE, ConnectionLogin, UNAUTHORIZED};
use super::one_line;
use crate::error::Error;
use crate::random::random_u32;

/// The two connections of a tunnel.
pub(crate) struct HttpTunnel {
    pub(crate) get: TcpStream,
    pub(crate) post: TcpStream,
    /// Bytes received after the head of the response.
    pub(crate) rest: Vec<u8>,
}

/// Sends both requests on two new connections, GET first; reads the head of the response to GET.
///
/// # Errors
/// The server refuses, or its response is not HTTP.
pub(crate) async fn open<C: Future<Output = Result<TcpStream, Error>>>(
    (client, path): (&Client, &str),
    login: &mut ConnectionLogin,
    mut get: TcpStream,
    connect: impl Fn() -> C,
) -> Result<HttpTunnel, Error> {
    let host = authority(client.host(), client.port());
    let peer = format!("http {host}");
    let lost = |found: String| Error::Lost { peer: peer.clone(), found };
    let denied = |reason| Error::Login { peer: peer.clone(), request: "GET".to_owned(), reason };
    let cookie = cookie();
    // Held until the password is known to be right or wrong.
    let mut turn = None;
    loop {
        if turn.is_none() {
            turn = login.turn().await.map_err(denied)?;
        }
        let (request, sent) = login.authorize(get_request(path, &host, &cookie).as_bytes());
        let (head, rest) = response(&mut get, &request, lost).await.map_err(|error| {
            let found = match &error {
                Error::Lost { found, .. } => login.unanswered(sent.as_ref(), found),
                _ => None,
            };
            found.map_or(error, denied)
        })?;
        if status(&head) == Some(UNAUTHORIZED) {
            let challenged = login.accept_challenge(challenge(&head).as_deref(), sent.as_ref());
            challenged.map_err(denied)?;
            get = connect().await?;
            continue;
        }
        check(login.masked(&String::from_utf8_lossy(&head)).as_bytes(), &peer)?;
        login.note_granted(sent.as_ref());
        let mut post = connect().await?;
        let (request, _) = login.authorize(post_request(path, &host, &cookie).as_bytes());
        let broke = |error| lost(format!("POST: the connection broke: {error}"));
        post.write_all(&request).await.map_err(broke)?;
        return Ok(HttpTunnel { get, post, rest });
    }
}

/// Sends GET; returns the head of the response, and the bytes after it.
async fn response(
    get: &mut TcpStream,
    request: &[u8],
    lost: impl Fn(String) -> Error,
) -> Result<(Vec<u8>, Vec<u8>), Error> {
    let broke = |error: std::io::Error| lost(format!("GET: the connection broke: {error}"));
    get.write_all(request).await.map_err(broke)?;
    let mut head = Vec::new();
    let reading = async {
        loop {
            if let Some(at) = head.windows(4).position(|four| four == b"\r\n\r\n") {
                return Ok(at + 4);
            }
            if head.len() > HEAD_BYTES_MAX {
                return Err(lost(format!("GET: a head of more than {HEAD_BYTES_MAX} bytes")));
            }
            if get.read_buf(&mut head).await.map_err(broke)? == 0 {
                let found = "GET: the server closed the connection; it may have no tunnel";
                return Err(lost(found.to_owned()));
            }
        }
    };
    let late = || lost(format!("GET: no answer in {} s", ANSWER_WAIT.as_secs()));
    let end = timeout(ANSWER_WAIT, reading).await.unwrap_or_else(|_| Err(late()))?;
    let rest = head.split_off(end);
    Ok((head, rest))
}

/// Status of a response of HTTP/1.
fn status(head: &[u8]) -> Option<u16> {
    let line = head.strip_prefix(b"HTTP/1.")?.split(|byte| *byte == b'\r').next()?;
    str::from_utf8(line).ok()?.split(' ').nth(1)?.parse().ok()
}

/// The fields WWW-Authenticate of a response, joined by commas.
fn challenge(head: &[u8]) -> Option<String> {
    // Folded lines are one (RFC 1945 §4.2).
    let text = String::from_utf8_lossy(head).replace("\r\n ", " ").replace("\r\n\t", " ");
    let fields = text.split("\r\n").filter_map(|line| line.split_once(':'));
    let fields = fields.filter(|(name, _)| name.eq_ignore_ascii_case(CHALLENGE));
    let values: Vec<&str> = fields.map(|(_, value)| value.trim()).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

/// Refuses a response that does not open a tunnel.
fn check(head: &[u8], peer: &str) -> Result<(), Error> {
    let text = String::from_utf8_lossy(head);
    let line = one_line(text.lines().next().unwrap_or_default(), LINE_CHARS_SHOWN);
    let mut words = line.split(' ');
    let is_http = words.next().is_some_and(|version| version.starts_with("HTTP/1."));
    match words.next().and_then(|status| status.parse::<u16>().ok()) {
        Some(200) if is_http => Ok(()),
        Some(status) if is_http => Err(Error::Refused {
            peer: peer.to_owned(),
            status,
            found: format!("GET: {line}; it offers no tunnel of RTSP over HTTP at this address"),
        }),
        _ => Err(Error::Peer {
            peer: peer.to_owned(),
            found: format!("GET: {line}: no HTTP/1 status line (RFC 1945 §6.1)"),
        }),
    }
}

fn get_request(path: &str, host: &str, cookie: &str) -> String {
    format!(
        "GET {path} HTTP/1.0\r\nHost: {host}\r\nUser-Agent: pagewire\r\n\
         x-sessioncookie: {cookie}\r\nAccept: application/x-rtsp-tunnelled\r\n\
         Pragma: no-cache\r\nCache-Control: no-cache\r\n\r\n"
    )
}

fn post_request(path: &str, host: &str, cookie: &str) -> String {
    format!(
        "POST {path} HTTP/1.0\r\nHost: {host}\r\nUser-Agent: pagewire\r\n\
         x-sessioncookie: {cookie}\r\nContent-Type: application/x-rtsp-tunnelled\r\n\
         Pragma: no-cache\r\nCache-Control: no-cache\r\nContent-Length: 32767\r\n\
         Expires: Sun, 9 Jan 1972 00:00:00 GMT\r\n\r\n"
    )
}

/// Path and query of an `rtsp:` URL.
pub(crate) fn path_of(url: &str) -> String {
    let behind_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = behind_scheme.find('/').map_or("/", |at| &behind_scheme[at..]);
    path.split('#').next().unwrap_or(path).to_owned()
}

/// A unique name for a tunnel of the server: 128 random bits.
fn cookie() -> String {
    (0..4).map(|_| format!("{:08x}", random_u32())).collect()
}

const ANSWER_WAIT: Duration = Duration::from_secs(20);
const HEAD_BYTES_MAX: usize = 16 << 10;
const LINE_CHARS_SHOWN: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_headers_of_a_tunnel() {
        let get = get_request("/a.ts?x", "h:554", "c0");
        assert!(get.starts_with("GET /a.ts?x HTTP/1.0\r\n"), "{get}");
        assert!(get.contains("\r\nAccept: application/x-rtsp-tunnelled\r\n"), "{get}");
        let post = post_request("/a.ts?x", "h:554", "c0");
        assert!(post.contains("\r\nContent-Length: 32767\r\n"), "{post}");
        for request in [get, post] {
            assert!(request.contains("\r\nx-sessioncookie: c0\r\n"), "{request}");
            assert!(request.ends_with("\r\n\r\n"), "{request}");
        }
        assert_ne!(cookie(), cookie());
    }

    #[test]
    fn the_path_of_a_url_is_kept_with_its_query() {
        assert_eq!(path_of("rtsp://h:8554/a/b.ts?c#d"), "/a/b.ts?c");
        assert_eq!(path_of("rtsp://[::1]"), "/");
    }

    #[test]
    fn answers_that_open_no_tunnel_are_refused() {
        check(b"HTTP/1.0 200 OK\r\n\r\n", "h").unwrap();
        check(b"HTTP/1.1 200\r\n\r\n", "h").unwrap();
        let text = check(b"HTTP/1.1 404 Not Found\r\n\r\n", "h").unwrap_err().to_string();
        assert!(text.starts_with("h: GET: HTTP/1.1 404 Not Found; it offers no tunnel"), "{text}");
        for wrong in [&b"RTSP/1.0 200 OK\r\n\r\n"[..], b"HTTP/1.0 OK\r\n\r\n", b"\r\n\r\n"] {
            assert!(matches!(check(wrong, "h"), Err(Error::Peer { .. })));
        }
    }
}
