// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests receiver statistics against an oracle: the sets of packets sent and received.
//!
//! Packets are lost, doubled and delayed at random, across the wrap of the sequence number; the
//! results of `Reception`, in O(1) per packet, must equal those of counting afterwards. Hostile
//! headers must be refused or read, never more.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use wire::rtp::{GAPS_MAX, HEADER_BYTES, Header, Reception};

/// Fate of one packet in the network.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Arrives { delay: u32 },
    Doubled { delay: u32, again: u32 },
    Lost,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        20 => Just(Fate::Arrives { delay: 0 }),
        3 => (0_u32..500).prop_map(|delay| Fate::Arrives { delay }),
        1 => (0_u32..500, 0_u32..500).prop_map(|(delay, again)| Fate::Doubled { delay, again }),
        1 => Just(Fate::Lost),
    ]
}

proptest! {
    #[test]
    fn statistics_equal_those_of_counting(
        first in any::<u16>(),
        fates in prop::collection::vec(fate(), 0..2000),
    ) {
        let mut arrivals: Vec<(u32, u32)> = Vec::new();
        for (number, fate) in (0_u32..).zip(&fates) {
            match *fate {
                Fate::Arrives { delay } => arrivals.push((number + delay, number)),
                Fate::Doubled { delay, again } => {
                    arrivals.extend([(number + delay, number), (number + again, number)]);
                }
                Fate::Lost => {}
            }
        }
        arrivals.sort_unstable();

        let mut reception = Reception::starting_at(90_000, first);
        let (mut seen, mut duplicates, mut reordered) = (BTreeSet::new(), 0, 0);
        for &(_, number) in &arrivals {
            let header = Header {
                marker: false,
                payload_type: 33,
                sequence: first.wrapping_add(number as u16),
                timestamp: 0,
                ssrc: 1,
            };
            reception.receive(&header, Duration::ZERO);
            reordered += u64::from(seen.last() > Some(&number) && !seen.contains(&number));
            duplicates += u64::from(!seen.insert(number));
        }
        let expected = seen.last().map_or(0, |&highest| u64::from(highest) + 1);
        let lost = expected - seen.len() as u64;
        prop_assert_eq!(reception.expected(), expected);
        prop_assert_eq!(reception.received(), arrivals.len() as u64);
        prop_assert_eq!(reception.lost(), lost);
        prop_assert_eq!(reception.duplicates(), duplicates);
        prop_assert_eq!(reception.reordered(), reordered);
        prop_assert!(reception.gaps().len() <= GAPS_MAX);
        if reception.gaps_unlisted() == 0 {
            let listed: u64 = reception.gaps().iter().map(|gap| gap.packets).sum();
            prop_assert_eq!(listed, lost);
        }
        prop_assert_eq!((reception.restarts(), reception.strays()), (0, 0));
    }

    #[test]
    fn any_sequence_of_any_headers_does_no_harm(
        known in any::<Option<u16>>(),
        packets in prop::collection::vec((any::<u16>(), any::<u32>(), any::<u64>()), 0..300),
        rate in any::<u32>(),
    ) {
        let mut reception = match known {
            Some(first) => Reception::starting_at(rate, first),
            None => Reception::new(rate),
        };
        for (sequence, timestamp, nanoseconds) in packets {
            let header =
                Header { marker: true, payload_type: 0, sequence, timestamp, ssrc: 0 };
            reception.receive(&header, Duration::from_nanos(nanoseconds));
            let report = reception.report(1);
            prop_assert!(report.lost.abs() < 1 << 23);
            prop_assert!(reception.jitter_time() <= Duration::from_secs(1 << 32));
        }
    }

    #[test]
    fn any_packet_is_read_or_refused(packet in prop::collection::vec(any::<u8>(), 0..100)) {
        if let Ok((header, payload)) = Header::parse(&packet) {
            prop_assert!(payload.start >= HEADER_BYTES && payload.end <= packet.len());
            prop_assert!(payload.start <= payload.end);
            prop_assert_eq!(&header.write()[1..], &packet[1..HEADER_BYTES]);
        }
    }
}
