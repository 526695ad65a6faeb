// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets of a header in memory and a payload in the file; and their list of header, payload,
//! header, payload for one gathered send, shared by `mmap_gso`, `mmap_writev` and the rings.
//!
//! The list holds addresses of the map; the kernel reads the file's pages straight into the
//! socket's buffers, so each byte is copied once and never by this program. Where the file has been
//! cut the kernel answers `EFAULT`; the path then queries the size and sends the packets before the
//! cut.
//!
//! Sources: `writev(2)`, `mmap(2)`.
//!
//! Does not read mapped bytes. [`crate::MappedFile`] describes the consequence for a file that is
//! cut.

use crate::batch::{Batch, BatchForm, Cursor, CursorPosition, Piece};
use crate::error::{Errno, SendError};
use crate::mapped_file::MappedFile;
use crate::send_stats::SendStats;
use crate::stream_path::{SegmentRun, SendFailure};
use crate::sys::{FileMap, Gather};

pub(crate) const CALL: &str = "writev";

/// A gathered batch.
#[derive(Clone, Copy)]
pub(crate) struct GatheredPackets<'a> {
    batch: &'a Batch<'a>,
    pub(crate) source: &'a MappedFile,
    heads: &'a [u8],
    pieces: &'a [Piece],
}

impl<'a> GatheredPackets<'a> {
    /// # Panics
    /// When the batch is an image: [`crate::Feed`] names the form that each path requires.
    pub(crate) fn of(batch: &'a Batch<'a>) -> Self {
        let BatchForm::Gathered { source, heads, pieces } = batch.form else {
            panic!("this path is fed gathered batches");
        };
        Self { batch, source, heads, pieces }
    }

    /// Returns the position of the first payload.
    pub(crate) fn start(&self) -> Cursor<'a> {
        Cursor::new(self.pieces)
    }

    /// Returns the cursor at a position.
    pub(super) fn at(&self, mark: CursorPosition) -> Cursor<'a> {
        Cursor::at(self.pieces, mark)
    }

    /// Returns the position of a cursor.
    pub(super) fn mark(&self, cursor: Cursor<'_>) -> CursorPosition {
        cursor.mark(self.pieces)
    }

    /// Returns the number of bytes of every packet's header.
    pub(super) fn head_bytes(&self) -> usize {
        self.heads.len() / self.batch.packets.max(1) as usize
    }

    /// Returns a packet's header.
    pub(crate) fn head(&self, packet: u32) -> &'a [u8] {
        let at = packet as usize * self.head_bytes();
        &self.heads[at..at + self.head_bytes()]
    }

    /// Returns the headers of the packets of `run`.
    pub(super) fn heads(&self, run: SegmentRun) -> &'a [u8] {
        let at = run.first as usize * self.head_bytes();
        &self.heads[at..at + run.packets as usize * self.head_bytes()]
    }

    /// Returns the number of bytes of each packet; the last may be shorter.
    pub(super) fn segment_bytes(&self) -> u32 {
        self.batch.segment_bytes
    }

    /// Payload bytes of a packet.
    pub(crate) fn payload_bytes(&self, packet: u32) -> u64 {
        self.batch.run_bytes(packet, 1) - self.head_bytes() as u64
    }

    /// Returns the map of the file.
    pub(super) fn map(&self) -> Result<&'a FileMap, SendError> {
        self.source.mapped().map_err(|errno| self.source.host("mmap", errno))
    }

    /// Calls `each` with the ranges of the next payload until it returns false; returns true when
    /// it never did. A range beyond the file's size at mapping is [`SendFailure::Cut`] with `whole`
    /// packets before it.
    pub(super) fn take_mapped(
        &self,
        map: &FileMap,
        cursor: &mut Cursor<'a>,
        (packet, whole): (u32, u32),
        mut each: impl FnMut(Piece) -> bool,
    ) -> Result<bool, SendFailure> {
        let (mut fits, mut in_map) = (true, true);
        cursor.take(self.payload_bytes(packet), |piece| {
            in_map = in_map && map.address(piece.offset, piece.bytes).is_some();
            fits = fits && in_map && each(piece);
        });
        if in_map { Ok(fits) } else { Err(SendFailure::Cut { at: self.source.bytes(), whole }) }
    }

    /// Interprets a refusal of `call`: `EFAULT` for a page that was cut off means a cut; other
    /// errors are returned as they are.
    pub(crate) fn refused(
        &self,
        (call, errno): (&'static str, Errno),
        run: SegmentRun,
        start: Cursor<'_>,
        stats: &mut SendStats,
    ) -> SendFailure {
        if errno.code() != libc::EFAULT {
            return SendFailure::Refused { call, errno };
        }
        let at = match self.source.size_now(stats) {
            Ok(at) => at,
            Err(errno) => return SendFailure::Refused { call: "statx", errno },
        };
        let mut cursor = start;
        for whole in 0..run.packets {
            let mut end = 0;
            cursor.take(self.payload_bytes(run.first + whole), |piece| {
                end = end.max(piece.offset.saturating_add(piece.bytes));
            });
            if end > at {
                return SendFailure::Cut { at, whole };
            }
        }
        SendFailure::Refused { call, errno }
    }
}

/// Puts `run`, or as many of its packets as fit, on `list`; returns their number and the position
/// of the payload after them.
pub(crate) fn gather<'a>(
    packets: &GatheredPackets<'a>,
    map: &'a FileMap,
    list: &mut Gather<'_, 'a>,
    run: SegmentRun,
    start: Cursor<'a>,
) -> Result<(u32, Cursor<'a>), SendFailure> {
    let mut cursor = start;
    let mut listed = 0;
    while listed < run.packets {
        let before = (list.len(), cursor);
        let packet = run.first + listed;
        let head = packets.head(packet);
        let fits = (head.is_empty() || list.bytes(head))
            & packets.take_mapped(map, &mut cursor, (packet, listed), |piece| {
                list.mapped(map, piece.offset, piece.bytes)
            })?;
        if !fits {
            list.truncate(before.0);
            cursor = before.1;
            break;
        }
        listed += 1;
    }
    if listed == 0 {
        return Err(SendFailure::Refused { call: CALL, errno: Errno::new(libc::E2BIG) });
    }
    Ok((listed, cursor))
}
