// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dates between which a certificate is valid.
//!
//! Dates outside cause a warning, not an error: a host may start with a wrong clock, and a server
//! that refuses to start serves nobody. Only the first certificate of a chain is looked at;
//! issuers send expired ones on purpose, for the sake of old clients.
//!
//! Sources: RFC 5280 §4.1.2.5.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use x509_parser::certificate::X509Certificate;

/// Dates of a certificate, in seconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before_s: i64,
    pub(super) not_after_s: i64,
}

/// Fault of a certificate's dates; displayed as a date and the cure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InvalidDate {
    Expired(i64),
    NotYetValid(i64),
}

impl Validity {
    pub(super) fn of(certificate: &X509Certificate<'_>) -> Validity {
        let validity = certificate.validity();
        Validity {
            not_before_s: validity.not_before.timestamp(),
            not_after_s: validity.not_after.timestamp(),
        }
    }

    /// Returns the fault at a time, if any.
    pub(super) fn fault(&self, now: SystemTime) -> Option<InvalidDate> {
        let now_s = unix_s(now);
        if now_s > self.not_after_s {
            Some(InvalidDate::Expired(self.not_after_s))
        } else if now_s < self.not_before_s {
            Some(InvalidDate::NotYetValid(self.not_before_s))
        } else {
            None
        }
    }
}

impl fmt::Display for InvalidDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidDate::Expired(at) => {
                let date = shown_date(*at);
                write!(f, "expired on {date}; clients refuse it; renew it (no restart needed)")
            }
            InvalidDate::NotYetValid(at) => {
                let date = shown_date(*at);
                write!(f, "not valid before {date}; clients refuse it; check this host's clock")
            }
        }
    }
}

/// Formats seconds since the Unix epoch as a date and time in UTC.
pub(super) fn shown_date(unix_s: i64) -> String {
    match Timestamp::from_second(unix_s) {
        Ok(at) => at.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        Err(_) => format!("second {unix_s} of the Unix epoch"),
    }
}

/// Returns a time in seconds since the Unix epoch, negative before it.
pub(super) fn unix_s(at: SystemTime) -> i64 {
    match at.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_outside_the_validity_are_named_with_their_cure() {
        let validity = Validity { not_before_s: 1_000_000_000, not_after_s: 1_000_086_400 };
        let at = |s| validity.fault(UNIX_EPOCH + Duration::from_secs(s));
        assert_eq!((at(1_000_000_000), at(1_000_086_400)), (None, None));
        let early = at(999_999_999).unwrap().to_string();
        assert!(early.starts_with("not valid before 2001-09-09 01:46 UTC; "), "{early}");
        let late = at(1_000_086_401).unwrap().to_string();
        assert!(late.starts_with("expired on 2001-09-10 01:46 UTC; "), "{late}");
    }
}
