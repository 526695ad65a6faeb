// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that reads the sockets of all verified sessions.
//!
//! It visits them every 10 ms and takes all datagrams: the kernel has stamped each on arrival, so
//! the thread's own delay is in no packet's lateness. That delay is measured separately: it shows
//! how this machine treats a program that needs little, which is evidence when the bottleneck is
//! sought. Costs one system call a session and visit, and one for each 32 packets.
//!
//! A session is handed over when its PLAY has been answered. Earlier packets wait in its socket,
//! stamped.
//!
//! Sources: socket(7) SO_TIMESTAMPNS.
//! Does nothing for sessions that are not verified.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use paths::dropped_packets;

use super::sampled_stats::{SampledStats, Window};
use crate::error::Error;
use crate::receive_thread::lock;
use crate::rtp_receiver::SocketReader;

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

    /// Takes what is still in the sockets and ends the thread; returns its delays in microseconds,
    /// within the measured time.
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
    let mut reader = SocketReader::new();
    let mut streams = Vec::new();
    let mut due = Instant::now();
    loop {
        let is_last = stop.load(Ordering::Acquire);
        streams.extend(streams_in.try_iter());
        for stream in &streams {
            drain(stream, &mut reader, window);
        }
        // Of a stream that is over nobody else has the statistics: its socket is closed.
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
        // A late visit does not make the next one late.
        if delay > VISIT_EVERY {
            due = now;
        }
    }
}

fn drain(stream: &SampledStream, reader: &mut SocketReader, window: &Window) {
    let mut stats = lock(&stream.stats);
    let clock = reader.clock;
    for _ in 0..CALLS_MAX {
        // An ICMP message that was left behind is not counted.
        let Ok((more, datagrams)) = reader.read(&stream.socket) else { break };
        for datagram in datagrams {
            stats.take(&datagram, clock, window);
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
/// A session that sends faster than it is read must not keep the others waiting for ever.
const CALLS_MAX: usize = 1024;
const DELAY_US_MAX: u64 = 60_000_000;
