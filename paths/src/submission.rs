// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs of many destinations in one submission to `io_uring`, for the paths by rings.
//!
//! All due runs are queued, submitted to the kernel in one call and settled one by one, with the
//! same actions as for a run sent alone ([`crate::stream_path`]). Repeated and shortened runs go
//! into the next submission, as do runs that exceed a ring's number of operations.
//!
//! The kernel issues operations in the order of the queue, each to its end: sends use
//! `MSG_DONTWAIT`. The socket may refuse a run and accept the next one, if it gets room in between;
//! so runs of one destination are linked, and a refused run cancels the rest. A destination with
//! one run, the usual case at a burst of 20 ms, needs no link. A link costs 0.5 µs: the kernel
//! issues linked operations from its task work.
//!
//! Sources: `io_uring_enter(2)` (`IOSQE_IO_LINK`); Linux 6.18 `io_uring/io_uring.c`
//! (`io_req_defer_failed`, `io_fail_links`).
//!
//! Does not queue runs itself ([`RunQueuer`]).

use crate::batch::{Batch, CursorPosition};
use crate::destination::{Destination, RefusalAction};
use crate::error::{Errno, SendError};
use crate::send_stats::SendStats;
use crate::stream_path::{Due, SegmentRun, SendFailure, StreamPath};
use crate::sys::{Queue, Ring};

const CALL: &str = "io_uring_enter";

/// Queues the runs of one path.
pub(crate) trait RunQueuer: Send {
    /// Starts a destination's runs; the first of them is not linked to earlier operations.
    fn begin(&mut self, _: &Queue<'_, '_>) {}

    /// Queues `part.run`, or as many of its packets as one send carries; `None` when this
    /// submission accepts no more. An empty submission accepts at least one.
    fn lay<'data>(
        &mut self,
        queue: &mut Queue<'_, 'data>,
        part: &RunToQueue<'data>,
    ) -> Result<Option<QueuedSend>, QueueFailure>;

    /// Interprets the refusal of a send whose payload begins at the given position.
    fn refused(
        &self,
        batch: &Batch<'_>,
        run: (SegmentRun, CursorPosition),
        errno: Errno,
        stats: &mut SendStats,
    ) -> SendFailure;

    /// Interprets a failed read of `rest`, a run and those behind it. `rest` ends at the file's end
    /// where that has been found: a second cut is an earlier one.
    fn unread(
        &self,
        batch: &Batch<'_>,
        _rest: SegmentRun,
        errno: Errno,
        _: &mut SendStats,
    ) -> Result<SendFailure, SendError> {
        unreachable!("{errno} from a read that this path does not make: {batch:?}")
    }
}

/// A run to be queued.
pub(crate) struct RunToQueue<'data> {
    pub(crate) batch: &'data Batch<'data>,
    pub(crate) to: &'data Destination,
    pub(crate) run: SegmentRun,
    /// The position of its payload.
    pub(crate) start: CursorPosition,
    /// The packet behind the last one of the batch, or of the rest of its file.
    pub(crate) end: u32,
    /// True when zero-copy sends were refused and the run is to be copied.
    pub(crate) copy: bool,
}

/// The operations queued for a run.
#[derive(Debug)]
pub(crate) struct QueuedSend {
    pub(crate) packets: u32,
    /// Position of the payload after them.
    pub(crate) after: CursorPosition,
    /// The operation that reads the run's bytes, and their number; linked to the send.
    pub(crate) read: Option<(u32, u32)>,
    pub(crate) send: u32,
}

/// The reason why a run was not queued.
#[derive(Debug)]
pub(crate) enum QueueFailure {
    /// The file ends at byte `at`; `whole` packets of the run lie before that.
    Cut { at: u64, whole: u32 },
    /// The stream is over.
    Over(SendError),
}

impl QueueFailure {
    /// Converts a failure found before the send to `to`.
    pub(crate) fn of(failure: SendFailure, to: &Destination) -> Self {
        match failure {
            SendFailure::Cut { at, whole } => Self::Cut { at, whole },
            SendFailure::Refused { call, errno } => Self::Over(to.host(call, errno)),
            SendFailure::InPieces => unreachable!("nothing has been sent yet"),
        }
    }
}

/// Progress of a batch.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    accepted: u32,
    /// Position of the payload of packet `accepted`.
    mark: CursorPosition,
    /// The file's end, and the first packet not to be sent any more.
    cut: Option<(u64, u32)>,
    over: bool,
    /// True when a run of this submission was refused, so that those after it were cancelled.
    stopped: bool,
    copy: bool,
}

impl State {
    fn end(&self, batch: &Batch<'_>) -> u32 {
        self.cut.map_or(batch.packets, |(_, packet)| packet)
    }

    /// Returns the result of the batch once it has ended.
    fn outcome(&self, batch: &Batch<'_>) -> Option<Result<u32, SendError>> {
        match self.cut {
            _ if self.accepted >= batch.packets => Some(Ok(self.accepted)),
            Some((at, packet)) if packet <= self.accepted => Some(Err(SendError::Shrunk { at })),
            _ => None,
        }
    }

    /// Settles a failure of `run`; returns the outcome when the failure ends the batch.
    fn settle_failure(
        &mut self,
        failure: SendFailure,
        run: SegmentRun,
        to: &mut Destination,
        stats: &mut SendStats,
    ) -> Option<Result<u32, SendError>> {
        let action = match failure {
            SendFailure::Cut { at, whole } => {
                self.cut = Some((at, run.first + whole));
                return None;
            }
            SendFailure::InPieces => to.judge_in_pieces(run.packets, stats),
            SendFailure::Refused { call, errno } => to.judge(call, errno, run.packets, stats),
        };
        match action {
            RefusalAction::Retry => None,
            RefusalAction::Stop(SendError::Blocked) if self.accepted > 0 => Some(Ok(self.accepted)),
            RefusalAction::Stop(error) => Some(Err(error)),
        }
    }

    fn finish(&mut self, due: &mut Due<'_>, outcome: Result<u32, SendError>) {
        self.over = true;
        due.outcome = outcome;
    }
}

/// A run that is in the submission.
#[derive(Debug)]
struct QueuedRun {
    due: usize,
    run: SegmentRun,
    start: CursorPosition,
    laid: QueuedSend,
}

/// A ring and the state of its batches; kept from call to call so that sending allocates nothing.
pub(crate) struct Submission<L> {
    ring: Ring,
    layout: L,
    states: Vec<State>,
    queued: Vec<QueuedRun>,
    /// Outcomes found while the queue borrowed the batches.
    ended: Vec<(usize, Result<u32, SendError>)>,
}

impl<L: RunQueuer> Submission<L> {
    pub(crate) fn new(ring: Ring, layout: L) -> Self {
        Self { ring, layout, states: Vec::new(), queued: Vec::new(), ended: Vec::new() }
    }

    /// Queues the due runs, or as many as there is room for, and submits them to the kernel.
    fn submit(&mut self, dues: &mut [Due<'_>], stats: &mut SendStats) -> Result<(), Errno> {
        let Self { ring, layout, states, queued, ended } = self;
        queued.clear();
        let mut plan = SubmissionBuilder { layout, queue: ring.queue(), queued };
        for (number, (due, state)) in dues.iter_mut().zip(states).enumerate() {
            if state.over {
                continue;
            }
            if !plan.queue.has_room(OPERATIONS_PER_RUN_MAX) {
                break;
            }
            if let Some(outcome) = plan.add(number, due, state, stats) {
                ended.push((number, outcome));
            }
        }
        let SubmissionBuilder { queue, queued, .. } = plan;
        if queued.is_empty() { Ok(()) } else { queue.submit(stats) }
    }

    /// Settles the result of each run.
    fn settle(&mut self, dues: &mut [Due<'_>], stats: &mut SendStats) {
        let Self { ring, layout, states, queued, .. } = self;
        for QueuedRun { due: number, run, start, laid } in queued.drain(..) {
            let (due, state) = (&mut dues[number], &mut states[number]);
            if state.stopped || state.over || !ring.is_issued(laid.send) {
                continue;
            }
            let read = laid.read.map_or(Ok(()), |(read, bytes)| match ring.result(read) {
                Ok(read) if read == bytes => Ok(()),
                Ok(_) => Err(Errno::new(libc::EIO)),
                Err(errno) => Err(errno),
            });
            let sent = read.and_then(|()| ring.result(laid.send));
            let errno = match sent {
                Ok(bytes) => {
                    debug_assert_eq!(u64::from(bytes), due.batch.run_bytes(run.first, run.packets));
                    due.to.accepted();
                    stats.packets += u64::from(run.packets);
                    stats.bytes += u64::from(bytes);
                    state.accepted += run.packets;
                    state.mark = laid.after;
                    if let Some(outcome) = state.outcome(&due.batch) {
                        state.finish(due, outcome);
                    }
                    continue;
                }
                Err(errno) => errno,
            };
            state.stopped = true;
            let failure = match errno.code() {
                _ if read.is_err() => {
                    let rest = SegmentRun { packets: state.end(&due.batch) - run.first, ..run };
                    layout.unread(&due.batch, rest, errno, stats)
                }
                // The kernel refuses to hold more memory before the chain begins, which cancels all
                // of it.
                libc::ENOMEM | libc::ECANCELED if ring.is_zero_copy(laid.send) && !state.copy => {
                    state.copy = true;
                    continue;
                }
                _ => Ok(layout.refused(&due.batch, (run, start), errno, stats)),
            };
            let outcome = match failure {
                Ok(failure) => state.settle_failure(failure, run, due.to, stats),
                Err(error) => Some(Err(error)),
            };
            if let Some(outcome) = outcome.or_else(|| state.outcome(&due.batch)) {
                state.finish(due, outcome);
            }
        }
    }
}

impl<L: RunQueuer> StreamPath for Submission<L> {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut Destination,
        stats: &mut SendStats,
    ) -> Result<u32, SendError> {
        let mut dues = [Due::new(*batch, to)];
        self.send_all(&mut dues, stats);
        let [due] = dues;
        due.outcome
    }

    fn send_all(&mut self, dues: &mut [Due<'_>], stats: &mut SendStats) {
        self.states.clear();
        for due in dues.iter_mut() {
            due.batch.assert_sound();
            due.outcome = Ok(0);
            let over = due.batch.packets == 0;
            self.states.push(State { over, ..State::default() });
        }
        while self.states.iter().any(|state| !state.over) {
            let submitted = self.submit(dues, stats);
            let some = !self.queued.is_empty() || !self.ended.is_empty();
            assert!(some, "a layout puts something onto an empty queue");
            for (number, outcome) in self.ended.drain(..) {
                self.states[number].finish(&mut dues[number], outcome);
            }
            self.settle(dues, stats);
            let Err(errno) = submitted else { continue };
            for (due, state) in dues.iter_mut().zip(&mut self.states).filter(|(_, s)| !s.over) {
                let outcome = match errno.code() {
                    // The kernel lacks memory; the next submission opens a new ring.
                    libc::ENOMEM => {
                        stats.refused += 1;
                        if state.accepted > 0 {
                            Ok(state.accepted)
                        } else {
                            Err(SendError::Blocked)
                        }
                    }
                    _ => Err(due.to.host(CALL, errno)),
                };
                state.finish(due, outcome);
            }
        }
    }
}

/// A submission being built.
struct SubmissionBuilder<'a, 'data, L> {
    layout: &'a mut L,
    queue: Queue<'a, 'data>,
    queued: &'a mut Vec<QueuedRun>,
}

impl<'data, L: RunQueuer> SubmissionBuilder<'_, 'data, L> {
    /// Queues the runs of a due batch, linked to each other; returns its outcome when none is
    /// queued.
    fn add(
        &mut self,
        number: usize,
        due: &'data mut Due<'_>,
        state: &mut State,
        stats: &mut SendStats,
    ) -> Option<Result<u32, SendError>> {
        state.stopped = false;
        let fit = match due.to.ready(due.batch.segment_bytes, true, stats) {
            Ok(fit) => fit,
            Err(error) => return Some(Err(error)),
        };
        // From here on the kernel may borrow the batch.
        let Due { batch, to, .. } = &*due;
        self.layout.begin(&self.queue);
        let (mut at, mut start) = (state.accepted, state.mark);
        let mut before: Option<u32> = None;
        while at < state.end(batch) && self.queue.has_room(OPERATIONS_PER_RUN_MAX) {
            let end = state.end(batch);
            let run = SegmentRun { first: at, packets: fit.min(end - at) };
            let part = RunToQueue { batch, to, run, start, end, copy: state.copy };
            let laid = match self.layout.lay(&mut self.queue, &part) {
                Ok(Some(laid)) => laid,
                Ok(None) => break,
                Err(QueueFailure::Cut { at, whole }) => {
                    state.cut = Some((at, run.first + whole));
                    continue;
                }
                Err(QueueFailure::Over(error)) if before.is_none() => return Some(Err(error)),
                // The runs before the failure are sent first.
                Err(QueueFailure::Over(_)) => break,
            };
            if let Some(before) = before {
                self.queue.link(before);
            }
            before = Some(laid.send);
            let run = SegmentRun { first: at, packets: laid.packets };
            (at, start) = (at + laid.packets, laid.after);
            self.queued.push(QueuedRun { due: number, run, start: part.start, laid });
        }
        if before.is_none() { state.outcome(batch) } else { None }
    }
}

/// A read, and the send of its bytes.
const OPERATIONS_PER_RUN_MAX: usize = 2;
