// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attacks on a recording: strangers who send to its port and know the SSRC of the stream, forged
//! BYE, low-rate streams that keep the recorder on another sender, and floods.
//!
//! After 250 ms of silence a recorder follows the next sender that it receives: a test is skipped
//! where this process was delayed for so long.
//!
//! Sources: RFC 3550 §6.6 (BYE), §8.2 (collisions). Does not forge addresses; the strangers are
//! other ports of this machine.

use std::fs;
use std::net::UdpSocket;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::harness::clip::{Clip, PAYLOAD_BYTES};
use crate::harness::ports::free_port;
use crate::harness::recorder::{Recorded, Recorder, Sender, url};
use crate::harness::rtsp::Player;
use crate::harness::{PROGRAM, Place, Server, uninterrupted};

const SSRC: u32 = 7;
/// A little less than the silence after which another sender may be followed.
const SILENCE: Duration = Duration::from_millis(200);

/// Times at which a test sent packets of its stream.
pub(crate) struct Sends {
    last: Instant,
    longest: Duration,
}

impl Sends {
    pub(crate) fn begin() -> Sends {
        Sends { last: Instant::now(), longest: Duration::ZERO }
    }

    /// Records that a packet of the stream, and the packets of strangers behind it, were sent.
    pub(crate) fn mark(&mut self) {
        self.longest = self.longest.max(self.last.elapsed());
        self.last = Instant::now();
    }

    /// True, with the reason printed, where the machine made the stream silent, or kept the
    /// recorder from its core for longer than the socket's buffer lasts.
    pub(crate) fn were_held_up(&self, test: &str, recorded: &Recorded) -> bool {
        let dropped = recorded.stream(0)["dropped_by_kernel"].as_u64().unwrap_or(0);
        let is_held_up = self.longest >= SILENCE || dropped > 0;
        if is_held_up {
            let longest = self.longest;
            eprintln!(
                "skip: busy machine: {test}: the sender stood still for {longest:?}, {dropped} \
                 packets dropped at the recorder's socket"
            );
        }
        is_held_up
    }
}

/// Null packets, which no clip contains.
const JUNK: [u8; PAYLOAD_BYTES] = {
    let mut junk = [0xff; PAYLOAD_BYTES];
    let mut at = 0;
    while at < PAYLOAD_BYTES {
        (junk[at], junk[at + 1], junk[at + 3]) = (0x47, 0x1f, 0x10);
        at += 188;
    }
    junk
};

fn clip() -> Vec<u8> {
    Clip { bits_per_second: 5_000_000, ..Clip::of_seconds(1, 3) }.bytes()
}

/// Returns an empty receiver report and BYE, as a compound packet (RFC 3550 §6.1).
pub(crate) fn bye(ssrc: u32) -> Vec<u8> {
    let mut packet = vec![0x80, 201, 0, 1, 0, 0, 0, 9, 0x81, 203, 0, 1];
    packet.extend(ssrc.to_be_bytes());
    packet
}

/// Asserts that a sender is named among the refused ones, with the reason.
#[track_caller]
pub(crate) fn assert_refused(recorded: &Recorded, stranger: &UdpSocket, why: &str) {
    assert_named(recorded, stranger, why);
    let address = stranger.local_addr().expect("it is bound").to_string();
    assert!(recorded.log.contains(&address), "the log does not name {address}: {}", recorded.log);
}

/// Asserts that the summary names datagrams of this sender as refused, with the reason.
#[track_caller]
fn assert_named(recorded: &Recorded, stranger: &UdpSocket, why: &str) {
    let address = stranger.local_addr().expect("it is bound").to_string();
    let refused = recorded.stream(0)["refused_senders"].as_array().expect("a list");
    let found = refused.iter().find(|sender| sender["address"] == address.as_str());
    let reason = found.and_then(|sender| sender["why"].as_str());
    assert!(reason.is_some_and(|reason| reason.contains(why)), "{address}: {:#}", recorded.summary);
}

#[track_caller]
fn assert_recorded(place: &Place, clip: &[u8]) {
    let written = fs::read(place.folder().join("0.ts")).expect("a file");
    assert!(written == clip, "{} of {} bytes, or others", written.len(), clip.len());
}

#[test]
fn a_forged_bye_ends_no_recording() {
    let test = "recording::a_forged_bye_ends_no_recording";
    let (place, clip, port) = (Place::new(), clip(), free_port());
    let recorder = Recorder::start(&place, &[url(port)], &[]);
    let mut sender = Sender::rtp(port, SSRC, 100);
    let forger = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let mut stranger = Sender::rtp(port, SSRC + 1, 50);
    let mut sends = Sends::begin();
    for (number, payload) in clip.chunks(PAYLOAD_BYTES).enumerate() {
        sender.send(payload);
        if number % 5 == 4 {
            // The port may not be open yet, or may never open.
            let _ = forger.send_to(&bye(SSRC), ("127.0.0.1", port + 1));
            stranger.send(&JUNK);
        }
        sends.mark();
        sender.await_room();
    }
    let recorded = recorder.stop().well();
    if sends.were_held_up(test, &recorded) {
        return;
    }
    assert_recorded(&place, &clip);
    assert!(recorded.figure("byes_refused") > 0, "{:#}", recorded.summary);
    assert_eq!(recorded.stream(0)["has_sent_bye"], false);
    assert_eq!(recorded.figure("sources_followed"), 1);
    assert_refused(&recorded, &forger, "BYE");
}

/// RTSP names the server's host and its ports: other ports of the same host are strangers.
#[test]
fn a_forged_bye_and_a_stranger_touch_no_recording_by_rtsp() {
    let (place, served) = (Place::new(), Place::new());
    let clip = Clip { bits_per_second: 2_000_000, ..Clip::of_seconds(1, 2) }.bytes();
    served.put("film.ts", &clip);
    let server = Server::at(&served, Command::new(PROGRAM), &[]);
    server.await_stream("film.ts");
    // Every player of a file learns its SSRC.
    let player = Player::set_up(server.rtsp, "film.ts");
    let recorder = Recorder::start(&place, &[server.rtsp_url("film.ts")], &[]);
    recorder.await_bytes("0.ts", 1);
    let ports = udp_ports(recorder.pid());
    assert!(ports.len() >= 2, "one for RTP, one for RTCP: {ports:?}");
    let mut strangers: Vec<_> =
        ports.iter().map(|port| Sender::rtp(*port, player.ssrc, 100)).collect();
    for _ in 0..400 {
        for stranger in &mut strangers {
            stranger.await_room();
            // A port that was closed meanwhile causes an error at the next send.
            let _ = stranger.socket.send_to(&bye(player.ssrc), stranger.to);
            let junk = stranger.datagram(&JUNK);
            let _ = stranger.socket.send_to(&junk, stranger.to);
        }
        sleep(Duration::from_millis(2));
    }
    let recorded = recorder.ended().well();
    assert_recorded(&place, &clip);
    assert_eq!(recorded.stream(0)["ended"], "complete", "{:#}", recorded.summary);
    assert!(recorded.figure("byes_refused") > 0, "{:#}", recorded.summary);
    let counts = ["sources_followed", "sessions"].map(|name| recorded.figure(name));
    assert_eq!(counts, [1, 1], "{:#}", recorded.summary);
}

/// Returns the UDP ports that a process has open.
fn udp_ports(pid: u32) -> Vec<u16> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
    let links = links.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let own: Vec<_> = links.map(|link| link.to_string_lossy().into_owned()).collect();
    let table = fs::read_to_string(format!("/proc/{pid}/net/udp")).expect("it runs");
    // proc_net(5): local address and port in hexadecimal, the inode in the tenth field.
    let ports = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (_, port) = fields[1].split_once(':')?;
        let is_own = own.contains(&format!("socket:[{}]", fields[9]));
        is_own.then(|| u16::from_str_radix(port, 16).expect("hexadecimal"))
    });
    ports.collect()
}

#[test]
fn a_stranger_with_the_ssrc_of_a_stream_fills_no_recording() {
    let test = "recording::a_stranger_with_the_ssrc_of_a_stream_fills_no_recording";
    let (place, clip, port) = (Place::new(), clip(), free_port());
    let recorder = Recorder::start(&place, &[url(port)], &[]);
    let mut sender = Sender::rtp(port, SSRC, 100);
    let mut stranger = Sender::rtp(port, SSRC, 101);
    let mut sends = Sends::begin();
    for (number, payload) in clip.chunks(PAYLOAD_BYTES).enumerate() {
        sender.send(payload);
        if number > 2 {
            // Ahead of the stream, with the next sequence numbers.
            stranger.rtp = sender.rtp;
            stranger.send(&JUNK);
        }
        sends.mark();
        sender.await_room();
    }
    let recorded = recorder.stop().well();
    if sends.were_held_up(test, &recorded) {
        return;
    }
    assert_recorded(&place, &clip);
    let counts = ["lost", "duplicates", "sources_followed"].map(|name| recorded.figure(name));
    assert_eq!(counts, [0, 0, 1], "{:#}", recorded.summary);
    assert_refused(&recorded, &stranger.socket, "SSRC");
}

/// The recorder follows the stream after a second or two of measuring, or later on a busy machine.
#[test]
fn a_trickle_does_not_hold_the_place_of_a_stream() {
    let (place, port) = (Place::new(), free_port());
    let recorder = Recorder::start(&place, &[url(port)], &[]);
    let deadline = Instant::now() + RELAY_WAIT;
    let path = place.folder().join("0.ts");
    let is_won = |number: usize| {
        assert!(Instant::now() < deadline, "nothing of the stream after {number} packets");
        if !number.is_multiple_of(50) {
            return false;
        }
        let written = fs::read(&path).unwrap_or_default();
        let of_stream = written.chunks_exact(188).filter(|packet| !JUNK.starts_with(packet));
        of_stream.count() > 7 * 200
    };
    beside_a_trickle(port, &clip(), is_won);
    let recorded = recorder.stop().well();
    assert!(recorded.figure("sources_followed") >= 2, "{:#}", recorded.summary);
}

/// Sends a clip repeatedly, beside a low-rate stream that starts first and is never silent for
/// long, until `is_over` is true for the number of packets.
fn beside_a_trickle(port: u16, clip: &[u8], is_over: impl Fn(usize) -> bool) -> (Sends, Sender) {
    let mut trickle = Sender::rtp(port, SSRC, 5000);
    for _ in 0..150 {
        trickle.send(&JUNK);
    }
    let mut sender = Sender::rtp(port, SSRC, 100);
    let mut sends = Sends::begin();
    for (number, payload) in clip.chunks(PAYLOAD_BYTES).cycle().enumerate() {
        if is_over(number) {
            break;
        }
        if number % 50 == 0 {
            trickle.send(&JUNK);
        }
        sender.send(payload);
        sends.mark();
        sender.await_room();
        sleep(Duration::from_millis(2));
    }
    (sends, trickle)
}

/// The next packet of the stream is sent when the previous one has left the relay, so at most one
/// burst of the flood waits at the socket of a slow recorder.
#[test]
fn a_flood_of_junk_costs_a_recording_nothing() {
    let (place, port) = (Place::new(), free_port());
    let target = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    target.set_read_timeout(Some(RELAY_WAIT)).expect("a time limit");
    let to = target.local_addr().expect("it is bound").to_string();
    let clip: Vec<u8> = clip().into_iter().take(300 * PAYLOAD_BYTES).collect();
    let recorder = Recorder::start(&place, &[url(port)], &["--relay", &to]);
    let mut sender = Sender::rtp(port, SSRC, 100);
    let flood = Sender::bare(port);
    let mut junk = 0;
    for payload in clip.chunks(PAYLOAD_BYTES) {
        let packet = sender.datagram(payload);
        for _ in 0..80 {
            flood.send_raw(&[0x55; 20]);
            junk += 1;
        }
        sender.send_raw(&packet);
        let mut relayed = [0; 2048];
        // Other processes send to a client of another test that had this port before.
        loop {
            let bytes = uninterrupted(|| target.recv(&mut relayed));
            let bytes = bytes.expect("the packet comes out of the relay");
            if relayed[..bytes] == packet {
                break;
            }
        }
    }
    let recorded = recorder.stop().well();
    assert_recorded(&place, &clip);
    assert_eq!(recorded.figure("dropped_by_kernel"), 0, "{:#}", recorded.summary);
    assert_eq!(recorded.figure("malformed"), junk);
    assert_refused(&recorded, &flood.socket, "neither RTP");
}

#[test]
fn a_stranger_is_not_relayed() {
    for is_recorded in [false, true] {
        let (place, port) = (Place::new(), free_port());
        let target = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        target.set_read_timeout(Some(RELAY_WAIT)).expect("a time limit");
        let to = target.local_addr().expect("it is bound").to_string();
        let pattern = place.folder().join("0.ts");
        let output = ["-o", pattern.to_str().expect("UTF-8")];
        let output: &[&str] = if is_recorded { &output } else { &[] };
        let options = [&["--relay", &to], output].concat();
        let recorder = Recorder::by(Command::new(PROGRAM), &place, &[url(port)], &options);
        let mut sender = Sender::rtp(port, SSRC, 100);
        let mut stranger = Sender::rtp(port, SSRC, 100);
        let mut buffer = [0; 2048];
        let mut relay = None;
        for number in 0..200_u32 {
            let sent = sender.datagram(&[number as u8; 188]);
            let sent_at = Instant::now();
            sender.send_raw(&sent);
            if number > 2 {
                stranger.send(&JUNK);
            }
            // This thread was delayed: the recorder saw a silent stream.
            let is_paused = sent_at.elapsed() >= SILENCE;
            // Packets relayed before the next one is sent belong to the stream only.
            let (bytes, from) = loop {
                let datagram = uninterrupted(|| target.recv_from(&mut buffer));
                let (bytes, from) = datagram.expect("a datagram in time");
                // Other processes send to a client of another test that had this port before.
                if relay.is_none_or(|relay| relay == from) {
                    break (bytes, from);
                }
            };
            relay = Some(from);
            assert!(buffer[..bytes] == sent, "recorded: {is_recorded}, datagram {number}");
            if is_paused {
                eprintln!(
                    "skip: busy machine: recording::a_stranger_is_not_relayed: the sender stood \
                     still at datagram {number}"
                );
                return;
            }
        }
        let recorded = recorder.stop();
        assert_refused(&recorded, &stranger.socket, "SSRC");
        target.set_nonblocking(true).expect("fcntl");
        while let Ok((bytes, from)) = target.recv_from(&mut buffer) {
            let log = &recorded.log;
            assert_ne!(Some(from), relay, "recorded: {is_recorded}, {bytes} bytes more: {log}");
        }
    }
}

const RELAY_WAIT: Duration = Duration::from_secs(60);

/// A stream that is followed in time, and a flood at a fixed rate.
mod timed {
    use super::*;

    #[test]
    fn a_trickle_does_not_hold_the_place_of_a_stream_for_longer_than_measuring_takes() {
        let test = "recording::timed::a_trickle_does_not_hold_the_place_of_a_stream";
        let (place, port) = (Place::new(), free_port());
        let clip = Clip { bits_per_second: 5_000_000, ..Clip::of_seconds(1, 4) }.bytes();
        let recorder = Recorder::start(&place, &[url(port)], &[]);
        let packets = clip.len().div_ceil(PAYLOAD_BYTES);
        let (sends, trickle) = beside_a_trickle(port, &clip, |number| number == packets);
        let recorded = recorder.stop().well();
        if sends.were_held_up(test, &recorded) {
            return;
        }
        let written = fs::read(place.folder().join("0.ts")).expect("a file");
        let won = &clip[packets * 3 / 4 * PAYLOAD_BYTES..];
        assert!(written.ends_with(won), "{} bytes: {:#}", written.len(), recorded.summary);
        assert_eq!(recorded.figure("sources_followed"), 2, "{:#}", recorded.summary);
        // The log has one line per minute, and that line is about the stream, from before it was
        // followed.
        assert_named(&recorded, &trickle.socket, "SSRC");
    }

    #[test]
    fn a_flood_of_junk_in_real_time_costs_a_recording_nothing() {
        let (place, port) = (Place::new(), free_port());
        let rmem_max = fs::read_to_string("/proc/sys/net/core/rmem_max").expect("a limit");
        let rmem_max: u64 = rmem_max.trim().parse().expect("a number");
        if !rustix::process::geteuid().is_root() && rmem_max < 8 << 20 {
            eprintln!("skip: net.core.rmem_max is {rmem_max}: a recorder may lose some of a flood");
            return;
        }
        let clip: Vec<u8> = clip().into_iter().take(750 * PAYLOAD_BYTES).collect();
        let recorder = Recorder::start(&place, &[url(port)], &[]);
        let mut sender = Sender::rtp(port, SSRC, 100);
        let flood = Sender::bare(port);
        let mut junk = 0;
        for payload in clip.chunks(PAYLOAD_BYTES) {
            sender.send(payload);
            // 40,000 a second, and 4.9 Mb/s of the stream.
            for _ in 0..2 {
                for _ in 0..40 {
                    flood.send_raw(&[0x55; 20]);
                    junk += 1;
                }
                sleep(Duration::from_millis(1));
            }
        }
        let recorded = recorder.stop().well();
        assert_recorded(&place, &clip);
        assert_eq!(recorded.figure("dropped_by_kernel"), 0, "{:#}", recorded.summary);
        assert_eq!(recorded.figure("malformed"), junk);
        assert_refused(&recorded, &flood.socket, "neither RTP");
    }
}
