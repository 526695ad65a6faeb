// SPDX-License-Identifier: MIT OR Apache-2.0
//! A film in progress: scans and cuts it, and publishes its folder after the last segment.
//!
//! One descriptor and about 150 bytes a segment, shared by the segments that are being written.
//!
//! Does not encipher ([`super::segment_work`] does).

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use media::Segment;
use rustix::fs::{FileType, Mode, fchmod, fstat};
use simd::cbc::AesKey;

use super::film_journal::{Journal, boot_id};
use super::film_part::{Cut, Reader};
use super::hls_target::{HlsTarget, film_folder};
use super::multivariant::Title;
use super::playlist::{self, Playlist, SegmentLine, key_name, playlist_name, segment_name};
use super::scan::scan;
use super::segment_cipher::KEY_BYTES;
use super::segment_work::SegmentWork;
use super::{Durability, FilmFault, HlsOptions, completeness, disk_size};
use crate::dir_handle::DirHandle;
use crate::error::{Error, FileFault};
use crate::folder::umask;
use crate::pending_file::PendingFile;
use crate::target_path::{FOLDER_MODE, c_string};
use crate::working_folder::WorkingFolder;

/// State of a source when it was opened.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SourceState {
    bytes: u64,
    modified: (i64, i64),
    /// Time of the last change (ctime), which no program can set back.
    changed: (i64, i64),
    inode: u64,
}

impl SourceState {
    fn of(file: &File, path: &Path) -> Result<Self, Error> {
        let metadata = file.metadata().map_err(Error::host("fstat", path))?;
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        Ok(Self { bytes: metadata.len(), modified, changed, inode: metadata.ino() })
    }
}

/// A film and its target.
pub(super) struct Film<'a> {
    pub(super) source: PathBuf,
    pub(super) file: File,
    pub(super) options: &'a HlsOptions,
    /// The whole stream first, then its parts.
    cuts: Vec<Cut>,
    titles: Vec<Title>,
    name: String,
    state: SourceState,
    editions: Editions,
    /// Final name of its folder in the parent; `working` is the folder until then.
    folder: CString,
    working: WorkingFolder,
    journal: File,
    /// Keys of each cut, one for every rotation.
    keys: Vec<Vec<AesKey>>,
    left: AtomicUsize,
    checks: Mutex<Vec<Option<[u8; 16]>>>,
    has_failed: AtomicBool,
}

/// Status of a film after the scan.
pub(super) enum FilmStatus<'a> {
    /// Sealed before: nothing is to be made. Holds a remark for the owner, if any.
    Done(Option<Error>),
    /// Segments are to be made.
    Works(Works<'a>),
}

/// Segments of a film that are to be made.
pub(super) struct Works<'a> {
    pub(super) segments: Vec<SegmentWork<'a>>,
    /// Bytes of the film's parts, beyond the film's own.
    pub(super) more_bytes: u64,
    /// Bytes that all segments take on disk.
    pub(super) disk_bytes: u64,
    /// Remarks for the owner.
    pub(super) remarks: Vec<Error>,
}

impl<'a> Film<'a> {
    /// Scans `source`, opened as `file`, for the folder `name` below `target`, unless that folder
    /// is finished already.
    pub(super) fn look(
        (file, source): (File, &Path),
        target: &HlsTarget,
        name: &str,
        options: &'a HlsOptions,
        stop: &AtomicBool,
    ) -> Result<FilmStatus<'a>, Error> {
        let state = SourceState::of(&file, source)?;
        let editions = LAYOUTS.map(|layout| edition(layout, name, state, options));
        let below = c_string(Path::new(name))?;
        let mut again = None;
        if let Some(folder) = target.film(&below)? {
            match Journal::read(&folder)? {
                Some(_) if options.force => {}
                Some(journal) => match done_before(&folder, &journal, &editions)? {
                    (true, remark) => return Ok(FilmStatus::Done(remark)),
                    (false, remark) => again = remark,
                },
                None => return Err(Error::file(folder.path(), FilmFault::NotOurs.into())),
            }
        }
        let scanned = scan(&file, source, state.bytes, options.target_s, stop)?;
        let disk_bytes = disk_size::checked(&scanned.cuts, options);
        let disk_bytes = disk_bytes.map_err(|fault| Error::file(source, fault.into()))?;
        let (working, folder) = target.working(&below)?;
        let checks = begin(&working, &editions[0], &scanned.cuts, options)?;
        let left: Vec<usize> = (0..checks.len()).filter(|&index| checks[index].is_none()).collect();
        let film = Arc::new(Self {
            source: source.to_owned(),
            file,
            options,
            keys: scanned.cuts.iter().map(|cut| keys(name, cut, options)).collect(),
            cuts: scanned.cuts,
            titles: scanned.titles,
            name: name.to_owned(),
            state,
            editions,
            folder,
            journal: Journal::open(working.folder())?,
            working,
            left: AtomicUsize::new(left.len()),
            checks: Mutex::new(checks),
            has_failed: AtomicBool::new(false),
        });
        if left.is_empty() {
            film.publish()?;
            return Ok(FilmStatus::Done(again));
        }
        let segments = left.into_iter().map(|index| SegmentWork { film: film.clone(), index });
        Ok(FilmStatus::Works(Works {
            segments: segments.collect(),
            more_bytes: film.cuts[1..].iter().map(|cut| cut.bytes).sum(),
            disk_bytes,
            remarks: again.into_iter().chain(scanned.remarks).collect(),
        }))
    }

    /// Returns the cut of segment `index` (counted over all cuts), and its number there.
    fn cut_of(&self, mut index: usize) -> (&Cut, usize) {
        let found = self.cuts.iter().find(|cut| {
            let is_here = index < cut.segments.list().len();
            index -= if is_here { 0 } else { cut.segments.list().len() };
            is_here
        });
        (found.expect("a segment of one of them"), index)
    }

    fn segment(&self, index: usize) -> &Segment {
        let (cut, index) = self.cut_of(index);
        &cut.segments.list()[index]
    }

    /// Returns the bytes of the stream in a segment.
    pub(super) fn bytes(&self, index: usize) -> u64 {
        let file = &self.segment(index).file;
        file.end - file.start
    }

    /// Returns the packets to put in front of a segment.
    pub(super) fn tables(&self, index: usize) -> Vec<u8> {
        let (cut, index) = self.cut_of(index);
        cut.segments.tables(&cut.segments.list()[index])
    }

    /// Returns the number of a segment in its playlist.
    pub(super) fn number(&self, index: usize) -> u64 {
        self.cut_of(index).1 as u64
    }

    /// Returns the reader of a segment.
    pub(super) fn reader(&self, index: usize) -> Reader {
        let (cut, index) = self.cut_of(index);
        cut.reader(index)
    }

    /// Creates the file of a segment in the working folder.
    pub(super) fn create(&self, index: usize) -> Result<PendingFile, Error> {
        let (cut, index) = self.cut_of(index);
        let name = c_string(segment_name(&cut.id, index as u64).as_ref())?;
        PendingFile::create_below(self.working.folder(), name, 0o644)
    }

    /// Returns the key and the IV of a segment; `None` if it stays clear.
    pub(super) fn key_and_iv(&self, index: usize) -> Option<(&AesKey, [u8; 16])> {
        let protection = self.options.protection.as_ref()?;
        let (cut, local) = self.cut_of(index);
        let number = playlist::key_number(protection.rotation.map(Into::into), local as u64);
        let at = self.cuts.iter().position(|other| other.id == cut.id).expect("one of them");
        let key = &self.keys[at][usize::try_from(number).expect("fewer than segments")];
        let iv = self.iv(index).unwrap_or_else(|| (local as u128).to_be_bytes());
        Some((key, iv))
    }

    /// Returns a segment's IV; `None` if it is the segment's number.
    fn iv(&self, index: usize) -> Option<[u8; 16]> {
        let protection = self.options.protection.as_ref()?;
        let (cut, local) = self.cut_of(index);
        let name = key_name(&self.name, &cut.id);
        let wanted = protection.has_random_iv;
        wanted.then(|| protection.keys.iv(&name, &self.editions[0], local as u64))
    }

    /// Marks the film as failed; returns true for its first failure.
    pub(super) fn fail(&self) -> bool {
        !self.has_failed.swap(true, Ordering::Relaxed)
    }

    /// True when a segment of the film has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Records the hash of a finished segment in the journal, before the segment gets its name.
    pub(super) fn record(&self, index: usize, check: [u8; 16]) -> Result<(), Error> {
        Journal::add(&self.journal, index as u64, &check).map_err(Error::host(
            "write",
            &self.working.folder().shown(super::film_journal::NAME),
        ))?;
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(check);
        Ok(())
    }

    /// Counts a segment that has its name; the last one publishes the film.
    pub(super) fn done(&self) -> Result<(), Error> {
        match self.left.fetch_sub(1, Ordering::AcqRel) {
            1 => self.publish(),
            _ => Ok(()),
        }
    }

    /// Writes the playlists and keys and gives the folder its name.
    fn publish(&self) -> Result<(), Error> {
        if SourceState::of(&self.file, &self.source)? != self.state {
            return Err(Error::file(&self.source, FileFault::Changed));
        }
        let protection = self.options.protection.as_ref();
        let (mut rates, mut files) = (HashMap::new(), Vec::new());
        let mut first = 0;
        for (cut, keys) in self.cuts.iter().zip(&self.keys) {
            let playlist = self.playlist(cut, first);
            first += cut.segments.list().len();
            let name = &playlist.name;
            if let Some((protection, folder)) =
                protection.and_then(|p| Some((p, p.folder.as_ref()?)))
            {
                for number in 0..keys.len() as u64 {
                    let key = protection.keys.key(name, number);
                    folder.keep(name, number, &key, self.options.force)?;
                }
            }
            let uri = |number| protection.map_or_else(String::new, |p| p.uri.of(name, number));
            files.extend(
                (0..)
                    .zip(&playlist.lines)
                    .map(|(index, line)| (segment_name(&cut.id, index), line.bytes)),
            );
            files.push(self.write(&playlist_name(&cut.id), &playlist.media(uri))?);
            rates.insert(cut.id.as_str(), playlist.bits_per_second());
        }
        for title in &self.titles {
            let text = title.master(|id| rates[id]);
            for master in &title.masters {
                files.push(self.write(master, &text)?);
            }
        }
        // Written last: a file newer than the journal was changed.
        Journal::add_files(&self.journal, &files).map_err(Error::host(
            "write",
            &self.working.folder().shown(super::film_journal::NAME),
        ))?;
        self.give_name()
    }

    /// Makes the media playlist of a cut; `first` counts the segments before it.
    fn playlist(&self, cut: &Cut, first: usize) -> Playlist {
        let checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = cut.segments.list().iter().enumerate().map(|(index, segment)| {
            let tables = cut.segments.tables(segment).len() as u64;
            SegmentLine {
                ticks: segment.ticks,
                bytes: disk_size::file_bytes(cut, index, self.options),
                is_break: segment.is_break,
                tables: tables / media::TS_PACKET_BYTES as u64,
                check: checks[first + index].expect("all segments are done"),
                iv: self.iv(first + index),
            }
        });
        Playlist {
            name: key_name(&self.name, &cut.id),
            id: cut.id.clone(),
            source_bytes: cut.bytes,
            tail_bytes: cut.segments.tail_bytes(),
            rotation: self.options.protection.as_ref().map(|p| p.rotation.map_or(0, Into::into)),
            checks_all: true,
            // The same value in all playlists of a title (RFC 8216 §6.2.4).
            target_s: self.cuts.iter().map(|cut| cut.segments.target_s()).max().unwrap_or(1),
            lines: lines.collect(),
        }
    }

    /// Writes a playlist; returns its name and size.
    fn write(&self, name: &str, text: &str) -> Result<(String, u64), Error> {
        let pending =
            PendingFile::create_below(self.working.folder(), c_string(name.as_ref())?, 0o644)?;
        let path = pending.target();
        pending.file().write_all(text.as_bytes()).map_err(Error::host("write", &path))?;
        if self.options.sync == Durability::Each {
            pending.file().sync_all().map_err(Error::host("fsync", &path))?;
        }
        pending.commit(true)?;
        Ok((name.to_owned(), text.len() as u64))
    }

    /// Gives the folder its name; removes the folder that had it before.
    fn give_name(&self) -> Result<(), Error> {
        let (folder, parent) = (self.working.folder(), self.working.parent());
        let stat = fstat(folder.fd()).map_err(|errno| folder.error("fstat", c".", errno))?;
        // Until now only this user had access; a set-group-ID bit stays.
        let mode = FOLDER_MODE & !umask() | 0o700 | stat.st_mode & 0o2000;
        let opened = fchmod(folder.fd(), Mode::from_raw_mode(mode));
        opened.map_err(|errno| folder.error("fchmod", c".", errno))?;
        let there = match self.working.publish(&self.folder) {
            Err(Error::File { fault: FileFault::Exists, path }) => path,
            result => return result,
        };
        let Some(old) = film_folder(parent, &self.folder)? else {
            return Err(Error::file(&there, FileFault::Exists));
        };
        match Journal::read(&old)? {
            Some(journal) if self.options.force || self.editions.contains(&journal.edition) => {
                self.working.exchange(&self.folder, &old)
            }
            Some(_) => Err(Error::file(&there, FileFault::Exists)),
            None => Err(Error::file(&there, FilmFault::NotOurs.into())),
        }
    }
}

/// Layouts of a film's folder, the one made now first. Since 2, sounds and programmes have segments
/// of their own; since 3, each PID occurs once and hashes are of whole segments. Films of earlier
/// layouts play and open as well.
const LAYOUTS: [u8; 2] = [3, 2];

/// Edition hashes, one for each layout.
type Editions = [[u8; 32]; LAYOUTS.len()];

/// Returns true when the film in `folder` counts as done, and a remark for the owner.
fn done_before(
    folder: &DirHandle,
    journal: &Journal,
    editions: &Editions,
) -> Result<(bool, Option<Error>), Error> {
    let Some(at) = editions.iter().position(|edition| journal.edition == *edition) else {
        return Err(Error::file(folder.path(), FileFault::Exists));
    };
    let remark = |text| Some(Error::file(folder.path(), FilmFault::Remark(text).into()));
    if !journal.is_of(&editions[at]) {
        return Ok((false, None));
    }
    Ok(match (completeness::harm(folder, journal), at) {
        (Some(harm), _) => (false, remark(format!("{harm}: the film is sealed again"))),
        (None, 0) => (true, None),
        (None, _) => (true, Some(Error::file(folder.path(), FilmFault::EarlierVersion.into()))),
    })
}

/// Hashes all that determines the bytes of a film's folder; keyed by the secret.
fn edition(layout: u8, name: &str, state: SourceState, options: &HlsOptions) -> [u8; 32] {
    let clear = blake3::derive_key("pagewire hls 2026-11-21 edition without keys v1", &[]);
    let protection = options.protection.as_ref();
    let key = protection.map_or(&clear, |protection| protection.keys.edition());
    let mut hasher = blake3::Hasher::new_keyed(key);
    let (seconds, nanoseconds) = state.modified;
    for number in [state.bytes, seconds as u64, nanoseconds as u64, options.target_s] {
        hasher.update(&number.to_le_bytes());
    }
    if let Some(protection) = protection {
        let rotation: u64 = protection.rotation.map_or(0, Into::into);
        hasher.update(&[1, u8::from(protection.has_random_iv)]).update(&rotation.to_le_bytes());
        hasher.update(protection.uri.of("", 0).as_bytes()).update(&[0]);
    }
    hasher.update(&[layout]).update(name.as_bytes());
    *hasher.finalize().as_bytes()
}

/// Makes the keys of a cut.
fn keys(film: &str, cut: &Cut, options: &HlsOptions) -> Vec<AesKey> {
    let Some(protection) = &options.protection else { return Vec::new() };
    let (name, segments) = (key_name(film, &cut.id), cut.segments.list().len() as u64);
    let last = playlist::key_number(protection.rotation.map(Into::into), segments - 1);
    let key = |number| {
        let bytes = protection.keys.key(&name, number);
        const { assert!(KEY_BYTES == 16) };
        AesKey::new(bytes.as_slice()).expect("a length that AES has")
    };
    (0..=last).map(key).collect()
}

/// Prepares the working folder and keeps the segments of an earlier run; returns their hashes.
fn begin(
    working: &WorkingFolder,
    edition: &[u8; 32],
    cuts: &[Cut],
    options: &HlsOptions,
) -> Result<Vec<Option<[u8; 16]>>, Error> {
    let folder = working.folder();
    let names = cuts.iter().flat_map(|cut| {
        (0..cut.segments.list().len() as u64).map(|index| segment_name(&cut.id, index))
    });
    let names: Vec<String> = names.collect();
    let mut checks = vec![None; names.len()];
    let kept = Journal::read(folder)?.filter(|journal| journal.is_of(edition));
    match kept {
        Some(journal) => {
            for (index, check) in journal.done {
                let at = usize::try_from(index).ok().filter(|&at| at < names.len());
                if let Some(at) = at.filter(|&at| is_file(folder, &names[at])) {
                    checks[at] = Some(check);
                }
            }
            working.remove_unfinished()?;
        }
        None => working.clear()?,
    }
    let boot = if options.sync == Durability::Each { String::new() } else { boot_id() };
    let done = checks.iter().enumerate();
    let done = done.filter_map(|(index, check)| Some((index as u64, (*check)?))).collect();
    Journal { edition: *edition, boot, done, files: Vec::new() }.write(folder)?;
    Ok(checks)
}

/// True when a regular file has that name.
fn is_file(folder: &DirHandle, name: &str) -> bool {
    let stat = c_string(name.as_ref()).ok().and_then(|name| folder.stat(&name).ok());
    stat.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{SealProgress, Settings};
    use crate::hls::{HlsProgress, seal};

    #[test]
    fn films_of_an_earlier_layout_count_as_done_and_of_other_options_do_not() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let clip = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pagewire/assets/clip.ts");
        std::fs::copy(clip, path("film.ts")).unwrap();
        let run = |target_s, force| {
            let options = HlsOptions { target_s, protection: None, force, sync: Durability::End };
            let (planned, seen) = (HlsProgress::default(), SealProgress::default());
            let settings = Settings::here(Some(1));
            let outcome =
                seal(&path("film.ts"), &path("t"), &options, &settings, &planned, &seen).unwrap();
            let messages = outcome.failed.iter().chain(&outcome.remarks).map(ToString::to_string);
            (planned.films_done.load(Ordering::Relaxed), messages.collect::<Vec<_>>())
        };
        assert_eq!(run(2, false), (0, Vec::new()));
        let folder = Arc::new(DirHandle::open(&path("t/film")).unwrap());
        let state =
            SourceState::of(&File::open(path("film.ts")).unwrap(), Path::new("film.ts")).unwrap();
        let options =
            HlsOptions { target_s: 2, protection: None, force: false, sync: Durability::End };
        let journal = Journal::read(&folder).unwrap().unwrap();
        assert_eq!(journal.edition, edition(LAYOUTS[0], "film", state, &options));
        let edition = edition(2, "film", state, &options);
        Journal { edition, files: Vec::new(), ..journal }.write(&folder).unwrap();

        let (before, messages) = run(2, false);
        assert!(
            before == 1 && messages.len() == 1 && messages[0].contains("earlier version"),
            "{messages:?}"
        );
        let (before, messages) = run(4, false);
        assert!(before == 0 && messages[0].contains("is there already"), "{messages:?}");
        std::fs::remove_file(path("t/film/00001.ts")).unwrap();
        let (before, messages) = run(2, false);
        assert!(
            before == 0 && messages.len() == 1 && messages[0].contains("sealed again"),
            "{messages:?}"
        );
        assert_eq!(run(2, false), (1, Vec::new()));
        assert_eq!(run(2, true), (0, Vec::new()));
    }
}
