// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses and checks the head of a request, and stores the fields that a file server needs.
//!
//! The checks that matter are about framing. Where two readers could disagree on where a request
//! ends (both Content-Length and Transfer-Encoding, two lengths, a coding that is not chunked), an
//! attacker can hide a second request from the proxy in front; every such head is refused and the
//! connection ended, which RFC 9112 allows in each case.
//!
//! Sources: RFC 9112 §3 (request line), §6.1 to §6.3 (framing), §9.3 (persistence), §11.2
//! (smuggling); RFC 9110 §5.3 (field lists), §7.2 (Host), §10.1.1 (Expect).
//!
//! Fields that no answer depends on are dropped unread.

use super::conditions::Conditions;
use super::credentials::Credentials;
use super::details::RequestDetails;
use super::malformed::Malformed;
use super::target::{self, RequestTarget};

/// Parsed request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// The method.
    pub method: Method,
    /// Percent-decoded path, always beginning with `/` and without NUL. Empty, `.` and `..`
    /// segments and control characters are left in it: never log or show it unescaped.
    pub path: String,
    /// Text after the first `?`, not decoded.
    pub query: Option<String>,
    /// Host and port by which the client addresses this server, checked against the grammar
    /// (letters, digits, `[]:.-_~%` and `!$&'()*+,;=`).
    pub host: Option<String>,
    /// The client's version.
    pub version: Version,
    /// True if the connection stays open after the answer.
    pub keep_alive: bool,
    /// The conditional fields and Range.
    pub conditions: Conditions,
    /// Credentials of the client.
    pub credentials: Option<Credentials>,
    /// Origin of the page that asks, as a browser writes it (RFC 6454 §7); the last one, if there
    /// are several.
    pub origin: Option<String>,
    /// The client reads content that is coded with gzip (RFC 9110 §12.5.3).
    pub accepts_gzip: bool,
    /// Further fields and content, if the reader stores them.
    pub details: Option<Box<RequestDetails>>,
    /// The client names `text/html` among what it reads (RFC 9110 §12.5.1), as browsers do.
    pub accepts_html: bool,
    /// True if the first media type of Accept is an image, as in a browser's requests for the
    /// images of a page.
    pub wants_picture: bool,
}

/// Request methods; names are case-sensitive (RFC 9110 §9.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Method {
    /// GET.
    Get,
    /// HEAD.
    Head,
    /// OPTIONS.
    Options,
    /// Any other token.
    Other(String),
}

/// The versions that are spoken here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
}

/// A request's head and the data about its content.
#[derive(Debug)]
pub(super) struct RequestHead {
    pub(super) request: Request,
    pub(super) framing: ContentFraming,
    /// The client waits for an answer before it sends content.
    pub(super) awaits_answer: bool,
}

/// Framing of a request's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentFraming {
    Empty,
    Length(u64),
    Chunked,
}

/// Parses a head that ends with its empty line, whose lines all end with CRLF and of which
/// `fields_count` are header lines; offsets in faults count from its first byte.
pub(super) fn parse(
    head: &[u8],
    fields_count: usize,
    keeps_details: bool,
) -> Result<RequestHead, Malformed> {
    let mut slots = vec![httparse::EMPTY_HEADER; fields_count];
    let mut parsed = httparse::Request::new(&mut slots);
    match parsed.parse(head) {
        Ok(httparse::Status::Complete(bytes)) if bytes == head.len() => {}
        Ok(_) => return Err(bad(0, "head that ends before its empty line", "RFC 9112 §2.1")),
        Err(error) => return Err(locate(head, error)),
    }
    let (Some(method), Some(target), Some(minor)) = (parsed.method, parsed.path, parsed.version)
    else {
        return Err(bad(0, "incomplete request line", "RFC 9112 §3"));
    };
    let method = Method::named(method);
    let target_at = offset_in(head, target.as_bytes());
    let version = if minor == 0 { Version::Http10 } else { Version::Http11 };
    let target = target::parse(&method, target).map_err(|fault| fault.shifted(target_at as u64))?;

    let details = keeps_details.then(Box::default);
    let mut fields = HeadFields { details, ..HeadFields::default() };
    for header in parsed.headers.iter() {
        fields.note(header.name, header.value, offset_in(head, header.value))?;
    }
    if version == Version::Http11 && !fields.host_seen {
        return Err(bad(0, "HTTP/1.1 request without Host", "RFC 9112 §3.2"));
    }
    let framing = fields.framing(version)?;
    let keep_alive = !fields.close && (version == Version::Http11 || fields.keep_alive);
    let awaits_answer =
        fields.expects && version == Version::Http11 && framing != ContentFraming::Empty;
    // Content that may never arrive makes the next request impossible to find (RFC 9110 §10.1.1).
    let keep_alive = keep_alive && !awaits_answer;
    let request = fields.request(method, target, version, keep_alive);
    Ok(RequestHead { request, framing, awaits_answer })
}

/// Creates a request from an HTTP/2 stream's pseudo-header fields and fields, whose syntax the
/// caller has checked (RFC 9113 §8.2.1). Offsets in faults count from the faulty value. The request
/// has [`Version::Http11`] and stays open: its answer has no connection fields.
///
/// # Errors
/// A target that is no path, a Host that differs from the authority (RFC 9113 §8.3.1), and the
/// faults of fields that HTTP/1.1 has.
pub fn http2_request<'a>(
    method: &str,
    path: &str,
    authority: Option<&str>,
    fields: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> Result<Request, Malformed> {
    let method = Method::named(method);
    if !path.starts_with('/') && path != "*" {
        return Err(bad(0, ":path that does not begin with /", "RFC 9113 §8.3.1"));
    }
    let target = target::parse(&method, path)?;
    let mut read = HeadFields::default();
    for (name, value) in fields {
        read.note(name, value, 0)?;
    }
    match (authority, &read.host) {
        (Some(authority), _) if !target::is_authority(authority) => {
            return Err(bad(0, ":authority that is not a host and port", "RFC 9113 §8.3.1"));
        }
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => {
            return Err(bad(0, "Host that differs from :authority", "RFC 9113 §8.3.1"));
        }
        (Some(authority), _) => read.host = Some(authority.to_owned()),
        (None, Some(_)) => {}
        (None, None) => {
            return Err(bad(0, "neither :authority nor Host", "RFC 9113 §8.3.1"));
        }
    }
    Ok(read.request(method, target, Version::Http11, true))
}

impl Method {
    /// The name as it was sent.
    pub fn name(&self) -> &str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Options => "OPTIONS",
            Method::Other(name) => name,
        }
    }

    fn named(name: &str) -> Method {
        match name {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "OPTIONS" => Method::Options,
            other => Method::Other(other.to_owned()),
        }
    }
}

/// Fields of one head, collected while it is parsed.
#[derive(Default)]
struct HeadFields {
    host_seen: bool,
    host: Option<String>,
    close: bool,
    keep_alive: bool,
    expects: bool,
    /// The value and its offset.
    content_length: Option<(u64, usize)>,
    transfer_encoding: Option<TransferCodings>,
    conditions: Conditions,
    credentials: Option<Credentials>,
    /// Accept-Encoding: gzip, and `*` for unnamed codings, with a weight above 0 or of 0.
    gzip: Option<bool>,
    any_coding: Option<bool>,
    details: Option<Box<RequestDetails>>,
    origin: Option<String>,
    html: bool,
    picture: bool,
}

/// The transfer codings, in order, over all Transfer-Encoding fields.
#[derive(Clone, Copy)]
struct TransferCodings {
    at: usize,
    count: usize,
    chunked_count: usize,
    chunked_last: bool,
}

impl HeadFields {
    fn request(
        self,
        method: Method,
        target: RequestTarget,
        version: Version,
        keep_alive: bool,
    ) -> Request {
        Request {
            method,
            path: target.path,
            query: target.query,
            host: target.authority.or(self.host),
            version,
            keep_alive,
            conditions: self.conditions,
            credentials: self.credentials,
            origin: self.origin,
            accepts_gzip: self.gzip.or(self.any_coding).unwrap_or(false),
            details: self.details,
            accepts_html: self.html,
            wants_picture: self.picture,
        }
    }

    fn note(&mut self, name: &str, value: &[u8], at: usize) -> Result<(), Malformed> {
        if let Some(details) = &mut self.details {
            details.note(name, value);
        }
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("host") {
            return self.note_host(value, at);
        } else if is("connection") {
            self.close |= elements(value).any(|option| option.eq_ignore_ascii_case(b"close"));
            self.keep_alive |=
                elements(value).any(|option| option.eq_ignore_ascii_case(b"keep-alive"));
        } else if is("content-length") {
            return self.note_length(value, at);
        } else if is("transfer-encoding") {
            self.note_codings(value, at);
        } else if is("expect") {
            self.expects = true;
            if !elements(value).all(|member| member.eq_ignore_ascii_case(b"100-continue")) {
                let what = "expectation other than 100-continue";
                return Err(Malformed::new(417, at, what, "RFC 9110 §10.1.1"));
            }
        } else if is("authorization") {
            match &mut self.credentials {
                None => self.credentials = Some(Credentials::new(value)),
                Some(earlier) => earlier.spoil(),
            }
        } else if is("origin") {
            self.origin = str::from_utf8(value).ok().map(str::to_owned);
        } else if is("accept-encoding") {
            elements(value).for_each(|element| self.note_coding(element));
        } else if is("accept") {
            let kind = |element: &[u8]| {
                let end = element.iter().position(|&byte| byte == b';').unwrap_or(element.len());
                element[..end].trim_ascii().eq_ignore_ascii_case(b"text/html")
            };
            self.html |= elements(value).any(kind);
            let is_picture = |first: &[u8]| {
                first.get(..6).is_some_and(|start| start.eq_ignore_ascii_case(b"image/"))
            };
            self.picture |= elements(value).next().is_some_and(is_picture);
        } else {
            self.conditions.note(name, value);
        }
        Ok(())
    }

    /// One content coding and its weight (RFC 9110 §12.4.2).
    fn note_coding(&mut self, element: &[u8]) {
        let mut parts = element.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let coding = parts.next().unwrap_or_default();
        let is_zero = |weight: &[u8]| weight.iter().all(|byte| b"0.".contains(byte));
        let is_refused = |part: &[u8]| {
            part.strip_prefix(b"q=").or_else(|| part.strip_prefix(b"Q=")).is_some_and(is_zero)
        };
        let is_wanted = !parts.any(is_refused);
        if coding.eq_ignore_ascii_case(b"gzip") || coding.eq_ignore_ascii_case(b"x-gzip") {
            self.gzip = Some(is_wanted);
        } else if coding == b"*" {
            self.any_coding = Some(is_wanted);
        }
    }

    fn note_host(&mut self, value: &[u8], at: usize) -> Result<(), Malformed> {
        if self.host_seen {
            return Err(bad(at, "second Host", "RFC 9112 §3.2"));
        }
        self.host_seen = true;
        if value.is_empty() {
            return Ok(());
        }
        match str::from_utf8(value) {
            Ok(host) if target::is_authority(host) => self.host = Some(host.to_owned()),
            _ => return Err(bad(at, "Host that is not a host and port", "RFC 9110 §7.2")),
        }
        Ok(())
    }

    fn note_length(&mut self, value: &[u8], at: usize) -> Result<(), Malformed> {
        if self.content_length.is_some() {
            return Err(bad(at, "second Content-Length", "RFC 9112 §6.3"));
        }
        if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
            return Err(bad(at, "Content-Length that is not a number", "RFC 9110 §8.6"));
        }
        // More than 64 bits is over any limit just as well.
        let bytes = value.iter().fold(0_u64, |bytes, digit| {
            bytes.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
        });
        self.content_length = Some((bytes, at));
        Ok(())
    }

    fn note_codings(&mut self, value: &[u8], at: usize) {
        let codings = self.transfer_encoding.get_or_insert(TransferCodings {
            at,
            count: 0,
            chunked_count: 0,
            chunked_last: false,
        });
        for coding in elements(value) {
            codings.count += 1;
            codings.chunked_last = coding.eq_ignore_ascii_case(b"chunked");
            codings.chunked_count += usize::from(codings.chunked_last);
        }
    }

    /// RFC 9112 §6.3, with every doubtful case refused.
    fn framing(&self, version: Version) -> Result<ContentFraming, Malformed> {
        let Some(codings) = self.transfer_encoding else {
            return Ok(match self.content_length {
                None | Some((0, _)) => ContentFraming::Empty,
                Some((bytes, _)) => ContentFraming::Length(bytes),
            });
        };
        if let Some((_, length_at)) = self.content_length {
            let at = length_at.max(codings.at);
            return Err(bad(at, "both Content-Length and Transfer-Encoding", "RFC 9112 §6.3"));
        }
        if version == Version::Http10 {
            return Err(bad(codings.at, "Transfer-Encoding in HTTP/1.0", "RFC 9112 §6.1"));
        }
        if !codings.chunked_last || codings.chunked_count > 1 {
            let what = "Transfer-Encoding that does not end with one chunked";
            return Err(bad(codings.at, what, "RFC 9112 §6.3"));
        }
        if codings.count > 1 {
            let what = "transfer coding other than chunked";
            return Err(Malformed::new(501, codings.at, what, "RFC 9112 §6.1"));
        }
        Ok(ContentFraming::Chunked)
    }
}

/// The elements of a list field, without empty ones (RFC 9110 §5.6.1).
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// Offset of `part`, a slice of `head`, in it.
fn offset_in(head: &[u8], part: &[u8]) -> usize {
    (part.as_ptr() as usize).saturating_sub(head.as_ptr() as usize).min(head.len())
}

/// Finds the line that `httparse` refused; only a refused head pays for this.
fn locate(head: &[u8], error: httparse::Error) -> Malformed {
    let line_bytes = head.iter().position(|&byte| byte == b'\n').map_or(head.len(), |lf| lf + 1);
    let line = &head[..line_bytes];
    let version_at = line.iter().rposition(|&byte| byte == b' ').map_or(0, |space| space + 1);
    let version = line[version_at..].trim_ascii_end();
    let line_is_bad = httparse::Request::new(&mut []).parse(line).is_err();
    if line_is_bad && is_other_version(version) {
        return Malformed::new(505, version_at, "version other than HTTP/1", "RFC 9110 §15.6.6");
    }
    if line_is_bad {
        return bad(0, "request line that is not method, target and version", "RFC 9112 §3");
    }
    let mut at = line_bytes;
    for line in head[line_bytes..].split_inclusive(|&byte| byte == b'\n') {
        let mut slot = [httparse::EMPTY_HEADER];
        if httparse::parse_headers(line, &mut slot).is_err() {
            break;
        }
        at += line.len();
    }
    let what = match error {
        httparse::Error::HeaderName => "header line without a valid name and colon",
        httparse::Error::HeaderValue => "control character in a header value",
        _ => "header line that cannot be read",
    };
    bad(at.min(head.len()), what, "RFC 9112 §5")
}

/// `HTTP/` DIGIT `.` DIGIT, but not HTTP/1.0 or HTTP/1.1.
fn is_other_version(version: &[u8]) -> bool {
    match version.strip_prefix(b"HTTP/") {
        Some([major, b'.', minor]) => {
            major.is_ascii_digit()
                && minor.is_ascii_digit()
                && (*major, *minor) != (b'1', b'0')
                && (*major, *minor) != (b'1', b'1')
        }
        _ => false,
    }
}

fn bad(offset: usize, what: &'static str, section: &'static str) -> Malformed {
    Malformed::new(400, offset, what, section)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str, authority: Option<&str>, fields: &[(&str, &str)]) -> Result<Request, u16> {
        let fields = fields.iter().map(|(name, value)| (*name, value.as_bytes()));
        http2_request("GET", path, authority, fields).map_err(|fault| fault.status)
    }

    #[test]
    fn requests_of_http2_are_read_like_those_of_http1() {
        let fields = [("range", "bytes=0-1"), ("accept-encoding", "gzip")];
        let request = of("/a%20b?c", Some("h:1"), &fields).unwrap();
        assert_eq!((request.path.as_str(), request.query.as_deref()), ("/a b", Some("c")));
        assert_eq!(request.host.as_deref(), Some("h:1"));
        assert!(request.keep_alive && request.accepts_gzip);
        let mut same = Conditions::default();
        same.note("Range", b"bytes=0-1");
        assert_eq!(request.conditions, same);
        assert_eq!(of("/", None, &[("host", "h")]).unwrap().host.as_deref(), Some("h"));
        assert!(of("/", Some("H"), &[("host", "h")]).is_ok());
    }

    #[test]
    fn requests_of_http2_in_doubt_are_refused() {
        for (path, authority, host) in [
            ("/", None, None),
            ("/", Some("a"), Some("b")),
            ("/", Some("a b"), None),
            ("/", Some(""), None),
            ("a", Some("h"), None),
            ("", Some("h"), None),
            ("http://h/", Some("h"), None),
            ("*", Some("h"), None),
            ("/%zz", Some("h"), None),
            ("/a#b", Some("h"), None),
        ] {
            let host: Vec<_> = host.into_iter().map(|host| ("host", host)).collect();
            assert_eq!(of(path, authority, &host), Err(400), "{path} {authority:?} {host:?}");
        }
    }
}
