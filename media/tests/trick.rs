// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests trick play of transport streams by ffmpeg: ffmpeg decodes the sent stream of pictures, and
//! [`Monitor`] checks its packets.
//!
//! Every picture in the output is one of the file's key frames, in the right order and at the right
//! time; counters are continuous and clock references in time. Skipped, with the reason printed, if
//! ffmpeg or an encoder is missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use media::payload::RtpValues;
use media::ts::Monitor;
use media::{
    PacketPlan, PlayScale, RtpIdentity, Scanner, TICKS_PER_SECOND, TS_PACKET_BYTES, TrickPlan,
};

const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };
const H264: &str = "-c:v libx264 -preset ultrafast -pix_fmt yuv420p -bf 2 -g 12 -c:a aac";

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

/// A file of 12 s of a test picture and a tone; none, with the reason printed, without the encoder.
fn film(name: &str, encoder: &str, options: &str) -> Option<PathBuf> {
    if !output("ffmpeg", &["-encoders"])?.split_whitespace().any(|word| word == encoder) {
        eprintln!("skip: encoder {encoder} of ffmpeg: not installed");
        return None;
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut all = vec!["-loglevel", "error", "-y", "-f", "lavfi", "-i"];
    all.extend([
        "testsrc2=size=320x180:rate=25:duration=12",
        "-f",
        "lavfi",
        "-i",
        "sine=duration=12",
    ]);
    all.extend(options.split_whitespace());
    all.extend(["-f", "mpegts", path.to_str().expect("a path in UTF-8")]);
    output("ffmpeg", &all)?;
    Some(path)
}

/// Time and hash of each decoded picture, of key frames alone where the file has others.
fn pictures(path: &Path, options: &[&str]) -> Vec<(f64, String)> {
    let mut arguments = vec!["-loglevel", "error", "-skip_frame", "nokey", "-copyts"];
    arguments.extend(options);
    arguments.extend(["-i", path.to_str().expect("a path in UTF-8"), "-map", "0:v:0"]);
    arguments.extend(["-vsync", "passthrough", "-enc_time_base", "1:90000"]);
    arguments.extend(["-f", "framemd5", "-"]);
    let found = output("ffmpeg", &arguments).expect("it made the file");
    let lines = found.lines().filter(|line| !line.starts_with('#'));
    let base = found.lines().find_map(|line| line.strip_prefix("#tb 0: 1/")).expect("a time base");
    let base: f64 = base.parse().expect("a number");
    let picture = |line: &str| {
        let fields: Vec<_> = line.split(',').map(str::trim).collect();
        let time: f64 = fields[2].parse().expect("a time of presentation");
        (time / base, fields[5].to_owned())
    };
    lines.map(picture).collect()
}

fn plan(bytes: &[u8]) -> PacketPlan {
    let mut scanner = Scanner::new();
    scanner.feed(bytes);
    scanner.finish(bytes.len() as u64, IDENTITY).expect("ffmpeg writes good streams")
}

/// The transport stream that is sent, and the times at which its packets are due.
fn stream(trick: &TrickPlan, plan: &PacketPlan, file: &[u8]) -> (Vec<u8>, Vec<Duration>) {
    let values = RtpValues { payload_type: 33, ssrc: 1, sequence: 0, timestamp: 0 };
    let (mut sent, mut due) = (Vec::new(), Vec::new());
    for chapter in 0..trick.presentation().chapters() {
        let layout = trick.lay_out(Some(plan), chapter, file).unwrap();
        assert_eq!(layout.faults(), 0);
        let mut packet = 0;
        while packet < layout.packets() {
            let row = layout.row(packet, u32::MAX);
            for packet in packet..packet + row.packets {
                let mut head = Vec::new();
                layout.write_head(packet, &values, &mut head);
                assert_eq!(head.len(), row.packet_bytes as usize);
                assert_eq!(head[12], 0x47, "packet {packet}");
                let seconds = layout.ticks(packet) as f64 / TICKS_PER_SECOND as f64;
                let packets = (head.len() - 12) / TS_PACKET_BYTES;
                due.extend(std::iter::repeat_n(Duration::from_secs_f64(seconds), packets));
                sent.extend_from_slice(&head[12..]);
                layout.write_pieces(packet..packet + 1, |piece| panic!("of the file: {piece:?}"));
            }
            packet += row.packets;
        }
    }
    (sent, due)
}

fn check(path: &Path, wanted: f64) {
    let file = fs::read(path).unwrap();
    let plan = plan(&file);
    let trick = TrickPlan::of_stream(&plan, PlayScale::nearest(wanted)).unwrap();
    let (sent, due) = stream(&trick, &plan, &file);
    let mut monitor = Monitor::default();
    for (packet, due) in sent.chunks_exact(TS_PACKET_BYTES).zip(&due) {
        monitor.feed(packet, *due);
    }
    let counts = *monitor.counts();
    assert_eq!((counts.continuity_errors, counts.sync_byte_errors), (0, 0), "{counts:?}");
    assert_eq!(counts.clock_discontinuities, 0, "{counts:?}");
    let seconds = due.last().unwrap().as_secs_f64();
    assert!(counts.clock_references as f64 > 24.0 * seconds, "{counts:?} in {seconds} s");
    let made = path.with_extension(format!("at{wanted}.ts"));
    fs::write(&made, &sent).unwrap();
    let (mut expected, found) = (pictures(path, &[]), pictures(&made, &[]));
    let (first, factor) = (expected[0].0, wanted.abs());
    if wanted < 0.0 {
        expected.reverse();
    }
    // At a high rate some are left out.
    let mut next = 0;
    for (index, (time, hash)) in found.iter().enumerate() {
        let at = expected[next..].iter().position(|(_, own)| own == hash);
        let at = next + at.unwrap_or_else(|| panic!("picture {index} at {time} s: {found:?}"));
        let in_file = expected[at].0 - first;
        let shown = if wanted < 0.0 { expected[0].0 - first - in_file } else { in_file };
        let passed = time - found[0].0;
        assert!((passed - shown / factor).abs() < 1e-3, "picture {index}: {passed} s, {shown} s");
        next = at + 1;
    }
    let pairs = found.windows(2);
    assert!(pairs.map(|pair| pair[1].0 - pair[0].0).all(|apart| apart > 0.0999), "{found:?}");
    // A key frame each 0.48 s; none is shown within a tenth of a second after another.
    let one_in = (0.1 / (0.48 / factor)).ceil() as usize;
    assert_eq!(found.len(), expected.len().div_ceil(one_in), "{found:?}");
}

#[test]
fn pictures_of_a_stream_are_shown_in_order_and_in_time() {
    let Some(path) = film("trick-h264.ts", "libx264", H264) else { return };
    for scale in [2.0, 4.0, 16.0, -1.0, -2.0, -8.0] {
        check(&path, scale);
    }
}

#[test]
fn streams_of_other_codings_and_packet_sizes_have_trick_play() {
    let others = [
        ("trick-m2ts.ts", "libx264", format!("{H264} -mpegts_m2ts_mode 1")),
        ("trick-mpeg2.ts", "mpeg2video", "-c:v mpeg2video -g 12 -bf 2 -c:a mp2".to_owned()),
        (
            "trick-h265.ts",
            "libx265",
            "-c:v libx265 -preset ultrafast -x265-params log-level=0:keyint=12:bframes=0 \
             -pix_fmt yuv420p -c:a ac3"
                .to_owned(),
        ),
    ];
    for (name, encoder, options) in others {
        let Some(path) = film(name, encoder, &options) else { continue };
        check(&path, 4.0);
        check(&path, -2.0);
    }
}

#[test]
fn a_damaged_file_has_no_pictures_and_no_panic() {
    let Some(path) = film("trick-damaged.ts", "libx264", H264) else { return };
    let good = fs::read(&path).unwrap();
    let plan = plan(&good);
    let trick = TrickPlan::of_stream(&plan, PlayScale::nearest(-4.0)).unwrap();
    for (what, byte) in [("zeros", 0), ("sync bytes", 0x47), ("ones", 0xff)] {
        // The file has changed after the plan was created.
        let bad = vec![byte; good.len()];
        for chapter in 0..trick.presentation().chapters() {
            let layout = trick.lay_out(Some(&plan), chapter, &bad[..]).unwrap();
            assert_eq!(layout.packets(), 0, "{what}");
        }
    }
    // It was cut off.
    assert!(trick.lay_out(Some(&plan), 0, &good[..good.len() / 2]).is_err());
}
