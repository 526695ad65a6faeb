// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the packets at which viewers of a channel begin, so that no viewer falls out of its parts.
//!
//! A viewer keeps its initial distance behind the present. So it may begin no further back than the
//! parts are kept: the time shift and a grace, less [`MARGIN_TICKS`]. If random-access points are
//! so sparse that none is that near, the viewer begins at the last one and the grace grows to that
//! distance, up to [`GRACE_TICKS_MAX`].
//!
//! Costs a search in the plan of each part that is examined.
//!
//! Does not hold parts ([`ChannelParts`] does) or drop them ([`crate::channel::window`] does).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use media::{TICKS_PER_SECOND, ticks_of};

use super::asset::Source;
use super::channel_parts::ChannelParts;

/// Media that a channel keeps.
pub(crate) struct Reach {
    /// Time that viewers may go back.
    shift_ticks: u64,
    /// Time kept beyond it.
    grace_ticks: AtomicU64,
}

impl Reach {
    pub(super) fn new(shift: Duration) -> Reach {
        let shift_ticks = ticks_of(shift);
        Reach { shift_ticks, grace_ticks: AtomicU64::new(GRACE_TICKS) }
    }

    /// Sets the time kept beyond the time shift.
    #[cfg(test)]
    pub(crate) fn set_grace(&self, ticks: u64) {
        self.grace_ticks.store(ticks, Ordering::Relaxed);
    }

    /// Returns the age at which media may be dropped.
    pub(crate) fn kept_ticks(&self) -> u64 {
        self.shift_ticks.saturating_add(self.grace_ticks.load(Ordering::Relaxed))
    }

    /// Returns the time that viewers may go back.
    pub(crate) fn shift_ticks(&self) -> u64 {
        self.shift_ticks
    }

    /// Keeps media for this long, as far as a grace permits.
    pub(crate) fn keep(&self, ticks: u64) {
        let grace = ticks.saturating_sub(self.shift_ticks).min(GRACE_TICKS_MAX);
        self.grace_ticks.fetch_max(grace, Ordering::Relaxed);
    }

    /// Returns the greatest distance from the present at which a viewer stays in the parts.
    fn ticks(&self) -> u64 {
        self.kept_ticks().saturating_sub(MARGIN_TICKS).max(ticks_of(LIVE_BEHIND))
    }

    /// Keeps media for a viewer that begins this far behind the present; false if that is too far.
    fn extend_to(&self, behind: u64) -> bool {
        let grace = behind.saturating_add(MARGIN_TICKS).saturating_sub(self.shift_ticks);
        if grace > GRACE_TICKS_MAX {
            return false;
        }
        self.grace_ticks.fetch_max(grace, Ordering::Relaxed);
        true
    }
}

impl ChannelParts {
    /// Returns the packet to start with to play from a time of the channel on: the last place to
    /// start then or before, or the first one that is kept.
    pub(crate) fn packet_at(&self, ticks: u64) -> Option<u64> {
        self.start_at(&self.planned(), ticks)
    }

    /// Returns the packet with which a viewer who joins now begins.
    pub(crate) fn live_packet(&self) -> Option<u64> {
        self.start_at(&self.planned(), u64::MAX)
    }

    /// Returns the packet itself while it is kept; otherwise the nearest place to start.
    pub(crate) fn playable(&self, packet: u64) -> Option<u64> {
        let parts = self.planned();
        let (oldest, newest) = (parts.first()?, parts.last()?);
        if packet >= newest.asset.first_packet() + newest.end() {
            return self.start_at(&parts, u64::MAX);
        }
        let holding = parts.iter().rfind(|part| part.asset.first_packet() <= packet);
        let behind = holding.map(|part| present(newest).saturating_sub(time_of(part, packet)));
        match behind {
            Some(behind) if behind <= self.reach.ticks() && self.reach.extend_to(behind) => {
                Some(packet)
            }
            _ => self.start_at(&parts, oldest.asset.first_ticks()),
        }
    }

    /// Returns the packet to start with for a time, of these parts.
    fn start_at(&self, parts: &[Arc<Source>], ticks: u64) -> Option<u64> {
        let present = present(parts.last()?);
        let live = present.saturating_sub(ticks_of(LIVE_BEHIND));
        let earliest = present.saturating_sub(self.reach.ticks());
        let wanted = ticks.clamp(earliest, live.max(earliest));
        let before = entry_before(parts, wanted).filter(|entry| entry.ticks >= earliest);
        let entry = before.or_else(|| entry_behind(parts, wanted).filter(|at| at.ticks <= live));
        // Places to start may be further apart than the parts reach.
        match entry.or_else(|| entry_before(parts, live)) {
            Some(entry) if self.reach.extend_to(present.saturating_sub(entry.ticks)) => {
                Some(entry.packet)
            }
            // Audio begins at once, the picture at the next random-access point.
            _ => {
                let packet = packet_of(parts, live);
                self.reach.extend_to(present.saturating_sub(live)).then_some(packet)
            }
        }
    }
}

/// A place to start, in packets and time of the channel.
struct Start {
    packet: u64,
    ticks: u64,
}

/// Returns the time up to which a part can be sent.
fn present(part: &Source) -> u64 {
    let plan = &part.asset.plan;
    part.asset.first_ticks() + plan.ticks(plan.settled_packets())
}

fn time_of(part: &Source, packet: u64) -> u64 {
    let asset = &part.asset;
    asset.first_ticks() + asset.plan.ticks(packet.saturating_sub(asset.first_packet()))
}

fn start(part: &Source, packet: u64) -> Start {
    let packet = part.asset.first_packet() + packet;
    Start { packet, ticks: time_of(part, packet) }
}

/// Returns the last place to start at a time or before.
fn entry_before(parts: &[Arc<Source>], ticks: u64) -> Option<Start> {
    for part in parts.iter().rev().filter(|part| part.asset.first_ticks() <= ticks) {
        // A part begins anywhere in a group of pictures: 0 is no place to start.
        let entry = part.asset.plan.entry((ticks - part.asset.first_ticks()).max(1));
        if entry > 0 || part.asset.first_packet() == 0 {
            return Some(start(part, entry));
        }
    }
    None
}

/// Returns the first place to start behind a time.
fn entry_behind(parts: &[Arc<Source>], ticks: u64) -> Option<Start> {
    parts.iter().find_map(|part| {
        let plan = &part.asset.plan;
        let from = plan.packets_before(ticks.saturating_sub(part.asset.first_ticks()));
        let entry = plan.entry_from(from.max(1))?;
        Some(start(part, entry)).filter(|found| found.ticks >= ticks)
    })
}

/// Returns the packet of a time; `parts` are not empty.
fn packet_of(parts: &[Arc<Source>], ticks: u64) -> u64 {
    let part = parts.iter().rfind(|part| part.asset.first_ticks() <= ticks).unwrap_or(&parts[0]);
    let asset = &part.asset;
    let packets = asset.plan.packets_before(ticks.saturating_sub(asset.first_ticks()));
    asset.first_packet() + packets.min(asset.plan.packets().saturating_sub(1))
}

/// Distance of a joining viewer from the newest packets: more than the time between two plans and
/// two clock references.
const LIVE_BEHIND: Duration = Duration::from_secs(3);
/// Media kept beyond the time shift at first.
const GRACE_TICKS: u64 = 10 * TICKS_PER_SECOND;
/// Most media kept beyond the time shift: for groups of pictures of that length.
const GRACE_TICKS_MAX: u64 = 120 * TICKS_PER_SECOND;
/// Time from a viewer to the media that is dropped.
const MARGIN_TICKS: u64 = 2 * TICKS_PER_SECOND;
