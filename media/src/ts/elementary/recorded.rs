// SPDX-License-Identifier: MIT OR Apache-2.0
//! Demultiplexes one segment of a recording or channel by itself; such a segment is a part.
//!
//! A part contains the samples whose PES packets begin in it. Their last bytes may lie after its
//! end. Reading therefore continues until the next unit of each stream has begun, or up to a limit,
//! but not beyond twice the length of the part ([`BEHIND_PACKETS_MIN`] at least), because a stream
//! may have stopped for good. The result depends only on the part, the PIDs before it and the
//! position where reading ended, so it can be reproduced later.
//!
//! A channel's packets are contiguous. All streams restart with each of its programmes, so the last
//! part of a programme is read to its end, where its streams end, too.
//!
//! A recording may end within a picture, so the length of the last picture is unknown. It is
//! dropped if its last packet is full, because packets at the end of a PES packet are rarely full:
//! decoders give up on a truncated picture.
//!
//! Costs a read of the part, and per packet the costs of [`super`].
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.7 (times).
//! Does not join parts ([`crate::GrowingFragments`] does). An audio frame is lost if its header
//! straddles two PES packets at the border of two parts.

use std::io;
use std::ops::Range;

use super::time_bases::{ORIGIN, SECOND};
use super::{ElementaryDemuxer, EsTrack, EsUnits, copy_elementary, left_out, name};
use crate::growing_segments::GrowingSegment;
use crate::mux::needs_first_unit;
use crate::plan::{ElementaryStream, PacketPlaces, PacketPlan, RtpIdentity};
use crate::tracks::{
    Codec, Container, LeftOut, MediaSample, Presentation, SampleTableBuilder, Track, TrackMedia,
};
use crate::ts::packet_reader::PacketReader;
use crate::ts::{Coding, Survey, TsHeader, TsPacket};
use crate::{ReadAt, TS_PACKET_BYTES};

/// Smallest limit for packets read after a part, for the end of its last units: 6 MB.
const BEHIND_PACKETS_MIN: u64 = 1 << 15;

/// The streams of a recording that MP4 segments can carry: the first video stream, and all audio
/// streams.
#[derive(Debug)]
pub struct RecordedStreams {
    streams: Vec<RecordedStream>,
    left_out: Vec<LeftOut>,
}

/// A stream of the programme.
#[derive(Debug)]
struct RecordedStream {
    pid: u16,
    stream_type: u8,
    coding: Coding,
    language: Option<[u8; 3]>,
}

/// The elementary streams in a part of the file.
#[derive(Debug)]
pub struct RecordedPart {
    /// The first 33-bit time, in units of 90 kHz: the zero of all times here.
    pub(crate) first_time: Option<u64>,
    /// Tracks by stream; none if the stream has no sample.
    pub(crate) tracks: Vec<Option<PartTrack>>,
    pub(crate) context: PartContext,
    /// Streams that are left out of the part, by their PID, except those left out from the
    /// beginning.
    pub left_out: Vec<LeftOut>,
    /// True if further bytes of the recording cannot change it.
    pub is_settled: bool,
}

/// Position and state from which a part can be reproduced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartContext {
    /// PIDs of the streams before it, and after it.
    pub(crate) pids: Box<[u16]>,
    pub(crate) next_pids: Box<[u16]>,
    /// Position where reading ended.
    pub(crate) limit: PartLimit,
}

/// Limit of reading for a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartLimit {
    /// Reading ends before this packet at the latest.
    Packet(u64),
    /// Reading ends with the part: its units end there.
    Part,
}

/// Samples of a stream, at times relative to [`RecordedPart::first_time`].
#[derive(Debug)]
pub(crate) struct PartTrack {
    /// None if the video has no parameter sets.
    pub(crate) codec: Option<Codec>,
    pub(crate) timescale: u32,
    /// Samples with media time as [`ElementaryDemuxer`] assigns it.
    pub(crate) samples: Vec<MediaSample>,
    /// The first sample, if its bytes are needed to describe the codec.
    pub(crate) first_unit: Vec<u8>,
}

impl RecordedStreams {
    /// Searches the beginning of a recording for its streams. Returns `None` if it has video that
    /// MP4 segments cannot carry, or no stream that they can.
    ///
    /// # Errors
    /// `file` cannot be read.
    pub fn find(
        plan: &PacketPlan,
        file: &(impl ReadAt + ?Sized),
    ) -> io::Result<Option<RecordedStreams>> {
        let mut demuxer = ElementaryDemuxer::new(plan);
        demuxer.find_programme(plan, file)?;
        Ok(RecordedStreams::chosen(demuxer, plan.streams()))
    }

    /// Does the same for a programme of a channel that begins with these packets.
    pub fn of_programme(beginning: &[u8]) -> Option<RecordedStreams> {
        let mut survey = Survey::default();
        survey.feed(beginning);
        let programmes = survey.finish();
        let first = programmes.first()?.tracks.iter();
        let streams =
            first.map(|one| ElementaryStream { pid: one.pid, stream_type: one.stream_type });
        let mut demuxer = ElementaryDemuxer::of_file(beginning.len() as u64);
        let streams: Vec<ElementaryStream> = streams.collect();
        demuxer.choose(&streams, &programmes);
        RecordedStreams::chosen(demuxer, &streams)
    }

    /// Selects the streams that MP4 segments can carry; `all` are the streams of the programme.
    fn chosen(mut demuxer: ElementaryDemuxer, all: &[ElementaryStream]) -> Option<RecordedStreams> {
        let is_video = |coding: Coding| coding.is_video();
        let first = demuxer.streams.iter().find(|stream| is_video(stream.coding));
        let first = first.map(|stream| stream.pid);
        let codings = all.iter().map(|one| Coding::of(one.stream_type, &[]));
        let is_lost = first.is_none() && codings.into_iter().any(is_video);
        let is_further = |one: &EsTrack| is_video(one.coding) && Some(one.pid) != first;
        for (pid, coding) in
            demuxer.streams.iter().filter(|one| is_further(one)).map(|one| (one.pid, one.coding))
        {
            demuxer.left_out.push(left_out(pid, name(coding), FURTHER));
        }
        let streams = demuxer.streams.into_iter().filter(|one| !is_further(one));
        let mut streams: Vec<RecordedStream> = streams
            .map(|one| RecordedStream {
                pid: one.pid,
                stream_type: one.stream_type,
                coding: one.coding,
                language: one.language,
            })
            .collect();
        streams.sort_by_key(|stream| !is_video(stream.coding));
        let left_out = demuxer.left_out;
        (!is_lost && !streams.is_empty()).then_some(RecordedStreams { streams, left_out })
    }

    /// Returns the streams of the beginning that are left out, with the reasons.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Returns the number of streams; video is the first.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Returns the language of a stream (ISO 639-2).
    pub(crate) fn language(&self, stream: usize) -> Option<[u8; 3]> {
        self.streams[stream].language
    }

    /// True for a video stream.
    pub(crate) fn is_video(&self, stream: usize) -> bool {
        self.streams[stream].coding.is_video()
    }

    /// Returns the PIDs at the beginning of the recording.
    pub(crate) fn pids(&self) -> Box<[u16]> {
        self.streams.iter().map(|stream| stream.pid).collect()
    }

    /// Returns the samples in a segment, before which the streams have these PIDs.
    ///
    /// # Errors
    /// `file` cannot be read.
    pub fn part<'p>(
        &self,
        places: impl Into<PacketPlaces<'p>>,
        (segment, pids): (&GrowingSegment, &[u16]),
        limit: PartLimit,
        file: &(impl ReadAt + ?Sized),
    ) -> io::Result<RecordedPart> {
        let places = places.into();
        let mut demuxer = self.demuxer(places, pids);
        let (tables, _) = segment.tables.as_chunks::<TS_PACKET_BYTES>();
        for bytes in tables {
            demuxer.feed(segment.file.start, &TsPacket { header: TsHeader::read(bytes), bytes });
        }
        let [first, end] =
            [segment.file.start, segment.file.end].map(|byte| places.ts_packets_before_byte(byte));
        let mut reader = PacketReader::new(places, first, file);
        // Offset of the first PES packet of each stream after the part.
        let mut ends = vec![None; self.streams.len()];
        // False if the last packet of a stream is full: its unit may continue.
        let mut are_whole = vec![true; self.streams.len()];
        let mut next_pids = None;
        let mut is_settled = false;
        let behind_max = (2 * end.saturating_sub(first)).max(BEHIND_PACKETS_MIN);
        let until = match limit {
            PartLimit::Packet(packet) => packet.max(end),
            PartLimit::Part => end,
        };
        while reader.next_packet() < until {
            let is_behind = reader.next_packet() >= end;
            if is_behind {
                next_pids.get_or_insert_with(|| demuxer.end_part());
                is_settled = reader.next_packet() - end >= behind_max
                    || ends.iter().zip(&demuxer.streams).all(|(end, one)| one.is_over(*end));
                if is_settled {
                    break;
                }
            }
            let Some((offset, bytes)) = reader.read_at()? else { break };
            let packet = TsPacket { header: TsHeader::read(&bytes), bytes: &bytes };
            if !is_behind {
                demuxer.feed(offset, &packet);
            }
            let target = demuxer.targets[usize::from(packet.header.pid())];
            let Some(stream) = usize::from(target).checked_sub(1) else { continue };
            if packet.header.has_payload() {
                are_whole[stream] = has_stuffing(&packet);
            }
            if is_behind {
                if packet.header.starts_unit() && !packet.header.is_damaged() {
                    ends[stream].get_or_insert(offset);
                }
                demuxer.streams[stream].feed(offset, &packet, &mut demuxer.bases);
            }
        }
        let context = PartContext {
            pids: pids.into(),
            next_pids: next_pids.unwrap_or_else(|| demuxer.pids()),
            limit: match limit {
                PartLimit::Packet(_) => PartLimit::Packet(reader.next_packet()),
                PartLimit::Part => PartLimit::Part,
            },
        };
        let first_time = demuxer.bases.first();
        let streams = demuxer.streams.into_iter().zip(ends).zip(are_whole);
        let mut tracks = Vec::with_capacity(self.streams.len());
        // After the last packets of a programme's pictures there may be the map of the next
        // programme, which reports its own streams.
        let mut others = match limit {
            PartLimit::Packet(_) => demuxer.left_out,
            PartLimit::Part => Vec::new(),
        };
        others.retain(|one| self.left_out.iter().all(|known| known.id != one.id));
        for ((stream, end), is_whole) in streams {
            if let EsUnits::LeftOut(reason) = &stream.units {
                others.push(left_out(stream.pid, name(stream.coding), reason));
            }
            let is_whole = is_whole || limit == PartLimit::Part;
            tracks.push(stream.finish_part((end, is_whole), places, file)?);
        }
        is_settled |= limit == PartLimit::Part;
        Ok(RecordedPart { first_time, tracks, context, left_out: others, is_settled })
    }

    /// Creates a demuxer of the streams with these PIDs.
    fn demuxer(&self, places: PacketPlaces<'_>, pids: &[u16]) -> ElementaryDemuxer {
        let mut demuxer =
            ElementaryDemuxer { is_part: true, ..ElementaryDemuxer::of_file(places.file_bytes) };
        for (stream, &pid) in self.streams.iter().zip(pids) {
            demuxer.add(pid, (stream.stream_type, stream.coding), stream.language);
        }
        demuxer
    }
}

/// Reason for leaving out further video streams.
const FURTHER: &str = "pictures beside the first of the programme; the transport stream has them";

impl ElementaryDemuxer {
    /// Ignores further parameter sets, which belong to the next part. Returns the current PIDs.
    fn end_part(&mut self) -> Box<[u16]> {
        for stream in &mut self.streams {
            if let EsUnits::Pictures(pictures) = &mut stream.units {
                pictures.end_sets();
            }
        }
        self.pids()
    }

    fn pids(&self) -> Box<[u16]> {
        self.streams.iter().map(|stream| stream.pid).collect()
    }
}

impl EsTrack {
    /// True if all samples that begin before `end` are complete.
    fn is_over(&self, end: Option<u64>) -> bool {
        let begun = match &self.units {
            EsUnits::Pictures(pictures) => pictures.begun(),
            EsUnits::Sound(sound) => sound.begun(),
            EsUnits::LeftOut(_) => None,
        };
        // A stream without a current unit does not delay the part.
        begun.is_none_or(|begun| end.is_some_and(|end| begun >= end))
    }

    /// Returns the samples that begin before `end`, without the last picture of the file if it may
    /// be incomplete; none without samples.
    fn finish_part(
        self,
        (end, is_whole): (Option<u64>, bool),
        places: PacketPlaces<'_>,
        file: &(impl ReadAt + ?Sized),
    ) -> io::Result<Option<PartTrack>> {
        let found = match self.units {
            EsUnits::Pictures(pictures) => pictures.finish_part(),
            EsUnits::Sound(sound) => {
                sound.finish().ok().map(|(codec, samples)| (Some(codec), samples))
            }
            EsUnits::LeftOut(_) => None,
        };
        let Some((codec, table)) = found else { return Ok(None) };
        let is_own = |sample: &MediaSample| end.is_none_or(|end| sample.file_offset < end);
        let all = table.samples(0..table.len());
        let mut own: Vec<MediaSample> = all.take_while(is_own).collect();
        if end.is_none() && !is_whole && self.coding.is_video() {
            own.pop();
        }
        let mut track =
            PartTrack { codec, timescale: table.timescale(), samples: own, first_unit: Vec::new() };
        if track.samples.is_empty() {
            return Ok(None);
        }
        if let Some(codec) = track.codec.clone().filter(needs_first_unit)
            && let Some(one) = track.presentation(codec, None, 0, 0..1, places.file_bytes)
        {
            copy_elementary(places, &one, (0, 0..1), file, &mut track.first_unit)?;
        }
        Ok(Some(track))
    }
}

/// True for a packet with stuffing: multiplexers add it at the end of a PES packet.
fn has_stuffing(packet: &TsPacket<'_>) -> bool {
    const HAS_PCR: u8 = 0x10;
    const PCR_BYTES: u8 = 6;
    if !packet.header.has_adaptation() {
        return false;
    }
    match (packet.bytes[4], packet.bytes[5]) {
        (0, _) => true,
        (length, flags) => length > 1 + if flags & HAS_PCR != 0 { PCR_BYTES } else { 0 },
    }
}

impl PartTrack {
    /// Returns the media time that corresponds to [`RecordedPart::first_time`].
    pub(crate) fn origin(&self) -> i64 {
        ORIGIN / SECOND * i64::from(self.timescale)
    }

    /// Returns the number of samples before the first one with which play can start.
    pub(crate) fn led_by(&self) -> usize {
        self.samples.iter().position(|sample| sample.is_start).unwrap_or(0)
    }

    /// Returns the earliest presentation and the latest end of some samples, in the demuxer's media
    /// time.
    pub(crate) fn presented(&self, samples: Range<usize>) -> Option<(i64, i64)> {
        let samples = self.samples.get(samples)?;
        let at = |sample: &MediaSample| sample.decode as i64 + i64::from(sample.offset.max(0));
        let start = samples.iter().map(at).min()?;
        let end = samples.iter().map(|sample| at(sample) + i64::from(sample.duration)).max()?;
        Some((start, end))
    }

    /// Returns a presentation whose only track holds some of the samples, moved in time, in a file
    /// of this size; `None` if none can be sent.
    pub(crate) fn presentation(
        &self,
        codec: Codec,
        language: Option<[u8; 3]>,
        moved: i64,
        samples: Range<usize>,
        file_bytes: u64,
    ) -> Option<Presentation> {
        let mut table = SampleTableBuilder::new(self.timescale, file_bytes);
        for sample in self.samples.get(samples)? {
            let decode = u64::try_from(sample.decode as i64 + moved).ok()?;
            let offset = sample.offset.max(0);
            table.push(MediaSample { decode, offset, ..*sample }).ok()?;
        }
        let samples = table.finish_part()?;
        let identity = RtpIdentity { ssrc: 0, first_sequence: 0, first_timestamp: 0 };
        let is_video = codec.media() == TrackMedia::Video;
        let id = if is_video { 1 } else { 2 };
        let track = Track { language, ..Track::new(id, codec, samples, identity) };
        let container = Container::TransportStream;
        Presentation::assemble(container, file_bytes, vec![track], Vec::new()).ok()
    }
}
