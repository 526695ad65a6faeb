// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab cold`: sending with an empty page cache, by method of reading ahead.
//!
//! The file is dropped from the page cache, then sent once from end to end. It is read in three
//! ways: *none* (`POSIX_FADV_RANDOM`: a page when it is touched), *kernel* (its own read-ahead, the
//! window doubled by `POSIX_FADV_SEQUENTIAL`), and *reader* (as in the server: a separate thread
//! makes the next megabytes resident, and the sender waits for missing pages). The CPU cost
//! includes the reader's time, as it is a thread of the process, and kernel threads that read.
//!
//! Sources: posix_fadvise(2), madvise(2) (`MADV_POPULATE_READ`).
//! Does not empty the cache of a disk or of a virtual machine's host; throughput is that of the
//! storage below the page cache.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use paths::{Feed, Host, MappedFile, Open, PATHS, Spec, Transport};
use rustix::fs::{Advice, fadvise};

use measure::Error;
use measure::Options;
use measure::bench::{Bench, Case};
use measure::fixture::{Fixture, Image};
use measure::meter::Meter;
use measure::network::Sink;
use measure::results::{Results, Row};
use measure::sender::Sender;
use measure::statistics::Figure;
use measure::warning::Warning;

use measure::fixture::USUAL_BYTES;

/// Way the file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    None,
    Kernel,
    Reader,
}

impl Reading {
    const ALL: [Self; 3] = [Self::None, Self::Kernel, Self::Reader];

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Kernel => "kernel",
            Self::Reader => "reader",
        }
    }

    fn advice(self) -> Advice {
        match self {
            Self::None | Self::Reader => Advice::Random,
            Self::Kernel => Advice::Sequential,
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<Results, Error> {
    let mut results = Results::new("cold", options.command.clone());
    let rounds = options.rounds.unwrap_or(if options.quick { 2 } else { 5 }).max(1);
    let mut bench = Bench::new(&options.sinks)?;
    let image = bench.fixture.image(USUAL_BYTES)?;
    for media in [&bench.fixture.file, &image.media] {
        media.file().sync_all().map_err(Error::host("fsync"))?;
    }
    refuse_memory(&bench)?;
    let sink = options.sinks_or(&[Sink::IfbSoftware]).remove(0);
    let to = bench.network.make(&sink)?;
    let members = members(options, &mut results);
    let meter = Meter::of_this_process();
    let of = members.len() * Reading::ALL.len() * rounds;
    let mut figures: Vec<(&'static Spec, Reading, Vec<f64>, Vec<f64>)> = Vec::new();
    for &spec in &members {
        figures.extend(Reading::ALL.map(|reading| (spec, reading, Vec::new(), Vec::new())));
    }
    let mut kept = 0.0_f64;
    let mut done = 0;
    for _ in 0..rounds {
        for (spec, reading, cpu_costs, speeds) in &mut figures {
            options.progress(done, of, &format!("{spec}, read ahead: {}", reading.name()));
            done += 1;
            if options.stopped() {
                break;
            }
            let case = Case::new(spec, &sink, USUAL_BYTES, SEGMENTS);
            let run = Run { bench: &bench, image: &image, case, reading: *reading };
            let (cpu_s_per_gb, speed, resident) = run.time(&meter, to)?;
            cpu_costs.push(cpu_s_per_gb);
            speeds.push(speed);
            kept = kept.max(resident);
        }
    }
    if kept > RESIDENT_MAX {
        let file = bench.fixture.file.name().to_owned();
        results.warn(Warning::StillInPageCache { file, share: kept });
    }
    results.notes.push(format!(
        "{rounds} rounds, interleaved; a file of {} MB, dropped from the page cache before each \
         run and sent once; datagrams of {USUAL_BYTES} bytes, {SEGMENTS} a call where a path can",
        measure::fixture::FILE_BYTES / 1_000_000
    ));
    for (spec, reading, cpu_costs, speeds) in figures.into_iter().filter(|f| !f.2.is_empty()) {
        let row = |metric: &str, unit: &str, samples| {
            Row::new("cold", spec.name, metric, unit, Figure::of(samples))
                .with("transport", spec.transport)
                .with("bytes", USUAL_BYTES)
                .with("sink", sink.name())
                .with("read ahead", reading.name())
        };
        results.rows.push(row("CPU cost", "s/GB", cpu_costs));
        results.rows.push(row("throughput", "MB/s", speeds));
    }
    results.complete = !options.stopped();
    Ok(results)
}

/// Returns an error for a file system in memory, which cannot be cold.
fn refuse_memory(bench: &Bench) -> Result<(), Error> {
    let facts = rustix::fs::fstatfs(bench.fixture.file.file());
    match facts {
        Ok(facts) if facts.f_type == TMPFS_MAGIC => Err(Error::Unavailable {
            need: "a temporary folder on a disk",
            found: "it is in memory (tmpfs); set TMPDIR to a folder on a disk".to_owned(),
        }),
        _ => Ok(()),
    }
}

fn members(options: &Options, results: &mut Results) -> Vec<&'static Spec> {
    let host = Host::here();
    let names: Vec<&str> = match &options.members[..] {
        [] => MEMBERS.to_vec(),
        names => names.iter().map(String::as_str).collect(),
    };
    let mut members = Vec::new();
    for spec in PATHS.iter().filter(|spec| spec.transport == Transport::Rtp) {
        if !names.contains(&spec.name) {
            continue;
        }
        match (spec.probe)(&host) {
            Ok(()) => members.push(*spec),
            Err(reason) => results.notes.push(format!("skip: {spec}: {reason}")),
        }
    }
    members
}

struct Run<'a> {
    bench: &'a Bench,
    image: &'a Image,
    case: Case,
    reading: Reading,
}

impl Run<'_> {
    /// Drops the file, sends it once; returns CPU cost in s/GB, throughput in MB/s, and the share
    /// of the file that stayed in the page cache.
    fn time(&self, meter: &Meter, to: std::net::SocketAddr) -> Result<(f64, f64, f64), Error> {
        let wrong = |found: String| Error::Wrong { member: self.case.title(), found };
        let source = match self.case.spec.open {
            Open::Stream { feed: Feed::Image, .. } => &self.image.media,
            _ => &self.bench.fixture.file,
        };
        // Mapped pages are not dropped, so each run has its own map, made when it is first used.
        let file = source.file().try_clone().map_err(Error::host("dup"))?;
        let media =
            MappedFile::open(file, source.name()).map_err(|error| wrong(error.to_string()))?;
        fadvise(media.file(), 0, None, Advice::DontNeed).map_err(|e| wrong(e.to_string()))?;
        fadvise(media.file(), 0, None, self.reading.advice()).map_err(|e| wrong(e.to_string()))?;
        let resident = Fixture::resident_share(&media);
        // The query itself may have read some pages.
        fadvise(media.file(), 0, None, Advice::DontNeed).map_err(|e| wrong(e.to_string()))?;
        let sizes = (self.case.bytes, self.case.segments);
        let mut sender = Sender::of_media(self.case.spec, &media, sizes, to)?;
        let all = media.bytes() - media.bytes() % (u64::from(self.case.bytes) * 64);
        let there = AtomicU64::new(if self.reading == Reading::Reader { 0 } else { u64::MAX });
        let begun = meter.begin();
        let began = Instant::now();
        let sent = std::thread::scope(|scope| {
            if self.reading == Reading::Reader {
                scope.spawn(|| read_ahead(&media, &there));
            }
            while sender.stats.bytes < all {
                while sender.reaches() > there.load(Ordering::Acquire) {
                    std::thread::sleep(LOOK_AGAIN);
                }
                sender.step()?;
            }
            Ok(())
        });
        let wall = began.elapsed();
        let cost = begun.end(Duration::ZERO);
        sent.map_err(|error: paths::SendError| wrong(error.to_string()))?;
        let cpu_s_per_gb = sender.stats.cpu_s_per_gb(cost.charged()).expect("bytes were sent");
        Ok((cpu_s_per_gb, sender.stats.bytes as f64 / wall.as_secs_f64() / 1e6, resident))
    }
}

/// Makes the file resident window by window, and publishes the position reached.
fn read_ahead(media: &MappedFile, there: &AtomicU64) {
    let mut at = 0;
    while at < media.bytes() {
        let end = (at + WINDOW_BYTES).min(media.bytes());
        // The sender reports read errors.
        let _ = media.prefetch(at..end);
        at = end;
        there.store(at, Ordering::Release);
    }
    there.store(u64::MAX, Ordering::Release);
}

/// One member of each kind: the reference, the mapped file, the page cache alone.
const MEMBERS: &[&str] = &["read_writev", "mmap_gso", "wire_sendfile"];
const SEGMENTS: u32 = 44;
const WINDOW_BYTES: u64 = 4 << 20;
const LOOK_AGAIN: Duration = Duration::from_micros(200);
/// From linux/magic.h.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
/// Largest share of pages left after the drop; with more, something holds them.
const RESIDENT_MAX: f64 = 0.02;
