// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole frames from XDP sockets, past the kernel's network altogether.
//!
//! A program on the device ([`super::program`]) sends frames for awaited ports to an XDP socket,
//! one for each queue of the device, before IP, UDP or a firewall see them, and passes all others
//! on. The frames lie in memory of this process, and arrive without a call. In copy mode the kernel
//! copies each into it; a driver with zero-copy writes them there.
//!
//! A link holds the program; the kernel closes the link when this process ends in any way, which
//! removes the program from the device. The program is attached in the driver (native) if possible,
//! otherwise in the kernel (generic), which has allocated a buffer by then, so less is saved. A
//! program that is already attached stays, so a device serves one path object at a time.
//!
//! Frames received here are invisible to the rest of the host: to a second member of a group, and
//! to packet sockets. Frames of a VLAN are passed on to the VLAN's device if their tag is in the
//! frame; on a card that strips tags, switch that off where VLANs matter (`ethtool -k`,
//! rx-vlan-offload). There are no joined runs: a device with XDP does not join, and a veth's peer
//! segments super-packets before it sends.
//!
//! While frames arrive, the ring is polled once a millisecond, and no reader is woken for a frame:
//! a datagram may be late by a millisecond.
//!
//! A datagram by veth, in copy mode, costs 1.5 µs of receiving (64 bytes) to 1.7 (1,328), softirq
//! included, where `recvmmsg` takes 2.2 to 2.3 (`pagewire lab receive`). Of 1.7 a third is copying:
//! the sender's buffer into a page that XDP can have, and that into the ring; two fifths are making
//! the page and freeing both; the program is a tenth. A card's driver needs neither the first copy
//! nor the freeing, and one with zero-copy needs no copy (docs/measuring.md has the profile).
//!
//! Checksums are verified here, because no card reports its verification to an XDP socket. A sender
//! on this host leaves them unfinished on devices without a wire (veth): the field then holds the
//! sum of the pseudo-header, which is accepted on such devices and in generic mode alone.
//!
//! Sources: `Documentation/networking/af_xdp.rst`; Linux 6.18 `net/core/dev.c`
//! (`bpf_xdp_link_attach`), `drivers/net/veth.c` (`veth_xdp_set`, `veth_xdp_rcv_skb`);
//! [`crate::sys`]'s `bpf` and `xdp_receive`.
//!
//! Does not receive frames of more than a page. Does not keep the order between queues; a card
//! delivers each flow by one queue. Frames dropped for lack of memory are counted for all ports of
//! a device together; frames that a driver drops before its program runs (veth: 256 frames a queue)
//! are counted by the device (`ip -s link`).

use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use crate::error::{Errno, Error, Unavailable, Untapped};
use crate::host::Host;
use crate::receive::awaited_ports::AwaitedPorts;
use crate::receive::frames::{ChecksumStatus, packet_of_ethernet};
use crate::receive::program::{KEY_BYTES, TIME_BYTES, VALUE_BYTES, key, program};
use crate::receive::sockets::SocketOptions;
use crate::receive::taps::{CapturedFrame, Delivery, Device, Tap, Taps};
use crate::receive::{ReceiveSpec, pause};
use crate::spec::{SystemCalls, Via};
use crate::sys::{self, KernelMap, MapKind, Waiting, XdpMode, XdpProgram, XdpQueue};

pub(crate) static SPEC: ReceiveSpec = ReceiveSpec {
    name: "xdp",
    summary: "whole frames from XDP sockets, past the kernel's network, no call a datagram",
    copies_per_byte: 1,
    system_calls: SystemCalls::PerBatch(0),
    via: Via::Device,
    sources: &["linux af_xdp.rst", "bpf(2)"],
    probe,
    open: || Ok(Box::new(Taps::<XdpTap>::new()?)),
};

/// Links of programs need Linux 5.9.
fn probe(host: &Host) -> Result<(), Unavailable> {
    host.needs_kernel(5, 9)?;
    host.needs_xdp_sockets()?;
    host.needs_raw_frames()?;
    host.needs_xdp_programs()
}

/// Addresses and ports that a device's program looks up.
const AWAITED_MAX: u32 = 16 * 1024;
/// Queues that a device has a socket for.
const QUEUES_MAX: u32 = 64;
/// Bytes a socket may hold (`SO_RCVBUF`) for each slot of a queue's memory: the kernel grants twice
/// that, of which the shortest datagram uses 768 bytes. So a ring holds about as many of them.
const BUFFER_BYTES_A_SLOT: u32 = 512;
/// Slots of a queue's memory at least and at most: 4 and 64 MiB, pinned.
const SLOTS_MIN: u32 = 2048;
const SLOTS_MAX: u32 = 32 * 1024;
/// Frames processed between two returns of slots; half of the smallest ring would suffice.
const FRAMES_A_TURN: u32 = 256;
/// Interval of polls while frames arrive. Waking costs 20 µs, a poll some ten nanoseconds, and the
/// smallest ring is full after 20 ms of 100,000 frames a second.
const NAP: Duration = Duration::from_millis(1);
/// Bytes of an Ethernet header with a tag.
const ETHERNET_BYTES: u32 = 18;
/// Pause and number of attempts while a queue's socket was just closed: the kernel leaves closing
/// to a worker.
const QUEUE_WAIT: Duration = Duration::from_millis(10);
const QUEUE_TRIES: u32 = 200;

#[derive(Debug)]
struct XdpTap {
    /// The link is the first field, so that no frame is sent to sockets that are being closed.
    _link: OwnedFd,
    _program: XdpProgram,
    _sockets: KernelMap,
    wanted: KernelMap,
    queues: Vec<XdpQueue>,
    status: ChecksumStatus,
}

impl Tap for XdpTap {
    const OPTIONS: SocketOptions = SocketOptions { time: false, joined: false, discard: true };
    const NAP: Option<Duration> = Some(NAP);

    fn open(device: &Device, buffer_bytes: u32) -> Result<Self, Error> {
        let frame_bytes = device.mtu.saturating_add(ETHERNET_BYTES);
        if frame_bytes > XdpQueue::FRAME_BYTES_MAX {
            let (mtu, most) = (device.mtu, XdpQueue::FRAME_BYTES_MAX - ETHERNET_BYTES);
            return Err(device.untapped(Untapped::TooLarge { mtu, most }));
        }
        let made = |errno| device.host("bpf BPF_MAP_CREATE", errno);
        let wanted = KernelMap::new(MapKind::Hash, KEY_BYTES, VALUE_BYTES, AWAITED_MAX);
        let wanted = wanted.map_err(made)?;
        let sockets = KernelMap::new(MapKind::Sockets, 4, 4, QUEUES_MAX).map_err(made)?;
        let program = XdpProgram::load(&program(&wanted, &sockets))
            .map_err(|(errno, log)| device.untapped(Untapped::Refused { errno, log }))?;
        let (link, mode) = attach(&program, device)?;
        let slots = (buffer_bytes / BUFFER_BYTES_A_SLOT).clamp(SLOTS_MIN, SLOTS_MAX);
        let slots = slots.next_power_of_two();
        let queues = open_queues(device, frame_bytes, slots)?;
        for (number, queue) in queues.iter().enumerate() {
            sockets
                .put_socket(number as u32, queue.as_fd())
                .map_err(|errno| device.host("bpf BPF_MAP_UPDATE_ELEM of a socket", errno))?;
        }
        let may_be_unfinished = device.is_virtual || mode == XdpMode::Generic;
        let status = if may_be_unfinished {
            ChecksumStatus::MayBePartial
        } else {
            ChecksumStatus::Unverified
        };
        Ok(Self { _link: link, _program: program, _sockets: sockets, wanted, queues, status })
    }

    fn steer(
        &mut self,
        device: &Device,
        before: &AwaitedPorts,
        now: &AwaitedPorts,
    ) -> Result<(), Error> {
        for awaited in now.iter().filter(|new| !before.has(new.target, new.port)) {
            let entry = key(awaited.target, awaited.port);
            let put = self.wanted.put(&entry, &[1; VALUE_BYTES]);
            put.map_err(|errno| device.host("bpf BPF_MAP_UPDATE_ELEM of a port", errno))?;
        }
        for awaited in before.iter().filter(|old| !now.has(old.target, old.port)) {
            // An address that was awaited twice is already removed.
            let _ = self.wanted.remove(&key(awaited.target, awaited.port));
        }
        Ok(())
    }

    fn wait_for(&self, waiting: &mut Waiting) {
        self.queues.iter().for_each(|queue| waiting.add(queue.as_fd()));
    }

    fn take(&mut self, wanted: &AwaitedPorts, to: &mut Delivery<'_>) {
        let Self { status, .. } = *self;
        for queue in &mut self.queues {
            let mut left = queue.slot_count();
            loop {
                let count = queue.ready(FRAMES_A_TURN.min(left));
                if count == 0 {
                    break;
                }
                let clock = sys::since_epoch_at_zero();
                let frame_at =
                    |number| captured_frame(queue.frame(number, TIME_BYTES), status, clock);
                let frames = (0..count).filter_map(frame_at);
                to.over(wanted, frames, u64::from(!queue.is_zero_copy()));
                if queue.give_back(count) {
                    to.called();
                    queue.wake();
                }
                left -= count;
            }
        }
    }

    fn settle(&self) {}

    fn pause_max(&self) -> Duration {
        let slots = self.queues.iter().map(XdpQueue::slot_count).min();
        slots.map_or(Duration::MAX, |slots| pause::of_slots(slots.into()))
    }

    fn drops(&self) -> u64 {
        self.queues.iter().filter_map(|queue| queue.drops().ok()).sum()
    }
}

/// Splits a frame from the time in front of it, which is 0 where the driver cannot store it there;
/// `clock` is the user's clock at that clock's zero.
fn captured_frame(
    frame: &[u8],
    status: ChecksumStatus,
    clock: Option<Duration>,
) -> Option<CapturedFrame<'_>> {
    let (time, frame) = frame.split_first_chunk::<TIME_BYTES>()?;
    let time = match u64::from_ne_bytes(*time) {
        0 => None,
        nanoseconds => clock.and_then(|clock| {
            UNIX_EPOCH.checked_add(clock)?.checked_add(Duration::from_nanos(nanoseconds))
        }),
    };
    let (network, packet) = packet_of_ethernet(frame)?;
    Some(CapturedFrame { network, packet, status, segment_bytes: 0, time, is_cut: false })
}

/// Attaches the program to the device: in the driver, or otherwise in the kernel.
fn attach(program: &XdpProgram, device: &Device) -> Result<(OwnedFd, XdpMode), Error> {
    let mut refusal = Errno::new(libc::EOPNOTSUPP);
    for mode in [XdpMode::Native, XdpMode::Generic] {
        match program.attach(device.index, mode) {
            Ok(link) => return Ok((link, mode)),
            // EEXIST: a program of the other mode is attached.
            Err(errno) if matches!(errno.code(), libc::EBUSY | libc::EEXIST) => {
                return Err(device.untapped(Untapped::OtherProgram));
            }
            Err(errno) => refusal = errno,
        }
    }
    Err(device.host("bpf BPF_LINK_CREATE of an XDP program", refusal))
}

/// Returns a socket for each queue of the device.
fn open_queues(device: &Device, frame_bytes: u32, slots: u32) -> Result<Vec<XdpQueue>, Error> {
    let mut queues = Vec::new();
    let mut tries = 0;
    loop {
        let number = queues.len() as u32;
        match XdpQueue::open((device.index, number), frame_bytes, slots) {
            // Frames of further queues would be passed on and lost without a count.
            Ok(_) if number == QUEUES_MAX => {
                return Err(device.untapped(Untapped::TooManyQueues { most: QUEUES_MAX }));
            }
            Ok(queue) => queues.push(queue),
            // There are no more queues.
            Err((_, errno)) if errno.code() == libc::EINVAL && number > 0 => return Ok(queues),
            Err((_, errno)) if errno.code() == libc::EBUSY => {
                tries += 1;
                if tries == QUEUE_TRIES {
                    return Err(device.untapped(Untapped::OtherSocket { queue: number }));
                }
                thread::sleep(QUEUE_WAIT);
            }
            Err((call, errno)) => return Err(device.host(call, errno)),
        }
    }
}
