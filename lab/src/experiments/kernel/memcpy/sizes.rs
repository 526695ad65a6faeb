// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who copies how many bytes: the kernel's histogram of its own copies, by caller. Sizes are
//! counted by powers of two: those from 4096 are 4096 to 8191 bytes.
//!
//! The study asks for it in its section 8.2: a routine can be fitted to the sizes that a caller
//! copies only if they are few. The histogram counts every call and so has a boot of its own,
//! whose times are no figures.
//!
//! Sources: Saito and Oikawa, section 8.2; kernel/memcpy for the counting.
//! Does not do: copies that the compiler wrote out where they are called.

use std::collections::BTreeMap;

use super::Lab;
use crate::error::Error;
use crate::experiments::kernel::Course;
use crate::experiments::kernel::boot::Unobserved;
use crate::experiments::kernel::said::Copies;
use crate::results::{Results, Row};
use crate::statistics::Figure;

/// Adds the histogram.
pub(super) fn measure(course: &Course<'_>, lab: &Lab, results: &mut Results) -> Result<(), Error> {
    course.step("memcpy: who copies how many bytes");
    let words: &[&str] = if course.options.quick { &QUICK_WORDS } else { &WORDS };
    let what = "counting copies in User Mode Linux";
    let guest = lab.boot(course, what, (&[], words), &mut Unobserved)?;
    results.notes.extend(locality(&guest.copies));
    results.rows.extend(rows(&guest.copies));
    Ok(())
}

/// The callers with the most copies, each with its sizes; the others are details.
fn rows(copies: &[Copies]) -> Vec<Row> {
    let mut callers: BTreeMap<&str, (u64, Vec<&Copies>)> = BTreeMap::new();
    for of in copies {
        let (count, sizes) = callers.entry(site(&of.caller)).or_default();
        *count = count.saturating_add(of.count);
        sizes.push(of);
    }
    let mut callers: Vec<_> = callers.into_iter().collect();
    callers.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    let mut rows = Vec::new();
    for (rank, (caller, (_, sizes))) in callers.into_iter().enumerate() {
        for of in sizes {
            let figure = Figure::of(vec![of.count as f64]);
            let row = Row::new("kernel", caller, "copies", "copies", figure);
            let row = row.with("bytes from", &of.bucket);
            rows.push(if rank < CALLERS_SHOWN { row } else { row.as_detail() });
        }
    }
    rows
}

/// The place of a call without the size of its function: `function+0x2a/0x40`.
fn site(caller: &str) -> &str {
    caller.rsplit_once('/').map_or(caller, |(site, _)| site)
}

/// How far each caller keeps to one size: what the study calls locality.
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
/// Little of each: sizes do not depend on how often.
const QUICK_WORDS: [&str; 7] =
    ["memcpy-sizes-on", "copies", "network", "mix", "calls=200", "bytes=16M", "memcpy-sizes"];
const CALLERS_SHOWN: usize = 12;

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
        let shown: Vec<_> = found
            .iter()
            .map(|row| (row.member.as_str(), row.parameters["bytes from"].as_str()))
            .collect();
        assert_eq!(shown, [("b", "4096"), ("b", "64"), ("a+0x2a", "8"), ("a+0x2a", "16")]);
        assert_eq!(found[0].figure.median, 80.0);
        let note = locality(&copies).unwrap();
        assert!(note.contains("2 callers; 75 % of 120 copies"), "{note}");
        assert_eq!(locality(&[]), None);
        let many: Vec<Copies> = (0..20).map(|n| of(&n.to_string(), "8", n)).collect();
        assert_eq!(rows(&many).iter().filter(|row| row.detail).count(), 20 - CALLERS_SHOWN);
    }
}
