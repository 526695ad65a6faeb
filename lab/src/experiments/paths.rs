// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab paths`: the bill of every path, by transport, size of packet and sink.
//!
//! Members take turns: a round times every member once, every other round in reverse order, and a
//! member's ratio to the reference of its transport (`read_writev` for RTP, as in the study's
//! figure 5; `read_write` for plain datagrams and TCP) is taken within the round. The first round
//! warms caches and predictors and says how many bytes a run needs to be long enough to time; its
//! times are thrown away. A gigabyte a member and size in all, rounds together.
//!
//! Sources: the study's tables 1-A and 1-B and figures 3 to 5, with every row that a stock kernel
//! has; section 5 for its implied throughput.
//! Does not do: pacing, many sessions (`sessions`), the gap between packets (`batch`).

use std::collections::BTreeMap;

use paths::{Crossings, Host, PATHS, Spec, Transport};

use crate::bench::{Bench, Case, MTU_BYTES, Sample};
use crate::error::Error;
use crate::material::{Image, Material};
use crate::meter::pace;
use crate::network::Sink;
use crate::results::{Results, Row};
use crate::statistics::Figure;
use crate::warning::{INSTRUMENT_SHARE_MAX, Warning};
use crate::{Options, published};

/// How much is measured.
struct Scale {
    rounds: usize,
    /// Bytes of a member and size, rounds together.
    bytes: u64,
}

pub(crate) fn run(options: &Options) -> Result<Results, Error> {
    let scale = match options.quick {
        true => Scale { rounds: QUICK_ROUNDS, bytes: QUICK_BYTES },
        false => Scale { rounds: FULL_ROUNDS, bytes: FULL_BYTES },
    };
    let scale = Scale { rounds: options.rounds.unwrap_or(scale.rounds).max(1), ..scale };
    let mut results = Results::new("paths", options.command.clone());
    let mut bench = Bench::new(&options.sinks)?;
    results.complete = true;
    let groups = plan(options, &mut results)?;
    let steps = groups.iter().map(|group| group.cases.len() * (scale.rounds + 2)).sum();
    let mut course = Course {
        options,
        scale,
        done: 0,
        steps,
        paces: Vec::new(),
        claims: 0,
        claims_met: 0,
        others: 0.0,
    };
    results.notes.push(format!(
        "{} rounds of at least {} MB a member, interleaved; file of {} MB; \
         bill: processor seconds of the process and of kernel threads per 10⁹ bytes",
        course.scale.rounds,
        course.scale.bytes / course.scale.rounds as u64 / 1_000_000,
        crate::material::FILE_BYTES / 1_000_000
    ));
    for group in groups {
        if options.stopped() {
            break;
        }
        course.measure(&mut bench, group, &mut results)?;
    }
    if options.stopped() {
        results.complete = false;
        results.notes.push("interrupted: what was measured until then is here".to_owned());
    }
    results.notes.push(format!(
        "claims of copies and calls compared with counts: {} of {} met",
        course.claims_met, course.claims
    ));
    course.warn_of_pace(&mut results);
    if course.others > 0.0 {
        results.warn(Warning::OtherLoad { busy_share: course.others });
    }
    published::add(&mut results);
    Ok(results)
}

/// Cases that take turns: of one sink and one size.
struct Group {
    sink: Sink,
    bytes: u32,
    cases: Vec<Case>,
}

/// All groups, and what is left out and why.
fn plan(options: &Options, results: &mut Results) -> Result<Vec<Group>, Error> {
    let host = Host::here();
    let mut usable = Vec::new();
    for spec in PATHS.iter().filter(|spec| options.wants(spec)) {
        match (spec.probe)(&host) {
            Ok(()) => usable.push(*spec),
            Err(reason) => results.notes.push(format!("skip: {spec}: {reason}")),
        }
    }
    if usable.is_empty() {
        return Err(Error::nothing_to_measure(options));
    }
    let mut groups = Vec::new();
    for sink in options.sinks_or(&[Sink::IfbSoftware, Sink::IfbDevice]) {
        for bytes in sizes(options, &sink) {
            let datagrams = usable.iter().filter(|spec| spec.transport != Transport::Tcp);
            let mut cases: Vec<Case> =
                datagrams.flat_map(|spec| segments(spec, bytes, &sink)).collect();
            cases.retain(|case| case.fits(MTU_BYTES));
            groups.push(Group { sink: sink.clone(), bytes, cases });
        }
    }
    let real = options.sinks.iter().any(|sink| matches!(sink, Sink::Interface(..)));
    if real {
        let note = "downloads are not measured by --interface: they need a peer that takes them";
        results.notes.push(note.to_owned());
    }
    for bytes in steps(options).into_iter().filter(|_| !real) {
        let downloads = usable.iter().filter(|spec| spec.transport == Transport::Tcp);
        let mut cases: Vec<Case> =
            downloads.map(|spec| Case::new(spec, &Sink::Veth, bytes, 1)).collect();
        // The study's row: the file in one call against packets.
        let whole = usable.iter().filter(|_| bytes == USUAL_BYTES);
        let whole =
            whole.filter(|spec| (spec.transport, spec.name) == (Transport::Tcp, "sendfile"));
        cases.extend(whole.map(|spec| Case::new(spec, &Sink::Veth, WHOLE_BYTES, 1)));
        groups.push(Group { sink: Sink::Veth, bytes, cases });
    }
    groups.retain(|group| !group.cases.is_empty());
    Ok(groups)
}

/// The bars and the first thing anybody asks for are at one size; the others are a curve.
fn sizes(options: &Options, sink: &Sink) -> Vec<u32> {
    match (&options.sizes[..], options.quick) {
        ([], true) => vec![USUAL_BYTES],
        ([], false) if *sink == Sink::IfbDevice => vec![USUAL_BYTES],
        ([], false) => SIZES.to_vec(),
        (sizes, _) => sizes.to_vec(),
    }
}

fn steps(options: &Options) -> Vec<u32> {
    match (&options.sizes[..], options.quick) {
        ([], true) => QUICK_STEPS.to_vec(),
        ([], false) => STEPS.to_vec(),
        (sizes, _) => sizes.to_vec(),
    }
}

fn segments(spec: &'static Spec, bytes: u32, sink: &Sink) -> Vec<Case> {
    let counts: &[u32] = match spec.crossings {
        Crossings::PerPacket(_) | Crossings::PerStep(_) => &[1],
        _ if bytes == USUAL_BYTES => &[SHORT_RUN, LONG_RUN],
        _ => &[LONG_RUN],
    };
    counts.iter().map(|&count| Case::new(spec, sink, bytes, count)).collect()
}

/// Where a run of the experiment is.
struct Course<'a> {
    options: &'a Options,
    scale: Scale,
    done: usize,
    steps: usize,
    /// Nanoseconds of the same piece of work, over the run.
    paces: Vec<f64>,
    /// Claims compared with counts, and those found right.
    claims: usize,
    claims_met: usize,
    /// The largest share of the processors that others had during a case.
    others: f64,
}

impl Course<'_> {
    fn measure(
        &mut self,
        bench: &mut Bench,
        mut group: Group,
        results: &mut Results,
    ) -> Result<(), Error> {
        // The far end verifies every member, whatever the sink.
        bench.network.make(&Sink::Veth)?;
        let to = bench.network.make(&group.sink)?;
        let tcp = group.cases.iter().all(|case| case.spec.transport == Transport::Tcp);
        // A download needs no image; the smallest one stands in.
        let image = bench.material.image(if tcp { USUAL_BYTES } else { group.bytes })?;
        self.warn_of_cold(bench, &image, results);
        let mut loop_bills = BTreeMap::new();
        for case in &mut group.cases {
            self.tick(case);
            if let Err(error) = bench.verify(case, &image) {
                case.failed = Some(error.to_string());
            }
            if !tcp && !loop_bills.contains_key(&case.segments) {
                let bill = bench.loop_bill((case.bytes, case.segments), to)?;
                loop_bills.insert(case.segments, bill);
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
                let loop_bill = loop_bills.get(&case.segments).copied().unwrap_or(0.0);
                match bench.time(case, &image, to, (run_bytes[index], loop_bill)) {
                    Ok(sample) if round == 0 => run_bytes[index] = self.run_bytes(&sample),
                    Ok(sample) => case.samples.push(sample),
                    Err(error) => case.failed = Some(error.to_string()),
                }
            }
        }
        self.add(&group, &loop_bills, results);
        Ok(())
    }

    /// Its share of a member's bytes, but long enough to time.
    fn run_bytes(&self, sample: &Sample) -> u64 {
        let share = self.scale.bytes / self.scale.rounds as u64;
        let timed = (RUN_SECONDS_MIN / sample.bill.max(0.001) * 1e9) as u64;
        share.max(timed).min(FULL_BYTES)
    }

    fn tick(&mut self, case: &Case) {
        self.options.progress(self.done, self.steps, &case.title());
        self.done += 1;
    }

    fn warn_of_cold(&self, bench: &Bench, image: &Image, results: &mut Results) {
        for media in [&bench.material.file, &image.media] {
            let share = 1.0 - Material::resident_share(media);
            if share > 0.0 {
                let file = media.name().to_owned();
                results.warn(Warning::NotInPageCache { file, share });
            }
        }
    }

    fn warn_of_pace(&self, results: &mut Results) {
        let fastest = self.paces.iter().copied().fold(f64::INFINITY, f64::min);
        let slowest = self.paces.iter().copied().fold(0.0, f64::max);
        if fastest.is_finite() && slowest > fastest * PACE_CHANGE_MAX {
            results.warn(Warning::FrequencyChanged { share: slowest / fastest - 1.0 });
        }
    }

    /// The rows of a group.
    fn add(&mut self, group: &Group, loop_bills: &BTreeMap<u32, f64>, results: &mut Results) {
        let measured: Vec<&Case> = group.cases.iter().filter(|c| !c.samples.is_empty()).collect();
        for case in &measured {
            let figure = |of: fn(&Sample) -> f64| Figure::of(case.samples.iter().map(of).collect());
            let row = |metric: &str, unit: &str, figure: Figure| {
                let row = Row::new("paths", case.spec.name, metric, unit, figure);
                Row { parameters: case.parameters(), ..row }
            };
            let bill = row("bill", "s/GB", figure(|sample| sample.bill));
            let ratios = ratios(case, &measured, &bill);
            let per_core = bill.figure.samples.iter().map(|bill| GIGABITS / bill).collect();
            results.rows.push(bill);
            results.rows.extend(ratios);
            results.rows.push(row("a core carries", "Gb/s", Figure::of(per_core)));
            let per = if case.spec.transport == Transport::Tcp { "per step" } else { "per packet" };
            results.rows.push(row("calls", per, figure(|sample| sample.calls)));
            results.rows.push(row("copies", "per byte", figure(|sample| sample.copies)));
            let elsewhere = figure(|sample| sample.kernel_threads / sample.bill.max(1e-9));
            if elsewhere.median > ELSEWHERE_MIN {
                results.rows.push(row("of it, in kernel threads", "of 1", elsewhere));
            }
            if case.spec.transport == Transport::Tcp {
                let receiver = figure(|sample| sample.receiver);
                results.rows.push(row("receiver", "s/GB", receiver));
            }
            self.warn_of(case, loop_bills, results);
        }
        for case in &group.cases {
            if let Some(found) = &case.failed {
                results.complete = false;
                let (member, found) = (case.title(), found.clone());
                results.warn(Warning::MemberFailed { member, found });
            }
        }
    }

    fn warn_of(&mut self, case: &Case, loop_bills: &BTreeMap<u32, f64>, results: &mut Results) {
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
        let bill = Figure::of(case.samples.iter().map(|sample| sample.bill).collect());
        let share = loop_bills.get(&case.segments).copied().unwrap_or(0.0) / bill.median;
        if share > INSTRUMENT_SHARE_MAX {
            let metric = "bill".to_owned();
            results.warn(Warning::InstrumentLarge { member: member.clone(), metric, share });
        }
        if case.bytes == USUAL_BYTES || case.spec.transport == Transport::Tcp {
            let (calls, copies) = case.claimed();
            for (claim, claimed, of) in [
                ("calls", calls, (|sample: &Sample| sample.calls) as fn(&Sample) -> f64),
                ("copies", copies, |sample| sample.copies),
            ] {
                let counted = Figure::of(case.samples.iter().map(of).collect()).median;
                self.claims += 1;
                if (counted - claimed).abs() > CLAIM_TOLERANCE * claimed.max(CLAIM_LEAST) {
                    let (member, claim) = (case.title(), claim.to_owned());
                    results.warn(Warning::ClaimNotMet { member, claim, claimed, counted });
                } else {
                    self.claims_met += 1;
                }
            }
        }
    }
}

/// Ratios to the reference of the transport, and for RTP to the study's best stock path.
fn ratios(case: &Case, measured: &[&Case], bill: &Row) -> Vec<Row> {
    let references: &[&str] = match case.spec.transport {
        Transport::Rtp => &["read_writev", "rtp_sendfile"],
        _ => &["read_write"],
    };
    let mut rows = Vec::new();
    for name in references {
        let same = |other: &&&Case| {
            other.spec.name == *name && other.spec.transport == case.spec.transport
        };
        let Some(other) = measured.iter().find(same) else { continue };
        let reference = Figure::of(other.samples.iter().map(|sample| sample.bill).collect());
        let Some(figure) = bill.figure.relative_to(&reference) else { continue };
        let (metric, unit) = (format!("relative to {name}"), String::new());
        let metric = match case.bytes == other.bytes {
            true => metric,
            false => format!("{metric}, {} bytes", other.bytes),
        };
        rows.push(Row { metric, unit, figure, ..bill.clone() });
    }
    rows
}

/// 12 bytes of RTP and 7 packets of transport stream.
pub(crate) const USUAL_BYTES: u32 = 1328;
/// As in the study's figures 3 and 4; the largest is what a datagram can be.
const SIZES: &[u32] =
    &[64, 128, 256, 512, 1024, USUAL_BYTES, 2048, 4096, 8192, 16_384, 32_768, 65_507];
const STEPS: &[u32] = &[64, 256, 1024, USUAL_BYTES, 4096, 16_384, 65_536, 131_072, 1 << 20];
const QUICK_STEPS: &[u32] = &[USUAL_BYTES, 131_072];
/// The most a download path moves in a call.
const WHOLE_BYTES: u32 = 1 << 20;
/// Packets of a 5 Mb/s stream in a burst of 20 ms, and the most of 1328 bytes in 64 KiB off pages.
const SHORT_RUN: u32 = 10;
const LONG_RUN: u32 = 44;
const FULL_BYTES: u64 = 1_000_000_000;
const FULL_ROUNDS: usize = 9;
const QUICK_BYTES: u64 = 60_000_000;
const QUICK_ROUNDS: usize = 3;
const WARM_RUN_BYTES: u64 = 8_000_000;
/// A run shorter than this is lost in timer interrupts.
const RUN_SECONDS_MIN: f64 = 0.03;
const GIGABITS: f64 = 8.0;
const PACE_CHANGE_MAX: f64 = 1.05;
const OTHERS_MAX: f64 = 0.05;
/// Below it the work stayed in the process.
const ELSEWHERE_MIN: f64 = 0.01;
const STOLEN_MAX: f64 = 0.01;
/// The first batch sets an option; a byte in a thousand is a retry.
const CLAIM_TOLERANCE: f64 = 0.02;
/// A claim of none is met by less than this.
const CLAIM_LEAST: f64 = 0.05;
