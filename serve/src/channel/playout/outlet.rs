// SPDX-License-Identifier: MIT OR Apache-2.0
//! One target of a channel: its socket, and bursts to it.
//!
//! The packets of a burst are contiguous in memory and leave by one segmented send. A target that
//! accepts nothing (its interface is down, say) loses packets, which are counted; its socket is
//! opened anew once a second until the target accepts.
//!
//! Sources: ip(7) (`IP_MULTICAST_IF`, `IP_MULTICAST_TTL`), ipv6(7), RFC 2474 §3 (DSCP), RFC 3550
//! §5.1.
//! Does not keep packets for later: packets that are not sent in time are lost.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use paths::{Batch, Destination, MappedFile, SendError, SendStats, StreamPath};
use socket2::{Domain, Protocol, Socket, Type};

use crate::channel::send_target::SendTarget;
use crate::channel::settings::ChannelConfig;
use crate::error::{Error, Setting};

/// A target and its socket.
pub(super) struct Outlet {
    pub(super) target: SendTarget,
    options: OutletOptions,
    to: Option<Destination>,
    /// Local address of the socket, which distinguishes its own packets from others'.
    pub(super) local: Option<SocketAddr>,
    retry_at: Option<Instant>,
    /// Start of the current series of bursts without an accepted packet.
    refused_since: Option<Instant>,
    logged: Option<Instant>,
}

/// Options of a target's socket.
#[derive(Debug, Clone)]
struct OutletOptions {
    interface: Option<String>,
    source: Option<IpAddr>,
    ttl: u8,
    dscp: Option<u8>,
}

/// Packets of a burst, one after the other; all of one size but the last.
#[derive(Default)]
pub(super) struct Burst {
    pub(super) bytes: Vec<u8>,
    pub(super) packet_bytes: usize,
    pub(super) packets: u32,
}

impl Burst {
    /// Adds a packet; false when it must begin another burst.
    pub(super) fn add(&mut self, head: &[u8], payload: &[u8]) -> bool {
        let bytes = head.len() + payload.len();
        let is_first = self.packets == 0;
        let is_whole = self.bytes.len() == self.packets as usize * self.packet_bytes;
        if !is_first && (bytes > self.packet_bytes || !is_whole || self.packets >= BURST_PACKETS) {
            return false;
        }
        if is_first {
            self.packet_bytes = bytes;
        }
        self.bytes.extend_from_slice(head);
        self.bytes.extend_from_slice(payload);
        self.packets += 1;
        true
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.packets = 0;
    }
}

impl Outlet {
    /// Opens the socket of a target.
    ///
    /// # Errors
    /// A setting that this host cannot use. A network that is down is no error: it may come up.
    pub(super) fn open(
        config: &ChannelConfig,
        target: SendTarget,
        now: Instant,
    ) -> Result<Outlet, Error> {
        let options = OutletOptions {
            interface: config.interface.clone().filter(|_| target.is_multicast()),
            source: config.source_of(&target),
            ttl: config.ttl,
            dscp: config.dscp,
        };
        let mut outlet = Outlet {
            target,
            options,
            to: None,
            local: None,
            retry_at: None,
            refused_since: None,
            logged: None,
        };
        match outlet.connect() {
            Ok(()) => Ok(outlet),
            Err(error) if is_passing(&error) => {
                outlet.complain(&error, now);
                outlet.retry_at = Some(now + RETRY_EVERY);
                Ok(outlet)
            }
            Err(error) => Err(Error::Setting {
                setting: Setting::Channels,
                found: format!("channel.{}: {target}", config.name),
                cure: format!("{error}; check the interface and source of the channel"),
            }),
        }
    }

    /// Sends a burst; returns the number of packets that the network accepted.
    pub(super) fn send(
        &mut self,
        burst: &Burst,
        (path, blank): (&mut dyn StreamPath, &MappedFile),
        now: Instant,
        stats: &mut SendStats,
    ) -> u32 {
        if burst.packets == 0 {
            return 0;
        }
        self.reconnect(now);
        let Some(to) = &mut self.to else { return 0 };
        let (mut sent, mut failure) = (0, None);
        let (whole, last) =
            burst.bytes.split_at(burst.bytes.len() / burst.packet_bytes * burst.packet_bytes);
        for bytes in [whole, last] {
            if bytes.is_empty() {
                continue;
            }
            let packets = bytes.len().div_ceil(burst.packet_bytes) as u32;
            let segment_bytes = bytes.len() as u32 / packets;
            let batch = Batch::gathered(blank, packets, segment_bytes, bytes, &[]);
            match path.send(&batch, to, stats) {
                Ok(accepted) => sent += accepted,
                Err(error) => failure = Some(error),
            }
        }
        if sent > 0 {
            self.refused_since = None;
        }
        match failure {
            None => {}
            // The socket is full, or the network is down: a path cannot distinguish the two.
            Some(SendError::Blocked) => {
                let since = *self.refused_since.get_or_insert(now);
                if now.saturating_duration_since(since) > RETRY_EVERY {
                    self.reopen(&"no packet is taken", now);
                }
            }
            Some(error) => self.reopen(&error, now),
        }
        sent
    }

    /// Closes the socket, to be opened anew in a second.
    fn reopen(&mut self, error: &dyn std::fmt::Display, now: Instant) {
        self.complain(error, now);
        self.to = None;
        self.refused_since = None;
        self.retry_at = Some(now + RETRY_EVERY);
    }

    fn reconnect(&mut self, now: Instant) {
        if self.to.is_none() && self.retry_at.is_none_or(|at| now >= at) {
            self.retry_at = Some(now + RETRY_EVERY);
            if let Err(error) = self.connect() {
                self.complain(&error, now);
            }
        }
    }

    fn complain(&mut self, error: &dyn std::fmt::Display, now: Instant) {
        if self.logged.is_none_or(|at| now.saturating_duration_since(at) > LOG_EVERY) {
            self.logged = Some(now);
            tracing::warn!("{}: {error}; trying again every second", self.target);
        }
    }

    fn connect(&mut self) -> io::Result<()> {
        let socket = self.socket()?;
        self.local = socket.local_addr().ok();
        let to = Destination::new(socket, self.target.to_string()).map_err(io::Error::other)?;
        self.to = Some(to);
        Ok(())
    }

    fn socket(&self) -> io::Result<UdpSocket> {
        let (address, options) = (self.target.address, &self.options);
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
        let index = options.interface.as_deref().map(interface_index).transpose()?;
        match address {
            SocketAddr::V4(_) => {
                socket.set_multicast_ttl_v4(u32::from(options.ttl))?;
                if let Some(dscp) = options.dscp {
                    socket.set_tos_v4(u32::from(dscp) << 2)?;
                }
                if let Some(index) = index {
                    rustix::net::sockopt::set_ip_multicast_if_with_ifindex(
                        &socket,
                        &Ipv4Addr::UNSPECIFIED,
                        &Ipv4Addr::UNSPECIFIED,
                        index,
                    )?;
                }
                if !self.target.is_multicast() {
                    socket.set_ttl_v4(u32::from(options.ttl.max(UNICAST_TTL_MIN)))?;
                }
            }
            SocketAddr::V6(_) => {
                socket.set_multicast_hops_v6(u32::from(options.ttl))?;
                if let Some(dscp) = options.dscp {
                    socket.set_tclass_v6(u32::from(dscp) << 2)?;
                }
                if let Some(index) = index {
                    socket.set_multicast_if_v6(index)?;
                }
            }
        }
        let any: IpAddr = match address.is_ipv4() {
            true => Ipv4Addr::UNSPECIFIED.into(),
            false => Ipv6Addr::UNSPECIFIED.into(),
        };
        let source = options.source.filter(|_| self.target.is_multicast()).unwrap_or(any);
        socket.bind(&SocketAddr::new(source, 0).into())?;
        socket.connect(&address.into())?;
        Ok(socket.into())
    }
}

/// Returns the index of an interface of this network namespace, which need not be that of the
/// mounted sysfs.
pub(super) fn interface_index(name: &str) -> io::Result<u32> {
    let missing = |_| io::Error::new(io::ErrorKind::NotFound, format!("no interface {name}"));
    let any = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    rustix::net::netdevice::name_to_index(&any, name).map_err(missing)
}

/// True for a network that may come back.
fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let passing =
        [Errno::NETUNREACH, Errno::NETDOWN, Errno::HOSTUNREACH, Errno::ADDRNOTAVAIL, Errno::NODEV];
    let is = |errno: &Errno| error.raw_os_error() == Some(errno.raw_os_error());
    passing.iter().any(is) || error.kind() == io::ErrorKind::NotFound
}

/// Packets of a send: a segmented send is limited to 64 KiB.
const BURST_PACKETS: u32 = 48;
/// Holds some bursts of a 100 Mb/s stream.
const SEND_BUFFER_BYTES: usize = 1 << 20;
/// The setting is meant for groups; a single receiver may be far away.
const UNICAST_TTL_MIN: u8 = 64;
const RETRY_EVERY: Duration = Duration::from_secs(1);
const LOG_EVERY: Duration = Duration::from_secs(60);
