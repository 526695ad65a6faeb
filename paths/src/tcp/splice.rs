// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page cache into a pipe, the pipe into the socket.
//!
//! The steps of `sendfile`, with a pipe of this process instead of the kernel's own. Costs no copy
//! and two calls per step of at most the pipe's size, 256 KiB (16 pages for a user who has many
//! pipes open).
//!
//! The pipe serves all connections of a thread in turn, so nothing stays in it: bytes that a socket
//! refuses are discarded, at one call more, and read again when its connection is served next.
//! Keeping them would save that cost but tie the pipe to one connection.
//!
//! A peer that has closed causes `EPIPE` and SIGPIPE, as with `sendfile`; Rust's runtime ignores
//! the signal.
//!
//! Sources: `splice(2)`, `pipe(7)`; Linux 6.18 `fs/splice.c` (`splice_to_socket`).
//!
//! Does not wait for the socket, which has to be non-blocking itself.

use std::os::fd::BorrowedFd;

use crate::error::{Errno, SendError};
use crate::mapped_file::MappedFile;
use crate::send_stats::SendStats;
use crate::spec::{Open, Spec, SystemCalls, Transport};
use crate::sys::{Pipe, page_bytes};
use crate::tcp::{DownloadPath, ended, refusal};

pub(crate) static SPEC: Spec = Spec {
    name: "splice",
    transport: Transport::Tcp,
    summary: "page cache to pipe to socket; no user buffer",
    copies_per_byte: 0,
    header_copies: 0,
    system_calls: SystemCalls::PerStep(2),
    sources: &["splice(2)", "linux 6.18 fs/splice.c"],
    probe: |host| host.needs_kernel(2, 6),
    open: Open::Download(|| {
        let pipe = Pipe::new(STEP_BYTES_MAX / page_bytes())?;
        Ok(Box::new(Splice { pipe }))
    }),
};

/// Bytes of a step.
const STEP_BYTES_MAX: u64 = 256 * 1024;

struct Splice {
    pipe: Pipe,
}

impl Splice {
    /// Makes a step; bytes that the socket refuses stay in the pipe.
    fn step(
        &mut self,
        source: &MappedFile,
        offset: u64,
        bytes: u64,
        socket: BorrowedFd<'_>,
        stats: &mut SendStats,
    ) -> Result<u64, SendError> {
        let refused = |errno, stats: &mut SendStats| refusal("splice", errno, source, stats);
        let filled = loop {
            match self.pipe.fill(source.file(), offset, bytes, stats) {
                Ok(0) => return Err(ended(source, offset, stats)),
                Ok(filled) => break filled,
                Err(errno) if errno.code() == libc::EINTR => {}
                // The pipe is empty, so the cause is not a lack of space.
                Err(errno) if errno.code() == libc::EAGAIN => {
                    return Err(source.host("splice", errno));
                }
                Err(errno) => return Err(refused(errno, stats)),
            }
        };
        loop {
            match self.pipe.send(socket, filled, stats) {
                // The file was cut after the page entered the pipe.
                Ok(0) => return Err(ended(source, offset, stats)),
                Ok(sent) => return Ok(sent),
                Err(errno) if errno.code() == libc::EINTR => {}
                Err(errno) => return Err(refused(errno, stats)),
            }
        }
    }
}

impl DownloadPath for Splice {
    fn send(
        &mut self,
        source: &MappedFile,
        offset: u64,
        bytes: u64,
        socket: BorrowedFd<'_>,
        stats: &mut SendStats,
    ) -> Result<u64, SendError> {
        if bytes == 0 {
            return Ok(0);
        }
        let no_pipe = |errno: Errno| source.host("pipe2", errno);
        // An earlier step may have left bytes in a pipe that could neither be emptied nor replaced.
        self.pipe.clear(stats).map_err(no_pipe)?;
        let sent = self.step(source, offset, bytes.min(STEP_BYTES_MAX), socket, stats);
        stats.bytes += *sent.as_ref().unwrap_or(&0);
        // The bytes were sent; the next step reports a lost pipe.
        let _ = self.pipe.clear(stats);
        sent
    }
}
