// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mapped file, one `send` a step.
//!
//! `mmap_send` of table 1-A of the data-paths paper (n copies, 1 mmap and n sends): against
//! `read_write` it saves the read and its copy, and bytes that the socket does not accept cost
//! nothing. Costs one copy per byte and one call per step of at most 1 MiB or the room in the
//! socket's buffer.
//!
//! When the file has been cut and the cut lies in a step's last page, the step ends with that
//! page's zeroes, up to the page's end: the call does not report it. The next step returns
//! [`SendError::Shrunk`].
//!
//! Sources: `mmap(2)`, `send(2)` (`MSG_NOSIGNAL`).
//!
//! Does not read mapped bytes; the kernel answers `EFAULT` for a page that was cut off.

use std::os::fd::BorrowedFd;

use crate::error::SendError;
use crate::mapped_file::MappedFile;
use crate::send_stats::SendStats;
use crate::spec::{Open, Spec, SystemCalls, Transport};
use crate::sys;
use crate::tcp::{DownloadPath, send_mapped};

pub(crate) static SPEC: Spec = Spec {
    name: "mmap_send",
    transport: Transport::Tcp,
    summary: "mapped file, one send a step",
    copies_per_byte: 1,
    header_copies: 0,
    system_calls: SystemCalls::PerStep(1),
    sources: &["mmap(2)", "send(2)"],
    probe: |_| Ok(()),
    open: Open::Download(|| Ok(Box::new(MmapSend))),
};

struct MmapSend;

impl DownloadPath for MmapSend {
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
            sys::send_mapped(socket, map, offset, bytes, stats)
        })
    }
}
