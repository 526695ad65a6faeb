// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sizes and padding of the cipher of segments: AES-128 in CBC, PKCS#7.
//!
//! Sources: RFC 8216 §4.3.2.4 (AES-128 of the whole segment), RFC 5652 §6.3 (the padding).
//! Does not encipher (the lanes do) or pad (`segment_work` does).

/// Bytes of a key: HLS has only AES-128 (RFC 8216 §4.3.2.4).
pub const KEY_BYTES: usize = 16;
/// Bytes of a block; a sealed segment is whole blocks.
pub(super) const BLOCK_BYTES: usize = 16;

/// Returns the bytes before the padding; `None` if the padding is wrong.
pub(super) fn without_padding(bytes: &[u8]) -> Option<usize> {
    let &padding = bytes.last()?;
    let is_right = (1..=BLOCK_BYTES as u8).contains(&padding);
    let rest = bytes.len().checked_sub(usize::from(padding)).filter(|_| is_right)?;
    bytes[rest..].iter().all(|&byte| byte == padding).then_some(rest)
}
