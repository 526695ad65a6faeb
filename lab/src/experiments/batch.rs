// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab batch`: how many packets a call should carry: its bill against the gap it leaves
//! between packets at the receiver.
//!
//! The bill is that of `paths`, over the number of packets a call carries. The gap is taken with a
//! stream paced to 50 Mb/s: a call every so many packets, when its last is due, through a veth pair
//! to a receiver that polls without sleeping on another core and takes the time of each packet. A
//! burst comes at once and is followed by its own length of silence, which a receiver's buffer has
//! to bear.
//!
//! Sources: udp(7) (`UDP_SEGMENT`); RFC 3550 §6.4.1 (jitter is what receivers see of it).
//! Does not do: network between the two; a switch would add its own.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use paths::{Crossings, Host, Open, PATHS, Spec, Transport, Via};

use crate::Options;
use crate::bench::{Bench, Case};
use crate::error::Error;
use crate::material::Image;
use crate::network::Sink;
use crate::results::{Results, Row};
use crate::sender::Sender;
use crate::statistics::Figure;
use crate::warning::Warning;

use super::paths::USUAL_BYTES;

pub(crate) fn run(options: &Options) -> Result<Results, Error> {
    let mut results = Results::new("batch", options.command.clone());
    let rounds = options.rounds.unwrap_or(if options.quick { 3 } else { 7 }).max(1);
    let counts = if options.quick { QUICK_COUNTS } else { COUNTS };
    let mut bench = Bench::new(&options.sinks)?;
    let image = bench.material.image(USUAL_BYTES)?;
    let members = members(options, &mut results);
    if members.is_empty() {
        return Err(Error::nothing_to_measure(options));
    }
    bench.network.make(&Sink::Veth)?;
    let sinks = options.sinks_or(&[Sink::IfbSoftware, Sink::IfbDevice]);
    let mut cases = Vec::new();
    for (spec, count) in members.iter().flat_map(|spec| counts.iter().map(move |n| (*spec, *n))) {
        cases.extend(sinks.iter().map(|sink| Case::new(spec, sink, USUAL_BYTES, count)));
    }
    let mut course = Course { options, done: 0, of: cases.len() * (rounds + 1) };
    results.notes.push(format!(
        "{rounds} rounds of {} MB a case, interleaved; gaps of a stream of {} Mb/s for {} ms a \
         round through a veth pair, the receiver polling",
        RUN_BYTES / 1_000_000,
        STREAM_BITS_PER_SECOND / 1_000_000,
        GAP_RUN.as_millis()
    ));
    course.bills(&mut bench, &image, &mut cases, rounds, &mut results)?;
    course.gaps(&bench, &image, &members, counts, &mut results)?;
    results.complete = results.complete && !options.stopped();
    Ok(results)
}

/// Paths that can carry more than a packet a call, by socket.
fn members(options: &Options, results: &mut Results) -> Vec<&'static Spec> {
    let host = Host::here();
    let mut members = Vec::new();
    for spec in PATHS.iter().filter(|spec| spec.transport == Transport::Rtp) {
        let many = matches!(spec.crossings, Crossings::PerRun(_) | Crossings::PerBatch(_));
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

struct Course<'a> {
    options: &'a Options,
    done: usize,
    of: usize,
}

impl Course<'_> {
    fn tick(&mut self, what: &str) {
        self.options.progress(self.done, self.of, what);
        self.done += 1;
    }

    fn bills(
        &mut self,
        bench: &mut Bench,
        image: &Image,
        cases: &mut [Case],
        rounds: usize,
        results: &mut Results,
    ) -> Result<(), Error> {
        for case in cases.iter_mut() {
            if let Err(error) = bench.verify(case, image) {
                case.failed = Some(error.to_string());
            }
        }
        for _ in 0..rounds {
            for case in cases.iter_mut() {
                self.tick(&case.title());
                if self.options.stopped() || case.failed.is_some() {
                    continue;
                }
                let to = bench.network.make(&case.sink)?;
                match bench.time(case, image, to, (RUN_BYTES, 0.0)) {
                    Ok(sample) => case.samples.push(sample),
                    Err(error) => case.failed = Some(error.to_string()),
                }
            }
        }
        results.complete = true;
        for case in cases.iter() {
            if let Some(found) = &case.failed {
                results.complete = false;
                let (member, found) = (case.title(), found.clone());
                results.warn(Warning::MemberFailed { member, found });
            }
            if case.samples.is_empty() {
                continue;
            }
            let bills = case.samples.iter().map(|sample| sample.bill).collect();
            results.rows.push(row(
                case.spec,
                case.segments,
                case.sink.name(),
                "bill",
                "s/GB",
                bills,
            ));
        }
        Ok(())
    }

    fn gaps(
        &mut self,
        bench: &Bench,
        image: &Image,
        members: &[&'static Spec],
        counts: &[u32],
        results: &mut Results,
    ) -> Result<(), Error> {
        for &spec in members {
            for &count in counts {
                self.tick(&format!("{spec}, gaps of bursts of {count}"));
                let (mut middle, mut most) = (Vec::new(), Vec::new());
                for _ in 0..GAP_ROUNDS {
                    if self.options.stopped() {
                        break;
                    }
                    let gaps = gaps_of(spec, bench, image, count)?;
                    let at = |share: f64| gaps[((gaps.len() - 1) as f64 * share) as usize];
                    middle.push(at(0.5));
                    most.push(at(0.999));
                }
                if middle.is_empty() {
                    continue;
                }
                let sink = Sink::Veth.name();
                results.rows.push(row(spec, count, sink, "gap, median", "µs", middle));
                results.rows.push(row(spec, count, sink, "gap, 99.9 %", "µs", most));
            }
        }
        Ok(())
    }
}

fn row(spec: &Spec, count: u32, sink: &str, metric: &str, unit: &str, samples: Vec<f64>) -> Row {
    Row::new("batch", spec.name, metric, unit, Figure::of(samples))
        .with("transport", spec.transport)
        .with("bytes", USUAL_BYTES)
        .with("segments", count)
        .with("sink", sink)
}

/// Sorted gaps between neighbouring packets of a paced stream in bursts of `count`, µs.
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
    let mut sender = Sender::open(spec, &bench.material, image, sizes, to)?;
    let over = AtomicBool::new(false);
    let arrivals = std::thread::scope(|scope| {
        let poller = scope.spawn(|| {
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
        // The last burst is in the receiver's buffer by now, or never.
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

/// A call whenever the last packet of its burst is due.
fn send_paced(sender: &mut Sender<'_>, count: u32) -> Result<(), paths::SendError> {
    let interval = f64::from(USUAL_BYTES) * 8.0 / STREAM_BITS_PER_SECOND as f64;
    let burst = Duration::from_secs_f64(interval * f64::from(count));
    let began = Instant::now();
    let mut due = began + burst;
    while due < began + GAP_RUN {
        // Sleeping is late by a timer's slack; the last bit is waited for awake.
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
const RUN_BYTES: u64 = 40_000_000;
const STREAM_BITS_PER_SECOND: u64 = 50_000_000;
const GAP_RUN: Duration = Duration::from_millis(250);
const GAP_ROUNDS: usize = 3;
const AWAKE: Duration = Duration::from_micros(200);
const ARRIVALS_MAX: usize = 1 << 16;
