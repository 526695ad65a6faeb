// SPDX-License-Identifier: MIT OR Apache-2.0
//! The index and the state of channels, for the administrator's API.
//!
//! Their addresses are those of the public listeners, with the host name that the administrator
//! uses for this server.
//!
//! Does not authenticate the caller.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use wire::http::{Part, Request, Response};

use crate::http::client::Client;
use crate::http::long_turns::LongTurns;
use crate::http::open_files::OpenFiles;
use crate::http::transmit::text;
use crate::server_state::ServerState;

/// Returns the state of channels, as JSON.
pub(crate) fn channels(server: &ServerState) -> Vec<u8> {
    let address = format!("http://{}", server.http);
    let is_clear = server.config.segment_cipher.is_none();
    let channels = server.channels.lock();
    let rows = channels.rows(is_clear.then_some(address.as_str()));
    serde_json::json!({ "channels": rows }).to_string().into_bytes()
}

/// Returns a page of the index, as `/index.json` of the public listener.
pub(crate) async fn assets(
    request: &Request,
    peer: SocketAddr,
    server: &Arc<ServerState>,
) -> Response {
    let mut request = request.clone();
    "/index.json".clone_into(&mut request.path);
    request.accepts_gzip = false;
    request.host = request.host.map(|host| with_port(&host, server.http.port()));
    let client = Client {
        peer,
        local: server.http,
        // The index opens no files, and sends none.
        files: Arc::new(OpenFiles::new(0, 0)),
        turns: LongTurns::new(),
        received: 0,
        is_tls: false,
        pace: Arc::default(),
        viewer: server.watch.viewers.connected(peer, false, None),
        known: None,
    };
    // Administrators see all names.
    let at = (&client, None, SystemTime::now());
    let (mut response, body) = server.index.answer(&request, None, server, at).await;
    if let Some(body) = body {
        let mut whole = Vec::new();
        for part in &response.parts {
            match part {
                Part::Held { .. } => body.pieces().for_each(|piece| whole.extend_from_slice(piece)),
                part => whole.extend_from_slice(text(part)),
            }
        }
        response.parts = vec![Part::Bytes(whole.into())];
    }
    response
}

/// Returns a host with another port.
fn with_port(authority: &str, port: u16) -> String {
    let colon = authority.rfind(':').filter(|&colon| !authority[colon..].contains(']'));
    let host = &authority[..colon.unwrap_or(authority.len())];
    format!("{host}:{port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_replaced() {
        for (authority, expected) in
            [("a:1", "a:80"), ("a", "a:80"), ("[::1]:1", "[::1]:80"), ("[::1]", "[::1]:80")]
        {
            assert_eq!(with_port(authority, 80), expected);
        }
    }
}
