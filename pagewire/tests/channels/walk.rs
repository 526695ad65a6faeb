// SPDX-License-Identifier: MIT OR Apache-2.0
//! A walk through a received transport stream, packet by packet, that finds each seam: gaps of
//! counters, bad tables, a non-linear clock, times out of order.
//!
//! Written from the standard, without the sender's code; the crate `mpeg2ts-reader` reads counters,
//! clocks and PES times a second time, and both results must agree.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.3 (continuity), §2.4.3.5 (PCR), §2.4.3.7 (PTS, DTS), annex A
//! (CRC); ETSI TR 101 290 §5.2 (intervals).

use std::collections::BTreeMap;

use mpeg2ts_reader::packet::Packet;
use mpeg2ts_reader::pes::{PesContents, PesHeader, PtsDts};

/// Bytes of a transport stream.
pub(crate) struct Stream(pub(crate) Vec<u8>);

/// Figures of a stream.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    pub(crate) packets: u64,
    pub(crate) null_packets: u64,
    /// Places where a counter does not follow the previous one, in words.
    pub(crate) counter_gaps: Vec<String>,
    pub(crate) tables: BTreeMap<u16, u64>,
    /// Clock references: packet index, and value unwrapped.
    pub(crate) clocks: Vec<(u64, i128)>,
    /// Decoding times of each PID that carries PES packets, unwrapped, in ticks of 90 kHz.
    pub(crate) times: BTreeMap<u16, Vec<i64>>,
    /// Packet index of the start of each PES packet.
    pub(crate) starts: BTreeMap<u16, Vec<u64>>,
    /// Other faults, in words.
    pub(crate) faults: Vec<String>,
}

impl Stream {
    /// Reads all packets.
    pub(crate) fn walk(&self) -> Walk {
        let mut walk = Walk::default();
        let mut counters = BTreeMap::new();
        if !self.0.len().is_multiple_of(PACKET_BYTES) {
            walk.faults.push(format!("{} bytes: no whole packets", self.0.len()));
        }
        for (index, packet) in self.0.chunks_exact(PACKET_BYTES).enumerate() {
            walk.packet(index as u64, packet, &mut counters);
        }
        walk
    }
}

impl Walk {
    fn packet(&mut self, index: u64, packet: &[u8], counters: &mut BTreeMap<u16, u8>) {
        self.packets += 1;
        if packet[0] != 0x47 || packet[1] & 0x80 != 0 {
            self.faults.push(format!("packet {index}: no sync byte, or an error indicator"));
            return;
        }
        let pid = u16::from(packet[1] & 0x1f) << 8 | u16::from(packet[2]);
        if pid == NULL_PID {
            self.null_packets += 1;
            return;
        }
        let (has_field, has_payload) = (packet[3] & 0x20 != 0, packet[3] & 0x10 != 0);
        let counter = packet[3] & 0x0f;
        if let Some(last) = counters.insert(pid, counter) {
            // A packet without payload does not count (§2.4.3.3).
            let wanted = if has_payload { (last + 1) & 15 } else { last };
            if counter != wanted {
                let gap = format!("packet {index}, PID {pid:#x}: {counter} where {wanted} is next");
                self.counter_gaps.push(gap);
            }
        }
        let mut payload = 4;
        if has_field {
            payload += 1 + usize::from(packet[4]);
            if packet[4] > 0 && packet[5] & 0x80 != 0 {
                self.faults.push(format!("packet {index}: a discontinuity is announced"));
            }
            if let Some(value) = clock_of(packet) {
                self.clock(index, value);
            }
        }
        if has_payload && payload >= PACKET_BYTES {
            self.faults.push(format!("packet {index}: no room for its payload"));
        } else if has_payload && packet[1] & 0x40 != 0 {
            self.unit(index, pid, &packet[payload..]);
        }
        self.compare(index, packet, pid, counter);
    }

    fn clock(&mut self, index: u64, value: u64) {
        let last = self.clocks.last().map(|(_, last)| *last);
        self.clocks.push((index, unwrap(last, value.into(), PCR_MODULUS)));
    }

    /// Handles the start of a section or of a PES packet.
    fn unit(&mut self, index: u64, pid: u16, payload: &[u8]) {
        if pid <= SDT_PID || pid == PMT_PID {
            let section = &payload[1 + usize::from(payload[0])..];
            let bytes = 3 + usize::from(section[1] & 0x0f) * 256 + usize::from(section[2]);
            match section.get(..bytes) {
                Some(section) if crc32(section) == 0 => *self.tables.entry(pid).or_default() += 1,
                _ => self.faults.push(format!("packet {index}, PID {pid:#x}: a bad table")),
            }
            return;
        }
        if payload.get(..3) != Some(&[0, 0, 1]) {
            self.faults.push(format!("packet {index}, PID {pid:#x}: no start of a PES packet"));
            return;
        }
        let time = |at: usize| {
            let b = |offset: usize| i64::from(payload[at + offset]);
            (b(0) >> 1 & 7) << 30 | b(1) << 22 | (b(2) >> 1) << 15 | b(3) << 7 | b(4) >> 1
        };
        let (presented, decoded) = match payload[7] >> 6 {
            2 => (time(9), time(9)),
            3 => (time(9), time(14)),
            _ => return self.faults.push(format!("packet {index}: a PES packet without a time")),
        };
        let times = self.times.entry(pid).or_default();
        let decoded = unwrap(times.last().map(|last| i128::from(*last)), decoded.into(), TIMES);
        let delay = (i128::from(presented) - decoded).rem_euclid(TIMES);
        if delay > 90_000 {
            self.faults.push(format!("packet {index}: presented {delay} ticks after decoding"));
        }
        times.push(decoded as i64);
        self.starts.entry(pid).or_default().push(index);
    }

    /// Reads the packet with an independent parser and compares the results.
    fn compare(&mut self, index: u64, bytes: &[u8], pid: u16, counter: u8) {
        let packet = Packet::new(bytes);
        let is_same =
            u16::from(packet.pid()) == pid && packet.continuity_counter().count() == counter;
        let clock = packet.adaptation_field().and_then(|field| field.pcr().ok());
        let clock = clock.map(|clock| clock.base() * 300 + u64::from(clock.extension()));
        let clock = clock.map(i128::from);
        let own = self.clocks.last().filter(|(at, _)| *at == index);
        let own = own.map(|(_, value)| value.rem_euclid(PCR_MODULUS));
        let is_unit = packet.payload_unit_start_indicator() && pid > SDT_PID && pid != PMT_PID;
        let time = packet.payload().filter(|_| is_unit).and_then(|payload| {
            let header = PesHeader::from_bytes(payload)?;
            let PesContents::Parsed(Some(contents)) = header.contents() else { return None };
            match contents.pts_dts() {
                Ok(PtsDts::PtsOnly(Ok(time)) | PtsDts::Both { dts: Ok(time), .. }) => {
                    Some(i128::from(time.value()))
                }
                _ => None,
            }
        });
        let starts = self.starts.get(&pid).and_then(|starts| starts.last());
        let last = self.times.get(&pid).and_then(|times| times.last());
        let own_time = last.filter(|_| starts == Some(&index)).map(|time| i128::from(*time));
        let own_time = own_time.map(|time| time.rem_euclid(TIMES));
        if !is_same || clock != own || time != own_time {
            let others = format!("clock {clock:?} not {own:?}, time {time:?} not {own_time:?}");
            self.faults.push(format!("packet {index}: two parsers disagree: {others}"));
        }
    }

    /// Asserts a stream without a seam; clocks and times may jump forward by `jump_ms`.
    #[track_caller]
    pub(crate) fn assert_seamless(&self, jump_ms: i128) {
        let gaps = &self.counter_gaps;
        assert!(gaps.is_empty(), "{} gaps of counters: {:?}", gaps.len(), few(gaps));
        assert!(self.faults.is_empty(), "{} faults: {:?}", self.faults.len(), few(&self.faults));
        for pid in [0, SDT_PID, PMT_PID] {
            assert!(self.tables.get(&pid) > Some(&0), "no table on PID {pid:#x}");
        }
        for pair in self.clocks.windows(2) {
            let step = pair[1].1 - pair[0].1;
            let limit = (CLOCK_MS_MAX + jump_ms) * 27_000;
            assert!(step > 0 && step <= limit, "a clock step of {step} ticks: {pair:?}");
        }
        for (pid, times) in &self.times {
            for (at, pair) in times.windows(2).enumerate() {
                let step = pair[1] - pair[0];
                let limit = (TIME_MS_MAX + jump_ms) * 90;
                let is_in_order = step > 0 && i128::from(step) <= limit;
                assert!(is_in_order, "PID {pid:#x}, PES packet {at}: a step of {step} ticks");
            }
        }
    }

    /// Asserts that counters and clock continue, where files may be damaged or cut.
    #[track_caller]
    pub(crate) fn assert_goes_on(&self, name: &str) {
        let gaps = &self.counter_gaps;
        assert!(gaps.is_empty(), "{name}: {} gaps of counters: {:?}", gaps.len(), few(gaps));
        for pair in self.clocks.windows(2) {
            let step = pair[1].1 - pair[0].1;
            assert!(step > 0 && step < 27_000_000 / 2, "{name}: a clock step of {step}");
        }
    }

    /// Asserts that each PES packet begins before its decoding time.
    #[track_caller]
    pub(crate) fn assert_in_time(&self) {
        for (pid, times) in &self.times {
            for (time, start) in times.iter().zip(&self.starts[pid]) {
                let before = self.clocks.partition_point(|(at, _)| at <= start);
                let Some((_, clock)) = before.checked_sub(1).map(|at| self.clocks[at]) else {
                    continue;
                };
                let ahead = (i128::from(*time) * 300 - clock).rem_euclid(PCR_MODULUS);
                let is_ahead = ahead < 10 * 27_000_000;
                assert!(is_ahead, "PID {pid:#x}, packet {start}: decoded before it has come");
            }
        }
    }

    /// Returns the largest deviation of a clock reference from the straight line of a constant
    /// rate, in ns.
    pub(crate) fn line_deviation_ns(&self, bits_per_second: u64) -> f64 {
        let Some((first, origin)) = self.clocks.first() else { return f64::INFINITY };
        let deviation = |(index, value): &(u64, i128)| {
            let bits = i128::from(index - first) * PACKET_BYTES as i128 * 8;
            let wanted = bits as f64 * 27e6 / bits_per_second as f64;
            (((value - origin) as f64 - wanted) / 27e6 * 1e9).abs()
        };
        self.clocks.iter().map(deviation).fold(0.0, f64::max)
    }
}

/// Returns the clock reference of a packet that has one.
pub(crate) fn clock_of(packet: &[u8]) -> Option<u64> {
    let has_clock = packet[3] & 0x20 != 0 && packet[4] > 0 && packet[5] & 0x10 != 0;
    let bytes = packet[6..12].iter().filter(|_| has_clock);
    let field = bytes.fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
    has_clock.then_some((field >> 15) * 300 + (field & 0x1ff))
}

fn few(texts: &[String]) -> &[String] {
    &texts[..texts.len().min(5)]
}

/// Returns the value nearest to `last` that has these low digits.
fn unwrap(last: Option<i128>, value: i128, modulus: i128) -> i128 {
    let Some(last) = last else { return value };
    let forward = (value - last).rem_euclid(modulus);
    if forward > modulus / 2 { last + forward - modulus } else { last + forward }
}

fn crc32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte) << 24, |crc, _| {
            crc << 1 ^ if crc >> 31 == 1 { 0x04c1_1db7 } else { 0 }
        })
    })
}

pub(crate) const PACKET_BYTES: usize = 188;
pub(crate) const PCR_MODULUS: i128 = (1 << 33) * 300;
const TIMES: i128 = 1 << 33;
const NULL_PID: u16 = 0x1fff;
const SDT_PID: u16 = 0x11;
const PMT_PID: u16 = 0x1000;
/// ETSI TR 101 290 §5.2.2: clock references are at most 100 ms apart.
const CLOCK_MS_MAX: i128 = 100;
/// Times of one stream: at most 700 ms apart (ISO/IEC 13818-1 §2.7.4).
const TIME_MS_MAX: i128 = 700;
