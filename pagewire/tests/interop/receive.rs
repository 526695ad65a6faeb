// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire receive` records streams of other programs, and other programs play its recordings.
//!
//! GStreamer and multicat send the packets of a file unchanged: the recording has the same bytes.
//! ffmpeg multiplexes anew: the recording has the same frames, by size and MD5. All six seconds of
//! the film are sent at their own pace.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::ffmpeg::{Frame, PICTURE, SOUND, frames, of_stream, position};
use crate::harness::film::film;
use crate::harness::gstreamer::has_elements;
use crate::harness::ports::free_port;
use crate::harness::recorder::{Recorded, Recorder, url};
use crate::harness::{PROGRAM, Place, Server};
use crate::{TS_PACKET_BYTES, assert_bytes, client};

/// Puts a tenth of the film into a file, in whole RTP payloads; returns `None`, with the reason
/// printed, where there is none.
fn excerpt(test: &str) -> Option<(Place, PathBuf, &'static [u8])> {
    let film = film(test)?;
    let payload = 7 * TS_PACKET_BYTES;
    let bytes = &film.bytes[..film.bytes.len() / 10 / payload * payload];
    let place = Place::new();
    let path = place.put("sent.ts", bytes);
    Some((place, path, bytes))
}

/// Records the stream that a program sends to a port; returns `None` where it is not installed.
fn record(test: &str, sender: impl FnOnce(u16) -> Command) -> Option<(Place, Recorded)> {
    let port = free_port();
    let place = Place::new();
    let recorder = Recorder::start(&place, &[url(port)], &[]);
    let outcome = client(test, &mut sender(port))?;
    assert!(outcome.status.success(), "{}: {}", outcome.status, outcome.stderr);
    Some((place, recorder.stop().well()))
}

fn recording(place: &Place) -> PathBuf {
    place.folder().join("0.ts")
}

fn hashes(frames: &[Frame], stream: usize) -> Vec<(u64, String)> {
    let of_stream = of_stream(frames, stream);
    of_stream.into_iter().map(|frame| (frame.bytes, frame.hash)).collect()
}

/// Asserts that the frames of the sent file are those of the recording, except for so many at the
/// end that were not sent.
#[track_caller]
fn assert_same_frames(test: &str, sent: &Path, recorded: &Path, unsent_max: usize) {
    let of = |path: &Path| frames(test, &[], path.as_os_str(), &[]).expect("ffmpeg has just sent");
    let (sent, recorded) = (of(sent), of(recorded));
    for stream in [PICTURE, SOUND] {
        let (sent, recorded) = (hashes(&sent, stream), hashes(&recorded, stream));
        assert!(sent.len() > 100, "{} frames in stream {stream}", sent.len());
        let (all, received) = (sent.len(), recorded.len());
        let same = sent.iter().zip(&recorded).take_while(|(a, b)| a == b).count();
        // The last received frame may be partial.
        let is_same =
            same + usize::from(unsent_max > 0) >= received && received + unsent_max >= all;
        assert!(is_same, "stream {stream}: {received} of {all} frames, {same} the same");
    }
}

/// Returns the command of an ffmpeg that sends a file at its pace.
fn ffmpeg(file: &Path, muxer: &str, target: &str) -> Command {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "warning", "-re", "-i"]).arg(file);
    command.args(["-map", "0", "-c", "copy", "-f", muxer, target]);
    command
}

#[test]
fn records_what_ffmpeg_sends_by_rtp() {
    let test = "receive::records_what_ffmpeg_sends_by_rtp";
    let Some((_source, file, _)) = excerpt(test) else { return };
    let sender = |port| ffmpeg(&file, "rtp_mpegts", &format!("rtp://127.0.0.1:{port}"));
    let Some((place, recorded)) = record(test, sender) else { return };
    assert_eq!(recorded.stream(0)["form"], "rtp");
    assert_eq!((recorded.figure("lost"), recorded.figure("continuity_errors")), (0, 0));
    assert!(recorded.figure("sender_reports") > 0, "{:#}", recorded.summary);
    assert!(recorded.figure("reports_sent") > 0, "{:#}", recorded.summary);
    // At its end ffmpeg's rtp_mpegts discards an incomplete packet, and the frames of sound it was
    // still gathering for one PES packet.
    assert_same_frames(test, &file, &recording(&place), 16);
}

#[test]
fn records_what_ffmpeg_sends_bare() {
    let test = "receive::records_what_ffmpeg_sends_bare";
    let Some((_source, file, _)) = excerpt(test) else { return };
    let sender = |port| ffmpeg(&file, "mpegts", &format!("udp://127.0.0.1:{port}?pkt_size=1316"));
    let Some((place, recorded)) = record(test, sender) else { return };
    assert_eq!(recorded.stream(0)["form"], "ts");
    assert_eq!(recorded.figure("continuity_errors"), 0);
    assert_same_frames(test, &file, &recording(&place), 0);
}

/// A camera's H.264 as RTP, by the command that the refusal names. The camera is another ffmpeg,
/// which sends to the first with RTSP ANNOUNCE.
#[test]
fn records_a_camera_by_the_command_that_its_refusal_names() {
    let test = "receive::records_a_camera_by_the_command_that_its_refusal_names";
    let Some((_source, file, _)) = excerpt(test) else { return };
    let url = format!("rtsp://127.0.0.1:{}/live", free_port());
    let (port, place) = (free_port(), Place::new());
    let recorder = Recorder::start(&place, &[self::url(port)], &[]);
    let target = format!("rtp://127.0.0.1:{port}");
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "warning", "-rtsp_flags", "listen"]);
    command.args(["-rtsp_transport", "tcp", "-i", &url, "-c", "copy", "-f", "rtp_mpegts", &target]);
    let relay = thread::spawn(move || client(test, &mut command));
    let mut camera = Command::new("ffmpeg");
    camera.args(["-hide_banner", "-loglevel", "warning", "-re", "-i"]).arg(&file);
    // Cameras have no B-frames; RTP has no decoding times, and ffmpeg would not copy any.
    camera.args(["-map", "0:v:0", "-c:v", "libx264", "-preset", "ultrafast", "-bf", "0"]);
    camera.args(["-f", "rtsp", "-rtsp_transport", "tcp", &url]);
    // The server needs a moment to start.
    let sent = (0..50).any(|_| {
        thread::sleep(std::time::Duration::from_millis(200));
        client(test, &mut camera).is_none_or(|outcome| outcome.status.success())
    });
    assert!(sent, "ffmpeg does not take what ffmpeg sends");
    relay.join().expect("it is awaited");
    let recorded = recorder.stop().well();
    assert_eq!((recorded.stream(0)["form"].as_str(), recorded.figure("lost")), (Some("rtp"), 0));
    assert_eq!(recorded.figure("continuity_errors"), 0);
    let count = |path: &Path| {
        let all = frames(test, &[], path.as_os_str(), &[]).expect("ffmpeg has just sent");
        of_stream(&all, PICTURE).len()
    };
    let (sent, recorded) = (count(&file), count(&recording(&place)));
    // The last ones are still in transit when the camera disconnects.
    assert!(recorded > 100 && recorded + 12 >= sent, "{recorded} of {sent} frames");
}

#[test]
fn records_what_gstreamer_sends() {
    let test = "receive::records_what_gstreamer_sends";
    if !has_elements(test, &["tsparse", "rtpmp2tpay", "udpsink"]) {
        return;
    }
    let Some((_source, file, bytes)) = excerpt(test) else { return };
    let sender = |port: u16| {
        let mut command = Command::new("gst-launch-1.0");
        command.args(["-q", "filesrc"]).arg(format!("location={}", file.display()));
        // With an alignment it would pad the last buffer with null packets.
        command.args(["!", "tsparse", "set-timestamps=true", "!", "rtpmp2tpay"]);
        command.args(["mtu=1400", "!", "udpsink", "host=127.0.0.1"]).arg(format!("port={port}"));
        command
    };
    let Some((place, recorded)) = record(test, sender) else { return };
    assert_eq!((recorded.stream(0)["form"].as_str(), recorded.figure("lost")), (Some("rtp"), 0));
    let written = std::fs::read(recording(&place)).expect("a recording");
    assert_bytes(&written, bytes);
}

#[test]
fn records_what_multicat_sends() {
    let test = "receive::records_what_multicat_sends";
    let Some((_source, file, bytes)) = excerpt(test) else { return };
    // It paces by an index that its companion makes; ffmpeg's clock is in PID 256.
    let mut ingests = Command::new("ingests");
    if client(test, ingests.args(["-p", "256"]).arg(&file)).is_none() {
        return;
    }
    for (bare, form) in [(false, "rtp"), (true, "ts")] {
        let sender = |port: u16| {
            let mut command = Command::new("multicat");
            command.args(["-p", "256"]).args(bare.then_some("-U"));
            command.arg(&file).arg(format!("127.0.0.1:{port}"));
            command
        };
        let Some((place, recorded)) = record(test, sender) else { return };
        assert_eq!((recorded.stream(0)["form"].as_str(), recorded.figure("lost")), (Some(form), 0));
        let written = std::fs::read(recording(&place)).expect("a recording");
        assert_bytes(&written, bytes);
    }
}

#[test]
fn ffmpeg_plays_a_file_that_is_being_written_and_from_the_server_at_once() {
    let test = "receive::ffmpeg_plays_a_file_that_is_being_written_and_from_the_server_at_once";
    let Some((_source, file, bytes)) = excerpt(test) else { return };
    let Some(sent) = frames(test, &[], file.as_os_str(), &[]) else { return };
    let port = free_port();
    let place = Place::new();
    let recorder = Recorder::start(&place, &[url(port)], &[]);
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    let mut ffmpeg = ffmpeg(&file, "mpegts", &format!("udp://127.0.0.1:{port}?pkt_size=1316"));
    let sending = thread::spawn(move || client(test, &mut ffmpeg).map(|sent| sent.succeeded()));
    recorder.await_bytes("0.ts", bytes.len() as u64 / 2);
    let from_disk = recording(&place).into_os_string();
    let by_http = server.http_url("0.ts").into();
    for growing in [from_disk, by_http] {
        let seen = frames(test, &[], &growing, &[]).expect("ffmpeg is sending");
        let picture = of_stream(&seen, PICTURE);
        assert!(picture.len() > 40, "{} frames so far", picture.len());
        // The last may be partial.
        let whole = &picture[..picture.len() - 1];
        let start = position(whole, &of_stream(&sent, PICTURE));
        assert_eq!(start, Some(0), "{growing:?}");
    }
    sending.join().expect("said above").expect("ffmpeg is installed");
    recorder.stop().well();
    server.await_stream("0.ts");
    let url = server.rtsp_url("0.ts");
    let played = frames(test, &["-rtsp_transport", "udp"], OsStr::new(&url), &[]);
    let picture = hashes(&played.expect("ffmpeg has just sent"), PICTURE);
    let all = hashes(&sent, PICTURE);
    // ffmpeg drops the last frame of a stream that ends by BYE: see `ffmpeg`.
    assert_eq!(picture, all[..all.len() - 1]);
    server.stop();
}
