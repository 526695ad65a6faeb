// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring of `io_uring`: many sends in one system call, and sends whose pages are not copied.
//!
//! A thread's path owns one [`Ring`]. It fills a [`Queue`], which borrows all memory that the
//! operations name, and submits it; the submission returns when every operation has its result, so
//! the kernel holds nothing borrowed afterwards. It still holds the pages of zero-copy sends, until
//! a notification releases them. They are a [`FileMap`]'s or the ring's own pool's, never a
//! caller's memory.
//!
//! Sends use `MSG_DONTWAIT`. The kernel then neither arms a poll nor passes the operation to a
//! worker when the socket is full, but returns `EAGAIN`, so that all work is done on this thread
//! within `io_uring_enter` and charged to it. Operations are issued in the order of the queue. A
//! linked one is issued only if the one before completed in full; otherwise its result is
//! `ECANCELED`.
//!
//! A zero-copy send has two completions: the result, and, when the result announces it
//! (`IORING_CQE_F_MORE`), the notification that its pages are released and whether they were copied
//! nevertheless. Linux 6.18 does not announce it for a send that is cancelled with the chain before
//! it, but notifies nevertheless (`io_fail_links` does not call `io_sendrecv_fail`), unless the
//! kernel's memory for the notification was missing. A send in a chain that fails so (`ENOMEM`)
//! cannot be distinguished from the others and counts as under way until the ring is closed; when
//! such sends use up all records, paths copy. Each submission reads the notifications.
//!
//! Where the kernel has no memory for all of a queue, the submission waits for the accepted part
//! and does not submit the rest again: the chain that the shortage cut in two would become two
//! chains. The ring with the rest on it is closed, and another is made for the next queue
//! ([`Ring::queue`]).
//!
//! The ring is set up with `IORING_SETUP_COOP_TASKRUN` (remaining work waits for the thread's next
//! system call instead of interrupting it) and without `SINGLE_ISSUER` and `DEFER_TASKRUN`: those
//! bind it to the thread that enables it, and no difference was measured (64 to 1,024 sends a
//! submission, 2.48 µs each in all four set-ups). It is set up without `SQPOLL`, whose thread's
//! time would be hidden.
//!
//! Sources: `io_uring(7)`, `io_uring_enter(2)`, `io_uring_register(2)`; Linux 6.18
//! `io_uring/net.c` (`io_sendmsg_prep`: `REQ_F_NOWAIT`), `io_uring/notif.c`.
//!
//! Does not interpret a result or repeat an operation that the kernel has accepted.

use std::fs::File;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use io_uring::{EnterFlags, IoUring, Probe, cqueue, opcode, squeue, types};

use crate::error::Errno;
use crate::host::Uring;
use crate::send_stats::SendStats;
use crate::sys::flights::{FLIGHTS_MAX, Flights};
use crate::sys::locked_memory::once_memory_is_back;
use crate::sys::pool::Pool;
use crate::sys::send::{Gather, RANGES_MAX};

#[cfg(doc)]
use crate::sys::FileMap;

/// Largest number of operations of a submission: more than the packets of any burst.
pub(crate) const RING_OPERATIONS_MAX: usize = 512;

/// Ranges of memory in one submission; bounds the ring's own memory, at 512 KiB.
const RANGES_TOGETHER_MAX: usize = 32_768;

/// Immediate repetitions of a submission of which the kernel has accepted nothing, for lack of
/// memory: milliseconds, while the thread's other sessions wait.
const RETRIES_MAX: u32 = 1000;

const FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// `IORING_SEND_ZC_REPORT_USAGE`: notifications report whether bytes were copied (Linux 6.2).
const REPORT_USAGE: u16 = 1 << 3;

/// `IORING_NOTIF_USAGE_ZC_COPIED`, the top bit of a notification's result: set when they were.
const COPIED: i32 = i32::MIN;

/// Returns a set-up that all rings of this crate share.
pub(super) fn set_up(operations: u32, completions: u32) -> Result<IoUring, Errno> {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_clamp().setup_submit_all().setup_coop_taskrun();
    builder.setup_cqsize(completions);
    once_memory_is_back(libc::ENOMEM, || Ok(builder.build(operations)?))
}

/// Queries the operations that the kernel offers this process.
pub(crate) fn offer() -> Result<Uring, Errno> {
    let ring = set_up(1, 2)?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let all = |codes: &[u8]| codes.iter().all(|code| probe.is_supported(*code));
    Ok(Uring {
        sends: all(&[opcode::Send::CODE, opcode::SendMsg::CODE, opcode::ReadFixed::CODE]),
        zero_copy: all(&[opcode::SendZc::CODE, opcode::SendMsgZc::CODE]),
        receives: all(&[opcode::RecvMsgMulti::CODE]),
    })
}

/// An operation that has been queued.
#[derive(Clone, Copy, Debug)]
struct Operation {
    kind: Kind,
    file: RawFd,
    linked: bool,
    flight: Option<u16>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A message of the ranges from `first` on.
    Message { first: usize, ranges: usize },
    /// A send from the pool.
    Pooled { buffer: u16, at: usize, bytes: u32 },
    /// A read into the pool.
    Read { buffer: u16, at: usize, bytes: u32, offset: u64 },
}

/// A ring, its pool, and room for queued operations.
pub(crate) struct Ring {
    // The ring is declared before the pool, so it is dropped first.
    uring: IoUring,
    pool: Option<Pool>,
    /// True when the pool's buffers are registered with the ring.
    registered: bool,
    /// Buffers claimed for the submission being queued.
    claimed: Vec<u16>,
    flights: Flights,
    ranges: Vec<libc::iovec>,
    messages: Vec<libc::msghdr>,
    operations: Vec<Operation>,
    results: Vec<Option<i32>>,
    /// The reason why the ring is unusable: it still holds unsubmitted operations, so no other may
    /// be submitted.
    broken: Option<Errno>,
}

// SAFETY: the addresses in `ranges` and `messages` are used by a Queue's submission alone, which
// borrows the memory they point to and builds them again; between two they are only memory to be
// overwritten. The ring's descriptor may be used from any thread, as it is set up without
// SINGLE_ISSUER.
unsafe impl Send for Ring {}

impl Ring {
    /// Returns a ring without buffers of its own.
    pub(crate) fn new() -> Result<Self, Errno> {
        Self::with_completions(RING_OPERATIONS_MAX)
    }

    /// Returns a ring whose completions are read before there are more than `completions`.
    fn with_completions(completions: usize) -> Result<Self, Errno> {
        Ok(Self {
            uring: set_up(RING_OPERATIONS_MAX as u32, completions as u32)?,
            pool: None,
            registered: false,
            claimed: Vec::new(),
            flights: Flights::default(),
            ranges: Vec::with_capacity(1024),
            messages: Vec::with_capacity(RING_OPERATIONS_MAX),
            operations: Vec::with_capacity(RING_OPERATIONS_MAX),
            results: Vec::with_capacity(RING_OPERATIONS_MAX),
            broken: None,
        })
    }

    /// Returns a ring that can send without copying, with `buffers` buffers of `buffer_bytes`.
    pub(crate) fn with_pool(buffers: u16, buffer_bytes: usize) -> Result<Self, Errno> {
        let mut ring = Self::with_completions(RING_OPERATIONS_MAX + usize::from(FLIGHTS_MAX))?;
        ring.pool = Some(Pool::new(buffers, buffer_bytes)?);
        ring.claimed.reserve(buffers.into());
        ring.flights = Flights::new();
        Ok(ring)
    }

    /// Registers the buffers, so that the kernel need not look up and hold their pages at each
    /// send. They count against `RLIMIT_MEMLOCK`: `ENOMEM` when that is exhausted.
    pub(crate) fn register(&mut self) -> Result<(), Errno> {
        let ranges = self.pool.as_ref().expect("a ring with a pool").ranges();
        // SAFETY: the ranges are the pool's, which is dropped after the ring; the kernel holds
        // their pages for as long as it refers to them.
        unsafe { self.uring.submitter().register_buffers(&ranges) }?;
        self.registered = true;
        Ok(())
    }

    /// Replaces the ring. Sends under way keep their pages, which are the old pool's.
    fn reopen(&mut self) -> Result<(), Errno> {
        let mut fresh = match &self.pool {
            Some(pool) => Self::with_pool(pool.buffers(), pool.buffer_bytes())?,
            None => Self::new()?,
        };
        if self.registered {
            // The old ring's memory is unlocked first, so that only one ring's is locked at a time.
            let _ = self.uring.submitter().unregister_buffers();
            fresh.register()?;
        }
        *self = fresh;
        Ok(())
    }

    /// Begins an empty queue; after a failed submission, on a new ring.
    pub(crate) fn queue<'data>(&mut self) -> Queue<'_, 'data> {
        if self.broken.is_some() {
            self.broken = self.reopen().err().map(in_want_of_memory);
        }
        self.ranges.clear();
        self.messages.clear();
        self.operations.clear();
        self.results.clear();
        self.release_taken();
        Queue { ring: self, closed: 0, data: PhantomData }
    }

    /// Returns the result of an operation of the last submission: bytes, or an error. `ECANCELED`
    /// when an operation that it was linked to did not complete in full.
    pub(crate) fn result(&self, operation: u32) -> Result<u32, Errno> {
        match self.results[operation as usize] {
            Some(bytes @ 0..) => Ok(bytes as u32),
            Some(errno) => Err(Errno::new(-errno)),
            None => Err(self.broken.unwrap_or(Errno::new(libc::ECANCELED))),
        }
    }

    /// True when the kernel has accepted an operation of the last submission.
    pub(crate) fn is_issued(&self, operation: u32) -> bool {
        self.results[operation as usize].is_some()
    }

    /// True when an operation of the last submission was a zero-copy send.
    pub(crate) fn is_zero_copy(&self, operation: u32) -> bool {
        self.operations[operation as usize].flight.is_some()
    }

    fn release_taken(&mut self) {
        if let Some(pool) = &mut self.pool {
            self.claimed.drain(..).for_each(|buffer| pool.release(buffer));
        }
    }

    /// Reads all completions; returns the number of results among them.
    fn reap(&mut self, stats: &mut SendStats) -> usize {
        let Self { uring, pool, flights, operations, results, .. } = self;
        let mut count = 0;
        for completion in uring.completion() {
            let (operation, flight) = unlabel(completion.user_data());
            if cqueue::notif(completion.flags()) {
                let landed = flights.land(flight.expect("only zero-copy sends notify"), pool);
                if completion.result() & COPIED != 0 {
                    stats.zerocopy_copied_bytes += u64::from(landed);
                }
                continue;
            }
            results[operation] = Some(completion.result());
            count += 1;
            let bytes = completion.result().max(0) as u32;
            match flight {
                None => stats.copied_bytes += u64::from(bytes),
                Some(flight) if cqueue::more(completion.flags()) => {
                    flights.carry(flight, bytes);
                }
                // Cancelled with the chain before it: the notification arrives unannounced.
                Some(_) if follows(operations, operation) => {}
                // Refused before anything referred to its pages.
                Some(flight) => {
                    flights.land(flight, pool);
                }
            }
        }
        count
    }

    /// Waits for `count` completions of accepted operations; submits nothing.
    fn wait(&self, count: usize) -> Result<(), Errno> {
        let (submitter, flags) = (self.uring.submitter(), EnterFlags::GETEVENTS.bits());
        // SAFETY: nothing is submitted, and no argument is given.
        let entered = unsafe { submitter.enter::<libc::sigset_t>(0, count as u32, flags, None) };
        entered.map(|_| ()).map_err(Errno::from)
    }

    /// Marks the ring unusable after a failed submission, whose operations without a result were
    /// never accepted; returns the reason.
    fn give_up(&mut self, errno: Errno) -> Errno {
        self.release_taken();
        let Self { pool, flights, operations, results, .. } = self;
        for (operation, _) in operations.iter().zip(results).filter(|(_, result)| result.is_none())
        {
            if let Some(flight) = operation.flight {
                flights.land(flight.into(), pool);
            }
        }
        *self.broken.insert(errno)
    }

    /// Puts the queue's operations onto the ring.
    fn push_all(&mut self) {
        let Self { uring, pool, ranges, messages, operations, registered, .. } = self;
        for operation in operations.iter() {
            if let Kind::Message { first, ranges: count } = operation.kind {
                // SAFETY: msghdr is plain numbers and pointers, for which all zeroes is a value.
                let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
                message.msg_iov = ranges[first..first + count].as_mut_ptr();
                message.msg_iovlen = count as _;
                messages.push(message);
            }
        }
        let mut messages = messages.iter();
        let mut submission = uring.submission();
        for (number, operation) in operations.iter().enumerate() {
            let file = types::Fd(operation.file);
            let zero_copy = operation.flight.is_some();
            let entry = match operation.kind {
                Kind::Message { first, ranges: 1 } => {
                    messages.next();
                    let range = ranges[first];
                    send(file, (range.iov_base, range.iov_len as u32), zero_copy, None)
                }
                Kind::Message { .. } => {
                    let message = messages.next().expect("one was made for each");
                    if zero_copy {
                        let entry = opcode::SendMsgZc::new(file, message).ioprio(REPORT_USAGE);
                        entry.flags(FLAGS as u32).build()
                    } else {
                        opcode::SendMsg::new(file, message).flags(FLAGS as u32).build()
                    }
                }
                Kind::Pooled { buffer, at, bytes } => {
                    let pool = pool.as_ref().expect("a ring with a pool");
                    let start = pool.address(buffer, at, bytes as usize);
                    let index = registered.then_some(buffer);
                    send(file, (start, bytes), zero_copy, index)
                }
                Kind::Read { buffer, at, bytes, offset } => {
                    let pool = pool.as_ref().expect("a ring with a pool");
                    let start = pool.address(buffer, at, bytes as usize).cast();
                    opcode::ReadFixed::new(file, start, bytes, buffer).offset(offset).build()
                }
            };
            let flags =
                if operation.linked { squeue::Flags::IO_LINK } else { squeue::Flags::empty() };
            let entry = entry.flags(flags).user_data(label(number, operation.flight));
            // SAFETY: the memory that the entry points to is borrowed by the Queue whose submission
            // this is, or belongs to the pool; and the submission returns when each entry has its
            // result.
            let pushed = unsafe { submission.push(&entry) };
            assert!(pushed.is_ok(), "a queue holds no more than the ring");
        }
    }
}

/// Returns a send of one range, of the registered buffer `index` or of any memory.
fn send(
    file: types::Fd,
    (start, bytes): (*mut libc::c_void, u32),
    zero_copy: bool,
    index: Option<u16>,
) -> squeue::Entry {
    let start = start.cast_const().cast();
    if zero_copy {
        let entry = opcode::SendZc::new(file, start, bytes).flags(FLAGS);
        entry.zc_flags(REPORT_USAGE).buf_index(index).build()
    } else {
        opcode::Send::new(file, start, bytes).flags(FLAGS).build()
    }
}

/// True when an operation is linked to the one before it.
fn follows(operations: &[Operation], number: usize) -> bool {
    number.checked_sub(1).is_some_and(|before| operations[before].linked)
}

/// Maps all errors that mean a temporary shortage to `ENOMEM`.
fn in_want_of_memory(errno: Errno) -> Errno {
    match errno.code() {
        libc::EAGAIN | libc::EBUSY | libc::ENFILE | libc::EMFILE => Errno::new(libc::ENOMEM),
        _ => errno,
    }
}

/// Returns the mark of an operation's completions: its number, and its flight's from 1 on, or 0.
fn label(operation: usize, flight: Option<u16>) -> u64 {
    operation as u64 | flight.map_or(0, |flight| u64::from(flight) + 1) << 32
}

fn unlabel(label: u64) -> (usize, Option<usize>) {
    let flight = (label >> 32).checked_sub(1).map(|flight| flight as usize);
    (label as u32 as usize, flight)
}

/// Operations to be submitted together; `'data` is the lifetime of the memory they name.
pub(crate) struct Queue<'ring, 'data> {
    ring: &'ring mut Ring,
    /// Number of ranges that belong to operations; later ones belong to the message being gathered.
    closed: usize,
    data: PhantomData<&'data [u8]>,
}

impl<'data> Queue<'_, 'data> {
    /// True when nothing is queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.operations.is_empty()
    }

    /// True when there is room for `operations` more, and for the ranges of a message.
    pub(crate) fn has_room(&self, operations: usize) -> bool {
        self.ring.operations.len() + operations <= RING_OPERATIONS_MAX
            && self.closed + RANGES_MAX <= RANGES_TOGETHER_MAX
    }

    /// True when the next send may be a zero-copy one.
    pub(crate) fn can_fly(&self) -> bool {
        self.ring.flights.free() > 0
    }

    /// Returns the message being gathered.
    pub(crate) fn gather(&mut self) -> Gather<'_, 'data> {
        Gather::behind(&mut self.ring.ranges, self.closed)
    }

    /// Discards the message being gathered.
    pub(crate) fn abandon(&mut self) {
        self.ring.ranges.truncate(self.closed);
    }

    /// Returns a buffer of the pool, for this submission and the zero-copy sends from it. The last
    /// `spare` free ones are reserved.
    pub(crate) fn take(&mut self, spare: usize) -> Option<u16> {
        let buffer = self.ring.pool.as_mut()?.take(spare)?;
        self.ring.claimed.push(buffer);
        Some(buffer)
    }

    /// Copies `bytes` into a buffer from its byte `at` on, and adds that range to the message.
    pub(crate) fn keep(&mut self, buffer: u16, at: usize, bytes: &[u8]) {
        let pool = self.ring.pool.as_mut().expect("a ring with a pool");
        pool.write(buffer, at, bytes);
        let start = pool.address(buffer, at, bytes.len());
        self.ring.ranges.push(libc::iovec { iov_base: start, iov_len: bytes.len() });
    }

    /// Queues the message. Returns the operation's number.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'data>) -> u32 {
        self.close(socket, None)
    }

    /// Queues the message as a zero-copy send. Its bytes are mapped, or kept in `buffer`: the
    /// kernel may refer to them long after the submission.
    pub(crate) fn send_zero_copy(&mut self, socket: BorrowedFd<'data>, buffer: u16) -> u32 {
        self.close(socket, Some(buffer))
    }

    fn close(&mut self, socket: BorrowedFd<'data>, buffer: Option<u16>) -> u32 {
        let first = self.closed;
        self.closed = self.ring.ranges.len();
        assert!(self.closed > first, "a message has a range");
        let kind = Kind::Message { first, ranges: self.closed - first };
        self.push(kind, socket.as_raw_fd(), buffer)
    }

    /// Queues a send of `bytes` bytes of a buffer from its byte `at` on.
    pub(crate) fn send_pooled(
        &mut self,
        socket: BorrowedFd<'data>,
        buffer: u16,
        (at, bytes): (usize, u32),
        zero_copy: bool,
    ) -> u32 {
        let kind = Kind::Pooled { buffer, at, bytes };
        self.push(kind, socket.as_raw_fd(), zero_copy.then_some(buffer))
    }

    /// Queues a read of `bytes` bytes of `file` from `offset` on into a registered buffer, from its
    /// byte `at` on.
    pub(crate) fn read(
        &mut self,
        file: &'data File,
        offset: u64,
        buffer: u16,
        (at, bytes): (usize, u32),
    ) -> u32 {
        assert!(self.ring.registered, "reads go into registered buffers");
        self.push(Kind::Read { buffer, at, bytes, offset }, file.as_raw_fd(), None)
    }

    /// Makes the operation after `operation` wait for it, and be cancelled unless it completes in
    /// full.
    pub(crate) fn link(&mut self, operation: u32) {
        self.ring.operations[operation as usize].linked = true;
    }

    fn push(&mut self, kind: Kind, file: RawFd, flies_from: Option<u16>) -> u32 {
        let ring = &mut *self.ring;
        let flight = flies_from.map(|buffer| {
            ring.pool.as_mut().expect("a ring with a pool").hold(buffer);
            ring.flights.begin(buffer)
        });
        ring.operations.push(Operation { kind, file, linked: false, flight });
        ring.operations.len() as u32 - 1
    }

    /// Submits all and returns when each operation has its result ([`Ring::result`]). An error is
    /// the kernel's refusal to accept all: `ENOMEM` when it has no memory for it now. Accepted
    /// operations ([`Ring::is_issued`]) have their result then, too.
    pub(crate) fn submit(self, stats: &mut SendStats) -> Result<(), Errno> {
        let ring = self.ring;
        let total = ring.operations.len();
        ring.results.resize(total, None);
        if let Some(errno) = ring.broken {
            return Err(ring.give_up(errno));
        }
        ring.push_all();
        let (mut done, mut retries) = (0, 0);
        let (accepted, refusal) = loop {
            stats.calls += 1;
            let entered = ring.uring.submit_and_wait(total);
            done += ring.reap(stats);
            let accepted = total - ring.uring.submission().len();
            let errno = match entered.map_err(Errno::from) {
                Err(errno) if accepted == 0 => errno,
                _ => break (accepted, Errno::new(libc::ENOMEM)),
            };
            match errno.code() {
                libc::EINTR => {}
                // No memory for requests, or completions to be read first.
                libc::EAGAIN | libc::EBUSY if retries < RETRIES_MAX => {
                    retries += 1;
                    std::thread::yield_now();
                }
                _ => break (0, in_want_of_memory(errno)),
            }
        };
        // Usually all results are already there.
        while done < accepted {
            stats.calls += 1;
            let waited = ring.wait(accepted - done);
            done += ring.reap(stats);
            match waited.map_err(Errno::code) {
                Ok(()) | Err(libc::EINTR) => {}
                Err(libc::EAGAIN | libc::EBUSY) => std::thread::yield_now(),
                // The kernel still holds borrowed memory, and cannot be made to release it: other
                // code has closed the ring's descriptor.
                Err(_) => std::process::abort(),
            }
        }
        if accepted < total {
            return Err(ring.give_up(refusal));
        }
        ring.release_taken();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;

    /// Replaces the ring's descriptor by another file, by which nothing can be submitted.
    fn lose_descriptor(ring: &Ring) {
        let other = File::open("/dev/null").unwrap();
        // SAFETY: the descriptor stays open, and the ring its only owner; the mappings refer to the
        // old file.
        let done = unsafe { libc::dup2(other.as_raw_fd(), ring.uring.as_raw_fd()) };
        assert!(done >= 0);
    }

    #[test]
    fn a_ring_that_fails_sends_nothing_twice_and_leaves_its_place_to_another() {
        match offer() {
            Ok(Uring { sends: true, zero_copy: true, .. }) => {}
            offer => return eprintln!("skip: io_uring: {offer:?}"),
        }
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let mut ring = Ring::with_pool(2, 4096).unwrap();
        let mut stats = SendStats::default();
        let mut send = |ring: &mut Ring, text: &[u8]| {
            let mut queue = ring.queue();
            let buffer = queue.take(0).expect("nothing is under way");
            queue.keep(buffer, 0, text);
            let operation = queue.send_zero_copy(sender.as_fd(), buffer);
            let submitted = queue.submit(&mut stats);
            assert_eq!(submitted.is_ok(), ring.is_issued(operation));
            submitted.and_then(|()| ring.result(operation))
        };
        let mut buffer = [0; 16];
        let mut hear = || receiver.recv(&mut buffer).map(|bytes| buffer[..bytes].to_vec()).unwrap();
        assert_eq!(send(&mut ring, b"first"), Ok(5));
        assert_eq!(hear(), b"first");
        for _ in 0..3 {
            lose_descriptor(&ring);
            assert!(send(&mut ring, b"lost").is_err());
            let free = ring.flights.free();
            assert!(free >= usize::from(FLIGHTS_MAX) - 1, "{free}: what was not taken has landed");
            assert_eq!(send(&mut ring, b"again"), Ok(5));
            assert_eq!(hear(), b"again");
        }
    }
}
