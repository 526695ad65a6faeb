// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers that are slow or silent, and file descriptors that run out: existing clients are not
//! affected, and the condition is temporary.
//!
//! `timed` waits for the end of slow or silent peers.
//!
//! Sources: accept(2) (EMFILE), getrlimit(2), RFC 2326 §7.1.1 (408, 453), RFC 9110 §15.5.9,
//! §15.6.4.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

use crate::harness::answer::{Line, http};
use crate::harness::clip::Clip;
use crate::harness::rtsp::{Control, Player};
use crate::harness::{PROGRAM, Place, Server, await_true};
use crate::resource_snapshot::{self, ResourceSnapshot};
use crate::{serve, serve_by};

/// Requests that arrive byte by byte and idle connections use little memory; a stream and new
/// requests meanwhile are not affected.
#[test]
fn slow_and_silent_peers_are_noticed_by_nobody_else() {
    let clip = Clip::of_seconds(5, 120).bytes();
    let server = serve(&[("a.ts", &clip)], &["--http-pace", "off"]);
    let snapshot = ResourceSnapshot::of(&server);
    let silent = silent_connections(&server, 200);
    let mut player = Player::set_up(server.rtsp, "a.ts");
    let first = player.play();
    let dripping: Vec<_> = drips(&server)
        .into_iter()
        .map(|(address, start, more, _)| {
            let mut line = Line::to(address);
            assert!(line.send(start), "it is open");
            (line, more.iter().cycle())
        })
        .collect();
    thread::scope(|scope| {
        let drippers = dripping.into_iter().map(|(mut line, mut bytes)| {
            scope.spawn(move || {
                // Equivalent to one byte a second, and finished long before its time limit.
                for _ in 0..10 {
                    assert!(line.send([*bytes.next().expect("endless")]), "it is open");
                }
                line
            })
        });
        let drippers: Vec<_> = drippers.collect();
        for _ in 0..20 {
            assert_answers(&server);
            assert_eq!(player.command("GET_PARAMETER", &[]).status, 200);
        }
        let lines = drippers.into_iter().map(|dripper| dripper.join().expect("it sends"));
        drop(lines.collect::<Vec<_>>());
    });
    player.hear("it plays", |heard| heard.packets.len() > 20);
    player.heard().assert_gapless(&clip, first);
    assert!(player.heard().byes.is_empty());
    assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    drop((player, silent));
    snapshot.assert_restored_but_for_kept_file(&server, cores());
}

/// New requests on either port are answered.
#[track_caller]
fn assert_answers(server: &Server) {
    assert_eq!(http(server.http, "GET", "/a.ts").status, 200);
    assert_eq!(Control::to(server.rtsp).ask("DESCRIBE", "a.ts", &[]).status, 200);
}

/// A slow peer: address, beginning of its request, bytes that follow, beginning of the answer.
type Drip = (SocketAddr, &'static [u8], &'static [u8], &'static str);

fn drips(server: &Server) -> [Drip; 7] {
    [
        (server.rtsp, b"", b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\nX: ", "RTSP/1.0 408 "),
        (server.rtsp, b"OPTIONS * RTSP/1.0\r\nX: y", b"x", "RTSP/1.0 408 "),
        (server.rtsp, b"OPTIONS * RTSP/1.0\r\nContent-Length: 9999\r\n\r\n", b"x", "RTSP/1.0 408 "),
        (server.http, b"", b"GET /a.ts HTTP/1.1\r\nHost: h\r\nX: ", "HTTP/1.1 408 "),
        (server.http, b"GET /a.ts HTTP/1.1\r\nHost: h\r\nX: ", b"x", "HTTP/1.1 408 "),
        (
            server.http,
            b"PUT /a.ts HTTP/1.1\r\nHost: h\r\nContent-Length: 9999\r\n\r\n",
            b"x",
            "HTTP/1.1 408 ",
        ),
        // The previous request was complete, and the time of the next one runs from its own first
        // byte.
        (server.http, b"GET /none HTTP/1.1\r\nHost: h\r\n\r\nGET /", b"x", "HTTP/1.1 404 "),
    ]
}

/// Opens connections, half of them on either port, and asserts that each uses little memory; fewer
/// than `wanted` where this process may not open so many.
#[track_caller]
fn silent_connections(server: &Server, wanted: u64) -> Vec<Line> {
    let memory = || server.index()["server"]["memory_bytes"].as_u64().expect("it is a number");
    let before = memory();
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let raised = setrlimit(Resource::Nofile, limit);
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let count = (allowed.saturating_sub(200) / 4 * 2).min(wanted);
    if count < wanted {
        eprintln!(
            "skip: {count} silent connections, not {wanted}: ulimit -n is {allowed}; {raised:?}"
        );
    }
    let lines: Vec<_> =
        (0..count / 2).flat_map(|_| [Line::to(server.rtsp), Line::to(server.http)]).collect();
    server.await_index("all silent connections are accepted", |index| {
        index["server"]["connections"].as_u64() > Some(count)
    });
    let each = memory().saturating_sub(before) / count;
    assert!(each < 64 << 10, "{each} bytes for a connection that says nothing");
    lines
}

/// Downloads and answers that are not read: they wait, and no other client does.
#[test]
fn peers_that_take_nothing_hold_nobody_up() {
    let clip = Clip::of_seconds(8, 120).bytes();
    let large = vec![9; 32 << 20];
    let server = serve(&[("a.ts", &clip), ("large.bin", &large)], &[]);
    let snapshot = ResourceSnapshot::of(&server);
    let mut player = Player::set_up(server.rtsp, "a.ts");
    let first = player.play();
    let stalled: Vec<_> = (0..200)
        .map(|_| {
            let mut line = Line::to(server.http);
            line.send("GET /large.bin HTTP/1.1\r\nHost: h\r\n\r\n");
            line
        })
        .collect();
    let mut flooding = Line::to(server.rtsp);
    let describe = b"DESCRIBE rtsp://h/a.ts RTSP/1.0\r\nCSeq: 1\r\n\r\n".repeat(2000);
    let mut flood = flooding.sender();
    thread::scope(|scope| {
        // Ends when the server reads no more, or when the connection is shut below.
        scope.spawn(move || (0..1000).all(|_| flood.send(&describe)));
        assert_eq!(http(server.http, "GET", "/large.bin").body.len(), large.len());
        for _ in 0..20 {
            assert_eq!(http(server.http, "GET", "/none").status, 404);
            assert_eq!(Control::to(server.rtsp).ask("DESCRIBE", "a.ts", &[]).status, 200);
        }
        let before = player.heard().packets.len();
        player.hear("it plays on", |heard| heard.packets.len() > before + 10);
        flooding.shut();
    });
    player.heard().assert_gapless(&clip, first);
    assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    drop((player, stalled, flooding));
    snapshot.assert_restored_but_for_kept_file(&server, cores());
}

/// At the limit new clients get an error, streams continue, and the collected data about files is
/// kept.
#[test]
fn descriptors_that_run_out_refuse_newcomers_and_disturb_nobody() {
    let clip = Clip::of_seconds(6, 120).bytes();
    let options = ["--sessions-per-connection", "64", "--play-within", "60"];
    let server = serve(&[("a.ts", &clip), ("b.ts", &clip)], &options);
    // Set from outside: at its start the server would have kept a reserve
    // (`tests/attacks/floods.rs`).
    let pid = Pid::from_raw(server.pid().cast_signed());
    let few = Rlimit { current: Some(64), maximum: Some(64) };
    prlimit(pid, Resource::Nofile, few).expect("a process of this user");
    let snapshot = ResourceSnapshot::of(&server);
    let mut player = Player::set_up(server.rtsp, "a.ts");
    let first = player.play();
    // Planning and making images need no more descriptors by then.
    server.await_log("wire image ready");
    await_planned(&server, 2);
    await_closed(&server, "a.ts");
    let mut kept = Line::to(server.http);
    let mut control = Control::to(server.rtsp);
    let mut other = Control::to(server.rtsp);

    let transport = "Transport: RTP/AVP;unicast;client_port=5000-5001";
    let mut sessions = Vec::new();
    let refusal = loop {
        let answer = control.ask("SETUP", "a.ts", &[transport]);
        if answer.status != 200 {
            break answer;
        }
        sessions.push(crate::harness::rtsp::session_of(&answer));
        assert!(sessions.len() < 64, "64 descriptors are enough for {} sessions", sessions.len());
    };
    assert_eq!(refusal.status, 453, "{refusal:?}");
    assert!(sessions.len() > 10, "only {} sessions", sessions.len());

    // A SETUP that needed two descriptors at once has left one: connections use up the rest.
    let idle = take_what_is_left(&server);
    assert!(idle.len() < 4, "{} connections after {} sessions", idle.len(), sessions.len());

    // New clients on either port, some of them idle; and the connected clients.
    for _ in 0..10 {
        assert_eq!(http(server.http, "GET", "/a.ts").status, 503);
        let new_client = Control::to(server.rtsp).try_ask("OPTIONS", "a.ts", &[]);
        assert_eq!(new_client.map(|answer| answer.status), Some(503));
    }
    let (answer, _) = Line::to(server.rtsp).rest(HANGING);
    assert!(answer.starts_with(b"RTSP/1.0 503 "), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(control.ask("SETUP", "a.ts", &[transport]).status, 453);
    assert_eq!(other.ask("SETUP", "b.ts", &[transport]).status, 453);
    assert_eq!(other.ask("DESCRIBE", "a.ts", &[]).status, 453);
    assert_eq!(kept_get(&mut kept, "/b.ts"), 503);

    // Files are added and removed while no descriptor is free.
    server.place.put("c.ts", &clip);
    fs::File::options()
        .append(true)
        .open(server.folder().join("b.ts"))
        .and_then(|file| file.set_len(clip.len() as u64 - 188))
        .expect("the test may write it");
    let before = player.heard().packets.len();
    // A second of media.
    player.hear("it plays on", |heard| heard.packets.len() > before + 47);
    player.heard().assert_gapless(&clip, first);
    assert!(player.heard().byes.is_empty(), "the stream goes on");

    for session in &sessions {
        let session = format!("Session: {session}");
        assert_eq!(control.ask("TEARDOWN", "a.ts", &[&session]).status, 200);
    }
    drop((control, other, kept, idle));
    let index = await_planned(&server, 3);
    assert!(index["server"]["connections_refused"].as_u64() >= Some(20), "{index:#}");
    let before = player.heard().packets.len();
    player.hear("it plays on", |heard| heard.packets.len() > before + 20);
    player.heard().assert_gapless(&clip, first);
    assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    drop(player);
    snapshot.assert_restored(&server);
    let mut again = Player::set_up(server.rtsp, "b.ts");
    again.play();
    again.hear("a new session plays", |heard| heard.packets.len() > 5);
}

/// Waits until so many files can be streamed.
#[track_caller]
fn await_planned(server: &Server, files: usize) -> serde_json::Value {
    server.await_index("all files can be streamed", |index| {
        let rows = index["files"].as_array().expect("a list of files");
        rows.iter().filter(|row| row["stream"].is_object()).count() == files
    })
}

/// Waits until all files are closed except the one that is played.
#[track_caller]
fn await_closed(server: &Server, played: &str) {
    let is_left = |path: &String| {
        let name = path.rsplit('/').next().unwrap_or_default();
        name.ends_with(".tmp") || name.ends_with(".ts") && name != played
    };
    await_true("planning and making images are over", || {
        !resource_snapshot::open_files(server).iter().any(is_left)
    });
}

/// Connects until three new clients in a row are refused.
fn take_what_is_left(server: &Server) -> Vec<Control> {
    let (mut accepted, mut refused) = (Vec::new(), 0);
    while refused < 3 {
        let mut new_client = Control::to(server.rtsp);
        let answer = new_client.try_ask("OPTIONS", "a.ts", &[]);
        if answer.is_some_and(|answer| answer.status == 200) {
            accepted.push(new_client);
            refused = 0;
        } else {
            refused += 1;
        }
    }
    accepted
}

#[track_caller]
fn kept_get(line: &mut Line, target: &str) -> u16 {
    line.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
    line.answer().expect("an answer").status
}

/// The soft limit is the shell's default, the hard one is set by the administrator.
#[test]
fn the_soft_limit_on_descriptors_is_raised_to_the_hard_one() {
    let server = serve_by(limited("ulimit -S -n 48"), &[], &[]);
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.pid())).expect("it runs");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a row");
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words[3], words[4], "{line}");
    assert_ne!(words[3], "48", "{line}");
    let lines: Vec<_> = (0..60).map(|_| Line::to(server.http)).collect();
    server.await_index("all are accepted", |index| index["server"]["connections"] == 61);
    assert!(resource_snapshot::descriptors(&server) > lines.len());
}

/// A server that could not serve one client reports it instead of starting, and names the limit it
/// needs.
#[test]
fn a_server_with_too_few_descriptors_does_not_start() {
    let place = Place::new();
    let clip = Clip::of_seconds(6, 2).bytes();
    place.put("a.ts", &clip);
    let mut few = 40;
    // The server itself uses about as many descriptors as the machine has cores; the named limit
    // suffices in the end.
    while let Some(needed) = descriptors_needed(&place, few) {
        assert!(needed > few, "{needed} are not more than {few}");
        few = needed;
    }
    assert!(few > 40, "40 descriptors are said to be enough");
    let server = serve_by(limited(&format!("ulimit -n {few}")), &[("a.ts", &clip)], &[]);
    let mut player = Player::set_up(server.rtsp, "a.ts");
    player.play();
    player.hear("it plays", |heard| heard.packets.len() > 5);
}

/// Starts the program with so many descriptors; returns the number that its refusal names. Returns
/// `None` when it starts.
fn descriptors_needed(place: &Place, few: u64) -> Option<u64> {
    let mut command = limited(&format!("ulimit -n {few}"));
    command.args(["serve", "--rtsp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--cache"]);
    command.arg(place.cache()).arg(place.folder());
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a shell is part of every system");
    let mut ready = String::new();
    let output = child.stdout.take().expect("it is piped");
    // Ends with the program where that does not start.
    BufReader::new(output).read_line(&mut ready).expect("its output can be read");
    if !ready.is_empty() {
        child.kill().expect("it runs");
    }
    let ended = child.wait_with_output().expect("it is our child");
    if !ready.is_empty() {
        return None;
    }
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success(), "{stderr}");
    let needed = stderr.split("raise it to ").nth(1).unwrap_or_else(|| panic!("{stderr}"));
    Some(needed.split(' ').next().and_then(|n| n.parse().ok()).expect("a number"))
}

/// Returns the program, started by a shell that sets limits first.
fn limited(limit: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{limit} && exec \"$0\" \"$@\""), PROGRAM]);
    command
}

/// Returns the number of HTTP threads in a server.
fn cores() -> usize {
    thread::available_parallelism().expect("a number of cores").get()
}

/// Guards against hanging; not a measure of speed.
const HANGING: Duration = Duration::from_secs(60);

mod timed {
    use super::*;

    /// A slow request, however evenly it is sent, is refused after its time limit; a thousand idle
    /// connections are closed after theirs. A stream and new requests meanwhile are not affected.
    /// Tests that last ten seconds run at the same time.
    #[test]
    fn slow_and_silent_peers_are_ended_in_time_and_nobody_else_notices() {
        let clip = Clip::of_seconds(5, 120).bytes();
        // Downloads at the pace of the clip would last minutes.
        let server = serve(&[("a.ts", &clip)], &["--http-pace", "off"]);
        let snapshot = ResourceSnapshot::of(&server);
        let silent = silent_connections(&server, 1000);
        let mut player = Player::set_up(server.rtsp, "a.ts");
        let first = player.play();

        thread::scope(|scope| {
            for (address, start, more, expected) in drips(&server) {
                scope.spawn(move || assert_dripping_ends(address, start, more, expected));
            }
            scope.spawn(|| {
                // New requests are answered at the same time.
                for _ in 0..20 {
                    assert_answers(&server);
                    assert_eq!(player.command("GET_PARAMETER", &[]).status, 200);
                    thread::sleep(Duration::from_millis(200));
                }
                for mut line in silent {
                    let (received, _) = line.rest(LIMIT + SLACK);
                    assert!(received.is_empty(), "{}", String::from_utf8_lossy(&received));
                }
            });
        });
        player.heard().assert_gapless(&clip, first);
        assert!(player.heard().byes.is_empty());
        assert_eq!(player.command("TEARDOWN", &[]).status, 200);
        drop(player);
        snapshot.assert_restored(&server);
    }

    /// Sends `more` repeatedly, a byte every 50 ms, which is equivalent to one a second: the server
    /// must not time the pauses but the whole.
    fn assert_dripping_ends(server: SocketAddr, start: &[u8], more: &[u8], expected: &str) {
        let mut line = Line::to(server);
        let began = Instant::now();
        line.send(start);
        let mut dripper = line.sender();
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut bytes = more.iter().cycle();
                // `began` exceeds the answer by the slack if the connection is not closed.
                while began.elapsed() < LIMIT + SLACK
                    && dripper.send([*bytes.next().expect("endless")])
                {
                    thread::sleep(Duration::from_millis(50));
                }
            });
            let (answer, took) = line.rest(LIMIT + SLACK);
            let answer = String::from_utf8_lossy(&answer).into_owned();
            let shown = String::from_utf8_lossy(start);
            assert!(answer.starts_with(expected), "{shown:?}: {answer:?}");
            assert!(answer.contains(" 408 "), "{shown:?}: {answer:?}");
            assert!(took + SLACK > LIMIT, "{shown:?}: {took:?}");
        });
    }

    /// `Timeouts::request` and `Timeouts::first_request` of the server.
    const LIMIT: Duration = Duration::from_secs(10);
    /// Lateness that a busy machine may add.
    const SLACK: Duration = Duration::from_secs(8);
}
