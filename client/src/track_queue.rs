// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queue of access units from the receiving threads to the writer.
//!
//! A receiving thread must never wait for a disk: a unit that does not fit is dropped and counted.
//! The queue's byte count includes formats and sender reports; if those do not fit, the latest of
//! each precedes the next unit that does. The total memory of waiting events is bounded
//! ([`QUEUED_BYTES_MAX`]).
//!
//! Tracks are read one after the other or by threads of their own, and a camera may send seconds of
//! media at once. The events of all tracks therefore leave the queue in order of arrival: one
//! leaves when every other track has been read up to its arrival ([`TrackSink::read_until`]). Costs
//! a look at each track for an event, and no lock.
//!
//! Does not order units by their own times (the muxer does).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use clock::Clock;
use media::{AccessUnit, Codec};

use super::sender_clock::SenderClock;

/// Event of a track.
#[derive(Debug)]
pub enum TrackEvent {
    /// The format of the units that follow.
    Codec(Codec),
    /// The next access unit, and the arrival of the packet that completed it.
    Unit(AccessUnit, Instant),
    /// A received sender report.
    Report(SenderClock),
    /// Number of units that arrived before the parameters of their codec and cannot be decoded.
    Undecodable(u64),
}

/// Sending end of one track.
#[derive(Debug)]
pub(crate) struct TrackSink {
    track: usize,
    events: Sender<QueuedEvent>,
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
    events: Receiver<QueuedEvent>,
    tracks: Vec<WaitingTrack>,
    clock: Clock,
    pub(crate) control: QueueControl,
}

#[derive(Debug)]
struct QueuedEvent {
    track: usize,
    /// Arrival of the packet that caused it, in nanoseconds since the queue began.
    arrived_ns: u64,
    event: TrackEvent,
}

/// A track at the receiving end.
#[derive(Debug, Default)]
struct WaitingTrack {
    /// Arrivals and events that have not left the queue.
    events: VecDeque<(u64, TrackEvent)>,
    /// Its events up to this arrival are here.
    read_until_ns: u64,
}

/// Control and counts of a queue, for a holder that neither sends nor receives.
#[derive(Debug, Clone)]
pub(crate) struct QueueControl(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    began: Instant,
    /// Arrival up to which each track has been read, in nanoseconds since the queue began.
    read_until_ns: Box<[AtomicU64]>,
    queued_bytes: AtomicUsize,
    dropped_units: AtomicU64,
    is_closed: AtomicBool,
}

impl TrackQueue {
    /// A queue for this number of tracks, and the sending end of each. Arrivals are of `clock`.
    pub(crate) fn new(tracks: usize, clock: &Clock) -> (Vec<TrackSink>, TrackQueue) {
        let (sender, events) = channel();
        let shared = Arc::new(Shared {
            began: clock.now(),
            read_until_ns: (0..tracks).map(|_| AtomicU64::new(0)).collect(),
            queued_bytes: AtomicUsize::new(0),
            dropped_units: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        });
        let sink = |track| TrackSink {
            track,
            events: sender.clone(),
            shared: shared.clone(),
            codec: None,
            report: None,
            is_after_drop: false,
        };
        let sinks = (0..tracks).map(sink).collect();
        let tracks = (0..tracks).map(|_| WaitingTrack::default()).collect();
        let (clock, control) = (clock.clone(), QueueControl(shared));
        (sinks, TrackQueue { events, tracks, clock, control })
    }

    /// Waits for the event that arrived next, with the number of its track; none if the wait times
    /// out.
    ///
    /// # Errors
    /// All tracks have ended, or the queue was closed.
    pub fn next(&mut self, at_most: Duration) -> Result<Option<(usize, TrackEvent)>, Ended> {
        let until = self.clock.now().checked_add(at_most);
        loop {
            if self.control.is_closed() {
                self.drop_all();
                return Err(Ended);
            }
            if let Some(next) = self.pop() {
                return Ok(Some(next));
            }
            self.collect();
            if let Some(next) = self.pop() {
                return Ok(Some(next));
            }
            let rest =
                until.map_or(at_most, |until| until.saturating_duration_since(self.clock.now()));
            // Nothing signals that the other tracks were read.
            let wait = if self.is_empty() { rest } else { rest.min(LOOK_EVERY) };
            match self.events.recv_timeout(wait) {
                Ok(event) => self.keep(event),
                Err(RecvTimeoutError::Timeout) if wait == rest => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) if self.is_empty() => return Err(Ended),
                // The ends of the tracks are noted since.
                Err(RecvTimeoutError::Disconnected) => {}
            }
        }
    }

    /// Moves what the tracks have passed on to the waiting events.
    fn collect(&mut self) {
        // Before the events: those up to the arrival that is noted here are in the channel.
        for (track, until_ns) in self.tracks.iter_mut().zip(&self.control.0.read_until_ns) {
            track.read_until_ns = until_ns.load(Ordering::Acquire);
        }
        while let Ok(event) = self.events.try_recv() {
            self.keep(event);
        }
    }

    fn keep(&mut self, QueuedEvent { track, arrived_ns, event }: QueuedEvent) {
        self.tracks[track].events.push_back((arrived_ns, event));
    }

    fn is_empty(&self) -> bool {
        self.tracks.iter().all(|track| track.events.is_empty())
    }

    /// Removes the event that arrived first, unless an earlier one may come.
    fn pop(&mut self) -> Option<(usize, TrackEvent)> {
        let front = |track: &WaitingTrack| Some(track.events.front()?.0);
        let fronts = self.tracks.iter().enumerate();
        let (arrived_ns, first) =
            fronts.filter_map(|(index, track)| Some((front(track)?, index))).min()?;
        let may_precede =
            |track: &WaitingTrack| track.events.is_empty() && track.read_until_ns < arrived_ns;
        if self.tracks.iter().any(may_precede) {
            return None;
        }
        let waiting = &mut self.tracks[first].events;
        let (_, event) = waiting.pop_front()?;
        if waiting.is_empty() && waiting.capacity() > KEPT_EVENTS {
            *waiting = VecDeque::new();
        }
        self.control.0.queued_bytes.fetch_sub(charge(&event), Ordering::Relaxed);
        Some((first, event))
    }

    fn drop_all(&mut self) {
        self.collect();
        let waiting = self.tracks.iter_mut().flat_map(|track| track.events.drain(..));
        let units = waiting.filter(|(_, event)| matches!(event, TrackEvent::Unit(..))).count();
        self.control.add_dropped(units as u64);
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

    /// Passes on the format that the description names, ahead of all units.
    pub(crate) fn describe(&mut self, codec: Codec) {
        let event = TrackEvent::Codec(codec);
        self.shared.queued_bytes.fetch_add(charge(&event), Ordering::Relaxed);
        self.send(event, self.shared.began);
    }

    /// Passes on the track's clock from a sender report, ahead of the next unit.
    pub(crate) fn report(&mut self, clock: SenderClock) {
        self.report = Some(clock);
    }

    /// Reports units that are left out, once before the first unit or at the end; the last of them
    /// arrived at `arrived`.
    pub(crate) fn leave_out(&mut self, units: u64, arrived: Instant) {
        let event = TrackEvent::Undecodable(units);
        self.shared.queued_bytes.fetch_add(charge(&event), Ordering::Relaxed);
        self.send(event, arrived);
    }

    /// The units of all packets that arrived until then have been passed on.
    pub(crate) fn read_until(&self, arrived: Instant) {
        let until_ns = self.shared.ns_at(arrived);
        // Read before the events that precede it.
        self.shared.read_until_ns[self.track].store(until_ns, Ordering::Release);
    }

    fn send(&self, event: TrackEvent, arrived: Instant) {
        let bytes = charge(&event);
        let arrived_ns = self.shared.ns_at(arrived);
        if self.events.send(QueuedEvent { track: self.track, arrived_ns, event }).is_err() {
            // The receiver is gone.
            self.shared.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Passes a unit on if it fits, after the pending format and report.
    pub(crate) fn push(&mut self, mut unit: AccessUnit, arrived: Instant) {
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
        let unit = TrackEvent::Unit(unit, arrived);
        let events = before.chain(codec.map(TrackEvent::Codec)).chain([unit]);
        events.for_each(|event| self.send(event, arrived));
    }
}

impl Drop for TrackSink {
    fn drop(&mut self) {
        self.shared.read_until_ns[self.track].store(u64::MAX, Ordering::Release);
    }
}

impl Shared {
    fn ns_at(&self, moment: Instant) -> u64 {
        moment.saturating_duration_since(self.began).as_nanos() as u64
    }
}

/// Memory of a waiting event: its bytes and the overhead beside them.
fn charge(event: &TrackEvent) -> usize {
    match event {
        TrackEvent::Unit(unit, _) => unit_bytes(unit),
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

/// An event in the channel or in a list that grows by doubling, and a block of the allocator: units
/// of one byte must not exhaust the memory.
const EVENT_BYTES: usize = 384;
/// An event, and the blocks of as many parameter sets as a codec has at most.
const CODEC_BYTES: usize = 8 << 10;
/// Room of a track for events that is kept.
const KEPT_EVENTS: usize = 256;
/// Ten seconds of 50 Mb/s.
const QUEUED_BYTES_MAX: usize = 64 << 20;
/// As often as a track of a play that sends nothing is read.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use media::tracks::H264Config;

    use super::*;

    fn unit(bytes: usize) -> AccessUnit {
        AccessUnit { time: 0, bytes: vec![0; bytes], is_start: true, is_after_loss: false }
    }

    #[test]
    fn units_of_a_byte_are_bounded_by_their_number() {
        let (mut sinks, queue) = TrackQueue::new(1, &Clock::HOST);
        let most = QUEUED_BYTES_MAX / (1 + EVENT_BYTES);
        (0..most + 10).for_each(|_| sinks[0].push(unit(1), Instant::now()));
        assert_eq!(queue.control.dropped_units(), 10);
    }

    #[test]
    fn what_waits_is_bounded_and_the_end_is_told() {
        let (mut sinks, mut queue) = TrackQueue::new(2, &Clock::HOST);
        for _ in 0..5 {
            sinks[1].push(unit(15 << 20), Instant::now());
        }
        assert_eq!(queue.control.dropped_units(), 1);
        sinks[0].read_until(Instant::now());
        assert!(matches!(queue.next(Duration::ZERO), Ok(Some((1, TrackEvent::Unit(..))))));
        sinks[0].push(unit(15 << 20), Instant::now());
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
        let (mut sinks, mut queue) = TrackQueue::new(1, &Clock::HOST);
        let most = QUEUED_BYTES_MAX / (1 + EVENT_BYTES + SET_BYTES + CODEC_BYTES);
        for number in 0..most + 10 {
            sinks[0].announce(codec(SET_BYTES, number as u8));
            sinks[0].push(unit(1), Instant::now());
        }
        assert_eq!(queue.control.dropped_units(), 10);
        let mut next = || queue.next(Duration::ZERO).unwrap().map(|(_, event)| event);
        let waiting = std::iter::from_fn(&mut next).collect::<Vec<_>>();
        assert_eq!(waiting.len(), 2 * most);
        sinks[0].push(unit(1), Instant::now());
        let Some(TrackEvent::Codec(Codec::H264(latest))) = next() else { panic!("no format") };
        assert_eq!(latest.profile[0], (most + 9) as u8);
        let Some(TrackEvent::Unit(unit, _)) = next() else { panic!("no unit") };
        assert!(unit.is_after_loss);
    }

    #[test]
    fn units_in_a_queue_that_is_closed_are_dropped_and_counted() {
        let (mut sinks, mut queue) = TrackQueue::new(2, &Clock::HOST);
        for sink in &mut sinks {
            sink.announce(codec(1, 0));
            (0..3).for_each(|_| sink.push(unit(1), Instant::now()));
        }
        assert!(matches!(queue.next(Duration::ZERO), Ok(Some(_))), "a format");
        queue.control.close();
        assert_eq!(queue.next(Duration::ZERO).unwrap_err(), Ended);
        assert_eq!(queue.control.dropped_units(), 6);
    }

    /// The tracks and the arrivals of the units that leave a queue now, in milliseconds.
    fn leaving(queue: &mut TrackQueue, began: Instant) -> Vec<(usize, u128)> {
        let next = || match queue.next(Duration::ZERO).ok()?? {
            (track, TrackEvent::Unit(_, at)) => Some((track, (at - began).as_millis())),
            (_, event) => panic!("{event:?}"),
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn units_leave_in_order_of_arrival_whichever_track_is_read_first() {
        let (mut sinks, mut queue) = TrackQueue::new(3, &Clock::HOST);
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        [10, 30, 50].into_iter().for_each(|ms| sinks[0].push(unit(1), at(ms)));
        sinks[0].read_until(at(60));
        assert_eq!(leaving(&mut queue, began), [], "two tracks have not been read");
        [20, 40].into_iter().for_each(|ms| sinks[1].push(unit(1), at(ms)));
        sinks[2].read_until(at(25));
        assert_eq!(leaving(&mut queue, began), [(0, 10), (1, 20)]);
        sinks[2].read_until(at(100));
        // Nothing tells that the second track sends no more before 50.
        assert_eq!(leaving(&mut queue, began), [(0, 30), (1, 40)]);
        sinks[1].read_until(at(49));
        assert_eq!(leaving(&mut queue, began), []);
        sinks[1].read_until(at(50));
        assert_eq!(leaving(&mut queue, began), [(0, 50)]);
    }

    #[test]
    fn a_track_that_has_ended_holds_up_no_other() {
        let (mut sinks, mut queue) = TrackQueue::new(2, &Clock::HOST);
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        sinks[0].push(unit(1), at(10));
        sinks[1].push(unit(1), at(20));
        assert_eq!(leaving(&mut queue, began), [(0, 10)]);
        drop(sinks.remove(0));
        assert_eq!(leaving(&mut queue, began), [(1, 20)]);
        sinks[0].push(unit(1), at(30));
        drop(sinks);
        assert_eq!(leaving(&mut queue, began), [(1, 30)]);
        assert_eq!(queue.next(Duration::from_secs(60)).unwrap_err(), Ended);
    }

    #[test]
    fn a_unit_that_a_hole_held_up_leaves_at_once_and_in_the_order_of_its_track() {
        let (mut sinks, mut queue) = TrackQueue::new(2, &Clock::HOST);
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        sinks[0].read_until(at(50));
        sinks[1].push(unit(1), at(40));
        assert_eq!(leaving(&mut queue, began), [(1, 40)]);
        [30, 20].into_iter().for_each(|ms| sinks[0].push(unit(1), at(ms)));
        sinks[1].push(unit(1), at(60));
        assert_eq!(leaving(&mut queue, began), [(0, 30), (0, 20)]);
    }
}
