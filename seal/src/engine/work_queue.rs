// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue of the works that no worker has claimed yet, largest first.
//!
//! A worker claims as many works at once as its round has room for, but at most its share of the
//! unfinished works: those in the queue and those that workers have open. So the first worker to
//! start does not claim all of a small library while the others are still starting, and at the end
//! all workers have something to do. With shares of the queue alone, the first worker claimed all
//! of 8 files of 4 MiB on two cores (7.6 in its lanes): half the throughput. Workers beyond the
//! number of cores do not make shares smaller, as lanes belong to a core: with a file for each of
//! 10 workers on two cores, 10 files of 4 MiB reached 0.94 of the published method's throughput.

use std::cmp::Reverse;
use std::sync::Mutex;

use super::{ROUND_BYTES, SLACK_BYTES, SLICE_BYTES, SLICE_BYTES_MIN, Work};

/// The queue, shared by all workers.
pub(super) struct WorkQueue<W> {
    unfinished: Mutex<Unfinished<W>>,
    /// Number of shares of the unfinished works: one a worker, at most one a core.
    shares: usize,
    streams_max: usize,
    /// Most bytes that the streams of one worker may hold together.
    held_bytes_max: usize,
}

struct Unfinished<W> {
    /// Works not yet claimed, smallest first: they are removed from the end.
    works: Vec<W>,
    /// Number of streams that each worker had open after it last claimed works; some may have ended
    /// since.
    open: Vec<usize>,
}

/// Streams that one worker has open, and their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WorkerLoad {
    pub(super) streams: usize,
    pub(super) slice_bytes: usize,
    pub(super) held_bytes: usize,
}

impl<W: Work> WorkQueue<W> {
    pub(super) fn new(
        mut works: Vec<W>,
        (threads, cores): (usize, usize),
        streams_max: usize,
        held_bytes_max: usize,
    ) -> Self {
        // The sort is stable: works of one size are claimed in the order of the list.
        works.sort_by_key(|work| Reverse(work.bytes()));
        works.reverse();
        let unfinished = Mutex::new(Unfinished { works, open: vec![0; threads] });
        Self { unfinished, shares: threads.min(cores), streams_max, held_bytes_max }
    }

    /// Removes the works that fit beside `load` and adds them to `load` and `claimed`. `worker` is
    /// an index below the number of threads. A work that holds more than the memory limit is
    /// claimed alone.
    pub(super) fn take(&self, worker: usize, load: &mut WorkerLoad, claimed: &mut Vec<W>) {
        if load.streams >= self.streams_max || load.slice_bytes >= ROUND_BYTES {
            return;
        }
        let mut unfinished = self.unfinished.lock().expect("no worker panicked");
        let Unfinished { works, open } = &mut *unfinished;
        open[worker] = load.streams;
        let all = works.len() + open.iter().sum::<usize>();
        let share = all.div_ceil(self.shares).min(self.streams_max);
        while load.streams < share && load.slice_bytes < ROUND_BYTES {
            let Some(work) = works.last() else { break };
            let held_bytes = load.held_bytes.saturating_add(work.held_bytes());
            if held_bytes > self.held_bytes_max && load.streams > 0 {
                break;
            }
            load.streams += 1;
            load.slice_bytes += slice_bytes(work.bytes());
            load.held_bytes = held_bytes;
            claimed.extend(works.pop());
        }
        open[worker] = load.streams;
    }
}

/// Returns the bytes of the slice for a stream with `left_bytes` to go.
pub(super) fn slice_bytes(left_bytes: u64) -> usize {
    let bytes = left_bytes.min(SLICE_BYTES as u64) as usize + SLACK_BYTES;
    bytes.max(SLICE_BYTES_MIN).next_multiple_of(64)
}
