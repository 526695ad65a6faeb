// SPDX-License-Identifier: MIT OR Apache-2.0
//! The traffic that receive experiments receive: bursts of RTP packets to many ports alternately.
//!
//! A burst leaves as one segmented send or as one send a packet. Both use the path `mmap_gso`, so
//! the kernel uses the same kind of buffer and only the number of packets a call differs.
//!
//! Sources: udp(7) (`UDP_SEGMENT`).
//! Does not count received packets; each packet sent can be computed ([`BurstFeed::coming`]).

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;

use paths::{Batch, Destination, Piece, SendError, SendStats, StreamPath};

use crate::error::Error;
use crate::fixture::{Fixture, HEADER_BYTES, header};
use crate::sender::{destination, usual_path};

/// Number of sends for a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sending {
    /// One segmented send (GSO).
    Joined,
    /// One send a packet.
    Apart,
}

impl Sending {
    /// Returns its name in results.
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
    /// Packets of a burst.
    burst: u32,
    /// Packets of a stream in a turn: a few bursts.
    packets: u32,
    sending: Sending,
    next: u64,
    heads: Vec<u8>,
    /// Totals of all turns so far.
    pub stats: SendStats,
}

impl<'a> BurstFeed<'a> {
    /// Opens a sender: a turn has `bursts` of `burst` packets of `datagram_bytes`, header included,
    /// for each address of `to`.
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

    /// Returns the packets of the fixture that `stream` gets next.
    pub fn coming(&self, stream: usize) -> Range<u64> {
        let packets = self.fixture.packets(self.datagram_bytes) - u64::from(self.packets);
        let first = (self.next + stream as u64 * APART) % packets;
        first..first + u64::from(self.packets)
    }

    /// Sends a turn to each destination; returns the number of packets sent.
    pub fn turn(&mut self) -> Result<u64, Error> {
        let before = self.stats.packets;
        let payload_bytes = u64::from(self.datagram_bytes - HEADER_BYTES);
        for stream in 0..self.to.len() {
            let packets = self.coming(stream);
            // Single packets are one batch each, so that the path does not join them.
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
                    Ok(accepted) if u64::from(accepted) == each => {}
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

/// Distance in packets between the places in the file that two neighbouring streams read.
const APART: u64 = 1489;
