// SPDX-License-Identifier: MIT OR Apache-2.0
//! Downloads: every path, every shape, every fault, over TCP on loopback.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use paths::{DownloadPath, Host, MappedFile, Open, PATHS, SendError, SendStats, Spec, SystemCalls};

use crate::harness::skip;
use crate::opened;

const TIMEOUT: Duration = Duration::from_secs(60);

fn download_paths() -> Vec<(&'static Spec, Box<dyn DownloadPath>)> {
    let mut usable = Vec::new();
    for spec in PATHS {
        let Open::Download(open) = spec.open else { continue };
        match (spec.probe)(&Host::here()) {
            Ok(()) => usable.extend(opened(spec, open()).map(|path| (*spec, path))),
            Err(reason) => skip(format!("{spec}: {reason}")),
        }
    }
    usable
}

/// Returns a file of `bytes` bytes that does not repeat where a mistake would.
fn file_of(bytes: usize) -> (MappedFile, Vec<u8>) {
    let content: Vec<u8> =
        (0..bytes as u32).map(|n| (n.wrapping_mul(0x9e37_79b1) >> 23) as u8).collect();
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&content, 0).unwrap();
    (MappedFile::open(file, "asset.mp4").unwrap(), content)
}

/// Returns a connection: the server's end, non-blocking, and the client's.
pub(crate) fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    let (server, _) = listener.accept().unwrap();
    server.set_nonblocking(true).unwrap();
    (server, client)
}

/// Reads to the end in a thread of its own.
fn reader(mut client: TcpStream) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        client.read_to_end(&mut all).unwrap();
        all
    })
}

/// Repeats steps until `bytes` bytes are sent or an error ends it; also counts the steps.
fn download(
    path: &mut dyn DownloadPath,
    source: &MappedFile,
    (offset, bytes): (u64, u64),
    socket: &TcpStream,
    stats: &mut SendStats,
) -> (u64, Result<(), SendError>) {
    let (mut sent, mut steps) = (0, 0);
    let start = Instant::now();
    while sent < bytes {
        assert!(start.elapsed() < TIMEOUT, "{sent} of {bytes} after {TIMEOUT:?}");
        steps += 1;
        match path.send(source, offset + sent, bytes - sent, socket.as_fd(), stats) {
            Ok(0) => panic!("a step of 0 bytes"),
            Ok(more) => sent += more,
            Err(SendError::Blocked) => thread::sleep(Duration::from_micros(100)),
            Err(error) => return (steps, Err(error)),
        }
    }
    (steps, Ok(()))
}

#[test]
fn every_range_arrives_and_costs_the_calls_claimed() {
    let (source, content) = file_of(3 << 20);
    let sizes = [
        1,
        1315,
        1316,
        1317,
        4095,
        4096,
        4097,
        131_071,
        131_072,
        131_073,
        1_048_575,
        1_048_577,
        2 << 20,
    ];
    for (spec, mut path) in download_paths() {
        for offset in [0, 1, 4095, 4097, 1_000_003] {
            for bytes in sizes {
                let what = format!("{spec} {offset}+{bytes}");
                let (server, client) = connection();
                let arrived = reader(client);
                set_up(&mut *path, &source, spec, &server);
                let mut stats = SendStats::default();
                let range = (offset as u64, bytes as u64);
                let (steps, end) = download(&mut *path, &source, range, &server, &mut stats);
                assert_eq!(end, Ok(()), "{what}");
                drop(server);
                let arrived = arrived.join().unwrap();
                assert!(arrived[1..] == content[offset..offset + bytes], "{what}");
                assert_eq!((stats.bytes, stats.packets), (bytes as u64, 0), "{what}");
                let fewest = claimed_calls(spec) * steps;
                // A pipe is emptied of bytes that the socket did not accept.
                let has_pipe = matches!(spec.name, "splice" | "vmsplice");
                let most = if has_pipe { fewest + steps } else { fewest };
                let calls = stats.calls;
                assert!((fewest..=most).contains(&calls), "{what}: {calls} calls in {steps} steps");
            }
        }
    }
}

fn claimed_calls(spec: &Spec) -> u64 {
    match spec.system_calls {
        SystemCalls::PerStep(calls) => calls.into(),
        other => panic!("{spec}: a download has steps, not {other}"),
    }
}

/// Sends the first byte of the file, with the cost of a new connection.
fn set_up(path: &mut dyn DownloadPath, source: &MappedFile, spec: &Spec, socket: &TcpStream) {
    let mut stats = SendStats::default();
    assert_eq!(path.send(source, 0, 1, socket.as_fd(), &mut stats), Ok(1), "{spec}");
    let most = claimed_calls(spec) + 2;
    assert!(stats.calls <= most, "{spec}: {} calls at first", stats.calls);
}

/// A socket that accepts a whole step causes no second read.
#[test]
fn downloads_copy_what_they_claim() {
    let (source, _) = file_of(32_768);
    for (spec, mut path) in download_paths() {
        let (server, _client) = connection();
        set_up(&mut *path, &source, spec, &server);
        let mut stats = SendStats::default();
        let (steps, end) = download(&mut *path, &source, (0, 32_768), &server, &mut stats);
        assert_eq!((steps, end), (1, Ok(())), "{spec}");
        assert_eq!(stats.calls, claimed_calls(spec), "{spec}");
        assert_eq!(stats.copied_bytes, u64::from(spec.copies_per_byte) * 32_768, "{spec}");
    }
}

#[test]
fn an_empty_range_makes_no_call() {
    let (source, _) = file_of(10);
    for (spec, mut path) in download_paths() {
        let (server, _client) = connection();
        let mut stats = SendStats::default();
        let sent = path.send(&source, 10, 0, server.as_fd(), &mut stats);
        assert_eq!((sent, stats), (Ok(0), SendStats::default()), "{spec}");
    }
}

/// Sends ranges until all are sent or an error ends it; counts the steps, and returns the rest.
fn download_ranges(
    path: &mut dyn DownloadPath,
    source: &MappedFile,
    mut ranges: Vec<Range<u64>>,
    socket: &TcpStream,
    stats: &mut SendStats,
) -> (u64, Result<(), SendError>) {
    let (start, mut steps) = (Instant::now(), 0);
    while ranges.iter().any(|range| !range.is_empty()) {
        assert!(start.elapsed() < TIMEOUT, "{ranges:?} are left after {TIMEOUT:?}");
        steps += 1;
        match path.send_ranges(source, &ranges, socket.as_fd(), stats) {
            Ok(0) => panic!("a step of 0 bytes"),
            Ok(mut sent) => {
                for range in &mut ranges {
                    let passed = sent.min(range.end - range.start);
                    range.start += passed;
                    sent -= passed;
                }
                assert_eq!(sent, 0, "no more is sent than was asked for");
            }
            Err(SendError::Blocked) => thread::sleep(Duration::from_micros(100)),
            Err(error) => return (steps, Err(error)),
        }
    }
    (steps, Ok(()))
}

/// Returns the bytes of ranges.
fn of_ranges(content: &[u8], ranges: &[Range<u64>]) -> Vec<u8> {
    let bytes = |range: &Range<u64>| content[range.start as usize..range.end as usize].to_vec();
    ranges.iter().flat_map(bytes).collect()
}

#[test]
fn ranges_arrive_in_the_order_given() {
    let (source, content) = file_of(3 << 20);
    let every = |step: u64, bytes: u64| (0..150).map(move |n| n * step..n * step + bytes);
    let lists: [Vec<Range<u64>>; 6] = [
        every(20_000, 15_000).collect(),
        every(7, 3).collect(),
        every(4_096, 4_096).rev().collect(),
        every(5_000, 9_000).collect(),
        vec![100..100, 4_095..4_097, 9..9, 4_095..4_097, 0..1, 3 << 20..3 << 20],
        vec![0..1 << 20, 1..2, 1 << 20..2 << 20],
    ];
    for (spec, mut path) in download_paths() {
        for (number, ranges) in lists.iter().enumerate() {
            let what = format!("{spec}, list {number}");
            let (server, client) = connection();
            let arrived = reader(client);
            let mut stats = SendStats::default();
            let list = ranges.clone();
            let (_, end) = download_ranges(&mut *path, &source, list, &server, &mut stats);
            assert_eq!(end, Ok(()), "{what}");
            drop(server);
            let (arrived, expected) = (arrived.join().unwrap(), of_ranges(&content, ranges));
            assert!(arrived == expected, "{what}: {} of {}", arrived.len(), expected.len());
            assert_eq!(stats.bytes, expected.len() as u64, "{what}");
        }
    }
}

/// A step of `vmsplice` sends as many ranges as its pipe has room for; of other paths, one.
#[test]
fn many_ranges_cost_two_calls_where_the_socket_takes_them() {
    let (source, content) = file_of(1 << 20);
    let ranges: Vec<Range<u64>> = (0..100).map(|n| n * 10_000..n * 10_000 + 300).collect();
    for (spec, mut path) in download_paths() {
        let (server, client) = connection();
        let arrived = reader(client);
        set_up(&mut *path, &source, spec, &server);
        let mut stats = SendStats::default();
        let list = ranges.clone();
        let (steps, end) = download_ranges(&mut *path, &source, list, &server, &mut stats);
        let expected_steps = if spec.name == "vmsplice" { 1 } else { 100 };
        assert_eq!((steps, end), (expected_steps, Ok(())), "{spec}");
        assert_eq!(stats.calls, claimed_calls(spec) * expected_steps, "{spec}");
        drop(server);
        assert!(arrived.join().unwrap()[1..] == of_ranges(&content, &ranges), "{spec}");
    }
}

/// Cuts the file in the middle of a step, in a page and at its border, and before the first byte.
#[test]
fn ranges_of_a_file_shorter_than_promised_are_sent_to_its_end() {
    for (spec, mut path) in download_paths() {
        for cut in [0_u64, 7, 8_192, 100_001, 120_000] {
            let (source, content) = file_of(400_000);
            source.map().unwrap();
            source.file().set_len(cut).unwrap();
            let ranges: Vec<Range<u64>> = (0..30).map(|n| n * 12_000..n * 12_000 + 9_000).collect();
            let (server, client) = connection();
            let arrived = reader(client);
            let mut stats = SendStats::default();
            let list = ranges.clone();
            let (_, end) = download_ranges(&mut *path, &source, list, &server, &mut stats);
            drop(server);
            assert_eq!(end, Err(SendError::Shrunk { at: cut }), "{spec} {cut}");
            let before = |range: &Range<u64>| range.start.min(cut)..range.end.min(cut);
            let there: Vec<Range<u64>> = ranges.iter().map(before).collect();
            let (arrived, there) = (arrived.join().unwrap(), of_ranges(&content, &there));
            let (before, behind) = arrived.split_at(there.len());
            // A step of one range may end in the page of the cut, as above.
            let may_end_there = spec.sources.contains(&"mmap(2)") && spec.name != "vmsplice";
            assert!(before == there && (behind.is_empty() || may_end_there), "{spec} {cut}");
            assert!(behind.len() < 4096 && behind.iter().all(|byte| *byte == 0), "{spec}");
        }
    }
}

#[test]
fn a_peer_that_stops_reading_blocks_and_then_goes_on() {
    let (source, content) = file_of(16 << 20);
    for (spec, mut path) in download_paths() {
        let (server, client) = connection();
        let mut stats = SendStats::default();
        let mut sent = 0;
        let blocked = loop {
            let left = source.bytes() - sent;
            assert!(left > 0, "{spec}: all of it fits the socket");
            match path.send(&source, sent, left, server.as_fd(), &mut stats) {
                Ok(more) => sent += more,
                Err(error) => break error,
            }
        };
        assert_eq!((blocked, stats.refused), (SendError::Blocked, 1), "{spec}");
        let arrived = reader(client);
        let range = (sent, source.bytes() - sent);
        let (_, end) = download(&mut *path, &source, range, &server, &mut stats);
        assert_eq!(end, Ok(()), "{spec}");
        drop(server);
        assert!(arrived.join().unwrap() == content, "{spec}");
        assert_eq!(stats.bytes, source.bytes(), "{spec}");
    }
}

#[test]
fn a_peer_that_closes_is_gone_and_kills_nobody() {
    let (source, _) = file_of(16 << 20);
    for (spec, mut path) in download_paths() {
        let (server, client) = connection();
        drop(client);
        let mut stats = SendStats::default();
        let range = (0, source.bytes());
        let (_, end) = download(&mut *path, &source, range, &server, &mut stats);
        assert!(matches!(end, Err(SendError::Gone { .. })), "{spec}: {end:?}");
    }
}

#[test]
fn a_file_shorter_than_promised_is_sent_to_its_end() {
    for (spec, mut path) in download_paths() {
        for cut in [0_u64, 1, 4096, 100_001] {
            let (source, content) = file_of(200_000);
            source.file().set_len(cut).unwrap();
            let (server, client) = connection();
            let arrived = reader(client);
            let mut stats = SendStats::default();
            let (_, end) = download(&mut *path, &source, (0, 200_000), &server, &mut stats);
            assert_eq!(end, Err(SendError::Shrunk { at: cut }), "{spec} {cut}");
            drop(server);
            assert!(arrived.join().unwrap() == content[..cut as usize], "{spec} {cut}");
            assert_eq!(stats.bytes, cut, "{spec} {cut}");
        }
    }
}

/// The mapped paths do not detect a cut in the last page of a step: behind the cut they send that
/// page's zeroes.
#[test]
fn a_cut_in_the_last_page_of_a_step_is_sent_as_zeroes_at_most() {
    for (spec, mut path) in download_paths() {
        let (source, content) = file_of(5_000);
        source.map().unwrap();
        source.file().set_len(4_500).unwrap();
        let (server, client) = connection();
        let arrived = reader(client);
        let mut stats = SendStats::default();
        let (_, end) = download(&mut *path, &source, (0, 5_000), &server, &mut stats);
        drop(server);
        let arrived = arrived.join().unwrap();
        assert_eq!(stats.bytes, arrived.len() as u64, "{spec}");
        assert!(arrived[..4_500] == content[..4_500], "{spec}");
        if spec.sources.contains(&"mmap(2)") {
            assert_eq!((end, arrived.len()), (Ok(()), 5_000), "{spec}");
            assert!(arrived[4_500..].iter().all(|byte| *byte == 0), "{spec}");
        } else {
            assert_eq!((end, arrived.len()), (Err(SendError::Shrunk { at: 4_500 }), 4_500));
        }
    }
}

/// A path object serves connections in turn; bytes that one does not accept are not sent to
/// another.
#[test]
fn connections_in_turn_get_their_own_bytes() {
    let (source, content) = file_of(12 << 20);
    let half = source.bytes() / 2;
    for (spec, mut path) in download_paths() {
        let (pair, mut stats) = ([connection(), connection()], SendStats::default());
        let mut sent = [0, 0];
        // Each connection gets a step until both are full.
        let mut full = [false, false];
        while full != [true, true] {
            for (number, (server, _)) in pair.iter().enumerate() {
                let offset = number as u64 * half + sent[number];
                let left = half - sent[number];
                assert!(left > 0, "{spec}: all of it fits the socket");
                match path.send(&source, offset, left, server.as_fd(), &mut stats) {
                    Ok(more) => sent[number] += more,
                    Err(error) => full[number] = error == SendError::Blocked,
                }
            }
        }
        for (number, (server, client)) in pair.into_iter().enumerate() {
            let arrived = reader(client);
            let start = number as u64 * half;
            let range = (start + sent[number], half - sent[number]);
            let (_, end) = download(&mut *path, &source, range, &server, &mut stats);
            assert_eq!(end, Ok(()), "{spec}");
            drop(server);
            let expected = &content[start as usize..(start + half) as usize];
            assert!(arrived.join().unwrap() == expected, "{spec}: connection {number}");
        }
        assert_eq!(stats.bytes, source.bytes(), "{spec}");
    }
}

#[test]
fn a_file_that_grows_is_sent_as_promised() {
    let (source, content) = file_of(300_000);
    for (spec, mut path) in download_paths() {
        let (server, client) = connection();
        let arrived = reader(client);
        let mut stats = SendStats::default();
        let half = download(&mut *path, &source, (0, 150_000), &server, &mut stats);
        source.file().write_all_at(&[0xee; 50_000], 300_000).unwrap();
        let rest = download(&mut *path, &source, (150_000, 150_000), &server, &mut stats);
        assert_eq!((half.1, rest.1), (Ok(()), Ok(())), "{spec}");
        drop(server);
        assert!(arrived.join().unwrap() == content, "{spec}");
    }
}

/// The socket may refer to a path's buffers long after the path is dropped.
#[test]
fn bytes_sent_before_a_path_was_dropped_arrive() {
    let (source, content) = file_of(16 << 20);
    for (spec, mut path) in download_paths() {
        let (server, client) = connection();
        let mut stats = SendStats::default();
        let blocked = loop {
            let left = source.bytes() - stats.bytes;
            match path.send(&source, stats.bytes, left, server.as_fd(), &mut stats) {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(blocked, SendError::Blocked, "{spec}");
        drop(path);
        drop(server);
        // This allocation may reuse memory that the path has freed.
        let other = vec![0xee_u8; 4 << 20];
        assert!(reader(client).join().unwrap() == content[..stats.bytes as usize], "{spec}");
        drop(other);
    }
}
