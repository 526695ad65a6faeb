// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzes MP4 files (`media::mp4::Mp4Demuxer`), and the fragments of recordings in them
//! (`media::mp4::FragmentedFile`).
//!
//! The seeds are small files made by ffmpeg. Checked: [`crate::presentations`];
//! fragments follow each other in the file, and one with which play can start is found before a
//! time. Memory is bounded by `fuzz/run.sh`.

use media::mp4::{FragmentedFile, Mp4Demuxer, is_mp4};
use media::{DemuxError, Demuxer};

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
