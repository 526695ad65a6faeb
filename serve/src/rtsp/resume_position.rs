// SPDX-License-Identifier: MIT OR Apache-2.0
//! Position of a session between two plays, independent of the content that each of them sends.
//!
//! A play may continue in another form of the file: from the file itself to its pictures at another
//! rate, or back. So the place is kept as a time in the file, and the state of the RTP stream as
//! its next sequence number and timestamp.
//!
//! Sources: RFC 2326 §10.5, §12.34, Appendix B.

use std::sync::Arc;

use media::TICKS_PER_TIMESTAMP;

use super::stream_session::{Played, SessionControl, StreamSession};
use crate::library::asset::Source;
use crate::play::{Progress, Shift};

/// Position of a session that does not send.
pub(super) struct ResumePosition {
    /// Time in the file; `None` before the first play and after the end of a play.
    pub(super) file_ticks: Option<u64>,
    /// Next sequence number and timestamp of the first stream.
    pub(super) next: (u16, u32),
    /// End of all media sent so far, on the timeline of RTP timestamps, in ticks; `None` before the
    /// first packet.
    pub(super) sent_ticks: Option<i64>,
}

impl ResumePosition {
    /// Returns the position of a stopped session, which `control` recorded when it stopped.
    pub(super) fn of(session: &StreamSession, control: &SessionControl) -> ResumePosition {
        let streams = session.streams();
        let has_sent = streams.iter().any(|stream| stream.link.progress().packets > 0);
        let Progress { next, ahead, .. } = streams[0].link.progress();
        match control.played(&session.content) {
            Played::Stream(source) => {
                let next = coordinates(source, control.shift.before(ahead), next);
                let first = source.asset.plan.identity().first_timestamp;
                let units = i64::from(next.1.wrapping_sub(first));
                let place = control.is_paused.then(|| {
                    let source = source.holding(control.resume);
                    source.file_ticks(control.resume)
                });
                ResumePosition {
                    file_ticks: place,
                    next,
                    sent_ticks: has_sent.then_some(units * TICKS_PER_TIMESTAMP as i64),
                }
            }
            Played::Tracks(source) => {
                let asset = &source.asset;
                let presentation = &asset.presentation;
                let shown = |due| presentation.presented_of_due(due).max(0) as u64;
                let place = control.is_paused.then(|| shown(control.resume));
                let end = presentation.duration_ticks().min(control.end);
                let at = if control.is_paused { control.resume } else { end };
                let sent_ticks = presentation.presented_behind(at) + control.shift_ticks;
                let timestamp = presentation.tracks()[0].timestamp(sent_ticks);
                ResumePosition {
                    file_ticks: place.map(|shown| asset.timeline().file_ticks(shown)),
                    next: (next as u16, timestamp),
                    sent_ticks: has_sent.then_some(sent_ticks),
                }
            }
        }
    }
}

/// Returns the sequence number and the timestamp of packet `next` of a transport stream.
pub(super) fn coordinates(source: &Arc<Source>, shift: Shift, next: u64) -> (u16, u32) {
    let holding = source.holding(next);
    let plan = &holding.asset.plan;
    let number = next.wrapping_sub(holding.asset.first_packet()) as u16;
    let sequence = plan.identity().first_sequence.wrapping_add(number);
    let timestamp = holding.timestamp_of(next);
    (sequence.wrapping_add(shift.sequence), timestamp.wrapping_add(shift.timestamp))
}

impl Source {
    /// Returns the time in the file at which play begins with `packet`.
    fn file_ticks(&self, packet: u64) -> u64 {
        let plan = &self.asset.plan;
        let packet = packet.saturating_sub(self.asset.first_packet());
        plan.presented_ticks(packet.min(plan.packets() - 1))
    }
}
