// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks presentations of fuzzed files: the properties of every demuxer; used by the targets
//! `mp4`, `mkv` and `frames`.
//!
//! The input is one byte, the number of samples to read at a time, and a whole file.
//!
//! Checked: the result does not depend on the amount read at a time; every sample lies in the file,
//! in decoding order; a stored presentation is the same; refusals name a reason; the packets of
//! every sample have the properties in [`crate::layouts`], as do those of trick play.

use media::{DemuxError, Demuxer, PlanKey, Presentation, RtpIdentity};

use crate::{layouts, trick};

const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };

/// Chapters of a track that are laid out: later ones are laid out in the same way.
const CHAPTERS_MAX: usize = 12;

/// Runs a target: `demuxer` creates the demuxer of a file; `None` if the file is not of its kind.
pub(crate) fn run(data: &[u8], demuxer: impl Fn(&[u8]) -> Option<Demuxer>) {
    let Some((&samples, file)) = data.split_first() else { return };
    let (Some(whole), Some(parts)) = (demuxer(file), demuxer(file)) else { return };
    let whole = demux(whole, file, usize::MAX);
    let parts = demux(parts, file, samples.into());
    assert_eq!(whole, parts, "read at once and in parts");
    match whole {
        Ok(found) => {
            check(&found, file);
            trick::check_tracks(&found, file);
        }
        Err(refusal) => assert!(!refusal.is_empty()),
    }
}

/// The presentation of a file that is read `samples` samples at a time, or why it is refused.
fn demux(mut demuxer: Demuxer, file: &[u8], samples: usize) -> Result<Presentation, String> {
    loop {
        match demuxer.advance(file, samples) {
            Ok(true) => return demuxer.finish(|| IDENTITY).map_err(|refusal| refusal.to_string()),
            Ok(false) => {}
            Err(DemuxError::Unreadable(error)) => panic!("read past the end of the file: {error}"),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Checks the properties of every presentation.
fn check(found: &Presentation, file: &[u8]) {
    assert_eq!(found.file_bytes(), file.len() as u64);
    assert!(!found.tracks().is_empty() && found.duration_ticks() > 0);
    assert!(found.sample_bytes() <= found.file_bytes() * found.tracks().len() as u64);
    for (index, track) in found.tracks().iter().enumerate() {
        let mut decode = 0;
        let mut count = 0;
        for sample in track.samples.samples(0..track.samples.len()) {
            let end = sample.file_offset + u64::from(sample.bytes);
            assert!(end <= found.file_bytes(), "{sample:?} past the end of the file");
            assert!(sample.decode >= decode, "{sample:?} is decoded before {decode}");
            decode = sample.decode;
            count += 1;
        }
        assert_eq!(count, track.samples.len());
        assert!(!track.codec.name().is_empty() && track.codec.clock_rate_hz() > 0);
        for chapter in chapters(found, index).take(CHAPTERS_MAX) {
            let layout = media::payload::lay_out(found, index, chapter, file);
            layouts::check(&layout.expect("the samples lie in the file"), found.file_bytes());
        }
    }
    assert!(found.left_out().iter().all(|track| !track.reason.is_empty()));
    let key = PlanKey { path: b"a".to_vec(), bytes: found.file_bytes(), modified_ns: 7, inode: 2 };
    assert_eq!(Presentation::decode(&found.encode(&key), &key).as_ref(), Ok(found));
}

/// The chapters in which samples of a track are due, in order.
pub(crate) fn chapters(found: &Presentation, track: usize) -> impl Iterator<Item = u32> {
    let mut next = match found.chapter_samples(track, 0).is_empty() {
        false => Some(0),
        true => found.following_chapter(track, 0),
    };
    std::iter::from_fn(move || {
        let chapter = next?;
        next = found.following_chapter(track, chapter);
        Some(chapter)
    })
}
