// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests elementary streams of transport streams by ffmpeg against ffmpeg's extraction of them: NAL
//! units and frames one by one, presentation and decoding times, key frames.
//!
//! Depacketisers here share no code with the payloaders. Skipped, with the reason printed, where
//! ffmpeg or an encoder is missing.
//!
//! Sources: RFC 6184 §5, RFC 7798 §4.4, RFC 3640 §3.2, RFC 2250 §3.5, RFC 4184 §4.1, RFC 4598 §4.1.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use media::cmaf::{TrackSegments, init_section};
use media::payload::RtpValues;
use media::{
    Codec, ElementaryDemuxer, PacketPlan, Presentation, RtpIdentity, Scanner, copy_elementary,
    lay_out_elementary,
};

const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };

/// Output of a program; none, with the reason printed, where it is not installed.
fn output(program: &str, arguments: &[&str]) -> Option<Vec<u8>> {
    let output = match Command::new(program).arg("-hide_banner").args(arguments).output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skip: {program}: not installed: {error}; apt install ffmpeg");
            return None;
        }
    };
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {complaint}");
    Some(output.stdout)
}

/// A file of 6 s of a test picture and a tone; none, with the reason printed, without an encoder.
fn film(name: &str, encoders: &[&str], options: &str) -> Option<PathBuf> {
    let known = String::from_utf8(output("ffmpeg", &["-encoders"])?).expect("names in UTF-8");
    for encoder in encoders {
        if !known.split_whitespace().any(|word| word == *encoder) {
            eprintln!("skip: encoder {encoder} of ffmpeg: not installed");
            return None;
        }
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let picture = "testsrc2=size=320x180:rate=25:duration=6";
    let tone = "sine=frequency=440:sample_rate=48000:duration=6";
    let mut all = vec!["-loglevel", "error", "-y", "-f", "lavfi", "-i", picture];
    all.extend(["-f", "lavfi", "-i", tone]);
    all.extend(options.split_whitespace());
    all.extend(["-f", "mpegts", path.to_str().expect("a path in UTF-8")]);
    output("ffmpeg", &all)?;
    Some(path)
}

fn plan(file: &[u8]) -> PacketPlan {
    let mut scanner = Scanner::new();
    scanner.feed(file);
    scanner.finish(file.len() as u64, IDENTITY).expect("ffmpeg writes good streams")
}

fn demux(plan: &PacketPlan, file: &[u8]) -> Presentation {
    let mut demuxer = ElementaryDemuxer::new(plan);
    while !demuxer.advance(plan, file, 500).unwrap() {}
    demuxer.finish(|| IDENTITY).unwrap()
}

/// Marker and payload of each packet of a track.
fn packets(
    (plan, file): (&PacketPlan, &[u8]),
    whole: &Presentation,
    track: usize,
) -> Vec<(bool, Vec<u8>)> {
    let values = RtpValues { payload_type: 96, ssrc: 1, sequence: 0, timestamp: 0 };
    let mut all = Vec::new();
    for chapter in 0..whole.chapters() {
        let layout = lay_out_elementary(plan, whole, (track, chapter), file).unwrap();
        assert_eq!(layout.faults(), 0);
        for number in 0..layout.packets() {
            let mut packet = Vec::new();
            layout.write_head(number, &values, &mut packet);
            assert!(packet.len() <= 1400);
            layout.write_pieces(number..number + 1, |piece| panic!("of the file: {piece:?}"));
            all.push((packet[1] & 0x80 != 0, packet.split_off(12)));
        }
    }
    all
}

/// NAL units that packets carry.
fn received_units(packets: &[(bool, Vec<u8>)], is_h265: bool) -> Vec<Vec<u8>> {
    let (header_bytes, aggregate, fragment) = if is_h265 { (2, 48, 49) } else { (1, 24, 28) };
    let (mut units, mut open): (Vec<Vec<u8>>, Vec<u8>) = Default::default();
    for (_, payload) in packets {
        let kind = if is_h265 { payload[0] >> 1 & 0x3f } else { payload[0] & 0x1f };
        let mut rest = &payload[header_bytes..];
        if kind == aggregate {
            while let [a, b, behind @ ..] = rest {
                let (unit, others) = behind.split_at(usize::from(u16::from_be_bytes([*a, *b])));
                units.push(unit.to_vec());
                rest = others;
            }
        } else if kind == fragment {
            let fu = rest[0];
            if fu & 0x80 != 0 {
                open = match is_h265 {
                    true => vec![payload[0] & 0x81 | (fu & 0x3f) << 1, payload[1]],
                    false => vec![payload[0] & 0xe0 | fu & 0x1f],
                };
            }
            open.extend_from_slice(&rest[1..]);
            if fu & 0x40 != 0 {
                units.push(std::mem::take(&mut open));
            }
        } else {
            units.push(payload.clone());
        }
    }
    assert!(open.is_empty());
    units
}

/// NAL units of a byte stream, without padding.
fn stored_units(stream: &[u8]) -> Vec<Vec<u8>> {
    let mut starts: Vec<_> =
        stream.windows(3).enumerate().filter(|(_, w)| *w == [0, 0, 1]).collect();
    starts.push((stream.len(), &[]));
    let unit = |pair: &[(usize, &[u8])]| {
        let mut unit = stream[pair[0].0 + 3..pair[1].0].to_vec();
        unit.truncate(unit.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1));
        unit
    };
    starts.windows(2).map(unit).collect()
}

/// Bytes of the frames of sound that packets carry, one behind the other.
fn received_sound(packets: &[(bool, Vec<u8>)], codec: &Codec) -> Vec<u8> {
    let head = |payload: &[u8]| match codec {
        Codec::Aac(_) => 2 + usize::from(u16::from_be_bytes([payload[0], payload[1]])) / 8,
        Codec::MpegAudio => 4,
        _ => 2,
    };
    packets.iter().flat_map(|(_, payload)| payload[head(payload)..].to_vec()).collect()
}

/// Returns a stream of a file as ffmpeg copies it, in a format of elementary streams.
fn copied(path: &Path, stream: &str, format: &str) -> Vec<u8> {
    let path = path.to_str().expect("a path in UTF-8");
    let options = ["-loglevel", "error", "-i", path, "-map", stream, "-c", "copy"];
    let bare = ["-write_xing", "0", "-id3v2_version", "0"];
    let bare: &[&str] = if format == "mp3" { &bare } else { &[] };
    output("ffmpeg", &[&options[..], bare, &["-f", format, "-"]].concat())
        .expect("it made the file")
}

/// Frames of an ADTS stream without their headers.
fn without_headers(mut stream: &[u8]) -> Vec<u8> {
    let mut bare = Vec::new();
    while let &[_, _, _, a, b, c, _, ..] = stream {
        let bytes = usize::from(a & 3) << 11 | usize::from(b) << 3 | usize::from(c) >> 5;
        bare.extend_from_slice(&stream[7..bytes]);
        stream = &stream[bytes..];
    }
    bare
}

/// Presentation time, decoding time (90 kHz) and key flag of each packet, as ffprobe finds them.
fn probed(path: &Path, stream: &str) -> Vec<(i64, i64, bool)> {
    let path = path.to_str().expect("a path in UTF-8");
    let entries = "packet=pts,dts,flags";
    let arguments = [
        "-v",
        "error",
        "-select_streams",
        stream,
        "-show_entries",
        entries,
        "-of",
        "csv=p=0",
        path,
    ];
    let found = output("ffprobe", &arguments).expect("it came with ffmpeg");
    let line = |line: &str| {
        let fields: Vec<_> = line.split(',').collect();
        let number = |at: usize| fields[at].parse().expect("a time");
        (number(0), number(1), fields[2].starts_with('K'))
    };
    String::from_utf8(found).expect("numbers").lines().filter(|l| !l.is_empty()).map(line).collect()
}

fn check(path: &Path, (picture, sound): (&str, &str)) {
    let file = fs::read(path).unwrap();
    let plan = plan(&file);
    let whole = demux(&plan, &file);
    assert_eq!((whole.tracks().len(), whole.left_out()), (2, &[][..]));
    let is_h265 = picture == "hevc";
    let units = received_units(&packets((&plan, &file), &whole, 0), is_h265);
    let expected = stored_units(&copied(path, "0:v", picture));
    let same = units.iter().zip(&expected).take_while(|(a, b)| a == b).count();
    let counts = (units.len(), expected.len());
    assert!(units == expected, "{counts:?} units, the same up to {same}: {:?}", &units[same][..8]);
    let in_fragments = path.with_extension("mp4");
    fs::write(&in_fragments, fragments(&plan, &whole, &file)).unwrap();
    assert!(decoded(&in_fragments) == decoded(path), "other pictures in fragments");
    let sound_of = |path| match sound {
        "adts" => without_headers(&copied(path, "0:a", sound)),
        _ => copied(path, "0:a", sound),
    };
    assert!(sound_of(&in_fragments) == sound_of(path), "other {sound} in fragments");
    let codec = &whole.tracks()[1].codec;
    let frames = received_sound(&packets((&plan, &file), &whole, 1), codec);
    let expected = sound_of(path);
    assert!(frames == expected, "{sound}: {} bytes, not {}", frames.len(), expected.len());
    let mut offset = None;
    for (index, stream) in ["v", "a"].into_iter().enumerate() {
        let track = &whole.tracks()[index];
        let samples: Vec<_> = track.samples.samples(0..track.samples.len()).collect();
        let probed = probed(path, stream);
        assert_eq!(samples.len(), probed.len(), "{stream}");
        for (sample, (pts, dts, is_key)) in samples.iter().zip(probed) {
            let presented = track.presented_ticks(sample) / 300;
            // Both tracks are moved by the same offset; ffprobe's times of sound are rounded.
            let offset = *offset.get_or_insert(pts - presented);
            assert!((presented + offset - pts).abs() <= 2, "{stream}: {presented}, {pts}");
            if index == 0 {
                assert_eq!(i64::from(sample.offset), pts - dts);
                assert_eq!(sample.is_start, is_key, "{stream} at {pts}");
            }
        }
    }
}

/// The streams as segments of HLS and DASH: one file in fragments.
fn fragments(plan: &PacketPlan, whole: &Presentation, file: &[u8]) -> Vec<u8> {
    let segments = TrackSegments::of_elementary(whole, 2).unwrap();
    let read = |track, samples, media: &mut Vec<u8>| {
        copy_elementary(plan, whole, (track, samples), file, media)
    };
    let sample = |track, number| {
        let mut bytes = Vec::new();
        read(track, number..number + 1, &mut bytes).map(|_| bytes)
    };
    let mut out = init_section(whole, &[0, 1], None, sample).unwrap();
    let rendition = segments.rendition(&[0, 1]).unwrap();
    assert_eq!(rendition.segments().len(), 3);
    for number in 0..3 {
        let copied = rendition.copied(whole, &segments, number, false, &mut { read });
        let copied = copied.unwrap().expect("a segment");
        out.extend(copied.head);
        out.extend(copied.media);
    }
    out
}

/// Checksum and size of each decoded picture.
fn decoded(path: &Path) -> Vec<String> {
    let path = path.to_str().expect("a path in UTF-8");
    let options = ["-loglevel", "error", "-i", path, "-map", "0:v", "-fps_mode", "passthrough"];
    let found = output("ffmpeg", &[&options[..], &["-f", "framemd5", "-"]].concat());
    let found = String::from_utf8(found.expect("it made the file")).expect("numbers");
    let frames = found.lines().filter(|line| !line.starts_with('#'));
    frames.map(|line| line.rsplitn(3, ',').take(2).collect()).collect()
}

const H264: &str = "-c:v libx264 -preset ultrafast -pix_fmt yuv420p -bf 3 -g 50";
const H265: &str = "-c:v libx265 -preset ultrafast -pix_fmt yuv420p \
                    -x265-params log-level=0:keyint=50:bframes=3";

#[test]
fn h264_with_b_frames_and_aac_are_what_ffmpeg_finds() {
    let options = format!("{H264} -x264-params slices=3 -c:a aac");
    let Some(path) = film("es-h264-aac.ts", &["libx264"], &options) else { return };
    check(&path, ("h264", "adts"));
}

#[test]
fn h265_and_ac3_are_what_ffmpeg_finds() {
    let options = format!("{H265} -c:a ac3 -b:a 384k");
    let Some(path) = film("es-h265-ac3.ts", &["libx265", "ac3"], &options) else { return };
    check(&path, ("hevc", "ac3"));
}

#[test]
fn packets_with_arrival_times_carry_the_same_streams() {
    let options = format!("{H264} -c:a ac3 -mpegts_m2ts_mode 1");
    let Some(path) = film("es-h264-ac3.m2ts", &["libx264", "ac3"], &options) else { return };
    check(&path, ("h264", "ac3"));
}

#[test]
fn other_sounds_are_what_ffmpeg_finds() {
    for (name, encoder, options, format) in [
        ("es-mp3.ts", "libmp3lame", "-c:a libmp3lame", "mp3"),
        ("es-mp2.ts", "mp2", "-c:a mp2 -b:a 192k", "mp2"),
        ("es-eac3.ts", "eac3", "-c:a eac3 -b:a 640k", "eac3"),
    ] {
        let options = format!("{H264} {options}");
        let Some(path) = film(name, &["libx264", encoder], &options) else { continue };
        check(&path, ("h264", format));
    }
}
