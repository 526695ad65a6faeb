// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine: every core keeps many files open at once and enciphers a slice of each together.
//!
//! A worker a core takes works from a queue, largest first, opens their streams, and goes in
//! rounds: fill a slice of every stream (one read), encipher all slices in the lanes, drain them
//! (one write). A stream that has ended makes room for the next work in the same round, so small
//! files share lanes and a huge one does not starve them. What ended in a round is finished
//! together: a form that keeps a journal writes it once a round.
//!
//! Costs: slices of one round stay in the second-level cache ([`ROUND_BYTES`]), so a byte is
//! copied twice (in, out) whatever the size of the file; no crossings besides the streams' own; a
//! clock read a stream, slice and stage. Memory: [`WORKER_BYTES`] a worker and what streams say
//! they hold ([`Work::held_bytes`]), whatever the sizes of files.
//!
//! Plain reads and writes by a thread a core. Against 64 KiB reads from the page cache (fio, 0.11
//! processor seconds a GB) io_uring took 0.12 with one and 0.16 with sixteen in flight, and what
//! small files cost most, to be made and closed, it hands to threads of its own. Files that are not
//! in the page cache are asked for while others are worked on ([`Filled`]): 100 cold files of 4 MB
//! took 1.3 times as long as hot ones with two workers on two cores, and eight workers no more than
//! a tenth less.
//!
//! Does not do: open, read, write or name files; works and streams do.

mod outcome;
pub mod stage;
mod work_queue;
mod worker;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use simd::cbc::{AesKey, Cbc};

use crate::error::Error;
use work_queue::WorkQueue;

pub use outcome::SealOutcome;
pub use stage::{STAGES, SealStage, Stages};

/// Something to be worked on: a file, a publication, a segment. It is small and opens nothing
/// until [`Work::open`].
pub trait Work: Send {
    /// What it becomes when its turn comes.
    type Stream: WorkStream;
    /// Bytes to be read, for the order, the size of slices and the progress.
    fn bytes(&self) -> u64;
    /// Memory that its stream holds besides the slices it is given.
    fn held_bytes(&self) -> usize {
        0
    }
    /// Opens it.
    ///
    /// # Errors
    /// What it is that cannot be opened; the others go on.
    fn open(self) -> Result<Self::Stream, Error>;
}

/// A work in progress. The engine calls `fill`, enciphers, calls `drain`, and so on until a slice
/// was the last, then `finish`. A stream that is dropped before `finish` leaves nothing behind.
pub trait WorkStream {
    /// Puts the next bytes into `buffer` from its beginning. Not called again after the last. The
    /// buffer has [`SLICE_BYTES`] and [`SLACK_BYTES`] more, or as much less as the work is shorter;
    /// never less than [`SLICE_BYTES_MIN`]. Nothing filled and not the last: not ready, others
    /// first.
    ///
    /// # Errors
    /// The work fails; the others go on.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<Filled, Error>;
    /// The key and the chaining value for what was filled last. Called only when its
    /// [`Filled::cipher`] is not empty.
    fn chain(&mut self) -> (&AesKey, &mut [u8; 16]);
    /// Takes what was filled, now enciphered where it was to be.
    ///
    /// # Errors
    /// The work fails; the others go on.
    fn drain(&mut self, bytes: &[u8]) -> Result<(), Error>;
    /// All is drained: makes the result last and visible.
    ///
    /// # Errors
    /// The work fails; the others go on.
    fn finish(self) -> Result<(), Error>;
    /// Finishes those that ended in one round and says what came of each.
    fn finish_all(ended: &mut Vec<Self>, came: &mut dyn FnMut(Result<(), Error>))
    where
        Self: Sized,
    {
        ended.drain(..).for_each(|stream| came(stream.finish()));
    }
}

/// What a stream put into its buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// Bytes to be drained, from the buffer's beginning.
    pub bytes: usize,
    /// Which of them the lanes shall encipher first: whole blocks of 16 bytes.
    pub cipher: Range<usize>,
    /// Bytes of the source that were taken for it, for the progress.
    pub source_bytes: u64,
    /// Nothing comes after it.
    pub is_last: bool,
}

/// How to run.
#[derive(Clone)]
pub struct Settings {
    /// Workers; one a core.
    pub threads: usize,
    /// Memory for slices and what streams hold, of all workers together.
    pub memory_bytes: usize,
    /// The lanes.
    pub cbc: Cbc,
}

/// Memory for slices and streams when nothing else is said.
pub const MEMORY_BYTES: usize = 256 << 20;

impl Settings {
    /// With the widest lanes of this processor; a worker for each core it may use, or `threads`.
    pub fn here(threads: Option<usize>) -> Self {
        let all = || std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            threads: threads.unwrap_or_else(all).max(1),
            memory_bytes: MEMORY_BYTES,
            cbc: simd::Kernels::here().cbc,
        }
    }

    /// With `memory_bytes`: fewer workers when it is not enough for all.
    ///
    /// # Errors
    /// [`Error::Option`]: it is not enough for one.
    pub fn within(mut self, memory_bytes: usize) -> Result<Self, Error> {
        if memory_bytes < WORKER_BYTES {
            let mib = |bytes: usize| bytes.div_ceil(1 << 20);
            return Err(Error::Option {
                option: "memory",
                found: format!("{memory_bytes} bytes; one worker takes {WORKER_BYTES}"),
                cure: format!("write {} MiB or more", mib(WORKER_BYTES)),
            });
        }
        self.threads = self.threads.min(memory_bytes / WORKER_BYTES);
        self.memory_bytes = memory_bytes;
        Ok(self)
    }
}

/// What a run is doing, to be looked at from another thread.
#[derive(Debug, Default)]
pub struct SealProgress {
    /// Bytes of sources taken so far.
    pub bytes: AtomicU64,
    /// Works done.
    pub done: AtomicU64,
    /// Works failed.
    pub failed: AtomicU64,
    /// Set from outside to stop: what is in progress is left undone, nothing half is left.
    pub stop: AtomicBool,
}

/// Bytes of a source that a slice holds when there is more: long enough that a read or a write
/// costs little besides its copy, short enough that the slices of all lanes fit the cache. Against
/// 32 KiB, 64 measured 5 % less processor time a byte; 128 no less.
pub const SLICE_BYTES: usize = 64 * 1024;
/// What a slice has more, for what a form puts before and after.
pub const SLACK_BYTES: usize = 64;
/// No slice is shorter.
pub const SLICE_BYTES_MIN: usize = 1024;
/// Bytes that the slices of one worker have together: what stays in a second-level cache.
pub const ROUND_BYTES: usize = 16 * (SLICE_BYTES + SLACK_BYTES);
/// Streams a worker has open at once: of small files, whose slices are short.
pub const STREAMS_MAX: usize = 64;
/// Memory of one worker: a round, one slice more, and what a stream is itself.
pub const WORKER_BYTES: usize = ROUND_BYTES + SLICE_BYTES + SLACK_BYTES + STREAMS_MAX * 4096;

/// Works all of `works`.
pub fn run<W: Work>(works: Vec<W>, settings: &Settings, seen: &SealProgress) -> SealOutcome {
    let began = Instant::now();
    let cpu = outcome::cpu_time();
    let threads = settings.threads.clamp(1, works.len().max(1));
    let held_bytes = (settings.memory_bytes / threads).saturating_sub(WORKER_BYTES);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let queue = WorkQueue::new(works, (threads, cores), streams_max(threads), held_bytes);
    let reports: Vec<_> = std::thread::scope(|scope| {
        let work = |number| worker::work(number, &queue, settings.cbc, seen);
        let others: Vec<_> = (1..threads).map(|number| scope.spawn(move || work(number))).collect();
        let mine = work(0);
        let joined = others.into_iter().map(|other| match other.join() {
            Ok(report) => report,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        std::iter::once(mine).chain(joined).collect()
    });
    let mut outcome = SealOutcome::of(reports);
    outcome.is_stopped = seen.stop.load(Ordering::Relaxed);
    outcome.wall = began.elapsed();
    outcome.cpu = outcome::cpu_time().saturating_sub(cpu);
    outcome
}

/// Streams that a worker may have open: as many as there are descriptors for, three each (source,
/// target, the target's folder), and some left for the rest of the program.
fn streams_max(threads: usize) -> usize {
    const OTHERS: u64 = 128;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let streams = limit.unwrap_or(u64::MAX).saturating_sub(OTHERS) / (3 * threads as u64);
    streams.clamp(1, STREAMS_MAX as u64) as usize
}

#[cfg(test)]
mod tests;
