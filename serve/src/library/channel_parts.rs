// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of a channel that can be played: assets, each of which continues the sequence numbers,
//! timestamps and time of the one before.
//!
//! The channel adds parts at the end and drops them at the beginning ([`crate::channel::window`]).
//! Numbers of packets and times count from the channel's start.
//!
//! A look-up costs a lock for all and one for each part, at most a few dozen, and makes a list.
//!
//! Does not choose where a viewer begins ([`super::part_starts`]) or hold bytes.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::asset::Source;
use super::growing_file::Growth;
use super::part_starts::Reach;

/// The parts of one channel as assets, in order; those without a plan yet are skipped.
pub(crate) struct ChannelParts {
    /// Path of the channel below the server's root.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) reach: Reach,
    parts: Mutex<Vec<Arc<Growth>>>,
}

/// Place of an asset among the parts of a channel.
#[derive(Clone)]
pub(crate) struct PartPlace {
    pub(crate) parts: Arc<ChannelParts>,
    pub(crate) first_packet: u64,
    pub(crate) first_ticks: u64,
}

impl ChannelParts {
    /// Creates the empty list of a channel; viewers may go back by `shift`.
    pub(crate) fn new(channel: &str, title: String, shift: Duration) -> ChannelParts {
        let name = format!("channel/{channel}");
        ChannelParts { name, title, reach: Reach::new(shift), parts: Mutex::default() }
    }

    /// Replaces the parts, in order.
    pub(crate) fn set(&self, parts: Vec<Arc<Growth>>) {
        *self.parts.lock() = parts;
    }

    /// Returns the newest part that can be played; `None` until the channel has sent for a second
    /// or two, and while it stands by.
    pub(crate) fn newest(&self) -> Option<Arc<Source>> {
        self.planned().pop()
    }

    /// Returns the part that holds `packet`; the nearest one if that is dropped or does not exist
    /// yet.
    pub(crate) fn holding(&self, packet: u64) -> Option<Arc<Source>> {
        let planned = self.planned();
        let at = planned.iter().rposition(|source| source.asset.first_packet() <= packet);
        planned.into_iter().nth(at.unwrap_or(0))
    }

    /// Returns the part after one that ends before `packet`.
    pub(crate) fn following(&self, packet: u64) -> Option<Arc<Source>> {
        self.planned().into_iter().find(|source| source.asset.first_packet() >= packet)
    }

    /// Returns the newest source of each part that has one, in order.
    pub(crate) fn planned(&self) -> Vec<Arc<Source>> {
        self.parts.lock().iter().filter_map(|part| part.newest_stream()).collect()
    }
}
