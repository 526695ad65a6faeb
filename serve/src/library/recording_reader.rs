// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the new bytes of a recording, and plans what is written so far: all bytes of a transport
//! stream, the tables of whole fragments of an MP4.
//!
//! Each plan extends the one before, under the same identity.
//!
//! Sources: `media::ts::Scanner`, `media::mp4::GrowingMp4`.
//! Does not decide when ([`super::following`] does).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use media::mp4::GrowingMp4;
use media::plan::{PlanKey, RtpIdentity};
use media::store::{name_codecs, random_identity};
use media::{AssetPlan, DemuxError, Presentation, RecordedStarts, Scanner, TICKS_PER_SECOND};

use super::NoAsset;
use crate::library::asset::{Asset, LibraryAsset};
use crate::library::growing_file::Growth;
use crate::library::track_asset::TrackAsset;

/// A rate is measured over a second; after that the clock of the bytes so far stays unchanged.
const LEAST_TICKS: u64 = TICKS_PER_SECOND;
pub(super) const PIECE_BYTES: usize = 256 << 10;
/// Pieces of a transport stream that are read in one turn: 16 MiB.
pub(super) const PIECES_A_TURN: u32 = 64;
/// Samples of tracks that are read in one turn: some 10 ms.
const SAMPLES_A_TURN: usize = 1 << 17;

const FAILED: &str = "it could not be read before";

/// Reads a recording.
pub(super) enum RecordingReader {
    Stream(Box<Scanner>, RtpIdentity),
    Tracks(Box<GrowingMp4>),
    /// Of tracks that cannot be read on.
    Failed,
}

/// Result of a turn.
pub(super) struct Turn {
    /// Bytes read so far.
    pub(super) offset: u64,
    /// True when bytes are left unread.
    pub(super) is_behind: bool,
}

impl RecordingReader {
    /// Returns the reader of a transport stream, which was fed all bytes so far.
    pub(super) fn stream(scanner: Box<Scanner>) -> RecordingReader {
        RecordingReader::Stream(scanner, random_identity())
    }

    /// Reads newly written bytes, from `offset` on, as many as fit a turn.
    ///
    /// # Errors
    /// The file was cut short, cannot be read or is no recording any more.
    pub(super) fn read_on(
        &mut self,
        file: &File,
        mut offset: u64,
        piece: &mut [u8],
    ) -> Result<Turn, DemuxError> {
        // Once the file is shorter, any later bytes belong to another recording.
        let bytes = |offset: u64| match file.metadata()?.len() {
            bytes if bytes < offset => Err(std::io::Error::other("it was cut short")),
            bytes => Ok(bytes),
        };
        let scanner = match self {
            RecordingReader::Stream(scanner, _) => scanner,
            RecordingReader::Tracks(reader) => {
                let is_behind = match reader.advance(file, bytes(offset)?, SAMPLES_A_TURN) {
                    Ok(is_whole) => !is_whole,
                    Err(error) => {
                        *self = RecordingReader::Failed;
                        return Err(error);
                    }
                };
                return Ok(Turn { offset: reader.position(), is_behind });
            }
            RecordingReader::Failed => return Err(std::io::Error::other(FAILED).into()),
        };
        for _ in 0..PIECES_A_TURN {
            let read = file.read_at(piece, offset)?;
            if read == 0 {
                bytes(offset)?;
                return Ok(Turn { offset, is_behind: false });
            }
            scanner.feed(&piece[..read]);
            offset += read as u64;
        }
        Ok(Turn { offset, is_behind: true })
    }

    /// Plans the bytes read so far.
    ///
    /// # Errors
    /// They cannot be streamed, or not yet.
    pub(super) fn plan(mut self) -> Result<AssetPlan, NoAsset> {
        match &mut self {
            RecordingReader::Stream(scanner, identity) => {
                let plan = scanner.plan_so_far(*identity);
                Ok(plan.map_err(|refusal| NoAsset::Refused(refusal.to_string()))?.into())
            }
            RecordingReader::Tracks(reader) => tracks_so_far(reader).map(AssetPlan::Tracks),
            RecordingReader::Failed => Err(NoAsset::Refused(FAILED.to_owned())),
        }
    }

    /// Returns the asset of the bytes read so far, which have this key.
    ///
    /// # Errors
    /// They cannot be streamed, or are too few.
    pub(super) fn growing(
        &mut self,
        (name, key): (String, PlanKey),
        growth: &Arc<Growth>,
    ) -> Result<LibraryAsset, NoAsset> {
        match self {
            RecordingReader::Stream(scanner, identity) => {
                // Still too short for a clock.
                let plan = scanner.recorded_so_far(*identity).map_err(|_| NoAsset::CHANGING)?;
                let (plan, starts): (_, RecordedStarts) = plan;
                if plan.ticks(plan.settled_packets()) < LEAST_TICKS {
                    return Err(NoAsset::CHANGING);
                }
                Ok(Asset::growing(name, key, plan, growth).with_starts(starts).into())
            }
            RecordingReader::Tracks(reader) => {
                let presentation = tracks_so_far(reader)?;
                if presentation.duration_ticks() < LEAST_TICKS {
                    return Err(NoAsset::CHANGING);
                }
                let asset = TrackAsset::new(name, key, presentation);
                let asset = asset.growing(growth, reader.settled_ticks());
                Ok(LibraryAsset::Tracks(Arc::new(asset)))
            }
            RecordingReader::Failed => Err(NoAsset::Refused(FAILED.to_owned())),
        }
    }

    /// Returns the asset of a recording that is whole and of which `offset` bytes were read, with
    /// its plan for the cache; `None` where it cannot be streamed. No further call is allowed.
    pub(super) fn finished(
        &mut self,
        (name, key, offset): (String, &PlanKey, u64),
        file: &File,
    ) -> Option<(LibraryAsset, Vec<u8>)> {
        match self {
            RecordingReader::Stream(scanner, identity) if key.bytes == offset => {
                let (mut plan, starts) = scanner.recorded_so_far(*identity).ok()?;
                name_codecs(&mut plan, file);
                let encoded = plan.encode(key);
                let asset = Asset::new(name, key.clone(), plan).with_starts(starts);
                Some((asset.into(), encoded))
            }
            // It was truncated.
            RecordingReader::Stream(..) | RecordingReader::Failed => None,
            RecordingReader::Tracks(_) if key.bytes < offset => None,
            RecordingReader::Tracks(reader) => {
                let reader = std::mem::take(reader);
                let presentation = reader.finish(file, key.bytes, random_identity).ok()?;
                let encoded = presentation.encode(key);
                let plan = AssetPlan::Tracks(presentation);
                Some((LibraryAsset::new(name, key.clone(), plan), encoded))
            }
        }
    }
}

/// Returns the presentation of the fragments so far.
fn tracks_so_far(reader: &mut GrowingMp4) -> Result<Presentation, NoAsset> {
    // Before the first fragment, or of a file whose index comes last.
    let found = reader.so_far(random_identity).ok_or(NoAsset::CHANGING)?;
    found.map_err(|refusal| NoAsset::Refused(refusal.to_string()))
}
