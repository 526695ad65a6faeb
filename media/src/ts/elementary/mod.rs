// SPDX-License-Identifier: MIT OR Apache-2.0
//! Demultiplexes the elementary streams of a transport stream into tracks, for clients that cannot
//! do so.
//!
//! [`ElementaryDemuxer`] reads the packets of a file that has a [`PacketPlan`] and records the
//! start of each access unit; the streams are those of the programme that the plan follows. The
//! result is a [`Presentation`] whose samples are interrupted by packet headers in the file: a
//! sample's offset is that of its first byte, its size that of the unit in the elementary stream.
//! The packets of a chapter ([`lay_out_elementary`]) are laid out with all their bytes in memory,
//! so sending reads no file.
//!
//! If the programme's map later names other PIDs, a track continues with the first stream of its
//! type there; a stream that is in no map of the beginning is reported as left out. Costs one read
//! of the file, about a nanosecond per examined byte (the beginnings of pictures) and 10 per
//! packet; 28 bytes of memory per sample.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3 (packets), §2.4.4 (tables).
//! Does not join a stream that resumes with other parameters: video carries its own, and audio
//! frames of another rate, channel count or codec are left out and reported.

mod chapter;
mod payload;
mod pictures;
mod recorded;
mod sound;
mod time_bases;

use std::io;

pub use chapter::{copy_elementary, lay_out_elementary};
pub(in crate::ts) use payload::PesPayload;
use pictures::{Pictures, PicturesFault};
pub(crate) use recorded::{PartContext, PartTrack};
pub use recorded::{PartLimit, RecordedPart, RecordedStreams};
use sound::{Sound, SoundFault};
pub(crate) use time_bases::apart;
use time_bases::{BREAKS_MAX, SECOND, TimeBases};

use super::format::Coding;
use super::packet_reader::PacketReader;
use super::psi::ProgrammeMap;
use super::survey::{Programme, Survey};
use super::tables::{TableChange, TableReader};
use super::{PIDS, TsHeader, TsPacket};
use crate::plan::{ElementaryStream, PacketPlan, RtpIdentity, STREAMS_MAX};
use crate::tracks::{
    Codec, Container, LeftOut, Presentation, SampleFault, SampleTable, TRACKS_MAX, Track,
    title_start,
};
use crate::{Damage, DemuxError, ReadAt, Refusal};

/// Finds the access units of a transport stream's elementary streams, some packets per call.
pub struct ElementaryDemuxer {
    file_bytes: u64,
    /// Index of the next packet; none until the programme was determined.
    next: Option<u64>,
    tables: TableReader,
    /// True if the current map belongs to the chosen programme.
    is_joined: bool,
    /// True for a part of a file: its PIDs are those of the previous part, and may all be absent
    /// from its map.
    is_part: bool,
    /// Index of the stream of each PID, plus one; 0 for other PIDs.
    targets: Box<[u8; PIDS]>,
    streams: Vec<EsTrack>,
    left_out: Vec<LeftOut>,
    bases: TimeBases,
}

/// A stream that becomes a track.
#[derive(Debug)]
struct EsTrack {
    /// Its first PID.
    id: u16,
    /// Its current PID.
    pid: u16,
    stream_type: u8,
    coding: Coding,
    language: Option<[u8; 3]>,
    payload: PesPayload,
    units: EsUnits,
}

#[derive(Debug)]
enum EsUnits {
    Pictures(Box<Pictures>),
    Sound(Box<Sound>),
    /// The stream is left out for this reason.
    LeftOut(String),
}

impl ElementaryDemuxer {
    /// Creates the demuxer of the file with this plan.
    pub fn new(plan: &PacketPlan) -> ElementaryDemuxer {
        ElementaryDemuxer::of_file(plan.file_bytes())
    }

    /// Creates the demuxer of a file of this size.
    fn of_file(file_bytes: u64) -> ElementaryDemuxer {
        ElementaryDemuxer {
            file_bytes,
            next: None,
            tables: TableReader::default(),
            is_joined: false,
            is_part: false,
            targets: Box::new([0; PIDS]),
            streams: Vec::new(),
            left_out: Vec::new(),
            bases: TimeBases::default(),
        }
    }

    /// Reads about `packets` further packets. Returns true at the end of the file. `plan` must be
    /// the one passed to [`new`](Self::new).
    ///
    /// # Errors
    /// The file cannot be sent as elementary streams, or cannot be read.
    pub fn advance(
        &mut self,
        plan: &PacketPlan,
        file: &(impl ReadAt + ?Sized),
        packets: u64,
    ) -> Result<bool, DemuxError> {
        let next = match self.next {
            Some(next) => next,
            None => {
                self.find_programme(plan, file)?;
                0
            }
        };
        let mut reader = PacketReader::new(plan, next, file);
        for _ in 0..packets.max(1) {
            let Some((offset, bytes)) = reader.read_at()? else { return Ok(true) };
            let packet = TsPacket { header: TsHeader::read(&bytes), bytes: &bytes };
            self.feed(offset, &packet);
        }
        if self.bases.is_broken() {
            let (damage, limit) = (Damage::ClockBreaks, u64::from(BREAKS_MAX));
            return Err(Refusal::TooDamaged { damage, limit }.into());
        }
        self.next = Some(reader.next_packet());
        Ok(false)
    }

    /// Returns the bytes of the file up to the next packet; 0 before the first.
    pub fn position(&self, plan: &PacketPlan) -> u64 {
        let next = self.next.unwrap_or(0);
        plan.ts_run(next, 1).map_or(plan.file_bytes(), |(offset, _)| offset)
    }

    /// Searches the file's beginning for the streams of the programme.
    fn find_programme(
        &mut self,
        plan: &PacketPlan,
        file: &(impl ReadAt + ?Sized),
    ) -> io::Result<()> {
        let mut survey = Survey::default();
        let mut reader = PacketReader::new(plan, 0, file);
        while reader.next_packet() < SURVEY_PACKETS_MAX
            && let Some(packet) = reader.read()?
        {
            survey.feed(&packet);
            if reader.next_packet().is_multiple_of(SURVEY_LOOK_PACKETS) && survey.is_complete() {
                break;
            }
        }
        self.choose(plan.streams(), &survey.finish());
        Ok(())
    }

    /// Returns the parts of a file with this plan and these programmes that have no track, judged
    /// from its beginning: other programmes, and streams with an unsupported coding.
    pub(crate) fn unsent(plan: &PacketPlan, programmes: &[Programme]) -> Vec<LeftOut> {
        let mut demuxer = ElementaryDemuxer::new(plan);
        demuxer.choose(plan.streams(), programmes);
        demuxer.left_out
    }

    /// Chooses the programme that has most of the `followed` streams, the first of equal ones, and
    /// adds its streams.
    fn choose(&mut self, followed: &[ElementaryStream], programmes: &[Programme]) {
        let is_followed = |pid: u16| followed.iter().any(|stream| stream.pid == pid);
        let shared = |programme: &Programme| {
            programme.tracks.iter().filter(|track| is_followed(track.pid)).count()
        };
        // `max_by_key` returns the last of equal ones.
        let chosen = programmes.iter().rev().max_by_key(|programme| shared(programme));
        for other in programmes.iter().filter(|&other| chosen.is_some_and(|one| one != other)) {
            let Programme { number, map_pid, tracks, .. } = other;
            let reason = format!(
                "programme {number}, {} streams: one programme is sent as tracks; extract it \
                 (ffmpeg -i IN -map 0:p:{number} -c copy OUT.ts)",
                tracks.len()
            );
            self.left_out.push(LeftOut { id: (*map_pid).into(), reason });
        }
        match chosen {
            Some(programme) => {
                for track in &programme.tracks {
                    let language =
                        track.language().and_then(|code| code.into_bytes().try_into().ok());
                    self.add(track.pid, (track.stream_type, track.coding), language);
                }
            }
            None => {
                for stream in followed {
                    let coding = Coding::of(stream.stream_type, &[]);
                    self.add(stream.pid, (stream.stream_type, coding), None);
                }
            }
        }
    }

    fn add(&mut self, pid: u16, (stream_type, coding): (u8, Coding), language: Option<[u8; 3]>) {
        let bytes = self.file_bytes;
        let units = match (coding, coding.frame_parser()) {
            (Coding::H264, _) => EsUnits::Pictures(Box::new(Pictures::new(false, bytes))),
            (Coding::H265, _) => EsUnits::Pictures(Box::new(Pictures::new(true, bytes))),
            (_, Some(parse)) => EsUnits::Sound(Box::new(Sound::new(parse, bytes))),
            (other, None) => return self.leave_out(pid, name(other), unsupported(other)),
        };
        if self.streams.len() == TRACKS_MAX {
            let reason = format!("one more than the {TRACKS_MAX} tracks that are sent");
            return self.leave_out(pid, name(coding), &reason);
        }
        self.targets[usize::from(pid)] = self.streams.len() as u8 + 1;
        let payload = PesPayload::default();
        self.streams.push(EsTrack { id: pid, pid, stream_type, coding, language, payload, units });
    }

    fn leave_out(&mut self, pid: u16, name: &str, reason: &str) {
        self.left_out.push(left_out(pid, name, reason));
    }

    fn feed(&mut self, offset: u64, packet: &TsPacket<'_>) {
        let pid = packet.header.pid();
        if self.tables.pids().any(|table| table == pid) && !packet.header.is_damaged() {
            // The packet's number only determines the position of tables, which is not needed here.
            if self.tables.feed(0, packet) != TableChange::None
                && let Some(map) = self.tables.map().cloned()
            {
                self.follow(offset, &map);
            }
        }
        let target = self.targets[usize::from(pid)];
        if let Some(stream) = usize::from(target).checked_sub(1) {
            self.streams[stream].feed(offset, packet, &mut self.bases);
        }
    }

    /// Applies the map at `offset`, which may name other PIDs. Maps of other programmes at the
    /// file's beginning are ignored.
    fn follow(&mut self, offset: u64, map: &ProgrammeMap) {
        let is_own = |stream: &EsTrack, &(pid, kind): &(u16, u8)| {
            (stream.pid, stream.stream_type) == (pid, kind)
        };
        let keeps = |stream: &EsTrack| map.streams.iter().any(|entry| is_own(stream, entry));
        self.is_joined |= self.streams.iter().any(keeps);
        self.is_joined |= self.is_part && self.tables.is_single();
        if !self.is_joined {
            return;
        }
        let kept: Vec<bool> = self.streams.iter().map(keeps).collect();
        let mut free = map.streams.clone();
        free.retain(|entry| !self.streams.iter().any(|stream| is_own(stream, entry)));
        if kept.contains(&false) {
            for (stream, _) in self.streams.iter_mut().zip(kept).filter(|(_, is_kept)| !is_kept) {
                let found = free.iter().position(|&(_, kind)| kind == stream.stream_type);
                if let Some((pid, _)) = found.map(|at| free.remove(at)) {
                    (stream.pid, stream.payload) = (pid, PesPayload::default());
                    stream.lose();
                }
            }
        }
        self.targets.fill(0);
        for (index, stream) in self.streams.iter().enumerate() {
            // If the map gives its PID to another stream type, packets of the PID belong to that
            // stream.
            let is_other =
                |&(pid, kind): &(u16, u8)| pid == stream.pid && kind != stream.stream_type;
            if !map.streams.iter().any(is_other) {
                self.targets[usize::from(stream.pid)] = index as u8 + 1;
            }
        }
        free.into_iter().for_each(|(pid, kind)| self.name_later(offset, pid, kind));
    }

    /// Reports a stream that is in no map of the file's beginning, once.
    fn name_later(&mut self, offset: u64, pid: u16, stream_type: u8) {
        let is_named = self.left_out.iter().any(|track| track.id == u32::from(pid));
        if !is_named && self.left_out.len() < STREAMS_MAX {
            let reason = format!("named by a map at byte {offset}, behind the beginning; {LATER}");
            self.leave_out(pid, name(Coding::of(stream_type, &[])), &reason);
        }
    }

    /// Returns the presentation of the file; `identity` draws SSRC and first values of each track's
    /// stream.
    ///
    /// # Errors
    /// No stream can be sent.
    pub fn finish(
        self,
        mut identity: impl FnMut() -> RtpIdentity,
    ) -> Result<Presentation, Refusal> {
        let (mut tracks, mut left_out) = (Vec::new(), self.left_out);
        for stream in self.streams {
            let (id, coding, language) = (stream.id, stream.coding, stream.language);
            let other = match &stream.units {
                EsUnits::Sound(sound) => sound.other_frames(),
                _ => None,
            };
            let left = |reason: &str| self::left_out(id, name(coding), reason);
            left_out.extend(other.map(|frames| left(&format!("{frames}; {ENCODE}"))));
            match stream.finish() {
                Ok((codec, samples)) => tracks
                    .push(Track { language, ..Track::new(id.into(), codec, samples, identity()) }),
                Err(reason) => left_out.push(left(&reason)),
            }
        }
        let start = title_start(&tracks, SECOND as u32).unwrap_or(0);
        for track in &mut tracks {
            let timescale = i64::from(track.samples.timescale());
            track.shift = -((start * timescale + SECOND / 2) / SECOND);
        }
        Presentation::assemble(Container::TransportStream, self.file_bytes, tracks, left_out)
    }
}

impl EsTrack {
    fn feed(&mut self, offset: u64, packet: &TsPacket<'_>, bases: &mut TimeBases) {
        if matches!(self.units, EsUnits::LeftOut(_)) {
            return;
        }
        let is_scrambled = packet.header.is_scrambled() && packet.header.has_payload();
        if is_scrambled && !packet.header.is_damaged() {
            return self.refuse_scrambled(offset);
        }
        let part = self.payload.feed(packet);
        if part.is_scrambled {
            return self.refuse_scrambled(offset);
        }
        if part.is_after_loss {
            self.lose();
        }
        let place = offset + part.at as u64;
        let outcome = match &mut self.units {
            EsUnits::Pictures(pictures) => {
                if let Some(times) = part.begins {
                    pictures.begin(times, packet.adaptation().random_access);
                }
                pictures.take(part.bytes, place, bases).map_err(|fault| (pictures.len(), fault))
            }
            EsUnits::Sound(sound) => {
                if let Some(times) = part.begins {
                    sound.begin(times);
                }
                sound.take(part.bytes, place, bases).map_err(|fault| (sound.len(), fault))
            }
            EsUnits::LeftOut(_) => Ok(()),
        };
        if let Err((sample, fault)) = outcome {
            self.units = EsUnits::LeftOut(sample_reason(sample, &fault));
        }
    }

    fn refuse_scrambled(&mut self, offset: u64) {
        let reason = format!("scrambled at byte {offset}; descramble the file first");
        self.units = EsUnits::LeftOut(reason);
    }

    /// Handles missing packets.
    fn lose(&mut self) {
        match &mut self.units {
            EsUnits::Pictures(pictures) => pictures.lose(),
            EsUnits::Sound(sound) => {
                let sample = sound.len();
                if let Err(fault) = sound.lose() {
                    self.units = EsUnits::LeftOut(sample_reason(sample, &fault));
                }
            }
            EsUnits::LeftOut(_) => {}
        }
    }

    /// Returns codec and samples.
    ///
    /// # Errors
    /// The reason why the stream is left out.
    fn finish(self) -> Result<(Codec, SampleTable), String> {
        match self.units {
            EsUnits::Pictures(pictures) => pictures.finish().map_err(|fault| match fault {
                PicturesFault::Sample(sample, fault) => sample_reason(sample, &fault),
                PicturesFault::NoSets => format!("no parameter sets in it; {ENCODE}"),
                PicturesFault::NoStart => {
                    format!("no picture with which play can start; {ENCODE}")
                }
            }),
            EsUnits::Sound(sound) => sound.finish().map_err(|fault| match fault {
                SoundFault::Sample(sample, fault) => sample_reason(sample, &fault),
                SoundFault::NoFrames => format!("no frames with a time in it; {ENCODE}"),
                SoundFault::MostlyLost(bytes) => {
                    format!("{bytes} bytes between its frames, and fewer in them; {ENCODE}")
                }
            }),
            EsUnits::LeftOut(reason) => Err(reason),
        }
    }
}

fn left_out(pid: u16, name: &str, reason: &str) -> LeftOut {
    LeftOut { id: pid.into(), reason: format!("PID {pid}, {name}: {reason}") }
}

fn sample_reason(sample: usize, fault: &SampleFault) -> String {
    format!("its sample {sample} {fault}; {ENCODE}")
}

/// Returns the name of a coding for messages.
fn name(coding: Coding) -> &'static str {
    match coding {
        Coding::Mpeg2Video => "MPEG-2 video",
        Coding::Mpeg4Video => "MPEG-4 part 2",
        Coding::H264 => "H.264",
        Coding::H265 => "H.265",
        Coding::OtherVideo => "other video",
        Coding::MpegAudio => "MPEG audio",
        Coding::Aac => "AAC",
        Coding::AacLatm => "AAC in LOAS",
        Coding::Ac3 => "AC-3",
        Coding::Eac3 => "E-AC-3",
        Coding::OtherAudio => "other sound",
        Coding::Data => "data",
    }
}

/// Returns the reason why a stream of such a coding is not sent, and the remedy.
fn unsupported(coding: Coding) -> &'static str {
    match coding {
        Coding::Data => "neither pictures nor sound; the transport stream has it",
        _ => {
            "a codec that is not sent as a track; play the transport stream, or encode it anew \
             (ffmpeg -i IN -c:v libx264 -c:a aac OUT.ts)"
        }
    }
}

const LATER: &str = "the transport stream has it; tracks of all streams are made by remuxing it \
                     (ffmpeg -analyzeduration 1G -probesize 1G -i IN -map 0 -c copy OUT.ts)";
const ENCODE: &str =
    "play the transport stream, or encode it anew (ffmpeg -i IN -c:v libx264 -c:a aac OUT.ts)";

/// Packets of a file's beginning that are searched for the programme: 6 MiB.
const SURVEY_PACKETS_MAX: u64 = 1 << 15;

/// Interval, in packets, at which the survey is checked for completeness.
const SURVEY_LOOK_PACKETS: u64 = 256;

#[cfg(test)]
mod growing_tests;
#[cfg(test)]
mod recorded_tests;
#[cfg(test)]
mod tests;
