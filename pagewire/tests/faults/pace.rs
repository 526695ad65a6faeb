// SPDX-License-Identifier: MIT OR Apache-2.0
//! Downloads paced to a multiple of their media's rate or limited to a rate, and requests that
//! neither may slow: all bytes arrive, and the server counts the delayed downloads.
//!
//! `timed` asserts the rates.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::answer::{Answer, Line, http};
use crate::harness::clip::Clip;
use crate::harness::{PROGRAM, Place, Server, uninterrupted};

/// A quarter of a megabyte a second: ten seconds of it are the burst.
const CLIP: Clip =
    Clip { seed: 7, milliseconds: 26_000, bits_per_second: 2_000_000, with_clock: true };
const SEGMENT_BYTES: usize = 1_000_000;
const SEGMENTS: usize = 5;
const POSTER_BYTES: usize = 12 << 20;

/// Makes a film, five segments of four seconds and a poster.
fn place() -> Place {
    let (place, film) = (Place::new(), CLIP.bytes());
    place.put("film.ts", &film);
    place.put("poster.jpg", &vec![9; POSTER_BYTES]);
    let mut list = "#EXTM3U\n#EXT-X-TARGETDURATION:4\n".to_owned();
    for number in 0..SEGMENTS {
        place.put(&format!("hls/{number}.ts"), &film[..SEGMENT_BYTES]);
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

/// Requests a file on a connection.
#[track_caller]
fn get(line: &mut Line, name: &str) -> Answer {
    line.send(format!("GET /{name} HTTP/1.1\r\nHost: h\r\n\r\n"));
    let answer = line.answer().expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.head);
    answer
}

fn count(server: &Server, name: &str) -> u64 {
    server.index()["server"][name].as_u64().unwrap_or_else(|| panic!("{name} is a count"))
}

/// Reads a download from each line at the same time, until `counter` is `expected`.
fn read_until_counted(server: &Server, lines: Vec<(Line, &str)>, counter: &str, expected: u64) {
    let is_counted = AtomicBool::new(false);
    thread::scope(|scope| {
        for (mut line, name) in lines {
            let is_counted = &is_counted;
            scope.spawn(move || {
                line.send(format!("GET /{name} HTTP/1.1\r\nHost: h\r\n\r\n"));
                let head = line.head().expect("an answer");
                assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
                while !is_counted.load(Ordering::Relaxed) {
                    line.some();
                }
            });
        }
        server.await_index(counter, |index| index["server"][counter] == expected);
        is_counted.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_film_is_paced_and_other_requests_are_not() {
    let server = serve(&["--http-pace", "1x"]);
    read_until_counted(&server, vec![(Line::to(server.http), "film.ts")], "downloads_paced", 1);
    let mut line = Line::to(server.http);
    assert_eq!(get(&mut line, "poster.jpg").body.len(), POSTER_BYTES);
    // Within the burst, which is separate for each connection.
    assert!(get(&mut line, "hls/0.ts").body == CLIP.bytes()[..SEGMENT_BYTES]);
    assert_eq!(count(&server, "downloads_paced"), 1, "the film alone");
    assert_eq!(count(&server, "downloads_limited_total"), 0);
    server.stop();
}

/// The burst is per connection: segments together exceed it, each alone does not.
#[test]
fn segments_of_a_connection_are_paced_and_whole() {
    let server = serve(&["--http-pace", "8x"]);
    let (mut line, film) = (Line::to(server.http), CLIP.bytes());
    for number in 0..SEGMENTS {
        let answer = get(&mut line, &format!("hls/{number}.ts"));
        assert!(answer.body == film[..SEGMENT_BYTES], "segment {number}");
    }
    // A machine slower than the pace delays no download.
    for number in (0..SEGMENTS).cycle() {
        if count(&server, "downloads_paced") > 0 {
            break;
        }
        get(&mut line, &format!("hls/{number}.ts"));
    }
    assert!(count(&server, "bytes_paced") > 0);
    server.stop();
}

#[test]
fn a_film_that_is_paced_is_whole() {
    let server = serve(&["--http-pace", "16x"]);
    assert!(http(server.http, "GET", "/film.ts").body == CLIP.bytes(), "not the file");
    server.stop();
}

#[test]
fn pace_can_be_switched_off() {
    let server = serve(&["--http-pace", "off"]);
    assert!(http(server.http, "GET", "/film.ts").body == CLIP.bytes(), "not the file");
    assert_eq!(count(&server, "downloads_paced"), 0);
    server.stop();
}

#[test]
fn downloads_of_an_address_are_limited_with_it() {
    let options = ["--http-rate-per-address", "16M", "--exempt-from-limits", "none"];
    let server = serve(&options);
    let lines = [1, 1, 2].map(|last| IpAddr::from([127, 0, 0, last]));
    let lines = lines.map(|address| (Line::from_address(address, server.http), "poster.jpg"));
    read_until_counted(&server, lines.into(), "downloads_limited_address", 3);
    server.stop();
}

#[test]
fn rates_that_cannot_be_kept_are_refused_at_the_start() {
    for (options, message) in [
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
        command.args(["serve", "--rtsp=127.0.0.1:0", "--http=127.0.0.1:0"]).args(options);
        command.arg(place.folder());
        let output = command.output().expect("the program under test starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(message), "{error}");
    }
}

const SMALL: &str = "GET /small.bin HTTP/1.1\r\nHost: h\r\n\r\n";
/// Requests in a row.
const TOGETHER: usize = 8;
const RANGES: &str =
    "GET /large.bin HTTP/1.1\r\nHost: h\r\nRange: bytes=0-29999,40000-69999\r\n\r\n";

/// Starts a server of a small and a large file whose connections have this rate.
fn serve_limited(rate: &str) -> Server {
    let place = Place::new();
    place.put("small.bin", &[5; 15_000]);
    place.put("large.bin", &vec![6; 1 << 20]);
    let options = ["--http-pace", "off", "--http-rate-per-connection", rate];
    Server::at(&place, Command::new(PROGRAM), &options)
}

#[test]
fn answers_of_several_ranges_and_of_small_files_are_limited_and_whole() {
    let server = serve_limited("1600K");
    for (request, byte, bytes) in [(RANGES, 6, 60_000), (SMALL, 5, 15_000)] {
        let (mut line, before) =
            (Line::to(server.http), count(&server, "downloads_limited_connection"));
        // Repeats until the downloads exceed the initial allowance; several together, because a
        // slow request for the counters increases the allowance.
        while count(&server, "downloads_limited_connection") == before {
            line.send(request.repeat(TOGETHER));
            for _ in 0..TOGETHER {
                let answer = line.answer().expect("an answer");
                let found = answer.body.iter().filter(|&&found| found == byte).count();
                assert!(found >= bytes, "{found} bytes: {}", answer.head);
            }
        }
    }
    server.stop();
}

/// Downloads a large file while a hundred others begin and are reset; asserts that it arrives
/// completely, with no longer time than `gap_max` without a byte.
fn read_while_others_come_and_go(bytes: usize, others_for: Duration, gap_max: Duration) {
    let place = Place::new();
    place.put("large.bin", &vec![6; bytes]);
    let options = ["--http-pace", "off", "--http-rate", "16M"];
    let server = Server::at(&place, Command::new(PROGRAM), &options);
    let request = "GET /large.bin HTTP/1.1\r\nHost: h\r\n\r\n";
    let mut reader = TcpStream::connect(server.http).expect("it listens");
    reader.set_read_timeout(Some(gap_max)).expect("a socket has the option");
    reader.write_all(request.as_bytes()).expect("the request goes out");
    thread::scope(|scope| {
        scope.spawn(|| {
            server.await_index("the first is limited", |index| {
                index["server"]["downloads_limited_total"] == 1
            });
            let mut others: Vec<_> = (0..100).map(|_| Line::to(server.http)).collect();
            for line in &mut others {
                line.send(request);
            }
            thread::sleep(others_for);
        });
        let (mut read, mut piece) = (0, vec![0; 64 << 10]);
        while read < bytes {
            let bytes = uninterrupted(|| reader.read(&mut piece)).expect("the next bytes in time");
            assert!(bytes > 0, "closed after {read} bytes");
            read += bytes;
        }
    });
    server.stop();
}

#[test]
fn a_download_is_whole_though_others_come_and_go() {
    read_while_others_come_and_go(4 << 20, Duration::ZERO, HANGING);
}

/// Guards against hanging; not a measure of speed.
const HANGING: Duration = Duration::from_secs(60);

/// The downloads run at the same time and for some seconds each, so that a busy machine's pauses
/// are a small part of them.
mod timed {
    use super::*;

    /// Bytes a second at 4x.
    const PACE: f64 = 1e6;
    /// Ten seconds of the clip.
    const BURST: f64 = 2.5e6;

    /// Requests a file on a connection; returns its length and the seconds until its last byte.
    #[track_caller]
    fn get(line: &mut Line, name: &str) -> (f64, f64) {
        let began = Instant::now();
        let answer = super::get(line, name);
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
        // The third segment exceeds the burst, and so do the following ones.
        assert_eq!(counters["downloads_paced"], 4, "{counters:#}");
        let paced = counters["bytes_paced"].as_f64().expect("a number");
        assert!((5e6..8e6).contains(&paced), "{paced} bytes");
        assert_eq!(counters["downloads_limited_total"], 0);
    }

    #[test]
    fn a_film_without_pace_is_five_times_as_fast() {
        let server = serve(&["--http-pace", "off"]);
        let (bytes, took) = get(&mut Line::to(server.http), "film.ts");
        assert!(bytes / took > 5.0 * PACE, "{bytes} bytes in {took} s");
    }

    /// Returns the bytes a second of a download in the three seconds after its start.
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
                    let differs = (rate / expected - 1.0).abs();
                    assert!(differs < 0.2, "{address}: {rate} bytes a second");
                });
            }
        });
        assert_eq!(count(&server, "downloads_limited_address"), 3);
    }

    /// A slow machine makes a download slower, never faster.
    #[test]
    fn answers_of_several_ranges_and_of_small_files_keep_to_the_limit() {
        let server = serve_limited("8M");
        let limited = |request: &str, count: usize| {
            let mut line = Line::to(server.http);
            let (began, mut bytes) = (Instant::now(), 0);
            for _ in 0..count {
                line.send(request);
                bytes += line.answer().expect("an answer").body.len();
            }
            let rate = bytes as f64 / began.elapsed().as_secs_f64();
            // A megabyte a second after one and a quarter turns.
            assert!(bytes > 2_900_000 && rate < 1.5e6, "{bytes} bytes at {rate} a second");
        };
        thread::scope(|scope| {
            scope.spawn(|| limited(RANGES, 50));
            scope.spawn(|| limited(SMALL, 200));
        });
        server.stop();
    }

    /// A hundred downloads that begin and are reset within a second lower the share of another for
    /// that second; it must not stay at the reduced share afterwards.
    #[test]
    fn downloads_that_end_give_their_share_back() {
        read_while_others_come_and_go(12 << 20, Duration::from_secs(1), GAP_MAX);
    }

    /// Longest time without a byte: the second of the others, one until a share is read again, and
    /// the delay of a busy machine. Before the fix it was forty seconds.
    const GAP_MAX: Duration = Duration::from_secs(12);
}
