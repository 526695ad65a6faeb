// SPDX-License-Identifier: MIT OR Apache-2.0
//! The administrator's listener and logs: health, metrics, the API, traces, and refusals.
//!
//! All tests use the real program over loopback. [`guard`]: requests that other sites make;
//! [`api`]: every address of the description; [`metrics`]: a bounded number of series; [`clients`]:
//! Prometheus; [`causes`]: causes of slow clients; [`traces`]: times of packets; [`logs`]: the
//! access log, JSON.
//!
//! No test here asserts a speed.

#![forbid(unsafe_code)]

#[path = "../harness/mod.rs"]
mod harness;

mod api;
mod causes;
mod clients;
mod guard;
mod logs;
mod metrics;
mod traces;

use std::time::Duration;

use harness::answer::{Answer, Line};
use harness::clip::Clip;
use harness::{PROGRAM, Place, Server, await_ok};
use serde_json::Value;

/// Starts a server of one clip that has been read, with an administrator's listener.
fn serve(clip: Clip, options: &[&str]) -> Server {
    let place = Place::new();
    place.put("film.ts", &clip.bytes());
    let options = [&["--admin", "127.0.0.1:0"], options].concat();
    let server = Server::at(&place, std::process::Command::new(PROGRAM), &options);
    server.await_stream("film.ts");
    server
}

/// A short clip, for tests that depend little on it.
fn short_clip() -> Clip {
    Clip::of_seconds(7, 2)
}

/// Sends one request to the administrator's listener.
#[track_caller]
fn ask(server: &Server, method: &str, target: &str, fields: &[&str]) -> Answer {
    ask_with(server, (method, target), fields, "")
}

/// As [`ask`], with content.
#[track_caller]
fn ask_with(
    server: &Server,
    (method, target): (&str, &str),
    fields: &[&str],
    content: &str,
) -> Answer {
    let admin = server.admin.expect("it was started with --admin");
    let mut line = Line::to(admin);
    let host = match fields.iter().any(|field| field.starts_with("Host:")) {
        true => String::new(),
        false => format!("Host: {admin}\r\n"),
    };
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    let length = content.len();
    line.send(format!(
        "{method} {target} HTTP/1.1\r\n{host}{fields}Content-Length: {length}\r\nConnection: \
         close\r\n\r\n{content}"
    ));
    line.answer().unwrap_or_else(|| panic!("{method} {target}: closed without an answer"))
}

/// Returns the JSON in the answer to a GET.
#[track_caller]
fn get(server: &Server, target: &str) -> Value {
    let answer = ask(server, "GET", target, &[]);
    assert_eq!(answer.status, 200, "{target}: {answer:?}");
    serde_json::from_slice(&answer.body).expect("JSON")
}

/// Returns the first session for which `holds` is true, as soon as there is one.
#[track_caller]
fn await_session(server: &Server, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    await_ok(|| {
        let list = get(server, "/v1/sessions");
        let rows = list["sessions"].as_array().expect("a list");
        let row = rows.iter().find(|row| holds(row));
        row.cloned().ok_or_else(|| format!("{what}: not so in {list:#}"))
    })
}

const WAIT: Duration = Duration::from_secs(45);
