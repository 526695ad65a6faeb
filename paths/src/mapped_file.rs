// SPDX-License-Identifier: MIT OR Apache-2.0
//! An open file to send from, shared by all its senders.
//!
//! It holds the file's size at opening, its map once a path requests one, and two operations that
//! keep a cold file from stalling a sending thread: [`MappedFile::is_in_cache`], cheap, and
//! [`MappedFile::prefetch`], which waits and therefore belongs on a reader thread.
//!
//! A file may shrink while it is sent. Nothing here reads mapped memory, so that is never a SIGBUS
//! but an error: [`SendError::Shrunk`]. The send itself cannot detect one case: from the new end to
//! the end of its page the kernel reads zeroes, so a datagram there may carry some until
//! `prefetch`, which queries the size each time, detects the cut.
//!
//! Sources: `madvise(2)` (`MADV_POPULATE_READ`, Linux 5.14), `preadv2(2)` (`RWF_NOWAIT`, 4.14),
//! `cachestat(2)` (6.5), `posix_fadvise(2)`.
//!
//! Does not read ahead by itself, or pin pages. The kernel may reclaim cached pages.

use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::error::{Errno, Error, SendError};
use crate::send_stats::SendStats;
use crate::sys::{self, FileMap};

/// Distance of the bytes that [`MappedFile::is_in_cache`] probes where the kernel does not count
/// pages.
const PROBE_STEP_BYTES: u64 = 64 * 1024;

/// Bytes that [`read_ahead`] requests from the kernel in one call: some tens of microseconds of its
/// work.
const AHEAD_BYTES: u64 = 64 * 1024;

/// Buffer of [`MappedFile::prefetch`] where the kernel cannot populate a map.
const READ_BYTES: usize = 128 * 1024;

/// An open file to send from.
#[derive(Debug)]
pub struct MappedFile {
    file: File,
    name: Arc<str>,
    bytes: u64,
    map: OnceLock<Result<FileMap, Errno>>,
    /// True when the kernel has refused to count the file's cached pages.
    uncountable: AtomicBool,
}

/// Starts reading `range` from the disk, without waiting. It is a hint: an error appears when a
/// caller waits for the range.
///
/// Proceeds in short steps, because the kernel's own are as long as the disk's setting, several MiB
/// on some: where kernel code is not preempted, a pacer on this core waits for a whole step. One
/// thread of the process proceeds at a time, because starting a read is work (the kernel allocates
/// pages, and clears them for holes), and the threads that wait for disks would keep every core
/// busy with it.
pub fn read_ahead(file: &File, range: Range<u64>) {
    static TURN: Mutex<()> = Mutex::new(());
    let mut offset = range.start;
    while offset < range.end {
        let end = range.end.min(offset + AHEAD_BYTES);
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        sys::will_need(file, offset..end);
        offset = end;
    }
}

impl MappedFile {
    /// Makes one of a regular file; `name` is its name in log lines.
    pub fn open(file: File, name: impl Into<Arc<str>>) -> Result<Self, Error> {
        let name = name.into();
        let facts = file.metadata().map_err(|error| Error::Host {
            call: "statx",
            object: name.clone(),
            errno: error.into(),
        })?;
        if !facts.is_file() {
            return Err(Error::NotFile { object: name });
        }
        Ok(Self::from_regular(file, name, facts.len()))
    }

    /// Does the same as [`MappedFile::open`] for a caller that has read from the file's metadata
    /// that it is a regular file of `bytes`: saves the query, a system call.
    pub fn from_regular(file: File, name: impl Into<Arc<str>>, bytes: u64) -> Self {
        let (map, uncountable) = (OnceLock::new(), AtomicBool::new(false));
        Self { file, name: name.into(), bytes, map, uncountable }
    }

    /// Returns the file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns its name in log lines.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its size in bytes at opening.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Maps the file now rather than at the first send that needs it. Costs address space for the
    /// whole file and, as pages are used, their page tables.
    pub fn map(&self) -> Result<(), Error> {
        self.mapped().map(|_| ()).map_err(|errno| Error::Host {
            call: "mmap",
            object: self.name.clone(),
            errno,
        })
    }

    /// Returns the map, made on first use; a refusal is kept as well.
    pub(crate) fn mapped(&self) -> Result<&FileMap, Errno> {
        let made = self.map.get_or_init(|| FileMap::new(&self.file, self.bytes));
        made.as_ref().map_err(|errno| *errno)
    }

    /// Returns the present size, by one call, which is counted.
    pub(crate) fn size_now(&self, stats: &mut SendStats) -> Result<u64, Errno> {
        sys::size_now(&self.file, stats)
    }

    /// Waits until `range` is in the page cache. The existing part is read even when the file ends
    /// before the range does, which is then [`SendError::Shrunk`].
    pub fn prefetch(&self, range: Range<u64>) -> Result<(), SendError> {
        let is_in_cache = self.is_in_cache(range.clone());
        self.prefetch_unless(range, is_in_cache)
    }

    /// Does the same as [`MappedFile::prefetch`] for a caller that has just called
    /// [`MappedFile::is_in_cache`]: saves the second query, a system call.
    pub fn prefetch_unless(&self, range: Range<u64>, is_in_cache: bool) -> Result<(), SendError> {
        let size = self.size_now(&mut SendStats::default()).map_err(|e| self.host("statx", e))?;
        let there = range.start..range.end.min(size);
        if !there.is_empty() {
            if !is_in_cache {
                read_ahead(&self.file, there.clone());
            }
            match self.populate(there.clone()) {
                Ok(()) => {}
                // The page disappeared between the two calls, or cannot be read.
                Err(errno) if errno.code() == libc::EFAULT => {
                    let size = self.size_now(&mut SendStats::default());
                    match size.map_err(|e| self.host("statx", e))? {
                        size if size < there.end => return Err(SendError::Shrunk { at: size }),
                        _ => return Err(self.host("madvise MADV_POPULATE_READ", errno)),
                    }
                }
                Err(_) => self.read(there)?,
            }
        }
        if range.end > size { Err(SendError::Shrunk { at: size }) } else { Ok(()) }
    }

    /// Populates the map, so that no byte is copied.
    fn populate(&self, range: Range<u64>) -> Result<(), Errno> {
        // A file that grew is longer than its map.
        if range.end > self.bytes {
            return Err(Errno::new(libc::EINVAL));
        }
        loop {
            match self.mapped()?.populate(range.clone()) {
                Err(errno) if errno.code() == libc::EINTR => {}
                done => return done,
            }
        }
    }

    /// Reads the range, for kernels before 5.14 and files that cannot be mapped: copies every byte.
    fn read(&self, range: Range<u64>) -> Result<(), SendError> {
        let mut buffer = vec![0; READ_BYTES];
        let mut offset = range.start;
        while offset < range.end {
            let wanted = (range.end - offset).min(READ_BYTES as u64) as usize;
            match sys::read_at(&self.file, &mut buffer[..wanted], offset, &mut SendStats::default())
            {
                Ok(0) => return Err(SendError::Shrunk { at: offset }),
                Ok(bytes) => offset += bytes as u64,
                Err(errno) if errno.code() == libc::EINTR => {}
                Err(errno) => return Err(self.host("pread", errno)),
            }
        }
        Ok(())
    }

    /// True when `range` is probably in the page cache; bytes beyond the file's end need no wait.
    /// Costs two calls: the kernel counts the pages that are cached or being read, and the last
    /// byte, which arrives last, is probed.
    ///
    /// Where the kernel does not count them (before Linux 6.5, or for a file that this process
    /// neither owns nor may write) the first byte is probed, the last and one every 64 KiB between,
    /// a call each: a smaller hole goes undetected. On a file system without `RWF_NOWAIT` (tmpfs,
    /// some network ones) the answer is always no. The kernel may read a missing page ahead because
    /// of the probe.
    pub fn is_in_cache(&self, range: Range<u64>) -> bool {
        if range.is_empty() {
            return true;
        }
        match self.count_cached(range.clone()) {
            Some(all) => all && sys::is_cached(&self.file, range.end - 1),
            None => self.is_sampled(range),
        }
    }

    /// True when all pages of `range` are in the page cache or being read into it; `None` when the
    /// kernel does not count them.
    fn count_cached(&self, range: Range<u64>) -> Option<bool> {
        if self.uncountable.load(Ordering::Relaxed) {
            return None;
        }
        let cached_up_to = |end| {
            let there = range.start..range.end.min(end);
            if there.is_empty() {
                return Ok(true);
            }
            let page_bytes = sys::page_bytes();
            let pages = there.end.div_ceil(page_bytes) - there.start / page_bytes;
            sys::cached_pages(&self.file, there).map(|cached| cached >= pages)
        };
        let mut cached = cached_up_to(self.bytes);
        if cached == Ok(false) {
            // The file may have become shorter.
            let size = self.size_now(&mut SendStats::default()).unwrap_or(self.bytes);
            if size < self.bytes {
                cached = cached_up_to(size);
            }
        }
        self.uncountable.fetch_or(cached.is_err(), Ordering::Relaxed);
        cached.ok()
    }

    fn is_sampled(&self, range: Range<u64>) -> bool {
        let step = PROBE_STEP_BYTES as usize;
        range.clone().step_by(step).all(|offset| sys::is_cached(&self.file, offset))
            && sys::is_cached(&self.file, range.end - 1)
    }

    /// Returns the error for a failed call on this file.
    pub(crate) fn host(&self, call: &'static str, errno: Errno) -> SendError {
        SendError::Host { call, object: self.name.clone(), errno }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn source(bytes: usize) -> MappedFile {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![5; bytes], 0).unwrap();
        MappedFile::open(file, "test.ts").unwrap()
    }

    #[test]
    fn a_folder_is_refused() {
        let refusal = MappedFile::open(File::open("/").unwrap(), "/").unwrap_err();
        assert_eq!(refusal.to_string(), "opening / to send from: not a regular file");
    }

    #[test]
    fn residence_of_a_file_that_shrinks_and_grows() {
        let source = source(300_000);
        assert_eq!(source.bytes(), 300_000);
        assert_eq!(source.prefetch(0..300_000), Ok(()));
        assert_eq!(source.prefetch(5..5), Ok(()));
        for is_in_cache in [false, true] {
            assert_eq!(source.prefetch_unless(0..300_000, is_in_cache), Ok(()));
            let shrunk = source.prefetch_unless(0..300_001, is_in_cache);
            assert_eq!(shrunk, Err(SendError::Shrunk { at: 300_000 }));
        }
        assert_eq!(source.prefetch(0..300_001), Err(SendError::Shrunk { at: 300_000 }));
        source.file().set_len(100_001).unwrap();
        assert_eq!(source.prefetch(0..100_001), Ok(()));
        assert_eq!(source.prefetch(0..200_000), Err(SendError::Shrunk { at: 100_001 }));
        assert_eq!(source.prefetch(200_000..250_000), Err(SendError::Shrunk { at: 100_001 }));
        source.file().set_len(400_000).unwrap();
        assert_eq!(source.prefetch(0..400_000), Ok(()));
    }

    #[test]
    fn reading_makes_resident_where_populating_cannot() {
        let source = source(300_000);
        assert_eq!(source.read(1..300_000), Ok(()));
        assert_eq!(source.read(1..300_001), Err(SendError::Shrunk { at: 300_000 }));
    }

    #[test]
    fn an_empty_file_has_nothing_to_wait_for() {
        let source = source(0);
        assert_eq!(source.map(), Ok(()));
        assert_eq!(source.prefetch(0..0), Ok(()));
        assert_eq!(source.prefetch(0..1), Err(SendError::Shrunk { at: 0 }));
        assert!(source.is_in_cache(0..0));
    }

    #[test]
    fn a_file_dropped_from_the_cache_is_missed_and_brought_back() {
        const BYTES: usize = 4 << 20;
        let source = source(BYTES);
        if !source.is_in_cache(0..1) {
            eprintln!("skip: the temporary folder's file system does not know RWF_NOWAIT");
            return;
        }
        source.file().sync_all().unwrap();
        let drop_all = rustix::fs::Advice::DontNeed;
        rustix::fs::fadvise(source.file(), 0, None, drop_all).unwrap();
        assert!(!source.is_in_cache(0..BYTES as u64));
        assert_eq!(source.prefetch(0..BYTES as u64), Ok(()));
        assert!(source.is_in_cache(0..BYTES as u64));
        assert!(
            source.is_in_cache(BYTES as u64 - 1..BYTES as u64 + 1),
            "nothing to wait for there"
        );
        assert!(source.is_sampled(0..BYTES as u64));
        source.file().set_len(5000).unwrap();
        assert!(source.is_in_cache(0..BYTES as u64), "nor there");
        assert!(source.is_in_cache(1 << 20..BYTES as u64), "nor there");
    }

    #[test]
    fn a_small_hole_is_seen_where_pages_are_counted() {
        const PAGE_BYTES: u64 = 4096;
        const BYTES: u64 = 1 << 20;
        let source = source(BYTES as usize);
        if source.count_cached(0..BYTES).is_none() || !source.is_in_cache(0..1) {
            eprintln!("skip: the kernel does not count this file's pages");
            return;
        }
        // All pages except the 21st are read without reading ahead.
        source.file().sync_all().unwrap();
        for advice in [rustix::fs::Advice::DontNeed, rustix::fs::Advice::Random] {
            rustix::fs::fadvise(source.file(), 0, None, advice).unwrap();
        }
        let hole = 20 * PAGE_BYTES..21 * PAGE_BYTES;
        for page in (0..BYTES).step_by(PAGE_BYTES as usize).filter(|page| *page != hole.start) {
            source.file().read_exact_at(&mut [0; PAGE_BYTES as usize], page).unwrap();
        }
        if source.count_cached(hole.clone()) == Some(true) {
            eprintln!("skip: the file system keeps larger pieces than a page");
            return;
        }
        assert!(!source.is_in_cache(0..BYTES));
        assert!(source.is_in_cache(0..hole.start));
        assert!(source.is_in_cache(hole.end..BYTES));
        assert_eq!(source.prefetch(0..BYTES), Ok(()));
        assert!(source.is_in_cache(0..BYTES));
    }
}
