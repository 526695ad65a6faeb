// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sources of an answer's parts, and the memory or disk space that the answer holds until it is
//! sent.
//!
//! Files, listings and playlists are shared by all answers that have them. A made segment, and a
//! text that was made for one answer, occupy memory or disk while they are sent, and are counted
//! ([`crate::limits`]).
//!
//! Costs a look at the parts of each answer.
//!
//! Does not find the answer ([`crate::http::resource`]) or send it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use wire::http::{Part, Request, Response};

use crate::http::index::Body;
use crate::http::joined_files::JoinedFiles;
use crate::http::open_files::OpenFile;
use crate::library::NoAsset;
use crate::limits::{Copied, CopyPermit, Limiter};
use crate::web;

/// Source of those parts of an answer that are not text.
pub(super) enum Content {
    Text,
    /// Text that was made for this answer, with its share of a limit.
    LongText {
        _share: CopyPermit,
    },
    File {
        file: Arc<OpenFile>,
        /// Its share of a limit, of a made segment or a long text.
        _share: Option<CopyPermit>,
    },
    Files(JoinedFiles),
    Rows(Body),
}

/// Counts the memory that an answer alone occupies, and a made segment, until it is sent: a client
/// that reads slowly, or not at all, holds them.
pub(super) fn counted(
    request: &Request,
    (response, mut content): (Response, Content),
    (peer, limits): (IpAddr, &Arc<Limiter>),
    now: SystemTime,
) -> (Response, Content) {
    let text = own_text_bytes(&response);
    let made = match &content {
        Content::File { file, .. } if file.is_made() && has_file_parts(&response) => {
            file.entity().bytes
        }
        _ => 0,
    };
    if text + made == 0 {
        return (response, content);
    }
    let Some(counted) = limits.read_copy(peer, Copied { text, made }) else {
        return (web::refused(request, &NoAsset::BUSY, now), Content::Text);
    };
    match &mut content {
        Content::File { _share: share, .. } => *share = Some(counted),
        Content::Text => content = Content::LongText { _share: counted },
        Content::LongText { .. } | Content::Files(_) | Content::Rows(_) => {}
    }
    (response, content)
}

/// Bytes of text that only this answer holds; 0 for a short text, which occupies no more than a
/// connection does.
fn own_text_bytes(response: &Response) -> u64 {
    let own = response.parts.iter().filter_map(|part| match part {
        Part::Bytes(bytes) if bytes.is_unique() => Some(bytes.len() as u64),
        _ => None,
    });
    let bytes = own.sum();
    if bytes > SHORT_TEXT_BYTES { bytes } else { 0 }
}

fn has_file_parts(response: &Response) -> bool {
    response.parts.iter().any(|part| matches!(part, Part::File { .. }))
}

/// Text that is not counted, 8 MiB on all connections of an address.
const SHORT_TEXT_BYTES: u64 = 64 << 10;
