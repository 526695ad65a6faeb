// SPDX-License-Identifier: MIT OR Apache-2.0
//! A PLAY request in terms of the media: which content it plays, where that begins and ends.
//!
//! A Scale other than 1 plays the pictures of the file alone, as a source with one track; the other
//! streams of the session are silent meanwhile. The range is resolved before the session changes: a
//! refused request must not stop a running play.
//!
//! Costs two binary searches; the first play at a scale visits every random-access point, and a
//! start at which parameter sets are missing reads the file, both on a blocking thread.
//!
//! Sources: RFC 2326 §10.5, §12.29, §12.34, §12.35.
//! Does not change the session ([`super::play_change`] does). Reads its position only to find the
//! parameter sets that a play without a start probably needs; they are dropped if play begins
//! elsewhere.

use std::sync::Arc;

use clock::Moment;
use media::PlayScale;
use media::tracks::Entry;
use wire::rtsp::{PlayRequest, RangeUnit, Status};

use super::play_range::{PacketRange, packet_range, sample_range};
use super::play_span::{PlaySpan, named_end_ticks};
use super::stream_session::{SessionContent, StreamSession};
use crate::library::asset::Source;
use crate::library::track_asset::TrackSource;
use crate::pacer::StreamLead;
use crate::play::Speed;

/// A PLAY request and the media that it means.
pub(super) struct WantedPlay {
    /// The request as received.
    pub(super) asked: PlayRequest,
    /// The same with the Scale and the Speed that apply.
    pub(super) applied: PlayRequest,
    pub(super) speed: Speed,
    pub(super) media: WantedMedia,
}

/// Media that a PLAY request means. A start is `None` if play continues from the current position,
/// and an end is `None` if the request has no range.
pub(super) enum WantedMedia {
    Packets {
        /// The source that the session has, and its newest state.
        own: Arc<Source>,
        source: Arc<Source>,
        from: Option<u64>,
        /// The end that the request names, or that of the whole content.
        end: Option<u64>,
        /// Parameter sets that a play from here must send first.
        lead: Option<StreamLead>,
    },
    Samples {
        source: Arc<TrackSource>,
        entry: Option<Entry>,
        end_ticks: Option<u64>,
    },
}

impl WantedPlay {
    /// Resolves a request. Returns `InvalidRange` for a range that the media does not have.
    pub(super) async fn resolve(
        session: &Arc<StreamSession>,
        asked: &PlayRequest,
        now: Moment,
    ) -> Result<WantedPlay, Status> {
        let scale = asked.scale.map_or(PlayScale::ONE, PlayScale::nearest);
        let pictures = if scale.is_normal() { None } else { pictures(session, scale).await };
        let media = match (pictures, &session.content) {
            (Some(source), content) => samples(&source, content, asked),
            (None, content @ SessionContent::Tracks(source)) => {
                samples(&source.newest(), content, asked)
            }
            (None, SessionContent::Stream(source)) => packets(source, session, asked, now).await,
        };
        let media = media.ok_or(Status::InvalidRange)?;
        let (scale, is_live) = match &media {
            WantedMedia::Packets { source, .. } => (PlayScale::ONE, source.asset.continues()),
            WantedMedia::Samples { source, .. } => {
                (source.asset.timeline().scale(), source.asset.is_growing())
            }
        };
        // Packets that a live source has not produced yet cannot be sent faster.
        let speed = asked.speed.filter(|_| !is_live).map_or(Speed::ONE, Speed::nearest);
        let applied = PlayRequest {
            scale: asked.scale.map(|_| scale.value()),
            speed: asked.speed.map(|_| speed.value()),
            ..*asked
        };
        Ok(WantedPlay { asked: *asked, applied, speed, media })
    }

    /// False for a request that continues from the current position.
    pub(super) fn names_start(&self) -> bool {
        match &self.media {
            WantedMedia::Packets { from, .. } => from.is_some(),
            WantedMedia::Samples { entry, .. } => entry.is_some(),
        }
    }

    /// Returns the end of the requested range: a packet, or a due time.
    pub(super) fn named_end(&self) -> Option<u64> {
        match &self.media {
            WantedMedia::Packets { end, .. } => *end,
            WantedMedia::Samples { end_ticks, .. } => *end_ticks,
        }
    }

    /// True if `span` plays the same content.
    pub(super) fn is_content_of(&self, span: &PlaySpan) -> bool {
        match (&self.media, span) {
            (WantedMedia::Packets { .. }, PlaySpan::Packets(_)) => true,
            (WantedMedia::Samples { source, .. }, PlaySpan::Samples(span)) => {
                source.is_content_of(&span.source)
            }
            _ => false,
        }
    }
}

/// Resolves a request for a transport stream or a channel.
async fn packets(
    source: &Arc<Source>,
    session: &StreamSession,
    asked: &PlayRequest,
    now: Moment,
) -> Option<WantedMedia> {
    let (own, source) = (source.clone(), source.current());
    let PacketRange { from, end } = match asked.range {
        Some(range) => packet_range(&source, range, asked.unit, now)?,
        None => PacketRange::default(),
    };
    let end = asked.range.map(|_| end.unwrap_or_else(|| source.limit()));
    let resume = || session.control.lock().resume_packet(&source);
    let likely = source.playable(from.unwrap_or_else(resume));
    let lead = StreamLead::read(&source, likely).await;
    Some(WantedMedia::Packets { own, source, from, end, lead })
}

/// Resolves a request for tracks, or for the pictures of a file at another rate.
fn samples(
    source: &Arc<TrackSource>,
    content: &SessionContent,
    asked: &PlayRequest,
) -> Option<WantedMedia> {
    let announced_ticks = match content {
        SessionContent::Tracks(whole) => named_end_ticks(&whole.newest().asset.presentation),
        SessionContent::Stream(_) => 0,
    };
    let range = match asked.range {
        Some(_) if asked.unit == RangeUnit::Clock => return None,
        Some(range) => Some(sample_range(source, range, announced_ticks)?),
        None => None,
    };
    Some(WantedMedia::Samples {
        source: source.clone(),
        entry: range.as_ref().and_then(|range| range.entry),
        end_ticks: range.map(|range| range.end_ticks),
    })
}

/// Returns the pictures that a play at this scale shows. Returns `None` if the file has none, if
/// the session does not include their track, or if the file's end is unknown.
async fn pictures(session: &Arc<StreamSession>, scale: PlayScale) -> Option<Arc<TrackSource>> {
    let session = session.clone();
    // `trick` visits every random-access point.
    let made = tokio::task::spawn_blocking(move || match &session.content {
        SessionContent::Stream(source) => source.current().trick(scale),
        SessionContent::Tracks(source) => {
            let leading = source.asset.leading_index();
            let has_it = session.streams().iter().any(|stream| stream.track == leading);
            has_it.then(|| source.newest().trick(scale)).flatten()
        }
    });
    made.await.ok().flatten()
}
