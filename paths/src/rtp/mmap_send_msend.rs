// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cork, send the header, the engine's call with the address of the payload, uncork.
//!
//! `mmap_send_msend` of table 1-C of the data-paths paper (n copies, of the header; 1 mmap, n cork,
//! n send, n msend and n uncork calls): `mmap_send_rtp` without the copy of the payload. Costs one
//! copy of the header and four calls per packet; a payload in several pieces needs a call for each.
//!
//! Copied packets, and the handling of the cork: [`crate::rtp::corked`]. A packet that the engine
//! refuses for its length or its fragments is copied as well.
//!
//! Sources: the data-paths paper, section 4; `udp(7)` (`UDP_CORK`), `mmap(2)`;
//! `kernel/rtp/include/uapi/linux/pagewire_rtp.h`.
//!
//! Does not work without the module `pagewire_rtp`. Does not report the fate of the datagram once
//! the cork is removed, and does not read mapped bytes ([`crate::MappedFile`]).

use std::os::fd::AsFd;

use crate::batch::{Batch, Cursor, Piece};
use crate::destination::Destination;
use crate::error::{Errno, Error, SendError};
use crate::file_datagrams::crosses_oddly;
use crate::rtp::corked::{corked, is_for_a_copy, send_head};
use crate::rtp::gathered::GatheredPackets;
use crate::rtp::payload_buffer::PayloadBuffer;
use crate::send_stats::SendStats;
use crate::spec::{Feed, Open, Spec, SystemCalls, Transport, Via};
use crate::stream_path::{PacketsPerCall, SegmentRun, SendFailure, StreamPath, send_runs};
use crate::sys::{
    self, ENGINE_CALL, Engine, EngineHeaders, EngineRequest, FileMap, PAYLOAD_BYTES_MAX,
    PayloadSource,
};

pub(crate) static SPEC: Spec = Spec {
    name: "mmap_send_msend",
    transport: Transport::Rtp,
    summary: "engine: cork, send header, mapped payload, uncork per packet; payload not copied",
    copies_per_byte: 0,
    header_copies: 1,
    system_calls: SystemCalls::PerPacket(4),
    sources: &["the study, table 1-C", "kernel/rtp", "udp(7) UDP_CORK", "mmap(2)"],
    probe: |host| host.needs_engine(),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Socket,
        open: || Ok(Box::new(MmapSendMsend::new()?)),
    },
};

struct MmapSendMsend {
    engine: Engine,
    page_bytes: u64,
    /// Buffer for packets that have to be copied.
    reader: PayloadBuffer,
}

impl MmapSendMsend {
    fn new() -> Result<Self, Error> {
        let (engine, page_bytes) = (Engine::new()?, sys::page_bytes());
        Ok(Self { engine, page_bytes, reader: PayloadBuffer::new() })
    }

    /// Sends the packet of `run` without copying its payload; returns the position of the payload
    /// after it. [`SendFailure::InPieces`] means that it has to be sent by a copy.
    fn send_packet<'a>(
        &self,
        packets: &GatheredPackets<'a>,
        map: &FileMap,
        (run, start): (SegmentRun, Cursor<'a>),
        to: &Destination,
        stats: &mut SendStats,
    ) -> Result<Cursor<'a>, SendFailure> {
        let (mut cursor, mut fit) = (start, true);
        packets.take_mapped(map, &mut cursor, (run.first, 0), |Piece { offset, bytes }| {
            fit = fit && !crosses_oddly(offset, bytes, self.page_bytes);
            fit = fit && bytes <= PAYLOAD_BYTES_MAX.into();
            fit
        })?;
        if !fit {
            return Err(SendFailure::InPieces);
        }
        corked(to, stats, |stats| {
            send_head(packets.head(run.first), to, stats)?;
            let (mut again, mut sent) = (start, Ok(()));
            again.take(packets.payload_bytes(run.first), |piece| {
                if sent.is_ok() {
                    sent = self.send_piece(map, piece, to, stats);
                }
            });
            sent.map_err(|errno| packets.refused((ENGINE_CALL, errno), run, start, stats))
        })?;
        Ok(cursor)
    }

    /// Sends a piece into the cork.
    fn send_piece(
        &self,
        map: &FileMap,
        Piece { offset, bytes }: Piece,
        to: &Destination,
        stats: &mut SendStats,
    ) -> Result<(), Errno> {
        let order = EngineRequest {
            payload: PayloadSource::Mapped(map),
            offset,
            bytes,
            // The value is within PAYLOAD_BYTES_MAX.
            payload_bytes: bytes as u16,
            heads: EngineHeaders::None,
            segments: 1,
        };
        let sent = self.engine.send(to.as_fd(), &order, stats)?;
        // An address range has no end of file: unreadable pages are refused.
        if sent.bytes == bytes { Ok(()) } else { Err(Errno::new(libc::EIO)) }
    }
}

impl StreamPath for MmapSendMsend {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut Destination,
        stats: &mut SendStats,
    ) -> Result<u32, SendError> {
        let packets = GatheredPackets::of(batch);
        if batch.packets == 0 {
            return Ok(0);
        }
        let map = packets.map()?;
        let mut cursor = packets.start();
        send_runs(batch, PacketsPerCall::One, to, stats, |run, to, stats| {
            cursor = match self.send_packet(&packets, map, (run, cursor), to, stats) {
                Err(failure) if is_for_a_copy(&failure) => {
                    let payload_bytes = packets.payload_bytes(run.first);
                    let after =
                        self.reader.read(0, packets.source, cursor, payload_bytes, stats)?;
                    self.reader.write(packets.head(run.first), to, stats)?;
                    after
                }
                sent => sent?,
            };
            Ok(1)
        })
    }
}
