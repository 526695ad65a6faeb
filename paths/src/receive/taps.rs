// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiving frames from devices, for the paths by device.
//!
//! A path has a tap on each device that receives for one of its ports, and for each port a socket
//! that drops all datagrams: it holds the port, so that no other program gets it and the kernel
//! sends no ICMP errors, and it is a member of the group, so that network and device deliver its
//! datagrams. Each tapped frame is checked ([`super::frames`]) for its owner and its soundness.
//!
//! An unnamed device is the one that has the address, or to which the route to the group leads.
//! Packets that this host sends to an address of its own arrive by loopback and by no other device.
//!
//! A device that is removed or switched off does not wake a reader. So one of the taps' devices,
//! another each time, is checked after waits of a tenth of a second in all without a frame, and
//! every 256 calls: two calls, counted with the others.
//!
//! Sources: `packet(7)`, `getifaddrs(3)`, `rtnetlink(7)`; RFC 1122 §3.3.4.2.
//!
//! Does not replace the rest of the kernel's IP (firewall, IPsec, options of IPv4): see
//! [`crate::Via::Device`].

use std::collections::HashMap;
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, SystemTime};

use simd::{Checksum, Kernels};

use crate::error::{Errno, Error, Untapped};
use crate::frame;
use crate::receive::awaited_ports::{AwaitedPort, AwaitedPorts};
use crate::receive::frames::{ChecksumStatus, IpVersion, UdpPacket};
use crate::receive::sockets::{PortSocket, SocketOptions, emptied};
use crate::receive::{Port, ReceivePath, ReceiveStats, ReceivedRun};
use crate::send_stats::SendStats;
use crate::sys::{self, Netlink, Waiting};

/// Largest number of devices of a path: each ring is some MiB of memory.
const DEVICES_MAX: usize = 8;

/// Largest number of datagrams in a burst.
const BURST: usize = 64;

/// The longest wait in one piece; the devices are checked after it.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// Time of waits without a frame after which a device is checked.
const VAIN_MAX: Duration = Duration::from_millis(100);

/// Calls after which a device is checked although frames arrive.
const CALLS_A_QUESTION: u32 = 256;

/// The checksum variant, tested and chosen once for all threads.
static CHECKSUM: LazyLock<Checksum> = LazyLock::new(|| Kernels::here().checksum);

/// A device with a tap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) index: u32,
    pub(super) name: Arc<str>,
    pub(super) mtu: u32,
    /// True when the device is made by software, so that a sender may be on this host.
    pub(super) is_virtual: bool,
}

impl Device {
    fn of(index: u32, kernel: &Netlink, what: &str) -> Result<Self, Error> {
        let link = frame::link(kernel, index, &mut SendStats::default()).map_err(|errno| {
            let object = what.into();
            Error::Host { call: "rtnetlink", object, errno }
        })?;
        let (name, mtu, is_virtual) = (link.name.into(), link.mtu, link.is_virtual);
        Ok(Self { index, name, mtu, is_virtual })
    }

    pub(super) fn untapped(&self, reason: Untapped) -> Error {
        Error::Untapped { device: self.name.clone(), reason }
    }

    pub(super) fn host(&self, call: &'static str, errno: Errno) -> Error {
        Error::Host { call, object: self.name.clone(), errno }
    }

    /// Checks that the device exists and is up.
    fn ask_after(&self, kernel: &Netlink, send_stats: &mut SendStats) -> Result<(), Error> {
        match frame::link(kernel, self.index, send_stats) {
            Ok(link) if link.is_up => Ok(()),
            Ok(_) => Err(self.untapped(Untapped::Down)),
            Err(errno) if errno.code() == libc::ENODEV => Err(self.untapped(Untapped::Gone)),
            Err(errno) => Err(self.host("rtnetlink", errno)),
        }
    }
}

/// One way to receive frames from a device.
pub(super) trait Tap: Debug + Send + Sized {
    /// Options of the sockets that hold the ports.
    const OPTIONS: SocketOptions;

    /// Sleep between polls, instead of a wait, while each poll finds frames; `None` where the
    /// kernel wakes no reader for a few frames.
    const NAP: Option<Duration>;

    /// Opens a tap, which receives no frames yet.
    fn open(device: &Device, buffer_bytes: u32) -> Result<Self, Error>;

    /// Changes the awaited ports from `before` to `now`.
    fn steer(
        &mut self,
        device: &Device,
        before: &AwaitedPorts,
        now: &AwaitedPorts,
    ) -> Result<(), Error>;

    /// Adds the tap to the wait.
    fn wait_for(&self, waiting: &mut Waiting);

    /// Hands over the waiting frames, up to a bound.
    fn take(&mut self, wanted: &AwaitedPorts, to: &mut Delivery<'_>);

    /// Reads the kernel's pending error, which would keep the socket ready.
    fn settle(&self);

    /// Returns the longest pause while it is empty.
    fn pause_max(&self) -> Duration;

    /// Returns the number of frames dropped since it was opened for lack of memory.
    fn drops(&self) -> u64;
}

/// A tap on a device, and the awaited ports there.
#[derive(Debug)]
struct Open<T> {
    device: Device,
    wanted: AwaitedPorts,
    tap: T,
}

/// A port and the socket that holds it.
#[derive(Debug)]
struct DevicePort {
    bound: PortSocket,
    device: u32,
    /// The tap's drops when the port was added.
    drops_before: u64,
}

/// A path by device; belongs to a receiving thread.
#[derive(Debug)]
pub(super) struct Taps<T> {
    taps: Vec<Open<T>>,
    ports: HashMap<u32, DevicePort>,
    waiting: Waiting,
    checksum: Checksum,
    burst: Vec<ReceivedRun<'static>>,
    stats: ReceiveStats,
    kernel: Netlink,
    /// The device checked last.
    asked: usize,
    /// Number of calls, and time of waits without a frame, since the last check of a device.
    calls: u32,
    vain: Duration,
    /// True when the last wait found frames.
    is_flowing: bool,
}

impl<T: Tap> Taps<T> {
    pub(super) fn new() -> Result<Self, Error> {
        let kernel = Netlink::open(&mut SendStats::default()).map_err(|errno| {
            let object = "a path's devices".into();
            Error::Host { call: "rtnetlink", object, errno }
        })?;
        Ok(Self {
            taps: Vec::new(),
            ports: HashMap::new(),
            waiting: Waiting::default(),
            checksum: *CHECKSUM,
            burst: Vec::with_capacity(BURST),
            stats: ReceiveStats::default(),
            kernel,
            asked: 0,
            calls: 0,
            vain: Duration::ZERO,
            is_flowing: false,
        })
    }

    /// Returns the place of the tap on a device, opened if there is none yet.
    fn tap_on(&mut self, device: Device, buffer_bytes: u32) -> Result<usize, Error> {
        if let Some(place) = self.taps.iter().position(|open| open.device.index == device.index) {
            return Ok(place);
        }
        if self.taps.len() >= DEVICES_MAX {
            return Err(device.untapped(Untapped::TooMany { most: DEVICES_MAX }));
        }
        let tap = T::open(&device, buffer_bytes)?;
        self.taps.push(Open { device, wanted: AwaitedPorts::default(), tap });
        Ok(self.taps.len() - 1)
    }

    /// Closes taps without ports.
    fn close_idle(&mut self) {
        self.taps.retain(|open| !open.wanted.is_empty());
    }

    fn add_on(&mut self, place: usize, port: &Port, key: u32) -> Result<(), Error> {
        let Open { device, wanted, tap } = &mut self.taps[place];
        let interface = Some(device.name.to_string());
        let bound = PortSocket::new(&Port { interface, ..port.clone() }, key, T::OPTIONS)?;
        let address = bound.address();
        let mut now = wanted.clone();
        for target in targets(address.ip(), &bound)? {
            let sources = port.sources.clone();
            now.add(AwaitedPort { port: address.port(), target, key, sources });
        }
        let drops_before = tap.drops();
        tap.steer(device, wanted, &now)?;
        *wanted = now;
        self.ports.insert(key, DevicePort { bound, device: device.index, drops_before });
        Ok(())
    }

    /// Waits for frames, or sleeps for a moment while they keep arriving.
    fn wait(&mut self, wait: Duration) -> Result<(), Error> {
        if let (true, Some(nap)) = (self.is_flowing, T::NAP) {
            self.stats.waits += 1;
            thread::sleep(nap.min(wait));
            return Ok(());
        }
        self.waiting.clear();
        self.taps.iter().for_each(|open| open.tap.wait_for(&mut self.waiting));
        self.waiting.wait(wait, &mut self.stats).map_err(|errno| {
            let object = "a path's devices".into();
            Error::Host { call: "ppoll", object, errno }
        })
    }

    /// Checks that a tap's device exists and is up: another each time.
    fn ask_after_device(&mut self) -> Result<(), Error> {
        self.taps.iter().for_each(|open| open.tap.settle());
        self.asked = self.asked.wrapping_add(1);
        let Some(place) = self.asked.checked_rem(self.taps.len()) else { return Ok(()) };
        let mut send_stats = SendStats::default();
        let answer = self.taps[place].device.ask_after(&self.kernel, &mut send_stats);
        self.stats.calls += send_stats.calls;
        answer
    }

    /// Calls each tap to hand over its frames; returns the number of datagrams.
    fn take(&mut self, each: &mut dyn FnMut(&[ReceivedRun<'_>])) -> usize {
        let Self { taps, checksum, burst, stats, .. } = self;
        let before = stats.packets;
        let mut to = Delivery { device: 0, checksum: *checksum, burst, stats, each };
        for Open { device, wanted, tap } in taps {
            to.device = device.index;
            tap.take(wanted, &mut to);
        }
        (self.stats.packets - before) as usize
    }
}

impl<T: Tap> ReceivePath for Taps<T> {
    fn add(&mut self, port: &Port, key: u32) -> Result<(), Error> {
        if self.ports.contains_key(&key) {
            let object = format!("{} as {key}", port.address).into();
            let errno = Errno::new(libc::EEXIST);
            return Err(Error::Host { call: "adding a port", object, errno });
        }
        let device = device_of(port, &self.kernel)?;
        let place = self.tap_on(device, port.buffer_bytes)?;
        let added = self.add_on(place, port, key);
        self.close_idle();
        added
    }

    fn remove(&mut self, key: u32) {
        let Some(device_port) = self.ports.remove(&key) else { return };
        let tap = self.taps.iter_mut().find(|open| open.device.index == device_port.device);
        if let Some(Open { device, wanted, tap }) = tap {
            let mut now = wanted.clone();
            now.remove(key);
            // Where the kernel refuses, further frames arrive than are awaited, and are not handed
            // over.
            let _ = tap.steer(device, wanted, &now);
            *wanted = now;
        }
        self.close_idle();
    }

    fn address(&self, key: u32) -> Option<SocketAddr> {
        self.ports.get(&key).map(|device_port| device_port.bound.address())
    }

    fn receive(
        &mut self,
        wait: Duration,
        each: &mut dyn FnMut(&[ReceivedRun<'_>]),
    ) -> Result<usize, Error> {
        let mut packets = self.take(each);
        if packets == 0 && !wait.is_zero() {
            self.wait(wait.min(WAIT_MAX))?;
            packets = self.take(each);
            self.is_flowing = packets > 0;
        }
        self.vain = if packets > 0 { Duration::ZERO } else { self.vain + wait.min(WAIT_MAX) };
        self.calls = self.calls.wrapping_add(1);
        if self.vain >= VAIN_MAX || self.calls.is_multiple_of(CALLS_A_QUESTION) {
            self.vain = Duration::ZERO;
            self.ask_after_device()?;
        }
        Ok(packets)
    }

    fn pause_max(&self) -> Duration {
        self.taps.iter().map(|open| open.tap.pause_max()).min().unwrap_or(Duration::MAX)
    }

    fn stats(&self) -> ReceiveStats {
        self.stats
    }

    fn dropped(&self, key: u32) -> u64 {
        let Some(device_port) = self.ports.get(&key) else { return 0 };
        let tap = self.taps.iter().find(|open| open.device.index == device_port.device);
        tap.map_or(0, |open| open.tap.drops().saturating_sub(device_port.drops_before))
    }
}

/// Returns the device that receives for a port.
fn device_of(port: &Port, kernel: &Netlink) -> Result<Device, Error> {
    let what = port.address.to_string();
    let host = |call, errno| Error::Host { call, object: what.as_str().into(), errno };
    let index = |name: &str| {
        sys::device_index(name, &mut SendStats::default()).map_err(|errno| {
            let object = format!("{what} on {name}").into();
            Error::Host { call: "if_nametoindex", object, errno }
        })
    };
    if let Some(name) = &port.interface {
        return Device::of(index(name)?, kernel, &what);
    }
    if let SocketAddr::V6(address) = port.address
        && address.scope_id() != 0
    {
        return Device::of(address.scope_id(), kernel, &what);
    }
    let ip = match port.address.ip() {
        ip if ip.is_unspecified() => return Err(Error::NoDevice { address: port.address }),
        group if group.is_multicast() => {
            near(group).map_err(|errno| host("routing to the group", errno))?
        }
        ip => ip,
    };
    let all = sys::addresses().map_err(|errno| host("getifaddrs", errno))?;
    match all.iter().find(|(_, address)| *address == ip) {
        Some((name, _)) => Device::of(index(name)?, kernel, &what),
        None => Err(host("bind", Errno::new(libc::EADDRNOTAVAIL))),
    }
}

/// Returns this host's address on the device of the route to `target`.
fn near(target: IpAddr) -> Result<IpAddr, Errno> {
    let any: SocketAddr = match target {
        IpAddr::V4(_) => ([0; 4], 0).into(),
        IpAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    // The port is arbitrary: no datagram is sent.
    socket.connect((target, 9))?;
    Ok(socket.local_addr()?.ip())
}

/// Returns the addresses that datagrams for a port are sent to.
fn targets(address: IpAddr, bound: &PortSocket) -> Result<Vec<IpAddr>, Error> {
    if !address.is_unspecified() {
        return Ok(vec![address]);
    }
    let all = sys::addresses().map_err(|errno| bound.refused("getifaddrs", errno))?;
    let same = |other: &IpAddr| other.is_ipv4() == address.is_ipv4();
    let mut targets: Vec<IpAddr> = all.into_iter().map(|(_, other)| other).filter(same).collect();
    targets.sort_unstable();
    targets.dedup();
    Ok(targets)
}

/// A frame that a tap has received, from its IP packet on.
#[derive(Clone, Copy, Debug)]
pub(super) struct CapturedFrame<'a> {
    pub(super) network: IpVersion,
    pub(super) packet: &'a [u8],
    pub(super) status: ChecksumStatus,
    /// Bytes of each datagram, as [`ReceivedRun::segment_bytes`].
    pub(super) segment_bytes: u16,
    pub(super) time: Option<SystemTime>,
    /// True when the frame was longer.
    pub(super) is_cut: bool,
}

/// Receiver of the taps' datagrams.
pub(super) struct Delivery<'a> {
    /// The tap's device.
    device: u32,
    checksum: Checksum,
    burst: &'a mut Vec<ReceivedRun<'static>>,
    stats: &'a mut ReceiveStats,
    each: &'a mut dyn FnMut(&[ReceivedRun<'_>]),
}

impl Delivery<'_> {
    /// Counts a call that returned memory to the kernel.
    pub(super) fn called(&mut self) {
        self.stats.calls += 1;
    }

    /// Hands over the sound datagrams of frames for awaited ports. `copies` is the number of times
    /// that the kernel has copied each byte into this process's memory.
    pub(super) fn over<'a>(
        &mut self,
        wanted: &AwaitedPorts,
        frames: impl Iterator<Item = CapturedFrame<'a>>,
        copies: u64,
    ) {
        let mut list: Vec<ReceivedRun<'a>> = emptied(std::mem::take(self.burst));
        for frame in frames {
            let Some(packet) = UdpPacket::of(frame.network, frame.packet) else { continue };
            let mut keys = wanted.keys(packet.target, packet.port(), packet.source).peekable();
            if keys.peek().is_none() {
                continue;
            }
            if frame.is_cut {
                self.stats.truncated += 1;
                continue;
            }
            let Some(bytes) = packet.payload(frame.status, self.checksum) else {
                self.stats.malformed += 1;
                continue;
            };
            self.stats.copied_bytes += copies * bytes.len() as u64;
            let (source, segment_bytes, time) =
                (packet.sender(self.device), frame.segment_bytes, frame.time);
            for key in keys {
                let run = ReceivedRun { key, source, bytes, segment_bytes, time };
                self.stats.packets += run.count() as u64;
                self.stats.bytes += bytes.len() as u64;
                list.push(run);
            }
            if list.len() >= BURST {
                (self.each)(&list);
                list.clear();
            }
        }
        if !list.is_empty() {
            (self.each)(&list);
        }
        *self.burst = emptied(list);
    }
}

#[cfg(test)]
mod tests;
