// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file as datagrams by the in-kernel engine: `msend`, `kmsend` and `ksendfile`.
//!
//! The three differ in the source of the bytes (file or map) and in the number of packets a call
//! carries. Some datagrams are read and sent instead, at two calls and two copies: a datagram that
//! crosses a page border at an odd byte (reason: [`crate::file_datagrams`]), one longer than the
//! engine accepts, and one of more fragments than the kernel accepts. A call then carries the
//! datagrams before it.
//!
//! When the file has been cut, no datagram after the last whole one leaves; from a map, the page of
//! the cut is sent to its end, see [`crate::MappedFile`].
//!
//! Sources: `kernel/rtp/include/uapi/linux/pagewire_rtp.h`; `mmap(2)`; the data-paths paper,
//! section 3.4 and table 1-A.
//!
//! Does not work without the module `pagewire_rtp`. Does not segment: `sendfile_gso` does, without
//! a module.

use std::os::fd::AsFd;

use crate::batch::Batch;
use crate::destination::Destination;
use crate::error::{Errno, Error, SendError};
use crate::file_datagrams::{CopySender, FileDatagrams, RunRange};
use crate::send_stats::SendStats;
use crate::spec::{Feed, Open, Spec, SystemCalls, Transport, Via};
use crate::stream_path::{PacketsPerCall, SegmentRun, SendFailure, StreamPath, send_runs};
use crate::sys::{
    self, ENGINE_CALL, Engine, EngineHeaders, EngineRequest, PAYLOAD_BYTES_MAX, PayloadSource, Sent,
};

/// `mmap_msend` of table 1-A of the data-paths paper (no copy; 1 mmap and n msend calls):
/// `mmap_send` with references to the pages instead of a copy. Costs no copy and one call per
/// packet.
pub(crate) static MSEND: Spec = Spec {
    name: "msend",
    transport: Transport::Udp,
    summary: "engine: mapped file, one call per packet; no copy",
    copies_per_byte: 0,
    header_copies: 0,
    system_calls: SystemCalls::PerPacket(1),
    sources: &["the study, table 1-A", "kernel/rtp", "mmap(2)"],
    probe: |host| host.needs_engine(),
    open: Open::Stream {
        feed: Feed::Image,
        via: Via::Socket,
        open: || Ok(Box::new(EngineSender::new(true, PacketsPerCall::One)?)),
    },
};

/// `kmsend` of table 1-A of the data-paths paper (no copy; 1 call that combines mmap and msend
/// until the whole file is sent): here a call carries a batch, which may be the file. Costs no copy
/// and one call per batch; each datagram passes the network stack by itself.
pub(crate) static KMSEND: Spec = Spec {
    name: "kmsend",
    transport: Transport::Udp,
    summary: "engine: mapped file, a batch in one call; no copy",
    copies_per_byte: 0,
    header_copies: 0,
    system_calls: SystemCalls::PerBatch(1),
    sources: &["the study, table 1-A", "kernel/rtp", "mmap(2)"],
    probe: |host| host.needs_engine(),
    open: Open::Stream {
        feed: Feed::Image,
        via: Via::Socket,
        open: || Ok(Box::new(EngineSender::new(true, PacketsPerCall::Batch)?)),
    },
};

/// `ksendfile` of table 1-A of the data-paths paper (no copy; 1 call that performs `sendfile` over
/// UDP in the kernel as `sendfile` over TCP does): here a call carries a batch, which may be the
/// file. Costs no copy and one call per batch. Each datagram passes the network stack by itself,
/// which `sendfile_gso` avoids without a module.
pub(crate) static KSENDFILE: Spec = Spec {
    name: "ksendfile",
    transport: Transport::Udp,
    summary: "engine: page cache to socket, a batch in one call; no copy",
    copies_per_byte: 0,
    header_copies: 0,
    system_calls: SystemCalls::PerBatch(1),
    sources: &["the study, table 1-A", "kernel/rtp"],
    probe: |host| host.needs_engine(),
    open: Open::Stream {
        feed: Feed::Image,
        via: Via::Socket,
        open: || Ok(Box::new(EngineSender::new(false, PacketsPerCall::Batch)?)),
    },
};

/// Sends by the engine.
pub(super) struct EngineSender {
    /// True to send by the addresses of a map instead of from the file.
    mapped: bool,
    per_call: PacketsPerCall,
    engine: Engine,
    page_bytes: u64,
    /// Sender of datagrams that the engine does not send.
    copy_sender: CopySender,
}

impl EngineSender {
    pub(super) fn new(mapped: bool, per_call: PacketsPerCall) -> Result<Self, Error> {
        let (engine, page_bytes) = (Engine::new()?, sys::page_bytes());
        Ok(Self { mapped, per_call, engine, page_bytes, copy_sender: CopySender::new() })
    }

    /// Sends `run`, or as many of its packets as a call carries; returns their number.
    fn send_run(
        &mut self,
        batch: &Batch<'_>,
        run: SegmentRun,
        to: &Destination,
        stats: &mut SendStats,
    ) -> Result<u32, SendFailure> {
        let datagrams = FileDatagrams::of(batch);
        let first = datagrams.range(batch, SegmentRun { packets: 1, ..run });
        let packets = taken_together(&datagrams, batch, run, self.page_bytes);
        if packets == 0 {
            return self.copy_sender.send(first, to, stats).map(|()| 1);
        }
        let range = datagrams.range(batch, SegmentRun { packets, ..run });
        let payload = match self.mapped {
            true => PayloadSource::Mapped(range.map()?),
            false => PayloadSource::File(range.source.file()),
        };
        let order = EngineRequest {
            payload,
            offset: range.offset,
            bytes: range.bytes,
            // The value is within PAYLOAD_BYTES_MAX.
            payload_bytes: first.bytes as u16,
            heads: EngineHeaders::None,
            segments: 1,
        };
        match self.engine.send(to.as_fd(), &order, stats) {
            Ok(sent) if is_whole(batch, run, sent) => Ok(sent.packets),
            Ok(sent) => Err(ended(range, sent, stats)),
            Err(errno) if errno.code() == libc::EMSGSIZE => {
                self.copy_sender.send(first, to, stats).map(|()| 1)
            }
            Err(errno) => Err(range.refused(ENGINE_CALL, errno, stats)),
        }
    }
}

/// Returns the number of packets of `run`, from its first on, that the engine accepts in one call.
fn taken_together(
    datagrams: &FileDatagrams<'_>,
    batch: &Batch<'_>,
    run: SegmentRun,
    page_bytes: u64,
) -> u32 {
    let is_for_a_copy = |packet: &u32| {
        let datagram = datagrams.range(batch, SegmentRun { first: *packet, packets: 1 });
        datagram.bytes > PAYLOAD_BYTES_MAX.into() || datagram.crosses_oddly(page_bytes)
    };
    let end = run.first + run.packets;
    (run.first..end).find(is_for_a_copy).unwrap_or(end) - run.first
}

/// True when `sent` is whole packets of `run`.
fn is_whole(batch: &Batch<'_>, run: SegmentRun, sent: Sent) -> bool {
    sent.packets > 0 && sent.bytes == batch.run_bytes(run.first, sent.packets)
}

/// Returns the failure of a call that sent fewer packets than requested: the file has no more whole
/// ones.
fn ended(range: RunRange<'_>, sent: Sent, stats: &mut SendStats) -> SendFailure {
    let at = match range.source.size_now(stats) {
        Ok(at) => at,
        Err(errno) => return SendFailure::Refused { call: "statx", errno },
    };
    // The engine counts a packet in which the file ended.
    stats.packets += u64::from(sent.packets);
    stats.bytes += sent.bytes;
    if at < range.offset.saturating_add(range.bytes) {
        return SendFailure::Cut { at, whole: 0 };
    }
    // The call returned neither bytes nor the end: the file cannot be read this way.
    SendFailure::Refused { call: ENGINE_CALL, errno: Errno::new(libc::EIO) }
}

impl StreamPath for EngineSender {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut Destination,
        stats: &mut SendStats,
    ) -> Result<u32, SendError> {
        send_runs(batch, self.per_call, to, stats, |run, to, stats| {
            self.send_run(batch, run, to, stats)
        })
    }
}
