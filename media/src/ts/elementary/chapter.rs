// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lays out the packets of a chapter of an elementary stream, with all their bytes in memory.
//!
//! The access units of the chapter are extracted from the packets of the transport stream. Lengths
//! replace the start codes of NAL units, as in a file with tracks. From there on the payload
//! formats are the same ([`crate::payload`]); their file offsets refer to these bytes in memory.
//! Costs a read of the file from the chapter's first unit to its last and three copies of the
//! units' bytes, once for all sessions.
//!
//! Sources: ISO/IEC 14496-10 annex B, ISO/IEC 23008-2 annex B (start codes); ISO/IEC 14496-15
//! §5.3.2 (lengths).
//! Does not preserve trailing zeros of NAL units, which are padding.

use std::io;
use std::ops::Range;

use super::payload::PesPayload;
use super::pictures::LENGTH_BYTES;
use crate::byte_stream::started_nals;
use crate::payload::{Layout, lay_out_samples, timed_samples, writer_for};
use crate::plan::{PacketPlaces, PacketPlan};
use crate::tracks::{Codec, MediaSample, Presentation};
use crate::ts::packet_reader::{PacketBytes, PacketReader};
use crate::ts::{HEADER_BYTES, TsHeader, TsPacket};
use crate::{ReadAt, TS_PACKET_BYTES};

/// Lays out the packets of a track (index `track`) in a chapter of the elementary streams of the
/// transport stream with this plan, as [`crate::payload::lay_out`] does for files with tracks.
/// Units that changed in the file since they were found are omitted and counted
/// ([`Layout::faults`]). The layout has no ranges of the file.
///
/// # Errors
/// `file` cannot be read.
pub fn lay_out_elementary(
    plan: &PacketPlan,
    presentation: &Presentation,
    (track, chapter): (usize, u32),
    file: &(impl ReadAt + ?Sized),
) -> io::Result<Layout> {
    let codec = &presentation.tracks()[track].codec;
    let mut samples = timed_samples(presentation, track, chapter);
    let places = plan.places();
    let mut units = UnitReader { places, packets: PacketReader::new(places, 0, file), last: None };
    let mut writer = writer_for(presentation, track);
    let (mut media, mut unit) = (Vec::new(), Vec::new());
    let mut left = CHAPTER_PACKETS_MAX;
    for timed in &mut samples {
        let is_whole = units.copy(codec, &mut timed.sample, (&mut unit, &mut media), &mut left)?;
        if !is_whole {
            writer.fault();
        }
    }
    samples.retain(|timed| timed.sample.bytes > 0);
    lay_out_samples(codec, &samples, &media, &mut writer)?;
    Ok(writer.finish_with(&media))
}

/// Appends samples of a track (index, numbers) in the elementary streams of the transport stream
/// with these packets to `media`, NAL units after their lengths, and returns them with their
/// offsets there. If a sample changed in the file since it was found, the previous sample is
/// extended by its duration.
///
/// # Errors
/// `file` cannot be read.
pub fn copy_elementary<'p>(
    places: impl Into<PacketPlaces<'p>>,
    presentation: &Presentation,
    (track, numbers): (usize, Range<usize>),
    file: &(impl ReadAt + ?Sized),
    media: &mut Vec<u8>,
) -> io::Result<Vec<MediaSample>> {
    let track = &presentation.tracks()[track];
    let places = places.into();
    let mut units = UnitReader { places, packets: PacketReader::new(places, 0, file), last: None };
    let mut samples: Vec<MediaSample> = Vec::with_capacity(numbers.len());
    let packet = |number: usize| {
        let at = number.checked_sub(1).filter(|_| numbers.end > numbers.start)?;
        place(places, track.samples.sample(at).file_offset).map(|(packet, _)| packet)
    };
    // Each packet is read once, or twice if units share it.
    let span = packet(numbers.end).zip(packet(numbers.start + 1));
    let span = span.map_or(0, |(last, first)| last.saturating_sub(first));
    let (mut unit, mut left) = (Vec::new(), CHAPTER_PACKETS_MAX + 2 * span);
    for mut sample in track.samples.samples(numbers) {
        units.copy(&track.codec, &mut sample, (&mut unit, media), &mut left)?;
        match samples.last_mut() {
            _ if sample.bytes > 0 => samples.push(sample),
            Some(before) => before.duration = before.duration.saturating_add(sample.duration),
            None => {}
        }
        if left == 0 {
            return Err(io::Error::other("the units lie too far apart in the file"));
        }
    }
    Ok(samples)
}

/// Extracts access units from packets.
struct UnitReader<'a, F: ?Sized> {
    places: PacketPlaces<'a>,
    packets: PacketReader<'a, F>,
    /// The packet read last, and its number: the next unit often begins in it.
    last: Option<(u64, PacketBytes)>,
}

impl<F: ReadAt + ?Sized> UnitReader<'_, F> {
    /// Appends a sample to `media` in the form of files with tracks and stores its position there
    /// in `sample`. Returns false, and appends nothing, if the file does not contain it. `unit` is
    /// a buffer.
    fn copy(
        &mut self,
        codec: &Codec,
        sample: &mut MediaSample,
        (unit, media): (&mut Vec<u8>, &mut Vec<u8>),
        left: &mut u64,
    ) -> io::Result<bool> {
        unit.clear();
        let is_whole = self.read(sample.file_offset, sample.bytes, unit, left)?;
        let from = media.len();
        match codec {
            _ if !is_whole => {}
            Codec::H264(_) | Codec::H265(_) => with_lengths(unit, media),
            _ => media.extend_from_slice(unit),
        }
        (sample.file_offset, sample.bytes) = (from as u64, (media.len() - from) as u32);
        Ok(is_whole)
    }

    /// Appends the unit of size `bytes` whose first byte lies at `file_offset`; false if the file
    /// does not contain it. `left` counts down the packets that may be read.
    fn read(
        &mut self,
        file_offset: u64,
        bytes: u32,
        unit: &mut Vec<u8>,
        left: &mut u64,
    ) -> io::Result<bool> {
        let Some((number, at)) = place(self.places, file_offset) else { return Ok(false) };
        let first = match self.last.take().filter(|&(last, _)| last == number) {
            Some((_, packet)) => packet,
            None => {
                self.packets.seek(number);
                let Some(packet) = self.packets.read()? else { return Ok(false) };
                packet
            }
        };
        let header = TsHeader::read(&first);
        let pid = header.pid();
        let packet = TsPacket { header, bytes: &first };
        let is_own = header.is_sync() && TS_PACKET_BYTES - packet.payload().len() <= at;
        if !is_own || header.is_scrambled() {
            return Ok(false);
        }
        let wanted = bytes as usize;
        let mut payload = PesPayload::within(header);
        unit.extend(first[at..].iter().take(wanted));
        self.last = Some((number, first));
        while unit.len() < wanted {
            let number = self.packets.next_packet();
            *left = left.saturating_sub(1);
            let Some(bytes) = self.packets.read()?.filter(|_| *left > 0) else { return Ok(false) };
            let packet = TsPacket { header: TsHeader::read(&bytes), bytes: &bytes };
            if packet.header.pid() != pid {
                continue;
            }
            if packet.header.is_scrambled() {
                return Ok(false);
            }
            let part = payload.feed(&packet);
            unit.extend(part.bytes.iter().take(wanted - unit.len()));
            self.last = Some((number, bytes));
        }
        // Packets after the last packet of the unit are read again for the next.
        Ok(true)
    }
}

/// Returns the number of the packet that contains a byte of the file, and its offset there; none
/// for a byte outside of packet payloads.
fn place(places: PacketPlaces<'_>, file_offset: u64) -> Option<(u64, usize)> {
    let PacketPlaces { stride, extents, .. } = places;
    let after = extents.partition_point(|extent| extent.file_offset <= file_offset);
    let extent = extents.get(after.checked_sub(1)?)?;
    let within = file_offset - extent.file_offset;
    let (packet, at) = (within / stride, (within % stride) as usize);
    let is_there = packet < extent.ts_packets && (HEADER_BYTES..TS_PACKET_BYTES).contains(&at);
    is_there.then_some((extent.first_ts_packet + packet, at))
}

/// Appends the NAL units of an access unit to `out`, each after its length.
fn with_lengths(unit: &[u8], out: &mut Vec<u8>) {
    for nal in started_nals(unit) {
        const { assert!(LENGTH_BYTES as usize == size_of::<u32>()) };
        out.extend((nal.len() as u32).to_be_bytes());
        out.extend_from_slice(nal);
    }
}

/// Packets that are read for a chapter: 250 MB, a second at 2 Gb/s.
const CHAPTER_PACKETS_MAX: u64 = 250_000_000 / TS_PACKET_BYTES as u64;
