// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIGUSR2 with playing sessions and continuously connecting clients: no packet is lost, no
//! connection refused; a new program that fails leaves the old one unchanged.

use std::fs;
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::process::Signal;

use super::process::Process;
use crate::harness::answer::{Line, http};
use crate::harness::clip::{Clip, PAYLOAD_BYTES};
use crate::harness::rtsp::{Control, Player};
use crate::harness::{PROGRAM, Place, Server, await_true};

/// Returns the process that has taken over; its number is in the log.
pub(crate) fn new_process(server: &Server) -> Process {
    server.await_log(SERVES);
    let log = server.log();
    let number = log.rsplit_once(BEFORE_NUMBER).and_then(|(_, rest)| rest.split_once(SERVES));
    let number = number.and_then(|(number, _)| number.parse().ok());
    Process(number.unwrap_or_else(|| panic!("a number in {log}")))
}

const BEFORE_NUMBER: &str = "upgrade: process ";
/// Text in the log when a new process has taken over.
pub(crate) const SERVES: &str = " serves; draining";

/// Clients that connect continuously, over HTTP and RTSP.
struct NewClients {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicU32>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl NewClients {
    fn start(server: &Server) -> NewClients {
        let (stop, served) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let (web, rtsp) = (server.http, server.rtsp);
        let repeat = |ask: Box<dyn Fn() + Send>| {
            let (stop, served) = (stop.clone(), served.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    ask();
                    served.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let threads = vec![
            repeat(Box::new(move || assert_eq!(http(web, "GET", "/small.txt").body, b"small"))),
            repeat(Box::new(move || {
                let answer = Control::to(rtsp).ask("DESCRIBE", "film.ts", &[]);
                assert_eq!(answer.status, 200, "{answer:?}");
            })),
        ];
        NewClients { stop, served, threads }
    }

    fn served(&self) -> u32 {
        self.served.load(Ordering::Relaxed)
    }

    /// Ends them; panics where one was refused.
    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("nobody was refused"));
    }
}

/// Returns a receiver report of one source (RFC 3550 §6.4.2) that counts seven packets as lost.
fn report(ssrc: u32) -> Vec<u8> {
    let mut report = vec![0x81, 201, 0, 7, 0, 0, 0, 1];
    report.extend(ssrc.to_be_bytes());
    report.extend([0, 0, 0, 7]);
    report.resize(32, 0);
    // An empty list of names, required in a compound packet (§6.1).
    report.extend([0x80, 202, 0, 0]);
    report
}

#[test]
fn an_upgrade_under_fifty_sessions_loses_no_packet_and_refuses_nobody() {
    let film = Clip::of_seconds(19, 8).bytes();
    let place = Place::new();
    place.put("film.ts", &film);
    place.put("small.txt", b"small");
    // Long enough for fifty requests; these players send no report that keeps their sessions alive.
    let options = ["--play-within", "600", "--session-timeout", "600"];
    let server = Server::at(&place, Command::new(PROGRAM), &options);
    server.await_stream("film.ts");
    let new_clients = NewClients::start(&server);
    let mut players: Vec<_> = (0..50).map(|_| Player::set_up(server.rtsp, "film.ts")).collect();
    let firsts: Vec<_> = players.iter_mut().map(Player::play).collect();
    players[0].hear("it plays", |heard| heard.packets.len() > 20);
    players[49].hear("it plays", |heard| !heard.packets.is_empty());
    let old = Process(server.pid());
    old.send(Signal::USR2);
    let new = new_process(&server);
    assert!(!players[49].heard().packets.is_empty(), "they play beside the upgrade");
    let before = new_clients.served();
    await_true("newcomers are served by the new process", || new_clients.served() > before + 20);
    // Packets received at the shared port now are for sessions of the old process.
    let (server_rtcp, ssrc) = (players[0].server_rtcp, players[0].ssrc);
    players[0].rtcp().send_to(&report(ssrc), server_rtcp).expect("loopback takes it");
    let packets = film.len().div_ceil(PAYLOAD_BYTES);
    for (player, first) in players.iter().zip(&firsts) {
        player.hear("the film to its end", |heard| heard.packets.len() == packets);
        player.heard().assert_gapless(&film, *first);
    }
    // A session of the new process on the same media ports.
    let mut late = Player::set_up(server.rtsp, "film.ts");
    assert_eq!(late.server_rtcp, server_rtcp, "firewalls see the ports that they know");
    late.play();
    late.hear("it plays", |heard| heard.packets.len() > 20);
    new_clients.end();
    assert!(!old.has_ended(), "its clients are still connected");
    for mut player in players {
        assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    }
    old.await_end();
    let log = server.log();
    assert!(!log.contains("no such setting"), "of the variable that links both: {log}");
    let ends = log.lines().filter(|line| line.contains("teardown;")).collect::<Vec<_>>();
    assert_eq!(ends.len(), 50, "{log}");
    assert_eq!(ends.iter().filter(|line| line.contains("the receiver lost 7")).count(), 1, "{log}");
    // Only the new process serves now, and is upgraded in turn.
    assert_eq!(http(server.http, "GET", "/small.txt").body, b"small");
    assert_eq!(late.command("TEARDOWN", &[]).status, 200);
    drop(late);
    new.send(Signal::USR2);
    await_true("a third process", || server.log().matches(SERVES).count() == 2);
    let third = new_process(&server);
    new.await_end();
    assert_eq!(http(server.http, "GET", "/small.txt").body, b"small");
    third.send(Signal::TERM);
    third.await_end();
    assert!(TcpStream::connect(server.http).is_err(), "no process has the socket still");
}

#[test]
fn a_new_program_that_fails_leaves_the_old_one_serving() {
    let place = Place::new();
    place.put("small.txt", b"small");
    let settings = place.top().join("pagewire.toml");
    fs::write(&settings, "").expect("room for a file");
    let options = ["--config", settings.to_str().expect("UTF-8")];
    let server = Server::at(&place, Command::new(PROGRAM), &options);
    let old = Process(server.pid());
    for content in ["nonsense = [", "[channel.one]\nfolder = 7\n"] {
        fs::write(&settings, content).expect("room for a file");
        let failed = server.log().matches(GOES_ON).count();
        old.send(Signal::USR2);
        await_true("the failure is logged", || server.log().matches(GOES_ON).count() > failed);
        assert!(server.log().contains("ended before it was ready: exit status: 2"));
        assert_eq!(http(server.http, "GET", "/small.txt").body, b"small");
    }
    fs::write(&settings, "").expect("room for a file");
    old.send(Signal::USR2);
    let new = new_process(&server);
    old.await_end();
    assert_eq!(http(server.http, "GET", "/small.txt").body, b"small");
    new.send(Signal::TERM);
    new.await_end();
}

const GOES_ON: &str = "this process goes on serving";

/// The new process may have read its configuration before the change.
#[test]
fn a_reload_during_an_upgrade_reaches_the_new_process() {
    let place = Place::new();
    let settings = place.top().join("pagewire.toml");
    fs::write(&settings, "allow_origin = \"https://a\"\n").expect("room for a file");
    let options = ["--config", settings.to_str().expect("UTF-8")];
    let server = Server::at(&place, Command::new(PROGRAM), &options);
    let origin = || {
        let answer = http(server.http, "GET", "/index.json");
        answer.header("Access-Control-Allow-Origin").map(str::to_owned)
    };
    assert_eq!(origin().as_deref(), Some("https://a"));
    let old = Process(server.pid());
    old.send(Signal::USR2);
    fs::write(&settings, "allow_origin = \"https://b\"\n").expect("room for a file");
    if server.log().contains(SERVES) {
        // Kills it.
        drop(new_process(&server));
        eprintln!("skip: busy machine: the upgrade was over before the change");
        return;
    }
    old.send(Signal::HUP);
    let new = new_process(&server);
    old.await_end();
    await_true("the new value is in force", || origin().as_deref() == Some("https://b"));
    new.send(Signal::TERM);
    new.await_end();
}

/// Downloads continue to their end, and their connections are closed afterwards.
#[test]
fn a_download_goes_on_and_its_connection_is_closed_behind_it() {
    let place = Place::new();
    let bytes: Vec<u8> = (0..4_000_000_u32).map(|at| (at % 251) as u8).collect();
    place.put("large.bin", &bytes);
    place.put("small.txt", b"small");
    let options = ["--http-rate-per-connection", "16M", "--drain", "60s"];
    let server = Server::at(&place, Command::new(PROGRAM), &options);
    let old = Process(server.pid());
    let mut kept = Line::to(server.http);
    let get = |name: &str| format!("GET /{name} HTTP/1.1\r\nHost: test\r\n\r\n");
    kept.send(get("small.txt"));
    assert_eq!(kept.answer().expect("an answer").header("Connection"), None);
    let mut long = Line::to(server.http);
    long.send(get("large.bin"));
    old.send(Signal::USR2);
    let new = new_process(&server);
    assert!(!old.has_ended());
    let answer = long.answer().expect("an answer");
    assert!(answer.body == bytes, "{} bytes", answer.body.len());
    kept.send(get("small.txt"));
    let answer = kept.answer().expect("an answer");
    assert_eq!((answer.header("Connection"), &answer.body[..]), (Some("close"), &b"small"[..]));
    drop((kept, long));
    old.await_end();
    new.send(Signal::TERM);
    new.await_end();
}

/// An administrator whose request reached the old process would see its sessions.
#[test]
fn administrators_are_answered_by_the_new_process_alone() {
    let place = Place::new();
    place.put("film.ts", &Clip::of_seconds(37, 30).bytes());
    let options = ["--admin", "127.0.0.1:0", "--drain", "600s"];
    let server = Server::at(&place, Command::new(PROGRAM), &options);
    server.await_stream("film.ts");
    let admin = server.admin.expect("it was started with --admin");
    let mut player = Player::set_up(server.rtsp, "film.ts");
    player.play();
    let sessions = || {
        let mut line = Line::to(admin);
        // The administrator's listener refuses names of other hosts.
        line.send(format!(
            "GET /v1/sessions HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n"
        ));
        let answer = line.answer().expect("it is answered");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.text()
    };
    await_true("the session is listed", || sessions().contains("film.ts"));
    let old = Process(server.pid());
    old.send(Signal::USR2);
    let new = new_process(&server);
    // A connection that the old process accepted before it closed its socket is still answered.
    await_true("the new process alone answers", || {
        (0..50).all(|_| !sessions().contains("film.ts"))
    });
    assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    drop(player);
    old.await_end();
    new.send(Signal::TERM);
    new.await_end();
}

/// Sessions that do not end are ended by the limit.
#[test]
fn a_drain_has_an_end() {
    let place = Place::new();
    place.put("film.ts", &Clip::of_seconds(23, 60).bytes());
    let server = Server::at(&place, Command::new(PROGRAM), &["--drain", "1s"]);
    server.await_stream("film.ts");
    let mut player = Player::set_up(server.rtsp, "film.ts");
    player.play();
    let old = Process(server.pid());
    old.send(Signal::USR2);
    let new = new_process(&server);
    player.hear("BYE", |heard| heard.byes == ["the server stops"]);
    old.await_end();
    assert!(server.log().contains("ending 1 sessions and 1 connections that are left"));
    // The new process serves on after the end of the old one.
    assert_eq!(Control::to(server.rtsp).ask("DESCRIBE", "film.ts", &[]).status, 200);
    assert!(!new.has_ended());
    new.send(Signal::TERM);
    new.await_end();
}
