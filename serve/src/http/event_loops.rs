// SPDX-License-Identifier: MIT OR Apache-2.0
//! One thread a core that serves HTTP connections, each in a task of its thread.
//!
//! A loop is a tokio runtime of one thread: epoll, a run queue, a timer wheel. A connection stays
//! on its loop from accept to close, so that its requests wake no other thread; what may wait for a
//! disk runs on one of the loop's blocking threads ([`WAITING_MAX`] in all). RTSP, RTCP and
//! time-outs of sessions run on another runtime: on a shared one a DESCRIBE beside 1,000 cold
//! downloads took 6.9 s.
//!
//! The first loop accepts and hands each connection to the loop that has the fewest. The
//! alternative, a listening socket a loop (`SO_REUSEPORT`), hashes addresses: two downloads share a
//! core half of the time on two cores, and a second server on the same port starts without an
//! error. A hand-over costs two system calls and a wake a connection, nothing a request.
//!
//! epoll, not io_uring. A trial of both in C (EPYC, Linux 6.18, answers of a kilobyte, loopback)
//! gave, in processor time of the server a request: 5.3 µs and 4.35 at 64 connections, 6.9 and 6.0
//! at 1,000, 7.7 and 7.8 at one, on one core with the client; on two cores the ranges overlap. For
//! bodies sent by `sendfile` io_uring has `splice` by its worker threads: 36 and 46 µs for 100 KB
//! at one connection, 14 and 14 at 64. That microsecond would cost a second way of reading, writing
//! and waiting beside the one that TLS and HTTP/2 need, where many containers forbid io_uring; it
//! is spent on fewer calls instead (no read that finds nothing, one send for head and body).
//!
//! Costs a thread a core and 64 KiB of shared read buffer each.
//!
//! Sources: epoll(7), socket(7) (`SO_REUSEPORT`).
//! Does not pin its threads: pacers are pinned, and the scheduler moves a loop out of their way.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::error::Error;
use crate::http::long_turns::LongTurns;
use crate::http::open_files::OpenFiles;

/// The threads of HTTP. Dropping them ends their tasks without waiting for disks.
pub(crate) struct EventLoops {
    loops: Vec<Arc<EventLoop>>,
    threads: Vec<(oneshot::Sender<()>, JoinHandle<()>)>,
}

/// One of the threads, as its connections see it.
pub(crate) struct EventLoop {
    handle: Handle,
    connections: AtomicUsize,
    /// Open files of this loop's connections.
    pub(crate) files: Arc<OpenFiles>,
    /// Turns of this loop's long answers.
    turns: Arc<LongTurns>,
}

/// Place of a connection on a loop; dropping it releases the place.
pub(crate) struct LoopPlace(Arc<EventLoop>);

impl EventLoops {
    /// Starts `count` loops, whose open files take `files(count)`.
    pub(crate) fn start(
        count: usize,
        files: impl Fn(usize) -> OpenFiles,
    ) -> Result<EventLoops, Error> {
        let failed =
            |source| Error::Host { call: "clone", object: "threads for HTTP".to_owned(), source };
        let count = count.max(1);
        let mut started = EventLoops { loops: Vec::new(), threads: Vec::new() };
        for number in 0..count {
            let runtime = Builder::new_current_thread()
                .max_blocking_threads((WAITING_MAX / count).max(WAITING_MIN))
                .thread_name("http-disk")
                .enable_all()
                .build()
                .map_err(failed)?;
            let files = Arc::new(files(count));
            let handle = runtime.handle().clone();
            let turns = LongTurns::new();
            let event_loop = EventLoop { handle, connections: AtomicUsize::new(0), files, turns };
            let event_loop = Arc::new(event_loop);
            let (stop, stopped) = oneshot::channel::<()>();
            let (watched, turns) = (event_loop.files.clone(), event_loop.turns.clone());
            let run = move || {
                runtime.block_on(async move {
                    tokio::spawn(watched.watch());
                    tokio::spawn(turns.run());
                    let _ = stopped.await;
                });
                runtime.shutdown_background();
            };
            let thread = std::thread::Builder::new().name(format!("http-{number}"));
            started.threads.push((stop, thread.spawn(run).map_err(failed)?));
            started.loops.push(event_loop);
        }
        Ok(started)
    }

    /// Returns the loop that accepts.
    pub(crate) fn first(&self) -> &Handle {
        &self.loops[0].handle
    }

    /// Returns the loops for a listener.
    pub(crate) fn loops(&self) -> Vec<Arc<EventLoop>> {
        self.loops.clone()
    }
}

impl Drop for EventLoops {
    fn drop(&mut self) {
        for (stop, thread) in self.threads.drain(..) {
            let _ = stop.send(());
            let _ = thread.join();
        }
    }
}

impl EventLoop {
    /// Acquires a place on the loop that has the fewest connections.
    pub(crate) fn least_busy(loops: &[Arc<EventLoop>]) -> LoopPlace {
        let fewest = loops.iter().min_by_key(|l| l.connections.load(Ordering::Relaxed));
        let fewest = fewest.expect("there is a loop at least").clone();
        fewest.connections.fetch_add(1, Ordering::Relaxed);
        LoopPlace(fewest)
    }
}

impl LoopPlace {
    /// Returns the runtime that runs the connection's task.
    pub(crate) fn handle(&self) -> &Handle {
        &self.0.handle
    }

    /// Returns the turns of the loop's long answers.
    pub(crate) fn turns(&self) -> &Arc<LongTurns> {
        &self.0.turns
    }

    /// Returns the open files of the loop.
    pub(crate) fn files(&self) -> &Arc<OpenFiles> {
        &self.0.files
    }
}

impl Drop for LoopPlace {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Lends the thread's buffer to `work`, which must not wait: bytes are read into it and parsed, so
/// that a silent connection holds none.
pub(crate) fn with_scratch<T>(work: impl FnOnce(&mut [u8]) -> T) -> T {
    thread_local! {
        static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.resize(SCRATCH_BYTES, 0);
        work(scratch)
    })
}

/// Enough concurrent requests for a disk; further threads would only wait for each other.
const WAITING_MAX: usize = 64;
/// Threads of a loop on a host with many cores.
const WAITING_MIN: usize = 4;
/// As long as the largest body that is copied.
pub(crate) const SCRATCH_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_spread_and_places_come_back() {
        let loops = EventLoops::start(2, |_| OpenFiles::new(0, 0)).unwrap();
        let list = loops.loops();
        let count =
            || list.iter().map(|l| l.connections.load(Ordering::Relaxed)).collect::<Vec<_>>();
        let mut places: Vec<_> = (0..4).map(|_| EventLoop::least_busy(&list)).collect();
        assert_eq!(count(), [2, 2]);
        places.truncate(1);
        assert_eq!(count(), [1, 0]);
        let second = EventLoop::least_busy(&list);
        assert!(Arc::ptr_eq(&second.0, &list[1]));
        let thread =
            second.handle().spawn(async { std::thread::current().name().map(str::to_owned) });
        let name = loops.first().block_on(thread).unwrap();
        assert_eq!(name.as_deref(), Some("http-1"));
    }
}
