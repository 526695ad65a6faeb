// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIGKILL at random moments: after an interrupted write into the cache, the next server streams
//! the right bytes.
//!
//! Sources: SECURITY.md, "the cache".

use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::harness::answer::Line;
use crate::harness::clip::{Clip, PAYLOAD_BYTES};
use crate::harness::rtsp::{Control, Player};
use crate::harness::{PROGRAM, Place, Server};
use crate::random::Random;
use crate::tries;

#[test]
fn a_server_killed_at_any_moment_is_followed_by_one_that_streams_the_right_bytes() {
    let place = Place::new();
    let long = Clip { bits_per_second: 20_000_000, ..Clip::of_seconds(31, 20) }.bytes();
    let short = Clip { milliseconds: 700, ..Clip::of_seconds(32, 1) }.bytes();
    place.put("long.ts", &long);
    place.put("short.ts", &short);
    let mut random = Random::seeded(3);
    for _ in 0..tries(KILLS) {
        let server = Server::at(&place, Command::new(PROGRAM), &[]);
        // A scan, a wire image and a download are in progress when it is killed.
        let mut download = Line::to(server.http);
        download.send("GET /long.ts HTTP/1.1\r\nHost: h\r\n\r\n");
        let player = Player::try_set_up(Control::to(server.rtsp), "long.ts");
        let mut player = player.unwrap_or_else(|refused| panic!("SETUP: {:?}", refused.1));
        player.play();
        thread::sleep(Duration::from_millis(random.below(120) as u64));
        // Dropped without `stop`: SIGKILL.
        drop(server);
    }
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    let mut player = Player::set_up(server.rtsp, "short.ts");
    let first = player.play();
    player.hear("the end", |heard| !heard.byes.is_empty());
    assert_eq!(player.heard().assert_gapless(&short, first).len(), short.len());
    let mut player = Player::set_up(server.rtsp, "long.ts");
    let first = player.play();
    player.hear("a part of it", |heard| heard.packets.len() > 500);
    // A slow client may have missed some of 1900 packets a second.
    for (number, packet) in player.heard().packets.iter().enumerate() {
        let sequence = u16::from_be_bytes([packet[2], packet[3]]);
        let place = usize::from(sequence.wrapping_sub(first));
        assert!(place >= number, "packet {number} has place {place}");
        let expected = long.chunks(PAYLOAD_BYTES).nth(place).expect("within the film");
        assert!(packet[RTP_HEADER_BYTES..] == *expected, "packet {number}, place {place}");
    }
}

const KILLS: usize = 12;
const RTP_HEADER_BYTES: usize = 12;
