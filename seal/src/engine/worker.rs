// SPDX-License-Identifier: MIT OR Apache-2.0
//! One thread that runs rounds over its open streams.
//!
//! Each round cuts its slices from one buffer, allocated once. Nothing stays in the buffer between
//! rounds, so a short stream uses little of it and many streams fit.

use std::sync::atomic::Ordering;
use std::time::Instant;

use simd::cbc::{Cbc, Message};

use super::outcome::WorkerReport;
use super::stage::{self, SealStage, Stages};
use super::work_queue::{WorkQueue, WorkerLoad, slice_bytes};
use super::{
    Filled, ROUND_BYTES, SLACK_BYTES, SLICE_BYTES, STREAMS_MAX, SealProgress, Work, WorkStream,
};
use crate::error::Error;

/// An open stream and its state in this round.
struct Active<S> {
    stream: S,
    left_bytes: u64,
    held_bytes: usize,
    filled: Filled,
    has_failed: bool,
}

impl<S> Active<S> {
    fn slice_bytes(&self) -> usize {
        slice_bytes(self.left_bytes)
    }
}

/// Runs worker `number` until the queue is empty and all its works are finished.
pub(super) fn work<W: Work>(
    number: usize,
    queue: &WorkQueue<W>,
    cbc: Cbc,
    seen: &SealProgress,
) -> WorkerReport {
    stage::begin();
    let mut worker = Worker::<W::Stream> {
        number,
        seen,
        cbc,
        buffer: vec![0; ROUND_BYTES + SLICE_BYTES + SLACK_BYTES],
        active: Vec::with_capacity(STREAMS_MAX),
        ended: Vec::with_capacity(STREAMS_MAX),
        report: WorkerReport {
            done: 0,
            bytes: 0,
            failed: Vec::new(),
            stages: Stages::default(),
            cipher_bytes: 0,
            longest_bytes: 0,
            ended: Instant::now(),
        },
    };
    let mut claimed = Vec::with_capacity(STREAMS_MAX);
    while !seen.stop.load(Ordering::Relaxed) {
        worker.admit(queue, &mut claimed);
        if worker.active.is_empty() {
            break;
        }
        worker.fill();
        worker.encipher();
        worker.drain();
        worker.finish();
    }
    // Streams that a stop left unfinished are dropped here and leave nothing behind.
    worker.active.clear();
    worker.report.stages = stage::end();
    worker.report.ended = Instant::now();
    worker.report
}

struct Worker<'a, S> {
    /// Index of this worker, from 0.
    number: usize,
    seen: &'a SealProgress,
    cbc: Cbc,
    buffer: Vec<u8>,
    active: Vec<Active<S>>,
    ended: Vec<S>,
    report: WorkerReport,
}

impl<S: WorkStream> Worker<'_, S> {
    /// Claims and opens works while the round has room; a work that fails to open frees its room.
    fn admit<W: Work<Stream = S>>(&mut self, queue: &WorkQueue<W>, claimed: &mut Vec<W>) {
        loop {
            let mut load = WorkerLoad::default();
            for one in &self.active {
                load.streams += 1;
                load.slice_bytes += slice_bytes(one.left_bytes.max(1));
                load.held_bytes += one.held_bytes;
            }
            queue.take(self.number, &mut load, claimed);
            if claimed.is_empty() {
                return;
            }
            stage::enter(SealStage::Open);
            let mut all_opened = true;
            for work in claimed.drain(..) {
                let (left_bytes, held_bytes) = (work.bytes(), work.held_bytes());
                match work.open() {
                    Ok(stream) => self.active.push(Active {
                        stream,
                        left_bytes,
                        held_bytes,
                        filled: Filled::default(),
                        has_failed: false,
                    }),
                    Err(error) => {
                        all_opened = false;
                        failed(&mut self.report, self.seen, error);
                    }
                }
            }
            if all_opened {
                return;
            }
        }
    }

    fn fill(&mut self) {
        let mut rest = self.buffer.as_mut_slice();
        let mut bytes = 0;
        for one in &mut self.active {
            stage::enter(SealStage::Read);
            let (slice, after) = rest.split_at_mut(one.slice_bytes());
            rest = after;
            match one.stream.fill(slice) {
                Ok(filled) => {
                    debug_assert!(filled.bytes <= slice.len() && filled.cipher.end <= filled.bytes);
                    bytes += filled.source_bytes;
                    one.filled = filled;
                }
                Err(error) => {
                    one.filled = Filled::default();
                    one.has_failed = true;
                    failed(&mut self.report, self.seen, error);
                }
            }
        }
        self.report.bytes += bytes;
        self.seen.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn encipher(&mut self) {
        let mut rest = self.buffer.as_mut_slice();
        let mut longest = 0;
        let mut messages = Vec::with_capacity(self.active.len());
        for one in &mut self.active {
            let (slice, after) = rest.split_at_mut(one.slice_bytes());
            rest = after;
            if !one.filled.cipher.is_empty() {
                let bytes = &mut slice[one.filled.cipher.clone()];
                longest = longest.max(bytes.len());
                self.report.cipher_bytes += bytes.len() as u64;
                let (key, iv) = one.stream.chain();
                messages.push(Message { key, iv, bytes });
            }
        }
        if !messages.is_empty() {
            self.report.longest_bytes += longest as u64;
            stage::enter(SealStage::Cipher);
            self.cbc.encrypt(&mut messages);
        }
    }

    fn drain(&mut self) {
        stage::enter(SealStage::Write);
        let mut rest = self.buffer.as_slice();
        for one in &mut self.active {
            let (slice, after) = rest.split_at(one.slice_bytes());
            rest = after;
            one.left_bytes = one.left_bytes.saturating_sub(one.filled.source_bytes);
            if one.filled.bytes > 0
                && let Err(error) = one.stream.drain(&slice[..one.filled.bytes])
            {
                one.has_failed = true;
                failed(&mut self.report, self.seen, error);
            }
        }
    }

    fn finish(&mut self) {
        let is_over = |one: &mut Active<S>| one.has_failed || one.filled.is_last;
        for one in self.active.extract_if(.., is_over) {
            if !one.has_failed {
                self.ended.push(one.stream);
            }
        }
        if self.ended.is_empty() {
            return;
        }
        stage::enter(SealStage::Commit);
        let (report, seen) = (&mut self.report, self.seen);
        let done = report.done;
        S::finish_all(&mut self.ended, &mut |result| match result {
            Ok(()) => report.done += 1,
            Err(error) => failed(report, seen, error),
        });
        seen.done.fetch_add(report.done - done, Ordering::Relaxed);
    }
}

fn failed(report: &mut WorkerReport, seen: &SealProgress, error: Error) {
    seen.failed.fetch_add(1, Ordering::Relaxed);
    report.failed.push(error);
}
