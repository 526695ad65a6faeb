// SPDX-License-Identifier: MIT OR Apache-2.0
//! The description of an asset whose tracks are RTP streams of their own.
//!
//! One media section a track, in the file's order, each with the control URL of its SETUP. The
//! bandwidth of a section counts a header of RTP, UDP and IP on each 1388 bytes of payload.
//!
//! Sources: RFC 8866 §5.14, §6.6 (rtpmap), §6.15 (fmtp), §6.12 (lang); RFC 2326 Appendix C.
//! Does not interpret codecs: the caller that lays out their packets creates [`RtpFormat`].

use std::fmt::Write as _;

use sdp_types::{Attribute, Bandwidth, BandwidthType, Media, MediaType, TransportProto};

use super::{Description, IPV4_UDP_BYTES, RTP_BYTES, one_line, session};

/// An RTP payload format as `rtpmap` and `fmtp` name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RtpFormat {
    /// Pictures or sound: the media type of its section.
    pub is_video: bool,
    /// RTP payload type.
    pub payload_type: u8,
    /// Encoding name, such as `H264`.
    pub encoding: &'static str,
    /// RTP clock rate, in hertz.
    pub clock_rate_hz: u32,
    /// Channels, if the format's `rtpmap` names them.
    pub channels: Option<u8>,
    /// Parameters of `fmtp` in order, name and value.
    pub parameters: Vec<(&'static str, String)>,
}

/// A track in a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackDescription {
    /// Its payload format.
    pub format: RtpFormat,
    /// Bits per second of play, without any headers.
    pub bits_per_second: u64,
    /// Language (RFC 5646 or ISO 639-2).
    pub language: Option<String>,
}

/// Control name of a track: its URL is Content-Base followed by this.
pub fn track_control(index: usize) -> String {
    format!("{TRACK_CONTROL}{index}")
}

/// Returns the index of the track named by a control name.
pub fn track_index(control: &str) -> Option<usize> {
    let digits = control.strip_prefix(TRACK_CONTROL)?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number && digits.len() < 4)
}

/// Writes the description of an asset with tracks. Its bitrate is not used: each track has its own.
/// `information` is for users (RFC 8866 §5.4); omitted if it is empty.
pub fn presentation(
    description: &Description<'_>,
    tracks: &[TrackDescription],
    information: &str,
) -> Vec<u8> {
    let mut session = session(description);
    if !information.is_empty() {
        session.set_session_description(one_line(information));
    }
    for (index, track) in tracks.iter().enumerate() {
        session.add_media(section(index, track));
    }
    let mut text = Vec::with_capacity(tracks.len() * SECTION_BYTES_USUAL);
    // Writing to memory has no error to report.
    let _ = session.write(&mut text);
    text
}

fn section(index: usize, track: &TrackDescription) -> Media {
    let format = &track.format;
    let media_type = if format.is_video { MediaType::Video } else { MediaType::Audio };
    let payload_type = format.payload_type;
    let mut media = Media::new(media_type, 0, TransportProto::RtpAvp, payload_type.to_string());
    let bits = u128::from(track.bits_per_second) * (PAYLOAD + RTP_BYTES + IPV4_UDP_BYTES) / PAYLOAD;
    let kilobits = u64::try_from(bits.div_ceil(1000)).unwrap_or(u64::MAX);
    media.add_bandwidth(Bandwidth::new(BandwidthType::As, kilobits));
    let mut map = format!("{payload_type} {}/{}", format.encoding, format.clock_rate_hz);
    if let Some(channels) = format.channels {
        let _ = write!(map, "/{channels}");
    }
    media.add_attribute(Attribute::with_value("rtpmap", map));
    if !format.parameters.is_empty() {
        let parameters = format.parameters.iter().map(|(name, value)| format!("{name}={value}"));
        let parameters = parameters.collect::<Vec<_>>().join(";");
        media.add_attribute(Attribute::with_value("fmtp", format!("{payload_type} {parameters}")));
    }
    if let Some(language) = &track.language {
        let is_tag = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let language: String = language.chars().filter(|c| c.is_ascii()).collect();
        if !language.is_empty() && language.bytes().all(is_tag) {
            media.add_attribute(Attribute::with_value("lang", language));
        }
    }
    media.add_attribute(Attribute::with_value("control", track_control(index)));
    media
}

const TRACK_CONTROL: &str = "track";

/// Payload of a full packet: 1400 bytes less the RTP header.
const PAYLOAD: u128 = 1388;

/// Bytes of a section with parameter sets.
const SECTION_BYTES_USUAL: usize = 400;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    fn film() -> Description<'static> {
        Description {
            name: "film.mp4",
            origin: Ipv4Addr::new(192, 0, 2, 1).into(),
            id: 7,
            version: 1,
            duration: Some(Duration::from_secs(60)),
            bits_per_second: 0,
        }
    }

    #[test]
    fn each_track_has_a_section() {
        let video = TrackDescription {
            format: RtpFormat {
                is_video: true,
                payload_type: 96,
                encoding: "H264",
                clock_rate_hz: 90_000,
                channels: None,
                parameters: vec![
                    ("packetization-mode", "1".to_owned()),
                    ("sprop-parameter-sets", "Z2QAH6w=,aOvjyyLA".to_owned()),
                ],
            },
            bits_per_second: 5_000_000,
            language: None,
        };
        let audio = TrackDescription {
            format: RtpFormat {
                is_video: false,
                payload_type: 97,
                encoding: "opus",
                clock_rate_hz: 48_000,
                channels: Some(2),
                parameters: Vec::new(),
            },
            bits_per_second: 128_000,
            language: Some("deu".to_owned()),
        };
        let expected = "v=0\r\n\
            o=- 7 1 IN IP4 192.0.2.1\r\n\
            s=film.mp4\r\n\
            c=IN IP4 0.0.0.0\r\n\
            t=0 0\r\n\
            a=control:*\r\n\
            a=range:npt=0-60.000\r\n\
            m=video 0 RTP/AVP 96\r\n\
            b=AS:5145\r\n\
            a=rtpmap:96 H264/90000\r\n\
            a=fmtp:96 packetization-mode=1;sprop-parameter-sets=Z2QAH6w=,aOvjyyLA\r\n\
            a=control:track0\r\n\
            m=audio 0 RTP/AVP 97\r\n\
            b=AS:132\r\n\
            a=rtpmap:97 opus/48000/2\r\n\
            a=lang:deu\r\n\
            a=control:track1\r\n";
        let text = presentation(&film(), &[video.clone(), audio.clone()], "");
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        let hostile = TrackDescription { language: Some("d\r\na=x:y".to_owned()), ..audio };
        let text = presentation(&film(), &[hostile], "not sent:\r\na=x:y");
        let text = String::from_utf8(text).unwrap();
        assert!(!text.contains("\na=x") && !text.contains("a=lang"), "{text}");
        assert!(text.contains("\r\ns=film.mp4\r\ni=not sent:  a=x:y\r\n"), "{text}");
    }

    #[test]
    fn a_control_name_gives_its_track_back() {
        assert_eq!(track_index(&track_control(15)), Some(15));
        for other in ["stream", "track", "track-1", "track+1", "track0x1", "track12345"] {
            assert_eq!(track_index(other), None, "{other}");
        }
    }
}
