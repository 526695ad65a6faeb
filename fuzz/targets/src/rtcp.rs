// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzes RTCP datagrams (`wire::rtcp`), reading and writing.
//!
//! Checked: an item that was read can be written and is then read as the same; names and reasons of
//! any length and alphabet give a packet of whole words.
//!
//! Sources: RFC 3550 §6.

use wire::rtcp::{self, ReceiverView, ReceptionReport, RtcpItem};

use crate::FuzzTarget;

pub(crate) const TARGET: FuzzTarget = FuzzTarget { name: "rtcp", run };

/// Range of a signed number of 24 bits.
const LOST: std::ops::RangeInclusive<i32> = -0x80_0000..=0x7F_FFFF;

fn run(data: &[u8]) {
    let Ok(seen) = rtcp::parse(data) else { return };
    let mut view = ReceiverView::default();
    let name = String::from_utf8_lossy(data);
    for seen in seen {
        match seen {
            RtcpItem::Report { from, report } => {
                assert!(LOST.contains(&report.lost), "{report:?}");
                view.take(&report, u64::from(from) << 20);
                let written = rtcp::receiver_report(from, &[report], &name);
                assert_eq!(read(&written), [RtcpItem::Report { from, report }]);
            }
            RtcpItem::Receiver { from } => {
                assert_eq!(read(&rtcp::receiver_report(from, &[], &name)), [seen]);
                let left = [seen, RtcpItem::Bye { ssrc: from }];
                assert_eq!(read(&rtcp::receiver_bye(from, &name, &name)), left);
            }
            RtcpItem::Sender(sender) => {
                assert_eq!(read(&rtcp::sender_report(&sender, &name)), [seen]);
                let left = [seen, RtcpItem::Bye { ssrc: sender.ssrc }];
                assert_eq!(read(&rtcp::sender_bye(&sender, &name, &name)), left);
            }
            _ => {}
        }
    }
    // Writes more reports than fit a packet, with figures out of their range.
    let report = ReceptionReport { lost: i32::MIN, ..view.last };
    assert!(!read(&rtcp::receiver_report(1, &[report; 40], &name)).is_empty());
}

/// Reads a datagram that `wire::rtcp` wrote.
fn read(datagram: &[u8]) -> Vec<RtcpItem> {
    assert_eq!(datagram.len() % 4, 0, "whole words");
    rtcp::parse(datagram).expect("our own packet").collect()
}
