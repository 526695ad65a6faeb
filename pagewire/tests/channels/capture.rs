// SPDX-License-Identifier: MIT OR Apache-2.0
//! A receiver of datagrams: keeps all of them with sender and arrival time, and the number that the
//! kernel dropped at its socket because this program was too slow.
//!
//! Parses only the stream's clock; [`crate::walk`] reads the rest.
//!
//! Sources: proc_net(5), `/proc/net/udp`.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::netdevice::name_to_index;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use crate::harness::await_true;
use crate::walk::{PCR_MODULUS, Stream, clock_of};

/// A datagram as received.
#[derive(Clone)]
pub(crate) struct Datagram {
    pub(crate) at: Instant,
    pub(crate) from: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

/// A running receiver.
pub(crate) struct Capture {
    pub(crate) local: SocketAddr,
    inode: u64,
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

    /// Receives datagrams sent to a group that arrive at an interface.
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
        let inode = rustix::fs::fstat(&socket).expect("a socket has an inode").st_ino;
        let stopping = Arc::new(AtomicBool::new(false));
        let received = Arc::new(Mutex::new(Vec::new()));
        let (is_over, into) = (stopping.clone(), received.clone());
        let thread = thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            loop {
                // Datagrams that are in the socket's buffer when it ends have arrived, too.
                let ends = is_over.load(Ordering::Relaxed);
                socket.set_nonblocking(ends).expect("a socket has the option");
                let Ok((bytes, from)) = socket.recv_from(&mut buffer) else {
                    if ends {
                        return;
                    }
                    continue;
                };
                let bytes = buffer[..bytes].to_vec();
                let datagram = Datagram { at: Instant::now(), from, bytes };
                into.lock().expect("no thread panics with it").push(datagram);
            }
        });
        Capture { local, inode, stopping, received, thread }
    }

    /// Returns the datagrams received so far.
    pub(crate) fn so_far(&self) -> Vec<Datagram> {
        self.received.lock().expect("no thread panics with it").clone()
    }

    /// Waits until a datagram has been received for which `holds` is true.
    #[track_caller]
    pub(crate) fn await_any(&self, what: &str, holds: impl Fn(&Datagram) -> bool) {
        await_true(what, || {
            self.received.lock().expect("no thread panics with it").iter().any(&holds)
        });
    }

    /// Waits until the stream's clock is at a second of the wall clock or later, in datagrams that
    /// have `head_bytes` in front of the stream.
    #[track_caller]
    pub(crate) fn await_clock(&self, head_bytes: usize, second: f64) {
        let wanted = (second * 27e6) as i128;
        self.await_any(&format!("the stream's clock at {second} s"), |datagram| {
            let packets = datagram.bytes[head_bytes..].chunks_exact(188);
            let clocks = packets.filter_map(clock_of);
            let is_reached =
                |clock: i128| (clock - wanted).rem_euclid(PCR_MODULUS) < PCR_MODULUS / 2;
            clocks.map(i128::from).any(is_reached)
        });
    }

    /// Waits until so many more datagrams have been received.
    #[track_caller]
    pub(crate) fn await_more(&self, what: &str, datagrams: usize) {
        let count = || self.received.lock().expect("no thread panics with it").len();
        let wanted = count() + datagrams;
        await_true(what, || count() >= wanted);
    }

    /// Returns the number of datagrams so far, once all that reached the socket are counted.
    pub(crate) fn count_of_all(&self) -> usize {
        await_true("the socket is empty", || self.socket_state().unread_bytes == 0);
        self.received.lock().expect("no thread panics with it").len()
    }

    fn socket_state(&self) -> SocketState {
        let table = |name: &str| fs::read_to_string(name).unwrap_or_default();
        let lines = table("/proc/net/udp") + &table("/proc/net/udp6");
        let inode = self.inode.to_string();
        let state = lines.lines().find_map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            let [_, _, _, _, queues, .., found, _, _, dropped] = fields[..] else { return None };
            let (_, unread) = queues.split_once(':').filter(|_| found == inode)?;
            let unread_bytes = u64::from_str_radix(unread, 16).ok()?;
            Some(SocketState { unread_bytes, dropped: dropped.parse().ok()? })
        });
        state.expect("the socket is open and in the table")
    }

    /// As [`Capture::stop`]; returns `None`, with a skip printed for `test`, where the kernel
    /// dropped datagrams because this program was too slow.
    pub(crate) fn stop_whole(self, test: &str) -> Option<Vec<Datagram>> {
        let (dropped, local) = (self.socket_state().dropped, self.local);
        let datagrams = self.stop();
        if dropped > 0 {
            eprintln!("skip: busy machine: {test}: {dropped} datagrams dropped at {local}");
            return None;
        }
        Some(datagrams)
    }

    /// Stops, and returns the received datagrams.
    pub(crate) fn stop(self) -> Vec<Datagram> {
        self.stopping.store(true, Ordering::Relaxed);
        self.thread.join().expect("it ends by itself");
        std::mem::take(&mut *self.received.lock().expect("nobody else has it"))
    }
}

/// State of a socket in the kernel's table.
struct SocketState {
    unread_bytes: u64,
    /// Datagrams for which its buffer had no room.
    dropped: u64,
}

/// Joins a group at an interface.
fn join(socket: &Socket, group: Ipv4Addr, interface: &str) {
    // Groups that other sockets of this host have joined elsewhere, such as the loop of a sender,
    // are not received.
    socket.set_multicast_all_v4(false).expect("a UDP socket has the option");
    let index = name_to_index(socket, interface).expect("the network has it");
    socket
        .join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(index))
        .expect("the interface takes groups");
}

/// Returns the transport stream in datagrams: all of their bytes, or the bytes after RTP's header.
pub(crate) fn stream(datagrams: &[Datagram], head_bytes: usize) -> Stream {
    Stream(datagrams.iter().flat_map(|datagram| datagram.bytes[head_bytes..].to_vec()).collect())
}

/// Returns the longest time without a datagram.
pub(crate) fn longest_gap(datagrams: &[Datagram]) -> Duration {
    let gaps = datagrams.windows(2).map(|pair| pair[1].at - pair[0].at);
    gaps.max().unwrap_or(Duration::MAX)
}

/// Returns an RTP header's sequence number, timestamp and SSRC; the header has payload type 33 and
/// no extensions.
#[track_caller]
pub(crate) fn rtp(datagram: &Datagram) -> (u16, u32, u32) {
    let head = datagram.bytes.get(..RTP_BYTES).expect("room for a header");
    assert_eq!(head[..2], [0x80, 33], "version 2, no extension, payload type 33");
    let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("4 bytes"));
    (u16::from_be_bytes([head[2], head[3]]), number(4), number(8))
}

/// Size of an RTP header without contributing sources (RFC 3550 §5.1).
pub(crate) const RTP_BYTES: usize = 12;
const BUFFER_BYTES: usize = 4 << 20;
const LOOK_EVERY: Duration = Duration::from_millis(20);
