// SPDX-License-Identifier: MIT OR Apache-2.0
//! The access log and the log in JSON: no input of a client breaks a line, and a full disk blocks
//! no request.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::answer::{Line, http};
use crate::harness::rtsp::Player;
use crate::harness::{PROGRAM, Place, Server, await_ok};
use crate::{ask, get, serve, short_clip};

#[track_caller]
fn await_lines(path: &Path, what: &str, holds: impl Fn(&str) -> bool) -> String {
    await_ok(|| {
        let text = fs::read_to_string(path).unwrap_or_default();
        if holds(&text) { Ok(text) } else { Err(format!("{what}: {text}")) }
    })
}

#[test]
fn access_log_has_a_line_for_each_answer_and_session_and_is_opened_again() {
    let place = Place::new();
    place.put("film.ts", &short_clip().bytes());
    let path = place.top().join("access.log");
    let options = ["--access-log", path.to_str().expect("UTF-8")];
    let server = Server::at(&place, Command::new(PROGRAM), &options);
    server.await_stream("film.ts");
    let mut line = Line::to(server.http);
    line.send(
        "GET /film.ts?access_token=secret HTTP/1.1\r\nHost: a\r\nUser-Agent: x\" 200 \\\r\n\
         Referer: r\r\nRange: bytes=0-99\r\n\r\n",
    );
    assert_eq!(line.answer().expect("an answer").status, 206);
    line.send("GET /no%0aline\" HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(line.answer().expect("an answer").status, 404);
    let mut player = Player::set_up(server.rtsp, "film.ts");
    player.play();
    player.hear("media", |heard| heard.packets.len() > 10);
    player.command("TEARDOWN", &[]);
    let text = await_lines(&path, "three lines", |text| text.contains("RTSP/1.0"));
    let lines: Vec<&str> = text.lines().filter(|line| !line.contains("index.json")).collect();
    assert_eq!(lines.len(), 3, "{text}");
    let behind = |line: &str| line.split_once("] ").expect("a time").1.to_owned();
    assert_eq!(behind(lines[0]), r#""GET /film.ts HTTP/1.1" 206 100 "r" "x\" 200 \\""#);
    assert!(lines[0].starts_with("127.0.0.1 - - ["), "{text}");
    assert!(behind(lines[1]).starts_with("\"GET /no%0Aline%22 HTTP/1.1\" 404 "), "{text}");
    assert!(behind(lines[2]).starts_with("\"PLAY /film.ts RTSP/1.0\" 200 "), "{text}");
    assert!(!text.contains("secret"), "{text}");
    // Renames the file as logrotate does.
    let moved = place.top().join("access.log.1");
    fs::rename(&path, &moved).expect("one file system");
    let pid = Pid::from_raw(server.pid().cast_signed()).expect("a process");
    kill_process(pid, Signal::USR1).expect("it runs");
    await_lines(&path, "a new file", |_| path.exists());
    http(server.http, "GET", "/film.ts");
    await_lines(&path, "a line in it", |text| text.contains("GET /film.ts"));
    server.stop();
}

#[test]
fn full_disk_under_the_access_log_keeps_serving_and_counts() {
    let server = serve(short_clip(), &["--access-log", "/dev/full"]);
    let whole = fs::metadata(server.folder().join("film.ts")).expect("the clip").len() as usize;
    let began = Instant::now();
    for _ in 0..200 {
        assert_eq!(http(server.http, "GET", "/film.ts").body.len(), whole);
    }
    await_ok(|| {
        let status = get(&server, "/v1/status");
        let is_lost = status["access_log_lines_lost"].as_u64() >= Some(200);
        if is_lost { Ok(()) } else { Err(status) }
    });
    let metrics = ask(&server, "GET", "/metrics", &[]).text();
    assert!(!metrics.contains("\npagewire_access_log_lines_lost_total 0\n"), "{metrics}");
    let log = server.stop();
    let logged = log.matches("access log /dev/full: writing").count() as u64;
    assert!((1..=1 + began.elapsed().as_secs() / 60).contains(&logged), "once a minute: {log}");
}

#[test]
fn log_in_json_is_an_object_a_line() {
    let server = serve(short_clip(), &["--log-format", "json"]);
    let mut player = Player::set_up(server.rtsp, "film.ts");
    player.play();
    player.hear("media", |heard| heard.packets.len() > 10);
    player.command("TEARDOWN", &[]);
    server.await_log("teardown");
    let log = server.stop();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    assert!(lines.iter().all(|line| line["level"].is_string() && line["timestamp"].is_string()));
    let ended = |line: &&Value| line["message"].as_str().is_some_and(|m| m.contains("teardown"));
    assert_eq!(lines.iter().filter(ended).count(), 1, "{log}");
}
