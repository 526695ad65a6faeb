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
pub(crate) enum Stands {
    /// The same request may be granted later, whatever the source is.
    Moment,
    /// The source is not there; a live one may come back.
    Absence,
    /// The same request will be refused again.
    ForGood,
}

impl Stands {
    /// Judges what a session with a server ended with.
    pub(crate) fn of(error: &Error) -> Stands {
        match error {
            Error::Refused { status, .. } => Stands::of_status(*status),
            Error::Host { .. } | Error::Lost { .. } => Stands::Moment,
            _ => Stands::ForGood,
        }
    }

    fn of_status(status: u16) -> Stands {
        match status {
            408 | 429 | 453 | 503 | 504 => Stands::Moment,
            404 | 410 | 454 | 455 | 457 => Stands::Absence,
            501 | 505 | 551 => Stands::ForGood,
            500.. => Stands::Absence,
            _ => Stands::ForGood,
        }
    }

    /// Whether the server is asked again.
    pub(crate) fn is_asked_again(self, is_live: bool, has_played: bool) -> bool {
        match self {
            Stands::Moment => true,
            Stands::Absence => is_live,
            Stands::ForGood => is_live && has_played,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_stand_as_long_as_the_table_says() {
        for (status, stands) in [
            (301, Stands::ForGood),
            (401, Stands::ForGood),
            (404, Stands::Absence),
            (453, Stands::Moment),
            (454, Stands::Absence),
            (461, Stands::ForGood),
            (500, Stands::Absence),
            (501, Stands::ForGood),
            (503, Stands::Moment),
            (599, Stands::Absence),
        ] {
            let error = Error::Refused { peer: String::new(), status, found: String::new() };
            assert_eq!(Stands::of(&error), stands, "{status}");
        }
        let lost = Error::Lost { peer: String::new(), found: String::new() };
        assert_eq!(Stands::of(&lost), Stands::Moment);
        let malformed = Error::Peer { peer: String::new(), found: String::new() };
        assert_eq!(Stands::of(&malformed), Stands::ForGood);
    }

    #[test]
    fn a_live_source_is_asked_longer_than_a_title() {
        let asked = |stands: Stands| {
            [(false, false), (false, true), (true, false), (true, true)]
                .map(|(is_live, has_played)| stands.is_asked_again(is_live, has_played))
        };
        assert_eq!(asked(Stands::Moment), [true; 4]);
        assert_eq!(asked(Stands::Absence), [false, false, true, true]);
        assert_eq!(asked(Stands::ForGood), [false, false, false, true]);
    }
}
