// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which refusals of a server are asked again, and for which sources.
//!
//! | what was found | for how long | asked again for |
//! |---|---|---|
//! | no connection, or it broke; no answer; 408, 429, 453, 503, 504 | a moment | every source |
//! | 404, 410, 454, 455, 457, 500, 502 and other 5xx | an absence | live sources |
//! | 3xx, other 4xx (401, 403, 461), 501, 505, 551; no MPEG-TS | for good | live ones once played |
//!
//! A live source is one that `--live` says is live, or whose description has no end of its range.
//! A name that cannot be resolved is a moment, too: a recorder may start before its network.
//!
//! Sources: RFC 2326 §11.
//! Does not do: wait ([`crate::recording_session`]).

use client::Error;

/// For how long a refusal stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusalKind {
    /// The same request may be granted later, whatever the source is.
    Moment,
    /// The source is not there; a live one may come back.
    Absence,
    /// The same request will be refused again.
    ForGood,
}

impl RefusalKind {
    /// Judges what a session with a server ended with.
    pub(crate) fn of(error: &Error) -> RefusalKind {
        match error {
            Error::Refused { status, .. } => RefusalKind::of_status(*status),
            Error::Host { .. } | Error::Lost { .. } => RefusalKind::Moment,
            _ => RefusalKind::ForGood,
        }
    }

    fn of_status(status: u16) -> RefusalKind {
        match status {
            408 | 429 | 453 | 503 | 504 => RefusalKind::Moment,
            404 | 410 | 454 | 455 | 457 => RefusalKind::Absence,
            501 | 505 | 551 => RefusalKind::ForGood,
            500.. => RefusalKind::Absence,
            _ => RefusalKind::ForGood,
        }
    }

    /// Whether the server is asked again.
    pub(crate) fn is_retried(self, is_live: bool, has_played: bool) -> bool {
        match self {
            RefusalKind::Moment => true,
            RefusalKind::Absence => is_live,
            RefusalKind::ForGood => is_live && has_played,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_stand_as_long_as_the_table_says() {
        for (status, kind) in [
            (301, RefusalKind::ForGood),
            (401, RefusalKind::ForGood),
            (404, RefusalKind::Absence),
            (453, RefusalKind::Moment),
            (454, RefusalKind::Absence),
            (461, RefusalKind::ForGood),
            (500, RefusalKind::Absence),
            (501, RefusalKind::ForGood),
            (503, RefusalKind::Moment),
            (599, RefusalKind::Absence),
        ] {
            let error = Error::Refused { peer: String::new(), status, found: String::new() };
            assert_eq!(RefusalKind::of(&error), kind, "{status}");
        }
        let lost = Error::Lost { peer: String::new(), found: String::new() };
        assert_eq!(RefusalKind::of(&lost), RefusalKind::Moment);
        let malformed = Error::Peer { peer: String::new(), found: String::new() };
        assert_eq!(RefusalKind::of(&malformed), RefusalKind::ForGood);
    }

    #[test]
    fn a_live_source_is_asked_longer_than_a_title() {
        let asked = |kind: RefusalKind| {
            [(false, false), (false, true), (true, false), (true, true)]
                .map(|(is_live, has_played)| kind.is_retried(is_live, has_played))
        };
        assert_eq!(asked(RefusalKind::Moment), [true; 4]);
        assert_eq!(asked(RefusalKind::Absence), [false, false, true, true]);
        assert_eq!(asked(RefusalKind::ForGood), [false, false, false, true]);
    }
}
