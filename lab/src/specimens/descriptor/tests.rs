// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of every variant of descriptor conversion, the specimens too, against the oracle; and of
//! the oracle against descriptors whose fields were written by hand.
//!
//! Does not read a card. The drivers of Linux and DPDK name the bits in the same way.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::specimens::trials::noise;

/// Descriptors that the widest variant converts at a time.
const WIDTH: usize = 16;

/// Initial content of the packets' memory.
const BEFORE: Metadata = Metadata {
    second_vlan: 0xa5a5,
    vlan: 0xa5a5,
    hash: 0xa5a5_a5a5,
    length: 0xa5a5_a5a5,
    flags: Flags(0xa5a5),
    errors: 0xa5,
    kind: 0xa5,
};

fn every() -> impl Iterator<Item = Descriptor> {
    Descriptor::all().chain(Descriptor::specimens())
}

fn words(count: usize) -> Vec<u64> {
    let noise = noise(8 * count);
    let (words, _) = noise.as_chunks::<8>();
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// Asserts that every variant, given `room` records, writes the same as the oracle and changes no
/// other record.
fn agrees(qwords: &[[u64; 4]], room: usize) -> Burst {
    let short: Vec<Short> = qwords.iter().map(|[a, b, ..]| Short::new([*a, *b])).collect();
    let long: Vec<Long> = qwords.iter().map(|qwords| Long::new(*qwords)).collect();
    let xdp: Vec<Xdp> = qwords
        .iter()
        .map(|[a, b, ..]| Xdp { address: *a, length: *b as u32, options: (*b >> 32) as u32 })
        .collect();
    let both = |work: &dyn Fn(Option<Descriptor>, &mut [Metadata]) -> Burst| {
        let on = |descriptor| {
            let mut packets = vec![BEFORE; room + 3];
            let burst = work(descriptor, &mut packets[1..][..room]);
            (burst, packets)
        };
        let expected = on(None);
        assert!(expected.1[expected.0.count + 1..].iter().all(|packet| *packet == BEFORE));
        for descriptor in every() {
            assert!(on(Some(descriptor)) == expected, "{descriptor:?}, {} of {room}", qwords.len());
        }
        expected.0
    };
    let burst = both(&|descriptor, packets| match descriptor {
        Some(descriptor) => descriptor.short(&short, packets),
        None => oracle_short(&short, packets),
    });
    let of_long = both(&|descriptor, packets| match descriptor {
        Some(descriptor) => descriptor.long(&long, packets),
        None => oracle_long(&long, packets),
    });
    both(&|descriptor, packets| match descriptor {
        Some(descriptor) => descriptor.xdp(&xdp, packets),
        None => oracle_xdp(&xdp, packets),
    });
    assert_eq!(burst, of_long);
    burst
}

/// Bits of status that a flag depends on.
const STATUS_BITS: [u64; 6] = [1 << 1, 1 << 2, 1 << 3, 1 << 12, 1 << 13, 1 << 15];

#[test]
fn every_variant_is_right_for_all_flags_errors_and_types() {
    let words = words(1 << 10);
    let mut qwords = Vec::new();
    for kind in 0..256_u64 {
        for errors in 0..256_u64 {
            for choice in 0..1_u64 << STATUS_BITS.len() {
                let status = STATUS_BITS.iter().enumerate();
                let status: u64 =
                    status.map(|(bit, status)| (choice >> bit & 1) * status).sum::<u64>();
                let noise = words[qwords.len() % words.len()];
                // Unused bits have any value; the second tag is set or not.
                let says_nothing = noise & 0xffff_ffc0_3807_4ff0;
                let second = says_nothing | 1 | status | errors << 19 | kind << 30;
                qwords.push([noise.rotate_left(9), second, noise.rotate_left(31), noise]);
            }
        }
        agrees(&qwords, qwords.len());
        qwords.clear();
    }
}

#[test]
fn every_variant_is_right_for_all_of_status() {
    let mut qwords = Vec::new();
    for errors in [0].into_iter().chain((0..8).map(|bit| 1_u64 << bit)) {
        qwords.extend((0..1_u64 << 18).map(|status| [0, 1 | status << 1 | errors << 19, 0, 0]));
        agrees(&qwords, qwords.len());
        qwords.clear();
    }
}

#[test]
fn every_variant_stops_where_a_descriptor_is_not_done() {
    let words = words(4 * (4 * WIDTH + 1));
    let (words, _) = words.as_chunks::<4>();
    for count in 0..=4 * WIDTH + 1 {
        // Some behind the first one that is not done are done: the card writes during the read.
        for not_done in 0..=count {
            let mut ring = words[..count].to_vec();
            ring[..not_done].iter_mut().for_each(|qwords| qwords[1] |= status::DONE);
            if let Some(qwords) = ring.get_mut(not_done) {
                qwords[1] &= !status::DONE;
            }
            let burst = agrees(&ring, count);
            assert_eq!(burst.count, not_done);
            let split = |qwords: &&[u64; 4]| qwords[1] & status::END == 0;
            assert_eq!(burst.split, ring[..not_done].iter().filter(split).count());
        }
    }
}

#[test]
fn there_are_as_many_as_both_have() {
    let words = words(4 * 70);
    let (words, _) = words.as_chunks::<4>();
    let ring: Vec<_> = words.iter().map(|[a, b, c, d]| [*a, *b | 1, *c, *d]).collect();
    for room in [0, 1, 15, 16, 17, 33, 69, 70, 71, 90] {
        assert_eq!(agrees(&ring, room).count, room.min(70));
    }
}

/// Checks fields at their places in the manual, each with its own value.
#[test]
fn a_descriptor_taken_apart_by_hand() {
    let first = 0xcafe_f00d << 32 | 0x2064 << 16 | 0x0300;
    // The bits are: done, end, tag, checked; a hash; UDP over IPv4; 1,370 bytes.
    let second = 0b1111 | 3 << 12 | 24 << 30 | 1370 << 38;
    let third = 0x0fa1 << 48 | 1;
    let mut packets = [Metadata::default(); 2];
    let burst = oracle_long(&[Long::new([first, second, third, 0])], &mut packets);
    assert_eq!(burst, Burst { count: 1, split: 0 });
    let Metadata { second_vlan, vlan, hash, length, flags, errors, kind } = packets[0];
    assert_eq!((second_vlan, vlan, hash, length), (0x0fa1, 0x2064, 0xcafe_f00d, 1370));
    assert_eq!((errors, kind), (0, kind::IPV4_UDP));
    let expected = [Flags::END, Flags::VLAN, Flags::HASH, Flags::SECOND_VLAN];
    assert_eq!(flags, expected.into_iter().fold(Flags(0), Flags::with), "{flags:?}");
    assert_eq!(format!("{flags:?}"), r#"{"END", "VLAN", "HASH", "SECOND_VLAN"}"#);
    assert_eq!(
        (flags.ip_checksum(), flags.l4_checksum()),
        (ChecksumVerdict::Good, ChecksumVerdict::Good)
    );

    let of = |second: u64| {
        let mut packets = [Metadata::default()];
        oracle_short(&[Short::new([first, second | 1])], &mut packets);
        (packets[0].flags, packets[0].errors, packets[0].second_vlan)
    };
    let (flags, errors, second_vlan) = of(1 << 3 | status::IP_ERROR | status::L4_ERROR);
    assert_eq!(
        (flags.ip_checksum(), flags.l4_checksum()),
        (ChecksumVerdict::Bad, ChecksumVerdict::Bad)
    );
    assert_eq!((errors, second_vlan), (0b1_1000, 0));
    let verdicts = |second| (of(second).0.ip_checksum(), of(second).0.l4_checksum());
    assert_eq!(verdicts(status::L4_ERROR), (ChecksumVerdict::Unknown, ChecksumVerdict::Unknown));
    assert_eq!(
        verdicts(1 << 3 | status::UNCHECKED),
        (ChecksumVerdict::Unknown, ChecksumVerdict::Unknown)
    );
    assert_eq!(verdicts(1 << 3 | 1 << 15), (ChecksumVerdict::Good, ChecksumVerdict::Unknown));
    for damage in [19, 20, 25] {
        assert!(of(1 << damage).0.contains(Flags::ERROR));
    }
    assert!(!of(status::HEADER_OVERFLOW).0.contains(Flags::ERROR));
    // An identifier of the flow director is not a hash.
    assert!(!of(1 << 12).0.contains(Flags::HASH));
}

#[test]
fn packets_of_af_xdp_end_or_go_on() {
    let descriptors = [0, option::CONTINUED, !0].map(|options| Xdp {
        address: 0x1_0000_0040,
        length: 0x1_2345,
        options,
    });
    for descriptor in every() {
        let mut packets = [BEFORE; 3];
        let burst = descriptor.xdp(&descriptors, &mut packets);
        assert_eq!(burst, Burst { count: 3, split: 2 });
        assert_eq!(packets.map(|packet| packet.length), [0x1_2345; 3]);
        let ends = packets.map(|packet| packet.flags.contains(Flags::END));
        assert_eq!(ends, [true, false, false]);
        assert!(
            packets.iter().all(|packet| packet.flags.l4_checksum() == ChecksumVerdict::Unknown)
        );
    }
}

#[test]
fn a_specimen_is_never_chosen() {
    let (chosen, dropped) = Descriptor::choose();
    assert_eq!(dropped, None);
    for specimen in Descriptor::specimens() {
        assert!(specimen.is_right() && specimen.name() != chosen.name());
        assert!(Descriptor::all().all(|variant| variant.name() != specimen.name()));
    }
}

/// Runs a card and a driver on one ring: no descriptor is converted half written.
#[test]
fn what_is_taken_while_a_card_writes_is_whole() {
    const RING: usize = 64;
    const ROUNDS: usize = 200;
    for descriptor in every() {
        let short: Vec<Short> = (0..RING).map(|_| Short::default()).collect();
        let long: Vec<Long> = (0..RING).map(|_| Long::default()).collect();
        // The number of the packet is in every field.
        let (consumed, total) = (&AtomicUsize::new(0), RING * ROUNDS);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..total {
                    while number >= consumed.load(Ordering::Acquire) + RING {
                        std::thread::yield_now();
                    }
                    let stamp = number as u64;
                    let (first, tag) = (stamp << 32, stamp << 48 | 1);
                    let second = 3 | (stamp & 0x3fff) << 38;
                    long[number % RING].write_back([first, second, tag, 0]);
                    short[number % RING].write_back([first, second]);
                }
            });
            let (mut packets, mut done) = ([[BEFORE; RING]; 2], 0);
            while done < total {
                let at = done % RING;
                let count = descriptor.short(&short[at..], &mut packets[0]).count;
                let of_long = descriptor.long(&long[at..], &mut packets[1]).count;
                assert!(of_long >= count, "{descriptor:?}: {of_long} of {count}");
                if count == 0 {
                    std::thread::yield_now();
                }
                let [of_short, of_long] = &packets;
                for (short, long) in of_short[..count].iter().zip(of_long) {
                    let stamp = done as u32;
                    assert_eq!((short.hash, short.length), (stamp, stamp & 0x3fff));
                    assert_eq!((long.hash, long.length), (stamp, stamp & 0x3fff));
                    assert_eq!(long.second_vlan, stamp as u16, "{descriptor:?}");
                    done += 1;
                }
                short[at..at + count].iter().for_each(|short| short.refill(0x1000));
                long[at..at + count].iter().for_each(|long| long.refill(0x1000));
                consumed.store(done, Ordering::Release);
            }
        });
    }
}
