// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the demuxer with synthetic files. `media/tests/mp4_ffprobe.rs` has real ones.

mod broken_files;
mod cut_off;
mod growing;
mod joined;
mod left_out;
mod made;
mod odd_tables;
mod pcm;
mod pieces;
mod text_tracks;

use super::*;
use crate::MediaSample;

const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };

/// The presentation of a file that is read at once.
fn demux(file: &[u8]) -> Result<Presentation, Refusal> {
    demux_by(file, usize::MAX)
}

/// The presentation of a file that is read about `samples` samples at a time.
fn demux_by(file: &[u8], samples: usize) -> Result<Presentation, Refusal> {
    let mut demuxer = Mp4Demuxer::new(file.len() as u64);
    loop {
        match demuxer.advance(file, samples) {
            Ok(true) => return demuxer.finish(|| IDENTITY),
            Ok(false) => {}
            Err(DemuxError::Refused(refusal)) => return Err(refusal),
            Err(DemuxError::Unreadable(error)) => panic!("read past the end of the file: {error}"),
        }
    }
}

fn samples(found: &Presentation, track: usize) -> Vec<MediaSample> {
    let samples = &found.tracks()[track].samples;
    samples.samples(0..samples.len()).collect()
}
