// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order of each cycle of a shuffled playlist, from the channel's name and the number of the
//! cycle.
//!
//! Every server computes the same order, in every release: the generator and the hash are fixed
//! here and golden values guard them. An entry does not repeat over the border of two cycles: where
//! the first of a cycle is the last of the cycle before, it changes places with another entry, not
//! the last one, so that the cycle after needs no knowledge of the exchange. Two entries keep one
//! order for ever, which is the only one without a repeat. A file that the playlist names twice may
//! follow itself within a cycle.
//!
//! Cost: two passes over the entries per cycle.
//!
//! Sources: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (2014), §5
//! (SplitMix64); Knuth, TAOCP 2 §3.4.2 P (shuffling);
//! Lemire, "Fast Random Integer Generation in an Interval" (2019).
//! Does not resist prediction: an order of programmes is no secret.

use super::super::name_hash::name_hash;

/// Returns the indexes 0 to `count` in the order of a cycle; `is_same` compares two of them.
pub(super) fn order(
    channel: &str,
    cycle: u64,
    count: usize,
    is_same: impl Fn(u32, u32) -> bool,
) -> Vec<u32> {
    if count < 3 {
        return unbordered(channel, 0, count);
    }
    let mut order = unbordered(channel, cycle, count);
    let before = cycle.checked_sub(1).map(|before| unbordered(channel, before, count));
    if let Some(last) = before.and_then(|before| before.last().copied())
        && is_same(order[0], last)
        && let Some(other) = (1..count - 1).find(|at| !is_same(order[*at], last))
    {
        order.swap(0, other);
    }
    order
}

/// The order of a cycle without regard to the cycle before.
fn unbordered(channel: &str, cycle: u64, count: usize) -> Vec<u32> {
    let count = u32::try_from(count).expect("playlists are bounded");
    let mut generator = SplitMix64(name_hash(channel.as_bytes()) ^ SplitMix64(cycle).next());
    let mut order: Vec<u32> = (0..count).collect();
    for left in (1..order.len()).rev() {
        order.swap(left, generator.below(left as u64 + 1) as usize);
    }
    order
}

/// Generator with a state of 64 bits.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; the bias is below 2^-50 for the lengths of playlists.
    fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_index(a: u32, b: u32) -> bool {
        a == b
    }

    #[test]
    fn generator_is_that_of_its_authors() {
        // Outputs for the seed 1234567, as the reference implementation prints them.
        let mut generator = SplitMix64(1_234_567);
        assert_eq!(generator.next(), 6_457_827_717_110_365_317);
        assert_eq!(generator.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn orders_are_those_of_every_release() {
        assert_eq!(order("news", 0, 8, by_index), GOLDEN[0]);
        assert_eq!(order("news", 1, 8, by_index), GOLDEN[1]);
        assert_eq!(order("music", 1, 8, by_index), GOLDEN[2]);
    }

    #[test]
    fn each_cycle_plays_every_entry_once_and_repeats_none_over_its_border() {
        for count in 1..=12_usize {
            let mut last = None;
            for cycle in 0..500 {
                let order = order("news", cycle, count, by_index);
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert!(sorted.iter().enumerate().all(|(at, index)| at == *index as usize));
                assert!(count == 1 || last != Some(order[0]), "{count} entries, cycle {cycle}");
                last = order.last().copied();
            }
        }
    }

    #[test]
    fn border_compares_files_and_not_places_in_the_list() {
        // Entries 0, 1 and 2 are one file.
        let is_same = |a: u32, b: u32| a == b || (a < 3 && b < 3);
        for cycle in 1..500 {
            let last = *order("x", cycle - 1, 6, is_same).last().unwrap();
            assert!(!is_same(order("x", cycle, 6, is_same)[0], last), "cycle {cycle}");
        }
    }

    #[test]
    fn every_order_of_three_occurs() {
        let orders: std::collections::BTreeSet<Vec<u32>> =
            (0..200).map(|cycle| order("news", cycle, 3, by_index)).collect();
        assert_eq!(orders.len(), 6);
    }

    const GOLDEN: [[u32; 8]; 3] =
        [[4, 7, 0, 2, 3, 1, 5, 6], [0, 1, 6, 5, 3, 2, 7, 4], [5, 7, 3, 1, 4, 6, 0, 2]];
}
