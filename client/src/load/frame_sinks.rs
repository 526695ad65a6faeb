// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles packets of a load's sessions whose RTP shares the RTSP connection.
//!
//! TCP has no filter that counts and drops in the kernel, so a counted session reads its bytes into
//! the buffer that all tasks of a thread share, and parses only the frame headers. It reads every
//! 20 ms, so that a read returns many packets and a session costs 50 wake-ups a second at any rate.
//! A verified session is read as soon as bytes arrive.
//!
//! Sources: RFC 2326 §10.12.
//! Does not use kernel timestamps of packets: a verified session's lateness includes this program's
//! delay.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::sampled_stats::{SampledStats, Window};
use crate::frame_reader::PacketSink;
use crate::rtp_receiver::{ArrivalClock, SocketDatagram};
use crate::stream_stats::lock;

/// Counts packets.
pub(super) struct CountingSink {
    pub(super) packets: Arc<AtomicU32>,
    /// Packets of the current read.
    pub(super) new: u32,
}

impl PacketSink for CountingSink {
    fn take(&mut self, _: &[u8], _: Instant) {
        self.new += 1;
    }

    fn flush(&mut self) -> bool {
        // Modulo 2^32, like the count of a sender.
        self.packets.fetch_add(std::mem::take(&mut self.new), Ordering::Relaxed);
        true
    }
}

/// Statistics of a verified session, once PLAY is answered.
pub(super) type SampledCell = Arc<OnceLock<Arc<Mutex<SampledStats>>>>;

/// Passes packets to the statistics; holds the packets of one read until the statistics exist.
pub(super) struct SampledSink {
    pub(super) stats: SampledCell,
    pub(super) window: Arc<Window>,
    pub(super) clock: ArrivalClock,
    pub(super) from: SocketAddr,
    pub(super) held: Vec<(Vec<u8>, Instant)>,
}

impl SampledSink {
    fn count(&self, stats: &mut SampledStats, bytes: &[u8], at: Instant) {
        let (at, from) = (self.clock.since(at), self.from);
        let datagram = SocketDatagram { bytes, is_cut: false, from, at, dropped: 0 };
        stats.take(&datagram, &self.clock, &self.window);
    }
}

impl PacketSink for SampledSink {
    fn take(&mut self, packet: &[u8], at: Instant) {
        match self.stats.get() {
            Some(stats) if self.held.is_empty() => self.count(&mut lock(stats), packet, at),
            _ => self.held.push((packet.to_vec(), at)),
        }
    }

    /// False before the answer to PLAY is handled: the connection is not read until then.
    fn flush(&mut self) -> bool {
        let Some(stats) = self.stats.get() else { return self.held.is_empty() };
        for (packet, at) in std::mem::take(&mut self.held) {
            self.count(&mut lock(stats), &packet, at);
        }
        true
    }
}

/// Time between two reads of a counted session.
pub(super) const COUNTED_PAUSE: Duration = Duration::from_millis(20);
