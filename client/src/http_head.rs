// SPDX-License-Identifier: MIT OR Apache-2.0
//! Head of an HTTP/1.1 response, for the download and for the HLS client.
//!
//! Sources: RFC 9112 §4, §6.3; RFC 9110 §14.4 (Content-Range).
//! Does not read several values of one field, or transfer codings other than chunked.

use super::one_line;

/// Fields of the head of an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) reason: String,
    pub(super) content_bytes: Option<u64>,
    pub(super) content_type: Option<String>,
    /// First byte, last byte and complete length, for a response to a Range request.
    pub(super) content_range: Option<(u64, u64, Option<u64>)>,
    pub(super) location: Option<String>,
    /// The body is chunked (RFC 9112 §7.1).
    pub(super) is_chunked: bool,
    /// The body is compressed (RFC 9110 §8.4), although no client here requests it.
    pub(super) is_encoded: bool,
    /// The server closes the connection after this response.
    pub(super) closes: bool,
}

impl Head {
    /// Status, and the message in a text body.
    pub(super) fn refusal(&self, body: &[u8]) -> String {
        let is_text = self.content_type.as_deref().is_some_and(|t| t.starts_with("text/plain"));
        let body = &body[..body.len().min(BODY_BYTES_SHOWN)];
        let body = if is_text { String::from_utf8_lossy(body) } else { "".into() };
        let status = format!("{} {}", self.status, self.reason);
        let body = one_line(&body, WORDS_CHARS_MAX);
        // Many bodies repeat the status at their start.
        let body = body.strip_prefix(&status).unwrap_or(&body).trim_start_matches([':', ' ']);
        let colon = if body.is_empty() { "" } else { ": " };
        format!("{}{colon}{body}", status.trim_end())
    }

    /// Parses the head without its trailing line ends.
    pub(super) fn parse(bytes: &[u8]) -> Result<Head, String> {
        let text = str::from_utf8(bytes).map_err(|_| "head that is not text (RFC 9112 §5)")?;
        let mut lines = text.split("\r\n");
        let status_line = lines.next().unwrap_or_default();
        let no_status = || "no HTTP/1 status line (RFC 9112 §4)".to_owned();
        let words = status_line.strip_prefix("HTTP/1.").ok_or_else(no_status)?;
        let mut words = words.splitn(3, ' ');
        let status = words.nth(1).and_then(|word| word.parse().ok()).ok_or_else(no_status)?;
        let reason = one_line(words.next().unwrap_or_default(), WORDS_CHARS_MAX);
        let closes = status_line.starts_with("HTTP/1.0");
        let mut head = Head { status, reason, closes, ..Head::default() };
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => {
                    let wrong =
                        |_| format!("Content-Length {value:.20}: no number (RFC 9112 §6.3)");
                    head.content_bytes = Some(value.parse().map_err(wrong)?);
                }
                "transfer-encoding" if value.eq_ignore_ascii_case("chunked") => {
                    head.is_chunked = true;
                }
                "transfer-encoding" => {
                    return Err(format!("Transfer-Encoding {value:.20}, which is not read here"));
                }
                "content-encoding" => head.is_encoded = !value.eq_ignore_ascii_case("identity"),
                "content-range" => head.content_range = content_range(value),
                "location" => head.location = Some(one_line(value, LOCATION_CHARS_MAX)),
                "connection" => head.closes |= value.eq_ignore_ascii_case("close"),
                "content-type" => head.content_type = Some(one_line(value, WORDS_CHARS_MAX)),
                _ => {}
            }
        }
        Ok(head)
    }
}

/// Parses `bytes FIRST-LAST/LENGTH`.
fn content_range(value: &str) -> Option<(u64, u64, Option<u64>)> {
    let (span, whole) = value.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = span.split_once('-')?;
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    let whole = if whole == "*" { None } else { Some(whole.parse().ok()?) };
    (first <= last).then_some((first, last, whole))
}

pub(super) const HEAD_BYTES_MAX: usize = 16 << 10;
const WORDS_CHARS_MAX: usize = 300;
const BODY_BYTES_SHOWN: usize = 1024;
const LOCATION_CHARS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_or_refused() {
        let head =
            Head::parse(b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 12\r\nContent-Type: video/mp2t");
        let head = head.unwrap();
        assert_eq!((head.status, head.content_bytes), (200, Some(12)));
        assert_eq!(head.content_type.as_deref(), Some("video/mp2t"));
        assert!(!head.closes && !head.is_chunked);
        let head = Head::parse(b"HTTP/1.0 404").unwrap();
        assert_eq!((head.status, head.closes), (404, true));
        let head = b"HTTP/1.1 206 x\r\nContent-Range: bytes 5-9/77\r\nConnection: Close";
        let head = Head::parse(head).unwrap();
        assert_eq!((head.content_range, head.closes), (Some((5, 9, Some(77))), true));
        let head = b"HTTP/1.1 302 x\r\nLocation: /b\r\nTransfer-Encoding: chunked";
        let head = Head::parse(head).unwrap();
        assert_eq!((head.location.as_deref(), head.is_chunked), (Some("/b"), true));
        assert_eq!(content_range("bytes 5-9/*"), Some((5, 9, None)));
        for wrong in ["", "bytes */77", "bytes 9-5/77", "items 5-9/77", "bytes -9/77"] {
            assert_eq!(content_range(wrong), None, "{wrong}");
        }
        for wrong in [
            &b"HTTP/2 200 OK"[..],
            b"RTSP/1.0 200 OK",
            b"HTTP/1.1 OK",
            b"",
            b"\xff",
            b"HTTP/1.1 200 OK\r\nContent-Length: -1",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked",
        ] {
            assert!(Head::parse(wrong).is_err(), "{}", String::from_utf8_lossy(wrong));
        }
    }
}
