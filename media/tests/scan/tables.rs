// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables are read however they are cut into packets, and only when they are whole.

use media::{ElementaryStream, PacketPlan};

use crate::scan;
use crate::writer::{
    AAC, AUDIO_PID, FRAME_PACKETS, FRAME_TICKS, H264, PMT_PID, VIDEO_PID, Writer, pat_section,
    pmt_section,
};

const STREAMS: [(u16, u8); 2] = [(VIDEO_PID, H264), (AUDIO_PID, AAC)];

/// Returns the plan of a stream that begins with these tables.
fn plan_after(tables: impl FnOnce(&mut Writer)) -> PacketPlan {
    let mut writer = Writer::default();
    tables(&mut writer);
    (0..5).for_each(|frame| writer.frame(frame * FRAME_TICKS, 0x65));
    scan(&writer.file).unwrap()
}

fn streams(plan: &PacketPlan) -> Vec<(u16, u8)> {
    plan.streams().iter().map(|&ElementaryStream { pid, stream_type }| (pid, stream_type)).collect()
}

#[test]
fn streams_are_those_of_the_map() {
    assert_eq!(streams(&plan_after(|writer| writer.tables())), STREAMS);
}

#[test]
fn without_tables_there_are_no_streams_but_a_plan() {
    let plan = plan_after(|_| ());
    assert_eq!(streams(&plan), []);
    assert_eq!(plan.entries().len(), 1);
}

#[test]
fn map_without_an_association_is_not_believed() {
    assert_eq!(streams(&plan_after(|writer| writer.pmt(VIDEO_PID, &STREAMS))), []);
}

#[test]
fn map_over_several_packets_is_put_together() {
    let section = pmt_section(1, VIDEO_PID, &STREAMS, &[9; 900]);
    assert!(section.len() > 4 * 184);
    let plan = plan_after(|writer| {
        writer.pat(&[(1, PMT_PID)]);
        writer.section(PMT_PID, &section);
    });
    assert_eq!(streams(&plan), STREAMS);
}

#[test]
fn map_over_several_packets_with_others_between_is_put_together() {
    let section = pmt_section(1, VIDEO_PID, &STREAMS, &[9; 300]);
    let plan = plan_after(|writer| {
        writer.pat(&[(1, PMT_PID)]);
        let mut rest: &[u8] = &[&[0][..], &section].concat();
        let mut starts = true;
        while !rest.is_empty() {
            rest = writer.packet(PMT_PID, starts, None, rest);
            starts = false;
            writer.null();
            writer.middle(AUDIO_PID);
        }
    });
    assert_eq!(streams(&plan), STREAMS);
}

#[test]
fn section_that_starts_behind_the_end_of_another_is_read() {
    let first = pmt_section(1, VIDEO_PID, &STREAMS, &[9; 200]);
    let other = pmt_section(7, 0x777, &[(0x777, 2)], &[]);
    let plan = plan_after(|writer| {
        writer.pat(&[(7, PMT_PID), (1, PMT_PID)]);
        let (start, end) = first.split_at(183);
        writer.packet(PMT_PID, true, None, &[&[0][..], start].concat());
        // The pointer field gives the start of the other section.
        writer.packet(PMT_PID, true, None, &[&[end.len() as u8][..], end, &other].concat());
    });
    assert_eq!(streams(&plan), [(0x777, 2)], "the first programme in the association");
}

#[test]
fn two_sections_in_one_packet_are_both_read() {
    let both =
        [pmt_section(7, 0x777, &[(0x777, 2)], &[]), pmt_section(1, VIDEO_PID, &STREAMS, &[])];
    let plan = plan_after(|writer| {
        writer.pat(&[(1, PMT_PID), (7, PMT_PID)]);
        writer.section(PMT_PID, &both.concat());
    });
    assert_eq!(streams(&plan), STREAMS);
}

#[test]
fn every_damaged_bit_of_a_table_makes_it_invalid() {
    let section = pmt_section(1, VIDEO_PID, &STREAMS, &[]);
    for bit in 0..section.len() * 8 {
        let mut damaged = section.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let plan = plan_after(|writer| {
            writer.pat(&[(1, PMT_PID)]);
            writer.section(PMT_PID, &damaged);
        });
        assert_eq!(streams(&plan), [], "bit {bit}");
    }
}

#[test]
fn map_that_lost_a_packet_is_dropped_and_the_next_is_read() {
    let section = pmt_section(1, VIDEO_PID, &STREAMS, &[9; 500]);
    for is_repeated in [false, true] {
        let mut writer = Writer::default();
        writer.pat(&[(1, PMT_PID)]);
        writer.section(PMT_PID, &section);
        // The second of the map's three packets.
        writer.file.drain(2 * 188..3 * 188);
        if is_repeated {
            writer.section(PMT_PID, &section);
        }
        (0..5).for_each(|frame| writer.frame(frame * FRAME_TICKS, 0x65));
        let plan = scan(&writer.file).unwrap();
        assert_eq!(streams(&plan), if is_repeated { &STREAMS[..] } else { &[] });
    }
}

#[test]
fn packet_sent_twice_does_no_harm() {
    let section = pmt_section(1, VIDEO_PID, &STREAMS, &[9; 600]);
    let plan = plan_after(|writer| {
        writer.pat(&[(1, PMT_PID)]);
        writer.section(PMT_PID, &section);
        let packets = writer.packets.split_off(188);
        writer.file.truncate(188);
        for packet in packets.chunks(188) {
            writer.push(packet);
            writer.push(packet);
        }
    });
    assert_eq!(streams(&plan), STREAMS);
}

#[test]
fn programme_without_a_map_is_passed_over() {
    let plan = plan_after(|writer| {
        // The network's table (number 0), two programmes that are not in the file, and ours.
        writer.pat(&[(0, 0x10), (5, 0x500), (6, 0x600), (1, PMT_PID)]);
        writer.pmt(VIDEO_PID, &STREAMS);
    });
    assert_eq!(streams(&plan), STREAMS);
    assert_eq!(plan.entries().len(), 5);
}

#[test]
fn first_programme_is_followed_even_if_its_map_comes_later() {
    let plan = plan_after(|writer| {
        writer.pat(&[(1, PMT_PID), (2, 0x1001)]);
        writer.section(0x1001, &pmt_section(2, 0x201, &[(0x201, H264)], &[]));
        (0..FRAME_PACKETS).for_each(|_| writer.pcr(0x201, 0));
        writer.pmt(VIDEO_PID, &STREAMS);
    });
    assert_eq!(streams(&plan), STREAMS);
    // Clock of the first programme: five frames, and the packets before at its rate.
    assert_eq!(plan.clock().len(), 1 + 5 + 1);
}

#[test]
fn new_association_replaces_the_old() {
    let mut writer = Writer::default();
    writer.tables();
    (0..5).for_each(|frame| writer.frame(frame * FRAME_TICKS, 0x65));
    writer.section(0, &pat_section(1, &[(9, 0x900)]));
    writer.section(0x900, &pmt_section(9, VIDEO_PID, &[(VIDEO_PID, 0x24)], &[]));
    (5..9).for_each(|frame| writer.frame(frame * FRAME_TICKS, 0x65));
    let plan = scan(&writer.file).unwrap();
    assert_eq!(streams(&plan), [(VIDEO_PID, 0x24)]);
    assert_eq!(plan.discontinuities(), 0);
}
