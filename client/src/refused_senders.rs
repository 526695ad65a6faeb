// SPDX-License-Identifier: MIT OR Apache-2.0
//! Refused datagrams by reason, and their senders by address.
//!
//! The list is bounded: [`SENDERS_MAX`] senders of a stream are listed, and datagrams of others are
//! counted together, so that forged addresses cost no memory. The log has at most one line per
//! minute and stream.
//!
//! Sources: RFC 3550 §8.2.
//! Does not decide on refusals ([`wire::sources`] and [`crate::rtp_receiver`] do).

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::ops::AddAssign;
use std::time::Duration;

use serde::Serialize;

use super::plural::counted;
use super::rtp_receiver::RtpRefusal;

/// Reason why datagrams of a sender were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalReason {
    /// The URL of the source names other senders.
    NotNamed,
    /// The stream comes from another address.
    NotFollowed,
    /// No stream was followed, and the sender's packets were too few to be a stream.
    NoStream,
    /// The stream comes from another address, and the sender uses its SSRC (RFC 3550 §8.2).
    Collision,
    /// RTP of another payload type than the stream's.
    PayloadType,
    /// Neither RTP nor transport stream.
    Malformed,
    /// RTCP of the stream's SSRC, from another address than the stream's.
    Report,
    /// BYE of the stream's SSRC, from another address than the stream's.
    Bye,
    /// More datagrams arrived before the answer to PLAY than are held.
    TooEarly,
}

impl RefusalReason {
    fn text(self) -> &'static str {
        match self {
            RefusalReason::NotNamed => "not a sender that was named",
            RefusalReason::NotFollowed => "not the sender of the stream",
            RefusalReason::NoStream => "too few packets to be a stream",
            RefusalReason::Collision => {
                "the SSRC of the stream from another address (RFC 3550 §8.2)"
            }
            RefusalReason::PayloadType => "RTP of another payload type than the stream's",
            RefusalReason::Malformed => "neither RTP nor a transport stream",
            RefusalReason::Report => "RTCP for the stream from another address",
            RefusalReason::Bye => "RTCP BYE for the stream from another address",
            RefusalReason::TooEarly => "more than is held before the server has answered PLAY",
        }
    }
}

/// Refused datagrams by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RefusedCounts {
    /// RTP of another payload type than the stream's.
    pub payload_type: u64,
    /// The last such payload type.
    pub last_payload_type: Option<u8>,
    /// Another SSRC of the recorded sender.
    pub ssrc: u64,
    /// Another sender than the recorded one.
    pub sender: u64,
    /// A payload of another size than whole transport stream packets of 188 bytes.
    pub size: u64,
    /// Neither RTP nor a transport stream.
    pub malformed: u64,
}

impl RefusedCounts {
    /// Datagrams of other senders, sources or payload types.
    pub fn unexpected_source(&self) -> u64 {
        self.payload_type + self.ssrc + self.sender
    }
}

impl AddAssign for RefusedCounts {
    fn add_assign(&mut self, more: RefusedCounts) {
        self.payload_type += more.payload_type;
        self.last_payload_type = more.last_payload_type.or(self.last_payload_type);
        self.ssrc += more.ssrc;
        self.sender += more.sender;
        self.size += more.size;
        self.malformed += more.malformed;
    }
}

/// A refused sender.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RefusedSender {
    /// Address and port.
    pub address: SocketAddr,
    /// Number of refused datagrams.
    pub datagrams: u64,
    /// Reason of the last refusal.
    pub why: &'static str,
}

/// Refused datagrams of one stream, and their senders.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RefusedSenders {
    counts: RefusedCounts,
    senders: Vec<RefusedSender>,
    others: u64,
    /// All refused datagrams, those already logged, and the time of the last log line.
    all: u64,
    logged: u64,
    logged_at: Option<Duration>,
}

impl RefusedSenders {
    /// Counts datagrams of a sender that are not the stream's.
    pub fn refuse(&mut self, from: SocketAddr, datagrams: u64, why: RefusalReason) {
        self.counts.sender += datagrams;
        self.note(from, datagrams, why);
    }

    /// Counts datagrams that the receiver of a stream from `peer` has refused. The followed sender
    /// is not listed among the refused ones.
    pub fn refuse_rtp(
        &mut self,
        from: SocketAddr,
        datagrams: u64,
        reason: RtpRefusal,
        peer: Option<SocketAddr>,
    ) {
        let is_peer = peer == Some(from);
        match reason {
            RtpRefusal::NoStream => self.refuse(from, datagrams, RefusalReason::NoStream),
            RtpRefusal::Collision => self.refuse(from, datagrams, RefusalReason::Collision),
            RtpRefusal::NotFollowed => self.refuse(from, datagrams, RefusalReason::NotFollowed),
            RtpRefusal::OtherSsrc => self.counts.ssrc += datagrams,
            RtpRefusal::PayloadType(payload_type) => {
                self.counts.payload_type += datagrams;
                self.counts.last_payload_type = Some(payload_type);
                if !is_peer {
                    self.note(from, datagrams, RefusalReason::PayloadType);
                }
            }
            RtpRefusal::Malformed | RtpRefusal::BareSize => {
                match reason {
                    RtpRefusal::BareSize => self.counts.size += datagrams,
                    _ => self.counts.malformed += datagrams,
                }
                if peer.is_some() && !is_peer {
                    self.note(from, datagrams, RefusalReason::Malformed);
                }
            }
        }
    }

    /// Lists datagrams of a sender.
    pub fn note(&mut self, address: SocketAddr, datagrams: u64, why: RefusalReason) {
        self.add(RefusedSender { address, datagrams, why: why.text() });
    }

    fn add(&mut self, more: RefusedSender) {
        self.all += more.datagrams;
        let listed = self.senders.iter_mut().find(|sender| sender.address == more.address);
        if let Some(sender) = listed {
            sender.datagrams += more.datagrams;
            sender.why = more.why;
        } else if self.senders.len() < SENDERS_MAX {
            self.senders.push(more);
        } else {
            self.others += more.datagrams;
        }
    }

    /// Adds the datagrams and senders of another list.
    pub fn absorb(&mut self, other: RefusedSenders) {
        self.counts += other.counts;
        other.senders.into_iter().for_each(|sender| self.add(sender));
        self.all += other.others;
        self.others += other.others;
    }

    /// Refused datagrams by reason.
    pub fn counts(&self) -> RefusedCounts {
        self.counts
    }

    /// Listed senders, in the order of their first refusal.
    pub fn senders(&self) -> &[RefusedSender] {
        &self.senders
    }

    /// Datagrams of senders that are not listed.
    pub fn others(&self) -> u64 {
        self.others
    }

    /// Returns a line for the log: at once the first time, then at most once a minute.
    pub fn log_line(&mut self, now: Duration) -> Option<String> {
        let is_due = self.logged_at.is_none_or(|at| now.saturating_sub(at) >= LOG_EVERY);
        if self.all == self.logged || !is_due {
            return None;
        }
        let refused = self.all - self.logged;
        let mut text = format!("{} refused", counted(refused, "datagram", "datagrams"));
        (self.logged, self.logged_at) = (self.all, Some(now));
        let mut most: Vec<&RefusedSender> = self.senders.iter().collect();
        most.sort_by_key(|sender| std::cmp::Reverse(sender.datagrams));
        for sender in most.iter().take(LOGGED_MAX) {
            let RefusedSender { address, datagrams, why } = sender;
            let _ = write!(text, "; {address}: {datagrams} in all, {why}");
        }
        let rest = self.senders.len().saturating_sub(LOGGED_MAX);
        if rest > 0 || self.others > 0 {
            let _ = write!(text, "; and others");
        }
        Some(text)
    }
}

/// Listed senders: more than occur by misconfiguration.
const SENDERS_MAX: usize = 16;
const LOGGED_MAX: usize = 4;
const LOG_EVERY: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 9], port))
    }

    #[test]
    fn senders_are_named_and_bounded() {
        let mut refused = RefusedSenders::default();
        refused.note(at(7), 2, RefusalReason::NotFollowed);
        refused.note(at(7), 1, RefusalReason::Bye);
        for port in 1000..2000 {
            refused.note(at(port), 1, RefusalReason::Malformed);
        }
        let first = &refused.senders()[0];
        assert_eq!((first.address, first.datagrams), (at(7), 3));
        assert_eq!(first.why, "RTCP BYE for the stream from another address");
        assert_eq!((refused.senders().len(), refused.others()), (SENDERS_MAX, 985));
    }

    #[test]
    fn the_log_has_a_line_a_minute() {
        let mut refused = RefusedSenders::default();
        assert_eq!(refused.log_line(Duration::ZERO), None);
        refused.note(at(7), 5, RefusalReason::Collision);
        let line = refused.log_line(Duration::from_secs(1)).unwrap();
        let expected = "5 datagrams refused; 10.0.0.9:7: 5 in all, the SSRC of the stream from \
                        another address (RFC 3550 §8.2)";
        assert_eq!(line, expected);
        refused.note(at(7), 1, RefusalReason::Collision);
        assert_eq!(refused.log_line(Duration::from_secs(60)), None);
        assert!(
            refused.log_line(Duration::from_secs(61)).unwrap().starts_with("1 datagram refused; ")
        );
        assert_eq!(refused.log_line(Duration::from_secs(200)), None, "nothing new");
    }
}
