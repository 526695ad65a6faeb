// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzes RTP packets at a receiver: header and statistics of `wire::rtp`.
//!
//! Checked: the payload is within the packet; a written header is read as the same; the statistics
//! of any order of sequence numbers add up.
//!
//! Sources: RFC 3550 §5.1, §6.4, A.1, A.3, A.8.

use std::time::Duration;

use wire::mp2t::{CLOCK_RATE_HZ, PAYLOAD_TYPE};
use wire::rtp::{GAPS_MAX, Header, Reception, SequenceUpdate};

use crate::FuzzTarget;

pub(crate) const TARGET: FuzzTarget = FuzzTarget { name: "rtp", run };

fn run(data: &[u8]) {
    if let Ok((header, payload)) = Header::parse(data) {
        assert!(payload.start <= payload.end && payload.end <= data.len());
        assert_eq!(Header::parse(&header.write()).map(|(header, _)| header), Ok(header));
    }
    let Some((&first, steps)) = data.split_first() else { return };
    receive(Reception::new(CLOCK_RATE_HZ), steps);
    receive(Reception::starting_at(CLOCK_RATE_HZ, u16::from(first) << 8), steps);
}

/// Receives a packet for each two bytes, the distance of its sequence number from the last one.
fn receive(mut reception: Reception, steps: &[u8]) {
    let mut sequence = 0_u16;
    let (mut accepted, mut old) = (0, 0);
    for (index, step) in steps.chunks_exact(2).enumerate() {
        let step = u16::from_le_bytes([step[0], step[1]]);
        sequence = sequence.wrapping_add(step);
        let timestamp = u32::from(step) << 16;
        let header =
            Header { marker: false, payload_type: PAYLOAD_TYPE, sequence, timestamp, ssrc: 1 };
        let arrival = reception.receive(&header, Duration::from_millis(index as u64));
        accepted += u64::from(arrival != SequenceUpdate::Stray);
        old += u64::from(arrival == SequenceUpdate::Old);
        if index % 7 == 0 {
            reception.report(1);
        }
    }
    assert_eq!(reception.received(), accepted);
    assert!(reception.gaps().len() <= GAPS_MAX);
    assert!(reception.lost() <= reception.expected());
    assert!(reception.gaps().iter().all(|gap| gap.packets > 0));
    if reception.restarts() == 0 && reception.gaps_unlisted() == 0 && old == 0 {
        let missing: u64 = reception.gaps().iter().map(|gap| gap.packets).sum();
        assert_eq!(missing, reception.lost(), "{:?}", reception.gaps());
    }
}
