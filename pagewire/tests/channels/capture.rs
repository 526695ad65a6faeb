// SPDX-License-Identifier: MIT OR Apache-2.0
//! A receiver of datagrams: all of them, each with its sender and its moment.
//!
//! Does not look into them; [`crate::walk`] does.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::netdevice::name_to_index;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use crate::walk::Stream;

/// A datagram as it came.
#[derive(Clone)]
pub(crate) struct Datagram {
    pub(crate) at: Instant,
    pub(crate) from: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

/// A receiver at work.
pub(crate) struct Capture {
    pub(crate) local: SocketAddr,
    stopping: Arc<AtomicBool>,
    received: Arc<Mutex<Vec<Datagram>>>,
    thread: JoinHandle<()>,
}

impl Capture {
    /// Receives at a free even port of this machine.
    pub(crate) fn unicast() -> Capture {
        loop {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
            if socket.local_addr().expect("it is bound").port().is_multiple_of(2) {
                return Capture::of(socket);
            }
        }
    }

    /// Receives at an address of this machine.
    pub(crate) fn at(address: SocketAddr) -> Capture {
        Capture::of(UdpSocket::bind(address).expect("a free port"))
    }

    /// Receives what is sent to a group and arrives at an interface.
    pub(crate) fn group(group: &str, interface: &str) -> Capture {
        let group: SocketAddrV4 = group.parse().expect("a group and a port");
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP));
        let socket = socket.expect("a free descriptor");
        socket.set_reuse_address(true).expect("a UDP socket has the option");
        socket.bind(&SocketAddr::V4(group).into()).expect("others listen with the option too");
        join(&socket, *group.ip(), interface);
        Capture::of(socket.into())
    }

    fn of(socket: UdpSocket) -> Capture {
        let local = socket.local_addr().expect("it is bound");
        let socket = Socket::from(socket);
        socket.set_recv_buffer_size(BUFFER_BYTES).expect("a socket has a buffer");
        let socket = UdpSocket::from(socket);
        socket.set_read_timeout(Some(LOOK_EVERY)).expect("a time limit");
        let stopping = Arc::new(AtomicBool::new(false));
        let received = Arc::new(Mutex::new(Vec::new()));
        let (is_over, into) = (stopping.clone(), received.clone());
        let thread = thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            while !is_over.load(Ordering::Relaxed) {
                let Ok((bytes, from)) = socket.recv_from(&mut buffer) else { continue };
                let bytes = buffer[..bytes].to_vec();
                let datagram = Datagram { at: Instant::now(), from, bytes };
                into.lock().expect("no thread panics with it").push(datagram);
            }
        });
        Capture { local, stopping, received, thread }
    }

    /// Returns the datagrams received so far.
    pub(crate) fn so_far(&self) -> Vec<Datagram> {
        self.received.lock().expect("no thread panics with it").clone()
    }

    /// Waits until something has come of which `holds` holds.
    #[track_caller]
    pub(crate) fn await_any(&self, what: &str, holds: impl Fn(&Datagram) -> bool) {
        let deadline = Instant::now() + ARRIVAL_WAIT;
        while !self.received.lock().expect("no thread panics with it").iter().any(&holds) {
            assert!(Instant::now() < deadline, "{what}: nothing of it has come");
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Stops, and gives back what came.
    pub(crate) fn stop(self) -> Vec<Datagram> {
        self.stopping.store(true, Ordering::Relaxed);
        self.thread.join().expect("it ends by itself");
        std::mem::take(&mut *self.received.lock().expect("nobody else has it"))
    }
}

/// Joins a group at an interface.
fn join(socket: &Socket, group: Ipv4Addr, interface: &str) {
    // What others of this host have joined elsewhere, such as the loop of a sender, is not for it.
    socket.set_multicast_all_v4(false).expect("a UDP socket has the option");
    let index = name_to_index(socket, interface).expect("the network has it");
    socket
        .join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(index))
        .expect("the interface takes groups");
}

/// The transport stream in datagrams: all of their bytes, or what is behind RTP's header.
pub(crate) fn stream(datagrams: &[Datagram], head_bytes: usize) -> Stream {
    Stream(datagrams.iter().flat_map(|datagram| datagram.bytes[head_bytes..].to_vec()).collect())
}

/// The longest time in which nothing came.
pub(crate) fn longest_gap(datagrams: &[Datagram]) -> Duration {
    let gaps = datagrams.windows(2).map(|pair| pair[1].at - pair[0].at);
    gaps.max().unwrap_or(Duration::MAX)
}

/// An RTP header's sequence number, timestamp and SSRC; of payload type 33 without extensions.
#[track_caller]
pub(crate) fn rtp(datagram: &Datagram) -> (u16, u32, u32) {
    let head = datagram.bytes.get(..RTP_BYTES).expect("room for a header");
    assert_eq!(head[..2], [0x80, 33], "version 2, no extension, payload type 33");
    let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("4 bytes"));
    (u16::from_be_bytes([head[2], head[3]]), number(4), number(8))
}

/// An RTP header without contributing sources (RFC 3550 §5.1).
pub(crate) const RTP_BYTES: usize = 12;
const BUFFER_BYTES: usize = 4 << 20;
const LOOK_EVERY: Duration = Duration::from_millis(20);
const ARRIVAL_WAIT: Duration = Duration::from_secs(30);
