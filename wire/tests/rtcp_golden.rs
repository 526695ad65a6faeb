// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTCP against the figures of RFC 3550 and against hand-laid packets.
//!
//! Golden values: the round-trip example of §6.4.1 (figure 2), the layouts of §6.4 to §6.6. Hostile
//! bytes: random ones and damaged good ones must be refused or read, never more.

use std::time::Duration;

use proptest::prelude::*;
use wire::error::Fault;
use wire::rtcp::{self, ReceiverView, ReceptionReport, RtcpItem, SenderInfo};

fn seen(datagram: &[u8]) -> Vec<RtcpItem> {
    rtcp::parse(datagram).unwrap().collect()
}

// §6.4.1, figure 2: SR sent at 10 Nov 1995 11:33:25.125 UTC, answered 5.25 s after its arrival,
// back at 11:33:36.5: 6.125 s in transit.
#[test]
fn a_cname_is_96_bits_in_base64() {
    assert_eq!(rtcp::cname([0; 12]), "A".repeat(16));
    assert_eq!(rtcp::cname([0xff; 12]), "/".repeat(16));
    // RFC 4648 §10 and §9: "foobar", and 14 fb 9c 03 d9 7e.
    assert_eq!(rtcp::cname(*b"foobar\x14\xfb\x9c\x03\xd9\x7e"), "Zm9vYmFyFPucA9l+");
}

#[test]
fn rfc_3550_figure_2_round_trip() {
    let sent = rtcp::ntp(Duration::from_millis(816_003_205_125));
    assert_eq!(sent, 0xb44d_b705_2000_0000);
    assert_eq!(rtcp::ntp_middle(sent), 0xb705_2000);
    assert_eq!(rtcp::delay_units(Duration::from_millis(5_250)), 0x0005_4000);
    let arrival = rtcp::ntp(Duration::from_millis(816_003_216_500));
    assert_eq!(rtcp::ntp_middle(arrival), 0xb710_8000);
    let report = ReceptionReport {
        last_sender_report: 0xb705_2000,
        delay_since_last_sender_report: 0x0005_4000,
        ..ReceptionReport::default()
    };
    let mut view = ReceiverView::default();
    view.take(&report, arrival);
    assert_eq!(view.round_trip, Some(Duration::from_millis(6_125)));
}

#[test]
fn a_round_trip_needs_a_sender_report_and_sense() {
    let mut view = ReceiverView::default();
    view.take(
        &ReceptionReport { fraction_lost: 9, jitter: 7, ..ReceptionReport::default() },
        1 << 40,
    );
    assert_eq!(view.round_trip, None);
    let future = ReceptionReport { last_sender_report: 0xFFFF_0000, ..ReceptionReport::default() };
    view.take(&future, 0x0000_FFFE_0000_0000);
    assert_eq!((view.round_trip, view.reports), (None, 2));
    assert_eq!((view.fraction_lost_max, view.jitter_max, view.last), (9, 7, future));
}

#[test]
fn rfc_3550_section_6_4_1_sender_report_layout() {
    let sender = SenderInfo {
        ssrc: 0x0102_0304,
        ntp: 0xb44d_b705_2000_0000,
        rtp_timestamp: 0x0A0B_0C0D,
        packets: 1000,
        octets: 1_316_000,
    };
    let bytes = rtcp::sender_report(&sender, "ab");
    let expected = [
        &[0x80, 200, 0, 6, 1, 2, 3, 4, 0xb4, 0x4d, 0xb7, 0x05, 0x20, 0, 0, 0][..],
        &[0x0A, 0x0B, 0x0C, 0x0D, 0, 0, 0x03, 0xE8, 0, 0x14, 0x14, 0xA0],
        &[0x81, 202, 0, 3, 1, 2, 3, 4, 1, 2, b'a', b'b', 0, 0, 0, 0],
    ]
    .concat();
    assert_eq!(bytes, expected);
    assert_eq!(seen(&bytes), [RtcpItem::Sender(sender)]);
}

#[test]
fn rfc_3550_section_6_6_bye_is_last_in_a_compound_packet() {
    let sender = SenderInfo { ssrc: 7, ..SenderInfo::default() };
    let bytes = rtcp::sender_bye(&sender, "pagewire", "end");
    assert_eq!(seen(&bytes), [RtcpItem::Sender(sender), RtcpItem::Bye { ssrc: 7 }]);
    assert!(bytes.ends_with(&[0x81, 203, 0, 2, 0, 0, 0, 7, 3, b'e', b'n', b'd']));
    let bytes = rtcp::receiver_bye(8, "pagewire", "");
    assert_eq!(seen(&bytes), [RtcpItem::Receiver { from: 8 }, RtcpItem::Bye { ssrc: 8 }]);
    // Names and reasons too long are cut, between characters.
    let long = "ü".repeat(200);
    assert_eq!(seen(&rtcp::sender_bye(&sender, &long, &long)).len(), 2);
}

#[test]
fn reports_are_read_back_and_a_negative_loss_stays_negative() {
    let report = |ssrc| ReceptionReport {
        ssrc,
        fraction_lost: 51,
        lost: -3,
        highest_sequence: 0x0001_0002,
        jitter: 90,
        last_sender_report: 0xb705_2000,
        delay_since_last_sender_report: 0x0005_4000,
    };
    let bytes = rtcp::receiver_report(9, &[report(1), report(2)], "client");
    let expected = [1, 2].map(|ssrc| RtcpItem::Report { from: 9, report: report(ssrc) });
    assert_eq!(seen(&bytes), expected);
    // Reports beyond the capacity of the count are dropped, not wrapped.
    let many = vec![report(1); 40];
    assert_eq!(seen(&rtcp::receiver_report(9, &many, "client")).len(), 31);
    let extreme = ReceptionReport { lost: i32::MIN, ..report(1) };
    let bytes = rtcp::receiver_report(9, &[extreme], "client");
    let lowest =
        RtcpItem::Report { from: 9, report: ReceptionReport { lost: -0x80_0000, ..extreme } };
    assert_eq!(seen(&bytes), [lowest]);
}

#[test]
fn unknown_packets_are_stepped_over() {
    let mut bytes = rtcp::receiver_report(9, &[ReceptionReport::default()], "client");
    // GStreamer adds extended reports (207) and feedback (205).
    bytes.extend_from_slice(&[0x80, 207, 0, 1, 0, 0, 0, 9]);
    bytes.extend_from_slice(&[0x8F, 205, 0, 2, 0, 0, 0, 9, 0, 0, 0, 1]);
    bytes.extend_from_slice(&[0x81, 203, 0, 1, 0, 0, 0, 9]);
    let report = RtcpItem::Report { from: 9, report: ReceptionReport::default() };
    assert_eq!(seen(&bytes), [report, RtcpItem::Bye { ssrc: 9 }]);
}

#[test]
fn rfc_3550_a_2_validity() {
    let fault = |bytes: &[u8]| rtcp::parse(bytes).map(|_| ()).unwrap_err();
    assert_eq!(fault(&[]).fault, Fault::RtcpLength);
    assert_eq!(fault(&[0x80, 201, 0]).fault, Fault::RtcpLength);
    assert_eq!(fault(&[0x80, 201, 0, 9, 0, 0, 0, 9]).fault, Fault::RtcpLength);
    assert_eq!(fault(&[0x40, 201, 0, 1, 0, 0, 0, 9]).fault, Fault::RtpVersion { version: 1 });
    let bye = fault(&[0x81, 203, 0, 1, 0, 0, 0, 9]);
    assert_eq!(bye.fault, Fault::RtcpFirst { packet_type: 203 });
    assert_eq!(
        bye.to_string(),
        "byte 0: compound RTCP packet that begins with type 203 (RFC 3550 §6.1)"
    );
    let mut tail = rtcp::receiver_report(9, &[], "client");
    let offset = tail.len() as u64;
    tail.push(0x80);
    assert_eq!((fault(&tail).fault, fault(&tail).offset), (Fault::RtcpLength, offset));
}

#[test]
fn rfc_3550_section_6_3_1_intervals() {
    let bounds = |first| (rtcp::report_interval(first, 0), rtcp::report_interval(first, u32::MAX));
    let ms = |interval: (Duration, Duration)| (interval.0.as_millis(), interval.1.as_millis());
    // 5 s × 0.5 / 1.21828 to 5 s × 1.5 / 1.21828; half of both before the first report.
    assert_eq!(ms(bounds(false)), (2052, 6156));
    assert_eq!(ms(bounds(true)), (1026, 3078));
}

proptest! {
    #[test]
    fn random_datagrams_do_no_harm(datagram in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(found) = rtcp::parse(&datagram) {
            prop_assert!(found.count() <= datagram.len() / 4);
        }
    }

    #[test]
    fn damaged_compounds_do_no_harm(
        damage in prop::collection::vec((0_usize..128, any::<u8>()), 0..6),
        length in 0_usize..128,
    ) {
        let mut bytes = rtcp::receiver_report(9, &[ReceptionReport::default(); 2], "client");
        bytes.extend(rtcp::sender_bye(&SenderInfo::default(), "server", "end"));
        for (at, byte) in damage {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(length);
        if let Ok(found) = rtcp::parse(&bytes) {
            prop_assert!(found.count() <= bytes.len() / 4);
        }
    }
}
