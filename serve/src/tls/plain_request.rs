// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers a client that sends HTTP or RTSP without TLS to a port of TLS.
//!
//! The answer is 400 and the address with the right scheme, for a person who typed `http://`. It is
//! not a redirect: the request, with its cookies and tokens, was sent in the clear already, and a
//! silent redirect would hide that.
//!
//! Sources: RFC 9112 §3 (HTTP/1.1), RFC 2326 §4.3 and §12.17 (RTSP, CSeq).
//! Does not parse the request beyond its first line and two headers.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::TlsUse;

/// Answers a request and closes the connection, within [`ANSWER_WAIT`].
pub(super) async fn answer(mut stream: TcpStream, usage: TlsUse) {
    let exchange = async {
        let mut request = vec![0; REQUEST_BYTES_MAX];
        let mut length = 0;
        while length < request.len() && !request[..length].windows(4).any(|w| w == b"\r\n\r\n") {
            match stream.read(&mut request[length..]).await {
                Ok(read @ 1..) => length += read,
                Ok(0) | Err(_) => break,
            }
        }
        let text = refusal(&request[..length], usage, stream.local_addr().ok());
        if stream.write_all(&text).await.is_ok() && stream.shutdown().await.is_ok() {
            // Unread bytes at close would cause a reset that overtakes the answer.
            let mut drained = 0;
            while let Ok(read @ 1..) = stream.read(&mut request).await
                && drained < DRAINED_BYTES_MAX
            {
                drained += read;
            }
        }
    };
    // A peer that does not accept the answer loses nothing.
    let _ = timeout(ANSWER_WAIT, exchange).await;
}

/// Returns the answer to a request in the clear.
fn refusal(request: &[u8], usage: TlsUse, local: Option<SocketAddr>) -> Vec<u8> {
    let text = String::from_utf8_lossy(request);
    let first = text.lines().next().unwrap_or_default();
    let is_rtsp = first.contains("rtsp://") || first.ends_with(" RTSP/1.0");
    let named = match first.split_once("rtsp://") {
        Some((_, rest)) => rest.split(['/', ' ', '?']).next(),
        None => header(&text, "host"),
    };
    let authority = named.filter(|name| is_authority(name)).map(str::to_owned);
    let authority = authority.or_else(|| local.map(|local| local.to_string()));
    let address = authority.map_or_else(String::new, |a| format!(": {}://{a}/", usage.scheme()));
    let body = format!("this port speaks TLS{address}\n");
    let cseq = header(&text, "cseq").filter(|n| !n.is_empty() && n.len() < 10 && is_digits(n));
    let head = match (is_rtsp, cseq) {
        (true, Some(cseq)) => format!("RTSP/1.0 400 Bad Request\r\nCSeq: {cseq}\r\n"),
        (true, None) => "RTSP/1.0 400 Bad Request\r\n".to_owned(),
        (false, _) => "HTTP/1.1 400 Bad Request\r\n".to_owned(),
    };
    let body_sent = if first.starts_with("HEAD ") { "" } else { &body };
    format!(
        "{head}Content-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body_sent}",
        body.len()
    )
    .into_bytes()
}

/// Returns the value of a header, without the space around it.
fn header<'a>(request: &'a str, name: &str) -> Option<&'a str> {
    request.lines().skip(1).find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Returns true for a host and port that can be repeated without escapes.
fn is_authority(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    (1..=255).contains(&text.len()) && text.bytes().all(is_plain)
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Longest time for request, answer and close.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// Most bytes read of a request before it is answered.
const REQUEST_BYTES_MAX: usize = 4096;
/// Most bytes read from a peer that keeps sending.
const DRAINED_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(request: &str, usage: TlsUse) -> String {
        let local = "192.0.2.1:8443".parse().ok();
        String::from_utf8(refusal(request.as_bytes(), usage, local)).unwrap()
    }

    #[test]
    fn answer_names_the_address_that_the_client_meant() {
        let http = |request| answered(request, TlsUse::Https);
        let text = http("GET / HTTP/1.1\r\nHost: films.example:8443\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{text}");
        assert!(text.ends_with("\r\n\r\nthis port speaks TLS: https://films.example:8443/\n"));
        for without in ["GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHost: <b>\r\n\r\n", "GE"] {
            let text = http(without);
            assert!(text.ends_with(": https://192.0.2.1:8443/\n"), "{text}");
        }
        let head = http("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(head.ends_with("\r\n\r\n") && head.contains("Content-Length: 33\r\n"), "{head}");
        let request = "OPTIONS rtsp://films.example:322/a.ts RTSP/1.0\r\nCSeq: 7\r\n\r\n";
        let text = answered(request, TlsUse::Rtsps);
        assert!(text.starts_with("RTSP/1.0 400 Bad Request\r\nCSeq: 7\r\n"), "{text}");
        assert!(text.ends_with("this port speaks TLS: rtsps://films.example:322/\n"), "{text}");
    }
}
