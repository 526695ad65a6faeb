// SPDX-License-Identifier: MIT OR Apache-2.0
//! Multishot receives, all ports in one ring.
//!
//! A port is armed once. The kernel puts its datagrams into buffers that it shares with this
//! process ([`Multishot`]) whenever this thread is in the kernel; the one call that waits for all
//! ports also moves the datagrams. Costs a copy a byte, and no call besides the wait except for
//! ports that are added, removed, or had an error.
//!
//! Joined runs are received as such (`UDP_GRO`), at no cost where there are none.
//!
//! A receive ends when all buffers are full or its port has had an error; the next wait arms it
//! again, without a further call. A path that moves to another thread is armed again there, because
//! the kernel works for the thread that armed it.
//!
//! Sources: `io_uring(7)`, `io_uring_prep_recvmsg_multishot(3)`, `io_uring_setup_buf_ring(3)`.
//!
//! Does not limit a port's turn.

use std::net::SocketAddr;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::error::{Errno, Error};
use crate::receive::sockets::{
    DATAGRAM_BYTES_MAX, PortSocket, Ports, ReceivedMessage, SocketOptions, emptied, is_passing,
};
use crate::receive::{
    FULL_CALL_PACKETS, Port, ReceivePath, ReceiveSpec, ReceiveStats, ReceivedRun,
};
use crate::spec::{SystemCalls, Via};
use crate::sys::{Completion, Multishot};

pub(crate) static SPEC: ReceiveSpec = ReceiveSpec {
    name: "uring_multishot",
    summary: "multishot receives, joined runs as one, all ports in one io_uring",
    copies_per_byte: 1,
    system_calls: SystemCalls::PerBatch(0),
    via: Via::Socket,
    sources: &["io_uring(7)", "io_uring_prep_recvmsg_multishot(3)"],
    probe: |host| host.needs_io_uring_receives(),
    open: || Ok(Box::new(UringMultishot::new()?)),
};

/// Number of buffers: 4 MiB of address space, touched as far as they are filled. The kernel cycles
/// through all of them: with 256, lone datagrams cost half as much again, and runs a third more.
const BUFFERS: u16 = 64;

/// Runs that are handed over together.
const BURST: usize = 64;

#[derive(Debug)]
struct UringMultishot {
    // The ring is declared before the ports, so that operations in the kernel end before the
    // sockets are closed.
    ring: Multishot,
    ports: Ports,
    /// Number of ports that each place has had, used as the mark of its receive.
    rounds: Vec<u32>,
    /// Places that the next wait arms.
    unarmed: Vec<u32>,
    /// The thread that armed the others.
    thread: Option<ThreadId>,
    completions: Vec<Completion>,
    burst: Vec<ReceivedRun<'static>>,
    stats: ReceiveStats,
}

impl UringMultishot {
    fn new() -> Result<Self, Error> {
        let ring = Multishot::new(BUFFERS, DATAGRAM_BYTES_MAX).map_err(Error::ring)?;
        Ok(Self {
            ring,
            ports: Ports::default(),
            rounds: Vec::new(),
            unarmed: Vec::new(),
            thread: None,
            completions: Vec::with_capacity(BURST),
            burst: Vec::with_capacity(BURST),
            stats: ReceiveStats::default(),
        })
    }

    fn refused(call: &'static str, errno: Errno) -> Error {
        Error::Host { call, object: "a path's ports".into(), errno }
    }

    /// Arms the unarmed places by the wait that follows, or before it where they are too many for
    /// one call.
    fn arm(&mut self) -> Result<(), Error> {
        let thread = thread::current().id();
        if self.thread.replace(thread).is_some_and(|before| before != thread) {
            self.ring.disarm_all();
        }
        while let Some(place) = self.unarmed.last().copied() {
            let mark = mark(&self.rounds, place);
            let Some(bound) = self.ports.at(place) else {
                self.unarmed.pop();
                continue;
            };
            if self.ring.arm(bound.as_fd(), mark) {
                self.unarmed.pop();
                continue;
            }
            let submitted = self.ring.submit(&mut self.stats);
            submitted.map_err(|errno| Self::refused("io_uring_enter", errno))?;
            if self.ring.is_pending() {
                // The kernel lacks memory for them now; a later call repeats the attempt.
                break;
            }
        }
        Ok(())
    }

    /// Hands over the datagrams of the available completions, and records ended receives.
    fn hand_over(&mut self, each: &mut dyn FnMut(&[ReceivedRun<'_>])) -> Result<usize, Error> {
        let mut list = emptied(std::mem::take(&mut self.burst));
        let (mut packets, mut refusal) = (0, None);
        for completion in &self.completions {
            let place = completion.mark as u32;
            if mark(&self.rounds, place) != completion.mark {
                continue; // The completion belongs to a port that has been removed.
            }
            let Some(bound) = self.ports.at(place) else { continue };
            if !completion.goes_on {
                self.unarmed.push(place);
            }
            match completion.filled {
                Ok(buffer) => {
                    let (bytes, source, meta) = self.ring.datagram(buffer);
                    let message = ReceivedMessage { bytes, source, meta };
                    if let Some(run) = message.received(bound.key, &mut self.stats) {
                        packets += run.count();
                        list.push(run);
                    }
                }
                Err(errno) if is_passing(errno) || errno.code() == libc::ECANCELED => {}
                Err(errno) => refusal = Some(bound.refused("recvmsg", errno)),
            }
        }
        if !list.is_empty() {
            each(&list);
        }
        self.burst = emptied(list);
        self.ring.give_back(self.completions.drain(..).filter_map(|one| one.filled.ok()));
        refusal.map_or(Ok(packets), Err)
    }
}

/// Returns the mark of the receive of a place's present port.
fn mark(rounds: &[u32], place: u32) -> u64 {
    u64::from(rounds[place as usize]) << 32 | u64::from(place)
}

impl UringMultishot {
    /// Hands over the waiting datagrams; true when there may be more: receives have ended, or every
    /// buffer was filled.
    fn take_in(
        &mut self,
        each: &mut dyn FnMut(&[ReceivedRun<'_>]),
    ) -> Result<(usize, bool), Error> {
        let (mut packets, mut refusal, mut filled) = (0, None, 0);
        // Buffers that are returned here may be filled again at any call; only those filled so far
        // are handed over.
        while filled < usize::from(BUFFERS) {
            self.ring.take(BURST, &mut self.completions);
            if self.completions.is_empty() {
                break;
            }
            filled += self.completions.iter().filter(|one| one.filled.is_ok()).count();
            match self.hand_over(each) {
                Ok(count) => packets += count,
                Err(error) => refusal = Some(error),
            }
        }
        let may_be_more = !self.unarmed.is_empty() || filled >= usize::from(BUFFERS);
        refusal.map_or(Ok((packets, may_be_more)), Err)
    }
}

impl ReceivePath for UringMultishot {
    fn add(&mut self, port: &Port, key: u32) -> Result<(), Error> {
        self.ports.check(port, key)?;
        let bound =
            PortSocket::new(port, key, SocketOptions { time: true, joined: true, discard: false })?;
        let place = self.ports.insert(bound);
        if self.rounds.len() <= place as usize {
            self.rounds.push(0);
        }
        self.unarmed.push(place);
        Ok(())
    }

    fn remove(&mut self, key: u32) {
        let Some((place, bound)) = self.ports.remove(key) else { return };
        self.unarmed.retain(|unarmed| *unarmed != place);
        if self.ring.is_pending() {
            // No entry may refer to a descriptor whose number another file may get.
            let _ = self.ring.submit(&mut self.stats);
        }
        self.ring.disarm(mark(&self.rounds, place));
        let round = &mut self.rounds[place as usize];
        *round = round.wrapping_add(1);
        drop(bound);
    }

    fn address(&self, key: u32) -> Option<SocketAddr> {
        self.ports.of(key).map(PortSocket::address)
    }

    fn receive(
        &mut self,
        wait: Duration,
        each: &mut dyn FnMut(&[ReceivedRun<'_>]),
    ) -> Result<usize, Error> {
        let start = Instant::now();
        let (mut packets, mut is_second) = (0, false);
        loop {
            self.arm()?;
            let left = match packets {
                0 => wait.saturating_sub(start.elapsed()),
                _ => Duration::ZERO,
            };
            let waited = self.ring.wait(left, &mut self.stats);
            waited.map_err(|errno| Self::refused("io_uring_enter", errno))?;
            let (more, may_be_more) = self.take_in(each)?;
            packets += more;
            // Ended receives may have left datagrams behind: armed again, they return them, even to
            // a caller that does not wait.
            let is_vain = more == 0 && left.is_zero() && is_second;
            if !may_be_more || is_vain || packets >= FULL_CALL_PACKETS {
                break;
            }
            is_second = more == 0;
        }
        if packets == 0 && !wait.is_zero() {
            self.ports.ask_after_device()?;
        }
        Ok(packets)
    }

    fn pause_max(&self) -> Duration {
        self.ports.pause_max()
    }

    fn stats(&self) -> ReceiveStats {
        self.stats
    }

    fn dropped(&self, key: u32) -> u64 {
        self.ports.of(key).map_or(0, PortSocket::dropped)
    }
}
