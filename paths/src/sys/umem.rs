// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of XDP sockets for sending and receiving: the socket, memory that is registered with the
//! kernel (UMEM), and rings of descriptors or addresses.
//!
//! A ring has one producer and one consumer, this process and the kernel, and two words with the
//! position of each. Costs no system call: a load and a store for each access, for any number of
//! entries.
//!
//! Sources: `Documentation/networking/af_xdp.rst`; Linux 6.18 `net/xdp/xsk.c`,
//! `net/xdp/xsk_queue.h`.
//!
//! Does not track the owner of a frame of the UMEM ([`super::XdpRing`] and [`super::XdpQueue`] do),
//! and does not share one among sockets.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use crate::error::Errno;
use crate::send_stats::SendStats;
use crate::sys::area::Area;
use crate::sys::locked_memory::once_memory_is_back;
use crate::sys::{last_errno, set_record};

/// True when the kernel has XDP sockets. A missing right returns another errno.
pub(crate) fn has_xdp_sockets() -> bool {
    match socket() {
        Ok(_) => true,
        Err(errno) => errno.code() == libc::EPERM,
    }
}

/// Returns an XDP socket, bound to nothing yet.
pub(super) fn socket() -> Result<OwnedFd, Errno> {
    // SAFETY: socket takes no pointer.
    let descriptor = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if descriptor < 0 {
        return Err(last_errno());
    }
    // SAFETY: the descriptor is new and owned by no other code.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Binds a socket to a queue of a device.
pub(super) fn bind(
    socket: &OwnedFd,
    device: u32,
    queue: u32,
    flags: u16,
    stats: &mut SendStats,
) -> Result<(), Errno> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: device,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    stats.calls += 1;
    // SAFETY: `address` is alive with the length given.
    let done = unsafe {
        let bytes = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes)
    };
    if done == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Registers the UMEM; where the limit of locked memory is too low, raises it as far as allowed.
pub(super) fn register(
    socket: &OwnedFd,
    umem: &Area,
    slot_bytes: usize,
    stats: &mut SendStats,
) -> Result<(), Errno> {
    // SAFETY: xdp_umem_reg is plain numbers, for which all zeroes is a value.
    let mut registration: libc::xdp_umem_reg = unsafe { std::mem::zeroed() };
    registration.addr = umem.address();
    registration.len = umem.bytes() as u64;
    registration.chunk_size = slot_bytes as u32;
    match set(socket, libc::XDP_UMEM_REG, &registration, stats) {
        Err(errno) if errno.code() == libc::ENOBUFS => {
            raise_locked_memory(stats);
            once_memory_is_back(libc::ENOBUFS, || {
                set(socket, libc::XDP_UMEM_REG, &registration, stats)
            })
        }
        done => done,
    }
}

/// Offsets of words and entries in each ring's mapping.
pub(super) fn offsets(socket: &OwnedFd) -> Result<libc::xdp_mmap_offsets, Errno> {
    // SAFETY: xdp_mmap_offsets is plain numbers, for which all zeroes is a value.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<libc::xdp_mmap_offsets>() as libc::socklen_t;
    // SAFETY: `offsets` and its length are alive.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            libc::XDP_MMAP_OFFSETS,
            (&raw mut offsets).cast(),
            &raw mut bytes,
        )
    };
    if done != 0 {
        return Err(last_errno());
    }
    // A kernel before 5.4 has another, shorter form.
    let whole = bytes as usize == size_of::<libc::xdp_mmap_offsets>();
    if whole { Ok(offsets) } else { Err(Errno::new(libc::EOPNOTSUPP)) }
}

/// Sets an option of XDP sockets.
pub(super) fn set<T>(
    socket: &OwnedFd,
    option: libc::c_int,
    value: &T,
    stats: &mut SendStats,
) -> Result<(), Errno> {
    set_record(socket.as_fd(), libc::SOL_XDP, option, value, stats)
}

/// Raises the limit of locked memory to the hard limit.
fn raise_locked_memory(stats: &mut SendStats) {
    stats.calls += 2;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a live rlimit to be written to.
    if unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } == 0 {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: `limit` is alive and only read.
        let _ = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) };
    }
}

/// A ring of descriptors or addresses, mapped.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) area: Area,
    offsets: libc::xdp_ring_offset,
    /// Number of entries, a power of two.
    pub(super) entries: u32,
}

impl Queue {
    pub(super) fn new(
        socket: &OwnedFd,
        page: u64,
        offsets: libc::xdp_ring_offset,
        entries: u32,
        entry_bytes: usize,
    ) -> Result<Self, Errno> {
        let bytes = offsets.desc as usize + entries as usize * entry_bytes;
        Ok(Self { area: Area::of_socket(socket.as_fd(), page, bytes)?, offsets, entries })
    }

    /// Returns the producer's position. Acquire: earlier entries are visible before this number.
    pub(super) fn producer(&self) -> u32 {
        self.area.word(self.offsets.producer as usize).load(Ordering::Acquire)
    }

    /// Returns the consumer's position. Acquire: the consumer is done with earlier entries.
    pub(super) fn consumer(&self) -> u32 {
        self.area.word(self.offsets.consumer as usize).load(Ordering::Acquire)
    }

    /// Release: the entries before it are written before this number is.
    pub(super) fn set_producer(&self, to: u32) {
        self.area.word(self.offsets.producer as usize).store(to, Ordering::Release);
    }

    /// Release: the entries before it have been read before this number is written.
    pub(super) fn set_consumer(&self, to: u32) {
        self.area.word(self.offsets.consumer as usize).store(to, Ordering::Release);
    }

    /// True when the kernel requires a call to wake it (`XDP_RING_NEED_WAKEUP`).
    pub(super) fn needs_wakeup(&self) -> bool {
        let flags = self.area.word(self.offsets.flags as usize).load(Ordering::Relaxed);
        flags & libc::XDP_RING_NEED_WAKEUP != 0
    }

    pub(super) fn entry_at(&self, index: u32, entry_bytes: usize) -> usize {
        self.offsets.desc as usize + (index & (self.entries - 1)) as usize * entry_bytes
    }
}
