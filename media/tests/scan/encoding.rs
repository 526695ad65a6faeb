// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a stored plan is used only if every byte is the one written and the file is
//! unchanged.

use media::plan::FORMAT;
use media::{Aspect, PacketPlan, PlanFault, PlanKey};
use proptest::prelude::*;

use crate::writer::{film, film_into};
use crate::{cases, scan};

fn key(plan: &PacketPlan) -> PlanKey {
    PlanKey {
        path: b"films/\xff\xfe one.ts".to_vec(),
        bytes: plan.file_bytes(),
        modified_ns: -1_234_567_890_123_456_789,
        inode: u64::MAX,
    }
}

fn plan() -> PacketPlan {
    let mut writer = film(40);
    writer.garbage(&[1; 333]);
    film_into(&mut writer, 40..60);
    writer.garbage(&[0x47]);
    scan(&writer.file).unwrap()
}

#[test]
fn plan_comes_back_as_it_was() {
    let plan = plan();
    assert_eq!(PacketPlan::decode(&plan.encode(&key(&plan)), &key(&plan)), Ok(plan));
}

#[test]
fn every_damaged_byte_is_noticed() {
    let plan = plan();
    let stored = plan.encode(&key(&plan));
    for at in 0..stored.len() {
        for change in [1, 0x80, 0xff, 0x47] {
            let mut damaged = stored.clone();
            damaged[at] ^= change;
            let fault = PacketPlan::decode(&damaged, &key(&plan)).unwrap_err();
            let is_named = match at {
                0..8 => fault == PlanFault::Foreign,
                8..12 => matches!(fault, PlanFault::Version { expected: FORMAT, .. }),
                _ => matches!(fault, PlanFault::Damaged { .. }),
            };
            assert!(is_named, "byte {at}: {fault}");
        }
    }
}

#[test]
fn plan_cut_off_or_grown_is_noticed() {
    let plan = plan();
    let mut stored = plan.encode(&key(&plan));
    for end in 0..stored.len() {
        assert!(PacketPlan::decode(&stored[..end], &key(&plan)).is_err(), "{end}");
    }
    stored.push(0);
    assert!(PacketPlan::decode(&stored, &key(&plan)).is_err());
}

#[test]
fn plan_of_an_earlier_state_of_the_file_is_outdated() {
    let plan = plan();
    let stored = plan.encode(&key(&plan));
    let same = key(&plan);
    for (now, which) in [
        (PlanKey { path: b"films/two.ts".to_vec(), ..same.clone() }, Aspect::Path),
        (PlanKey { bytes: same.bytes + 1, ..same.clone() }, Aspect::Bytes),
        (PlanKey { modified_ns: same.modified_ns + 1, ..same.clone() }, Aspect::Modified),
        (PlanKey { inode: same.inode - 1, ..same.clone() }, Aspect::Inode),
    ] {
        assert_eq!(PacketPlan::decode(&stored, &now), Err(PlanFault::Outdated { which }));
    }
}

#[test]
fn plan_of_another_format_is_named() {
    let plan = plan();
    let mut stored = plan.encode(&key(&plan));
    stored[8..12].copy_from_slice(&77_u32.to_le_bytes());
    let expected = PlanFault::Version { found: 77, expected: FORMAT };
    assert_eq!(PacketPlan::decode(&stored, &key(&plan)), Err(expected));
}

#[test]
fn clock_takes_few_bytes() {
    let plan = scan(&film(10_000).file).unwrap();
    let bytes = plan.encode(&key(&plan)).len();
    assert!(bytes < 5 * plan.clock().len() + 8 * plan.entries().len() + 200, "{bytes}");
}

proptest! {
    #![proptest_config(cases(3000))]
    #[test]
    fn forged_plans_do_no_harm(
        changes in prop::collection::vec((12_usize..400, any::<u8>()), 1..6),
        at in 0_u64..100_000_000,
    ) {
        let plan = scan(&film(8).file).unwrap();
        let mut stored = plan.encode(&key(&plan));
        let end = stored.len() - 4;
        for (offset, byte) in changes {
            stored[12 + offset % (end - 12)] = byte;
        }
        let crc = crc32fast::hash(&stored[..end]);
        stored[end..].copy_from_slice(&crc.to_le_bytes());
        if let Ok(forged) = PacketPlan::decode(&stored, &key(&plan)) {
            let packet = forged.packets_before(at).min(forged.packets() - 1);
            let payload = forged.payload(packet);
            let end = payload.file_offset + (payload.ts_packets - 1) * forged.stride() + 188;
            prop_assert!(end <= plan.file_bytes());
            prop_assert!(forged.ticks(packet) <= forged.duration_ticks());
            prop_assert!(forged.entry(at) < forged.packets());
            prop_assert_eq!(forged.timestamps(packet..packet + 9).count() as u64,
                (forged.packets() - packet).min(9));
            prop_assert!(forged.bits_per_second() > 0);
        }
    }
}
