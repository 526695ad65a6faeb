// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire load` of a file with tracks: all of them are set up, counted, and reassembled.
//!
//! A relay between client and server drops packets, because a server drops none.
//!
//! `timed` asserts the number of frames that arrive in a time, and that seeks and pauses harm no
//! session.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use serde_json::{Value, json};

use crate::harness::film::{film, made};
use crate::harness::watchdog;
use crate::harness::{PROGRAM, Place, Server};
use crate::{assert_sent, events, load, number, play};

/// Starts a server of the film as MP4: pictures with B-frames, and sound. Returns `None`, with the
/// reason printed for `test`, where there is no ffmpeg.
fn serve(test: &str) -> Option<Server> {
    let film = film(test)?;
    let place = Place::new();
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-i"]).arg(&film.path);
    command.args(["-c", "copy", "-movflags", "faststart"]);
    let path = made(&mut command, "film.mp4").expect("ffmpeg made the film");
    place.put("film.mp4", &std::fs::read(&path).expect("it was made"));
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    server.await_stream("film.mp4");
    Some(server)
}

fn result(outcome: &watchdog::Outcome) -> Value {
    events(outcome).pop().unwrap_or_else(|| panic!("no result: {outcome:?}"))
}

/// Returns the two tracks of the verified sessions.
fn tracks(result: &Value) -> [Value; 2] {
    let tracks = result["verified"]["tracks"].as_array().expect("a list of tracks");
    tracks.clone().try_into().unwrap_or_else(|_| panic!("two tracks: {result:#}"))
}

#[test]
fn all_tracks_over_udp_are_verified_and_counted_to_the_packet() {
    assert_all_tracks("all_tracks_over_udp_are_verified_and_counted_to_the_packet", "udp", "2");
}

#[test]
fn all_tracks_over_tcp_are_verified_and_counted_to_the_packet() {
    assert_all_tracks("all_tracks_over_tcp_are_verified_and_counted_to_the_packet", "tcp", "2");
}

#[test]
fn all_tracks_over_http_are_verified_and_counted_to_the_packet() {
    assert_all_tracks("all_tracks_over_http_are_verified_and_counted_to_the_packet", "http", "2");
}

/// Plays six sessions, of which three are verified; returns the frames of picture and sound of
/// these.
fn assert_all_tracks(test: &str, transport: &str, seconds: &str) -> Option<[u64; 2]> {
    let server = serve(test)?;
    let options = ["--sessions", "6", "--sample", "2", "--seconds", seconds, "--json", "-"];
    let options = [&options[..], &["--transport", transport]].concat();
    let outcome = play(&server.rtsp_url("film.mp4"), &options)?;
    let result = result(&outcome);
    assert!(outcome.status.success(), "{result:#}");
    let (verified, counted) = (&result["verified"], &result["counted"]);
    assert_eq!((&verified["sessions"], &verified["timely"]), (&3.into(), &3.into()));
    let none = ["lost", "duplicates", "reordered", "unexpected_source", "bad_payload_size"];
    for figure in none {
        assert_eq!(verified[figure], 0, "{figure} of {result:#}");
    }
    let [picture, sound] = tracks(&result);
    assert_eq!(picture["format"], "video H264/90000", "{result:#}");
    assert_eq!(sound["format"], "audio mpeg4-generic/48000", "{result:#}");
    let units = [&picture, &sound].map(|track| {
        assert_eq!((&track["broken_units"], &track["malformed_packets"]), (&0.into(), &0.into()));
        number(&track["units"])
    });
    assert!(units.iter().all(|&units| units > 0), "{result:#}");
    assert_eq!((&counted["sessions"], &counted["accounted"]), (&3.into(), &3.into()));
    assert_eq!(counted["lost"], 0, "{result:#}");
    let of_tracks = number(&picture["packets"]) + number(&sound["packets"]);
    assert_eq!(of_tracks, number(&verified["packets_in_all"]), "{result:#}");
    assert_sent(&server, of_tracks + number(&counted["packets_in_all"]));
    assert_eq!(server.index()["server"]["sessions"], 0, "all have taken leave");
    server.stop();
    Some(units)
}

#[test]
fn seeks_and_pauses_break_no_frame() {
    let test = "seeks_and_pauses_break_no_frame";
    let Some(result) = seek_and_pause(test, ["2.5", "[0.3, 0.6]", "0.3", "[0.2, 0.3]", "0.1"])
    else {
        return;
    };
    assert_seeks_and_pauses(&result, 1, 1);
}

/// Plays a scenario with these times: its length, of seeks and visits, until a pause, of a pause,
/// of an absence.
fn seek_and_pause(test: &str, times: [&str; 5]) -> Option<Value> {
    let server = serve(test)?;
    let scenario = server.place.top().join("scenario.toml");
    let [length, time, pause_after, pause, away] = times;
    let text = format!(
        "seconds = {length}\n\
         [[group]]\nbehaviour = \"seek\"\nevery_s = {time}\nshare = 2\n\
         [[group]]\nname = \"seek-tcp\"\ntransport = \"tcp\"\nbehaviour = \"seek\"\n\
         every_s = {time}\n\
         [[group]]\nbehaviour = \"pause\"\nevery_s = {pause_after}\npause_s = {pause}\nshare = 2\n\
         [[group]]\nbehaviour = \"vanish\"\nstay_s = {time}\naway_s = {away}\n"
    );
    std::fs::write(&scenario, text).expect("room for a file");
    let scenario = scenario.to_str().expect("a plain path");
    let options = ["--sessions", "12", "--sample", "1", "--scenario", scenario, "--json", "-"];
    let result = result(&play(&server.rtsp_url("film.mp4"), &options)?);
    server.stop();
    Some(result)
}

/// Asserts that each group has performed its behaviour at least `actions` times and had more than
/// `units` frames of each track, none of them broken.
fn assert_seeks_and_pauses(result: &Value, actions: u64, units: u64) {
    for group in result["groups"].as_array().expect("a list of groups") {
        let found = ["seeks", "pauses", "reconnects"].map(|action| number(&group[action]));
        assert!(found.iter().sum::<u64>() >= actions, "{group:#}");
        assert!(number(&group["first_packet_ms"]["plays"]) >= actions, "{group:#}");
        assert_eq!((&group["failed"], &group["ended"]), (&json!([]), &json!([])), "{group:#}");
        let tracks = group["verified"]["tracks"].as_array().expect("a list of tracks");
        assert_eq!(tracks.len(), 2, "{group:#}");
        for track in tracks {
            assert!(number(&track["units"]) > units, "{group:#}");
            assert_eq!(track["broken_units"], 0, "{group:#}");
        }
    }
}

/// Plays two sessions through a relay that drops packets; `None` as for [`serve`] and [`play`].
fn play_through_relay(test: &str, options: &[&str]) -> Option<watchdog::Outcome> {
    let server = serve(test)?;
    let relay = Relay::start(server.rtsp);
    let url = format!("rtsp://{}/film.mp4", relay.address);
    let all = ["--sessions", "2", "--seconds", "2", "--transport", "tcp"];
    let outcome = play(&url, &[&all, options].concat());
    server.stop();
    outcome
}

#[test]
fn packets_that_a_relay_drops_break_their_frames() {
    let test = "packets_that_a_relay_drops_break_their_frames";
    let Some(outcome) = play_through_relay(test, &["--sample", "1", "--json", "-"]) else { return };
    let result = result(&outcome);
    assert_eq!(outcome.status.code(), Some(1), "{result:#}");
    assert_eq!(result["verified"]["timely"], 0, "{result:#}");
    let [picture, sound] = tracks(&result);
    assert_eq!((number(&picture["lost"]), number(&sound["lost"])), (LOST_IN_ALL, 0), "{result:#}");
    // Neighbouring packets may be of one picture.
    let broken = number(&picture["broken_units"]);
    assert!((2..=LOST_IN_ALL).contains(&broken), "{result:#}");
    assert_eq!((&picture["malformed_packets"], &sound["broken_units"]), (&0.into(), &0.into()));
    assert!(number(&picture["units"]) > 0, "{result:#}");
    assert_eq!(result["bottleneck"]["what"], "loss", "{result:#}");
}

#[test]
fn packets_that_a_relay_drops_are_missed_by_counting() {
    let test = "packets_that_a_relay_drops_are_missed_by_counting";
    let Some(outcome) = play_through_relay(test, &["--sample", "0", "--json", "-"]) else { return };
    let result = result(&outcome);
    assert_eq!(outcome.status.code(), Some(1), "{result:#}");
    assert_eq!(
        (number(&result["counted"]["lost"]), result["counted"]["accounted"].as_u64()),
        (LOST_IN_ALL, Some(2))
    );
}

#[test]
fn packets_that_a_relay_drops_are_in_the_table() {
    let test = "packets_that_a_relay_drops_are_in_the_table";
    let Some(outcome) = play_through_relay(test, &["--sample", "1"]) else { return };
    let table = String::from_utf8_lossy(&outcome.stdout);
    let line = table.lines().find(|line| line.starts_with("  track       video H264/90000: "));
    let line = line.unwrap_or_else(|| panic!("{table}"));
    let is_lost = line.contains(&format!(", {LOST_IN_ALL} lost, "));
    assert!(is_lost && line.contains(" broken, 0 "), "{table}");
}

#[test]
fn what_tracks_do_not_allow_is_refused_with_what_to_write() {
    let test = "what_tracks_do_not_allow_is_refused_with_what_to_write";
    let Some(server) = serve(test) else { return };
    let file = server.folder().join("film.mp4");
    let file = file.to_str().expect("a plain path");
    let not_compared = format!("--file: {file}; leave it out: packets of tracks are no ranges");
    let too_many = "--sessions: 20000; write 16000 or less: each has 2 streams";
    let cases: [(&[&str], &str); 2] = [
        (&["--sessions", "1", "--file", file], &not_compared),
        (&["--sessions", "20000", "--ramp", "1"], too_many),
    ];
    for (options, expected) in cases {
        let outcome = load(&server.rtsp_url("film.mp4"), options);
        assert_eq!(outcome.status.code(), Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
    }
    assert_eq!(server.index()["server"]["sessions_total"], 0);
}

/// Forwards RTSP connections, and drops some RTP packets of the first track of each.
struct Relay {
    address: SocketAddr,
}

impl Relay {
    fn start(server: SocketAddr) -> Relay {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(server) else { return };
                let ends = client.try_clone().and_then(|end| Ok((end, server.try_clone()?)));
                let (client_end, server_end) = ends.expect("descriptors");
                thread::spawn(move || pass_requests(client_end, server_end));
                // Either side may close first.
                thread::spawn(move || drop(pass_media(server, client)));
            }
        });
        Relay { address }
    }
}

fn pass_requests(mut client: TcpStream, mut server: TcpStream) {
    let _ = io::copy(&mut client, &mut server);
    let _ = server.shutdown(std::net::Shutdown::Write);
}

fn pass_media(server: TcpStream, mut client: TcpStream) -> io::Result<()> {
    let mut server = BufReader::new(server);
    let mut packets = 0;
    loop {
        let Some(&first) = server.fill_buf()?.first() else { return Ok(()) };
        if first != b'$' {
            pass_reply(&mut server, &mut client)?;
            continue;
        }
        let mut frame = vec![0; 4];
        server.read_exact(&mut frame)?;
        let bytes = usize::from(u16::from_be_bytes([frame[2], frame[3]]));
        frame.resize(4 + bytes, 0);
        server.read_exact(&mut frame[4..])?;
        let is_first_track = frame[1] == 0;
        let is_lost = is_first_track && LOST.contains(&packets);
        packets += u64::from(is_first_track);
        if !is_lost {
            client.write_all(&frame)?;
        }
    }
}

fn pass_reply(server: &mut impl BufRead, client: &mut impl Write) -> io::Result<()> {
    let mut body = 0;
    loop {
        let mut line = String::new();
        server.read_line(&mut line)?;
        client.write_all(line.as_bytes())?;
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("Content-Length")
        {
            body = value.trim().parse().expect("a length");
        }
        if line.trim().is_empty() {
            break;
        }
    }
    io::copy(&mut server.take(body), client)?;
    Ok(())
}

/// Packets of the first track that do not arrive.
const LOST: &[u64] = &[40, 41, 100];
/// Packets that two sessions miss.
const LOST_IN_ALL: u64 = 2 * LOST.len() as u64;

mod timed {
    use super::*;

    /// Sessions play for four seconds, of 25 pictures and 46.9 frames of sound a second.
    #[test]
    fn all_frames_of_four_seconds_arrive_in_time() {
        let test = "all_frames_of_four_seconds_arrive_in_time";
        for transport in ["udp", "tcp", "http"] {
            let Some([pictures, sounds]) = assert_all_tracks(test, transport, "2") else { return };
            assert!(pictures >= 3 * 4 * 25, "{transport}: {pictures} pictures");
            assert!(sounds >= 3 * 4 * 46, "{transport}: {sounds} frames of sound");
        }
    }

    #[test]
    fn packets_that_a_relay_drops_break_no_other_frames() {
        let test = "packets_that_a_relay_drops_break_no_other_frames";
        let options = ["--sample", "1", "--json", "-"];
        let Some(outcome) = play_through_relay(test, &options) else { return };
        let result = result(&outcome);
        let [picture, _] = tracks(&result);
        // Two sessions for three seconds.
        assert!(number(&picture["units"]) >= 2 * 3 * 25 - LOST_IN_ALL, "{result:#}");
    }

    #[test]
    fn seeks_and_pauses_for_six_seconds_harm_nobody() {
        let test = "seeks_and_pauses_for_six_seconds_harm_nobody";
        let times = ["6", "[1, 2]", "1", "[0.5, 1]", "0.5"];
        let Some(result) = seek_and_pause(test, times) else { return };
        assert_seeks_and_pauses(&result, 2, 100);
        for group in result["groups"].as_array().expect("a list of groups") {
            assert_eq!(group["is_harmed"], false, "{group:#}");
        }
    }
}
