// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests writers of files with films of ffmpeg: read by our demuxer as samples, written as access
//! units, and compared with the source by ffmpeg: every frame decodes to the same data, and is
//! presented at the same time except for one constant of the file. Our own readers read the result.
//!
//! Skipped, with the reason printed, where ffmpeg, ffprobe or an encoder is missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use media::mp4::Mp4Demuxer;
use media::mux::{MediaWriter, WriterKind};
use media::{
    AccessUnit, Codec, Container, Presentation, RtpIdentity, Scanner, Survey, TICKS_PER_SECOND,
};

const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };

const VIDEO: [&str; 4] = ["-f", "lavfi", "-i", "testsrc2=size=322x180:rate=25:duration=6"];
const SOUND: [&str; 4] = ["-f", "lavfi", "-i", "sine=duration=6"];
const SOUND_ALONE: [&str; 4] = ["-f", "lavfi", "-i", "sine=frequency=700:duration=6"];

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
    assert!(!complaint.contains("non monotonically"), "{program} {arguments:?}: {complaint}");
    Some(String::from_utf8(output.stdout).expect("ffmpeg prints UTF-8"))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
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
    all.push(text(&path));
    output("ffmpeg", &all)?;
    Some(path)
}

fn demux(file: &[u8]) -> Presentation {
    let mut demuxer = Mp4Demuxer::new(file.len() as u64);
    while !demuxer.advance(file, 100).expect("a good file") {}
    demuxer.finish(|| IDENTITY).expect("a track can be streamed")
}

/// A unit of a track, with the time by which tracks are interleaved, in seconds.
type Timed = (f64, usize, AccessUnit);

/// Returns all samples of a file as units, in the order of their arrival from a network.
fn units(file: &[u8], found: &Presentation) -> Vec<Timed> {
    let mut all = Vec::new();
    for (index, track) in found.tracks().iter().enumerate() {
        let rate = i64::from(track.codec.clock_rate_hz());
        let scale = i64::from(track.samples.timescale());
        for sample in track.samples.samples(0..track.samples.len()) {
            let start = sample.file_offset as usize;
            let unit = AccessUnit {
                // The conversion is exact: the rate equals the scale or is a multiple of it.
                time: track.presented(&sample) * rate / scale,
                bytes: file[start..start + sample.bytes as usize].to_vec(),
                is_start: sample.is_start,
                is_after_loss: false,
            };
            all.push((sample.decode as f64 / scale as f64, index, unit));
        }
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all
}

fn codecs(found: &Presentation) -> Vec<Codec> {
    found.tracks().iter().map(|track| track.codec.clone()).collect()
}

/// Writes units into a file, and checks what is in it after each of them.
fn write(kind: WriterKind, codecs: &[Codec], units: &[Timed]) -> Vec<u8> {
    let mut writer = MediaWriter::new(kind, codecs).expect("codecs that it holds");
    let mut file = Vec::new();
    // Time of the newest unit when the file last grew.
    let mut grown_s = units[0].0;
    for (time_s, track, unit) in units {
        let before = file.len();
        writer.push(*track, unit.clone(), &mut file).expect("a good unit");
        assert_eq!(writer.ends_whole(), !file.is_empty());
        if file.len() > before {
            grown_s = *time_s;
        }
        assert!(time_s - grown_s < 3.0, "nothing was written from {grown_s} s to {time_s} s");
    }
    writer.finish(&mut file);
    file
}

/// A line of ffmpeg's `framemd5`: presentation time in seconds, and the sum of the frame.
fn frames(path: &Path, stream: &str, options: &[&str]) -> Option<Vec<(f64, String)>> {
    let map = ["-map", stream];
    // Players apply edit lists, and leave out frames by them.
    let is_mp4 = path.extension().is_some_and(|end| end == "mp4");
    let all: &[&str] = if is_mp4 { &["-ignore_editlist", "1"] } else { &[] };
    let input = [&["-loglevel", "error"], all, &["-i", text(path)]].concat();
    // Times in the units of the file, not of the frame rate.
    let end =
        ["-fps_mode", "passthrough", "-copyts", "-enc_time_base", "-1", "-f", "framemd5", "-"];
    let lines = output("ffmpeg", &[&input[..], &map, options, &end].concat())?;
    let base = lines.lines().find_map(|line| line.strip_prefix("#tb 0: "));
    let (top, bottom) = base.and_then(|base| base.split_once('/')).expect("a time base");
    let unit: f64 = top.parse::<f64>().unwrap() / bottom.parse::<f64>().unwrap();
    let line = |line: &str| {
        let fields: Vec<_> = line.split(',').map(str::trim).collect();
        (fields[2].parse::<f64>().expect("a time") * unit, fields[5].to_owned())
    };
    Some(lines.lines().filter(|line| !line.starts_with('#')).map(line).collect())
}

/// Compares each stream of a written file with the source, frame by frame.
fn compare(source: &Path, written: &Path, found: &Presentation) -> Option<()> {
    let mut constants = Vec::new();
    let is_ts = written.extension().is_some_and(|end| end == "ts");
    for track in found.tracks() {
        let stream = format!("0:{}", track.id - 1);
        // Pictures are decoded; sound is compared as packets, which decoders begin differently.
        let (expected, options) = match &track.codec {
            Codec::Aac(_) if is_ts => {
                (&["-c", "copy"][..], &["-c", "copy", "-bsf", "aac_adtstoasc"][..])
            }
            codec if codec.media() == media::tracks::TrackMedia::Audio => {
                (&["-c", "copy"][..], &["-c", "copy"][..])
            }
            _ => (&[][..], &[][..]),
        };
        let expected = frames(source, &stream, expected)?;
        let result = frames(written, &stream, options)?;
        let name = format!("{} {}", written.display(), track.codec.name());
        assert_eq!(result.len(), expected.len(), "{name}: frames");
        assert!(expected.len() > 50, "{name}: {} frames", expected.len());
        // By our demuxer, which applies edit lists as players do; ffmpeg would leave frames out.
        let mut times: Vec<_> = track
            .samples
            .samples(0..track.samples.len())
            .map(|sample| track.presented_ticks(&sample) as f64 / TICKS_PER_SECOND as f64)
            .collect();
        times.sort_by(f64::total_cmp);
        let constant = result[0].0 - times[0];
        // Tolerance: half a tick of either clock, and of the clock of sound in a transport stream.
        let tolerance = 2.5 / 90_000.0;
        for (number, (result, expected)) in result.iter().zip(&expected).enumerate() {
            assert_eq!(result.1, expected.1, "{name}: frame {number}");
            let apart = (result.0 - times[number] - constant).abs();
            assert!(apart < tolerance, "{name}: frame {number} {apart} s from its time");
        }
        constants.push(constant);
    }
    // One constant for all tracks: they stay in step.
    let spread = constants.iter().fold(0.0_f64, |most, one| most.max((one - constants[0]).abs()));
    assert!(spread < 3.0 / 44_100.0, "{}: tracks apart by {constants:?}", written.display());
    Some(())
}

/// Creates a film, writes it as `kind` and compares.
fn round_trip(
    name: &str,
    encoders: &[&str],
    options: &[&[&str]],
    kinds: &[WriterKind],
) -> Option<Vec<Vec<u8>>> {
    let source = film(&format!("{name}-source.mp4"), encoders, options)?;
    let bytes = fs::read(&source).expect("ffmpeg wrote it");
    let found = demux(&bytes);
    let units = units(&bytes, &found);
    let mut files = Vec::new();
    for &kind in kinds {
        let file = write(kind, &codecs(&found), &units);
        let end = if kind == WriterKind::FragmentedMp4 { "mp4" } else { "ts" };
        let path = source.with_file_name(format!("{name}-written.{end}"));
        fs::write(&path, &file).expect("it is ours");
        compare(&source, &path, &found)?;
        match kind {
            WriterKind::FragmentedMp4 => accept_mp4(&file, &found),
            _ => accept_ts(&file, &found),
        }
        files.push(file);
    }
    Some(files)
}

/// Our demuxer finds the samples of the source again.
fn accept_mp4(file: &[u8], source: &Presentation) {
    let found = demux(file);
    assert_eq!(found.container(), Container::FragmentedMp4);
    assert_eq!((found.tracks().len(), found.left_out()), (source.tracks().len(), &[][..]));
    let mut constants = Vec::new();
    for (track, source) in found.tracks().iter().zip(source.tracks()) {
        assert_eq!(track.codec.name(), source.codec.name());
        assert_eq!(track.codec.clock_rate_hz(), source.codec.clock_rate_hz());
        assert_eq!(track.samples.len(), source.samples.len());
        let all = |track: &media::MediaTrack| -> Vec<_> {
            let samples = track.samples.samples(0..track.samples.len());
            samples.map(|one| (one.bytes, one.is_start, track.presented_ticks(&one))).collect()
        };
        let (track_samples, source_samples) = (all(track), all(source));
        let constant = track_samples[0].2 - source_samples[0].2;
        for (one, other) in track_samples.iter().zip(&source_samples) {
            assert_eq!((one.0, one.1), (other.0, other.1));
            assert!((one.2 - other.2 - constant).abs() <= 600, "{one:?}, {other:?}");
        }
        let decode: Vec<_> =
            track.samples.samples(0..track.samples.len()).map(|sample| sample.decode).collect();
        assert!(decode.windows(2).all(|pair| pair[0] < pair[1]), "times of decoding");
        constants.push(constant);
    }
    assert!(constants.iter().all(|one| (one - constants[0]).abs() < 1_000), "{constants:?}");
    let ends = [&found, source].map(|one| one.presented_end_ticks() as i64);
    let apart_s = (ends[0] - ends[1] - constants[0]) as f64 / TICKS_PER_SECOND as f64;
    assert!(apart_s.abs() < 0.15, "ends {apart_s} s later");
}

/// Our scanner creates a plan of the stream, and our survey finds the tracks.
fn accept_ts(file: &[u8], source: &Presentation) {
    let mut scanner = Scanner::new();
    scanner.feed(file);
    let plan = scanner.finish(file.len() as u64, IDENTITY).expect("a stream that is served");
    assert_eq!((plan.losses_seen(), plan.tail_bytes(), plan.discontinuities()), (0, 0, 0));
    let seconds = plan.duration_ticks() as f64 / TICKS_PER_SECOND as f64;
    assert!((5.0..7.0).contains(&seconds), "{seconds} s");
    let keys = source.leading_track().samples.starts();
    assert_eq!(plan.entries().len(), keys, "places to start");
    let mut survey = Survey::default();
    survey.feed(file);
    let [programme] = &survey.finish()[..] else { panic!("one programme") };
    assert_eq!(programme.tracks.len(), source.tracks().len());
}

const BOTH: [WriterKind; 2] = [WriterKind::FragmentedMp4, WriterKind::TransportStream];
const FAST: [&str; 4] = ["-c:v", "libx264", "-preset", "veryfast"];

/// The offsets of a file's boxes of this type that are in no other.
fn boxes(file: &[u8], wanted: &[u8; 4]) -> Vec<usize> {
    let (mut at, mut found) = (0, Vec::new());
    while at < file.len() {
        let bytes = u32::from_be_bytes(file[at..at + 4].try_into().unwrap()) as usize;
        if &file[at + 4..at + 8] == wanted {
            found.push(at);
        }
        at += bytes;
    }
    assert_eq!(at, file.len(), "boxes end with the file");
    found
}

#[test]
fn h264_with_b_frames_and_aac() {
    let options = [&VIDEO[..], &SOUND, &FAST, &["-bf", "3", "-g", "30", "-c:a", "aac"]];
    let Some(files) = round_trip("h264", &["libx264", "aac"], &options, &BOTH) else { return };
    // 150 pictures with a key frame at each 30th.
    assert_eq!(boxes(&files[0], b"moof").len(), 5);
}

#[test]
fn h264_without_key_frames_is_written_every_two_seconds() {
    let options = [&VIDEO[..], &SOUND, &FAST, &["-bf", "2", "-g", "1000", "-c:a", "aac"]];
    let Some(files) = round_trip("long", &["libx264", "aac"], &options, &BOTH) else { return };
    assert!((3..=4).contains(&boxes(&files[0], b"moof").len()));
}

#[test]
fn h264_of_open_groups_interlaced_at_film_rate() {
    let video = ["-f", "lavfi", "-i", "testsrc2=size=320x192:rate=24000/1001:duration=6"];
    let coder = ["-x264-params", "open-gop=1:keyint=24:bframes=3:b-pyramid=2:tff=1"];
    let options = [&video[..], &FAST, &coder];
    round_trip("open", &["libx264"], &options, &BOTH);
}

#[test]
fn h264_of_ten_bits_and_variable_rate() {
    let select = ["-vf", "select=not(mod(n\\,3))+lt(n\\,60)", "-fps_mode", "vfr"];
    let options = [&VIDEO[..], &FAST, &["-pix_fmt", "yuv422p10le", "-bf", "2"], &select];
    round_trip("ten", &["libx264"], &options, &BOTH);
}

#[test]
fn h265_and_dolby_digital() {
    let coder = ["-c:v", "libx265", "-preset", "ultrafast", "-tag:v", "hvc1"];
    let params = ["-x265-params", "log-level=error:keyint=40:bframes=4", "-c:a", "ac3"];
    let options = [&VIDEO[..], &SOUND, &coder, &params];
    round_trip("h265", &["libx265", "ac3"], &options, &BOTH);
}

#[test]
fn av1_goes_into_mp4_and_is_refused_for_transport_streams() {
    let coder = ["-c:v", "libaom-av1", "-cpu-used", "8", "-g", "50", "-lag-in-frames", "10"];
    let small = ["-vf", "scale=160:90"];
    let options = [&VIDEO[..], &small, &coder];
    let kinds = [WriterKind::FragmentedMp4];
    let Some(files) = round_trip("av1", &["libaom-av1"], &options, &kinds) else { return };
    let codecs = codecs(&demux(&files[0]));
    let refusal = MediaWriter::new(WriterKind::TransportStream, &codecs).unwrap_err();
    assert!(refusal.to_string().contains("write an MP4"), "{refusal}");
}

#[test]
fn sound_alone_of_every_codec() {
    for (encoder, options) in [
        ("aac", &["-ar", "44100"][..]),
        ("libopus", &["-ar", "48000", "-ac", "2"]),
        ("libmp3lame", &["-ar", "44100"]),
        ("mp2", &["-ar", "48000"]),
        ("ac3", &["-ar", "48000", "-ac", "6"]),
        ("eac3", &["-ar", "48000", "-ac", "2"]),
    ] {
        let name = format!("sound-{encoder}");
        let options = [&SOUND_ALONE[..], &["-c:a", encoder], options];
        let Some(files) = round_trip(&name, &[encoder], &options, &BOTH) else { continue };
        // 6 s in fragments of 2 s.
        assert!((3..=4).contains(&boxes(&files[0], b"moof").len()), "{encoder}");
    }
}
