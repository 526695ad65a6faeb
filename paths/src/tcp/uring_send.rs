// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mapped file, sent by `io_uring`.
//!
//! Does the same as `mmap_send` by another interface of the kernel. Costs one copy per byte and one
//! call per step of at most 1 MiB or the room in the socket's buffer. For one connection a ring is
//! a longer way to `send`; the path exists for that comparison.
//!
//! Sources: `io_uring_enter(2)` (`IORING_OP_SEND`), `mmap(2)`.
//!
//! Does not wait; sends use `MSG_DONTWAIT`, for which the kernel neither arms a poll nor calls a
//! worker.

use std::os::fd::BorrowedFd;

use crate::error::{Error, SendError};
use crate::mapped_file::MappedFile;
use crate::send_stats::SendStats;
use crate::spec::{Open, Spec, SystemCalls, Transport};
use crate::sys::Ring;
use crate::tcp::{DownloadPath, send_mapped};

pub(crate) static SPEC: Spec = Spec {
    name: "uring_send",
    transport: Transport::Tcp,
    summary: "mapped file, sent by a ring",
    copies_per_byte: 1,
    header_copies: 0,
    system_calls: SystemCalls::PerStep(1),
    sources: &["io_uring_enter(2) IORING_OP_SEND", "mmap(2)"],
    probe: |host| host.needs_io_uring(),
    open: Open::Download(|| Ok(Box::new(UringSend { ring: Ring::new().map_err(Error::ring)? }))),
};

struct UringSend {
    ring: Ring,
}

impl DownloadPath for UringSend {
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
        send_mapped(source, offset, bytes, stats, |map, bytes, stats| {
            let mut queue = self.ring.queue();
            queue.gather().mapped(map, offset, bytes);
            let send = queue.send(socket);
            queue.submit(stats)?;
            self.ring.result(send).map(|sent| sent as usize)
        })
    }
}
