// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzes stored packet plans (`media::PacketPlan::decode`) with forged bytes, and checks the
//! properties of every plan.
//!
//! A plan in the cache folder is not trusted, so a decoded plan must have all invariants of a
//! scanned one. The input is placed between a valid beginning and a valid CRC, which the fuzzer
//! would never guess. The beginning is copied from a real plan, so that this target depends on the
//! CRC only of all the format.
//!
//! Checked: [`check`], which the target `ts` uses, too.

use std::sync::OnceLock;

use media::{
    PacketPlan, PlanKey, PlayScale, RtpIdentity, TS_PACKET_BYTES, TS_PACKETS_PER_PAYLOAD, TrickPlan,
};

use crate::FuzzTarget;

pub(crate) const TARGET: FuzzTarget = FuzzTarget { name: "plan", run };

/// Sizes of the planned file.
const FILE_SIZES: [u64; 6] = [376, 1880, 188_000, 1 << 40, i64::MAX as u64, u64::MAX];

/// Packets checked around each place of interest; at most `PLACES_MAX` places of a kind.
const NEAR_PACKETS: u64 = 10;
const PLACES_MAX: usize = 20;

const CRC_BYTES: usize = 4;

fn run(data: &[u8]) {
    let Some((&choice, body)) = data.split_first() else { return };
    let key = key(FILE_SIZES[usize::from(choice) % FILE_SIZES.len()]);
    assert!(PacketPlan::decode(body, &key).is_err(), "believed without a CRC");

    static BEGINNINGS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let beginnings = BEGINNINGS.get_or_init(|| FILE_SIZES.map(beginning).to_vec());
    let mut stored = beginnings[usize::from(choice) % FILE_SIZES.len()].clone();
    stored.extend_from_slice(body);
    stored.extend(crc32fast::hash(&stored).to_le_bytes());
    if let Ok(plan) = PacketPlan::decode(&stored, &key) {
        assert_eq!(plan.file_bytes(), key.bytes);
        check(&plan);
        // The file itself is not there.
        let _ = TrickPlan::of_stream(&plan, PlayScale::nearest(-2.0));
    }
}

fn key(bytes: u64) -> PlanKey {
    PlanKey { path: b"its/path.ts".to_vec(), bytes, modified_ns: 1_800_000_000, inode: 7 }
}

/// Returns the first bytes of a plan up to those that depend on it: the bytes that two plans of
/// opposite identity share.
fn beginning(file_bytes: u64) -> Vec<u8> {
    let encode = |identity| crate::ts::smallest_plan(identity).encode(&key(file_bytes));
    let zeros = RtpIdentity { ssrc: 0, first_sequence: 0, first_timestamp: 0 };
    let ones = RtpIdentity { ssrc: u32::MAX, first_sequence: u16::MAX, first_timestamp: u32::MAX };
    let (zeros, ones) = (encode(zeros), encode(ones));
    let (before, crc) = zeros.split_at(zeros.len() - CRC_BYTES);
    assert_eq!(crc, crc32fast::hash(before).to_le_bytes(), "the format's CRC is another one now");
    let shared = zeros.iter().zip(&ones).take_while(|(zero, one)| zero == one).count();
    zeros[..shared].to_vec()
}

/// Checks the properties of every plan, scanned or decoded.
pub(crate) fn check(plan: &PacketPlan) {
    let packets = plan.packets();
    assert!(packets > 0 && plan.duration_ticks() > 0 && plan.bits_per_second() > 0);
    assert_eq!(plan.ticks(0), 0);
    assert_eq!(plan.wire_offset(0), 0);
    assert_eq!(plan.packets_before(u64::MAX), packets);
    for start in places(plan) {
        check_neighbours(plan, start..packets.min(start + NEAR_PACKETS));
    }
    let key = key(plan.file_bytes());
    assert_eq!(PacketPlan::decode(&plan.encode(&key), &key).as_ref(), Ok(plan));
    assert!(PacketPlan::decode(&plan.encode(&key), &PlanKey { inode: 8, ..key }).is_err());
}

/// Returns packets just before each change: the ends, extents, clock points and entries.
fn places(plan: &PacketPlan) -> Vec<u64> {
    let ticks = plan.clock().iter().map(|point| plan.packets_before(point.ticks));
    let extents = plan.extents().iter().map(|extent| extent.first_packet);
    let entries = plan.entries().iter().map(|entry| entry.ts_packet / TS_PACKETS_PER_PAYLOAD);
    let sides = [0, plan.packets()].into_iter();
    let before = |place: u64| place.min(plan.packets()).saturating_sub(NEAR_PACKETS / 2);
    sides
        .chain(ticks.take(PLACES_MAX))
        .chain(extents.take(PLACES_MAX))
        .chain(entries.take(PLACES_MAX))
        .map(before)
        .collect()
}

/// Checks a few packets in a row, and the steps from each to the next.
fn check_neighbours(plan: &PacketPlan, range: std::ops::Range<u64>) {
    let timestamps: Vec<u32> = plan.timestamps(range.clone()).collect();
    assert_eq!(timestamps.len() as u64, range.end - range.start);
    let mut payload_bytes = 0;
    for (packet, &timestamp) in range.clone().zip(&timestamps) {
        let (due, payload) = (plan.ticks(packet), plan.payload(packet));
        assert!(due <= plan.ticks(packet + 1), "packet {packet}: time goes backwards");
        check_time(plan, due);
        assert_eq!(timestamp, plan.timestamp(due), "packet {packet}");

        assert!((1..=TS_PACKETS_PER_PAYLOAD).contains(&payload.ts_packets), "{payload:?}");
        let bytes = payload.ts_packets * TS_PACKET_BYTES as u64;
        let end =
            payload.file_offset + (payload.ts_packets - 1) * plan.stride() + TS_PACKET_BYTES as u64;
        assert!(end <= plan.file_bytes(), "{payload:?} past the end of the file");
        let wire_bytes = plan.wire_offset(packet + 1) - plan.wire_offset(packet);
        assert_eq!(wire_bytes, 12 + bytes, "packet {packet}");
        payload_bytes += bytes;

        let header = plan.header(packet);
        let sequence = plan.identity().first_sequence.wrapping_add(packet as u16);
        assert_eq!(header[2..4], sequence.to_be_bytes());
        assert_eq!(header[4..8], timestamp.to_be_bytes());
        check_run(plan, packet);
    }
    assert_eq!(plan.payload_bytes(range), payload_bytes);
}

/// Checks that `packets_before` and `entry` agree with `ticks`, at a packet's time and beside it.
fn check_time(plan: &PacketPlan, due: u64) {
    for ticks in [due.saturating_sub(1), due, due + 1] {
        let before = plan.packets_before(ticks);
        assert!(before == 0 || plan.ticks(before - 1) < ticks, "{before} packets before {ticks}");
        let is_all = before == plan.packets();
        assert!(is_all || plan.ticks(before) >= ticks, "{before} packets before {ticks}");
        let entry = plan.entry(ticks);
        let presented = plan.presented_ticks(entry);
        assert!(entry < plan.packets() && presented <= ticks, "entry {entry} at {ticks}");
        assert!(plan.packets_presented_before(ticks) <= plan.packets());
    }
}

/// Checks that the packets of one `segment_run`, which one call sends, are neighbours in the file
/// and full except the last.
fn check_run(plan: &PacketPlan, packet: u64) {
    let run = plan.segment_run(packet, NEAR_PACKETS);
    assert!((1..=NEAR_PACKETS).contains(&run) && packet + run <= plan.packets());
    for inner in packet..packet + run - 1 {
        let (payload, next) = (plan.payload(inner), plan.payload(inner + 1));
        assert_eq!(payload.ts_packets, TS_PACKETS_PER_PAYLOAD, "packet {inner} in a run");
        let expected = payload.file_offset + TS_PACKETS_PER_PAYLOAD * plan.stride();
        assert_eq!(next.file_offset, expected, "packet {inner} in a run");
    }
}
