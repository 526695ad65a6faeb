// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests plans of files by ffmpeg against the output of ffprobe, an independent parser: key frames,
//! elementary streams and duration; and the clock against the requested bitrate.
//!
//! Skipped, with the reason printed, where ffmpeg, ffprobe or an encoder is missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use media::{PacketPlan, RtpIdentity, Scanner, TICKS_PER_SECOND, TICKS_PER_TIMESTAMP};

const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };

const VIDEO: [&str; 4] = ["-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25:duration=8"];
const SOUND: [&str; 4] = ["-f", "lavfi", "-i", "sine=duration=8"];

/// Output of a program; none, with the reason printed, where it is not installed.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = match Command::new(program).arg("-hide_banner").args(arguments).output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skip: {program}: not installed: {error}; apt install ffmpeg");
            return None;
        }
    };
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {complaint}");
    Some(String::from_utf8(output.stdout).expect("ffmpeg prints UTF-8"))
}

/// A file made by ffmpeg with these encoders and options.
fn film(name: &str, encoders: &[&str], arguments: &[&[&str]]) -> Option<PathBuf> {
    let known = output("ffmpeg", &["-encoders"])?;
    for encoder in encoders {
        if !known.split_whitespace().any(|word| word == *encoder) {
            eprintln!("skip: encoder {encoder} of ffmpeg: not installed");
            return None;
        }
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut all = vec!["-loglevel", "error", "-y"];
    all.extend(arguments.concat());
    all.extend(["-f", "mpegts", path.to_str().expect("a path in UTF-8")]);
    output("ffmpeg", &all)?;
    Some(path)
}

/// Lines of comma-separated fields that ffprobe prints for these entries of a file.
fn probe(path: &Path, entries: &str, streams: &[&str]) -> Option<Vec<Vec<String>>> {
    let path = path.to_str().expect("a path in UTF-8");
    let mut arguments = vec!["-loglevel", "error", "-of", "csv=p=0", "-show_entries", entries];
    arguments.extend(streams);
    arguments.push(path);
    let lines = output("ffprobe", &arguments)?;
    let fields = |line: &str| line.split(',').map(str::to_owned).collect();
    Some(lines.lines().filter(|line| !line.is_empty()).map(fields).collect())
}

fn scan(file: &[u8]) -> PacketPlan {
    let mut scanner = Scanner::new();
    file.chunks(100_000).for_each(|piece| scanner.feed(piece));
    scanner.finish(file.len() as u64, IDENTITY).expect("ffmpeg writes good streams")
}

/// Checks the plan of a file against ffprobe; `kind` is that of the stream to start with.
fn compare(path: &Path, kind: &str) -> Option<PacketPlan> {
    let file = fs::read(path).expect("ffmpeg wrote it");
    let plan = scan(&file);
    assert_eq!((plan.losses_seen(), plan.tail_bytes(), plan.discontinuities()), (0, 0, 0));
    assert_eq!(plan.ts_packets() * plan.stride(), file.len() as u64);

    let streams = probe(path, "stream=codec_name,id", &[])?;
    let mut expected: Vec<_> = streams
        .iter()
        .filter(|fields| fields.len() >= 2)
        .map(|fields| {
            let pid = u16::from_str_radix(fields[1].trim_start_matches("0x"), 16).unwrap();
            (pid, stream_type(&fields[0]))
        })
        .collect();
    // ffprobe lists a stream once more for its programme.
    expected.sort_unstable();
    expected.dedup();
    let mut found: Vec<_> =
        plan.streams().iter().map(|stream| (stream.pid, stream.stream_type)).collect();
    found.sort_unstable();
    assert_eq!(found, expected, "PIDs and stream types");

    assert_eq!(access_units(&plan), key_frames(path, kind, &plan)?, "key frames");
    let keys = plan.entries().iter().filter(|entry| entry.access_unit > 0);
    let presented: Vec<_> = keys.map(|key| key.presented_ticks / TICKS_PER_TIMESTAMP).collect();
    assert_eq!(presented, key_times(path, kind)?, "presentation times of key frames");

    let seconds: f64 = probe(path, "format=duration", &[])?[0][0].parse().unwrap();
    let found = plan.duration_ticks() as f64 / TICKS_PER_SECOND as f64;
    // ffprobe counts to the start of the last PES packet, which holds up to 0.28 s of sound.
    assert!((found - seconds).abs() < 0.3, "duration {found} s, by ffprobe {seconds} s");
    Some(plan)
}

/// By ISO/IEC 13818-1 table 2-34.
fn stream_type(codec: &str) -> u8 {
    match codec {
        "mpeg2video" => 0x02,
        "mp2" => 0x03,
        "aac" => 0x0f,
        "mpeg4" => 0x10,
        "h264" => 0x1b,
        "hevc" => 0x24,
        // Blu-ray's.
        "ac3" => 0x81,
        _ => panic!("codec {codec}"),
    }
}

/// Presentation times of the key frames since the first frame, at 90 kHz.
fn key_times(path: &Path, kind: &str) -> Option<Vec<u64>> {
    let packets = probe(path, "packet=pts,pos,flags", &["-select_streams", kind])?;
    let first: u64 = packets[0][0].parse().unwrap();
    // A PES packet of sound holds several frames, and only the first has a place.
    let keys = packets.iter().filter(|fields| fields[2].starts_with('K') && fields[1] != "N/A");
    Some(keys.map(|fields| fields[0].parse::<u64>().unwrap() - first).collect())
}

/// Transport stream packets where the packets that ffprobe flags as key frames start.
fn key_frames(path: &Path, kind: &str, plan: &PacketPlan) -> Option<Vec<u64>> {
    let packets = probe(path, "packet=pos,flags", &["-select_streams", kind])?;
    let mut positions: Vec<u64> = packets
        .iter()
        .filter(|fields| fields[1].starts_with('K') && fields[0] != "N/A")
        .map(|fields| fields[0].parse::<u64>().unwrap() / plan.stride())
        .collect();
    // Several frames of sound are in one PES packet.
    positions.dedup();
    assert!(positions.len() >= 3, "{positions:?}");
    Some(positions)
}

/// Transport stream packets where the plan's entries start, without packet 0.
fn access_units(plan: &PacketPlan) -> Vec<u64> {
    plan.entries().iter().map(|entry| entry.access_unit).filter(|&at| at > 0).collect()
}

/// The same file without any random_access_indicator.
fn without_indicators(path: &Path) -> Vec<u8> {
    let mut file = fs::read(path).expect("ffmpeg wrote it");
    for packet in file.chunks_exact_mut(188) {
        if packet[3] & 0x20 != 0 && packet[4] > 0 {
            packet[5] &= !0x40;
        }
    }
    file
}

fn compare_video(name: &str, encoders: &[&str], arguments: &[&str]) -> Option<()> {
    let path = film(name, encoders, &[&VIDEO, &SOUND, arguments])?;
    let plan = compare(&path, "v:0")?;
    // ffmpeg sets the indicator; without it, the start codes alone must give the same result.
    assert_eq!(scan(&without_indicators(&path)).entries(), plan.entries());
    Some(())
}

#[test]
fn h264_with_tables_at_key_frames() {
    let options = ["-c:v", "libx264", "-g", "50", "-mpegts_flags", "+pat_pmt_at_frames"];
    let Some(path) = film("h264.ts", &["libx264"], &[&VIDEO, &SOUND, &options]) else { return };
    let Some(plan) = compare(&path, "v:0") else { return };
    for entry in &plan.entries()[1..] {
        // SDT, PAT and PMT, or PAT and PMT, directly precede the frame.
        assert_eq!(entry.access_unit - entry.ts_packet, 2, "{entry:?}");
    }
}

#[test]
fn h264_with_tables_at_their_own_times() {
    compare_video("h264-plain.ts", &["libx264"], &["-c:v", "libx264", "-g", "50"]);
}

#[test]
fn h264_with_open_groups_of_pictures() {
    let options = ["-c:v", "libx264", "-x264-params", "open-gop=1:keyint=40:bframes=3"];
    compare_video("h264-open.ts", &["libx264"], &options);
}

#[test]
fn h264_of_film_rate_with_key_frames_off_the_second() {
    let video = ["-f", "lavfi", "-i", "testsrc2=size=320x180:rate=24000/1001:duration=20"];
    let options = ["-c:v", "libx264", "-bf", "3", "-force_key_frames", "expr:gte(t,n_forced*2)"];
    let Some(path) = film("film-rate.ts", &["libx264"], &[&video, &SOUND, &options]) else {
        return;
    };
    compare(&path, "v:0");
}

#[test]
fn h265() {
    let options = ["-c:v", "libx265", "-x265-params", "log-level=error:keyint=30"];
    compare_video("h265.ts", &["libx265"], &options);
}

#[test]
fn mpeg2_video() {
    let options = ["-c:v", "mpeg2video", "-g", "12", "-bf", "2", "-c:a", "mp2"];
    compare_video("mpeg2.ts", &["mpeg2video", "mp2"], &options);
}

#[test]
fn mpeg4_video() {
    compare_video("mpeg4.ts", &["mpeg4"], &["-c:v", "mpeg4", "-g", "25"]);
}

#[test]
fn sound_alone() {
    let Some(path) = film("sound.ts", &["aac"], &[&SOUND, &["-c:a", "aac"]]) else { return };
    compare(&path, "a:0");
}

#[test]
fn packets_of_192_bytes() {
    let encoders = ["libx264", "ac3"];
    let options = ["-c:v", "libx264", "-g", "25", "-c:a", "ac3", "-mpegts_m2ts_mode", "1"];
    let Some(path) = film("h264.m2ts", &encoders, &[&VIDEO, &SOUND, &options]) else { return };
    let Some(plan) = compare(&path, "v:0") else { return };
    assert_eq!(plan.stride(), 192);
}

#[test]
fn clock_of_constant_bitrate() {
    let rate = 2_000_000;
    let options = ["-c:v", "mpeg2video", "-b:v", "800k", "-muxrate", "2000000"];
    let Some(path) = film("constant.ts", &["mpeg2video"], &[&VIDEO, &SOUND, &options]) else {
        return;
    };
    let plan = scan(&fs::read(&path).expect("ffmpeg wrote it"));
    assert!(plan.clock().len() > 100);
    for packet in 0..plan.packets() {
        let expected = packet * 7 * 188 * 8 * TICKS_PER_SECOND / rate;
        let found = plan.ticks(packet);
        // References are rounded to a tick; those at the ends are drawn out.
        assert!(found.abs_diff(expected) < 300, "packet {packet}: {found}, not {expected}");
    }
    assert!(plan.bits_per_second().abs_diff(rate) < rate / 1000);
}
