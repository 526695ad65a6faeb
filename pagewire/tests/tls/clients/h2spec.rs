// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server conforms to HTTP/2 and HPACK in all of its cases.
//!
//! Sources: RFC 9113, RFC 7541; the cases of github.com/summerwind/h2spec.

use std::process::Command;

use crate::{TlsServer, noise, run, test_tool};

#[test]
fn every_case_passes_and_the_log_stays_empty() {
    let test = "clients::h2spec::every_case_passes_and_the_log_stays_empty";
    let TlsServer { server, .. } = TlsServer::start(&[("a.bin", &noise(10_000))]);
    let port = server.https.expect("it listens").port().to_string();
    let mut command = Command::new(test_tool("bin/h2spec"));
    command.args(["-t", "-k", "-h", "127.0.0.1", "-p", &port, "-P", "/a.bin", "-o", "10"]);
    let Some(outcome) = run(test, &mut command) else { return };
    let stdout = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert!(stdout.contains(" 0 skipped, 0 failed"), "{stdout}");
    let passed = stdout.split(" tests, ").nth(1).and_then(|rest| rest.split(' ').next());
    assert!(passed.and_then(|n| n.parse().ok()) >= Some(145_u32), "{stdout}");
    outcome.succeeded();
    let log = server.stop();
    let lines = log.lines().filter(|line| line.contains(" WARN ") || line.contains("ERROR"));
    let lines: Vec<_> = lines.collect();
    assert!(lines.is_empty(), "a client can have it write: {lines:#?}");
}
