// SPDX-License-Identifier: MIT OR Apache-2.0
//! Position of a session between two plays, independent of the content that each of them sends.
//!
//! A play may continue in another form of the file: from the file itself to its pictures at another
//! rate, or back. So the place is kept as a time in the file, and the state of the RTP stream as
//! its next sequence number and timestamp. The next play is shifted to continue both.
//!
//! Sources: RFC 2326 §10.5, §12.34, Appendix B.

use std::sync::Arc;

use media::TICKS_PER_TIMESTAMP;
use media::tracks::Entry;

use super::play_span::{PacketSpan, PlaySpan, SampleSpan};
use super::stream_session::{SessionControl, StreamSession};
use crate::library::asset::Source;
use crate::library::track_asset::TrackSource;
use crate::play::Shift;

/// Position of a session that does not send.
pub(super) struct ResumePosition {
    /// Time in the file; `None` before the first play and after the end of a play.
    pub(super) file_ticks: Option<u64>,
    /// Next sequence number of the first stream.
    pub(super) sequence: u16,
    /// Time that follows all media sent so far.
    pub(super) time: StreamTime,
    /// False before the first packet of the session.
    pub(super) has_sent: bool,
}

/// A time of the first stream of a session.
#[derive(Clone, Copy)]
pub(super) struct StreamTime {
    pub(super) timestamp: u32,
    /// The same time in ticks, counted from the stream's first timestamp.
    ticks: i64,
}

impl ResumePosition {
    /// Returns the position of a stopped session, which `control` recorded when it stopped.
    pub(super) fn of(session: &StreamSession, control: &SessionControl) -> ResumePosition {
        let streams = session.streams();
        let has_sent = streams.iter().any(|stream| stream.link.progress().packets > 0);
        let progress = streams[0].link.progress();
        let (sequence, time) = match &control.span {
            PlaySpan::Packets(span) => {
                let before_lead =
                    PacketSpan { shift: span.shift.before(progress.ahead), ..span.clone() };
                let (sequence, timestamp) = before_lead.coordinates(progress.next);
                (sequence, span.stream_time(timestamp))
            }
            PlaySpan::Samples(span) => {
                let at = if control.is_paused { span.next_ticks } else { span.last_ticks() };
                (progress.next as u16, span.stream_time(at))
            }
        };
        let file_ticks = control.is_paused.then(|| control.span.file_ticks());
        ResumePosition { file_ticks, sequence, time, has_sent }
    }
}

impl PlaySpan {
    /// Returns the time in the file at the position.
    pub(super) fn file_ticks(&self) -> u64 {
        match self {
            PlaySpan::Packets(span) => span.file_ticks(),
            PlaySpan::Samples(span) => span.file_ticks(),
        }
    }

    /// Returns the sequence number, which is unknown for samples, and the time that follow the end
    /// on the first stream.
    pub(super) fn after_end(&self) -> (Option<u16>, StreamTime) {
        match self {
            PlaySpan::Packets(span) => {
                let (sequence, timestamp) = span.coordinates(span.end);
                (Some(sequence), span.stream_time(timestamp))
            }
            PlaySpan::Samples(span) => (None, span.stream_time(span.last_ticks())),
        }
    }
}

impl PacketSpan {
    /// Returns packets of `source` that continue a stream with this sequence number and timestamp.
    pub(super) fn landing(
        source: &Arc<Source>,
        (next, end): (u64, u64),
        coordinates: (u16, u32),
    ) -> PacketSpan {
        let shift = Shift::landing(source, coordinates, next);
        PacketSpan { source: source.clone(), next, end, shift }
    }

    /// Returns the time in the file at which play begins with the next packet.
    fn file_ticks(&self) -> u64 {
        let source = self.source.holding(self.next);
        let packet = self.next.saturating_sub(source.asset.first_packet());
        source.asset.plan.presented_ticks(packet.min(source.asset.plan.packets() - 1))
    }

    fn stream_time(&self, timestamp: u32) -> StreamTime {
        let first = self.source.asset.plan.identity().first_timestamp;
        let units = i64::from(timestamp.wrapping_sub(first));
        StreamTime { timestamp, ticks: units * TICKS_PER_TIMESTAMP as i64 }
    }
}

impl SampleSpan {
    /// Returns samples of `source` that continue a stream at this time. In a stream that has sent
    /// nothing, timestamps are presentation times.
    pub(super) fn landing(
        source: &Arc<TrackSource>,
        (entry, end_ticks): (Entry, u64),
        time: Option<StreamTime>,
    ) -> SampleSpan {
        let presented_ticks = entry.presented_ticks as i64;
        SampleSpan {
            source: source.clone(),
            next_ticks: entry.due_ticks,
            presented_ticks,
            end_ticks,
            shift_ticks: time.map_or(0, |time| time.ticks - presented_ticks),
        }
    }

    /// Returns the due time at which sending ends.
    fn last_ticks(&self) -> u64 {
        self.source.newest().asset.presentation.duration_ticks().min(self.end_ticks)
    }

    fn file_ticks(&self) -> u64 {
        let asset = &self.source.asset;
        let shown = asset.presentation.presented_of_due(self.next_ticks);
        asset.timeline().file_ticks(shown.max(0) as u64)
    }

    /// Returns the time behind the media that is due before `due_ticks`.
    fn stream_time(&self, due_ticks: u64) -> StreamTime {
        let presentation = &self.source.asset.presentation;
        let ticks = presentation.presented_behind(due_ticks) + self.shift_ticks;
        StreamTime { timestamp: presentation.tracks()[0].timestamp(ticks), ticks }
    }
}
