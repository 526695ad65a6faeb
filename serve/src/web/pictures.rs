// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answer to a request for a poster, a list of thumbnails, or a sheet of them.
//!
//! The entity tag is that of the file's content with the item's name. Caches revalidate it, and an
//! address with `?v=` and the identity of the content in it never changes.
//!
//! Sources: RFC 9110 §13; RFC 8246.
//! Does not make pictures ([`crate::posters`]).

use std::time::SystemTime;

use wire::http::{Entity, Request, Response, error};

use super::address::WebItem;
use super::item_parts::ItemParts;
use super::item_response::{carrying, kind, made_as, refused};
use super::web_assets::WebAssets;
use crate::http::open_files::OpenFile;
use crate::library::NoAsset;
use crate::posters::{PictureKind, PictureSet};

/// Returns the kind of pictures that an item is one of.
pub(crate) fn picture_kind(item: &WebItem) -> Option<PictureKind> {
    match item {
        WebItem::Poster => Some(PictureKind::Poster),
        WebItem::Thumbnails | WebItem::ThumbnailSheet(_) => Some(PictureKind::Thumbnails),
        _ => None,
    }
}

/// Returns the answer with an item of pictures of a file.
pub(crate) fn picture_answer(
    request: &Request,
    item: &WebItem,
    made: Result<std::sync::Arc<PictureSet>, NoAsset>,
    (file, web): (&OpenFile, &WebAssets),
    now: SystemTime,
) -> Response {
    let set = match made {
        Ok(set) => set,
        Err(reason) => return refused(request, &reason, now),
    };
    let bytes = match item {
        WebItem::Thumbnails => Some(set.list.as_bytes()),
        WebItem::ThumbnailSheet(number) => set.pictures.get(*number).map(Vec::as_slice),
        _ => set.pictures.first().map(Vec::as_slice),
    };
    let Some(bytes) = bytes else {
        return error(request, 404, "the file has no such sheet of thumbnails", now);
    };
    let parts = carrying(ItemParts::of_text(bytes.to_vec()), item, request);
    let identity = web.identity(file);
    let is_pinned = version(request).is_some_and(|asked| asked == identity);
    let entity = Entity {
        bytes: parts.bytes(),
        modified: file.entity().modified,
        etag: &format!("\"{identity}/{item}\""),
        content_type: kind(item),
    };
    made_as(request, &entity, parts, !is_pinned, now)
}

/// Returns the identity that the query names.
fn version(request: &Request) -> Option<&str> {
    let parts = request.query.as_deref()?.split('&');
    parts.into_iter().find_map(|part| part.strip_prefix("v="))
}
