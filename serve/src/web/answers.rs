// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answer to a request for a playlist or segment of a file.
//!
//! All of them have an entity tag and conditions, as files have, and ranges
//! ([`super::item_response`]).
//!
//! Sources: RFC 9110 §13 (conditions), §14 (ranges), §15.5.11 (410 Gone); RFC 8246 (immutable).
//! Does not send.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::SystemTime;

use wire::http::{Entity, Request, Response, content_type, error, respond_whole};

use super::address::{SubtitleId, WebAddress, WebItem};
use super::carry::{AddressedText, Carried, with_credentials};
use super::clear_key;
use super::item_parts::ItemParts;
use super::item_response::{NO_CIPHER_OF_DASH, REVALIDATED, kind, made, may_change, refused};
use super::live::LiveAsset;
use super::live_dash;
use super::live_reload::ReloadQuery;
use super::live_tracks::LiveTracks;
use super::protection::SegmentCipher;
use super::recorded_file::RecordedFile;
use super::recording_snapshot::RecordingSnapshot;
use super::side_cars::side_cars;
use super::title::Title;
use super::ts_form::TsForm;
use super::web_asset::WebAsset;
use super::web_assets::{WebAssets, WebSource};
use crate::http::open_files::{FileContent, OpenFile};
use crate::library::{Library, NoAsset};

/// An entity tag has about half of them.
const ETAG_BYTES: usize = 128;
/// Largest playlist that credentials are written into: a day of short segments.
const CARRIED_BYTES_MAX: u64 = 4 << 20;

/// Returns the answer for an address whose identity differs from that of the file's content.
pub(crate) fn missing(
    request: &Request,
    address: &WebAddress<'_>,
    (file, web): (&OpenFile, &WebAssets),
    now: SystemTime,
) -> Option<Response> {
    // The identity of a recording was checked when the recording was looked up.
    let is_other = |asked| asked != web.identity(file);
    let is_gone = !address.item.is_live() && address.identity.is_some_and(is_other);
    is_gone.then(|| gone(request, now))
}

fn gone(request: &Request, now: SystemTime) -> Response {
    let what = "the file was replaced by another; load master.m3u8 or manifest.mpd again";
    error(request, 410, what, now)
}

/// The recording of this address was replaced, or the server no longer has its segments: it was
/// restarted since, or nobody has watched for long.
fn over(request: &Request, now: SystemTime) -> Response {
    let what = "this address of a recording is over; load master.m3u8 or manifest.mpd again";
    error(request, 410, what, now)
}

/// The file of a recording has become shorter than its segments.
fn cut_short(request: &Request, now: SystemTime) -> Response {
    let what = "the recording was cut short; load master.m3u8 or manifest.mpd again";
    error(request, 410, what, now)
}

/// Client of an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskedBy<'a> {
    pub(crate) peer: IpAddr,
    /// The server's origin as the client addresses it (`http://host`), if it is known.
    pub(crate) origin: Option<&'a str>,
}

/// Returns the answer to a request for an item of a file of this name, with the file that has its
/// bytes.
pub(crate) async fn answer(
    request: &Request,
    address: &WebAddress<'_>,
    (asset, file): (Result<WebSource, NoAsset>, Arc<OpenFile>),
    (web, library, client): (&WebAssets, &Arc<Library>, AskedBy<'_>),
    now: SystemTime,
) -> (Response, Arc<OpenFile>) {
    let (name, item, peer) = (address.file, &address.item, client.peer);
    let form = match TsForm::asked(item, request.query.as_deref()) {
        Ok(form) => form,
        Err(what) => return (error(request, 400, &what, now), file),
    };
    let asset = match asset {
        Ok(WebSource::Whole(asset)) => asset,
        Ok(WebSource::Live(live, asset)) if item.is_live_dash() => {
            if let Some(refused) = not_served(request, address, &live.recorded, &file, now) {
                return (refused, file);
            }
            let recording = RecordingSnapshot { live, asset, file };
            let by = (web, peer);
            let (response, copy) = live_dash::answer(request, address, &recording, by, now).await;
            return (response, copy.unwrap_or(recording.file));
        }
        Ok(WebSource::Live(live, _)) => {
            return (of_recording(request, address, &live, &file, now), file);
        }
        Ok(WebSource::LiveTracks(live, plan)) => {
            let by = ((item, form), web, peer);
            return of_tracks(request, address, (live, plan, file), by, now).await;
        }
        Ok(WebSource::Over) => return (over(request, now), file),
        Err(reason) => return (refused(request, &reason, now), file),
    };
    let mut shown = None;
    let (parts, source) = if let WebItem::Master | WebItem::Manifest = item {
        let found = side_cars(library, name);
        let subtitles = web.subtitles.listed(&asset, found, (library, peer)).await;
        let made = asset.first_text((item, form), &subtitles);
        shown = made.as_ref().map(|text| crc32fast::hash(text));
        (made.map(ItemParts::of_text), file.clone())
    } else if let Some(id) = subtitle(item).filter(|&id| asset.ttml.get(id).is_none()) {
        let at = (&*asset, &file);
        let cues = web.subtitles.cues((name, id), at, (library, peer)).await;
        let cues = match cues {
            Ok(cues) => cues,
            Err(reason) => return (refused(request, &reason, now), file),
        };
        let (made, item, turn) = (asset.clone(), item.clone(), web.subtitles.turn(peer).await);
        let text = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            match &*cues {
                Ok(cues) => Ok(made.subtitle_text(&item, cues).map(ItemParts::of_text)),
                Err(reason) => Err(NoAsset::Refused(reason.clone())),
            }
        });
        match text.await.unwrap_or_else(|panic| Err(NoAsset::Unreadable(panic.to_string()))) {
            Ok(parts) => (parts, file.clone()),
            Err(reason) => return (refused(request, &reason, now), file),
        }
    } else if asset.is_copied(item) {
        let (made, item, media) = (asset.clone(), item.clone(), file.clone());
        let address = format!("{name}/~{}/{item}", asset.identity);
        let bytes = asset.copied_bytes(&item);
        match web.copies.get((address, bytes), peer, move || made.copied(&item, &media)).await {
            Ok(copy) => (Some(ItemParts::of_file(copy.entity().bytes)), copy),
            Err(reason) => return (refused(request, &reason, now), file),
        }
    } else {
        let text = asset.text(item).map(ItemParts::of_text);
        (text.or_else(|| web.made_parts.get(&asset, item)), file.clone())
    };
    let Some(mut parts) = parts else {
        let what = match item {
            WebItem::Manifest if asset.has_cipher(SegmentCipher::Aes128) => {
                NO_CIPHER_OF_DASH.to_owned()
            }
            WebItem::TsKeyPlaylist(_) => asset.no_key_frames(),
            _ => "the file has no such playlist or segment".to_owned(),
        };
        return (error(request, 404, &what, now), file);
    };
    let kind = kind(item);
    let mut etag = String::with_capacity(ETAG_BYTES);
    // Writing to a string does not fail.
    let _ = write!(etag, "\"{}/{item}", asset.identity);
    if let Some(shown) = shown {
        let _ = write!(etag, "/{shown:x}");
    }
    let keys = asset.keys.as_ref().filter(|_| asset.has_cipher(SegmentCipher::Cbcs));
    match (item, client.origin) {
        (WebItem::Master | WebItem::Playlist(_) | WebItem::KeyPlaylist, _)
            if keys.is_some() && clear_key::is_asked(request) =>
        {
            parts = ItemParts::of_text(clear_key::playlist(&parts.head, item, keys));
            etag += "/clear-key";
        }
        (WebItem::Manifest, Some(origin)) if keys.is_some() => {
            parts = ItemParts::of_text(clear_key::with_origin(&parts.head, origin));
            let _ = write!(etag, "/{:08x}", crc32fast::hash(origin.as_bytes()));
        }
        _ => {}
    }
    etag.push('"');
    let modified = if may_change(item) { now } else { file.entity().modified };
    let entity = Entity { bytes: parts.bytes(), etag: &etag, content_type: kind, modified };
    (made(request, &entity, parts, item, now), source)
}

/// Returns the answer to a request for another recording than that of a file, or for one that was
/// cut short.
fn not_served(
    request: &Request,
    address: &WebAddress<'_>,
    recorded: &RecordedFile,
    file: &OpenFile,
    now: SystemTime,
) -> Option<Response> {
    let is_other = address.identity.is_some_and(|asked| asked != recorded.identity());
    if is_other || !recorded.is_of(file) {
        return Some(over(request, now));
    }
    recorded.was_cut_short().then(|| cut_short(request, now))
}

/// Returns the answer with these parts of an item of a recording.
fn made_of_recording(
    request: &Request,
    (item, parts): (&WebItem, ItemParts),
    recorded: &RecordedFile,
    file: &OpenFile,
    now: SystemTime,
) -> Response {
    let text = crc32fast::hash(&parts.head);
    let etag = format!("\"{}/{item}-{text:x}\"", recorded.identity());
    let entity =
        Entity { bytes: parts.bytes(), etag: &etag, content_type: kind(item), ..file.entity() };
    made(request, &entity, parts, item, now)
}

/// Returns the answer with an item of a recording.
fn of_recording(
    request: &Request,
    address: &WebAddress<'_>,
    live: &LiveAsset,
    file: &OpenFile,
    now: SystemTime,
) -> Response {
    if let Some(refused) = not_served(request, address, &live.recorded, file, now) {
        return refused;
    }
    let item = &address.item;
    let query = ReloadQuery::parse(request.query.as_deref()).unwrap_or_default();
    let parts = live.state().parts(live.recorded.identity(), item, query.is_update);
    let Some(parts) = parts else {
        return error(request, 404, "the recording has no such segment, or none yet", now);
    };
    if parts.ranges.iter().any(|range| range.end > file.entity().bytes) {
        return cut_short(request, now);
    }
    made_of_recording(request, (item, parts), &live.recorded, file, now)
}

/// Returns the answer with an item of a recording of tracks, and the file that has its bytes.
async fn of_tracks(
    request: &Request,
    address: &WebAddress<'_>,
    (live, plan, file): (Arc<LiveTracks>, Arc<WebAsset>, Arc<OpenFile>),
    (asked, web, peer): ((&WebItem, TsForm), &WebAssets, IpAddr),
    now: SystemTime,
) -> (Response, Arc<OpenFile>) {
    if let Some(refused) = not_served(request, address, &live.recorded, &file, now) {
        return (refused, file);
    }
    let item = &address.item;
    if live.is_cut_short(&plan, &file) {
        // It may have been opened before it grew.
        return match file.is_unchanged() {
            true => (cut_short(request, now), file),
            false => (refused(request, &NoAsset::CHANGING, now), file),
        };
    }
    let mut source = file.clone();
    let parts = match live.item(item, &plan) {
        None => live.text(asked, &plan, now).map(ItemParts::of_text),
        Some(whole) if plan.is_copied(&whole) => {
            let named = (
                format!("{}/~{}/{item}", address.file, live.recorded.identity()),
                plan.copied_bytes(&whole),
            );
            let (made, media) = (plan.clone(), file.clone());
            match web.copies.get(named, peer, move || made.copied(&whole, &media)).await {
                Ok(copy) => {
                    source = copy;
                    Some(ItemParts::of_file(source.entity().bytes))
                }
                Err(reason) => return (refused(request, &reason, now), file),
            }
        }
        Some(whole) => web.made_parts.get(&plan, &whole),
    };
    let Some(parts) = parts else {
        let what = "the recording has no such segment, or none yet";
        return (error(request, 404, what, now), file);
    };
    (made_of_recording(request, (item, parts), &live.recorded, &file, now), source)
}

/// Returns the answer with the playlist or description of a title of several files.
pub(crate) async fn title_answer(
    request: &Request,
    item: &WebItem,
    (title, web, client): (Title, &WebAssets, AskedBy<'_>),
    now: SystemTime,
) -> Response {
    let form = match TsForm::asked(item, request.query.as_deref()) {
        Ok(form) => form,
        Err(what) => return error(request, 400, &what, now),
    };
    let asked = item.clone();
    let has_clear_keys = title.has_cipher(SegmentCipher::Cbcs);
    // A long title takes a while.
    let turn = web.subtitles.turn(client.peer).await;
    let text = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        title.text(&asked, form)
    });
    let text = match text.await {
        Ok(Ok(text)) if has_clear_keys => match (item, client.origin) {
            (WebItem::Manifest, Some(origin)) => clear_key::with_origin(&text, origin),
            (WebItem::Master, _) if clear_key::is_asked(request) => {
                clear_key::playlist(&text, item, None)
            }
            _ => text,
        },
        Ok(Ok(text)) => text,
        Ok(Err(reason)) => return error(request, 404, &reason, now),
        Err(panic) => {
            tracing::error!("http {}: {panic}", request.path);
            return error(request, 500, "internal error", now);
        }
    };
    let etag = format!("\"{:x}-{:08x}\"", text.len(), crc32fast::hash(&text));
    let entity = Entity {
        bytes: text.len() as u64,
        modified: now,
        etag: &etag,
        content_type: content_type(if *item == WebItem::Manifest { "a.mpd" } else { "a.m3u8" }),
    };
    made(request, &entity, ItemParts::of_text(text), item, now)
}

/// Returns the answer with a stored playlist or MPD whose addresses have this query, too. `None`
/// for other files, where the text would be too long, and where the file cannot be read. May wait
/// for the disk.
pub(crate) async fn carried_file(
    request: &Request,
    file: &Arc<OpenFile>,
    query: String,
    now: SystemTime,
) -> Option<Response> {
    let (name, bytes) = (file.entity().content_type, file.entity().bytes);
    let form = match name {
        _ if bytes > CARRIED_BYTES_MAX => return None,
        name if name == content_type("a.m3u8") => AddressedText::Playlist,
        name if name == content_type("a.mpd") => AddressedText::Manifest,
        _ => return None,
    };
    let (source, host) = (file.clone(), request.host.clone());
    let text = tokio::task::spawn_blocking(move || {
        let mut text = vec![0; bytes as usize];
        match &source.content {
            FileContent::Held(held) => text.copy_from_slice(held),
            FileContent::Open(media) => media.file().read_exact_at(&mut text, 0).ok()?,
        }
        let carried = Carried { query: &query, host: host.as_deref() };
        with_credentials(form, str::from_utf8(&text).ok()?, carried)
    });
    let text = text.await.ok().flatten()?;
    let entity = Entity { bytes: text.len() as u64, ..file.entity() };
    let mut response = respond_whole(request, &entity, now);
    response.parts = ItemParts::of_text(text).placed(response.parts);
    Some(response.with_field("Cache-Control", REVALIDATED))
}

/// The subtitles of which an item is that may be made of cues.
fn subtitle(item: &WebItem) -> Option<SubtitleId> {
    match item {
        WebItem::SubtitlePlaylist(id)
        | WebItem::SubtitleSegment(id, _)
        | WebItem::SubtitleFile(id) => Some(*id),
        _ => None,
    }
}
