// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stamping: Ethernet, IPv4 and UDP headers, and a header of the caller's, written in front of the
//! payloads of many frames.
//!
//! Frames that one session sends differ in a few fields: IP's identification and checksum, UDP's
//! checksum, the packet's own header, and the lengths of the last. The rest is a [`Template`] made
//! once per destination, with the checksums of its constant part, so a frame costs two short sums
//! and the stores: 5.5 ns by AVX-512, 5.7 by plain words, 8.9 by the oracle, in slots of 2 KiB that
//! lie in the second-level cache, whose stores are most of it. Wide registers are faster for the
//! checksum of the payload ([`crate::checksum`]).
//!
//! Sources: RFC 791 §3.1, RFC 768, RFC 1071, RFC 6864 (identification), IEEE 802.3.
//!
//! Does not sum the payloads ([`crate::checksum`] does), and does not write IPv6 headers.

use core::net::SocketAddrV4;

use crate::checksum::fold;
use crate::variant::{self, Dropped, Variant, everywhere};

/// Bytes of the Ethernet header.
pub const ETHERNET_BYTES: usize = 14;
/// Bytes of the Ethernet, IPv4 and UDP headers.
pub const FRONT_BYTES: usize = ETHERNET_BYTES + IP_BYTES + UDP_BYTES;
/// Bytes of a packet's own header, where frames have one. The caller builds it; its fields are not
/// interpreted here. The size is that of a plain RTP header (RFC 3550 §5.1).
pub const HEAD_BYTES: usize = 12;

const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
/// Largest UDP payload of a datagram.
pub const DATAGRAM_BYTES_MAX: u16 = u16::MAX - (IP_BYTES + UDP_BYTES) as u16;

/// Offsets of the fields that differ between frames.
mod at {
    pub(super) const IP_TOTAL: usize = 16;
    pub(super) const IP_IDENTIFICATION: usize = 18;
    pub(super) const IP_CHECKSUM: usize = 24;
    pub(super) const UDP_LENGTH: usize = 38;
    pub(super) const UDP_CHECKSUM: usize = 40;
}

const _: () = {
    // RFC 791 §3.1 and RFC 768, counted from the frame's first byte.
    assert!(at::IP_TOTAL == ETHERNET_BYTES + 2);
    assert!(at::IP_IDENTIFICATION == ETHERNET_BYTES + 4);
    assert!(at::IP_CHECKSUM == ETHERNET_BYTES + 10);
    assert!(at::UDP_LENGTH == ETHERNET_BYTES + IP_BYTES + 4);
    assert!(at::UDP_CHECKSUM == ETHERNET_BYTES + IP_BYTES + 6);
    assert!(FRONT_BYTES == 42 && FRONT_BYTES + HEAD_BYTES == 54);
};

/// Headers that the frames between two addresses share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub struct Template {
    /// The three headers, with zeroes where frames differ and to the end.
    bytes: [u8; 64],
    /// Checksum part of the IP header.
    ip_sum: u32,
    /// Checksum part of the UDP header and its pseudo header, without the lengths.
    udp_sum: u32,
}

/// The addresses of a [`Template`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The sending device's Ethernet address.
    pub source_mac: [u8; 6],
    /// The next hop's Ethernet address.
    pub target_mac: [u8; 6],
    /// The source address of datagrams.
    pub source: SocketAddrV4,
    /// The target address of datagrams.
    pub target: SocketAddrV4,
}

impl Template {
    /// Returns the template of unfragmented (`DF`) datagrams with this time to live and type of
    /// service.
    pub fn new(addresses: &Addresses, time_to_live: u8, service: u8) -> Self {
        let Addresses { source_mac, target_mac, source, target } = addresses;
        let mut bytes = [0; 64];
        bytes[0..6].copy_from_slice(target_mac);
        bytes[6..12].copy_from_slice(source_mac);
        bytes[12..14].copy_from_slice(&[0x08, 0x00]); // IPv4
        bytes[14..16].copy_from_slice(&[0x45, service]); // version 4, five words of header
        bytes[20..22].copy_from_slice(&[0x40, 0x00]); // do not fragment
        bytes[22..24].copy_from_slice(&[time_to_live, 17]); // UDP
        bytes[26..30].copy_from_slice(&source.ip().octets());
        bytes[30..34].copy_from_slice(&target.ip().octets());
        bytes[34..36].copy_from_slice(&source.port().to_be_bytes());
        bytes[36..38].copy_from_slice(&target.port().to_be_bytes());
        let sum = |bytes: &[u8]| -> u32 {
            bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum()
        };
        let ip_sum = sum(&bytes[14..34]);
        // The pseudo header: both addresses and the protocol; the ports are UDP's own.
        let udp_sum = sum(&bytes[26..38]) + 17;
        Self { bytes, ip_sum, udp_sum }
    }

    /// Returns the fields of a frame with `datagram_bytes` of UDP payload that sum to
    /// `payload_sum`.
    #[inline(always)]
    fn fields(&self, datagram_bytes: u16, identification: u16, payload_sum: u32) -> Fields {
        let udp_bytes = datagram_bytes + UDP_BYTES as u16;
        let ip_total = udp_bytes + IP_BYTES as u16;
        let ip_sum = self.ip_sum + u32::from(ip_total) + u32::from(identification);
        // The length is in UDP's header and in the pseudo header.
        let udp_sum = self.udp_sum + 2 * u32::from(udp_bytes) + payload_sum;
        let udp_checksum = match !fold32(udp_sum) {
            // 0 means that there is no checksum (RFC 768).
            0 => 0xffff,
            sum => sum,
        };
        Fields { ip_total, identification, ip_checksum: !fold32(ip_sum), udp_bytes, udp_checksum }
    }
}

/// Folds like [`fold`], for fewer than 2¹⁶ words, without a loop.
#[inline(always)]
const fn fold32(total: u32) -> u16 {
    let once = (total & 0xffff) + (total >> 16);
    (once + (once >> 16)) as u16
}

/// A frame's own values.
#[derive(Clone, Copy)]
struct Fields {
    ip_total: u16,
    identification: u16,
    ip_checksum: u16,
    udp_bytes: u16,
    udp_checksum: u16,
}

/// Frames at equal distances, to be stamped; their number is the number of payload sums.
#[derive(Debug)]
pub struct Frames<'a> {
    /// The memory that holds the frames.
    pub slots: &'a mut [u8],
    /// Bytes from the start of one frame to the start of the next.
    pub stride: usize,
    /// Offset of the first frame in `slots`.
    pub at: usize,
    /// The packets' own headers, [`HEAD_BYTES`] each; empty when frames have none, or when they
    /// are counted as payload.
    pub heads: &'a [u8],
    /// UDP payload bytes of each frame, the packet's own header included.
    pub datagram_bytes: u16,
    /// UDP payload bytes of the last frame.
    pub last_bytes: u16,
    /// IP identification of the first frame; each later one has one more.
    pub identification: u16,
}

impl Frames<'_> {
    /// Checks that `count` frames' headers lie in the slots and that the given headers are as many;
    /// every variant relies on it.
    fn assert_sound(&self, count: usize) {
        let Some(last) = count.checked_sub(1) else { return };
        let head_bytes = if self.heads.is_empty() { 0 } else { HEAD_BYTES };
        assert!(self.heads.len() == head_bytes * count, "a header of {HEAD_BYTES} bytes a frame");
        let bytes = FRONT_BYTES + head_bytes;
        let end = || last.checked_mul(self.stride)?.checked_add(self.at)?.checked_add(bytes);
        assert!(
            end().is_some_and(|end| end <= self.slots.len()),
            "{count} frames lie in the slots"
        );
        assert!(last == 0 || self.stride >= bytes, "frames do not overlap");
        let most = self.datagram_bytes.max(self.last_bytes);
        assert!(most <= DATAGRAM_BYTES_MAX, "a datagram has at most {DATAGRAM_BYTES_MAX} bytes");
    }
}

/// Writes the headers of each frame, whose payload (without the packet's own header) sums to the
/// value in `sums`, field by field and with checksums over the written bytes.
pub fn oracle(template: &Template, frames: Frames<'_>, sums: &[u16]) {
    let words = |bytes: &[u8]| -> u64 {
        bytes.chunks(2).map(|word| u64::from(word[0]) << 8 | u64::from(word[1])).sum()
    };
    let heads = frames.heads.chunks(HEAD_BYTES).map(Some).chain(std::iter::repeat(None));
    for (number, (sum, head)) in sums.iter().zip(heads).enumerate() {
        let last = number + 1 == sums.len();
        let datagram_bytes = if last { frames.last_bytes } else { frames.datagram_bytes };
        let udp_bytes = datagram_bytes + 8;
        let frame = &mut frames.slots[number * frames.stride + frames.at..];
        let mut put = |at: usize, value: u16| {
            frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
        };
        let identification = frames.identification.wrapping_add(number as u16);
        template.bytes[..FRONT_BYTES].chunks(2).enumerate().for_each(|(word, bytes)| {
            put(2 * word, u16::from_be_bytes([bytes[0], bytes[1]]));
        });
        put(at::IP_TOTAL, udp_bytes + 20);
        put(at::IP_IDENTIFICATION, identification);
        put(at::UDP_LENGTH, udp_bytes);
        let ip_checksum = !fold(words(&frame[14..34]));
        frame[at::IP_CHECKSUM..][..2].copy_from_slice(&ip_checksum.to_be_bytes());
        let mut total = words(&frame[26..42]) + 17 + u64::from(udp_bytes) + u64::from(*sum);
        if let Some(head) = head {
            frame[FRONT_BYTES..][..HEAD_BYTES].copy_from_slice(head);
            total += words(head);
        }
        let udp_checksum = if fold(total) == 0xffff { 0xffff } else { !fold(total) };
        frame[at::UDP_CHECKSUM..][..2].copy_from_slice(&udp_checksum.to_be_bytes());
    }
}

// The idea, for each frame:
//
//     fields = lengths, identification, checksums       from the template's sums, in registers
//     registers = template | fields | header            the template is zero where these lie
//     store the registers over the frame's first 42 or 54 bytes
//
// Departures from the oracle:
// 1. The checksums' constant part is summed once, in the template (RFC 1071 §2 C, RFC 1624).
// 2. No field is stored by itself and nothing that was stored is loaded again: a wide load right
//    behind a narrow store waits for it (7 ns where measured, a frame's whole cost).
// 3. Stores overlap rather than become narrow at the end: both write the same bytes there.

/// Writes a frame's headers in one variant.
trait Pen {
    /// # Safety
    /// The processor has the instructions of the implementation; `frame` has at least
    /// `FRONT_BYTES`, and `FRONT_BYTES + HEAD_BYTES` when there is a head.
    unsafe fn write(
        template: &Template,
        fields: Fields,
        head: Option<&[u8; HEAD_BYTES]>,
        frame: &mut [u8],
    );
}

/// # Safety
/// The processor has the instructions of `P`, the caller is compiled for them, and the frames are
/// sound.
#[inline(always)]
unsafe fn body<P: Pen>(template: &Template, frames: Frames<'_>, sums: &[u16]) {
    let Frames { slots, stride, at, heads, datagram_bytes, last_bytes, mut identification } =
        frames;
    let (heads, _) = heads.as_chunks::<HEAD_BYTES>();
    for (number, sum) in sums.iter().enumerate() {
        let last = number + 1 == sums.len();
        let bytes = if last { last_bytes } else { datagram_bytes };
        let head = heads.get(number);
        let total = u32::from(*sum) + head.map_or(0, words_of);
        let fields = template.fields(bytes, identification, total);
        // SAFETY: the instructions are there (caller), and so are the bytes (sound, by the caller).
        unsafe { P::write(template, fields, head, &mut slots[number * stride + at..]) };
        identification = identification.wrapping_add(1);
    }
}

/// The sum of a header's six words, not folded.
#[inline(always)]
fn words_of(head: &[u8; HEAD_BYTES]) -> u32 {
    let (words, _) = head.as_chunks::<2>();
    words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum()
}

/// Stores of eight bytes.
struct Words;

impl Pen for Words {
    #[inline(always)]
    unsafe fn write(
        template: &Template,
        fields: Fields,
        head: Option<&[u8; HEAD_BYTES]>,
        frame: &mut [u8],
    ) {
        let Fields { ip_total, identification, ip_checksum, udp_bytes, udp_checksum } = fields;
        let constant =
            |at: usize| u64::from_be_bytes(std::array::from_fn(|byte| template.bytes[at + byte]));
        let frame: &mut [u8] = match head {
            Some(_) => &mut frame[..FRONT_BYTES + HEAD_BYTES],
            None => &mut frame[..FRONT_BYTES],
        };
        let mut put = |at: usize, word: u64| {
            frame[at..at + 8].copy_from_slice(&word.to_be_bytes());
        };
        put(0, constant(0));
        put(8, constant(8));
        put(16, constant(16) | u64::from(ip_total) << 48 | u64::from(identification) << 32);
        put(24, constant(24) | u64::from(ip_checksum) << 48);
        put(32, constant(32) | u64::from(udp_bytes));
        let lengths = u64::from(udp_bytes) << 16 | u64::from(udp_checksum);
        put(34, constant(34) | lengths);
        if let Some(head) = head {
            let (first, second) = (head.first_chunk::<8>(), head.last_chunk::<8>());
            let words =
                [first, second].map(|word| word.map_or(0, |word| u64::from_be_bytes(*word)));
            put(42, words[0]);
            put(46, words[1]);
        }
    }
}

/// # Safety
/// The frames are sound.
unsafe fn portable(template: &Template, frames: Frames<'_>, sums: &[u16]) {
    // SAFETY: Words needs no instructions of its own; the rest by the caller.
    unsafe { body::<Words>(template, frames, sums) }
}

type Run = unsafe fn(&Template, Frames<'_>, &[u16]);

#[cfg(not(target_arch = "x86_64"))]
static VARIANTS: &[Variant<Run>] =
    &[Variant { name: "portable", is_here: everywhere, run: portable }];

#[cfg(target_arch = "x86_64")]
static VARIANTS: &[Variant<Run>] = &[
    Variant { name: "portable", is_here: everywhere, run: portable },
    Variant {
        name: "avx512bw",
        is_here: || {
            is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
        },
        run: x86::avx512,
    },
];

#[cfg(target_arch = "x86_64")]
mod x86;

/// A variant that this processor has.
#[derive(Clone, Copy)]
pub struct Stamp(&'static Variant<Run>);

impl Stamp {
    /// Returns the variants that this processor has, widest last.
    pub fn all() -> impl Iterator<Item = Self> {
        variant::here(VARIANTS).map(Self)
    }

    pub(crate) fn choose() -> (Self, Option<Dropped>) {
        let (chosen, dropped) =
            variant::choose("stamp", VARIANTS, |candidate| Self(candidate).is_right());
        (Self(chosen), dropped)
    }

    /// Returns its instruction set.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Writes the headers of as many frames as there are payload sums, as [`oracle`] does; writes
    /// no other byte of the slots.
    ///
    /// # Panics
    /// When the slots do not hold them, they overlap, or the headers are not theirs.
    pub fn frames(self, template: &Template, frames: Frames<'_>, sums: &[u16]) {
        frames.assert_sound(sums.len());
        // SAFETY: a `Stamp` holds only variants that `variant::here` found here, and the frames are
        // sound, as asserted above.
        unsafe { (self.0.run)(template, frames, sums) }
    }

    /// True when the variant computes the known answers.
    fn is_right(self) -> bool {
        const STRIDE: usize = 64;
        let heads: [u8; 3 * HEAD_BYTES] = std::array::from_fn(|n| (n * 41 + 7) as u8);
        let template = Template::new(&KNOWN, 64, 0x10);
        [&heads[..], &[]].into_iter().all(|heads| {
            let mut slots = [[0x5a; 3 * STRIDE]; 2];
            let [by_oracle, by_self] = &mut slots;
            let frames = |slots| Frames {
                slots,
                stride: STRIDE,
                at: 1,
                heads,
                datagram_bytes: 1328,
                last_bytes: 13,
                identification: 0xfffe,
            };
            let sums = [0xfedc, 1, 0xffff];
            oracle(&template, frames(by_oracle), &sums);
            self.frames(&template, frames(by_self), &sums);
            by_oracle == by_self
        })
    }
}

/// Addresses of the known answers.
const KNOWN: Addresses = Addresses {
    source_mac: [0x02, 0x11, 0x22, 0x33, 0x44, 0x55],
    target_mac: [0x02, 0xff, 0xee, 0xdd, 0xcc, 0xbb],
    source: SocketAddrV4::new(core::net::Ipv4Addr::new(10, 99, 0, 1), 5004),
    target: SocketAddrV4::new(core::net::Ipv4Addr::new(192, 168, 255, 254), 65_534),
};

impl std::fmt::Debug for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "stamp by {}", self.name())
    }
}

#[cfg(test)]
mod tests;
