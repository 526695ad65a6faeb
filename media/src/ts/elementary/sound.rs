// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the audio frames of an elementary stream: AAC in ADTS, MPEG audio, AC-3 and Enhanced AC-3.
//!
//! Each frame's header contains the distance to the next; no other bytes are examined. Where frames
//! are not contiguous, the search looks for two headers at a matching distance. The first frame
//! that begins in a PES packet has the time of the packet; the others follow it by their durations.
//! The sum of durations is used while the times of the packets agree with it within
//! [`TOLERANCE_PER_SECOND`], so that rounding to 90 kHz does not make times uneven.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.7 (the time of a frame that begins in a packet); the headers as
//! in [`crate::frames`].
//! Does not correct for encoder delay.

use super::time_bases::{SECOND, TimeBases};
use crate::frames::{Frame, FrameParser, HEADER_BYTES};
use crate::tracks::{Codec, MediaSample, SampleFault, SampleTable, SampleTableBuilder};
use crate::ts::pes_times::PesTimes;

/// The frames of one elementary stream so far.
#[derive(Debug)]
pub(super) struct Sound {
    parse: FrameParser,
    file_bytes: u64,
    /// Bytes of the elementary stream so far.
    passed: u64,
    /// The last bytes, which are searched for a header, and their offsets in the file.
    header: [u8; HEADER_BYTES],
    places: [u64; HEADER_BYTES],
    have: usize,
    /// Remaining bytes of the current frame.
    left: u32,
    /// The current frame, or the last one while the header after it is incomplete.
    held: Option<HeldFrame>,
    /// True if the held frame directly follows another.
    is_in_step: bool,
    /// Presentation time of the PES packet, and the offset of its payload in the stream.
    pending: Option<(u64, u64)>,
    /// Time of the next frame, in samples.
    at: Option<i64>,
    first: Option<Frame>,
    table: Option<SampleTableBuilder>,
    /// Bytes that belong to no frame.
    lost_bytes: u64,
    other: Option<OtherFrames>,
}

/// Frames of another kind than the first, which do not match the description of the track.
#[derive(Debug)]
struct OtherFrames {
    /// The first of them, and its offset in the file.
    first: Frame,
    file_offset: u64,
    /// Frames after the first, each directly after another.
    following: u64,
    /// End of the last, in the stream.
    end: u64,
}

#[derive(Debug)]
struct HeldFrame {
    frame: Frame,
    file_offset: u64,
    /// Its time, in samples; none before the first time of the stream.
    at: Option<i64>,
}

impl Sound {
    pub(super) fn new(parse: FrameParser, file_bytes: u64) -> Sound {
        Sound {
            parse,
            file_bytes,
            passed: 0,
            header: [0; HEADER_BYTES],
            places: [0; HEADER_BYTES],
            have: 0,
            left: 0,
            held: None,
            is_in_step: false,
            pending: None,
            at: None,
            first: None,
            table: None,
            lost_bytes: 0,
            other: None,
        }
    }

    /// Begins a PES packet.
    pub(super) fn begin(&mut self, times: PesTimes) {
        if let PesTimes::Some(presented, _) = times {
            self.pending = Some((presented, self.passed));
        }
    }

    /// Handles missing packets: the current frame is lost.
    ///
    /// # Errors
    /// The previous frame cannot be sent.
    pub(super) fn lose(&mut self) -> Result<(), SampleFault> {
        self.is_in_step &= self.left == 0;
        (self.left, self.have) = (0, 0);
        self.release()
    }

    /// Consumes the next bytes of the elementary stream, which lie at `file_offset`.
    ///
    /// # Errors
    /// A frame cannot be sent.
    pub(super) fn take(
        &mut self,
        mut bytes: &[u8],
        mut file_offset: u64,
        bases: &mut TimeBases,
    ) -> Result<(), SampleFault> {
        while let Some(&byte) = bytes.first() {
            let consumed = match self.left {
                0 => 1,
                left => bytes.len().min(left as usize),
            };
            if self.left > 0 {
                self.left -= consumed as u32;
            } else {
                (self.header[self.have], self.places[self.have]) = (byte, file_offset);
                self.have += 1;
            }
            self.passed += consumed as u64;
            file_offset += consumed as u64;
            bytes = &bytes[consumed..];
            while self.have == HEADER_BYTES {
                self.judge(bases)?;
            }
        }
        Ok(())
    }

    /// Begins a frame at the buffered header, or discards one byte.
    fn judge(&mut self, bases: &mut TimeBases) -> Result<(), SampleFault> {
        let frame = match (self.parse)(&self.header) {
            Some(frame) if self.fits(&frame) => frame,
            other => {
                self.release()?;
                other.into_iter().for_each(|frame| self.note_other(frame));
                self.lost_bytes += 1;
                self.shift(1);
                return Ok(());
            }
        };
        if frame.duration == 0 {
            let held = self.held.as_mut().expect("it fits one before it");
            held.frame.bytes += frame.bytes;
            self.enter(frame.bytes);
            return Ok(());
        }
        let follows = self.held.is_some();
        self.is_in_step |= follows;
        self.release()?;
        self.is_in_step = follows;
        let file_offset = self.places[frame.skipped as usize];
        let at = self.time(&frame, bases);
        let bytes = frame.bytes;
        self.held = Some(HeldFrame { frame, file_offset, at });
        self.enter(bytes);
        Ok(())
    }

    /// True for a frame that continues the stream; a frame with another rate or codec belongs to
    /// another stream.
    fn fits(&self, frame: &Frame) -> bool {
        if frame.duration == 0 {
            let bytes = self.held.as_ref().map(|held| held.frame.bytes);
            return bytes.is_some_and(|bytes| bytes + frame.bytes <= JOINED_BYTES_MAX);
        }
        let first = self.first.as_ref().or(self.held.as_ref().map(|held| &held.frame));
        first.is_none_or(|first| (first.rate_hz, &first.codec) == (frame.rate_hz, &frame.codec))
    }

    /// Records a header of another kind, or bytes that resemble one. It counts as a frame if
    /// another follows it.
    fn note_other(&mut self, frame: Frame) {
        let begins = self.passed - HEADER_BYTES as u64;
        let end = begins + u64::from(frame.bytes);
        match &mut self.other {
            Some(other) if begins < other.end => {}
            Some(other) if frame.duration == 0 => other.end = end,
            Some(other)
                if (other.first.rate_hz, &other.first.codec) == (frame.rate_hz, &frame.codec) =>
            {
                other.following += u64::from(begins == other.end);
                other.end = end;
            }
            Some(other) if other.following > 0 => {}
            _ if frame.duration == 0 => {}
            other => {
                let (first, file_offset) = (frame, self.places[0]);
                *other = Some(OtherFrames { first, file_offset, following: 0, end });
            }
        }
    }

    /// Returns a message about frames of another kind that are not sent.
    pub(super) fn other_frames(&self) -> Option<String> {
        let other = self.other.as_ref().filter(|other| other.following > 0)?;
        Some(format!(
            "from byte {} on {} frames are {}, where the first is {}, and are not sent",
            other.file_offset,
            other.following + 1,
            kind(&other.first),
            kind(self.first.as_ref()?)
        ))
    }

    /// Moves to the end of a frame whose header was just read.
    fn enter(&mut self, bytes: u32) {
        match (bytes as usize).checked_sub(HEADER_BYTES) {
            Some(left) => (self.left, self.have) = (left as u32, 0),
            None => self.shift(bytes as usize),
        }
    }

    fn shift(&mut self, bytes: usize) {
        self.header.copy_within(bytes.., 0);
        self.places.copy_within(bytes.., 0);
        self.have -= bytes;
    }

    /// Returns the time of a frame whose header was just read, in samples.
    fn time(&mut self, frame: &Frame, bases: &mut TimeBases) -> Option<i64> {
        let rate = i64::from(frame.rate_hz);
        let begins = self.passed - HEADER_BYTES as u64;
        if let Some((presented, _)) = self.pending.take_if(|(_, from)| *from <= begins) {
            let expected = self.at.map(|at| at * SECOND / rate);
            let placed = (bases.place(presented, 0, expected) * rate + SECOND / 2) / SECOND;
            let is_near = |at: i64| (placed - at).abs() <= rate / TOLERANCE_PER_SECOND;
            self.at = self.at.filter(|&at| is_near(at)).or(Some(placed));
        }
        let at = self.at?;
        self.at = Some(at + i64::from(frame.duration));
        Some(at)
    }

    /// Appends the held frame if it is confirmed, and ends the run of frames.
    fn release(&mut self) -> Result<(), SampleFault> {
        let is_frame = std::mem::take(&mut self.is_in_step);
        let Some(HeldFrame { frame, file_offset, at }) = self.held.take() else { return Ok(()) };
        if !is_frame {
            self.lost_bytes += u64::from(frame.bytes);
            return Ok(());
        }
        let Frame { bytes, skipped, rate_hz, duration, .. } = frame;
        let first = self.first.get_or_insert(frame);
        let table = self
            .table
            .get_or_insert_with(|| SampleTableBuilder::new(first.rate_hz, self.file_bytes));
        let Some(at) = at else { return Ok(()) };
        let tolerance = i64::from(rate_hz) / TOLERANCE_PER_SECOND;
        let behind = if table.is_empty() { 0 } else { at - table.end() as i64 };
        // Audio of one time base that overlaps the start of the next is not played.
        if behind < -tolerance {
            return Ok(());
        }
        let decode = if behind.abs() <= tolerance && !table.is_empty() {
            table.end()
        } else {
            at.max(0) as u64
        };
        table.push(MediaSample {
            file_offset,
            bytes: bytes - skipped,
            decode,
            offset: 0,
            duration,
            is_start: true,
        })
    }

    /// Returns codec and samples.
    ///
    /// # Errors
    /// The reason why the track is left out.
    pub(super) fn finish(mut self) -> Result<(Codec, SampleTable), SoundFault> {
        let ended = if self.left == 0 { self.release() } else { Ok(()) };
        ended.map_err(|fault| SoundFault::Sample(self.len(), fault))?;
        let (Some(first), Some(table)) = (self.first, self.table) else {
            return Err(SoundFault::NoFrames);
        };
        let samples = table.finish().ok_or(SoundFault::NoFrames)?;
        match self.lost_bytes > samples.bytes() {
            true => Err(SoundFault::MostlyLost(self.lost_bytes)),
            false => Ok((first.codec, samples)),
        }
    }

    /// Returns the file offset of the current frame.
    pub(super) fn begun(&self) -> Option<u64> {
        self.held.as_ref().filter(|_| self.is_in_step).map(|held| held.file_offset)
    }

    /// Returns the number of samples so far.
    pub(super) fn len(&self) -> usize {
        self.table.as_ref().map_or(0, SampleTableBuilder::len)
    }
}

/// Describes codec, channels and rate of a frame.
fn kind(frame: &Frame) -> String {
    let channels = match frame.codec {
        Codec::Ac3 { channels, .. } | Codec::Eac3 { channels, .. } => Some(channels),
        Codec::Aac(ref config) => Some(config.channels),
        _ => None,
    };
    let channels = channels.map(|count| match count {
        1 => "1 channel, ".to_owned(),
        count => format!("{count} channels, "),
    });
    format!("{} ({}{} Hz)", frame.codec.name(), channels.unwrap_or_default(), frame.rate_hz)
}

/// Reason why audio is not sent.
#[derive(Debug)]
pub(super) enum SoundFault {
    Sample(usize, SampleFault),
    NoFrames,
    /// This many bytes lie between the frames, and fewer in them.
    MostlyLost(u64),
}

/// Fraction of a second (1/50, 20 ms) by which the times of packets may differ from the sum of
/// durations: less than a frame of most formats, and no visible loss of lip sync.
const TOLERANCE_PER_SECOND: i64 = 50;

/// Bytes of a frame with all of its dependent substreams: eight of the largest.
const JOINED_BYTES_MAX: u32 = 9 * 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::{parse_adts, parse_dolby};

    /// Returns an ADTS frame of AAC-LC, 48 kHz, stereo, of this size.
    fn adts(bytes: usize) -> Vec<u8> {
        let mut frame = vec![0x55; bytes];
        let size = [(bytes >> 11) as u8 | 0x80, (bytes >> 3) as u8, (bytes << 5) as u8 | 0x1f];
        frame[..3].copy_from_slice(&[0xff, 0xf1, 0x4c]);
        frame[3..6].copy_from_slice(&size);
        frame[6] = 0xfc;
        frame
    }

    /// Feeds PES packets with their times, in pieces of `piece` bytes; the offset in the file is
    /// that in the stream plus 1000.
    fn fed(sound: &mut Sound, packets: &[(Option<u64>, Vec<u8>)], piece: usize) {
        let mut bases = TimeBases::default();
        let mut passed = 0;
        for (time, bytes) in packets {
            sound.begin(time.map_or(PesTimes::None, |time| PesTimes::Some(time, None)));
            for piece in bytes.chunks(piece) {
                sound.take(piece, 1000 + passed, &mut bases).unwrap();
                passed += piece.len() as u64;
            }
        }
    }

    fn samples(sound: Sound) -> Vec<MediaSample> {
        let (_, table) = sound.finish().unwrap();
        let origin = table.sample(0).decode;
        let moved = |sample: MediaSample| MediaSample { decode: sample.decode - origin, ..sample };
        table.samples(0..table.len()).map(moved).collect()
    }

    #[test]
    fn frames_are_found_however_packets_are_cut() {
        let sizes = [9, 300, 8, 13, 700, 10, 11, 2000, 9, 12];
        let stream: Vec<u8> = sizes.iter().flat_map(|&bytes| adts(bytes)).collect();
        // A header straddles the border of the PES packets.
        let (first, second) = stream.split_at(9 + 300 + 4);
        let packets = [(Some(0), first.to_vec()), (Some(3 * 1920), second.to_vec())];
        for piece in [1, 2, 7, 10, 184, 5000] {
            let mut sound = Sound::new(parse_adts, 1 << 20);
            fed(&mut sound, &packets, piece);
            let found = samples(sound);
            let mut at = 1000;
            let places: Vec<_> = sizes
                .map(|bytes| {
                    at += bytes as u64;
                    (at - bytes as u64 + 7, bytes as u32 - 7)
                })
                .to_vec();
            let own: Vec<_> = found.iter().map(|s| (s.file_offset, s.bytes)).collect();
            assert_eq!(own, places, "pieces of {piece}");
            let times: Vec<_> = found.iter().map(|sample| sample.decode).collect();
            assert_eq!(times, (0..10).map(|n| n * 1024).collect::<Vec<_>>(), "pieces of {piece}");
        }
    }

    #[test]
    fn rounded_times_do_not_make_the_count_uneven_and_gaps_do() {
        let mut packets: Vec<_> =
            (0..10).map(|n: u64| (Some(n * 1920 + n % 3 * 100), adts(200))).collect();
        packets.extend((0..5).map(|n| (Some(90_000 + n * 1920), adts(200))));
        let mut sound = Sound::new(parse_adts, 1 << 20);
        fed(&mut sound, &packets, 184);
        let found = samples(sound);
        let times: Vec<_> = found.iter().map(|sample| sample.decode).collect();
        let even = (0..10).map(|n| n * 1024).chain((0..5).map(|n| 48_000 + n * 1024));
        assert_eq!(times, even.collect::<Vec<_>>());
        assert_eq!(
            found[9].duration,
            48_000 - 9 * 1024,
            "the last before the gap lasts until then"
        );
    }

    #[test]
    fn frames_that_overlap_those_before_are_left_out() {
        let times = [0, 1920, 3840, 0, 1920, 3840, 5760, 7680];
        let packets: Vec<_> = times.map(|time| (Some(time), adts(200))).to_vec();
        let mut sound = Sound::new(parse_adts, 1 << 20);
        fed(&mut sound, &packets, 184);
        let times: Vec<_> = samples(sound).iter().map(|sample| sample.decode).collect();
        assert_eq!(times, [0, 1024, 2048, 3072, 4096]);
    }

    #[test]
    fn noise_and_lost_packets_cost_the_frames_that_they_hit() {
        let mut sound = Sound::new(parse_adts, 1 << 20);
        let mut bases = TimeBases::default();
        sound.begin(PesTimes::Some(0, None));
        let noise = [&[0xff, 0xf1, 0x4c, 0x80, 0x20][..], &[8; 40]].concat();
        sound.take(&noise, 0, &mut bases).unwrap();
        (0..4).for_each(|n| sound.take(&adts(100), 1000 + n * 100, &mut bases).unwrap());
        sound.take(&adts(100)[..50], 1400, &mut bases).unwrap();
        sound.lose().unwrap();
        sound.take(&adts(100)[70..], 1570, &mut bases).unwrap();
        (0..6).for_each(|n| sound.take(&adts(100), 1600 + n * 100, &mut bases).unwrap());
        let places: Vec<_> = samples(sound).iter().map(|sample| sample.file_offset).collect();
        // The noise resembles the header of a frame of 256 bytes.
        assert_eq!(places, [1307, 1607, 1707, 1807, 1907, 2007, 2107]);
    }

    #[test]
    fn what_is_no_sound_has_a_reason() {
        let mut sound = Sound::new(parse_adts, 1 << 20);
        fed(&mut sound, &[(Some(0), vec![0xff; 5000]), (Some(9), adts(20))], 184);
        assert!(matches!(sound.finish(), Err(SoundFault::NoFrames)));
        let mut sound = Sound::new(parse_adts, 1 << 20);
        let frames = [adts(20), adts(20), adts(20)].concat();
        fed(&mut sound, &[(Some(0), vec![7; 5000]), (Some(9), frames.clone())], 184);
        assert!(matches!(sound.finish(), Err(SoundFault::MostlyLost(5000..))));
        let mut sound = Sound::new(parse_adts, 1 << 20);
        fed(&mut sound, &[(None, frames)], 184);
        assert!(matches!(sound.finish(), Err(SoundFault::NoFrames)), "without any time");
    }

    #[test]
    fn dependent_substreams_belong_to_the_frame_before() {
        let frame = |kind: u8, bytes: usize| {
            let mut frame = vec![0; bytes];
            let words = (bytes / 2 - 1) as u16;
            frame[..2].copy_from_slice(&[0x0b, 0x77]);
            frame[2..4].copy_from_slice(&(u16::from(kind) << 14 | words).to_be_bytes());
            frame[4..6].copy_from_slice(&[0x3f, 0x80]);
            frame
        };
        let unit = [frame(0, 600), frame(1, 200), frame(1, 100)].concat();
        let packets: Vec<_> = (0..4).map(|n| (Some(n * 2880), unit.clone())).collect();
        let mut sound = Sound::new(parse_dolby, 1 << 20);
        fed(&mut sound, &packets, 184);
        let found = samples(sound);
        let sizes: Vec<_> = found.iter().map(|sample| (sample.bytes, sample.decode)).collect();
        assert_eq!(sizes, [(900, 0), (900, 1536), (900, 3072), (900, 4608)]);
    }
}
