// SPDX-License-Identifier: MIT OR Apache-2.0
//! An address that a channel is sent to, as a URL, and the rules of such addresses.
//!
//! Multicast reaches everyone in the scope of its address, so a mistake here is everyone's: groups
//! of routing protocols, groups without a scope and odd RTP ports are refused before a packet is
//! sent.
//!
//! Sources: RFC 3550 §11 (an even port for RTP, the next for RTCP); RFC 5771 §4 (224.0.0.0/24);
//! RFC 4291 §2.7 (IPv6 scopes), RFC 4607 §1 (ranges of SSM: 232.0.0.0/8, FF3x::/32, and within
//! them the addresses that may not be used), RFC 3986 §3.2.2 (brackets).
//! Does not resolve names.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Format of the packets that a target receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SendFormat {
    /// RTP with payload type 33 (RFC 2250).
    Rtp,
    /// Transport stream packets alone in each datagram.
    Udp,
}

/// Address that a channel is sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SendTarget {
    /// Format of the packets.
    pub format: SendFormat,
    /// Address and port; multicast or unicast.
    pub address: SocketAddr,
}

impl SendTarget {
    /// Reads `rtp://239.1.1.1:5004`, `udp://[ff15::1]:1234` and the like.
    ///
    /// # Errors
    /// The rule that the text breaks, and the cure.
    pub(crate) fn parse(text: &str) -> Result<SendTarget, (String, String)> {
        let (format, address) = match text.split_once("://") {
            Some(("rtp", address)) => (SendFormat::Rtp, address),
            Some(("udp", address)) => (SendFormat::Udp, address),
            _ => return Err(refusal("neither rtp:// nor udp://", USUAL)),
        };
        let address = address.strip_prefix('@').unwrap_or(address);
        let address = address.strip_suffix('/').unwrap_or(address);
        let address: SocketAddr = address.parse().map_err(|_| {
            refusal("no numeric address and port", &format!("{USUAL} ({USUAL_V6})"))
        })?;
        let target = SendTarget { format, address };
        target.check_port()?;
        match address.ip() {
            IpAddr::V4(ip) => check_v4(ip)?,
            IpAddr::V6(ip) => check_v6(ip)?,
        }
        Ok(target)
    }

    /// True for a multicast group.
    pub fn is_multicast(&self) -> bool {
        self.address.ip().is_multicast()
    }

    /// True for a group of source-specific multicast.
    pub fn is_source_specific(&self) -> bool {
        match self.address.ip() {
            IpAddr::V4(ip) => ip.octets()[0] == 232,
            IpAddr::V6(ip) => ip.segments()[0] & 0xfff0 == 0xff30 && ip.segments()[1] == 0,
        }
    }

    /// True for a multicast group whose members hear every sender (RFC 1112): the servers of a
    /// standby pair hear each other there.
    pub(crate) fn is_any_source_group(&self) -> bool {
        self.is_multicast() && !self.is_source_specific()
    }

    /// True for a multicast group that a packet reaches by one interface only (RFC 4291 §2.7:
    /// interface-local and link-local scope).
    pub(crate) fn needs_interface(&self) -> bool {
        match self.address.ip() {
            IpAddr::V4(_) => false,
            IpAddr::V6(ip) => ip.is_multicast() && matches!(ip.segments()[0] & 0xf, 1 | 2),
        }
    }

    /// True when the two would send to one port, RTCP included.
    pub(crate) fn collides(&self, other: &SendTarget) -> bool {
        let ports = |target: &SendTarget| {
            let first = target.address.port();
            first..=first + u16::from(target.format == SendFormat::Rtp)
        };
        let (own, others) = (ports(self), ports(other));
        self.address.ip() == other.address.ip()
            && own.start() <= others.end()
            && others.start() <= own.end()
    }

    fn check_port(&self) -> Result<(), (String, String)> {
        let port = self.address.port();
        if port == 0 {
            return Err(refusal("port 0", "write 1 to 65535"));
        }
        if self.format == SendFormat::Rtp && !port.is_multiple_of(2) {
            let cure = format!("write {}", port - 1);
            let cure = if port == 1 { "write 2".to_owned() } else { cure };
            return Err(("odd port, which is RTCP's (RFC 3550 §11)".to_owned(), cure));
        }
        Ok(())
    }
}

impl fmt::Display for SendTarget {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.format {
            SendFormat::Rtp => "rtp",
            SendFormat::Udp => "udp",
        };
        write!(out, "{scheme}://{}", self.address)
    }
}

fn check_v4(ip: Ipv4Addr) -> Result<(), (String, String)> {
    if ip.is_unspecified() || ip.is_broadcast() || ip.octets()[0] >= 240 {
        return Err(refusal("no address of a receiver or a group", USUAL));
    }
    if ip.octets()[..3] == [224, 0, 0] {
        let fault = "a group of routing protocols (RFC 5771 §4)";
        return Err(refusal(fault, "write a group of 239.0.0.0/8"));
    }
    // 232.0.0.0 itself is reserved, 232.0.0.1 to 232.0.0.255 are IANA's (RFC 4607 §1).
    if ip.octets()[..3] == [232, 0, 0] {
        return Err(refusal(RESERVED, "write 232.0.1.0 or more"));
    }
    Ok(())
}

fn check_v6(ip: Ipv6Addr) -> Result<(), (String, String)> {
    if ip.is_unspecified() {
        return Err(refusal("no address of a receiver or a group", USUAL_V6));
    }
    if let Some(plain) = ip.to_ipv4_mapped() {
        return Err(("an IPv4 address written as IPv6".to_owned(), format!("write {plain}")));
    }
    if !ip.is_multicast() {
        return Ok(());
    }
    let segments = ip.segments();
    if matches!(segments[0] & 0xf, 0 | 0xf) {
        return Err(refusal("a scope that is reserved (RFC 4291 §2.7)", USUAL_V6));
    }
    let is_source_specific = segments[0] & 0xfff0 == 0xff30 && segments[1] == 0;
    // The last 32 bits are 4000:0001 or more; the 64 bits of a network prefix are zero.
    if is_source_specific && (segments[2..6] != [0; 4] || segments[6] < 0x4000) {
        return Err(refusal(RESERVED, "write a group such as ff35::8000:1"));
    }
    if is_source_specific && segments[6] == 0x4000 && segments[7] == 0 {
        return Err(refusal(RESERVED, "write a group such as ff35::8000:1"));
    }
    Ok(())
}

fn refusal(fault: &str, cure: &str) -> (String, String) {
    (fault.to_owned(), cure.to_owned())
}

const USUAL: &str = "write rtp://239.1.1.1:5004 or the like";
const USUAL_V6: &str = "for IPv6 rtp://[ff15::1]:5004";
const RESERVED: &str = "a reserved group of source-specific multicast (RFC 4607 §1)";

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> SendTarget {
        SendTarget::parse(text).unwrap_or_else(|fault| panic!("{text}: {fault:?}"))
    }

    #[test]
    fn targets_are_written_as_they_are_read() {
        for text in [
            "rtp://239.1.1.1:5004",
            "udp://10.0.0.9:1234",
            "rtp://[ff15::1]:5004",
            "udp://[fd00::9]:1",
            "udp://239.1.1.1:65535",
            "rtp://239.1.1.1:65534",
        ] {
            assert_eq!(target(text).to_string(), text);
        }
        assert_eq!(target("rtp://@239.1.1.1:5004/").to_string(), "rtp://239.1.1.1:5004");
    }

    #[test]
    fn unusable_addresses_are_refused_with_a_cure() {
        for (text, fault, cure) in [
            ("239.1.1.1:5004", "neither rtp:// nor udp://", "write rtp://239"),
            ("http://239.1.1.1:5004", "neither", "write rtp://239"),
            ("rtp://news.example:5004", "no numeric address", "[ff15::1]:5004"),
            ("rtp://239.1.1.1", "no numeric address", "write rtp"),
            ("rtp://239.1.1.1:65536", "no numeric address", "write rtp"),
            ("rtp://ff15::1:5004", "no numeric address", "[ff15::1]"),
            ("udp://239.1.1.1:0", "port 0", "write 1 to 65535"),
            ("rtp://239.1.1.1:5005", "odd port", "write 5004"),
            ("rtp://239.1.1.1:1", "odd port", "write 2"),
            ("rtp://224.0.0.251:5004", "routing protocols", "239.0.0.0/8"),
            ("udp://0.0.0.0:1", "no address", "write rtp"),
            ("udp://255.255.255.255:1", "no address", "write rtp"),
            ("udp://[::]:1", "no address", "ff15::1"),
            ("udp://[::ffff:10.0.0.9]:1", "IPv4 address", "write 10.0.0.9"),
            ("udp://[ff10::1]:1", "scope", "ff15::1"),
            ("udp://232.0.0.9:1", "reserved group", "232.0.1.0"),
            ("udp://[ff35::1]:1", "reserved group", "ff35::8000:1"),
            ("udp://[ff35::4000:0]:1", "reserved group", "ff35::8000:1"),
            ("udp://[ff35:0:1::8000:1]:1", "reserved group", "ff35::8000:1"),
        ] {
            let (found, written) = SendTarget::parse(text).expect_err(text);
            assert!(found.contains(fault) && written.contains(cure), "{text}: {found}; {written}");
        }
    }

    #[test]
    fn groups_of_source_specific_multicast_are_known_by_their_range() {
        for text in ["udp://232.1.1.1:1", "udp://[ff35::8000:1]:1", "udp://[ff3e::4000:1]:1"] {
            assert!(target(text).is_source_specific(), "{text}");
        }
        // FF35:40:… is a group of a unicast prefix (RFC 3306), FF15 a transient one.
        for text in ["udp://239.1.1.1:1", "udp://[ff35:40:fd00::1]:1", "udp://[ff15::1]:1"] {
            assert!(!target(text).is_source_specific(), "{text}");
        }
        for (text, is_any_source) in
            [("udp://239.1.1.1:1", true), ("udp://232.1.1.1:1", false), ("udp://10.0.0.9:1", false)]
        {
            assert_eq!(target(text).is_any_source_group(), is_any_source, "{text}");
        }
        assert!(target("udp://[ff12::1]:1").needs_interface());
        assert!(!target("udp://[ff15::1]:1").needs_interface());
    }

    #[test]
    fn rtp_takes_the_port_of_rtcp_too() {
        let rtp = target("rtp://239.1.1.1:5004");
        for text in ["rtp://239.1.1.1:5004", "udp://239.1.1.1:5004", "udp://239.1.1.1:5005"] {
            assert!(rtp.collides(&target(text)) && target(text).collides(&rtp), "{text}");
        }
        for text in ["rtp://239.1.1.1:5006", "udp://239.1.1.1:5003", "rtp://239.1.1.2:5004"] {
            assert!(!rtp.collides(&target(text)), "{text}");
        }
        let last = target("rtp://239.1.1.1:65534");
        assert!(last.collides(&target("udp://239.1.1.1:65535")));
    }
}
