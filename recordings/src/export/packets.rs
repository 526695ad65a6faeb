// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts and joins recorded transport streams: whole segments between two places where play can
//! start, with the tables that the first of them needs.
//!
//! A recorder continues a transport stream in its file when the camera was absent. The file does
//! not tell for how long, but its start and its end are known: segments before the first break are
//! timed from the start, those behind the last from the end. Those between are timed as if the
//! camera had been absent only before the last break.
//!
//! Sources: ISO/IEC 13818-1 §2.4.4 (tables).
//! Does not change packets: continuity counters and clocks go through where the files do.

use std::ops::Range;

use jiff::Timestamp;
use media::store::random_identity;
use media::{DemuxError, Refusal, Segment, SegmentPlan, duration_of, entry_points, ticks_of};

use super::{Cut, Piece, Writing, open, ticks_in, unreadable};
use crate::length::scan;
use crate::{CameraFile, Error, RecordedTime};

/// Target duration of segments: places where play can start are joined to it.
const TARGET_S: u64 = 1;

/// Finds the segments of a time; none if play can start nowhere in it.
pub(super) fn cut(recordings: &[CameraFile], range: RecordedTime) -> Result<Cut, Error> {
    let mut cut = Cut::default();
    for (index, recording) in recordings.iter().enumerate() {
        let is_first = cut.pieces.is_empty();
        let is_last = index + 1 == recordings.len();
        let to = if is_last { range.to } else { Timestamp::MAX };
        let range = RecordedTime { to, ..range };
        if !is_first && recording.to() <= range.to {
            cut.push(whole(recording)?);
        } else if let Some((head, piece)) = part(recording, range, is_first)? {
            cut.head.extend(head);
            cut.push(piece);
        }
    }
    Ok(cut)
}

/// Copies the segments.
pub(super) fn copy(cut: &Cut, writing: &mut Writing<'_>) -> Result<(), Error> {
    for piece in &cut.pieces {
        writing.copy(&piece.open()?, piece.path(), piece.bytes.clone())?;
        writing.spans.extend(piece.times.iter().map(|time| piece.span(time)));
    }
    Ok(())
}

/// All whole packets of a recording.
fn whole(recording: &CameraFile) -> Result<Piece, Error> {
    let (file, bytes) = open(recording)?;
    let bytes = 0..bytes - bytes % media::TS_PACKET_BYTES as u64;
    let times = vec![std::time::Duration::ZERO..recording.length];
    let (recording, file) = (recording.clone(), Some(file));
    Ok(Piece { recording, file, bytes, times, until: u64::MAX })
}

/// The segments of a time in a recording, and the tables before them.
fn part(
    recording: &CameraFile,
    range: RecordedTime,
    is_first: bool,
) -> Result<Option<(Vec<u8>, Piece)>, Error> {
    let failed = unreadable(&recording.path);
    let (file, bytes) = open(recording)?;
    let scanner = scan(&file, bytes).map_err(&failed)?;
    let plan =
        scanner.finish(bytes, random_identity()).map_err(|refusal| failed(refusal.into()))?;
    let starts = entry_points(&plan, &file).map_err(|error| failed(error.into()))?;
    let segments = match SegmentPlan::cut_however_long(&plan, starts, TARGET_S) {
        Ok(segments) => segments,
        Err(Refusal::NoStart) if is_first => return Ok(None),
        Err(Refusal::NoStart) => return whole(recording).map(|piece| Some((Vec::new(), piece))),
        Err(refusal) => return Err(failed(DemuxError::Refused(refusal))),
    };
    let absent = match plan.discontinuities() {
        0 => 0,
        _ => ticks_of(recording.length).saturating_sub(plan.duration_ticks()),
    };
    let times = times(segments.list(), absent);
    let ticks = ticks_in(recording, range);
    let is_wanted =
        |time: &Range<u64>| time.start < ticks.end && (time.end > ticks.start || !is_first);
    let Some(first) = times.iter().position(is_wanted) else { return Ok(None) };
    let mut last = times.iter().rposition(is_wanted).unwrap_or(first);
    // The last picture of a file that grows is not whole.
    if recording.is_growing && last + 1 == times.len() && last > first {
        last -= 1;
    }
    let mut spans: Vec<Range<u64>> = Vec::new();
    for time in &times[first..=last] {
        match spans.last_mut() {
            Some(span) if span.end == time.start => span.end = time.end,
            _ => spans.push(time.clone()),
        }
    }
    let of_ticks = |span: Range<u64>| duration_of(span.start)..duration_of(span.end);
    let (segments, list) = (&segments, segments.list());
    let head = if is_first { segments.tables(&list[first]) } else { Vec::new() };
    let piece = Piece {
        recording: recording.clone(),
        file: Some(file),
        bytes: list[first].file.start..list[last].file.end,
        times: spans.into_iter().map(of_ticks).collect(),
        until: u64::MAX,
    };
    Ok(Some((head, piece)))
}

/// Times of segments in ticks from the start of their file, in which the camera was `absent` before
/// the last break.
fn times(segments: &[Segment], absent: u64) -> Vec<Range<u64>> {
    let last_break = segments.iter().rposition(|segment| segment.is_break);
    let mut begin = 0;
    let time = |(index, segment): (usize, &Segment)| {
        if absent > 0 && last_break == Some(index) {
            begin += absent;
        }
        let time = begin..begin + segment.ticks;
        begin = time.end;
        time
    };
    segments.iter().enumerate().map(time).collect()
}
