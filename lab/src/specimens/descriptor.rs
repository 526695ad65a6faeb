// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receive descriptors of network cards converted into packet metadata, many at a time.
//!
//! A card describes a packet in 16 or 32 bytes whose fields cross byte boundaries. A driver
//! converts them once for each packet, and no step of that may stall. In bursts of 32 from the
//! first-level cache, nanoseconds a packet (AMD EPYC with AVX-512, rustc 1.95):
//!
//! | variant | 16 bytes | 32 bytes | AF_XDP |
//! |---|---|---|---|
//! | `scalar` | 2.3 | 2.5 | 0.81 |
//! | `sse_blend`, four at a time | 1.15 | 1.4 | 0.46 |
//! | `avx2`, eight | 0.58 | 0.82 | 0.27 |
//! | `avx512`, sixteen | 0.47 | 0.72 | 0.22 |
//! | `narrow_store`, a fault kept to be measured | 2.2 | 2.7 | |
//!
//! The layout of [`Metadata`] suits the conversion: tag and hash keep their places in the short
//! format, and one unpacking adds length and flags. In a driver's whole loop (`pagewire lab
//! descriptors`, a ring with a card on another core) a packet takes 8.5 ns with the fault, 6.7 with
//! its remedy, 6.0 by AVX2 and 6.2 by AVX-512: the rest is the loop.
//!
//! Sources: Intel's XL710 datasheet (write-back formats) with Linux's and DPDK's `i40e_type.h`;
//! Linux `include/uapi/linux/if_xdp.h`; Richardson, "Improving Driver Performance: A Worked
//! Example" (the fault and its remedy).
//!
//! Does not own a ring, hand out buffers, or join split packets; the poller does. Has no flags for
//! flow director's programming status and header split.

#[cfg(not(target_arch = "x86_64"))]
mod elsewhere;
mod format;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests;

pub use format::{
    ChecksumVerdict, Flags, Long, Metadata, Short, Xdp, extended, kind, option, status,
};

use simd::variant::{self, Dropped, Variant, everywhere};

/// Result of a conversion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Burst {
    /// Descriptors converted: all before the first that is not done.
    pub count: usize,
    /// Converted descriptors without [`Flags::END`]: 0 when every packet lies in one buffer.
    pub split: usize,
}

/// Converts one descriptor field by field; returns `None` when it is not done. `third` is the third
/// quad word, 0 in the short format.
fn oracle_of(first: u64, second: u64, third: u64) -> Option<Metadata> {
    let has = |bit: u64| second & bit != 0;
    if !has(status::DONE) {
        return None;
    }
    let checked = has(status::CHECKED) && !has(status::UNCHECKED);
    let mut flags = Flags(0);
    let mut set = |condition: bool, flag: Flags| flags = flags.with_if(condition, flag);
    set(has(status::END), Flags::END);
    set(has(status::VLAN), Flags::VLAN);
    set(second & status::HASH == status::HASH, Flags::HASH);
    set(has(status::MEDIUM_ERROR), Flags::ERROR);
    set(has(status::RECIPE_ERROR), Flags::ERROR);
    set(has(status::OVERSIZE), Flags::ERROR);
    set(has(status::IP_ERROR), Flags::IP_BAD);
    set(has(status::OUTER_IP_ERROR), Flags::IP_BAD);
    set(has(status::L4_ERROR), Flags::L4_BAD);
    set(!checked, Flags::IP_UNKNOWN);
    set(!checked || has(status::IPV6_EXTENDED), Flags::L4_UNKNOWN);
    set(third & extended::SECOND_VLAN != 0, Flags::SECOND_VLAN);
    Some(Metadata {
        second_vlan: (third >> 48 & 0xffff) as u16,
        vlan: (first >> 16 & 0xffff) as u16,
        hash: (first >> 32) as u32,
        length: (second >> 38 & 0x3fff) as u32,
        flags,
        errors: (second >> 19 & 0xff) as u8,
        kind: (second >> 30 & 0xff) as u8,
    })
}

fn oracle(records: impl Iterator<Item = Option<Metadata>>, packets: &mut [Metadata]) -> Burst {
    let mut burst = Burst::default();
    for (record, packet) in records.zip(packets) {
        let Some(record) = record else { break };
        *packet = record;
        burst.count += 1;
        burst.split += usize::from(!record.flags.contains(Flags::END));
    }
    burst
}

/// Converts descriptors one by one until one is not done, or `packets` is full, as
/// [`Descriptor::short`] does.
pub fn oracle_short(descriptors: &[Short], packets: &mut [Metadata]) -> Burst {
    let records = descriptors.iter().map(|descriptor| {
        let [first, second] = descriptor.qwords();
        oracle_of(first, second, 0)
    });
    oracle(records, packets)
}

/// Same as for [`oracle_short`].
pub fn oracle_long(descriptors: &[Long], packets: &mut [Metadata]) -> Burst {
    let records = descriptors.iter().map(|descriptor| {
        let [first, second, third, _] = descriptor.qwords();
        oracle_of(first, second, third)
    });
    oracle(records, packets)
}

/// Same as for [`oracle_short`]; all descriptors are done.
pub fn oracle_xdp(descriptors: &[Xdp], packets: &mut [Metadata]) -> Burst {
    let records = descriptors.iter().map(|descriptor| {
        let ends = descriptor.options & option::CONTINUED == 0;
        let unknown = Flags::IP_UNKNOWN.with(Flags::L4_UNKNOWN);
        let flags = unknown.with_if(ends, Flags::END);
        Some(Metadata { length: descriptor.length, flags, ..Metadata::default() })
    });
    oracle(records, packets)
}

// The idea, for n descriptors d (n = 4, 8 or 16):
//
//     status  = dword 2 of each d               by unpacking pairs of registers
//     lengths = dword 3 of each d
//     if not all of status are done: the rest one by one
//     last    = flags looked up by four bits each | errors | type
//     record  = tag and hash of d in their places | length | last
//
// Departures from the loops of drivers:
// 1. Descriptors are read first to last, not last to first. A driver counts done bits, so it must
//    not see a later descriptor newer than an earlier one; this code leaves every descriptor behind
//    the first one that is not done.
// 2. A group in which not all are done is converted again, one by one: up to n - 1 of a burst.
//    No record is written behind the converted ones.
// 3. Every flag can be set by an or: "unknown" is set where a driver would clear "good".

/// Functions of a variant, one for each format.
struct Run {
    short: unsafe fn(&[Short], &mut [Metadata]) -> Burst,
    long: unsafe fn(&[Long], &mut [Metadata]) -> Burst,
    xdp: unsafe fn(&[Xdp], &mut [Metadata]) -> Burst,
}

const SCALAR: Variant<Run> = Variant {
    name: "scalar",
    is_here: everywhere,
    run: Run { short: scalar::scalar, long: scalar::scalar_long, xdp: scalar::scalar_xdp },
};

#[cfg(not(target_arch = "x86_64"))]
static VARIANTS: &[Variant<Run>] = &[SCALAR];

#[cfg(not(target_arch = "x86_64"))]
static SPECIMENS: &[Variant<Run>] = &[];

#[cfg(target_arch = "x86_64")]
static VARIANTS: &[Variant<Run>] = &[
    SCALAR,
    Variant {
        name: "sse_blend",
        is_here: || is_x86_feature_detected!("sse4.1"),
        run: Run { short: x86::sse_blend, long: x86::sse_blend_long, xdp: x86::sse_xdp },
    },
    Variant {
        name: "avx2",
        is_here: || is_x86_feature_detected!("avx2"),
        run: Run { short: x86::avx2, long: x86::avx2_long, xdp: x86::avx2_xdp },
    },
    Variant {
        name: "avx512",
        is_here: || is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw"),
        run: Run { short: x86::avx512, long: x86::avx512_long, xdp: x86::avx512_xdp },
    },
];

/// Faults that are kept to be measured and found. No selection includes them.
#[cfg(target_arch = "x86_64")]
static SPECIMENS: &[Variant<Run>] = &[Variant {
    name: "narrow_store",
    is_here: || is_x86_feature_detected!("sse4.1"),
    run: Run { short: x86::narrow_store, long: x86::narrow_store_long, xdp: x86::sse_xdp },
}];

/// Variant that this processor has.
#[derive(Clone, Copy)]
pub struct Descriptor(&'static Variant<Run>);

impl Descriptor {
    /// Returns the variants that this processor has, widest last.
    pub fn all() -> impl Iterator<Item = Self> {
        variant::here(VARIANTS).map(Self)
    }

    /// Returns the known faults, which compute right answers and are slow: for measurements, and
    /// for the search for stalls. None is ever selected.
    pub fn specimens() -> impl Iterator<Item = Self> {
        variant::here(SPECIMENS).map(Self)
    }

    pub(crate) fn choose() -> (Self, Option<Dropped>) {
        let (chosen, dropped) =
            variant::choose("descriptor", VARIANTS, |candidate| Self(candidate).is_right());
        (Self(chosen), dropped)
    }

    /// Returns its instruction set, or its fault.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Writes the metadata of each descriptor until one is not done, or `packets` is full. Writes
    /// no record behind [`Burst::count`].
    #[inline]
    pub fn short(self, descriptors: &[Short], packets: &mut [Metadata]) -> Burst {
        let count = descriptors.len().min(packets.len());
        // SAFETY: `variant::here` found every variant that a `Descriptor` holds; both slices
        // have the same length.
        unsafe { (self.0.run.short)(&descriptors[..count], &mut packets[..count]) }
    }

    /// Same as for [`Descriptor::short`].
    #[inline]
    pub fn long(self, descriptors: &[Long], packets: &mut [Metadata]) -> Burst {
        let count = descriptors.len().min(packets.len());
        // SAFETY: as in `short`.
        unsafe { (self.0.run.long)(&descriptors[..count], &mut packets[..count]) }
    }

    /// Same as for [`Descriptor::short`]; all of `descriptors` are done.
    #[inline]
    pub fn xdp(self, descriptors: &[Xdp], packets: &mut [Metadata]) -> Burst {
        let count = descriptors.len().min(packets.len());
        // SAFETY: as in `short`.
        unsafe { (self.0.run.xdp)(&descriptors[..count], &mut packets[..count]) }
    }

    /// True when the variant computes the known answers.
    fn is_right(self) -> bool {
        const COUNT: usize = 37;
        let noise = |index: usize, salt: u64| {
            (index as u64 * 4 + salt + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        let second = |index: usize| match index {
            34 => noise(index, 1) & !status::DONE,
            _ => noise(index, 1) | status::DONE,
        };
        let short: [Short; COUNT] =
            core::array::from_fn(|index| Short::new([noise(index, 0), second(index)]));
        let long: [Long; COUNT] = core::array::from_fn(|index| {
            Long::new([noise(index, 0), second(index), noise(index, 2), noise(index, 3)])
        });
        let xdp: [Xdp; COUNT] = core::array::from_fn(|index| {
            let (address, word) = (noise(index, 0), noise(index, 1));
            Xdp { address, length: word as u32, options: (word >> 32) as u32 }
        });
        let both = |work: &dyn Fn(bool, &mut [Metadata]) -> Burst| {
            let mut packets = [[Metadata { hash: 0x5a5a_5a5a, ..Metadata::default() }; COUNT]; 2];
            let [by_oracle, by_self] = &mut packets;
            work(true, by_oracle) == work(false, by_self) && by_oracle == by_self
        };
        both(&|oracle, packets| match oracle {
            true => oracle_short(&short, packets),
            false => self.short(&short, packets),
        }) && both(&|oracle, packets| match oracle {
            true => oracle_long(&long, packets),
            false => self.long(&long, packets),
        }) && both(&|oracle, packets| match oracle {
            true => oracle_xdp(&xdp, packets),
            false => self.xdp(&xdp, packets),
        })
    }
}

impl core::fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "descriptor by {}", self.name())
    }
}
