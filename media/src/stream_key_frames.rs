// SPDX-License-Identifier: MIT OR Apache-2.0
//! Key frames of a transport stream as segments of one picture, for players that show pictures
//! while the viewer scrubs.
//!
//! A segment is a range of the file: the packets from the first of the picture to its last,
//! including those of other streams among them. The tables that a decoder needs are elsewhere in
//! the file ([`StreamKeyFrames::file_tables`]), or are sent before the segment
//! ([`StreamKeyFrames::tables`]). The durations add up to that of the segments of the whole stream;
//! the first key frame also covers the time before it.
//!
//! A file is refused if its key frames are not pictures in PES packets of their own, or do not
//! begin with an intra picture (gradual refresh). Muxers and encoders are consistent in that: only
//! some key frames are examined, spread over the file.
//!
//! Costs a pass over the places to start, and a read of [`READ_MAX`] pictures.
//!
//! Sources: RFC 8216 §4.3.3.6 (EXT-X-I-FRAMES-ONLY), §3.2; ISO/IEC 14496-10 §7.3.3.
//! Does not list pictures of other codings than H.264: HLS has no others in transport streams.

use std::io;
use std::ops::Range;

use crate::bits::without_emulation;
use crate::byte_stream::started_nals;
use crate::plan::{EntryPoint, PacketPlan};
use crate::random_access::slice_head;
use crate::segments::{SegmentPlan, begin, places};
use crate::sequence::H264Frames;
use crate::ts::{Coding, EntryContext, EntryPoints, key_unit};
use crate::{ReadAt, TICKS_PER_SECOND, TS_PACKET_BYTES};

/// Least distance of the key frames in the list, as for files with tracks.
const APART_TICKS: u64 = TICKS_PER_SECOND;

/// Key frames of a list at most, nine hours; a file that has more has no list.
const KEY_FRAMES_MAX: usize = 1 << 15;

/// Key frames that are examined.
const READ_MAX: usize = 8;

/// Most packets of a range of tables: a row of them, and few others at the start of the file.
const TABLE_PACKETS_MAX: u64 = 16;

const PACKET_BYTES: u64 = TS_PACKET_BYTES as u64;

/// A key frame in a playlist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamKeyFrame {
    /// Its bytes of the file: whole packets.
    pub file: Range<u64>,
    /// Time until the next in the list.
    pub ticks: u64,
    /// Timestamps do not continue those of the key frame before (EXT-X-DISCONTINUITY).
    pub is_break: bool,
    /// Bytes of the file directly before it that are its tables.
    own_tables: Option<Range<u64>>,
    context: EntryContext,
}

/// The key frames of a file, in order; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamKeyFrames {
    list: Vec<StreamKeyFrame>,
    tables: EntryPoints,
}

impl StreamKeyFrames {
    /// Lists the key frames of a file with this plan, the places where its play can start, and
    /// these segments of it.
    ///
    /// # Errors
    /// `file` cannot be read. The inner one: the reason why there is no list.
    pub fn of(
        plan: &PacketPlan,
        starts: &EntryPoints,
        segments: &SegmentPlan,
        file: &(impl ReadAt + ?Sized),
    ) -> io::Result<Result<Self, &'static str>> {
        if !plan.streams().iter().any(|one| Coding::of(one.stream_type, &[]) == Coding::H264) {
            return Ok(Err("the stream has no pictures of H.264"));
        }
        let (entries, list) = listed(plan, starts, segments);
        if list.is_empty() {
            return Ok(Err("the stream has no key frame with tables, or none of a known end"));
        }
        if list.len() > KEY_FRAMES_MAX {
            return Ok(Err("the stream has more than 32,768 key frames a second apart"));
        }
        let step = list.len().div_ceil(READ_MAX);
        for entry in entries.iter().step_by(step) {
            let Some((_, unit)) = key_unit(plan, *entry, file)? else {
                return Ok(Err("a key frame is scrambled or damaged"));
            };
            if !is_one_intra_picture(&unit) {
                return Ok(Err("a key frame lies in one PES packet with other pictures, or is \
                               refreshed over several"));
            }
        }
        Ok(Ok(Self { list, tables: starts.without_entries() }))
    }

    /// The key frames; at least one.
    pub fn list(&self) -> &[StreamKeyFrame] {
        &self.list
    }

    /// Returns the packets to send before a key frame that is sent alone: PAT and PMT, and the
    /// parameter sets that it lacks.
    pub fn tables(&self, frame: &StreamKeyFrame) -> Vec<u8> {
        self.tables.tables(&frame.context)
    }

    /// Returns the bytes of the file that are the tables of each key frame; `None` if the tables of
    /// a frame are not directly before any key frame, or if a frame lacks parameter sets.
    pub fn file_tables(&self) -> Option<Vec<Range<u64>>> {
        let mut all = Vec::with_capacity(self.list.len());
        let has_same = |one: &StreamKeyFrame, other: &StreamKeyFrame| {
            one.context.has_tables_of(&other.context)
        };
        for run in self.list.chunk_by(has_same) {
            if run.iter().any(|frame| frame.context.parameters().is_some()) {
                return None;
            }
            let found = || run.iter().filter_map(|frame| frame.own_tables.clone());
            // Other packets may precede the first tables of a file.
            let tables = found().find(|tables| tables.start > 0).or_else(|| found().next())?;
            all.extend(std::iter::repeat_n(tables, run.len()));
        }
        Some(all)
    }

    /// Memory of the list.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&self.list[..])
    }
}

/// The key frames, each with its place.
fn listed(
    plan: &PacketPlan,
    starts: &EntryPoints,
    segments: &SegmentPlan,
) -> (Vec<EntryPoint>, Vec<StreamKeyFrame>) {
    let places = places(plan, starts);
    let Some(first) = places.first() else { return (Vec::new(), Vec::new()) };
    let begin = begin(first);
    let end = begin + segments.list().iter().map(|segment| segment.ticks).sum::<u64>();
    let mut breaks = segments.list().iter().filter(|segment| segment.is_break).peekable();
    let mut found: Vec<(EntryPoint, StreamKeyFrame)> = Vec::new();
    // Times of those found.
    let mut times: Vec<u64> = Vec::new();
    let mut is_break = false;
    for (place, (entry, context)) in places.iter().zip(&starts.entries) {
        while breaks.next_if(|one| one.file.start <= place.packet * PACKET_BYTES).is_some() {
            is_break = true;
        }
        let Some(packets) = context.unit_packets().filter(|_| context.has_tables()) else {
            continue;
        };
        let is_near = times.last().is_some_and(|last| place.ticks - last < APART_TICKS);
        if is_near && !is_break {
            continue;
        }
        let unit = entry.access_unit;
        let is_led = context.is_led() && unit - entry.ts_packet <= TABLE_PACKETS_MAX;
        let bytes = |packets: Range<u64>| packets.start * PACKET_BYTES..packets.end * PACKET_BYTES;
        times.push(place.ticks);
        found.push((
            *entry,
            StreamKeyFrame {
                file: bytes(unit..unit + packets),
                ticks: 0,
                is_break: std::mem::take(&mut is_break),
                own_tables: is_led.then(|| bytes(entry.ts_packet..unit)),
                context: *context,
            },
        ));
    }
    let (entries, mut list): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    if let Some(first) = times.first_mut() {
        *first = begin;
    }
    let ends = times.iter().skip(1).chain([&end]);
    for ((frame, at), end) in list.iter_mut().zip(&times).zip(ends) {
        frame.ticks = end.saturating_sub(*at);
    }
    (entries, list)
}

/// True for the bytes of one intra picture of H.264, or of the two fields of one.
fn is_one_intra_picture(unit: &[u8]) -> bool {
    let (mut pictures, mut has_fields) = (0, false);
    for nal in started_nals(unit) {
        match nal[0] & 0x1f {
            SEQUENCE_SET => {
                has_fields = H264Frames::read(nal).is_some_and(|(_, frames)| !frames.is_frames);
            }
            1 | 2 | REFRESH => {
                let head = without_emulation(&nal[1..nal.len().min(SLICE_BYTES)]);
                let Some((first, is_intra)) = slice_head(&head) else { return false };
                pictures += u32::from(first == 0);
                // The second field may refer to the first.
                if pictures <= 1 && !is_intra {
                    return false;
                }
            }
            _ => {}
        }
    }
    pictures == 1 || pictures == 2 && has_fields
}

/// Types of NAL units.
const REFRESH: u8 = 5;
const SEQUENCE_SET: u8 = 7;

/// Bytes of a slice that hold its first two fields, and emulation prevention bytes.
const SLICE_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn is_one(nals: &[&[u8]]) -> bool {
        let unit = nals.iter().flat_map(|nal| [&[0, 0, 0, 1][..], nal].concat());
        is_one_intra_picture(&unit.collect::<Vec<u8>>())
    }

    const DELIMITER: &[u8] = &[9, 0x10];
    /// Main profile: identifier, frame numbers, order of decoding, a reference, no gaps, a
    /// macroblock each way; then frame_mbs_only_flag.
    const FRAMES: &[u8] = &[0x67, 77, 0, 30, 0b1101_1010, 0b0111_1000];
    const FIELDS: &[u8] = &[0x67, 77, 0, 30, 0b1101_1010, 0b0110_1000];
    const IDR: &[u8] = &[0x65, 0x88, 0x84, 0x40];
    /// Its second slice.
    const SECOND: &[u8] = &[0x65, 0b0100_0010, 0b0010_0000];
    const INTRA_SLICE: &[u8] = &[0x41, 0b1011_0000, 0x40];
    const PREDICTED: &[u8] = &[0x41, 0b1100_0000, 0x40];

    #[test]
    fn units_of_several_pictures_or_of_none_that_is_intra_are_told_apart() {
        assert!(is_one(&[DELIMITER, FRAMES, &[0x68, 0xee], IDR]));
        assert!(is_one(&[IDR, SECOND]) && is_one(&[INTRA_SLICE]));
        assert!(!is_one(&[IDR, DELIMITER, PREDICTED]), "two pictures");
        assert!(!is_one(&[FRAMES, IDR, PREDICTED]), "two pictures");
        assert!(is_one(&[FIELDS, IDR, PREDICTED]), "two fields of one");
        assert!(!is_one(&[FIELDS, IDR, PREDICTED, PREDICTED]), "three fields");
        assert!(!is_one(&[PREDICTED]), "refreshed over several");
        assert!(!is_one(&[IDR, &[0x41, 0b0101_1000, 0x40]]), "a slice that refers to others");
        assert!(!is_one(&[DELIMITER, FRAMES]) && !is_one(&[]), "no picture");
        assert!(!is_one(&[&[0x65]]), "cut off");
    }
}
