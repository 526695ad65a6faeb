// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a password, which all connections of a login share: untried, accepted or refused.
//!
//! Does not send anything.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;

use super::LoginRefusal;

/// State of a login at a server, shared by its connections.
#[derive(Debug, Default)]
pub(super) struct SharedLogin {
    known: Mutex<Known>,
    /// Refusals since the server has last granted a request, of a password that it has accepted.
    doubts: AtomicU32,
    /// Held by the connection that tries the password.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// Knowledge about a password.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Known {
    #[default]
    Untried,
    Accepted,
    Refused {
        until: Instant,
        reason: LoginRefusal,
    },
}

impl SharedLogin {
    /// The knowledge that has not expired.
    pub(super) fn known(&self) -> Known {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*known, Known::Refused { until, .. } if until <= Instant::now()) {
            *known = Known::Untried;
        }
        known.clone()
    }

    pub(super) fn is_accepted(&self) -> bool {
        self.known() == Known::Accepted
    }

    /// Notes a refusal of a password that was accepted before; true where these are too many.
    pub(super) fn doubt(&self) -> bool {
        self.doubts.fetch_add(1, Ordering::Relaxed) + 1 >= DOUBTS_MAX
    }

    /// Waits until no other connection tries the password.
    pub(super) fn turn(&self) -> impl Future<Output = OwnedMutexGuard<()>> + use<> {
        self.turn.clone().lock_owned()
    }

    pub(super) fn set_accepted(&self) {
        self.set(Known::Accepted);
        self.doubts.store(0, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn forget(&self) {
        self.set(Known::Untried);
    }

    pub(super) fn set_refused(&self, reason: LoginRefusal) {
        self.set(Known::Refused { until: Instant::now() + LOGIN_WAIT, reason });
    }

    fn set(&self, known: Known) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }
}

/// Time for which a server that has refused a password is not sent it again: with three tries in
/// half an hour no camera is known to lock an account.
pub const LOGIN_WAIT: Duration = Duration::from_secs(600);
/// Refusals in a row after which a password that was accepted counts as wrong.
const DOUBTS_MAX: u32 = 3;
