// SPDX-License-Identifier: MIT OR Apache-2.0
//! `load`, `play` and `receive` at `[::1]`, over each transport of one client.

use std::net::{Ipv6Addr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use crate::harness::clip::Clip;
use crate::harness::recorder::Recorder;
use crate::harness::{PROGRAM, Place, Server, watchdog};
use crate::load;

#[test]
fn each_transport_is_played_recorded_and_loaded_over_ipv6() {
    if UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        eprintln!("skip: no IPv6 on this machine's loopback");
        return;
    }
    let (place, clip) = (Place::new(), Clip::of_seconds(14, 8).bytes());
    place.put("a.ts", &clip);
    let server = Server::listening("[::1]:0", &place, Command::new(PROGRAM), &[]);
    server.await_stream("a.ts");
    let url = server.rtsp_url("a.ts");
    assert!(url.starts_with("rtsp://[::1]:"), "{url}");
    for transport in ["udp", "tcp", "http"] {
        let by = ["--transport", transport];
        let options = ["--sessions", "6", "--sample", "2", "--seconds", "1"];
        let outcome = load(&url, &[&by[..], &options].concat());
        assert!(outcome.status.success(), "{transport}: {outcome:?}");
        let table = String::from_utf8_lossy(&outcome.stdout);
        assert!(table.contains("  timely      3 of the 3 verified; 6 played\n"), "{table}");

        let played = place.top().join(transport);
        let mut play = Command::new(PROGRAM);
        play.args(["play", &url, "--length", "2", "--output"]).arg(&played).args(by);
        let outcome = watchdog::run(&mut play, LIMIT).expect("the program under test is there");
        let table = String::from_utf8_lossy(&outcome.stdout);
        assert!(outcome.status.success(), "{transport}: {outcome:?}");
        assert!(table.contains(&format!("transport   {transport}")), "{table}");
        let bytes = std::fs::read(&played).expect("a file");
        assert!(bytes.len() > clip.len() / 8 && clip.starts_with(&bytes), "{transport}");

        let target = Place::new();
        let recorder = Recorder::start(&target, std::slice::from_ref(&url), &by);
        let recorded = recorder.ended().well();
        assert_eq!(recorded.stream(0)["ended"], "complete", "{:#}", recorded.summary);
        let bytes = std::fs::read(target.folder().join("0.ts")).expect("a file");
        assert!(bytes == clip, "{transport}: {} bytes", bytes.len());
    }
    server.stop();
}

const LIMIT: Duration = Duration::from_secs(60);
