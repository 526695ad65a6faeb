// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every path, forced by `--path`, gives the same bytes: streams of 188- and 192-byte packets,
//! whole downloads and parts of them. Each path has its own test; the program lists the names, so a
//! new path without a test is noticed.
//!
//! `timed` waits until files of downloads are closed.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::answer::Line;
use crate::harness::clip::Clip;
use crate::harness::rtsp::Player;
use crate::harness::{PROGRAM, Place, Server, watchdog};
use crate::resource_snapshot::ResourceSnapshot;
use crate::serve;

/// Streams and downloads by a path, and asserts that no descriptor is left open.
fn assert_path(name: &str) {
    if let Some(reason) = lacking(name) {
        eprintln!("skip: {name}: {reason}");
        return;
    }
    let clip = Clip { seed: 31, milliseconds: 500, bits_per_second: 2_000_000, with_clock: true };
    let clip = clip.bytes();
    // Each packet after its arrival time, as on Blu-ray; and a packet cut off at the end.
    let timed: Vec<u8> = clip.chunks(188).flat_map(|p| [&[1, 2, 3, 4], p].concat()).collect();
    let cut = [clip.as_slice(), &[0x47, 1, 1]].concat();
    let large = large();
    let files: &[(&str, &[u8])] = &[("188.ts", &cut), ("192.m2ts", &timed), ("large.bin", &large)];
    let server = serve(files, &["--path", name]);
    let snapshot = ResourceSnapshot::of(&server);
    assert_streams(&server, name, &clip);
    snapshot.assert_restored(&server);
    assert_downloads(&server, name, &large);
    snapshot.assert_restored_but_for_kept_file(&server, 1);
}

/// Returns three megabytes.
fn large() -> Vec<u8> {
    (0..(3 << 20) + 77_u32).map(|n| (n ^ n >> 8 ^ n >> 16) as u8).collect()
}

/// A new path needs a test here.
#[test]
fn every_path_of_the_program_has_its_test() {
    let tests = include_str!("routes.rs");
    for name in names() {
        assert!(tests.contains(&format!("assert_path(\"{name}\");")), "{name} has no test here");
    }
}

#[test]
fn read_writev_gives_the_same_bytes() {
    assert_path("read_writev");
}

#[test]
fn read_send_rtp_gives_the_same_bytes() {
    assert_path("read_send_rtp");
}

#[test]
fn mmap_send_rtp_gives_the_same_bytes() {
    assert_path("mmap_send_rtp");
}

#[test]
fn mmap_writev_gives_the_same_bytes() {
    assert_path("mmap_writev");
}

#[test]
fn mmap_sendmmsg_gives_the_same_bytes() {
    assert_path("mmap_sendmmsg");
}

#[test]
fn mmap_gso_gives_the_same_bytes() {
    assert_path("mmap_gso");
}

#[test]
fn rtp_sendfile_gives_the_same_bytes() {
    assert_path("rtp_sendfile");
}

#[test]
fn more_sendfile_gives_the_same_bytes() {
    assert_path("more_sendfile");
}

#[test]
fn wire_sendfile_gives_the_same_bytes() {
    assert_path("wire_sendfile");
}

#[test]
fn uring_gives_the_same_bytes() {
    assert_path("uring");
}

#[test]
fn uring_zc_gives_the_same_bytes() {
    assert_path("uring_zc");
}

#[test]
fn mmap_rtpmsend_gives_the_same_bytes() {
    assert_path("mmap_rtpmsend");
}

#[test]
fn mmap_send_msend_gives_the_same_bytes() {
    assert_path("mmap_send_msend");
}

#[test]
fn rtpsendfile_gives_the_same_bytes() {
    assert_path("rtpsendfile");
}

#[test]
fn krtpsendfile_gives_the_same_bytes() {
    assert_path("krtpsendfile");
}

#[test]
fn krtpsendfile_gso_gives_the_same_bytes() {
    assert_path("krtpsendfile_gso");
}

#[test]
fn krtpmsend_gives_the_same_bytes() {
    assert_path("krtpmsend");
}

#[test]
fn read_write_gives_the_same_bytes() {
    assert_path("read_write");
}

#[test]
fn mmap_send_gives_the_same_bytes() {
    assert_path("mmap_send");
}

#[test]
fn sendfile_gives_the_same_bytes() {
    assert_path("sendfile");
}

#[test]
fn vmsplice_gives_the_same_bytes() {
    assert_path("vmsplice");
}

#[test]
fn splice_gives_the_same_bytes() {
    assert_path("splice");
}

#[test]
fn zerocopy_gives_the_same_bytes() {
    assert_path("zerocopy");
}

#[test]
fn uring_send_gives_the_same_bytes() {
    assert_path("uring_send");
}

#[test]
fn uring_send_zc_gives_the_same_bytes() {
    assert_path("uring_send_zc");
}

#[test]
fn pacing_by_departure_times_gives_the_same_bytes() {
    assert_departure_times("txtime");
}

#[test]
fn pacing_by_departure_times_of_four_packets_gives_the_same_bytes() {
    assert_departure_times("txtime=4");
}

/// Loopback usually has no queue for departure times; the session is then paced as by default. In a
/// guest with `fq`, `lab pacing` streams by it.
fn assert_departure_times(pacing: &str) {
    let clip = Clip { seed: 37, milliseconds: 500, bits_per_second: 2_000_000, with_clock: true };
    let clip = clip.bytes();
    let timed: Vec<u8> = clip.chunks(188).flat_map(|p| [&[1, 2, 3, 4], p].concat()).collect();
    let files: &[(&str, &[u8])] = &[("188.ts", &clip), ("192.m2ts", &timed)];
    let server = serve(files, &["--pacing", pacing]);
    let snapshot = ResourceSnapshot::of(&server);
    assert_streams(&server, pacing, &clip);
    snapshot.assert_restored(&server);
    assert_eq!(server.index()["server"]["sessions_txtime"], 0, "no session is left");
}

/// Returns the names that `--path` accepts, as the refusal of an unknown name lists them.
fn names() -> Vec<String> {
    let place = Place::new();
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--rtsp", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    command.args(["--path", "no-such-path"]).arg(place.folder());
    let outcome = watchdog::run(&mut command, LIMIT).expect("the program is there");
    let (_, list) = outcome.stderr.split_once(" one of ").expect("the refusal lists them");
    let mut names: Vec<String> = list.trim().split(", ").map(str::to_owned).collect();
    assert!(names.len() >= 6, "{names:?}");
    // Whole frames need an Ethernet device; the contract tests of the paths have one.
    names.retain(|name| !["packet_ring", "xdp"].contains(&&name[..]));
    names
}

/// Returns the requirement of a path that this host lacks, as its refusal names it; this refusal
/// precedes that of a missing folder.
fn lacking(name: &str) -> Option<String> {
    let place = Place::new();
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--rtsp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--path", name]);
    command.arg(place.folder().join("missing"));
    let outcome = watchdog::run(&mut command, LIMIT).expect("the program is there");
    let (_, reason) = outcome.stderr.split_once(&format!("--path: {name}; "))?;
    assert!(reason.starts_with("needs "), "{reason}");
    reason.lines().next().map(str::to_owned)
}

fn assert_streams(server: &Server, path: &str, clip: &[u8]) {
    let copied = || server.index()["server"]["bytes_copied"].as_u64().expect("a count");
    let deadline = Instant::now() + LIMIT;
    for round in 0.. {
        let before = copied();
        let mut players = ["188.ts", "192.m2ts"].map(|name| Player::set_up(server.rtsp, name));
        let firsts = players.each_mut().map(Player::play);
        for (player, first) in players.iter_mut().zip(firsts) {
            player.hear("the end", |heard| !heard.byes.is_empty());
            let payload = player.heard().assert_gapless(clip, first);
            assert_eq!(payload.len(), clip.len(), "{path}, round {round}");
            assert_eq!(player.command("TEARDOWN", &[]).status, 200);
        }
        // As soon as there are images: all except the first packets, which do not wait for the
        // images to be opened.
        let copied = copied() - before;
        if round >= 1 && (path != "wire_sendfile" || copied < clip.len() as u64 / 10) {
            return;
        }
        assert!(Instant::now() < deadline, "{copied} bytes copied though there is an image");
    }
}

fn assert_downloads(server: &Server, path: &str, large: &[u8]) {
    let ranges = ["", "bytes=1-1", "bytes=1048575-2097153", "bytes=-70000"];
    let expected =
        [large, &large[1..2], &large[1_048_575..=2_097_153], &large[large.len() - 70_000..]];
    let mut line = Line::to(server.http);
    for (range, bytes) in ranges.iter().zip(expected) {
        let header = if range.is_empty() { String::new() } else { format!("Range: {range}\r\n") };
        line.send(format!("GET /large.bin HTTP/1.1\r\nHost: h\r\n{header}\r\n"));
        let answer = line.answer().expect("an answer");
        assert_eq!(answer.status, if range.is_empty() { 200 } else { 206 }, "{path}: {answer:?}");
        assert!(answer.body == bytes, "{path}: {range}: not what lies in the file");
    }
}

/// Guards against hanging; not a measure of speed.
const LIMIT: Duration = Duration::from_secs(60);

mod timed {
    use super::*;

    /// HTTP closes a file some seconds after its last download.
    #[test]
    fn every_path_closes_the_files_of_its_downloads() {
        let (names, large) = (names(), large());
        // Several at a time, because they mostly wait.
        for names in names.chunks(TOGETHER) {
            thread::scope(|scope| {
                for name in names.iter().filter(|name| lacking(name).is_none()) {
                    let large = &large;
                    scope.spawn(move || {
                        let server = serve(&[("large.bin", large)], &["--path", name]);
                        let snapshot = ResourceSnapshot::of(&server);
                        assert_downloads(&server, name, large);
                        snapshot.assert_restored(&server);
                    });
                }
            });
        }
    }

    /// Servers at a time.
    const TOGETHER: usize = 5;
}
