// SPDX-License-Identifier: MIT OR Apache-2.0
//! Table of the sources that send to one port: statistics of each, and the choice of the one to
//! follow.
//!
//! Any host can send to a port. A source is an SSRC and the transport address it sends from (RFC
//! 3550 §8.2), so an attacker that copies the SSRC of the stream is another source. A source is
//! followed after two packets with consistent sequence numbers (A.1's probation). Another source
//! replaces it when it has been silent for [`SILENCE`], or for a fifth of that after BYE. Three
//! rules keep an unrelated sender that was first, or arrived in a gap, from staying followed:
//!
//! - A source that sends fewer than [`WEAK_PACKETS`] packets a second is replaced by a valid one
//!   that sends [`CONTEST_RATIO`] times as many for a second.
//! - A source that sent [`SETTLED_PACKETS`] and more, and returns within [`RETURN_WITHIN`] after it
//!   was replaced because of silence, is followed again at once, instead of any source followed
//!   later. Those have no such right against it then.
//! - An address named by the signalling has priority over all others; once it has sent, its silence
//!   and its BYE let no source of another address be followed.
//!
//! The table is bounded ([`SOURCES_MAX`], [`SOURCES_AN_ADDRESS_MAX`]). A flood from one address
//! replaces its own oldest source, otherwise the oldest of all is replaced, those on probation
//! first; replacements are counted, and the followed source stays. A packet of the followed source
//! costs two comparisons beyond its statistics. A bare transport stream is a source without an
//! SSRC.
//!
//! Departure from A.1: the second packet need not be the very next one, so that a source whose
//! first packets suffer a loss is not made to wait.
//!
//! Sources: RFC 3550 §8.1, §8.2, A.1.
//! Does not keep packets of a source on probation: the caller may, and [`SourceStatus::Chosen`]
//! signals when they count. Does not protect a slow stream: below [`WEAK_PACKETS`] packets a second
//! a flood can displace it, unless its sender is named.

use std::net::SocketAddr;
use std::time::Duration;

use crate::rtp::{Header, Reception, SequenceUpdate};

/// Sender of a stream: an SSRC and an address.
#[derive(Debug)]
pub struct SyncSource {
    /// SSRC; `None` for a bare transport stream.
    pub ssrc: Option<u32>,
    /// Address it sends from; none while only the signalling has named it.
    pub from: Option<SocketAddr>,
    /// Statistics of its packets.
    pub reception: Reception,
    /// Arrival of the last packet; none while only the signalling has named it.
    heard: Option<Duration>,
    /// Two packets fitted together.
    is_valid: bool,
    /// Packets in all, in this window, and in the whole window before it.
    packets: u64,
    in_window: u32,
    rate: u32,
    /// Time at which it lost its place to its own silence; none while it has no right to return.
    lost_at: Option<Duration>,
}

impl SyncSource {
    fn may_return(&self, now: Duration) -> bool {
        self.lost_at.is_some_and(|at| now.saturating_sub(at) < RETURN_WITHIN)
    }

    fn is(&self, ssrc: Option<u32>, from: SocketAddr) -> bool {
        self.ssrc == ssrc && self.from.is_none_or(|own| own == from)
    }
}

/// Relation of a packet's source to the followed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceStatus {
    /// The source is followed.
    Followed(SequenceUpdate),
    /// The source is followed from this packet on. Its earlier packets count too.
    Chosen(SequenceUpdate),
    /// The source may be followed later.
    Waiting,
    /// The source will not be followed: another was announced.
    Foreign,
}

/// The sources of a port.
#[derive(Debug)]
pub struct SourceTable {
    clock_rate_hz: u32,
    table: Vec<SyncSource>,
    followed: Option<usize>,
    /// Time at which it was chosen; its packets since then, and before a silence from which it
    /// returned.
    followed_at: Duration,
    held_packets: u64,
    /// Packets still required, after BYE, to prove that the source has not left.
    leaving: u32,
    announced: Option<u32>,
    /// The address that the signalling has named, and until when others wait for it.
    expected: Option<SocketAddr>,
    grace_until: Option<Duration>,
    /// Start of this window, and of the one before.
    window_at: Duration,
    measured_at: Duration,
    chosen: u64,
    forgotten: u64,
    refuted: u64,
}

impl SourceTable {
    /// An empty table.
    pub fn new(clock_rate_hz: u32) -> SourceTable {
        SourceTable {
            clock_rate_hz,
            table: Vec::new(),
            followed: None,
            followed_at: Duration::ZERO,
            held_packets: 0,
            leaving: 0,
            announced: None,
            expected: None,
            grace_until: None,
            window_at: Duration::ZERO,
            measured_at: Duration::ZERO,
            chosen: 0,
            forgotten: 0,
            refuted: 0,
        }
    }

    /// Gives this address priority; others wait [`GRACE`] for it.
    pub fn expect(&mut self, from: Option<SocketAddr>) {
        (self.expected, self.grace_until) = (from, None);
    }

    /// Follows this source from now on, without probation: the signalling has named it, and perhaps
    /// its first sequence number. The only other source followed is another SSRC of the expected
    /// address, which is the same sender.
    pub fn announce(&mut self, ssrc: u32, sequence: Option<u16>) {
        self.announced = Some(ssrc);
        let is_it = |source: &SyncSource| {
            source.ssrc == Some(ssrc) && source.from.or(self.expected) == self.expected
        };
        let index = self.table.iter().position(is_it);
        let index = index.unwrap_or_else(|| self.enter(Some(ssrc), self.expected, None));
        let source = &mut self.table[index];
        if let Some(sequence) = sequence {
            source.reception = Reception::starting_at(self.clock_rate_hz, sequence);
        }
        source.is_valid = true;
        self.chosen += u64::from(self.followed != Some(index));
        (self.followed, self.leaving) = (Some(index), 0);
        self.forget_returns();
    }

    /// Counts a packet from this address; `now` is the time on any steady clock.
    pub fn receive(&mut self, header: &Header, from: SocketAddr, now: Duration) -> SourceStatus {
        self.take(Some(header.ssrc), from, now, |source| {
            let arrival = source.reception.receive(header, now);
            let is_second = source.reception.received() > 1;
            (
                arrival,
                is_second && !matches!(arrival, SequenceUpdate::Stray | SequenceUpdate::Duplicate),
            )
        })
    }

    /// Counts a datagram of a bare transport stream.
    pub fn receive_bare(&mut self, from: SocketAddr, now: Duration) -> SourceStatus {
        self.take(None, from, now, |source| (SequenceUpdate::InOrder, source.packets > 1))
    }

    /// Counts a packet of a source. `note` updates the statistics of the source, and returns
    /// whether the packet fits those before it.
    fn take(
        &mut self,
        ssrc: Option<u32>,
        from: SocketAddr,
        now: Duration,
        note: impl FnOnce(&mut SyncSource) -> (SequenceUpdate, bool),
    ) -> SourceStatus {
        self.measure(now);
        if let Some(index) = self.followed
            && let source = &mut self.table[index]
            && source.is(ssrc, from)
        {
            (source.from, source.heard) = (Some(from), Some(now));
            source.packets += 1;
            source.in_window += 1;
            self.held_packets += 1;
            if self.leaving > 0 {
                self.leaving -= 1;
                self.refuted += u64::from(self.leaving == 0);
            }
            return SourceStatus::Followed(note(source).0);
        }
        let index = self.index_of(ssrc, from);
        let index = index.unwrap_or_else(|| self.enter(ssrc, Some(from), Some(now)));
        let source = &mut self.table[index];
        source.heard = Some(now);
        source.packets += 1;
        source.in_window += 1;
        let (arrival, fits) = note(source);
        source.is_valid |= fits;
        let is_own = self.expected.is_some_and(|expected| expected == from);
        if self.announced.is_some() && self.announced != ssrc && !is_own {
            return SourceStatus::Foreign;
        }
        if !self.table[index].is_valid || !self.is_free_for(index, now) {
            return SourceStatus::Waiting;
        }
        self.lose_place(index, now);
        (self.followed, self.followed_at) = (Some(index), now);
        self.leaving = 0;
        self.chosen += 1;
        SourceStatus::Chosen(arrival)
    }

    /// True if a valid source may replace the followed one.
    fn is_free_for(&mut self, index: usize, now: Duration) -> bool {
        let challenger = &self.table[index];
        let is_expected = self.expected.is_some() && challenger.from == self.expected;
        let holder = self.followed.map(|followed| &self.table[followed]);
        let Some(holder) = holder.filter(|holder| holder.heard.is_some()) else {
            // No source is followed, or one that has not sent yet.
            let is_awaited = self.expected.is_some() || holder.is_some();
            let grace = *self.grace_until.get_or_insert(now + GRACE);
            return is_expected || !is_awaited || now >= grace;
        };
        if self.expected.is_some() && holder.from == self.expected {
            // Another SSRC of the same sender.
            return is_expected && self.is_silent(now);
        }
        if self.is_silent(now) || is_expected {
            return true;
        }
        let is_measured = self.followed_at <= self.measured_at && holder.rate < WEAK_PACKETS;
        challenger.may_return(now)
            || is_measured && challenger.rate >= CONTEST_RATIO * holder.rate.max(1)
    }

    /// Replaces the followed source by this one. The replaced source may return if it was silent,
    /// not if it was displaced, and not before a source that was followed earlier has returned.
    fn lose_place(&mut self, to: usize, now: Duration) {
        let returns = self.is_silent(now) && self.held_packets >= SETTLED_PACKETS;
        if let Some(index) = self.followed {
            self.table[index].lost_at = returns.then_some(now);
        }
        self.held_packets = 0;
        if let Some(lost_at) = self.table[to].lost_at.take()
            && now.saturating_sub(lost_at) < RETURN_WITHIN
        {
            self.held_packets = WEAK_PACKETS.into();
            for source in &mut self.table {
                source.lost_at = source.lost_at.filter(|at| *at < lost_at);
            }
        }
    }

    /// Removes every source's right to return.
    fn forget_returns(&mut self) {
        for source in &mut self.table {
            source.lost_at = None;
        }
    }

    /// True if the followed source, if any, can be replaced after silence or BYE.
    fn is_silent(&self, now: Duration) -> bool {
        let silence = if self.leaving > 0 { SILENCE / 5 } else { SILENCE };
        let heard = self.followed().and_then(|holder| holder.heard);
        heard.is_none_or(|heard| now.saturating_sub(heard) >= silence)
    }

    /// Begins another window when one is over.
    fn measure(&mut self, now: Duration) {
        if now.saturating_sub(self.window_at) < WINDOW {
            return;
        }
        for source in &mut self.table {
            source.rate = std::mem::take(&mut source.in_window);
        }
        (self.measured_at, self.window_at) = (self.window_at, now);
    }

    /// True if another source may replace the followed one without a silence: the followed one has
    /// sent few packets, or sends few.
    pub fn is_contested(&self) -> bool {
        let is_weak = |source: &SyncSource| source.rate < WEAK_PACKETS;
        self.held_packets < WEAK_PACKETS.into() || self.followed().is_none_or(is_weak)
    }

    /// Notes a BYE of the source: another may be followed soon, unless it continues to send.
    pub fn leave(&mut self, ssrc: u32) {
        if self.announced != Some(ssrc) && self.followed().is_some_and(|s| s.ssrc == Some(ssrc)) {
            self.leaving = REFUTING_PACKETS;
        }
    }

    /// Ends following: the signalling will name another source, if any.
    pub fn renounce(&mut self) {
        (self.announced, self.followed) = (None, None);
        self.forget_returns();
    }

    /// The source that is followed.
    pub fn followed(&self) -> Option<&SyncSource> {
        self.followed.map(|index| &self.table[index])
    }

    /// As [`SourceTable::followed`].
    pub fn followed_mut(&mut self) -> Option<&mut SyncSource> {
        self.followed.map(|index| &mut self.table[index])
    }

    /// True if the source is in the table.
    pub fn knows(&self, ssrc: Option<u32>, from: SocketAddr) -> bool {
        self.index_of(ssrc, from).is_some()
    }

    /// Iterates over the sources that have sent two packets that fit together, at most
    /// [`SOURCES_MAX`].
    pub fn valid(&self) -> impl Iterator<Item = &SyncSource> {
        self.table.iter().filter(|source| source.is_valid)
    }

    /// Number of times a source was chosen.
    pub fn chosen(&self) -> u64 {
        self.chosen
    }

    /// Sources that were dropped from the table for want of room.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// BYE packets after which the source continued: forged, or sent too early.
    pub fn refuted_byes(&self) -> u64 {
        self.refuted
    }

    fn index_of(&self, ssrc: Option<u32>, from: SocketAddr) -> Option<usize> {
        self.table.iter().position(|source| source.is(ssrc, from))
    }

    fn enter(
        &mut self,
        ssrc: Option<u32>,
        from: Option<SocketAddr>,
        heard: Option<Duration>,
    ) -> usize {
        let reception = Reception::new(self.clock_rate_hz);
        let source = SyncSource {
            ssrc,
            from,
            reception,
            heard,
            is_valid: false,
            packets: 0,
            in_window: 0,
            rate: 0,
            lost_at: None,
        };
        let others = self.table.iter().enumerate().filter(|(at, _)| Some(*at) != self.followed);
        let own = others.clone().filter(|(_, other)| other.from == from);
        let is_flood = own.clone().count() >= SOURCES_AN_ADDRESS_MAX;
        if !is_flood && self.table.len() < SOURCES_MAX {
            self.table.push(source);
            return self.table.len() - 1;
        }
        self.forgotten += 1;
        let age =
            |(_, source): &(usize, &SyncSource)| (source.lost_at, source.is_valid, source.heard);
        let oldest = if is_flood { own.min_by_key(age) } else { others.min_by_key(age) };
        let index = oldest.map_or(0, |(index, _)| index);
        self.table[index] = source;
        index
    }
}

/// Sources known at a time: 40 KiB a port.
pub const SOURCES_MAX: usize = 64;

/// Sources of one address: a flood of SSRCs from there pushes nobody else's out. A mixer sends
/// one, a host with some programs a few.
pub const SOURCES_AN_ADDRESS_MAX: usize = 8;

/// Silence after which another source may be followed: longer than the pause that a bursting sender
/// or reader leaves between two packets of a film.
pub const SILENCE: Duration = Duration::from_millis(250);

/// Time for which a silent source may return: longer than the restart of a sender, or than a switch
/// needs to learn its ports.
pub const RETURN_WITHIN: Duration = Duration::from_secs(10);

/// Packets that a source must have sent to have that right: fewer may be the last of an earlier
/// sender.
pub const SETTLED_PACKETS: u64 = 16;

/// Time for which others wait for a named address: longer than a server needs from PLAY to its
/// first packet.
pub const GRACE: Duration = Duration::from_secs(2);

/// Packets a second below which a place can be contested: 1 Mb/s of the usual size.
pub const WEAK_PACKETS: u32 = 100;

/// Ratio of packets by which a contender must exceed the followed source: more than a pause of half
/// of the time can explain.
pub const CONTEST_RATIO: u32 = 10;

/// Rates are of this time at least.
const WINDOW: Duration = Duration::from_secs(1);

/// Packets of a sender that may still be in transit when it sends BYE.
const REFUTING_PACKETS: u32 = 64;

#[cfg(test)]
mod tests;
