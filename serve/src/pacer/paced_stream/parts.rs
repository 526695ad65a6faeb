// SPDX-License-Identifier: MIT OR Apache-2.0
//! Advances a session through a growing recording, and from part to part of a channel.
//!
//! A session holds one source: a file, or a part of a channel's window. At the end of the source's
//! known packets, the session switches to its newest plan, then to the following part. If the
//! session's part is dropped, the session continues with the oldest existing part.
//!
//! Costs a lock at the end of a plan.
//!
//! Sources: `serve/src/library/growing_file.rs`, `serve/src/channel/window/mod.rs`.
//! Does not send.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::Tools;
use super::super::media_target::{BACKLOG_MAX, packets_missed};
use super::{PacedStream, Seen, Step};
use media::ticks_of;

use crate::library::asset::Source;
use crate::play::MediaClock;

impl PacedStream {
    /// Returns the next packet of the file or channel to send.
    pub(crate) fn position(&self) -> u64 {
        match &self.lead {
            Some(lead) => lead.from,
            None => self.source.asset.first_packet() + self.next,
        }
    }

    /// Switches to the newest plan of a recording.
    pub(super) fn take_newest(&mut self) {
        self.source = self.source.newest();
        self.end = self.limit_here().min(self.source.end());
        self.seen = [Seen::default(); 2];
    }

    /// Switches to packet `next` of a source.
    pub(super) fn enter(&mut self, source: Arc<Source>, next: u64) {
        if self.source.asset.first_packet() != source.asset.first_packet() {
            // The ready range of one part does not apply to another.
            self.link.source.answer(0..0, true);
        }
        (self.source, self.next, self.lead) = (source, next, None);
    }

    /// Advances to the next part of a channel, whose time follows that of this one.
    pub(super) fn enter_following(&mut self, part: Arc<Source>) {
        let apart = part.asset.first_ticks().saturating_sub(self.source.asset.first_ticks());
        self.clock = self.clock.map(|clock| MediaClock {
            moment: clock.moment_of(apart),
            ticks: 0,
            ..clock
        });
        self.enter(part, 0);
        self.take_newest();
    }

    /// Returns one past the last packet of the source that this play may send.
    pub(super) fn limit_here(&self) -> u64 {
        self.limit.saturating_sub(self.source.asset.first_packet())
    }

    /// Checks for new packets of a recording whose known ones were sent. After it has run dry it
    /// waits for some seconds of media, so that a viewer who has caught up stops once and not at
    /// every write. The clock stops meanwhile, and later packets are sent at their own pace.
    pub(super) fn follow(&mut self, now: Instant) -> Option<Step> {
        self.take_newest();
        if self.next >= self.end
            && let Some(part) = self.source.following()
        {
            self.enter_following(part);
        }
        let asset = &self.source.asset;
        // A complete part needs no wait.
        let wanted = if self.is_starved && asset.is_growing() { ticks_of(CUSHION) } else { 1 };
        let there = asset.plan.ticks(self.end).saturating_sub(asset.plan.ticks(self.next));
        if self.may_grow() && there < wanted {
            self.hold_clock();
            self.is_starved = true;
            return Some(Step::Sent { due: now + LOOK_EVERY });
        }
        self.is_starved = false;
        None
    }

    /// True if packets beyond the known ones are to be sent.
    pub(super) fn may_grow(&self) -> bool {
        self.end < self.limit_here() && self.source.asset.continues()
    }

    /// Skips the packets that a slow reader has missed, once its backlog reaches the limit.
    pub(super) fn skip_missed(&mut self, now: Instant, clock: MediaClock, tools: &mut Tools) {
        let plan = &self.source.asset.plan;
        let due_at = clock.moment_of(plan.ticks(self.next));
        if now.saturating_duration_since(due_at) >= BACKLOG_MAX
            && clock.ticks_at(now) > plan.ticks(self.end)
            && let Some(part) = self.source.following()
        {
            // The whole rest of this part is late.
            let packets = self.end.saturating_sub(self.next);
            self.enter_following(part);
            self.link.skip(self.position(), packets);
            tools.counters().packets_skipped += packets;
            return;
        }
        // A complete part of a channel gets no further random-access point.
        let may_grow = self.may_grow() && self.source.asset.is_growing();
        let missed = packets_missed(plan, self.next..self.end, (clock, now), may_grow);
        if let Some(missed) = missed {
            let packets = missed.end - missed.start;
            self.next = missed.end;
            // The windows begin at another packet now.
            self.seen = [Seen::default(); 2];
            self.link.skip(self.position(), packets);
            let counters = tools.counters();
            counters.reader_skips += 1;
            counters.packets_skipped += packets;
        }
    }

    /// Switches from a dropped part of a channel to the oldest existing one; returns true if it
    /// did. The viewer was further behind than the channel keeps, or the part was lost to a full
    /// disk.
    pub(super) fn leave_dropped_part(&mut self, tools: &mut Tools) -> bool {
        let Some(part) = self.source.oldest_behind() else { return false };
        let name = &self.source.asset.name;
        tracing::info!("{name}: a viewer was behind what is kept; he goes on with the oldest part");
        let left = self.position();
        let entry = part.asset.plan.entry_from(1).unwrap_or(0);
        self.enter(part, entry);
        self.take_newest();
        // The entry is due now, not at the time at which it would be due without the gap.
        (self.clock, self.sent_until) = (None, None);
        let packets = self.position().saturating_sub(left);
        self.link.skip(self.position(), packets);
        tools.counters().packets_skipped += packets;
        true
    }
}

/// Media of a recording to wait for after running dry: more than one write of a recorder.
const CUSHION: Duration = Duration::from_secs(2);
/// Interval at which the recording of a waiting viewer is checked.
const LOOK_EVERY: Duration = Duration::from_millis(100);
