// SPDX-License-Identifier: MIT OR Apache-2.0
//! Destination of a stream: a connected UDP socket, and the limits that its device and peer have
//! shown.
//!
//! The number of datagrams that one call may carry depends on kernel, route and device, and none of
//! them reports it beforehand. A device without checksum offload answers `EIO` (before Linux 6.11),
//! an IPsec route still does, and a segment larger than the MTU causes `EINVAL` or `EMSGSIZE`. The
//! number of segments is therefore found by sending. It begins high and is lowered when a send is
//! refused for one of these reasons; the send is repeated at once, and the caller fetches the
//! [`SegmentLimitLowered`] and logs one line. At one segment `UDP_SEGMENT` is switched off and
//! every packet has its own call.
//!
//! A peer without a socket is reported by ICMP, which can be forged. The kernel reports it on the
//! *next* send, which then sends nothing. That send is repeated at once, so no packet is lost to a
//! report, and no report ends or slows a stream by itself: the destination keeps the quote of each
//! report ([`Destination::take_reports`]), and the caller compares it with the packets it sent. A
//! socket without ICMP makes no call for this. A flood of reports that refuses [`REPEATS_MAX`]
//! sends in a row leaves the batch for a later send. An error that this host may cause, too, lasts
//! and ends the stream when it has left [`LEFT_MAX`] batches in a row.
//!
//! The MTU is the device's, not the path's, which a stranger can lower by one forged packet
//! ([`crate::sys::ignore_path_mtu`]).
//!
//! Sources: `udp(7)`; Linux 6.18 `net/ipv4/udp.c` (`udp_send_skb`) and commit
//! 10154dbded6d; RFC 5927 (ICMP attacks); quinn-udp for segments as a number that may fall.
//!
//! Does not send. Costs a session one socket and about 100 bytes, and 200 more where frames are
//! made for it.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::batch::DATAGRAM_BYTES_MAX;
use crate::departure::DepartureQueue;
use crate::error::{Errno, Error, SendError, Unavailable, Unframed};
use crate::frame::Framing;
use crate::report::{PathFault, PathReport};
use crate::send_stats::SendStats;
use crate::sys::{self, ErrorQueueEntry};
use crate::zerocopy::Unreported;

/// Largest number of segments a call may carry, by `udp(7)`. Later kernels accept more, but at any
/// usual packet size the limit of 64 KiB is reached before.
pub const SEGMENTS_MAX: u32 = 64;

/// Sends refused in a row, with or without a report, after which a batch is left for a later send.
/// A report must hit each of them within a microsecond or two, so a flood rarely reaches this but
/// on a busy machine, where the sender stands still between them.
const REPEATS_MAX: u32 = 8;

/// Batches left in a row after which an error is this host's own: a flood would have had to hit
/// each of their sends.
const LEFT_MAX: u32 = 16;

/// Calls of paths that use no socket, so that ICMP causes none of their errors.
const WITHOUT_SOCKET: [&str; 5] = ["mmap", "pipe2", "pread", "preadv", "statx"];

/// Reports kept until the caller fetches them. Those of one refused send are a dozen at most.
const REPORTS_MAX: usize = 32;

/// Datagrams that are dropped at a time to make room for reports.
const DATAGRAMS_DROPPED_MAX: usize = 64;

/// A destination's number of segments has been lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentLimitLowered {
    /// Segments a call could carry before.
    pub from: u32,
    /// Segments a call carries from now on.
    pub to: u32,
    /// The kernel's answer; `None` when it accepted a run in pieces instead of as one.
    pub errno: Option<Errno>,
}

/// The action after a refused call.
#[derive(Debug)]
pub(crate) enum RefusalAction {
    /// Repeat the call; it may have to carry less.
    Retry,
    /// Stop with this error.
    Stop(SendError),
}

/// A connected, non-blocking UDP socket and its limit of segments.
#[derive(Debug)]
pub struct Destination {
    socket: UdpSocket,
    name: Arc<str>,
    segments: u32,
    /// Value of `UDP_SEGMENT` on the socket; 0 is off.
    segment_bytes: u32,
    lowered: Option<SegmentLimitLowered>,
    peer: IpAddr,
    /// Sends refused since one succeeded, or since a batch was left for later.
    refused_in_row: u32,
    /// Batches left for later since a send succeeded.
    left_in_row: u32,
    /// True when the kernel queues reports of the path for this socket.
    hears_reports: bool,
    /// Reports of the path that the caller has not fetched yet.
    reports: Vec<PathReport>,
    /// True when packets that exceed the device's MTU leave in fragments.
    cuts_at_device: bool,
    /// True after a zero-copy send; reports of such sends are in the same queue.
    is_zerocopy: bool,
    /// Unreported zero-copy sends, while no path holds the record.
    unreported: Option<Box<Unreported>>,
    /// Headers of frames to it, kept after a path by device has queried the kernel.
    framing: Option<Box<Framing>>,
    /// True when sends may carry departure times.
    has_departures: bool,
    /// Datagrams that the device's queue dropped because of their departure times.
    missed: u64,
}

impl Destination {
    /// Makes a destination of a connected socket, which becomes non-blocking; `name` is its name in
    /// log lines.
    pub fn new(socket: UdpSocket, name: impl Into<Arc<str>>) -> Result<Self, Error> {
        let name = name.into();
        let host = |call| {
            let object = name.clone();
            move |error: std::io::Error| Error::Host { call, object, errno: error.into() }
        };
        let peer = socket.peer_addr().map_err(host("getpeername"))?.ip();
        socket.set_nonblocking(true).map_err(host("ioctl FIONBIO"))?;
        let ignored = sys::ignore_path_mtu(socket.as_fd(), peer, &mut SendStats::default());
        ignored.map_err(|errno| Error::Host {
            call: "setsockopt IP_MTU_DISCOVER",
            object: name.clone(),
            errno,
        })?;
        Ok(Self {
            socket,
            name,
            segments: SEGMENTS_MAX,
            segment_bytes: 0,
            lowered: None,
            peer,
            refused_in_row: 0,
            left_in_row: 0,
            hears_reports: false,
            reports: Vec::new(),
            cuts_at_device: sys::is_ipv4(peer),
            is_zerocopy: false,
            unreported: None,
            framing: None,
            has_departures: false,
            missed: 0,
        })
    }

    /// Returns the largest number of packets that one call carries to it.
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// Lowers that number to `segments` (at least 1) on request, without a [`SegmentLimitLowered`].
    /// It cannot be raised: the kernel would refuse again.
    pub fn limit_segments(&mut self, segments: u32) {
        self.segments = segments.clamp(1, self.segments);
    }

    /// Returns the lowering since the last call, once; several in a row count as one.
    pub fn take_segment_limit_lowered(&mut self) -> Option<SegmentLimitLowered> {
        self.lowered.take()
    }

    /// Returns reports of the path to the peer since the last call, including forged ones. Costs
    /// nothing where there are none.
    pub fn take_reports(&mut self) -> Vec<PathReport> {
        std::mem::take(&mut self.reports)
    }

    /// True when routers fragment packets that are too large; the path's MTU is then unimportant.
    pub fn is_cut_on_the_way(&self) -> bool {
        sys::is_ipv4(self.peer)
    }

    /// Returns its name in log lines.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the socket, to query its address or set its buffers.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Lets sends to it carry departure times ([`crate::Batch::departing`]) of the clock of `queue`
    /// ([`DepartureQueue::of`]). Three calls. From here on a packet that the queue has no room for
    /// is a send to be repeated, not a loss.
    ///
    /// # Errors
    /// This process may not use the queue's clock.
    pub fn use_departures(&mut self, queue: &DepartureQueue) -> Result<(), Unavailable> {
        let mut stats = SendStats::default();
        let mode = (queue.is_deadline, queue.drops_late());
        let set = sys::set_departure_clock(self.as_fd(), queue.clock, mode, &mut stats);
        set.map_err(|errno| Unavailable {
            need: format!("SO_TXTIME with the clock of {} (CAP_NET_ADMIN)", queue.discipline),
            found: format!("clock {}: {errno}", queue.clock),
        })?;
        self.has_departures = true;
        self.hears_reports = sys::queue_reports(self.as_fd(), self.peer, &mut stats).is_ok();
        Ok(())
    }

    pub(crate) fn has_departures(&self) -> bool {
        self.has_departures
    }

    /// Returns the number of datagrams, since the last call, that the queue has dropped because
    /// they were late for their departure. An `etf` reports them and `fq` never drops one for that
    /// reason; costs a call for each report and one more.
    pub fn take_missed_departures(&mut self) -> u64 {
        if self.has_departures && !self.is_zerocopy {
            self.read_reports(&mut SendStats::default());
        }
        std::mem::take(&mut self.missed)
    }

    /// Reads all entries of the error queue.
    fn read_reports(&mut self, stats: &mut SendStats) {
        while let Ok(queued) = sys::next_error(self.as_fd(), stats) {
            match queued {
                ErrorQueueEntry::Path(report) => self.keep(report),
                ErrorQueueEntry::Departure(_) => self.missed += 1,
                ErrorQueueEntry::Zerocopy(_) | ErrorQueueEntry::Local => {}
            }
        }
    }

    /// Removes and returns the headers of frames; [`Destination::keep_framing`] restores them while
    /// they are valid.
    pub(crate) fn take_framing(&mut self) -> Option<Box<Framing>> {
        self.framing.take()
    }

    pub(crate) fn keep_framing(&mut self, framing: Box<Framing>) {
        self.framing = Some(framing);
    }

    pub(crate) fn unframed(&self, reason: Unframed) -> SendError {
        SendError::Unframed { object: self.name.clone(), reason }
    }

    /// Returns the largest number of packets of `segment_bytes` in a run.
    pub(crate) fn fit(&self, segment_bytes: u32) -> u32 {
        self.segments.min(DATAGRAM_BYTES_MAX / segment_bytes)
    }

    /// Prepares the socket for runs of `segment_bytes` (`together`) or single packets; returns the
    /// number of packets that a call may carry.
    pub(crate) fn ready(
        &mut self,
        segment_bytes: u32,
        together: bool,
        stats: &mut SendStats,
    ) -> Result<u32, SendError> {
        loop {
            let fit = self.fit(segment_bytes);
            let (packets, wanted) = if together && fit > 1 { (fit, segment_bytes) } else { (1, 0) };
            if self.segment_bytes == wanted {
                return Ok(packets);
            }
            match sys::set_udp_segment(self.as_fd(), wanted, stats) {
                Ok(()) => self.segment_bytes = wanted,
                // A kernel before 4.18, or one built without it.
                Err(errno) if wanted > 0 => self.lower(1, Some(errno)),
                Err(errno) => return Err(self.host("setsockopt UDP_SEGMENT=0", errno)),
            }
        }
    }

    /// Prepares the socket for zero-copy sends, by a call the first time; returns the record of
    /// unreported sends until [`Destination::end_zerocopy`]. Other sends are not affected.
    pub(crate) fn begin_zerocopy(
        &mut self,
        stats: &mut SendStats,
    ) -> Result<Box<Unreported>, SendError> {
        if let Some(unreported) = self.unreported.take() {
            return Ok(unreported);
        }
        let set = sys::set_zerocopy(self.as_fd(), stats);
        set.map_err(|errno| self.host("setsockopt SO_ZEROCOPY=1", errno))?;
        self.is_zerocopy = true;
        Ok(Box::default())
    }

    pub(crate) fn end_zerocopy(&mut self, mut unreported: Box<Unreported>) {
        unreported.take_path_reports().into_iter().for_each(|report| self.keep(report));
        self.unreported = Some(unreported);
    }

    /// Prepares the socket for a single datagram of `bytes` bytes: a segment size that it does not
    /// exceed may stay set, unless runs are refused.
    pub(crate) fn ready_one(&mut self, bytes: u32, stats: &mut SendStats) -> Result<(), SendError> {
        if bytes <= self.segment_bytes && self.segments > 1 {
            return Ok(());
        }
        self.ready(bytes.max(1), false, stats).map(|_| ())
    }

    /// Records a call that succeeded.
    pub(crate) fn accepted(&mut self) {
        self.refused_in_row = 0;
        self.left_in_row = 0;
    }

    /// Interprets the refusal of a call with `packets` packets.
    pub(crate) fn judge(
        &mut self,
        call: &'static str,
        errno: Errno,
        packets: u32,
        stats: &mut SendStats,
    ) -> RefusalAction {
        match errno.code() {
            libc::EINTR => RefusalAction::Retry,
            libc::EAGAIN | libc::ENOBUFS => {
                stats.refused += 1;
                RefusalAction::Stop(SendError::Blocked)
            }
            // A device that refuses by EIO refuses any number; EINVAL may depend on the length.
            libc::EIO if self.segment_bytes > 0 => self.shorter(1, errno),
            libc::EINVAL if self.segment_bytes > 0 => self.shorter(packets / 2, errno),
            libc::EMSGSIZE => self.judge_length(call, errno, packets, stats),
            libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENETDOWN
            | libc::ENONET => {
                // A lost route may return.
                self.judge_report(errno, SendError::Blocked, stats)
            }
            // ICMP may cause these errors, and so may this host.
            libc::ENOPROTOOPT | libc::EOPNOTSUPP | libc::EPROTO | libc::EACCES
                if !WITHOUT_SOCKET.contains(&call) =>
            {
                self.judge_report(errno, self.host(call, errno), stats)
            }
            libc::EPIPE
            | libc::ECONNRESET
            | libc::ECONNABORTED
            | libc::ENOTCONN
            | libc::ESHUTDOWN
            | libc::ETIMEDOUT => RefusalAction::Stop(SendError::Gone { errno }),
            _ => RefusalAction::Stop(self.host(call, errno)),
        }
    }

    /// Repeats the send with runs of `to` packets.
    fn shorter(&mut self, to: u32, errno: Errno) -> RefusalAction {
        self.lower(to, Some(errno));
        RefusalAction::Retry
    }

    /// Interprets a refusal that ICMP may have caused: repeats the send, leaves the batch after
    /// [`REPEATS_MAX`] refusals in a row, and returns `lasting` after [`LEFT_MAX`] such batches.
    fn judge_report(
        &mut self,
        errno: Errno,
        lasting: SendError,
        stats: &mut SendStats,
    ) -> RefusalAction {
        self.hear(errno, stats);
        if self.refused_in_row < REPEATS_MAX {
            return RefusalAction::Retry;
        }
        self.refused_in_row = 0;
        self.left_in_row += 1;
        if self.left_in_row >= LEFT_MAX && lasting != SendError::Blocked {
            return RefusalAction::Stop(lasting);
        }
        stats.refused += 1;
        RefusalAction::Stop(SendError::Blocked)
    }

    /// Interprets `EMSGSIZE`: ICMP causes it once, a packet above the device's MTU each time.
    fn judge_length(
        &mut self,
        call: &'static str,
        errno: Errno,
        packets: u32,
        stats: &mut SendStats,
    ) -> RefusalAction {
        if self.hear(errno, stats) || self.refused_in_row == 1 {
            return RefusalAction::Retry;
        }
        if self.segment_bytes > 0 {
            return self.shorter(packets / 2, errno);
        }
        if !self.cuts_at_device {
            self.cuts_at_device = true;
            if sys::cut_at_device(self.as_fd(), stats).is_ok() {
                return RefusalAction::Retry;
            }
        }
        RefusalAction::Stop(self.host(call, errno))
    }

    /// Interprets a run of `packets` that the kernel accepted in pieces, which were discarded:
    /// shorter runs are accepted in one piece. A single packet is left for a later send.
    pub(crate) fn judge_in_pieces(&mut self, packets: u32, stats: &mut SendStats) -> RefusalAction {
        if packets > 1 {
            self.lower(packets / 2, None);
            return RefusalAction::Retry;
        }
        stats.refused += 1;
        RefusalAction::Stop(SendError::Blocked)
    }

    /// Reads all waiting reports after a refused send; true if there was one. The first refusal
    /// enables reports, so none is there yet.
    fn hear(&mut self, errno: Errno, stats: &mut SendStats) -> bool {
        self.refused_in_row += 1;
        let before = self.reports.len();
        // With IPv4, routers fragment, so a report about the length does not concern our packets.
        if !self.hears_reports && (errno.code() != libc::EMSGSIZE || !self.is_cut_on_the_way()) {
            self.hears_reports = true;
            // Without them reports cannot be verified; the send is repeated nevertheless.
            let _ = sys::queue_reports(self.as_fd(), self.peer, stats);
        } else if let Some(mut unreported) = self.unreported.take() {
            unreported.reap_all(self.as_fd(), stats);
            self.end_zerocopy(unreported);
        } else if self.hears_reports && !self.is_zerocopy {
            self.read_reports(stats);
        }
        if self.reports.len() > before {
            return true;
        }
        // The report arrived before the queue was enabled, or found no room.
        if errno.code() != libc::EMSGSIZE {
            self.keep(PathReport::new(PathFault::Transient, &[]));
        }
        if self.hears_reports {
            sys::drop_datagrams(self.as_fd(), DATAGRAMS_DROPPED_MAX, stats);
        }
        false
    }

    fn keep(&mut self, report: PathReport) {
        if self.reports.len() < REPORTS_MAX {
            self.reports.push(report);
        }
    }

    fn lower(&mut self, to: u32, errno: Option<Errno>) {
        let to = to.clamp(1, self.segments);
        let from = self.lowered.map_or(self.segments, |earlier| earlier.from);
        self.segments = to;
        self.lowered = Some(SegmentLimitLowered { from, to, errno });
    }

    pub(crate) fn host(&self, call: &'static str, errno: Errno) -> SendError {
        SendError::Host { call, object: self.name.clone(), errno }
    }
}

impl AsFd for Destination {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests;
