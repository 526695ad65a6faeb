// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions and their owners: set up without DESCRIBE, commanded by strangers, abandoned, sent
//! garbage, more than there are ports, ended by SIGTERM. Each ends when it should and not before,
//! and its resources are released.
//!
//! `timed` asserts the times at which they end.
//!
//! Sources: RFC 2326 §11.3.4 (454), §12.37 (time-out), RFC 3550 §6.6 (BYE).

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::answer::Line;
use crate::harness::clip::Clip;
use crate::harness::rtsp::{Control, Ears, Heard, LOCALHOST, Player, PortPair, assert_cname};
use crate::harness::{Server, await_ok};
use crate::resource_snapshot::{ResourceSnapshot, sessions};
use crate::serve;

/// Returns a clip that lasts until the test is over.
fn long() -> Vec<u8> {
    Clip::of_seconds(3, 120).bytes()
}

#[test]
fn setup_without_describe_plays_to_the_end() {
    let clip = Clip::of_seconds(4, 1).bytes();
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

/// RFC 7022 §4.2: two streams of one server have different names, and no two servers share a name.
#[test]
fn each_session_has_a_canonical_name_of_its_own() {
    let clip = long();
    let servers = [(); 2].map(|()| serve(&[("a.ts", &clip)], &[]));
    let mut players = [0, 0, 1].map(|server: usize| Player::set_up(servers[server].rtsp, "a.ts"));
    for player in &mut players {
        player.play();
        player.hear("a report at the beginning", |heard| !heard.cnames.is_empty());
    }
    for server in servers {
        server.stop();
    }
    let names = players.each_ref().map(|player| {
        player.hear("a BYE", |heard| !heard.byes.is_empty());
        let names = player.heard().cnames.clone();
        assert_cname(&names[0]);
        assert!(names.len() >= 2 && names.iter().all(|name| *name == names[0]), "{names:?}");
        names
    });
    let [one, other, elsewhere] = names.each_ref().map(|names| &names[0]);
    assert!(one != other && one != elsewhere && other != elsewhere, "{names:?}");
}

/// Stopped repeatedly while packets become due, it sends each of them.
#[test]
fn a_server_that_is_stopped_again_and_again_loses_nothing() {
    let clip = long();
    let server = serve(&[("a.ts", &clip)], &[]);
    let mut player = Player::set_up(server.rtsp, "a.ts");
    let first = player.play();
    player.hear("it plays", |heard| heard.packets.len() > 5);
    for _ in 0..5 {
        let before = player.heard().packets.len();
        stop_for(&server, Duration::from_millis(100));
        player.hear("it plays on", |heard| heard.packets.len() > before + 3);
    }
    player.heard().assert_gapless(&clip, first);
}

/// Stops the server with SIGSTOP for `time`, then continues it.
fn stop_for(server: &Server, time: Duration) {
    let pid = Pid::from_raw(server.pid().cast_signed()).expect("it runs");
    kill_process(pid, Signal::STOP).expect("it is ours");
    thread::sleep(time);
    kill_process(pid, Signal::CONT).expect("it is ours");
}

/// An unknown identifier, and a known one from another address, get the same answer.
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

    // The owner's other connections may use it (RFC 2326 §1.1: a session is not bound to a
    // connection).
    let before = player.heard().packets.len();
    player.hear("it plays on", |heard| heard.packets.len() > before + 5);
    assert_eq!(Control::to(server.rtsp).ask("PAUSE", "a.ts", &[&known]).status, 200);
    player.heard().assert_gapless(&clip, first);
    assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    drop(player);
    snapshot.assert_restored(&server);
}

/// Connection and ports closed: an ICMP error for the next packets reveals it.
#[test]
fn a_client_that_is_gone_altogether_is_noticed() {
    let server = serve(&[("a.ts", &long())], &[]);
    let snapshot = ResourceSnapshot::of(&server);
    four_are_gone(&server);
    snapshot.assert_restored(&server);
    let log = server.stop();
    assert_eq!(log.matches("the client's port is closed").count(), 4, "{log}");
}

/// Four clients play, and close all their sockets.
fn four_are_gone(server: &Server) {
    let players: Vec<_> = (0..4).map(|_| Player::set_up(server.rtsp, "a.ts")).collect();
    for mut player in players {
        player.play();
        player.hear("it plays", |heard| !heard.packets.is_empty());
    }
}

/// The connection closed, the ports open and nothing received.
#[test]
fn a_client_that_hangs_up_is_forgotten() {
    let server = serve(&[("a.ts", &long())], &["--session-timeout", "5"]);
    let snapshot = ResourceSnapshot::of(&server);
    let ears = hang_up_three(&server);
    snapshot.assert_restored(&server);
    drop(ears);
}

/// One client that plays, one that is paused and one that never played close their connections.
fn hang_up_three(server: &Server) -> [Ears; 3] {
    let mut playing = Player::set_up(server.rtsp, "a.ts");
    playing.play();
    let mut paused = Player::set_up(server.rtsp, "a.ts");
    paused.play();
    assert_eq!(paused.command("PAUSE", &[]).status, 200);
    let ready = Player::set_up(server.rtsp, "a.ts");
    [playing, paused, ready].map(Player::hang_up)
}

/// The connection is open and nothing is received on it: the session ends, unlike those with
/// keep-alives or receiver reports.
#[test]
fn silence_ends_a_session_and_signs_of_life_keep_it() {
    const TIMEOUT: Duration = Duration::from_secs(2);
    const SIGN_EVERY: Duration = Duration::from_millis(100);
    let test = "silence_ends_a_session_and_signs_of_life_keep_it";
    let server = serve(&[("a.ts", &long())], &["--session-timeout", "2"]);
    let snapshot = ResourceSnapshot::of(&server);
    let mut alive_at = Instant::now();
    let mut silent = Player::set_up(server.rtsp, "a.ts");
    let mut pinging = Player::set_up(server.rtsp, "a.ts");
    let mut reporting = Player::set_up(server.rtsp, "a.ts");
    for player in [&mut silent, &mut pinging, &mut reporting] {
        player.play();
    }
    while silent.heard().byes.is_empty() {
        let pinged = pinging.command("GET_PARAMETER", &[]).status;
        reporting.rtcp().send_to(RECEIVER_REPORT, reporting.server_rtcp).expect("it goes out");
        let gap = alive_at.elapsed();
        if gap > TIMEOUT / 2 {
            eprintln!("skip: busy machine: {test}: {gap:?} between two signs of life");
            return;
        }
        assert_eq!(pinged, 200);
        alive_at = Instant::now();
        thread::sleep(SIGN_EVERY);
    }
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
    assert_garbage_disturbs_nothing(&[], |heard| heard.packets.len() > 50);
}

/// Sends garbage and requests until `enough` of the stream was received, to a server with
/// `options`.
fn assert_garbage_disturbs_nothing(options: &[&str], enough: impl Fn(&Heard) -> bool) {
    let clip = long();
    let server = serve(&[("a.ts", &clip)], options);
    let snapshot = ResourceSnapshot::of(&server);
    let mut player = Player::set_up(server.rtsp, "a.ts");
    let first = player.play();
    let strangers = PortPair::on(LOCALHOST);
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    let mut sent = 0;
    while !enough(&player.heard()) {
        for length in [0, 1, 3, 4, 7, 8, 28, 64, 1400] {
            let mut datagram = vec![0; length];
            for byte in &mut datagram {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (noise >> 56) as u8;
            }
            // Every other one begins with valid words and has a wrong length.
            if sent % 2 == 0 && length >= 4 {
                datagram[..4].copy_from_slice(&[0x9f, 201, 0xff, 0xff]);
            }
            for socket in [player.rtcp(), &strangers.rtcp, &strangers.rtp] {
                // A datagram that a full queue drops is as good as lost garbage.
                let _ = socket.send_to(&datagram, player.server_rtcp);
                sent += 1;
            }
        }
        // A receiver's BYE, which anyone could have forged, does not end a session either.
        let _ = player.rtcp().send_to(RECEIVER_BYE, player.server_rtcp);
        assert_eq!(player.command("GET_PARAMETER", &[]).status, 200, "after {sent} datagrams");
        // A low rate for as long as the stream is watched; floods have another test.
        thread::sleep(Duration::from_millis(20));
    }
    let heard = player.heard();
    assert!(heard.byes.is_empty(), "{:?}", heard.byes);
    heard.assert_gapless(&clip, first);
    drop(heard);
    assert!(server.index()["server"]["requests_malformed"].as_u64() > Some(0), "it is counted");
    assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    drop(player);
    snapshot.assert_restored(&server);
    let log = server.stop();
    assert!(log.len() < 10_000, "the log is not flooded: {} bytes", log.len());
}

/// One pair per session: the pair after the last is refused, and a released one is used again. A
/// pair is skipped where another process uses one of its ports.
#[test]
fn a_range_of_ports_that_is_spent_refuses_with_453() {
    let clip = long();
    let (first, occupied, server) = serve_three_pairs(&clip);
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
    // The task that reads its RTCP port ends after the answer.
    let mut control = Some(control);
    let mut late = await_ok(|| {
        let asked = Player::try_set_up(control.take().expect("it was given back"), "a.ts");
        asked.map_err(|refused| {
            let (again, answer) = *refused;
            control = Some(again);
            format!("a pair is free: {answer:?}")
        })
    });
    let begin = late.play();
    late.hear("it plays", |heard| heard.packets.len() > 10);
    late.heard().assert_gapless(&clip, begin);
    players[1].hear("undisturbed", |heard| heard.packets.len() > 10);
    players[1].heard().assert_gapless(&clip, firsts[1]);
    for player in [&mut players[1], &mut late] {
        assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    }
    drop((players, late, occupied));
    snapshot.assert_restored(&server);
}

/// Starts a server with a range of three pairs of ports, of which this test holds the first port.
/// The range lies below the ports that the kernel assigns for port 0, and no other process here
/// requests a port by its number, so none is taken meanwhile.
fn serve_three_pairs(clip: &[u8]) -> (u16, UdpSocket, Server) {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").expect("it is there");
    let ephemeral: u16 = range.split_whitespace().next().and_then(|n| n.parse().ok()).expect("two");
    let occupied = (10_000..ephemeral.max(20_000))
        .step_by(6)
        .filter_map(|first| {
            let held: Result<Vec<_>, _> =
                (first..first + 6).map(|port| UdpSocket::bind((LOCALHOST, port))).collect();
            held.ok()?.into_iter().next()
        })
        .next()
        .expect("six neighbouring ports are free");
    let first = occupied.local_addr().expect("it is bound").port();
    let range = format!("{first}-{}", first + 5);
    (first, occupied, serve(&[("a.ts", clip)], &["--rtp-port", &range]))
}

#[test]
fn sigterm_says_bye_to_every_stream_and_exits_0() {
    let (clip, large) = (long(), vec![5; 32 << 20]);
    let server = serve(&[("a.ts", &clip), ("large.bin", &large)], &[]);
    // None of these delays it: an idle connection, half a request, a download that is not read.
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

/// Hundreds of sessions, ended in every possible way: no resource of theirs remains.
#[test]
fn a_storm_of_sessions_leaves_nothing_behind() {
    let server = serve(&[("a.ts", &long())], &["--session-timeout", "10"]);
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

/// RFC 3550 §6.4.2, of no source: a keep-alive and nothing more.
const RECEIVER_REPORT: &[u8] = &[0x80, 201, 0, 1, 0, 0, 0, 7];
/// The same, and a BYE of that receiver.
const RECEIVER_BYE: &[u8] = &[0x80, 201, 0, 1, 0, 0, 0, 7, 0x81, 203, 0, 1, 0, 0, 0, 7];

mod timed {
    use super::*;

    /// A server that has the processor for 15 ms of every 115 sends all due packets each time.
    #[test]
    fn a_server_that_seldom_runs_keeps_up() {
        let clip = long();
        let server = serve(&[("a.ts", &clip)], &[]);
        let mut player = Player::set_up(server.rtsp, "a.ts");
        let first = player.play();
        player.hear("it plays", |heard| heard.packets.len() > 5);
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(4) {
            stop_for(&server, Duration::from_millis(100));
            thread::sleep(Duration::from_millis(15));
        }
        let before = player.heard().packets.len();
        player.hear("it plays on", |heard| heard.packets.len() > before + 50);
        player.heard().assert_gapless(&clip, first);
        let log = server.log();
        assert!(!log.contains("clock is moved"), "{log}");
    }

    /// Far less than the grace period of 10 s, which would apply without the ICMP error.
    #[test]
    fn a_client_that_is_gone_altogether_is_noticed_at_once() {
        let server = serve(&[("a.ts", &long())], &[]);
        let snapshot = ResourceSnapshot::of(&server);
        four_are_gone(&server);
        let began = Instant::now();
        snapshot.assert_restored(&server);
        assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    }

    /// A session ends after the grace period, not before.
    #[test]
    fn a_client_that_hangs_up_is_given_the_grace() {
        let server = serve(&[("a.ts", &long())], &["--session-timeout", "2"]);
        let snapshot = ResourceSnapshot::of(&server);
        let began = Instant::now();
        let ears = hang_up_three(&server);
        snapshot.assert_restored(&server);
        assert!(began.elapsed() > Duration::from_secs(2), "{:?}", began.elapsed());
        drop(ears);
    }

    /// A session without a keep-alive ends after the timeout of the answer to SETUP; a keep-alive
    /// every 400 ms postpones that for twice as long.
    #[test]
    fn signs_of_life_keep_a_session_beyond_its_timeout() {
        let server = serve(&[("a.ts", &long())], &["--session-timeout", "2"]);
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
        for player in [&mut pinging, &mut reporting] {
            assert!(player.heard().byes.is_empty(), "a sign of life keeps the session");
            assert_eq!(player.command("TEARDOWN", &[]).status, 200);
        }
    }

    /// Beyond the session timeout: garbage is no keep-alive, the requests between are.
    #[test]
    fn garbage_for_longer_than_the_session_timeout_disturbs_nothing() {
        let began = Instant::now();
        assert_garbage_disturbs_nothing(&["--session-timeout", "3"], |heard| {
            let is_over = began.elapsed() > Duration::from_secs(5);
            // Half a megabit a second for four seconds, less the delay of a busy machine.
            assert!(!is_over || heard.packets.len() > 100, "only {} packets", heard.packets.len());
            is_over
        });
    }
}
