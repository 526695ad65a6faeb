// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread that keeps the files of cameras that are recorded for long: it requests the next file at
//! the times of their clock, deletes what the rules do not keep, and hands complete files to
//! programs.
//!
//! The oldest files go first. By age and bytes each camera's own are deleted; for the free space of
//! a disk the oldest of all cameras on it that have such a rule and lack that space. A file that is
//! being written, here or by another recorder, or that a program still handles, is never deleted,
//! nor is anything that is not named as a file of the camera. Where nothing is left to delete, the
//! cameras are recorded until the disk is full; then their streams stop, and are tried again every
//! ten seconds at first, five minutes at last.
//!
//! Nothing is deleted by age for a day after the clock of the machine has jumped forward, or after
//! a pause of a day in which nothing was recorded: such a clock may be wrong. Nothing is deleted
//! for free space for an hour after deletions that freed none. No rule is applied in a folder that
//! is on another disk than at the start, or a symbolic link.
//!
//! Complete files are added to the index of their camera ([`crate::index_queue`]).
//!
//! Costs a look at the clocks and the disks every five seconds, and a second after a file is
//! complete.
//!
//! Sources: unlink(2), statvfs(3). Does not write files.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use media::PlanStore;
use media::mux::FileRequest;
use recordings::{CameraFiles, FileStartName};
use rustix::time::{ClockId, clock_gettime};

use crate::closer::CompleteFile;
use crate::error::{Error, RecordSetting};
use crate::file_clock::FileClock;
use crate::file_commands::FileCommands;
use crate::index_queue::IndexQueue;
use crate::kept_files::{DoubtedClock, KeptFile, KeptFiles, has_one_name, is_written_by_another};
use crate::writer::WriteStats;

/// Counts of the files of a camera.
#[derive(Debug, Default)]
pub(crate) struct KeeperStats {
    /// Files that were deleted, and their bytes.
    pub(crate) deleted: AtomicU64,
    pub(crate) deleted_bytes: AtomicU64,
    /// Files whose program failed or was not run.
    pub(crate) commands_failed: Arc<AtomicU64>,
}

/// A camera whose files are kept.
pub(crate) struct KeptCamera {
    /// Number of its stream.
    pub(crate) stream: usize,
    pub(crate) files: CameraFiles,
    pub(crate) request: FileRequest,
    /// Length of files by the clock of the camera.
    pub(crate) length: Option<Duration>,
    pub(crate) written: Arc<WriteStats>,
    pub(crate) stats: Arc<KeeperStats>,
}

/// State of the thread.
pub(crate) struct Keeper {
    cameras: Vec<CameraState>,
    commands: FileCommands,
    index: IndexQueue,
    plans: Arc<PlanStore>,
    clock: DoubtedClock,
    /// Time at which ages were compared last.
    compared: Option<Instant>,
    /// Last deletions for free space, by device.
    rounds: HashMap<u64, FreeRound>,
    /// The last report about each disk.
    reported: HashMap<u64, (&'static str, Instant)>,
    /// Files that another recorder writes or that could not be deleted, and the time at which that
    /// was found.
    refused: HashMap<PathBuf, Instant>,
    /// Deletions that are left until the clock is looked at again.
    deletions_left: usize,
}

/// Deletions on a disk for its free space.
struct FreeRound {
    /// Time of the last of them.
    at: Instant,
    /// Time from then on for which nothing is deleted.
    pause: Duration,
    /// True while more is to be deleted.
    is_open: bool,
    /// Free bytes before, bytes that were deleted, and bytes that the recorder had written.
    free: u64,
    deleted: u64,
    written: u64,
}

impl FreeRound {
    fn new(free: u64, written: u64) -> FreeRound {
        let (at, pause) = (Instant::now(), FREE_EVERY);
        FreeRound { at, pause, is_open: false, free, deleted: 0, written }
    }
}

struct CameraState {
    camera: KeptCamera,
    kept: KeptFiles,
    clock: Option<FileClock>,
    retry: Option<Retry>,
    /// Device of the folder when the recorder was started.
    device: u64,
    /// The file that is being written, and the time at which it was first seen or another was
    /// requested.
    growing: Option<(PathBuf, Instant)>,
    /// True while another folder, or none, is there.
    is_gone: bool,
    /// Files in a row that could not be deleted, and the time of the first.
    failures: Option<(u32, Instant)>,
    /// True if programs and people may have changed files since the list was compared with them.
    is_changed: bool,
}

/// Attempts to write again after a failure.
struct Retry {
    at: Instant,
    wait: Duration,
}

impl Keeper {
    /// Reads the folders of the cameras.
    ///
    /// # Errors
    /// Caller: more free space is asked for than a disk has. Host: a folder cannot be read, or a
    /// thread is refused.
    pub(crate) fn new(cameras: Vec<KeptCamera>, plans: Arc<PlanStore>) -> Result<Keeper, Error> {
        let cameras = cameras.into_iter().map(CameraState::new).collect::<Result<Vec<_>, _>>()?;
        let programs = cameras.iter().map(|CameraState { camera, .. }| {
            (&camera.files, camera.stats.commands_failed.clone())
        });
        let commands = FileCommands::start(programs)?;
        let files = cameras.iter().map(|state| state.camera.files.clone()).collect();
        let index = IndexQueue::start(files)?;
        let spans = cameras.iter().flat_map(|state| state.kept.spans());
        let clock = DoubtedClock::start(SystemTime::now(), steady(), spans);
        let has_age = |state: &CameraState| state.camera.files.retention.age.is_some();
        if clock.is_doubted() && cameras.iter().any(has_age) {
            tracing::warn!(
                "nothing was recorded for a day or more before: nothing is deleted by keep_days \
                 until a day was recorded, because the clock of this machine may be wrong"
            );
        }
        Ok(Keeper {
            cameras,
            commands,
            index,
            plans,
            clock,
            compared: None,
            rounds: HashMap::new(),
            reported: HashMap::new(),
            refused: HashMap::new(),
            deletions_left: 0,
        })
    }

    /// Keeps the files until the senders of complete files are dropped.
    pub(crate) fn run(mut self, complete: &Receiver<CompleteFile>) {
        let mut look_at = Instant::now();
        loop {
            let now = SystemTime::now();
            self.request_files(now);
            if Instant::now() >= look_at {
                // The clock and complete files do not wait for long deletions.
                let is_done = self.look(now);
                look_at = Instant::now() + if is_done { LOOK_EVERY } else { Duration::ZERO };
            }
            let until_look = look_at.saturating_duration_since(Instant::now());
            match complete.recv_timeout(until_minute(now).min(until_look)) {
                Ok(file) => {
                    self.complete(file);
                    complete.try_iter().for_each(|file| self.complete(file));
                    look_at = look_at.min(Instant::now() + SETTLE);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.commands.end(END_WAIT);
        self.index.end(INDEX_WAIT);
    }

    /// Requests the next file of cameras whose period has begun.
    fn request_files(&mut self, now: SystemTime) {
        for state in &mut self.cameras {
            if state.clock.as_mut().is_some_and(|clock| clock.has_begun(now)) {
                state.camera.request.make();
            }
        }
    }

    fn complete(&mut self, CompleteFile { stream, path }: CompleteFile) {
        let mut cameras = self.cameras.iter_mut().enumerate();
        let Some((index, state)) = cameras.find(|(_, state)| state.camera.stream == stream) else {
            return;
        };
        match state.kept.complete(&state.camera.files, path.clone()) {
            true => {
                tracing::info!("{}: complete", path.display());
                self.commands.add(index, &path);
                if state.is_there() {
                    self.index.add(index, path);
                }
            }
            false => tracing::warn!("{}: no file of its camera any more", path.display()),
        }
    }

    /// Applies all rules; returns false where more is to be deleted at once.
    fn look(&mut self, now: SystemTime) -> bool {
        self.deletions_left = DELETIONS_MAX;
        if let Some(jump) = self.clock.look(now, steady()) {
            tracing::warn!(
                "the clock of this machine jumped forward by {} s: nothing is deleted by keep_days \
                 for a day",
                jump.as_secs()
            );
        }
        self.refused.retain(|_, at| at.elapsed() < REFUSED_WAIT);
        // A year of files of many cameras is compared once a minute.
        let is_due = self.compared.is_none_or(|compared| compared.elapsed() >= MINUTE);
        for state in &mut self.cameras {
            state.failures = state.failures.filter(|(_, at)| at.elapsed() < REFUSED_WAIT);
            state.is_changed |= is_due;
        }
        let now = Some(now).filter(|_| is_due && !self.clock.is_doubted());
        for index in 0..self.cameras.len() {
            if self.deletions_left == 0 {
                break;
            }
            if !self.cameras[index].is_there() {
                continue;
            }
            let mut surplus = self.surplus(index, now);
            if !surplus.is_empty() && self.cameras[index].refresh_if_changed() {
                surplus = self.surplus(index, now);
            }
            for (start, file) in surplus.into_iter().take(self.deletions_left) {
                if self.cameras[index].can_delete() {
                    self.delete(index, start, &file, "keep_days or keep_gb");
                }
            }
        }
        if self.deletions_left > 0 {
            self.free_disks();
        }
        self.cameras.iter_mut().for_each(CameraState::retry);
        self.cameras.iter_mut().for_each(CameraState::end_long_file);
        let is_done = self.deletions_left > 0;
        if is_due && is_done {
            self.compared = Some(Instant::now());
        }
        is_done
    }

    fn surplus(&self, index: usize, now: Option<SystemTime>) -> Vec<(FileStartName, KeptFile)> {
        let state = &self.cameras[index];
        let limits = state.camera.files.retention;
        state.kept.surplus(&limits, now, state.growing_bytes(), |file| self.may_delete(index, file))
    }

    /// False for a file that a program handles, that another recorder writes, or that could not be
    /// deleted just now.
    fn may_delete(&self, index: usize, file: &KeptFile) -> bool {
        self.cameras[index].can_delete()
            && !self.commands.is_busy(&file.path)
            && !self.refused.contains_key(&file.path)
    }

    /// Deletes the oldest files of cameras whose disk has less free space than they ask for.
    fn free_disks(&mut self) {
        let mut disks: HashMap<u64, u64> = HashMap::new();
        let asks = |state: &&CameraState| state.camera.files.retention.free_bytes.is_some();
        for state in self.cameras.iter().filter(asks) {
            if let Some(free) = state.free_bytes().filter(|free| state.lacks(state.device, *free)) {
                disks.insert(state.device, free);
            }
        }
        // An interrupted round ends where another program has made room.
        self.rounds.retain(|device, round| !round.is_open || disks.contains_key(device));
        for (device, free) in disks {
            let mut round = match self.rounds.remove(&device) {
                // It was interrupted, so that the clock could be looked at.
                Some(round) if round.is_open => round,
                Some(round) => match self.next_round(device, free, round) {
                    Ok(round) => round,
                    Err(paused) => {
                        self.rounds.insert(device, paused);
                        continue;
                    }
                },
                None => FreeRound::new(free, self.written_on(device)),
            };
            round.is_open = true;
            for state in self.cameras.iter_mut().filter(|state| state.device == device) {
                state.refresh_if_changed();
            }
            // Deleted bytes count as free until the next round: a file that a player holds open
            // takes its space until it is closed.
            while self.deletions_left > 0 && round.is_open {
                match self.oldest_on(device, round.free + round.deleted) {
                    Some((index, start, file)) => {
                        round.deleted += self.delete(index, start, &file, "keep_free_gb");
                    }
                    None => round.is_open = false,
                }
            }
            if !round.is_open {
                let found = "no complete file that may be deleted is left";
                self.report(device, round.free + round.deleted, found);
            }
            round.at = Instant::now();
            self.rounds.insert(device, round);
        }
    }

    /// Returns the next round of deletions on a disk. `Err` is the pause before it: shortly after
    /// the last deletions, and for an hour if these freed less than half of their bytes.
    fn next_round(
        &mut self,
        device: u64,
        free: u64,
        last: FreeRound,
    ) -> Result<FreeRound, FreeRound> {
        if last.at.elapsed() < last.pause {
            return Err(last);
        }
        let written = self.written_on(device);
        let freed = (free + written.saturating_sub(last.written)).saturating_sub(last.free);
        let next = FreeRound::new(free, written);
        if freed >= last.deleted / 2 {
            return Ok(next);
        }
        self.report(
            device,
            free,
            "deleted files freed less than half of their bytes (a snapshot, another program that \
             fills the disk?): nothing is deleted for it for an hour",
        );
        Err(FreeRound { pause: BRAKE, ..next })
    }

    /// Bytes that were written to a disk since the recorder was started.
    fn written_on(&self, device: u64) -> u64 {
        let of_disk = self.cameras.iter().filter(|state| state.device == device);
        of_disk.map(|state| state.camera.written.bytes.load(Ordering::Relaxed)).sum()
    }

    /// The oldest file of all cameras on a disk that ask for more than its `free` bytes.
    fn oldest_on(&self, device: u64, free: u64) -> Option<(usize, FileStartName, KeptFile)> {
        let oldest = |(index, state): (usize, &CameraState)| {
            if !state.lacks(device, free) {
                return None;
            }
            // A file with another name takes its space also when this one is gone.
            let may_delete =
                |file: &KeptFile| self.may_delete(index, file) && has_one_name(&file.path);
            let (start, file) = state.kept.oldest(may_delete)?;
            Some((index, start, file))
        };
        let all = self.cameras.iter().enumerate().filter_map(oldest);
        all.min_by_key(|(_, start, _)| *start)
    }

    /// Reports a disk of whose cameras one asks for more than its `free` bytes, once an hour.
    fn report(&mut self, device: u64, free: u64, found: &'static str) {
        let is_new = |(of, at): &(&str, Instant)| *of != found || at.elapsed() >= BRAKE;
        if !self.reported.get(&device).is_none_or(is_new) {
            return;
        }
        if let Some(state) = self.cameras.iter().find(|state| state.lacks(device, free)) {
            let folder = state.camera.files.folder.display();
            tracing::error!("{folder}: less is free on its disk than keep_free_gb, and {found}");
            self.reported.insert(device, (found, Instant::now()));
        }
    }

    /// Deletes a file; returns the bytes that this may have freed.
    fn delete(&mut self, index: usize, start: FileStartName, file: &KeptFile, rule: &str) -> u64 {
        self.deletions_left = self.deletions_left.saturating_sub(1);
        let (path, shown) = (&file.path, file.path.display());
        if is_written_by_another(path) {
            tracing::info!("{shown}: another recorder writes it; it is kept");
            self.refused.insert(path.clone(), Instant::now());
            return 0;
        }
        let state = &mut self.cameras[index];
        match fs::remove_file(path) {
            Ok(()) => {
                tracing::info!("{shown}: deleted by {rule}");
                self.plans.forget(path);
                state.camera.stats.deleted.fetch_add(1, Ordering::Relaxed);
                state.camera.stats.deleted_bytes.fetch_add(file.bytes, Ordering::Relaxed);
                state.kept.forget(start);
                state.failures = None;
                file.bytes
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                state.kept.forget(start);
                0
            }
            Err(error) => {
                tracing::error!("unlink {shown}: {error}; trying again in ten minutes");
                let (count, since) = state.failures.unwrap_or((0, Instant::now()));
                state.failures = Some((count + 1, since));
                self.refused.insert(path.clone(), Instant::now());
                0
            }
        }
    }
}

impl CameraState {
    /// Reads the folder of a camera.
    ///
    /// # Errors
    /// Caller: more free space is asked for than the disk has. Host: the folder cannot be read.
    fn new(camera: KeptCamera) -> Result<CameraState, Error> {
        let files = &camera.files;
        let refused = |source| {
            let object = files.folder.display().to_string();
            Error::Host { call: "reading the folder", object, source }
        };
        let device = fs::metadata(&files.folder).map_err(refused)?.dev();
        let disk = rustix::fs::statvfs(&files.folder).map_err(|errno| refused(errno.into()))?;
        let size = disk.f_blocks.saturating_mul(disk.f_frsize);
        if let Some(most) = files.retention.free_bytes.filter(|most| *most >= size) {
            let gb = |bytes: u64| bytes as f64 / 1e9;
            return Err(Error::Setting {
                setting: RecordSetting::FreeSpace,
                found: format!("{} of camera {}", gb(most), files.camera),
                cure: format!("its disk has {:.1} GB in all: write less", gb(size)),
            });
        }
        let kept = KeptFiles::read(files).map_err(refused)?;
        let zone = files.time_zone.clone();
        let clock = files.clock_minutes.map(|minutes| FileClock::new(minutes, zone));
        Ok(CameraState {
            camera,
            kept,
            clock,
            retry: None,
            device,
            growing: None,
            is_gone: false,
            failures: None,
            is_changed: false,
        })
    }

    /// False while the folder is gone, on another disk than at the start, or a symbolic link: its
    /// disk may not be mounted, or somebody has put another folder in its place.
    fn is_there(&mut self) -> bool {
        let folder = &self.camera.files.folder;
        let is_same = |about: fs::Metadata| about.is_dir() && about.dev() == self.device;
        let is_there = fs::symlink_metadata(folder).is_ok_and(is_same);
        if !is_there && !self.is_gone {
            let shown = folder.display();
            tracing::error!(
                "{shown}: it is gone, on another disk than at the start, or a symbolic link: \
                 nothing in it is deleted; mount its disk, or start the recorder again"
            );
        }
        self.is_gone = !is_there;
        is_there
    }

    /// False after several files in a row could not be deleted: the disk may be read-only.
    fn can_delete(&self) -> bool {
        self.failures.is_none_or(|(count, _)| count < FAILURES_MAX)
    }

    /// Compares the list with the folder if files may have changed; returns true then.
    fn refresh_if_changed(&mut self) -> bool {
        let is_changed = std::mem::take(&mut self.is_changed);
        if is_changed {
            self.kept.refresh();
        }
        is_changed
    }

    /// True if the folder is on this disk, and the camera asks for more than `free` bytes of it.
    fn lacks(&self, device: u64, free: u64) -> bool {
        let asked = self.camera.files.retention.free_bytes;
        self.device == device && !self.is_gone && asked.is_some_and(|most| most > free)
    }

    /// Free bytes of the disk; `None` if the folder is gone, which is reported where files are
    /// made.
    fn free_bytes(&self) -> Option<u64> {
        let disk = rustix::fs::statvfs(&self.camera.files.folder).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Path of the file that is being written.
    fn growing_path(&self) -> Option<PathBuf> {
        let path = self.camera.written.path.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // The last file is complete, and may be deleted, while no other has begun.
        path.filter(|path| !self.kept.has(&self.camera.files, path))
    }

    /// Bytes of the file that is being written.
    fn growing_bytes(&self) -> u64 {
        let path = self.growing_path();
        path.and_then(|path| fs::metadata(path).ok()).map_or(0, |about| about.len())
    }

    /// Requests another file where the clock of the camera does not reach the length of files.
    fn end_long_file(&mut self) {
        let Some(length) = self.camera.length else { return };
        let path = self.growing_path();
        match &mut self.growing {
            Some((of, since)) if path.as_ref() == Some(of) => {
                if since.elapsed() >= 2 * length + LATE_MAX {
                    self.camera.request.make();
                    *since = Instant::now();
                }
            }
            growing => *growing = path.map(|path| (path, Instant::now())),
        }
    }

    /// Requests another file after a failure, at growing intervals.
    fn retry(&mut self) {
        if !self.camera.written.has_failed.load(Ordering::Relaxed) {
            // The attempt succeeded, or none was made.
            if self.retry.as_ref().is_some_and(|retry| retry.at <= Instant::now()) {
                self.retry = None;
            }
            return;
        }
        let retry = self
            .retry
            .get_or_insert_with(|| Retry { at: Instant::now() + RETRY_MIN, wait: RETRY_MIN });
        if retry.at <= Instant::now() {
            self.camera.request.make();
            retry.wait = (retry.wait * 2).min(RETRY_MAX);
            retry.at = Instant::now() + retry.wait;
        }
    }
}

/// Time until the next minute of the clock, when files may begin.
fn until_minute(now: SystemTime) -> Duration {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    MINUTE - Duration::from_nanos((since.as_nanos() % MINUTE.as_nanos()) as u64)
}

/// Time since the machine was started, suspended or not.
fn steady() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

const LOOK_EVERY: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_secs(60);
/// Time by which a file may be later than twice its length.
const LATE_MAX: Duration = Duration::from_secs(30);
/// Time after a complete file: several often follow each other.
const SETTLE: Duration = Duration::from_millis(500);
/// Deletions in a row: some tens of milliseconds.
const DELETIONS_MAX: usize = 200;
/// Time until a file or folder in which something could not be deleted is tried again.
const REFUSED_WAIT: Duration = Duration::from_secs(600);
/// Files in a row that cannot be deleted, after which no other of the camera is tried.
const FAILURES_MAX: u32 = 10;
/// Interval between deletions for free space: longer than file systems take to free what was
/// deleted (30 s of btrfs).
const FREE_EVERY: Duration = Duration::from_secs(60);
/// Time for which nothing is deleted after deletions that freed too little, and until a report is
/// repeated.
const BRAKE: Duration = Duration::from_secs(3600);
const RETRY_MIN: Duration = Duration::from_secs(10);
const RETRY_MAX: Duration = Duration::from_secs(300);
/// Time for programs at the end of the recording, and for the index.
const END_WAIT: Duration = Duration::from_secs(60);
const INDEX_WAIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
