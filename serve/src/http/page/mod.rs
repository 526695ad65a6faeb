// SPDX-License-Identifier: MIT OR Apache-2.0
//! The web page at `/`, at folders and at `player.html`, and that for administrators.
//!
//! Both are a short document each, with modules and style sheets of their own below
//! `/.pagewire/VERSION/`: a name with a leading point is never one of the served folder's.
//! `VERSION` is a hash of all files ([`serve/build.rs`](../../../../build.rs)), so caches keep them
//! for ever; a page that was opened before the server was replaced gets the new files by its old
//! addresses, to be asked for again each time.
//!
//! The document is for clients that name `text/html` in Accept, as browsers do. Others, and those
//! that ask for `?plain=1` or a part of the list, get the table ([`super::index`]).
//!
//! Files are sent from the program's memory, compressed when it was built: no copy for a client but
//! 16 KiB. The document is made for each request, 3 KB.
//!
//! Sources: Content Security Policy Level 3; RFC 8246 (immutable); RFC 9110 §12.5.1 (Accept).
//! Does not know the library: the page reads `/index.json`.

use std::time::SystemTime;

use bytes::Bytes;
use wire::http::{Entity, Listing, Part, Request, Response, content_type, listing, respond_whole};

use crate::http::index::Body;

/// A file of the page.
#[derive(Debug)]
pub(crate) struct StaticFile {
    pub(crate) name: &'static str,
    pub(crate) plain: &'static [u8],
    pub(crate) gzip: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/page_files.rs"));

/// Beginning of the addresses of the page's files.
const PREFIX: &str = "/.pagewire/";
/// Address that asks the client to log in.
pub(crate) const LOGIN: &str = "/.pagewire/login";
static SHELL: &str = include_str!("../../../../web/index.html");
static ADMIN: &str = include_str!("../../../../web/admin.html");

/// Scripts and styles are files of this server, and nothing else is run or fetched. `blob:` is the
/// address of a Media Source, and of a worker of hls.js; its tracks of subtitles are empty `data:`.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data:; media-src 'self' blob: data:; connect-src 'self'; \
    worker-src 'self' blob:; form-action 'self'; base-uri 'none'; frame-ancestors 'self'";
/// Licences of the packages from npm.
const LICENCES: &str = "LICENSES.txt";
const LICENCES_LINK: &str = "<a href=\"{{assets}}LICENSES.txt\" class=\"licences\">Licences</a>";
const IMMUTABLE: &str = "max-age=31536000, immutable";
const REVALIDATED: &str = "no-cache";

/// Returns the file of the page that a path names, and how long it may be kept.
pub(crate) fn asset(path: &str) -> Option<(&'static StaticFile, &'static str)> {
    let (version, name) = path.strip_prefix(PREFIX)?.split_once('/')?;
    let file = FILES.iter().find(|file| file.name == name)?;
    Some((file, if version == VERSION { IMMUTABLE } else { REVALIDATED }))
}

/// Returns the answer with a file of the page.
pub(crate) fn asset_answer(
    request: &Request,
    (file, cache_control): (&'static StaticFile, &'static str),
    now: SystemTime,
) -> (Response, Body) {
    let (bytes, coding) = match request.accepts_gzip {
        true => (file.gzip, Some("gzip")),
        false => (file.plain, None),
    };
    let etag = format!("W/\"{VERSION}\"");
    let answer = Listing {
        etag: &etag,
        content_type: text_type(file.name),
        cache_control,
        coding,
        before: Vec::new(),
        held_bytes: bytes.len() as u64,
        after: Vec::new(),
    };
    (listing(request, answer, now), Body::of(Bytes::from_static(bytes)))
}

/// True where a client is to see the page in place of the table.
pub(crate) fn is_wanted(request: &Request) -> bool {
    let of_table = ["plain", "after", "below", "all", "limit"];
    let query = request.query.as_deref().unwrap_or_default();
    let mut names = query.split('&').map(|field| field.split('=').next().unwrap_or_default());
    request.accepts_html && !names.any(|name| of_table.contains(&name))
}

/// Returns the answer with the page: that of a folder, or with `is_player` that of a film.
pub(crate) fn page(request: &Request, is_player: bool, now: SystemTime) -> Response {
    let root = root_of(&request.path);
    let plain = if is_player { format!("{root}?plain=1") } else { "?plain=1".to_owned() };
    let text = document(SHELL, &root).replace("{{plain}}", &plain);
    let response = with_policy(whole(request, text, now));
    // Otherwise the address has a table.
    if is_player { response } else { response.with_field("Vary", "Accept") }
}

/// Returns the answer of the administrators' listener for the page and its files, without a policy:
/// the listener adds its own.
pub(crate) fn admin(request: &Request, now: SystemTime) -> Option<Response> {
    if request.path == "/" {
        return Some(whole(request, document(ADMIN, "./"), now));
    }
    let (mut response, _) = asset_answer(request, asset(&request.path)?, now);
    let (file, _) = asset(&request.path)?;
    let bytes = if request.accepts_gzip { file.gzip } else { file.plain };
    for part in &mut response.parts {
        *part = Part::Bytes(Bytes::from_static(bytes));
    }
    Some(response)
}

/// Adds the policy about scripts and other contents.
pub(crate) fn with_policy(response: Response) -> Response {
    response.with_field("Content-Security-Policy", POLICY)
}

/// Address of a file of the page, from the top.
pub(crate) fn address(name: &str) -> String {
    format!("{PREFIX}{VERSION}/{name}")
}

/// Fills the places of a document that are the same for all: addresses of files below `root`.
fn document(template: &str, root: &str) -> String {
    let address = address("");
    let assets = format!("{root}{}", address.trim_start_matches('/'));
    let is_there = |name: &str| FILES.iter().any(|file| file.name == name);
    let bundled = ["hls", "qr"].into_iter().filter(|name| is_there(&format!("{name}.js")));
    let bundled = bundled.collect::<Vec<_>>().join(" ");
    // Without packages from npm there are no licences to name.
    let licences = if is_there(LICENCES) { LICENCES_LINK } else { "" };
    let text = template.replace("{{licences}}", licences).replace("{{bundled}}", &bundled);
    text.replace("{{assets}}", &assets).replace("{{root}}", root)
}

/// Relative address of the top, so that a proxy may serve the page below a path of its own.
fn root_of(path: &str) -> String {
    match path.matches('/').count() {
        0 | 1 => "./".to_owned(),
        slashes => "../".repeat(slashes - 1),
    }
}

fn whole(request: &Request, text: String, now: SystemTime) -> Response {
    let etag = format!("\"page-{:08x}\"", crc32fast::hash(text.as_bytes()));
    let entity = Entity {
        bytes: text.len() as u64,
        modified: SystemTime::UNIX_EPOCH,
        etag: &etag,
        content_type: "text/html; charset=utf-8",
    };
    let mut response = respond_whole(request, &entity, now);
    let text = Bytes::from(text);
    for part in &mut response.parts {
        *part = Part::Bytes(text.clone());
    }
    if response.status >= 400 {
        return response;
    }
    response.with_field("Cache-Control", REVALIDATED)
}

/// Media type of a text of the page.
fn text_type(name: &str) -> &'static str {
    match name.rsplit_once('.') {
        Some((_, "js")) => "text/javascript; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "txt")) => "text/plain; charset=utf-8",
        _ => content_type(name),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn files_are_found_by_any_version_and_kept_by_their_own() {
        assert_eq!(asset(&address("app.js")).unwrap().1, IMMUTABLE);
        assert_eq!(asset("/.pagewire/0/app.js").unwrap().1, REVALIDATED);
        for other in ["/.pagewire/app.js", "/.pagewire/0/../app.js", "/.pagewire/0/x.js", "/app.js"]
        {
            assert!(asset(other).is_none(), "{other}");
        }
    }

    #[test]
    fn compressed_files_inflate_to_the_plain_ones() {
        for file in FILES {
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(file.gzip).read_to_end(&mut plain).unwrap();
            assert!(plain == file.plain && file.gzip.len() <= plain.len(), "{}", file.name);
        }
    }

    #[test]
    fn documents_name_files_that_are_there_and_have_no_script_of_their_own() {
        for text in [document(SHELL, "../../"), document(ADMIN, "./")] {
            let named: Vec<_> = text.match_indices(PREFIX).collect();
            assert!(named.len() > 3, "{text}");
            for (at, _) in named {
                let path = text[at..].split('"').next().unwrap();
                assert!(path == LOGIN || asset(path).is_some(), "{path}");
            }
            assert!(!text.contains("<style") && !text.contains("style="), "{text}");
            assert!(
                text.matches("<script").count()
                    == text.matches("<script src=").count()
                        + text.matches("<script type=\"module\" src=").count(),
                "{text}"
            );
        }
    }

    #[test]
    fn root_is_above_the_path() {
        for (path, root) in [
            ("/", "./"),
            ("/a", "./"),
            ("/a/", "../"),
            ("/a/b/", "../../"),
            ("/a/b.mp4/player.html", "../../"),
        ] {
            assert_eq!(root_of(path), root, "{path}");
        }
    }
}
