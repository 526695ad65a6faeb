// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queue of access units from the receiving threads to whoever writes them.
//!
//! A receiving thread must never wait for a disk: a unit that does not fit is dropped and counted.
//! Memory of waiting units is bounded.
//!
//! Does not order units of different tracks: each has its own time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use media::{AccessUnit, Codec};

use super::sender_clock::SenderClock;

/// Event of a track.
#[derive(Debug)]
pub enum TrackEvent {
    /// The format of the units that follow.
    Codec(Codec),
    /// The next access unit.
    Unit(AccessUnit),
    /// A sender report has come.
    Report(SenderClock),
}

/// Sending end, one a track.
#[derive(Debug, Clone)]
pub(crate) struct TrackSink {
    track: usize,
    events: Sender<(usize, TrackEvent)>,
    shared: Arc<Shared>,
}

/// Receiving end, of all tracks.
#[derive(Debug)]
pub struct TrackQueue {
    events: Receiver<(usize, TrackEvent)>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    queued_bytes: AtomicUsize,
    dropped_units: AtomicU64,
}

impl TrackQueue {
    /// A queue of so many tracks, and the sending end of each.
    pub(crate) fn new(tracks: usize) -> (Vec<TrackSink>, TrackQueue) {
        let (sender, events) = channel();
        let shared = Arc::new(Shared::default());
        let sink = |track| TrackSink { track, events: sender.clone(), shared: shared.clone() };
        let sinks = (0..tracks).map(sink).collect();
        (sinks, TrackQueue { events, shared })
    }

    /// Waits for the next event, with the number of its track; none where none came in time.
    ///
    /// # Errors
    /// All tracks have ended.
    pub fn next(&self, at_most: Duration) -> Result<Option<(usize, TrackEvent)>, Ended> {
        match self.events.recv_timeout(at_most) {
            Ok((track, event)) => {
                if let TrackEvent::Unit(unit) = &event {
                    self.shared.queued_bytes.fetch_sub(charge(unit), Ordering::Relaxed);
                }
                Ok(Some((track, event)))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Ended),
        }
    }

    /// Units that did not fit.
    pub fn dropped_units(&self) -> u64 {
        self.shared.dropped_units.load(Ordering::Relaxed)
    }
}

/// All tracks of a queue have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended;

impl TrackSink {
    /// Announces the format of the units that follow.
    pub(crate) fn announce(&self, codec: Codec) {
        // Nobody listens any more where the receiving end is gone.
        let _ = self.events.send((self.track, TrackEvent::Codec(codec)));
    }

    /// Passes on what a sender report tells of the track's clock.
    pub(crate) fn report(&self, clock: SenderClock) {
        let _ = self.events.send((self.track, TrackEvent::Report(clock)));
    }

    /// Passes a unit on, if it fits.
    pub(crate) fn push(&self, unit: AccessUnit) {
        let bytes = charge(&unit);
        let queued = self.shared.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = queued + bytes <= QUEUED_BYTES_MAX;
        let is_sent = fits && self.events.send((self.track, TrackEvent::Unit(unit))).is_ok();
        if !is_sent {
            self.shared.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.shared.dropped_units.fetch_add(u64::from(!fits), Ordering::Relaxed);
        }
    }
}

/// Memory of a unit that waits: that of its bytes and of what is kept beside them.
fn charge(unit: &AccessUnit) -> usize {
    unit.bytes.len() + UNIT_BYTES
}

/// An event in the queue and a block of the allocator: units of a byte must not fill the memory.
const UNIT_BYTES: usize = 128;
/// Ten seconds of 50 Mb/s.
const QUEUED_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(bytes: usize) -> AccessUnit {
        AccessUnit { time: 0, bytes: vec![0; bytes], is_start: true, is_after_loss: false }
    }

    #[test]
    fn units_of_a_byte_are_bounded_by_their_number() {
        let (sinks, queue) = TrackQueue::new(1);
        let most = QUEUED_BYTES_MAX / (1 + UNIT_BYTES);
        (0..most + 10).for_each(|_| sinks[0].push(unit(1)));
        assert_eq!(queue.dropped_units(), 10);
    }

    #[test]
    fn what_waits_is_bounded_and_the_end_is_told() {
        let (sinks, queue) = TrackQueue::new(2);
        for _ in 0..5 {
            sinks[1].push(unit(15 << 20));
        }
        assert_eq!(queue.dropped_units(), 1);
        assert!(matches!(queue.next(Duration::ZERO), Ok(Some((1, TrackEvent::Unit(_))))));
        sinks[0].push(unit(15 << 20));
        assert_eq!(queue.dropped_units(), 1);
        drop(sinks);
        for _ in 0..4 {
            assert!(matches!(queue.next(Duration::ZERO), Ok(Some(_))));
        }
        assert_eq!(queue.next(Duration::ZERO).unwrap_err(), Ended);
    }
}
