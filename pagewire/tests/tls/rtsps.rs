// SPDX-License-Identifier: MIT OR Apache-2.0
//! ffmpeg over RTSPS and HTTPS receives the film. A player that reads nothing over RTSPS disturbs
//! no other.
//!
//! Frames are compared as in `tests/interop/ffmpeg.rs`: by stream, times, size and MD5. Over RTSP
//! ffmpeg drops the last frame of the picture, because no later PES packet ends it.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::process::Command;
use std::thread;

use serde_json::Value;

use crate::client::{Client, NARROW};
use crate::harness::clip::Clip;
use crate::harness::film::{FRAMES_PER_SECOND, GROUP_SECONDS, film};
use crate::resource_snapshot::ResourceSnapshot;
use crate::{TlsServer, assert_bytes, excerpt, run};

/// Returns lines of ffmpeg's framemd5 of the streams that it copies, by stream: picture, sound.
fn frames(test: &str, before: &[&str], input: &OsStr, after: &[&str]) -> Option<[Vec<String>; 2]> {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "warning"]).args(before).arg("-i").arg(input);
    command.args(["-map", "0", "-c", "copy"]).args(after).args(["-f", "framemd5", "-"]);
    let text = String::from_utf8(run(test, &mut command)?.succeeded()).expect("text");
    // Side data of the container may follow the first six fields.
    let fields = |line: &str| line.split(',').take(6).collect::<Vec<_>>().join(",");
    let of = |stream: &str| text.lines().filter(|l| l.starts_with(stream)).map(fields).collect();
    Some([of("0,"), of("1,")])
}

/// Returns sizes and hashes of frames without their times, which restart after a seek.
fn without_times(frames: &[String]) -> Vec<String> {
    let last = |line: &String| line.rsplitn(3, ',').take(2).collect::<Vec<_>>().join(",");
    frames.iter().map(last).collect()
}

#[test]
fn ffmpeg_plays_every_frame() {
    let test = "rtsps::ffmpeg_plays_every_frame";
    let Some(bytes) = excerpt(test) else { return };
    let TlsServer { server, .. } = TlsServer::start(&[("film.ts", bytes)]);
    server.await_stream("film.ts");
    let file = server.folder().join("film.ts");
    let Some([picture, sound]) = frames(test, &["-copyts"], file.as_os_str(), &[]) else { return };
    assert!(picture.len() > 50, "{} frames of picture in the film", picture.len());
    let url = server.rtsps_url("film.ts");
    let options = ["-copyts", "-rtsp_transport", "tcp"];
    let received = frames(test, &options, OsStr::new(&url), &[]).expect("ffmpeg was there");
    assert_eq!(received[0], picture[..picture.len() - 1]);
    assert_eq!(received[1], sound);
    let mut client = Client::connect(server.https.expect("it listens"), "localhost");
    let index = client.get("/index.json").1;
    let index: Value = serde_json::from_slice(&index).expect("JSON");
    let port = server.rtsps.expect("it listens").port();
    assert_eq!(index["files"][0]["rtsp"], format!("rtsps://localhost:{port}/film.ts"));
    server.stop();
}

#[test]
fn ffmpeg_seeks_to_the_key_frame_before() {
    let test = "rtsps::ffmpeg_seeks_to_the_key_frame_before";
    let Some(film) = film(test) else { return };
    let TlsServer { server, .. } = TlsServer::start(&[("film.ts", &film.bytes)]);
    server.await_stream("film.ts");
    let Some([sent, _]) = frames(test, &[], film.path.as_os_str(), &[]) else { return };
    let url = server.rtsps_url("film.ts");
    let options = ["-rtsp_transport", "tcp", "-ss", "30"];
    let received = frames(test, &options, OsStr::new(&url), &["-t", "1"]);
    let [picture, _] = received.expect("ffmpeg was there");
    assert_starts_near(&without_times(&picture), &without_times(&sent), 30);
    server.stop();
}

/// At full speed: the pace of films over HTTP has another test.
#[test]
fn ffmpeg_plays_and_seeks_over_https() {
    let test = "rtsps::ffmpeg_plays_and_seeks_over_https";
    let Some(film) = film(test) else { return };
    let files = [("film.ts", &film.bytes[..])];
    let TlsServer { server, authority } = TlsServer::with_options(&files, &["--http-pace", "off"]);
    let Some(sent) = frames(test, &["-copyts"], film.path.as_os_str(), &[]) else { return };
    let url = server.https_url("film.ts");
    let root = authority.root().display().to_string();
    let verified = ["-tls_verify", "1", "-ca_file", &root];
    let play = |options: &[&str], after: &[&str]| {
        let options = [&verified, options].concat();
        frames(test, &options, OsStr::new(&url), after).expect("ffmpeg was there")
    };
    assert_eq!(play(&["-copyts"], &[]), sent);
    let [picture, _] = play(&["-ss", "30"], &["-t", "2"]);
    assert_starts_near(&without_times(&picture), &without_times(&sent[0]), 30);
    server.stop();
}

/// Asserts that these frames are a part of the film that starts at a key frame, at most a group
/// before this second.
#[track_caller]
fn assert_starts_near(part: &[String], whole: &[String], second: u64) {
    assert!(part.len() > 20, "{} frames of picture", part.len());
    let start = whole.windows(part.len()).position(|window| window == part);
    let start = start.expect("frames of the film in order") as u64;
    let (rate, group) = (FRAMES_PER_SECOND, GROUP_SECONDS * FRAMES_PER_SECOND);
    assert_eq!(start % group, 0, "frame {start} is no key frame");
    let wanted = second * rate;
    assert!((wanted - group..=wanted).contains(&start), "frame {start}, not {wanted}");
}

/// One player does not read and disconnects in the middle, the other gets the whole clip; SIGTERM
/// ends a third.
#[test]
fn player_that_never_reads_disturbs_nobody() {
    // Sockets hold at most a second of it.
    let fast = Clip { bits_per_second: 40_000_000, ..Clip::of_seconds(9, 3) }.bytes();
    let clip = Clip { bits_per_second: 1_000_000, ..Clip::of_seconds(10, 3) }.bytes();
    let TlsServer { server, .. } = TlsServer::start(&[("fast.ts", &fast), ("a.ts", &clip)]);
    server.await_stream("fast.ts");
    server.await_stream("a.ts");
    let rtsps = server.rtsps.expect("it listens");
    let snapshot = ResourceSnapshot::of(&server);
    let mut silent = Client::connect_to_rtsps(rtsps, Some(NARROW));
    play(&mut silent, rtsps, "fast.ts");
    let mut reader = Client::connect_to_rtsps(rtsps, None);
    play(&mut reader, rtsps, "a.ts");
    let whole = thread::spawn(move || media_to_bye(&mut reader));
    let skips = |index: &Value| index["server"]["reader_skips"].as_u64() > Some(0);
    server.await_index("the silent one misses something", skips);
    drop(silent);
    assert_bytes(&whole.join().expect("it reads"), &clip);
    snapshot.assert_restored(&server);

    let mut last = Client::connect_to_rtsps(rtsps, None);
    play(&mut last, rtsps, "a.ts");
    assert_eq!(last.read(1), b"$", "it plays");
    server.stop();
    last.count_rest();
}

/// Sends SETUP for the connection itself and PLAY, up to the reply of the latter.
fn play(client: &mut Client, server: SocketAddr, name: &str) {
    let transport = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n";
    let setup = format!("SETUP rtsp://{server}/{name} RTSP/1.0\r\nCSeq: 1\r\n{transport}\r\n");
    client.send_text(&setup);
    let reply = reply(client);
    assert!(reply.starts_with("RTSP/1.0 200 "), "{reply}");
    let session = reply.lines().find_map(|line| line.strip_prefix("Session: "));
    let session = session.and_then(|line| line.split(';').next()).expect("a session");
    let headers = format!("CSeq: 2\r\nSession: {session}\r\n\r\n");
    client.send_text(&format!("PLAY rtsp://{server}/{name} RTSP/1.0\r\n{headers}"));
    let reply = self::reply(client);
    assert!(reply.starts_with("RTSP/1.0 200 "), "{reply}");
}

/// Reads a reply without a body.
fn reply(client: &mut Client) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(client.read(1));
    }
    String::from_utf8(head).expect("heads are ASCII")
}

/// Reads frames (RFC 2326 §10.12) up to BYE; returns the payload of the media's channel.
fn media_to_bye(client: &mut Client) -> Vec<u8> {
    let mut payload = Vec::new();
    loop {
        let head = client.read(4);
        assert_eq!(head[0], b'$', "{head:?}");
        let data = client.read(usize::from(u16::from_be_bytes([head[2], head[3]])));
        match head[1] {
            0 => payload.extend_from_slice(&data[12..]),
            _ if has_bye(&data) => return payload,
            _ => {}
        }
    }
}

/// True when a compound RTCP packet holds a BYE (RFC 3550 §6.6).
fn has_bye(mut rtcp: &[u8]) -> bool {
    while let [_, kind, high, low, ..] = *rtcp {
        if kind == 203 {
            return true;
        }
        let bytes = 4 + 4 * usize::from(u16::from_be_bytes([high, low]));
        rtcp = rtcp.get(bytes..).unwrap_or_default();
    }
    false
}
