// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzes files of sound: MPEG audio and ADTS (`media::frames::FrameDemuxer`), WAV
//! (`media::wav::WavDemuxer`).
//!
//! The seeds are small files made by ffmpeg. Checked: [`crate::presentations`]. Memory is bounded
//! by `fuzz/run.sh`.

use media::Demuxer;
use media::frames::FrameDemuxer;
use media::wav::{WavDemuxer, is_wav};

use crate::{FuzzTarget, presentations};

pub(crate) const TARGET: FuzzTarget = FuzzTarget { name: "frames", run };

fn run(data: &[u8]) {
    presentations::run(data, |file| {
        if is_wav(file) {
            return Some(Demuxer::Wav(Box::new(WavDemuxer::new(file.len() as u64))));
        }
        let demuxer = FrameDemuxer::of(file, file.len() as u64)?;
        Some(Demuxer::Frames(Box::new(demuxer)))
    });
}
