// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recorder without threads, sockets and files: converts datagrams with their arrival times to the
//! bytes of the file.
//!
//! It serves callers with their own source of datagrams, tests, and fuzzing. A datagram is
//! processed as in a [`Recording`](crate::Recording).
//!
//! Does not exchange RTCP. Does not drop anything for lack of memory: all delivered bytes are kept.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use clock::Clock;
use media::mux::Rotation;

use crate::recorded_stream::{RecordOutput, RecordedStream};
use crate::write_queue::{BlockPool, StreamOutput, WriteCommand};

/// Receiver of the datagrams of one stream.
#[derive(Debug)]
pub struct StreamReplay {
    stream: RecordedStream,
    orders: Receiver<WriteCommand>,
    pool: Arc<BlockPool>,
    written: Vec<u8>,
}

/// Result of a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayResult {
    /// Bytes of the file.
    pub written: Vec<u8>,
    /// Datagrams of the stream.
    pub packets: u64,
    /// Datagrams of other senders, sources or payload types.
    pub unexpected_source: u64,
    /// Datagrams that are neither RTP nor a transport stream.
    pub malformed: u64,
    /// RTP packets whose payload is not a whole number of transport stream packets.
    pub bad_payload_size: u64,
    /// Packets that arrived too late.
    pub late: u64,
    /// RTP packets that are not in the file.
    pub missing: u64,
    /// Transport stream packets counted by the monitor.
    pub ts_packets: u64,
    /// Continuity count errors (ETSI TR 101 290, 1.4).
    pub continuity_errors: u64,
    /// RTP sources in the table.
    pub sources: usize,
    /// Sources that did not fit the table.
    pub sources_forgotten: u64,
}

impl StreamReplay {
    /// Creates a receiver that waits `reorder_wait` for a missing packet.
    pub fn new(reorder_wait: Duration) -> StreamReplay {
        let (orders, inbox) = channel();
        let pool = Arc::new(BlockPool::new(usize::MAX));
        let output = StreamOutput::new(0, pool.clone(), orders, Rotation::default(), Clock::HOST);
        let stream = RecordedStream::new(
            Vec::new(),
            reorder_wait,
            Some(RecordOutput::Packets(Box::new(output))),
        );
        StreamReplay { stream, orders: inbox, pool, written: Vec::new() }
    }

    /// Processes a datagram that arrived from `from` at `now` on any steady clock.
    pub fn take(&mut self, datagram: &[u8], from: SocketAddr, now: Duration) {
        self.stream.take(datagram, from, now);
    }

    /// Advances the time without a datagram.
    pub fn tick(&mut self, now: Duration) {
        self.stream.tick(now);
        self.collect();
    }

    /// Ends the stream and returns the result.
    pub fn finish(mut self) -> ReplayResult {
        self.stream.end();
        self.collect();
        let (counts, seen) = (self.stream.counts(), *self.stream.monitor().counts());
        let refused = self.stream.refused().counts();
        ReplayResult {
            written: self.written,
            packets: counts.packets,
            unexpected_source: refused.unexpected_source(),
            malformed: refused.malformed + refused.size,
            bad_payload_size: counts.bad_payload_size,
            late: self.stream.late(),
            missing: self.stream.missing(),
            ts_packets: seen.packets,
            continuity_errors: seen.continuity_errors,
            sources: self.stream.sources().valid().count(),
            sources_forgotten: self.stream.sources().forgotten(),
        }
    }

    fn collect(&mut self) {
        for order in self.orders.try_iter() {
            if let WriteCommand::Write { stream, block, .. } = order {
                self.written.extend_from_slice(&block);
                self.pool.give(stream, block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "10.0.0.1:5004";
    const B: &str = "10.0.0.2:5004";

    struct Trial(StreamReplay);

    impl Trial {
        fn new() -> Trial {
            Trial(StreamReplay::new(Duration::from_millis(100)))
        }

        fn rtp(&mut self, ssrc: u32, sequence: u16, payload: &[u8], ms: u64) {
            let header =
                wire::rtp::Header { marker: false, payload_type: 33, sequence, timestamp: 0, ssrc };
            let datagram = [&header.write()[..], payload].concat();
            self.send(A, &datagram, ms);
        }

        fn send(&mut self, from: &str, datagram: &[u8], ms: u64) {
            self.0.take(datagram, from.parse().unwrap(), Duration::from_millis(ms));
        }

        /// Ends the stream; returns the second byte of each packet written, which `ts` has set, and
        /// the result.
        fn end(self) -> (String, ReplayResult) {
            let result = self.0.finish();
            let letters = result.written.chunks(188).map(|packet| char::from(packet[1])).collect();
            (letters, result)
        }
    }

    fn ts(letter: u8) -> [u8; 188] {
        let mut packet = [0xff; 188];
        packet[..4].copy_from_slice(&[0x47, letter, 0xff, 0x10]);
        packet
    }

    #[test]
    fn the_first_packets_of_a_source_wait_for_the_second_and_are_put_in_order() {
        let mut trial = Trial::new();
        trial.rtp(1, 8, &ts(b'b'), 0);
        trial.rtp(2, 50, &ts(b'x'), 0);
        trial.rtp(1, 7, &ts(b'a'), 1);
        trial.rtp(1, 9, &ts(b'c'), 2);
        let (letters, result) = trial.end();
        assert_eq!((letters.as_str(), result.packets, result.unexpected_source), ("abc", 3, 1));
    }

    #[test]
    fn another_source_is_followed_from_its_first_packet_on() {
        let mut trial = Trial::new();
        for (number, letter) in (0..).zip(*b"abc") {
            trial.rtp(1, number, &ts(letter), 10 * u64::from(number));
        }
        for (number, letter) in (0..).zip(*b"mnopq") {
            trial.rtp(2, 900 + number, &ts(letter), 30 + 100 * u64::from(number));
        }
        let (letters, result) = trial.end();
        assert_eq!((letters.as_str(), result.unexpected_source), ("abcmnopq", 0));
    }

    #[test]
    fn a_second_source_beside_the_first_is_foreign() {
        let mut trial = Trial::new();
        for (number, letter) in (0..).zip(*b"abcd") {
            trial.rtp(1, number, &ts(letter), 10 * u64::from(number));
            trial.rtp(2, number, &ts(b'x'), 10 * u64::from(number) + 5);
        }
        trial.rtp(1, 4, &ts(b'e'), 50);
        let (letters, result) = trial.end();
        assert_eq!((letters.as_str(), result.packets, result.unexpected_source), ("abcde", 5, 4));
    }

    #[test]
    fn a_restart_loses_nothing_and_a_stray_is_left_out() {
        let mut trial = Trial::new();
        for (number, letter) in [(10, b'a'), (11, b'b'), (40_000, b'x'), (12, b'c')] {
            trial.rtp(1, number, &ts(letter), 0);
        }
        for (number, letter) in [(20_000, b'm'), (20_001, b'n'), (20_002, b'o')] {
            trial.rtp(1, number, &ts(letter), 1);
        }
        let (letters, result) = trial.end();
        assert_eq!((letters.as_str(), result.missing), ("abcmno", 0));
    }

    #[test]
    fn what_waits_behind_a_hole_is_written_when_its_time_is_up() {
        let mut trial = Trial::new();
        for (number, letter) in [(1, b'a'), (2, b'b'), (4, b'd')] {
            trial.rtp(1, number, &ts(letter), 0);
        }
        trial.0.tick(Duration::from_millis(99));
        trial.0.tick(Duration::from_millis(100));
        trial.rtp(1, 3, &ts(b'c'), 101);
        trial.rtp(1, 5, &ts(b'e'), 102);
        let (letters, result) = trial.end();
        assert_eq!((letters.as_str(), result.missing, result.late), ("abde", 1, 1));
    }

    #[test]
    fn bare_streams_have_one_sender_at_a_time() {
        let mut trial = Trial::new();
        trial.send(A, &ts(b'a'), 0);
        trial.send(B, &ts(b'x'), 1);
        trial.rtp(1, 0, &ts(b'x'), 2);
        trial.send(A, &[ts(b'b'), ts(b'c')].concat(), 3);
        trial.send(A, &[0x47; 187], 4);
        trial.send(B, &ts(b'm'), 900);
        let (letters, result) = trial.end();
        assert_eq!((letters.as_str(), result.unexpected_source, result.malformed), ("abcm", 2, 1));
    }
}
