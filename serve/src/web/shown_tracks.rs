// SPDX-License-Identifier: MIT OR Apache-2.0
//! The attributes of a transport stream's tracks in a multivariant playlist.
//!
//! Costs one read of the stream's beginning.
//!
//! Sources: RFC 8216 §4.3.4.2.
//! Does not write playlists ([`super::live_state`], [`super::master`]).

use std::io;

use media::{ReadAt, Track};

use crate::http::open_files::OpenFile;
use crate::library::asset::Asset;

/// Tracks as the multivariant playlist shows them.
#[derive(Debug, Default)]
pub(crate) struct ShownTracks {
    codecs: Option<String>,
    size: Option<(u32, u32)>,
    rate_millihertz: Option<u32>,
}

impl ShownTracks {
    /// Returns the attributes of a programme's tracks.
    pub(crate) fn of(tracks: &[Track]) -> ShownTracks {
        let pictures = tracks.iter().filter(|track| track.coding.is_video());
        let format = pictures.into_iter().find_map(|track| track.format.as_ref());
        ShownTracks {
            codecs: media::codecs(tracks).ok(),
            size: format.and_then(|format| format.resolution()),
            rate_millihertz: format.and_then(|format| format.rate_millihertz),
        }
    }

    /// Returns the attributes of their variant, each after a comma; `codecs` replaces their own if
    /// given.
    pub(super) fn attributes(&self, codecs: Option<&str>) -> String {
        let mut text = String::new();
        if let Some(codecs) = codecs.or(self.codecs.as_deref()) {
            text.push_str(&format!(",CODECS=\"{codecs}\""));
        }
        self.push_size(&mut text);
        if let Some(rate) = self.rate_millihertz {
            text.push_str(&format!(",FRAME-RATE={:.3}", f64::from(rate) / 1000.0));
        }
        text
    }

    /// Returns the attributes of a playlist of their key frames of H.264, likewise.
    pub(super) fn key_frame_attributes(&self, codecs: Option<&str>) -> String {
        let mut text = String::new();
        let codecs = codecs.or(self.codecs.as_deref()).unwrap_or_default();
        if let Some(codec) = codecs.split(',').find(|codec| codec.starts_with("avc")) {
            text.push_str(&format!(",CODECS=\"{codec}\""));
        }
        self.push_size(&mut text);
        text
    }

    fn push_size(&self, text: &mut String) {
        if let Some((width, height)) = self.size {
            text.push_str(&format!(",RESOLUTION={width}x{height}"));
        }
    }
}

/// Looks at the beginning of a transport stream.
pub(super) fn shown(asset: &Asset, file: &OpenFile) -> io::Result<ShownTracks> {
    let bytes = CODECS_BYTES.min(asset.plan.file_bytes()).min(file.entity().bytes);
    let mut beginning = vec![0; bytes as usize];
    file.read_exact_at(&mut beginning, 0)?;
    Ok(ShownTracks::of(&asset.plan.surveyed(&beginning)))
}

/// Bytes in which codecs are looked for.
const CODECS_BYTES: u64 = 512 << 10;
