// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds answers: a file's (whole, ranges, not modified, refused), generated pages and errors.
//!
//! An answer is a head, ready to send, and parts that are bytes or file ranges, so that a download
//! costs no copy here. An answer repeats no text of the client's, and a field value of the caller's
//! cannot end its line. Every answer is framed by Content-Length (or has no content), hence none
//! depends on closing the connection.
//!
//! Sources: RFC 9110 §6.6.1 (Date), §8.6 (Content-Length), §8.8 (validators), §9.3.2 (HEAD),
//! §9.3.7 (OPTIONS), §14.2 to §14.4 (ranges), §15 (status codes), RFC 9112 §9.3 and §9.6
//! (Connection); the Fetch standard for `X-Content-Type-Options` and opaque responses.
//!
//! Does not compress files (media does not shrink, and ranges would no longer be file ranges); a
//! [`Listing`] may be compressed by the caller.

use std::fmt::Display;
use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use httpdate::HttpDate;

use super::conditions::{LAST_SECOND, PreconditionResult, Validators, whole_seconds};
use super::multipart;
use super::ranges::{self, ByteRange, RangeSelection};
use super::request::{Method, Request, Version};

/// A file as it is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entity<'a> {
    /// Its size.
    pub bytes: u64,
    /// Time of its last change.
    pub modified: SystemTime,
    /// A strong entity tag with its quotes, from [`file_etag`].
    pub etag: &'a str,
    /// Its media type.
    pub content_type: &'a str,
}

/// An answer, to be sent as `head` and then `parts` in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Response {
    /// The status code, as it is in the head.
    pub status: u16,
    /// Status line and fields, with the empty line.
    pub head: Vec<u8>,
    /// The content; none for HEAD.
    pub parts: Vec<Part>,
    /// True if the connection stays open afterwards. Otherwise close the sending side first and
    /// read on for a moment, or a reset may overtake the answer (RFC 9112 §9.6).
    pub keep_alive: bool,
}

/// A piece of an answer's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// These bytes.
    Bytes(Bytes),
    /// This range of the file; never empty.
    File {
        /// Offset in the file.
        offset: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// Bytes that the caller holds for several answers: the rows of a listing.
    Held {
        /// How many.
        bytes: u64,
    },
}

/// A generated page; other answers share its middle part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing<'a> {
    /// A weak entity tag with its quotes: bytes that it does not cover may differ.
    pub etag: &'a str,
    /// Its media type.
    pub content_type: &'a str,
    /// Value of Cache-Control.
    pub cache_control: &'a str,
    /// The content coding of all of it, if any.
    pub coding: Option<&'a str>,
    /// Bytes before the shared part.
    pub before: Vec<u8>,
    /// Length of the shared part.
    pub held_bytes: u64,
    /// Bytes behind it.
    pub after: Vec<u8>,
}

impl Part {
    /// Its length.
    pub fn bytes(&self) -> u64 {
        match self {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::File { bytes, .. } | Part::Held { bytes } => *bytes,
        }
    }
}

impl Response {
    /// Head and content together.
    pub fn bytes_total(&self) -> u64 {
        self.parts.iter().map(Part::bytes).fold(self.head.len() as u64, u64::saturating_add)
    }

    /// Names and values of the fields, for HTTP/2, which frames them otherwise: without Connection,
    /// which it does not have (RFC 9113 §8.2.2).
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let lines = self.head.split(|&byte| byte == b'\n').skip(1);
        let fields = lines.filter_map(|line| {
            let line = line.strip_suffix(b"\r")?;
            let colon = line.iter().position(|&byte| byte == b':')?;
            Some((&line[..colon], line[colon + 1..].trim_ascii_start()))
        });
        fields.filter(|(name, _)| !name.eq_ignore_ascii_case(b"Connection"))
    }

    /// Adds one field to the answer (Retry-After, Location). Control characters in `value` become
    /// spaces.
    pub fn with_field(mut self, name: &'static str, value: &str) -> Response {
        self.head.truncate(self.head.len().saturating_sub(2));
        let mut head = HeadWriter(self.head);
        head.field(name, value);
        self.head = head.end();
        self
    }
}

/// Returns the answer for a file that exists. `boundary` is called if several ranges are requested;
/// it returns random text that must not occur in the file.
///
/// # Panics
/// If a boundary is not 1 to 70 letters, digits or `'+_-.`.
pub fn respond(
    request: &Request,
    entity: &Entity<'_>,
    now: SystemTime,
    boundary: impl FnOnce() -> String,
) -> Response {
    let validators = Validators::new(entity.etag, entity.modified, now);
    let range = match range_to_send(request, &validators, now) {
        Ok(range) => range,
        Err(answer) => return answer,
    };
    match range.map_or(RangeSelection::Whole, |field| ranges::select(field, entity.bytes)) {
        RangeSelection::Whole => whole(request, entity, &validators, "bytes", now),
        RangeSelection::Ranges(spans) => {
            partial(request, entity, &validators, &spans, now, boundary)
        }
        RangeSelection::Unsatisfiable => {
            let unsatisfied = format!("bytes */{}", entity.bytes);
            error(request, 416, "no byte of the range is in the file", now)
                .with_field("Content-Range", &unsatisfied)
        }
    }
}

/// Returns the answer with a text that is generated again whenever it changes: always all of it
/// (RFC 9110 §14.2 lets a server ignore ranges). A client that requests a piece, and later the
/// rest, would join pieces of two texts. It has no Last-Modified: it may change within a second,
/// and with the server.
pub fn respond_whole(request: &Request, entity: &Entity<'_>, now: SystemTime) -> Response {
    let etag = entity.etag;
    let validators = Validators { etag, last_modified: None, date_is_strong: false };
    match range_to_send(request, &validators, now) {
        Ok(_) => whole(request, entity, &validators, "none", now),
        Err(answer) => answer,
    }
}

/// Returns the requested range, or the answer if neither it nor the whole is to be sent.
fn range_to_send<'a>(
    request: &'a Request,
    validators: &Validators<'_>,
    now: SystemTime,
) -> Result<Option<&'a [u8]>, Response> {
    if let Some(answer) = answer_method(request, now) {
        return Err(answer);
    }
    let is_get = request.method == Method::Get;
    match request.conditions.evaluate(is_get, validators) {
        PreconditionResult::Failed => {
            Err(error(request, 412, "the file is not the one the condition names", now))
        }
        PreconditionResult::NotModified => Err(not_modified(request, validators, now)),
        PreconditionResult::Send { range } => Ok(range),
    }
}

/// The answer to every method other than GET and HEAD, which depend on the resource: the allowed
/// methods for OPTIONS, 405 for methods that exist, 501 for others.
pub fn answer_method(request: &Request, now: SystemTime) -> Option<Response> {
    match &request.method {
        Method::Get | Method::Head => None,
        Method::Options => {
            let mut head = HeadWriter::new(204, request, now);
            head.field("Allow", ALLOW);
            head.field("Accept-Ranges", "bytes");
            Some(response(204, head, Vec::new(), request))
        }
        Method::Other(name) if KNOWN_METHODS.contains(&name.as_str()) => {
            let answer = error(request, 405, "files are read, not written, here", now);
            Some(answer.with_field("Allow", ALLOW))
        }
        Method::Other(_) => Some(error(request, 501, "no such method here", now)),
    }
}

/// A generated page: an index, or an error of the caller's own wording. It is not to be cached.
pub fn page(
    request: &Request,
    status: u16,
    content_type: &str,
    body: Vec<u8>,
    now: SystemTime,
) -> Response {
    let mut head = HeadWriter::new(status, request, now);
    head.field("Cache-Control", "no-cache");
    page_from(status, head, content_type, body, request)
}

/// Returns the answer with a listing: 304 for a client that has it (RFC 9110 §13.1.2), else all of
/// it.
pub fn listing(request: &Request, listing: Listing<'_>, now: SystemTime) -> Response {
    let validators = Validators { etag: listing.etag, last_modified: None, date_is_strong: false };
    let status = match request.conditions.evaluate(false, &validators) {
        PreconditionResult::Failed => {
            return error(request, 412, "the listing is not the one the condition names", now);
        }
        PreconditionResult::NotModified => 304,
        PreconditionResult::Send { .. } => 200,
    };
    let mut head = HeadWriter::new(status, request, now);
    head.field("Cache-Control", listing.cache_control);
    head.field("Vary", "Accept, Accept-Encoding");
    head.validators(&validators);
    if status == 304 {
        return response(status, head, Vec::new(), request);
    }
    if let Some(coding) = listing.coding {
        head.field("Content-Encoding", coding);
    }
    head.field("Content-Type", listing.content_type);
    let held = Part::Held { bytes: listing.held_bytes };
    let mut parts =
        vec![Part::Bytes(listing.before.into()), held, Part::Bytes(listing.after.into())];
    parts.retain(|part| part.bytes() > 0);
    head.field("Content-Length", parts.iter().map(Part::bytes).sum::<u64>());
    response(status, head, parts, request)
}

/// A page that no cache may store, such as a key.
pub fn unstored(
    request: &Request,
    status: u16,
    content_type: &str,
    body: Vec<u8>,
    now: SystemTime,
) -> Response {
    let mut head = HeadWriter::new(status, request, now);
    head.field("Cache-Control", "no-store");
    page_from(status, head, content_type, body, request)
}

/// An error as a line of plain text: `404 Not Found: ` and `what`, which must not hold anything
/// the client should not see.
pub fn error(request: &Request, status: u16, what: &str, now: SystemTime) -> Response {
    page(request, status, "text/plain; charset=utf-8", error_text(status, what), now)
}

/// Returns an error for a connection without a request to answer: 408 if none arrived in time, 503
/// if there are too many connections. The connection ends with it.
pub fn refusal(status: u16, what: &str, now: SystemTime) -> Response {
    let nobody = AnswerFraming { version: Version::Http11, keep_alive: false, wants_content: true };
    let mut head = HeadWriter::new(status, nobody, now);
    head.field("Cache-Control", "no-cache");
    page_from(status, head, "text/plain; charset=utf-8", error_text(status, what), nobody)
}

/// A strong entity tag for a file, with its quotes.
///
/// It is as strong as the file system's clock: a file changed twice within one tick of it (4 ms on
/// a usual kernel), to the same size, in place, keeps its tag.
pub fn file_etag(bytes: u64, modified: SystemTime, inode: u64) -> String {
    let (sign, age) = match modified.duration_since(UNIX_EPOCH) {
        Ok(after) => ("", after),
        Err(before) => ("-", before.duration()),
    };
    format!("\"{inode:x}-{bytes:x}-{sign}{:x}\"", age.as_nanos())
}

fn whole(
    request: &Request,
    entity: &Entity<'_>,
    validators: &Validators<'_>,
    accepted_ranges: &str,
    now: SystemTime,
) -> Response {
    let mut head = HeadWriter::of_entity(200, request, entity, now);
    head.field("Accept-Ranges", accepted_ranges);
    head.validators(validators);
    head.field("Content-Type", entity.content_type);
    head.field("Content-Length", entity.bytes);
    let parts = match entity.bytes {
        0 => Vec::new(),
        bytes => vec![Part::File { offset: 0, bytes }],
    };
    response(200, head, parts, request)
}

/// 206 for at least one range.
fn partial(
    request: &Request,
    entity: &Entity<'_>,
    validators: &Validators<'_>,
    spans: &[ByteRange],
    now: SystemTime,
    boundary: impl FnOnce() -> String,
) -> Response {
    let mut head = HeadWriter::of_entity(206, request, entity, now);
    head.field("Accept-Ranges", "bytes");
    head.validators(validators);
    let parts = if let [span] = spans {
        let ByteRange { first, last } = *span;
        head.field("Content-Type", entity.content_type);
        head.field("Content-Range", format_args!("bytes {first}-{last}/{}", entity.bytes));
        vec![Part::File { offset: first, bytes: span.bytes() }]
    } else {
        let boundary = boundary();
        let is_boundary = multipart::is_boundary(&boundary);
        assert!(is_boundary, "boundary {boundary:?}: not a token of 1 to 70");
        head.field("Content-Type", format_args!("multipart/byteranges; boundary={boundary}"));
        multipart::parts(spans, entity.bytes, entity.content_type, &boundary)
    };
    // Ranges do not overlap and part headers are few: this is far from 64 bits for any real file.
    let bytes = parts.iter().map(Part::bytes).fold(0, u64::saturating_add);
    head.field("Content-Length", bytes);
    response(206, head, parts, request)
}

/// 304 with the fields a cache needs to freshen what it has (RFC 9110 §15.4.5).
fn not_modified(request: &Request, validators: &Validators<'_>, now: SystemTime) -> Response {
    let mut head = HeadWriter::new(304, request, now);
    head.validators(validators);
    response(304, head, Vec::new(), request)
}

fn page_from(
    status: u16,
    mut head: HeadWriter,
    content_type: &str,
    body: Vec<u8>,
    framed: impl Into<AnswerFraming>,
) -> Response {
    head.field("Content-Type", content_type);
    head.field("Content-Length", body.len());
    let parts = if body.is_empty() { Vec::new() } else { vec![Part::Bytes(body.into())] };
    response(status, head, parts, framed)
}

fn response(
    status: u16,
    head: HeadWriter,
    parts: Vec<Part>,
    framed: impl Into<AnswerFraming>,
) -> Response {
    let AnswerFraming { keep_alive, wants_content, .. } = framed.into();
    let parts = if wants_content { parts } else { Vec::new() };
    Response { status, head: head.end(), parts, keep_alive }
}

fn error_text(status: u16, what: &str) -> Vec<u8> {
    format!("{status} {}: {what}\n", reason(status)).into_bytes()
}

/// Facts of a request that decide the framing of its answer.
#[derive(Debug, Clone, Copy)]
struct AnswerFraming {
    version: Version,
    keep_alive: bool,
    wants_content: bool,
}

impl From<&Request> for AnswerFraming {
    fn from(request: &Request) -> AnswerFraming {
        AnswerFraming {
            version: request.version,
            keep_alive: request.keep_alive,
            wants_content: request.method != Method::Head,
        }
    }
}

/// A head under construction.
struct HeadWriter(Vec<u8>);

impl HeadWriter {
    fn new(status: u16, framed: impl Into<AnswerFraming>, now: SystemTime) -> HeadWriter {
        let mut head = HeadWriter::begun(status, framed, now);
        head.field("X-Content-Type-Options", "nosniff");
        head
    }

    /// Like [`HeadWriter::new`], without `nosniff` for sound and pictures: no browser interprets
    /// these types as a page or a script. With it Chromium blocks a transport stream for the media
    /// element of another server's page, because its first bytes do not identify the type.
    fn of_entity(
        status: u16,
        request: &Request,
        entity: &Entity<'_>,
        now: SystemTime,
    ) -> HeadWriter {
        let is_media =
            ["audio/", "video/"].iter().any(|kind| entity.content_type.starts_with(kind));
        match is_media {
            true => HeadWriter::begun(status, request, now),
            false => HeadWriter::new(status, request, now),
        }
    }

    fn begun(status: u16, framed: impl Into<AnswerFraming>, now: SystemTime) -> HeadWriter {
        let framed = framed.into();
        let mut head = HeadWriter(Vec::with_capacity(HEAD_BYTES));
        head.push(format_args!("HTTP/1.1 {status} {}\r\n", reason(status)));
        head.field("Server", "pagewire");
        head.field("Date", date(now));
        match (framed.version, framed.keep_alive) {
            (_, false) => head.field("Connection", "close"),
            (Version::Http10, true) => head.field("Connection", "keep-alive"),
            (Version::Http11, true) => {}
        }
        head
    }

    fn field(&mut self, name: &str, value: impl Display) {
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b": ");
        let value_at = self.0.len();
        self.push(format_args!("{value}"));
        for byte in &mut self.0[value_at..] {
            if byte.is_ascii_control() {
                *byte = b' ';
            }
        }
        self.0.extend_from_slice(b"\r\n");
    }

    fn validators(&mut self, validators: &Validators<'_>) {
        self.field("ETag", validators.etag);
        if let Some(last_modified) = validators.last_modified {
            self.field("Last-Modified", date(last_modified));
        }
    }

    fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(b"\r\n");
        self.0
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a Vec has no way to fail.
        let written = self.0.write_fmt(text);
        debug_assert!(written.is_ok());
    }
}

/// Writes `time` as an HTTP-date; a time before 1970 or after 9999 gives the nearest possible date.
fn date(time: SystemTime) -> HttpDate {
    let nearest = if time < UNIX_EPOCH { 0 } else { LAST_SECOND };
    HttpDate::from(whole_seconds(time).unwrap_or(UNIX_EPOCH + Duration::from_secs(nearest)))
}

/// The reason phrases of RFC 9110 §15 and RFC 6585; a client reads the number.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "Other",
    }
}

/// Known methods that are not allowed (RFC 9110 §9.3, RFC 5789).
const KNOWN_METHODS: &[&str] = &["POST", "PUT", "DELETE", "CONNECT", "TRACE", "PATCH"];
const ALLOW: &str = "GET, HEAD, OPTIONS";
/// A head of a download has some 350 bytes, one of a segment 410.
const HEAD_BYTES: usize = 512;
