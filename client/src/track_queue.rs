// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queue of access units from the receiving threads to the writer.
//!
//! A receiving thread must never wait for a disk: a unit that does not fit is dropped and counted.
//! The queue's byte count includes formats and sender reports; if those do not fit, the latest of
//! each precedes the next unit that does. The total memory of waiting events is bounded
//! ([`QUEUED_BYTES_MAX`]).
//!
//! Does not order units of different tracks: each has its own time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
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
    /// A received sender report.
    Report(SenderClock),
    /// Number of units that arrived before the parameters of their codec and cannot be decoded.
    Undecodable(u64),
}

/// Sending end of one track.
#[derive(Debug)]
pub(crate) struct TrackSink {
    track: usize,
    events: Sender<(usize, TrackEvent)>,
    shared: Arc<Shared>,
    /// The latest format and report, until they fit together with a unit.
    codec: Option<Codec>,
    report: Option<SenderClock>,
    /// The previous unit was dropped.
    is_after_drop: bool,
}

/// Receiving end, of all tracks.
#[derive(Debug)]
pub struct TrackQueue {
    events: Receiver<(usize, TrackEvent)>,
    pub(crate) control: QueueControl,
}

/// Control and counts of a queue, for a holder that neither sends nor receives.
#[derive(Debug, Clone)]
pub(crate) struct QueueControl(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queued_bytes: AtomicUsize,
    dropped_units: AtomicU64,
    is_closed: AtomicBool,
}

impl TrackQueue {
    /// A queue for this number of tracks, and the sending end of each.
    pub(crate) fn new(tracks: usize) -> (Vec<TrackSink>, TrackQueue) {
        let (sender, events) = channel();
        let shared = Arc::new(Shared::default());
        let sink = |track| TrackSink {
            track,
            events: sender.clone(),
            shared: shared.clone(),
            codec: None,
            report: None,
            is_after_drop: false,
        };
        let sinks = (0..tracks).map(sink).collect();
        (sinks, TrackQueue { events, control: QueueControl(shared) })
    }

    /// Waits for the next event, with the number of its track; none if the wait times out.
    ///
    /// # Errors
    /// All tracks have ended, or the queue was closed.
    pub fn next(&self, at_most: Duration) -> Result<Option<(usize, TrackEvent)>, Ended> {
        if self.control.is_closed() {
            self.drop_all();
            return Err(Ended);
        }
        match self.events.recv_timeout(at_most) {
            Ok((track, event)) => {
                self.control.0.queued_bytes.fetch_sub(charge(&event), Ordering::Relaxed);
                Ok(Some((track, event)))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Ended),
        }
    }

    fn drop_all(&self) {
        let is_unit = |(_, event): &(usize, TrackEvent)| matches!(event, TrackEvent::Unit(_));
        self.control.add_dropped(self.events.try_iter().filter(is_unit).count() as u64);
    }
}

impl QueueControl {
    /// Units that did not fit, or were in the queue when it was closed.
    pub(crate) fn dropped_units(&self) -> u64 {
        self.0.dropped_units.load(Ordering::Relaxed)
    }

    /// Counts units that were removed from the queue, and could not be passed on.
    pub(crate) fn add_dropped(&self, units: u64) {
        self.0.dropped_units.fetch_add(units, Ordering::Relaxed);
    }

    /// True once the content of the queue is to be discarded.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed.load(Ordering::Relaxed)
    }

    /// Makes the receiving end drop and count the content of the queue.
    pub(crate) fn close(&self) {
        self.0.is_closed.store(true, Ordering::Relaxed);
    }
}

/// No more events arrive: all tracks of a queue have ended, or it was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended;

impl TrackSink {
    /// Announces the format of the units that follow.
    pub(crate) fn announce(&mut self, codec: Codec) {
        self.codec = Some(codec);
    }

    /// Passes on the track's clock from a sender report, ahead of the next unit.
    pub(crate) fn report(&mut self, clock: SenderClock) {
        self.report = Some(clock);
    }

    /// Reports units that are left out, once before the first unit or at the end.
    pub(crate) fn leave_out(&mut self, units: u64) {
        let event = TrackEvent::Undecodable(units);
        self.shared.queued_bytes.fetch_add(charge(&event), Ordering::Relaxed);
        self.send(event);
    }

    fn send(&self, event: TrackEvent) {
        let bytes = charge(&event);
        if self.events.send((self.track, event)).is_err() {
            // The receiver is gone.
            self.shared.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Passes a unit on if it fits, after the pending format and report.
    pub(crate) fn push(&mut self, mut unit: AccessUnit) {
        let bytes = unit_bytes(&unit)
            + self.codec.as_ref().map_or(0, codec_bytes)
            + self.report.map_or(0, |_| EVENT_BYTES);
        let queued = self.shared.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        if queued + bytes > QUEUED_BYTES_MAX {
            self.shared.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.shared.dropped_units.fetch_add(1, Ordering::Relaxed);
            self.is_after_drop = true;
            return;
        }
        unit.is_after_loss |= std::mem::take(&mut self.is_after_drop);
        let (report, codec) = (self.report.take(), self.codec.take());
        let before = report.map(TrackEvent::Report).into_iter();
        let events = before.chain(codec.map(TrackEvent::Codec)).chain([TrackEvent::Unit(unit)]);
        events.for_each(|event| self.send(event));
    }
}

/// Memory of a waiting event: its bytes and the overhead beside them.
fn charge(event: &TrackEvent) -> usize {
    match event {
        TrackEvent::Unit(unit) => unit_bytes(unit),
        TrackEvent::Codec(codec) => codec_bytes(codec),
        TrackEvent::Report(_) | TrackEvent::Undecodable(_) => EVENT_BYTES,
    }
}

/// Memory of a waiting unit.
pub(super) fn unit_bytes(unit: &AccessUnit) -> usize {
    unit.bytes.len() + EVENT_BYTES
}

fn codec_bytes(codec: &Codec) -> usize {
    codec.parameter_bytes() + CODEC_BYTES
}

/// An event in the queue and a block of the allocator: units of one byte must not exhaust the
/// memory.
const EVENT_BYTES: usize = 128;
/// An event, and the blocks of as many parameter sets as a codec has at most.
const CODEC_BYTES: usize = 8 << 10;
/// Ten seconds of 50 Mb/s.
const QUEUED_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use media::tracks::H264Config;

    use super::*;

    fn unit(bytes: usize) -> AccessUnit {
        AccessUnit { time: 0, bytes: vec![0; bytes], is_start: true, is_after_loss: false }
    }

    #[test]
    fn units_of_a_byte_are_bounded_by_their_number() {
        let (mut sinks, queue) = TrackQueue::new(1);
        let most = QUEUED_BYTES_MAX / (1 + EVENT_BYTES);
        (0..most + 10).for_each(|_| sinks[0].push(unit(1)));
        assert_eq!(queue.control.dropped_units(), 10);
    }

    #[test]
    fn what_waits_is_bounded_and_the_end_is_told() {
        let (mut sinks, queue) = TrackQueue::new(2);
        for _ in 0..5 {
            sinks[1].push(unit(15 << 20));
        }
        assert_eq!(queue.control.dropped_units(), 1);
        assert!(matches!(queue.next(Duration::ZERO), Ok(Some((1, TrackEvent::Unit(_))))));
        sinks[0].push(unit(15 << 20));
        assert_eq!(queue.control.dropped_units(), 1);
        drop(sinks);
        for _ in 0..4 {
            assert!(matches!(queue.next(Duration::ZERO), Ok(Some(_))));
        }
        assert_eq!(queue.next(Duration::ZERO).unwrap_err(), Ended);
    }

    /// A codec with one sequence parameter set of this size and number.
    fn codec(bytes: usize, number: u8) -> Codec {
        Codec::H264(H264Config {
            length_bytes: 4,
            profile: [number; 3],
            sequence_sets: vec![vec![0; bytes]],
            picture_sets: Vec::new(),
        })
    }

    #[test]
    fn formats_that_change_with_each_unit_are_bounded_and_the_latest_is_not_lost() {
        const SET_BYTES: usize = 60_000;
        let (mut sinks, queue) = TrackQueue::new(1);
        let most = QUEUED_BYTES_MAX / (1 + EVENT_BYTES + SET_BYTES + CODEC_BYTES);
        for number in 0..most + 10 {
            sinks[0].announce(codec(SET_BYTES, number as u8));
            sinks[0].push(unit(1));
        }
        assert_eq!(queue.control.dropped_units(), 10);
        let next = || queue.next(Duration::ZERO).unwrap().map(|(_, event)| event);
        let waiting = std::iter::from_fn(next).collect::<Vec<_>>();
        assert_eq!(waiting.len(), 2 * most);
        sinks[0].push(unit(1));
        let Some(TrackEvent::Codec(Codec::H264(latest))) = next() else { panic!("no format") };
        assert_eq!(latest.profile[0], (most + 9) as u8);
        let Some(TrackEvent::Unit(unit)) = next() else { panic!("no unit") };
        assert!(unit.is_after_loss);
    }

    #[test]
    fn units_in_a_queue_that_is_closed_are_dropped_and_counted() {
        let (mut sinks, queue) = TrackQueue::new(2);
        for sink in &mut sinks {
            sink.announce(codec(1, 0));
            (0..3).for_each(|_| sink.push(unit(1)));
        }
        assert!(matches!(queue.next(Duration::ZERO), Ok(Some(_))), "a format");
        queue.control.close();
        assert_eq!(queue.next(Duration::ZERO).unwrap_err(), Ended);
        assert_eq!(queue.control.dropped_units(), 6);
    }
}
