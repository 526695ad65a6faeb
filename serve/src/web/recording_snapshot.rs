// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording while it is written, as media of fragments: a file with a plan of its packets.
//!
//! Costs a look-up.
//!
//! Does not follow the file ([`crate::library`] does).

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use media::{
    GrowingSegment, GrowingSegments, PacketPlaces, ReadAt, RecordedStreams, TS_PACKET_BYTES,
};

use super::live::LiveAsset;
use super::live_dash::LiveDash;
use super::live_media::{LiveMedia, SettledMedia, streams_of};
use super::live_state::LiveState;
use crate::http::open_files::OpenFile;
use crate::library::NoAsset;
use crate::library::asset::Asset;

/// A recording and its content as they are now.
#[derive(Clone)]
pub(super) struct RecordingSnapshot {
    pub(super) live: Arc<LiveAsset>,
    pub(super) asset: Arc<Asset>,
    pub(super) file: Arc<OpenFile>,
}

impl ReadAt for RecordingSnapshot {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }
}

impl LiveMedia for RecordingSnapshot {
    const WORD: &str = "recording";
    const NOT_YET: NoAsset = NoAsset::CHANGING;

    fn name(&self) -> &str {
        &self.asset.name
    }

    fn identity(&self) -> &str {
        self.live.recorded.identity()
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

    fn streams(&self, segment: &GrowingSegment) -> io::Result<Option<RecordedStreams>> {
        // Streams of its beginning may start late.
        if segment.file.start == 0 {
            return RecordedStreams::find(&self.asset.plan, &*self.file);
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
