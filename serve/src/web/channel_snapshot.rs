// SPDX-License-Identifier: MIT OR Apache-2.0
//! A channel while it is sent, as media of fragments.
//!
//! Its packets lie side by side in the parts of its window, over which bytes and segments are
//! numbered; the oldest parts are dropped.
//!
//! Costs two locks a read of 64 KiB.
//!
//! Does not cut ([`crate::channel::window`] does).

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use media::{Extent, GrowingSegment, PacketPlaces, ReadAt, TS_PACKET_BYTES};

use super::live_dash::LiveDash;
use super::live_media::{LiveMedia, SettledMedia};
use super::live_state::LiveState;
use crate::channel::window::ChannelWindow;
use crate::library::NoAsset;

/// A channel as it is now.
#[derive(Clone)]
pub(super) struct ChannelSnapshot {
    window: Arc<ChannelWindow>,
    identity: String,
    dash: Arc<LiveDash>,
    /// Number of the byte from which segments count, and the packets behind it.
    first_byte: u64,
    packets: Extent,
}

impl ReadAt for ChannelSnapshot {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.window.read_exact_at(bytes, self.first_byte + offset).map_err(|error| {
            match error.kind() {
                // They have left the window.
                io::ErrorKind::UnexpectedEof => io::ErrorKind::ResourceBusy.into(),
                _ => error,
            }
        })
    }
}

impl ChannelSnapshot {
    /// Returns the channel with this identity; `None` while it has no segments, and for another
    /// identity.
    pub(super) fn of(window: &Arc<ChannelWindow>, identity: &str) -> Option<ChannelSnapshot> {
        let dash = window.live.dash(identity)?;
        let first_byte = window.live.with(identity, |_, first_byte| first_byte)?;
        let packets = window.written().saturating_sub(first_byte) / TS_PACKET_BYTES as u64;
        let packets = Extent::of_packets(packets);
        let (window, identity) = (window.clone(), identity.to_owned());
        Some(ChannelSnapshot { window, identity, dash, first_byte, packets })
    }
}

impl LiveMedia for ChannelSnapshot {
    const WORD: &str = "channel";
    const NOT_YET: NoAsset = NoAsset::NotOnAir;

    fn name(&self) -> &str {
        &self.window.assets.name
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

    fn has(&self, segment: &GrowingSegment) -> bool {
        let [start, end] = [segment.file.start, segment.file.end].map(|at| self.first_byte + at);
        self.window.held(start..end).is_some()
    }

    fn is_cut_short(&self) -> bool {
        false
    }

    fn fault(&self, error: &io::Error) -> NoAsset {
        match error.kind() {
            io::ErrorKind::ResourceBusy => ChannelSnapshot::NOT_YET,
            _ => NoAsset::Unreadable(error.to_string()),
        }
    }

    fn modified(&self) -> Option<SystemTime> {
        None
    }
}
