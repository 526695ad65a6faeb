// SPDX-License-Identifier: MIT OR Apache-2.0
//! The filter of a packet socket: passes frames that may be for an awaited port.
//!
//! A program of classic BPF, rebuilt for each set of ports. It checks that the frame is for this
//! host, of no VLAN (a tagged frame is another network's, whose device receives it untagged), of
//! UDP by IPv4 or IPv6, and not a fragment without a UDP header; then port and address. A binary
//! search finds ports and addresses, so a hundred cost seven comparisons more than one.
//! [`super::awaited_ports`] checks passed frames again, so the filter may pass too many: it accepts
//! all awaited addresses on all awaited ports, compares the last four bytes of an IPv6 address, and
//! of more than [`RANGES_MAX`] numbers also accepts those between the closest.
//!
//! Sources: the kernel's `Documentation/networking/filter.rst`; Linux `net/core/filter.c`
//! (`bpf_convert_filter`), `include/uapi/linux/filter.h`. RFC 768, RFC 791, RFC 8200.
//!
//! Does not pass IPv6 with extension headers.

use std::net::IpAddr;

use crate::receive::awaited_ports::AwaitedPorts;

/// One instruction: code, jumps, constant.
pub(super) type Filter = Vec<libc::sock_filter>;

/// Numbers, or ranges of them, in one lookup of a program: four times this many fit.
const RANGES_MAX: usize = 128;

/// Largest number of instructions that the kernel accepts (`BPF_MAXINSNS`).
const INSTRUCTIONS_MAX: usize = 4096;

/// Codes, as the kernel's `filter.rst` names them.
mod code {
    pub(super) const LD: u16 = 0x20;
    pub(super) const LDH: u16 = 0x28;
    pub(super) const LDB: u16 = 0x30;
    /// Loads from X bytes beyond the given offset.
    pub(super) const LDH_X: u16 = 0x48;
    /// X = 4 × (byte & 15): the length of an IPv4 header.
    pub(super) const LDX_HEADER: u16 = 0xb1;
    pub(super) const JUMP: u16 = 0x05;
    pub(super) const IF_EQUAL: u16 = 0x15;
    pub(super) const IF_GREATER: u16 = 0x25;
    pub(super) const IF_NOT_LESS: u16 = 0x35;
    pub(super) const IF_ANY_BIT: u16 = 0x45;
    pub(super) const RETURN: u16 = 0x06;
}

/// Places of facts outside the frame (`SKF_AD_OFF`), and of the network header (`SKF_NET_OFF`).
mod place {
    pub(super) const PROTOCOL: u32 = (-0x1000_i32) as u32;
    pub(super) const PACKET_TYPE: u32 = PROTOCOL + 4;
    pub(super) const VLAN_TAG: u32 = PROTOCOL + 44;
    pub(super) const HAS_VLAN_TAG: u32 = PROTOCOL + 48;
    pub(super) const NETWORK: u32 = (-0x10_0000_i32) as u32;
}

const VLAN_NUMBER: u32 = 0x0fff;
const FRAGMENT_OFFSET: u32 = 0x1fff;
const UDP: u32 = libc::IPPROTO_UDP as u32;
const EVERYTHING: u32 = u32::MAX;

/// A jump target whose position in the program is not yet determined.
#[derive(Clone, Copy, Debug)]
struct Label(usize);

/// A program being written: instructions, and jumps by the mark of their target.
#[derive(Default)]
struct Writer {
    program: Filter,
    jumps: Vec<(usize, Label)>,
    marks: Vec<usize>,
}

impl Writer {
    fn put(&mut self, code: u16, k: u32) {
        self.program.push(libc::sock_filter { code, jt: 0, jf: 0, k });
    }

    fn mark(&mut self) -> Label {
        self.marks.push(usize::MAX);
        Label(self.marks.len() - 1)
    }

    /// Sets `mark` to this place.
    fn here(&mut self, mark: Label) {
        self.marks[mark.0] = self.program.len();
    }

    fn jump(&mut self, to: Label) {
        self.jumps.push((self.program.len(), to));
        self.put(code::JUMP, 0);
    }

    /// Adds a conditional jump. Conditional jumps reach only 255 instructions, so this one skips an
    /// unconditional jump, which reaches further.
    fn jump_if(&mut self, code: u16, k: u32, to: Label) {
        self.program.push(libc::sock_filter { code, jt: 0, jf: 1, k });
        self.jump(to);
    }

    fn jump_unless(&mut self, code: u16, k: u32, to: Label) {
        self.program.push(libc::sock_filter { code, jt: 1, jf: 0, k });
        self.jump(to);
    }

    /// Adds a search: continues behind it when the accumulator is in one of the ranges, otherwise
    /// jumps to `miss`.
    fn find(&mut self, ranges: &[(u32, u32)], miss: Label) {
        let hit = self.mark();
        self.halve(ranges, hit, miss);
        self.here(hit);
    }

    fn halve(&mut self, ranges: &[(u32, u32)], hit: Label, miss: Label) {
        match ranges {
            [] => self.jump(miss),
            [(first, last)] => {
                self.jump_unless(code::IF_NOT_LESS, *first, miss);
                self.jump_if(code::IF_GREATER, *last, miss);
                self.jump(hit);
            }
            _ => {
                let (low, high) = ranges.split_at(ranges.len() / 2);
                let upper = self.mark();
                self.jump_if(code::IF_NOT_LESS, high[0].0, upper);
                self.halve(low, hit, miss);
                self.here(upper);
                self.halve(high, hit, miss);
            }
        }
    }

    fn done(mut self) -> Filter {
        for (at, mark) in self.jumps {
            // Classic BPF allows forward jumps only: marks are set after the jumps to them.
            self.program[at].k = (self.marks[mark.0] - at - 1) as u32;
        }
        assert!(self.program.len() <= INSTRUCTIONS_MAX, "a program as long as the ranges allow");
        self.program
    }
}

/// Returns the filter for the awaited ports.
pub(super) fn filter(wanted: &AwaitedPorts) -> Filter {
    let mut writer = Writer::default();
    let nothing = writer.mark();
    if !wanted.is_empty() {
        let (untagged, four, six) = (writer.mark(), writer.mark(), writer.mark());
        writer.put(code::LD, place::PACKET_TYPE);
        writer.jump_if(code::IF_EQUAL, libc::PACKET_OTHERHOST.into(), nothing);
        writer.jump_if(code::IF_EQUAL, libc::PACKET_OUTGOING.into(), nothing);
        writer.put(code::LD, place::HAS_VLAN_TAG);
        writer.jump_if(code::IF_EQUAL, 0, untagged);
        writer.put(code::LD, place::VLAN_TAG);
        // A tag without a VLAN number has a priority only (IEEE 802.1Q §9.6).
        writer.jump_if(code::IF_ANY_BIT, VLAN_NUMBER, nothing);
        writer.here(untagged);
        writer.put(code::LD, place::PROTOCOL);
        writer.jump_if(code::IF_EQUAL, libc::ETH_P_IP as u32, four);
        writer.jump_if(code::IF_EQUAL, libc::ETH_P_IPV6 as u32, six);
        writer.jump(nothing);
        writer.here(four);
        by_ipv4(&mut writer, wanted, nothing);
        writer.here(six);
        by_ipv6(&mut writer, wanted, nothing);
    }
    writer.here(nothing);
    writer.put(code::RETURN, 0);
    writer.done()
}

fn by_ipv4(writer: &mut Writer, wanted: &AwaitedPorts, nothing: Label) {
    let numbers = wanted.iter().filter_map(|awaited| match awaited.target {
        IpAddr::V4(target) => Some((u32::from(awaited.port), u32::from(target))),
        IpAddr::V6(_) => None,
    });
    let (ports, targets): (Vec<u32>, Vec<u32>) = numbers.unzip();
    writer.put(code::LDB, place::NETWORK.wrapping_add(9));
    writer.jump_unless(code::IF_EQUAL, UDP, nothing);
    writer.put(code::LDH, place::NETWORK.wrapping_add(6));
    writer.jump_if(code::IF_ANY_BIT, FRAGMENT_OFFSET, nothing);
    writer.put(code::LDX_HEADER, place::NETWORK);
    writer.put(code::LDH_X, place::NETWORK.wrapping_add(2));
    writer.find(&ranges(ports), nothing);
    writer.put(code::LD, place::NETWORK.wrapping_add(16));
    writer.find(&ranges(targets), nothing);
    writer.put(code::RETURN, EVERYTHING);
}

fn by_ipv6(writer: &mut Writer, wanted: &AwaitedPorts, nothing: Label) {
    let numbers = wanted.iter().filter_map(|awaited| match awaited.target {
        IpAddr::V6(target) => Some((u32::from(awaited.port), target.to_bits() as u32)),
        IpAddr::V4(_) => None,
    });
    let (ports, target_ends): (Vec<u32>, Vec<u32>) = numbers.unzip();
    writer.put(code::LDB, place::NETWORK.wrapping_add(6));
    writer.jump_unless(code::IF_EQUAL, UDP, nothing);
    writer.put(code::LDH, place::NETWORK.wrapping_add(42));
    writer.find(&ranges(ports), nothing);
    writer.put(code::LD, place::NETWORK.wrapping_add(36));
    writer.find(&ranges(target_ends), nothing);
    writer.put(code::RETURN, EVERYTHING);
}

/// Returns at most [`RANGES_MAX`] ranges that include all numbers, and as few others as possible.
fn ranges(mut numbers: Vec<u32>) -> Vec<(u32, u32)> {
    numbers.sort_unstable();
    numbers.dedup();
    // The widest gaps stay excluded.
    let mut gaps: Vec<u32> = numbers.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_unstable_by(|one, other| other.cmp(one));
    let widest_joined = gaps.get(RANGES_MAX - 1).copied().unwrap_or(1).max(1);
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if number - *last <= widest_joined => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::receive::awaited_ports::AwaitedPort;

    #[test]
    fn ranges_have_all_numbers_and_few_others() {
        assert_eq!(ranges(vec![]), []);
        assert_eq!(ranges(vec![5004]), [(5004, 5004)]);
        assert_eq!(ranges(vec![7, 5, 6, 9, 5]), [(5, 7), (9, 9)]);
        assert_eq!(ranges(vec![0, u32::MAX]), [(0, 0), (u32::MAX, u32::MAX)]);
        let many: Vec<u32> = (0..1000).map(|n| n * n).collect();
        let some = ranges(many.clone());
        assert!(some.len() <= RANGES_MAX);
        assert!(many.iter().all(|n| some.iter().any(|(first, last)| (first..=last).contains(&n))));
        let even: Vec<u32> = (0..1000).map(|n| n * 2).collect();
        assert_eq!(ranges(even), [(0, 1998)]);
    }

    fn wanted(count: u32) -> AwaitedPorts {
        let mut wanted = AwaitedPorts::default();
        for n in 0..count {
            let port = (1000 + 7 * n) as u16;
            let four = IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + 5 * n));
            let six = IpAddr::V6(Ipv6Addr::from((0x2001_0db8 << 96) | (5 * u128::from(n))));
            for target in [four, six] {
                wanted.add(AwaitedPort { port, target, key: n, sources: vec![] });
            }
        }
        wanted
    }

    #[test]
    fn programs_are_never_too_long() {
        assert_eq!(filter(&AwaitedPorts::default()).len(), 1);
        for count in [1, 2, 100, 128, 129, 5000] {
            let length = filter(&wanted(count)).len();
            assert!(length <= INSTRUCTIONS_MAX, "{count}: {length}");
        }
    }

    /// The program's answer for a number in the accumulator: `find` run by hand.
    #[test]
    fn a_number_is_found_exactly_when_it_is_in_a_range() {
        for count in 0..40_u32 {
            let ranges: Vec<(u32, u32)> = (0..count).map(|n| (10 * n + 3, 10 * n + 5)).collect();
            let mut writer = Writer::default();
            let miss = writer.mark();
            writer.find(&ranges, miss);
            writer.put(code::RETURN, 1);
            writer.here(miss);
            writer.put(code::RETURN, 0);
            let program = writer.done();
            for number in 0..10 * count + 10 {
                let found = (number < 10 * count) && (3..=5).contains(&(number % 10));
                assert_eq!(run(&program, number), u32::from(found), "{number} of {count}");
            }
        }
    }

    fn run(program: &[libc::sock_filter], accumulator: u32) -> u32 {
        let mut at = 0;
        loop {
            let step = &program[at];
            let test = match step.code {
                code::RETURN => return step.k,
                code::JUMP => {
                    at += 1 + step.k as usize;
                    continue;
                }
                code::IF_GREATER => accumulator > step.k,
                code::IF_NOT_LESS => accumulator >= step.k,
                other => panic!("code {other:#x}"),
            };
            at += 1 + usize::from(if test { step.jt } else { step.jf });
        }
    }
}
