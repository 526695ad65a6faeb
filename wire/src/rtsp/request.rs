// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interprets a request: a command to execute, or the answer that refuses it.
//!
//! Requests that break a rule of the protocol become a complete refusal here. The server checks
//! that the asset, the session and the range exist. The rules (RFC 2326):
//!
//! | request | answer | rule |
//! |---|---|---|
//! | no CSeq, or one that is no number | 400 | §12.17 |
//! | Require or Proxy-Require | 551 and Unsupported | §12.32, §12.27; no feature is defined |
//! | RECORD, ANNOUNCE, REDIRECT | 405 and Allow | §11.3.1 |
//! | any other method | 501 | §10 |
//! | DESCRIBE that accepts no application/sdp | 406 | §12.1 |
//! | SETUP without Transport; without a readable one | 400; 461 | §12.39 |
//! | PLAY, PAUSE, TEARDOWN without Session | 454 | §11.3.5 ("missing") |
//! | PLAY with a Range that cannot be | 400, 457, 501 | see `range` |
//! | PLAY with a Scale or Speed that is no number; Speed 0 | 400 | §12.34, §12.35 |
//! | PAUSE with Range | 456 | §11.3.7; a pause point in the future (§10.6) is not kept |
//! | GET_PARAMETER and SET_PARAMETER with parameters | 451 | §10.8, §10.9; there are none |
//!
//! An unsupported Scale or Speed is not an error: §12.34 requires the server to answer with the
//! value it chose (`Response::play`), and a client that sends Speed (GStreamer at other rates)
//! reads it from there.
//!
//! GET_PARAMETER with a blank body is the sign of life of §10.8; a SET_PARAMETER that sets nothing
//! is one of some clients.

use rtsp_types::{HeaderName, Method, headers};

use super::frame::Frame;
use super::range::{self, NptRange, RangeUnit};
use super::response::{Echo, METHODS, Response};
use super::status::Status;
use super::transport::{self, TransportOffer};
use crate::error::{Fault, Malformed};
use crate::http::{Credentials, decoded_path};
use crate::sdp;

/// A request that was read.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Request {
    /// The number of the request; 0 when it had none (then `command` is a refusal).
    pub cseq: u32,
    /// The method as it was sent.
    pub method_name: String,
    /// Path of the URL, percent-decoded, beginning with a slash; `*` for the server as a whole. Dot
    /// segments are resolved (RFC 3986 §5.2.4). The query is removed, except for the name of a
    /// stream or track at its end, which clients append that build upon the URL of DESCRIBE.
    pub path: String,
    /// Query of the URL, unchanged but without such a name; `None` if it has none.
    pub query: Option<String>,
    /// The URL as it was sent (without dot segments, query and user), to be built upon in answers.
    pub url: String,
    /// Host and port of the URL by which the client addresses the server; none for `*`.
    pub authority: Option<String>,
    /// The session identifier, without parameters.
    pub session: Option<String>,
    /// Credentials of the client (RFC 2326 §12.5).
    pub credentials: Option<Credentials>,
    /// User-Agent of the client.
    pub user_agent: Option<String>,
    /// True if the client requests that the connection is closed after the answer (§12.10).
    pub close: bool,
    /// Command, or the answer that refuses it.
    pub command: Result<Command, Response>,
    pub(super) echo: Echo,
}

/// Command of a client.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Command {
    /// The methods there are.
    Options,
    /// The description of `path`.
    Describe,
    /// A session (or a place in the one of `Request::session`) with the first of these transports
    /// that can be served; at least one. Refuse a destination that is not the client's own
    /// (§12.39).
    Setup(Vec<TransportOffer>),
    /// Start, resume or seek. `Request::session` is set.
    Play(PlayRequest),
    /// Stop at once and keep the position. `Request::session` is set.
    Pause,
    /// End the session. `Request::session` is set.
    Teardown,
    /// A sign of life: GET_PARAMETER or SET_PARAMETER without parameters.
    KeepAlive,
}

/// Parameters of PLAY.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PlayRequest {
    /// Range to play; `None` means from the pause point, or from the beginning (§10.5).
    pub range: Option<NptRange>,
    /// Unit of its times.
    pub unit: RangeUnit,
    /// The requested viewing rate (§12.34); in an answer the rate that is played.
    pub scale: Option<f64>,
    /// The requested delivery rate (§12.35), above zero; in an answer the rate that is used.
    pub speed: Option<f64>,
}

type Message = rtsp_types::Request<Vec<u8>>;

/// Reads a framed request.
pub(super) fn interpret(frame: &Frame) -> Result<Request, Malformed> {
    let faulty = |fault| Malformed::new(frame.offset, fault);
    let message = match rtsp_types::Message::<Vec<u8>>::parse(&frame.head) {
        Ok((rtsp_types::Message::Request(message), _)) => message,
        // The framer passed a clean request line and clean headers: only the URL can be wrong.
        _ => return Err(faulty(Fault::Url)),
    };
    let uri = request_uri(&message).ok_or_else(|| faulty(Fault::Url))?;
    let cseq = value(&message, &headers::CSEQ).and_then(|cseq| cseq.parse().ok());
    let echo = Echo { cseq, timestamp: value(&message, &headers::TIMESTAMP).map(str::to_owned) };
    let session = value(&message, &headers::SESSION)
        .and_then(|v| v.split(';').next())
        .map(|id| id.trim().to_owned())
        .filter(|id| !id.is_empty());
    let parser = RequestParser {
        message: &message,
        echo: &echo,
        in_session: session.is_some(),
        has_parameters: !frame.body_is_blank,
    };
    let command = parser.command();
    Ok(Request {
        cseq: cseq.unwrap_or(0),
        method_name: <&str>::from(message.method()).to_owned(),
        path: uri.path,
        query: uri.query,
        url: uri.url,
        authority: uri.authority,
        session,
        credentials: value(&message, &headers::AUTHORIZATION)
            .map(|value| Credentials::new(value.as_bytes())),
        user_agent: value(&message, &headers::USER_AGENT).map(str::to_owned),
        close: value(&message, &headers::CONNECTION)
            .is_some_and(|v| v.split(',').any(|o| o.trim().eq_ignore_ascii_case("close"))),
        command,
        echo,
    })
}

impl Request {
    /// True if the URL requests the elementary streams of a transport stream, by the query
    /// [`ELEMENTARY_QUERY`], alone or among others.
    pub fn asks_elementary(&self) -> bool {
        let query = self.query.as_deref().unwrap_or_default();
        query.split('&').any(|parameter| parameter == ELEMENTARY_QUERY)
    }
}

/// The query of a URL that names the elementary streams of a transport stream as tracks.
pub const ELEMENTARY_QUERY: &str = "es";

struct RequestUri {
    path: String,
    query: Option<String>,
    url: String,
    authority: Option<String>,
}

fn request_uri(message: &Message) -> Option<RequestUri> {
    let Some(url) = message.request_uri() else {
        let (path, url) = ("*".into(), "*".into());
        return Some(RequestUri { path, query: None, url, authority: None });
    };
    let host = url.host_str().filter(|host| !host.is_empty())?;
    if !matches!(url.scheme(), "rtsp" | "rtsps" | "rtspu") {
        return None;
    }
    let authority = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    let mut raw = if url.path().is_empty() { "/" } else { url.path() }.to_owned();
    let (query, control) = url.query().map_or((None, None), |query| {
        let (query, control) = split_control(query);
        (Some(query.to_owned()), control)
    });
    if let Some(control) = control {
        raw = format!("{}/{control}", raw.trim_end_matches('/'));
    }
    let path = decoded_path(&raw);
    // An encoded slash could create dot segments after they were resolved.
    if path.contains('\0') || path.split('/').any(|segment| matches!(segment, "." | "..")) {
        return None;
    }
    let url = format!("{}://{authority}{raw}", url.scheme());
    Some(RequestUri { path, query, url, authority: Some(authority) })
}

/// The query without the name of a stream or track at its end, and that name.
fn split_control(query: &str) -> (&str, Option<&str>) {
    let query = query.trim_end_matches('/');
    match query.rsplit_once('/') {
        Some((before, last)) if is_control(last) => (before.trim_end_matches('/'), Some(last)),
        _ => (query, None),
    }
}

fn is_control(name: &str) -> bool {
    name == sdp::CONTROL || sdp::track_index(name).is_some()
}

fn value<'m>(message: &'m Message, name: &HeaderName) -> Option<&'m str> {
    message.header(name).map(|value| value.as_str().trim())
}

/// A parsed request, before its conversion to a command.
struct RequestParser<'m> {
    message: &'m Message,
    echo: &'m Echo,
    in_session: bool,
    has_parameters: bool,
}

impl RequestParser<'_> {
    fn command(&self) -> Result<Command, Response> {
        if self.echo.cseq.is_none() {
            return Err(self.refuse(Status::BadRequest));
        }
        if let Some(features) = self.required() {
            let refusal = self.refuse(Status::OptionNotSupported);
            return Err(refusal.header("Unsupported", features));
        }
        match self.message.method() {
            Method::Options => Ok(Command::Options),
            Method::Describe => self.describe(),
            Method::Setup => self.setup(),
            Method::Play => self.in_session().and_then(|()| self.play()),
            Method::Pause => self.in_session().and_then(|()| self.pause()),
            Method::Teardown => self.in_session().map(|()| Command::Teardown),
            Method::GetParameter | Method::SetParameter if self.has_parameters => {
                Err(self.refuse(Status::ParameterNotUnderstood))
            }
            Method::GetParameter | Method::SetParameter => Ok(Command::KeepAlive),
            Method::Announce | Method::Record | Method::Redirect => {
                Err(self.refuse(Status::MethodNotAllowed).header("Allow", METHODS))
            }
            _ => Err(self.refuse(Status::NotImplemented).header("Public", METHODS)),
        }
    }

    fn refuse(&self, status: Status) -> Response {
        Response::echoing(status, self.echo.clone())
    }

    /// All features that the client requires; none is supported, so all of them are Unsupported.
    fn required(&self) -> Option<String> {
        let tags = [headers::REQUIRE, headers::PROXY_REQUIRE];
        let tags: Vec<&str> = tags
            .iter()
            .filter_map(|name| value(self.message, name))
            .flat_map(|list| list.split(',').map(str::trim))
            .filter(|tag| !tag.is_empty())
            .collect();
        (!tags.is_empty()).then(|| tags.join(", "))
    }

    fn in_session(&self) -> Result<(), Response> {
        if self.in_session { Ok(()) } else { Err(self.refuse(Status::SessionNotFound)) }
    }

    fn describe(&self) -> Result<Command, Response> {
        match value(self.message, &headers::ACCEPT) {
            Some(accept) if !accepts_sdp(accept) => Err(self.refuse(Status::NotAcceptable)),
            _ => Ok(Command::Describe),
        }
    }

    fn setup(&self) -> Result<Command, Response> {
        let header = value(self.message, &headers::TRANSPORT)
            .ok_or_else(|| self.refuse(Status::BadRequest))?;
        let offers = transport::offers(header);
        if offers.is_empty() {
            let refusal = self.refuse(Status::UnsupportedTransport);
            return Err(refusal
                .reason(TRANSPORTS)
                .body("text/plain", format!("{TRANSPORTS_CURE}\n")));
        }
        Ok(Command::Setup(offers))
    }

    fn play(&self) -> Result<Command, Response> {
        let range = value(self.message, &headers::RANGE)
            .map(range::parse)
            .transpose()
            .map_err(|status| self.refuse(status))?;
        let (range, unit) = match range {
            Some((range, unit)) => (Some(range), unit),
            None => (None, RangeUnit::default()),
        };
        let scale = self.rate(&headers::SCALE)?;
        let speed = self.rate(&headers::SPEED)?;
        if speed.is_some_and(|speed| speed <= 0.0) {
            return Err(self.refuse(Status::BadRequest));
        }
        let goes_back = scale.is_some_and(|scale| scale < 0.0);
        if range.is_some_and(|range| range.is_backwards()) && !goes_back {
            return Err(self.refuse(Status::InvalidRange));
        }
        Ok(Command::Play(PlayRequest { range, unit, scale, speed }))
    }

    fn pause(&self) -> Result<Command, Response> {
        match value(self.message, &headers::RANGE) {
            Some(_) => Err(self.refuse(Status::HeaderFieldNotValidForResource)),
            None => Ok(Command::Pause),
        }
    }

    /// `["-"] 1*DIGIT ["." *DIGIT]` (§12.34); the sign is for the caller to judge.
    fn rate(&self, name: &HeaderName) -> Result<Option<f64>, Response> {
        let Some(text) = value(self.message, name) else { return Ok(None) };
        let digits = text.strip_prefix('-').unwrap_or(text);
        let plain = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.')
            && digits.starts_with(|c: char| c.is_ascii_digit());
        let number = text.parse().ok().filter(|_| plain);
        number.map(Some).ok_or_else(|| self.refuse(Status::BadRequest))
    }
}

/// True if a list of media ranges accepts application/sdp, `q=0` respected (RFC 2068 §14.1).
fn accepts_sdp(accept: &str) -> bool {
    accept.split(',').any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let fits = ["application/sdp", "application/*", "*/*"];
        let refused = |part: &str| {
            let zero = |q: &str| q.trim().parse::<f32>() == Ok(0.0);
            part.split_once('=').is_some_and(|(n, q)| n.trim().eq_ignore_ascii_case("q") && zero(q))
        };
        fits.iter().any(|fit| kind.eq_ignore_ascii_case(fit)) && !parts.any(refused)
    })
}

/// The path of the asset that a request path names: without the slash that aggregate URLs end in,
/// and without the name of the stream (`CONTROL`) or of a track.
///
/// `/its/path.ts`, `/its/path.ts/`, `/its/path.ts/stream` and `/its/path.ts/stream/` are one asset:
/// clients build the last three from Content-Base and `a=control` (RFC 2326 C.1.1), each in its own
/// way. A path that already names an asset is that asset: try it before this one.
pub fn asset_path(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    match path.rsplit_once('/') {
        Some((parent, last)) if is_control(last) => parent.trim_end_matches('/'),
        _ => path,
    }
}

/// The index of the track that a request path names by its control name.
pub fn asset_track(path: &str) -> Option<usize> {
    let path = path.trim_end_matches('/');
    path.rsplit_once('/').and_then(|(_, last)| sdp::track_index(last))
}

/// Base URL: that of the asset with one slash at its end (Content-Base, C.1.1).
pub fn content_base(url: &str) -> String {
    format!("{}/", asset_path(url))
}

/// In the status line of 461.
const TRANSPORTS: &str = "Unsupported Transport: RTP over UDP or TCP";
const TRANSPORTS_CURE: &str = "RTP over UDP (Transport: RTP/AVP;unicast;client_port=PORT-PORT) and \
    RTP on this connection (Transport: RTP/AVP/TCP;unicast;interleaved=0-1) are offered";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_an_asset_url_is_the_asset() {
        for path in
            ["/its/path.ts", "/its/path.ts/", "/its/path.ts/stream", "/its/path.ts//stream/"]
        {
            assert_eq!(asset_path(path), "/its/path.ts", "{path}");
        }
        assert_eq!(asset_path("/its/mainstream"), "/its/mainstream");
        assert_eq!(asset_path("/stream"), "");
        assert_eq!(asset_path("/"), "");
        assert_eq!(content_base("rtsp://h:8554/a.ts"), "rtsp://h:8554/a.ts/");
        assert_eq!(content_base("rtsp://h:8554/a.ts/"), "rtsp://h:8554/a.ts/");
    }

    #[test]
    fn dot_segments_behind_an_encoded_slash_are_refused_and_stay_so() {
        let mut reader = super::super::RequestReader::new(super::super::Limits::default());
        let good = "OPTIONS rtsp://h/x RTSP/1.0\r\nCSeq: 2\r\n\r\n";
        let bad = "OPTIONS rtsp://h/x/..%2Fsecret RTSP/1.0\r\nCSeq: 1\r\n\r\n";
        reader.feed(format!("{bad}{good}").as_bytes());
        let refused = reader.next_request().unwrap_err();
        assert_eq!(refused.fault, Fault::Url);
        assert_eq!(reader.next_request().unwrap_err(), refused, "what follows is not read");
    }

    #[test]
    fn escaping_is_undone_by_reading() {
        let paths = ["/a b/ü?#%41.ts", "/plain/path-1_2.ts", "/[x];y=z,&.ts", "/caf\u{10ffe9}.ts"];
        for path in paths {
            let escaped = crate::http::escape_path(path);
            assert!(escaped.bytes().all(|b| b.is_ascii_graphic()), "{escaped}");
            let line = format!("DESCRIBE rtsp://h{escaped} RTSP/1.0\r\nCSeq: 1\r\n\r\n");
            let mut reader = super::super::RequestReader::new(super::super::Limits::default());
            reader.feed(line.as_bytes());
            let request = reader.next_request().unwrap().unwrap();
            assert_eq!(request.path, path);
            assert_eq!(request.url, format!("rtsp://h{escaped}"));
        }
    }

    #[test]
    fn a_query_asks_for_elementary_streams_wherever_clients_put_the_track() {
        for (url, path, query, asks) in [
            ("/a.ts", "/a.ts", None, false),
            ("/a.ts?es", "/a.ts", Some("es"), true),
            ("/a.ts?es/", "/a.ts", Some("es"), true),
            ("/a.ts?es/track0", "/a.ts/track0", Some("es"), true),
            ("/a.ts/?x=1&es/track12/", "/a.ts/track12", Some("x=1&es"), true),
            ("/a.ts/track1?es", "/a.ts/track1", Some("es"), true),
            ("/a.ts?yes", "/a.ts", Some("yes"), false),
            ("/a.ts?es=x/../b", "/a.ts", Some("es=x/../b"), false),
            ("/a.ts?x/stream", "/a.ts/stream", Some("x"), false),
        ] {
            let line = format!("SETUP rtsp://h{url} RTSP/1.0\r\nCSeq: 1\r\n\r\n");
            let mut reader = super::super::RequestReader::new(super::super::Limits::default());
            reader.feed(line.as_bytes());
            let request = reader.next_request().unwrap().unwrap();
            assert_eq!(request.path, path, "{url}");
            assert_eq!(request.query.as_deref(), query, "{url}");
            assert_eq!(request.asks_elementary(), asks, "{url}");
            assert_eq!(request.url, format!("rtsp://h{path}"));
        }
    }

    #[test]
    fn accept_lists() {
        for yes in [
            "application/sdp",
            "application/sdp, application/rtsl, application/mheg", // RFC 2326 §10.2
            "text/plain;q=0.5, Application/SDP;level=2;q=0.1",
            "*/*",
        ] {
            assert!(accepts_sdp(yes), "{yes}");
        }
        for no in ["application/rtsl", "text/*", "application/sdp;q=0", "*/*; q=0.000", ""] {
            assert!(!accepts_sdp(no), "{no}");
        }
    }
}
