// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scans in progress and their scheduling.
//!
//! A scan is a job that [`SCANNERS`] threads advance slice by slice in rotation, so that a short
//! file is planned soon beside any number of long ones. A peer that waits for a scan holds only a
//! [`Ticket`]. When the last ticket is dropped (the peers have disconnected, the server stops) the
//! slice ends within a mebibyte. The job of an indexed file is then suspended and continues, with
//! the bytes read so far, on the background planner's one thread of the lowest priority; any other
//! is forgotten. The planner, too, advances the shortest first. At most [`WANTED_MAX`] scans have
//! tickets at a time, [`PER_ADDRESS_MAX`] of one address; further peers wait for a slot.
//!
//! Costs a file descriptor and, for most files, 4 MiB of memory a job. Malicious tables of samples
//! occupy a sixteenth of their file, 72 MiB of a small one and 256 MiB of any, and an eighth more
//! while they grow.
//!
//! Sources: sched(7) (nice values; a thread's I/O priority follows from its own, ioprio_set(2)).
//! Does not decide whether a file needs a scan ([`super::Library`] does) or read files
//! ([`super::planning`] does).

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use media::plan::PlanKey;
use parking_lot::{Condvar, Mutex};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, watch};

use super::planning::Progress;
use super::queue::Queue;
use super::verdicts::FileId;
use super::{Library, NoAsset};
use crate::library::asset::{Asset, LibraryAsset};

/// A scan in progress, shared with the index and the progress bars.
pub(crate) struct Scan {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(super) done: AtomicU64,
    /// When set, the thread that advances the scan stops before the next piece.
    pub(super) is_given_up: AtomicBool,
}

/// An open file of the folder.
pub(super) struct OpenedFile {
    /// Name below the served folder, with links resolved.
    pub(super) name: String,
    pub(super) file: File,
    pub(super) key: PlanKey,
    pub(super) id: FileId,
    /// True while a recorder writes the file.
    pub(super) is_growing: bool,
    /// The transport stream whose elementary streams are looked for; unset where the file is to be
    /// planned.
    pub(super) elementary: Option<Arc<Asset>>,
}

/// All jobs and the queue of the background planner.
#[derive(Default)]
pub(super) struct Scans {
    state: Mutex<State>,
    /// Signalled when there is work or the server stops.
    work: Condvar,
    place_freed: Notify,
}

#[derive(Default)]
struct State {
    jobs: BTreeMap<u64, Job>,
    begun: u64,
    /// Wanted jobs that no thread is advancing, the next one first.
    turns: VecDeque<u64>,
    /// Files that the background planner has yet to look at.
    queue: Queue,
    is_stopping: bool,
}

type ScanOutcome = Result<LibraryAsset, NoAsset>;

struct Job {
    scan: Arc<Scan>,
    opened: Arc<OpenedFile>,
    /// `None` while a thread advances the job.
    progress: Option<Progress>,
    /// Time spent reading the file.
    elapsed: Duration,
    tickets: usize,
    /// Address of the first client that took a ticket.
    asked_by: Option<IpAddr>,
    /// True when the background planner continues the job without tickets.
    is_listed: bool,
    outcome: watch::Sender<Option<ScanOutcome>>,
}

/// A job claimed by a thread for one slice.
pub(super) struct ScanSlice {
    number: u64,
    pub(super) scan: Arc<Scan>,
    pub(super) opened: Arc<OpenedFile>,
    pub(super) progress: Progress,
}

/// Task of the background planner.
pub(super) enum PlannerTask {
    /// Advance a scan.
    Advance(ScanSlice),
    /// Check whether this file has to be planned.
    Look(String),
}

/// A client's claim on a scan's result. Dropping the last ticket gives the scan up.
pub(super) struct Ticket {
    library: Arc<Library>,
    number: u64,
    outcome: watch::Receiver<Option<ScanOutcome>>,
}

impl Scans {
    /// True when `peer` may request one more scan.
    pub(super) fn has_place(&self, peer: IpAddr) -> bool {
        self.state.lock().has_place(peer)
    }

    /// Returns a future that is ready when a slot may have been freed after this call.
    pub(super) fn place_freed(&self) -> Notified<'_> {
        self.place_freed.notified()
    }

    /// Queues a file of `bytes` for the background planner, at `at` or later.
    pub(super) fn queue(&self, name: String, bytes: u64, at: Instant) {
        self.state.lock().queue.push(name, bytes, at);
        self.work.notify_all();
    }

    /// Begins a scan without tickets, unless the file's scan is in progress.
    pub(super) fn begin(&self, opened: OpenedFile) {
        let mut state = self.state.lock();
        match state.find(&opened).and_then(|number| state.jobs.get_mut(&number)) {
            Some(job) => job.is_listed = true,
            None => drop(state.insert(opened, true)),
        }
    }

    /// Removes and returns the next wanted job; blocks until there is one. `None` when the server
    /// stops.
    pub(super) fn next_wanted(&self) -> Option<ScanSlice> {
        let mut state = self.state.lock();
        loop {
            if state.is_stopping {
                return None;
            }
            match state.turns.pop_front() {
                Some(number) => {
                    if let Some(slice) = state.slice(number) {
                        return Some(slice);
                    }
                }
                None => self.work.wait(&mut state),
            }
        }
    }

    /// Returns the background planner's next task; blocks until there is one. `None` when the
    /// server stops.
    pub(super) fn next_task(&self) -> Option<PlannerTask> {
        let mut state = self.state.lock();
        loop {
            if state.is_stopping {
                return None;
            }
            let now = Instant::now();
            let laid_aside = state.laid_aside().map(|(number, job)| (job.cost(), number)).min();
            let queued = state.queue.peek_bytes(now).unwrap_or(u64::MAX);
            if let Some((_, number)) = laid_aside.filter(|(cost, _)| *cost <= queued)
                && let Some(slice) = state.slice(number)
            {
                return Some(PlannerTask::Advance(slice));
            }
            if let Some(name) = state.queue.pop(now) {
                return Some(PlannerTask::Look(name));
            }
            let wait = state.queue.next_at().map_or(LONG, |at| at.saturating_duration_since(now));
            self.work.wait_for(&mut state, wait);
        }
    }

    /// Returns a job after a slice that took `elapsed`: to the wanted jobs or to the planner's.
    pub(super) fn put_back(&self, number: u64, progress: Progress, elapsed: Duration) {
        let mut state = self.state.lock();
        let Some(job) = state.jobs.get_mut(&number) else { return };
        job.progress = Some(progress);
        job.elapsed += elapsed;
        match job.tickets {
            0 => state.lay_aside(number),
            _ => state.turns.push_back(number),
        }
        drop(state);
        self.work.notify_all();
    }

    /// True while a ticket for the job exists.
    pub(super) fn is_wanted(&self, number: u64) -> bool {
        self.state.lock().jobs.get(&number).is_some_and(|job| job.tickets > 0)
    }

    /// Returns the time spent on a job before the present slice.
    pub(super) fn elapsed(&self, number: u64) -> Duration {
        self.state.lock().jobs.get(&number).map_or(Duration::ZERO, |job| job.elapsed)
    }

    /// Ends a job and sends `outcome` to its tickets.
    pub(super) fn end(&self, number: u64, outcome: ScanOutcome) {
        let ended = self.state.lock().jobs.remove(&number);
        if let Some(job) = ended {
            job.outcome.send_replace(Some(outcome));
        }
        self.place_freed.notify_waiters();
    }

    /// Ends all threads that wait in [`Scans`] or advance a scan.
    pub(super) fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopping = true;
        state.jobs.values().for_each(|job| job.scan.is_given_up.store(true, Ordering::Relaxed));
        drop(state);
        self.work.notify_all();
    }

    /// Lists the jobs in the order of their beginning.
    pub(super) fn list(&self) -> Vec<Arc<Scan>> {
        self.state.lock().jobs.values().map(|job| job.scan.clone()).collect()
    }
}

impl ScanSlice {
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl State {
    fn find(&self, opened: &OpenedFile) -> Option<u64> {
        let is_it = |job: &Job| {
            let is_growing = job.opened.is_growing && opened.is_growing;
            let is_alike = job.opened.elementary.is_some() == opened.elementary.is_some();
            let is_same = is_growing || job.opened.key == opened.key;
            is_same && is_alike && job.opened.id == opened.id
        };
        self.jobs.iter().find(|(_, job)| is_it(job)).map(|(&number, _)| number)
    }

    fn insert(&mut self, opened: OpenedFile, is_listed: bool) -> u64 {
        let scan = Arc::new(Scan {
            name: opened.name.clone(),
            bytes: opened.key.bytes,
            done: AtomicU64::new(0),
            is_given_up: AtomicBool::new(false),
        });
        let number = self.begun;
        self.begun += 1;
        let progress = Some(Progress::new(&opened));
        let (opened, outcome) = (Arc::new(opened), watch::Sender::new(None));
        let (elapsed, tickets, asked_by) = (Duration::ZERO, 0, None);
        self.jobs.insert(
            number,
            Job { scan, opened, progress, elapsed, tickets, asked_by, is_listed, outcome },
        );
        number
    }

    fn has_place(&self, peer: IpAddr) -> bool {
        let wanted = || self.jobs.values().filter(|job| job.tickets > 0);
        let own = wanted().filter(|job| job.asked_by == Some(peer)).count();
        // A client with n scans must leave more than n slots free for new clients.
        let free = WANTED_MAX.saturating_sub(wanted().count());
        own < free && own < PER_ADDRESS_MAX
    }

    fn slice(&mut self, number: u64) -> Option<ScanSlice> {
        let job = self.jobs.get_mut(&number)?;
        let progress = job.progress.take()?;
        job.scan.is_given_up.store(false, Ordering::Relaxed);
        Some(ScanSlice { number, scan: job.scan.clone(), opened: job.opened.clone(), progress })
    }

    /// Iterates over jobs without tickets that no thread is advancing.
    fn laid_aside(&self) -> impl Iterator<Item = (u64, &Job)> {
        let is_laid_aside = |job: &Job| job.tickets == 0 && job.progress.is_some();
        self.jobs.iter().filter(move |(_, job)| is_laid_aside(job)).map(|(&n, job)| (n, job))
    }

    /// Keeps an unwanted job for the background planner, or forgets it. Beyond [`LAID_ASIDE_MAX`]
    /// the longest kept job is forgotten and read from its beginning later.
    fn lay_aside(&mut self, number: u64) {
        if self.jobs.get(&number).is_some_and(|job| !job.is_listed) {
            self.jobs.remove(&number);
        }
        if self.laid_aside().count() > LAID_ASIDE_MAX {
            let longest = self.laid_aside().map(|(number, job)| (job.cost(), number)).max();
            if let Some(job) = longest.and_then(|(_, number)| self.jobs.remove(&number)) {
                let opened = &job.opened;
                self.queue.push(opened.name.clone(), opened.key.bytes, Instant::now());
            }
        }
    }
}

impl Job {
    /// Returns the cost by which jobs are ordered, in bytes.
    fn cost(&self) -> u64 {
        let done = self.scan.done.load(Ordering::Relaxed);
        cost(self.scan.bytes.saturating_sub(done), self.elapsed)
    }
}

/// Returns the bytes still to be read, or as many as could have been read in the elapsed time if
/// those are more: tables may take long at one place of their file, and a scan that has taken long
/// is expected to take as long again.
fn cost(left: u64, elapsed: Duration) -> u64 {
    let read = elapsed.as_micros().saturating_mul(BYTES_PER_US.into());
    left.max(u64::try_from(read).unwrap_or(u64::MAX))
}

impl Ticket {
    /// Obtains a ticket for this file's scan and begins the scan unless it is in progress; `None`
    /// when no slot is free. `is_listed`: the background planner would scan the file, too.
    pub(super) fn take(
        library: &Arc<Library>,
        opened: OpenedFile,
        is_listed: bool,
        peer: IpAddr,
    ) -> Option<Ticket> {
        let mut state = library.scans.state.lock();
        let found = state.find(&opened);
        let is_wanted = found.is_some_and(|number| state.jobs[&number].tickets > 0);
        if !is_wanted && !state.has_place(peer) {
            return None;
        }
        let number = found.unwrap_or_else(|| state.insert(opened, is_listed));
        let job = state.jobs.get_mut(&number).expect("it was found or made");
        job.tickets += 1;
        job.is_listed |= is_listed;
        let outcome = job.outcome.subscribe();
        if !is_wanted {
            job.asked_by = Some(peer);
            // A job that the background planner is advancing returns before its next piece.
            job.scan.is_given_up.store(job.progress.is_none(), Ordering::Relaxed);
            if job.progress.is_some() {
                state.turns.push_back(number);
            }
        }
        drop(state);
        library.scans.work.notify_all();
        Some(Ticket { library: library.clone(), number, outcome })
    }

    /// Waits for the scan's result.
    pub(super) async fn outcome(mut self) -> ScanOutcome {
        let outcome = self.outcome.wait_for(Option::is_some).await;
        // The sender is dropped without a result only while the server stops.
        outcome.ok().and_then(|outcome| outcome.clone()).unwrap_or(Err(NoAsset::BUSY))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let scans = &self.library.scans;
        let mut state = scans.state.lock();
        let number = self.number;
        let Some(job) = state.jobs.get_mut(&number) else { return };
        job.tickets -= 1;
        if job.tickets == 0 {
            job.scan.is_given_up.store(true, Ordering::Relaxed);
            if job.progress.is_some() {
                state.turns.retain(|&turn| turn != number);
                state.lay_aside(number);
            }
            drop(state);
            scans.work.notify_all();
            scans.place_freed.notify_waiters();
        }
    }
}

/// Threads for scans that peers wait for: the disk is the bottleneck, not the processor.
pub(super) const SCANNERS: usize = 4;
/// Together with [`LAID_ASIDE_MAX`] bounds the memory of scans: 100 MiB for most files, and where
/// all are malicious 1.9 GiB for files of less than a gigabyte and 6.8 GiB for any.
const WANTED_MAX: usize = 16;
/// Slots for one address; fewer while others hold slots.
const PER_ADDRESS_MAX: usize = 8;
const LAID_ASIDE_MAX: usize = 8;
/// Bytes that are read and parsed in a microsecond, from the page cache.
const BYTES_PER_US: u32 = 1000;
const LONG: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    /// A file whose tables take hours at one place once counted as the shortest for ever.
    #[test]
    fn scan_that_takes_long_comes_behind_files_that_were_not_looked_at() {
        let film = 2 << 30;
        assert_eq!(cost(film, Duration::from_millis(500)), film, "most of it is left");
        let hostile = |seconds| cost(8 << 20, Duration::from_secs(seconds));
        assert!(hostile(1) < film && hostile(3) > film);
        assert_eq!(cost(0, Duration::MAX), u64::MAX);
    }
}
