// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two ways of a relay to move bytes: by a pipe, or by memory.
//!
//! A thread's relay has one [`RelayForwarder`], which serves its ports alternately and is empty
//! between two of them.
//!
//! Datagrams of one size that wait behind each other, alone or in runs, leave as one run, because
//! the send is most of their cost. Limits are the size of any Ethernet frame, the pipe's pages, and
//! the buffers of a call.
//!
//! Sources: `splice(2)`, `udp(7)`; [`crate::relay`] describes the whole.
//!
//! Does not manage ports and targets.

use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::UNIX_EPOCH;

use crate::destination::{Destination, RefusalAction, SEGMENTS_MAX};
use crate::error::{Errno, Error, SendError, Unavailable};
use crate::file_datagrams::PIPE_PAGES;
use crate::receive::{DATAGRAM_BYTES_MAX, ReceiveStats, ReceivedMessage};
use crate::relay::{HEAD_BYTES_MAX, RelayMethod, RelayedRun, Route};
use crate::send_stats::SendStats;
use crate::sys::{self, Pipe, RecvMeta, Scratch, Slots};

/// Datagrams or runs of a port before another has its turn.
const TURN: usize = 64;

/// Datagrams or runs received by a call when they are copied: 4 MiB of address space. One bit of a
/// word stands for each.
const SLOTS: usize = 64;

/// The longest lone datagram that is joined to a run: every route accepts such runs. A run that the
/// route refuses makes all later ones shorter.
const ALONE_BYTES_MAX: usize = 1452;

/// Largest number of bytes of a run that is made of several.
const RUN_BYTES_MAX: usize = 65_507;

/// State shared by all routes of a relay.
#[derive(Debug)]
pub(super) struct RelayForwarder {
    method: RelayMethod,
    pipe: Pipe,
    room_bytes: u64,
    /// Buffers for datagrams that are received and sent, and for the pipe's content when it has to
    /// be read back.
    slots: Slots,
    room: Box<[u8]>,
    scratch: Scratch,
    /// Content of the pipe, to be sent as one run.
    run: JoinedRun,
    pages: u64,
    pending: Vec<PendingRun>,
    /// True when the next datagram at the port has been admitted, and is not yet read.
    is_admitted: bool,
    send_stats: SendStats,
}

/// Callbacks before and after the send of a datagram or run.
pub(super) struct RelayCallbacks<'a> {
    pub(super) admit: &'a mut dyn FnMut(&RelayedRun<'_>) -> bool,
    pub(super) note: &'a mut dyn FnMut(&RelayedRun<'_>),
}

/// A datagram or run in the pipe, to be reported after the send.
#[derive(Clone, Copy, Debug)]
struct PendingRun {
    source: SocketAddr,
    head: [u8; HEAD_BYTES_MAX],
    run: JoinedRun,
    meta: RecvMeta,
}

impl RelayForwarder {
    pub(super) fn new(method: RelayMethod) -> Result<Self, Error> {
        let pipe = Pipe::new(PIPE_PAGES)?;
        Ok(Self {
            method,
            room_bytes: pipe.pages().min(PIPE_PAGES) * sys::page_bytes(),
            pipe,
            slots: Slots::new(SLOTS, DATAGRAM_BYTES_MAX),
            room: vec![0; DATAGRAM_BYTES_MAX].into(),
            scratch: Scratch::new(),
            run: JoinedRun::default(),
            pages: 0,
            pending: Vec::with_capacity(PIPE_PAGES as usize),
            is_admitted: false,
            send_stats: SendStats::default(),
        })
    }

    pub(super) fn method(&self) -> &RelayMethod {
        &self.method
    }

    pub(super) fn send_stats(&self) -> SendStats {
        self.send_stats
    }

    /// Makes the pipe refuse everything from now on.
    #[cfg(test)]
    pub(super) fn spoil(&mut self) {
        self.pipe.spoil();
    }

    /// Forwards the waiting datagrams of a port; true when there may be more.
    pub(super) fn turn(
        &mut self,
        from: (BorrowedFd<'_>, u32),
        route: &mut Route,
        receive_stats: &mut ReceiveStats,
        calls: &mut RelayCallbacks<'_>,
    ) -> Result<bool, Errno> {
        for _ in 0..TURN {
            if let RelayMethod::Copy(_) = self.method {
                return self.copy(from, route, receive_stats, calls).map(|count| count == SLOTS);
            }
            let pulled = self.pull(from, route, receive_stats, calls);
            if let Err(errno) = pulled {
                self.flush(from.1, route, calls.note);
                return Err(errno);
            }
        }
        self.flush(from.1, route, calls.note);
        Ok(true)
    }

    /// Moves the next datagram or run of a port into the pipe, after sending the pipe's content
    /// where they cannot leave together.
    fn pull(
        &mut self,
        (from, key): (BorrowedFd<'_>, u32),
        route: &mut Route,
        receive_stats: &mut ReceiveStats,
        calls: &mut RelayCallbacks<'_>,
    ) -> Result<(), Errno> {
        let mut head = [0; HEAD_BYTES_MAX];
        let (bytes, source, meta) = sys::peek(from, &mut head, receive_stats)?;
        let fits = bytes > 0 && bytes as u64 <= self.room_bytes;
        let Some(source) = source.filter(|_| fits) else {
            self.flush(key, route, calls.note);
            return self.copy((from, key), route, receive_stats, calls).map(|_| ());
        };
        let run = JoinedRun { bytes, segment_bytes: meta.segment_bytes };
        let shown = &head[..run.each().min(HEAD_BYTES_MAX)];
        if !(calls.admit)(&relayed((key, source), (run, 0), shown, meta)) {
            sys::receive_one(from, &mut [], receive_stats)?;
            return Ok(());
        }
        let pages = (bytes as u64).div_ceil(sys::page_bytes());
        let has_room = (self.pages + pages) * sys::page_bytes() <= self.room_bytes;
        let joined = match self.run.with(run).filter(|_| has_room) {
            Some(joined) => joined,
            None => {
                self.flush(key, route, calls.note);
                run
            }
        };
        match self.pipe.take(from, bytes as u64, &mut self.send_stats) {
            // No other code reads from this socket, so the peeked datagram is the one that was
            // moved.
            Ok(piped) => debug_assert_eq!(piped, bytes as u64, "all of it"),
            Err(errno) if errno.code() == libc::EINVAL => {
                self.flush(key, route, calls.note);
                self.is_admitted = true;
                self.method = RelayMethod::Copy(Unavailable {
                    need: "UDP sockets that can be spliced from (kernel 6.5)".into(),
                    found: format!("{errno}, kernel {}", sys::kernel_release()),
                });
                return Ok(());
            }
            Err(errno) => return Err(errno),
        }
        (self.run, self.pages) = (joined, self.pages + pages);
        self.pending.push(PendingRun { source, head, run, meta });
        receive_stats.packets += u64::from(run.packets());
        receive_stats.bytes += bytes as u64;
        Ok(())
    }

    /// Sends the pipe's content, and leaves the pipe empty.
    fn flush(&mut self, key: u32, route: &mut Route, note: &mut dyn FnMut(&RelayedRun<'_>)) {
        if self.pending.is_empty() {
            return;
        }
        let run = std::mem::take(&mut self.run);
        self.pages = 0;
        let mut left = self.empty(run, &mut route.to);
        // Unsent bytes are discarded; there is no call without such bytes.
        if let Err(errno) = self.pipe.clear(&mut self.send_stats) {
            // The pipe could neither be emptied nor replaced, for lack of descriptors.
            let found = format!("{errno} for pipe2");
            self.method = RelayMethod::Copy(Unavailable { need: "a pipe".into(), found });
        }
        for PendingRun { source, head, run, meta } in self.pending.drain(..) {
            let sent = run.packets().min(left);
            left -= sent;
            let head = &head[..run.each().min(HEAD_BYTES_MAX)];
            route.tell((key, source), (run, sent), head, meta, note);
        }
    }

    /// Sends the pipe's content; returns the number of datagrams that the socket accepted.
    fn empty(&mut self, run: JoinedRun, to: &mut Destination) -> u32 {
        let send_stats = &mut self.send_stats;
        loop {
            match ready(run, to, send_stats) {
                Ok(bytes) if bytes >= run.bytes => {}
                // Several calls would be needed, whose parts would begin anywhere in a page.
                Ok(_) => break,
                Err(_) => return 0,
            }
            match self.pipe.send(to.as_fd(), run.bytes as u64, send_stats) {
                Ok(sent) if sent == run.bytes as u64 => return run.went(to, send_stats),
                Ok(_) => {
                    sys::discard_corked(to.as_fd(), send_stats);
                    return 0;
                }
                Err(errno) => match to.judge("splice", errno, run.packets(), send_stats) {
                    RefusalAction::Retry => {}
                    RefusalAction::Stop(_) => return 0,
                },
            }
        }
        let mut read = 0;
        while read < run.bytes {
            match self.pipe.read(&mut self.room[read..run.bytes], send_stats) {
                Ok(bytes) if bytes > 0 => read += bytes as usize,
                Err(errno) if errno.code() == libc::EINTR => {}
                _ => return 0,
            }
        }
        send(&self.room[..run.bytes], run, to, send_stats)
    }

    /// Receives the datagrams of one call from a port and sends them; returns the number of
    /// datagrams or runs.
    fn copy(
        &mut self,
        (from, key): (BorrowedFd<'_>, u32),
        route: &mut Route,
        receive_stats: &mut ReceiveStats,
        calls: &mut RelayCallbacks<'_>,
    ) -> Result<usize, Errno> {
        let count = sys::receive_many(from, &mut self.slots, receive_stats)?;
        let mut admitted = 0_u64;
        for slot in 0..count {
            admitted |= u64::from(self.admits(slot, key, calls)) << slot;
        }
        let is_admitted = |slot: usize| admitted >> slot & 1 != 0;
        let mut first = 0;
        while first < count {
            if !is_admitted(first) {
                first += 1;
                continue;
            }
            let mut run = self.in_slot(first);
            let mut end = first + 1;
            while let Some(joined) =
                (end < count && is_admitted(end)).then(|| run.with(self.in_slot(end))).flatten()
            {
                (run, end) = (joined, end + 1);
            }
            let Self { slots, scratch, send_stats, .. } = self;
            let mut left = send_slots((slots, first..end), run, scratch, &mut route.to, send_stats);
            for slot in first..end {
                let (bytes, meta) = (slots.datagram(slot), slots.meta(slot));
                let message = ReceivedMessage { bytes, source: slots.source(slot), meta };
                let Some(received) = message.received(key, receive_stats) else { continue };
                let run = JoinedRun { bytes: bytes.len(), segment_bytes: meta.segment_bytes };
                let sent = run.packets().min(left);
                left -= sent;
                let head = &bytes[..run.each().min(HEAD_BYTES_MAX)];
                route.tell((key, received.source), (run, sent), head, meta, calls.note);
            }
            first = end;
        }
        Ok(count)
    }

    /// True when a slot's datagram is to be sent. A datagram that was cut or has no sender is
    /// not sent, and counted later.
    fn admits(&mut self, slot: usize, key: u32, calls: &mut RelayCallbacks<'_>) -> bool {
        if std::mem::take(&mut self.is_admitted) {
            return true;
        }
        let (meta, Some(source)) = (self.slots.meta(slot), self.slots.source(slot)) else {
            return true;
        };
        if meta.is_cut {
            return true;
        }
        let (run, bytes) = (self.in_slot(slot), self.slots.datagram(slot));
        let head = &bytes[..run.each().min(HEAD_BYTES_MAX)];
        (calls.admit)(&relayed((key, source), (run, 0), head, meta))
    }

    /// Returns a slot's datagram or run; empty where it did not fit.
    fn in_slot(&self, slot: usize) -> JoinedRun {
        let meta = self.slots.meta(slot);
        if meta.is_cut {
            return JoinedRun::default();
        }
        JoinedRun { bytes: self.slots.datagram(slot).len(), segment_bytes: meta.segment_bytes }
    }
}

impl Route {
    /// Reports a run and the number of its datagrams that were sent.
    fn tell(
        &mut self,
        (key, source): (u32, SocketAddr),
        (run, sent): (JoinedRun, u32),
        head: &[u8],
        meta: RecvMeta,
        note: &mut dyn FnMut(&RelayedRun<'_>),
    ) {
        let packets = run.packets();
        self.lost += u64::from(packets - sent);
        note(&relayed((key, source), (run, sent), head, meta));
    }
}

/// Returns the description of a run for the callbacks; `sent` of its datagrams were sent.
fn relayed(
    (key, source): (u32, SocketAddr),
    (run, sent): (JoinedRun, u32),
    head: &[u8],
    meta: RecvMeta,
) -> RelayedRun<'_> {
    RelayedRun {
        key,
        source,
        head,
        bytes: run.bytes as u32,
        segment_bytes: run.segment_bytes,
        packets: run.packets(),
        sent,
        time: meta.stamp.and_then(|stamp| UNIX_EPOCH.checked_add(stamp)),
    }
}

/// A datagram, or several that leave together: all of one size but the last, which may be shorter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct JoinedRun {
    bytes: usize,
    /// Bytes of each datagram; 0 for a single datagram.
    segment_bytes: u16,
}

impl JoinedRun {
    fn packets(self) -> u32 {
        match self.segment_bytes {
            0 => 1,
            each => self.bytes.div_ceil(each.into()).max(1) as u32,
        }
    }

    /// Returns the number of bytes of the first datagram.
    fn each(self) -> usize {
        match self.segment_bytes {
            0 => self.bytes,
            each => self.bytes.min(each.into()),
        }
    }

    /// Joins `next` to this run, where the kernel segments the result into the same datagrams.
    fn with(self, next: Self) -> Option<Self> {
        let each = match self.segment_bytes {
            0 => self.bytes,
            each => each.into(),
        };
        let is_full = each > 0 && self.bytes.is_multiple_of(each);
        let is_alike = match next.segment_bytes {
            0 => (1..=each).contains(&next.bytes),
            of_next => each == usize::from(of_next),
        };
        let bytes = self.bytes + next.bytes;
        let joined = Self { bytes, segment_bytes: u16::try_from(each).ok()? };
        let fits =
            each <= ALONE_BYTES_MAX && bytes <= RUN_BYTES_MAX && joined.packets() <= SEGMENTS_MAX;
        (is_full && is_alike && fits).then_some(joined)
    }

    /// Records that the socket accepted the whole run; returns the number of datagrams.
    fn went(self, to: &mut Destination, send_stats: &mut SendStats) -> u32 {
        to.accepted();
        send_stats.packets += u64::from(self.packets());
        send_stats.bytes += self.bytes as u64;
        self.packets()
    }
}

/// Prepares a socket for a run; returns the number of bytes that a call may carry.
fn ready(
    run: JoinedRun,
    to: &mut Destination,
    send_stats: &mut SendStats,
) -> Result<usize, SendError> {
    match run.segment_bytes {
        0 => to.ready_one(run.bytes as u32, send_stats).map(|()| run.bytes),
        each => {
            let packets = to.ready(each.into(), true, send_stats)?;
            Ok(usize::from(each) * packets as usize)
        }
    }
}

/// Sends the content of some slots, together `run`, by one call if possible; returns the number of
/// datagrams sent.
fn send_slots(
    (slots, range): (&Slots, Range<usize>),
    run: JoinedRun,
    scratch: &mut Scratch,
    to: &mut Destination,
    send_stats: &mut SendStats,
) -> u32 {
    while range.len() > 1 && ready(run, to, send_stats).is_ok_and(|bytes| bytes >= run.bytes) {
        let mut gather = scratch.gather();
        range.clone().for_each(|slot| {
            let fits = gather.bytes(slots.datagram(slot));
            debug_assert!(fits, "a call takes more ranges than there are slots");
        });
        match gather.send(to.as_fd(), send_stats) {
            Ok(_) => return run.went(to, send_stats),
            Err(errno) => match to.judge("writev", errno, run.packets(), send_stats) {
                RefusalAction::Retry => {}
                RefusalAction::Stop(_) => return 0,
            },
        }
    }
    let mut sent = 0;
    for slot in range {
        let (bytes, meta) = (slots.datagram(slot), slots.meta(slot));
        // A cut datagram is not sent in part.
        if meta.is_cut {
            continue;
        }
        let run = JoinedRun { bytes: bytes.len(), segment_bytes: meta.segment_bytes };
        let went = send(bytes, run, to, send_stats);
        sent += went;
        if went < run.packets() {
            break;
        }
    }
    sent
}

/// Sends a run from memory, in as many calls as needed; returns the number of datagrams sent.
fn send(bytes: &[u8], run: JoinedRun, to: &mut Destination, send_stats: &mut SendStats) -> u32 {
    let (mut at, mut sent) = (0, 0);
    // An empty datagram counts as one.
    while sent < run.packets() {
        let Ok(most) = ready(run, to, send_stats) else { return sent };
        let part = &bytes[at..bytes.len().min(at + most)];
        let of_part = JoinedRun { bytes: part.len(), ..run };
        match sys::send(to.as_fd(), part, send_stats) {
            Ok(_) => (at, sent) = (at + part.len(), sent + of_part.went(to, send_stats)),
            Err(errno) => match to.judge("send", errno, of_part.packets(), send_stats) {
                RefusalAction::Retry => {}
                RefusalAction::Stop(_) => return sent,
            },
        }
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_joined_where_they_come_apart_the_same() {
        let run = |bytes, segment_bytes| JoinedRun { bytes, segment_bytes };
        let joined =
            |one: JoinedRun, next| one.with(next).map(|run| (run.bytes, run.segment_bytes));
        assert_eq!(joined(run(100, 0), run(100, 0)), Some((200, 100)));
        assert_eq!(joined(run(100, 0), run(99, 0)), Some((199, 100)));
        assert_eq!(joined(run(100, 0), run(101, 0)), None);
        assert_eq!(joined(run(199, 100), run(100, 0)), None, "behind a short one");
        assert_eq!(joined(run(300, 100), run(250, 100)), Some((550, 100)));
        assert_eq!(joined(run(300, 100), run(1, 0)), Some((301, 100)));
        assert_eq!(joined(run(300, 100), run(300, 99)), None);
        assert_eq!(joined(run(100, 0), run(0, 0)), None, "an empty one is alone");
        assert_eq!(joined(run(0, 0), run(100, 0)), None);
        assert_eq!(joined(run(ALONE_BYTES_MAX + 1, 0), run(9, 0)), None);
        assert_eq!(joined(run(64, 1), run(1, 0)), None, "as many as a call may carry");
        assert_eq!(joined(run(1400 * 46, 1400), run(1107, 0)), Some((65_507, 1400)));
        assert_eq!(joined(run(1400 * 46, 1400), run(1108, 0)), None);
    }
}
