// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of one descriptor at a time by shifts and three small tables, as in a driver without
//! vectors.
//!
//! The vector variants use the same tables and look up sixteen bytes in a register. The compiler
//! makes the tables from the names of the bits.
//!
//! Does not serve as the oracle, which has no tables.

use super::Burst;
#[cfg(not(target_arch = "x86_64"))]
use super::elsewhere::write;
use super::format::{Flags, Long, Metadata, Short, Xdp, extended, option, status};
#[cfg(target_arch = "x86_64")]
use super::x86::write;

/// Flags for the lowest four bits of the status.
pub(super) const STATUS: [u8; 16] = {
    let mut table = [0; 16];
    let mut bits = 0;
    while bits < 16 {
        let status = bits as u64;
        let unknown = Flags::IP_UNKNOWN.with(Flags::L4_UNKNOWN);
        let flags = Flags(0)
            .with_if(status & status::END != 0, Flags::END)
            .with_if(status & status::VLAN != 0, Flags::VLAN)
            .with_if(status & status::CHECKED == 0, unknown);
        table[bits] = flags.0 as u8;
        bits += 1;
    }
    table
};

/// Flags for bits 12 to 15 of the status.
pub(super) const FILTER: [u8; 16] = {
    let mut table = [0; 16];
    let mut bits = 0;
    while bits < 16 {
        let status = (bits as u64) << FILTER_SHIFT;
        let flags = Flags(0)
            .with_if(status & status::HASH == status::HASH, Flags::HASH)
            .with_if(status & status::IPV6_EXTENDED != 0, Flags::L4_UNKNOWN);
        table[bits] = flags.0 as u8;
        bits += 1;
    }
    table
};

/// Flags for the eight error bits.
pub(super) const ERRORS: [u8; 256] = {
    const DAMAGED: u64 = status::MEDIUM_ERROR | status::RECIPE_ERROR | status::OVERSIZE;
    const IP: u64 = status::IP_ERROR | status::OUTER_IP_ERROR;
    let mut table = [0; 256];
    let mut bits = 0;
    while bits < 256 {
        let errors = (bits as u64) << status::ERRORS_SHIFT;
        let unknown = Flags::IP_UNKNOWN.with(Flags::L4_UNKNOWN);
        let flags = Flags(0)
            .with_if(errors & DAMAGED != 0, Flags::ERROR)
            .with_if(errors & IP != 0, Flags::IP_BAD)
            .with_if(errors & status::L4_ERROR != 0, Flags::L4_BAD)
            .with_if(errors & status::UNCHECKED != 0, unknown);
        table[bits] = flags.0 as u8;
        bits += 1;
    }
    table
};

pub(super) const FILTER_SHIFT: u32 = 12;

const _: () = {
    assert!(status::HASH == 3 << FILTER_SHIFT && status::IPV6_EXTENDED == 8 << FILTER_SHIFT);
    assert!(status::END == 1 << 1 && status::VLAN == 1 << 2 && status::CHECKED == 1 << 3);
    // The tables have eight flags; only the long format has the ninth.
    assert!(Flags::L4_UNKNOWN.0 == 1 << 7 && Flags::SECOND_VLAN.0 == 1 << 8);
};

/// Returns the two quad words of the record.
#[inline(always)]
fn record(first: u64, second: u64, third: u64) -> [u64; 2] {
    let errors = second >> status::ERRORS_SHIFT & 0xff;
    let flags = STATUS[second as usize & 15]
        | FILTER[(second >> FILTER_SHIFT) as usize & 15]
        | ERRORS[errors as usize];
    let more = (third & extended::SECOND_VLAN) * u64::from(Flags::SECOND_VLAN.0);
    let kind = second >> status::KIND_SHIFT & 0xff;
    let length = second >> status::LENGTH_SHIFT & status::LENGTH_MAX;
    let front = first & !0xffff | third >> extended::SECOND_VLAN_SHIFT;
    [front, length | (u64::from(flags) | more) << 32 | errors << 48 | kind << 56]
}

/// Format of the XL710.
pub(super) trait Done {
    /// Returns the quad words that the record is made of, when the done bit is set.
    fn done(&self) -> Option<[u64; 3]>;
}

impl Done for Short {
    #[inline(always)]
    fn done(&self) -> Option<[u64; 3]> {
        let [first, second] = self.qwords();
        (second & status::DONE != 0).then_some([first, second, 0])
    }
}

impl Done for Long {
    #[inline(always)]
    fn done(&self) -> Option<[u64; 3]> {
        let [first, second, third, _] = self.qwords();
        (second & status::DONE != 0).then_some([first, second, third])
    }
}

/// Converts the descriptors after those that `from` counts; the result includes `from`.
#[inline(always)]
pub(super) fn rest<D: Done>(descriptors: &[D], packets: &mut [Metadata], from: Burst) -> Burst {
    let Burst { mut count, mut split } = from;
    for (descriptor, packet) in descriptors[count..].iter().zip(&mut packets[count..]) {
        let Some([first, second, third]) = descriptor.done() else { break };
        write(packet, record(first, second, third));
        count += 1;
        split += usize::from(second & status::END == 0);
    }
    Burst { count, split }
}

/// Same as for [`rest`].
#[inline(always)]
pub(super) fn rest_xdp(descriptors: &[Xdp], packets: &mut [Metadata], from: Burst) -> Burst {
    let Burst { mut count, mut split } = from;
    for (descriptor, packet) in descriptors[count..].iter().zip(&mut packets[count..]) {
        let continued = descriptor.options & option::CONTINUED;
        let flags = u64::from(XDP_FLAGS ^ continued);
        write(packet, [0, u64::from(descriptor.length) | flags << 32]);
        count += 1;
        split += continued as usize;
    }
    Burst { count, split }
}

/// Flags of an AF_XDP packet that ends.
pub(super) const XDP_FLAGS: u32 =
    Flags::END.with(Flags::IP_UNKNOWN).with(Flags::L4_UNKNOWN).0 as u32;

const _: () = assert!(Flags::END.0 as u32 == option::CONTINUED);

/// # Safety
/// Has no condition; `unsafe` by the type of the other variants.
#[inline(never)]
pub(super) unsafe fn scalar(descriptors: &[Short], packets: &mut [Metadata]) -> Burst {
    rest(descriptors, packets, Burst::default())
}

/// # Safety
/// Same as for [`scalar`].
#[inline(never)]
pub(super) unsafe fn scalar_long(descriptors: &[Long], packets: &mut [Metadata]) -> Burst {
    rest(descriptors, packets, Burst::default())
}

/// # Safety
/// Same as for [`scalar`].
#[inline(never)]
pub(super) unsafe fn scalar_xdp(descriptors: &[Xdp], packets: &mut [Metadata]) -> Burst {
    rest_xdp(descriptors, packets, Burst::default())
}
