// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client of an HTTP connection, as answers see it: addresses, open files, pace, credentials.
//!
//! Does not read requests ([`super::connection`], [`super::http2`]).

use std::net::SocketAddr;
use std::sync::Arc;

use access::RequestCredentials;
use wire::http::Request;

use super::download_pace::ConnectionPace;
use super::long_turns::LongTurns;
use super::open_files::{NotOpened, OpenFile, OpenFiles};
use crate::admission::Asked;
use crate::server_state::ServerState;
use crate::watch::HttpViewer;

/// Client of a connection.
#[derive(Clone)]
pub(crate) struct Client {
    pub(super) peer: SocketAddr,
    /// Address of this server that the client has connected to.
    pub(super) local: SocketAddr,
    /// Open files of the connection's loop.
    pub(super) files: Arc<OpenFiles>,
    /// Turns of the long answers of that loop.
    pub(super) turns: Arc<LongTurns>,
    /// Tick of the last receipt of bytes.
    pub(super) received: u64,
    pub(super) is_tls: bool,
    /// Pace of the connection's downloads.
    pub(super) pace: Arc<ConnectionPace>,
    /// Figures of the connection for the watchers of the server.
    pub(super) viewer: Arc<HttpViewer>,
    /// Results about the credentials of the request that is answered now.
    pub(super) known: Option<Arc<RequestCredentials>>,
}

impl Client {
    /// Returns the scheme of the addresses that the client uses for this server.
    pub(super) fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    /// Returns the parts of a request of this client on which the decision is based.
    pub(super) fn asked<'a>(&'a self, request: &'a Request) -> Asked<'a> {
        Asked::of_http(request, self.peer.ip()).knowing(self.known.as_deref())
    }

    /// Opens a file.
    pub(super) async fn open(
        &self,
        name: &str,
        server: &ServerState,
    ) -> Result<Arc<OpenFile>, NotOpened> {
        let is_reserved = |file: &_| !server.limits.has_room_for_file(file);
        self.files.find(name, self.received, &server.library.folder, is_reserved).await
    }
}
