// SPDX-License-Identifier: MIT OR Apache-2.0
//! Form of the playlists of a transport stream, as a client asks for it.
//!
//! Segments are byte ranges of the one file, or have an address each: some players and caches
//! cannot ask for ranges. `master.m3u8?ranges=no` lists playlists of the second form, which have
//! addresses of their own. Both are sent from the file.
//!
//! Sources: RFC 8216 §4.3.2.2 (EXT-X-BYTERANGE), §7 (players of version 3 lack ranges).
//! Does not write playlists ([`super::media_playlist`]).

use super::address::WebItem;

/// Form of the playlists of a transport stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) enum TsForm {
    /// Byte ranges of the file, where every segment begins with the data that a decoder needs;
    /// otherwise as below.
    #[default]
    Ranges,
    /// Segments that have addresses of their own.
    Segments,
}

/// Name of the field of a query.
const FIELD: &str = "ranges";

/// Characters of a wrong value that are shown.
const SHOWN_MAX: usize = 32;

impl TsForm {
    /// Reads the query of a request for an item: multivariant playlists have both forms.
    ///
    /// # Errors
    /// The fault of the query, and what to write.
    pub(super) fn asked(item: &WebItem, query: Option<&str>) -> Result<TsForm, String> {
        let mut form = TsForm::default();
        if *item != WebItem::Master {
            return Ok(form);
        }
        for field in query.unwrap_or_default().split('&') {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            if name != FIELD {
                continue;
            }
            form = match value {
                "no" => TsForm::Segments,
                "yes" => TsForm::Ranges,
                other => {
                    let shown: String = other.chars().take(SHOWN_MAX).collect();
                    return Err(format!(
                        "{FIELD}={shown} in the query: write {FIELD}=no for segments with \
                         addresses of their own, or {FIELD}=yes for byte ranges"
                    ));
                }
            };
        }
        Ok(form)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_ask_for_one_of_two_forms() {
        let asked = |query: &str| TsForm::asked(&WebItem::Master, Some(query));
        for (query, form) in [
            ("", TsForm::Ranges),
            ("ranges=yes", TsForm::Ranges),
            ("ranges=no", TsForm::Segments),
            ("access_token=x&ranges=no&v=1", TsForm::Segments),
            ("strange=no&arranges=no", TsForm::Ranges),
        ] {
            assert_eq!(asked(query), Ok(form), "{query}");
        }
        assert_eq!(TsForm::asked(&WebItem::Master, None), Ok(TsForm::Ranges));
        for query in ["ranges", "ranges=", "ranges=No", "ranges=0", "a=1&ranges=no&ranges=x"] {
            let reason = asked(query).expect_err(query);
            assert!(reason.contains("write ranges=no for segments"), "{reason}");
        }
        let long = asked(&format!("ranges={}", "é".repeat(2000))).expect_err("no such value");
        assert!(long.len() < 200, "{long}");
        let other = TsForm::asked(&WebItem::Manifest, Some("ranges=x"));
        assert_eq!(other, Ok(TsForm::Ranges), "a description has no ranges in either form");
    }
}
