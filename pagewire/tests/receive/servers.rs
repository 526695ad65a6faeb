// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTSP servers of all kinds: a title is recorded once and whole, a live source as long as it
//! sends, and a source that cannot be recorded ends with its reason.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use crate::assert_file;
use crate::fake::{Fake, JPEG, Script};
use crate::harness::clip::Clip;
use crate::harness::ports::free_port;
use crate::harness::recorder::{Recorder, Sender, url};
use crate::harness::rtsp::assert_cname;
use crate::harness::{PROGRAM, Place, watchdog};

const LENGTH: Duration = Duration::from_secs(2);

fn title(seed: u64) -> Script {
    Script::title(Clip::of_seconds(seed, 2).bytes(), LENGTH)
}

#[test]
fn a_title_of_a_description_with_a_range_is_recorded_once() {
    record_once(title(1));
}

#[test]
fn a_title_of_wrong_figures_in_the_answer_to_play_is_recorded_once() {
    let play = "Range: npt=0-\r\nRTP-Info: url=title;seq=0;rtptime=7\r\n";
    record_once(Script { play, ..title(2) });
}

#[test]
fn a_title_whose_connection_is_closed_is_recorded_once() {
    let play = "Range: npt=0.000-2.000\r\n";
    record_once(Script { range: "", play, says_bye: false, closes: true, ..title(3) });
}

#[test]
fn a_title_whose_timestamps_stand_still_is_recorded_once() {
    record_once(Script { clock_rate: 0.0, ..title(4) });
}

#[test]
fn a_title_without_bye_is_recorded_once() {
    record_once(Script { says_bye: false, ..title(5) });
}

fn record_once(script: Script) {
    let place = Place::new();
    let stream = script.stream.clone();
    let fake = Fake::start(script);
    let recorded = Recorder::start(&place, std::slice::from_ref(&fake.url), &[]).ended().well();
    assert_eq!(recorded.stream(0)["ended"], "complete", "{:#}", recorded.summary);
    assert_eq!((fake.asked("PLAY"), recorded.figure("sessions")), (1, 1));
    assert_file(&place.folder().join("0.ts"), &stream);
}

#[test]
fn a_live_source_is_asked_again() {
    record_twice(Script { range: "", ..title(6) }, &[]);
}

#[test]
fn a_source_is_live_by_option_and_asked_again() {
    record_twice(title(7), &["--live"]);
}

fn record_twice(script: Script, options: &[&str]) {
    let place = Place::new();
    let stream = script.stream.clone();
    let fake = Fake::start(script);
    let recorder = Recorder::start(&place, std::slice::from_ref(&fake.url), options);
    recorder.await_bytes("0.ts", 2 * stream.len() as u64);
    let recorded = recorder.stop().well();
    assert!(fake.asked("PLAY") >= 2, "{:#}", recorded.summary);
    let written = std::fs::read(place.folder().join("0.ts")).expect("a file");
    assert!(written.starts_with(&stream.repeat(2)), "{} bytes", written.len());
}

/// RFC 7022: the reports of two sessions do not reveal that they are of one recorder.
#[test]
fn every_session_has_a_canonical_name_of_its_own() {
    let place = Place::new();
    let fakes = [Fake::start(title(11)), Fake::start(title(12))];
    let urls = fakes.each_ref().map(|fake| fake.url.clone());
    Recorder::start(&place, &urls, &[]).ended().well();
    // The last report and BYE are sent when a session ends.
    let names = fakes.each_ref().map(|fake| fake.await_cnames(2));
    for names in &names {
        assert_cname(&names[0]);
        assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
    }
    assert_ne!(names[0][0], names[1][0]);
}

#[test]
fn what_cannot_be_recorded_ends_with_its_reason() {
    refuse_all();
}

/// Records from servers that refuse, or that offer streams that cannot be received; returns the
/// durations.
pub(crate) fn refuse_all() -> Vec<(&'static str, Duration)> {
    let mut took = Vec::new();
    let refused = |method, status| Script { refusals: vec![(method, status)], ..title(8) };
    for (script, reason) in [
        (
            Script { media: JPEG, range: "", ..title(8) },
            "it offers Motion JPEG video and G.711 audio; what can be received is an MPEG tran",
        ),
        (refused("DESCRIBE", "404 Not Found"), "DESCRIBE: 404 Not Found"),
        (refused("DESCRIBE", "401 Unauthorized"), "DESCRIBE: 401 Unauthorized: it asks for a us"),
        (refused("SETUP", "461 Unsupported Transport"), "SETUP: 461 Unsupported Transport"),
        (refused("PLAY", "454 Session Not Found"), "PLAY: 454 Session Not Found"),
    ] {
        let place = Place::new();
        let fake = Fake::start(script);
        let began = Instant::now();
        // By default a server that refuses UDP is tried over TCP.
        let only_udp = ["--transport", "udp"];
        let recorder = Recorder::start(&place, std::slice::from_ref(&fake.url), &only_udp);
        let recorded = recorder.ended();
        assert_eq!(recorded.status.code(), Some(1), "{reason}: {}", recorded.log);
        let ended = recorded.stream(0)["ended"].as_str().expect("a reason");
        assert!(ended.contains(reason), "{ended}");
        assert!(recorded.log.contains(reason) && !recorded.log.contains("asking again"));
        assert_eq!(fake.asked("DESCRIBE"), 1, "{reason}");
        took.push((reason, began.elapsed()));
    }
    took
}

#[test]
fn a_camera_is_refused_with_the_command_that_records_it() {
    let place = Place::new();
    let fake = Fake::start(Script { media: JPEG, range: "", ..title(13) });
    let recorder = Recorder::start(&place, std::slice::from_ref(&fake.url), &[]);
    let ended = recorder.ended().stream(0)["ended"].as_str().expect("a reason").to_owned();
    let command = format!(
        "`ffmpeg -rtsp_transport tcp -i '{}' -c:v libx264 -bf 0 -c:a aac -f rtp_mpegts \
         rtp://127.0.0.1:5004`",
        fake.url
    );
    assert!(ended.contains(&command) && ended.contains("receive udp://127.0.0.1:5004`"), "{ended}");
    assert!(!ended.contains("byte ") && !ended.contains("RFC"), "{ended}");
}

#[test]
fn a_password_that_cannot_be_used_is_not_repeated() {
    for (command, url) in [
        ("receive", "rtsp://user:secret%FF@127.0.0.1/title"),
        ("receive", "rtsp://user:sec/ret@127.0.0.1/title"),
        ("receive", "udp://user:secret@127.0.0.1:5004"),
        ("play", "rtsp://user:secret%FF@127.0.0.1/title"),
        ("play", "http://user:secret@127.0.0.1/title.ts"),
    ] {
        let mut program = std::process::Command::new(PROGRAM);
        let outcome = watchdog::run(program.args([command, url]), Duration::from_secs(60));
        let outcome = outcome.expect("the program is built");
        let shown = format!("{}{}", String::from_utf8_lossy(&outcome.stdout), outcome.stderr);
        assert_eq!(outcome.status.code(), Some(2), "{command} {url}: {shown}");
        assert!(!shown.contains("sec") && !shown.contains("user:"), "{shown}");
        assert!(shown.contains("…@127.0.0.1"), "{shown}");
    }
}

#[test]
fn a_server_that_is_busy_is_asked_again() {
    record_after_refusals("503 Service Unavailable", title(9), &[]);
}

#[test]
fn a_live_source_that_is_absent_is_asked_again() {
    record_after_refusals("404 Not Found", Script { range: "", ..title(9) }, &["--live"]);
}

fn record_after_refusals(status: &'static str, script: Script, options: &[&str]) {
    let place = Place::new();
    let stream = script.stream.clone();
    let fake = Fake::start(Script { refusals: vec![("DESCRIBE", status); 2], ..script });
    let recorder = Recorder::start(&place, std::slice::from_ref(&fake.url), options);
    recorder.await_bytes("0.ts", stream.len() as u64);
    recorder.stop().well();
    assert_eq!(fake.asked("DESCRIBE").min(3), 3);
}

#[test]
fn a_server_that_is_not_there_yet_is_asked_again() {
    let place = Place::new();
    // A port that is bound and refuses connections until it listens.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).expect("a socket");
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    socket.bind(&any_port.into()).expect("a free port");
    let address = socket.local_addr().expect("it is bound").as_socket().expect("IPv4");
    let source = format!("rtsp://{address}/title");
    let mut recorder = Recorder::start(&place, &[source], &[]);
    recorder.await_log("asking again");
    socket.listen(16).expect("nobody else listens");
    let fake = Fake::by(socket.into(), title(9));
    recorder.ended().well();
    assert_file(&place.folder().join("0.ts"), &title(9).stream);
    assert_eq!((fake.address, fake.asked("PLAY")), (address, 1));
}

#[test]
fn refused_packets_are_counted_by_reason() {
    let place = Place::new();
    let clip = Clip::of_seconds(10, 4).bytes();
    let port = free_port();
    let recorder = Recorder::start(&place, &[url(port)], &[]);
    let mut sender = Sender::rtp(port, 7, 100);
    let (head, tail) = clip.split_at(clip.len() / 2 / 1316 * 1316);
    sender.send_all(head);
    let mut other = sender.datagram(&clip[..1316]);
    sender.rtp.as_mut().expect("RTP").sequence -= 1;
    other[1] = 96;
    for _ in 0..3 {
        sender.send_raw(&other);
    }
    // Another source at the same socket, once: not enough to be followed.
    (other[1], other[11]) = (33, 99);
    sender.send_raw(&other);
    Sender::rtp(port, 8, 5).send(&clip[..1316]);
    sender.send(&[0x47; 200]);
    sender.send_raw(b"neither of them");
    sender.send_all(tail);
    let recorded = recorder.stop().well();
    assert_file(&place.folder().join("0.ts"), &clip);
    let expected = serde_json::json!({
        "payload_type": 3, "last_payload_type": 96, "ssrc": 1, "sender": 1, "size": 1,
        "malformed": 1
    });
    assert_eq!(recorded.stream(0)["refused"], expected, "{:#}", recorded.summary);
    assert_eq!(recorded.figure("unexpected_source"), 5);
}
