// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab recording`: N streams of 20 Mb/s recorded at once by the installed program.
//!
//! The recorder is this program, started again as `receive` in a second network namespace behind a
//! veth pair, with a URL for each stream. A thread here sends the same transport stream to all URLs
//! as RTP, evenly: one stream after the other gets a burst of ten packets, by segmented sends. Then
//! every file is compared with the source, byte by byte, and the reported loss with the number of
//! packets sent. The files lie in memory by default, so that no disk is measured.
//!
//! Sender and recorder share the cores, as on a machine that relays a stream. The recorder's CPU
//! cost is its own processor time; softirqs of a veth pair are charged to the sender.
//!
//! Sources: RFC 2250 §2 (seven packets of transport stream a datagram).
//! Does not measure jitter; the sender's pace is that of a thread that sleeps.

mod recorder;

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use paths::{Batch, MappedFile, Piece, SendStats};

use self::recorder::{Recorder, Report};
use measure::Error;
use measure::Options;
use measure::asset;
use measure::fixture::{HEADER_BYTES, header};
use measure::meter::{Cores, pin, thread_time};
use measure::network::{Network, Sink};
use measure::results::{Results, Row};
use measure::scratch::ScratchDir;
use measure::sender::{destination, usual_path};
use measure::statistics::Figure;
use measure::warning::Warning;

pub(crate) fn run(options: &Options) -> Result<Results, Error> {
    let mut results = Results::new("recording", options.command.clone());
    let seconds = options.seconds.unwrap_or(if options.quick { 3 } else { 10 }).max(2);
    let mut network = Network::new()?;
    network.make(&Sink::Veth)?;
    let mut scratch = ScratchDir::new(options.folder.as_deref())?;
    let source = scratch.folder("source")?.join("stream.ts");
    asset::write(&source, BITS_PER_SECOND, seconds).map_err(Error::host("writing the stream"))?;
    let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { ROUNDS });
    results.notes.push(format!(
        "streams of {} Mb/s for {seconds} s, files in {}; {rounds} runs; the recorder's processor \
         time is its process's, the sender's its thread's with the kernel's work on its back",
        BITS_PER_SECOND / 1_000_000,
        scratch.description
    ));
    results.complete = true;
    let asked = match (&options.sessions[..], options.quick) {
        ([], true) => QUICK,
        ([], false) => STREAMS,
        (asked, _) => asked,
    };
    let ways: Vec<&str> = match &options.members[..] {
        [] => vec!["auto"],
        members => members.iter().map(String::as_str).collect(),
    };
    let (cores, all) = (Cores::allowed(), asked.len() * ways.len() * rounds);
    let mut done = 0;
    for &streams in asked {
        for way in &ways {
            let mut points = Vec::new();
            for _ in 0..rounds {
                if options.stopped() {
                    break;
                }
                options.progress(done, all, &format!("{streams} streams, --path {way}"));
                done += 1;
                let folder = scratch.target();
                let result = record(&network, &cores, (way, streams), (&source, &folder));
                ScratchDir::remove(&folder)?;
                match result {
                    Ok(point) => points.push(point),
                    Err(error) => {
                        results.complete = false;
                        let member = format!("{way}, {streams} streams");
                        results.warn(Warning::MemberFailed { member, found: error.to_string() });
                        break;
                    }
                }
            }
            add(way, streams, &points, &mut results);
        }
    }
    results.complete = results.complete && !options.stopped();
    Ok(results)
}

/// Result of a run.
struct Point {
    sent: u64,
    report: Report,
    /// Files that are equal to the source.
    equal: usize,
    bytes: u64,
    seconds: f64,
    sender: Duration,
}

fn record(
    network: &Network,
    cores: &Cores,
    (way, streams): (&str, usize),
    (source, folder): (&Path, &Path),
) -> Result<Point, Error> {
    let to: Vec<SocketAddr> = (0..streams)
        .map(|stream| SocketAddr::new(Network::SAMPLED.into(), FIRST_PORT + 2 * stream as u16))
        .collect();
    let recorder = Recorder::start(network, way, &to, folder)?;
    let file = std::fs::File::open(source).map_err(Error::host("opening the stream"))?;
    let opened = MappedFile::open(file, "stream.ts");
    let media =
        opened.map_err(|e| Error::Host { what: "the stream".into(), found: e.to_string() })?;
    let sent = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            pin(cores, true);
            send(&media, &to)
        });
        sender.join().expect("it does not panic")
    })?;
    // The recorder has the last burst by now, or it is lost.
    std::thread::sleep(SETTLE);
    let report = recorder.finish()?;
    let expected = std::fs::read(source).map_err(Error::host("reading the stream"))?;
    let is_equal = |stream: &usize| {
        // A missing file is not equal.
        std::fs::read(recorder::file(folder, *stream)).is_ok_and(|bytes| bytes == expected)
    };
    let equal = (0..streams).filter(is_equal).count();
    Ok(Point { report, equal, ..sent })
}

/// Sends the file to every destination once, in real time.
fn send(media: &MappedFile, to: &[SocketAddr]) -> Result<Point, Error> {
    let failed = |found: String| Error::Host { what: "the sender".to_owned(), found };
    let mut path = usual_path()?;
    let mut destinations = Vec::with_capacity(to.len());
    for address in to {
        destinations.push(destination(Network::NEAR, *address)?);
    }
    let payload_bytes = u64::from(DATAGRAM_BYTES - HEADER_BYTES);
    let packets = media.bytes().div_ceil(payload_bytes);
    let bursts = packets.div_ceil(BURST);
    let burst_time = Duration::from_secs_f64(
        (BURST * payload_bytes * 8) as f64 / BITS_PER_SECOND as f64 / to.len() as f64,
    );
    let mut stats = SendStats::default();
    let mut heads = Vec::new();
    let (began, before) = (Instant::now(), thread_time());
    for turn in 0..bursts * to.len() as u64 {
        let due = burst_time.mul_f64(turn as f64);
        while let Some(early) = due.checked_sub(began.elapsed()).filter(|early| *early > SLACK) {
            std::thread::sleep(early);
        }
        let (stream, first) = ((turn as usize) % to.len(), turn / to.len() as u64 * BURST);
        let count = BURST.min(packets - first);
        let offset = first * payload_bytes;
        let bytes = (count * payload_bytes).min(media.bytes() - offset);
        heads.clear();
        heads.extend((first..first + count).flat_map(header));
        let pieces = [Piece { offset, bytes }];
        let batch = Batch::gathered(media, count as u32, DATAGRAM_BYTES, &heads, &pieces);
        let result = path.send(&batch, &mut destinations[stream], &mut stats);
        match result {
            Ok(accepted) if u64::from(accepted) == count => {}
            Ok(accepted) => return Err(failed(format!("{accepted} of {count} packets left"))),
            Err(error) => return Err(failed(error.to_string())),
        }
    }
    Ok(Point {
        sent: stats.packets,
        report: Report::default(),
        equal: 0,
        bytes: stats.bytes,
        seconds: began.elapsed().as_secs_f64(),
        sender: thread_time() - before,
    })
}

fn add(way: &str, streams: usize, points: &[Point], results: &mut Results) {
    if points.is_empty() {
        return;
    }
    let path = &points[0].report.path;
    let note = format!("--path {way} took receive/{path}");
    if !results.notes.contains(&note) {
        results.notes.push(note);
    }
    let mut push = |metric: &str, unit: &str, of: &dyn Fn(&Point) -> f64| {
        let figure = Figure::of(points.iter().map(of).collect());
        let row = Row::new("recording", way, metric, unit, figure);
        results.rows.push(row.with("streams", streams));
    };
    let gigabytes = |point: &Point| point.bytes as f64 / 1e9;
    push("rate", "Mb/s", &|p| p.bytes as f64 * 8e-6 / p.seconds);
    push("lost", "packets", &|p| p.sent.saturating_sub(p.report.received) as f64);
    push("dropped by the recorder", "packets", &|p| p.report.dropped as f64);
    push("files equal to the source", "files", &|p| p.equal as f64);
    push("CPU cost of the recorder", "s/GB", &|p| p.report.processor_seconds / gigabytes(p));
    push("recorder's cores", "of 1", &|p| p.report.processor_seconds / p.seconds);
    push("sender's cores", "of 1", &|p| p.sender.as_secs_f64() / p.seconds);
}

const BITS_PER_SECOND: u64 = 20_000_000;
/// 12 bytes of RTP and 7 packets of transport stream.
const DATAGRAM_BYTES: u32 = 1328;
/// 5 ms of 20 Mb/s.
const BURST: u64 = 10;
const STREAMS: &[usize] = &[1, 10, 50, 100];
const QUICK: &[usize] = &[20];
const ROUNDS: usize = 3;
/// RTP uses the even ports, RTCP the odd ones.
const FIRST_PORT: u16 = 6000;
/// Shortest useful sleep.
const SLACK: Duration = Duration::from_micros(100);
const SETTLE: Duration = Duration::from_millis(500);
