// SPDX-License-Identifier: MIT OR Apache-2.0
//! The built program under test: started with a folder of its own, queried, stopped by SIGTERM.
//!
//! The tests run the installed form: the program that cargo built, its ready line, its index, its
//! exit status. Every wait has a limit, so that nothing can hang a test run.
//!
//! Does not implement RTSP or HTTP beyond reading the index ([`answer`] and [`rtsp`] do).

#![allow(dead_code, reason = "every test program uses its part of it")]

pub(crate) mod answer;
pub(crate) mod browser;
pub(crate) mod clip;
pub(crate) mod film;
pub(crate) mod growing_film;
pub(crate) mod gstreamer;
pub(crate) mod lossy_relay;
pub(crate) mod page_report;
#[path = "../../../paths/tests/harness/ports.rs"]
pub(crate) mod ports;
pub(crate) mod recorder;
pub(crate) mod rtsp;
pub(crate) mod watchdog;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_pagewire");

/// Waits until a condition is true; `what` describes it.
#[track_caller]
pub(crate) fn await_true(what: &str, mut holds: impl FnMut() -> bool) {
    await_ok(|| if holds() { Ok(()) } else { Err(what) });
}

/// Waits until `look` succeeds, and returns its value; until then `look` returns a description of
/// the current state. This is the only place where a test polls for an event.
#[track_caller]
pub(crate) fn await_ok<T, E: std::fmt::Display>(mut look: impl FnMut() -> Result<T, E>) -> T {
    let (deadline, mut pause) = (Instant::now() + ANSWER_WAIT, LOOK_AFTER);
    loop {
        match look() {
            Ok(found) => return found,
            Err(found) => assert!(Instant::now() < deadline, "{found}: after {ANSWER_WAIT:?}"),
        }
        thread::sleep(pause);
        pause = (2 * pause).min(LOOK_EVERY);
    }
}

/// Returns the program under test in a session of its own, for a test that waits for a process of
/// the lowest priority (a decoder of pictures). The low priority then counts against its own
/// session alone (sched(7), "The autogroup feature"); against all other tests the process would get
/// a hundredth of a core. Signals to the tests' process group do not reach it there: it ends with
/// the test (setpriv(1)).
pub(crate) fn in_own_session() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "setsid", PROGRAM]);
    command
}

/// Returns the result of a call that waits with a limit, such as `recv`: in a process that was
/// stopped the call fails with EINTR when it continues (signal(7)), and the call is made again.
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// A folder to serve, a cache and a log. Outlives the servers that are started in it.
#[derive(Clone)]
pub(crate) struct Place(Arc<TempDir>);

impl Place {
    pub(crate) fn new() -> Place {
        Place::below(Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    /// Makes the folder to serve, the cache and the log below this folder.
    pub(crate) fn below(folder: &Path) -> Place {
        let temporary = TempDir::new_in(folder).expect("a temporary folder");
        let place = Place(Arc::new(temporary));
        fs::create_dir(place.folder()).expect("a folder to serve");
        place
    }

    /// Returns the folder that contains all of them.
    pub(crate) fn top(&self) -> &Path {
        self.0.path()
    }

    /// Returns the served folder.
    pub(crate) fn folder(&self) -> PathBuf {
        self.top().join("media")
    }

    /// Returns the cache folder: plans and wire images.
    pub(crate) fn cache(&self) -> PathBuf {
        self.top().join("cache")
    }

    /// Puts a file into the folder; it is complete from the moment it has its name.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let target = self.folder().join(name);
        fs::create_dir_all(target.parent().expect("below the folder")).expect("its folder");
        let unfinished = self.top().join(format!("unfinished-{}", name.replace('/', "-")));
        fs::write(&unfinished, bytes).expect("room for a file");
        fs::rename(&unfinished, &target).expect("both names are in one file system");
        target
    }

    fn log(&self) -> String {
        fs::read_to_string(self.top().join("log")).unwrap_or_else(|error| error.to_string())
    }
}

/// A running `pagewire serve`. It is killed when dropped without [`Server::stop`].
pub(crate) struct Server {
    child: Child,
    pub(crate) place: Place,
    pub(crate) rtsp: SocketAddr,
    pub(crate) http: SocketAddr,
    /// Addresses of TLS, where the options request them.
    pub(crate) rtsps: Option<SocketAddr>,
    pub(crate) https: Option<SocketAddr>,
    /// Address of the administrator's listener, where the options request it.
    pub(crate) admin: Option<SocketAddr>,
}

impl Server {
    /// Serves copies of these files, each under its name (which may have folders in it).
    pub(crate) fn start(files: &[(&str, &Path)]) -> Server {
        Server::with_options(files, &[])
    }

    /// As [`Server::start`], with further options.
    pub(crate) fn with_options(files: &[(&str, &Path)], options: &[&str]) -> Server {
        let place = Place::new();
        for (name, source) in files {
            let target = place.folder().join(name);
            fs::create_dir_all(target.parent().expect("below the folder")).expect("its folder");
            fs::copy(source, target).expect("a file to serve");
        }
        Server::at(&place, Command::new(PROGRAM), options)
    }

    /// Serves an existing folder; `command` runs the program, possibly under limits.
    pub(crate) fn at(place: &Place, command: Command, options: &[&str]) -> Server {
        Server::listening("127.0.0.1:0", place, command, options)
    }

    /// As [`Server::at`], with RTSP at an address that the caller chooses.
    pub(crate) fn listening(
        rtsp: &str,
        place: &Place,
        mut command: Command,
        options: &[&str],
    ) -> Server {
        let log = File::create(place.top().join("log")).expect("a log file");
        let mut child = command
            .arg("--log=info")
            // Calibrated once for all tests, outside the user's own cache.
            .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
            .args(["serve", "--rtsp", rtsp, "--http", "127.0.0.1:0", "--cache"])
            .arg(place.cache())
            .args(options)
            .arg(place.folder())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the program under test starts");
        let lines = lines(child.stdout.take().expect("it is piped"));
        let Ok(ready) = lines.recv_timeout(READY_WAIT) else {
            // It may have ended by itself.
            let _ = child.kill();
            let status = child.wait().expect("it was started");
            panic!("no ready line, {status}: {}", place.log());
        };
        let (rtsp, http) = addresses(&ready).unwrap_or_else(|| panic!("ready line {ready:?}"));
        let (rtsps, https) = match options.iter().any(|option| TLS_OPTIONS.contains(option)) {
            true => addresses_of_tls(&lines.recv_timeout(READY_WAIT).expect("a second line")),
            false => (None, None),
        };
        let admin = options.contains(&"--admin").then(|| {
            let line = lines.recv_timeout(READY_WAIT).expect("a line for administrators");
            let address = line.trim().strip_prefix("admin: http://").map(str::parse);
            address.and_then(Result::ok).unwrap_or_else(|| panic!("admin's line {line:?}"))
        });
        Server { child, place: place.clone(), rtsp, http, rtsps, https, admin }
    }

    /// Returns the folder it serves.
    pub(crate) fn folder(&self) -> PathBuf {
        self.place.folder()
    }

    /// Returns the cache folder: plans and wire images.
    pub(crate) fn cache(&self) -> PathBuf {
        self.place.cache()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the text written to standard error so far.
    pub(crate) fn log(&self) -> String {
        self.place.log()
    }

    pub(crate) fn rtsp_url(&self, name: &str) -> String {
        format!("rtsp://{}/{name}", self.rtsp)
    }

    pub(crate) fn http_url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.http)
    }

    pub(crate) fn rtsps_url(&self, name: &str) -> String {
        format!("rtsps://{}/{name}", self.rtsps.expect("it was started with --rtsps"))
    }

    pub(crate) fn https_url(&self, name: &str) -> String {
        format!("https://{}/{name}", self.https.expect("it was started with --https"))
    }

    /// Returns `/index.json`: `server` has the counters, `files` the rows.
    pub(crate) fn index(&self) -> Value {
        let mut connection = TcpStream::connect(self.http).expect("HTTP listens");
        connection.set_read_timeout(Some(ANSWER_WAIT)).expect("a time limit");
        let host = self.http;
        write!(connection, "GET /index.json HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
            .expect("the request goes out");
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).expect("an answer and its end");
        let answer = String::from_utf8(answer).expect("the index is UTF-8");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        serde_json::from_str(body).expect("the index is JSON")
    }

    /// Returns the index's row of one file, as soon as the file can be streamed.
    pub(crate) fn await_stream(&self, name: &str) -> Value {
        let row = |index: &Value| {
            let files = index["files"].as_array().expect("a list of files");
            files.iter().find(|file| file["name"] == name && !file["stream"].is_null()).cloned()
        };
        let index = self.await_index(&format!("{name} can be streamed"), |i| row(i).is_some());
        row(&index).expect("it was there")
    }

    /// Returns the index, as soon as `holds` is true of it; `what` describes the condition.
    pub(crate) fn await_index(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        await_ok(|| {
            let index = self.index();
            if holds(&index) { Ok(index) } else { Err(format!("{what}: not so in {index:#}")) }
        })
    }

    /// Waits until its log contains `words`.
    #[track_caller]
    pub(crate) fn await_log(&self, words: &str) {
        await_true(&format!("{words:?} is not in the log"), || self.log().contains(words));
    }

    /// Sends SIGTERM, asserts that it ends in time with status 0, and returns its log.
    pub(crate) fn stop(mut self) -> String {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it still runs");
        let status = watchdog::wait(&mut self.child, STOP_WAIT);
        let log = self.log();
        let status = status.unwrap_or_else(|| panic!("runs on after SIGTERM; log: {log}"));
        assert!(status.success(), "{status} after SIGTERM; log: {log}");
        log
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After a stop the process has already been waited for, and both calls have no effect.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("log of the server:\n{}", self.log());
        }
    }
}

/// Returns the lines a program prints; reads to the end, so that the program never blocks on its
/// output.
fn lines(output: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // The receiver is dropped after the lines of addresses.
            let _ = sender.send(line);
        }
    });
    lines
}

/// Parses `pagewire ready: rtsp://ADDRESS http://ADDRESS`.
fn addresses(ready: &str) -> Option<(SocketAddr, SocketAddr)> {
    let (rtsp, http) = ready.strip_prefix("pagewire ready: ")?.split_once(' ')?;
    let rtsp = rtsp.strip_prefix("rtsp://")?.parse().ok()?;
    Some((rtsp, http.strip_prefix("http://")?.parse().ok()?))
}

/// Parses `also: rtsps://ADDRESS https://ADDRESS`, of which one may be missing.
fn addresses_of_tls(also: &str) -> (Option<SocketAddr>, Option<SocketAddr>) {
    let of = |scheme: &str| {
        also.split(' ').find_map(|word| word.strip_prefix(scheme)).and_then(|a| a.parse().ok())
    };
    (of("rtsps://"), of("https://"))
}

/// Options with which a second line of addresses follows the ready line.
const TLS_OPTIONS: [&str; 2] = ["--rtsps", "--https"];
/// Guards against hanging, like the next two; not a measure of speed.
const READY_WAIT: Duration = Duration::from_secs(60);
const ANSWER_WAIT: Duration = Duration::from_secs(60);
const STOP_WAIT: Duration = Duration::from_secs(60);
/// Polling becomes less frequent: after the first of these times at the start, and after the second
/// at most.
const LOOK_AFTER: Duration = Duration::from_millis(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);
