// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTSP tunnelled through HTTP: parses the two requests that open a tunnel, and the client's half
//! of it.
//!
//! A client behind a proxy or firewall that passes HTTP only opens two connections to one port: a
//! GET, whose answer never ends and carries everything that the server sends, and a POST, whose
//! body never ends and carries the client's requests in base64. The header `x-sessioncookie` pairs
//! them. Clients encode each request separately, so padding occurs in the middle of the body, and
//! fold lines arbitrarily; the Content-Length of the POST never matches the body.
//!
//! Memory is bounded: a head of [`HEAD_BYTES_MAX`], then less than one group of base64.
//!
//! Sources: Apple, "Tunnelling RTSP and RTP over HTTP" (QuickTime Streaming Server, 1999), which
//! live555, ffmpeg and GStreamer follow; RFC 4648 §4; RFC 9112. Heads are parsed by `httparse`,
//! base64 by `base64`.
//!
//! Does not resume a tunnel on new connections, except for a POST that follows one that has ended.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::error::{Fault, Malformed};

/// Largest head of a GET or POST, in bytes.
pub const HEAD_BYTES_MAX: usize = 8 << 10;
/// Longest value of `x-sessioncookie`, in bytes; clients send 22 to 32.
pub const COOKIE_BYTES_MAX: usize = 128;
/// Media type of both halves.
pub const CONTENT_TYPE: &str = "application/x-rtsp-tunnelled";

/// Half of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TunnelHalf {
    /// GET: the server sends.
    Download,
    /// POST: the client sends, in base64.
    Upload,
}

/// Request that opens one half of a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelRequest {
    /// The half.
    pub half: TunnelHalf,
    /// The value that both halves share: printable ASCII, 1 to [`COOKIE_BYTES_MAX`] bytes.
    pub cookie: String,
    /// Bytes of the head; the rest of the connection belongs to the tunnel.
    pub head_bytes: usize,
}

/// True if the first bytes of a connection can begin an HTTP request for a tunnel; `None` if there
/// are too few of them to decide. RTSP has methods of its own: none begins with GET or POST and a
/// space.
pub fn begins_tunnel(bytes: &[u8]) -> Option<bool> {
    let methods: [&[u8]; 2] = [b"GET ", b"POST "];
    if methods.iter().any(|method| bytes.starts_with(method)) {
        return Some(true);
    }
    let may_become = methods.iter().any(|method| method.starts_with(bytes));
    if may_become { None } else { Some(false) }
}

/// Parses the head of a GET or POST; `None` when more bytes are needed.
///
/// # Errors
/// A head that is not HTTP, is too long, or has no usable `x-sessioncookie`.
pub fn parse_tunnel_request(bytes: &[u8]) -> Result<Option<TunnelRequest>, Malformed> {
    let fault = |fault| Malformed::new(0, fault);
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let head = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    let head_bytes = match request.parse(head) {
        Ok(httparse::Status::Complete(head_bytes)) => head_bytes,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(httparse::Status::Partial) => {
            return Err(fault(Fault::HeadTooLong { limit: HEAD_BYTES_MAX }));
        }
        Err(httparse::Error::TooManyHeaders) => {
            return Err(fault(Fault::TooManyHeaders { limit: HEADERS_MAX }));
        }
        Err(_) => return Err(fault(Fault::StartLine)),
    };
    let half = match request.method {
        Some("GET") => TunnelHalf::Download,
        Some("POST") => TunnelHalf::Upload,
        _ => return Err(fault(Fault::StartLine)),
    };
    let is_cookie = |value: &[u8]| {
        (1..=COOKIE_BYTES_MAX).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic)
    };
    let cookie = request.headers.iter().find(|h| h.name.eq_ignore_ascii_case("x-sessioncookie"));
    let cookie = cookie.map(|header| header.value.trim_ascii()).filter(|value| is_cookie(value));
    let cookie = cookie.ok_or_else(|| fault(Fault::TunnelCookie))?;
    let cookie = String::from_utf8_lossy(cookie).into_owned();
    Ok(Some(TunnelRequest { half, cookie, head_bytes }))
}

/// The answer to the GET: all bytes after it belong to the tunnel.
pub fn tunnel_opened() -> Vec<u8> {
    format!(
        "HTTP/1.0 200 OK\r\nServer: pagewire\r\nConnection: close\r\nCache-Control: no-store\r\n\
         Pragma: no-cache\r\nContent-Type: {CONTENT_TYPE}\r\n\r\n"
    )
    .into_bytes()
}

/// The answer to a GET or POST that opens no tunnel: `status` with its phrase (`404 Not Found`),
/// and the reason as text.
pub fn tunnel_refused(status: &str, reason: &str) -> Vec<u8> {
    let length = reason.len() + 1;
    format!(
        "HTTP/1.0 {status}\r\nServer: pagewire\r\nConnection: close\r\n\
         Content-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\r\n{reason}\n"
    )
    .into_bytes()
}

/// Decodes the body of a POST.
#[derive(Debug, Default)]
pub struct TunnelDecoder {
    /// Characters of an incomplete group.
    group: Vec<u8>,
    decoded_bytes: u64,
}

impl TunnelDecoder {
    /// A decoder of a new body.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes `bytes` and appends the result to `target`. Spaces and line ends are skipped.
    ///
    /// # Errors
    /// A byte that is not base64; the offset counts decoded bytes.
    pub fn decode(&mut self, bytes: &[u8], target: &mut Vec<u8>) -> Result<(), Malformed> {
        for &byte in bytes.iter().filter(|byte| !byte.is_ascii_whitespace()) {
            self.group.push(byte);
            // Padding ends a text; another may follow.
            let is_whole = self.group.len().is_multiple_of(GROUP_CHARS);
            if is_whole && (byte == b'=' || self.group.len() >= GROUPS_AT_ONCE * GROUP_CHARS) {
                self.take_groups(target)?;
            }
        }
        self.take_groups(target)
    }

    fn take_groups(&mut self, target: &mut Vec<u8>) -> Result<(), Malformed> {
        let whole = self.group.len() - self.group.len() % GROUP_CHARS;
        let before = target.len();
        let decoded = STANDARD.decode_vec(&self.group[..whole], target);
        decoded.map_err(|_| Malformed::new(self.decoded_bytes, Fault::Base64))?;
        self.decoded_bytes += (target.len() - before) as u64;
        self.group.drain(..whole);
        Ok(())
    }
}

const HEADERS_MAX: usize = 32;
/// Characters that are three bytes.
const GROUP_CHARS: usize = 4;
/// Groups that are decoded by one call.
const GROUPS_AT_ONCE: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &str = "GET /its/path.ts HTTP/1.0\r\nUser-Agent: Lavf\r\n\
        x-sessioncookie: 3f2a9b\r\nAccept: application/x-rtsp-tunnelled\r\n\
        Pragma: no-cache\r\nCache-Control: no-cache\r\n\r\n";

    #[test]
    fn rtsp_and_tunnels_are_told_apart_by_their_first_bytes() {
        assert_eq!(begins_tunnel(b"GET /x HTTP/1.0"), Some(true));
        assert_eq!(begins_tunnel(b"POST /x"), Some(true));
        for undecided in ["", "G", "GET", "P", "POS"] {
            assert_eq!(begins_tunnel(undecided.as_bytes()), None, "{undecided}");
        }
        for rtsp in ["GET_PARAMETER * RTSP/1.0", "PLAY", "PAUSE", "OPTIONS", "$\0\0\u{1}", "\r\n"] {
            assert_eq!(begins_tunnel(rtsp.as_bytes()), Some(false), "{rtsp}");
        }
    }

    #[test]
    fn both_halves_are_read_however_they_arrive() {
        let post = GET.replace("GET", "POST") + "REVTQ1JJQkU=";
        for (text, half) in [(GET, TunnelHalf::Download), (&post, TunnelHalf::Upload)] {
            let head_bytes = text.find("\r\n\r\n").unwrap() + 4;
            for cut in 0..head_bytes {
                assert_eq!(parse_tunnel_request(&text.as_bytes()[..cut]), Ok(None), "{cut}");
            }
            let cookie = "3f2a9b".to_owned();
            let expected = TunnelRequest { half, cookie, head_bytes };
            assert_eq!(parse_tunnel_request(text.as_bytes()), Ok(Some(expected)));
        }
    }

    #[test]
    fn heads_that_open_no_tunnel_are_refused() {
        let refused = |text: &str| parse_tunnel_request(text.as_bytes()).unwrap_err().fault;
        assert_eq!(refused(&GET.replace("x-session", "x-other")), Fault::TunnelCookie);
        assert_eq!(refused(&GET.replace("3f2a9b", "")), Fault::TunnelCookie);
        assert_eq!(refused(&GET.replace("3f2a9b", "a b")), Fault::TunnelCookie);
        let long = "c".repeat(COOKIE_BYTES_MAX + 1);
        assert_eq!(refused(&GET.replace("3f2a9b", &long)), Fault::TunnelCookie);
        assert_eq!(refused(&GET.replace("GET", "PUT")), Fault::StartLine);
        assert_eq!(refused("GET \0 HTTP/1.0\r\n\r\n"), Fault::StartLine);
        let headers = "X: y\r\n".repeat(HEADERS_MAX);
        let flood = GET.replace("Pragma", &format!("{headers}Pragma"));
        assert_eq!(refused(&flood), Fault::TooManyHeaders { limit: HEADERS_MAX });
        let endless = format!("GET /{}", "x".repeat(HEAD_BYTES_MAX));
        assert_eq!(refused(&endless), Fault::HeadTooLong { limit: HEAD_BYTES_MAX });
    }

    #[test]
    fn requests_that_are_encoded_one_by_one_come_out_in_order() {
        let requests = ["OPTIONS * RTSP/1.0\r\n\r\n", "A", "BC", "", "PLAY"];
        let body: String = requests.iter().map(|r| STANDARD.encode(r) + "\r\n").collect();
        for step in 1..=body.len() {
            let (mut decoder, mut found) = (TunnelDecoder::new(), Vec::new());
            for part in body.as_bytes().chunks(step) {
                decoder.decode(part, &mut found).unwrap();
            }
            assert_eq!(String::from_utf8(found).unwrap(), requests.concat(), "in parts of {step}");
            assert!(decoder.group.is_empty());
        }
    }

    #[test]
    fn bytes_that_are_no_base64_are_refused_and_memory_stays_small() {
        for wrong in ["REV\x01", "====", "A=BC", "DESCRIBE rtsp://h/ RTSP/1.0\r\n\r\n"] {
            let fault = TunnelDecoder::new().decode(wrong.as_bytes(), &mut Vec::new());
            assert_eq!(fault.unwrap_err().fault, Fault::Base64, "{wrong}");
        }
        let (mut decoder, mut found) = (TunnelDecoder::new(), Vec::new());
        decoder.decode("QUJD".repeat(100_000).as_bytes(), &mut found).unwrap();
        assert_eq!(found.len(), 300_000);
        assert!(decoder.group.capacity() <= 2 * GROUPS_AT_ONCE * GROUP_CHARS);
    }
}
