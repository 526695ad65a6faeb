// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the file of a request for a poster or thumbnails.
//!
//! Does not make pictures ([`crate::posters`]) or describe them ([`crate::web`]).

use std::sync::Arc;
use std::time::SystemTime;

use access::AccessVerdict;
use wire::http::{Request, Response, error};

use super::client::Client;
use super::refusals::{not_opened, refusal};
use crate::admission::Subject;
use crate::http::open_files::{NotOpened, OpenFile};
use crate::library::served_folder::Denied;
use crate::posters::PictureKind;
use crate::server_state::ServerState;
use crate::web;
use crate::web::address::WebAddress;

/// Returns the answer to a request for pictures of a file, whose look-up returned `found`; a folder
/// of renditions has the pictures of its first file.
pub(super) async fn answer(
    address: &WebAddress<'_>,
    kind: PictureKind,
    mut found: Result<Arc<OpenFile>, NotOpened>,
    (request, client): (&Request, &Client),
    server: &Arc<ServerState>,
    now: SystemTime,
) -> Response {
    let mut name = address.file.to_owned();
    if let Err(NotOpened::Denied(Denied::NotAFile)) = found
        && let Some(first) = server.library.playable_in(&format!("{name}/"), 1).pop()
    {
        // The folder's rule has admitted the client; the file may have one of its own.
        let asked = client.asked(request);
        let subject = format!("{first}/{}", address.item);
        let subject = Subject::File(&subject);
        match server.admission.decide(subject, &asked, &server.library).await {
            AccessVerdict::Admitted(_) => {}
            verdict => return refusal(request, verdict, now),
        }
        found = client.open(&first, server).await;
        name = first;
    }
    let file = match found {
        Ok(file) => file,
        Err(NotOpened::Denied(Denied::Missing | Denied::NotAFile)) => {
            return error(request, 404, "there is no such file, and no folder of media", now);
        }
        Err(reason) => return not_opened(&reason, request, client, server, now),
    };
    let peer = client.peer.ip();
    let asset = match server.posters.available() {
        Ok(()) => server.library.asset(&name, peer, std::future::pending()).await,
        // No file is scanned needlessly.
        Err(reason) => Err(reason),
    };
    let made = match asset {
        Ok(asset) => server.posters.get(&asset, kind, peer).await,
        Err(reason) => Err(reason),
    };
    web::picture_answer(request, &address.item, made, (&file, &server.web), now)
}
