// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab batch`: packets a send call: CPU cost against the gap between packets at the
//! receiver.
//!
//! The CPU cost is that of `paths`, by the number of packets a call; and that of 64 sockets served
//! one after the other, their bursts sent one by one or all at once. The gap is measured with a
//! stream paced to 50 Mb/s: one call sends a number of packets when the last of them is due,
//! through a veth pair, to a receiver that polls without sleeping on another core and records the
//! time of each packet. A burst arrives at once, and a silence of its own length follows; a
//! receiver's buffer must cover it.
//!
//! Sources: udp(7) (`UDP_SEGMENT`); RFC 3550 §6.4.1 (jitter is what receivers see of it).
//! Does not model a network between the two; a switch would add its own gaps.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use paths::{Host, Open, PATHS, Spec, SystemCalls, Transport, Via};

use measure::Error;
use measure::Options;
use measure::bench::{Bench, Case};
use measure::fixture::Image;
use measure::meter::pin;
use measure::network::Sink;
use measure::results::{Results, Row};
use measure::schedule::{Group, Scale, Schedule};
use measure::sender::Sender;
use measure::statistics::Figure;

use measure::fixture::USUAL_BYTES;

pub(crate) fn run(options: &Options) -> Result<Results, Error> {
    let mut results = Results::new("batch", options.command.clone());
    results.complete = true;
    let (rounds, bytes) = if options.quick { (3, QUICK_BYTES) } else { (7, FULL_BYTES) };
    let scale = Scale { rounds: options.rounds.unwrap_or(rounds).max(1), bytes };
    let counts = if options.quick { QUICK_COUNTS } else { COUNTS };
    let members = members(options, &mut results);
    if members.is_empty() {
        return Err(Error::nothing_to_measure(options));
    }
    let mut bench = Bench::new(&options.sinks)?;
    let sinks = options.sinks_or(&[Sink::IfbSoftware, Sink::IfbDevice]);
    let groups: Vec<Group> = sinks.iter().map(|sink| group(&members, counts, sink)).collect();
    Schedule::new(options, scale, &groups).run(&mut bench, groups, &mut results)?;
    let image = bench.fixture.image(USUAL_BYTES)?;
    let mut extra = Extra { options, bench: &bench, image: &image, results: &mut results };
    extra.together(&members, &sinks)?;
    extra.gaps(&members, counts)?;
    results.complete = results.complete && !options.stopped();
    Ok(results)
}

/// Returns every member at every number of packets a call.
fn group(members: &[&'static Spec], counts: &[u32], sink: &Sink) -> Group {
    let cases = members
        .iter()
        .flat_map(|spec| counts.iter().map(|&count| Case::new(spec, sink, USUAL_BYTES, count)));
    Group { sink: sink.clone(), bytes: USUAL_BYTES, cases: cases.collect() }
}

/// Returns the paths that can send more than a packet a call, by socket.
fn members(options: &Options, results: &mut Results) -> Vec<&'static Spec> {
    let host = Host::here();
    let mut members = Vec::new();
    for spec in PATHS.iter().filter(|spec| spec.transport == Transport::Rtp) {
        let many = matches!(spec.system_calls, SystemCalls::PerRun(_) | SystemCalls::PerBatch(_));
        let socket = matches!(spec.open, Open::Stream { via: Via::Socket, .. });
        let named = options.members.is_empty() || options.members.iter().any(|n| n == spec.name);
        if !(many && socket && named) {
            continue;
        }
        match (spec.probe)(&host) {
            Ok(()) => members.push(*spec),
            Err(reason) => results.notes.push(format!("skip: {spec}: {reason}")),
        }
    }
    members
}

/// Measurements beside the CPU cost of one session.
struct Extra<'a> {
    options: &'a Options,
    bench: &'a Bench,
    image: &'a Image,
    results: &'a mut Results,
}

impl Extra<'_> {
    /// Measures the CPU cost with many sessions sent at once ([`paths::StreamPath::send_all`]).
    fn together(&mut self, members: &[&'static Spec], sinks: &[Sink]) -> Result<(), Error> {
        self.results.notes.push(format!(
            "sessions=1 hands over a session's burst at a time, sessions={CROWD} those of so many; \
             both send to {CROWD} sockets in turn, {CROWD_PACKETS} packets each"
        ));
        for sink in sinks {
            let to = self.bench.address(sink)?;
            let mut cpu_costs = vec![(Vec::new(), Vec::new()); members.len()];
            for round in 0..=CROWD_ROUNDS {
                for (spec, (alone, together)) in members.iter().zip(&mut cpu_costs) {
                    if self.options.stopped() {
                        return Ok(());
                    }
                    let what = format!("{spec}, {CROWD} sessions, {}", sink.name());
                    self.options.progress(round, CROWD_ROUNDS + 1, &what);
                    for (at_once, cpu_costs) in [(false, alone), (true, together)] {
                        let cpu_s_per_gb =
                            self.bench.crowd(spec, self.image, to, (CROWD, at_once))?;
                        if round > 0 {
                            cpu_costs.push(cpu_s_per_gb);
                        }
                    }
                }
            }
            let metric = "CPU cost of 64 sockets";
            for (spec, (alone, together)) in members.iter().zip(cpu_costs) {
                for (sessions, cpu_costs) in [(1, alone), (CROWD, together)] {
                    let row = row(spec, CROWD_PACKETS, sink.name(), (metric, "s/GB"), cpu_costs);
                    self.results.rows.push(row.with("sessions", sessions));
                }
            }
        }
        Ok(())
    }

    fn gaps(&mut self, members: &[&'static Spec], counts: &[u32]) -> Result<(), Error> {
        if self.bench.cores.count() < 2 {
            let note = "skip: gaps between packets need a second core for the receiver";
            self.results.notes.push(note.to_owned());
            return Ok(());
        }
        self.results.notes.push(format!(
            "gaps of a stream of {} Mb/s, {} ms a round, the receiver polling on another core",
            STREAM_BITS_PER_SECOND / 1_000_000,
            GAP_RUN.as_millis()
        ));
        let of = members.len() * counts.len();
        for (index, &spec) in members.iter().enumerate() {
            for (place, &count) in counts.iter().enumerate() {
                let what = format!("{spec}, gaps of bursts of {count}");
                self.options.progress(index * counts.len() + place, of, &what);
                let (mut middle, mut most) = (Vec::new(), Vec::new());
                for _ in 0..GAP_ROUNDS {
                    if self.options.stopped() {
                        return Ok(());
                    }
                    let gaps = gaps_of(spec, self.bench, self.image, count)?;
                    let at = |share: f64| gaps[((gaps.len() - 1) as f64 * share) as usize];
                    middle.push(at(0.5));
                    most.push(at(0.999));
                }
                let sink = Sink::Veth.name();
                self.results.rows.push(row(spec, count, sink, ("gap, median", "µs"), middle));
                self.results.rows.push(row(spec, count, sink, ("gap, 99.9 %", "µs"), most));
            }
        }
        Ok(())
    }
}

fn row(
    spec: &Spec,
    count: u32,
    sink: &str,
    (metric, unit): (&str, &str),
    samples: Vec<f64>,
) -> Row {
    Row::new("batch", spec.name, metric, unit, Figure::of(samples))
        .with("transport", spec.transport)
        .with("bytes", USUAL_BYTES)
        .with("segments", count)
        .with("sink", sink)
}

/// Returns the sorted gaps between neighbouring packets of a paced stream in bursts of `count`, µs.
fn gaps_of(
    spec: &'static Spec,
    bench: &Bench,
    image: &Image,
    count: u32,
) -> Result<Vec<f64>, Error> {
    let wrong = |found: String| Error::Wrong { member: spec.to_string(), found };
    let socket = bench.network.far_udp(0)?;
    socket.set_nonblocking(true).map_err(Error::host("ioctl FIONBIO"))?;
    let to: SocketAddr = socket.local_addr().map_err(Error::host("getsockname"))?;
    let sizes = (USUAL_BYTES, count);
    let mut sender = Sender::open(spec, &bench.fixture, image, sizes, to)?;
    let over = AtomicBool::new(false);
    let arrivals = std::thread::scope(|scope| {
        let poller = scope.spawn(|| {
            pin(&bench.cores, true);
            let mut arrivals = Vec::with_capacity(ARRIVALS_MAX);
            let mut buffer = [0; 2048];
            while arrivals.len() < ARRIVALS_MAX {
                match socket.recv(&mut buffer) {
                    Ok(_) => arrivals.push(Instant::now()),
                    Err(_) if over.load(Ordering::Relaxed) => break,
                    Err(_) => std::hint::spin_loop(),
                }
            }
            arrivals
        });
        let sent = send_paced(&mut sender, count);
        // The last burst is in the receiver's buffer by now, or lost.
        std::thread::sleep(Duration::from_millis(2));
        over.store(true, Ordering::Relaxed);
        let arrivals = poller.join().expect("it does not panic");
        sent.map(|()| arrivals).map_err(|error| wrong(error.to_string()))
    })?;
    let gaps = arrivals.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1e6);
    let mut gaps: Vec<f64> = gaps.skip(count as usize).collect();
    if gaps.is_empty() {
        return Err(wrong(format!("no packet of bursts of {count} arrived")));
    }
    gaps.sort_by(f64::total_cmp);
    Ok(gaps)
}

/// Sends each burst when its last packet is due.
fn send_paced(sender: &mut Sender<'_>, count: u32) -> Result<(), paths::SendError> {
    let interval = f64::from(USUAL_BYTES) * 8.0 / STREAM_BITS_PER_SECOND as f64;
    let burst = Duration::from_secs_f64(interval * f64::from(count));
    let began = Instant::now();
    let mut due = began + burst;
    while due < began + GAP_RUN {
        // Sleeping is late by a timer's slack; the rest of the time is a busy wait.
        if let Some(left) = due.checked_duration_since(Instant::now() + AWAKE) {
            std::thread::sleep(left);
        }
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        sender.step()?;
        due += burst;
    }
    Ok(())
}

const COUNTS: &[u32] = &[1, 2, 4, 7, 10, 16, 24, 32, 44];
const QUICK_COUNTS: &[u32] = &[1, 10, 44];
const FULL_BYTES: u64 = 280_000_000;
const QUICK_BYTES: u64 = 60_000_000;
/// Sessions of a thread that may be due in the same millisecond.
const CROWD: usize = 64;
/// A burst of 20 ms of 5 Mb/s.
const CROWD_PACKETS: u32 = 10;
const CROWD_ROUNDS: usize = 7;
const STREAM_BITS_PER_SECOND: u64 = 50_000_000;
const GAP_RUN: Duration = Duration::from_millis(250);
const GAP_ROUNDS: usize = 3;
const AWAKE: Duration = Duration::from_micros(200);
const ARRIVALS_MAX: usize = 1 << 16;
