// SPDX-License-Identifier: MIT OR Apache-2.0
//! One row of the tables: a connection's bytes, the expected answers, and the connection's state
//! after them.
//!
//! A row costs a connection. The rows of a table run sequentially; all failures are reported
//! together, each with its name and, where it has one, nginx's answer.
//!
//! Sources: RFC 9112 §6.3 (length of an answer), RFC 2046 §5.1.1 (multipart).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use crate::harness::Server;
use crate::harness::answer::{Answer, Line};
use crate::numbered;

/// A connection's bytes and their answers. By default the server ends the connection after the last
/// answer.
pub(crate) struct Row {
    name: String,
    sent: Vec<u8>,
    answers: Vec<Expected>,
    end: End,
    /// Nginx's answer, and the reason for the difference.
    differs: Option<(&'static str, &'static str)>,
}

/// One answer.
struct Expected {
    status: u16,
    fields: Vec<(&'static str, Option<String>)>,
    content: Content,
}

enum Content {
    /// Not checked.
    Some,
    /// The answer is only a head, though its Content-Length may be that of a GET.
    HeadOnly,
    /// This range of the file.
    Bytes(Range<usize>),
    /// These ranges, each a part of `multipart/byteranges` with this type.
    Parts(&'static str, Vec<Range<usize>>),
}

/// State of the connection after the answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The server ends it, and sends nothing before it does.
    Closed,
    /// Another request is answered on it.
    Kept,
    /// The client ends its side; the server then ends its own, and sends nothing before it does.
    HalfClosed,
}

impl Row {
    /// Creates a row with one answer of this status.
    pub(crate) fn new(name: impl Into<String>, sent: impl AsRef<[u8]>, status: u16) -> Row {
        Row::silent(name, sent).then(status)
    }

    /// Creates a row without an answer.
    pub(crate) fn silent(name: impl Into<String>, sent: impl AsRef<[u8]>) -> Row {
        let (name, sent) = (name.into(), sent.as_ref().to_vec());
        Row { name, sent, answers: Vec::new(), end: End::Closed, differs: None }
    }

    /// Adds one more answer, to which the following calls refer.
    pub(crate) fn then(mut self, status: u16) -> Row {
        let fields = Vec::new();
        self.answers.push(Expected { status, fields, content: Content::Some });
        self
    }

    /// Requires this field with this value.
    pub(crate) fn field(mut self, name: &'static str, value: impl Into<String>) -> Row {
        self.last().fields.push((name, Some(value.into())));
        self
    }

    /// Requires that the answer has no such field.
    pub(crate) fn no_field(mut self, name: &'static str) -> Row {
        self.last().fields.push((name, None));
        self
    }

    /// Requires a head without content.
    pub(crate) fn head_only(mut self) -> Row {
        self.last().content = Content::HeadOnly;
        self
    }

    /// Requires this range of the file as content.
    pub(crate) fn bytes(mut self, range: Range<usize>) -> Row {
        self.last().content = Content::Bytes(range);
        self
    }

    /// Requires these ranges of the file as content, each labelled with this media type.
    pub(crate) fn parts(
        mut self,
        media_type: &'static str,
        ranges: impl IntoIterator<Item = Range<usize>>,
    ) -> Row {
        self.last().content = Content::Parts(media_type, ranges.into_iter().collect());
        self
    }

    /// Requires that the connection stays open.
    pub(crate) fn kept(mut self) -> Row {
        self.end = End::Kept;
        self
    }

    /// Makes the client end its side after its request.
    pub(crate) fn half_closed(mut self) -> Row {
        self.end = End::HalfClosed;
        self
    }

    /// Records nginx's different answer, from its suite or, in rows that pagewire adds, as observed
    /// with nginx 1.22; the reason cites the section that allows pagewire's answer.
    pub(crate) fn differs(mut self, nginx: &'static str, reason: &'static str) -> Row {
        self.differs = Some((nginx, reason));
        self
    }

    fn last(&mut self) -> &mut Expected {
        self.answers.last_mut().expect("a row with an answer")
    }

    fn run(&self, server: &Server) -> Result<(), String> {
        let mut line = Line::to(server.http);
        line.send(&self.sent);
        if self.end == End::HalfClosed {
            line.end_sending();
        }
        for (number, expected) in self.answers.iter().enumerate() {
            let answer = match expected.content {
                Content::HeadOnly => line.head().map(head_alone),
                _ => line.answer(),
            };
            let answer = answer.ok_or_else(|| format!("closed before answer {number}"))?;
            expected.check(&answer).map_err(|found| format!("answer {number}: {found}"))?;
        }
        if self.end == End::Kept {
            line.send("GET /a.bin HTTP/1.1\r\nHost: h\r\nRange: bytes=5-8\r\n\r\n");
            let answer = line.answer().ok_or("closed, not kept open")?;
            return match (answer.status, answer.text().as_str()) {
                (206, "0001") => Ok(()),
                _ => Err(format!("the next request was answered {}", answer.head)),
            };
        }
        let (rest, _) = line.rest(CLOSE_WAIT);
        if rest.is_empty() {
            return Ok(());
        }
        Err(format!("sent behind the last answer: {:?}", String::from_utf8_lossy(&rest)))
    }
}

/// Runs the rows of a table.
#[track_caller]
pub(crate) fn check(server: &Server, rows: &[Row]) {
    let names: BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names.len(), rows.len(), "two rows have one name");
    let mut findings = String::new();
    for row in rows {
        if let Some((_, reason)) = row.differs {
            assert!(reason.contains("RFC "), "{}: {reason}: cites no section", row.name);
        }
        if let Err(found) = row.run(server) {
            let _ = write!(findings, "\n{}: {found}", row.name);
            if let Some((nginx, reason)) = row.differs {
                let _ = write!(findings, " (nginx: {nginx}; expected here: {reason})");
            }
        }
    }
    assert!(findings.is_empty(), "of {} rows:{findings}", rows.len());
}

fn head_alone(head: String) -> Answer {
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Answer { status: status.expect("a status line"), head, body: Vec::new() }
}

impl Expected {
    fn check(&self, answer: &Answer) -> Result<(), String> {
        if answer.status != self.status {
            let text: String = answer.text().chars().take(TEXT_MAX).collect();
            return Err(format!("{} expected: {}{text}", self.status, answer.head));
        }
        for (name, value) in &self.fields {
            if answer.header(name) != value.as_deref() {
                return Err(format!("{name} {value:?} expected: {}", answer.head));
            }
        }
        let file = numbered();
        match &self.content {
            Content::Some | Content::HeadOnly => Ok(()),
            Content::Bytes(range) if answer.body == file[range.clone()] => Ok(()),
            Content::Bytes(range) => Err(format!("bytes {range:?} expected: {}", answer.text())),
            Content::Parts(media_type, ranges) => {
                let expected = multipart(answer, media_type, ranges, &file)?;
                if answer.text() == expected {
                    return Ok(());
                }
                Err(format!("{expected:?} expected: {:?}", answer.text()))
            }
        }
    }
}

/// Returns the content of an answer with these ranges, under the boundary that the answer names.
fn multipart(
    answer: &Answer,
    media_type: &str,
    ranges: &[Range<usize>],
    file: &[u8],
) -> Result<String, String> {
    let prefix = "multipart/byteranges; boundary=";
    let found = answer.header("Content-Type").and_then(|found| found.strip_prefix(prefix));
    let boundary = found.ok_or_else(|| format!("multipart expected: {}", answer.head))?;
    let mut content = String::new();
    for Range { start, end } in ranges.iter().cloned() {
        let (last, length) = (end - 1, file.len());
        let bytes = str::from_utf8(&file[start..end]).expect("digits and spaces");
        let _ = write!(
            content,
            "--{boundary}\r\nContent-Type: {media_type}\r\n\
             Content-Range: bytes {start}-{last}/{length}\r\n\r\n{bytes}\r\n"
        );
    }
    let _ = write!(content, "--{boundary}--\r\n");
    Ok(content)
}

/// Longer than a busy machine delays the end of a connection.
const CLOSE_WAIT: Duration = Duration::from_secs(60);
/// Limit on the displayed characters of an unexpected answer's content.
const TEXT_MAX: usize = 200;
