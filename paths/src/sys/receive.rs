// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiving: many datagrams a call with the kernel's time of each, and a socket's drop counter.
//!
//! The kernel stamps a datagram when it takes it from the device (`SO_TIMESTAMPNS`, CLOCK_REALTIME)
//! and says with each how many the socket had dropped before it (`SO_RXQ_OVFL`).
//!
//! Sources: `recvmmsg(2)`, `cmsg(3)`, `socket(7)` (`SO_TIMESTAMPNS`, `SO_RXQ_OVFL`); Linux
//! `net/core/sock.c` (`SO_MEMINFO`, Linux 4.12).
//!
//! What it does not do: wait.

use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

use crate::error::Errno;
use crate::sys::last_errno;

/// Datagrams a call takes at most.
pub(crate) const DATAGRAMS_MAX: usize = 32;

/// Room for the datagrams of one call, reused from call to call.
#[derive(Debug)]
pub(crate) struct Slots {
    bytes: Vec<u8>,
    bytes_each: usize,
    control: Box<[Control; DATAGRAMS_MAX]>,
    taken: [Taken; DATAGRAMS_MAX],
}

/// What came with a datagram.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    pub(crate) bytes: usize,
    pub(crate) is_cut: bool,
    /// Since the Unix epoch; none where the kernel did not say.
    pub(crate) stamp: Option<Duration>,
    /// Dropped by this socket before this datagram, since it was made.
    pub(crate) dropped: u32,
}

/// Two control messages: the time (16 bytes) and the drops (4), each behind a head of 16 bytes and
/// padded to 8. As words, for `cmsghdr` is to be aligned.
type Control = [u64; CONTROL_WORDS];
const CONTROL_WORDS: usize = 8;
const _: () = assert!(CONTROL_WORDS * 8 >= space::<libc::timespec>() + space::<u32>());

const fn space<T>() -> usize {
    // SAFETY: arithmetic on its argument alone.
    unsafe { libc::CMSG_SPACE(size_of::<T>() as libc::c_uint) as usize }
}

impl Slots {
    pub(crate) fn new(bytes_each: usize) -> Self {
        Self {
            bytes: vec![0; bytes_each * DATAGRAMS_MAX],
            bytes_each,
            control: Box::new([[0; CONTROL_WORDS]; DATAGRAMS_MAX]),
            taken: [Taken::default(); DATAGRAMS_MAX],
        }
    }

    /// The datagram in a slot, and what came with it.
    pub(crate) fn datagram(&self, slot: usize) -> (&[u8], Taken) {
        let (start, taken) = (slot * self.bytes_each, self.taken[slot]);
        (&self.bytes[start..start + taken.bytes], taken)
    }
}

/// Takes what is in the socket, at most [`DATAGRAMS_MAX`]; returns how many.
pub(crate) fn receive_many(socket: BorrowedFd<'_>, slots: &mut Slots) -> Result<usize, Errno> {
    // SAFETY: both are plain records of numbers and pointers, for which all zeroes is a value.
    let mut heads: [libc::mmsghdr; DATAGRAMS_MAX] = unsafe { mem::zeroed() };
    // SAFETY: as above.
    let mut ranges: [libc::iovec; DATAGRAMS_MAX] = unsafe { mem::zeroed() };
    let places = slots.bytes.chunks_exact_mut(slots.bytes_each.max(1));
    for (((head, range), place), control) in
        heads.iter_mut().zip(&mut ranges).zip(places).zip(slots.control.iter_mut())
    {
        *range = libc::iovec { iov_base: place.as_mut_ptr().cast(), iov_len: place.len() };
        head.msg_hdr.msg_iov = range;
        head.msg_hdr.msg_iovlen = 1;
        head.msg_hdr.msg_control = control.as_mut_ptr().cast();
        head.msg_hdr.msg_controllen = size_of::<Control>() as _;
    }
    // SAFETY: each head names one range and one control buffer, all live in `slots` or this frame,
    // of the lengths given, and disjoint; there are DATAGRAMS_MAX heads.
    let count = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            heads.as_mut_ptr(),
            DATAGRAMS_MAX as libc::c_uint,
            libc::MSG_DONTWAIT,
            ptr::null_mut(),
        )
    };
    let count = usize::try_from(count).map_err(|_| last_errno())?;
    for (head, taken) in heads.iter().zip(&mut slots.taken).take(count) {
        *taken = Taken {
            bytes: (head.msg_len as usize).min(slots.bytes_each),
            is_cut: head.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            ..said_with(&head.msg_hdr)
        };
    }
    Ok(count)
}

/// Reads the control messages of a head that recvmmsg has filled.
fn said_with(head: &libc::msghdr) -> Taken {
    let mut taken = Taken::default();
    // SAFETY: the kernel has set msg_controllen to what it wrote into the control buffer, which
    // lives as long as `Slots`; so the first message is whole or there is none.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(head) };
    while !message.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give heads that lie within the control buffer.
        let (level, kind, data) =
            unsafe { ((*message).cmsg_level, (*message).cmsg_type, libc::CMSG_DATA(message)) };
        if level == libc::SOL_SOCKET && kind == libc::SCM_TIMESTAMPNS {
            // SAFETY: a message of this type carries a timespec; CMSG_DATA need not be aligned.
            let time = unsafe { ptr::read_unaligned(data.cast::<libc::timespec>()) };
            let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
            taken.stamp = Some(Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0)));
        } else if level == libc::SOL_SOCKET && kind == libc::SO_RXQ_OVFL {
            // SAFETY: a message of this type carries a u32.
            taken.dropped = unsafe { ptr::read_unaligned(data.cast::<u32>()) };
        }
        // SAFETY: `head` and `message` are those of the step before, untouched.
        message = unsafe { libc::CMSG_NXTHDR(head, message) };
    }
    taken
}

/// Has the kernel say with each datagram when it came and how many were dropped before it.
pub(crate) fn say_time_and_drops(socket: BorrowedFd<'_>) -> Result<(), Errno> {
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

/// Datagrams the socket dropped since it was made, modulo 2³².
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
    // An older kernel with fewer figures would have cut the length.
    let told = bytes as usize / size_of::<u32>();
    let drops = figures[..told.min(MEMORY_FIGURES)].get(DROPS);
    drops.copied().ok_or(Errno::new(libc::ENOPROTOOPT))
}

/// Linux `include/uapi/linux/sock_diag.h`: SK_MEMINFO_DROPS, and SK_MEMINFO_VARS.
const DROPS: usize = 8;
const MEMORY_FIGURES: usize = 9;
