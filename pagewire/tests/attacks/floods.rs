// SPDX-License-Identifier: MIT OR Apache-2.0
//! Floods: one client requests as many sessions, plays, connections and requests as it can. Each
//! flood reaches a limit whose answer names it, and no other client is affected.
//!
//! Sources: SECURITY.md (limits and their flags); RFC 2326 §10.5, §11.3.4. Attacks that never had
//! an effect are in [`crate::held`].

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::answer::{Line, http};
use crate::harness::clip::{Clip, PAYLOAD_BYTES, with_sets_once};
use crate::harness::rtsp::{Control, LOCALHOST, Player};
use crate::harness::{PROGRAM, Place, Server, await_ok, await_true};
use crate::{beside_canary, canary, serve, serve_place_by};

/// PLAY as a keep-alive, seeks, PAUSE and PLAY alternately, and queued plays, each at the highest
/// possible rate: all are answered, and the session plays on.
#[test]
fn a_flood_of_plays_is_answered_and_its_session_plays_on() {
    let server = serve(&[], &[]);
    let mut player = beside_canary(&server, || {
        let mut player = Player::set_up(server.rtsp, canary::NAME);
        player.play();
        for turn in PLAYS {
            assert_eq!(flood(&mut player, turn, Duration::ZERO), BATCH);
        }
        // Empties the queue of plays.
        assert_eq!(player.command("PAUSE", &[]).status, 200);
        assert_eq!(player.command("PLAY", &["Range: npt=0-"]).status, 200);
        let before = player.heard().packets.len();
        player.hear("it plays on", |heard| heard.packets.len() > before + 20);
        player
    });
    assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    server.stop();
}

/// SETUPs at the highest possible rate: the limits per connection and per address apply, each
/// refusal has its reason, and another address is served.
#[test]
fn a_flood_of_setups_is_refused_and_others_get_their_sessions() {
    let options = ["--exempt-from-limits", "none", "--sessions-per-address", "20"];
    let server = serve(&[], &[&options[..], &["--play-within", "300"]].concat());
    beside_canary(&server, || {
        let mut first = Control::from_address(ATTACKER, server.rtsp);
        // No Retry-After: waiting does not help.
        assert_refused_after(16, &mut first, 200, "this connection", None);
        let mut second = Control::from_address(ATTACKER, server.rtsp);
        assert_refused_after(4, &mut second, 50, "your address", Some("10"));
        let other = Player::try_set_up(Control::from_address(OTHER, server.rtsp), canary::NAME);
        let Ok(mut other) = other else { panic!("another address is refused") };
        other.play();
        other.hear("it plays", |heard| heard.packets.len() > 20);
    });
    let counts = &server.index()["server"];
    assert_eq!(counts["refusals"]["sessions_per_connection"], 184);
    assert_eq!(counts["refusals"]["sessions_per_address"], 46);
    assert_eq!(counts["sessions_refused"], 230);
    let log = server.stop();
    for kind in ["limit sessions_per_connection: 127.0.0.2", "limit sessions_per_address"] {
        assert_eq!(log.matches(kind).count(), 1, "once a minute: {log}");
    }
    assert!(log.len() < 10_000, "{} bytes of log", log.len());
}

/// Requests `count` sessions, of which the first `held` are granted and the others refused.
#[track_caller]
fn assert_refused_after(
    held: usize,
    control: &mut Control,
    count: usize,
    reason: &str,
    retry_after: Option<&str>,
) {
    for number in 0..count {
        let answer = control.ask("SETUP", canary::NAME, PORTS);
        if number < held {
            assert_eq!(answer.status, 200, "session {number}: {answer:?}");
            continue;
        }
        assert_eq!(answer.status, 453, "session {number}: {answer:?}");
        assert!(answer.text().contains(reason), "{answer:?}");
        assert_eq!(answer.header("Retry-After"), retry_after);
    }
}

/// Subtitles of 20 MB, since each of their 4 MB becomes five, requested on forty connections that
/// never read: the texts in memory are limited to the share of an address.
#[test]
fn long_texts_that_nobody_reads_are_bounded_and_others_get_theirs() {
    let cues: String = (0..1250)
        .map(|cue| format!("{cue}\n00:00:00,000 --> 00:00:04,000\n{}\n\n", "&".repeat(3200)))
        .collect();
    let film = Clip::of_seconds(5, 4).bytes();
    let files: [(&str, &[u8]); 2] = [("film.ts", &film), ("film.en.srt", cues.as_bytes())];
    let server = serve(&files, &["--exempt-from-limits", "none"]);
    server.await_stream("film.ts");
    let playlist = await_ok(|| {
        let text = http(server.http, "GET", "/film.ts/master.m3u8").text();
        let found = text.split('"').find(|part| part.starts_with('~') && part.contains("/s-"));
        found.map(str::to_owned).ok_or(text)
    });
    let at = format!("/film.ts/{}/0.vtt", playlist.trim_end_matches(".m3u8"));
    let ask = |address| {
        let mut line = Line::from_address(address, server.http);
        line.send(format!("GET {at} HTTP/1.1\r\nHost: h\r\n\r\n"));
        line
    };
    beside_canary(&server, || {
        let mut unread = Vec::new();
        let refused = loop {
            let mut line = ask(ATTACKER);
            let head = line.head().expect("an answer");
            if !head.starts_with("HTTP/1.1 200 ") {
                break head;
            }
            unread.push(line);
            assert!(unread.len() < 40, "each of 20 MB");
        };
        assert!(refused.contains("503") && refused.contains("Retry-After"), "{refused}");
        let answer = ask(OTHER).answer().expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.head);
        assert!(answer.body.len() > 20_000_000, "{} bytes", answer.body.len());
        assert_eq!(unread.len(), (256 << 20) / answer.body.len());
    });
    server.stop();
}

/// A session that is only set up ends in time, with or without keep-alives, and one that plays
/// continues.
#[test]
fn sessions_that_are_not_played_end() {
    // The deadline must be shorter for the canary, too.
    end_without_play("5");
}

/// Sets sessions up and does not play them until they have ended; returns the lifetime of the
/// first.
#[track_caller]
fn end_without_play(within_s: &str) -> Duration {
    let server = serve(&[], &["--play-within", within_s]);
    let mut lived = Duration::ZERO;
    beside_canary(&server, || {
        server.await_log("wire image ready");
        let descriptors = descriptors(&server);
        let mut control = Control::to(server.rtsp);
        let began = Instant::now();
        let sessions: Vec<_> = (0..12)
            .map(|_| {
                let answer = control.ask("SETUP", canary::NAME, PORTS);
                format!("Session: {}", crate::harness::rtsp::session_of(&answer))
            })
            .collect();
        while control.ask("GET_PARAMETER", canary::NAME, &[&sessions[0]]).status == 200 {
            assert!(began.elapsed() < LONG, "kept alive by signs of life");
            thread::sleep(LOOK_EVERY);
        }
        lived = began.elapsed();
        server.await_index("all of them end, and the canary does not", |index| {
            let counts = &index["server"];
            // A few descriptors for this connection, the ones that request the index, and files.
            counts["refusals"]["not_played"] == 12
                && counts["sessions"] == 1
                && self::descriptors(&server) <= descriptors + 8
        });
        assert_eq!(control.ask("SETUP", canary::NAME, PORTS).status, 200, "it may have others");
    });
    lived
}

/// More connections than an address may have: the others get an error, or are at least closed, and
/// another address is served.
#[test]
fn a_flood_of_connections_takes_no_more_than_an_addresss_share() {
    let options = ["--exempt-from-limits", "none", "--connections-per-address", "20"];
    let server = serve(&[("a.bin", b"a")], &options);
    beside_canary(&server, || {
        let held = (0..20).map(|_| {
            let mut control = Control::from_address(ATTACKER, server.rtsp);
            // An idle connection is closed after a while.
            assert_eq!(control.ask("OPTIONS", canary::NAME, &[]).status, 200);
            control
        });
        let held: Vec<_> = held.collect();
        server.await_index("they are accepted", |index| {
            index["server"]["connections"].as_u64() >= Some(22)
        });
        let answer = Line::from_address(ATTACKER, server.http).answer().expect("a refusal");
        assert_eq!((answer.status, answer.header("Retry-After")), (429, Some("10")));
        assert!(answer.text().contains("your address"), "{answer:?}");
        let answer = Line::from_address(ATTACKER, server.rtsp).answer().expect("a refusal");
        assert_eq!((answer.status, answer.header("Retry-After")), (503, Some("10")));
        assert!(answer.text().contains("your address"), "{answer:?}");
        let more: Vec<_> = (0..MORE)
            .map(|turn| {
                let to = if turn % 2 == 0 { server.rtsp } else { server.http };
                Line::from_address(ATTACKER, to)
            })
            .collect();
        let index = server.await_index("all are refused", |index| {
            let counts = &index["server"];
            let of_address = counts["refusals"]["connections_per_address"].as_u64();
            counts["connections_refused"].as_u64().min(of_address) >= Some(MORE + 2)
                && counts["connections"].as_u64() <= Some(22)
        });
        assert_eq!(index["server"]["refusals"]["connections_per_address"], MORE + 2);
        for mut line in more {
            line.rest(LONG);
        }
        assert_eq!(http(server.http, "GET", "/a.bin").text(), "a", "of another address");
        drop(held);
        server.await_index("its share is free again", |index| {
            index["server"]["connections"].as_u64() <= Some(2)
        });
        let mut again = Control::from_address(ATTACKER, server.rtsp);
        assert_eq!(again.ask("OPTIONS", "*", &[]).status, 200);
    });
}

/// With few descriptors, sessions leave some to connections, and both leave some to files.
#[test]
fn a_reserve_of_descriptors_stays_whatever_clients_take() {
    let place = Place::new();
    place.put("a.bin", b"a");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 160 && exec \"$0\" \"$@\"", PROGRAM]);
    let server = serve_place_by(command, &place, &["--play-within", "60"]);
    beside_canary(&server, || {
        let mut kept = Control::to(server.rtsp);
        assert_eq!(kept.ask("OPTIONS", "*", &[]).status, 200);
        let mut sessions = 0;
        let mut controls = Vec::new();
        let refused = loop {
            let mut control = Control::to(server.rtsp);
            let answers = (0..16).map(|_| control.ask("SETUP", canary::NAME, PORTS));
            let refused = answers.inspect(|answer| sessions += u32::from(answer.status == 200));
            let refused = refused.filter(|answer| answer.status != 200).last();
            controls.push(control);
            if let Some(refused) = refused {
                break refused;
            }
            assert!(controls.len() < 10, "{sessions} sessions with 160 descriptors");
        };
        assert_eq!((refused.status, refused.header("Retry-After")), (453, Some("10")));
        assert!(refused.text().contains("the server has as many sessions"), "{refused:?}");
        assert!(sessions > 40, "only {sessions} sessions with 160 descriptors");
        assert_eq!(http(server.http, "GET", "/a.bin").text(), "a", "a new client is served");
        let (mut lines, began): (Vec<_>, _) =
            ((0..60).map(|_| Line::to(server.rtsp)).collect(), Instant::now());
        let refused = loop {
            let answer = http(server.http, "GET", "/a.bin");
            if answer.status != 200 {
                break answer;
            }
            assert!(began.elapsed() < LONG, "60 more connections are all accepted");
            // A file that was open for a moment has since freed a descriptor.
            lines.push(Line::to(server.rtsp));
        };
        assert_eq!((refused.status, refused.header("Retry-After")), (503, Some("10")));
        // 144 are below the limit, and some above it are open for a moment.
        assert!(descriptors(&server) <= 156, "{} descriptors", descriptors(&server));
        assert_eq!(kept.ask("DESCRIBE", canary::NAME, &[]).status, 200, "files can be opened");
        drop((lines, controls));
        await_true("what they held is free again", || {
            http(server.http, "GET", "/a.bin").status == 200
        });
    });
}

/// Requests on one connection are served at a limited rate, whatever the peer sends at once.
#[test]
fn a_flood_of_requests_waits_and_others_do_not() {
    flood_requests(440);
}

/// Sends `count` requests at once on a connection of each port: two seconds' worth are answered at
/// once, the rest at 200 a second. Returns the shorter time.
#[track_caller]
fn flood_requests(count: usize) -> Duration {
    let server = serve(&[("a.bin", b"a")], &["--exempt-from-limits", "none"]);
    beside_canary(&server, || {
        let rtsp = "OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n";
        let get = "GET /a.bin HTTP/1.1\r\nHost: h\r\n\r\n";
        thread::scope(|scope| {
            let floods = [(server.rtsp, rtsp), (server.http, get)]
                .map(|(to, request)| scope.spawn(move || answered(to, request, count)));
            let mut other = Control::from_address(OTHER, server.rtsp);
            for _ in 0..50 {
                assert_eq!(other.ask("DESCRIBE", canary::NAME, &[]).status, 200);
            }
            let took = floods.map(|flood| flood.join().expect("no panic"));
            took[0].min(took[1])
        })
    })
}

/// Sends a request `count` times; returns the time to the last answer.
fn answered(server: SocketAddr, request: &str, count: usize) -> Duration {
    let mut line = Line::from_address(ATTACKER, server);
    let began = Instant::now();
    let mut sender = line.sender();
    thread::scope(|scope| {
        scope.spawn(move || sender.send(request.repeat(count)));
        for number in 0..count {
            let answer = line.answer().unwrap_or_else(|| panic!("no answer to {number}"));
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    });
    began.elapsed()
}

/// Ports of services, and this server's own, from this machine.
#[test]
fn media_is_sent_neither_to_services_nor_to_itself() {
    let server = serve(&[], &[]);
    let own = Player::set_up(server.rtsp, canary::NAME).server_rtcp.port();
    let ports =
        |rtp: u16, rtcp: u16| format!("Transport: RTP/AVP;unicast;client_port={rtp}-{rtcp}");
    for address in [LOCALHOST, ATTACKER] {
        let mut control = Control::from_address(address, server.rtsp);
        for (rtp, rtcp) in [(53, 54), (1022, 1023), (1024, 123), (123, 5000), (own - 1, own)]
            .into_iter()
            .chain([(own, own + 1), (5000, own), (own, own)])
        {
            let answer = control.ask("SETUP", canary::NAME, &[&ports(rtp, rtcp)]);
            assert_eq!(answer.status, 461, "{rtp}-{rtcp}: {answer:?}");
            assert!(answer.text().contains("offer others"), "{answer:?}");
        }
        let answer = control.ask("SETUP", canary::NAME, &[&ports(1024, 1025)]);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert_eq!(server.index()["server"]["refusals"]["client_port"], 16);
    let server = serve(&[], &["--allow-low-ports"]);
    let mut control = Control::to(server.rtsp);
    assert_eq!(control.ask("SETUP", canary::NAME, &[&ports(1022, 1023)]).status, 200);
}

/// Sends pipelined batches, at least one, for `length`; returns the number of requests.
fn flood(player: &mut Player, turn: &[&str], length: Duration) -> usize {
    let (session, name, began) = (player.session.clone(), player.name.clone(), Instant::now());
    let mut asked = 0;
    loop {
        let mut batch = String::new();
        for asked in turn.iter().cycle().take(BATCH) {
            let (method, range) = asked.split_once(' ').unwrap_or((asked, ""));
            batch.push_str(&format!("{method} rtsp://h/{name} RTSP/1.0\r\nCSeq: 1\r\n"));
            batch.push_str(&format!("Session: {session}\r\n"));
            if !range.is_empty() {
                batch.push_str(&format!("Range: {range}\r\n"));
            }
            batch.push_str("\r\n");
        }
        player.control.line.send(batch);
        for _ in 0..BATCH {
            let answer = player.control.line.answer().expect("an answer to each");
            // Refused where the queue of plays is full.
            let is_full = answer.status == 455 && [QUEUED, QUEUED_LED].contains(&turn);
            assert!(answer.status == 200 || is_full, "{answer:?}");
            asked += 1;
        }
        if began.elapsed() >= length {
            return asked;
        }
    }
}

/// Returns the number of descriptors that the server has open.
fn descriptors(server: &Server) -> usize {
    fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it runs").count()
}

const PLAYS: [&[&str]; 5] =
    [&["PLAY"], &["PLAY npt=0-"], &["PLAY npt=30-", "PLAY npt=0-"], &["PAUSE", "PLAY"], QUEUED];
/// Ranges that are queued one after the other.
const QUEUED: &[&str] = &["PLAY npt=0-1", "PLAY npt=3-4"];
/// Plays of a film of 14 s that begin where parameter sets are missing.
const LED: [&[&str]; 4] =
    [&["PLAY npt=3-"], &["PLAY npt=9-", "PLAY npt=3-"], &["PAUSE", "PLAY npt=4-"], QUEUED_LED];
const QUEUED_LED: &[&str] = &["PLAY npt=3-3.1", "PLAY npt=4-4.1"];
/// No process listens there, and nothing is sent to a session that is not played.
const PORTS: &[&str] = &["Transport: RTP/AVP;unicast;client_port=5000-5001"];
const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
const LONG: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const MORE: u64 = 100;
const BATCH: usize = 50;

mod timed {
    use super::*;

    fn packets(server: &Server) -> u64 {
        server.index()["server"]["packets"].as_u64().expect("a count")
    }

    /// Every kind of request, for a second or two each: the server sends only as much as two
    /// players without an attack receive.
    #[test]
    fn a_flood_of_plays_sends_no_more_than_time_allows() {
        assert_no_more_than_time_allows(canary::NAME, &PLAYS, canary::bits_per_second());
        let bits_per_second = 8 * with_sets_once().len() as u64 / 14;
        assert_no_more_than_time_allows("once.ts", &LED, bits_per_second);
    }

    fn assert_no_more_than_time_allows(name: &str, turns: &[&[&str]], bits_per_second: u64) {
        let server = serve(&[("once.ts", &with_sets_once())], &[]);
        server.await_stream(name);
        let mut player = Player::set_up(server.rtsp, name);
        player.play();
        let (sent, took, asked) = beside_canary(&server, || {
            let (began, before) = (Instant::now(), packets(&server));
            let mut asked = 0;
            for turn in turns {
                asked += flood(&mut player, turn, Duration::from_secs(1));
            }
            asked += flood(&mut player, turns[turns.len() - 1], Duration::from_secs(1));
            (packets(&server) - before, began.elapsed(), asked)
        });
        assert!(asked > 200, "{asked} requests are no flood");
        let bits_per_second = canary::bits_per_second() + bits_per_second;
        let packets_per_s = bits_per_second / (8 * PAYLOAD_BYTES as u64);
        // The canary's second of lateness that may be made up for, and the attacker's.
        let most = packets_per_s * (took.as_secs() + 3);
        println!("{asked} requests in {took:?}: {sent} packets, {most} at most");
        assert!(sent <= most, "{asked} requests in {took:?} had {sent} packets sent, over {most}");
    }

    #[test]
    fn sessions_that_are_not_played_live_for_their_time() {
        let lived = end_without_play("1");
        assert!(lived >= Duration::from_secs(1), "{lived:?}");
    }

    #[test]
    fn a_flood_of_requests_is_carried_out_at_its_rate() {
        let took = flood_requests(800);
        assert!(took > Duration::from_millis(1900), "800 requests were carried out in {took:?}");
    }

    /// While the processor is overloaded, a new viewer gets a time to retry; playing viewers get
    /// their playlists and segments.
    #[test]
    fn new_viewers_of_a_busy_server_get_503_and_others_play_on() {
        let film = Clip::of_seconds(5, 4).bytes();
        let server = serve(&[("film.ts", &film)], &["--admit-load", "0.05"]);
        server.await_stream("film.ts");
        let master = || http(server.http, "GET", "/film.ts/master.m3u8");
        let until = |status: u16| {
            await_ok(|| {
                let answer = master();
                let is_it = answer.status == status;
                if is_it { Ok(answer) } else { Err(format!("not {status}: {answer:?}")) }
            })
        };
        let text = until(200).text();
        let playlist = text.lines().find(|line| !line.is_empty() && !line.starts_with('#'));
        let playlist = format!("/film.ts/{}", playlist.expect("a playlist of media"));
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(http(server.http, "GET", "/index.json").status, 200);
                }
            });
            let refused = until(503);
            assert_eq!(refused.header("Retry-After"), Some("10"), "{refused:?}");
            assert!(refused.text().contains("would make others late"), "{refused:?}");
            assert_eq!(http(server.http, "GET", &playlist).status, 200, "who plays goes on");
            stop.store(true, Ordering::Relaxed);
        });
        until(200);
        assert!(server.index()["server"]["refusals"]["load"].as_u64() > Some(0));
        server.stop();
    }
}
