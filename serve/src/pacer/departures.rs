// SPDX-License-Identifier: MIT OR Apache-2.0
//! Departure times of sessions whose bursts the kernel spreads: each send carries its due time, and
//! the device's queue (`fq` or `etf`) holds it until then.
//!
//! The queue is looked up when a session is added: on the device by which its packets leave. If
//! that device has no such queue, the pacer alone paces the session, and the reason is logged once,
//! with the command that changes it. Costs per session: the calls of [`DepartureQueue::of`]. Costs
//! per burst: one reading of the clock, and a send call for every [`Departures::packets`] instead
//! of one.
//!
//! A burst is passed to the kernel [`LEAD`] before its first packet is due, so that a pacer that
//! wakes late delays no packet.
//!
//! Sources: `tc-fq(8)` (`flow_limit`: 100 packets of a flow in its queue, a segmented send counted
//! as one), `tc-etf(8)`.
//! Does not change a device's queue.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use paths::{ClockReading, DepartureQueue, Destination};

use super::packet_pacing::PacketPacing;

/// A session's use of departure times.
pub(crate) struct Departures {
    queue: DepartureQueue,
    packets: u64,
    /// Sessions with departure times, this one included.
    sessions: Arc<AtomicU64>,
    /// Time at which missed departures were last read; `None` before the first burst.
    asked_at: Option<Instant>,
}

impl Departures {
    /// Creates departures for a queue that the host need not have.
    #[cfg(test)]
    pub(super) fn for_test(packets: u64) -> Departures {
        let sessions = Arc::new(AtomicU64::new(1));
        Departures { queue: DepartureQueue::fq("lo"), packets, sessions, asked_at: None }
    }

    /// Returns the number of packets that share a departure in a burst of `burst_packets`: the
    /// configured number, or more, so that a burst needs at most [`SENDS_PER_BURST_MAX`] sends.
    pub(crate) fn packets(&self, burst_packets: u64) -> u64 {
        self.packets.max(burst_packets.div_ceil(SENDS_PER_BURST_MAX))
    }

    /// Returns how long before its due time a burst is passed on: at most the burst's own duration,
    /// so that the queue never holds more than two bursts of a session.
    pub(crate) fn lead(&self, burst: Duration) -> Duration {
        LEAD.min(burst)
    }

    /// Reads the queue's clock, for the sends of one burst.
    pub(crate) fn reading(&self) -> ClockReading {
        self.queue.reading()
    }

    /// True once a second: reading missed departures costs a system call.
    pub(crate) fn is_time_to_ask(&mut self, now: Instant) -> bool {
        let asked_at = *self.asked_at.get_or_insert(now);
        let due = now.saturating_duration_since(asked_at) >= ASK_EVERY;
        if due {
            self.asked_at = Some(now);
        }
        due
    }
}

impl Drop for Departures {
    fn drop(&mut self) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Decides the pacing of each session.
pub(crate) struct PacingChoice {
    pacing: PacketPacing,
    sessions: Arc<AtomicU64>,
    /// Reasons already logged.
    logged: Mutex<BTreeSet<String>>,
}

impl PacingChoice {
    /// Creates the choice; `sessions` counts the sessions with departure times.
    pub(crate) fn new(pacing: PacketPacing, sessions: Arc<AtomicU64>) -> PacingChoice {
        PacingChoice { pacing, sessions, logged: Mutex::default() }
    }

    /// True if sessions may have departure times.
    pub(crate) fn is_txtime(&self) -> bool {
        self.pacing != PacketPacing::User
    }

    /// Prepares a session's destination; `None` for a session that the pacer alone paces.
    pub(crate) fn prepare(&self, to: &mut Destination) -> Option<Departures> {
        let PacketPacing::Txtime { packets } = self.pacing else { return None };
        let prepared = DepartureQueue::of(to.socket())
            .and_then(|queue| to.use_departures(&queue).map(|()| queue));
        match prepared {
            Ok(queue) => {
                self.sessions.fetch_add(1, Ordering::Relaxed);
                let sessions = self.sessions.clone();
                Some(Departures { queue, packets: packets.into(), sessions, asked_at: None })
            }
            Err(reason) => {
                self.log(&reason.to_string());
                None
            }
        }
    }

    fn log(&self, reason: &str) {
        let mut logged = self.logged.lock();
        if logged.len() < REASONS_MAX && logged.insert(reason.to_owned()) {
            tracing::warn!("sessions are paced by the pacer, not by txtime: {reason}");
        }
    }
}

/// Most sends of a session in one burst. An `fq` holds 100 sends of a flow, and two bursts may
/// be in it.
const SENDS_PER_BURST_MAX: u64 = 32;
/// Exceeds the lateness of a pacer at loads it sustains (docs/measurements.md: `late, 99.9 %`).
const LEAD: Duration = Duration::from_millis(5);
/// Interval at which a session's missed departures are read.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Largest number of distinct reasons that are logged: a few devices have one each.
const REASONS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    fn destination() -> Destination {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(socket.local_addr().unwrap()).unwrap();
        Destination::new(socket, "here").unwrap()
    }

    #[test]
    fn no_burst_is_more_sends_than_the_queue_holds() {
        let few = Departures::for_test(2);
        assert_eq!([1, 10, 64, 65, 100].map(|burst| few.packets(burst)), [2, 2, 2, 3, 4]);
        for packets in [1, 2, 48] {
            for burst in 1..5000_u64 {
                let each = Departures::for_test(packets).packets(burst);
                assert!(each >= packets && burst.div_ceil(each) <= SENDS_PER_BURST_MAX);
            }
        }
    }

    /// Loopback has no queue for departure times.
    #[test]
    fn a_session_without_a_queue_is_paced_by_the_pacer_and_not_counted() {
        if DepartureQueue::of(destination().socket()).is_ok() {
            return eprintln!("skip: this host's loopback has a queue for departure times");
        }
        let sessions = Arc::<AtomicU64>::default();
        let choice = PacingChoice::new(PacketPacing::Txtime { packets: 1 }, sessions.clone());
        for _ in 0..2 {
            assert!(choice.prepare(&mut destination()).is_none());
        }
        let logged = choice.logged.lock();
        let reason = logged.first().expect("it is logged");
        let cure = "on lo; tc qdisc replace dev lo root fq limit 100000";
        assert!(reason.ends_with(cure), "{reason}");
        assert_eq!((logged.len(), sessions.load(Ordering::Relaxed)), (1, 0), "logged once");
        let user = PacingChoice::new(PacketPacing::User, sessions);
        assert!(user.prepare(&mut destination()).is_none());
        assert!(user.logged.lock().is_empty());
    }

    #[test]
    fn a_session_that_ends_is_counted_no_more() {
        let one = Departures::for_test(1);
        let sessions = one.sessions.clone();
        drop(one);
        assert_eq!(sessions.load(Ordering::Relaxed), 0);
    }
}
