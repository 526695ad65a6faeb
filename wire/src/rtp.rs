// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fixed header of RTP, and the statistics of a receiver.
//!
//! The sender's headers are stamped in bulk from the packet plan; [`Header::write`] is the plain
//! form of that. The receiving side is for the verifying client: [`Reception`] is RFC 3550 A.1
//! (sequence numbers), A.3 (loss) and A.8 (jitter). In addition it distinguishes duplicates from
//! reordered packets, by one bit for each of the last 4096 sequence numbers, and lists the gaps
//! that were not filled. Each packet costs O(1) (O(gap) bits cleared after a gap, at most the
//! window), memory is fixed: 512 bytes of window and at most [`GAPS_MAX`] gaps.
//!
//! Departures from A.1: no probation (the SETUP reply gives the client its source) and, after a
//! jump that A.1 calls a restart, the counts so far are kept instead of cleared.
//!
//! Sources: RFC 3550 §5.1, §5.3.1, §6.4.1, A.1, A.3, A.8.

use std::ops::Range;
use std::time::Duration;

use crate::error::{Fault, Malformed};
use crate::rtcp::ReceptionReport;

/// Bytes of the fixed header, without contributing sources and extension.
pub const HEADER_BYTES: usize = 12;

/// The protocol's version.
pub const VERSION: u8 = 2;

/// First byte of a plain header: version 2, no padding, no extension, no contributing sources.
pub const PLAIN_FIRST_BYTE: u8 = VERSION << 6;

/// Version bits of the first byte.
pub const VERSION_MASK: u8 = 0xC0;

/// Padding bit of the first byte.
pub const PADDING_BIT: u8 = 0x20;

/// Extension bit of the first byte.
pub const EXTENSION_BIT: u8 = 0x10;

/// Count of contributing sources in the first byte.
pub const SOURCES_MASK: u8 = 0x0F;

/// Marker bit of the second byte; the payload type is the other seven.
pub const MARKER_BIT: u8 = 0x80;

/// Offsets of the fields in the header, for code that reads or writes several headers at once.
pub mod offset {
    /// Marker and payload type, 1 byte.
    pub const MARKER_AND_TYPE: usize = 1;
    /// Sequence number, 2 bytes.
    pub const SEQUENCE: usize = 2;
    /// Timestamp, 4 bytes.
    pub const TIMESTAMP: usize = 4;
    /// Synchronisation source, 4 bytes.
    pub const SSRC: usize = 8;
}

/// The fixed header (RFC 3550 §5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The marker bit.
    pub marker: bool,
    /// 7 bits.
    pub payload_type: u8,
    /// Counts packets, modulo 2^16.
    pub sequence: u16,
    /// In units of the clock rate, modulo 2^32.
    pub timestamp: u32,
    /// Synchronisation source: identifies the sender.
    pub ssrc: u32,
}

impl Header {
    /// Parses a packet: its header and the range of its payload, after contributing sources and
    /// extension and before the padding.
    ///
    /// # Errors
    /// A version other than 2; a packet shorter than its fields require. The offset is that in the
    /// packet.
    pub fn parse(packet: &[u8]) -> Result<(Header, Range<usize>), Malformed> {
        let short = || Malformed::new(packet.len() as u64, Fault::RtpTooShort);
        let (fixed, _) = packet.split_first_chunk::<HEADER_BYTES>().ok_or_else(short)?;
        let header = Header::parse_fixed(fixed)
            .ok_or_else(|| Malformed::new(0, Fault::RtpVersion { version: fixed[0] >> 6 }))?;
        let (padded, extended) = (fixed[0] & PADDING_BIT != 0, fixed[0] & EXTENSION_BIT != 0);
        let mut start = HEADER_BYTES + 4 * usize::from(fixed[0] & SOURCES_MASK);
        if extended {
            let extension = packet.get(start..start + 4).ok_or_else(short)?;
            let words = u16::from_be_bytes([extension[2], extension[3]]);
            start += 4 + 4 * usize::from(words);
        }
        let padding = match packet.last() {
            Some(&padding) if padded => usize::from(padding).max(1),
            _ => 0,
        };
        let end = packet.len().checked_sub(padding).filter(|&end| end >= start);
        let end = end.ok_or_else(short)?;
        Ok((header, start..end))
    }

    /// Reads the fixed header alone; ignores padding, extension and contributing sources. `None`
    /// when the version is not 2.
    #[inline]
    pub const fn parse_fixed(fixed: &[u8; HEADER_BYTES]) -> Option<Header> {
        let [first, second, s0, s1, t0, t1, t2, t3, c0, c1, c2, c3] = *fixed;
        if first >> 6 != VERSION {
            return None;
        }
        Some(Header {
            marker: second & MARKER_BIT != 0,
            payload_type: second & !MARKER_BIT,
            sequence: u16::from_be_bytes([s0, s1]),
            timestamp: u32::from_be_bytes([t0, t1, t2, t3]),
            ssrc: u32::from_be_bytes([c0, c1, c2, c3]),
        })
    }

    /// Parses a header in the form of [`write`](Self::write). `None` if the version is not 2, or if
    /// there is padding, an extension or a contributing source.
    #[inline]
    pub const fn parse_plain(fixed: &[u8; HEADER_BYTES]) -> Option<Header> {
        if fixed[0] == PLAIN_FIRST_BYTE { Header::parse_fixed(fixed) } else { None }
    }

    /// Encodes the header: version 2, no padding, no extension, no contributing sources. Only the
    /// low 7 bits of the payload type are used.
    #[inline]
    pub const fn write(&self) -> [u8; HEADER_BYTES] {
        let second = (self.marker as u8) << 7 | self.payload_type & !MARKER_BIT;
        let [s0, s1] = self.sequence.to_be_bytes();
        let [t0, t1, t2, t3] = self.timestamp.to_be_bytes();
        let [c0, c1, c2, c3] = self.ssrc.to_be_bytes();
        [PLAIN_FIRST_BYTE, second, s0, s1, t0, t1, t2, t3, c0, c1, c2, c3]
    }
}

/// Sets the marker bit of a header.
#[inline]
pub const fn set_marker(header: &mut [u8; HEADER_BYTES], marker: bool) {
    let second = &mut header[offset::MARKER_AND_TYPE];
    *second = (marker as u8) << 7 | *second & !MARKER_BIT;
}

/// Sets the sequence number of a header.
#[inline]
pub const fn set_sequence(header: &mut [u8; HEADER_BYTES], sequence: u16) {
    [header[offset::SEQUENCE], header[offset::SEQUENCE + 1]] = sequence.to_be_bytes();
}

/// Sets the timestamp of a header.
#[inline]
pub fn set_timestamp(header: &mut [u8; HEADER_BYTES], timestamp: u32) {
    header[offset::TIMESTAMP..offset::SSRC].copy_from_slice(&timestamp.to_be_bytes());
}

/// Sets the synchronisation source of a header.
#[inline]
pub fn set_ssrc(header: &mut [u8; HEADER_BYTES], ssrc: u32) {
    header[offset::SSRC..].copy_from_slice(&ssrc.to_be_bytes());
}

/// Classification of a packet by its sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceUpdate {
    /// The expected number.
    InOrder,
    /// A number ahead of the expected one.
    AfterGap {
        /// Packets skipped.
        packets: u16,
    },
    /// A number that was skipped before and arrived late.
    Reordered,
    /// A number that was received before.
    Duplicate,
    /// A number older than the window; counted as received, as A.1 does.
    Old,
    /// A number far from the expected one; ignored unless the next packet follows it.
    Stray,
    /// The second of two consecutive numbers far from the expected one: the source restarted.
    Restarted,
}

/// Sequence numbers that were skipped and not received since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// First missing number, extended (cycles × 2^16 + sequence number).
    pub first: u64,
    /// Count of missing numbers.
    pub packets: u64,
}

/// Statistics of one source at its receiver.
#[derive(Debug, Clone)]
pub struct Reception {
    clock_rate_hz: u32,
    begun: bool,
    /// Extended sequence numbers: the first due, and the highest seen.
    base: u64,
    highest: u64,
    /// Bit n % 4096: extended number n was seen, for the last 4096 up to `highest`.
    window: Box<[u64; WINDOW_WORDS]>,
    /// The number after a stray: two that follow each other are a restart (A.1 `bad_seq`).
    restart_at: Option<u16>,
    /// Expected before the last restart.
    expected_before: u64,
    received: u64,
    duplicates: u64,
    reordered: u64,
    restarts: u64,
    strays: u64,
    gaps: Vec<Gap>,
    gaps_unlisted: u64,
    transit: Option<u32>,
    /// Sixteen times the jitter, in units of the clock (A.8).
    jitter_16: u64,
    expected_prior: u64,
    received_prior: u64,
}

impl Reception {
    /// Statistics that begin with the first packet that arrives.
    pub fn new(clock_rate_hz: u32) -> Self {
        Reception {
            clock_rate_hz,
            begun: false,
            base: 0,
            highest: 0,
            window: Box::new([0; WINDOW_WORDS]),
            restart_at: None,
            expected_before: 0,
            received: 0,
            duplicates: 0,
            reordered: 0,
            restarts: 0,
            strays: 0,
            gaps: Vec::new(),
            gaps_unlisted: 0,
            transit: None,
            jitter_16: 0,
            expected_prior: 0,
            received_prior: 0,
        }
    }

    /// Creates statistics that begin with a sequence number known from RTP-Info (RFC 2326 §12.33),
    /// so that packets lost at the very start are counted.
    pub fn starting_at(clock_rate_hz: u32, sequence: u16) -> Self {
        let mut reception = Reception::new(clock_rate_hz);
        reception.begin(sequence);
        // None seen: the highest is the one before the first.
        reception.highest = reception.base - 1;
        reception
    }

    /// Starts a new order with the next packet, of any number; the counts are kept.
    pub fn restart(&mut self) {
        self.expected_before = self.expected();
        (self.begun, self.restart_at, self.transit) = (false, None, None);
        self.restarts += 1;
    }

    /// Counts a packet. `arrival` is the time on any steady clock.
    pub fn receive(&mut self, header: &Header, arrival: Duration) -> SequenceUpdate {
        let kind = self.place(header.sequence);
        match kind {
            SequenceUpdate::Stray => {
                self.strays += 1;
                return kind;
            }
            SequenceUpdate::Duplicate => self.duplicates += 1,
            SequenceUpdate::Reordered => self.reordered += 1,
            _ => {}
        }
        self.received += 1;
        if kind != SequenceUpdate::Duplicate {
            self.time(header.timestamp, arrival);
        }
        kind
    }

    fn begin(&mut self, sequence: u16) {
        // One cycle above zero: numbers before the first stay positive.
        self.base = CYCLE + u64::from(sequence);
        self.highest = self.base;
        self.window.fill(0);
        self.begun = true;
    }

    /// A.1 update_seq.
    fn place(&mut self, sequence: u16) -> SequenceUpdate {
        if !self.begun {
            self.begin(sequence);
            self.mark(self.highest);
            return SequenceUpdate::InOrder;
        }
        let ahead = sequence.wrapping_sub(self.highest as u16);
        let behind = ahead.wrapping_neg();
        if (1..DROPOUT_MAX).contains(&ahead) {
            self.restart_at = None;
            self.advance(u64::from(ahead));
            return match ahead - 1 {
                0 => SequenceUpdate::InOrder,
                packets => SequenceUpdate::AfterGap { packets },
            };
        }
        if behind < MISORDER_MAX {
            // It precedes the very first packet: A.1 counts it as received, and it can fill no gap.
            return self.fill(self.highest - u64::from(behind));
        }
        if self.restart_at == Some(sequence) {
            self.expected_before += self.highest + 1 - self.base;
            self.begin(sequence);
            self.mark(self.highest);
            (self.restart_at, self.transit) = (None, None);
            self.restarts += 1;
            return SequenceUpdate::Restarted;
        }
        self.restart_at = Some(sequence.wrapping_add(1));
        SequenceUpdate::Stray
    }

    fn advance(&mut self, ahead: u64) {
        let skipped = Gap { first: self.highest + 1, packets: ahead - 1 };
        for number in skipped.first..skipped.first + skipped.packets {
            self.window[word(number)] &= !bit(number);
        }
        self.highest += ahead;
        self.mark(self.highest);
        match skipped.packets {
            0 => {}
            _ if self.gaps.len() < GAPS_MAX => self.gaps.push(skipped),
            _ => self.gaps_unlisted += 1,
        }
    }

    fn mark(&mut self, number: u64) {
        self.window[word(number)] |= bit(number);
    }

    /// A number at or below the highest.
    fn fill(&mut self, number: u64) -> SequenceUpdate {
        if number < self.base {
            return SequenceUpdate::Old;
        }
        if self.window[word(number)] & bit(number) != 0 {
            return SequenceUpdate::Duplicate;
        }
        self.mark(number);
        // The late packet is most likely of a late gap.
        let found = self.gaps.iter().rposition(|gap| number >= gap.first);
        if let Some(index) = found
            && let gap = self.gaps[index]
            && number < gap.first + gap.packets
        {
            let before = Gap { packets: number - gap.first, ..gap };
            let after = Gap { first: number + 1, packets: gap.packets - before.packets - 1 };
            let parts = [before, after].into_iter().filter(|part| part.packets > 0);
            let surplus = self.gaps.len() == GAPS_MAX && before.packets > 0 && after.packets > 0;
            self.gaps_unlisted += u64::from(surplus);
            let parts = parts.take(if surplus { 1 } else { 2 });
            self.gaps.splice(index..=index, parts);
        }
        SequenceUpdate::Reordered
    }

    /// A.8, in integers, scaled by 16.
    fn time(&mut self, timestamp: u32, arrival: Duration) {
        let rate = u128::from(self.clock_rate_hz);
        let units = arrival.as_nanos().saturating_mul(rate) / 1_000_000_000;
        let transit = (units as u32).wrapping_sub(timestamp);
        if let Some(last) = self.transit.replace(transit) {
            let difference = transit.wrapping_sub(last).cast_signed().unsigned_abs();
            self.jitter_16 += u64::from(difference);
            self.jitter_16 -= (self.jitter_16 - u64::from(difference) + 8) >> 4;
        }
    }

    /// Packets expected so far.
    pub fn expected(&self) -> u64 {
        let current = if self.begun { self.highest + 1 - self.base } else { 0 };
        self.expected_before + current
    }

    /// Packets received, late ones and duplicates included (§6.4.1).
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Packets expected and not received; duplicates are not subtracted.
    pub fn lost(&self) -> u64 {
        self.expected().saturating_sub(self.received - self.duplicates)
    }

    /// Packets received a second time or more.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Packets received after one with a higher number.
    pub fn reordered(&self) -> u64 {
        self.reordered
    }

    /// Restarts of the source at another sequence number.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Packets ignored because their number was far from all expected ones.
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// The gaps not filled, oldest first, [`GAPS_MAX`] at most.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Gaps beyond the list's limit.
    pub fn gaps_unlisted(&self) -> u64 {
        self.gaps_unlisted
    }

    /// The highest sequence number with its cycles, as reports carry it (§6.4.1).
    pub fn highest_sequence(&self) -> u32 {
        if self.begun { self.highest.wrapping_sub(CYCLE) as u32 } else { 0 }
    }

    /// Interarrival jitter in units of the clock (§6.4.1).
    pub fn jitter(&self) -> u32 {
        u32::try_from(self.jitter_16 >> 4).unwrap_or(u32::MAX)
    }

    /// Interarrival jitter as a time.
    pub fn jitter_time(&self) -> Duration {
        Duration::from_secs(u64::from(self.jitter())) / self.clock_rate_hz.max(1)
    }

    /// A report block about this source (A.3); the fraction is that since the last call. The caller
    /// fills in LSR and DLSR.
    pub fn report(&mut self, ssrc: u32) -> ReceptionReport {
        let (expected, received) = (self.expected(), self.received);
        let lost = i64::try_from(expected).unwrap_or(i64::MAX)
            - i64::try_from(received).unwrap_or(i64::MAX);
        let expected_interval = expected - self.expected_prior;
        let received_interval = received - self.received_prior;
        (self.expected_prior, self.received_prior) = (expected, received);
        let lost_interval = expected_interval.saturating_sub(received_interval);
        let fraction = (lost_interval << 8).checked_div(expected_interval).unwrap_or(0);
        ReceptionReport {
            ssrc,
            fraction_lost: u8::try_from(fraction).unwrap_or(u8::MAX),
            lost: lost.clamp(-0x80_0000, 0x7F_FFFF) as i32,
            highest_sequence: self.highest_sequence(),
            jitter: self.jitter(),
            last_sender_report: 0,
            delay_since_last_sender_report: 0,
        }
    }
}

fn word(number: u64) -> usize {
    (number / 64) as usize % WINDOW_WORDS
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

/// Gaps that are listed at most.
pub const GAPS_MAX: usize = 256;

/// A.1: a packet this far ahead is still a gap ("typical value").
const DROPOUT_MAX: u16 = 3000;

/// A packet this far behind is still late; A.1's typical value is 100, here it is the largest
/// distance of a gap ahead.
const MISORDER_MAX: u16 = 3000;

const CYCLE: u64 = 1 << 16;

const WINDOW_WORDS: usize = 64;

// Every number that can be called late has a bit of its own.
const _: () = assert!(MISORDER_MAX as usize <= WINDOW_WORDS * 64);

#[cfg(test)]
mod tests;
