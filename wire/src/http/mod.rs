// SPDX-License-Identifier: MIT OR Apache-2.0
//! Server side of HTTP/1.1 for files and generated pages: bytes in, requests and answers out.
//!
//! [`RequestReader`] parses received bytes, in pieces of any size, into [`Request`]s. [`respond`]
//! selects the answer for a file (whole, ranges, not modified, refused) and returns it as a head
//! and [`Part`]s, so file bytes never pass through here: the caller sends a [`Part::File`] inside
//! the kernel. Per request this costs one copy of the head, one allocation for the answer's head
//! and a few small ones for the fields that are stored; a range set costs at most one small part
//! per range.
//!
//! Everything is a pure function of the bytes fed and the time passed in. A peer that breaks the
//! protocol gets a [`Malformed`] that names the byte and the section, and its connection is closed:
//! where message framing is in doubt nothing that follows can be trusted (RFC 9112 §11.2).
//!
//! Sources: RFC 9110 (semantics), RFC 9112 (HTTP/1.1), RFC 6585 §5 (431), RFC 3986 (targets).
//!
//! Contains no sockets, no timers (the caller answers a silent peer with [`refusal`] 408), no TLS
//! and no compression. Does not interpret paths: `.` and `..` stay in them, for the layer that
//! opens files to refuse.

mod body;
mod conditions;
mod content_type;
mod credentials;
mod details;
mod escape;
mod malformed;
mod multipart;
mod path_text;
mod ranges;
mod reader;
mod request;
mod response;
mod target;

pub use conditions::Conditions;
pub use content_type::content_type;
pub use credentials::{Credentials, query_token, unquoted};
pub use details::RequestDetails;
pub use escape::{escape_html, escape_path};
pub use malformed::Malformed;
pub use path_text::{decoded_path, path_bytes, path_text, shown_path};
pub use reader::{Limits, RequestReader};
pub use request::{Method, Request, Version, http2_request};
pub use response::{
    Entity, Listing, Part, Response, answer_method, error, file_etag, listing, page, refusal,
    respond, respond_whole, unstored,
};
