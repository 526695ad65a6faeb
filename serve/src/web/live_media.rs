// SPDX-License-Identifier: MIT OR Apache-2.0
//! The source of fragments of MP4: a recording ([`super::recording_snapshot`]) or a channel
//! ([`super::channel_snapshot`]). Each programme, which begins with a break, has streams of its
//! own.
//!
//! Does not cut ([`media::GrowingSegments`]) or make fragments ([`super::live_dash`]).

use std::io;
use std::time::SystemTime;

use media::{GrowingSegment, PacketPlaces, ReadAt, RecordedStreams};

use super::live_dash::LiveDash;
use super::live_state::LiveState;
use crate::library::NoAsset;

/// Bytes of a programme's first segment in which streams are looked for.
const SURVEY_BYTES_MAX: u64 = 512 << 10;

/// Packets and bytes so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct SettledMedia {
    /// Number of packets that are final.
    pub(super) packets: u64,
    /// Bytes that can be read.
    pub(super) bytes: u64,
    /// True when nothing more comes.
    pub(super) is_over: bool,
}

/// A recording or a channel as it is now; reads its bytes from the first byte of its segments on.
pub(super) trait LiveMedia: ReadAt + Clone + Send + Sync + 'static {
    /// The word for it in answers, and the reason to come again.
    const WORD: &str;
    const NOT_YET: NoAsset;

    /// Returns its name in the log.
    fn name(&self) -> &str;
    /// Returns its identity in addresses.
    fn identity(&self) -> &str;
    fn dash(&self) -> &LiveDash;
    /// Returns the result of `look` for its segments; `None` where they are gone.
    fn with<T>(&self, look: impl FnOnce(&LiveState) -> T) -> Option<T>;
    fn places(&self) -> PacketPlaces<'_>;
    fn settled(&self) -> SettledMedia;
    /// Returns the streams of the programme that begins with a segment; `None` where DASH does not
    /// carry them. May read.
    ///
    /// # Errors
    /// The media cannot be read.
    fn streams(&self, segment: &GrowingSegment) -> io::Result<Option<RecordedStreams>> {
        streams_of(self, segment)
    }
    /// True when the bytes of a segment are there.
    fn has(&self, segment: &GrowingSegment) -> bool;
    /// True for a file that has become shorter than its segments.
    fn is_cut_short(&self) -> bool;
    /// Returns the reason why a read failed.
    fn fault(&self, error: &io::Error) -> NoAsset;
    /// Returns the time at which it was changed last, if it has one.
    fn modified(&self) -> Option<SystemTime>;
}

/// Looks for the streams of a programme in its first segment.
pub(super) fn streams_of(
    media: &impl LiveMedia,
    segment: &GrowingSegment,
) -> io::Result<Option<RecordedStreams>> {
    let bytes = (segment.file.end - segment.file.start).min(SURVEY_BYTES_MAX);
    let mut beginning = segment.tables.to_vec();
    let tables = beginning.len();
    beginning.resize(tables + bytes as usize, 0);
    media.read_exact_at(&mut beginning[tables..], segment.file.start)?;
    Ok(RecordedStreams::of_programme(&beginning))
}
