// SPDX-License-Identifier: MIT OR Apache-2.0
//! Retries after the refusal of a server, by the kind of refusal and of source.
//!
//! | refusal | kind | retried for |
//! |---|---|---|
//! | no connection, or it broke; no answer; 408, 429, 453, 503, 504 | temporary | every source |
//! | a certificate that is not valid yet | temporary | every source |
//! | 404, 410, 454, 455, 457, 500, 502 and other 5xx | absent | live sources |
//! | 3xx, other 4xx (461), 501, 505, 551; no MPEG-TS | permanent | live, once played |
//! | another certificate that is not trusted; no handshake of TLS | permanent | live, once played |
//! | 403; 401: wrong password, none, or no supported login | login | live, once played; slowly |
//! | no reply to the first request with a password | unanswered | every source; slowly |
//!
//! Cameras that are recorded for long are asked again after each refusal, slowly if it is permanent
//! or of the login: a recorder and its cameras may start at the same time.
//!
//! A source is live by the setting of the recording, or if its description announces no end of its
//! range. An unresolvable host name is temporary, too: a recorder may start before its network,
//! and so is the time: before its clock is set.
//!
//! Sources: RFC 2326 §11.
//! Does not wait ([`crate::recording_session`] does).

use std::time::Duration;

use client::{Error, LOGIN_WAIT, LoginRefusal, TlsFault};

/// Kind of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusalKind {
    /// The same request may be granted later, whatever the source is.
    Temporary,
    /// The source is absent; a live one may return.
    Absent,
    /// The same request will be refused again.
    Permanent,
    /// The server refuses the login. Cameras lock an account after a few wrong passwords.
    Login,
    /// The server does not reply to the login.
    Unanswered,
}

impl RefusalKind {
    /// Classifies the error that a session with a server ended with.
    pub(crate) fn of(error: &Error) -> RefusalKind {
        match error {
            Error::Refused { status, .. } => RefusalKind::of_status(*status),
            Error::Login { reason: LoginRefusal::Unanswered(_), .. } => RefusalKind::Unanswered,
            Error::Login { .. } => RefusalKind::Login,
            Error::Tls { fault: TlsFault::NotValidYet(_) | TlsFault::Clock, .. } => {
                RefusalKind::Temporary
            }
            Error::Host { .. } | Error::Lost { .. } => RefusalKind::Temporary,
            _ => RefusalKind::Permanent,
        }
    }

    fn of_status(status: u16) -> RefusalKind {
        match status {
            408 | 429 | 453 | 503 | 504 => RefusalKind::Temporary,
            404 | 410 | 454 | 455 | 457 => RefusalKind::Absent,
            403 => RefusalKind::Login,
            501 | 505 | 551 => RefusalKind::Permanent,
            500.. => RefusalKind::Absent,
            _ => RefusalKind::Permanent,
        }
    }

    /// True if the server is asked again.
    pub(crate) fn is_retried(self, is_live: bool, has_played: bool) -> bool {
        match self {
            RefusalKind::Temporary | RefusalKind::Unanswered => true,
            RefusalKind::Absent => is_live,
            RefusalKind::Permanent | RefusalKind::Login => is_live && has_played,
        }
    }

    /// Time before the server is asked again, where it is `backoff` for others.
    pub(crate) fn wait(self, backoff: Duration, has_played: bool) -> Duration {
        match self {
            RefusalKind::Login | RefusalKind::Unanswered => backoff.max(LOGIN_WAIT),
            // Of a source that is asked for ever.
            RefusalKind::Permanent if !has_played => backoff.max(LOGIN_WAIT),
            _ => backoff,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_stand_as_long_as_the_table_says() {
        for (status, kind) in [
            (301, RefusalKind::Permanent),
            (403, RefusalKind::Login),
            (404, RefusalKind::Absent),
            (453, RefusalKind::Temporary),
            (454, RefusalKind::Absent),
            (461, RefusalKind::Permanent),
            (500, RefusalKind::Absent),
            (501, RefusalKind::Permanent),
            (503, RefusalKind::Temporary),
            (599, RefusalKind::Absent),
        ] {
            let error = Error::Refused { peer: String::new(), status, found: String::new() };
            assert_eq!(RefusalKind::of(&error), kind, "{status}");
        }
        let lost = Error::Lost { peer: String::new(), found: String::new() };
        assert_eq!(RefusalKind::of(&lost), RefusalKind::Temporary);
        let fingerprint = "ab".repeat(32).parse().unwrap();
        let untrusted = TlsFault::Untrusted { fault: String::new(), fingerprint };
        for (fault, kind) in [
            (TlsFault::Clock, RefusalKind::Temporary),
            (TlsFault::NotValidYet(fingerprint), RefusalKind::Temporary),
            (TlsFault::NoTls, RefusalKind::Permanent),
            (untrusted, RefusalKind::Permanent),
        ] {
            assert_eq!(RefusalKind::of(&Error::Tls { peer: String::new(), fault }), kind);
        }
        let malformed = Error::Peer { peer: String::new(), found: String::new() };
        assert_eq!(RefusalKind::of(&malformed), RefusalKind::Permanent);
    }

    #[test]
    fn a_refused_login_is_tried_again_slowly() {
        let reason = LoginRefusal::WrongPassword;
        let error = Error::Login { peer: String::new(), request: "DESCRIBE".to_owned(), reason };
        let kind = RefusalKind::of(&error);
        assert!(!kind.is_retried(true, false) && kind.is_retried(true, true));
        let second = Duration::from_secs(1);
        assert_eq!(kind.wait(second, true), Duration::from_secs(600));
        assert_eq!(RefusalKind::Temporary.wait(second, false), second);
        assert_eq!(RefusalKind::Permanent.wait(second, false), Duration::from_secs(600));
        assert_eq!(RefusalKind::Permanent.wait(second, true), second);
        let reason = LoginRefusal::Unanswered(String::new());
        let error = Error::Login { peer: String::new(), request: "DESCRIBE".to_owned(), reason };
        let kind = RefusalKind::of(&error);
        assert!(kind.is_retried(false, false) && kind.wait(second, true) == LOGIN_WAIT);
    }

    #[test]
    fn a_live_source_is_asked_longer_than_a_title() {
        let asked = |kind: RefusalKind| {
            [(false, false), (false, true), (true, false), (true, true)]
                .map(|(is_live, has_played)| kind.is_retried(is_live, has_played))
        };
        assert_eq!(asked(RefusalKind::Temporary), [true; 4]);
        assert_eq!(asked(RefusalKind::Absent), [false, false, true, true]);
        assert_eq!(asked(RefusalKind::Permanent), [false, false, false, true]);
    }
}
