// SPDX-License-Identifier: MIT OR Apache-2.0
//! GStreamer's rtspsrc over UDP: it receives the file, byte for byte; also when it pauses during
//! play.
//!
//! A Python script (`pause.py`) controls the pause, because gst-launch-1.0 accepts no commands.

use std::process::Command;

use crate::harness::gstreamer::{has_elements, played};
use crate::{assert_bytes, client, serve_excerpt, serve_film};

#[test]
fn receives_every_byte() {
    let test = "gstreamer::receives_every_byte";
    if !has_elements(test, &["rtspsrc", "rtpmp2tdepay", "fdsink"]) {
        return;
    }
    let Some((server, film)) = serve_film(test) else { return };
    let mut command = Command::new("gst-launch-1.0");
    command.args(["-q", "rtspsrc", "protocols=udp"]);
    command.arg(format!("location={}", server.rtsp_url("film.ts")));
    command.args(["!", "rtpmp2tdepay", "!", "fdsink", "fd=1", "sync=false"]);
    let Some(outcome) = client(test, &mut command) else { return };
    assert_bytes(&played(outcome), &film.bytes);
    server.stop();
}

#[test]
fn decodes() {
    let test = "gstreamer::decodes";
    if !has_elements(test, &["playbin", "rtspsrc", "tsdemux", "avdec_h264", "avdec_aac"]) {
        return;
    }
    let Some((server, _)) = serve_excerpt(test) else { return };
    let mut command = Command::new("gst-launch-1.0");
    command.args(["-v", "playbin"]).arg(format!("uri={}", server.rtsp_url("film.ts")));
    // With -v such a sink prints the buffers it receives.
    let sink = "fakesink silent=false";
    command.arg(format!("video-sink={sink}")).arg(format!("audio-sink={sink}"));
    let Some(outcome) = client(test, &mut command) else { return };
    let output = String::from_utf8(played(outcome)).expect("gst-launch-1.0 prints text");
    let buffers = |bin| output.lines().filter(|l| l.contains(bin) && l.contains("= chain")).count();
    let (frames, sounds) = (buffers("/GstBin:vbin/"), buffers("/GstBin:abin/"));
    // Of 6 s. Pictures are shown some time after their data arrives, and GStreamer ends by the
    // clock of the data: the last of them are not shown.
    assert!(frames > 4 * 25, "{frames} pictures shown");
    assert!(sounds > 4 * 48_000 / 1024, "{sounds} pieces of sound played");
    server.stop();
}

#[test]
fn loses_nothing_in_a_pause() {
    let test = "gstreamer::loses_nothing_in_a_pause";
    let Some((server, film)) = serve_film(test) else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/pause.py");
    // Debian's bindings belong to Debian's Python, which need not be the first on the PATH.
    for python in ["/usr/bin/python3", "python3"] {
        let mut command = Command::new(python);
        command.arg(script).arg(server.rtsp_url("film.ts")).args(["10", "3"]);
        let Some(outcome) = client(test, &mut command) else { continue };
        if outcome.status.code() == Some(3) {
            eprintln!("skip: {test}: {python}: bindings not installed: {}", outcome.stderr.trim());
            continue;
        }
        assert!(outcome.stderr.contains("playing"), "it never played on: {}", outcome.stderr);
        assert_bytes(&outcome.succeeded(), &film.bytes);
        break;
    }
    server.stop();
}
