// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loss at an offered rate: a sender on another core, a receiver that polls at intervals.
//!
//! Three senders ([`OFFERS`]): many streams in segmented sends, one stream of the usual size with a
//! send for each packet, and one of small packets. The receiver works as `pagewire receive`: it
//! reads all datagrams there are and sleeps, for some milliseconds or as long as the path allows,
//! so the core share of a path is its thread's time over the wall-clock time. With the sender on
//! another core the kernel does its softirq work there, unlike with a card; the CPU cost beside
//! includes it. A rate that the sender did not reach is reported as the rate it reached.
//!
//! Sources: RFC 2544 §26.1 and §26.3 (throughput, frame loss rate) for the reported figures.
//! Does not search for the rate at which the first packet is lost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use paths::ReceiveSpec;

use super::row;
use measure::Error;
use measure::Options;
use measure::feed::{BurstFeed, Sending};
use measure::meter::{Cores, pin, thread_time};
use measure::receive_bench::{Bench, ReceiveLoad};
use measure::results::Results;
use measure::statistics::Figure;
use measure::warning::Warning;

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
    results.notes.push(format!(
        "loss: {} ms a run, the receiver looking every {} ms or more often; of {ROUNDS} runs",
        RUN.as_millis(),
        LOOK.as_millis()
    ));
    let rates = |offer: &Offer| if options.quick { offer.quick_rates } else { offer.rates };
    let mut steps = OFFERS.iter().map(|offer| rates(offer).len()).sum::<usize>();
    steps *= ROUNDS * members.len();
    let mut measured = Measured { options, bench, cores, members, steps, done: 0 };
    for offer in OFFERS {
        for &rate in rates(offer) {
            measured.at_rate(offer.load, rate, results);
            if options.stopped() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// State of a run over all offers.
struct Measured<'a> {
    options: &'a Options,
    bench: &'a Bench,
    cores: &'a Cores,
    members: &'a [&'static ReceiveSpec],
    steps: usize,
    done: usize,
}

impl Measured<'_> {
    /// Measures all members in interleaved rounds at one rate.
    fn at_rate(&mut self, load: ReceiveLoad, rate: u64, results: &mut Results) {
        let members = self.members;
        let mut offered: Vec<Vec<Offered>> = members.iter().map(|_| Vec::new()).collect();
        for _ in 0..ROUNDS {
            for (spec, offered) in members.iter().zip(&mut offered) {
                if self.options.stopped() {
                    return;
                }
                let what = format!("{spec}, {rate} packets a second offered");
                self.options.progress(self.done, self.steps, &what);
                self.done += 1;
                match offer(self.bench, self.cores, spec, load, rate) {
                    Ok(one) => offered.push(one),
                    Err(error) => {
                        results.complete = false;
                        let (member, found) = (what, error.to_string());
                        results.warn(Warning::MemberFailed { member, found });
                    }
                }
            }
        }
        for (spec, offered) in members.iter().zip(offered).filter(|(_, of)| !of.is_empty()) {
            let mut push = |metric: &str, unit: &str, of: fn(&Offered) -> f64| {
                let figure = Figure::of(offered.iter().map(of).collect());
                let row = row(spec.name, load, metric, unit, figure);
                results.rows.push(row.with("offered", rate / 1000).as_detail());
            };
            push("lost", "%", |one| one.lost_share * 100.0);
            push("receiver's core", "of 1", |one| one.busy_share);
            push("offered rate reached", "packets/ms", |one| one.rate / 1e3);
        }
    }
}

/// Result of a run at a rate.
struct Offered {
    lost_share: f64,
    /// Share of the receiving thread's processor time in the wall-clock time.
    busy_share: f64,
    /// Packets a second that the sender sent.
    rate: f64,
}

fn offer(
    bench: &Bench,
    cores: &Cores,
    spec: &'static ReceiveSpec,
    load: ReceiveLoad,
    rate: u64,
) -> Result<Offered, Error> {
    let mut intake = bench.open(spec, load.streams)?;
    let look = LOOK.min(intake.path.pause_max());
    let mut feed = BurstFeed::new(&bench.fixture, load.sizes(), load.sending, &intake.to)?;
    let (sent, over) = (&AtomicU64::new(0), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            pin(cores, true);
            let done = send_paced(&mut feed, rate);
            sent.store(feed.stats.packets, Ordering::Release);
            over.store(true, Ordering::Release);
            done
        });
        let (began, before) = (Instant::now(), thread_time());
        let (mut received, mut received_at) = (0, Instant::now());
        let mut busy_share = 0.0;
        // The loop continues until the last datagram has certainly been handed over.
        loop {
            let is_over = over.load(Ordering::Acquire);
            let count = intake.take(u64::MAX, Duration::ZERO, |_, datagram| {
                std::hint::black_box(datagram.first());
            })?;
            received += count;
            if count > 0 {
                received_at = Instant::now();
            }
            if !is_over {
                let wall = began.elapsed().as_secs_f64();
                busy_share = (thread_time() - before).as_secs_f64() / wall;
            }
            if is_over && received_at.elapsed() >= QUIET {
                break;
            }
            std::thread::sleep(look);
        }
        let seconds = sender.join().expect("it does not panic")?;
        let sent = sent.load(Ordering::Acquire);
        let lost_share = (sent - received.min(sent)) as f64 / sent.max(1) as f64;
        Ok(Offered { lost_share, busy_share, rate: sent as f64 / seconds })
    })
}

/// Sends bursts whenever they are due; returns the elapsed seconds.
fn send_paced(feed: &mut BurstFeed<'_>, rate: u64) -> Result<f64, Error> {
    let began = Instant::now();
    let mut elapsed = Duration::ZERO;
    while elapsed < RUN {
        let due = (elapsed.as_secs_f64() * rate as f64) as u64;
        if feed.stats.packets < due {
            feed.turn()?;
        } else {
            std::thread::sleep(PACE);
        }
        elapsed = began.elapsed();
    }
    Ok(elapsed.as_secs_f64())
}

/// Load and rates of a sender.
struct Offer {
    load: ReceiveLoad,
    /// Packets a second of all streams together.
    rates: &'static [u64],
    quick_rates: &'static [u64],
}

/// 0.5 to 8.5 Gb/s of joined packets; up to 1.5 Gb/s of single ones; up to 500,000 small ones.
const OFFERS: &[Offer] = &[
    Offer {
        load: ReceiveLoad { bytes: 1328, streams: 16, sending: Sending::Joined },
        rates: &[50_000, 100_000, 200_000, 400_000, 800_000],
        quick_rates: &[200_000],
    },
    Offer {
        load: ReceiveLoad { bytes: 1328, streams: 1, sending: Sending::Apart },
        rates: &[24_000, 70_000, 142_000],
        quick_rates: &[142_000],
    },
    Offer {
        load: ReceiveLoad { bytes: 64, streams: 1, sending: Sending::Apart },
        rates: &[40_000, 250_000, 500_000],
        quick_rates: &[500_000],
    },
];
const ROUNDS: usize = 3;
const RUN: Duration = Duration::from_millis(700);
const LOOK: Duration = Duration::from_millis(2);
/// A ring hands over its last block some milliseconds later.
const QUIET: Duration = Duration::from_millis(50);
const PACE: Duration = Duration::from_micros(200);
