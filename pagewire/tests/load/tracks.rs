// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire load` of a file with tracks: all of them are set up, counted, and put together.
//!
//! A relay between client and server drops packets, which no server does by itself.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use serde_json::Value;

use crate::harness::film::film;
use crate::harness::watchdog;
use crate::harness::{PROGRAM, Place, Server};
use crate::{LIMIT, events, load, number};

/// A server of the film as MP4: pictures with B-frames, and sound. `None`, with the reason printed
/// for `test`, where there is no ffmpeg.
fn serve(test: &str) -> Option<Server> {
    let film = film(test)?;
    let place = Place::new();
    let path = place.top().join("film.mp4");
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-i"]).arg(&film.path);
    command.args(["-c", "copy", "-movflags", "faststart"]).arg(&path);
    watchdog::run(&mut command, LIMIT).expect("ffmpeg made the film").succeeded();
    place.put("film.mp4", &std::fs::read(&path).expect("just made"));
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    server.await_stream("film.mp4");
    Some(server)
}

fn result(outcome: &watchdog::Outcome) -> Value {
    events(outcome).pop().unwrap_or_else(|| panic!("no result: {outcome:?}"))
}

/// The two tracks of the verified sessions.
fn tracks(result: &Value) -> [Value; 2] {
    let tracks = result["verified"]["tracks"].as_array().expect("a list of tracks");
    tracks.clone().try_into().unwrap_or_else(|_| panic!("two tracks: {result:#}"))
}

#[test]
fn all_tracks_are_verified_and_counted_to_the_packet() {
    let Some(server) = serve("all_tracks_are_verified_and_counted_to_the_packet") else { return };
    let mut sent_before = 0;
    for transport in ["udp", "tcp", "http"] {
        let options = ["--sessions", "6", "--sample", "2", "--seconds", "2", "--json", "-"];
        let options = [&options[..], &["--transport", transport]].concat();
        let outcome = load(&server.rtsp_url("film.mp4"), &options);
        let result = result(&outcome);
        assert!(outcome.status.success(), "{result:#}");
        let (verified, counted) = (&result["verified"], &result["counted"]);
        assert_eq!((&verified["sessions"], &verified["timely"]), (&3.into(), &3.into()));
        let none = ["lost", "duplicates", "reordered", "unexpected_source", "bad_payload_size"];
        for figure in none {
            assert_eq!(verified[figure], 0, "{transport}: {figure} of {result:#}");
        }
        let [picture, sound] = tracks(&result);
        assert_eq!(picture["format"], "video H264/90000", "{result:#}");
        assert_eq!(sound["format"], "audio mpeg4-generic/48000", "{result:#}");
        // Three sessions for four seconds, of 25 pictures and 46.9 frames of sound a second.
        for (track, least) in [(&picture, 3 * 4 * 25), (&sound, 3 * 4 * 46)] {
            assert!(number(&track["units"]) >= least, "{transport}: {result:#}");
            assert_eq!(
                (&track["broken_units"], &track["malformed_packets"]),
                (&0.into(), &0.into())
            );
        }
        assert_eq!((&counted["sessions"], &counted["accounted"]), (&3.into(), &3.into()));
        assert_eq!(counted["lost"], 0, "{result:#}");
        let of_tracks = number(&picture["packets"]) + number(&sound["packets"]);
        assert_eq!(of_tracks, number(&verified["packets_in_all"]), "{result:#}");
        let sent = number(&server.index()["server"]["packets"]);
        let came = of_tracks + number(&counted["packets_in_all"]);
        assert_eq!(came, sent - sent_before, "{transport}: {result:#}");
        sent_before = sent;
    }
    assert_eq!(server.index()["server"]["sessions"], 0, "all have taken leave");
    server.stop();
}

#[test]
fn seeks_and_pauses_break_no_frame() {
    let Some(server) = serve("seeks_and_pauses_break_no_frame") else { return };
    let scenario = server.place.top().join("scenario.toml");
    let text = "seconds = 6\n\
                [[group]]\nbehaviour = \"seek\"\nevery_s = [1, 2]\nshare = 2\n\
                [[group]]\nname = \"seek-tcp\"\ntransport = \"tcp\"\nbehaviour = \"seek\"\n\
                every_s = [1, 2]\n\
                [[group]]\nbehaviour = \"pause\"\nevery_s = 1\npause_s = [0.5, 1]\nshare = 2\n\
                [[group]]\nbehaviour = \"vanish\"\nstay_s = [1, 2]\naway_s = 0.5\n";
    std::fs::write(&scenario, text).expect("room for a file");
    let scenario = scenario.to_str().expect("a plain path");
    let options = ["--sessions", "12", "--sample", "1", "--scenario", scenario, "--json", "-"];
    let outcome = load(&server.rtsp_url("film.mp4"), &options);
    let result = result(&outcome);
    assert!(outcome.status.success(), "{result:#}");
    for group in result["groups"].as_array().expect("a list of groups") {
        assert_eq!(group["is_harmed"], false, "{group:#}");
        let actions = ["seeks", "pauses", "reconnects"].map(|action| number(&group[action]));
        assert!(actions.iter().sum::<u64>() >= 2, "{group:#}");
        assert!(number(&group["first_packet_ms"]["plays"]) >= 2, "{group:#}");
        let tracks = group["verified"]["tracks"].as_array().expect("a list of tracks");
        assert_eq!(tracks.len(), 2, "{group:#}");
        for track in tracks {
            assert!(number(&track["units"]) > 100, "{group:#}");
            assert_eq!(track["broken_units"], 0, "{group:#}");
        }
    }
    server.stop();
}

#[test]
fn packets_that_a_relay_drops_break_their_frames() {
    let Some(server) = serve("packets_that_a_relay_drops_break_their_frames") else { return };
    let relay = Relay::start(server.rtsp);
    let url = format!("rtsp://{}/film.mp4", relay.address);
    let options = ["--sessions", "2", "--seconds", "2", "--transport", "tcp", "--json", "-"];
    let outcome = load(&url, &[&options[..], &["--sample", "1"]].concat());
    let result = result(&outcome);
    assert_eq!(outcome.status.code(), Some(1), "{result:#}");
    assert_eq!(result["verified"]["timely"], 0, "{result:#}");
    let [picture, sound] = tracks(&result);
    let lost = 2 * LOST.len() as u64;
    assert_eq!((number(&picture["lost"]), number(&sound["lost"])), (lost, 0), "{result:#}");
    // Neighbouring packets may be of one picture.
    let broken = number(&picture["broken_units"]);
    assert!((2..=lost).contains(&broken), "{result:#}");
    assert_eq!((&picture["malformed_packets"], &sound["broken_units"]), (&0.into(), &0.into()));
    assert!(number(&picture["units"]) >= 2 * 4 * 25 - lost, "{result:#}");
    assert_eq!(result["bottleneck"]["what"], "loss", "{result:#}");

    let outcome = load(&url, &[&options[..], &["--sample", "0"]].concat());
    let result = self::result(&outcome);
    assert_eq!(outcome.status.code(), Some(1), "{result:#}");
    assert_eq!(
        (number(&result["counted"]["lost"]), result["counted"]["accounted"].as_u64()),
        (lost, Some(2))
    );

    let outcome = load(&url, &[&options[..6], &["--sample", "1"]].concat());
    let table = String::from_utf8_lossy(&outcome.stdout);
    let line = table.lines().find(|line| line.starts_with("  track       video H264/90000: "));
    let line = line.unwrap_or_else(|| panic!("{table}"));
    assert!(line.contains(&format!(", {lost} lost, ")) && line.contains(" broken, 0 "), "{table}");
    server.stop();
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

/// Passes RTSP connections on, and drops some RTP packets of the first track of each.
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
                // Either side may be gone first.
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
const LOST: &[u64] = &[40, 41, 300];
