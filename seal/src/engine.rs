// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine: every core keeps many files open at once and enciphers a slice of each together.
//!
//! A worker a core takes works from a queue, largest first, opens their streams, and goes in
//! rounds: fill a slice of every stream (one read), encipher all slices in the lanes, drain them
//! (one write). A stream that has ended makes room for the next work in the same round, so small
//! files share lanes and a huge one does not starve them.
//!
//! Costs: slices of one round stay in the second-level cache ([`ROUND_BYTES`]), so a byte is
//! copied twice (in, out) whatever the size of the file; no crossings besides the streams' own.
//! Memory: workers × [`ROUND_BYTES`], whatever the sizes of files.
//!
//! Does not do: open, read, write or name files; works and streams do.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use simd::cbc::{Cbc, Key, Message};

use crate::error::Error;

/// Something to be worked on: a file, a publication, a segment. It is small and opens nothing
/// until [`Work::open`].
pub trait Work: Send {
    /// What it becomes when its turn comes.
    type Stream: Stream;
    /// Bytes to be read, for the order and the progress.
    fn bytes(&self) -> u64;
    /// Opens it.
    ///
    /// # Errors
    /// What it is that cannot be opened; the others go on.
    fn open(self) -> Result<Self::Stream, Error>;
}

/// A work in progress. The engine calls `fill`, enciphers, calls `drain`, and so on until a slice
/// was the last, then `finish`. A stream that is dropped before `finish` leaves nothing behind.
pub trait Stream {
    /// Puts the next bytes into `buffer` from its beginning. Not called again after the last.
    ///
    /// # Errors
    /// The work fails; the others go on.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<Filled, Error>;
    /// The key and the chaining value for what was filled last. Called only when its
    /// [`Filled::cipher`] is not empty.
    fn chain(&mut self) -> (&Key, &mut [u8; 16]);
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
    /// The lanes.
    pub cbc: Cbc,
}

impl Settings {
    /// With the widest lanes of this processor; a worker for each core it may use, or `threads`.
    pub fn here(threads: Option<usize>) -> Self {
        let all = || std::thread::available_parallelism().map_or(1, usize::from);
        Self { threads: threads.unwrap_or_else(all), cbc: simd::Kernels::here().cbc }
    }
}

/// What a run is doing, to be looked at from another thread.
#[derive(Debug, Default)]
pub struct Seen {
    /// Bytes of sources taken so far.
    pub bytes: AtomicU64,
    /// Works done.
    pub done: AtomicU64,
    /// Works failed.
    pub failed: AtomicU64,
    /// Set from outside to stop: what is in progress is left undone, nothing half is left.
    pub stop: AtomicBool,
}

/// Bytes that the slices of one worker have together: what stays in a second-level cache.
pub const ROUND_BYTES: usize = 512 * 1024;
/// Streams a worker has open at once.
pub const STREAMS_MAX: usize = 16;

/// Works all of `works` and returns the errors of those that failed, in no order.
pub fn run<W: Work>(works: Vec<W>, settings: &Settings, seen: &Seen) -> Vec<Error> {
    let mut works = works;
    works.sort_by_key(|work| std::cmp::Reverse(work.bytes()));
    let queue = Mutex::new(VecDeque::from(works));
    let errors = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..settings.threads.max(1) {
            scope.spawn(|| worker(&queue, &settings.cbc, seen, &errors));
        }
    });
    errors.into_inner().expect("no worker panicked")
}

struct Active<S> {
    stream: S,
    buffer: Vec<u8>,
    filled: Filled,
}

fn worker<W: Work>(queue: &Mutex<VecDeque<W>>, cbc: &Cbc, seen: &Seen, errors: &Mutex<Vec<Error>>) {
    let slice_bytes = ROUND_BYTES / STREAMS_MAX;
    let mut active: Vec<Active<W::Stream>> = Vec::new();
    let failed = |error| {
        seen.failed.fetch_add(1, Ordering::Relaxed);
        errors.lock().expect("no worker panicked").push(error);
    };
    while !seen.stop.load(Ordering::Relaxed) {
        while active.len() < STREAMS_MAX {
            let Some(work) = queue.lock().expect("no worker panicked").pop_front() else { break };
            match work.open() {
                Ok(stream) => active.push(Active {
                    stream,
                    buffer: vec![0; slice_bytes],
                    filled: Filled::default(),
                }),
                Err(error) => failed(error),
            }
        }
        if active.is_empty() {
            break;
        }
        active = keep(
            active,
            |one| {
                one.filled = one.stream.fill(&mut one.buffer)?;
                seen.bytes.fetch_add(one.filled.source_bytes, Ordering::Relaxed);
                Ok(())
            },
            &failed,
        );
        let mut messages: Vec<Message<'_>> = active
            .iter_mut()
            .filter(|one| !one.filled.cipher.is_empty())
            .map(|one| {
                let (key, iv) = one.stream.chain();
                Message { key, iv, bytes: &mut one.buffer[one.filled.cipher.clone()] }
            })
            .collect();
        cbc.encrypt(&mut messages);
        drop(messages);
        active = keep(active, |one| one.stream.drain(&one.buffer[..one.filled.bytes]), &failed);
        let (ended, going): (Vec<_>, Vec<_>) =
            active.into_iter().partition(|one| one.filled.is_last);
        active = going;
        for one in ended {
            match one.stream.finish() {
                Ok(()) => drop(seen.done.fetch_add(1, Ordering::Relaxed)),
                Err(error) => failed(error),
            }
        }
    }
}

/// Those of `active` for which `step` went well; the errors of the others are handed over.
fn keep<S>(
    active: Vec<Active<S>>,
    mut step: impl FnMut(&mut Active<S>) -> Result<(), Error>,
    failed: &impl Fn(Error),
) -> Vec<Active<S>> {
    active
        .into_iter()
        .filter_map(|mut one| step(&mut one).map_err(failed).ok().map(|()| one))
        .collect()
}
