// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of a folder that is put into the served one while sessions play: seconds until all of its
//! files are planned, and lateness of the sessions in that time and in a quiet one.
//!
//! One server on one core plays an asset to sessions behind a veth pair; clients verify every
//! packet. In each round the sessions play twice, once in a quiet time and once while a folder of
//! small files is renamed into the served one, so that all of them appear at once. The next round
//! has the two in the other order, and uses another name for the folder, so that no plan of it is
//! in the cache. `total` of the server's index is the number of planned files. Then every row of
//! the index is compared with the written files.
//!
//! A session is timely by the bound of `pagewire load`, 25 ms. The server sends at once all packets
//! due in 20 ms, so a packet that waits for its burst alone is up to 20 ms late.
//!
//! Sources: docs/index-json.md.
//! Does not measure a disk: the files lie in memory unless --folder names another place.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::movie::Movie;
use super::{Planning, add_failure, mp4};
use crate::experiments::sessions::load::{Asked, Load};
use crate::experiments::sessions::server::{STREAM, Server};
use measure::Error;
use measure::asset;
use measure::meter::Cores;
use measure::network::{Network, Sink};
use measure::results::{Results, Row};
use measure::statistics::Figure;

/// Time in which sessions play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Period {
    Quiet,
    Planning,
}

/// Result of a period of one round.
struct Sample {
    period: Period,
    /// Lateness of the median packet, and the 99.9th percentile and maximum, ms.
    late_p50: f64,
    late_p999: f64,
    late_max: f64,
    timely: f64,
    lost: f64,
    /// Processor time of the server in a second of the period.
    cores: f64,
    /// Time until all files were planned.
    planned: Option<Duration>,
}

struct Bench<'a> {
    planning: &'a Planning<'a>,
    network: Network,
    server: Server,
    for_clients: Cores,
    served: PathBuf,
    /// The folder of files while it is not served.
    aside: PathBuf,
    rounds: usize,
}

/// Measures all rounds.
pub(super) fn measure(planning: &Planning<'_>, results: &mut Results) -> Result<(), Error> {
    let bench = Bench::new(planning)?;
    let (files, seconds) = (planning.files, planning.seconds);
    results.notes.push(format!(
        "{SERVER}: {} sessions of 5 Mb/s, every packet verified, {seconds} s a period, {} rounds; \
         {files} files of three kinds (transport streams of 20 to 100 KB; MP4 and fragmented MP4 \
         of 2 to 8 s, whose samples are holes) renamed into the served folder at once; files and \
         plans in {}",
        planning.sessions, bench.rounds, planning.place
    ));
    let mut samples = Vec::new();
    'rounds: for round in 0..bench.rounds {
        let mut periods = [Period::Quiet, Period::Planning];
        if round % 2 == 1 {
            periods.reverse();
        }
        for (turn, period) in periods.into_iter().enumerate() {
            let what = format!("{} sessions, {}", planning.sessions, period.name());
            planning.options.progress(2 * round + turn, 2 * bench.rounds, &what);
            let played = bench.play(period, round);
            if planning.options.stopped() {
                break 'rounds;
            }
            match played {
                Ok(sample) => samples.push(sample),
                Err(error) => {
                    add_failure(results, &format!("{SERVER}, {}", period.name()), error);
                    break 'rounds;
                }
            }
        }
    }
    add(planning, &samples, results);
    Ok(())
}

impl<'a> Bench<'a> {
    fn new(planning: &'a Planning<'a>) -> Result<Bench<'a>, Error> {
        let (mut network, cores) = (Network::new()?, Cores::allowed());
        network.make(&Sink::Veth)?;
        let options = planning.options;
        let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { ROUNDS }).max(1);
        let (served, aside) = (planning.folder.join(STREAM.folder), planning.folder.join("aside"));
        let failed = || Error::host("writing files (is the folder's memory full?)");
        std::fs::create_dir(&served).map_err(failed())?;
        std::fs::create_dir(&aside).map_err(failed())?;
        asset::write(&STREAM.file(&planning.folder), BITS_PER_SECOND, planning.seconds + START_S)
            .map_err(failed())?;
        let streams = streams(&planning.folder).map_err(failed())?;
        for number in 0..planning.files {
            write_file(&aside, number, &streams).map_err(failed())?;
        }
        let (for_server, for_clients) = cores.split(options.cores.unwrap_or(1));
        let server = Server::start(&planning.folder, &STREAM, &for_server, (RTP_PORT, &[]))?;
        server.await_plan()?;
        let bench = Bench { planning, network, server, for_clients, served, aside, rounds };
        // The wire image is made before the first period.
        let mut first = bench.load(1, 0.1)?;
        first.await_event("playing")?;
        bench.server.await_image()?;
        Ok(bench)
    }

    fn load(&self, sessions: usize, seconds: f64) -> Result<Load, Error> {
        let (url, source) = (&self.server.stream_url(), Network::SAMPLED);
        let asked = Asked { url, sessions, verified: true, source, seconds, transport: TRANSPORT };
        Load::start(&self.network, &asked, &self.for_clients)
    }

    fn play(&self, period: Period, round: usize) -> Result<Sample, Error> {
        let mut load = self.load(self.planning.sessions, self.planning.seconds as f64)?;
        load.await_event("playing")?;
        let (before, began) = (self.server.facts()?.processor_seconds, Instant::now());
        let name = format!("library-{round}");
        let planned = match period {
            Period::Quiet => None,
            Period::Planning => Some(self.plan(&name)?),
        };
        load.await_event("measured")?;
        let cpu_seconds = self.server.facts()?.processor_seconds - before;
        let cores = cpu_seconds / began.elapsed().as_secs_f64();
        let result = load.await_event("result")?;
        if period == Period::Planning {
            self.check(&name)?;
            self.remove(&name)?;
        }
        Sample::of(&result, (period, cores, planned))
    }

    /// Puts the files into the served folder; returns the time until all of them are planned.
    fn plan(&self, name: &str) -> Result<Duration, Error> {
        let began = Instant::now();
        self.rename(&self.aside, &self.served.join(name))?;
        // The asset is one more stream.
        self.await_streams(self.planning.files + 1)?;
        Ok(began.elapsed())
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        self.rename(&self.served.join(name), &self.aside)?;
        self.await_streams(1)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        std::fs::rename(from, to).map_err(Error::host("renaming the folder of files"))
    }

    /// Waits until the index has so many streams and no other file.
    fn await_streams(&self, streams: u64) -> Result<(), Error> {
        let began = Instant::now();
        loop {
            let total = self.server.answer("/index.json?limit=1")?["total"].take();
            if total["streams"] == streams && total["files"] == streams {
                return Ok(());
            }
            if began.elapsed() > PLAN_WAIT || self.planning.options.stopped() {
                let found = format!("{total}, {streams} streams expected");
                return Err(Error::Host { what: "the index".to_owned(), found });
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Compares the index with the written files.
    fn check(&self, name: &str) -> Result<(), Error> {
        let wrong = |found| Error::Wrong { member: SERVER.to_owned(), found };
        let mut target = format!("/index.json?below={name}/");
        let mut number = 0;
        loop {
            let page = self.server.answer(&target)?;
            let rows = page["files"].as_array().into_iter().flatten();
            for row in rows.filter(|row| row["renditions"].is_null()) {
                let expected = (format!("{name}/{}", file_name(number)), units(number));
                let found = (row["name"].as_str().unwrap_or_default().to_owned(), row_units(row));
                if found != expected {
                    return Err(wrong(format!("{found:?} of {expected:?} in the index")));
                }
                number += 1;
            }
            match page["next"].as_str() {
                Some(next) => target = next.to_owned(),
                None if number == self.planning.files => return Ok(()),
                None => return Err(wrong(format!("{number} files in the index"))),
            }
        }
    }
}

impl Sample {
    /// Reads the result of a load.
    fn of(
        result: &Value,
        (period, cores, planned): (Period, f64, Option<Duration>),
    ) -> Result<Sample, Error> {
        let member = || format!("{SERVER}, {}", period.name());
        let verified = &result["verified"];
        let number = |value: &Value, name: &str| {
            let found = value[name].as_f64();
            found.ok_or_else(|| Error::Wrong { member: member(), found: format!("no {name}") })
        };
        if result["played"] != result["asked"] {
            let found = format!("{} of {} sessions play", result["played"], result["asked"]);
            return Err(Error::Wrong { member: member(), found });
        }
        let late = &verified["lateness_ms"];
        Ok(Sample {
            period,
            late_p50: number(late, "p50")?,
            late_p999: number(late, "p999")?,
            late_max: number(late, "max")?,
            timely: number(verified, "timely")?,
            lost: number(verified, "lost")?,
            cores,
            planned,
        })
    }
}

impl Period {
    const ALL: [Period; 2] = [Period::Quiet, Period::Planning];

    fn name(self) -> &'static str {
        match self {
            Period::Quiet => "quiet",
            Period::Planning => "planning",
        }
    }
}

fn add(planning: &Planning<'_>, samples: &[Sample], results: &mut Results) {
    for period in Period::ALL {
        let of: Vec<&Sample> = samples.iter().filter(|sample| sample.period == period).collect();
        let mut push = |metric: &str, unit: &str, figure: Option<Figure>| {
            let Some(figure) = figure else { return };
            let row = Row::new("planning", SERVER, metric, unit, figure);
            let row = row.with("sessions", planning.sessions).with("period", period.name());
            results.rows.push(row);
        };
        let figure = |samples: Vec<f64>| (!samples.is_empty()).then(|| Figure::of(samples));
        let all = |of_one: fn(&Sample) -> f64| figure(of.iter().map(|one| of_one(one)).collect());
        push("timely sessions", "sessions", all(|sample| sample.timely));
        // The median of the rounds would hide one that was late.
        let fewest = of.iter().map(|sample| sample.timely).reduce(f64::min);
        push("fewest timely of a round", "sessions", fewest.map(Figure::derived));
        push("lost", "packets", all(|sample| sample.lost));
        push("late, median", "ms", all(|sample| sample.late_p50));
        push("late, 99.9 %", "ms", all(|sample| sample.late_p999));
        push("late, most", "ms", all(|sample| sample.late_max));
        push("server's cores", "of 1", all(|sample| sample.cores));
        let planned = || of.iter().filter_map(|sample| sample.planned.map(|t| t.as_secs_f64()));
        push("until all files are planned", "s", figure(planned().collect()));
        let files = planning.files as f64;
        push("files planned", "1/s", figure(planned().map(|seconds| files / seconds).collect()));
    }
}

/// Returns the bytes of transport streams of 20 to 100 KB, one for each rate.
fn streams(folder: &Path) -> std::io::Result<Vec<Vec<u8>>> {
    let path = folder.join("small.ts");
    let streams = (0..STREAMS).map(|kind| {
        asset::write(&path, stream_bits(kind), 1)?;
        std::fs::read(&path)
    });
    let streams = streams.collect();
    std::fs::remove_file(&path)?;
    streams
}

/// Rate of a stream of a second.
fn stream_bits(kind: u64) -> u64 {
    160_000 * (kind + 1)
}

/// Writes a file by its number.
fn write_file(folder: &Path, number: u64, streams: &[Vec<u8>]) -> std::io::Result<()> {
    let path = folder.join(file_name(number));
    match number % KINDS {
        0 => std::fs::write(path, &streams[(number / KINDS % STREAMS) as usize]),
        1 => mp4::write_progressive(&File::create(path)?, small_movie(number)).map(drop),
        _ => mp4::write_fragmented(&File::create(path)?, small_movie(number)).map(drop),
    }
}

fn file_name(number: u64) -> String {
    let end = if number.is_multiple_of(KINDS) { "ts" } else { "mp4" };
    format!("{number:06}.{end}")
}

fn small_movie(number: u64) -> Movie {
    Movie { groups: 1 + number / KINDS % 4 }
}

/// Returns RTP packets of a transport stream, samples of another file.
fn units(number: u64) -> u64 {
    match number % KINDS {
        0 => {
            let packets = stream_bits(number / KINDS % STREAMS) / 8 / 188;
            packets.div_ceil(media::TS_PACKETS_PER_PAYLOAD)
        }
        _ => small_movie(number).samples(),
    }
}

/// Returns the same of a row of the index.
fn row_units(row: &Value) -> u64 {
    let samples = |track: &Value| track["samples"].as_u64().unwrap_or(0);
    match row["tracks"].as_array() {
        Some(tracks) => tracks.iter().map(samples).sum(),
        None => row["stream"]["packets"].as_u64().unwrap_or(0),
    }
}

pub(super) const SERVER: &str = "server";
const TRANSPORT: &str = "udp";
const BITS_PER_SECOND: u64 = 5_000_000;
const ROUNDS: usize = 7;
/// Media before and behind the measured time: starting, settling and leaving.
const START_S: u64 = 20;
/// Kinds of small files, and different transport streams among them.
const KINDS: u64 = 3;
const STREAMS: u64 = 5;
const PLAN_WAIT: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
const RTP_PORT: u16 = 5004;
