// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies through a pipe: program to page, page to program. A pipe's pages have 4 KiB, so no copy
//! in the kernel is larger, for any block size.
//!
//! `pipe_throughput` is that of UnixBench: blocks of 512 bytes.
//!
//! Sources: pipe(7); UnixBench 5.1.3 `pipe.c` (the size of its block).

use rustix::pipe::{PipeFlags, pipe_with};

use super::stream::StreamEnds;
use super::{Amount, COPIES, LARGE, MIX, Workload, WorkloadSpec};
use crate::error::Error;

pub(super) static PIPE_4K: WorkloadSpec = WorkloadSpec {
    name: "pipe_4k",
    groups: COPIES,
    amount: Amount::Bytes(64 << 20),
    open: |amount, _| open("pipe_4k", 4 << 10, amount),
};

pub(super) static PIPE_64K: WorkloadSpec = WorkloadSpec {
    name: "pipe_64k",
    groups: LARGE,
    amount: Amount::Bytes(512 << 20),
    open: |amount, _| open("pipe_64k", 64 << 10, amount),
};

pub(super) static PIPE_THROUGHPUT: WorkloadSpec = WorkloadSpec {
    name: "pipe_throughput",
    groups: MIX,
    amount: Amount::Calls(20_000),
    open: |amount, _| open("pipe_throughput", 512, amount),
};

fn open(
    name: &'static str,
    block_bytes: usize,
    amount: Amount,
) -> Result<Box<dyn Workload>, Error> {
    let (target, source) = pipe_with(PipeFlags::CLOEXEC).map_err(Error::host("pipe2", name))?;
    Ok(Box::new(StreamEnds::new(name, (source, target), block_bytes, amount)?))
}
