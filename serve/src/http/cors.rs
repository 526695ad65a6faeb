// SPDX-License-Identifier: MIT OR Apache-2.0
//! Header fields that let pages of other servers read answers.
//!
//! Where no origin is configured, any page may read media (films, playlists, segments, subtitles,
//! pictures of films, and public keys) of a server that requires no credentials: everything that a
//! page can fetch without them is public. With rules, users or tokens no page may: browsers would
//! extend rules for networks to pages from outside. In both cases no page may read the index, the
//! page, lists of channels or other files. `*` as the configured origin lets any page read
//! protected media too, which a warning in the log reports, and the rest of a server that requires
//! no credentials. Other configured origins may read all answers except that of the login.
//! Credentials that browsers store (cookies, passwords) are never accepted from other pages; tokens
//! in addresses and in Authorization are the page's own.
//!
//! Sources: the Fetch standard §3.2 (CORS); RFC 9110 §12.5.5 (Vary).
//! Does not refuse requests: browsers do.

use wire::http::{Method, Request, Response, content_type};

use crate::config::NO_ORIGIN;
use crate::http::channel_exports::ChannelExport;
use crate::http::content::Content;
use crate::http::film_keys;
use crate::http::page;
use crate::server_state::ServerState;
use crate::web::address::{self, WebItem};

/// Value of the setting that lets every page in.
const ANY_ORIGIN: &str = "*";

/// Kind of an answer, for pages of other sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Answered {
    /// True for media and everything else that players fetch.
    is_media: bool,
    /// True where the server requires no credentials for it.
    is_public: bool,
}

/// Adds the fields to an answer of which `content` is the rest.
pub(super) fn with_origin(
    request: &Request,
    response: Response,
    content: &Content,
    server: &ServerState,
) -> Response {
    let is_key = film_keys::named(&request.path).is_some();
    let is_public = match is_key {
        true => !server.admission.carries(),
        false => server.admission.is_open(),
    };
    // The index, files of the page and lists of channels are rows.
    let is_media = (is_key || is_media(&request.path)) && !matches!(content, Content::Rows(_));
    // Nobody may open the file, or the rule admits only other clients.
    let is_media = is_media && (!is_public || response.status != 403);
    let live = server.live.current();
    let fields = fields(&live.allow_origins, request, Answered { is_media, is_public });
    fields.fold(response, |response, (name, value)| response.with_field(name, value))
}

/// True for an address that players fetch: by its form or by the type of its name, so that an
/// answer without content has the fields too, and players can read its status.
fn is_media(path: &str) -> bool {
    if ChannelExport::named(path).is_some() {
        return false;
    }
    if let Some(address) = address::parse(path) {
        return address.item != WebItem::Player;
    }
    let kind = content_type(path);
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    ["video/", "audio/"].iter().any(|media| kind.starts_with(media))
        || PLAYER_TYPES.contains(&kind)
        || PLAYER_EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(extension))
}

/// Returns the warning of the configuration.
fn exposed(origins: &[String], has_credentials: bool) -> Option<&'static str> {
    let is_any = origins.iter().any(|origin| origin == ANY_ORIGIN);
    (is_any && has_credentials).then_some(
        "--allow-origin *: pages of every site may read media that need credentials, with a token \
         that they have or from within a network of the rules; name the sites of your players",
    )
}

/// Warns where every page may read answers that need credentials.
pub(crate) fn warn_of_any_origin(server: &ServerState) {
    if let Some(exposed) = exposed(&server.live.current().allow_origins, server.admission.carries())
    {
        tracing::warn!("{exposed}");
    }
}

/// Returns the fields of an answer.
fn fields<'a>(
    origins: &'a [String],
    request: &'a Request,
    answered: Answered,
) -> impl Iterator<Item = (&'static str, &'a str)> {
    let asking = request.origin.as_deref();
    let Answered { is_media, is_public } = answered;
    let allowed = match origins {
        _ if request.path == page::LOGIN => None,
        [] => (is_media && is_public).then_some(ANY_ORIGIN),
        [any] if any == ANY_ORIGIN => (is_media || is_public).then_some(ANY_ORIGIN),
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
/// Types, beside video and audio, and endings of names that players fetch: playlists, descriptions
/// and subtitles. Keys beside playlists cannot be distinguished from others by their names.
const PLAYER_TYPES: [&str; 4] =
    ["application/vnd.apple.mpegurl", "application/dash+xml", "application/ttml+xml", "text/vtt"];
const PLAYER_EXTENSIONS: [&str; 2] = ["srt", "ttml"];

#[cfg(test)]
mod tests {
    use wire::http::http2_request;

    use super::*;

    fn request(method: &str, path: &str, origin: Option<&str>) -> Request {
        let origin = origin.map(|origin| ("origin", origin.as_bytes()));
        http2_request(method, path, Some("h"), origin.into_iter()).unwrap()
    }

    const ALL: [Answered; 4] = [
        Answered { is_media: false, is_public: false },
        Answered { is_media: false, is_public: true },
        Answered { is_media: true, is_public: false },
        Answered { is_media: true, is_public: true },
    ];

    fn origin_of(origins: &[&str], request: &Request, answered: Answered) -> Option<String> {
        let origins: Vec<String> = origins.iter().map(|&origin| origin.to_owned()).collect();
        let found: Vec<_> = fields(&origins, request, answered).collect();
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
                for answered in ALL {
                    let Answered { is_media, is_public } = answered;
                    let any = |is_allowed: bool| is_allowed.then_some("*");
                    let found = origin_of(&[], &asked, answered);
                    assert_eq!(found.as_deref(), any(is_media && is_public), "{answered:?}");
                    let found = origin_of(&["*"], &asked, answered);
                    assert_eq!(found.as_deref(), any(is_media || is_public), "{answered:?}");
                    assert_eq!(origin_of(&[NO_ORIGIN], &asked, answered), None, "{method}");
                }
            }
        }
    }

    #[test]
    fn media_are_all_that_players_fetch_and_nothing_else_is() {
        for path in [
            "/a.ts",
            "/a/b.MP4",
            "/hls/index.m3u8",
            "/hls/1.m4s",
            "/dash/a.mpd",
            "/a.srt",
            "/a.en.vtt",
            "/a.ttml",
            "/a.mp4/master.m3u8",
            "/a.mp4/manifest.mpd",
            "/a.mp4/poster.jpg",
            "/a.mp4/thumbnails-2.jpg",
            "/channel/news/master.m3u8",
        ] {
            assert!(is_media(path), "{path}");
        }
        for path in [
            "/",
            "/index.json",
            "/films/",
            "/a.ts/",
            "/a.mp4/player.html",
            "/channels.m3u",
            "/channels-rtsp.m3u",
            "/channels.xml",
            "/channels.json",
            "/channel/news.sdp",
            "/a.pdf",
            "/a.html",
            "/a.json",
            "/holiday.jpg",
            "/key",
            "/id_rsa.key",
            "/ts",
            page::LOGIN,
        ] {
            assert!(!is_media(path), "{path}");
        }
    }

    #[test]
    fn every_page_is_warned_of_where_media_need_credentials() {
        let origins = |origins: &[&str]| -> Vec<_> {
            origins.iter().map(|&origin| origin.to_owned()).collect()
        };
        assert!(exposed(&origins(&["*"]), true).is_some());
        for (list, has_credentials) in
            [(&["*"][..], false), (&[], true), (&["none"], true), (&["https://a.example"], true)]
        {
            assert_eq!(exposed(&origins(list), has_credentials), None, "{list:?}");
        }
    }

    #[test]
    fn configured_origins_are_the_only_ones_and_the_login_is_for_none() {
        let (a, b) = ("https://a.example", "https://b.example");
        for answered in ALL {
            let of = |origins: &[&str], origin| {
                origin_of(origins, &request("GET", "/a.ts", origin), answered)
            };
            assert_eq!(of(&[a], Some(b)).as_deref(), Some(a), "browsers compare");
            assert_eq!(of(&[a], None).as_deref(), Some(a));
            assert_eq!(of(&[a, b], Some(b)).as_deref(), Some(b));
            for other in [None, Some("https://c.example"), Some("null"), Some("https://a")] {
                assert_eq!(of(&[a, b], other), None, "{other:?}");
            }
            let login = request("GET", page::LOGIN, Some(a));
            for origins in [&[][..], &["*"], &[a], &[a, b]] {
                assert_eq!(origin_of(origins, &login, answered), None);
            }
        }
    }
}
