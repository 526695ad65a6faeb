// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segments of a recording stay as they were cut while its plan grows.
//!
//! Sources: RFC 8216 §6.2.1 (a server never changes what a playlist has listed), §4.3.3.1.

use media::{
    GrowingPart, GrowingSegment, GrowingSegments, PacketPlan, RecordedStarts, StreamUnits,
    TICKS_PER_SECOND,
};

use crate::writer::{Adaptation, FRAME_PACKETS, FRAME_TICKS, VIDEO_PID, Writer, pes_at};
use crate::{IDENTITY, fed};

/// A recording with a key frame at the frames where `is_key`, with tables before it.
fn recording(frames: u64, is_key: impl Fn(u64) -> bool) -> Vec<u8> {
    let mut writer = Writer::default();
    for frame in 0..frames {
        if is_key(frame) {
            writer.tables();
        }
        writer.frame(frame * FRAME_TICKS, if is_key(frame) { 0x65 } else { 0x41 });
    }
    writer.file
}

fn plan(file: &[u8]) -> PacketPlan {
    fed(file, []).finish(file.len() as u64, IDENTITY).expect("a good stream")
}

/// Returns the segments of a recording that is examined each time this many packets were added.
pub(crate) fn grown(file: &[u8], packets: usize) -> GrowingSegments {
    let mut found: Option<GrowingSegments> = None;
    let mut listed: Vec<GrowingSegment> = Vec::new();
    let mut parts: Vec<Vec<GrowingPart>> = Vec::new();
    for end in (packets * 188..file.len()).step_by(packets * 188) {
        let Ok((plan, starts)) = fed(&file[..end], []).recorded_so_far(IDENTITY) else { continue };
        found = found.or_else(|| GrowingSegments::of(&plan, false));
        let Some(segments) = &mut found else { continue };
        segments.extend(&plan, &starts, false);
        assert!(!segments.is_complete());
        assert_eq!(segments.list()[..listed.len()], listed, "what was listed stays");
        assert_parts_stay(&mut parts, segments);
        listed = segments.list().to_vec();
    }
    let (whole, starts) = fed(file, []).recorded_so_far(IDENTITY).expect("a good stream");
    let mut segments =
        found.or_else(|| GrowingSegments::of(&whole, true)).expect("a place to start");
    segments.extend(&whole, &starts, true);
    assert_eq!(segments.list()[..listed.len()], listed, "what was listed stays");
    assert_parts_stay(&mut parts, &segments);
    check(&segments, file);
    segments
}

/// Parts of all segments so far extend those before; those of a finished segment cover it.
fn assert_parts_stay(before: &mut Vec<Vec<GrowingPart>>, segments: &GrowingSegments) {
    let count = segments.list().len();
    before.resize(count + 1, Vec::new());
    for number in count.saturating_sub(4)..=count {
        let (parts, before) = (segments.parts(number), &mut before[number]);
        assert_eq!(parts[..before.len()], before[..], "what was listed stays");
        *before = parts.to_vec();
        assert!(parts.windows(2).all(|pair| pair[0].file.end == pair[1].file.start));
        assert!(parts.iter().all(|part| part.ticks <= segments.part_ticks()), "{parts:?}");
        if let (Some(segment), [first, .., last]) = (segments.list().get(number), parts) {
            assert_eq!(first.file.start..last.file.end, segment.file);
            let ticks: u64 = parts.iter().map(|part| part.ticks).sum();
            assert!(ticks.abs_diff(segment.ticks) <= 2 * FRAME_TICKS, "{segment:?} {parts:?}");
        }
    }
}

/// All of the file, in segments no longer than the target duration.
fn check(segments: &GrowingSegments, file: &[u8]) {
    assert!(segments.is_complete());
    let (mut end, mut start) = (0, 0);
    for segment in segments.list() {
        assert_eq!((segment.file.start, segment.start), (end, start));
        assert!(segment.file.end > end);
        (end, start) = (segment.file.end, start + segment.ticks);
        let rounded = (segment.ticks + TICKS_PER_SECOND / 2) / TICKS_PER_SECOND;
        assert!(rounded <= segments.target_s(), "{segment:?}");
    }
    assert_eq!(end, file.len() as u64);
}

fn frames_of(segments: &GrowingSegments) -> Vec<u64> {
    segments.list().iter().map(|segment| segment.ticks / FRAME_TICKS).collect()
}

#[test]
fn segments_begin_with_key_frames_and_keep_the_target_duration() {
    for (gop, target_s, frames) in [(50, 2, 50), (25, 2, 50), (100, 4, 100), (10, 2, 50)] {
        let file = recording(605, |frame| frame % gop == 0);
        for packets in [40, 333, 100_000] {
            let segments = grown(&file, packets);
            assert_eq!(segments.target_s(), target_s, "key frames {gop} apart");
            let found = frames_of(&segments);
            let (last, others) = found.split_last().unwrap();
            assert!(others.iter().all(|&found| found == frames), "{gop}: {found:?}");
            assert!(*last <= frames);
        }
    }
}

#[test]
fn the_cuts_do_not_depend_on_when_they_were_looked_for() {
    let key = |frame: u64| [0, 30, 61, 75, 140, 290, 300, 410, 411].contains(&frame);
    let file = recording(600, key);
    let expected = grown(&file, 100_000);
    for packets in [7, 100, 999] {
        assert_eq!(grown(&file, packets).list(), expected.list(), "each {packets} packets");
    }
}

/// Packets with a damaged sync byte, one of them the last of a segment, and bytes that belong to no
/// packet.
#[test]
fn what_is_no_packet_is_in_the_segment_before() {
    let mut file = recording(600, |frame| frame % 50 == 0);
    let frames = frames_of(&grown(&file, 100_000));
    for (frame, tables) in [(70, 2), (260, 6)] {
        file[writer_offset(frame, tables) as usize + 188] ^= 0x40;
    }
    let third = writer_offset(150, 3) as usize;
    file[third - 188] = 0;
    let eighth = writer_offset(420, 9) as usize + 188;
    file.splice(eighth..eighth, [0; 77]);
    let expected = grown(&file, 100_000);
    assert_eq!(frames_of(&expected), frames, "it goes on behind");
    for packets in [7, 100, 999] {
        assert_eq!(grown(&file, packets).list(), expected.list(), "each {packets} packets");
    }
}

#[test]
fn pictures_without_key_frames_are_cut_by_time() {
    let file = recording(1000, |frame| frame < 100 && frame % 50 == 0);
    let segments = grown(&file, 500);
    // Of the first five seconds three have no key frame.
    assert_eq!(segments.target_s(), 3);
    assert!(segments.list().len() >= 11, "{:?}", frames_of(&segments));
    // In a finished file only the clock is known between key frames.
    let scanner = fed(&file, []);
    let (plan, entries) = scanner.finish_with_starts(file.len() as u64, IDENTITY).unwrap();
    let mut segments = GrowingSegments::of(&plan, true).unwrap();
    segments.extend(&plan, &RecordedStarts::from(entries), true);
    check(&segments, &file);
    assert!(segments.list().len() >= 13, "{:?}", frames_of(&segments));
}

/// Returns the segments of a channel that sends this, examined each time this many packets were
/// sent; another programme begins at these packets. The units drop the media that was cut.
pub(crate) fn sent(file: &[u8], packets: usize, joins: &[u64]) -> GrowingSegments {
    let (mut units, mut found) = (StreamUnits::default(), None);
    joins.iter().for_each(|&join| units.note_join(join));
    for piece in file.chunks(packets * 188) {
        units.feed(piece);
        found = found.or_else(|| GrowingSegments::of_channel(&units, 0));
        let Some(segments) = &mut found else { continue };
        segments.extend_channel(&units);
        units.forget_before(segments.next_byte() / 188);
    }
    found.expect("there is enough")
}

#[test]
fn a_channel_is_cut_as_a_recording_of_it_is() {
    let sparse = |frame: u64| [0, 30, 61, 75, 140, 290, 300, 410, 411].contains(&frame);
    for file in [recording(605, |frame| frame % 50 == 0), recording(600, sparse)] {
        let expected = grown(&file, 100);
        for packets in [7, 100, 999] {
            let found = sent(&file, packets, &[]);
            assert_eq!(found.target_s(), expected.target_s());
            let count = found.list().len();
            assert!(count + 2 >= expected.list().len(), "{count} segments");
            assert_eq!(found.list(), &expected.list()[..count], "each {packets} packets");
        }
    }
}

#[test]
fn a_segment_of_a_channel_ends_where_another_programme_begins() {
    let file = recording(400, |frame| frame % 50 == 0 || frame == 170);
    let tables_of = |frame: u64| {
        let pictures = recording(frame, |frame| frame % 50 == 0 || frame == 170);
        pictures.len() as u64 / 188
    };
    // A few packets before: the rest of the programme that ends.
    let join = tables_of(170) - 3;
    let found = sent(&file, 50, &[join]);
    let breaks: Vec<_> = found.list().iter().filter(|segment| segment.is_break).collect();
    assert_eq!(breaks.len(), 1, "{:?}", found.list());
    assert_eq!(breaks[0].file.start, tables_of(170) * 188, "at the tables of its first key frame");
    assert_eq!(found.breaks_before(found.next_number()), 1);
}

#[test]
fn forgotten_segments_keep_their_numbers() {
    let file = recording(605, |frame| frame % 50 == 0);
    let mut segments = sent(&file, 100, &[3 * 188]);
    let (all, next) = (segments.list().to_vec(), segments.next_number());
    let breaks = segments.breaks_before(next);
    segments.forget_before(all[3].file.start + 1);
    assert_eq!((segments.first_number(), segments.next_number()), (4, next));
    assert_eq!(segments.list(), &all[4..]);
    assert_eq!(segments.segment(3), None);
    assert_eq!(segments.segment(4), Some(&all[4]));
    assert_eq!(segments.breaks_before(next), breaks);
    assert!(!segments.parts(next - 1).is_empty());
}

/// Parts of the segment that is not whole, too: a player of them waits for no key frame.
#[test]
fn parts_have_whole_pictures_and_are_there_before_their_segment() {
    let file = recording(605, |frame| frame % 50 == 0);
    let (frame_bytes, tables) = (FRAME_PACKETS as usize * 188, 2 * 188);
    let end = 330 * frame_bytes + 7 * tables;
    let (plan, starts) = fed(&file[..end], []).recorded_so_far(IDENTITY).unwrap();
    let mut segments = GrowingSegments::of(&plan, false).unwrap();
    segments.extend(&plan, &starts, false);
    assert_eq!(segments.list().len(), 6);
    // Of pictures 300 to 329, and the last is not settled.
    let parts = segments.parts(6);
    assert_eq!(parts.len(), 2, "{parts:?}");
    assert_eq!(parts.iter().map(|part| part.is_independent).collect::<Vec<_>>(), [true, false]);
    for part in parts {
        assert_eq!(part.ticks, 10 * FRAME_TICKS);
    }
    assert_eq!(parts[0].file.start, segments.list()[5].file.end);
    let bytes = (parts[0].file.end - parts[0].file.start) as usize;
    assert_eq!(bytes, 10 * frame_bytes + tables, "whole pictures");
    let whole = grown(&file, 100);
    assert_eq!(whole.parts(5).len(), 5, "{:?}", whole.parts(5));
    assert!(segments.parts(7).is_empty() && segments.parts(usize::MAX).is_empty());
}

/// Tables at arbitrary places are sent before segments, which begin with the key frame.
#[test]
fn segments_without_their_tables_directly_before_have_them_in_front() {
    let mut writer = Writer::default();
    for frame in 0..300 {
        if frame % 4 == 3 || frame == 0 {
            writer.tables();
        }
        writer.frame(frame * FRAME_TICKS, if frame % 50 == 0 { 0x65 } else { 0x41 });
    }
    let segments = grown(&writer.file, 100);
    for segment in &segments.list()[1..] {
        assert_eq!(segment.tables.len(), 2 * 188, "{segment:?}");
        assert_eq!([segment.tables[1] & 0x1f, segment.tables[2]], [0, 0], "the PAT");
        let at = segment.file.start as usize;
        let pid = u16::from_be_bytes([writer.file[at + 1], writer.file[at + 2]]);
        assert_eq!(pid & 0x5fff, 0x4000 | VIDEO_PID, "a unit of pictures begins");
    }
}

/// A recording whose source restarted: times decrease.
#[test]
fn a_segment_ends_where_times_are_set_anew() {
    let mut writer = Writer::default();
    for frame in 0..400 {
        let time = if frame < 220 { frame + 5000 } else { frame };
        if frame % 50 == 0 || frame == 220 {
            writer.tables();
        }
        let is_key = frame % 50 == 0 || frame == 220;
        timed_frame(&mut writer, time, is_key);
    }
    let segments = grown(&writer.file, 100);
    let breaks: Vec<usize> = segments
        .list()
        .iter()
        .enumerate()
        .filter(|(_, one)| one.is_break)
        .map(|(number, _)| number)
        .collect();
    assert_eq!(breaks, [5], "{:?}", frames_of(&segments));
    assert_eq!(segments.list()[5].file.start, writer_offset(220, 5));
}

/// A source that was silent: no packets for eight seconds.
#[test]
fn a_hole_lengthens_no_segment() {
    let mut writer = Writer::default();
    for frame in (0..230).chain(430..700) {
        if frame % 50 == 0 {
            writer.tables();
        }
        timed_frame(&mut writer, frame, frame % 50 == 0);
    }
    let (file, mut end) = (writer.file, 0);
    let (plan, starts) = fed(&file, []).recorded_so_far(IDENTITY).unwrap();
    let mut segments = GrowingSegments::of(&plan, true).unwrap();
    segments.extend(&plan, &starts, true);
    for segment in segments.list() {
        assert_eq!(segment.file.start, end);
        end = segment.file.end;
        assert!(segment.ticks < 5 * TICKS_PER_SECOND / 2, "{:?}", segments.list());
    }
    assert_eq!(end, file.len() as u64);
    let last = segments.list().last().unwrap();
    let end = (last.start + last.ticks) / FRAME_TICKS;
    assert_eq!(end, 700, "time goes on behind it");
}

/// Offset of a frame after this many pairs of tables.
fn writer_offset(frame: u64, tables: u64) -> u64 {
    (frame * FRAME_PACKETS + 2 * tables) * 188
}

#[test]
fn a_recording_that_just_began_has_no_segments() {
    let file = recording(600, |frame| frame % 50 == 0);
    let of = |seconds: usize| {
        let end = file.len() * seconds / 24 / 188 * 188;
        GrowingSegments::of(&plan(&file[..end]), false)
    };
    assert!(of(3).is_none());
    assert!(of(7).is_some());
    assert!(GrowingSegments::of(&plan(&file[..file.len() / 8 / 188 * 188]), true).is_some());
}

/// A frame with a separate time, in frames.
pub(crate) fn timed_frame(writer: &mut Writer, time: u64, is_key: bool) {
    let ticks = time * FRAME_TICKS;
    let adaptation = Adaptation { pcr: Some(ticks), ..Adaptation::default() };
    let nal_unit = if is_key { 0x65 } else { 0x41 };
    let payload = pes_at(ticks / 300 + 9000, &[0, 0, 0, 1, nal_unit, 0x88, 0x84]);
    writer.packet(VIDEO_PID, true, Some(adaptation), &payload);
    (1..FRAME_PACKETS).for_each(|_| writer.middle(VIDEO_PID));
}
