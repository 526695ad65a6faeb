// SPDX-License-Identifier: MIT OR Apache-2.0
//! `load`, `play` and `receive` at `[::1]`, over each transport of one client.

use std::net::{Ipv6Addr, UdpSocket};
use std::process::Command;
use std::thread;

use crate::harness::clip::Clip;
use crate::harness::recorder::Recorder;
use crate::harness::{PROGRAM, Place, Server, watchdog};
use crate::{LIMIT, play};

/// Starts a server at `[::1]` of `a.ts`, a clip of so many seconds, and returns its bytes; `None`,
/// with the reason printed, where there is no IPv6.
fn serve(seconds: u64) -> Option<(Server, Vec<u8>)> {
    if UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        let test = thread::current().name().unwrap_or("ipv6").to_owned();
        eprintln!("skip: {test}: no IPv6 on this machine's loopback");
        return None;
    }
    let (place, clip) = (Place::new(), Clip::of_seconds(14, seconds).bytes());
    place.put("a.ts", &clip);
    let server = Server::listening("[::1]:0", &place, Command::new(PROGRAM), &[]);
    server.await_stream("a.ts");
    assert!(server.rtsp_url("a.ts").starts_with("rtsp://[::1]:"), "{}", server.rtsp);
    Some((server, clip))
}

fn assert_loaded(transport: &str) {
    let Some((server, _)) = serve(20) else { return };
    let options = ["--sessions", "6", "--sample", "2", "--seconds", "2"];
    let options = [&options[..], &["--transport", transport]].concat();
    let Some(outcome) = play(&server.rtsp_url("a.ts"), &options) else { return };
    assert!(outcome.status.success(), "{outcome:?}");
    let table = String::from_utf8_lossy(&outcome.stdout);
    assert!(table.contains("  timely      3 of the 3 verified; 6 played\n"), "{table}");
    server.stop();
}

fn assert_played(transport: &str) {
    let Some((server, clip)) = serve(20) else { return };
    let target = server.place.top().join("played");
    let mut play = Command::new(PROGRAM);
    play.args(["play", &server.rtsp_url("a.ts"), "--length", "1", "--transport", transport]);
    play.arg("--output").arg(&target);
    let outcome = watchdog::run(&mut play, LIMIT).expect("the program under test is there");
    let table = String::from_utf8_lossy(&outcome.stdout);
    assert!(outcome.status.success(), "{outcome:?}");
    assert!(table.contains(&format!("transport   {transport}")), "{table}");
    let bytes = std::fs::read(&target).expect("a file");
    assert!(bytes.len() > clip.len() / 40 && clip.starts_with(&bytes), "{} bytes", bytes.len());
    server.stop();
}

fn assert_recorded(transport: &str) {
    let Some((server, clip)) = serve(1) else { return };
    let target = Place::new();
    let url = server.rtsp_url("a.ts");
    let options = ["--transport", transport];
    let recorder = Recorder::start(&target, std::slice::from_ref(&url), &options);
    let recorded = recorder.ended().well();
    assert_eq!(recorded.stream(0)["ended"], "complete", "{:#}", recorded.summary);
    let bytes = std::fs::read(target.folder().join("0.ts")).expect("a file");
    assert!(bytes == clip, "{} bytes", bytes.len());
    server.stop();
}

#[test]
fn udp_is_loaded_over_ipv6() {
    assert_loaded("udp");
}

#[test]
fn udp_is_played_over_ipv6() {
    assert_played("udp");
}

#[test]
fn udp_is_recorded_over_ipv6() {
    assert_recorded("udp");
}

#[test]
fn tcp_is_loaded_over_ipv6() {
    assert_loaded("tcp");
}

#[test]
fn tcp_is_played_over_ipv6() {
    assert_played("tcp");
}

#[test]
fn tcp_is_recorded_over_ipv6() {
    assert_recorded("tcp");
}

#[test]
fn http_is_loaded_over_ipv6() {
    assert_loaded("http");
}

#[test]
fn http_is_played_over_ipv6() {
    assert_played("http");
}

#[test]
fn http_is_recorded_over_ipv6() {
    assert_recorded("http");
}
