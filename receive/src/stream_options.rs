// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of one stream of a recording.
//!
//! Does not check them: the start of a recording does.

use client::{ClientLogin, RecordedMedia, TransportChoice};
use media::mux::Rotation;

use recordings::CameraFiles;

/// A stream to record, and settings of it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StreamOptions {
    /// URL: see [`StreamSource::parse`].
    pub url: String,
    /// Login at its server.
    pub login: ClientLogin,
    /// Its files.
    pub output: StreamOutputFiles,
    /// Limits at which a file is ended and another begun.
    pub rotation: Rotation,
    /// Transport requested from an RTSP server.
    pub transport: TransportChoice,
    /// Media that are recorded. One medium alone is recorded of sources that send tracks.
    pub media: RecordedMedia,
    /// True if the server is asked again after an announced end, and when a source is absent.
    pub live: bool,
}

/// Files of a stream.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum StreamOutputFiles {
    /// No file is written.
    #[default]
    None,
    /// Pattern of the files' names, with the placeholders `{stream}`, `{index}`, `{number}` and
    /// `{time}`.
    Pattern(String),
    /// Files of a camera that is recorded for long.
    Camera(Box<CameraFiles>),
}

impl StreamOptions {
    /// A stream with default settings, of which no file is written.
    pub fn new(url: String) -> StreamOptions {
        StreamOptions {
            url,
            login: ClientLogin::default(),
            output: StreamOutputFiles::None,
            rotation: Rotation::default(),
            transport: TransportChoice::Auto,
            media: RecordedMedia::All,
            live: false,
        }
    }
}
