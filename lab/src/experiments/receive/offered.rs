// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is lost at a given rate: a sender on another core, a receiver that comes now and then.
//!
//! The receiver does as `pagewire receive` does: it takes all that is there and sleeps for some
//! milliseconds, so what a way needs of a core is its thread's time over the wall's. With the
//! sender on another core the kernel does its softirq work there, where no card would; the bill
//! beside has it. A rate that the sender itself did not reach is said to be the one it reached.
//!
//! Sources: RFC 2544 §26.1 and §26.3 (throughput, frame loss rate) for what is reported.
//! Does not do: search for the rate at which the first packet is lost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use paths::ReceiveSpec;

use super::case::{Bench, Load};
use super::feed::{Feed, Sending};
use super::row;
use crate::Options;
use crate::error::Error;
use crate::meter::{Cores, pin, thread_time};
use crate::results::Results;
use crate::statistics::Figure;
use crate::warning::Warning;

/// Measures every member at every rate.
pub(super) fn run(
    options: &Options,
    bench: &Bench,
    cores: &Cores,
    members: &[&'static ReceiveSpec],
    results: &mut Results,
) -> Result<(), Error> {
    if cores.count() < 2 {
        let note = "skip: loss at offered rates needs a second core for the sender";
        results.notes.push(note.to_owned());
        return Ok(());
    }
    let rates = if options.quick { QUICK_RATES } else { RATES };
    results.notes.push(format!(
        "loss: {STREAMS} streams of 1328-byte packets in segmented sends, {} ms a run, the \
         receiver looking every {} ms; of {ROUNDS} runs",
        RUN.as_millis(),
        LOOK.as_millis()
    ));
    for (place, &rate) in rates.iter().enumerate() {
        let mut lost = vec![Vec::new(); members.len()];
        let mut busy = vec![Vec::new(); members.len()];
        let mut reached = vec![Vec::new(); members.len()];
        for round in 0..ROUNDS {
            for (index, spec) in members.iter().enumerate() {
                if options.stopped() {
                    return Ok(());
                }
                let done = (place * ROUNDS + round) * members.len() + index;
                let what = format!("{spec}, {rate} packets a second offered");
                options.progress(done, rates.len() * ROUNDS * members.len(), &what);
                match offer(bench, cores, spec, rate) {
                    Ok(offered) => {
                        lost[index].push(offered.lost_share * 100.0);
                        busy[index].push(offered.busy_share);
                        reached[index].push(offered.rate / 1e3);
                    }
                    Err(error) => {
                        results.complete = false;
                        let (member, found) = (what, error.to_string());
                        results.warn(Warning::MemberFailed { member, found });
                    }
                }
            }
        }
        let load = Load { bytes: BYTES, streams: STREAMS, sending: Sending::Joined };
        let every = lost.into_iter().zip(busy).zip(reached);
        for (spec, ((lost, busy), reached)) in members.iter().zip(every) {
            if lost.is_empty() {
                continue;
            }
            let mut push = |metric: &str, unit: &str, samples: Vec<f64>| {
                let row = row(spec.name, load, metric, unit, Figure::of(samples));
                results.rows.push(row.with("offered", rate / 1000).as_detail());
            };
            push("lost", "%", lost);
            push("receiver's core", "of 1", busy);
            push("offered rate reached", "packets/ms", reached);
        }
    }
    Ok(())
}

/// What a run at a rate gave.
struct Offered {
    lost_share: f64,
    /// Of the wall's time, the receiving thread's.
    busy_share: f64,
    /// Packets a second that the sender sent.
    rate: f64,
}

fn offer(
    bench: &Bench,
    cores: &Cores,
    spec: &'static ReceiveSpec,
    rate: u64,
) -> Result<Offered, Error> {
    let mut intake = bench.open(spec, STREAMS)?;
    let load = Load { bytes: BYTES, streams: STREAMS, sending: Sending::Joined };
    let mut feed = Feed::new(&bench.material, load.sizes(), load.sending, &intake.to)?;
    let (sent, over) = (&AtomicU64::new(0), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            pin(cores, true);
            let done = send_paced(&mut feed, rate);
            sent.store(feed.tally.packets, Ordering::Release);
            over.store(true, Ordering::Release);
            done
        });
        let (began, before) = (Instant::now(), thread_time());
        let (mut taken, mut quiet) = (0, 0);
        let mut busy_share = 0.0;
        // Some looks more than the last datagram needs to be handed over.
        while quiet < QUIET_LOOKS {
            let came = intake.take(u64::MAX, Duration::ZERO, |_, datagram| {
                std::hint::black_box(datagram.first());
            })?;
            taken += came;
            let ended = over.load(Ordering::Acquire);
            if !ended {
                let wall = began.elapsed().as_secs_f64();
                busy_share = (thread_time() - before).as_secs_f64() / wall;
            }
            quiet = if ended && came == 0 { quiet + 1 } else { 0 };
            std::thread::sleep(LOOK);
        }
        let seconds = sender.join().expect("it does not panic")?;
        let sent = sent.load(Ordering::Acquire);
        let lost_share = (sent - taken.min(sent)) as f64 / sent.max(1) as f64;
        Ok(Offered { lost_share, busy_share, rate: sent as f64 / seconds })
    })
}

/// Turns whenever they are due; returns how many seconds that took.
fn send_paced(feed: &mut Feed<'_>, rate: u64) -> Result<f64, Error> {
    let began = Instant::now();
    let mut elapsed = Duration::ZERO;
    while elapsed < RUN {
        let due = (elapsed.as_secs_f64() * rate as f64) as u64;
        if feed.tally.packets < due {
            feed.turn()?;
        } else {
            std::thread::sleep(PACE);
        }
        elapsed = began.elapsed();
    }
    Ok(elapsed.as_secs_f64())
}

const BYTES: u32 = 1328;
const STREAMS: usize = 16;
/// Packets a second of all streams: 0.5 to 8.5 Gb/s.
const RATES: &[u64] = &[50_000, 100_000, 200_000, 400_000, 800_000];
const QUICK_RATES: &[u64] = &[200_000];
const ROUNDS: usize = 3;
const RUN: Duration = Duration::from_millis(700);
const LOOK: Duration = Duration::from_millis(2);
const QUIET_LOOKS: u32 = 25;
const PACE: Duration = Duration::from_micros(200);
