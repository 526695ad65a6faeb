// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading a file, and queries of its size and its cached pages.
//!
//! Sources: `pread(2)`, `statx(2)`, `preadv2(2)` (`RWF_NOWAIT`), `cachestat(2)` (Linux 6.5); 6.18
//! `mm/filemap.c` (`can_do_cachestat`).
//!
//! Does not move the file's own offset; files are shared by threads.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use crate::error::Errno;
use crate::send_stats::SendStats;
use crate::sys::{counted, last_errno};

/// The number of `cachestat`, the same on all of Rust's machines except Alpha.
const SYS_CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range` of `linux/mman.h`.
#[repr(C)]
struct CachestatRange {
    offset: u64,
    /// Length; 0 extends to the end of the file.
    bytes: u64,
}

/// `struct cachestat`: pages of each kind.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Reads into `buffer` from `offset` on; 0 at the end of the file.
pub(crate) fn read_at(
    file: &File,
    buffer: &mut [u8],
    offset: u64,
    stats: &mut SendStats,
) -> Result<usize, Errno> {
    stats.calls += 1;
    let bytes = file.read_at(buffer, offset)?;
    stats.copied_bytes += bytes as u64;
    Ok(bytes)
}

/// Returns the file's size at this moment.
pub(crate) fn size_now(file: &File, stats: &mut SendStats) -> Result<u64, Errno> {
    stats.calls += 1;
    Ok(file.metadata()?.len())
}

/// True when the byte at `offset` can probably be read without waiting for a device; also true past
/// the end, where a read returns at once.
pub(crate) fn is_cached(file: &File, offset: u64) -> bool {
    let Ok(offset) = libc::off_t::try_from(offset) else { return true };
    let mut byte = 0_u8;
    let target = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: `target` names one byte of this frame that outlives the call, and there is one of it.
    let read =
        unsafe { libc::preadv2(file.as_raw_fd(), &raw const target, 1, offset, libc::RWF_NOWAIT) };
    counted(read).is_ok()
}

/// Starts the kernel's reading of `range`, without waiting. Only a hint.
pub(crate) fn will_need(file: &File, range: Range<u64>) {
    let (Ok(offset), Ok(bytes)) = (range.start.try_into(), (range.end - range.start).try_into())
    else {
        return;
    };
    // SAFETY: the call takes numbers alone, and the descriptor is open while it is borrowed.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), offset, bytes, libc::POSIX_FADV_WILLNEED) };
}

/// Returns the number of cached pages of `range`, which is not empty, including those being read at
/// this moment. `EPERM` for a file that this process neither owns nor may write (from Linux 6.14
/// on, and later versions of the older ones), `ENOSYS` before 6.5.
pub(crate) fn cached_pages(file: &File, range: Range<u64>) -> Result<u64, Errno> {
    let asked = CachestatRange { offset: range.start, bytes: range.end - range.start };
    let mut answer = Cachestat::default();
    // SAFETY: both structures are of the kernel's layout and live; the second alone is written to.
    let done = unsafe {
        let (asked, answer) = (&raw const asked, &raw mut answer);
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), asked, answer, 0)
    };
    if done == 0 { Ok(answer.cached) } else { Err(last_errno()) }
}
