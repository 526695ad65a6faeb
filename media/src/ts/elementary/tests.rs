// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests elementary streams of generated transport streams: complete, broken and hostile. Streams
//! of encoders are tested in `tests/elementary.rs`.

use std::collections::HashMap;

use super::*;
use crate::payload::{LayoutWriter, RtpValues, lay_out_samples, timed_samples};
use crate::plan::PlanKey;
use crate::tracks::MediaSample;
use crate::ts::Scanner;
use crate::ts::extract::{packets, section};
use crate::ts::rewrite::clock_packet;
use crate::{PlayScale, TICKS_PER_SECOND, TICKS_PER_TIMESTAMP, TS_PACKET_BYTES, TrickPlan};

pub(super) const IDENTITY: RtpIdentity =
    RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };
pub(super) const PICTURES: (u16, u8) = (0x100, 0x1b);
pub(super) const SOUND: (u16, u8) = (0x101, 0x0f);
const MAP_PID: u16 = 0x20;
/// Duration of a picture and of an audio frame, in units of 90 kHz.
pub(super) const PICTURE: u64 = 3600;
const FRAME: u64 = 1920;

/// Writes a transport stream.
#[derive(Default)]
pub(super) struct Muxer {
    pub(super) bytes: Vec<u8>,
    counters: HashMap<u16, u8>,
    pub(super) is_scrambled: bool,
}

impl Muxer {
    pub(super) fn tables(&mut self, streams: &[(u16, u8)]) {
        let pat = section(0, 1, 0, &[0, 1, 0xe0, MAP_PID as u8]);
        let mut map = vec![0xe0 | (CLOCK_PID >> 8) as u8, CLOCK_PID as u8, 0xf0, 0];
        for &(pid, kind) in streams {
            map.extend([kind, 0xe0 | (pid >> 8) as u8, pid as u8, 0xf0, 0]);
        }
        let map = section(2, 1, 0, &map);
        packets(0, &pat, self.counters.entry(0).or_default(), &mut self.bytes);
        packets(MAP_PID, &map, self.counters.entry(MAP_PID).or_default(), &mut self.bytes);
    }

    pub(super) fn clock(&mut self, time: u64) {
        let ticks = time % (1 << 33) * TICKS_PER_TIMESTAMP;
        self.bytes.extend(clock_packet(CLOCK_PID, 0, ticks));
    }

    pub(super) fn unit(&mut self, pid: u16, (presented, decoded): (u64, u64), payload: &[u8]) {
        let mut pes = vec![0, 0, 1, 0xe0, 0, 0, 0x80, 0xc0, 10];
        for (prefix, time) in [(0x30, presented), (0x10, decoded)] {
            let time = time % (1 << 33);
            let bits = |shift: u32| (time >> shift) as u8;
            pes.extend([
                prefix | bits(29) & 0x0e | 1,
                bits(22),
                bits(14) | 1,
                bits(7),
                bits(0) << 1 | 1,
            ]);
        }
        pes.extend_from_slice(payload);
        for (index, part) in pes.chunks(TS_PACKET_BYTES - 4).enumerate() {
            let counter = self.counters.entry(pid).or_default();
            let stuffing = TS_PACKET_BYTES - 4 - part.len();
            let mut control = if stuffing > 0 { 0x30 } else { 0x10 } | *counter;
            control |= if self.is_scrambled { 0x80 } else { 0 };
            *counter = (*counter + 1) & 0x0f;
            let start = if index == 0 { 0x40 } else { 0 };
            self.bytes.extend([0x47, start | (pid >> 8) as u8, pid as u8, control]);
            if stuffing > 0 {
                self.bytes.push(stuffing as u8 - 1);
                self.bytes.extend([0].iter().take(stuffing - 1));
                self.bytes.extend(vec![0xff; stuffing.saturating_sub(2)]);
            }
            self.bytes.extend_from_slice(part);
        }
    }

    /// Writes a title of this many pictures with B-frames, a key frame every five, and audio; its
    /// first picture is decoded at `from`.
    pub(super) fn title(&mut self, from: u64, pictures: u64, [video, sound]: [u16; 2]) {
        let mut frame = 0;
        for number in 0..pictures {
            if number.is_multiple_of(5) {
                self.clock(from + number * PICTURE);
            }
            let decoded = from + number * PICTURE;
            let ahead = [2, 4, 2, 0, 2][(number % 5) as usize] * PICTURE;
            self.unit(video, (decoded + ahead, decoded), &picture(number));
            while frame * FRAME <= number * PICTURE {
                let presented = from + 2 * PICTURE + frame * FRAME;
                self.unit(sound, (presented, presented), &[adts(frame), adts(frame + 1)].concat());
                frame += 2;
            }
        }
    }
}

const CLOCK_PID: u16 = 0x1ff;

/// Sequence parameter set of x264 for pictures of 16 x 16.
pub(super) const SEQUENCE: [u8; 21] = [
    0x67, 0x42, 0xc0, 0x0a, 0xda, 0x7b, 0x01, 0x10, 0, 0, 3, 0, 0x10, 0, 0, 3, 3, 0x20, 0xf1, 0x22,
    0x6a,
];

/// Returns the NAL units of a picture: one in five is a key frame with parameter sets.
fn nal_units(number: u64) -> Vec<Vec<u8>> {
    let mut slice: Vec<u8> =
        (0..900 + number * 37 % 5000).map(|at| (at * 31 + number) as u8 | 4).collect();
    let mut units = vec![vec![9, 0xf0]];
    slice[0] = 0x41;
    if number.is_multiple_of(5) {
        units.extend([SEQUENCE.to_vec(), vec![0x68, 0xce, 0x0f, 0xc8]]);
        slice[0] = 0x65;
    }
    units.push(slice);
    units
}

pub(super) fn picture(number: u64) -> Vec<u8> {
    nal_units(number).iter().flat_map(|unit| [&[0, 0, 0, 1][..], unit].concat()).collect()
}

/// Returns an ADTS frame of AAC-LC, 48 kHz, stereo: 1024 samples.
fn adts(number: u64) -> Vec<u8> {
    let bytes = 150 + number as usize * 17 % 300;
    let mut frame = vec![number as u8; bytes];
    let size = [(bytes >> 11) as u8 | 0x80, (bytes >> 3) as u8, (bytes << 5) as u8 | 0x1f];
    frame[..3].copy_from_slice(&[0xff, 0xf1, 0x4c]);
    frame[3..6].copy_from_slice(&size);
    frame[6] = 0xfc;
    frame
}

fn film(pictures: u64) -> Muxer {
    let mut muxer = Muxer::default();
    muxer.tables(&[PICTURES, SOUND]);
    muxer.title(900_000, pictures, [PICTURES.0, SOUND.0]);
    muxer
}

pub(super) fn plan(file: &[u8]) -> PacketPlan {
    let mut scanner = Scanner::new();
    scanner.feed(file);
    scanner.finish(file.len() as u64, IDENTITY).expect("a good stream")
}

fn demux_in(file: &[u8], packets: u64) -> Result<Presentation, DemuxError> {
    let plan = plan(file);
    let mut demuxer = ElementaryDemuxer::new(&plan);
    let mut before = 0;
    while !demuxer.advance(&plan, file, packets)? {
        let position = demuxer.position(&plan);
        assert!(position > before && position <= plan.file_bytes());
        before = position;
    }
    Ok(demuxer.finish(|| IDENTITY)?)
}

pub(super) fn demux(file: &[u8]) -> Result<Presentation, DemuxError> {
    demux_in(file, 1000)
}

fn samples(track: &Track) -> Vec<MediaSample> {
    track.samples.samples(0..track.samples.len()).collect()
}

/// Returns the packets of all chapters of a track with their times, and the number of faults;
/// everything is in memory.
fn sent(file: &[u8], whole: &Presentation, track: usize) -> (Vec<(u64, Vec<u8>)>, u32) {
    let (plan, mut found, mut faults) = (plan(file), Vec::new(), 0);
    for chapter in 0..whole.chapters() {
        let layout = lay_out_elementary(&plan, whole, (track, chapter), file).unwrap();
        faults += layout.faults();
        found.extend(written(&layout, &[]));
    }
    (found, faults)
}

fn written(layout: &crate::payload::Layout, media: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let values = RtpValues { payload_type: 96, ssrc: 7, sequence: 0, timestamp: 0 };
    let packet = |number: u32| {
        let mut bytes = Vec::new();
        layout.write_head(number, &values, &mut bytes);
        assert_eq!(bytes.len(), layout.head_bytes(number));
        layout.write_pieces(number..number + 1, |piece| {
            bytes.extend(&media[piece.file_offset as usize..][..piece.bytes as usize]);
        });
        let size = layout.wire_offset(number + 1) - layout.wire_offset(number);
        assert_eq!(bytes.len() as u64, size);
        let row = layout.row(number, u32::MAX);
        assert_eq!(bytes.len(), row.packet_bytes as usize);
        // Without a file, all heads of a call have one size.
        let heads: Vec<_> =
            (number..number + row.packets).map(|at| layout.head_bytes(at)).collect();
        assert!(heads.iter().all(|&own| own == bytes.len()) || !media.is_empty(), "{heads:?}");
        // Sequence numbers restart in each chapter here.
        bytes[2..4].fill(0);
        (layout.ticks(number), bytes)
    };
    (0..layout.packets()).map(packet).collect()
}

#[test]
fn access_units_are_found_with_their_times() {
    let file = film(50).bytes;
    let whole = demux(&file).unwrap();
    assert_eq!((whole.container(), whole.left_out()), (Container::TransportStream, &[][..]));
    assert_eq!(whole.codecs(), "avc1.42c00a,mp4a.40.2");
    let [video, sound] = whole.tracks() else { panic!("{:?}", whole.codecs()) };
    let pictures = samples(video);
    assert_eq!(pictures.len(), 50);
    for (number, sample) in pictures.iter().enumerate() {
        let origin = pictures[0].decode;
        assert_eq!(sample.decode - origin, number as u64 * PICTURE);
        assert_eq!(u64::from(sample.duration), PICTURE);
        assert_eq!(sample.bytes as usize, picture(number as u64).len());
        assert_eq!(sample.is_start, number % 5 == 0);
        assert_eq!(file[sample.file_offset as usize..][..6], [0, 0, 0, 1, 9, 0xf0]);
    }
    // The title starts with the first picture; the first frame is presented with it.
    assert_eq!(video.presented(&pictures[0]), 0);
    assert_eq!(video.presented(&pictures[1]), 3 * PICTURE as i64);
    let frames = samples(sound);
    assert_eq!((frames.len(), sound.presented(&frames[0])), (92, 0));
    assert!(frames.iter().all(|frame| frame.duration == 1024));
    let places = frames.iter().map(|frame| file[frame.file_offset as usize]);
    assert!(places.eq((0..92).map(|number| number as u8)), "behind the header");
    for packets in [1, 7, 64] {
        assert_eq!(demux_in(&file, packets).unwrap(), whole, "{packets} packets a call");
    }
    assert_eq!(whole.entry(TICKS_PER_SECOND).presented_ticks, TICKS_PER_SECOND / 25 * 25);
}

/// The packets equal those of a file with the same samples in sequence.
#[test]
fn packets_are_those_of_a_file_with_tracks() {
    let file = film(60).bytes;
    let whole = demux(&file).unwrap();
    for track in 0..2 {
        let (found, faults) = sent(&file, &whole, track);
        assert_eq!(faults, 0);
        let (mut expected, mut number) = (Vec::new(), 0);
        for chapter in 0..whole.chapters() {
            let mut samples = timed_samples(&whole, track, chapter);
            let mut media = vec![0x99; 5];
            for timed in &mut samples {
                let from = media.len();
                match track {
                    0 => nal_units(number).iter().for_each(|unit| {
                        media.extend((unit.len() as u32).to_be_bytes());
                        media.extend(unit);
                    }),
                    _ => media.extend(&adts(number)[7..]),
                }
                timed.sample.file_offset = from as u64;
                timed.sample.bytes = (media.len() - from) as u32;
                number += 1;
            }
            let mut writer = LayoutWriter::default();
            let codec = &whole.tracks()[track].codec;
            lay_out_samples(codec, &samples, &media, &mut writer).unwrap();
            expected.extend(written(&writer.finish(), &media));
        }
        assert!(found.len() > 10 && found == expected, "track {track}");
    }
}

#[test]
fn times_wrap_and_break_without_a_jump() {
    let mut muxer = Muxer::default();
    muxer.tables(&[PICTURES, SOUND]);
    // The times of the first title wrap; the other titles reset the time base.
    for from in [(1 << 33) - 30 * PICTURE, 90_000 << 8, 5_000_000] {
        muxer.title(from, 50, [PICTURES.0, SOUND.0]);
    }
    let whole = demux(&muxer.bytes).unwrap();
    let [video, sound] = whole.tracks() else { panic!("not two") };
    let pictures = samples(video);
    assert_eq!(pictures.len(), 150);
    let durations: Vec<_> = pictures.iter().map(|sample| u64::from(sample.duration)).collect();
    assert!(
        durations.iter().all(|duration| (PICTURE..2 * PICTURE).contains(duration)),
        "{durations:?}"
    );
    let key = |number: usize| video.presented_ticks(&pictures[number]);
    let frames = samples(sound);
    // The distance of audio and video stays constant: the frame that is presented with each first
    // picture.
    for (first, frame) in [(0, 0), (50, 92), (100, 184)] {
        let apart = key(first) - sound.presented_ticks(&frames[frame]);
        assert!(apart.unsigned_abs() <= TICKS_PER_SECOND / 25, "{first}: {apart} ticks");
    }
}

#[test]
fn title_starts_with_the_pictures_unless_sound_begins_long_before() {
    for (lead, start) in [(1900, 0), (80_000, 0), (200_000, 200_000)] {
        let mut muxer = Muxer::default();
        muxer.tables(&[PICTURES, SOUND]);
        let times = [900_000 + 2 * PICTURE - lead; 2];
        muxer.unit(SOUND.0, times.into(), &[adts(0), adts(1)].concat());
        muxer.title(900_000, 20, [PICTURES.0, SOUND.0]);
        let whole = demux(&muxer.bytes).unwrap();
        let [video, sound] = whole.tracks() else { panic!("not two") };
        let presented = video.presented_ticks(&video.samples.sample(0)) as u64;
        assert_eq!(presented, start * TICKS_PER_TIMESTAMP, "{lead}");
        let before = presented as i64 - sound.presented_ticks(&sound.samples.sample(0));
        assert!(before.abs_diff((lead * TICKS_PER_TIMESTAMP) as i64) < 600, "{lead}: {before}");
    }
}

#[test]
fn gaps_of_the_signal_are_gaps_of_the_tracks() {
    let mut muxer = film(25);
    muxer.title(900_000 + 9 * 90_000, 25, [PICTURES.0, SOUND.0]);
    let whole = demux(&muxer.bytes).unwrap();
    for track in whole.tracks() {
        let samples = samples(track);
        let middle = samples.len() / 2;
        let passed = track.presented_ticks(&samples[middle]) - track.presented_ticks(&samples[0]);
        assert_eq!(passed as u64, 9 * TICKS_PER_SECOND);
        let (first, second) = samples.split_at(middle);
        let times = |half: &[MediaSample]| half.iter().map(|s| s.decode - half[0].decode).collect();
        let [first, second]: [Vec<u64>; 2] = [first, second].map(times);
        assert_eq!(first, second, "behind the gap it goes on as before");
    }
}

#[test]
fn tracks_go_on_when_the_map_names_other_pids() {
    let mut muxer = film(25);
    let streams = [(0x301, SOUND.1), (0x300, PICTURES.1), (0x302, 0x06)];
    muxer.tables(&streams);
    muxer.title(900_000 + 25 * PICTURE, 25, [0x300, 0x301]);
    let whole = demux(&muxer.bytes).unwrap();
    let counts: Vec<_> = whole.tracks().iter().map(|track| track.samples.len()).collect();
    assert_eq!(counts, [50, 92]);
    let (packets, faults) = sent(&muxer.bytes, &whole, 0);
    assert!(faults == 0 && packets.len() > 50);
}

#[test]
fn another_coding_of_the_same_pid_is_not_taken_for_the_stream() {
    let mut muxer = film(25);
    let offset = muxer.bytes.len() + TS_PACKET_BYTES;
    let lasts = 25 * PICTURE;
    muxer.tables(&[(PICTURES.0, 0x24), SOUND]);
    muxer.title(900_000 + lasts, 25, [PICTURES.0, SOUND.0]);
    muxer.tables(&[PICTURES, SOUND]);
    muxer.title(900_000 + 2 * lasts, 25, [PICTURES.0, SOUND.0]);
    let whole = demux(&muxer.bytes).unwrap();
    let counts: Vec<_> = whole.tracks().iter().map(|track| track.samples.len()).collect();
    assert_eq!(counts, [50, 138]);
    let [before, behind] = [24, 25].map(|at| samples(&whole.tracks()[0])[at].decode);
    assert_eq!(behind - before, lasts + PICTURE);
    let [other] = whole.left_out() else { panic!("{:?}", whole.left_out()) };
    let expected = format!("PID 256, H.265: named by a map at byte {offset}, behind the beginning");
    assert!(other.reason.starts_with(&expected), "{}", other.reason);
}

#[test]
fn streams_of_later_maps_are_named() {
    let mut muxer = film(25);
    let offset = muxer.bytes.len() + TS_PACKET_BYTES;
    // The second audio stream replaces none; the third appears and disappears.
    muxer.tables(&[PICTURES, SOUND, (0x102, SOUND.1), (0x103, 0x81)]);
    muxer.title(900_000 + 25 * PICTURE, 25, [PICTURES.0, SOUND.0]);
    muxer.tables(&[PICTURES, SOUND, (0x102, SOUND.1)]);
    muxer.title(900_000 + 50 * PICTURE, 25, [PICTURES.0, SOUND.0]);
    let whole = demux(&muxer.bytes).unwrap();
    let counts: Vec<_> = whole.tracks().iter().map(|track| track.samples.len()).collect();
    assert_eq!(counts, [75, 138]);
    let reasons: Vec<_> = whole.left_out().iter().map(|track| track.reason.as_str()).collect();
    let [aac, ac3] = reasons[..] else { panic!("{reasons:?}") };
    let expected = format!("PID 258, AAC: named by a map at byte {offset}, behind the beginning");
    assert!(aac.starts_with(&expected), "{aac}");
    assert!(ac3.starts_with("PID 259, AC-3: named by a map at byte"), "{ac3}");
    let pids: Vec<_> = plan(&muxer.bytes).streams().iter().map(|stream| stream.pid).collect();
    assert_eq!(pids, [0x100, 0x101, 0x102, 0x103]);
}

#[test]
fn tables_with_a_wrong_checksum_are_counted() {
    let mut muxer = film(10);
    assert_eq!(plan(&muxer.bytes).bad_tables(), 0);
    let begin = muxer.bytes.len();
    muxer.tables(&[PICTURES]);
    // The CRC of both sections ends directly before the stuffing.
    for packet in muxer.bytes[begin..].chunks_mut(TS_PACKET_BYTES) {
        let last = packet.iter().rposition(|&byte| byte != 0xff).unwrap();
        packet[last] ^= 1;
    }
    muxer.title(900_000 + 10 * PICTURE, 10, [PICTURES.0, SOUND.0]);
    let found = plan(&muxer.bytes);
    assert_eq!((found.bad_tables(), found.streams().len()), (2, 2));
    let key = PlanKey { path: vec![1], bytes: found.file_bytes(), modified_ns: 1, inode: 1 };
    assert_eq!(PacketPlan::decode(&found.encode(&key), &key).unwrap(), found);
    assert!(found.warnings()[0].starts_with("2 tables (PAT, PMT) have a wrong checksum"));
}

#[test]
fn other_programmes_are_named() {
    let mut muxer = Muxer::default();
    let other: u16 = 0x21;
    let pat = section(0, 1, 0, &[0, 1, 0xe0, MAP_PID as u8, 0, 2, 0xe0, other as u8]);
    packets(0, &pat, muxer.counters.entry(0).or_default(), &mut muxer.bytes);
    for (number, map_pid, video, sound) in
        [(1, MAP_PID, 0x100_u16, 0x101_u16), (2, other, 0x200, 0x201)]
    {
        let mut map = vec![0xe0 | (CLOCK_PID >> 8) as u8, CLOCK_PID as u8, 0xf0, 0];
        for (pid, kind) in [(video, PICTURES.1), (sound, SOUND.1)] {
            map.extend([kind, 0xe0 | (pid >> 8) as u8, pid as u8, 0xf0, 0]);
        }
        let map = section(2, number, 0, &map);
        packets(map_pid, &map, muxer.counters.entry(map_pid).or_default(), &mut muxer.bytes);
    }
    muxer.title(900_000, 20, [PICTURES.0, SOUND.0]);
    muxer.title(900_000, 20, [0x200, 0x201]);
    let whole = demux(&muxer.bytes).unwrap();
    assert_eq!(whole.tracks().len(), 2);
    let [left_out] = whole.left_out() else { panic!("{:?}", whole.left_out()) };
    assert!(left_out.reason.starts_with("programme 2, 2 streams: "), "{left_out:?}");
    assert!(left_out.reason.contains("-map 0:p:2"), "{left_out:?}");
}

#[test]
fn scrambled_streams_are_named() {
    let mut muxer = film(10);
    let offset = muxer.bytes.len();
    muxer.is_scrambled = true;
    muxer.unit(PICTURES.0, (1_000_000, 1_000_000), &picture(10));
    let whole = demux(&muxer.bytes).unwrap();
    assert_eq!(whole.codecs(), "mp4a.40.2");
    let reason = format!("PID 256, H.264: scrambled at byte {offset}; descramble the file first");
    assert_eq!(whole.left_out(), [LeftOut { id: 256, reason }]);
    muxer.unit(SOUND.0, (1_000_000, 1_000_000), &adts(3));
    let refused = demux(&muxer.bytes).unwrap_err().to_string();
    assert!(refused.starts_with("MPEG transport stream without a track"), "{refused}");
    assert_eq!(refused.matches("scrambled at byte").count(), 2, "{refused}");
}

#[test]
fn streams_that_are_not_sent_are_named() {
    let mut muxer = Muxer::default();
    let others = [(0x110, 0x02), (0x111, 0x11), (0x112, 0x06)];
    muxer.tables(&[&[PICTURES, SOUND][..], &others].concat());
    muxer.title(900_000, 20, [PICTURES.0, SOUND.0]);
    for (pid, _) in others {
        muxer.unit(pid, (900_000, 900_000), &[0, 0, 1, 0xb3, 1]);
    }
    let whole = demux(&muxer.bytes).unwrap();
    assert_eq!(whole.tracks().len(), 2);
    let reasons: Vec<_> = whole.left_out().iter().map(|track| track.reason.as_str()).collect();
    assert!(
        reasons[0].starts_with("PID 272, MPEG-2 video: a codec that is not sent"),
        "{reasons:?}"
    );
    assert!(reasons[1].starts_with("PID 273, AAC in LOAS: "), "{reasons:?}");
    assert!(reasons[2].starts_with("PID 274, data: neither pictures nor sound"), "{reasons:?}");
    // The plan names them from the beginning of the file, and is stored with them.
    let mut plan = plan(&muxer.bytes);
    assert!(plan.unsent().is_empty(), "not looked for yet");
    plan.name_codecs(&muxer.bytes);
    assert_eq!(plan.unsent(), reasons);
    let bytes = muxer.bytes.len() as u64;
    let key = PlanKey { path: b"/a.ts".to_vec(), bytes, modified_ns: 1, inode: 2 };
    assert_eq!(PacketPlan::decode(&plan.encode(&key), &key).unwrap(), plan);
}

/// A session description states rate and channels once.
#[test]
fn frames_of_another_kind_are_named_once() {
    let ac3 = |mode: u8| {
        // 48 kHz, 32 kb/s; the mode determines the channels.
        let mut frame = vec![0x0b; 128];
        frame[..8].copy_from_slice(&[0x0b, 0x77, 0, 0, 0, 0x40, mode, 0]);
        frame
    };
    let mono = |mut frame: Vec<u8>| {
        frame[3] = frame[3] & 0x3f | 0x40;
        frame
    };
    let slow = |mut frame: Vec<u8>| {
        frame[2] = 0x50;
        frame
    };
    let changes: [(u8, [Vec<u8>; 2], &str); 3] = [
        (0x81, [ac3(0x40), ac3(0xe0)], "ac-3 (5 channels, 48000 Hz), where the first is ac-3 (2"),
        (0x0f, [adts(1), mono(adts(1))], "mp4a.40.2 (1 channel, 48000 Hz), where the first is"),
        (0x0f, [adts(1), slow(adts(1))], "mp4a.40.2 (2 channels, 44100 Hz), where the first is"),
    ];
    for (stream_type, [first, other], expected) in changes {
        let mut muxer = Muxer::default();
        muxer.tables(&[PICTURES, (SOUND.0, stream_type)]);
        muxer.title(900_000, 20, [PICTURES.0, 0x1e0]);
        let mut changed = 0;
        for number in 0..40 {
            if number == 30 {
                changed = muxer.bytes.len();
            }
            let frame = if number < 30 { &first } else { &other };
            let time = 900_000 + number * 2 * if stream_type == SOUND.1 { FRAME } else { 2880 };
            muxer.unit(SOUND.0, (time, time), &[&frame[..], frame].concat());
        }
        let whole = demux(&muxer.bytes).unwrap();
        assert_eq!(whole.tracks()[1].samples.len(), 60);
        let [LeftOut { id: 0x101, reason }] = whole.left_out() else { panic!("{whole:?}") };
        let (from, found) = reason.split_once(" on 20 frames are ").expect(reason);
        assert!(found.starts_with(expected), "{reason}");
        let byte: usize = from.rsplit_once("from byte ").unwrap().1.parse().unwrap();
        assert!((changed..changed + TS_PACKET_BYTES).contains(&byte), "{reason}: {changed}");
    }
}

#[test]
fn an_access_unit_of_50_mb_is_not_sent_and_the_others_are() {
    let mut muxer = film(10);
    let mut huge = picture(10);
    huge.resize(50 << 20, 0x55);
    muxer.unit(PICTURES.0, (940_000, 940_000), &huge);
    muxer.unit(PICTURES.0, (950_000, 950_000), &picture(11));
    let whole = demux(&muxer.bytes).unwrap();
    assert_eq!(whole.codecs(), "mp4a.40.2");
    let reason = &whole.left_out()[0].reason;
    assert!(reason.contains("its sample 10 has 52428800 bytes: at most"), "{reason}");
}

#[test]
fn lost_packets_cost_what_was_in_them() {
    let file = film(50).bytes;
    let lost = 40 * TS_PACKET_BYTES..43 * TS_PACKET_BYTES;
    let damaged = [&file[..lost.start], &file[lost.end..]].concat();
    let whole = demux(&damaged).unwrap();
    let counts: Vec<_> = whole.tracks().iter().map(|track| track.samples.len()).collect();
    assert!((48..=50).contains(&counts[0]) && (88..92).contains(&counts[1]), "{counts:?}");
    assert!((0..2).all(|track| sent(&damaged, &whole, track).1 == 0));
}

#[test]
fn a_file_that_has_changed_has_faults_and_no_panic() {
    let file = film(50).bytes;
    let (plan, whole) = (plan(&file), demux(&file).unwrap());
    for (what, byte) in [("zeros", 0), ("sync bytes", 0x47), ("ones", 0xff)] {
        let bad = vec![byte; file.len()];
        for track in 0..2 {
            let layout = lay_out_elementary(&plan, &whole, (track, 0), &bad[..]).unwrap();
            assert!(layout.packets() == 0 && layout.faults() > 20, "{what}");
        }
    }
    let mut moved = file.clone();
    moved.rotate_left(100 * TS_PACKET_BYTES);
    (0..whole.chapters()).for_each(|chapter| {
        drop(lay_out_elementary(&plan, &whole, (0, chapter), &moved[..]).unwrap());
    });
    assert!(lay_out_elementary(&plan, &whole, (0, 1), &file[..file.len() / 2]).is_err());
}

#[test]
fn presentation_is_stored_apart_from_those_of_files_with_tracks() {
    let file = film(20).bytes;
    let whole = demux(&file).unwrap();
    let bytes = file.len() as u64;
    let key = PlanKey { path: b"/a.ts".to_vec(), bytes, modified_ns: 1, inode: 2 };
    let stored = whole.encode(&key);
    assert_eq!(Presentation::decode_elementary(&stored, &key).unwrap(), whole);
    assert!(Presentation::decode(&stored, &key).is_err());
    assert!(crate::AssetPlan::decode(&stored, &key).is_err());
    (0..stored.len()).step_by(9).for_each(|end| {
        assert!(Presentation::decode_elementary(&stored[..end], &key).is_err());
    });
}

#[test]
fn trick_play_shows_the_key_frames() {
    let file = film(100).bytes;
    let (plan, whole) = (plan(&file), demux(&file).unwrap());
    let trick = TrickPlan::of_tracks(&whole, PlayScale::nearest(-2.0)).unwrap();
    let numbers: Vec<_> = samples(&trick.presentation().tracks()[0]);
    assert_eq!(numbers.len(), 20);
    let mut units = 0;
    for chapter in 0..trick.presentation().chapters() {
        let layout = trick.lay_out(Some(&plan), chapter, &file[..]).unwrap();
        assert_eq!(layout.faults(), 0);
        let packets = written(&layout, &[]);
        units += packets.iter().filter(|(_, bytes)| bytes[1] & 0x80 != 0).count();
    }
    assert_eq!(units, 20, "each picture ends with a mark");
}
