// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests the layout of the RTP header, and the statistics of RFC 3550 with hand-calculated values.

use super::*;

fn packet(sequence: u16, timestamp: u32) -> Header {
    Header { marker: false, payload_type: 33, sequence, timestamp, ssrc: 1 }
}

fn receive(reception: &mut Reception, numbers: &[u16]) -> Vec<SequenceUpdate> {
    let take = |&number: &u16| reception.receive(&packet(number, 0), Duration::ZERO);
    numbers.iter().map(take).collect()
}

#[test]
fn rfc_3550_section_5_1_layout() {
    let header = Header {
        marker: true,
        payload_type: 33,
        sequence: 0x1234,
        timestamp: 0x5678_9ABC,
        ssrc: 0xDEF0_1234,
    };
    let bytes = header.write();
    assert_eq!(bytes, [0x80, 0xA1, 0x12, 0x34, 0x56, 0x78, 0x9A, 0xBC, 0xDE, 0xF0, 0x12, 0x34]);
    assert_eq!(Header::parse(&bytes), Ok((header, 12..12)));
    assert_eq!(Header::parse_plain(&bytes), Some(header));
}

#[test]
fn plain_headers_have_nothing_behind_the_fixed_part() {
    let header = packet(1, 2);
    let plain = header.write();
    for bit in [PADDING_BIT, EXTENSION_BIT, 1, SOURCES_MASK] {
        let mut bytes = plain;
        bytes[0] |= bit;
        assert_eq!(Header::parse_fixed(&bytes), Some(header), "{bit:#x}");
        assert_eq!(Header::parse_plain(&bytes), None, "{bit:#x}");
    }
    for version in [0, 1, 3] {
        let mut bytes = plain;
        bytes[0] = version << 6;
        assert_eq!(Header::parse_fixed(&bytes), None, "{version}");
        assert_eq!(Header::parse_plain(&bytes), None, "{version}");
    }
}

#[test]
fn a_field_is_set_in_place_and_the_others_stay() {
    let mut header = Header {
        marker: false,
        payload_type: 0x7F,
        sequence: 0x1234,
        timestamp: 0x5678_9ABC,
        ssrc: 0xDEF0_1234,
    };
    let mut bytes = header.write();
    bytes[0] |= EXTENSION_BIT;
    let check = |bytes: &[u8; HEADER_BYTES], header: Header| {
        assert_eq!(Header::parse_fixed(bytes), Some(header));
        assert_eq!(bytes[0], PLAIN_FIRST_BYTE | EXTENSION_BIT);
    };
    header.marker = true;
    set_marker(&mut bytes, true);
    check(&bytes, header);
    header.sequence = 0xFFFE;
    set_sequence(&mut bytes, 0xFFFE);
    check(&bytes, header);
    header.timestamp = 7;
    set_timestamp(&mut bytes, 7);
    check(&bytes, header);
    header.ssrc = 0x8000_0001;
    set_ssrc(&mut bytes, 0x8000_0001);
    check(&bytes, header);
    header.marker = false;
    set_marker(&mut bytes, false);
    check(&bytes, header);
}

#[test]
fn sources_extension_and_padding_are_stepped_over() {
    let header = packet(1, 2);
    let mut bytes = header.write().to_vec();
    bytes[0] |= 0x20 | 0x10 | 2;
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&[0xBE, 0xDE, 0, 1, 9, 9, 9, 9]);
    bytes.extend_from_slice(b"payload\0\0\x03");
    assert_eq!(Header::parse(&bytes), Ok((header, 28..35)));
    for length in 0..28 {
        assert_eq!(Header::parse(&bytes[..length]).unwrap_err().fault, Fault::RtpTooShort);
    }
    let version = Header::parse(&[0x40; 12]).unwrap_err().fault;
    assert_eq!(version, Fault::RtpVersion { version: 1 });
    let mut padding = packet(1, 2).write();
    padding[0] |= 0x20;
    padding[11] = 200;
    assert_eq!(Header::parse(&padding).unwrap_err().fault, Fault::RtpTooShort);
}

#[test]
fn loss_reordering_and_duplicates_are_told_apart_across_the_wrap() {
    let mut reception = Reception::new(90_000);
    let arrivals = receive(&mut reception, &[65533, 65534, 2, 65535, 0, 0, 3, 65534]);
    let expected = [
        SequenceUpdate::InOrder,
        SequenceUpdate::InOrder,
        SequenceUpdate::AfterGap { packets: 3 },
        SequenceUpdate::Reordered,
        SequenceUpdate::Reordered,
        SequenceUpdate::Duplicate,
        SequenceUpdate::InOrder,
        SequenceUpdate::Duplicate,
    ];
    assert_eq!(arrivals, expected);
    assert_eq!((reception.expected(), reception.received(), reception.lost()), (7, 8, 1));
    assert_eq!((reception.duplicates(), reception.reordered()), (2, 2));
    assert_eq!(reception.highest_sequence(), 65536 + 3);
    let one = Gap { first: 2 * CYCLE + 1, packets: 1 };
    assert_eq!(reception.gaps(), [one]);
}

#[test]
fn packets_lost_at_the_start_count_when_the_start_is_known() {
    let mut reception = Reception::starting_at(90_000, 0);
    assert_eq!(reception.expected(), 0);
    let arrivals = receive(&mut reception, &[2, 65535]);
    assert_eq!(arrivals, [SequenceUpdate::AfterGap { packets: 2 }, SequenceUpdate::Old]);
    let mut reception = Reception::starting_at(90_000, 10);
    assert_eq!(receive(&mut reception, &[10]), [SequenceUpdate::InOrder]);
    assert_eq!((reception.expected(), reception.lost()), (1, 0));
}

#[test]
fn a_restart_takes_two_packets_and_keeps_the_counts() {
    let mut reception = Reception::new(90_000);
    receive(&mut reception, &[100, 101]);
    let arrivals = receive(&mut reception, &[30_000, 102, 40_000, 40_001, 40_002]);
    let expected = [
        SequenceUpdate::Stray,
        SequenceUpdate::InOrder,
        SequenceUpdate::Stray,
        SequenceUpdate::Restarted,
        SequenceUpdate::InOrder,
    ];
    assert_eq!(arrivals, expected);
    assert_eq!((reception.expected(), reception.lost()), (5, 0));
    assert_eq!((reception.restarts(), reception.strays()), (1, 2));
    // Before the first packet that was due, too.
    let mut reception = Reception::starting_at(90_000, 28_243);
    assert_eq!(
        receive(&mut reception, &[10, 11]),
        [SequenceUpdate::Stray, SequenceUpdate::Restarted]
    );
    assert_eq!((reception.expected(), reception.lost()), (1, 0));
}

#[test]
fn gaps_are_split_and_their_list_is_bounded() {
    let mut reception = Reception::new(90_000);
    receive(&mut reception, &[0, 10, 5]);
    let gap = |first, packets| Gap { first: CYCLE + first, packets };
    assert_eq!(reception.gaps(), [gap(1, 4), gap(6, 4)]);
    receive(&mut reception, &[1, 2, 3, 4, 9]);
    assert_eq!(reception.gaps(), [gap(6, 3)]);
    let odd: Vec<u16> = (0..1000).map(|n| 11 + 2 * n).collect();
    receive(&mut reception, &odd);
    assert_eq!(reception.gaps().len(), GAPS_MAX);
    assert_eq!(reception.gaps_unlisted() + GAPS_MAX as u64, 1000);
    assert_eq!(reception.lost(), 3 + 999);
}

// A.8 by hand: 90 kHz, packets due every 900 units, the second 90 late, the third on time
// again.
#[test]
fn rfc_3550_a_8_jitter() {
    let mut reception = Reception::new(90_000);
    for (number, arrival_us) in [(0, 0), (1, 11_000), (2, 20_000)] {
        let arrival = Duration::from_micros(arrival_us);
        reception.receive(&packet(number, u32::from(number) * 900), arrival);
    }
    // |D| = 90, 90: J = 90/16 = 5.625, then 5.625 + (90 - 5.625)/16 = 10.9.
    assert_eq!(reception.jitter(), 10);
    assert_eq!(reception.jitter_time(), Duration::from_secs(10) / 90_000);
}

#[test]
fn rfc_3550_a_3_fraction_is_that_of_the_interval() {
    let mut reception = Reception::new(90_000);
    receive(&mut reception, &[0, 1, 2, 4]);
    let report = reception.report(7);
    assert_eq!((report.fraction_lost, report.lost), (51, 1)); // 256 / 5
    receive(&mut reception, &[5, 6]);
    let report = reception.report(7);
    assert_eq!((report.fraction_lost, report.lost), (0, 1));
    receive(&mut reception, &[6, 6]);
    let report = reception.report(7);
    assert_eq!((report.fraction_lost, report.lost), (0, -1)); // §6.4.1: may be negative
    assert_eq!(report.highest_sequence, 6);
}
