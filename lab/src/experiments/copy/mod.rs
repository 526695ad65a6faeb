// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab copy`: the time of a copy in memory, by routine, size, placement and cache.
//!
//! The first part is the figure of the simd-copy paper: 128 to 2,048 bytes, its SSE routine against
//! the string instructions of the kernel, with the C library's copy and ours beside them. The
//! second part is cases that the figure leaves out: every alignment, sizes that no predictor
//! learns, sizes to 256 MiB, memory outside every cache, non-temporal stores, and a checksum
//! computed during the copy.
//!
//! Sources: Saito and Oikawa, "Utilization of a SIMD unit in the OS Kernel", section 6, figure 6.
//! Does not measure the paper's second part, a user-mode kernel with the routine in it.

mod arena;
mod fixed;
mod paper;
mod plan;
mod routine;
mod summary;

use std::cell::Cell;
use std::process::Command;

use crate::specimens::Specimens;

use measure::Error;
use measure::Options;
use measure::memory::{Group, Member, Turns};
use measure::results::Results;

use arena::{Arena, Order};
use plan::{Copies, Plan, Sorts};
use routine::MEMCPY;

pub(crate) fn run(options: &Options) -> Result<Results, Error> {
    let mut results = Results::new("copy", options.command.clone());
    results.complete = true;
    let specimens = Specimens::here();
    let sorts = Sorts::of(specimens.copy, options)?;
    // Source and target together use a quarter of the memory at most.
    let most = usize::try_from(results.host.memory_bytes / 8).unwrap_or(usize::MAX);
    let (plans, all) = plan::all(&sorts, options, most);
    let of = plans.iter().map(|plan| plan.bytes_max()).max().unwrap_or(0);
    results.notes.push(format!(
        "{MEMCPY} is that of {}; ours here: {:?}; every routine's answer was checked",
        c_library(),
        specimens.copy,
    ));
    if of < all {
        results.notes.push(format!("skip: copies that go over {of} bytes: too little memory"));
    }
    let arena = Arena::new(of);
    // The alignments are reduced to their summary.
    let mut aside = Results { rows: Vec::new(), ..results.clone() };
    let mut turns = Turns::new(options, plans.len(), &mut results);
    for plan in plans {
        if options.stopped() {
            break;
        }
        let into = if plan.aside { &mut aside } else { &mut results };
        match &plan.copies {
            Copies::OfOneSize(places) => measure(&mut turns, &arena, &plan, places, into)?,
            Copies::Mixed(mixed) => measure(&mut turns, &arena, &plan, mixed, into)?,
        }
    }
    turns.finish(&mut results);
    // The time is the size divided by the throughput.
    for row in &mut results.rows {
        let is_main = row.parameters.get("placement").is_none_or(|name| plan::is_main(name));
        row.detail = row.metric == "time" || !is_main;
    }
    summary::add(&aside.rows, &mut results);
    paper::add(&mut results);
    Ok(results)
}

/// Verifies and times the routines of a plan.
fn measure<O: Order>(
    turns: &mut Turns<'_>,
    arena: &Arena,
    plan: &Plan,
    order: &O,
    results: &mut Results,
) -> Result<(), Error> {
    let copies = (plan.offsets, order);
    for routine in &plan.routines {
        routine.check(arena, copies)?;
    }
    // Call numbers continue from routine to routine, so that no routine finds data that another has
    // loaded into a cache.
    let next = &Cell::new(0);
    let calls = plan.calls();
    let members = plan.routines.iter().map(|&routine| {
        let call = move || routine.run(arena, copies, (next.replace(next.get() + calls), calls));
        Member::new(routine.name(), call).of_operations(calls as u64)
    });
    let reference = plan.reference.name();
    let members = members.collect();
    let group = Group { parameters: plan.parameters.clone(), reference: &reference, members };
    turns.measure(&plan.title(), group, results);
    Ok(())
}

/// Returns the name and the version of the C library.
fn c_library() -> String {
    let asked = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let version = asked.ok().filter(|output| output.status.success());
    let version = version.and_then(|output| String::from_utf8(output.stdout).ok());
    version.map_or_else(|| "the C library".to_owned(), |version| version.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use crate::specimens::copy::Copier;

    use super::*;

    fn options(members: &[&str]) -> Options {
        let members = members.iter().map(|member| (*member).to_owned()).collect();
        let sizes = vec![192, 5000];
        Options { quick: true, rounds: Some(1), sizes, members, ..Options::default() }
    }

    #[test]
    fn every_routine_has_its_figures_at_the_sizes_asked_for() {
        let results = run(&options(&[])).unwrap();
        assert!(results.complete, "{:?}", results.notes);
        let has = |member: &str, bytes: &str, memory: &str| {
            let place = [("bytes", bytes), ("memory", memory)];
            results.figure(member, "throughput", &place).is_some()
        };
        for copier in Copier::all() {
            let name = copier.name();
            let (copy, fixed) = (format!("copy by {name}"), format!("fixed by {name}"));
            assert!(has(&copy, "192", "hot") && has(&copy, "5000", "cold"), "{copy}");
            assert!(has(&fixed, "192", "hot") && !has(&fixed, "5000", "hot"), "{fixed}");
            assert!(has(&format!("copy and sum by {name}"), "5000", "hot"), "{name}");
        }
        assert!(has(MEMCPY, "192", "hot") && has(MEMCPY, "5000", "cold"));
        let sums = results.rows.iter().filter(|row| row.member.contains("sum"));
        assert!(sums.clone().all(|row| row.metric != "relative to memcpy"));
        assert!(sums.clone().any(|row| row.metric.starts_with("relative to memcpy, then sum")));
    }

    #[test]
    fn a_routine_alone_is_compared_all_the_same() {
        let ours = Copier::all().last().unwrap().name();
        let results = run(&options(&[&format!("copy by {ours}")])).unwrap();
        let members: std::collections::BTreeSet<_> =
            results.rows.iter().map(|row| row.member.clone()).collect();
        assert_eq!(
            members.into_iter().collect::<Vec<_>>(),
            [format!("copy by {ours}"), MEMCPY.into()]
        );
        assert!(results.figure(&format!("copy by {ours}"), "relative to memcpy", &[]).is_some());
        let error = run(&options(&["memmove"])).unwrap_err().to_string();
        assert!(error.starts_with("member memmove: no such routine here; write a name of memcpy"));
    }
}
