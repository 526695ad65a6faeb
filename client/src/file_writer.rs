// SPDX-License-Identifier: MIT OR Apache-2.0
//! The output file of a played stream.
//!
//! The receiving thread must never wait for a disk: it gathers payloads in blocks and passes full
//! blocks to a writing thread. When the queue of that thread is full, blocks are dropped and their
//! bytes counted, so the verdict reports that the file is incomplete. Costs one copy a byte, one
//! write call a block, and at most the queue's 32 MiB.
//!
//! Does not wait until the bytes are on the disk (fsync).

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::output_end::OutputEnd;
use crate::error::Error;

/// A file being written.
pub(super) struct FileWriter {
    path: PathBuf,
    block: Vec<u8>,
    blocks: SyncSender<Vec<u8>>,
    /// Returns the number of bytes left out.
    thread: JoinHandle<io::Result<u64>>,
    taken_bytes: u64,
    left_out_bytes: u64,
    /// The thread has failed; its reason is known at the end.
    is_broken: bool,
}

/// Result of writing a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WrittenFile {
    pub(super) bytes: u64,
    /// Bytes left out because the queue to the disk was full, or because the file was given up.
    pub(super) left_out_bytes: u64,
}

impl FileWriter {
    /// Creates the file, or empties an existing one.
    pub(super) fn create(path: &Path, end: &OutputEnd) -> Result<FileWriter, Error> {
        FileWriter::to(path, create(path)?, end)
    }

    fn to(
        path: &Path,
        file: impl Write + Send + 'static,
        end: &OutputEnd,
    ) -> Result<FileWriter, Error> {
        let (blocks, queue) = sync_channel(QUEUE_BLOCKS);
        let end = end.clone();
        let thread = std::thread::Builder::new()
            .name("output".to_owned())
            .spawn(move || write(file, &queue, &end))
            .map_err(|source| Error::Host {
                call: "clone",
                object: "thread output".into(),
                source,
            })?;
        Ok(FileWriter {
            path: path.to_owned(),
            block: Vec::with_capacity(BLOCK_BYTES),
            blocks,
            thread,
            taken_bytes: 0,
            left_out_bytes: 0,
            is_broken: false,
        })
    }

    /// Appends bytes. Never waits.
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = BLOCK_BYTES - self.block.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK_BYTES {
                self.hand_over();
            }
        }
    }

    /// Returns true once writing has failed.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Writes the rest and closes the file. Waits for the disk.
    pub(super) fn finish(mut self) -> Result<WrittenFile, Error> {
        let bytes = self.block.len() as u64;
        // The send fails only after the thread has failed, which the join below reports.
        if bytes > 0 && self.blocks.send(std::mem::take(&mut self.block)).is_ok() {
            self.taken_bytes += bytes;
        }
        drop(self.blocks);
        let ended = self.thread.join();
        let ended = ended.unwrap_or_else(|_| Err(io::Error::other("the writing thread panicked")));
        let left_out = ended.map_err(|source| Error::on_file("write", &self.path, source))?;
        let bytes = self.taken_bytes - left_out;
        Ok(WrittenFile { bytes, left_out_bytes: self.left_out_bytes + left_out })
    }

    fn hand_over(&mut self) {
        let block = std::mem::replace(&mut self.block, Vec::with_capacity(BLOCK_BYTES));
        let bytes = block.len() as u64;
        match self.blocks.try_send(block) {
            Ok(()) => self.taken_bytes += bytes,
            Err(TrySendError::Full(_)) => self.left_out_bytes += bytes,
            Err(TrySendError::Disconnected(_)) => self.is_broken = true,
        }
    }
}

/// Creates a file, or empties an existing one. Never blocks for the reader of a pipe.
pub(super) fn create(path: &Path) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let opened = options.custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path);
    let blocking = |file: File| {
        fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
        Ok(file)
    };
    opened.and_then(blocking).map_err(|source| {
        let has_no_reader = source.raw_os_error() == Some(Errno::NXIO.raw_os_error());
        let words = "nobody reads this pipe; start its reader first";
        Error::on_file("open", path, if has_no_reader { io::Error::other(words) } else { source })
    })
}

/// Writes blocks until all senders are dropped; returns the number of bytes left out.
fn write(mut file: impl Write, queue: &Receiver<Vec<u8>>, end: &OutputEnd) -> io::Result<u64> {
    let mut left_out = 0;
    for block in queue {
        match end.is_given_up() {
            true => left_out += block.len() as u64,
            false => file.write_all(&block)?,
        }
    }
    file.flush()?;
    Ok(left_out)
}

const BLOCK_BYTES: usize = 256 << 10;
/// 32 MiB: a disk may stall for ten seconds of a 25 Mb/s stream.
const QUEUE_BLOCKS: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_is_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.ts");
        let bytes: Vec<u8> = (0..BLOCK_BYTES * 2 + 1316).map(|n| (n * 31 % 251) as u8).collect();
        let mut output = FileWriter::create(&path, &OutputEnd::default()).unwrap();
        for payload in bytes.chunks(1316) {
            output.push(payload);
        }
        let written = output.finish().unwrap();
        assert_eq!(written, WrittenFile { bytes: bytes.len() as u64, left_out_bytes: 0 });
        assert!(std::fs::read(&path).unwrap() == bytes);
    }

    #[test]
    fn a_pipe_without_a_reader_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        rustix::fs::mkfifoat(
            rustix::fs::CWD,
            &path,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        )
        .unwrap();
        let refusal = FileWriter::create(&path, &OutputEnd::default())
            .err()
            .expect("nobody reads")
            .to_string();
        assert!(refusal.contains("start its reader first"), "{refusal}");
        let reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let file = create(&path).unwrap();
        assert!(!fcntl_getfl(&file).unwrap().contains(OFlags::NONBLOCK));
        drop(reader);
    }

    /// A disk that stalls until the test releases it.
    struct Stuck(Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // An error means that the test has dropped its end.
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_disk_that_stands_still_costs_counted_bytes_and_no_wait() {
        let (go, gate) = sync_channel(0);
        let mut output =
            FileWriter::to(Path::new("stuck"), Stuck(gate), &OutputEnd::default()).unwrap();
        let block = vec![0; BLOCK_BYTES];
        let blocks = QUEUE_BLOCKS + 10;
        for _ in 0..blocks {
            output.push(&block);
        }
        drop(go);
        let written = output.finish().unwrap();
        assert_eq!(written.bytes + written.left_out_bytes, (blocks * BLOCK_BYTES) as u64);
        // The writer may hold one block beside those in the queue.
        assert!(written.left_out_bytes >= 9 * BLOCK_BYTES as u64, "{written:?}");
    }

    #[test]
    fn bytes_that_wait_are_left_out_and_counted_where_nobody_waits_for_the_file() {
        let (go, gate) = sync_channel(0);
        let end = OutputEnd::default();
        let mut output = FileWriter::to(Path::new("stuck"), Stuck(gate), &end).unwrap();
        (0..10).for_each(|_| output.push(&[0; BLOCK_BYTES]));
        output.push(&[0; 100]);
        end.give_up();
        drop(go);
        let written = output.finish().unwrap();
        assert_eq!(written.bytes + written.left_out_bytes, 10 * BLOCK_BYTES as u64 + 100);
        // The writer may have held one block.
        assert!(written.bytes <= BLOCK_BYTES as u64, "{written:?}");
    }

    #[test]
    fn a_full_disk_is_told_with_its_file() {
        let path = Path::new("/dev/full");
        if !path.exists() {
            eprintln!("skip: there is no /dev/full");
            return;
        }
        let mut output = FileWriter::create(path, &OutputEnd::default()).unwrap();
        output.push(&[0; 1316]);
        let error = output.finish().unwrap_err().to_string();
        assert!(error.starts_with("write /dev/full: No space left on device"), "{error}");
    }

    #[test]
    fn a_folder_that_is_not_there_is_told() {
        let error = FileWriter::create(Path::new("/nowhere/out.ts"), &OutputEnd::default())
            .map(|_| ())
            .unwrap_err();
        assert!(error.to_string().starts_with("open /nowhere/out.ts: No such file"), "{error}");
    }
}
