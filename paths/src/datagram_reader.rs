// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads datagrams from sockets, several per call, each with the kernel's timestamp and the
//! socket's count of dropped datagrams.
//!
//! It serves measurements. The timestamp is that of the packet's arrival from the device, so a late
//! reader does not distort it and may read every few milliseconds. A [`DatagramReader`] belongs to
//! a reading thread and serves any number of sockets. Costs one copy a byte and one system call for
//! up to 32 datagrams.
//!
//! A socket filter that rejects everything makes a socket that only counts: each rejected datagram
//! is a drop ([`dropped_packets`]), at no cost to the process that owns the socket.
//!
//! Sources: `recvmmsg(2)`, `socket(7)`; Linux `net/ipv4/udp.c` (`udp_queue_rcv_one_skb` counts
//! rejected datagrams).
//!
//! Does not wait for datagrams.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::Errno;
use crate::receive::ReceiveStats;
use crate::sys::{Slots, drops, receive_many, report_time_and_drops};

/// Largest number of datagrams a call reads.
const DATAGRAMS_MAX: usize = 32;

/// A thread's buffers for datagrams.
#[derive(Debug)]
pub struct DatagramReader {
    slots: Slots,
    count: usize,
}

/// A received datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Its payload, cut at the buffer's end.
    pub bytes: &'a [u8],
    /// Address of the sender; `None` where the socket's address family is not IPv4 or IPv6.
    pub from: Option<SocketAddr>,
    /// True when the datagram was longer than the buffer.
    pub is_cut: bool,
    /// Time at which the kernel received it from the device, by `CLOCK_REALTIME`; the socket must
    /// have been [`prepare`](DatagramReader::prepare)d.
    pub time: Option<SystemTime>,
    /// Datagrams the socket had dropped before this one, since it was made, modulo 2³². Requires
    /// [`prepare`](DatagramReader::prepare), as [`time`](Self::time) does.
    pub dropped: u32,
}

impl DatagramReader {
    /// Makes buffers for datagrams of at most `datagram_bytes_max` bytes.
    pub fn new(datagram_bytes_max: usize) -> Self {
        Self { slots: Slots::new(DATAGRAMS_MAX, datagram_bytes_max), count: 0 }
    }

    /// Makes the kernel attach the arrival time and the drop count to each datagram of a socket.
    ///
    /// # Errors
    /// The kernel's answer to setsockopt.
    pub fn prepare(socket: impl AsFd) -> Result<(), Errno> {
        report_time_and_drops(socket.as_fd())
    }

    /// Reads the waiting datagrams of a socket, without waiting; true when there may be more.
    /// [`datagrams`](Self::datagrams) returns them until the next call.
    ///
    /// # Errors
    /// The kernel's answer, except for an empty socket.
    pub fn receive(&mut self, socket: impl AsFd) -> Result<bool, Errno> {
        self.count = 0;
        self.count =
            match receive_many(socket.as_fd(), &mut self.slots, &mut ReceiveStats::default()) {
                Ok(count) => count,
                Err(errno) if errno.is_again() => 0,
                Err(errno) => return Err(errno),
            };
        Ok(self.count == DATAGRAMS_MAX)
    }

    /// Returns the datagrams of the last call, in order of arrival.
    pub fn datagrams(&self) -> impl Iterator<Item = Datagram<'_>> {
        (0..self.count).map(|slot| {
            let (bytes, meta) = (self.slots.datagram(slot), self.slots.meta(slot));
            let time = meta.stamp.and_then(|stamp| UNIX_EPOCH.checked_add(stamp));
            let from = self.slots.source(slot);
            Datagram { bytes, from, is_cut: meta.is_cut, time, dropped: meta.dropped }
        })
    }
}

/// Returns the number of datagrams that a socket has dropped since it was made, modulo 2³²: refused
/// by its filter, with a wrong checksum, or received while its buffer was full. Costs one system
/// call, however many sockets the host has; reading `/proc/net/udp` instead would list them all.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 4.12.
pub fn dropped_packets(socket: impl AsFd) -> Result<u32, Errno> {
    let socket: BorrowedFd<'_> = socket.as_fd();
    drops(socket)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};
    use std::time::Duration;

    use super::*;

    fn pair() -> (UdpSocket, UdpSocket) {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        (receiver, sender)
    }

    #[test]
    fn datagrams_come_in_order_whole_and_with_their_time() {
        let (receiver, sender) = pair();
        DatagramReader::prepare(&receiver).unwrap();
        let mut reader = DatagramReader::new(2048);
        assert!(!reader.receive(&receiver).unwrap(), "nothing was sent");
        assert_eq!(reader.datagrams().count(), 0);
        let before = SystemTime::now();
        for n in 0..40_u8 {
            sender.send(&vec![n; 1 + usize::from(n)]).unwrap();
        }
        let after = SystemTime::now();
        let mut seen = Vec::new();
        loop {
            let more = reader.receive(&receiver).unwrap();
            for datagram in reader.datagrams() {
                let n = seen.len();
                assert_eq!(datagram.bytes, vec![n as u8; 1 + n]);
                assert_eq!(datagram.from, sender.local_addr().ok());
                assert!(!datagram.is_cut && datagram.dropped == 0);
                seen.push(datagram.time.expect("this kernel stamps"));
            }
            if !more {
                break;
            }
        }
        assert_eq!(seen.len(), 40);
        // The clock of the test machine may be set back while the test runs, but not by a second.
        let slack = Duration::from_secs(1);
        assert!(seen.iter().all(|time| *time + slack > before && *time < after + slack));
    }

    #[test]
    fn a_long_datagram_is_cut_and_marked() {
        let (receiver, sender) = pair();
        let mut reader = DatagramReader::new(100);
        sender.send(&[7; 101]).unwrap();
        sender.send(&[8; 100]).unwrap();
        reader.receive(&receiver).unwrap();
        let seen: Vec<_> = reader.datagrams().map(|d| (d.bytes.to_vec(), d.is_cut)).collect();
        assert_eq!(seen, [(vec![7; 100], true), (vec![8; 100], false)]);
        assert!(reader.datagrams().all(|datagram| datagram.time.is_none()), "nobody asked for it");
    }

    #[test]
    fn a_full_buffers_drops_are_told_with_the_next_datagram_and_by_the_counter() {
        let (receiver, sender) = pair();
        DatagramReader::prepare(&receiver).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&receiver, 4096).unwrap();
        assert_eq!(dropped_packets(&receiver).unwrap(), 0);
        for _ in 0..100 {
            sender.send(&[0; 1328]).unwrap();
        }
        let mut reader = DatagramReader::new(2048);
        let mut received = 0;
        while reader.receive(&receiver).unwrap() || reader.datagrams().next().is_some() {
            received += reader.datagrams().count() as u32;
        }
        assert!((1..100).contains(&received), "{received}");
        assert_eq!(dropped_packets(&receiver).unwrap(), 100 - received);
        sender.send(&[0; 1328]).unwrap();
        reader.receive(&receiver).unwrap();
        let drops: Vec<_> = reader.datagrams().map(|datagram| datagram.dropped).collect();
        assert_eq!(drops, [100 - received]);
    }

    #[test]
    fn a_socket_that_is_none_is_an_error() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(dropped_packets(&file).unwrap_err().to_string(), "ENOTSOCK");
        assert_eq!(DatagramReader::new(10).receive(&file).unwrap_err().to_string(), "ENOTSOCK");
    }
}
