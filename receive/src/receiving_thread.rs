// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread that receives the datagrams of its ports and the frames of its RTSP connections
//! ([`FrameInput`]), and hands them to their streams.
//!
//! The thread does not wake for each packet. After it has emptied every port it sleeps for [`PACE`]
//! while the kernel queues datagrams, so that each call returns many datagrams and whole
//! super-packets (GRO). With small socket buffers it sleeps only until they could fill
//! ([`ReceivePath::pause_max`]). Arrival times are the kernel's, if the path reports them. Errors
//! of a path (such as a removed interface) are counted, logged at most once a minute, and retried.
//! Ports on a removed interface are bound again when the interface returns.
//!
//! Sources: `paths::ReceivePath`.
//! Does not parse datagrams ([`crate::recorded_stream`] does), or write files.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use client::rtp_receiver::ArrivalClock;
use client::{FrameQueue, RefusedSenders, TrackCounts};
use paths::{FULL_CALL_PACKETS, Port, ReceivePath, ReceiveStats, Via};

use crate::frame_input::{EndedFrames, FrameInput};
use crate::recorded_stream::RecordedStream;
use crate::relay::RelaySocket;

/// Streams by key. The receiving thread locks a stream for each burst; the tasks that send reports
/// and display figures lock it occasionally.
pub(crate) type Streams = Arc<[Mutex<RecordedStream>]>;

/// Locks a mutex, even if a thread panicked while holding it: its figures remain usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Command to the thread.
pub(crate) enum PortCommand {
    /// Bind this port and receive from it; `done` returns its address.
    Add {
        key: u32,
        port: Port,
        done: Sender<Result<Option<SocketAddr>, String>>,
    },
    /// Receive the frames of an RTSP connection.
    AddFrames {
        key: u32,
        frames: FrameQueue,
    },
    /// Stop receiving from this port or connection.
    Remove {
        key: u32,
    },
    Stop,
}

/// Has a receiving thread bind a port and receive from it.
///
/// # Errors
/// The reason, from the kernel.
pub(crate) fn add_port(receiver: &Sender<PortCommand>, key: u32, port: Port) -> Result<(), String> {
    let (done, answer) = channel();
    let gone = |_| RECEIVER_GONE.to_owned();
    receiver.send(PortCommand::Add { key, port, done }).map_err(|_| gone(()))?;
    // The thread handles commands within tens of milliseconds.
    answer.recv_timeout(ADD_WAIT).map_err(|_| gone(()))?.map(|_| ())
}

pub(crate) const RECEIVER_GONE: &str = "the receiving thread has ended";
const ADD_WAIT: Duration = Duration::from_secs(5);

/// Statistics of a thread's path.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReceiverStats {
    pub(crate) received: ReceiveStats,
    /// Number of errors of the path, and the last of them.
    pub(crate) errors: u64,
    pub(crate) last_error: Option<String>,
    /// Datagrams dropped by the kernel, by key.
    pub(crate) dropped: Vec<u64>,
    /// Datagrams that could not be sent to a relay's targets, by key.
    pub(crate) unsent: Vec<u64>,
}

impl ReceiverStats {
    pub(crate) fn set_dropped(&mut self, key: u32, dropped: u64) {
        *at(&mut self.dropped, key) = dropped;
    }

    pub(crate) fn set_unsent(&mut self, key: u32, unsent: u64) {
        *at(&mut self.unsent, key) = unsent;
    }
}

fn at(list: &mut Vec<u64>, key: u32) -> &mut u64 {
    let index = key as usize;
    if list.len() <= index {
        list.resize(index + 1, 0);
    }
    &mut list[index]
}

/// The state of the thread.
pub(crate) struct ReceivingThread {
    pub(crate) path: Box<dyn ReceivePath>,
    pub(crate) via: Via,
    pub(crate) streams: Streams,
    pub(crate) ports: Vec<BoundPort>,
    pub(crate) frames: FrameInput,
    /// Sockets that relay the streams, by key.
    pub(crate) copiers: HashMap<u32, RelaySocket>,
    pub(crate) inbox: Receiver<PortCommand>,
    pub(crate) stats: Arc<Mutex<ReceiverStats>>,
    pub(crate) clock: ArrivalClock,
    pub(crate) pace: Pacing,
    /// Time at which the ports are checked next.
    pub(crate) check_at: Duration,
}

/// A port that is bound by the path.
pub(crate) struct BoundPort {
    pub(crate) key: u32,
    pub(crate) port: Port,
    /// Kernel index of its interface; `None` while the interface is absent.
    interface: Option<u32>,
    is_in: bool,
    /// Datagrams dropped before the port was bound again.
    dropped_before: u64,
}

impl BoundPort {
    pub(crate) fn new(key: u32, port: Port) -> BoundPort {
        let interface = port.interface.as_deref().and_then(interface_number);
        BoundPort { key, port, interface, is_in: true, dropped_before: 0 }
    }
}

/// Returns the ports whose drops are counted. A device path counts the drops of all ports of a
/// device together: only the first port of each device is returned.
fn counting(ports: &[BoundPort], via: Via) -> impl Iterator<Item = &BoundPort> {
    ports.iter().enumerate().filter_map(move |(index, bound)| {
        let device = &bound.port.interface;
        let stats = || ports[..index].iter().any(|before| before.port.interface == *device);
        (via == Via::Socket || !stats()).then_some(bound)
    })
}

impl ReceivingThread {
    /// Receives until it is stopped, reads the remaining datagrams of the sockets, and ends the
    /// streams.
    pub(crate) fn run(mut self) {
        raise_priority();
        while let Some(received) = self.turn(WAIT) {
            self.pace.after(received, self.path.pause_max(), &self.stats, self.clock.now());
        }
        self.finish();
    }

    /// Handles pending commands, receives for `wait` at most, and does the periodic work that is
    /// due; returns the result of the path, or `None` if the thread must stop.
    pub(crate) fn turn(&mut self, wait: Duration) -> Option<Result<usize, paths::Error>> {
        if !self.handle_commands() {
            return None;
        }
        let received = self.receive(wait);
        self.receive_frames(EndedFrames::None);
        let now = self.clock.now();
        if self.pace.is_tick_due(now) {
            self.tick();
        }
        if now >= self.check_at {
            self.check_at = now + CHECK_EVERY;
            self.check_ports();
        }
        Some(received)
    }

    /// Receives what waits, and ends the streams.
    pub(crate) fn finish(&mut self) {
        self.receive_what_waits();
        self.receive_frames(EndedFrames::All);
        for (key, address) in self.inputs() {
            let stream = &self.streams[key as usize];
            lock(stream).end();
            // The tick counts packets that are still on probation.
            tick(stream, address, self.clock.now());
        }
        self.check_ports();
    }

    /// Handles pending commands; returns false if the thread must stop.
    fn handle_commands(&mut self) -> bool {
        loop {
            match self.inbox.try_recv() {
                Ok(PortCommand::Add { key, port, done }) => {
                    let dropped_before = self.unbind(key);
                    let added = self.path.add(&port, key).map_err(|error| error.to_string());
                    let address = added.map(|()| self.path.address(key));
                    if address.is_ok() {
                        self.ports.retain(|bound| bound.key != key);
                        self.ports.push(BoundPort { dropped_before, ..BoundPort::new(key, port) });
                    }
                    // The requesting session may have been stopped meanwhile.
                    let _ = done.send(address);
                }
                Ok(PortCommand::AddFrames { key, frames }) => self.frames.add(key, frames),
                Ok(PortCommand::Remove { key }) => {
                    // Empties the queue; the limit ends the loop if the server keeps sending.
                    for _ in 0..LAST_TURNS_MAX {
                        if !self.receive_frames(EndedFrames::Of(key)) {
                            break;
                        }
                    }
                    self.frames.remove(key);
                    self.receive_what_waits();
                    lock(&self.streams[key as usize]).end_session();
                    // The stream is kept: another session may continue it.
                    self.unbind(key);
                }
                Err(TryRecvError::Empty) => return true,
                Ok(PortCommand::Stop) | Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Receives the datagrams queued at the sockets, before one of them is closed. The number of
    /// calls is limited, in case a sender keeps sending.
    fn receive_what_waits(&mut self) {
        for _ in 0..LAST_CALLS_MAX {
            if !matches!(self.receive(Duration::ZERO), Ok(1..)) {
                break;
            }
        }
    }

    /// Unbinds a port; returns the number of datagrams dropped there so far.
    fn unbind(&mut self, key: u32) -> u64 {
        let dropped = self.path.dropped(key);
        self.path.remove(key);
        let bound = self.ports.iter_mut().find(|bound| bound.key == key);
        bound.map_or(0, |bound| {
            bound.dropped_before += dropped;
            // Without an interface name, `check_ports` does not bind the port again.
            bound.port.interface = None;
            bound.dropped_before
        })
    }

    fn receive(&mut self, wait: Duration) -> Result<usize, paths::Error> {
        let (streams, clock, copiers) = (&self.streams, &self.clock, &mut self.copiers);
        self.path.receive(wait, &mut |arrivals| {
            let (now, wall) = clock.moment();
            for of_port in arrivals.chunk_by(|a, b| a.key == b.key) {
                let Some(stream) = streams.get(of_port[0].key as usize) else { continue };
                let mut stream = lock(stream);
                let mut copier = copiers.get_mut(&of_port[0].key);
                for arrival in of_port {
                    let arrived_at = ArrivalClock::arrival(arrival.time, now, wall, STAMP_AGE_MAX);
                    for datagram in arrival.datagrams() {
                        let is_sent_on = stream.take(datagram, arrival.source, arrived_at);
                        if let Some(copier) = copier.as_mut().filter(|_| is_sent_on) {
                            copier.send(datagram);
                        }
                    }
                }
            }
        })
    }

    fn receive_frames(&mut self, ended: EndedFrames) -> bool {
        self.frames.receive(ended, &self.streams, &self.clock, &mut self.copiers)
    }

    /// Keys and addresses of all inputs.
    fn inputs(&self) -> impl Iterator<Item = (u32, SocketAddr)> {
        let ports = self.ports.iter().map(|bound| (bound.key, bound.port.address));
        ports.chain(self.frames.senders())
    }

    fn tick(&self) {
        let now = self.clock.now();
        for (key, address) in self.inputs() {
            tick(&self.streams[key as usize], address, now);
        }
    }

    /// Reads the kernel's counts of drops, and checks that interfaces exist.
    fn check_ports(&mut self) {
        for bound in &mut self.ports {
            if let Some(name) = &bound.port.interface {
                let found = interface_number(name);
                if found != bound.interface || !bound.is_in {
                    bound.interface = found;
                    bound.dropped_before += self.path.dropped(bound.key);
                    self.path.remove(bound.key);
                    bound.is_in = found.is_some() && self.path.add(&bound.port, bound.key).is_ok();
                }
            }
        }
        let mut stats = lock(&self.stats);
        stats.received = self.frames.added_to(self.path.stats());
        for bound in counting(&self.ports, self.via) {
            let dropped = bound.dropped_before + self.path.dropped(bound.key);
            stats.set_dropped(bound.key, dropped);
        }
        for (&key, copier) in &self.copiers {
            stats.set_unsent(key, copier.lost);
        }
    }
}

/// Sets the counts of the tracks of a stream so far; logs their refused senders.
pub(crate) fn note_tracks(
    (stream, shown): (&Mutex<RecordedStream>, &str),
    (counts, refused): (TrackCounts, RefusedSenders),
    now: Duration,
) {
    let log_line = {
        let mut stream = lock(stream);
        stream.set_track_counts(counts);
        stream.refused().absorb(refused);
        stream.refused().log_line(now)
    };
    if let Some(log_line) = log_line {
        tracing::warn!("{shown}: {log_line}");
    }
}

/// Advances the time of a stream; logs the refused senders of its port.
pub(crate) fn tick(stream: &Mutex<RecordedStream>, address: SocketAddr, now: Duration) {
    let log_line = {
        let mut stream = lock(stream);
        stream.tick(now);
        stream.refused().log_line(now)
    };
    if let Some(log_line) = log_line {
        tracing::warn!("{address}: {log_line}");
    }
}

/// Pacing of a receiving thread: sleeps after bursts, continues at once under load, and logs errors
/// at most once a minute. Times are those of the recording's clock.
#[derive(Debug, Default)]
pub(crate) struct Pacing {
    tick_at: Duration,
    logged_at: Option<Duration>,
    /// True once a pause shorter than [`PACE`], caused by small buffers, was logged.
    is_short: bool,
}

impl Pacing {
    /// Sleeps after a call that has emptied every port, for `pause_max` at most.
    pub(crate) fn after(
        &mut self,
        received: Result<usize, paths::Error>,
        pause_max: Duration,
        stats: &Mutex<ReceiverStats>,
        now: Duration,
    ) {
        match received {
            Ok(0) | Ok(FULL_CALL_PACKETS..) => {}
            Ok(_) => {
                if pause_max < PACE && !std::mem::replace(&mut self.is_short, true) {
                    tracing::info!(
                        "receive buffers are small: ports are looked at every {} µs instead of \
                         {} µs, which costs more; raise net.core.rmem_max",
                        pause_max.max(PACE_MIN).as_micros(),
                        PACE.as_micros()
                    );
                }
                std::thread::sleep(pause_max.clamp(PACE_MIN, PACE));
            }
            Err(error) => {
                if self.logged_at.is_none_or(|at| now.saturating_sub(at) >= LOG_EVERY) {
                    tracing::warn!("{error}; still trying");
                    self.logged_at = Some(now);
                }
                let mut stats = lock(stats);
                stats.errors += 1;
                stats.last_error = Some(error.to_string());
                drop(stats);
                std::thread::sleep(PAUSE_AFTER_ERROR);
            }
        }
    }

    pub(crate) fn is_tick_due(&mut self, now: Duration) -> bool {
        let is_due = now >= self.tick_at;
        if is_due {
            self.tick_at = now + TICK_EVERY;
        }
        is_due
    }
}

/// Returns the kernel's index of an interface, in the network namespace of this process.
pub(crate) fn interface_number(name: &str) -> Option<u32> {
    use rustix::net::{AddressFamily, SocketType, netdevice, socket};
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    netdevice::name_to_index(&any, name).ok()
}

/// Raises the priority of this thread, if the process may (root, CAP_SYS_NICE, RLIMIT_NICE): the
/// thread sleeps between bursts, and a port's buffer fills while it waits for a core.
pub(crate) fn raise_priority() {
    // setpriority(2): on Linux the value is the thread's own.
    let own = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(own), RECEIVER_NICE) {
        tracing::debug!("setpriority {RECEIVER_NICE}: {error}; the receiver has no priority");
    }
}

/// The same value as for a pacer of `serve`.
const RECEIVER_NICE: i32 = -15;
/// Long enough to collect many packets of each stream, short compared with the time that socket
/// buffers last.
const PACE: Duration = Duration::from_millis(4);
/// A shorter sleep costs more processor time than it saves.
const PACE_MIN: Duration = Duration::from_micros(100);
/// Longest wait for a datagram: the longest delay of a command when no datagram arrives.
const WAIT: Duration = Duration::from_millis(20);
const TICK_EVERY: Duration = Duration::from_millis(20);
const CHECK_EVERY: Duration = Duration::from_secs(1);
const LOG_EVERY: Duration = Duration::from_secs(60);
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);
const LAST_CALLS_MAX: u32 = 64;
/// Twice the number of calls that empty a full queue of frames.
const LAST_TURNS_MAX: u32 = 8;
/// An older timestamp means that the clock was set meanwhile.
pub(crate) const STAMP_AGE_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_drops_is_counted_once() {
        let bound = |key: u32, interface: &str| {
            let port = Port {
                address: SocketAddr::from(([127, 0, 0, 1], 5004 + 2 * key as u16)),
                sources: Vec::new(),
                interface: Some(interface.to_owned()),
                buffer_bytes: 0,
            };
            BoundPort::new(key, port)
        };
        let ports = [bound(0, "a"), bound(1, "b"), bound(2, "a"), bound(3, "b")];
        let keys = |via| counting(&ports, via).map(|bound| bound.key).collect::<Vec<_>>();
        assert_eq!(keys(Via::Socket), [0, 1, 2, 3]);
        assert_eq!(keys(Via::Device), [0, 1]);
    }
}
