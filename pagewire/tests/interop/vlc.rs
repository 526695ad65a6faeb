// SPDX-License-Identifier: MIT OR Apache-2.0
//! VLC receives the file, byte for byte, and its demultiplexer finds the frames in it.
//!
//! The RTSP client is VLC's SAT>IP plugin where VLC was built with it (Debian). VLC refuses to run
//! as root; there it runs as nobody, by setpriv. A tenth of the film only: waiting for packets
//! costs this VLC most of a core.

use std::ffi::OsStr;
use std::fs;
use std::process::Command;

use crate::ffmpeg::{PICTURE, SOUND};
use crate::harness::film::{FRAMES_PER_SECOND, GROUP_SECONDS};
use crate::harness::watchdog::Outcome;
use crate::{assert_bytes, client, ffmpeg, serve_excerpt};

/// Returns the standard output of VLC; `None`, with the reason printed, where there is no VLC.
pub(crate) fn output(test: &str, url: &str, options: &[&str]) -> Option<Vec<u8>> {
    let outcome = run(test, &[], &[options, &[url]].concat())?;
    assert!(!outcome.stdout.is_empty(), "VLC wrote nothing: {}", outcome.stderr);
    Some(outcome.succeeded())
}

/// Returns the standard output of VLC until it is stopped after some seconds, for a stream without
/// an end.
pub(crate) fn recording(test: &str, url: &str, options: &[&str], seconds: &str) -> Option<Vec<u8>> {
    let outcome = run(test, &["timeout", "-s", "INT", seconds], &[options, &[url]].concat())?;
    assert!(!outcome.stdout.is_empty(), "VLC wrote nothing: {}", outcome.stderr);
    Some(outcome.stdout)
}

/// Runs VLC to its end, under another program if `under` names one.
fn run(test: &str, under: &[&str], arguments: &[&str]) -> Option<Outcome> {
    let mut words = under.to_vec();
    if rustix::process::geteuid().is_root() {
        words.extend(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
    }
    words.extend(["cvlc", "-I", "dummy", "--no-color"]);
    let mut command = Command::new(words[0]);
    // No user's settings may be found.
    command.env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME");
    command.args(&words[1..]).args(arguments).arg("vlc://quit");
    let outcome = client(test, &mut command)?;
    // 127: the status of env(1) and setpriv for a missing program.
    if outcome.status.code() == Some(127) || outcome.stderr.contains("failed to execute cvlc") {
        eprintln!("skip: {test}: cvlc: not installed: {}", outcome.stderr.trim());
        return None;
    }
    if outcome.stderr.contains("no suitable access module") {
        eprintln!("skip: {test}: plugin of VLC for RTSP: not installed");
        return None;
    }
    Some(outcome)
}

#[test]
fn receives_every_byte() {
    let test = "vlc::receives_every_byte";
    let Some((server, sent)) = serve_excerpt(test) else { return };
    let options = ["--demux=dump", "--demuxdump-access=file", "--demuxdump-file=-"];
    let Some(received) = output(test, &server.rtsp_url("film.ts"), &options) else { return };
    assert_bytes(&received, sent);
    server.stop();
}

#[test]
fn finds_the_frames() {
    let test = "vlc::finds_the_frames";
    let Some((server, _)) = serve_excerpt(test) else { return };
    let options = ["--sout=#std{access=file,mux=ts,dst=-}"];
    let copy = server.cache().join("copy.ts");
    let file = server.folder().join("film.ts");
    let all = |path: &OsStr| ffmpeg::frames(test, &[], path, &[]);
    let Some(sent) = all(file.as_os_str()) else { return };
    let played = || {
        let received = output(test, &server.rtsp_url("film.ts"), &options)?;
        fs::write(&copy, received).expect("the cache folder can be written");
        all(copy.as_os_str())
    };
    let group = (GROUP_SECONDS * FRAMES_PER_SECOND) as usize;
    // VLC on a busy machine starts its clock late, or drops frames, though it received every byte
    // (the test above): it then plays once more. A server that sends wrong frames does so each
    // time.
    for attempt in 1.. {
        let Some(received) = played() else { return };
        let fault = [(PICTURE, group), (SOUND, usize::MAX)]
            .into_iter()
            .find_map(|(stream, group)| difference(&sent, &received, (stream, group)));
        let Some(fault) = fault else { break };
        assert!(attempt < ATTEMPTS_MAX, "{fault}");
        eprintln!("{test}: once more: {fault}");
    }
    server.stop();
}

/// Describes the differences between the frames of a stream and the sent ones, of which each
/// `group`th is a key frame.
fn difference(
    sent: &[ffmpeg::Frame],
    received: &[ffmpeg::Frame],
    (stream, group): (usize, usize),
) -> Option<String> {
    let sent = ffmpeg::of_stream(sent, stream);
    let received = ffmpeg::of_stream(received, stream);
    // At the end VLC discards the output that it still buffers: a second and some. The last output
    // frame may be cut, as the file is.
    if 3 * received.len() <= 2 * sent.len() {
        return Some(format!("{} of {} frames of stream {stream}", received.len(), sent.len()));
    }
    let mut pairs = received[..received.len() - 1].iter().zip(&sent).enumerate();
    // VLC repeats the parameter sets before the key frames.
    let is_same = |index: usize, received: &ffmpeg::Frame, sent: &ffmpeg::Frame| match index
        .is_multiple_of(group)
    {
        true => received.bytes >= sent.bytes,
        false => received.hash == sent.hash,
    };
    pairs
        .find(|(index, (received, sent))| !is_same(*index, received, sent))
        .map(|(index, (got, sent))| format!("frame {index} of {stream}: {got:?}, not {sent:?}"))
}

const ATTEMPTS_MAX: usize = 3;
