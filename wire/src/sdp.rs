// SPDX-License-Identifier: MIT OR Apache-2.0
//! Session descriptions of one MPEG transport stream: an asset over RTSP, written and read, and a
//! broadcast to a multicast or unicast address, written.
//!
//! The description names the control URLs for SETUP, the facts a player needs before the first
//! packet (payload type 33, clock rate 90 kHz, bandwidth) and the duration. The content of the
//! transport stream is described by its own PMT.
//!
//! Choices: `m=video` also for audio alone (RFC 3551 §6 lists MP2T as AV; live555 and GStreamer do
//! the same); port 0 and the unspecified address in `c=`, for both are agreed in SETUP (RFC 2326
//! C.1.2, C.1.7); `t=0 0`, since an asset is available without end; `b=AS` counts RTP, UDP and IP
//! headers (RFC 3550 §6.2) and is rounded up; control URLs are relative to Content-Base (C.1.1).
//!
//! Choices for broadcasts: one connection line, with the TTL for IPv4 multicast alone (RFC 8866
//! §5.7); `a=source-filter` for source-specific multicast, with the group named and not `*` (RFC
//! 4570 §3); a stream without RTP is `m=video PORT udp MP2T`: with `udp`, §5.14 asks for the name
//! of a media type as the format (VLC reads any format there as a transport stream).
//!
//! Sources: RFC 8866 and 4566, RFC 2326 Appendix C, RFC 2250 §2, RFC 3551 §6, RFC 4570, RFC 3555
//! §4.2 (video/MP2T). Text is written and read by `sdp-types`.

mod offers;
mod tracks;

pub use offers::{SessionOffer, TrackOffer, UnreadSection, parse_tracks};
pub use tracks::{RtpFormat, TrackDescription, presentation, track_control, track_index};

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use sdp_types::{
    Attribute, Bandwidth, BandwidthType, Connection, Media, MediaType, Origin, Session, Time,
    TransportProto,
};

use crate::error::{Fault, Malformed};
use crate::http::shown_path;
use crate::mp2t::{CLOCK_RATE_HZ, ENCODING_NAME, PAYLOAD_BYTES, PAYLOAD_TYPE};
use crate::rtsp::Npt;

/// Control name of the only stream: its URL is Content-Base followed by this.
pub const CONTROL: &str = "stream";

/// Content of a description.
#[derive(Debug, Clone, Copy)]
pub struct Description<'a> {
    /// Session name, such as the name of the file. Control characters become spaces.
    pub name: &'a str,
    /// The server's address, as the client reached it.
    pub origin: IpAddr,
    /// Identifies the asset among the assets of this origin (RFC 8866 §5.2).
    pub id: u64,
    /// Version that increases when the asset changes, such as its modification time.
    pub version: u64,
    /// Duration; none while it is being recorded.
    pub duration: Option<Duration>,
    /// Bits of transport stream per second of play, without any headers.
    pub bits_per_second: u64,
}

/// The part of a description that does not depend on the streams.
fn session(description: &Description<'_>) -> Session {
    let any: IpAddr = match description.origin {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let origin = Origin::with_ip_addr(description.id, description.version, description.origin);
    let mut session = Session::new(origin, one_line(description.name));
    session.set_connection(Connection::from_ip_addr(any));
    session.add_time(Time::new(0, 0));
    session.add_attribute(Attribute::with_value("control", "*"));
    let end = description.duration.map(|duration| Npt(duration).to_string());
    let range = format!("npt=0-{}", end.unwrap_or_default());
    session.add_attribute(Attribute::with_value("range", range));
    session
}

/// Writes the description of an MPEG transport stream asset.
pub fn mp2t(description: &Description<'_>) -> Vec<u8> {
    let mut session = session(description);
    let mut media =
        Media::new(MediaType::Video, 0, TransportProto::RtpAvp, PAYLOAD_TYPE.to_string());
    let kilobits = kilobits_per_second(description.bits_per_second, RTP_BYTES + IPV4_UDP_BYTES);
    media.add_bandwidth(Bandwidth::new(BandwidthType::As, kilobits));
    let rtpmap = format!("{PAYLOAD_TYPE} {ENCODING_NAME}/{CLOCK_RATE_HZ}");
    media.add_attribute(Attribute::with_value("rtpmap", rtpmap));
    media.add_attribute(Attribute::with_value("control", CONTROL));
    session.add_media(media);

    let mut text = Vec::with_capacity(DESCRIPTION_BYTES_USUAL);
    // Writing to memory has no error to report.
    let _ = session.write(&mut text);
    text
}

/// Carrier of a broadcast's transport stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BroadcastFormat {
    /// RTP/AVP with payload type 33.
    Rtp,
    /// UDP datagrams of transport stream packets.
    Udp,
}

/// Content of the description of a broadcast.
#[derive(Debug, Clone, Copy)]
pub struct Broadcast<'a> {
    /// Session name, such as the title of the channel. Control characters become spaces.
    pub name: &'a str,
    /// Software that created the description (RFC 8866 §6.4); control characters become spaces.
    pub tool: &'a str,
    /// Address of the sending server.
    pub origin: IpAddr,
    /// Identifies the broadcast among the broadcasts of this origin (RFC 8866 §5.2).
    pub id: u64,
    /// Version that increases when the description changes.
    pub version: u64,
    /// Carrier of the transport stream.
    pub format: BroadcastFormat,
    /// Address and port that packets are sent to.
    pub target: SocketAddr,
    /// Time to live of packets; written for IPv4 multicast.
    pub ttl: u8,
    /// Only source of packets (source-specific multicast), of the target's address family.
    pub source: Option<IpAddr>,
    /// Bit rate of the transport stream, without any headers, if known; bits per second.
    pub bits_per_second: Option<u64>,
}

/// Writes the description of a broadcast, for an announcement or a file.
pub fn broadcast(broadcast: &Broadcast<'_>) -> Vec<u8> {
    let group = broadcast.target.ip();
    let origin = Origin::with_ip_addr(broadcast.id, broadcast.version, broadcast.origin);
    let mut session = Session::new(origin, one_line(broadcast.name));
    let ttl = group.is_multicast().then_some(broadcast.ttl);
    session.set_connection(Connection::from_ip_addr_ttl(group, ttl));
    session.add_time(Time::new(0, 0));
    session.add_attribute(Attribute::with_value("tool", one_line(broadcast.tool)));
    session.add_attribute(Attribute::with_value("type", "broadcast"));
    session.add_attribute(Attribute::new("recvonly"));
    if let Some(source) = broadcast.source {
        let family = if group.is_ipv4() { "IP4" } else { "IP6" };
        let filter = format!(" incl IN {family} {group} {source}");
        session.add_attribute(Attribute::with_value("source-filter", filter));
    }
    let ip_bytes = if group.is_ipv4() { IPV4_UDP_BYTES } else { IPV6_UDP_BYTES };
    let port = broadcast.target.port();
    let (mut media, header_bytes) = match broadcast.format {
        BroadcastFormat::Rtp => {
            let format = PAYLOAD_TYPE.to_string();
            let proto = TransportProto::RtpAvp;
            (Media::new(MediaType::Video, port, proto, format), RTP_BYTES + ip_bytes)
        }
        BroadcastFormat::Udp => {
            // Lower case: players that compare with case have RFC 8866's spelling.
            let proto = TransportProto::Other("udp".to_owned());
            (Media::new(MediaType::Video, port, proto, ENCODING_NAME), ip_bytes)
        }
    };
    if let Some(bits) = broadcast.bits_per_second {
        let kilobits = kilobits_per_second(bits, header_bytes);
        media.add_bandwidth(Bandwidth::new(BandwidthType::As, kilobits));
    }
    if broadcast.format == BroadcastFormat::Rtp {
        let rtpmap = format!("{PAYLOAD_TYPE} {ENCODING_NAME}/{CLOCK_RATE_HZ}");
        media.add_attribute(Attribute::with_value("rtpmap", rtpmap));
    }
    session.add_media(media);
    let mut text = Vec::with_capacity(DESCRIPTION_BYTES_USUAL);
    // Writing to memory has no error to report.
    let _ = session.write(&mut text);
    text
}

/// With headers on each 1316 bytes of transport stream, rounded up.
fn kilobits_per_second(bits_per_second: u64, header_bytes: u128) -> u64 {
    const PAYLOAD: u128 = PAYLOAD_BYTES as u128;
    let bits = u128::from(bits_per_second) * (PAYLOAD + header_bytes) / PAYLOAD;
    u64::try_from(bits.div_ceil(1000)).unwrap_or(u64::MAX)
}

/// A session name has one line and at least one character (RFC 8866 §5.3).
fn one_line(name: &str) -> String {
    let name = shown_path(name);
    let name: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if name.trim().is_empty() { "-".to_owned() } else { name }
}

/// Parsed description of an MPEG transport stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The name of the session.
    pub name: String,
    /// `a=control` of the session, unchanged.
    pub session_control: Option<String>,
    /// `a=control` of the stream, unchanged.
    pub stream_control: Option<String>,
    /// The RTP payload type of the stream.
    pub payload_type: u8,
    /// Duration, if the description has one.
    pub duration: Option<Duration>,
}

/// Reads a description and finds the first MPEG transport stream over RTP/AVP in it.
///
/// # Errors
/// Text that is not SDP, and a description without such a stream.
pub fn parse(text: &[u8]) -> Result<Offer, Malformed> {
    let session = Session::parse(text).map_err(|_| Malformed::new(0, Fault::Description))?;
    let (media, payload_type) = session
        .medias
        .iter()
        .find_map(|media| Some((media, transport_stream(media)?)))
        .ok_or_else(|| {
            Malformed::new(0, Fault::NoTransportStream { offered: offered(&session.medias) })
        })?;
    let range = value(&session.attributes, "range").or(value(&media.attributes, "range"));
    Ok(Offer {
        name: session.session_name.clone(),
        session_control: value(&session.attributes, "control").map(str::to_owned),
        stream_control: value(&media.attributes, "control").map(str::to_owned),
        payload_type,
        duration: range.and_then(crate::rtsp::range_end),
    })
}

/// Returns the payload type of a transport stream in a media section: 33, or one that rtpmap maps
/// to MP2T.
fn transport_stream(media: &Media) -> Option<u8> {
    if !media.proto.eq_ignore_ascii_case("RTP/AVP") {
        return None;
    }
    let transport_stream = format!("{ENCODING_NAME}/{CLOCK_RATE_HZ}");
    media.fmt.split_ascii_whitespace().find_map(|format| {
        let payload_type: u8 = format.parse().ok()?;
        let named = media.attributes.iter().any(|attribute| {
            let map = attribute.value.as_deref().and_then(|v| v.split_once(' '));
            attribute.attribute == "rtpmap"
                && map.is_some_and(|(number, encoding)| {
                    number == format && encoding.trim().eq_ignore_ascii_case(&transport_stream)
                })
        });
        (payload_type == PAYLOAD_TYPE || named).then_some(payload_type)
    })
}

/// Returns the encodings in a description without a transport stream, for a message: `video
/// H264/90000`, or the payload type if rtpmap names none. The text is a peer's: only printable
/// ASCII, and bounded.
fn offered(medias: &[Media]) -> String {
    let one = |media: &Media| {
        let maps = media.attributes.iter().filter(|attribute| attribute.attribute == "rtpmap");
        let encodings = maps.filter_map(|map| map.value.as_deref()?.split_once(' '));
        let encodings: Vec<&str> = encodings.map(|(_, encoding)| encoding.trim()).collect();
        let encodings = match encodings.is_empty() {
            true => format!("payload type {}", media.fmt),
            false => encodings.join(" or "),
        };
        format!("{} {encodings} ({})", media.media, media.proto)
    };
    let all = medias.iter().map(one).collect::<Vec<_>>().join(", ");
    let all = printable(&all);
    if all.is_empty() { "nothing".to_owned() } else { all }
}

/// Text of a peer, for a message.
fn printable(text: &str) -> String {
    let is_fit = |c: &char| c.is_ascii_graphic() || *c == ' ';
    text.chars().filter(is_fit).take(OFFERED_CHARS_MAX).collect()
}

fn value<'a>(attributes: &'a [Attribute], name: &str) -> Option<&'a str> {
    attributes.iter().find(|a| a.attribute == name).and_then(|a| a.value.as_deref())
}

const OFFERED_CHARS_MAX: usize = 200;

const RTP_BYTES: u128 = 12;
/// UDP 8, IPv4 20.
const IPV4_UDP_BYTES: u128 = 28;
/// UDP 8, IPv6 40.
const IPV6_UDP_BYTES: u128 = 48;

/// Bytes of a description with a name of usual length.
const DESCRIPTION_BYTES_USUAL: usize = 320;

#[cfg(test)]
mod tests {
    use super::*;

    fn clip() -> Description<'static> {
        Description {
            name: "clip.ts",
            origin: Ipv4Addr::new(192, 0, 2, 1).into(),
            id: 7,
            version: 1_800_000_000,
            duration: Some(Duration::from_millis(60_040)),
            bits_per_second: 5_000_000,
        }
    }

    #[test]
    fn the_description_is_this() {
        let expected = "v=0\r\n\
            o=- 7 1800000000 IN IP4 192.0.2.1\r\n\
            s=clip.ts\r\n\
            c=IN IP4 0.0.0.0\r\n\
            t=0 0\r\n\
            a=control:*\r\n\
            a=range:npt=0-60.040\r\n\
            m=video 0 RTP/AVP 33\r\n\
            b=AS:5152\r\n\
            a=rtpmap:33 MP2T/90000\r\n\
            a=control:stream\r\n";
        assert_eq!(String::from_utf8(mp2t(&clip())).unwrap(), expected);
    }

    #[test]
    fn a_name_cannot_add_a_line() {
        let hostile = Description { name: "a\r\nm=audio 1 RTP/AVP 0\n", ..clip() };
        let text = String::from_utf8(mp2t(&hostile)).unwrap();
        assert_eq!(text.matches("\r\nm=").count(), 1);
        let nameless = Description { name: "\u{7f} ", ..clip() };
        assert!(String::from_utf8(mp2t(&nameless)).unwrap().contains("\r\ns=-\r\n"));
    }

    #[test]
    fn ipv6_and_extreme_figures_are_written() {
        let extreme = Description {
            origin: Ipv6Addr::LOCALHOST.into(),
            id: u64::MAX,
            version: u64::MAX,
            duration: Some(Duration::MAX),
            bits_per_second: u64::MAX,
            ..clip()
        };
        let text = String::from_utf8(mp2t(&extreme)).unwrap();
        assert!(text.contains("IN IP6 ::1\r\n") && text.contains("c=IN IP6 ::\r\n"), "{text}");
        assert!(parse(text.as_bytes()).is_ok());
    }

    #[test]
    fn what_is_written_is_read_back() {
        let offer = parse(&mp2t(&clip())).unwrap();
        assert_eq!(offer.name, "clip.ts");
        assert_eq!(offer.session_control.as_deref(), Some("*"));
        assert_eq!(offer.stream_control.as_deref(), Some(CONTROL));
        assert_eq!(offer.payload_type, PAYLOAD_TYPE);
        assert_eq!(offer.duration, Some(Duration::from_millis(60_040)));
    }

    #[test]
    fn the_transport_stream_is_found_among_others() {
        let text = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=x\r\nt=0 0\r\n\
            m=audio 0 RTP/AVP 0\r\nm=video 0 RTP/AVP 31 96\r\na=rtpmap:96 MP2T/90000\r\n\
            a=control:rtsp://h/x/track2\r\n";
        let offer = parse(text.as_bytes()).unwrap();
        assert_eq!(offer.payload_type, 96);
        assert_eq!(offer.stream_control.as_deref(), Some("rtsp://h/x/track2"));
        // RFC 2326 §10.2 describes audio, video and a whiteboard, and no transport stream.
        let seminar = "v=0\r\no=mhandley 2890844526 2890842807 IN IP4 126.16.64.4\r\n\
            s=SDP Seminar\r\nc=IN IP4 224.2.17.12/127\r\nt=2873397496 2873404696\r\na=recvonly\r\n\
            m=audio 3456 RTP/AVP 0\r\nm=video 2232 RTP/AVP 31\r\nm=whiteboard 32416 UDP WB\r\n";
        let fault = parse(seminar.as_bytes()).unwrap_err().fault.to_string();
        let ending = "; it offers audio payload type 0 (RTP/AVP), video payload type 31 (RTP/AVP), \
                      whiteboard payload type WB (UDP)";
        assert!(fault.ends_with(ending), "{fault}");
        let camera = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=x\r\nt=0 0\r\n\
            m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n";
        let fault = parse(camera.as_bytes()).unwrap_err().fault.to_string();
        assert!(fault.ends_with("; it offers video H264/90000 (RTP/AVP)"), "{fault}");
        let empty = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=x\r\nt=0 0\r\n";
        let fault = parse(empty.as_bytes()).unwrap_err().fault.to_string();
        assert!(fault.ends_with("; it offers nothing"), "{fault}");
        assert_eq!(parse(b"<html>").unwrap_err().fault, Fault::Description);
    }

    fn channel() -> Broadcast<'static> {
        Broadcast {
            name: "News",
            tool: "pagewire",
            origin: Ipv4Addr::new(192, 0, 2, 1).into(),
            id: 7,
            version: 3,
            format: BroadcastFormat::Rtp,
            target: "239.1.1.1:5004".parse().unwrap(),
            ttl: 8,
            source: None,
            bits_per_second: Some(6_000_000),
        }
    }

    fn text(described: &Broadcast<'_>) -> String {
        String::from_utf8(broadcast(described)).unwrap()
    }

    #[test]
    fn broadcasts_are_described_like_this() {
        let expected = "v=0\r\n\
            o=- 7 3 IN IP4 192.0.2.1\r\n\
            s=News\r\n\
            c=IN IP4 239.1.1.1/8\r\n\
            t=0 0\r\n\
            a=tool:pagewire\r\n\
            a=type:broadcast\r\n\
            a=recvonly\r\n\
            m=video 5004 RTP/AVP 33\r\n\
            b=AS:6183\r\n\
            a=rtpmap:33 MP2T/90000\r\n";
        assert_eq!(text(&channel()), expected);
        let offer = parse(expected.as_bytes()).unwrap();
        assert_eq!((offer.name.as_str(), offer.payload_type), ("News", 33));
        let plain = Broadcast { format: BroadcastFormat::Udp, ..channel() };
        let expected = expected
            .replace("RTP/AVP 33", "udp MP2T")
            .replace("6183", "6128")
            .replace("a=rtpmap:33 MP2T/90000\r\n", "");
        assert_eq!(text(&plain), expected);
    }

    #[test]
    fn only_ipv4_groups_have_a_ttl() {
        let six = Broadcast { target: "[ff15::1]:5004".parse().unwrap(), ..channel() };
        assert!(text(&six).contains("c=IN IP6 ff15::1\r\n"), "{}", text(&six));
        let unicast = Broadcast { target: "10.0.0.9:1234".parse().unwrap(), ..channel() };
        assert!(text(&unicast).contains("c=IN IP4 10.0.0.9\r\n"));
        let unknown = Broadcast { bits_per_second: None, ..channel() };
        assert!(!text(&unknown).contains("b=AS"));
    }

    #[test]
    fn source_specific_groups_name_their_source() {
        let four = Broadcast {
            target: "232.1.1.1:5004".parse().unwrap(),
            source: Some("10.0.0.1".parse().unwrap()),
            ..channel()
        };
        let filter = "a=source-filter: incl IN IP4 232.1.1.1 10.0.0.1\r\n";
        assert!(text(&four).contains(filter), "{}", text(&four));
        let six = Broadcast {
            target: "[ff35::8000:1]:5004".parse().unwrap(),
            source: Some("fd00::1".parse().unwrap()),
            ..channel()
        };
        let filter = "a=source-filter: incl IN IP6 ff35::8000:1 fd00::1\r\n";
        assert!(text(&six).contains(filter), "{}", text(&six));
    }

    #[test]
    fn titles_of_broadcasts_cannot_add_a_line() {
        let hostile = Broadcast { name: "a\r\nm=audio 1 RTP/AVP 0", tool: "x\na=y", ..channel() };
        let text = text(&hostile);
        assert_eq!(text.lines().count(), 11, "{text}");
    }
}
