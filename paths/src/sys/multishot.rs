// SPDX-License-Identifier: MIT OR Apache-2.0
//! Multishot receives: one `io_uring` for many sockets, into shared buffers.
//!
//! A socket is armed once. From then on the kernel puts each datagram (or joined run) of it into
//! the next buffer of a list that it shares with this process, and reports it by a completion. It
//! does so when this thread is in the kernel; so the waiting call moves the datagrams. A buffer is
//! returned by writing its address into the list: no call.
//!
//! A buffer holds, in the kernel's order, a description (16 bytes), the sender, the control
//! messages, and the datagram: the first three in 128 bytes, which also keeps the buffers'
//! beginnings apart in the cache, as in [`super::Slots`].
//!
//! A receive ends, and has to be armed again, when it found no buffer, the socket had an error, it
//! was cancelled, or the thread that armed it has ended: the flags of its last completion announce
//! no further one. Where there is no room for a completion the kernel keeps it and hands it over
//! later.
//!
//! A buffer belongs to the kernel from its entry in the list until a completion names it, and then
//! to this process until it is in the list again. After the list has been unregistered
//! (`IORING_UNREGISTER_PBUF_RING`, under the lock that receives are made under) no receive finds a
//! buffer any more, so the memory may be unmapped.
//!
//! Sources: `io_uring(7)`, `io_uring_prep_recvmsg_multishot(3)` (Linux 6.0),
//! `io_uring_setup_buf_ring(3)` (5.19), `io_uring_register(2)` (`IORING_REGISTER_SYNC_CANCEL`,
//! 6.0); Linux 6.18 `io_uring/net.c` (`io_recvmsg_prep_multishot`, `MULTISHOT_MAX_RETRY`),
//! `io_uring/kbuf.c`.
//!
//! Does not manage sockets.

use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};

use crate::error::Errno;
use crate::receive::ReceiveStats;
use crate::sys::address::{NAME_BYTES, Name, address};
use crate::sys::area::{Area, Range};
use crate::sys::receive::{Control, RecvMeta, meta_of};
use crate::sys::uring::set_up;

/// Largest number of receives that one call arms.
const ARMED_TOGETHER_MAX: u32 = 64;

/// Completions in the ring; the kernel keeps further ones for later.
const COMPLETIONS_MAX: u32 = 1024;

/// The only list of buffers of a ring.
const GROUP: u16 = 0;

/// Seconds to wait for cancellation; receives not cancelled then end with the ring.
const CANCEL_WAIT_S: u64 = 5;

/// Linux `include/uapi/linux/io_uring.h`: io_uring_recvmsg_out.
#[repr(C)]
#[derive(Clone, Copy)]
struct Out {
    name_bytes: u32,
    control_bytes: u32,
    payload_bytes: u32,
    flags: u32,
}

const OUT_BYTES: usize = size_of::<Out>();
/// Bytes of an address, padded so that the control messages behind it are aligned.
const NAME_ROOM_BYTES: usize = 32;
const CONTROL_BYTES: usize = size_of::<Control>();
const HEAD_BYTES: usize = OUT_BYTES + NAME_ROOM_BYTES + CONTROL_BYTES;
const _: () = assert!(NAME_BYTES <= NAME_ROOM_BYTES);
const _: () = assert!((OUT_BYTES + NAME_ROOM_BYTES).is_multiple_of(align_of::<Control>()));
const _: () = assert!(HEAD_BYTES == 128);

/// Linux `include/uapi/linux/io_uring.h`, io_uring_buf: an address (8), a length (4) and a number
/// (2). The last two bytes of the first one are the list's tail.
const ENTRY_BYTES: usize = 16;
const ENTRY_LENGTH: usize = 8;
const ENTRY_NUMBER: usize = 12;
const TAIL: usize = 14;

/// A ring, the buffers that its receives fill, and the list of those that are free.
pub(crate) struct Multishot {
    // The ring is declared before the memory that it writes to, so it is dropped first.
    uring: IoUring,
    /// Unmapped by `drop`, once the kernel writes to neither.
    list: ManuallyDrop<Area>,
    buffers: ManuallyDrop<Area>,
    /// Argument of each receive: the room before the datagram.
    head: Box<libc::msghdr>,
    /// Marks buffers that a completion has named and that were not returned.
    is_ours: Box<[bool]>,
    stride: usize,
    datagram_bytes_max: usize,
    tail: u16,
}

// SAFETY: `head` has no address in it; the ring writes only to its own memory, and its descriptor
// may be used from any thread, as it is set up without SINGLE_ISSUER.
unsafe impl Send for Multishot {}

impl fmt::Debug for Multishot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Multishot").field("buffers", &self.is_ours.len()).finish_non_exhaustive()
    }
}

/// Completion of a receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    /// The mark of the receive.
    pub(crate) mark: u64,
    /// True when the receive continues.
    pub(crate) goes_on: bool,
    /// The filled buffer, to be returned to the list; or the reason why there is none.
    pub(crate) filled: Result<u16, Errno>,
}

impl Multishot {
    /// Returns a ring with `count` buffers, a power of two, for datagrams of at most
    /// `datagram_bytes_max` bytes.
    pub(crate) fn new(count: u16, datagram_bytes_max: usize) -> Result<Self, Errno> {
        assert!(count.is_power_of_two(), "the list goes round by a mask");
        let uring = set_up(ARMED_TOGETHER_MAX, COMPLETIONS_MAX)?;
        let stride = (HEAD_BYTES + datagram_bytes_max).next_multiple_of(HEAD_BYTES);
        let list = Area::anonymous(usize::from(count) * ENTRY_BYTES)?;
        let buffers = Area::untouched(usize::from(count) * stride)?;
        // SAFETY: msghdr is plain numbers and pointers, for which all zeroes is a value.
        let mut head: Box<libc::msghdr> = Box::new(unsafe { mem::zeroed() });
        head.msg_namelen = NAME_ROOM_BYTES as libc::socklen_t;
        head.msg_controllen = CONTROL_BYTES as _;
        // SAFETY: the list is as long as specified and lives until it has been unregistered.
        unsafe { uring.submitter().register_buf_ring_with_flags(list.address(), count, GROUP, 0)? };
        let mut ring = Self {
            uring,
            list: ManuallyDrop::new(list),
            buffers: ManuallyDrop::new(buffers),
            head,
            is_ours: vec![true; count.into()].into_boxed_slice(),
            stride,
            datagram_bytes_max,
            tail: 0,
        };
        ring.give_back(0..count);
        Ok(ring)
    }

    /// Queues the arming of a receive for the next call; its completions carry the mark. False when
    /// that call has to be made first ([`Multishot::submit`]). The socket is to stay open until
    /// then.
    pub(crate) fn arm(&mut self, socket: BorrowedFd<'_>, mark: u64) -> bool {
        let entry = opcode::RecvMsgMulti::new(Fd(socket.as_raw_fd()), &raw const *self.head, GROUP);
        let entry = entry.build().user_data(mark);
        // SAFETY: the kernel reads `head` when the entry is submitted and keeps a copy; received
        // bytes go into the list's buffers.
        unsafe { self.uring.submission().push(&entry) }.is_ok()
    }

    /// Arms the queued receives, and waits for nothing.
    pub(crate) fn submit(&mut self, stats: &mut ReceiveStats) -> Result<(), Errno> {
        stats.calls += 1;
        passing(self.uring.submit())
    }

    /// True when receives are queued to be armed.
    pub(crate) fn is_pending(&mut self) -> bool {
        !self.uring.submission().is_empty()
    }

    /// Arms the queued receives and waits at most `wait` for a completion.
    pub(crate) fn wait(&mut self, wait: Duration, stats: &mut ReceiveStats) -> Result<(), Errno> {
        let time = Timespec::from(wait);
        stats.waits += 1;
        let args = SubmitArgs::new().timespec(&time);
        passing(self.uring.submitter().submit_with_args(1, &args))
    }

    /// Ends the receive of this mark. Its pending datagrams and its last completion still arrive.
    pub(crate) fn disarm(&mut self, mark: u64) {
        // An error means that the receive has already ended.
        let _ = self.cancel(CancelBuilder::user_data(mark));
    }

    /// Ends all receives.
    pub(crate) fn disarm_all(&mut self) {
        let _ = self.cancel(CancelBuilder::any().all());
    }

    fn cancel(&self, which: CancelBuilder) -> std::io::Result<()> {
        let wait = Timespec::new().sec(CANCEL_WAIT_S);
        self.uring.submitter().register_sync_cancel(Some(wait), which)
    }

    /// Reads at most `most` completions, behind those in `list`.
    pub(crate) fn take(&mut self, most: usize, list: &mut Vec<Completion>) {
        for completion in self.uring.completion().take(most) {
            let buffer = cqueue::buffer_select(completion.flags());
            let outcome = completion.result();
            if let Some(buffer) = buffer {
                self.is_ours[usize::from(buffer)] = true;
            }
            let why_not = if outcome < 0 { -outcome } else { libc::EIO };
            list.push(Completion {
                mark: completion.user_data(),
                goes_on: cqueue::more(completion.flags()),
                filled: buffer.ok_or(Errno::new(why_not)),
            });
        }
    }

    /// Content of a buffer: the datagram, cut at the buffer's end, the sender, and the metadata.
    ///
    /// # Panics
    /// When no completion has named the buffer since it was returned.
    pub(crate) fn datagram(&self, buffer: u16) -> (&[u8], Option<SocketAddr>, RecvMeta) {
        assert!(self.is_ours[usize::from(buffer)], "a buffer that was named");
        let start = usize::from(buffer) * self.stride;
        let control = start + OUT_BYTES + NAME_ROOM_BYTES;
        // SAFETY: the buffer is not in the list, so the kernel does not write to it, and the
        // records are plain numbers.
        let (out, name) = unsafe {
            (self.buffers.value::<Out>(start), self.buffers.value::<Name>(start + OUT_BYTES))
        };
        let bytes = (out.payload_bytes as usize).min(self.datagram_bytes_max);
        // SAFETY: as above; a buffer has that many bytes behind its head.
        let bytes = unsafe { self.buffers.range(Range { start: start + HEAD_BYTES, bytes }) };
        // SAFETY: as above.
        let control = unsafe { self.buffers.range(Range { start: control, bytes: CONTROL_BYTES }) };
        // SAFETY: msghdr is plain numbers and pointers, for which all zeroes is a value.
        let mut head: libc::msghdr = unsafe { mem::zeroed() };
        head.msg_control = control.as_ptr().cast_mut().cast();
        head.msg_controllen = (out.control_bytes as usize).min(CONTROL_BYTES) as _;
        // SAFETY: the kernel has written that many bytes of `control`, which is not written to now.
        let meta = unsafe { meta_of(&head) };
        let is_cut = out.flags & libc::MSG_TRUNC as u32 != 0;
        (bytes, address(&name, out.name_bytes as usize), RecvMeta { is_cut, ..meta })
    }

    /// Returns these buffers to the kernel.
    ///
    /// # Panics
    /// Same as for [`Multishot::datagram`].
    pub(crate) fn give_back(&mut self, buffers: impl IntoIterator<Item = u16>) {
        let count = self.is_ours.len();
        for buffer in buffers {
            let is_ours = &mut self.is_ours[usize::from(buffer)];
            assert!(mem::replace(is_ours, false), "a buffer is given back once");
            let at = usize::from(self.tail) % count * ENTRY_BYTES;
            let start = self.buffers.address() + (usize::from(buffer) * self.stride) as u64;
            // SAFETY: entries from the tail on are not the kernel's until the tail has moved on,
            // and there are as many as buffers.
            unsafe {
                self.list.put(at, start);
                self.list.put(at + ENTRY_LENGTH, (HEAD_BYTES + self.datagram_bytes_max) as u32);
                self.list.put(at + ENTRY_NUMBER, buffer);
            }
            self.tail = self.tail.wrapping_add(1);
        }
        self.list.half(TAIL).store(self.tail, Ordering::Release);
    }
}

impl Drop for Multishot {
    fn drop(&mut self) {
        let is_back = self.uring.submitter().unregister_buf_ring(GROUP).is_ok();
        // The sockets are released now, not later by a worker.
        self.disarm_all();
        if is_back {
            // SAFETY: neither is used after this. No receive finds the list any more.
            unsafe {
                ManuallyDrop::drop(&mut self.list);
                ManuallyDrop::drop(&mut self.buffers);
            }
        }
    }
}

/// Interprets the result of a call that submits and waits: a timeout is no error, and receives that
/// could not be armed for lack of memory or of completion entries are armed by the next call.
fn passing(entered: std::io::Result<usize>) -> Result<(), Errno> {
    match entered.map_err(Errno::from) {
        Ok(_) => Ok(()),
        Err(errno) => match errno.code() {
            libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY => Ok(()),
            _ => Err(errno),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;
    use crate::sys::offer;

    const WAIT: Duration = Duration::from_secs(5);

    fn armed(count: u16) -> Option<(Multishot, UdpSocket, UdpSocket)> {
        if !offer().is_ok_and(|offer| offer.receives && offer.zero_copy) {
            eprintln!("skip: io_uring: {:?}", offer());
            return None;
        }
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let mut ring = Multishot::new(count, 100).unwrap();
        assert!(ring.arm(receiver.as_fd(), 7) && ring.is_pending());
        ring.wait(Duration::ZERO, &mut ReceiveStats::default()).unwrap();
        assert!(!ring.is_pending());
        Some((ring, receiver, sender))
    }

    fn completions(ring: &mut Multishot) -> Vec<Completion> {
        let mut list = Vec::new();
        ring.wait(WAIT, &mut ReceiveStats::default()).unwrap();
        ring.take(100, &mut list);
        assert!(list.iter().all(|completion| completion.mark == 7));
        list
    }

    #[test]
    fn a_receive_goes_on_until_there_is_no_buffer() {
        let Some((mut ring, receiver, sender)) = armed(4) else { return };
        for round in 0..10_u8 {
            (0..3).for_each(|n| assert_eq!(sender.send(&[round, n]).unwrap(), 2));
            let mut list = Vec::new();
            while list.len() < 3 {
                list.extend(completions(&mut ring));
            }
            for (n, completion) in (0..3).zip(&list) {
                let (bytes, source, meta) = ring.datagram(completion.filled.unwrap());
                assert_eq!(bytes, [round, n]);
                assert_eq!(source, Some(sender.local_addr().unwrap()));
                assert!(completion.goes_on && !meta.is_cut);
            }
            ring.give_back(list.iter().filter_map(|completion| completion.filled.ok()));
        }
        (0..7).for_each(|n| assert_eq!(sender.send(&[n]).unwrap(), 1));
        let mut list = Vec::new();
        while list.last().is_none_or(|completion: &Completion| completion.goes_on) {
            list.extend(completions(&mut ring));
        }
        let (last, filled) = list.split_last().unwrap();
        assert_eq!((filled.len(), last.filled), (4, Err(Errno::new(libc::ENOBUFS))));
        ring.give_back(filled.iter().filter_map(|completion| completion.filled.ok()));
        // No datagram is lost or out of order.
        assert!(ring.arm(receiver.as_fd(), 7));
        let mut rest = Vec::new();
        while rest.len() < 3 {
            rest.extend(completions(&mut ring));
        }
        let rest: Vec<_> = rest.iter().map(|one| ring.datagram(one.filled.unwrap()).0).collect();
        assert_eq!(rest, [[4], [5], [6]]);
    }

    #[test]
    fn a_cut_datagram_is_marked_cut() {
        let Some((mut ring, _receiver, sender)) = armed(4) else { return };
        sender.send(&[1; 101]).unwrap();
        sender.send(&[2; 100]).unwrap();
        let mut list = Vec::new();
        while list.len() < 2 {
            list.extend(completions(&mut ring));
        }
        let [long, fits] = [0, 1].map(|n: usize| ring.datagram(list[n].filled.unwrap()));
        assert_eq!((long.0, long.2.is_cut), (&[1; 100][..], true));
        assert_eq!((fits.0, fits.2.is_cut), (&[2; 100][..], false));
    }

    #[test]
    fn a_cancelled_receive_lets_go_of_its_socket() {
        for all in [false, true] {
            let Some((mut ring, receiver, _)) = armed(4) else { return };
            if all {
                ring.disarm_all();
            } else {
                ring.disarm(7);
            };
            let list = completions(&mut ring);
            assert_eq!(list.len(), 1);
            assert_eq!(list[0].filled, Err(Errno::new(libc::ECANCELED)));
            assert!(!list[0].goes_on);
            let address = receiver.local_addr().unwrap();
            drop(receiver);
            UdpSocket::bind(address).unwrap();
        }
        let Some((ring, receiver, _)) = armed(4) else { return };
        drop(ring);
        let address = receiver.local_addr().unwrap();
        drop(receiver);
        UdpSocket::bind(address).expect("a ring that is gone holds no socket");
    }

    #[test]
    #[should_panic(expected = "a buffer that was named")]
    fn a_buffer_of_the_kernels_is_not_read() {
        match Multishot::new(4, 100) {
            Ok(ring) => drop(ring.datagram(3)),
            Err(errno) => panic!("skip: a buffer that was named: {errno}"),
        }
    }
}
