// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests writers of files with units that no camera should send and with random ones: refusals with
//! their names, bounded memory, and streams that follow the rules of ISO/IEC 13818-1.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.2 to §2.4.3.7; ETSI TR 101 290 §5.2 (intervals).

use std::collections::BTreeMap;

use media::mp4::Mp4Demuxer;
use media::mux::{HELD_BYTES_MAX, MediaWriter, UNIT_BYTES_MAX, WriterKind};
use media::tracks::{H264Config, H265Config};
use media::{AccessUnit, Codec, MuxRefusal, Presentation, RtpIdentity, Scanner};
use proptest::collection::vec;
use proptest::prelude::*;

const KINDS: [WriterKind; 2] = [WriterKind::FragmentedMp4, WriterKind::TransportStream];
const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };

/// Main profile, 16 × 16, without usability information: 16 pictures wait for their order.
const SET: [u8; 7] = [0x67, 0x4d, 0x00, 0x0a, 0xf2, 0xbc, 0x80];
const PICTURE_SET: [u8; 2] = [0x68, 0xce];

fn h264(has_sets: bool) -> Codec {
    let sets = |set: &[u8]| if has_sets { vec![set.to_vec()] } else { Vec::new() };
    Codec::H264(H264Config {
        length_bytes: 4,
        profile: [0x4d, 0, 0x0a],
        sequence_sets: sets(&SET),
        picture_sets: sets(&PICTURE_SET),
    })
}

const OPUS: Codec = Codec::Opus { channels: 2 };
const AC3: Codec = Codec::Ac3 { rate_hz: 44_100, channels: 2 };

fn unit(time: i64, bytes: Vec<u8>, is_start: bool) -> AccessUnit {
    AccessUnit { time, bytes, is_start, is_after_loss: false }
}

/// NAL units, each after its length.
fn nals(units: &[&[u8]]) -> Vec<u8> {
    units.iter().flat_map(|nal| [&(nal.len() as u32).to_be_bytes()[..], nal].concat()).collect()
}

/// A picture of this many bytes, with content derived from its number.
fn picture(number: usize, bytes: usize, is_key: bool) -> Vec<u8> {
    let mut nal = vec![number as u8 | 1; bytes.max(2)];
    nal[0] = if is_key { 0x65 } else { 0x41 };
    nals(&[&nal])
}

/// A frame of AC-3 of this many bytes.
fn sound(number: usize, bytes: usize) -> Vec<u8> {
    let mut frame = vec![number as u8; bytes.max(8)];
    frame[..7].copy_from_slice(&[0x0b, 0x77, 0, 0, 0x54, 0x40, 0x43]);
    frame
}

fn writer(kind: WriterKind, codecs: &[Codec]) -> MediaWriter {
    MediaWriter::new(kind, codecs).expect("codecs that it holds")
}

fn demux(file: &[u8]) -> Presentation {
    let mut demuxer = Mp4Demuxer::new(file.len() as u64);
    while !demuxer.advance(file, 1000).expect("a good file") {}
    demuxer.finish(|| IDENTITY).expect("a track can be streamed")
}

#[test]
fn hostile_units_are_refused_by_name_and_the_file_stays_good() {
    for kind in KINDS {
        let mut writer = writer(kind, &[h264(false), AC3]);
        let mut file = Vec::new();
        let mut refusal = |track, unit| writer.push(track, unit, &mut file).unwrap_err();
        let key = |time| unit(time, picture(0, 100, true), true);
        assert!(matches!(refusal(2, key(0)), MuxRefusal::NoTrack { track: 2, tracks: 2 }));
        // A key frame without parameter sets, and one with a set that is cut off.
        assert!(matches!(refusal(0, key(0)), MuxRefusal::NoStart { track: 0 }));
        let cut = nals(&[&SET[..5], &PICTURE_SET, &[0x65, 1]]);
        assert!(matches!(refusal(0, unit(0, cut, true)), MuxRefusal::NoStart { .. }));
        // Sets, but no key frame.
        let whole = nals(&[&SET, &PICTURE_SET, &[0x65, 1, 2, 3]]);
        assert!(matches!(refusal(0, unit(0, whole.clone(), false)), MuxRefusal::NoStart { .. }));
        for empty in [vec![], vec![0; 4], vec![0; 400]] {
            assert!(matches!(refusal(0, unit(0, empty, true)), MuxRefusal::Empty { .. }));
        }
        let many = [0, 0, 0, 1, 0x65].repeat(5000);
        for broken in [vec![0, 0, 0, 9, 0x65], vec![1, 2, 3], vec![0xff; 1000], many] {
            let refusal = refusal(0, unit(0, broken, true));
            assert!(matches!(refusal, MuxRefusal::Malformed { .. }), "{refusal}");
        }
        let large = refusal(0, unit(0, vec![0; 70 << 20], true));
        assert!(matches!(large, MuxRefusal::TooLarge { limit: UNIT_BYTES_MAX, .. }), "{large}");
        for time in [i64::MIN, i64::MAX, 1 << 60] {
            let refusal = refusal(0, unit(time, whole.clone(), true));
            assert!(matches!(refusal, MuxRefusal::TimeJump { .. }), "{refusal}");
        }
        let mut push = |track, unit| writer.push(track, unit, &mut file);
        push(0, unit(0, whole, true)).unwrap();
        push(1, unit(0, sound(0, 300), true)).unwrap();
        for number in 1..200_i64 {
            let is_key = number % 50 == 0;
            push(0, unit(number * 3600, picture(number as usize, 500, is_key), is_key)).unwrap();
            push(1, unit(number * 1764, sound(number as usize, 300), true)).unwrap();
            // Back by an hour, and ahead by a day.
            for jump in [-324_000_000, 7_776_000_000] {
                let jumped = unit(number * 3600 + jump, picture(0, 50, false), false);
                assert!(matches!(push(0, jumped), Err(MuxRefusal::TimeJump { track: 0, .. })));
            }
        }
        assert!(writer.ends_whole());
        writer.finish(&mut file);
        match kind {
            WriterKind::FragmentedMp4 => {
                let found = demux(&file);
                assert_eq!(found.tracks()[0].samples.len(), 200);
                assert_eq!(found.tracks()[1].samples.len(), 200);
            }
            _ => {
                let found = read(&file);
                assert_eq!((found.units[&0x100].len(), found.units[&0x101].len()), (200, 200));
            }
        }
    }
}

#[test]
fn first_frames_that_are_none_of_their_codec_are_refused_for_mp4() {
    let mut file = Vec::new();
    for codec in [AC3, Codec::Eac3 { rate_hz: 48_000, channels: 2 }, Codec::MpegAudio] {
        let mut writer = writer(WriterKind::FragmentedMp4, &[codec]);
        let refusal = writer.push(0, unit(0, vec![1; 200], true), &mut file).unwrap_err();
        assert!(matches!(refusal, MuxRefusal::Malformed { .. }), "{refusal}");
    }
}

#[test]
fn memory_is_bounded_when_time_stands_still() {
    for kind in KINDS {
        let mut writer = writer(kind, &[h264(true), OPUS]);
        let mut file = Vec::new();
        let (mut pushed, mut held) = (0, 0);
        for number in 0..40 {
            let bytes = picture(number, 4 << 20, number == 0);
            pushed += bytes.len();
            writer.push(0, unit(0, bytes, number == 0), &mut file).unwrap();
            held = held.max(pushed.saturating_sub(file.len()));
        }
        assert!(held <= HELD_BYTES_MAX + UNIT_BYTES_MAX, "{kind:?}: {held} bytes held");
        writer.finish(&mut file);
        assert!(file.len() > pushed);
    }
}

#[test]
fn a_fragment_of_very_many_units_takes_no_longer_for_each() {
    // Time does not advance, so that only memory ends the fragment.
    for kind in KINDS {
        let mut writer = writer(kind, &[OPUS]);
        let mut file = Vec::new();
        let begun = std::time::Instant::now();
        for _ in 0..300_000 {
            writer.push(0, unit(0, vec![7], true), &mut file).unwrap();
        }
        writer.finish(&mut file);
        assert!(begun.elapsed().as_secs() < 60, "{kind:?}: {:?}", begun.elapsed());
    }
}

#[test]
fn a_track_that_never_comes_delays_no_other_for_long_and_is_refused_later() {
    let mut writer = writer(WriterKind::FragmentedMp4, &[OPUS, h264(false)]);
    let mut file = Vec::new();
    for number in 0..50 * 31 {
        writer.push(0, unit(number * 960, vec![7; 100], true), &mut file).unwrap();
    }
    assert!(writer.ends_whole(), "30 s without parameters of the pictures");
    let whole = nals(&[&SET, &PICTURE_SET, &[0x65, 1, 2, 3]]);
    let refusal = writer.push(1, unit(31 * 90_000, whole, true), &mut file).unwrap_err();
    assert!(matches!(refusal, MuxRefusal::LeftOut { track: 1, .. }), "{refusal}");
    writer.finish(&mut file);
    assert_eq!(demux(&file).tracks().len(), 1);

    // A transport stream continues with sound after a second; pictures may still follow.
    let mut writer = self::writer(WriterKind::TransportStream, &[OPUS, h264(false)]);
    let mut file = Vec::new();
    for number in 0..100 {
        writer.push(0, unit(number * 960, vec![7; 100], true), &mut file).unwrap();
    }
    let before = read(&file).units[&0x100].len();
    assert!((45..=50).contains(&before), "{before} of 100 frames, a second is held");
    let whole = nals(&[&SET, &PICTURE_SET, &[0x65, 1, 2, 3]]);
    writer.push(1, unit(2 * 90_000, whole, true), &mut file).unwrap();
    writer.finish(&mut file);
    let found = read(&file);
    assert_eq!((found.units[&0x100].len(), found.units[&0x101].len()), (100, 1));
}

#[test]
fn a_quiet_source_is_flushed() {
    for kind in KINDS {
        let mut writer = writer(kind, &[OPUS, h264(true)]);
        let mut file = Vec::new();
        for number in 0..10 {
            writer.push(0, unit(number * 960, vec![7; 100], true), &mut file).unwrap();
        }
        assert!(file.is_empty() && !writer.ends_whole());
        writer.flush(&mut file);
        assert!(writer.ends_whole() && file.len() > 900, "{kind:?}: {} bytes", file.len());
        let flushed = file.len();
        writer.flush(&mut file);
        assert_eq!(file.len(), flushed, "nothing is written twice");
    }
}

#[test]
fn sets_that_change_stay_in_the_samples_and_the_first_are_in_the_description() {
    let mut other = SET;
    other[3] = 0x0b;
    let mut writer = writer(WriterKind::FragmentedMp4, &[h264(false)]);
    let mut file = Vec::new();
    let samples = [
        nals(&[&SET, &PICTURE_SET, &[0x65, 1]]),
        nals(&[&[0x41, 2]]),
        nals(&[&other, &PICTURE_SET, &[0x65, 3]]),
    ];
    for (bytes, time) in samples.iter().zip([0, 3600, 7200]) {
        let is_start = bytes.len() > 8;
        writer.push(0, unit(time, bytes.clone(), is_start), &mut file).unwrap();
    }
    writer.finish(&mut file);
    let found = demux(&file);
    let Codec::H264(config) = &found.tracks()[0].codec else { panic!("H.264") };
    assert_eq!(config.sequence_sets, [SET]);
    let written = found.tracks()[0].samples.samples(0..3).map(|sample| {
        let start = sample.file_offset as usize;
        file[start..start + sample.bytes as usize].to_vec()
    });
    assert_eq!(written.collect::<Vec<_>>(), samples);
}

#[test]
fn h265_without_sets_in_its_description_takes_them_from_the_first_key_frame() {
    // Of x265, 322 × 178.
    let set = [
        0x42, 0x01, 0x01, 0x01, 0x60, 0, 0, 0x03, 0, 0x90, 0, 0, 0x03, 0, 0, 0x03, 0, 0x3c, 0xa0,
        0x0a, 0x48, 0x0b, 0x9c, 0x92, 0x65, 0x95, 0x9a, 0x49, 0x32, 0xbc, 0x05, 0xa0, 0x20,
    ];
    let (video, picture) = ([0x40, 0x01, 0x0c], [0x44, 0x01, 0xc1]);
    let config = H265Config {
        length_bytes: 4,
        profile: [0; 12],
        video_sets: Vec::new(),
        sequence_sets: Vec::new(),
        picture_sets: Vec::new(),
    };
    let key = nals(&[&video, &set, &picture, &[0x26, 1, 9]]);
    let mut writer = writer(WriterKind::FragmentedMp4, &[Codec::H265(config)]);
    let mut file = Vec::new();
    writer.push(0, unit(0, key, true), &mut file).unwrap();
    writer.finish(&mut file);
    let Codec::H265(found) = demux(&file).tracks()[0].codec.clone() else { panic!("H.265") };
    assert_eq!(found.profile, [0x01, 0x60, 0, 0, 0, 0x90, 0, 0, 0, 0, 0, 0x3c]);
    assert_eq!((found.video_sets, found.sequence_sets), (vec![video.to_vec()], vec![set.to_vec()]));
}

#[test]
fn a_gap_of_hours_is_announced_and_a_short_one_is_filled() {
    let mut file = Vec::new();
    let mut writer = writer(WriterKind::TransportStream, &[AC3]);
    for (number, time_s) in [0, 1, 9, 9 + 3600, 9 + 3601].into_iter().enumerate() {
        writer.push(0, unit(time_s * 44_100, sound(number, 100), true), &mut file).unwrap();
    }
    writer.finish(&mut file);
    let found = read(&file);
    assert_eq!((found.units[&0x100].len(), found.discontinuities), (5, 1));
}

/// A PES packet that was found.
struct Pes {
    presented: u64,
    decode: u64,
    /// Clock reference last seen before it, in units of 90 kHz.
    pcr: u64,
    is_random_access: bool,
    payload: Vec<u8>,
}

#[derive(Default)]
struct Stream {
    units: BTreeMap<u16, Vec<Pes>>,
    discontinuities: usize,
}

fn time(field: &[u8]) -> u64 {
    let [a, b, c, d, e] = [field[0], field[1], field[2], field[3], field[4]].map(u64::from);
    assert_eq!((a & 1, c & 1, e & 1), (1, 1, 1), "marker bits");
    (a >> 1 & 7) << 30 | b << 22 | (c >> 1) << 15 | d << 7 | e >> 1
}

/// Reads a stream packet by packet, and checks what holds for every one: sync bytes, continuity
/// counters, stuffing, the interval of the clock and of the tables.
fn read(file: &[u8]) -> Stream {
    const INTERVALS: [(u64, &str); 2] = [(40 * 90, "clock"), (100 * 90, "tables")];
    assert_eq!(file.len() % 188, 0, "whole packets");
    let mut stream = Stream::default();
    let mut counters: BTreeMap<u16, u8> = BTreeMap::new();
    let (mut clock, mut tables): (Option<u64>, Option<u64>) = (None, None);
    let (mut has_tables, mut has_new_tables) = (false, false);
    for packet in file.chunks_exact(188) {
        assert_eq!((packet[0], packet[1] & 0x80, packet[3] & 0xc0), (0x47, 0, 0));
        let pid = u16::from_be_bytes([packet[1] & 0x1f, packet[2]]);
        let (has_field, has_payload) = (packet[3] & 0x20 != 0, packet[3] & 0x10 != 0);
        let field = if has_field { 1 + usize::from(packet[4]) } else { 0 };
        assert!(field + usize::from(has_payload) <= 184, "adaptation field of {field} bytes");
        let flags = if field > 1 { packet[5] } else { 0 };
        let is_discontinuous = flags & 0x80 != 0;
        stream.discontinuities += usize::from(is_discontinuous);
        let counter = packet[3] & 0x0f;
        let before = counters.insert(pid, counter);
        let expected = before.map(|before| (before + u8::from(has_payload)) & 0x0f);
        assert!(expected.is_none_or(|expected| expected == counter), "continuity of {pid}");
        let mut used = 2;
        if flags & 0x10 != 0 {
            let base = packet[6..10].iter().fold(0, |all, &byte| all << 8 | u64::from(byte));
            let pcr = base << 1 | u64::from(packet[10] >> 7);
            let step = clock.map_or(0, |before: u64| pcr.wrapping_sub(before));
            assert!(is_discontinuous || step <= INTERVALS[0].0, "{} after {step}", INTERVALS[0].1);
            clock = Some(pcr);
            used += 6;
            // Tables precede the clock reference of their time.
            if std::mem::take(&mut has_new_tables) || is_discontinuous {
                tables = Some(pcr);
            }
            let since = pcr - tables.expect("tables before the clock");
            assert!(since <= INTERVALS[1].0, "{} after {since}", INTERVALS[1].1);
        }
        if field > used {
            assert!(packet[4 + used..4 + field].iter().all(|&byte| byte == 0xff), "stuffing");
        }
        let payload = if has_payload { &packet[4 + field..] } else { &[] };
        match pid {
            0 => has_tables = true,
            0x1000 => has_new_tables = true,
            _ if packet[1] & 0x40 != 0 => {
                assert!(has_tables && tables.is_some(), "tables before units");
                let [0, 0, 1, id, a, b, 0x84, times, header, ..] = *payload else {
                    panic!("header of a PES packet: {payload:?}")
                };
                let presented = time(&payload[9..]);
                let decode = if times == 0xc0 { time(&payload[14..]) } else { presented };
                assert_eq!(usize::from(header), if times == 0xc0 { 10 } else { 5 });
                let length = usize::from(u16::from_be_bytes([a, b]));
                assert_eq!(length == 0, id == 0xe0, "open length of pictures alone");
                let payload = payload[9 + usize::from(header)..].to_vec();
                let pcr = clock.expect("a clock before units");
                let is_random_access = flags & 0x40 != 0;
                let pes = Pes { presented, decode, pcr, is_random_access, payload };
                stream.units.entry(pid).or_default().push(pes);
            }
            _ => {
                let units = stream.units.get_mut(&pid);
                if let Some(last) = units.and_then(|units| units.last_mut()) {
                    last.payload.extend(payload);
                }
            }
        }
    }
    stream
}

/// A random unit: the track, milliseconds since the unit before, milliseconds by which it is
/// presented later, size, and whether it is a key frame.
type Step = (bool, u16, i16, usize, bool);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step_ms = prop_oneof![8 => 0..90_u16, 1 => 0..4000_u16];
    let size = prop_oneof![6 => 1..2000_usize, 1 => 1..100_000_usize, 2 => 140..200_usize];
    vec((any::<bool>(), step_ms, -300..300_i16, size, prop::bool::weighted(0.1)), 1..120)
}

/// Time, bytes and key frame flag of the units of a track.
type Taken = Vec<(i64, Vec<u8>, bool)>;

/// Pushes random units; returns the file and the accepted units by track.
fn write(kind: WriterKind, steps: &[Step]) -> (Vec<u8>, [Taken; 2]) {
    let mut writer = writer(kind, &[h264(true), AC3]);
    let (mut file, mut accepted) = (Vec::new(), [Vec::new(), Vec::new()]);
    let mut now_ms = 5_000_000_i64;
    for (number, &(is_video, step, later, size, is_key)) in steps.iter().enumerate() {
        now_ms += i64::from(step);
        let (track, time, bytes, is_start) = match is_video {
            true => {
                let time = (now_ms + i64::from(later)) * 90;
                (0, time, picture(number, size, is_key), is_key)
            }
            false => (1, now_ms * 44_100 / 1000, sound(number, size.min(50_000)), true),
        };
        match writer.push(track, unit(time, bytes.clone(), is_start), &mut file) {
            Ok(()) => accepted[track].push((time, bytes, is_start)),
            Err(
                MuxRefusal::NoStart { track: 0 }
                | MuxRefusal::Leading { track: 0 }
                | MuxRefusal::Late { .. },
            ) => {}
            Err(other) => panic!("{other}"),
        }
    }
    writer.finish(&mut file);
    (file, accepted)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn transport_streams_of_random_units_keep_the_rules(steps in steps()) {
        let (file, accepted) = write(WriterKind::TransportStream, &steps);
        let stream = read(&file);
        let ms = |rate: i64| move |unit: &(i64, Vec<u8>, bool)| unit.0 * 1000 / rate;
        let mut times: Vec<_> = accepted[0].iter().map(ms(90_000)).collect();
        times.extend(accepted[1].iter().map(ms(44_100)));
        times.sort_unstable();
        let gap_ms = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        prop_assert!(stream.discontinuities == 0 || gap_ms > 9_000, "gap of {} ms", gap_ms);
        let mut constant = None;
        for (accepted, (pid, rate)) in accepted.iter().zip([(0x100, 90_000), (0x101, 44_100)]) {
            let units = stream.units.get(&pid).map_or(&[][..], Vec::as_slice);
            prop_assert_eq!(units.len(), accepted.len());
            let mut last = 0;
            for (found, (time, bytes, is_start)) in units.iter().zip(accepted) {
                prop_assert!(found.pcr <= found.decode && found.decode <= found.presented);
                prop_assert!(last <= found.decode, "times of decoding go back");
                last = found.decode;
                let shift = found.presented as i64 - time * 90_000 / rate;
                let constant = *constant.get_or_insert(shift);
                prop_assert!((shift - constant).abs() <= 1, "{} and {}", shift, constant);
                if pid == 0x101 {
                    prop_assert_eq!(&found.payload, bytes);
                } else {
                    prop_assert_eq!(found.is_random_access, *is_start);
                    let expected = annex_b(bytes, *is_start);
                    prop_assert_eq!(&found.payload, &expected);
                }
            }
        }
        let mut scanner = Scanner::new();
        scanner.feed(&file);
        if let Ok(plan) = scanner.finish(file.len() as u64, IDENTITY) {
            prop_assert_eq!((plan.losses_seen(), plan.tail_bytes()), (0, 0));
        }
    }

    #[test]
    fn fragments_of_random_units_hold_them_in_order_and_time(steps in steps()) {
        let (file, accepted) = write(WriterKind::FragmentedMp4, &steps);
        if accepted.iter().all(Vec::is_empty) {
            prop_assert!(file.is_empty());
            return Ok(());
        }
        let found = demux(&file);
        let mut constant = None;
        for (index, (accepted, rate)) in accepted.iter().zip([90_000, 44_100_i64]).enumerate() {
            let track = found.tracks().iter().find(|track| track.id == index as u32 + 1);
            let Some(track) = track else {
                prop_assert!(accepted.is_empty());
                continue;
            };
            prop_assert_eq!(track.samples.len(), accepted.len());
            let samples = track.samples.samples(0..accepted.len());
            for (sample, (time, bytes, is_start)) in samples.zip(accepted) {
                let start = sample.file_offset as usize;
                prop_assert_eq!(&file[start..start + sample.bytes as usize], &bytes[..]);
                prop_assert_eq!(sample.is_start, *is_start);
                let shift = (track.presented(&sample) - time) as f64 / rate as f64;
                let constant = *constant.get_or_insert(shift);
                let apart = (shift - constant).abs();
                prop_assert!(apart < 2.0 / 44_100.0, "track {}: {} at {}", index, apart, time);
            }
        }
    }
}

/// A picture in the form of a transport stream.
fn annex_b(unit: &[u8], is_start: bool) -> Vec<u8> {
    let start: &[u8] = &[0, 0, 0, 1];
    let mut all = [start, &[0x09, 0xf0]].concat();
    if is_start {
        all.extend([start, &SET, start, &PICTURE_SET].concat());
    }
    all.extend([start, &unit[4..]].concat());
    all
}
