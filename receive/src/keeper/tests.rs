// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trials of the keeper: what it deletes and what it does not, and when it requests files.
//!
//! Does not record.

use std::fs::File;
use std::path::Path;

use media::mux::Rotation;
use recordings::{Retention, shown_time};

use super::*;

struct Trial {
    folder: tempfile::TempDir,
    keeper: Keeper,
    stats: Arc<KeeperStats>,
    written: Arc<WriteStats>,
    rotation: Rotation,
}

impl Trial {
    /// A camera with six files of an hour and 10 bytes each, and with these rules.
    fn new(change: impl FnOnce(&mut CameraFiles)) -> Trial {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("door");
        fs::create_dir(&place).unwrap();
        let mut files = CameraFiles::new("door".to_owned(), place.canonicalize().unwrap());
        change(&mut files);
        for hour in 0..6 {
            let name = shown_time(at(hour), &files.time_zone);
            let path = files.folder.join(format!("door-{name}.mp4"));
            fs::write(&path, [7; 10]).unwrap();
            File::options().append(true).open(path).unwrap().set_modified(at(hour + 1)).unwrap();
        }
        let (request, written, stats) =
            (FileRequest::default(), Arc::<WriteStats>::default(), Arc::<KeeperStats>::default());
        let rotation = Rotation { request: Some(request.clone()), ..Rotation::default() };
        let camera = KeptCamera {
            stream: 3,
            files,
            request,
            length: None,
            written: written.clone(),
            stats: stats.clone(),
        };
        let plans = Arc::new(PlanStore::open(Some(folder.path().join("cache"))));
        let mut keeper = Keeper::new(vec![camera], plans).unwrap();
        // The machine's clock is ahead of the files.
        keeper.clock = DoubtedClock::start(at(6), steady(), std::iter::empty());
        Trial { folder, keeper, stats, written, rotation }
    }

    /// The hours of the files that are left.
    fn hours(&self) -> Vec<usize> {
        let files = &self.keeper.cameras[0].camera.files;
        let has = |hour: &usize| files.folder.join(name(*hour)).exists();
        (0..24).filter(has).collect()
    }

    fn path(&self, hour: usize) -> PathBuf {
        self.keeper.cameras[0].camera.files.folder.join(name(hour))
    }
}

/// Files in a folder, without the index.
fn files_in(folder: &Path) -> usize {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| !name.as_encoded_bytes().starts_with(b".")).count()
}

fn at(hour: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_606_698_000 + hour * 3600)
}

fn name(hour: usize) -> String {
    format!("door-20201130T{:02}0000Z.mp4", hour + 1)
}

fn keep(age: Option<u64>, bytes: Option<u64>, free_bytes: Option<u64>) -> Retention {
    let age = age.map(|hours| Duration::from_secs(hours * 3600));
    Retention { age, bytes, free_bytes }
}

#[test]
fn old_files_go_with_their_plans_and_nothing_else_does() {
    let mut trial = Trial::new(|files| files.retention = keep(Some(4), None, None));
    let plan = trial.folder.path().join("cache/plans").join(format!(
        "{}.plan",
        media::store::file_name(trial.path(0).as_os_str().as_encoded_bytes())
    ));
    fs::write(&plan, "plan").unwrap();
    let others = ["notes.txt", "door-20201130T010000Z.mkv", "yard-20201130T010000Z.mp4"];
    let others = others.map(|name| trial.path(0).with_file_name(name));
    others.iter().for_each(|path| fs::write(path, "x").unwrap());
    trial.keeper.look(at(6));
    assert_eq!(trial.hours(), [2, 3, 4, 5]);
    assert!(!plan.exists() && others.iter().all(|path| path.exists()));
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    assert_eq!((count(&trial.stats.deleted), count(&trial.stats.deleted_bytes)), (2, 20));
    // Ages are compared once a minute.
    trial.keeper.look(at(8));
    assert_eq!(trial.hours(), [2, 3, 4, 5]);
}

#[test]
fn a_clock_that_jumped_deletes_nothing() {
    let mut trial = Trial::new(|files| files.retention = keep(Some(4), Some(40), None));
    trial.keeper.look(at(24 * 365));
    // By bytes alone.
    assert_eq!(trial.hours(), [2, 3, 4, 5]);
    let started = Trial::new(|files| files.retention = keep(Some(4), None, None));
    let Keeper { cameras, .. } = started.keeper;
    let plans = Arc::new(PlanStore::open(Some(started.folder.path().join("cache"))));
    let cameras = cameras.into_iter().map(|state| state.camera).collect();
    // Today all files are too old.
    let mut keeper = Keeper::new(cameras, plans).unwrap();
    assert!(keeper.look(SystemTime::now()));
    assert_eq!(started.stats.deleted.load(Ordering::Relaxed), 0);
}

#[test]
fn the_growing_file_counts_and_stays() {
    let mut trial = Trial::new(|files| files.retention = keep(None, Some(35), None));
    fs::write(trial.path(9), [0; 12]).unwrap();
    *trial.written.path.lock().unwrap() = Some(trial.path(9));
    trial.keeper.look(at(6));
    assert_eq!(trial.hours(), [4, 5, 9]);
    trial.keeper.complete(CompleteFile { stream: 3, path: trial.path(9) });
    trial.keeper.look(at(6));
    assert_eq!(trial.hours(), [4, 5, 9]);
    trial.keeper.complete(CompleteFile { stream: 2, path: trial.path(9) });
    trial.keeper.cameras[0].camera.files.retention = keep(None, Some(0), None);
    trial.keeper.look(at(6));
    assert_eq!(trial.hours(), []);
}

#[test]
fn a_file_that_another_recorder_writes_stays() {
    let mut trial = Trial::new(|files| files.retention = keep(None, Some(0), None));
    let writes = File::options().write(true).open(trial.path(1)).unwrap();
    paths::lock_to_write(&writes).unwrap();
    trial.keeper.look(at(6));
    assert_eq!(trial.hours(), [1]);
    drop(writes);
    trial.keeper.look(at(6));
    assert_eq!(trial.hours(), [1], "it is tried again later");
    trial.keeper.refused.clear();
    trial.keeper.look(at(6));
    assert_eq!(trial.hours(), []);
}

/// The same camera and another one with one file.
fn with_yard(trial: &mut Trial) -> PathBuf {
    let yard = CameraFiles::new("yard".to_owned(), trial.folder.path().join("yard"));
    fs::create_dir(&yard.folder).unwrap();
    let path = yard.folder.join("yard-20201130T033000Z.ts");
    fs::write(&path, [0; 10]).unwrap();
    let camera = KeptCamera {
        stream: 4,
        files: yard,
        request: FileRequest::default(),
        length: None,
        written: Arc::default(),
        stats: Arc::default(),
    };
    let plans = trial.keeper.plans.clone();
    let door = trial.keeper.cameras.drain(..).map(|state| state.camera);
    trial.keeper = Keeper::new(door.chain([camera]).collect(), plans).unwrap();
    path
}

#[test]
fn a_disk_without_space_takes_the_oldest_files_of_cameras_that_ask_for_it() {
    let mut trial = Trial::new(|_| {});
    let of_yard = with_yard(&mut trial);
    let device = trial.keeper.cameras[0].device;
    // More than a disk has.
    trial.keeper.cameras[0].camera.files.retention.free_bytes = Some(u64::MAX);
    trial.keeper.cameras[1].camera.files.retention.free_bytes = Some(1);
    fs::hard_link(trial.path(0), trial.folder.path().join("kept")).unwrap();
    let (index, start, file) = trial.keeper.oldest_on(device, 1).unwrap();
    assert_eq!((index, start.copy, file.path), (0, 1, trial.path(1)));
    assert!(trial.keeper.look(at(6)));
    // A file with another name takes its space anyway; the other camera has what it asks for.
    assert_eq!(trial.hours(), [0]);
    assert!(of_yard.exists());
    trial.keeper.cameras[1].camera.files.retention.free_bytes = Some(u64::MAX);
    trial.keeper.look(at(6));
    assert!(of_yard.exists(), "shortly after the last deletions");
    trial.keeper.rounds.clear();
    trial.keeper.look(at(6));
    assert!(!of_yard.exists());
}

#[test]
fn nothing_is_deleted_for_space_after_deletions_that_freed_none() {
    let mut trial = Trial::new(|_| {});
    trial.keeper.cameras[0].camera.files.retention.free_bytes = Some(u64::MAX);
    let device = trial.keeper.cameras[0].device;
    let round = |deleted| FreeRound { pause: Duration::ZERO, deleted, ..FreeRound::new(1000, 50) };
    trial.written.bytes.store(350, Ordering::Relaxed);
    // 300 bytes were written meanwhile.
    for (deleted, free, is_paused) in [(0, 700, false), (900, 1150, false), (1000, 1150, true)] {
        match trial.keeper.next_round(device, free, round(deleted)) {
            Ok(next) => assert!(!is_paused && (next.free, next.written) == (free, 350)),
            Err(paused) => assert!(is_paused && paused.pause == BRAKE, "{deleted} {free}"),
        }
    }
    // Bytes that were written to other disks do not count.
    let paused = trial.keeper.next_round(device + 1, 1150, round(900));
    assert!(paused.is_err_and(|paused| paused.written == 0));
}

#[test]
fn no_rule_is_applied_to_another_folder() {
    let mut trial = Trial::new(|files| files.retention = keep(None, Some(0), None));
    let folder = trial.keeper.cameras[0].camera.files.folder.clone();
    // Another folder with the same names is in its place.
    fs::rename(&folder, folder.with_extension("old")).unwrap();
    fs::create_dir(folder.with_extension("new")).unwrap();
    fs::write(folder.with_extension("new").join(name(0)), "x").unwrap();
    std::os::unix::fs::symlink("door.new", &folder).unwrap();
    trial.keeper.look(at(6));
    assert_eq!(trial.hours(), [0]);
    fs::remove_file(&folder).unwrap();
    fs::rename(folder.with_extension("old"), &folder).unwrap();
    trial.keeper.look(at(6));
    assert_eq!(trial.hours(), []);
}

#[test]
fn more_free_space_than_the_disk_has_is_refused() {
    let trial = Trial::new(|_| {});
    let Keeper { mut cameras, plans, .. } = trial.keeper;
    let mut camera = cameras.remove(0).camera;
    camera.files.retention.free_bytes = Some(u64::MAX);
    let refused = Keeper::new(vec![camera], plans).err().unwrap().to_string();
    let words = "keep_free_gb: 18446744073.7";
    assert!(refused.starts_with(words) && refused.ends_with("GB in all: write less"), "{refused}");
}

#[test]
fn sizes_are_those_of_the_folder_and_many_files_go_in_turns() {
    let mut trial = Trial::new(|files| files.retention = keep(None, Some(40), None));
    // Programs have shortened what was 60 bytes.
    for hour in 0..4 {
        fs::write(trial.path(hour), [0; 2]).unwrap();
    }
    trial.keeper.look(at(6));
    assert_eq!(trial.hours(), [0, 1, 2, 3, 4, 5]);
    trial.keeper.cameras[0].camera.files.retention = keep(Some(1), None, None);
    let folder = trial.path(0).parent().unwrap().to_owned();
    for number in 2..DELETIONS_MAX + 10 {
        let path = folder.join(format!("door-20201130T010000Z-{number}.ts"));
        fs::write(&path, "x").unwrap();
        trial.keeper.complete(CompleteFile { stream: 3, path });
    }
    trial.keeper.compared = None;
    let left = || files_in(&folder);
    let year = Duration::from_secs(365 * 86_400);
    trial.keeper.clock =
        DoubtedClock::start(SystemTime::now() + year, steady(), std::iter::empty());
    assert!(!trial.keeper.look(SystemTime::now() + year));
    assert_eq!(left(), 6 + 8);
    assert!(trial.keeper.look(SystemTime::now() + year));
    assert_eq!(left(), 0);
}

#[test]
fn the_clock_and_a_failure_request_files() {
    let mut trial = Trial::new(|files| files.clock_minutes = Some(60));
    let minute = Duration::from_secs(60);
    for (time, requests) in [
        (at(6) + 30 * minute, 0),
        (at(7) - minute, 0),
        (at(7), 1),
        (at(7) + minute, 1),
        (at(8) + minute, 2),
    ] {
        trial.keeper.request_files(time);
        assert_eq!(trial.rotation.requests(), requests, "{time:?}");
    }
    let state = &mut trial.keeper.cameras[0];
    trial.written.has_failed.store(true, Ordering::Relaxed);
    state.retry();
    assert_eq!(trial.rotation.requests(), 2);
    for (number, wait) in [(3, 20), (4, 40), (5, 80), (6, 160), (7, 300), (8, 300)] {
        state.retry.as_mut().unwrap().at = Instant::now();
        state.retry();
        assert_eq!(trial.rotation.requests(), number);
        assert_eq!(state.retry.as_ref().unwrap().wait.as_secs(), wait);
    }
    trial.written.has_failed.store(false, Ordering::Relaxed);
    state.retry();
    assert!(state.retry.is_some());
    state.retry.as_mut().unwrap().at = Instant::now();
    state.retry();
    assert!(state.retry.is_none());
}

#[test]
fn files_may_begin_at_each_minute_of_the_clock() {
    assert_eq!(until_minute(at(0)), MINUTE);
    assert_eq!(until_minute(at(0) + Duration::from_millis(59_400)), Duration::from_millis(600));
    assert_eq!(until_minute(UNIX_EPOCH - MINUTE), MINUTE);
}

#[test]
fn a_file_that_never_reaches_its_length_is_ended() {
    let mut trial = Trial::new(|_| {});
    let state = &mut trial.keeper.cameras[0];
    state.camera.length = Some(Duration::ZERO);
    fs::write(state.camera.files.folder.join(name(9)), "x").unwrap();
    *trial.written.path.lock().unwrap() = Some(state.camera.files.folder.join(name(9)));
    state.end_long_file();
    state.end_long_file();
    assert_eq!(trial.rotation.requests(), 0);
    let (_, since) = state.growing.as_mut().unwrap();
    let Some(long_ago) = since.checked_sub(LATE_MAX) else {
        eprintln!("skip: the machine was started less than {LATE_MAX:?} ago");
        return;
    };
    *since = long_ago;
    state.end_long_file();
    state.end_long_file();
    assert_eq!(trial.rotation.requests(), 1);
    // Another file is seen for the first time.
    *trial.written.path.lock().unwrap() = Some(state.camera.files.folder.join(name(10)));
    state.end_long_file();
    assert_eq!(trial.rotation.requests(), 1);
}

#[test]
fn deletions_for_space_that_take_long_are_continued_at_once() {
    let mut trial = Trial::new(|_| {});
    let folder = trial.path(0).parent().unwrap().to_owned();
    for number in 2..DELETIONS_MAX + 10 {
        let path = folder.join(format!("door-20201130T010000Z-{number}.ts"));
        fs::write(&path, "x").unwrap();
        trial.keeper.complete(CompleteFile { stream: 3, path });
    }
    trial.keeper.cameras[0].camera.files.retention.free_bytes = Some(u64::MAX);
    let left = || files_in(&folder);
    assert!(!trial.keeper.look(at(6)));
    assert_eq!(left(), 6 + 8);
    assert!(trial.keeper.look(at(6)));
    assert_eq!(left(), 0);
}

#[test]
fn a_file_that_cannot_be_deleted_holds_up_no_other() {
    let mut trial = Trial::new(|files| files.retention = keep(None, Some(0), None));
    // A folder in the place of a file cannot be unlinked.
    let folders = |trial: &Trial, hours: std::ops::Range<usize>| {
        for hour in hours {
            fs::remove_file(trial.path(hour)).unwrap();
            fs::create_dir(trial.path(hour)).unwrap();
        }
    };
    folders(&trial, 0..2);
    trial.keeper.compared = Some(Instant::now());
    assert!(trial.keeper.look(at(6)));
    assert_eq!(trial.hours(), [0, 1]);
    assert!(trial.keeper.look(at(6)));
    assert_eq!(trial.keeper.refused.len(), 2, "they are tried again later");

    let mut trial = Trial::new(|files| files.retention = keep(None, Some(0), None));
    folders(&trial, 0..2);
    trial.keeper.cameras[0].failures = Some((FAILURES_MAX - 2, Instant::now()));
    trial.keeper.compared = Some(Instant::now());
    assert!(trial.keeper.look(at(6)));
    assert_eq!(trial.hours(), [0, 1, 2, 3, 4, 5], "the disk may be read-only");
}

#[test]
fn the_space_of_files_that_programs_shortened_is_counted_as_it_is() {
    let mut trial = Trial::new(|_| {});
    for hour in 0..6 {
        fs::write(trial.path(hour), [0; 2]).unwrap();
    }
    trial.keeper.cameras[0].camera.files.retention.free_bytes = Some(u64::MAX);
    trial.keeper.look(at(6));
    let device = trial.keeper.cameras[0].device;
    assert_eq!((trial.hours(), trial.keeper.rounds[&device].deleted), (vec![], 12));
}
