// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire load --scenario`: all behaviours against a real server, and files that are refused.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::clip::Clip;
use crate::harness::{PROGRAM, Place, Server};
use crate::{events, load, number, serve};

/// One session of each behaviour by each transport that it can have.
const ALL: &str = r#"
seconds = 6
seed = 7
[[group]]
name = "watch"
behaviour = "steady"
share = 3
[[group]]
name = "watch-tcp"
transport = "tcp"
[[group]]
name = "watch-http"
transport = "http"
[[group]]
behaviour = "seek"
every_s = [1, 2]
share = 2
[[group]]
name = "seek-tcp"
transport = "tcp"
behaviour = "seek"
every_s = [1, 2]
[[group]]
behaviour = "pause"
transport = "http"
every_s = 1
pause_s = [0.5, 1]
[[group]]
behaviour = "leave"
stay_s = [1, 2]
away_s = 0.5
share = 2
[[group]]
name = "leave-tcp"
transport = "tcp"
behaviour = "leave"
stay_s = [1, 2]
away_s = 0.5
[[group]]
behaviour = "vanish"
stay_s = [1, 2]
away_s = 0.5
[[group]]
name = "vanish-tcp"
transport = "tcp"
behaviour = "vanish"
stay_s = [1, 2]
away_s = 0.5
[[group]]
behaviour = "slow"
transport = "tcp"
bytes_per_second = 50_000
[[group]]
behaviour = "stall"
transport = "http"
"#;

/// Writes a scenario beside the served folder.
fn file(place: &Place, text: &str) -> PathBuf {
    let path = place.top().join("scenario.toml");
    std::fs::write(&path, text).expect("room for a file");
    path
}

fn plain(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

#[test]
fn every_behaviour_has_its_figures_and_leaves_nothing_behind() {
    let place = Place::new();
    let clip = Clip { bits_per_second: 4_000_000, ..Clip::of_seconds(12, 30) };
    place.put("a.ts", &clip.bytes());
    let options = ["--session-timeout", "3"];
    let server = Server::at(&place, Command::new(PROGRAM), &options);
    server.await_stream("a.ts");
    let scenario = file(&place, ALL);
    let options = ["--sessions", "16", "--scenario", plain(&scenario), "--json", "-"];
    let outcome = load(&server.rtsp_url("a.ts"), &options);
    let events = events(&outcome);
    let result = events.last().expect("a result");
    assert!(outcome.status.success(), "{result:#}");
    assert_eq!(result["played"], 16, "{result:#}");
    let seconds = result["seconds"].as_f64().expect("a time");
    assert!((6.0..7.0).contains(&seconds), "{result:#}");
    let group = |name: &str| {
        let groups = result["groups"].as_array().expect("a list of groups");
        let found = groups.iter().find(|group| group["name"] == name);
        found.unwrap_or_else(|| panic!("{name} is not in {result:#}"))
    };
    for (name, sessions) in [("watch", 3), ("watch-tcp", 1), ("watch-http", 1)] {
        let group = group(name);
        assert_eq!((&group["sessions"], &group["starts"]), (&sessions.into(), &sessions.into()));
        assert_eq!(group["first_packet_ms"]["plays"], sessions, "{group:#}");
        // 6 s of 4 Mb/s.
        assert!(number(&group["verified"]["bytes"]) > sessions * 2_500_000, "{group:#}");
    }
    for (name, action) in [("seek", "seeks"), ("seek-tcp", "seeks"), ("pause", "pauses")] {
        let group = group(name);
        assert!(number(&group[action]) >= 2, "{group:#}");
        let plays = number(&group[action]) + number(&group["starts"]);
        // One may have just begun when the load ended.
        assert!(number(&group["first_packet_ms"]["plays"]) + 1 >= plays, "{group:#}");
    }
    for name in ["leave", "leave-tcp", "vanish", "vanish-tcp"] {
        let group = group(name);
        assert!(number(&group["reconnects"]) >= 2, "{group:#}");
        assert_eq!(
            number(&group["starts"]),
            number(&group["reconnects"]) + number(&group["sessions"]),
            "{group:#}"
        );
    }
    for group in result["groups"].as_array().expect("a list of groups") {
        let is_judged = group["behaviour"] != "slow" && group["behaviour"] != "stall";
        assert_eq!(group["is_judged"], is_judged, "{group:#}");
        assert_eq!((&group["is_harmed"], &group["failed"]), (&false.into(), &Value::Array(vec![])));
        if is_judged {
            assert_eq!(
                (&group["verified"]["lost"], &group["reader_skips"]),
                (&0.into(), &0.into())
            );
        }
    }
    // The server has skipped packets for readers that lag, and for nobody else.
    assert!(number(&group("slow")["reader_skips"]) > 0, "{result:#}");
    assert!(number(&group("slow")["verified"]["bytes"]) < 600_000, "{result:#}");
    assert_eq!(group("stall")["verified"]["bytes"], 0, "{result:#}");
    server.await_index("nobody is left", |index| {
        let server = &index["server"];
        // This request has the only connection.
        server["sessions"] == 0 && server["connections"] == 1
    });
    server.stop();
}

#[test]
fn the_example_scenario_is_played() {
    let (server, _) = serve(20);
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/scenarios/evening.toml");
    let options = ["--sessions", "50", "--scenario", example, "--seconds", "3"];
    let outcome = load(&server.rtsp_url("a.ts"), &options);
    assert!(outcome.status.success(), "{outcome:?}");
    let table = String::from_utf8_lossy(&outcome.stdout);
    for words in [
        ": 50 sessions for 3.0 s\n",
        "group watch: steady over udp, 30 sessions, 30 starts: well\n",
        "group bad-line: slow over tcp, 1 session, 1 start: not judged\n",
        "group hung: stall over http, 1 session, 1 start: not judged\n",
        "all groups but those not judged\n",
    ] {
        assert!(table.contains(words), "{words:?} is not in {table}");
    }
}

#[test]
fn a_refused_group_harms_the_load() {
    let place = Place::new();
    place.put("a.ts", &Clip::of_seconds(13, 20).bytes());
    let options = ["--sessions", "2"];
    let server = Server::at(&place, Command::new(PROGRAM), &options);
    server.await_stream("a.ts");
    let scenario = file(&place, "seconds = 1\n[[group]]\nname = \"crowd\"\n");
    let options = ["--sessions", "3", "--scenario", plain(&scenario), "--json", "-"];
    let outcome = load(&server.rtsp_url("a.ts"), &options);
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    let result = events(&outcome).pop().expect("a result");
    let [crowd] = &result["groups"].as_array().expect("a list")[..] else { panic!("{result:#}") };
    assert_eq!((&crowd["is_harmed"], &crowd["starts"]), (&true.into(), &2.into()));
    assert_eq!(crowd["failed"][0]["sessions"], 1, "{crowd:#}");
    assert!(crowd["failed"][0]["reason"].as_str().expect("a reason").contains("SETUP: 453"));
}

#[test]
fn wrong_scenarios_are_refused_with_line_and_cure() {
    let (server, _) = serve(5);
    let (url, place) = (server.rtsp_url("a.ts"), &server.place);
    for (text, expected) in [
        ("[[group]]\nshare = 0\n", "scenario.toml:2: group 1: share: 0; write 1 to 1000000"),
        ("secnds = 1\n[[group]]\n", "scenario.toml:1: secnds: no such setting; write seconds"),
        (
            "seconds = 1\n[[group]]\nbehaviour = \"stall\"\n",
            "--scenario: group stall: stall over udp; write transport = \"tcp\" or \"http\" in",
        ),
        (
            "seconds = 1\n[[group]]\nbehaviour = \"seek\"\nevery_s = [2, 8]\n",
            "--scenario: group seek: a session plays for up to 11.0 s and the asset ends after 5.0",
        ),
        (
            "[[group]]\nshare = 9\n[[group]]\nname = \"few\"\n",
            "--scenario: group few: 1 of 10 parts of 2 sessions is none; write 10 sessions or more",
        ),
    ] {
        let path = file(place, text);
        let outcome = load(&url, &["--sessions", "2", "--scenario", plain(&path)]);
        assert_eq!(outcome.status.code(), Some(2), "{text}: {outcome:?}");
        assert!(outcome.stderr.contains(expected), "{text}: {}", outcome.stderr);
    }
    let outcome = load(&url, &["--sessions", "2", "--scenario", "/none.toml"]);
    assert_eq!(outcome.status.code(), Some(2), "{outcome:?}");
    let expected = "--scenario /none.toml: No such file or directory";
    assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
    assert_eq!(server.index()["server"]["sessions_total"], 0);
}
