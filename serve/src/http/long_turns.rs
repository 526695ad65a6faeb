// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits the share of an event loop that long answers get, so that new events are served beside
//! them.
//!
//! A step of a download fills a socket, which takes up to milliseconds. If each step were made as
//! soon as its socket has room, a new client would wait for the steps of all downloads: to be
//! accepted, to be read, to be answered. So a loop makes [`STEPS_A_ROUND`] steps between two looks
//! at events; the others wait in the order of their arrival.
//!
//! Costs two atomic operations a step. Where more steps wait than a round has, each round costs a
//! look at events (`epoll_wait`) and each of its steps a wake.
//!
//! Does not bound a step ([`crate::http::transmit`] does).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, Semaphore};
use tokio::task::yield_now;

/// Turns of one event loop.
pub(crate) struct LongTurns {
    /// Steps that are left of this round.
    steps: Semaphore,
    waiting: AtomicUsize,
    is_wanted: Notify,
}

/// A task that waits for a step; dropping it leaves the queue.
struct Waiting<'a>(&'a LongTurns);

impl LongTurns {
    pub(crate) fn new() -> Arc<LongTurns> {
        let (waiting, is_wanted) = Default::default();
        Arc::new(LongTurns { steps: Semaphore::new(STEPS_A_ROUND), waiting, is_wanted })
    }

    /// Waits until the next step of a long answer may be made.
    pub(crate) async fn next(&self) {
        if let Ok(step) = self.steps.try_acquire() {
            return step.forget();
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(self);
        self.is_wanted.notify_one();
        if let Ok(step) = self.steps.acquire().await {
            step.forget();
        }
    }

    /// Begins a round whenever one is wanted and new events have been looked at.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            self.is_wanted.notified().await;
            while self.waiting.load(Ordering::Relaxed) > 0 {
                yield_now().await;
                self.steps.add_permits(STEPS_A_ROUND - self.steps.available_permits());
            }
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// With four the longest of small answers beside 1,000 downloads took 20 and 23 ms, without turns
/// 364 and 250 (EPYC of 2 cores, loopback, unoptimized programs in turn). Other numbers were not
/// tried.
const STEPS_A_ROUND: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// As many downloads as there may be, all of which are ready to continue: a new event waits for
    /// a single round of them, and each continues as often as any other.
    #[tokio::test]
    async fn something_new_waits_for_a_round_of_steps() {
        const DOWNLOADS: usize = 500;
        let turns = LongTurns::new();
        let keeping = tokio::spawn(turns.clone().run());
        let made: Arc<Vec<AtomicUsize>> = Arc::new((0..DOWNLOADS).map(|_| 0.into()).collect());
        let downloads: Vec<_> = (0..DOWNLOADS)
            .map(|number| {
                let (turns, made) = (turns.clone(), made.clone());
                tokio::spawn(async move {
                    loop {
                        turns.next().await;
                        made[number].fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let seen = made.clone();
        let new = tokio::spawn(async move {
            let all = || seen.iter().map(|made| made.load(Ordering::Relaxed)).sum::<usize>();
            let mut most = 0;
            for _ in 0..1000 {
                let before = all();
                // Behind the next look at events, as a socket that has become readable.
                yield_now().await;
                most = most.max(all() - before);
            }
            most
        });
        let most = new.await.unwrap();
        assert!(most <= 2 * STEPS_A_ROUND, "{most} steps of downloads before the new one's turn");
        let counts = || made.iter().map(|made| made.load(Ordering::Relaxed));
        let (least, most) = (counts().min().unwrap(), counts().max().unwrap());
        assert!(least > 0 && most - least <= STEPS_A_ROUND, "{least} to {most} steps each");
        downloads.iter().for_each(|download| download.abort());
        keeping.abort();
    }

    /// A download that is cancelled while it waits leaves its step to the next.
    #[tokio::test]
    async fn cancelled_downloads_take_no_step_along() {
        let turns = LongTurns::new();
        let keeping = tokio::spawn(turns.clone().run());
        for _ in 0..100 {
            let waits = (0..2 * STEPS_A_ROUND).map(|_| {
                let turns = turns.clone();
                tokio::spawn(async move { turns.next().await })
            });
            let waits: Vec<_> = waits.collect();
            yield_now().await;
            waits.iter().step_by(2).for_each(|wait| wait.abort());
            for wait in waits {
                let _ = wait.await;
            }
        }
        assert_eq!(turns.waiting.load(Ordering::Relaxed), 0);
        assert!(turns.steps.available_permits() <= STEPS_A_ROUND);
        for _ in 0..3 * STEPS_A_ROUND {
            turns.next().await;
        }
        keeping.abort();
    }
}
