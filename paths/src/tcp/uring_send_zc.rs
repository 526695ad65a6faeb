// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file read into a registered buffer and sent from there without a copy, in one submission to
//! `io_uring`.
//!
//! A read of at most 64 KiB is linked to the send. Costs one copy per byte, the read, and one call
//! per step; more when the socket accepts part of a step: the rest is read again.
//!
//! A buffer is in use until the peer has acknowledged its bytes, so a slow peer, or a fast one far
//! away, holds as many as fit its window. When all but one are held, steps are copied from the last
//! (two copies per byte); both kinds of copies are counted, and so are those of the kernel itself:
//! on loopback everything.
//!
//! Sources: `io_uring_enter(2)` (`IORING_OP_SEND_ZC`, Linux 6.0; `IORING_OP_READ_FIXED`),
//! `io_uring_register(2)` (`IORING_REGISTER_BUFFERS`).
//!
//! Does not wait for the socket (`MSG_DONTWAIT`) or for acknowledgements.

use std::os::fd::BorrowedFd;

use crate::error::{Error, SendError};
use crate::mapped_file::MappedFile;
use crate::send_stats::SendStats;
use crate::spec::{Open, Spec, SystemCalls, Transport};
use crate::sys::Ring;
use crate::tcp::{DownloadPath, ended, refusal};

pub(crate) static SPEC: Spec = Spec {
    name: "uring_send_zc",
    transport: Transport::Tcp,
    summary: "read into a registered buffer, which the socket refers to until acknowledged",
    copies_per_byte: 1,
    header_copies: 0,
    system_calls: SystemCalls::PerStep(1),
    sources: &["io_uring_enter(2) IORING_OP_SEND_ZC", "io_uring_register(2)"],
    probe: |host| host.needs_io_uring_zero_copy(),
    open: Open::Download(|| {
        let mut ring = Ring::with_pool(BUFFERS, BUFFER_BYTES).map_err(Error::ring)?;
        ring.register().map_err(Error::registered)?;
        Ok(Box::new(UringSendZc { ring }))
    }),
};

/// Bytes of a step.
const BUFFER_BYTES: usize = 64 * 1024;

/// 1 MiB in flight, and one to copy from.
const BUFFERS: u16 = 17;

struct UringSendZc {
    ring: Ring,
}

impl DownloadPath for UringSendZc {
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
        let mut wanted = bytes.min(BUFFER_BYTES as u64) as u32;
        loop {
            let mut queue = self.ring.queue();
            let referred = if queue.can_fly() { queue.take(1) } else { None };
            let zero_copy = referred.is_some();
            let buffer = referred.or_else(|| queue.take(0)).expect("one buffer is never held");
            let read = queue.read(source.file(), offset, buffer, (0, wanted));
            queue.link(read);
            let send = queue.send_pooled(socket, buffer, (0, wanted), zero_copy);
            queue.submit(stats).map_err(|errno| source.host("io_uring_enter", errno))?;
            match self.ring.result(read) {
                Ok(0) => return Err(ended(source, offset, stats)),
                // The end of the file, usually: the available bytes are sent in a step of their
                // own.
                Ok(read) if read < wanted => {
                    wanted = read;
                    continue;
                }
                Ok(_) => {}
                Err(errno) if errno.code() == libc::EINTR => continue,
                Err(errno) => return Err(refusal("io_uring read", errno, source, stats)),
            }
            match self.ring.result(send) {
                Ok(sent) => {
                    stats.bytes += u64::from(sent);
                    return Ok(sent.into());
                }
                Err(errno) if errno.code() == libc::EINTR => {}
                Err(errno) => return Err(refusal("io_uring send_zc", errno, source, stats)),
            }
        }
    }
}
