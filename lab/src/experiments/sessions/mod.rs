// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab sessions`: the installed server with N paced RTSP sessions of a 5 Mb/s asset: CPU
//! cost, lateness, loss, and the largest N that is still timely.
//!
//! Every session is a real one, set up, paced and kept alive over RTSP and RTCP by `pagewire load`
//! in a second network namespace. A policy rule sends the RTP of most sessions into an ifb device
//! that cannot segment, so that the figure is the server's and not that of N clients on the same
//! machine. The RTP of the others goes through a veth pair to clients that verify every packet and
//! its time. Packets at the devices and at the clients are compared with the server's count. One
//! server runs per point; the CPU cost is measured in slices of the time. A point lasts some 20
//! seconds.
//!
//! A point is timely when 99.9 % of the packets of every verified session arrived within 25 ms of
//! their due time (the session's earliest packet is the reference) and no packet is missing.
//!
//! Sources: the data-paths paper's future work (the largest number of clients with timely playout).
//! Does not use several assets, or clients that pause and seek; `pagewire load` can be aimed at any
//! server.

pub(crate) mod load;
pub(crate) mod server;
mod ways;

use std::time::{Duration, Instant};

use self::load::{Asked, Load};
use self::server::{Facts, STREAM, Server};
use self::ways::Way;
use measure::Error;
use measure::meter::{Cores, Meter};
use measure::network::{Network, Sink, sink_counts};
use measure::results::{Results, Row};
use measure::statistics::Figure;
use measure::warning::Warning;
use measure::{Options, asset};

pub(crate) fn run(options: &Options) -> Result<Results, Error> {
    let ways = ways::of(&options.transports)?;
    let mut results = Results::new("sessions", options.command.clone());
    let seconds = options.seconds.unwrap_or(if options.quick { 4 } else { 10 }).max(2);
    let folder = tempfile::tempdir().map_err(Error::host("a temporary folder"))?;
    let asset_s = seconds + 20 + (SESSIONS_MAX as f64 * RAMP_S).ceil() as u64;
    std::fs::create_dir(folder.path().join(STREAM.folder)).map_err(Error::host("a folder"))?;
    asset::write(&STREAM.file(folder.path()), BITS_PER_SECOND, asset_s)
        .map_err(Error::host("writing the asset (is the temporary folder full?)"))?;
    let (mut network, cores) = (Network::new()?, Cores::allowed());
    network.split(RTP_PORT, cores.count())?;
    let bench = Bench { network, folder, seconds, meter: Meter::of_this_process(), cores };
    let target = match ways[..] {
        [Way { sink: Sink::IfbSoftware, .. }] => {
            "the RTP of the others into ifb-software".to_owned()
        }
        _ => ways::NOTE.to_owned(),
    };
    results.notes.push(format!(
        "sessions of one asset of {:.1} Mb/s, one in {VERIFIED_OF} of them verified, {target}; \
         {seconds} s a point; CPU cost: processor seconds of the server and of kernel threads per \
         10⁹ bytes",
        BITS_PER_SECOND as f64 / 1e6,
    ));
    results.complete = true;
    for cores in bench.core_counts(options) {
        bench.climb(cores, &ways, options, &mut results)?;
    }
    results.complete = results.complete && !options.stopped();
    Ok(results)
}

struct Bench {
    network: Network,
    folder: tempfile::TempDir,
    seconds: u64,
    meter: Meter,
    cores: Cores,
}

/// Result of one number of sessions.
struct Point {
    way: &'static Way,
    sessions: usize,
    /// CPU cost of each slice of the time.
    cpu_costs: Vec<f64>,
    cores_used: Vec<f64>,
    late: Facts,
    client: serde_json::Value,
    missing: u64,
    refused: u64,
    memory_kib: f64,
}

impl Point {
    fn is_timely(&self) -> bool {
        let verified = &self.client["verified"];
        verified["timely"] == verified["sessions"]
            && verified["lost"] == 0
            && self.client["played"] == self.client["asked"]
            && self.missing == 0
    }
}

impl Bench {
    /// Returns one core and all of them, unless one number is selected.
    fn core_counts(&self, options: &Options) -> Vec<usize> {
        let all = self.cores.count();
        match options.cores {
            Some(cores) => vec![cores.clamp(1, all)],
            None if all == 1 || options.quick => vec![1],
            None => vec![1, all],
        }
    }

    /// Measures the selected numbers of sessions; otherwise the usual ones, and more until one is
    /// not timely.
    fn climb(
        &self,
        cores: usize,
        ways: &[&'static Way],
        options: &Options,
        results: &mut Results,
    ) -> Result<(), Error> {
        let asked = match (&options.sessions[..], options.quick, cores) {
            ([], true, _) => QUICK.to_vec(),
            ([], false, 1) => ONE_CORE.to_vec(),
            ([], false, _) => MANY_CORES.to_vec(),
            (asked, _, _) => asked.to_vec(),
        };
        let searching = options.sessions.is_empty() && !options.quick;
        let mut most = vec![None; ways.len()];
        let mut is_out = vec![false; ways.len()];
        let mut sessions = asked[0];
        let mut index = 0;
        while !options.stopped() && sessions <= SESSIONS_MAX && is_out.contains(&false) {
            let all = asked.len().max(index + 1);
            let mut points = Vec::new();
            for (number, &way) in ways.iter().enumerate() {
                if is_out[number] || options.stopped() {
                    continue;
                }
                let what = format!("{sessions} sessions, {}, server on {cores} cores", way.title());
                options.progress(index, all, &what);
                let point = match self.measure(sessions, cores, way) {
                    Ok(point) => point,
                    Err(error) => {
                        results.complete = false;
                        let (member, found) = (format!("server, {what}"), error.to_string());
                        results.warn(Warning::MemberFailed { member, found });
                        is_out[number] = true;
                        continue;
                    }
                };
                add(&point, cores, results);
                if point.is_timely() {
                    most[number] = Some(sessions);
                } else {
                    is_out[number] = searching;
                }
                points.push(point);
            }
            ways::add_ratio(&points, cores, results);
            index += 1;
            sessions = match asked.get(index) {
                Some(next) => *next,
                None if searching => sessions + STEP,
                None => break,
            };
        }
        for (way, most) in ways.iter().zip(&most) {
            let Some(most) = most else { continue };
            let figure = Figure::of(vec![*most as f64]);
            let row = Row::new("sessions", "server", "most timely sessions", "sessions", figure);
            results.rows.push(way.tag(row.with("cores", cores)));
        }
        if searching {
            ways::add_ratio_of_most(ways, &most, cores, results);
        }
        Ok(())
    }

    fn measure(&self, sessions: usize, cores: usize, way: &'static Way) -> Result<Point, Error> {
        if way.sink == Sink::Veth {
            self.network.segment_in_software(&Sink::Veth, way.tso)?;
            self.network.join_received(way.gro)?;
        }
        let (for_server, for_clients) = self.cores.split(cores);
        let server = Server::start(self.folder.path(), &STREAM, &for_server, (RTP_PORT, &[]))?;
        server.await_plan()?;
        let idle = server.facts()?;
        let idle_kernel = self.idle_kernel_share();
        let url = server.stream_url();
        let verified = (sessions / VERIFIED_OF).max(VERIFIED_MIN).min(sessions);
        let sunk = sessions - verified;
        let ramp = (sunk as f64 * RAMP_S).max(1.0);
        let asked = |sessions, verified, source, seconds| Asked {
            url: &url,
            sessions,
            verified,
            source,
            seconds,
            transport: way.name(),
        };
        let sink_before = sink_counts(&Sink::IfbSoftware)?.0;
        let whole = ramp + SETTLE_S + self.seconds as f64;
        let near = Network::SAMPLED;
        let asked_few = asked(verified, true, near, whole);
        let mut few = Load::start(&self.network, &asked_few, &for_clients)?;
        few.await_event("playing")?;
        server.await_image()?;
        let mut many = None;
        if sunk > 0 {
            let asked_many = asked(sunk, false, way.source(), self.seconds as f64 + 1.0);
            let mut load = Load::start(&self.network, &asked_many, &for_clients)?;
            load.await_event("playing")?;
            many = Some(load);
        }
        let (cpu_costs, cores_used) = self.slices(&server, idle_kernel)?;
        let late = server.facts()?;
        let mut played_too = true;
        if let Some(many) = &mut many {
            let result = many.await_event("result")?;
            played_too = result["played"] == result["asked"] && way.is_whole(&result);
        }
        let mut client = few.await_event("result")?;
        if !played_too {
            client["played"] = serde_json::Value::from(0);
        }
        let last = server.facts()?;
        // The verified clients read from the server's BYE how many packets went through the veth
        // pair.
        let by_veth = client["verified"]["packets_in_all"].as_u64().unwrap_or(0);
        let sunk_packets = sink_counts(&Sink::IfbSoftware)?.0 - sink_before;
        let missing = way.missing(last.packets, by_veth + sunk_packets);
        let memory = late.memory_bytes.saturating_sub(idle.memory_bytes) as f64;
        Ok(Point {
            way,
            sessions,
            cpu_costs,
            cores_used,
            missing,
            refused: last.refused,
            memory_kib: memory / sessions as f64 / 1024.0,
            late,
            client,
        })
    }

    /// Returns the share of a core that kernel threads use without a session; it is subtracted.
    fn idle_kernel_share(&self) -> f64 {
        let (before, began) = (self.meter.of_kernel_threads(), Instant::now());
        std::thread::sleep(IDLE);
        let ran = self.meter.of_kernel_threads().saturating_sub(before);
        ran.as_secs_f64() / began.elapsed().as_secs_f64()
    }

    /// Measures in slices: returns the CPU cost and the number of busy cores of each.
    fn slices(&self, server: &Server, idle_kernel: f64) -> Result<(Vec<f64>, Vec<f64>), Error> {
        let (mut cpu_costs, mut used) = (Vec::new(), Vec::new());
        let slice = Duration::from_secs_f64(self.seconds as f64 / SLICES as f64);
        let mut before = (server.facts()?, self.meter.of_kernel_threads(), Instant::now());
        for _ in 0..SLICES {
            std::thread::sleep(slice);
            let now = (server.facts()?, self.meter.of_kernel_threads(), Instant::now());
            let wall = (now.2 - before.2).as_secs_f64();
            let kernel = now.1.saturating_sub(before.1).as_secs_f64() - idle_kernel * wall;
            let process = now.0.processor_seconds - before.0.processor_seconds;
            let cost = process + kernel.max(0.0);
            let bytes = now.0.bytes.saturating_sub(before.0.bytes).max(1);
            cpu_costs.push(cost * 1e9 / bytes as f64);
            used.push(cost / wall);
            before = now;
        }
        Ok((cpu_costs, used))
    }
}

fn add(point: &Point, cores: usize, results: &mut Results) {
    let ms = |us: u64| us as f64 / 1e3;
    let verified = &point.client["verified"];
    let late = |name: &str| verified["lateness_ms"][name].as_f64().unwrap_or(0.0);
    let count = |name: &str| verified[name].as_f64().unwrap_or(0.0);
    let each = point.cores_used.iter().map(|used| used * 1e6 / point.sessions as f64).collect();
    for (member, metric, unit, samples) in [
        ("server", "CPU cost", "s/GB", point.cpu_costs.clone()),
        ("server", "cores at work", "of 1", point.cores_used.clone()),
        ("server", "a session's second", "µs", each),
        ("server", "late, 99 %", "ms", vec![ms(point.late.late_p99_us)]),
        ("server", "late, 99.9 %", "ms", vec![ms(point.late.late_p999_us)]),
        ("server", "missing at the devices", "packets", vec![point.missing as f64]),
        ("server", "refused sends", "packets", vec![point.refused as f64]),
        ("server", "memory a session", "KiB", vec![point.memory_kib]),
        ("clients", "verified sessions", "sessions", vec![count("sessions")]),
        ("clients", "of them timely", "sessions", vec![count("timely")]),
        ("clients", "lost", "packets", vec![count("lost")]),
        ("clients", "late, median", "ms", vec![late("p50")]),
        ("clients", "late, 99.9 %", "ms", vec![late("p999")]),
        ("clients", "late, most", "ms", vec![late("max")]),
    ] {
        let row = Row::new("sessions", member, metric, unit, Figure::of(samples));
        let row = row.with("sessions", point.sessions).with("cores", cores);
        results.rows.push(point.way.tag(row.with("sink", point.way.sink.name())));
    }
    if !point.is_timely() {
        let line = point.client["bottleneck_line"].as_str().unwrap_or("not said");
        results.notes.push(format!(
            "{} sessions over {}, server on {cores} of the cores: not timely; broke first: {line}",
            point.sessions,
            point.way.title()
        ));
    }
}

/// Rate of the served asset.
const BITS_PER_SECOND: u64 = 5_000_000;
/// One session of this many has every packet verified: the same share at every point, as packets
/// received here cost the sender more than those in the ifb device.
const VERIFIED_OF: usize = 50;
const VERIFIED_MIN: usize = 2;
const ONE_CORE: &[usize] = &[100, 250, 500, 1000, 1500, 2000, 2500];
const MANY_CORES: &[usize] = &[1000, 1500, 2000, 2500];
const QUICK: &[usize] = &[100, 500];
/// Step and bound of the search beyond the list.
const STEP: usize = 250;
const SESSIONS_MAX: usize = 12_000;
/// Spread of the session starts; the load's own default.
const RAMP_S: f64 = 0.002;
/// Settling time of the load, two seconds, and some for setting up.
const SETTLE_S: f64 = 3.0;
const SLICES: usize = 7;
const IDLE: Duration = Duration::from_secs(1);
const RTP_PORT: u16 = 5004;
