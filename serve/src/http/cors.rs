// SPDX-License-Identifier: MIT OR Apache-2.0
//! cors: header fields that let pages of other servers read answers.
//!
//! Where no origin is configured, any page may read media (files, playlists, segments, subtitles,
//! pictures, and keys that are everybody's) of a server that asks nobody for credentials: what a
//! page can fetch without them is public. With rules, users or tokens none may: rules of networks
//! would end in the browsers within them. Configured origins may read all answers but that of the
//! login. Credentials that browsers keep (cookies, passwords) are never let in from other pages;
//! tokens in addresses and in Authorization are the page's own.
//!
//! Sources: the Fetch standard §3.2 (CORS); RFC 9110 §12.5.5 (Vary).
//! Does not refuse requests: browsers do.

use wire::http::{Method, Request, Response};

use crate::http::film_keys;
use crate::http::page;
use crate::http::resource::Content;
use crate::server_state::ServerState;

/// Value of the setting that lets no page in.
pub(crate) const NO_ORIGIN: &str = "none";

/// Adds the fields to an answer of which `content` is the rest.
pub(super) fn with_origin(
    request: &Request,
    response: Response,
    content: &Content,
    server: &ServerState,
) -> Response {
    let is_public = match request.path.starts_with(film_keys::PREFIX) {
        true => !server.admission.carries(),
        false => server.admission.is_open(),
    };
    // The index, files of the page and lists of channels are rows.
    let is_public_media = is_public && !matches!(content, Content::Rows(_));
    let live = server.live.current();
    let fields = fields(&live.allow_origins, request, is_public_media);
    fields.fold(response, |response, (name, value)| response.with_field(name, value))
}

/// Returns the fields of an answer.
fn fields<'a>(
    origins: &'a [String],
    request: &'a Request,
    is_public_media: bool,
) -> impl Iterator<Item = (&'static str, &'a str)> {
    let asking = request.origin.as_deref();
    let allowed = match origins {
        _ if request.path == page::LOGIN => None,
        [] => is_public_media.then_some("*"),
        [origin] => Some(origin.as_str()).filter(|origin| *origin != NO_ORIGIN),
        several => asking.filter(|asking| several.iter().any(|origin| origin == asking)),
    };
    let more = match (allowed, &request.method) {
        (None, _) => &[],
        (Some(_), Method::Options) => &PREFLIGHT[..],
        (Some(_), _) => &EXPOSED[..],
    };
    let origin = allowed.map(|origin| ("Access-Control-Allow-Origin", origin));
    let vary = (origins.len() > 1).then_some(("Vary", "Origin"));
    origin.into_iter().chain(vary).chain(more.iter().copied())
}

/// Answer to the question before a request with fields of its own.
const PREFLIGHT: [(&str, &str); 3] = [
    ("Access-Control-Allow-Methods", "GET, HEAD, POST"),
    (
        "Access-Control-Allow-Headers",
        "Authorization, Content-Type, If-Match, If-None-Match, If-Range, Range",
    ),
    ("Access-Control-Max-Age", "86400"),
];
/// Fields beside those that every page may read: of ranges, and the time for DASH.
const EXPOSED: [(&str, &str); 1] =
    [("Access-Control-Expose-Headers", "Accept-Ranges, Content-Range, Date, ETag, Retry-After")];

#[cfg(test)]
mod tests {
    use wire::http::http2_request;

    use super::*;

    fn request(method: &str, path: &str, origin: Option<&str>) -> Request {
        let origin = origin.map(|origin| ("origin", origin.as_bytes()));
        http2_request(method, path, Some("h"), origin.into_iter()).unwrap()
    }

    fn origin_of(origins: &[&str], request: &Request, is_public_media: bool) -> Option<String> {
        let origins: Vec<String> = origins.iter().map(|&origin| origin.to_owned()).collect();
        let found: Vec<_> = fields(&origins, request, is_public_media).collect();
        assert_eq!(found.contains(&("Vary", "Origin")), origins.len() > 1, "{found:?}");
        let named = |name: &str| found.iter().find(|field| field.0 == name);
        let allowed = named("Access-Control-Allow-Origin").map(|field| field.1.to_owned());
        let is_exposed = named("Access-Control-Expose-Headers").is_some();
        let is_preflight = named("Access-Control-Allow-Headers").is_some();
        let is_asked = request.method == Method::Options;
        assert_eq!(is_exposed, allowed.is_some() && !is_asked, "{found:?}");
        assert_eq!(is_preflight, allowed.is_some() && is_asked, "{found:?}");
        allowed
    }

    #[test]
    fn public_media_are_for_every_page_where_no_origin_is_configured() {
        for method in ["GET", "HEAD", "OPTIONS"] {
            for origin in [None, Some("https://a.example")] {
                let asked = request(method, "/a.m3u8", origin);
                assert_eq!(origin_of(&[], &asked, true).as_deref(), Some("*"), "{method}");
                assert_eq!(origin_of(&[], &asked, false), None, "{method}");
                assert_eq!(origin_of(&[NO_ORIGIN], &asked, true), None, "{method}");
            }
        }
    }

    #[test]
    fn configured_origins_are_the_only_ones_and_the_login_is_for_none() {
        let (a, b) = ("https://a.example", "https://b.example");
        for is_public_media in [true, false] {
            let of = |origins: &[&str], origin| {
                origin_of(origins, &request("GET", "/a.ts", origin), is_public_media)
            };
            assert_eq!(of(&[a], Some(b)).as_deref(), Some(a), "browsers compare");
            assert_eq!(of(&[a], None).as_deref(), Some(a));
            assert_eq!(of(&["*"], Some(b)).as_deref(), Some("*"));
            assert_eq!(of(&[a, b], Some(b)).as_deref(), Some(b));
            for other in [None, Some("https://c.example"), Some("null"), Some("https://a")] {
                assert_eq!(of(&[a, b], other), None, "{other:?}");
            }
            let login = request("GET", page::LOGIN, Some(a));
            for origins in [&[][..], &["*"], &[a], &[a, b]] {
                assert_eq!(origin_of(origins, &login, is_public_media), None);
            }
        }
    }
}
