// SPDX-License-Identifier: MIT OR Apache-2.0
//! Run of sealing: finds films, scans them on threads of their own, and seals them as they arrive.
//!
//! Scanning waits for the disk and sealing for the cores, so both run at once. All scanned films
//! that are ready go to the engine as one set of segments, largest first: so a set ends with one
//! segment, not with one film.
//!
//! Does not follow symbolic links, or open files without the name of a transport stream.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::film::{Film, FilmStatus, Works};
use super::hls_target::HlsTarget;
use super::keys::escape;
use super::playlist::MASTER;
use super::segment_work::SegmentWork;
use super::{AHEAD_SEGMENTS, Durability, FilmFault, HlsOptions};
use crate::dir_handle::DirHandle;
use crate::engine::{self, SealOutcome, SealProgress, Settings, WorkUnit};
use crate::error::{Error, FileFault};
use crate::form_conflict;
use crate::target_path::c_string;

/// Progress of a run; totals grow while films are scanned.
#[derive(Debug, Default)]
pub struct HlsProgress {
    /// Bytes of the films found.
    pub bytes: AtomicU64,
    /// Segments of the films scanned.
    pub segments: AtomicU64,
    /// Bytes that the segments of the films scanned take on disk.
    pub disk_bytes: AtomicU64,
    /// Films that were finished by an earlier run.
    pub films_done: AtomicU64,
    /// Folders that look like an earlier run's and are not used, with the reasons; set at the end.
    pub notes: Mutex<Vec<Error>>,
    /// Paths of the playable titles below the target's address, in the order of their names; set at
    /// the end.
    pub titles: Mutex<Vec<String>>,
    /// Remarks for owners of films.
    remarks: Mutex<Vec<Error>>,
    tell: Option<fn(&Error)>,
}

impl HlsProgress {
    /// Makes a progress that passes remarks on a film's size to `tell`, before a segment of it is
    /// written. Without `tell` they are among the remarks at the end.
    pub fn telling(tell: fn(&Error)) -> Self {
        Self { tell: Some(tell), ..Self::default() }
    }
}

/// A film that was found.
pub(super) struct FoundFilm {
    pub(super) source: PathBuf,
    pub(super) name: String,
    bytes: u64,
    /// The source folder, and the film's path below it. `None` for a film named by the user, which
    /// may be a link.
    below: Option<(PathBuf, PathBuf)>,
}

impl FoundFilm {
    /// Opens the film. Does not follow a link that replaced it, or a folder above it, since it was
    /// found, and does not block on a pipe.
    fn open(&self) -> Result<fs::File, Error> {
        let planted = |fault| Error::file(&self.source, fault);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = match &self.below {
            None => openat(CWD, &self.source, flags | OFlags::CLOEXEC, Mode::empty()),
            Some((top, below)) => {
                DirHandle::open(top)?.open_below(&c_string(below)?, flags, Mode::empty())
            }
        };
        let file = match file {
            Ok(file) => fs::File::from(file),
            Err(Errno::LOOP) => return Err(planted(FileFault::Symlink)),
            Err(errno) => return Err(Error::host("open", &self.source)(errno.into())),
        };
        let metadata = file.metadata().map_err(Error::host("fstat", &self.source))?;
        if metadata.is_file() { Ok(file) } else { Err(planted(FilmFault::NoFile.into())) }
    }
}

/// Makes folders below `target` of the film `source`, or of all films below that folder. `planned`
/// and `seen` can be read meanwhile. Counts are of segments, except `skipped`, which counts films;
/// a failed film is reported once.
///
/// # Errors
/// The run could not begin.
pub fn seal(
    source: &Path,
    target: &Path,
    options: &HlsOptions,
    settings: &Settings,
    planned: &HlsProgress,
    seen: &SealProgress,
) -> Result<SealOutcome, Error> {
    let began = Instant::now();
    check_key_folder(target, options)?;
    form_conflict::refuse_for_films(target)?;
    let Selection { found, mut errors, passed_over } = find(source)?;
    planned.bytes.store(found.iter().map(|film| film.bytes).sum(), Ordering::Relaxed);
    if found.is_empty() {
        let wanted = "transport stream (.ts, .m2ts, .mts, .m2t, .mpegts, .tp, .trp)";
        errors.push(Error::file(source, FileFault::Nothing { wanted }));
        return Ok(SealOutcome { failed: errors, passed_over, ..SealOutcome::default() });
    }
    let mut outcome = SealOutcome { failed: errors, passed_over, ..SealOutcome::default() };
    let (target_path, was_there) = (target, target.symlink_metadata().is_ok());
    let target = HlsTarget::take(target)?;
    seen.failed.fetch_add(outcome.failed.len() as u64, Ordering::Relaxed);
    let next = AtomicUsize::new(0);
    let scanners = settings.threads.clamp(1, found.len().max(1));
    std::thread::scope(|scope| {
        // Capacity 0: a scanner with a film waits until the film is received.
        let (sender, films) = sync_channel(0);
        for _ in 0..scanners {
            let (sender, next, found) = (sender.clone(), &next, &found);
            let target = &target;
            scope.spawn(move || scan(found, next, target, options, planned, seen, &sender));
        }
        drop(sender);
        while let Some(works) = take(&films, seen, &mut outcome.failed) {
            add_up(&mut outcome, engine::run(works, settings, seen));
        }
    });
    if options.sync == Durability::End && !seen.stop.load(Ordering::Relaxed) {
        make_last(&target, &found)?;
    }
    let mut names: Vec<&str> = found.iter().map(|film| film.name.as_str()).collect();
    names.sort_unstable();
    names.retain(|name| target.has(name));
    let titles = names.iter().map(|name| format!("{}/{MASTER}", escape(name))).collect();
    *planned.titles.lock().unwrap_or_else(PoisonError::into_inner) = titles;
    planned.notes.lock().unwrap_or_else(PoisonError::into_inner).extend(target.into_notes());
    if !was_there {
        // Removed only if empty: no film could be sealed.
        let _ = fs::remove_dir(target_path);
    }
    let mut remarks = planned.remarks.lock().unwrap_or_else(PoisonError::into_inner);
    outcome.remarks = std::mem::take(&mut *remarks);
    drop(remarks);
    outcome.unit = WorkUnit::Segment;
    outcome.skipped = planned.films_done.load(Ordering::Relaxed);
    outcome.is_stopped = seen.stop.load(Ordering::Relaxed);
    outcome.wall = began.elapsed();
    Ok(outcome)
}

/// Adds the outcome of a set of segments.
fn add_up(outcome: &mut SealOutcome, more: SealOutcome) {
    let bytes = (outcome.bytes + more.bytes).max(1) as f64;
    let weighted = outcome.lanes * outcome.bytes as f64 + more.lanes * more.bytes as f64;
    outcome.lanes = weighted / bytes;
    outcome.done += more.done;
    outcome.bytes += more.bytes;
    outcome.cpu += more.cpu;
    outcome.tail += more.tail;
    outcome.stages.add(&more.stages);
    outcome.failed.extend(more.failed.into_iter().filter(|error| !is_given_up(error)));
}

/// Scans films, one after the other, until none is left or the run stops.
fn scan<'a>(
    found: &[FoundFilm],
    next: &AtomicUsize,
    target: &HlsTarget,
    options: &'a HlsOptions,
    planned: &HlsProgress,
    seen: &SealProgress,
    films: &SyncSender<Result<Vec<SegmentWork<'a>>, Error>>,
) {
    while let Some(film) = found.get(next.fetch_add(1, Ordering::Relaxed)) {
        if seen.stop.load(Ordering::Relaxed) {
            return;
        }
        let looked = film.open().and_then(|file| {
            Film::look((file, &film.source), target, &film.name, options, &seen.stop)
        });
        let looked = match looked {
            Ok(FilmStatus::Done(remark)) => {
                let mut remarks = planned.remarks.lock().unwrap_or_else(PoisonError::into_inner);
                remarks.extend(remark);
                drop(remarks);
                planned.bytes.fetch_sub(film.bytes, Ordering::Relaxed);
                planned.films_done.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            Ok(FilmStatus::Works(works)) => {
                planned.segments.fetch_add(works.segments.len() as u64, Ordering::Relaxed);
                planned.bytes.fetch_add(works.more_bytes, Ordering::Relaxed);
                planned.disk_bytes.fetch_add(works.disk_bytes, Ordering::Relaxed);
                let mut larger = larger(film, &works);
                if let (Some(tell), Some(film)) = (planned.tell, &larger) {
                    tell(film);
                    larger = None;
                }
                let mut remarks = planned.remarks.lock().unwrap_or_else(PoisonError::into_inner);
                remarks.extend(works.remarks);
                remarks.extend(larger);
                Ok(works.segments)
            }
            Err(error) => Err(error),
        };
        if films.send(looked).is_err() {
            return;
        }
    }
}

/// Returns a remark on a film whose segments take half as much again as the film, or more.
fn larger(film: &FoundFilm, works: &Works<'_>) -> Option<Error> {
    let (bytes, disk_bytes) = (film.bytes, works.disk_bytes);
    (disk_bytes > bytes + bytes / 2 + LARGER_BYTES).then(|| {
        let times = disk_bytes as f64 / bytes.max(1) as f64;
        let text = format!(
            "takes {disk_bytes} bytes on disk, {times:.1} times its size: programmes and further \
             sounds have segments of their own, and short ones take a block each"
        );
        Error::file(&film.source, FilmFault::Remark(text).into())
    })
}

/// Waits for a film and returns all films that are ready; `None` after the last.
fn take<'a>(
    films: &Receiver<Result<Vec<SegmentWork<'a>>, Error>>,
    seen: &SealProgress,
    errors: &mut Vec<Error>,
) -> Option<Vec<SegmentWork<'a>>> {
    let mut works = Vec::new();
    while let Ok(film) =
        if works.is_empty() { films.recv().map_err(drop) } else { films.try_recv().map_err(drop) }
    {
        match film {
            Ok(film) => works.extend(film),
            Err(error) if is_given_up(&error) => {}
            Err(error) => {
                seen.failed.fetch_add(1, Ordering::Relaxed);
                errors.push(error);
            }
        }
        if works.len() >= AHEAD_SEGMENTS {
            break;
        }
    }
    (!works.is_empty()).then_some(works)
}

/// True when the error only follows another error, or a stop of the run.
fn is_given_up(error: &Error) -> bool {
    matches!(error, Error::File { fault: FileFault::Stream(fault), .. }
        if **fault == FilmFault::GivenUp)
}

/// Refuses a folder of keys below the target: keys there would be served to every client.
fn check_key_folder(target: &Path, options: &HlsOptions) -> Result<(), Error> {
    let folder = options.protection.as_ref().and_then(|protection| protection.folder.as_ref());
    let Some(folder) = folder else { return Ok(()) };
    let absolute = |path: &Path| std::path::absolute(path).map_err(Error::host("getcwd", path));
    let (keys, target) = (absolute(folder.path())?, absolute(target)?);
    let resolved = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if resolved(&keys).starts_with(resolved(&target)) || keys.starts_with(&target) {
        return Err(Error::Option {
            option: "key_folder",
            found: format!("{} is below the target", keys.display()),
            cure: "name a folder that is not served with the segments".to_owned(),
        });
    }
    Ok(())
}

/// Films found at or below a source.
#[derive(Default)]
pub(super) struct Selection {
    pub(super) found: Vec<FoundFilm>,
    /// Errors of files named like films that cannot be films.
    pub(super) errors: Vec<Error>,
    pub(super) passed_over: Vec<Error>,
}

/// Finds films, largest first, each with the name of its folder; and the files passed over.
pub(super) fn find(source: &Path) -> Result<Selection, Error> {
    let metadata = fs::metadata(source).map_err(Error::host("stat", source))?;
    let mut selection = Selection::default();
    if metadata.is_file() {
        let below = source.file_name().map_or(source, Path::new);
        selection.add(source, None, below, metadata.len());
    } else {
        let mut folders = vec![source.to_owned()];
        while let Some(folder) = folders.pop() {
            selection.look(&folder, source, &mut folders);
        }
    }
    let Selection { found, errors, .. } = &mut selection;
    // Sorted by name first, so the reported clash does not depend on the file system.
    found.sort_by(|a, b| a.source.cmp(&b.source));
    let mut names: HashMap<String, String> = HashMap::new();
    found.retain(|film| {
        let known = names.get(&film.name);
        if let Some(other) = known {
            let clash = FilmFault::Clash { folder: film.name.clone(), other: other.clone() };
            errors.push(Error::file(&film.source, clash.into()));
            return false;
        }
        names.insert(film.name.clone(), film.source.display().to_string());
        true
    });
    // A film's folder holds only its segments: replacing it would remove a film below.
    found.retain(|film| {
        let above = Path::new(&film.name).ancestors().skip(1).filter_map(Path::to_str);
        let Some(other) = above.filter_map(|name| names.get(name)).next() else { return true };
        let clash = FilmFault::Clash { folder: film.name.clone(), other: other.clone() };
        errors.push(Error::file(&film.source, clash.into()));
        false
    });
    found.sort_by_key(|film| std::cmp::Reverse(film.bytes));
    selection.passed_over.sort_by_cached_key(ToString::to_string);
    Ok(selection)
}

impl Selection {
    /// Adds the entries of a folder: films, folders, and files passed over.
    fn look(&mut self, folder: &Path, top: &Path, folders: &mut Vec<PathBuf>) {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => return self.errors.push(Error::host("open", folder)(error)),
        };
        for entry in entries {
            let looked = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)));
            let (path, metadata) = match looked {
                Ok(looked) => looked,
                Err(error) => {
                    self.errors.push(Error::host("getdents", folder)(error));
                    continue;
                }
            };
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            if let Some(reason) = passed_over(&path, name.starts_with(b"."), metadata.is_dir()) {
                let fault = FileFault::PassedOver { reason: reason.to_owned() };
                self.passed_over.push(Error::file(&path, fault));
            } else if metadata.is_dir() {
                folders.push(path);
            } else if metadata.is_file() {
                let below = path.strip_prefix(top).expect("it was found below");
                self.add(&path, Some(top), below, metadata.len());
            } else {
                let reason = FilmFault::NoFile.to_string();
                self.passed_over.push(Error::file(&path, FileFault::PassedOver { reason }));
            }
        }
    }

    fn add(&mut self, source: &Path, top: Option<&Path>, below: &Path, bytes: u64) {
        match below.with_extension("").to_str() {
            Some(name) => {
                let (source, name) = (source.to_owned(), name.to_owned());
                let below = top.map(|top| (top.to_owned(), below.to_owned()));
                self.found.push(FoundFilm { source, name, bytes, below });
            }
            None => self.errors.push(Error::file(source, FilmFault::Name.into())),
        }
    }
}

/// Returns the reason why an entry of a folder is passed over; `None` for a film or folder.
fn passed_over(path: &Path, is_hidden: bool, is_folder: bool) -> Option<&'static str> {
    match (is_hidden, is_folder) {
        (true, true) => return Some("a hidden folder"),
        (true, false) => return Some("a hidden file"),
        (false, true) => return None,
        (false, false) if is_film(path) => return None,
        (false, false) => {}
    }
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let is_media = MEDIA_FILES.iter().any(|known| known.eq_ignore_ascii_case(extension));
    Some(match is_media {
        true => "no transport stream; make one of it: ffmpeg -i FILE -c copy FILE.ts",
        false => "not called a transport stream (.ts, .m2ts, .mts, .m2t, .mpegts, .tp, .trp)",
    })
}

/// Extensions of media that ffmpeg can make a transport stream of.
const MEDIA_FILES: &[&str] = &[
    "mp4", "m4v", "mov", "mkv", "webm", "avi", "flv", "mpg", "mpeg", "vob", "mp3", "aac", "m4a",
    "ac3", "wmv",
];

/// True when a file has the name of a transport stream.
fn is_film(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|e| EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(e)))
}

/// Syncs the target's file system and marks the journals of finished films as synced.
fn make_last(target: &HlsTarget, found: &[FoundFilm]) -> Result<(), Error> {
    let root = target.root();
    rustix::fs::syncfs(root.fd()).map_err(|errno| root.error("syncfs", c".", errno))?;
    found.iter().try_for_each(|film| target.mark_synced(&film.name))
}

/// Bytes beyond half as much again that cause no remark.
const LARGER_BYTES: u64 = 1 << 20;

/// Extensions of transport streams, as in `serve`.
pub(super) const EXTENSIONS: &[&str] = &["m2t", "m2ts", "mpegts", "mts", "tp", "trp", "ts"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn film_that_was_exchanged_since_it_was_found_is_not_followed_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("films/sub")).unwrap();
        fs::create_dir(at("private")).unwrap();
        for name in ["films/sub/a.ts", "films/b.ts", "films/c.ts", "private/a.ts"] {
            fs::write(at(name), b"a film").unwrap();
        }
        let selection = find(&at("films")).unwrap();
        let open = |name: &str| {
            let film = selection.found.iter().find(|film| film.name == name).unwrap();
            film.open().map(drop).map_err(|error| error.to_string())
        };
        assert_eq!([open("sub/a"), open("b"), open("c")], [Ok(()), Ok(()), Ok(())]);
        fs::remove_file(at("films/b.ts")).unwrap();
        std::os::unix::fs::symlink(at("private/a.ts"), at("films/b.ts")).unwrap();
        fs::rename(at("films/sub"), at("films/old")).unwrap();
        std::os::unix::fs::symlink(at("private"), at("films/sub")).unwrap();
        fs::remove_file(at("films/c.ts")).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(CWD, at("films/c.ts"), fifo, Mode::RUSR, 0).unwrap();
        for name in ["b", "sub/a"] {
            let error = open(name).unwrap_err();
            assert!(error.contains("a symlink, which is not followed"), "{error}");
        }
        assert!(open("c").is_err(), "a pipe is no film");
        // A film named by the user may be a link.
        let named = find(&at("films/b.ts")).unwrap();
        assert!(named.found[0].open().is_ok());
    }
}
