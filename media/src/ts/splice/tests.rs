// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests the splicer on generated streams with properties that ffmpeg does not produce.

use super::*;
use crate::ts::survey::{Programme, Track};
use crate::ts::{Coding, NULL_PID};

const MS: u64 = TICKS_PER_SECOND / 1000;
/// PIDs of the file: video, audio, subtitles, a separate clock.
const FILE: [u16; 4] = [0x31, 0x32, 0x33, 0x34];

fn track(pid: u16, stream_type: u8, descriptors: &[u8]) -> Track {
    Track {
        pid,
        stream_type,
        coding: Coding::of(stream_type, descriptors),
        descriptors: descriptors.to_vec(),
        format: None,
        has_packets: true,
        unit: Vec::new(),
        times: Vec::new(),
    }
}

fn programme(pcr_pid: u16) -> Programme {
    let language = [0x0a, 4, b'd', b'e', b'u', 0];
    let tracks = vec![
        track(FILE[1], 0x0f, &language),
        track(FILE[0], 0x1b, &[]),
        track(FILE[2], 0x06, &[]),
        track(0x35, 0x86, &[]),
    ];
    Programme { number: 7, map_pid: 0x30, pcr_pid, descriptors: Vec::new(), tracks }
}

/// Returns a packet with a clock reference, with the start of a PES packet and its time, or with
/// the middle of a PES packet.
fn packet(pid: u16, continuity: u8, pcr: Option<u64>, time: Option<u64>) -> [u8; 188] {
    let mut bytes = [0x55; TS_PACKET_BYTES];
    let start = if time.is_some() { 0x40 } else { 0 };
    bytes[..4].copy_from_slice(&[0x47, start | (pid >> 8) as u8, pid as u8, 0x10 | continuity]);
    let mut at = 4;
    if let Some(pcr) = pcr {
        bytes[3] |= 0x20;
        bytes[4..6].copy_from_slice(&[7, 0x50]);
        put_pcr(&mut bytes, pcr);
        at = 12;
    }
    if let Some(time) = time {
        let [a, b, c, d, e] = [29, 22, 14, 7, 0].map(|shift| (time >> shift) as u8);
        let field = [0x21 | a & 0x0e, b, c | 1, d, e << 1 | 1];
        bytes[at..at + 9].copy_from_slice(&[0, 0, 1, 0xe0, 0, 0, 0x80, 0x80, 5]);
        bytes[at + 9..at + 14].copy_from_slice(&field);
    }
    bytes
}

fn splicer(constant_rate: Option<u64>) -> Splicer {
    Splicer::new(&SpliceSettings { constant_rate, ..SpliceSettings::default() }).unwrap()
}

/// Returns an item whose clock begins at zero, due at `due`.
fn item(pcr_pid: u16, due: u64, first_time: u64) -> SpliceItem {
    let mut item = SpliceItem::new(&[programme(pcr_pid)], None).unwrap();
    assert!(!item.look_ahead(&packet(pcr_pid, 0, Some(0), None), due));
    assert!(!item.look_ahead(&packet(FILE[0], 0, None, Some(first_time)), due));
    assert!(item.look_ahead(&packet(FILE[1], 0, None, Some(first_time)), due));
    item
}

/// Returns PID, counter, clock reference and decoding time of each packet in a range of PIDs.
fn sent(out: &[u8], pids: std::ops::Range<u16>) -> Vec<(u16, u8, Option<u64>, Option<u64>)> {
    let packets = out.as_chunks::<TS_PACKET_BYTES>().0.iter();
    packets
        .map(|bytes| TsPacket { header: TsHeader::read(bytes), bytes })
        .filter(|packet| pids.contains(&packet.header.pid()))
        .map(|packet| {
            let starts = packet.header.starts_unit();
            let time = starts.then(|| PesTimes::find(packet.payload()).decoding()).flatten();
            let header = packet.header;
            (header.pid(), header.continuity(), packet.adaptation().pcr, time)
        })
        .collect()
}

#[test]
fn clock_on_a_pid_of_its_own_goes_on_in_packets_without_payload() {
    let mut splicer = splicer(None);
    let start = 1000 * MS;
    splicer.begin(&item(FILE[3], start, 9000)).unwrap();
    let mut out = Vec::new();
    splicer.push(&packet(FILE[3], 0, Some(0), None), start, &mut out);
    splicer.push(&packet(FILE[0], 5, None, None), start, &mut out);
    splicer.push(&packet(FILE[0], 6, None, Some(9000)), start, &mut out);
    splicer.push(&packet(FILE[1], 9, None, Some(9000)), start, &mut out);
    splicer.push(&packet(FILE[3], 1, Some(40 * MS), None), start + 41 * MS, &mut out);
    let time = Some(9000 + 90_000);
    assert_eq!(
        sent(&out, 0x100..0x130),
        [
            (0x100, 15, Some(start), None),
            (0x100, 0, None, time),
            (0x110, 0, None, time),
            (0x100, 0, Some(start + 40 * MS), None),
        ]
    );
    assert_eq!(splicer.counts().dropped_packets, 1, "the end of a PES packet that did not begin");
}

#[test]
fn sound_that_carries_the_clock_loses_it_to_the_pid_of_the_clock() {
    let mut splicer = splicer(None);
    splicer.begin(&item(FILE[1], 0, 9000)).unwrap();
    let mut out = Vec::new();
    splicer.push(&packet(FILE[1], 0, Some(0), Some(9000)), 0, &mut out);
    let expected = [(0x100, 15, Some(0), None), (0x110, 0, None, Some(9000))];
    assert_eq!(sent(&out, 0x100..0x130), expected);
}

#[test]
fn a_file_that_is_left_ends_with_whole_pes_packets_and_its_clock_goes_on() {
    let file = [
        packet(FILE[0], 0, Some(0), Some(9000)),
        packet(FILE[1], 0, None, Some(9000)),
        packet(FILE[0], 1, None, None),
        packet(FILE[0], 2, Some(20 * MS), Some(12_600)),
        packet(FILE[1], 1, None, None),
        packet(FILE[0], 3, None, None),
        packet(FILE[0], 4, Some(40 * MS), None),
        packet(FILE[2], 0, None, None),
    ];
    let mut open = OpenUnits::default();
    for (number, packet) in (100..).zip(&file) {
        open.show_before(packet, number);
    }
    assert!(!open.show_behind(&packet(FILE[1], 2, None, Some(18_000))));
    assert!(!open.show_behind(&packet(FILE[0], 5, None, None)));
    assert!(!open.show_behind(&packet(FILE[0], 6, None, Some(16_200))));
    assert!(open.show_behind(&packet(FILE[2], 1, None, None)));
    // The PES packet of the audio is complete; the start of that of the subtitles was not passed
    // in.
    let ends = open.finish();
    assert_eq!(ends, [(103, FILE[0])]);
    for constant_rate in [None, Some(2_000_000)] {
        let mut splicer = splicer(constant_rate);
        splicer.begin(&item(FILE[0], 0, 9000)).unwrap();
        let mut out = Vec::new();
        for (number, packet) in (100..).zip(&file) {
            for (_, pid) in ends.iter().filter(|(first, _)| *first == number) {
                splicer.end_stream(*pid);
            }
            splicer.push(packet, 20 * MS * (number - 100) / 3, &mut out);
        }
        splicer.fill_to(400 * MS, &mut out);
        let found = sent(&out, 0x100..0x111);
        let media = found.iter().filter(|found| found.3.is_some()).count();
        assert_eq!(media, 2, "{found:?}");
        assert!(found.iter().filter_map(|found| found.2).any(|pcr| pcr >= 40 * MS), "{found:?}");
        assert_eq!(splicer.counts().cut_units, 1);
    }
}

#[test]
fn one_repetition_is_left_out_and_a_loss_is_counted() {
    let mut splicer = splicer(None);
    splicer.begin(&item(FILE[0], 0, 9000)).unwrap();
    let mut out = Vec::new();
    let mut push = |packet: [u8; 188]| splicer.push(&packet, 0, &mut out);
    push(packet(FILE[0], 3, Some(0), Some(9000)));
    push(packet(FILE[0], 3, Some(10), Some(9000)));
    push(packet(FILE[0], 4, None, None));
    push(packet(FILE[0], 4, None, None));
    push(packet(FILE[0], 4, None, None));
    push(packet(FILE[0], 7, None, None));
    let counters: Vec<u8> = sent(&out, 0x100..0x101).iter().map(|found| found.1).collect();
    assert_eq!(counters, [0, 1, 2, 3]);
    let counts = splicer.counts();
    assert_eq!((counts.repeated_packets, counts.input_losses), (2, 2));
}

#[test]
fn clock_stays_straight_over_a_discontinuity_inside_a_file() {
    let mut splicer = splicer(None);
    splicer.begin(&item(FILE[0], 0, 9000)).unwrap();
    let mut out = Vec::new();
    for (n, pcr) in [0, 20 * MS, PCR_MODULUS - 5 * MS, 15 * MS].into_iter().enumerate() {
        let time = ((pcr / 300) + 9000) % TIME_MODULUS;
        let packet = packet(FILE[0], n as u8, Some(pcr), Some(time));
        splicer.push(&packet, 20 * MS * n as u64 + 7, &mut out);
    }
    let found = sent(&out, 0x100..0x101);
    // The first reference was due at 0 in the look-ahead; the third begins a new time base.
    let references: Vec<_> = found.iter().map(|found| found.2.unwrap()).collect();
    assert_eq!(references, [0, 20 * MS, 40 * MS + 7, 60 * MS + 7]);
    let times: Vec<_> = found.iter().map(|found| found.3.unwrap()).collect();
    assert_eq!(times, [9000, 10_800, 12_600, 14_400]);
    assert_eq!(splicer.counts().clock_discontinuities, 1);
}

#[test]
fn second_file_makes_room_for_the_end_of_the_first() {
    let mut splicer = splicer(None);
    splicer.begin(&item(FILE[0], 0, 90_000)).unwrap();
    let mut out = Vec::new();
    splicer.push(&packet(FILE[0], 0, Some(0), Some(90_000)), 0, &mut out);
    splicer.push(&packet(FILE[0], 1, Some(40 * MS), Some(93_600)), 40 * MS, &mut out);
    // Its pictures follow 0.1 s after its clock, those of the first file followed after one second.
    let next = item(FILE[0], 80 * MS, 9000);
    let splice = splicer.begin(&next).unwrap();
    let overlap = (93_600 + 3600) * 300 - (80 * MS + 9000 * 300);
    assert_eq!(splice, Splice { room_ticks: overlap, overlap_ticks: 0 });
    splicer.push(&packet(FILE[0], 9, Some(0), Some(9000)), 80 * MS, &mut out);
    let last = *sent(&out, 0x100..0x101).last().unwrap();
    assert_eq!(last, (0x100, 2, Some(80 * MS), Some(93_600 + 3600)));
}

#[test]
fn units_of_another_time_base_and_broken_ones_are_dropped_as_a_whole() {
    let mut splicer = splicer(None);
    splicer.begin(&item(FILE[0], 0, 9000)).unwrap();
    let mut out = Vec::new();
    splicer.push(&packet(FILE[0], 0, Some(0), Some(90_000 * 11)), 0, &mut out);
    splicer.push(&packet(FILE[0], 1, None, None), 0, &mut out);
    let mut broken = packet(FILE[0], 2, None, Some(9000));
    broken[12] = 4;
    splicer.push(&broken, 0, &mut out);
    splicer.push(&packet(FILE[0], 3, None, None), 0, &mut out);
    splicer.push(&packet(FILE[0], 4, None, Some(9000)), 0, &mut out);
    let found = sent(&out, 0x100..0x101);
    assert_eq!(found, [(0x100, 15, Some(0), None), (0x100, 0, None, Some(9000))]);
    let counts = splicer.counts();
    assert_eq!((counts.far_units, counts.broken_units, counts.dropped_packets), (1, 1, 4));
}

#[test]
fn scrambled_streams_and_streams_without_a_clock_are_refused() {
    let mut found = SpliceItem::new(&[programme(FILE[0])], None).unwrap();
    assert_eq!(found.left_out(), [(0x35, 0x86)]);
    let refusal = splicer(None).begin(&found).unwrap_err();
    assert_eq!(refusal, SpliceRefusal::NoClock { pid: FILE[0], packets: 0 });
    let mut scrambled = packet(FILE[0], 0, Some(0), Some(9000));
    scrambled[3] |= 0x80;
    found.look_ahead(&scrambled, 0);
    let refusal = splicer(None).begin(&found).unwrap_err();
    assert_eq!(refusal, SpliceRefusal::Scrambled { pid: FILE[0] });
    let refusal = SpliceItem::new(&[programme(NULL_PID)], None).unwrap_err();
    assert_eq!(refusal, SpliceRefusal::NoClock { pid: NULL_PID, packets: 0 });
    let mut large = programme(FILE[0]);
    large.tracks = (0..17).map(|n| track(0x100 + n, 0x1b, &[])).collect();
    let refusal = SpliceItem::new(&[large], None).unwrap_err();
    assert_eq!(refusal, SpliceRefusal::TooManyStreams { limit: 32 });
    let mut long = item(FILE[0], 0, 9000);
    long.descriptors = vec![0; 1000];
    let refusal = splicer(None).begin(&long).unwrap_err();
    assert!(matches!(refusal, SpliceRefusal::MapTooLong { bytes: 1001..1100, .. }), "{refusal}");
}

#[test]
fn settings_that_cannot_be_used_are_refused() {
    let with = |constant_rate, service_id, bytes| {
        let service_name = "n".repeat(bytes);
        let settings =
            SpliceSettings { constant_rate, service_id, service_name, ..SpliceSettings::default() };
        Splicer::new(&settings).map(drop)
    };
    assert_eq!(with(Some(200_000), 1, 120), Ok(()));
    assert!(matches!(with(Some(199_999), 1, 1), Err(SpliceSettingsFault::Rate { .. })));
    assert_eq!(with(None, 0, 1), Err(SpliceSettingsFault::ServiceId));
    assert!(matches!(with(None, 1, 121), Err(SpliceSettingsFault::TextBytes { bytes: 121, .. })));
}

#[test]
fn channel_without_a_file_keeps_tables_and_clock() {
    for rate in [None, Some(200_000), Some(5_000_000)] {
        let mut splicer = splicer(rate);
        let mut last = [0; 2];
        let mut out = Vec::new();
        for ms in (0..3000).step_by(10) {
            out.clear();
            splicer.fill_to(ms * MS, &mut out);
            for (pid, _, pcr, _) in sent(&out, 0..0x1fff) {
                let at = usize::from(pid == FIRST_PID);
                assert!(pid != FIRST_PID || pcr.is_some());
                if pid == 0 || at == 1 {
                    assert!(ms - last[at] <= [100, 50][at], "{rate:?}: {pid} at {ms} ms");
                    last[at] = ms;
                }
            }
        }
        assert!(last.iter().all(|&last| last > 2850), "{rate:?} {last:?}");
        let nulls = splicer.counts().null_packets;
        assert_eq!(nulls > 0, rate.is_some());
    }
}

#[test]
fn constant_rate_skips_what_it_was_not_called_for() {
    let mut splicer = splicer(Some(1_504_000));
    let mut out = Vec::new();
    splicer.fill_to(0, &mut out);
    assert_eq!((out.len(), splicer.next_slot()), (0, Some(0)));
    splicer.fill_to(3 * MS, &mut out);
    assert_eq!((out.len(), splicer.next_slot()), (3 * 188, Some(3)));
    splicer.fill_to(20_000 * MS, &mut out);
    assert_eq!((out.len(), splicer.next_slot()), (3 * 188, Some(20_000)));
    assert_eq!(splicer.counts().skipped_slots, 19_997);
    splicer.fill_to(19_000 * MS, &mut out);
    assert_eq!(splicer.next_slot(), Some(20_000), "time does not go back");
}

#[test]
fn second_server_continues_the_counters_versions_and_times_of_the_first() {
    let mut first = splicer(None);
    let mut out = Vec::new();
    first.begin(&item(FILE[0], 0, 90_000)).unwrap();
    for n in 0..20 {
        let (pcr, time) = (n * 40 * MS, 90_000 + n * 3600);
        first.push(&packet(FILE[0], n as u8 & 15, Some(pcr), Some(time)), pcr, &mut out);
    }
    let mut second = splicer(None);
    for packet in out.as_chunks().0 {
        second.observe(packet);
    }
    let (counter, start) = (sent(&out, 0x100..0x101).last().unwrap().1, 800 * MS);
    let pats = sent(&out, 0..1).len() as u8;
    let mut next = item(FILE[0], start, 90_000);
    next.streams.pop();
    let splice = second.begin(&next).unwrap();
    assert_eq!(splice, Splice { room_ticks: 0, overlap_ticks: 0 });
    let mut after = Vec::new();
    second.push(&packet(FILE[0], 0, Some(0), Some(90_000)), start, &mut after);
    let media = sent(&after, 0x100..0x101);
    assert_eq!(media, [(0x100, (counter + 1) & 15, Some(start), Some(162_000))]);
    assert_eq!(sent(&after, 0..1)[0].1, pats & 15);
    let version = |out: &[u8], pid| {
        let mut packets = out.as_chunks::<188>().0.iter();
        packets.find(|bytes| TsHeader::read(&bytes[..]).pid() == pid).unwrap()[10] >> 1 & 31
    };
    assert_eq!((version(&after, 0x1000), version(&after, 0)), (1, 0), "the map lost a stream");
}

#[test]
fn slots_of_a_pause_are_left_out() {
    let mut splicer = splicer(Some(1_504_000));
    let mut out = Vec::new();
    splicer.fill_to(TICKS_PER_SECOND, &mut out);
    splicer.fill_to(2 * TICKS_PER_SECOND, &mut out);
    out.clear();
    splicer.skip_to(5 * TICKS_PER_SECOND);
    assert_eq!(splicer.next_slot(), Some(5000));
    splicer.fill_to(5 * TICKS_PER_SECOND + 20 * MS, &mut out);
    assert_eq!(out.len(), 20 * TS_PACKET_BYTES, "a packet a millisecond, none of the pause");
    assert_eq!(splicer.counts().skipped_slots, 3000);
    // Slots in the past are not sent again.
    splicer.skip_to(TICKS_PER_SECOND);
    assert_eq!(splicer.next_slot(), Some(5020));
}
