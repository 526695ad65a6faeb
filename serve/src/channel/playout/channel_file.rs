// SPDX-License-Identifier: MIT OR Apache-2.0
//! channel_file: a file that a channel plays: its packets with their times, and its duration.
//!
//! The duration of play is measured by the pictures and the sound: files often have a picture or
//! two more than their clock has time for, and a channel that started the next file by the clock
//! alone would lose them. A few seconds of packets at both ends are read for that, once a file.
//!
//! Sources: `media::Splicer::media_end`.
//! Does not follow a recording: a file that is being written is refused until it is complete.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use media::{
    EntryPoint, OpenUnits, SpliceItem, SpliceRefusal, SpliceSettings, Splicer, Survey,
    TICKS_PER_SECOND, TS_PACKET_BYTES,
};

use super::channel_clock::duration_of;
use crate::library::asset::Asset;

/// A file with its plan.
pub(super) struct ChannelFile {
    pub(super) asset: Arc<Asset>,
    file: File,
    programmes: Vec<media::Programme>,
    /// Programme number to play; the first without.
    program: Option<u16>,
    /// Duration of play.
    pub(super) duration: Duration,
}

/// Reason why a channel cannot play a file.
#[derive(Debug)]
pub(super) enum Unplayable {
    /// The file is still written.
    Recorded,
    /// Its packets cannot be joined to others.
    Refused(SpliceRefusal),
    /// It cannot be read.
    Unreadable(io::Error),
}

impl fmt::Display for Unplayable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unplayable::Recorded => f.write_str("it is being recorded; it plays when complete"),
            Unplayable::Refused(refusal) => refusal.fmt(f),
            Unplayable::Unreadable(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                f.write_str("it became shorter while it played")
            }
            Unplayable::Unreadable(error) => write!(f, "it cannot be read: {error}"),
        }
    }
}

impl From<io::Error> for Unplayable {
    fn from(error: io::Error) -> Unplayable {
        Unplayable::Unreadable(error)
    }
}

impl ChannelFile {
    /// Surveys and measures a file. Reads some megabytes, so it runs on a thread that may block.
    pub(super) fn measure(
        asset: Arc<Asset>,
        file: File,
        program: Option<u16>,
    ) -> Result<ChannelFile, Unplayable> {
        if asset.is_growing() {
            return Err(Unplayable::Recorded);
        }
        let mut measured =
            ChannelFile { asset, file, programmes: Vec::new(), program, duration: Duration::ZERO };
        let mut survey = Survey::default();
        let mut reader = measured.reader(0);
        for _ in 0..SURVEY_PACKETS_MAX {
            if survey.is_complete() || !reader.fill(&measured)? {
                break;
            }
            reader.each(|packet, _| survey.feed(packet));
        }
        measured.programmes = survey.finish();
        measured.duration = duration_of(measured.media_ticks()?);
        Ok(measured)
    }

    /// Returns the description of the file from RTP packet `entry` on, played at `due`.
    pub(super) fn item(&self, entry: u64, due: u64) -> Result<SpliceItem, Unplayable> {
        let item = SpliceItem::new(&self.programmes, self.program);
        let mut item = item.map_err(Unplayable::Refused)?;
        let plan = &self.asset.plan;
        let mut reader = self.reader(entry);
        let until = plan.ticks(entry) + LOOK_AHEAD_TICKS;
        let mut is_enough = false;
        while !is_enough && reader.packet < plan.packets() && plan.ticks(reader.packet) < until {
            if !reader.fill(self)? {
                break;
            }
            let offset = plan.ticks(entry);
            reader.each(|packet, ticks| {
                is_enough = is_enough || item.look_ahead(packet, due + ticks - offset);
            });
        }
        Ok(item)
    }

    /// Returns the RTP packet where play at `offset` into the file begins: a place to start at or
    /// before it.
    pub(super) fn entry(&self, offset_ticks: u64) -> u64 {
        self.asset.plan.entry(offset_ticks)
    }

    /// Returns the longest distance of its key frames.
    pub(super) fn key_frames_apart_ticks(&self) -> u64 {
        let entries = self.asset.plan.entries();
        let apart =
            |pair: &[EntryPoint]| pair[1].presented_ticks.saturating_sub(pair[0].presented_ticks);
        entries.windows(2).map(apart).max().unwrap_or(0)
    }

    /// Returns a reader of the packets from RTP packet `packet` on.
    pub(super) fn reader(&self, packet: u64) -> ChannelFileReader {
        ChannelFileReader {
            packet,
            end: self.asset.plan.packets(),
            bytes: Vec::new(),
            times: Vec::new(),
            first_number: 0,
        }
    }

    /// Returns the transport stream packets from which on streams are left out if the file is left
    /// at a time, by their numbers, and the streams' PIDs, in order: a PES packet that begins there
    /// would have no end. Reads three seconds around that time.
    pub(super) fn open_units(&self, ticks: u64) -> io::Result<Vec<(u64, u16)>> {
        let plan = &self.asset.plan;
        if ticks >= plan.duration_ticks() {
            return Ok(Vec::new());
        }
        let (from, until) = (ticks.saturating_sub(UNIT_TICKS), ticks + BEHIND_TICKS);
        let mut reader = self.reader(plan.packets_before(from));
        let mut open = OpenUnits::default();
        let mut is_enough = false;
        while !is_enough && reader.fill(self)? {
            for index in 0.. {
                let Some((packet, due)) = reader.packet(index) else { break };
                if due < ticks {
                    open.show_before(packet, reader.number(index));
                } else {
                    is_enough = is_enough || open.show_behind(packet) || due >= until;
                }
            }
        }
        Ok(open.finish())
    }

    /// Plays both ends of the file to nobody and asks when the next file should start.
    fn media_ticks(&self) -> Result<u64, Unplayable> {
        let plan = &self.asset.plan;
        let mut splicer = Splicer::new(&SpliceSettings::default()).expect("the default is good");
        let start = TICKS_PER_SECOND;
        splicer.begin(&self.item(0, start)?).map_err(Unplayable::Refused)?;
        let mut out = Vec::new();
        let tail = plan.packets_before(plan.duration_ticks().saturating_sub(TAIL_TICKS));
        let head_end = plan.packets_before(LOOK_AHEAD_TICKS).min(tail);
        for range in [0..head_end, tail..plan.packets()] {
            let mut reader = ChannelFileReader { end: range.end, ..self.reader(range.start) };
            while reader.fill(self)? {
                reader.each(|packet, ticks| splicer.push(packet, start + ticks, &mut out));
                out.clear();
            }
        }
        let by_clock = plan.duration_ticks();
        let by_media = splicer.media_end().map_or(0, |end| end.saturating_sub(start));
        // A lead that differs by more is a fault of the file, and the splicer drops what overlaps.
        let is_plausible = by_media.abs_diff(by_clock) < TAIL_TICKS;
        Ok(if is_plausible { by_media.max(by_clock) } else { by_clock })
    }
}

/// Reads the packets of a file in order.
pub(super) struct ChannelFileReader {
    /// Next RTP packet to read.
    packet: u64,
    /// One past the last RTP packet to read.
    end: u64,
    bytes: Vec<u8>,
    /// Ticks of each transport stream packet in `bytes`.
    times: Vec<u64>,
    /// Number of the first of them in the file.
    first_number: u64,
}

impl ChannelFileReader {
    /// Reads the next RTP packets, some ten kilobytes; false at the end.
    pub(super) fn fill(&mut self, file: &ChannelFile) -> io::Result<bool> {
        let plan = &file.asset.plan;
        self.bytes.clear();
        self.times.clear();
        let stride = plan.stride() as usize;
        let mut buffer = Vec::new();
        while self.packet < self.end && self.times.len() < FILL_TS_PACKETS {
            let range = plan.payload(self.packet);
            let first = plan.first_ts_packet(self.packet);
            if self.times.is_empty() {
                self.first_number = first;
            }
            let count = range.ts_packets as usize;
            buffer.resize((count - 1) * stride + TS_PACKET_BYTES, 0);
            file.file.read_exact_at(&mut buffer, range.file_offset)?;
            for index in 0..count {
                let at = index * stride;
                self.bytes.extend_from_slice(&buffer[at..at + TS_PACKET_BYTES]);
                self.times.push(plan.ticks_of(first + index as u64));
            }
            self.packet += 1;
        }
        Ok(!self.times.is_empty())
    }

    /// Returns the number in the file of transport stream packet `index` of those read.
    pub(super) fn number(&self, index: usize) -> u64 {
        self.first_number + index as u64
    }

    /// Passes on the packets read, each with its time in ticks from the file's start.
    pub(super) fn each(&self, mut pass: impl FnMut(&[u8; TS_PACKET_BYTES], u64)) {
        for (packet, ticks) in self.bytes.chunks_exact(TS_PACKET_BYTES).zip(&self.times) {
            pass(packet.try_into().expect("chunks are exact"), *ticks);
        }
    }

    /// Returns transport stream packet `index` of those read, with its time.
    pub(super) fn packet(&self, index: usize) -> Option<(&[u8; TS_PACKET_BYTES], u64)> {
        let ticks = *self.times.get(index)?;
        let at = index * TS_PACKET_BYTES;
        let packet = &self.bytes[at..at + TS_PACKET_BYTES];
        Some((packet.try_into().expect("chunks are exact"), ticks))
    }
}

/// Time in which every stream of a file has begun.
const LOOK_AHEAD_TICKS: u64 = 2 * TICKS_PER_SECOND;
/// Time before the end in which the last pictures and sounds begin.
const TAIL_TICKS: u64 = 4 * TICKS_PER_SECOND;
/// Time from the start of a PES packet to its last packet, at most.
pub(super) const UNIT_TICKS: u64 = 2 * TICKS_PER_SECOND;
/// Time behind a place in which most streams have another packet.
const BEHIND_TICKS: u64 = TICKS_PER_SECOND;
/// Transport stream packets read at once: 64 KiB.
const FILL_TS_PACKETS: usize = 348;
/// Reads of a survey: some ten megabytes.
const SURVEY_PACKETS_MAX: usize = 160;
