// SPDX-License-Identifier: MIT OR Apache-2.0
//! Part fpu: the cost of vector registers in a native kernel, and the size from which a vector copy
//! pays.
//!
//! In User Mode Linux the registers are the kernel's own; in a native kernel they hold the state of
//! a program, and their use requires a section between `kernel_fpu_begin()` and `kernel_fpu_end()`.
//! A module measures sections and copies in Debian's kernel, counted in instructions. Saving and
//! loading registers is one instruction each at any duration, so a program times those, and copies,
//! on this machine's own processor.
//!
//! Sources: kernel/fpu/README.md; arch/x86/kernel/fpu/core.c in the kernel's tree.
//! Does not measure lower frequencies caused by wide registers.

use std::process::Command;
use std::time::Duration;

use super::boot::{Guest, Unobserved, boot};
use super::console::{Done, vector};
use super::program::Program;
use super::qemu::{Machine, Qemu, into_modules, module};
use super::{KernelLab, uml};
use measure::Error;
use measure::results::{Results, Row};
use measure::statistics::Figure;

pub(super) fn measure(lab: &KernelLab<'_>, results: &mut Results) -> Result<(), Error> {
    let qemu = Qemu::ready(lab)?;
    let mut build = Command::new(lab.checkout.file("kernel/fpu/build.sh")?);
    let module = into_modules(&module(lab, &mut build)?, "pagewire_fpu");
    let root = uml::root(lab, ("fpu", false), &[module])?;
    lab.step("fpu: sections and copies by instructions");
    let machine = Machine { processor: "max", counts: true };
    let mut command = qemu.command(&root, (machine, &["fpu"]), LIMIT);
    let mut guest = Guest::default();
    let what = "vector registers under QEMU";
    boot(what, &mut command, LIMIT + GRACE, (lab, &mut Unobserved), &mut guest)?;
    if guest.vectors.is_empty() {
        let found = "the guest measured none; is it of this checkout?".to_owned();
        return Err(Error::Host { what: what.to_owned(), found });
    }
    add(&guest.vectors, COUNTED, results);
    let native = native(lab)?;
    add(&native, TIMED, results);
    Ok(())
}

/// Runs a program of this machine; returns its figures of the processor.
fn native(lab: &KernelLab<'_>) -> Result<Vec<Done>, Error> {
    let source = lab.checkout.file("kernel/fpu/native.c")?;
    lab.step("fpu: registers and copies by time, on this processor");
    let program = lab.folder("fpu-native");
    let mut compiler = Command::new("cc");
    compiler.arg("-O2").arg("-o").arg(&program).arg(&source);
    Program::start("cc kernel/fpu/native.c", &mut compiler, LIMIT)?.finish(lab)?;
    let mut lines = Vec::new();
    let mut timed = Program::start("kernel/fpu/native.c", &mut Command::new(&program), LIMIT)?;
    while let Some(line) = timed.line(lab)? {
        lines.extend(vector(&line));
    }
    timed.finish(lab)?;
    Ok(lines)
}

/// Method of the figures: place, unit, and the names of a copy without vectors there.
struct Way {
    place: &'static str,
    unit: &'static str,
    plain: &'static [&'static str],
}

/// Adds the rows of sections and copies, and the size from which vectors win.
fn add(lines: &[Done], way: Way, results: &mut Results) {
    let row = |member: &str, metric: &str, figure: Figure| {
        Row::new("kernel", member, metric, way.unit, figure).with("by", way.place)
    };
    for done in lines {
        // Values are thousandths of a nanosecond, and an instruction counts as a nanosecond.
        let value = Figure::derived(done.number("ps") as f64 / 1e3);
        if let Some(by) = done.name.strip_prefix("copy by=") {
            results.rows.push(row(by, COPY, value).with("bytes", done.number("bytes")));
        } else if let Some(cost) = section(&done.name) {
            results.rows.push(row(cost, SECTION, value));
        }
    }
    let usable = lines.iter().filter(|done| done.name.starts_with("usable in="));
    let usable: Vec<String> = usable
        .map(|done| {
            let place = done.name.trim_start_matches("usable in=").replace('_', " ");
            let answer = if done.number("answer") > 0 { "yes" } else { "no" };
            format!("{place} {answer}")
        })
        .collect();
    if !usable.is_empty() {
        results.notes.push(format!("fpu: irq_fpu_usable() says: {}", usable.join(", ")));
    }
    let live = live(lines);
    for plain in way.plain {
        let vectors = ["sse", "avx"].into_iter().filter(|by| !copies(lines, by).is_empty());
        for by in vectors {
            for (state, more) in [("saved before", 0), ("a program's, in use", live)] {
                let figure = |from: u64| Figure::derived(from as f64);
                let from = from(&copies(lines, by), &copies(lines, plain), more);
                let Some(from) = from else {
                    results.notes.push(format!(
                        "fpu: {by} never beats {plain}, registers {state} ({})",
                        way.place
                    ));
                    continue;
                };
                let metric = format!("worth it from, against {plain}");
                let row = Row::new("kernel", by, &metric, "bytes", figure(from));
                results.rows.push(row.with("by", way.place).with("registers", state));
            }
        }
    }
}

/// Describes the subject of a line that is not a copy.
fn section(name: &str) -> Option<&'static str> {
    match name {
        "section of=program" => Some("a section, in a system call"),
        "section of=kthread" => Some("a section, in a kernel thread"),
        "crossing" => Some("a read(2) of a small file"),
        "crossing_section" => Some("a read(2) with a section in it"),
        "pair state=sse" => Some("saving and loading, SSE"),
        "pair state=avx" => Some("saving and loading, AVX"),
        "pair state=avx512" => Some("saving and loading, AVX-512"),
        _ => None,
    }
}

/// Returns the extra cost of a read(2)'s first section over the section in a copy's line, in
/// thousandths.
fn live(lines: &[Done]) -> u64 {
    let of = |name: &str| lines.iter().find(|done| done.name == name).map(|done| done.number("ps"));
    let counted = || {
        let more = of("crossing_section")?.saturating_sub(of("crossing")?);
        Some(more.saturating_sub(of("section of=program")?))
    };
    counted().or_else(|| of("pair state=avx")).unwrap_or(0)
}

/// Returns bytes and thousandths, in the order of sizes.
fn copies(lines: &[Done], by: &str) -> Vec<(u64, u64)> {
    let name = format!("copy by={by}");
    let of = lines.iter().filter(|done| done.name == name);
    let mut sizes: Vec<_> = of.map(|done| (done.number("bytes"), done.number("ps"))).collect();
    sizes.sort_unstable();
    sizes
}

/// Returns the least size from which on all larger ones are 3 % faster.
fn from(vector: &[(u64, u64)], plain: &[(u64, u64)], more: u64) -> Option<u64> {
    let mut best = None;
    for ((bytes, ps), (other, plain)) in vector.iter().zip(plain).rev() {
        if bytes != other || (ps + more) * 100 > plain * 97 {
            break;
        }
        best = Some(*bytes);
    }
    best
}

const COUNTED: Way = Way { place: "instructions", unit: "instructions", plain: &["memcpy"] };
const TIMED: Way = Way { place: "time", unit: "ns", plain: &["movq", "movsb"] };
const COPY: &str = "a copy in the kernel";
const SECTION: &str = "what using vector registers costs";
const LIMIT: Duration = Duration::from_secs(300);
const GRACE: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    fn done(lines: &[&str]) -> Vec<Done> {
        lines.iter().map(|line| vector(line).unwrap_or_else(|| panic!("{line}"))).collect()
    }

    #[test]
    fn vectors_win_from_the_size_from_which_all_larger_ones_do() {
        let lines = done(&[
            "usable in=softirq answer=1",
            "usable in=section answer=0",
            "section of=program ps=54000",
            "crossing ps=2000000",
            "crossing_section ps=2100000",
            "copy by=memcpy bytes=64 ps=58000",
            "copy by=memcpy bytes=256 ps=130000",
            "copy by=memcpy bytes=4096 ps=1570000",
            "copy by=sse bytes=64 ps=40000",
            "copy by=sse bytes=256 ps=128000",
            "copy by=sse bytes=4096 ps=834000",
        ]);
        assert_eq!(live(&lines), 46_000);
        let mut results = Results::new("kernel", []);
        add(&lines, COUNTED, &mut results);
        let of = |member: &str, metric: &str, parameters: &[(&str, &str)]| {
            results.figure(member, metric, parameters).map(|figure| figure.median)
        };
        let worth = "worth it from, against memcpy";
        // 64 bytes win, but 256 do not by 3 %.
        assert_eq!(of("sse", worth, &[("registers", "saved before")]), Some(4096.0));
        assert_eq!(of("sse", worth, &[("registers", "a program's, in use")]), Some(4096.0));
        assert_eq!(of("sse", COPY, &[("bytes", "64")]), Some(40.0));
        assert_eq!(of("a section, in a system call", SECTION, &[]), Some(54.0));
        let note = "fpu: irq_fpu_usable() says: softirq yes, section no";
        assert_eq!(results.notes, [note]);
        assert!(measure::Warning::of_rows(&results.rows).is_empty());
    }

    #[test]
    fn a_result_that_never_wins_is_noted() {
        let lines = done(&["copy by=movq bytes=64 ps=100", "copy by=avx bytes=64 ps=99"]);
        let mut results = Results::new("kernel", []);
        add(&lines, TIMED, &mut results);
        assert_eq!(results.rows.len(), 2);
        let note = "fpu: avx never beats movq, registers saved before (time)";
        assert_eq!(results.notes[0], note);
        assert_eq!(from(&[(64, 97)], &[(64, 100)], 0), Some(64));
        assert_eq!(from(&[(64, 97)], &[(64, 100)], 1), None);
        assert_eq!(from(&[(64, 1)], &[(128, 100)], 0), None, "sizes that do not match");
    }
}
