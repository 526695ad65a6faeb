// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers DESCRIBE with the session description of an asset, from its packet plan.
//!
//! Costs a look-up in the library and some hundred bytes of text.
//!
//! Sources: RFC 2326 §10.2; `wire::sdp`.
//! Does not read media.

use media::payload::rtp_format;
use media::plan::PlanKey;
use media::tracks::LeftOut;
use wire::rtsp::{Request, Response};
use wire::sdp::{Description, TrackDescription};

use super::RtspConnection;
use super::play_span::named_end_ticks;
use crate::library::asset::LibraryAsset;
use media::duration_of;

impl RtspConnection {
    pub(super) async fn describe(&self, request: &Request) -> Result<Response, Response> {
        let asset = self.asset(request).await?;
        let description = match &asset {
            LibraryAsset::Stream(asset) => {
                let plan = &asset.plan;
                let ends = !asset.continues();
                wire::sdp::mp2t(&Description {
                    name: asset.title(),
                    origin: self.local.ip().to_canonical(),
                    id: u64::from(plan.identity().ssrc),
                    version: version(&asset.key),
                    duration: ends.then(|| duration_of(plan.duration_ticks())),
                    bits_per_second: plan.bits_per_second(),
                })
            }
            LibraryAsset::Tracks(asset) => {
                let (presentation, ends) = (&asset.presentation, !asset.is_growing());
                let description = Description {
                    name: asset.title(),
                    origin: self.local.ip().to_canonical(),
                    id: u64::from(presentation.tracks()[0].identity.ssrc),
                    version: version(&asset.key),
                    duration: ends.then(|| duration_of(named_end_ticks(presentation))),
                    bits_per_second: presentation.bits_per_second(),
                };
                let tracks = presentation.tracks().iter().enumerate();
                let tracks = tracks.map(|(index, track)| TrackDescription {
                    format: rtp_format(&track.codec, dynamic_payload_type(index)),
                    bits_per_second: presentation.track_bits_per_second(index),
                    language: track.language_name(),
                });
                let left_out = LeftOut::summary(presentation.left_out()).join("; ");
                let information = match left_out.is_empty() {
                    true => left_out,
                    false => format!("not sent: {left_out}"),
                };
                wire::sdp::presentation(&description, &tracks.collect::<Vec<_>>(), &information)
            }
        };
        let base = wire::rtsp::content_base(&self.url(request, asset.name()));
        Ok(Response::describe(request, &base, description))
    }
}

/// Returns the payload type of a track whose format has no static one (RFC 3551 §3).
pub(super) fn dynamic_payload_type(track: usize) -> u8 {
    DYNAMIC + track as u8
}

/// Returns the SDP version: the file's modification time in seconds, which grows with changes.
fn version(key: &PlanKey) -> u64 {
    (key.modified_ns / 1_000_000_000) as u64
}

const DYNAMIC: u8 = 96;
const _: () = assert!(DYNAMIC as usize + media::tracks::TRACKS_MAX <= 128);
