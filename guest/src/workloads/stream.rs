// SPDX-License-Identifier: MIT OR Apache-2.0
//! Common part of pipes and sockets: the same process writes a block into one end and reads it from
//! the other, repeatedly.
//!
//! One process does both, so that the figures contain no context switch. Neither end blocks: the
//! process reads all bytes that the kernel has accepted before it writes more, so a block may be
//! larger than the kernel's buffers. Every block carries its number, and the last one is compared
//! byte by byte.

use std::os::fd::OwnedFd;

use rustix::io::{Errno, read, write};

use super::buffer::Buffer;
use super::{Amount, Workload, pattern};
use crate::error::{Error, same, same_bytes};
use crate::protocol::WorkDone;

/// Blocks through the two ends of a pipe or connection.
pub(super) struct StreamEnds {
    name: &'static str,
    source: OwnedFd,
    target: OwnedFd,
    sent: Buffer,
    received: Buffer,
    blocks: u64,
}

impl StreamEnds {
    /// Makes the workload; bytes written to `source` are read from `target`.
    pub(super) fn new(
        name: &'static str,
        (source, target): (OwnedFd, OwnedFd),
        block_bytes: usize,
        amount: Amount,
    ) -> Result<StreamEnds, Error> {
        for end in [&source, &target] {
            rustix::io::ioctl_fionbio(end, true).map_err(Error::host("ioctl FIONBIO", name))?;
        }
        Ok(StreamEnds {
            name,
            source,
            target,
            sent: pattern::buffer(block_bytes),
            received: Buffer::zeros(block_bytes),
            blocks: amount.turns(2 * block_bytes as u64, 2),
        })
    }
}

impl Workload for StreamEnds {
    fn run(&mut self) -> Result<WorkDone, Error> {
        let mut calls = 0;
        for number in 0..self.blocks {
            pattern::stamp(&mut self.sent, number);
            let (mut written, mut found) = (0, 0);
            while found < self.received.len() {
                if written < self.sent.len() {
                    calls += 1;
                    match write(&self.source, &self.sent[written..]) {
                        Ok(bytes) => written += bytes,
                        Err(Errno::AGAIN) => {}
                        Err(error) => return Err(Error::host("write", self.name)(error)),
                    }
                }
                calls += 1;
                match read(&self.target, &mut self.received[found..]) {
                    Ok(0) => return same(self.name, 1, 0).map(|()| WorkDone::default()),
                    Ok(bytes) => found += bytes,
                    Err(Errno::AGAIN) => {}
                    Err(error) => return Err(Error::host("read", self.name)(error)),
                }
            }
            if pattern::first(&self.received) != number {
                same(self.name, number, pattern::first(&self.received))?;
            }
        }
        Ok(WorkDone { bytes: self.blocks * 2 * self.sent.len() as u64, calls, packets: 0 })
    }

    fn check(&mut self) -> Result<(), Error> {
        same_bytes(self.name, &self.sent, &self.received)
    }
}
