// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sources heard on one port: statistics of each, and which of them is followed.
//!
//! Anybody can send to a port, so that a source is followed only after two packets of it that fit
//! together (RFC 3550 A.1's probation), and another in its stead only when it has been silent for
//! [`SILENCE`] or has said BYE. The table is bounded ([`SOURCES_MAX`]): a flood of sources drops
//! the one heard longest ago, those on probation first, and is counted; the one that is followed
//! stays. A packet of the followed source costs one comparison beyond its statistics.
//!
//! Departure from A.1: the second packet need not be the very next one, so that a source whose
//! first packets suffer a loss is not made to wait.
//!
//! Sources: RFC 3550 §8.1, A.1.
//! Does not do: keep packets of a source on probation (the caller may, and is told when they
//! count), or tell two senders of one SSRC apart (§8.2).

use std::time::Duration;

use crate::rtp::{Arrival, Header, Reception};

/// A source that was heard.
#[derive(Debug)]
pub struct Source {
    /// Its identifier.
    pub ssrc: u32,
    /// What came of it.
    pub reception: Reception,
    /// When the last packet came.
    pub heard: Duration,
    /// Two packets fitted together.
    is_valid: bool,
}

/// What a packet is to the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Of the source that is followed.
    Followed(Arrival),
    /// Of a source that is followed from now on. Its packets from before this one count too.
    Chosen(Arrival),
    /// Of a source that may be followed later.
    Waiting,
    /// Of a source that will not be: another was announced.
    Foreign,
}

/// The sources of a port.
#[derive(Debug)]
pub struct Sources {
    clock_rate_hz: u32,
    table: Vec<Source>,
    followed: Option<usize>,
    announced: Option<u32>,
    chosen: u64,
    forgotten: u64,
}

impl Sources {
    /// None heard yet.
    pub fn new(clock_rate_hz: u32) -> Sources {
        let table = Vec::new();
        Sources { clock_rate_hz, table, followed: None, announced: None, chosen: 0, forgotten: 0 }
    }

    /// Follows this source and no other from now on, without probation: the signalling has named
    /// it, and perhaps its first sequence number.
    pub fn announce(&mut self, ssrc: u32, sequence: Option<u16>) {
        self.announced = Some(ssrc);
        let index = self.index_of(ssrc).unwrap_or_else(|| self.enter(ssrc, Duration::ZERO));
        let source = &mut self.table[index];
        if let Some(sequence) = sequence {
            source.reception = Reception::starting_at(self.clock_rate_hz, sequence);
        }
        source.is_valid = true;
        self.chosen += u64::from(self.followed != Some(index));
        self.followed = Some(index);
    }

    /// Takes note of a packet; `now` is the time on any steady clock.
    pub fn receive(&mut self, header: &Header, now: Duration) -> Standing {
        if let Some(index) = self.followed
            && let source = &mut self.table[index]
            && source.ssrc == header.ssrc
        {
            source.heard = now;
            return Standing::Followed(source.reception.receive(header, now));
        }
        let index = self.index_of(header.ssrc).unwrap_or_else(|| self.enter(header.ssrc, now));
        let source = &mut self.table[index];
        source.heard = now;
        let arrival = source.reception.receive(header, now);
        let is_second = source.reception.received() > 1;
        source.is_valid |= is_second && !matches!(arrival, Arrival::Stray | Arrival::Duplicate);
        let is_valid = source.is_valid;
        if self.announced.is_some() {
            return Standing::Foreign;
        }
        let is_free = self
            .followed
            .is_none_or(|index| now.saturating_sub(self.table[index].heard) >= SILENCE);
        if !is_valid || !is_free {
            return Standing::Waiting;
        }
        self.followed = Some(index);
        self.chosen += 1;
        Standing::Chosen(arrival)
    }

    /// The source has said BYE: another may be followed at once.
    pub fn leave(&mut self, ssrc: u32) {
        if self.announced != Some(ssrc) && self.followed().is_some_and(|s| s.ssrc == ssrc) {
            self.followed = None;
        }
    }

    /// The signalling will name another source, if any.
    pub fn renounce(&mut self) {
        (self.announced, self.followed) = (None, None);
    }

    /// The source that is followed.
    pub fn followed(&self) -> Option<&Source> {
        self.followed.map(|index| &self.table[index])
    }

    /// The source of that identifier, if it is still known.
    pub fn find(&mut self, ssrc: u32) -> Option<&mut Source> {
        self.index_of(ssrc).map(|index| &mut self.table[index])
    }

    /// Those that have sent two packets that fit together, [`SOURCES_MAX`] at most.
    pub fn valid(&self) -> impl Iterator<Item = &Source> {
        self.table.iter().filter(|source| source.is_valid)
    }

    /// How often a source was chosen to be followed.
    pub fn chosen(&self) -> u64 {
        self.chosen
    }

    /// Sources that were dropped from the table for want of room.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    fn index_of(&self, ssrc: u32) -> Option<usize> {
        self.table.iter().position(|source| source.ssrc == ssrc)
    }

    fn enter(&mut self, ssrc: u32, now: Duration) -> usize {
        let reception = Reception::new(self.clock_rate_hz);
        let source = Source { ssrc, reception, heard: now, is_valid: false };
        if self.table.len() < SOURCES_MAX {
            self.table.push(source);
            return self.table.len() - 1;
        }
        self.forgotten += 1;
        let others = self.table.iter().enumerate().filter(|(at, _)| Some(*at) != self.followed);
        let oldest = others.min_by_key(|(_, source)| (source.is_valid, source.heard));
        let index = oldest.map_or(0, |(index, _)| index);
        self.table[index] = source;
        index
    }
}

/// Sources known at a time: 40 KiB a port.
pub const SOURCES_MAX: usize = 64;

/// A source that says nothing for so long may be followed by another: longer than what a sender or
/// a reader of bursts leaves between two packets of any stream that is a film.
pub const SILENCE: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(ssrc: u32, sequence: u16) -> Header {
        Header { marker: false, payload_type: 33, sequence, timestamp: 0, ssrc }
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_source_is_followed_from_its_second_packet_on() {
        let mut sources = Sources::new(90_000);
        assert_eq!(sources.receive(&packet(1, 10), ms(0)), Standing::Waiting);
        assert_eq!(sources.receive(&packet(2, 77), ms(1)), Standing::Waiting);
        assert_eq!(sources.receive(&packet(1, 10), ms(1)), Standing::Waiting, "a duplicate");
        let gap = Arrival::AfterGap { packets: 1 };
        assert_eq!(sources.receive(&packet(1, 12), ms(2)), Standing::Chosen(gap));
        assert_eq!(sources.receive(&packet(1, 13), ms(3)), Standing::Followed(Arrival::InOrder));
        assert_eq!(sources.followed().map(|source| source.ssrc), Some(1));
        // The other is valid too, but late.
        assert_eq!(sources.receive(&packet(2, 78), ms(4)), Standing::Waiting);
        assert_eq!((sources.valid().count(), sources.chosen()), (2, 1));
    }

    #[test]
    fn another_is_followed_after_silence_or_bye() {
        let mut sources = Sources::new(90_000);
        for n in 0..2 {
            sources.receive(&packet(1, n), ms(0));
        }
        sources.receive(&packet(2, 5), SILENCE / 2);
        assert_eq!(sources.receive(&packet(2, 6), SILENCE - ms(1)), Standing::Waiting);
        assert_eq!(sources.receive(&packet(2, 7), SILENCE), Standing::Chosen(Arrival::InOrder));
        sources.leave(1);
        assert_eq!(sources.receive(&packet(1, 2), SILENCE), Standing::Waiting);
        sources.leave(2);
        assert_eq!(sources.receive(&packet(1, 3), SILENCE), Standing::Chosen(Arrival::InOrder));
        assert_eq!(sources.find(1).unwrap().reception.received(), 4);
    }

    #[test]
    fn an_announced_source_needs_no_probation_and_suffers_no_other() {
        let mut sources = Sources::new(90_000);
        sources.announce(9, Some(100));
        for n in 0..3 {
            assert_eq!(sources.receive(&packet(1, n), ms(0)), Standing::Foreign);
        }
        let gap = Arrival::AfterGap { packets: 1 };
        assert_eq!(sources.receive(&packet(9, 101), ms(900)), Standing::Followed(gap));
        sources.leave(9);
        assert_eq!(sources.receive(&packet(9, 102), ms(901)), Standing::Followed(Arrival::InOrder));
        sources.renounce();
        assert_eq!(sources.receive(&packet(1, 3), ms(902)), Standing::Chosen(Arrival::InOrder));
    }

    #[test]
    fn a_flood_is_bounded_and_counted_and_does_not_touch_the_followed() {
        let mut sources = Sources::new(90_000);
        for n in 0..2 {
            sources.receive(&packet(1, n), ms(0));
            sources.receive(&packet(2, n), ms(1));
        }
        for n in 0..10_000 {
            let flood = sources.receive(&packet(1000 + n, 0), ms(2 + u64::from(n)));
            assert_eq!(flood, Standing::Waiting);
        }
        assert_eq!(sources.forgotten(), 10_000 - (SOURCES_MAX as u64 - 2));
        assert_eq!(sources.valid().map(|source| source.ssrc).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(sources.receive(&packet(1, 2), ms(1)), Standing::Followed(Arrival::InOrder));
    }
}
