// SPDX-License-Identifier: MIT OR Apache-2.0
//! Libraries: folders of many files, as publishers have them, all large, small or mixed.
//!
//! A library is measured by time and CPU cost with one thread a core; members run in interleaved
//! rounds, and a ratio is computed within a round. The CPU cost is processor time of the process
//! and of kernel threads that worked meanwhile.
//!
//! Sizes of a mixed library are log-normal, as those of files on servers and desktops: most files
//! are small, most bytes are in a few large ones. The sizes are the same in every run.
//!
//! Sources: Downey, "The Structural Cause of File Size Distributions", 2001; Box and Muller, 1958.
//! Does not use nested folders.

use std::time::Duration;

use seal::engine::Stages;

use super::grid::run;
use super::member::Member;
use super::source::Source;
use super::{FOLDER, THREADS};
use measure::Error;
use measure::Options;
use measure::meter::Meter;
use measure::results::{Results, Row};
use measure::scratch::{ScratchDir, memory_free_bytes};
use measure::statistics::Figure;

/// Folder to be sealed.
struct Library {
    name: String,
    sizes: Vec<u64>,
}

/// Results of a member's rounds.
struct MemberRuns {
    member: &'static Member,
    seconds: Vec<f64>,
    /// Processor seconds per 10⁹ bytes.
    cpu_costs: Vec<f64>,
    stages: Vec<Stages>,
}

/// Measures each library and adds its rows.
pub(super) fn measure(
    members: &[&'static Member],
    scratch: &mut ScratchDir,
    options: &Options,
    results: &mut Results,
) -> Result<(), Error> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = options.threads.first().copied().unwrap_or(threads);
    let rounds = if options.quick { ROUNDS_QUICK } else { ROUNDS };
    let rounds = options.rounds.unwrap_or(rounds).max(1);
    let plural = if threads == 1 { "" } else { "s" };
    results.notes.push(format!(
        "libraries: {rounds} rounds, interleaved, {threads} thread{plural}; the CPU cost is \
         processor time of the process and of kernel threads"
    ));
    let libraries = libraries(options.quick);
    if let Some(Library { name, sizes }) = libraries.last() {
        results.notes.push(format!(
            "{name}: log-normal sizes, {:.3} GB together, the largest {:.1} MB",
            sizes.iter().sum::<u64>() as f64 / 1e9,
            sizes.iter().max().copied().unwrap_or(0) as f64 / 1e6
        ));
    }
    let of = libraries.len();
    for (index, library) in libraries.into_iter().enumerate() {
        if options.stopped() {
            break;
        }
        options.progress(index, of, &library.name);
        let bytes: u64 = library.sizes.iter().sum();
        if bytes.saturating_mul(3) > memory_free_bytes() {
            let name = &library.name;
            results.notes.push(format!("skip: {name}, {bytes} bytes: too little memory"));
            continue;
        }
        let source = Source::make(scratch, "library", library.sizes.clone())?;
        let runs = take(members, &source, (threads, rounds), scratch, options);
        ScratchDir::remove(&source.path)?;
        add(&library, &source, threads, runs?, results);
    }
    Ok(())
}

fn libraries(quick: bool) -> Vec<Library> {
    let (large, many, mean) = if quick { (8, 200, MEAN_QUICK) } else { (100, 10_000, MEAN) };
    let total = (memory_free_bytes() / MEMORY_PART).min(mean.saturating_mul(many as u64));
    let equal = |count: usize, bytes: u64, size: &str| Library {
        name: format!("{count} × {size}"),
        sizes: vec![bytes; count],
    };
    let mixed = Library { name: format!("{many} mixed"), sizes: mixed(many, total) };
    vec![equal(large, 4 << 20, "4 MiB"), equal(many, 4096, "4 KiB"), mixed]
}

/// Returns `count` log-normal sizes that sum up to `total` bytes, except for rounding.
fn mixed(count: usize, total: u64) -> Vec<u64> {
    let mut state = SIZES_SEED;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // In (0, 1]: its logarithm is finite.
        ((state >> 11) + 1) as f64 / (1_u64 << 53) as f64
    };
    let mut normal = || (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
    let sizes: Vec<f64> = (0..count).map(|_| (SIGMA * normal()).exp()).collect();
    let scale = total as f64 / sizes.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    sizes.into_iter().map(|size| (size * scale) as u64).collect()
}

fn take(
    members: &[&'static Member],
    source: &Source,
    (threads, rounds): (usize, usize),
    scratch: &mut ScratchDir,
    options: &Options,
) -> Result<Vec<MemberRuns>, Error> {
    let meter = Meter::of_this_process();
    let mut all_runs: Vec<MemberRuns> = members
        .iter()
        .map(|member| MemberRuns {
            member,
            seconds: Vec::new(),
            cpu_costs: Vec::new(),
            stages: Vec::new(),
        })
        .collect();
    for member in members {
        run(member, source, threads, scratch, Source::verify)?;
    }
    let count = all_runs.len();
    for round in 0..rounds {
        for turn in 0..count {
            if options.stopped() {
                break;
            }
            let member_runs = &mut all_runs[measure::schedule::in_turn(round, turn, count)];
            let target = scratch.target();
            let begun = meter.begin();
            let sealed = (member_runs.member.run)(&source.path, &target, threads);
            let cost = begun.end(Duration::ZERO);
            member_runs.stages.extend(sealed?);
            Source::count(member_runs.member, source, &target)?;
            ScratchDir::remove(&target)?;
            member_runs.seconds.push(cost.wall.as_secs_f64());
            let gigabytes = source.bytes() as f64 / 1e9;
            member_runs.cpu_costs.push(cost.charged().as_secs_f64() / gigabytes);
        }
    }
    // An interrupted round is dropped.
    let whole = all_runs.iter().map(|member_runs| member_runs.seconds.len()).min().unwrap_or(0);
    for member_runs in &mut all_runs {
        member_runs.seconds.truncate(whole);
        member_runs.cpu_costs.truncate(whole);
        member_runs.stages.truncate(whole);
    }
    Ok(all_runs)
}

fn add(
    library: &Library,
    source: &Source,
    threads: usize,
    all_runs: Vec<MemberRuns>,
    results: &mut Results,
) {
    let row = |member: &Member, metric: &str, unit: &str, figure| {
        let row = Row::new("seal", member.name, metric, unit, figure);
        row.with(FOLDER, &library.name).with(THREADS, threads)
    };
    let reference = all_runs.first().filter(|member_runs| !member_runs.seconds.is_empty());
    let reference = reference.map(|member_runs| {
        let figures =
            (Figure::of(member_runs.seconds.clone()), Figure::of(member_runs.cpu_costs.clone()));
        (member_runs.member.name, figures)
    });
    let Some((name, (times, cpu_costs))) = reference else { return };
    for member_runs in all_runs {
        let rate = |seconds: &f64| source.bytes() as f64 / 1e6 / seconds;
        let rates = member_runs.seconds.iter().map(rate).collect();
        let (time, cpu_s_per_gb) =
            (Figure::of(member_runs.seconds), Figure::of(member_runs.cpu_costs));
        // Speed ratio: the reference's time divided by this member's.
        let speed = times.relative_to(&time);
        let ratio = cpu_s_per_gb.relative_to(&cpu_costs);
        results.rows.push(row(member_runs.member, "throughput", "MB/s", Figure::of(rates)));
        if let Some(speed) = speed {
            let metric = format!("throughput over that of {name}");
            results.rows.push(row(member_runs.member, &metric, measure::memory::TIMES, speed));
        }
        results.rows.push(row(member_runs.member, "CPU cost", "s/GB", cpu_s_per_gb));
        if let Some(ratio) = ratio {
            let metric = format!("relative to {name}");
            results.rows.push(row(member_runs.member, &metric, "", ratio));
        }
        for (stage, samples) in shares(&member_runs.stages) {
            let figure = Figure::of(samples);
            results
                .rows
                .push(row(member_runs.member, "workers' time", "%", figure).with("stage", stage));
        }
    }
}

/// Returns the share of every stage with measurable time, in percent, round by round.
pub(super) fn shares(rounds: &[Stages]) -> Vec<(&'static str, Vec<f64>)> {
    let mut shares: Vec<(&'static str, Vec<f64>)> = Vec::new();
    for round in rounds {
        for (index, (stage, share)) in round.shares().enumerate() {
            if shares.len() <= index {
                shares.push((stage, Vec::new()));
            }
            shares[index].1.push(share * 100.0);
        }
    }
    shares.retain(|(_, samples)| samples.iter().any(|share| *share > 0.0));
    shares
}

const ROUNDS: usize = 7;
const ROUNDS_QUICK: usize = 3;
/// Standard deviation of the logarithm: half of the files hold 7 % of the bytes.
const SIGMA: f64 = 1.5;
const SIZES_SEED: u64 = 0x2545_f491_4f6c_dd1d;
const MEAN: u64 = 200_000;
const MEAN_QUICK: u64 = 50_000;
/// Source and target together use two of this many parts of the free memory.
const MEMORY_PART: u64 = 5;

#[cfg(test)]
mod tests {
    use super::super::member::MEMBERS;
    use super::*;

    #[test]
    fn a_mixed_library_has_its_total_and_most_of_it_in_few_files() {
        let mut sizes = mixed(10_000, 2_000_000_000);
        let total: u64 = sizes.iter().sum();
        assert!(total <= 2_000_000_000 && total > 1_999_900_000, "{total}");
        assert_eq!(sizes, mixed(10_000, 2_000_000_000), "the same in every run");
        sizes.sort_unstable();
        let of = |part: &[u64]| part.iter().sum::<u64>() as f64 / total as f64;
        let (small, large) = (of(&sizes[..5000]), of(&sizes[9000..]));
        // Log-normal of this deviation: Φ(-1.5) = 6.7 % and 1 - Φ(1.28 - 1.5) = 59 %.
        assert!((small - 0.067).abs() < 0.01, "{small}");
        assert!((large - 0.587).abs() < 0.04, "{large}");
        assert!(mixed(0, 5).is_empty());
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let here = tempfile::tempdir().unwrap();
        let scratch = ScratchDir::new(Some(here.path())).unwrap();
        let source = Source::make(&scratch, "source", vec![1_000_000; 2]).unwrap();
        let library = Library { name: "2".to_owned(), sizes: source.sizes.clone() };
        let member_runs = |index: usize, seconds: [f64; 2], cpu_costs: [f64; 2]| MemberRuns {
            member: MEMBERS[index],
            seconds: seconds.to_vec(),
            cpu_costs: cpu_costs.to_vec(),
            stages: Vec::new(),
        };
        let both =
            vec![member_runs(0, [4.0, 2.0], [2.0, 1.0]), member_runs(1, [1.0, 0.5], [0.5, 0.25])];
        let mut results = Results::new("seal", []);
        add(&library, &source, 2, both, &mut results);
        let samples = |member: &str, metric: &str| {
            results.figure(member, metric, &[(FOLDER, "2")]).unwrap().samples.clone()
        };
        let second = MEMBERS[1].name;
        assert_eq!(samples(second, "throughput over that of published"), [4.0, 4.0]);
        assert_eq!(samples(second, "relative to published"), [0.25, 0.25]);
        assert_eq!(samples(second, "throughput"), [2.0, 4.0]);
        assert_eq!(samples("published", "relative to published"), [1.0, 1.0]);
    }
}
