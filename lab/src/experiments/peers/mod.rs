// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab peers`: pagewire's server beside other programs that serve media on this machine.
//!
//! One server runs at a time, on the last core; its clients run on the others. All stream the same
//! clip, to the same clients. A peer is verified before its time counts: one session's elementary
//! stream and one download of each size are compared byte by byte. Then two measurements follow:
//! the largest number of timely sessions, by doubling and bisecting; and, in rounds in which the
//! peers alternate, CPU time, memory and lateness at one number of sessions, and downloads. Peers
//! of RTSP are measured over UDP and over TCP, where the packets are on the RTSP connection; bytes
//! are compared over UDP, order and number of packets over both.
//!
//! Loopback charges the work of receiving to the sender, for all peers alike, so the CPU time here
//! is larger than that of sending into a card. A missing peer is a note with the line that installs
//! it.
//!
//! Sources: docs/measuring.md (medians and spread).
//! Does not tune the peers beyond the settings that their documentation recommends for the purpose.

mod capture;
pub(crate) mod clip;
pub(crate) mod downloads;
mod ffmpeg;
mod gstreamer;
mod live555;
mod mediamtx;
mod multicat;
pub(crate) mod nginx;
pub(crate) mod pagewire;
pub(crate) mod peer;
pub(crate) mod point;
pub(crate) mod process;
pub(crate) mod rtsp;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use paths::Transport;

use self::capture::{Capture, Receivers};
use self::downloads::Downloads;
use self::peer::{CLIP, Contender, Peer, Setting, Streams};
use self::point::{Instruments, Point};
use measure::Error;
use measure::Options;
use measure::meter::Cores;
use measure::network::Network;
use measure::results::{Results, Row};
use measure::scratch::ScratchDir;
use measure::statistics::Figure;
use measure::warning::Warning;

/// All peers, in the order of tables.
static PEERS: &[&Peer] = &[
    &pagewire::PEER,
    &gstreamer::OWN,
    &gstreamer::SHARED,
    &live555::PEER,
    &mediamtx::PEER,
    &multicat::PEER,
    &ffmpeg::PEER,
    &nginx::PEER,
];

/// Returns the names of all peers.
pub(crate) fn names() -> Vec<&'static str> {
    PEERS.iter().map(|peer| peer.name).collect()
}

pub(crate) fn run(options: &Options) -> Result<Results, Error> {
    if let Some(name) = options.members.iter().find(|name| !names().contains(&name.as_str())) {
        return Err(Error::Caller {
            what: format!("member {name}"),
            found: format!("no such peer; write a name of {}", names().join(", ")),
        });
    }
    let is_known = |transport: &&Transport| TRANSPORTS.contains(transport);
    if let Some(unknown) = options.transports.iter().find(|transport| !is_known(transport)) {
        return Err(Error::Caller {
            what: format!("transport {unknown}"),
            found: "streams go over udp or tcp; write one of them, or both".to_owned(),
        });
    }
    let mut results = Results::new("peers", options.command.clone());
    let bench = Bench::new(options, &mut results)?;
    let mut peers = bench.present(&mut results);
    results.complete = true;
    peers.retain(|peer| bench.verify_or_warn(peer, &mut results));
    if !options.quick && options.sessions.is_empty() {
        let contenders = bench.contenders(&peers);
        for (index, &contender) in contenders.iter().enumerate() {
            let what = format!("{}: timely sessions", contender.label());
            bench.progress(index, contenders.len(), &what);
            bench.search(contender, &mut results);
        }
    }
    bench.streams(&peers, &mut results);
    bench.downloads(&peers, &mut results);
    results.complete = results.complete && !options.stopped();
    Ok(results)
}

/// State that all measurements share.
struct Bench<'a> {
    options: &'a Options,
    _network: Network,
    _scratch: ScratchDir,
    served: PathBuf,
    /// Elementary stream of the clip.
    elementary: Vec<u8>,
    folder: PathBuf,
    server: Cores,
    clients: Cores,
    instruments: Instruments,
    rounds: usize,
    seconds: f64,
    sizes: &'static [u64],
}

impl<'a> Bench<'a> {
    fn new(options: &'a Options, results: &mut Results) -> Result<Bench<'a>, Error> {
        let network = Network::new()?;
        let scratch = ScratchDir::new(options.folder.as_deref())?;
        let (served, folder) = (scratch.folder("served")?, scratch.folder("peers")?);
        let clip = served.join(CLIP);
        let clip_s = if options.quick { CLIP_QUICK_S } else { CLIP_S };
        clip::write(&clip, clip_s).map_err(Error::host("writing the clip"))?;
        let bytes = std::fs::read(&clip).map_err(Error::host("reading the clip"))?;
        let elementary = clip::elementary(&bytes).expect("the clip is whole");
        let sizes = if options.quick { SIZES_QUICK } else { SIZES };
        for &bytes in sizes {
            let path = served.join(downloads::name(bytes));
            downloads::write(&path, bytes).map_err(Error::host("a file to download"))?;
        }
        let (server, clients) = Cores::allowed().split(1);
        let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { ROUNDS });
        let seconds = options.seconds.unwrap_or(if options.quick { 1 } else { SECONDS });
        results.notes.push(format!(
            "one server at a time on one core, its clients on the others; clip of {} Mb/s, the \
             same for all; {rounds} rounds of {seconds} s in which the peers take turns; files in \
             {}",
            clip::BITS_PER_SECOND / 1_000_000,
            scratch.description,
        ));
        results.notes.push(
            "cpu_s_per_gb: processor seconds of the server's processes, their children and kernel \
             threads per 10⁹ bytes of RTP datagrams, or of files; over loopback the sender pays \
             for receiving too, for all peers alike"
                .to_owned(),
        );
        results.notes.push(
            "memory: what the processes allocated; page cache, mapped files and socket buffers are \
             not in it"
                .to_owned(),
        );
        if Cores::allowed().count() == 1 {
            results.notes.push("one core: server and clients share it".to_owned());
        }
        let instruments = Instruments::new(options.quick);
        Ok(Bench {
            options,
            _network: network,
            _scratch: scratch,
            served,
            elementary,
            folder,
            server,
            clients,
            instruments,
            rounds,
            seconds: seconds as f64,
            sizes,
        })
    }

    fn setting<'b>(&'b self, ports: &'b [u16]) -> Setting<'b> {
        Setting {
            folder: &self.folder,
            served: &self.served,
            cores: &self.server,
            other_cores: &self.clients,
            ports,
        }
    }

    fn progress(&self, done: usize, of: usize, what: &str) {
        self.options.progress(done, of, what);
    }

    /// Returns the selected peers that are installed; adds a note for each, and for missing ones.
    fn present(&self, results: &mut Results) -> Vec<&'static Peer> {
        let asked = &self.options.members;
        let mut present = Vec::new();
        for &peer in PEERS {
            if !asked.is_empty() && !asked.iter().any(|name| name == peer.name) {
                continue;
            }
            match (peer.probe)() {
                Ok(version) => {
                    results.notes.push(format!("{} ({version}): {}", peer.name, peer.differs));
                    present.push(peer);
                }
                Err(found) => {
                    let (name, install) = (peer.name, peer.install);
                    results.notes.push(format!("skip: {name}: {found}; to install: {install}"));
                }
            }
        }
        present
    }

    fn verify_or_warn(&self, peer: &Peer, results: &mut Results) -> bool {
        if self.options.stopped() {
            return false;
        }
        self.progress(0, 1, &format!("{}: verifying", peer.name));
        match self.verify(peer) {
            Ok(checks) => {
                let figure = Figure::of(vec![checks]);
                results.rows.push(Row::new("peers", peer.name, "verified", "checks", figure));
                true
            }
            Err(error) => {
                self.failed(peer, &error, results);
                false
            }
        }
    }

    /// Compares a session's media and a download of each size; returns the number of comparisons.
    fn verify(&self, peer: &Peer) -> Result<f64, Error> {
        let mut checks = 0.0;
        if peer.streams != Streams::No {
            let capture = self.sample(peer)?;
            capture.verify(&self.elementary).map_err(|found| wrong(peer, found))?;
            checks += 1.0;
        }
        if peer.interleaves {
            self.prepare_interleaved(peer)?;
        }
        if peer.downloads {
            let running = (peer.start)(&self.setting(&[]))?;
            for &bytes in self.sizes {
                downloads::verify(running.http_port, bytes)?;
                checks += 1.0;
            }
        }
        Ok(checks)
    }

    /// Returns the packets of one session.
    fn sample(&self, peer: &Peer) -> Result<Capture, Error> {
        let receivers = Receivers::open(1, 1)?;
        let stop = AtomicBool::new(false);
        let (captures, _) = std::thread::scope(|scope| {
            let reading = scope.spawn(|| receivers.read(&self.clients, &stop));
            let played = (|| {
                let running = (peer.start)(&self.setting(&receivers.ports))?;
                let session = match peer.streams {
                    Streams::Pushed => None,
                    _ => Some(rtsp::Session::play(&running.stream_url, receivers.ports[0])?),
                };
                receivers.await_first();
                std::thread::sleep(SAMPLE);
                self.await_prepared(peer, Transport::Udp);
                drop((session, running));
                Ok(())
            })();
            stop.store(true, Ordering::Relaxed);
            let captures = reading.join().expect("it does not panic");
            played.map(|()| captures)
        })?;
        Ok(captures.into_iter().next().expect("one was asked for"))
    }

    /// Makes the server prepare the data that later sessions over TCP need.
    fn prepare_interleaved(&self, peer: &Peer) -> Result<(), Error> {
        if (peer.is_prepared)(&self.setting(&[]), Transport::Tcp) {
            return Ok(());
        }
        let running = (peer.start)(&self.setting(&[]))?;
        let session = rtsp::Session::play_interleaved(&running.stream_url)?;
        self.await_prepared(peer, Transport::Tcp);
        drop((session, running));
        Ok(())
    }

    /// Waits while the server prepares data for later sessions.
    fn await_prepared(&self, peer: &Peer, transport: Transport) {
        let deadline = Instant::now() + PREPARE_WAIT;
        while Instant::now() < deadline && !(peer.is_prepared)(&self.setting(&[]), transport) {
            std::thread::sleep(SAMPLE / 20);
        }
    }

    fn failed(&self, peer: &Peer, error: &Error, results: &mut Results) {
        results.complete = false;
        let (member, found) = (peer.name.to_owned(), error.to_string());
        results.warn(Warning::MemberFailed { member, found });
    }

    /// Returns the streaming peers over each selected transport that they have, UDP first.
    fn contenders(&self, peers: &[&'static Peer]) -> Vec<Contender> {
        let selected = &self.options.transports;
        let mut contenders = Vec::new();
        for transport in TRANSPORTS {
            if !selected.is_empty() && !selected.contains(&transport) {
                continue;
            }
            let has = |peer: &&&'static Peer| match transport {
                Transport::Tcp => peer.interleaves,
                _ => peer.streams != Streams::No,
            };
            contenders.extend(peers.iter().filter(has).map(|peer| Contender { peer, transport }));
        }
        contenders
    }

    /// Finds the largest number of timely sessions: doubles while they are timely, then bisects.
    fn search(&self, contender: Contender, results: &mut Results) {
        let peer = contender.peer;
        let most = if peer.streams == Streams::Pushed { PUSHED_MAX } else { SESSIONS_MAX };
        let mut best: Option<(usize, Point)> = None;
        let mut fault = None;
        let is_timely = |sessions: usize| {
            if self.options.stopped() {
                return Ok(false);
            }
            let point = self.timely_point(contender, sessions)?;
            let timely = point.fault.is_none();
            if timely {
                best = Some((sessions, point));
            } else {
                fault = point.fault.map(|fault| format!("{sessions} sessions: {fault}"));
            }
            Ok(timely)
        };
        let found = bisect(FIRST, most, is_timely);
        let found = match found {
            Ok(found) => found,
            Err(error) => return self.failed(peer, &error, results),
        };
        let name = contender.label();
        let figure = Figure::derived(found as f64);
        let row = Row::new("peers", peer.name, MOST_TIMELY, "sessions", figure);
        results.rows.push(row.with("transport", contender.transport));
        if found >= most {
            results.notes.push(format!("{name}: the search ended at its bound, {most} sessions"));
        } else if let Some(fault) = fault {
            results.notes.push(format!("{name}: not timely with {fault}"));
        }
        if let Some((sessions, point)) = best {
            push_streams(contender, (sessions, "most timely"), &[point], results);
        }
    }

    /// Measures a point that is not timely once more, as one disturbance is no limit.
    fn timely_point(&self, contender: Contender, sessions: usize) -> Result<Point, Error> {
        let setting = self.setting(&[]);
        let point = self.instruments.stream(contender, &setting, sessions, SEARCH_SECONDS)?;
        if point.fault.is_none() || self.options.stopped() {
            return Ok(point);
        }
        self.instruments.stream(contender, &setting, sessions, SEARCH_SECONDS)
    }

    /// Measures all peers at one number of sessions, in interleaved rounds.
    fn streams(&self, peers: &[&'static Peer], results: &mut Results) {
        let quick = if self.options.quick { &[SESSIONS_QUICK] } else { &[SESSIONS] };
        let asked =
            if self.options.sessions.is_empty() { quick } else { &self.options.sessions[..] };
        let streaming = self.contenders(peers);
        for &sessions in asked {
            let of = |contender: Contender| {
                let setting = self.setting(&[]);
                self.instruments.stream(contender, &setting, sessions, self.seconds)
            };
            let points = self.in_rounds(&streaming, &format!("{sessions} sessions"), of, results);
            for (&contender, points) in streaming.iter().zip(points) {
                push_streams(contender, (sessions, "the same for all"), &points, results);
                let mut faults = points.iter().filter_map(|point| point.fault.as_ref());
                if let Some(fault) = faults.next_back() {
                    let name = contender.label();
                    let note = format!("{name}, {sessions} sessions: not timely: {fault}");
                    results.notes.push(note);
                }
            }
        }
    }

    fn downloads(&self, peers: &[&'static Peer], results: &mut Results) {
        let serving = peers.iter().filter(|peer| peer.downloads);
        let serving: Vec<Contender> =
            serving.map(|peer| Contender { peer, transport: Transport::Tcp }).collect();
        let seconds = if self.options.quick { DOWNLOADS_QUICK_S } else { DOWNLOADS_S };
        for &bytes in self.sizes {
            let of = |contender: Contender| {
                let running = (contender.peer.start)(&self.setting(&[]))?;
                let (clients, instruments) = (&self.clients, &self.instruments);
                downloads::measure(instruments, &running, clients, bytes, seconds)
            };
            let what = format!("downloads of {bytes} bytes");
            let points = self.in_rounds(&serving, &what, of, results);
            for (contender, points) in serving.iter().zip(points) {
                push_downloads(contender.peer, bytes, &points, results);
            }
        }
    }

    /// Measures every peer once a round; drops a peer after its first failure.
    fn in_rounds<T>(
        &self,
        peers: &[Contender],
        what: &str,
        of: impl Fn(Contender) -> Result<T, Error>,
        results: &mut Results,
    ) -> Vec<Vec<T>> {
        let mut points: Vec<Vec<T>> = peers.iter().map(|_| Vec::new()).collect();
        let mut is_out = vec![false; peers.len()];
        for round in 0..self.rounds {
            for (index, &contender) in peers.iter().enumerate() {
                if is_out[index] || self.options.stopped() {
                    continue;
                }
                let done = round * peers.len() + index;
                let step = format!("{}: {what}", contender.label());
                self.progress(done, self.rounds * peers.len(), &step);
                match of(contender) {
                    Ok(point) => points[index].push(point),
                    Err(error) => {
                        is_out[index] = true;
                        self.failed(contender.peer, &error, results);
                    }
                }
            }
        }
        points
    }
}

fn wrong(peer: &Peer, found: String) -> Error {
    Error::Wrong { member: peer.name.to_owned(), found }
}

/// Doubles from `first` while it is timely, then bisects to within an eighth; 0 when one session is
/// not timely.
fn bisect(
    first: usize,
    most: usize,
    mut is_timely: impl FnMut(usize) -> Result<bool, Error>,
) -> Result<usize, Error> {
    let (mut good, mut bad, mut next) = (0, None, first);
    loop {
        if is_timely(next)? {
            good = next;
        } else {
            bad = Some(next);
        }
        next = match bad {
            None if good >= most => return Ok(good),
            None => (good * 2).min(most),
            Some(bad) if bad - good <= (good / 8).max(1) => return Ok(good),
            Some(bad) => good.midpoint(bad),
        };
    }
}

fn push_streams(
    Contender { peer, transport }: Contender,
    (sessions, which): (usize, &str),
    points: &[Point],
    results: &mut Results,
) {
    if points.is_empty() {
        return;
    }
    let mut push = |metric: &str, unit: &str, of: &dyn Fn(&Point) -> f64| {
        let figure = Figure::of(points.iter().map(of).collect());
        let row = Row::new("peers", peer.name, metric, unit, figure);
        let row = row.with("transport", transport);
        results.rows.push(row.with("sessions", sessions).with("number", which));
    };
    push(CPU_COST, "s/GB", &|point| point.cpu_s_per_gb);
    push("cores at work", "of 1", &|point| point.cores_used);
    push("memory a session", "KiB", &|point| point.memory_kib);
    push("late, median", "ms", &|point| point.late.p50);
    push("late, 99 %", "ms", &|point| point.late.p99);
    push("late, most", "ms", &|point| point.late.max);
    push("rate of a session", "Mb/s", &|point| point.rate);
    push("client's core", "of 1", &|point| point.client);
    let share = points.iter().map(|point| point.client).fold(0.0, f64::max);
    warn_of_client(peer.name, &format!("{sessions} sessions over {transport}"), share, results);
}

fn push_downloads(peer: &Peer, bytes: u64, points: &[Downloads], results: &mut Results) {
    if points.is_empty() {
        return;
    }
    let mut push = |metric: &str, unit: &str, of: &dyn Fn(&Downloads) -> f64| {
        let figure = Figure::of(points.iter().map(of).collect());
        let row = Row::new("peers", peer.name, metric, unit, figure);
        results.rows.push(row.with("bytes", bytes));
    };
    push("requests", "1/s", &|point| point.per_second);
    push("CPU time of a request", "µs", &|point| point.cpu_us);
    push(CPU_COST, "s/GB", &|point| point.cpu_s_per_gb);
    push("client's core", "of 1", &|point| point.client);
    let share = points.iter().map(|point| point.client).fold(0.0, f64::max);
    warn_of_client(peer.name, &format!("downloads of {bytes} bytes"), share, results);
}

/// Warns when a busy client may be the limit.
pub(crate) fn warn_of_client(name: &str, what: &str, share: f64, results: &mut Results) {
    if share > CLIENT_SHARE_MAX {
        let member = format!("{name}, {what}");
        results.warn(Warning::ClientLimits { member, share });
    }
}

pub(crate) const CPU_COST: &str = "CPU cost";
/// Transports of streams; over TCP the packets are on the RTSP connection.
const TRANSPORTS: [Transport; 2] = [Transport::Udp, Transport::Tcp];
const MOST_TIMELY: &str = "timely sessions a core";
/// Sessions that every peer can serve timely.
const SESSIONS: usize = 40;
const SESSIONS_QUICK: usize = 5;
const SECONDS: u64 = 5;
const SEARCH_SECONDS: f64 = 3.0;
const ROUNDS: usize = 3;
/// First and largest number of sessions of the search.
const FIRST: usize = 64;
const SESSIONS_MAX: usize = 4096;
const PUSHED_MAX: usize = 1024;
/// Seconds for the ramp of the largest search, its settling and measuring, and a margin.
const CLIP_S: u64 = 60;
const CLIP_QUICK_S: u64 = 20;
const SIZES: &[u64] = &[1_000, 100_000, 1_000_000_000];
const SIZES_QUICK: &[u64] = &[1_000, 100_000, 20_000_000];
const DOWNLOADS_S: f64 = 2.0;
const DOWNLOADS_QUICK_S: f64 = 0.3;
const CLIENT_SHARE_MAX: f64 = 0.8;
const SAMPLE: Duration = Duration::from_millis(1500);
const PREPARE_WAIT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_finds_the_limit_within_an_eighth() {
        for limit in [0, 1, 7, 63, 64, 68, 200, 2500, 4096, 9999] {
            let mut asked = Vec::new();
            let found = bisect(64, 4096, |sessions| {
                asked.push(sessions);
                Ok(sessions <= limit)
            });
            let (found, limit) = (found.unwrap(), limit.min(4096));
            assert!(found <= limit && limit - found <= found / 8 + 1, "{found} of {limit}");
            assert!(asked.len() <= 14, "{asked:?}");
        }
    }

    #[test]
    fn peers_have_names_and_ways_to_install_them() {
        let mut names = names();
        assert!(PEERS.iter().all(|peer| !peer.differs.is_empty() && !peer.install.is_empty()));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
