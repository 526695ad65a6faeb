// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzes MP4 files (`media::mp4::Mp4Demuxer`).
//!
//! The seeds are small files made by ffmpeg. Checked: [`crate::presentations`]. Memory is bounded
//! by `fuzz/run.sh`.

use media::Demuxer;
use media::mp4::{Mp4Demuxer, is_mp4};

use crate::{FuzzTarget, presentations};

pub(crate) const TARGET: FuzzTarget = FuzzTarget { name: "mp4", run };

fn run(data: &[u8]) {
    presentations::run(data, |file| {
        let _ = is_mp4(file);
        Some(Demuxer::Mp4(Box::new(Mp4Demuxer::new(file.len() as u64))))
    });
}
