// SPDX-License-Identifier: MIT OR Apache-2.0
//! GStreamer's rtspsrc over RTSPS: its output bytes are those of the film.
//!
//! The exit status of gst-launch-1.0 is not judged: at the end of a stream rtspsrc may find its
//! connection closed before its own TEARDOWN was answered, and ends with an error.

use std::process::Command;

use crate::{TlsServer, assert_bytes, excerpt, run};

#[test]
fn gstreamer_receives_every_byte() {
    let test = "clients::gstreamer::gstreamer_receives_every_byte";
    let Some(bytes) = excerpt(test) else { return };
    for element in ["rtspsrc", "rtpmp2tdepay", "fdsink"] {
        let mut command = Command::new("gst-inspect-1.0");
        let Some(outcome) = run(test, command.args(["--exists", element])) else { return };
        if !outcome.status.success() {
            eprintln!("skip: {test}: GStreamer element {element}: not installed");
            return;
        }
    }
    let TlsServer { server, .. } = TlsServer::start(&[("film.ts", bytes)]);
    server.await_stream("film.ts");
    let mut command = Command::new("gst-launch-1.0");
    command.args(["-q", "rtspsrc", "protocols=tcp", "tls-validation-flags=0"]);
    command.arg(format!("location={}", server.rtsps_url("film.ts")));
    command.args(["!", "rtpmp2tdepay", "!", "fdsink", "fd=1", "sync=false"]);
    let Some(outcome) = run(test, &mut command) else { return };
    // Its message where GIO has no module for TLS.
    if outcome.stderr.contains("TLS/SSL support not available") {
        eprintln!("skip: {test}: glib-networking: not installed");
        return;
    }
    if outcome.stdout != bytes {
        eprintln!("gst-launch-1.0, {}: {}", outcome.status, outcome.stderr);
    }
    assert_bytes(&outcome.stdout, bytes);
    server.stop();
}
