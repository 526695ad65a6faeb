// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue to the disk, with a bounded number of blocks of whole packets.
//!
//! A block is 1024 transport stream packets, which is also 47 pages: the smallest size that begins
//! and ends at both, so that no call writes part of a page. All streams share the blocks. While
//! more than half of the blocks wait for the disk, a stream whose share is waiting gets no more: a
//! stream faster than the disk or the writer must not cause losses in the others. When all blocks
//! are in use, or such a share waits, whole packets are dropped and counted, and
//! fragments of MP4 are not taken; one that was begun gets more blocks. Blocks are reused,
//! since fresh memory of this size costs one page fault per page.
//!
//! Does not block.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use clock::Clock;
use media::{StreamEntry, TS_PACKET_BYTES};

use media::mux::Rotation;

use crate::file_cutter::FileCutter;

/// Whole packets and whole pages.
pub(crate) const BLOCK_BYTES: usize = 1024 * TS_PACKET_BYTES;

const _: () = assert!(BLOCK_BYTES.is_multiple_of(4096));

/// The blocks of a recording.
#[derive(Debug)]
pub(crate) struct BlockPool {
    state: Mutex<PoolState>,
    blocks_max: usize,
}

#[derive(Debug, Default)]
struct PoolState {
    free: Vec<Vec<u8>>,
    /// Blocks in use, in total and for each stream that has any.
    out: BlockCounts,
    out_of: HashMap<usize, BlockCounts>,
}

/// Numbers of blocks in use.
#[derive(Debug, Clone, Copy, Default)]
struct BlockCounts {
    all: usize,
    /// Blocks handed over to the writer; the others are being filled.
    waiting: usize,
}

impl BlockPool {
    /// Creates a pool of as many blocks as fit, at least four.
    pub(crate) fn new(bytes_max: usize) -> BlockPool {
        BlockPool { state: Mutex::default(), blocks_max: (bytes_max / BLOCK_BYTES).max(4) }
    }

    /// Returns an empty block for a stream; `None` if all are in use, or if more than half of them
    /// wait for the disk and the stream's share does.
    pub(crate) fn take(&self, stream: usize) -> Option<Vec<u8>> {
        let mut state = self.lock();
        self.has_room_in(&state, stream).then(|| state.take(stream))
    }

    /// True if [`take`](Self::take) would return a block.
    pub(crate) fn has_room(&self, stream: usize) -> bool {
        self.has_room_in(&self.lock(), stream)
    }

    /// True if twice as many blocks as the limit are in use.
    pub(crate) fn is_far_over(&self) -> bool {
        self.lock().out.all >= 2 * self.blocks_max
    }

    /// Returns an empty block for a stream, even if all are in use.
    pub(crate) fn take_beyond(&self, stream: usize) -> Vec<u8> {
        self.lock().take(stream)
    }

    fn has_room_in(&self, state: &PoolState, stream: usize) -> bool {
        let own = state.out_of.get(&stream).copied().unwrap_or_default();
        let streams = state.out_of.len() + usize::from(own.all == 0);
        let has_share = own.waiting >= (self.blocks_max / streams).max(1);
        state.out.all < self.blocks_max && !(self.is_half(state.out.waiting) && has_share)
    }

    /// Marks a block of a stream as waiting for the disk.
    pub(crate) fn hand_over(&self, stream: usize) {
        let mut state = self.lock();
        state.out.waiting += 1;
        state.out_of.entry(stream).or_default().waiting += 1;
    }

    /// Puts back a block of a stream that was written.
    pub(crate) fn give(&self, stream: usize, block: Vec<u8>) {
        let mut state = self.lock();
        state.out.waiting -= 1;
        if let Some(own) = state.out_of.get_mut(&stream) {
            own.waiting -= 1;
        }
        state.put_back(stream, block, self.blocks_max);
    }

    /// Puts back a block of a stream that was not handed over.
    fn put_back(&self, stream: usize, block: Vec<u8>) {
        self.lock().put_back(stream, block, self.blocks_max);
    }

    /// True if more than half of all blocks wait for the disk.
    fn is_pressed(&self) -> bool {
        self.is_half(self.lock().out.waiting)
    }

    fn is_half(&self, blocks: usize) -> bool {
        blocks > self.blocks_max / 2
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolState {
    fn take(&mut self, stream: usize) -> Vec<u8> {
        self.out.all += 1;
        self.out_of.entry(stream).or_default().all += 1;
        self.free.pop().unwrap_or_else(|| Vec::with_capacity(BLOCK_BYTES))
    }

    /// Keeps a block for reuse, unless there are `most` of them.
    fn put_back(&mut self, stream: usize, mut block: Vec<u8>, most: usize) {
        block.clear();
        self.out.all -= 1;
        if let Entry::Occupied(mut own) = self.out_of.entry(stream) {
            own.get_mut().all -= 1;
            if own.get().all == 0 {
                own.remove();
            }
        }
        if self.out.all + self.free.len() < most {
            self.free.push(block);
        }
    }
}

/// Command to the writer.
#[derive(Debug)]
pub(crate) enum WriteCommand {
    /// Append to the stream's file, which began at this time.
    Write { stream: usize, block: Vec<u8>, file_began: SystemTime },
    /// Write the following blocks to another file.
    Rotate { stream: usize },
    /// The stream, or its session, has ended: its file is complete.
    End { stream: usize },
}

/// The receiving thread's output of one stream: collects packets in blocks.
#[derive(Debug)]
pub(crate) struct StreamOutput {
    stream: usize,
    pool: Arc<BlockPool>,
    orders: Sender<WriteCommand>,
    /// `None` if files have no limits.
    cutter: Option<FileCutter>,
    block: Option<Vec<u8>>,
    /// Bytes handed over for the current file.
    file_bytes: u64,
    /// Bytes of the tables and parameter sets at its beginning.
    lead_bytes: u64,
    /// Start times of the file, on both clocks, and of the block.
    file_began: Option<(Duration, SystemTime)>,
    block_began: Duration,
    dropped_packets: u64,
    clock: Clock,
}

impl StreamOutput {
    pub(crate) fn new(
        stream: usize,
        pool: Arc<BlockPool>,
        orders: Sender<WriteCommand>,
        rotation: Rotation,
        clock: Clock,
    ) -> StreamOutput {
        StreamOutput {
            stream,
            pool,
            orders,
            cutter: FileCutter::new(rotation),
            block: None,
            file_bytes: 0,
            lead_bytes: 0,
            file_began: None,
            block_began: Duration::ZERO,
            dropped_packets: 0,
            clock,
        }
    }

    /// Appends whole packets. Never blocks.
    pub(crate) fn push(&mut self, mut packets: &[u8], now: Duration) {
        while !packets.is_empty() {
            let Some(appended) = self.append(packets, now) else { return };
            self.end_file_at_a_start(&packets[..appended], now);
            if self.is_full() {
                self.hand_over_decided(now);
            }
            packets = &packets[appended..];
        }
    }

    /// Hands over a block that is [`FLUSH_AFTER`] old, so that a slow stream reaches the disk too,
    /// and begins the next file if that is due.
    pub(crate) fn tick(&mut self, now: Duration) {
        let waited = now.saturating_sub(self.block_began);
        if self.block.is_some() && waited >= FLUSH_AFTER && !self.pool.is_pressed() {
            self.hand_over_decided(now);
        }
        self.rotate_if_over(now);
    }

    /// Hands over the rest and ends the file.
    pub(crate) fn end(&mut self) {
        self.hand_over();
        // A writer that has ended has reported its reason.
        let _ = self.orders.send(WriteCommand::End { stream: self.stream });
    }

    /// Packets dropped because no block was free.
    pub(crate) fn dropped_packets(&self) -> u64 {
        self.dropped_packets
    }

    fn pending(&self) -> u64 {
        self.block.as_ref().map_or(0, |block| block.len() as u64)
    }

    /// Bytes of the file so far.
    fn bytes(&self) -> u64 {
        self.file_bytes + self.pending()
    }

    /// Age of the file.
    fn age(&self, now: Duration) -> Duration {
        self.file_began.map_or(Duration::ZERO, |(began, _)| now.saturating_sub(began))
    }

    /// Bytes up to the end of the block: the block boundary in the file, so that all other blocks
    /// are whole pages, or the size limit of the file.
    fn space(&self) -> usize {
        let at = self.bytes();
        let space = BLOCK_BYTES as u64 - at % BLOCK_BYTES as u64;
        let left = self.bytes_max().map_or(u64::MAX, |max| max - at.min(max));
        space.min(left) as usize
    }

    fn is_full(&self) -> bool {
        let is_whole = self.bytes().is_multiple_of(BLOCK_BYTES as u64);
        is_whole || self.bytes_max().is_some_and(|max| self.bytes() >= max)
    }

    fn bytes_max(&self) -> Option<u64> {
        self.cutter.as_ref().and_then(FileCutter::bytes_max)
    }

    /// Appends as many of the packets as fit into the block; returns the number of bytes appended.
    /// `None` if they were dropped because no block was free.
    fn append(&mut self, packets: &[u8], now: Duration) -> Option<usize> {
        self.rotate_if_over(now);
        let space = self.space();
        if self.block.is_none() {
            self.block = self.pool.take(self.stream);
            self.block_began = now;
            if self.file_began.is_none() && self.block.is_some() {
                self.file_began = Some((now, self.clock.wall()));
                self.cutter.as_mut().into_iter().for_each(FileCutter::begin_file);
            }
        }
        let Some(block) = &mut self.block else {
            self.dropped_packets += (packets.len() / TS_PACKET_BYTES) as u64;
            return None;
        };
        let fits = packets.len().min(space);
        block.extend_from_slice(&packets[..fits]);
        Some(fits)
    }

    /// Appends packets that were scanned already, or are not the stream's. Does not hand over the
    /// block, which may then be longer than others.
    fn refill(&mut self, mut packets: &[u8], now: Duration) {
        while !packets.is_empty()
            && let Some(appended) = self.append(packets, now)
        {
            packets = &packets[appended..];
        }
    }

    /// Scans the last packets of the block; ends the file where playback can start, if that is due.
    fn end_file_at_a_start(&mut self, packets: &[u8], now: Duration) {
        if let Some(cutter) = &mut self.cutter {
            cutter.feed(packets);
        }
        loop {
            let (bytes, pending, age) = (self.bytes(), self.pending(), self.age(now));
            let Some(cutter) = &mut self.cutter else { return };
            let Some(start) = cutter.next_start() else { return };
            let behind = cutter.bytes_from(start.access_unit);
            // A start that was handed over before it was recognised stays in its file.
            if behind <= pending && cutter.ends_at(bytes - behind, age) {
                self.end_file_at(&start, now);
            }
        }
    }

    /// Continues in a new file with the access unit of `start`, which lies in the block.
    fn end_file_at(&mut self, start: &StreamEntry, now: Duration) {
        let Some((cutter, block)) = self.cutter.as_ref().zip(self.block.as_mut()) else { return };
        let kept = |packet| (block.len() as u64).checked_sub(cutter.bytes_from(packet));
        // The tables directly before the access unit are the stream's own, unless they were handed
        // over.
        let (kept, lead) = match kept(start.ts_packet) {
            Some(kept) if start.ts_packet < start.access_unit => (kept, Vec::new()),
            _ => (kept(start.access_unit).unwrap_or(0), cutter.lead(start)),
        };
        if self.file_bytes + kept <= self.lead_bytes {
            return;
        }
        let rest = block.split_off(kept as usize);
        self.end_file();
        self.lead_bytes = lead.len() as u64;
        self.refill(&lead, now);
        self.refill(&rest, now);
    }

    /// Ends a file that reached its limit without a position where playback can start.
    fn rotate_if_over(&mut self, now: Duration) {
        let (bytes, age) = (self.bytes(), self.age(now));
        let is_over = |cutter: &mut FileCutter| cutter.is_over(bytes, age);
        if bytes > 0 && self.cutter.as_mut().is_some_and(is_over) {
            self.end_file();
        }
    }

    fn end_file(&mut self) {
        self.hand_over();
        let _ = self.orders.send(WriteCommand::Rotate { stream: self.stream });
        (self.file_bytes, self.lead_bytes, self.file_began) = (0, 0, None);
    }

    /// Hands over the block without the bytes at its end with which the next file may begin. A
    /// block of only such bytes has waited long enough and is handed over whole.
    fn hand_over_decided(&mut self, now: Duration) {
        let undecided = self.cutter.as_ref().map_or(0, FileCutter::undecided_bytes);
        let block = self.block.as_mut().filter(|block| undecided < block.len() as u64);
        let rest = block.map(|block| block.split_off(block.len() - undecided as usize));
        self.hand_over();
        self.refill(&rest.unwrap_or_default(), now);
    }

    fn hand_over(&mut self) {
        let Some(block) = self.block.take() else { return };
        let bytes = block.len() as u64;
        if bytes == 0 {
            return self.pool.put_back(self.stream, block);
        }
        self.pool.hand_over(self.stream);
        let file_began = self.file_began.map_or_else(|| self.clock.wall(), |(_, began)| began);
        match self.orders.send(WriteCommand::Write { stream: self.stream, block, file_began }) {
            Ok(()) => self.file_bytes += bytes,
            // The writer ends before its senders only if it has panicked.
            Err(_) => self.dropped_packets += bytes / TS_PACKET_BYTES as u64,
        }
    }
}

/// Longest time by which the file lags behind the stream.
const FLUSH_AFTER: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use super::*;

    const PACKET: [u8; TS_PACKET_BYTES] = [0x47; TS_PACKET_BYTES];

    fn output(
        blocks: usize,
        rotation: Rotation,
    ) -> (StreamOutput, Arc<BlockPool>, Receiver<WriteCommand>) {
        let (orders, inbox) = channel();
        let pool = Arc::new(BlockPool::new(blocks * BLOCK_BYTES));
        (StreamOutput::new(7, pool.clone(), orders, rotation, Clock::HOST), pool, inbox)
    }

    /// Returns the sizes of the blocks handed over; `0` is a rotation, `usize::MAX` the end.
    fn sizes(pool: &BlockPool, inbox: &Receiver<WriteCommand>) -> Vec<usize> {
        let size = |order| match order {
            WriteCommand::Write { stream, block, .. } => {
                let bytes = block.len();
                pool.give(stream, block);
                bytes
            }
            WriteCommand::Rotate { .. } => 0,
            WriteCommand::End { .. } => usize::MAX,
        };
        inbox.try_iter().map(size).collect()
    }

    #[test]
    fn blocks_end_at_their_boundary_also_after_one_that_was_not_full() {
        let (mut output, pool, inbox) = output(8, Rotation::default());
        let at = Duration::from_secs;
        output.push(&PACKET.repeat(7), at(1));
        output.tick(at(1));
        assert!(sizes(&pool, &inbox).is_empty());
        output.tick(at(2));
        assert_eq!(sizes(&pool, &inbox), [7 * 188]);
        for _ in 0..292 {
            output.push(&PACKET.repeat(7), at(2));
        }
        assert_eq!(sizes(&pool, &inbox), [BLOCK_BYTES - 7 * 188, BLOCK_BYTES]);
        output.end();
        assert_eq!(sizes(&pool, &inbox), [(293 * 7 - 2048) * 188, usize::MAX]);
    }

    #[test]
    fn files_end_at_the_packet_that_fits_or_when_they_are_old() {
        let rotation = Rotation {
            bytes: Some(1000),
            time: Some(Duration::from_secs(10)),
            ..Rotation::default()
        };
        let (mut output, pool, inbox) = output(8, rotation);
        output.push(&PACKET.repeat(7), Duration::from_secs(1));
        assert_eq!(sizes(&pool, &inbox), [5 * 188, 0]);
        output.tick(Duration::from_secs(11));
        assert_eq!(sizes(&pool, &inbox), [2 * 188], "a start may still come");
        output.tick(Duration::from_secs(21));
        assert_eq!(sizes(&pool, &inbox), [0]);
        output.tick(Duration::from_secs(50));
        assert!(sizes(&pool, &inbox).is_empty(), "there is no file to end");
    }

    #[test]
    fn when_all_blocks_are_out_whole_packets_are_dropped_and_counted() {
        let (mut output, pool, inbox) = output(4, Rotation::default());
        let now = Duration::ZERO;
        for _ in 0..4 * 1024 + 10 {
            output.push(&PACKET, now);
        }
        assert_eq!(output.dropped_packets(), 10);
        assert_eq!(sizes(&pool, &inbox), [BLOCK_BYTES; 4]);
        output.push(&PACKET, now);
        output.end();
        assert_eq!((output.dropped_packets(), sizes(&pool, &inbox)[0]), (10, 188));
    }
    #[test]
    fn a_stream_that_the_writer_cannot_follow_leaves_the_others_their_share() {
        let (mut greedy, pool, inbox) = output(16, Rotation::default());
        let mut quiet = StreamOutput::new(
            8,
            pool.clone(),
            greedy.orders.clone(),
            Rotation::default(),
            Clock::HOST,
        );
        let block = PACKET.repeat(1024);
        quiet.push(&PACKET, Duration::ZERO);
        for _ in 0..16 {
            greedy.push(&block, Duration::ZERO);
        }
        assert_eq!(greedy.dropped_packets(), 7 * 1024, "half of the blocks and one wait");
        for _ in 0..6 {
            quiet.push(&block, Duration::ZERO);
        }
        assert_eq!(quiet.dropped_packets(), 0);
        // A stream alone may use all blocks.
        assert_eq!(sizes(&pool, &inbox).len(), 9 + 6);
        quiet.end();
        sizes(&pool, &inbox);
        for _ in 0..16 {
            greedy.push(&block, Duration::ZERO);
        }
        assert_eq!(greedy.dropped_packets(), 7 * 1024);
    }

    #[test]
    fn streams_that_fill_more_than_half_of_the_blocks_lose_nothing() {
        let (first, pool, inbox) = output(16, Rotation::default());
        let orders = first.orders.clone();
        let mut outputs = vec![first];
        outputs.extend((8..20).map(|stream| {
            StreamOutput::new(
                stream,
                pool.clone(),
                orders.clone(),
                Rotation::default(),
                Clock::HOST,
            )
        }));
        for _ in 0..3 * 1024 {
            outputs.iter_mut().for_each(|output| output.push(&PACKET, Duration::ZERO));
            // The writer empties the queue whenever more than two blocks wait.
            if pool.lock().out.waiting > 2 {
                for order in inbox.try_iter() {
                    if let WriteCommand::Write { stream, block, .. } = order {
                        pool.give(stream, block);
                    }
                }
            }
        }
        assert!(outputs.iter().all(|output| output.dropped_packets() == 0));
    }
}
