// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that play starts where a decoder can start, with its tables if they are near.

use media::{EntryPoint, PacketPlan};

use crate::scan;
use crate::writer::{
    AAC, AUDIO_PID, Adaptation, FRAME_PACKETS, FRAME_TICKS, H264, PMT_PID, VIDEO_PID, Writer, film,
    pes, pes_at, pmt_section,
};

fn access_units(plan: &PacketPlan) -> Vec<u64> {
    plan.entries().iter().map(|entry| entry.access_unit).collect()
}

fn places_of(plan: &PacketPlan) -> Vec<(u64, u64)> {
    plan.entries().iter().map(|entry| (entry.ts_packet, entry.access_unit)).collect()
}

#[test]
fn idr_pictures_are_entries_that_begin_with_their_tables() {
    let plan = scan(&film(40).file).unwrap();
    let group = 10 * FRAME_PACKETS + 2;
    let places: Vec<_> = (1..4).map(|index| (index * group, index * group + 2)).collect();
    // The first group is packet 0's entry: its tables are the first packets.
    let first = EntryPoint { ts_packet: 0, access_unit: 0, presented_ticks: 0 };
    assert_eq!(plan.entries()[0], first);
    assert_eq!(places_of(&plan)[1..], places);
}

#[test]
fn entry_begins_with_the_last_association_that_a_map_followed() {
    let mut writer = film(2);
    writer.tables();
    let tables = writer.count() - 2;
    writer.frame(2 * FRAME_TICKS, 0x41);
    // An association table whose map arrives too late.
    writer.pat(&[(1, PMT_PID)]);
    let access_unit = writer.count();
    writer.frame(3 * FRAME_TICKS, 0x65);
    writer.pmt(VIDEO_PID, &[(VIDEO_PID, H264), (AUDIO_PID, AAC)]);
    let plan = scan(&writer.file).unwrap();
    assert_eq!(places_of(&plan)[1], (tables, access_unit));
}

#[test]
fn map_that_began_before_the_association_does_not_complete_it() {
    let mut writer = film(2);
    let map = pmt_section(1, VIDEO_PID, &[(VIDEO_PID, H264), (AUDIO_PID, AAC)], &[9; 200]);
    let start = [&[0][..], &map].concat();
    let rest = writer.packet(PMT_PID, true, None, &start);
    writer.pat(&[(1, PMT_PID)]);
    writer.packet(PMT_PID, false, None, rest);
    let access_unit = writer.count();
    writer.frame(2 * FRAME_TICKS, 0x65);
    let plan = scan(&writer.file).unwrap();
    assert_eq!(places_of(&plan)[1], (access_unit, access_unit));
}

#[test]
fn tables_before_the_previous_entry_are_not_gone_back_to() {
    let mut writer = film(2);
    let access_unit = writer.count();
    writer.frame(2 * FRAME_TICKS, 0x65);
    let plan = scan(&writer.file).unwrap();
    assert_eq!(places_of(&plan)[1], (access_unit, access_unit));
}

#[test]
fn indicator_makes_an_entry_of_any_video() {
    // VC-1, whose start codes are not examined.
    let mut writer = Writer::default();
    writer.pat(&[(1, PMT_PID)]);
    writer.pmt(VIDEO_PID, &[(VIDEO_PID, 0xea)]);
    for frame in 0..10 {
        let pcr = Some(frame * FRAME_TICKS);
        let adaptation = Adaptation { pcr, random_access: frame % 4 == 0, ..Default::default() };
        writer.packet(VIDEO_PID, true, Some(adaptation), &pes(&[0, 0, 1, 0x0d]));
        (1..10).for_each(|_| writer.middle(VIDEO_PID));
    }
    let plan = scan(&writer.file).unwrap();
    assert_eq!(access_units(&plan), [0, 2 + 40, 2 + 80]);
}

#[test]
fn indicator_without_a_start_holds_until_the_next() {
    let mut writer = film(3);
    let adaptation = Adaptation { random_access: true, ..Adaptation::default() };
    writer.packet(VIDEO_PID, false, Some(adaptation), &[]);
    let access_unit = writer.count();
    writer.frame(3 * FRAME_TICKS, 0x41);
    writer.frame(4 * FRAME_TICKS, 0x41);
    let plan = scan(&writer.file).unwrap();
    assert_eq!(access_units(&plan), [0, access_unit]);
}

#[test]
fn picture_type_behind_delimiters_in_a_later_packet_is_found() {
    let mut writer = film(3);
    let access_unit = writer.count();
    // A delimiter and 1000 bytes of SEI, with the slice's start code cut by a packet's end.
    let mut data = pes(&[0, 0, 0, 1, 9, 0xf0, 0, 0, 1, 6]);
    data.resize(184 * 6 - 2, 0x80);
    data.extend([0, 0, 1, 0x65, 0x88, 0x84]);
    let mut rest = &data[..];
    let mut starts = true;
    while !rest.is_empty() {
        rest = writer.packet(VIDEO_PID, starts, None, rest);
        starts = false;
        writer.middle(AUDIO_PID);
    }
    writer.frame(3 * FRAME_TICKS, 0x41);
    let plan = scan(&writer.file).unwrap();
    assert_eq!(access_units(&plan), [0, access_unit]);
}

#[test]
fn scrambled_pictures_are_not_looked_at() {
    let mut writer = Writer::default();
    for frame in 0..20 {
        if frame % 10 == 0 {
            writer.tables();
        }
        let at = writer.file.len();
        writer.frame(frame * FRAME_TICKS, 0x65);
        writer.file[at + 3] |= 0x80;
    }
    assert_eq!(access_units(&scan(&writer.file).unwrap()), [0]);
}

#[test]
fn sound_alone_can_be_started_at_every_pes_packet() {
    let mut writer = Writer::default();
    writer.pat(&[(1, PMT_PID)]);
    writer.pmt(AUDIO_PID, &[(AUDIO_PID, AAC)]);
    for unit in 0..6 {
        let pcr = Some(unit * FRAME_TICKS);
        let adaptation = Adaptation { pcr, ..Adaptation::default() };
        writer.packet(AUDIO_PID, true, Some(adaptation), &pes(&[0xff, 0xf1]));
        (1..4).for_each(|_| writer.middle(AUDIO_PID));
    }
    let plan = scan(&writer.file).unwrap();
    assert_eq!(access_units(&plan), [0, 6, 10, 14, 18, 22]);
}

#[test]
fn seeking_finds_the_entry_at_or_before() {
    let plan = scan(&film(40).file).unwrap();
    let group = 10 * FRAME_PACKETS + 2;
    let due = |ts_packet: u64| {
        let at = plan.clock().partition_point(|point| point.ts_packet <= ts_packet) - 1;
        let (start, end) = (plan.clock()[at], plan.clock()[at + 1]);
        let (packets, ticks) = (end.ts_packet - start.ts_packet, end.ticks - start.ticks);
        start.ticks + (ts_packet - start.ts_packet) * ticks / packets
    };
    assert_eq!(plan.entry(0), 0);
    for index in 1..4 {
        // The first picture follows two packets of tables; their times do not advance.
        let presented = due(index * group + 2) - due(2);
        assert_eq!(plan.entry(presented), index * group / 7);
        assert_eq!(plan.entry(presented - 1), (index - 1) * group / 7);
        assert_eq!(plan.presented_ticks(index * group / 7), presented);
    }
    assert_eq!(plan.entry(plan.duration_ticks()), 3 * group / 7);
    assert_eq!(plan.entry(u64::MAX), 3 * group / 7);
}

#[test]
fn place_to_start_is_found_by_its_presentation_time_and_not_by_the_clock() {
    // Shown up to a second later than due, by a different delay each time; and reset once.
    let delays = [30_000, 80_000, 5_000, 60_000, 90_000, 30_000];
    let (mut writer, mut expected) = (Writer::default(), Vec::new());
    for (group, delay) in (0..).zip(delays) {
        let set_anew = if group < 4 { 0 } else { 5_000_000 };
        let presented = 1_000_000 + group * 180_000 + delay;
        for frame in 0..50 {
            if frame == 0 {
                writer.tables();
            }
            let pcr = Some((1_000_000 + set_anew + group * 180_000 + frame * 3600) * 300);
            let adaptation = Adaptation { pcr, ..Adaptation::default() };
            let nal_unit = if frame == 0 { 0x65 } else { 0x41 };
            let unit = pes_at(presented + set_anew + frame * 3600, &[0, 0, 1, nal_unit, 0x88]);
            writer.packet(VIDEO_PID, true, Some(adaptation), &unit);
            (0..20).for_each(|_| writer.middle(VIDEO_PID));
        }
        expected.push((presented - 1_030_000) * 300);
    }
    let plan = scan(&writer.file).unwrap();
    let presented: Vec<_> = plan.entries().iter().map(|entry| entry.presented_ticks).collect();
    assert_eq!(presented[..4], expected[..4]);
    // After the break a group continues at the time of the clock: two seconds, plus the clock's
    // value for the one step without a reference.
    let step = presented[4] - presented[3];
    assert!(step.abs_diff(2 * media::TICKS_PER_SECOND) < FRAME_TICKS, "{step}");
    assert_eq!(presented[5] - presented[4], expected[5] - expected[4]);
    for (entry, &presented) in plan.entries()[1..].iter().zip(&presented[1..]) {
        let packet = entry.ts_packet / 7;
        assert_eq!(plan.entry(presented), packet);
        assert!(plan.entry(presented - 1) < packet);
        assert_eq!(plan.presented_ticks(packet), presented);
    }
}

#[test]
fn entries_beyond_the_limit_are_thinned_evenly() {
    let mut writer = Writer::default();
    writer.pat(&[(1, PMT_PID)]);
    writer.pmt(AUDIO_PID, &[(AUDIO_PID, AAC)]);
    let units = 300_000;
    for unit in 0..units {
        let adaptation = Adaptation { pcr: Some(unit * 9000), ..Adaptation::default() };
        writer.packet(AUDIO_PID, true, Some(adaptation), &pes(&[0xff, 0xf1]));
    }
    let plan = scan(&writer.file).unwrap();
    assert!(plan.entries().len() > 100_000 && plan.entries().len() < 1 << 18);
    let gaps = plan.entries()[1..].windows(2).map(|pair| pair[1].ts_packet - pair[0].ts_packet);
    assert_eq!(gaps.max(), Some(2));
}
