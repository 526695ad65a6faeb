// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzes Matroska and WebM files (`media::mkv::MkvDemuxer`).
//!
//! The seeds are small files made by ffmpeg. Checked: [`crate::presentations`]. Memory is bounded
//! by `fuzz/run.sh`.

use media::Demuxer;
use media::mkv::{MkvDemuxer, is_mkv};

use crate::{FuzzTarget, presentations};

pub(crate) const TARGET: FuzzTarget = FuzzTarget { name: "mkv", run };

fn run(data: &[u8]) {
    presentations::run(data, |file| {
        let _ = is_mkv(file);
        Some(Demuxer::Mkv(Box::new(MkvDemuxer::new(file.len() as u64))))
    });
}
