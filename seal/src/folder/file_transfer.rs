// SPDX-License-Identifier: MIT OR Apache-2.0
//! One file in progress: the work of every form of a folder around its cipher.
//!
//! The source is read at its offsets and hashed while the slice is in the cache; the target is
//! written in order. After the last byte the source is checked again: when its size, times, inode
//! or file type differ from those of the walk, it was changed during the read, and this file alone
//! fails. The check includes ctime, which no program can set back. It misses a store through a
//! shared mapping of a page that was dirty before the walk, and any such store on tmpfs: the kernel
//! changes no time for those before it writes the page back. [`SealContext::verify`] reads the
//! source a second time and compares the hashes. Files that end in one round get their journal
//! lines in one write, then their names.
//!
//! A file in the page cache is read without waiting (`RWF_NOWAIT`, no extra system call). For any
//! other file, read-ahead is requested and other files go first, so the disk reads many files while
//! the lanes work on others. Later reads of it request [`AHEAD_BYTES`] ahead.
//!
//! Cost of a small file: open, preadv2, fstat, close of the source; open, write, utimensat, close
//! of the target; and a rename where the folder is visible.
//!
//! Sources: preadv2(2), posix_fadvise(2), utimensat(2), mmap(2) (`MAP_SHARED`: when times change).
//! Does not encipher.

use std::io::{IoSliceMut, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::{ffi::OsStr, io};

use rustix::fs::{
    Advice, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, fadvise, fchmod, fstat,
    futimens,
};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};
use zeroize::Zeroizing;

use super::Durability;
use crate::engine::stage::{self, SealStage};
use crate::error::{Error, FileFault};
use crate::folder_walk::{self, DirHandle};
use crate::manifest::{Journal, ManifestRecord, Time};
use crate::pending_file::PendingFile;

/// Bytes of read-ahead requested for a file that is not in the page cache.
pub(crate) const AHEAD_BYTES: u64 = 2 << 20;

/// Bytes of a read when the source is read a second time.
const SECOND_BYTES: usize = 256 * 1024;

/// Permission bits copied to the target; setuid, setgid and sticky are dropped.
const MODE: u32 = 0o777;

/// State that all files of a run share.
#[derive(Debug)]
pub(crate) struct SealContext {
    /// The folder that sources are read from.
    pub(crate) source: Arc<DirHandle>,
    /// The folder that targets are written to.
    pub(crate) target: Arc<DirHandle>,
    /// True when the target has a hidden name until all files are in it.
    pub(crate) is_unseen: bool,
    /// The journal of finished files; without it no records are kept.
    pub(crate) journal: Option<Mutex<Journal>>,
    /// The key of the content hashes.
    pub(crate) content_key: Zeroizing<[u8; 32]>,
    /// When files reach the disk.
    pub(crate) sync: Durability,
    /// Permission bits that the kernel removes from a new file.
    pub(crate) umask: u32,
    /// True: each source is read a second time and compared.
    pub(crate) verify: bool,
    /// True while the source's file system supports `RWF_NOWAIT`.
    pub(crate) can_poll: AtomicBool,
}

/// A file to be transferred.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) context: &'a SealContext,
    pub(crate) file: folder_walk::File,
    /// True: an existing target is replaced.
    pub(crate) replaces: bool,
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// Bytes read: as many as requested, or all that were left.
    Bytes(usize),
    /// Read-ahead has been requested; call again after other files.
    NotReady,
}

/// A file in progress.
#[derive(Debug)]
pub(crate) struct Transfer<'a> {
    context: &'a SealContext,
    pending: PendingFile,
    /// Closed after the last byte.
    source: Option<OwnedFd>,
    seen: SourceState,
    replaces: bool,
    offset: u64,
    written: u64,
    hash: Hash,
    cold: Cold,
}

/// State of the source during the walk.
#[derive(Clone, Copy, Debug)]
struct SourceState {
    bytes: u64,
    modified: Time,
    changed: Time,
    mode: u32,
    inode: u64,
}

/// Hash of the content.
#[derive(Debug)]
enum Hash {
    /// Nothing hashed so far.
    Empty,
    /// More content follows.
    Part(Box<blake3::Hasher>),
    /// Hash of the whole content.
    Whole([u8; 32]),
}

/// State of the file in the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cold {
    /// Every read so far was served from it.
    No,
    /// Read-ahead was just requested, up to this offset.
    Asked(u64),
    /// A later read; read-ahead has been requested up to this offset.
    Until(u64),
}

impl<'a> Job<'a> {
    /// Opens source and target.
    ///
    /// # Errors
    /// Either cannot be opened.
    pub(crate) fn open(self) -> Result<Transfer<'a>, Error> {
        let Self { context, file, replaces } = self;
        // A file that became a pipe since the walk must not block here.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let source = context
            .source
            .open_below(&file.path, flags, Mode::empty())
            .map_err(|errno| context.source.error("open", &file.path, errno))?;
        let mode = file.mode & MODE;
        let pending = match context.is_unseen {
            true => PendingFile::create_unseen(&context.target, file.path, mode)?,
            false => PendingFile::create_below(&context.target, file.path, mode)?,
        };
        let folder_walk::File { bytes, modified, changed, inode, .. } = file;
        Ok(Transfer {
            context,
            pending,
            source: Some(source),
            seen: SourceState { bytes, modified, changed, mode, inode },
            replaces,
            offset: 0,
            written: 0,
            hash: Hash::Empty,
            cold: Cold::No,
        })
    }
}

impl<'a> Transfer<'a> {
    /// Returns the bytes that are still to be read.
    pub(crate) fn left_bytes(&self) -> u64 {
        self.seen.bytes - self.offset
    }

    /// Returns the state shared with other files.
    pub(crate) fn context(&self) -> &'a SealContext {
        self.context
    }

    /// Fills `buffer` from the source, or with all that is left, and hashes those bytes. After the
    /// last byte the source is checked and closed.
    ///
    /// # Errors
    /// [`FileFault::Changed`], or the source cannot be read.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<Read, Error> {
        let read = self.take(buffer)?;
        if let Read::Bytes(bytes) = read {
            self.hash(&buffer[..bytes]);
            if self.left_bytes() == 0 {
                self.check_source()?;
            }
        }
        Ok(read)
    }

    /// Reads without hashing, for a source whose bytes are not the content of the hash.
    ///
    /// # Errors
    /// The errors of [`Transfer::read`].
    pub(crate) fn read_unhashed(&mut self, buffer: &mut [u8]) -> Result<Read, Error> {
        let read = self.take(buffer)?;
        if read != Read::NotReady && self.left_bytes() == 0 {
            self.check_source()?;
        }
        Ok(read)
    }

    fn take(&mut self, buffer: &mut [u8]) -> Result<Read, Error> {
        let bytes = self.left_bytes().min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..bytes];
        if bytes > 0 && self.fetch(buffer)? == Read::NotReady {
            return Ok(Read::NotReady);
        }
        self.offset += bytes as u64;
        self.ahead();
        Ok(Read::Bytes(bytes))
    }

    fn hash(&mut self, buffer: &[u8]) {
        let is_last = self.left_bytes() == 0;
        stage::enter(SealStage::Hash);
        let key = &*self.context.content_key;
        match &mut self.hash {
            Hash::Empty if is_last => {
                self.hash = Hash::Whole(blake3::keyed_hash(key, buffer).into());
            }
            Hash::Empty => {
                let mut hasher = Box::new(blake3::Hasher::new_keyed(key));
                hasher.update(buffer);
                self.hash = Hash::Part(hasher);
            }
            Hash::Part(hasher) => {
                hasher.update(buffer);
                if is_last {
                    self.hash = Hash::Whole(hasher.finalize().into());
                }
            }
            Hash::Whole(_) => unreachable!("nothing is read after the last byte"),
        }
    }

    /// Reads all of `buffer` at the offset.
    fn fetch(&mut self, buffer: &mut [u8]) -> Result<Read, Error> {
        let source = self.source.as_ref().expect("open while there is something left");
        let mut filled = 0;
        let may_wait = !matches!(self.cold, Cold::No | Cold::Until(_))
            || !self.context.can_poll.load(Ordering::Relaxed);
        if !may_wait {
            let mut slices = [IoSliceMut::new(buffer)];
            match preadv2(source, &mut slices, self.offset, ReadWriteFlags::NOWAIT) {
                Ok(read) => filled = read,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let until = self.offset + AHEAD_BYTES;
                    // Only a request: a read error is reported by the read itself.
                    let _ = fadvise(
                        source,
                        self.offset,
                        std::num::NonZeroU64::new(AHEAD_BYTES),
                        Advice::WillNeed,
                    );
                    self.cold = Cold::Asked(until);
                    return Ok(Read::NotReady);
                }
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    self.context.can_poll.store(false, Ordering::Relaxed);
                }
                Err(errno) => return Err(self.source_error("read", errno)),
            }
        }
        while filled < buffer.len() {
            match pread(source, &mut buffer[filled..], self.offset + filled as u64) {
                Ok(0) => return Err(self.changed()),
                Ok(read) => filled += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.source_error("read", errno)),
            }
        }
        if let Cold::Asked(until) = self.cold {
            self.cold = Cold::Until(until);
        }
        Ok(Read::Bytes(filled))
    }

    /// Requests the next read-ahead of a file that was not in the page cache.
    fn ahead(&mut self) {
        let Cold::Until(until) = self.cold else { return };
        let Some(source) = &self.source else { return };
        if until < self.seen.bytes && self.offset + AHEAD_BYTES / 2 >= until {
            let more = std::num::NonZeroU64::new(AHEAD_BYTES);
            // Only a request, as above.
            let _ = fadvise(source, until, more, Advice::WillNeed);
            self.cold = Cold::Until(until + AHEAD_BYTES);
        }
    }

    /// Closes the source after the last byte; fails if the source differs from its state in the
    /// walk.
    fn check_source(&mut self) -> Result<(), Error> {
        let source = self.source.take().expect("open while there is something left");
        if let (true, Hash::Whole(content)) = (self.context.verify, &self.hash)
            && self.second_hash(&source)? != *content
        {
            return Err(self.changed());
        }
        let stat = fstat(&source).map_err(|errno| self.source_error("fstat", errno))?;
        let is_same = stat.st_size.unsigned_abs() == self.seen.bytes
            && folder_walk::modified(&stat) == self.seen.modified
            && folder_walk::changed(&stat) == self.seen.changed
            && stat.st_ino == self.seen.inode
            && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if is_same { Ok(()) } else { Err(self.changed()) }
    }

    /// Returns the hash of the source's present content.
    fn second_hash(&self, source: &OwnedFd) -> Result<blake3::Hash, Error> {
        let mut hasher = blake3::Hasher::new_keyed(&self.context.content_key);
        let mut buffer = vec![0; SECOND_BYTES];
        let mut offset = 0;
        while offset < self.seen.bytes {
            let wanted = (self.seen.bytes - offset).min(SECOND_BYTES as u64) as usize;
            stage::enter(SealStage::Read);
            match pread(source, &mut buffer[..wanted], offset) {
                Ok(0) => return Err(self.changed()),
                Ok(read) => {
                    stage::enter(SealStage::Hash);
                    hasher.update(&buffer[..read]);
                    offset += read as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.source_error("read", errno)),
            }
        }
        Ok(hasher.finalize())
    }

    /// Appends to the target.
    ///
    /// # Errors
    /// The disk is full, or the write fails.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.pending.file().write_all(bytes).map_err(|error| self.target_error("write", error))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Sets times and permissions; with [`Durability::Each`] syncs the file.
    fn settle(&mut self) -> Result<(), Error> {
        let file = self.pending.file();
        let Time { s, ns } = self.seen.modified;
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: s, tv_nsec: ns.into() },
        };
        futimens(file, &times).map_err(|errno| self.target_error("utimensat", errno.into()))?;
        let mode = self.seen.mode & MODE;
        if mode & self.context.umask != 0 {
            fchmod(file, Mode::from_raw_mode(mode))
                .map_err(|errno| self.target_error("fchmod", errno.into()))?;
        }
        if self.context.sync == Durability::Each {
            file.sync_all().map_err(|error| self.target_error("fsync", error))?;
        }
        Ok(())
    }

    fn record(&self) -> ManifestRecord {
        let Hash::Whole(content) = self.hash else { unreachable!("finished after the last byte") };
        ManifestRecord {
            source_bytes: self.seen.bytes,
            modified: self.seen.modified,
            sealed_bytes: self.written,
            content,
        }
    }

    fn name(&self) -> &OsStr {
        OsStr::from_bytes(self.pending.below().to_bytes())
    }

    fn changed(&self) -> Error {
        Error::file(&self.context.source.shown(self.pending.below()), FileFault::Changed)
    }

    fn source_error(&self, call: &'static str, errno: Errno) -> Error {
        self.context.source.error(call, self.pending.below(), errno)
    }

    fn target_error(&self, call: &'static str, error: io::Error) -> Error {
        Error::host(call, &self.pending.target())(error)
    }
}

/// Finishes files that ended in one round: writes their journal lines at once, then names them.
pub(crate) fn finish_all<'a, S>(
    ended: &mut Vec<S>,
    transfer: impl Fn(S) -> Transfer<'a>,
    on_result: &mut dyn FnMut(Result<(), Error>),
) {
    let mut whole = Vec::with_capacity(ended.len());
    for stream in ended.drain(..) {
        let mut transfer = transfer(stream);
        match transfer.settle() {
            Ok(()) => whole.push(transfer),
            Err(error) => on_result(Err(error)),
        }
    }
    let Some(context) = whole.first().map(Transfer::context) else { return };
    if let Err(error) = journalled(context, &whole) {
        // No file has a record, so none gets its name; each reports the error.
        whole.iter().for_each(|one| on_result(Err(again(&error, one))));
        return;
    }
    let mut undone = Vec::new();
    for one in whole {
        let name = one.name().to_owned();
        let committed = one.pending.commit(one.replaces);
        if committed.is_err() {
            undone.push(name);
        }
        on_result(committed);
    }
    if let (false, Some(journal)) = (undone.is_empty(), &context.journal) {
        let mut journal = journal.lock().expect("no worker panicked");
        undone.iter().for_each(|name| journal.push_undone(name));
        if let Err(error) = journal.write() {
            on_result(Err(error));
        }
    }
}

fn journalled(context: &SealContext, whole: &[Transfer<'_>]) -> Result<(), Error> {
    let Some(journal) = &context.journal else { return Ok(()) };
    let mut journal = journal.lock().expect("no worker panicked");
    whole.iter().for_each(|one| journal.push_file(one.name(), &one.record()));
    journal.write()?;
    if context.sync == Durability::Each {
        journal.sync()?;
    }
    Ok(())
}

/// Makes the journal's error one of a file whose line was in the write.
fn again(error: &Error, of: &Transfer<'_>) -> Error {
    let source = match error {
        Error::Host { source, .. } => match source.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::from(source.kind()),
        },
        _ => io::Error::other(error.to_string()),
    };
    of.target_error("journal", source)
}
