// SPDX-License-Identifier: MIT OR Apache-2.0
//! Part paths: instructions a packet of every path, the engine's among them, in a stock kernel.
//!
//! The guest runs the server's own code, member by member of the list of paths, on an emulated
//! machine whose clock counts instructions: the figures are equal on every machine, for every
//! member under the same kernel. The count includes the program and the kernel. A cache miss costs
//! nothing, and a string instruction counts about one for each byte that it copies. So there are
//! two models of processor: one on which the kernel copies by string instructions, and one without
//! fast strings, on which it copies by moves.
//!
//! Sources: Halvorsen, Dalseng and Griwodz, tables 1-A to 1-C and section 4; guest/src/paths.rs.
//! Does not measure seconds; `pagewire lab paths` does, on the machine's own kernel.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Duration;

use super::boot::{Guest, Ran, Unobserved, boot};
use super::console::Outcome;
use super::qemu::{Machine, Qemu, engine, into_modules};
use super::{KernelLab, paper, uml};
use measure::Error;
use measure::results::{Results, Row};
use measure::statistics::Figure;

pub(super) fn measure(lab: &KernelLab<'_>, results: &mut Results) -> Result<(), Error> {
    let qemu = Qemu::ready(lab)?;
    let engine = engine(lab, "debian")?;
    let modules = [into_modules(&engine, "pagewire_rtp"), into_modules(&qemu.dummy, "dummy")];
    let root = uml::root(lab, ("paths", false), &modules)?;
    results.notes.push(format!(
        "paths: Debian's {} under QEMU, one instruction a nanosecond; datagrams of 1328 bytes to a \
         dummy device, downloads over loopback with both ends",
        qemu.version
    ));
    let members = format!("members={}", QUICK_MEMBERS.join(","));
    let words: &[&str] =
        if lab.options.quick { &["paths", QUICK_PACKETS, &members] } else { &["paths"] };
    lab.step("paths: instructions, on two models of processor");
    // Both run at once: the counts do not depend on other load.
    let counted = std::thread::scope(|scope| {
        let each = PROCESSORS.map(|(processor, name)| {
            let command = qemu.command(&root, (Machine { processor, counts: true }, words), LIMIT);
            scope.spawn(move || (name, counted(lab, name, command)))
        });
        each.map(|guest| guest.join().expect("it does not panic"))
    });
    for (index, (name, guest)) in counted.into_iter().enumerate() {
        let guest = guest?;
        if index == 0 {
            let skipped = guest.checks.iter().filter(|c| c.outcome == Outcome::Skipped);
            results.notes.extend(skipped.map(|skip| format!("paths: not there: {}", skip.what)));
        }
        add(name, &guest.ran, results);
        if let Ok(baseline) = lab.checkout.file(BASELINE) {
            let text = fs::read_to_string(baseline).map_err(Error::host(BASELINE))?;
            results.notes.extend(
                changed(&text, index, &guest.ran)
                    .map(|changed| format!("paths: {name}: beside {BASELINE}: {changed}")),
            );
        }
    }
    Ok(())
}

fn counted(lab: &KernelLab<'_>, name: &str, mut command: Command) -> Result<Guest, Error> {
    let mut guest = Guest::default();
    let what = format!("paths under QEMU, {name}");
    boot(&what, &mut command, LIMIT + GRACE, (lab, &mut Unobserved), &mut guest)?;
    Ok(guest)
}

/// Names the members that differ from the baseline, in column `column`; `None` without a member in
/// both.
fn changed(baseline: &str, column: usize, ran: &[Ran]) -> Option<String> {
    let mut known: BTreeMap<&str, f64> = BTreeMap::new();
    for line in baseline.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let (name, figure) = (words.next(), words.nth(column));
        if let (Some(name), Some(Ok(figure))) = (name, figure.map(str::parse)) {
            known.insert(name, figure);
        }
    }
    let shares = ran.iter().filter_map(|ran| {
        let was = known.get(ran.done.name.as_str()).filter(|was| **was > 0.0)?;
        Some((&ran.done.name, each(ran)? / was - 1.0))
    });
    let shares: Vec<(&String, f64)> = shares.collect();
    let is_other = |(_, share): &&(&String, f64)| share.abs() > TOLERANCE;
    let others: Vec<String> = shares
        .iter()
        .filter(is_other)
        .map(|(name, share)| format!("{name} {:+.1} %", share * 100.0))
        .collect();
    let all = shares.len();
    (all > 0).then(|| match &others[..] {
        [] => format!("all {all} members within {:.0} %", TOLERANCE * 100.0),
        others => format!("{} of {all} members: {}", others.len(), others.join(", ")),
    })
}

/// Returns instructions a packet; `None` when no packet was sent.
fn each(ran: &Ran) -> Option<f64> {
    let packets = ran.done.number("packets");
    (packets > 0).then(|| ran.done.number("wall_ns") as f64 / packets as f64)
}

/// Adds the counts of one model of processor, and their ratios to the references.
fn add(processor: &str, ran: &[Ran], results: &mut Results) {
    let place = |row: Row, path: &Path<'_>| {
        let row = row.with(PROCESSOR, processor).with("transport", path.transport);
        match path.step {
            Some(step) => row.with("step", step),
            None => row,
        }
    };
    let counted: Vec<(Path<'_>, f64)> =
        ran.iter().filter_map(|ran| Some((Path::of(&ran.done.name), each(ran)?))).collect();
    for (path, each) in &counted {
        let figure = Figure::of(vec![*each]);
        results.rows.push(place(Row::new("kernel", path.name, METRIC, UNIT, figure), path));
    }
    for reference in REFERENCES {
        let is_it =
            |(path, _): &&(Path<'_>, f64)| (path.transport, path.name) == ("rtp", reference);
        let Some((_, of)) = counted.iter().find(is_it) else { continue };
        // A separate table from the counts, with room for published ratios.
        let metric = format!("{METRIC}, relative to {reference}");
        for (path, each) in counted.iter().filter(|(path, _)| path.transport != "tcp") {
            let figure = Figure::derived(each / of);
            results.rows.push(place(Row::new("kernel", path.name, &metric, "", figure), path));
        }
        paper::paths((&metric, reference), &[(PROCESSOR, processor)], results);
    }
}

/// A member parsed from its name in lines: `rtp/mmap_gso`, `tcp/sendfile/1M`.
struct Path<'a> {
    transport: &'a str,
    name: &'a str,
    /// Bytes of a step of a download, where they differ from a packet's.
    step: Option<&'a str>,
}

impl<'a> Path<'a> {
    fn of(words: &'a str) -> Path<'a> {
        let (transport, rest) = words.split_once('/').unwrap_or(("rtp", words));
        match rest.split_once('/') {
            Some((name, step)) => Path { transport, name, step: Some(step) },
            None => Path { transport, name: rest, step: None },
        }
    }
}

/// Baseline, made and compared by kernel/qemu/instructions.sh: member, and a column for each
/// processor.
const BASELINE: &str = "kernel/qemu/baseline.txt";
/// Tolerance for a baseline with more packets than a quick run's, and for other compilers.
const TOLERANCE: f64 = 0.01;
const METRIC: &str = "instructions";
const UNIT: &str = "per packet";
const PROCESSOR: &str = "processor";
/// QEMU's names of the processors, and their descriptions.
const PROCESSORS: [(&str, &str); 2] =
    [("max", "with fast strings"), ("max,-erms,-fsrm", "without fast strings")];
/// References of the data-paths paper and of the bars.
const REFERENCES: [&str; 4] = ["rtp_sendfile", "mmap_writev", "read_writev", "read_send_rtp"];
/// Members of the papers and of the bars.
const QUICK_MEMBERS: [&str; 15] = [
    "rtp/read_writev",
    "rtp/read_send_rtp",
    "rtp/mmap_writev",
    "rtp/mmap_gso",
    "rtp/rtp_sendfile",
    "rtp/wire_sendfile",
    "rtp/mmap_rtpmsend",
    "rtp/mmap_send_msend",
    "rtp/rtpsendfile",
    "rtp/krtpsendfile",
    "rtp/krtpsendfile_gso",
    "rtp/krtpmsend",
    "udp/msend",
    "udp/kmsend",
    "udp/ksendfile",
];
const QUICK_PACKETS: &str = "packets=2048";
/// All members together take some 40 s on a slow core.
const LIMIT: Duration = Duration::from_secs(600);
const GRACE: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::super::console;
    use super::*;
    use measure::warning::Warning;

    fn ran(name: &str, packets: u64, wall_ns: u64) -> Ran {
        let line = format!("guest: end-of {name} bytes=1 packets={packets} wall_ns={wall_ns}");
        let Ok(console::Line::Done(done)) = console::read(&line) else { panic!("{line}") };
        Ran { done, processor: Duration::ZERO, cost: Default::default() }
    }

    #[test]
    fn members_that_changed_are_named_beside_the_baseline() {
        let baseline = "# member max max,-erms,-fsrm\nrtp/a 100.0 200.0\nrtp/b 50 60\nrtp/c x y\n";
        let all = [ran("rtp/a", 10, 1005), ran("rtp/b", 10, 510), ran("rtp/new", 10, 10)];
        let of = |column, all: &[Ran]| changed(baseline, column, all);
        assert_eq!(of(0, &all).unwrap(), "1 of 2 members: rtp/b +2.0 %");
        assert_eq!(of(0, &all[..1]).unwrap(), "all 1 members within 1 %");
        assert_eq!(of(1, &all[..1]).unwrap(), "1 of 1 members: rtp/a -49.8 %");
        assert_eq!(of(0, &all[2..]), None);
    }

    #[test]
    fn instructions_are_of_a_packet_with_published_ratios_beside() {
        let mut results = Results::new("kernel", []);
        let all = [
            ran("rtp/rtp_sendfile", 1000, 10_000_000),
            ran("rtp/mmap_writev", 1000, 6_000_000),
            ran("rtp/krtpsendfile", 1000, 4_800_000),
            ran("udp/sendfile", 1000, 5_000_000),
            ran("tcp/sendfile/1M", 1000, 100_000),
            ran("rtp/nothing_sent", 0, 100_000),
        ];
        add("with fast strings", &all, &mut results);
        let median = |member: &str, metric: &str| {
            results.figure(member, metric, &[(PROCESSOR, "with fast strings")]).map(|f| f.median)
        };
        assert_eq!(median("krtpsendfile", METRIC), Some(4800.0));
        assert_eq!(median("krtpsendfile", "instructions, relative to rtp_sendfile"), Some(0.48));
        assert_eq!(median("krtpsendfile", "instructions, relative to mmap_writev"), Some(0.8));
        assert_eq!(
            median("krtpsendfile", "instructions, relative to read_writev"),
            None,
            "it was not counted"
        );
        assert_eq!(median("nothing_sent", METRIC), None);
        let step = results.figure("sendfile", METRIC, &[("transport", "tcp"), ("step", "1M")]);
        assert_eq!(step.map(|figure| figure.median), Some(100.0));
        let published = |member: &str| {
            let is = |row: &&Row| row.published.is_some() && row.member == member;
            results.rows.iter().find(is).map(|row| row.figure.median)
        };
        assert_eq!(published("krtpsendfile"), Some(0.73));
        assert_eq!(published("sendfile"), Some(1.0 / 1.21));
        assert!(Warning::of_rows(&results.rows).is_empty(), "counts are no samples");
    }
}
