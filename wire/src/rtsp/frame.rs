// SPDX-License-Identifier: MIT OR Apache-2.0
//! Splits the bytes of a connection into RTSP messages, with a limit on everything.
//!
//! This layer precedes the message parser (`rtsp-types`), which needs a whole message in one piece,
//! starts over if the message is incomplete, and has no limits. So the head is read line by line as
//! it arrives, checked and copied once into a clean form (CRLF, no folded lines, URL in printable
//! ASCII, no Content-Length), and only a complete head is passed on. Each byte is examined once and
//! moved at most twice, however slowly it arrives; memory never exceeds one head, one body and the
//! bytes fed last.
//!
//! Between messages, blank lines are skipped (RFC 2068 §4.1), interleaved frames (`$`, RFC 2326
//! §10.12) are returned as frames of their own, or skipped without being stored if they exceed the
//! limit, and a bare CR or LF ends a line like CRLF (§4). Bytes that cannot begin a message (a TLS
//! greeting, for example) are refused at the first one. After a fault nothing more is read: the
//! start of the next message is unknown.
//!
//! Sources: RFC 2326 §4, §6.1, §10.12, §12.14, §15.1; RFC 2068 §4.1.

use crate::error::{Fault, Malformed};

/// Limits on a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Start line and headers with their line ends, in bytes.
    pub head_bytes_max: usize,
    /// The body, in bytes.
    pub body_bytes_max: usize,
    /// Header lines.
    pub headers_max: usize,
    /// Data of an interleaved frame, in bytes; longer frames are skipped and not stored.
    pub interleaved_bytes_max: usize,
}

impl Default for Limits {
    /// Ten times what any client is known to send; a paused session then costs nothing, and a
    /// hostile connection 16 KiB (the server does not store bodies). Interleaved frames are stored
    /// up to the size of a compound RTCP packet.
    fn default() -> Self {
        Limits {
            head_bytes_max: 16 << 10,
            body_bytes_max: 64 << 10,
            headers_max: 64,
            interleaved_bytes_max: 2048,
        }
    }
}

/// Kind of messages expected on this side of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageKind {
    /// Requests from a client. Their bodies are examined, not stored.
    Requests,
    /// Replies (and requests, which the reader drops) from a server. Bodies are stored.
    Replies,
}

/// Data of one channel between messages (RFC 2326 §10.12): an RTP or RTCP packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterleavedFrame {
    /// The channel, as SETUP has assigned it.
    pub channel: u8,
    /// The packet.
    pub data: Vec<u8>,
}

/// Bytes before the data of an interleaved frame: `$`, channel, length.
pub const INTERLEAVED_HEADER_BYTES: usize = 4;

/// Writes the header of an interleaved frame with this many bytes of data (§10.12).
pub const fn interleaved_header(channel: u8, data_bytes: u16) -> [u8; INTERLEAVED_HEADER_BYTES] {
    let [high, low] = data_bytes.to_be_bytes();
    [b'$', channel, high, low]
}

/// Next item of a connection.
#[derive(Debug, Clone, PartialEq)]
pub enum Received<M> {
    /// A request or a reply.
    Message(M),
    /// Data between messages.
    Interleaved(InterleavedFrame),
}

/// One message, its head in clean form.
#[derive(Debug, PartialEq)]
pub(super) struct Frame {
    /// Offset of its first byte in the connection.
    pub(super) offset: u64,
    /// Start line, headers and the empty line, each ended by CRLF.
    pub(super) head: Vec<u8>,
    /// The body, if bodies are stored.
    pub(super) body: Vec<u8>,
    /// True if the body is empty or white space.
    pub(super) body_is_blank: bool,
}

#[derive(Debug)]
pub(super) struct Framer {
    limits: Limits,
    kind: MessageKind,
    /// Bytes fed and not yet removed: consumed up to `consumed`, searched for a line end up to
    /// `searched`.
    buffer: Vec<u8>,
    consumed: usize,
    searched: usize,
    /// Offset in the connection of `buffer[0]`.
    base: u64,
    state: FramerState,
    /// The last line ended in CR: a LF that follows belongs to it.
    after_cr: bool,
    message: PartialMessage,
    /// Data of the interleaved frame being received.
    interleaved: Vec<u8>,
}

#[derive(Debug)]
enum FramerState {
    Between,
    Head,
    Body {
        left: usize,
    },
    /// In an interleaved frame, whose data is stored if it is not too long.
    Interleaved {
        channel: u8,
        left: usize,
        is_stored: bool,
    },
    Faulty(Malformed),
}

/// The message being received.
#[derive(Debug, Default)]
struct PartialMessage {
    offset: u64,
    /// Bytes of the head received so far.
    head_bytes: usize,
    headers: usize,
    head: Vec<u8>,
    /// Kind of the last line, which a folded line continues.
    last: LastLine,
    content_length: Option<usize>,
    body: Vec<u8>,
    body_has_content: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum LastLine {
    #[default]
    Start,
    Header,
    Length,
}

impl Framer {
    pub(super) fn new(limits: Limits, kind: MessageKind) -> Self {
        Framer {
            limits,
            kind,
            buffer: Vec::new(),
            consumed: 0,
            searched: 0,
            base: 0,
            state: FramerState::Between,
            after_cr: false,
            message: PartialMessage::default(),
            interleaved: Vec::new(),
        }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        if matches!(self.state, FramerState::Faulty(_)) {
            return;
        }
        // Moves the rest to the front only if at least as many bytes were consumed: linear in all.
        if self.consumed >= self.buffer.len() - self.consumed {
            self.buffer.drain(..self.consumed);
            self.base += self.consumed as u64;
            self.searched -= self.consumed;
            self.consumed = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    pub(super) fn next(&mut self) -> Result<Option<Received<Frame>>, Malformed> {
        loop {
            let step = match self.state {
                FramerState::Between => self.between(),
                FramerState::Head => self.line(),
                FramerState::Body { left } => return Ok(self.body(left).map(Received::Message)),
                FramerState::Interleaved { channel, left, is_stored } => {
                    match self.interleaved((channel, is_stored), left) {
                        Some(frame) if is_stored => return Ok(Some(Received::Interleaved(frame))),
                        frame => Ok(frame.is_some()),
                    }
                }
                FramerState::Faulty(ref malformed) => return Err(malformed.clone()),
            };
            match step {
                Ok(true) => {}
                Ok(false) => {
                    self.release();
                    return Ok(None);
                }
                Err(malformed) => {
                    self.state = FramerState::Faulty(malformed.clone());
                    (self.buffer, self.message) = (Vec::new(), PartialMessage::default());
                    self.interleaved = Vec::new();
                    (self.consumed, self.searched) = (0, 0);
                    return Err(malformed);
                }
            }
        }
    }

    /// True if no message has begun.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self.state, FramerState::Between) && self.consumed == self.buffer.len()
    }

    /// Bytes of the body that have not been fed; 0 outside of a body.
    pub(super) fn body_bytes_due(&self) -> usize {
        match self.state {
            FramerState::Body { left } => left.saturating_sub(self.buffer.len() - self.consumed),
            _ => 0,
        }
    }

    /// Offset of the next byte to consume.
    pub(super) fn byte_offset(&self) -> u64 {
        match &self.state {
            FramerState::Faulty(malformed) => malformed.offset,
            _ => self.base + self.consumed as u64,
        }
    }

    /// Offset of the message (or interleaved frame) being received.
    pub(super) fn message_offset(&self) -> u64 {
        match self.state {
            FramerState::Between | FramerState::Faulty(_) => self.byte_offset(),
            _ => self.message.offset,
        }
    }

    /// Bytes of memory held.
    pub(super) fn held_bytes(&self) -> usize {
        self.buffer.capacity()
            + self.message.head.capacity()
            + self.message.body.capacity()
            + self.interleaved.capacity()
    }

    /// Skips the bytes between messages. False: more bytes are needed.
    fn between(&mut self) -> Result<bool, Malformed> {
        let rest = &self.buffer[self.consumed..];
        let blank = rest.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
        let rest = &rest[blank..];
        self.consumed += blank;
        self.searched = self.consumed;
        match rest {
            [] => Ok(false),
            &[b'$', channel, high, low, ..] => {
                self.message.offset = self.byte_offset();
                self.consumed += INTERLEAVED_HEADER_BYTES;
                self.searched = self.consumed;
                let left = usize::from(u16::from_be_bytes([high, low]));
                let is_stored = left <= self.limits.interleaved_bytes_max;
                self.state = FramerState::Interleaved { channel, left, is_stored };
                Ok(true)
            }
            [b'$', ..] => Ok(false),
            [first, ..] if is_token(*first) => {
                let offset = self.byte_offset();
                self.message = PartialMessage { offset, ..PartialMessage::default() };
                self.state = FramerState::Head;
                self.after_cr = false;
                Ok(true)
            }
            _ => Err(Malformed::new(self.byte_offset(), Fault::StartLine)),
        }
    }

    /// Consumes one line of the head. False: more bytes are needed.
    fn line(&mut self) -> Result<bool, Malformed> {
        if self.after_cr && self.consumed < self.buffer.len() {
            self.after_cr = false;
            if self.buffer[self.consumed] == b'\n' {
                self.consumed += 1;
                self.message.head_bytes += 1;
                self.searched = self.searched.max(self.consumed);
            }
        }
        let unsearched = &self.buffer[self.searched..];
        let found = unsearched.iter().position(|b| matches!(b, b'\r' | b'\n'));
        let end = self.searched + found.unwrap_or(unsearched.len());
        let offset = self.byte_offset();
        let (line, head_bytes) =
            (self.consumed..end, self.message.head_bytes + end - self.consumed + 1);
        if head_bytes > self.limits.head_bytes_max {
            let limit = self.limits.head_bytes_max;
            return Err(match self.message.last {
                LastLine::Start if self.message.head.is_empty() => {
                    Malformed::new(self.message.offset, Fault::StartLineTooLong { limit })
                }
                _ => Malformed::new(offset, Fault::HeadTooLong { limit }),
            });
        }
        self.searched = end;
        if found.is_none() {
            return Ok(false);
        }
        self.after_cr = self.buffer[end] == b'\r';
        (self.consumed, self.searched) = (end + 1, end + 1);
        self.message.head_bytes = head_bytes;
        let line = &self.buffer[line];
        if line.is_empty() {
            return self.message.end_of_head(&self.limits, offset).map(|left| {
                self.state = FramerState::Body { left };
                true
            });
        }
        let fault = self.message.take_line(line, self.kind, &self.limits);
        fault.map(|()| true).map_err(|fault| Malformed::new(offset, fault))
    }

    /// Consumes the part of the body received so far; returns the frame when it is complete.
    fn body(&mut self, left: usize) -> Option<Frame> {
        // The LF of the empty line does not belong to the body. If there is no body and the LF has
        // not arrived, `between` skips it.
        if self.after_cr && self.consumed < self.buffer.len() {
            self.after_cr = false;
            self.consumed += usize::from(self.buffer[self.consumed] == b'\n');
        }
        let bytes = left.min(self.buffer.len() - self.consumed);
        let part = &self.buffer[self.consumed..self.consumed + bytes];
        self.message.body_has_content |= !part.iter().all(u8::is_ascii_whitespace);
        if self.kind == MessageKind::Replies {
            self.message.body.extend_from_slice(part);
        }
        self.consumed += bytes;
        self.searched = self.consumed;
        if bytes < left {
            self.state = FramerState::Body { left: left - bytes };
            self.release();
            return None;
        }
        self.state = FramerState::Between;
        let message = std::mem::take(&mut self.message);
        Some(Frame {
            offset: message.offset,
            head: message.head,
            body: message.body,
            body_is_blank: !message.body_has_content,
        })
    }

    /// Consumes the part of an interleaved frame received so far; returns the frame when it is
    /// complete.
    fn interleaved(
        &mut self,
        (channel, is_stored): (u8, bool),
        left: usize,
    ) -> Option<InterleavedFrame> {
        let bytes = left.min(self.buffer.len() - self.consumed);
        if is_stored {
            let part = &self.buffer[self.consumed..self.consumed + bytes];
            self.interleaved.extend_from_slice(part);
        }
        self.consumed += bytes;
        self.searched = self.consumed;
        let left = left - bytes;
        if left > 0 {
            self.state = FramerState::Interleaved { channel, left, is_stored };
            return None;
        }
        self.state = FramerState::Between;
        Some(InterleavedFrame { channel, data: std::mem::take(&mut self.interleaved) })
    }

    /// Frees a large buffer once all of it is consumed: idle connections hold next to nothing.
    fn release(&mut self) {
        if self.consumed == self.buffer.len() && self.buffer.capacity() > KEPT_BYTES_MAX {
            self.base += self.consumed as u64;
            (self.consumed, self.searched) = (0, 0);
            self.buffer = Vec::new();
        }
    }
}

impl PartialMessage {
    fn take_line(&mut self, line: &[u8], kind: MessageKind, limits: &Limits) -> Result<(), Fault> {
        if line.iter().any(|&b| b.is_ascii_control() && b != b'\t') {
            return Err(Fault::ControlCharacter);
        }
        if self.head.is_empty() {
            self.head = start_line(line, kind)?;
            return Ok(());
        }
        self.headers += 1;
        if self.headers > limits.headers_max {
            return Err(Fault::TooManyHeaders { limit: limits.headers_max });
        }
        if matches!(line[0], b' ' | b'\t') {
            return self.continue_line(line);
        }
        let colon = line.iter().position(|&b| b == b':').ok_or(Fault::HeaderLine)?;
        let name = line[..colon].trim_ascii_end();
        let value = String::from_utf8_lossy(line[colon + 1..].trim_ascii());
        if name.is_empty() || !name.iter().all(|&b| is_token(b)) {
            return Err(Fault::HeaderLine);
        }
        if name.eq_ignore_ascii_case(b"Content-Length") {
            self.last = LastLine::Length;
            return self.take_length(&value);
        }
        if name.eq_ignore_ascii_case(b"Transfer-Encoding") {
            return Err(Fault::TransferEncoding);
        }
        self.last = LastLine::Header;
        for piece in [b"\r\n", name, b": ", value.as_bytes()] {
            self.head.extend_from_slice(piece);
        }
        Ok(())
    }

    /// A folded line: one space instead of the line end and the white space (RFC 2068 §2.2).
    fn continue_line(&mut self, line: &[u8]) -> Result<(), Fault> {
        match self.last {
            LastLine::Start => Err(Fault::HeaderLine),
            LastLine::Length if line.trim_ascii().is_empty() => Ok(()),
            LastLine::Length => Err(Fault::ContentLength),
            LastLine::Header => {
                self.head.push(b' ');
                let value = String::from_utf8_lossy(line.trim_ascii());
                self.head.extend_from_slice(value.as_bytes());
                Ok(())
            }
        }
    }

    /// Content-Length, once or repeated with the same value. A value too large for usize counts as
    /// too long.
    fn take_length(&mut self, value: &str) -> Result<(), Fault> {
        if value.is_empty() || !value.bytes().all(|b| b.is_ascii_digit()) {
            return Err(Fault::ContentLength);
        }
        let length = value.parse().unwrap_or(usize::MAX);
        match self.content_length.replace(length) {
            Some(before) if before != length => Err(Fault::ContentLength),
            _ => Ok(()),
        }
    }

    /// Closes the head; the length of the body.
    fn end_of_head(&mut self, limits: &Limits, offset: u64) -> Result<usize, Malformed> {
        self.head.extend_from_slice(b"\r\n\r\n");
        let length = self.content_length.unwrap_or(0);
        if length > limits.body_bytes_max {
            let limit = limits.body_bytes_max;
            return Err(Malformed::new(offset, Fault::BodyTooLong { limit }));
        }
        Ok(length)
    }
}

/// Returns the start line in the form that the parser requires.
///
/// The URL is everything between the first and the last space, its spaces and its bytes outside of
/// printable ASCII written as escapes: ffmpeg and VLC send a URL as the user typed it.
fn start_line(line: &[u8], kind: MessageKind) -> Result<Vec<u8>, Fault> {
    let line = line.trim_ascii_end();
    if kind == MessageKind::Replies && line.starts_with(b"RTSP/") {
        return status_line(line);
    }
    let first = line.iter().position(|&b| b == b' ').ok_or(Fault::StartLine)?;
    let last = line.iter().rposition(|&b| b == b' ').ok_or(Fault::StartLine)?;
    let (method, version) = (&line[..first], &line[last + 1..]);
    let url = line[first..last.max(first)].trim_ascii();
    if !method.iter().all(|&b| is_token(b)) || !version.starts_with(b"RTSP/") || url.is_empty() {
        return Err(Fault::StartLine);
    }
    if version != b"RTSP/1.0" {
        return Err(Fault::Version);
    }
    let mut clean = Vec::with_capacity(line.len() + HEADERS_BYTES_USUAL);
    clean.extend_from_slice(method);
    clean.push(b' ');
    for &byte in url {
        if byte.is_ascii_graphic() {
            clean.push(byte);
        } else {
            let hex = |digit: u8| HEX_DIGITS[usize::from(digit)];
            clean.extend_from_slice(&[b'%', hex(byte >> 4), hex(byte & 15)]);
        }
    }
    clean.extend_from_slice(b" RTSP/1.0");
    Ok(clean)
}

/// `RTSP/1.0 200 OK`; the parser requires the second space even without a reason.
fn status_line(line: &[u8]) -> Result<Vec<u8>, Fault> {
    let rest = line.strip_prefix(b"RTSP/1.0").ok_or(Fault::Version)?;
    let rest = rest.trim_ascii_start();
    let (code, reason) = rest.split_at_checked(3).ok_or(Fault::StartLine)?;
    if !code.iter().all(u8::is_ascii_digit) || !(reason.is_empty() || reason[0] == b' ') {
        return Err(Fault::StartLine);
    }
    let reason = String::from_utf8_lossy(reason.trim_ascii());
    Ok([b"RTSP/1.0 ", code, b" ", reason.as_bytes()].concat())
}

/// §15.1: token.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#%&'*+-.^_`|~".contains(&byte)
}

const HEX_DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// Bytes of the headers of a usual request.
const HEADERS_BYTES_USUAL: usize = 256;

/// An empty buffer of up to this size is kept between requests.
const KEPT_BYTES_MAX: usize = 2048;

#[cfg(test)]
mod tests;
