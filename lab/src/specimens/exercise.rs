// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exercises: each kernel of pagewire on a few batches, and specimens that stall, for a tracer.
//!
//! `pagewire lab stalls --self` makes the program run itself under each tracer with these. A kernel
//! in use must have no blocked load. A specimen has a known number of them, which shows that the
//! tracer would have found one.
//!
//! The tracer watches the function of `runs` and its callees. Their data is made before, so that
//! its stores are not watched. Each exercise runs the variant that is selected on the processor
//! that the tracer presents to the program.
//!
//! Sources: the headers of the kernels in `simd`.
//! Does not compare results; the kernels' own tests do.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::specimens::descriptor::Descriptor;
use crate::specimens::descriptor::{Long, Metadata, Short, Xdp, status};
use simd::checksum::Ranges;
use simd::stamp::{Addresses, Frames, HEAD_BYTES, Template};
use stalls::Exercise;

/// All exercises.
pub static EXERCISES: &[Exercise] = &[
    Exercise { name: "blocked", calls: 1, blocked: ROUNDS as u64, run: runs::blocked },
    Exercise { name: "forwarded", calls: 1, blocked: 0, run: runs::forwarded },
    Exercise { name: "cbc", calls: 2, blocked: 0, run: cbc },
    Exercise { name: "checksum", calls: 2, blocked: 0, run: checksum },
    Exercise { name: "copy", calls: 16, blocked: 0, run: copy },
    Exercise { name: "stamp", calls: 2, blocked: 0, run: stamp },
    Exercise { name: "packet", calls: 2, blocked: 0, run: packet },
    Exercise { name: "narrow_store", calls: 1, blocked: BURST as u64, run: narrow_store },
    Exercise { name: "sse_blend", calls: 2, blocked: 0, run: sse_blend },
    Exercise { name: "descriptor", calls: 6, blocked: 0, run: descriptor },
];

/// Runs all exercises.
pub fn exercise() {
    for exercise in EXERCISES {
        (exercise.run)(exercise.calls);
    }
}

/// Part of the names of the functions in `runs`, by which a tracer selects them.
pub const WATCHED: &str = "specimens::exercise::runs::";

/// Returns the variant that is selected unless it computes wrong answers on this processor.
fn widest<V>(variants: impl Iterator<Item = V>) -> V {
    variants.last().expect("one variant is everywhere")
}

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n * n / 7 + n) as u8).collect()
}

fn cbc(calls: u64) {
    let key = simd::cbc::AesKey::new(&noise(32)).expect("a key of 256 bits");
    let mut ivs = [[7; simd::cbc::BLOCK_BYTES]; CBC_MESSAGES];
    let mut bytes = noise(CBC_MESSAGES * CBC_BYTES);
    let chunks = ivs.iter_mut().zip(bytes.chunks_mut(CBC_BYTES));
    let message = |(iv, bytes)| simd::cbc::Message { key: &key, iv, bytes };
    let mut messages: Vec<_> = chunks.map(message).collect();
    runs::cbc(widest(simd::Cbc::all()), &mut messages, calls);
}

fn checksum(calls: u64) {
    let slots = noise(RANGES * STRIDE);
    let ranges = |call| {
        // Uses another length for each call, and so another rest.
        let (at, bytes) = (call, RANGE_BYTES - call);
        Ranges { slots: &slots, stride: STRIDE, at, bytes, last_bytes: bytes / 3 }
    };
    let ranges: Vec<_> = (0..calls as usize).map(ranges).collect();
    runs::checksum(widest(simd::Checksum::all()), ranges);
}

fn copy(calls: u64) {
    let source = noise(COPY_BYTES_MAX);
    let mut target = vec![0; COPY_BYTES_MAX];
    runs::copy(widest(crate::specimens::copy::Copier::all()), &source, &mut target, calls);
}

fn stamp(calls: u64) {
    let address = |last| SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, last), 5004);
    let addresses = Addresses {
        source_mac: [2, 0, 0, 0, 0, 1],
        target_mac: [2, 0, 0, 0, 0, 2],
        source: address(1),
        target: address(2),
    };
    let template = Template::new(&addresses, 64, 0);
    let heads = noise(RANGES * HEAD_BYTES);
    let mut slots = vec![0; calls as usize * RANGES * STRIDE];
    let frames = |(call, slots)| Frames {
        slots,
        stride: STRIDE,
        at: 0,
        heads: &heads,
        datagram_bytes: 1328 - call,
        last_bytes: 100,
        identification: call * RANGES as u16,
    };
    let frames: Vec<_> = (0..).zip(slots.chunks_mut(RANGES * STRIDE)).map(frames).collect();
    runs::stamp(widest(simd::Stamp::all()), &template, frames);
}

fn packet(calls: u64) {
    let frame: Vec<u8> = noise(FRAME_BYTES).into_iter().zip(0..).map(udp_byte).collect();
    let frames = vec![frame.as_slice(); BURST];
    let mut fields = vec![crate::specimens::packet::Fields::default(); BURST];
    runs::packet(widest(crate::specimens::packet::Packet::all()), &frames, &mut fields, calls);
}

/// Turns noise into an Ethernet, IPv4 and UDP frame, byte by byte.
fn udp_byte((noise, at): (u8, usize)) -> u8 {
    match at {
        12 => 0x08,        // IPv4
        13 | 18..=21 => 0, // no fragment
        14 => 0x45,        // five words of header
        16 => 0,
        17 => (FRAME_BYTES - 14) as u8, // IP's length
        23 => 17,                       // UDP
        38 => 0,
        39 => (FRAME_BYTES - 14 - 20) as u8, // UDP's length
        42 => wire::rtp::PLAIN_FIRST_BYTE,
        _ => noise,
    }
}

/// Runs the published fault: four lengths a batch, stored one by one into bytes that one load
/// reads.
fn narrow_store(calls: u64) {
    for variant in Descriptor::specimens().filter(|variant| variant.name() == "narrow_store") {
        let mut packets = vec![Metadata::default(); BURST];
        runs::narrow_store(variant, &short(), &mut packets, calls);
    }
}

/// Runs the published remedy.
fn sse_blend(calls: u64) {
    for variant in Descriptor::all().filter(|variant| variant.name() == "sse_blend") {
        let mut packets = vec![Metadata::default(); BURST];
        runs::sse_blend(variant, &short(), &mut packets, calls);
    }
}

fn descriptor(calls: u64) {
    let long: Vec<Long> =
        (0..BURST as u64).map(|n| Long::new([n, done(n), n << 48 | 1, n])).collect();
    let xdp: Vec<Xdp> = (0..BURST as u32)
        .map(|n| Xdp { address: u64::from(n) << 11, length: 60 + n, options: n & 1 })
        .collect();
    let mut packets = vec![Metadata::default(); BURST];
    let variant = widest(Descriptor::all());
    runs::descriptor(variant, (&short(), &long, &xdp), &mut packets, calls / 3);
}

fn short() -> Vec<Short> {
    (0..BURST as u64).map(|n| Short::new([n << 32, done(n)])).collect()
}

/// Returns the second quad word of a done descriptor, with its own length.
fn done(number: u64) -> u64 {
    status::DONE | status::END | status::CHECKED | (60 + number) << status::LENGTH_SHIFT
}

/// Functions that the tracer watches.
mod runs {
    use std::hint::black_box;

    use crate::specimens::copy::Copier;
    use crate::specimens::descriptor::Descriptor;
    use crate::specimens::descriptor::{Long, Metadata, Short, Xdp};
    use crate::specimens::packet::Fields;
    use crate::specimens::packet::Packet;
    use simd::cbc::Message;
    use simd::checksum::Ranges;
    use simd::stamp::{Frames, Template};
    use simd::{Cbc, Checksum, Stamp};

    use super::{COPY_LENGTHS, RANGES, ROUNDS};

    #[inline(never)]
    pub(super) fn blocked(calls: u64) {
        for _ in 0..calls {
            black_box(stalls::blocked(ROUNDS));
        }
    }

    #[inline(never)]
    pub(super) fn forwarded(calls: u64) {
        for _ in 0..calls {
            black_box(stalls::forwarded(ROUNDS));
        }
    }

    #[inline(never)]
    pub(super) fn cbc(variant: Cbc, messages: &mut [Message<'_>], calls: u64) {
        for _ in 0..calls {
            variant.encrypt(messages);
        }
    }

    #[inline(never)]
    pub(super) fn checksum(variant: Checksum, calls: Vec<Ranges<'_>>) {
        for ranges in calls {
            let mut sums = [0; RANGES];
            variant.sums(ranges, &mut sums);
            black_box(&sums);
        }
    }

    #[inline(never)]
    pub(super) fn copy(variant: Copier, source: &[u8], target: &mut [u8], calls: u64) {
        for call in 0..calls as usize {
            let bytes = COPY_LENGTHS[call % COPY_LENGTHS.len()];
            let (source, target) = (&source[..bytes], &mut target[..bytes]);
            match call / COPY_LENGTHS.len() % 2 {
                0 => variant.copy(source, target),
                _ => _ = black_box(variant.copy_and_sum(source, target)),
            }
        }
    }

    #[inline(never)]
    pub(super) fn stamp(variant: Stamp, template: &Template, calls: Vec<Frames<'_>>) {
        for frames in calls {
            variant.frames(template, frames, &[0x1234; RANGES]);
        }
    }

    #[inline(never)]
    pub(super) fn packet(variant: Packet, frames: &[&[u8]], fields: &mut [Fields], calls: u64) {
        for _ in 0..calls {
            variant.fields(frames, fields);
        }
    }

    #[inline(never)]
    pub(super) fn narrow_store(
        variant: Descriptor,
        descriptors: &[Short],
        packets: &mut [Metadata],
        calls: u64,
    ) {
        for _ in 0..calls {
            black_box(variant.short(descriptors, packets));
        }
    }

    #[inline(never)]
    pub(super) fn sse_blend(
        variant: Descriptor,
        descriptors: &[Short],
        packets: &mut [Metadata],
        calls: u64,
    ) {
        for _ in 0..calls {
            black_box(variant.short(descriptors, packets));
        }
    }

    #[inline(never)]
    pub(super) fn descriptor(
        variant: Descriptor,
        (short, long, xdp): (&[Short], &[Long], &[Xdp]),
        packets: &mut [Metadata],
        rounds: u64,
    ) {
        for _ in 0..rounds {
            black_box(variant.short(short, packets));
            black_box(variant.long(long, packets));
            black_box(variant.xdp(xdp, packets));
        }
    }
}

/// Rounds of the timing loops.
const ROUNDS: u32 = 25;
/// Messages of a call, more than the widest variant has lanes.
const CBC_MESSAGES: usize = 20;
const CBC_BYTES: usize = 256;
/// Descriptors of a call: 25 batches of four, or whole batches of eight and a rest.
const BURST: usize = 100;
/// Bytes of a short frame.
const FRAME_BYTES: usize = 120;
/// Frames of a batch, in slots as in a ring.
const RANGES: usize = 16;
const STRIDE: usize = 2048;
const RANGE_BYTES: usize = 1316;
/// Lengths with every kind of rest.
const COPY_LENGTHS: [usize; 8] = [3, 12, 47, 64, 188, 333, 1316, COPY_BYTES_MAX];
const COPY_BYTES_MAX: usize = 1500;
