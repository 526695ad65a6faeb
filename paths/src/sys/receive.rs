// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiving: many datagrams a call, each with its sender, the kernel's timestamp and the socket's
//! drop count before it.
//!
//! The kernel timestamps a datagram when it receives it from the device (`SO_TIMESTAMPNS`,
//! CLOCK_REALTIME), and attaches the number of datagrams that the socket had dropped before
//! (`SO_RXQ_OVFL`) and the segment size of a run that it has joined (`UDP_GRO`): each where the
//! socket's options request it.
//!
//! A slot is a head of two cache lines (control messages, name) and the datagram behind it, so the
//! slots' first lines do not all fall into one set of the cache, as those of buffers of 64 KiB
//! would. The call's description of the slots is the same each time and made once.
//!
//! Sources: `recvmmsg(2)`, `recvfrom(2)`, `cmsg(3)`, `socket(7)` (`SO_TIMESTAMPNS`, `SO_RXQ_OVFL`),
//! `udp(7)` (`UDP_GRO`); Linux `net/core/sock.c` (`SO_MEMINFO`, Linux 4.12).
//!
//! Does not wait.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::mem::{self, offset_of};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::time::Duration;

use crate::error::Errno;
use crate::receive;
use crate::sys::address::{NAME_BYTES, Name, address};
use crate::sys::last_errno;

/// Buffers for the datagrams of one call, reused from call to call.
pub(crate) struct Slots {
    start: NonNull<u8>,
    layout: Layout,
    bytes_each: usize,
    stride: usize,
    heads: Box<[libc::mmsghdr]>,
    /// Target of the pointers in `heads`; never read again.
    _ranges: Box<[libc::iovec]>,
    /// Heads that the last call has written to.
    used: usize,
}

// SAFETY: a Slots owns the memory that its addresses point to, all of it on the heap, and uses it
// through `&mut self` in calls and `&self` to read the bytes they have written.
unsafe impl Send for Slots {}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots")
            .field("count", &self.heads.len())
            .field("bytes_each", &self.bytes_each)
            .finish_non_exhaustive()
    }
}

/// Metadata of a received datagram.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecvMeta {
    pub(crate) is_cut: bool,
    /// Time of arrival since the Unix epoch; `None` where the kernel reported none.
    pub(crate) stamp: Option<Duration>,
    /// Number of datagrams that this socket dropped before this one, since it was made.
    pub(crate) dropped: u32,
    /// Bytes of each datagram of a run except the last; 0 for a single datagram.
    pub(crate) segment_bytes: u16,
}

/// Head of a slot, in front of the datagram.
#[repr(C, align(128))]
struct Head {
    control: Control,
    name: Name,
}

/// Three control messages: the time (16 bytes), the drops (4) and the size of a run's datagrams
/// (4), each behind a head of 16 bytes and padded to 8. The type is of words because `cmsghdr` must
/// be aligned.
pub(super) type Control = [u64; CONTROL_WORDS];
const CONTROL_WORDS: usize = 10;
const _: () = assert!(
    CONTROL_WORDS * 8 >= space::<libc::timespec>() + space::<u32>() + space::<libc::c_int>()
);

const fn space<T>() -> usize {
    // SAFETY: arithmetic on its argument alone.
    unsafe { libc::CMSG_SPACE(size_of::<T>() as libc::c_uint) as usize }
}

impl Slots {
    /// Allocates buffers for `count` datagrams of `bytes_each` bytes at most.
    pub(crate) fn new(count: usize, bytes_each: usize) -> Self {
        assert!(count > 0, "room for something");
        let stride = (size_of::<Head>() + bytes_each).next_multiple_of(align_of::<Head>());
        let layout = Layout::from_size_align(stride * count, align_of::<Head>());
        let layout = layout.expect("a few MiB");
        // SAFETY: the layout has a size above zero. Large allocations are pages that no code has
        // touched yet.
        let Some(start) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout)
        };
        let place = |slot: usize, at: usize| -> *mut libc::c_void {
            // SAFETY: within the allocation: slot < count, and at <= stride.
            unsafe { start.as_ptr().add(slot * stride + at).cast() }
        };
        let mut ranges: Box<[_]> = (0..count)
            .map(|slot| libc::iovec {
                iov_base: place(slot, size_of::<Head>()),
                iov_len: bytes_each,
            })
            .collect();
        let range = ranges.as_mut_ptr();
        let heads = (0..count).map(|slot| {
            // SAFETY: a plain record of numbers and pointers, for which all zeroes is a value.
            let mut head: libc::mmsghdr = unsafe { mem::zeroed() };
            head.msg_hdr.msg_name = place(slot, offset_of!(Head, name));
            // SAFETY: one of the `count` ranges.
            head.msg_hdr.msg_iov = unsafe { range.add(slot) };
            head.msg_hdr.msg_iovlen = 1;
            head.msg_hdr.msg_control = place(slot, offset_of!(Head, control));
            head
        });
        let heads = heads.collect();
        Self { start, layout, bytes_each, stride, heads, _ranges: ranges, used: count }
    }

    /// Returns the datagram that the last call put into a slot, as far as there was room.
    ///
    /// # Panics
    /// When the last call has not filled it.
    pub(crate) fn datagram(&self, slot: usize) -> &[u8] {
        assert!(slot < self.used, "a slot of the last call");
        let bytes = (self.heads[slot].msg_len as usize).min(self.bytes_each);
        // SAFETY: within the slot, whose bytes are initialised, and which no call writes to while
        // `self` is borrowed.
        unsafe {
            let start = self.start.as_ptr().add(slot * self.stride + size_of::<Head>());
            std::slice::from_raw_parts(start, bytes)
        }
    }

    /// Returns the sender of a slot's datagram.
    ///
    /// # Panics
    /// Same as for [`Slots::datagram`].
    pub(crate) fn source(&self, slot: usize) -> Option<SocketAddr> {
        assert!(slot < self.used, "a slot of the last call");
        // SAFETY: the slot's head lies in the allocation, is aligned and has plain numbers.
        let name = unsafe { &(*self.head(slot)).name };
        address(name, self.heads[slot].msg_hdr.msg_namelen as usize)
    }

    /// Returns the metadata of a slot's datagram.
    ///
    /// # Panics
    /// Same as for [`Slots::datagram`].
    pub(crate) fn meta(&self, slot: usize) -> RecvMeta {
        assert!(slot < self.used, "a slot of the last call");
        let head = &self.heads[slot].msg_hdr;
        // SAFETY: the kernel has set the fields of the slot's control buffer.
        let meta = unsafe { meta_of(head) };
        RecvMeta { is_cut: head.msg_flags & libc::MSG_TRUNC != 0, ..meta }
    }

    fn head(&self, slot: usize) -> *mut Head {
        // SAFETY: within the allocation, whose start and stride are aligned for it.
        unsafe { self.start.as_ptr().add(slot * self.stride).cast() }
    }

    /// Restores the full buffer sizes in the heads that the kernel has written to.
    fn empty(&mut self) {
        for head in &mut self.heads[..self.used] {
            head.msg_hdr.msg_namelen = NAME_BYTES as libc::socklen_t;
            head.msg_hdr.msg_controllen = size_of::<Control>() as _;
        }
        self.used = 0;
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout; no borrow of it exists any more.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Receives the waiting datagrams, as many as there are slots for; returns their number.
pub(crate) fn receive_many(
    socket: BorrowedFd<'_>,
    slots: &mut Slots,
    stats: &mut receive::ReceiveStats,
) -> Result<usize, Errno> {
    slots.empty();
    stats.calls += 1;
    // SAFETY: each head names one range, one name and one control buffer, all of `slots`, of the
    // lengths given, and disjoint; the number given is that of the heads.
    let count = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            slots.heads.as_mut_ptr(),
            slots.heads.len() as libc::c_uint,
            libc::MSG_DONTWAIT as _,
            ptr::null_mut(),
        )
    };
    slots.used = usize::try_from(count).map_err(|_| last_errno())?;
    Ok(slots.used)
}

/// Receives one datagram; returns its sender and its length, which may exceed the room.
pub(crate) fn receive_one(
    socket: BorrowedFd<'_>,
    room: &mut [u8],
    stats: &mut receive::ReceiveStats,
) -> Result<(usize, Option<SocketAddr>), Errno> {
    // SAFETY: plain numbers, for which all zeroes is a value.
    let mut name: Name = unsafe { mem::zeroed() };
    let mut name_bytes = NAME_BYTES as libc::socklen_t;
    stats.calls += 1;
    // SAFETY: `room` and `name` are alive and of the lengths given.
    let bytes = unsafe {
        libc::recvfrom(
            socket.as_raw_fd(),
            room.as_mut_ptr().cast(),
            room.len(),
            libc::MSG_DONTWAIT | libc::MSG_TRUNC,
            (&raw mut name).cast(),
            &raw mut name_bytes,
        )
    };
    let bytes = usize::try_from(bytes).map_err(|_| last_errno())?;
    Ok((bytes, address(&name, name_bytes as usize)))
}

/// Peeks at the next datagram: fills `head` with its beginning, and returns its whole length. A
/// datagram with a wrong checksum is dropped here and the next one is peeked at.
pub(crate) fn peek(
    socket: BorrowedFd<'_>,
    head: &mut [u8],
    stats: &mut receive::ReceiveStats,
) -> Result<(usize, Option<SocketAddr>, RecvMeta), Errno> {
    // SAFETY: plain numbers, for which all zeroes is a value.
    let mut name: Name = unsafe { mem::zeroed() };
    let mut control: Control = [0; CONTROL_WORDS];
    let range = libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: head.len() };
    // SAFETY: a plain record of numbers and pointers, for which all zeroes is a value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = NAME_BYTES as libc::socklen_t;
    message.msg_iov = (&raw const range).cast_mut();
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    let flags = libc::MSG_PEEK | libc::MSG_TRUNC | libc::MSG_DONTWAIT;
    stats.calls += 1;
    // SAFETY: the memory that `message` names is alive and of the lengths given; the kernel does
    // not write to `range`.
    let bytes = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let bytes = usize::try_from(bytes).map_err(|_| last_errno())?;
    stats.copied_bytes += bytes.min(head.len()) as u64;
    // SAFETY: the kernel has set the fields of `control`.
    let meta = unsafe { meta_of(&message) };
    Ok((bytes, address(&name, message.msg_namelen as usize), meta))
}

/// Reads the control messages of a head.
///
/// # Safety
/// `msg_control` points to `msg_controllen` bytes, which the kernel has written.
pub(super) unsafe fn meta_of(head: &libc::msghdr) -> RecvMeta {
    let mut meta = RecvMeta::default();
    // SAFETY: so the first message is whole or there is none (caller).
    let mut message = unsafe { libc::CMSG_FIRSTHDR(head) };
    while !message.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return heads that lie within the control buffer.
        let (level, kind, data) =
            unsafe { ((*message).cmsg_level, (*message).cmsg_type, libc::CMSG_DATA(message)) };
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                // SAFETY: a message of this type carries a timespec; CMSG_DATA need not be aligned.
                let time = unsafe { ptr::read_unaligned(data.cast::<libc::timespec>()) };
                let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
                meta.stamp = Some(Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0)));
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                // SAFETY: a message of this type carries a u32.
                meta.dropped = unsafe { ptr::read_unaligned(data.cast::<u32>()) };
            }
            (libc::SOL_UDP, libc::UDP_GRO) => {
                // SAFETY: a message of this type carries an int.
                let bytes = unsafe { ptr::read_unaligned(data.cast::<libc::c_int>()) };
                meta.segment_bytes = u16::try_from(bytes).unwrap_or(0);
            }
            _ => {}
        }
        // SAFETY: `head` and `message` are those of the step before, untouched.
        message = unsafe { libc::CMSG_NXTHDR(head, message) };
    }
    meta
}

/// Makes the kernel attach the timestamp and the drop count to each datagram.
pub(crate) fn report_time_and_drops(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let on: libc::c_int = 1;
    for option in [libc::SO_TIMESTAMPNS, libc::SO_RXQ_OVFL] {
        // SAFETY: `on` is a live int and the length given is its own.
        let done = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const on).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        if done != 0 {
            return Err(last_errno());
        }
    }
    Ok(())
}

/// Returns the number of datagrams the socket dropped since it was made, modulo 2³².
pub(crate) fn drops(socket: BorrowedFd<'_>) -> Result<u32, Errno> {
    let mut figures = [0_u32; MEMORY_FIGURES];
    let mut bytes = size_of_val(&figures) as libc::socklen_t;
    // SAFETY: `figures` and `bytes` are live and `bytes` is the length of `figures`.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            figures.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    if done != 0 {
        return Err(last_errno());
    }
    // An older kernel with fewer figures would have shortened the length.
    let reported = bytes as usize / size_of::<u32>();
    let drops = figures[..reported.min(MEMORY_FIGURES)].get(DROPS);
    drops.copied().ok_or(Errno::new(libc::ENOPROTOOPT))
}

/// Linux `include/uapi/linux/sock_diag.h`: SK_MEMINFO_DROPS, and SK_MEMINFO_VARS.
const DROPS: usize = 8;
const MEMORY_FIGURES: usize = 9;
