// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parser of one frame of any kind, header by header: the oracle, and the fallback for unusual
//! frames.
//!
//! Every byte is read by a checked access to the slice that its header's length allows. The reason
//! is the first error found; fields found before it stay.
//!
//! Sources: those of [`super`].
//!
//! Does not aim at speed.

use super::{Fields, ParseFlags};

/// Most bytes of a frame: offsets in it have 16 bits.
pub const FRAME_BYTES_MAX: usize = u16::MAX as usize;

/// Most extension headers of IPv6 that are followed; no stream uses more.
const EXTENSIONS_MAX: usize = 8;
const TAGS_MAX: usize = 2;

/// Parses the fields of a frame.
pub(super) fn parse(frame: &[u8]) -> Fields {
    let mut fields = Fields::default();
    if let Err(reason) = ethernet(frame, &mut fields) {
        fields.found = fields.found.with(reason);
    }
    fields
}

/// Reads two bytes; an error when `bytes` end before them.
fn half(bytes: &[u8], at: usize) -> Result<u16, ParseFlags> {
    let two = bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or(ParseFlags::TRUNCATED)?;
    Ok(u16::from_be_bytes(*two))
}

fn ethernet(frame: &[u8], fields: &mut Fields) -> Result<(), ParseFlags> {
    if frame.len() > FRAME_BYTES_MAX {
        return Err(ParseFlags::OVERSIZE);
    }
    let mut at = 12;
    let mut kind = half(frame, at)?;
    at += 2;
    for tag in 0..TAGS_MAX {
        if !matches!(kind, 0x8100 | 0x88a8) {
            break;
        }
        let control = half(frame, at)?;
        match tag {
            0 => fields.vlan = control,
            _ => fields.second_vlan = control,
        }
        kind = half(frame, at + 2)?;
        at += 4;
    }
    // The offset is at most 22.
    fields.ip_at = at as u8;
    match kind {
        0x0800 => ipv4(&frame[at..], fields),
        0x86dd => ipv6(&frame[at..], fields),
        _ => Err(ParseFlags::NOT_IP),
    }
}

fn ipv4(packet: &[u8], fields: &mut Fields) -> Result<(), ParseFlags> {
    let first = *packet.first().ok_or(ParseFlags::TRUNCATED)?;
    let header_bytes = usize::from(first & 15) * 4;
    if first >> 4 != 4 || header_bytes < 20 {
        return Err(ParseFlags::BAD_IP);
    }
    let total = usize::from(half(packet, 2)?);
    if total < header_bytes {
        return Err(ParseFlags::BAD_IP);
    }
    let fragment = half(packet, 6)?;
    let protocol = *packet.get(9).ok_or(ParseFlags::TRUNCATED)?;
    // One of the bits is "more fragments", the others are the offset.
    if fragment & 0x3fff != 0 {
        return Err(ParseFlags::FRAGMENT);
    }
    if protocol != UDP {
        return Err(ParseFlags::NOT_UDP);
    }
    let packet = packet.get(..total).ok_or(ParseFlags::TRUNCATED)?;
    udp(packet, header_bytes, fields)
}

fn ipv6(packet: &[u8], fields: &mut Fields) -> Result<(), ParseFlags> {
    let first = *packet.first().ok_or(ParseFlags::TRUNCATED)?;
    if first >> 4 != 6 {
        return Err(ParseFlags::BAD_IP);
    }
    let payload_bytes = usize::from(half(packet, 4)?);
    // A jumbogram (RFC 2675) does not fit a frame.
    if payload_bytes == 0 {
        return Err(ParseFlags::BAD_IP);
    }
    let mut next = *packet.get(6).ok_or(ParseFlags::TRUNCATED)?;
    let end = IPV6_BYTES + payload_bytes;
    let packet = packet.get(..end).ok_or(ParseFlags::TRUNCATED)?;
    let mut at = IPV6_BYTES;
    for _ in 0..EXTENSIONS_MAX {
        let bytes = match next {
            UDP => return udp(packet, at, fields),
            // Hop-by-hop options, routing, destination options.
            0 | 43 | 60 => {
                let words = *packet.get(at + 1).ok_or(ParseFlags::BAD_IP)?;
                8 * (usize::from(words) + 1)
            }
            // A whole packet may have a fragment header (RFC 6946).
            44 => match half(packet, at + 2).map_err(|_| ParseFlags::BAD_IP)? & 0xfff9 {
                0 => 8,
                _ => return Err(ParseFlags::FRAGMENT),
            },
            _ => return Err(ParseFlags::NOT_UDP),
        };
        next = *packet.get(at).ok_or(ParseFlags::BAD_IP)?;
        at += bytes;
        if at > packet.len() {
            return Err(ParseFlags::BAD_IP);
        }
    }
    Err(ParseFlags::NOT_UDP)
}

/// Parses the UDP header at `at` of an IP packet, which ends with `packet`.
fn udp(packet: &[u8], at: usize, fields: &mut Fields) -> Result<(), ParseFlags> {
    let datagram = packet.get(at..).ok_or(ParseFlags::BAD_LENGTH)?;
    let length = |_| ParseFlags::BAD_LENGTH;
    let ports = [half(datagram, 0).map_err(length)?, half(datagram, 2).map_err(length)?];
    let bytes = usize::from(half(datagram, 4).map_err(length)?);
    if bytes < UDP_BYTES || bytes > datagram.len() {
        return Err(ParseFlags::BAD_LENGTH);
    }
    [fields.source_port, fields.target_port] = ports;
    // A frame has at most FRAME_BYTES_MAX bytes, so all offsets fit.
    fields.udp_at = (usize::from(fields.ip_at) + at + UDP_BYTES) as u16;
    fields.udp_bytes = (bytes - UDP_BYTES) as u16;
    fields.found = ParseFlags::UDP;
    rtp(&datagram[UDP_BYTES..bytes], fields)
}

fn rtp(packet: &[u8], fields: &mut Fields) -> Result<(), ParseFlags> {
    let Some((header, _)) = packet.split_first_chunk::<12>() else {
        return Err(match packet {
            // The shortest RTCP packet has 8 bytes, or 4.
            [first, second, ..] if first >> 6 == 2 && is_rtcp(*second) => ParseFlags::RTCP,
            _ => ParseFlags::NOT_RTP,
        });
    };
    let [bits, marker_and_type, s0, s1, t0, t1, t2, t3, c0, c1, c2, c3] = *header;
    if bits >> 6 != 2 {
        return Err(ParseFlags::NOT_RTP);
    }
    if is_rtcp(marker_and_type) {
        return Err(ParseFlags::RTCP);
    }
    let mut at = 12 + 4 * usize::from(bits & 15);
    if bits & 0x10 != 0 {
        let words = half(packet, at + 2).map_err(|_| ParseFlags::BAD_RTP)?;
        at += 4 + 4 * usize::from(words);
    }
    let payload = packet.get(at..).ok_or(ParseFlags::BAD_RTP)?;
    let padding = match (bits & 0x20, payload.last()) {
        (0, _) => 0,
        (_, Some(&padding)) if (1..=payload.len()).contains(&usize::from(padding)) => padding,
        _ => return Err(ParseFlags::BAD_RTP),
    };
    fields.sequence = u16::from_be_bytes([s0, s1]);
    fields.timestamp = u32::from_be_bytes([t0, t1, t2, t3]);
    fields.ssrc = u32::from_be_bytes([c0, c1, c2, c3]);
    fields.marker_and_type = marker_and_type;
    fields.payload_at = fields.udp_at + at as u16;
    fields.payload_bytes = (payload.len() - usize::from(padding)) as u16;
    fields.found = fields.found.with(ParseFlags::RTP);
    Ok(())
}

/// True for the packet types of RTCP where RTP and RTCP share one port (RFC 5761 §4).
fn is_rtcp(packet_type: u8) -> bool {
    (192..=223).contains(&packet_type)
}

const UDP: u8 = 17;
const UDP_BYTES: usize = 8;
const IPV6_BYTES: usize = 40;
