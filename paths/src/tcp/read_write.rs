// SPDX-License-Identifier: MIT OR Apache-2.0
//! Read into a buffer, send the buffer. The reference for downloads.
//!
//! The method of a plain program. Costs two copies per byte and two calls per step of at most 128
//! KiB (15 calls per megabyte), more when the socket accepts part of a step: the rest is read
//! again.
//!
//! Sources: `pread(2)`, `send(2)` (`MSG_NOSIGNAL`).
//!
//! Does not wait; sends use `MSG_DONTWAIT`.

use std::os::fd::BorrowedFd;

use crate::error::SendError;
use crate::mapped_file::MappedFile;
use crate::send_stats::SendStats;
use crate::spec::{Open, Spec, SystemCalls, Transport};
use crate::sys;
use crate::tcp::{DownloadPath, ended, refusal};

pub(crate) static SPEC: Spec = Spec {
    name: "read_write",
    transport: Transport::Tcp,
    summary: "read into a buffer, send the buffer: the reference for downloads",
    copies_per_byte: 2,
    header_copies: 0,
    system_calls: SystemCalls::PerStep(2),
    sources: &["pread(2)", "send(2)"],
    probe: |_| Ok(()),
    open: Open::Download(|| Ok(Box::new(ReadWrite { buffer: vec![0; BUFFER_BYTES].into() }))),
};

/// Bytes of a step: larger ones exceed the second-level cache between read and send.
const BUFFER_BYTES: usize = 128 * 1024;

struct ReadWrite {
    buffer: Box<[u8]>,
}

impl DownloadPath for ReadWrite {
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
        let wanted = bytes.min(BUFFER_BYTES as u64) as usize;
        let read = loop {
            match sys::read_at(source.file(), &mut self.buffer[..wanted], offset, stats) {
                Ok(0) => return Err(ended(source, offset, stats)),
                Ok(read) => break read,
                Err(errno) if errno.code() == libc::EINTR => {}
                Err(errno) => return Err(refusal("pread", errno, source, stats)),
            }
        };
        let sent = loop {
            match sys::send(socket, &self.buffer[..read], stats) {
                Ok(sent) => break sent as u64,
                Err(errno) if errno.code() == libc::EINTR => {}
                Err(errno) => return Err(refusal("send", errno, source, stats)),
            }
        };
        stats.bytes += sent;
        Ok(sent)
    }
}
