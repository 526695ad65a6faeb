// SPDX-License-Identifier: MIT OR Apache-2.0
//! The datagram in a received frame, checked for soundness.
//!
//! A path by device does the work of the kernel's IP and UDP: versions, lengths, the IPv4 header's
//! checksum, fragments, UDP's length and checksum. It works in two steps, because most frames of a
//! busy device are for no port here: [`UdpPacket::of`] reads address and port,
//! [`UdpPacket::payload`] checks the rest. Costs some 10 ns, and for an unverified checksum the sum
//! of the payload (25 ns for 1,316 bytes).
//!
//! Sources: RFC 768; RFC 791 §3.1; RFC 1071; RFC 8200 §3, §8.1; Linux `net/ipv4/udp.c`
//! (`__udp4_lib_rcv`: a datagram shorter than its packet is one).
//!
//! Does not reassemble fragments, and does not skip IPv6 extension headers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use simd::Checksum;

const IPV4_BYTES_MIN: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
const UDP: u8 = libc::IPPROTO_UDP as u8;
/// Flags and offset of an IPv4 header: more fragments, and where in the datagram this one lies.
const FRAGMENT: u16 = 0x3fff;
const FRAGMENT_OFFSET: u16 = 0x1fff;
const VLAN_NUMBER: u16 = 0x0fff;

/// State of a datagram's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChecksumStatus {
    /// Verified, or left to the network card by a sender on this host.
    Verified,
    /// Not verified yet: it is verified here.
    Unverified,
    /// Unverified, but the sender may be on this host, and then the field holds the sum of the
    /// pseudo-header only, for a network card to complete (`CHECKSUM_PARTIAL`).
    MayBePartial,
}

/// Version of the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IpVersion {
    V4,
    V6,
}

impl IpVersion {
    pub(super) fn of(ethertype: u16) -> Option<Self> {
        match i32::from(ethertype) {
            libc::ETH_P_IP => Some(Self::V4),
            libc::ETH_P_IPV6 => Some(Self::V6),
            _ => None,
        }
    }
}

/// Returns the IP packet in an Ethernet frame; `None` for a frame of a VLAN, which is another
/// network.
pub(super) fn packet_of_ethernet(frame: &[u8]) -> Option<(IpVersion, &[u8])> {
    let (addresses_and_type, rest) = frame.split_first_chunk::<14>()?;
    match number(addresses_and_type, 12) {
        0x8100 if rest.len() >= 4 && number(rest, 0) & VLAN_NUMBER == 0 => {
            Some((IpVersion::of(number(rest, 2))?, &rest[4..]))
        }
        ethertype => Some((IpVersion::of(ethertype)?, rest)),
    }
}

/// An IP packet with at least the beginning of a UDP datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct UdpPacket<'a> {
    bytes: &'a [u8],
    network: IpVersion,
    /// Offset of the UDP header, which is complete.
    udp_at: usize,
    pub(super) source: IpAddr,
    pub(super) target: IpAddr,
}

impl<'a> UdpPacket<'a> {
    /// Reads the addresses and finds the UDP header; `None` for other packets.
    pub(super) fn of(network: IpVersion, bytes: &'a [u8]) -> Option<Self> {
        let (udp_at, source, target) = match network {
            IpVersion::V4 => {
                let head = bytes.first_chunk::<IPV4_BYTES_MIN>()?;
                let head_bytes = usize::from(head[0] & 15) * 4;
                let is_first = number(head, 6) & FRAGMENT_OFFSET == 0;
                let sound = head[0] >> 4 == 4 && head_bytes >= IPV4_BYTES_MIN;
                if !sound || head[9] != UDP || !is_first {
                    return None;
                }
                let address = |at| IpAddr::V4(Ipv4Addr::from(array::<4>(head, at)));
                (head_bytes, address(12), address(16))
            }
            IpVersion::V6 => {
                let head = bytes.first_chunk::<IPV6_BYTES>()?;
                if head[0] >> 4 != 6 || head[6] != UDP {
                    return None;
                }
                let address = |at| IpAddr::V6(Ipv6Addr::from(array::<16>(head, at)));
                (IPV6_BYTES, address(8), address(24))
            }
        };
        let is_there = bytes.len() >= udp_at + UDP_BYTES;
        is_there.then_some(Self { bytes, network, udp_at, source, target })
    }

    /// Returns its target port.
    pub(super) fn port(&self) -> u16 {
        number(self.bytes, self.udp_at + 2)
    }

    /// Returns the sender's address, as seen by the device of that number: a link-local address
    /// needs it.
    pub(super) fn sender(&self, device: u32) -> SocketAddr {
        let port = number(self.bytes, self.udp_at);
        match self.source {
            IpAddr::V6(source) if source.is_unicast_link_local() => {
                SocketAddrV6::new(source, port, 0, device).into()
            }
            source => SocketAddr::new(source, port),
        }
    }

    /// Returns the datagram's payload; `None` where it is not sound.
    pub(super) fn payload(&self, status: ChecksumStatus, checksum: Checksum) -> Option<&'a [u8]> {
        let end = self.end()?;
        let length = usize::from(number(self.bytes, self.udp_at + 4));
        let room = end.checked_sub(self.udp_at)?;
        if length < UDP_BYTES || length > room {
            return None;
        }
        let datagram = &self.bytes[self.udp_at..self.udp_at + length];
        (status == ChecksumStatus::Verified || self.is_intact(datagram, status, checksum))
            .then_some(&datagram[UDP_BYTES..])
    }

    /// Returns the packet's end by its own length; `None` where it is cut, a fragment or damaged.
    fn end(&self) -> Option<usize> {
        let end = match self.network {
            IpVersion::V4 => {
                let head = &self.bytes[..self.udp_at];
                let is_whole = number(head, 6) & FRAGMENT == 0;
                let is_intact = folded(words(head)) == 0xffff;
                (is_whole && is_intact).then(|| usize::from(number(head, 2)))?
            }
            IpVersion::V6 => IPV6_BYTES + usize::from(number(self.bytes, 4)),
        };
        (end <= self.bytes.len()).then_some(end)
    }

    fn is_intact(&self, datagram: &[u8], status: ChecksumStatus, checksum: Checksum) -> bool {
        let field = number(datagram, 6);
        if field == 0 {
            // The datagram has no checksum, which IPv6 does not allow.
            return self.network == IpVersion::V4;
        }
        let addresses = match self.network {
            IpVersion::V4 => &self.bytes[12..20],
            IpVersion::V6 => &self.bytes[8..40],
        };
        let pseudo = words(addresses) + u64::from(UDP) + datagram.len() as u64;
        if status == ChecksumStatus::MayBePartial && field == folded(pseudo) {
            return true;
        }
        folded(pseudo + u64::from(checksum.sum(datagram))) == 0xffff
    }
}

/// Returns the sum of the 16-bit numbers in a header.
fn words(head: &[u8]) -> u64 {
    let (words, _) = head.as_chunks::<4>();
    words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum()
}

/// Returns a sum of 16- or 32-bit numbers in 16 bits, carries added.
fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn number(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|n| bytes[at + n])
}

#[cfg(test)]
pub(super) mod tests {
    use simd::Kernels;

    use super::*;

    /// Returns a packet from port 5004 of 10.0.0.1 (or an address of IPv6), complete and correct,
    /// with the given words of options.
    pub(in crate::receive) fn packet_to(
        target: SocketAddr,
        options: usize,
        payload: &[u8],
    ) -> Vec<u8> {
        let udp_bytes = UDP_BYTES + payload.len();
        let (network, mut packet) = match target.ip() {
            IpAddr::V4(target) => {
                let head_bytes = IPV4_BYTES_MIN + 4 * options;
                let mut head = vec![0; head_bytes];
                head[0] = 0x45 + options as u8;
                head[2..4].copy_from_slice(&((head_bytes + udp_bytes) as u16).to_be_bytes());
                head[8..10].copy_from_slice(&[64, UDP]);
                head[12..16].copy_from_slice(&[10, 0, 0, 1]);
                head[16..20].copy_from_slice(&target.octets());
                // No operation.
                head[20..].fill(1);
                seal(&mut head);
                (IpVersion::V4, head)
            }
            IpAddr::V6(target) => {
                let mut head = vec![0; IPV6_BYTES];
                head[0] = 0x60;
                head[4..6].copy_from_slice(&(udp_bytes as u16).to_be_bytes());
                head[6..8].copy_from_slice(&[UDP, 64]);
                head[8..24].copy_from_slice(&std::array::from_fn::<u8, 16, _>(|n| n as u8));
                head[24..40].copy_from_slice(&target.octets());
                (IpVersion::V6, head)
            }
        };
        let udp_at = packet.len();
        packet.extend_from_slice(&5004_u16.to_be_bytes());
        packet.extend_from_slice(&target.port().to_be_bytes());
        packet.extend_from_slice(&(udp_bytes as u16).to_be_bytes());
        packet.extend_from_slice(&[0, 0]);
        packet.extend_from_slice(payload);
        let sum = !sum_of(network, &packet, udp_at);
        packet[udp_at + 6..udp_at + 8].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    /// Corrects the checksum of an IPv4 header.
    pub(in crate::receive) fn seal(head: &mut [u8]) {
        head[10..12].fill(0);
        let sum = !folded(words(head));
        head[10..12].copy_from_slice(&sum.to_be_bytes());
    }

    fn packet(network: IpVersion, options: usize, payload_bytes: usize) -> Vec<u8> {
        let target = match network {
            IpVersion::V4 => "239.1.2.3:5006",
            IpVersion::V6 => "[ff05::1:3]:5006",
        };
        let payload: Vec<u8> = (0..payload_bytes).map(|n| (n * 7) as u8).collect();
        packet_to(target.parse().unwrap(), options, &payload)
    }

    /// Computes the sum by bytes, as in RFC 768.
    fn sum_of(network: IpVersion, packet: &[u8], udp_at: usize) -> u16 {
        let mut bytes = match network {
            IpVersion::V4 => packet[12..20].to_vec(),
            IpVersion::V6 => packet[8..40].to_vec(),
        };
        bytes.extend_from_slice(&[0, UDP]);
        bytes.extend_from_slice(&((packet.len() - udp_at) as u16).to_be_bytes());
        bytes.extend_from_slice(&packet[udp_at..]);
        let words = bytes
            .chunks(2)
            .map(|word| u64::from(word[0]) << 8 | u64::from(word.get(1).copied().unwrap_or(0)));
        folded(words.sum())
    }

    fn checksum() -> Checksum {
        Kernels::here().checksum
    }

    fn payload(network: IpVersion, bytes: &[u8], status: ChecksumStatus) -> Option<Vec<u8>> {
        let packet = UdpPacket::of(network, bytes)?;
        packet.payload(status, checksum()).map(<[u8]>::to_vec)
    }

    const SHAPES: [(IpVersion, usize); 4] =
        [(IpVersion::V4, 0), (IpVersion::V4, 1), (IpVersion::V4, 10), (IpVersion::V6, 0)];

    #[test]
    fn a_sound_packet_is_taken_and_what_follows_it_in_the_frame_is_not() {
        for (network, options) in SHAPES {
            for bytes in [0, 1, 2, 18, 1316, 1472] {
                let mut whole = packet(network, options, bytes);
                let expected: Vec<u8> = (0..bytes).map(|n| (n * 7) as u8).collect();
                // Ethernet pads its shortest frames.
                whole.extend_from_slice(&[0xee; 9]);
                let seen = UdpPacket::of(network, &whole).unwrap();
                assert_eq!((seen.port(), seen.sender(3).port()), (5006, 5004));
                for status in [
                    ChecksumStatus::Unverified,
                    ChecksumStatus::Verified,
                    ChecksumStatus::MayBePartial,
                ] {
                    assert_eq!(payload(network, &whole, status).as_ref(), Some(&expected));
                }
            }
        }
        let four = packet(IpVersion::V4, 0, 3);
        let seen = UdpPacket::of(IpVersion::V4, &four).unwrap();
        assert_eq!(
            (seen.sender(3), seen.target),
            ("10.0.0.1:5004".parse().unwrap(), "239.1.2.3".parse().unwrap())
        );
    }

    #[test]
    fn an_address_of_one_link_says_of_which() {
        let mut six = packet(IpVersion::V6, 0, 4);
        six[8..24].copy_from_slice(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
        let sender = UdpPacket::of(IpVersion::V6, &six).unwrap().sender(3);
        assert_eq!(sender, "[fe80::9%3]:5004".parse().unwrap());
    }

    /// Arbitrary bytes cause no panic.
    #[test]
    fn noise_is_looked_at_and_never_read_past_its_end() {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) as usize
        };
        for _ in 0..20_000 {
            let mut noise: Vec<u8> = (0..next() % 120).map(|_| next() as u8).collect();
            // Most values pass the first checks.
            for (at, value) in [(0, 0x45), (9, UDP), (6, 0), (7, 0), (2, 0), (4, 0), (24, 0)] {
                if let Some(byte) = noise.get_mut(at)
                    && next() % 4 > 0
                {
                    *byte = value;
                }
            }
            for network in [IpVersion::V4, IpVersion::V6] {
                for status in [ChecksumStatus::Verified, ChecksumStatus::Unverified] {
                    let accepted = payload(network, &noise, status);
                    assert!(accepted.is_none_or(|accepted| accepted.len() + 28 <= noise.len()));
                }
            }
            let _ = packet_of_ethernet(&noise);
        }
    }

    #[test]
    fn cut_anywhere_it_is_not() {
        for (network, options) in SHAPES {
            let whole = packet(network, options, 40);
            for length in 0..whole.len() {
                assert_eq!(
                    payload(network, &whole[..length], ChecksumStatus::Verified),
                    None,
                    "{length}"
                );
            }
        }
    }

    /// Any single wrong bit is detected, except in fields without a checksum: an IPv6 header's
    /// class, label and hops.
    #[test]
    fn changed_anywhere_it_is_not() {
        for (network, options) in SHAPES {
            let whole = packet(network, options, 40);
            for bit in 0..whole.len() * 8 {
                let mut changed = whole.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                let class_label_or_hops = bit < 4 || (8..32).contains(&bit) || bit / 8 == 7;
                let uncovered = network == IpVersion::V6 && class_label_or_hops;
                let is_accepted = payload(network, &changed, ChecksumStatus::Unverified).is_some();
                assert_eq!(is_accepted, uncovered, "{network:?} {options} bit {bit}");
            }
        }
    }

    #[test]
    fn fragments_are_not_taken_and_only_the_first_is_for_a_port() {
        let whole = packet(IpVersion::V4, 0, 40);
        let with = |flags: u16| {
            let mut changed = whole.clone();
            changed[6..8].copy_from_slice(&flags.to_be_bytes());
            seal(&mut changed[..20]);
            changed
        };
        assert!(
            payload(IpVersion::V4, &with(0x4000), ChecksumStatus::Unverified).is_some(),
            "may not be cut"
        );
        let first = with(0x2000);
        assert!(UdpPacket::of(IpVersion::V4, &first).is_some());
        assert_eq!(payload(IpVersion::V4, &first, ChecksumStatus::Verified), None);
        assert!(UdpPacket::of(IpVersion::V4, &with(0x2010)).is_none());
        assert!(UdpPacket::of(IpVersion::V4, &with(0x0010)).is_none());
    }

    #[test]
    fn no_checksum_is_allowed_by_ipv4_alone_and_an_unfinished_one_where_it_may_be() {
        for network in [IpVersion::V4, IpVersion::V6] {
            let mut packet = packet(network, 0, 40);
            let udp_at = packet.len() - 48;
            packet[udp_at + 6..udp_at + 8].fill(0);
            let is_accepted = payload(network, &packet, ChecksumStatus::Unverified).is_some();
            assert_eq!(is_accepted, network == IpVersion::V4);
            let payload_bytes = packet.len() - udp_at;
            let addresses = if network == IpVersion::V4 { 12..20 } else { 8..40 };
            let pseudo = folded(words(&packet[addresses]) + 17 + payload_bytes as u64);
            packet[udp_at + 6..udp_at + 8].copy_from_slice(&pseudo.to_be_bytes());
            assert_eq!(payload(network, &packet, ChecksumStatus::Unverified), None);
            assert!(payload(network, &packet, ChecksumStatus::MayBePartial).is_some());
            packet[udp_at + 7] ^= 1;
            assert_eq!(payload(network, &packet, ChecksumStatus::MayBePartial), None);
        }
    }

    #[test]
    fn a_vlans_frame_is_another_networks_and_a_priority_is_none() {
        let packet = packet(IpVersion::V4, 0, 4);
        let frame = |between: &[u8]| [&[2; 12], between, &packet].concat();
        let inner = |frame: &[u8]| packet_of_ethernet(frame).map(|(_, packet)| packet.to_vec());
        assert_eq!(inner(&frame(&[8, 0])), Some(packet.clone()));
        assert_eq!(inner(&frame(&[0x81, 0, 0xa0, 0, 8, 0])), Some(packet.clone()));
        assert_eq!(inner(&frame(&[0x81, 0, 0xa0, 5, 8, 0])), None);
        assert_eq!(inner(&frame(&[0x88, 0xa8, 0, 0, 8, 0])), None);
        assert_eq!(inner(&frame(&[8, 6])), None);
        for length in 0..14 {
            assert_eq!(inner(&frame(&[8, 0])[..length]), None);
        }
        assert_eq!(inner(&frame(&[0x81, 0, 0, 0, 8, 0])[..17]), None);
    }
}
