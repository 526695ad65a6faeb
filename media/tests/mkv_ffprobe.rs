// SPDX-License-Identifier: MIT OR Apache-2.0
//! Presentations of Matroska and WebM files made by ffmpeg, compared with what ffprobe, an
//! independent demuxer, finds there: size, time and key flag of every frame, and of pictures the
//! bytes as well.
//!
//! A file's times are rounded to milliseconds; those of sound are made exact again, so they may
//! differ by one. Skipped, with the reason printed, if ffmpeg, ffprobe or an encoder is missing.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use media::mkv::{MkvDemuxer, is_mkv};
use media::{Container, Presentation, RtpIdentity};

const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };
const VIDEO: &str = "testsrc2=size=160x96:rate=25:duration=4";
const SOUND: &str = "sine=sample_rate=48000:duration=4";

/// Output of a program; none, with the reason printed, where it or an encoder is not installed.
fn output(program: &str, arguments: &[&str]) -> Option<Vec<u8>> {
    let output = match Command::new(program).arg("-hide_banner").args(arguments).output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skip: {program}: not installed: {error}; apt install ffmpeg");
            return None;
        }
    };
    let complaint = String::from_utf8_lossy(&output.stderr);
    if complaint.contains("Unknown encoder") {
        eprintln!("skip: {}", complaint.trim());
        return None;
    }
    assert!(output.status.success(), "{program} {arguments:?}: {complaint}");
    Some(output.stdout)
}

fn film(name: &str, options: &[&str]) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let inputs =
        ["-loglevel", "error", "-y", "-f", "lavfi", "-i", VIDEO, "-f", "lavfi", "-i", SOUND];
    let target = path.to_str().expect("a path in UTF-8");
    output("ffmpeg", &[&inputs[..], options, &[target]].concat())?;
    Some(path)
}

fn demux(file: &File, bytes: u64) -> Presentation {
    let mut beginning = [0; 8];
    file.read_exact_at(&mut beginning, 0).expect("it has a header");
    assert!(is_mkv(&beginning));
    let mut demuxer = MkvDemuxer::new(bytes);
    while !demuxer.advance(file, 7).expect("ffmpeg writes good files") {}
    demuxer.finish(|| IDENTITY).expect("a track can be streamed")
}

/// Size, presentation time in milliseconds and key flag of a stream's frames.
fn packets(path: &Path, stream: usize) -> Option<Vec<(u32, i64, bool)>> {
    let path = path.to_str().expect("a path in UTF-8");
    let (entries, stream) = ("packet=pts_time,size,flags", stream.to_string());
    let options = ["-loglevel", "error", "-select_streams", &stream, "-show_entries", entries];
    let text = output("ffprobe", &[&options[..], &["-of", "csv=p=0", path]].concat())?;
    let text = String::from_utf8(text).expect("ffprobe prints text");
    let packet = |line: &str| {
        let mut fields = line.split(',');
        let time: f64 = fields.next()?.parse().ok()?;
        let size = fields.next()?.parse().ok()?;
        Some((size, (time * 1000.0).round() as i64, fields.next()?.starts_with('K')))
    };
    Some(text.lines().filter_map(packet).collect())
}

/// Compares every frame of every track; returns the presentation.
fn compare(name: &str, options: &[&str]) -> Option<Presentation> {
    compare_file(&film(name, options)?)
}

fn compare_file(path: &Path) -> Option<Presentation> {
    let name = path.display();
    let file = File::open(path).expect("ffmpeg wrote it");
    let bytes = file.metadata().expect("it is open").len();
    let presentation = demux(&file, bytes);
    assert_eq!(presentation.container(), Container::Matroska);
    for (index, track) in presentation.tracks().iter().enumerate() {
        let expected = packets(path, index)?;
        assert_eq!(track.samples.len(), expected.len(), "{name}: frames of track {index}");
        let mut before = 0;
        for (sample, (size, time_ms, is_key)) in
            track.samples.samples(0..expected.len()).zip(&expected)
        {
            let found_ms = (track.presented_ticks(&sample) as f64 / 27_000.0).round() as i64;
            assert_eq!((sample.bytes, sample.is_start), (*size, *is_key), "{name} at {time_ms}");
            assert!((found_ms - time_ms).abs() <= 1, "{name}: {found_ms} ms, not {time_ms}");
            assert!(sample.offset >= 0, "{name}: decoded after it is presented");
            assert!(sample.decode >= before, "{name}: times of decoding go back");
            before = sample.decode;
        }
    }
    Some(presentation)
}

#[test]
fn every_frame_is_found_in_its_place() {
    let sounds = ["-map", "0", "-map", "1", "-map", "1", "-metadata:s:a:1", "language=ger"];
    let avc = ["-c:v", "libx264", "-preset", "ultrafast", "-bf", "3", "-g", "25", "-c:a", "aac"];
    let Some(whole) = compare("avc.mkv", &[&sounds[..], &avc].concat()) else { return };
    assert_eq!(whole.tracks().len(), 3);
    assert_eq!(whole.tracks()[2].language_name().as_deref(), Some("ger"));
    assert_eq!(whole.entries(), 4, "a key frame a second");
    let hevc = ["-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=error"];
    for (name, sound) in [("opus.mkv", "libopus"), ("ac3.mkv", "ac3"), ("mp3.mkv", "libmp3lame")] {
        compare(name, &[&hevc[..], &["-c:a", sound]].concat());
    }
    // Clusters of unknown size, as in a live stream.
    compare("live.mkv", &[&avc[..], &["-live", "1"]].concat());
    compare("short.mkv", &[&avc[..], &["-cluster_time_limit", "200"]].concat());
}

/// VP9 is no stream here; the sound beside it is, and the reason for the picture is named.
#[test]
fn tracks_that_are_not_sent_are_named() {
    let options = ["-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8"];
    let Some(path) = film("vp9.webm", &[&options[..], &["-c:a", "libopus"]].concat()) else {
        return;
    };
    let file = File::open(&path).expect("ffmpeg wrote it");
    let whole = demux(&file, file.metadata().expect("it is open").len());
    assert_eq!(whole.codecs(), "opus");
    let reason = &whole.left_out()[0].reason;
    assert!(
        reason.starts_with("track 1 (V_VP9): pictures of a codec") && reason.contains("ffmpeg"),
        "{reason}"
    );
}

fn with_segment_of_unknown_size(file: &[u8]) -> Vec<u8> {
    let segment = [0x18, 0x53, 0x80, 0x67];
    let at = file.windows(4).position(|bytes| bytes == segment).expect("there is one") + 4;
    assert_eq!(file[at], 1, "ffmpeg writes its size in eight bytes");
    [&file[..at + 1], &[0xff; 7], &file[at + 8..]].concat()
}

#[test]
fn a_file_that_was_cut_off_has_the_frames_before() {
    let options = ["-c:v", "libx264", "-preset", "ultrafast", "-c:a", "aac"];
    let Some(path) = film("cut.mkv", &options) else { return };
    let bytes = std::fs::read(&path).expect("ffmpeg wrote it");
    let mut frames = usize::MAX;
    for share in (0..20).rev() {
        let part = &bytes[..bytes.len() * share / 20];
        let mut demuxer = MkvDemuxer::new(part.len() as u64);
        let is_read = loop {
            match demuxer.advance(part, 100) {
                Ok(false) => {}
                Ok(true) => break true,
                Err(_) => break false,
            }
        };
        let whole = is_read.then(|| demuxer.finish(|| IDENTITY)).and_then(Result::ok);
        let found = whole.map_or(0, |whole| whole.tracks()[0].samples.len());
        assert!(found <= frames, "{found} frames in a shorter file, {frames} in a longer one");
        frames = found;
        // A killed recorder has not written the segment's size; a broken copy has it.
        if [7, 13].contains(&share) {
            let cut = path.with_file_name("cut-off.mkv");
            for part in [part.to_vec(), with_segment_of_unknown_size(part)] {
                std::fs::write(&cut, part).expect("the folder is ours");
                let Some(found) = compare_file(&cut) else { return };
                let [warning] = found.warnings() else { panic!("{:?}", found.warnings()) };
                assert!(warning.starts_with("cut off: "), "{warning}");
                let frames = found.tracks()[0].samples.len();
                assert!((share * 3..share * 7).contains(&frames), "{frames} of 100");
            }
        }
    }
    assert_eq!(frames, 0);
}
