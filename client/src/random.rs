// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random numbers of a receiver: its SSRC, the spread of its reports, and its RTCP CNAME.
//!
//! Sources: RFC 3550 §8 (SSRC), §6.3.1 (interval); RFC 7022 §4.2 (a short-term persistent CNAME: 96
//! random bits, drawn for each session).

/// 32 random bits, for an SSRC or for the interval between reports.
///
/// # Panics
/// The kernel has no random bits yet, which is possible only during boot.
pub fn random_u32() -> u32 {
    getrandom::u32().expect("the kernel has random bits once it runs")
}

/// Returns a unique CNAME.
///
/// # Panics
/// As [`random_u32`].
pub fn random_cname() -> String {
    let mut bits = [0; 12];
    getrandom::fill(&mut bits).expect("the kernel has random bits once it runs");
    wire::rtcp::cname(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_session_has_a_cname_of_its_own() {
        let (one, other) = (random_cname(), random_cname());
        assert_ne!(one, other);
        assert_eq!(one.len(), 16, "96 bits in base64");
    }
}
