// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that segments reproduce the file, begin where a decoder can start, and are preceded by its
//! tables.
//!
//! Sources: RFC 8216 §3.2 (a segment begins with PAT and PMT), §4.3.3.1 (target duration).

use media::{Refusal, SegmentPlan, TICKS_PER_SECOND};

use crate::growing::{grown, timed_frame};
use crate::writer::{
    AAC, AUDIO_PID, Adaptation, FRAME_PACKETS, FRAME_TICKS, H264, PMT_PID, VIDEO_PID, Writer, film,
    pes, pes_at, pmt_section,
};
use crate::{IDENTITY, fed};

fn cut(file: &[u8], target_s: u64) -> Result<SegmentPlan, Refusal> {
    let (plan, starts) = fed(file, []).finish_with_starts(file.len() as u64, IDENTITY)?;
    SegmentPlan::cut(&plan, starts, target_s)
}

/// Checks the invariants of every list of segments; returns each segment in sent form.
fn sent(segments: &SegmentPlan, file: &[u8]) -> Vec<Vec<u8>> {
    let mut end = 0;
    let mut all = Vec::new();
    for segment in segments.list() {
        assert_eq!(segment.file.start, end, "segments follow each other");
        end = segment.file.end;
        let bytes = &file[segment.file.start as usize..end as usize];
        assert!(!bytes.is_empty() && bytes.len().is_multiple_of(188));
        let sent = [segments.tables(segment), bytes.to_vec()].concat();
        assert_eq!(&sent[..3], [0x47, 0x40, 0], "begins with a PAT");
        let map = sent[188..].chunks(188).find(|packet| packet[1] & 0x1f != 0 || packet[2] != 0);
        assert_eq!(map.map(|packet| &packet[..3]), Some(&[0x47, 0x50, 0][..]), "then a PMT");
        let rounded = (segment.ticks + TICKS_PER_SECOND / 2) / TICKS_PER_SECOND;
        assert!(rounded <= segments.target_s());
        all.push(sent);
    }
    assert_eq!(end + segments.tail_bytes(), file.len() as u64, "all of the file");
    all
}

/// Number of packets sent before each segment.
fn put_in_front(segments: &SegmentPlan) -> Vec<usize> {
    segments.list().iter().map(|segment| segments.tables(segment).len() / 188).collect()
}

/// A film with an IDR picture every ten frames, 0.4 s, and tables only at the start.
fn film_without_repeats(frames: u64) -> Writer {
    let mut writer = Writer::default();
    writer.tables();
    for frame in 0..frames {
        writer.frame(frame * FRAME_TICKS, if frame % 10 == 0 { 0x65 } else { 0x41 });
    }
    writer
}

#[test]
fn cuts_are_made_before_tables_that_are_there() {
    let file = film(100).file;
    let segments = cut(&file, 1).unwrap();
    sent(&segments, &file);
    assert_eq!(put_in_front(&segments), [0; 4]);
    // 0.4 s a group: three of them are 1.2 s, which is 1 as a playlist rounds it.
    let group = (10 * FRAME_PACKETS + 2) * 188;
    let starts: Vec<_> = segments.list().iter().map(|segment| segment.file.start).collect();
    assert_eq!(starts, [0, 3 * group, 6 * group, 9 * group]);
    let frames: Vec<_> =
        segments.list().iter().map(|segment| segment.ticks / FRAME_TICKS).collect();
    assert_eq!(frames[..3], [30, 30, 30]);
    assert_eq!(segments.target_s(), 1);
}

#[test]
fn tables_that_are_not_repeated_are_put_in_front_as_the_packets_they_were() {
    let file = film_without_repeats(100).file;
    let segments = cut(&file, 1).unwrap();
    for (sent, in_front) in sent(&segments, &file).iter().zip(put_in_front(&segments)) {
        assert_eq!(sent[..2 * 188], file[..2 * 188], "PAT and PMT, counters and all");
        let is_first = sent[..] == file[..sent.len()];
        assert_eq!(in_front, if is_first { 0 } else { 2 });
    }
}

#[test]
fn tables_among_other_packets_are_put_in_front_with_their_last_counters() {
    let mut writer = film(10);
    // In the middle of the packets of the picture before.
    writer.tables();
    let tables = writer.file[writer.file.len() - 2 * 188..].to_vec();
    writer.middle(VIDEO_PID);
    let start = writer.file.len() as u64;
    writer.frame(10 * FRAME_TICKS, 0x65);
    (11..40).for_each(|frame| writer.frame(frame * FRAME_TICKS, 0x41));
    let file = writer.file;
    let segments = cut(&file, 1).unwrap();
    let all = sent(&segments, &file);
    assert_eq!(segments.list()[1].file.start, start);
    assert_eq!(all[1][..2 * 188], tables);
}

#[test]
fn tables_of_several_packets_keep_their_counters_in_order() {
    let mut writer = Writer::default();
    let map = pmt_section(1, VIDEO_PID, &[(VIDEO_PID, H264), (AUDIO_PID, AAC)], &[9; 300]);
    for frame in 0..40 {
        if frame % 20 == 0 {
            writer.pat(&[(1, PMT_PID)]);
            writer.section(PMT_PID, &map);
            writer.null();
        }
        writer.frame(frame * FRAME_TICKS, if frame % 20 == 0 { 0x65 } else { 0x41 });
    }
    let file = writer.file;
    let segments = cut(&file, 1).unwrap();
    sent(&segments, &file);
    assert_eq!(put_in_front(&segments), [3, 3]);
    let second = segments.tables(&segments.list()[1]);
    let counters: Vec<_> = second.chunks(188).map(|packet| packet[3] & 15).collect();
    assert_eq!(counters, [1, 2, 3]);
}

#[test]
fn every_frame_of_sound_alone_is_a_place_to_cut() {
    let mut writer = Writer::default();
    writer.pat(&[(1, PMT_PID)]);
    writer.pmt(AUDIO_PID, &[(AUDIO_PID, AAC)]);
    for frame in 0..100 {
        writer.pcr(AUDIO_PID, frame * FRAME_TICKS);
        writer.packet(AUDIO_PID, true, None, &pes(&[0xff; 100]));
    }
    let segments = cut(&writer.file, 1).unwrap();
    sent(&segments, &writer.file);
    assert_eq!(segments.list().len(), 3);
}

#[test]
fn file_that_begins_within_a_group_is_cut_from_its_first_packet_on() {
    let mut writer = Writer::default();
    (0..10).for_each(|frame| writer.frame(frame * FRAME_TICKS, 0x41));
    writer.tables();
    writer.frame(10 * FRAME_TICKS, 0x65);
    (11..20).for_each(|frame| writer.frame(frame * FRAME_TICKS, 0x41));
    writer.tables();
    writer.frame(20 * FRAME_TICKS, 0x65);
    (21..40).for_each(|frame| writer.frame(frame * FRAME_TICKS, 0x41));
    let segments = cut(&writer.file, 1).unwrap();
    sent(&segments, &writer.file);
    assert_eq!(put_in_front(&segments), [2, 0]);
    assert_eq!(segments.list()[0].ticks / FRAME_TICKS, 20, "what is before the picture counts");
}

/// The clock is on the PID of the pictures; sound that continues longer ends the film, at its own
/// rate.
#[test]
fn a_film_ends_with_its_longest_stream() {
    const BEGIN: u64 = 900_000;
    for (pictures, sounds, wrap) in
        [(100, 375, 0), (375, 100, 0), (100, 100, 0), (100, 375, (1 << 33) - BEGIN - 5 * 90_000)]
    {
        let mut writer = Writer::default();
        for frame in 0..pictures.max(sounds) {
            let time = (frame * 3600 + BEGIN + wrap) % (1 << 33);
            if frame < pictures {
                if frame % 25 == 0 {
                    writer.tables();
                }
                writer.pcr(VIDEO_PID, frame * FRAME_TICKS + wrap * 300);
                let slice = if frame % 25 == 0 { 0x65 } else { 0x41 };
                writer.packet(VIDEO_PID, true, None, &pes_at(time, &[0, 0, 1, slice, 0x88]));
                (0..3).for_each(|_| writer.middle(VIDEO_PID));
            }
            if frame < sounds {
                writer.packet(AUDIO_PID, true, None, &pes_at(time, &[0xff, 0xf1, 0x50, 0x80]));
            }
        }
        let file = &writer.file;
        let (plan, starts) = fed(file, []).finish_with_starts(file.len() as u64, IDENTITY).unwrap();
        let expected = pictures.max(sounds) * FRAME_TICKS;
        let is_near = |ticks: u64| ticks.abs_diff(expected) <= 2 * FRAME_TICKS;
        // Eleven seconds of sound after the last key frame make no segment too long.
        let cut = SegmentPlan::cut(&plan, starts.clone(), 1).map(|cut| cut.list().len());
        assert_eq!(cut, Ok(pictures.div_ceil(25) as usize), "{pictures} pictures, {sounds} sounds");
        assert!(is_near(plan.duration_ticks()), "{}", plan.duration_ticks());
        for starts in [starts, media::entry_points(&plan, &file[..]).unwrap()] {
            let segments = SegmentPlan::cut_however_long(&plan, starts, 4).unwrap();
            let ticks: u64 = segments.list().iter().map(|segment| segment.ticks).sum();
            assert!(is_near(ticks), "{pictures} pictures, {sounds} sounds: {ticks}");
        }
        // Sound without a clock is sent at its pace.
        let middle = plan.ticks((plan.packets() * 9).div_ceil(10));
        assert!(middle < expected && middle > expected / 3, "{middle}");
    }
}

/// A single time that does not continue another, as damage produces it, is not a timeline; two
/// consecutive times are.
#[test]
fn a_wild_time_in_the_tail_of_the_sound_does_not_end_the_film() {
    let frames = |wild: &[u64], step: u64| {
        let mut writer = Writer::default();
        for frame in 0..375 {
            if frame < 100 {
                if frame == 0 {
                    writer.tables();
                }
                writer.pcr(VIDEO_PID, frame * FRAME_TICKS);
                let slice = if frame == 0 { 0x65 } else { 0x41 };
                let unit = pes_at(frame * 3600 + 900_000, &[0, 0, 1, slice, 0x88]);
                writer.packet(VIDEO_PID, true, None, &unit);
            }
            let wild = if wild.contains(&frame) { step } else { 0 };
            let time = (frame * 3600 + 900_000 + wild) % (1 << 33);
            writer.packet(AUDIO_PID, true, None, &pes_at(time, &[0xff, 0xf1, 0x50, 0x80]));
        }
        let file = &writer.file;
        let plan = fed(file, []).finish(file.len() as u64, IDENTITY).unwrap();
        plan.duration_ticks().div_ceil(FRAME_TICKS)
    };
    for step in [1 << 32, 3600 * 90_000, (1 << 33) - 20 * 90_000] {
        // In the tail, as its first, as its last but one, its last, and one each now and then.
        for wild in [&[200][..], &[100], &[373], &[374], &[0], &[120, 150, 340]] {
            let frames = frames(wild, step);
            assert!((372..=377).contains(&frames), "{wild:?}, {step}: {frames}");
        }
    }
    let cut: Vec<u64> = (250..375).collect();
    assert!(frames(&cut, 3600 * 90_000) < 200, "a timeline of the tail alone: the clock's rate");
}

/// Pictures of a packet each, at regular intervals a key frame after tables, presented at `time`.
fn film_presented(frames: u64, key_every: u64, time: impl Fn(u64) -> u64) -> Writer {
    let mut writer = Writer::default();
    for frame in 0..frames {
        let is_key = frame % key_every == 0;
        if is_key {
            writer.tables();
        }
        // Presentation times are in the first packet, from byte 9 of the PES packet on.
        let time = frame * FRAME_TICKS / 300 + time(frame);
        let mut unit = pes(&[0, 0, 0, 1, if is_key { 0x65 } else { 0x41 }, 0x88, 0x84]);
        unit[9] = 0x21 | (time >> 29) as u8 & 0x0e;
        unit[10] = (time >> 22) as u8;
        unit[11] = (time >> 14) as u8 | 1;
        unit[12] = (time >> 7) as u8;
        unit[13] = (time << 1) as u8 | 1;
        writer.pcr(VIDEO_PID, frame * FRAME_TICKS);
        writer.packet(VIDEO_PID, true, None, &unit);
    }
    writer
}

#[test]
fn times_that_jump_at_each_picture_give_no_segment_a_picture() {
    // 40 s, 25 key frames a second, each a minute off the one before.
    let jump = |frame: u64| if frame.is_multiple_of(2) { 0 } else { 5_400_000 };
    let writer = film_presented(1000, 1, jump);
    let segments = cut(&writer.file, 6).unwrap();
    sent(&segments, &writer.file);
    let count = segments.list().len() as u64;
    assert!((40..=16 + 40 + 7).contains(&count), "{count} segments in 40 s");
    let marked = segments.list().iter().filter(|segment| segment.is_break).count() as u64;
    assert_eq!(marked + segments.breaks_inside(), 999);

    // Recordings joined a few times, in pieces of less than a second, keep all their marks.
    let writer = film_presented(120, 10, |frame| frame / 10 * 5_400_000);
    let segments = cut(&writer.file, 6).unwrap();
    assert_eq!((segments.list().len(), segments.breaks_inside()), (12, 0));
}

#[test]
fn a_clock_set_anew_begins_a_segment_of_its_own() {
    // Of 33 bits, the last is set.
    let later = (1 << 32) + 9_000_000;
    let writer = film_presented(40, 10, |frame| if frame < 20 { 7 } else { later });
    let segments = cut(&writer.file, 5).unwrap();
    sent(&segments, &writer.file);
    let breaks: Vec<_> = segments.list().iter().map(|segment| segment.is_break).collect();
    assert_eq!(breaks, [false, true]);
    assert_eq!(segments.list()[0].ticks, 20 * FRAME_TICKS);
    let timestamps: Vec<_> = segments.list().iter().map(|segment| segment.timestamp).collect();
    assert_eq!(timestamps, [Some(7), Some(later + 20 * FRAME_TICKS / 300)]);
}

/// Pieces joined with `cat`, each of which restarts its times.
#[test]
fn pieces_of_a_few_seconds_are_marked_where_they_join() {
    for piece_s in [2, 6, 30] {
        let mut file = Vec::new();
        for _ in 0..3 {
            file.extend(film_presented(piece_s * 25, 25, |_| 126_000).file);
        }
        let segments = cut(&file, 4).unwrap();
        let marked = segments.list().iter().filter(|segment| segment.is_break);
        let at: Vec<u64> = marked.map(|segment| segment.file.start).collect();
        // After the tables and the clock reference, which are first.
        let (piece, first) = (file.len() as u64 / 3, 3 * 188);
        assert_eq!(at, [piece + first, 2 * piece + first], "{piece_s} s");
    }
}

/// ffmpeg writes SDT, PAT, PMT, and other muxers write other tables; their counters restart with
/// the piece.
#[test]
fn a_joined_piece_begins_with_all_of_its_tables() {
    const SDT: u16 = 17;
    for order in [&[SDT, 0, PMT_PID][..], &[0, SDT, PMT_PID], &[0, PMT_PID, SDT], &[0, PMT_PID]] {
        let piece = |frames: u64| {
            let mut writer = Writer::default();
            for frame in 0..frames {
                for &pid in order.iter().filter(|_| frame % 25 == 0) {
                    match pid {
                        0 => writer.pat(&[(1, PMT_PID)]),
                        PMT_PID => writer.pmt(VIDEO_PID, &[(VIDEO_PID, H264)]),
                        _ => writer.section(pid, &pmt_section(9, 0, &[], &[0; 300])),
                    }
                }
                timed_frame(&mut writer, frame + 20, frame % 25 == 0);
            }
            writer.file
        };
        let (first, second) = (piece(300), piece(200));
        let (join, file) = (first.len() as u64, [first, second].concat());
        let (plan, starts) =
            fed(&file, []).finish_with_starts(file.len() as u64, IDENTITY).unwrap();
        let again = media::entry_points(&plan, &file[..]).unwrap();
        for starts in [starts, again] {
            let segments = SegmentPlan::cut(&plan, starts.clone(), 4).unwrap();
            sent(&segments, &file);
            let joined = segments.list().iter().find(|segment| segment.is_break).unwrap();
            assert_eq!(joined.file.start, join, "{order:?}");
            let in_front = if order == [0, PMT_PID] { 0 } else { 2 };
            assert_eq!(segments.tables(joined).len() / 188, in_front, "{order:?}");
        }
        let growing = grown(&file, 77);
        let joined = growing.list().iter().find(|segment| segment.is_break).unwrap();
        assert_eq!(joined.file.start, join, "{order:?}, while it grows");
        let begin = [&joined.tables[..], &file[join as usize..]].concat();
        assert_eq!(&begin[..3], [0x47, 0x40, 0], "with a PAT");
    }
}

#[test]
fn pictures_on_a_pid_of_other_tables_are_no_tables() {
    const PID: u16 = 17;
    let mut writer = Writer::default();
    writer.pat(&[(1, PMT_PID)]);
    writer.pmt(PID, &[(PID, H264)]);
    for frame in 0..50 {
        let pcr = Some(frame * FRAME_TICKS);
        let time = frame * 3600 + if frame < 8 { 9_000_000 } else { 900_000 };
        let unit = pes_at(time, &[0, 0, 1, 0x65, 0x88]);
        writer.packet(PID, true, Some(Adaptation { pcr, ..Adaptation::default() }), &unit);
        (0..2).for_each(|_| writer.middle(PID));
    }
    let file = &writer.file;
    let (plan, starts) = fed(file, []).finish_with_starts(file.len() as u64, IDENTITY).unwrap();
    for starts in [starts, media::entry_points(&plan, &file[..]).unwrap()] {
        let segments = SegmentPlan::cut(&plan, starts, 1).unwrap();
        sent(&segments, file);
        let joined = segments.list().iter().find(|segment| segment.is_break).unwrap();
        assert_eq!(joined.file.start, (2 + 8 * 3) * 188);
    }
}

#[test]
fn what_cannot_be_cut_is_refused_by_name() {
    let without_start = {
        let mut writer = Writer::default();
        writer.tables();
        (0..50).for_each(|frame| writer.frame(frame * FRAME_TICKS, 0x41));
        writer.file
    };
    assert_eq!(cut(&without_start, 6), Err(Refusal::NoStart));

    let without_tables = {
        let mut writer = Writer::default();
        (0..50).for_each(|frame| writer.frame(frame * FRAME_TICKS, 0x65));
        writer.file
    };
    assert_eq!(cut(&without_tables, 6), Err(Refusal::NoTables));

    let only_the_first = {
        let mut writer = Writer::default();
        writer.tables();
        (0..200).for_each(|f| writer.frame(f * FRAME_TICKS, if f == 0 { 0x65 } else { 0x41 }));
        writer.file
    };
    let refusal = cut(&only_the_first, 1);
    assert_eq!(refusal, Err(Refusal::FarStart { from_s: 0, seconds: 8, target_s: 1 }));
    assert_eq!(cut(&only_the_first, 2).unwrap().list().len(), 1, "four targets are borne");

    let gap = {
        let mut writer = film(20);
        writer.garbage(&[0; 1000]);
        let rest = film(20);
        writer.garbage(&rest.file);
        writer.file
    };
    let offset = film(20).file.len() as u64;
    assert_eq!(cut(&gap, 6), Err(Refusal::Gaps { bytes: 1000, offset }));

    let mut lead = vec![0; 50];
    lead.extend(film(20).file);
    assert!(matches!(cut(&lead, 6), Err(Refusal::Gaps { bytes: 50, .. })));

    let mut arrivals = Writer::new(true);
    crate::writer::film_into(&mut arrivals, 0..20);
    assert_eq!(cut(&arrivals.file, 6), Err(Refusal::ArrivalTimes { stride: 192 }));

    let mut cut_off = film(20).file;
    cut_off.truncate(cut_off.len() - 100);
    let segments = cut(&cut_off, 6).unwrap();
    sent(&segments, &cut_off);
    assert_eq!(segments.tail_bytes(), 88);
}
