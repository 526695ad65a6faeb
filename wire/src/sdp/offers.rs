// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the media sections of a description: one stream of RTP each.
//!
//! A section with several payload types offers a choice (RFC 3264 §5.1); the first is used, which
//! the sender prefers. Sections of protocols other than RTP/AVP are skipped and named.
//!
//! Sources: RFC 8866 §5.7 (connection), §5.14, §6.6 (rtpmap), §6.12 (lang), §6.15 (fmtp); RFC 3551
//! §6 (static payload types); RFC 2326 Appendix C.
//! Does not know codecs: parameters are text.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use sdp_types::{Connection, Media, Session};

use super::{offered, printable, value};
use crate::error::{Fault, Malformed};
use crate::rtsp::range_end;

/// A session that a description offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOffer {
    /// The name of the session.
    pub name: String,
    /// `a=control` of the session, unchanged.
    pub control: Option<String>,
    /// Duration, if the description has one.
    pub duration: Option<Duration>,
    /// Streams of RTP, in the order of the description; at least one.
    pub tracks: Vec<TrackOffer>,
    /// Sections without such a stream.
    pub left_out: Vec<UnreadSection>,
}

/// A section of a description that is not a supported stream of RTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadSection {
    /// Its offer: `audio opus/48000/2 (RTP/SAVP)`.
    pub format: String,
    /// Reason for leaving it out.
    pub reason: String,
}

impl fmt::Display for UnreadSection {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}: {}", self.format, self.reason)
    }
}

/// A stream of RTP that a description offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackOffer {
    /// Media type: `video`, `audio` or another.
    pub media: String,
    /// Destination port of packets; 0 if SETUP negotiates it.
    pub port: u16,
    /// Destination address of packets, from the section or from the session.
    pub address: Option<IpAddr>,
    /// RTP payload type.
    pub payload_type: u8,
    /// Encoding name of `rtpmap`, unchanged; of a static payload type without one the name that
    /// RFC 3551 gives it.
    pub encoding: String,
    /// RTP clock rate, in hertz; not 0.
    pub clock_rate_hz: u32,
    /// Channels, where `rtpmap` names them.
    pub channels: Option<u8>,
    /// Parameters of `fmtp`, in order: names in lower case, values unchanged.
    pub parameters: Vec<(String, String)>,
    /// `a=control`, unchanged.
    pub control: Option<String>,
    /// Language (RFC 5646).
    pub language: Option<String>,
}

impl TrackOffer {
    /// The value of a parameter of `fmtp`; `name` in lower case.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Its format for people: `video H264/90000`. Printable ASCII, and bounded.
    pub fn format_name(&self) -> String {
        printable(&format!("{} {}/{}", self.media, self.encoding, self.clock_rate_hz))
    }
}

/// Reads the streams of a description.
///
/// # Errors
/// Text that is not SDP, and a description without any stream over RTP/AVP.
pub fn parse_tracks(text: &[u8]) -> Result<SessionOffer, Malformed> {
    let session = Session::parse(text).map_err(|_| Malformed::new(0, Fault::Description))?;
    let (mut tracks, mut left_out) = (Vec::new(), Vec::new());
    for media in session.medias.iter().take(SECTIONS_MAX) {
        match track(media, session.connection.as_ref()) {
            Ok(track) => tracks.push(track),
            Err(reason) => {
                let format = offered(std::slice::from_ref(media));
                left_out.push(UnreadSection { format, reason: reason.to_owned() });
            }
        }
    }
    let more = session.medias.len().saturating_sub(SECTIONS_MAX);
    if more > 0 {
        let (format, reason) = (format!("{more} more"), format!("{SECTIONS_MAX} are read"));
        left_out.push(UnreadSection { format, reason });
    }
    if tracks.is_empty() {
        let offered = offered(&session.medias);
        return Err(Malformed::new(0, Fault::NoStream { offered }));
    }
    let ranges = session.medias.iter().filter_map(|media| value(&media.attributes, "range"));
    let range = value(&session.attributes, "range").or(ranges.into_iter().next());
    let duration = range.and_then(range_end);
    let control = value(&session.attributes, "control").map(str::to_owned);
    Ok(SessionOffer { name: session.session_name.clone(), control, duration, tracks, left_out })
}

fn track(media: &Media, session: Option<&Connection>) -> Result<TrackOffer, &'static str> {
    // AVPF adds feedback that is optional (RFC 4585 §3.6).
    let is_rtp = ["RTP/AVP", "RTP/AVPF"].iter().any(|one| media.proto.eq_ignore_ascii_case(one));
    if !is_rtp {
        return Err("RTP/AVP and RTP/AVPF are read, and no other protocol");
    }
    let format = media.fmt.split_ascii_whitespace().next().ok_or("it has no payload type")?;
    let payload_type: u8 = format.parse().map_err(|_| "its payload type is no number")?;
    if payload_type > 127 {
        return Err("its payload type is over 127");
    }
    let of_format = |name: &str| {
        let values = media.attributes.iter().filter(|attribute| attribute.attribute == name);
        let mut values = values.filter_map(|attribute| attribute.value.as_deref());
        values.find_map(|value| {
            let (number, rest) = value.trim().split_once(' ')?;
            (number == format).then(|| rest.trim())
        })
    };
    let map = of_format("rtpmap").or_else(|| static_map(payload_type));
    let mut parts = map.ok_or("it has no rtpmap for its payload type")?.split('/');
    let encoding = parts.next().unwrap_or_default().trim().to_owned();
    let clock_rate_hz = parts.next().and_then(|rate| rate.trim().parse().ok());
    let clock_rate_hz = clock_rate_hz.filter(|rate| *rate > 0).ok_or("its rtpmap has no rate")?;
    let channels = parts.next().and_then(|channels| channels.trim().parse().ok());
    let parameters = of_format("fmtp").unwrap_or_default().split(';').filter_map(|part| {
        let (name, value) = part.trim().split_once('=')?;
        Some((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
    });
    let connection = media.connections.first().or(session);
    // A group may be followed by a slash and its TTL, and by a number of addresses.
    let address = connection.and_then(|connection| {
        connection.connection_address.split('/').next().unwrap_or_default().parse().ok()
    });
    Ok(TrackOffer {
        media: media.media.clone(),
        port: media.port,
        address,
        payload_type,
        encoding,
        clock_rate_hz,
        channels,
        parameters: parameters.take(PARAMETERS_MAX).collect(),
        control: value(&media.attributes, "control").map(str::to_owned),
        language: value(&media.attributes, "lang").map(printable),
    })
}

/// Formats in RFC 3551 §6 of payload types that need no `rtpmap`, of those still in use.
fn static_map(payload_type: u8) -> Option<&'static str> {
    Some(match payload_type {
        0 => "PCMU/8000",
        3 => "GSM/8000",
        8 => "PCMA/8000",
        9 => "G722/8000",
        10 => "L16/44100/2",
        11 => "L16/44100/1",
        14 => "MPA/90000",
        26 => "JPEG/90000",
        31 => "H261/90000",
        32 => "MPV/90000",
        33 => "MP2T/90000",
        34 => "H263/90000",
        _ => return None,
    })
}

/// Sections of a description that are read: each costs sockets.
const SECTIONS_MAX: usize = 32;
/// Parameters of a format.
const PARAMETERS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const CAMERA: &str = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=Media Presentation\r\n\
        c=IN IP4 239.1.1.1/15\r\nt=0 0\r\na=control:*\r\na=range:npt=0-12.5\r\n\
        m=video 5004 RTP/AVP 96 97\r\na=rtpmap:96 H264/90000\r\n\
        a=fmtp:96 packetization-mode=1; profile-level-id=4D0029;sprop-parameter-sets=Z00A,aO4=\r\n\
        a=control:rtsp://h/cam/trackID=1\r\n\
        m=audio 5006 RTP/AVPF 97\r\nc=IN IP4 239.1.1.2\r\na=rtpmap:97 MPEG4-GENERIC/16000/1\r\n\
        a=fmtp:97 mode=AAC-hbr;config=1408;SizeLength=13\r\na=control:trackID=2\r\na=lang:de\r\n\
        m=audio 0 RTP/AVP 0\r\n\
        m=application 0 RTP/AVP 107\r\na=rtpmap:107 vnd.onvif.metadata/90000\r\n\
        m=audio 0 RTP/SAVP 98\r\na=rtpmap:98 opus/48000/2\r\n";

    #[test]
    fn sections_are_streams_with_their_formats() {
        let session = parse_tracks(CAMERA.as_bytes()).unwrap();
        assert_eq!(session.name, "Media Presentation");
        assert_eq!(session.duration, Some(Duration::from_millis(12_500)));
        let names: Vec<_> = session.tracks.iter().map(TrackOffer::format_name).collect();
        let expected = [
            "video H264/90000",
            "audio MPEG4-GENERIC/16000",
            "audio PCMU/8000",
            "application vnd.onvif.metadata/90000",
        ];
        assert_eq!(names, expected);
        let left_out = "audio opus/48000/2 (RTP/SAVP): RTP/AVP and RTP/AVPF are read, and no other \
                        protocol";
        assert_eq!(session.left_out[0].to_string(), left_out);
        let [video, audio, ..] = &session.tracks[..] else { panic!("four") };
        assert_eq!((video.payload_type, video.port), (96, 5004));
        assert_eq!(video.address, Some("239.1.1.1".parse().unwrap()));
        assert_eq!(video.parameter("sprop-parameter-sets"), Some("Z00A,aO4="));
        assert_eq!(video.control.as_deref(), Some("rtsp://h/cam/trackID=1"));
        assert_eq!(audio.address, Some("239.1.1.2".parse().unwrap()));
        assert_eq!(audio.parameter("sizelength"), Some("13"));
        assert_eq!((audio.channels, audio.language.as_deref()), (Some(1), Some("de")));
    }

    #[test]
    fn sections_left_out_have_their_reason() {
        let left_out = |sections: &str| parse_tracks(format!("{CAMERA}{sections}").as_bytes());
        for (section, reason) in [
            ("m=audio 0 RTP/AVP opus\r\n", "its payload type is no number"),
            ("m=audio 0 RTP/AVP 128\r\n", "its payload type is over 127"),
            ("m=audio 0 RTP/AVP 98\r\n", "it has no rtpmap for its payload type"),
            ("m=audio 0 RTP/AVP 98\r\na=rtpmap:98 opus\r\n", "its rtpmap has no rate"),
        ] {
            let found = left_out(section).unwrap().left_out;
            assert_eq!(found[1].reason, reason, "{section}: {found:?}");
        }
        let found = left_out(&"m=audio 0 RTP/AVP 0\r\n".repeat(30)).unwrap().left_out;
        assert_eq!(found[1].to_string(), "3 more: 32 are read");
    }

    #[test]
    fn what_is_no_stream_is_refused_by_name() {
        for (section, words) in [
            ("m=audio 0 RTP/AVP 0/\r\n", "audio payload type 0/"),
            ("m=video 0 RTP/AVP 96\r\n", "video payload type 96 (RTP/AVP)"),
            ("m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/0\r\n", "H264/0"),
            ("m=video 0 RTP/AVP 200\r\na=rtpmap:200 H264/90000\r\n", "H264/90000"),
            ("", "nothing"),
        ] {
            let text = format!("v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=x\r\nt=0 0\r\n{section}");
            let fault = parse_tracks(text.as_bytes()).unwrap_err().fault.to_string();
            assert!(fault.contains(words), "{section}: {fault}");
        }
        assert_eq!(parse_tracks(b"<html>").unwrap_err().fault, Fault::Description);
    }
}
