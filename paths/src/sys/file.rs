// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading a file, asking for its size, and asking whether a page of it is cached.
//!
//! Sources: `pread(2)`, `statx(2)`, `preadv2(2)` (`RWF_NOWAIT`).
//!
//! What it does not do: move the file's own offset; files are shared by threads.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use crate::error::Errno;
use crate::sys::counted;
use crate::tally::Tally;

/// Reads into `buffer` from `offset` on; 0 at the end of the file.
pub(crate) fn read_at(
    file: &File,
    buffer: &mut [u8],
    offset: u64,
    tally: &mut Tally,
) -> Result<usize, Errno> {
    tally.calls += 1;
    let bytes = file.read_at(buffer, offset)?;
    tally.copied_bytes += bytes as u64;
    Ok(bytes)
}

/// The file's size at this moment.
pub(crate) fn size_now(file: &File, tally: &mut Tally) -> Result<u64, Errno> {
    tally.calls += 1;
    Ok(file.metadata()?.len())
}

/// Whether the byte at `offset` can be read without waiting for a device, as far as one can tell:
/// also true past the end, where a read returns at once.
pub(crate) fn is_cached(file: &File, offset: u64) -> bool {
    let Ok(offset) = libc::off_t::try_from(offset) else { return true };
    let mut byte = 0_u8;
    let target = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: `target` names one byte of this frame that outlives the call, and there is one of it.
    let read =
        unsafe { libc::preadv2(file.as_raw_fd(), &raw const target, 1, offset, libc::RWF_NOWAIT) };
    counted(read).is_ok()
}
