// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the datagrams of sockets with the kernel's times of arrival.
//!
//! A reader may be delayed: the time of a datagram is that of its receipt by the kernel. Costs one
//! system call for up to 32 datagrams and one copy a byte (`paths::DatagramReader`). Threads
//! share buffers between their reads, so that the same few stay in the caches.
//!
//! Sources: recvmmsg(2), socket(7) SO_TIMESTAMPNS, SO_MEMINFO.
//! Does not wait for datagrams.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::time::Duration;

use paths::{DatagramReader, Errno};

use super::ArrivalClock;
use crate::error::Error;
use crate::stream_stats::lock;

/// Datagram buffers and the clock of a reading thread.
#[derive(Debug)]
pub(crate) struct SocketReader {
    intake: DatagramReader,
    pub(crate) clock: ArrivalClock,
}

/// Buffers that no thread is using: as many as threads have read at a time.
struct SpareBuffers(Mutex<Vec<DatagramReader>>);

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
    /// A reader with buffers of its own, on this clock.
    pub(crate) fn new(clock: ArrivalClock) -> SocketReader {
        SocketReader { intake: DatagramReader::new(DATAGRAM_BYTES_MAX), clock }
    }

    /// A reader on this clock with buffers that another thread has [given back](Self::give_back),
    /// the last ones first, or with new ones.
    pub(crate) fn of_spare(clock: ArrivalClock) -> SocketReader {
        SocketReader { intake: SPARE.take(), clock }
    }

    /// Leaves the buffers to other threads.
    pub(crate) fn give_back(self) {
        SPARE.give_back(self.intake);
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
        let (now, wall) = self.clock.moment();
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

impl SpareBuffers {
    fn take(&self) -> DatagramReader {
        let spare = lock(&self.0).pop();
        spare.unwrap_or_else(|| DatagramReader::new(DATAGRAM_BYTES_MAX))
    }

    fn give_back(&self, buffers: DatagramReader) {
        lock(&self.0).push(buffers);
    }
}

static SPARE: SpareBuffers = SpareBuffers(Mutex::new(Vec::new()));
const DATAGRAM_BYTES_MAX: usize = 1 << 16;
const UNNAMED: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);
/// A datagram waits in its socket for the answer to PLAY, which needs seconds at most.
const STAMP_AGE_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use clock::Clock;
    use paths::dropped_packets;
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    #[test]
    fn time_of_arrival_is_the_kernels_however_late_the_reader_is() {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        SocketReader::prepare(&receiver).unwrap();
        let mut reader = SocketReader::new(ArrivalClock::start(&Clock::HOST));
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
    fn buffers_that_were_given_back_return_the_datagrams_of_the_next_read_alone() {
        let [receiver, sender] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let spare = SpareBuffers(Mutex::new(Vec::new()));
        for letters in ["abc", "d"] {
            for letter in letters.as_bytes().chunks(1) {
                sender.send_to(letter, receiver.local_addr().unwrap()).unwrap();
            }
            let mut buffers = spare.take();
            assert_eq!(lock(&spare.0).len(), 0, "the same buffers are used again");
            buffers.receive(&receiver).unwrap();
            let found = buffers.datagrams().map(|datagram| datagram.bytes[0] as char);
            assert_eq!(found.collect::<String>(), letters);
            spare.give_back(buffers);
        }
        assert_eq!(lock(&spare.0).len(), 1);
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
        let mut reader = SocketReader::new(ArrivalClock::start(&Clock::HOST));
        let (_, datagrams) = reader.read(&receiver).unwrap();
        let mut received = 0;
        for datagram in datagrams {
            assert_eq!(datagram.from, sender.local_addr().unwrap());
            received += 1;
        }
        assert_eq!(dropped_packets(&receiver).unwrap(), 100 - received);
    }
}
