// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the datagrams of sockets with the kernel's times of arrival.
//!
//! A reader may be delayed: the time of a datagram is that of its receipt by the kernel. Costs one
//! system call for up to 32 datagrams and one copy a byte (`paths::DatagramReader`).
//!
//! Sources: recvmmsg(2), socket(7) SO_TIMESTAMPNS, SO_MEMINFO.
//! Does not wait for datagrams.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, SystemTime};

use paths::{DatagramReader, Errno};

use super::ArrivalClock;
use crate::error::Error;

/// Datagram buffers and the clock of a reading thread.
#[derive(Debug)]
pub(crate) struct SocketReader {
    intake: DatagramReader,
    pub(crate) clock: ArrivalClock,
}

/// A datagram that was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SocketDatagram<'a> {
    pub(crate) bytes: &'a [u8],
    /// The datagram was truncated to the buffer.
    pub(crate) is_cut: bool,
    pub(crate) from: SocketAddr,
    /// On the reader's clock.
    pub(crate) at: Duration,
    /// Datagrams that the socket had dropped before, modulo 2³².
    pub(crate) dropped: u32,
}

impl SocketReader {
    /// A reader whose clock begins now.
    pub(crate) fn new() -> SocketReader {
        SocketReader {
            intake: DatagramReader::new(DATAGRAM_BYTES_MAX),
            clock: ArrivalClock::start(),
        }
    }

    /// Enables the kernel's timestamps on the datagrams of a socket.
    pub(crate) fn prepare(socket: &UdpSocket) -> Result<(), Error> {
        DatagramReader::prepare(socket).map_err(|errno| Error::Host {
            call: "setsockopt SO_TIMESTAMPNS",
            object: "RTP socket".to_owned(),
            source: errno.into(),
        })
    }

    /// Reads available datagrams without waiting. Returns the datagrams of one system call, and
    /// true when there may be more.
    ///
    /// # Errors
    /// The error of the kernel, such as a pending ICMP message.
    pub(crate) fn read<'a>(
        &'a mut self,
        socket: &UdpSocket,
    ) -> Result<(bool, impl Iterator<Item = SocketDatagram<'a>> + use<'a>), Errno> {
        let more = self.intake.receive(socket)?;
        let (now, wall) = (self.clock.now(), SystemTime::now());
        let datagrams = self.intake.datagrams().map(move |datagram| SocketDatagram {
            bytes: datagram.bytes,
            is_cut: datagram.is_cut,
            // A UDP socket returns the sender of each datagram.
            from: datagram.from.unwrap_or(UNNAMED),
            at: ArrivalClock::arrival(datagram.time, now, wall, STAMP_AGE_MAX),
            dropped: datagram.dropped,
        });
        Ok((more, datagrams))
    }
}

const DATAGRAM_BYTES_MAX: usize = 1 << 16;
const UNNAMED: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);
/// A datagram waits in its socket for the answer to PLAY, which needs seconds at most.
const STAMP_AGE_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use paths::dropped_packets;
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    #[test]
    fn time_of_arrival_is_the_kernels_however_late_the_reader_is() {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        SocketReader::prepare(&receiver).unwrap();
        let mut reader = SocketReader::new();
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut late = Duration::ZERO;
        // The kernel starts to timestamp a moment after the first socket has requested it; until
        // then the time is that of the reader.
        for _ in 0..1000 {
            sender.send_to(b"a", receiver.local_addr().unwrap()).unwrap();
            let mut readable = [PollFd::new(&receiver, PollFlags::IN)];
            assert_eq!(poll(&mut readable, None), Ok(1));
            let arrived = reader.clock.now();
            std::thread::sleep(Duration::from_millis(10));
            let (more, mut datagrams) = reader.read(&receiver).unwrap();
            let at = datagrams.next().unwrap().at;
            assert!(!more && datagrams.next().is_none());
            late = at.saturating_sub(arrived);
            if late == Duration::ZERO {
                return;
            }
        }
        panic!("the time of a datagram is {late:?} behind its arrival");
    }

    #[test]
    fn drops_of_a_full_buffer_are_counted() {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        SocketReader::prepare(&receiver).unwrap();
        assert_eq!(dropped_packets(&receiver).unwrap(), 0);
        rustix::net::sockopt::set_socket_recv_buffer_size(&receiver, 4096).unwrap();
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        for _ in 0..100 {
            sender.send_to(&[0; 1328], receiver.local_addr().unwrap()).unwrap();
        }
        let mut reader = SocketReader::new();
        let (_, datagrams) = reader.read(&receiver).unwrap();
        let mut received = 0;
        for datagram in datagrams {
            assert_eq!(datagram.from, sender.local_addr().unwrap());
            received += 1;
        }
        assert_eq!(dropped_packets(&receiver).unwrap(), 100 - received);
    }
}
