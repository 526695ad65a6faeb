// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzes MP4 files (`media::mp4::Mp4Demuxer`), the fragments of recordings in them
//! (`media::mp4::FragmentedFile`), and such files while they are written
//! (`media::mp4::GrowingMp4`).
//!
//! The seeds are small files made by ffmpeg. Checked: [`crate::presentations`]; fragments follow
//! each other in the file, and one with which play can start is found before a time; final segments
//! of a file that grows stay, and so do the tracks. Memory is bounded by `fuzz/run.sh`.

use media::cmaf::{RenditionSegment, TrackSegments};
use media::mp4::{FragmentedFile, GrowingMp4, Mp4Demuxer, is_mp4};
use media::{DemuxError, Demuxer, RtpIdentity};

use crate::{FuzzTarget, presentations};

pub(crate) const TARGET: FuzzTarget = FuzzTarget { name: "mp4", run };

fn run(data: &[u8]) {
    presentations::run(data, |file| {
        let _ = is_mp4(file);
        Some(Demuxer::Mp4(Box::new(Mp4Demuxer::new(file.len() as u64))))
    });
    if let Some((_, file)) = data.split_first() {
        // Refusals are answers.
        let _ = fragments(file);
        let _ = growing(file);
    }
}

fn fragments(data: &[u8]) -> Result<(), DemuxError> {
    let file = FragmentedFile::open(data, data.len() as u64)?;
    if let Some(last) = file.last()? {
        assert!(last.file.end <= data.len() as u64);
    }
    let mut next = file.first()?;
    let mut end = file.header().len() as u64;
    while let Some(here) = next {
        assert_eq!(here.file.start, end);
        assert!(here.media().start > end && here.file.end <= data.len() as u64);
        end = here.file.end;
        let times = vec![Some(u64::MAX); here.runs.len()];
        assert_eq!(here.moved(7, &times).len() as u64, here.media().start - here.file.start);
        let ticks = file.ticks(&here);
        if let Some(start) = file.start_before(ticks)? {
            assert!(file.is_start(&start));
            assert!(file.last_before(&start, ticks)?.file.end <= data.len() as u64);
        }
        next = file.next(&here)?;
    }
    Ok(())
}

/// Pieces in which a file grows.
const PIECES: usize = 8;

const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };

fn growing(data: &[u8]) -> Result<(), DemuxError> {
    let mut reader = GrowingMp4::default();
    let mut plan: Option<TrackSegments> = None;
    let (mut ids, mut before): (Vec<u32>, Vec<RenditionSegment>) = Default::default();
    for piece in 1..=PIECES {
        let there = data.len() * piece / PIECES;
        while !reader.advance(&data[..there], there as u64, 1 << 12)? {}
        let Some(found) = reader.so_far(|| IDENTITY) else { continue };
        let found = found?;
        let now: Vec<u32> = found.tracks().iter().map(|track| track.id).collect();
        assert!(now.starts_with(&ids), "{ids:?} {now:?}");
        ids = now;
        assert!(reader.settled_ticks() <= found.duration_ticks());
        let Ok(next) = TrackSegments::of_growing(plan.as_ref(), &found, (2, piece == PIECES))
        else {
            continue;
        };
        let rendition = &next.renditions()[0];
        if plan.is_some_and(|plan| plan.renditions()[0].tracks() == rendition.tracks()) {
            assert!(rendition.segments().starts_with(&before));
        }
        before = rendition.segments()[..next.settled()].to_vec();
        plan = Some(next);
    }
    reader.finish(data, data.len() as u64, || IDENTITY)?;
    Ok(())
}
