// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire load --scenario`: all behaviours against a real server, and files that are refused.
//!
//! `timed` asserts that no session is harmed: two seconds of play without a packet harm a group.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::clip::Clip;
use crate::harness::{PROGRAM, Place, Server};
use crate::{events, load, number, play, serve};

/// One session of each behaviour over each possible transport. The words in braces are times.
const ALL: &str = r#"
seconds = {length}
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
every_s = {time}
share = 2
[[group]]
name = "seek-tcp"
transport = "tcp"
behaviour = "seek"
every_s = {time}
[[group]]
behaviour = "pause"
transport = "http"
every_s = {pause_after}
pause_s = {pause}
[[group]]
behaviour = "leave"
stay_s = {time}
away_s = {away}
share = 2
[[group]]
name = "leave-tcp"
transport = "tcp"
behaviour = "leave"
stay_s = {time}
away_s = {away}
[[group]]
behaviour = "vanish"
stay_s = {time}
away_s = {away}
[[group]]
name = "vanish-tcp"
transport = "tcp"
behaviour = "vanish"
stay_s = {time}
away_s = {away}
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

/// Returns the scenario of [`ALL`] with these times, for `length`, `time`, `pause_after`, `pause`,
/// `away`.
fn all(times: [&str; 5]) -> String {
    let names = ["{length}", "{time}", "{pause_after}", "{pause}", "{away}"];
    let pairs = names.into_iter().zip(times);
    pairs.fold(ALL.to_owned(), |text, (name, time)| text.replace(name, time))
}

fn group<'a>(result: &'a Value, name: &str) -> &'a Value {
    let groups = result["groups"].as_array().expect("a list of groups");
    let found = groups.iter().find(|group| group["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is not in {result:#}"))
}

/// Asserts the figures of the behaviours, each of which was performed at least so many times.
fn assert_figures(result: &Value, least: u64) {
    assert_eq!(result["played"], 16, "{result:#}");
    for (name, sessions) in [("watch", 3), ("watch-tcp", 1), ("watch-http", 1)] {
        let group = group(result, name);
        assert_eq!((&group["sessions"], &group["starts"]), (&sessions.into(), &sessions.into()));
        assert_eq!(group["first_packet_ms"]["plays"], sessions, "{group:#}");
    }
    for (name, action) in [("seek", "seeks"), ("seek-tcp", "seeks"), ("pause", "pauses")] {
        let group = group(result, name);
        assert!(number(&group[action]) >= least, "{group:#}");
        let plays = number(&group[action]) + number(&group["starts"]);
        // One may have just begun when the load ended.
        assert!(number(&group["first_packet_ms"]["plays"]) + PENDING >= plays, "{group:#}");
    }
    for name in ["leave", "leave-tcp", "vanish", "vanish-tcp"] {
        let group = group(result, name);
        assert!(number(&group["reconnects"]) >= least, "{group:#}");
        assert_eq!(
            number(&group["starts"]),
            number(&group["reconnects"]) + number(&group["sessions"]),
            "{group:#}"
        );
    }
    for group in result["groups"].as_array().expect("a list of groups") {
        let is_judged = group["behaviour"] != "slow" && group["behaviour"] != "stall";
        assert_eq!(group["is_judged"], is_judged, "{group:#}");
        assert_eq!(group["failed"], Value::Array(vec![]), "{group:#}");
        assert_eq!(group["ended"], Value::Array(vec![]), "{group:#}");
        if is_judged {
            assert_eq!(
                (&group["verified"]["lost"], &group["reader_skips"]),
                (&0.into(), &0.into())
            );
        }
    }
    assert_eq!(group(result, "stall")["verified"]["bytes"], 0, "{result:#}");
}

#[test]
fn every_behaviour_has_its_figures() {
    let (server, _) = serve(30);
    let scenario = all(["3", "[0.3, 0.6]", "0.3", "[0.2, 0.3]", "0.1"]);
    let scenario = file(&server.place, &scenario);
    let options = ["--sessions", "16", "--scenario", plain(&scenario), "--json", "-"];
    let Some(outcome) = play(&server.rtsp_url("a.ts"), &options) else { return };
    let events = events(&outcome);
    let result = events.last().expect("a result");
    assert_figures(result, 1);
    // Sessions that vanish over UDP, or leave a tunnel without TEARDOWN, are detected later.
    let cut = number(&group(result, "vanish")["starts"]) + 1;
    server.await_index("those who took no leave are left", |index| {
        number(&index["server"]["sessions"]) <= cut
    });
    server.stop();
}

#[test]
fn the_example_scenario_is_played() {
    let (server, _) = serve(20);
    let options = ["--sessions", "50", "--scenario", EXAMPLE, "--seconds", "2"];
    let Some(outcome) = play(&server.rtsp_url("a.ts"), &options) else { return };
    let table = String::from_utf8_lossy(&outcome.stdout);
    for words in [
        ": 50 sessions for ",
        "group watch: steady over udp, 30 sessions, 30 starts: ",
        "group bad-line: slow over tcp, 1 session, 1 start: not judged\n",
        "group hung: stall over http, 1 session, 1 start: not judged\n",
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
    let scenario = file(&place, "seconds = 0.5\n[[group]]\nname = \"crowd\"\n");
    let options = ["--sessions", "3", "--scenario", plain(&scenario), "--json", "-"];
    let Some(outcome) = play(&server.rtsp_url("a.ts"), &options) else { return };
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

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/scenarios/evening.toml");
/// Actions of a group that may be in progress when a load ends.
const PENDING: u64 = 1;

mod timed {
    use super::*;

    #[test]
    fn every_behaviour_for_six_seconds_harms_nobody_and_leaves_nothing_behind() {
        let place = Place::new();
        let clip = Clip { bits_per_second: 4_000_000, ..Clip::of_seconds(12, 30) };
        place.put("a.ts", &clip.bytes());
        let options = ["--session-timeout", "3"];
        let server = Server::at(&place, Command::new(PROGRAM), &options);
        server.await_stream("a.ts");
        let scenario = file(&place, &all(["6", "[1, 2]", "1", "[0.5, 1]", "0.5"]));
        let options = ["--sessions", "16", "--scenario", plain(&scenario), "--json", "-"];
        let outcome = load(&server.rtsp_url("a.ts"), &options);
        let events = events(&outcome);
        let result = events.last().expect("a result");
        assert!(outcome.status.success(), "{result:#}");
        assert_figures(result, 2);
        let seconds = result["seconds"].as_f64().expect("a time");
        assert!((6.0..7.0).contains(&seconds), "{result:#}");
        for (name, sessions) in [("watch", 3), ("watch-tcp", 1), ("watch-http", 1)] {
            // 6 s of 4 Mb/s.
            let bytes = number(&group(result, name)["verified"]["bytes"]);
            assert!(bytes > sessions * 2_500_000, "{result:#}");
        }
        for group in result["groups"].as_array().expect("a list of groups") {
            assert_eq!(group["is_harmed"], false, "{group:#}");
        }
        // The server has skipped packets only for slow readers.
        assert!(number(&group(result, "slow")["reader_skips"]) > 0, "{result:#}");
        assert!(number(&group(result, "slow")["verified"]["bytes"]) < 600_000, "{result:#}");
        server.await_index("nobody is left", |index| {
            let server = &index["server"];
            // This request has the only connection.
            server["sessions"] == 0 && server["connections"] == 1
        });
        server.stop();
    }

    #[test]
    fn the_example_scenario_harms_nobody() {
        let (server, _) = serve(20);
        let options = ["--sessions", "50", "--scenario", EXAMPLE, "--seconds", "3"];
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
}
