// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of one answer, shared by all clients of a page.
//!
//! Does not make rows ([`super::pages`]).

use std::sync::Arc;

use bytes::Bytes;

use super::gzip::Packed;
use super::text::Slice;

/// Rows of one answer, sent in place of [`wire::http::Part::Held`].
pub(crate) struct Body(pub(super) Held);

pub(super) enum Held {
    /// A file of the page ([`crate::http::page`]), a list of channels.
    Whole(Bytes),
    Plain(Slice),
    Packed(Arc<Packed>),
}

impl Body {
    pub(crate) fn of(bytes: Bytes) -> Body {
        Body(Held::Whole(bytes))
    }

    /// Returns the bytes to send, in order.
    pub(crate) fn pieces(&self) -> Box<dyn Iterator<Item = &[u8]> + Send + '_> {
        match &self.0 {
            Held::Whole(bytes) => Box::new(std::iter::once(&bytes[..])),
            Held::Plain(slice) => Box::new(slice.pieces()),
            Held::Packed(packed) => Box::new(std::iter::once(&packed.bytes[..])),
        }
    }
}
