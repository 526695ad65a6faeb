// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that no bytes make the scanner panic, and that their division into pieces makes no
//! difference.

use proptest::prelude::*;

use crate::writer::{Writer, film, film_into};
use crate::{cases, scan, scan_in_pieces};

/// A stream with everything in it that is hard to see across a cut.
fn difficult_stream(has_arrival: bool) -> Vec<u8> {
    let mut writer = Writer::new(has_arrival);
    writer.garbage(&[0x47; 321]);
    film_into(&mut writer, 0..11);
    writer.garbage(&[0x47, 0x10, 0, 0x10].repeat(77));
    film_into(&mut writer, 11..15);
    // A packet cut short, and one with a damaged sync byte.
    let end = writer.file.len() - 60;
    writer.file.truncate(end);
    film_into(&mut writer, 20..25);
    let sync_byte = writer.file.len() - if has_arrival { 8 * 192 - 4 } else { 8 * 188 };
    writer.file[sync_byte] ^= 1;
    writer.garbage(&[0x47, 0x1f, 0xff, 0x10, 9, 9]);
    writer.file
}

#[test]
fn one_byte_at_a_time_gives_the_same_plan() {
    for has_arrival in [false, true] {
        let file = difficult_stream(has_arrival);
        let whole = scan(&file).unwrap();
        assert!(whole.losses_seen() >= 4);
        assert_eq!(scan_in_pieces(&file, std::iter::repeat_n(1, file.len())), Ok(whole));
    }
}

#[test]
fn every_single_cut_gives_the_same_plan() {
    let file = difficult_stream(false);
    let whole = scan(&file).unwrap();
    for cut in (0..file.len()).step_by(3) {
        assert_eq!(scan_in_pieces(&file, [cut]).as_ref(), Ok(&whole), "{cut}");
    }
}

/// Packets with valid headers and random contents.
fn random_packets() -> impl Strategy<Value = Vec<u8>> {
    let packet = (0..12_u16, any::<[u8; 4]>(), prop::collection::vec(any::<u8>(), 184));
    prop::collection::vec(packet, 0..80).prop_map(|packets| {
        let mut file = Vec::new();
        for (index, (pid, [flags, control, length, field], payload)) in (0_u8..).zip(packets) {
            // Tables on PID 0 and 1, whose CRC is never right; the others are streams.
            file.extend([0x47, flags & 0xc0, pid as u8, control & 0xb0 | 0x10 | index & 15]);
            let start = file.len();
            file.extend(payload);
            file[start] = length;
            file[start + 1] = field;
        }
        file
    })
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn any_cuts_give_the_same_plan(
        sizes in prop::collection::vec(0_usize..9000, 0..40),
        has_arrival in any::<bool>(),
    ) {
        let file = difficult_stream(has_arrival);
        prop_assert_eq!(scan_in_pieces(&file, sizes), scan(&file));
    }

    #[test]
    fn random_bytes_are_refused_or_planned_alike(
        file in prop::collection::vec(any::<u8>(), 0..20_000),
        sizes in prop::collection::vec(0_usize..3000, 0..10),
    ) {
        prop_assert_eq!(scan_in_pieces(&file, sizes), scan(&file));
    }

    #[test]
    fn random_packets_are_refused_or_planned_alike(
        file in random_packets(),
        sizes in prop::collection::vec(0_usize..3000, 0..10),
    ) {
        let plan = scan(&file);
        prop_assert_eq!(scan_in_pieces(&file, sizes), plan);
    }

    #[test]
    fn random_damage_is_survived(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..200),
        drops in prop::collection::vec((any::<prop::sample::Index>(), 1_usize..300), 0..8),
        sizes in prop::collection::vec(0_usize..3000, 0..10),
    ) {
        let mut file = film(40).file;
        for (at, byte) in damage {
            let at = at.index(file.len());
            file[at] = byte;
        }
        for (at, bytes) in drops {
            let at = at.index(file.len());
            let end = file.len().min(at + bytes);
            file.drain(at..end);
        }
        let plan = scan(&file);
        if let Ok(plan) = &plan {
            let streamed = plan.ts_packets() * 188;
            prop_assert_eq!(streamed + plan.lost_bytes() + plan.tail_bytes(), file.len() as u64);
        }
        prop_assert_eq!(scan_in_pieces(&file, sizes), plan);
    }
}
