// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab http`: files over HTTP from the installed server and from nginx, on one machine.
//!
//! One server runs at a time, on the last core; one client thread loads it from another. Servers
//! are measured alternately in rounds, every other round in reverse, and each is started anew for
//! its turn. Every turn first compares one response byte by byte with the file; in the timed
//! responses status and length are compared. Four parts:
//!
//! - `small`: whole files of 1 KB to 1 MB again and again on connections that stay open;
//! - `large`: a file of 1 GB, whole on one connection; on more, requests for parts of 2 MB, each
//!   connection from a place of its own on, so that the time is bounded and responses end within
//!   it;
//! - `https`: the same file whole over TLS 1.3 on one connection at a time;
//! - `paced`: 1,000 downloads of a clip at its bit rate of 5 Mb/s.
//!
//! Loopback charges the work of receiving to the sender, for all servers alike, and some of sending
//! to the receiver: `CPU cost, both ends` has both.
//!
//! Sources: docs/measuring.md (medians and spread).
//! Does not measure a disk: the files lie in memory.

pub(crate) mod client;
pub(crate) mod figures;
mod paced;
pub(crate) mod response;
mod rows;
mod server;
mod tls;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::client::{Client, Target};
use self::figures::percentile;
use self::paced::Paced;
use self::rows::{Labels, push, push_ratios, push_skips};
use self::server::{SERVERS, Server, Service};
use self::tls::Identity;
use crate::experiments::peers::clip;
use crate::experiments::peers::downloads::{self, connect, is_content};
use crate::experiments::peers::peer::{CLIP, Running, Setting};
use crate::experiments::peers::point::Instruments;
use measure::Error;
use measure::Options;
use measure::meter::{Cores, pin, thread_time};
use measure::network::Network;
use measure::results::Results;
use measure::schedule::in_turn;
use measure::scratch::ScratchDir;
use measure::warning::Warning;

/// Names of the parts, for `--part` and its help.
pub(crate) const PARTS: [&str; 4] = ["small", "large", "https", "paced"];

/// Returns the names of the servers, for `--member` and its help.
pub(crate) fn member_names() -> Vec<&'static str> {
    SERVERS.iter().map(|server| server.name).collect()
}

pub(crate) fn run(options: &Options) -> Result<Results, Error> {
    refuse_unknown("member", &options.members, &member_names())?;
    refuse_unknown("part", &options.parts, &PARTS)?;
    let mut results = Results::new("http", options.command.clone());
    let bench = Bench::new(options, &mut results)?;
    results.complete = true;
    let present = bench.present(&mut results);
    for case in bench.cases() {
        bench.measure(&case, &present, &mut results);
    }
    results.complete = results.complete && !options.stopped();
    Ok(results)
}

fn refuse_unknown(what: &str, asked: &[String], known: &[&str]) -> Result<(), Error> {
    match asked.iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(Error::Caller {
            what: format!("{what} {name}"),
            found: format!("no such {what} of http; write one of {}", known.join(", ")),
        }),
    }
}

/// One load under which all servers are measured alternately.
struct Case {
    part: &'static str,
    target: Target,
    connections: usize,
}

impl Case {
    /// Returns the parameters of its figures.
    fn labels(&self) -> Labels {
        [
            ("part", self.part.to_owned()),
            ("bytes", self.target.bytes.to_string()),
            ("connections", self.connections.to_string()),
        ]
    }

    fn title(&self) -> String {
        let Case { part, target, connections } = self;
        format!("{part}, {} bytes, {connections} connections", target.bytes)
    }
}

/// Figures of one server's turn.
pub(crate) struct Point {
    /// Responses, or parts of one, in the measured time.
    responses: f64,
    bytes: f64,
    /// Processor seconds of the server and of kernel threads.
    cpu_s: f64,
    seconds: f64,
    /// Processor seconds of the client.
    client_s: f64,
    /// Median and 99 % of the time to a whole response; unset where none is short.
    latencies: Option<[Duration; 2]>,
    paced: Option<Paced>,
}

/// State that all measurements share.
struct Bench<'a> {
    options: &'a Options,
    _network: Network,
    _scratch: ScratchDir,
    served: PathBuf,
    folder: PathBuf,
    identity: Identity,
    server: Cores,
    clients: Cores,
    instruments: Instruments,
    rounds: usize,
    /// Measured time of a turn.
    time: Duration,
    large_bytes: u64,
}

impl<'a> Bench<'a> {
    fn new(options: &'a Options, results: &mut Results) -> Result<Bench<'a>, Error> {
        let network = Network::new()?;
        let scratch = ScratchDir::new(options.folder.as_deref())?;
        let (served, folder) = (scratch.folder("served")?, scratch.folder("servers")?);
        let identity = Identity::make(&folder)?;
        raise_descriptors();
        let quick = options.quick;
        let rounds = options.rounds.unwrap_or(if quick { 1 } else { ROUNDS }).max(1);
        let time = options.seconds.map(|seconds| Duration::from_secs(seconds.clamp(1, 600)));
        let time = time.unwrap_or(if quick { TIME_QUICK } else { TIME });
        let (server, clients) = Cores::allowed().split(1);
        if Cores::allowed().count() == 1 {
            results.notes.push("one core: server and client share it".to_owned());
        }
        let instruments = Instruments::new(quick);
        let large_bytes = if quick { LARGE_QUICK } else { LARGE };
        let place = scratch.description.clone();
        let bench = Bench {
            options,
            _network: network,
            _scratch: scratch,
            served,
            folder,
            identity,
            server,
            clients,
            instruments,
            rounds,
            time,
            large_bytes,
        };
        bench.write_files()?;
        bench.note(&place, results);
        Ok(bench)
    }

    fn write_files(&self) -> Result<(), Error> {
        let mut written = Vec::new();
        for case in self.cases() {
            let (path, bytes) = (self.served.join(&case.target.name), case.target.bytes);
            if written.contains(&path) {
                continue;
            }
            let done = match case.part {
                "paced" => clip::write(&path, self.clip_s()),
                _ => downloads::write(&path, bytes),
            };
            done.map_err(Error::host("writing a file (is there memory for 1 GB?)"))?;
            written.push(path);
        }
        Ok(())
    }

    fn note(&self, place: &str, results: &mut Results) {
        results.notes.push(format!(
            "one server at a time on one core, one client thread on another; {} rounds of {:.1} s \
             in which the servers take turns, each after {:.1} s of warm-up; with {MANY} \
             connections or more twice that, after {:.1} s; paced: {} s after {} s; files in \
             {place}",
            self.rounds,
            self.time.as_secs_f64(),
            WARM_UP.as_secs_f64(),
            self.times(MANY).0.as_secs_f64(),
            self.paced_time().as_secs(),
            self.paced_settle().as_secs(),
        ));
        results.notes.push(
            "CPU cost: processor seconds of the server's process and of kernel threads per 10⁹ \
             bytes of files; requests of a core: per processor second; over loopback the sender \
             pays for receiving too, for all servers alike"
                .to_owned(),
        );
        results.notes.push(format!(
            "the client discards bodies in the kernel (MSG_TRUNC), from the first 64 KiB of a \
             response on; the large file on more than one connection: requests for parts of {} \
             bytes; https: {}, records discarded without decrypting them; every turn begins with \
             a response that is compared byte by byte",
            PART_BYTES.min(self.large_bytes),
            tls::SUITE,
        ));
    }

    /// Returns the selected servers whose program is installed; notes each, and those missing.
    fn present(&self, results: &mut Results) -> Vec<&'static Server> {
        let asked = &self.options.members;
        let is_asked = |name: &str| asked.is_empty() || asked.iter().any(|other| other == name);
        let mut present = Vec::new();
        for server in SERVERS.iter().filter(|server| is_asked(server.name)) {
            let name = server.name;
            match (server.peer.probe)() {
                Ok(version) => {
                    results.notes.push(format!("{name} ({version}): {}", server.differs));
                    present.push(server);
                }
                Err(found) => {
                    let install = server.peer.install;
                    results.notes.push(format!("skip: {name}: {found}; to install: {install}"));
                }
            }
        }
        present
    }

    /// Returns the selected cases.
    fn cases(&self) -> Vec<Case> {
        let Options { quick, parts, sizes, sessions, .. } = self.options;
        let mut cases = Vec::new();
        let usual = if *quick { CONNECTIONS_QUICK } else { CONNECTIONS };
        let usual = if sessions.is_empty() { usual } else { &sessions[..] };
        let small = if *quick { SMALL_QUICK } else { SMALL }.iter().copied();
        let large = self.large_bytes;
        let of = |bytes, part| Target { name: downloads::name(bytes), bytes, part };
        let is_asked =
            |bytes: u64| sizes.is_empty() || sizes.iter().any(|&b| u64::from(b) == bytes);
        for bytes in small.filter(|&bytes| is_asked(bytes)) {
            let case = |&connections| Case { part: "small", target: of(bytes, None), connections };
            cases.extend(usual.iter().map(case));
        }
        for &connections in usual {
            let part = (connections > 1).then_some(PART_BYTES.min(large));
            cases.push(Case { part: "large", target: of(large, part), connections });
        }
        cases.push(Case { part: "https", target: of(large, None), connections: 1 });
        let clip_bytes = self.clip_s() * clip::BITS_PER_SECOND / 8;
        let bytes = clip_bytes / clip::PACKET_BYTES * clip::PACKET_BYTES;
        let connections = sessions.last().copied();
        let connections = connections.unwrap_or(if *quick { PACED_QUICK } else { PACED });
        let target = Target { name: CLIP.to_owned(), bytes, part: None };
        cases.push(Case { part: "paced", target, connections });
        cases.retain(|case| parts.is_empty() || parts.iter().any(|part| part == case.part));
        cases
    }

    /// Measures a case in rounds; drops a server after its first failure.
    fn measure(&self, case: &Case, servers: &[&'static Server], results: &mut Results) {
        let mut turns = Vec::new();
        for &server in servers {
            match (server.lacks)(self.service(case)) {
                None => turns.push((server, Vec::new(), false)),
                Some(reason) => push_skips(results, server.name, case.part, &reason),
            }
        }
        let count = turns.len();
        for round in 0..self.rounds {
            for turn in 0..count {
                let (server, points, is_out) = &mut turns[in_turn(round, turn, count)];
                if *is_out || self.options.stopped() {
                    continue;
                }
                let what = format!("{}: {}", server.name, case.title());
                self.options.progress(round * count + turn, self.rounds * count, &what);
                match self.turn(server, case) {
                    Ok(point) => points.push(point),
                    Err(error) => {
                        *is_out = true;
                        results.complete = false;
                        let found = format!("{}: {error}", case.title());
                        results
                            .warn(Warning::MemberFailed { member: server.name.to_owned(), found });
                    }
                }
            }
        }
        for (server, points, _) in &turns {
            push(server.name, case.part, &case.labels(), points, results);
        }
        push_ratios(&case.labels(), results);
    }

    fn service(&self, case: &Case) -> Service<'_> {
        match case.part {
            "https" => Service::Https(&self.identity.folder),
            "paced" => Service::Paced,
            _ => Service::Plain,
        }
    }

    /// Starts a server and measures it once.
    fn turn(&self, server: &Server, case: &Case) -> Result<Point, Error> {
        let setting = Setting {
            folder: &self.folder,
            served: &self.served,
            cores: &self.server,
            other_cores: &self.clients,
            ports: &[],
        };
        let mut running = (server.start)(&setting, self.service(case))?;
        let work = || {
            pin(&self.clients, true);
            match case.part {
                "https" => self.encrypted(&running, case),
                "paced" => self.paced(&running, case),
                _ => self.plain(&running, case),
            }
        };
        // The thread ends, and its pinning to a core with it.
        let point =
            std::thread::scope(|scope| scope.spawn(work).join().expect("it does not panic"));
        if !running.processes.are_running() {
            return Err(running.processes.failed("ended while it was measured".to_owned()));
        }
        point.map_err(|error| match error {
            Error::Wrong { found, .. } => Error::Wrong { member: server.name.to_owned(), found },
            error => error,
        })
    }

    fn plain(&self, running: &Running, case: &Case) -> Result<Point, Error> {
        verify(running.http_port, &case.target, is_content).map_err(wrong)?;
        let client = Client::open(running.http_port, case.connections, case.target.requests());
        let mut client = client.map_err(wrong)?;
        let (warm_up, time) = self.times(case.connections);
        client.run(warm_up, 1).map_err(wrong)?;
        let work = || {
            let before = thread_time();
            let received = client.run(time, 1).map_err(wrong)?;
            Ok((received, thread_time() - before))
        };
        let ((mut received, client), cpu_s, seconds) =
            self.instruments.around(&running.processes, work)?;
        let latencies = [0.5, 0.99].map(|share| percentile(&mut received.latencies, share));
        let unit = case.target.part.unwrap_or(case.target.bytes);
        // Counts parts of a response where it is long: the time has one more or less of them.
        Ok(Point {
            responses: received.bytes as f64 / unit as f64,
            bytes: received.bytes as f64,
            cpu_s,
            seconds,
            client_s: client.as_secs_f64(),
            latencies: Some(latencies),
            paced: None,
        })
    }

    fn encrypted(&self, running: &Running, case: &Case) -> Result<Point, Error> {
        self.identity.verify(&case.target).map_err(wrong)?;
        let work = || {
            let before = thread_time();
            let count = self.identity.download(&case.target, self.time).map_err(wrong)?;
            Ok((count as f64, thread_time() - before))
        };
        let ((count, client), cpu_s, seconds) =
            self.instruments.around(&running.processes, work)?;
        Ok(Point {
            responses: count,
            bytes: count * case.target.bytes as f64,
            cpu_s,
            seconds,
            client_s: client.as_secs_f64(),
            latencies: None,
            paced: None,
        })
    }

    /// Returns the warm-up and the measured time of a turn.
    fn times(&self, connections: usize) -> (Duration, Duration) {
        match connections {
            MANY.. if !self.options.quick => (WARM_UP_MANY, self.time * 2),
            _ => (WARM_UP, self.time),
        }
    }

    fn paced_time(&self) -> Duration {
        let usual = Duration::from_secs(if self.options.quick { 2 } else { PACED_S });
        self.options.seconds.map_or(usual, |_| self.time.max(Duration::from_secs(2)))
    }

    fn paced_settle(&self) -> Duration {
        Duration::from_secs(if self.options.quick { 1 } else { PACED_SETTLE_S })
    }

    /// Length of the clip: longer than a download lasts, at twice its rate for the first seconds.
    fn clip_s(&self) -> u64 {
        (self.paced_time() + self.paced_settle()).as_secs() + CLIP_MORE_S
    }
}

/// Downloads the target once, or its first part and one from its middle, and compares the bytes.
fn verify(port: u16, target: &Target, is_right: impl Fn(u64, &[u8]) -> bool) -> Result<(), String> {
    let mut connection = connect(port).map_err(|error| error.to_string())?;
    let mut buffer = vec![0; 1 << 20];
    for index in 0..if target.part.is_some() { 2 } else { 1 } {
        let place = target.first(index, 2);
        let (request, wanted) = target.request(place, "");
        let sent = connection.write_all(request.as_bytes());
        sent.map_err(|error| format!("sending a request: {error}"))?;
        let at = |offset: u64, bytes: &[u8]| is_right(place + offset, bytes);
        response::read(&mut connection, wanted, &mut buffer, at)?;
    }
    Ok(())
}

/// Raises the soft limit of descriptors, for this program and the servers it starts.
fn raise_descriptors() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Ignores an error: a limit that cannot be raised shows when a connection cannot be opened.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

fn wrong(found: String) -> Error {
    Error::Wrong { member: String::new(), found }
}

const SMALL: &[u64] = &[1_000, 100_000, 1_000_000];
const SMALL_QUICK: &[u64] = &[1_000, 100_000];
const LARGE: u64 = 1_000_000_000;
const LARGE_QUICK: u64 = 20_000_000;
/// A request's part of the large file.
const PART_BYTES: u64 = 2_000_000;
const CONNECTIONS: &[usize] = &[1, 64, 1_000];
const CONNECTIONS_QUICK: &[usize] = &[1, 16];
const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_secs(1);
const TIME_QUICK: Duration = Duration::from_millis(200);
const WARM_UP: Duration = Duration::from_millis(300);
/// With 1,000 connections of megabytes every server passes through two states: for the first second
/// the receive windows grow and clear the queue of the sender, so that its segments leave with the
/// acknowledgements, at the client's cost (nginx 0.10 to 0.15 s/GB, the client 0.25); then they
/// leave as they are written, at the server's cost (0.27 to 0.35 and 0.07). A turn that begins
/// within the change compares states and not servers.
const WARM_UP_MANY: Duration = Duration::from_secs(3);
/// Number of connections from which on these two states occur.
const MANY: usize = 500;
const PACED: usize = 1_000;
const PACED_QUICK: usize = 20;
const PACED_S: u64 = 15;
/// Longer than a server needs to send the start bursts of all connections: pagewire sends ten
/// seconds of media at once.
const PACED_SETTLE_S: u64 = 15;
const CLIP_MORE_S: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_known_are_refused_with_those_that_are() {
        let options = Options { parts: vec!["huge".to_owned()], ..Options::default() };
        let found = run(&options).unwrap_err().to_string();
        assert!(found.contains("part huge") && found.contains("small, large, https"), "{found}");
        let options = Options { members: vec!["lighttpd".to_owned()], ..Options::default() };
        let found = run(&options).unwrap_err().to_string();
        assert!(found.contains("member lighttpd") && found.contains("nginx_open"), "{found}");
    }
}
