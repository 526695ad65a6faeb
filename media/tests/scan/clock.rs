// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that the timeline follows the clock references and continues across their discontinuities.

use media::{ClockPoint, Damage, PacketPlan, Refusal};

use crate::scan;
use crate::writer::{
    Adaptation, FRAME_PACKETS, FRAME_TICKS, PMT_PID, VIDEO_PID, Writer, film, film_into,
};

const WRAP_TICKS: u64 = (1 << 33) * 300;

/// Tables, then one clock reference every `FRAME_PACKETS` packets with these values; a reference
/// can be flagged as a new time base.
fn stream_of(references: &[(u64, bool)]) -> Writer {
    let mut writer = Writer::default();
    writer.tables();
    for &(ticks, discontinuity) in references {
        let pcr = Some(ticks % WRAP_TICKS);
        let adaptation = Adaptation { pcr, discontinuity, random_access: false };
        writer.packet(VIDEO_PID, false, Some(adaptation), &[]);
        for _ in 1..FRAME_PACKETS {
            writer.middle(VIDEO_PID);
        }
    }
    writer
}

/// The plan of such a stream, and the times of its references counted from the first.
fn times_of(references: &[(u64, bool)]) -> (PacketPlan, Vec<u64>) {
    let plan = scan(&stream_of(references).file).unwrap();
    let times = (0..references.len() as u64)
        .map(|index| {
            let at = 2 + index * FRAME_PACKETS;
            plan.clock().iter().find(|point| point.ts_packet == at).unwrap().ticks
        })
        .collect::<Vec<_>>();
    let first = times[0];
    (plan, times.iter().map(|time| time - first).collect())
}

fn frames(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|frame| frame * FRAME_TICKS)
}

#[test]
fn packets_before_the_first_reference_and_after_the_last_have_the_rate_next_to_them() {
    let film = film(10);
    let plan = scan(&film.file).unwrap();
    let per_packet = FRAME_TICKS / FRAME_PACKETS;
    // Two packets of tables, ten frames.
    let expected: Vec<_> = std::iter::once(ClockPoint { ts_packet: 0, ticks: 0 })
        .chain((0..=10).map(|frame| ClockPoint {
            ts_packet: 2 + frame * FRAME_PACKETS,
            ticks: 2 * per_packet + frame * FRAME_TICKS,
        }))
        .collect();
    assert_eq!(plan.clock(), expected);
    assert_eq!(plan.duration_ticks(), 2 * per_packet + 10 * FRAME_TICKS);
    let bits = film.packets.len() as u64 * 8;
    assert_eq!(plan.bits_per_second(), bits * 27_000_000 / plan.duration_ticks());
}

#[test]
fn the_rate_at_an_end_is_taken_over_a_second_and_not_from_one_step() {
    // Frames of 40 ms; only the last step of the clock is 5 ms.
    let mut references: Vec<_> = frames(60).map(|ticks| (ticks, false)).collect();
    references.push((references[59].0 + FRAME_TICKS / 8, false));
    let (plan, times) = times_of(&references);
    let tail = plan.duration_ticks() - times[60] - plan.clock()[1].ticks;
    assert!(tail > FRAME_TICKS * 9 / 10 && tail < FRAME_TICKS, "{tail}");
}

#[test]
fn wrap_of_the_clock_is_no_break() {
    let start = WRAP_TICKS - 2 * FRAME_TICKS - 1;
    let references: Vec<_> = frames(5).map(|ticks| (start + ticks, false)).collect();
    let (plan, times) = times_of(&references);
    assert_eq!(times, frames(5).collect::<Vec<_>>());
    assert_eq!(plan.discontinuities(), 0);
}

#[test]
fn flagged_break_goes_on_at_the_rate_before() {
    for new_base in [0, 3 * FRAME_TICKS, 50_000_000, WRAP_TICKS / 2] {
        let old = frames(3).map(|ticks| (7_000_000 + ticks, false));
        let new = frames(3).map(|ticks| (new_base + ticks, ticks == 0));
        let (plan, times) = times_of(&old.chain(new).collect::<Vec<_>>());
        assert_eq!(times, frames(6).collect::<Vec<_>>(), "{new_base}");
        assert_eq!(plan.discontinuities(), 1);
    }
}

#[test]
fn jump_without_a_flag_goes_on_at_the_rate_before() {
    let start = 100 * 27_000_000;
    for new_base in [0, start - 1, start + 2 * FRAME_TICKS + 10 * 27_000_000 + 1] {
        let old = frames(3).map(|ticks| (start + ticks, false));
        let new = frames(3).map(|ticks| (new_base + ticks, false));
        let (plan, times) = times_of(&old.chain(new).collect::<Vec<_>>());
        assert_eq!(times, frames(6).collect::<Vec<_>>(), "{new_base}");
        assert_eq!(plan.discontinuities(), 1);
    }
}

#[test]
fn gap_of_ten_seconds_is_believed() {
    let gap = 10 * 27_000_000;
    let (plan, times) = times_of(&[(0, false), (FRAME_TICKS, false), (FRAME_TICKS + gap, false)]);
    assert_eq!(times, [0, FRAME_TICKS, FRAME_TICKS + gap]);
    assert_eq!(plan.discontinuities(), 0);
}

#[test]
fn flag_before_the_reference_holds_until_it() {
    let mut writer = Writer::default();
    film_into(&mut writer, 0..5);
    let flag = Adaptation { discontinuity: true, ..Adaptation::default() };
    writer.packet(VIDEO_PID, false, Some(flag), &[]);
    film_into(&mut writer, 10..15);
    let plan = scan(&writer.file).unwrap();
    assert_eq!(plan.discontinuities(), 1);
    // 3 packets between the fifth frame and the sixth: the flag and the tables.
    let expected = 10 * FRAME_TICKS + (2 + 3) * FRAME_TICKS / FRAME_PACKETS;
    assert_eq!(plan.duration_ticks(), expected);
}

#[test]
fn every_reference_a_new_base_is_no_clock() {
    let references: Vec<_> = frames(9).map(|ticks| (ticks, true)).collect();
    // The first has nothing to break with.
    assert_eq!(scan(&stream_of(&references).file), Err(Refusal::NoClock { pcrs: 9 }));
}

#[test]
fn files_without_two_references_are_refused() {
    assert_eq!(scan(&stream_of(&[]).file), Err(no_tables_clock(0)));
    let mut writer = stream_of(&[(5, false)]);
    (0..100).for_each(|_| writer.null());
    assert_eq!(scan(&writer.file), Err(no_tables_clock(1)));
}

fn no_tables_clock(pcrs: u64) -> Refusal {
    Refusal::NoClock { pcrs }
}

#[test]
fn clock_that_stands_still_is_refused() {
    let references = [(5, false); 20];
    assert_eq!(scan(&stream_of(&references).file), Err(Refusal::StoppedClock { pcrs: 20 }));
}

#[test]
fn clock_that_stands_still_for_a_while_is_served_in_order() {
    let references = [0, 1, 1, 1, 1, 2, 3, 3].map(|frame| (frame * FRAME_TICKS, false));
    let (plan, times) = times_of(&references);
    assert_eq!(times, references.map(|(ticks, _)| ticks));
    for packet in 1..plan.packets() {
        assert!(plan.ticks(packet - 1) <= plan.ticks(packet));
    }
}

#[test]
fn clock_is_that_of_the_tables_and_not_that_of_other_streams() {
    let mut writer = Writer::default();
    // Another stream's clock precedes it, and is twice as fast.
    for frame in 0..40 {
        writer.pcr(0x333, 2 * frame * FRAME_TICKS);
        if frame == 3 {
            writer.tables();
        }
        writer.frame(frame * FRAME_TICKS, 0x41);
    }
    let plan = scan(&writer.file).unwrap();
    let (start, end) = (plan.clock()[1], plan.clock()[plan.clock().len() - 2]);
    assert_eq!(end.ticks - start.ticks, 39 * FRAME_TICKS);
}

#[test]
fn clock_of_any_stream_serves_where_the_tables_name_none() {
    let mut without_tables = Writer::default();
    let mut null_pid = Writer::default();
    null_pid.pat(&[(1, PMT_PID)]);
    null_pid.pmt(0x1fff, &[(VIDEO_PID, 0x1b)]);
    for writer in [&mut without_tables, &mut null_pid] {
        (0..5).for_each(|frame| writer.frame(frame * FRAME_TICKS, 0x41));
        let plan = scan(&writer.file).unwrap();
        assert!(plan.duration_ticks() >= 5 * FRAME_TICKS);
    }
}

#[test]
fn clock_that_moves_to_another_pid_goes_on() {
    let mut writer = film(5);
    writer.pmt(0x222, &[(VIDEO_PID, 0x1b)]);
    for frame in 0..5 {
        writer.pcr(0x222, 77 + frame * FRAME_TICKS);
        (1..FRAME_PACKETS).for_each(|_| writer.null());
    }
    let plan = scan(&writer.file).unwrap();
    assert_eq!(plan.discontinuities(), 1);
    assert_eq!(plan.duration_ticks(), 10 * FRAME_TICKS + 3 * FRAME_TICKS / FRAME_PACKETS);
}

#[test]
fn references_beyond_the_limit_are_thinned_and_the_time_stays() {
    let mut writer = Writer::default();
    writer.tables();
    let references = 300_000;
    (0..references).for_each(|index| writer.pcr(VIDEO_PID, index * 1000));
    let plan = scan(&writer.file).unwrap();
    assert!(plan.clock().len() <= 1 << 18);
    assert_eq!(plan.duration_ticks(), (references + 2) * 1000);
    for packet in (0..plan.packets()).step_by(1009) {
        assert_eq!(plan.ticks(packet), packet * 7 * 1000);
    }
}

#[test]
fn too_many_breaks_are_refused() {
    let mut writer = Writer::default();
    writer.tables();
    for index in 0..140_000 {
        let adaptation =
            Adaptation { discontinuity: index % 2 == 0, pcr: Some(index), random_access: false };
        writer.packet(VIDEO_PID, false, Some(adaptation), &[]);
    }
    let expected = Refusal::TooDamaged { damage: Damage::ClockBreaks, limit: 65_536 };
    assert_eq!(scan(&writer.file), Err(expected));
}
