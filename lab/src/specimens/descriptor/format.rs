// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receive descriptors as devices and the kernel write them, and the record made of each.
//!
//! Two sides write to a descriptor of a ring: the driver writes a buffer's address, and the card
//! replaces it by the description of a packet, the done bit last. So the words are atomic: a
//! program without `unsafe` can be either side.
//!
//! Sources: Intel's XL710 datasheet, "Receive Descriptor - Write Back Format" and its 16-byte and
//! 32-byte forms, as the `i40e` drivers of Linux and DPDK name them (`i40e_type.h`); Linux
//! `include/uapi/linux/if_xdp.h`.
//!
//! Does not cover header split (the length in bits 52 to 62), flow director's programming status
//! and flexible bytes.

use core::sync::atomic::{AtomicU64, Ordering};

/// Bits of a write-back descriptor's second quad word.
pub mod status {
    /// Descriptor done: the card has written it.
    pub const DONE: u64 = 1;
    /// End of packet; clear when the packet continues in the next descriptor.
    pub const END: u64 = 1 << 1;
    /// The first tag was removed and is in the first quad word.
    pub const VLAN: u64 = 1 << 2;
    /// The card verified the checksums of layers 3 and 4.
    pub const CHECKED: u64 = 1 << 3;
    /// Both bits: the first quad word has a hash for receive side scaling.
    pub const HASH: u64 = 3 << 12;
    /// IPv6 with extension headers: the checksum of layer 4 was not verified.
    pub const IPV6_EXTENDED: u64 = 1 << 15;
    /// Error of the medium: check sequence, alignment, size.
    pub const MEDIUM_ERROR: u64 = 1 << 19;
    /// Error of the card's program for this queue.
    pub const RECIPE_ERROR: u64 = 1 << 20;
    /// Header longer than its buffer; the packet itself is valid.
    pub const HEADER_OVERFLOW: u64 = 1 << 21;
    /// IPv4 header checksum wrong.
    pub const IP_ERROR: u64 = 1 << 22;
    /// Checksum of UDP, TCP or SCTP wrong.
    pub const L4_ERROR: u64 = 1 << 23;
    /// IPv4 header checksum of a tunnel's outer header wrong.
    pub const OUTER_IP_ERROR: u64 = 1 << 24;
    /// Packet larger than the maximum of the queue.
    pub const OVERSIZE: u64 = 1 << 25;
    /// Packets arrived too fast for checksums to be verified.
    pub const UNCHECKED: u64 = 1 << 26;

    /// First of the eight bits of errors.
    pub const ERRORS_SHIFT: u32 = 19;
    /// First of the eight bits of the packet's type.
    pub const KIND_SHIFT: u32 = 30;
    /// First of the fourteen bits of the length.
    pub const LENGTH_SHIFT: u32 = 38;
    /// The largest length.
    pub const LENGTH_MAX: u64 = (1 << 14) - 1;
}

/// Bits of a 32-byte descriptor's third quad word.
pub mod extended {
    /// A second tag was removed.
    pub const SECOND_VLAN: u64 = 1;
    /// First bit of the second tag.
    pub const SECOND_VLAN_SHIFT: u32 = 48;
}

/// Bits of an AF_XDP descriptor's options.
pub mod option {
    /// `XDP_PKT_CONTD`: the packet continues in the next descriptor.
    pub const CONTINUED: u32 = 1;
}

/// Receive descriptor of the XL710, 16 bytes.
#[derive(Debug, Default)]
#[repr(C, align(16))]
pub struct Short {
    qwords: [AtomicU64; 2],
}

/// Receive descriptor of the XL710, 32 bytes.
#[derive(Debug, Default)]
#[repr(C, align(32))]
pub struct Long {
    qwords: [AtomicU64; 4],
}

/// `xdp_desc` of AF_XDP. It has no done bit: the ring's producer index counts the descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Xdp {
    /// Offset of the packet in the shared memory.
    pub address: u64,
    /// Bytes of the packet.
    pub length: u32,
    /// Bits of [`option`].
    pub options: u32,
}

const _: () = {
    assert!(size_of::<Short>() == 16 && align_of::<Short>() == 16);
    assert!(size_of::<Long>() == 32 && align_of::<Long>() == 32);
    assert!(size_of::<Xdp>() == 16);
    assert!(core::mem::offset_of!(Xdp, length) == 8 && core::mem::offset_of!(Xdp, options) == 12);
};

impl Short {
    /// Makes a descriptor of these quad words.
    pub const fn new(qwords: [u64; 2]) -> Self {
        let [a, b] = qwords;
        Self { qwords: [AtomicU64::new(a), AtomicU64::new(b)] }
    }

    /// Writes a descriptor as a card does after a packet: the quad word with the done bit last.
    #[inline]
    pub fn write_back(&self, qwords: [u64; 2]) {
        self.qwords[0].store(qwords[0], Ordering::Relaxed);
        self.qwords[1].store(qwords[1], Ordering::Release);
    }

    /// Hands the card a buffer, as a driver does: writes its address and clears the done bit.
    #[inline]
    pub fn refill(&self, address: u64) {
        self.qwords[1].store(0, Ordering::Relaxed);
        self.qwords[0].store(address, Ordering::Relaxed);
    }

    /// Returns the quad words. When the done bit is set, they are those written before it.
    #[inline(always)]
    pub fn qwords(&self) -> [u64; 2] {
        let second = self.qwords[1].load(Ordering::Acquire);
        [self.qwords[0].load(Ordering::Relaxed), second]
    }
}

impl Long {
    /// Makes a descriptor of these quad words.
    pub const fn new(qwords: [u64; 4]) -> Self {
        let [a, b, c, d] = qwords;
        let qwords = [AtomicU64::new(a), AtomicU64::new(b), AtomicU64::new(c), AtomicU64::new(d)];
        Self { qwords }
    }

    /// Same as for [`Short::write_back`].
    #[inline]
    pub fn write_back(&self, qwords: [u64; 4]) {
        for index in [3, 2, 0] {
            self.qwords[index].store(qwords[index], Ordering::Relaxed);
        }
        self.qwords[1].store(qwords[1], Ordering::Release);
    }

    /// Same as for [`Short::refill`].
    #[inline]
    pub fn refill(&self, address: u64) {
        self.qwords[1].store(0, Ordering::Relaxed);
        for (index, word) in [(0, address), (2, 0), (3, 0)] {
            self.qwords[index].store(word, Ordering::Relaxed);
        }
    }

    /// Same as for [`Short::qwords`].
    #[inline(always)]
    pub fn qwords(&self) -> [u64; 4] {
        let second = self.qwords[1].load(Ordering::Acquire);
        let [first, third, fourth] = [0, 2, 3].map(|i| self.qwords[i].load(Ordering::Relaxed));
        [first, second, third, fourth]
    }
}

/// Metadata of a packet, or of the part of it that one descriptor describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct Metadata {
    /// Second tag (with [`Flags::SECOND_VLAN`]): priority and identifier.
    pub second_vlan: u16,
    /// Tag (with [`Flags::VLAN`]).
    pub vlan: u16,
    /// Hash by which the card chose the queue (with [`Flags::HASH`]).
    pub hash: u32,
    /// Bytes in this descriptor's buffer.
    pub length: u32,
    /// The valid flags.
    pub flags: Flags,
    /// Error bits of the card, unchanged: [`status::MEDIUM_ERROR`] is the lowest.
    pub errors: u8,
    /// Number of the packet's type, see [`kind`]; 0 without one.
    pub kind: u8,
}

/// Bits of [`Metadata::flags`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Flags(pub u16);

impl Flags {
    /// The packet ends here.
    pub const END: Self = Self(1);
    /// The packet had a tag.
    pub const VLAN: Self = Self(1 << 1);
    /// The record has a hash.
    pub const HASH: Self = Self(1 << 2);
    /// The packet is damaged by the medium, the queue's program, or its size.
    pub const ERROR: Self = Self(1 << 3);
    /// A checksum of an IPv4 header is wrong; invalid with [`Flags::IP_UNKNOWN`].
    pub const IP_BAD: Self = Self(1 << 4);
    /// The checksum of layer 4 is wrong; invalid with [`Flags::L4_UNKNOWN`].
    pub const L4_BAD: Self = Self(1 << 5);
    /// The device did not verify the checksum of IP.
    pub const IP_UNKNOWN: Self = Self(1 << 6);
    /// The device did not verify the checksum of layer 4.
    pub const L4_UNKNOWN: Self = Self(1 << 7);
    /// The packet had a second tag.
    pub const SECOND_VLAN: Self = Self(1 << 8);

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

    /// Returns the union of both sets when `condition` holds, otherwise this set.
    #[must_use]
    pub const fn with_if(self, condition: bool, others: Self) -> Self {
        if condition { self.with(others) } else { self }
    }

    /// Returns the verdict on the header checksum of IP.
    pub const fn ip_checksum(self) -> ChecksumVerdict {
        self.verdict(Self::IP_UNKNOWN, Self::IP_BAD)
    }

    /// Returns the verdict on the checksum of layer 4.
    pub const fn l4_checksum(self) -> ChecksumVerdict {
        self.verdict(Self::L4_UNKNOWN, Self::L4_BAD)
    }

    const fn verdict(self, unknown: Self, bad: Self) -> ChecksumVerdict {
        if self.contains(unknown) {
            ChecksumVerdict::Unknown
        } else if self.contains(bad) {
            ChecksumVerdict::Bad
        } else {
            ChecksumVerdict::Good
        }
    }
}

impl core::fmt::Debug for Flags {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        const NAMES: [&str; 9] = [
            "END",
            "VLAN",
            "HASH",
            "ERROR",
            "IP_BAD",
            "L4_BAD",
            "IP_UNKNOWN",
            "L4_UNKNOWN",
            "SECOND_VLAN",
        ];
        let set = NAMES.iter().enumerate().filter(|(bit, _)| self.0 >> bit & 1 == 1);
        f.debug_set().entries(set.map(|(_, name)| name)).finish()
    }
}

/// A device's report on a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumVerdict {
    /// The checksum is right, or such a packet has none.
    Good,
    /// The checksum is wrong.
    Bad,
    /// The device did not verify the checksum.
    Unknown,
}

/// Packet types of the XL710, of those that can carry a stream.
pub mod kind {
    /// A fragment of IPv4.
    pub const IPV4_FRAGMENT: u8 = 22;
    /// UDP over IPv4.
    pub const IPV4_UDP: u8 = 24;
    /// TCP over IPv4.
    pub const IPV4_TCP: u8 = 26;
    /// A fragment of IPv6.
    pub const IPV6_FRAGMENT: u8 = 88;
    /// UDP over IPv6.
    pub const IPV6_UDP: u8 = 90;
    /// TCP over IPv6.
    pub const IPV6_TCP: u8 = 92;
}

const _: () = {
    use core::mem::offset_of;
    // Vectors write the record as one piece: two quad words; the second has length and last dword.
    assert!(size_of::<Metadata>() == 16 && align_of::<Metadata>() == 16);
    assert!(offset_of!(Metadata, second_vlan) == 0 && offset_of!(Metadata, vlan) == 2);
    assert!(offset_of!(Metadata, hash) == 4 && offset_of!(Metadata, length) == 8);
    assert!(offset_of!(Metadata, flags) == 12 && offset_of!(Metadata, errors) == 14);
    assert!(offset_of!(Metadata, kind) == 15);
    assert!(cfg!(target_endian = "little"));
};
