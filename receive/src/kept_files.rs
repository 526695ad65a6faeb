// SPDX-License-Identifier: MIT OR Apache-2.0
//! The complete files of a camera, and which of them its rules delete.
//!
//! The list is read from the folder once, and then follows the recorder; where something is to be
//! deleted it is compared with the folder once a minute, because programs and people may have
//! changed or removed files. Only regular files with a name of the camera count. A year of files
//! of an hour (8,760) takes about a megabyte.
//!
//! Does not delete: [`crate::keeper`] does.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use media::store::open_regular;
use recordings::{CameraFiles, FileStartName, Retention};

/// The complete files of a camera, in the order of their starts.
#[derive(Debug, Default)]
pub(crate) struct KeptFiles {
    files: BTreeMap<FileStartName, KeptFile>,
    bytes: u64,
}

/// A complete file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptFile {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// Time of the last write.
    pub(crate) ended: SystemTime,
}

impl KeptFiles {
    /// Reads the list from the folder.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn read(camera: &CameraFiles) -> io::Result<KeptFiles> {
        let mut kept = KeptFiles::default();
        for found in recordings::files(camera)? {
            let (bytes, ended) = (found.about.len(), found.about.modified()?);
            kept.add(found.start, KeptFile { path: found.path, bytes, ended });
        }
        Ok(kept)
    }

    /// Adds a file that is complete; returns false if it is none of the camera.
    pub(crate) fn complete(&mut self, camera: &CameraFiles, path: PathBuf) -> bool {
        let about = fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_file);
        let Some((start, about)) = camera.parse_path(&path).zip(about) else { return false };
        let ended = about.modified().unwrap_or_else(|_| SystemTime::now());
        self.add(start, KeptFile { path, bytes: about.len(), ended });
        true
    }

    fn add(&mut self, start: FileStartName, file: KeptFile) {
        self.bytes += file.bytes;
        if let Some(before) = self.files.insert(start, file) {
            self.bytes -= before.bytes;
        }
    }

    /// Compares the list with the folder: files may have become shorter, or be gone.
    pub(crate) fn refresh(&mut self) {
        let all = std::mem::take(self).files;
        for (start, file) in all {
            match fs::symlink_metadata(&file.path) {
                Ok(about) if about.is_file() => {
                    let ended = about.modified().unwrap_or(file.ended);
                    self.add(start, KeptFile { bytes: about.len(), ended, ..file });
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // It is unknown: an error of the disk may pass.
                Err(_) => self.add(start, file),
            }
        }
    }

    /// True if a file is in the list.
    pub(crate) fn has(&self, camera: &CameraFiles, path: &Path) -> bool {
        camera.parse_path(path).is_some_and(|start| self.files.contains_key(&start))
    }

    /// Removes a file from the list.
    pub(crate) fn forget(&mut self, start: FileStartName) {
        if let Some(file) = self.files.remove(&start) {
            self.bytes -= file.bytes;
        }
    }

    /// The oldest file that may be deleted, by its start.
    pub(crate) fn oldest(
        &self,
        may_delete: impl Fn(&KeptFile) -> bool,
    ) -> Option<(FileStartName, KeptFile)> {
        let mut files = self.files.iter();
        files.find(|(_, file)| may_delete(file)).map(|(start, file)| (*start, file.clone()))
    }

    /// Starts and ends of all files.
    pub(crate) fn spans(&self) -> impl Iterator<Item = (SystemTime, SystemTime)> {
        self.files.iter().map(|(start, file)| (start.began.into(), file.ended))
    }

    /// Files that are older than the limit, or too many for the limit of bytes beside a file of
    /// `growing` bytes, in the order in which they are to be deleted.
    pub(crate) fn surplus(
        &self,
        limits: &Retention,
        now: Option<SystemTime>,
        growing: u64,
        may_delete: impl Fn(&KeptFile) -> bool,
    ) -> Vec<(FileStartName, KeptFile)> {
        let mut bytes = self.bytes.saturating_add(growing);
        let is_old = |file: &KeptFile| {
            let age = now.and_then(|now| now.duration_since(file.ended).ok());
            limits.age.zip(age).is_some_and(|(most, age)| age >= most)
        };
        let is_over = |bytes| limits.bytes.is_some_and(|most| bytes > most);
        let mut surplus = Vec::new();
        if limits.age.and(now).is_none() && !is_over(bytes) {
            return surplus;
        }
        for (start, file) in &self.files {
            if (is_old(file) || is_over(bytes)) && may_delete(file) {
                bytes -= file.bytes;
                surplus.push((*start, file.clone()));
            }
        }
        surplus
    }
}

/// A clock that a jump forward makes doubtful: a machine that starts with a wrong date must not
/// delete what is kept for years.
#[derive(Debug)]
pub(crate) struct DoubtedClock {
    /// Both clocks at the last look.
    wall: SystemTime,
    steady: Duration,
    doubted_until: Option<Duration>,
}

impl DoubtedClock {
    /// Starts with the times of both clocks, and with the starts and ends of all files. The clock
    /// is doubted from the start if nothing was recorded for a day, and less than a day since.
    pub(crate) fn start(
        wall: SystemTime,
        steady: Duration,
        spans: impl Iterator<Item = (SystemTime, SystemTime)>,
    ) -> DoubtedClock {
        let mut spans: Vec<_> = spans.filter(|(_, ended)| *ended <= wall).collect();
        spans.sort_unstable();
        let (mut reached, mut resumed) = (None::<SystemTime>, None);
        for (began, ended) in spans.into_iter().chain([(wall, wall)]) {
            let pause = reached.and_then(|reached| began.duration_since(reached).ok());
            if pause.is_some_and(|pause| pause >= DOUBT) {
                resumed = Some(began);
            }
            reached = reached.max(Some(ended));
        }
        let recorded = resumed.map(|resumed| wall.duration_since(resumed).unwrap_or_default());
        let doubted_until = recorded.and_then(|recorded| DOUBT.checked_sub(recorded));
        let doubted_until = doubted_until.map(|rest| steady + rest);
        DoubtedClock { wall, steady, doubted_until }
    }

    /// Compares the times of both clocks with those before; returns the length of a jump forward.
    pub(crate) fn look(&mut self, wall: SystemTime, steady: Duration) -> Option<Duration> {
        let passed = steady.saturating_sub(self.steady);
        let jump = wall.duration_since(self.wall).unwrap_or_default().saturating_sub(passed);
        (self.wall, self.steady) = (wall, steady);
        let jump = Some(jump).filter(|&jump| jump >= JUMP_MIN);
        if jump.is_some() {
            self.doubted_until = Some(steady + DOUBT);
        }
        jump
    }

    /// True while the clock is doubted.
    pub(crate) fn is_doubted(&self) -> bool {
        self.doubted_until.is_some_and(|until| self.steady < until)
    }
}

/// Smallest jump that is doubted.
const JUMP_MIN: Duration = Duration::from_secs(3600);
/// Time for which a jump is doubted, and pause of all recordings that may be one.
const DOUBT: Duration = Duration::from_secs(24 * 3600);

/// True if a file has one hard link.
pub(crate) fn has_one_name(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| about.nlink() == 1)
}

/// True if a recorder, such as another program, writes to a file.
pub(crate) fn is_written_by_another(path: &Path) -> bool {
    open_regular(path).is_ok_and(|file| paths::is_locked_to_write(&file).unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn at(hours: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_796_000_400 + hours * 3600)
    }

    /// Files of an hour and 10 bytes each.
    fn folder(hours: u64) -> (tempfile::TempDir, CameraFiles) {
        let folder = tempfile::tempdir().unwrap();
        let camera = CameraFiles::new("door".to_owned(), folder.path().to_owned());
        for hour in 0..hours {
            let name = recordings::shown_time(at(hour), &camera.time_zone);
            file(&camera.folder, &format!("door-{name}.mp4"), at(hour + 1));
        }
        (folder, camera)
    }

    fn file(folder: &Path, name: &str, ended: SystemTime) {
        fs::write(folder.join(name), [0; 10]).unwrap();
        fs::File::options()
            .append(true)
            .open(folder.join(name))
            .unwrap()
            .set_modified(ended)
            .unwrap();
    }

    fn hours(surplus: &[(FileStartName, KeptFile)]) -> Vec<u64> {
        let first = at(0);
        surplus
            .iter()
            .map(|(start, _)| {
                let began = SystemTime::from(start.began);
                began.duration_since(first).unwrap().as_secs() / 3600
            })
            .collect()
    }

    #[test]
    fn the_oldest_files_are_over_the_limits() {
        let (_folder, camera) = folder(6);
        let kept = KeptFiles::read(&camera).unwrap();
        let hour = Duration::from_secs(3600);
        let limits = |age: Option<u32>, bytes| Retention {
            age: age.map(|age| age * hour),
            bytes,
            free_bytes: None,
        };
        let surplus = |limits: Retention, growing| {
            hours(&kept.surplus(&limits, Some(at(6)), growing, |_| true))
        };
        assert_eq!(surplus(limits(None, None), 1000), []);
        // The second file has ended at hour 2.
        assert_eq!(surplus(limits(Some(4), None), 0), [0, 1]);
        assert_eq!(surplus(limits(Some(7), None), 0), []);
        assert_eq!(surplus(limits(None, Some(60)), 0), []);
        assert_eq!(surplus(limits(None, Some(60)), 11), [0, 1]);
        assert_eq!(surplus(limits(None, Some(5)), 0), [0, 1, 2, 3, 4, 5]);
        assert_eq!(surplus(limits(Some(5), Some(41)), 0), [0, 1]);
        // Without a time nothing is old.
        assert_eq!(kept.surplus(&limits(Some(1), None), None, 0, |_| true), []);
        let is_free = |file: &KeptFile| !file.path.ends_with("door-20261130T010000Z.mp4");
        let found = kept.surplus(&limits(None, Some(40)), None, 0, is_free);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|(_, file)| is_free(file)));
    }

    #[test]
    fn nothing_but_regular_files_of_the_camera_is_listed() {
        let (folder, camera) = folder(1);
        let place = folder.path();
        for name in ["notes.txt", "door-20261130T010000Z.mkv", "yard-20261130T010000Z.mp4"] {
            file(place, name, at(0));
        }
        fs::create_dir(place.join("door-20261130T030000Z.mp4")).unwrap();
        std::os::unix::fs::symlink("notes.txt", place.join("door-20261130T020000Z.mp4")).unwrap();
        let kept = KeptFiles::read(&camera).unwrap();
        assert_eq!((kept.files.len(), kept.bytes), (1, 10));
        assert!(KeptFiles::read(&CameraFiles::new("a".into(), place.join("none"))).is_err());
    }

    #[test]
    fn the_list_follows_the_recorder() {
        let (folder, camera) = folder(2);
        let mut kept = KeptFiles::read(&camera).unwrap();
        let name = "door-20261201T000000Z.ts";
        file(folder.path(), name, at(9));
        for _ in 0..2 {
            assert!(kept.complete(&camera, folder.path().join(name)));
        }
        assert!(!kept.complete(&camera, folder.path().join("notes.txt")));
        assert!(!kept.complete(&camera, folder.path().join("door-20261202T000000Z.ts")));
        assert_eq!(
            (kept.files.len(), kept.bytes, kept.spans().map(|(_, end)| end).max()),
            (3, 30, Some(at(9)))
        );
        let (start, _) = kept.oldest(|_| true).unwrap();
        kept.forget(start);
        kept.forget(start);
        assert_eq!((kept.files.len(), kept.bytes), (2, 20));
        // A program has shortened one and removed the other.
        fs::write(folder.path().join("door-20261130T020000Z.mp4"), [0; 3]).unwrap();
        fs::remove_file(folder.path().join(name)).unwrap();
        kept.refresh();
        assert_eq!((kept.files.len(), kept.bytes), (1, 3));
    }

    #[test]
    fn a_clock_that_jumps_forward_is_doubted_for_a_day() {
        let day = Duration::from_secs(24 * 3600);
        let zero = Duration::ZERO;
        let mut clock = DoubtedClock::start(at(0), zero, std::iter::empty());
        assert_eq!(clock.look(at(1), day / 24), None);
        // A step back, and less than an hour forward.
        assert_eq!(clock.look(at(1) - day / 48, day / 24), None);
        assert_eq!(clock.look(at(2), day / 12), None);
        assert!(!clock.is_doubted());
        let jump = clock.look(at(2) + 400 * day, day / 12).unwrap();
        assert_eq!(jump, 400 * day);
        assert!(clock.is_doubted());
        assert_eq!(clock.look(at(2) + 401 * day, day + day / 12), None);
        assert!(!clock.is_doubted());
    }

    #[test]
    fn a_clock_after_a_pause_is_doubted_until_a_day_was_recorded() {
        let zero = Duration::ZERO;
        let doubted = |now: u64, ends: &[u64]| {
            let spans = ends.iter().map(|hour| (at(*hour - 1), at(*hour)));
            DoubtedClock::start(at(now), zero, spans).doubted_until
        };
        let hours = |hours: u64| Some(Duration::from_secs(hours * 3600));
        assert_eq!(doubted(100, &[]), None);
        assert_eq!(doubted(100, &[80, 90]), None);
        assert_eq!(doubted(100, &[90, 76]), None);
        assert_eq!(doubted(100, &[60, 76]), hours(24));
        // A start anew does not end the doubt, nor does a file of the future.
        assert_eq!(doubted(100, &[95, 60, 91]), hours(14));
        assert_eq!(doubted(100, &[60, 200]), hours(24));
        assert_eq!(doubted(100, &[10, 50, 77, 78, 99]), hours(0));
        assert_eq!(doubted(100, &[10, 50, 76, 77, 99]), None);
        // Files of a day.
        let days = (0..4).map(|day| (at(24 * day), at(24 * day + 24)));
        assert_eq!(DoubtedClock::start(at(100), zero, days).doubted_until, None);
    }
}
