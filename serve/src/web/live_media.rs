// SPDX-License-Identifier: MIT OR Apache-2.0
//! Media behind fragments of MP4: a recording while it is written, or a channel.
//!
//! A recording is a file with a plan of its packets. A channel's packets lie side by side in the
//! parts of its window, over which bytes and segments are numbered; its oldest are forgotten. Each
//! programme, which begins with a break, has streams of its own.
//!
//! Costs a look-up; of a channel two locks a read of 64 KiB.
//!
//! Does not cut ([`media::GrowingSegments`]) or make fragments ([`super::live_dash`]).

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use media::{
    Extent, GrowingSegment, GrowingSegments, PacketPlaces, ReadAt, RecordedStreams, TS_PACKET_BYTES,
};

use super::live::LiveAsset;
use super::live_dash::LiveDash;
use super::live_state::LiveState;
use super::web_asset::OpenBytes;
use crate::channel::window::ChannelWindow;
use crate::http::open_files::OpenFile;
use crate::library::NoAsset;
use crate::library::asset::Asset;

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

/// A recording or a channel as it is now.
pub(super) trait LiveMedia: Clone + Send + Sync + 'static {
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
    fn bytes(&self) -> impl ReadAt;
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
fn streams_of(
    media: &impl LiveMedia,
    segment: &GrowingSegment,
) -> io::Result<Option<RecordedStreams>> {
    let bytes = (segment.file.end - segment.file.start).min(SURVEY_BYTES_MAX);
    let mut beginning = segment.tables.to_vec();
    let tables = beginning.len();
    beginning.resize(tables + bytes as usize, 0);
    media.bytes().read_exact_at(&mut beginning[tables..], segment.file.start)?;
    Ok(RecordedStreams::of_programme(&beginning))
}

/// A recording and its content as they are now.
#[derive(Clone)]
pub(super) struct RecordingNow {
    pub(super) live: Arc<LiveAsset>,
    pub(super) asset: Arc<Asset>,
    pub(super) file: Arc<OpenFile>,
}

impl LiveMedia for RecordingNow {
    const WORD: &str = "recording";
    const NOT_YET: NoAsset = NoAsset::CHANGING;

    fn name(&self) -> &str {
        &self.asset.name
    }

    fn identity(&self) -> &str {
        self.live.identity()
    }

    fn dash(&self) -> &LiveDash {
        &self.live.dash
    }

    fn with<T>(&self, look: impl FnOnce(&LiveState) -> T) -> Option<T> {
        Some(look(&self.live.state()))
    }

    fn places(&self) -> PacketPlaces<'_> {
        self.asset.plan.places()
    }

    fn settled(&self) -> SettledMedia {
        let (plan, is_over) = (&self.asset.plan, !self.asset.is_growing());
        let packets = GrowingSegments::settled_packets(plan, is_over);
        let bytes = plan.byte_of(packets).min(self.file.entity().bytes);
        // Packets that the file has whole.
        let last = (bytes + 1).saturating_sub(TS_PACKET_BYTES as u64);
        let packets = packets.min(plan.ts_packets_before_byte(last));
        SettledMedia { packets, bytes, is_over }
    }

    fn bytes(&self) -> impl ReadAt {
        OpenBytes(&self.file)
    }

    fn streams(&self, segment: &GrowingSegment) -> io::Result<Option<RecordedStreams>> {
        // Streams of its beginning may start late.
        if segment.file.start == 0 {
            return RecordedStreams::find(&self.asset.plan, &OpenBytes(&self.file));
        }
        streams_of(self, segment)
    }

    fn has(&self, segment: &GrowingSegment) -> bool {
        segment.file.end <= self.file.entity().bytes
    }

    fn is_cut_short(&self) -> bool {
        self.live.state().segments.next_byte() > self.file.entity().bytes
    }

    fn fault(&self, error: &io::Error) -> NoAsset {
        NoAsset::Unreadable(error.to_string())
    }

    fn modified(&self) -> Option<SystemTime> {
        Some(self.file.entity().modified)
    }
}

/// A channel as it is now.
#[derive(Clone)]
pub(super) struct ChannelNow {
    window: Arc<ChannelWindow>,
    identity: String,
    dash: Arc<LiveDash>,
    /// Number of the byte from which segments count, and the packets behind it.
    first_byte: u64,
    packets: Extent,
}

/// The bytes of a channel, from the first byte of its segments on.
struct ChannelBytes<'a>(&'a ChannelNow);

impl ReadAt for ChannelBytes<'_> {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.window.read_exact_at(bytes, self.0.first_byte + offset).map_err(|error| {
            match error.kind() {
                // They have left the window.
                io::ErrorKind::UnexpectedEof => io::ErrorKind::ResourceBusy.into(),
                _ => error,
            }
        })
    }
}

impl ChannelNow {
    /// Returns the channel with this identity; `None` while it has no segments, and for another
    /// identity.
    pub(super) fn of(window: &Arc<ChannelWindow>, identity: &str) -> Option<ChannelNow> {
        let dash = window.live.dash(identity)?;
        let first_byte = window.live.with(identity, |_, first_byte| first_byte)?;
        let packets = window.written().saturating_sub(first_byte) / TS_PACKET_BYTES as u64;
        let packets = Extent::of_packets(packets);
        let (window, identity) = (window.clone(), identity.to_owned());
        Some(ChannelNow { window, identity, dash, first_byte, packets })
    }
}

impl LiveMedia for ChannelNow {
    const WORD: &str = "channel";
    const NOT_YET: NoAsset = NoAsset::NotOnAir;

    fn name(&self) -> &str {
        &self.window.name
    }

    fn identity(&self) -> &str {
        &self.identity
    }

    fn dash(&self) -> &LiveDash {
        &self.dash
    }

    fn with<T>(&self, look: impl FnOnce(&LiveState) -> T) -> Option<T> {
        self.window.live.with(&self.identity, |state, _| look(state))
    }

    fn places(&self) -> PacketPlaces<'_> {
        self.packets.places()
    }

    fn settled(&self) -> SettledMedia {
        let packets = self.packets.ts_packets;
        SettledMedia { packets, bytes: packets * TS_PACKET_BYTES as u64, is_over: false }
    }

    fn bytes(&self) -> impl ReadAt {
        ChannelBytes(self)
    }

    fn has(&self, segment: &GrowingSegment) -> bool {
        let [start, end] = [segment.file.start, segment.file.end].map(|at| self.first_byte + at);
        self.window.held(start..end).is_some()
    }

    fn is_cut_short(&self) -> bool {
        false
    }

    fn fault(&self, error: &io::Error) -> NoAsset {
        match error.kind() {
            io::ErrorKind::ResourceBusy => ChannelNow::NOT_YET,
            _ => NoAsset::Unreadable(error.to_string()),
        }
    }

    fn modified(&self) -> Option<SystemTime> {
        None
    }
}
