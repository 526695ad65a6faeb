// SPDX-License-Identifier: MIT OR Apache-2.0
//! media_ports: the ports that send RTP and receive RTCP.
//!
//! In the shared form every session's RTP leaves from one port and one RTCP socket beside it serves
//! all: a firewall needs two open ports, a session costs one descriptor. Each session still has a
//! socket of its own, bound to the shared port and connected to its client, because `sendfile`
//! needs a connected socket and the kernel then resolves route and neighbour once. In the range
//! form each session has its own pair.
//!
//! Sources: RFC 3550 §11 (even port for RTP, the next for RTCP), RFC 2326 §12.39 (server_port),
//! socket(7) `SO_REUSEADDR` for UDP.
//! Does not do multicast.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket as StdUdpSocket};
use std::sync::{Arc, Mutex};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use crate::error::{Error, Setting};

/// Ports that media may be sent from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaPorts {
    /// One even port for all RTP, the next for RTCP; 0 picks a free pair.
    One(u16),
    /// Each session takes an even port and the next from this range, both ends included.
    Range(u16, u16),
}

/// The ports of a running server.
pub(crate) enum MediaPortPool {
    Shared { rtp: u16, rtcp: Arc<UdpSocket>, _rtp_held: Socket },
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
            used.lock().unwrap().remove(&self.rtp);
        }
    }
}

impl MediaPortPool {
    /// Opens the shared pair on the address of the RTSP listener, or stores the range.
    pub(crate) fn open(ports: MediaPorts, address: IpAddr) -> Result<MediaPortPool, Error> {
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
            MediaPorts::One(port) if port % 2 == 1 => Err(Error::Setting {
                setting: Setting::MediaPorts,
                found: port.to_string(),
                cure: format!("RTP takes an even port (RFC 3550 §11); write {}", port - 1),
            }),
            MediaPorts::One(port) => shared(address, port).map_err(|e| no_pair(address, port, e)),
            MediaPorts::Range(first, last) => {
                let even = first.checked_next_multiple_of(2).unwrap_or(0);
                if even == 0 || last <= even {
                    return Err(Error::Setting {
                        setting: Setting::MediaPorts,
                        found: format!("{first}-{last}"),
                        cure: "a range holds at least one even port and the next: \
                               write 20000-29999"
                            .to_owned(),
                    });
                }
                Ok(MediaPortPool::Range { address, first: even, last, used: Arc::default() })
            }
        }
    }

    /// True when this server sends media from `port` or receives RTCP on it.
    pub(crate) fn own(&self, port: u16) -> bool {
        match self {
            MediaPortPool::Shared { rtp, .. } => port == *rtp || port == *rtp + 1,
            MediaPortPool::Range { used, .. } => used.lock().unwrap().contains(&(port & !1)),
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
                let mut taken = used.lock().unwrap();
                for rtp in (*first..*last)
                    .step_by(2)
                    .filter(|rtp| !taken.contains(rtp))
                    .collect::<Vec<_>>()
                {
                    match pair_of(*address, rtp) {
                        Ok(socket) => {
                            let rtcp = Arc::new(UdpSocket::from_std(socket.into())?);
                            taken.insert(rtp);
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

/// True when packets to this address return to this machine.
pub(crate) fn is_own_address(address: IpAddr) -> bool {
    bound(address, 0).is_ok()
}

/// Opens a socket bound to `local` port `rtp` and connected to the client, for sending only.
pub(crate) fn media_socket(local: IpAddr, rtp: u16, peer: SocketAddr) -> io::Result<StdUdpSocket> {
    let socket = new_socket(local)?;
    // Never read: datagrams from clients (hole punching) must not take memory.
    socket.set_recv_buffer_size(0)?;
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::new(local, rtp).into())?;
    socket.connect(&peer.into())?;
    Ok(socket.into())
}

fn shared(address: IpAddr, rtp: u16) -> io::Result<MediaPortPool> {
    // Bound first without SO_REUSEADDR, so that a port in use is refused.
    drop(bound(address, rtp)?);
    let held = new_socket(address)?;
    held.set_reuse_address(true)?;
    held.bind(&SocketAddr::new(address, rtp).into())?;
    held.set_recv_buffer_size(0)?;
    let rtcp = bound(address, rtp.checked_add(1).ok_or(io::ErrorKind::AddrNotAvailable)?)?;
    rtcp.set_recv_buffer_size(RTCP_BUFFER_BYTES)?;
    let rtcp = Arc::new(UdpSocket::from_std(rtcp.into())?);
    Ok(MediaPortPool::Shared { rtp, rtcp, _rtp_held: held })
}

/// Opens the RTCP socket of a pair whose RTP port no other process has.
fn pair_of(address: IpAddr, rtp: u16) -> io::Result<Socket> {
    let probe = new_socket(address)?;
    // The socket of a just ended session may still be open; it has this option set, too.
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
