// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that the arithmetic of places and times agrees with a plain walk over all packets, for
//! streams of any clock and any losses.

use media::{PacketPlan, Scanner, TICKS_PER_SECOND};
use proptest::prelude::*;

use crate::writer::{Adaptation, VIDEO_PID, Writer, film};
use crate::{IDENTITY, assert_streams, cases, scan};

/// A piece of a stream: packets after a clock reference, at this distance from the one before; or
/// garbage.
#[derive(Debug, Clone)]
enum Piece {
    Packets { count: u64, step: u64, breaks: bool },
    Garbage { bytes: usize },
}

fn piece() -> impl Strategy<Value = Piece> {
    let step = prop_oneof![Just(0), 1..20_u64, 0..5_000_000_u64, 200_000_000..400_000_000_u64];
    let packets = (5..60_u64, step, prop::bool::weighted(0.1))
        .prop_map(|(count, step, breaks)| Piece::Packets { count, step, breaks });
    prop_oneof![6 => packets, 1 => (1..400_usize).prop_map(|bytes| Piece::Garbage { bytes })]
}

fn stream_of(pieces: &[Piece], has_arrival: bool) -> Writer {
    let mut writer = Writer::new(has_arrival);
    writer.tables();
    (0..5).for_each(|_| writer.null());
    let mut pcr = 1 << 40;
    for (index, piece) in pieces.iter().enumerate() {
        match *piece {
            Piece::Packets { count, step, breaks } => {
                pcr = (pcr + step) % ((1 << 33) * 300);
                let adaptation =
                    Adaptation { pcr: Some(pcr), discontinuity: breaks, random_access: false };
                let unit = [0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0, 0, 0, 1, 0x65, 0, 0];
                writer.packet(VIDEO_PID, index % 3 == 0, Some(adaptation), &unit);
                (1..count).for_each(|_| writer.middle(VIDEO_PID));
            }
            Piece::Garbage { bytes } => writer.garbage(&vec![0x55; bytes]),
        }
    }
    // Packets enough to be found again after garbage.
    (0..5).for_each(|_| writer.null());
    writer
}

/// Due time of a transport stream packet, by a walk over the clock.
fn due(plan: &PacketPlan, ts_packet: u64) -> u64 {
    let span = plan.clock().windows(2).find(|pair| ts_packet < pair[1].ts_packet).unwrap();
    let (packets, ticks) = (span[1].ts_packet - span[0].ts_packet, span[1].ticks - span[0].ticks);
    let within = u128::from(ts_packet - span[0].ts_packet) * u128::from(ticks);
    span[0].ticks + (within / u128::from(packets)) as u64
}

fn check_places(plan: &PacketPlan, writer: &Writer) {
    assert_streams(plan, &writer.file, &writer.packets);
    let mut wire_offset = 0;
    let mut ts_packet = 0;
    for packet in 0..plan.packets() {
        assert_eq!(plan.wire_offset(packet), wire_offset);
        let payload = plan.payload(packet);
        wire_offset += 12 + payload.ts_packets * 188;
        let extent = plan.extents().iter().rfind(|extent| extent.first_packet <= packet).unwrap();
        let first = extent.first_ts_packet + (packet - extent.first_packet) * 7;
        assert_eq!(first, ts_packet);
        ts_packet += payload.ts_packets;
        let run = plan.segment_run(packet, u64::MAX);
        assert_eq!(packet + run, extent.first_packet + extent.packets());
        assert_eq!(plan.segment_run(packet, 2), run.min(2));
        if run > 1 {
            assert_eq!(payload.ts_packets, 7);
            let next = plan.payload(packet + 1).file_offset;
            assert_eq!(next, payload.file_offset + 7 * plan.stride());
        }
        let bytes = plan.payload_bytes(0..packet);
        assert_eq!(bytes, plan.wire_offset(packet) - packet * 12);
    }
    assert_eq!(plan.wire_bytes(), wire_offset);
    assert_eq!(plan.payload_bytes(0..u64::MAX), writer.packets.len() as u64);
    assert_eq!(plan.segment_run(plan.packets(), 9), 0);
}

fn check_times(plan: &PacketPlan) {
    let mut ts_packet = 0;
    let times: Vec<u64> = (0..plan.packets())
        .map(|packet| {
            let time = due(plan, ts_packet);
            ts_packet += plan.payload(packet).ts_packets;
            time
        })
        .collect();
    assert!(times.is_sorted());
    for (packet, &time) in (0..).zip(&times) {
        assert_eq!(plan.ticks(packet), time);
        let timestamp = IDENTITY.first_timestamp.wrapping_add((time / 300) as u32);
        let header = plan.header(packet);
        assert_eq!(header[..2], [0x80, 33]);
        let sequence = IDENTITY.first_sequence.wrapping_add(packet as u16);
        assert_eq!(header[2..4], sequence.to_be_bytes());
        assert_eq!(header[4..8], timestamp.to_be_bytes());
        assert_eq!(header[8..], IDENTITY.ssrc.to_be_bytes());
        for ticks in [time.saturating_sub(1), time, time + 1] {
            let before = times.partition_point(|&time| time < ticks) as u64;
            assert_eq!(plan.packets_before(ticks), before, "{ticks}");
        }
    }
    assert_eq!(plan.ticks(plan.packets()), plan.duration_ticks());
    assert_eq!(plan.packets_before(0), 0);
    assert_eq!(plan.packets_before(u64::MAX), plan.packets());
}

fn check_walks(plan: &PacketPlan, starts: &[u64]) {
    let all: Vec<u32> =
        (0..plan.packets()).map(|packet| plan.timestamp(plan.ticks(packet))).collect();
    assert_eq!(plan.timestamps(0..u64::MAX).collect::<Vec<_>>(), all);
    for &start in starts {
        let start = start % (plan.packets() + 2);
        let walk = plan.timestamps(start..start + 20);
        let end = all.len().min(start as usize + 20);
        let expected = &all[end.min(start as usize)..end];
        assert_eq!(walk.len(), expected.len());
        assert_eq!(walk.collect::<Vec<_>>(), expected);
    }
}

fn check_entries(plan: &PacketPlan, times: &[u64]) {
    for &ticks in times {
        let ticks = ticks % (plan.duration_ticks() * 2);
        let entry = plan
            .entries()
            .iter()
            .rfind(|entry| entry.access_unit == 0 || ticks > 0 && entry.presented_ticks <= ticks)
            .unwrap();
        let packet = plan.entry(ticks);
        assert!(plan.presented_ticks(packet) <= ticks);
        let extent = plan.extents().iter().rfind(|extent| extent.first_packet <= packet).unwrap();
        let first = extent.first_ts_packet + (packet - extent.first_packet) * 7;
        let covered = first..first + plan.payload(packet).ts_packets;
        assert!(covered.contains(&entry.ts_packet), "{covered:?} {entry:?}");
    }
}

proptest! {
    #![proptest_config(cases(400))]
    #[test]
    fn arithmetic_agrees_with_a_walk_over_all_packets(
        pieces in prop::collection::vec(piece(), 4..40),
        has_arrival in any::<bool>(),
        numbers in prop::collection::vec(any::<u64>(), 20),
    ) {
        let writer = stream_of(&pieces, has_arrival);
        // All steps may be zero, or all be breaks.
        if let Ok(plan) = scan(&writer.file) {
            check_places(&plan, &writer);
            check_times(&plan);
            check_walks(&plan, &numbers);
            check_entries(&plan, &numbers);
        }
    }
}

#[test]
fn random_streams_mostly_have_plans() {
    let pieces = [
        Piece::Packets { count: 20, step: 0, breaks: false },
        Piece::Garbage { bytes: 100 },
        Piece::Packets { count: 20, step: 1000, breaks: false },
    ];
    assert!(scan(&stream_of(&pieces, false).file).is_ok());
}

#[test]
fn last_payload_of_an_extent_is_shorter() {
    // 2 + 20 packets, garbage, 20 packets: 3 full payloads and one of 1, 2 full ones and one of 6.
    let mut writer = film(1);
    writer.garbage(&[0; 10]);
    writer.frame(crate::writer::FRAME_TICKS, 0x41);
    let plan = scan(&writer.file).unwrap();
    let sizes: Vec<_> = (0..plan.packets()).map(|packet| plan.payload(packet).ts_packets).collect();
    assert_eq!(sizes, [7, 7, 7, 1, 7, 7, 6]);
    assert_eq!(plan.payload_bytes(2..5), (7 + 1 + 7) * 188);
    assert_eq!(plan.wire_offset(4), 4 * 12 + 22 * 188);
}

#[test]
#[should_panic(expected = "packet 3 of 3")]
fn a_packet_past_the_end_has_no_place() {
    let mut writer = film(1);
    writer.file.truncate(21 * 188);
    writer.pcr(VIDEO_PID, 500_000);
    writer.file.drain(20 * 188..21 * 188);
    scan(&writer.file).unwrap().payload(3);
}

#[test]
fn settled_packets_of_a_file_that_grows_stay_as_they_are() {
    let file = film(200).file;
    let whole = scan(&file).unwrap();
    let (mut scanner, mut before) = (Scanner::new(), 0);
    for piece in file.chunks(50_001) {
        scanner.feed(piece);
        let Ok(plan) = scanner.plan_so_far(IDENTITY) else { continue };
        let settled = plan.settled_packets();
        assert!(settled >= before && settled < whole.packets(), "{settled} after {before}");
        // The time before the first reference is known once a rate was measured over a second.
        let end = if plan.ticks(settled) > TICKS_PER_SECOND { settled } else { before };
        for packet in before..end {
            assert_eq!(plan.payload(packet), whole.payload(packet), "packet {packet}");
            assert_eq!(plan.header(packet), whole.header(packet), "packet {packet}");
            assert_eq!(plan.ticks(packet), whole.ticks(packet), "packet {packet}");
        }
        before = end;
    }
    assert!(before + 100 > whole.packets(), "{before} of {}", whole.packets());
}

#[test]
fn known_end_moves_the_packets_behind_the_last_reference_alone() {
    let plan = scan(&film(200).file).unwrap();
    let (settled, end) = (plan.settled_packets(), plan.duration_ticks() + 5_000_000);
    let moved = plan.clone().ending_at(end);
    assert_eq!((moved.duration_ticks(), moved.packets()), (end, plan.packets()));
    for packet in 0..plan.packets() {
        match packet <= settled {
            true => assert_eq!(moved.ticks(packet), plan.ticks(packet), "packet {packet}"),
            false => assert!(moved.ticks(packet) > plan.ticks(packet), "packet {packet}"),
        }
        assert_eq!(moved.packets_before(moved.ticks(packet) + 1), packet + 1);
    }
    assert_eq!(plan.clone().ending_at(1), plan, "before the last reference");
}
