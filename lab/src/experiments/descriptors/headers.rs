// SPDX-License-Identifier: MIT OR Apache-2.0
//! Headers of received frames, read from slots of 2 KiB as in drivers and AF_XDP.
//!
//! Does not measure frames outside every cache; the receiver has already read them.

use std::cell::RefCell;

use crate::specimens::packet::Packet;
use crate::specimens::packet::{Fields, oracle};

use measure::Error;
use measure::memory::{Group, Member, Turns};
use measure::results::Results;
use wire::mp2t;
use wire::rtp::Header;

/// A set of frames: all alike, or some with an IP option.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    name: &'static str,
    /// One frame of this many has an option in its IP header.
    one_of: Option<usize>,
}

pub(super) const KINDS: &[Kind] =
    &[Kind { name: "usual", one_of: None }, Kind { name: "1 of 16 unusual", one_of: Some(16) }];

/// Makes a frame of RTP over UDP over IPv4.
fn frame(number: usize, has_option: bool) -> Vec<u8> {
    let number = number as u8;
    let (words, option) = if has_option { (6, 4) } else { (5, 0) };
    let udp_bytes = 8 + 12 + PAYLOAD_BYTES as u16;
    let mut frame = vec![2; 12];
    frame.extend([0x08, 0x00, 0x40 | words, 0]);
    frame.extend((20 + option as u16 + udp_bytes).to_be_bytes());
    frame.extend([0, number, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 239, 0, 0, number]);
    frame.extend(vec![1; option]);
    frame.extend([0x13, 0x8c, 0x13, 0x8c]);
    frame.extend(udp_bytes.to_be_bytes());
    frame.extend([0, 0]);
    let header = Header {
        marker: false,
        payload_type: mp2t::PAYLOAD_TYPE,
        sequence: number.into(),
        timestamp: number.into(),
        ssrc: u32::from_be_bytes([1, 2, 3, number]),
    };
    frame.extend(header.write());
    frame.extend(vec![mp2t::TS_SYNC_BYTE; PAYLOAD_BYTES]);
    frame
}

/// Verifies and times all variants.
pub(super) fn measure(
    kind: Kind,
    readers: &[Packet],
    turns: &mut Turns<'_>,
    results: &mut Results,
) -> Result<(), Error> {
    let bytes: Vec<Vec<u8>> = (0..COUNT)
        .map(|number| frame(number, kind.one_of.is_some_and(|of| number % of == 5)))
        .collect();
    let mut slots = vec![0; COUNT * SLOT_BYTES];
    for (slot, frame) in slots.chunks_mut(SLOT_BYTES).zip(&bytes) {
        slot[..frame.len()].copy_from_slice(frame);
    }
    let slots = slots.chunks(SLOT_BYTES).zip(&bytes);
    let frames: &Vec<&[u8]> = &slots.map(|(slot, frame)| &slot[..frame.len()]).collect();
    let fields = RefCell::new(vec![Fields::default(); COUNT]);
    let fields = &fields;
    let mut expected = vec![Fields::default(); COUNT];
    oracle(frames, &mut expected);
    let bytes = COUNT * HEADER_BYTES;
    let by_oracle = Member::new("oracle", move || {
        oracle(frames, &mut fields.borrow_mut());
        bytes as u64
    });
    let mut members = vec![by_oracle.of_operations(COUNT as u64)];
    for &reader in readers {
        fields.borrow_mut().fill(Fields::default());
        reader.fields(frames, &mut fields.borrow_mut());
        if *fields.borrow() != expected {
            let found = "not the fields that the oracle finds".to_owned();
            return Err(Error::Wrong { member: reader.name().to_owned(), found });
        }
        let member = Member::new(reader.name(), move || {
            reader.fields(frames, &mut fields.borrow_mut());
            bytes as u64
        });
        members.push(member.of_operations(COUNT as u64));
    }
    let parameters = vec![("headers", kind.name.to_owned())];
    let group = Group { parameters, reference: REFERENCE, members };
    turns.measure(kind.name, group, results);
    Ok(())
}

/// The other variants are compared with it.
pub(super) const REFERENCE: &str = "portable";
const COUNT: usize = 32;
const SLOT_BYTES: usize = 2048;
const PAYLOAD_BYTES: usize = 1316;
/// Bytes read of each frame; its throughput counts these.
const HEADER_BYTES: usize = 54;
