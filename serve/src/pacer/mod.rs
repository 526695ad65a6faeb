// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends packets as they fall due, with one pinned thread a core, each with a timing wheel of
//! sessions.
//!
//! Sessions are distributed over the pacers by load, and over the milliseconds of a burst by the
//! emptiest slot. Few sessions share fewer slots ([`grid_ticks`]), because a wake costs as much as
//! two sessions. A thread sleeps until the next slot with an entry or the next command. It does not
//! wait for a disk ([`crate::prefetch`]), a socket (all are non-blocking) or the control side
//! (commands and events are queued). It owns its counters ([`crate::meter`]). Other threads hold
//! its locks (its sessions' ready ranges and progress, the readers' queue) for a few additions or a
//! copy, never across a system call that moves data. Costs one futex sleep per occupied millisecond
//! and thread, and one [`paced_stream`] step per session and burst.
//!
//! Sources: ARCHITECTURE.md, "A streamed byte's journey".
//! Does not handle RTCP, time-outs or any protocol.

mod batches;
mod departures;
mod gather;
mod handle;
pub(crate) mod media_target;
mod paced_session;
mod paced_stream;
mod paced_track;
mod paced_tracks;
mod pacer_command;
mod packet_pacing;
mod pinning;
mod play_start;
mod stream_lead;
mod stream_paths;
mod wheel;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clock::Clock;
use parking_lot::Mutex;
use paths::{InterleavedPath, Open, Spec, StreamPath, Transport};
use tokio::sync::mpsc;

pub(crate) use departures::PacingChoice;
pub(crate) use handle::Handle;
pub(crate) use paced_session::PacedSession;
pub(crate) use paced_stream::{PacedStream, StreamEnd};
pub(crate) use paced_track::PacedTrack;
pub(crate) use paced_tracks::{PacedTracks, TrackPlace, TrackStart};
pub use packet_pacing::PacketPacing;
pub(crate) use pinning::allowed_cores;
pub(crate) use play_start::PlayStart;
pub(crate) use stream_lead::StreamLead;
pub(crate) use stream_paths::{ByBurst, StreamPaths};

use crate::error::{Error, Setting};
use crate::meter::{PacerCounters, PacerMeter};
use crate::play::PacketTrace;
use crate::prefetch::PrefetchHandle;
use gather::Gather;
use paced_stream::Step;
use pacer_command::PacerCommand;
use pinning::{pin, raise_priority};
use play_start::StartQueue;
use stream_paths::LONG_FROM_PACKETS;
use wheel::{HORIZON_TICKS, Tick, Wheel};

/// An event from a pacer to the control side.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) number: u64,
    /// Number of the play that ended; a later one may have begun meanwhile.
    pub(crate) play: u64,
    pub(crate) over: StreamEnd,
}

/// Resources of the server that all its pacers use.
pub(crate) struct PacerHost<'a> {
    pub(crate) burst: Duration,
    pub(crate) pacing: PacingChoice,
    pub(crate) readers: &'a PrefetchHandle,
    pub(crate) clock: &'a Clock,
}

/// All pacer threads.
pub(crate) struct Pacers {
    pacers: Vec<Pacer>,
    pacing: PacingChoice,
}

struct Pacer {
    commands: Sender<PacerCommand>,
    sessions: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Pacers {
    pub(crate) fn start(
        meters: &[Arc<Mutex<PacerCounters>>],
        choice: StreamPaths,
        host: PacerHost<'_>,
        events: &mpsc::UnboundedSender<Event>,
    ) -> Result<Pacers, Error> {
        let PacerHost { burst, pacing, readers, clock } = host;
        let cores = allowed_cores();
        let mut pacers = Vec::new();
        for (index, meter) in meters.iter().enumerate() {
            let (commands, inbox) = channel();
            let tools = Tools {
                gathered: Sending::open(choice.gathered)?,
                image: choice.image.map(Sending::open).transpose()?,
                framed: open_framed(choice.framed)?,
                framed_image: choice.framed_image.map(open_framed).transpose()?,
                departing: pacing.is_txtime().then(open_departing).transpose()?,
                choice,
                gather: Gather::default(),
                meter: PacerMeter::new(meter.clone(), clock.now()),
                clock: clock.clone(),
                readers: readers.clone(),
                burst,
                ignored_logged: None,
            };
            let core = cores.get(index % cores.len().max(1)).copied();
            let events = events.clone();
            let thread = std::thread::Builder::new()
                .name(format!("pacer-{index}"))
                .spawn(move || {
                    pin(core);
                    raise_priority();
                    Thread::new(tools, inbox, events).run();
                })
                .map_err(|source| Error::Host {
                    call: "clone",
                    object: format!("thread pacer-{index}"),
                    source,
                })?;
            pacers.push(Pacer { commands, sessions: Arc::default(), thread });
        }
        Ok(Pacers { pacers, pacing })
    }

    /// Adds a session to the pacer with the fewest sessions.
    pub(crate) fn add(&self, number: u64, mut session: PacedSession) -> Handle {
        session.prepare(&self.pacing);
        let least = |p: &&Pacer| p.sessions.load(Ordering::Relaxed);
        let pacer = self.pacers.iter().min_by_key(least).expect("there is at least one pacer");
        pacer.sessions.fetch_add(1, Ordering::Relaxed);
        let handle = Handle::new(pacer.commands.clone(), pacer.sessions.clone(), number);
        handle.send(PacerCommand::Add { number, session: Box::new(session) });
        handle
    }

    /// Adds a track to a session.
    pub(crate) fn add_track(&self, handle: &Handle, mut track: PacedTrack) {
        track.prepare(&self.pacing);
        handle.send(PacerCommand::AddTrack { number: handle.number(), track: Box::new(track) });
    }

    /// Returns the number of pacer threads, and the number of those that have ended.
    pub(crate) fn threads(&self) -> (usize, usize) {
        let ended = self.pacers.iter().filter(|pacer| pacer.thread.is_finished()).count();
        (self.pacers.len(), ended)
    }

    pub(crate) fn stop(self) {
        for pacer in &self.pacers {
            let _ = pacer.commands.send(PacerCommand::Stop);
        }
        for pacer in self.pacers {
            // A thread that panicked has logged it; stopping continues.
            let _ = pacer.thread.join();
        }
    }
}

/// Resources of a thread that its sessions share.
pub(crate) struct Tools {
    gathered: Sending,
    image: Option<Sending>,
    framed: Box<dyn InterleavedPath>,
    framed_image: Option<Box<dyn InterleavedPath>>,
    /// Sends with departure times; set if sessions may have them.
    departing: Option<Box<dyn StreamPath>>,
    /// The paths above, for their names.
    choice: StreamPaths,
    gather: Gather,
    meter: PacerMeter,
    clock: Clock,
    readers: PrefetchHandle,
    burst: Duration,
    /// Time at which ignored ICMP was last logged.
    ignored_logged: Option<Instant>,
}

/// One path for short bursts, and another for long ones if that is cheaper.
struct Sending {
    short: Box<dyn StreamPath>,
    long: Option<Box<dyn StreamPath>>,
}

impl Sending {
    fn open(specs: ByBurst) -> Result<Sending, Error> {
        let differ = specs.short.name != specs.long.name;
        let long = differ.then(|| open(specs.long)).transpose()?;
        Ok(Sending { short: open(specs.short)?, long })
    }

    /// Returns the path for a batch of this many packets.
    fn of(&mut self, packets: u64) -> &mut dyn StreamPath {
        match &mut self.long {
            Some(long) if packets >= LONG_FROM_PACKETS => &mut **long,
            _ => &mut *self.short,
        }
    }
}

impl Tools {
    fn counters(&mut self) -> &mut PacerCounters {
        &mut self.meter.counters
    }

    /// Returns the name of the path for frames on connections.
    fn framed_name(&self, is_image: bool) -> &'static str {
        self.choice.framed_image.filter(|_| is_image).unwrap_or(self.choice.framed).name
    }

    /// Returns the name of the path for a batch of this many datagrams.
    fn datagram_name(&self, is_image: bool, packets: u64, is_departing: bool) -> &'static str {
        if is_departing {
            return DEPARTING;
        }
        let paths = self.choice.image.filter(|_| is_image).unwrap_or(self.choice.gathered);
        if packets >= LONG_FROM_PACKETS { paths.long.name } else { paths.short.name }
    }

    /// Logs ignored ICMP at most once a minute.
    fn log_ignored(&mut self, peer: &str) {
        let now = self.clock.now();
        if self.ignored_logged.is_none_or(|at| now.saturating_duration_since(at) > LOG_EVERY) {
            self.ignored_logged = Some(now);
            let ignored = self.counters().icmp_ignored;
            tracing::info!(
                "icmp of {peer} quotes no packet sent lately, or tells of a passing fault: \
                 ignored; {ignored} so far on this thread"
            );
        }
    }
}

struct Thread {
    tools: Tools,
    inbox: Receiver<PacerCommand>,
    events: mpsc::UnboundedSender<Event>,
    streams: HashMap<u64, PacedSession>,
    /// Queued plays, by the number of their session.
    queues: HashMap<u64, StartQueue>,
    wheel: Wheel,
    /// Packets a second of all sessions when all play.
    packets_per_s: u64,
    /// Sessions are woken at multiples of this number of ticks.
    grid_ticks: Tick,
    began: Instant,
    due: Vec<(u64, Tick)>,
}

impl Thread {
    fn new(
        tools: Tools,
        inbox: Receiver<PacerCommand>,
        events: mpsc::UnboundedSender<Event>,
    ) -> Thread {
        let began = tools.clock.now();
        Thread {
            tools,
            inbox,
            events,
            streams: HashMap::new(),
            queues: HashMap::new(),
            wheel: Wheel::new(0),
            packets_per_s: 0,
            grid_ticks: 1,
            began,
            due: Vec::new(),
        }
    }

    fn run(mut self) {
        loop {
            let wake = self.wheel.next().map(|tick| self.moment(tick));
            self.tools.meter.publish_before(wake, &self.tools.clock);
            let command = match wake {
                Some(wake) => {
                    let now = self.tools.clock.now();
                    self.inbox.recv_timeout(wake.saturating_duration_since(now))
                }
                None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match command {
                Ok(PacerCommand::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    return self.tools.meter.publish_before(None, &self.tools.clock);
                }
                Ok(command) => {
                    // `Stop` is handled above.
                    let number = command.session().unwrap_or_default();
                    self.contain(number, |thread| thread.handle_command(command));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.serve_due();
        }
    }

    /// Runs `work` for one session. A panic, which is a bug of this program, ends that session
    /// only; the thread continues for its other sessions, which would otherwise stay silent.
    fn contain(&mut self, number: u64, work: impl FnOnce(&mut Thread)) {
        let done = catch_unwind(AssertUnwindSafe(|| work(self)));
        if done.is_ok() {
            return;
        }
        tracing::error!("session {number}: a fault of this program, reported above; it is ended");
        self.queues.remove(&number);
        let Some(session) = self.streams.remove(&number) else { return };
        self.packets_per_s = self.packets_per_s.saturating_sub(session.packets_per_s());
        let over = StreamEnd::Broken("a fault of this program".to_owned());
        let _ = self.events.send(Event { number, play: session.play(), over });
    }

    fn handle_command(&mut self, command: PacerCommand) {
        match command {
            PacerCommand::Add { number, session } => {
                self.packets_per_s += session.packets_per_s();
                self.streams.insert(number, *session);
                self.grid_ticks = grid_ticks(self.burst_ticks(), self.packets_per_s);
            }
            PacerCommand::AddTrack { number, track } => {
                if let Some(PacedSession::Tracks(tracks)) = self.streams.get_mut(&number) {
                    self.packets_per_s += tracks.add(*track);
                    self.grid_ticks = grid_ticks(self.burst_ticks(), self.packets_per_s);
                }
            }
            PacerCommand::Play { number, play, start } => {
                // Two connections of one client may send PLAY at the same time.
                if self.streams.get(&number).is_some_and(|session| session.play() > play) {
                    return;
                }
                self.queues.remove(&number);
                self.start(number, play, start);
                self.serve(number, true);
            }
            PacerCommand::Queue { number, play, start } => {
                match self.streams.get(&number) {
                    Some(session) if session.is_playing() => {
                        self.queues.entry(number).or_default().push(play, start);
                    }
                    // The preceding play has just ended.
                    Some(_) => {
                        self.start_behind(number, play, start);
                        self.serve(number, true);
                    }
                    None => {}
                }
            }
            PacerCommand::Pause { number, reply } => {
                self.queues.remove(&number);
                if let Some(stream) = self.streams.get_mut(&number) {
                    stream.stop(self.tools.clock.now());
                    // A closed control connection does not read the reply.
                    let _ = reply.send(stream.stopped_at());
                }
            }
            PacerCommand::Trace { number, trace, time, reply } => {
                if let Some(session) = self.streams.get_mut(&number) {
                    let packets_per_s = session.packets_per_s();
                    let now = self.tools.clock.now();
                    let trace = PacketTrace::begin(trace, now..now + time, packets_per_s, reply);
                    *session.trace() = Some(Box::new(trace));
                }
            }
            PacerCommand::EndTrace { number, trace } => {
                if let Some(session) = self.streams.get_mut(&number) {
                    session.trace().take_if(|found| found.number() == trace);
                }
            }
            PacerCommand::Remove { number } => {
                self.queues.remove(&number);
                if let Some(stream) = self.streams.remove(&number) {
                    self.packets_per_s -= stream.packets_per_s();
                }
                self.grid_ticks = grid_ticks(self.burst_ticks(), self.packets_per_s);
            }
            PacerCommand::Stop => unreachable!("handled by run"),
        }
    }

    /// Replaces a session by the result of `changed`.
    fn change(&mut self, number: u64, changed: impl FnOnce(PacedSession) -> PacedSession) {
        if let Some(session) = self.streams.remove(&number) {
            self.packets_per_s -= session.packets_per_s();
            let session = changed(session);
            self.packets_per_s += session.packets_per_s();
            self.streams.insert(number, session);
        }
    }

    /// Starts a play of a session.
    fn start(&mut self, number: u64, play: u64, start: PlayStart) {
        let now = self.tools.clock.now();
        self.change(number, |session| session.for_start(&start, now));
        if let Some(session) = self.streams.get_mut(&number) {
            session.play_from(play, start, now);
        }
    }

    /// Starts a play whose sequence numbers continue those of the preceding play, which has ended.
    fn start_behind(&mut self, number: u64, play: u64, mut start: PlayStart) {
        if let Some(session) = self.streams.get(&number) {
            session.continue_sequence(&mut start);
        }
        self.start(number, play, start);
    }

    /// Starts the next queued play of a session whose play has ended, at the moment of that end;
    /// returns false if none is queued.
    fn start_next(&mut self, number: u64) -> bool {
        let Some(queue) = self.queues.get_mut(&number) else { return false };
        let Some(next) = queue.pop() else {
            self.queues.remove(&number);
            return false;
        };
        let end = self.streams.get(&number).and_then(PacedSession::end_moment);
        self.start_behind(number, next.play, next.start);
        if let (Some(session), Some(end)) = (self.streams.get_mut(&number), end) {
            session.begin_at(end);
        }
        true
    }

    fn serve_due(&mut self) {
        let now = self.tick(self.tools.clock.now());
        let mut due = std::mem::take(&mut self.due);
        self.wheel.take(now, &mut due);
        for &(number, tick) in &due {
            let awaited =
                self.streams.get(&number).is_some_and(|s| s.is_playing() && s.wake() == tick);
            if awaited {
                self.contain(number, |thread| thread.serve(number, false));
            }
        }
        due.clear();
        self.due = due;
    }

    /// Runs one step of a session and enters its next wake. The first wake of a `fresh` session is
    /// placed in the emptiest slot.
    fn serve(&mut self, number: u64, fresh: bool) {
        let now = self.tools.clock.now();
        let tick = self.tick(now);
        let burst_ticks = self.burst_ticks();
        let grid_ticks = self.grid_ticks;
        let on_grid = |tick: Tick| tick - tick % grid_ticks;
        let wake = match fresh {
            true => self.quiet_tick(tick, burst_ticks),
            false => on_grid(tick + burst_ticks).max(tick + 1),
        };
        let wake_moment = self.moment(wake);
        let Some(stream) = self.streams.get_mut(&number) else { return };
        let overslept = if fresh { 0 } else { tick.saturating_sub(stream.wake()) };
        let wakes = (wake_moment, Duration::from_millis(overslept));
        let mut step = stream.step(now, wakes, &mut self.tools);
        while matches!(step, Step::Ended(StreamEnd::Finished)) && self.start_next(number) {
            let Some(stream) = self.streams.get_mut(&number) else { return };
            step = stream.step(now, wakes, &mut self.tools);
        }
        let Some(stream) = self.streams.get_mut(&number) else { return };
        if let Some(queue) = self.queues.get_mut(&number) {
            queue.look_ahead(stream, &self.tools.readers, now);
        }
        let waits = stream.note_step(&step);
        let next = match step {
            Step::Sent { due } => wake.max(on_grid(tick_of(self.began, due))),
            Step::Behind => tick + (burst_ticks / u64::from(CATCH_UP)).max(1),
            Step::Wait => tick + (RETRY_TICKS << waits.min(RETRY_DOUBLINGS_MAX)),
            Step::Ended(over) => {
                stream.stop(now);
                self.queues.remove(&number);
                // The receiver is gone only while the server stops.
                let _ = self.events.send(Event { number, play: stream.play(), over });
                return;
            }
        };
        stream.set_wake(self.wheel.insert(number, next));
    }

    /// Returns the emptiest slot on the grid in the coming burst.
    fn quiet_tick(&self, now: Tick, burst_ticks: u64) -> Tick {
        let first = (now + 1).next_multiple_of(self.grid_ticks);
        let slots = (first..=now + burst_ticks).step_by(self.grid_ticks as usize);
        slots.min_by_key(|&tick| self.wheel.load(tick)).unwrap_or(now + 1)
    }

    fn burst_ticks(&self) -> Tick {
        (self.tools.burst.as_millis() as u64).clamp(1, HORIZON_TICKS)
    }

    fn tick(&self, moment: Instant) -> Tick {
        tick_of(self.began, moment)
    }

    fn moment(&self, tick: Tick) -> Instant {
        self.began + Duration::from_millis(tick)
    }
}

/// Returns the distance between slots in use: a divisor of the burst, so that a wake one burst
/// later is on the grid again. It is as wide as [`PACKETS_PER_WAKE`] permits, and one tick once
/// each slot has that many packets.
fn grid_ticks(burst_ticks: Tick, packets_per_s: u64) -> Tick {
    let widest = (1000 * PACKETS_PER_WAKE / packets_per_s.max(1)).clamp(1, burst_ticks);
    (1..=widest).rev().find(|ticks| burst_ticks.is_multiple_of(*ticks)).unwrap_or(1)
}

fn tick_of(began: Instant, moment: Instant) -> Tick {
    moment.saturating_duration_since(began).as_millis() as Tick
}

fn open(spec: &'static Spec) -> Result<Box<dyn StreamPath>, Error> {
    match spec.open {
        Open::Stream { open, .. } => Ok(open()?),
        Open::Download(_) | Open::Interleaved { .. } => Err(Error::Setting {
            setting: Setting::Paths,
            found: spec.name.to_owned(),
            cure: "this path does not send datagrams; name one of transport rtp".to_owned(),
        }),
    }
}

fn open_framed(spec: &'static Spec) -> Result<Box<dyn InterleavedPath>, Error> {
    let Open::Interleaved { open, .. } = spec.open else { panic!("{spec} sends no frames") };
    Ok(open()?)
}

/// Opens the path for batches with departure times. It sends from the file, since `sendfile`, which
/// sends wire images, carries no departure times.
fn open_departing() -> Result<Box<dyn StreamPath>, Error> {
    let path = open(paths::find(Transport::Rtp, DEPARTING).expect("it is in the list"))?;
    assert!(path.carries_departures(), "{DEPARTING} carries departure times");
    Ok(path)
}

/// The path with segmented sends that supports departure times.
const DEPARTING: &str = "mmap_gso";
/// Packets sent at one wake: sessions that would wake apart are woken together up to this number.
/// They form 1.4 MB, a millisecond of 10 Gb/s. A device's usual queue (`txqueuelen` 1000) holds ten
/// times that, since it counts the packets of one call as one.
const PACKETS_PER_WAKE: u64 = 1024;
/// Interval of log lines for repeated events on a data path.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// First retry of a session that waits for pages or the socket; each further one doubles it, up to
/// 32 ms: a thousand sessions on a dead disk must not keep a core busy with retries.
const RETRY_TICKS: u64 = 1;
const RETRY_DOUBLINGS_MAX: u32 = 5;
/// Wakes per burst of a session that is behind, and media sent per unit of a wake's lateness.
pub(super) const CATCH_UP: u32 = 4;

#[cfg(test)]
mod clock_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_sessions_share_slots_and_many_have_all() {
        // 475 packets a second are 5 Mb/s.
        assert_eq!(grid_ticks(20, 0), 20);
        assert_eq!(grid_ticks(20, 100 * 475), 20);
        assert_eq!(grid_ticks(20, 120 * 475), 10, "17 does not divide a burst");
        assert_eq!(grid_ticks(20, 500 * 475), 4);
        assert_eq!(grid_ticks(20, 2500 * 475), 1);
        assert_eq!(grid_ticks(20, u64::MAX), 1);
        assert_eq!(grid_ticks(1, 1), 1);
        assert_eq!(grid_ticks(7, 100 * 475), 7);
    }
}
