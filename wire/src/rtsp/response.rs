// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the answers of the server: status, headers, body, and their bytes.
//!
//! One constructor for each successful answer, [`Response::new`] for the rest. Every answer is
//! created from the request it answers, because CSeq (RFC 2326 §12.17) and Timestamp (§12.38) must
//! be returned unchanged. Values from the peer or from a file name cannot inject a line: CR, LF and
//! NUL become spaces when the answer is encoded. One allocation for the bytes.
//!
//! The caller adds Date and Server (`header`): both are optional (§12.18, §12.36), and this crate
//! reads no clock.
//!
//! Sources: RFC 2326 §7, §10, §12; Appendix C for Content-Base.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use super::request::{PlayRequest, Request};
use super::status::Status;
use super::transport::GrantedTransport;

/// The methods that are served, as Public (§12.28) and Allow (§12.4) list them.
pub const METHODS: &str = "OPTIONS, DESCRIBE, SETUP, PLAY, PAUSE, TEARDOWN, GET_PARAMETER";

/// Headers of a request that its answer repeats.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Echo {
    /// The number of the request; none when it had none that could be read.
    pub cseq: Option<u32>,
    /// The Timestamp header, word for word.
    pub timestamp: Option<String>,
}

/// An answer in the making.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    status: Status,
    /// Phrase instead of the usual one.
    reason: Option<Cow<'static, str>>,
    echo: Echo,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

/// First packet of a stream after PLAY: the RTP-Info of the answer (§12.33).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtpInfo<'a> {
    /// URL of the stream, as in the client's request or in the description.
    pub url: &'a str,
    /// Sequence number of the first packet that is sent; unset if it is not yet known, because the
    /// play is queued after another.
    pub sequence: Option<u16>,
    /// RTP timestamp of the start of the range in the answer.
    pub timestamp: u32,
}

impl Response {
    /// Creates an answer with only a status.
    pub fn new(status: Status, request: &Request) -> Self {
        Response::echoing(status, request.echo.clone())
    }

    /// An answer to a client that has sent no request yet.
    pub fn unasked(status: Status) -> Self {
        Response::echoing(status, Echo::default())
    }

    pub(super) fn echoing(status: Status, echo: Echo) -> Self {
        Response { status, reason: None, echo, headers: Vec::new(), body: Vec::new() }
    }

    /// 200 to OPTIONS: the methods there are (§10.1).
    pub fn options(request: &Request) -> Self {
        Response::new(Status::Ok, request).header("Public", METHODS)
    }

    /// 200 to DESCRIBE: the description, and the URL its control attributes are relative to (§10.2,
    /// C.1.1). `content_base` ends in a slash, or the last segment of the path is lost on the way.
    pub fn describe(request: &Request, content_base: &str, sdp: impl Into<Vec<u8>>) -> Self {
        Response::new(Status::Ok, request)
            .header("Content-Base", content_base)
            .body("application/sdp", sdp)
    }

    /// 200 to SETUP: the session, how long it lives unheard, and the transport chosen (§10.4).
    pub fn setup(
        request: &Request,
        session: &str,
        timeout: Duration,
        granted: &GrantedTransport,
    ) -> Self {
        Response::new(Status::Ok, request)
            .header("Session", format!("{session};timeout={}", timeout.as_secs()))
            .header("Transport", granted.to_string())
    }

    /// 200 to PLAY: the range that is really played (§12.29) and the RTP packet with which each
    /// stream begins.
    ///
    /// The range is in the unit of `play`. Scale and Speed, if the request had one, are answered
    /// with the values of `play`, which are those used, as §12.34 requires. `start` and `end` are
    /// times since 1970 if the unit is that of the clock.
    pub fn play(
        request: &Request,
        session: &str,
        play: &PlayRequest,
        start: Duration,
        end: Option<Duration>,
        streams: &[RtpInfo<'_>],
    ) -> Self {
        let range = play.unit.write(start, end);
        let info = |info: &RtpInfo<'_>| {
            let sequence = info.sequence.map(|sequence| format!(";seq={sequence}"));
            let sequence = sequence.unwrap_or_default();
            format!("url={}{sequence};rtptime={}", info.url, info.timestamp)
        };
        let rtp_info = streams.iter().map(info).collect::<Vec<_>>().join(",");
        let response = Response::in_session(request, session).header("Range", range);
        response.rates(play).header("RTP-Info", rtp_info)
    }

    /// 200 to PLAY of a multicast stream: a client joins at the current position (§3.6, `now`), so
    /// no packet is its first.
    /// The group has one rate, that of the media.
    pub fn play_group(request: &Request, session: &str, play: &PlayRequest) -> Self {
        let rates = PlayRequest {
            scale: play.scale.map(|_| 1.0),
            speed: play.speed.map(|_| 1.0),
            ..PlayRequest::default()
        };
        Response::in_session(request, session).header("Range", "npt=now-").rates(&rates)
    }

    /// Adds Scale and Speed (§12.34, §12.35) where the request has them.
    fn rates(self, play: &PlayRequest) -> Self {
        let scale = play.scale.map(|scale| ("Scale", format!("{scale:?}")));
        let speed = play.speed.map(|speed| ("Speed", format!("{speed:?}")));
        let add = |response: Response, (name, value)| response.header(name, value);
        scale.into_iter().chain(speed).fold(self, add)
    }

    /// 200 with the Session header and nothing more: PAUSE, TEARDOWN, and GET_PARAMETER as a sign
    /// of life (§10.6 to §10.8).
    pub fn in_session(request: &Request, session: &str) -> Self {
        Response::new(Status::Ok, request).header("Session", session)
    }

    /// 455 with the methods that are valid in this state (§11.3.6).
    pub fn not_in_this_state(request: &Request, allow: &str) -> Self {
        Response::new(Status::MethodNotValidInThisState, request).header("Allow", allow)
    }

    /// With one more header.
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Sets the reason phrase of the status line, which many clients show and nothing else (§7.1.1
    /// lets a server choose it). Characters other than printable ASCII become spaces.
    pub fn reason(mut self, reason: impl Into<Cow<'static, str>>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Sets the body, with Content-Type and Content-Length.
    pub fn body(mut self, content_type: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.body = bytes.into();
        self.header("Content-Type", content_type)
    }

    /// The status.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The value of a header that was added.
    pub fn value(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(have, _)| have.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The bytes to send.
    pub fn encode(&self) -> Vec<u8> {
        let values: usize = self.headers.iter().map(|(n, v)| n.len() + v.len() + 4).sum();
        let mut head = String::with_capacity(HEAD_BYTES_USUAL + values + self.body.len());
        let _ = write!(head, "RTSP/1.0 {} ", self.status.code());
        let reason = self.reason.as_deref().unwrap_or(self.status.reason());
        head.extend(reason.chars().map(|c| if c.is_ascii_graphic() { c } else { ' ' }));
        head.push_str("\r\n");
        if let Some(cseq) = self.echo.cseq {
            let _ = write!(head, "CSeq: {cseq}\r\n");
        }
        if let Some(timestamp) = &self.echo.timestamp {
            push_header(&mut head, "Timestamp", timestamp);
        }
        for (name, value) in &self.headers {
            push_header(&mut head, name, value);
        }
        if !self.body.is_empty() {
            let _ = write!(head, "Content-Length: {}\r\n", self.body.len());
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

fn push_header(head: &mut String, name: &str, value: &str) {
    head.push_str(name);
    head.push_str(": ");
    head.extend(value.chars().map(|c| if c.is_control() && c != '\t' { ' ' } else { c }));
    head.push_str("\r\n");
}

/// Bytes of the status line, CSeq and Content-Length.
const HEAD_BYTES_USUAL: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_cannot_start_a_new_line() {
        let echo = Echo { cseq: Some(7), timestamp: Some("1\r\nSession: stolen".into()) };
        let response = Response::echoing(Status::OptionNotSupported, echo)
            .header("Unsupported", "a\r\n\r\nRTSP/1.0 200 OK");
        let bytes = response.encode();
        assert_eq!(
            bytes,
            b"RTSP/1.0 551 Option Not Supported\r\nCSeq: 7\r\nTimestamp: 1  Session: stolen\r\n\
              Unsupported: a    RTSP/1.0 200 OK\r\n\r\n"
        );
    }

    #[test]
    fn phrase_of_its_own_stays_in_the_status_line() {
        let echo = Echo { cseq: Some(7), timestamp: None };
        let response = Response::echoing(Status::UnsupportedMediaType, echo)
            .reason("film\r\nSession: stolen, §2".to_owned());
        let line = b"RTSP/1.0 415 film  Session: stolen,  2\r\nCSeq: 7\r\n\r\n";
        assert_eq!(response.encode(), line);
    }

    #[test]
    fn a_body_brings_its_type_and_length() {
        let response = Response::echoing(Status::Ok, Echo { cseq: Some(1), timestamp: None })
            .body("text/parameters", &b"barparam"[..]);
        assert_eq!(
            response.encode(),
            b"RTSP/1.0 200 OK\r\nCSeq: 1\r\nContent-Type: text/parameters\r\n\
              Content-Length: 8\r\n\r\nbarparam"
        );
    }
}
