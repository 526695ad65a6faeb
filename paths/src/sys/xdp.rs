// SPDX-License-Identifier: MIT OR Apache-2.0
//! An XDP socket that only transmits, in copy mode: frames in this process's memory, descriptors in
//! rings.
//!
//! The frames lie in a UMEM, pages of this process that the kernel has pinned. A descriptor in the
//! transmit ring names a frame; `sendto` makes the kernel copy it into a buffer of its own and give
//! that to the driver, past the queue discipline; when the driver has done with it, its address
//! is returned in the completion ring. A socket must have a fill ring to be bound, even if nothing
//! is received.
//!
//! Zero-copy is not used. A driver that sends a queue's frames from the UMEM receives that queue's
//! into it too, so a socket that only transmits would divert packets from the host: its own control
//! connections. That cannot be tested without such a card, so it is not requested. In copy mode the
//! kernel always has to be called, so `XDP_USE_NEED_WAKEUP` would change nothing.
//!
//! Frames that the kernel does not accept at once (`EAGAIN`: a driver's queue is full) stay in the
//! ring and are sent first with the next batch of any session, or when the ring is closed: they
//! cannot be withdrawn, and so count as sent. A full ring refuses more. After a call with a
//! permanent error, frames that were not accepted are lost with the ring, which the caller closes.
//! A frame that the driver drops (`EBUSY`: no carrier) is lost, as on a wire.
//!
//! Sources: `Documentation/networking/af_xdp.rst`; Linux 6.18 `net/xdp/xsk.c`
//! (`__xsk_generic_xmit`), `net/xdp/xsk_queue.h`, commit 45e359be1ce8 (6.17: more than 32 frames a
//! call).
//!
//! Does not receive, share a UMEM, or send frames of more than a page.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::error::{Errno, Unframed};
use crate::frame::Device;
use crate::frame::ring::{Ring, RingError, Sent};
use crate::send_stats::SendStats;
use crate::sys::area::{Area, ring_ranges};
use crate::sys::umem::{self, Queue, set};
use crate::sys::{counted, set_send_buffer};
use simd::stamp::FRONT_BYTES;

/// Bytes of a UMEM: within the 8 MiB of locked memory that most hosts grant, for several threads.
const UMEM_BYTES: usize = 1 << 20;
/// A slot (`chunk_size`) is a power of two, from this to a page.
const SLOT_BYTES_MIN: usize = 2048;
const SLOT_BYTES_MAX: usize = 4096;
/// Entries of the fill ring, which is required and stays empty.
const FILL_ENTRIES: libc::c_int = 2;
/// Frames that a call sends by default (`TX_BATCH_SIZE`).
const BUDGET: u32 = 32;
/// `XDP_MAX_TX_SKB_BUDGET`.
const MAX_TX_SKB_BUDGET: libc::c_int = 9;
/// Calls in a row without progress, after which pending frames are left for the next batch.
const IDLE_KICKS_MAX: u32 = 64;
/// Upper limit of a card's queues.
const QUEUES_MAX: u32 = 4096;

/// An XDP socket, its UMEM and its rings.
#[derive(Debug)]
pub(crate) struct XdpRing {
    umem: Area,
    transmit: Queue,
    completion: Queue,
    device: u32,
    slot_bytes: usize,
    /// True when a slot's frame is the kernel's; slots are used in turn.
    busy: Box<[bool]>,
    /// The slot to be filled next.
    next: u32,
    /// Position of the next descriptor; the published producer.
    produced: u32,
    /// True after a permanent failure: pending frames count as not sent, and their sender may send
    /// them again by another ring.
    has_failed: bool,
    /// The socket is the last field, so that the rings are unmapped before it is closed.
    socket: OwnedFd,
}

impl XdpRing {
    /// Binds to the first queue of the device that has no XDP socket yet.
    fn bind(socket: &OwnedFd, device: &Device, stats: &mut SendStats) -> Result<(), RingError> {
        for queue in 0..QUEUES_MAX {
            let Err(errno) = umem::bind(socket, device.index, queue, libc::XDP_COPY, stats) else {
                return Ok(());
            };
            match errno.code() {
                libc::EBUSY => {}
                // There are no more queues.
                libc::EINVAL if queue > 0 => break,
                _ => return Err(RingError::Refused("bind AF_XDP", errno)),
            }
        }
        Err(RingError::Unframed(Unframed::NoQueue { device: device.name.clone() }))
    }

    /// Reclaims the slots of frames that have left.
    fn reap(&mut self) {
        let (mut consumer, producer) = (self.completion.consumer(), self.completion.producer());
        while consumer != producer {
            let at = self.completion.entry_at(consumer, size_of::<u64>());
            // SAFETY: the kernel wrote this entry before it published the producer that was read
            // above, and does not write it again until the consumer is past it, below.
            let address: u64 = unsafe { self.completion.area.value(at) };
            if let Some(busy) = self.busy.get_mut((address / self.slot_bytes as u64) as usize) {
                *busy = false;
            }
            consumer = consumer.wrapping_add(1);
        }
        self.completion.set_consumer(consumer);
    }

    /// Makes the kernel send, without waiting.
    fn kick(&self, stats: &mut SendStats) -> Result<(), Errno> {
        stats.calls += 1;
        // SAFETY: no bytes are sent from here and no address is given.
        let sent = unsafe {
            let socket = self.socket.as_raw_fd();
            libc::sendto(socket, std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
        };
        counted(sent).map(|_| ())
    }

    /// Writes the descriptor at position `index` of the ring.
    fn describe(&mut self, index: u32, addr: u64, len: u32) {
        let at = self.transmit.entry_at(index, size_of::<libc::xdp_desc>());
        let descriptor = libc::xdp_desc { addr, len, options: 0 };
        // SAFETY: the kernel reads descriptors in `sendto` alone, which this thread is not in, and
        // writes none.
        unsafe { self.transmit.area.put(at, descriptor) };
    }

    /// Calls the kernel until it has consumed all descriptors, or makes no progress; returns the
    /// reason, if it never will.
    fn push(&self, stats: &mut SendStats) -> Result<(), Errno> {
        let (mut idle_kicks, mut drops) = (0, 0);
        let mut before = self.transmit.consumer();
        loop {
            let called = self.kick(stats).map_err(Errno::code);
            let consumer = self.transmit.consumer();
            if consumer == self.produced {
                return Ok(());
            }
            idle_kicks = if consumer == before { idle_kicks + 1 } else { 0 };
            before = consumer;
            match called {
                // A dropped frame, which the ring may show only after the next call.
                Err(libc::EBUSY) if drops < self.transmit.entries => drops += 1,
                // The queue is no longer one of the device's: no descriptor was read.
                Ok(()) if idle_kicks > 2 => return Err(Errno::new(libc::ENXIO)),
                Err(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::ENOMEM)
                    if idle_kicks > IDLE_KICKS_MAX =>
                {
                    stats.refused += 1;
                    return Ok(());
                }
                Ok(()) | Err(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::ENOMEM) => {}
                Err(libc::EINTR) => {}
                Err(errno) => return Err(Errno::new(errno)),
            }
        }
    }

    /// Returns the number of descriptors that the kernel has not reached.
    fn pending(&self) -> u32 {
        self.produced.wrapping_sub(self.transmit.consumer())
    }
}

impl Ring for XdpRing {
    const FRAME_BYTES_MAX: u32 = SLOT_BYTES_MAX as u32;

    fn open(device: &Device, stats: &mut SendStats) -> Result<Self, RingError> {
        let wanted = device.frame_bytes.min(Self::FRAME_BYTES_MAX) as usize;
        let slot_bytes = wanted.next_power_of_two().max(SLOT_BYTES_MIN);
        let slots = UMEM_BYTES / slot_bytes;
        let descriptors = slots as u32;
        let refused = |call| move |errno| RingError::Refused(call, errno);
        stats.calls += 5;
        let socket = umem::socket().map_err(refused("socket AF_XDP"))?;
        let umem = Area::anonymous(UMEM_BYTES).map_err(refused("mmap of a UMEM"))?;
        umem::register(&socket, &umem, slot_bytes, stats)
            .map_err(refused("setsockopt XDP_UMEM_REG (RLIMIT_MEMLOCK)"))?;
        set(&socket, libc::XDP_UMEM_FILL_RING, &FILL_ENTRIES, stats)
            .map_err(refused("setsockopt XDP_UMEM_FILL_RING"))?;
        set(&socket, libc::XDP_UMEM_COMPLETION_RING, &descriptors, stats)
            .map_err(refused("setsockopt XDP_UMEM_COMPLETION_RING"))?;
        set(&socket, libc::XDP_TX_RING, &descriptors, stats)
            .map_err(refused("setsockopt XDP_TX_RING"))?;
        // A kernel before 6.17 sends 32 at a time, and is called as often as needed.
        let _ = set(&socket, MAX_TX_SKB_BUDGET, &descriptors.max(BUDGET), stats);
        set_send_buffer(socket.as_fd(), 2 * UMEM_BYTES, stats);
        let offsets = umem::offsets(&socket).map_err(refused("getsockopt XDP_MMAP_OFFSETS"))?;
        let page = libc::XDP_PGOFF_TX_RING as u64;
        let entry_bytes = size_of::<libc::xdp_desc>();
        let transmit = Queue::new(&socket, page, offsets.tx, descriptors, entry_bytes)
            .map_err(refused("mmap of XDP_TX_RING"))?;
        let page = libc::XDP_UMEM_PGOFF_COMPLETION_RING;
        let completion = Queue::new(&socket, page, offsets.cr, descriptors, size_of::<u64>())
            .map_err(refused("mmap of XDP_UMEM_COMPLETION_RING"))?;
        Self::bind(&socket, device, stats)?;
        Ok(Self {
            umem,
            transmit,
            completion,
            device: device.index,
            slot_bytes,
            busy: vec![false; slots].into(),
            next: 0,
            produced: 0,
            has_failed: false,
            socket,
        })
    }

    fn device(&self) -> u32 {
        self.device
    }

    fn slot_count(&self) -> u32 {
        self.busy.len() as u32
    }

    fn frame_bytes_max(&self) -> u32 {
        self.slot_bytes as u32
    }

    fn stride(&self) -> usize {
        self.slot_bytes
    }

    fn frame_at(&self) -> usize {
        0
    }

    fn free(&mut self, wanted: u32, stats: &mut SendStats) -> u32 {
        if self.pending() > 0 {
            // An error is returned again when frames are sent.
            let _ = self.push(stats);
        }
        self.reap();
        let room = self.transmit.entries.saturating_sub(self.pending());
        let wanted = wanted.min(self.slot_count()).min(room);
        let slot = |ahead: u32| (self.next + ahead) % self.slot_count();
        (0..wanted).take_while(|ahead| !self.busy[slot(*ahead) as usize]).count() as u32
    }

    fn slots(&mut self, count: u32) -> [&mut [u8]; 2] {
        let slot = |ahead: u32| (self.next + ahead) % self.slot_count();
        let free = (0..count).all(|ahead| !self.busy[slot(ahead) as usize]);
        assert!(free, "the slots are ours");
        let (first, second) = ring_ranges(self.next, count, self.slot_count(), self.slot_bytes);
        // SAFETY: nothing is received, so the kernel writes no byte of the UMEM.
        unsafe { self.umem.two(first, second) }
    }

    /// The UMEM is this program's memory; `send` counts the copies from it.
    fn filled(_: u64, _: &mut SendStats) {}

    fn send(
        &mut self,
        count: u32,
        frame_bytes: u32,
        last_bytes: u32,
        stats: &mut SendStats,
    ) -> Sent {
        let (first, slots) = (self.produced, self.slot_count());
        for ahead in 0..count {
            let bytes = if ahead + 1 == count { last_bytes } else { frame_bytes };
            let slot = (self.next + ahead) % slots;
            let address = u64::from(slot) * self.slot_bytes as u64;
            self.describe(first.wrapping_add(ahead), address, bytes);
            self.busy[slot as usize] = true;
        }
        self.produced = first.wrapping_add(count);
        self.transmit.set_producer(self.produced);
        self.next = (self.next + count) % slots;
        let pushed = self.push(stats);
        self.has_failed |= pushed.is_err();
        let accepted = match pushed {
            Ok(()) => count,
            Err(_) => count.saturating_sub(self.pending()),
        };
        // Counters include UDP payload only, without the headers below.
        let short = if accepted == count { frame_bytes - last_bytes } else { 0 };
        let frames_bytes = u64::from(accepted) * u64::from(frame_bytes) - u64::from(short);
        stats.copied_bytes += frames_bytes - u64::from(accepted) * FRONT_BYTES as u64;
        Sent { accepted, errno: pushed.err() }
    }
}

impl Drop for XdpRing {
    fn drop(&mut self) {
        if self.pending() > 0 && !self.has_failed {
            let _ = self.push(&mut SendStats::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{Owner, run, sh};

    const PAIR: &str = "\
        ip link add left type veth peer name right
        echo 1 > /proc/sys/net/ipv6/conf/left/disable_ipv6
        ip link set left up
        ip link set right up";

    /// Returns the number of packets that a device has sent (`proc_pid_net(5)`, `dev`).
    fn sent_by(device: &str) -> u64 {
        let all = std::fs::read_to_string("/proc/self/net/dev").unwrap();
        let line = all.lines().find_map(|line| line.trim().strip_prefix(device)).unwrap();
        line.trim_start_matches(':').split_ascii_whitespace().nth(9).unwrap().parse().unwrap()
    }

    fn ring() -> XdpRing {
        // SAFETY: the name is a string that a zero ends.
        let index = unsafe { libc::if_nametoindex(c"left".as_ptr()) };
        let device = Device { index, name: "left".into(), frame_bytes: 1514 };
        XdpRing::open(&device, &mut SendStats::default()).unwrap()
    }

    /// Sends five frames of zeroes, which do no harm on any device.
    fn send(ring: &mut XdpRing) -> Sent {
        let mut stats = SendStats::default();
        assert_eq!(ring.free(5, &mut stats), 5);
        ring.send(5, 100, 100, &mut stats)
    }

    #[test]
    fn a_failed_ring_sends_nothing_when_it_is_closed() {
        run(Owner::User, PAIR, "sys::xdp::tests::inside_a_pair");
    }

    #[test]
    #[ignore = "run by a_failed_ring_sends_nothing_when_it_is_closed"]
    fn inside_a_pair() {
        if !umem::has_xdp_sockets() {
            return eprintln!("skip: a kernel without XDP sockets");
        }
        let mut ring = ring();
        assert_eq!(send(&mut ring), Sent { accepted: 5, errno: None });
        assert_eq!(sent_by("left"), 5);
        sh("ip link set left down");
        let down = Some(Errno::new(libc::ENETDOWN));
        assert_eq!(send(&mut ring), Sent { accepted: 0, errno: down });
        sh("ip link set left up");
        drop(ring);
        assert_eq!(sent_by("left"), 5);
    }
}
