// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file that a channel plays: its packets with their times, and its duration.
//!
//! The duration of play is measured by pictures and audio: files often have a picture or two more
//! than their clock has time for, and a channel that started the next file by the clock alone would
//! lose them. Other files have a clock that continues after their pictures, which is not played, or
//! packets after its last reference whose time is only an estimate. If pictures and audio leave
//! later than the next file begins, their last minute leaves a little faster ([`PlayTime`]). The
//! measurement reads a few seconds of packets at both ends, once a file.
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
    TICKS_PER_SECOND, TS_PACKET_BYTES, duration_of,
};

use crate::library::asset::Asset;

/// A file with its plan.
pub(super) struct ChannelFile {
    pub(super) asset: Arc<Asset>,
    file: File,
    programmes: Vec<media::Programme>,
    /// Programme number to play; the first without.
    program: Option<u16>,
    time: PlayTime,
    /// Duration of play.
    pub(super) duration: Duration,
}

/// Time of play by the file's clock. If media leave until later than the next file begins, their
/// last minute leaves faster: at a constant rate, the excess of a shorter time would find no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PlayTime {
    /// Time by the clock from which on packets leave faster, and that of the last one.
    from: u64,
    left: u64,
    /// End of play.
    end: u64,
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
        let time = PlayTime::by_clock(asset.plan.duration_ticks());
        let duration = Duration::ZERO;
        let mut measured =
            ChannelFile { asset, file, programmes: Vec::new(), program, time, duration };
        let mut survey = Survey::default();
        let mut reader = measured.reader(0);
        for _ in 0..SURVEY_PACKETS_MAX {
            if survey.is_complete() || !reader.fill(&measured)? {
                break;
            }
            reader.each(|packet, _| survey.feed(packet));
        }
        measured.programmes = survey.finish();
        for tail_ticks in TAILS_TICKS {
            if let Some(media) = measured.media_ticks(tail_ticks)? {
                measured.time = PlayTime::new(time.end, media);
                break;
            }
        }
        measured.duration = duration_of(measured.time.end);
        Ok(measured)
    }

    /// Returns the time of play of a time by the file's clock, in ticks.
    pub(super) fn played_at(&self, clock_ticks: u64) -> u64 {
        self.time.of(clock_ticks)
    }

    /// Returns the description of the file from RTP packet `entry` on, played at `due`.
    pub(super) fn item(&self, entry: u64, due: u64) -> Result<SpliceItem, Unplayable> {
        let item = SpliceItem::new(&self.programmes, self.program);
        let mut item = item.map_err(Unplayable::Refused)?;
        let plan = &self.asset.plan;
        let mut reader = self.reader(entry);
        let offset = plan.ticks(entry);
        let until = offset + LOOK_AHEAD_TICKS;
        let mut is_enough = false;
        while !is_enough && reader.packet < plan.packets() && plan.ticks(reader.packet) < until {
            if !reader.fill(self)? {
                break;
            }
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
        if ticks >= self.time.end {
            return Ok(Vec::new());
        }
        let (from, until) = (ticks.saturating_sub(UNIT_TICKS), ticks + BEHIND_TICKS);
        // Time of play is never behind the clock: it begins early enough.
        let mut reader = self.reader(self.asset.plan.packets_before(from));
        let mut open = OpenUnits::default();
        let mut is_enough = false;
        while !is_enough && reader.fill(self)? {
            for index in 0.. {
                let Some((packet, clock_ticks)) = reader.packet(index) else { break };
                let due = self.played_at(clock_ticks);
                if due < ticks {
                    open.show_before(packet, reader.number(index));
                } else {
                    is_enough = is_enough || open.show_behind(packet) || due >= until;
                }
            }
        }
        Ok(open.finish())
    }

    /// Plays the last `tail_ticks` of the file without an output. Returns the time by its clock at
    /// which the next file should start, and the time at which the last of its pictures and audio
    /// has left; `None` if there are none in them.
    fn media_ticks(&self, tail_ticks: u64) -> Result<Option<(u64, u64)>, Unplayable> {
        let plan = &self.asset.plan;
        let mut splicer = Splicer::new(&SpliceSettings::default()).expect("the default is good");
        let start = TICKS_PER_SECOND;
        splicer.begin(&self.item(0, start)?).map_err(Unplayable::Refused)?;
        let mut reader =
            self.reader(plan.packets_before(plan.duration_ticks().saturating_sub(tail_ticks)));
        if reader.packet > 0 {
            splicer.skip();
        }
        let mut out = Vec::new();
        while reader.fill(self)? {
            reader.each(|packet, ticks| splicer.push(packet, start + ticks, &mut out));
            out.clear();
        }
        let times = splicer.media_end().zip(splicer.media_left());
        Ok(times.map(|(end, left)| (end.saturating_sub(start), left.saturating_sub(start))))
    }
}

impl PlayTime {
    /// Time of play of a file whose clock ends at `clock_end`, and whose pictures and sound end at
    /// `media_end` and leave until `media_left`.
    fn new(clock_end: u64, (media_end, media_left): (u64, u64)) -> PlayTime {
        // The last packet leaves before the file does.
        let left = media_left + LEFT_TICKS;
        // A larger difference is a fault of the file, and the splicer drops the overlap.
        if media_end.abs_diff(left) > ENDS_APART_MAX {
            return PlayTime::by_clock(clock_end);
        }
        let from = left.saturating_sub(FASTER_TICKS);
        // A quarter faster at most, in a file of seconds.
        let end = media_end.max(left - (left - from) / 4);
        PlayTime { from, left, end }
    }

    fn by_clock(clock_end: u64) -> PlayTime {
        PlayTime { from: clock_end, left: clock_end, end: clock_end }
    }

    /// Returns the time of play of a time of the clock.
    fn of(self, ticks: u64) -> u64 {
        let PlayTime { from, left, end } = self;
        // Time of play at which the last packet leaves.
        let until = end.min(left);
        match ticks {
            _ if ticks <= from => ticks,
            _ if ticks < left => from + (ticks - from) * (until - from) / (left - from),
            _ => until + (ticks - left),
        }
    }
}

/// Reads the packets of a file in order.
pub(super) struct ChannelFileReader {
    /// Next RTP packet to read.
    packet: u64,
    /// One past the last RTP packet to read.
    end: u64,
    bytes: Vec<u8>,
    /// Ticks by the file's clock of each transport stream packet in `bytes`.
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
/// Times before the end in which the last pictures and audio are searched for, one after the
/// other: most files have them in the first; others continue with a clock or with null packets.
const TAILS_TICKS: [u64; 3] = [4 * TICKS_PER_SECOND, 16 * TICKS_PER_SECOND, 64 * TICKS_PER_SECOND];
/// Longest time from the last packet of media to the end of play, and back.
const ENDS_APART_MAX: u64 = 4 * TICKS_PER_SECOND;
/// Time from the last packet of media until it has left.
const LEFT_TICKS: u64 = TICKS_PER_SECOND / 1000;
/// Time before the last packet of media that leaves faster.
const FASTER_TICKS: u64 = 60 * TICKS_PER_SECOND;
/// Time from the start of a PES packet to its last packet, at most.
pub(super) const UNIT_TICKS: u64 = 2 * TICKS_PER_SECOND;
/// Time behind a place in which most streams have another packet.
const BEHIND_TICKS: u64 = TICKS_PER_SECOND;
/// Transport stream packets read at once: 64 KiB.
const FILL_TS_PACKETS: usize = 348;
/// Reads of a survey: some ten megabytes.
const SURVEY_PACKETS_MAX: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = TICKS_PER_SECOND;

    #[test]
    fn last_minute_of_media_leaves_faster_by_a_quarter_at_most() {
        let end = |media_end, media_left| PlayTime::new(20 * SECOND, (media_end, media_left)).end;
        assert_eq!(end(10 * SECOND, 9 * SECOND), 10 * SECOND, "the clock behind is not played");
        assert_eq!(end(21 * SECOND, 19 * SECOND), 21 * SECOND);
        assert_eq!(end(9 * SECOND + 5, 10 * SECOND), 9 * SECOND + 5);
        let left = 10 * SECOND + LEFT_TICKS;
        assert_eq!(end(7 * SECOND, 10 * SECOND), left - left / 4);
        assert_eq!(end(6 * SECOND, 10 * SECOND), 20 * SECOND, "a fault of the file");
        assert_eq!(end(15 * SECOND, 10 * SECOND), 20 * SECOND, "a fault of the file");
        assert_eq!(end(0, 0), LEFT_TICKS - LEFT_TICKS / 4);
    }

    #[test]
    fn times_of_play_grow_and_end_in_time() {
        let time = PlayTime::new(105 * SECOND, (99 * SECOND, 100 * SECOND - LEFT_TICKS));
        let times: Vec<u64> = (0..=1050).map(|n| time.of(n * SECOND / 10)).collect();
        assert_eq!(times[..=400], (0..=400).map(|n| n * SECOND / 10).collect::<Vec<_>>());
        assert_eq!((times[1000], times[1050]), (99 * SECOND, 104 * SECOND));
        for pair in times[400..].windows(2) {
            let step = pair[1] - pair[0];
            assert!((SECOND * 59 / 600..=SECOND / 10).contains(&step), "{pair:?}");
        }
        let longer = PlayTime::new(10 * SECOND, (11 * SECOND, 10 * SECOND - LEFT_TICKS));
        assert_eq!(longer.of(9 * SECOND), 9 * SECOND, "what lasts longer is not slower");
        let long = (1 << 62) - 3 * SECOND;
        let hours = PlayTime::new(1 << 62, (long, (1 << 62) - LEFT_TICKS));
        assert_eq!(hours.of(1 << 62), long);
    }
}
