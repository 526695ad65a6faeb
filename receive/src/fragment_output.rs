// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving thread's output of one stream that is recorded as fragmented MP4.
//!
//! Whole fragments are handed over to the writer as soon as they are there, so a file lacks two
//! seconds at most after any fault, and is playable up to its last fragment. A byte that is missing
//! would make the rest of a file unreadable: nothing is dropped here. Where the blocks of the
//! recording are in use, the stream takes no fragments ([`FragmentOutput::has_room`]), its queue
//! fills up, and whole access units are dropped where they are multiplexed. A fragment that was
//! begun is finished, with more blocks than the limit if need be, and so are the last fragments of
//! a session, up to twice the limit.
//!
//! Costs a copy of each byte, and a write call for each fragment or block.
//! Does not split files: the multiplexer decides where the next begins (`media::mux`).

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::SystemTime;

use client::FilePart;
use clock::Clock;

use crate::write_queue::{BLOCK_BYTES, BlockPool, WriteCommand};

/// Collects the parts of a stream's files in blocks.
#[derive(Debug)]
pub(crate) struct FragmentOutput {
    stream: usize,
    pool: Arc<BlockPool>,
    orders: Sender<WriteCommand>,
    block: Option<Vec<u8>>,
    /// Start of the file, or of the last; `None` before the first.
    file_began: Option<SystemTime>,
    /// True after a fragment was dropped: those behind it may belong to a file that was not begun.
    is_cut: bool,
    dropped_bytes: u64,
    clock: Clock,
}

impl FragmentOutput {
    pub(crate) fn new(
        stream: usize,
        pool: Arc<BlockPool>,
        orders: Sender<WriteCommand>,
        clock: Clock,
    ) -> FragmentOutput {
        FragmentOutput {
            stream,
            pool,
            orders,
            block: None,
            file_began: None,
            is_cut: false,
            dropped_bytes: 0,
            clock,
        }
    }

    /// True if the stream may take a fragment.
    pub(crate) fn has_room(&self) -> bool {
        self.pool.has_room(self.stream)
    }

    /// Drops and counts `bytes` of whole fragments if twice as many blocks as the limit are in use;
    /// returns true then.
    pub(crate) fn drop_beyond_memory(&mut self, bytes: usize) -> bool {
        let is_over = self.pool.is_far_over();
        self.dropped_bytes += if is_over { bytes as u64 } else { 0 };
        self.is_cut |= is_over;
        is_over
    }

    /// Bytes dropped so.
    pub(crate) fn dropped_bytes(&self) -> u64 {
        self.dropped_bytes
    }

    /// Appends a part of a file. Never blocks.
    pub(crate) fn push(&mut self, part: &FilePart<'_>) {
        self.is_cut &= part.file_began.is_none();
        if self.is_cut {
            self.dropped_bytes += part.bytes.len() as u64;
            return;
        }
        if let Some(began) = part.file_began
            && self.file_began.replace(began).is_some()
        {
            self.hand_over();
            // A writer that has ended has reported its reason.
            let _ = self.orders.send(WriteCommand::Rotate { stream: self.stream });
        }
        let mut rest = part.bytes;
        while !rest.is_empty() {
            let block = self.block.get_or_insert_with(|| self.pool.take_beyond(self.stream));
            let (fits, behind) = rest.split_at(rest.len().min(BLOCK_BYTES - block.len()));
            block.extend_from_slice(fits);
            if block.len() == BLOCK_BYTES {
                self.hand_over();
            }
            rest = behind;
        }
        if part.ends_fragment {
            self.hand_over();
        }
    }

    /// Hands over the rest and ends the file; another may begin.
    pub(crate) fn end(&mut self) {
        self.hand_over();
        let _ = self.orders.send(WriteCommand::End { stream: self.stream });
    }

    fn hand_over(&mut self) {
        let Some(block) = self.block.take() else { return };
        self.pool.hand_over(self.stream);
        let file_began = self.file_began.unwrap_or_else(|| self.clock.wall());
        let stream = self.stream;
        let _ = self.orders.send(WriteCommand::Write { stream, block, file_began });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    fn output(blocks: usize) -> (FragmentOutput, Arc<BlockPool>, Receiver<WriteCommand>) {
        let (orders, inbox) = channel();
        let pool = Arc::new(BlockPool::new(blocks * BLOCK_BYTES));
        (FragmentOutput::new(3, pool.clone(), orders, Clock::HOST), pool, inbox)
    }

    fn part(begins_file: bool, ends_fragment: bool, bytes: &[u8]) -> FilePart<'_> {
        let file_began = begins_file.then_some(SystemTime::UNIX_EPOCH);
        FilePart { file_began, ends_fragment, bytes }
    }

    /// Returns the files that the commands write.
    fn files(pool: &BlockPool, inbox: &Receiver<WriteCommand>) -> Vec<Vec<u8>> {
        let mut files = vec![Vec::new()];
        for order in inbox.try_iter() {
            match order {
                WriteCommand::Write { stream, block, .. } => {
                    files.last_mut().expect("one").extend_from_slice(&block);
                    pool.give(stream, block);
                }
                WriteCommand::Rotate { .. } => files.push(Vec::new()),
                WriteCommand::End { .. } => {}
            }
        }
        files
    }

    #[test]
    fn whole_fragments_are_handed_over_at_once_and_files_are_split() {
        let (mut output, pool, inbox) = output(8);
        let long = vec![5; BLOCK_BYTES + 100];
        output.push(&part(true, false, &[1; 10]));
        assert_eq!(inbox.try_iter().count(), 0);
        output.push(&part(false, true, &long));
        assert_eq!(files(&pool, &inbox), [[&[1; 10][..], &long].concat()]);
        output.push(&part(false, false, &[]));
        output.push(&part(true, true, &[2; 7]));
        output.push(&part(false, true, &[3; 7]));
        output.end();
        assert_eq!(files(&pool, &inbox), [vec![], [[2; 7], [3; 7]].concat()]);
    }

    #[test]
    fn a_fragment_that_was_begun_is_finished_and_then_there_is_no_room() {
        let (mut output, pool, inbox) = output(4);
        let long = vec![9; 9 * BLOCK_BYTES];
        assert!(output.has_room());
        output.push(&part(true, true, &long));
        assert!(!output.has_room());
        assert!(output.drop_beyond_memory(100) && output.dropped_bytes() == 100);
        assert_eq!(files(&pool, &inbox), [long]);
        assert!(output.has_room() && !output.drop_beyond_memory(100));
        // The fragment behind it may be one of a file that was dropped.
        output.push(&part(false, true, &[1; 11]));
        assert_eq!((inbox.try_iter().count(), output.dropped_bytes()), (0, 111));
        output.push(&part(true, true, &[2; 12]));
        assert_eq!(files(&pool, &inbox), [vec![], vec![2; 12]]);
        assert_eq!(output.dropped_bytes(), 111);
    }
}
