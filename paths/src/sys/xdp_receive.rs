// SPDX-License-Identifier: MIT OR Apache-2.0
//! An XDP socket that only receives the frames of one queue of a device.
//!
//! Addresses of free frames of the UMEM go to the kernel in the fill ring; received frames are
//! returned in the receive ring, as address and length, in the order of arrival. Bound without a
//! request for either mode, a socket gets zero-copy where the driver has it, and otherwise copy
//! mode: there the kernel copies each frame into the UMEM. A frame costs no call: in zero-copy a
//! driver that has run out of frames requests one wake-up for all the frames that it is then given.
//!
//! The receive ring has as many entries as there are frames, so it cannot overflow before the fill
//! ring has run empty; a frame that arrives then is dropped, and counted by the kernel.
//!
//! Sources: `Documentation/networking/af_xdp.rst`; Linux 6.18 `net/xdp/xsk.c` (`__xsk_rcv`,
//! `xsk_poll`), `net/xdp/xsk_buff_pool.c` (`xp_assign_dev`).
//!
//! Does not transmit, and does not receive frames of several pieces (`XDP_USE_SG`).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::error::Errno;
use crate::send_stats::SendStats;
use crate::sys::area::{Area, Range};
use crate::sys::last_errno;
use crate::sys::umem::{self, Queue, set};

/// Bytes in front of each frame in its slot (`XDP_PACKET_HEADROOM`).
const HEADROOM_BYTES: u32 = 256;
/// A slot (`chunk_size`) is a power of two, from this to a page.
const SLOT_BYTES_MIN: u32 = 2048;
const SLOT_BYTES_MAX: u32 = 4096;

/// An XDP socket, its UMEM and its rings.
#[derive(Debug)]
pub(crate) struct XdpQueue {
    umem: Area,
    fill: Queue,
    receive: Queue,
    slot_bytes: u64,
    /// Number of frames at the receive ring's consumer that `ready` has counted and that were not
    /// returned.
    ready: u32,
    /// The receive ring's consumer and the fill ring's producer, both this program's.
    consumed: u32,
    filled: u32,
    is_zero_copy: bool,
    /// The socket is the last field, so that the rings are unmapped before it is closed.
    socket: OwnedFd,
}

impl XdpQueue {
    /// The longest frame that any socket receives.
    pub(crate) const FRAME_BYTES_MAX: u32 = SLOT_BYTES_MAX - HEADROOM_BYTES;

    /// Opens one for a queue of a device, with `slots` slots for frames of at most `frame_bytes`.
    pub(crate) fn open(
        (device, queue): (u32, u32),
        frame_bytes: u32,
        slots: u32,
    ) -> Result<Self, (&'static str, Errno)> {
        assert!(slots.is_power_of_two(), "as rings have it");
        let refused = |call| move |errno| (call, errno);
        let stats = &mut SendStats::default();
        let wanted = (frame_bytes + HEADROOM_BYTES).next_power_of_two();
        let slot_bytes = wanted.clamp(SLOT_BYTES_MIN, SLOT_BYTES_MAX);
        let entries = slots as libc::c_int;
        let socket = umem::socket().map_err(refused("socket AF_XDP"))?;
        let bytes = slots as usize * slot_bytes as usize;
        let umem = Area::anonymous(bytes).map_err(refused("mmap of a UMEM"))?;
        umem::register(&socket, &umem, slot_bytes as usize, stats)
            .map_err(refused("setsockopt XDP_UMEM_REG (RLIMIT_MEMLOCK)"))?;
        let options = [
            (libc::XDP_UMEM_FILL_RING, entries, "setsockopt XDP_UMEM_FILL_RING"),
            // The completion ring is required, and stays empty.
            (libc::XDP_UMEM_COMPLETION_RING, 2, "setsockopt XDP_UMEM_COMPLETION_RING"),
            (libc::XDP_RX_RING, entries, "setsockopt XDP_RX_RING"),
        ];
        for (option, entries, call) in options {
            set(&socket, option, &entries, stats).map_err(refused(call))?;
        }
        let offsets = umem::offsets(&socket).map_err(refused("getsockopt XDP_MMAP_OFFSETS"))?;
        let page = libc::XDP_UMEM_PGOFF_FILL_RING;
        let fill = Queue::new(&socket, page, offsets.fr, slots, size_of::<u64>())
            .map_err(refused("mmap of XDP_UMEM_FILL_RING"))?;
        let page = libc::XDP_PGOFF_RX_RING as u64;
        let receive = Queue::new(&socket, page, offsets.rx, slots, size_of::<libc::xdp_desc>())
            .map_err(refused("mmap of XDP_RX_RING"))?;
        let (ready, consumed, filled, is_zero_copy) = (0, 0, 0, false);
        let slot_bytes = u64::from(slot_bytes);
        let mut this =
            Self { umem, fill, receive, slot_bytes, ready, consumed, filled, is_zero_copy, socket };
        (0..slots).for_each(|slot| this.fill(u64::from(slot) * slot_bytes));
        this.fill.set_producer(this.filled);
        umem::bind(&this.socket, device, queue, libc::XDP_USE_NEED_WAKEUP, stats)
            .map_err(refused("bind AF_XDP"))?;
        this.is_zero_copy = this.asks_zero_copy();
        Ok(this)
    }

    /// True when the driver writes into the UMEM itself.
    pub(crate) fn is_zero_copy(&self) -> bool {
        self.is_zero_copy
    }

    /// Returns the number of frames in the UMEM.
    pub(crate) fn slot_count(&self) -> u32 {
        self.receive.entries
    }

    /// Returns the number of received frames, `most` at most.
    pub(crate) fn ready(&mut self, most: u32) -> u32 {
        self.ready = self.receive.producer().wrapping_sub(self.consumed).min(most);
        self.ready
    }

    /// Returns one of the frames that `ready` counted, in order of arrival, with `before` bytes in
    /// front of it: written by the device's program, or otherwise zeroes.
    pub(crate) fn frame(&self, number: u32, before: usize) -> &[u8] {
        let descriptor = self.descriptor(number);
        let start = usize::try_from(descriptor.addr).ok().and_then(|at| at.checked_sub(before));
        let Some(start) = start else { return &[] };
        let bytes = before + descriptor.len as usize;
        if start.checked_add(bytes).is_none_or(|end| end > self.umem.bytes()) {
            return &[];
        }
        // SAFETY: the kernel has passed this slot to us with its descriptor, and does not write it
        // again before `give_back`, which borrows `self` alone.
        unsafe { self.umem.range(Range { start, bytes }) }
    }

    /// Returns the first `count` of them to the kernel, to be filled again. True when the driver
    /// waits for a wake-up ([`Self::wake`]).
    pub(crate) fn give_back(&mut self, count: u32) -> bool {
        assert!(count <= self.ready, "frames that are there");
        for number in 0..count {
            self.fill(self.descriptor(number).addr & !(self.slot_bytes - 1));
        }
        self.fill.set_producer(self.filled);
        self.ready -= count;
        self.consumed = self.consumed.wrapping_add(count);
        self.receive.set_consumer(self.consumed);
        self.fill.needs_wakeup()
    }

    /// Signals the driver that there are frames to be filled.
    pub(crate) fn wake(&self) {
        let (buffer, address) = (std::ptr::null_mut(), std::ptr::null_mut());
        let socket = self.socket.as_raw_fd();
        // SAFETY: no bytes and no address are requested.
        let _ = unsafe {
            libc::recvfrom(socket, buffer, 0, libc::MSG_DONTWAIT, address, std::ptr::null_mut())
        };
    }

    /// Returns the number of frames dropped so far because there was no room for them.
    pub(crate) fn drops(&self) -> Result<u64, Errno> {
        // SAFETY: xdp_statistics is plain numbers, for which all zeroes is a value.
        let mut figures: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        self.ask(libc::XDP_STATISTICS, &mut figures)?;
        // The first counter includes, in copy mode, frames for which the fill ring was empty.
        Ok(figures.rx_dropped + figures.rx_ring_full)
    }

    fn asks_zero_copy(&self) -> bool {
        let mut options = libc::xdp_options { flags: 0 };
        let asked = self.ask(libc::XDP_OPTIONS, &mut options);
        asked.is_ok() && options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0
    }

    /// Reads an option whose value is a record of plain numbers.
    fn ask<T: Copy>(&self, option: libc::c_int, record: &mut T) -> Result<(), Errno> {
        let mut bytes = size_of::<T>() as libc::socklen_t;
        // SAFETY: `record` and its length are alive; both requested records are plain numbers.
        let done = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_XDP,
                option,
                (&raw mut *record).cast(),
                &raw mut bytes,
            )
        };
        if done == 0 { Ok(()) } else { Err(last_errno()) }
    }

    fn descriptor(&self, number: u32) -> libc::xdp_desc {
        assert!(number < self.ready, "a frame that is there");
        let entry = self.consumed.wrapping_add(number);
        let at = self.receive.entry_at(entry, size_of::<libc::xdp_desc>());
        // SAFETY: the kernel wrote this entry before it published the producer that `ready` read,
        // and does not write it again until the consumer is past it; it is plain numbers.
        unsafe { self.receive.area.value(at) }
    }

    /// Writes an entry of the fill ring, which is published afterwards. There is room: it has as
    /// many as there are slots.
    fn fill(&mut self, address: u64) {
        let at = self.fill.entry_at(self.filled, size_of::<u64>());
        // SAFETY: the kernel has read this entry, as the slot it named was returned, and does not
        // read it again before the producer is past it.
        unsafe { self.fill.area.put(at, address) };
        self.filled = self.filled.wrapping_add(1);
    }
}

impl AsFd for XdpQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
