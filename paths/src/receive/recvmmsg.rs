// SPDX-License-Identifier: MIT OR Apache-2.0
//! Up to 64 datagrams a call, each with its kernel timestamp.
//!
//! Saves system calls; the kernel's work for each datagram remains. Costs a copy a byte and a call
//! for up to 64 datagrams of a port: a call that returns fewer has emptied it.
//!
//! Sources: `recvmmsg(2)`, `socket(7)` (`SO_TIMESTAMPNS`).
//!
//! Does not receive joined runs.

use std::net::SocketAddr;
use std::time::Duration;

use crate::error::Error;
use crate::receive::sockets::{DATAGRAM_BYTES_MAX, SocketOptions, Sockets, Turn, hand_over};
use crate::receive::{Port, ReceivePath, ReceiveSpec, ReceiveStats, ReceivedRun};
use crate::spec::{SystemCalls, Via};
use crate::sys::{self, Slots};

pub(crate) static SPEC: ReceiveSpec = ReceiveSpec {
    name: "recvmmsg",
    summary: "up to 64 datagrams a call",
    copies_per_byte: 1,
    system_calls: SystemCalls::PerBatch(1),
    via: Via::Socket,
    sources: &["recvmmsg(2)"],
    probe: |host| host.needs_kernel(2, 6),
    open: || {
        Ok(Box::new(Recvmmsg::new(SocketOptions { time: true, joined: false, discard: false })?))
    },
};

/// Largest number of datagrams or runs of a call: 4 MiB of address space, touched as far as they
/// are used.
const SLOTS: usize = 64;

/// Receives many datagrams, or runs of them, a call.
#[derive(Debug)]
pub(super) struct Recvmmsg {
    sockets: Sockets,
    slots: Slots,
    burst: Vec<ReceivedRun<'static>>,
}

impl Recvmmsg {
    pub(super) fn new(options: SocketOptions) -> Result<Self, Error> {
        let sockets = Sockets::new(options)?;
        let burst = Vec::with_capacity(SLOTS);
        Ok(Self { sockets, slots: Slots::new(SLOTS, DATAGRAM_BYTES_MAX), burst })
    }
}

impl ReceivePath for Recvmmsg {
    fn add(&mut self, port: &Port, key: u32) -> Result<(), Error> {
        self.sockets.add(port, key)
    }

    fn remove(&mut self, key: u32) {
        self.sockets.remove(key);
    }

    fn address(&self, key: u32) -> Option<SocketAddr> {
        self.sockets.address(key)
    }

    fn receive(
        &mut self,
        wait: Duration,
        each: &mut dyn FnMut(&[ReceivedRun<'_>]),
    ) -> Result<usize, Error> {
        let Self { sockets, slots, burst } = self;
        sockets.receive(wait, |bound, stats| {
            let count = sys::receive_many(bound.as_fd(), slots, stats)?;
            let packets = hand_over((slots, count), bound.key, burst, stats, each);
            Ok(Turn { packets, is_full: count == SLOTS })
        })
    }

    fn pause_max(&self) -> Duration {
        self.sockets.pause_max()
    }

    fn stats(&self) -> ReceiveStats {
        self.sockets.stats
    }

    fn dropped(&self, key: u32) -> u64 {
        self.sockets.dropped(key)
    }
}
