// SPDX-License-Identifier: MIT OR Apache-2.0
//! Seeks in a transport stream that has its parameter sets only at its beginning: each play begins
//! with them, and no sequence number is missing. A track that is added in a pause.
//!
//! Sources: RFC 2326 §10.5, §12.33; ISO/IEC 14496-10 §7.4.1.2.1 (sets before the pictures).

use std::fs;
use std::io::Write;

use crate::harness::clip::{pictures, with_sets_once};
use crate::harness::film::short_film;
use crate::harness::rtsp::{Player, sequence_of};
use crate::interleaved::Reader;
use crate::serve;

/// Asserts that these RTP packets have no gap, and that the plays that begin with these sequence
/// numbers begin with tables, then sets, then a picture.
#[track_caller]
fn assert_led(packets: &[Vec<u8>], firsts: &[u16]) {
    let sequence = |packet: &Vec<u8>| u16::from_be_bytes([packet[2], packet[3]]);
    let begin = sequence(&packets[0]);
    assert_eq!(begin, firsts[0]);
    for (number, packet) in (0..).zip(packets) {
        assert_eq!(sequence(packet), begin.wrapping_add(number), "of {}", packets.len());
    }
    for first in firsts {
        let at = usize::from(first.wrapping_sub(begin));
        let stream: Vec<u8> = packets[at..at + 20].iter().flat_map(|p| p[12..].to_vec()).collect();
        assert_eq!(stream[..3], [0x47, 0x40, 0], "a PAT");
        let video = pictures(&stream);
        let place = |nal| video.windows(4).position(|four| four == [0, 0, 1, nal]);
        let (set, picture_set, slice) = (place(0x67), place(0x68), place(0x65));
        assert!(set.is_some() && set < picture_set && picture_set < slice, "play at {at}");
        let is_behind = place(0x41).is_none_or(|predicted| Some(predicted) > slice);
        assert!(is_behind, "nothing of the picture before");
    }
}

#[test]
fn a_seek_over_tcp_and_a_queued_play_begin_with_the_parameter_sets() {
    let server = serve(&[("a.ts", &with_sets_once())], &[]);
    let mut reader = Reader::to(&server);
    let session = reader.set_up("a.ts", "0-1");
    let play = |reader: &mut Reader, range: &str| {
        reader.request("PLAY", "a.ts", &[&session, &format!("Range: npt={range}"), "Speed: 4"])
    };
    let first = |reply: String| {
        assert!(reply.starts_with("RTSP/1.0 200 "), "{reply}");
        sequence_of(reply.lines().find_map(|line| line.strip_prefix("RTP-Info: ")).unwrap())
    };
    let request = play(&mut reader, "3-");
    reader.stream.write_all(request.as_bytes()).unwrap();
    let mut firsts = vec![first(reader.reply())];
    let mut packets = Vec::new();
    while packets.len() < 30 {
        let (channel, data) = reader.frame();
        packets.extend(Some(data).filter(|_| channel == 0));
    }
    // At once, so that the first range is still playing when the next is requested.
    let both = play(&mut reader, "5.2-12") + &play(&mut reader, "13-");
    reader.stream.write_all(both.as_bytes()).unwrap();
    firsts.extend([first(reader.reply()), first(reader.reply())]);
    packets.extend(reader.packets_to_bye(0));
    assert_led(&packets, &firsts);
}

/// Seeks that follow so soon that nothing of the previous play was sent, also with a PAUSE between
/// them, and pictures at another rate in their place.
#[test]
fn seeks_that_replace_each_other_leave_no_gap() {
    let server = serve(&[("a.ts", &with_sets_once())], &[]);
    let mut reader = Reader::to(&server);
    let session = reader.set_up("a.ts", "0-1");
    let ask = |reader: &mut Reader, method: &str, headers: &[&str]| {
        reader.request(method, "a.ts", &[&[&session[..]], headers].concat())
    };
    let mut requests = ask(&mut reader, "PLAY", &["Range: npt=3-"]);
    for at in 0..20 {
        requests += &ask(&mut reader, "PLAY", &[&format!("Range: npt={}-", 2 + at % 9)]);
        if at % 3 == 0 {
            requests += &ask(&mut reader, "PAUSE", &[]);
            requests += &ask(&mut reader, "PLAY", &[]);
        }
        if at % 7 == 6 {
            requests += &ask(&mut reader, "PLAY", &["Scale: 4"]);
        }
    }
    requests += &ask(&mut reader, "PLAY", &["Range: npt=13-", "Speed: 4"]);
    reader.stream.write_all(requests.as_bytes()).unwrap();
    let replies = requests.matches("CSeq").count();
    let mut last = 0;
    for _ in 0..replies {
        let reply = reader.reply();
        assert!(reply.starts_with("RTSP/1.0 200 "), "{reply}");
        last =
            reply.lines().find_map(|line| line.strip_prefix("RTP-Info: ")).map_or(0, sequence_of);
    }
    let packets = reader.packets_to_bye(0);
    let sequence = |packet: &Vec<u8>| u16::from_be_bytes([packet[2], packet[3]]);
    for pair in packets.windows(2) {
        assert_eq!(sequence(&pair[1]), sequence(&pair[0]).wrapping_add(1), "of {}", packets.len());
    }
    let at = packets.iter().position(|packet| sequence(packet) == last).expect("it came");
    assert_led(&packets[at..], &[last]);
}

#[test]
fn a_seek_over_udp_begins_with_the_parameter_sets() {
    let server = serve(&[("a.ts", &with_sets_once())], &[]);
    let mut player = Player::set_up(server.rtsp, "a.ts");
    let firsts = ["npt=3-", "npt=13-"].map(|range| {
        let answer = player.command("PLAY", &[&format!("Range: {range}"), "Speed: 4"]);
        player.hear("media", |heard| heard.packets.len() >= 30);
        sequence_of(answer.header("RTP-Info").expect("PLAY is answered with one"))
    });
    player.hear("the end", |heard| !heard.byes.is_empty());
    assert_led(&player.heard().packets, &firsts);
}

/// It has no packet to continue with, so all tracks begin at the place of the pause.
#[test]
fn a_track_that_is_added_in_a_pause_plays_with_the_others() {
    let Some(film) = short_film("a_track_that_is_added_in_a_pause", 1, 12) else { return };
    let server = serve(&[("film.ts", &fs::read(film).expect("it was made"))], &[]);
    let mut reader = Reader::to(&server);
    let session = reader.set_up("film.ts?es/track0", "0-1");
    let ask = |reader: &mut Reader, method: &str, name: &str, headers: &[&str]| {
        let reply = reader.ask(method, name, &[&[&session[..]], headers].concat());
        assert!(reply.starts_with("RTSP/1.0 200 "), "{method} {name}: {reply}");
        reply
    };
    ask(&mut reader, "PLAY", "film.ts?es", &["Range: npt=4-"]);
    let mut media = 0;
    while media < 20 {
        media += u32::from(reader.frame().0 == 0);
    }
    ask(&mut reader, "PAUSE", "film.ts?es", &[]);
    let transport = "Transport: RTP/AVP/TCP;unicast;interleaved=2-3";
    ask(&mut reader, "SETUP", "film.ts?es/track1", &[transport]);
    let reply = ask(&mut reader, "PLAY", "film.ts?es", &[]);
    let info = reply.lines().find_map(|line| line.strip_prefix("RTP-Info: ")).expect("it plays");
    let of_sound = info.split(',').find(|info| info.contains("/track1")).expect("it is sent");
    let announced: u32 = of_sound.split("rtptime=").nth(1).unwrap().parse().expect("a number");
    let first = loop {
        let (channel, packet) = reader.frame();
        if channel == 2 {
            break u32::from_be_bytes(packet[4..8].try_into().unwrap());
        }
    };
    // Sound begins with the first frame at or behind that time: within a tenth of a second.
    let behind = first.wrapping_sub(announced);
    assert!(behind < 4800, "announced {announced}, first {first}: {reply}");
}
