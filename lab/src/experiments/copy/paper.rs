// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statements of the simd-copy paper about its figure, compared with the same routines here.
//!
//! The figure is a drawing. The paper's text makes three statements about it, and contains two
//! times of a kernel, one with each routine. The paper's routine ends with the string instruction
//! that it is compared with, so the reference here is the member of that instruction. The paper's
//! processor was of 2011.
//!
//! Sources: Saito and Oikawa, section 6 (figure 6) and section 7 (table 4).
//! Does not read values off the drawing.

use super::plan::PUBLISHED;
use crate::published;
use measure::memory::TIMES;
use measure::results::{Results, Row};
use measure::statistics::Figure;

/// Adds the measured ratio, the published ratio, and the paper's statements.
pub(super) fn add(results: &mut Results) {
    let at = |member: &str, bytes: usize| {
        let bytes = bytes.to_string();
        let place = [("memory", "hot"), ("placement", "aligned"), ("bytes", &bytes)];
        results.figure(member, "throughput", &place).cloned()
    };
    let sizes = (STEP..=BYTES_MAX / STEP * STEP).step_by(STEP);
    let measured: Vec<(usize, Figure, Figure)> = sizes
        .filter_map(|bytes| Some((bytes, at(PUBLISHED, bytes)?, at(KERNEL, bytes)?)))
        .filter_map(|(bytes, published, kernel)| {
            Some((bytes, published.relative_to(&kernel)?, published))
        })
        .collect();
    if measured.is_empty() {
        return;
    }
    let notes = notes(&measured);
    let metric = format!("relative to {KERNEL}");
    for (bytes, ratio, _) in &measured {
        let row = Row::new("copy", PUBLISHED, &metric, TIMES, ratio.clone());
        let row = row.with("memory", "hot").with("placement", "aligned").with("bytes", bytes);
        results.rows.push(row);
    }
    let stock_s = published::memcpy_seconds("stock");
    let published_s = published::memcpy_seconds("sse_published");
    let published = Figure::published(stock_s / published_s);
    let row = Row::new("copy", PUBLISHED, &metric, TIMES, published);
    let source = format!(
        "the simd-copy paper, table 4: {stock_s} s against {published_s} s in the \
         copies of a whole kernel"
    );
    results.rows.push(Row { published: Some(source), ..row });
    results.notes.extend(notes);
}

/// Formats the three statements, each with the number of sizes for which it is true here.
fn notes(measured: &[(usize, Figure, Figure)]) -> Vec<String> {
    let count = |sizes: &dyn Fn(usize) -> bool, is_true: &dyn Fn(f64) -> bool| {
        let of: Vec<_> = measured.iter().filter(|(bytes, ..)| sizes(*bytes)).collect();
        let those = of.iter().filter(|(_, ratio, _)| is_true(ratio.median)).count();
        format!("{those} of {} sizes", of.len())
    };
    let slower = count(&|bytes| bytes < 512, &|ratio| ratio < 1.0);
    let faster = count(&|bytes| bytes >= 512, &|ratio| ratio > 1.0);
    let peaks: Vec<bool> = measured
        .windows(3)
        .filter(|three| three[1].0.is_multiple_of(512))
        .map(|three| {
            let [before, at, after] = [0, 1, 2].map(|index| three[index].2.median);
            at > before && at > after
        })
        .collect();
    let found = peaks.iter().filter(|peak| **peak).count();
    vec![format!(
        "the simd-copy paper on {PUBLISHED} against the string instruction ({KERNEL}): slower \
         below 512 bytes (here: {slower}), faster from there on (here: {faster}), faster at \
         multiples of 512 than beside them (here: {found} of {})",
        peaks.len()
    )]
}

/// String instruction that stands for the kernel's copy.
const KERNEL: &str = "rep_movsb";
const STEP: usize = 64;
const BYTES_MAX: usize = 2048;
