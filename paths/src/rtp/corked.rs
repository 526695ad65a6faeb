// SPDX-License-Identifier: MIT OR Apache-2.0
//! A datagram made by several calls: what `mmap_send_rtp`, `rtp_sendfile` and `more_sendfile`
//! share.
//!
//! While a socket is corked, what is sent is put together and leaves when the cork is taken out. A
//! call in the middle may be refused, and then nothing may stay behind that the next packet would
//! be appended to: after every refusal what is corked is thrown away before the cork is taken out.
//!
//! The payload by `sendfile`: a corked datagram is summed by the kernel, which gets it wrong where
//! a page border falls on an odd byte of a payload's piece ([`crate::image`] says why), and a
//! datagram is of at most 17 page fragments (`MAX_SKB_FRAGS`). A packet of either kind is read and
//! written instead, at two calls and two copies, and so is one that the kernel takes in pieces.
//! Payload of MPEG transport stream has neither, unless it is spread over many places.
//!
//! Sources: `udp(7)` (`UDP_CORK`), `sendfile(2)`; Linux 6.18 `net/ipv4/ip_output.c`
//! (`__ip_append_data`), `fs/splice.c`.
//!
//! What it does not do: learn what becomes of a corked datagram. Taking the cork out says nothing
//! of what a firewall or a device then refuses.

use std::os::fd::AsFd;

use crate::batch::{Batch, Cursor, Piece};
use crate::destination::Destination;
use crate::error::{Errno, SendError};
use crate::image::crosses_oddly;
use crate::media::Media;
use crate::rtp::gathered::Packets;
use crate::rtp::reader::Reader;
use crate::stream::{Setback, StreamPath, send_runs};
use crate::sys;
use crate::tally::Tally;

/// Sends what `parts` sends as one datagram, or nothing of it.
pub(super) fn corked(
    to: &Destination,
    tally: &mut Tally,
    parts: impl FnOnce(&mut Tally) -> Result<(), Setback>,
) -> Result<(), Setback> {
    let refused = |call| move |errno| Setback::Refused { call, errno };
    sys::set_cork(to.as_fd(), true, tally).map_err(refused("setsockopt UDP_CORK=1"))?;
    let sent = parts(tally);
    if sent.is_err() {
        sys::discard_corked(to.as_fd(), tally);
    }
    let uncorked = sys::set_cork(to.as_fd(), false, tally);
    sent.and(uncorked.map_err(refused("setsockopt UDP_CORK=0")))
}

/// Sends a header into the cork; no call when there is none.
pub(super) fn send_head(head: &[u8], to: &Destination, tally: &mut Tally) -> Result<(), Setback> {
    if head.is_empty() {
        return Ok(());
    }
    let sent = sys::send(to.as_fd(), head, tally);
    sent.map(|_| ()).map_err(|errno| Setback::Refused { call: "send", errno })
}

/// Header by `send`, payload by `sendfile`, in one datagram.
pub(super) struct HeadAndFile {
    page_bytes: u64,
    /// Whether the header's call says that more follows, where that is enough, instead of a cork.
    by_flag: bool,
    /// For the packet that cannot be sent so.
    reader: Reader,
}

impl HeadAndFile {
    pub(super) fn new(by_flag: bool) -> Self {
        Self { page_bytes: sys::page_bytes(), by_flag, reader: Reader::new() }
    }

    /// Sends a packet without copying its payload. [`Setback::InPieces`] means that it has to be
    /// sent by a copy.
    fn send_packet(
        &self,
        head: &[u8],
        media: &Media,
        (start, payload_bytes): (Cursor<'_>, u64),
        to: &Destination,
        tally: &mut Tally,
    ) -> Result<(), Setback> {
        let (mut pieces, mut evenly) = (0, true);
        let mut cursor = start;
        cursor.take(payload_bytes, |piece| {
            pieces += 1;
            evenly = evenly && !crosses_oddly(piece.offset, piece.bytes, self.page_bytes);
        });
        if !evenly {
            return Err(Setback::InPieces);
        }
        let mut cursor = start;
        if self.by_flag && pieces == 1 {
            return more_follows(head, media, cursor.next(payload_bytes), to, tally);
        }
        corked(to, tally, |tally| {
            send_head(head, to, tally)?;
            let mut sent = Ok(());
            cursor.take(payload_bytes, |piece| {
                if sent.is_ok() {
                    sent = sendfile(media, piece, to, tally).map_err(|(setback, _)| setback);
                }
            });
            sent
        })
    }
}

impl StreamPath for HeadAndFile {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut Destination,
        tally: &mut Tally,
    ) -> Result<u32, SendError> {
        let packets = Packets::of(batch);
        let mut cursor = packets.start();
        send_runs(batch, false, to, tally, |run, to, tally| {
            let (head, media) = (packets.head(run.first), packets.media);
            let payload_bytes = packets.payload_bytes(run.first);
            match self.send_packet(head, media, (cursor, payload_bytes), to, tally) {
                Ok(()) => cursor.take(payload_bytes, |_| ()),
                Err(setback) if is_for_a_copy(&setback) => {
                    let after = self.reader.read(0, media, cursor, payload_bytes, tally)?;
                    self.reader.write(head, to, tally)?;
                    cursor = after;
                }
                Err(setback) => return Err(setback),
            }
            Ok(1)
        })
    }
}

/// Whether the packet can be sent by a copy, or at least be refused for a better reason.
pub(super) fn is_for_a_copy(setback: &Setback) -> bool {
    match setback {
        Setback::InPieces => true,
        // More fragments than a datagram may have.
        Setback::Refused { errno, .. } => errno.code() == libc::EMSGSIZE,
        Setback::Cut { .. } => false,
    }
}

/// Sends a header that says that more follows, and a piece that ends the datagram.
fn more_follows(
    head: &[u8],
    media: &Media,
    piece: Piece,
    to: &Destination,
    tally: &mut Tally,
) -> Result<(), Setback> {
    if !head.is_empty()
        && let Err(errno) = sys::send_more(to.as_fd(), head, tally)
    {
        sys::discard_corked(to.as_fd(), tally);
        return Err(Setback::Refused { call: "send", errno });
    }
    sendfile(media, piece, to, tally).map_err(|(setback, sent)| {
        sys::discard_corked(to.as_fd(), tally);
        if matches!(setback, Setback::Cut { .. }) && sent > 0 {
            // The kernel has sent the header and what there was (`splice_eof`).
            tally.packets += 1;
            tally.bytes += head.len() as u64 + sent;
        }
        setback
    })
}

/// Sends a piece of the file; when not all of it was sent, also says how much.
fn sendfile(
    media: &Media,
    piece: Piece,
    to: &Destination,
    tally: &mut Tally,
) -> Result<(), (Setback, u64)> {
    let Piece { offset, bytes } = piece;
    let call = "sendfile";
    let sent = match sys::sendfile(to.as_fd(), media.file(), offset, bytes, tally) {
        Ok(sent) if sent as u64 == bytes => return Ok(()),
        Ok(sent) => sent as u64,
        Err(errno) => return Err((Setback::Refused { call, errno }, 0)),
    };
    let setback = match media.size_now(tally) {
        Ok(at) if at < offset.saturating_add(bytes) => Setback::Cut { at, whole: 0 },
        // Neither bytes nor the end: the file cannot be read this way.
        Ok(_) if sent == 0 => Setback::Refused { call, errno: Errno::new(libc::EIO) },
        Ok(_) => Setback::InPieces,
        Err(errno) => Setback::Refused { call: "statx", errno },
    };
    Err((setback, sent))
}
