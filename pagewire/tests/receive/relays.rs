// SPDX-License-Identifier: MIT OR Apache-2.0
//! Relayed datagrams arrive as they were sent, with files and without.

use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use crate::assert_file;
use crate::harness::clip::{Clip, PAYLOAD_BYTES};
use crate::harness::ports::free_port;
use crate::harness::recorder::{BURST, Recorder, Sender, files, url};
use crate::harness::{PROGRAM, Place, uninterrupted};

#[test]
fn streams_are_sent_on_as_they_came() {
    relay(false);
}

#[test]
fn streams_are_recorded_and_sent_on_as_they_came() {
    relay(true);
}

fn relay(is_recorded: bool) {
    let place = Place::new();
    let clip = Clip::of_seconds(1, 8).bytes();
    let target = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let to = target.local_addr().expect("it is bound").to_string();
    target.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
    let port = free_port();
    let pattern = place.folder().join("0.ts");
    let output = ["-o", pattern.to_str().expect("UTF-8")];
    let output = if is_recorded { &output[..] } else { &[] };
    let options = [&["--relay", &to], output].concat();
    let recorder = Recorder::by(Command::new(PROGRAM), &place, &[url(port)], &options);
    let mut sender = Sender::rtp(port, 7, 65_500);
    let sent: Vec<_> = clip.chunks(PAYLOAD_BYTES).map(|p| sender.datagram(p)).collect();
    let mut buffer = vec![0; 65_536];
    // At most as many packets are in transit as a socket holds.
    for (index, burst) in sent.chunks(BURST).enumerate() {
        burst.iter().for_each(|datagram| sender.send_raw(datagram));
        for (number, datagram) in burst.iter().enumerate() {
            let bytes =
                uninterrupted(|| target.recv(&mut buffer)).expect("a datagram, not in a minute");
            assert!(buffer[..bytes] == **datagram, "datagram {}", index * BURST + number);
        }
    }
    let recorded = recorder.stop().well();
    assert_eq!(recorded.figure("packets"), sent.len() as u64, "{:#}", recorded.summary);
    assert_eq!((recorded.figure("lost"), recorded.figure("dropped_by_relay")), (0, 0));
    assert_eq!(recorded.stream(0)["ssrc"], "00000007");
    assert_eq!(recorded.figure("payload_bytes"), clip.len() as u64);
    if is_recorded {
        assert_file(&pattern, &clip);
    } else {
        assert!(files(&place).is_empty());
        let path = recorded.summary["path"].as_str().expect("a name").to_owned();
        assert!(path.starts_with("relay ("), "{path}");
    }
}
