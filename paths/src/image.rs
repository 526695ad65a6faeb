// SPDX-License-Identifier: MIT OR Apache-2.0
//! Datagrams that lie in a file one after the other: what the paths of such batches share, and the
//! path of `sendfile`, a run or a packet a call.
//!
//! [`Sendfile`] is `rtp/wire_sendfile`, `udp/sendfile_gso` (`together`) and `udp/sendfile`: the
//! three differ in what the file holds and how much a call carries, not in how it is sent.
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
//! steps, the kernel (from 6.5 on; 6.18.44 still, 6.12.117 no longer) adds the pages' sums as if
//! each began at an even byte, and the peer drops the packet. `skb_splice_from_iter` counts a page
//! in `skb->len` only when all are added. Segmented runs are not concerned, nor is MPEG transport
//! stream, whose packets are even. A datagram that is taken in pieces is read and sent as well.
//!
//! Sources: `sendfile(2)`; Linux 6.18 `fs/splice.c` (`splice_direct_to_actor`,
//! `splice_to_socket`), `net/ipv4/udp.c` (`udp_splice_eof`), commits 2bfc66850952 and 7ac7c987850c
//! (6.5).
//!
//! What it does not do: run on kernels before 6.5, where `sendfile` handed pages to a UDP socket
//! one by one, IPv6 sent each as a datagram of its own and a file's end left the socket corked.

use std::os::fd::AsFd;

use crate::batch::{Batch, DATAGRAM_BYTES_MAX, Form};
use crate::destination::Destination;
use crate::error::{Errno, SendError};
use crate::media::Media;
use crate::stream::{Run, Setback, StreamPath, fill, send_runs};
use crate::sys::{self, Map};
use crate::tally::Tally;

/// Pages that pass through a pipe in one step: `PIPE_DEF_BUFFERS` of Linux.
pub(crate) const PIPE_PAGES: u64 = 16;

/// A batch of datagrams in a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image<'a> {
    pub(crate) media: &'a Media,
    start: u64,
    segment_bytes: u64,
}

impl<'a> Image<'a> {
    /// # Panics
    /// When the batch is of the other form: the caller was told which.
    pub(crate) fn of(batch: &Batch<'a>) -> Self {
        let Form::Image { media, offset: start } = batch.form else {
            panic!("this path is fed images");
        };
        Self { media, start, segment_bytes: batch.segment_bytes.into() }
    }

    /// Where the packets of a run lie.
    pub(crate) fn range(&self, batch: &Batch<'_>, run: Run) -> Range<'a> {
        let offset = self.start.saturating_add(batch.run_bytes(0, run.first));
        let bytes = batch.run_bytes(run.first, run.packets);
        Range { media: self.media, offset, bytes, segment_bytes: self.segment_bytes }
    }
}

/// A run's range of the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range<'a> {
    pub(crate) media: &'a Media,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    segment_bytes: u64,
}

impl<'a> Range<'a> {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }

    /// How many of its packets lie within a step of `pages` pages; at least one.
    pub(crate) fn packets_per_step(&self, pages: u64, page_bytes: u64) -> u32 {
        let bytes = pages * page_bytes - self.offset % page_bytes;
        u32::try_from(bytes / self.segment_bytes).unwrap_or(u32::MAX).max(1)
    }

    /// Pages that it touches.
    pub(crate) fn pages(&self, page_bytes: u64) -> u64 {
        (self.offset % page_bytes).saturating_add(self.bytes).div_ceil(page_bytes)
    }

    /// Whether its second page begins at an odd byte of it.
    pub(crate) fn crosses_oddly(&self, page_bytes: u64) -> bool {
        crosses_oddly(self.offset, self.bytes, page_bytes)
    }

    /// The map, when it reaches so far.
    pub(crate) fn map(&self) -> Result<&'a Map, Setback> {
        let refused = |errno| Setback::Refused { call: "mmap", errno };
        let map = self.media.mapped().map_err(refused)?;
        match map.address(self.offset, self.bytes) {
            Some(_) => Ok(map),
            // Beyond what the file had when it was opened.
            None => Err(self.cut(self.media.bytes())),
        }
    }

    /// The file ends at `at`, which is within the range or before.
    pub(crate) fn cut(&self, at: u64) -> Setback {
        let whole = at.saturating_sub(self.offset) / self.segment_bytes;
        Setback::Cut { at, whole: u32::try_from(whole).unwrap_or(u32::MAX) }
    }

    /// Why `call` was refused: a page of the map cannot be read because the file was cut, or for
    /// the reason that the kernel gives.
    pub(crate) fn refused(&self, call: &'static str, errno: Errno, tally: &mut Tally) -> Setback {
        if errno.code() != libc::EFAULT {
            return Setback::Refused { call, errno };
        }
        match self.media.size_now(tally) {
            Ok(at) if at < self.end() => self.cut(at),
            Ok(_) => Setback::Refused { call, errno },
            Err(errno) => Setback::Refused { call: "statx", errno },
        }
    }

    /// Finds out what became of `sent` bytes of the range that `sendfile` says it sent, and leaves
    /// nothing corked.
    fn short(&self, sent: u64, to: &Destination, tally: &mut Tally) -> Setback {
        if sent > 0 {
            sys::discard_corked(to.as_fd(), tally);
        }
        let at = match self.media.size_now(tally) {
            Ok(at) => at,
            Err(errno) => return Setback::Refused { call: "statx", errno },
        };
        if at < self.end() {
            // The end of the file: the kernel has sent what there was.
            tally.packets += sent.div_ceil(self.segment_bytes);
            tally.bytes += sent;
            return Setback::Cut { at, whole: 0 };
        }
        if sent == 0 {
            // Neither bytes nor the end: the file cannot be read this way.
            return Setback::Refused { call: "sendfile", errno: Errno::new(libc::EIO) };
        }
        Setback::InPieces
    }
}

/// Whether the second page of `bytes` bytes from `offset` on begins at an odd byte of them.
pub(crate) fn crosses_oddly(offset: u64, bytes: u64, page_bytes: u64) -> bool {
    let first_bytes = page_bytes - offset % page_bytes;
    !first_bytes.is_multiple_of(2) && first_bytes < bytes
}

/// Room for a datagram that is read and sent.
#[derive(Debug)]
pub(crate) struct Copier(Box<[u8]>);

impl Copier {
    pub(crate) fn new() -> Self {
        Self(vec![0; DATAGRAM_BYTES_MAX as usize].into())
    }

    /// Sends a single datagram by way of the buffer.
    pub(crate) fn send(
        &mut self,
        range: Range<'_>,
        to: &Destination,
        tally: &mut Tally,
    ) -> Result<(), Setback> {
        let datagram = &mut self.0[..range.bytes as usize];
        fill(range.media, datagram, range.offset, tally)?;
        let sent = sys::send(to.as_fd(), datagram, tally);
        sent.map(|_| ()).map_err(|errno| Setback::Refused { call: "send", errno })
    }
}

/// `sendfile` of a run, or of each packet.
pub(crate) struct Sendfile {
    page_bytes: u64,
    together: bool,
    /// For the datagram whose checksum would be wrong.
    copier: Copier,
}

impl Sendfile {
    pub(crate) fn new(together: bool) -> Self {
        Self { page_bytes: sys::page_bytes(), together, copier: Copier::new() }
    }
}

impl StreamPath for Sendfile {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut Destination,
        tally: &mut Tally,
    ) -> Result<u32, SendError> {
        let Self { page_bytes, together, ref mut copier } = *self;
        let image = Image::of(batch);
        send_runs(batch, together, to, tally, |run, to, tally| {
            let fit = image.range(batch, run).packets_per_step(PIPE_PAGES, page_bytes);
            let packets = run.packets.min(fit);
            let range = image.range(batch, Run { packets, ..run });
            if packets == 1 && range.crosses_oddly(page_bytes) {
                return copier.send(range, to, tally).map(|()| packets);
            }
            let file = range.media.file();
            let setback = match sys::sendfile(to.as_fd(), file, range.offset, range.bytes, tally) {
                Ok(sent) if sent as u64 == range.bytes => return Ok(packets),
                Ok(sent) => range.short(sent as u64, to, tally),
                Err(errno) => Setback::Refused { call: "sendfile", errno },
            };
            match setback {
                Setback::InPieces if packets == 1 => copier.send(range, to, tally).map(|()| 1),
                setback => Err(setback),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_BYTES: u64 = 4096;

    fn range(media: &Media, offset: u64, segment_bytes: u64) -> Range<'_> {
        Range { media, offset, bytes: 10 * segment_bytes, segment_bytes }
    }

    #[test]
    fn a_step_stays_within_its_pages() {
        let media = Media::open(tempfile::tempfile().unwrap(), "a.wire").unwrap();
        let packets = |offset, segment_bytes, page_bytes| {
            range(&media, offset, segment_bytes).packets_per_step(PIPE_PAGES, page_bytes)
        };
        assert_eq!(packets(0, 1328, PAGE_BYTES), 49);
        assert_eq!(packets(464, 1328, PAGE_BYTES), 49);
        assert_eq!(packets(465, 1328, PAGE_BYTES), 48);
        assert_eq!(packets(4095, 1328, PAGE_BYTES), 46);
        assert_eq!(packets(4095, 65_507, PAGE_BYTES), 1);
        assert!(packets(65_535, 1, 65_536) > 900_000);
        let pages = |offset, bytes: u64| range(&media, offset, bytes / 10).pages(PAGE_BYTES);
        assert_eq!((pages(0, 4090), pages(10, 4090), pages(4095, 10)), (1, 2, 2));
    }

    #[test]
    fn only_odd_borders_inside_a_datagram_are_copied() {
        assert!(crosses_oddly(4001, 96, PAGE_BYTES));
        assert!(!crosses_oddly(4001, 95, PAGE_BYTES));
        assert!(!crosses_oddly(4000, 97, PAGE_BYTES));
        assert!(crosses_oddly(1, 4096, PAGE_BYTES));
        assert!(!crosses_oddly(0, 65_507, PAGE_BYTES));
    }

    #[test]
    fn packets_before_a_cut_are_whole() {
        let media = Media::open(tempfile::tempfile().unwrap(), "a.wire").unwrap();
        let whole = |at| match range(&media, 1000, 100).cut(at) {
            Setback::Cut { whole, .. } => whole,
            other => panic!("{other:?}"),
        };
        assert_eq!([0, 1000, 1099, 1100, 1950].map(whole), [0, 0, 0, 1, 9]);
    }
}
