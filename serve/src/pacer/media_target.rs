// SPDX-License-Identifier: MIT OR Apache-2.0
//! The target of a session's media: datagrams or a stream.
//!
//! A reader of a stream that does not keep up fills its socket. The media that becomes due
//! meanwhile is its backlog; beyond [`BACKLOG_MAX`] the session skips to the next random-access
//! point, so that memory stays bounded and the reader resumes in time with a whole picture.
//!
//! Sources: RFC 2326 §10.12.
//! Does not choose a path.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use media::plan::PacketPlan;
use paths::Destination;

use crate::play::MediaClock;
use crate::play::RtspOutput;
use crate::wire_image::ImageLayout;

/// Target of a session's media.
pub(crate) enum MediaTarget {
    /// One datagram a packet.
    Datagrams(Box<Destination>),
    /// Frames on a connection.
    Stream(StreamTarget),
}

/// A connection that carries a session's media in frames.
pub(crate) struct StreamTarget {
    pub(crate) output: Arc<RtspOutput>,
    pub(crate) channel: u8,
    /// True from the time at which the socket is full until the session is in time again.
    pub(crate) is_blocked: bool,
}

impl StreamTarget {
    pub(crate) fn new(output: Arc<RtspOutput>, channel: u8) -> StreamTarget {
        StreamTarget { output, channel, is_blocked: false }
    }
}

impl MediaTarget {
    /// Returns the delay beyond which the session's clock is moved.
    pub(crate) fn behind_max(&self) -> Duration {
        match self {
            // The skip of a slow reader precedes the move.
            MediaTarget::Stream(target) if target.is_blocked => BACKLOG_MAX * 2,
            _ => BEHIND_MAX,
        }
    }

    /// Returns the layout of the wire image that can be sent to it, if any.
    pub(crate) fn image_layout(&self) -> Option<ImageLayout> {
        match self {
            MediaTarget::Datagrams(_) => Some(ImageLayout::Packets),
            MediaTarget::Stream(target) => ImageLayout::of_channel(target.channel),
        }
    }

    /// True while the reader of a stream keeps the session from sending.
    pub(crate) fn is_blocked(&self) -> bool {
        matches!(self, MediaTarget::Stream(StreamTarget { is_blocked: true, .. }))
    }

    /// Records that all due packets are sent.
    pub(crate) fn note_in_time(&mut self) {
        if let MediaTarget::Stream(target) = self {
            target.is_blocked = false;
        }
    }
}

/// Logs, once each time, that a call to a destination holds fewer packets than before.
pub(super) fn log_lowered_segment_limit(to: &mut Destination) {
    if let Some(fall) = to.take_segment_limit_lowered() {
        let (name, from, to) = (to.name(), fall.from, fall.to);
        let why = fall.errno.map_or("taken in pieces".to_owned(), |e| e.to_string());
        tracing::warn!("{name}: {why} with {from} packets a call; {to} from now on");
    }
}

/// Returns the packets that a reader misses whose backlog begins at the first of `packets`: those
/// before the first random-access point that is not yet due. Returns `None` while the backlog is
/// bounded, and while a recording has no such point yet.
pub(crate) fn packets_missed(
    plan: &PacketPlan,
    packets: Range<u64>,
    (clock, now): (MediaClock, Instant),
    may_grow: bool,
) -> Option<Range<u64>> {
    let due_at = clock.moment_of(plan.ticks(packets.start));
    if now.saturating_duration_since(due_at) < BACKLOG_MAX {
        return None;
    }
    let in_time = plan.packets_before(clock.ticks_at(now)).min(packets.end);
    let resume = match plan.entry_from(in_time).filter(|&entry| entry < packets.end) {
        Some(entry) => entry,
        None if may_grow => return None,
        // After the last random-access point, an incomplete picture is better than none.
        None => in_time,
    };
    (resume > packets.start).then_some(packets.start..resume)
}

/// Most due media that waits for a slow reader, without the socket's buffer.
pub(crate) const BACKLOG_MAX: Duration = Duration::from_secs(2);
/// Largest delay: packets that are later are useless, so the clock is moved instead.
const BEHIND_MAX: Duration = Duration::from_secs(1);
