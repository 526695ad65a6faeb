// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that reads the sockets of all verified sessions.
//!
//! It visits them every 10 ms and reads all datagrams. The kernel has timestamped each on arrival,
//! so the thread's own delay does not affect the lateness of packets. That delay is measured
//! separately: it shows how this machine schedules a program that needs little CPU, which is
//! evidence for the bottleneck. Costs one system call for each session and visit, and one for each
//! 32 packets.
//!
//! A session is passed to the thread when its PLAY has been answered. Earlier packets wait in its
//! socket with their timestamps.
//!
//! Sources: socket(7) SO_TIMESTAMPNS.
//! Does not read sessions that are not verified.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clock::Clock;
use hdrhistogram::Histogram;
use paths::dropped_packets;

use super::sampled_stats::{SampledStats, Window};
use crate::error::Error;
use crate::rtp_receiver::{ArrivalClock, SocketReader};
use crate::stream_stats::lock;

/// A stream of a verified session.
pub(super) struct SampledStream {
    pub(super) socket: UdpSocket,
    pub(super) stats: Arc<Mutex<SampledStats>>,
}

/// Handle of the thread.
pub(super) struct SampleReader {
    pub(super) inbox: Sender<SampledStream>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Histogram<u64>>,
}

impl SampleReader {
    pub(super) fn start(window: Arc<Window>) -> Result<SampleReader, Error> {
        let (inbox, streams_in) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stop_flag = stop.clone();
        let host = |source| Error::Host { call: "clone", object: "thread reader".into(), source };
        let thread = std::thread::Builder::new()
            .name("reader".to_owned())
            .spawn(move || read(&streams_in, &stop_flag, &window))
            .map_err(host)?;
        Ok(SampleReader { inbox, stop, thread })
    }

    /// Reads the datagrams left in the sockets and ends the thread; returns its delays in
    /// microseconds, within the measured time.
    pub(super) fn stop(self) -> Histogram<u64> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap_or_else(|_| delays())
    }
}

/// An empty histogram.
pub(super) fn delays() -> Histogram<u64> {
    Histogram::new_with_bounds(1, DELAY_US_MAX, 2).expect("bounds are constants")
}

fn read(
    streams_in: &Receiver<SampledStream>,
    stop: &AtomicBool,
    window: &Window,
) -> Histogram<u64> {
    let mut delays = delays();
    let mut reader = SocketReader::new(ArrivalClock::start(&Clock::HOST));
    let mut streams = Vec::new();
    let mut due = Instant::now();
    loop {
        let is_last = stop.load(Ordering::Acquire);
        streams.extend(streams_in.try_iter());
        for stream in &streams {
            drain(stream, &mut reader, window);
        }
        // This is the only reference to the statistics of an ended stream: its socket is closed.
        streams.retain(|stream| Arc::strong_count(&stream.stats) > 1);
        if is_last {
            return delays;
        }
        due += VISIT_EVERY;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let now = Instant::now();
        let delay = now.saturating_duration_since(due);
        if window.holds(now) {
            delays.saturating_record((delay.as_micros() as u64).max(1));
        }
        // A late visit does not delay the next one.
        if delay > VISIT_EVERY {
            due = now;
        }
    }
}

fn drain(stream: &SampledStream, reader: &mut SocketReader, window: &Window) {
    let mut stats = lock(&stream.stats);
    let clock = reader.clock.clone();
    for _ in 0..CALLS_MAX {
        // A pending ICMP message is not counted.
        let Ok((more, datagrams)) = reader.read(&stream.socket) else { break };
        for datagram in datagrams {
            stats.take(&datagram, &clock, window);
        }
        if !more {
            break;
        }
    }
    if let Ok(dropped) = dropped_packets(&stream.socket) {
        stats.packets.note_drops(dropped, Instant::now());
    }
}

const VISIT_EVERY: Duration = Duration::from_millis(10);
/// A session that sends faster than it is read must not starve the others.
const CALLS_MAX: usize = 1024;
const DELAY_US_MAX: u64 = 60_000_000;
