// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the answer to a request: a file, the index, a key, a channel's export.
//!
//! [`crate::admission`] admits each request before anything is opened. A sealed film consists of
//! ordinary files, except that its keys ([`crate::http::film_keys`]) may not be cached and its
//! playlists are revalidated each time: a film sealed again keeps its address.
//!
//! Sources: RFC 9110, RFC 8216 (HLS).
//! Does not send ([`crate::http::transmit`]).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use access::{AccessVerdict, carried};
use wire::http::{Method, Request, Response, answer_method, error, respond, unstored};

use crate::admission::Subject;
use crate::http::channel_exports::{ChannelExport, description};
use crate::http::client::Client;
use crate::http::content::{Content, counted};
use crate::http::cors::with_origin;
use crate::http::film_keys::{self, NamedKey};
use crate::http::open_files::{NotOpened, OpenFile};
use crate::http::page;
use crate::http::pictures;
use crate::http::refusals::{log_in, not_opened, refusal, retry_after};
use crate::library::served_folder::{Denied, is_hidden};
use crate::limits::Refused;
use crate::segment_key::{KEY_PATH_PREFIX, SAMPLE_KEY};
use crate::server_state::ServerState;
use crate::web;
use crate::web::address::{WebAddress, WebItem, identity_of};
use crate::web::title::{FILES_MAX, Title};
use crate::web::{AskedBy, AskedChannel, ChannelMedia, LiveWait, SegmentCipher, WebSource};

/// Returns the answer to a request.
async fn answer(
    request: &Request,
    client: &Client,
    server: &Arc<ServerState>,
) -> (Response, Content) {
    let now = SystemTime::now();
    // Players post the keys that they want of a licence; nothing else is posted here.
    let is_post = request.method == Method::Other("POST".to_owned());
    let is_licence = || film_keys::named(&request.path).is_some_and(|named| named.is_licence);
    let refused = answer_method(request, now).filter(|_| !is_post || !is_licence());
    let (response, content) = match refused {
        Some(answer) if is_licence() => (answer.with_field("Allow", "POST"), Content::Text),
        Some(answer) => (answer, Content::Text),
        None => {
            let plain = server.admission.without_unused_credentials(request);
            resource(plain.as_ref().unwrap_or(request), client, server, now).await
        }
    };
    let by = (client.peer.ip(), &server.limits);
    let (response, content) = counted(request, (response, content), by, now);
    (with_origin(request, response, &content, server), content)
}

/// Does the same; returns `None` where the answer had to wait and the client left first. `hung_up`
/// resolves when the client has left.
pub(super) async fn answer_unless(
    hung_up: impl Future<Output = ()>,
    request: &Request,
    client: &Client,
    server: &Arc<ServerState>,
) -> Option<(Response, Content)> {
    let answered = answer(request, client, server);
    if !web::may_wait(request) {
        return Some(answered.await);
    }
    tokio::select! {
        biased;
        answered = answered => Some(answered),
        () = hung_up => None,
    }
}

/// Resolves the path of a GET or HEAD for an admitted client.
async fn resource(
    request: &Request,
    client: &Client,
    server: &Arc<ServerState>,
    now: SystemTime,
) -> (Response, Content) {
    let path = request.path.as_str();
    // The files of the page are public, and reveal nothing of the library.
    if let Some(file) = page::asset(path) {
        let (response, body) = page::asset_answer(request, file, now);
        return (response, Content::Rows(body));
    }
    if path == page::LOGIN {
        return (log_in(request, client, server, now).await, Content::Text);
    }
    let has_keys = server.keys.current().is_some() && path.starts_with(KEY_PATH_PREFIX);
    let named_key = film_keys::named(path).filter(|_| has_keys);
    if named_key.is_none() && has_keys {
        return (error(request, 404, "no such key", now), Content::Text);
    }
    let has_channels = !server.live.current().channels.is_empty();
    let export = ChannelExport::named(path).filter(|_| has_channels);
    let asked = client.asked(request);
    // Every spelling of the top-level path names the served folder.
    let is_index = path == "/index.json" || components(path).next().is_none();
    let list = match export {
        Some(ChannelExport::List(list)) => Some(list),
        _ => None,
    };
    if named_key.is_none() && (is_index || list.is_some()) {
        let class = match server.admission.listing(&asked).await {
            Ok(class) => class,
            Err(verdict) => return (refusal(request, verdict, now), Content::Text),
        };
        if let Some(list) = list {
            let asked = (list, class);
            return server.channel_lists.answer(asked, request, (client, server), now).await;
        }
        if path != "/index.json" && page::is_wanted(request) {
            return (page::page(request, false, now), Content::Text);
        }
        let at = (client, class, now);
        let (response, body) = server.index.answer(request, None, server, at).await;
        return (response, body.map_or(Content::Text, Content::Rows));
    }
    // A description is of a channel, as its playlists are.
    let described = match export {
        Some(ChannelExport::Description(name)) => format!("channel/{name}/master.m3u8"),
        _ => String::new(),
    };
    let subject = match named_key {
        Some(NamedKey { film, .. }) => Subject::Key(film),
        None if !described.is_empty() => Subject::File(&described),
        None if !server.admission.is_open() && is_folder(path, server) => Subject::Names(path),
        None => Subject::File(path),
    };
    match server.admission.decide(subject, &asked, &server.library).await {
        AccessVerdict::Admitted(grant) => client.viewer.admit(grant.user.as_deref()),
        verdict => return (refusal(request, verdict, now), Content::Text),
    }
    if let Some(ChannelExport::Description(name)) = export {
        let answer = match description(name, server, client) {
            Ok(text) => unstored(request, 200, "application/sdp", text, now),
            Err(missing) => error(request, 404, &missing, now),
        };
        return (answer, Content::Text);
    }
    if let Some(named) = named_key {
        return (key(named, (request, client), server, now).await, Content::Text);
    }
    let name = plain_name(path);
    let address = if has_channels { web::address::parse(&name) } else { None };
    if is_new_viewer(request, &name)
        && let Some(load_max) = server.limits.limits().admit_load
        && !server.capacity.has_room_for_viewer(
            &server.meters,
            server.limits.session_bits_per_s(),
            load_max,
        )
    {
        server.limits.refusals.note(Refused::Load, client.peer.ip());
        let refused = error(request, 503, Refused::Load.reason(), now);
        return (retry_after(refused, Refused::Load), Content::Text);
    }
    if let Some(address) = address
        && let Some(channel) = channel_of(&address, server)
    {
        return of_channel(&address, channel, (request, client), server, now).await;
    }
    file(path, request, client, server, now).await
}

/// True for the playlist or description that a viewer of HLS or DASH begins with. Those that are
/// loaded again while it plays have other addresses.
fn is_new_viewer(request: &Request, name: &str) -> bool {
    request.method == Method::Get
        && ["/master.m3u8", "/manifest.mpd"].iter().any(|end| name.ends_with(end))
}

/// True for the address of a folder with listed files, with or without a slash at its end.
fn is_folder(path: &str, server: &ServerState) -> bool {
    let folder: Vec<&str> = components(path).collect();
    path.ends_with('/') || server.library.has_below(&(folder.join("/") + "/"))
}

/// Returns the channel of this server that contains an address.
fn channel_of(address: &WebAddress<'_>, server: &ServerState) -> Option<AskedChannel> {
    let name = address.file.strip_prefix("channel/")?;
    server.live.current().channel(name)?;
    let channels = server.channels.lock();
    let (window, stands_by) = (channels.window(address.file), channels.stands_by(address.file));
    Some(AskedChannel { name: name.to_owned(), window, stands_by })
}

async fn of_channel(
    address: &WebAddress<'_>,
    channel: AskedChannel,
    (request, client): (&Request, &Client),
    server: &ServerState,
    now: SystemTime,
) -> (Response, Content) {
    let by = (&server.web, client.peer.ip());
    let answer = web::channel_answer(request, address, channel, by, now).await;
    let content = match answer.1 {
        ChannelMedia::Text => Content::Text,
        ChannelMedia::File(file) => Content::File { file, _share: None },
        ChannelMedia::Files(files) => Content::Files(files),
    };
    (answer.0, content)
}

/// Returns the answer without a file: the index of a folder, the icon that browsers request, or the
/// reason of a refusal.
async fn without_file(
    denied: &Denied,
    request: &Request,
    client: &Client,
    server: &Arc<ServerState>,
    now: SystemTime,
) -> (Response, Content) {
    let path = request.path.as_str();
    let status = match denied {
        Denied::Missing if path == "/favicon.ico" => {
            let icon = ICON.as_bytes().to_vec();
            return (unstored(request, 200, "image/svg+xml", icon, now), Content::Text);
        }
        // A path with a trailing slash names no file.
        Denied::Missing | Denied::NotAFile
            if matches!(denied, Denied::NotAFile) || path.ends_with('/') =>
        {
            let parts: Vec<&str> = components(path).collect();
            let folder = parts.join("/");
            let library = server.library.clone();
            let name = folder.clone() + "/";
            let is_served = !parts.iter().any(|part| is_hidden(part));
            // A folder without listed files is opened: it may be empty, or a link.
            let open = move || library.folder.subfolder(&folder).is_ok();
            let is_folder = is_served
                && (server.library.has_below(&name)
                    || tokio::task::spawn_blocking(open).await.unwrap_or(false));
            if is_folder && page::is_wanted(request) {
                return (page::page(request, false, now), Content::Text);
            }
            if is_folder {
                let asked = client.asked(request);
                let class = match server.admission.listing(&asked).await {
                    Ok(class) => class,
                    Err(verdict) => return (refusal(request, verdict, now), Content::Text),
                };
                let at = (client, class, now);
                let answer = server.index.answer(request, Some(name), server, at).await;
                return (answer.0, answer.1.map_or(Content::Text, Content::Rows));
            }
            404
        }
        Denied::Missing | Denied::NotAFile => 404,
        Denied::Outside | Denied::Unreadable => 403,
        Denied::DescriptorsExhausted => 503,
        Denied::Host(_) => 500,
    };
    if status >= 500 {
        tracing::warn!("http {path}: {denied}");
    }
    (error(request, status, &denied.to_string(), now), Content::Text)
}

async fn file(
    path: &str,
    request: &Request,
    client: &Client,
    server: &Arc<ServerState>,
    now: SystemTime,
) -> (Response, Content) {
    let name = plain_name(path);
    // A path with an identity is hardly the name of a file, so it is not opened as one first.
    if let Some(address) = web::address::parse(&name).filter(|found| found.identity.is_some()) {
        match client.open(address.file, server).await {
            // A folder may have the name of a file, and a file that of a segment.
            Err(NotOpened::Denied(Denied::Missing | Denied::NotAFile)) => {}
            found => return of_media(&address, found, (request, client), server, now).await,
        }
    }
    let file = match client.open(&name, server).await {
        Ok(file) => file,
        Err(NotOpened::Denied(denied)) => {
            if let Some(address) = web::address::parse(&name)
                && matches!(denied, Denied::Missing | Denied::NotAFile)
            {
                let found = client.open(address.file, server).await;
                return of_media(&address, found, (request, client), server, now).await;
            }
            return without_file(&denied, request, client, server, now).await;
        }
        Err(reason) => return (not_opened(&reason, request, client, server, now), Content::Text),
    };
    if let Some(query) = request.query.as_deref().and_then(carried)
        && let Some(response) = web::carried_file(request, &file, query, now).await
    {
        return (response, Content::Text);
    }
    let entity = file.entity();
    let mut response = respond(request, &entity, now, crate::random::random_id);
    if entity.content_type == PLAYLIST && response.status < 400 {
        response = response.with_field("Cache-Control", "no-cache");
    }
    if !server.admission.is_open() && has_scripts(entity.content_type) {
        // In the library's own origin its scripts would act with the credentials of the user who
        // opens it.
        response = response.with_field("Content-Security-Policy", "sandbox");
    }
    (response, Content::File { file, _share: None })
}

/// True for documents in which browsers run scripts.
fn has_scripts(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    kind == "text/html" || kind.ends_with("/xml") || kind.ends_with("+xml")
}

/// Returns the answer to a request for a playlist or segment of a file, whose look-up returned
/// `found`.
async fn of_media(
    address: &WebAddress<'_>,
    found: Result<Arc<OpenFile>, NotOpened>,
    (request, client): (&Request, &Client),
    server: &Arc<ServerState>,
    now: SystemTime,
) -> (Response, Content) {
    if let Some(kind) = web::picture_kind(&address.item) {
        let answer = pictures::answer(address, kind, found, (request, client), server, now).await;
        return (answer, Content::Text);
    }
    let file = match found {
        Ok(_) | Err(NotOpened::Denied(Denied::NotAFile)) if address.item == WebItem::Player => {
            return (page::page(request, true, now), Content::Text);
        }
        Ok(file) => file,
        Err(NotOpened::Denied(Denied::NotAFile)) if address.identity.is_none() => {
            return (of_title(address, request, client, server, now).await, Content::Text);
        }
        Err(NotOpened::Denied(denied)) => {
            return without_file(&denied, request, client, server, now).await;
        }
        Err(reason) => return (not_opened(&reason, request, client, server, now), Content::Text),
    };
    if let Some(gone) = web::missing(request, address, (&file, &server.web), now) {
        return (gone, Content::Text);
    }
    let peer = client.peer.ip();
    let asset = server.web.get(address, &file, &server.library, peer).await;
    let (mut file, mut now) = (file, now);
    if let Ok(WebSource::Live(live, _)) = &asset {
        match web::awaited(request, address, live, &server.web.waits, now).await {
            LiveWait::Ready => {}
            LiveWait::Refused(response) => return (response, Content::Text),
            LiveWait::Waited => {
                now = SystemTime::now();
                // The file has grown, or its content was replaced.
                let received = client.files.tick();
                let again = Client { received, ..client.clone() };
                file = match again.open(address.file, server).await {
                    Ok(file) => file,
                    Err(NotOpened::Denied(denied)) => {
                        return without_file(&denied, request, client, server, now).await;
                    }
                    Err(reason) => {
                        let answer = not_opened(&reason, request, client, server, now);
                        return (answer, Content::Text);
                    }
                };
            }
        }
    }
    let origin = origin(request, client);
    let asked_by = AskedBy { peer, origin: origin.as_deref() };
    let made_by = (&server.web, &server.library, asked_by);
    let (response, file) = web::answer(request, address, (asset, file), made_by, now).await;
    (response, Content::File { file, _share: None })
}

/// Returns the answer to a request for the playlist or description of a folder of renditions.
async fn of_title(
    address: &WebAddress<'_>,
    request: &Request,
    client: &Client,
    server: &Arc<ServerState>,
    now: SystemTime,
) -> Response {
    let folder = format!("{}/", address.file);
    let names = server.library.playable_in(&folder, FILES_MAX + 1);
    if !(2..=FILES_MAX).contains(&names.len()) {
        let what = format!("a title has 2 to {FILES_MAX} media files in its folder as renditions");
        return error(request, 404, &what, now);
    }
    let mut title = Title::new();
    for name in &names {
        let short = &name[folder.len()..];
        // The folder's rule has admitted the client; a file may have one of its own.
        let (subject, asked) = (format!("{name}/master.m3u8"), client.asked(request));
        let decided = server.admission.decide(Subject::File(&subject), &asked, &server.library);
        match decided.await {
            AccessVerdict::Admitted(_) => {}
            verdict => return refusal(request, verdict, now),
        }
        let file = match client.open(name, server).await {
            Ok(file) => file,
            Err(reason) => return not_opened(&reason, request, client, server, now),
        };
        let address = WebAddress { file: name, identity: None, item: address.item.clone() };
        match server.web.get(&address, &file, &server.library, client.peer.ip()).await {
            Ok(WebSource::Whole(asset)) => title.push(short, asset),
            Ok(WebSource::Live(..) | WebSource::LiveTracks(..) | WebSource::Over) => {
                let what = format!("{short} is still written: no rendition of a title yet");
                return error(request, 404, &what, now);
            }
            Err(reason) => return web::refused(request, &reason.of(short), now),
        }
    }
    let peer = client.peer.ip();
    title.list_subtitles(address.file, &server.web, (&server.library, peer)).await;
    let origin = origin(request, client);
    let asked_by = AskedBy { peer, origin: origin.as_deref() };
    web::title_answer(request, &address.item, (title, &server.web, asked_by), now).await
}

/// Returns the server's origin as the client addresses it; `None` without a Host field. Shaka
/// accepts no address without a scheme.
fn origin(request: &Request, client: &Client) -> Option<String> {
    let host = request.host.as_ref()?;
    Some(format!("{}://{host}", client.scheme()))
}

/// Returns the path in its shortest spelling, so that a file has one name: empty parts and `.` are
/// left out. A path with a trailing slash names no file and stays as it is.
pub(super) fn plain_name(path: &str) -> Cow<'_, str> {
    let is_plain = !path.contains("//") && !path.contains("/.");
    if is_plain || path.ends_with('/') || path.ends_with("/.") {
        return Cow::Borrowed(path);
    }
    Cow::Owned(components(path).collect::<Vec<_>>().join("/"))
}

/// Splits a path into names.
fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !matches!(*part, "" | "."))
}

async fn key(
    NamedKey { film, number, is_licence }: NamedKey<'_>,
    (request, client): (&Request, &Client),
    server: &Arc<ServerState>,
    now: SystemTime,
) -> Response {
    let films = match is_licence {
        true if server.config.segment_cipher != Some(SegmentCipher::Cbcs) => {
            return error(request, 404, "no licences: segments are not enciphered with cbcs", now);
        }
        true if number != SAMPLE_KEY => return error(request, 404, "no such licence", now),
        true => match identity_of(film) {
            Some(_) => vec![film.to_owned()],
            None => renditions(film, (request, client), server).await,
        },
        false => vec![film.to_owned()],
    };
    let keys = server.keys.current();
    let found = tokio::task::spawn_blocking(move || match is_licence {
        true => keys.as_ref().as_ref()?.licence(&films),
        false => keys.as_ref().as_ref()?.key(&films[0], number).map(|key| key.to_vec()),
    });
    let kind = if is_licence { "application/json" } else { "application/octet-stream" };
    match found.await {
        Ok(Some(key)) => unstored(request, 200, kind, key, now),
        Ok(None) => error(request, 404, "no such key", now),
        Err(panic) => {
            tracing::error!("http key: {panic}");
            error(request, 500, "internal error", now)
        }
    }
}

/// Returns the films for which keys are made of the files of a title that can be opened now, and
/// whose keys this client may have.
async fn renditions(
    folder: &str,
    (request, client): (&Request, &Client),
    server: &ServerState,
) -> Vec<String> {
    let names = server.library.playable_in(&format!("{folder}/"), FILES_MAX);
    let mut films = Vec::with_capacity(names.len());
    let asked = client.asked(request);
    for name in &names {
        let verdict = server.admission.decide(Subject::Key(name), &asked, &server.library).await;
        if let (AccessVerdict::Admitted(_), Ok(file)) = (verdict, client.open(name, server).await) {
            films.push(server.web.film(name, &file));
        }
    }
    films
}

/// Icon: a triangle, as on a play button.
const ICON: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 16 16\">\
    <path fill=\"#2a7\" d=\"M3 1l11 7-11 7z\"/></svg>";
const PLAYLIST: &str = "application/vnd.apple.mpegurl";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_name() {
        for (path, name) in [
            ("/a/b", "/a/b"),
            ("//a/./b", "a/b"),
            ("/././a//b", "a/b"),
            ("/a/../b", "a/../b"),
            ("/a//b/", "/a//b/"),
            ("/a/b/.", "/a/b/."),
            ("/.a", ".a"),
        ] {
            assert_eq!(plain_name(path), name, "{path}");
        }
    }
}
