// SPDX-License-Identifier: MIT OR Apache-2.0
//! Client side of RTSP: requests out, replies in. For players and tests that verify a server.
//!
//! Verifies the server instead of coping with any server: plays one MPEG transport stream over
//! RTP/AVP, or the streams of a presentation, and sends no request it does not need. A reply that
//! lacks what RFC 2326 requires is a fault, named with its section. One request at a time is in
//! flight; the caller matches [`Reply::cseq`] if it wants more. Requests that the server sends are
//! dropped. Interleaved frames come out between the replies.
//!
//! Sources: RFC 2326 §10, §12.33, §12.37, §12.39, C.1.1.

use std::fmt::Write as _;
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
    /// The URL of the stream; that of the presentation until DESCRIBE was answered.
    stream_url: String,
    session: Option<String>,
    cseq: u32,
}

/// Parsed reply to DESCRIBE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribeReply {
    /// The stream in the description.
    pub offer: sdp::Offer,
    /// The URL that SETUP goes to.
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
    /// The ports that media comes from and that receiver reports go to.
    pub server: Option<PortPair>,
    /// The address they are at, where it is not that of the RTSP connection.
    pub source: Option<String>,
    /// The channels that carry the stream on the RTSP connection; `None` over UDP.
    pub channels: Option<ChannelPair>,
    /// The group that the stream is sent to; `None` where it is sent to this client alone.
    pub multicast: Option<MulticastGroup>,
    /// SSRC of the packets to expect.
    pub ssrc: Option<u32>,
    /// Session timeout: 60 s where the reply has none (§12.37).
    pub timeout: Duration,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlayReply {
    /// Range being played.
    pub range: Option<NptRange>,
    /// The sequence number of the first packet.
    pub sequence: Option<u16>,
    /// The RTP timestamp of the start of the range.
    pub timestamp: Option<u32>,
}

impl Client {
    /// A client of the asset at an `rtsp:` URL. User and password are not sent.
    ///
    /// # Errors
    /// [`Fault::Url`].
    pub fn new(url: &str) -> Result<Self, Malformed> {
        let fault = || Malformed::new(0, Fault::Url);
        let mut parsed = Url::parse(url).map_err(|_| fault())?;
        let host = parsed.host_str().unwrap_or_default().to_owned();
        if parsed.scheme() != "rtsp" || host.is_empty() {
            return Err(fault());
        }
        parsed.set_username("").and_then(|()| parsed.set_password(None)).map_err(|()| fault())?;
        parsed.set_fragment(None);
        let port = parsed.port().unwrap_or(DEFAULT_PORT);
        let host = host.trim_matches(['[', ']']).to_owned();
        let url = String::from(parsed);
        Ok(Client { stream_url: url.clone(), url, host, port, session: None, cseq: 0 })
    }

    /// Name or address of the server; an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// TCP port of the server: 554 where the URL has none (§9.2).
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL that SETUP goes to.
    pub fn stream_url(&self) -> &str {
        &self.stream_url
    }

    /// Sets the URL that SETUP goes to, of a stream that was chosen by the caller.
    pub fn set_stream_url(&mut self, url: &str) {
        self.stream_url = url.to_owned();
    }

    /// The number of the last request made.
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

    /// Takes the reply to DESCRIBE; `setup` then goes to the URL of the stream.
    ///
    /// # Errors
    /// A status other than 200, and a description without an MPEG transport stream.
    pub fn described(&mut self, reply: &Reply) -> Result<DescribeReply, Malformed> {
        reply.expect_ok()?;
        let offer = sdp::parse(&reply.body)?;
        // C.1.1: relative to Content-Base, Content-Location, the URL of the request, in this order.
        let base = reply.header("Content-Base").or(reply.header("Content-Location"));
        let base = base.unwrap_or(&self.url);
        self.stream_url = resolve(base, offer.stream_control.as_deref());
        Ok(DescribeReply { offer, stream_url: self.stream_url.clone() })
    }

    /// Takes the reply to DESCRIBE of a presentation of any formats. Requests of all streams then
    /// go to the URL that the description names for them, if it names one.
    ///
    /// # Errors
    /// A status other than 200, and a description without any stream over RTP/AVP.
    pub fn described_session(&mut self, reply: &Reply) -> Result<DescribedSession, Malformed> {
        reply.expect_ok()?;
        let offer = sdp::parse_tracks(&reply.body)?;
        let base = reply.header("Content-Base").or(reply.header("Content-Location"));
        let base = base.unwrap_or(&self.url).to_owned();
        let url = |track: &sdp::TrackOffer| resolve(&base, track.control.as_deref());
        let stream_urls = offer.tracks.iter().map(url).collect();
        // A server that names another URL than the one that was asked knows the session by it.
        if let Some(aggregate) = offer.control.as_deref().filter(|name| name.contains("://")) {
            self.url = aggregate.to_owned();
        }
        Ok(DescribedSession { offer, stream_urls })
    }

    /// SETUP of one stream of several, by one transport.
    pub fn setup_stream(&mut self, url: &str, offer: &TransportOffer) -> Vec<u8> {
        self.stream_url = url.to_owned();
        self.setup(offer)
    }

    /// Takes the reply to PLAY of several streams: where each of them starts, by its URL of SETUP.
    /// Streams that RTP-Info does not name have no start.
    ///
    /// # Errors
    /// As for [`started`](Self::started).
    pub fn streams_started(
        &self,
        reply: &Reply,
        stream_urls: &[String],
    ) -> Result<(PlayReply, Vec<StreamStart>), Malformed> {
        let started = self.started(reply)?;
        let mut starts = vec![StreamStart::default(); stream_urls.len()];
        let info = reply.header("RTP-Info").unwrap_or_default();
        let parts: Vec<_> = transport::split_unquoted(info, ',').collect();
        for (number, part) in parts.iter().enumerate() {
            let mut url = "";
            let mut start = StreamStart::default();
            for parameter in transport::split_unquoted(part, ';') {
                match transport::parameter(parameter) {
                    ("url", value) => url = value.trim_matches('"'),
                    ("seq", value) => start.sequence = value.parse().ok(),
                    ("rtptime", value) => start.timestamp = value.parse().ok(),
                    _ => {}
                }
            }
            // Relative URLs are not allowed (§12.33), and sent.
            let is_it = |known: &String| {
                known == url || !url.is_empty() && known.ends_with(&format!("/{url}"))
            };
            let by_order = (parts.len() == starts.len()).then_some(number);
            let index = stream_urls.iter().position(is_it).or(by_order);
            if let Some(slot) = index.and_then(|index| starts.get_mut(index)) {
                *slot = start;
            }
        }
        Ok((started, starts))
    }

    /// Takes the reply to SETUP; later requests name its session.
    ///
    /// # Errors
    /// A status other than 200, no Session, no usable Transport.
    pub fn set_up(&mut self, reply: &Reply) -> Result<SetupReply, Malformed> {
        reply.expect_ok()?;
        let session = reply.required("Session")?;
        let (id, parameters) = session.split_once(';').unwrap_or((session, ""));
        if id.trim().is_empty() {
            return Err(reply.fault(Fault::ReplyHeader { name: "Session" }));
        }
        let timeout = transport::parameter(parameters);
        let timeout_s = match timeout {
            (name, seconds) if name.eq_ignore_ascii_case("timeout") => seconds.parse().ok(),
            _ => None,
        };
        let timeout = Duration::from_secs(timeout_s.unwrap_or(TIMEOUT_S_DEFAULT));
        let granted = reply.required("Transport")?;
        let set_up = granted_transport(granted, timeout)
            .ok_or_else(|| reply.fault(Fault::ReplyHeader { name: "Transport" }))?;
        self.session = Some(id.trim().to_owned());
        Ok(set_up)
    }

    /// Takes the reply to PLAY.
    ///
    /// # Errors
    /// A status other than 200; an RTP-Info or Range that cannot be read. Both may be absent
    /// (§12.33).
    pub fn started(&self, reply: &Reply) -> Result<PlayReply, Malformed> {
        reply.expect_ok()?;
        let range = reply.header("Range").map(range::parse).transpose();
        let range = range.map_err(|_| reply.fault(Fault::ReplyHeader { name: "Range" }))?;
        // A camera's time of day is no place in an asset.
        let range = range.filter(|(_, unit)| *unit == RangeUnit::Npt).map(|(range, _)| range);
        let mut started = PlayReply { range, sequence: None, timestamp: None };
        // One stream was set up, so one is told of: what follows a comma would be another's.
        let info = reply.header("RTP-Info").unwrap_or_default();
        let fault = || reply.fault(Fault::ReplyHeader { name: "RTP-Info" });
        for part in info.split(',').next().unwrap_or_default().split(';') {
            match transport::parameter(part) {
                ("seq", value) => started.sequence = Some(value.parse().map_err(|_| fault())?),
                ("rtptime", value) => {
                    started.timestamp = Some(value.parse().map_err(|_| fault())?);
                }
                _ => {}
            }
        }
        Ok(started)
    }
}

/// Reads the Transport header of a reply; `None` for one that contradicts itself.
fn granted_transport(granted: &str, timeout: Duration) -> Option<SetupReply> {
    let mut parts = transport::split_unquoted(granted, ';').map(str::trim);
    let lower = LowerTransport::of(parts.next().unwrap_or_default())?;
    let (mut is_multicast, mut destination, mut ports) = (false, None, None);
    let mut set_up = SetupReply {
        server: None,
        source: None,
        channels: None,
        multicast: None,
        ssrc: None,
        timeout,
    };
    for part in parts {
        let (name, value) = transport::parameter(part);
        match name.to_ascii_lowercase().as_str() {
            "multicast" => is_multicast = true,
            "interleaved" => set_up.channels = Some(transport::channel_pair(value)?),
            "destination" => destination = Some(value.to_owned()),
            "port" => ports = transport::port_pair(value),
            "server_port" => set_up.server = transport::port_pair(value),
            "source" => set_up.source = Some(value.to_owned()),
            "ssrc" => set_up.ssrc = u32::from_str_radix(value, 16).ok(),
            _ => {}
        }
    }
    // §12.39: TCP has channels, and a group an address and ports.
    if (lower == LowerTransport::Tcp) != set_up.channels.is_some() {
        return None;
    }
    if is_multicast {
        set_up.multicast = Some(MulticastGroup { destination: destination?, ports: ports? });
    }
    Some(set_up)
}

/// C.1.1: absolute, `*` or nothing for the base itself, else behind the base. All clients at hand
/// put a slash between where RFC 1808 would cut the last segment off; so does this one.
fn resolve(base: &str, control: Option<&str>) -> String {
    match control {
        None | Some("*" | "") => base.to_owned(),
        Some(absolute) if absolute.contains("://") => absolute.to_owned(),
        Some(relative) if base.ends_with('/') => format!("{base}{relative}"),
        Some(relative) => format!("{base}/{relative}"),
    }
}

/// §9.2.
const DEFAULT_PORT: u16 = 554;

/// §12.37.
const TIMEOUT_S_DEFAULT: u64 = 60;

#[cfg(test)]
mod tests {
    use super::super::frame::Limits;
    use super::super::transport::GrantedTransport;
    use super::*;

    fn reply(text: &str) -> Reply {
        let mut reader = ReplyReader::new(Limits::default());
        reader.feed(text.as_bytes());
        reader.next_reply().unwrap().unwrap()
    }

    #[test]
    fn control_urls_are_resolved() {
        for (base, control, expected) in [
            ("rtsp://h/a.ts/", Some("stream"), "rtsp://h/a.ts/stream"),
            ("rtsp://h/a.ts", Some("stream"), "rtsp://h/a.ts/stream"),
            ("rtsp://h/a.ts", Some("rtsp://i/b"), "rtsp://i/b"),
            ("rtsp://h/a.ts/", Some("*"), "rtsp://h/a.ts/"),
            ("rtsp://h/a.ts/", None, "rtsp://h/a.ts/"),
        ] {
            assert_eq!(resolve(base, control), expected);
        }
    }

    #[test]
    fn urls_give_host_and_port_and_keep_the_password_back() {
        let mut client = Client::new("rtsp://user:secret@[::1]:8554/a%20b.ts").unwrap();
        assert_eq!((client.host(), client.port()), ("::1", 8554));
        let text = String::from_utf8(client.describe()).unwrap();
        assert!(text.starts_with("DESCRIBE rtsp://[::1]:8554/a%20b.ts RTSP/1.0\r\nCSeq: 1\r\n"));
        assert_eq!(Client::new("rtsp://h/a.ts").unwrap().port(), 554);
        for wrong in ["http://h/a.ts", "rtsp:a.ts", "a.ts", "rtsp:///a.ts", ""] {
            assert_eq!(Client::new(wrong).unwrap_err().fault, Fault::Url, "{wrong}");
        }
    }

    #[test]
    fn rfc_2326_section_10_4_setup_reply() {
        let mut client = Client::new("rtsp://example.com/foo/bar/baz.rm").unwrap();
        let text = "RTSP/1.0 200 OK\r\nCSeq: 302\r\nDate: 23 Jan 1997 15:35:06 GMT\r\n\
            Session: 47112344\r\nTransport: RTP/AVP;unicast;\r\n  \
            client_port=4588-4589;server_port=6256-6257\r\n\r\n";
        let set_up = client.set_up(&reply(text)).unwrap();
        assert_eq!(set_up.server, Some(PortPair { rtp: 6256, rtcp: 6257 }));
        assert_eq!(set_up.timeout, Duration::from_secs(60));
        let pause = String::from_utf8(client.pause()).unwrap();
        assert!(pause.contains("\r\nSession: 47112344\r\n"), "{pause}");
    }

    #[test]
    fn rfc_2326_section_10_12_play_reply_with_interleaved_frames_behind() {
        let client = Client::new("rtsp://foo.com/bar.file").unwrap();
        let text = "RTSP/1.0 200 OK\r\nCSeq: 3\r\nSession: 12345678\r\n\
            Date: 05 Jun 1997 18:59:15 GMT\r\nRTP-Info: url=rtsp://foo.com/bar.file;\r\n  \
            seq=232433;rtptime=972948234\r\n\r\n$\x01\x00\x02ab";
        // The RFC's own sequence number does not fit into 16 bits; what does, is read.
        let wrong = reply(text);
        assert_eq!(wrong.cseq(), Some(3));
        let fault = client.started(&wrong).unwrap_err().fault;
        assert_eq!(fault, Fault::ReplyHeader { name: "RTP-Info" });
        let started = client.started(&reply(&text.replace("232433", "23243"))).unwrap();
        assert_eq!((started.sequence, started.timestamp), (Some(23243), Some(972_948_234)));
    }

    #[test]
    fn what_a_reply_must_have_is_asked_for() {
        let mut client = Client::new("rtsp://h/a.ts").unwrap();
        let fault =
            |client: &mut Client, text: &str| client.set_up(&reply(text)).unwrap_err().fault;
        assert_eq!(
            fault(&mut client, "RTSP/1.0 454 Session Not Found\r\nCSeq: 1\r\n\r\n"),
            Fault::Status { code: 454 }
        );
        assert_eq!(
            fault(&mut client, "RTSP/1.0 200\r\nCSeq: 1\r\n\r\n"),
            Fault::ReplyHeader { name: "Session" }
        );
        assert_eq!(
            fault(&mut client, "RTSP/1.0 200 OK\r\nSession: 1;timeout=30\r\n\r\n"),
            Fault::ReplyHeader { name: "Transport" }
        );
        for transport in [
            "RTP/AVP/TCP;unicast",
            "RTP/AVP;unicast;interleaved=0-1",
            "RTP/AVP/TCP;interleaved=0-0",
            "RTP/AVP;multicast;destination=239.1.1.1",
            "RTP/AVP;multicast;port=5004-5005",
            "RTP/SAVP;unicast;server_port=5004-5005",
        ] {
            let text = format!("RTSP/1.0 200 OK\r\nSession: 1\r\nTransport: {transport}\r\n\r\n");
            assert_eq!(fault(&mut client, &text), Fault::ReplyHeader { name: "Transport" });
        }
    }

    #[test]
    fn channels_and_groups_of_a_reply_are_read() {
        let mut client = Client::new("rtsp://h/a.ts").unwrap();
        let mut set_up = |granted: GrantedTransport| {
            let text = format!("RTSP/1.0 200 OK\r\nSession: 1\r\nTransport: {granted}\r\n\r\n");
            client.set_up(&reply(&text)).unwrap()
        };
        let channels = ChannelPair { rtp: 0, rtcp: 1 };
        let found = set_up(GrantedTransport::Interleaved { channels, ssrc: 0xFEED });
        assert_eq!((found.channels, found.ssrc), (Some(channels), Some(0xFEED)));
        assert_eq!((found.server, found.multicast), (None, None));
        let ports = PortPair { rtp: 5004, rtcp: 5005 };
        let group = std::net::IpAddr::from([239, 1, 1, 1]);
        let granted = GrantedTransport::Multicast { group, ports, ttl: 8, source: None, ssrc: 7 };
        let found = set_up(granted);
        let expected = MulticastGroup { destination: "239.1.1.1".to_owned(), ports };
        assert_eq!((found.channels, found.multicast), (None, Some(expected)));
    }

    #[test]
    fn requests_of_the_server_are_dropped_and_bodies_kept() {
        let mut reader = ReplyReader::new(Limits::default());
        reader.feed(b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\nRTSP/1.0 200 OK\r\nCSeq: 9\r\n");
        assert_eq!(reader.next_reply(), Ok(None));
        reader.feed(b"Content-Length: 4\r\n\r\nv=");
        assert_eq!(reader.next_reply(), Ok(None));
        assert!(!reader.is_empty());
        reader.feed(b"0\n");
        let reply = reader.next_reply().unwrap().unwrap();
        assert_eq!((reply.cseq(), &reply.body[..]), (Some(9), &b"v=0\n"[..]));
        assert!(reader.is_empty());
    }
}
