// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wire_sendfile`: the wire image, `sendfile` of a whole run, cut into datagrams by the kernel.
//!
//! The cheapest path of a stock kernel. Headers lie in the file between the payloads, so a run is
//! one range and nothing is copied: the socket refers to the page cache's pages. One call per run
//! of 46 to 49 packets of 1,328 bytes (16 calls per megabyte); 0.29 to 0.46 s/GB where
//! `read_writev` cost 2.42 (software segmentation).
//!
//! How a run stays whole. `sendfile` moves pages through a pipe of 16 and corks the socket in
//! between (`MSG_MORE`), so a run that needs a 17th page is sent in two steps, and a signal or a
//! full buffer between them leaves a part corked, which the next run would be appended to, or
//! dropped. A run here therefore never touches more than 16 pages: it is one step, sent whole or
//! not at all. The pipe is shorter for an unprivileged user who has more than 64 MiB of pipes open
//! (`pipe-user-pages-soft`), and some file systems read less at a time; a short count shows it.
//! Then what is corked is thrown away, runs become shorter until they fit, and nothing is sent
//! twice.
//!
//! When the file has been cut, the kernel sends what there is (`splice_eof`): whole packets, and
//! the start of the one the cut goes through as a short datagram. That one cannot be held back
//! without a further call per run.
//!
//! A datagram that is sent alone and crosses a page border at an odd byte is read and sent instead,
//! at two calls and two copies: where the device computes no checksums, or the datagram takes two
//! steps, the kernel (6.5 to 6.18 at least) adds the pages' sums as if each began at an even byte,
//! and the peer drops the packet. `skb_splice_from_iter` counts a page in `skb->len` only when all
//! are added. Segmented runs are not concerned, nor is MPEG transport stream, whose packets are
//! even.
//!
//! Sources: `sendfile(2)`; Linux 6.18 `fs/splice.c` (`splice_direct_to_actor`,
//! `splice_to_socket`), `net/ipv4/udp.c` (`udp_splice_eof`), commits 2bfc66850952 and 7ac7c987850c
//! (6.5).
//!
//! What it does not do: run on kernels before 6.5, where `sendfile` handed pages to a UDP socket
//! one by one, IPv6 sent each as a datagram of its own and a file's end left the socket corked; and
//! give a session its own SSRC or sequence numbers, which are the image's.

use std::os::fd::AsFd;

use crate::batch::{Batch, DATAGRAM_BYTES_MAX, Form};
use crate::destination::Destination;
use crate::error::{Errno, SendError};
use crate::media::Media;
use crate::spec::{Crossings, Feed, Open, Spec, Transport, Via};
use crate::stream::{Setback, StreamPath, fill, send_runs};
use crate::sys;
use crate::tally::Tally;

pub(crate) static SPEC: Spec = Spec {
    name: "wire_sendfile",
    transport: Transport::Rtp,
    summary: "wire image, sendfile of a run that the kernel cuts into datagrams; no copy",
    copies_per_byte: 0,
    header_copies: 0,
    crossings: Crossings::PerRun(1),
    sources: &["sendfile(2)", "udp(7) UDP_SEGMENT", "linux 6.18 fs/splice.c"],
    probe: |host| host.needs_kernel(6, 5),
    open: Open::Stream {
        feed: Feed::Image,
        via: Via::Socket,
        open: || {
            let buffer = vec![0; DATAGRAM_BYTES_MAX as usize].into();
            Ok(Box::new(WireSendfile { page_bytes: sys::page_bytes(), buffer }))
        },
    },
};

const CALL: &str = "sendfile";

/// Pages that pass through the pipe in one step: `PIPE_DEF_BUFFERS` of Linux.
const PIPE_PAGES: u64 = 16;

struct WireSendfile {
    page_bytes: u64,
    /// For the datagram whose checksum would be wrong.
    buffer: Box<[u8]>,
}

impl WireSendfile {
    /// How many packets from byte `offset` on lie within one step's pages; at least one.
    fn packets_per_step(&self, offset: u64, segment_bytes: u32) -> u32 {
        let bytes = PIPE_PAGES * self.page_bytes - offset % self.page_bytes;
        // At most 16 pages by at least a byte.
        u32::try_from(bytes / u64::from(segment_bytes)).unwrap_or(u32::MAX).max(1)
    }

    /// Whether the range's second page begins at an odd byte of it.
    fn crosses_oddly(&self, offset: u64, bytes: u64) -> bool {
        let first_bytes = self.page_bytes - offset % self.page_bytes;
        !first_bytes.is_multiple_of(2) && first_bytes < bytes
    }

    /// Sends a single datagram by way of the buffer.
    fn copy(
        &mut self,
        range: Range<'_>,
        to: &Destination,
        tally: &mut Tally,
    ) -> Result<(), Setback> {
        let datagram = &mut self.buffer[..range.bytes as usize];
        fill(range.media, datagram, range.offset, tally)?;
        let sent = sys::send(to.as_fd(), datagram, tally);
        sent.map(|_| ()).map_err(|errno| Setback::Refused { call: "send", errno })
    }
}

impl StreamPath for WireSendfile {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut Destination,
        tally: &mut Tally,
    ) -> Result<u32, SendError> {
        let Form::Image { media, offset: start } = batch.form else {
            panic!("wire_sendfile is fed wire images");
        };
        send_runs(batch, true, to, tally, |run, to, tally| {
            let offset = start.saturating_add(batch.run_bytes(0, run.first));
            let fit = self.packets_per_step(offset, batch.segment_bytes);
            let packets = run.packets.min(fit);
            let bytes = batch.run_bytes(run.first, packets);
            let range = Range { media, offset, bytes };
            if packets == 1 && self.crosses_oddly(offset, bytes) {
                return self.copy(range, to, tally).map(|()| packets);
            }
            match sys::sendfile(to.as_fd(), media.file(), offset, bytes, tally) {
                Ok(sent) if sent as u64 == bytes => Ok(packets),
                Ok(sent) => Err(range.short(sent as u64, batch.segment_bytes, to, tally)),
                Err(errno) => Err(Setback::Refused { call: CALL, errno }),
            }
        })
    }
}

/// A run's range of the wire image.
struct Range<'a> {
    media: &'a Media,
    offset: u64,
    bytes: u64,
}

impl Range<'_> {
    /// Finds out what became of `sent` bytes of the range, and leaves nothing corked.
    fn short(&self, sent: u64, segment_bytes: u32, to: &Destination, tally: &mut Tally) -> Setback {
        if sent > 0 {
            sys::discard_corked(to.as_fd(), tally);
        }
        let at = match self.media.size_now(tally) {
            Ok(at) => at,
            Err(errno) => return Setback::Refused { call: "statx", errno },
        };
        if at < self.offset.saturating_add(self.bytes) {
            // The end of the file: the kernel has sent what there was.
            tally.packets += sent.div_ceil(u64::from(segment_bytes));
            tally.bytes += sent;
            return Setback::Cut { at, whole: 0 };
        }
        if sent == 0 {
            // Neither bytes nor the end: the file cannot be read this way.
            return Setback::Refused { call: CALL, errno: Errno::new(libc::EIO) };
        }
        Setback::InPieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_stays_within_its_pages() {
        let path = |page_bytes| WireSendfile { page_bytes, buffer: Box::default() };
        let large = path(65_536);
        let path = path(4096);
        assert_eq!(path.packets_per_step(0, 1328), 49);
        assert_eq!(path.packets_per_step(464, 1328), 49);
        assert_eq!(path.packets_per_step(465, 1328), 48);
        assert_eq!(path.packets_per_step(4095, 1328), 46);
        assert_eq!(path.packets_per_step(4095, 65_507), 1);
        assert!(large.packets_per_step(65_535, 1) > 900_000);
    }

    #[test]
    fn only_odd_borders_inside_a_datagram_are_copied() {
        let path = WireSendfile { page_bytes: 4096, buffer: Box::default() };
        assert!(path.crosses_oddly(4001, 96));
        assert!(!path.crosses_oddly(4001, 95));
        assert!(!path.crosses_oddly(4000, 97));
        assert!(path.crosses_oddly(1, 4096));
        assert!(!path.crosses_oddly(0, 65_507));
    }
}
