// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is received: bursts of RTP packets to many ports in turn, by one path of ours.
//!
//! A burst leaves as one segmented send or as a send a packet; both are `mmap_gso`, so that the
//! packets lie in the same buffers of the kernel's and only their number a call differs.
//!
//! Sources: udp(7) (`UDP_SEGMENT`).
//! Does not do: count what arrives; what it sent is known by packet.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;

use paths::{Batch, Destination, Piece, SendError, SendStats, StreamPath};

use crate::error::Error;
use crate::fixture::{Fixture, HEADER_BYTES, header};
use crate::sender::{destination, usual_path};

/// How a burst leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sending {
    /// A segmented send for a burst (GSO).
    Joined,
    /// A send for each packet.
    Apart,
}

impl Sending {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Joined => "gso",
            Self::Apart => "single",
        }
    }
}

/// A sender with its destinations.
pub struct BurstFeed<'a> {
    path: Box<dyn StreamPath>,
    to: Vec<Destination>,
    fixture: &'a Fixture,
    datagram_bytes: u32,
    /// Packets that leave together.
    burst: u32,
    /// Packets of a stream in a turn: some bursts.
    packets: u32,
    sending: Sending,
    next: u64,
    heads: Vec<u8>,
    /// Sums over all turns so far.
    pub stats: SendStats,
}

impl<'a> BurstFeed<'a> {
    /// In a turn `bursts` of `burst` packets of `datagram_bytes`, header included, to each of `to`.
    pub fn new(
        fixture: &'a Fixture,
        (datagram_bytes, burst, bursts): (u32, u32, u32),
        sending: Sending,
        to: &[SocketAddr],
    ) -> Result<BurstFeed<'a>, Error> {
        let path = usual_path()?;
        let mut destinations = Vec::with_capacity(to.len());
        for address in to {
            let mut destination = destination(Ipv4Addr::UNSPECIFIED, *address)?;
            destination.limit_segments(if sending == Sending::Joined { burst } else { 1 });
            destinations.push(destination);
        }
        Ok(BurstFeed {
            path,
            to: destinations,
            fixture,
            datagram_bytes,
            burst,
            packets: burst * bursts,
            sending,
            next: 0,
            heads: Vec::new(),
            stats: SendStats::default(),
        })
    }

    /// The packets of the fixture that stream `stream` gets next.
    pub fn coming(&self, stream: usize) -> Range<u64> {
        let packets = self.fixture.packets(self.datagram_bytes) - u64::from(self.packets);
        let first = (self.next + stream as u64 * APART) % packets;
        first..first + u64::from(self.packets)
    }

    /// A turn of each; returns how many packets left.
    pub fn turn(&mut self) -> Result<u64, Error> {
        let before = self.stats.packets;
        let payload_bytes = u64::from(self.datagram_bytes - HEADER_BYTES);
        for stream in 0..self.to.len() {
            let packets = self.coming(stream);
            // A burst that is sent packet by packet is as many batches: the path joins none.
            let each = if self.sending == Sending::Joined { u64::from(self.burst) } else { 1 };
            for first in packets.step_by(each as usize) {
                self.heads.clear();
                self.heads.extend((first..first + each).flat_map(header));
                let (offset, bytes) = (first * payload_bytes, each * payload_bytes);
                let pieces = [Piece { offset, bytes }];
                let size = self.datagram_bytes;
                let batch =
                    Batch::gathered(&self.fixture.file, each as u32, size, &self.heads, &pieces);
                let sent = self.path.send(&batch, &mut self.to[stream], &mut self.stats);
                match sent {
                    Ok(taken) if u64::from(taken) == each => {}
                    Ok(_) | Err(SendError::Blocked) => {
                        return Err(wrong("the sender's own socket is full".to_owned()));
                    }
                    Err(error) => return Err(wrong(error.to_string())),
                }
            }
        }
        self.next += u64::from(self.packets);
        Ok(self.stats.packets - before)
    }
}

fn wrong(found: String) -> Error {
    Error::Wrong { member: "the sender".to_owned(), found }
}

/// Streams get packets from places of the file that are as far apart.
const APART: u64 = 1489;
