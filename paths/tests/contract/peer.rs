// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving end of a stream, and a destination that leads to it.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use paths::Destination;
use rustix::net::sockopt::{
    set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, socket_recv_buffer_size,
};

/// Longest wait for a datagram that was sent.
const TIMEOUT: Duration = Duration::from_secs(60);

const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

const END: &[u8] = b"that was all";

/// A socket and the datagrams that arrived at it.
pub(crate) struct Peer {
    socket: UdpSocket,
    pub(crate) received: Vec<Vec<u8>>,
}

impl Peer {
    pub(crate) fn at(address: &str) -> std::io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        if set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES).is_err() {
            set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES)?;
        }
        socket.set_nonblocking(true)?;
        Ok(Self { socket, received: Vec::new() })
    }

    pub(crate) fn on_loopback() -> Self {
        Self::at("127.0.0.1:0").unwrap()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.socket.local_addr().unwrap()
    }

    /// Returns the number of packets that certainly fit the granted receive buffer, where each is
    /// charged with more than its bytes.
    pub(crate) fn room_packets(&self, segment_bytes: usize) -> u32 {
        let granted_bytes = socket_recv_buffer_size(&self.socket).unwrap();
        (granted_bytes / (2 * segment_bytes + 1024)).max(1) as u32
    }

    /// Returns a new destination for this peer.
    pub(crate) fn destination(&self) -> Destination {
        let address = self.address();
        let socket = UdpSocket::bind(SocketAddr::new(address.ip(), 0)).unwrap();
        socket.connect(address).unwrap();
        Destination::new(socket, address.to_string()).unwrap()
    }

    /// Receives the waiting datagrams.
    pub(crate) fn take_in(&mut self) {
        let mut buffer = vec![0; 65_536];
        loop {
            match self.socket.recv(&mut buffer) {
                Ok(bytes) => self.received.push(buffer[..bytes].to_vec()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("recv: {error}"),
            }
        }
    }

    fn wait_until(&mut self, done: impl Fn(&[Vec<u8>]) -> bool) {
        let start = Instant::now();
        loop {
            self.take_in();
            if done(&self.received) || start.elapsed() > TIMEOUT {
                return;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Returns all datagrams sent here so far: waits for `expected` datagrams, then for a final one
    /// of its own, which arrives after all others.
    pub(crate) fn all(&mut self, expected: usize) -> Vec<Vec<u8>> {
        self.wait_until(|received| received.len() >= expected);
        let sender = UdpSocket::bind(SocketAddr::new(self.address().ip(), 0)).unwrap();
        sender.send_to(END, self.address()).unwrap();
        self.wait_until(|received| received.last().is_some_and(|last| last == END));
        let mut all = std::mem::take(&mut self.received);
        assert_eq!(all.pop().as_deref(), Some(END), "the last datagram arrived");
        all
    }
}

/// Compares datagram by datagram, and names the first difference.
pub(crate) fn assert_received(received: &[Vec<u8>], expected: &[Vec<u8>], what: &str) {
    for (number, (got, wanted)) in received.iter().zip(expected).enumerate() {
        assert_eq!(got.len(), wanted.len(), "{what}: length of packet {number}");
        assert!(got == wanted, "{what}: bytes of packet {number}");
    }
    assert_eq!(received.len(), expected.len(), "{what}: number of packets");
}
