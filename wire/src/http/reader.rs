// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns the bytes of a connection into requests.
//!
//! The reader searches for the head's end line by line, from the end of the last search, so each
//! byte is examined once however slowly it arrives, and only a complete head is parsed. The
//! requests do not depend on the division of the bytes into pieces. Memory is bounded by the head
//! limit plus the bytes fed since the last call to [`RequestReader::next`]; content is counted and
//! dropped.
//!
//! Line ends are CRLF. RFC 9112 §2.2 allows a bare LF; this reader refuses it, so that no proxy in
//! front of it can have parsed the same bytes differently (§11.2).
//!
//! A client that sent `Expect: 100-continue` gets the final answer at once, which RFC 9110 §10.1.1
//! allows in place of 100 and which saves it from sending content that is not needed here; the
//! connection then ends, since the content may follow or not.
//!
//! Sources: RFC 9112 §2.2 (empty lines, line ends), §3 (414), §5.2 (folding), §9.3, §9.6 (nothing
//! is read after a request that ends the connection), RFC 6585 §5 (431).
//!
//! Has no timer: the caller refuses a slow peer (408), guided by [`RequestReader::is_empty`].

use super::body::{ContentReader, TOO_LARGE};
use super::malformed::Malformed;
use super::request::{self, ContentFraming, Request, RequestHead};

/// Limits on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The request line with its CRLF; longer is answered 414.
    pub request_line_bytes_max: usize,
    /// The whole head with its empty line; longer is answered 431.
    pub head_bytes_max: usize,
    /// Header lines; more are answered 431.
    pub headers_max: usize,
    /// Content of a request, read and dropped, with the framing if it is chunked; more is
    /// answered 413.
    pub body_bytes_max: u64,
}

impl Default for Limits {
    /// A request line of 8 KiB (RFC 9112 §3 asks for 8000 bytes), a head of 16 KiB, 64 fields, and
    /// 64 KiB of content, which costs less than a new connection.
    fn default() -> Limits {
        Limits {
            request_line_bytes_max: 8 << 10,
            head_bytes_max: 16 << 10,
            headers_max: 64,
            body_bytes_max: 64 << 10,
        }
    }
}

/// Reads the requests of one connection; see the [module](super) for what it refuses.
#[derive(Debug)]
pub struct RequestReader {
    limits: Limits,
    buffer: Vec<u8>,
    /// The first byte in `buffer` that is not consumed.
    start: usize,
    /// Offset of that byte in the connection.
    offset: u64,
    /// Searched bytes of the head, from `start`.
    scanned: usize,
    /// Start of the head's current line, from `start`.
    line_start: usize,
    /// Complete lines of the head, the request line among them.
    lines: usize,
    /// Empty lines before the request line.
    empty_lines: usize,
    keeps_details: bool,
    keeps_content: bool,
    state: ReadState,
}

#[derive(Debug)]
enum ReadState {
    Head,
    Body {
        request: Box<Request>,
        body: ContentReader,
    },
    /// After the last request.
    Closed,
    Failed(Malformed),
}

impl RequestReader {
    /// A reader for a new connection.
    pub fn new(limits: Limits) -> RequestReader {
        RequestReader {
            limits,
            buffer: Vec::new(),
            start: 0,
            offset: 0,
            scanned: 0,
            line_start: 0,
            lines: 0,
            empty_lines: 0,
            keeps_details: false,
            keeps_content: false,
            state: ReadState::Head,
        }
    }

    /// Creates a reader that also stores [`Request::details`].
    pub fn with_details(self) -> RequestReader {
        RequestReader { keeps_details: true, ..self }
    }

    /// Creates a reader that also stores content in [`Request::details`].
    pub fn with_content(self) -> RequestReader {
        RequestReader { keeps_details: true, keeps_content: true, ..self }
    }

    /// Accepts received bytes. Bytes after the last request or a fault are dropped.
    ///
    /// Call [`RequestReader::next`] until it returns none before feeding again: fed bytes stay in
    /// memory until then. While an answer is under way simply do not read from the socket.
    pub fn feed(&mut self, bytes: &[u8]) {
        if matches!(self.state, ReadState::Closed | ReadState::Failed(_)) {
            return;
        }
        // Moving the rest to the front copies at most as many bytes as were consumed.
        if self.start > 0 && self.start >= self.buffer.len() - self.start {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next request whose content has arrived (or is not waited for), if there is one.
    /// After a request without [`Request::keep_alive`], returns `None`; after a fault, each call
    /// returns that fault.
    #[expect(clippy::should_implement_trait, reason = "no iterator: None may be followed by Some")]
    pub fn next(&mut self) -> Result<Option<Request>, Malformed> {
        if let ReadState::Failed(fault) = &self.state {
            return Err(fault.clone());
        }
        let outcome = self.step();
        if let Err(fault) = &outcome {
            self.state = ReadState::Failed(fault.clone());
        }
        if matches!(self.state, ReadState::Closed | ReadState::Failed(_)) {
            self.buffer = Vec::new();
            self.start = 0;
        } else if self.is_consumed() {
            self.start = 0;
            self.buffer.clear();
            // An idle connection keeps a buffer for a usual head and no more.
            self.buffer.shrink_to(IDLE_BYTES_MAX);
        }
        outcome
    }

    /// True if no request has begun: the connection may be closed without an answer.
    pub fn is_empty(&self) -> bool {
        match self.state {
            ReadState::Head => self.is_consumed(),
            ReadState::Body { .. } => false,
            ReadState::Closed | ReadState::Failed(_) => true,
        }
    }

    /// Consumed bytes of the connection.
    pub fn byte_offset(&self) -> u64 {
        self.offset
    }

    fn is_consumed(&self) -> bool {
        self.start == self.buffer.len()
    }

    fn step(&mut self) -> Result<Option<Request>, Malformed> {
        if matches!(self.state, ReadState::Head) {
            let Some(head) = self.head()? else {
                return Ok(None);
            };
            let RequestHead { request, framing, awaits_answer } = head;
            let body = match framing {
                _ if awaits_answer => return Ok(Some(self.deliver(request))),
                ContentFraming::Empty => return Ok(Some(self.deliver(request))),
                ContentFraming::Length(bytes) => ContentReader::Length(bytes),
                ContentFraming::Chunked => ContentReader::chunked(self.limits.body_bytes_max),
            };
            self.state = ReadState::Body { request: Box::new(request), body };
        }
        let ReadState::Body { body, request } = &mut self.state else {
            return Ok(None);
        };
        let drained =
            body.drain(&self.buffer[self.start..]).map_err(|fault| fault.shifted(self.offset))?;
        if self.keeps_content
            && matches!(body, ContentReader::Length(_))
            && let Some(details) = &mut request.details
        {
            let read = self.start..self.start + drained.bytes;
            details.content.extend_from_slice(&self.buffer[read]);
        }
        self.consume(drained.bytes);
        if !drained.ended {
            return Ok(None);
        }
        match std::mem::replace(&mut self.state, ReadState::Head) {
            ReadState::Body { request, .. } => Ok(Some(self.deliver(*request))),
            _ => Ok(None),
        }
    }

    fn deliver(&mut self, request: Request) -> Request {
        self.state = if request.keep_alive { ReadState::Head } else { ReadState::Closed };
        request
    }

    /// Finds, parses and consumes a head.
    fn head(&mut self) -> Result<Option<RequestHead>, Malformed> {
        self.skip_empty_lines()?;
        self.check_method()?;
        let Some(head_bytes) = self.find_head_end()? else {
            return Ok(None);
        };
        let head = &self.buffer[self.start..self.start + head_bytes];
        let parsed = request::parse(head, self.lines - 1, self.keeps_details)
            .and_then(|head| match head.framing {
                ContentFraming::Length(bytes) if bytes > self.limits.body_bytes_max => {
                    Err(Malformed::new(413, 0, "content over the limit", TOO_LARGE))
                }
                _ => Ok(head),
            })
            .map_err(|fault| fault.shifted(self.offset))?;
        self.consume(head_bytes);
        self.scanned = 0;
        self.line_start = 0;
        self.lines = 0;
        self.empty_lines = 0;
        Ok(Some(parsed))
    }

    /// Skips a few empty lines before a request: old clients send one after content (RFC 9112
    /// §2.2).
    fn skip_empty_lines(&mut self) -> Result<(), Malformed> {
        while self.lines == 0 && self.buffer[self.start..].starts_with(b"\r\n") {
            self.empty_lines += 1;
            if self.empty_lines > EMPTY_LINES_MAX {
                return Err(self.refusal(
                    400,
                    0,
                    "empty lines instead of a request",
                    "RFC 9112 §2.2",
                ));
            }
            self.consume(2);
            self.scanned = 0;
        }
        Ok(())
    }

    /// Refuses bytes that are not HTTP, such as a TLS handshake, at the first byte, and an endless
    /// method before it fills the buffer.
    fn check_method(&self) -> Result<(), Malformed> {
        let bytes = &self.buffer[self.start..];
        match bytes {
            // The rest of an empty line may follow.
            [] | [b'\r'] => return Ok(()),
            [0x16, ..] => {
                let what = "TLS handshake on a plain HTTP port";
                return Err(self.refusal(400, 0, what, "RFC 9112 §3"));
            }
            [first, ..] if !first.is_ascii_graphic() => {
                let what = "request line that begins with no method";
                return Err(self.refusal(400, 0, what, "RFC 9112 §3"));
            }
            _ => {}
        }
        let is_endless = bytes
            .get(..METHOD_BYTES_MAX)
            .is_some_and(|start| !start.iter().any(|byte| b" \n".contains(byte)));
        if is_endless {
            return Err(self.refusal(
                501,
                0,
                "method longer than any that is known",
                "RFC 9112 §3",
            ));
        }
        Ok(())
    }

    /// Returns the length of the head, once its empty line was received.
    fn find_head_end(&mut self) -> Result<Option<usize>, Malformed> {
        let bytes = &self.buffer[self.start..];
        let line_bytes_max = self.limits.request_line_bytes_max.min(self.limits.head_bytes_max);
        while let Some(found) = bytes[self.scanned..].iter().position(|&byte| byte == b'\n') {
            let end = self.scanned + found + 1;
            self.check_length(end, self.lines == 0, line_bytes_max)?;
            let line = &bytes[self.line_start..end];
            let Some(line) = line.strip_suffix(b"\r\n") else {
                return Err(self.refusal(400, end - 1, "LF without CR", "RFC 9112 §2.2"));
            };
            if line.is_empty() {
                return Ok(Some(end));
            }
            if self.lines > 0 && matches!(line[0], b' ' | b'\t') {
                return Err(self.refusal(
                    400,
                    self.line_start,
                    "folded header line",
                    "RFC 9112 §5.2",
                ));
            }
            if self.lines > self.limits.headers_max {
                return Err(self.refusal(431, self.line_start, "too many header lines", FIELDS));
            }
            self.lines += 1;
            self.scanned = end;
            self.line_start = end;
        }
        self.scanned = bytes.len();
        // The line is at least one byte longer: its line end is missing.
        self.check_length(bytes.len() + 1, self.lines == 0, line_bytes_max)?;
        Ok(None)
    }

    /// Checks a head whose current line ends at byte `end` at the earliest against the limits.
    fn check_length(
        &self,
        end: usize,
        in_request_line: bool,
        line_bytes_max: usize,
    ) -> Result<(), Malformed> {
        if in_request_line && end > line_bytes_max {
            return Err(self.refusal(414, line_bytes_max, "request line too long", "RFC 9112 §3"));
        }
        let head_bytes_max = self.limits.head_bytes_max;
        if end > head_bytes_max {
            return Err(self.refusal(431, head_bytes_max, "head too long", FIELDS));
        }
        Ok(())
    }

    fn refusal(
        &self,
        status: u16,
        at: usize,
        what: &'static str,
        section: &'static str,
    ) -> Malformed {
        Malformed::new(status, at, what, section).shifted(self.offset)
    }

    fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        self.offset = self.offset.saturating_add(bytes as u64);
    }
}

/// Empty lines before one request line.
const EMPTY_LINES_MAX: usize = 4;
/// The longest registered method, UPDATEREDIRECTREF, has 17 bytes.
const METHOD_BYTES_MAX: usize = 32;
/// Buffer bytes that an idle connection keeps.
const IDLE_BYTES_MAX: usize = 1024;
const FIELDS: &str = "RFC 6585 §5";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_of_a_dripping_head_is_searched_once() {
        let head = b"GET / HTTP/1.1\r\nHost: h\r\nX: y\r\n\r\n";
        let mut reader = RequestReader::new(Limits::default());
        for (fed, byte) in head[..head.len() - 1].iter().enumerate() {
            // The search starts after the bytes fed before.
            assert_eq!(reader.scanned, fed);
            reader.feed(&[*byte]);
            assert_eq!(reader.next(), Ok(None));
        }
        reader.feed(b"\n");
        assert!(reader.next().unwrap().is_some());
    }

    #[test]
    fn content_is_kept_where_it_is_asked_for() {
        let request =
            b"POST /a HTTP/1.1\r\nHost: h\r\nReferer: r\r\nContent-Length: 5\r\n\r\nhello";
        for (keeps, expected) in [(true, &b"hello"[..]), (false, b"")] {
            let mut reader = RequestReader::new(Limits::default()).with_details();
            if keeps {
                reader = reader.with_content();
            }
            reader.feed(&request[..request.len() - 3]);
            assert_eq!(reader.next(), Ok(None));
            reader.feed(&request[request.len() - 3..]);
            let details = reader.next().unwrap().unwrap().details.unwrap();
            assert_eq!((&details.content[..], details.referer.as_deref()), (expected, Some("r")));
        }
        let mut reader = RequestReader::new(Limits::default());
        reader.feed(request);
        assert_eq!(reader.next().unwrap().unwrap().details, None);
    }

    #[test]
    fn an_idle_connection_keeps_little_memory() {
        let mut reader = RequestReader::new(Limits::default());
        let mut head = b"GET / HTTP/1.1\r\nHost: h\r\nX: ".to_vec();
        head.resize(8000, b'x');
        head.extend_from_slice(b"\r\n\r\n");
        reader.feed(&head);
        assert!(reader.next().unwrap().is_some());
        assert!(reader.is_empty());
        assert!(reader.buffer.capacity() <= IDLE_BYTES_MAX, "{}", reader.buffer.capacity());
    }

    #[test]
    fn pipelined_requests_do_not_pile_up() {
        let head = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        let mut reader = RequestReader::new(Limits::default());
        // Each piece has one and a half requests: the buffer is never empty when the next one
        // arrives.
        reader.feed(&head[..10]);
        for _ in 0..1000 {
            reader.feed(&head[10..]);
            reader.feed(&head[..10]);
            assert!(reader.next().unwrap().is_some());
            assert_eq!(reader.next(), Ok(None));
        }
        assert!(reader.buffer.capacity() < 4096, "{}", reader.buffer.capacity());
        assert_eq!(reader.byte_offset(), 1000 * head.len() as u64);
    }
}
