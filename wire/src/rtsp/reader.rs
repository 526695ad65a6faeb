// SPDX-License-Identifier: MIT OR Apache-2.0
//! Server's end of an RTSP connection: parses bytes into requests and interleaved frames.
//!
//! Feed the received bytes, then read requests and interleaved frames until there are none:
//! pipelined requests (RFC 2326 §9.1) are returned in order. Limits on memory are in the layer
//! below (`frame`). The time limit is here, and the caller checks it after each round: a request or
//! an interleaved frame whose first byte was received must be complete within [`REQUEST_TIME_MAX`],
//! however slowly it arrives. The caller limits the time for which a connection may be silent;
//! `is_empty` distinguishes the two.
//!
//! A request that is well framed but wrong in itself is still a [`Request`], and the connection
//! stays open; [`Malformed`] means that the following bytes cannot be trusted: send
//! [`Malformed::response`] and close.

use std::time::Duration;

use super::frame::{Framer, Limits, MessageKind, Received};
use super::request::{Request, interpret};
use super::response::{Echo, Response};
use super::status::Status;
use crate::error::{Fault, Malformed};

/// Longest time from the first byte of a request or of an interleaved frame to its last.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);

/// Turns the bytes of one connection into requests.
#[derive(Debug)]
pub struct RequestReader {
    framer: Framer,
    /// The message that is incomplete, by offset, and when that was first noticed.
    begun: Option<(u64, Duration)>,
    /// Fault in a framed request; nothing after it is read.
    faulty: Option<Malformed>,
}

impl RequestReader {
    /// A reader for a new connection.
    pub fn new(limits: Limits) -> Self {
        RequestReader {
            framer: Framer::new(limits, MessageKind::Requests),
            begun: None,
            faulty: None,
        }
    }

    /// Accepts bytes in the order of reception. Call [`next`](Self::next) until it returns none
    /// before the next `feed`: the reader then holds at most one incomplete request.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.framer.feed(bytes);
    }

    /// The next complete request or interleaved frame; none when more bytes are needed.
    ///
    /// # Errors
    /// A fault after which reading cannot continue. The connection is to be closed; the error
    /// repeats.
    // Not an Iterator: an error ends it, and "none" only means "not yet".
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Received<Request>>, Malformed> {
        if let Some(malformed) = &self.faulty {
            return Err(malformed.clone());
        }
        let frame = match self.framer.next()? {
            None => return Ok(None),
            Some(Received::Interleaved(frame)) => return Ok(Some(Received::Interleaved(frame))),
            Some(Received::Message(frame)) => frame,
        };
        let request = interpret(&frame);
        let request = request.inspect_err(|malformed| self.faulty = Some(malformed.clone()))?;
        Ok(Some(Received::Message(request)))
    }

    /// The next complete request, past any interleaved frames; for a caller without channels.
    ///
    /// # Errors
    /// Same as for [`next`](Self::next).
    pub fn next_request(&mut self) -> Result<Option<Request>, Malformed> {
        loop {
            match self.next()? {
                None => return Ok(None),
                Some(Received::Message(request)) => return Ok(Some(request)),
                Some(Received::Interleaved(_)) => {}
            }
        }
    }

    /// True if no request has begun: all bytes so far were whole requests.
    pub fn is_empty(&self) -> bool {
        self.framer.is_empty()
    }

    /// Consumed bytes of the connection; after an error, its offset.
    pub fn byte_offset(&self) -> u64 {
        self.framer.byte_offset()
    }

    /// Bytes of memory this reader holds.
    pub fn held_bytes(&self) -> usize {
        self.framer.held_bytes()
    }

    /// Deadline of the incomplete request or frame; none when none has begun. Call it after each
    /// round of `next`: the time runs from the first call for that request or frame.
    pub fn expires_at(&mut self, now: Duration) -> Option<Duration> {
        if self.is_empty() {
            self.begun = None;
            return None;
        }
        let offset = self.framer.message_offset();
        let begun = match self.begun {
            Some((at, since)) if at == offset => since,
            _ => now,
        };
        self.begun = Some((offset, begun));
        Some(begun.saturating_add(REQUEST_TIME_MAX))
    }

    /// Returns the error for a request or frame that was incomplete at `expires_at`.
    pub fn overdue(&self) -> Malformed {
        Malformed::new(self.byte_offset(), Fault::Overdue)
    }
}

impl Malformed {
    /// Status code of the answer to an RTSP client.
    pub fn status(&self) -> Status {
        match self.fault {
            Fault::StartLineTooLong { .. } => Status::RequestUriTooLarge,
            Fault::BodyTooLong { .. } => Status::RequestEntityTooLarge,
            Fault::Version => Status::VersionNotSupported,
            Fault::Overdue => Status::RequestTimeOut,
            _ => Status::BadRequest,
        }
    }

    /// The bytes to answer an RTSP client with before the connection is closed (RFC 2326 §7.1.1).
    /// Without CSeq: the request it would belong to was not understood.
    pub fn response(&self) -> Vec<u8> {
        let response = Response::echoing(self.status(), Echo::default());
        response.header("Connection", "close").encode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dripping_request_expires_and_a_silent_connection_does_not() {
        let second = Duration::from_secs(1);
        let mut reader = RequestReader::new(Limits::default());
        assert_eq!(reader.expires_at(second), None);
        for (tick, byte) in (2..).zip(b"OPTIONS * RTSP/1.0\r\nCSe") {
            reader.feed(std::slice::from_ref(byte));
            assert_eq!(reader.next(), Ok(None));
            assert_eq!(reader.expires_at(second * tick), Some(second * 2 + REQUEST_TIME_MAX));
        }
        let refusal = reader.overdue().response();
        assert!(refusal.starts_with(b"RTSP/1.0 408 "));
        // Complete: no time runs. Another is begun: its own time runs.
        reader.feed(b"q: 1\r\n\r\n");
        assert!(reader.next().unwrap().is_some());
        assert_eq!(reader.next(), Ok(None));
        assert_eq!(reader.expires_at(second * 90), None);
        reader.feed(b"O");
        assert_eq!(reader.next(), Ok(None));
        assert_eq!(reader.expires_at(second * 100), Some(second * 100 + REQUEST_TIME_MAX));
    }

    #[test]
    fn a_dripping_frame_expires_whether_it_is_stored_or_skipped() {
        let second = Duration::from_secs(1);
        for data_bytes in [100_u16, 60_000] {
            let mut reader = RequestReader::new(Limits::default());
            // A whole frame precedes it: the time is that of the second frame.
            reader.feed(b"$\x01\0\0");
            assert!(reader.next().unwrap().is_some());
            let header = crate::rtsp::interleaved_header(1, data_bytes);
            for (tick, byte) in (2..).zip(header.iter().chain(&[0; 50])) {
                reader.feed(std::slice::from_ref(byte));
                assert_eq!(reader.next(), Ok(None));
                let due = Some(second * 2 + REQUEST_TIME_MAX);
                assert_eq!(reader.expires_at(second * tick), due, "{data_bytes} bytes");
            }
            assert!(reader.overdue().response().starts_with(b"RTSP/1.0 408 "));
        }
    }

    #[test]
    fn each_fault_has_its_answer() {
        for (bytes, expected) in [
            (&b"OPTIONS * RTSP/2.0\r\n"[..], "RTSP/1.0 505 "),
            (b"GET / HTTP/1.1\r\n", "RTSP/1.0 400 "),
            (b"PLAY * RTSP/1.0\r\nContent-Length: 9999999\r\n\r\n", "RTSP/1.0 413 "),
            (&[b'A'; 20_000], "RTSP/1.0 414 "),
            (b"PLAY http://h/ RTSP/1.0\r\n\r\n", "RTSP/1.0 400 "),
        ] {
            let mut reader = RequestReader::new(Limits::default());
            reader.feed(bytes);
            let response = String::from_utf8(reader.next().unwrap_err().response()).unwrap();
            assert!(response.starts_with(expected), "{response}");
            assert!(response.ends_with("\r\nConnection: close\r\n\r\n"), "{response}");
        }
    }
}
