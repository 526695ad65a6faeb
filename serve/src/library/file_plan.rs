// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans one file outside of a running server, exactly as a server plans it.
//!
//! Costs what a scan costs ([`super::planning`]): one read of a transport stream, one of the tables
//! of other files. Keeps nothing: the cache belongs to servers and recorders.
//!
//! Does not look into samples of tracks.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use media::AssetPlan;
use media::store::{asset_key, name_codecs};

use super::NoAsset;
use super::growing_file::is_recorded;
use super::planning::{Progress, Slice};
use super::scans::OpenedFile;
use super::verdicts::FileId;

/// Plan of a file.
#[derive(Debug)]
pub struct FilePlan {
    /// The plan.
    pub plan: AssetPlan,
    /// True while a recorder writes the file: the plan is that of its beginning.
    pub is_growing: bool,
}

/// Reason why a file has no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoFilePlan {
    /// It cannot be streamed, with the reason and the cure.
    #[error("{0}")]
    Refused(String),
    /// It changed while it was read.
    #[error("the file is being written; try again when it is whole")]
    Changing,
    /// It cannot be read.
    #[error("reading it: {0}")]
    Unreadable(String),
}

/// Plans an open file. Calls `observe` from time to time with the number of bytes up to the place
/// that is read.
///
/// # Errors
/// The file cannot be streamed now, or not be read.
pub fn plan_file(
    path: &Path,
    file: &File,
    mut observe: impl FnMut(u64),
) -> Result<FilePlan, NoFilePlan> {
    let unreadable = |error: std::io::Error| NoFilePlan::Unreadable(error.to_string());
    let key = asset_key(path, file).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    let opened = OpenedFile {
        name: path.to_string_lossy().into_owned(),
        file: file.try_clone().map_err(unreadable)?,
        key,
        id: FileId::of(&metadata),
        is_growing: is_recorded(file),
        elementary: None,
    };
    let (mut piece, done) = (Vec::new(), AtomicU64::new(0));
    let mut progress = Progress::new(&opened);
    let mut plan = loop {
        match progress.advance(&opened, &mut piece, &done, || false) {
            Slice::Unfinished(next) => progress = next,
            Slice::Over(planned) => break (*planned)?,
            Slice::Growing(reader, _) => break reader.plan()?,
        }
        observe(done.load(Ordering::Relaxed));
    };
    if let AssetPlan::TransportStream(plan) = &mut plan {
        name_codecs(plan, file);
    }
    let is_same = asset_key(path, file).map_err(unreadable)? == opened.key;
    match is_same || opened.is_growing {
        true => Ok(FilePlan { plan, is_growing: opened.is_growing }),
        false => Err(NoFilePlan::Changing),
    }
}

impl From<NoAsset> for NoFilePlan {
    fn from(no_asset: NoAsset) -> NoFilePlan {
        match no_asset {
            NoAsset::Refused(reason) => NoFilePlan::Refused(reason),
            NoAsset::Changing { .. } => NoFilePlan::Changing,
            NoAsset::Unreadable(reason) => NoFilePlan::Unreadable(reason),
            other => NoFilePlan::Unreadable(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const CLIP: &[u8] = include_bytes!("../../../pagewire/assets/clip.ts");

    #[test]
    fn recording_is_planned_as_far_as_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ts");
        let mut recorder = File::create(&path).unwrap();
        paths::lock_to_write(&recorder).unwrap();
        let half = CLIP.len() / 2 / 188 * 188;
        recorder.write_all(&CLIP[..half]).unwrap();
        let file = File::open(&path).unwrap();
        let found = plan_file(&path, &file, |_| ()).unwrap();
        assert!(found.is_growing);
        let packets = |plan: &AssetPlan| plan.transport_stream().unwrap().ts_packets();
        assert_eq!(packets(&found.plan), half as u64 / 188);
        recorder.write_all(&CLIP[half..]).unwrap();
        drop(recorder);
        let mut read = 0;
        let found = plan_file(&path, &file, |bytes| read = bytes).unwrap();
        assert!(!found.is_growing && read <= CLIP.len() as u64);
        assert_eq!(packets(&found.plan), CLIP.len() as u64 / 188);
        assert!(found.plan.transport_stream().unwrap().codecs().is_some());
    }

    /// A file with tracks once had no progress, so that a scan of one always was the shortest.
    #[test]
    fn progress_of_a_file_with_tracks_is_observed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.mp3");
        // MPEG-2 layer III, 8 kb/s at 24 kHz: 24 bytes a frame.
        let mut frame = [0; 24];
        frame[..4].copy_from_slice(&[0xff, 0xf3, 0x14, 0xc4]);
        let bytes = frame.repeat(200_000);
        std::fs::write(&path, &bytes).unwrap();
        let mut observed = Vec::new();
        plan_file(&path, &File::open(&path).unwrap(), |read| observed.push(read)).unwrap();
        assert!(observed.is_sorted() && !observed.is_empty(), "{observed:?}");
        assert!(observed.iter().all(|read| (1..bytes.len() as u64).contains(read)), "{observed:?}");
    }

    #[test]
    fn file_that_is_no_stream_has_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        let reason = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let refused = plan_file(&path, &File::open(&path).unwrap(), |_| ()).unwrap_err();
            let NoFilePlan::Refused(reason) = refused else { panic!("{refused}") };
            reason
        };
        assert_eq!(reason(b""), "empty file: 0 bytes");
        let unknown =
            "unknown format: not MP4, Matroska, MPEG audio, ADTS, WAV or MPEG transport stream";
        for bytes in [&[b'x'; 5000][..], b"short\n"] {
            let reason = reason(bytes);
            assert!(reason.starts_with(unknown), "{reason}");
        }
    }
}
