// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any behaviour of senders: foreign packets are counted and not recorded, packets of the stream
//! are not lost.

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use crate::assert_file;
use crate::harness::clip::{Clip, PAYLOAD_BYTES};
use crate::harness::ports::free_port;
use crate::harness::recorder::{BURST, Recorder, Sender, url};
use crate::harness::{PROGRAM, Place, Server};

#[test]
fn what_is_no_stream_is_counted_by_kind() {
    let place = Place::new();
    let clip = Clip::of_seconds(1, 6).bytes();
    let port = free_port();
    let recorder = Recorder::start(&place, &[url(port)], &[]);
    let mut sender = Sender::rtp(port, 7, 0);
    let (first, rest) = clip.split_at(20 * PAYLOAD_BYTES);
    sender.send_all(first);
    let good = sender.datagram(&[]);
    let version_1 = [&[0x40][..], &good[1..]].concat();
    let extension_beyond = [&[0x90][..], &good[1..]].concat();
    let padding_beyond = [&[0xa0][..], &good[1..], &[0xff][..]].concat();
    let other_type = [&good[..1], &[96], &good[2..]].concat();
    let cut_bare = vec![0x47; 187];
    let oversized = vec![0xff; 65_000];
    let malformed =
        [&b""[..], &good[..11], &version_1, &extension_beyond, &padding_beyond, &cut_bare];
    sender.await_room();
    for datagram in malformed {
        sender.send_raw(datagram);
    }
    sender.await_room();
    sender.send_raw(&oversized);
    sender.send_raw(&other_type);
    // A whole packet with the number of `good`, which was never sent; and one with half a packet in
    // it.
    let rtp = sender.rtp.as_mut().expect("RTP");
    rtp.sequence = rtp.sequence.wrapping_sub(1);
    sender.send(&[0x47; 100]);
    sender.send_all(rest);
    let recorded = recorder.stop().well();
    assert_file(&place.folder().join("0.ts"), &clip);
    assert_eq!(recorded.figure("malformed"), malformed.len() as u64 + 1, "{:#}", recorded.summary);
    assert_eq!((recorded.figure("unexpected_source"), recorded.figure("bad_payload_size")), (1, 1));
    assert_eq!((recorded.figure("lost"), recorded.figure("duplicates")), (0, 0));
}

#[test]
fn a_flood_of_sources_takes_nothing_over() {
    let place = Place::new();
    let clip = Clip::of_seconds(2, 12).bytes();
    let port = free_port();
    let recorder = Recorder::start(&place, &[url(port)], &[]);
    let mut sender = Sender::rtp(port, 7, 0);
    let mut flood = Sender::rtp(port, 0x8000_0000, 0);
    let junk = [0x47; PAYLOAD_BYTES];
    let mut flooded = 0;
    // Before the stream as well as during it.
    for step in 0..clip.len().div_ceil(PAYLOAD_BYTES) + 20 {
        if step % 2 == 0 {
            sender.await_room();
        }
        for _ in 0..5 {
            flood.send(&junk);
            let rtp = flood.rtp.as_mut().expect("RTP");
            (rtp.ssrc, rtp.sequence) = (rtp.ssrc + 1, rtp.sequence.wrapping_mul(31));
            flooded += 1;
        }
        if let Some(at) = step.checked_sub(20) {
            let range = at * PAYLOAD_BYTES..clip.len().min((at + 1) * PAYLOAD_BYTES);
            sender.send(&clip[range]);
        }
    }
    // The last junk packet waits for a successor until a packet of the stream displaces it.
    let recorded = recorder.stop().well();
    assert_file(&place.folder().join("0.ts"), &clip);
    assert_eq!(recorded.stream(0)["ssrc"], "00000007");
    let forgotten = recorded.figure("sources_forgotten");
    assert!(forgotten >= flooded - 64 && forgotten <= flooded, "{forgotten} of {flooded}");
    assert_eq!((recorded.figure("sources_followed"), recorded.figure("lost")), (1, 0));
}

#[test]
fn a_source_that_restarts_or_comes_back_as_another_is_recorded_on() {
    // Where the sender or the recorder pauses for a second, that is another outage.
    assert!(outages_of_a_source_that_comes_back() >= 1);
}

/// Asserts the recording; returns the outages that it counted, one of which was intended.
pub(crate) fn outages_of_a_source_that_comes_back() -> u64 {
    let place = Place::new();
    let clip = Clip::of_seconds(3, 18).bytes();
    let third = clip.len() / 3 / PAYLOAD_BYTES * PAYLOAD_BYTES;
    let port = free_port();
    let recorder = Recorder::start(&place, &[url(port)], &[]);
    let mut sender = Sender::rtp(port, 7, 100);
    sender.send_all(&clip[..third]);
    // The same source restarts its sequence numbers.
    sender.rtp.as_mut().expect("RTP").sequence = 40_000;
    sender.send_all(&clip[third..2 * third]);
    // Another source starts after a silence of a second or more; nothing of its start is lost.
    sleep(Duration::from_millis(1500));
    let mut other = Sender::rtp(port, 8, 65_535);
    other.send_all(&clip[2 * third..]);
    let recorded = recorder.stop().well();
    assert_file(&place.folder().join("0.ts"), &clip);
    assert_eq!(recorded.stream(0)["ssrc"], "00000008", "{:#}", recorded.summary);
    assert_eq!(recorded.figure("sources_followed"), 2);
    assert!(recorded.stream(0)["outage_s"].as_f64().expect("seconds") > 1.0);
    assert_eq!((recorded.figure("lost"), recorded.figure("continuity_errors")), (0, 0));
    recorded.figure("outages")
}

#[test]
fn losses_are_counted_and_what_is_too_late_is_not_put_in() {
    let place = Place::new();
    let clip = Clip::of_seconds(4, 12).bytes();
    let port = free_port();
    let recorder = Recorder::start(&place, &[url(port)], &["--reorder-ms", "50"]);
    let mut sender = Sender::rtp(port, 7, 65_500);
    let packets: Vec<_> = clip.chunks(PAYLOAD_BYTES).map(|p| sender.datagram(p)).collect();
    for (number, packet) in packets.iter().enumerate() {
        if number % BURST == 0 {
            sender.await_room();
        }
        // One packet is lost, one arrives when all later packets are in the file: the recorder
        // waits for neither.
        if number == 61 {
            recorder.await_bytes("0.ts", (61 - 2) * PAYLOAD_BYTES as u64);
            sender.send_raw(&packets[50]);
        }
        if number != 40 && number != 50 {
            sender.send_raw(packet);
        }
    }
    let recorded = recorder.stop().well();
    let numbered = clip.chunks(PAYLOAD_BYTES).enumerate();
    let kept = numbered.filter(|(number, _)| *number != 40 && *number != 50);
    let expected: Vec<u8> = kept.flat_map(|(_, payload)| payload.to_vec()).collect();
    assert_file(&place.folder().join("0.ts"), &expected);
    let figures = ["lost", "late", "missing", "reordered"].map(|name| recorded.figure(name));
    assert_eq!(figures, [1, 1, 2, 1], "{:#}", recorded.summary);
    // Seven packets are missing at each place: a counter modulo 16 shows it.
    assert_eq!(recorded.figure("continuity_errors"), 2);
}

#[test]
fn a_server_that_goes_away_is_asked_again_and_the_film_is_whole() {
    let place = Place::new();
    let clip = Clip::of_seconds(9, 5).bytes();
    let served = Place::new();
    served.put("film.ts", &clip);
    let rtsp = format!("127.0.0.1:{}", free_port());
    let server = Server::listening(&rtsp, &served, Command::new(PROGRAM), &[]);
    server.await_stream("film.ts");
    let mut recorder = Recorder::start(&place, &[server.rtsp_url("film.ts")], &[]);
    recorder.await_bytes("0.ts", 100_000);
    server.stop();
    recorder.await_log("asking again");
    let command = Command::new(PROGRAM);
    let server = Server::listening(&rtsp, &served, command, &[]);
    let recorded = recorder.ended().well();
    assert_eq!(recorded.stream(0)["ended"], "complete", "{:#}", recorded.summary);
    assert!(recorded.figure("sessions") >= 2);
    // Play continues at an entry point: something may be duplicated, nothing is missing.
    let written = std::fs::read(place.folder().join("0.ts")).expect("a file");
    let before = written.iter().zip(&clip).take_while(|(a, b)| a == b).count() / 188 * 188;
    let after = &written[before..];
    assert!(clip.ends_with(after), "{before} of {} bytes, then {}", clip.len(), after.len());
    assert!(before + after.len() >= clip.len());
    server.stop();
}
