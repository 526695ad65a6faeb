// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab soak`: viewers of every transport that join, leave, seek and vanish, for half an
//! hour at 80 % of the largest number without a harmed viewer: lost packets, the server's memory,
//! its descriptors.
//!
//! The server has one core, all viewers another. A trial of less than a minute plays twice as many
//! viewers as the one before, until one of them is harmed (docs/load.md defines how `load` judges)
//! in three trials, one after the other; steps between find the capacity. The soak then runs
//! against a server that was started anew. Memory is sampled at equal times. When all viewers have
//! left, the server has some time to detect those that vanished, and its descriptors are counted
//! again.
//!
//! Sources: docs/load.md; proc(5) (`statm`, `fd`).
//! Judges nothing: results are figures. On a machine with fewer than two cores the viewers share
//! the server's.

mod crowd;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use self::crowd::{Crowd, CrowdFigures, Films, LEAST};
use crate::experiments::hls::films;
use crate::experiments::peers::pagewire;
use crate::experiments::peers::peer::{Running, Setting};
use measure::Error;
use measure::Options;
use measure::meter::Cores;
use measure::network::Network;
use measure::results::{Results, Row};
use measure::scratch::ScratchDir;
use measure::statistics::Figure;

pub(crate) fn run(options: &Options) -> Result<Results, Error> {
    let mut results = Results::new("soak", options.command.clone());
    let bench = Bench::new(options, &mut results)?;
    bench.warm_up()?;
    let viewers = match bench.form.viewers {
        None => LEAST,
        Some(tried) => {
            let capacity = bench.capacity(tried)?;
            count(&mut results, "viewers at capacity", "viewers", capacity as f64);
            (capacity * 4 / 5).max(LEAST)
        }
    };
    count(&mut results, "viewers", "viewers", viewers as f64);
    results.complete = bench.soak(viewers, &mut results)? && !options.stopped();
    Ok(results)
}

/// Lengths of a form of the experiment.
struct Form {
    /// Measured time of the soak, unless `--seconds` names another.
    soak: Duration,
    /// Time over which starts are spread, and measured time, of a trial.
    trial: (Duration, Duration),
    /// Viewers of the first trial, and the most that are tried; `None` to look for no capacity.
    viewers: Option<(usize, usize)>,
    /// Time between two samples of memory.
    sample: Duration,
}

const FULL: Form = Form {
    soak: Duration::from_secs(1800),
    // As long as viewers stay that leave or vanish: a shorter one finds more viewers than can be
    // held.
    trial: (Duration::from_secs(10), Duration::from_secs(40)),
    viewers: Some((200, 4000)),
    sample: Duration::from_secs(10),
};
const QUICK: Form = Form {
    soak: Duration::from_secs(60),
    trial: (Duration::from_secs(2), Duration::from_secs(4)),
    viewers: None,
    sample: Duration::from_secs(1),
};

struct Bench<'a> {
    options: &'a Options,
    form: Form,
    soak: Duration,
    films: Films,
    folder: PathBuf,
    server: Cores,
    clients: Cores,
    _network: Network,
    _scratch: ScratchDir,
}

impl<'a> Bench<'a> {
    fn new(options: &'a Options, results: &mut Results) -> Result<Bench<'a>, Error> {
        let ffmpeg = films::probe()?;
        let network = Network::new()?;
        let scratch = ScratchDir::new(options.folder.as_deref())?;
        let (served, folder) = (scratch.folder("films")?, scratch.folder("server")?);
        let form = if options.quick { QUICK } else { FULL };
        let soak = options.seconds.map(|seconds| Duration::from_secs(seconds.clamp(10, 86_400)));
        let soak = soak.unwrap_or(form.soak);
        // Viewers that stay play from the beginning to the end of the load.
        let films = Films::write(served, soak + RAMP_MAX + MARGIN)?;
        let (server, clients) = Cores::allowed().split(1);
        results.notes.push(format!(
            "server on one core, viewers on another; films of 5 Mb/s by {ffmpeg} in {}; {}; one \
             sample of memory each {} s",
            scratch.description,
            crowd::composition(),
            form.sample.as_secs(),
        ));
        results.notes.push(match form.viewers {
            Some(_) => format!(
                "the capacity is the most viewers of a trial of {} s in which none was harmed; \
                 each number has up to {TRIES}",
                form.trial.1.as_secs()
            ),
            None => {
                "no capacity was looked for: the fewest viewers that have all behaviours".into()
            }
        });
        Ok(Bench {
            options,
            form,
            soak,
            films,
            folder,
            server,
            clients,
            _network: network,
            _scratch: scratch,
        })
    }

    fn start(&self) -> Result<Running, Error> {
        let setting = Setting {
            folder: &self.folder,
            served: &self.films.folder,
            cores: &self.server,
            other_cores: &self.clients,
            ports: &[],
        };
        pagewire::start(&setting, &["--connections-per-address".into(), "1000000".into()])
    }

    /// Makes the server plan each film and lay out its wire images, for this server and later ones.
    fn warm_up(&self) -> Result<(), Error> {
        let running = self.start()?;
        self.trial(&running, LEAST)?;
        let deadline = Instant::now() + IMAGES_WAIT;
        while Instant::now() < deadline && !self.films.have_images(&self.folder) {
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    /// Returns the largest number of viewers of a trial without a harmed one.
    fn capacity(&self, (first, most): (usize, usize)) -> Result<usize, Error> {
        let running = self.start()?;
        let (mut good, mut bad) = (0, None);
        let mut reasons = Vec::new();
        let mut next = first;
        while !self.options.stopped() {
            let mut harmed = self.trial(&running, next)?;
            for _ in 1..TRIES {
                // A busy host harms some viewers at any load.
                if !harmed.is_empty() && !self.options.stopped() {
                    harmed = self.trial(&running, next)?;
                }
            }
            match harmed.is_empty() {
                true => good = next,
                false => (bad, reasons) = (Some(next), harmed),
            }
            next = match bad {
                None if good >= most => break,
                None => (good * 2).min(most),
                // Within an eighth.
                Some(bad) if bad - good <= (bad / 8).max(1) || good == 0 => break,
                Some(bad) => good + (bad - good) / 2,
            };
        }
        match good {
            0 => Err(Error::Host {
                what: format!("a trial of {first} viewers"),
                found: format!("{}; free the machine of other work", reasons.join("; ")),
            }),
            good => Ok(good),
        }
    }

    /// Plays that many viewers for the time of a trial; returns the harmed ones.
    fn trial(&self, running: &Running, viewers: usize) -> Result<Vec<String>, Error> {
        self.options.progress(0, 1, &format!("trial of {viewers} viewers"));
        let crowd = Crowd::start(&self.films, running, viewers, self.form.trial, &self.clients)?;
        let figures = crowd.finish(|| self.options.stopped())?;
        Ok(figures.harmed)
    }

    /// Plays that many viewers; returns false where a part of them ended early.
    fn soak(&self, viewers: usize, results: &mut Results) -> Result<bool, Error> {
        let mut running = self.start()?;
        let descriptors = self.settled_descriptors(&running);
        let ramp = self.form.trial.0.max(Duration::from_secs(viewers as u64 / 50)).min(RAMP_MAX);
        let began = Instant::now();
        let cpu = running.processes.processor_time();
        let crowd = Crowd::start(&self.films, &running, viewers, (ramp, self.soak), &self.clients)?;
        let (mut resident, mut anonymous, mut open) = (Vec::new(), Vec::new(), 0);
        let mut next = began + ramp;
        let whole = ramp + self.soak;
        let figures = crowd.finish(|| {
            if Instant::now() >= next && began.elapsed() < whole {
                next += self.form.sample;
                resident.push(running.processes.resident_bytes() as f64 / 1e6);
                anonymous.push(running.processes.memory_bytes() as f64 / 1e6);
                open = open.max(running.processes.descriptors());
                let done = began.elapsed().as_secs() as usize;
                self.options.progress(done, whole.as_secs() as usize, "soak");
            }
            self.options.stopped()
        })?;
        let cpu = (running.processes.processor_time() - cpu).as_secs_f64();
        count(results, "server's core", "of 1", cpu / began.elapsed().as_secs_f64());
        let is_running = running.processes.are_running();
        let (left, wait) = self.wait_for_descriptors(&running, descriptors);
        push(&figures, results);
        for (name, samples) in [("resident memory", resident), ("memory", anonymous)] {
            if samples.is_empty() {
                continue;
            }
            let last = &samples[samples.len() - samples.len().div_ceil(3)..];
            count(results, &format!("{name}, range of the last third"), "%", range_percent(last));
            let figure = Figure::of(samples);
            results.rows.push(Row::new("soak", "pagewire", name, "MB", figure));
        }
        count(results, "descriptors at the start", "descriptors", descriptors as f64);
        count(results, "descriptors, the most", "descriptors", open as f64);
        count(results, "descriptors at the end", "descriptors", left as f64);
        count(results, "time until they were closed", "s", wait.as_secs_f64());
        Ok(is_running && figures.is_whole)
    }

    /// Returns the number of descriptors of an idle server, once it has been constant for a while.
    fn settled_descriptors(&self, running: &Running) -> usize {
        let mut last = running.processes.descriptors();
        let mut since = Instant::now();
        while since.elapsed() < SETTLED && !self.options.stopped() {
            std::thread::sleep(Duration::from_millis(100));
            let now = running.processes.descriptors();
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        last
    }

    /// Waits until the server has as many descriptors as at its start, and those of kept paths;
    /// returns their number, and the time waited.
    fn wait_for_descriptors(&self, running: &Running, start: usize) -> (usize, Duration) {
        let began = Instant::now();
        loop {
            let left = running.processes.descriptors();
            let waited = began.elapsed();
            if left <= start + KEPT_PATHS_MAX || waited >= LEAVING || self.options.stopped() {
                return (left, waited);
            }
            std::thread::sleep(Duration::from_millis(250));
        }
    }
}

fn push(figures: &CrowdFigures, results: &mut Results) {
    for (metric, unit, value) in figures.counts() {
        count(results, metric, unit, value);
    }
    results.notes.extend(figures.harmed.iter().map(|harmed| format!("harmed: {harmed}")));
}

fn count(results: &mut Results, metric: &str, unit: &str, value: f64) {
    results.rows.push(Row::new("soak", "pagewire", metric, unit, Figure::derived(value)));
}

/// Difference of the largest and the smallest sample in percent of their mean.
fn range_percent(samples: &[f64]) -> f64 {
    let least = samples.iter().copied().fold(f64::INFINITY, f64::min);
    let most = samples.iter().copied().fold(0.0, f64::max);
    (most - least) * 100.0 * samples.len() as f64 / samples.iter().sum::<f64>()
}

/// Trials of one number of viewers, until one trial harms no viewer.
const TRIES: usize = 3;
/// Longest time over which starts are spread.
const RAMP_MAX: Duration = Duration::from_secs(60);
/// Media behind the end of a load: each viewer has some that is sent ahead.
const MARGIN: Duration = Duration::from_secs(60);
const IMAGES_WAIT: Duration = Duration::from_secs(120);
/// Time for which a server that has begun opens and closes nothing.
const SETTLED: Duration = Duration::from_secs(3);
/// Descriptors of paths of downloads, which a server keeps open: three each, as many paths as were
/// in use at once.
const KEPT_PATHS_MAX: usize = 3 * 4;
/// Sessions of viewers that vanished end with their time-out of 60 s.
const LEAVING: Duration = Duration::from_secs(90);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_is_in_percent_of_the_mean() {
        assert_eq!(range_percent(&[100.0, 100.0, 100.0]), 0.0);
        assert!((range_percent(&[99.0, 101.0]) - 2.0).abs() < 1e-9);
    }
}
