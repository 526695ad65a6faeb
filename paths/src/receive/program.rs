// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program that a device runs on each frame: frames for an awaited port go to the XDP socket of
//! their queue, all others on to the kernel as if the program were absent.
//!
//! Written as the instructions that the kernel runs, some 80 of them, so building needs no compiler
//! for eBPF, and running needs none of its files. The awaited addresses and ports lie in a map,
//! which changes while the program runs. A frame costs one lookup in the map and one reading of the
//! clock, 0.14 µs in all: an XDP socket gets no timestamp of a frame except the one that the
//! program puts in front of it (as metadata; some drivers have no room for it, and such frames have
//! no timestamp).
//!
//! Passes to the kernel: packets other than UDP; frames of a VLAN (its own device receives them);
//! fragments except the first, which have no port; IPv6 with extension headers; frames cut before
//! the port. The first fragment goes to the socket, where it is counted as malformed.
//!
//! Sources: the kernel's `Documentation/bpf/standardization/instruction-set.rst` (RFC 9669),
//! `Documentation/bpf/map_xskmap.rst`; Linux `include/uapi/linux/bpf.h` (`struct xdp_md`, helpers
//! `map_lookup_elem`, `ktime_get_ns`, `redirect_map`, `xdp_adjust_meta`). RFC 768, RFC 791,
//! RFC 8200, IEEE 802.1Q.
//!
//! Does not verify frames; [`super::frames`] does.

use std::net::IpAddr;

use crate::sys::{Instruction, KernelMap};

/// Bytes of a key: address (IPv4 as IPv6 has it), port, two zeroes; all as on the wire.
pub(super) const KEY_BYTES: usize = 20;
/// Bytes of a value, which is unused.
pub(super) const VALUE_BYTES: usize = 4;

/// Bytes in front of each frame for a socket: the time of the program's run, in nanoseconds of
/// `CLOCK_MONOTONIC`.
pub(super) const TIME_BYTES: usize = 8;

/// Returns the key of an address and port.
pub(super) fn key(target: IpAddr, port: u16) -> [u8; KEY_BYTES] {
    let address = match target {
        IpAddr::V4(target) => target.to_ipv6_mapped(),
        IpAddr::V6(target) => target,
    };
    let mut key = [0; KEY_BYTES];
    key[..16].copy_from_slice(&address.octets());
    key[16..18].copy_from_slice(&port.to_be_bytes());
    key
}

/// Registers: the result, arguments, those that calls preserve, the end of the stack.
mod register {
    pub(super) const RESULT: u8 = 0;
    pub(super) const FIRST: u8 = 1;
    pub(super) const SECOND: u8 = 2;
    pub(super) const THIRD: u8 = 3;
    /// Address of the frame's first byte at the beginning, of the current header later on.
    pub(super) const HEAD: u8 = 7;
    /// Address of the byte behind the frame.
    pub(super) const END: u8 = 8;
    /// The program's argument (`struct xdp_md`).
    pub(super) const CONTEXT: u8 = 6;
    /// The value just read.
    pub(super) const VALUE: u8 = 4;
    pub(super) const STACK: u8 = 10;
}

use register::{CONTEXT, END, FIRST, HEAD, RESULT, SECOND, STACK, THIRD, VALUE};

/// `struct xdp_md`.
mod context {
    pub(super) const DATA: i16 = 0;
    pub(super) const DATA_END: i16 = 4;
    pub(super) const DATA_META: i16 = 8;
    pub(super) const QUEUE: i16 = 16;
}

/// Codes of RFC 9669.
mod code {
    pub(super) const LOAD_BYTE: u8 = 0x71;
    pub(super) const LOAD_HALF: u8 = 0x69;
    pub(super) const LOAD_WORD: u8 = 0x61;
    pub(super) const LOAD_IMMEDIATE: u8 = 0x18;
    pub(super) const STORE_HALF: u8 = 0x6b;
    pub(super) const STORE_WORD: u8 = 0x63;
    pub(super) const STORE_DOUBLE: u8 = 0x7b;
    pub(super) const STORE_IMMEDIATE_HALF: u8 = 0x6a;
    pub(super) const STORE_IMMEDIATE_WORD: u8 = 0x62;
    pub(super) const MOVE: u8 = 0xbf;
    pub(super) const MOVE_IMMEDIATE: u8 = 0xb7;
    pub(super) const ADD: u8 = 0x0f;
    pub(super) const ADD_IMMEDIATE: u8 = 0x07;
    pub(super) const AND_IMMEDIATE: u8 = 0x57;
    pub(super) const SHIFT_LEFT_IMMEDIATE: u8 = 0x67;
    pub(super) const JUMP: u8 = 0x05;
    pub(super) const IF_GREATER: u8 = 0x2d;
    pub(super) const IF_EQUAL: u8 = 0x15;
    pub(super) const IF_NOT_EQUAL: u8 = 0x55;
    pub(super) const IF_LESS: u8 = 0xa5;
    pub(super) const IF_ANY_BIT: u8 = 0x45;
    pub(super) const CALL: u8 = 0x85;
    pub(super) const EXIT: u8 = 0x95;
    /// Source register of a `LOAD_IMMEDIATE` whose number is a map's descriptor
    /// (`BPF_PSEUDO_MAP_FD`).
    pub(super) const OF_MAP: u8 = 1;
}

const MAP_LOOKUP_ELEM: i32 = 1;
const KTIME_GET_NS: i32 = 5;
const REDIRECT_MAP: i32 = 51;
const XDP_ADJUST_META: i32 = 54;
const XDP_PASS: i32 = 2;
const UDP: i32 = libc::IPPROTO_UDP;

/// Jump targets in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Untagged,
    Ipv4,
    Ipv6,
    Udp,
    Redirect,
    Pass,
}

/// A program being written: instructions, and jumps by the place of their target.
#[derive(Default)]
struct Writer {
    program: Vec<Instruction>,
    jumps: Vec<(usize, Place)>,
    places: Vec<(Place, usize)>,
}

impl Writer {
    fn put(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        self.program.push(Instruction::new(code, to, from, offset, immediate));
    }

    fn here(&mut self, place: Place) {
        self.places.push((place, self.program.len()));
    }

    fn jump(&mut self, code: u8, (one, other): (u8, u8), immediate: i32, to: Place) {
        self.jumps.push((self.program.len(), to));
        self.put(code, one, other, 0, immediate);
    }

    /// Passes the frame on unless it has `bytes` bytes from the current header's start on.
    fn need(&mut self, bytes: i32) {
        self.put(code::MOVE, VALUE, HEAD, 0, 0);
        self.put(code::ADD_IMMEDIATE, VALUE, 0, 0, bytes);
        self.jump(code::IF_GREATER, (VALUE, END), 0, Place::Pass);
    }

    /// Reads from the current header.
    fn read(&mut self, load: u8, at: i16) {
        self.put(load, VALUE, HEAD, at, 0);
    }

    /// A map's address, which is loaded by two instructions.
    fn map(&mut self, register: u8, map: &KernelMap) {
        self.put(code::LOAD_IMMEDIATE, register, code::OF_MAP, 0, map.number());
        self.put(0, 0, 0, 0, 0);
    }

    fn done(mut self) -> Vec<Instruction> {
        for (at, place) in self.jumps {
            let target = self.places.iter().find(|(other, _)| *other == place);
            let (_, target) = target.expect("all places are in the program");
            self.program[at].offset = (target - at - 1) as i16;
        }
        self.program
    }
}

/// Returns a 16-bit number as a load reads it from the frame.
fn wire(number: u16) -> i32 {
    i32::from(u16::from_be_bytes(number.to_ne_bytes()))
}

/// The key lies at the end of the stack.
const KEY_AT: i16 = -(KEY_BYTES as i16);

/// Returns the program: `wanted` holds the awaited keys, `sockets` the XDP socket of each queue.
pub(super) fn program(wanted: &KernelMap, sockets: &KernelMap) -> Vec<Instruction> {
    let mut w = Writer::default();
    ethernet(&mut w);
    ipv4(&mut w);
    ipv6(&mut w);

    // UDP's header: its target port ends the key.
    w.here(Place::Udp);
    w.need(8);
    w.read(code::LOAD_HALF, 2);
    w.put(code::STORE_HALF, STACK, VALUE, KEY_AT + 16, 0);
    w.put(code::STORE_IMMEDIATE_HALF, STACK, 0, KEY_AT + 18, 0);
    // Looks the key up among the awaited ones.
    w.map(FIRST, wanted);
    w.put(code::MOVE, SECOND, STACK, 0, 0);
    w.put(code::ADD_IMMEDIATE, SECOND, 0, 0, KEY_AT.into());
    w.put(code::CALL, 0, 0, 0, MAP_LOOKUP_ELEM);
    w.jump(code::IF_EQUAL, (RESULT, 0), 0, Place::Pass);
    stamp(&mut w);
    // Redirects to the socket of this queue; where it has none, to the kernel.
    w.here(Place::Redirect);
    w.put(code::LOAD_WORD, SECOND, CONTEXT, context::QUEUE, 0);
    w.map(FIRST, sockets);
    w.put(code::MOVE_IMMEDIATE, THIRD, 0, 0, XDP_PASS);
    w.put(code::CALL, 0, 0, 0, REDIRECT_MAP);
    w.put(code::EXIT, 0, 0, 0, 0);

    w.here(Place::Pass);
    w.put(code::MOVE_IMMEDIATE, RESULT, 0, 0, XDP_PASS);
    w.put(code::EXIT, 0, 0, 0, 0);
    w.done()
}

/// Steps from the frame's beginning to its IP packet, over a tag without a VLAN number.
fn ethernet(w: &mut Writer) {
    w.put(code::MOVE, CONTEXT, FIRST, 0, 0);
    w.put(code::LOAD_WORD, HEAD, CONTEXT, context::DATA, 0);
    w.put(code::LOAD_WORD, END, CONTEXT, context::DATA_END, 0);
    w.need(14);
    w.read(code::LOAD_HALF, 12);
    w.jump(code::IF_NOT_EQUAL, (VALUE, 0), wire(0x8100), Place::Untagged);
    w.need(18);
    w.read(code::LOAD_HALF, 14);
    w.jump(code::IF_ANY_BIT, (VALUE, 0), wire(0x0fff), Place::Pass);
    w.read(code::LOAD_HALF, 16);
    w.put(code::ADD_IMMEDIATE, HEAD, 0, 0, 4);
    w.here(Place::Untagged);
    w.put(code::ADD_IMMEDIATE, HEAD, 0, 0, 14);
    w.jump(code::IF_EQUAL, (VALUE, 0), wire(libc::ETH_P_IP as u16), Place::Ipv4);
    w.jump(code::IF_EQUAL, (VALUE, 0), wire(libc::ETH_P_IPV6 as u16), Place::Ipv6);
    w.jump(code::JUMP, (0, 0), 0, Place::Pass);
}

/// Puts the target address into the key and steps to UDP's header.
fn ipv4(w: &mut Writer) {
    w.here(Place::Ipv4);
    w.need(20);
    w.read(code::LOAD_BYTE, 9);
    w.jump(code::IF_NOT_EQUAL, (VALUE, 0), UDP, Place::Pass);
    w.read(code::LOAD_HALF, 6);
    w.jump(code::IF_ANY_BIT, (VALUE, 0), wire(0x1fff), Place::Pass);
    // ::ffff:a.b.c.d
    w.put(code::STORE_IMMEDIATE_WORD, STACK, 0, KEY_AT, 0);
    w.put(code::STORE_IMMEDIATE_WORD, STACK, 0, KEY_AT + 4, 0);
    w.put(code::STORE_IMMEDIATE_HALF, STACK, 0, KEY_AT + 8, 0);
    w.put(code::STORE_IMMEDIATE_HALF, STACK, 0, KEY_AT + 10, 0xffff);
    w.read(code::LOAD_WORD, 16);
    w.put(code::STORE_WORD, STACK, VALUE, KEY_AT + 12, 0);
    // Version and length of the header: 0x45 to 0x4f.
    w.read(code::LOAD_BYTE, 0);
    w.jump(code::IF_LESS, (VALUE, 0), 0x45, Place::Pass);
    w.put(code::MOVE, RESULT, VALUE, 0, 0);
    w.put(code::AND_IMMEDIATE, RESULT, 0, 0, 0xf0);
    w.jump(code::IF_NOT_EQUAL, (RESULT, 0), 0x40, Place::Pass);
    w.put(code::AND_IMMEDIATE, VALUE, 0, 0, 0x0f);
    w.put(code::SHIFT_LEFT_IMMEDIATE, VALUE, 0, 0, 2);
    w.put(code::ADD, HEAD, VALUE, 0, 0);
    w.jump(code::JUMP, (0, 0), 0, Place::Udp);
}

/// Does the same as [`ipv4`] for IPv6; falls through to UDP's header.
fn ipv6(w: &mut Writer) {
    w.here(Place::Ipv6);
    w.need(40);
    w.read(code::LOAD_BYTE, 6);
    w.jump(code::IF_NOT_EQUAL, (VALUE, 0), UDP, Place::Pass);
    w.read(code::LOAD_BYTE, 0);
    w.put(code::AND_IMMEDIATE, VALUE, 0, 0, 0xf0);
    w.jump(code::IF_NOT_EQUAL, (VALUE, 0), 0x60, Place::Pass);
    for word in 0..4 {
        w.read(code::LOAD_WORD, 24 + 4 * word);
        w.put(code::STORE_WORD, STACK, VALUE, KEY_AT + 4 * word, 0);
    }
    w.put(code::ADD_IMMEDIATE, HEAD, 0, 0, 40);
}

/// Puts the time in front of the frame.
fn stamp(w: &mut Writer) {
    w.put(code::MOVE, FIRST, CONTEXT, 0, 0);
    w.put(code::MOVE_IMMEDIATE, SECOND, 0, 0, -(TIME_BYTES as i32));
    w.put(code::CALL, 0, 0, 0, XDP_ADJUST_META);
    w.jump(code::IF_NOT_EQUAL, (RESULT, 0), 0, Place::Redirect);
    w.put(code::CALL, 0, 0, 0, KTIME_GET_NS);
    w.put(code::LOAD_WORD, HEAD, CONTEXT, context::DATA_META, 0);
    w.put(code::LOAD_WORD, END, CONTEXT, context::DATA, 0);
    w.put(code::MOVE, VALUE, HEAD, 0, 0);
    w.put(code::ADD_IMMEDIATE, VALUE, 0, 0, TIME_BYTES as i32);
    w.jump(code::IF_GREATER, (VALUE, END), 0, Place::Redirect);
    w.put(code::STORE_DOUBLE, HEAD, RESULT, 0, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_as_the_program_makes_them() {
        let four = key("10.1.2.3".parse().unwrap(), 0x138c);
        let mut expected = [0; 20];
        expected[10..18].copy_from_slice(&[0xff, 0xff, 10, 1, 2, 3, 0x13, 0x8c]);
        assert_eq!(four, expected);
        let six = key("2001:db8::7".parse().unwrap(), 1);
        assert_eq!(six[..4], [0x20, 1, 0x0d, 0xb8]);
        assert_eq!(six[15..], [7, 0, 1, 0, 0]);
    }
}
