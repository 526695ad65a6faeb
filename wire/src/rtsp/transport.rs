// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Transport header: chooses one of the client's offers and writes the transport granted.
//!
//! Only RTP/AVP over UDP to one receiver is served. A client lists its offers by preference and the
//! first acceptable one is taken (RFC 2326 §12.39); an offer that cannot be understood is passed
//! over like one that cannot be served, since the next may do. That is why `rtsp-types`' typed
//! header is not used here: it reads the list as a whole, so that one odd offer spoils all, and is
//! strict about case.
//!
//! Departures from the letter, all because real clients do it: neither `unicast` nor `multicast`
//! means unicast when there is a `client_port` (the RFC's default is multicast, which has no
//! client_port); `client_port` may name one port, the next is then for RTCP (RFC 3550 §11); both
//! ports may be one (RFC 5761). The odd-even rule for port pairs is not enforced.
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

/// The offer that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TransportOffer {
    /// Ports at which the client receives RTP and RTCP. Neither is 0.
    pub(super) ports: PortPair,
    /// Address to which the client wants the media sent, if it named one.
    pub(super) destination: Option<String>,
}

/// Transport that the server grants: its `Display` is the Transport header of the answer to SETUP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantedTransport {
    /// The ports of the client, as in the offer.
    pub client: PortPair,
    /// The ports that media leaves from and that takes receiver reports.
    pub server: PortPair,
    /// SSRC of the stream's packets.
    pub ssrc: u32,
    /// The address media leaves from, when it is not the one of the RTSP connection.
    pub source: Option<IpAddr>,
}

impl fmt::Display for GrantedTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (client, server) = (self.client, self.server);
        write!(f, "RTP/AVP;unicast;client_port={}-{}", client.rtp, client.rtcp)?;
        if let Some(source) = self.source {
            write!(f, ";source={source}")?;
        }
        write!(f, ";server_port={}-{}", server.rtp, server.rtcp)?;
        write!(f, ";ssrc={:08X};mode=\"PLAY\"", self.ssrc)
    }
}

/// The first offer in a Transport header that can be served; none is answered with 461.
pub(super) fn choose(header: &str) -> Option<TransportOffer> {
    split_unquoted(header, ',').find_map(offer)
}

fn offer(text: &str) -> Option<TransportOffer> {
    let mut parts = split_unquoted(text, ';').map(str::trim);
    if !is_rtp_over_udp(parts.next()?) {
        return None;
    }
    let mut ports = None;
    let mut destination = None;
    for part in parts.filter(|part| !part.is_empty()) {
        let (name, value) = parameter(part);
        match name.to_ascii_lowercase().as_str() {
            "multicast" | "interleaved" | "rtcp-mux" => return None,
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
            // unicast is the only thing left; ttl, layers, port, append, server_port, source and
            // ssrc have nothing to say to this server, and unknown parameters are ignored (§12).
            _ => {}
        }
    }
    Some(TransportOffer { ports: ports?, destination })
}

/// `RTP/AVP` or `RTP/AVP/UDP`: UDP is what the profile defaults to (§12.39).
pub(super) fn is_rtp_over_udp(protocol: &str) -> bool {
    let mut names = protocol.split('/').map(str::trim);
    let is = |name: Option<&str>, other: &str| name.is_some_and(|n| n.eq_ignore_ascii_case(other));
    is(names.next(), "RTP")
        && is(names.next(), "AVP")
        && names.next().is_none_or(|lower| lower.eq_ignore_ascii_case("UDP"))
        && names.next().is_none()
}

/// `name=value` or `name`; quotes around the value are taken off.
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

/// Decimal digits only: `str::parse` would take a sign.
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

    fn ports(header: &str) -> Option<(u16, u16)> {
        choose(header).map(|offer| (offer.ports.rtp, offer.ports.rtcp))
    }

    #[test]
    fn rfc_2326_section_12_39_the_multicast_offer_is_passed_over() {
        let header = "RTP/AVP;multicast;ttl=127;mode=\"PLAY\", \
                      RTP/AVP;unicast;client_port=3456-3457;mode=\"PLAY\"";
        assert_eq!(ports(header), Some((3456, 3457)));
    }

    #[test]
    fn rfc_2326_section_10_12_interleaved_is_refused() {
        assert_eq!(choose("RTP/AVP/TCP;interleaved=0-1"), None);
    }

    #[test]
    fn what_clients_send() {
        // ffmpeg, VLC (live555), GStreamer with its list, an old set-top box.
        assert_eq!(ports("RTP/AVP/UDP;unicast;client_port=5000-5001"), Some((5000, 5001)));
        assert_eq!(ports("RTP/AVP;unicast;client_port=49152-49153"), Some((49152, 49153)));
        let list = "RTP/AVPF;unicast;client_port=7000-7001,RTP/AVP;unicast;client_port=7000-7001,\
                    RTP/AVP;multicast,RTP/AVP/TCP;unicast;interleaved=0-1";
        assert_eq!(ports(list), Some((7000, 7001)));
        assert_eq!(ports("rtp/avp/udp; UNICAST ;Client_Port=6970;mode=play"), Some((6970, 6971)));
    }

    #[test]
    fn offers_that_cannot_be_served_are_refused() {
        for header in [
            "",
            ",;,",
            "RTP/AVP",
            "RTP/AVP;unicast",
            "RTP/SAVP;unicast;client_port=5000-5001",
            "RTP/AVPF;unicast;client_port=5000-5001",
            "RTP/AVP/TCP;unicast;client_port=5000-5001",
            "RTP/AVP/UDP/X;unicast;client_port=5000-5001",
            "RAW/RAW/UDP;unicast;client_port=5000-5001",
            "MP2T/H2221/UDP;unicast;client_port=5000-5001",
            "RTP/AVP;multicast;client_port=5000-5001",
            "RTP/AVP;unicast;client_port=0-1",
            "RTP/AVP;unicast;client_port=65535",
            "RTP/AVP;unicast;client_port=65536-65537",
            "RTP/AVP;unicast;client_port=+5000-5001",
            "RTP/AVP;unicast;client_port=-",
            "RTP/AVP;unicast;client_port=5000-5001;client_port=22-23",
            "RTP/AVP;unicast;client_port=5000-5001;mode=\"PLAY,RECORD\"",
            "RTP/AVP;unicast;client_port=5000-5001;mode=record",
        ] {
            assert_eq!(choose(header), None, "{header}");
        }
    }

    #[test]
    fn a_destination_is_handed_up() {
        let offer = choose("RTP/AVP;unicast;destination=192.0.2.7;client_port=5000-5001");
        assert_eq!(offer.and_then(|o| o.destination).as_deref(), Some("192.0.2.7"));
        // Without a value (§12.39 allows it) it means the client itself.
        let offer = choose("RTP/AVP;unicast;destination;client_port=5000-5001");
        assert_eq!(offer.map(|o| o.destination), Some(None));
    }

    #[test]
    fn granted_is_read_the_same_by_rtsp_types() {
        use rtsp_types::headers::{Transport, Transports};
        let granted = GrantedTransport {
            client: PortPair { rtp: 4588, rtcp: 4589 },
            server: PortPair { rtp: 6256, rtcp: 6257 },
            ssrc: 0x0BAD_CAFE,
            source: Some(IpAddr::from([192, 0, 2, 1])),
        };
        let request =
            rtsp_types::Request::builder(rtsp_types::Method::Setup, rtsp_types::Version::V1_0)
                .header(rtsp_types::headers::TRANSPORT, granted.to_string())
                .empty();
        let parsed = request.typed_header::<Transports>().unwrap().unwrap();
        let [Transport::Rtp(rtp)] = parsed.as_slice() else { panic!("{parsed:?}") };
        assert!(rtp.params.unicast);
        assert_eq!(rtp.params.client_port, Some((4588, Some(4589))));
        assert_eq!(rtp.params.server_port, Some((6256, Some(6257))));
        assert_eq!(rtp.params.ssrc, [0x0BAD_CAFE]);
        assert_eq!(rtp.params.source.as_deref(), Some("192.0.2.1"));
    }
}
