// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receive descriptors as devices and the kernel write them, and the record made of each.
//!
//! A descriptor of a ring is memory that two sides write to: the driver puts a buffer's address
//! there, the card puts in its place what it received, the done bit last. So the words are atomic:
//! a program without `unsafe` can be either side.
//!
//! Sources: Intel's XL710 datasheet, "Receive Descriptor - Write Back Format" and its 16-byte and
//! 32-byte forms, as the `i40e` drivers of Linux and DPDK name them (`i40e_type.h`); Linux
//! `include/uapi/linux/if_xdp.h`.
//!
//! Does not cover header split (the length in bits 52 to 62), flow director's programming status,
//! flexible bytes.

use core::sync::atomic::{AtomicU64, Ordering};

/// Bits of a write-back descriptor's second quad word.
pub mod status {
    /// Descriptor done: the card has written it.
    pub const DONE: u64 = 1;
    /// End of packet; clear when the packet goes on in the next descriptor.
    pub const END: u64 = 1 << 1;
    /// The first tag was taken off and stands in the first quad word.
    pub const VLAN: u64 = 1 << 2;
    /// The card looked at the checksums of layers 3 and 4.
    pub const CHECKED: u64 = 1 << 3;
    /// Both bits: the first quad word has a hash for receive side scaling.
    pub const HASH: u64 = 3 << 12;
    /// IPv6 with extension headers: layer 4's checksum was not looked at.
    pub const IPV6_EXTENDED: u64 = 1 << 15;
    /// The medium's error: check sequence, alignment, size.
    pub const MEDIUM_ERROR: u64 = 1 << 19;
    /// The card's program for this queue gave up.
    pub const RECIPE_ERROR: u64 = 1 << 20;
    /// A header longer than its buffer; no fault of the packet.
    pub const HEADER_OVERFLOW: u64 = 1 << 21;
    /// IPv4 header checksum wrong.
    pub const IP_ERROR: u64 = 1 << 22;
    /// Checksum of UDP, TCP or SCTP wrong.
    pub const L4_ERROR: u64 = 1 << 23;
    /// IPv4 header checksum of a tunnel's outer header wrong.
    pub const OUTER_IP_ERROR: u64 = 1 << 24;
    /// Larger than the queue takes.
    pub const OVERSIZE: u64 = 1 << 25;
    /// Packets came too fast for checksums to be looked at.
    pub const UNCHECKED: u64 = 1 << 26;

    /// Where the eight bits of errors begin.
    pub const ERRORS_SHIFT: u32 = 19;
    /// Where the eight bits of the packet's type begin.
    pub const KIND_SHIFT: u32 = 30;
    /// Where the fourteen bits of the length begin.
    pub const LENGTH_SHIFT: u32 = 38;
    /// The largest length.
    pub const LENGTH_MAX: u64 = (1 << 14) - 1;
}

/// Bits of a 32-byte descriptor's third quad word.
pub mod extended {
    /// A second tag was taken off.
    pub const SECOND_VLAN: u64 = 1;
    /// Where the second tag stands.
    pub const SECOND_VLAN_SHIFT: u32 = 48;
}

/// Bits of an AF_XDP descriptor's options.
pub mod option {
    /// `XDP_PKT_CONTD`: the packet goes on in the next descriptor.
    pub const CONTINUED: u32 = 1;
}

/// XL710, 16 bytes.
#[derive(Debug, Default)]
#[repr(C, align(16))]
pub struct Short {
    qwords: [AtomicU64; 2],
}

/// XL710, 32 bytes.
#[derive(Debug, Default)]
#[repr(C, align(32))]
pub struct Long {
    qwords: [AtomicU64; 4],
}

/// AF_XDP's `xdp_desc`. It has no done bit: the ring's producer index says how many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Xdp {
    /// Where in the shared memory the packet lies.
    pub address: u64,
    /// Its bytes.
    pub length: u32,
    /// See [`option`].
    pub options: u32,
}

const _: () = {
    assert!(size_of::<Short>() == 16 && align_of::<Short>() == 16);
    assert!(size_of::<Long>() == 32 && align_of::<Long>() == 32);
    assert!(size_of::<Xdp>() == 16);
    assert!(core::mem::offset_of!(Xdp, length) == 8 && core::mem::offset_of!(Xdp, options) == 12);
};

impl Short {
    /// With these quad words.
    pub const fn new(qwords: [u64; 2]) -> Self {
        let [a, b] = qwords;
        Self { qwords: [AtomicU64::new(a), AtomicU64::new(b)] }
    }

    /// Writes a descriptor as a card does after a packet: the quad word of the done bit last.
    #[inline]
    pub fn write_back(&self, qwords: [u64; 2]) {
        self.qwords[0].store(qwords[0], Ordering::Relaxed);
        self.qwords[1].store(qwords[1], Ordering::Release);
    }

    /// Gives the card a buffer as a driver does: its address, and no done bit.
    #[inline]
    pub fn refill(&self, address: u64) {
        self.qwords[1].store(0, Ordering::Relaxed);
        self.qwords[0].store(address, Ordering::Relaxed);
    }

    /// The quad words: what was written before the done bit, when that is set.
    #[inline(always)]
    pub fn qwords(&self) -> [u64; 2] {
        let second = self.qwords[1].load(Ordering::Acquire);
        [self.qwords[0].load(Ordering::Relaxed), second]
    }
}

impl Long {
    /// With these quad words.
    pub const fn new(qwords: [u64; 4]) -> Self {
        let [a, b, c, d] = qwords;
        let qwords = [AtomicU64::new(a), AtomicU64::new(b), AtomicU64::new(c), AtomicU64::new(d)];
        Self { qwords }
    }

    /// As [`Short::write_back`].
    #[inline]
    pub fn write_back(&self, qwords: [u64; 4]) {
        for index in [3, 2, 0] {
            self.qwords[index].store(qwords[index], Ordering::Relaxed);
        }
        self.qwords[1].store(qwords[1], Ordering::Release);
    }

    /// As [`Short::refill`].
    #[inline]
    pub fn refill(&self, address: u64) {
        self.qwords[1].store(0, Ordering::Relaxed);
        for (index, word) in [(0, address), (2, 0), (3, 0)] {
            self.qwords[index].store(word, Ordering::Relaxed);
        }
    }

    /// As [`Short::qwords`].
    #[inline(always)]
    pub fn qwords(&self) -> [u64; 4] {
        let second = self.qwords[1].load(Ordering::Acquire);
        let [first, third, fourth] = [0, 2, 3].map(|i| self.qwords[i].load(Ordering::Relaxed));
        [first, second, third, fourth]
    }
}

/// Metadata of a packet, or of the part of it that one descriptor has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct Metadata {
    /// The second tag (with [`Flags::SECOND_VLAN`]): priority and identifier.
    pub second_vlan: u16,
    /// The tag (with [`Flags::VLAN`]).
    pub vlan: u16,
    /// The hash by which the card chose the queue (with [`Flags::HASH`]).
    pub hash: u32,
    /// Bytes in this descriptor's buffer.
    pub length: u32,
    /// The valid flags.
    pub flags: Flags,
    /// The card's own error bits, as they are: [`status::MEDIUM_ERROR`] is the lowest.
    pub errors: u8,
    /// The card's number for the packet's type, see [`kind`]; 0 where there is none.
    pub kind: u8,
}

/// Bits of [`Metadata::flags`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Flags(pub u16);

impl Flags {
    /// The packet ends here.
    pub const END: Self = Self(1);
    /// There is a tag.
    pub const VLAN: Self = Self(1 << 1);
    /// There is a hash.
    pub const HASH: Self = Self(1 << 2);
    /// The packet is damaged: the medium, the queue's program, or its size.
    pub const ERROR: Self = Self(1 << 3);
    /// A checksum of an IPv4 header is wrong; says nothing with [`Flags::IP_UNKNOWN`].
    pub const IP_BAD: Self = Self(1 << 4);
    /// Layer 4's checksum is wrong; says nothing with [`Flags::L4_UNKNOWN`].
    pub const L4_BAD: Self = Self(1 << 5);
    /// Nobody looked at IP's checksum.
    pub const IP_UNKNOWN: Self = Self(1 << 6);
    /// Nobody looked at layer 4's checksum.
    pub const L4_UNKNOWN: Self = Self(1 << 7);
    /// There is a second tag.
    pub const SECOND_VLAN: Self = Self(1 << 8);

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

    /// These, and those when `condition` holds.
    #[must_use]
    pub const fn with_if(self, condition: bool, others: Self) -> Self {
        if condition { self.with(others) } else { self }
    }

    /// IP's header checksum.
    pub const fn ip_checksum(self) -> ChecksumVerdict {
        self.verdict(Self::IP_UNKNOWN, Self::IP_BAD)
    }

    /// Layer 4's checksum.
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
    /// It is right, or there is none in such a packet.
    Good,
    /// It is wrong.
    Bad,
    /// The device did not look.
    Unknown,
}

/// The XL710's numbers for what packets carry, of those that a stream may come in.
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
    // Vectors write the record whole: two quad words, of which the second is length and one more.
    assert!(size_of::<Metadata>() == 16 && align_of::<Metadata>() == 16);
    assert!(offset_of!(Metadata, second_vlan) == 0 && offset_of!(Metadata, vlan) == 2);
    assert!(offset_of!(Metadata, hash) == 4 && offset_of!(Metadata, length) == 8);
    assert!(offset_of!(Metadata, flags) == 12 && offset_of!(Metadata, errors) == 14);
    assert!(offset_of!(Metadata, kind) == 15);
    assert!(cfg!(target_endian = "little"));
};
