// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes caches limited by the weight of their values.
//!
//! Does not weigh: each cache has a weigher of its own.

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};

/// A cache of at most this weight. It is one piece: a value may weigh as much as all of it.
pub(super) fn weighted_cache<K, V, W>(
    expected: usize,
    weight_max: u64,
    weighter: W,
) -> Cache<K, V, W>
where
    K: Eq + std::hash::Hash,
    V: Clone,
    W: Weighter<K, V> + Clone,
{
    weighted_cache_with(expected, weight_max, weighter, DefaultLifecycle::default())
}

/// Does the same, with a rule for values that stay regardless of their weight.
pub(super) fn weighted_cache_with<K, V, W, L>(
    expected: usize,
    weight_max: u64,
    weighter: W,
    lifecycle: L,
) -> Cache<K, V, W, DefaultHashBuilder, L>
where
    K: Eq + std::hash::Hash,
    V: Clone,
    W: Weighter<K, V> + Clone,
    L: Lifecycle<K, V> + Clone,
{
    let options = OptionsBuilder::new()
        .shards(1)
        .estimated_items_capacity(expected)
        .weight_capacity(weight_max)
        .build()
        .expect("both capacities are given");
    Cache::with_options(options, weighter, DefaultHashBuilder::default(), lifecycle)
}
