// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads and writes SAP announcements of multicast sessions and their deletion, and schedules them.
//!
//! A listener discovers the channels of a network without a configured address: each is announced
//! to a group of its own scope at intervals of five minutes or more, and times out when
//! announcements stop. Any host on the network can forge one, so a parsed packet is only a hint.
//!
//! Choices: packets carry the payload type, which may be omitted (§6); the message hash is never 0,
//! which VLC reads as no hash; a deletion carries only the origin line (§6).
//!
//! Cost: one packet of about 350 bytes a channel and interval.
//!
//! Sources: RFC 2974 §3 (groups), §3.1 (interval), §4 (time-out), §6 (packets); RFC 2365 §6
//! (scopes of 239/8); RFC 4291 §2.7 (scopes of IPv6); RFC 8866 (the payload).
//! Does not authenticate, encrypt or compress, and refuses encrypted or compressed packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::error::{Fault, Malformed};

/// Port of every SAP group (§3).
pub const PORT: u16 = 9875;

/// Bandwidth of all announcements to one group if no other limit is known, bits per second (§3.1).
pub const BANDWIDTH_BITS_PER_SECOND: u64 = 4000;

/// Kind of a SAP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SapKind {
    /// The session exists.
    Announcement,
    /// The session is over.
    Deletion,
}

/// A SAP packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SapPacket<'a> {
    /// Announcement or deletion.
    pub kind: SapKind,
    /// Identifies, with the source, one version of one announcement.
    pub message_hash: u16,
    /// Address of the announcer, from the packet's header.
    pub source: IpAddr,
    /// Session description; of a deletion, at least its origin line.
    pub description: &'a [u8],
}

impl SapPacket<'_> {
    /// Writes the packet, with the payload type `application/sdp`.
    pub fn write(&self) -> Vec<u8> {
        let mut packet = Vec::with_capacity(USUAL_BYTES + self.description.len());
        let is_ipv6 = if self.source.is_ipv6() { ADDRESS_TYPE } else { 0 };
        let is_deletion = if self.kind == SapKind::Deletion { MESSAGE_TYPE } else { 0 };
        packet.push(VERSION << VERSION_SHIFT | is_ipv6 | is_deletion);
        // No authentication data.
        packet.push(0);
        packet.extend(self.message_hash.to_be_bytes());
        match self.source {
            IpAddr::V4(source) => packet.extend(source.octets()),
            IpAddr::V6(source) => packet.extend(source.octets()),
        }
        packet.extend(PAYLOAD_TYPE.as_bytes());
        packet.push(0);
        packet.extend(self.description);
        packet
    }

    /// Reads a datagram.
    ///
    /// # Errors
    /// A packet that contradicts its length, of another version, encrypted or compressed, or
    /// without a session description.
    pub fn parse(datagram: &[u8]) -> Result<SapPacket<'_>, Malformed> {
        let short = || Malformed::new(datagram.len() as u64, Fault::SapTooShort);
        let [flags, authentication_words, hash_high, hash_low, ..] = *datagram else {
            return Err(short());
        };
        let version = flags >> VERSION_SHIFT;
        if version != VERSION {
            return Err(Malformed::new(0, Fault::SapVersion { version }));
        }
        if flags & (ENCRYPTED | COMPRESSED) != 0 {
            return Err(Malformed::new(0, Fault::SapEncoded));
        }
        let (source, rest): (IpAddr, &[u8]) = if flags & ADDRESS_TYPE == 0 {
            let (source, rest) = datagram[4..].split_first_chunk::<4>().ok_or_else(short)?;
            (Ipv4Addr::from(*source).into(), rest)
        } else {
            let (source, rest) = datagram[4..].split_first_chunk::<16>().ok_or_else(short)?;
            (Ipv6Addr::from(*source).into(), rest)
        };
        let payload = rest.get(4 * usize::from(authentication_words)..).ok_or_else(short)?;
        let kind = match flags & MESSAGE_TYPE {
            0 => SapKind::Announcement,
            _ => SapKind::Deletion,
        };
        let description = description(payload).ok_or_else(|| {
            let offset = datagram.len() - payload.len();
            Malformed::new(offset as u64, Fault::SapPayload)
        })?;
        let message_hash = u16::from_be_bytes([hash_high, hash_low]);
        Ok(SapPacket { kind, message_hash, source, description })
    }
}

/// Returns the payload without its type; `None` if the type is not SDP.
fn description(payload: &[u8]) -> Option<&[u8]> {
    let is_sdp = |text: &[u8]| text.starts_with(b"v=0") || text.starts_with(b"o=");
    let text = if is_sdp(payload) {
        payload
    } else {
        let end = payload.iter().take(PAYLOAD_TYPE.len() + 1).position(|byte| *byte == 0)?;
        let (named, text) = (&payload[..end], &payload[end + 1..]);
        named.eq_ignore_ascii_case(PAYLOAD_TYPE.as_bytes()).then_some(text)?
    };
    is_sdp(text).then_some(text)
}

/// Writes the announcement of a session.
pub fn announcement(source: IpAddr, message_hash: u16, description: &[u8]) -> Vec<u8> {
    SapPacket { kind: SapKind::Announcement, message_hash, source, description }.write()
}

/// Writes the deletion of a session that was announced with this hash and description.
pub fn deletion(source: IpAddr, message_hash: u16, description: &[u8]) -> Vec<u8> {
    let mut lines = description.split_inclusive(|byte| *byte == b'\n');
    let origin = lines.find(|line| line.starts_with(b"o=")).unwrap_or(description);
    SapPacket { kind: SapKind::Deletion, message_hash, source, description: origin }.write()
}

/// Returns a hash of a description that is not 0 and that no other announcement of this source has,
/// checked by `is_taken`: of 1,000 descriptions some share a hash of 16 bits. If all hashes are
/// taken, it returns one that is.
pub fn message_hash(description: &[u8], is_taken: impl Fn(u16) -> bool) -> u16 {
    // FNV-1a of 32 bits, folded to 16.
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    let hash = description.iter().fold(0x811c_9dc5, step);
    let first = (hash >> 16 ^ hash) as u16;
    let others = (0..=u16::MAX).map(|more| first.wrapping_add(more));
    let mut free = others.filter(|hash| *hash != 0 && !is_taken(*hash));
    free.next().unwrap_or(first.max(1))
}

/// Returns the group and port to which a session at `group` is announced: one of the same scope.
/// `None` for unicast. In 239/8 outside of the organization's scope, and if scopes are not
/// configured, the local one is used, because it has the smallest reach.
pub fn announcement_target(group: IpAddr) -> Option<SocketAddr> {
    if !group.is_multicast() {
        return None;
    }
    let target: IpAddr = match group {
        IpAddr::V4(group) => match group.octets() {
            [224, 0, 0, _] => Ipv4Addr::new(224, 0, 0, 255).into(),
            [239, 192..=195, ..] => Ipv4Addr::new(239, 195, 255, 255).into(),
            [239, ..] => Ipv4Addr::new(239, 255, 255, 255).into(),
            _ => Ipv4Addr::new(224, 2, 127, 254).into(),
        },
        IpAddr::V6(group) => {
            let scope = group.segments()[0] & 0xf;
            Ipv6Addr::new(0xff00 | scope, 0, 0, 0, 0, 0, 2, 0x7ffe).into()
        }
    };
    Some(SocketAddr::new(target, PORT))
}

/// Returns the interval between announcements of one session (§3.1): five minutes, or longer where
/// `announcements` sessions of `packet_bytes` each would exceed the bandwidth of their group.
pub fn announcement_interval(
    announcements: u64,
    packet_bytes: u64,
    bits_per_second: u64,
) -> Duration {
    let bytes = u128::from(announcements) * u128::from(packet_bytes);
    let seconds = bytes.saturating_mul(8) / u128::from(bits_per_second.max(1));
    let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
    Duration::from_secs(seconds.max(INTERVAL_S_MIN))
}

/// Returns the time until the next announcement: the interval, up to a third shorter or longer
/// (§3.1), by a random number of the caller's.
pub fn announcement_delay(interval: Duration, random: u32) -> Duration {
    let third = interval / 3;
    let share = (third.as_nanos() * 2 * u128::from(random)) >> 32;
    let offset = Duration::new((share / NANOS) as u64, (share % NANOS) as u32);
    (interval - third).saturating_add(offset)
}

/// Returns the silence after which a listener forgets a session (§4): ten intervals, and an hour at
/// least.
pub fn announcement_time_out(interval: Duration) -> Duration {
    interval.saturating_mul(10).max(Duration::from_secs(3600))
}

const VERSION: u8 = 1;
const VERSION_SHIFT: u32 = 5;
/// A: the source is an IPv6 address.
const ADDRESS_TYPE: u8 = 1 << 4;
/// T: the packet is a deletion.
const MESSAGE_TYPE: u8 = 1 << 2;
/// E and C.
const ENCRYPTED: u8 = 1 << 1;
const COMPRESSED: u8 = 1;
const PAYLOAD_TYPE: &str = "application/sdp";
/// Header, an IPv6 source, and the payload type.
const USUAL_BYTES: usize = 4 + 16 + PAYLOAD_TYPE.len() + 1;
const INTERVAL_S_MIN: u64 = 300;
const NANOS: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const SDP: &[u8] = b"v=0\r\no=- 7 3 IN IP4 192.0.2.1\r\ns=News\r\nt=0 0\r\n";
    const ORIGIN: &[u8] = b"o=- 7 3 IN IP4 192.0.2.1\r\n";

    proptest::proptest! {
        #[test]
        fn accepted_packets_are_written_as_they_are_read(
            flags in 0x20_u8..0x40,
            words in 0_u8..3,
            head in proptest::collection::vec(proptest::num::u8::ANY, 0..40),
            tail in proptest::collection::vec(proptest::num::u8::ANY, 0..20),
        ) {
            let random = [&[flags, words][..], &head, &tail].concat();
            let typed = [&[flags, words][..], &head, b"application/sdp\0v=0", &tail].concat();
            let plain = [&[flags, words][..], &head, b"o=", &tail].concat();
            for datagram in [random, typed, plain] {
                let Ok(packet) = SapPacket::parse(&datagram) else { continue };
                let written = packet.write();
                proptest::prop_assert_eq!(SapPacket::parse(&written), Ok(packet.clone()));
                let deleted = deletion(packet.source, packet.message_hash, packet.description);
                proptest::prop_assert!(SapPacket::parse(&deleted).is_ok());
            }
        }
    }

    fn four() -> IpAddr {
        Ipv4Addr::new(192, 0, 2, 1).into()
    }

    #[test]
    fn announcement_has_these_bytes() {
        let mut expected = vec![0x20, 0, 0x12, 0x34, 192, 0, 2, 1];
        expected.extend(b"application/sdp\0");
        expected.extend(SDP);
        assert_eq!(announcement(four(), 0x1234, SDP), expected);
        let six = announcement(Ipv6Addr::LOCALHOST.into(), 1, SDP);
        assert_eq!(six[..4], [0x30, 0, 0, 1]);
        assert_eq!(six[4..20], Ipv6Addr::LOCALHOST.octets());
    }

    #[test]
    fn deletion_carries_the_origin_alone() {
        let packet = deletion(four(), 9, SDP);
        assert_eq!(packet[0], 0x24);
        assert!(packet.ends_with(ORIGIN) && packet.len() == 8 + 16 + ORIGIN.len());
        let parsed = SapPacket::parse(&packet).unwrap();
        assert_eq!((parsed.kind, parsed.description), (SapKind::Deletion, ORIGIN));
    }

    #[test]
    fn packets_are_read_as_they_are_written() {
        for source in [four(), "2001:db8::1".parse().unwrap()] {
            for kind in [SapKind::Announcement, SapKind::Deletion] {
                let packet = SapPacket { kind, message_hash: 0xfffe, source, description: SDP };
                assert_eq!(SapPacket::parse(&packet.write()), Ok(packet));
            }
        }
    }

    #[test]
    fn payload_type_may_be_left_out_and_authentication_is_stepped_over() {
        let mut packet = vec![0x20, 2, 0, 5, 192, 0, 2, 1];
        packet.extend([0xaa; 8]);
        packet.extend(SDP);
        assert_eq!(SapPacket::parse(&packet).unwrap().description, SDP);
        let named = [&[0x20, 0, 0, 5, 192, 0, 2, 1][..], b"Application/SDP\0", SDP].concat();
        assert_eq!(SapPacket::parse(&named).unwrap().description, SDP);
    }

    #[test]
    fn unusable_packets_are_refused_with_their_rule() {
        let good = announcement(four(), 1, SDP);
        let fault = |packet: &[u8]| SapPacket::parse(packet).unwrap_err().fault;
        for length in 0..8 {
            assert_eq!(fault(&good[..length]), Fault::SapTooShort, "{length} bytes");
        }
        for length in 8..26 {
            assert_eq!(fault(&good[..length]), Fault::SapPayload, "{length} bytes");
        }
        let with = |at: usize, byte: u8| {
            let mut packet = good.clone();
            packet[at] = byte;
            packet
        };
        assert_eq!(fault(&with(0, 0x40)), Fault::SapVersion { version: 2 });
        assert_eq!(fault(&with(0, 0x00)), Fault::SapVersion { version: 0 });
        assert_eq!(fault(&with(0, 0x22)), Fault::SapEncoded);
        assert_eq!(fault(&with(0, 0x21)), Fault::SapEncoded);
        assert_eq!(fault(&with(1, 255)), Fault::SapTooShort);
        assert_eq!(fault(&with(8, b'b')), Fault::SapPayload);
        let message = SapPacket::parse(&with(0, 0x40)).unwrap_err().to_string();
        assert_eq!(message, "byte 0: SAP version 2 (RFC 2974 §6)");
    }

    #[test]
    fn hashes_are_never_zero_and_never_shared() {
        assert_eq!(message_hash(SDP, |_| false), message_hash(SDP, |_| false));
        assert_ne!(message_hash(SDP, |_| false), message_hash(ORIGIN, |_| false));
        let first = message_hash(SDP, |_| false);
        assert_eq!(message_hash(SDP, |hash| hash == first), first.wrapping_add(1).max(1));
        assert_ne!(message_hash(SDP, |hash| hash != 0), 0, "all hashes are taken");
        for number in 0_u32..200_000 {
            assert_ne!(message_hash(&number.to_be_bytes(), |_| false), 0);
        }
    }

    #[test]
    fn sessions_are_announced_in_their_own_scope() {
        for (group, expected) in [
            ("239.255.1.1", Some("239.255.255.255:9875")),
            ("239.1.1.1", Some("239.255.255.255:9875")),
            ("239.192.1.1", Some("239.195.255.255:9875")),
            ("239.195.255.1", Some("239.195.255.255:9875")),
            ("224.2.17.12", Some("224.2.127.254:9875")),
            ("232.1.1.1", Some("224.2.127.254:9875")),
            ("224.0.0.9", Some("224.0.0.255:9875")),
            ("10.0.0.9", None),
            ("ff02::1", Some("[ff02::2:7ffe]:9875")),
            ("ff15::1", Some("[ff05::2:7ffe]:9875")),
            ("ff3e::8000:1", Some("[ff0e::2:7ffe]:9875")),
            ("fd00::1", None),
        ] {
            let found = announcement_target(group.parse().unwrap());
            assert_eq!(found.map(|target| target.to_string()).as_deref(), expected, "{group}");
        }
    }

    #[test]
    fn intervals_keep_the_group_within_its_bandwidth() {
        let seconds = |ads, bytes, bits| announcement_interval(ads, bytes, bits).as_secs();
        assert_eq!(seconds(1, 350, BANDWIDTH_BITS_PER_SECOND), 300);
        assert_eq!(seconds(1000, 500, BANDWIDTH_BITS_PER_SECOND), 1000);
        assert_eq!(seconds(0, 0, 0), 300);
        assert_eq!(seconds(u64::MAX, u64::MAX, 1), u64::MAX);
    }

    #[test]
    fn delays_lie_within_a_third_of_the_interval() {
        let interval = Duration::from_secs(300);
        assert_eq!(announcement_delay(interval, 0), Duration::from_secs(200));
        assert_eq!(announcement_delay(interval, 1 << 31), interval);
        let latest = announcement_delay(interval, u32::MAX);
        assert!(latest > Duration::from_millis(399_999) && latest < Duration::from_secs(400));
        assert!(announcement_delay(Duration::MAX, u32::MAX) > Duration::from_secs(1 << 60));
        assert_eq!(announcement_time_out(interval), Duration::from_secs(3600));
        assert_eq!(announcement_time_out(Duration::from_secs(1000)), Duration::from_secs(10_000));
    }
}
