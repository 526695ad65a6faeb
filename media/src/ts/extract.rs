// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extracts one programme, or one audio track of it, as a separate transport stream.
//!
//! A stream for HTTP Live Streaming holds one programme (RFC 8216 §3.2), and a rendition one audio
//! track. Packets of the wanted PIDs pass unchanged. PAT and PMT are regenerated at the positions
//! of the originals. A clock on an omitted PID continues in packets without payload.
//!
//! The output depends only on the packets fed and on [`ContinuityCounters`], so it can be
//! regenerated from any packet whose counters were stored. Costs a table lookup per packet and a
//! copy of each packet that passes.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.3 (continuity), §2.4.4 (tables).
//! Does not follow map changes; a PID removed from the map stays silent.

use wire::mp2t::TS_SYNC_BYTE;

use super::psi::crc32_mpeg;
use super::survey::{Programme, Track};
use super::tables::PAT_PID;
use super::{PIDS, TsHeader, TsPacket};
use crate::TS_PACKET_BYTES;

/// Continuity counters of the tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContinuityCounters {
    pat: u8,
    map: u8,
}

/// Produces the stream.
pub struct Extract {
    wanted: Box<[bool; PIDS]>,
    map_pid: u16,
    pcr_pid: u16,
    pat: Vec<u8>,
    map: Vec<u8>,
    counters: ContinuityCounters,
}

impl Extract {
    /// Creates an extract of all of `programme`, or of the track `only`.
    pub fn new(programme: &Programme, only: Option<u16>) -> Self {
        let mut wanted = Box::new([false; PIDS]);
        let is_wanted = |pid| only.is_none_or(|only| only == pid);
        let tracks: Vec<_> = programme.tracks.iter().filter(|t| is_wanted(t.pid)).collect();
        for track in &tracks {
            wanted[usize::from(track.pid)] = true;
        }
        let mut map = map(programme, &tracks, true);
        if map.len() > BODY_BYTES_MAX {
            map = self::map(programme, &tracks, false);
        }
        let mut pat = programme.number.to_be_bytes().to_vec();
        pat.extend((0xe000 | programme.map_pid).to_be_bytes());
        Self {
            wanted,
            map_pid: programme.map_pid,
            pcr_pid: programme.pcr_pid,
            pat: section(0x00, 1, 0, &pat),
            map: section(0x02, programme.number, 0, &map),
            counters: ContinuityCounters::default(),
        }
    }

    /// Returns the counters before the next packet.
    pub fn counters(&self) -> ContinuityCounters {
        self.counters
    }

    /// Continues at a packet before which the counters had these values.
    pub fn resume(&mut self, counters: ContinuityCounters) {
        self.counters = counters;
    }

    /// Consumes the next packet and appends the corresponding output to `out`.
    pub fn feed(&mut self, bytes: &[u8; TS_PACKET_BYTES], out: &mut Vec<u8>) {
        let packet = TsPacket { header: TsHeader::read(bytes), bytes };
        let pid = packet.header.pid();
        if pid == PAT_PID || pid == self.map_pid {
            if packet.header.starts_unit() && !packet.header.is_damaged() {
                let (section, counter) = match pid {
                    PAT_PID => (&self.pat, &mut self.counters.pat),
                    _ => (&self.map, &mut self.counters.map),
                };
                packets(pid, section, counter, out);
            }
        } else if self.wanted[usize::from(pid)] {
            out.extend_from_slice(bytes);
        } else if pid == self.pcr_pid {
            clock(&packet, out);
        }
    }
}

/// Most bytes of a section between its header and its CRC (ISO/IEC 13818-1 §2.4.4.9).
pub(super) const BODY_BYTES_MAX: usize = 1021 - 9;

/// Builds the body of a PMT with these tracks.
fn map(programme: &Programme, tracks: &[&Track], is_described: bool) -> Vec<u8> {
    let mut map = programme.pcr_pid.to_be_bytes().to_vec();
    map[0] |= 0xe0;
    let mut describe = |head: &[u8], descriptors: &[u8]| {
        let descriptors = if is_described { descriptors } else { &[] };
        map.extend(head);
        map.extend((0xf000 | descriptors.len() as u16).to_be_bytes());
        map.extend(descriptors);
    };
    describe(&[], &programme.descriptors);
    for track in tracks {
        let [high, low] = (0xe000 | track.pid).to_be_bytes();
        describe(&[track.stream_type, high, low], &track.descriptors);
    }
    map
}

/// Builds a complete long-form section with current_next_indicator set.
pub(crate) fn section(table_id: u8, number: u16, version: u8, body: &[u8]) -> Vec<u8> {
    const HEADER_AND_CRC: usize = 5 + 4;
    let mut section = vec![table_id];
    // The second bit is zero in the tables of ISO/IEC 13818-1 and one in those of EN 300 468.
    let flags = if table_id < 0x40 { 0xb000 } else { 0xf000 };
    section.extend((flags | (body.len() + HEADER_AND_CRC) as u16).to_be_bytes());
    section.extend(number.to_be_bytes());
    section.extend([0xc1 | version << 1, 0, 0]);
    section.extend(body);
    section.extend(crc32_mpeg(&section).to_be_bytes());
    section
}

/// Appends a section as packets.
pub(crate) fn packets(pid: u16, section: &[u8], counter: &mut u8, out: &mut Vec<u8>) {
    let mut payload = vec![0];
    payload.extend(section);
    for (index, part) in payload.chunks(TS_PACKET_BYTES - 4).enumerate() {
        let start = if index == 0 { 0x4000 } else { 0 };
        let end = out.len() + TS_PACKET_BYTES;
        out.push(TS_SYNC_BYTE);
        out.extend((start | pid).to_be_bytes());
        out.push(0x10 | *counter);
        out.extend(part);
        out.resize(end, 0xff);
        *counter = (*counter + 1) & 0x0f;
    }
}

/// Appends the clock reference of a packet, if it has one, as a packet without payload.
fn clock(packet: &TsPacket<'_>, out: &mut Vec<u8>) {
    if packet.adaptation().pcr.is_none() || packet.header.is_damaged() {
        return;
    }
    const HAS_PCR: u8 = 0x10;
    const IS_DISCONTINUOUS: u8 = 0x80;
    let end = out.len() + TS_PACKET_BYTES;
    let bytes = packet.bytes;
    out.extend([TS_SYNC_BYTE, bytes[1] & 0x1f, bytes[2], 0x20, (TS_PACKET_BYTES - 5) as u8]);
    out.push(HAS_PCR | bytes[5] & IS_DISCONTINUOUS);
    out.extend(&bytes[6..12]);
    out.resize(end, 0xff);
}

#[cfg(test)]
mod tests {
    use super::super::survey::Survey;
    use super::*;

    /// Returns packets of two programmes with one video and two audio streams each.
    fn stream() -> Vec<u8> {
        let mut out = Vec::new();
        let pat = [0, 1, 0xe1, 0, 0, 2, 0xe2, 0];
        for round in 0..20_u8 {
            packets(0, &section(0x00, 1, 0, &pat), &mut (round & 15), &mut out);
            for (number, base) in [(1, 0x100_u16), (2, 0x200)] {
                let mut map = (0xe000 | (base + 1)).to_be_bytes().to_vec();
                map.extend([0xf0, 0]);
                for (stream_type, pid) in [(0x1b, base + 1), (0x0f, base + 2), (0x81, base + 3)] {
                    map.push(stream_type);
                    map.extend((0xe000 | pid).to_be_bytes());
                    map.extend([0xf0, 6, 0x0a, 4, b'd', b'e', b'u', 0]);
                }
                let table = section(0x02, number, 0, &map);
                packets(base, &table, &mut (round & 15), &mut out);
                for pid in base + 1..=base + 3 {
                    let [high, low] = pid.to_be_bytes();
                    let end = out.len() + TS_PACKET_BYTES;
                    out.extend([0x47, 0x40 | high, low, 0x30 | round & 15, 7, 0x10]);
                    out.extend([0, 0, 0, round, 0x7e, 0]);
                    out.extend([0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0, 0xff, 0xf1, 0x50, 0x80]);
                    out.resize(end, round);
                }
            }
        }
        out
    }

    fn programmes(stream: &[u8]) -> Vec<Programme> {
        let mut survey = Survey::default();
        survey.feed(stream);
        survey.finish()
    }

    fn extracted(extract: &mut Extract, stream: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for packet in stream.chunks_exact(TS_PACKET_BYTES) {
            extract.feed(packet.try_into().unwrap(), &mut out);
        }
        out
    }

    #[test]
    fn an_extract_has_one_programme_or_one_sound_and_its_clock() {
        let stream = stream();
        let programmes = programmes(&stream);
        assert_eq!(programmes.iter().map(|p| p.number).collect::<Vec<_>>(), [1, 2]);
        let second = &programmes[1];
        let whole = extracted(&mut Extract::new(second, None), &stream);
        let [found] = &self::programmes(&whole)[..] else { panic!("one programme") };
        assert_eq!(found, second);
        let pids = |stream: &[u8]| -> Vec<u16> {
            stream
                .chunks_exact(TS_PACKET_BYTES)
                .map(|packet| TsHeader::read(packet).pid())
                .collect()
        };
        assert_eq!(pids(&whole)[..5], [0, 0x200, 0x201, 0x202, 0x203]);

        let sound = extracted(&mut Extract::new(second, Some(0x202)), &stream);
        assert_eq!(pids(&sound)[..4], [0, 0x200, 0x201, 0x202]);
        let clock: &[u8; TS_PACKET_BYTES] = sound[2 * 188..3 * 188].try_into().unwrap();
        let clock = TsPacket { header: TsHeader::read(clock), bytes: clock };
        assert!(clock.payload().is_empty() && clock.adaptation().pcr.is_some());
        let [found] = &self::programmes(&sound)[..] else { panic!("one programme") };
        assert_eq!(found.tracks.len(), 1);
        assert_eq!(found.tracks[0].language().as_deref(), Some("deu"));
    }

    #[test]
    fn an_extract_goes_on_from_counters_with_the_same_bytes() {
        let stream = stream();
        let programme = &programmes(&stream)[1];
        let mut first = Extract::new(programme, Some(0x203));
        let half = stream.len() / TS_PACKET_BYTES / 2 * TS_PACKET_BYTES;
        let mut made = extracted(&mut first, &stream[..half]);
        let mut second = Extract::new(programme, Some(0x203));
        second.resume(first.counters());
        made.extend(extracted(&mut second, &stream[half..]));
        assert!(made == extracted(&mut Extract::new(programme, Some(0x203)), &stream));
    }

    #[test]
    fn a_map_too_long_for_a_section_loses_its_descriptors() {
        let mut programme = programmes(&stream())[0].clone();
        for track in &mut programme.tracks {
            track.descriptors = vec![0; 400];
        }
        let made = extracted(&mut Extract::new(&programme, None), &stream());
        assert_eq!(programmes(&made)[0].tracks.len(), 3);
    }
}
