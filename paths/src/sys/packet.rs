// SPDX-License-Identifier: MIT OR Apache-2.0
//! A packet socket's ring of frames to transmit (`PACKET_TX_RING`, `TPACKET_V2`).
//!
//! The ring is the kernel's memory, mapped. Each slot begins with a header whose status names its
//! owner: 0 is this program; with `SEND_REQUEST` the kernel sends it at the next `sendto`; with
//! `SENDING` it is under way, the device reading the slot. V2, because V3's blocks of frames of
//! different sizes exist for receiving alone; its ring to transmit has V2's slots with larger
//! headers.
//!
//! Frames go through the device's queue discipline, so the host's sharing and shaping apply, and
//! the queue waits for a driver whose ring is full. `PACKET_QDISC_BYPASS` avoids it, at 0.47
//! instead of 0.51 s/GB into an ifb with pfifo_fast; the gain does not justify unshaped traffic.
//!
//! Sources: `packet(7)`; `Documentation/networking/packet_mmap.rst`; Linux 6.18
//! `net/packet/af_packet.c` (`tpacket_snd`), commit 5cd8d46ea156 (4.20: a device that delivers on
//! this host copies the frame first).
//!
//! Does not receive. The socket is bound to no protocol.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use crate::error::Errno;
use crate::frame::Device;
use crate::frame::ring::{Ring, RingError, Sent};
use crate::send_stats::SendStats;
use crate::sys::area::{Area, ring_ranges};
use crate::sys::{counted, last_errno, set_record, set_send_buffer};

/// Bytes of a ring.
const RING_BYTES: usize = 1 << 20;
/// The smallest slot: a frame of an Ethernet MTU of 1,500 and the slot's header.
const SLOT_BYTES_MIN: usize = 2048;
/// The fewest slots, for devices with MTUs of tens of thousands.
const SLOTS_MIN: usize = 16;
/// Slots are in blocks of contiguous memory of at least this size.
const BLOCK_BYTES_MIN: usize = 64 * 1024;

/// `tpacket2_hdr`: where its fields lie, and where a frame begins behind it.
mod header {
    pub(super) const STATUS: usize = 0;
    pub(super) const FRAME_BYTES: usize = 4;
    pub(super) const BYTES: usize = 32;
}

/// Bits of the status that name a slot's owner; other bits concern time stamps.
const OWNER: u32 = libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_SENDING | WRONG_FORMAT;
const WRONG_FORMAT: u32 = libc::TP_STATUS_WRONG_FORMAT;

/// A packet socket and its ring.
#[derive(Debug)]
pub(crate) struct PacketRing {
    socket: OwnedFd,
    area: Area,
    device: u32,
    slot_bytes: usize,
    slots: u32,
    /// The slot that the kernel reads next, and this program fills next.
    next: u32,
}

impl PacketRing {
    fn status_at(&self, ahead: u32) -> usize {
        let slot = (self.next + ahead) % self.slots;
        slot as usize * self.slot_bytes + header::STATUS
    }

    /// Returns the kernel's status of the slot `ahead` of the next. Acquire: the kernel's use of
    /// the slot precedes this program's.
    fn owner(&self, ahead: u32) -> u32 {
        self.area.word(self.status_at(ahead)).load(Ordering::Acquire) & OWNER
    }
}

impl Ring for PacketRing {
    /// Largest frame: the largest IP packet and an Ethernet header.
    const FRAME_BYTES_MAX: u32 = 65_535 + 14;

    fn open(device: &Device, stats: &mut SendStats) -> Result<Self, RingError> {
        let frame_bytes = device.frame_bytes.min(Self::FRAME_BYTES_MAX);
        let wanted = header::BYTES + frame_bytes as usize;
        let slot_bytes = wanted.next_power_of_two().max(SLOT_BYTES_MIN);
        let slots = (RING_BYTES / slot_bytes).max(SLOTS_MIN);
        let block_bytes = slot_bytes.max(BLOCK_BYTES_MIN);
        let bytes = slots * slot_bytes;
        stats.calls += 2;
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: socket takes no pointer. Protocol 0 receives nothing.
        let descriptor = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if descriptor < 0 {
            return Err(RingError::Refused("socket AF_PACKET", last_errno()));
        }
        // SAFETY: the descriptor is new and owned by no other code.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        set_record(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_VERSION, &version, stats)
            .map_err(|errno| RingError::Refused("setsockopt PACKET_VERSION", errno))?;
        let request = libc::tpacket_req {
            tp_block_size: block_bytes as libc::c_uint,
            tp_block_nr: (bytes / block_bytes) as libc::c_uint,
            tp_frame_size: slot_bytes as libc::c_uint,
            tp_frame_nr: slots as libc::c_uint,
        };
        set_record(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_TX_RING, &request, stats)
            .map_err(|errno| RingError::Refused("setsockopt PACKET_TX_RING", errno))?;
        // Frames under way count against the socket's buffer; a refusal of a larger one does not
        // matter, because a batch can be accepted in part.
        set_send_buffer(socket.as_fd(), bytes, stats);
        let area = Area::of_socket(socket.as_fd(), 0, bytes)
            .map_err(|errno| RingError::Refused("mmap of PACKET_TX_RING", errno))?;
        let (device, slots) = (device.index, slots as u32);
        Ok(Self { socket, area, device, slot_bytes, slots, next: 0 })
    }

    fn device(&self) -> u32 {
        self.device
    }

    fn slot_count(&self) -> u32 {
        self.slots
    }

    fn frame_bytes_max(&self) -> u32 {
        (self.slot_bytes - header::BYTES) as u32
    }

    fn stride(&self) -> usize {
        self.slot_bytes
    }

    fn frame_at(&self) -> usize {
        header::BYTES
    }

    fn free(&mut self, wanted: u32, _: &mut SendStats) -> u32 {
        let wanted = wanted.min(self.slots);
        (0..wanted).take_while(|ahead| self.owner(*ahead) == 0).count() as u32
    }

    fn slots(&mut self, count: u32) -> [&mut [u8]; 2] {
        let free = (0..count).all(|ahead| self.owner(ahead) == 0);
        assert!(free, "the slots are ours");
        let (first, second) = ring_ranges(self.next, count, self.slots, self.slot_bytes);
        // SAFETY: the kernel writes a slot's header alone, and that only while the slot is its own;
        // these are not, as asserted.
        unsafe { self.area.two(first, second) }
    }

    /// The ring is the kernel's memory.
    fn filled(head_bytes: u64, stats: &mut SendStats) {
        stats.copied_bytes += head_bytes;
    }

    fn send(
        &mut self,
        count: u32,
        frame_bytes: u32,
        last_bytes: u32,
        stats: &mut SendStats,
    ) -> Sent {
        for ahead in 0..count {
            let bytes = if ahead + 1 == count { last_bytes } else { frame_bytes };
            let at = self.status_at(ahead);
            // SAFETY: a field of a slot that is ours until its status is changed, below.
            unsafe { self.area.put(at - header::STATUS + header::FRAME_BYTES, bytes) };
            // Release: the frame's bytes and length are written before the word that hands them
            // over.
            self.area.word(at).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        }
        let called = self.kick(stats);
        let wanted =
            u64::from(frame_bytes) * u64::from(count.saturating_sub(1)) + u64::from(last_bytes);
        if called.is_ok_and(|bytes| bytes as u64 == wanted) {
            self.next = (self.next + count) % self.slots;
            return Sent { accepted: count, errno: None };
        }
        // The kernel processes the slots in order and stops at the first that it cannot send, which
        // it leaves requested or marks as wrong.
        let not_accepted = libc::TP_STATUS_SEND_REQUEST | WRONG_FORMAT;
        let accepted =
            (0..count).take_while(|ahead| self.owner(*ahead) & not_accepted == 0).count() as u32;
        for ahead in accepted..count {
            // The kernel reads statuses in `sendto` only, which has returned: the slots are free
            // again.
            self.area.word(self.status_at(ahead)).store(0, Ordering::Release);
        }
        self.next = (self.next + accepted) % self.slots;
        let short = (accepted < count).then_some(Errno::new(libc::EAGAIN));
        Sent { accepted, errno: called.err().or(short) }
    }
}

impl PacketRing {
    /// Makes the kernel send the requested frames; returns the bytes of frames that it accepted.
    fn kick(&self, stats: &mut SendStats) -> Result<usize, Errno> {
        // SAFETY: sockaddr_ll is plain numbers, for which all zeroes is a value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_IP as u16).to_be();
        address.sll_ifindex = self.device as libc::c_int;
        stats.calls += 1;
        // SAFETY: no bytes are sent from here, and `address` is alive with the length given.
        let sent = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        counted(sent)
    }
}

const _: () = {
    assert!(size_of::<libc::tpacket2_hdr>() == header::BYTES);
    assert!(std::mem::offset_of!(libc::tpacket2_hdr, tp_status) == header::STATUS);
    assert!(std::mem::offset_of!(libc::tpacket2_hdr, tp_len) == header::FRAME_BYTES);
};
