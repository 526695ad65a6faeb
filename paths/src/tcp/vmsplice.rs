// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges of the mapped file into a pipe, the pipe into the socket.
//!
//! The one path that sends many ranges of a file in a step ([`DownloadPath::send_ranges`]): the
//! pictures of an interleaved film are a hundred ranges a segment, which `sendfile` sends by a call
//! each. Costs no copy and two calls a step of at most the pipe's size, 1 MiB, for any number of
//! ranges in it; a range occupies a place in the pipe for each page that it touches. A page of
//! which this process has no page table entry costs a fault, some 64 KiB at a time.
//!
//! It is not opened where the pipe would be shorter than [`STEP_BYTES_MIN`], as for a user who has
//! many pipes (`/proc/sys/fs/pipe-user-pages-soft`): its steps would hold two pages.
//!
//! The pipe serves all connections of a thread in turn, so nothing stays in it: bytes that a socket
//! refuses are discarded, at one call more. A step behind one that was refused is therefore short,
//! and each step that a socket accepts whole makes the next four times as long.
//!
//! When the file has been cut and the cut lies in a step's last page, the step ends with that
//! page's zeroes, as for `mmap_send`. Pages that were in the pipe when the file was cut are sent
//! with their old content.
//!
//! Sources: `vmsplice(2)`, `mmap(2)`, `pipe(7)`; Linux 6.18 `fs/splice.c` (`iter_to_pipe`,
//! `splice_to_socket`).
//!
//! Does not wait for the socket, which has to be non-blocking itself, or gift its pages to the
//! kernel (`SPLICE_F_GIFT`): they are the page cache's.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::slice;

use crate::error::{Errno, Error, SendError};
use crate::mapped_file::MappedFile;
use crate::send_stats::SendStats;
use crate::spec::{Open, Spec, SystemCalls, Transport};
use crate::sys::{Pipe, page_bytes};
use crate::tcp::{DownloadPath, ended, refusal};

pub(crate) static SPEC: Spec = Spec {
    name: "vmsplice",
    transport: Transport::Tcp,
    summary: "mapped file to pipe to socket, many ranges a step; no user buffer",
    copies_per_byte: 0,
    header_copies: 0,
    system_calls: SystemCalls::PerStep(2),
    sources: &["vmsplice(2)", "mmap(2)", "linux 6.18 fs/splice.c"],
    probe: |host| host.needs_kernel(2, 6),
    open: Open::Download(|| {
        let pipe = Pipe::new(STEP_BYTES_MAX / page_bytes())?;
        if pipe.pages() * page_bytes() < STEP_BYTES_MIN {
            let (call, object) = ("fcntl F_SETPIPE_SZ", "a pipe, which is too short".into());
            return Err(Error::Host { call, object, errno: Errno::new(libc::EPERM) });
        }
        Ok(Box::new(Vmsplice { pipe, step_bytes: STEP_BYTES_MAX, step: Vec::new() }))
    }),
};

/// Bytes of a step: the largest pipe of a user without privileges (`/proc/sys/fs/pipe-max-size`).
const STEP_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes of a step behind one that a socket refused in part or whole, as the next is mostly refused
/// too: callers repeat the call until it returns [`SendError::Blocked`].
const STEP_BYTES_MIN: u64 = 64 * 1024;

struct Vmsplice {
    pipe: Pipe,
    /// Bytes that the next step may hold.
    step_bytes: u64,
    /// Ranges of the step: none is empty, and the pipe has room for all.
    step: Vec<Range<u64>>,
}

impl Vmsplice {
    /// Chooses the ranges of the step, within the pipe and the map; returns their bytes.
    fn choose(&mut self, source: &MappedFile, ranges: &[Range<u64>]) -> u64 {
        self.step.clear();
        let page_bytes = page_bytes();
        let (mut pages_left, mut bytes_left) = (self.pipe.pages(), self.step_bytes);
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            let first_page = range.start / page_bytes;
            let end = range
                .end
                .min(source.bytes())
                .min(range.start.saturating_add(bytes_left))
                .min((first_page + pages_left).saturating_mul(page_bytes));
            if end <= range.start {
                break;
            }
            self.step.push(range.start..end);
            bytes_left -= end - range.start;
            pages_left -= end.div_ceil(page_bytes) - first_page;
            if end < range.end {
                break;
            }
        }
        self.step_bytes - bytes_left
    }

    /// Makes a step of `bytes` bytes; those that the socket refuses stay in the pipe.
    fn step(
        &mut self,
        source: &MappedFile,
        bytes: u64,
        socket: BorrowedFd<'_>,
        stats: &mut SendStats,
    ) -> Result<u64, SendError> {
        let map = source.mapped().map_err(|errno| source.host("mmap", errno))?;
        let start = self.step[0].start;
        let filled = loop {
            match self.pipe.fill_mapped(map, &self.step, stats) {
                Ok(filled) if filled == bytes => break filled,
                // A page is gone: the file was cut.
                Ok(filled) => break self.left_of(filled, source, stats)?,
                Err(errno) if errno.code() == libc::EINTR => {}
                Err(errno) if errno.code() == libc::EFAULT => {
                    return match source.size_now(stats) {
                        Ok(size) if size <= start => Err(SendError::Shrunk { at: size }),
                        Ok(_) => Err(source.host("vmsplice", errno)),
                        Err(errno) => Err(refusal("statx", errno, source, stats)),
                    };
                }
                // The pipe is empty, so the cause is not a lack of space.
                Err(errno) => return Err(source.host("vmsplice", errno)),
            }
        };
        loop {
            match self.pipe.send(socket, filled, stats) {
                Ok(sent) => return Ok(sent),
                Err(errno) if errno.code() == libc::EINTR => {}
                Err(errno) => return Err(refusal("splice", errno, source, stats)),
            }
        }
    }

    /// Returns the bytes of the `filled` in the pipe that lie before the file's end.
    fn left_of(
        &self,
        filled: u64,
        source: &MappedFile,
        stats: &mut SendStats,
    ) -> Result<u64, SendError> {
        let size = source.size_now(stats);
        let size = size.map_err(|errno| refusal("statx", errno, source, stats))?;
        let mut left = 0;
        for range in &self.step {
            let there = range.end.min(size).saturating_sub(range.start);
            left += there;
            if there < range.end - range.start {
                break;
            }
        }
        match left.min(filled) {
            0 => Err(ended(source, self.step[0].start, stats)),
            left => Ok(left),
        }
    }
}

impl DownloadPath for Vmsplice {
    fn send(
        &mut self,
        source: &MappedFile,
        offset: u64,
        bytes: u64,
        socket: BorrowedFd<'_>,
        stats: &mut SendStats,
    ) -> Result<u64, SendError> {
        let range = offset..offset.saturating_add(bytes);
        self.send_ranges(source, slice::from_ref(&range), socket, stats)
    }

    fn send_ranges(
        &mut self,
        source: &MappedFile,
        ranges: &[Range<u64>],
        socket: BorrowedFd<'_>,
        stats: &mut SendStats,
    ) -> Result<u64, SendError> {
        let Some(first) = ranges.iter().find(|range| !range.is_empty()) else { return Ok(0) };
        let no_pipe = |errno: Errno| source.host("pipe2", errno);
        // An earlier step may have left bytes in a pipe that could neither be emptied nor replaced.
        self.pipe.clear(stats).map_err(no_pipe)?;
        let bytes = self.choose(source, ranges);
        if bytes == 0 {
            return Err(ended(source, first.start, stats));
        }
        let sent = self.step(source, bytes, socket, stats);
        let sent_bytes = *sent.as_ref().unwrap_or(&0);
        stats.bytes += sent_bytes;
        let next = if sent_bytes == bytes { 4 * self.step_bytes } else { STEP_BYTES_MIN };
        self.step_bytes = next.min(STEP_BYTES_MAX);
        // The bytes were sent; the next step reports a lost pipe.
        let _ = self.pipe.clear(stats);
        sent
    }
}
