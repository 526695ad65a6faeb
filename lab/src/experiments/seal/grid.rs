// SPDX-License-Identifier: MIT OR Apache-2.0
//! Grid of the file-encryption paper: folders of 10 and 100 files of 128 bytes to 4 MiB, by
//! threads.
//!
//! A cell is a member, a folder, a size and a number of threads. All cells of a size run in
//! interleaved rounds, so that a drift affects all alike; sizes follow one another, so that memory
//! holds one of them at a time. As in the paper, each cell has its average, minimum and maximum,
//! and each size the number of threads with the lowest average, outliers left out.
//!
//! Sources: the file-encryption paper, sections 4.4 and A.1, table 1.
//! Does not start a process for every repetition, as the paper did: a program that seals more than
//! one folder has an allocator that has worked before.

use std::time::{Duration, Instant};

use super::counters::{Begun, Counters};
use super::member::Member;
use super::outlier::{self, Outlier};
use super::source::Source;
use super::{BYTES, FILES, FOLDER, THREADS};
use measure::Error;
use measure::Options;
use measure::results::{Results, Row};
use measure::scratch::{ScratchDir, memory_free_bytes};
use measure::statistics::Figure;

/// Cells and rounds of a run.
pub(super) struct Plan {
    pub(super) members: Vec<&'static Member>,
    pub(super) sizes: Vec<u64>,
    pub(super) threads: Vec<usize>,
    rounds: usize,
    /// Time after which a size has no further round.
    limit: Option<Duration>,
}

impl Plan {
    pub(super) fn of(options: &Options, members: Vec<&'static Member>) -> Plan {
        let (sizes, threads) = match options.quick {
            true => (SIZES_QUICK.to_vec(), THREADS_QUICK.to_vec()),
            false => ((7..=22).map(|power| 1 << power).collect(), THREADS_ALL.to_vec()),
        };
        let or = |given: Vec<u64>, own| if given.is_empty() { own } else { given };
        let rounds = if options.quick { ROUNDS_QUICK } else { ROUNDS };
        Plan {
            members,
            sizes: or(options.sizes.iter().map(|size| u64::from(*size)).collect(), sizes),
            threads: if options.threads.is_empty() { threads } else { options.threads.clone() },
            rounds: options.rounds.unwrap_or(rounds).max(1),
            limit: options.rounds.is_none().then_some(LIMIT),
        }
    }

    /// Formats the plan for the notes.
    fn note(&self) -> String {
        let limit = match self.limit {
            Some(limit) => format!(", or as many as fit into {} s a size", limit.as_secs()),
            None => String::new(),
        };
        format!(
            "grid: {} rounds{limit} (the paper: 100), all cells of a size in turns; time is on \
             the clock, from listing the folder to the last file closed",
            self.rounds
        )
    }
}

/// All runs of one cell.
pub(super) struct Cell {
    pub(super) member: &'static Member,
    pub(super) files: usize,
    pub(super) bytes: u64,
    pub(super) threads: usize,
    pub(super) runs: Vec<Counters>,
}

impl Cell {
    /// Returns the milliseconds of every run.
    pub(super) fn times_ms(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.wall * 1e3).collect()
    }

    /// Returns the average of the runs, outliers by the paper's measure left out.
    fn usual_average_ms(&self) -> f64 {
        let times = self.times_ms();
        let out = outlier::over_a_second(&times);
        let usual: Vec<f64> =
            (0..times.len()).filter(|run| !out.contains(run)).map(|run| times[run]).collect();
        average(&usual)
    }

    fn row(&self, metric: &str, unit: &str, figure: Figure) -> Row {
        let row = Row::new("seal", self.member.name, metric, unit, figure);
        row.with(FOLDER, folder(self.files)).with(BYTES, self.bytes).with(THREADS, self.threads)
    }
}

/// Names a folder by a word, as folders are not a scale.
pub(super) fn folder(files: usize) -> String {
    format!("{files} files")
}

/// Measures the grid and adds its rows.
pub(super) fn measure(
    plan: &Plan,
    scratch: &mut ScratchDir,
    options: &Options,
    results: &mut Results,
) -> Result<Vec<Outlier>, Error> {
    results.notes.push(plan.note());
    let mut outliers = Vec::new();
    let mut runs = 0;
    for (index, &bytes) in plan.sizes.iter().enumerate() {
        let most = FILES[FILES.len() - 1];
        // Source, and twice the target: removed files may not be freed at once.
        let needed = bytes.saturating_mul(most as u64).saturating_mul(3);
        if needed > memory_free_bytes() {
            results.notes.push(format!("skip: {most} files of {bytes} bytes: too little memory"));
            continue;
        }
        options.progress(index, plan.sizes.len(), &format!("files of {bytes} bytes"));
        let all = Source::make(scratch, "100", vec![bytes; most])?;
        let few = all.first(scratch, "10", FILES[0])?;
        let measured = of_size(plan, scratch, &[&few, &all], bytes, options);
        ScratchDir::remove(&few.path)?;
        ScratchDir::remove(&all.path)?;
        let cells = measured?;
        runs += cells.iter().map(|cell| cell.runs.len()).sum::<usize>();
        for cell in cells.iter().filter(|cell| !cell.runs.is_empty()) {
            outliers.extend(outlier::of(cell));
            add_cell(cell, results);
        }
        add_best(&cells, results);
        if options.stopped() {
            break;
        }
    }
    add_outliers(plan, &outliers, runs, results);
    Ok(outliers)
}

/// Runs all cells of a size in interleaved rounds.
fn of_size(
    plan: &Plan,
    scratch: &mut ScratchDir,
    sources: &[&Source],
    bytes: u64,
    options: &Options,
) -> Result<Vec<Cell>, Error> {
    let mut cells = Vec::new();
    for source in sources {
        for &threads in &plan.threads {
            for &member in &plan.members {
                let files = source.sizes.len();
                cells.push(Cell { member, files, bytes, threads, runs: Vec::new() });
            }
        }
    }
    let of = |files: usize| sources.iter().find(|source| source.sizes.len() == files);
    for member in &plan.members {
        for source in sources {
            let threads = plan.threads.last().copied().unwrap_or(1);
            run(member, source, threads, scratch, Source::verify)?;
        }
    }
    let began = Instant::now();
    for round in 0..plan.rounds {
        let late = plan.limit.is_some_and(|limit| began.elapsed() > limit);
        if late && round >= ROUNDS_MIN {
            break;
        }
        for turn in 0..cells.len() {
            if options.stopped() {
                return Ok(cells);
            }
            let turn = measure::schedule::in_turn(round, turn, cells.len());
            let cell = &mut cells[turn];
            let source = of(cell.files).expect("cells are made of sources");
            cell.runs.push(run(cell.member, source, cell.threads, scratch, Source::count)?.0);
        }
    }
    Ok(cells)
}

type Check = fn(&Member, &Source, &std::path::Path) -> Result<(), Error>;

/// Seals a folder once, checks the output, and removes it.
pub(super) fn run(
    member: &Member,
    source: &Source,
    threads: usize,
    scratch: &mut ScratchDir,
    check: Check,
) -> Result<(Counters, super::member::Account), Error> {
    let target = scratch.target();
    let begun = Begun::now();
    let sealed = (member.run)(&source.path, &target, threads);
    let counted = begun.end();
    let account = sealed?;
    check(member, source, &target)?;
    ScratchDir::remove(&target)?;
    Ok((counted, account))
}

fn add_cell(cell: &Cell, results: &mut Results) {
    let times = cell.times_ms();
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    let most = times.iter().copied().fold(0.0, f64::max);
    let derived = [("average", average(&times)), ("minimum", least), ("maximum", most)];
    results.rows.push(cell.row("time", "ms", Figure::of(times)).as_detail());
    for (metric, value) in derived {
        results.rows.push(cell.row(metric, "ms", Figure::derived(value)).as_detail());
    }
}

/// Adds, for each member and folder of a size, the threads with the lowest average.
fn add_best(cells: &[Cell], results: &mut Results) {
    let mut seen: Vec<(&str, usize)> = Vec::new();
    for cell in cells.iter().filter(|cell| !cell.runs.is_empty()) {
        if seen.contains(&(cell.member.name, cell.files)) {
            continue;
        }
        seen.push((cell.member.name, cell.files));
        let like = cells.iter().filter(|other| {
            other.member.name == cell.member.name
                && other.files == cell.files
                && !other.runs.is_empty()
        });
        let best = like.min_by(|a, b| a.usual_average_ms().total_cmp(&b.usual_average_ms()));
        let Some(best) = best else { continue };
        let row = |metric, unit, value| {
            let mut row = best.row(metric, unit, Figure::derived(value));
            row.parameters.remove(THREADS);
            row
        };
        results.rows.push(row(BEST_AVERAGE, "ms", best.usual_average_ms()));
        results.rows.push(row(BEST_THREADS, "", best.threads as f64));
    }
}

/// Adds the number of outliers of each kind, by member and cause; describes the worst.
fn add_outliers(plan: &Plan, outliers: &[Outlier], runs: usize, results: &mut Results) {
    let runs_each = runs as f64 / plan.members.len().max(1) as f64;
    if runs == 0 {
        return;
    }
    for member in &plan.members {
        let of_member = || outliers.iter().filter(|outlier| outlier.member == member.name);
        let count = |kind: outlier::Kind| of_member().filter(|o| o.kind == kind).count() as f64;
        for kind in outlier::Kind::ALL {
            let share = Figure::derived(100.0 * count(kind) / runs_each);
            results.rows.push(Row::new("seal", member.name, kind.name(), PER_RUNS, share));
        }
        for cause in super::cause::Cause::ALL {
            let found = of_member().filter(|outlier| outlier.cause == cause).count();
            if found > 0 {
                let figure = Figure::derived(found as f64);
                let row = Row::new("seal", member.name, "outliers by cause", "runs", figure);
                results.rows.push(row.with("cause", cause));
            }
        }
    }
    results.notes.push(outlier::sentence(outliers, runs));
    let mut worst: Vec<&Outlier> = outliers.iter().collect();
    worst.sort_by(|a, b| b.beyond_ms().total_cmp(&a.beyond_ms()));
    for outlier in worst.iter().take(OUTLIERS_SAID) {
        results.notes.push(outlier.to_string());
    }
}

fn average(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

pub(super) const BEST_AVERAGE: &str = "lowest average";
pub(super) const BEST_THREADS: &str = "threads of the lowest average";
pub(super) const PER_RUNS: &str = "of 100 runs";
const THREADS_ALL: [usize; 7] = [1, 2, 4, 10, 20, 50, 100];
const THREADS_QUICK: [usize; 3] = [1, 2, 10];
const SIZES_QUICK: [u64; 3] = [128, 8192, 262_144];
const ROUNDS: usize = 20;
const ROUNDS_QUICK: usize = 3;
const ROUNDS_MIN: usize = 5;
const LIMIT: Duration = Duration::from_secs(90);
const OUTLIERS_SAID: usize = 12;

#[cfg(test)]
mod tests {
    use super::super::member::MEMBERS;
    use super::*;

    fn cell(files: usize, threads: usize, times_s: &[f64]) -> Cell {
        let run = |wall: &f64| Counters { wall: *wall, ..Counters::default() };
        let runs = times_s.iter().map(run).collect();
        Cell { member: MEMBERS[0], files, bytes: 4096, threads, runs }
    }

    #[test]
    fn a_cell_has_its_average_minimum_and_maximum() {
        let mut results = Results::new("seal", []);
        add_cell(&cell(10, 4, &[0.001, 0.002, 0.006]), &mut results);
        let value = |metric| {
            let figure = results.figure("published", metric, &[("threads", "4")]).unwrap();
            (figure.median * 1e6).round() / 1e6
        };
        assert_eq!((value("average"), value("minimum")), (3.0, 1.0));
        assert_eq!((value("maximum"), value("time")), (6.0, 2.0));
        assert!(results.rows.iter().all(|row| row.detail));
    }

    #[test]
    fn the_best_number_of_threads_is_that_of_the_lowest_average_without_outliers() {
        let cells = [
            cell(10, 1, &[0.030, 0.030, 0.030]),
            // 20 ms each except one of a second and a half: an outlier by the paper's measure.
            cell(10, 10, &[0.020, 1.600, 0.020]),
            cell(100, 1, &[0.300]),
            cell(100, 2, &[]),
        ];
        let mut results = Results::new("seal", []);
        add_best(&cells, &mut results);
        let value = |metric, folder| {
            results.figure("published", metric, &[("folder", folder)]).unwrap().median
        };
        assert_eq!(value(BEST_THREADS, "10 files"), 10.0);
        assert!((value(BEST_AVERAGE, "10 files") - 20.0).abs() < 1e-9);
        assert_eq!(value(BEST_THREADS, "100 files"), 1.0);
        assert_eq!(results.rows.len(), 4);
    }
}
