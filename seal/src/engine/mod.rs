// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs sealing works on all cores; each worker enciphers slices of many files together.
//!
//! By default each core has one worker. A worker takes works from a queue, largest first, opens
//! their streams, and runs rounds: fill a slice of every stream (one read), encipher all slices in
//! the lanes, drain them (one write). When a stream ends, the next work joins the same round, so
//! small files share lanes and a huge file does not starve them. Streams that ended in one round
//! are finished together: a form with a journal writes it once a round.
//!
//! Costs: the slices of one round stay in the second-level cache ([`ROUND_BYTES`]), so each byte is
//! copied twice (in, out) at any file size; no system calls besides those of the streams; one clock
//! read per stream, slice and stage. Memory: [`WORKER_BYTES`] a worker plus what its streams report
//! ([`Work::held_bytes`]), at any file size.
//!
//! Reads and writes are plain system calls, one thread a core. Against 64 KiB reads from the page
//! cache (fio, 0.11 processor seconds a GB) io_uring took 0.12 with one and 0.16 with sixteen in
//! flight, and it hands open and close, the largest cost of small files, to threads of its own.
//! Files outside the page cache are prefetched while other files are worked on ([`Filled`]): 100
//! cold files of 4 MB took 1.3 times as long as hot ones with two workers on two cores, and eight
//! workers took at most a tenth less.
//!
//! Does not open, read, write or name files: works and streams do.

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

pub use outcome::{SealOutcome, WorkUnit};
pub use stage::{STAGES, SealStage, Stages};

/// One unit of work: a file, a publication, a segment. It is small and opens nothing until
/// [`Work::open`].
pub trait Work: Send {
    /// Stream that [`Work::open`] makes of the work.
    type Stream: WorkStream;
    /// Returns the number of bytes to read, which sets the order, the slice sizes and the progress.
    fn bytes(&self) -> u64;
    /// Returns the bytes of memory that its stream holds besides its slices.
    fn held_bytes(&self) -> usize {
        0
    }
    /// Opens the source and the target.
    ///
    /// # Errors
    /// The file cannot be opened; the other works continue.
    fn open(self) -> Result<Self::Stream, Error>;
}

/// A work in progress. The engine calls `fill`, enciphers, calls `drain`, and so on up to the last
/// slice, then `finish`. A stream that is dropped before `finish` leaves nothing behind.
pub trait WorkStream {
    /// Puts the next bytes at the beginning of `buffer`. It is not called again after the last
    /// slice. The buffer has [`SLICE_BYTES`] and [`SLACK_BYTES`] more; for a shorter work it has
    /// less, but at least [`SLICE_BYTES_MIN`]. An empty slice that is not the last means that the
    /// source is not ready: the engine works on other streams first.
    ///
    /// # Errors
    /// The work fails; the others continue.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<Filled, Error>;
    /// Returns the key and the chaining value for the last filled slice. It is called only when
    /// that slice's [`Filled::cipher`] is not empty.
    fn chain(&mut self) -> (&AesKey, &mut [u8; 16]);
    /// Writes the last filled slice, its cipher range now enciphered.
    ///
    /// # Errors
    /// The work fails; the others continue.
    fn drain(&mut self, bytes: &[u8]) -> Result<(), Error>;
    /// Makes the result durable and visible, after the last `drain`.
    ///
    /// # Errors
    /// The work fails; the others continue.
    fn finish(self) -> Result<(), Error>;
    /// Finishes the streams that ended in one round and passes each result to `on_result`.
    fn finish_all(ended: &mut Vec<Self>, on_result: &mut dyn FnMut(Result<(), Error>))
    where
        Self: Sized,
    {
        ended.drain(..).for_each(|stream| on_result(stream.finish()));
    }
}

/// Contents of a buffer after [`WorkStream::fill`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// Bytes to be drained, from the buffer's beginning.
    pub bytes: usize,
    /// Range that the lanes encipher before the drain: whole blocks of 16 bytes.
    pub cipher: Range<usize>,
    /// Bytes of the source that were read for it, for the progress.
    pub source_bytes: u64,
    /// True when no slice follows.
    pub is_last: bool,
}

/// Settings of a run.
#[derive(Clone)]
pub struct Settings {
    /// Number of workers, by default one per core.
    pub threads: usize,
    /// Bytes of memory for slices and streams, all workers together.
    pub memory_bytes: usize,
    /// Kernel that enciphers in lanes.
    pub cbc: Cbc,
}

/// Default memory for slices and streams, in bytes.
pub const MEMORY_BYTES: usize = 256 << 20;

impl Settings {
    /// Makes settings with the widest lanes of this processor and `threads` workers, by default one
    /// a core.
    pub fn here(threads: Option<usize>) -> Self {
        let all = || std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            threads: threads.unwrap_or_else(all).max(1),
            memory_bytes: MEMORY_BYTES,
            cbc: simd::Kernels::here().cbc,
        }
    }

    /// Sets the memory; lowers the number of workers when it is not enough for all.
    ///
    /// # Errors
    /// [`Error::Option`]: the memory is not enough for one worker.
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

/// Progress of a run, readable from another thread.
#[derive(Debug, Default)]
pub struct SealProgress {
    /// Bytes of sources read so far.
    pub bytes: AtomicU64,
    /// Number of works done.
    pub done: AtomicU64,
    /// Number of works failed.
    pub failed: AtomicU64,
    /// Set by another thread to stop the run: works in progress are dropped and leave no partial
    /// target.
    pub stop: AtomicBool,
}

/// Source bytes in one slice of a long file: long enough that a read or a write costs little
/// besides its copy, short enough that the slices of all lanes fit the cache. 64 KiB measured 5 %
/// less processor time a byte than 32 KiB; 128 KiB measured no less than 64 KiB.
pub const SLICE_BYTES: usize = 64 * 1024;
/// Bytes of a slice beyond [`SLICE_BYTES`], for the prefix and the suffix of a form.
pub const SLACK_BYTES: usize = 64;
/// Bytes of the shortest slice.
pub const SLICE_BYTES_MIN: usize = 1024;
/// Bytes of one worker's slices together: they stay in a second-level cache.
pub const ROUND_BYTES: usize = 16 * (SLICE_BYTES + SLACK_BYTES);
/// Most streams a worker has open at once: small files have short slices.
pub const STREAMS_MAX: usize = 64;
/// Bytes of memory of one worker: a round, one slice more, and the streams' own structures.
pub const WORKER_BYTES: usize = ROUND_BYTES + SLICE_BYTES + SLACK_BYTES + STREAMS_MAX * 4096;

/// Runs all `works` and returns their results and times.
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

/// Returns the most streams that a worker may have open: each needs three descriptors (source,
/// target, the target's folder), and some are left for the rest of the program.
fn streams_max(threads: usize) -> usize {
    const OTHERS: u64 = 128;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let streams = limit.unwrap_or(u64::MAX).saturating_sub(OTHERS) / (3 * threads as u64);
    streams.clamp(1, STREAMS_MAX as u64) as usize
}

#[cfg(test)]
mod tests;
