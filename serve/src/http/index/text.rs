// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of the index as text, shared by all clients, with placeholders for the address that a
//! client uses for this server.
//!
//! Each client gets its own addresses (its `Host`). A finished text per client would cost a copy
//! for each, and a client that varies `Host` could have one made per connection. The placeholders
//! are filled while the text is sent, a piece at a time. Costs one copy of the sent bytes.
//!
//! Does not lay out rows ([`super::rows`] does).

use std::ops::Range;
use std::sync::Arc;

/// Text of one page's rows in one form.
pub(super) struct Text {
    bytes: Vec<u8>,
    holes: Vec<Hole>,
    /// Start of each row, and the end of the last.
    starts: Vec<Start>,
    /// True for each row that precedes the others in an answer.
    is_first: Vec<bool>,
    /// Text between two rows.
    separator: &'static str,
}

struct Hole {
    at: usize,
    authority: Authority,
}

#[derive(Clone, Copy)]
struct Start {
    byte: usize,
    hole: usize,
}

/// Address that fills a placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Authority {
    Http,
    Rtsp,
}

/// Address of this server for both protocols, escaped for the form of the text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Authorities {
    /// Scheme, host and port: `http` or `https`, whichever the client uses.
    pub(super) http: String,
    /// Scheme, host and port: `rtsps` for clients of HTTPS where RTSPS listens, else `rtsp`.
    pub(super) rtsp: String,
}

impl Text {
    pub(super) fn new(separator: &'static str) -> Text {
        let starts = vec![Start { byte: 0, hole: 0 }];
        Text { bytes: Vec::new(), holes: Vec::new(), starts, is_first: Vec::new(), separator }
    }

    pub(super) fn push(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    pub(super) fn push_hole(&mut self, authority: Authority) {
        self.holes.push(Hole { at: self.bytes.len(), authority });
    }

    /// Ends a row; later pushes belong to the next. In an answer, rows that are `first` precede the
    /// others.
    pub(super) fn end_row(&mut self, is_first: bool) {
        self.push(self.separator);
        self.is_first.push(is_first);
        self.starts.push(Start { byte: self.bytes.len(), hole: self.holes.len() });
    }
}

/// Consecutive rows for one client, without the separator after the last.
#[derive(Clone)]
pub(super) struct Slice {
    pub(super) text: Arc<Text>,
    pub(super) rows: Range<usize>,
    pub(super) authorities: Authorities,
}

impl Slice {
    /// Returns the length with all placeholders filled.
    pub(super) fn bytes(&self) -> u64 {
        self.pieces().map(|piece| piece.len() as u64).sum()
    }

    /// Returns the text in pieces, in order.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let of = |is_first| move |row: &usize| self.text.is_first[*row] == is_first;
        let rows = self.rows.clone().filter(of(true)).chain(self.rows.clone().filter(of(false)));
        rows.enumerate().flat_map(|(place, row)| {
            let separator = if place == 0 { "" } else { self.text.separator };
            std::iter::once(separator.as_bytes()).chain(self.row(row))
        })
    }

    /// Returns a row without its trailing separator.
    fn row(&self, row: usize) -> impl Iterator<Item = &[u8]> {
        let Text { bytes, holes, starts, separator, .. } = &*self.text;
        let (first, last) = (starts[row], starts[row + 1]);
        let holes = &holes[first.hole..last.hole];
        let ends = holes.iter().map(|hole| hole.at).chain([last.byte - separator.len()]);
        let begins = [first.byte].into_iter().chain(holes.iter().map(|hole| hole.at));
        let fills = holes.iter().map(|hole| match hole.authority {
            Authority::Http => self.authorities.http.as_bytes(),
            Authority::Rtsp => self.authorities.rtsp.as_bytes(),
        });
        let texts = begins.zip(ends).map(|(begin, end)| &bytes[begin..end]);
        texts.zip(fills.chain([&[][..]])).flat_map(|(text, fill)| [text, fill])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(first: &str) -> Arc<Text> {
        let mut text = Text::new(",\n");
        for row in ["a", "b", "c"] {
            text.push(row);
            text.push("=http://");
            text.push_hole(Authority::Http);
            text.push("/");
            text.push_hole(Authority::Rtsp);
            text.end_row(first.contains(row));
        }
        Arc::new(text)
    }

    #[test]
    fn any_rows_are_filled_for_any_client() {
        let filled = |rows: Range<usize>, http: &str, rtsp: &str| {
            let authorities = Authorities { http: http.to_owned(), rtsp: rtsp.to_owned() };
            let slice = Slice { text: text(""), rows, authorities };
            let whole = slice.pieces().collect::<Vec<_>>().concat();
            assert_eq!(whole.len() as u64, slice.bytes());
            String::from_utf8(whole).unwrap()
        };
        assert_eq!(filled(0..3, "h", "r:1"), "a=http://h/r:1,\nb=http://h/r:1,\nc=http://h/r:1");
        assert_eq!(filled(1..2, "host", ""), "b=http://host/");
        assert_eq!(filled(2..3, "", "x"), "c=http:///x");
        assert_eq!(filled(1..1, "h", "r"), "");
        assert_eq!(filled(3..3, "h", "r"), "");
    }
    #[test]
    fn rows_that_are_first_stand_before_the_others_of_an_answer() {
        let shown = |first: &str, rows: Range<usize>| {
            let authorities = Authorities { http: String::new(), rtsp: String::new() };
            let slice = Slice { text: text(first), rows, authorities };
            let whole = slice.pieces().collect::<Vec<_>>().concat();
            String::from_utf8(whole).unwrap().replace("=http:///", "")
        };
        assert_eq!(shown("bc", 0..3), "b,\nc,\na");
        assert_eq!(shown("c", 0..2), "a,\nb");
        assert_eq!(shown("abc", 1..3), "b,\nc");
    }
}
