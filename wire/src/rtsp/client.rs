// SPDX-License-Identifier: MIT OR Apache-2.0
//! Client side of RTSP: writes requests and interprets replies.
//!
//! Plays one MPEG transport stream over RTP/AVP, or the streams of a presentation, and sends no
//! request it does not need. A reply without a part that RFC 2326 requires and that cannot be
//! derived is a fault, named with its section. Cameras omit, or write in their own way, the base of
//! a description, the channels of a transport and the parameters of a session: the requested values
//! are used instead. One request at a time is in flight; the caller matches [`Reply::cseq`] if it
//! needs more. Requests from the server are dropped. Interleaved frames are returned between the
//! replies.
//!
//! Sources: RFC 2326 §10, §12.33, §12.37, §12.39, C.1.1; RFC 7826 §4.2 (`rtsps`).

use std::fmt::Write as _;
use std::str::FromStr;
use std::time::Duration;

use rtsp_types::Url;

pub use super::reply::{Reply, ReplyReader};

use super::range::{self, NptRange, RangeUnit};
use super::transport::{self, ChannelPair, LowerTransport, PortPair, TransportOffer};
use crate::error::{Fault, Malformed};
use crate::sdp;

/// Requests of one session, and the state that their replies establish.
#[derive(Debug, Clone)]
pub struct Client {
    url: String,
    host: String,
    port: u16,
    is_tls: bool,
    /// URL of the stream; that of the presentation before the reply to DESCRIBE.
    stream_url: String,
    session: Option<String>,
    cseq: u32,
}

/// Parsed reply to DESCRIBE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribeReply {
    /// The stream in the description.
    pub offer: sdp::Offer,
    /// URL to which SETUP is sent.
    pub stream_url: String,
}

/// Parsed reply to DESCRIBE of a presentation, whose streams are set up one by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedSession {
    /// The streams in the description.
    pub offer: sdp::SessionOffer,
    /// The URL of SETUP for each of them.
    pub stream_urls: Vec<String>,
}

/// Start of a stream by RTP-Info.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamStart {
    /// The sequence number of the first packet.
    pub sequence: Option<u16>,
    /// The RTP timestamp of the start of the range.
    pub timestamp: Option<u32>,
}

/// Parsed reply to SETUP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetupReply {
    /// Ports from which media is sent and to which receiver reports are sent.
    pub server: Option<PortPair>,
    /// Address of these ports, if it is not that of the RTSP connection.
    pub source: Option<String>,
    /// The stream is carried on the RTSP connection.
    pub is_interleaved: bool,
    /// Channels of the stream on the connection; `None` if the reply names none: those of the
    /// request apply.
    pub channels: Option<ChannelPair>,
    /// Multicast group of the stream; `None` if it is sent to this client only.
    pub multicast: Option<MulticastGroup>,
    /// SSRC of the packets to expect.
    pub ssrc: Option<u32>,
    /// Session timeout: 60 s if the reply has none (§12.37), an hour at most.
    pub timeout: Duration,
    /// Invalid parts that are only informative, verbatim: they were ignored.
    pub ignored: Vec<String>,
}

/// Multicast group in the reply to SETUP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MulticastGroup {
    /// Address of the group, unchanged.
    pub destination: String,
    /// Ports of the group for RTP and RTCP.
    pub ports: PortPair,
}

/// Parsed reply to PLAY.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlayReply {
    /// Range being played.
    pub range: Option<NptRange>,
    /// The sequence number of the first packet.
    pub sequence: Option<u16>,
    /// The RTP timestamp of the start of the range.
    pub timestamp: Option<u32>,
    /// Invalid parts, verbatim: they were ignored.
    pub ignored: Vec<String>,
}

impl Client {
    /// A client of the asset at an `rtsp:` or `rtsps:` URL. User and password are not sent.
    ///
    /// # Errors
    /// [`Fault::Url`].
    pub fn new(url: &str) -> Result<Self, Malformed> {
        let fault = || Malformed::new(0, Fault::Url);
        let mut parsed = Url::parse(url).map_err(|_| fault())?;
        let host = parsed.host_str().unwrap_or_default().to_owned();
        let is_tls = match parsed.scheme() {
            "rtsp" => false,
            "rtsps" => true,
            _ => return Err(fault()),
        };
        if host.is_empty() {
            return Err(fault());
        }
        parsed.set_username("").and_then(|()| parsed.set_password(None)).map_err(|()| fault())?;
        parsed.set_fragment(None);
        let port = parsed.port().unwrap_or(if is_tls { TLS_PORT } else { DEFAULT_PORT });
        let host = host.trim_matches(['[', ']']).to_owned();
        let url = String::from(parsed);
        Ok(Client { stream_url: url.clone(), url, host, port, is_tls, session: None, cseq: 0 })
    }

    /// Name or address of the server; an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// TCP port of the server: 554 if the URL has none (§9.2), 322 with TLS (RFC 7826 §4.2).
    pub fn port(&self) -> u16 {
        self.port
    }

    /// True for an `rtsps:` URL: the connection is one of TLS.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// URL to which SETUP is sent.
    pub fn stream_url(&self) -> &str {
        &self.stream_url
    }

    /// Sets the URL to which SETUP is sent, of a stream chosen by the caller.
    pub fn set_stream_url(&mut self, url: &str) {
        self.stream_url = url.to_owned();
    }

    /// Number of the last request.
    pub fn cseq(&self) -> u32 {
        self.cseq
    }

    /// OPTIONS of the asset.
    pub fn options(&mut self) -> Vec<u8> {
        self.request("OPTIONS", false, "")
    }

    /// DESCRIBE of the asset.
    pub fn describe(&mut self) -> Vec<u8> {
        self.request("DESCRIBE", false, "Accept: application/sdp\r\n")
    }

    /// SETUP of the stream by one transport.
    pub fn setup(&mut self, offer: &TransportOffer) -> Vec<u8> {
        self.request("SETUP", true, &format!("Transport: {offer}\r\n"))
    }

    /// PLAY: from the start, on from a pause, or a range.
    pub fn play(&mut self, range: Option<NptRange>) -> Vec<u8> {
        let header = range.map(|range| format!("Range: {range}\r\n")).unwrap_or_default();
        self.request("PLAY", false, &header)
    }

    /// PAUSE.
    pub fn pause(&mut self) -> Vec<u8> {
        self.request("PAUSE", false, "")
    }

    /// GET_PARAMETER: a sign of life (§10.8).
    pub fn get_parameter(&mut self) -> Vec<u8> {
        self.request("GET_PARAMETER", false, "")
    }

    /// TEARDOWN; the session is not named in later requests.
    pub fn teardown(&mut self) -> Vec<u8> {
        let bytes = self.request("TEARDOWN", false, "");
        self.session = None;
        bytes
    }

    /// The same request with the next number, to be sent again after a challenge (401).
    pub fn again(&mut self, request: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(request);
        let before = format!("\r\nCSeq: {}\r\n", self.cseq);
        self.cseq = self.cseq.wrapping_add(1);
        text.replacen(&before, &format!("\r\nCSeq: {}\r\n", self.cseq), 1).into_bytes()
    }

    fn request(&mut self, method: &str, of_stream: bool, header: &str) -> Vec<u8> {
        self.cseq = self.cseq.wrapping_add(1);
        let url = if of_stream { &self.stream_url } else { &self.url };
        let mut text = format!("{method} {url} RTSP/1.0\r\nCSeq: {}\r\n", self.cseq);
        text.push_str("User-Agent: pagewire\r\n");
        if let Some(session) = &self.session {
            let _ = write!(text, "Session: {session}\r\n");
        }
        text.push_str(header);
        text.push_str("\r\n");
        text.into_bytes()
    }

    /// Processes the reply to DESCRIBE; `setup` then goes to the URL of the stream.
    ///
    /// # Errors
    /// A status other than 200, and a description without an MPEG transport stream.
    pub fn described(&mut self, reply: &Reply) -> Result<DescribeReply, Malformed> {
        reply.expect_ok()?;
        let offer = sdp::parse(&reply.body)?;
        self.stream_url = resolve(&self.base(reply), offer.stream_control.as_deref());
        Ok(DescribeReply { offer, stream_url: self.stream_url.clone() })
    }

    /// Processes the reply to DESCRIBE of a presentation of any formats. Requests for all streams
    /// then go to the URL that the description names for them, if it names one.
    ///
    /// # Errors
    /// A status other than 200, and a description without any stream over RTP/AVP.
    pub fn described_session(&mut self, reply: &Reply) -> Result<DescribedSession, Malformed> {
        reply.expect_ok()?;
        let offer = sdp::parse_tracks(&reply.body)?;
        let base = self.base(reply);
        let url = |track: &sdp::TrackOffer| resolve(&base, track.control.as_deref());
        let stream_urls = offer.tracks.iter().map(url).collect();
        // A server that names a URL other than the requested one identifies the session by that
        // URL.
        if let Some(aggregate) = offer.control.as_deref().filter(|name| name.contains("://")) {
            self.url = aggregate.to_owned();
        }
        Ok(DescribedSession { offer, stream_urls })
    }

    /// Returns the base of the URLs of a description: Content-Base, Content-Location or the URL of
    /// the request, in this order (C.1.1). The first two may be relative or empty themselves. A
    /// host other than the one connected to is kept: requests use the name that the server has for
    /// itself.
    fn base(&self, reply: &Reply) -> String {
        let named = ["Content-Base", "Content-Location"].map(|name| reply.header(name));
        let named = named.into_iter().flatten().find_map(|base| absolute(&self.url, base));
        named.unwrap_or_else(|| self.url.clone())
    }

    /// Returns the target URL of a 3xx reply (§11.3, §12.25), without a user; `None` if it is not
    /// an RTSP URL.
    pub fn moved(&self, reply: &Reply) -> Option<String> {
        let is_moved = MOVED.contains(&reply.status());
        let to = reply.header("Location").filter(|_| is_moved)?;
        Some(Client::new(&absolute(&self.url, to)?).ok()?.url)
    }

    /// SETUP of one stream of several, by one transport.
    pub fn setup_stream(&mut self, url: &str, offer: &TransportOffer) -> Vec<u8> {
        self.stream_url = url.to_owned();
        self.setup(offer)
    }

    /// Processes the reply to PLAY of several streams: returns the start of each stream, by its URL
    /// of SETUP. Streams that RTP-Info does not name have no start.
    ///
    /// # Errors
    /// As for [`started`](Self::started).
    pub fn streams_started(
        &self,
        reply: &Reply,
        stream_urls: &[String],
    ) -> Result<(PlayReply, Vec<StreamStart>), Malformed> {
        let (started, named) = read_started(reply)?;
        let mut starts = vec![StreamStart::default(); stream_urls.len()];
        for (number, &(url, start)) in named.iter().enumerate() {
            // Relative URLs are not allowed (§12.33), and sent.
            let is_it = |known: &String| {
                known == url || !url.is_empty() && known.ends_with(&format!("/{url}"))
            };
            let by_order = (named.len() == starts.len()).then_some(number);
            let index = stream_urls.iter().position(is_it).or(by_order);
            if let Some(slot) = index.and_then(|index| starts.get_mut(index)) {
                *slot = start;
            }
        }
        Ok((started, starts))
    }

    /// Processes the reply to SETUP; later requests name its session.
    ///
    /// # Errors
    /// A status other than 200, no Session, no usable Transport. Unreadable parameters that are
    /// only informative are ignored, and named in the result.
    pub fn set_up(&mut self, reply: &Reply) -> Result<SetupReply, Malformed> {
        reply.expect_ok()?;
        let session = reply.required("Session")?;
        let (id, parameters) = session.split_once(';').unwrap_or((session, ""));
        if id.trim().is_empty() {
            return Err(reply.fault(Fault::ReplyHeader { name: "Session" }));
        }
        let mut parameters = parameters.split(';').map(transport::parameter);
        let timeout_s = parameters.find(|(name, _)| name.eq_ignore_ascii_case("timeout"));
        // Some write a unit, and 0 for none.
        let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
        let timeout_s = timeout_s.and_then(|(_, seconds)| digits(seconds).parse().ok());
        let timeout_s = timeout_s.filter(|seconds| *seconds > 0).unwrap_or(TIMEOUT_S_DEFAULT);
        let timeout = Duration::from_secs(timeout_s.min(TIMEOUT_S_MAX));
        let granted = reply.required("Transport")?;
        let set_up = granted_transport(granted, timeout)
            .ok_or_else(|| reply.fault(Fault::ReplyHeader { name: "Transport" }))?;
        self.session = Some(id.trim().to_owned());
        Ok(set_up)
    }

    /// Processes the reply to PLAY. RTP-Info and Range may be absent (§12.33); invalid ones are
    /// ignored and named in the result.
    ///
    /// # Errors
    /// A status other than 200.
    pub fn started(&self, reply: &Reply) -> Result<PlayReply, Malformed> {
        read_started(reply).map(|(started, _)| started)
    }
}

/// Start of a stream, with its URL in RTP-Info.
type NamedStart<'a> = (&'a str, StreamStart);

/// Reads the reply to PLAY, and the start of each stream that it names, with its URL.
fn read_started(reply: &Reply) -> Result<(PlayReply, Vec<NamedStart<'_>>), Malformed> {
    reply.expect_ok()?;
    let mut started = PlayReply::default();
    if let Some(text) = reply.header("Range") {
        match range::parse(text) {
            // No request asked for reverse play.
            Ok((range, _)) if range.is_backwards() => {
                started.ignored.push(format!("Range: {text}"));
            }
            Ok((range, RangeUnit::Npt)) => started.range = Some(range),
            // A camera's time of day is not a position in an asset.
            Ok(_) => {}
            Err(_) => started.ignored.push(format!("Range: {text}")),
        }
    }
    let mut named = Vec::new();
    for part in transport::split_unquoted(reply.header("RTP-Info").unwrap_or_default(), ',') {
        let (mut url, mut start) = ("", StreamStart::default());
        for parameter in transport::split_unquoted(part, ';') {
            let is_read = match transport::parameter(parameter) {
                ("url", value) => {
                    url = value.trim_matches('"');
                    true
                }
                ("seq", value) => read(value, &mut start.sequence),
                ("rtptime", value) => read(value, &mut start.timestamp),
                _ => true,
            };
            if !is_read {
                started.ignored.push(format!("RTP-Info: {}", parameter.trim()));
            }
        }
        named.push((url, start));
    }
    // One stream was set up, so one is expected: the text after a comma would belong to another
    // stream.
    if let Some((_, first)) = named.first() {
        (started.sequence, started.timestamp) = (first.sequence, first.timestamp);
    }
    Ok((started, named))
}

/// Parses a number; returns false if it is out of range.
fn read<T: FromStr>(text: &str, number: &mut Option<T>) -> bool {
    *number = text.parse().ok();
    number.is_some()
}

/// Parses the Transport header of a reply; `None` if it contradicts itself.
fn granted_transport(granted: &str, timeout: Duration) -> Option<SetupReply> {
    let mut parts = transport::split_unquoted(granted, ';').map(str::trim);
    let lower = LowerTransport::of(parts.next().unwrap_or_default())?;
    let (mut is_multicast, mut destination, mut ports) = (false, None, None);
    let mut set_up = SetupReply {
        server: None,
        source: None,
        is_interleaved: lower == LowerTransport::Tcp,
        channels: None,
        multicast: None,
        ssrc: None,
        timeout,
        ignored: Vec::new(),
    };
    for part in parts {
        let (name, value) = transport::parameter(part);
        let is_read = match name.to_ascii_lowercase().as_str() {
            "interleaved" => {
                // Channels are on the connection, for any profile.
                set_up.is_interleaved = true;
                set_up.channels = transport::channel_pair(value);
                set_up.channels.is_some()
            }
            "server_port" => {
                set_up.server = transport::port_pair(value);
                set_up.server.is_some()
            }
            "ssrc" => {
                set_up.ssrc = u32::from_str_radix(value, 16).ok();
                set_up.ssrc.is_some()
            }
            "multicast" => {
                is_multicast = true;
                true
            }
            "destination" => {
                destination = Some(value.to_owned());
                true
            }
            "port" => {
                ports = transport::port_pair(value);
                true
            }
            "source" => {
                set_up.source = Some(value.to_owned());
                true
            }
            _ => true,
        };
        if !is_read {
            set_up.ignored.push(format!("Transport: {part}"));
        }
    }
    // §12.39: a group has an address and ports.
    if is_multicast {
        set_up.multicast = Some(MulticastGroup { destination: destination?, ports: ports? });
    }
    Some(set_up)
}

/// C.1.1: absolute, `*` or empty for the base itself, else appended to the base. All known clients
/// insert a slash where RFC 1808 would remove the last segment; so does this one.
fn resolve(base: &str, control: Option<&str>) -> String {
    match control {
        None | Some("*" | "") => base.to_owned(),
        Some(absolute) if absolute.contains("://") => absolute.to_owned(),
        Some(relative) if base.ends_with('/') => format!("{base}{relative}"),
        Some(relative) => format!("{base}/{relative}"),
    }
}

/// Returns an absolute URL unchanged, or resolves a path on the server of `url`; `None` for other
/// text.
fn absolute(url: &str, named: &str) -> Option<String> {
    if named.contains("://") {
        return Some(named.to_owned());
    }
    let path = named.strip_prefix('/').filter(|path| !path.starts_with('/'))?;
    let host_at = url.find("://")? + 3;
    let host = url[host_at..].split('/').next()?;
    Some(format!("{}{host}/{path}", &url[..host_at]))
}

/// §11.3.2, §11.3.3 and the status codes of HTTP (RFC 9110 §15.4) that some servers send.
const MOVED: [u16; 6] = [300, 301, 302, 303, 307, 308];

/// §9.2.
const DEFAULT_PORT: u16 = 554;
const TLS_PORT: u16 = 322;

/// §12.37.
const TIMEOUT_S_DEFAULT: u64 = 60;
/// A keep-alive every twenty minutes is no burden, and no clock overflows.
const TIMEOUT_S_MAX: u64 = 3600;

#[cfg(test)]
mod tests;
