// SPDX-License-Identifier: MIT OR Apache-2.0
//! Received tracks: the output of `pagewire receive` and `pagewire play --output` has every sent
//! frame, each at its time, for every sender; lost data is counted, and damaged frames are left
//! out.
//!
//! Senders are `pagewire serve`, which plays a file's tracks as a camera would, and ffmpeg, by a
//! session description.
//!
//! Sources: RFC 6184, RFC 3640, RFC 8866.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::client;
use crate::harness::film;
use crate::harness::ports::free_port;
use crate::harness::recorder::Recorder;
use crate::harness::{PROGRAM, Place, Server, await_true};
use crate::tracks::{Picture, pictures};
use crate::trick;

const SECONDS: u32 = 8;

/// Makes a film with B-frames, a key frame a second, and sound.
fn make(test: &str, folder: &Path) -> Option<(PathBuf, Vec<Picture>)> {
    let path = folder.join("film.mp4");
    trick::film(test, &path, SECONDS, 25)?;
    let sent = pictures(test, &[], path.as_os_str(), &[])?;
    Some((path, sent))
}

/// Asserts that a file has these pictures, with the same time from each to the next.
#[track_caller]
fn assert_same(test: &str, path: &Path, sent: &[Picture]) {
    let Some(received) = pictures(test, &[], path.as_os_str(), &[]) else { return };
    let hashes = |all: &[Picture]| all.iter().map(|one| one.hash.clone()).collect::<Vec<_>>();
    assert!(
        hashes(&received) == hashes(sent),
        "{}: {} of {}",
        path.display(),
        received.len(),
        sent.len()
    );
    for (received, sent) in received.windows(2).zip(sent.windows(2)) {
        let apart = |pair: &[Picture]| pair[1].time_ms - pair[0].time_ms;
        assert!((apart(received) - apart(sent)).abs() <= 1, "{received:?}, not {sent:?}");
    }
}

/// Returns the frames of sound in a file.
fn sounds(test: &str, path: &Path) -> Option<usize> {
    let mut command = Command::new("ffprobe");
    command.args(["-v", "error", "-select_streams", "a:0", "-show_entries", "packet=size"]);
    let text = client(test, command.args(["-of", "csv=p=0"]).arg(path))?.succeeded();
    let is_size = |line: &&[u8]| line.first().is_some_and(u8::is_ascii_digit);
    Some(text.split(|&byte| byte == b'\n').filter(is_size).count())
}

#[test]
fn every_frame_of_a_servers_tracks_is_recorded() {
    let test = "camera::every_frame_of_a_servers_tracks_is_recorded";
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let Some((path, sent)) = make(test, folder.path()) else { return };
    let server = Server::start(&[("film.mp4", &path)]);
    server.await_stream("film.mp4");
    let url = server.rtsp_url("film.mp4");
    let places: Vec<_> = ["udp", "tcp", "http"].map(|way| (way, Place::new())).into();
    let recorders: Vec<_> = places
        .iter()
        .map(|(way, place)| {
            Recorder::start(place, std::slice::from_ref(&url), &["--transport", way])
        })
        .collect();
    // The player writes both kinds of file meanwhile.
    let files = ["film.ts", "out.mp4"].map(|name| folder.path().join(name));
    let players: Vec<_> = files.iter().map(|file| play(&url, file)).collect();
    let wanted = sounds(test, &path);
    for ((way, place), recorder) in places.iter().zip(recorders) {
        let recorded = recorder.ended().well();
        assert_eq!(recorded.figure("lost"), 0, "{way}: {:#}", recorded.summary);
        let file = place.folder().join("0.ts");
        assert_same(test, &file, &sent);
        assert_eq!(sounds(test, &file), wanted, "{way}");
    }
    for (player, file) in players.into_iter().zip(&files) {
        let output = player.wait_with_output().expect("it was started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let verdict: Value = serde_json::from_slice(&output.stdout).expect("a verdict");
        let tracks = verdict["tracks"].as_array().expect("its tracks");
        assert_eq!(tracks[0]["units"], sent.len(), "{verdict:#}");
        assert_eq!(tracks[0]["key_units"], SECONDS, "{verdict:#}");
        assert_eq!(tracks[1]["broken_units"], 0, "{verdict:#}");
        assert_same(test, file, &sent);
        assert_eq!(sounds(test, file), wanted, "{}", file.display());
    }
    server.stop();
}

/// A title that is recorded as MP4, and ffmpeg's form of its sound for comparing.
struct Title {
    name: &'static str,
    options: &'static [&'static str],
    sound: &'static str,
}

const PICTURES: &str = "testsrc2=size=160x90:rate=25:duration=5";
const NOISE: &str = "anoisesrc=seed=7:amplitude=0.5:duration=5:sample_rate";

const TITLES: &[Title] = &[
    Title {
        name: "h264-aac.mp4",
        options: &["-c:v", "libx264", "-bf", "2", "-g", "25", "-c:a", "aac"],
        sound: "copy",
    },
    Title {
        name: "h265-opus.mkv",
        options: &["-c:v", "libx265", "-x265-params", "log-level=error", "-c:a", "libopus"],
        sound: "copy",
    },
    Title {
        name: "h264-ac3.mkv",
        options: &["-c:v", "libx264", "-bf", "0", "-c:a", "ac3"],
        sound: "copy",
    },
    Title {
        name: "av1-mp3.mp4",
        options: &["-c:v", "libaom-av1", "-cpu-used", "8", "-g", "25", "-c:a", "libmp3lame"],
        sound: "copy",
    },
    Title {
        name: "telephone.wav",
        options: &["-vn", "-ar", "8000", "-ac", "1", "-c:a", "pcm_mulaw"],
        sound: "pcm_s16le",
    },
    Title { name: "camera.wav", options: &["-vn", "-c:a", "pcm_s16le"], sound: "pcm_s16le" },
    Title { name: "studio.wav", options: &["-vn", "-c:a", "pcm_s24le"], sound: "pcm_s24le" },
];

/// Returns ffmpeg's sum of the sound of a file.
fn sum_of_sound(test: &str, path: &Path, form: &str) -> Option<String> {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-i"]).arg(path);
    command.args(["-map", "0:a", "-c:a", form, "-f", "md5", "-"]);
    Some(String::from_utf8_lossy(&client(test, &mut command)?.succeeded()).into_owned())
}

#[test]
fn every_codec_is_recorded_in_mp4() {
    let test = "camera::every_codec_is_recorded_in_mp4";
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let mut made = Vec::new();
    for title in TITLES {
        let path = folder.path().join(title.name);
        let mut command = Command::new("ffmpeg");
        command.args(["-hide_banner", "-loglevel", "error", "-f", "lavfi", "-i", PICTURES]);
        command.args(["-f", "lavfi", "-i", &format!("{NOISE}=48000")]).args(title.options);
        let Some(()) = film::put(test, &mut command, &path) else { continue };
        made.push((title, path));
    }
    let served: Vec<_> = made.iter().map(|(title, path)| (title.name, path.as_path())).collect();
    let server = Server::start(&served);
    let urls: Vec<_> = made
        .iter()
        .map(|(title, _)| {
            server.await_stream(title.name);
            server.rtsp_url(title.name)
        })
        .collect();
    let place = Place::new();
    let pattern = place.folder().join("{index}.mp4");
    let options = ["-o", pattern.to_str().expect("UTF-8"), "--transport", "tcp"];
    let recorder = Recorder::by(Command::new(PROGRAM), &place, &urls, &options);
    let recorded = recorder.ended().well();
    for (index, (title, path)) in made.iter().enumerate() {
        assert_eq!(recorded.stream(index)["lost"], 0, "{:#}", recorded.summary);
        let written = place.folder().join(format!("{index}.mp4"));
        let sums = [path, &written].map(|path| sum_of_sound(test, path, title.sound));
        assert_eq!(sums[0], sums[1], "{}", title.name);
        if !title.name.ends_with(".wav") {
            let Some(sent) = pictures(test, &[], path.as_os_str(), &[]) else { continue };
            assert_eq!(sent.len(), 125, "{}", title.name);
            assert_same(test, &written, &sent);
        }
    }
    server.stop();
}

/// Pictures two seconds apart: the last one's duration reaches the end, and nothing is requested
/// again.
#[test]
fn a_title_of_few_pictures_is_whole_with_the_last() {
    let test = "camera::a_title_of_few_pictures_is_whole_with_the_last";
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = folder.path().join("slides.mp4");
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-f", "lavfi", "-i"]);
    command.args(["testsrc2=size=320x180:rate=0.5:duration=8", "-c:v", "libx264"]);
    let Some(()) = film::put(test, &mut command, &path) else { return };
    let Some(sent) = pictures(test, &[], path.as_os_str(), &[]) else { return };
    assert_eq!(sent.len(), 4);
    let server = Server::start(&[("slides.mp4", &path)]);
    server.await_stream("slides.mp4");
    let url = server.rtsp_url("slides.mp4");
    let file = folder.path().join("played.ts");
    let player = play(&url, &file);
    let place = Place::new();
    Recorder::start(&place, std::slice::from_ref(&url), &[]).ended().well();
    assert_same(test, &place.folder().join("0.ts"), &sent);
    let output = player.wait_with_output().expect("it was started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_same(test, &file, &sent);
    server.stop();
}

/// Starts a player that writes a file.
fn play(url: &str, file: &Path) -> Child {
    let mut command = Command::new(PROGRAM);
    command.args(["play", url, "--json", "--output"]).arg(file);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program was built")
}

/// Starts ffmpeg as an encoder that plays a file twice, and writes its description.
fn encode(path: &Path, ports: [u16; 2], description: &Path) -> Child {
    let mut encoder = Command::new("ffmpeg");
    encoder.args(["-hide_banner", "-loglevel", "error", "-re", "-stream_loop", "1", "-i"]);
    encoder.arg(path);
    for (stream, port) in ["0:v", "0:a"].iter().zip(ports) {
        encoder.args(["-map", stream, "-c", "copy", "-f", "rtp"]);
        encoder.arg(format!("rtp://127.0.0.1:{port}"));
    }
    encoder.arg("-sdp_file").arg(description);
    encoder.stdin(Stdio::null()).spawn().expect("it made the film")
}

fn await_description(description: &Path) {
    await_true("ffmpeg writes its description", || {
        fs::read_to_string(description).is_ok_and(|text| text.contains("m=audio"))
    });
}

/// A killed encoder sends no BYE; after a restart it sends other SSRCs.
#[test]
fn an_encoder_that_is_started_anew_is_recorded_on() {
    let test = "camera::an_encoder_that_is_started_anew_is_recorded_on";
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let Some((path, sent)) = make(test, folder.path()) else { return };
    let description = folder.path().join("encoder.sdp");
    let ports = [free_port() & !1, free_port() & !1];
    let mut first = encode(&path, ports, &description);
    await_description(&description);
    let place = Place::new();
    let option = description.to_str().expect("UTF-8");
    let recorder = Recorder::start(&place, &[], &["--sdp", option]);
    thread::sleep(Duration::from_secs(3));
    first.kill().and_then(|()| first.wait()).expect("it was started");
    encode(&path, ports, &description).wait().expect("it made the film");
    let recorded = recorder.stop().well();
    let file = place.folder().join("0.ts");
    let Some(received) = pictures(test, &[], file.as_os_str(), &[]) else { return };
    // One clock over both, and counters whose restart is signalled.
    let is_later = |pair: &[Picture]| pair[0].time_ms < pair[1].time_ms;
    assert!(received.windows(2).all(is_later), "{received:?}");
    assert_eq!(recorded.figure("continuity_errors"), 0, "{:#}", recorded.summary);
    // For the second encoder, the recorder waits for a second of silence and a key frame.
    let least = 2 * sent.len() - 3 * 25;
    assert!(received.len() > least, "{} of {least}: {:#}", received.len(), recorded.summary);
    let last = received.iter().rposition(|one| one.hash == sent[sent.len() - 1].hash);
    assert!(last.is_some(), "the film's end came: {:#}", recorded.summary);
}

#[test]
fn an_encoder_is_recorded_by_its_description() {
    let test = "camera::an_encoder_is_recorded_by_its_description";
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let Some((path, sent)) = make(test, folder.path()) else { return };
    let description = folder.path().join("encoder.sdp");
    let ports = [free_port() & !1, free_port() & !1];
    let mut encoder = encode(&path, ports, &description);
    await_description(&description);
    let place = Place::new();
    let option = description.to_str().expect("UTF-8");
    let recorder = Recorder::start(&place, &[], &["--sdp", option]);
    encoder.wait().expect("it was started");
    let recorded = recorder.stop().well();
    assert_eq!(recorded.figure("lost"), 0, "{:#}", recorded.summary);
    let file = place.folder().join("0.ts");
    let Some(received) = pictures(test, &[], file.as_os_str(), &[]) else { return };
    // The recording began in the middle of the first pass; the second is complete.
    assert!(received.len() >= sent.len(), "{} pictures", received.len());
    let hashes = |all: &[Picture]| all.iter().map(|one| one.hash.clone()).collect::<Vec<_>>();
    let twice = [hashes(&sent), hashes(&sent)].concat();
    assert!(twice.ends_with(&hashes(&received)), "{} of {}", received.len(), twice.len());
    assert!(sounds(test, &file).is_none_or(|sounds| sounds > 300));
}
