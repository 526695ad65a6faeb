// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests streams that the splicer joins from files of ffmpeg with independent parsers: the crate
//! `mpeg2ts-reader`, ffprobe, and ffmpeg's decoders.
//!
//! Continuity counters, clock references, timestamps and tables are checked packet by packet;
//! frames and samples are decoded and counted. Skipped, with the reason printed, where ffmpeg or
//! an encoder is missing.
//!
//! Sources: ISO/IEC 13818-1 §2.4.2, §2.4.3; ETSI TR 101 290 §5.2.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use media::{
    RtpIdentity, Scanner, SpliceItem, SpliceSettings, Splicer, Survey, TICKS_PER_SECOND,
    TS_PACKET_BYTES,
};
use mpeg2ts_reader::packet::Packet;
use mpeg2ts_reader::pes::{PesContents, PesHeader, PtsDts};

const PCR_MODULUS: u64 = (1 << 33) * 300;
const SOUND: u16 = 0x110;
const PICTURES: u16 = 0x100;

/// Output of a program; none, with the reason printed, where it is not installed.
fn output(program: &str, arguments: &[&str]) -> Option<(String, String)> {
    let output = match Command::new(program).arg("-hide_banner").args(arguments).output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skip: {program}: not installed: {error}; apt install ffmpeg");
            return None;
        }
    };
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {complaint}");
    Some((String::from_utf8(output.stdout).expect("ffmpeg prints UTF-8"), complaint))
}

/// A file made by ffmpeg: `seconds` of a test picture and of a tone, with these options.
fn film(name: &str, seconds: u32, options: &str) -> Option<PathBuf> {
    let known = output("ffmpeg", &["-encoders"])?.0;
    let mut words = options.split_whitespace();
    while let Some(word) = words.next() {
        if word.starts_with("-c:") {
            let encoder = words.next().expect("an encoder");
            if !known.split_whitespace().any(|word| word == encoder) {
                eprintln!("skip: encoder {encoder} of ffmpeg: not installed");
                return None;
            }
        }
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let picture = format!("testsrc2=size=320x180:rate=25:duration={seconds}");
    let tone = format!("sine=sample_rate=48000:duration={seconds}");
    let mut all = vec!["-loglevel", "error", "-y", "-f", "lavfi", "-i", &picture];
    all.extend(["-f", "lavfi", "-i", &tone]);
    all.extend(options.split_whitespace());
    all.extend(["-f", "mpegts", path.to_str().expect("a path in UTF-8")]);
    output("ffmpeg", &all)?;
    Some(path)
}

const H264: &str = "-c:v libx264 -preset ultrafast -pix_fmt yuv420p -c:a aac";

/// Files of one picture and one sound coding, so that a decoder can decode them end to end. Each
/// test has files of its own: they run at the same time.
fn alike(test: &str) -> Option<Vec<PathBuf>> {
    let options = [
        (3, "-g 12 -bf 2"),
        (2, "-g 25 -bf 0 -muxdelay 0.1 -muxpreload 0.1"),
        // The 33 bits of its timestamps wrap in its middle.
        (4, "-g 50 -bf 3 -output_ts_offset 95440.5"),
        (1, "-g 10 -bf 1 -muxrate 3000k"),
        (2, "-g 5 -bf 0 -pcr_period 40 -muxdelay 1 -muxpreload 1"),
        (3, "-g 33 -bf 2 -mpegts_start_pid 0x777 -mpegts_pmt_start_pid 0x33"),
    ];
    let film = |(at, (seconds, more)): (usize, &(u32, &str))| {
        film(&format!("splice-{test}-{at}.ts"), *seconds, &format!("{H264} {more}"))
    };
    options.iter().enumerate().map(film).collect()
}

/// Files of all codings, one of them with two programmes, one of packets of 192 bytes.
fn unlike() -> Option<Vec<PathBuf>> {
    Some(vec![
        film("splice-h264.ts", 2, &format!("{H264} -g 12 -bf 2"))?,
        film("splice-mpeg2.ts", 2, "-c:v mpeg2video -g 15 -bf 2 -c:a mp2")?,
        film(
            "splice-h265.ts",
            1,
            "-c:v libx265 -preset ultrafast -x265-params log-level=0 \
            -pix_fmt yuv420p -c:a ac3",
        )?,
        film("splice-sound.ts", 2, "-map 1:a -c:a aac")?,
        film(
            "splice-two.ts",
            2,
            &format!(
                "-map 0:v -map 1:a -map 0:v -map 1:a {H264} \
            -program program_num=3:st=0:st=1 -program program_num=9:st=2:st=3"
            ),
        )?,
        film("splice-m2ts.ts", 2, &format!("{H264} -mpegts_m2ts_mode 1"))?,
    ])
}

/// A file as its packets and their due times from its plan.
struct Film {
    packets: Vec<[u8; TS_PACKET_BYTES]>,
    due: Vec<u64>,
    ticks: u64,
    entries: Vec<u64>,
}

fn read(path: &Path) -> Film {
    let bytes = fs::read(path).expect("ffmpeg wrote it");
    let mut scanner = Scanner::new();
    scanner.feed(&bytes);
    let identity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };
    let plan = scanner.finish(bytes.len() as u64, identity).expect("ffmpeg writes good streams");
    let mut packets: Vec<[u8; TS_PACKET_BYTES]> = Vec::new();
    for extent in plan.extents() {
        let offset = |packet| (extent.file_offset + packet * plan.stride()) as usize;
        let packet = |at| *bytes[offset(at)..].first_chunk().expect("a packet");
        packets.extend((0..extent.ts_packets).map(packet));
    }
    Film {
        due: (0..packets.len() as u64).map(|packet| plan.ticks_of(packet)).collect(),
        packets,
        ticks: plan.duration_ticks(),
        entries: plan.entries().iter().map(|entry| entry.ts_packet).collect(),
    }
}

/// Part of a file in the channel.
struct Part<'a> {
    path: &'a Path,
    programme: Option<u16>,
    /// Start at the second place where play can start.
    is_entered_late: bool,
}

fn whole(path: &Path) -> Part<'_> {
    Part { path, programme: None, is_entered_late: false }
}

/// A stream composed of parts.
struct Channel {
    stream: Vec<u8>,
    first_slot: u64,
    /// Clock references of each part, as in its file.
    references: Vec<Vec<u64>>,
    /// Times at which each part's first clock reference is due.
    starts: Vec<u64>,
    room_ticks_max: u64,
    counts: media::SpliceCounts,
}

fn play(parts: &[Part<'_>], start: u64, constant_rate: Option<u64>) -> Channel {
    let settings = SpliceSettings { constant_rate, ..SpliceSettings::default() };
    let mut splicer = Splicer::new(&settings).unwrap();
    let (mut stream, mut now) = (Vec::new(), start);
    let (mut references, mut starts, mut room_ticks_max) = (Vec::new(), Vec::new(), 0);
    if constant_rate.is_some() {
        splicer.fill_to(start, &mut stream);
    }
    let first_slot = splicer.next_slot().unwrap_or(0);
    for part in parts {
        let film = read(part.path);
        let first = if part.is_entered_late { film.entries[1] as usize } else { 0 };
        let due = |at: usize| now + film.due[at] - film.due[first];
        let mut survey = Survey::default();
        survey.feed(film.packets.as_flattened());
        let mut item = SpliceItem::new(&survey.finish(), part.programme).unwrap();
        let clock_pid = clock_pid(&film.packets, part.programme);
        let mut packets = film.packets.iter().enumerate().skip(first);
        assert!(packets.any(|(at, packet)| item.look_ahead(packet, due(at))), "{:?}", part.path);
        let splice = splicer.begin(&item).unwrap();
        assert_eq!(splice.overlap_ticks, 0);
        room_ticks_max = room_ticks_max.max(splice.room_ticks);
        let mut found = Vec::new();
        for (at, packet) in film.packets.iter().enumerate().skip(first) {
            if let Some(pcr) = pcr(packet).filter(|_| pid(packet) == clock_pid) {
                if found.is_empty() {
                    starts.push(due(at));
                }
                found.push(pcr);
            }
            splicer.push(packet, due(at), &mut stream);
        }
        references.push(found);
        now += film.ticks - film.due[first];
        now = now.max(splicer.media_end().expect("media was sent"));
    }
    if constant_rate.is_some() {
        splicer.fill_to(now + TICKS_PER_SECOND, &mut stream);
    }
    let counts = *splicer.counts();
    assert_eq!(counts.sent_packets * TS_PACKET_BYTES as u64, stream.len() as u64);
    Channel { stream, first_slot, references, starts, room_ticks_max, counts }
}

fn pid(packet: &[u8]) -> u16 {
    u16::from(Packet::new(packet).pid())
}

fn pcr(packet: &[u8]) -> Option<u64> {
    let reference = Packet::new(packet).adaptation_field()?.pcr().ok()?;
    Some(reference.base() * 300 + u64::from(reference.extension()))
}

/// PID of the clock: ffmpeg writes a programme's clock on its first stream.
fn clock_pid(packets: &[[u8; TS_PACKET_BYTES]], programme: Option<u16>) -> u16 {
    let mut pids: Vec<u16> =
        packets.iter().filter(|packet| pcr(&packet[..]).is_some()).map(|p| pid(p)).collect();
    pids.sort_unstable();
    pids.dedup();
    if programme == Some(9) { pids[1] } else { pids[0] }
}

/// Properties found in a stream by the independent parser.
#[derive(Default)]
struct Found {
    /// Index of the packet and value of each clock reference.
    references: Vec<(u64, u64)>,
    /// Decoding times by PID.
    times: BTreeMap<u16, Vec<u64>>,
    /// PES packets by PID.
    units: BTreeMap<u16, u64>,
    /// Indices of packets that begin tables, by PID.
    tables: BTreeMap<u16, Vec<u64>>,
}

/// Checks sync bytes and continuity counters, and gathers the rest.
fn inspect(stream: &[u8]) -> Found {
    assert!(stream.len().is_multiple_of(TS_PACKET_BYTES));
    let mut found = Found::default();
    let mut counters: BTreeMap<u16, u8> = BTreeMap::new();
    for (index, bytes) in stream.chunks_exact(TS_PACKET_BYTES).enumerate() {
        let index = index as u64;
        let packet = Packet::try_new(bytes).expect("a sync byte");
        let pid = u16::from(packet.pid());
        if pid == 0x1fff {
            continue;
        }
        let has_payload = packet.adaptation_control().has_payload();
        let counter = packet.continuity_counter().count();
        if let Some(before) = counters.insert(pid, counter) {
            let expected = (before + u8::from(has_payload)) % 16;
            assert_eq!(counter, expected, "packet {index} of PID {pid:#x}");
        }
        assert!(!packet.transport_error_indicator());
        if let Some(field) = packet.adaptation_field() {
            assert!(!field.discontinuity_indicator(), "packet {index} of PID {pid:#x}");
            if let Ok(reference) = field.pcr() {
                assert_eq!(pid, PICTURES, "clock on one PID");
                let pcr = reference.base() * 300 + u64::from(reference.extension());
                found.references.push((index, pcr));
            }
        }
        if !packet.payload_unit_start_indicator() {
            continue;
        }
        if !(PICTURES..0x1000).contains(&pid) {
            found.tables.entry(pid).or_default().push(index);
            continue;
        }
        *found.units.entry(pid).or_default() += 1;
        let header = PesHeader::from_bytes(packet.payload().expect("a payload")).expect("PES");
        if let PesContents::Parsed(Some(contents)) = header.contents() {
            let time = match contents.pts_dts().expect("marker bits") {
                PtsDts::PtsOnly(Ok(pts)) => pts.value(),
                PtsDts::Both { pts: Ok(_), dts: Ok(dts) } => dts.value(),
                other => panic!("packet {index} of PID {pid:#x}: {other:?}"),
            };
            found.times.entry(pid).or_default().push(time);
        }
    }
    for (pid, times) in &found.times {
        for pair in times.windows(2) {
            let step = (pair[1] + (1 << 33) - pair[0]) % (1 << 33);
            assert!((1..900_000).contains(&step), "PID {pid:#x}: {pair:?}");
        }
    }
    found
}

fn assert_units_complete(found: &Found, parts: &[Part<'_>]) {
    let mut expected = [0; 2];
    for part in parts {
        let units = |packet: &[u8; TS_PACKET_BYTES]| {
            let packet = Packet::new(packet);
            let payload = packet.payload().filter(|_| packet.payload_unit_start_indicator())?;
            matches!(payload, [0, 0, 1, ..]).then(|| payload[3])
        };
        for id in read(part.path).packets.iter().filter_map(units) {
            expected[usize::from(id & 0xf0 != 0xe0)] += 1;
        }
    }
    let unit = |pid| found.units.get(&pid).copied().unwrap_or(0);
    assert_eq!([unit(PICTURES), unit(SOUND)], expected);
}

/// Checks that the references of a part keep their distances in the file, and that the first of
/// each part is due at the time of its start.
fn assert_differences_kept(channel: &Channel, found: &Found) {
    let mut rest = found.references.as_slice();
    for (file, start) in channel.references.iter().zip(&channel.starts) {
        let here;
        (here, rest) = rest.split_at(file.len());
        assert_eq!(here[0].1, start % PCR_MODULUS);
        for (here, file) in here.windows(2).zip(file.windows(2)) {
            let step = |from: u64, to: u64| (to + PCR_MODULUS - from) % PCR_MODULUS;
            assert_eq!(step(here[0].1, here[1].1), step(file[0], file[1]));
        }
    }
    assert!(rest.is_empty());
}

/// Checks that references are within 500 ns of a straight line over bytes, no two of them more than
/// 40 ms apart, and that tables are in time.
fn assert_straight(found: &Found, first_slot: u64, rate: u64) {
    let ticks = |packets: u64| u128::from(packets) * 1504 * 27_000_000 / u128::from(rate);
    let (first, start) = found.references[0];
    let absolute = (ticks(first_slot + first) + 80 * 27_000_000 / u128::from(rate)) as u64;
    assert!((absolute % PCR_MODULUS).abs_diff(start) <= 13, "{absolute} {start}");
    let mut before = start;
    for &(index, pcr) in &found.references {
        let passed = u128::from((pcr + PCR_MODULUS - start) % PCR_MODULUS);
        assert!(passed.abs_diff(ticks(index - first)) <= 13, "500 ns are 13.5 ticks");
        assert!((pcr + PCR_MODULUS - before) % PCR_MODULUS <= TICKS_PER_SECOND / 25);
        before = pcr;
    }
    for (pid, limit_ms) in [(0, 100), (0x1000, 100), (0x11, 2000)] {
        for pair in found.tables[&pid].windows(2) {
            assert!(ticks(pair[1] - pair[0]) <= u128::from(TICKS_PER_SECOND) * limit_ms / 1000);
        }
    }
}

fn write(name: &str, stream: &[u8]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, stream).expect("a file in the folder of tests");
    path
}

/// Frames of pictures, and samples of sound in units of frames, that ffmpeg decodes.
fn frames(path: &Path) -> Option<[u64; 2]> {
    let path = path.to_str().expect("a path in UTF-8");
    let count = |kind| -> Option<u64> {
        let (out, complaint) = output(
            "ffprobe",
            &[
                "-v",
                "error",
                "-count_frames",
                "-select_streams",
                kind,
                "-show_entries",
                "stream=nb_read_frames",
                "-of",
                "csv=p=0",
                path,
            ],
        )?;
        assert_eq!(complaint, "", "{path}");
        Some(out.lines().find_map(|line| line.trim_end_matches(',').parse().ok()).unwrap())
    };
    Some([count("v:0")?, count("a:0")?])
}

/// Decodes a joined stream: no complaints, all frames of the files, decoding times that rise.
fn assert_decodes(path: &Path, films: &[&Path]) -> Option<()> {
    let name = path.to_str().expect("a path in UTF-8");
    let (_, complaint) = output("ffmpeg", &["-v", "error", "-i", name, "-f", "null", "-"])?;
    assert_eq!(complaint, "");
    let mut expected = [0; 2];
    for film in films {
        let [pictures, sound] = frames(film)?;
        expected = [expected[0] + pictures, expected[1] + sound];
    }
    assert_eq!(frames(path)?, expected, "frames of pictures and of sound");
    let entries = ["-v", "error", "-show_entries", "packet=stream_index,dts", "-of", "csv=p=0"];
    let (out, _) = output("ffprobe", &[&entries[..], &[name]].concat())?;
    let mut last = [i64::MIN; 2];
    for line in out.lines().filter(|line| !line.is_empty()) {
        let mut fields = line.split(',');
        let stream: usize = fields.next()?.parse().unwrap();
        let dts: i64 = fields.next()?.parse().unwrap();
        assert!(last[stream] < dts, "stream {stream}: {dts} after {}", last[stream]);
        last[stream] = dts;
    }
    Some(())
}

#[test]
fn files_play_end_to_end_without_an_error_of_the_decoder_or_a_lost_frame() {
    let Some(films) = alike("whole") else { return };
    let order = [0, 1, 2, 3, 4, 5, 1, 0, 4, 3];
    let parts: Vec<_> = order.iter().map(|&at| whole(&films[at])).collect();
    let paths: Vec<&Path> = order.iter().map(|&at| films[at].as_path()).collect();
    let channel = play(&parts, 1000 * TICKS_PER_SECOND, None);
    let found = inspect(&channel.stream);
    assert_units_complete(&found, &parts);
    assert_differences_kept(&channel, &found);
    assert!(channel.room_ticks_max > 0, "the second file has less time before its pictures");
    assert_decodes(&write("splice-vbr.out.ts", &channel.stream), &paths);

    let rate = 4_000_000;
    let channel = play(&parts, 1000 * TICKS_PER_SECOND, Some(rate));
    let found = inspect(&channel.stream);
    assert_units_complete(&found, &parts);
    assert_straight(&found, channel.first_slot, rate);
    assert_eq!(channel.counts.late_units, 0);
    assert_decodes(&write("splice-cbr.out.ts", &channel.stream), &paths);
}

#[test]
fn files_of_all_codings_are_joined_across_the_wrap_of_the_clock() {
    let Some(films) = unlike() else { return };
    let parts = || {
        let late = Part { path: &films[0], programme: None, is_entered_late: true };
        let second = Part { path: &films[4], programme: Some(9), is_entered_late: false };
        let mut parts = vec![late, second];
        parts.extend([1, 2, 3, 5, 0, 3, 1].map(|at| whole(&films[at])));
        parts
    };
    let start = PCR_MODULUS - 5 * TICKS_PER_SECOND;
    let channel = play(&parts(), start, None);
    assert_differences_kept(&channel, &inspect(&channel.stream));
    assert_eq!(channel.counts.clock_discontinuities, 0);
    let rate = 3_333_333;
    let channel = play(&parts(), start, Some(rate));
    assert_straight(&inspect(&channel.stream), channel.first_slot, rate);
    assert_eq!(channel.counts.broken_units + channel.counts.far_units, 0);
}

#[test]
fn rate_that_is_too_low_drops_whole_pes_packets_and_counts_them() {
    let Some(films) = alike("slow") else { return };
    let parts = [whole(&films[0]), whole(&films[2])];
    let rate = 400_000;
    let channel = play(&parts, 0, Some(rate));
    assert!(channel.counts.late_units > 10, "{:?}", channel.counts);
    assert_straight(&inspect(&channel.stream), channel.first_slot, rate);
}

/// Nanoseconds per packet; for the figure in the splicer's header.
#[test]
#[ignore = "a measurement: cargo test --release -p pagewire-media --test splice -- --ignored"]
fn cost_of_a_packet() {
    let Some(path) = film("splice-cost.ts", 20, &format!("{H264} -b:v 20M -g 50")) else { return };
    let film = read(&path);
    for constant_rate in [None, Some(40_000_000)] {
        let settings = SpliceSettings { constant_rate, ..SpliceSettings::default() };
        let mut survey = Survey::default();
        survey.feed(film.packets.as_flattened());
        let item = SpliceItem::new(&survey.finish(), None).unwrap();
        let best = (0..20).map(|_| {
            let (mut splicer, mut item) = (Splicer::new(&settings).unwrap(), item.clone());
            let mut packets = film.packets.iter().zip(&film.due);
            assert!(packets.any(|(packet, &due)| item.look_ahead(packet, due)));
            splicer.begin(&item).unwrap();
            let mut out = Vec::with_capacity(1 << 20);
            let began = Instant::now();
            for (packet, &due) in film.packets.iter().zip(&film.due) {
                splicer.push(packet, due, &mut out);
                if out.len() > 1 << 19 {
                    out.clear();
                }
            }
            let sent = splicer.counts().sent_packets;
            (began.elapsed().as_nanos() as u64 / sent, sent)
        });
        let (ns, sent) = best.min().unwrap();
        println!("rate {constant_rate:?}: {ns} ns per packet sent, {sent} of them");
    }
}

/// Frames of AAC in a file, by ffprobe.
fn sound_frames(path: &Path) -> Option<u64> {
    let of_sound = ["-v", "error", "-select_streams", "a", "-count_packets", "-show_entries"];
    let path = path.to_str().expect("a path in UTF-8");
    let all =
        [&of_sound[..], &["stream=nb_read_packets", "-of", "default=nk=1:nw=1", path]].concat();
    let count = output("ffprobe", &all)?.0;
    Some(count.lines().next().expect("a stream").parse().expect("a number"))
}

/// Duration of a frame of AAC at 48 kHz, in units of 90 kHz.
const FRAME_TICKS: u64 = 1920;

/// Longest time between decoding the first picture and the first sound, less a picture.
const EARLY_TICKS: u64 = 60 * 90;

#[test]
fn files_follow_their_last_sound_and_room_does_not_grow_while_they_repeat() {
    let Some(films) = alike("repeated") else { return };
    for film in &films {
        let parts: Vec<_> = (0..40).map(|_| whole(film)).collect();
        let channel = play(&parts, 0, None);
        assert!(channel.room_ticks_max < TICKS_PER_SECOND / 1000, "{film:?}");
        // Sound lasts longest in all of them: the next file follows its last frame, for any number
        // of frames in a PES packet, except for the time by which pictures are decoded early.
        let times = &inspect(&channel.stream).times[&SOUND];
        let starts: Vec<u64> = times.iter().copied().step_by(times.len() / 40).collect();
        assert_eq!(starts.len(), 40);
        let Some(frames) = sound_frames(film) else { return };
        for pair in starts.windows(2) {
            let lasts = pair[1] - pair[0];
            let silent = lasts.checked_sub(frames * FRAME_TICKS - 1);
            let is_early = silent.is_some_and(|silent| silent <= EARLY_TICKS);
            assert!(is_early, "{film:?}: {lasts}, {frames} frames");
        }
    }
}
