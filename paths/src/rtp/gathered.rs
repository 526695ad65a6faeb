// SPDX-License-Identifier: MIT OR Apache-2.0
//! Header, payload, header, payload from a mapped file in one list: what `mmap_writev` and
//! `mmap_gso` share.
//!
//! The list holds addresses of the map; the kernel reads the file's pages straight into the
//! socket's buffers, so each byte is copied once and never by this program. Where the file has been
//! cut the kernel answers `EFAULT`; the size is then asked for and the packets before the cut are
//! sent.
//!
//! Sources: `writev(2)`, `mmap(2)`.
//!
//! What it does not do: look at a mapped byte. See [`crate::Media`] for what that leaves unseen.

use std::os::fd::AsFd;

use crate::batch::{Batch, Cursor, Form};
use crate::destination::Destination;
use crate::error::{Errno, SendError};
use crate::media::Media;
use crate::stream::{Run, Setback, send_runs};
use crate::sys::{Map, Scratch};
use crate::tally::Tally;

const CALL: &str = "writev";

/// Sends a gathered batch over the mapped file, `together` or packet by packet.
pub(super) fn send(
    scratch: &mut Scratch,
    batch: &Batch<'_>,
    together: bool,
    to: &mut Destination,
    tally: &mut Tally,
) -> Result<u32, SendError> {
    let Form::Gathered { media, heads, pieces } = batch.form else {
        panic!("a gathering path is fed gathered batches");
    };
    if batch.packets == 0 {
        return Ok(0);
    }
    let map = media.mapped().map_err(|errno| media.host("mmap", errno))?;
    let list = List { batch, media, map, heads };
    let mut cursor = Cursor::new(pieces);
    send_runs(batch, together, to, tally, |run, to, tally| {
        let (packets, after) = list.send(scratch, run, cursor, to, tally)?;
        cursor = after;
        Ok(packets)
    })
}

/// What a run's list is made of.
struct List<'a> {
    batch: &'a Batch<'a>,
    media: &'a Media,
    map: &'a Map,
    heads: &'a [u8],
}

impl<'a> List<'a> {
    /// Bytes of every packet's header.
    fn head_bytes(&self) -> usize {
        self.heads.len() / self.batch.packets as usize
    }

    /// Payload bytes of a packet.
    fn payload_bytes(&self, packet: u32) -> u64 {
        self.batch.run_bytes(packet, 1) - self.head_bytes() as u64
    }

    /// Sends `run`, or as many of its packets as the list takes; says how many, and where the
    /// payload after them begins.
    fn send<'c>(
        &self,
        scratch: &mut Scratch,
        run: Run,
        start: Cursor<'c>,
        to: &Destination,
        tally: &mut Tally,
    ) -> Result<(u32, Cursor<'c>), Setback> {
        let head_bytes = self.head_bytes();
        let mut list = scratch.gather();
        let mut cursor = start;
        let mut packets = 0;
        for packet in run.first..run.first + run.packets {
            let whole = (list.len(), cursor);
            let at = packet as usize * head_bytes;
            let mut fits = head_bytes == 0 || list.bytes(&self.heads[at..at + head_bytes]);
            let mut in_map = true;
            cursor.take(self.payload_bytes(packet), |piece| {
                in_map = in_map && self.map.address(piece.offset, piece.bytes).is_some();
                fits = fits && in_map && list.mapped(self.map, piece.offset, piece.bytes);
            });
            if !in_map {
                // Beyond what the file had when it was opened.
                return Err(Setback::Cut { at: self.media.bytes(), whole: packets });
            }
            if !fits {
                list.truncate(whole.0);
                cursor = whole.1;
                break;
            }
            packets += 1;
        }
        if packets == 0 {
            return Err(Setback::Refused { call: CALL, errno: Errno::new(libc::E2BIG) });
        }
        match list.send(to.as_fd(), tally) {
            Ok(_) => Ok((packets, cursor)),
            Err(errno) if errno.code() == libc::EFAULT => Err(self.fault(run, start, errno, tally)),
            Err(errno) => Err(Setback::Refused { call: CALL, errno }),
        }
    }

    /// A page could not be read: because the file was cut, or for a reason of the device's own.
    fn fault(&self, run: Run, start: Cursor<'_>, errno: Errno, tally: &mut Tally) -> Setback {
        let at = match self.media.size_now(tally) {
            Ok(at) => at,
            Err(errno) => return Setback::Refused { call: "statx", errno },
        };
        let mut cursor = start;
        for whole in 0..run.packets {
            let mut end = 0;
            cursor.take(self.payload_bytes(run.first + whole), |piece| {
                end = end.max(piece.offset.saturating_add(piece.bytes));
            });
            if end > at {
                return Setback::Cut { at, whole };
            }
        }
        Setback::Refused { call: CALL, errno }
    }
}
