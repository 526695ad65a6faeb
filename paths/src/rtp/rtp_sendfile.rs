// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rtp_sendfile` and `more_sendfile`: header by `send`, payload by `sendfile`, in one datagram.
//!
//! Some packets are read and written instead, at two calls and two copies. The kernel sums a corked
//! datagram wrongly where a page border falls on an odd byte of a payload's piece (reason:
//! [`crate::file_datagrams`]), a datagram has at most 17 page fragments (`MAX_SKB_FRAGS`), and the
//! kernel may accept a packet in pieces. Payload of MPEG transport stream has none of these, unless
//! it is spread over many places.
//!
//! Sources: `udp(7)` (`UDP_CORK`), `send(2)` (`MSG_MORE`), `sendfile(2)`; Linux 6.18
//! `net/ipv4/ip_output.c` (`__ip_append_data`), `net/ipv4/udp.c` (`udp_splice_eof`), `fs/splice.c`.
//!
//! Does not report the fate of the datagram once the cork is removed ([`crate::rtp::corked`]).

use std::os::fd::AsFd;

use crate::batch::{Batch, Cursor, Piece};
use crate::destination::Destination;
use crate::error::{Errno, SendError};
use crate::file_datagrams::crosses_oddly;
use crate::mapped_file::MappedFile;
use crate::rtp::corked::{corked, is_for_a_copy, send_head};
use crate::rtp::gathered::GatheredPackets;
use crate::rtp::payload_buffer::PayloadBuffer;
use crate::send_stats::SendStats;
use crate::spec::{Feed, Open, Spec, SystemCalls, Transport, Via};
use crate::stream_path::{PacketsPerCall, SendFailure, StreamPath, send_runs};
use crate::sys;

/// `rtp_sendfile` of table 1-B of the data-paths paper (n copies, of the header; n cork, n send, n
/// sendfile and n uncork calls), its best without a changed kernel. Costs no copy of the payload,
/// one of the header, and four calls per packet; a payload in several pieces needs a `sendfile` for
/// each.
///
/// When the file has been cut, no packet after the last whole one leaves: the cork holds back the
/// rest.
pub(crate) static SPEC: Spec = Spec {
    name: "rtp_sendfile",
    transport: Transport::Rtp,
    summary: "cork, send header, sendfile of the payload, uncork per packet; payload not copied",
    copies_per_byte: 0,
    header_copies: 1,
    system_calls: SystemCalls::PerPacket(4),
    sources: &["udp(7) UDP_CORK", "sendfile(2)"],
    probe: |host| host.needs_kernel(2, 6),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Socket,
        open: || Ok(Box::new(HeaderAndFile::new(false))),
    },
};

/// `rtp_sendfile` without the two calls for the cork: the header is sent with `MSG_MORE`, which
/// corks for one call, and the last page of `sendfile` ends the datagram. Costs no copy of the
/// payload, one of the header, and two calls per packet. A payload in several pieces is sent as
/// `rtp_sendfile` does, because the first `sendfile` would end the datagram.
///
/// After the file was cut within a payload, the kernel sends the bytes that are left as a short
/// datagram, header included (`splice_eof`). Needs Linux 6.5: older kernels did not recognise the
/// page that ends the datagram as the last.
pub(crate) static MORE_SENDFILE: Spec = Spec {
    name: "more_sendfile",
    transport: Transport::Rtp,
    summary: "send header with MSG_MORE, sendfile of the payload per packet; payload not copied",
    copies_per_byte: 0,
    header_copies: 1,
    system_calls: SystemCalls::PerPacket(2),
    sources: &["send(2) MSG_MORE", "sendfile(2)", "linux 6.18 net/ipv4/udp.c"],
    probe: |host| host.needs_kernel(6, 5),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Socket,
        open: || Ok(Box::new(HeaderAndFile::new(true))),
    },
};

/// Header by `send`, payload by `sendfile`, in one datagram.
pub(super) struct HeaderAndFile {
    page_bytes: u64,
    /// True when the header's call announces more (`MSG_MORE`), where that is enough, instead of a
    /// cork.
    by_flag: bool,
    /// Buffer for packets that have to be copied.
    reader: PayloadBuffer,
}

impl HeaderAndFile {
    pub(super) fn new(by_flag: bool) -> Self {
        Self { page_bytes: sys::page_bytes(), by_flag, reader: PayloadBuffer::new() }
    }

    /// Sends a packet without copying its payload. [`SendFailure::InPieces`] means that it has to
    /// be sent by a copy.
    fn send_packet(
        &self,
        head: &[u8],
        source: &MappedFile,
        (start, payload_bytes): (Cursor<'_>, u64),
        to: &Destination,
        stats: &mut SendStats,
    ) -> Result<(), SendFailure> {
        let (mut pieces, mut evenly) = (0, true);
        let mut cursor = start;
        cursor.take(payload_bytes, |piece| {
            pieces += 1;
            evenly = evenly && !crosses_oddly(piece.offset, piece.bytes, self.page_bytes);
        });
        if !evenly {
            return Err(SendFailure::InPieces);
        }
        let mut cursor = start;
        if self.by_flag && pieces == 1 {
            return more_follows(head, source, cursor.next(payload_bytes), to, stats);
        }
        corked(to, stats, |stats| {
            send_head(head, to, stats)?;
            let mut sent = Ok(());
            cursor.take(payload_bytes, |piece| {
                if sent.is_ok() {
                    sent = sendfile(source, piece, to, stats).map_err(|(failure, _)| failure);
                }
            });
            sent
        })
    }
}

impl StreamPath for HeaderAndFile {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut Destination,
        stats: &mut SendStats,
    ) -> Result<u32, SendError> {
        let packets = GatheredPackets::of(batch);
        let mut cursor = packets.start();
        send_runs(batch, PacketsPerCall::One, to, stats, |run, to, stats| {
            let (head, source) = (packets.head(run.first), packets.source);
            let payload_bytes = packets.payload_bytes(run.first);
            match self.send_packet(head, source, (cursor, payload_bytes), to, stats) {
                Ok(()) => cursor.take(payload_bytes, |_| ()),
                Err(failure) if is_for_a_copy(&failure) => {
                    let after = self.reader.read(0, source, cursor, payload_bytes, stats)?;
                    self.reader.write(head, to, stats)?;
                    cursor = after;
                }
                Err(failure) => return Err(failure),
            }
            Ok(1)
        })
    }
}

/// Sends a header with `MSG_MORE`, and a piece that ends the datagram.
fn more_follows(
    head: &[u8],
    source: &MappedFile,
    piece: Piece,
    to: &Destination,
    stats: &mut SendStats,
) -> Result<(), SendFailure> {
    if !head.is_empty()
        && let Err(errno) = sys::send_more(to.as_fd(), head, stats)
    {
        sys::discard_corked(to.as_fd(), stats);
        return Err(SendFailure::Refused { call: "send", errno });
    }
    sendfile(source, piece, to, stats).map_err(|(failure, sent)| {
        sys::discard_corked(to.as_fd(), stats);
        if matches!(failure, SendFailure::Cut { .. }) && sent > 0 {
            // The kernel has sent the header and the rest of the file (`splice_eof`).
            stats.packets += 1;
            stats.bytes += head.len() as u64 + sent;
        }
        failure
    })
}

/// Sends a piece of the file; an error includes the number of bytes sent.
fn sendfile(
    source: &MappedFile,
    piece: Piece,
    to: &Destination,
    stats: &mut SendStats,
) -> Result<(), (SendFailure, u64)> {
    let Piece { offset, bytes } = piece;
    let call = "sendfile";
    let sent = match sys::sendfile(to.as_fd(), source.file(), offset, bytes, stats) {
        Ok(sent) if sent as u64 == bytes => return Ok(()),
        Ok(sent) => sent as u64,
        Err(errno) => return Err((SendFailure::Refused { call, errno }, 0)),
    };
    let failure = match source.size_now(stats) {
        Ok(at) if at < offset.saturating_add(bytes) => SendFailure::Cut { at, whole: 0 },
        // The call returned neither bytes nor the end: the file cannot be read this way.
        Ok(_) if sent == 0 => SendFailure::Refused { call, errno: Errno::new(libc::EIO) },
        Ok(_) => SendFailure::InPieces,
        Err(errno) => SendFailure::Refused { call: "statx", errno },
    };
    Err((failure, sent))
}
