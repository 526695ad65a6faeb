// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unsealing of a film: restores the transport stream from its folder. Segments are opened, the
//! tables in front are removed, and each segment's hash is compared.
//!
//! The stream is the source byte for byte, without an incomplete packet at its end. It gets its
//! name when it is verified completely. A wrong key, a damaged file and a wrong padding give one
//! message, which names the segment.
//!
//! Costs: a read, the cipher in place (CBC decrypts in parallel within a message), the hash, a
//! write. A film is one work; several films are opened in parallel.
//!
//! Sources: RFC 8216 §4.3.2.4, §5.2.
//! Does not fetch segments or keys over a network, or read playlists of other programs.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{Mode, OFlags};
use simd::cbc::{AesKey, Cbc};

use super::film_journal::FILE as JOURNAL;
use super::key_source::SegmentKeySource;
use super::openssl_opener::OpenSsl;
use super::playlist::{MEDIA, Playlist, playlist_name, read_playlist, segment_name};
use super::segment_cipher::{BLOCK_BYTES, without_padding};
use super::segment_work::{begin_check, check, hasher};
use super::{FilmFault, compatibility};
use crate::dir_handle::DirHandle;
use crate::engine::{self, Filled, SealOutcome, SealProgress, Settings, Work, WorkStream};
use crate::error::{Error, FileFault};
use crate::pending_file::PendingFile;
use crate::target_path::{self, FOLDER_MODE, TargetPath, c_string};
use crate::trust::{self, Writer};

/// Makes transport streams of the films at or below `source`: of one film the file `target`, of
/// films below a folder files below the folder `target`.
///
/// # Errors
/// There is no film.
pub fn unseal(
    source: &Path,
    target: &Path,
    keys: &SegmentKeySource,
    force: bool,
    settings: &Settings,
    seen: &SealProgress,
) -> Result<SealOutcome, Error> {
    let (films, refused) = those_that_open(find(source)?, source, keys)?;
    let mut root = None;
    if films.iter().any(|film| film.below.is_some()) {
        root = Some(Arc::new(target_path::open_or_make(target)?));
    }
    let mut works = Vec::with_capacity(films.len());
    for film in films {
        let target = match (&film.below, &root) {
            (Some(below), Some(root)) => {
                TargetPath::Below(root.clone(), c_string(&with_extension(below))?)
            }
            _ => TargetPath::Path(target.to_owned()),
        };
        let sink = Sink::Into { target, force };
        let cipher = Cipher::Lanes(settings.cbc);
        let (folder, id, bytes) = (film.folder, String::new(), film.bytes);
        works.push(FilmWork { folder, id, keys, sink, cipher, bytes });
    }
    seen.failed.fetch_add(refused.len() as u64, Ordering::Relaxed);
    let mut outcome = engine::run(works, settings, seen);
    outcome.failed.extend(refused);
    Ok(outcome)
}

/// Returns the films whose first segment opens with `keys` or cannot be checked, and the errors of
/// the others.
///
/// # Errors
/// [`Error::Option`]: no film opens.
pub(super) fn those_that_open(
    films: Vec<SealedFilm>,
    source: &Path,
    keys: &SegmentKeySource,
) -> Result<(Vec<SealedFilm>, Vec<Error>), Error> {
    let (mut open, mut refused) = (Vec::with_capacity(films.len()), Vec::new());
    for film in films {
        match DirHandle::open(&film.folder)
            .ok()
            .and_then(|folder| compatibility::opens(&folder, keys))
        {
            Some(Err(error)) if is_not_its_key(&error) => refused.push(error),
            _ => open.push(film),
        }
    }
    if !open.is_empty() {
        return Ok((open, refused));
    }
    let source = source.display();
    let Some(origin) = keys.origin() else {
        return Err(Error::Option {
            option: "keys",
            found: format!("not given, and {source} is encrypted"),
            cure: "give the key that it was sealed with, or the folder of its keys".to_owned(),
        });
    };
    Err(match refused.len() {
        1 => origin.error(
            &format!("does not open {source}, whose first segment is no transport stream with it"),
            "nothing was written; give the key that it was sealed with. If this is that key, put \
             00000.ts back as it was",
        ),
        films => origin.error(
            &format!("opens none of the {films} films below {source}"),
            "nothing was written; give the key that they were sealed with",
        ),
    })
}

/// True for errors of a wrong or missing key, which are found before anything is written.
fn is_not_its_key(error: &Error) -> bool {
    matches!(error, Error::File { fault: FileFault::Stream(fault), .. }
        if matches!(**fault, FilmFault::OtherKey | FilmFault::KeyNeeded))
}

/// A film's folder, and its path below the source.
pub(super) struct SealedFilm {
    pub(super) folder: PathBuf,
    pub(super) below: Option<PathBuf>,
    pub(super) bytes: u64,
}

/// Finds the films at or below `source`.
///
/// # Errors
/// There is no film, or a folder cannot be read.
pub(super) fn find(source: &Path) -> Result<Vec<SealedFilm>, Error> {
    let is_named = source.file_name().is_some_and(|name| name == MEDIA);
    if is_named || source.join(MEDIA).is_file() || is_begun(source) {
        let is_folder = source.is_dir();
        let above = source.parent().filter(|above| !above.as_os_str().is_empty());
        let folder = if is_folder { source } else { above.unwrap_or(Path::new(".")) };
        return Ok(vec![SealedFilm {
            folder: folder.to_owned(),
            below: None,
            bytes: bytes(folder)?,
        }]);
    }
    let mut folders = vec![source.to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        let mut is_film = is_begun(&folder);
        for entry in fs::read_dir(&folder).map_err(Error::host("open", &folder))? {
            let entry = entry.map_err(Error::host("getdents", &folder))?;
            let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            let kind = entry.file_type().map_err(Error::host("stat", &entry.path()))?;
            if kind.is_dir() && !is_hidden {
                folders.push(entry.path());
            }
            is_film |= kind.is_file() && entry.file_name() == MEDIA;
        }
        if is_film {
            let below = Some(folder.strip_prefix(source).expect("found below").to_owned());
            found.push(SealedFilm { bytes: bytes(&folder)?, folder, below });
        }
    }
    match found.is_empty() {
        true => Err(Error::file(source, FilmFault::NoFilm.into())),
        false => Ok(found),
    }
}

/// True when a folder has a film's journal, whatever else is missing.
fn is_begun(folder: &Path) -> bool {
    fs::symlink_metadata(folder.join(JOURNAL)).is_ok_and(|found| found.is_file())
}

/// Sums the bytes of files in a folder, for the order and the progress.
fn bytes(folder: &Path) -> Result<u64, Error> {
    let entries = fs::read_dir(folder).map_err(Error::host("open", folder))?;
    let bytes = entries.map(|entry| entry.and_then(|entry| entry.metadata()));
    bytes
        .map(|metadata| metadata.map(|metadata| metadata.len()))
        .sum::<std::io::Result<u64>>()
        .map_err(Error::host("stat", folder))
}

/// `sub/film.part` becomes `sub/film.part.ts`.
fn with_extension(below: &Path) -> PathBuf {
    let mut name = below.as_os_str().to_owned();
    name.push(".ts");
    name.into()
}

/// Destination of the opened stream.
pub(super) enum Sink {
    /// Written to a file.
    Into { target: TargetPath, force: bool },
    /// Compared with this file.
    Compare(PathBuf),
    /// Dropped; only the segments' hashes are checked.
    Nothing,
}

/// Implementation that deciphers segments.
#[derive(Clone, Copy)]
pub(super) enum Cipher {
    /// The lanes.
    Lanes(Cbc),
    /// OpenSSL.
    OpenSsl,
}

/// A film to be opened.
pub(super) struct FilmWork<'a> {
    pub(super) folder: PathBuf,
    /// Part of the film; empty for the whole stream.
    pub(super) id: String,
    pub(super) keys: &'a SegmentKeySource,
    pub(super) sink: Sink,
    pub(super) cipher: Cipher,
    pub(super) bytes: u64,
}

/// A film being opened.
pub(super) struct FilmStream<'a> {
    folder: DirHandle,
    playlist: Playlist,
    keys: &'a SegmentKeySource,
    cipher: Cipher,
    out: Out,
    open: Option<Segment>,
    /// Number of the next segment.
    next: u64,
    /// Bytes of the source so far.
    at: u64,
}

enum Out {
    Pending { pending: PendingFile, force: bool },
    Compare { file: File, path: PathBuf },
    Nothing,
}

/// A segment in progress.
struct Segment {
    index: u64,
    path: PathBuf,
    file: File,
    /// Bytes still to be read.
    left: u64,
    /// Bytes of tables still to be skipped.
    skip: u64,
    /// True when the hash is of the whole segment; false: of its bytes of the source.
    checks_all: bool,
    hasher: blake3::Hasher,
    opener: Opener,
}

enum Opener {
    Clear,
    Lanes { cbc: Cbc, key: Box<AesKey>, iv: [u8; BLOCK_BYTES] },
    OpenSsl(OpenSsl),
}

impl<'a> Work for FilmWork<'a> {
    type Stream = FilmStream<'a>;

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn open(self) -> Result<FilmStream<'a>, Error> {
        let path = self.folder.join(playlist_name(&self.id));
        let folder = DirHandle::open(&self.folder)?;
        let playlist = read_playlist(&folder, &self.id)?;
        if playlist.rotation.is_some() && matches!(self.keys, SegmentKeySource::None) {
            return Err(Error::file(&path, FilmFault::KeyNeeded.into()));
        }
        let out = match self.sink {
            Sink::Into { target, force } => {
                make_folders_of(&target)?;
                let shown = target.shown();
                if !force && fs::symlink_metadata(&shown).is_ok() {
                    return Err(Error::file(&shown, FileFault::Exists));
                }
                Out::Pending { pending: target.create(0o644)?, force }
            }
            Sink::Compare(path) => {
                let file = File::open(&path).map_err(Error::host("open", &path))?;
                Out::Compare { file, path }
            }
            Sink::Nothing => Out::Nothing,
        };
        let Self { keys, cipher, .. } = self;
        Ok(FilmStream { folder, playlist, keys, cipher, out, open: None, next: 0, at: 0 })
    }
}

/// Makes the folders above a target.
fn make_folders_of(target: &TargetPath) -> Result<(), Error> {
    match target {
        TargetPath::Below(root, below) => {
            root.make_folders_of(below, Mode::from_raw_mode(FOLDER_MODE))
        }
        TargetPath::Path(path) => match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => {
                fs::create_dir_all(folder).map_err(Error::host("mkdir", folder))
            }
            _ => Ok(()),
        },
    }
}

impl FilmStream<'_> {
    fn open_next(&mut self) -> Result<Segment, Error> {
        let index = self.next;
        self.next += 1;
        let name = c_string(segment_name(&self.playlist.id, index).as_ref())?;
        let path = self.folder.shown(&name);
        let file = trust::open(&self.folder, &name, OFlags::RDONLY, Writer::Anybody, u64::MAX)?
            .ok_or_else(|| Error::file(&path, FilmFault::Missing.into()))?;
        let left = file.metadata().map_err(Error::host("fstat", &path))?.len();
        let is_sealed = self.playlist.rotation.is_some();
        if left == 0 || is_sealed && !left.is_multiple_of(BLOCK_BYTES as u64) {
            return Err(Error::file(&path, FilmFault::Segment { index }.into()));
        }
        let opener = match is_sealed {
            false => Opener::Clear,
            true => {
                let number = self.playlist.key_number(index);
                let key = self.keys.key(&self.playlist, number)?.expect("looked at before");
                let iv = self.playlist.iv(index);
                match self.cipher {
                    Cipher::Lanes(cbc) => {
                        let key = Box::new(AesKey::new(key.as_slice()).expect("16 bytes"));
                        Opener::Lanes { cbc, key, iv }
                    }
                    Cipher::OpenSsl => Opener::OpenSsl(OpenSsl::new(&key, &iv)?),
                }
            }
        };
        let hash_key = match self.keys {
            SegmentKeySource::Derived(keys) if is_sealed => Some(keys.check()),
            _ => None,
        };
        let line = &self.playlist.lines[usize::try_from(index).expect("it is listed")];
        let skip = line.tables * media::TS_PACKET_BYTES as u64;
        let mut hasher = hasher(hash_key);
        let checks_all = self.playlist.checks_all;
        if checks_all {
            begin_check(&mut hasher, index, skip);
        }
        Ok(Segment { index, path, file, left, skip, checks_all, hasher, opener })
    }

    /// Checks the hash of a segment that was read to its end.
    fn close(&self, segment: &Segment) -> Result<(), Error> {
        let index = segment.index;
        let line = &self.playlist.lines[usize::try_from(index).expect("it is listed")];
        let is_checked =
            self.playlist.rotation.is_none() || matches!(self.keys, SegmentKeySource::Derived(_));
        let is_right = !is_checked || check(&segment.hasher) == line.check;
        if segment.skip > 0 || !is_right {
            return Err(Error::file(&segment.path, FilmFault::Segment { index }.into()));
        }
        Ok(())
    }

    /// Compares opened bytes with the source.
    fn compare(&self, bytes: &[u8], file: &File, path: &Path) -> Result<(), Error> {
        let mut expected = vec![0; bytes.len()];
        let offset = self.at;
        let differs = |offset| Error::file(path, FilmFault::Differs { offset }.into());
        match file.read_exact_at(&mut expected, offset) {
            Ok(()) if expected == bytes => Ok(()),
            Ok(()) => {
                let same = expected.iter().zip(bytes).take_while(|(a, b)| a == b).count();
                Err(differs(offset + same as u64))
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(differs(offset)),
            Err(error) => Err(Error::host("read", path)(error)),
        }
    }
}

impl Segment {
    /// Fills `buffer` with the next bytes of the source; returns the bytes read from the file, and
    /// the bytes filled.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(usize, usize), Error> {
        // OpenSSL keeps a block back and returns it with the next ones.
        let room = (buffer.len() - BLOCK_BYTES) / BLOCK_BYTES * BLOCK_BYTES;
        let wanted = self.left.min(room as u64) as usize;
        let damaged = FilmFault::Segment { index: self.index };
        match self.file.read_exact(&mut buffer[..wanted]) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return Err(Error::file(&self.path, damaged.into()));
            }
            Err(error) => return Err(Error::host("read", &self.path)(error)),
        }
        self.left -= wanted as u64;
        let is_last = self.left == 0;
        let bytes = match &mut self.opener {
            Opener::Clear => Some(wanted),
            Opener::Lanes { cbc, key, iv } => {
                cbc.decrypt(key, iv, &mut buffer[..wanted]);
                if is_last { without_padding(&buffer[..wanted]) } else { Some(wanted) }
            }
            Opener::OpenSsl(opener) => opener.open(buffer, wanted, is_last)?,
        };
        let Some(mut bytes) = bytes else {
            return Err(Error::file(&self.path, damaged.into()));
        };
        let skipped = self.skip.min(bytes as u64) as usize;
        let checked = if self.checks_all { 0 } else { skipped };
        self.hasher.update(&buffer[checked..bytes]);
        if skipped > 0 {
            buffer.copy_within(skipped..bytes, 0);
            bytes -= skipped;
            self.skip -= skipped as u64;
        }
        Ok((wanted, bytes))
    }
}

impl WorkStream for FilmStream<'_> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<Filled, Error> {
        let mut segment = match self.open.take() {
            Some(segment) => segment,
            None => self.open_next()?,
        };
        let (read, bytes) = segment.fill(buffer)?;
        let mut is_last = false;
        if segment.left == 0 {
            self.close(&segment)?;
            is_last = self.next == self.playlist.lines.len() as u64;
        } else {
            self.open = Some(segment);
        }
        Ok(Filled { bytes, cipher: 0..0, source_bytes: read as u64, is_last })
    }

    fn chain(&mut self) -> (&AesKey, &mut [u8; BLOCK_BYTES]) {
        unreachable!("opened in fill: nothing is left to the lanes")
    }

    fn drain(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match &self.out {
            Out::Pending { pending, .. } => {
                let written = pending.file().write_all(bytes);
                written.map_err(Error::host("write", &pending.target()))?;
            }
            Out::Compare { file, path } => self.compare(bytes, file, path)?,
            Out::Nothing => {}
        }
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn finish(self) -> Result<(), Error> {
        let whole = self.playlist.source_bytes.checked_sub(self.playlist.tail_bytes);
        if Some(self.at) != whole {
            let fault = FilmFault::Differs { offset: self.at };
            return Err(Error::file(&self.folder.path().join(MEDIA), fault.into()));
        }
        match self.out {
            Out::Pending { pending, force } => pending.commit(force),
            Out::Compare { file, path } => {
                let bytes = file.metadata().map_err(Error::host("fstat", &path))?.len();
                if bytes != self.playlist.source_bytes {
                    let fault = FilmFault::Differs { offset: bytes.min(self.at) };
                    return Err(Error::file(&path, fault.into()));
                }
                Ok(())
            }
            Out::Nothing => Ok(()),
        }
    }
}

/// Lists films whose sources ended with an incomplete packet, and its bytes, which were not kept.
///
/// # Errors
/// There is no film, or a folder cannot be read.
pub fn cut_off(source: &Path) -> Result<Vec<(PathBuf, u64)>, Error> {
    let mut all = Vec::new();
    for film in find(source)? {
        // Another check reports a playlist that cannot be read.
        let Ok(playlist) = read_playlist(&DirHandle::open(&film.folder)?, "") else { continue };
        if playlist.tail_bytes > 0 {
            all.push((film.folder, playlist.tail_bytes));
        }
    }
    Ok(all)
}
