// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scanning threads. [`SCANNERS`] threads run scans that peers wait for, one follows
//! recordings, and the background planner, of the lowest priority, plans the indexed files from the
//! start on.
//!
//! A slice of a scan that peers wait for runs on a scanner, any other on the planner; a job moves
//! between the two after a slice. Their nice values yield the processor to the pacers and the
//! control threads.
//!
//! Sources: setpriority(2), sched(7), ioprio_set(2) (a thread's I/O priority follows from its nice
//! value).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use media::AssetPlan;
use media::store::{asset_key, name_codecs};

use super::planning::Slice;
use super::scans::{OpenedFile, PlannerTask, SCANNERS, ScanSlice};
use super::{Known, Library, NoAsset, StreamSummary, verdicts};
use crate::error::Error;
use crate::library::asset::LibraryAsset;
use crate::library::served_folder::Denied;

/// Starts the threads; [`super::scans::Scans::stop`] ends them.
pub(super) fn start(library: &Arc<Library>) -> Result<Vec<JoinHandle<()>>, Error> {
    let planner = library.clone();
    let mut threads = vec![super::watch::spawn("planner", move || planner.plan_listed())?];
    let follower = library.clone();
    threads.push(super::watch::spawn("follower", move || follower.follow_recordings())?);
    for number in 0..SCANNERS {
        let scanner = library.clone();
        let name = format!("scanner-{number}");
        threads.push(super::watch::spawn(&name, move || scanner.scan_wanted())?);
    }
    Ok(threads)
}

impl Library {
    fn scan_wanted(&self) {
        be_nice(SCANNER_NICE);
        let mut piece = Vec::new();
        while let Some(slice) = self.scans.next_wanted() {
            self.advance(slice, &mut piece);
        }
    }

    /// Plans the files that the librarian queues. A file that found no free descriptor is queued
    /// again.
    fn plan_listed(&self) {
        be_nice(PLANNER_NICE);
        let mut piece = Vec::new();
        while let Some(chore) = self.scans.next_task() {
            match chore {
                PlannerTask::Advance(slice) => self.advance(slice, &mut piece),
                PlannerTask::Look(name) => self.look_for_plan(name),
            }
        }
    }

    fn look_for_plan(&self, name: String) {
        if !self.is_waiting(&name) {
            return;
        }
        let opened = match self.open_file(&name) {
            Ok(opened) => opened,
            Err(NoAsset::Denied(denied)) if matches!(*denied, Denied::DescriptorsExhausted) => {
                return self.scans.queue(name, 0, Instant::now() + AGAIN);
            }
            // An event notifies the librarian when that changes.
            Err(_) => return,
        };
        let (key, is_link) = (opened.key.clone(), opened.name != name);
        match self.look_up_planned(opened) {
            Ok(Known::Asset(asset)) => self.note(&name, asset.key(), Ok(StreamSummary::of(&asset))),
            Ok(Known::Unplanned(opened)) => {
                self.scans.begin(opened);
                // A link gets the result of its target, once the target has one.
                if is_link {
                    self.scans.queue(name, key.bytes, Instant::now() + AGAIN);
                }
            }
            Err(NoAsset::Changing { again_in }) => {
                self.scans.queue(name, key.bytes, Instant::now() + again_in.max(AGAIN));
            }
            Err(error) => self.note(&name, &key, Err(&error)),
        }
    }

    /// Advances a scan by one slice.
    fn advance(&self, slice: ScanSlice, piece: &mut Vec<u8>) {
        let number = slice.number();
        let ScanSlice { scan, opened, progress, .. } = slice;
        // Another scan of the file may have ended just before this one began.
        if progress.is_new()
            && let Some(asset) = self.planned(&opened)
        {
            return self.scans.end(number, Ok(asset));
        }
        let began = Instant::now();
        let slice = catch_unwind(AssertUnwindSafe(|| {
            let is_given_up = || scan.is_given_up.load(Ordering::Relaxed);
            progress.advance(&opened, piece, &scan.done, is_given_up)
        }));
        let panicked = || Err(NoAsset::Unreadable("the scanner panicked".to_owned()));
        let planned = match slice {
            Ok(Slice::Unfinished(progress)) => {
                return self.scans.put_back(number, progress, began.elapsed());
            }
            Ok(Slice::Growing(reader, offset)) => {
                return self.scans.end(number, self.follow(&opened, reader, offset));
            }
            Ok(Slice::Over(planned)) => *planned,
            Err(_) => panicked(),
        };
        let elapsed = self.scans.elapsed(number) + began.elapsed();
        if let Some(stream) = &opened.elementary {
            return self
                .scans
                .end(number, self.conclude_elementary(&opened, stream, planned, elapsed));
        }
        let is_wanted = self.scans.is_wanted(number);
        let asset = self.conclude(&opened, planned, elapsed, is_wanted);
        self.scans.end(number, asset);
    }

    /// Stores a scan's result in the cache, the index and the verdicts.
    fn conclude(
        &self,
        opened: &OpenedFile,
        planned: Result<AssetPlan, NoAsset>,
        elapsed: Duration,
        is_wanted: bool,
    ) -> Result<LibraryAsset, NoAsset> {
        let path = self.folder.path_of(&opened.name);
        let planned = planned.and_then(|mut plan| {
            if let AssetPlan::TransportStream(plan) = &mut plan {
                name_codecs(plan, &opened.file);
            }
            match asset_key(&path, &opened.file) {
                Ok(key) if key == opened.key => Ok(plan),
                _ => Err(NoAsset::CHANGING),
            }
        });
        let is_kept = planned
            .as_ref()
            .is_ok_and(|plan| self.cache.keep_plan(&opened.key, &plan.encode(&opened.key)));
        let (now, limit) = (Instant::now(), verdicts::limit(self.entries.read().len()));
        let mut verdicts = self.verdicts.lock();
        let pause = verdicts.note((opened.id, &opened.key), &planned, elapsed, (now, limit));
        drop(verdicts);
        let planned =
            planned.map(|plan| LibraryAsset::new(opened.name.clone(), opened.key.clone(), plan));
        self.note(&opened.name, &opened.key, planned.as_ref().map(StreamSummary::of));
        match planned {
            Ok(asset) => {
                // A plan without a waiting client must not evict one that was requested lately.
                if is_wanted || !is_kept {
                    self.keep_live(&asset);
                }
                Ok(asset)
            }
            Err(NoAsset::Changing { .. }) => {
                if self.is_waiting(&opened.name) {
                    self.scans.queue(opened.name.clone(), opened.key.bytes, now + pause);
                }
                Err(NoAsset::Changing { again_in: pause })
            }
            Err(error) => Err(error),
        }
    }
}

/// Gives the calling thread a lower priority.
pub(crate) fn be_nice(value: i32) {
    // On Linux the nice value belongs to the thread (setpriority(2)).
    let own = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(own), value) {
        tracing::debug!("setpriority {value}: {error}; scans have the priority of control");
    }
}

/// Clients wait for scanners; control and pacers have precedence.
const SCANNER_NICE: i32 = 5;
/// A tenth of control's share when both want a core. At 19 the share is a seventieth, and a busy
/// machine lists no file as a stream for minutes.
const PLANNER_NICE: i32 = 10;
const AGAIN: Duration = Duration::from_millis(500);
