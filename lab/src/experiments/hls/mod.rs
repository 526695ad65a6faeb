// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab hls`: segments and playlists made on the fly, beside plain range requests of the
//! same bytes and beside nginx with segments that were prepared as files.
//!
//! One server runs at a time, on the last core; one client thread loads it from another. Servers
//! are measured alternately in rounds, every other round in reverse, and each is started anew for
//! its turn. In pagewire's turn its segments and plain ranges of the film alternate on the same
//! process. Every answer is compared byte by byte in the first round, one in the others; in the
//! timed answers status and length are compared. The parts are those of [`parts::PARTS`].
//!
//! Films and prepared segments are written, dropped from memory and read again before the first
//! round, as those of a library are: a segment of pictures and sound took 781 µs from the pages
//! that its writer left and 642 from those of a read (ext4, Xeon 2.5 GHz).
//!
//! Processor time is that of the server's process. Kernel threads are left out: these servers have
//! no work for them, and on a machine that builds beside the measurement they work for other
//! processes.
//!
//! Sources: RFC 8216; docs/measuring.md (medians and spread).
//! Does not measure the first request of a film, whose plan is made then.

pub(crate) mod films;
mod packager;
mod parts;
mod requests;
mod rows;
mod viewers;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use self::films::Film;
use self::parts::{Media, PARTS, Part};
use self::requests::{PagewireRequests, RequestList, get, of_files, of_pagewire};
use self::rows::{Counted, Labels, Point, push, push_count, push_ratios};
use self::viewers::ViewersPoint;
use crate::experiments::http::client::Client;
use crate::experiments::http::figures::percentile;
use crate::experiments::peers::nginx::{self, Directives};
use crate::experiments::peers::pagewire;
use crate::experiments::peers::peer::{Running, Setting};
use measure::Error;
use measure::Options;
use measure::meter::{Cores, pin, thread_time};
use measure::network::Network;
use measure::results::Results;
use measure::schedule::in_turn;
use measure::scratch::{ScratchDir, read_again};
use measure::warning::Warning;

/// Returns the names of the parts, for `--part` and its help.
pub(crate) fn part_names() -> Vec<&'static str> {
    PARTS.iter().map(|part| part.name).chain([VIEWERS]).collect()
}

/// Returns the names of the members, for the help.
pub(crate) fn member_names() -> [&'static str; 4] {
    [PAGEWIRE, PLAIN, NGINX, NGINX_OPEN]
}

pub(crate) fn run(options: &Options) -> Result<Results, Error> {
    let known = part_names();
    if let Some(name) = options.parts.iter().find(|name| !known.contains(&name.as_str())) {
        let found = format!("no such part of hls; write one of {}", known.join(", "));
        return Err(Error::Caller { what: format!("part {name}"), found });
    }
    let mut results = Results::new("hls", options.command.clone());
    let bench = Bench::new(options, &mut results)?;
    results.complete = true;
    for part in bench.parts() {
        bench.measure(part, &mut results)?;
    }
    if bench.has_viewers() {
        bench.measure_viewers(&mut results)?;
    }
    results.complete = results.complete && !options.stopped();
    Ok(results)
}

/// A server that is measured alternately with others.
#[derive(Clone, Copy)]
enum Server {
    /// Without a pace of downloads: the client requests more than a player.
    Pagewire,
    /// With the settings of its start.
    PagewirePaced,
    /// nginx with more directives.
    Nginx(&'static str),
}

/// Lists of requests that one server answers, with the names of their members.
struct Contender {
    server: Server,
    served: PathBuf,
    lists: Vec<(&'static str, RequestList, Vec<Point>)>,
    is_out: bool,
}

/// State that all measurements share.
struct Bench<'a> {
    options: &'a Options,
    _network: Network,
    _scratch: ScratchDir,
    films: PathBuf,
    folder: PathBuf,
    server: Cores,
    clients: Cores,
    rounds: usize,
    /// Measured time of a turn.
    time: Duration,
    has_nginx: bool,
}

impl<'a> Bench<'a> {
    fn new(options: &'a Options, results: &mut Results) -> Result<Bench<'a>, Error> {
        let ffmpeg = films::probe()?;
        let network = Network::new()?;
        let scratch = ScratchDir::new(options.folder.as_deref())?;
        let (films, folder) = (scratch.folder("films")?, scratch.folder("servers")?);
        let quick = options.quick;
        let rounds = options.rounds.unwrap_or(if quick { 1 } else { ROUNDS }).max(1);
        let time = options.seconds.map(|seconds| Duration::from_secs(seconds.clamp(1, 600)));
        let time = time.unwrap_or(if quick { TIME_QUICK } else { TIME });
        let (server, clients) = Cores::allowed().split(1);
        if Cores::allowed().count() == 1 {
            results.notes.push("one core: server and client share it".to_owned());
        }
        let nginx = (nginx::PEER.probe)();
        let place = scratch.description.clone();
        let has_nginx = nginx.is_ok();
        let bench = Bench {
            options,
            _network: network,
            _scratch: scratch,
            films,
            folder,
            server,
            clients,
            rounds,
            time,
            has_nginx,
        };
        for film in bench.films_needed() {
            film.write(&bench.films, quick)?;
        }
        read_again(&bench.films)?;
        results.notes.push(format!(
            "one server at a time on one core, one client thread on another; {rounds} rounds of \
             {:.1} s in which the servers take turns, each after {:.1} s of warm-up; films by \
             {ffmpeg} in {place}, read again before the first",
            bench.time.as_secs_f64(),
            WARM_UP.as_secs_f64(),
        ));
        results.notes.push(
            "CPU time: user and system time of the server's process; the client discards bodies in \
             the kernel (MSG_TRUNC), from the first 64 KiB of an answer on; over loopback the \
             sender pays for receiving too, for all servers alike"
                .to_owned(),
        );
        match nginx {
            Ok(version) => {
                results.notes.push(format!("{NGINX} ({version}): {}", nginx::PEER.differs));
                let differs = "the same with open_file_cache, looked at again after a second";
                results.notes.push(format!("{NGINX_OPEN}: {differs}"));
            }
            Err(found) => {
                let install = nginx::PEER.install;
                results.notes.push(format!("skip: {NGINX}: {found}; to install: {install}"));
            }
        }
        Ok(bench)
    }

    /// Returns the selected parts.
    fn parts(&self) -> impl Iterator<Item = &'static Part> {
        let asked = &self.options.parts;
        PARTS.iter().filter(|part| asked.is_empty() || asked.iter().any(|name| name == part.name))
    }

    fn has_viewers(&self) -> bool {
        let asked = &self.options.parts;
        asked.is_empty() || asked.iter().any(|name| name == VIEWERS)
    }

    /// Returns the films of the selected parts; the transport stream is made of the MP4 film.
    fn films_needed(&self) -> Vec<Film> {
        let is_needed = |film: Film| {
            let of_part =
                |part: &Part| part.film == film || film == Film::Mp4 && part.film == Film::Ts;
            self.parts().any(of_part) || film == Film::Mp4 && self.has_viewers()
        };
        [Film::Mp4, Film::Ts, Film::Long].into_iter().filter(|&film| is_needed(film)).collect()
    }

    /// Measures a part with each number of connections.
    fn measure(&self, part: &'static Part, results: &mut Results) -> Result<(), Error> {
        let film = part.film.path(&self.films);
        let running = self.start(Server::Pagewire, &part.film.folder(&self.films))?;
        let requests = of_pagewire(running.http_port, part, &film)?;
        drop(running);
        let mut contenders = self.contenders(part, requests, results)?;
        let (quick, asked) = (self.options.quick, &self.options.sessions);
        let usual = if quick { CONNECTIONS_QUICK } else { CONNECTIONS };
        for &connections in if asked.is_empty() { usual } else { &asked[..] } {
            let case = Case { part, connections };
            self.measure_case(&case, &mut contenders, results);
        }
        Ok(())
    }

    /// Makes the lists of requests, and the files of nginx.
    fn contenders(
        &self,
        part: &Part,
        requests: PagewireRequests,
        results: &mut Results,
    ) -> Result<Vec<Contender>, Error> {
        let PagewireRequests { items, plain, playlist } = requests;
        let served = part.film.folder(&self.films);
        let mut lists = vec![(PAGEWIRE, items, Vec::new())];
        lists.extend(plain.map(|plain| (PLAIN, plain, Vec::new())));
        let mut contenders =
            vec![Contender { server: Server::Pagewire, served, lists, is_out: false }];
        let mut by = "without a peer";
        if self.has_nginx {
            let folder = self.folder.join(part.name);
            let packaged = match part.media {
                Media::Playlist => packager::copy_of(&playlist, &folder)?,
                _ => packager::package(part, &part.film.path(&self.films), &folder)?,
            };
            by = packaged.by;
            read_again(&folder)?;
            for (name, more) in [(NGINX, ""), (NGINX_OPEN, OPEN_FILE_CACHE)] {
                let (server, served) = (Server::Nginx(more), folder.clone());
                let lists = vec![(name, of_files(&packaged)?, Vec::new())];
                contenders.push(Contender { server, served, lists, is_out: false });
            }
        }
        results.notes.push(format!("{}: {}; nginx's files: {by}", part.name, part.answers));
        Ok(contenders)
    }

    /// Measures a case in rounds; drops a server after its first failure.
    fn measure_case(&self, case: &Case, contenders: &mut [Contender], results: &mut Results) {
        let count = contenders.len();
        for round in 0..self.rounds {
            for turn in 0..count {
                let contender = &mut contenders[in_turn(round, turn, count)];
                if contender.is_out || self.options.stopped() {
                    continue;
                }
                let name = contender.lists[0].0;
                let what = format!("{name}: {}", case.title());
                self.options.progress(round * count + turn, self.rounds * count, &what);
                if let Err(error) = self.turn(contender, case, round) {
                    contender.is_out = true;
                    results.complete = false;
                    let found = format!("{}: {error}", case.title());
                    results.warn(Warning::MemberFailed { member: name.to_owned(), found });
                }
            }
        }
        let labels = case.labels();
        for (name, list, points) in contenders.iter_mut().flat_map(|one| &mut one.lists) {
            push(name, &labels, points, results);
            push_count(name, ("bytes of an answer", "bytes"), list.mean_bytes(), &labels, results);
            let ranges = ("file ranges of an answer", "ranges");
            push_count(name, ranges, list.mean_ranges(), &labels, results);
            points.clear();
        }
        push_ratios(&labels, results);
    }

    /// Measures the cost of viewers, on both servers alternately.
    fn measure_viewers(&self, results: &mut Results) -> Result<(), Error> {
        let part = &PARTS[0];
        let film = Film::Mp4.folder(&self.films);
        let mut members = vec![(PAGEWIRE, Server::PagewirePaced, film, "/film.mp4/master.m3u8")];
        if self.has_nginx {
            let folder = self.folder.join(VIEWERS);
            packager::package(part, &part.film.path(&self.films), &folder)?;
            read_again(&folder)?;
            members.push((NGINX, Server::Nginx(""), folder, "/media.m3u8"));
        }
        results.notes.push(format!(
            "{VIEWERS}: pagewire load of {}, in pagewire with its usual pace",
            part.answers
        ));
        let viewers = if self.options.quick { VIEWERS_QUICK } else { VIEWERS_USUAL };
        let labels = [("part", VIEWERS.to_owned()), ("connections", viewers.to_string())];
        let mut points: Vec<Vec<ViewersPoint>> = members.iter().map(|_| Vec::new()).collect();
        let count = members.len();
        for (round, turn) in
            (0..self.rounds).flat_map(|round| (0..count).map(move |at| (round, at)))
        {
            if self.options.stopped() {
                break;
            }
            let at = in_turn(round, turn, count);
            let (name, server, served, path) = &members[at];
            let what = format!("{name}: {viewers} viewers");
            self.options.progress(round * count + turn, self.rounds * count, &what);
            let running = self.start(*server, served)?;
            let time = if self.options.quick { VIEWERS_TIME_QUICK } else { VIEWERS_TIME };
            match viewers::play(&running, path, (viewers, time), &self.clients) {
                Ok(point) => points[at].push(point),
                Err(found) => {
                    results.complete = false;
                    let member = (*name).to_owned();
                    results.warn(Warning::MemberFailed { member, found });
                    break;
                }
            }
        }
        let named: Vec<_> = members.iter().map(|member| member.0).zip(&points).collect();
        viewers::push(&named, &labels, results);
        Ok(())
    }

    fn start(&self, server: Server, served: &Path) -> Result<Running, Error> {
        let setting = Setting {
            folder: &self.folder,
            served,
            cores: &self.server,
            other_cores: &self.clients,
            ports: &[],
        };
        match server {
            Server::PagewirePaced => pagewire::start(&setting, &[]),
            Server::Pagewire => pagewire::start(&setting, &NO_PACE.map(str::to_owned)),
            Server::Nginx(http) => {
                let more = Directives { http: http.to_owned(), server: String::new() };
                nginx::start(&setting, &more)
            }
        }
    }

    /// Starts a server and measures each of its lists once, every other round in reverse.
    fn turn(&self, contender: &mut Contender, case: &Case, round: usize) -> Result<(), Error> {
        let mut running = self.start(contender.server, &contender.served)?;
        let is_pagewire = matches!(contender.server, Server::Pagewire);
        let count = contender.lists.len();
        for turn in 0..count {
            let (name, list, points) = &mut contender.lists[in_turn(round, turn, count)];
            let work = || {
                pin(&self.clients, true);
                self.point(&running, list, case.connections, (round == 0, is_pagewire))
            };
            // The thread ends, and its pinning to a core with it.
            let point =
                std::thread::scope(|scope| scope.spawn(work).join().expect("it does not panic"));
            if !running.processes.are_running() {
                return Err(running.processes.failed("ended while it was measured".to_owned()));
            }
            let member = (*name).to_owned();
            points.push(point.map_err(|found| Error::Wrong { member, found })?);
        }
        Ok(())
    }

    fn point(
        &self,
        running: &Running,
        list: &RequestList,
        connections: usize,
        (is_first, is_pagewire): (bool, bool),
    ) -> Result<Point, String> {
        let port = running.http_port;
        match is_first {
            true => list.verify(port)?,
            false => list.verify_first(port)?,
        }
        let mut client = Client::open(port, connections, list.to_client())?;
        client.run(WARM_UP, 1)?;
        let counted = || if is_pagewire { counted(port).map(Some) } else { Ok(None) };
        let counted_before = counted()?;
        let (began, client_before) = (Instant::now(), thread_time());
        let before = running.processes.processor_time();
        let mut received = client.run(self.time, 1)?;
        let cpu = running.processes.processor_time().saturating_sub(before);
        let (seconds, client_time) = (began.elapsed(), thread_time() - client_before);
        let counted = counted()?.zip(counted_before).map(|(after, before)| Counted {
            bytes: after.bytes - before.bytes,
            bytes_copied: after.bytes_copied - before.bytes_copied,
            calls: after.calls - before.calls,
        });
        Ok(Point {
            // Counts parts of an answer where it is long: the time has one more or less of them.
            responses: received.bytes as f64 / list.mean_bytes(),
            bytes: received.bytes as f64,
            cpu_s: cpu.as_secs_f64(),
            seconds: seconds.as_secs_f64(),
            client_s: client_time.as_secs_f64(),
            latencies: [0.5, 0.99].map(|share| percentile(&mut received.latencies, share)),
            counted,
        })
    }
}

/// One load under which all servers are measured alternately.
struct Case {
    part: &'static Part,
    connections: usize,
}

impl Case {
    fn labels(&self) -> Labels {
        [("part", self.part.name.to_owned()), ("connections", self.connections.to_string())]
    }

    fn title(&self) -> String {
        format!("{}, {} connections", self.part.name, self.connections)
    }
}

/// Reads the counts of pagewire.
fn counted(port: u16) -> Result<Counted, String> {
    let index: serde_json::Value =
        serde_json::from_str(&get(port, "/index.json")?).map_err(|error| error.to_string())?;
    let number = |name: &str| {
        let found = index["server"][name].as_f64();
        found.ok_or_else(|| format!("the index has no server.{name}"))
    };
    Ok(Counted {
        bytes: number("bytes")?,
        bytes_copied: number("bytes_copied")?,
        calls: number("calls")?,
    })
}

/// Members. Plain ranges are requests for as many bytes of the film to the same server.
const PAGEWIRE: &str = "pagewire";
const PLAIN: &str = "pagewire_range";
const NGINX: &str = "nginx";
const NGINX_OPEN: &str = "nginx_open_file_cache";
/// Part with viewers instead of requests.
const VIEWERS: &str = "viewers";
const VIEWERS_USUAL: usize = 4000;
const VIEWERS_QUICK: usize = 40;
/// Two segments.
const VIEWERS_TIME: Duration = Duration::from_secs(12);
const VIEWERS_TIME_QUICK: Duration = Duration::from_secs(7);
const NO_PACE: [&str; 2] = ["--http-pace", "off"];
const OPEN_FILE_CACHE: &str = "open_file_cache max=1000 inactive=60s; open_file_cache_valid 1s;";
const CONNECTIONS: &[usize] = &[1, 64];
const CONNECTIONS_QUICK: &[usize] = &[4];
const ROUNDS: usize = 7;
const TIME: Duration = Duration::from_secs(1);
const TIME_QUICK: Duration = Duration::from_millis(200);
const WARM_UP: Duration = Duration::from_millis(300);

#[test]
fn a_part_that_is_not_known_is_refused_with_those_that_are() {
    let options = Options { parts: vec!["smell".to_owned()], ..Options::default() };
    let found = run(&options).expect_err("there is none").to_string();
    assert!(found.contains("part smell") && found.contains("together, pictures"), "{found}");
}
