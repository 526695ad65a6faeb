// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole frames from a packet socket's ring, no call a datagram.
//!
//! A packet socket receives copies of frames: the kernel copies the frames that the filter
//! ([`super::filter`]) passes into a ring that this process has mapped, block by block, and the
//! only call is one wait a block. The frames themselves continue through IP and UDP to the socket
//! that holds the port, which drops them: that work is not saved. The socket's queue and the calls
//! are saved: in runs of 44 datagrams of 1,328 bytes by veth this path takes 0.43 of the time of
//! `recvmmsg`, one by one as much as that (`pagewire lab receive`), and its thread sleeps most of
//! the time.
//!
//! That socket accepts joined runs (`UDP_GRO`), so the kernel does not segment super-packets before
//! it drops them, and joins the pieces that a card delivers; they are joined in the ring, and
//! handed over joined.
//!
//! A burst is a block. Each frame has the time at which the kernel received it. A frame may wait up
//! to 4 ms for its block to be handed over, if nothing else arrives.
//!
//! Sources: `packet(7)`, `Documentation/networking/packet_mmap.rst`, [`crate::sys`]'s
//! `packet_receive`.
//!
//! Does not see frames of a VLAN on the device that carries it (they are of the VLAN's device), and
//! does not see packets that this host sends to itself other than by loopback. Frames dropped for
//! lack of memory are counted for all ports of a device together.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::time::{Duration, UNIX_EPOCH};

use crate::error::Error;
use crate::receive::awaited_ports::AwaitedPorts;
use crate::receive::filter::filter;
use crate::receive::frames::{ChecksumStatus, IpVersion};
use crate::receive::sockets::SocketOptions;
use crate::receive::taps::{CapturedFrame, Delivery, Device, Tap, Taps};
use crate::receive::{ReceiveSpec, pause};
use crate::spec::{SystemCalls, Via};
use crate::sys::{BlockRing, Frame, Waiting};

pub(crate) static SPEC: ReceiveSpec = ReceiveSpec {
    name: "packet_ring",
    summary: "whole frames, or runs as the kernel has joined them, in a packet socket's ring",
    // The ring is the kernel's memory.
    copies_per_byte: 0,
    system_calls: SystemCalls::PerBatch(0),
    via: Via::Device,
    sources: &["packet(7) PACKET_RX_RING", "linux packet_mmap.rst"],
    // The ring has super-packets of UDP with their segment size from 6.2 on.
    probe: |host| host.needs_kernel(6, 2).and_then(|()| host.needs_raw_frames()),
    open: || Ok(Box::new(Taps::<PacketTap>::new()?)),
};

/// Limits of a ring's bytes. Blocks are filled and waited for one by one, so several are needed.
const RING_BYTES_MIN: usize = 4 << 20;
const RING_BYTES_MAX: usize = 256 << 20;

#[derive(Debug)]
struct PacketTap {
    ring: BlockRing,
    /// Total of drops; each query resets the kernel's counter.
    drops: Cell<u64>,
}

impl Tap for PacketTap {
    const OPTIONS: SocketOptions = SocketOptions { time: false, joined: true, discard: true };
    /// The kernel wakes the reader once a block.
    const NAP: Option<Duration> = None;

    fn open(device: &Device, buffer_bytes: u32) -> Result<Self, Error> {
        let bytes = (buffer_bytes as usize).clamp(RING_BYTES_MIN, RING_BYTES_MAX);
        let ring = BlockRing::open(device.index, bytes, &filter(&AwaitedPorts::default()))
            .map_err(|(call, errno)| device.host(call, errno))?;
        Ok(Self { ring, drops: Cell::new(0) })
    }

    fn steer(
        &mut self,
        device: &Device,
        _: &AwaitedPorts,
        now: &AwaitedPorts,
    ) -> Result<(), Error> {
        let set = self.ring.set_filter(&filter(now));
        set.map_err(|errno| device.host("setsockopt SO_ATTACH_FILTER", errno))
    }

    fn wait_for(&self, waiting: &mut Waiting) {
        waiting.add(self.ring.as_fd());
    }

    fn take(&mut self, wanted: &AwaitedPorts, to: &mut Delivery<'_>) {
        for _ in 0..self.ring.block_count() {
            let Some(block) = self.ring.block() else { break };
            to.over(wanted, block.filter_map(captured_frame), 0);
            self.ring.release();
        }
    }

    fn settle(&self) {
        // The device's state shows the reason.
        let _ = self.ring.take_error();
    }

    fn pause_max(&self) -> Duration {
        pause::of_ring(self.ring.bytes())
    }

    fn drops(&self) -> u64 {
        let more = self.ring.drops().unwrap_or(0);
        self.drops.set(self.drops.get() + u64::from(more));
        self.drops.get()
    }
}

fn captured_frame(frame: Frame<'_>) -> Option<CapturedFrame<'_>> {
    let Frame { packet, segment_bytes, is_cut, .. } = frame;
    let network = IpVersion::of(frame.protocol)?;
    let status =
        if frame.has_good_checksum { ChecksumStatus::Verified } else { ChecksumStatus::Unverified };
    let time = UNIX_EPOCH.checked_add(frame.stamp);
    Some(CapturedFrame { network, packet, status, segment_bytes, time, is_cut })
}
