// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths for downloads: ranges of a file to a TCP socket, one step at a time, one file per path.
//!
//! A step makes its calls once and does not wait for the peer, so the caller decides the order of
//! the sockets. It may wait for the *file*: call [`crate::MappedFile::is_in_cache`] first.
//!
//! Shared here: the interpretation of a refusal by a TCP socket.
//!
//! Sources: `sendfile(2)`, `send(2)`, `tcp(7)`.
//!
//! Does not wait until a socket is writable, or keep read bytes for the next step.

pub(crate) mod mmap_send;
pub(crate) mod read_write;
pub(crate) mod sendfile;
pub(crate) mod splice;
pub(crate) mod uring_send;
pub(crate) mod uring_send_zc;
pub(crate) mod vmsplice;
pub(crate) mod zerocopy;

use std::ops::Range;
use std::os::fd::BorrowedFd;

use crate::error::{Errno, SendError};
use crate::mapped_file::MappedFile;
use crate::send_stats::SendStats;
use crate::spec::Spec;
use crate::sys::FileMap;

/// The paths of this folder, the reference first.
pub(crate) const PATHS: &[&Spec] = &[
    &read_write::SPEC,
    &mmap_send::SPEC,
    &sendfile::SPEC,
    &splice::SPEC,
    &vmsplice::SPEC,
    &zerocopy::SPEC,
    &uring_send::SPEC,
    &uring_send_zc::SPEC,
];

/// Largest number of bytes of a step, so that a fast peer does not occupy a thread alone.
pub(crate) const STEP_BYTES_MAX: u64 = 1024 * 1024;

/// One way to send a file's range over TCP; belongs to one thread and serves all its connections.
pub trait DownloadPath: Send {
    /// Sends as much as the socket accepts now of `bytes` bytes from `offset` on; returns the
    /// number of bytes sent, at least one unless `bytes` is 0. The socket is non-blocking.
    ///
    /// [`SendError::Blocked`] means that none was sent; the caller repeats the call when the socket
    /// is writable.
    fn send(
        &mut self,
        source: &MappedFile,
        offset: u64,
        bytes: u64,
        socket: BorrowedFd<'_>,
        stats: &mut SendStats,
    ) -> Result<u64, SendError>;

    /// Does the same for ranges, which leave in the order given, as if they were one: returns the
    /// number of bytes sent of all of them, at least one unless each is empty. Where this is not
    /// implemented, a step sends of the first range only.
    fn send_ranges(
        &mut self,
        source: &MappedFile,
        ranges: &[Range<u64>],
        socket: BorrowedFd<'_>,
        stats: &mut SendStats,
    ) -> Result<u64, SendError> {
        match ranges.iter().find(|range| !range.is_empty()) {
            Some(first) => self.send(source, first.start, first.end - first.start, socket, stats),
            None => Ok(0),
        }
    }
}

/// Interprets the refusal of `call` while sending `source`.
fn refusal(
    call: &'static str,
    errno: Errno,
    source: &MappedFile,
    stats: &mut SendStats,
) -> SendError {
    match errno.code() {
        libc::EAGAIN | libc::ENOBUFS => {
            stats.refused += 1;
            SendError::Blocked
        }
        libc::EPIPE
        | libc::ECONNRESET
        | libc::ECONNABORTED
        | libc::ECONNREFUSED
        | libc::ENOTCONN
        | libc::ESHUTDOWN
        | libc::ETIMEDOUT
        | libc::EHOSTDOWN
        | libc::EHOSTUNREACH
        | libc::ENETDOWN
        | libc::ENETUNREACH => SendError::Gone { errno },
        _ => source.host(call, errno),
    }
}

/// Sends by `send` as much as the socket accepts of the mapped file's `bytes` bytes from `offset`
/// on, one step at most. Where the file has been cut (`EFAULT`) the remaining part is sent, by as
/// many further calls as needed.
fn send_mapped(
    source: &MappedFile,
    offset: u64,
    bytes: u64,
    stats: &mut SendStats,
    mut send: impl FnMut(&FileMap, u64, &mut SendStats) -> Result<usize, Errno>,
) -> Result<u64, SendError> {
    let map = source.mapped().map_err(|errno| source.host("mmap", errno))?;
    let mut bytes = bytes.min(STEP_BYTES_MAX).min(source.bytes().saturating_sub(offset));
    loop {
        if bytes == 0 {
            return Err(ended(source, offset, stats));
        }
        match send(map, bytes, stats) {
            Ok(sent) => {
                stats.bytes += sent as u64;
                return Ok(sent as u64);
            }
            Err(errno) if errno.code() == libc::EINTR => {}
            Err(errno) if errno.code() == libc::EFAULT => match source.size_now(stats) {
                Ok(size) if size < offset.saturating_add(bytes) => {
                    bytes = size.saturating_sub(offset);
                }
                Ok(_) => return Err(source.host("send", errno)),
                Err(errno) => return Err(refusal("statx", errno, source, stats)),
            },
            Err(errno) => return Err(refusal("send", errno, source, stats)),
        }
    }
}

/// Returns the error for a file that ends at byte `at` or before.
fn ended(source: &MappedFile, at: u64, stats: &mut SendStats) -> SendError {
    match source.size_now(stats) {
        Ok(size) => SendError::Shrunk { at: size.min(at) },
        Err(errno) => refusal("statx", errno, source, stats),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_by_kind() {
        let source = MappedFile::open(tempfile::tempfile().unwrap(), "a.mp4").unwrap();
        let mut stats = SendStats::default();
        let mut say = |errno| refusal("send", Errno::new(errno), &source, &mut stats);
        assert_eq!(say(libc::EAGAIN), SendError::Blocked);
        let reset = Errno::new(libc::ECONNRESET);
        assert_eq!(say(libc::ECONNRESET), SendError::Gone { errno: reset });
        assert_eq!(say(libc::EIO).to_string(), "send on a.mp4: EIO");
        assert_eq!(stats, SendStats { refused: 1, ..SendStats::default() });
    }
}
