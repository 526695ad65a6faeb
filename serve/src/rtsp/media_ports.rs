// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ports that send RTP and receive RTCP.
//!
//! In the shared form all sessions send RTP from one port, and one RTCP socket on the next port
//! serves all: a firewall needs two open ports, and a session costs one descriptor. Each session
//! still has a socket of its own, bound to the shared port and connected to its client, because
//! `sendfile` needs a connected socket and the kernel then resolves route and neighbour once. In
//! the range form each session has its own pair.
//!
//! Sources: RFC 3550 §11 (even port for RTP, the next for RTCP), RFC 2326 §12.39 (server_port),
//! socket(7) `SO_REUSEADDR` for UDP.
//! Does not support multicast.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket as StdUdpSocket};
use std::sync::Arc;

use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use crate::error::{Error, Setting};
use crate::sockets::MediaPair;

/// Ports that media may be sent from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaPorts {
    /// One even port for all RTP, the next for RTCP; 0 picks a free pair.
    One(u16),
    /// Each session leases an even port and the next from this inclusive range.
    Range(u16, u16),
}

impl MediaPorts {
    /// Checks the numbers, without opening a port.
    ///
    /// # Errors
    /// [`Error::Setting`]: an odd port, or a range without a pair.
    pub(crate) fn check(self) -> Result<(), Error> {
        let (found, cure) = match self {
            MediaPorts::One(port) if port % 2 == 1 => (
                port.to_string(),
                format!("RTP takes an even port (RFC 3550 §11); write {}", port - 1),
            ),
            MediaPorts::Range(first, last) if first_pair(first, last).is_none() => (
                format!("{first}-{last}"),
                "a range holds at least one even port and the next: write 20000-29999".to_owned(),
            ),
            MediaPorts::One(_) | MediaPorts::Range(..) => return Ok(()),
        };
        Err(Error::Setting { setting: Setting::MediaPorts, found, cure })
    }
}

/// Returns the first even port of a range that also contains the next port.
fn first_pair(first: u16, last: u16) -> Option<u16> {
    first.checked_next_multiple_of(2).filter(|even| *even != 0 && last > *even)
}

/// The ports of a running server.
pub(crate) enum MediaPortPool {
    Shared { rtp: u16, rtcp: Arc<UdpSocket>, pair: MediaPair },
    Range { address: IpAddr, first: u16, last: u16, used: Arc<Mutex<BTreeSet<u16>>> },
}

/// Ports and RTCP socket of a session; dropping it frees them.
pub(crate) struct Lease {
    pub(crate) rtp: u16,
    pub(crate) rtcp: Arc<UdpSocket>,
    /// True when the RTCP socket belongs to this session alone.
    pub(crate) own: bool,
    used: Option<Arc<Mutex<BTreeSet<u16>>>>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(used) = &self.used {
            used.lock().remove(&self.rtp);
        }
    }
}

impl MediaPortPool {
    /// Opens the shared pair on the address of the RTSP listener, or stores the range. A `given`
    /// pair that matches `ports` is shared with the server process that opened it.
    pub(crate) fn open(
        ports: MediaPorts,
        address: IpAddr,
        given: Option<MediaPair>,
    ) -> Result<MediaPortPool, Error> {
        ports.check()?;
        let wanted = |pair: &MediaPair| match (ports, pair.rtp.local_addr()) {
            (MediaPorts::One(port), Ok(bound)) => {
                bound.ip() == address && (port == 0 || port == bound.port())
            }
            _ => false,
        };
        if let Some(pair) = given.filter(wanted) {
            let rtp = pair.rtp.local_addr().map_or(0, |bound| bound.port());
            let registered = pair.rtcp.try_clone().and_then(UdpSocket::from_std);
            let rtcp = Arc::new(registered.map_err(|error| no_pair(address, rtp, error))?);
            return Ok(MediaPortPool::Shared { rtp, rtcp, pair });
        }
        match ports {
            MediaPorts::One(0) => {
                for _ in 0..PAIRS_TRIED_MAX {
                    let port = free_even_port(address).map_err(|e| no_pair(address, 0, e))?;
                    if let Ok(shared) = shared(address, port) {
                        return Ok(shared);
                    }
                }
                Err(no_pair(address, 0, io::ErrorKind::AddrInUse.into()))
            }
            MediaPorts::One(port) => shared(address, port).map_err(|e| no_pair(address, port, e)),
            MediaPorts::Range(first, last) => {
                let first = first_pair(first, last).expect("it was checked");
                Ok(MediaPortPool::Range { address, first, last, used: Arc::default() })
            }
        }
    }

    /// Returns the shared pair, for a successor process.
    pub(crate) fn pair(&self) -> Option<&MediaPair> {
        match self {
            MediaPortPool::Shared { pair, .. } => Some(pair),
            MediaPortPool::Range { .. } => None,
        }
    }

    /// True when this server sends media from `port` or receives RTCP on it.
    pub(crate) fn own(&self, port: u16) -> bool {
        match self {
            MediaPortPool::Shared { rtp, .. } => port == *rtp || port == *rtp + 1,
            MediaPortPool::Range { used, .. } => used.lock().contains(&(port & !1)),
        }
    }

    /// Leases ports for one session. Needs a tokio runtime.
    ///
    /// # Errors
    /// `AddrInUse` when the range is exhausted, otherwise the kernel's error.
    pub(crate) fn lease(&self) -> io::Result<Lease> {
        match self {
            MediaPortPool::Shared { rtp, rtcp, .. } => {
                Ok(Lease { rtp: *rtp, rtcp: rtcp.clone(), own: false, used: None })
            }
            MediaPortPool::Range { address, first, last, used } => {
                let mut leased = used.lock();
                for rtp in (*first..*last)
                    .step_by(2)
                    .filter(|rtp| !leased.contains(rtp))
                    .collect::<Vec<_>>()
                {
                    match pair_of(*address, rtp) {
                        Ok(socket) => {
                            let rtcp = Arc::new(UdpSocket::from_std(socket.into())?);
                            leased.insert(rtp);
                            return Ok(Lease { rtp, rtcp, own: true, used: Some(used.clone()) });
                        }
                        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                        Err(error) => return Err(error),
                    }
                }
                Err(io::ErrorKind::AddrInUse.into())
            }
        }
    }
}

/// True if packets to this address return to this machine.
pub(crate) fn is_own_address(address: IpAddr) -> bool {
    bound(address, 0).is_ok()
}

/// Opens a socket bound to `local` port `rtp` and connected to the client, for sending only.
pub(crate) fn media_socket(local: IpAddr, rtp: u16, peer: SocketAddr) -> io::Result<StdUdpSocket> {
    let socket = new_socket(local)?;
    // The socket is never read: datagrams from clients (hole punching) must not use memory.
    socket.set_recv_buffer_size(0)?;
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::new(local, rtp).into())?;
    socket.connect(&peer.into())?;
    Ok(socket.into())
}

fn shared(address: IpAddr, rtp: u16) -> io::Result<MediaPortPool> {
    // The probe is bound without SO_REUSEADDR, so that a port in use is refused.
    drop(bound(address, rtp)?);
    let held = new_socket(address)?;
    held.set_reuse_address(true)?;
    held.bind(&SocketAddr::new(address, rtp).into())?;
    held.set_recv_buffer_size(0)?;
    let rtcp = bound(address, rtp.checked_add(1).ok_or(io::ErrorKind::AddrNotAvailable)?)?;
    rtcp.set_recv_buffer_size(RTCP_BUFFER_BYTES)?;
    let pair = MediaPair { rtp: Arc::new(held.into()), rtcp: Arc::new(rtcp.into()) };
    let rtcp = Arc::new(UdpSocket::from_std(pair.rtcp.try_clone()?)?);
    Ok(MediaPortPool::Shared { rtp, rtcp, pair })
}

/// Opens the RTCP socket of a pair whose RTP port no other process uses.
fn pair_of(address: IpAddr, rtp: u16) -> io::Result<Socket> {
    let probe = new_socket(address)?;
    // The socket of a session that just ended may still be open; it has this option set, too.
    probe.set_reuse_address(true)?;
    probe.bind(&SocketAddr::new(address, rtp).into())?;
    bound(address, rtp + 1)
}

fn free_even_port(address: IpAddr) -> io::Result<u16> {
    let socket = bound(address, 0)?;
    let local = socket.local_addr()?.as_socket().map_or(0, |a| a.port());
    Ok(local & !1)
}

fn bound(address: IpAddr, port: u16) -> io::Result<Socket> {
    let socket = new_socket(address)?;
    socket.bind(&SocketAddr::new(address, port).into())?;
    Ok(socket)
}

fn new_socket(address: IpAddr) -> io::Result<Socket> {
    let domain = if address.is_ipv6() { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn no_pair(address: IpAddr, port: u16, source: io::Error) -> Error {
    Error::Listen { setting: Setting::MediaPorts, address: SocketAddr::new(address, port), source }
}

/// Holds a few bursts of a 100 Mb/s stream; the kernel grants at most net.core.wmem_max.
const SEND_BUFFER_BYTES: usize = 1 << 20;
/// Reports of thousands of clients arrive within one scheduling delay.
const RTCP_BUFFER_BYTES: usize = 1 << 20;
const PAIRS_TRIED_MAX: u32 = 64;
