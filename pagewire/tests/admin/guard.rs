// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests that pages of other sites make a browser send, and listeners that strangers can reach.

use std::process::Command;

use crate::harness::PROGRAM;
use crate::harness::clip::Clip;
use crate::harness::rtsp::Player;
use crate::{ask, ask_with, await_session, serve, short_clip};

#[test]
fn cross_site_requests_change_nothing() {
    let server = serve(Clip::of_seconds(7, 60), &[]);
    let mut player = Player::set_up(server.rtsp, "film.ts");
    player.play();
    let row = await_session(&server, "the player is listed", |row| row["asset"] == "film.ts");
    let target = format!("/v1/sessions/{}", row["id"].as_str().expect("text"));
    let json = "Content-Type: application/json";
    for fields in [
        &[][..],
        &["Content-Type: text/plain"],
        &["Content-Type: application/x-www-form-urlencoded"],
        &[json, "Origin: http://evil.example"],
        &[json, "Origin: null"],
        &[json, "Sec-Fetch-Site: cross-site"],
        &["X-Pagewire: 1", "Sec-Fetch-Site: same-site"],
    ] {
        let answer = ask(&server, "DELETE", &target, fields);
        assert_eq!(answer.status, 403, "{fields:?}: {answer:?}");
        assert_eq!(answer.header("Access-Control-Allow-Origin"), None);
    }
    for (method, target) in [("POST", "/v1/reload"), ("POST", "/v1/login"), ("POST", "/v1/logout")]
    {
        assert_eq!(ask(&server, method, target, &[]).status, 403, "{target}");
    }
    let preflight = ask(&server, "OPTIONS", &target, &["Origin: http://evil.example", json]);
    assert!(preflight.status >= 400, "{preflight:?}");
    await_session(&server, "it plays on", |found| found["id"] == row["id"]);
    // The page itself may send it.
    let admin = server.admin.expect("it listens");
    let own = [json, &format!("Origin: http://{admin}"), "Sec-Fetch-Site: same-origin"];
    assert_eq!(ask(&server, "DELETE", &target, &own).status, 200);
    assert_eq!(ask(&server, "DELETE", &target, &own).status, 404, "it has ended");
    player.hear("the end of an ended session", |heard| {
        heard.byes.iter().any(|reason| reason.contains("administrator"))
    });
    server.stop();
}

#[test]
fn names_that_a_stranger_can_rebind_are_refused() {
    let server = serve(short_clip(), &["--admin-host", "media.example"]);
    for (host, status) in [
        ("evil.example", 421),
        ("evil.example:80", 421),
        ("media.example", 200),
        ("localhost", 200),
    ] {
        let fields = [format!("Host: {host}")];
        let answer = ask(&server, "GET", "/v1/status", &[&fields[0]]);
        assert_eq!(answer.status, status, "{host}: {answer:?}");
    }
    let answer = ask(&server, "GET", "/", &[]);
    let policy = answer.header("Content-Security-Policy").expect("a policy");
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    for (name, value) in [
        ("X-Frame-Options", "DENY"),
        ("X-Content-Type-Options", "nosniff"),
        ("Cache-Control", "no-store"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{name}");
    }
    server.stop();
}

#[test]
fn oversized_and_malformed_requests_are_answered_and_end() {
    let server = serve(short_clip(), &[]);
    let json = ["Content-Type: application/json"];
    let large = "x".repeat(17 << 10);
    assert_eq!(ask_with(&server, ("POST", "/v1/login"), &json, &large).status, 413);
    for target in ["/v1/sessions/rtsp-1%2ftrace", "/v1/sessions/../status", "/%2e%2e/etc/passwd"] {
        assert_eq!(ask(&server, "GET", target, &[]).status, 404, "{target}");
    }
    for id in ["rtsp-999", "http-999", "x", "rtsp-99999999999999999999", "%00"] {
        let answer = ask(&server, "DELETE", &format!("/v1/sessions/{id}"), &json);
        assert!([400, 404].contains(&answer.status), "{id}: {answer:?}");
    }
    for query in ["seconds=0", "seconds=61", "seconds=x", "format=xml"] {
        let answer = ask(&server, "GET", &format!("/v1/sessions/rtsp-1/trace?{query}"), &[]);
        assert_eq!(answer.status, 404, "there is no session, whatever {query}");
    }
    assert_eq!(ask(&server, "GET", "/healthz", &[]).text(), "ok\n");
    server.stop();
}

#[test]
fn listener_that_strangers_reach_needs_users_and_rules() {
    let place = crate::Place::new();
    let users = place.folder().join("users");
    let line = serve::access::htpasswd_line("ada", b"right").expect("a name and a password");
    std::fs::write(&users, format!("{line}\n")).expect("room for a file");
    let refusal = |arguments: &[&str]| {
        let ports = ["--rtsp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "0.0.0.0:0"];
        let output = Command::new(PROGRAM)
            .arg("serve")
            .args(ports)
            .args(arguments)
            .arg(place.folder())
            .output()
            .expect("the program runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("--admin: 0.0.0.0:0 can be reached by others"), "{text}");
        assert!(text.contains("write 127.0.0.1:0"), "{text}");
        text
    };
    assert!(refusal(&[]).contains("nobody has to log in"));
    let users = users.to_str().expect("a path in UTF-8");
    assert!(refusal(&["--users", users]).contains("every user would be an administrator"));
}
