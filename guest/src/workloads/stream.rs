// SPDX-License-Identifier: MIT OR Apache-2.0
//! Common part of pipes and sockets: a block is written into one end and read from the other by the
//! same process, over and over.
//!
//! One process, so that no switch of the scheduler is measured with the copies. Neither end waits:
//! what the kernel takes is read before more is given, so a block may be larger than its buffers.
//! Every block carries its number, and the last one is compared byte by byte.

use std::os::fd::OwnedFd;

use rustix::io::{Errno, read, write};

use super::buffer::Buffer;
use super::{Amount, Workload, pattern};
use crate::error::{Error, same, same_bytes};
use crate::protocol::WorkDone;

/// Blocks through two ends of something.
pub(super) struct StreamEnds {
    name: &'static str,
    source: OwnedFd,
    target: OwnedFd,
    sent: Buffer,
    received: Buffer,
    blocks: u64,
}

impl StreamEnds {
    /// `source` is written to and what was written comes out of `target`.
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
