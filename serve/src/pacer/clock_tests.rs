// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pacer's thread under a clock that the test sets: when each packet is due and when it leaves,
//! compared exactly, over a minute that takes as long as its steps.
//!
//! The test does what [`Thread::run`] does: it carries out commands, and lets the thread serve what
//! is due at each tick of its wheel. All media are in memory.
//!
//! Does not test a host's clock or scheduler, nor waits for a disk; `make test-time` does.

use std::net::UdpSocket;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::time::UNIX_EPOCH;

use clock::SetClock;
use paths::{Batch, Destination};
use tokio::sync::oneshot;

use super::media_target::MediaTarget;
use super::paced_stream::tests::{SendingBy, source, tools};
use super::*;
use crate::library::asset::Source;
use crate::meter::Meters;
use crate::play::{Link, Shift, Speed, TracedPackets};
use crate::prefetch::Readers;

const BURST: Duration = Duration::from_millis(20);
/// The assets here have a packet every hundredth of a second.
const APART: Duration = Duration::from_millis(10);

/// A pacer's thread whose time the test sets, and sessions of one asset.
struct Stage {
    set: SetClock,
    thread: Thread,
    source: Arc<Source>,
    readers: Option<Readers>,
    ended: mpsc::UnboundedReceiver<Event>,
    sent: Arc<AtomicU64>,
    /// Wakes of the thread.
    wakes: u64,
    folder: tempfile::TempDir,
}

impl Stage {
    /// Opens a thread for an asset of this many packets.
    fn open(packets: u64) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let source = source(&folder, 188, packets);
        let (meters, readers) = (Meters::new(1), Readers::start(|_| true).unwrap());
        let sent = Arc::<AtomicU64>::default();
        let counted = sent.clone();
        let path = SendingBy(move |batch: &Batch<'_>| {
            counted.fetch_add(batch.packets.into(), Ordering::Relaxed);
            Ok(())
        });
        let set = SetClock::at(UNIX_EPOCH);
        let mut tools = tools(Box::new(path), None, (&meters, &readers), BURST);
        tools.clock = set.clock();
        let (events, ended) = mpsc::unbounded_channel();
        let thread = Thread::new(tools, channel().1, events);
        let readers = Some(readers);
        Stage { set, thread, source, readers, ended, sent, wakes: 0, folder }
    }

    /// Adds a session, traced from now on.
    fn add(&mut self, number: u64) -> oneshot::Receiver<TracedPackets> {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(socket.local_addr().unwrap()).unwrap();
        let to = Destination::new(socket, "here".to_owned()).unwrap();
        let link = Arc::new(Link::default());
        link.source.answer(0..self.source.end(), true);
        let to = MediaTarget::Datagrams(Box::new(to));
        let stream = PacedStream::new(self.source.clone(), to, link);
        let session = Box::new(PacedSession::Stream(Box::new(stream)));
        self.thread.handle_command(PacerCommand::Add { number, session });
        let (reply, traced) = oneshot::channel();
        let time = Duration::from_secs(3600);
        self.thread.handle_command(PacerCommand::Trace { number, trace: 1, time, reply });
        traced
    }

    fn play(&mut self, number: u64, play: u64, packets: Range<u64>, speed: Speed) {
        let (source, shift, lead) = (self.source.clone(), Shift::default(), None);
        let start = PlayStart::Stream { source, shift, speed, packets, lead };
        self.thread.handle_command(PacerCommand::Play { number, play, start });
    }

    /// Pauses a session; returns its next packet.
    fn pause(&mut self, number: u64) -> u64 {
        let (reply, mut stopped) = oneshot::channel();
        self.thread.handle_command(PacerCommand::Pause { number, reply });
        stopped.try_recv().unwrap()
    }

    /// Lets time pass; the thread wakes at each tick that has a session.
    fn run_for(&mut self, time: Duration) {
        let until = self.set.now() + time;
        while let Some(tick) = self.thread.wheel.next() {
            let wake = self.thread.moment(tick);
            if wake > until {
                break;
            }
            self.set.advance_to(wake);
            self.thread.serve_due();
            self.wakes += 1;
        }
        self.set.advance_to(until);
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Ends a session; returns the due times and departures of its packets.
    fn finish(
        &mut self,
        number: u64,
        mut traced: oneshot::Receiver<TracedPackets>,
    ) -> Vec<(Instant, Instant)> {
        self.thread.handle_command(PacerCommand::Remove { number });
        let traced = traced.try_recv().unwrap();
        assert_eq!(traced.left_out, 0);
        traced.packets.iter().map(|packet| (packet.due, packet.sent)).collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.readers.take().into_iter().for_each(Readers::stop);
        assert!(self.folder.path().exists());
    }
}

/// Asserts that packets are due one after the other from `begin` on, and leave in the burst before.
#[track_caller]
fn assert_on_time(packets: &[(Instant, Instant)], begin: Instant, apart: Duration) {
    for (number, (due, sent)) in packets.iter().enumerate() {
        assert_eq!(*due, begin + apart * number as u32, "packet {number}");
        let early = due.checked_duration_since(*sent);
        assert!(early.is_some_and(|early| early <= BURST), "packet {number}: {early:?}");
    }
}

#[test]
fn a_minute_of_forty_sessions_leaves_on_time_packet_by_packet() {
    const SESSIONS: u64 = 40;
    let mut stage = Stage::open(6000);
    let mut sessions = Vec::new();
    for number in 0..SESSIONS {
        let traced = stage.add(number);
        let began = stage.set.now();
        stage.play(number, 1, 0..6000, Speed::ONE);
        sessions.push((traced, began));
        stage.run_for(Duration::from_millis(7));
    }
    stage.run_for(Duration::from_secs(60));
    let ends: Vec<Event> = std::iter::from_fn(|| stage.ended.try_recv().ok()).collect();
    // Sessions of one rate end in the order of their beginning, but for those of one burst.
    assert!(ends.iter().all(|end| end.over == StreamEnd::Finished), "{ends:?}");
    assert_eq!((ends.len() as u64, stage.sent()), (SESSIONS, 6000 * SESSIONS));
    let counters = &stage.thread.tools.meter.counters;
    assert_eq!((counters.cold_stalls, counters.clock_moves), (0, 0));
    let late = &counters.late_us;
    // It counts from a microsecond on.
    assert_eq!((late.len(), late.max()), (6000 * SESSIONS, 1), "none is late");
    for (number, (traced, began)) in (0..).zip(sessions) {
        let packets = stage.finish(number, traced);
        assert_eq!(packets.len(), 6000);
        assert_on_time(&packets, began, APART);
    }
    // Few sessions share the thread's wakes: one a burst, and not one a burst and session.
    let bursts = 60_000 / BURST.as_millis() as u64;
    assert!((bursts..bursts * 3).contains(&stage.wakes), "{} wakes", stage.wakes);
}

#[test]
fn pause_seek_and_speed_give_no_more_than_the_time_that_passed() {
    let mut stage = Stage::open(6000);
    let traced = stage.add(1);
    let began = stage.set.now();
    stage.play(1, 1, 0..6000, Speed::ONE);
    stage.run_for(Duration::from_secs(2));
    let next = stage.pause(1);
    // Packets that are due before the next wake have left.
    assert!((200..=202).contains(&next), "{next}");
    stage.run_for(Duration::from_secs(30));
    assert_eq!(stage.sent(), next, "nothing leaves in a pause");

    let resumed = stage.set.now();
    stage.play(1, 2, next..6000, Speed::nearest(2.0));
    stage.run_for(Duration::from_secs(3));
    let at = stage.pause(1);
    let doubled = next + 600;
    assert!((doubled..=doubled + 4).contains(&at), "{at}");

    // A client that asks for beginnings again and again: each begins at the end of the one before.
    let before = stage.sent();
    for play in 3..103 {
        stage.play(1, play, 4000..6000, Speed::ONE);
        stage.run_for(Duration::from_millis(1));
    }
    let given = stage.sent() - before;
    assert!(given <= 100 / 10 + 2, "{given} packets in a tenth of a second");

    let packets = stage.finish(1, traced);
    let (first, rest) = packets.split_at(next as usize);
    assert_on_time(first, began, APART);
    assert_on_time(&rest[..(at - next) as usize], resumed, APART / 2);
}

#[test]
fn thread_that_stood_still_catches_up_and_counts_what_is_late() {
    let mut stage = Stage::open(6000);
    let traced = stage.add(1);
    let began = stage.set.now();
    stage.play(1, 1, 0..6000, Speed::ONE);
    stage.run_for(Duration::from_secs(1));
    let sent = stage.sent();
    stage.set.advance(Duration::from_millis(500));
    stage.run_for(Duration::from_millis(500));
    // 52 packets at most were due in that time: all of them have left, late.
    assert!((200..=202).contains(&stage.sent()), "{}", stage.sent());
    let packets = stage.finish(1, traced);
    let stood = began + Duration::from_millis(1500);
    for (number, (due, left)) in packets.iter().enumerate() {
        assert_eq!(*due, began + APART * number as u32);
        let late = left.saturating_duration_since(*due);
        let was_due = (sent as usize..150).contains(&number);
        assert_eq!(was_due && due < &stood, !late.is_zero(), "packet {number}: {late:?}");
    }
    let late: Vec<u64> = packets
        .iter()
        .map(|(due, left)| left.saturating_duration_since(*due).as_micros() as u64)
        .collect();
    let counters = &stage.thread.tools.meter.counters;
    assert_eq!(counters.late_us.len(), stage.sent());
    let most = *late.iter().max().unwrap();
    // The histogram has two digits.
    assert!(counters.late_us.max().abs_diff(most) <= most / 100, "{most}");
    assert!(most > 400_000, "{most}");
}
