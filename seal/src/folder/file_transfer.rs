// SPDX-License-Identifier: MIT OR Apache-2.0
//! One file on its way: what every form of a folder does around its cipher.
//!
//! The source is read at its offsets and hashed while the slice is hot, the target written in
//! order. At its end the source is looked at once more: a size, a time or a file that is not what
//! the walk saw means it was changed while it was read, and this file alone fails. The time of the
//! last change (ctime) is among them, which no program can set back. Not noticed that way is a
//! store through a shared mapping of a page that was dirty before the walk, and any such store on
//! tmpfs: the kernel gives those no time before it writes the page back. [`SealContext::verify`]
//! reads the source a second time and compares the hashes. What ends in one round gets its journal
//! lines in one write, then its names.
//!
//! A file that is in the page cache is read without waiting (`RWF_NOWAIT`, the crossing it would
//! take anyway). One that is not is asked for and others go first, so the disk is busy with many
//! files while the lanes are with others; read on, it is asked for [`AHEAD_BYTES`] ahead.
//!
//! Costs a small file: open, preadv2, fstat, close of the source; open, write, utimensat, close of
//! the target; and its rename where the folder can be seen.
//!
//! Sources: preadv2(2), posix_fadvise(2), utimensat(2), mmap(2) (`MAP_SHARED`: when times change).
//! Does not do: ciphers.

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

/// How far ahead a file is asked for that is not in the page cache.
pub(crate) const AHEAD_BYTES: u64 = 2 << 20;

/// A read of the second look at a source.
const SECOND_BYTES: usize = 256 * 1024;

/// Permissions that a file takes with it: ciphertext runs as nobody.
const MODE: u32 = 0o777;

/// What all files of a run share.
#[derive(Debug)]
pub(crate) struct SealContext {
    /// Below which they are read.
    pub(crate) source: Arc<DirHandle>,
    /// Below which they are written.
    pub(crate) target: Arc<DirHandle>,
    /// Nobody looks into the target before all is in it.
    pub(crate) is_unseen: bool,
    /// Where lines go; without one there are no records.
    pub(crate) journal: Option<Mutex<Journal>>,
    /// For the hashes of contents.
    pub(crate) content_key: Zeroizing<[u8; 32]>,
    /// What reaches the disk when.
    pub(crate) sync: Durability,
    /// Permissions that the kernel takes away from a new file.
    pub(crate) umask: u32,
    /// Each source is read a second time and compared.
    pub(crate) verify: bool,
    /// The source's file system can say that it would have to wait.
    pub(crate) can_poll: AtomicBool,
}

/// A file to be worked on.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) ground: &'a SealContext,
    pub(crate) file: folder_walk::File,
    /// A target that is there is replaced.
    pub(crate) replaces: bool,
}

/// What a read came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// So many bytes: all that was asked for, or all that is left.
    Bytes(usize),
    /// It has been asked for; come again after others.
    NotReady,
}

/// A file being worked on.
#[derive(Debug)]
pub(crate) struct Transfer<'a> {
    ground: &'a SealContext,
    pending: PendingFile,
    /// Closed when all is read.
    source: Option<OwnedFd>,
    seen: SourceState,
    replaces: bool,
    offset: u64,
    written: u64,
    hash: Hash,
    cold: Cold,
}

/// The source as the walk saw it.
#[derive(Clone, Copy, Debug)]
struct SourceState {
    bytes: u64,
    modified: Time,
    changed: Time,
    mode: u32,
    inode: u64,
}

/// The hash of the content.
#[derive(Debug)]
enum Hash {
    /// Nothing as yet.
    Empty,
    /// There is more to come.
    Part(Box<blake3::Hasher>),
    /// Of all of it.
    Whole([u8; 32]),
}

/// What is known of the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cold {
    /// All was there as yet.
    No,
    /// Asked for just now, and up to where.
    Asked(u64),
    /// Read on, asked for up to there.
    Until(u64),
}

impl<'a> Job<'a> {
    /// Opens source and target.
    ///
    /// # Errors
    /// Either cannot be opened.
    pub(crate) fn open(self) -> Result<Transfer<'a>, Error> {
        let Self { ground, file, replaces } = self;
        // What became a pipe since the walk must not make this wait.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let source = ground
            .source
            .open_below(&file.path, flags, Mode::empty())
            .map_err(|errno| ground.source.error("open", &file.path, errno))?;
        let mode = file.mode & MODE;
        let pending = match ground.is_unseen {
            true => PendingFile::create_unseen(&ground.target, file.path, mode)?,
            false => PendingFile::create_below(&ground.target, file.path, mode)?,
        };
        let folder_walk::File { bytes, modified, changed, inode, .. } = file;
        Ok(Transfer {
            ground,
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
    /// Bytes that are still to be read.
    pub(crate) fn left_bytes(&self) -> u64 {
        self.seen.bytes - self.offset
    }

    /// What is shared with the others.
    pub(crate) fn ground(&self) -> &'a SealContext {
        self.ground
    }

    /// Fills `buffer` from the source, or as much of it as is left, and hashes that. With the last
    /// byte the source is checked and closed.
    ///
    /// # Errors
    /// [`FileFault::Changed`]; it cannot be read.
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

    /// The same without the hash, for a source that is not what the hash is of.
    ///
    /// # Errors
    /// As [`Transfer::read`].
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
        let key = &*self.ground.content_key;
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
            || !self.ground.can_poll.load(Ordering::Relaxed);
        if !may_wait {
            let mut slices = [IoSliceMut::new(buffer)];
            match preadv2(source, &mut slices, self.offset, ReadWriteFlags::NOWAIT) {
                Ok(read) => filled = read,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let until = self.offset + AHEAD_BYTES;
                    // Only asked: what cannot be fetched will say so when it is read.
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
                    self.ground.can_poll.store(false, Ordering::Relaxed);
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

    /// Of a file that was not in the page cache, asks for what comes next.
    fn ahead(&mut self) {
        let Cold::Until(until) = self.cold else { return };
        let Some(source) = &self.source else { return };
        if until < self.seen.bytes && self.offset + AHEAD_BYTES / 2 >= until {
            let more = std::num::NonZeroU64::new(AHEAD_BYTES);
            // As above.
            let _ = fadvise(source, until, more, Advice::WillNeed);
            self.cold = Cold::Until(until + AHEAD_BYTES);
        }
    }

    /// All is read: whether it is what the walk saw.
    fn check_source(&mut self) -> Result<(), Error> {
        let source = self.source.take().expect("open while there is something left");
        if let (true, Hash::Whole(content)) = (self.ground.verify, &self.hash)
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

    /// The hash of what is in the source now.
    fn second_hash(&self, source: &OwnedFd) -> Result<blake3::Hash, Error> {
        let mut hasher = blake3::Hasher::new_keyed(&self.ground.content_key);
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
    /// The disk is full, or refuses.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.pending.file().write_all(bytes).map_err(|error| self.target_error("write", error))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Times, permissions, and with [`Durability::Each`] the disk.
    fn settle(&mut self) -> Result<(), Error> {
        let file = self.pending.file();
        let Time { s, ns } = self.seen.modified;
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: s, tv_nsec: ns.into() },
        };
        futimens(file, &times).map_err(|errno| self.target_error("utimensat", errno.into()))?;
        let mode = self.seen.mode & MODE;
        if mode & self.ground.umask != 0 {
            fchmod(file, Mode::from_raw_mode(mode))
                .map_err(|errno| self.target_error("fchmod", errno.into()))?;
        }
        if self.ground.sync == Durability::Each {
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
        Error::file(&self.ground.source.shown(self.pending.below()), FileFault::Changed)
    }

    fn source_error(&self, call: &'static str, errno: Errno) -> Error {
        self.ground.source.error(call, self.pending.below(), errno)
    }

    fn target_error(&self, call: &'static str, error: io::Error) -> Error {
        Error::host(call, &self.pending.target())(error)
    }
}

/// Finishes what ended in one round: its lines in one write, then its names.
pub(crate) fn finish_all<'a, S>(
    ended: &mut Vec<S>,
    transfer: impl Fn(S) -> Transfer<'a>,
    came: &mut dyn FnMut(Result<(), Error>),
) {
    let mut whole = Vec::with_capacity(ended.len());
    for stream in ended.drain(..) {
        let mut transfer = transfer(stream);
        match transfer.settle() {
            Ok(()) => whole.push(transfer),
            Err(error) => came(Err(error)),
        }
    }
    let Some(ground) = whole.first().map(Transfer::ground) else { return };
    if let Err(error) = journalled(ground, &whole) {
        // None has a record, so none takes its name; each says why.
        whole.iter().for_each(|one| came(Err(again(&error, one))));
        return;
    }
    let mut undone = Vec::new();
    for one in whole {
        let name = one.name().to_owned();
        let committed = one.pending.commit(one.replaces);
        if committed.is_err() {
            undone.push(name);
        }
        came(committed);
    }
    if let (false, Some(journal)) = (undone.is_empty(), &ground.journal) {
        let mut journal = journal.lock().expect("no worker panicked");
        undone.iter().for_each(|name| journal.push_undone(name));
        if let Err(error) = journal.write() {
            came(Err(error));
        }
    }
}

fn journalled(ground: &SealContext, whole: &[Transfer<'_>]) -> Result<(), Error> {
    let Some(journal) = &ground.journal else { return Ok(()) };
    let mut journal = journal.lock().expect("no worker panicked");
    whole.iter().for_each(|one| journal.push_file(one.name(), &one.record()));
    journal.write()?;
    if ground.sync == Durability::Each {
        journal.sync()?;
    }
    Ok(())
}

/// The journal's error, said of a file whose line was in it.
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
