// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzes splicing: `media::Splicer` fed with files of arbitrary packets.
//!
//! A script of a few bytes a step starts files, pushes packets of their streams with arbitrary
//! headers, clocks and times, fills, and lets a second splicer observe the output and continue.
//!
//! Checked: whole packets with sync bytes; continuity counters without a gap, also after the
//! take-over; no discontinuity_indicator; the number of packets in the counts; with a constant
//! rate, as many packets as slots have passed.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.

use media::{SpliceItem, SpliceSettings, Splicer, Survey, TS_PACKET_BYTES};

use crate::FuzzTarget;

pub(crate) const TARGET: FuzzTarget = FuzzTarget { name: "splice", run };

const STEP_BYTES: usize = 8;
const STEPS_MAX: usize = 400;
const TICKS_MS: u64 = 27_000;

type TsBytes = [u8; TS_PACKET_BYTES];

fn run(data: &[u8]) {
    let Some((&choice, script)) = data.split_first() else { return };
    let constant_rate = [None, Some(200_000), Some(3_000_000), Some(199_999)][choice as usize & 3];
    let settings = SpliceSettings { constant_rate, ..SpliceSettings::default() };
    let Ok(mut splicer) = Splicer::new(&settings) else {
        return assert_eq!(constant_rate, Some(199_999));
    };
    let mut counters = [None; 0x2000];
    let (mut now, mut out) = (0, Vec::new());
    splicer.fill_to(0, &mut out);
    for step in script.chunks_exact(STEP_BYTES).take(STEPS_MAX) {
        let (slot, sent) = (splicer.next_slot(), splicer.counts().sent_packets);
        out.clear();
        match step[0] % 8 {
            0 => begin(&mut splicer, step, now),
            1 => {
                now += u64::from(step[1]) * TICKS_MS;
                splicer.fill_to(now, &mut out);
            }
            2 => {
                let mut second = Splicer::new(&settings).expect("they were good before");
                for pid in 0x100..0x130_u16 {
                    if let Some(counter) = counters[usize::from(pid)] {
                        second.observe(&media_packet(pid, 0x10 | counter, &[]));
                    }
                }
                for pid in [0, 0x11, 0x1000_u16] {
                    if let Some(counter) = counters[usize::from(pid)] {
                        second.observe(&media_packet(pid, 0x10 | counter, &step[1..]));
                    }
                }
                splicer = second;
                continue;
            }
            3 => {
                let mut packet = [step[1]; TS_PACKET_BYTES];
                packet[..STEP_BYTES].copy_from_slice(step);
                packet[0] = 0x47;
                splicer.push(&packet, now, &mut out);
            }
            4 if step[1] < 8 => splicer.skip(),
            4 => splicer.run_ahead(u64::from(step[1]) * TICKS_MS),
            _ => {
                now += u64::from(step[7]) * TICKS_MS / 16;
                splicer.push(&unit(step), now, &mut out);
            }
        }
        check(&out, &mut counters);
        let packets = (out.len() / TS_PACKET_BYTES) as u64;
        let counts = *splicer.counts();
        assert_eq!(counts.sent_packets - sent, packets);
        if let (Some(before), Some(after)) = (slot, splicer.next_slot()) {
            assert!(after - before == packets || counts.skipped_slots > 0);
        }
        if let Some(end) = splicer.media_end() {
            assert!(end.abs_diff(now) < 3_600 * 1000 * TICKS_MS, "{end} {now}");
        }
    }
}

/// Starts a file; the step gives its programme map and first packets.
fn begin(splicer: &mut Splicer, step: &[u8], now: u64) {
    let types = [0x1b, 0x02, 0x0f, 0x81, 0x06, 0x86];
    let kind = |byte: u8| types[usize::from(byte) % types.len()];
    let mut map = vec![0xe2, step[1] & 3, 0xf0, 0];
    for (at, &byte) in step[2..5].iter().enumerate() {
        map.extend([kind(byte), 0xe2, at as u8, 0xf0, 6, 9 + (byte >> 7), 4, b'd', b'e', b'u', 0]);
    }
    let mut survey = Survey::default();
    survey.feed(&section(0, 0, &[0, 1, 0xe1, 0]));
    survey.feed(&section(0x100, 2, &map));
    for pid in 0x200..0x203 {
        survey.feed(&media_packet(pid, 0x10, &[0, 0, 1]));
    }
    let mut item = match SpliceItem::new(&survey.finish(), None) {
        Ok(item) => item,
        Err(refusal) => return assert!(!refusal.to_string().is_empty()),
    };
    for at in 0..4 {
        let ahead = [4, at, 0x30 | at, step[5], step[6], step[7], at, 0];
        item.look_ahead(&unit(&ahead), now + u64::from(at));
    }
    let items = splicer.counts().items;
    let begun = splicer.begin(&item).is_ok();
    assert_eq!(splicer.counts().items, items + u64::from(begun));
}

/// A packet with an adaptation field and the start of a PES packet, as the step has them.
fn unit(step: &[u8]) -> TsBytes {
    let pid = 0x200 + u16::from(step[1] & 3);
    let length = if step[1] & 4 == 0 { 7 } else { step[6] };
    let time = [0x21 | step[4] & 14, step[3], step[4] | 1, step[5], step[6] | 1];
    let mut body = vec![length, step[1] & 0xe0 | 0x10, step[3], step[4], step[5], step[6], 0x7e, 0];
    body.extend([0, 0, 1, 0xe0, 0, 0, 0x80, step[1] & 0x40 | 0x80, 5 + (step[1] >> 2 & 5)]);
    body.extend(time);
    body.extend(time);
    let mut packet = media_packet(pid, step[2] & 0x3f | 0x20, &body);
    packet[1] |= (step[2] & 0x10) << 2 | (step[2] >> 7 & step[1] & 1) << 7;
    packet
}

fn media_packet(pid: u16, fourth: u8, body: &[u8]) -> TsBytes {
    let mut packet = [0xff; TS_PACKET_BYTES];
    packet[..4].copy_from_slice(&[0x47, (pid >> 8) as u8, pid as u8, fourth]);
    packet[4..4 + body.len()].copy_from_slice(body);
    packet
}

/// A packet with one section.
fn section(pid: u16, table: u8, body: &[u8]) -> TsBytes {
    let mut bytes = vec![table, 0xb0, (5 + body.len() + 4) as u8, 0, 1, 0xc1, 0, 0];
    bytes.extend(body);
    bytes.extend(crate::ts::crc_32_mpeg(&bytes).to_be_bytes());
    bytes.insert(0, 0);
    let mut packet = media_packet(pid, 0x10, &bytes);
    packet[1] |= 0x40;
    packet
}

/// Checks packets that were sent, and follows the counters.
fn check(out: &[u8], counters: &mut [Option<u8>; 0x2000]) {
    assert!(out.len().is_multiple_of(TS_PACKET_BYTES));
    for packet in out.chunks_exact(TS_PACKET_BYTES) {
        assert_eq!((packet[0], packet[1] & 0x80), (0x47, 0));
        let pid = usize::from(packet[1] & 0x1f) << 8 | usize::from(packet[2]);
        let known = matches!(pid, 0 | 0x11 | 0x1000 | 0x1fff | 0x100..0x130);
        assert!(known && packet[3] & 0xc0 == 0, "PID {pid:#x}");
        if pid == 0x1fff {
            continue;
        }
        let has_payload = packet[3] & 0x10 != 0;
        assert!(packet[3] & 0x20 == 0 || packet[4] == 0 || packet[5] & 0x80 == 0);
        if let Some(before) = counters[pid] {
            assert_eq!(packet[3] & 15, (before + u8::from(has_payload)) & 15, "PID {pid:#x}");
        }
        counters[pid] = Some(packet[3] & 15);
    }
}
