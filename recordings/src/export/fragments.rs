// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts and joins recordings of fragmented MP4: fragments are renumbered and moved in time
//! ([`Timeline`]), their media are copied as they are.
//!
//! Does not write an index.

use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;

use media::duration_of;
use media::mp4::{FileFragment, FragmentedFile};

use super::timeline::Timeline;
use super::{Cut, Piece, Writing, ends_near, host, open, ticks_in, unreadable};
use crate::recording::GAP_MIN;
use crate::{CameraFile, Error, RecordedTime};

/// Files before the first of a cut in which a place is searched where play can start: a recorder
/// begins one without where key frames are more than ten seconds apart.
const FILES_BEFORE_MAX: usize = 10;

/// Finds the fragments of a time in those of the recordings that are `chosen`; none if play can
/// start in none of them.
pub(super) fn cut(
    recordings: &[CameraFile],
    chosen: Range<usize>,
    range: RecordedTime,
) -> Result<Cut, Error> {
    let mut cut = Cut::default();
    for index in chosen {
        let recording = &recordings[index];
        let failed = unreadable(&recording.path);
        let file = open_fragments(recording)?;
        let ticks = ticks_in(recording, range);
        let mut first = file.first().map_err(&failed)?;
        if cut.pieces.is_empty() {
            let start = file.start_before(ticks.start).map_err(&failed)?;
            let is_late = start.as_ref().is_none_or(|start| file.ticks(start) > ticks.start);
            let before = match is_late {
                true => lead_in(recordings, index, &file)?,
                false => Vec::new(),
            };
            match before.is_empty() {
                true => first = start,
                false => cut.head = file.header().to_vec(),
            }
            before.into_iter().for_each(|piece| cut.push(piece));
        } else if cut.head != file.header() {
            match cut.pieces.as_slice() {
                // Names tell their times to the nearest second: this is not what is meant.
                [only] if ends_near(&only.recording, range.from) => {
                    cut.pieces.clear();
                    first = file.start_before(ticks.start).map_err(&failed)?;
                }
                _ => {
                    let (path, at) = (recording.path.clone(), recording.from());
                    return Err(Error::Changed { path, at });
                }
            }
        }
        if let Some(first) = first.filter(|first| file.ticks(first) < ticks.end) {
            let last = file.last_before(&first, ticks.end).map_err(&failed)?;
            cut.head = file.header().to_vec();
            cut.push(between(recording, file, &first, &last, ticks.end));
        }
    }
    Ok(cut)
}

fn open_fragments(recording: &CameraFile) -> Result<FragmentedFile<File>, Error> {
    let (file, bytes) = open(recording)?;
    FragmentedFile::open(file, bytes).map_err(unreadable(&recording.path))
}

/// Returns the fragments from the last start before a recording that does not begin with one, in
/// files before it that it follows without a gap; none if there is no such start.
fn lead_in(
    recordings: &[CameraFile],
    index: usize,
    file: &FragmentedFile<File>,
) -> Result<Vec<Piece>, Error> {
    let first = file.first().map_err(unreadable(&recordings[index].path))?;
    if first.is_none_or(|first| file.is_start(&first)) {
        return Ok(Vec::new());
    }
    let header = file.header();
    let mut pieces = Vec::new();
    for index in (index.saturating_sub(FILES_BEFORE_MAX)..index).rev() {
        let (before, next) = (&recordings[index], &recordings[index + 1]);
        if !before.start.is_mp4 || next.from().duration_since(before.to()) > GAP_MIN {
            break;
        }
        let failed = unreadable(&before.path);
        let file = open_fragments(before)?;
        if file.header() != header {
            break;
        }
        let start = file.start_before(u64::MAX).map_err(&failed)?;
        let is_found = start.is_some();
        let first = if is_found { start } else { file.first().map_err(&failed)? };
        let Some(first) = first else { break };
        let last = file.last_before(&first, u64::MAX).map_err(&failed)?;
        pieces.insert(0, between(before, file, &first, &last, u64::MAX));
        if is_found {
            return Ok(pieces);
        }
    }
    Ok(Vec::new())
}

fn between(
    recording: &CameraFile,
    file: FragmentedFile<File>,
    first: &FileFragment,
    last: &FileFragment,
    until: u64,
) -> Piece {
    let times = vec![duration_of(file.ticks(first))..duration_of(file.end_ticks(last))];
    let bytes = first.file.start..last.file.end;
    let recording = recording.clone();
    let file = file.file().try_clone().ok();
    Piece { recording, file, bytes, times, until }
}

/// Copies the fragments.
pub(super) fn copy(cut: &Cut, writing: &mut Writing<'_>) -> Result<(), Error> {
    let mut timeline = Timeline::default();
    let mut number = 0;
    for piece in &cut.pieces {
        let failed = unreadable(piece.path());
        let file = piece.open()?;
        let bytes = file.metadata().map_err(|source| host(piece.path(), source))?.len();
        let file = FragmentedFile::open(file, bytes).map_err(&failed)?;
        let mut next = file.at(piece.bytes.start).map_err(&failed)?;
        let mut end = None;
        while let Some(fragment) = next.filter(|next| file.ticks(next) < piece.until) {
            if end.is_none() {
                timeline.begin_part(file.tracks(), file.leading(), &fragment);
            }
            number += 1;
            let placed = timeline.place(file.tracks(), &fragment);
            writing.write(&fragment.moved(number, &placed))?;
            writing.copy(file.file(), piece.path(), fragment.media())?;
            end = Some(file.end_ticks(&fragment).max(end.unwrap_or(0)));
            next = file.following(&fragment).map_err(&failed)?;
        }
        // It was there when the cut was planned.
        let end = end.ok_or_else(|| host(piece.path(), ErrorKind::UnexpectedEof.into()))?;
        writing.spans.push(piece.span(&(piece.times[0].start..duration_of(end))));
    }
    Ok(())
}
