// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs cases in interleaved rounds; emits rows and warnings.
//!
//! A round times every case once, every other round in reverse order, so that drift affects all
//! alike; a ratio is computed within the round. The first round warms caches and predictors and
//! gives the number of bytes that a run needs to be long enough; its times are discarded.
//!
//! Sources: section 3.1 of the data-paths paper; hyperfine (warm-up, outliers as warnings).
//! Does not choose cases; the experiments do.

use std::collections::BTreeMap;

use paths::Transport;

use crate::bench::{Bench, Case, Sample};
use crate::claims::Claims;
use crate::error::Error;
use crate::fixture::USUAL_BYTES;
use crate::fixture::{Fixture, Image};
use crate::meter::pace;
use crate::network::Sink;
use crate::options::Options;
use crate::results::{Results, Row};
use crate::statistics::Figure;
use crate::warning::{INSTRUMENT_SHARE_MAX, Warning};

/// Index of the case that is timed at this turn in a round of `cases`: every other round is in
/// reverse, so that a drift of the machine affects all alike.
pub fn in_turn(round: usize, turn: usize, cases: usize) -> usize {
    if round.is_multiple_of(2) { turn } else { cases - 1 - turn }
}

/// Extent of the measurement.
pub struct Scale {
    /// Timed rounds; a warm-up round precedes them.
    pub rounds: usize,
    /// Bytes sent for each member and size, all rounds together.
    pub bytes: u64,
}

/// Cases of one sink and one size that are timed alternately.
pub struct Group {
    /// The device that all cases send to.
    pub sink: Sink,
    /// Bytes of a datagram, or of a download's step.
    pub bytes: u32,
    /// The cases, in the order of the first round.
    pub cases: Vec<Case>,
}

/// Progress and statistics of a run of the experiment.
pub struct Schedule<'a> {
    options: &'a Options,
    scale: Scale,
    done: usize,
    steps: usize,
    /// Nanoseconds of a fixed piece of work, repeated over the run.
    paces: Vec<f64>,
    /// Number of claims compared with counts; next, the number of claims met.
    claims: usize,
    claims_met: usize,
    /// CPU cost of the loop without sending, s/GB, by bytes of a datagram and packets a call.
    loops: BTreeMap<(u32, u32), f64>,
    /// Largest share of the processors that other programs used during a case.
    others: f64,
}

impl<'a> Schedule<'a> {
    /// Plans these groups: each case is verified once and timed once a round and a warm-up.
    pub fn new(options: &'a Options, scale: Scale, groups: &[Group]) -> Schedule<'a> {
        let steps = groups.iter().map(|group| group.cases.len() * (scale.rounds + 2)).sum();
        Schedule {
            options,
            scale,
            done: 0,
            steps,
            paces: Vec::new(),
            claims: 0,
            claims_met: 0,
            loops: BTreeMap::new(),
            others: 0.0,
        }
    }

    /// Measures the groups one after the other and adds warnings.
    pub fn run(
        mut self,
        bench: &mut Bench,
        groups: Vec<Group>,
        results: &mut Results,
    ) -> Result<(), Error> {
        results.notes.push(format!(
            "{} rounds of {} MB a member, or half a second of processor time, interleaved; file of \
             {} MB; CPU cost: processor seconds of the process and of kernel threads per 10⁹ \
             bytes, the loop subtracted",
            self.scale.rounds,
            self.scale.bytes / self.scale.rounds as u64 / 1_000_000,
            bench.fixture.file.bytes() / 1_000_000
        ));
        self.note_of_mapping(bench, results);
        for group in groups {
            if self.options.stopped() {
                break;
            }
            self.measure(bench, group, results)?;
        }
        if self.options.stopped() {
            results.complete = false;
            results.notes.push("interrupted: what was measured until then is here".to_owned());
        }
        results.notes.push(format!(
            "claims of copies and calls compared with counts: {} of {} met",
            self.claims_met, self.claims
        ));
        if !self.loops.is_empty() {
            let each = self.loops.iter().map(|((bytes, segments), cpu_s_per_gb)| {
                format!("{cpu_s_per_gb:.4} at {bytes} bytes and {segments} a call")
            });
            let each: Vec<String> = each.collect();
            let each = each.join(", ");
            results.notes.push(format!("the loop, subtracted from CPU costs, s/GB: {each}"));
        }
        results.warn_of_paces(&self.paces);
        if self.others > 0.0 {
            results.warn(Warning::OtherLoad { busy_share: self.others });
        }
        Ok(())
    }

    /// Enters the file's pages into this process's page tables before the first timed run, so that
    /// no member pays for another; the time is added to the notes.
    fn note_of_mapping(&self, bench: &Bench, results: &mut Results) {
        if let Some(seconds) = bench.map_file() {
            results.notes.push(format!(
                "mapping the file, once for all and in no CPU cost: {seconds:.3} s per 10⁹ bytes"
            ));
        }
    }

    fn measure(
        &mut self,
        bench: &mut Bench,
        mut group: Group,
        results: &mut Results,
    ) -> Result<(), Error> {
        // The far end verifies every member, for any sink.
        bench.network.make(&Sink::Veth)?;
        let to = bench.network.make(&group.sink)?;
        let all = |of| group.cases.iter().all(|case| case.spec.transport == of);
        let framed = all(Transport::Interleaved);
        let tcp = framed || all(Transport::Tcp);
        let image = match framed {
            true => bench.fixture.framed_image(group.bytes)?,
            // A download needs no image; the smallest one stands in.
            false => bench.fixture.image(if tcp { USUAL_BYTES } else { group.bytes })?,
        };
        // The image's pages are mapped before the first timed run, like the file's.
        let _ = image.media.prefetch(0..image.media.bytes());
        self.warn_of_cold(bench, &image, results);
        let mut loop_costs = BTreeMap::new();
        for case in &mut group.cases {
            self.tick(case);
            if self.options.stopped() {
                return Ok(());
            }
            if let Err(error) = bench.verify(case, &image) {
                case.failed = Some(error.to_string());
            }
            if !tcp && !loop_costs.contains_key(&case.segments) {
                let cpu_s_per_gb = bench.loop_cost((case.bytes, case.segments), to)?;
                loop_costs.insert(case.segments, cpu_s_per_gb);
            }
        }
        let mut run_bytes = vec![WARM_RUN_BYTES; group.cases.len()];
        for round in 0..=self.scale.rounds {
            self.paces.push(pace().as_nanos() as f64);
            let forward = round % 2 == 0;
            let count = group.cases.len();
            for turn in 0..count {
                let index = if forward { turn } else { count - 1 - turn };
                let case = &mut group.cases[index];
                self.tick(case);
                if self.options.stopped() || case.failed.is_some() {
                    continue;
                }
                let loop_cost = loop_costs.get(&case.segments).copied().unwrap_or(0.0);
                match bench.time(case, &image, to, (run_bytes[index], loop_cost)) {
                    Ok(sample) if round == 0 => run_bytes[index] = self.run_bytes(&sample),
                    Ok(sample) => case.samples.push(sample),
                    Err(error) => case.failed = Some(error.to_string()),
                }
            }
        }
        self.add(&group, &loop_costs, results);
        for (segments, cpu_s_per_gb) in &loop_costs {
            self.loops.insert((group.bytes, *segments), *cpu_s_per_gb);
        }
        Ok(())
    }

    /// Returns the bytes of a run: a round's share, raised to [`RUN_SECONDS_MIN`] and limited to
    /// [`RUN_SECONDS_MAX`]; a gigabyte of small packets is millions of calls.
    fn run_bytes(&self, sample: &Sample) -> u64 {
        let share = self.scale.bytes / self.scale.rounds as u64;
        let in_time = |seconds: f64| (seconds / sample.cpu_s_per_gb.max(0.001) * 1e9) as u64;
        let at_least = in_time(RUN_SECONDS_MIN).min(RUN_BYTES_MAX);
        share.min(in_time(RUN_SECONDS_MAX)).max(at_least)
    }

    fn tick(&mut self, case: &Case) {
        self.options.progress(self.done, self.steps, &case.title());
        self.done += 1;
    }

    fn warn_of_cold(&self, bench: &Bench, image: &Image, results: &mut Results) {
        for media in [&bench.fixture.file, &image.media] {
            let share = 1.0 - Fixture::resident_share(media);
            if share > 0.0 {
                let file = media.name().to_owned();
                results.warn(Warning::NotInPageCache { file, share });
            }
        }
    }

    /// Adds the rows of a group.
    fn add(&mut self, group: &Group, loop_costs: &BTreeMap<u32, f64>, results: &mut Results) {
        let measured: Vec<&Case> = group.cases.iter().filter(|c| !c.samples.is_empty()).collect();
        for case in &measured {
            let figure = |of: fn(&Sample) -> f64| Figure::of(case.samples.iter().map(of).collect());
            let row = |metric: &str, unit: &str, figure: Figure| {
                let row = Row::new(&results.experiment, case.spec.name, metric, unit, figure);
                Row { parameters: case.parameters(), ..row }
            };
            let cpu_s_per_gb = row("CPU cost", "s/GB", figure(|sample| sample.cpu_s_per_gb));
            let ratios = ratios(case, &measured, &cpu_s_per_gb);
            let per_core = cpu_s_per_gb
                .figure
                .samples
                .iter()
                .map(|cpu_s_per_gb| GIGABITS / cpu_s_per_gb)
                .collect();
            results.rows.push(cpu_s_per_gb);
            results.rows.extend(ratios);
            results.rows.push(row("a core carries", "Gb/s", Figure::of(per_core)));
            let per = if case.spec.transport == Transport::Tcp { "per step" } else { "per packet" };
            results.rows.push(row("calls", per, figure(|sample| sample.calls)));
            results.rows.push(row("copies", "per byte", figure(|sample| sample.copies)));
            let elsewhere = figure(|sample| sample.kernel_threads / sample.cpu_s_per_gb.max(1e-9));
            if elsewhere.median > ELSEWHERE_MIN {
                results.rows.push(row("of it, in kernel threads", "of 1", elsewhere));
            }
            if matches!(case.spec.transport, Transport::Tcp | Transport::Interleaved) {
                let receiver = figure(|sample| sample.receiver);
                results.rows.push(row("of it, the receiving end", "s/GB", receiver));
            }
            self.warn_of(case, loop_costs, results);
        }
        for case in &group.cases {
            if let Some(found) = &case.failed {
                results.complete = false;
                let (member, found) = (case.title(), found.clone());
                results.warn(Warning::MemberFailed { member, found });
            }
        }
    }

    fn warn_of(&mut self, case: &Case, loop_costs: &BTreeMap<u32, f64>, results: &mut Results) {
        let member = case.spec.name.to_owned();
        let most = |of: fn(&Sample) -> f64| case.samples.iter().map(of).fold(0.0, f64::max);
        let copied = most(|sample| sample.zerocopy_copied);
        if copied > 0.0 {
            let parameters = case.parameters();
            results.warn(Warning::ZerocopyCopied {
                member: member.clone(),
                parameters,
                share: copied,
            });
        }
        let others = case.samples.iter().map(|sample| sample.others_share);
        let others = Figure::of(others.collect()).median;
        if others > OTHERS_MAX {
            self.others = self.others.max(others);
        }
        let stolen = most(|sample| sample.stolen_share);
        if stolen > STOLEN_MAX {
            results.warn(Warning::StolenTime { share: stolen });
        }
        if case.sink == Sink::IfbDevice && case.segments > 1 {
            let sink = case.sink.name().to_owned();
            results.warn(Warning::SuperPacketsSwallowed { sink });
        }
        let cpu_s_per_gb =
            Figure::of(case.samples.iter().map(|sample| sample.cpu_s_per_gb).collect());
        let share = loop_costs.get(&case.segments).copied().unwrap_or(0.0) / cpu_s_per_gb.median;
        if share > INSTRUMENT_SHARE_MAX {
            let metric = "CPU cost".to_owned();
            results.warn(Warning::InstrumentLarge { member: member.clone(), metric, share });
        }
        if case.bytes == USUAL_BYTES || case.spec.transport == Transport::Tcp {
            let Claims { calls, copies } = Claims::of(case.spec, case.bytes, case.segments);
            for (claim, claimed, of) in [
                ("calls", calls, (|sample: &Sample| sample.calls) as fn(&Sample) -> f64),
                ("copies", copies, |sample| sample.copies),
            ] {
                let counted = Figure::of(case.samples.iter().map(of).collect()).median;
                self.claims += 1;
                if !Claims::met(claimed, counted) {
                    let (member, claim) = (case.title(), claim.to_owned());
                    results.warn(Warning::ClaimNotMet { member, claim, claimed, counted });
                } else {
                    self.claims_met += 1;
                }
            }
        }
    }
}

/// Returns ratios to the transport's reference, for RTP also to `rtp_sendfile`, the best path of an
/// unmodified kernel in the data-paths paper.
fn ratios(case: &Case, measured: &[&Case], cpu_s_per_gb: &Row) -> Vec<Row> {
    let references: &[&str] = match case.spec.transport {
        Transport::Rtp => &["read_writev", "rtp_sendfile"],
        Transport::Interleaved => &["framed_writev"],
        _ => &["read_write"],
    };
    let mut rows = Vec::new();
    for name in references {
        let same = |other: &&&Case| {
            other.spec.name == *name && other.spec.transport == case.spec.transport
        };
        let Some(other) = measured.iter().find(same) else { continue };
        let reference =
            Figure::of(other.samples.iter().map(|sample| sample.cpu_s_per_gb).collect());
        let Some(figure) = cpu_s_per_gb.figure.relative_to(&reference) else { continue };
        let (metric, unit) = (format!("relative to {name}"), String::new());
        rows.push(Row { metric, unit, figure, ..cpu_s_per_gb.clone() });
    }
    rows
}

const RUN_BYTES_MAX: u64 = 1_000_000_000;
const WARM_RUN_BYTES: u64 = 8_000_000;
/// Longer runs give no more information.
const RUN_SECONDS_MAX: f64 = 0.5;
/// Timer interrupts dominate a shorter run.
const RUN_SECONDS_MIN: f64 = 0.03;
const GIGABITS: f64 = 8.0;
const OTHERS_MAX: f64 = 0.05;
/// Below this share the work stayed in the process.
const ELSEWHERE_MIN: f64 = 0.01;
const STOLEN_MAX: f64 = 0.01;
