// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ethernet, VLAN, IP, UDP and RTP fields of received frames, many at a time.
//!
//! A program that takes frames from a device past the kernel's UDP reads their headers itself: some
//! fifty bytes a frame, each frame in memory of its own. Most are alike: IPv4 without options, UDP,
//! RTP without extras; those are read from registers, all others by the oracle. Nanoseconds a usual
//! frame in slots of 2 KiB that lie in the caches (AMD EPYC with AVX-512, rustc 1.95): 15.9 by the
//! oracle, 5.3 by words, 3.3 by SSE4.1, 3.2 by AVX2, 2.0 by AVX-512, which looks at eight at once.
//!
//! Sources: IEEE 802.1Q (tags, 802.1ad's too); RFC 791, RFC 8200 and RFC 6946 (IP); RFC 768 (UDP);
//! RFC 3550 §5.1 and RFC 5761 §4 (RTP, and RTCP on one port with it).
//!
//! Does not verify checksums (the device or [`simd::checksum`] does), reassemble fragments or read
//! addresses, which stand behind [`Fields::ip_at`].

mod parse;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests;

pub use parse::FRAME_BYTES_MAX;

use simd::variant::{self, Dropped, Variant, everywhere};

/// The fields of a frame. Fields that do not apply are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(32))]
pub struct Fields {
    /// UDP's source port (with [`ParseFlags::UDP`]; so for target port, `udp_at` and `udp_bytes`).
    pub source_port: u16,
    /// UDP's target port.
    pub target_port: u16,
    /// RTP's sequence number (with [`ParseFlags::RTP`]; so for all of RTP).
    pub sequence: u16,
    /// Bytes of the datagram behind UDP's header.
    pub udp_bytes: u16,
    /// RTP's timestamp.
    pub timestamp: u32,
    /// RTP's marker, the highest bit, and payload type.
    pub marker_and_type: u8,
    /// Where IP's header begins (with an address: unless [`ParseFlags::NOT_IP`] or shorter than
    /// that).
    pub ip_at: u8,
    /// Where the bytes behind UDP's header begin.
    pub udp_at: u16,
    /// RTP's source.
    pub ssrc: u32,
    /// Bytes of RTP's payload, without padding.
    pub payload_bytes: u16,
    /// Where they begin.
    pub payload_at: u16,
    /// The outer tag: priority and identifier; 0 where there is none.
    pub vlan: u16,
    /// The inner tag of two.
    pub second_vlan: u16,
    /// The valid parts, and the reason when some are not.
    pub found: ParseFlags,
}

impl Fields {
    /// RTP's marker.
    pub const fn marker(&self) -> bool {
        self.marker_and_type & 0x80 != 0
    }

    /// RTP's payload type.
    pub const fn payload_type(&self) -> u8 {
        self.marker_and_type & 0x7f
    }
}

const _: () = {
    use core::mem::offset_of;
    // Vectors write it whole.
    assert!(size_of::<Fields>() == 32 && align_of::<Fields>() == 32);
    assert!(offset_of!(Fields, source_port) == 0 && offset_of!(Fields, target_port) == 2);
    assert!(offset_of!(Fields, sequence) == 4 && offset_of!(Fields, udp_bytes) == 6);
    assert!(offset_of!(Fields, timestamp) == 8 && offset_of!(Fields, marker_and_type) == 12);
    assert!(offset_of!(Fields, ip_at) == 13 && offset_of!(Fields, udp_at) == 14);
    assert!(offset_of!(Fields, ssrc) == 16 && offset_of!(Fields, payload_bytes) == 20);
    assert!(offset_of!(Fields, payload_at) == 22 && offset_of!(Fields, vlan) == 24);
    assert!(offset_of!(Fields, second_vlan) == 26 && offset_of!(Fields, found) == 28);
};

/// Bits of [`Fields::found`]: what holds, and one reason when RTP does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct ParseFlags(pub u32);

impl ParseFlags {
    /// A whole UDP datagram.
    pub const UDP: Self = Self(1);
    /// A whole RTP packet.
    pub const RTP: Self = Self(1 << 1);
    /// The frame ends before what its headers say.
    pub const TRUNCATED: Self = Self(1 << 2);
    /// More than [`FRAME_BYTES_MAX`] bytes.
    pub const OVERSIZE: Self = Self(1 << 3);
    /// Neither IPv4 nor IPv6 behind at most two tags.
    pub const NOT_IP: Self = Self(1 << 4);
    /// An IP header that contradicts itself: version, header length, total length.
    pub const BAD_IP: Self = Self(1 << 5);
    /// A part of a datagram.
    pub const FRAGMENT: Self = Self(1 << 6);
    /// Another protocol.
    pub const NOT_UDP: Self = Self(1 << 7);
    /// UDP's length is less than its header's or more than IP has.
    pub const BAD_LENGTH: Self = Self(1 << 8);
    /// RTCP.
    pub const RTCP: Self = Self(1 << 9);
    /// Not version 2 of RTP, or too short for it: something else in UDP.
    pub const NOT_RTP: Self = Self(1 << 10);
    /// RTP whose sources, extension or padding are longer than the packet.
    pub const BAD_RTP: Self = Self(1 << 11);

    /// True when all of `others` are set.
    #[inline]
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// These and those.
    #[must_use]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

/// The fields of each frame, header by header.
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
//     for each that is not: the oracle
//
// Departures:
// 1. The record is written whether the frame is usual or not: one branch for eight, not one a
//    field. A frame that is too short is read as one of zeroes.
// 2. A frame lies in a register, not a field: frames are far apart, so a register of one field
//    would take a gather for each. Only what is compared goes to registers that frames share, and
//    only by AVX-512: lengths compared by words were half of its time (3.0 ns).

/// Of a usual frame, where its fields are.
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

/// Bytes of IP's header, and of UDP's.
const IP_BYTES: usize = at::UDP - at::IP;
const UDP_BYTES: usize = at::RTP - at::UDP;
const RTP_BYTES: usize = at::PAYLOAD - at::RTP;

const _: () = assert!(IP_BYTES == 20 && UDP_BYTES == 8 && RTP_BYTES == 12);

/// Frames that are looked at before any is looked at again.
const STEP: usize = 8;

/// The headers of a usual frame: all that a variant reads.
type Head = [u8; at::PAYLOAD];

/// Bytes read in place of a frame that is too short.
static NOTHING: Head = [0; at::PAYLOAD];

/// Writes the record of a usual frame.
trait Reader {
    /// Writes it, whether the frame is usual or not; 0 when the bytes of [`FIXED`] are as they
    /// must be.
    ///
    /// # Safety
    /// The processor has the instructions of the implementation.
    unsafe fn read(head: &Head, fields: &mut Fields) -> u64;
}

/// Bytes that a usual frame must have, and of which bits.
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
        (at::FRAGMENT, 0x00, 0xbf),     // but for "do not fragment"
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

/// The part of a usual frame's record that is the same in all.
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

/// 0 when a frame's lengths agree as they usually do, and its packet is not RTCP. By arithmetic:
/// no branch, and no flag moved to a register.
#[inline(always)]
fn unsound(head: &Head, bytes: usize) -> u64 {
    let word = |at: usize| u64::from(u16::from_be_bytes([head[at], head[at + 1]]));
    let (total, udp) = (word(at::TOTAL), word(at::UDP_LENGTH));
    // What is less than 0 has all higher bits.
    let below = total.wrapping_sub((IP_BYTES + UDP_BYTES + RTP_BYTES) as u64);
    let behind = (bytes as u64).wrapping_sub(total + at::IP as u64);
    let apart = total ^ (udp + IP_BYTES as u64);
    let rtcp = u64::from((head[at::MARKER_AND_TYPE] ^ RTCP_TYPES) & RTCP_BITS);
    (below >> TOTAL_BITS) | (behind >> BEHIND_BITS) | apart | (rtcp.wrapping_sub(1) >> 63)
}

/// Packet types 192 to 223 are RTCP's.
const RTCP_BITS: u8 = 0xe0;
const RTCP_TYPES: u8 = 0xc0;
/// Longer packets, and more bytes behind one than Ethernet's padding and check sequence are, are
/// not usual.
const TOTAL_BITS: u32 = 15;
const BEHIND_BITS: u32 = 8;

const _: () = assert!((1 << TOTAL_BITS) + 40 + at::IP + (1 << BEHIND_BITS) <= FRAME_BYTES_MAX);

/// # Safety
/// The processor has the instructions of `R`, the caller is compiled for them, and both are of one
/// length.
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
/// As for [`body`]; of [`STEP`] at most.
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

/// Those of a bit each, one by one.
#[cold]
#[inline(never)]
fn again(frames: &[&[u8]], fields: &mut [Fields], mut which: u32) {
    while which != 0 {
        let index = which.trailing_zeros() as usize;
        fields[index] = parse::parse(frames[index]);
        which &= which - 1;
    }
}

/// By words.
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
/// Both are of one length.
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

/// A variant that this processor has.
#[derive(Clone, Copy)]
pub struct Packet(&'static Variant<Run>);

impl Packet {
    /// All that are here, widest last.
    pub fn all() -> impl Iterator<Item = Self> {
        variant::here(VARIANTS).map(Self)
    }

    pub(crate) fn choose() -> (Self, Option<Dropped>) {
        let (chosen, dropped) =
            variant::choose("packet", VARIANTS, |candidate| Self(candidate).is_right());
        (Self(chosen), dropped)
    }

    /// Its instruction set.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Writes the fields of each frame, as [`oracle`] does; as many as there are of both. No byte
    /// outside a frame is read.
    #[inline]
    pub fn fields(self, frames: &[&[u8]], fields: &mut [Fields]) {
        let count = frames.len().min(fields.len());
        // SAFETY: a `Packet` is made of variants alone that `variant::here` found here; both are of
        // one length.
        unsafe { (self.0.run)(&frames[..count], &mut fields[..count]) }
    }

    /// True when it gives the known answers.
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
