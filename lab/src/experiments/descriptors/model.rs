// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times of the ring model: nanoseconds a packet in the driver's loop, by conversion variant.
//!
//! With the card ahead, the card writes a whole ring, then the driver polls it: only the driver is
//! timed, and it never waits. In the other mode both work at once, and cache lines move between the
//! cores meanwhile: the time is that of the slower side and of this transfer. A sample is the
//! median of many rings, as other programs interrupt some. Variants run in interleaved rounds,
//! every other round backwards.
//!
//! Does not separate the driver's cost from the card's when both are at work.

use std::time::Instant;

use crate::specimens::descriptor::Descriptor;

use super::ring::{Driver, RING, Ring, card};
use super::{AHEAD, PLACE, RUNNING, SHORT, reference};
use measure::Error;
use measure::Options;
use measure::memory::TIMES;
use measure::meter::{Cores, pin};
use measure::results::{Results, Row};
use measure::statistics::Figure;

/// Overlap of card and driver.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Ahead,
    Running,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Ahead => AHEAD,
            Mode::Running => RUNNING,
        }
    }
}

/// Verifies and times all variants in both modes.
pub(super) fn measure(
    variants: &[Descriptor],
    options: &Options,
    cores: &Cores,
    results: &mut Results,
) -> Result<(), Error> {
    if cores.count() < 2 {
        results.notes.push("skip: the ring model: card and driver need a core each".to_owned());
        return Ok(());
    }
    let (rounds, rings) = if options.quick { (5, 50) } else { (21, 200) };
    let rounds = options.rounds.unwrap_or(rounds).max(1);
    results.notes.push(format!(
        "ring model: {RING} descriptors of 16 bytes, the card on another core; {rounds} rounds of \
         {rings} rings a variant, interleaved; hashes, in order, and lengths of all packets were \
         those that the card wrote"
    ));
    for mode in [Mode::Ahead, Mode::Running] {
        let mut times = vec![Vec::new(); variants.len()];
        // The first round is a warm-up.
        for round in 0..=rounds {
            options.progress(round, rounds, mode.name());
            for turn in 0..variants.len() {
                let member = measure::schedule::in_turn(round, turn, variants.len());
                let time = sample(variants[member], mode, rings, cores)?;
                if round > 0 {
                    times[member].push(time);
                }
            }
            if options.stopped() {
                break;
            }
        }
        add(variants, mode, &times, results);
    }
    Ok(())
}

/// Returns nanoseconds a packet.
fn sample(variant: Descriptor, mode: Mode, rings: usize, cores: &Cores) -> Result<f64, Error> {
    let ring = Ring::new();
    let mut times = Vec::with_capacity(rings);
    let (sums, done) = std::thread::scope(|scope| {
        let card = scope.spawn(|| {
            pin(cores, true);
            card(&ring)
        });
        let mut driver = Driver::new(&ring);
        let mut drain = |until: usize| {
            let began = Instant::now();
            while driver.consumed() < until {
                driver.poll(|descriptors, packets| variant.short(descriptors, packets));
            }
            began.elapsed().as_nanos() as f64
        };
        match mode {
            Mode::Ahead => {
                for number in 1..=rings {
                    ring.want(number * RING);
                    ring.await_written(number * RING);
                    times.push(drain(number * RING) / RING as f64);
                }
            }
            Mode::Running => {
                ring.want(rings * RING);
                for number in 1..=rings {
                    times.push(drain(number * RING) / RING as f64);
                }
            }
        }
        ring.end();
        (driver.sums, card.join().expect("the card does not panic"))
    });
    if sums != done.sums || done.wrong > 0 {
        let found = format!(
            "taken {sums:?}, written {:?}; {} descriptors refilled wrongly",
            done.sums, done.wrong
        );
        return Err(Error::Wrong { member: format!("{}, {}", variant.name(), mode.name()), found });
    }
    Ok(Figure::of(times).median)
}

/// Adds times, and ratios computed round by round.
fn add(variants: &[Descriptor], mode: Mode, times: &[Vec<f64>], results: &mut Results) {
    let whole = times.iter().map(Vec::len).min().unwrap_or(0);
    if whole == 0 {
        return;
    }
    let figures: Vec<Figure> =
        times.iter().map(|times| Figure::of(times[..whole].to_vec())).collect();
    let of = variants.iter().position(|variant| variant.name() == reference());
    for (variant, figure) in variants.iter().zip(&figures) {
        let row = |metric: &str, unit: &str, figure: Figure| {
            let row = Row::new("descriptors", variant.name(), metric, unit, figure);
            row.with(PLACE, mode.name()).with("format", SHORT)
        };
        // Speed ratio: the reference's time divided by this variant's.
        let ratio = of.and_then(|of| figures[of].relative_to(figure));
        if let Some(ratio) = ratio {
            let metric = format!("relative to {}", reference());
            results.rows.push(row(&metric, TIMES, ratio));
        }
        results.rows.push(row("time", "ns", figure.clone()));
    }
}
