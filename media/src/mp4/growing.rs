// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a fragmented MP4 while it is written.
//!
//! A fragment is read when all of it is there, and its samples never change. The file's
//! [`Presentation`] so far can be made at any time; each one extends the one before: a track keeps
//! its index and the identity of its RTP stream, and one that begins later is placed behind those
//! before.
//!
//! Costs a read of each `moof`; a presentation costs a copy of the sample tables, 2 MB for an hour
//! (`crate::tracks::SampleTable`), and a look at each sample.
//!
//! Sources: ISO/IEC 14496-12 §8.8 (fragments).
//! Does not read files whose index comes last.

use super::Mp4Demuxer;
use super::boxes::{FileBox, Input};
use super::fragments::BOXES_BEHIND_MAX;
use crate::plan::RtpIdentity;
use crate::tracks::{Container, LeftOut, SILENT_TICKS, Track};
use crate::{DemuxError, Presentation, ReadAt, Refusal};

/// A recording in MP4 that is still written.
#[derive(Debug)]
pub struct GrowingMp4 {
    demuxer: Mp4Demuxer,
    /// Tracks in the order of their first samples.
    tracks: Vec<KnownTrack>,
    settled_ticks: u64,
}

/// A track that has samples.
#[derive(Debug)]
struct KnownTrack {
    id: u32,
    identity: RtpIdentity,
    /// Due time of its last sample, and that of the latest of all tracks when it came.
    last: u64,
    latest: u64,
}

impl Default for GrowingMp4 {
    fn default() -> GrowingMp4 {
        let demuxer = Mp4Demuxer { is_growing: true, ..Mp4Demuxer::new(0) };
        GrowingMp4 { demuxer, tracks: Vec::new(), settled_ticks: 0 }
    }
}

impl GrowingMp4 {
    /// Reads the whole fragments among the first `file_bytes` bytes that were not read before, for
    /// about `samples` samples; true if all are read.
    ///
    /// # Errors
    /// The file cannot be streamed, or not be read. No further call is allowed then.
    pub fn advance(
        &mut self,
        file: &(impl ReadAt + ?Sized),
        file_bytes: u64,
        samples: usize,
    ) -> Result<bool, DemuxError> {
        self.demuxer.file_bytes = file_bytes;
        if let Some(movie) = &mut self.demuxer.movie {
            movie.grow(file_bytes);
        }
        self.demuxer.advance(file, samples)
    }

    /// Bytes of the file that were read: the end of a fragment.
    pub fn position(&self) -> u64 {
        self.demuxer.position()
    }

    /// Returns the presentation of the fragments so far; `identity` draws SSRC and first values of
    /// a new track. `None` before the first sample, and for a file that is not fragmented.
    ///
    /// # Errors
    /// No track can be sent, or not one of before; there are too many, or their times exceed the
    /// limits of a plan.
    pub fn so_far(
        &mut self,
        identity: impl FnMut() -> RtpIdentity,
    ) -> Option<Result<Presentation, Refusal>> {
        let movie = self.demuxer.movie.as_ref()?;
        if !movie.is_fragmented || !movie.has_samples() {
            return None;
        }
        let (mut tracks, left_out, turned) = movie.clone().finish(identity);
        if let Err(lost) = place(&mut tracks, &mut self.tracks, &left_out) {
            return Some(Err(lost));
        }
        let bytes = self.position();
        let found = Presentation::assemble(Container::FragmentedMp4, bytes, tracks, left_out);
        let found = found.and_then(|found| found.with_warnings(turned).moved_to_start());
        Some(found.inspect(|found| self.settled_ticks = settle(found, &mut self.tracks)))
    }

    /// Returns the due time before which longer presentations have the samples of the last one, a
    /// multiple of a chapter: without those of a track that comes again after it was silent
    /// ([`SILENT_TICKS`]). It goes back when the times of such a track do.
    pub fn settled_ticks(&self) -> u64 {
        self.settled_ticks
    }

    /// Reads the rest of a file whose recorder is gone, as of any file, and returns its
    /// presentation.
    ///
    /// # Errors
    /// The file cannot be streamed, also if that is so of a track of before; or not be read.
    pub fn finish(
        mut self,
        file: &(impl ReadAt + ?Sized),
        file_bytes: u64,
        identity: impl FnMut() -> RtpIdentity,
    ) -> Result<Presentation, DemuxError> {
        self.demuxer.is_growing = false;
        while !self.advance(file, file_bytes, usize::MAX)? {}
        let found = self.demuxer.finish(identity)?;
        let left_out = found.left_out().to_vec();
        Ok(found.with_tracks(|tracks| place(tracks, &mut self.tracks, &left_out))?)
    }
}

/// Puts tracks into the order of their first samples, with the identities that they have. The error
/// is that a known one is `left_out` now.
fn place(
    tracks: &mut [Track],
    known: &mut Vec<KnownTrack>,
    left_out: &[LeftOut],
) -> Result<(), Refusal> {
    let is_lost = |one: &&LeftOut| known.iter().any(|known| known.id == one.id);
    if let Some(lost) = left_out.iter().find(is_lost) {
        let container = Container::FragmentedMp4.name();
        return Err(Refusal::NoTrack { container, reasons: lost.reason.clone() });
    }
    for track in tracks.iter_mut() {
        match known.iter().find(|known| known.id == track.id) {
            Some(known) => track.identity = known.identity,
            None => {
                let (id, identity) = (track.id, track.identity);
                known.push(KnownTrack { id, identity, last: 0, latest: 0 });
            }
        }
    }
    tracks.sort_by_key(|track| known.iter().position(|known| known.id == track.id));
    Ok(())
}

/// Returns the due time before which the samples of a presentation stay. A track is silent if it
/// has got none while another one has got several seconds.
fn settle(found: &Presentation, known: &mut [KnownTrack]) -> u64 {
    let last = |id: u32| {
        let track = found.tracks().iter().find(|track| track.id == id);
        track.map_or(0, |track| found.last_due_ticks(track))
    };
    let latest = known.iter().map(|track| last(track.id)).max().unwrap_or(0);
    for track in known.iter_mut() {
        let last = last(track.id);
        if last > track.last || track.latest == 0 {
            (track.last, track.latest) = (last, latest);
        }
    }
    let is_silent =
        |id: u32| known.iter().any(|track| track.id == id && latest - track.latest > SILENT_TICKS);
    found.settled_ticks(is_silent)
}

impl Mp4Demuxer {
    /// True if all bytes of the next box are there; of a fragment those of its media, too.
    pub(super) fn is_next_whole(&self, input: &Input<'_>) -> Result<bool, DemuxError> {
        let mut next = self.next;
        for step in 0..=BOXES_BEHIND_MAX {
            let found = FileBox::outermost_header(input, next)?;
            let Some(found) = found.filter(|found| found.end <= input.bytes()) else {
                return Ok(false);
            };
            match &found.code {
                b"moof" if step == 0 => next = found.end,
                // Its media, or those of another one.
                b"mdat" | b"moof" => return Ok(true),
                _ if step == 0 => return Ok(true),
                _ => next = found.end,
            }
        }
        Ok(true)
    }
}
