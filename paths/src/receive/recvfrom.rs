// SPDX-License-Identifier: MIT OR Apache-2.0
//! One call a datagram, the reference.
//!
//! The method of a plain program. Costs a system call and a copy for each datagram, and one more
//! call that finds the socket empty. This call does not return the kernel's timestamp of a
//! datagram.
//!
//! Sources: `recvfrom(2)`.
//!
//! Is not optimised.

use std::net::SocketAddr;
use std::time::Duration;

use crate::error::Error;
use crate::receive::sockets::{DATAGRAM_BYTES_MAX, SocketOptions, Sockets, Turn};
use crate::receive::{Port, ReceivePath, ReceiveSpec, ReceiveStats, ReceivedRun};
use crate::spec::{SystemCalls, Via};
use crate::sys;

pub(crate) static SPEC: ReceiveSpec = ReceiveSpec {
    name: "recvfrom",
    summary: "one call a datagram; the reference",
    copies_per_byte: 1,
    system_calls: SystemCalls::PerPacket(1),
    via: Via::Socket,
    sources: &["recvfrom(2)"],
    probe: |_| Ok(()),
    open: || Ok(Box::new(Recvfrom::new()?)),
};

/// Datagrams that a port hands over before another has its turn.
const TURN: usize = 64;

#[derive(Debug)]
struct Recvfrom {
    sockets: Sockets,
    room: Box<[u8]>,
}

impl Recvfrom {
    fn new() -> Result<Self, Error> {
        let room = vec![0; DATAGRAM_BYTES_MAX].into_boxed_slice();
        Ok(Self { sockets: Sockets::new(SocketOptions::default())?, room })
    }
}

impl ReceivePath for Recvfrom {
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
        let Self { sockets, room } = self;
        sockets.receive(wait, |bound, stats| {
            for packets in 0..TURN {
                let (bytes, source) = match sys::receive_one(bound.as_fd(), room, stats) {
                    Ok(one) => one,
                    // The datagrams before it have been handed over.
                    Err(_) if packets > 0 => return Ok(Turn { packets, is_full: false }),
                    Err(errno) => return Err(errno),
                };
                stats.copied_bytes += bytes.min(room.len()) as u64;
                let (Some(bytes), Some(source)) = (room.get(..bytes), source) else {
                    stats.truncated += 1;
                    continue;
                };
                stats.packets += 1;
                stats.bytes += bytes.len() as u64;
                each(&[ReceivedRun {
                    key: bound.key,
                    source,
                    bytes,
                    segment_bytes: 0,
                    time: None,
                }]);
            }
            Ok(Turn { packets: TURN, is_full: true })
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
