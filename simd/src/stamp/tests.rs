// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every variant of stamping against the oracle, and the oracle against frames from the network.
//!
//! Sources: the golden frame is one of Linux 6.18's own, sent through a veth pair and captured.
//!
//! Does not send. `paths/tests/contract/frames.rs` has the kernel verify checksums.

use super::*;
use crate::trials::{LENGTHS, noise};

/// Memory of frames, with noise around and between them.
struct Trial {
    slots: Vec<u8>,
    heads: Vec<u8>,
    sums: Vec<u16>,
}

fn agrees(trial: &Trial, stride: usize, at: usize, datagram_bytes: u16, last_bytes: u16) {
    let template = Template::new(&KNOWN, 64, 0);
    let stamped = |stamp: Option<Stamp>| {
        let mut slots = trial.slots.clone();
        let frames = Frames {
            slots: &mut slots,
            stride,
            at,
            heads: &trial.heads,
            datagram_bytes,
            last_bytes,
            identification: 0xfffe,
        };
        match stamp {
            Some(stamp) => stamp.frames(&template, frames, &trial.sums),
            None => oracle(&template, frames, &trial.sums),
        }
        slots
    };
    let expected = stamped(None);
    for stamp in Stamp::all() {
        // The comparison includes all slots: bytes outside the headers stay unchanged.
        let (got, heads) = (stamped(Some(stamp)), trial.heads.len());
        assert!(got == expected, "{stamp:?} {stride} {at} {datagram_bytes} {last_bytes} {heads}");
    }
}

fn trial(count: usize, with_heads: bool, slot_bytes: usize) -> Trial {
    let heads = if with_heads { noise(count * HEAD_BYTES) } else { Vec::new() };
    let sums = noise(2 * count).chunks(2).map(|two| u16::from_le_bytes([two[0], two[1]])).collect();
    Trial { slots: noise(slot_bytes), heads, sums }
}

#[test]
fn every_variant_is_right_at_every_offset_and_count() {
    for with_heads in [true, false] {
        for count in 0..=9 {
            let trial = trial(count, with_heads, 9 * 128 + 64 + 54);
            for at in 0..64 {
                for stride in [54, 55, 64, 128] {
                    agrees(&trial, stride, at, 1328, 700);
                }
            }
        }
    }
}

#[test]
fn every_variant_is_right_at_every_length() {
    let lengths = (0..=4 * 64 + 1).chain(LENGTHS.iter().copied());
    for datagram_bytes in lengths {
        let bytes = u16::try_from(datagram_bytes).unwrap();
        for with_heads in [true, false] {
            agrees(&trial(3, with_heads, 200), 64, 5, bytes, bytes / 2);
        }
    }
}

/// Tests sums at which a fold carries twice, and the one whose complement is 0.
#[test]
fn every_variant_is_right_at_every_payload_sum() {
    let mut trial = trial(1, true, 54);
    for sum in 0..=u16::MAX {
        trial.sums[0] = sum;
        agrees(&trial, 0, 0, 1328, 1328);
    }
    trial.heads.fill(0xff);
    for sum in [0, 1, 0xfffe, 0xffff] {
        trial.sums[0] = sum;
        agrees(&trial, 0, 0, u16::MAX - 28, DATAGRAM_BYTES_MAX);
    }
}

#[test]
fn a_frame_of_linux_itself() {
    // The frame has five bytes from 10.99.0.1:5004 to 10.99.0.2:6004, with checksums by software.
    let golden = [
        0x02, 0x00, 0x00, 0x00, 0x00, 0x02, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x45,
        0x00, 0x00, 0x21, 0x2e, 0x98, 0x40, 0x00, 0x40, 0x11, 0xf7, 0x6b, 0x0a, 0x63, 0x00, 0x01,
        0x0a, 0x63, 0x00, 0x02, 0x13, 0x8c, 0x17, 0x74, 0x00, 0x0d, 0x96, 0x44, b'a', b'b', b'c',
        b'd', b'e',
    ];
    let addresses = Addresses {
        source_mac: [2, 0, 0, 0, 0, 1],
        target_mac: [2, 0, 0, 0, 0, 2],
        source: "10.99.0.1:5004".parse().unwrap(),
        target: "10.99.0.2:6004".parse().unwrap(),
    };
    let template = Template::new(&addresses, 64, 0);
    let mut slots = [0; 47];
    slots[FRONT_BYTES..].copy_from_slice(b"abcde");
    let sum = crate::Kernels::here().checksum.sum(b"abcde");
    let (datagram_bytes, last_bytes, identification) = (5, 5, 0x2e98);
    let (stride, at, heads) = (0, 0, &[][..]);
    let frames =
        Frames { slots: &mut slots, stride, at, heads, datagram_bytes, last_bytes, identification };
    oracle(&template, frames, &[sum]);
    assert_eq!(slots, golden);
}

#[test]
#[should_panic(expected = "a header of 12 bytes a frame")]
fn headers_of_other_sizes_are_the_callers_mistake() {
    let template = Template::new(&KNOWN, 64, 0);
    let frames = Frames {
        slots: &mut [0; 200],
        stride: 100,
        at: 0,
        heads: &[0; 23],
        datagram_bytes: 20,
        last_bytes: 20,
        identification: 0,
    };
    Stamp::all().last().unwrap().frames(&template, frames, &[0; 2]);
}

#[test]
#[should_panic(expected = "2 frames lie in the slots")]
fn frames_past_the_slots_are_the_callers_mistake() {
    let template = Template::new(&KNOWN, 64, 0);
    let frames = Frames {
        slots: &mut [0; 105],
        stride: 64,
        at: 0,
        heads: &[],
        datagram_bytes: 20,
        last_bytes: 20,
        identification: 0,
    };
    Stamp::all().last().unwrap().frames(&template, frames, &[0; 2]);
}
