// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the response that carries an item (playlist, MPD, segment, picture): content type,
//! ranges, Cache-Control; or the refusal.
//!
//! An item below an identity never changes, and its Cache-Control field states that. An item that
//! changes is sent whole: Chromium's player requests a playlist in pieces, one after the other,
//! which may belong to two texts.
//!
//! Sources: RFC 9110 §14 (ranges), RFC 9111 §5.2 (Cache-Control), RFC 8246 (immutable), RFC 4337.
//! Does not find items ([`super::answers`]).

use std::time::SystemTime;

use access::carried;
use wire::http::{Entity, Request, Response, content_type, error, respond, respond_whole};

use super::address::WebItem;
use super::carry::{AddressedText, Carried, with_credentials};
use super::item_parts::ItemParts;
use crate::library::NoAsset;

/// Reason why enciphered segments have no MPD.
pub(super) const NO_CIPHER_OF_DASH: &str = "segments are enciphered with AES-128 \
    (--hls-cipher), which DASH does not have: play master.m3u8";

/// Cache-Control of an item below an identity: its content cannot change.
const IMMUTABLE: &str = "max-age=31536000, immutable";

pub(super) const REVALIDATED: &str = "no-cache";

/// Content type of text in MP4 (RFC 4337).
const TEXT_FRAGMENTS: &str = "application/mp4";

/// Content type of an item.
pub(super) fn kind(item: &WebItem) -> &'static str {
    content_type(match item {
        WebItem::SubtitleInit(_) | WebItem::SubtitleFragment(..) => return TEXT_FRAGMENTS,
        WebItem::Manifest | WebItem::LiveManifest => "manifest.mpd",
        WebItem::Player => "player.html",
        WebItem::Poster | WebItem::ThumbnailSheet(_) => "picture.jpg",
        WebItem::Ts
        | WebItem::TsSegment(_)
        | WebItem::TsKeyFrame(_)
        | WebItem::LiveSegment(_)
        | WebItem::LivePart(..) => "media.ts",
        WebItem::Init(_)
        | WebItem::Segment(..)
        | WebItem::KeyFrame(_)
        | WebItem::LiveInit(..)
        | WebItem::LiveFragment(..)
        | WebItem::LiveTracksInit(_)
        | WebItem::LiveTracksSegment(..) => "media.mp4",
        WebItem::Master
        | WebItem::Playlist(_)
        | WebItem::KeyPlaylist
        | WebItem::TsPlaylist(_)
        | WebItem::TsKeyPlaylist(_)
        | WebItem::SubtitlePlaylist(_)
        | WebItem::LivePlaylist
        | WebItem::LiveTracksPlaylist(_) => "media.m3u8",
        WebItem::SubtitleSegment(..) | WebItem::SubtitleFile(_) | WebItem::Thumbnails => {
            "media.vtt"
        }
    })
}

/// Returns the answer with a resource, or with the requested ranges of it.
pub(super) fn made(
    request: &Request,
    entity: &Entity<'_>,
    parts: ItemParts,
    item: &WebItem,
    now: SystemTime,
) -> Response {
    let parts = carrying(parts, item, request);
    let entity = &Entity { bytes: parts.bytes(), ..*entity };
    made_as(request, entity, parts, may_change(item), now)
}

/// Does the same for a resource that may change, or that never does.
pub(super) fn made_as(
    request: &Request,
    entity: &Entity<'_>,
    parts: ItemParts,
    may_change: bool,
    now: SystemTime,
) -> Response {
    let mut response = match may_change {
        true => respond_whole(request, entity, now),
        false => respond(request, entity, now, crate::random::random_id),
    };
    response.parts = parts.placed(response.parts);
    if response.status >= 400 {
        return response;
    }
    response.with_field("Cache-Control", if may_change { REVALIDATED } else { IMMUTABLE })
}

/// Writes the credentials of a request's query behind the addresses that a text lists.
pub(super) fn carrying(mut parts: ItemParts, item: &WebItem, request: &Request) -> ItemParts {
    let Some(query) = request.query.as_deref().and_then(carried) else { return parts };
    let form = match item {
        WebItem::Manifest | WebItem::LiveManifest => AddressedText::Manifest,
        WebItem::Thumbnails => AddressedText::Thumbnails,
        item if kind(item) == content_type("a.m3u8") => AddressedText::Playlist,
        _ => return parts,
    };
    let carried = Carried { query: &query, host: request.host.as_deref() };
    // Made here, so it is UTF-8.
    if let Ok(text) = str::from_utf8(&parts.head)
        && let Some(copy) = with_credentials(form, text, carried)
    {
        parts.head = copy.into();
    }
    parts
}

/// True for an item that depends on more than the file: others beside it, options, the name of the
/// server. Its entity tag identifies it; the time of a file does not.
pub(super) fn may_change(item: &WebItem) -> bool {
    matches!(
        item,
        WebItem::Master
            | WebItem::Manifest
            | WebItem::Player
            | WebItem::LivePlaylist
            | WebItem::LiveManifest
            | WebItem::LiveTracksPlaylist(_)
            | WebItem::Poster
            | WebItem::Thumbnails
            | WebItem::ThumbnailSheet(_)
    )
}

/// Returns the answer for a file without a plan.
pub(crate) fn refused(request: &Request, reason: &NoAsset, now: SystemTime) -> Response {
    let status = match reason {
        NoAsset::Changing { .. }
        | NoAsset::Busy { .. }
        | NoAsset::NotOnAir
        | NoAsset::OnStandby { .. } => 503,
        NoAsset::Unreadable(_) => 500,
        _ => 404,
    };
    let response = error(request, status, &reason.to_string(), now);
    match reason.again_in_s() {
        Some(seconds) => response.with_field("Retry-After", &seconds.to_string()),
        None => response,
    }
}
