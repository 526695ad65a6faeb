// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread that writes the blocks of all streams into their files.
//!
//! The receiving thread must never wait for a disk; the writing thread only writes. Written bytes
//! are passed to the stream's scanner while they are in the cache, so that a file's plan is ready
//! when the file is, and the server need not read the file again. A full disk ends a stream: the
//! file is cut to the last whole packet or fragment, closed and planned, and later packets are
//! dropped and counted; the stream of a camera that is recorded for long is written again with its
//! next file. Costs one write call per block, and one more copy per byte, into the page cache.
//!
//! Another thread syncs files and stores plans, which may take seconds ([`crate::closer`]). A
//! bounded number of files waits for it: if files end faster than that, this thread waits, and
//! packets without a free block are dropped and counted.
//!
//! If the program is killed, Linux ends a write between two pages (`generic_perform_write`): the
//! file then has all earlier blocks and possibly a part of the last, and readers ignore the
//! incomplete packet at its end.
//!
//! Sources: write(2), ftruncate(2).
//! Does not use O_DIRECT: players of a growing file read it from the page cache. Does not separate
//! disks: all files wait for the slowest, and share the blocks.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use clock::Clock;
use media::mux::WriterKind;
use media::{Scanner, TS_PACKET_BYTES};

use crate::closer::CloseCommand;
use crate::file_names::{CreatedFile, FileNames};
use crate::fragment_ends::FragmentEnds;
use crate::write_queue::{BlockPool, WriteCommand};

/// Times at which files are synced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Files are not synced: the kernel decides when to write them.
    #[default]
    Never,
    /// A file is synced when it is complete.
    Rotate,
    /// A file is synced when it is complete, and at this interval while it grows.
    Every(Duration),
}

/// Counts of a stream's written bytes, and its file.
#[derive(Debug, Default)]
pub(crate) struct WriteStats {
    pub(crate) bytes: AtomicU64,
    pub(crate) files: AtomicU64,
    /// Packets of a transport stream that arrived after writing had failed, and bytes of MP4.
    pub(crate) dropped_packets: AtomicU64,
    pub(crate) dropped_bytes: AtomicU64,
    pub(crate) has_failed: AtomicBool,
    /// The current file, or the last.
    pub(crate) path: Mutex<Option<PathBuf>>,
    /// Reason why writing has failed.
    pub(crate) failure: Mutex<Option<String>>,
}

/// Files of one stream.
pub(crate) struct StreamFiles {
    names: FileNames,
    kind: WriterKind,
    open: Option<OpenFile>,
    written: Arc<WriteStats>,
    /// True if a failed stream is written again with its next file.
    resumes: bool,
}

struct OpenFile {
    file: Arc<File>,
    path: PathBuf,
    is_regular: bool,
    scan: FileScan,
    synced: Instant,
    /// True while a sync is under way.
    is_syncing: Arc<AtomicBool>,
}

/// Scan of the bytes of a file while they are written.
enum FileScan {
    /// The plan of a transport stream, and the bytes of its whole packets.
    Packets(Box<Scanner>, u64),
    /// The ends of the fragments of MP4.
    Fragments(FragmentEnds),
}

impl FileScan {
    fn new(kind: WriterKind) -> FileScan {
        match kind {
            WriterKind::FragmentedMp4 => FileScan::Fragments(FragmentEnds::default()),
            _ => FileScan::Packets(Box::new(Scanner::new()), 0),
        }
    }

    /// Scans bytes that were written; returns how many of them count: whole packets, or all.
    fn feed(&mut self, written: &[u8]) -> usize {
        match self {
            FileScan::Packets(scanner, bytes) => {
                let whole = written.len() - written.len() % TS_PACKET_BYTES;
                scanner.feed(&written[..whole]);
                *bytes += whole as u64;
                whole
            }
            FileScan::Fragments(ends) => {
                ends.feed(written);
                written.len()
            }
        }
    }

    /// Bytes that were fed and lie behind the last whole packet or fragment.
    fn unfinished_bytes(&self) -> u64 {
        match self {
            FileScan::Packets(..) => 0,
            FileScan::Fragments(ends) => ends.unfinished_bytes(),
        }
    }

    /// True if a whole packet or fragment was fed.
    fn can_be_played(&self) -> bool {
        match self {
            FileScan::Packets(_, bytes) => *bytes > 0,
            FileScan::Fragments(ends) => ends.has_fragment(),
        }
    }

    /// Length of the file up to its last whole packet or fragment.
    fn whole_bytes(&self) -> u64 {
        match self {
            FileScan::Packets(_, bytes) => *bytes,
            FileScan::Fragments(ends) => ends.whole_bytes(),
        }
    }
}

impl WriteStats {
    /// Counts bytes that are not written.
    fn drop_bytes(&self, kind: WriterKind, bytes: usize) {
        let (count, of_bytes) = match kind {
            WriterKind::FragmentedMp4 => (&self.dropped_bytes, 1),
            _ => (&self.dropped_packets, TS_PACKET_BYTES),
        };
        count.fetch_add((bytes / of_bytes) as u64, Ordering::Relaxed);
    }
}

impl StreamFiles {
    pub(crate) fn new(names: FileNames, kind: WriterKind, written: Arc<WriteStats>) -> StreamFiles {
        StreamFiles { names, kind, open: None, written, resumes: false }
    }

    /// Has a failed stream written again with its next file.
    pub(crate) fn resuming(self) -> StreamFiles {
        StreamFiles { resumes: true, ..self }
    }

    /// Removes the file if nothing of it can be played; returns true then. A file would be left by
    /// each attempt on a full disk otherwise.
    fn remove_empty(&mut self) -> bool {
        let is_empty = |open: &mut OpenFile| open.is_regular && !open.scan.can_be_played();
        let Some(open) = self.open.take_if(is_empty) else { return false };
        if let Err(error) = std::fs::remove_file(&open.path) {
            tracing::error!("unlink {}: {error}", open.path.display());
        }
        self.written.files.fetch_sub(1, Ordering::Relaxed);
        self.written.bytes.fetch_sub(open.scan.whole_bytes(), Ordering::Relaxed);
        true
    }

    /// Prepares for the next file.
    fn begin_next(&self) {
        if self.resumes {
            self.written.has_failed.store(false, Ordering::Relaxed);
        }
    }
}

/// State of the thread.
pub(crate) struct Writer {
    pub(crate) lanes: Vec<Option<StreamFiles>>,
    pub(crate) pool: Arc<BlockPool>,
    pub(crate) sync: SyncPolicy,
    pub(crate) closer: SyncSender<CloseCommand>,
    pub(crate) clock: Clock,
}

impl Writer {
    /// Writes until all senders of commands are dropped.
    pub(crate) fn run(mut self, orders: &Receiver<WriteCommand>) {
        for order in orders {
            self.handle(order);
        }
        self.finish();
    }

    /// Handles a command.
    pub(crate) fn handle(&mut self, order: WriteCommand) {
        match order {
            WriteCommand::Write { stream, block, file_began } => {
                self.write(stream, &block, file_began);
                self.pool.give(stream, block);
            }
            WriteCommand::Rotate { stream } => {
                // A pipe or device stays open: there is no other file of that name.
                let Some(lane) = &self.lanes[stream] else { return };
                lane.begin_next();
                if lane.open.as_ref().is_some_and(|open| open.is_regular) {
                    self.close(stream);
                }
            }
            WriteCommand::End { stream } => self.close(stream),
        }
    }

    /// Closes all files.
    pub(crate) fn finish(&mut self) {
        for stream in 0..self.lanes.len() {
            self.close(stream);
        }
    }

    fn write(&mut self, stream: usize, block: &[u8], file_began: SystemTime) {
        let Some(Some(lane)) = self.lanes.get_mut(stream) else { return };
        let written = lane.written.clone();
        if written.has_failed.load(Ordering::Relaxed) {
            return written.drop_bytes(lane.kind, block.len());
        }
        let (appended, outcome) = lane.append(block, file_began, &self.clock);
        written.bytes.fetch_add(appended as u64, Ordering::Relaxed);
        if let Err((failure, cut_bytes)) = outcome {
            written.bytes.fetch_sub(cut_bytes, Ordering::Relaxed);
            written.drop_bytes(lane.kind, block.len() - appended + cut_bytes as usize);
            let end = if lane.resumes { UNTIL_NEXT } else { ENDED };
            tracing::error!("{failure}; what was written is intact, {end}");
            *written.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
            written.has_failed.store(true, Ordering::Relaxed);
            if lane.resumes && lane.remove_empty() {
                return;
            }
            return self.close(stream);
        }
        if let (SyncPolicy::Every(every), Some(open)) = (self.sync, &mut lane.open) {
            open.sync_if_due(every, &self.closer, self.clock.now());
        }
    }

    fn close(&mut self, stream: usize) {
        let Some(Some(lane)) = self.lanes.get_mut(stream) else { return };
        let Some(open) = lane.open.take() else { return };
        if open.is_regular {
            let close = CloseCommand::File {
                stream,
                file: open.file,
                path: open.path,
                scanner: match open.scan {
                    FileScan::Packets(scanner, _) => Some(scanner),
                    FileScan::Fragments(_) => None,
                },
                is_synced: self.sync != SyncPolicy::Never,
            };
            // The closer outlives this thread.
            let _ = self.closer.send(close);
        }
    }
}

impl StreamFiles {
    /// Appends to the file, which is created if there is none. Returns the number of bytes
    /// appended, in whole packets; if that is not the whole block, the reason, and the bytes of a
    /// fragment that were cut off.
    fn append(
        &mut self,
        block: &[u8],
        file_began: SystemTime,
        clock: &Clock,
    ) -> (usize, Result<(), (String, u64)>) {
        let open = match self.open.take() {
            Some(open) => open,
            None => match self.names.make(file_began) {
                Ok(made) => self.begin(made, clock.now()),
                Err(error) => {
                    let folder = self.names.folder().display();
                    let failure = format!("making a file in {folder}: {error}");
                    return (0, Err((failure, 0)));
                }
            },
        };
        let open = self.open.insert(open);
        let (appended, outcome) = append(&open.file, block);
        let kept = open.scan.feed(&block[..appended]);
        let Err(error) = outcome else { return (kept, Ok(())) };
        let (mut failure, mut cut_bytes) = (format!("write {}: {error}", open.path.display()), 0);
        if open.is_regular {
            match open.file.set_len(open.scan.whole_bytes()) {
                Ok(()) => cut_bytes = open.scan.unfinished_bytes(),
                Err(error) => {
                    failure.push_str(&format!("; cutting it to its whole part: {error}"));
                }
            }
        }
        (kept, Err((failure, cut_bytes)))
    }

    fn begin(&self, made: CreatedFile, now: Instant) -> OpenFile {
        self.written.files.fetch_add(1, Ordering::Relaxed);
        tracing::info!("{}: begun", made.path.display());
        let mut path = self.written.path.lock().unwrap_or_else(PoisonError::into_inner);
        *path = Some(made.path.clone());
        OpenFile {
            file: Arc::new(made.file),
            path: made.path,
            is_regular: made.is_regular,
            scan: FileScan::new(self.kind),
            synced: now,
            is_syncing: Arc::default(),
        }
    }
}

impl OpenFile {
    fn sync_if_due(&mut self, every: Duration, closer: &SyncSender<CloseCommand>, now: Instant) {
        if self.is_regular
            && now.saturating_duration_since(self.synced) >= every
            && !self.is_syncing.swap(true, Ordering::Relaxed)
        {
            let (file, path) = (self.file.clone(), self.path.clone());
            let sync = CloseCommand::Sync { file, path, is_syncing: self.is_syncing.clone() };
            match closer.try_send(sync) {
                Ok(()) => self.synced = now,
                // The sync is retried with one of the next blocks.
                Err(_) => self.is_syncing.store(false, Ordering::Relaxed),
            }
        }
    }
}

const ENDED: &str = "the stream is ended";
const UNTIL_NEXT: &str = "and another file is tried soon";

/// Writes as `write_all` does, and also returns the number of bytes written if it fails.
fn append(mut file: &File, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{channel, sync_channel};

    use super::*;
    use crate::write_queue::BLOCK_BYTES;

    #[test]
    fn a_camera_whose_file_could_not_be_made_is_written_again_with_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let mut camera =
            recordings::CameraFiles::new("door".to_owned(), folder.path().join("door"));
        camera.is_mp4 = false;
        // A file is in the place of the folder.
        std::fs::write(&camera.folder, "x").unwrap();
        let written = Arc::new(WriteStats::default());
        let files = StreamFiles::new(FileNames::of_camera(&camera), camera.kind(), written.clone());
        let (closer, closes) = sync_channel(8);
        let pool = Arc::new(BlockPool::new(8 * BLOCK_BYTES));
        let lanes = vec![Some(files.resuming())];
        let (sync, clock) = (SyncPolicy::Never, Clock::HOST);
        let mut writer = Writer { lanes, pool, sync, closer, clock };
        let packet = [0x47; TS_PACKET_BYTES];
        let began = SystemTime::UNIX_EPOCH;
        for dropped in 1..=2 {
            writer.write(0, &packet, began);
            assert!(written.has_failed.load(Ordering::Relaxed));
            assert_eq!(written.dropped_packets.load(Ordering::Relaxed), dropped);
        }
        std::fs::remove_file(&camera.folder).unwrap();
        std::fs::create_dir(&camera.folder).unwrap();
        writer.write(0, &packet, began);
        let (orders, inbox) = channel();
        orders.send(WriteCommand::Rotate { stream: 0 }).unwrap();
        let mut block = writer.pool.take(0).expect("there are some");
        writer.pool.hand_over(0);
        block.extend_from_slice(&packet);
        orders.send(WriteCommand::Write { stream: 0, block, file_began: began }).unwrap();
        drop(orders);
        writer.run(&inbox);
        assert!(!written.has_failed.load(Ordering::Relaxed));
        let Ok(CloseCommand::File { path, .. }) = closes.recv() else { panic!("a file") };
        assert!(path.ends_with("door/door-19700101T000000Z.ts"), "{path:?}");
        assert_eq!(std::fs::read(path).unwrap(), packet);
    }

    fn made(file: File, path: &std::path::Path) -> CreatedFile {
        CreatedFile { file, path: path.to_owned(), is_regular: true }
    }

    #[test]
    fn a_file_without_a_whole_fragment_is_removed_after_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = StreamFiles::new(
            FileNames::new("unused.mp4", "a", 0),
            WriterKind::FragmentedMp4,
            Arc::default(),
        )
        .resuming();
        for (name, fragment, is_removed) in [("a", false, true), ("b", true, false)] {
            let path = folder.path().join(name);
            std::fs::write(&path, "x").unwrap();
            let file = File::open(&path).unwrap();
            let mut open = files.begin(made(file, &path), Clock::HOST.now());
            open.scan.feed(b"\0\0\0\x08moov\0\0\0\x08moof");
            if fragment {
                open.scan.feed(b"\0\0\0\x08mdat");
            }
            files.open = Some(open);
            assert_eq!(files.remove_empty(), is_removed, "{name}");
            assert_eq!((path.exists(), files.open.is_some()), (!is_removed, !is_removed));
        }
        assert_eq!(files.written.files.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn files_that_wait_for_the_closer_are_bounded_in_number() {
        const BOUND: u64 = 2;
        const FILES: u64 = 50;
        let folder = tempfile::tempdir().unwrap();
        let pattern = folder.path().join("{number}.ts").display().to_string();
        let written = Arc::new(WriteStats::default());
        let files = StreamFiles::new(
            FileNames::new(&pattern, "a", 0),
            WriterKind::TransportStream,
            written.clone(),
        );
        let (closer, closes) = sync_channel(BOUND as usize);
        let pool = Arc::new(BlockPool::new(FILES as usize * BLOCK_BYTES));
        let (lanes, sync) = (vec![Some(files)], SyncPolicy::Never);
        let writer = Writer { lanes, pool: pool.clone(), sync, closer, clock: Clock::HOST };
        let (orders, inbox) = channel();
        let writing = std::thread::spawn(move || writer.run(&inbox));
        for _ in 0..FILES {
            let mut block = pool.take(0).expect("there are as many");
            block.extend_from_slice(&[0x47; TS_PACKET_BYTES]);
            pool.hand_over(0);
            let file_began = SystemTime::UNIX_EPOCH;
            orders.send(WriteCommand::Write { stream: 0, block, file_began }).unwrap();
            orders.send(WriteCommand::Rotate { stream: 0 }).unwrap();
        }
        drop(orders);
        // One more file has been written and waits for room in the channel.
        let begun = || written.files.load(Ordering::Relaxed);
        while begun() <= BOUND {
            std::thread::yield_now();
        }
        for closed in 1..=FILES {
            assert!(matches!(closes.recv(), Ok(CloseCommand::File { .. })));
            assert!(begun() <= closed + BOUND + 1, "{} begun, {closed} closed", begun());
        }
        writing.join().unwrap();
    }
}
