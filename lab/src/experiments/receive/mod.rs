// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab receive`: the CPU cost and the loss of every way from socket to memory.
//!
//! The first part is the CPU cost, on one core ([`measure::receive_bench`]): ways × sizes × streams
//! × forms of sending, in interleaved rounds, with sending subtracted. A way that reads at the
//! device (`xdp`) changes the near end of the veth pair: with a program on the far end the kernel
//! splits super-packets before the device, so the subtracted cost is measured with sending split in
//! the same way. The second part is the loss ([`offered`]): a sender on another core at given
//! rates.
//!
//! Sources: the sending half (`pagewire lab paths`) for the method.
//! Does not use network cards of this machine; receiving needs a sender behind the wire.

mod offered;

use std::collections::BTreeMap;

use paths::{Host, RECEIVE_PATHS, ReceiveSpec};

use measure::Error;
use measure::Options;
use measure::fixture::{Fixture, USUAL_BYTES};
use measure::meter::{Cores, Meter, pace, pin};
use measure::network::{Network, Sink};
use measure::results::{Results, Row};
use measure::statistics::Figure;
use measure::warning::Warning;

use measure::feed::Sending;
use measure::receive_bench::{Bench, Case, ReceiveLoad, Sample};

pub(crate) fn run(options: &Options) -> Result<Results, Error> {
    let mut results = Results::new("receive", options.command.clone());
    let members = members(options, &mut results)?;
    let mut network = Network::new()?;
    for sink in Sink::MADE {
        network.make(&sink)?;
    }
    let cores = Cores::allowed();
    pin(&cores, false);
    let bench = Bench { network, fixture: Fixture::small()?, meter: Meter::of_this_process() };
    results.complete = true;
    let rounds = options.rounds.unwrap_or(if options.quick { QUICK_ROUNDS } else { FULL_ROUNDS });
    let loads = loads(options);
    results.notes.push(format!(
        "CPU cost: processor seconds of the process and of kernel threads for both ends on one \
         core per 10⁹ bytes, less those of sending the same to a device that drops; {rounds} \
         interleaved rounds; bursts of {} packets for one stream, {} for several",
        ReceiveLoad { streams: 1, ..loads[0] }.burst(),
        ReceiveLoad { streams: 2, ..loads[0] }.burst(),
    ));
    let mut schedule =
        Schedule { options, bench: &bench, rounds, done: 0, steps: 0, paces: Vec::new() };
    schedule.steps = loads.len() * members.len() * (rounds + 2);
    for load in loads {
        if options.stopped() {
            break;
        }
        schedule.measure(load, &members, &mut results)?;
    }
    results.warn_of_paces(&schedule.paces);
    offered::run(options, &bench, &cores, &members, &mut results)?;
    if options.stopped() {
        results.complete = false;
        results.notes.push("interrupted: what was measured until then is here".to_owned());
    }
    Ok(results)
}

/// Returns the selected members that this host supports; the reference is always included.
fn members(options: &Options, results: &mut Results) -> Result<Vec<&'static ReceiveSpec>, Error> {
    let known: Vec<&str> = RECEIVE_PATHS.iter().map(|spec| spec.name).collect();
    if let Some(name) = options.members.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Error::Caller {
            what: format!("member {name}"),
            found: format!("no such way to receive; write a name of {}", known.join(", ")),
        });
    }
    let host = Host::here();
    let mut members = Vec::new();
    for spec in RECEIVE_PATHS {
        let named = options.members.is_empty() || options.members.iter().any(|n| n == spec.name);
        if !(named || REFERENCES.contains(&spec.name)) {
            continue;
        }
        match (spec.probe)(&host) {
            Ok(()) => members.push(*spec),
            Err(reason) => results.notes.push(format!("skip: {spec}: {reason}")),
        }
    }
    Ok(members)
}

/// Returns all loads: sizes for one stream, numbers of streams for the usual size.
fn loads(options: &Options) -> Vec<ReceiveLoad> {
    let sizes: &[u32] = match (&options.sizes[..], options.quick) {
        ([], false) => SIZES,
        ([], true) => QUICK_SIZES,
        (sizes, _) => sizes,
    };
    let fit = sizes.iter().filter(|&&bytes| bytes <= BYTES_MAX);
    let mut loads = Vec::new();
    for &bytes in fit {
        loads.push(ReceiveLoad { bytes, streams: 1, sending: Sending::Joined });
        loads.push(ReceiveLoad { bytes, streams: 1, sending: Sending::Apart });
    }
    if !options.quick || !options.sessions.is_empty() {
        let streams = if options.sessions.is_empty() { STREAMS } else { &options.sessions[..] };
        for &streams in streams.iter().filter(|&&streams| streams > 1 && streams <= STREAMS_MAX) {
            for sending in [Sending::Joined, Sending::Apart] {
                loads.push(ReceiveLoad { bytes: USUAL_BYTES, streams, sending });
            }
        }
    }
    if loads.is_empty() {
        loads.push(ReceiveLoad { bytes: USUAL_BYTES, streams: 1, sending: Sending::Joined });
    }
    loads
}

/// State of a run.
struct Schedule<'a> {
    options: &'a Options,
    bench: &'a Bench,
    rounds: usize,
    done: usize,
    steps: usize,
    paces: Vec<f64>,
}

impl Schedule<'_> {
    /// Measures all members in interleaved rounds under one load.
    fn measure(
        &mut self,
        load: ReceiveLoad,
        members: &[&'static ReceiveSpec],
        results: &mut Results,
    ) -> Result<(), Error> {
        let mut cases: Vec<Case> = members.iter().map(|spec| Case::new(spec, load)).collect();
        for case in &mut cases {
            self.tick(case);
            if let Err(error) = self.bench.verify(case) {
                case.failed = Some(error.to_string());
            }
        }
        let mut run_bytes =
            vec![WARM_RUN_BYTES.min(PACKETS_MIN * u64::from(load.bytes)); cases.len()];
        let mut sending = BTreeMap::new();
        for round in 0..=self.rounds {
            self.paces.push(pace().as_nanos() as f64);
            for turn in 0..cases.len() {
                let index = measure::schedule::in_turn(round, turn, cases.len());
                let case = &mut cases[index];
                self.tick(case);
                if self.options.stopped() || case.failed.is_some() {
                    continue;
                }
                // With a program on the far end the near end accepts no super-packets.
                let whole = case.spec.name != XDP;
                let alone = sending.entry(whole).or_insert_with(Vec::new);
                match self.bench.time_after_sending(case, run_bytes[index], whole, alone) {
                    Ok(sample) if round == 0 => run_bytes[index] = run_bytes_of(&sample),
                    Ok(sample) => case.samples.push(sample),
                    Err(error) => case.failed = Some(error.to_string()),
                }
            }
        }
        add(load, &cases, &sending, results);
        Ok(())
    }

    fn tick(&mut self, case: &Case) {
        self.options.progress(self.done, self.steps, &case.title());
        self.done += 1;
    }
}

/// Returns the bytes whose sending lasts a third of a second.
fn run_bytes_of(sample: &Sample) -> u64 {
    (RUN_SECONDS / sample.whole.max(0.001) * 1e9) as u64
}

fn row(member: &str, load: ReceiveLoad, metric: &str, unit: &str, figure: Figure) -> Row {
    Row::new("receive", member, metric, unit, figure)
        .with("bytes", load.bytes)
        .with("streams", load.streams)
        .with("sender", load.sending.name())
}

/// Adds the rows of a load.
fn add(
    load: ReceiveLoad,
    cases: &[Case],
    sending: &BTreeMap<bool, Vec<f64>>,
    results: &mut Results,
) {
    let cost_of = |case: &Case| Figure::of(case.samples.iter().map(|s| s.cpu_s_per_gb).collect());
    let measured: Vec<&Case> = cases.iter().filter(|case| !case.samples.is_empty()).collect();
    for case in &measured {
        let name = case.spec.name;
        let figure = |of: fn(&Sample) -> f64| Figure::of(case.samples.iter().map(of).collect());
        let cpu_s_per_gb = cost_of(case);
        let packets = cpu_s_per_gb
            .samples
            .iter()
            .map(|cpu_s_per_gb| 1e3 / (cpu_s_per_gb * f64::from(load.bytes)));
        let per_core = Figure::of(packets.collect());
        results.rows.push(row(name, load, "CPU cost", "s/GB", cpu_s_per_gb.clone()));
        for reference in REFERENCES {
            let other = measured.iter().find(|case| case.spec.name == *reference);
            let ratio = other.and_then(|other| cpu_s_per_gb.relative_to(&cost_of(other)));
            if let Some(ratio) = ratio.filter(|_| name != *reference) {
                let metric = format!("relative to {reference}");
                results.rows.push(row(name, load, &metric, "", ratio));
            }
        }
        results.rows.push(row(name, load, "a core takes in", "packets/µs", per_core));
        results.rows.push(row(name, load, "calls", "per packet", figure(|s| s.calls)));
        results.rows.push(row(name, load, "waits", "per packet", figure(|s| s.waits)));
        results.rows.push(row(name, load, "copies", "per byte", figure(|s| s.copies)));
        let others = figure(|sample| sample.others_share).median;
        if others > OTHERS_MAX {
            results.warn(Warning::OtherLoad { busy_share: others });
        }
    }
    for (whole, cpu_costs) in sending {
        let member = if *whole { "sending, subtracted" } else { "sending cut, subtracted" };
        let figure = Figure::of(cpu_costs.clone());
        results.rows.push(row(member, load, "CPU cost of sending", "s/GB", figure).as_detail());
    }
    for case in cases {
        if let Some(found) = &case.failed {
            results.complete = false;
            let (member, found) = (case.title(), found.clone());
            results.warn(Warning::MemberFailed { member, found });
        }
    }
}

/// References: one datagram a call, and the usual way to receive many.
const REFERENCES: &[&str] = &["recvfrom", "recvmmsg"];
/// Way that attaches a program to the device.
const XDP: &str = "xdp";
/// 12 bytes of RTP and 7 packets of transport stream.
const SIZES: &[u32] = &[64, 256, 512, USUAL_BYTES];
const QUICK_SIZES: &[u32] = &[64, USUAL_BYTES];
/// Ethernet's MTU without the IP and UDP headers.
const BYTES_MAX: u32 = 1472;
const STREAMS: &[usize] = &[16, 100];
const STREAMS_MAX: usize = 1000;
const FULL_ROUNDS: usize = 7;
const QUICK_ROUNDS: usize = 3;
const WARM_RUN_BYTES: u64 = 20_000_000;
const PACKETS_MIN: u64 = 40_000;
const RUN_SECONDS: f64 = 0.3;
const OTHERS_MAX: f64 = 0.05;
