// SPDX-License-Identifier: MIT OR Apache-2.0
//! The boxes of segments that are requested repeatedly, and the file ranges behind them.
//!
//! The boxes of a segment are made of its samples. Viewers of one film request the same segments:
//! they are made once, and each answer has the same bytes. The least used are evicted first when
//! all together exceed [`BYTES_MAX`]; those of a plan that was dropped are no longer requested, and
//! are evicted with them.
//!
//! Costs a look-up, where making the boxes (10 KB for 6 s of two tracks) takes 25 µs.
//!
//! Does not keep media.

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::address::WebItem;
use super::item_parts::ItemParts;
use super::web_asset::WebAsset;
use super::weighted_cache::weighted_cache;

/// Bytes of all boxes, and their expected number.
const BYTES_MAX: u64 = 32 << 20;
const PARTS_EXPECTED: usize = 4096;

/// Parts of segments, by the number of the plan and the item.
pub(super) struct MadeParts(Cache<(u64, WebItem), ItemParts, ByParts>);

#[derive(Clone)]
struct ByParts;

impl Weighter<(u64, WebItem), ItemParts> for ByParts {
    fn weight(&self, key: &(u64, WebItem), parts: &ItemParts) -> u64 {
        let ranges = size_of_val(&parts.ranges[..]);
        (size_of_val(key) + size_of_val(parts) + parts.head.len() + ranges) as u64
    }
}

impl MadeParts {
    pub(super) fn new() -> MadeParts {
        MadeParts(weighted_cache(PARTS_EXPECTED, BYTES_MAX, ByParts))
    }

    /// Returns the bytes and file ranges of an item of a plan, as [`WebAsset::parts`].
    pub(super) fn get(&self, asset: &WebAsset, item: &WebItem) -> Option<ItemParts> {
        if !matches!(item, WebItem::Segment(..) | WebItem::KeyFrame(_)) {
            return asset.parts(item).map(ItemParts::from);
        }
        let key = (asset.number, item.clone());
        if let Some(parts) = self.0.get(&key) {
            return Some(parts);
        }
        let parts = ItemParts::from(asset.parts(item)?);
        self.0.insert(key, parts.clone());
        Some(parts)
    }
}
