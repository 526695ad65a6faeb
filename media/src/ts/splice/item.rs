// SPDX-License-Identifier: MIT OR Apache-2.0
//! Describes a file before it is joined: its programme, its clock, its first timestamps.
//!
//! Output PIDs depend only on the kind and the order of the streams, so the first video of every
//! file has the same PID. Video, audio and PES packets of private data (subtitles, teletext) are
//! joined. Streams of sections are omitted: their times, such as those of splice commands, are
//! times of the file.
//!
//! Sources: ISO/IEC 13818-1 §2.4.4.9 (map), §2.6.16 (CA descriptor), table 2-34 (stream types).
//! Does not examine payloads after the PES header.

use crate::ts::format::{Coding, tags};
use crate::ts::pes_times::PesTimes;
use crate::ts::survey::Programme;
use crate::ts::{NULL_PID, PCR_MODULUS, TsHeader, TsPacket};
use crate::{SpliceRefusal, TS_PACKET_BYTES};

/// PID of the first output stream; stream `n` of the table of outputs has this PID plus `n`.
pub(super) const FIRST_PID: u16 = 0x100;

/// Output streams: 16 video, 16 audio, 16 others.
pub(super) const OUTPUTS: usize = 48;

/// Output streams of each kind.
const OUTPUTS_PER_KIND: usize = 16;

/// Most streams of an item.
pub(super) const STREAMS_MAX: usize = 32;

/// Tag of the conditional access descriptor.
const CA_DESCRIPTOR: u8 = 0x09;

/// Stream types of PES packets that are neither video nor audio: private data, metadata.
const DATA_TYPES: [u8; 2] = [0x06, 0x15];

/// A file, or the rest of one, that can be joined.
#[derive(Debug, Clone)]
pub struct SpliceItem {
    pub(super) pcr_pid: u16,
    pub(super) descriptors: Vec<u8>,
    pub(super) streams: Vec<SpliceStream>,
    left_out: Vec<(u16, u8)>,
    /// First clock reference and the due time of its packet.
    pub(super) clock: Option<(u64, u64)>,
    scrambled: Option<u16>,
    packets: u64,
    /// Due time of the first packet.
    begins: u64,
}

/// A stream of an item.
#[derive(Debug, Clone)]
pub(super) struct SpliceStream {
    pub(super) pid: u16,
    /// Index in the table of outputs.
    pub(super) output: usize,
    pub(super) stream_type: u8,
    pub(super) descriptors: Vec<u8>,
    pub(super) coding: Coding,
    /// Decoding time of the first PES packet that has one, 90 kHz.
    pub(super) first_time: Option<u64>,
}

impl SpliceItem {
    /// Creates an item from programme `number`, or the first, of the programmes found by a
    /// [`Survey`](crate::Survey).
    pub fn new(programmes: &[Programme], number: Option<u16>) -> Result<Self, SpliceRefusal> {
        let first = programmes.first().ok_or(SpliceRefusal::NoMap)?;
        let programme = match number {
            None => first,
            Some(number) => programmes
                .iter()
                .find(|programme| programme.number == number)
                .ok_or(SpliceRefusal::NoProgramme { number, first: first.number })?,
        };
        if programme.pcr_pid == NULL_PID {
            return Err(SpliceRefusal::NoClock { pid: NULL_PID, packets: 0 });
        }
        let mut item = Self {
            pcr_pid: programme.pcr_pid,
            descriptors: without_ca(&programme.descriptors),
            streams: Vec::new(),
            left_out: Vec::new(),
            clock: None,
            scrambled: None,
            packets: 0,
            begins: 0,
        };
        let mut used = [0; 3];
        for track in &programme.tracks {
            let kind = match track.coding {
                coding if coding.is_video() => 0,
                coding if coding.is_audio() => 1,
                _ if DATA_TYPES.contains(&track.stream_type) => 2,
                _ => {
                    item.left_out.push((track.pid, track.stream_type));
                    continue;
                }
            };
            if used[kind] == OUTPUTS_PER_KIND || item.streams.len() == STREAMS_MAX {
                return Err(SpliceRefusal::TooManyStreams { limit: STREAMS_MAX });
            }
            item.streams.push(SpliceStream {
                pid: track.pid,
                output: kind * OUTPUTS_PER_KIND + used[kind],
                stream_type: track.stream_type,
                descriptors: without_ca(&track.descriptors),
                coding: track.coding,
                first_time: None,
            });
            used[kind] += 1;
        }
        item.streams.sort_by_key(|stream| stream.output);
        Ok(item)
    }

    /// Examines the next packet from the entry position on, before any is pushed, with its due
    /// time. Returns true if no more packets are needed; a second of packets suffices for any file
    /// that conforms to the standard.
    pub fn look_ahead(&mut self, bytes: &[u8; TS_PACKET_BYTES], due: u64) -> bool {
        let packet = TsPacket { header: TsHeader::read(bytes), bytes };
        if self.packets == 0 {
            self.begins = due;
        }
        self.packets += 1;
        if packet.header.is_sync() && !packet.header.is_damaged() {
            self.look(&packet, due);
        }
        self.clock.is_some()
            && self
                .streams
                .iter()
                .all(|stream| !stream.coding.is_media() || stream.first_time.is_some())
    }

    fn look(&mut self, packet: &TsPacket<'_>, due: u64) {
        let pid = packet.header.pid();
        if pid == self.pcr_pid && self.clock.is_none() {
            self.clock = packet.adaptation().pcr.map(|pcr| (pcr, due));
        }
        let Some(stream) = self.streams.iter_mut().find(|stream| stream.pid == pid) else { return };
        if packet.header.has_payload() && packet.header.is_scrambled() {
            self.scrambled.get_or_insert(pid);
        } else if packet.header.starts_unit() && stream.first_time.is_none() {
            stream.first_time = PesTimes::find(packet.payload()).decoding();
        }
    }

    /// Returns PID and stream type of the programme's streams that are not joined.
    pub fn left_out(&self) -> &[(u16, u8)] {
        &self.left_out
    }

    /// Checks from the examined packets if the item can be joined. Returns its first clock
    /// reference and the due time of that.
    pub(super) fn check(&self) -> Result<(u64, u64), SpliceRefusal> {
        if let Some(pid) = self.scrambled {
            return Err(SpliceRefusal::Scrambled { pid });
        }
        self.clock.ok_or(SpliceRefusal::NoClock { pid: self.pcr_pid, packets: self.packets })
    }

    /// Returns the ticks from the first packet to the first clock reference.
    pub(super) fn before_clock(&self) -> u64 {
        self.clock.map_or(0, |(_, due)| due.saturating_sub(self.begins))
    }

    /// Returns the ticks from the first clock reference to the first decoding time of a stream;
    /// none if that is so distant that its PES packet will be dropped.
    pub(super) fn lead(&self, stream: &SpliceStream) -> Option<i64> {
        let (pcr, _) = self.clock?;
        let ticks = stream.first_time? * 300;
        let lead = super::time_base::difference(ticks, pcr, PCR_MODULUS);
        Some(lead).filter(|lead| lead.abs() <= super::playing::FAR_TICKS)
    }
}

/// Returns the well-formed descriptors, without those of conditional access: the output is
/// unscrambled.
fn without_ca(descriptors: &[u8]) -> Vec<u8> {
    let mut kept = Vec::new();
    for (tag, content) in tags(descriptors).filter(|&(tag, _)| tag != CA_DESCRIPTOR) {
        kept.extend([tag, content.len() as u8]);
        kept.extend(content);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditional_access_is_left_out_of_descriptors_and_the_language_kept() {
        let descriptors = [9, 4, 1, 2, 3, 4, 0x0a, 4, b'd', b'e', b'u', 0, 0x52, 200, 1];
        assert_eq!(without_ca(&descriptors), [0x0a, 4, b'd', b'e', b'u', 0]);
    }

    #[test]
    fn nothing_can_be_joined_without_a_map_or_with_another_programme() {
        assert_eq!(SpliceItem::new(&[], None).unwrap_err(), SpliceRefusal::NoMap);
        let programme = Programme {
            number: 7,
            map_pid: 0x20,
            pcr_pid: 0x21,
            descriptors: Vec::new(),
            tracks: Vec::new(),
        };
        let refusal = SpliceItem::new(std::slice::from_ref(&programme), Some(8)).unwrap_err();
        assert_eq!(refusal, SpliceRefusal::NoProgramme { number: 8, first: 7 });
        let item = SpliceItem::new(&[programme], Some(7)).unwrap();
        assert_eq!(item.check(), Err(SpliceRefusal::NoClock { pid: 0x21, packets: 0 }));
    }
}
