// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the programmes of a transport stream and the formats of their tracks in its first packets.
//!
//! The survey is complete when the format of each track of each programme is known; otherwise it
//! ends when its caller stops feeding. A programme of the PAT without a map or without packets is
//! ignored: recordings cut down to one programme often keep the PAT of all.
//!
//! Sources: ISO/IEC 13818-1 §2.4.4 (tables), §2.6.18 (language descriptor); ISO 639-2.
//! Does not follow later map changes; does not read scrambled streams.

use super::format::{Coding, TrackFormat, format, tags};
use super::pes_times::presentation_of;
use super::psi::{self, Sections};
use super::tables::{PAT_PID, PROGRAMMES_MAX};
use super::{TsHeader, TsPacket};
use crate::TS_PACKET_BYTES;

/// Bytes of a PES packet that are examined.
const UNIT_BYTES_MAX: usize = 8192;

/// Most tracks of a programme that are examined; a satellite transponder has about eight in each.
const TRACKS_MAX: usize = 64;

/// Number of presentation times from which the picture rate is computed.
const TIMES_WANTED: usize = 50;

/// A programme of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programme {
    /// Its number in the PAT.
    pub number: u16,
    /// PID of its PMT.
    pub map_pid: u16,
    /// PID of its clock references.
    pub pcr_pid: u16,
    /// Descriptors of the programme.
    pub(super) descriptors: Vec<u8>,
    /// Its elementary streams in the order of the map, each PID once; streams beyond 64 are
    /// omitted.
    pub tracks: Vec<Track>,
}

/// An elementary stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Track {
    /// Its PID.
    pub pid: u16,
    /// stream_type from the PMT.
    pub stream_type: u8,
    /// Coding.
    pub coding: Coding,
    pub(super) descriptors: Vec<u8>,
    /// Format from its headers; none if no header was found.
    pub format: Option<TrackFormat>,
    /// True if it has packets.
    pub has_packets: bool,
    pub(super) unit: Vec<u8>,
    pub(super) times: Vec<u64>,
}

/// Examines the first packets of a stream one by one.
#[derive(Default)]
pub struct Survey {
    pat: Sections,
    maps: Vec<(u16, Sections)>,
    /// Number and PMT PID of each programme of the PAT.
    listed: Vec<(u16, u16)>,
    programmes: Vec<Programme>,
}

impl Survey {
    /// Consumes packets of 188 bytes.
    pub fn feed(&mut self, packets: &[u8]) {
        for bytes in packets.chunks_exact(TS_PACKET_BYTES) {
            let bytes: &[u8; TS_PACKET_BYTES] = bytes.try_into().expect("chunks of a packet");
            let packet = TsPacket { header: TsHeader::read(bytes), bytes };
            if packet.header.is_sync() && !packet.header.is_damaged() {
                self.packet(&packet);
            }
        }
    }

    fn packet(&mut self, packet: &TsPacket<'_>) {
        let pid = packet.header.pid();
        if pid == PAT_PID {
            let listed = &mut self.listed;
            self.pat.feed(0, packet, |section, _| {
                let programmes = psi::association(section).map(|table| table.programmes);
                for programme in programmes.unwrap_or_default() {
                    if !listed.contains(&programme) && listed.len() < PROGRAMMES_MAX {
                        listed.push(programme);
                    }
                }
            });
            for &(_, map_pid) in &self.listed {
                if !self.maps.iter().any(|&(pid, _)| pid == map_pid) {
                    self.maps.push((map_pid, Sections::default()));
                }
            }
        } else if let Some((map_pid, map)) = self.maps.iter_mut().find(|&&mut (map, _)| map == pid)
        {
            let (listed, programmes) = (&self.listed, &mut self.programmes);
            map.feed(0, packet, |section, _| {
                let programme = programme(section, *map_pid);
                let known = |new: &Programme| programmes.iter().any(|p| p.number == new.number);
                let is_listed = |new: &Programme| listed.contains(&(new.number, *map_pid));
                programmes.extend(programme.filter(|new| is_listed(new) && !known(new)));
            });
        }
        let tracks = self.programmes.iter_mut().flat_map(|programme| &mut programme.tracks);
        for track in tracks.filter(|track| track.pid == pid) {
            track.feed(packet);
        }
    }

    /// True if nothing more can be learned from further packets.
    pub fn is_complete(&self) -> bool {
        let mut tracks = self.programmes.iter().flat_map(|programme| &programme.tracks);
        !self.listed.is_empty()
            && self.programmes.len() == self.listed.len()
            && tracks.all(Track::is_complete)
    }

    /// Returns the programmes with packets, in the order of the PAT.
    pub fn finish(mut self) -> Vec<Programme> {
        for track in self.programmes.iter_mut().flat_map(|programme| &mut programme.tracks) {
            track.look();
            track.unit = Vec::new();
            if let Some(format) = track.format.as_mut().filter(|_| track.coding.is_video()) {
                format.rate_millihertz = format.rate_millihertz.or_else(|| rate(&mut track.times));
            }
        }
        let place = |number| self.listed.iter().position(|&(listed, _)| listed == number);
        self.programmes.sort_by_key(|programme| place(programme.number));
        let plays = |track: &Track| track.has_packets && track.coding != Coding::Data;
        self.programmes.retain(|programme| programme.tracks.iter().any(plays));
        self.programmes
    }
}

impl Programme {
    /// True if an extract of `only`, or of all tracks, equals that of `other` except for numbers in
    /// tables.
    pub fn extracts_alike(&self, other: &Programme, only: Option<u16>) -> bool {
        let tracks = |programme: &Programme| -> Vec<_> {
            let wanted = programme.tracks.iter();
            let wanted = wanted.filter(|track| only.is_none_or(|only| only == track.pid));
            wanted.map(|t| (t.pid, t.stream_type, t.descriptors.clone())).collect()
        };
        self.pcr_pid == other.pcr_pid
            && self.descriptors == other.descriptors
            && tracks(self) == tracks(other)
    }
}

/// Parses a PMT section into a programme.
fn programme(section: &[u8], map_pid: u16) -> Option<Programme> {
    let described = psi::described(section)?;
    let track = |&(pid, stream_type, descriptors): &(u16, u8, &[u8])| Track {
        pid,
        stream_type,
        coding: Coding::of(stream_type, descriptors),
        descriptors: descriptors.to_vec(),
        format: None,
        has_packets: false,
        unit: Vec::new(),
        times: Vec::new(),
    };
    let mut tracks: Vec<Track> = Vec::new();
    for stream in &described.streams {
        // A PID is one stream; a second entry for it in the map is ignored.
        if tracks.len() < TRACKS_MAX && tracks.iter().all(|known| known.pid != stream.0) {
            tracks.push(track(stream));
        }
    }
    Some(Programme {
        number: described.number,
        map_pid,
        pcr_pid: described.pcr_pid,
        descriptors: described.descriptors.to_vec(),
        tracks,
    })
}

impl Track {
    /// Returns its language as an ISO 639-2 code such as `deu`; none if the map names none.
    pub fn language(&self) -> Option<String> {
        const LANGUAGE: u8 = 0x0a;
        let (_, content) = tags(&self.descriptors).find(|&(tag, _)| tag == LANGUAGE)?;
        let code = content.get(..3)?.to_ascii_lowercase();
        let is_code = code.iter().all(u8::is_ascii_lowercase) && code != b"und";
        String::from_utf8(code).ok().filter(|_| is_code)
    }

    fn is_complete(&self) -> bool {
        match (self.coding, &self.format) {
            (Coding::Data | Coding::OtherVideo | Coding::OtherAudio, _) => true,
            (_, None) => false,
            (coding, Some(format)) => {
                !coding.is_video()
                    || format.rate_millihertz.is_some()
                    || self.times.len() >= TIMES_WANTED
            }
        }
    }

    fn feed(&mut self, packet: &TsPacket<'_>) {
        self.has_packets |= packet.header.has_payload();
        if packet.header.is_scrambled() {
            return;
        }
        let mut payload = packet.payload();
        if packet.header.starts_unit() {
            self.look();
            self.unit.clear();
            let [0, 0, 1, _, _, _, _, _, header_bytes, ..] = *payload else { return };
            if self.coding.is_video() && self.times.len() < TIMES_WANTED {
                self.times.extend(presentation_of(payload));
            }
            payload = payload.get(9 + usize::from(header_bytes)..).unwrap_or(&[]);
        } else if self.unit.is_empty() {
            return;
        }
        if self.format.is_none() {
            let room = UNIT_BYTES_MAX - self.unit.len();
            self.unit.extend_from_slice(&payload[..payload.len().min(room)]);
        }
    }

    /// Parses the format from the collected bytes of a PES packet.
    fn look(&mut self) {
        if self.format.is_none() && !self.unit.is_empty() {
            self.format = format(self.coding, &self.unit);
        }
    }
}

/// Computes the number of pictures in 1,000 seconds from presentation times in coding order.
fn rate(times: &mut [u64]) -> Option<u32> {
    // Pictures coded later may belong between the last of these times.
    const REORDERED_MAX: usize = 8;
    const CLOCK_MILLIHERTZ: u64 = 90_000_000;
    times.sort_unstable();
    let times = times.get(..times.len().checked_sub(REORDERED_MAX)?)?;
    let (first, last) = (times.first()?, times.last()?);
    let steps = times.len() as u64 - 1;
    let span = (last - first).checked_div(steps).filter(|&span| span > 0)?;
    let is_even = times.windows(2).all(|pair| (pair[1] - pair[0]).abs_diff(span) <= span / 8);
    let rate = (CLOCK_MILLIHERTZ * steps + (last - first) / 2) / (last - first);
    u32::try_from(rate).ok().filter(|_| is_even)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_told_by_even_times_alone() {
        let times = |step: u64| (0..20).map(|at| 1000 + at * step).collect::<Vec<_>>();
        assert_eq!(rate(&mut times(3600)), Some(25_000));
        assert_eq!(rate(&mut times(3003)), Some(29_970));
        let mut reordered = times(3600);
        reordered.swap(3, 5);
        assert_eq!(rate(&mut reordered), Some(25_000));
        let mut uneven = times(3600);
        uneven[4] += 1800;
        assert_eq!(rate(&mut uneven), None);
        assert_eq!(rate(&mut [0; 5]), None);
        assert_eq!(rate(&mut [7; 20]), None);
    }
}
