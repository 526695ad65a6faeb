// SPDX-License-Identifier: MIT OR Apache-2.0
//! The works that no worker has taken yet, largest first.
//!
//! A worker takes as many at once as its round has room for, but never more than its share of what
//! is left: at the end all workers have something, and the tail is short.

use std::cmp::Reverse;
use std::sync::Mutex;

use super::{ROUND_BYTES, SLACK_BYTES, SLICE_BYTES, SLICE_BYTES_MIN, Work};

/// Shared by all workers.
pub(super) struct Queue<W> {
    /// Smallest first, as they are taken from the end.
    works: Mutex<Vec<W>>,
    threads: usize,
    streams_max: usize,
    /// What streams of one worker may hold together.
    held_bytes_max: usize,
}

/// What a worker has open.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    pub(super) streams: usize,
    pub(super) slice_bytes: usize,
    pub(super) held_bytes: usize,
}

impl<W: Work> Queue<W> {
    pub(super) fn new(
        mut works: Vec<W>,
        threads: usize,
        streams_max: usize,
        held_bytes_max: usize,
    ) -> Self {
        // Stable both ways: works of one size keep the order they came in.
        works.sort_by_key(|work| Reverse(work.bytes()));
        works.reverse();
        Self { works: Mutex::new(works), threads, streams_max, held_bytes_max }
    }

    /// Takes what fits beside `load` and adds it there. A work that holds more than there is memory
    /// for is taken alone.
    pub(super) fn take(&self, load: &mut Load, taken: &mut Vec<W>) {
        if load.streams >= self.streams_max || load.slice_bytes >= ROUND_BYTES {
            return;
        }
        let mut works = self.works.lock().expect("no worker panicked");
        let share = works.len().div_ceil(self.threads);
        while taken.len() < share
            && load.streams < self.streams_max
            && load.slice_bytes < ROUND_BYTES
        {
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
    }
}

/// How long the slice is that a stream gets when it has `left_bytes` to go.
pub(super) fn slice_bytes(left_bytes: u64) -> usize {
    let bytes = left_bytes.min(SLICE_BYTES as u64) as usize + SLACK_BYTES;
    bytes.max(SLICE_BYTES_MIN).next_multiple_of(64)
}
