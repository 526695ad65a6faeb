// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads and writes of a file of 4 MiB on tmpfs that is in memory already, repeatedly from its
//! beginning to its end, in blocks of 4 KiB to 1 MiB.
//!
//! Every copy is between a page of the file and the program's buffer, without a disk and without
//! allocation, so that the share of the copy in the time grows with the block. Reads check the
//! first and the last word of each block; written blocks are read back afterwards.
//!
//! The file fits the last-level cache. A file of about the size of that cache stays there in
//! varying parts, which depend on its pages and on other programs: 16 MiB in a cache of 32 MiB
//! spread three times as much. `file_bytes=` sets another size, in whole megabytes.
//!
//! Sources: tmpfs(5), pread(2); "SIMD in the OS kernel" (file workloads).
//!
//! Does not use a tmpfs on a host whose temporary folder is not one.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::buffer::Buffer;
use super::{Amount, FILES, LARGE_FILES, Workload, WorkloadSpec, pattern};
use crate::error::{Error, same};
use crate::protocol::WorkDone;
use crate::settings::GuestSettings;

const FILE_BYTES: u64 = 4 << 20;
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

pub(super) static READ_4K: WorkloadSpec = read::<{ 4 * KIB }>("tmpfs_read_4k", FILES, 64 << 20);
pub(super) static READ_16K: WorkloadSpec = read::<{ 16 * KIB }>("tmpfs_read_16k", FILES, 256 << 20);
pub(super) static READ_64K: WorkloadSpec = read::<{ 64 * KIB }>("tmpfs_read_64k", FILES, 512 << 20);
pub(super) static READ_256K: WorkloadSpec =
    read::<{ 256 * KIB }>("tmpfs_read_256k", LARGE_FILES, 2 << 30);
pub(super) static READ_1M: WorkloadSpec = read::<MIB>("tmpfs_read_1m", LARGE_FILES, 2 << 30);
pub(super) static WRITE_4K: WorkloadSpec = write::<{ 4 * KIB }>("tmpfs_write_4k", FILES, 64 << 20);
pub(super) static WRITE_16K: WorkloadSpec =
    write::<{ 16 * KIB }>("tmpfs_write_16k", FILES, 256 << 20);
pub(super) static WRITE_64K: WorkloadSpec =
    write::<{ 64 * KIB }>("tmpfs_write_64k", FILES, 512 << 20);
pub(super) static WRITE_256K: WorkloadSpec =
    write::<{ 256 * KIB }>("tmpfs_write_256k", LARGE_FILES, 2 << 30);
pub(super) static WRITE_1M: WorkloadSpec = write::<MIB>("tmpfs_write_1m", LARGE_FILES, 2 << 30);

type Groups = &'static [&'static str];

const fn read<const BLOCK: usize>(name: &'static str, groups: Groups, bytes: u64) -> WorkloadSpec {
    let amount = Amount::Bytes(bytes);
    WorkloadSpec {
        name,
        groups,
        amount,
        open: |amount, settings| Ok(Box::new(Read(BlockFile::open(BLOCK, amount, settings)?))),
    }
}

const fn write<const BLOCK: usize>(name: &'static str, groups: Groups, bytes: u64) -> WorkloadSpec {
    let amount = Amount::Bytes(bytes);
    WorkloadSpec {
        name,
        groups,
        amount,
        open: |amount, settings| Ok(Box::new(Write(BlockFile::open(BLOCK, amount, settings)?))),
    }
}

/// A file, and the number of its blocks to move.
struct BlockFile {
    file: File,
    file_bytes: u64,
    buffer: Buffer,
    count: u64,
}

impl BlockFile {
    fn open(
        block_bytes: usize,
        amount: Amount,
        settings: &GuestSettings,
    ) -> Result<BlockFile, Error> {
        // Rounds up, so that the file has whole blocks of every size.
        let file_bytes = settings.number("file_bytes").unwrap_or(FILE_BYTES);
        let file_bytes = file_bytes.next_multiple_of(MIB as u64);
        Ok(BlockFile {
            file: pattern::file(file_bytes)?,
            file_bytes,
            buffer: pattern::buffer(block_bytes),
            count: amount.turns(block_bytes as u64, 1),
        })
    }

    /// Returns the offset of the block with this number.
    fn offset(&self, number: u64) -> u64 {
        number * self.buffer.len() as u64 % self.file_bytes
    }

    fn work(&self) -> WorkDone {
        WorkDone { bytes: self.count * self.buffer.len() as u64, calls: self.count, packets: 0 }
    }

    fn read(&mut self, offset: u64) -> Result<(), Error> {
        let outcome = self.file.read_at(&mut self.buffer, offset);
        pattern::whole("pread", "tmpfs", self.buffer.len(), outcome)
    }

    /// Returns the offset of the last word of the block at `offset`.
    fn last(&self, offset: u64) -> u64 {
        offset + (self.buffer.len() - pattern::WORD_BYTES) as u64
    }
}

struct Read(BlockFile);

impl Workload for Read {
    fn run(&mut self) -> Result<WorkDone, Error> {
        let Read(blocks) = self;
        for number in 0..blocks.count {
            let offset = blocks.offset(number);
            blocks.read(offset)?;
            let found = (pattern::first(&blocks.buffer), pattern::last(&blocks.buffer));
            if found != (pattern::word(offset), pattern::word(blocks.last(offset))) {
                same("tmpfs: first word", pattern::word(offset), found.0)?;
                same("tmpfs: last word", pattern::word(blocks.last(offset)), found.1)?;
            }
        }
        Ok(blocks.work())
    }

    /// Checks all bytes of the last read.
    fn check(&mut self) -> Result<(), Error> {
        let Read(blocks) = self;
        let mut expected = vec![0; blocks.buffer.len()];
        pattern::fill(&mut expected, blocks.offset(blocks.count - 1));
        crate::error::same_bytes("tmpfs: last read", &expected, &blocks.buffer)
    }
}

struct Write(BlockFile);

impl Workload for Write {
    fn run(&mut self) -> Result<WorkDone, Error> {
        let Write(blocks) = self;
        for number in 0..blocks.count {
            pattern::stamp(&mut blocks.buffer, number);
            let outcome = blocks.file.write_at(&blocks.buffer, blocks.offset(number));
            pattern::whole("pwrite", "tmpfs", blocks.buffer.len(), outcome)?;
        }
        Ok(blocks.work())
    }

    /// Checks that the last block written to each place is there with its number.
    fn check(&mut self) -> Result<(), Error> {
        let Write(blocks) = self;
        let mut expected = pattern::buffer(blocks.buffer.len());
        let in_file = blocks.file_bytes / blocks.buffer.len() as u64;
        for number in blocks.count.saturating_sub(in_file)..blocks.count {
            blocks.read(blocks.offset(number))?;
            pattern::stamp(&mut expected, number);
            crate::error::same_bytes("tmpfs: read back", &expected, &blocks.buffer)?;
        }
        Ok(())
    }
}
