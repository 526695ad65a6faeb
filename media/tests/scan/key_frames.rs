// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that key frames of a stream are ranges of the file that a decoder shows after their
//! tables.
//!
//! Sources: RFC 8216 §4.3.3.6 (EXT-X-I-FRAMES-ONLY), §4.3.2.5 (EXT-X-MAP).

use media::{
    PacketPlan, PlanKey, SegmentPlan, StreamKeyFrame, StreamKeyFrames, TICKS_PER_SECOND,
    TS_PACKET_BYTES, entry_points,
};

use crate::writer::{
    AAC, AUDIO_PID, Adaptation, FRAME_TICKS, H264, PMT_PID, VIDEO_PID, Writer, pes_at,
};
use crate::{IDENTITY, fed};

const PACKET: u64 = TS_PACKET_BYTES as u64;
const SETS: [&[u8]; 2] = [&[0x67, 0x64, 0, 0x1f, 0xac, 0xd9], &[0x68, 0xee, 0x3c, 0x80]];
const IDR: &[u8] = &[0x65, 0x88, 0x84];
const PREDICTED: &[u8] = &[0x41, 0x9a, 0x84];
/// A message that announces recovery.
const RECOVERY: &[u8] = &[6, 6, 1, 0xc4, 0x80];

/// Writes pictures of two seconds at 25 a second, of which the first has these NAL units, after
/// tables if `has_tables`. A picture has four packets, and a packet of sound among them and after
/// it.
fn group(writer: &mut Writer, from: u64, key: &[&[u8]], has_tables: bool) {
    if has_tables {
        writer.tables();
    }
    for frame in from..from + 50 {
        let nals = if frame == from { key } else { &[PREDICTED] };
        let bytes: Vec<u8> = nals.iter().flat_map(|nal| [&[0, 0, 0, 1], *nal].concat()).collect();
        let pcr = Some(frame * FRAME_TICKS);
        let unit = pes_at(frame * 3600 + 90_000, &bytes);
        let first = Some(Adaptation { pcr, ..Adaptation::default() });
        writer.packet(VIDEO_PID, true, first, &unit);
        for pid in [VIDEO_PID, AUDIO_PID, VIDEO_PID, VIDEO_PID, AUDIO_PID] {
            writer.packet(pid, false, None, &[0xaa; 184]);
        }
    }
}

/// Packets of such a group without its tables.
const GROUP: u64 = 50 * 6;

/// Returns the key frames of a file from its stored plan, which are those of the scan.
fn key_frames(file: &[u8]) -> Result<(StreamKeyFrames, SegmentPlan), &'static str> {
    let (plan, starts) = fed(file, []).finish_with_starts(file.len() as u64, IDENTITY).unwrap();
    let segments = SegmentPlan::cut_however_long(&plan, starts.clone(), 6).unwrap();
    let found = StreamKeyFrames::of(&plan, &starts, &segments, file).unwrap();
    let bytes = file.len() as u64;
    let key = PlanKey { path: vec![b'a'], bytes, modified_ns: 1, inode: 2 };
    let stored = PacketPlan::decode(&plan.encode(&key), &key).unwrap();
    assert_eq!(stored, plan);
    let again = entry_points(&stored, file).unwrap();
    let again_segments = SegmentPlan::cut_however_long(&stored, again.clone(), 6).unwrap();
    let again = StreamKeyFrames::of(&stored, &again, &again_segments, file).unwrap();
    let sent = |frames: &StreamKeyFrames| {
        let sent =
            |frame: &StreamKeyFrame| (frames.tables(frame), frame.file.clone(), frame.is_break);
        frames.list().iter().map(sent).collect::<Vec<_>>()
    };
    assert_eq!(again.as_ref().map(sent), found.as_ref().map(sent));
    let tables = |frames: &StreamKeyFrames| frames.file_tables();
    assert_eq!(again.as_ref().map(tables), found.as_ref().map(tables));
    for (found, segments) in [(&found, &segments), (&again, &again_segments)] {
        let Ok(frames) = found else { continue };
        let ticks: u64 = frames.list().iter().map(|frame| frame.ticks).sum();
        let all: u64 = segments.list().iter().map(|segment| segment.ticks).sum();
        assert_eq!(ticks, all, "they last as long as the segments");
    }
    again.map(|frames| (frames, again_segments))
}

const WITH_SETS: [&[u8]; 3] = [SETS[0], SETS[1], IDR];

#[test]
fn a_range_ends_with_the_last_packet_of_the_picture() {
    let mut writer = Writer::default();
    (0..4).for_each(|number| group(&mut writer, 50 * number, &WITH_SETS, true));
    let (frames, _) = key_frames(&writer.file).unwrap();
    let units: Vec<u64> = (0..4).map(|number| number * (GROUP + 2) + 2).collect();
    let ranges: Vec<_> = frames.list().iter().map(|frame| frame.file.clone()).collect();
    let expected: Vec<_> = units.iter().map(|unit| unit * PACKET..(unit + 5) * PACKET).collect();
    assert_eq!(ranges, expected, "without the sound behind it");
    assert!(frames.list().iter().all(|frame| frame.ticks == 2 * TICKS_PER_SECOND));
    assert!(!frames.list().iter().any(|frame| frame.is_break));
    // All key frames get the tables of a group after the first: other tables may precede the first
    // one.
    let tables = (GROUP + 2) * PACKET..(GROUP + 4) * PACKET;
    assert_eq!(frames.file_tables(), Some(vec![tables.clone(); 4]));
    let own = &writer.file[tables.start as usize..tables.end as usize];
    assert_eq!(frames.tables(&frames.list()[1]), own, "PAT and PMT");
}

#[test]
fn key_frames_a_second_apart_are_listed() {
    let mut writer = Writer::default();
    // Each picture is one.
    for frame in 0..100 {
        writer.tables();
        let nals: Vec<u8> = WITH_SETS.iter().flat_map(|n| [&[0, 0, 0, 1], *n].concat()).collect();
        let first = Adaptation { pcr: Some(frame * FRAME_TICKS), ..Adaptation::default() };
        writer.packet(VIDEO_PID, true, Some(first), &pes_at(frame * 3600 + 90_000, &nals));
    }
    let (frames, _) = key_frames(&writer.file).unwrap();
    let units: Vec<u64> = frames.list().iter().map(|frame| frame.file.start / PACKET).collect();
    assert_eq!(units, [2, 2 + 3 * 25, 2 + 3 * 50, 2 + 3 * 75]);
    assert!(frames.list().iter().all(|frame| frame.file.end - frame.file.start == PACKET));
}

#[test]
fn key_frames_without_tables_or_sets_have_them_in_front() {
    let mut once = Writer::default();
    (0..3).for_each(|number| group(&mut once, 50 * number, &WITH_SETS, number == 0));
    let (frames, _) = key_frames(&once.file).unwrap();
    assert_eq!(frames.file_tables(), Some(vec![0..2 * PACKET; 3]), "the same for all");
    let in_front: Vec<_> = frames.list().iter().map(|frame| frames.tables(frame)).collect();
    assert!(in_front.iter().all(|tables| tables[..] == once.file[..2 * 188]));

    let mut lacking = Writer::default();
    group(&mut lacking, 0, &WITH_SETS, true);
    (1..3).for_each(|number| group(&mut lacking, 50 * number, &[IDR], true));
    let (frames, _) = key_frames(&lacking.file).unwrap();
    assert_eq!(frames.file_tables(), None, "no range has the sets");
    let in_front = frames.list().iter().map(|frame| frames.tables(frame).len() / 188);
    assert_eq!(in_front.collect::<Vec<_>>(), [2, 2 + 16, 2 + 16]);
}

#[test]
fn joined_pieces_have_their_own_tables() {
    let mut writer = Writer::default();
    (0..2).for_each(|number| group(&mut writer, 50 * number, &WITH_SETS, true));
    let join = writer.count();
    let mut other = Writer::default();
    for number in 0..2 {
        other.pat(&[(1, PMT_PID)]);
        other.pmt(VIDEO_PID, &[(AUDIO_PID, AAC), (VIDEO_PID, H264)]);
        group(&mut other, 50 * number, &WITH_SETS, false);
    }
    let file = [writer.file, other.file].concat();
    let (frames, segments) = key_frames(&file).unwrap();
    let breaks: Vec<bool> = frames.list().iter().map(|frame| frame.is_break).collect();
    assert_eq!(breaks, [false, false, true, false]);
    assert_eq!(segments.list().iter().filter(|segment| segment.is_break).count(), 1);
    let tables = |packet: u64| packet * PACKET..(packet + 2) * PACKET;
    let (first, second) = (tables(GROUP + 2), tables(join));
    let expected = [first.clone(), first, second.clone(), second];
    assert_eq!(frames.file_tables().unwrap(), expected);
}

#[test]
fn the_first_key_frame_stands_for_what_comes_before_it() {
    let mut writer = Writer::default();
    group(&mut writer, 0, &[PREDICTED], true);
    (1..3).for_each(|number| group(&mut writer, 50 * number, &WITH_SETS, true));
    let (frames, _) = key_frames(&writer.file).unwrap();
    let ticks: Vec<u64> =
        frames.list().iter().map(|frame| frame.ticks / TICKS_PER_SECOND).collect();
    assert_eq!(ticks, [4, 2]);
    assert_eq!(frames.list()[0].file.start, (GROUP + 4) * PACKET);
}

#[test]
fn streams_whose_key_frames_cannot_be_shown_alone_are_refused_by_name() {
    let of = |key: &[&[u8]]| {
        let mut writer = Writer::default();
        (0..3).for_each(|number| group(&mut writer, 50 * number, key, true));
        key_frames(&writer.file)
    };
    let together = of(&[SETS[0], SETS[1], IDR, PREDICTED]).unwrap_err();
    assert!(together.contains("in one PES packet with other pictures"), "{together}");
    let gradual = of(&[SETS[0], SETS[1], RECOVERY, PREDICTED]).unwrap_err();
    assert!(gradual.contains("refreshed over several"), "{gradual}");
    let mut sound = Writer::default();
    sound.pat(&[(1, PMT_PID)]);
    sound.pmt(AUDIO_PID, &[(AUDIO_PID, AAC)]);
    for frame in 0..100 {
        let first = Adaptation { pcr: Some(frame * FRAME_TICKS), ..Adaptation::default() };
        sound.packet(AUDIO_PID, true, Some(first), &pes_at(frame * 3600, &[0xff, 0xf1]));
    }
    assert!(key_frames(&sound.file).unwrap_err().contains("no pictures of H.264"));
}
