// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fetches HLS playlists and segments in order, models a player's buffer, and checks the segments.
//!
//! [`play_hls`] plays one presentation and checks every segment. The viewer reads the master
//! playlist, chooses a variant, and fetches the audio of its group on a separate connection
//! (`viewer`). A rendition fetches its segments in order, and reloads a live playlist
//! (`rendition`); `connection` fetches, `playlist` parses playlists, `segment_check` checks
//! containers, and `buffer_model` computes when a player would have started and stalled.
//! [`load_hls`] runs thousands of viewers; the kernel discards most of their segments.
//!
//! A server is untrusted: lengths of playlists and segments, redirections, numbers of segments and
//! all times are limited.
//!
//! Sources: RFC 8216.
//! Does not decrypt, decode, show subtitles, or use TLS.

mod buffer_model;
mod chunks;
mod connection;
mod fmp4_boxes;
mod fmp4_check;
mod load;
mod load_outcome;
mod playlist;
mod rendition;
mod segment_check;
mod ts_check;
mod verdict;
mod viewer;

#[cfg(test)]
mod load_trials;
#[cfg(test)]
mod play_trials;
#[cfg(test)]
mod scripted_origin;

use std::future::pending;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use self::connection::{FetchTimeouts, Route};
use self::viewer::{PlaylistCache, Viewer, WatchPlan};
use super::stop::Stop;
use super::wrong_url;
use crate::error::{ClientSetting, Error};
use crate::http_url::UrlParts;

pub use self::buffer_model::PlayStall;
pub use self::load::{HlsLoad, load_hls};
pub use self::load_outcome::{HlsLoadOutcome, StartTimesMs};
pub use self::segment_check::SegmentContainer;
pub use self::verdict::{HlsEnd, HlsFault, HlsVerdict, PlayedRendition, PlayedVariant};

/// Choice of a variant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VariantChoice {
    /// The first variant, then the highest that fits the measured throughput.
    #[default]
    Auto,
    /// The variant with the highest BANDWIDTH.
    Highest,
    /// The variant with the lowest BANDWIDTH.
    Lowest,
    /// The highest variant of at most this number of bits a second.
    UpTo(u64),
}

impl FromStr for VariantChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<VariantChoice, String> {
        match text {
            "auto" => Ok(VariantChoice::Auto),
            "highest" => Ok(VariantChoice::Highest),
            "lowest" => Ok(VariantChoice::Lowest),
            bits => bits.parse().map(VariantChoice::UpTo).map_err(|_| {
                format!("{text}: write auto, highest, lowest, or bits a second such as 3000000")
            }),
        }
    }
}

/// Settings of a viewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewerSettings {
    /// Choice of a variant.
    pub variant: VariantChoice,
    /// Media required before play starts, and resumes after a stall; one segment by default.
    pub prebuffer: Option<Duration>,
    /// Limit of media that is fetched ahead of play.
    pub ahead: Duration,
}

impl Default for ViewerSettings {
    fn default() -> ViewerSettings {
        let (variant, prebuffer) = (VariantChoice::Auto, None);
        ViewerSettings { variant, prebuffer, ahead: AHEAD }
    }
}

/// Presentation to play, and settings.
#[non_exhaustive]
pub struct HlsPlay {
    /// `http://HOST:PORT/PATH` of a master or media playlist.
    pub url: String,
    /// Settings of the viewer.
    pub settings: ViewerSettings,
    /// Start position; for a live playlist, relative to its first segment. By default the
    /// beginning, or three target durations before the end of a live playlist.
    pub start: Option<Duration>,
    /// Length to play, in whole segments; up to the end by default.
    pub length: Option<Duration>,
    /// Fetches without waiting for the clock.
    pub is_fast: bool,
    /// File for the bytes of init sections and segments, concatenated.
    pub output: Option<PathBuf>,
    /// Ends the play when it is ready.
    pub stop: Option<Stop>,
    timeouts: FetchTimeouts,
}

impl HlsPlay {
    /// The whole presentation at `url`, at play speed.
    pub fn new(url: impl Into<String>) -> HlsPlay {
        HlsPlay {
            url: url.into(),
            settings: ViewerSettings::default(),
            start: None,
            length: None,
            is_fast: false,
            output: None,
            stop: None,
            timeouts: FetchTimeouts::default(),
        }
    }
}

/// Progress of an HLS play.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ViewerProgress {
    /// Current media time.
    pub position: Duration,
    /// Length of a playlist with an end.
    pub duration: Option<Duration>,
    /// Media that was fetched and not played.
    pub ahead: Duration,
    /// Segments so far.
    pub segments: u64,
    /// Bytes so far.
    pub bytes: u64,
    /// Stalls so far.
    pub stalls: u64,
    /// True while play is stalled.
    pub is_stalled: bool,
    /// Faults so far.
    pub faults: u64,
}

/// True for the URL of a playlist: an `http:` URL whose path ends in `.m3u8`.
pub fn is_playlist_url(url: &str) -> bool {
    UrlParts::parse(url).is_some_and(|parts| parts.path_ends_in(".m3u8"))
}

/// Plays an HLS presentation, checks its segments and returns the verdict. `progress` is called
/// four times a second.
///
/// # Errors
/// The playlists cannot be fetched; the file cannot be written. The verdict reports faults of
/// segments.
pub async fn play_hls(
    options: HlsPlay,
    mut progress: impl FnMut(&ViewerProgress),
) -> Result<HlsVerdict, Error> {
    let address = UrlParts::parse(&options.url).ok_or_else(|| wrong_url(&options.url))?;
    let HlsPlay { url, settings, start, length, is_fast, output, stop, timeouts } = options;
    let mut stop = stop.unwrap_or_else(|| Box::pin(pending()));
    let plan = WatchPlan {
        address,
        settings,
        start,
        length,
        is_fast,
        route: Route::default(),
        timeouts,
        playlists: PlaylistCache::default(),
        bytes: AtomicU64::new(0),
        started: AtomicU32::new(0),
    };
    let viewer = Viewer::new(&plan, true, output.clone());
    let mut check = tokio::time::interval(PROGRESS_EVERY);
    let mut watching = std::pin::pin!(viewer.watch());
    let end = loop {
        tokio::select! {
            end = &mut watching => break end?,
            () = &mut stop => break HlsEnd::Stopped,
            _ = check.tick() => progress(&seen(&viewer)),
        }
    };
    let written = viewer.close_output().map_err(|source| {
        let object = output.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        Error::Host { call: "write", object, source }
    })?;
    if let Some(model) = &mut viewer.lock().model {
        model.leave(Instant::now());
    }
    let mut verdict = HlsVerdict::new(url, end, &viewer);
    verdict.is_fast = is_fast;
    verdict.output = output.zip(written);
    Ok(verdict)
}

fn seen(viewer: &Viewer<'_>) -> ViewerProgress {
    let mut state = viewer.lock();
    if let Some(model) = &mut state.model {
        model.advance(Instant::now());
    }
    let model = state.model.as_ref();
    ViewerProgress {
        position: model.map(|model| model.position()).unwrap_or_default(),
        duration: state.duration,
        ahead: model.map(|model| model.ahead(0)).unwrap_or_default(),
        segments: state.renditions.iter().map(|rendition| rendition.segments).sum(),
        bytes: state.renditions.iter().map(|rendition| rendition.bytes).sum(),
        stalls: model.map(|model| model.stalls().0).unwrap_or_default(),
        is_stalled: model.is_some_and(|model| model.is_stalled()),
        faults: state.fault_count,
    }
}

/// Refuses an output file for a presentation in two renditions.
fn output_refused(address: &UrlParts) -> Error {
    Error::Setting {
        setting: ClientSetting::Output,
        found: format!("{address} has its sound in a playlist of its own"),
        cure: "leave it out, or give the address of one media playlist".to_owned(),
    }
}

/// The default of hls.js (maxBufferLength).
const AHEAD: Duration = Duration::from_secs(30);
const PROGRESS_EVERY: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_words_or_bits_a_second() {
        assert_eq!("auto".parse(), Ok(VariantChoice::Auto));
        assert_eq!("3000000".parse(), Ok(VariantChoice::UpTo(3_000_000)));
        assert!("best".parse::<VariantChoice>().unwrap_err().contains("write auto, highest"));
    }

    #[test]
    fn playlists_are_told_from_downloads() {
        assert!(is_playlist_url("http://h/film.mp4/master.m3u8?x=1"));
        assert!(!is_playlist_url("http://h/film.mp4") && !is_playlist_url("rtsp://h/a.m3u8"));
    }
}
