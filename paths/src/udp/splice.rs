// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page cache into a pipe, the pipe into the socket, a run at a time.
//!
//! The steps of `sendfile`, with a pipe of this process instead of the kernel's own: it shows the
//! cost of that hidden pipe and of a second system call. Costs no copy and two calls per run, which
//! the kernel cuts into datagrams.
//!
//! A run stays whole because it touches no more pages than the pipe has room for (16, as
//! `splice_to_socket` hands on no more at once), so the socket gets all of it in one message. When
//! the file ends within a run, the pipe is emptied and the packets before the end are sent as a run
//! of their own, so no short datagram leaves. After a refusal the pipe is emptied too, so that no
//! byte reaches the next destination. A lone datagram that crosses a page border at an odd byte is
//! read and sent (reason: [`crate::file_datagrams`]), as is one that exceeds the pipe.
//!
//! Sources: `splice(2)`, `udp(7)` (`UDP_SEGMENT`); Linux 6.18 `fs/splice.c` (`splice_to_socket`).
//!
//! Does not run on kernels before 6.5, where each page went to the socket alone.

use std::os::fd::AsFd;

use crate::batch::Batch;
use crate::destination::Destination;
use crate::error::{Errno, Error, SendError};
use crate::file_datagrams::{CopySender, FileDatagrams, PIPE_PAGES, RunRange};
use crate::send_stats::SendStats;
use crate::spec::{Feed, Open, Spec, SystemCalls, Transport, Via};
use crate::stream_path::{PacketsPerCall, SegmentRun, SendFailure, StreamPath, send_runs};
use crate::sys::{self, Pipe};

pub(crate) static SPEC: Spec = Spec {
    name: "splice",
    transport: Transport::Udp,
    summary: "page cache to pipe to socket, a run that the kernel cuts into datagrams; no copy",
    copies_per_byte: 0,
    header_copies: 0,
    system_calls: SystemCalls::PerRun(2),
    sources: &["splice(2)", "udp(7) UDP_SEGMENT", "linux 6.18 fs/splice.c"],
    probe: |host| host.needs_kernel(6, 5),
    open: Open::Stream {
        feed: Feed::Image,
        via: Via::Socket,
        open: || Ok(Box::new(Splice::new()?)),
    },
};

struct Splice {
    page_bytes: u64,
    pipe: Pipe,
    copy_sender: CopySender,
}

impl Splice {
    fn new() -> Result<Self, Error> {
        let (pipe, page_bytes) = (Pipe::new(PIPE_PAGES)?, sys::page_bytes());
        Ok(Self { page_bytes, pipe, copy_sender: CopySender::new() })
    }

    /// Sends the range through the pipe, or nothing of it and leaves the pipe empty.
    fn send(
        &mut self,
        range: RunRange<'_>,
        to: &Destination,
        stats: &mut SendStats,
    ) -> Result<(), SendFailure> {
        let piped = self.pipe_through(range, to, stats);
        if piped.is_err() {
            let cleared = self.pipe.clear(stats);
            cleared.map_err(|errno| SendFailure::Refused { call: "pipe2", errno })?;
        }
        piped
    }

    fn pipe_through(
        &mut self,
        range: RunRange<'_>,
        to: &Destination,
        stats: &mut SendStats,
    ) -> Result<(), SendFailure> {
        let refused = |errno| SendFailure::Refused { call: "splice", errno };
        // An earlier run may have left bytes: its pipe could neither be emptied nor replaced, for
        // lack of descriptors.
        self.pipe.clear(stats).map_err(|errno| SendFailure::Refused { call: "pipe2", errno })?;
        let mut filled = 0;
        while filled < range.bytes {
            let (offset, left) = (range.offset.saturating_add(filled), range.bytes - filled);
            match self.pipe.fill(range.source.file(), offset, left, stats) {
                Ok(0) => return Err(self.ended(range, stats)),
                Ok(bytes) => filled += bytes,
                Err(errno) if errno.code() == libc::EINTR => {}
                // The file system fills less than a page at a time.
                Err(errno) if errno.code() == libc::EAGAIN => return Err(SendFailure::InPieces),
                Err(errno) => return Err(refused(errno)),
            }
        }
        match self.pipe.send(to.as_fd(), range.bytes, stats) {
            Ok(sent) if sent == range.bytes => Ok(()),
            Ok(_) => {
                sys::discard_corked(to.as_fd(), stats);
                Err(SendFailure::InPieces)
            }
            Err(errno) => Err(refused(errno)),
        }
    }

    /// Returns the failure for a file that has ended.
    fn ended(&self, range: RunRange<'_>, stats: &mut SendStats) -> SendFailure {
        match range.source.size_now(stats) {
            Ok(at) if at < range.offset.saturating_add(range.bytes) => range.cut(at),
            Ok(_) => SendFailure::Refused { call: "splice", errno: Errno::new(libc::EIO) },
            Err(errno) => SendFailure::Refused { call: "statx", errno },
        }
    }
}

impl StreamPath for Splice {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut Destination,
        stats: &mut SendStats,
    ) -> Result<u32, SendError> {
        let datagrams = FileDatagrams::of(batch);
        send_runs(batch, PacketsPerCall::Run, to, stats, |run, to, stats| {
            let pages = self.pipe.pages().min(PIPE_PAGES);
            let fit = datagrams.range(batch, run).packets_per_step(pages, self.page_bytes);
            let packets = run.packets.min(fit);
            let range = datagrams.range(batch, SegmentRun { packets, ..run });
            let alone = packets == 1;
            let too_long = range.pages(self.page_bytes) > pages;
            if alone && (too_long || range.crosses_oddly(self.page_bytes)) {
                return self.copy_sender.send(range, to, stats).map(|()| 1);
            }
            match self.send(range, to, stats) {
                Err(SendFailure::InPieces) if alone => {
                    self.copy_sender.send(range, to, stats).map(|()| 1)
                }
                sent => sent.map(|()| packets),
            }
        })
    }
}
