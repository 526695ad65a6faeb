// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several ranges of a file as one `multipart/byteranges` body.
//!
//! The headers between the ranges are small byte parts; the ranges stay file parts, sent inside the
//! kernel. The length is the sum of both, known before the first byte is sent.
//!
//! Sources: RFC 9110 §14.6 (multipart/byteranges), §15.3.7.2; RFC 2046 §5.1.1 (boundary).

use super::ranges::ByteRange;
use super::response::Part;

/// Body parts for `spans` of a file of `bytes`.
pub(super) fn parts(
    spans: &[ByteRange],
    bytes: u64,
    content_type: &str,
    boundary: &str,
) -> Vec<Part> {
    let mut parts = Vec::with_capacity(spans.len() * 2 + 1);
    for (index, span) in spans.iter().enumerate() {
        let line_end = if index == 0 { "" } else { "\r\n" };
        let ByteRange { first, last } = *span;
        let header = format!(
            "{line_end}--{boundary}\r\nContent-Type: {content_type}\r\n\
             Content-Range: bytes {first}-{last}/{bytes}\r\n\r\n"
        );
        parts.push(Part::Bytes(header.into()));
        parts.push(Part::File { offset: first, bytes: span.bytes() });
    }
    parts.push(Part::Bytes(format!("\r\n--{boundary}--\r\n").into()));
    parts
}

/// 1 to 70 characters that need no quotes in the Content-Type parameter: those of a token that
/// are boundary characters as well (RFC 2046 §5.1.1, RFC 9110 §5.6.2).
pub(super) fn is_boundary(text: &str) -> bool {
    (1..=70).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"'+_-.".contains(&byte))
}
