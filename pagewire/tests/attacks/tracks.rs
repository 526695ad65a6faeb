// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attacks on recordings of tracks from a session description: strangers who copy the SSRC, forged
//! BYE, and low-rate streams that start first.
//!
//! Tests are skipped where this process was delayed, like those of [`crate::recording`].
//!
//! Sources: RFC 3550 §8.2 (collisions); RFC 7587 (Opus). Does not forge addresses; the strangers
//! are other ports of this machine.

use std::fs;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use crate::harness::Place;
use crate::harness::ports::free_port;
use crate::harness::recorder::Recorder;
use crate::recording::{Sends, assert_refused, bye};

/// A frame of Opus: its first byte, then a recognisable text.
const GOOD: &[u8] = b"\xfcGOODGOODGOODGOOD";
const EVIL: &[u8] = b"\xfcEVILEVILEVILEVIL";
const SSRC: u32 = 7;
const STRANGER: u32 = 8;
/// Interval between frames: shorter than their 20 ms of sound.
const FRAME: Duration = Duration::from_millis(8);

/// Starts a recorder of one track of Opus on this port.
fn recorder(place: &Place, port: u16) -> Recorder {
    let text = format!(
        "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=encoder\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
         m=audio {port} RTP/AVP 97\r\na=rtpmap:97 opus/48000/2\r\n"
    );
    let path = place.top().join("encoder.sdp");
    fs::write(&path, text).expect("room for a file");
    Recorder::start(place, &[], &["--sdp", path.to_str().expect("UTF-8")])
}

fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").expect("a free port")
}

fn packet(number: u16, ssrc: u32, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x80, 97];
    packet.extend(number.to_be_bytes());
    packet.extend((960 * u32::from(number)).to_be_bytes());
    packet.extend(ssrc.to_be_bytes());
    packet.extend(payload);
    packet
}

/// Calls `send` for each frame, one after the other, until `is_over` is true for its number.
fn paced(is_over: impl Fn(u16) -> bool, mut send: impl FnMut(u16)) -> Sends {
    let mut sends = Sends::begin();
    for number in (0..).take_while(|number| !is_over(*number)) {
        send(number);
        sends.mark();
        std::thread::sleep(FRAME);
    }
    sends
}

/// Returns the frames of the encoder and of the stranger in the recording.
fn recorded(place: &Place) -> (usize, usize) {
    let written = fs::read(place.folder().join("0.ts")).unwrap_or_default();
    let count = |frame: &[u8]| written.windows(frame.len()).filter(|bytes| *bytes == frame).count();
    (count(GOOD), count(EVIL))
}

#[test]
fn a_stranger_with_the_ssrc_of_a_track_fills_no_recording() {
    let test = "tracks::a_stranger_with_the_ssrc_of_a_track_fills_no_recording";
    let (place, port) = (Place::new(), free_port());
    let (recorder, to) = (recorder(&place, port), ("127.0.0.1", port));
    let (sender, stranger) = (socket(), socket());
    let sends = paced(
        |number| number == 150,
        |number| {
            sender.send_to(&packet(number, SSRC, GOOD), to).expect("room");
            // Ahead of the stream, with the next sequence number.
            stranger.send_to(&packet(number + 1, SSRC, EVIL), to).expect("room");
        },
    );
    let ended = recorder.stop().well();
    if sends.were_held_up(test, &ended) {
        return;
    }
    assert_eq!(recorded(&place), (150, 0), "{} {:#}", ended.log, ended.summary);
    assert_eq!(ended.stream(0)["refused"]["sender"], 150, "{:#}", ended.summary);
    assert_refused(&ended, &stranger, "the SSRC of the stream from another address");
}

/// RTCP is accepted from any host where a track is known from a description alone, so that any
/// receiver of it can say BYE for it.
#[test]
fn a_forged_bye_ends_no_recording_of_tracks() {
    let test = "tracks::a_forged_bye_ends_no_recording_of_tracks";
    let (place, port) = (Place::new(), free_port());
    let (recorder, to) = (recorder(&place, port), ("127.0.0.1", port));
    let (sender, forger) = (socket(), socket());
    let sends = paced(
        |number| number == 250,
        |number| {
            sender.send_to(&packet(number, SSRC, GOOD), to).expect("room");
            if number.is_multiple_of(5) && number > 2 {
                // The port may not be open yet.
                let _ = forger.send_to(&bye(SSRC), ("127.0.0.1", port + 1));
            }
        },
    );
    let ended = recorder.stop().well();
    if sends.were_held_up(test, &ended) {
        return;
    }
    assert_eq!(recorded(&place), (250, 0), "{} {:#}", ended.log, ended.summary);
    assert!(ended.figure("byes_refused") > 0, "{:#}", ended.summary);
    assert_eq!(ended.figure("sessions"), 1, "{:#}", ended.summary);
    assert_eq!(ended.stream(0)["has_sent_bye"], false);
}

/// The recorder follows the track after a second or two of measuring, or later on a busy machine.
#[test]
fn a_trickle_does_not_hold_the_port_of_a_track() {
    let (place, port) = (Place::new(), free_port());
    let recorder = recorder(&place, port);
    let deadline = Instant::now() + WIN_WAIT;
    let is_won = |number: u16| {
        assert!(Instant::now() < deadline, "no frame of the encoder after {number}");
        number.is_multiple_of(25) && recorded(&place).0 >= 25
    };
    beside_a_trickle(port, is_won);
    recorder.stop().well();
}

/// Sends a track beside a low-rate stream that starts first and is never silent for a second.
fn beside_a_trickle(port: u16, is_over: impl Fn(u16) -> bool) -> Sends {
    let to = ("127.0.0.1", port);
    let (sender, trickle) = (socket(), socket());
    trickle.send_to(&packet(0, STRANGER, EVIL), to).expect("room");
    paced(is_over, |number| {
        if number.is_multiple_of(20) {
            let packet = packet(number / 20 + 1, STRANGER, EVIL);
            trickle.send_to(&packet, to).expect("room");
        }
        sender.send_to(&packet(number, SSRC, GOOD), to).expect("room");
    })
}

const WIN_WAIT: Duration = Duration::from_secs(60);

mod timed {
    use super::*;

    #[test]
    fn a_trickle_does_not_hold_the_port_of_a_track_for_longer_than_measuring_takes() {
        let test = "tracks::timed::a_trickle_does_not_hold_the_port_of_a_track";
        let (place, port) = (Place::new(), free_port());
        let recorder = recorder(&place, port);
        let sends = beside_a_trickle(port, |number| number == 400);
        let ended = recorder.stop().well();
        if sends.were_held_up(test, &ended) {
            return;
        }
        let log = ended.log;
        let (good, evil) = recorded(&place);
        assert!(good > 200 && evil < 20, "{good} frames, and {evil} of the trickle: {log}");
    }
}
