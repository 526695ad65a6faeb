// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page cache to socket inside the kernel, no user buffer.
//!
//! Costs no copy and one call per step of at most 4 MiB or the room in the socket's buffer. The
//! socket refers to the page cache until the peer has acknowledged: a file overwritten in place
//! meanwhile is sent, and retransmitted, with its new content.
//!
//! A peer that has closed causes `EPIPE` and SIGPIPE; `sendfile` has no flag against the signal.
//! Rust's runtime ignores SIGPIPE from the start, so a program with a Rust `main` gets the error
//! alone.
//!
//! Sources: `sendfile(2)`, `std::process` on SIGPIPE (rust-lang/rust#62569).
//!
//! Does not wait for the socket, which has to be non-blocking itself; there is no flag for that
//! either.

use std::os::fd::BorrowedFd;

use crate::error::SendError;
use crate::mapped_file::MappedFile;
use crate::send_stats::SendStats;
use crate::spec::{Open, Spec, SystemCalls, Transport};
use crate::sys;
use crate::tcp::{DownloadPath, ended, refusal};

pub(crate) static SPEC: Spec = Spec {
    name: "sendfile",
    transport: Transport::Tcp,
    summary: "page cache to socket inside the kernel; no user buffer",
    copies_per_byte: 0,
    header_copies: 0,
    system_calls: SystemCalls::PerStep(1),
    sources: &["sendfile(2)"],
    probe: |host| host.needs_kernel(2, 6),
    open: Open::Download(|| Ok(Box::new(Sendfile))),
};

/// Longer than in paths that copy: these bytes need as much time as a quarter of them there.
const STEP_BYTES_MAX: u64 = 4 << 20;

struct Sendfile;

impl DownloadPath for Sendfile {
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
        let bytes = bytes.min(STEP_BYTES_MAX);
        loop {
            match sys::sendfile(socket, source.file(), offset, bytes, stats) {
                Ok(0) => return Err(ended(source, offset, stats)),
                Ok(sent) => {
                    stats.bytes += sent as u64;
                    return Ok(sent as u64);
                }
                Err(errno) if errno.code() == libc::EINTR => {}
                Err(errno) => return Err(refusal("sendfile", errno, source, stats)),
            }
        }
    }
}
