// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses a client's offers in the Transport header, and writes the granted transport.
//!
//! Three transports exist: RTP over UDP to one receiver, RTP interleaved on the RTSP connection
//! (RFC 2326 §10.12), and RTP to a multicast group. A client lists its offers by preference
//! (§12.39); an unreadable offer is skipped like an unsupported one, because the next one may be
//! usable. Therefore the typed header of `rtsp-types` is not used here: it parses the list as a
//! whole, so that one odd offer invalidates all, and is strict about case. The server accepts the
//! first offer that it supports.
//!
//! Departures from the letter, all because real clients do it: neither `unicast` nor `multicast`
//! means unicast when there is a `client_port` (the RFC's default is multicast, which has no
//! client_port) and for TCP; `client_port` may name one port, the next is then for RTCP (RFC 3550
//! §11); both ports may be one (RFC 5761). The odd-even rule for port pairs is not enforced. An
//! interleaved offer may name no channels; the server then chooses them.
//!
//! `destination` is returned unchanged: the server compares it with the client's address (§12.39,
//! §16).

use std::fmt;
use std::net::IpAddr;

/// A pair of UDP ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortPair {
    /// For RTP.
    pub rtp: u16,
    /// For RTCP; may equal `rtp`.
    pub rtcp: u16,
}

/// A pair of channels of an RTSP connection (RFC 2326 §10.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChannelPair {
    /// For RTP.
    pub rtp: u8,
    /// For RTCP; differs from `rtp`.
    pub rtcp: u8,
}

/// One transport that a client offers in SETUP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransportOffer {
    /// RTP over UDP to one receiver.
    Udp {
        /// Ports at which the client receives RTP and RTCP. Neither is 0.
        ports: PortPair,
        /// Destination address requested by the client, if it named one.
        destination: Option<String>,
    },
    /// RTP on the RTSP connection.
    Interleaved {
        /// The channels the client named, if it named any.
        channels: Option<ChannelPair>,
    },
    /// RTP to a multicast group of the server's choice.
    Multicast,
}

/// Writes the offer as a Transport header of SETUP.
impl fmt::Display for TransportOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransportOffer::Udp { ports: PortPair { rtp, rtcp }, destination } => {
                write!(f, "RTP/AVP;unicast;client_port={rtp}-{rtcp}")?;
                destination.iter().try_for_each(|address| write!(f, ";destination={address}"))
            }
            TransportOffer::Interleaved { channels } => {
                f.write_str("RTP/AVP/TCP;unicast")?;
                let mut channels = channels.iter();
                channels.try_for_each(|ChannelPair { rtp, rtcp }| {
                    write!(f, ";interleaved={rtp}-{rtcp}")
                })
            }
            TransportOffer::Multicast => f.write_str("RTP/AVP;multicast"),
        }
    }
}

/// Transport that the server grants: its `Display` is the Transport header of the answer to SETUP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantedTransport {
    /// RTP over UDP to one receiver.
    Udp {
        /// The ports of the client, as in the offer.
        client: PortPair,
        /// Ports from which media is sent, and on which receiver reports are received.
        server: PortPair,
        /// SSRC of the stream's packets.
        ssrc: u32,
        /// The address media leaves from, when it is not the one of the RTSP connection.
        source: Option<IpAddr>,
    },
    /// RTP on the RTSP connection.
    Interleaved {
        /// The channels that carry RTP and RTCP.
        channels: ChannelPair,
        /// SSRC of the stream's packets.
        ssrc: u32,
    },
    /// RTP to a multicast group.
    Multicast {
        /// Address of the group.
        group: IpAddr,
        /// Ports of the group for RTP and RTCP.
        ports: PortPair,
        /// Time to live of the packets, in hops.
        ttl: u8,
        /// The address media leaves from; a receiver of a source-specific group needs it.
        source: Option<IpAddr>,
        /// SSRC of the stream's packets.
        ssrc: u32,
    },
}

impl fmt::Display for GrantedTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            GrantedTransport::Udp { client, server, ssrc, source } => {
                write!(f, "RTP/AVP;unicast;client_port={}-{}", client.rtp, client.rtcp)?;
                if let Some(source) = source {
                    write!(f, ";source={source}")?;
                }
                write!(f, ";server_port={}-{}", server.rtp, server.rtcp)?;
                write!(f, ";ssrc={ssrc:08X};mode=\"PLAY\"")
            }
            GrantedTransport::Interleaved { channels: ChannelPair { rtp, rtcp }, ssrc } => {
                write!(f, "RTP/AVP/TCP;unicast;interleaved={rtp}-{rtcp}")?;
                write!(f, ";ssrc={ssrc:08X};mode=\"PLAY\"")
            }
            GrantedTransport::Multicast { group, ports, ttl, source, ssrc } => {
                write!(f, "RTP/AVP;multicast;destination={group}")?;
                if let Some(source) = source {
                    write!(f, ";source={source}")?;
                }
                write!(f, ";port={}-{};ttl={ttl}", ports.rtp, ports.rtcp)?;
                write!(f, ";ssrc={ssrc:08X};mode=\"PLAY\"")
            }
        }
    }
}

/// The offers in a Transport header that a server might serve, in the client's order; at most
/// [`OFFERS_MAX`].
pub(super) fn offers(header: &str) -> Vec<TransportOffer> {
    split_unquoted(header, ',').filter_map(offer).take(OFFERS_MAX).collect()
}

/// A client lists one or two; GStreamer four.
pub(super) const OFFERS_MAX: usize = 8;

fn offer(text: &str) -> Option<TransportOffer> {
    let mut parts = split_unquoted(text, ';').map(str::trim);
    let lower = LowerTransport::of(parts.next()?)?;
    let (mut ports, mut channels, mut destination) = (None, None, None);
    let mut is_multicast = false;
    for part in parts.filter(|part| !part.is_empty()) {
        let (name, value) = parameter(part);
        match name.to_ascii_lowercase().as_str() {
            "multicast" => is_multicast = true,
            "rtcp-mux" => return None,
            "interleaved" => {
                let found = channel_pair(value)?;
                if channels.is_some_and(|before| before != found) {
                    return None;
                }
                channels = Some(found);
            }
            "client_port" => {
                let found = port_pair(value)?;
                if ports.is_some_and(|before| before != found) {
                    return None;
                }
                ports = Some(found);
            }
            "destination" if !value.is_empty() => destination = Some(value.to_owned()),
            "mode" if !value.split(',').all(|m| m.trim().eq_ignore_ascii_case("play")) => {
                return None;
            }
            // ttl, layers, port, append, server_port, source and ssrc have nothing to say to this
            // server, and unknown parameters are ignored (§12).
            _ => {}
        }
    }
    match (lower, is_multicast) {
        (LowerTransport::Tcp, false) => Some(TransportOffer::Interleaved { channels }),
        // Channels belong to TCP, client_port to one receiver.
        (LowerTransport::Udp, _) if channels.is_some() => None,
        (LowerTransport::Udp, false) => Some(TransportOffer::Udp { ports: ports?, destination }),
        (LowerTransport::Udp, true) if ports.is_none() => Some(TransportOffer::Multicast),
        _ => None,
    }
}

/// Lower transport of RTP/AVP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LowerTransport {
    /// `RTP/AVP` and `RTP/AVP/UDP`: UDP is the default of the profile (§12.39).
    Udp,
    /// `RTP/AVP/TCP`.
    Tcp,
}

impl LowerTransport {
    /// Reads `RTP/AVP`, `RTP/AVP/UDP` or `RTP/AVP/TCP`; `None` for other protocols.
    pub(super) fn of(protocol: &str) -> Option<LowerTransport> {
        let mut names = protocol.split('/').map(str::trim);
        let is =
            |name: Option<&str>, other: &str| name.is_some_and(|n| n.eq_ignore_ascii_case(other));
        if !is(names.next(), "RTP") || !is(names.next(), "AVP") {
            return None;
        }
        match (names.next(), names.next()) {
            (None, _) => Some(LowerTransport::Udp),
            (Some(lower), None) if lower.eq_ignore_ascii_case("UDP") => Some(LowerTransport::Udp),
            (Some(lower), None) if lower.eq_ignore_ascii_case("TCP") => Some(LowerTransport::Tcp),
            _ => None,
        }
    }
}

/// Splits `name=value` or `name`; quotes around the value are removed.
pub(super) fn parameter(part: &str) -> (&str, &str) {
    let (name, value) = part.split_once('=').unwrap_or((part, ""));
    (name.trim(), value.trim().trim_matches('"').trim())
}

/// `5000-5001`, or `5000` for that and the next.
pub(super) fn port_pair(value: &str) -> Option<PortPair> {
    let (rtp, rtcp) = match value.split_once('-') {
        Some((rtp, rtcp)) => (number(rtp)?, number(rtcp)?),
        None => (number(value)?, number(value)?.checked_add(1)?),
    };
    (rtp != 0 && rtcp != 0).then_some(PortPair { rtp, rtcp })
}

/// `0-1`, or `0` for that and the next.
pub(super) fn channel_pair(value: &str) -> Option<ChannelPair> {
    let (rtp, rtcp) = match value.split_once('-') {
        Some((rtp, rtcp)) => (number(rtp)?, number(rtcp)?),
        None => (number(value)?, number(value)?.checked_add(1)?),
    };
    let (rtp, rtcp) = (u8::try_from(rtp).ok()?, u8::try_from(rtcp).ok()?);
    (rtp != rtcp).then_some(ChannelPair { rtp, rtcp })
}

/// Decimal digits only: `str::parse` would accept a sign.
fn number(text: &str) -> Option<u16> {
    let text = text.trim();
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Splits at a separator outside of double quotes: `mode="PLAY,RECORD"` is one parameter.
pub(super) fn split_unquoted(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut in_quotes = false;
    text.split(move |c: char| {
        if c == '"' {
            in_quotes = !in_quotes;
        }
        c == separator && !in_quotes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp(rtp: u16, rtcp: u16) -> TransportOffer {
        TransportOffer::Udp { ports: PortPair { rtp, rtcp }, destination: None }
    }

    fn interleaved(rtp: u8, rtcp: u8) -> TransportOffer {
        TransportOffer::Interleaved { channels: Some(ChannelPair { rtp, rtcp }) }
    }

    #[test]
    fn rfc_2326_section_12_39_both_offers_are_read_in_order() {
        let header = "RTP/AVP;multicast;ttl=127;mode=\"PLAY\", \
                      RTP/AVP;unicast;client_port=3456-3457;mode=\"PLAY\"";
        assert_eq!(offers(header), [TransportOffer::Multicast, udp(3456, 3457)]);
    }

    #[test]
    fn rfc_2326_section_10_12_interleaved_is_read() {
        assert_eq!(offers("RTP/AVP/TCP;interleaved=0-1"), [interleaved(0, 1)]);
        assert_eq!(offers("rtp/avp/tcp;unicast;interleaved=254"), [interleaved(254, 255)]);
        assert_eq!(offers("RTP/AVP/TCP;unicast"), [TransportOffer::Interleaved { channels: None }]);
    }

    #[test]
    fn offers_of_real_clients_are_read() {
        // ffmpeg, VLC (live555), GStreamer with its list, an old set-top box.
        assert_eq!(offers("RTP/AVP/UDP;unicast;client_port=5000-5001"), [udp(5000, 5001)]);
        assert_eq!(offers("RTP/AVP;unicast;client_port=49152-49153"), [udp(49152, 49153)]);
        assert_eq!(offers("RTP/AVP/TCP;unicast;interleaved=0-1"), [interleaved(0, 1)]);
        let list = "RTP/AVPF;unicast;client_port=7000-7001,RTP/AVP;unicast;client_port=7000-7001,\
                    RTP/AVP;multicast,RTP/AVP/TCP;unicast;interleaved=0-1";
        assert_eq!(offers(list), [udp(7000, 7001), TransportOffer::Multicast, interleaved(0, 1)]);
        let old = "rtp/avp/udp; UNICAST ;Client_Port=6970;mode=play";
        assert_eq!(offers(old), [udp(6970, 6971)]);
    }

    #[test]
    fn offers_that_cannot_be_served_are_passed_over() {
        for header in [
            "",
            ",;,",
            "RTP/AVP",
            "RTP/AVP;unicast",
            "RTP/SAVP;unicast;client_port=5000-5001",
            "RTP/AVPF;unicast;client_port=5000-5001",
            "RTP/AVP/UDP/X;unicast;client_port=5000-5001",
            "RTP/AVP/TCP/X;unicast;interleaved=0-1",
            "RAW/RAW/UDP;unicast;client_port=5000-5001",
            "MP2T/H2221/UDP;unicast;client_port=5000-5001",
            "RTP/AVP;multicast;client_port=5000-5001",
            "RTP/AVP;multicast;interleaved=0-1",
            "RTP/AVP/TCP;multicast;interleaved=0-1",
            "RTP/AVP;unicast;client_port=5000-5001;interleaved=0-1",
            "RTP/AVP/TCP;interleaved=0-0",
            "RTP/AVP/TCP;interleaved=255",
            "RTP/AVP/TCP;interleaved=0-256",
            "RTP/AVP/TCP;interleaved=-1",
            "RTP/AVP/TCP;interleaved=0-1;interleaved=2-3",
            "RTP/AVP/TCP;interleaved=0-1;mode=record",
            "RTP/AVP;unicast;client_port=0-1",
            "RTP/AVP;unicast;client_port=65535",
            "RTP/AVP;unicast;client_port=65536-65537",
            "RTP/AVP;unicast;client_port=+5000-5001",
            "RTP/AVP;unicast;client_port=-",
            "RTP/AVP;unicast;client_port=5000-5001;client_port=22-23",
            "RTP/AVP;unicast;client_port=5000-5001;mode=\"PLAY,RECORD\"",
            "RTP/AVP;unicast;client_port=5000-5001;mode=record",
        ] {
            assert_eq!(offers(header), [], "{header}");
        }
    }

    #[test]
    fn a_written_offer_is_read_back() {
        let destination = Some("192.0.2.7".to_owned());
        let ports = PortPair { rtp: 5000, rtcp: 5001 };
        for offer in [
            udp(5000, 5001),
            TransportOffer::Udp { ports, destination },
            interleaved(2, 3),
            TransportOffer::Interleaved { channels: None },
            TransportOffer::Multicast,
        ] {
            assert_eq!(offers(&offer.to_string()), [offer]);
        }
    }

    #[test]
    fn a_long_list_of_offers_is_cut() {
        let list = "RTP/AVP/TCP;interleaved=0-1,".repeat(1000);
        assert_eq!(offers(&list).len(), OFFERS_MAX);
    }

    #[test]
    fn a_destination_is_handed_up() {
        let destination = |header: &str| match &offers(header)[..] {
            [TransportOffer::Udp { destination, .. }] => destination.clone(),
            other => panic!("{other:?}"),
        };
        let named = destination("RTP/AVP;unicast;destination=192.0.2.7;client_port=5000-5001");
        assert_eq!(named.as_deref(), Some("192.0.2.7"));
        // Without a value (§12.39 allows it) it means the client itself.
        assert_eq!(destination("RTP/AVP;unicast;destination;client_port=5000-5001"), None);
    }

    fn rtp_types(granted: GrantedTransport) -> rtsp_types::headers::RtpTransport {
        use rtsp_types::headers::{Transport, Transports};
        let request =
            rtsp_types::Request::builder(rtsp_types::Method::Setup, rtsp_types::Version::V1_0)
                .header(rtsp_types::headers::TRANSPORT, granted.to_string())
                .empty();
        let parsed = request.typed_header::<Transports>().unwrap().unwrap();
        let [Transport::Rtp(rtp)] = parsed.as_slice() else { panic!("{parsed:?}") };
        rtp.clone()
    }

    #[test]
    fn granted_is_read_the_same_by_rtsp_types() {
        let rtp = rtp_types(GrantedTransport::Udp {
            client: PortPair { rtp: 4588, rtcp: 4589 },
            server: PortPair { rtp: 6256, rtcp: 6257 },
            ssrc: 0x0BAD_CAFE,
            source: Some(IpAddr::from([192, 0, 2, 1])),
        });
        assert!(rtp.params.unicast);
        assert_eq!(rtp.params.client_port, Some((4588, Some(4589))));
        assert_eq!(rtp.params.server_port, Some((6256, Some(6257))));
        assert_eq!(rtp.params.ssrc, [0x0BAD_CAFE]);
        assert_eq!(rtp.params.source.as_deref(), Some("192.0.2.1"));
    }

    #[test]
    fn granted_channels_and_groups_are_read_the_same_by_rtsp_types() {
        let channels = ChannelPair { rtp: 2, rtcp: 3 };
        let rtp = rtp_types(GrantedTransport::Interleaved { channels, ssrc: 7 });
        assert!(rtp.params.unicast);
        assert_eq!(rtp.params.interleaved, Some((2, Some(3))));
        assert_eq!(
            (rtp.lower_transport, &rtp.params.ssrc[..]),
            (Some(rtsp_types::headers::RtpLowerTransport::Tcp), &[7][..])
        );
        let rtp = rtp_types(GrantedTransport::Multicast {
            group: IpAddr::from([239, 1, 1, 1]),
            ports: PortPair { rtp: 5004, rtcp: 5005 },
            ttl: 8,
            source: None,
            ssrc: 7,
        });
        assert!(rtp.params.multicast && !rtp.params.unicast);
        assert_eq!(rtp.params.port, Some((5004, Some(5005))));
        assert_eq!(
            (rtp.params.ttl, rtp.params.destination.as_deref()),
            (Some(8), Some("239.1.1.1"))
        );
    }
}
