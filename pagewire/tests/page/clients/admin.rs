// SPDX-License-Identifier: MIT OR Apache-2.0
//! The administrators' page: with a mock of the API that returns every cause, and with the server
//! itself and a client whose network loses packets.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;

use super::scripts::{report, texts};
use crate::harness::clip::Clip;
use crate::harness::lossy_relay::LossyRelay;
use crate::harness::{PROGRAM, Place, Server, watchdog};

/// Rules under which everyone may play and one of two users administers.
const RULES: &str = r#"
users = "users"

[[access]]
path = ""
verbs = ["list", "play"]
allow = ["anyone"]

[[access]]
path = ""
verbs = ["admin"]
allow = ["user:ada"]
"#;

#[test]
fn administrator_sees_why_a_client_is_slow_and_ends_its_session() {
    let test = "clients::admin::administrator_sees_why_a_client_is_slow_and_ends_its_session";
    // The script has a server of its own.
    let Some(report) = report(test, "admin.mjs", "http://127.0.0.1:9") else { return };
    for page in report["pages"].as_array().expect("a list") {
        let name = &page["name"];
        assert_eq!(page["serious"], json!([]), "{name}");
        assert_eq!(page["faults"], json!([]), "{name}");
        assert_eq!(page["overflow"], 0, "{name}");
    }
    assert_eq!(report["refused"], "no such user, or another password");
    let loss = json!(["Network loses packets", "RTCP reports 5.1 % lost in the last 5 s"]);
    let causes = report["causes"].as_array().expect("a list");
    assert_eq!(causes.len(), 5);
    assert_eq!((&causes[0], &causes[1]), (&json!(["On time", ""]), &loss));
    assert_eq!(texts(&report["assets"])[4], "<img src=x onerror=alert(1)>/a\"b.mp4");
    let plots = texts(&report["plots"]);
    assert!(plots.len() == 6 && plots.iter().all(|plot| plot.contains("highest")), "{plots:?}");
    assert!(report["read"].as_str().is_some_and(|read| read.contains("Mb/s")), "{report}");
    assert_eq!((&report["cancelled"], &report["ended"]), (&json!([]), &json!([2])));
    // No page of another site can send these.
    for sent in report["headers"].as_array().expect("a list") {
        assert_eq!((&sent[1], &sent[2]), (&json!("application/json"), &json!("1")), "{sent}");
    }
}

#[test]
fn administrator_logs_in_sees_a_client_that_loses_packets_and_ends_it() {
    let test = "clients::admin::administrator_logs_in_sees_a_client_that_loses_packets_and_ends_it";
    let place = Place::new();
    place.put("film.ts", &Clip::of_seconds(21, 120).bytes());
    let at = |name: &str| place.top().join(name).to_str().expect("a path in UTF-8").to_owned();
    for user in ["ada", "ben"] {
        let mut command = Command::new(PROGRAM);
        command.args(["passwd", &at("users"), user]).stdin(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        child.stdin.take().expect("a pipe").write_all(b"right").expect("it reads");
        assert!(child.wait().expect("it ends").success());
    }
    fs::write(at("pagewire.toml"), RULES).expect("room for a file");
    let options = ["--admin", "127.0.0.1:0", "--config", &at("pagewire.toml")];
    let server = Server::at(&place, Command::new(PROGRAM), &options);
    server.await_stream("film.ts");
    let play = |address| -> Child {
        let mut command = Command::new(PROGRAM);
        let url = format!("rtsp://{address}/film.ts");
        command.args(["play", &url]).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("the player starts")
    };
    // One packet of 20 is dropped.
    let relay = LossyRelay::to(server.rtsp, 20);
    let (mut lossy, mut whole) = (play(relay.address), play(server.rtsp));
    let admin = format!("http://{}/", server.admin.expect("it was started with --admin"));
    let found = report(test, "admin_live.mjs", &admin);
    if let Some(found) = found {
        assert_eq!(found["wrong"], "wrong user or password");
        assert_eq!(found["viewer"], "this user is no administrator");
        assert_eq!(found["cause"], "Network loses packets");
        let detail = found["detail"].as_str().expect("a text");
        let percent = detail.split('%').next().and_then(|text| text.split_whitespace().last());
        let percent: f64 = percent.and_then(|text| text.parse().ok()).expect("percents");
        assert!((3.0..8.0).contains(&percent), "{detail}");
        assert_ne!(found["other"], "Network loses packets");
        assert_eq!((&found["rows"], &found["faults"]), (&json!([2, 1]), &json!([])));
        assert!(watchdog::wait(&mut lossy, END_WAIT).is_some(), "its player was ended");
        assert!(whole.try_wait().expect("it is our child").is_none(), "the other plays on");
    }
    for player in [&mut lossy, &mut whole] {
        let _ = player.kill();
        player.wait().expect("it ends");
    }
    server.stop();
}

const END_WAIT: Duration = Duration::from_secs(20);
