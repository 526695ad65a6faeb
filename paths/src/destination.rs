// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a stream goes: a connected UDP socket, and what its device and peer have shown they bear.
//!
//! How many datagrams one call may carry depends on kernel, route and device, and none of them says
//! so beforehand: a device without checksum offload answers `EIO` (before Linux 6.11) and an IPsec
//! route still does, a segment larger than the MTU gives `EINVAL` or `EMSGSIZE`. So the number of
//! segments is found out by sending. It begins high, falls when a send is refused for one of these
//! reasons, and the send is made again at once; the caller takes the [`Fall`] and logs one line. At
//! one segment `UDP_SEGMENT` is switched off and every packet has its own call.
//!
//! A peer without a socket is told by ICMP, and the kernel reports it on the *next* send, which
//! then sends nothing. That send is made again at once, so no packet is lost to the report. The
//! peer is taken for gone when the repetition is refused as well, or at the fourth such report
//! unless 1,000 batches in a row went without one: on loopback every send is followed by a report,
//! a remote Linux peer sends one a second, and a client that opens its socket late causes one or
//! two.
//!
//! Sources: `udp(7)`; Linux 6.18 `net/ipv4/udp.c` (`udp_send_skb`) and commit
//! 10154dbded6d, `icmp_ratelimit` (ip-sysctl); quinn-udp for segments as a number that may fall.
//!
//! What it does not do: send. It costs a session one socket and about 100 bytes, and 200 more where
//! frames are made for it.

use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::batch::DATAGRAM_BYTES_MAX;
use crate::error::{Errno, Error, SendError, Unframed};
use crate::frame::Framing;
use crate::sys;
use crate::tally::Tally;
use crate::zerocopy::Unreported;

/// The most segments a call may carry, as `udp(7)` has it. Later kernels take more, but 64 KiB are
/// full before at any usual packet size.
pub const SEGMENTS_MAX: u32 = 64;

/// Reports of a closed port after which the peer counts as gone.
const REFUSALS_MAX: u32 = 4;

/// Batches without a report after which the earlier ones are forgotten.
const FORGIVEN_AFTER_BATCHES: u32 = 1000;

/// A destination's number of segments has fallen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fall {
    /// Segments a call could carry before.
    pub from: u32,
    /// Segments a call carries from now on.
    pub to: u32,
    /// What the kernel answered; `None` when it took a run in pieces instead of as one.
    pub errno: Option<Errno>,
}

/// What to do after a refused call.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Make the call again; it may have to carry less.
    Repeat,
    /// Stop and say this.
    Stop(SendError),
}

/// A connected, non-blocking UDP socket and the number of segments it bears.
#[derive(Debug)]
pub struct Destination {
    socket: UdpSocket,
    name: Arc<str>,
    segments: u32,
    /// What `UDP_SEGMENT` is set to on the socket; 0 is off.
    segment_bytes: u32,
    fall: Option<Fall>,
    refusals: u32,
    /// Whether the call before was refused by the peer and none has succeeded since.
    refused_just_now: bool,
    batches_unrefused: u32,
    /// Zero-copy sends of this socket, once it has had one.
    unreported: Option<Box<Unreported>>,
    /// How frames to it begin, once a path that makes frames has asked.
    framing: Option<Box<Framing>>,
}

impl Destination {
    /// Takes a connected socket and makes it non-blocking; `name` is what log lines call it.
    pub fn new(socket: UdpSocket, name: impl Into<Arc<str>>) -> Result<Self, Error> {
        let name = name.into();
        let host = |call| {
            let object = name.clone();
            move |error: std::io::Error| Error::Host { call, object, errno: error.into() }
        };
        socket.peer_addr().map_err(host("getpeername"))?;
        socket.set_nonblocking(true).map_err(host("ioctl FIONBIO"))?;
        Ok(Self {
            socket,
            name,
            segments: SEGMENTS_MAX,
            segment_bytes: 0,
            fall: None,
            refusals: 0,
            refused_just_now: false,
            batches_unrefused: 0,
            unreported: None,
            framing: None,
        })
    }

    /// The most packets one call carries to it.
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// Lowers that number to `segments` (at least 1) by decision, which is no [`Fall`]. It cannot
    /// be raised: what was refused once would be refused again.
    pub fn limit_segments(&mut self, segments: u32) {
        self.segments = segments.clamp(1, self.segments);
    }

    /// The fall since this was last asked, once: several in a row are one.
    pub fn take_fall(&mut self) -> Option<Fall> {
        self.fall.take()
    }

    /// What log lines call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The socket, to ask its address or set its buffers.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Takes out how frames to it begin; given back by [`Destination::keep_framing`] while it
    /// holds.
    pub(crate) fn take_framing(&mut self) -> Option<Box<Framing>> {
        self.framing.take()
    }

    pub(crate) fn keep_framing(&mut self, framing: Box<Framing>) {
        self.framing = Some(framing);
    }

    pub(crate) fn unframed(&self, reason: Unframed) -> SendError {
        SendError::Unframed { object: self.name.clone(), reason }
    }

    /// A batch begins.
    pub(crate) fn begin(&mut self) {
        self.batches_unrefused = self.batches_unrefused.saturating_add(1);
        if self.batches_unrefused > FORGIVEN_AFTER_BATCHES {
            self.refusals = 0;
        }
    }

    /// How many packets of `segment_bytes` a run has at most.
    pub(crate) fn fit(&self, segment_bytes: u32) -> u32 {
        self.segments.min(DATAGRAM_BYTES_MAX / segment_bytes)
    }

    /// Readies the socket for runs of `segment_bytes` (`together`) or single packets; returns how
    /// many packets a call may carry.
    pub(crate) fn ready(
        &mut self,
        segment_bytes: u32,
        together: bool,
        tally: &mut Tally,
    ) -> Result<u32, SendError> {
        loop {
            let fit = self.fit(segment_bytes);
            let (packets, wanted) = if together && fit > 1 { (fit, segment_bytes) } else { (1, 0) };
            if self.segment_bytes == wanted {
                return Ok(packets);
            }
            match sys::set_udp_segment(self.as_fd(), wanted, tally) {
                Ok(()) => self.segment_bytes = wanted,
                // A kernel before 4.18, or one built without it.
                Err(errno) if wanted > 0 => self.lower(1, Some(errno)),
                Err(errno) => return Err(self.host("setsockopt UDP_SEGMENT=0", errno)),
            }
        }
    }

    /// Readies the socket for zero-copy sends, with a call the first time; hands out what is known
    /// of those that are out, until [`Destination::end_zerocopy`]. Other sends are not affected.
    pub(crate) fn begin_zerocopy(
        &mut self,
        tally: &mut Tally,
    ) -> Result<Box<Unreported>, SendError> {
        if let Some(unreported) = self.unreported.take() {
            return Ok(unreported);
        }
        let set = sys::set_zerocopy(self.as_fd(), tally);
        set.map_err(|errno| self.host("setsockopt SO_ZEROCOPY=1", errno))?;
        Ok(Box::default())
    }

    pub(crate) fn end_zerocopy(&mut self, unreported: Box<Unreported>) {
        self.unreported = Some(unreported);
    }

    /// Readies the socket for a datagram of `bytes` bytes that is to stay one: a segment size that
    /// it does not exceed may stay set, unless runs are refused.
    pub(crate) fn ready_one(&mut self, bytes: u32, tally: &mut Tally) -> Result<(), SendError> {
        if bytes <= self.segment_bytes && self.segments > 1 {
            return Ok(());
        }
        self.ready(bytes.max(1), false, tally).map(|_| ())
    }

    /// A call succeeded.
    pub(crate) fn accepted(&mut self) {
        self.refused_just_now = false;
    }

    /// A call with `packets` packets was refused.
    pub(crate) fn judge(
        &mut self,
        call: &'static str,
        errno: Errno,
        packets: u32,
        tally: &mut Tally,
    ) -> Verdict {
        match errno.code() {
            libc::EINTR => Verdict::Repeat,
            libc::EAGAIN | libc::ENOBUFS => {
                tally.refused += 1;
                Verdict::Stop(SendError::Blocked)
            }
            libc::EIO | libc::EINVAL | libc::EMSGSIZE if self.segment_bytes > 0 => {
                // A device that refuses by EIO refuses any number; the others may be a matter of
                // length.
                let to = if errno.code() == libc::EIO { 1 } else { packets / 2 };
                self.lower(to, Some(errno));
                Verdict::Repeat
            }
            libc::ECONNREFUSED => self.refused_by_peer(errno),
            libc::EPIPE
            | libc::ECONNRESET
            | libc::ECONNABORTED
            | libc::ENOTCONN
            | libc::ESHUTDOWN
            | libc::ETIMEDOUT
            | libc::EHOSTDOWN
            | libc::EHOSTUNREACH
            | libc::ENETDOWN
            | libc::ENETUNREACH => Verdict::Stop(SendError::Gone { errno }),
            _ => Verdict::Stop(self.host(call, errno)),
        }
    }

    /// The kernel took a run of `packets` in pieces and what it took is thrown away: shorter runs
    /// go in one piece. At one packet nothing is left but to wait.
    pub(crate) fn judge_in_pieces(&mut self, packets: u32, tally: &mut Tally) -> Verdict {
        if packets > 1 {
            self.lower(packets / 2, None);
            return Verdict::Repeat;
        }
        tally.refused += 1;
        Verdict::Stop(SendError::Blocked)
    }

    fn refused_by_peer(&mut self, errno: Errno) -> Verdict {
        self.batches_unrefused = 0;
        self.refusals += 1;
        if self.refused_just_now || self.refusals >= REFUSALS_MAX {
            return Verdict::Stop(SendError::Gone { errno });
        }
        self.refused_just_now = true;
        Verdict::Repeat
    }

    fn lower(&mut self, to: u32, errno: Option<Errno>) {
        let to = to.clamp(1, self.segments);
        let from = self.fall.map_or(self.segments, |earlier| earlier.from);
        self.segments = to;
        self.fall = Some(Fall { from, to, errno });
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
mod tests {
    use super::*;

    /// A destination whose runs are of 1,000-byte packets.
    fn destination() -> Destination {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect("127.0.0.1:9").unwrap();
        let mut destination = Destination::new(socket, "127.0.0.1:9").unwrap();
        assert_eq!(destination.ready(1000, true, &mut Tally::default()), Ok(SEGMENTS_MAX));
        destination
    }

    fn judge(to: &mut Destination, errno: i32, packets: u32) -> Option<SendError> {
        match to.judge("writev", Errno::new(errno), packets, &mut Tally::default()) {
            Verdict::Repeat => None,
            Verdict::Stop(error) => Some(error),
        }
    }

    #[test]
    fn an_unconnected_socket_is_refused() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let refusal = Destination::new(socket, "10.0.0.7:5004").unwrap_err();
        assert_eq!(refusal.to_string(), "getpeername on 10.0.0.7:5004: ENOTCONN");
    }

    #[test]
    fn a_device_without_checksums_makes_segments_fall_to_one_and_the_option_off() {
        let mut to = destination();
        let mut tally = Tally::default();
        assert_eq!(judge(&mut to, libc::EIO, 48), None);
        assert_eq!(to.segments(), 1);
        let fall = Fall { from: 64, to: 1, errno: Some(Errno::new(libc::EIO)) };
        assert_eq!((to.take_fall(), to.take_fall()), (Some(fall), None));
        assert_eq!(to.ready(1000, true, &mut tally), Ok(1));
        assert_eq!((to.segment_bytes, tally.calls), (0, 1));
        let error = judge(&mut to, libc::EIO, 1);
        assert_eq!(error, Some(to.host("writev", Errno::new(libc::EIO))));
        assert_eq!(to.take_fall(), None);
    }

    #[test]
    fn other_refusals_halve_what_was_tried_down_to_one() {
        let mut to = destination();
        let mut seen = Vec::new();
        for errno in [libc::EINVAL, libc::EMSGSIZE, libc::EINVAL, libc::EINVAL, libc::EINVAL] {
            let packets = to.ready(1000, true, &mut Tally::default()).unwrap().min(48);
            assert_eq!(judge(&mut to, errno, packets), None);
            seen.push(to.segments());
        }
        assert_eq!(seen, [24, 12, 6, 3, 1]);
        let fall = Fall { from: 64, to: 1, errno: Some(Errno::new(libc::EINVAL)) };
        assert_eq!(to.take_fall(), Some(fall));
    }

    #[test]
    fn a_run_taken_in_pieces_is_made_shorter_and_a_packet_waits() {
        let mut to = destination();
        let mut tally = Tally::default();
        assert!(matches!(to.judge_in_pieces(9, &mut tally), Verdict::Repeat));
        assert_eq!(to.take_fall(), Some(Fall { from: 64, to: 4, errno: None }));
        let verdict = to.judge_in_pieces(1, &mut tally);
        assert!(matches!(verdict, Verdict::Stop(SendError::Blocked)));
        assert_eq!((to.segments(), to.take_fall(), tally.refused), (4, None, 1));
    }

    #[test]
    fn refusals_by_the_peer_are_forgiven_when_rare() {
        let gone = Some(SendError::Gone { errno: Errno::new(libc::ECONNREFUSED) });
        let mut to = destination();
        assert_eq!(judge(&mut to, libc::ECONNREFUSED, 1), None);
        assert_eq!(judge(&mut to, libc::ECONNREFUSED, 1), gone, "twice at once");

        let mut to = destination();
        for refusal in 1..=REFUSALS_MAX {
            let verdict = judge(&mut to, libc::ECONNREFUSED, 1);
            assert_eq!(verdict, if refusal < REFUSALS_MAX { None } else { gone.clone() });
            to.accepted();
            (0..50).for_each(|_| to.begin());
        }

        let mut to = destination();
        for _ in 0..3 * REFUSALS_MAX {
            assert_eq!(judge(&mut to, libc::ECONNREFUSED, 1), None);
            to.accepted();
            (0..=FORGIVEN_AFTER_BATCHES).for_each(|_| to.begin());
        }
    }

    #[test]
    fn what_waiting_mends_and_what_not() {
        let mut to = destination();
        assert_eq!(judge(&mut to, libc::EINTR, 1), None);
        assert_eq!(judge(&mut to, libc::EAGAIN, 1), Some(SendError::Blocked));
        assert_eq!(judge(&mut to, libc::ENOBUFS, 1), Some(SendError::Blocked));
        assert!(matches!(judge(&mut to, libc::ENETUNREACH, 1), Some(SendError::Gone { .. })));
        assert!(matches!(judge(&mut to, libc::EPERM, 1), Some(SendError::Host { .. })));
        assert_eq!(to.segments(), SEGMENTS_MAX);
    }

    #[test]
    fn segments_are_limited_downwards_and_stay_above_none() {
        let mut to = destination();
        to.limit_segments(7);
        to.limit_segments(48);
        assert_eq!(to.segments(), 7);
        to.limit_segments(0);
        assert_eq!((to.segments(), to.take_fall()), (1, None));
        assert_eq!(to.ready(60_000, true, &mut Tally::default()), Ok(1));
    }
}
