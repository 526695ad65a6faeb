// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random bits of the kernel as numbers and names: session identifiers, boundaries of multipart
//! answers, tokens, canonical names of RTCP.
//!
//! Sources: RFC 2326 §3.4 (at least 64 random bits), RFC 7022 (canonical names).
//! Panics only where the kernel has no random bits, which ends with its start.

/// Returns random bytes.
pub(crate) fn random_bytes<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).expect("the kernel has random bits once it runs");
    bytes
}

/// Returns 32 random bits, as for an interval of reports, so that sessions begun together do not
/// report together.
pub(crate) fn random_u32() -> u32 {
    u32::from_ne_bytes(random_bytes())
}

/// Returns random bytes in hexadecimal.
pub(crate) fn random_hex<const BYTES: usize>() -> String {
    random_bytes::<BYTES>().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns 128 random bits in hexadecimal: RFC 2326 §3.4 asks for at least 64.
pub(crate) fn random_id() -> String {
    random_hex::<16>()
}

/// Returns a random canonical name (CNAME) of 96 bits.
pub(crate) fn random_cname() -> String {
    wire::rtcp::cname(random_bytes())
}
