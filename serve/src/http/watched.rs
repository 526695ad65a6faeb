// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports a request to the watchers of the server: the file that is sent to a connection, the
//! bytes, a line of the access log.
//!
//! Costs a hash of the file's name for an answer of more than [`NOTED_BYTES_MIN`], and a line of
//! the access log where there is one.
//!
//! Does not answer.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::Ordering;

use wire::http::{Method, Part, Request, Response, escape_path};

use crate::access_log::AccessLine;
use crate::http::client::Client;
use crate::http::resource::plain_name;
use crate::server_state::ServerState;
use crate::web::address;

/// Records the file of an answer that is about to be sent.
pub(super) fn note_file(client: &Client, request: &Request, response: &Response) {
    let of_file = |part: &Part| if let Part::File { bytes, .. } = part { *bytes } else { 0 };
    if response.parts.iter().map(of_file).sum::<u64>() < NOTED_BYTES_MIN {
        return;
    }
    let name = plain_name(&request.path);
    // A segment belongs to the file that it is made of.
    let file = address::parse(&name).map_or(&*name, |address| address.file);
    let file = file.trim_start_matches('/');
    let mut hash = DefaultHasher::new();
    file.hash(&mut hash);
    client.viewer.note_file(hash.finish() | 1, || file.to_owned());
}

/// Request and answer, for the log.
pub(super) struct AnsweredRequest {
    status: u16,
    line: Option<Box<AccessLine>>,
}

impl AnsweredRequest {
    /// Records a request whose answer is about to be sent.
    pub(super) fn new(
        client: &Client,
        (request, protocol): (&Request, &'static str),
        status: u16,
        server: &ServerState,
    ) -> AnsweredRequest {
        let line = server.access_log.is_some().then(|| {
            let details = request.details.as_deref();
            Box::new(AccessLine {
                address: client.peer.ip().to_canonical(),
                // The user of this request: others of the connection may have shown other
                // credentials.
                user: client.known.as_ref().and_then(|known| known.user()).map(str::to_owned),
                // Without its query, which may hold a token.
                request: format!("{} {} {protocol}", method(request), escape_path(&request.path)),
                status,
                bytes: 0,
                referer: details.and_then(|details| details.referer.as_deref()).map(without_query),
                user_agent: details.and_then(|details| details.user_agent.clone()),
            })
        });
        AnsweredRequest { status, line }
    }

    /// Counts it, and logs it with the bytes that were sent.
    pub(super) fn finish(self, bytes: u64, server: &ServerState) {
        server.meters.http_answers[usize::from(self.status / 100).min(5)]
            .fetch_add(1, Ordering::Relaxed);
        if let (Some(log), Some(line)) = (&server.access_log, self.line) {
            log.write(AccessLine { bytes, ..*line });
        }
    }
}

/// Returns an address without its query, which may hold a token, and without what follows it.
fn without_query(address: &str) -> String {
    let end = address.find(['?', '#']).unwrap_or(address.len());
    address[..end].to_owned()
}

fn method(request: &Request) -> &str {
    match &request.method {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Options => "OPTIONS",
        Method::Other(name) => name,
    }
}

/// Shorter answers are playlists, pictures, pages.
const NOTED_BYTES_MIN: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn referer_is_logged_without_its_query() {
        for (sent, logged) in [
            ("http://h/a.html?access_token=x#y", "http://h/a.html"),
            ("http://h/#access_token=x", "http://h/"),
            ("http://h/a", "http://h/a"),
        ] {
            assert_eq!(without_query(sent), logged);
        }
    }
}
