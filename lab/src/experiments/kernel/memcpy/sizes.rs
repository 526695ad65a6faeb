// SPDX-License-Identifier: MIT OR Apache-2.0
//! Histogram of the kernel's own copies, by caller and size. Sizes are counted by powers of two:
//! those from 4096 are 4096 to 8191 bytes.
//!
//! The simd-copy paper requests it in its section 8.2: a routine can be fitted to the sizes that a
//! caller copies only if they are few. The histogram counts every call and so has its own boot,
//! whose times are not used.
//!
//! Sources: Saito and Oikawa, section 8.2; kernel/memcpy for the counting.
//! Does not count copies that the compiler inlined.

use std::collections::BTreeMap;

use super::UmlImage;
use crate::experiments::kernel::KernelLab;
use crate::experiments::kernel::boot::Unobserved;
use crate::experiments::kernel::console::Copies;
use measure::Error;
use measure::results::{Results, Row};
use measure::statistics::Figure;

/// Adds the histogram.
pub(super) fn measure(
    lab: &KernelLab<'_>,
    image: &UmlImage,
    results: &mut Results,
) -> Result<(), Error> {
    lab.step("memcpy: who copies how many bytes");
    let words: &[&str] = if lab.options.quick { &QUICK_WORDS } else { &WORDS };
    let what = "counting copies in User Mode Linux";
    let guest = image.boot(lab, what, (&[], words), &mut Unobserved)?;
    results.notes.extend(locality(&guest.copies));
    results.rows.extend(rows(&guest.copies));
    Ok(())
}

/// Returns the callers with the most copies, and the share of their commonest size; each count is a
/// detail.
fn rows(copies: &[Copies]) -> Vec<Row> {
    let mut callers: BTreeMap<&str, Vec<&Copies>> = BTreeMap::new();
    for of in copies {
        callers.entry(site(&of.caller)).or_default().push(of);
    }
    let sum = |sizes: &[&Copies]| sizes.iter().map(|of| of.count as f64).sum::<f64>();
    let mut callers: Vec<_> = callers.into_iter().collect();
    callers.sort_by(|(_, a), (_, b)| sum(b).total_cmp(&sum(a)));
    let row = |caller: &str, metric: &str, unit: &str, value: f64| {
        Row::new("kernel", caller, metric, unit, Figure::of(vec![value]))
    };
    let (mut counts, mut shares, mut cells) = (Vec::new(), Vec::new(), Vec::new());
    for (caller, sizes) in &callers {
        let Some(most) = sizes.iter().max_by_key(|of| of.count) else { continue };
        let all = sum(sizes);
        if counts.len() < CALLERS_SHOWN {
            counts.push(row(caller, "copies by caller", "copies", all));
            let share = Figure::derived(most.count as f64 * 100.0 / all.max(1.0));
            let share = Row::new("kernel", caller, "of the caller's commonest size", "%", share);
            shares.push(share.with("bytes from", &most.bucket));
        }
        for of in sizes {
            let cell = row(caller, COPIES, "copies", of.count as f64);
            cells.push(cell.with("bytes from", &of.bucket).as_detail());
        }
    }
    [counts, shares, cells].concat()
}

/// Returns the place of a call without the size of its function: `function+0x2a/0x40`.
fn site(caller: &str) -> &str {
    caller.rsplit_once('/').map_or(caller, |(site, _)| site)
}

/// Describes how often callers copy their commonest size; the paper calls it locality.
fn locality(copies: &[Copies]) -> Option<String> {
    let mut callers: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for of in copies {
        let (most, all) = callers.entry(&of.caller).or_default();
        *most = (*most).max(of.count);
        *all = all.saturating_add(of.count);
    }
    let all: u64 = callers.values().map(|(_, all)| all).sum();
    let usual: u64 = callers.values().map(|(most, _)| most).sum();
    (all > 0).then(|| {
        format!(
            "memcpy: {} callers; {:.0} % of {all} copies are of their caller's commonest size",
            callers.len(),
            usual as f64 * 100.0 / all as f64
        )
    })
}

const WORDS: [&str; 5] = ["memcpy-sizes-on", "copies", "network", "mix", "memcpy-sizes"];
/// Few of each: sizes do not depend on the number of repetitions.
const QUICK_WORDS: [&str; 7] =
    ["memcpy-sizes-on", "copies", "network", "mix", "calls=200", "bytes=16M", "memcpy-sizes"];
const CALLERS_SHOWN: usize = 12;
const COPIES: &str = "copies by caller and size";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_with_the_most_copies_come_first_and_locality_is_a_share() {
        let of = |caller: &str, bucket: &str, count: u64| Copies {
            caller: caller.to_owned(),
            bucket: bucket.to_owned(),
            count,
        };
        let copies = [
            of("a+0x2a/0x40", "8", 10),
            of("b", "4096", 80),
            of("b", "64", 20),
            of("a+0x2a/0x40", "16", 10),
        ];
        let found = rows(&copies);
        let figures = |metric: &str| -> Vec<(&str, f64)> {
            let those = found.iter().filter(|row| row.metric == metric);
            those.map(|row| (row.member.as_str(), row.figure.median)).collect()
        };
        assert_eq!(figures("copies by caller"), [("b", 100.0), ("a+0x2a", 20.0)]);
        assert_eq!(figures("of the caller's commonest size"), [("b", 80.0), ("a+0x2a", 50.0)]);
        assert_eq!(found.iter().filter(|row| row.metric == COPIES && row.detail).count(), 4);
        let note = locality(&copies).unwrap();
        assert!(note.contains("2 callers; 75 % of 120 copies"), "{note}");
        assert_eq!(locality(&[]), None);
        let many: Vec<Copies> = (0..20).map(|n| of(&n.to_string(), "8", n)).collect();
        let shown = rows(&many).iter().filter(|row| !row.detail).count();
        assert_eq!(shown, 2 * CALLERS_SHOWN);
    }
}
