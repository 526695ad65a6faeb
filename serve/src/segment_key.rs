// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of enciphered segments: their length, their numbers, the path below which they are served,
//! and the function that makes them.
//!
//! Sources: RFC 8216 §4.3.2.4 (a key has 16 octets), ISO/IEC 23001-7 §9.1 (key identifiers).
//! Does not store keys ([`crate::http::film_keys`]) or encipher ([`crate::web::protection`]).

/// Bytes of a key.
pub const KEY_BYTES: usize = 16;

/// Makes key `number` of a film.
pub type KeyMaker = dyn Fn(&str, u64) -> [u8; KEY_BYTES] + Send + Sync;

/// Prefix of key paths; only if the server has keys, otherwise such paths are files.
pub(crate) const KEY_PATH_PREFIX: &str = "/keys/";

/// Number of the key of a file's samples.
pub(crate) const SAMPLE_KEY: u64 = 0;

/// Returns the identifier of the key of a film's samples.
pub(crate) fn key_id(make: &KeyMaker, film: &str) -> [u8; KEY_BYTES] {
    make(&format!("{film}\0kid"), SAMPLE_KEY)
}
