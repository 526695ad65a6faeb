// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies one file to another by read and write, after UnixBench: three buffer sizes, each with its
//! file size, repeatedly.
//!
//! Sources: UnixBench 5.1.3 `Run` (fstime, fsbuffer, fsdisk: buffers and blocks).

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::buffer::Buffer;
use super::{Amount, MIX, Workload, WorkloadSpec, pattern};
use crate::error::{Error, same_bytes};
use crate::protocol::WorkDone;
use crate::settings::GuestSettings;

pub(super) static FILE_COPY_1024: WorkloadSpec = spec::<1024, 2000>("file_copy_1024", 16 << 20);
pub(super) static FILE_COPY_256: WorkloadSpec = spec::<256, 500>("file_copy_256", 4 << 20);
pub(super) static FILE_COPY_4096: WorkloadSpec = spec::<4096, 8000>("file_copy_4096", 64 << 20);

const fn spec<const BUFFER: usize, const BLOCKS: u64>(
    name: &'static str,
    bytes: u64,
) -> WorkloadSpec {
    let amount = Amount::Bytes(bytes);
    WorkloadSpec { name, groups: MIX, amount, open: open::<BUFFER, BLOCKS> }
}

fn open<const BUFFER: usize, const BLOCKS: u64>(
    amount: Amount,
    _: &GuestSettings,
) -> Result<Box<dyn Workload>, Error> {
    Ok(Box::new(FileCopy {
        source: pattern::file(BUFFER as u64 * BLOCKS)?,
        target: pattern::empty_file()?,
        buffer: Buffer::zeros(BUFFER),
        blocks_of_file: BLOCKS,
        blocks: amount.turns(2 * BUFFER as u64, 2),
    }))
}

struct FileCopy {
    source: File,
    target: File,
    buffer: Buffer,
    blocks_of_file: u64,
    blocks: u64,
}

impl Workload for FileCopy {
    fn run(&mut self) -> Result<WorkDone, Error> {
        let bytes = self.buffer.len();
        for number in 0..self.blocks {
            let offset = number % self.blocks_of_file * bytes as u64;
            pattern::whole("pread", "file", bytes, self.source.read_at(&mut self.buffer, offset))?;
            pattern::whole("pwrite", "copy", bytes, self.target.write_at(&self.buffer, offset))?;
        }
        let calls = 2 * self.blocks;
        Ok(WorkDone { bytes: calls * bytes as u64, calls, packets: 0 })
    }

    fn check(&mut self) -> Result<(), Error> {
        let mut expected = vec![0; self.buffer.len()];
        for number in 0..self.blocks.min(self.blocks_of_file) {
            let offset = number * self.buffer.len() as u64;
            pattern::fill(&mut expected, offset);
            let outcome = self.target.read_at(&mut self.buffer, offset);
            pattern::whole("pread", "copy", expected.len(), outcome)?;
            same_bytes("copy of a file", &expected, &self.buffer)?;
        }
        Ok(())
    }
}
