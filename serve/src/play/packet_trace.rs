// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records due and sent times of the packets of one session on request.
//!
//! The pacer thread that owns the session owns the trace, and returns it on command or when the
//! session ends. Costs a branch a send call while there is none; memory for all records is
//! allocated when a trace begins, so that none is allocated while packets are due.
//!
//! Does not keep packets, only their times. Does not write files ([`crate::admin`] does).

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tokio::sync::oneshot;

/// A packet of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PacketRecord {
    /// Track of the file; 0 for a transport stream.
    pub(crate) track: usize,
    /// RTP sequence number.
    pub(crate) sequence: u16,
    pub(crate) due: Instant,
    /// Moment before the send call that sent it.
    pub(crate) sent: Instant,
    /// Packets of that call.
    pub(crate) of_call: u32,
    /// Name of the path.
    pub(crate) path: &'static str,
}

/// Current trace of a session.
pub(crate) struct PacketTrace {
    number: u64,
    traced: Option<TracedPackets>,
    until: Instant,
    reply: Option<oneshot::Sender<TracedPackets>>,
}

/// Result of a trace.
#[derive(Debug)]
pub(crate) struct TracedPackets {
    pub(crate) began: Instant,
    pub(crate) packets: Vec<PacketRecord>,
    /// Packets beyond [`PACKETS_MAX`], which are only counted.
    pub(crate) left_out: u64,
}

/// A send call that accepted packets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TracedCall {
    pub(crate) track: usize,
    /// Sequence number of the first packet.
    pub(crate) sequence: u16,
    pub(crate) packets: u32,
    pub(crate) sent: Instant,
    pub(crate) path: &'static str,
}

impl PacketTrace {
    /// Begins a trace that lasts for this time, of a session with about this many packets a second.
    pub(crate) fn begin(
        number: u64,
        time: Range<Instant>,
        packets_per_s: u64,
        reply: oneshot::Sender<TracedPackets>,
    ) -> PacketTrace {
        let Range { start: began, end: until } = time;
        // Room for twice the mean, for streams whose rate varies.
        let expected =
            ((until - began).as_secs() + 1).saturating_mul(packets_per_s).saturating_mul(2);
        let packets = Vec::with_capacity((expected as usize).min(PACKETS_MAX));
        let traced = Some(TracedPackets { began, packets, left_out: 0 });
        PacketTrace { number, traced, until, reply: Some(reply) }
    }

    /// Returns a number for the next trace.
    pub(crate) fn next_number() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Adds the packets of a call; `due` returns the due time of each, by its index in the call.
    pub(crate) fn record(&mut self, call: TracedCall, due: impl Fn(u32) -> Instant) {
        let Some(traced) = self.traced.as_mut().filter(|_| call.sent <= self.until) else { return };
        for place in 0..call.packets {
            if traced.packets.len() == PACKETS_MAX {
                traced.left_out += u64::from(call.packets - place);
                return;
            }
            traced.packets.push(PacketRecord {
                track: call.track,
                sequence: call.sequence.wrapping_add(place as u16),
                due: due(place),
                sent: call.sent,
                of_call: call.packets,
                path: call.path,
            });
        }
    }
}

impl Drop for PacketTrace {
    /// Returns the records; a client that has disconnected discards them.
    fn drop(&mut self) {
        if let (Some(reply), Some(traced)) = (self.reply.take(), self.traced.take()) {
            let _ = reply.send(traced);
        }
    }
}

/// Records of a trace: 15 s of 100 Mb/s, in 8 MB.
pub(crate) const PACKETS_MAX: usize = 1 << 17;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn trace_hands_over_what_it_has_when_it_is_dropped() {
        let (reply, mut answer) = oneshot::channel();
        let sent = Instant::now();
        let mut trace = PacketTrace::begin(1, sent..sent + Duration::from_secs(1), 10, reply);
        let call = TracedCall { track: 0, sequence: 65_535, packets: 2, sent, path: "uring" };
        trace.record(call, |place| sent + Duration::from_millis(place.into()));
        // A call after the end of the trace is not recorded.
        trace.record(TracedCall { sent: sent + Duration::from_secs(2), ..call }, |_| sent);
        assert!(answer.try_recv().is_err(), "it is under way");
        drop(trace);
        let traced = answer.try_recv().unwrap();
        let seen: Vec<_> = traced.packets.iter().map(|packet| packet.sequence).collect();
        assert_eq!((seen, traced.left_out), (vec![65_535, 0], 0));
        assert_eq!(traced.packets[1].due, sent + Duration::from_millis(1));
    }

    #[test]
    fn packets_beyond_the_room_are_counted() {
        let (reply, mut answer) = oneshot::channel();
        let sent = Instant::now();
        let mut trace = PacketTrace::begin(1, sent..sent + Duration::from_secs(1), 10, reply);
        for _ in 0..=PACKETS_MAX / 1000 {
            let call = TracedCall { track: 0, sequence: 0, packets: 1000, sent, path: "uring" };
            trace.record(call, |_| sent);
        }
        drop(trace);
        let traced = answer.try_recv().unwrap();
        let all = (PACKETS_MAX / 1000 + 1) * 1000;
        assert_eq!(traced.packets.len(), PACKETS_MAX);
        assert_eq!(traced.left_out as usize, all - PACKETS_MAX);
    }
}
