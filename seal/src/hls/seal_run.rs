// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run: films found, scanned by threads of their own, and sealed as they come.
//!
//! Scanning waits for the disk and sealing for the cores, so both go on at once. What has been
//! scanned is taken together, as much as is ready, and given to the engine as one set of segments,
//! largest first: the end of a set is the end of one segment, not of a film.
//!
//! Does not do: follow symbolic links, look into files that are not called transport streams.

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
use crate::engine::{self, SealOutcome, SealProgress, Settings};
use crate::error::{Error, FileFault};
use crate::form_conflict;
use crate::target_path::c_string;

/// What is to be done, as far as it is known; grows while films are scanned.
#[derive(Debug, Default)]
pub struct HlsProgress {
    /// Bytes of the films found.
    pub bytes: AtomicU64,
    /// Segments of the films scanned.
    pub segments: AtomicU64,
    /// Bytes that the segments of the films scanned take on disk.
    pub disk_bytes: AtomicU64,
    /// Films that were there already, as they would be now.
    pub films_done: AtomicU64,
    /// What looks like an earlier run's folder and is not used, with the reason; at the end.
    pub notes: Mutex<Vec<Error>>,
    /// Where the titles that are there can be played below the target's address, in the order of
    /// their names; at the end.
    pub titles: Mutex<Vec<String>>,
    /// What owners of films have to know.
    remarks: Mutex<Vec<Error>>,
    tell: Option<fn(&Error)>,
}

impl HlsProgress {
    /// One that hands what an owner has to know of a film's size to `tell`, before a segment of it
    /// is written. Without that it is among the remarks at the end.
    pub fn telling(tell: fn(&Error)) -> Self {
        Self { tell: Some(tell), ..Self::default() }
    }
}

/// A film found.
pub(super) struct FoundFilm {
    pub(super) source: PathBuf,
    pub(super) name: String,
    bytes: u64,
    /// Where it was found: the folder that was asked for, and the path below it. None of one that
    /// was asked for itself, which may be a link.
    below: Option<(PathBuf, PathBuf)>,
}

impl FoundFilm {
    /// Opens it. No link that has taken its place, or that of a folder above it, since it was found
    /// is followed, and no pipe is waited for.
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

/// Makes folders below `target` of the film `source`, or of all films below that folder.
/// `planned` and `seen` can be looked at meanwhile. What is counted are segments, but for those
/// skipped, which are films; a film that failed is told once.
///
/// # Errors
/// Nothing could be begun.
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
        // Room for none: a scanner that has a film waits until it is taken.
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
        // Only an empty one goes: no film could be sealed.
        let _ = fs::remove_dir(target_path);
    }
    let mut remarks = planned.remarks.lock().unwrap_or_else(PoisonError::into_inner);
    outcome.remarks = std::mem::take(&mut *remarks);
    drop(remarks);
    outcome.skipped = planned.films_done.load(Ordering::Relaxed);
    outcome.is_stopped = seen.stop.load(Ordering::Relaxed);
    outcome.wall = began.elapsed();
    Ok(outcome)
}

/// Adds what came of a set of segments.
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

/// Looks at films, one after the other, until none is left or nobody wants them.
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

/// A remark on a film whose segments take half as much again as itself, or more.
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

/// What is ready, once something is; none when nothing will be.
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

/// Whether it only says that another error was said, or that the run was stopped.
fn is_given_up(error: &Error) -> bool {
    matches!(error, Error::File { fault: FileFault::Stream(fault), .. }
        if **fault == FilmFault::GivenUp)
}

/// Keys in a folder that is served would be anybody's.
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

/// What was found at or below a source.
#[derive(Default)]
pub(super) struct Selection {
    pub(super) found: Vec<FoundFilm>,
    /// What cannot be a film and is called like one.
    pub(super) errors: Vec<Error>,
    pub(super) passed_over: Vec<Error>,
}

/// Films, largest first, each with the name of its folder; and what is none.
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
    // By name first, so that it does not depend on the file system which of two names clashes.
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
    // A film's folder holds its segments and no other film: replacing it would remove that.
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
    /// Adds what is in a folder: films, folders, and what is neither.
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

/// Why something in a folder is no film.
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

/// Names of media that ffmpeg can make a transport stream of.
const MEDIA_FILES: &[&str] = &[
    "mp4", "m4v", "mov", "mkv", "webm", "avi", "flv", "mpg", "mpeg", "vob", "mp3", "aac", "m4a",
    "ac3", "wmv",
];

/// Whether a file is called a transport stream.
fn is_film(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|e| EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(e)))
}

/// Syncs the target's file system and notes that in the journals of what is there.
fn make_last(target: &HlsTarget, found: &[FoundFilm]) -> Result<(), Error> {
    let root = target.root();
    rustix::fs::syncfs(root.fd()).map_err(|errno| root.error("syncfs", c".", errno))?;
    found.iter().try_for_each(|film| target.believe(&film.name))
}

/// A film that takes so much more is not worth a word.
const LARGER_BYTES: u64 = 1 << 20;

/// As `serve` has them.
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
        // One that was asked for itself may be a link.
        let named = find(&at("films/b.ts")).unwrap();
        assert!(named.found[0].open().is_ok());
    }
}
