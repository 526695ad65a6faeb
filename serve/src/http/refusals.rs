// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers to clients that are not admitted, or that exceed a limit.
//!
//! Sources: RFC 9110 §15.5.2 (401), §15.5.4 (403), §15.6.4 (503), §10.2.3 (Retry-After); RFC 6585
//! §4 (429).
//! Does not decide about admission ([`crate::admission`] does).

use std::time::SystemTime;

use access::AccessVerdict;
use wire::http::{Request, Response, error, unstored};

use super::client::Client;
use crate::http::open_files::NotOpened;
use crate::limits::Refused;
use crate::server_state::ServerState;

/// Adds the time after which a refused client may try again.
pub(super) fn retry_after(response: Response, refused: Refused) -> Response {
    match refused.retry_after_s() {
        Some(seconds) => response.with_field("Retry-After", &seconds.to_string()),
        None => response,
    }
}

/// Returns the answer to a client that is not admitted.
pub(super) fn refusal(request: &Request, verdict: AccessVerdict, now: SystemTime) -> Response {
    match verdict {
        // A browser would ask its user for a password for each picture of a page that is itself
        // open.
        AccessVerdict::Unauthorized { reason, .. } if request.wants_picture => {
            error(request, 403, reason, now)
        }
        AccessVerdict::Unauthorized { challenges, reason } => {
            let response = error(request, 401, reason, now);
            let add = |response: Response, challenge: &String| {
                response.with_field("WWW-Authenticate", challenge)
            };
            challenges.iter().fold(response, add)
        }
        AccessVerdict::Slowed { retry_after_s } => {
            let what = "too many wrong passwords from your address; try again later";
            error(request, 429, what, now).with_field("Retry-After", &retry_after_s.to_string())
        }
        AccessVerdict::Forbidden { reason } => error(request, 403, reason, now),
        AccessVerdict::Admitted(_) => unreachable!("it is not refused"),
    }
}

/// Asks for credentials until they are those of a user, then redirects to the page: on a server
/// that is open in part no other address asks for them.
pub(super) async fn log_in(
    request: &Request,
    client: &Client,
    server: &ServerState,
    now: SystemTime,
) -> Response {
    let asked = client.asked(request);
    match server.admission.identify(&asked).await {
        AccessVerdict::Admitted(grant) => {
            client.viewer.admit(grant.user.as_deref());
            let text = b"you are logged in\n".to_vec();
            unstored(request, 303, "text/plain", text, now).with_field("Location", "../")
        }
        verdict => refusal(request, verdict, now),
    }
}

/// Returns the answer where a file may be opened and is not.
pub(super) fn not_opened(
    reason: &NotOpened,
    request: &Request,
    client: &Client,
    server: &ServerState,
    now: SystemTime,
) -> Response {
    match reason {
        NotOpened::Reserved => {
            server.limits.refusals.note(Refused::Files, client.peer.ip());
            let refused = error(request, 503, Refused::Files.reason(), now);
            retry_after(refused, Refused::Files)
        }
        NotOpened::Denied(reason) => error(request, 403, &reason.to_string(), now),
        NotOpened::Failed(reason) => {
            tracing::error!("http {}: {reason}", request.path);
            error(request, 500, "internal error", now)
        }
    }
}
