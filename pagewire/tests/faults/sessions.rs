// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions and who they belong to: set up without DESCRIBE, commanded by strangers, left without a
//! word, talked to in garbage, more than there are ports, ended by SIGTERM. Each ends when it
//! should and not before, and what it held is given back.
//!
//! Sources: RFC 2326 §11.3.4 (454), §12.37 (time-out), RFC 3550 §6.6 (BYE).

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::answer::Line;
use crate::harness::clip::Clip;
use crate::harness::rtsp::{Control, LOCALHOST, Player, PortPair, assert_cname};
use crate::resource_snapshot::{ResourceSnapshot, sessions};
use crate::serve;

/// One that lasts until the test is over.
fn long() -> Vec<u8> {
    Clip::of_seconds(3, 120).bytes()
}

#[test]
fn setup_without_describe_plays_to_the_end() {
    let clip = Clip::of_seconds(4, 2).bytes();
    let server = serve(&[("a.ts", &clip)], &[]);
    let snapshot = ResourceSnapshot::of(&server);
    let mut player = Player::set_up(server.rtsp, "a.ts");
    let first = player.play();
    player.hear("the end", |heard| !heard.byes.is_empty());
    let heard = player.heard();
    assert_eq!(heard.byes, ["end of stream"]);
    assert_eq!(heard.assert_gapless(&clip, first).len(), clip.len());
    drop(heard);
    assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    assert_eq!(player.command("PLAY", &[]).status, 454, "it is gone");
    drop(player);
    snapshot.assert_restored(&server);
}

/// RFC 7022 §4.2: two streams of one server have nothing in common, and no two servers have one
/// name.
#[test]
fn each_session_has_a_canonical_name_of_its_own() {
    let clip = Clip::of_seconds(4, 2).bytes();
    let servers = [(); 2].map(|()| serve(&[("a.ts", &clip)], &[]));
    let mut players = [0, 0, 1].map(|server: usize| Player::set_up(servers[server].rtsp, "a.ts"));
    let names = players.each_mut().map(|player| {
        player.play();
        player.hear("the end", |heard| !heard.byes.is_empty());
        let names = player.heard().cnames.clone();
        assert_cname(&names[0]);
        // A report at the beginning, and BYE.
        assert!(names.len() >= 2 && names.iter().all(|name| *name == names[0]), "{names:?}");
        names
    });
    let [one, other, elsewhere] = names.each_ref().map(|names| &names[0]);
    assert!(one != other && one != elsewhere && other != elsewhere, "{names:?}");
}

/// A server that has the processor for 15 ms of every 115 sends all that is due each time.
#[test]
fn a_server_that_seldom_runs_keeps_up() {
    let clip = long();
    let server = serve(&[("a.ts", &clip)], &[]);
    let mut player = Player::set_up(server.rtsp, "a.ts");
    let first = player.play();
    player.hear("it plays", |heard| heard.packets.len() > 5);
    let pid = Pid::from_raw(server.pid().cast_signed()).expect("it runs");
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        kill_process(pid, Signal::STOP).expect("it is ours");
        thread::sleep(Duration::from_millis(100));
        kill_process(pid, Signal::CONT).expect("it is ours");
        thread::sleep(Duration::from_millis(15));
    }
    let before = player.heard().packets.len();
    player.hear("it plays on", |heard| heard.packets.len() > before + 50);
    player.heard().assert_gapless(&clip, first);
    let log = server.log();
    assert!(!log.contains("clock is moved"), "{log}");
}

/// An unknown identifier, and a known one from another address: one cannot be told from the other.
#[test]
fn a_strangers_session_is_none() {
    let clip = long();
    let server = serve(&[("a.ts", &clip)], &[]);
    let snapshot = ResourceSnapshot::of(&server);
    let mut player = Player::set_up(server.rtsp, "a.ts");
    let first = player.play();
    player.hear("it plays", |heard| heard.packets.len() > 5);

    let known = format!("Session: {}", player.session);
    let stranger = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    let strangers = [
        (Control::from_address(stranger, server.rtsp), known.as_str()),
        (Control::to(server.rtsp), "Session: 0123456789abcdef0123456789abcdef"),
        (Control::to(server.rtsp), "Session: "),
    ];
    let transport = "Transport: RTP/AVP;unicast;client_port=5000-5001";
    for (mut control, session) in strangers {
        for method in ["PLAY", "PAUSE", "TEARDOWN"] {
            let answer = control.ask(method, "a.ts", &[session]);
            assert_eq!(answer.status, 454, "{method} {session}: {answer:?}");
        }
        if session != "Session: " {
            for (method, headers) in
                [("SETUP", [session, transport]), ("GET_PARAMETER", [session, "X: y"])]
            {
                let answer = control.ask(method, "a.ts", &headers);
                assert_eq!(answer.status, 454, "{method} {session}: {answer:?}");
            }
        }
    }

    // The owner's other connections may (RFC 2326 §1.1: a session is not bound to a connection).
    let before = player.heard().packets.len();
    player.hear("it plays on", |heard| heard.packets.len() > before + 5);
    assert_eq!(Control::to(server.rtsp).ask("PAUSE", "a.ts", &[&known]).status, 200);
    player.heard().assert_gapless(&clip, first);
    assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    drop(player);
    snapshot.assert_restored(&server);
}

/// Connection and ports closed: a bounce of the next packets tells.
#[test]
fn a_client_that_is_gone_altogether_is_noticed_at_once() {
    let server = serve(&[("a.ts", &long())], &[]);
    let snapshot = ResourceSnapshot::of(&server);
    let players: Vec<_> = (0..4).map(|_| Player::set_up(server.rtsp, "a.ts")).collect();
    for mut player in players {
        player.play();
        player.hear("it plays", |heard| !heard.packets.is_empty());
    }
    // Far less than the grace of 10 s, were it not for the bounce.
    let began = Instant::now();
    snapshot.assert_restored(&server);
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    let log = server.stop();
    assert_eq!(log.matches("the client's port is closed").count(), 4, "{log}");
}

/// The connection closed, the ports open and nothing heard: it ends after the grace, not before.
#[test]
fn a_client_that_hangs_up_is_given_the_grace() {
    let server = serve(&[("a.ts", &long())], &["--session-timeout", "2"]);
    let snapshot = ResourceSnapshot::of(&server);
    let mut playing = Player::set_up(server.rtsp, "a.ts");
    playing.play();
    let mut paused = Player::set_up(server.rtsp, "a.ts");
    paused.play();
    assert_eq!(paused.command("PAUSE", &[]).status, 200);
    let ready = Player::set_up(server.rtsp, "a.ts");
    let began = Instant::now();
    let ears = [playing, paused, ready].map(Player::hang_up);
    snapshot.assert_restored(&server);
    assert!(began.elapsed() > Duration::from_secs(2), "{:?}", began.elapsed());
    drop(ears);
}

/// The connection open and nothing heard on it: it ends after the timeout of the answer to SETUP; a
/// sign of life or a receiver report puts that off.
#[test]
fn silence_ends_a_session_and_signs_of_life_keep_it() {
    let server = serve(&[("a.ts", &long())], &["--session-timeout", "2"]);
    let snapshot = ResourceSnapshot::of(&server);
    let mut silent = Player::set_up(server.rtsp, "a.ts");
    let mut pinging = Player::set_up(server.rtsp, "a.ts");
    let mut reporting = Player::set_up(server.rtsp, "a.ts");
    for player in [&mut silent, &mut pinging, &mut reporting] {
        player.play();
    }
    for _ in 0..10 {
        assert_eq!(pinging.command("GET_PARAMETER", &[]).status, 200);
        reporting.rtcp().send_to(RECEIVER_REPORT, reporting.server_rtcp).expect("it goes out");
        thread::sleep(Duration::from_millis(400));
    }
    silent.hear("a BYE", |heard| !heard.byes.is_empty());
    assert_eq!(silent.heard().byes, ["not heard from"]);
    assert_eq!(silent.command("GET_PARAMETER", &[]).status, 454);
    for player in [&mut pinging, &mut reporting] {
        assert!(player.heard().byes.is_empty(), "a sign of life keeps the session");
        assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    }
    drop((silent, pinging, reporting));
    snapshot.assert_restored(&server);
}

#[test]
fn garbage_on_the_rtcp_port_disturbs_nothing() {
    let clip = long();
    let server = serve(&[("a.ts", &clip)], &["--session-timeout", "3"]);
    let snapshot = ResourceSnapshot::of(&server);
    let mut player = Player::set_up(server.rtsp, "a.ts");
    let first = player.play();
    let strangers = PortPair::on(LOCALHOST);
    let began = Instant::now();
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    let mut sent = 0;
    // Beyond the session timeout: garbage is no sign of life, the requests between are.
    while began.elapsed() < Duration::from_secs(4) {
        for length in [0, 1, 3, 4, 7, 8, 28, 64, 1400] {
            let mut datagram = vec![0; length];
            for byte in &mut datagram {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (noise >> 56) as u8;
            }
            // Every other one looks right for its first words and lies about its length.
            if sent % 2 == 0 && length >= 4 {
                datagram[..4].copy_from_slice(&[0x9f, 201, 0xff, 0xff]);
            }
            for socket in [player.rtcp(), &strangers.rtcp, &strangers.rtp] {
                // A full queue on the way is as good as garbage that was lost.
                let _ = socket.send_to(&datagram, player.server_rtcp);
                sent += 1;
            }
        }
        // A BYE of the receiver's, which anybody could have forged, ends nothing either.
        let _ = player.rtcp().send_to(RECEIVER_BYE, player.server_rtcp);
        assert_eq!(player.command("GET_PARAMETER", &[]).status, 200, "after {sent} datagrams");
        thread::sleep(Duration::from_millis(20));
    }
    let heard = player.heard();
    assert!(heard.byes.is_empty(), "{:?}", heard.byes);
    // Half a megabit a second for four seconds, less what a busy machine is late by.
    assert!(heard.packets.len() > 100, "only {} packets", heard.packets.len());
    heard.assert_gapless(&clip, first);
    drop(heard);
    assert!(server.index()["server"]["requests_malformed"].as_u64() > Some(0), "it is counted");
    assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    drop(player);
    snapshot.assert_restored(&server);
    let log = server.stop();
    assert!(log.len() < 10_000, "the log is not flooded: {} bytes", log.len());
}

/// A pair a session: the pair after the last is refused, and one that is given back is used again.
/// A pair of which somebody else has a port is passed over.
#[test]
fn a_range_of_ports_that_is_spent_refuses_with_453() {
    let clip = long();
    let first = free_ports(6);
    let taken = UdpSocket::bind((LOCALHOST, first)).expect("it was free just now");
    let range = format!("{first}-{}", first + 5);
    let server = serve(&[("a.ts", &clip)], &["--rtp-port", &range]);
    let snapshot = ResourceSnapshot::of(&server);

    let mut players: Vec<_> = (0..2).map(|_| Player::set_up(server.rtsp, "a.ts")).collect();
    let mut ports: Vec<_> = players.iter().map(|player| player.server_rtcp.port()).collect();
    ports.sort_unstable();
    assert_eq!(ports, [first + 3, first + 5], "the first pair is not ours");
    let firsts: Vec<_> = players.iter_mut().map(Player::play).collect();
    let mut control = Control::to(server.rtsp);
    for _ in 0..3 {
        let refused = Player::try_set_up(control, "a.ts");
        let Err(refused) = refused else { panic!("there was a third pair") };
        let (again, answer) = *refused;
        assert_eq!(answer.status, 453, "{answer:?}");
        control = again;
    }
    assert_eq!(server.index()["server"]["sessions_refused"], 3);

    assert_eq!(players[0].command("TEARDOWN", &[]).status, 200);
    let Ok(mut late) = Player::try_set_up(control, "a.ts") else { panic!("a pair is free") };
    let begin = late.play();
    late.hear("it plays", |heard| heard.packets.len() > 10);
    late.heard().assert_gapless(&clip, begin);
    players[1].hear("undisturbed", |heard| heard.packets.len() > 10);
    players[1].heard().assert_gapless(&clip, firsts[1]);
    drop((players, late, taken));
    snapshot.assert_restored(&server);
}

/// The first, even one, of `count` neighbouring ports that are free now.
fn free_ports(count: u16) -> u16 {
    (20_000..60_000_u16)
        .step_by(usize::from(count))
        // Test programs run beside each other: each begins to look somewhere else.
        .map(|port| 20_000 + (port - 20_000 + (std::process::id() % 997) as u16 * 36) % 40_000)
        .find(|&first| {
            let free = |port| UdpSocket::bind((LOCALHOST, port)).is_ok();
            first % 2 == 0 && (first..first + count).all(free)
        })
        .expect("some ports are free")
}

#[test]
fn sigterm_says_bye_to_every_stream_and_exits_0() {
    let (clip, large) = (long(), vec![5; 32 << 20]);
    let server = serve(&[("a.ts", &clip), ("large.bin", &large)], &[]);
    // None of these holds it up: silent, half a request, a download that nobody takes.
    let mut others =
        [server.rtsp, server.http, server.rtsp, server.http, server.http].map(Line::to);
    for line in &mut others[2..4] {
        line.send("GET /large.b");
    }
    others[4].send("GET /large.bin HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut players: Vec<_> = (0..8).map(|_| Player::set_up(server.rtsp, "a.ts")).collect();
    let firsts: Vec<_> = players.iter_mut().map(Player::play).collect();
    for player in &players {
        player.hear("it plays", |heard| heard.packets.len() > 5);
    }
    assert_eq!(players[0].command("PAUSE", &[]).status, 200);
    // Asserts the exit status.
    server.stop();
    for (player, first) in players.iter().zip(firsts) {
        player.hear("a BYE", |heard| !heard.byes.is_empty());
        let heard = player.heard();
        assert_eq!(heard.byes, ["the server stops"]);
        heard.assert_gapless(&clip, first);
    }
}

/// Hundreds of sessions, ended in every way there is: nothing is left of them.
#[test]
fn a_storm_of_sessions_leaves_nothing_behind() {
    let server = serve(&[("a.ts", &long())], &["--session-timeout", "2"]);
    let snapshot = ResourceSnapshot::of(&server);
    let refused_before = server.index()["server"]["sessions_refused"].clone();
    for round in 0..3 {
        let (address, began) = (server.rtsp, Instant::now());
        thread::scope(|scope| {
            for worker in 0..4 {
                scope.spawn(move || (0..20).for_each(|turn| come_and_go(address, worker + turn)));
            }
        });
        assert!(began.elapsed() < Duration::from_secs(60), "round {round}: {:?}", began.elapsed());
    }
    assert!(sessions(&server) <= 240);
    snapshot.assert_restored(&server);
    let counts = &server.index()["server"];
    assert_eq!(counts["sessions_total"], 240);
    assert_eq!(counts["sessions_refused"], refused_before);
}

fn come_and_go(server: SocketAddr, way: usize) {
    let ports = PortPair::on(LOCALHOST);
    let mut control = Control::to(server);
    let answer = control.ask("SETUP", "a.ts", &[&ports.transport()]);
    assert_eq!(answer.status, 200, "{answer:?}");
    let session = format!("Session: {}", crate::harness::rtsp::session_of(&answer));
    let commands: &[&str] = match way % 6 {
        0 => &[],
        1 => &["PLAY"],
        2 => &["PLAY", "PAUSE"],
        3 => &["PLAY", "TEARDOWN"],
        4 => &["TEARDOWN"],
        _ => &["PLAY", "PAUSE", "PLAY", "TEARDOWN"],
    };
    for command in commands {
        let answer = control.ask(command, "a.ts", &[&session]);
        assert_eq!(answer.status, 200, "{command}: {answer:?}");
    }
    if way.is_multiple_of(2) {
        control.line.send("GET_PARAMETER rtsp://h/a.ts RTSP/1.0\r\nCSe");
    }
}

/// RFC 3550 §6.4.2, of no source: a sign of life and nothing more.
const RECEIVER_REPORT: &[u8] = &[0x80, 201, 0, 1, 0, 0, 0, 7];
/// The same, and a BYE of that receiver.
const RECEIVER_BYE: &[u8] = &[0x80, 201, 0, 1, 0, 0, 0, 7, 0x81, 203, 0, 1, 0, 0, 0, 7];
