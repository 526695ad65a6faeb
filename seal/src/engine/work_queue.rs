// SPDX-License-Identifier: MIT OR Apache-2.0
//! The works that no worker has taken yet, largest first.
//!
//! A worker takes as many at once as its round has room for, but never so many that it would have
//! more than its share of all that is unfinished: what is left and what workers have open. So the
//! first worker to start does not take a library of few files one by one from the others, who are
//! still starting, and at the end all workers have something. With shares of what is left alone, 8
//! files of 4 MiB on two cores were all worked on by the first (7.6 in its lanes): half the
//! throughput. Workers beyond the cores there are do not make shares smaller, as lanes are a
//! core's: with a file for each of 10 workers on two cores, 10 files of 4 MiB went at 0.94 of the
//! published method's throughput.

use std::cmp::Reverse;
use std::sync::Mutex;

use super::{ROUND_BYTES, SLACK_BYTES, SLICE_BYTES, SLICE_BYTES_MIN, Work};

/// Shared by all workers.
pub(super) struct WorkQueue<W> {
    unfinished: Mutex<Unfinished<W>>,
    /// Shares of what is unfinished: one a worker, and no more than cores.
    shares: usize,
    streams_max: usize,
    /// What streams of one worker may hold together.
    held_bytes_max: usize,
}

struct Unfinished<W> {
    /// Smallest first, as they are taken from the end.
    works: Vec<W>,
    /// Streams that each worker has open, as of its last taking: a few too many at times.
    open: Vec<usize>,
}

/// What a worker has open.
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
        // Stable both ways: works of one size keep the order they came in.
        works.sort_by_key(|work| Reverse(work.bytes()));
        works.reverse();
        let unfinished = Mutex::new(Unfinished { works, open: vec![0; threads] });
        Self { unfinished, shares: threads.min(cores), streams_max, held_bytes_max }
    }

    /// Takes for `worker`, a number below that of the threads, what fits beside `load`, and adds it
    /// there. A work that holds more than there is memory for is taken alone.
    pub(super) fn take(&self, worker: usize, load: &mut WorkerLoad, taken: &mut Vec<W>) {
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
            taken.extend(works.pop());
        }
        open[worker] = load.streams;
    }
}

/// How long the slice is that a stream gets when it has `left_bytes` to go.
pub(super) fn slice_bytes(left_bytes: u64) -> usize {
    let bytes = left_bytes.min(SLICE_BYTES as u64) as usize + SLACK_BYTES;
    bytes.max(SLICE_BYTES_MIN).next_multiple_of(64)
}
