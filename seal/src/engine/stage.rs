// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time that each worker spends in each stage of sealing.
//!
//! A worker is always in one stage. Code that begins another stage calls [`enter`], from any depth
//! in a form, and the time up to then is added to the stage before. The account is thread-local, so
//! streams need no handle for it and threads share nothing.
//!
//! Costs one clock read per change of stage. Does nothing on threads that are not workers.

use std::cell::Cell;
use std::ops::Index;
use std::time::{Duration, Instant};

/// Activity of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealStage {
    /// Claims works; opens sources and targets.
    Open,
    /// Reads from the source into the slice.
    Read,
    /// Hashes content.
    Hash,
    /// Compares with known records.
    Check,
    /// Compresses.
    Deflate,
    /// Enciphers, in lanes or not.
    Cipher,
    /// Writes from the slice to the target.
    Write,
    /// Sets times, writes the journal, renames, syncs.
    Commit,
}

/// All stages, in the order in which a byte passes them.
pub const STAGES: [(SealStage, &str); 8] = [
    (SealStage::Open, "open"),
    (SealStage::Read, "read"),
    (SealStage::Hash, "hash"),
    (SealStage::Check, "check"),
    (SealStage::Deflate, "deflate"),
    (SealStage::Cipher, "cipher"),
    (SealStage::Write, "write"),
    (SealStage::Commit, "commit"),
];

/// Time in each stage, of all workers together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages([Duration; STAGES.len()]);

impl Stages {
    /// Returns the sum over all stages.
    pub fn sum(&self) -> Duration {
        self.0.iter().sum()
    }

    /// Adds the times of another worker.
    pub fn add(&mut self, other: &Stages) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
    }

    /// Returns each stage's name and its share of the sum.
    pub fn shares(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let sum = self.sum().as_secs_f64().max(f64::MIN_POSITIVE);
        let share = move |elapsed: Duration| elapsed.as_secs_f64() / sum;
        self.0.into_iter().zip(STAGES).map(move |(elapsed, (_, name))| (name, share(elapsed)))
    }
}

impl Index<SealStage> for Stages {
    type Output = Duration;
    fn index(&self, stage: SealStage) -> &Duration {
        &self.0[stage as usize]
    }
}

thread_local! {
    static NOW: Cell<Option<(SealStage, Instant)>> = const { Cell::new(None) };
    static ELAPSED: Cell<Stages> = const { Cell::new(Stages([Duration::ZERO; STAGES.len()])) };
}

/// Ends the current stage of this thread and enters `stage`.
pub fn enter(stage: SealStage) {
    let Some((before, since)) = NOW.get() else { return };
    if before != stage {
        let now = Instant::now();
        spend(before, now - since);
        NOW.set(Some((stage, now)));
    }
}

fn spend(stage: SealStage, time: Duration) {
    let mut elapsed = ELAPSED.get();
    elapsed.0[stage as usize] += time;
    ELAPSED.set(elapsed);
}

/// Makes this thread a worker, in [`SealStage::Open`].
pub(super) fn begin() {
    ELAPSED.set(Stages::default());
    NOW.set(Some((SealStage::Open, Instant::now())));
}

/// Ends the account of this thread and returns its times.
pub(super) fn end() -> Stages {
    if let Some((stage, since)) = NOW.take() {
        spend(stage, since.elapsed());
    }
    ELAPSED.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_the_order_of_the_stages() {
        for (index, (stage, name)) in STAGES.into_iter().enumerate() {
            assert_eq!((stage as usize, name), (index, &*format!("{stage:?}").to_lowercase()));
        }
    }

    #[test]
    fn every_moment_of_a_worker_is_some_stage_s() {
        enter(SealStage::Hash);
        assert_eq!(end(), Stages::default(), "no worker, no account");
        let began = Instant::now();
        begin();
        for stage in [SealStage::Read, SealStage::Hash, SealStage::Hash, SealStage::Write] {
            enter(stage);
            std::hint::black_box((0..10_000).sum::<u64>());
        }
        let stages = end();
        assert!(stages.sum() <= began.elapsed());
        for stage in [SealStage::Open, SealStage::Read, SealStage::Hash, SealStage::Write] {
            assert!(stages[stage] > Duration::ZERO, "{stage:?}");
        }
        assert_eq!(stages[SealStage::Commit], Duration::ZERO);
        assert!((stages.shares().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-9);
    }
}
