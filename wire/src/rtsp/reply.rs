// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses the bytes of a connection into replies, for a client.
//!
//! Requests from the server are dropped. Interleaved frames are returned between the replies.
//!
//! Sources: RFC 2326 §7, §10.12.

use rtsp_types::HeaderName;

use super::frame::{Framer, Limits, MessageKind, Received};
use crate::error::{Fault, Malformed};

/// A reply that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    offset: u64,
    message: rtsp_types::Response<rtsp_types::Empty>,
    /// The body; empty if there was none.
    pub body: Vec<u8>,
}

impl Reply {
    /// The status code.
    pub fn status(&self) -> u16 {
        self.message.status().into()
    }

    /// Reason phrase after the status code.
    pub fn reason(&self) -> &str {
        self.message.reason_phrase()
    }

    /// The number of the request it answers.
    pub fn cseq(&self) -> Option<u32> {
        self.header("CSeq")?.parse().ok()
    }

    /// The value of a header; several of one name are joined by commas.
    pub fn header(&self, name: &'static str) -> Option<&str> {
        let name = HeaderName::from_static_str(name).ok()?;
        self.message.header(&name).map(|value| value.as_str().trim())
    }

    pub(super) fn required(&self, name: &'static str) -> Result<&str, Malformed> {
        self.header(name).ok_or_else(|| self.fault(Fault::ReplyHeader { name }))
    }

    pub(super) fn expect_ok(&self) -> Result<(), Malformed> {
        match self.status() {
            200 => Ok(()),
            code => Err(self.fault(Fault::Status { code })),
        }
    }

    pub(super) fn fault(&self, fault: Fault) -> Malformed {
        Malformed::new(self.offset, fault)
    }
}

/// Turns the bytes of one connection into replies.
#[derive(Debug)]
pub struct ReplyReader {
    framer: Framer,
}

impl ReplyReader {
    /// A reader for a new connection.
    pub fn new(limits: Limits) -> Self {
        ReplyReader { framer: Framer::new(limits, MessageKind::Replies) }
    }

    /// Accepts bytes in the order of reception; call [`next`](Self::next) until it returns none
    /// before the next `feed`.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.framer.feed(bytes);
    }

    /// The next complete reply or interleaved frame; none when more bytes are needed.
    ///
    /// # Errors
    /// A fault after which reading cannot continue. The connection is to be closed; the error
    /// repeats.
    // Not an Iterator: an error ends it, and "none" only means "not yet".
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Received<Reply>>, Malformed> {
        while let Some(received) = self.framer.next()? {
            let frame = match received {
                Received::Interleaved(frame) => return Ok(Some(Received::Interleaved(frame))),
                Received::Message(frame) => frame,
            };
            match rtsp_types::Message::<Vec<u8>>::parse(&frame.head) {
                Ok((rtsp_types::Message::Response(message), _)) => {
                    let message = message.map_body(|_| rtsp_types::Empty);
                    let reply = Reply { offset: frame.offset, message, body: frame.body };
                    return Ok(Some(Received::Message(reply)));
                }
                Ok(_) => {}
                Err(_) => return Err(Malformed::new(frame.offset, Fault::StartLine)),
            }
        }
        Ok(None)
    }

    /// The next complete reply, past any interleaved frames; for a caller without channels.
    ///
    /// # Errors
    /// Same as for [`next`](Self::next).
    pub fn next_reply(&mut self) -> Result<Option<Reply>, Malformed> {
        loop {
            match self.next()? {
                None => return Ok(None),
                Some(Received::Message(reply)) => return Ok(Some(reply)),
                Some(Received::Interleaved(_)) => {}
            }
        }
    }

    /// Returns how many of these bytes to feed so that none after the message is read: up to the
    /// end of a line, or the rest of the body.
    pub fn share(&self, bytes: &[u8]) -> usize {
        match self.framer.body_bytes_due() {
            0 => {
                let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
                end.map_or(bytes.len(), |at| at + 1)
            }
            due => due.min(bytes.len()),
        }
    }

    /// True if no message has begun: all bytes so far were whole messages.
    pub fn is_empty(&self) -> bool {
        self.framer.is_empty()
    }
}
