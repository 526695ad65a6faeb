// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIGHUP with active sessions: they continue, limits and channels follow the file, a faulty file
//! changes nothing, and systemd is notified.
//!
//! The sessions are set up and do not play: a reload does not involve a pacer.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::answer::{Line, http};
use crate::harness::rtsp::Control;
use crate::harness::{PROGRAM, Place, Server, await_ok, await_true, uninterrupted};

static CLIP: &[u8] = include_bytes!("../../assets/clip.ts");

/// A server with a configuration file.
struct Configured {
    server: Server,
}

impl Configured {
    fn start(text: &str, environment: &[(&str, &str)]) -> Configured {
        let place = Place::new();
        place.put("clip.ts", CLIP);
        let path = place.top().join("pagewire.toml");
        fs::write(&path, text).expect("room for a file");
        let mut command = Command::new(PROGRAM);
        command.envs(environment.iter().copied());
        let config = path.to_str().expect("UTF-8");
        let server = Server::at(&place, command, &["--config", config]);
        server.await_stream("clip.ts");
        Configured { server }
    }

    /// Writes the file, sends SIGHUP and waits until the reload is done.
    fn reload(&mut self, text: &str) {
        let path = self.server.place.top().join("pagewire.toml");
        fs::write(&path, text).expect("room for a file");
        self.hang_up("reload: done");
    }

    /// Sends SIGHUP; waits for the next line with `words`.
    fn hang_up(&mut self, words: &str) {
        let pid = Pid::from_raw(self.server.pid().cast_signed()).expect("a process");
        let count = |log: &str| log.matches(words).count();
        let before = count(&self.server.log());
        kill_process(pid, Signal::HUP).expect("it runs");
        await_ok(|| {
            let log = self.server.log();
            if count(&log) > before { Ok(()) } else { Err(format!("{words}: not in {log}")) }
        });
    }

    fn channel(&self, name: &str) -> Option<Value> {
        let answer = http(self.server.http, "GET", "/channels.json");
        if answer.status == 404 {
            return None;
        }
        let state: Value = serde_json::from_slice(&answer.body).expect("JSON");
        let channels = state["channels"].as_array().expect("a list");
        channels.iter().find(|channel| channel["name"] == *name).cloned()
    }

    /// Waits until a channel is on the air; returns its state.
    fn await_channel(&self, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
        await_ok(|| {
            let found = self.channel(name);
            let channel = found.clone().filter(|channel| holds(channel));
            channel.ok_or_else(|| format!("{name}: {found:?}"))
        })
    }
}

/// Sets a session up without playing; returns its identifier, or the status.
fn set_up(control: &mut Control, number: usize) -> Result<String, u16> {
    let channels = format!("{}-{}", number * 2, number * 2 + 1);
    let transport = format!("Transport: RTP/AVP/TCP;unicast;interleaved={channels}");
    let answer = control.ask("SETUP", "clip.ts", &[&transport]);
    match answer.status {
        200 => Ok(answer.header("Session").expect("SETUP gives one").to_owned()),
        status => Err(status),
    }
}

fn id(session: &str) -> &str {
    session.split(';').next().unwrap_or_default()
}

#[test]
fn a_thousand_idle_sessions_survive_a_reload_that_lowers_their_limits() {
    let text = "sessions_per_connection = 50\nplay_within = 600\nsession_timeout = 600\n";
    let mut server = Configured::start(text, &[]);
    let mut connections: Vec<Control> = (0..20).map(|_| Control::to(server.server.rtsp)).collect();
    let mut sessions = Vec::new();
    for control in &mut connections {
        let of_connection = (0..50).map(|number| set_up(control, number).expect("room for it"));
        sessions.push(of_connection.collect::<Vec<_>>());
    }
    assert_eq!(server.server.index()["server"]["sessions"], 1000);
    server.reload(
        "sessions_per_connection = 3\nplay_within = 600\nsession_timeout = 33\n\
         allow_origin = \"https://example.org\"\n",
    );
    for (control, sessions) in connections.iter_mut().zip(&sessions) {
        for session in sessions {
            assert!(session.ends_with("timeout=600"), "{session}");
            let session = format!("Session: {}", id(session));
            let answer = control.ask("GET_PARAMETER", "clip.ts", &[&session]);
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    }
    assert_eq!(server.server.index()["server"]["sessions"], 1000);
    assert_eq!(set_up(&mut connections[0], 60), Err(453), "the limit is lower now");
    let mut fresh = Control::to(server.server.rtsp);
    let session = set_up(&mut fresh, 0).expect("room for three");
    assert!(session.ends_with("timeout=33"), "{session}");
    let answer = http(server.server.http, "GET", "/index.json");
    assert_eq!(answer.header("Access-Control-Allow-Origin"), Some("https://example.org"));
    let log = server.server.stop();
    assert!(log.contains("allow_origin, "), "{log}");
}

#[test]
fn a_faulty_file_changes_nothing_and_is_logged_with_its_line() {
    let mut server = Configured::start("allow_origin = \"*\"\n", &[]);
    let path = server.server.place.top().join("pagewire.toml");
    let origin = |server: &Configured| {
        let answer = http(server.server.http, "GET", "/index.json");
        answer.header("Access-Control-Allow-Origin").map(str::to_owned)
    };
    for (text, expected) in [
        ("burst = 10\nalow_origin = \"https://a\"\n", ":2: alow_origin: no such setting; write"),
        ("allow_origin = \"https://a\"\nkeys = \"/none\"\n", "--keys: "),
        ("allow_origin = \"no origin\"\n", "--allow-origin: no origin; write * or an origin"),
        ("allow_origin = 1\nallow_origin = 2\n", ":2: allow_origin stands twice; leave one out"),
    ] {
        fs::write(&path, text).expect("room for a file");
        server.hang_up("reload: nothing has changed");
        let log = server.server.log();
        assert!(log.contains(expected), "{expected}: {log}");
        assert_eq!(origin(&server).as_deref(), Some("*"), "{text}");
    }
    fs::remove_file(&path).expect("it was there");
    server.hang_up("reload: nothing has changed");
    assert!(server.server.log().contains("No such file"), "{}", server.server.log());

    // A valid file again; settings that need a restart are named each time.
    for _ in 0..2 {
        server.reload("allow_origin = \"https://b\"\nburst = 10\npacers = 1\n");
        let expected = "reload: burst, pacers changed and need a restart";
        server.server.await_log(expected);
        assert_eq!(origin(&server).as_deref(), Some("https://b"));
    }
    let named = server.server.log().matches("burst, pacers changed and need a restart").count();
    assert_eq!(named, 2, "{}", server.server.log());
    let media = |server: &Configured, asking: &str| {
        let mut line = Line::to(server.server.http);
        line.send(format!(
            "GET /clip.ts HTTP/1.1\r\nHost: test\r\nOrigin: {asking}\r\nConnection: close\r\n\r\n"
        ));
        let answer = line.answer().expect("an answer");
        answer.header("Access-Control-Allow-Origin").map(str::to_owned)
    };
    server.reload("allow_origin = [\"https://b\", \"https://c\"]\n");
    for (asking, expected) in [("https://c", Some("https://c")), ("https://d", None)] {
        assert_eq!(media(&server, asking).as_deref(), expected);
    }
    server.reload("allow_origin = \"none\"\n");
    assert_eq!(media(&server, "https://c"), None);
    server.reload("");
    assert_eq!(origin(&server), None, "the default is back");
    assert_eq!(media(&server, "https://c").as_deref(), Some("*"));
}

/// Without `admin` and users in the file, the next start would open no such listener; this server
/// has one, and without users everyone would be an administrator there.
#[test]
fn an_administrators_listener_that_is_open_keeps_its_users() {
    let folder = Place::new();
    let users = folder.top().join("users");
    let line = serve::access::htpasswd_line("ada", b"right").expect("a name and a password");
    fs::write(&users, format!("{line}\n")).expect("room for a file");
    let text = format!(
        "admin = \"0.0.0.0:0\"\nusers = \"{}\"\n[[access]]\npath = \"\"\n\
         verbs = [\"list\", \"play\"]\nallow = [\"anyone\"]\n[[access]]\npath = \"\"\n\
         verbs = [\"admin\"]\nallow = [\"user:ada\"]\n",
        users.display()
    );
    let mut server = Configured::start(&text, &[]);
    let path = server.server.place.top().join("pagewire.toml");
    fs::write(&path, "").expect("room for a file");
    server.hang_up("reload: nothing has changed");
    let log = server.server.log();
    let fault = log.split("--admin: 0.0.0.0:").nth(1).unwrap_or_else(|| panic!("{log}"));
    let (port, fault) = fault.split_once(' ').expect("words behind the address");
    let expected = "can be reached by others until a restart, and nobody has to log in; name \
                    users, or restart the server without this address";
    assert!(fault.starts_with(expected), "{fault}");
    let admin = SocketAddr::from(([127, 0, 0, 1], port.parse().expect("a port")));
    let mut line = Line::to(admin);
    line.send(format!("GET /v1/status HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n"));
    let answer = line.answer().expect("it is answered");
    assert_eq!(answer.status, 401, "{answer:?}");
    // Another address needs a restart, as long as the users stay.
    server.reload(&text.replace("0.0.0.0:0", "127.0.0.1:0"));
    server.server.await_log("reload: admin changed and need a restart");
    server.server.stop();
}

#[test]
fn channels_begin_and_end_and_the_unchanged_one_plays_on() {
    let channel =
        |name: &str, more: &str| format!("[channel.{name}]\nplaylist = [\"clip.ts\"]\n{more}\n");
    let mut server =
        Configured::start(&[channel("a", ""), channel("b", ""), channel("c", "")].concat(), &[]);
    let plays = |channel: &Value| channel["on_air"].is_string() && channel["programmes"] != 0;
    let before = server
        .await_channel("a", |channel| plays(channel) && channel["programmes"].as_u64() > Some(0));
    server.await_channel("b", plays);
    server.await_channel("c", plays);
    server.reload(&[channel("d", ""), channel("a", ""), channel("c", "title = \"C\"")].concat());
    let log = server.server.log();
    assert!(log.contains("changed channel.c; began channel.d; ended channel.b"), "{log}");
    let after = server.channel("a").expect("it is there");
    assert!(after["programmes"].as_u64() >= before["programmes"].as_u64(), "{after}");
    assert!(after["on_air"].is_string(), "it plays on: {after}");
    assert_eq!(server.channel("b"), None);
    assert_eq!(http(server.server.http, "GET", "/channel/b/master.m3u8").status, 404);
    server.await_channel("d", plays);
    let changed = server.await_channel("c", plays);
    assert_eq!(changed["title"], "C");
    let hls = |name: &str| {
        http(server.server.http, "GET", &format!("/channel/{name}/master.m3u8")).status
    };
    await_true("windows of all channels are planned", || {
        ["a", "c", "d"].iter().all(|name| hls(name) == 200)
    });
    // A channel that cannot be opened, because its window has no folder: nothing changes.
    let cache = server.server.cache();
    fs::remove_dir_all(&cache).expect("the server made it");
    fs::write(&cache, "no folder").expect("room for a file");
    let broken = channel("e", "time_shift_s = 3600");
    let path = server.server.place.top().join("pagewire.toml");
    fs::write(&path, broken).expect("room for a file");
    server.hang_up("reload: nothing has changed");
    assert!(server.channel("a").is_some() && server.channel("e").is_none());
    server.reload("");
    assert_eq!(server.channel("a"), None);
    server.server.stop();
}

#[test]
fn systemd_is_told_of_readiness_and_reloads() {
    let folder = Place::new();
    let path = folder.top().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(WAIT)).expect("a time limit");
    let mut message = [0; 256];
    let mut next = || {
        let bytes = uninterrupted(|| socket.recv(&mut message)).expect("a message");
        String::from_utf8(message[..bytes].to_vec()).expect("UTF-8")
    };
    let name = path.to_str().expect("UTF-8");
    let mut server = Configured::start("", &[("NOTIFY_SOCKET", name)]);
    assert!(next().starts_with("READY=1"));
    server.reload("session_timeout = 20\n");
    let reloading = next();
    let lines: Vec<&str> = reloading.lines().collect();
    assert!(lines.contains(&"RELOADING=1"), "{reloading}");
    let time = lines.iter().find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
    let time_us = time.and_then(|time| time.parse::<u64>().ok());
    assert!(time_us.is_some_and(|time_us| time_us > 0), "{reloading}");
    assert!(next().starts_with("READY=1"));
    // A refusal is in the line that `systemctl status` shows.
    fs::write(server.server.place.top().join("pagewire.toml"), "burts = 1\n").expect("room");
    server.hang_up("reload: nothing has changed");
    assert!(next().starts_with("RELOADING=1"));
    let refused = next();
    assert!(refused.starts_with("READY=1\nSTATUS=reload refused: "), "{refused}");
    assert!(refused.contains("burts: no such setting"), "{refused}");
}

const WAIT: Duration = Duration::from_secs(60);
