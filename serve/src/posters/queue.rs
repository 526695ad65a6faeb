// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queue of requests for pictures, fair to client addresses.
//!
//! Requests for the same pictures share one job. Posters precede thumbnails, which take twenty
//! times as long. An address holds at most half of the places that others leave free, so a client
//! that requests everything keeps nobody out. A job whose clients have all hung up is not begun;
//! one that a client has waited for until its time-out is, for the client's next request.
//!
//! Costs, for each job, the plan of its file, which stays in memory until its turn: some megabytes.
//!
//! Does not make pictures ([`super::maker`]).

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use access::counted_as;
use media::plan::PlanKey;
use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use super::{Outcome, PictureKind};
use crate::library::asset::LibraryAsset;

/// Pictures of a content.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PictureName {
    pub(super) path: Vec<u8>,
    pub(super) content: (u64, i128, u64),
    pub(super) kind: PictureKind,
}

impl PictureName {
    pub(super) fn new(key: &PlanKey, kind: PictureKind) -> PictureName {
        let content = (key.bytes, key.modified_ns, key.inode);
        PictureName { path: key.path.clone(), content, kind }
    }
}

/// Jobs that wait or are made.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    jobs: HashMap<PictureName, Job>,
    posters: VecDeque<PictureName>,
    thumbnails: VecDeque<PictureName>,
    is_stopping: bool,
}

struct Job {
    asset: LibraryAsset,
    /// Address (of IPv6 the network) that asked first.
    asked_by: IpAddr,
    waiting: usize,
    /// True when it is made although no client waits.
    is_kept: bool,
    outcome: watch::Sender<Option<Outcome>>,
}

/// A client's claim on the result of a job.
pub(super) struct PictureTicket<'a> {
    queue: &'a Queue,
    name: PictureName,
    outcome: watch::Receiver<Option<Outcome>>,
}

impl Queue {
    /// Obtains a ticket; `None` where no place is free for this client.
    pub(super) fn ticket(
        &self,
        name: PictureName,
        asset: &LibraryAsset,
        peer: IpAddr,
    ) -> Option<PictureTicket<'_>> {
        let mut state = self.state.lock();
        let asked_by = counted_as(peer);
        if let Some(job) = state.jobs.get_mut(&name) {
            job.waiting += 1;
            let outcome = job.outcome.subscribe();
            return Some(PictureTicket { queue: self, name, outcome });
        }
        let own = state.jobs.values().filter(|job| job.asked_by == asked_by).count();
        let free = PLACES.saturating_sub(state.jobs.len());
        if state.is_stopping || own >= free {
            return None;
        }
        let (sender, outcome) = watch::channel(None);
        let (asset, waiting) = (asset.clone(), 1);
        let job = Job { asset, asked_by, waiting, is_kept: false, outcome: sender };
        state.jobs.insert(name.clone(), job);
        match name.kind {
            PictureKind::Poster => state.posters.push_back(name.clone()),
            PictureKind::Thumbnails => state.thumbnails.push_back(name.clone()),
        }
        drop(state);
        self.work.notify_one();
        Some(PictureTicket { queue: self, name, outcome })
    }

    /// Waits for the next job; `None` when the server stops.
    pub(super) fn next(&self) -> Option<(PictureName, LibraryAsset)> {
        let mut state = self.state.lock();
        loop {
            if state.is_stopping {
                return None;
            }
            let turn = state.posters.pop_front();
            let Some(name) = turn.or_else(|| state.thumbnails.pop_front()) else {
                self.work.wait(&mut state);
                continue;
            };
            let Some(job) = state.jobs.get(&name) else { continue };
            if job.waiting > 0 || job.is_kept {
                let asset = job.asset.clone();
                return Some((name, asset));
            }
            state.jobs.remove(&name);
        }
    }

    /// Sends the result of a job to the clients that wait.
    pub(super) fn end(&self, name: &PictureName, outcome: Outcome) {
        let job = self.state.lock().jobs.remove(name);
        if let Some(job) = job {
            job.outcome.send_replace(Some(outcome));
        }
    }

    /// Ends the threads that wait for work, and all jobs.
    pub(super) fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopping = true;
        state.jobs.clear();
        drop(state);
        self.work.notify_all();
    }
}

impl PictureTicket<'_> {
    /// Waits for the result; `None` when the server stops.
    pub(super) async fn outcome(&mut self) -> Option<Outcome> {
        self.outcome.wait_for(Option::is_some).await.ok()?.clone()
    }

    /// Has the pictures made although this client no longer waits.
    pub(super) fn keep(&self) {
        if let Some(job) = self.queue.state.lock().jobs.get_mut(&self.name) {
            job.is_kept = true;
        }
    }
}

impl Drop for PictureTicket<'_> {
    fn drop(&mut self) {
        if let Some(job) = self.queue.state.lock().jobs.get_mut(&self.name) {
            job.waiting = job.waiting.saturating_sub(1);
        }
    }
}

/// Jobs at most: half a minute of making posters.
const PLACES: usize = 64;
