// SPDX-License-Identifier: MIT OR Apache-2.0
//! The demuxers of files with tracks, and the choice of one by a file's first bytes.

use crate::frames::FrameDemuxer;
use crate::mkv::{MkvDemuxer, is_mkv};
use crate::mp4::{Mp4Demuxer, is_mp4};
use crate::plan::RtpIdentity;
use crate::read_at::ReadAt;
use crate::tracks::{Container, Presentation};
use crate::wav::{WavDemuxer, is_wav};
use crate::{DemuxError, Refusal};

/// Bytes that identify the kind of most files.
const BEGINNING_BYTES: usize = 12;

/// A demuxer: reads the places of a file's samples, some at a time.
#[derive(Debug)]
#[non_exhaustive]
pub enum Demuxer {
    /// Of MP4 and QuickTime.
    Mp4(Box<Mp4Demuxer>),
    /// Of Matroska and WebM.
    Mkv(Box<MkvDemuxer>),
    /// Of consecutive frames of sound.
    Frames(Box<FrameDemuxer>),
    /// Of RIFF/WAVE, RF64 and BW64.
    Wav(Box<WavDemuxer>),
}

impl Demuxer {
    /// Returns the demuxer for a file, chosen by its first bytes or those after its tags; `None`
    /// for a file without tracks, or one that cannot be read.
    pub fn of(file: &(impl ReadAt + ?Sized), file_bytes: u64) -> Option<Demuxer> {
        let mut beginning = [0; BEGINNING_BYTES];
        let beginning = &mut beginning[..file_bytes.min(BEGINNING_BYTES as u64) as usize];
        file.read_exact_at(beginning, 0).ok()?;
        Some(match beginning {
            _ if is_mp4(beginning) => Demuxer::Mp4(Box::new(Mp4Demuxer::new(file_bytes))),
            _ if is_mkv(beginning) => Demuxer::Mkv(Box::new(MkvDemuxer::new(file_bytes))),
            _ if is_wav(beginning) => Demuxer::Wav(Box::new(WavDemuxer::new(file_bytes))),
            _ => Demuxer::Frames(Box::new(FrameDemuxer::of(file, file_bytes)?)),
        })
    }

    /// Name of the kind of file, for messages; that of a fragmented MP4 is known only at the end.
    pub fn name(&self) -> &'static str {
        let container = match self {
            Demuxer::Mp4(_) => Container::Mp4,
            Demuxer::Mkv(_) => Container::Matroska,
            Demuxer::Frames(demuxer) => demuxer.container(),
            Demuxer::Wav(_) => Container::Wav,
        };
        container.name()
    }

    /// Reads on, for about `samples` samples; true if all is read.
    ///
    /// # Errors
    /// The file cannot be streamed, or cannot be read.
    pub fn advance(
        &mut self,
        file: &(impl ReadAt + ?Sized),
        samples: usize,
    ) -> Result<bool, DemuxError> {
        match self {
            Demuxer::Mp4(demuxer) => demuxer.advance(file, samples),
            Demuxer::Mkv(demuxer) => demuxer.advance(file, samples),
            Demuxer::Frames(demuxer) => demuxer.advance(file, samples),
            Demuxer::Wav(demuxer) => demuxer.advance(file, samples),
        }
    }

    /// Bytes of the file up to the next place to read. Tables of an MP4 count when they are
    /// started, so this shows the progress of the demuxer and not its remaining time.
    pub fn position(&self) -> u64 {
        match self {
            Demuxer::Mp4(demuxer) => demuxer.position(),
            Demuxer::Mkv(demuxer) => demuxer.position(),
            Demuxer::Frames(demuxer) => demuxer.position(),
            Demuxer::Wav(demuxer) => demuxer.position(),
        }
    }

    /// The presentation of the file; `identity` draws SSRC and first values of each track's stream.
    ///
    /// # Errors
    /// No track can be sent.
    pub fn finish(self, identity: impl FnMut() -> RtpIdentity) -> Result<Presentation, Refusal> {
        match self {
            Demuxer::Mp4(demuxer) => demuxer.finish(identity),
            Demuxer::Mkv(demuxer) => demuxer.finish(identity),
            Demuxer::Frames(demuxer) => demuxer.finish(identity),
            Demuxer::Wav(demuxer) => demuxer.finish(identity),
        }
    }
}
