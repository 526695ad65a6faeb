// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion alone: all descriptors are done; descriptors and records lie in the first-level
//! cache.
//!
//! A call converts a burst of 32, as in drivers: the figure includes the cost of the call.
//!
//! Does not measure bursts that end early; the ring model has those.

use std::cell::RefCell;

use crate::specimens::descriptor::Descriptor;
use crate::specimens::descriptor::{
    Long, Metadata, Short, Xdp, oracle_long, oracle_short, oracle_xdp, status,
};

use super::{CACHE, FAULT, PLACE, SHORT, reference};
use measure::Error;
use measure::memory::{Group, Member, Turns};
use measure::results::Results;

/// Descriptor format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Format {
    Short,
    Long,
    Xdp,
}

pub(super) const FORMATS: &[Format] = &[Format::Short, Format::Long, Format::Xdp];

impl Format {
    fn name(self) -> &'static str {
        match self {
            Format::Short => SHORT,
            Format::Long => "32 B",
            Format::Xdp => "AF_XDP",
        }
    }

    fn bytes(self) -> usize {
        match self {
            Format::Short | Format::Xdp => 16,
            Format::Long => 32,
        }
    }
}

/// Descriptors of each format.
struct Work {
    short: Vec<Short>,
    long: Vec<Long>,
    xdp: Vec<Xdp>,
    packets: Vec<Metadata>,
}

impl Work {
    fn new() -> Work {
        let qwords = |number: usize| {
            let noise = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let flags = status::DONE | status::END | status::CHECKED | status::HASH;
            let length = (60 + (noise >> 40) % 1455) << status::LENGTH_SHIFT;
            [noise, flags | 24 << status::KIND_SHIFT | length, noise << 48 | noise >> 63, 0]
        };
        let xdp = |number: usize| Xdp {
            address: 2048 * number as u64,
            length: 60 + number as u32,
            options: 0,
        };
        Work {
            short: (0..COUNT).map(|n| Short::new([qwords(n)[0], qwords(n)[1]])).collect(),
            long: (0..COUNT).map(|n| Long::new(qwords(n))).collect(),
            xdp: (0..COUNT).map(xdp).collect(),
            packets: vec![Metadata::default(); COUNT],
        }
    }

    /// Converts all descriptors by a variant, or by the oracle.
    fn run(&mut self, format: Format, variant: Option<Descriptor>) -> usize {
        let mut count = 0;
        for (index, packets) in self.packets.chunks_mut(BURST).enumerate() {
            let of = index * BURST..(index + 1) * BURST;
            let burst = match (format, variant) {
                (Format::Short, Some(variant)) => variant.short(&self.short[of], packets),
                (Format::Long, Some(variant)) => variant.long(&self.long[of], packets),
                (Format::Xdp, Some(variant)) => variant.xdp(&self.xdp[of], packets),
                (Format::Short, None) => oracle_short(&self.short[of], packets),
                (Format::Long, None) => oracle_long(&self.long[of], packets),
                (Format::Xdp, None) => oracle_xdp(&self.xdp[of], packets),
            };
            count += burst.count;
        }
        count
    }

    fn verify(&mut self, format: Format, variant: Descriptor) -> Result<(), Error> {
        self.run(format, None);
        let expected = self.packets.clone();
        self.packets.fill(Metadata::default());
        let count = self.run(format, Some(variant));
        if count == COUNT && self.packets == expected {
            return Ok(());
        }
        let found = format!("{count} of {COUNT} records, or not those of the oracle");
        Err(Error::Wrong { member: format!("{}, {}", variant.name(), format.name()), found })
    }
}

/// Verifies and times all variants on a format.
pub(super) fn measure(
    format: Format,
    variants: &[Descriptor],
    turns: &mut Turns<'_>,
    results: &mut Results,
) -> Result<(), Error> {
    let work = RefCell::new(Work::new());
    let mut members = Vec::new();
    // Lengths in AF_XDP are aligned, so the narrow-store fault cannot occur.
    let has = |variant: &&Descriptor| format != Format::Xdp || variant.name() != FAULT;
    for &variant in variants.iter().filter(has) {
        work.borrow_mut().verify(format, variant)?;
        let work = &work;
        let member = Member::new(variant.name(), move || {
            (work.borrow_mut().run(format, Some(variant)) * format.bytes()) as u64
        });
        members.push(member.of_operations(COUNT as u64));
    }
    let parameters = vec![(PLACE, CACHE.to_owned()), ("format", format.name().to_owned())];
    let group = Group { parameters, reference: reference(), members };
    turns.measure(format.name(), group, results);
    Ok(())
}

/// Descriptors and records of this number fill at most half of a first-level cache of 32 KiB.
const COUNT: usize = 256;
const BURST: usize = 32;
