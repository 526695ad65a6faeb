// SPDX-License-Identifier: MIT OR Apache-2.0
//! Smoothness of a received stream: gaps, bursts, and the media delivery index.
//!
//! The *delay factor* of an interval is the buffer, in milliseconds of the stream, that a receiver
//! needs to play at the stream's rate without running dry or over: a virtual buffer is filled by
//! each packet and drained at the media rate, and the factor is the distance from its lowest level,
//! just before a packet, to its highest, just after one. An even stream has the time of one packet;
//! a stream in bursts has the time of a burst.
//!
//! Sources: RFC 4445 §3.1 (delay factor, intervals of one second), §3.2 (media loss rate: packets
//! lost or out of order).
//! Does not model the network; arrival times are the kernel's.

use std::time::Duration;

/// A received packet of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// Time of arrival, by any clock.
    pub(super) at: Duration,
    /// Bytes of media, without headers.
    pub(super) bytes: u32,
}

/// The largest burst of a stream: the packets that arrive within [`BURST_WINDOW`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Burst {
    pub(super) packets: usize,
    pub(super) bytes: u64,
}

impl Burst {
    /// Returns the most packets, and the most bytes, in any window of [`BURST_WINDOW`] that begins
    /// with a packet.
    pub(super) fn longest(arrivals: &[Arrival]) -> Burst {
        let (mut longest, mut bytes, mut end) = (Burst::default(), 0_u64, 0);
        for (first, arrival) in arrivals.iter().enumerate() {
            while arrivals.get(end).is_some_and(|next| next.at < arrival.at + BURST_WINDOW) {
                bytes += u64::from(arrivals[end].bytes);
                end += 1;
            }
            longest.packets = longest.packets.max(end - first);
            longest.bytes = longest.bytes.max(bytes);
            bytes -= u64::from(arrival.bytes);
        }
        longest
    }

    /// Returns the larger of two, each quantity by itself.
    pub(super) fn max(self, other: Burst) -> Burst {
        Burst { packets: self.packets.max(other.packets), bytes: self.bytes.max(other.bytes) }
    }
}

/// Returns the number of packets of each burst: neighbours less than [`BURST_WINDOW`] apart.
pub(super) fn bursts(arrivals: &[Arrival]) -> impl Iterator<Item = usize> {
    let is_near = |a: &Arrival, b: &Arrival| b.at < a.at + BURST_WINDOW;
    arrivals.chunk_by(is_near).map(<[Arrival]>::len)
}

/// Returns the times between neighbouring packets, in order of arrival.
pub(super) fn gaps(arrivals: &[Arrival]) -> impl Iterator<Item = Duration> {
    arrivals.windows(2).map(|pair| pair[1].at.saturating_sub(pair[0].at))
}

/// Returns the delay factor of each whole interval from `begin` on, of a stream of
/// `bits_per_second`. The factor of an interval without a packet is the length of the interval: a
/// receiver would need at least as much.
pub(super) fn delay_factors(
    arrivals: &[Arrival],
    bits_per_second: f64,
    (begin, intervals): (Duration, usize),
) -> Vec<Duration> {
    let bytes_per_second = bits_per_second / 8.0;
    let of_interval = |number: usize| {
        let start = begin + INTERVAL * number as u32;
        let first = arrivals.partition_point(|arrival| arrival.at < start);
        let end = arrivals.partition_point(|arrival| arrival.at < start + INTERVAL);
        if first == end {
            return INTERVAL;
        }
        let (mut filled, mut lowest, mut highest) = (0.0, f64::INFINITY, f64::NEG_INFINITY);
        for arrival in &arrivals[first..end] {
            let before = filled - bytes_per_second * (arrival.at - start).as_secs_f64();
            filled += f64::from(arrival.bytes);
            lowest = before.min(lowest);
            highest = (before + f64::from(arrival.bytes)).max(highest);
        }
        Duration::from_secs_f64((highest - lowest) / bytes_per_second)
    };
    (0..intervals).map(of_interval).collect()
}

/// Returns the value that a `share` of the sorted ones do not exceed.
///
/// # Panics
/// Without a value.
pub(super) fn quantile<T: Copy>(sorted: &[T], share: f64) -> T {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

/// A millisecond: a burst within it is one to a switch of 100 Mb/s with 8 packets of buffer a port.
pub(super) const BURST_WINDOW: Duration = Duration::from_millis(1);
/// RFC 4445 §3.1: one second, unless specified otherwise.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet of 1,250 bytes lasts 2 ms at this rate.
    const RATE: f64 = 5e6;
    const BYTES: u32 = 1250;
    const PACKET: Duration = Duration::from_millis(2);

    /// Returns `bursts` bursts of `packets` packets, 1 µs apart, in the place of an even stream.
    fn stream(packets: u32, bursts: u32) -> Vec<Arrival> {
        let each = (0..bursts).flat_map(|burst| (0..packets).map(move |packet| (burst, packet)));
        let at = |(burst, packet): (u32, u32)| {
            PACKET * packets * burst + Duration::from_micros(1) * packet
        };
        each.map(|each| Arrival { at: at(each), bytes: BYTES }).collect()
    }

    fn factors_ms(arrivals: &[Arrival], intervals: usize) -> Vec<f64> {
        let factors = delay_factors(arrivals, RATE, (Duration::ZERO, intervals));
        factors.iter().map(|factor| factor.as_secs_f64() * 1e3).collect()
    }

    fn assert_near(found: &[f64], expected: &[f64]) {
        let near = |(found, expected): (&f64, &f64)| (found - expected).abs() < 0.02;
        assert!(found.len() == expected.len(), "{found:?}");
        assert!(found.iter().zip(expected).all(near), "{found:?}, expected {expected:?}");
    }

    #[test]
    fn an_even_stream_has_the_delay_factor_of_a_packet() {
        assert_near(&factors_ms(&stream(1, 1000), 2), &[2.0, 2.0]);
    }

    #[test]
    fn a_stream_in_bursts_has_the_delay_factor_of_a_burst() {
        assert_near(&factors_ms(&stream(10, 100), 2), &[20.0, 20.0]);
        assert_near(&factors_ms(&stream(20, 25), 1), &[40.0]);
    }

    #[test]
    fn a_stop_and_the_packets_after_it_count_once_each() {
        // 100 ms of the first second are missing and follow at once at its end.
        let mut arrivals = stream(1, 1000);
        for arrival in &mut arrivals[200..250] {
            arrival.at = PACKET * 250;
        }
        // The buffer falls by 100 ms, and is refilled to its level after a packet.
        assert_near(&factors_ms(&arrivals, 2), &[102.0, 2.0]);
        // Lost packets lower its level permanently.
        arrivals.drain(200..250);
        assert_near(&factors_ms(&arrivals, 2), &[102.0, 2.0]);
    }

    #[test]
    fn a_stream_that_is_too_fast_or_slow_drifts_away() {
        let faster: Vec<Arrival> = stream(1, 1000)
            .into_iter()
            .map(|arrival| Arrival { at: arrival.at.mul_f64(0.9), ..arrival })
            .collect();
        // 555.6 packets in a second of 500: 55.6 packets of 2 ms too many, and a packet.
        let found = factors_ms(&faster, 1)[0];
        assert!((found - 112.0).abs() < 1.5, "{found}");
    }

    #[test]
    fn an_interval_without_a_packet_has_its_own_length() {
        assert_near(&factors_ms(&stream(1, 500), 3), &[2.0, 1000.0, 1000.0]);
    }

    #[test]
    fn the_longest_burst_is_what_arrives_within_a_millisecond() {
        let longest = |arrivals: &[Arrival]| Burst::longest(arrivals);
        assert_eq!(longest(&[]), Burst::default());
        assert_eq!(longest(&stream(1, 9)), Burst { packets: 1, bytes: 1250 });
        assert_eq!(longest(&stream(7, 9)), Burst { packets: 7, bytes: 7 * 1250 });
        let at = |us| Arrival { at: Duration::from_micros(us), bytes: 100 };
        let uneven = [at(0), at(900), at(1000), at(1899), at(1900), at(5000)];
        assert_eq!(longest(&uneven), Burst { packets: 3, bytes: 300 });
        let large = Arrival { bytes: 1000, ..at(9000) };
        let both = [&uneven[..], &[large]].concat();
        assert_eq!(longest(&both), Burst { packets: 3, bytes: 1000 });
        let larger = Burst { packets: 2, bytes: 2000 };
        assert_eq!(larger.max(longest(&uneven)), Burst { packets: 3, bytes: 2000 });
    }

    #[test]
    fn bursts_are_packets_less_than_a_millisecond_apart() {
        assert_eq!(bursts(&[]).count(), 0);
        assert_eq!(bursts(&stream(1, 3)).collect::<Vec<_>>(), [1, 1, 1]);
        let mixed = [&stream(4, 2)[..], &[Arrival { at: PACKET * 9, bytes: 1 }]].concat();
        assert_eq!(bursts(&mixed).collect::<Vec<_>>(), [4, 4, 1]);
        let at = |us| Arrival { at: Duration::from_micros(us), bytes: 1 };
        let steady = [at(0), at(999), at(1998), at(2998)];
        assert_eq!(bursts(&steady).collect::<Vec<_>>(), [3, 1], "a millisecond parts them");
    }

    #[test]
    fn gaps_are_between_neighbours_and_quantiles_of_them() {
        let arrivals = stream(2, 3);
        let mut found: Vec<Duration> = gaps(&arrivals).collect();
        let (short, long) = (Duration::from_micros(1), Duration::from_micros(3999));
        assert_eq!(found, [short, long, short, long, short]);
        found.sort_unstable();
        assert_eq!([0.0, 0.5, 1.0].map(|share| quantile(&found, share)), [short, short, long]);
    }
}
