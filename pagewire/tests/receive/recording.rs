// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files equal the sent data.

use std::cell::{Cell, RefCell};
use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::assert_file;
use crate::harness::clip::{Clip, PAYLOAD_BYTES};
use crate::harness::ports::free_port;
use crate::harness::recorder::{BURST, Recorder, Sender, files, url};
use crate::harness::{PROGRAM, Place, Server, await_true, watchdog};

#[test]
fn the_automatic_way_records_rtp_and_bare_streams_byte_for_byte() {
    record_by("auto");
}

#[test]
fn recvmmsg_with_gro_records_rtp_and_bare_streams_byte_for_byte() {
    record_by("recvmmsg_gro");
}

#[test]
fn recvmmsg_records_rtp_and_bare_streams_byte_for_byte() {
    record_by("recvmmsg");
}

#[test]
fn recvfrom_records_rtp_and_bare_streams_byte_for_byte() {
    record_by("recvfrom");
}

/// Records with a receive path for ordinary sockets, which every host supports.
fn record_by(path: &str) {
    let place = Place::new();
    let clips = [1, 2].map(|seed| Clip::of_seconds(seed, 8).bytes());
    let ports = [free_port(), free_port()];
    let recorder = Recorder::start(&place, &ports.map(url), &["--path", path]);
    let mut rtp = Sender::rtp(ports[0], 7, 65_500);
    let mut bare = Sender::bare(ports[1]);
    rtp.send_all(&clips[0]);
    bare.send_all(&clips[1]);
    let recorded = recorder.stop().well();
    for (index, clip) in clips.iter().enumerate() {
        assert_file(&place.folder().join(format!("{index}.ts")), clip);
        let stream = recorded.stream(index);
        assert_eq!(stream["ts_packets"], clip.len() / 188, "{stream:#}");
        for none in ["lost", "unexpected_source", "continuity_errors", "dropped_by_disk"] {
            assert_eq!(stream[none], 0, "{none}: {stream:#}");
        }
    }
    assert_eq!(recorded.stream(0)["form"], "rtp");
    assert_eq!(recorded.stream(1)["form"], "ts");
    let chosen = &recorded.summary["path"];
    assert!(path == "auto" || chosen == path, "{chosen} instead of {path}");
}

#[test]
fn a_hundred_streams_lose_nothing() {
    const STREAMS: usize = 100;
    // The capacity of a socket without privileges: nothing is lost however late the recorder is.
    const PACKETS: usize = 80;
    let place = Place::new();
    let clip = |index: usize| {
        let mut bytes = Clip::of_seconds(1000 + index as u64, 2).bytes();
        bytes.truncate(PACKETS * PAYLOAD_BYTES);
        bytes
    };
    let clips: Vec<Vec<u8>> = (0..STREAMS).map(clip).collect();
    let ports: Vec<u16> = (0..STREAMS).map(|_| free_port()).collect();
    let urls: Vec<String> = ports.iter().copied().map(url).collect();
    let recorder = Recorder::start(&place, &urls, &["--threads", "2", "--no-reports"]);
    let mut senders: Vec<_> =
        ports.iter().map(|port| Sender::rtp(*port, u32::from(*port), *port)).collect();
    for packet in 0..PACKETS {
        let range = packet * PAYLOAD_BYTES..(packet + 1) * PAYLOAD_BYTES;
        for (sender, clip) in senders.iter_mut().zip(&clips) {
            if let Some(payload) = clip.get(range.clone()) {
                sender.send(payload);
            }
        }
    }
    let recorded = recorder.stop().well();
    for (index, clip) in clips.iter().enumerate() {
        let sent = clip.len() / PAYLOAD_BYTES * PAYLOAD_BYTES;
        assert_file(&place.folder().join(format!("{index}.ts")), &clip[..sent]);
        assert_eq!(recorded.stream(index)["lost"], 0);
    }
}

#[test]
fn files_by_size_begin_where_play_can_start_and_add_up_to_the_stream() {
    let clip = Clip::of_seconds(5, 8).bytes();
    let pieces = record_in_files(["--rotate-bytes", "150000"], |sender, _| {
        sender.send_all(&clip);
        clip.clone()
    });
    assert!(pieces.len() > 2 && pieces.iter().all(|piece| piece.len() <= 150_000));
}

#[test]
fn files_by_time_begin_where_play_can_start_and_add_up_to_the_stream() {
    let clip = Clip::of_seconds(5, 600).bytes();
    record_in_files(["--rotate-seconds", "1"], |sender, place| {
        // Seconds of the stream, until one second of the clock has passed.
        let sent = Cell::new(0);
        let sender = RefCell::new(sender);
        await_true("a second file", || {
            let until = (sent.get() + 63 * PAYLOAD_BYTES).min(clip.len());
            sender.borrow_mut().send_all(&clip[sent.replace(until)..until]);
            files(place).len() > 1
        });
        clip[..sent.get()].to_vec()
    });
}

/// Records the packets that `send` sends, and returns the files: each begins where play can start.
fn record_in_files(
    rotation: [&str; 2],
    send: impl FnOnce(&mut Sender, &Place) -> Vec<u8>,
) -> Vec<Vec<u8>> {
    let place = Place::new();
    let port = free_port();
    let pattern = place.folder().join("{stream}-{number}-{time}.ts");
    let options = ["-o", pattern.to_str().expect("UTF-8"), "--sync", "rotate"];
    let options = [&options[..], &rotation].concat();
    let recorder = Recorder::by(Command::new(PROGRAM), &place, &[url(port)], &options);
    let sent = send(&mut Sender::rtp(port, 1, 0), &place);
    let recorded = recorder.stop().well();
    let files = files(&place);
    let pieces: Vec<_> = files.iter().map(|file| fs::read(file).expect("a file")).collect();
    assert!(pieces.len() > 1, "{files:?}");
    assert_eq!(recorded.figure("files"), pieces.len() as u64);
    assert_eq!(recorded.summary["syncs"], pieces.len());
    assert!(pieces.concat() == sent, "{:?}", pieces.iter().map(Vec::len).collect::<Vec<_>>());
    for piece in &pieces {
        // PAT, PMT and a picture with the random access indicator (ISO/IEC 13818-1 §2.4.3.5).
        let pids = [0, 1, 2].map(|packet: usize| piece[188 * packet + 2]);
        assert_eq!((piece.len() % 188, pids, piece[188 * 2 + 5] & 0x40), (0, [0, 0, 1], 0x40));
    }
    let name = files[0].file_name().expect("a name").to_string_lossy().into_owned();
    let stem = format!("127.0.0.1-{port}-000001-2");
    assert!(name.starts_with(&stem) && name.ends_with("Z.ts"), "{name}");
    pieces
}

#[test]
fn a_recording_is_served_at_once_and_not_read_again() {
    let place = Place::new();
    let clip = Clip::of_seconds(6, 10).bytes();
    let port = free_port();
    let recorder = Recorder::start(&place, &[url(port)], &[]);
    Sender::rtp(port, 1, 0).send_all(&clip);
    recorder.stop().well();
    let plans = || fs::read_dir(place.cache().join("plans")).expect("the cache").count();
    assert_eq!(plans(), 1);
    let plan = fs::read_dir(place.cache().join("plans")).expect("the cache").next();
    let plan = plan.expect("one").expect("an entry").path();
    let kept = fs::metadata(&plan).expect("it is there").modified().expect("a time");
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    let row = server.await_stream("0.ts");
    assert_eq!(row["stream"]["packets"], clip.len().div_ceil(PAYLOAD_BYTES));
    server.stop();
    // A server that had to read the file would have rewritten the plan.
    assert_eq!(fs::metadata(&plan).expect("it is there").modified().expect("a time"), kept);
}

#[test]
fn packets_out_of_order_and_repeated_are_put_right() {
    let place = Place::new();
    let clip = Clip::of_seconds(7, 20).bytes();
    let port = free_port();
    let recorder = Recorder::start(&place, &[url(port)], &["--reorder-ms", "2000"]);
    let mut sender = Sender::rtp(port, 1, 65_530);
    let packets: Vec<_> = clip.chunks(PAYLOAD_BYTES).map(|p| sender.datagram(p)).collect();
    let mut repeated = 0;
    for (number, pair) in packets.chunks(2).enumerate() {
        if number % (BURST / 4) == 0 {
            sender.await_room();
        }
        // Also the very first two.
        for packet in pair.iter().rev() {
            sender.send_raw(packet);
        }
        if number % 5 == 1 {
            sender.send_raw(&pair[0]);
            repeated += 1;
        }
    }
    let recorded = recorder.stop().well();
    assert_file(&place.folder().join("0.ts"), &clip);
    let pairs = packets.len() / 2;
    assert_eq!(recorded.figure("duplicates"), repeated);
    // The first of all arrived before an order was established.
    assert_eq!(recorded.figure("reordered"), pairs as u64 - 1, "{:#}", recorded.summary);
    assert_eq!((recorded.figure("lost"), recorded.figure("continuity_errors")), (0, 0));
}

#[test]
fn nothing_is_written_over_and_wrong_options_are_told() {
    let place = Place::new();
    place.put("0.ts", b"mine");
    let port = free_port();
    let clip = Clip::of_seconds(8, 2).bytes();
    let recorder = Recorder::start(&place, &[url(port)], &[]);
    Sender::bare(port).send_all(&clip);
    recorder.stop().well();
    assert_file(&place.folder().join("0.ts"), b"mine");
    assert_file(&place.folder().join("0-2.ts"), &clip);

    let two = [url(port), url(free_port())];
    for (arguments, words) in [
        (vec!["udp://239.1.1.1"], "write an address and a port"),
        (vec![&*two[0], &*two[0]], "it is there twice"),
        (vec![&*two[0], &*two[1], "-o", "a.ts"], "write {stream} or {index}"),
        (vec![&*two[0], "-o", "nowhere/a.ts"], "name a folder that exists"),
        (vec![&*two[0], "--path", "teleport"], "write auto or one of recvfrom"),
        (vec![&*two[0], "--sync", "often"], "write never, rotate or seconds"),
    ] {
        let mut command = Command::new(PROGRAM);
        let outcome = watchdog::run(command.arg("receive").args(&arguments), LIMIT);
        let outcome = outcome.expect("the program is built");
        assert_eq!(outcome.status.code(), Some(2), "{arguments:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(words), "{arguments:?}: {}", outcome.stderr);
    }
}

const LIMIT: Duration = Duration::from_secs(60);
