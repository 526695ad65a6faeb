// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire inspect`: figures of files that ffmpeg made, compared with ffprobe's; findings with
//! their cures; and hostile, broken and missing files.
//!
//! Tests that need ffmpeg, ffprobe or an encoder are skipped without it, with the reason printed.

#![forbid(unsafe_code)]

mod harness;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use harness::{PROGRAM, watchdog};
use serde_json::Value;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);

const CLIP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/clip.ts");

/// Inputs of 12 s: a picture at 25 frames a second, and a sound.
const SOURCES: [&str; 8] = [
    "-f",
    "lavfi",
    "-i",
    "testsrc2=size=160x96:rate=25:duration=12",
    "-f",
    "lavfi",
    "-i",
    "sine=sample_rate=48000:duration=12",
];
const ENCODERS: [&str; 14] = [
    "-c:v",
    "libx264",
    "-preset",
    "ultrafast",
    "-bf",
    "3",
    "-g",
    "50",
    "-sc_threshold",
    "0",
    "-c:a",
    "aac",
    "-metadata:s:a:0",
    "language=deu",
];

fn folder() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder")
}

/// Returns a file made by ffmpeg; none, with the reason printed, where a program or encoder is
/// missing.
fn film(folder: &TempDir, name: &str, options: &[&[&str]]) -> Option<PathBuf> {
    let path = folder.path().join(name);
    let known = watchdog::run(Command::new("ffmpeg").args(["-hide_banner", "-encoders"]), LIMIT);
    let known = match known {
        Ok(known) => String::from_utf8_lossy(&known.succeeded()).into_owned(),
        Err(reason) => {
            eprintln!("skip: {name}: {reason}");
            return None;
        }
    };
    let words = options.iter().flat_map(|words| words.windows(2));
    let codecs = words.filter(|pair| ["-c:v", "-c:a"].contains(&pair[0]) && pair[1] != "copy");
    for encoder in codecs.map(|pair| pair[1]) {
        if !known.split_whitespace().any(|word| word == encoder) {
            eprintln!("skip: {name}: encoder {encoder} of ffmpeg: not installed");
            return None;
        }
    }
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-y"]).args(options.concat()).arg(&path);
    watchdog::run(&mut command, LIMIT).expect("it was there").succeeded();
    Some(path)
}

/// Returns streams and packets of a file by ffprobe.
fn probe(path: &Path) -> Value {
    let mut command = Command::new("ffprobe");
    command.args(["-hide_banner", "-loglevel", "error", "-of", "json"]);
    command.args(["-show_format", "-show_programs", "-show_streams", "-show_packets"]).arg(path);
    let json = watchdog::run(&mut command, LIMIT).expect("ffprobe comes with ffmpeg").succeeded();
    serde_json::from_slice(&json).expect("JSON")
}

fn inspect(arguments: &[&str], paths: &[&Path]) -> (Option<i32>, String, String) {
    let mut command = Command::new(PROGRAM);
    command.arg("inspect").args(arguments).args(paths);
    let watchdog::Outcome { status, stdout, stderr, .. } =
        watchdog::run(&mut command, LIMIT).expect("the program is there");
    (status.code(), String::from_utf8(stdout).expect("UTF-8"), stderr)
}

/// Returns the object of a file that can be read.
fn inspected(arguments: &[&str], path: &Path) -> Value {
    let (status, json, stderr) = inspect(&[&["--json"], arguments].concat(), &[path]);
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{json}");
    let mut all: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(all.as_array().map(Vec::len), Some(1), "{json}");
    all[0].take()
}

fn seconds(value: &Value) -> f64 {
    let text = value.as_str().unwrap_or_else(|| panic!("{value}: no text"));
    text.parse().unwrap_or_else(|error| panic!("{value}: {error}"))
}

#[track_caller]
fn assert_near(found: &Value, expected: f64, most: f64) {
    let found = found.as_f64().unwrap_or_else(|| panic!("{found}: no number"));
    assert!((found - expected).abs() <= most, "{found}, and {expected} was expected");
}

/// Returns the kinds of the findings.
fn kinds(inspected: &Value) -> Vec<&str> {
    let findings = inspected["warnings"].as_array().expect("a list");
    findings.iter().map(|finding| finding["kind"].as_str().expect("a word")).collect()
}

/// A packet of ffprobe: presentation and decoding times in seconds, size, key flag. For Matroska
/// ffprobe lacks some decoding times.
struct Packet {
    presented: f64,
    decoded: Option<f64>,
    bytes: u64,
    is_key: bool,
}

fn packets(probed: &Value, stream: u64) -> Vec<Packet> {
    let all = probed["packets"].as_array().expect("a list").iter();
    let of_stream = all.filter(|packet| packet["stream_index"] == stream);
    let packet = |packet: &Value| Packet {
        presented: seconds(&packet["pts_time"]),
        decoded: packet.get("dts_time").map(seconds),
        bytes: seconds(&packet["size"]) as u64,
        is_key: packet["flags"].as_str().expect("flags").starts_with('K'),
    };
    of_stream.map(packet).collect()
}

/// Compares each track with ffprobe's stream at the same index.
fn compare_tracks(path: &Path) -> Option<Value> {
    let (found, probed) = (inspected(&[], path), probe(path));
    assert_eq!((&found["streamable"], &found["reason"]), (&true.into(), &Value::Null));
    assert_near(&found["duration"], seconds(&probed["format"]["duration"]), 0.03);
    let tracks = found["tracks"].as_array().expect("a list");
    let streams = probed["streams"].as_array().expect("a list");
    assert_eq!(tracks.len(), streams.len());
    let mut bytes = 0;
    for (track, (stream, index)) in tracks.iter().zip(streams.iter().zip(0..)) {
        let packets = packets(&probed, index);
        let codec = track["codec"].as_str().expect("a name").split('.').next().unwrap();
        let name = match codec {
            "avc1" => "h264",
            "hvc1" => "hevc",
            "mp4a" => "aac",
            other => other,
        };
        assert_eq!(name, stream["codec_name"]);
        assert_eq!(track["media"], stream["codec_type"]);
        assert_eq!(track["samples"], packets.len(), "{track}");
        let keys: Vec<f64> =
            packets.iter().filter(|packet| packet.is_key).map(|packet| packet.presented).collect();
        assert_eq!(track["entries"], keys.len(), "{track}");
        let has_b_frames = stream["has_b_frames"].as_u64().is_some_and(|frames| frames > 0);
        assert_eq!(track["reordered"].as_u64().expect("a number") > 0, has_b_frames, "{track}");
        let behind = |at: usize| packets[..at].iter().any(|p| p.presented > packets[at].presented);
        let reordered = (0..packets.len()).filter(|&at| behind(at)).count();
        assert_eq!(track["reordered"], reordered);
        let first = packets.iter().map(|packet| packet.presented).fold(f64::MAX, f64::min);
        assert_near(&track["start_s"], first, 0.002);
        if track["media"] == "video" {
            let end = found["duration"].as_f64().expect("a number");
            let ends = keys[1..].iter().copied().chain([end]);
            let gaps = keys.iter().zip(ends).map(|(from, to)| to - from);
            assert_near(&track["entry_gap_s"], gaps.fold(0.0, f64::max), 0.03);
        }
        let sum: u64 = packets.iter().map(|packet| packet.bytes).sum();
        bytes += sum;
        let mean = sum as f64 * 8.0 / seconds(&probed["format"]["duration"]);
        assert_near(&track["bits_per_second"], mean, mean * 0.02);
        compare_rates(track, &packets);
        assert_eq!(track["plan"]["estimated"], false);
        assert!(track["plan"]["packets"].as_u64() >= track["plan"]["segment_runs"].as_u64());
        let wire = track["plan"]["wire_bytes"].as_u64().expect("a number");
        let headers = track["plan"]["header_bytes"].as_u64().expect("a number");
        let rtp = track["plan"]["packets"].as_u64().expect("a number") * 12;
        assert!(headers >= rtp && wire > headers && wire - headers <= sum, "{}", track["plan"]);
    }
    let whole = |field: &str| found["plan"][field].as_u64().expect("a number");
    let of_tracks = |field: &str| {
        tracks.iter().map(|track| track["plan"][field].as_u64().expect("a number")).sum::<u64>()
    };
    for field in ["packets", "segment_runs", "wire_bytes", "header_bytes", "chapters"] {
        assert_eq!(whole(field), of_tracks(field), "{field}");
    }
    let series = found["bitrate"]["series"].as_array().expect("a list").iter();
    assert_eq!(series.map(|rate| rate.as_u64().expect("a number")).sum::<u64>(), bytes * 8);
    Some(found)
}

/// Compares the series of a track with ffprobe's bits of each second. The first decoding time of
/// ffprobe may differ, so the sums of whole files must agree, and each second within a shift of
/// less than a tenth.
fn compare_rates(track: &Value, packets: &[Packet]) {
    let series: Vec<u64> = track["bitrate"]["series"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|rate| rate.as_u64().expect("a number"))
        .collect();
    assert_eq!(series.iter().sum::<u64>(), packets.iter().map(|p| p.bytes * 8).sum::<u64>());
    let peak = track["bitrate"]["peak"].as_u64().expect("a number");
    assert_eq!(peak, series.iter().copied().max().unwrap());
    assert_eq!(series[track["bitrate"]["peak_at_s"].as_u64().expect("a number") as usize], peak);
    let Some(decoded) = packets.iter().map(|p| p.decoded).collect::<Option<Vec<_>>>() else {
        return;
    };
    let first = decoded.iter().copied().fold(f64::MAX, f64::min);
    let within = |second: usize, slack: f64| {
        let (from, to) = (second as f64 - slack, second as f64 + 1.0 + slack);
        let timed = packets.iter().zip(&decoded);
        let due = timed.filter(|(_, time)| (from..to).contains(&(*time - first)));
        due.map(|(packet, _)| packet.bytes * 8).sum::<u64>()
    };
    for (second, &rate) in series.iter().enumerate() {
        let (least, most) = (within(second, -0.1), within(second, 0.1));
        assert!((least..=most).contains(&rate), "second {second}: {least} {rate} {most}");
    }
}

#[test]
fn figures_of_mp4_and_matroska_are_those_of_ffprobe() {
    let folder = folder();
    let parts: [&[&str]; 2] = [&SOURCES, &ENCODERS];
    let Some(path) = film(&folder, "a.mp4", &parts) else { return };
    let Some(found) = compare_tracks(&path) else { return };
    assert_eq!(found["container"], "MP4");
    assert_eq!(found["tracks"][0]["timescale"], 12_800);
    assert_eq!(found["tracks"][1]["language"], "deu");
    assert_near(&found["tracks"][0]["shift_s"], -0.08, 1e-9);
    assert_eq!(kinds(&found), ["moov_behind_media"]);

    let copy = ["-i", path.to_str().expect("a plain name"), "-c", "copy"];
    let quick = [&copy[..], &["-movflags", "+faststart"]];
    let found = compare_tracks(&film(&folder, "quick.mp4", &quick).expect("as before")).unwrap();
    assert_eq!(kinds(&found), [""; 0]);
    let pieces = [&copy[..], &["-movflags", "+frag_keyframe+empty_moov+default_base_moof"]];
    let found = compare_tracks(&film(&folder, "pieces.mp4", &pieces).expect("as before")).unwrap();
    assert_eq!(found["container"], "fragmented MP4");
    let found = compare_tracks(&film(&folder, "a.mkv", &[&copy]).expect("as before")).unwrap();
    assert_eq!((&found["container"], kinds(&found).len()), (&"Matroska".into(), 0));
    assert_eq!(found["tracks"][0]["shift_s"], Value::Null, "an edit list is MP4's");
}

#[test]
fn figures_of_a_transport_stream_are_those_of_ffprobe() {
    let folder = folder();
    let parts: [&[&str]; 2] = [&SOURCES, &ENCODERS];
    let Some(path) = film(&folder, "a.ts", &parts) else { return };
    let (found, probed) = (inspected(&[], &path), probe(&path));
    assert_eq!(found["container"], "MPEG transport stream");
    assert_near(&found["duration"], seconds(&probed["format"]["duration"]), 0.2);
    let programmes = probed["programs"].as_array().expect("a list");
    assert_eq!(found["programmes"].as_array().map(Vec::len), Some(programmes.len()));
    let (programme, expected) = (&found["programmes"][0], &programmes[0]);
    for (field, theirs) in [("number", "program_num"), ("pcr_pid", "pcr_pid")] {
        assert_eq!(programme[field], expected[theirs]);
    }
    let streams = expected["streams"].as_array().expect("a list");
    for (stream, expected) in programme["streams"].as_array().unwrap().iter().zip(streams) {
        let pid = format!("0x{:x}", stream["pid"].as_u64().expect("a number"));
        assert_eq!(pid, expected["id"]);
        assert_eq!(stream["media"], expected["codec_type"]);
        for field in ["width", "height", "channels"] {
            assert_eq!(stream[field], expected[field], "{field}");
        }
        assert_eq!(stream["language"], expected["tags"]["language"]);
    }
    assert_eq!(programme["streams"][0]["pictures_per_second"], 25.0);
    let ts_packets = fs::metadata(&path).expect("it was made").len() / 188;
    assert_eq!(found["plan"]["packets"], ts_packets.div_ceil(7));
    assert_eq!(found["plan"]["segment_runs"], ts_packets.div_ceil(7).div_ceil(49));
    let wire = ts_packets * 188 + ts_packets.div_ceil(7) * 12;
    assert_eq!(found["plan"]["wire_bytes"], wire);
    let series = found["bitrate"]["series"].as_array().expect("a list").iter();
    let bits: u64 = series.map(|rate| rate.as_u64().expect("a number")).sum();
    assert_eq!(bits, ts_packets * 188 * 8);
    // The first entry is packet 0, before the first picture's own.
    let keys = packets(&probed, 0).iter().filter(|packet| packet.is_key).count();
    let entries = found["stream"]["entries"].as_u64().expect("a number") as usize;
    assert!((keys..=keys + 1).contains(&entries), "{entries}, and {keys} key frames");
    assert_near(&found["entry_gap_s"], 2.0, 0.2);
    assert_eq!(kinds(&found), [""; 0]);
}

#[test]
fn places_to_start_without_their_parameter_sets_are_counted() {
    let folder = folder();
    let mut file = fs::read(CLIP).expect("it is ours");
    let field = "entries_without_parameter_sets";
    assert_eq!(inspected(&[], Path::new(CLIP))[field], Value::Null);
    // Later parameter sets become NAL units without a meaning.
    for kind in [0x67, 0x68] {
        let found = file.windows(4).enumerate().filter(|(_, code)| *code == [0, 0, 1, kind]);
        let places: Vec<usize> = found.map(|(at, _)| at + 3).skip(1).collect();
        places.into_iter().for_each(|at| file[at] = 0x0c);
    }
    let path = folder.path().join("once.ts");
    fs::write(&path, file).expect("room");
    let found = inspected(&[], &path);
    let (lacking, all) = (&found[field], &found["stream"]["entries"]);
    assert_eq!((lacking, all), (&13.into(), &15.into()));
    let (_, text, _) = inspect(&[], &[&path]);
    assert!(text.contains("parameter sets: 13 of 15 random-access points lack them; "), "{text}");
}

#[test]
fn streams_that_are_no_tracks_are_named() {
    let folder = folder();
    let parts: [&[&str]; 2] = [&SOURCES, &ENCODERS];
    let old: [&[&str]; 3] = [
        &["-i", CLIP],
        &["-map", "0:v", "-map", "0:a", "-map", "0:v"],
        &["-c", "copy", "-c:v:1", "mpeg2video"],
    ];
    for (name, parts, expected) in [("a.ts", &parts[..], None), ("b.ts", &old, Some("PID 258, "))] {
        let Some(path) = film(&folder, name, parts) else { return };
        let found = inspected(&[], &path)["stream"]["elementary_left_out"].take();
        let reason = found[0].as_str();
        assert_eq!(reason.and_then(|reason| reason.get(..9)), expected, "{found}");
        let (_, text, _) = inspect(&[], &[&path]);
        let line = reason.map(|reason| format!("\n  not among its tracks (?es): {reason}\n"));
        assert!(line.is_none_or(|line| text.contains(&line)), "{text}");
    }
}

#[test]
fn sampled_figures_are_near_the_exact_ones_and_named() {
    let folder = folder();
    let parts: [&[&str]; 2] = [&SOURCES, &ENCODERS];
    let Some(path) = film(&folder, "a.mp4", &parts) else { return };
    let (all, some) = (inspected(&["--seconds=all"], &path), inspected(&["--seconds=4"], &path));
    assert_eq!(all["plan"]["estimated"], false);
    assert_eq!(some["plan"]["estimated"], true);
    assert_eq!(some["plan"]["chapters"], 8, "four of each track");
    for field in ["packets", "wire_bytes", "header_bytes", "segment_runs"] {
        let exact = all["plan"][field].as_f64().expect("a number");
        assert_near(&some["plan"][field], exact, exact * 0.15);
    }
    let (_, text, _) = inspect(&["--seconds=4"], &[&path]);
    assert!(text.contains("estimated from 8 s laid out (--seconds all)"), "{text}");
    for wrong in ["0", "-1", "some"] {
        let (status, _, stderr) = inspect(&[&format!("--seconds={wrong}")], &[&path]);
        assert_eq!(status, Some(2), "{stderr}");
    }
}

#[test]
fn findings_have_their_cures() {
    let folder = folder();
    let slow = ["-f", "lavfi", "-i", "testsrc2=size=64x64:rate=5:duration=50"];
    let rare = ["-c:v", "libx264", "-preset", "ultrafast", "-g", "999", "-keyint_min", "999"];
    let Some(path) = film(&folder, "rare.mkv", &[&slow, &rare]) else { return };
    let found = inspected(&[], &path);
    assert_eq!(kinds(&found), ["far_random_access"]);
    let finding = &found["warnings"][0];
    assert!(finding["message"].as_str().unwrap().contains("no random-access point for 50."));
    assert!(finding["cure"].as_str().unwrap().contains("ffmpeg"), "{finding}");
    let (_, text, _) = inspect(&[], &[&path]);
    assert!(text.contains("  warning: track 1: no random-access point for 50."), "{text}");

    let noisy = "color=black:size=160x96:rate=25:duration=12,\
                 noise=alls=100:allf=t:enable='between(t,7,7.9)'";
    let noisy = ["-f", "lavfi", "-i", noisy, "-c:v", "libx264", "-preset", "ultrafast"];
    let found = inspected(&[], &film(&folder, "peak.mkv", &[&noisy]).expect("as before"));
    assert_eq!(kinds(&found), ["bitrate_peak"], "{found}");
    let message = found["warnings"][0]["message"].as_str().expect("a message");
    assert!(message.starts_with("second 7 (from 0:00:07.000) has "), "{message}");

    let options = ["-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-c:a", "libopus"];
    let Some(path) = film(&folder, "left.webm", &[&SOURCES, &options]) else { return };
    let found = inspected(&[], &path);
    assert_eq!((kinds(&found), &found["codecs"]), (vec!["left_out"], &"opus".into()));
    let message = found["warnings"][0]["message"].as_str().expect("a message");
    assert!(message.starts_with("not sent: track 1 (V_VP8): "), "{message}");
}

#[test]
fn parts_that_cannot_be_laid_out_are_counted() {
    let folder = folder();
    let parts: [&[&str]; 3] = [&SOURCES, &ENCODERS, &["-an"]];
    let Some(path) = film(&folder, "a.mp4", &parts) else { return };
    let whole = inspected(&[], &path);
    assert_eq!(whole["plan"]["faults"], 0);
    // Lengths of NAL units that exceed their samples.
    let mut file = File::options().write(true).open(&path).expect("it is ours");
    file.seek(SeekFrom::Start(2000)).expect("it is longer");
    file.write_all(&[0xff; 5000]).expect("room");
    let found = inspected(&[], &path);
    assert!(found["plan"]["faults"].as_u64() > Some(0), "{}", found["plan"]);
    assert!(kinds(&found).contains(&"not_laid_out"), "{:?}", kinds(&found));
}

/// Reading all of it would exceed the test's limit.
#[test]
fn large_file_is_not_read_whole() {
    let folder = folder();
    let parts: [&[&str]; 2] = [&SOURCES, &ENCODERS];
    let Some(path) = film(&folder, "a.mp4", &parts) else { return };
    // A hole of a terabyte in a box that no reader needs.
    let bytes = 1_u64 << 40;
    let mut file = File::options().append(true).open(&path).expect("it is ours");
    file.write_all(&[&[0, 0, 0, 1], &b"free"[..], &bytes.to_be_bytes()].concat()).expect("room");
    let before = file.metadata().expect("it is open").len() - 16;
    file.set_len(before + bytes).expect("a file of holes");
    let found = inspected(&[], &path);
    assert_eq!((&found["streamable"], &found["bytes"]), (&true.into(), &(before + bytes).into()));
    assert_eq!(found["plan"]["estimated"], false);
}

#[test]
fn file_that_is_no_stream_is_a_finding() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("empty.ts"), b"").expect("room");
    fs::write(at("talk.avi"), b"RIFF....AVI ").expect("room");
    fs::write(at("notes.txt"), [b'x'; 5000]).expect("room");
    let cut = [&[0, 0, 0, 16][..], b"ftypisom\0\0\0\0", &[0, 0, 1, 0], b"mdat", &[7; 40]].concat();
    fs::write(at("cut.mp4"), cut).expect("room");
    for (name, container, reason) in [
        ("empty.ts", Value::Null, "empty file: 0 bytes"),
        ("talk.avi", Value::Null, "AVI: download only; ffmpeg -i "),
        (
            "notes.txt",
            Value::Null,
            "unknown format: not MP4, Matroska, MPEG audio, ADTS, WAV or MPEG tr",
        ),
        ("cut.mp4", "MP4".into(), "MP4 without its index (moov): it was never written"),
    ] {
        let found = inspected(&[], &at(name));
        assert_eq!((&found["streamable"], &found["container"]), (&false.into(), &container));
        let actual = found["reason"].as_str().expect("a reason");
        assert!(actual.starts_with(reason), "{name}: {actual}");
        let (status, text, _) = inspect(&[], &[&at(name)]);
        assert_eq!(status, Some(0));
        assert!(text.contains(&format!("  not streamed: {reason}")), "{text}");
        assert!(text.contains("; download is served\n"), "{text}");
    }
}

/// Samples are in memory beside the headers of packets, but are not headers.
#[test]
fn packets_of_wav_have_the_header_of_rtp_alone() {
    let folder = folder();
    let path = folder.path().join("sound.wav");
    // 16-bit stereo at 48 kHz.
    let format = [[1_u16, 2].map(u16::to_le_bytes).concat(), 48_000_u32.to_le_bytes().to_vec()];
    let format = [format.concat(), vec![0, 0xee, 2, 0, 4, 0, 16, 0]].concat();
    let chunk =
        |id: &[u8; 4], body: &[u8]| [id, &(body.len() as u32).to_le_bytes()[..], body].concat();
    let sound = chunk(b"data", &vec![7; 2 * 192_000]);
    let chunks = [b"WAVE".to_vec(), chunk(b"fmt ", &format), sound].concat();
    fs::write(&path, chunk(b"RIFF", &chunks)).expect("room");
    let found = inspected(&[], &path);
    assert_eq!((&found["streamable"], &found["container"]), (&true.into(), &"WAV".into()));
    let track = &found["tracks"][0];
    assert_eq!((&track["codec"], &track["samples"]), (&"L16".into(), &100.into()), "{found:#}");
    let plan = &track["plan"];
    assert_eq!((&plan["packets"], &plan["segment_runs"]), (&300.into(), &100.into()), "{plan:#}");
    assert_eq!(plan["header_bytes"], 300 * 12, "{plan:#}");
    assert_eq!(plan["wire_bytes"], 2 * 192_000 + 300 * 12, "{plan:#}");
}

/// Truncated to every length, or with flipped bytes: a report or a finding results, and no panic.
#[test]
fn broken_files_are_reported() {
    let folder = folder();
    let path = folder.path().join("broken");
    let clip = fs::read(CLIP).expect("it is in the repository");
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds/mp4");
    let mut files = vec![clip[..188 * 200].to_vec()];
    for seed in fs::read_dir(seeds).expect("seeds") {
        // The first byte is for the fuzzer.
        files.push(fs::read(seed.expect("a seed").path()).expect("readable")[1..].to_vec());
    }
    for file in &files {
        let mut cases: Vec<Vec<u8>> =
            (0..8).map(|part| file[..file.len() * part / 8].to_vec()).collect();
        for at in (0..file.len().min(4000)).step_by(397) {
            let mut broken = file.clone();
            broken[at..].iter_mut().step_by(211).for_each(|byte| *byte ^= 0xa5);
            cases.push(broken);
        }
        for case in cases {
            fs::write(&path, &case).expect("room");
            let (status, json, stderr) = inspect(&["--json"], &[&path]);
            assert_eq!((status, stderr.as_str()), (Some(0), ""), "{} bytes", case.len());
            let found: Value = serde_json::from_str(&json).expect("JSON");
            assert_eq!(found[0]["streamable"] == true, found[0]["reason"].is_null(), "{found}");
        }
    }
}

#[test]
fn files_that_cannot_be_read_are_named_and_the_others_are_shown() {
    let folder = folder();
    let missing = folder.path().join("missing.ts");
    let clip = Path::new(CLIP);
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is part of coreutils");
    assert!(made.success());
    let paths = [missing.as_path(), folder.path(), clip, &pipe];
    let (status, text, stderr) = inspect(&[], &paths);
    assert_eq!(status, Some(1));
    assert!(text.starts_with(CLIP) && text.contains("programme 1"), "{text}");
    for words in
        ["missing.ts: no such file", "it is a folder; name the files", "not a regular file"]
    {
        assert!(stderr.contains(words), "{stderr}");
    }
    assert_eq!(stderr.lines().count(), 3, "{stderr}");
    let (status, json, _) = inspect(&["--json"], &paths);
    let all: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((status, all.as_array().map(Vec::len)), (Some(1), Some(4)));
    assert_eq!((&all[0]["error"], &all[0]["streamable"]), (&"no such file".into(), &Value::Null));
    assert_eq!(all[2]["streamable"], true);
    let (status, ..) = inspect(&[], &[]);
    assert_eq!(status, Some(2), "no file named");
}

#[test]
fn names_of_strangers_move_no_cursor() {
    let folder = folder();
    let name = "a\u{1b}[2J\n  warning: forged\u{202e}.ts";
    let path = folder.path().join(name);
    fs::copy(CLIP, &path).expect("room");
    let missing = folder.path().join("b\u{1b}[2J\nforged");
    let (_, text, stderr) = inspect(&[], &[&path, &missing]);
    let shown = "a\\u001b[2J\\n  warning: forged\\u202e.ts\n";
    assert!(text.lines().next().is_some_and(|line| format!("{line}\n").ends_with(shown)), "{text}");
    assert!(stderr.ends_with("b\\u001b[2J\\nforged: no such file\n"), "{stderr}");
    assert!(![&text, &stderr].iter().any(|text| text.contains('\u{1b}')), "{text:?} {stderr:?}");
    let found = inspected(&[], &path);
    assert!(found["name"].as_str().expect("a name").ends_with(name));
}

#[test]
fn plot_is_as_wide_as_the_terminal_or_60_columns() {
    let folder = folder();
    let parts: [&[&str]; 3] = [&SOURCES, &ENCODERS, &["-an", "-t", "2"]];
    let Some(path) = film(&folder, "a.mkv", &parts) else { return };
    let (_, text, _) = inspect(&[], &[&path, Path::new(CLIP)]);
    let is_plot = |line: &&str| line.chars().any(|block| ('▁'..='█').contains(&block));
    let plots: Vec<_> = text.lines().filter(is_plot).collect();
    assert_eq!(plots.len(), 2, "{text}");
    assert_eq!(plots[0].trim().chars().count(), 2, "a column a second");
    assert!(plots[1].chars().count() <= 60, "{text}");
}

/// Collects the names of fields of objects, and of nested objects.
fn fields(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(name, value)| {
            found.insert(name.clone());
            fields(value, found);
        }),
        Value::Array(values) => values.iter().for_each(|value| fields(value, found)),
        _ => {}
    }
}

#[test]
fn every_field_is_documented() {
    let folder = folder();
    let parts: [&[&str]; 2] = [&SOURCES, &ENCODERS];
    let mut named: BTreeSet<String> =
        ["live", "reason", "left_out", "error"].map(str::to_owned).into();
    fields(&inspected(&[], Path::new(CLIP)), &mut named);
    if let Some(path) = film(&folder, "a.mp4", &parts) {
        fields(&inspected(&[], &path), &mut named);
    }
    assert!(named.len() > 30 && named.contains("segment_runs"), "{named:?}");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/index-json.md");
    let document = fs::read_to_string(path).expect("it lies beside the others");
    let missing: Vec<_> =
        named.iter().filter(|name| !document.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/index-json.md names no {missing:?}");
}
