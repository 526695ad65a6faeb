// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answers to requests for HLS and DASH of a channel.
//!
//! `channel/NAME/master.m3u8` names a playlist that slides with the channel's window
//! ([`crate::channel::window`]): it has the whole time shift, in plain and in low-latency form.
//! Segments are ranges of the window's parts, sent without a copy; one that lies in two parts is
//! two ranges. `channel/NAME/manifest.mpd` describes the same segments as fragments of MP4, which
//! are copies ([`super::live_dash`]). An address below `~IDENTITY/` stands for the same bytes for
//! ever, and is gone (410) when they have left the window, or when the server was started anew.
//!
//! A download holds a descriptor of a part and no memory: a part that leaves the window is emptied,
//! and ends the downloads of it.
//!
//! Costs a look-up, and for a segment of the part that is written a descriptor's copy and fstat(2)
//! once for all viewers.
//!
//! Sources: RFC 8216 §6.2.2 (live playlists), RFC 9110 §15.5.11 (410), §15.6.4 (503).
//! Does not cut.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use wire::http::{Entity, Request, Response, error};

use super::WebAssets;
use super::address::{VERSION, WebAddress, WebItem};
use super::channel_snapshot::ChannelSnapshot;
use super::item_response::{kind, made, refused};
use super::live_dash;
use super::live_reload::{LiveWait, ReloadQuery, awaited_of_channel};
use super::ts_form::TsForm;
use crate::channel::window::{ChannelWindow, HeldRange};
use crate::http::joined_files::JoinedFiles;
use crate::http::open_files::OpenFile;
use crate::http::page::page;
use crate::library::NoAsset;

/// Source of the bytes of an answer.
pub(crate) enum ChannelMedia {
    Text,
    File(Arc<OpenFile>),
    Files(JoinedFiles),
}

/// A requested channel.
pub(crate) struct AskedChannel {
    pub(crate) name: String,
    /// `None` where the channel keeps nothing for viewers.
    pub(crate) window: Option<Arc<ChannelWindow>>,
    pub(crate) stands_by: bool,
}

/// Returns the answer to a request for an item of a channel.
pub(crate) async fn channel_answer(
    request: &Request,
    address: &WebAddress<'_>,
    channel: AskedChannel,
    (web, peer): (&WebAssets, IpAddr),
    now: SystemTime,
) -> (Response, ChannelMedia) {
    let AskedChannel { name, window, stands_by } = channel;
    let text = |response| (response, ChannelMedia::Text);
    if address.item == WebItem::Player {
        return text(page(request, true, now));
    }
    if let Some(reason) = unsent(&name, &address.item, window.is_some(), web) {
        return text(error(request, 404, &reason, now));
    }
    if let Err(what) = TsForm::asked(&address.item, request.query.as_deref()) {
        return text(error(request, 400, &what, now));
    }
    let Some(window) = window.filter(|_| !stands_by) else {
        return text(refused(request, &NoAsset::OnStandby { name }, now));
    };
    let identity = format!("{}.{VERSION}", window.live.identity());
    if address.identity.is_some_and(|asked| asked != identity) {
        let what = "the channel was begun anew; load its master.m3u8 or manifest.mpd again";
        return text(error(request, 410, what, now));
    }
    window.live.note_asked();
    let mut now = now;
    match awaited_of_channel(request, address, &window.live, &web.waits, now).await {
        LiveWait::Ready => {}
        LiveWait::Refused(response) => return text(response),
        LiveWait::Waited => now = SystemTime::now(),
    }
    if address.item.is_live_dash() {
        return dash(request, address, (&window, &identity), (web, peer), now).await;
    }
    item(request, &address.item, (&window, &identity), now)
}

/// Returns the reason why a channel can never have such an item.
fn unsent(name: &str, item: &WebItem, has_window: bool, web: &WebAssets) -> Option<String> {
    let is_live = item.is_live() || matches!(item, WebItem::Master | WebItem::Manifest);
    match item {
        _ if !is_live => Some(format!("channel {name} has no such playlist or segment")),
        _ if web.is_enciphered() => Some(format!(
            "channel {name} has neither HLS nor DASH while segments are enciphered (--hls-cipher): \
             play it over RTSP"
        )),
        _ if !has_window => Some(format!(
            "channel {name} keeps nothing for viewers: write rtsp = true in [channel.{name}]"
        )),
        _ => None,
    }
}

/// Returns the answer with an item of DASH as it is now.
async fn dash(
    request: &Request,
    address: &WebAddress<'_>,
    (window, identity): (&Arc<ChannelWindow>, &str),
    by: (&WebAssets, IpAddr),
    now: SystemTime,
) -> (Response, ChannelMedia) {
    let is_text = matches!(address.item, WebItem::Manifest | WebItem::LiveManifest);
    let is_playable = window.live.with(identity, |state, _| state.is_playable());
    let channel = ChannelSnapshot::of(window, identity);
    let Some(channel) = channel.filter(|_| !is_text || is_playable == Some(true)) else {
        return (too_little(request, now), ChannelMedia::Text);
    };
    let (response, copy) = live_dash::answer(request, address, &channel, by, now).await;
    (response, copy.map_or(ChannelMedia::Text, ChannelMedia::File))
}

fn too_little(request: &Request, now: SystemTime) -> Response {
    let what = "the channel has sent too little for a playlist; ask again";
    error(request, 503, what, now).with_field("Retry-After", "1")
}

/// Returns the answer with an item as it is now.
fn item(
    request: &Request,
    item: &WebItem,
    (window, identity): (&ChannelWindow, &str),
    now: SystemTime,
) -> (Response, ChannelMedia) {
    let text = |response| (response, ChannelMedia::Text);
    let query = ReloadQuery::parse(request.query.as_deref()).unwrap_or_default();
    let found = window.live.with(identity, |state, first_byte| {
        let is_old = match item {
            WebItem::LiveSegment(number) | WebItem::LivePart(number, _) => {
                *number < state.segments.first_number()
            }
            _ => !state.is_playable(),
        };
        let parts = state.parts(identity, item, query.is_update);
        (is_old, parts, first_byte)
    });
    let is_text = !matches!(item, WebItem::LiveSegment(_) | WebItem::LivePart(..));
    let Some((is_old, parts, first_byte)) = found.filter(|(is_old, ..)| !is_text || !is_old) else {
        return text(too_little(request, now));
    };
    let gone = || error(request, 410, "the segment is older than what the channel keeps", now);
    let Some(mut parts) = parts else {
        let what = "the channel has no such segment yet, or no such part";
        return text(if is_old { gone() } else { error(request, 404, what, now) });
    };
    let crc = crc32fast::hash(&parts.head);
    let etag = format!("\"{identity}/{item}-{crc:x}\"");
    let (mut media, mut modified) = (ChannelMedia::Text, now);
    if let [range] = &mut parts.ranges[..] {
        let (start, end) = (first_byte + range.start, first_byte + range.end);
        let Some(held) = window.held(start..end) else { return text(gone()) };
        let base = held[0].first_byte;
        (*range, modified) = (start - base..end - base, held[0].began);
        media = joined(held);
    }
    let entity = Entity { bytes: parts.bytes(), etag: &etag, content_type: kind(item), modified };
    (made(request, &entity, parts, item, now), media)
}

/// Joins the parts that hold a segment.
fn joined(mut held: Vec<HeldRange>) -> ChannelMedia {
    let base = held[0].first_byte;
    match held.len() {
        1 => ChannelMedia::File(held.swap_remove(0).file),
        _ => ChannelMedia::Files(JoinedFiles::new(
            held.into_iter().map(|part| (part.first_byte - base, part.file)),
        )),
    }
}
