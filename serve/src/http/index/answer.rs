// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers a request for the list: a page of rows, with the live counters above them.
//!
//! Sources: RFC 9110 §8.8 (entity tags), §12.5.3 (Accept-Encoding), RFC 8288 (`rel="next"`).
//! Does not make the listing ([`super`]).

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::SystemTime;

use access::ListingClass;
use wire::http::{Listing as Answer, Request, Response, error, escape_html, listing};

use super::body::{Body, Held};
use super::browse::Browse;
use super::rows::{LiveCounters, PageFacts, RowFormat, Scanned};
use super::text::{Authorities, Slice};
use super::{Index, Query};
use crate::http::channel_exports::is_visible;
use crate::http::client::Client;
use crate::http::page::with_policy;
use crate::server_state::ServerState;

impl Index {
    /// Answers a request for `/`, `/index.json` or the address of a `folder`.
    pub(crate) async fn answer(
        &self,
        request: &Request,
        folder: Option<String>,
        server: &ServerState,
        (client, class, now): (&Client, Option<Arc<ListingClass>>, SystemTime),
    ) -> (Response, Option<Body>) {
        let form = if request.path == "/index.json" { RowFormat::Json } else { RowFormat::Html };
        let text = request.query.as_deref().unwrap_or_default();
        let browse = if form == RowFormat::Json { Browse::parse(text) } else { Ok(None) };
        let (mut query, browse) = match (Query::parse(text), browse) {
            (Ok(query), Ok(browse)) => (query, browse),
            (Err(wrong), _) | (_, Err(wrong)) => return (error(request, 400, wrong, now), None),
        };
        query.below = folder.or(query.below);
        let library = &server.library;
        let view = match browse {
            Some(browse) => self.browsed(browse, query, (library, class.as_ref())).await,
            None => self.view(&query, form, (library, class.as_ref())).await,
        };
        let Some(view) = view else {
            return (error(request, 500, "internal error", now), None);
        };
        let authorities = authorities(request, server, client, form);
        let slice = Slice { text: view.text, rows: view.rows, authorities };
        let report = server.report();
        let is_seen = |name: &str| class.as_ref().is_none_or(|class| class.is_listed(name));
        let scans = server.library.scans().into_iter();
        let scans = scans.filter(|(scan, _)| is_seen(&scan.name)).map(|(scan, bytes_read)| {
            Scanned { name: scan.name.clone(), bytes_read, bytes: scan.bytes }
        });
        let settings = server.live.current();
        let mut channels = Cow::Borrowed(&settings.channels[..]);
        if let Some(class) = &class {
            channels.to_mut().retain(|channel| is_visible(class, &channel.name));
        }
        let access = server.admission.access();
        let page = PageFacts {
            has_channels: !channels.is_empty(),
            has_pictures: server.posters.available().is_ok(),
            has_login: access.has_users() && request.credentials.is_none(),
        };
        let live = LiveCounters {
            report: &report,
            totals: &view.listing.totals,
            channels: &channels,
            has_hls: self.cipher.is_none(),
            scans: scans.collect(),
            found: view.found.as_ref(),
            page,
        };
        let etag = {
            let mut hash = DefaultHasher::new();
            let page = view.page.as_ref().map(|page| page.number);
            (self.start, page, form, &slice.rows, &slice.authorities, &view.next).hash(&mut hash);
            if view.found.is_some() {
                (text, view.listing.generation, page).hash(&mut hash);
            }
            // Values that a request itself changes (time, memory, connections) are left out.
            (live.totals, &live.scans, report.sessions, report.sessions_total).hash(&mut hash);
            (report.packets, report.bytes, report.refused, report.cold_stalls).hash(&mut hash);
            (report.sessions_refused, report.connections_refused).hash(&mut hash);
            (report.requests_malformed, report.clock_moves).hash(&mut hash);
            format!("W/\"{:016x}\"", hash.finish())
        };
        let (above, below) = (form.above(&live), form.below(view.next.as_deref()));
        let (mut before, mut after) = (above.into_bytes(), below.into_bytes());
        let mut coding = None;
        let mut held = Held::Plain(slice);
        if request.accepts_gzip
            && let Held::Plain(slice) = &held
            && let Some(packed) = self.packed(view.page.as_ref(), form, slice, &view.listing).await
        {
            (before, after) = packed.around(&before, &after);
            coding = Some("gzip");
            held = Held::Packed(packed);
        }
        let held_bytes = match &held {
            Held::Whole(bytes) => bytes.len() as u64,
            Held::Plain(slice) => slice.bytes(),
            Held::Packed(packed) => packed.bytes.len() as u64,
        };
        let content_type = form.content_type();
        let (etag, cache_control) = (&etag[..], "no-cache");
        let answer =
            Answer { etag, content_type, cache_control, coding, before, held_bytes, after };
        let response = match form {
            RowFormat::Json => listing(request, answer, now),
            RowFormat::Html => with_policy(listing(request, answer, now)),
        };
        (response, Some(Body(held)))
    }
}

/// Returns the server's schemes, host and ports as used by the client of this request.
fn authorities(
    request: &Request,
    server: &ServerState,
    client: &Client,
    form: RowFormat,
) -> Authorities {
    // `wire::http` accepts only a host and a port.
    let known = request.host.clone().unwrap_or_else(|| client.local.to_string());
    let host = known.rsplit_once(':').map_or(known.as_str(), |(host, port)| {
        if port.bytes().all(|b| b.is_ascii_digit()) { host } else { known.as_str() }
    });
    let http = format!("{}://{known}", client.scheme());
    let rtsp = match server.rtsps {
        Some(rtsps) if client.is_tls => format!("rtsps://{host}:{}", rtsps.port()),
        _ => format!("rtsp://{host}:{}", server.rtsp.port()),
    };
    match form {
        RowFormat::Json => Authorities { http, rtsp },
        RowFormat::Html => Authorities {
            http: escape_html(&http).into_owned(),
            rtsp: escape_html(&rtsp).into_owned(),
        },
    }
}
