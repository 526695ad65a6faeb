// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests key pictures of files by ffmpeg, concatenated: ffmpeg shows each of them, and each equals
//! the picture at that place of the file.
//!
//! Encoders are configured for open groups of pictures, interlacing, variable length coding and
//! several slices. Skipped, with the reason printed, if ffmpeg or an encoder is missing.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use media::key_pictures::{KeyPictures, PictureCoding};
use media::{AssetPlan, Demuxer, RtpIdentity, Scanner, TICKS_PER_SECOND};

const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };

/// Output of ffmpeg, with `input` on its standard input; `None` if it is not installed.
fn ffmpeg(arguments: &[&str], input: Vec<u8>) -> Option<Vec<u8>> {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error"]).args(arguments);
    let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match streams.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("skip: ffmpeg: not installed: {error}; apt install ffmpeg");
            return None;
        }
    };
    let mut to = child.stdin.take().expect("it is piped");
    let writer = std::thread::spawn(move || to.write_all(&input));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("it does not panic").expect("ffmpeg reads all of it");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {complaint}");
    Some(output.stdout)
}

/// A file of 8 s; none, with the reason printed, without the encoder.
fn film(name: &str, encoder: &str, options: &str) -> Option<PathBuf> {
    let encoders = ffmpeg(&["-encoders"], Vec::new())?;
    if !String::from_utf8_lossy(&encoders).split_whitespace().any(|word| word == encoder) {
        eprintln!("skip: encoder {encoder} of ffmpeg: not installed");
        return None;
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let source = "testsrc2=size=320x192:rate=25:duration=8";
    let mut all = vec!["-y", "-f", "lavfi", "-i", source, "-pix_fmt", "yuv420p", "-c:v", encoder];
    all.extend(options.split_whitespace());
    all.push(path.to_str().expect("a path in UTF-8"));
    ffmpeg(&all, Vec::new())?;
    Some(path)
}

fn plan(bytes: &[u8]) -> AssetPlan {
    match Demuxer::of(bytes, bytes.len() as u64) {
        Some(mut demuxer) => {
            while !demuxer.advance(bytes, 1000).expect("ffmpeg writes good files") {}
            demuxer.finish(|| IDENTITY).expect("it can be streamed").into()
        }
        None => {
            let mut scanner = Scanner::new();
            scanner.feed(bytes);
            scanner.finish(bytes.len() as u64, IDENTITY).expect("it can be streamed").into()
        }
    }
}

/// The pictures in IVF, concatenated, and their number.
fn joined(keys: &KeyPictures<'_>, bytes: &[u8]) -> (Vec<u8>, usize) {
    let mut ivf = b"DKIF\0\0\x20\0".to_vec();
    ivf.extend(match keys.coding() {
        PictureCoding::Av1 => b"AV01",
        PictureCoding::Mpeg2 => b"mpg2",
        _ => b"H264",
    });
    ivf.extend([64, 0, 64, 0]);
    ivf.extend([1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut count = 0_u64;
    for picture in keys.list() {
        if let Some(unit) = keys.read(picture, bytes).expect("memory is read") {
            ivf.extend((unit.len() as u32).to_le_bytes());
            ivf.extend(count.to_le_bytes());
            ivf.extend(unit);
            count += 1;
        }
    }
    (ivf, count as usize)
}

/// Grey values of pictures of 32 × 18.
fn grey(arguments: &[&str], input: Vec<u8>) -> Vec<Vec<u8>> {
    let mut all = arguments.to_vec();
    all.extend(["-vf", "scale=32:18:flags=area,format=gray", "-f", "rawvideo", "pipe:1"]);
    let bytes = ffmpeg(&all, input).expect("it made the file");
    bytes.chunks_exact(32 * 18).map(<[u8]>::to_vec).collect()
}

fn difference(one: &[u8], other: &[u8]) -> u32 {
    one.iter().zip(other).map(|(&a, &b)| u32::from(a.abs_diff(b))).sum::<u32>() / one.len() as u32
}

/// Compares the key pictures with those obtained by decoding the whole file.
fn check(name: &str, encoder: &str, options: &str, decoder: &str) {
    let Some(path) = film(name, encoder, options) else { return };
    let bytes = fs::read(&path).expect("it was made");
    let plan = plan(&bytes);
    let keys = match &plan {
        AssetPlan::TransportStream(plan) => KeyPictures::of_stream(plan),
        AssetPlan::Tracks(presentation) => KeyPictures::of_tracks(presentation),
    };
    let keys = keys.expect("it has pictures");
    let (ivf, count) = joined(&keys, &bytes);
    assert!(count >= 6, "{name}: {count} pictures of {}", keys.list().len());
    let file = path.to_str().expect("a path in UTF-8");
    let all = grey(&["-i", file, "-map", "0:v:0", "-vsync", "passthrough"], Vec::new());
    let mut arguments = vec!["-f", "ivf"];
    if !decoder.is_empty() {
        arguments.extend(["-c:v", decoder]);
    }
    arguments.extend(["-i", "pipe:0", "-r", "1"]);
    let shown = grey(&arguments, ivf);
    assert_eq!(shown.len(), count, "{name}: pictures that ffmpeg shows");
    let times: Vec<u64> = keys.list().iter().map(|picture| picture.presented_ticks).collect();
    // The first place of a transport stream is its start.
    let first = times.len() - count;
    for (shown, ticks) in shown.iter().zip(&times[first..]) {
        let number = ((ticks * 25 + TICKS_PER_SECOND / 2) / TICKS_PER_SECOND) as usize;
        let near = number.saturating_sub(1)..(number + 2).min(all.len());
        let found = near.map(|number| difference(shown, &all[number])).min();
        assert!(found.is_some_and(|found| found < 6), "{name}: {ticks}: {found:?}");
    }
    fs::remove_file(path).expect("it is there");
}

#[test]
fn pictures_of_h264_are_shown_whatever_their_groups() {
    let x264 = "libx264";
    for (name, options) in [
        ("key_closed.mp4", "-preset veryfast -g 25"),
        ("key_open.mp4", "-preset veryfast -g 25 -x264-params open-gop=1:bframes=3"),
        ("key_open_vlc.mkv", "-g 25 -x264-params open-gop=1:bframes=3:cabac=0:slices=3"),
        ("key_open_fields.mp4", "-g 25 -flags +ilme+ildct -x264-params open-gop=1:tff=1"),
        ("key_open.ts", "-preset veryfast -g 25 -x264-params open-gop=1:bframes=3:slices=4"),
    ] {
        check(name, x264, options, "h264");
    }
}

#[test]
fn pictures_of_h265_are_shown_whatever_their_groups() {
    let open = "-preset ultrafast -x265-params open-gop=1:keyint=25:min-keyint=25:log-level=none";
    check("key_open_h265.mp4", "libx265", open, "hevc");
    check("key_open_h265.ts", "libx265", open, "hevc");
}

#[test]
fn pictures_of_av1_and_mpeg2_are_shown() {
    check("key_av1.mp4", "libsvtav1", "-preset 12 -g 25", "");
    check("key_mpeg2.ts", "mpeg2video", "-g 25 -b:v 3M", "mpeg2video");
}
