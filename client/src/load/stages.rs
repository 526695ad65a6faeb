// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stages of a load of any kind, and its events: each stage waits until it is done, its time has
//! passed, or the load is stopped.
//!
//! Costs a check of the counts every 20 ms. Does not start or end sessions.

use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::JoinSet;

use crate::stop::Stop;

/// Event of a load. Serialised, each is an object with its name as `event`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum LoadEvent {
    /// The asset was described; sessions are about to be set up.
    Starting {
        /// Sessions requested.
        sessions: u32,
        /// Sessions among them that will be verified.
        verified: u32,
        /// Time over which they start, in seconds.
        ramp_seconds: f64,
    },
    /// All sessions that could be set up play: measuring begins now.
    Playing {
        /// Sessions that play.
        played: u32,
        /// Sessions that could not be set up.
        failed: u32,
    },
    /// Measuring has ended; sessions are about to leave.
    Measured {
        /// Length of the measured time, in seconds.
        seconds: f64,
        /// Sessions that still play.
        playing: u32,
    },
    /// Sent four times a second.
    Progress(LoadProgress),
}

/// Progress of a load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LoadProgress {
    /// The current stage.
    pub stage: LoadStage,
    /// Time since the start of this stage, in seconds.
    pub elapsed_seconds: f64,
    /// Expected length of the stage; none for [`LoadStage::Leaving`].
    pub stage_seconds: Option<f64>,
    /// Sessions that were set up.
    pub played: u32,
    /// Sessions that could not be set up.
    pub failed: u32,
    /// Sessions that ended before their time.
    pub ended: u32,
    /// Sessions that have left.
    pub left: u32,
}

/// The stages of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadStage {
    /// Sessions are being set up.
    Starting,
    /// All sessions play; the last ones to start catch up.
    Settling,
    /// Packets are counted.
    Measuring,
    /// Sessions send TEARDOWN.
    Leaving,
}

/// Numbers of sessions by state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StageCounts {
    pub(crate) played: u32,
    pub(crate) failed: u32,
    pub(crate) ended: u32,
    pub(crate) left: u32,
}

/// Stages of a running load.
pub(crate) struct LoadStages<'a, T, C> {
    /// The caller has stopped the load.
    pub(crate) is_stopped: bool,
    stop: Stop,
    report: &'a mut T,
    counts: C,
}

impl<'a, T: FnMut(&LoadEvent), C: Fn() -> StageCounts> LoadStages<'a, T, C> {
    pub(crate) fn new(stop: Stop, report: &'a mut T, counts: C) -> LoadStages<'a, T, C> {
        LoadStages { is_stopped: false, stop, report, counts }
    }

    pub(crate) fn emit(&mut self, event: &LoadEvent) {
        (self.report)(event);
    }

    pub(crate) fn counts(&self) -> StageCounts {
        (self.counts)()
    }

    /// Waits until the stage is done, the load is stopped, or `most` has passed; `usual` is the
    /// expected length of the stage.
    pub(crate) async fn wait(
        &mut self,
        stage: LoadStage,
        usual: Duration,
        most: Duration,
        is_done: impl Fn(StageCounts) -> bool,
    ) {
        let began = Instant::now();
        let mut reported = None::<Instant>;
        while !self.is_stopped && began.elapsed() < most && !is_done(self.counts()) {
            if reported.is_none_or(|reported| reported.elapsed() >= REPORT_EVERY) {
                reported = Some(Instant::now());
                self.progress(stage, began, Some(usual));
            }
            let left = most.saturating_sub(began.elapsed());
            tokio::select! {
                () = &mut self.stop => self.is_stopped = true,
                () = tokio::time::sleep(left.min(CHECK_EVERY)) => {}
            }
        }
    }

    /// Collects the ends of all tasks. Tasks that have not begun end at once.
    pub(crate) async fn leave<E: Default + 'static>(&mut self, tasks: &mut JoinSet<E>) -> Vec<E> {
        let mut ends = Vec::with_capacity(tasks.len());
        let began = Instant::now();
        let mut check = tokio::time::interval(REPORT_EVERY);
        loop {
            tokio::select! {
                end = tasks.join_next() => match end {
                    // A panicked task has printed its message; it counts as not played.
                    Some(end) => ends.push(end.unwrap_or_default()),
                    None => return ends,
                },
                _ = check.tick() => self.progress(LoadStage::Leaving, began, None),
            }
        }
    }

    fn progress(&mut self, stage: LoadStage, began: Instant, usual: Option<Duration>) {
        let StageCounts { played, failed, ended, left } = self.counts();
        (self.report)(&LoadEvent::Progress(LoadProgress {
            stage,
            elapsed_seconds: began.elapsed().as_secs_f64(),
            stage_seconds: usual.map(|usual| usual.as_secs_f64()),
            played,
            failed,
            ended,
            left,
        }));
    }
}

const CHECK_EVERY: Duration = Duration::from_millis(20);
const REPORT_EVERY: Duration = Duration::from_millis(250);
