// SPDX-License-Identifier: MIT OR Apache-2.0
//! The user name of a client, for a page that offers to log in.
//!
//! A library may be open in part: then no request for it is answered with 401, and a browser never
//! asks for a password. Identification asks for credentials until they are those of a user,
//! regardless of the user's permissions.
//!
//! Sources: RFC 9110 §11.6.1 (challenges).
//! Does not ask the hook, which answers about paths alone.

use crate::credentials::Shown;
use crate::decision::{Access, AccessRequest, AccessVerdict, Grant};
use crate::rules::Allow;

impl Access {
    /// True where clients can log in as users of a file.
    pub fn has_users(&self) -> bool {
        let policy = self.policy();
        policy.has_passwords || !policy.digest_users.kinds().is_empty()
    }

    /// Finds the user of a request; the refusal asks for credentials.
    pub async fn identify(&self, request: &AccessRequest<'_>) -> AccessVerdict {
        if !self.has_users() {
            return AccessVerdict::Forbidden { reason: "this server has no users" };
        }
        let policy = self.policy();
        // A name that is in no file may be the hook's, so it is not counted here.
        let mut shown = Shown { asks_hook: policy.hook.is_some(), ..Shown::default() };
        Box::pin(self.find_user(&policy, request, &mut shown)).await;
        match shown.user.take() {
            Some(user) => {
                if let Some(known) = request.known {
                    known.note_granted(Some(&user));
                }
                AccessVerdict::Admitted(Grant { user: Some(user) })
            }
            None => {
                let users = Allow { users: true, ..Allow::default() };
                self.refusal(&policy, (&users, request), &shown)
            }
        }
    }
}
