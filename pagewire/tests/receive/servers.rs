// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTSP servers of all kinds: a title is recorded once and whole, a live source as long as it
//! comes, and what cannot be recorded ends with its reason.

use std::time::{Duration, Instant};

use crate::assert_file;
use crate::fake::{Fake, JPEG, Script};
use crate::harness::clip::Clip;
use crate::harness::recorder::{Recorder, Sender, free_port, url};
use crate::harness::rtsp::assert_cname;
use crate::harness::{PROGRAM, Place, watchdog};

const LENGTH: Duration = Duration::from_secs(2);

fn title(seed: u64) -> Script {
    Script::title(Clip::of_seconds(seed, 2).bytes(), LENGTH)
}

#[test]
fn a_title_is_recorded_once_however_its_end_is_announced() {
    let scripts = [
        ("the description alone, BYE", title(1)),
        (
            "Range without end, wrong rtptime",
            Script { play: "Range: npt=0-\r\nRTP-Info: url=title;seq=0;rtptime=7\r\n", ..title(2) },
        ),
        (
            "Range of PLAY alone, the connection closed",
            Script {
                range: "",
                play: "Range: npt=0.000-2.000\r\n",
                says_bye: false,
                closes: true,
                ..title(3)
            },
        ),
        ("timestamps that stand still", Script { clock_rate: 0.0, ..title(4) }),
        ("no BYE", Script { says_bye: false, ..title(5) }),
    ];
    let tests = scripts.map(|(name, script)| {
        std::thread::spawn(move || {
            let place = Place::new();
            let stream = script.stream.clone();
            let fake = Fake::start(script);
            let recorder = Recorder::start(&place, std::slice::from_ref(&fake.url), &[]);
            let recorded = recorder.ended().well();
            assert_eq!(recorded.stream(0)["ended"], "complete", "{name}: {:#}", recorded.summary);
            assert_eq!((fake.asked("PLAY"), recorded.figure("sessions")), (1, 1), "{name}");
            assert_file(&place.folder().join("0.ts"), &stream);
        })
    });
    for test in tests {
        test.join().expect("said above");
    }
}

#[test]
fn a_live_source_is_asked_again() {
    let live = Script { range: "", ..title(6) };
    let by_option = title(7);
    for (script, options) in [(live, &[][..]), (by_option, &["--live"])] {
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
}

/// RFC 7022: who hears the reports of two sessions cannot tell that they are of one recorder.
#[test]
fn every_session_has_a_canonical_name_of_its_own() {
    let place = Place::new();
    let fakes = [Fake::start(title(11)), Fake::start(title(12))];
    let urls = fakes.each_ref().map(|fake| fake.url.clone());
    Recorder::start(&place, &urls, &[]).ended().well();
    // The last report and BYE leave when a session ends.
    let names = fakes.each_ref().map(Fake::cnames);
    for names in &names {
        assert!(names.len() >= 2, "{names:?}");
        assert_cname(&names[0]);
        assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
    }
    assert_ne!(names[0][0], names[1][0]);
}

#[test]
fn what_cannot_be_recorded_ends_with_its_reason() {
    let refused = |method, status| Script { refusals: vec![(method, status)], ..title(8) };
    for (script, reason) in [
        (
            Script { media: JPEG, range: "", ..title(8) },
            "it offers Motion JPEG video and G.711 audio; what can be received is an MPEG tran",
        ),
        (refused("DESCRIBE", "404 Not Found"), "DESCRIBE: 404 Not Found"),
        (refused("DESCRIBE", "401 Unauthorized"), "DESCRIBE: 401 Unauthorized; it wants a pass"),
        (refused("SETUP", "461 Unsupported Transport"), "SETUP: 461 Unsupported Transport"),
        (refused("PLAY", "454 Session Not Found"), "PLAY: 454 Session Not Found"),
    ] {
        let place = Place::new();
        let fake = Fake::start(script);
        let began = Instant::now();
        // By default a server that refuses UDP is asked for TCP.
        let only_udp = ["--transport", "udp"];
        let recorder = Recorder::start(&place, std::slice::from_ref(&fake.url), &only_udp);
        let recorded = recorder.ended();
        assert_eq!(recorded.status.code(), Some(1), "{reason}: {}", recorded.log);
        let ended = recorded.stream(0)["ended"].as_str().expect("a reason");
        assert!(ended.contains(reason), "{ended}");
        assert!(recorded.log.contains(reason) && !recorded.log.contains("asking again"));
        assert_eq!(fake.asked("DESCRIBE"), 1, "{reason}");
        assert!(began.elapsed() < Duration::from_secs(10), "{reason}: {:?}", began.elapsed());
    }
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

    // One that wants a password gets it from ffmpeg.
    let place = Place::new();
    let fake =
        Fake::start(Script { refusals: vec![("DESCRIBE", "401 Unauthorized")], ..title(14) });
    let recorder = Recorder::start(&place, std::slice::from_ref(&fake.url), &[]);
    let ended = recorder.ended().stream(0)["ended"].as_str().expect("a reason").to_owned();
    let source = format!("-i 'rtsp://USER:PASSWORD@{}/title' -c copy", fake.address);
    assert!(ended.contains(&source), "{ended}");
}

#[test]
fn a_password_is_refused_and_not_repeated() {
    for (command, url) in [
        ("receive", "rtsp://user:secret@127.0.0.1/title"),
        ("receive", "udp://user:secret@127.0.0.1:5004"),
        ("play", "rtsp://user:secret@127.0.0.1/title"),
        ("play", "http://user:secret@127.0.0.1/title.ts"),
    ] {
        let mut program = std::process::Command::new(PROGRAM);
        let outcome = watchdog::run(program.args([command, url]), Duration::from_secs(30));
        let outcome = outcome.expect("the program is built");
        let shown = format!("{}{}", String::from_utf8_lossy(&outcome.stdout), outcome.stderr);
        assert_eq!(outcome.status.code(), Some(2), "{command} {url}: {shown}");
        assert!(!shown.contains("secret") && !shown.contains("user:"), "{shown}");
        assert!(shown.contains("…@127.0.0.1"), "{shown}");
    }
}

#[test]
fn what_is_refused_for_a_moment_is_asked_again() {
    let stream = title(9).stream;
    let twice = |status| vec![("DESCRIBE", status); 2];
    let busy = Script { refusals: twice("503 Service Unavailable"), ..title(9) };
    let absent = Script { refusals: twice("404 Not Found"), range: "", ..title(9) };
    for (script, options) in [(busy, &[][..]), (absent, &["--live"])] {
        let place = Place::new();
        let fake = Fake::start(script);
        let recorder = Recorder::start(&place, std::slice::from_ref(&fake.url), options);
        recorder.await_bytes("0.ts", stream.len() as u64);
        recorder.stop().well();
        assert_eq!(fake.asked("DESCRIBE").min(3), 3);
    }
    // The server is not there yet.
    let place = Place::new();
    let address = (std::net::Ipv4Addr::LOCALHOST, free_port()).into();
    let source = format!("rtsp://{address}/title");
    let mut recorder = Recorder::start(&place, &[source], &[]);
    recorder.await_log("asking again");
    let fake = Fake::at(address, title(9));
    recorder.ended().well();
    assert_file(&place.folder().join("0.ts"), &stream);
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
    // Another source of the same socket, once: not enough to be followed.
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
