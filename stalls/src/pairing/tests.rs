// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests the rule on traces made by hand, and on noise against a byte-by-byte oracle.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Load(u64, u32),
    Store(u64, u32),
    Other(Kind),
}
use Step::{Load, Other, Store as Put};

const REACH: Reach = Reach { stores: 56, instructions: 256 };

/// Runs a trace in which step `n` is the instruction at `n`.
fn pairing(reach: Reach, steps: &[Step]) -> Pairing {
    let mut pairing = Pairing::new(reach);
    for (site, step) in (0..).zip(steps) {
        let kind = if let Other(kind) = step { *kind } else { Kind::Plain };
        pairing.instruction(site, kind);
        match *step {
            Load(address, bytes) => pairing.load(address, bytes, true),
            Put(address, bytes) => pairing.store(address, bytes, true),
            Other(_) => {}
        }
    }
    pairing
}

/// Returns the blocked loads, each with the stores it waits for, as numbers of steps.
fn blocked(reach: Reach, steps: &[Step]) -> Vec<(u64, Vec<u64>)> {
    let mut found: Vec<_> = pairing(reach, steps)
        .into_pairs()
        .into_iter()
        .map(|(pair, _)| (pair.load.site, pair.stores.iter().map(|store| store.site).collect()))
        .collect();
    found.sort();
    found
}

#[test]
fn a_load_within_one_store_is_forwarded() {
    for (address, bytes) in [(0x100, 8), (0x100, 4), (0x104, 4), (0x107, 1), (0x102, 2)] {
        assert_eq!(blocked(REACH, &[Put(0x100, 8), Load(address, bytes)]), []);
    }
}

#[test]
fn a_load_beside_every_store_is_of_the_cache() {
    let steps = [Put(0x100, 8), Put(0x110, 8), Load(0x108, 8), Load(0xf8, 8), Load(0x118, 8)];
    assert_eq!(blocked(REACH, &steps), []);
}

#[test]
fn a_load_of_more_than_the_store_has_is_blocked() {
    for (address, bytes) in [(0x100, 2), (0x10e, 2), (0x107, 1), (0xff, 2), (0x10f, 4)] {
        let steps = [Put(address, bytes), Load(0x100, 16)];
        assert_eq!(blocked(REACH, &steps), [(1, vec![0])], "{steps:?}");
    }
}

#[test]
fn halves_stored_apart_block_although_together_they_have_all() {
    let steps = [Put(0x100, 4), Put(0x104, 4), Load(0x100, 8)];
    assert_eq!(blocked(REACH, &steps), [(2, vec![1, 0])]);
    let pairs = pairing(REACH, &steps).into_pairs();
    assert!(!pairs[0].0.rest, "nothing is of the cache");
}

#[test]
fn the_youngest_store_gives_its_bytes() {
    let covered = [Put(0x100, 2), Put(0x104, 2), Put(0x100, 8), Load(0x100, 8)];
    assert_eq!(blocked(REACH, &covered), [], "the older ones are overwritten");
    let torn = [Put(0x100, 8), Put(0x104, 2), Load(0x100, 8)];
    assert_eq!(blocked(REACH, &torn), [(2, vec![1, 0])]);
    assert_eq!(blocked(REACH, &[torn[0], torn[1], Load(0x100, 4)]), [], "beside the younger one");
}

/// The published fault: a register is spilled, two of its bytes are overwritten, and it is loaded.
#[test]
fn four_narrow_stores_a_batch_are_four_pairs() {
    let mut steps = Vec::new();
    for _ in 0..25 {
        steps.extend((0..4).map(|n| Put(0x100 + 16 * n, 16)));
        steps.extend((0..4).map(|n| Put(0x10e + 16 * n, 2)));
        steps.extend((0..4).map(|n| Load(0x100 + 16 * n, 16)));
    }
    let mut pairing = Pairing::new(REACH);
    for (number, step) in (0..).zip(&steps) {
        pairing.instruction(number % 12, Kind::Plain);
        match *step {
            Load(address, bytes) => pairing.load(address, bytes, true),
            Put(address, bytes) => pairing.store(address, bytes, true),
            Other(_) => unreachable!("there is none above"),
        }
    }
    let pairs = pairing.into_pairs();
    let shown: Vec<_> = pairs
        .iter()
        .map(|(pair, count)| {
            let stores: Vec<_> = pair.stores.iter().map(|it| (it.site, it.bytes)).collect();
            (pair.load.site, stores, *count)
        })
        .collect();
    let expected: Vec<_> = (0..4).map(|n| (8 + n, vec![(4 + n, 2), (n, 16)], 25)).collect();
    assert_eq!(shown, expected);
}

#[test]
fn a_store_beyond_the_window_has_reached_the_cache() {
    let reach = Reach { stores: 3, instructions: 10 };
    let apart = |between: &[Step]| {
        let steps = [&[Put(0x100, 2)], between, &[Load(0x100, 8)]].concat();
        blocked(reach, &steps).len()
    };
    let elsewhere = Put(0x900, 8);
    assert_eq!(apart(&[elsewhere; 2]), 1, "the third youngest store");
    assert_eq!(apart(&[elsewhere; 3]), 0, "the fourth");
    assert_eq!(apart(&[Other(Kind::Plain); 9]), 1, "ten instructions later");
    assert_eq!(apart(&[Other(Kind::Plain); 10]), 0, "eleven");
}

#[test]
fn fences_and_locks_empty_the_buffer() {
    let steps = [Put(0x100, 2), Other(Kind::Drains), Load(0x100, 8)];
    assert_eq!(blocked(REACH, &steps), []);
    let mut pairing = Pairing::new(REACH);
    pairing.instruction(0, Kind::Plain);
    pairing.store(0x100, 2, true);
    pairing.instruction(1, Kind::Drains);
    pairing.load(0x100, 8, true);
    pairing.store(0x100, 2, true);
    pairing.instruction(2, Kind::Plain);
    pairing.load(0x100, 8, true);
    assert!(pairing.into_pairs().is_empty(), "a lock neither waits nor is waited for");
}

#[test]
fn a_repeated_string_instruction_is_one_store() {
    for backwards in [false, true] {
        let mut pairing = Pairing::new(REACH);
        for n in 0..200 {
            pairing.instruction(7, Kind::Repeats);
            pairing.load(0x900, 1, true);
            pairing.store(0x100 + if backwards { 199 - n } else { n }, 1, true);
        }
        pairing.instruction(8, Kind::Plain);
        pairing.load(0x120, 16, true);
        assert_eq!(pairing.pairs.len(), 0);
        pairing.load(0x100 + 192, 16, true);
        let pairs = pairing.into_pairs();
        assert_eq!(pairs.len(), 1, "over its end it is blocked");
        assert_eq!(pairs[0].0.stores, [Toucher { site: 7, bytes: 200 }]);
    }
}

#[test]
fn what_a_mask_decides_is_not_certain() {
    for (store, load) in [(true, false), (false, true), (false, false)] {
        let mut pairing = Pairing::new(REACH);
        pairing.instruction(0, Kind::Plain);
        pairing.store(0x100, 16, store);
        pairing.instruction(1, Kind::Plain);
        pairing.load(0x100, 64, load);
        pairing.load(0x100, 16, load);
        let pairs = pairing.into_pairs();
        assert_eq!(pairs.len(), 1, "within what the mask may leave it does not meet a narrower");
        assert!(!pairs[0].0.certain && pairs[0].0.load.bytes == 64);
    }
}

#[test]
fn parts_of_the_program_are_listed_apart_and_know_no_stores_of_before() {
    let mut pairing = Pairing::new(REACH);
    let stall = |pairing: &mut Pairing| {
        pairing.instruction(0, Kind::Plain);
        pairing.store(0x100, 2, true);
        pairing.instruction(1, Kind::Plain);
        pairing.load(0x100, 8, true);
    };
    pairing.enter(1);
    stall(&mut pairing);
    pairing.enter(2);
    pairing.instruction(2, Kind::Plain);
    pairing.load(0x100, 8, true);
    stall(&mut pairing);
    stall(&mut pairing);
    let found: Vec<_> =
        pairing.into_pairs().into_iter().map(|(pair, count)| (pair.part, count)).collect();
    assert_eq!(found, [(2, 2), (1, 1)]);
}

#[test]
fn any_addresses_and_sizes_are_taken() {
    let ends = [0, 1, u64::MAX - 1, u64::MAX];
    let sizes = [0, 1, 63, 64, 65, u32::MAX];
    let mut pairing = Pairing::new(REACH);
    for (address, bytes) in ends.into_iter().flat_map(|end| sizes.map(|size| (end, size))) {
        for kind in [Kind::Plain, Kind::Repeats, Kind::Drains] {
            pairing.instruction(1, kind);
            pairing.load(address, bytes, true);
            pairing.store(address, bytes, true);
        }
    }
    let totals = pairing.totals();
    assert_eq!((totals.instructions, totals.loads, totals.stores), (72, 72, 72));
    assert_eq!(totals.unjudged, 4 * 3, "none, 65 and all bytes");
}

/// Finds the giver of each byte of the load, byte by byte.
fn is_blocked(steps: &[Step], reach: Reach, number: usize) -> bool {
    let Load(address, bytes) = steps[number] else { return false };
    let owner = |byte: u64| {
        let before = steps[..number].iter().enumerate().rev();
        let stores = before.filter_map(|(at, step)| match *step {
            Put(start, length) => Some((at, start, length)),
            _ => None,
        });
        let near =
            stores.take(reach.stores).filter(|(at, ..)| (number - at) as u64 <= reach.instructions);
        near.into_iter()
            .find(|(_, start, length)| (*start..start + u64::from(*length)).contains(&byte))
            .map(|(at, ..)| at)
    };
    let owners: Vec<_> = (address..address + u64::from(bytes)).map(owner).collect();
    owners.iter().any(Option::is_some) && owners.iter().any(|owner| *owner != owners[0])
}

proptest! {
    #[test]
    fn noise_is_judged_as_byte_by_byte(
        steps in prop::collection::vec((any::<bool>(), 0_u64..96, 0_u32..7), 0..80),
        stores in 1_usize..12,
        instructions in 1_u64..40,
    ) {
        let steps: Vec<_> = steps
            .into_iter()
            .map(|(load, at, log)| if load { Load(at, 1 << log) } else { Put(at, 1 << log) })
            .collect();
        let reach = Reach { stores, instructions };
        let expected: Vec<_> = (0..steps.len())
            .filter(|number| is_blocked(&steps, reach, *number))
            .map(|number| number as u64)
            .collect();
        let found: Vec<_> = blocked(reach, &steps).into_iter().map(|(load, _)| load).collect();
        prop_assert_eq!(found, expected);
    }
}
