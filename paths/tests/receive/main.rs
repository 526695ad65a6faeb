// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contract of the list of ways from a socket to memory: every member, in every place.
//!
//! Each test iterates over [`places`], so a new member of the list is tested without further code.
//! Here the places are each member by socket over loopback. [`pair`] runs all of the same tests
//! again in a network of its own with two devices wired to each other, where `places` has the
//! members by device as well. Received datagrams are compared one by one with the sent ones, and
//! counts with claims.
//!
//! Does not measure time. The laboratory measures CPU cost.

#![forbid(unsafe_code)]

#[path = "../harness/mod.rs"]
mod harness;

mod claims;
mod devices;
mod drains;
mod drops;
mod groups;
mod pair;
mod ports;
mod relay;
mod sender;
mod shapes;
mod waits;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use paths::{
    Error, Host, Port, RECEIVE_PATHS, ReceivePath, ReceiveSpec, ReceiveStats, ReceivedRun, Via,
};

use harness::{noise, skip};
use sender::Sender;

/// Longest wait for a datagram that was sent.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Requested receive buffer, where a test sends more than usual.
const ROOM_BYTES: u32 = 4 << 20;

const END: &[u8] = b"that was all";

/// A member, and the two ends of a network that it is tested in.
#[derive(Clone, Copy, Debug)]
struct Place {
    spec: &'static ReceiveSpec,
    /// Address of the senders.
    near: IpAddr,
    /// Address at which datagrams are awaited.
    far: IpAddr,
    /// The device on that side.
    interface: Option<&'static str>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.spec, self.far)
    }
}

/// Every member that this host can use, in the present network; prints the others as skipped.
fn places() -> Vec<Place> {
    if pair::is_inside() { pair::places() } else { loopback() }
}

fn loopback() -> Vec<Place> {
    let addresses = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let mut places = Vec::new();
    for address in addresses {
        if let Err(error) = std::net::UdpSocket::bind((address, 0)) {
            skip(format!("{address}: {error}"));
            continue;
        }
        let by_socket = usable().into_iter().filter(|spec| spec.via == Via::Socket);
        places.extend(by_socket.map(|spec| Place {
            spec,
            near: address,
            far: address,
            interface: None,
        }));
    }
    places
}

/// True when a member's summary announces joined runs.
fn joins(spec: &ReceiveSpec) -> bool {
    spec.name.contains("gro") || spec.summary.contains("joined")
}

/// Returns the members that this host can use.
fn usable() -> Vec<&'static ReceiveSpec> {
    let host = Host::here();
    let mut usable = Vec::new();
    for spec in RECEIVE_PATHS {
        match (spec.probe)(&host) {
            Ok(()) => usable.push(*spec),
            Err(reason) => skip(format!("{spec}: {reason}")),
        }
    }
    usable
}

/// A received datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Got {
    key: u32,
    source: SocketAddr,
    bytes: Vec<u8>,
}

/// A path object and its received datagrams.
struct Receiver {
    place: Place,
    path: Box<dyn ReceivePath>,
    got: Vec<Got>,
    /// Number of bursts handed over, and of their pieces.
    bursts: u64,
    arrivals: u64,
}

impl Receiver {
    /// Opens a receiver; `None`, with the reason printed, where the host does not grant the memory.
    fn new(place: Place) -> Option<Self> {
        match (place.spec.open)() {
            Err(Error::Host { call, errno, object }) if errno.code() == NO_MEMORY => {
                skip(format!("{place}: {call} on {object}: {errno}"));
                None
            }
            path => {
                let (path, got) = (path.unwrap(), Vec::new());
                Some(Self { place, path, got, bursts: 0, arrivals: 0 })
            }
        }
    }

    /// Adds a port of the kernel's choice; returns its address.
    fn add(&mut self, key: u32) -> SocketAddr {
        self.add_port(key, self.port(0))
    }

    fn add_port(&mut self, key: u32, port: Port) -> SocketAddr {
        self.path.add(&port, key).unwrap_or_else(|error| panic!("{}: {error}", self.place));
        self.path.address(key).unwrap()
    }

    fn port(&self, buffer_bytes: u32) -> Port {
        let address = SocketAddr::new(self.place.far, 0);
        let interface = self.place.interface.map(str::to_string);
        Port { address, sources: Vec::new(), interface, buffer_bytes }
    }

    /// Receives once.
    fn receive(&mut self, wait: Duration) -> Result<usize, Error> {
        let Self { path, got, bursts, arrivals, .. } = self;
        let mut count = 0;
        let received = path.receive(wait, &mut |burst: &[ReceivedRun<'_>]| {
            assert!(!burst.is_empty(), "a burst is of something");
            *bursts += 1;
            *arrivals += burst.len() as u64;
            for run in burst {
                count += run.count();
                got.extend(run.datagrams().map(|bytes| Got {
                    key: run.key,
                    source: run.source,
                    bytes: bytes.to_vec(),
                }));
            }
        })?;
        assert_eq!(received, count, "{}: what it says and what it hands over", self.place);
        Ok(received)
    }

    /// Receives until `count` datagrams arrived, or the timeout expires.
    fn wait_for(&mut self, count: usize) {
        self.wait_until(|got| got.len() >= count);
    }

    /// Receives until the datagrams are `enough`, or the timeout expires.
    fn wait_until(&mut self, enough: impl Fn(&[Got]) -> bool) {
        let start = Instant::now();
        while !enough(&self.got) && start.elapsed() < TIMEOUT {
            self.receive(Duration::from_millis(100)).unwrap();
        }
    }

    /// Returns all datagrams that have arrived at the port `key`, which is at `address`, so far:
    /// waits for `count`, then for a final one of its own, which arrives after all others.
    fn all(&mut self, key: u32, address: SocketAddr, count: usize) -> Vec<Got> {
        // Only this port's datagrams count: others' do not prove that these have arrived, and the
        // final one could overtake them.
        let is_its = |got: &&Got| got.key == key;
        self.wait_until(|got| got.iter().filter(is_its).count() >= count);
        let sender = Sender::new(self.place.near, address);
        sender.one(END);
        self.wait_until(|got| got.iter().filter(is_its).any(|got| got.bytes == END));
        let (of_key, others) =
            std::mem::take(&mut self.got).into_iter().partition(|got| is_its(&got));
        self.got = others;
        let mut of_key: Vec<Got> = of_key;
        let last = of_key.pop().unwrap_or_else(|| panic!("{}: nothing came", self.place));
        assert_eq!(last.bytes, END, "{}: the last datagram arrived", self.place);
        of_key
    }

    /// Asserts that exactly these arrived at the port, from `source`, and in this order.
    fn assert_all(
        &mut self,
        (key, address): (u32, SocketAddr),
        source: SocketAddr,
        sent: &[Vec<u8>],
        what: &str,
    ) {
        let got = self.all(key, address, sent.len());
        let what = format!("{} {what}", self.place);
        for (number, (got, sent)) in got.iter().zip(sent).enumerate() {
            assert_eq!(got.bytes.len(), sent.len(), "{what}: length of datagram {number}");
            assert!(got.bytes == *sent, "{what}: bytes of datagram {number}");
            assert_eq!(got.source, source, "{what}: source of datagram {number}");
        }
        assert_eq!(got.len(), sent.len(), "{what}: number of datagrams");
    }

    fn stats(&self) -> ReceiveStats {
        self.path.stats()
    }
}

const NO_MEMORY: i32 = rustix::io::Errno::NOMEM.raw_os_error();

/// `count` datagrams of `bytes` bytes, the last of `last_bytes`.
fn datagrams(count: usize, bytes: usize, last_bytes: usize) -> Vec<Vec<u8>> {
    let length = |number| if number + 1 == count { last_bytes } else { bytes };
    (0..count).map(|number| noise(length(number), number as u64)).collect()
}
