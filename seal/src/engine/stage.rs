// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a worker's time goes into, stage by stage.
//!
//! A worker is always in one stage; who begins another thing says so ([`enter`]), from however deep
//! in a form, and the time since is the stage's. The account is the thread's own, so streams need
//! no handle for it and nothing is shared.
//!
//! Costs one clock read an entry. On threads that are no workers it does nothing.

use std::cell::Cell;
use std::ops::Index;
use std::time::{Duration, Instant};

/// What a worker can be doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealStage {
    /// Taking works and opening sources and targets.
    Open,
    /// Source to slice.
    Read,
    /// Hashes of content.
    Hash,
    /// Comparing with what is known.
    Check,
    /// Compression.
    Deflate,
    /// Ciphers, in lanes or not.
    Cipher,
    /// Slice to target.
    Write,
    /// Times, journal, names, syncing.
    Commit,
}

/// All stages, in the order in which a byte meets them.
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

/// Time spent in each stage, of all workers together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages([Duration; STAGES.len()]);

impl Stages {
    /// All of them together.
    pub fn sum(&self) -> Duration {
        self.0.iter().sum()
    }

    /// Adds those of another worker.
    pub fn add(&mut self, other: &Stages) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
    }

    /// Every stage by its name, with its share of all.
    pub fn shares(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let sum = self.sum().as_secs_f64().max(f64::MIN_POSITIVE);
        let share = move |spent: Duration| spent.as_secs_f64() / sum;
        self.0.into_iter().zip(STAGES).map(move |(spent, (_, name))| (name, share(spent)))
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
    static SPENT: Cell<Stages> = const { Cell::new(Stages([Duration::ZERO; STAGES.len()])) };
}

/// Says what this thread does from now on.
pub fn enter(stage: SealStage) {
    let Some((before, since)) = NOW.get() else { return };
    if before != stage {
        let now = Instant::now();
        spend(before, now - since);
        NOW.set(Some((stage, now)));
    }
}

fn spend(stage: SealStage, time: Duration) {
    let mut spent = SPENT.get();
    spent.0[stage as usize] += time;
    SPENT.set(spent);
}

/// This thread is a worker now.
pub(super) fn begin() {
    SPENT.set(Stages::default());
    NOW.set(Some((SealStage::Open, Instant::now())));
}

/// It is none any more: what it spent.
pub(super) fn end() -> Stages {
    if let Some((stage, since)) = NOW.take() {
        spend(stage, since.elapsed());
    }
    SPENT.take()
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
