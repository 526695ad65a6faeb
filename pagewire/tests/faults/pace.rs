// SPDX-License-Identifier: MIT OR Apache-2.0
//! Downloads that leave at a multiple of their media's rate or within a limit, and requests that
//! neither may slow.
//!
//! The downloads run beside each other and for some seconds each, so that a busy machine's pauses
//! are a small part of them.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::answer::{Line, http};
use crate::harness::clip::Clip;
use crate::harness::{PROGRAM, Place, Server};

/// A quarter of a megabyte a second: the pace is [`PACE`], the burst [`BURST`].
const CLIP: Clip =
    Clip { seed: 7, milliseconds: 26_000, bits_per_second: 2_000_000, with_clock: true };
/// Bytes a second at 4x.
const PACE: f64 = 1e6;
/// Ten seconds of the clip.
const BURST: f64 = 2.5e6;
const SEGMENTS: usize = 5;

/// A film, five segments of four seconds and a poster.
fn place() -> Place {
    let (place, film) = (Place::new(), CLIP.bytes());
    place.put("film.ts", &film);
    place.put("poster.jpg", &vec![9; 12 << 20]);
    let mut list = "#EXTM3U\n#EXT-X-TARGETDURATION:4\n".to_owned();
    for number in 0..SEGMENTS {
        place.put(&format!("hls/{number}.ts"), &film[..1_000_000]);
        list += &format!("#EXTINF:4.0,\n{number}.ts\n");
    }
    place.put("hls/list.m3u8", list.as_bytes());
    place
}

fn serve(options: &[&str]) -> Server {
    let server = Server::at(&place(), Command::new(PROGRAM), options);
    server.await_stream("film.ts");
    server.await_index("the playlist is read", |index| {
        let rows = index["files"].as_array().expect("a list of files");
        rows.iter().any(|row| row["playlist"]["parts"].as_u64() == Some(SEGMENTS as u64))
    });
    server
}

/// Requests a file on a connection; returns its length and the seconds until its last byte.
#[track_caller]
fn get(line: &mut Line, name: &str) -> (f64, f64) {
    let began = Instant::now();
    line.send(format!("GET /{name} HTTP/1.1\r\nHost: h\r\n\r\n"));
    let answer = line.answer().expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.head);
    (answer.body.len() as f64, began.elapsed().as_secs_f64())
}

#[test]
fn films_and_segments_are_paced_and_other_requests_are_not() {
    let server = serve(&[]);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut line = Line::to(server.http);
            let (bytes, took) = get(&mut line, "film.ts");
            let rate = (bytes - BURST) / took;
            assert!((rate / PACE - 1.0).abs() < 0.1, "{rate} bytes a second");
            let (bytes, took) = get(&mut line, "poster.jpg");
            assert!(bytes / took > 5.0 * PACE, "the next request takes {took} s");
            let (_, took) = get(&mut Line::to(server.http), "hls/0.ts");
            assert!(took < 0.5, "a segment within the burst takes {took} s");
        });
        scope.spawn(|| {
            let mut line = Line::to(server.http);
            let began = Instant::now();
            let names = (0..SEGMENTS).map(|number| format!("hls/{number}.ts"));
            let bytes: f64 = names.map(|name| get(&mut line, &name).0).sum();
            let rate = (bytes - BURST) / began.elapsed().as_secs_f64();
            assert!((rate / PACE - 1.0).abs() < 0.15, "{rate} bytes a second");
        });
    });
    let counters = &server.index()["server"];
    // The third segment exceeds the burst, and so do those behind it.
    assert_eq!(counters["downloads_paced"], 4, "{counters:#}");
    let paced = counters["bytes_paced"].as_f64().expect("a number");
    assert!((5e6..8e6).contains(&paced), "{paced} bytes");
    assert_eq!(counters["downloads_limited_total"], 0);
}

#[test]
fn pace_can_be_switched_off() {
    let server = serve(&["--http-pace", "off"]);
    let began = Instant::now();
    let film = http(server.http, "GET", "/film.ts").body;
    assert!(film == CLIP.bytes());
    let rate = film.len() as f64 / began.elapsed().as_secs_f64();
    assert!(rate > 5.0 * PACE, "{rate} bytes a second");
    assert_eq!(server.index()["server"]["downloads_paced"], 0);
}

/// Bytes a second of a download in the three seconds behind its start.
fn rate_of(mut line: Line) -> f64 {
    line.send("GET /poster.jpg HTTP/1.1\r\nHost: h\r\n\r\n");
    line.head().expect("an answer");
    let began = Instant::now();
    let until = |line: &mut Line, end: Duration| {
        let mut bytes = 0;
        while began.elapsed() < end {
            bytes += line.some();
        }
        bytes as f64
    };
    until(&mut line, Duration::from_millis(1500));
    let start = began.elapsed();
    let bytes = until(&mut line, Duration::from_millis(5000));
    bytes / (began.elapsed() - start).as_secs_f64()
}

#[test]
fn downloads_of_an_address_share_its_rate_equally() {
    let options = ["--http-rate-per-address", "16M", "--exempt-from-limits", "none"];
    let server = serve(&options);
    let one = IpAddr::from([127, 0, 0, 1]);
    let downloads = [(one, 1e6), (one, 1e6), (IpAddr::from([127, 0, 0, 2]), 2e6)];
    thread::scope(|scope| {
        for (address, expected) in downloads {
            let line = Line::from_address(address, server.http);
            scope.spawn(move || {
                let rate = rate_of(line);
                assert!((rate / expected - 1.0).abs() < 0.2, "{address}: {rate} bytes a second");
            });
        }
    });
    assert_eq!(server.index()["server"]["downloads_limited_address"], 3);
}

#[test]
fn rates_that_cannot_be_kept_are_refused_at_the_start() {
    for (options, said) in [
        (
            ["--http-pace", "0.5x"],
            "--http-pace: 0.5x the rate of the media; write 1x to 1000x, or off",
        ),
        (
            ["--http-rate", "9k"],
            "--http-rate: 9000 bits a second; write 100K or more, or leave it out",
        ),
    ] {
        let place = Place::new();
        let mut command = Command::new(PROGRAM);
        command.arg("serve").args(options).arg(place.folder());
        let output = command.output().expect("the program under test starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(said), "{error}");
    }
}

/// A slow machine makes a download slower, never faster.
#[test]
fn answers_of_several_ranges_and_of_small_files_keep_to_the_limit() {
    let (place, small) = (Place::new(), vec![5; 15_000]);
    place.put("small.bin", &small);
    place.put("large.bin", &vec![6; 1 << 20]);
    let options = ["--http-pace", "off", "--http-rate-per-connection", "8M"];
    let server = Server::at(&place, Command::new(PROGRAM), &options);
    let limited = |request: &str, count: usize| {
        let mut line = Line::to(server.http);
        let (began, mut bytes) = (Instant::now(), 0);
        for _ in 0..count {
            line.send(request);
            bytes += line.answer().expect("an answer").body.len();
        }
        let rate = bytes as f64 / began.elapsed().as_secs_f64();
        // A megabyte a second behind a turn and a quarter.
        assert!(bytes > 2_900_000 && rate < 1.5e6, "{bytes} bytes at {rate} a second");
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let ranges = "Range: bytes=0-29999,40000-69999\r\n";
            limited(&format!("GET /large.bin HTTP/1.1\r\nHost: h\r\n{ranges}\r\n"), 50);
        });
        scope.spawn(|| limited("GET /small.bin HTTP/1.1\r\nHost: h\r\n\r\n", 200));
    });
    server.stop();
}

/// A hundred downloads that begin and are reset within a second lower the share of another for that
/// second; it does not go on waiting at a share that nobody else has any more.
#[test]
fn downloads_that_end_give_their_share_back() {
    let place = Place::new();
    place.put("large.bin", &vec![6; 12 << 20]);
    let options = ["--http-pace", "off", "--http-rate", "16M"];
    let server = Server::at(&place, Command::new(PROGRAM), &options);
    let request = "GET /large.bin HTTP/1.1\r\nHost: h\r\n\r\n";
    let mut reader = TcpStream::connect(server.http).expect("it listens");
    reader.set_read_timeout(Some(GAP_MAX)).expect("a socket has the option");
    reader.write_all(request.as_bytes()).expect("the request goes out");
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_secs(1));
            let mut others: Vec<_> = (0..100).map(|_| Line::to(server.http)).collect();
            for line in &mut others {
                line.send(request);
            }
            thread::sleep(Duration::from_secs(1));
        });
        let (mut read, mut piece) = (0, vec![0; 64 << 10]);
        while read < 12 << 20 {
            let bytes = reader.read(&mut piece).expect("the next bytes in time");
            assert!(bytes > 0, "closed after {read} bytes");
            read += bytes;
        }
    });
    server.stop();
}

/// Longest time without a byte: the second of the others, one until a share is read again, and what
/// a busy machine takes. It was forty seconds.
const GAP_MAX: Duration = Duration::from_secs(12);
