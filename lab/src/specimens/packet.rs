// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ethernet, VLAN, IP, UDP and RTP fields of received frames, many at a time.
//!
//! A program that receives frames from a device without the kernel's UDP parses their headers
//! itself: some fifty bytes a frame, each frame in its own memory. Most frames are usual: IPv4
//! without options, UDP, RTP without extras. Variants read those by registers; the oracle reads all
//! others. Nanoseconds a usual frame in slots of 2 KiB that lie in the caches (AMD EPYC with
//! AVX-512, rustc 1.95): 15.9 by the oracle, 5.3 by words, 3.3 by SSE4.1, 3.2 by AVX2, 2.0 by
//! AVX-512, which checks eight at once.
//!
//! Sources: IEEE 802.1Q (tags, also those of 802.1ad); RFC 791, RFC 8200 and RFC 6946 (IP); RFC 768
//! (UDP); RFC 3550 §5.1 and RFC 5761 §4 (RTP, and RTCP on the same port).
//!
//! Does not verify checksums (the device or [`simd::checksum`] does), reassemble fragments or read
//! addresses, which follow [`Fields::ip_at`].

mod parse;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests;

pub use parse::FRAME_BYTES_MAX;

use simd::variant::{self, Dropped, Variant, everywhere};

/// Fields of a frame. Fields that do not apply are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(32))]
pub struct Fields {
    /// UDP source port (valid with [`ParseFlags::UDP`], as are the other three UDP fields).
    pub source_port: u16,
    /// UDP target port.
    pub target_port: u16,
    /// RTP sequence number (valid with [`ParseFlags::RTP`], as are all RTP fields).
    pub sequence: u16,
    /// Bytes of the datagram behind the UDP header.
    pub udp_bytes: u16,
    /// RTP timestamp.
    pub timestamp: u32,
    /// RTP marker, the highest bit, and payload type.
    pub marker_and_type: u8,
    /// Offset of the IP header; invalid with [`ParseFlags::NOT_IP`] and in frames that end before
    /// it.
    pub ip_at: u8,
    /// Offset of the bytes behind the UDP header.
    pub udp_at: u16,
    /// RTP synchronization source.
    pub ssrc: u32,
    /// Bytes of the RTP payload, without padding.
    pub payload_bytes: u16,
    /// Offset of the RTP payload.
    pub payload_at: u16,
    /// Outer tag: priority and identifier; 0 without a tag.
    pub vlan: u16,
    /// Inner tag of two.
    pub second_vlan: u16,
    /// The valid parts, and the reason when some are not.
    pub found: ParseFlags,
}

impl Fields {
    /// Returns the RTP marker.
    pub const fn marker(&self) -> bool {
        self.marker_and_type & 0x80 != 0
    }

    /// Returns the RTP payload type.
    pub const fn payload_type(&self) -> u8 {
        self.marker_and_type & 0x7f
    }
}

const _: () = {
    use core::mem::offset_of;
    // Vectors write the record as one piece.
    assert!(size_of::<Fields>() == 32 && align_of::<Fields>() == 32);
    assert!(offset_of!(Fields, source_port) == 0 && offset_of!(Fields, target_port) == 2);
    assert!(offset_of!(Fields, sequence) == 4 && offset_of!(Fields, udp_bytes) == 6);
    assert!(offset_of!(Fields, timestamp) == 8 && offset_of!(Fields, marker_and_type) == 12);
    assert!(offset_of!(Fields, ip_at) == 13 && offset_of!(Fields, udp_at) == 14);
    assert!(offset_of!(Fields, ssrc) == 16 && offset_of!(Fields, payload_bytes) == 20);
    assert!(offset_of!(Fields, payload_at) == 22 && offset_of!(Fields, vlan) == 24);
    assert!(offset_of!(Fields, second_vlan) == 26 && offset_of!(Fields, found) == 28);
};

/// Bits of [`Fields::found`]: the valid parts, and one reason when RTP is not valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct ParseFlags(pub u32);

impl ParseFlags {
    /// The frame has a whole UDP datagram.
    pub const UDP: Self = Self(1);
    /// The datagram is a whole RTP packet.
    pub const RTP: Self = Self(1 << 1);
    /// The frame ends before the end that its headers announce.
    pub const TRUNCATED: Self = Self(1 << 2);
    /// The frame has more than [`FRAME_BYTES_MAX`] bytes.
    pub const OVERSIZE: Self = Self(1 << 3);
    /// Neither IPv4 nor IPv6 follows at most two tags.
    pub const NOT_IP: Self = Self(1 << 4);
    /// The IP header contradicts itself: version, header length, total length.
    pub const BAD_IP: Self = Self(1 << 5);
    /// The packet is a fragment of a datagram.
    pub const FRAGMENT: Self = Self(1 << 6);
    /// The protocol above IP is not UDP.
    pub const NOT_UDP: Self = Self(1 << 7);
    /// The UDP length is less than the UDP header or more than the IP packet holds.
    pub const BAD_LENGTH: Self = Self(1 << 8);
    /// The datagram is RTCP.
    pub const RTCP: Self = Self(1 << 9);
    /// The datagram is not version 2 of RTP, or too short for it.
    pub const NOT_RTP: Self = Self(1 << 10);
    /// The sources, extension or padding of RTP are longer than the packet.
    pub const BAD_RTP: Self = Self(1 << 11);

    /// True when all of `others` are set.
    #[inline]
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

/// Writes the fields of each frame, parsed header by header.
pub fn oracle(frames: &[&[u8]], fields: &mut [Fields]) {
    for (frame, fields) in frames.iter().zip(fields) {
        *fields = parse::parse(frame);
    }
}

// The idea, for eight frames:
//
//     for each frame f:
//         usual = f has 54 bytes and they are IPv4 without options, UDP, RTP without extras
//         write the record that f has if it is usual
//     for each frame that is not usual: the oracle
//
// Departures:
// 1. The record is written for every frame: one branch for eight frames, not one a field. A frame
//    that is too short is read as zeroes.
// 2. A register holds a frame, not a field: frames are far apart, so a register of one field would
//    need a gather for each. Only compared bytes go to registers that frames share, and only by
//    AVX-512: comparing lengths by words was half of its time (3.0 ns).

/// Offsets of the fields in a usual frame.
mod at {
    pub(super) const ETHERTYPE: usize = 12;
    pub(super) const IP: usize = 14;
    pub(super) const TOTAL: usize = 16;
    pub(super) const FRAGMENT: usize = 20;
    pub(super) const PROTOCOL: usize = 23;
    pub(super) const UDP: usize = 34;
    pub(super) const UDP_LENGTH: usize = 38;
    pub(super) const RTP: usize = 42;
    pub(super) const MARKER_AND_TYPE: usize = 43;
    pub(super) const SEQUENCE: usize = 44;
    pub(super) const TIMESTAMP: usize = 46;
    pub(super) const SSRC: usize = 50;
    pub(super) const PAYLOAD: usize = 54;
}

/// Bytes of the IP header; the UDP and RTP headers follow.
const IP_BYTES: usize = at::UDP - at::IP;
const UDP_BYTES: usize = at::RTP - at::UDP;
const RTP_BYTES: usize = at::PAYLOAD - at::RTP;

const _: () = assert!(IP_BYTES == 20 && UDP_BYTES == 8 && RTP_BYTES == 12);

/// Frames that are read before the unusual ones among them are read again.
const STEP: usize = 8;

/// Headers of a usual frame: all bytes that a variant reads.
type Head = [u8; at::PAYLOAD];

/// Bytes read in place of a frame that is too short.
static NOTHING: Head = [0; at::PAYLOAD];

/// Reads the headers of a usual frame.
trait Reader {
    /// Writes the record of a usual frame, for any frame; returns 0 when the bytes of [`FIXED`]
    /// have their values.
    ///
    /// # Safety
    /// The processor has the instructions of the implementation.
    unsafe fn read(head: &Head, fields: &mut Fields) -> u64;
}

/// Values of the bytes that a usual frame must have, and masks of the compared bits.
struct Fixed {
    value: [u8; 64],
    mask: [u8; 64],
}

const FIXED: Fixed = {
    let mut value = [0; 64];
    let mut mask = [0; 64];
    let bytes = [
        (at::ETHERTYPE, 0x08, 0xff),
        (at::ETHERTYPE + 1, 0x00, 0xff),
        (at::IP, 0x45, 0xff),           // version 4, five words
        (at::FRAGMENT, 0x00, 0xbf),     // except "do not fragment"
        (at::FRAGMENT + 1, 0x00, 0xff), // offset
        (at::PROTOCOL, 17, 0xff),       // UDP
        (at::RTP, 0x80, 0xff),          // version 2, no padding, extension, sources
    ];
    let mut index = 0;
    while index < bytes.len() {
        let (at, byte, bits) = bytes[index];
        value[at] = byte;
        mask[at] = bits;
        index += 1;
    }
    Fixed { value, mask }
};

/// Constant part of a usual frame's record.
const USUAL: Fields = Fields {
    source_port: 0,
    target_port: 0,
    sequence: 0,
    udp_bytes: 0,
    timestamp: 0,
    marker_and_type: 0,
    ip_at: at::IP as u8,
    udp_at: at::RTP as u16,
    ssrc: 0,
    payload_bytes: 0,
    payload_at: at::PAYLOAD as u16,
    vlan: 0,
    second_vlan: 0,
    found: ParseFlags::UDP.with(ParseFlags::RTP),
};

/// Returns 0 when the lengths of a frame agree as in a usual frame, and its packet is not RTCP.
/// Uses arithmetic only: no branch, and no flag moved to a register.
#[inline(always)]
fn unsound(head: &Head, bytes: usize) -> u64 {
    let word = |at: usize| u64::from(u16::from_be_bytes([head[at], head[at + 1]]));
    let (total, udp) = (word(at::TOTAL), word(at::UDP_LENGTH));
    // A difference below 0 has all higher bits set.
    let below = total.wrapping_sub((IP_BYTES + UDP_BYTES + RTP_BYTES) as u64);
    let behind = (bytes as u64).wrapping_sub(total + at::IP as u64);
    let apart = total ^ (udp + IP_BYTES as u64);
    let rtcp = u64::from((head[at::MARKER_AND_TYPE] ^ RTCP_TYPES) & RTCP_BITS);
    (below >> TOTAL_BITS) | (behind >> BEHIND_BITS) | apart | (rtcp.wrapping_sub(1) >> 63)
}

/// Bits that RTCP's packet types 192 to 223 share.
const RTCP_BITS: u8 = 0xe0;
const RTCP_TYPES: u8 = 0xc0;
/// Bits of a usual packet's length, and of the bytes behind it: Ethernet's padding and check
/// sequence fit. Frames with more are not usual.
const TOTAL_BITS: u32 = 15;
const BEHIND_BITS: u32 = 8;

const _: () = assert!((1 << TOTAL_BITS) + 40 + at::IP + (1 << BEHIND_BITS) <= FRAME_BYTES_MAX);

/// # Safety
/// The processor has the instructions of `R`, the caller is compiled for them, and both slices
/// have the same length.
#[inline(always)]
unsafe fn body<R: Reader>(frames: &[&[u8]], fields: &mut [Fields]) {
    let (steps, rest) = frames.as_chunks::<STEP>();
    let (steps_fields, rest_fields) = fields.as_chunks_mut::<STEP>();
    for (frames, fields) in steps.iter().zip(steps_fields) {
        // SAFETY: by the caller.
        unsafe { some::<R>(frames, fields) };
    }
    // SAFETY: by the caller.
    unsafe { some::<R>(rest, rest_fields) };
}

/// # Safety
/// Same as for [`body`]; at most [`STEP`] frames.
#[inline(always)]
unsafe fn some<R: Reader>(frames: &[&[u8]], fields: &mut [Fields]) {
    let mut unusual = 0_u32;
    for (index, (frame, fields)) in frames.iter().zip(&mut *fields).enumerate() {
        let head = frame.first_chunk().unwrap_or(&NOTHING);
        // SAFETY: the instructions, by the caller.
        let wrong = unsafe { R::read(head, fields) } | unsound(head, frame.len());
        unusual |= u32::from(wrong != 0) << index;
    }
    if unusual != 0 {
        again(frames, fields, unusual);
    }
}

/// Reads again, by the oracle, the frames whose bits are set.
#[cold]
#[inline(never)]
fn again(frames: &[&[u8]], fields: &mut [Fields], mut which: u32) {
    while which != 0 {
        let index = which.trailing_zeros() as usize;
        fields[index] = parse::parse(frames[index]);
        which &= which - 1;
    }
}

/// Reader by words.
struct Words;

impl Reader for Words {
    #[inline(always)]
    unsafe fn read(head: &Head, fields: &mut Fields) -> u64 {
        let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let word = |at: usize| u32::from_be_bytes(std::array::from_fn(|byte| head[at + byte]));
        let udp_bytes = half(at::UDP_LENGTH).wrapping_sub(UDP_BYTES as u16);
        *fields = Fields {
            source_port: half(at::UDP),
            target_port: half(at::UDP + 2),
            sequence: half(at::SEQUENCE),
            udp_bytes,
            timestamp: word(at::TIMESTAMP),
            marker_and_type: head[at::MARKER_AND_TYPE],
            ssrc: word(at::SSRC),
            payload_bytes: udp_bytes.wrapping_sub(RTP_BYTES as u16),
            ..USUAL
        };
        let wrong = |at: usize| (head[at] ^ FIXED.value[at]) & FIXED.mask[at];
        let ip = wrong(at::ETHERTYPE) | wrong(at::ETHERTYPE + 1) | wrong(at::IP);
        let whole = wrong(at::FRAGMENT) | wrong(at::FRAGMENT + 1);
        u64::from(ip | whole | wrong(at::PROTOCOL) | wrong(at::RTP))
    }
}

/// # Safety
/// Both slices have the same length.
unsafe fn portable(frames: &[&[u8]], fields: &mut [Fields]) {
    // SAFETY: Words needs no instructions of its own; the rest by the caller.
    unsafe { body::<Words>(frames, fields) }
}

type Run = unsafe fn(&[&[u8]], &mut [Fields]);

#[cfg(not(target_arch = "x86_64"))]
static VARIANTS: &[Variant<Run>] =
    &[Variant { name: "portable", is_here: everywhere, run: portable }];

#[cfg(target_arch = "x86_64")]
static VARIANTS: &[Variant<Run>] = &[
    Variant { name: "portable", is_here: everywhere, run: portable },
    Variant { name: "sse4_1", is_here: || is_x86_feature_detected!("sse4.1"), run: x86::sse },
    Variant { name: "avx2", is_here: || is_x86_feature_detected!("avx2"), run: x86::avx2 },
    Variant {
        name: "avx512vbmi",
        is_here: || {
            is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vbmi")
        },
        run: x86::avx512,
    },
];

/// Variant that this processor has.
#[derive(Clone, Copy)]
pub struct Packet(&'static Variant<Run>);

impl Packet {
    /// Returns the variants that this processor has, widest last.
    pub fn all() -> impl Iterator<Item = Self> {
        variant::here(VARIANTS).map(Self)
    }

    pub(crate) fn choose() -> (Self, Option<Dropped>) {
        let (chosen, dropped) =
            variant::choose("packet", VARIANTS, |candidate| Self(candidate).is_right());
        (Self(chosen), dropped)
    }

    /// Returns its instruction set.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Writes the fields of each frame, as [`oracle`] does, up to the shorter of both lengths.
    /// Reads no byte outside a frame.
    #[inline]
    pub fn fields(self, frames: &[&[u8]], fields: &mut [Fields]) {
        let count = frames.len().min(fields.len());
        // SAFETY: `variant::here` found every variant that a `Packet` holds; both slices have the
        // same length.
        unsafe { (self.0.run)(&frames[..count], &mut fields[..count]) }
    }

    /// True when the variant computes the known answers.
    fn is_right(self) -> bool {
        let mut usual = [0; 80];
        for (index, byte) in usual.iter_mut().enumerate() {
            let noise = (index as u8).wrapping_mul(37) | 1;
            *byte = FIXED.value[index % 64] | (!FIXED.mask[index % 64] & noise);
        }
        usual[at::TOTAL..at::TOTAL + 2].copy_from_slice(&66_u16.to_be_bytes());
        usual[at::UDP_LENGTH..at::UDP_LENGTH + 2].copy_from_slice(&46_u16.to_be_bytes());
        let mut other = usual;
        other[at::RTP] |= 1;
        let frames = [&usual[..], &other, &usual[..53], &usual[..0], &usual[..79]];
        let frames: [&[u8]; 20] = core::array::from_fn(|index| frames[index % frames.len()]);
        let mut fields = [[Fields::default(); 20]; 2];
        let [by_oracle, by_self] = &mut fields;
        oracle(&frames, by_oracle);
        self.fields(&frames, by_self);
        by_oracle == by_self && by_self[0].found == USUAL.found
    }
}

impl core::fmt::Debug for Packet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "packet by {}", self.name())
    }
}
