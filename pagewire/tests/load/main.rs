// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire load`, as built, against `pagewire serve`, as built.
//!
//! Counts are asserted, never speed: the bound on lateness is set to seconds, because a test
//! machine does other work as well. A load whose own sockets dropped packets, because it did not
//! get the processor, is a skip.
//!
//! `timed` has the loads that must last, or that require an amount of data within a time.

#![forbid(unsafe_code)]

#[path = "../harness/mod.rs"]
mod harness;
mod ipv6;
mod scenario;
mod tracks;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;

use harness::clip::Clip;
use harness::watchdog::{self, Outcome};
use harness::{PROGRAM, Place, Server};

/// Starts a server of one clip, `a.ts`; returns it with the clip's bytes.
fn serve(seconds: u64) -> (Server, Vec<u8>) {
    serve_with(seconds, &[])
}

fn serve_with(seconds: u64, options: &[&str]) -> (Server, Vec<u8>) {
    let (place, clip) = (Place::new(), Clip::of_seconds(11, seconds).bytes());
    place.put("a.ts", &clip);
    let server = Server::at(&place, Command::new(PROGRAM), options);
    server.await_stream("a.ts");
    (server, clip)
}

fn load(url: &str, options: &[&str]) -> Outcome {
    let mut command = Command::new(PROGRAM);
    command.args(["load", url, "--within", "10000"]).args(options);
    watchdog::run(&mut command, LIMIT).expect("the program under test is there")
}

/// Runs a load whose sessions all begin at once. Returns `None`, with the reason printed, where the
/// kernel dropped packets at its sockets: it did not get the processor for long enough to read
/// them.
#[track_caller]
fn play(url: &str, options: &[&str]) -> Option<Outcome> {
    let outcome = load(url, &[&["--ramp", "0"], options].concat());
    let text = String::from_utf8_lossy(&outcome.stdout);
    if text.contains("\"what\":\"socket_buffer\"") || text.contains(FULL_SOCKET) {
        let name = thread::current().name().unwrap_or("load").to_owned();
        eprintln!("skip: busy machine: {name}: the kernel dropped packets at its sockets");
        return None;
    }
    Some(outcome)
}

/// Returns the lines of `--json -`; the last one is the result.
fn events(outcome: &Outcome) -> Vec<Value> {
    let text = std::str::from_utf8(&outcome.stdout).expect("JSON is UTF-8");
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("JSON: {line}"));
    text.lines().map(parse).collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a number: {value}"))
}

/// Every packet the server sent is counted, in sampled and in unsampled sessions.
#[test]
fn thirty_sessions_are_played_verified_and_counted_to_the_packet() {
    let (server, _) = serve(60);
    let file = server.folder().join("a.ts");
    let file = file.to_str().expect("a plain path");
    let options =
        ["--sessions", "30", "--sample", "3", "--seconds", "2", "--file", file, "--json", "-"];
    let Some(outcome) = play(&server.rtsp_url("a.ts"), &options) else { return };
    assert!(outcome.status.success(), "{outcome:?}");
    let events = events(&outcome);
    let kinds: Vec<_> = events.iter().map(|event| event["event"].as_str()).collect();
    assert_eq!(kinds, [Some("starting"), Some("playing"), Some("measured"), Some("result")]);
    assert_eq!((&events[1]["played"], &events[2]["playing"]), (&30.into(), &30.into()));
    let result = &events[3];
    assert_eq!(result["played"], 30, "{result:#}");
    let (verified, counted) = (&result["verified"], &result["counted"]);
    assert_eq!((&verified["sessions"], &verified["timely"]), (&10.into(), &10.into()));
    let none = ["lost", "duplicates", "reordered", "unexpected_source", "bad_payload_size"];
    for figure in none.into_iter().chain(["different"]) {
        assert_eq!(verified[figure], 0, "{figure} of {result:#}");
    }
    assert_eq!((&counted["sessions"], &counted["accounted"]), (&20.into(), &20.into()));
    assert_eq!(counted["lost"], 0, "{result:#}");
    assert!(number(&counted["packets_least"]) > 0 && number(&verified["packets"]) > 0);
    assert_eq!(result["bottleneck"]["what"], "nothing");

    let received = number(&verified["packets_in_all"]) + number(&counted["packets_in_all"]);
    assert_sent(&server, received);
    assert_eq!(server.index()["server"]["sessions"], 0, "all have taken leave");
    server.stop();
}

/// Asserts that a server has sent so many packets; it counts them a moment after they were sent.
#[track_caller]
fn assert_sent(server: &Server, packets: u64) {
    let index = server
        .await_index("all are counted", |index| number(&index["server"]["packets"]) >= packets);
    assert_eq!(index["server"]["packets"], packets);
}

#[test]
fn no_session_need_be_verified_and_all_are_counted() {
    let (server, _) = serve(60);
    let options = ["--sessions", "20", "--sample", "0", "--seconds", "2"];
    let Some(outcome) = play(&server.rtsp_url("a.ts"), &options) else { return };
    assert!(outcome.status.success(), "{outcome:?}");
    let table = String::from_utf8_lossy(&outcome.stdout);
    for words in [
        "  timely      0 of the 0 verified; 20 played\n",
        "; 0 lost of what the senders of 20 say they sent\n",
        "  bottleneck  not known: no session was verified\n",
        "              --sample N verifies every Nth\n",
    ] {
        assert!(table.contains(words), "{words:?} in {table}");
    }
}

#[test]
fn bytes_that_are_not_the_files_are_noticed() {
    let (server, mut clip) = serve(60);
    // In the second packet of the stream, which every session plays.
    clip[2000] ^= 1;
    let other = server.place.top().join("other.ts");
    std::fs::write(&other, clip).expect("room for a file");
    let file = other.to_str().expect("a plain path");
    let options = ["--sessions", "4", "--seconds", "2", "--file", file, "--json", "-"];
    let Some(outcome) = play(&server.rtsp_url("a.ts"), &options) else { return };
    assert_eq!(outcome.status.code(), Some(1));
    let result = events(&outcome).pop().expect("a result");
    assert_eq!(result["verified"]["different"], 4, "{result:#}");
    assert_eq!(result["bottleneck_line"], "bytes: 4 packets did not hold what they should");
}

/// A load that continues until the test ends it.
struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    /// Returns when all its sessions play.
    fn start(url: &str, sessions: &str) -> Running {
        let mut child = Command::new(PROGRAM)
            .args(["load", url, "--sessions", sessions, "--seconds", "90", "--within", "10000"])
            .args(["--ramp", "0", "--json", "-"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program under test starts");
        let stdout = child.stdout.take().expect("it is piped");
        let mut running = Running { child, lines: BufReader::new(stdout) };
        while running.next()["event"] != "playing" {}
        running
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("its output can be read");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("JSON: {line:?}"))
    }

    /// Returns the result and the exit status.
    fn end(mut self) -> (Value, Option<i32>) {
        let result = loop {
            let event = self.next();
            if event["event"] == "result" {
                break event;
            }
        };
        let status = watchdog::wait(&mut self.child, LIMIT).expect("it ends after its result");
        (result, status.code())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended where the test succeeded.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_server_that_dies_is_named_and_its_sessions_are_counted() {
    let (server, _) = serve(120);
    let running = Running::start(&server.rtsp_url("a.ts"), "20");
    // Killed, not stopped: no BYE, no answer.
    drop(server);
    let (result, status) = running.end();
    assert_eq!(status, Some(1));
    assert_eq!((&result["played"], &result["interrupted"]), (&20.into(), &false.into()));
    assert_eq!(result["verified"]["timely"], 0, "{result:#}");
    let reasons = result["ended"].as_array().expect("a list");
    let ended: u64 = reasons.iter().map(|reason| number(&reason["sessions"])).sum();
    assert_eq!(ended, 20, "{result:#}");
    assert_eq!(result["bottleneck"]["what"], "ended", "{result:#}");
    let line = result["bottleneck_line"].as_str().expect("a line");
    let found = line.strip_prefix("the server: 20 sessions ended before their time: ");
    assert!(found.is_some_and(|reason| reason.contains("the connection")), "{line}");
    assert!(number(&result["seconds"].as_f64().map(|s| s as u64).into()) < 90);
}

#[test]
fn an_interrupted_load_tells_what_it_measured_and_tears_down() {
    let (server, _) = serve(120);
    let running = Running::start(&server.rtsp_url("a.ts"), "10");
    let sent = |index: &Value| number(&index["server"]["packets"]);
    let before = sent(&server.index());
    server.await_index("each session has some packets", |index| sent(index) > before + 400);
    kill_process(Pid::from_child(&running.child), Signal::INT).expect("it runs");
    let (result, status) = running.end();
    assert_eq!(status, Some(0), "{result:#}");
    assert_eq!(result["interrupted"], true);
    assert!(number(&result["verified"]["packets"]) > 0, "{result:#}");
    assert_eq!(result["verified"]["timely"], 10, "{result:#}");
    assert_eq!(server.index()["server"]["sessions"], 0);
    server.stop();
}

#[test]
fn sessions_come_from_the_address_that_is_named() {
    let (server, _) = serve(60);
    let options = ["--sessions", "2", "--seconds", "2", "--source", "127.0.0.2"];
    let Some(outcome) = play(&server.rtsp_url("a.ts"), &options) else { return };
    assert!(outcome.status.success(), "{outcome:?}");
    let log = server.stop();
    assert_eq!(log.matches(" of 127.0.0.2:").count(), 2, "{log}");
}

#[test]
fn what_is_no_stream_is_refused_once_with_the_servers_reason() {
    let place = Place::new();
    place.put("letter.txt", b"no stream");
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    for (name, expected) in [("letter.txt", ": DESCRIBE: 415 "), ("none.ts", ": DESCRIBE: 404 ")] {
        let outcome = load(&server.rtsp_url(name), &["--sessions", "5"]);
        assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
        assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    }
}

#[test]
fn wrong_options_are_said_with_what_to_write() {
    let (server, _) = serve(3);
    let url = server.rtsp_url("a.ts");
    let cases: [(&str, &[&str], &str); 7] = [
        ("http://h/a.ts", &["--sessions", "1"], "URL: http://h/a.ts; write rtsp://"),
        (&url, &["--sessions", "0"], "--sessions: 0; write 1 to 32000"),
        (&url, &["--sessions", "1", "--seconds", "0"], "--seconds: 0 s; write 0.1 or more"),
        (&url, &["--sessions", "1", "--ramp", "1e6"], "--ramp: 1000000; write a day"),
        (&url, &["--sessions", "1"], "and the asset ends after 3.0 s; name a longer asset"),
        (&url, &["--sessions", "1", "--file", "/none.ts"], "--file: /none.ts: No such file"),
        (&url, &["--sessions", "1", "--json", "/none/a"], "--json /none/a: No such file"),
    ];
    for (url, options, expected) in cases {
        let outcome = load(url, options);
        assert_eq!(outcome.status.code(), Some(2), "{options:?}: {outcome:?}");
        assert!(outcome.stderr.contains(expected), "{options:?}: {}", outcome.stderr);
    }
    // Zero sessions are not a load.
    assert_eq!(load(&url, &[]).status.code(), Some(2));
}

#[test]
fn a_disk_that_is_full_costs_the_lines_and_not_the_table() {
    let (server, _) = serve(60);
    let options = ["--sessions", "2", "--seconds", "2", "--json", "/dev/full"];
    let Some(outcome) = play(&server.rtsp_url("a.ts"), &options) else { return };
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("--json /dev/full: No space left"), "{}", outcome.stderr);
    let table = String::from_utf8_lossy(&outcome.stdout);
    assert!(table.contains("  timely      2 of the 2 verified; 2 played\n"), "{table}");
}

/// Reported before the first session, with the number that fits; that number works.
#[test]
fn too_few_descriptors_are_said_before_anything_is_asked_for() {
    let (server, _) = serve(60);
    let url = server.rtsp_url("a.ts");
    let Some(refused) = limited(&url, "30") else { return };
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let line = refused.stderr.trim();
    let rest = line.strip_prefix("pagewire: --sessions: 30 sessions take ").unwrap_or(line);
    assert!(rest.contains("file descriptors, and this process may open 64; write"), "{line}");
    assert!(rest.contains("raise the limit before (as root: ulimit -n "), "{line}");
    assert_eq!(server.index()["server"]["sessions_total"], 0);
    let fit = rest.split("; write ").nth(1).and_then(|rest| rest.split(' ').next());
    let played = limited(&url, fit.expect("how many fit")).expect("as before");
    assert!(played.status.success(), "{played:?}");
}

/// Runs with a limit of 64 descriptors that cannot be raised: root may raise any limit, but not
/// from within a user namespace.
fn limited(url: &str, sessions: &str) -> Option<Outcome> {
    let shell = ["sh", "-c", "ulimit -n 64 && exec \"$0\" \"$@\"", PROGRAM, "load", url];
    let mut command = if geteuid().is_root() {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user"]).args(shell);
        command
    } else {
        let mut command = Command::new(shell[0]);
        command.args(&shell[1..]);
        command
    };
    command.args(["--sessions", sessions, "--seconds", "2", "--ramp", "0"]);
    command.args(["--within", "10000"]);
    let outcome = watchdog::run(&mut command, LIMIT);
    let skip = |reason: &str| eprintln!("skip: too few descriptors: {reason}");
    match outcome {
        Ok(outcome) if outcome.stderr.starts_with("unshare:") => {
            skip(outcome.stderr.trim());
            None
        }
        Ok(outcome) => Some(outcome),
        Err(reason) => {
            skip(&reason);
            None
        }
    }
}

/// Words of the table's bottleneck for such a load.
const FULL_SOCKET: &str = "bottleneck  socket buffer: ";
/// Guards against hanging; not a measure of speed.
const LIMIT: Duration = Duration::from_secs(90);

mod timed {
    use super::*;

    /// The server ends a session after three seconds without a packet from its client.
    #[test]
    fn sessions_are_kept_alive() {
        let (server, _) = serve_with(60, &["--session-timeout", "3"]);
        let outcome = load(&server.rtsp_url("a.ts"), &["--sessions", "12", "--seconds", "8"]);
        assert!(outcome.status.success(), "{outcome:?}");
        let log = server.stop();
        assert!(!log.contains("not heard from"), "{log}");
    }
}
