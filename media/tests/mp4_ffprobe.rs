// SPDX-License-Identifier: MIT OR Apache-2.0
//! Presentations of MP4 and QuickTime files made by ffmpeg, compared with what ffprobe, an
//! independent demuxer, finds there: place, size, times and key flag of every sample.
//!
//! ffprobe names packets by the track's number in the file, applies the edit list, and moves times
//! of decoding back where presentation offsets are negative; so times of decoding are compared up
//! to a constant.
//!
//! Skipped, with the reason printed, where ffmpeg, ffprobe or an encoder is missing.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use media::mp4::{Mp4Demuxer, is_mp4};
use media::{Codec, Container, Presentation, RtpIdentity};

const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };

const VIDEO: [&str; 4] = ["-f", "lavfi", "-i", "testsrc2=size=160x96:rate=25:duration=4"];
const SOUND: [&str; 4] = ["-f", "lavfi", "-i", "sine=duration=4"];
const FAST: [&str; 4] = ["-c:v", "libx264", "-preset", "ultrafast"];

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
    all.push(path.to_str().expect("a path in UTF-8"));
    output("ffmpeg", &all)?;
    Some(path)
}

/// Reads the file as a server does: a part at a time.
fn demux(path: &Path) -> Presentation {
    let file = File::open(path).expect("ffmpeg wrote it");
    let bytes = file.metadata().expect("it is open").len();
    let mut beginning = [0; 8];
    media::ReadAt::read_exact_at(&file, &mut beginning, 0).expect("it has a header");
    assert!(is_mp4(&beginning));
    let mut demuxer = Mp4Demuxer::new(bytes);
    while !demuxer.advance(&file, 7).expect("ffmpeg writes good files") {}
    demuxer.finish(|| IDENTITY).expect("a track can be streamed")
}

/// A packet as ffprobe prints it.
#[derive(Debug, PartialEq, Eq)]
struct Packet {
    presented: i64,
    decoded: i64,
    bytes: u32,
    place: u64,
    is_key: bool,
}

/// Packets of one stream, by its index.
fn packets(path: &Path, stream: usize) -> Option<Vec<Packet>> {
    let path = path.to_str().expect("a path in UTF-8");
    let stream = stream.to_string();
    let entries = ["-of", "csv=p=0", "-show_entries", "packet=pts,dts,size,pos,flags"];
    let mut arguments = vec!["-loglevel", "error", "-select_streams", &stream];
    arguments.extend(entries);
    arguments.push(path);
    let lines = output("ffprobe", &arguments)?;
    let packet = |line: &str| {
        let fields: Vec<_> = line.split(',').collect();
        Packet {
            presented: fields[0].parse().expect("a time of presentation"),
            decoded: fields[1].parse().expect("a time of decoding"),
            bytes: fields[2].parse().expect("a size"),
            place: fields[3].parse().expect("a place"),
            is_key: fields[4].starts_with('K'),
        }
    };
    Some(lines.lines().filter(|line| line.contains(',')).map(packet).collect())
}

/// Compares every sample of every track with ffprobe. Track N is stream N - 1 in ffmpeg's files.
fn compare(path: &Path) -> Option<Presentation> {
    let found = demux(path);
    for track in found.tracks() {
        let expected = packets(path, track.id as usize - 1)?;
        assert!(expected.len() > 10, "{} packets", expected.len());
        let mut samples = track.samples.samples(0..track.samples.len());
        let first = samples.clone().next().expect("a track has a sample");
        let lead = first.decode as i64 + track.shift - expected[0].decoded;
        for (number, expected) in expected.iter().enumerate() {
            let sample = samples.next().expect("no fewer samples than packets");
            let packet = Packet {
                presented: track.presented(&sample),
                decoded: sample.decode as i64 + track.shift - lead,
                bytes: sample.bytes,
                place: sample.file_offset,
                is_key: sample.is_start,
            };
            let name = track.codec.name();
            assert_eq!(&packet, expected, "{} {name} sample {number}", path.display());
        }
        assert_eq!(samples.len(), 0, "no more samples than packets");
    }
    Some(found)
}

/// Creates a film of pictures and sound with these options and compares it.
fn compare_film(name: &str, encoders: &[&str], options: &[&str]) -> Option<Presentation> {
    compare(&film(name, encoders, &[&VIDEO, &SOUND, options])?)
}

fn codecs(found: &Presentation) -> Vec<String> {
    found.tracks().iter().map(|track| track.codec.name()).collect()
}

#[test]
fn h264_with_b_frames_and_aac() {
    let options = ["-c:v", "libx264", "-bf", "3", "-g", "30", "-c:a", "aac"];
    let Some(found) = compare_film("plain.mp4", &["libx264", "aac"], &options) else { return };
    assert_eq!(found.container(), Container::Mp4);
    assert!(codecs(&found)[0].starts_with("avc1.64"), "{:?}", codecs(&found));
    assert_eq!(codecs(&found)[1], "mp4a.40.2");
    assert_eq!((found.entries(), found.left_out().len()), (4, 0));
    let Codec::H264(config) = &found.tracks()[0].codec else { panic!("{found:?}") };
    assert_eq!((config.length_bytes, config.sequence_sets.len()), (4, 1));
    let Codec::Aac(config) = &found.tracks()[1].codec else { panic!("{found:?}") };
    assert_eq!((config.rate_hz, config.channels), (44_100, 1));
    // The priming of 1024 samples is before the title's start.
    assert_eq!(found.tracks()[1].shift, -1024);
}

#[test]
fn moov_in_front() {
    let options = [&FAST[..], &["-bf", "2", "-movflags", "faststart"]].concat();
    compare_film("front.mp4", &["libx264", "aac"], &options);
}

#[test]
fn h265() {
    let options = ["-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=error"];
    let options = [&options[..], &["-tag:v", "hvc1"]].concat();
    let Some(found) = compare_film("h265.mp4", &["libx265", "aac"], &options) else { return };
    assert!(codecs(&found)[0].starts_with("hvc1.1.6.L"), "{:?}", codecs(&found));
    let Codec::H265(config) = &found.tracks()[0].codec else { panic!("{found:?}") };
    let sets = [&config.video_sets, &config.sequence_sets, &config.picture_sets];
    assert_eq!(sets.map(Vec::len), [1, 1, 1]);
}

#[test]
fn fragments_with_every_kind_of_place() {
    let kinds = [
        ("frag-moof.mp4", "frag_keyframe+empty_moov+default_base_moof"),
        ("frag-base.mp4", "frag_keyframe+empty_moov"),
        ("frag-behind.mp4", "frag_keyframe+empty_moov+omit_tfhd_offset"),
        ("frag-both.mp4", "frag_keyframe"),
        ("frag-each.mp4", "frag_every_frame+empty_moov+default_base_moof+dash"),
    ];
    for (name, flags) in kinds {
        let options = [&FAST[..], &["-bf", "2", "-g", "20", "-movflags", flags]].concat();
        let Some(found) = compare_film(name, &["libx264", "aac"], &options) else { return };
        assert_eq!(found.container(), Container::FragmentedMp4);
        assert_eq!(found.tracks().len(), 2, "{:?}", found.left_out());
    }
}

#[test]
fn negative_presentation_offsets() {
    let options = [&FAST[..], &["-bf", "2", "-movflags", "negative_cts_offsets"]].concat();
    let Some(whole) = compare_film("negative.mp4", &["libx264", "aac"], &options) else { return };
    // In fragments, ffprobe moves times of presentation by what it adds for the negative offsets;
    // a player does not.
    let flags = "frag_keyframe+empty_moov+negative_cts_offsets";
    let options = [&FAST[..], &["-bf", "2", "-movflags", flags]].concat();
    let parts = [&VIDEO[..], &SOUND, &options];
    let Some(path) = film("frag-negative.mp4", &["libx264", "aac"], &parts) else { return };
    let times = |found: &Presentation| -> Vec<Vec<i64>> {
        let of_track = |track: &media::MediaTrack| {
            let samples = track.samples.samples(0..track.samples.len());
            samples.map(|sample| track.presented(&sample)).collect()
        };
        found.tracks().iter().map(of_track).collect()
    };
    let (pieces, whole) = (times(&demux(&path)), times(&whole));
    assert_eq!(pieces[0], whole[0]);
    assert_eq!(whole[0].iter().min(), Some(&0));
}

#[test]
fn two_languages_and_subtitles() {
    let subtitles = Path::new(env!("CARGO_TARGET_TMPDIR")).join("two.srt");
    std::fs::write(&subtitles, "1\n00:00:01,000 --> 00:00:02,000\nHallo\n").expect("it is ours");
    let subtitles = ["-i", subtitles.to_str().expect("a path in UTF-8")];
    let maps = ["-map", "0", "-map", "1", "-map", "1", "-map", "2", "-c:s", "mov_text"];
    let names = ["-metadata:s:a:0", "language=deu", "-metadata:s:a:1", "language=eng"];
    let parts = [&VIDEO[..], &SOUND, &subtitles, &FAST, &maps, &names];
    let Some(path) = film("two.mp4", &["libx264", "aac", "mov_text"], &parts) else { return };
    let Some(found) = compare(&path) else { return };
    let languages: Vec<_> = found.tracks().iter().map(|track| track.language).collect();
    assert_eq!(languages, [None, Some(*b"deu"), Some(*b"eng")]);
    let [left_out] = found.left_out() else { panic!("{:?}", found.left_out()) };
    assert!(left_out.reason.starts_with("track 4 (tx3g): subtitles"), "{left_out:?}");
}

#[test]
fn sound_of_every_codec() {
    let kinds = [
        ("opus.mp4", "libopus", "opus"),
        ("ac3.mp4", "ac3", "ac-3"),
        ("eac3.mp4", "eac3", "ec-3"),
        ("mp3.mp4", "libmp3lame", "mp4a.6b"),
        ("ac3.mov", "ac3", "ac-3"),
        ("mp3.mov", "libmp3lame", "mp4a.6b"),
        ("aac.mov", "aac", "mp4a.40.2"),
    ];
    for (name, encoder, codec) in kinds {
        let options = ["-c:a", encoder, "-ar", "48000", "-ac", "2"];
        let Some(path) = film(name, &[encoder], &[&SOUND, &options]) else { continue };
        let Some(found) = compare(&path) else { return };
        assert_eq!(codecs(&found), [codec]);
        assert!(matches!(found.tracks()[0].codec.clock_rate_hz(), 48_000 | 90_000));
        if let Codec::Opus { channels } | Codec::Ac3 { channels, .. } = found.tracks()[0].codec {
            assert_eq!(channels, 2);
        }
    }
}

/// The blocks of PCM are the sound of the file, and last as long. ffmpeg writes a frame a sample
/// into tables, and its packets into fragments.
#[test]
fn pcm_of_every_form() {
    let rate_96 = ["-ar", "96000", "-ac", "2"];
    let fragments = ["-movflags", "frag_keyframe+empty_moov", "-g", "25", "-ac", "2"];
    for (name, encoder, raw, codec, options) in [
        ("sowt.mov", "pcm_s16le", "s16le", "L16", &["-ac", "2"][..]),
        ("twos.mov", "pcm_s16be", "s16be", "L16", &[]),
        ("in24.mov", "pcm_s24le", "s24le", "L24", &["-ac", "6"]),
        ("in24b.mov", "pcm_s24be", "s24be", "L24", &["-ac", "2"]),
        ("lpcm.mov", "pcm_s24le", "s24le", "L24", &rate_96),
        ("raw.mov", "pcm_u8", "u8", "L8", &[]),
        ("alaw.mov", "pcm_alaw", "alaw", "PCMA", &["-ar", "8000"]),
        ("ulaw.mov", "pcm_mulaw", "mulaw", "PCMU", &["-ar", "8000", "-ac", "2"]),
        ("sowt_fragments.mov", "pcm_s16le", "s16le", "L16", &fragments),
        ("in24_fragments.mov", "pcm_s24le", "s24le", "L24", &fragments),
    ] {
        let options = [&FAST[..], &["-c:a", encoder], options].concat();
        let Some(path) = film(name, &["libx264", encoder], &[&VIDEO, &SOUND, &options]) else {
            return;
        };
        let found = demux(&path);
        assert_eq!(codecs(&found)[1], codec, "{name}");
        let samples = &found.tracks()[1].samples;
        let bytes = std::fs::read(&path).expect("ffmpeg wrote it");
        let blocks = samples.samples(0..samples.len());
        let sound: Vec<u8> = blocks
            .flat_map(|block| {
                let from = block.file_offset as usize;
                bytes[from..from + block.bytes as usize].to_vec()
            })
            .collect();
        let input = path.to_str().expect("a path in UTF-8");
        let expected = path.with_extension("raw");
        let target = expected.to_str().expect("a path in UTF-8");
        let decoded = ["-loglevel", "error", "-y", "-i", input, "-map", "0:a", "-c:a", "copy"];
        output("ffmpeg", &[&decoded[..], &["-f", raw, target]].concat());
        let expected = std::fs::read(&expected).expect("ffmpeg wrote it");
        assert!(sound == expected, "{name}: {} bytes of {}", sound.len(), expected.len());
        assert_eq!(samples.end(), 4 * u64::from(samples.timescale()), "{name}");
        assert!((100..=400).contains(&samples.len()), "{name}: {} blocks", samples.len());
    }
}

#[test]
fn av1() {
    for (name, encoder, speed) in
        [("svt.mp4", "libsvtav1", "-preset"), ("aom.mp4", "libaom-av1", "-cpu-used")]
    {
        let video = ["-f", "lavfi", "-i", "testsrc2=size=160x96:rate=25:duration=1"];
        let options = ["-c:v", encoder, speed, "8"];
        let Some(path) = film(name, &[encoder], &[&video, &options]) else { continue };
        let Some(found) = compare(&path) else { return };
        assert_eq!(codecs(&found), ["av01.0.00M.08"]);
        return;
    }
}

#[test]
fn a_late_track_has_an_empty_edit() {
    let late = ["-itsoffset", "0.7"];
    let options =
        [&FAST[..], &["-bf", "2", "-video_track_timescale", "12345", "-fps_mode", "passthrough"]]
            .concat();
    let parts = [&SOUND[..], &late, &VIDEO, &options];
    let Some(path) = film("late.mp4", &["libx264", "aac"], &parts) else { return };
    let Some(found) = compare(&path) else { return };
    let video = found.leading_track();
    let first = video.presented(&video.samples.sample(0));
    assert!((8641..9000).contains(&first), "{first} of 12345 Hz");
}

#[test]
fn a_variable_frame_rate() {
    let select = ["-vf", "select=not(mod(n\\,3))+lt(n\\,20)", "-fps_mode", "vfr"];
    let options = [&FAST[..], &["-bf", "2"], &select].concat();
    compare_film("vfr.mp4", &["libx264", "aac"], &options);
}

#[test]
fn quicktime_with_a_time_code() {
    let options = [&FAST[..], &["-c:a", "aac", "-timecode", "01:00:00:00"]].concat();
    let Some(found) = compare_film("plain.mov", &["libx264", "aac"], &options) else { return };
    assert_eq!(found.tracks().len(), 2, "{:?}", found.left_out());
    let [left_out] = found.left_out() else { panic!("{:?}", found.left_out()) };
    assert!(left_out.reason.contains("(tmcd)"), "{left_out:?}");
}

/// A recorder that is killed leaves its last fragment unfinished; a copy that breaks, too.
#[test]
fn fragmented_file_that_is_cut_off_has_the_whole_samples_before() {
    let options = [&FAST[..], &["-g", "20", "-movflags", "frag_keyframe+empty_moov"]].concat();
    let parts = [&VIDEO[..], &SOUND, &options];
    let Some(whole) = film("frag-whole.mp4", &["libx264", "aac"], &parts) else { return };
    let bytes = std::fs::read(&whole).expect("ffmpeg wrote it");
    let path = whole.with_file_name("frag-cut.mp4");
    for share in [45, 60, 75] {
        std::fs::write(&path, &bytes[..bytes.len() * share / 100]).expect("the folder is ours");
        let found = demux(&path);
        let [warning] = found.warnings() else { panic!("{:?}", found.warnings()) };
        assert!(warning.starts_with("cut off: by its own sizes "), "{warning}");
        for (index, track) in found.tracks().iter().enumerate() {
            let Some(expected) = packets(&path, index) else { return };
            assert!(expected.len() - track.samples.len() <= 1, "{share} %, track {index}");
            let samples = track.samples.samples(0..track.samples.len());
            let size = |sample: media::MediaSample| (sample.file_offset, sample.bytes);
            let found: Vec<_> = samples.map(size).collect();
            let mut expected: Vec<_> =
                expected.iter().map(|packet| (packet.place, packet.bytes)).collect();
            // ffprobe lists the sample that is cut with the bytes that are there.
            expected.truncate(found.len());
            assert_eq!(found, expected, "{share} %, track {index}");
        }
    }
}
