// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every way from a socket to memory, in one list ([`RECEIVE_PATHS`]), with the cost of each.
//!
//! The counterpart of [`crate::PATHS`]: a member claims its cost (copies a byte, system calls a
//! burst) and `tests/receive` compares the claims with counts ([`ReceiveStats`]). A path object
//! ([`ReceivePath`]) belongs to a receiving thread, receives for any number of ports and hands
//! datagrams over a burst at a time, in place: after the call the bytes belong to the path again.
//!
//! Sources: `recvmmsg(2)`, `udp(7)` (`UDP_GRO`), `packet(7)`, `io_uring(7)`;
//! `Documentation/networking/af_xdp.rst`; DPDK's path tables for the form.
//!
//! Does not interpret datagrams or put them in order.

mod awaited_ports;
mod filter;
mod frames;
mod packet_ring;
mod pause;
mod program;
mod recvfrom;
mod recvmmsg;
mod recvmmsg_gro;
mod sockets;
mod taps;
mod uring_multishot;
mod xdp;

pub(crate) use sockets::{DATAGRAM_BYTES_MAX, ReceivedMessage, SocketOptions, Sockets, Turn};

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use crate::error::{Error, Unavailable};
use crate::host::Host;
use crate::spec::{SystemCalls, Via};

/// Every way from socket to memory; the reference first.
pub static RECEIVE_PATHS: &[&ReceiveSpec] = &[
    &recvfrom::SPEC,
    &recvmmsg::SPEC,
    &recvmmsg_gro::SPEC,
    &uring_multishot::SPEC,
    &packet_ring::SPEC,
    &xdp::SPEC,
];

/// A call of [`ReceivePath::receive`] that returned fewer datagrams has emptied every port. The
/// number is some milliseconds of work for a reader, which can do other work between two calls.
pub const FULL_CALL_PACKETS: usize = 4096;

/// Returns the path of that name.
pub fn find_receive(name: &str) -> Option<&'static ReceiveSpec> {
    RECEIVE_PATHS.iter().copied().find(|spec| spec.name == name)
}

/// Description of a path, with its claims.
#[derive(Debug)]
pub struct ReceiveSpec {
    /// Its name: in `--path`, log, statistics and code alike.
    pub name: &'static str,
    /// One line about its way of moving bytes.
    pub summary: &'static str,
    /// Copies of each byte of a datagram between kernel and user memory. Memory that both share (a
    /// ring) counts as the kernel's.
    pub copies_per_byte: u32,
    /// System calls, without those that wait: a run is a super-packet that the kernel has joined, a
    /// batch is the set of datagrams that one call returns under load.
    pub system_calls: SystemCalls,
    /// Its entry to the network.
    pub via: Via,
    /// Sources to read.
    pub sources: &'static [&'static str],
    /// Checks that this host can use it.
    pub probe: fn(&Host) -> Result<(), Unavailable>,
    /// Opens the path object for one receiving thread.
    pub open: fn() -> Result<Box<dyn ReceivePath>, Error>,
}

impl fmt::Display for ReceiveSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "receive/{}", self.name)
    }
}

/// A receiving address, with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The local address, or the group's, and the UDP port; unspecified: any address of the host.
    pub address: SocketAddr,
    /// Allowed senders to the group (RFC 4607); empty for all.
    pub sources: Vec<IpAddr>,
    /// Name of the device on which a group is joined and a path by device receives; the route's
    /// when `None`.
    pub interface: Option<String>,
    /// Bytes that the kernel keeps for a late reader, as `SO_RCVBUF` counts them.
    pub buffer_bytes: u32,
}

/// One way to receive datagrams; belongs to one receiving thread.
pub trait ReceivePath: fmt::Debug + Send {
    /// Adds a port; its datagrams carry `key`, which no other port of this path has.
    ///
    /// # Errors
    /// A call that the kernel refused, with its object; an address that is not of this host.
    fn add(&mut self, port: &Port, key: u32) -> Result<(), Error>;

    /// Removes a port. Datagrams that were not handed over are dropped.
    fn remove(&mut self, key: u32);

    /// Returns the bound address, for a port requested as 0.
    fn address(&self, key: u32) -> Option<SocketAddr>;

    /// Waits at most `wait` for datagrams, then hands over all waiting ones, a burst at a time.
    /// Returns the number of datagrams; 0 after a timeout or a signal. Busy ports are served
    /// alternately. When fewer than [`FULL_CALL_PACKETS`] arrived, every port was found empty;
    /// otherwise there may be more.
    ///
    /// # Errors
    /// The device is gone or down, or the kernel refuses; a single bad datagram is counted and is
    /// not an error. The call may be repeated.
    fn receive(
        &mut self,
        wait: Duration,
        each: &mut dyn FnMut(&[ReceivedRun<'_>]),
    ) -> Result<usize, Error>;

    /// Returns the longest time that a reader may leave emptied ports unread without loss, when
    /// 500,000 datagrams a second begin to arrive at one of them meanwhile. Without ports it is
    /// unlimited.
    fn pause_max(&self) -> Duration;

    /// Returns counters of received datagrams and of the work for them.
    fn stats(&self) -> ReceiveStats;

    /// Returns the number of datagrams for this port that reached the host and were dropped for
    /// lack of memory, since it was added; queries the kernel's count. The count includes
    /// datagrams with a wrong checksum, and a joined run counts as one. A path by device has one
    /// ring for all ports of a device: it counts for all of them together.
    fn dropped(&self, key: u32) -> u64;
}

/// A received datagram, or a run of them that the kernel has joined.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedRun<'a> {
    /// The port's key.
    pub key: u32,
    /// The sender.
    pub source: SocketAddr,
    /// The payload of UDP.
    pub bytes: &'a [u8],
    /// Bytes of each datagram in it except the last, which may be shorter; 0 for a single datagram.
    pub segment_bytes: u16,
    /// Time at which the kernel received it from the device, where the path reports it.
    pub time: Option<SystemTime>,
}

impl<'a> ReceivedRun<'a> {
    /// Returns the datagrams in it, in the order of arrival. An empty datagram counts as one.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let each = match self.segment_bytes {
            0 => self.bytes.len().max(1),
            bytes => usize::from(bytes),
        };
        let empty = self.bytes.is_empty().then_some(self.bytes);
        empty.into_iter().chain(self.bytes.chunks(each))
    }

    /// Returns the number of datagrams in it.
    pub fn count(&self) -> usize {
        match self.segment_bytes {
            0 => 1,
            bytes => self.bytes.len().div_ceil(usize::from(bytes)).max(1),
        }
    }
}

/// Counters of received datagrams and of the work for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveStats {
    /// Datagrams handed over, each of a joined run.
    pub packets: u64,
    /// Their bytes, headers of UDP and below not included.
    pub bytes: u64,
    /// System calls that moved datagrams or returned buffers, including those that found none.
    pub calls: u64,
    /// System calls that waited.
    pub waits: u64,
    /// Bytes copied between kernel and user memory.
    pub copied_bytes: u64,
    /// Datagrams longer than the buffer, not handed over.
    pub truncated: u64,
    /// Frames for an added port without a sound UDP datagram (lengths, checksums, fragments), not
    /// handed over. With a socket the kernel drops them itself, uncounted here.
    pub malformed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(bytes: &[u8], segment_bytes: u16) -> ReceivedRun<'_> {
        let source = SocketAddr::from(([127, 0, 0, 1], 5004));
        ReceivedRun { key: 0, source, bytes, segment_bytes, time: None }
    }

    #[test]
    fn a_joined_run_comes_apart_as_it_was_sent() {
        let bytes: Vec<u8> = (0..10).collect();
        let of = |bytes: &[u8], segment| -> Vec<usize> {
            let run = run(bytes, segment);
            let lengths: Vec<usize> = run.datagrams().map(<[u8]>::len).collect();
            assert_eq!(lengths.len(), run.count());
            lengths
        };
        assert_eq!(of(&bytes, 4), [4, 4, 2]);
        assert_eq!(of(&bytes, 5), [5, 5]);
        assert_eq!(of(&bytes, 0), [10]);
        assert_eq!(of(&bytes, 20), [10]);
        assert_eq!(of(&[], 0), [0]);
        assert_eq!(of(&[], 4), [0]);
    }
}
